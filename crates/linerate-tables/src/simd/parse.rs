//! Common frames of a burst, sixteen at a time: one lane each, and no branch on what they hold.
//!
//! Each step loads the first 64 bytes of sixteen frames, never beyond their ends, and transposes
//! them: then register `n` has word `n` of all sixteen, and each header field is one operation for
//! all. [`crate::parse`] says which frames are common; the kernel does those and says which they
//! were. Its scalar twin, which is all of the levels below AVX-512, is in `parse/common.rs`. Read
//! `step` first.

use linerate_core::env::Isa;
use linerate_core::packet::Packet;
use linerate_wire::FlowKey4;

use crate::parse::{Check, Mask, Parsed, common};

/// Parses the common ones among up to 64 packets and judges what it is told to: writes header
/// offsets, and of `parsed` what belongs to them. Returns which they were.
pub(crate) type Kernel = fn(&mut [Packet], &mut Parsed, Check) -> Mask;

/// Keys as the bytes that they are.
#[inline(always)]
pub(crate) fn bytes_of_keys4(keys: &[FlowKey4]) -> &[[u8; 16]] {
    // SAFETY: a key is laid out as its bytes (`repr(transparent)`), and lives as long.
    unsafe { std::slice::from_raw_parts(keys.as_ptr().cast(), keys.len()) }
}

/// The kernel for this level.
pub(crate) fn pick(isa: Isa) -> Kernel {
    match isa.available() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 { .. } => avx512,
        _ => common::burst,
    }
}

#[cfg(target_arch = "x86_64")]
fn avx512(packets: &mut [Packet], parsed: &mut Parsed, check: Check) -> Mask {
    match check {
        // SAFETY: reached through `pick` alone, and so on CPUs with these parts of AVX-512 alone.
        Check::Nothing => unsafe { x86::burst::<{ x86::NOTHING }>(packets, parsed, u64::MAX) },
        // SAFETY: as above.
        Check::Network(_, station) => unsafe {
            x86::burst::<{ x86::NETWORK }>(packets, parsed, station)
        },
        // SAFETY: as above.
        Check::All(_) => unsafe { x86::burst::<{ x86::ALL }>(packets, parsed, u64::MAX) },
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

    /// The kinds of [`Check`](crate::parse::Check).
    pub(super) const NOTHING: u8 = 0;
    pub(super) const NETWORK: u8 = 1;
    pub(super) const ALL: u8 = 2;

    const LANES: usize = 16;
    /// Bytes of each frame that are looked at in lanes.
    const FRONT: usize = 64;
    /// EtherTypes as they lie in memory, read as little endian.
    const IPV4: u32 = 0x0008;
    const IPV6: u32 = 0xdd86;
    const TAGS: [u32; 3] = [0x0081, 0xa888, 0x0091];

    /// What lanes without a packet load, nothing of it: no load faults whose mask is empty, but
    /// where one would without a mask the CPU takes some 60 cycles to find that out, for each such
    /// lane.
    static NO_FRAME: [u8; FRONT] = [0; FRONT];

    /// What is known of each packet before its bytes are looked at, and what for its metadata.
    #[repr(C, align(64))]
    struct Lines {
        len: [u32; Burst::CAPACITY],
        offload: [u32; Burst::CAPACITY],
        /// Start of the frame, and one bit for each of its first 64 bytes that is there.
        front: [(*const u8, u64); Burst::CAPACITY],
        l3: [u32; Burst::CAPACITY],
        l4: [u32; Burst::CAPACITY],
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,popcnt")]
    pub(super) fn burst<const CHECK: u8>(
        packets: &mut [Packet],
        parsed: &mut Parsed,
        station: u64,
    ) -> Mask {
        assert!(packets.len() <= Burst::CAPACITY, "a burst is 64 packets");
        let mut lines = Lines {
            len: [0; _],
            offload: [0; _],
            front: [(NO_FRAME.as_ptr(), 0); _],
            l3: [0; _],
            l4: [0; _],
        };
        let (mut offloads, mut bytes_in_all) = (Offload::NONE, 0);
        for (i, packet) in packets.iter().enumerate() {
            let frame = packet.data();
            prefetch_read(frame.as_ptr());
            let bytes = _bzhi_u64(u64::MAX, frame.len().min(FRONT) as u32);
            lines.front[i] = (frame.as_ptr(), bytes);
            lines.len[i] = frame.len() as u32;
            offloads = offloads | packet.meta().offload;
            bytes_in_all += frame.len() as u64;
            if CHECK == ALL {
                lines.offload[i] = packet.meta().offload.bits().into();
            }
        }
        (parsed.offloads, parsed.bytes) = (offloads, bytes_in_all);
        let mut done = 0;
        for (group, packets) in packets.chunks(LANES).enumerate() {
            done |= step::<CHECK>(packets, group * LANES, &mut lines, parsed, station);
        }
        for (i, packet) in packets.iter_mut().enumerate() {
            let meta = packet.meta_mut();
            meta.l3_offset = lines.l3[i] as u8;
            meta.l4_offset = lines.l4[i] as u16;
        }
        done
    }

    /// Up to sixteen packets, of which the first is at `first` in its burst.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,bmi1,bmi2,popcnt")]
    fn step<const CHECK: u8>(
        packets: &[Packet],
        first: usize,
        lines: &mut Lines,
        parsed: &mut Parsed,
        station: u64,
    ) -> Mask {
        let fronts = lines.front[first..].first_chunk::<LANES>();
        let fronts = fronts.expect("sixteen are left");
        let row = |i: usize| {
            let (start, bytes) = fronts[i];
            // SAFETY: the mask has the bytes of a packet that `packets` owns; none where there is
            // no packet.
            unsafe { _mm512_maskz_loadu_epi8(bytes, start.cast()) }
        };
        #[rustfmt::skip]
        let front = transpose([
            row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7),
            row(8), row(9), row(10), row(11), row(12), row(13), row(14), row(15),
        ]);

        // The EtherType is in the fourth word, or behind a tag in the fifth.
        let ethertype = _mm512_and_si512(front[3], all(0xffff));
        let tagged = is(ethertype, TAGS[0]) | is(ethertype, TAGS[1]) | is(ethertype, TAGS[2]);
        let inner = _mm512_and_si512(front[4], all(0xffff));
        let ethertype = _mm512_mask_mov_epi32(ethertype, tagged, inner);
        let l3 = _mm512_mask_mov_epi32(all(14), tagged, all(18));
        let w = network_words(&front, tagged);

        // RFC 791 3.1, no options, no fragment; RFC 8200 3.
        let version = |bits: i32| _mm512_and_si512(w[0], all(bits));
        let v4 = is(ethertype, IPV4) & is(version(0xff), 0x45) & none_of(w[1], 0xff3f_0000);
        let v6 = is(ethertype, IPV6) & is(version(0xf0), 0x60);
        let either = |four, six| _mm512_mask_mov_epi32(four, v6, six);
        let l3_len = either(all(20), all(40));
        let total = either(be16::<2>(w[0]), _mm512_add_epi32(be16::<0>(w[1]), all(40)));
        let protocol = either(byte::<1>(w[2]), byte::<2>(w[1]));
        let l4_len = _mm512_sub_epi32(total, l3_len);
        let end = _mm512_add_epi32(l3, total);
        let fits = _mm512_cmple_epi32_mask(end, lanes(&lines.len, first))
            & _mm512_cmpge_epi32_mask(l4_len, all(0));

        // RFC 768: a datagram that ends before its packet does is uncommon. RFC 9293 3.1: where a
        // TCP header says that it ends, may be beyond the front of an IPv6 packet.
        let (ports, second) = (either(w[5], w[10]), either(w[6], w[11]));
        let udp = is(protocol, UDP.into());
        let udp_fits = _mm512_cmple_epi32_mask(all(8), l4_len)
            & _mm512_cmpeq_epi32_mask(be16::<0>(second), l4_len);
        let tcp = is(protocol, TCP.into());
        let header_len = _mm512_srli_epi32::<2>(_mm512_and_si512(w[8], all(0xf0)));
        let tcp_fits = _mm512_cmple_epi32_mask(all(20), header_len)
            & _mm512_cmple_epi32_mask(header_len, l4_len)
            | v6 & _mm512_cmple_epi32_mask(all(20), l4_len);
        let mut with_ports = tcp & tcp_fits | udp & udp_fits;
        let mut done = (v4 | v6) & fits & (with_ports | without_ports(protocol));
        store(l3, &mut lines.l3, first);
        store(_mm512_add_epi32(l3, l3_len), &mut lines.l4, first);
        store(end, &mut parsed.end, first);

        let mut no_checksum = udp & v4 & none_of(second, 0xffff_0000);
        for i in bits(done & v6) {
            let packet = &packets[i].data()[lines.l3[first + i] as usize..];
            let has_ports = with_ports >> i & 1 != 0;
            key6(packet, has_ports, &mut parsed.keys6[first + i].0);
            if has_ports && !upper6_fits(packet, &mut no_checksum, i) {
                done &= !(1 << i);
            }
        }
        with_ports &= done;

        let keys = &mut parsed.keys4[first..first + LANES];
        let own_ports = _mm512_maskz_mov_epi32(with_ports, ports);
        for (four, key) in keys_of([w[3], w[4], own_ports, protocol])
            .into_iter()
            .zip(keys.as_chunks_mut::<4>().0)
        {
            // SAFETY: four keys of 16 bytes each, which any bytes make.
            unsafe { _mm512_storeu_si512(key.as_mut_ptr().cast(), four) };
        }
        store(reversed(w[3]), &mut parsed.src4, first);
        store(reversed(w[4]), &mut parsed.dst4, first);
        store_tags(be16::<2>(front[3]), &mut parsed.vlan_tci, first);

        let icmp = v4 & is(protocol, ICMP.into()) | v6 & is(protocol, ICMPV6.into());
        let at = |mask: __mmask16| Mask::from(mask) << first;
        parsed.class.v4 |= at(done & v4);
        parsed.class.v6 |= at(done & v6);
        parsed.class.tcp |= at(done & tcp);
        parsed.class.udp |= at(done & udp);
        parsed.class.icmp |= at(done & icmp);
        parsed.class.vlan |= at(done & tagged);
        parsed.class.group |= at(done & !none_of(front[0], 1));
        if CHECK == NOTHING {
            return at(done);
        }

        let life = either(byte::<0>(w[2]), byte::<3>(w[1]));
        parsed.checks.expired |= at(done & _mm512_cmple_epi32_mask(life, all(1)));
        let mut header = all(0);
        for word in &w[..5] {
            header = add(header, *word);
        }
        let ip_bad = done & v4 & !sums_to_ones(header, 5);
        parsed.checks.ip_bad |= at(ip_bad);
        if CHECK == NETWORK {
            let high = _mm512_and_si512(front[1], all(0xffff));
            let ours = is(front[0], station as u32) & is(high, (station >> 32) as u32);
            parsed.class.ours |= at(done & ours);
            return at(done);
        }

        let offload = lanes(&lines.offload, first);
        let has = |flag: Offload| !none_of(offload, flag.bits().into());
        let partial = has(Offload::CSUM_PARTIAL);
        let valid = has(Offload::CSUM_VALID);
        let to_sum = with_ports & !partial & !valid;

        // Pseudo-header and layer 4: all words from the addresses on, which are the header's last;
        // length and protocol; and what lies beyond the front.
        let mut acc = add(all(0), _mm512_maskz_mov_epi32(v6, w[2]));
        acc = add(add(acc, w[3]), w[4]);
        let bits_left = _mm512_slli_epi32::<3>(_mm512_min_epu32(total, all(FRONT as i32)));
        for (n, word) in w.iter().enumerate().skip(5) {
            let from_here = _mm512_subs_epu16(bits_left, all(32 * n as i32));
            let padding = _mm512_sllv_epi32(all(-1), from_here);
            acc = add(acc, _mm512_andnot_si512(padding, *word));
        }
        acc = _mm512_add_epi32(acc, _mm512_slli_epi32::<8>(protocol));
        acc = _mm512_add_epi32(acc, be16::<0>(l4_len));
        let long = to_sum & _mm512_cmpgt_epi32_mask(end, all(FRONT as i32));
        if long != 0 {
            let mut tails = [0; LANES];
            for i in bits(long) {
                let tail = &packets[i].data()[FRONT..parsed.end[first + i] as usize];
                tails[i] = fold(sum_avx512(tail)).into();
            }
            acc = _mm512_add_epi32(acc, lanes(&tails, 0));
        }
        let right = sums_to_ones(acc, 3 + WORDS as i32 - 5) & !no_checksum;

        let good = with_ports & !partial & (valid | right);
        let bad = to_sum & !right & !(no_checksum & v4);
        parsed.checks.l4_good |= at(good);
        parsed.checks.l4_bad |= at(bad);
        parsed.checks.l4_unchecked |= at(done & !good & !bad);
        at(done)
    }

    /// Words of the network packet that the front of a frame has: the last one by half.
    const WORDS: usize = 13;

    /// The front's words from the network header on: it begins in the middle of a word, with a tag
    /// or without.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn network_words(front: &[__m512i; 16], tagged: __mmask16) -> [__m512i; WORDS] {
        const LOW_HALVES: u32 = 0x5555_5555;
        let mut halves = [all(0); WORDS + 1];
        for (n, word) in halves.iter_mut().enumerate() {
            let next = front.get(n + 4).copied().unwrap_or(all(0));
            let this = front.get(n + 3).copied().unwrap_or(all(0));
            *word = _mm512_rol_epi32::<16>(_mm512_mask_blend_epi16(LOW_HALVES, this, next));
        }
        let mut words = [all(0); WORDS];
        for (n, word) in words.iter_mut().enumerate() {
            *word = _mm512_mask_mov_epi32(halves[n], tagged, halves[n + 1]);
        }
        words
    }

    /// The key of an IPv6 packet without extension headers.
    #[inline(always)]
    fn key6(packet: &[u8], has_ports: bool, key: &mut [u8; 40]) {
        key[..32].copy_from_slice(&packet[8..40]);
        let ports = packet.get(40..44).filter(|_| has_ports);
        key[32..36].copy_from_slice(ports.unwrap_or(&[0; 4]));
        key[36..].copy_from_slice(&[packet[6], 0, 0, 0]);
    }

    /// What may lie beyond the front: whether a TCP header over IPv6 fits its packet, and whether
    /// UDP has no checksum, which becomes bit `i` of the mask.
    #[inline(always)]
    fn upper6_fits(packet: &[u8], no_checksum: &mut __mmask16, i: usize) -> bool {
        let l4_len = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        if packet[6] == UDP {
            *no_checksum |= u16::from(packet[46..48] == [0, 0]) << i;
            return true;
        }
        (20..=l4_len).contains(&(usize::from(packet[52] >> 4) * 4))
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

    /// The lower halves of the lanes.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn store_tags(lanes: __m512i, tags: &mut [u16], from: usize) {
        let tags: &mut [u16; LANES] = tags[from..].first_chunk_mut().expect("sixteen are left");
        let halves = _mm512_cvtepi32_epi16(lanes);
        // SAFETY: sixteen half words.
        unsafe { _mm256_storeu_si256(tags.as_mut_ptr().cast(), halves) }
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

    /// Each lane with its bytes the other way round.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn reversed(lanes: __m512i) -> __m512i {
        pick_bytes(lanes, 0x0001_0203)
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
