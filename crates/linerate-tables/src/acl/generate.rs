//! Rule sets shaped like those of ClassBench, and packets that hit them.
//!
//! ClassBench (Taylor and Turner, 2007) describes real filter sets by statistics: how long source
//! and destination prefixes are together, how they nest, which of five kinds the port ranges are
//! (any, low, high, one port, other), which protocols. Its seed files may not be shipped; the
//! distributions here are our own, of the same shape, for the three families it names.

pub use linerate_core::random::Random;

use super::key::PacketKey;
use super::rule::{Bits, Match, Prefix, Range, Rule};

/// One of them, as often as its weight says.
fn pick<'a, T>(random: &mut Random, weighted: &'a [(u32, T)]) -> &'a T {
    let total: u32 = weighted.iter().map(|(weight, _)| weight).sum();
    let mut at = random.below(total.into()) as u32;
    for (weight, item) in weighted {
        if at < *weight {
            return item;
        }
        at -= weight;
    }
    &weighted[0].1
}

/// A family of rule sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Access lists: both addresses specific, destination ports exact.
    Acl,
    /// Firewalls: many wildcards, ranges on both ports.
    Fw,
    /// IP chains: a mixture.
    Ipc,
}

/// What kind of port range.
#[derive(Clone, Copy)]
enum Ports {
    Any,
    Low,
    High,
    One,
    Other,
}

struct Shape {
    /// (source, destination) prefix lengths, from the shortest of a class to its longest.
    lengths: &'static [(u32, [(u8, u8); 2])],
    src_ports: &'static [(u32, Ports)],
    dst_ports: &'static [(u32, Ports)],
    protocols: &'static [(u32, Option<u8>)],
}

/// Ports that services listen on, the most frequent first.
const SERVICES: &[u16] = &[
    80, 443, 53, 25, 22, 21, 110, 143, 123, 161, 389, 1521, 3306, 8080, 137, 139, 445, 1433, 514,
    2049, 5060, 179, 6000, 1723, 500, 3389, 873, 636, 993, 995,
];

impl Family {
    fn shape(self) -> Shape {
        match self {
            Self::Acl => Shape {
                lengths: &[
                    (40, [(32, 32), (32, 32)]),
                    (14, [(24, 28), (32, 32)]),
                    (10, [(32, 24), (32, 32)]),
                    (14, [(16, 16), (28, 28)]),
                    (8, [(8, 20), (24, 32)]),
                    (6, [(20, 8), (32, 24)]),
                    (5, [(0, 24), (0, 32)]),
                    (3, [(24, 0), (32, 0)]),
                ],
                src_ports: &[(96, Ports::Any), (3, Ports::One), (1, Ports::High)],
                dst_ports: &[
                    (58, Ports::One),
                    (20, Ports::Any),
                    (8, Ports::High),
                    (4, Ports::Low),
                    (10, Ports::Other),
                ],
                protocols: &[
                    (66, Some(6)),
                    (22, Some(17)),
                    (5, Some(1)),
                    (1, Some(47)),
                    (6, None),
                ],
            },
            Self::Fw => Shape {
                lengths: &[
                    (18, [(0, 24), (0, 32)]),
                    (12, [(24, 0), (32, 0)]),
                    (22, [(32, 32), (32, 32)]),
                    (20, [(16, 16), (32, 32)]),
                    (12, [(8, 8), (24, 24)]),
                    (10, [(0, 8), (0, 23)]),
                    (5, [(8, 0), (23, 0)]),
                    (1, [(0, 0), (0, 0)]),
                ],
                src_ports: &[
                    (62, Ports::Any),
                    (20, Ports::High),
                    (14, Ports::One),
                    (2, Ports::Low),
                    (2, Ports::Other),
                ],
                dst_ports: &[
                    (48, Ports::One),
                    (26, Ports::Any),
                    (14, Ports::High),
                    (4, Ports::Low),
                    (8, Ports::Other),
                ],
                protocols: &[
                    (56, Some(6)),
                    (26, Some(17)),
                    (6, Some(1)),
                    (2, Some(47)),
                    (10, None),
                ],
            },
            Self::Ipc => Shape {
                lengths: &[
                    (34, [(32, 32), (32, 32)]),
                    (18, [(24, 24), (32, 32)]),
                    (16, [(16, 16), (30, 30)]),
                    (12, [(0, 24), (0, 32)]),
                    (8, [(24, 0), (32, 0)]),
                    (12, [(8, 8), (24, 24)]),
                ],
                src_ports: &[
                    (76, Ports::Any),
                    (12, Ports::One),
                    (8, Ports::High),
                    (4, Ports::Other),
                ],
                dst_ports: &[
                    (50, Ports::One),
                    (32, Ports::Any),
                    (8, Ports::High),
                    (4, Ports::Low),
                    (6, Ports::Other),
                ],
                protocols: &[
                    (52, Some(6)),
                    (28, Some(17)),
                    (8, Some(1)),
                    (2, Some(47)),
                    (10, None),
                ],
            },
        }
    }

    /// `count` different rules, the specific ones first (as an operator writes them), priorities
    /// and values rising from 1. The same for the same seed. O(count).
    pub fn rules<const W: usize>(self, count: usize, seed: u64) -> Vec<Rule<W>> {
        let mut random = Random::new(seed ^ 0x0c1a_55be_2c40_0000);
        let shape = self.shape();
        // How many networks the addresses come from decides how far rules share and nest.
        let networks = (count / 6).max(8);
        let tops = 32 + count as u64 / 64;
        let mut pool =
            || -> Vec<u128> { (0..networks).map(|_| network(tops, &mut random)).collect() };
        let (src, dst) = (pool(), pool());
        let mut seen = std::collections::HashSet::new();
        let mut matches = Vec::new();
        while matches.len() < count {
            let &[from, to] = pick(&mut random, shape.lengths);
            let length = |random: &mut Random, from: u8, to: u8| {
                from + random.below(u64::from(to - from) + 1) as u8
            };
            let src_len = length(&mut random, from.0, to.0);
            let dst_len = length(&mut random, from.1, to.1);
            let protocol = *pick(&mut random, shape.protocols);
            let has_ports = matches!(protocol, Some(6 | 17));
            let ports = |random: &mut Random, kinds| match has_ports {
                true => range(random, kinds),
                false => Range::ANY,
            };
            let matching = Match {
                src: prefix(&mut random, &src, src_len),
                dst: prefix(&mut random, &dst, dst_len),
                src_ports: ports(&mut random, shape.src_ports),
                dst_ports: ports(&mut random, shape.dst_ports),
                protocol: protocol.map_or(Bits::ANY, Bits::byte),
                ..Match::ANY
            };
            if seen.insert(matching) {
                // Some disorder: lists are not sorted strictly.
                let order = u64::from(src_len) + u64::from(dst_len) + random.below(8);
                matches.push((std::cmp::Reverse(order), matching));
            }
        }
        matches.sort_by_key(|(order, _)| *order);
        let rule =
            |(at, (_, matching)): (usize, &_)| Rule::new(at as u32 + 1, *matching, at as u32 + 1);
        matches.iter().enumerate().map(rule).collect()
    }
}

/// An address whose first 16 bits are one of `tops`.
fn network(tops: u64, random: &mut Random) -> u128 {
    let top = random.below(tops) * 0x9e37 + 0x0a00;
    let low = random.bits() as u128;
    u128::from(top as u16) << 112 | low << 40 | u128::from(random.bits() >> 24)
}

/// The first `len` bits of a network, in half of the cases with another host in it.
/// An IPv6 prefix has the bits of an IPv4 one twice as far apart: /24 becomes /48, /32 a /64.
fn prefix<const W: usize>(random: &mut Random, networks: &[u128], len: u8) -> Prefix<W> {
    // Squaring makes some networks far more frequent than others.
    let at = random.below(networks.len() as u64) * random.below(networks.len() as u64)
        / networks.len() as u64;
    let mut bits = networks[at as usize];
    if random.below(2) == 0 {
        bits ^= u128::from(random.below(256)) << 96;
    }
    let len = if W == 1 { len } else { len * 2 };
    let kept = bits & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    let words = std::array::from_fn(|word| (kept >> (96 - 32 * word)) as u32);
    Prefix::new(words, len).expect("the bits behind the length were cleared")
}

fn range(random: &mut Random, kinds: &[(u32, Ports)]) -> Range {
    let (low, high) = match pick(random, kinds) {
        Ports::Any => (0, 65535),
        Ports::Low => (0, 1023),
        Ports::High => (1024, 65535),
        Ports::One => {
            let port = match random.below(4) {
                0 => 1024 + random.below(64_000) as u16,
                _ => {
                    let most = SERVICES.len() as u64;
                    SERVICES[(random.below(most) * random.below(most) / most) as usize]
                }
            };
            (port, port)
        }
        Ports::Other => {
            let low = SERVICES[random.below(SERVICES.len() as u64) as usize];
            (low, low + 1 + random.below(200) as u16)
        }
    };
    Range::new(low, high).expect("made in order")
}

/// `count` packets, nine of ten inside a rule drawn at random and one anywhere.
/// Consecutive packets are unrelated.
pub fn packets<const W: usize>(rules: &[Rule<W>], count: usize, seed: u64) -> Vec<PacketKey<W>> {
    let mut random = Random::new(seed ^ 0x7a_c3);
    let mut one = || match rules.len() as u64 {
        rules if rules == 0 || random.below(10) == 0 => anywhere(&mut random),
        many => inside(&rules[random.below(many) as usize].matching, &mut random),
    };
    (0..count).map(|_| one()).collect()
}

fn anywhere<const W: usize>(random: &mut Random) -> PacketKey<W> {
    let mut address = || std::array::from_fn(|_| random.bits() as u32);
    let (src, dst) = (address(), address());
    let ports = (random.bits() as u16, random.bits() as u16);
    PacketKey::tuple(src, dst, ports, [6, 17][random.below(2) as usize])
}

/// A packet that this matches, as far as addresses, ports and protocol go; the rest at random.
pub fn inside<const W: usize>(matching: &Match<W>, random: &mut Random) -> PacketKey<W> {
    let mut address = |prefix: &Prefix<W>| {
        std::array::from_fn(|word| prefix.words()[word] | random.bits() as u32 & !prefix.mask(word))
    };
    let (src, dst) = (address(&matching.src), address(&matching.dst));
    let mut within = |range: &Range| range.low() + random.below(u64::from(range.span()) + 1) as u16;
    let ports = (within(&matching.src_ports), within(&matching.dst_ports));
    let icmp = (
        within(&matching.icmp_type) & 0xff,
        within(&matching.icmp_code) & 0xff,
    );
    let protocol = match matching.protocol.mask() {
        0 => [6, 17][random.below(2) as usize],
        mask => matching.protocol.value() | random.bits() as u16 & !mask & 0xff,
    };
    let parts = match protocol == Match::<W>::ICMP {
        true => icmp,
        false => ports,
    };
    PacketKey::tuple(src, dst, parts, protocol as u8)
}
