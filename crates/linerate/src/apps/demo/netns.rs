//! A network name space for the comparison, without a name: it goes, with all interfaces in it,
//! when the last thread or descriptor in it does, however the process ends.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::Error;

/// Moves the calling thread, and all that it will start, into a fresh network name space.
pub(super) fn enter() -> Result<(), Error> {
    let failed = |problem: String| {
        Error::Usage {
        problem: format!("--linux-bridge cannot make a network name space: {problem}"),
        fix: "run it as root, with CAP_SYS_ADMIN and CAP_NET_ADMIN: `sudo linerate demo --linux-bridge`".into(),
    }
    };
    // A child makes it, since only unsafe code could; it lives until this thread is in it.
    let spawned = Command::new("unshare")
        .args(["--net", "cat"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut maker =
        Reaped(spawned.map_err(|error| failed(format!("`unshare` of util-linux: {error}")))?);
    let path = format!("/proc/{}/ns/net", maker.0.id());
    let own = fs::read_link("/proc/thread-self/ns/net")?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while fs::read_link(&path).map_or(true, |made| made == own) {
        if maker.0.try_wait()?.is_some() || Instant::now() > deadline {
            return Err(failed("`unshare --net` is not permitted".into()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let space = File::open(&path)?;
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| failed(error.to_string()))
}

/// A child that does not outlive its value.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs lines of `ip` commands; the first that fails is named.
pub(super) fn ip(lines: &str) -> Result<(), Error> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_ip)?;
    if let Some(stdin) = &mut child.stdin {
        stdin.write_all(lines.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    succeeded("ip", output.status.success(), &output.stderr)
}

/// Runs a shell command in a mount name space in which /sys shows this network name space.
pub(super) fn with_sysfs(command: &str) -> Result<(), Error> {
    let script = format!("mount -t sysfs sysfs /sys && {command}");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", &script])
        .output()?;
    succeeded(command, output.status.success(), &output.stderr)
}

/// Frames that an interface has received.
pub(super) fn received(interface: &str) -> Result<u64, Error> {
    let output = Command::new("ip")
        .args(["-s", "-j", "link", "show", interface])
        .output()
        .map_err(no_ip)?;
    succeeded("ip link show", output.status.success(), &output.stderr)?;
    let links: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(std::io::Error::from)?;
    Ok(links[0]["stats64"]["rx"]["packets"].as_u64().unwrap_or(0))
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
        fix: "run as root on a kernel with veth and bridge".into(),
    })
}

fn no_ip(error: std::io::Error) -> Error {
    Error::Usage {
        problem: format!("--linux-bridge needs the `ip` tool: {error}"),
        fix: "apt-get install iproute2".into(),
    }
}
