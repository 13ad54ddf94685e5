//! Eight rules in columns: what one vector comparison looks at.
//!
//! A leaf of a tree is a run of blocks, their lanes in the order in which rules win, so that the
//! first lane that matches is the answer. Lanes hold addresses, ports and protocol. A rule that
//! asks for more is marked [`MORE_FIELDS`], and is looked at in full where its lane matches.

use super::key::PacketKey;
use super::rule::{Bits, Match, Prefix, Range};

/// Rules in a block.
pub(crate) const LANES: usize = 8;
/// In `slots[7]`: the run goes on in the next block.
pub(crate) const RUN_GOES_ON: u32 = 1 << 31;
/// In a slot: the rule asks for fields that its lane does not hold.
pub(crate) const MORE_FIELDS: u32 = 1 << 30;
/// The slot without those marks. Slot 0 is no rule.
pub(crate) const SLOT: u32 = MORE_FIELDS - 1;

/// Eight rules, 192 bytes for IPv4 and 384 for IPv6. Free lanes come last in a run, and what they
/// compare does not matter: their slot is 0, no rule.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Block<const W: usize> {
    pub(crate) src: [[u32; LANES]; W],
    pub(crate) dst: [[u32; LANES]; W],
    /// The smallest source port in the low half, the smallest destination port in the high one.
    pub(crate) low: [u32; LANES],
    /// How far the largest is from that.
    pub(crate) span: [u32; LANES],
    /// How many bits of the source address do not count, and of the destination address.
    pub(crate) hosts: [[u8; LANES]; 2],
    /// Protocol in the low half, which of its bits count in the high one.
    pub(crate) protocol: [u16; LANES],
    pub(crate) slots: [u32; LANES],
}

/// One rule as a lane holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane<const W: usize> {
    src: [u32; W],
    dst: [u32; W],
    low: u32,
    span: u32,
    src_host: u8,
    dst_host: u8,
    protocol: u16,
    slot: u32,
}

impl<const W: usize> Lane<W> {
    /// The lane of a rule.
    pub(crate) fn of(rule: &Match<W>, slot: u32) -> Self {
        let host = |prefix: &Prefix<W>| (32 * W) as u8 - prefix.bits();
        let [first, second] = ports(rule);
        let join = |first: u16, second: u16| u32::from(first) | u32::from(second) << 16;
        let more = match asks_more(rule) {
            true => MORE_FIELDS,
            false => 0,
        };
        Self {
            src: *rule.src.words(),
            dst: *rule.dst.words(),
            low: join(first.low(), second.low()),
            span: join(first.span(), second.span()),
            src_host: host(&rule.src),
            dst_host: host(&rule.dst),
            protocol: rule.protocol.value() | rule.protocol.mask() << 8,
            slot: slot | more,
        }
    }

    /// The rule's slot, without marks.
    pub(super) fn rule(&self) -> u32 {
        self.slot & SLOT
    }
}

/// What a rule asks of the two halves of [`PacketKey::ports`].
pub(super) fn ports<const W: usize>(rule: &Match<W>) -> [Range; 2] {
    match rule.icmp_type != Range::ANY || rule.icmp_code != Range::ANY {
        true => [rule.icmp_type, rule.icmp_code],
        false => [rule.src_ports, rule.dst_ports],
    }
}

/// Whether a rule asks for what a lane does not hold. That includes ports of a rule that ICMP may
/// match, since type and code are in the place of ports.
fn asks_more<const W: usize>(rule: &Match<W>) -> bool {
    let has_ports = rule.src_ports != Range::ANY || rule.dst_ports != Range::ANY;
    let icmp = [1, 58].iter().any(|icmp| rule.protocol.contains(*icmp));
    [rule.tcp_flags, rule.dscp, rule.vlan] != [Bits::ANY; 3]
        || rule.fragment != Default::default()
        || rule.length != Range::ANY
        || has_ports && icmp
}

impl<const W: usize> Block<W> {
    /// No rules.
    pub(crate) const EMPTY: Self = Self {
        src: [[0; LANES]; W],
        dst: [[0; LANES]; W],
        low: [0; LANES],
        span: [0; LANES],
        hosts: [[0; LANES]; 2],
        protocol: [0; LANES],
        slots: [0; LANES],
    };

    /// Whether the run goes on in the next block.
    #[inline(always)]
    pub(crate) fn goes_on(&self) -> bool {
        self.slots[LANES - 1] & RUN_GOES_ON != 0
    }

    /// Reads a lane; its slot is without [`RUN_GOES_ON`].
    pub(super) fn lane(&self, lane: usize) -> Lane<W> {
        Lane {
            src: std::array::from_fn(|word| self.src[word][lane]),
            dst: std::array::from_fn(|word| self.dst[word][lane]),
            low: self.low[lane],
            span: self.span[lane],
            src_host: self.hosts[0][lane],
            dst_host: self.hosts[1][lane],
            protocol: self.protocol[lane],
            slot: self.slots[lane] & !RUN_GOES_ON,
        }
    }

    /// Writes a lane.
    pub(super) fn set_lane(&mut self, lane: usize, to: &Lane<W>) {
        for word in 0..W {
            self.src[word][lane] = to.src[word];
            self.dst[word][lane] = to.dst[word];
        }
        self.low[lane] = to.low;
        self.span[lane] = to.span;
        self.hosts[0][lane] = to.src_host;
        self.hosts[1][lane] = to.dst_host;
        self.protocol[lane] = to.protocol;
        self.slots[lane] = to.slot;
    }

    /// The marked slot of the first of these lanes, 0 where there is none.
    #[inline(always)]
    pub(crate) fn first(&self, lanes: u32) -> u32 {
        let slot = self.slots[lanes.trailing_zeros() as usize % LANES] & !RUN_GOES_ON;
        std::hint::select_unpredictable(lanes != 0, slot, 0)
    }

    /// Which lanes match, a bit each: what the vector kernels do, one lane at a time.
    pub(crate) fn matching(&self, packet: &PacketKey<W>) -> u32 {
        let portless = packet.portless() as u16;
        let mut lanes = 0;
        for lane in 0..LANES {
            let mut differs = 0;
            for word in 0..W {
                let less = (32 * (W - 1 - word)) as u8;
                let outside = |host: u8, bits: u32| {
                    let host = u32::from(host.saturating_sub(less));
                    bits.checked_shr(host).unwrap_or(0)
                };
                differs |= outside(self.hosts[0][lane], packet.src[word] ^ self.src[word][lane]);
                differs |= outside(self.hosts[1][lane], packet.dst[word] ^ self.dst[word][lane]);
            }
            for half in [0, 16] {
                let part = |ports: u32| (ports >> half) as u16;
                let above = part(packet.ports).wrapping_sub(part(self.low[lane])) | portless;
                differs |= u32::from(above.saturating_sub(part(self.span[lane])));
            }
            let protocol = self.protocol[lane];
            differs |= u32::from((packet.protocol() ^ protocol) & protocol >> 8);
            lanes |= u32::from(differs == 0) << lane;
        }
        lanes
    }
}
