//! A network name space of a test's own: nothing of it has a name, so nothing can stay behind.
//!
//! A child makes the name space and keeps it alive until the test has a descriptor of it; then the
//! child ends. The name space, with all its interfaces, ends with the last descriptor.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A network name space; threads spawned inside [`Unnamed::enter`] are in it too.
pub struct Unnamed(File);

impl Unnamed {
    /// A fresh one, with loopback only; or why there is none.
    pub fn new() -> Result<Self, String> {
        let mut child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("needs `unshare` of util-linux: {error}"))?;
        let path = format!("/proc/{}/ns/net", child.id());
        let id = |path: &str| std::fs::read_link(path).ok();
        let (own, start) = (id("/proc/thread-self/ns/net"), Instant::now());
        let mut found = None;
        while found.is_none()
            && matches!(child.try_wait(), Ok(None))
            && start.elapsed() < Duration::from_secs(5)
        {
            found = id(&path)
                .filter(|_| id(&path) != own)
                .and_then(|_| File::open(&path).ok());
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let _ = child.wait();
        found
            .map(Self)
            .ok_or_else(|| "needs CAP_SYS_ADMIN for a network name space of its own".into())
    }

    /// Moves this thread into it, until the guard is dropped.
    pub fn enter(&self) -> Inside {
        let before = File::open("/proc/thread-self/ns/net").unwrap();
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        Inside(before)
    }

    /// Runs `ip` with these words in it.
    pub fn ip(&self, words: &str) {
        let output = self.run("ip", words);
        assert!(
            output.status.success(),
            "ip {words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Moves an interface to another one, gives it an address there, and brings it up.
    pub fn give(&self, name: &str, other: &Self, address: &str) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.ip(&format!("link set {name} netns {path}"));
        other.quiet(name);
        other.ip(&format!("addr add {address} dev {name}"));
        other.ip(&format!("link set {name} up"));
    }

    /// Runs a program in it.
    pub fn run(&self, program: &str, words: &str) -> Output {
        let _inside = self.enter();
        Command::new(program)
            .args(words.split_whitespace())
            .output()
            .unwrap()
    }

    /// Two interfaces joined by a wire, both up, without the kernel's own chatter.
    pub fn veth(&self, a: &str, b: &str) {
        self.ip(&format!("link add {a} type veth peer name {b}"));
        for name in [a, b] {
            self.quiet(name);
            self.ip(&format!("link set {name} up"));
        }
    }

    /// Keeps IPv6 from announcing itself on an interface.
    pub fn quiet(&self, name: &str) {
        let _inside = self.enter();
        let _ = Command::new("sysctl")
            .args(["-qw", &format!("net.ipv6.conf.{name}.disable_ipv6=1")])
            .output();
    }
}

/// While it lives, the thread is in another name space.
pub struct Inside(File);

impl Drop for Inside {
    fn drop(&mut self) {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }
}
