//! The process that keeps the router's privileges, and its services for the router, which has
//! dropped them.
//!
//! ```text
//!   linerate router ──── requests, descriptors ────► privilege helper: no packets, no memory of them,
//!   packets, peers, clients  ◄──── descriptors ────          names from the configuration only
//!   no capabilities              one socket
//! ```
//!
//! [`split`] starts the privilege helper and drops this process's privileges, before there is a
//! second thread; where root has started it, it becomes another user ([`Successor`]), and the
//! privilege helper stays root: it reads the file again, which the router cannot change then, and
//! opens the files that it names. [`Privileged`] has all requests of the router: [`Helper`] sends
//! them as messages of [`message`], over a socket by [`protocol`]. On the other side [`serve`]
//! checks in [`permits`] that the configuration names the object, and runs the request like a
//! process with the privileges itself: [`Own`].
//!
//! The privilege helper holds nothing. Programs, TAPs and sockets are the router's and go with it,
//! however it ends; the privilege helper ends when the socket closes, and the router when the
//! privilege helper has ended.

mod capabilities;
mod client;
mod message;
mod permits;
mod protocol;
mod serve;
mod successor;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use linerate_drivers::{Opener, Own};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;

use self::client::Helper;
use self::permits::Permits;
use self::successor::Successor;
use crate::address::Cidr;
use crate::error::Error;
use crate::files;
use crate::netlink::host_interface::{Attributes, Kernel};
use crate::netlink::socket;

pub use permits::{Named, ReadNamed};
pub use serve::{Args, run};

/// Where the kernel has the settings of interfaces.
pub const SETTINGS_AT: &str = "/proc/sys/net";
/// The family of a setting, its name, and its value on a port: no packet whose source is elsewhere
/// (the host interface), no answer to ARP, no IPv6.
pub const SETTINGS: [(&str, &str, &str); 3] = [
    ("ipv4", "rp_filter", "1"),
    ("ipv4", "arp_ignore", "8"),
    ("ipv6", "disable_ipv6", "1"),
];

/// The router's privileged operations: those of drivers, and those on host interfaces.
pub trait Privileged: Opener {
    /// A socket for routing netlink in a network name space, with room for so many bytes of events.
    ///
    /// # Errors
    /// If there is no such name space, or it may not be entered.
    fn netlink(&self, netns: Option<&str>, room: Option<usize>) -> Result<OwnedFd, Error>;

    /// Configures a host interface, with its carrier; does nothing if there is none.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn make_alike(
        &self,
        netns: Option<&str>,
        name: &str,
        like: &Attributes,
        carrier: bool,
    ) -> Result<(), Error>;

    /// Removes an address of a host interface; succeeds if it does not exist.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn remove_address(&self, netns: Option<&str>, name: &str, cidr: Cidr) -> Result<(), Error>;

    /// Writes one of the [`SETTINGS`] of a port's interface.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn set(&self, setting: &Path, value: &str) -> Result<(), Error>;

    /// The text of the configuration file, at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    fn configuration(&self, path: &Path) -> io::Result<String>;

    /// What an earlier run has [noted](Self::note) at `path`.
    ///
    /// # Errors
    /// There is none, or another user has written it.
    fn notes(&self, path: &Path) -> io::Result<String>;

    /// Saves a text at `path` for the next run; an empty one removes the file.
    ///
    /// # Errors
    /// `path` cannot be written.
    fn note(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Whether the helper is alive.
    fn is_alive(&self) -> bool;
}

/// The [`SETTINGS`] of an interface: path and value of each.
pub fn settings_of(interface: &str) -> impl Iterator<Item = (PathBuf, &'static str)> {
    settings_under(Path::new(SETTINGS_AT), interface)
}

/// The same below another folder than the kernel's.
pub fn settings_under(
    root: &Path,
    interface: &str,
) -> impl Iterator<Item = (PathBuf, &'static str)> {
    SETTINGS.into_iter().map(move |(family, key, value)| {
        let of = root.join(family).join("conf").join(interface);
        (of.join(key), value)
    })
}

impl Privileged for Own {
    fn netlink(&self, netns: Option<&str>, room: Option<usize>) -> Result<OwnedFd, Error> {
        socket::open(netns, room)
    }

    fn make_alike(
        &self,
        netns: Option<&str>,
        name: &str,
        like: &Attributes,
        carrier: bool,
    ) -> Result<(), Error> {
        Kernel::open(netns)?.make_alike(name, like, carrier)
    }

    fn remove_address(&self, netns: Option<&str>, name: &str, cidr: Cidr) -> Result<(), Error> {
        Kernel::open(netns)?.remove_address(name, cidr)
    }

    fn set(&self, setting: &Path, value: &str) -> Result<(), Error> {
        Ok(fs::write(setting, value)?)
    }

    fn configuration(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn notes(&self, path: &Path) -> io::Result<String> {
        files::read_own(path)
    }

    fn note(&self, path: &Path, text: &str) -> io::Result<()> {
        match text.is_empty() {
            true => fs::remove_file(path),
            false => files::replace(path, text),
        }
    }

    fn is_alive(&self) -> bool {
        true
    }
}

/// The file of saved interface settings: beside the control socket.
pub fn notes_beside(socket: &Path) -> PathBuf {
    socket.with_extension("sysctl")
}

/// Starts a privilege helper for a configuration, if it needs privileges or this is root, and drops
/// all privileges of this process permanently: capabilities (except locking memory, if an af_xdp
/// port needs it), and root's files with its user.
///
/// # Errors
/// The privilege helper cannot read the configuration, no process can be started, this process may
/// not become the named user, or there are other threads already, which would keep their
/// privileges.
pub fn split(path: &Path, named: &Named) -> Result<Arc<dyn Privileged>, Error> {
    let permits = Permits::of(named);
    let user = Successor::of(named.user.as_ref())?;
    let privileged: Arc<dyn Privileged> = match permits.take_none() {
        true if user.is_none() || !path.is_file() => Arc::new(Own),
        _ if path.is_file() => Arc::new(Helper::start(path)?),
        _ => {
            return Err(Error::Usage {
                problem: format!("{}: no file, but read more than once", path.display()),
                fix: "write the configuration to a file".into(),
            });
        }
    };
    let locks = permits.locks_memory() && !unlimited_lock();
    let kept = match locks {
        true => CapabilitySet::IPC_LOCK,
        false => CapabilitySet::empty(),
    };
    capabilities::keep(kept, user.as_ref())?;
    Ok(privileged)
}

/// af_xdp locks its packets' memory, which only the process that has it can do. Raises the limit as
/// far as possible; returns whether it is unlimited. Beyond a limit CAP_IPC_LOCK is needed.
fn unlimited_lock() -> bool {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Memlock, unlimited).is_ok() {
        return true;
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    // If it does not suffice, the port reports an error.
    let _ = setrlimit(Resource::Memlock, most);
    maximum.is_none()
}

/// The error of a process whose privilege helper has ended.
pub fn ended() -> Error {
    Error::Usage {
        problem: "the process that keeps this one's privileges has ended".into(),
        fix: "start again; what it said before, or `dmesg`, may tell why".into(),
    }
}
