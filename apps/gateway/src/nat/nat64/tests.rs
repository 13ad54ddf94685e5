//! Headers against packets of the other version that another implementation built.

use super::*;
use crate::nat::Endpoint;
use crate::nat::testing::{Like, error, frame, sound, tuple, tuple_of};
use linerate_wire::protocol::{ICMP, ICMPV6, TCP, UDP};
use linerate_wire::{checksum, parse};
use proptest::prelude::*;

const PREFIX: &str = "64:ff9b::/96";

fn prefix(text: &str) -> Prefix64 {
    Prefix64::new(text.parse().unwrap()).unwrap()
}

/// The frame with its front.
fn spliced(frame: &[u8], front: &Front) -> Vec<u8> {
    let mut out = frame[..12].to_vec();
    out.extend(front.ethertype.0.to_be_bytes());
    out.extend(front.bytes());
    out.extend(&frame[14 + front.replaced..front.end]);
    out
}

fn to4(packet: &[u8], to: &Tuple, mtu: u16) -> Result<Vec<u8>, Untranslatable> {
    let (mut packet, headers) = (packet.to_vec(), parse(packet).unwrap());
    let front = six_to_four(&mut packet, &headers, to, 0x1234, mtu, false)?;
    Ok(spliced(&packet, &front))
}

fn to6(packet: &[u8], to: &Tuple, mtu: u16) -> Result<Vec<u8>, Untranslatable> {
    let (mut packet, headers) = (packet.to_vec(), parse(packet).unwrap());
    let front = four_to_six(&mut packet, &headers, to, &prefix(PREFIX), mtu, false)?;
    Ok(spliced(&packet, &front))
}

/// A flow on its IPv6 side, and on its IPv4 side.
fn flow(protocol: u8) -> (Tuple, Tuple) {
    let (kind6, kind4, number) = match protocol {
        ICMP => (128, 8, ICMPV6),
        other => (80, 80, other),
    };
    let six = format!("[64:ff9b::192.0.2.1]:{kind6}");
    (
        tuple("[2001:db8::1]:4000", &six, number),
        tuple("198.51.100.1:1024", &format!("192.0.2.1:{kind4}"), protocol),
    )
}

#[test]
fn rfc_6052_2_4_the_examples_of_its_table() {
    for (prefix64, address) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100:0"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
    ] {
        let (prefix, v4) = (prefix(prefix64), Ipv4Addr::new(192, 0, 2, 33));
        let v6: Ipv6Addr = address.parse().unwrap();
        assert_eq!(prefix.embed(v4), v6, "{prefix64}");
        assert_eq!(prefix.extract(v6.into()), Some(v4));
        assert_eq!(prefix.extract("2002::1".parse().unwrap()), None);
    }
    assert_eq!(Prefix64::well_known(), prefix(PREFIX));
    assert_eq!(Prefix64::new("2001:db8::/33".parse().unwrap()), None);
    assert_eq!(
        Prefix64::new("2001:db8:0:0:100::/96".parse().unwrap()),
        None
    );
}

#[test]
fn rfc_7915_4_1_and_5_1_a_packet_becomes_what_would_have_been_built() {
    for protocol in [TCP, UDP, ICMP] {
        let (six, four) = flow(protocol);
        let (packet6, packet4) = (
            frame(&six, b"some payload", Like::default()),
            frame(&four, b"some payload", Like::default()),
        );
        assert_eq!(
            to4(&packet6, &four, 1500).unwrap(),
            packet4,
            "protocol {protocol}"
        );
        assert_eq!(
            to6(&packet4, &six, 1500).unwrap(),
            packet6,
            "protocol {protocol}"
        );
        // Extension headers are left out, options too.
        let like = Like {
            options: 2,
            ..Like::default()
        };
        let packet = frame(&six, b"some payload", like);
        assert_eq!(to4(&packet, &four, 1500).unwrap(), packet4);
        let packet = frame(&four, b"some payload", like);
        assert_eq!(to6(&packet, &six, 1500).unwrap(), packet6);
    }
}

#[test]
fn rfc_7915_4_1_and_5_1_class_and_hop_limit_are_kept_and_df_depends_on_the_length() {
    let (six, four) = flow(UDP);
    let mut packet = frame(&six, &[0; 1232], Like::default());
    (packet[14], packet[15], packet[21]) = (0x6b, 0x80, 9); // EF, hop limit 9
    let short = to4(&packet, &four, 1500).unwrap();
    sound(&short);
    assert_eq!((short[15], short[22]), (0xb8, 9));
    assert_eq!(short[18..22], [0x12, 0x34, 0, 0]);
    let back = to6(&short, &six, 1500).unwrap();
    assert_eq!(back, packet);
    let long = to4(&frame(&six, &[0; 1233], Like::default()), &four, 1500).unwrap();
    assert_eq!(long[18..22], [0, 0, 0x40, 0]);
}

#[test]
fn rfc_7915_4_5_udp_without_checksum_gets_one() {
    let (six, four) = flow(UDP);
    let mut packet = frame(&four, b"odd", Like::default());
    packet[40..42].fill(0);
    assert_eq!(
        to6(&packet, &six, 1500).unwrap(),
        frame(&six, b"odd", Like::default())
    );
    packet[20] = 0x20; // a first fragment
    assert_eq!(to6(&packet, &six, 1500), Err(Untranslatable::Fragment));
}

#[test]
fn rfc_7915_4_1_and_5_1_a_first_fragment_keeps_its_fields() {
    let (six, four) = flow(TCP);
    let mut packet = frame(&four, &[7; 44], Like::default());
    packet[20] = 0x20;
    let header = &mut packet[14..34];
    header[10..12].fill(0);
    let sum = checksum::checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let out = to6(&packet, &six, 1500).unwrap();
    assert_eq!(
        (out[20], &out[54..62]),
        (44, &[6, 0, 0, 1, 0, 0, 0x12, 0x34][..])
    );
    assert_eq!(to4(&out, &four, 1500).unwrap(), packet);
    packet[21] = 9;
    assert_eq!(to6(&packet, &six, 1500), Err(Untranslatable::Fragment));
}

#[test]
fn rfc_7915_a_route_ahead_is_not_translated() {
    let (six, four) = flow(TCP);
    let like = Like {
        options: 1,
        ..Like::default()
    };
    let mut packet = frame(&four, b"", like);
    packet[34..38].copy_from_slice(&[131, 4, 4, 0]);
    assert_eq!(to6(&packet, &six, 1500), Err(Untranslatable::Routed));
    packet[34..38].copy_from_slice(&[131, 3, 4, 0]); // expired
    assert!(to6(&packet, &six, 1500).is_ok());
    let mut packet = frame(&six, b"", like);
    packet[20] = 43;
    (packet[56], packet[57]) = (0, 1);
    assert_eq!(to4(&packet, &four, 1500), Err(Untranslatable::Routed));
    packet[57] = 0;
    assert!(to4(&packet, &four, 1500).is_ok());
}

/// An error of IPv4 about a flow's packet, and what it becomes, both from the same router.
fn error_from_4(protocol: u8, kind: [u8; 2], word: [u8; 4], len: usize) -> (Vec<u8>, Tuple) {
    let (six, four) = flow(protocol);
    let sent = frame(&four, &[9; 100], Like::default());
    let router = "203.0.113.5".parse().unwrap();
    let mut packet = error(router, four.src.address, kind[0], &sent, len);
    packet[35] = kind[1];
    packet[38..42].copy_from_slice(&word);
    packet[36..38].fill(0);
    let sum = checksum::checksum(&packet[34..]);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    (packet, six.reversed())
}

#[test]
fn rfc_7915_4_2_errors_and_their_quotes_become_those_of_icmpv6() {
    for protocol in [TCP, UDP, ICMP] {
        for (kind, word, expected) in [
            ([3, 0], [0; 4], Some(([1, 0], 0_u32))),
            ([3, 1], [0; 4], Some(([1, 0], 0))),
            ([3, 2], [0; 4], Some(([4, 1], 6))),
            ([3, 3], [0; 4], Some(([1, 4], 0))),
            ([3, 4], [0, 0, 5, 0xaa], Some(([2, 0], 1470))),
            ([3, 4], [0, 0, 2, 0], Some(([2, 0], 1280))),
            ([3, 4], [0, 0, 0, 0], Some(([2, 0], 1280))),
            ([3, 4], [0, 0, 0xff, 0xff], Some(([2, 0], 1500))),
            ([3, 10], [0; 4], Some(([1, 1], 0))),
            ([3, 13], [0; 4], Some(([1, 1], 0))),
            ([3, 14], [0; 4], None),
            ([11, 0], [0; 4], Some(([3, 0], 0))),
            ([12, 0], [9, 0, 0, 0], Some(([4, 0], 6))),
            ([12, 0], [6, 0, 0, 0], None),
            ([12, 1], [0; 4], None),
            ([4, 0], [0; 4], None),
            ([5, 1], [0; 4], None),
        ] {
            let (packet, to) = error_from_4(protocol, kind, word, 60);
            let out = to6(&packet, &to, 1500);
            let Some((kind, word)) = expected else {
                assert_eq!(out, Err(Untranslatable::Icmp));
                continue;
            };
            let out = out.unwrap();
            sound(&out);
            assert_eq!((out[54], out[55]), (kind[0], kind[1]));
            assert_eq!(out[58..62], word.to_be_bytes());
            // From the router behind the prefix, to the IPv6 host, about its own packet.
            let (six, _) = flow(protocol);
            let from: Ipv6Addr = "64:ff9b::203.0.113.5".parse().unwrap();
            let tuple = tuple_of(&out);
            assert_eq!(
                (tuple.src.address, tuple.dst.address),
                (from.into(), six.src.address)
            );
            let original = frame(&six, &[9; 100], Like::default());
            assert_eq!(out[62..], original[14..14 + 60 + 20]);
        }
    }
}

#[test]
fn rfc_7915_5_2_errors_and_their_quotes_become_those_of_icmp() {
    for protocol in [TCP, UDP, ICMP] {
        for (kind, word, expected) in [
            ([1, 0], 0_u32, Some(([3, 1], [0, 0, 0, 0]))),
            ([1, 1], 0, Some(([3, 10], [0; 4]))),
            ([1, 4], 0, Some(([3, 3], [0; 4]))),
            ([1, 5], 0, None),
            ([2, 0], 1400, Some(([3, 4], [0, 0, 5, 100]))),
            ([2, 0], 9000, Some(([3, 4], [0, 0, 5, 220]))),
            ([3, 1], 0, Some(([11, 1], [0; 4]))),
            ([4, 0], 7, Some(([12, 0], [8, 0, 0, 0]))),
            ([4, 0], 2, None),
            ([4, 1], 40, Some(([3, 2], [0; 4]))),
            ([4, 2], 40, None),
        ] {
            let (six, four) = flow(protocol);
            // The answer of the IPv4 host reached a router inside, which says so.
            let sent = frame(&six.reversed(), &[9; 100], Like::default());
            let router = "2001:db8::fe".parse().unwrap();
            let mut packet = error(router, six.dst.address, kind[0], &sent, 80);
            packet[55] = kind[1];
            packet[56..58].fill(0);
            packet[58..62].copy_from_slice(&word.to_be_bytes());
            let headers = parse(&packet).unwrap();
            let covered = headers.covered(&packet).unwrap();
            let sum = !checksum::add(covered.pseudo, checksum::sum(covered.bytes));
            packet[56..58].copy_from_slice(&sum.to_be_bytes());
            let out = to4(&packet, &four, 1500);
            let Some((kind, word)) = expected else {
                assert_eq!(out, Err(Untranslatable::Icmp));
                continue;
            };
            let out = out.unwrap();
            sound(&out);
            assert_eq!(
                (out[34], out[35], &out[38..42]),
                (kind[0], kind[1], &word[..])
            );
            let tuple = tuple_of(&out);
            assert_eq!(tuple.src.address, four.src.address);
            assert_eq!(tuple.dst.address, four.dst.address);
            // Of the quoted header only the identification is not known any more.
            let mut original = frame(&four.reversed(), &[9; 100], Like::default());
            original[18..20].fill(0);
            original[24..26].fill(0);
            let sum = checksum::checksum(&original[14..34]);
            original[24..26].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(out[42..], original[14..14 + 60]);
        }
    }
}

#[test]
fn rfc_4443_2_4_c_no_error_is_longer_than_1280_bytes_and_wrong_ones_are_refused() {
    let (six, four) = flow(UDP);
    let sent = frame(&four, &[9; 1400], Like::default());
    let router = "203.0.113.5".parse().unwrap();
    let mut packet = error(router, four.src.address, 3, &sent, 1428);
    let out = to6(&packet, &six.reversed(), 1500).unwrap();
    sound(&out);
    assert_eq!(out.len(), 14 + 1280);
    packet[100] ^= 1;
    assert_eq!(
        to6(&packet, &six.reversed(), 1500),
        Err(Untranslatable::Malformed)
    );
}

#[test]
fn a_packet_of_a_pool_gets_its_front() {
    use linerate_core::packet::{Pool, PoolCache, PoolConfig};
    let mut cache = PoolCache::new(&[Pool::new(&PoolConfig::new("rx", 64)).unwrap()]);
    let (six, four) = flow(TCP);
    let (packet6, packet4) = (
        frame(&six, b"payload", Like::default()),
        frame(&four, b"payload", Like::default()),
    );
    let mut packet = cache.copy_of(&packet6).unwrap();
    let headers = parse(packet.data()).unwrap();
    let front = six_to_four(packet.data_mut(), &headers, &four, 0x1234, 1500, false).unwrap();
    assert!(front.put(&mut packet, headers.l3));
    assert_eq!(packet.data(), packet4);
    let headers = parse(packet.data()).unwrap();
    let prefix = prefix(PREFIX);
    let front = four_to_six(packet.data_mut(), &headers, &six, &prefix, 1500, false).unwrap();
    assert!(front.put(&mut packet, headers.l3));
    assert_eq!(packet.data(), packet6);
    assert!(!front.put(&mut packet, 70));
}

proptest! {
    #[test]
    fn translation_and_its_reverse_are_the_identity(src: [u8; 16], ports: (u16, u16),
        four_src: [u8; 4], server: [u8; 4], kind in 0usize..3, payload: Vec<u8>) {
        let protocol = [TCP, UDP, ICMP][kind];
        let (mut six, mut four) = flow(protocol);
        six.src = Endpoint::new(src, ports.0);
        four.src = Endpoint::new(four_src, ports.1);
        let server = Ipv4Addr::from(server);
        (six.dst.address, four.dst.address) =
            (prefix(PREFIX).embed(server).into(), server.into());
        let packet = frame(&six, &payload, Like::default());
        let out = to4(&packet, &four, 1500).unwrap();
        sound(&out);
        prop_assert_eq!(tuple_of(&out), four);
        prop_assert_eq!(to6(&out, &six, 1500).unwrap(), packet);
    }

    #[test]
    fn any_bytes_are_translated_within_their_bounds(mut bytes in prop::collection::vec(
        any::<u8>(), 54..220), is_v6: bool, number in 0usize..4, kind: u8, next: u8) {
        let protocol = [1, 6, 17, 58][number];
        bytes[12..14].copy_from_slice(if is_v6 { &[0x86, 0xdd] } else { &[8, 0] });
        let len = bytes.len() as u16 - 14;
        if is_v6 {
            bytes[14] = 0x60;
            bytes[18..20].copy_from_slice(&(len - 40).to_be_bytes());
            bytes[20] = if next < 50 { next } else { protocol };
        } else {
            bytes[14] = 0x45;
            bytes[16..18].copy_from_slice(&len.to_be_bytes());
            (bytes[20], bytes[21], bytes[23]) = (0, 0, protocol);
            bytes[34] = kind % 16;
        }
        if let Ok(headers) = parse(&bytes) {
            let (six, four) = flow(UDP);
            let front = match is_v6 {
                true => six_to_four(&mut bytes, &headers, &four, 7, 1500, false),
                false => four_to_six(&mut bytes, &headers, &six, &prefix(PREFIX), 1500, false),
            };
            if let Ok(front) = front {
                let out = spliced(&bytes, &front);
                prop_assert!(front.bytes().len() <= 104 && out.len() <= bytes.len() + 48);
                prop_assert!(parse(&out).is_ok_and(|out| out.ethertype != headers.ethertype));
            }
        }
    }
}

#[test]
fn ranges_of_ipv4_are_prefixes_of_ipv6() {
    let mut random = linerate_core::random::Random::new(3);
    for text in [
        "64:ff9b::/96",
        "2001:db8::/32",
        "2001:db8:100::/40",
        "2001:db8::/64",
    ] {
        let prefix = Prefix64::new(text.parse().unwrap()).unwrap();
        for _ in 0..100 {
            let first = random.bits() as u32;
            let last = first.saturating_add(random.bits() as u32 & 0xff);
            let blocks: Vec<Prefix6> = prefix.blocks(first, last).collect();
            assert!(blocks.len() <= 16, "{blocks:?}");
            let has = |address: u32| {
                let v6 = prefix.embed(address.into());
                blocks
                    .iter()
                    .filter(|block| block.contains(v6.into()))
                    .count()
            };
            assert!((first..=last).all(|address| has(address) == 1));
            assert!(first == 0 || has(first - 1) == 0);
            assert!(last == u32::MAX || has(last + 1) == 0);
        }
    }
    let all: Vec<Prefix6> = Prefix64::well_known().blocks(0, u32::MAX).collect();
    assert_eq!(all, [Prefix64::well_known().prefix()]);
}
