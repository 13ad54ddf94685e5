//! Common frames of a burst, sixteen at a time: one lane each, and no branch on what they hold.
//!
//! Each step loads 64 bytes of sixteen packets, from their network headers on and never beyond
//! their ends, and transposes them: then register `n` has word `n` of all sixteen, and each header
//! field is one operation for all. [`crate::parse`] says which frames are common; the kernel does
//! those, says which they were, and leaves the others to the scalar twin, which is all of the
//! levels below AVX-512. Read [`x86::step`] first.

use linerate_core::env::Isa;
use linerate_core::packet::Packet;

use crate::parse::{Mask, Parsed};

/// Parses the common ones among up to 64 packets, and checks their checksums where the flag says
/// so: writes header offsets, and of `parsed` what belongs to them. Returns which they were.
pub(crate) type Kernel = fn(&mut [Packet], &mut Parsed, bool) -> Mask;

/// The kernel for this level.
pub(crate) fn pick(isa: Isa) -> Kernel {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 { .. } => avx512,
        _ => |_, _, _| 0,
    }
}

#[cfg(target_arch = "x86_64")]
fn avx512(packets: &mut [Packet], parsed: &mut Parsed, check: bool) -> Mask {
    if check {
        // SAFETY: reached through `pick` alone, and so on CPUs with these parts of AVX-512 alone.
        unsafe { x86::burst::<true>(packets, parsed) }
    } else {
        // SAFETY: as above.
        unsafe { x86::burst::<false>(packets, parsed) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Mask, Packet, Parsed};
    use crate::simd::checksum::sum_avx512;
    use linerate_core::arch::prefetch_read;
    use linerate_core::packet::{Burst, Offload};
    use linerate_wire::checksum::fold;
    use linerate_wire::protocol::{
        AH, DEST_OPTIONS, FRAGMENT, HOP_BY_HOP, ICMP, ICMPV6, ROUTING, SCTP, TCP, UDP,
    };
    use std::arch::x86_64::*;

    const LANES: usize = 16;
    /// EtherTypes as they lie in memory, read as little endian.
    const IPV4: u32 = 0x0008;
    const IPV6: u32 = 0xdd86;
    const TAGS: [u32; 3] = [0x0081, 0xa888, 0x0091];
    /// What is read of each frame for its type: up to the EtherType behind one tag.
    const HEAD: usize = 18;

    /// What is known of each packet before its network header is read.
    #[repr(C, align(64))]
    struct Heads {
        ethertype: [u32; Burst::CAPACITY],
        /// Offset of the network header.
        l3: [u32; Burst::CAPACITY],
        /// Bytes from there on.
        present: [u32; Burst::CAPACITY],
        offload: [u32; Burst::CAPACITY],
        /// Offset of the layer-4 header, from [`step`].
        l4: [u32; Burst::CAPACITY],
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,popcnt")]
    pub(super) fn burst<const CHECK: bool>(packets: &mut [Packet], parsed: &mut Parsed) -> Mask {
        assert!(packets.len() <= Burst::CAPACITY, "a burst is 64 packets");
        for packet in &*packets {
            prefetch_read(packet.data().as_ptr());
        }
        let mut heads = Heads {
            ethertype: [0; _],
            l3: [0; _],
            present: [0; _],
            offload: [0; _],
            l4: [0; _],
        };
        for (i, packet) in packets.iter().enumerate() {
            let frame = packet.data();
            let head = frame.first_chunk::<HEAD>().unwrap_or(&[0; HEAD]);
            let word = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]));
            let outer = word(12);
            let is_tagged = (outer == TAGS[0]) | (outer == TAGS[1]) | (outer == TAGS[2]);
            heads.ethertype[i] = if is_tagged { word(16) } else { outer };
            heads.l3[i] = 14 + 4 * u32::from(is_tagged);
            heads.present[i] = (frame.len() as u32).saturating_sub(heads.l3[i]);
            parsed.vlan_tci[i] = (word(14) as u16).swap_bytes();
            if CHECK {
                heads.offload[i] = u32::from(packet.meta().offload.bits());
            }
        }
        let mut done = 0;
        for (group, packets) in packets.chunks(LANES).enumerate() {
            done |= step::<CHECK>(packets, group * LANES, &mut heads, parsed);
        }
        for (i, packet) in packets.iter_mut().enumerate() {
            let meta = packet.meta_mut();
            meta.l3_offset = heads.l3[i] as u8;
            meta.l4_offset = heads.l4[i] as u16;
        }
        done
    }

    /// Up to sixteen packets, of which the first is at `first` in its burst.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,popcnt")]
    fn step<const CHECK: bool>(
        packets: &[Packet],
        first: usize,
        heads: &mut Heads,
        parsed: &mut Parsed,
    ) -> Mask {
        let mut rows = [_mm512_setzero_si512(); LANES];
        for (i, packet) in packets.iter().enumerate().take(LANES) {
            let (frame, l3) = (packet.data(), heads.l3[first + i] as usize);
            rows[i] = first_64(frame.get(l3..).unwrap_or(&[]));
        }
        let w = transpose(rows);

        let ethertype = lanes(&heads.ethertype, first);
        let present = lanes(&heads.present, first);
        let l3 = lanes(&heads.l3, first);

        // RFC 791 3.1, no options, no fragment; RFC 8200 3.
        let version = |bits: i32| _mm512_and_si512(w[0], _mm512_set1_epi32(bits));
        let v4 = is(ethertype, IPV4) & is(version(0xff), 0x45) & none_of(w[1], 0xff3f_0000);
        let v6 = is(ethertype, IPV6) & is(version(0xf0), 0x60);
        let either = |four, six| _mm512_mask_mov_epi32(four, v6, six);
        let l3_len = either(all(20), all(40));
        let total = either(be16::<2>(w[0]), _mm512_add_epi32(be16::<0>(w[1]), all(40)));
        let protocol = either(byte::<1>(w[2]), byte::<2>(w[1]));
        let l4_len = _mm512_sub_epi32(total, l3_len);
        let fits = _mm512_cmple_epi32_mask(total, present)
            & _mm512_cmpge_epi32_mask(l4_len, _mm512_setzero_si512());

        // The first four words of the layer-4 header: RFC 768, RFC 9293 3.1.
        let (ports, second, fourth) = (
            either(w[5], w[10]),
            either(w[6], w[11]),
            either(w[8], w[13]),
        );
        let header_len = _mm512_srli_epi32::<2>(_mm512_and_si512(fourth, all(0xf0)));
        let tcp = is(protocol, TCP.into());
        let tcp_fits = _mm512_cmple_epi32_mask(all(20), header_len)
            & _mm512_cmple_epi32_mask(header_len, l4_len);
        let udp = is(protocol, UDP.into());
        // A datagram that ends before its packet does is uncommon.
        let udp_fits = _mm512_cmple_epi32_mask(all(8), l4_len)
            & _mm512_cmpeq_epi32_mask(be16::<0>(second), l4_len);
        let with_ports = tcp & tcp_fits | udp & udp_fits;
        let done = (v4 | v6) & fits & (with_ports | without_ports(protocol));

        let icmp = v4 & is(protocol, ICMP.into()) | v6 & is(protocol, ICMPV6.into());
        let at = |mask: __mmask16| Mask::from(mask) << first;
        parsed.class.v4 |= at(done & v4);
        parsed.class.v6 |= at(done & v6);
        parsed.class.tcp |= at(done & tcp);
        parsed.class.udp |= at(done & udp);
        parsed.class.icmp |= at(done & icmp);
        parsed.class.vlan |= at(done & is(l3, 18));
        store(_mm512_add_epi32(l3, total), &mut parsed.end, first);
        store(_mm512_add_epi32(l3, l3_len), &mut heads.l4, first);

        let keys = &mut parsed.keys4[first..first + LANES];
        let own_ports = _mm512_maskz_mov_epi32(with_ports, ports);
        for (four, key) in keys_of([w[3], w[4], own_ports, protocol])
            .into_iter()
            .zip(keys.as_chunks_mut::<4>().0)
        {
            // SAFETY: four keys of 16 bytes each, which any bytes make.
            unsafe { _mm512_storeu_si512(key.as_mut_ptr().cast(), four) };
        }
        for i in bits(done & v6) {
            let at = heads.l3[first + i] as usize;
            let has_ports = with_ports >> i & 1 != 0;
            let key = &mut parsed.keys6[first + i].0;
            key6(&packets[i].data()[at..], has_ports, key);
        }

        if CHECK {
            let offload = lanes(&heads.offload, first);
            let has = |flag: Offload| !none_of(offload, flag.bits().into());
            let partial = has(Offload::CSUM_PARTIAL);
            let valid = has(Offload::CSUM_VALID);
            let no_checksum = udp & none_of(second, 0xffff_0000);
            let to_sum = done & with_ports & !partial & !valid;

            let header = w[..5].iter().fold(all(0), |acc, word| add(acc, *word));
            let ip_bad = done & v4 & !sums_to_ones(header, 5);

            // Pseudo-header and layer 4: all words from the addresses on, which are the header's
            // last; length and protocol; and what lies beyond the first 64 bytes.
            let mut acc = _mm512_maskz_mov_epi32(v6, w[2]);
            acc = add(add(add(all(0), acc), w[3]), w[4]);
            let bits_left = _mm512_slli_epi32::<3>(_mm512_min_epu32(total, all(64)));
            for (word, n) in w[5..].iter().zip(5..) {
                let past = _mm512_subs_epu16(bits_left, all(32 * n));
                let padding = _mm512_sllv_epi32(all(-1), past);
                acc = add(acc, _mm512_andnot_si512(padding, *word));
            }
            acc = _mm512_add_epi32(acc, _mm512_slli_epi32::<8>(protocol));
            acc = _mm512_add_epi32(acc, be16::<0>(l4_len));
            let long = to_sum & _mm512_cmpgt_epi32_mask(total, all(64));
            if long != 0 {
                let mut tails = [0; LANES];
                for i in bits(long) {
                    let (from, to) = (heads.l3[first + i] as usize + 64, parsed.end[first + i]);
                    tails[i] = fold(sum_avx512(&packets[i].data()[from..to as usize])).into();
                }
                acc = _mm512_add_epi32(acc, lanes(&tails, 0));
            }
            let right = sums_to_ones(acc, 14);

            let good = done & with_ports & !partial & (valid | right & !no_checksum);
            let bad = to_sum & !right & !no_checksum | to_sum & no_checksum & v6;
            parsed.checks.ip_bad |= at(ip_bad);
            parsed.checks.l4_good |= at(good);
            parsed.checks.l4_bad |= at(bad);
            parsed.checks.l4_unchecked |= at(done & !good & !bad);
        }
        at(done)
    }

    /// The key of an IPv6 packet without extension headers, from its first bytes.
    #[inline(always)]
    fn key6(packet: &[u8], has_ports: bool, key: &mut [u8; 40]) {
        key[..32].copy_from_slice(&packet[8..40]);
        let ports = packet.get(40..44).filter(|_| has_ports);
        key[32..36].copy_from_slice(ports.unwrap_or(&[0; 4]));
        key[36..].copy_from_slice(&[packet[6], 0, 0, 0]);
    }

    /// Where the keys have no ports and the layer-4 header is not looked at: neither TCP, UDP nor
    /// SCTP, nor one of the extension headers of IPv6.
    #[target_feature(enable = "avx512f")]
    fn without_ports(protocol: __m512i) -> __mmask16 {
        const LOOKED_AT: u64 = 1 << HOP_BY_HOP
            | 1 << TCP
            | 1 << UDP
            | 1 << ROUTING
            | 1 << FRAGMENT
            | 1 << AH
            | 1 << DEST_OPTIONS;
        // A shift by 32 or more, or less than none, leaves nothing.
        let low = _mm512_srlv_epi32(all(LOOKED_AT as i32), protocol);
        let above = _mm512_sub_epi32(protocol, all(32));
        let high = _mm512_srlv_epi32(all((LOOKED_AT >> 32) as i32), above);
        none_of(_mm512_or_si512(low, high), 1) & !is(protocol, SCTP.into())
    }

    /// The first 64 bytes of `bytes`, zeros where there are fewer.
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    fn first_64(bytes: &[u8]) -> __m512i {
        let mask = _bzhi_u64(u64::MAX, bytes.len().min(64) as u32);
        // SAFETY: the mask lets no byte beyond the slice be touched.
        unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
    }

    /// Words `from` to `from + 16`.
    #[target_feature(enable = "avx512f")]
    fn lanes(words: &[u32], from: usize) -> __m512i {
        let words: &[u32; LANES] = words[from..].first_chunk().expect("sixteen are left");
        // SAFETY: sixteen words.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    fn store(lanes: __m512i, words: &mut [u32], from: usize) {
        let words: &mut [u32; LANES] = words[from..].first_chunk_mut().expect("sixteen are left");
        // SAFETY: sixteen words.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), lanes) }
    }

    #[target_feature(enable = "avx512f")]
    fn all(value: i32) -> __m512i {
        _mm512_set1_epi32(value)
    }

    #[target_feature(enable = "avx512f")]
    fn is(lanes: __m512i, value: u32) -> __mmask16 {
        _mm512_cmpeq_epi32_mask(lanes, all(value as i32))
    }

    #[target_feature(enable = "avx512f")]
    fn none_of(lanes: __m512i, bits: u32) -> __mmask16 {
        _mm512_testn_epi32_mask(lanes, all(bits as i32))
    }

    /// The 16-bit number in network order at byte `AT` of each lane.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn be16<const AT: i32>(lanes: __m512i) -> __m512i {
        pick_bytes(lanes, 0x8080_0000 | (AT as u32) << 8 | (AT as u32 + 1))
    }

    /// Byte `AT` of each lane.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn byte<const AT: i32>(lanes: __m512i) -> __m512i {
        pick_bytes(lanes, 0x8080_8000 | AT as u32)
    }

    /// The bytes of each lane that `control` names, lowest first; 0x80 gives zero.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn pick_bytes(lanes: __m512i, control: u32) -> __m512i {
        let control =
            |lane: u32| (control + (control >> 7 & 0x0101_0101 ^ 0x0101_0101) * 4 * lane) as i32;
        let four = _mm_setr_epi32(control(0), control(1), control(2), control(3));
        _mm512_shuffle_epi8(lanes, _mm512_broadcast_i32x4(four))
    }

    /// Adds both 16-bit halves of each lane, each less 0x8000, for [`sums_to_ones`] to add again.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn add(acc: __m512i, words: __m512i) -> __m512i {
        let signed = _mm512_xor_si512(words, _mm512_set1_epi16(i16::MIN));
        _mm512_add_epi32(acc, _mm512_madd_epi16(signed, _mm512_set1_epi16(1)))
    }

    /// Whether the ones' complement sum of `words` words, as [`add`] left it, is all ones.
    #[target_feature(enable = "avx512f")]
    fn sums_to_ones(acc: __m512i, words: i32) -> __mmask16 {
        let low = all(0xffff);
        let mut sum = _mm512_add_epi32(acc, all(words * 0x1_0000));
        for _ in 0..2 {
            let carry = _mm512_srli_epi32::<16>(sum);
            sum = _mm512_add_epi32(_mm512_and_si512(sum, low), carry);
        }
        _mm512_cmpeq_epi32_mask(sum, low)
    }

    /// The numbers of the bits that are set.
    #[inline(always)]
    fn bits(mut mask: __mmask16) -> impl Iterator<Item = usize> {
        std::iter::from_fn(move || {
            let lowest = mask.trailing_zeros() as usize;
            mask &= mask.wrapping_sub(1);
            (lowest < LANES).then_some(lowest)
        })
    }

    /// Sixteen rows of sixteen words to sixteen columns.
    #[target_feature(enable = "avx512f")]
    fn transpose(r: [__m512i; 16]) -> [__m512i; 16] {
        let zero = _mm512_setzero_si512();
        let (mut columns, mut quads) = ([zero; 16], [[zero; 4]; 4]);
        for (i, quad) in quads.iter_mut().enumerate() {
            // Register `n` of the four has word `n` of each block of four words of four rows.
            *quad = transpose4([r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]]);
        }
        for n in 0..4 {
            let blocks = transpose_blocks([quads[0][n], quads[1][n], quads[2][n], quads[3][n]]);
            for (block, column) in blocks.into_iter().enumerate() {
                columns[4 * block + n] = column;
            }
        }
        columns
    }

    /// Sixteen keys, four to a register, from four columns of words.
    #[target_feature(enable = "avx512f")]
    fn keys_of(columns: [__m512i; 4]) -> [__m512i; 4] {
        transpose_blocks(transpose4(columns))
    }

    /// In each 128-bit block, four rows of four words to four columns.
    #[target_feature(enable = "avx512f")]
    fn transpose4([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
        let ab = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let cd = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(ab.0, cd.0),
            _mm512_unpackhi_epi64(ab.0, cd.0),
            _mm512_unpacklo_epi64(ab.1, cd.1),
            _mm512_unpackhi_epi64(ab.1, cd.1),
        ]
    }

    /// Four rows of four 128-bit blocks to four columns.
    #[target_feature(enable = "avx512f")]
    fn transpose_blocks([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
        let ab = (
            _mm512_shuffle_i32x4::<0x88>(a, b),
            _mm512_shuffle_i32x4::<0xdd>(a, b),
        );
        let cd = (
            _mm512_shuffle_i32x4::<0x88>(c, d),
            _mm512_shuffle_i32x4::<0xdd>(c, d),
        );
        [
            _mm512_shuffle_i32x4::<0x88>(ab.0, cd.0),
            _mm512_shuffle_i32x4::<0x88>(ab.1, cd.1),
            _mm512_shuffle_i32x4::<0xdd>(ab.0, cd.0),
            _mm512_shuffle_i32x4::<0xdd>(ab.1, cd.1),
        ]
    }
}
