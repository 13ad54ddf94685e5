//! Every kernel against Microsoft's verification suite and against the definition, bit by bit.

use super::*;
use linerate_core::random::Random;

/// The definition: for each set bit, the 32 bits of the key that begin at its place.
fn bit_by_bit(key: &[u8], tuple: &[u8]) -> u32 {
    let key_bit = |i: usize| u32::from(key[i / 8] >> (7 - i % 8) & 1);
    let mut hash = 0;
    for bit in 0..8 * tuple.len() {
        if tuple[bit / 8] >> (7 - bit % 8) & 1 == 1 {
            hash ^= (0..32).fold(0, |window, i| window << 1 | key_bit(bit + i));
        }
    }
    hash
}

/// "Verifying the RSS Hash Calculation" (Microsoft, Windows drivers, network): destination, source,
/// hash of addresses, hash with ports.
type Vector<A> = (A, u16, A, u16, u32, u32);

const V4: &[Vector<[u8; 4]>] = &[
    (
        [161, 142, 100, 80],
        1766,
        [66, 9, 149, 187],
        2794,
        0x323e_8fc2,
        0x51cc_c178,
    ),
    (
        [65, 69, 140, 83],
        4739,
        [199, 92, 111, 2],
        14230,
        0xd718_262a,
        0xc626_b0ea,
    ),
    (
        [12, 22, 207, 184],
        38024,
        [24, 19, 198, 95],
        12898,
        0xd2d0_a5de,
        0x5c2b_394a,
    ),
    (
        [209, 142, 163, 6],
        2217,
        [38, 27, 205, 30],
        48228,
        0x8298_9176,
        0xafc7_327f,
    ),
    (
        [202, 188, 127, 2],
        1303,
        [153, 39, 163, 191],
        44251,
        0x5d18_09c5,
        0x10e8_28a2,
    ),
];

const V6: &[Vector<&str>] = &[
    (
        "3ffe:2501:200:3::1",
        1766,
        "3ffe:2501:200:1fff::7",
        2794,
        0x2cc1_8cd5,
        0x4020_7d3d,
    ),
    (
        "ff02::1",
        4739,
        "3ffe:501:8::260:97ff:fe40:efab",
        14230,
        0x0f0c_461c,
        0xdde5_1bbf,
    ),
    (
        "fe80::200:f8ff:fe21:67cf",
        38024,
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        44251,
        0x4b61_e985,
        0x02d1_feef,
    ),
];

fn levels(key: &[u8], start: u32) -> Vec<Toeplitz> {
    let levels = Isa::detect().levels().into_iter();
    levels
        .map(|isa| Toeplitz::with_start(key, start).unwrap().on(isa))
        .collect()
}

#[test]
fn microsofts_verification_suite_passes_on_every_level() {
    for rss in levels(&MICROSOFT_KEY, 0) {
        for &(dst, dst_port, src, src_port, addresses, all) in V4 {
            let flow = FlowKey4::new(src, dst, src_port, dst_port, 6);
            let mut hash = [0];
            rss.flows4(Fields::Addresses, &[flow], &mut hash);
            assert_eq!(hash[0], addresses, "{}", rss.kernel());
            rss.flows4(Fields::AddressesAndPorts, &[flow], &mut hash);
            assert_eq!((hash[0], rss.hash(&flow.0[..12])), (all, all));
        }
        for &(dst, dst_port, src, src_port, addresses, all) in V6 {
            let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
            let flow = FlowKey6::new(octets(src), octets(dst), src_port, dst_port, 6);
            let mut hash = [0];
            rss.flows6(Fields::Addresses, &[flow], &mut hash);
            assert_eq!(hash[0], addresses, "{}", rss.kernel());
            rss.flows6(Fields::AddressesAndPorts, &[flow], &mut hash);
            assert_eq!((hash[0], rss.hash(&flow.0[..36])), (all, all));
        }
    }
}

/// Bursts of every length, every shape, keys of every length that NICs have and longer.
#[test]
fn every_level_is_the_definition() {
    let mut random = Random::new(7);
    for round in 0..60 {
        let bytes = [40, 52, 64, 41, 256][round % 5];
        let key: Vec<u8> = (0..bytes).map(|_| random.bits() as u8).collect();
        let start = random.bits() as u32;
        let count = round * 2 % 71;
        let mut row = |_| std::array::from_fn::<u8, 40, _>(|_| random.bits() as u8);
        let rows: Vec<[u8; 40]> = (0..count).map(&mut row).collect();
        for rss in levels(&key, start) {
            let check = |hash: &mut dyn FnMut(&mut [u32]), len: usize| {
                let mut hashes = vec![0; count];
                hash(&mut hashes);
                for (hash, row) in hashes.iter().zip(&rows) {
                    let expected = bit_by_bit(&key, &row[..len]) ^ start;
                    assert_eq!(
                        (*hash, len),
                        (expected, len),
                        "{} round {round}",
                        rss.kernel()
                    );
                    assert_eq!(rss.hash(&row[..len]), expected);
                }
            };
            let cut = |row: &[u8; 40]| -> [u8; 16] { row[..16].try_into().unwrap() };
            let flows4: Vec<FlowKey4> = rows.iter().map(|row| FlowKey4(cut(row))).collect();
            let flows6: Vec<FlowKey6> = rows.iter().map(|row| FlowKey6(*row)).collect();
            check(&mut |out| rss.flows4(Fields::Addresses, &flows4, out), 8);
            check(
                &mut |out| rss.flows4(Fields::AddressesAndPorts, &flows4, out),
                12,
            );
            check(&mut |out| rss.flows6(Fields::Addresses, &flows6, out), 32);
            check(
                &mut |out| rss.flows6(Fields::AddressesAndPorts, &flows6, out),
                36,
            );
            check(&mut |out| rss.tuples8(&cuts(&rows), out), 8);
            check(&mut |out| rss.tuples12(&cuts(&rows), out), 12);
            check(&mut |out| rss.tuples32(&cuts(&rows), out), 32);
            check(&mut |out| rss.tuples36(&cuts(&rows), out), 36);
        }
    }
}

fn cuts<const N: usize>(rows: &[[u8; 40]]) -> Vec<[u8; N]> {
    rows.iter()
        .map(|row| row[..N].try_into().unwrap())
        .collect()
}

#[test]
fn the_symmetric_key_is_symmetric() {
    let rss = Toeplitz::new(&SYMMETRIC_KEY).unwrap();
    let flow = FlowKey4::new([10, 1, 2, 3], [172, 16, 5, 6], 40_000, 443, 6);
    let (there, back) = (rss.hash(&flow.0[..12]), rss.hash(&flow.reversed().0[..12]));
    assert_eq!(there, back);
    assert_eq!(there >> 16, there & 0xffff);
}

#[test]
fn keys_of_a_wrong_length_are_refused() {
    for bytes in [0, 16, 39, 257] {
        let error = Toeplitz::new(&vec![1; bytes]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{bytes} bytes")) && error.contains("40 to 256"),
            "{error}"
        );
    }
}

#[test]
#[should_panic(expected = "one hash for each tuple")]
fn a_short_output_is_a_bug_of_the_caller() {
    let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    rss.tuples12(&[[0; 12]; 3], &mut [0; 2]);
}
