//! The ways of users' packets: the host's paths, remembered by destination, so that one costs no
//! search as a rule.

use std::net::Ipv4Addr;

use linerate_epc::tunnels::{Way, Ways};
use linerate_stack::host::{Host, Path};

/// Destinations that are remembered, a power of two: one for each hash.
const PLACES: usize = 1024;

/// Paths by destination.
pub(super) struct Known {
    places: Box<[(u32, Path)]>,
}

impl Known {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            places: vec![(0, Path::UNKNOWN); PLACES].into(),
        }
    }
}

/// Paths of a host, now.
pub(super) struct HostWays<'a> {
    pub(super) host: &'a mut Host,
    pub(super) known: &'a mut Known,
    pub(super) now_ns: u64,
}

impl HostWays<'_> {
    /// The path to an address, if there is one.
    #[inline]
    pub(super) fn path(&mut self, to: [u8; 4]) -> Option<Path> {
        let number = u32::from_be_bytes(to);
        // Fibonacci hashing: neighbours get places apart.
        let at = (number.wrapping_mul(0x9e37_79b1) >> 22) as usize % PLACES;
        let (known, path) = self.known.places[at];
        if known == number && self.host.is_current(path) {
            return Some(path);
        }
        let path = self.host.path_through(Ipv4Addr::from(to).into())?;
        self.known.places[at] = (number, path);
        Some(path)
    }
}

impl Ways for HostWays<'_> {
    #[inline]
    fn way(&mut self, to: [u8; 4]) -> Option<Way> {
        let path = self.path(to)?;
        let mtu = self.host.mtu(path, Ipv4Addr::from(to).into(), self.now_ns);
        Some(Way {
            mtu: mtu.bytes.into(),
            is_own: path.is_loopback(),
        })
    }
}
