//! Cutting, clause by clause, with etherparse and our own reassembly as oracles.
#![allow(clippy::unwrap_used)]

use etherparse::Ipv4HeaderSlice;
use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Pool, PoolConfig, Pools, SlotClass};
use linerate_tables::exact::Seed;
use proptest::prelude::*;

use super::*;
use crate::reassembly::{Config, Outcome, Reassembler};

const L3: usize = 14;

struct Fixture {
    pools: Pools,
    cache: PoolCache,
}

impl Fixture {
    fn new(slots: u32) -> Self {
        let pages = PagePolicy::Only(PageKind::Base4K);
        let small = PoolConfig {
            pages,
            ..PoolConfig::new("small", slots)
        };
        let large = PoolConfig {
            pages,
            class: SlotClass::Large,
            ..PoolConfig::new("large", 16)
        };
        let pools = Pools::new(
            [small, large]
                .map(|config| Pool::new(&config).unwrap())
                .to_vec(),
        );
        Self {
            cache: PoolCache::new(pools.as_slice()),
            pools,
        }
    }

    fn packet(&mut self, frame: &[u8]) -> Packet {
        self.cache.copy_of(frame).unwrap()
    }

    /// All fragments, as frames.
    fn run(&mut self, mut cut: Cut) -> Vec<Vec<u8>> {
        let (mut burst, mut frames) = (Burst::with_room(7), Vec::new());
        while !cut.is_done() {
            assert!(cut.fill(&mut self.cache, &mut burst));
            frames.extend(burst.iter().map(|packet| packet.data().to_vec()));
            self.cache.free(&mut burst);
        }
        frames
    }

    fn cut4(&mut self, frame: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, Uncut> {
        let packet = self.packet(frame);
        let cut = Cut::ipv4(&packet, L3, mtu).map(|cut| self.run(cut));
        assert_eq!(packet.data(), frame, "it is unchanged");
        self.cache.free_one(packet);
        cut
    }

    fn cut6(&mut self, frame: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, Uncut> {
        let packet = self.packet(frame);
        let cut = Cut::ipv6(&packet, L3, mtu, 0x0102_0304).map(|cut| self.run(cut));
        self.cache.free_one(packet);
        cut
    }

    /// Reassembles the frames.
    fn whole(&mut self, frames: &[Vec<u8>]) -> Vec<u8> {
        let config = Config {
            seed: Seed(1),
            ..Config::default()
        };
        let mut reassembler = Reassembler::new(&config).unwrap();
        for (index, frame) in frames.iter().enumerate() {
            let packet = self.packet(frame);
            match reassembler.push(packet, L3, 0, 0, &mut self.cache) {
                Outcome::Whole(packet) => {
                    assert_eq!(index + 1, frames.len());
                    let frame = packet.data().to_vec();
                    self.cache.free_one(packet);
                    return frame;
                }
                Outcome::Held => {}
                Outcome::Dropped(refusal, _) => panic!("fragment {index}: {refusal}"),
            }
        }
        panic!("{} fragments, and not whole", frames.len())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for pool in self.pools.iter() {
                let free = self.cache.held(pool) + pool.stats().free_shared as usize;
                assert_eq!(free, pool.slots() as usize, "every slot is free");
            }
        }
    }
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8) as u8).collect()
}

fn frame4(options: &[u8], cut: u16, payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x40 | (header_len / 4) as u8, 0x28]);
    frame.extend(((header_len + payload.len()) as u16).to_be_bytes());
    frame.extend([0x12, 0x34]);
    frame.extend(cut.to_be_bytes());
    frame.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(options);
    let sum = checksum::checksum(&frame[L3..]);
    frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(payload);
    frame
}

fn header(frame: &[u8]) -> Ipv4HeaderSlice<'_> {
    let header = Ipv4HeaderSlice::from_slice(&frame[L3..]).unwrap();
    let right = header.to_header().calc_header_checksum();
    assert_eq!(header.header_checksum(), right);
    assert_eq!(usize::from(header.total_len()), frame.len() - L3);
    header
}

/// Offset in bytes, length of the payload, more fragments.
fn shape(frame: &[u8]) -> (usize, usize, bool) {
    let header = header(frame);
    let offset = usize::from(header.fragments_offset().value()) * 8;
    let len = frame.len() - L3 - header.slice().len();
    (offset, len, header.more_fragments())
}

#[test]
fn rfc_791_3_2_fragments_are_multiples_of_8_and_the_last_has_no_more() {
    let mut fixture = Fixture::new(64);
    let frame = frame4(&[], 0, &payload(100));
    let frames = fixture.cut4(&frame, 20 + 47).unwrap();
    let shapes: Vec<_> = frames.iter().map(|frame| shape(frame)).collect();
    assert_eq!(shapes, [(0, 40, true), (40, 40, true), (80, 20, false)]);
    for fragment in &frames {
        let header = header(fragment);
        assert_eq!((header.identification(), header.ttl()), (0x1234, 64));
        assert_eq!(fragment[..L3], frame[..L3]);
    }
    assert_eq!(fixture.whole(&frames), frame);
    let fitting = fixture.cut4(&frame, 120).unwrap();
    assert_eq!(fitting, [frame], "what fits is one");
    let empty = frame4(&[], 0, &[]);
    assert_eq!(
        fixture.cut4(&empty, 68).unwrap(),
        [empty],
        "a header alone too"
    );
}

#[test]
fn rfc_791_3_2_a_fragment_is_cut_as_part_of_its_datagram() {
    let mut fixture = Fixture::new(64);
    let shapes =
        |frames: Vec<Vec<u8>>| -> Vec<_> { frames.iter().map(|frame| shape(frame)).collect() };
    // From byte 800 on, more to come: the last of its fragments says so.
    let frames = fixture
        .cut4(&frame4(&[], 0x2000 | 100, &payload(64)), 60)
        .unwrap();
    assert_eq!(shapes(frames), [(800, 40, true), (840, 24, true)]);
    let frames = fixture.cut4(&frame4(&[], 100, &payload(63)), 60).unwrap();
    assert_eq!(shapes(frames), [(800, 40, true), (840, 23, false)]);
}

#[test]
fn rfc_791_3_1_options_with_the_copied_flag_are_in_every_fragment() {
    let mut fixture = Fixture::new(64);
    // No-operation, record route, router alert (copied), timestamp, end.
    let record = [7, 7, 4, 0, 0, 0, 0];
    let alert = [148, 4, 0, 0];
    let options = [&[1][..], &record, &alert, &[68, 4, 5, 0], &[0; 4]].concat();
    let frame = frame4(&options, 0, &payload(100));
    let frames = fixture.cut4(&frame, 80).unwrap();
    let headers: Vec<_> = frames.iter().map(|frame| header(frame)).collect();
    assert_eq!(headers[0].options(), options);
    assert!(headers[1..].iter().all(|header| header.options() == alert));
    // Later fragments have shorter headers, hence more payload.
    let shapes: Vec<_> = frames.iter().map(|frame| shape(frame)).collect();
    assert_eq!(shapes, [(0, 40, true), (40, 56, true), (96, 4, false)]);
    assert_eq!(fixture.whole(&frames), frame);
    for broken in [[7, 0, 0, 0], [7, 1, 0, 0], [7, 5, 0, 0], [1, 1, 1, 7]] {
        let frame = frame4(&broken, 0, &payload(100));
        assert_eq!(
            fixture.cut4(&frame, 80),
            Err(Uncut::Malformed),
            "{broken:?}"
        );
    }
}

#[test]
fn rfc_1812_5_2_6_dont_fragment_is_obeyed() {
    let mut fixture = Fixture::new(64);
    let frame = frame4(&[], 0x4000, &payload(100));
    assert_eq!(fixture.cut4(&frame, 80), Err(Uncut::DontFragment));
}

#[test]
fn rfc_791_3_2_an_mtu_of_68_always_does() {
    let mut fixture = Fixture::new(64);
    let frame = frame4(&[1; 40], 0, &payload(100));
    assert_eq!(fixture.cut4(&frame, 68).unwrap().len(), 3);
    assert_eq!(fixture.cut4(&frame, 67), Err(Uncut::Mtu { mtu: 67 }));
    let beyond = frame4(&[], 8191, &payload(100));
    assert_eq!(fixture.cut4(&beyond, 68), Err(Uncut::Malformed));
}

#[test]
fn a_pool_that_runs_dry_stops_it_and_nothing_is_lost() {
    let mut fixture = Fixture::new(10);
    let frame = frame4(&[], 0, &payload(10_000));
    let packet = fixture.packet(&frame);
    let mut cut = Cut::ipv4(&packet, L3, 576).unwrap();
    let mut frames = Vec::new();
    let mut burst = Burst::new();
    while !cut.is_done() {
        let is_enough = cut.fill(&mut fixture.cache, &mut burst);
        assert!(is_enough || burst.len() == 10);
        frames.extend(burst.iter().map(|packet| packet.data().to_vec()));
        fixture.cache.free(&mut burst);
    }
    fixture.cache.free_one(packet);
    assert_eq!(fixture.whole(&frames), frame);
}

/// An IPv6 packet with hop-by-hop, destination and routing headers, or none.
fn frame6(with_extensions: bool, payload: &[u8]) -> Vec<u8> {
    let extensions: &[u8] = match with_extensions {
        true => &[
            60, 0, 5, 2, 0, 0, 1, 0, // hop-by-hop, then destination options
            43, 0, 1, 4, 0, 0, 0, 0, // then routing
            60, 0, 253, 0, 0, 0, 0, 0, // then destination options for the end
            17, 0, 1, 4, 0, 0, 0, 0,
        ],
        false => &[],
    };
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(((extensions.len() + payload.len()) as u16).to_be_bytes());
    frame.extend([if with_extensions { 0 } else { 17 }, 64]);
    frame.extend([[0xfd; 16], [0xfe; 16]].concat());
    frame.extend(extensions);
    frame.extend(payload);
    frame
}

#[test]
fn rfc_8200_4_5_headers_up_to_the_routing_header_are_in_every_fragment() {
    let mut fixture = Fixture::new(64);
    for with_extensions in [false, true] {
        let frame = frame6(with_extensions, &payload(2000));
        let frames = fixture.cut6(&frame, 1280).unwrap();
        assert_eq!(frames.len(), 2);
        let repeated = if with_extensions { 64 } else { 40 };
        for fragment in &frames {
            let (headers, rest) = fragment[L3..].split_at(repeated);
            assert!(fragment.len() <= L3 + 1280);
            assert_eq!(headers[8..40], frame[L3 + 8..L3 + 40]);
            let named = if with_extensions {
                headers[56]
            } else {
                headers[6]
            };
            assert_eq!(named, 44);
            assert_eq!(rest[0], if with_extensions { 60 } else { 17 });
            assert_eq!(rest[4..8], [1, 2, 3, 4]);
        }
        assert_eq!(fixture.whole(&frames), frame);
        assert_eq!(fixture.cut6(&frames[0], 1000), Err(Uncut::DontFragment));
    }
}

proptest! {
    #[test]
    fn cut_and_cut_again_makes_the_same_datagram(
        len in 1..65_000_usize,
        (mtu, smaller) in (100..9000_usize).prop_flat_map(|mtu| (Just(mtu), 68..mtu)),
        words in 0..10_usize,
    ) {
        // Out of order, fewer fragments than the reassembler allows gaps; in order, any number.
        let mut fixture = Fixture::new(256);
        let frame = frame4(&[1; 40][..words * 4], 0, &payload(len));
        let mut twice = Vec::new();
        for fragment in fixture.cut4(&frame, mtu).unwrap() {
            prop_assert!(fragment.len() <= L3 + mtu);
            twice.extend(fixture.cut4(&fragment, smaller).unwrap());
        }
        prop_assert!(twice.iter().all(|fragment| fragment.len() <= L3 + smaller));
        prop_assert!(twice.iter().all(|fragment| header(fragment).slice().len() >= 20));
        if twice.len() > 1 {
            prop_assert_eq!(fixture.whole(&twice), frame);
        }
    }

    #[test]
    fn ipv6_cut_makes_the_same_packet(len in 8..60_000_usize, mtu in 200..9000_usize, with: bool) {
        let mut fixture = Fixture::new(64);
        let frame = frame6(with, &payload(len));
        let frames = fixture.cut6(&frame, mtu).unwrap();
        prop_assert!(frames.iter().all(|fragment| fragment.len() <= L3 + mtu));
        prop_assert_eq!(fixture.whole(&frames), frame);
    }

    #[test]
    fn any_bytes_are_taken_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200),
        mtu in 0..200_usize) {
        let mut fixture = Fixture::new(64);
        let _ = fixture.cut4(&bytes, mtu);
        let _ = fixture.cut6(&bytes, mtu);
        for first in [0x45, 0x4f, 0x60] {
            let mut frame = bytes.clone();
            if let Some(byte) = frame.get_mut(L3) {
                *byte = first;
            }
            let _ = fixture.cut4(&frame, mtu);
            let _ = fixture.cut6(&frame, mtu);
        }
    }
}
