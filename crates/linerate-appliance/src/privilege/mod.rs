//! The process that keeps the router's privileges, and what it does for the one that has given them
//! away.
//!
//! ```text
//!   linerate router ──── requests, descriptors ────► privilege helper: no packets, no memory of them,
//!   packets, peers, clients  ◄──── descriptors ────          names from the configuration only
//!   no capabilities              one socket
//! ```
//!
//! [`split`] starts the privilege helper and gives away what this process may do, before there is a
//! second thread; where root has started it, it becomes another user ([`Successor`]), and the
//! privilege helper stays root: it reads the file again, which the router cannot change then, and
//! opens the files that it names. [`Privileged`] is all that the router then asks for: of
//! [`Helper`], by the messages of [`message`], over a socket as [`protocol`] says. On the other
//! side [`serve`] looks up in [`permits`] whether the configuration names what is asked for, and
//! does it as any process would that has the privileges itself: [`Own`].
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
/// The family of a setting, its name, and what it is to be on a port: no packet whose source is
/// elsewhere (the host interface), no answer to ARP, no IPv6.
pub const SETTINGS: [(&str, &str, &str); 3] = [
    ("ipv4", "rp_filter", "1"),
    ("ipv4", "arp_ignore", "8"),
    ("ipv6", "disable_ipv6", "1"),
];

/// What the router does that takes privileges: what drivers open, and what becomes of host
/// interfaces.
pub trait Privileged: Opener {
    /// A socket for routing netlink in a network name space, with room for so many bytes of events.
    ///
    /// # Errors
    /// If there is no such name space, or it may not be entered.
    fn netlink(&self, netns: Option<&str>, room: Option<usize>) -> Result<OwnedFd, Error>;

    /// Makes a host interface what it is to be, its wire included; nothing where there is none.
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

    /// Takes an address from a host interface; well if it is not there.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn remove_address(&self, netns: Option<&str>, name: &str, cidr: Cidr) -> Result<(), Error>;

    /// Writes one of the [`SETTINGS`] of a port's interface.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn set(&self, setting: &Path, value: &str) -> Result<(), Error>;

    /// What is in the configuration file, at `path`.
    ///
    /// # Errors
    /// It cannot be read.
    fn configuration(&self, path: &Path) -> io::Result<String>;

    /// What an earlier run has [noted](Self::note) at `path`.
    ///
    /// # Errors
    /// There is nothing, or somebody else has written it.
    fn notes(&self, path: &Path) -> io::Result<String>;

    /// Keeps a text at `path` for the next run; nothing: there is no file any more.
    ///
    /// # Errors
    /// The place cannot be written.
    fn note(&self, path: &Path, text: &str) -> io::Result<()>;

    /// Whether somebody is there to ask.
    fn is_alive(&self) -> bool;
}

/// The [`SETTINGS`] of an interface: where each stands, and what it is to be.
pub fn settings_of(interface: &str) -> impl Iterator<Item = (PathBuf, &'static str)> {
    settings_under(Path::new(SETTINGS_AT), interface)
}

/// The same in another place than the kernel's.
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

/// Where it is kept what settings of interfaces were: beside the control socket.
pub fn notes_beside(socket: &Path) -> PathBuf {
    socket.with_extension("sysctl")
}

/// Starts a privilege helper for what a configuration names, where it takes privileges or this is
/// root, and gives away all privileges of this process for ever: capabilities (but to lock memory,
/// where an af_xdp port could not do without), and root's files with its user.
///
/// # Errors
/// The configuration is in no file that the privilege helper could read too, no process can be
/// started, this may not become the user that is named, or there are other threads already, which
/// would keep theirs.
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
/// far as may be; whether there is none any more. Where there is one, it takes CAP_IPC_LOCK to go
/// beyond.
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
    // Where it does not suffice, the port says so.
    let _ = setrlimit(Resource::Memlock, most);
    maximum.is_none()
}

/// The error of a router whose privilege helper has ended.
pub fn ended() -> Error {
    Error::Usage {
        problem: "the process that keeps the router's privileges has ended".into(),
        fix: "start the router again; what it said before, or `dmesg`, may tell why".into(),
    }
}
