//! Network name spaces for comparisons and benchmarks, without names: one ends, with all its
//! interfaces, with its last thread or descriptor, however the process ends.
//!
//! Without root the whole process first moves into a user name space of its own ([`as_root`]).

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::Error;

/// A network name space; it exists as long as this value, a thread in it, or a socket of it.
#[derive(Debug)]
pub struct Space(File);

impl Space {
    /// A fresh one. The loopback interface is down, and IPv6 is off, so that the kernel itself
    /// sends nothing.
    ///
    /// # Errors
    /// Where `unshare` is missing or not permitted.
    pub fn new() -> Result<Self, Error> {
        // A child process makes it, since `unshare` needs unsafe code; the child lives until its
        // descriptor is open.
        let spawned = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut maker =
            Reaped(spawned.map_err(|error| refused(&format!("`unshare` of util-linux: {error}")))?);
        let path = format!("/proc/{}/ns/net", maker.0.id());
        let own = fs::read_link("/proc/thread-self/ns/net")?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::read_link(&path).map_or(true, |made| made == own) {
            if maker.0.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(refused("`unshare --net` is not permitted"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let space = Self(File::open(&path)?);
        space.within(|| {
            for key in ["default", "all"] {
                // A kernel without IPv6 sends nothing anyway.
                let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{key}/disable_ipv6"), "1");
            }
            Ok(())
        })?;
        Ok(space)
    }

    /// The one that the calling thread is in.
    pub fn current() -> Result<Self, Error> {
        Ok(Self(File::open("/proc/thread-self/ns/net")?))
    }

    /// The one that `ip netns` knows by this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Self, Error> {
        let path = Path::new("/run/netns").join(name);
        File::open(&path).map(Self).map_err(|error| Error::Usage {
            problem: format!("network name space `{name}`: {}: {error}", path.display()),
            fix: format!("make it: `ip netns add {name}`"),
        })
    }

    /// Moves the calling thread, and all that it will start, into it; does nothing if it is there
    /// already.
    pub fn enter(&self) -> Result<(), Error> {
        let here = fs::metadata("/proc/thread-self/ns/net")?;
        let there = self.0.metadata()?;
        if (here.dev(), here.ino()) == (there.dev(), there.ino()) {
            return Ok(());
        }
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| refused(&error.to_string()))
    }

    /// Does `work` in it, on a thread of its own.
    pub fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter()?;
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Its path for `ip link set ... netns`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

fn refused(problem: &str) -> Error {
    Error::Usage {
        problem: format!("a network name space cannot be made: {problem}"),
        fix: "run it as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), with util-linux installed".into(),
    }
}

/// Makes sure that this process may make name spaces: does nothing as root; otherwise starts the
/// program anew, with the same arguments, in a user name space in which it is root, and does not
/// return.
///
/// # Errors
/// Where the kernel lets users have no name spaces.
pub fn as_root() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user"]);
        command
    };
    let allowed = unshare().arg("true").stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return Err(refused("this user may have no name spaces"));
    }
    let error = unshare()
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(refused(&error.to_string()))
}

/// A child process that is killed with this value.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs lines of `ip` commands; the first that fails is named.
pub fn ip(lines: &str) -> Result<(), Error> {
    feed("ip", &["-batch", "-"], lines, "apt-get install iproute2")
}

/// Runs `program` with `lines` on its standard input; `fix` says how to get it where it is missing.
pub fn feed(program: &str, args: &[&str], lines: &str, fix: &str) -> Result<(), Error> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| missing(program, &error, fix))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    succeeded(program, output.status.success(), &output.stderr)
}

/// Runs a shell command in a mount name space in which /sys shows this network name space.
pub fn with_sysfs(command: &str) -> Result<(), Error> {
    let script = format!("mount -t sysfs sysfs /sys && {command}");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", &script])
        .output()?;
    succeeded(command, output.status.success(), &output.stderr)
}

/// Sets a kernel parameter of the calling thread's name space, such as `net/ipv4/ip_forward`.
pub fn sysctl(key: &str, value: &str) -> Result<(), Error> {
    let path = Path::new("/proc/sys").join(key);
    fs::write(&path, value).map_err(|source| Error::File { path, source })
}

fn succeeded(what: &str, success: bool, stderr: &[u8]) -> Result<(), Error> {
    if success {
        return Ok(());
    }
    Err(Error::Usage {
        problem: format!(
            "`{what}` failed: {}",
            String::from_utf8_lossy(stderr).trim()
        ),
        fix: "run as root on a kernel with veth, bridge and nf_tables".into(),
    })
}

fn missing(program: &str, error: &std::io::Error, fix: &str) -> Error {
    Error::Usage {
        problem: format!("the `{program}` tool does not start: {error}"),
        fix: fix.into(),
    }
}
