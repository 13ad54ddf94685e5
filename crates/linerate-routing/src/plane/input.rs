//! What comes in: is it a packet for this router to look at?
//!
//! [`Sieve`] looks for addresses that are not ordinary unicast. What it or the parser holds back is
//! validated one by one, RFC 1812 5.2.2 and on, by [`Engine::validate`].

use linerate_core::arch::Work;
use linerate_core::packet::Packet;
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::{HEADER_LEN, MacAddr};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, FlowKey6};

use super::address::{self, Kind};
use super::engine::{Engine, Fate};
use super::punt::Reason;
use crate::plane::trace::Stage;

/// Finds the addresses of IPv4 packets, in host order, that are not ordinary unicast.
pub(super) struct Sieve<'a> {
    pub(super) src: &'a [u32],
    pub(super) dst: &'a [u32],
}

impl Work for Sieve<'_> {
    type Output = Mask;

    #[inline(always)]
    fn run(self) -> Mask {
        let Self { src, dst } = self;
        let mut any = false;
        for (&src, &dst) in src.iter().zip(dst) {
            any |= address::odd4(src) | address::odd4(dst);
        }
        let mut odd = 0;
        if any {
            for (index, (&src, &dst)) in src.iter().zip(dst).enumerate() {
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
    pub(super) fn validate(&mut self, index: usize, packet: &mut Packet, mac: MacAddr) -> bool {
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

    fn judge(&mut self, index: usize, packet: &mut Packet, mac: MacAddr) -> Result<(), Fate> {
        let bit: Mask = 1 << index;
        let reasons = self.reasons;
        let drop = |reason| Err(Fate::Drop(reason));
        let frame = packet.data();
        let Some(header) = frame.first_chunk::<HEADER_LEN>() else {
            return drop(reasons.truncated);
        };
        let is_group = header[0] & 1 != 0;
        if header[..6] != mac.0 && !is_group {
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
    fn the_sieve_says_of_each_packet_what_its_addresses_are() {
        let address = |a, b, c, d| u32::from_be_bytes([a, b, c, d]);
        for isa in Isa::detect().levels() {
            let vectors = Vectors::up_to(isa);
            let (mut src, mut dst) = ([address(10, 0, 0, 1); 64], [address(10, 0, 0, 2); 64]);
            let sieve = |src: &[u32], dst: &[u32]| vectors.run(Sieve { src, dst });
            assert_eq!(sieve(&src, &dst), 0);
            src[3] = address(127, 0, 0, 1);
            dst[63] = address(224, 0, 0, 5);
            assert_eq!(sieve(&src, &dst), 1 << 3 | 1 << 63);
            assert_eq!(sieve(&src[..63], &dst[..63]), 1 << 3);
        }
    }
}
