//! Our addresses: duplicate detection and announcements (RFC 4862 5.4, RFC 5227).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_wire::arp::Operation;
use linerate_wire::{MacAddr, ndp};

use super::{Event, InterfaceConfig, MILLISECOND, Out, SECOND, Table, arp, nd};
use linerate_core::random::Random;

/// RFC 5227 1.1. RFC 4862 5.4.2 has the same for the first solicitation.
const PROBE_WAIT_NS: u64 = SECOND;
const PROBE_NUM: u8 = 3;
const PROBE_MIN_NS: u64 = SECOND;
const PROBE_MAX_NS: u64 = 2 * SECOND;
const ANNOUNCE_WAIT_NS: u64 = 2 * SECOND;
const ANNOUNCE_NUM: u8 = 2;
const ANNOUNCE_INTERVAL_NS: u64 = 2 * SECOND;
const DEFEND_INTERVAL_NS: u64 = 10 * SECOND;
/// RFC 4862 5.1 DupAddrDetectTransmits, and RFC 4861's RETRANS_TIMER behind the last of them.
const SOLICIT_NUM: u8 = 1;
const SOLICIT_WAIT_NS: u64 = 1000 * MILLISECOND;

/// An address of ours.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) address: IpAddr,
    /// Length in bits of the prefix of its network.
    len: u8,
    phase: Phase,
    /// When the phase continues.
    pub(super) due_ns: u64,
    /// Probes or announcements, by phase.
    sent: u8,
    /// When it was last defended.
    defended_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Another station may have it: we neither use it nor answer for it.
    Tentative,
    /// It is ours and is being announced.
    Announcing,
    Settled,
    /// Another station has it.
    Duplicate,
}

impl Own {
    fn new(address: IpAddr, len: u8, detect: bool, now_ns: u64, random: &mut Random) -> Self {
        let (phase, wait_ns) = match detect {
            true => (Phase::Tentative, random.within(0, PROBE_WAIT_NS)),
            false => (Phase::Announcing, 0),
        };
        Self {
            address,
            len,
            phase,
            due_ns: now_ns + wait_ns,
            sent: 0,
            defended_ns: None,
        }
    }

    /// Ends probing: no conflict was found.
    fn end_probing(&mut self, now_ns: u64) {
        if self.is_tentative() {
            (self.sent, self.due_ns) = (u8::MAX, now_ns);
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Announcing | Phase::Settled)
    }

    pub(super) fn is_tentative(&self) -> bool {
        self.phase == Phase::Tentative
    }

    pub(super) fn is_duplicate(&self) -> bool {
        self.phase == Phase::Duplicate
    }

    /// Announces it once more, if it is used.
    pub(super) fn announce_anew(&mut self, now_ns: u64) {
        if self.is_usable() {
            (self.phase, self.sent, self.due_ns) = (Phase::Announcing, 0, now_ns);
        }
    }

    /// Whether `other` is in its network.
    pub(super) fn covers(&self, other: IpAddr) -> bool {
        network(self.address, self.len) == network(other, self.len)
            && self.address.is_ipv4() == other.is_ipv4()
    }

    /// Whether `other` is the network's own address or its broadcast address. Networks of one or
    /// two addresses have none (RFC 3021), nor has IPv6.
    pub(super) fn is_edge(&self, other: IpAddr) -> bool {
        match other {
            IpAddr::V4(v4) if self.len < 31 => {
                let host_bits = u32::MAX >> self.len;
                matches!(v4.to_bits() & host_bits, 0) || v4.to_bits() & host_bits == host_bits
            }
            _ => false,
        }
    }

    /// The prefix to advertise: that of a network, not of a single address, and not link-local.
    pub(super) fn prefix6(&self) -> Option<(Ipv6Addr, u8)> {
        match self.address {
            IpAddr::V6(v6) if !v6.is_unicast_link_local() && self.len < 128 => {
                let bits = network(self.address, self.len);
                Some((Ipv6Addr::from_bits(bits), self.len))
            }
            _ => None,
        }
    }
}

/// The first `len` bits of an address.
fn network(address: IpAddr, len: u8) -> u128 {
    let len = u32::from(len);
    match address {
        IpAddr::V4(v4) => {
            u128::from(v4.to_bits() & u32::MAX.checked_shl(32 - len.min(32)).unwrap_or(0))
        }
        IpAddr::V6(v6) => v6.to_bits() & u128::MAX.checked_shl(128 - len.min(128)).unwrap_or(0),
    }
}

/// The addresses of a new configuration: those that were there before, in the network they were in,
/// keep their state, and those that are `verified` need not be probed for.
pub(super) fn adopt(
    mut old: Vec<Own>,
    config: &InterfaceConfig,
    verified: &[IpAddr],
    now_ns: u64,
    random: &mut Random,
) -> Vec<Own> {
    let mut own = Vec::<Own>::new();
    for &(address, len) in &config.addresses {
        if own.iter().any(|own| own.address == address) {
            continue;
        }
        let known = old
            .iter()
            .position(|old| old.address == address && old.len == len);
        let mut this = match known {
            Some(at) => old.swap_remove(at),
            None => {
                let detect = match address {
                    IpAddr::V4(_) => config.detect4,
                    IpAddr::V6(_) => config.detect6,
                };
                Own::new(address, len, detect, now_ns, random)
            }
        };
        if verified.contains(&address) {
            this.end_probing(now_ns);
        }
        own.push(this);
    }
    own
}

impl Table {
    /// Handles the timers of an interface's addresses.
    pub(super) fn tick_own(&mut self, id: u16, now_ns: u64, out: &mut Out) {
        let Some(interface) = self.interfaces.get_mut(&id) else {
            return;
        };
        let (mac, host) = (interface.config.mac, interface.config.host);
        for own in &mut interface.own {
            if own.due_ns > now_ns {
                continue;
            }
            let probes = match own.address {
                IpAddr::V4(_) => PROBE_NUM,
                IpAddr::V6(_) => SOLICIT_NUM,
            };
            if own.phase == Phase::Tentative && own.sent < probes {
                probe(id, mac, own.address, out);
                own.sent += 1;
                own.due_ns = now_ns
                    + match own.address {
                        IpAddr::V6(_) => SOLICIT_WAIT_NS,
                        IpAddr::V4(_) if own.sent == probes => ANNOUNCE_WAIT_NS,
                        IpAddr::V4(_) => self.random.within(PROBE_MIN_NS, PROBE_MAX_NS),
                    };
                continue;
            }
            if own.phase == Phase::Tentative {
                out.events.push(Event::Unique {
                    interface: id,
                    address: own.address,
                });
                (own.phase, own.sent) = (Phase::Announcing, 0);
            }
            own.due_ns = u64::MAX;
            if own.phase == Phase::Announcing {
                announce(id, mac, host, own.address, out);
                own.sent += 1;
                match own.sent < ANNOUNCE_NUM {
                    true => own.due_ns = now_ns + ANNOUNCE_INTERVAL_NS,
                    false => own.phase = Phase::Settled,
                }
            }
        }
    }

    /// Another station has an address of ours. While we probe for it, we give it up (RFC 4862
    /// 5.4.5, RFC 5227 2.1). Once it is used we keep it, as in RFC 5227 2.4 (c) for addresses that
    /// must not change, and defend an IPv4 address as often as that allows.
    pub(super) fn rival(
        &mut self,
        id: u16,
        address: IpAddr,
        mac: MacAddr,
        now_ns: u64,
        out: &mut Out,
    ) {
        let Some(interface) = self.interfaces.get_mut(&id) else {
            return;
        };
        let (ours, host) = (interface.config.mac, interface.config.host);
        let own = interface.own.iter_mut().find(|own| own.address == address);
        let Some(own) = own.filter(|own| !own.is_duplicate()) else {
            return;
        };
        if own.is_tentative() {
            own.phase = Phase::Duplicate;
            own.due_ns = u64::MAX;
            out.events.push(Event::Duplicate {
                interface: id,
                address,
                mac,
            });
            return;
        }
        let lately = |at: u64| now_ns < at.saturating_add(DEFEND_INTERVAL_NS);
        if own.defended_ns.is_some_and(lately) {
            return;
        }
        own.defended_ns = Some(now_ns);
        out.events.push(Event::Conflict {
            interface: id,
            address,
            mac,
        });
        if address.is_ipv4() {
            announce(id, ours, host, address, out);
        }
    }
}

/// Probes for the address: RFC 5227 2.1.1, RFC 4862 5.4.2.
fn probe(id: u16, mac: MacAddr, address: IpAddr, out: &mut Out) {
    match address {
        IpAddr::V4(v4) => {
            let (sender, target) = ((mac, Ipv4Addr::UNSPECIFIED), (MacAddr::default(), v4));
            arp::send(
                id,
                MacAddr::BROADCAST,
                Operation::Request,
                sender,
                target,
                out,
            );
        }
        IpAddr::V6(target) => {
            let message = ndp::Message::NeighbourSolicitation {
                target,
                source_mac: None,
            };
            let group = ndp::solicited_node(target);
            let macs = (ndp::multicast_mac(group), mac);
            nd::send(id, macs, Ipv6Addr::UNSPECIFIED, group, message, out);
        }
    }
}

/// Announces the address: RFC 5227 2.3, RFC 4861 7.2.6.
fn announce(id: u16, mac: MacAddr, host: bool, address: IpAddr, out: &mut Out) {
    match address {
        IpAddr::V4(v4) => {
            let (sender, target) = ((mac, v4), (MacAddr::default(), v4));
            arp::send(
                id,
                MacAddr::BROADCAST,
                Operation::Request,
                sender,
                target,
                out,
            );
        }
        IpAddr::V6(target) => {
            let message = ndp::Message::NeighbourAdvertisement {
                target,
                target_mac: Some(mac),
                router: !host,
                solicited: false,
                override_known: true,
            };
            let macs = (ndp::multicast_mac(ndp::ALL_NODES), mac);
            nd::send(id, macs, target, ndp::ALL_NODES, message, out);
        }
    }
}
