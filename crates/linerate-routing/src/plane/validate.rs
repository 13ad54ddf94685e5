//! Validate: checks that a packet is valid and for this router to handle.
//!
//! Ordinary unicast without options passes in loops over the burst: [`AddressCheck`] finds the
//! others. Packets that it or the parser marks are validated one by one, by RFC 1812 5.2.2 and on.

use linerate_core::arch::{Vectors, Work};
use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, Stage};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, FlowKey6};

use super::address::{self, AddressKind};
use super::context::{Context, Marks, Verdict};
use super::punt::Reason;

/// Finds the addresses of IPv4 packets, in host order, that are not ordinary unicast.
struct AddressCheck<'a> {
    src: &'a [u32],
    dst: &'a [u32],
}

impl Work for AddressCheck<'_> {
    type Output = Mask;

    #[inline(always)]
    fn run(self) -> Mask {
        let Self { src, dst } = self;
        let mut any = false;
        for (&src, &dst) in src.iter().zip(dst) {
            any |= address::is_special4(src) | address::is_special4(dst);
        }
        let mut special = 0;
        if any {
            for (index, (&src, &dst)) in src.iter().zip(dst).enumerate() {
                let is_special = address::is_special4(src) | address::is_special4(dst);
                special |= Mask::from(is_special) << index;
            }
        }
        special
    }
}

/// Which packets have such addresses in IPv6, of the packets in `mask`.
#[inline(always)]
fn special6(keys: &[FlowKey6], mut mask: Mask) -> Mask {
    let mut special = 0;
    while mask != 0 {
        let index = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        let upper = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&keys[index].0[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let is_special = address::is_special6(upper(0)) | address::is_special6(upper(16));
        special |= Mask::from(is_special) << index;
    }
    special
}

/// The stage.
pub struct Validate {
    vectors: Vectors,
}

impl Validate {
    /// With loops for an instruction set.
    pub fn new(isa: Isa) -> Self {
        Self {
            vectors: Vectors::up_to(isa),
        }
    }

    /// Validates the packets of `mask` one by one; returns which may go on.
    #[inline(always)]
    fn validate_each(mut mask: Mask, burst: &mut Burst, context: &mut Context<'_>) -> Mask {
        let mut valid = 0;
        while mask != 0 {
            let index = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let packet = &mut burst.as_packets_mut()[index];
            let is_valid = context.validate(index, packet);
            valid |= Mask::from(is_valid) << index;
        }
        valid
    }
}

impl Stage<Context<'_>> for Validate {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let (count, all) = (burst.len(), burst.mask());
        let packets = &mut *context.packets;
        packets.marks = Marks {
            whole: packets.first_whole.map_or(0, |first| {
                all & Mask::MAX.checked_shl(first as u32).unwrap_or(0)
            }),
            ..Marks::default()
        };
        let parsed = &packets.parsed;
        let class = &parsed.class;
        let ordinary = class.ours & !class.options & !parsed.checks.ip_bad;
        let special = match class.v4 {
            0 => 0,
            v4 => {
                v4 & self.vectors.run(AddressCheck {
                    src: &parsed.src4[..count],
                    dst: &parsed.dst4[..count],
                })
            }
        };
        let special = special | special6(&parsed.keys6, class.v6 & ordinary);
        // Traced packets are validated one by one, to record each step.
        let traced = context.exceptions.tracer.begin(packets.interface, burst);
        let plain = ordinary & !special & !traced;
        let live = plain | Self::validate_each(all & !plain, burst, context);
        context.packets.plain = plain;
        context.packets.keep(live);
    }
}

impl Context<'_> {
    /// Validates the packet at `index`, which is not plain: whether it may go on to the lookup. If
    /// not, it gets a verdict.
    #[cold]
    fn validate(&mut self, index: usize, packet: &mut Packet) -> bool {
        match self.judge(index, packet) {
            Ok(()) => {
                self.note(index, "validate", || "valid".into());
                true
            }
            Err(verdict) => {
                self.packets.judge(index, verdict);
                false
            }
        }
    }

    fn judge(&mut self, index: usize, packet: &mut Packet) -> Result<(), Verdict> {
        let bit: Mask = 1 << index;
        let (reasons, mac) = (self.reasons, self.interface().mac);
        let packets = &mut *self.packets;
        let drop = |reason| Err(Verdict::Drop(reason));
        let frame = packet.data();
        let Some(header) = frame.first_chunk::<HEADER_LEN>() else {
            return drop(reasons.truncated);
        };
        let is_group = header[0] & 1 != 0;
        if header[..6] != mac.0 && !is_group {
            return drop(reasons.not_for_us);
        }
        if let Some(malformed) = packets.parsed.reason(index) {
            return drop(reasons.malformed(malformed));
        }
        let class = packets.parsed.class;
        if class.other & bit != 0 {
            let is_arp = frame[12..14] == EtherType::ARP.0.to_be_bytes();
            let reason = if is_arp { Reason::Arp } else { Reason::Other };
            return Err(Verdict::Punt(reason));
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
            AddressKind::Martian | AddressKind::Unspecified => {
                return drop(reasons.martian_destination);
            }
            AddressKind::Multicast | AddressKind::Broadcast => packets.marks.to_group |= bit,
            // Whether it is for us is decided by the routes (IPv4), or the interface's addresses
            // (IPv6).
            AddressKind::LinkLocal => packets.marks.link_local |= bit,
            AddressKind::Unicast => {}
        }
        // RFC 1812 5.3.7: a source in network 0 means that the sender has no address yet, which is
        // valid on its own link (RFC 1122 3.2.1.3); RFC 4291 2.5.2 likewise.
        if source == AddressKind::Unspecified && packets.marks.to_group & bit == 0 {
            return drop(reasons.martian_source);
        }
        if source == AddressKind::LinkLocal {
            packets.marks.link_local |= bit;
        }
        if is_group {
            packets.marks.l2_group |= bit;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_packet_the_check_says_whether_its_addresses_are_special() {
        let address = |a, b, c, d| u32::from_be_bytes([a, b, c, d]);
        for isa in Isa::detect().levels() {
            let vectors = Vectors::up_to(isa);
            let (mut src, mut dst) = ([address(10, 0, 0, 1); 64], [address(10, 0, 0, 2); 64]);
            let check = |src: &[u32], dst: &[u32]| vectors.run(AddressCheck { src, dst });
            assert_eq!(check(&src, &dst), 0);
            src[3] = address(127, 0, 0, 1);
            dst[63] = address(224, 0, 0, 5);
            assert_eq!(check(&src, &dst), 1 << 3 | 1 << 63);
            assert_eq!(check(&src[..63], &dst[..63]), 1 << 3);
        }
    }
}
