//! Paths: what a connection keeps of a route, so that a packet costs no lookup.
//!
//! A [`Path`] names a *hop*, the record of one next hop: the Ethernet header for it, whether its
//! MAC address is known, the port, the MTU. Hops are in an arena of fixed size; each has a
//! generation, and a path whose generation is another is looked up anew. So whatever changes
//! (routes, addresses, an interface, the hop's slot in the arena) gives the hops concerned new
//! generations, and no connection has to be told.

use std::net::IpAddr;

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::ethernet::{self, EtherType};
use linerate_wire::{MacAddr, set_macs};

use super::address::bits;
use super::config::InterfaceId;

/// How packets get to a destination: 12 bytes, to be kept in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    hop: u32,
    generation: u32,
    mtu: u16,
    interface: InterfaceId,
}

const _: () = assert!(size_of::<Path>() == 12);

impl Path {
    /// Looked up when it is first used.
    pub const UNKNOWN: Self = Self {
        hop: 0,
        generation: 0,
        mtu: 0,
        interface: InterfaceId::LOOPBACK,
    };

    /// Longest IP packet that the route's first link takes, in bytes.
    #[inline]
    pub const fn link_mtu(&self) -> u16 {
        self.mtu
    }

    /// The output interface; [`InterfaceId::LOOPBACK`] to our own addresses.
    #[inline]
    pub const fn interface(&self) -> InterfaceId {
        self.interface
    }

    /// Whether it leads to an address of ours.
    #[inline]
    pub fn is_loopback(&self) -> bool {
        self.interface == InterfaceId::LOOPBACK
    }
}

/// What is known of the next hop's MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// It stands in the header.
    Known,
    /// Packets go to the neighbour table.
    Unknown,
    /// It is the host itself.
    Loopback,
}

/// One next hop, in one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Hop {
    /// The Ethernet header of packets to it; its EtherType is that of the address's family.
    pub(super) header: [u8; ethernet::HEADER_LEN],
    pub(super) port: u16,
    pub(super) interface: InterfaceId,
    pub(super) link: Link,
    pub(super) tx_offloads: bool,
    generation: u32,
    /// When an upper layer last confirmed it to the neighbour table.
    pub(super) confirmed_ns: u64,
    pub(super) address: IpAddr,
}

const _: () = assert!(size_of::<Hop>() == 64);

/// All hops. The first is the loopback's.
pub(super) struct Hops {
    list: Vec<Hop>,
    /// Interface and address to the hop's number.
    index: Exact<18, u32>,
    most: usize,
    /// The one to be replaced next, once all are taken.
    next: u32,
    generation: u32,
}

/// What a new hop needs to know of its interface.
pub(super) struct HopLink {
    pub(super) interface: InterfaceId,
    pub(super) port: u16,
    pub(super) mac: MacAddr,
    pub(super) tx_offloads: bool,
}

fn key(interface: InterfaceId, address: IpAddr) -> [u8; 18] {
    let mut key = [0; 18];
    key[..16].copy_from_slice(&bits(address).to_be_bytes());
    key[16..].copy_from_slice(&interface.number().to_be_bytes());
    key
}

impl Hops {
    /// Room for `most` hops beside the loopback's.
    pub(super) fn new(most: usize) -> Result<Self, TableError> {
        let most = most.max(1) + 1;
        let index = ExactConfig::new("next hops", most, Seed::random()).full_size();
        let mut list = Vec::with_capacity(most);
        list.push(Hop {
            header: [0; ethernet::HEADER_LEN],
            port: u16::MAX,
            interface: InterfaceId::LOOPBACK,
            link: Link::Loopback,
            // Nobody looks at a checksum of what never leaves.
            tx_offloads: true,
            generation: 1,
            confirmed_ns: 0,
            address: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        });
        Ok(Self {
            list,
            index: Exact::new(&index)?,
            most,
            next: 1,
            generation: 1,
        })
    }

    /// The hop of a path, unless the path has to be looked up anew.
    #[inline(always)]
    pub(super) fn get(&self, path: Path) -> Option<&Hop> {
        let hop = self.list.get(path.hop as usize)?;
        (hop.generation == path.generation).then_some(hop)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, path: Path) -> Option<&mut Hop> {
        let hop = self.list.get_mut(path.hop as usize)?;
        (hop.generation == path.generation).then_some(hop)
    }

    /// The path to an address of ours.
    pub(super) fn loopback(&self) -> Path {
        Path {
            hop: 0,
            generation: self.list[0].generation,
            mtu: u16::MAX,
            interface: InterfaceId::LOOPBACK,
        }
    }

    /// The path by a next hop, of which a new hop is made if there is none. `mac`: of a group or
    /// broadcast address, which nobody has to be asked for.
    pub(super) fn path(
        &mut self,
        link: &HopLink,
        address: IpAddr,
        mac: Option<MacAddr>,
        mtu: u16,
    ) -> Path {
        let key = key(link.interface, address);
        let hop = match self.index.lookup(&key) {
            Some(hop) => hop,
            None => self.make(&key, link, address, mac),
        };
        Path {
            hop,
            generation: self.list[hop as usize].generation,
            mtu,
            interface: link.interface,
        }
    }

    fn make(
        &mut self,
        key: &[u8; 18],
        link: &HopLink,
        address: IpAddr,
        mac: Option<MacAddr>,
    ) -> u32 {
        let ethertype = match address {
            IpAddr::V4(_) => EtherType::IPV4,
            IpAddr::V6(_) => EtherType::IPV6,
        };
        let hop = Hop {
            header: ethernet::header(mac.unwrap_or_default(), link.mac, ethertype),
            port: link.port,
            interface: link.interface,
            link: if mac.is_some() {
                Link::Known
            } else {
                Link::Unknown
            },
            tx_offloads: link.tx_offloads,
            generation: self.newer(),
            confirmed_ns: 0,
            address,
        };
        let at = if self.list.len() < self.most {
            self.list.push(hop);
            (self.list.len() - 1) as u32
        } else {
            // In turn: a path that loses its hop is looked up anew, which costs a little once.
            let at = self.next;
            self.next = if at as usize + 1 < self.most {
                at + 1
            } else {
                1
            };
            let old = std::mem::replace(&mut self.list[at as usize], hop);
            self.index.remove(&self::key(old.interface, old.address));
            at
        };
        // There is room: each entry is of one hop of the list.
        let _ = self.index.insert(key, at);
        at
    }

    fn newer(&mut self) -> u32 {
        // 0 is that of `Path::UNKNOWN`.
        self.generation = self.generation.wrapping_add(1).max(1);
        self.generation
    }

    /// The neighbour table reports a MAC address, or that it is no longer known.
    pub(super) fn learn(&mut self, interface: u16, address: IpAddr, mac: Option<MacAddr>) {
        let Some(at) = self.index.lookup(&key(InterfaceId(interface), address)) else {
            return;
        };
        let hop = &mut self.list[at as usize];
        match mac {
            Some(mac) => {
                let own = MacAddr([6, 7, 8, 9, 10, 11].map(|at| hop.header[at]));
                let _ = set_macs(&mut hop.header, mac, own);
                hop.link = Link::Known;
            }
            None => hop.link = Link::Unknown,
        }
    }

    /// Routes, addresses or interfaces have changed: every path is looked up anew.
    pub(super) fn renew(&mut self) {
        self.list.truncate(1);
        self.index.clear();
        self.next = 1;
        self.list[0].generation = self.newer();
    }

    /// How many there are beside the loopback's.
    pub(super) fn len(&self) -> usize {
        self.list.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(number: u16) -> HopLink {
        HopLink {
            interface: InterfaceId(number),
            port: number,
            mac: MacAddr::local(1),
            tx_offloads: false,
        }
    }

    fn at(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    #[test]
    fn a_path_is_found_again_and_learns_its_mac() {
        let mut hops = Hops::new(8).unwrap();
        let path = hops.path(&link(0), at(1), None, 1500);
        assert_eq!(hops.path(&link(0), at(1), None, 1500), path);
        assert_ne!(hops.path(&link(1), at(1), None, 1500), path);
        assert_eq!(hops.get(path).unwrap().link, Link::Unknown);
        hops.learn(0, at(1), Some(MacAddr::local(9)));
        let hop = hops.get(path).unwrap();
        assert_eq!(hop.link, Link::Known);
        let expected = ethernet::header(MacAddr::local(9), MacAddr::local(1), EtherType::IPV4);
        assert_eq!(hop.header, expected);
        hops.learn(0, at(1), None);
        assert_eq!(hops.get(path).unwrap().link, Link::Unknown);
        assert!(hops.get(Path::UNKNOWN).is_none());
    }

    #[test]
    fn a_change_of_routes_ends_all_paths_and_so_does_reuse() {
        let mut hops = Hops::new(4).unwrap();
        let first = hops.path(&link(0), at(1), None, 1500);
        let own = hops.loopback();
        hops.renew();
        assert!(hops.get(first).is_none() && hops.get(own).is_none());
        let paths: Vec<Path> = (0..12)
            .map(|n| hops.path(&link(0), at(n), None, 1500))
            .collect();
        for (n, path) in paths.iter().enumerate() {
            assert_eq!(hops.get(*path).is_some(), n >= 8, "{n}");
        }
        assert_eq!((hops.len(), hops.index.len()), (4, 4));
        assert!(hops.get(hops.loopback()).is_some());
    }
}
