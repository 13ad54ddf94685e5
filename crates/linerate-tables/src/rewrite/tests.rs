//! Held against the wire crate's own decrement, over every checksum and life, and against plain
//! loops.

use super::*;
use crate::parse::{Parsed, Parser};
use linerate_core::packet::{Pool, PoolCache, PoolConfig};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::set_macs;
use proptest::prelude::*;

const MACS: Macs = Macs::new(MacAddr([1, 2, 3, 4, 5, 6]), MacAddr([7, 8, 9, 10, 11, 12]));

struct Bench {
    pool: Pool,
    cache: PoolCache,
}

impl Bench {
    fn new() -> Self {
        let pool = Pool::new(&PoolConfig::new("rewrite", 128)).unwrap();
        let cache = PoolCache::new(std::slice::from_ref(&pool));
        Self { pool, cache }
    }

    fn burst(&mut self, frames: &[Vec<u8>]) -> Burst {
        let mut burst = Burst::new();
        let count = self.cache.fill(&self.pool, &mut burst, frames.len());
        assert_eq!(count, frames.len());
        for (packet, frame) in burst.iter_mut().zip(frames) {
            assert!(packet.set_data(frame));
        }
        burst
    }
}

/// A sound frame: IPv4 or IPv6 of this life, perhaps with a tag; `seed` goes into the rest.
fn frame(v6: bool, tagged: bool, life: u8, seed: u64) -> Vec<u8> {
    let bytes = seed.to_le_bytes();
    let mut frame = vec![2; 12];
    if tagged {
        frame.extend([0x81, 0, bytes[0], bytes[1]]);
    }
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 59, life]);
        frame.extend(bytes.repeat(4));
        frame.extend([0; 8]);
    } else {
        let l3 = frame.len() + 2;
        frame.extend([8, 0, 0x45, bytes[0], 0, 28, bytes[1], bytes[2], 0x40, 0]);
        frame.extend([life, 253, 0, 0]);
        frame.extend(bytes);
        frame.extend([0; 8]);
        Ipv4::new_checked(&mut frame[l3..]).unwrap().fill_checksum();
    }
    frame
}

/// The same by the wire crate.
fn expected(frame: &[u8], macs: &Macs) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let headers = linerate_wire::parse(&frame).unwrap();
    let packet = &mut frame[headers.l3..];
    let lived = match packet[0] >> 4 {
        4 => Ipv4::new_checked(packet).unwrap().decrement_ttl(),
        _ => Ipv6::new_checked(packet).unwrap().decrement_hop_limit(),
    };
    assert!(lived);
    assert!(set_macs(&mut frame, macs.dst(), macs.src()));
    frame
}

#[test]
fn rfc1624_every_checksum_and_every_life() {
    for life in 1..=255_u32 {
        for checksum in 0..=0xffff_u32 {
            let old = life | 17 << 8 | checksum << 16;
            let bytes = decrement_ttl4(old).to_le_bytes();
            let m = (life << 8 | 17) as u16;
            let check =
                linerate_wire::checksum::update16((checksum as u16).swap_bytes(), m, m - 0x100);
            let [high, low] = check.to_be_bytes();
            assert_eq!(bytes, [life as u8 - 1, 17, high, low], "{old:#x}");
        }
    }
}

#[test]
fn a_packet_alone_lives_one_less_unless_it_is_its_last() {
    let mut bench = Bench::new();
    let parser = Parser::new(Isa::detect());
    for v6 in [false, true] {
        let frames: Vec<_> = [0, 1, 2].map(|life| frame(v6, false, life, 5)).into();
        let mut burst = bench.burst(&frames);
        parser.parse(&mut burst, &mut Parsed::new());
        let lived: Vec<_> = burst
            .iter_mut()
            .map(|packet| decrement_ttl(packet, v6))
            .collect();
        assert_eq!(lived, [false, false, true]);
        let after: Vec<_> = burst.iter().map(|packet| packet.data().to_vec()).collect();
        assert_eq!(after[..2], frames[..2]);
        let nothing_else = Macs::new(MacAddr([2; 6]), MacAddr([2; 6]));
        assert_eq!(after[2], expected(&frames[2], &nothing_else));
        bench.cache.free(&mut burst);
    }
}

#[test]
fn what_was_not_parsed_or_is_too_short_is_no_panic() {
    let mut bench = Bench::new();
    let mut burst = bench.burst(&[vec![0; 14], vec![], vec![9; 11]]);
    burst
        .iter_mut()
        .for_each(|packet| packet.meta_mut().l3_offset = 250);
    forward(&mut burst, 0b111, 0b010, |_| &MACS);
    let front = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0];
    assert_eq!(burst.as_packets()[0].data(), front);
    assert_eq!(burst.as_packets()[2].data(), [9; 11]);
    bench.cache.free(&mut burst);
}

proptest! {
    #[test]
    fn bursts_become_what_the_wire_crate_makes_of_each(
        shapes in prop::collection::vec((any::<bool>(), any::<bool>(), any::<u8>(), any::<u64>()),
            0..=64),
        only_v4: bool,
        skipped: u64,
    ) {
        let mut bench = Bench::new();
        let frames: Vec<_> = shapes
            .iter()
            .map(|&(v6, tagged, life, seed)| frame(v6 && !only_v4, tagged, life, seed))
            .collect();
        for level in Isa::detect().levels() {
            let mut burst = bench.burst(&frames);
            let mut parsed = Parsed::new();
            Parser::new(level).parse_network(&mut burst, &mut parsed);
            prop_assert_eq!(parsed.checks.ip_bad, 0);
            let fit = !parsed.checks.expired & !skipped;
            let macs: Vec<_> = (0..64).map(|at| Macs::new(MacAddr([at; 6]),
                MacAddr::local(at))).collect();
            forward(&mut burst, parsed.class.v4 & fit, parsed.class.v6 & fit, |at| &macs[at]);
            for (at, (packet, frame)) in burst.iter().zip(&frames).enumerate() {
                let touched = fit >> at & 1 != 0;
                prop_assert_eq!(touched, skipped >> at & 1 == 0 && shapes[at].2 > 1);
                match touched {
                    true => prop_assert_eq!(packet.data(), &expected(frame, &macs[at])[..]),
                    false => prop_assert_eq!(packet.data(), &frame[..]),
                }
            }
            bench.cache.free(&mut burst);
        }
    }

    #[test]
    fn a_burst_is_scattered_as_by_a_loop(values: [u8; 64], kinds in 1..6_u8, len in 0..=64_usize,
        mask: u64) {
        let mut bench = Bench::new();
        let frames: Vec<_> = (0..len as u8).map(|at| vec![at; 20]).collect();
        // Sometimes all packets.
        let mask = if values[0] & 1 == 0 { mask } else { u64::MAX };
        let numbers = values.map(|value| u32::from(value % kinds));
        for level in Isa::detect().levels() {
            let scatter = Scatter::new(level);
            for value in 0..u32::from(kinds) {
                let plain = (0..64).fold(0, |mask,
                    at| mask | u64::from(numbers[at] == value) << at);
                prop_assert_eq!(scatter.equal(&numbers, value), plain);
            }
            let mut burst = bench.burst(&frames);
            (burst.now, burst.port) = (7, 3);
            let mut groups: Vec<(u32, Vec<u8>)> = Vec::new();
            scatter.by_value(&mut burst, mask, &numbers, |value, packets| {
                assert_eq!((packets.now, packets.port), (7, 3));
                groups.push((value, packets.iter().map(|packet| packet.data()[0]).collect()));
                bench.cache.free(packets);
            });
            let mut plain: Vec<(u32, Vec<u8>)> = Vec::new();
            let mut stay = Vec::new();
            for (at, &number) in (0..).zip(&numbers[..len]) {
                if mask >> at & 1 == 0 {
                    stay.push(at);
                    continue;
                }
                match plain.iter_mut().find(|(value, _)| *value == number) {
                    Some((_, group)) => group.push(at),
                    None => plain.push((number, vec![at])),
                }
            }
            prop_assert_eq!(groups, plain);
            let left: Vec<u8> = burst.iter().map(|packet| packet.data()[0]).collect();
            prop_assert_eq!(left, stay);
            bench.cache.free(&mut burst);
        }
    }
}
