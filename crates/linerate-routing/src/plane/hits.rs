//! Packets that rules of access lists log (`log = true`).
//!
//! A worker keeps a few of them until control asks, ten times a second, and counts the rest, so
//! that no received packet makes it write, wait or allocate.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use linerate_tables::acl::{PacketKey, PacketKey4, PacketKey6};
use linerate_wire::protocol;

use super::acl::Verdict;
use super::lists::Gate;

/// Packets kept at most.
const MOST: usize = 16;

/// A packet that a rule has decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The list's place in the configuration, and the rule's in the list.
    pub list: u16,
    /// Index of the rule; the number of rules where none matched.
    pub rule: usize,
    /// Verdict on the packet.
    pub verdict: Verdict,
    /// Direction and interface.
    pub gate: Gate,
    /// The packet's flow.
    pub flow: Flow,
}

/// What is logged of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    upper: Upper,
    /// Length of the frame in bytes.
    bytes: u16,
}

/// What is known of the upper layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upper {
    Ports(u16, u16),
    /// Type and code.
    Icmp(u8, u8),
    Unknown,
}

impl Flow {
    pub(super) fn of4(key: &PacketKey4) -> Self {
        let ends = (Ipv4Addr::from(key.src[0]), Ipv4Addr::from(key.dst[0]));
        Self::of((ends.0.into(), ends.1.into()), key)
    }

    pub(super) fn of6(key: &PacketKey6) -> Self {
        let address = |words: [u32; 4]| {
            let bits = words
                .iter()
                .fold(0, |bits, word| bits << 32 | u128::from(*word));
            Ipv6Addr::from(bits).into()
        };
        let ends = (address(key.src), address(key.dst));
        Self::of(ends, key)
    }

    fn of<const W: usize>((source, destination): (IpAddr, IpAddr), key: &PacketKey<W>) -> Self {
        Self {
            source,
            destination,
            protocol: key.protocol() as u8,
            upper: match (key.ports(), key.icmp()) {
                (Some((src, dst)), _) => Upper::Ports(src, dst),
                (None, Some((kind, code))) => Upper::Icmp(kind, code),
                (None, None) => Upper::Unknown,
            },
            bytes: key.length(),
        }
    }
}

impl fmt::Display for Flow {
    /// `10.0.0.1:1024 > 10.1.0.1:22 tcp, 60 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source, self.destination);
        match self.upper {
            Upper::Ports(from, to) => {
                let (from, to) = (
                    SocketAddr::new(source, from),
                    SocketAddr::new(destination, to),
                );
                write!(f, "{from} > {to} ")?;
            }
            _ => write!(f, "{source} > {destination} ")?,
        }
        match self.protocol {
            protocol::TCP => write!(f, "tcp")?,
            protocol::UDP => write!(f, "udp")?,
            protocol::SCTP => write!(f, "sctp")?,
            protocol::ICMP => write!(f, "icmp")?,
            protocol::ICMPV6 => write!(f, "icmp6")?,
            other => write!(f, "protocol {other}")?,
        }
        if let Upper::Icmp(kind, code) = self.upper {
            write!(f, " type {kind} code {code}")?;
        }
        write!(f, ", {} bytes", self.bytes)
    }
}

/// The hits of one worker since control last asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    kept: [Option<Hit>; MOST],
    count: usize,
    /// Hits that there was no room for.
    pub more: u64,
}

impl Hits {
    pub(super) fn add(&mut self, hit: Hit) {
        match self.kept.get_mut(self.count) {
            Some(place) => {
                *place = Some(hit);
                self.count += 1;
            }
            None => self.more += 1,
        }
    }

    /// In the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &Hit> {
        self.kept.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::InterfaceId;

    #[test]
    fn a_flow_is_described_by_the_fields_that_are_known() {
        let tcp = PacketKey4::tuple([0x0a00_0001], [0x0a01_0002], (1024, 22), 6);
        assert_eq!(
            Flow::of4(&tcp).to_string(),
            "10.0.0.1:1024 > 10.1.0.2:22 tcp, 60 bytes"
        );
        let word = 0x2001_0db8;
        let udp = PacketKey6::tuple([word, 0, 0, 1], [word, 0, 0, 2], (53, 53), 17);
        assert_eq!(
            Flow::of6(&udp).to_string(),
            "[2001:db8::1]:53 > [2001:db8::2]:53 udp, 60 bytes"
        );
        let ping = PacketKey4::tuple([1], [2], (8, 0), 1);
        assert_eq!(
            Flow::of4(&ping).to_string(),
            "0.0.0.1 > 0.0.0.2 icmp type 8 code 0, 60 bytes"
        );
        let later = PacketKey4::tuple([1], [2], (0, 0), 47).later_fragment();
        let text = Flow::of4(&later).to_string();
        assert_eq!(text, "0.0.0.1 > 0.0.0.2 protocol 47, 60 bytes");
    }

    #[test]
    fn a_flood_is_counted_and_not_kept() {
        let mut hits = Hits::default();
        let flow = Flow::of4(&PacketKey4::tuple([1], [2], (3, 4), 17));
        for rule in 0..100 {
            hits.add(Hit {
                list: 0,
                rule,
                verdict: Verdict::Deny,
                gate: Gate::In(InterfaceId(0)),
                flow,
            });
        }
        let kept: Vec<usize> = hits.iter().map(|hit| hit.rule).collect();
        assert_eq!(kept, (0..MOST).collect::<Vec<_>>());
        assert_eq!(hits.more, 100 - MOST as u64);
    }
}
