//! The ways of users' packets: the host's paths. What goes by a router costs a look at the routes
//! and no more; neighbours, such as base stations, are remembered by address.

use std::net::Ipv4Addr;

use linerate_core::packet::Burst;
use linerate_core::run::Egress;
use linerate_epc::tunnels::{Leaving, Way, Ways};
use linerate_stack::host::{Host, Path};
use linerate_wire::ethernet;

/// The destination of an IPv4 packet in a frame.
const TO: usize = ethernet::HEADER_LEN + 16;
/// Neighbours that are remembered, a power of two: one for each hash.
const PLACES: usize = 1024;

/// Paths to neighbours.
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

/// Paths of a host, for a burst: meanwhile none changes.
pub(super) struct HostWays<'a> {
    pub(super) host: &'a mut Host,
    known: &'a mut Known,
    now_ns: u64,
    /// The last address that was asked for, unless it is behind a router: of a tunnel's peer.
    last: Option<([u8; 4], Way<Path>)>,
}

impl<'a> HostWays<'a> {
    pub(super) fn new(host: &'a mut Host, known: &'a mut Known, now_ns: u64) -> Self {
        Self {
            host,
            known,
            now_ns,
            last: None,
        }
    }

    fn neighbour(&mut self, to: Ipv4Addr) -> Option<Path> {
        let number = to.to_bits();
        // Fibonacci hashing: neighbours get places apart.
        let at = (number.wrapping_mul(0x9e37_79b1) >> 22) as usize % PLACES;
        let (known, path) = self.known.places[at];
        if known == number && self.host.is_current(path) {
            return Some(path);
        }
        let path = self.host.path_through(to.into())?;
        self.known.places[at] = (number, path);
        Some(path)
    }
}

impl Ways for HostWays<'_> {
    type Path = Path;

    #[inline(always)]
    fn way(&mut self, to: [u8; 4]) -> Option<Way<Path>> {
        if let Some((known, way)) = self.last
            && known == to
        {
            return Some(way);
        }
        let address = Ipv4Addr::from(to);
        match self.host.path_by_router(address) {
            Some(path) => Some(self.along(path, address)),
            None => self.by_neighbour(to),
        }
    }
}

impl HostWays<'_> {
    /// The way to an address that is not behind a router, or whose route another one came after.
    #[inline(never)]
    fn by_neighbour(&mut self, to: [u8; 4]) -> Option<Way<Path>> {
        let address = Ipv4Addr::from(to);
        let path = self.neighbour(address)?;
        let way = self.along(path, address);
        self.last = Some((to, way));
        Some(way)
    }

    #[inline]
    fn along(&self, path: Path, to: Ipv4Addr) -> Way<Path> {
        let mtu = self.host.mtu(path, to.into(), self.now_ns);
        Way {
            path,
            mtu: mtu.bytes.into(),
            is_own: path.is_loopback(),
        }
    }
}

/// Sends frames along their paths, which fit them; returns how many could not be sent.
pub(super) fn send(
    leaving: &mut Leaving<Path>,
    host: &mut Host,
    now_ns: u64,
    out: &mut Egress,
) -> u64 {
    let (frames, paths) = leaving.all();
    let mut ports = [None; Burst::CAPACITY];
    let all = frames.as_packets_mut().iter_mut().zip(paths);
    for ((frame, path), port) in all.zip(&mut ports) {
        *port = host.address(*path, frame);
    }
    let ports = &ports[..frames.len()];
    if let Some((&Some(first), others)) = ports.split_first()
        && others.iter().all(|port| *port == Some(first))
    {
        out.send(first, frames);
        leaving.drain().for_each(drop);
        return 0;
    }
    let mut unsent = 0;
    for ((frame, path), port) in leaving.drain().zip(ports) {
        if let Some(port) = *port {
            out.send_one(port, frame);
            continue;
        }
        let to = frame.data().get(TO..).and_then(|to| to.first_chunk());
        let to = Ipv4Addr::from(to.copied().unwrap_or_default()).into();
        unsent += u64::from(host.send_frame(path, frame, to, now_ns, out).is_err());
    }
    unsent
}
