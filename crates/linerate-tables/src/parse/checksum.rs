//! Checksums of slices in wide registers, and those that a burst's packets still need.

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Offload, Packet};
use linerate_wire::checksum::{add, nonzero};
use linerate_wire::{EtherType, Headers, parse, protocol};

use super::Mask;
use super::one::covered;
use crate::simd;

/// The Internet checksum (RFC 1071) with the best kernel of a level.
///
/// ```
/// use linerate_core::env::Isa;
/// let checksums = linerate_tables::parse::Checksums::new(Isa::detect());
/// assert_eq!(checksums.sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Checksums {
    sum: simd::checksum::Sum,
}

/// CRC32C (RFC 9260 appendix A) with the best kernel of a level.
///
/// ```
/// use linerate_core::env::Isa;
/// let crc = linerate_tables::parse::Crc32c::new(Isa::detect());
/// assert_eq!(crc.of(b"123456789"), 0xe306_9283);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Crc32c {
    update: simd::crc32c::Update,
}

impl Crc32c {
    /// The kernel for this level.
    pub fn new(isa: Isa) -> Self {
        let update = simd::crc32c::pick(isa);
        Self { update }
    }

    /// The CRC32C of `data`, as protocols store it (SCTP and iSCSI: little endian).
    #[inline]
    pub fn of(&self, data: &[u8]) -> u32 {
        !self.update(!0, data)
    }

    /// The state of the register after `data`, as [`linerate_wire::crc32c::update`].
    #[inline]
    pub fn update(&self, state: u32, data: &[u8]) -> u32 {
        (self.update)(state, data)
    }
}

impl Checksums {
    /// The kernel for this level.
    pub fn new(isa: Isa) -> Self {
        let sum = simd::checksum::pick(isa);
        Self { sum }
    }

    /// Folded ones' complement sum of `data` in host order, as [`linerate_wire::checksum::sum`].
    #[inline]
    pub fn sum(&self, data: &[u8]) -> u16 {
        (self.sum)(data)
    }

    /// The checksum of `data`: what goes into a header whose checksum field is zero in `data`.
    #[inline]
    pub fn checksum(&self, data: &[u8]) -> u16 {
        !self.sum(data)
    }

    /// Computes and stores the checksums of IPv4, TCP and UDP headers, whatever stands there now.
    /// A layer-4 checksum that the packet's sender left unfinished ([`Offload::CSUM_PARTIAL`])
    /// stays so; fragments keep theirs, for it covers the whole datagram. Returns which packets
    /// were left as they were, because they are malformed or not IP.
    pub fn fill(&self, burst: &mut Burst) -> Mask {
        let mut left = 0;
        for (index, packet) in burst.iter_mut().enumerate() {
            let filled = self.fill_one(packet).is_some();
            left |= u64::from(!filled) << index;
        }
        left
    }

    fn fill_one(&self, packet: &mut Packet) -> Option<()> {
        let headers = parse(packet.data()).ok()?;
        headers.protocol?;
        if !packet.meta().offload.intersects(Offload::CSUM_PARTIAL) {
            self.fill_l4(packet.data_mut(), &headers);
        }
        if headers.ethertype == EtherType::IPV4 {
            let header = &mut packet.data_mut()[headers.l3..];
            let header_len = usize::from(header[0] & 0x0f) * 4;
            header[10..12].fill(0);
            let checksum = self.checksum(&header[..header_len]);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Some(())
    }

    fn fill_l4(&self, frame: &mut [u8], headers: &Headers) {
        let Some(covers) = covered(frame, headers) else {
            return;
        };
        // What stands there is taken off again: the sum of all else.
        let rest = add(add(covers.pseudo, self.sum(covers.bytes)), !covers.stands());
        let checksum = match headers.protocol {
            Some(protocol::UDP) => nonzero(!rest),
            _ => !rest,
        };
        let field = headers.l4.unwrap_or(0) + covers.field;
        frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Finishes the checksums that senders on this machine left unfinished
    /// ([`Offload::CSUM_PARTIAL`], virtio 1.2 5.1.6.2) and takes the flag off, as a port without
    /// such an offload has to. Packets that are still to be segmented are left to the segmenter.
    /// Returns the packets whose checksum field lies outside: they keep the flag.
    pub fn complete_partial(&self, burst: &mut Burst) -> Mask {
        let mut outside = 0;
        for (index, packet) in burst.iter_mut().enumerate() {
            let offload = packet.meta().offload;
            if !offload.intersects(Offload::CSUM_PARTIAL) || offload.intersects(Offload::GSO) {
                continue;
            }
            match self.complete_one(packet) {
                Some(()) => packet.meta_mut().offload.remove(Offload::CSUM_PARTIAL),
                None => outside |= 1 << index,
            }
        }
        outside
    }

    fn complete_one(&self, packet: &mut Packet) -> Option<()> {
        let (start, offset) = (packet.meta().csum_start, packet.meta().csum_offset);
        let covered = packet.data_mut().get_mut(start.into()..)?;
        let offset = usize::from(offset);
        covered.get(offset..offset + 2)?;
        // Never zero, as in `linerate_wire::offload::complete_partial`.
        let checksum = nonzero(self.checksum(covered));
        covered[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
        Some(())
    }
}
