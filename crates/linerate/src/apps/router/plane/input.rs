//! What comes in: is it a packet for this router to look at?
//!
//! [`look`] asks each packet of a burst for what the vector path must know; [`Sieve`] looks for
//! addresses that are not ordinary unicast. What either holds back is validated one by one, RFC 1812
//! 5.2.2 and on, by [`Engine::validate`].

use linerate_core::arch::Work;
use linerate_core::packet::{Burst, Offload, Packet};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::{HEADER_LEN, MacAddr};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, FlowKey4, FlowKey6};

use super::address::{self, Kind};
use super::engine::{Engine, Fate};
use super::punt::Reason;
use crate::apps::router::plane::trace::Stage;

/// The six bytes of a MAC address as the lowest of a word.
pub(super) fn mac_word(MacAddr([a, b, c, d, e, f]): MacAddr) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

const MAC_BITS: u64 = (1 << 48) - 1;

/// What is where in a burst, besides what the parser found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// Frames to the interface's own address.
    pub(super) ours: Mask,
    /// A tag stands in the metadata.
    pub(super) tagged: Mask,
    /// Bytes of all frames.
    pub(super) bytes: u64,
}

/// Looks at all packets of a burst that came in by an interface of address `mac`.
#[inline(always)]
pub(super) fn look(burst: &Burst, mac: u64) -> Look {
    let mut look = Look::default();
    for (index, packet) in burst.iter().enumerate() {
        let meta = packet.meta();
        look.tagged |= Mask::from(meta.offload.intersects(Offload::VLAN)) << index;
        look.bytes += packet.len() as u64;
        // Shorter frames are no packets.
        if let Some(front) = packet.data().first_chunk::<HEADER_LEN>() {
            look.ours |= Mask::from(word(front, 0) & MAC_BITS == mac) << index;
        }
    }
    look
}

#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Takes the addresses out of the IPv4 keys of a burst, in host order, and finds those that are not
/// ordinary unicast.
pub(super) struct Sieve<'a> {
    pub(super) keys: &'a [FlowKey4],
    pub(super) src: &'a mut [u32],
    pub(super) dst: &'a mut [u32],
}

impl Work for Sieve<'_> {
    type Output = Mask;

    #[inline(always)]
    fn run(self) -> Mask {
        let Self { keys, src, dst } = self;
        let count = keys.len();
        let (src, dst) = (&mut src[..count], &mut dst[..count]);
        let mut any = false;
        for ((key, src), dst) in keys.iter().zip(&mut *src).zip(&mut *dst) {
            let [a, b, c, d, e, f, g, h, ..] = key.0;
            *src = u32::from_be_bytes([a, b, c, d]);
            *dst = u32::from_be_bytes([e, f, g, h]);
        }
        for (&src, &dst) in src.iter().zip(&*dst) {
            any |= address::odd4(src) | address::odd4(dst);
        }
        let mut odd = 0;
        if any {
            for (index, (&src, &dst)) in src.iter().zip(&*dst).enumerate() {
                let is_odd = address::odd4(src) | address::odd4(dst);
                odd |= Mask::from(is_odd) << index;
            }
        }
        odd
    }
}

/// Finds the sources on a network.
pub(super) struct Within<'a> {
    pub(super) src: &'a [u32],
    /// Its first address and its mask.
    pub(super) first: u32,
    pub(super) mask: u32,
}

impl Work for Within<'_> {
    type Output = Mask;

    #[inline(always)]
    fn run(self) -> Mask {
        let is_within = |src: u32| src & self.mask == self.first;
        let mut any = false;
        for &src in self.src {
            any |= is_within(src);
        }
        let mut within = 0;
        if any {
            for (index, &src) in self.src.iter().enumerate() {
                within |= Mask::from(is_within(src)) << index;
            }
        }
        within
    }
}

/// Which addresses are odd in IPv6, of the packets in `mask`.
#[inline(always)]
pub(super) fn odd6(keys: &[FlowKey6], mut mask: Mask) -> Mask {
    let mut odd = 0;
    while mask != 0 {
        let index = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        let upper = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&keys[index].0[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let is_odd = address::odd6(upper(0)) | address::odd6(upper(16));
        odd |= Mask::from(is_odd) << index;
    }
    odd
}

impl Engine {
    /// Looks at the packet at `index`, which is not plain and came in by an interface of address `mac`:
    /// whether it may go on to the lookup. If not, its fate is sealed.
    #[cold]
    pub(super) fn validate(&mut self, index: usize, packet: &mut Packet, mac: u64) -> bool {
        match self.judge(index, packet, mac) {
            Ok(()) => {
                self.note(index, Stage::Input, || "valid".into());
                true
            }
            Err(fate) => {
                self.fates[index] = fate;
                false
            }
        }
    }

    fn judge(&mut self, index: usize, packet: &mut Packet, mac: u64) -> Result<(), Fate> {
        let bit: Mask = 1 << index;
        let reasons = self.reasons;
        let drop = |reason| Err(Fate::Drop(reason));
        let frame = packet.data();
        let Some(header) = frame.first_chunk::<HEADER_LEN>() else {
            return drop(reasons.truncated);
        };
        let is_group = header[0] & 1 != 0;
        if word(header, 0) & MAC_BITS != mac && !is_group {
            return drop(reasons.not_for_us);
        }
        if let Some(malformed) = self.parsed.reason(index) {
            return drop(reasons.malformed(malformed));
        }
        let class = self.parsed.class;
        if class.other & bit != 0 {
            let is_arp = frame[12..14] == EtherType::ARP.0.to_be_bytes();
            let reason = if is_arp { Reason::Arp } else { Reason::Other };
            return Err(Fate::Punt(reason));
        }
        let packet = &frame[HEADER_LEN..];
        let (source, destination) = if class.v4 & bit != 0 {
            let Ok(ip) = Ipv4::new_checked(packet) else {
                return drop(reasons.bad_length);
            };
            // RFC 1812 5.2.2 (2).
            if !ip.verify() {
                return drop(reasons.bad_checksum);
            }
            (address::kind4(ip.src()), address::kind4(ip.dst()))
        } else {
            let Ok(ip) = Ipv6::new_checked(packet) else {
                return drop(reasons.bad_length);
            };
            (address::kind6(ip.src()), address::kind6(ip.dst()))
        };
        // RFC 1812 5.3.7; RFC 4291 2.5.3, 2.7.
        if !address::may_be_source(source) {
            return drop(reasons.martian_source);
        }
        match destination {
            Kind::Martian | Kind::Unspecified => return drop(reasons.martian_destination),
            Kind::Multicast | Kind::Broadcast => self.marks.to_group |= bit,
            // Whether it is for us, the routes say (IPv4), or the interface's addresses (IPv6).
            Kind::LinkLocal => self.marks.link_local |= bit,
            Kind::Unicast => {}
        }
        // RFC 1812 5.3.7: network 0 as a source means that the sender has no address yet, which it
        // may tell its own link (RFC 1122 3.2.1.3); RFC 4291 2.5.2 likewise.
        if source == Kind::Unspecified && self.marks.to_group & bit == 0 {
            return drop(reasons.martian_source);
        }
        if source == Kind::LinkLocal {
            self.marks.link_local |= bit;
        }
        if is_group {
            self.marks.l2_group |= bit;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::arch::Vectors;
    use linerate_core::env::Isa;

    #[test]
    fn the_sieve_says_of_each_key_what_its_addresses_are() {
        let mut keys = [FlowKey4::new([10, 0, 0, 1], [10, 0, 0, 2], 1, 2, 6); 64];
        let (mut src, mut dst) = ([0; 64], [0; 64]);
        for isa in Isa::detect().levels() {
            let vectors = Vectors::up_to(isa);
            let mut sieve = |keys: &[FlowKey4]| {
                let (src, dst) = (&mut src[..], &mut dst[..]);
                let odd = vectors.run(Sieve { keys, src, dst });
                (odd, src[3], dst[3])
            };
            assert_eq!(sieve(&keys), (0, 0x0a00_0001, 0x0a00_0002));
            keys[3] = FlowKey4::new([127, 0, 0, 1], [10, 0, 0, 2], 1, 2, 6);
            keys[63] = FlowKey4::new([10, 0, 0, 1], [224, 0, 0, 5], 1, 2, 6);
            assert_eq!(sieve(&keys).0, 1 << 3 | 1 << 63);
            keys[3] = FlowKey4::new([10, 0, 0, 1], [10, 0, 0, 2], 1, 2, 6);
            keys[63] = keys[3];
        }
    }
}
