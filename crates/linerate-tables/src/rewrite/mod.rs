//! What a router writes into the packets that it forwards, and how it sorts them by where they go.
//!
//! [`forward`] takes a life off each packet, brings the IPv4 checksum up to date with that (RFC
//! 1624), and gives the frame its next addresses ([`Macs`]). [`Scatter`] takes a burst apart by any
//! number that its packets were given: a port, a next hop. [`crate::parse`] says beforehand which
//! packets are fit for it.
//!
//! No kernel: a packet takes three stores to lines of its own, which no wider register makes fewer.

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet};
use linerate_wire::MacAddr;

use crate::parse::Mask;
use crate::simd;

/// The addresses of a frame as they lie in it: destination, then source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Macs([u8; 12]);

impl Macs {
    /// Of a frame from `src` to `dst`.
    pub const fn new(dst: MacAddr, src: MacAddr) -> Self {
        let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (dst.0, src.0);
        Self([a, b, c, d, e, f, g, h, i, j, k, l])
    }

    /// The destination.
    pub fn dst(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = self.0;
        MacAddr([a, b, c, d, e, f])
    }

    /// The source.
    pub fn src(&self) -> MacAddr {
        let [.., g, h, i, j, k, l] = self.0;
        MacAddr([g, h, i, j, k, l])
    }

    /// Writes both addresses; a frame too short for them stays as it is.
    #[inline(always)]
    pub fn store(&self, frame: &mut [u8]) {
        if let Some(front) = frame.first_chunk_mut() {
            *front = self.0;
        }
    }
}

/// Makes packets ready for their next hop: those at the positions of `v4` and of `v6`, which are
/// what [`Parser::parse_network`](crate::parse::Parser::parse_network) found to be IPv4 and IPv6,
/// sound and not expired. `macs` says the addresses of the frame at a position.
///
/// One less to live (RFC 1812 5.3.1, RFC 8200 3), the checksum of an IPv4 header updated for that
/// (RFC 1624, equation 3), and both addresses of the frame. Other packets are not touched.
#[inline(always)]
pub fn forward<'a>(burst: &mut Burst, v4: Mask, v6: Mask, mut macs: impl FnMut(usize) -> &'a Macs) {
    if v4 == burst.mask() {
        // Most bursts are of one kind.
        for (index, packet) in burst.iter_mut().enumerate() {
            one::<false>(packet, false, macs(index));
        }
    } else if v6 == 0 {
        for (index, packet) in burst.iter_mut().enumerate() {
            if v4 >> index & 1 != 0 {
                one::<false>(packet, false, macs(index));
            }
        }
    } else {
        for (index, packet) in burst.iter_mut().enumerate() {
            if (v4 | v6) >> index & 1 != 0 {
                one::<true>(packet, v6 >> index & 1 != 0, macs(index));
            }
        }
    }
}

/// Decrements the TTL or hop limit of a packet that is forwarded by itself, and updates the IPv4
/// checksum. Returns false, and changes nothing, if it was 1 or 0.
pub fn decrement_ttl(packet: &mut Packet, is_v6: bool) -> bool {
    let at = usize::from(packet.meta().l3_offset) + if is_v6 { 7 } else { 8 };
    let is_live = packet.data().get(at).is_some_and(|&life| life > 1);
    if is_live {
        let l3 = usize::from(packet.meta().l3_offset);
        write_ttl::<true>(packet.data_mut(), l3, is_v6);
    }
    is_live
}

#[inline(always)]
fn one<const MIXED: bool>(packet: &mut Packet, is_v6: bool, macs: &Macs) {
    let l3 = usize::from(packet.meta().l3_offset);
    let frame = packet.data_mut();
    write_ttl::<MIXED>(frame, l3, is_v6);
    macs.store(frame);
}

/// Without a branch on the kind of packet, where bursts are of both kinds.
#[inline(always)]
fn write_ttl<const MIXED: bool>(frame: &mut [u8], l3: usize, is_v6: bool) {
    let is_v6 = MIXED && is_v6;
    // TTL, protocol and checksum of IPv4; payload length, next header and hop limit of IPv6.
    let at = l3 + if is_v6 { 4 } else { 8 };
    let word = frame.get_mut(at..);
    if let Some(word) = word.and_then(<[u8]>::first_chunk_mut) {
        let old = u32::from_le_bytes(*word);
        let new = if is_v6 {
            old.wrapping_sub(1 << 24)
        } else {
            decrement_ttl4(old)
        };
        *word = new.to_le_bytes();
    }
}

/// The four bytes of an IPv4 header from the TTL on (TTL, protocol and checksum), read as
/// little endian, with the TTL decremented. The TTL must not be 0.
///
/// RFC 1624 equation 3, HC' = ~(~HC + ~m + m'), where m' is m less 0x100: ~HC + 0xfeff in ones'
/// complement. In the order of memory that adds 1 to HC, or 2 where HC is one of the last two
/// numbers.
#[inline(always)]
pub fn decrement_ttl4(word: u32) -> u32 {
    let wraps = u32::from(word >= 0xfffe_0000);
    // One off the lowest byte, which is not 0, and one onto the upper half.
    word.wrapping_add(0xffff).wrapping_add(wraps << 16)
}

/// Takes bursts apart by numbers that their packets were given.
///
/// ```
/// use linerate_core::env::Isa;
/// use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
/// use linerate_tables::rewrite::Scatter;
/// let pool = Pool::new(&PoolConfig::new("rx", 256))?;
/// let mut cache = PoolCache::new(&[pool.clone()]);
/// let mut burst = Burst::new();
/// cache.fill(&pool, &mut burst, 4);
/// let (mut ports, mut seen) = ([0; Burst::CAPACITY], Vec::new());
/// ports[..4].copy_from_slice(&[7, 3, 7, 9]);
/// Scatter::new(Isa::detect()).by_value(&mut burst, 0b0111, &ports, |port, packets| {
///     seen.push((port, packets.len()));
///     cache.free(packets);
/// });
/// assert_eq!((seen, burst.len()), (vec![(7, 2), (3, 1)], 1)); // the last one was not asked for
/// # cache.free(&mut burst);
/// # Ok::<(), linerate_core::MemError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    equal: simd::rewrite::Equal,
}

impl Scatter {
    /// With the best kernel of this level.
    pub fn new(isa: Isa) -> Self {
        Self {
            equal: simd::rewrite::pick(isa),
        }
    }

    /// The positions of `value` among all `values`.
    #[inline(always)]
    pub fn equal(&self, values: &[u32; Burst::CAPACITY], value: u32) -> Mask {
        (self.equal)(values, value)
    }

    /// Hands the packets at the positions of `mask` to `exit`, those with equal values together,
    /// each group in order, the groups by their first packets; `exit` takes them all. The other
    /// packets stay in the burst. Most bursts go one way: then `exit` gets the burst itself.
    #[inline(always)]
    pub fn by_value(
        &self,
        burst: &mut Burst,
        mask: Mask,
        values: &[u32; Burst::CAPACITY],
        mut exit: impl FnMut(u32, &mut Burst),
    ) {
        let all = burst.mask();
        let mut left = mask & all;
        if left == 0 {
            return;
        }
        let mut value = values[first(left)];
        let mut group = self.equal(values, value) & left;
        if group == all {
            return exit(value, burst);
        }
        let (now, port) = (burst.now, burst.port);
        let mut parts = burst.parts();
        loop {
            let mut packets = Burst::new();
            (packets.now, packets.port) = (now, port);
            parts.take(group, &mut packets);
            exit(value, &mut packets);
            left &= !group;
            if left == 0 {
                return;
            }
            value = values[first(left)];
            group = self.equal(values, value) & left;
        }
    }
}

/// The lowest position of a mask that has one.
#[inline(always)]
fn first(mask: Mask) -> usize {
    mask.trailing_zeros() as usize % Burst::CAPACITY
}
