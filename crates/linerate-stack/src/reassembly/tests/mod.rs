//! Common parts of tests: a reassembler with its pools, frames made byte by byte, and the
//! accounting.
#![allow(clippy::unwrap_used)]

mod flood;
mod model;
mod rfc4;
mod rfc6;

use std::collections::BTreeMap;

use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_tables::exact::Seed;
use linerate_wire::checksum;

use super::{Config, Outcome, Reassembler, Refusal};

const SMALL_SLOTS: u32 = 2048;
const LARGE_SLOTS: u32 = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// Ethernet.
const L3: usize = 14;

/// A reassembler, and the pools of its packets.
struct Fixture {
    pools: Pools,
    cache: PoolCache,
    reassembler: Reassembler,
    now_ns: u64,
    vrf: u32,
}

/// An outcome, its packet already freed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Held,
    Whole(Vec<u8>),
    Dropped(Refusal),
}

impl Fixture {
    fn new() -> Self {
        Self::with(&Config {
            seed: Seed(7),
            ..Config::default()
        })
    }

    /// A small one that is quickly made, for tests of hundreds of cases.
    fn few() -> Self {
        let config = Config {
            max_datagrams: 8,
            seed: Seed(7),
            ..Config::default()
        };
        Self::sized(&config, 16, 2)
    }

    fn with(config: &Config) -> Self {
        Self::sized(config, SMALL_SLOTS, LARGE_SLOTS)
    }

    fn sized(config: &Config, small: u32, large: u32) -> Self {
        // Plain pages: many tests in parallel must not use up the machine's huge pages.
        let pages = PagePolicy::Only(PageKind::Base4K);
        let small = PoolConfig {
            pages,
            ..PoolConfig::new("small", small)
        };
        let large = PoolConfig {
            pages,
            class: SlotClass::Large,
            ..PoolConfig::new("large", large)
        };
        let pools = [small, large].map(|config| Pool::new(&config).unwrap());
        let pools = Pools::new(pools.to_vec());
        Self {
            cache: PoolCache::new(pools.as_slice()),
            pools,
            reassembler: Reassembler::new(config).unwrap(),
            now_ns: SECOND_NS,
            vrf: 0,
        }
    }

    fn packet(&mut self, frame: &[u8]) -> Packet {
        self.cache.copy_of(frame).unwrap()
    }

    fn give(&mut self, packet: Packet) -> Outcome {
        self.reassembler
            .push(packet, L3, self.vrf, self.now_ns, &mut self.cache)
    }

    fn push(&mut self, frame: &[u8]) -> Seen {
        let packet = self.packet(frame);
        match self.give(packet) {
            Outcome::Held => Seen::Held,
            Outcome::Whole(packet) => {
                let frame = packet.data().to_vec();
                assert_eq!(usize::from(packet.meta().l3_offset), L3);
                self.cache.free_one(packet);
                Seen::Whole(frame)
            }
            Outcome::Dropped(refusal, packet) => {
                self.cache.free_one(packet);
                Seen::Dropped(refusal)
            }
        }
    }

    /// Pushes all; all but the last must be held.
    fn push_all(&mut self, frames: &[Vec<u8>]) -> Seen {
        let (last, before) = frames.split_last().unwrap();
        for frame in before {
            assert_eq!(self.push(frame), Seen::Held);
        }
        self.push(last)
    }

    fn expire(&mut self) -> (usize, Vec<Vec<u8>>) {
        let mut first = Burst::new();
        let ended = self
            .reassembler
            .expire(self.now_ns, 1000, &mut self.cache, &mut first);
        let frames = first.iter().map(|packet| packet.data().to_vec()).collect();
        self.cache.free(&mut first);
        (ended, frames)
    }

    /// Checks that every slot is free except the held ones, and that every fragment is counted.
    fn check(&self) {
        let held = self.reassembler.held();
        let free = |pool: &Pool| pool.stats().free_shared as usize + self.cache.held(pool);
        let (mut slots, mut bytes) = (0, 0);
        for pool in self.pools.iter() {
            let away = pool.slots() as usize - free(pool);
            slots += away;
            bytes += away * pool.slot_bytes();
        }
        assert_eq!((held.datagrams, held.bytes), (slots, bytes), "slots");
        let stats = self.reassembler.stats();
        let dropped: u64 = stats.dropped.iter().sum();
        let known = stats.reassembled + dropped + held.fragments;
        assert_eq!(stats.fragments, known, "{stats:?} {held:?}");
    }

    fn dropped(&self, refusal: Refusal) -> u64 {
        self.reassembler.stats().dropped[refusal as usize]
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
            self.reassembler.clear(&mut self.cache);
            self.check();
            assert_eq!(self.reassembler.held(), super::Held::default());
        }
    }
}

/// An IPv4 fragment, and what tests vary of it.
#[derive(Clone)]
struct V4 {
    id: u16,
    src: [u8; 4],
    protocol: u8,
    tos: u8,
    options: Vec<u8>,
}

impl V4 {
    fn new(id: u16) -> Self {
        Self {
            id,
            src: [10, 0, 0, 1],
            protocol: 17,
            tos: 0,
            options: Vec::new(),
        }
    }

    /// The frame of the fragment with `payload` from `start` on.
    fn frame(&self, start: usize, more: bool, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00]);
        frame.extend([0x40 | (header_len / 4) as u8, self.tos]);
        frame.extend(((header_len + payload.len()) as u16).to_be_bytes());
        frame.extend(self.id.to_be_bytes());
        let cut = (start / 8) as u16 | if more { 0x2000 } else { 0 };
        frame.extend(cut.to_be_bytes());
        frame.extend([64, self.protocol, 0, 0]);
        frame.extend(self.src);
        frame.extend([10, 0, 0, 2]);
        frame.extend(&self.options);
        let sum = checksum::checksum(&frame[L3..]);
        frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// The datagram as it is whole.
    fn whole(&self, payload: &[u8]) -> Vec<u8> {
        self.frame(0, false, payload)
    }

    /// All fragments of a datagram, each but the last with `size` bytes.
    fn cut(&self, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let parts = payload.chunks(size).enumerate();
        let frames = parts.map(|(index, part)| {
            let start = index * size;
            self.frame(start, start + part.len() < payload.len(), part)
        });
        frames.collect()
    }
}

/// An IPv6 fragment, and what tests vary of it.
#[derive(Clone)]
struct V6 {
    id: u32,
    src: [u8; 16],
    class: u8,
    /// Extension headers before the fragment header, each with its type.
    before: Vec<(u8, Vec<u8>)>,
    next: u8,
}

impl V6 {
    fn new(id: u32) -> Self {
        let mut src = [0; 16];
        (src[0], src[15]) = (0xfd, 1);
        Self {
            id,
            src,
            class: 0,
            before: Vec::new(),
            next: 17,
        }
    }

    fn headers(&self, last: u8, payload_len: usize) -> Vec<u8> {
        let extensions: usize = self.before.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut kinds = self.before.iter().map(|&(kind, _)| kind);
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd]);
        frame.extend([0x60 | self.class >> 4, self.class << 4, 0, 0]);
        frame.extend(((extensions + payload_len) as u16).to_be_bytes());
        frame.extend([kinds.next().unwrap_or(last), 64]);
        frame.extend(self.src);
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        for (_, bytes) in &self.before {
            let at = frame.len();
            frame.extend(bytes);
            frame[at] = kinds.next().unwrap_or(last);
        }
        frame
    }

    fn frame(&self, start: usize, more: bool, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.headers(44, 8 + payload.len());
        frame.extend([self.next, 0]);
        frame.extend((start as u16 | u16::from(more)).to_be_bytes());
        frame.extend(self.id.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn whole(&self, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.headers(self.next, payload.len());
        frame.extend(payload);
        frame
    }

    fn cut(&self, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let parts = payload.chunks(size).enumerate();
        let frames = parts.map(|(index, part)| {
            let start = index * size;
            self.frame(start, start + part.len() < payload.len(), part)
        });
        frames.collect()
    }
}

/// Bytes that differ from place to place.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8) as u8).collect()
}

/// How often each outcome was seen, by name.
fn tally(seen: impl IntoIterator<Item = Seen>) -> BTreeMap<&'static str, usize> {
    let mut tally = BTreeMap::new();
    for seen in seen {
        let name = match seen {
            Seen::Held => "held",
            Seen::Whole(_) => "whole",
            Seen::Dropped(refusal) => refusal.name(),
        };
        *tally.entry(name).or_default() += 1;
    }
    tally
}
