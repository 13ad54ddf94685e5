//! Keeps the kernel from speaking beside the router on the interfaces of its ports.
//!
//! With af_packet the kernel has its copy of every frame, and takes each of its addresses, those of
//! the host interfaces among them, for its own on any interface. With af_xdp it has no frames, and
//! yet it speaks Neighbor Discovery. Three settings of the interface keep it silent; what they were
//! is put back at the end, or at the end of the next run, if this one is killed: until then it
//! stands in a file beside the control socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linerate_core::port::PortInfo;

use crate::machine;
use linerate_appliance::error::Error;
use linerate_appliance::privilege::{Privileged, SETTINGS_AT, notes_beside, settings_under};

/// Settings that were changed. Dropped, it puts them back.
pub(super) struct SysctlGuard {
    /// Who may change them.
    privileged: Arc<dyn Privileged>,
    /// Where the kernel has its settings: `/proc/sys/net`.
    root: PathBuf,
    /// Where what they were is kept.
    notes: PathBuf,
    /// Names of kernel interfaces.
    interfaces: Vec<String>,
    /// What was changed, and what it was.
    was: Vec<(PathBuf, String)>,
    /// What was in the file at the start: a run before this one was killed.
    left: Vec<(PathBuf, String)>,
    is_warned: bool,
}

impl SysctlGuard {
    /// For the ports among these that are interfaces of the kernel; `socket` is that of the control
    /// thread.
    pub(super) fn new(ports: &[PortInfo], socket: &Path, privileged: Arc<dyn Privileged>) -> Self {
        Self::under(SETTINGS_AT, ports, socket, privileged)
    }

    fn under(
        root: &str,
        ports: &[PortInfo],
        socket: &Path,
        privileged: Arc<dyn Privileged>,
    ) -> Self {
        let notes = notes_beside(socket);
        let line = |line: &str| {
            let (path, value) = line.split_once(' ')?;
            Some((path.into(), value.into()))
        };
        let interfaces = interfaces(ports);
        let left = match interfaces.is_empty() {
            true => String::new(),
            false => privileged.notes(&notes).unwrap_or_default(),
        };
        Self {
            privileged,
            root: root.into(),
            left: left.lines().filter_map(line).collect(),
            notes,
            interfaces,
            was: Vec::new(),
            is_warned: false,
        }
    }

    /// Changes what is not as it should be: at the start, and again when an interface has come
    /// back. What may not be changed is said once, with what is to be done instead.
    pub(super) fn keep(&mut self) {
        let mut refused = Vec::new();
        for interface in self.interfaces.clone() {
            for (path, value) in settings_under(&self.root.clone(), &interface) {
                if let Err(error) = self.set(path.clone(), value) {
                    refused.push((format!("{}={value}", path.display()), error));
                }
            }
        }
        if let Some((_, error)) = refused.first().filter(|_| !self.is_warned) {
            let all: Vec<&str> = refused
                .iter()
                .map(|(setting, _)| setting.as_str())
                .collect();
            eprintln!(
                "warning: the kernel may answer beside the router: settings of interfaces cannot \
                 be changed: {error}\nfix: write them as root: {}",
                all.join(" ")
            );
            self.is_warned = true;
        }
    }

    /// For these ports from now on: what others have is as it was.
    pub(super) fn follow(&mut self, ports: &[PortInfo]) {
        let before = std::mem::replace(&mut self.interfaces, interfaces(ports));
        let gone: Vec<PathBuf> = before
            .iter()
            .filter(|name| !self.interfaces.contains(name))
            .flat_map(|name| settings_under(&self.root, name))
            .map(|(path, _)| path)
            .collect();
        if !gone.is_empty() {
            let is_gone = |(path, _): &(PathBuf, String)| gone.contains(path);
            let (back, stay) = std::mem::take(&mut self.was).into_iter().partition(is_gone);
            self.was = stay;
            let stuck = self.put_back(back);
            self.was.extend(stuck);
            self.note();
        }
        if self.interfaces != before {
            self.keep();
        }
    }

    /// Returns those that stay changed.
    fn put_back(&self, mut was: Vec<(PathBuf, String)>) -> Vec<(PathBuf, String)> {
        was.retain(|(path, was)| {
            // An interface that is gone has nothing to be put back.
            let is_there = fs::read_to_string(path).is_ok();
            match is_there.then(|| self.privileged.set(path, was)) {
                Some(Err(error)) => {
                    eprintln!("warning: {} stays changed: {error}", path.display());
                    true
                }
                _ => false,
            }
        });
        was
    }

    fn set(&mut self, path: PathBuf, value: &str) -> Result<(), Error> {
        // Without IPv6, or without the interface, there is nothing to keep silent.
        let Ok(now) = fs::read_to_string(&path) else {
            return Ok(());
        };
        let now = now.trim().to_string();
        let known = self.was.iter().any(|(known, _)| *known == path);
        if now == value {
            // By the administrator; or by a run that could not put back what was before it.
            let left = self.left.iter().position(|(left, _)| *left == path);
            if let Some(at) = left.filter(|_| !known) {
                let was = self.left.swap_remove(at);
                self.was.push(was);
            }
            return Ok(());
        }
        self.privileged.set(&path, value)?;
        if !known {
            self.was.push((path, now));
            self.note();
        }
        Ok(())
    }

    /// Without the file a run that is killed leaves the settings as they are: no reason not to run.
    fn note(&self) {
        let line = |(path, was): &(PathBuf, String)| format!("{} {was}\n", path.display());
        let text = self.was.iter().map(line).collect::<String>();
        let _ = self.privileged.note(&self.notes, &text);
    }
}

/// The interfaces of the kernel among ports.
fn interfaces(ports: &[PortInfo]) -> Vec<String> {
    let below = ports
        .iter()
        .filter_map(|port| machine::interface_of(&port.name));
    below.map(|(_, interface)| interface).collect()
}

impl Drop for SysctlGuard {
    fn drop(&mut self) {
        let was = std::mem::take(&mut self.was);
        if was.is_empty() {
            return;
        }
        self.was = self.put_back(was);
        // What stays, the next run may be able to.
        self.note();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_appliance::privilege::SETTINGS;
    use linerate_core::env::PrivateFolder;
    use linerate_drivers::Own;

    /// A place with the settings of one interface, as the kernel shows them.
    fn place() -> PrivateFolder {
        let place = PrivateFolder::new("sysctl-guard").unwrap();
        for (family, key, value) in [
            ("ipv4", "rp_filter", "2\n"),
            ("ipv4", "arp_ignore", "0\n"),
            ("ipv6", "disable_ipv6", "0\n"),
        ] {
            let folder = place.join(family).join("conf/eth0");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(key), value).unwrap();
        }
        place
    }

    fn port(name: &str) -> PortInfo {
        PortInfo {
            name: name.into(),
            kind: "af_packet",
            mac: None,
            max_frame_bytes: 1514,
            max_rx_queues: 1,
            max_tx_queues: 1,
            numa_node: None,
            tx_offloads: false,
            aligned_pool: false,
            exposed_pool: false,
            facts: Vec::new(),
        }
    }

    fn values(place: &Path) -> [String; 3] {
        SETTINGS.map(|(family, key, _)| {
            let path = place.join(family).join("conf/eth0").join(key);
            fs::read_to_string(path).unwrap().trim().to_string()
        })
    }

    fn sysctl_guard(place: &Path) -> SysctlGuard {
        let ports = ["af_packet:eth0,queues=2", "ring:a", "af_xdp:gone"].map(port);
        let socket = place.join("router.sock");
        SysctlGuard::under(place.to_str().unwrap(), &ports, &socket, Arc::new(Own))
    }

    #[test]
    fn settings_are_changed_and_put_back() {
        let place = place();
        let mut first = sysctl_guard(place.path());
        assert_eq!(first.interfaces, ["eth0", "gone"]);
        first.keep();
        assert_eq!(values(place.path()), ["1", "8", "1"]);
        // The interface was made anew.
        fs::write(place.join("ipv4/conf/eth0/arp_ignore"), "0").unwrap();
        first.keep();
        assert_eq!(values(place.path()), ["1", "8", "1"]);
        drop(first);
        assert_eq!(values(place.path()), ["2", "0", "0"]);
        assert!(!place.join("router.sysctl").exists());
    }

    #[test]
    fn an_interface_that_is_no_ports_any_more_has_its_settings_back() {
        let place = place();
        let mut sysctl_guard = sysctl_guard(place.path());
        sysctl_guard.keep();
        sysctl_guard.follow(&[port("ring:a")]);
        assert_eq!(values(place.path()), ["2", "0", "0"]);
        sysctl_guard.follow(&[port("af_xdp:eth0")]);
        assert_eq!(values(place.path()), ["1", "8", "1"]);
        drop(sysctl_guard);
        assert_eq!(values(place.path()), ["2", "0", "0"]);
        assert!(!place.join("router.sysctl").exists());
    }

    #[test]
    fn what_a_killed_run_left_is_put_back_by_the_next() {
        let place = place();
        let mut killed = sysctl_guard(place.path());
        killed.keep();
        killed.was.clear(); // as if it had not come to that
        let notes = fs::read(place.join("router.sysctl")).unwrap();
        drop(killed);
        fs::write(place.join("router.sysctl"), notes).unwrap();
        assert_eq!(values(place.path()), ["1", "8", "1"]);
        let mut next = sysctl_guard(place.path());
        next.keep();
        drop(next);
        assert_eq!(values(place.path()), ["2", "0", "0"]);
    }
}
