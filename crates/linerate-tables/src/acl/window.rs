//! Windows: the fields of a packet, two words of 32 bits at a time, in the pairs among whose bits a
//! node of a tree may choose.

use super::block;
use super::key::PacketKey;
use super::rule::{Match, Prefix, Range};

/// How many windows there are at most; a power of two.
pub(crate) const WINDOWS: usize = 8;

/// Source and destination side by side (window 0 is both, for IPv4), each beside the ports, and
/// the ports beside protocol, flags and the like.
pub(crate) type Windows = [u64; WINDOWS];

#[inline(always)]
fn windows<const W: usize>(src: &[u32; W], dst: &[u32; W], ports: u32, meta: u32) -> Windows {
    let join = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let last = W - 1;
    if W == 1 {
        let [src, dst] = [src[last], dst[last]];
        let own = [
            join(src, dst),
            join(dst, ports),
            join(src, ports),
            join(ports, meta),
        ];
        return [own[0], own[1], own[2], own[3], 0, 0, 0, 0];
    }
    let second = last.min(1);
    [
        join(src[0], src[second]),
        join(dst[0], dst[second]),
        join(src[second], dst[second]),
        join(src[last - second], src[last]),
        join(dst[last - second], dst[last]),
        join(src[last], dst[last]),
        join(dst[second], ports),
        join(ports, meta),
    ]
}

impl<const W: usize> PacketKey<W> {
    /// What nodes look at.
    #[inline(always)]
    pub(crate) fn windows(&self) -> Windows {
        windows(&self.src, &self.dst, self.ports, self.meta)
    }
}

/// What is known of the windows of every packet that a rule matches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ternary {
    /// The bits, 0 where they are not known.
    pub(super) value: Windows,
    /// Which are known.
    pub(super) care: Windows,
}

impl Ternary {
    pub(super) fn of<const W: usize>(rule: &Match<W>) -> Self {
        let mask =
            |prefix: &Prefix<W>| -> [u32; W] { std::array::from_fn(|word| prefix.mask(word)) };
        // A range's numbers agree in the bits above the highest in which its ends differ.
        let care = |range: &Range| {
            let differ = range.low() ^ range.high();
            u16::MAX
                .checked_shl(16 - differ.leading_zeros())
                .unwrap_or(0)
        };
        let [first, second] = block::ports(rule);
        let join = |first: u16, second: u16| u32::from(first) | u32::from(second) << 16;
        let ports_care = join(care(&first), care(&second));
        let ports = join(first.low(), second.low()) & ports_care;
        let (fragment, fragment_care) = rule.fragment.ternary();
        let meta = |protocol: u16, flags: u16, dscp: u16| {
            u32::from(protocol) | u32::from(flags) << 8 | u32::from(dscp) << 16
        };
        let value = meta(
            rule.protocol.value(),
            rule.tcp_flags.value(),
            rule.dscp.value(),
        );
        let meta_care = meta(
            rule.protocol.mask(),
            rule.tcp_flags.mask(),
            rule.dscp.mask(),
        );
        Self {
            value: windows(rule.src.words(), rule.dst.words(), ports, value | fragment),
            care: windows(
                &mask(&rule.src),
                &mask(&rule.dst),
                ports_care,
                meta_care | fragment_care,
            ),
        }
    }
}

/// The bits of `value` that `mask` selects, side by side: what the instruction `pext` does.
pub(crate) fn extract(value: u64, mut mask: u64) -> u64 {
    let (mut bits, mut at) = (0, 0);
    while mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        bits |= u64::from(value & lowest != 0) << at;
        at += 1;
        mask ^= lowest;
    }
    bits
}
