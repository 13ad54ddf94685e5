//! The messages between router and privilege helper: requests and replies, as JSON.
//!
//! A peer may have taken over the router, so the privilege helper treats every message as hostile.
//! Nothing here refers to the rest of the program: the fuzz target `privilege` includes this file.

use std::net::IpAddr;
use std::path::PathBuf;

use linerate_drivers::TapChange;
use linerate_wire::MacAddr;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Reads a message; or returns why it is invalid.
pub(super) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| format!("no message: {error}"))
}

/// Writes a message.
pub(super) fn write(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(message)
}

/// Everything that the privilege helper does. Names are those of interfaces, `netns` as in
/// [`Opener`](linerate_drivers::Opener).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Request {
    ControlSocket {
        netns: String,
    },
    PacketSocket {
        name: String,
    },
    XdpSocket {
        name: String,
        busy_poll_us: u32,
    },
    /// Comes back with the map and the program.
    XdpProgram {
        name: String,
        filter: String,
    },
    /// Goes with a program.
    XdpAttach {
        name: String,
        native: bool,
    },
    /// Goes with a map, and with a socket unless frames go to the kernel.
    XdpMap {
        name: String,
        queue: u32,
    },
    Tap {
        netns: Option<String>,
        name: String,
        several: bool,
    },
    ChangeTap {
        netns: Option<String>,
        name: String,
        change: Change,
    },
    Netlink {
        netns: Option<String>,
        room: Option<usize>,
    },
    MakeAlike {
        netns: Option<String>,
        name: String,
        like: Like,
        carrier: bool,
    },
    RemoveAddress {
        netns: Option<String>,
        name: String,
        address: (IpAddr, u8),
    },
    Set {
        setting: PathBuf,
        value: String,
    },
    /// Comes back with the configuration file.
    Configuration,
    /// Comes back with the file of saved settings, if there is one.
    Notes,
    /// Saved settings; empty: nothing is to be restored.
    Note {
        text: String,
    },
    /// Comes back with a file that a port reads.
    ReadFile {
        path: PathBuf,
    },
    /// Comes back with a file that a port writes.
    WriteFile {
        path: PathBuf,
        add: bool,
    },
}

/// A [`TapChange`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Change {
    Mac([u8; 6]),
    Mtu(u32),
    Up(bool),
}

impl From<TapChange> for Change {
    fn from(change: TapChange) -> Self {
        match change {
            TapChange::Mac(MacAddr(mac)) => Self::Mac(mac),
            TapChange::Mtu(mtu) => Self::Mtu(mtu),
            TapChange::Up(up) => Self::Up(up),
        }
    }
}

impl From<Change> for TapChange {
    fn from(change: Change) -> Self {
        match change {
            Change::Mac(mac) => Self::Mac(MacAddr(mac)),
            Change::Mtu(mtu) => Self::Mtu(mtu),
            Change::Up(up) => Self::Up(up),
        }
    }
}

/// Wanted configuration of a host interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Like {
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) addresses: Vec<(IpAddr, u8)>,
}

/// Result of a request; opened descriptors go with it.
pub(super) type Reply = Result<(), Refusal>;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Refusal {
    /// The kernel's number for it, if it was the kernel.
    pub(super) errno: Option<i32>,
    pub(super) problem: String,
    pub(super) fix: String,
}

impl Refusal {
    /// A refusal by the privilege helper itself.
    pub(super) fn new(problem: impl Into<String>, fix: &str) -> Self {
        Self {
            errno: None,
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}
