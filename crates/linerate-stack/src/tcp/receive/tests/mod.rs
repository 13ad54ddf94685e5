//! Common parts of tests: a queue with its arena and pools, and the accounting.
#![allow(clippy::unwrap_used)]

mod autotune;
mod bounds;
mod model;
mod queue;
mod sack;
mod speed;
mod window;

use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Packet, Pool, PoolCache, PoolConfig, SlotClass};

use super::pieces::NIL;
use super::{Inserted, Limits, Pieces, ReceiveQueue, Span, seq};

/// Ethernet, IPv4, TCP with time stamps: where payloads begin.
const HEADERS: usize = 66;

/// A queue, and what it takes.
struct Fixture {
    pools: Vec<Pool>,
    cache: PoolCache,
    pieces: Pieces,
    queue: ReceiveQueue,
    limits: Limits,
}

impl Fixture {
    /// With room for everything.
    fn new(next: u32) -> Self {
        let limits = Limits {
            window_end: next.wrapping_add(1 << 24),
            bytes: u32::MAX,
            pieces: u16::MAX,
            runs: u16::MAX,
        };
        Self::with(next, limits, 4096, u64::MAX)
    }

    fn with(next: u32, limits: Limits, count: u32, max_bytes: u64) -> Self {
        // Plain pages: many tests in parallel must not use up the machine's huge pages.
        let pages = PagePolicy::Only(PageKind::Base4K);
        let small = PoolConfig {
            pages,
            // One more than may be kept: the segment that arrives when as many are.
            ..PoolConfig::new("small", count + 1)
        };
        let large = PoolConfig {
            pages,
            class: SlotClass::Large,
            ..PoolConfig::new("large", 64)
        };
        let pools = [small, large].map(|config| Pool::new(&config).unwrap());
        Self {
            cache: PoolCache::new(&pools),
            pools: pools.to_vec(),
            pieces: Pieces::new(count, max_bytes).unwrap(),
            queue: ReceiveQueue::new(next),
            limits,
        }
    }

    /// A segment with this payload, padded as a short frame is.
    fn packet(&mut self, payload: &[u8]) -> (Packet, Span) {
        let mut frame = vec![0xee; HEADERS];
        frame.extend(payload);
        frame.resize(frame.len().max(HEADERS + 6), 0xdd);
        let span = Span {
            start: HEADERS as u32,
            len: payload.len() as u32,
        };
        (self.cache.copy_of(&frame).unwrap(), span)
    }

    fn insert(&mut self, seq: u32, payload: &[u8]) -> Inserted {
        let (packet, span) = self.packet(payload);
        self.give(packet, span, seq)
    }

    /// The same in a slot of 64 KiB.
    fn insert_large(&mut self, seq: u32, payload: &[u8]) -> Inserted {
        let mut packet = self.cache.get(&self.pools[1]).unwrap();
        assert!(packet.set_data(payload));
        let span = Span {
            start: 0,
            len: payload.len() as u32,
        };
        self.give(packet, span, seq)
    }

    fn give(&mut self, packet: Packet, span: Span, seq: u32) -> Inserted {
        let limits = self.limits;
        self.queue.insert(
            &mut self.pieces,
            &mut self.cache,
            packet,
            span,
            seq,
            &limits,
        )
    }

    fn read(&mut self, count: usize) -> Vec<u8> {
        let mut out = vec![0; count];
        let done = self.queue.read(&mut self.pieces, &mut self.cache, &mut out);
        out.truncate(done);
        out
    }

    fn blocks(&mut self, most: usize) -> Vec<(u32, u32)> {
        let mut out = vec![(0, 0); most];
        let count = self.queue.sack_blocks(&self.pieces, &mut out);
        out.truncate(count);
        out
    }

    /// All bytes out of order, by sequence number.
    fn out_of_order(&self) -> Vec<(u32, u8)> {
        let mut all = Vec::new();
        let mut at = self.queue.first_run;
        while at != NIL {
            let piece = self.pieces.at(at);
            let bytes = piece.bytes().iter().enumerate();
            all.extend(bytes.map(|(index, &byte)| (piece.seq.wrapping_add(index as u32), byte)));
            at = piece.next;
        }
        all
    }

    /// Checks both chains, all sums, and that every slot is free or kept.
    fn check(&self) {
        let (queue, pieces) = (&self.queue, &self.pieces);
        let (mut count, mut charged) = (0, 0);
        let (mut at, mut tail, mut readable) = (queue.head, NIL, 0);
        while at != NIL {
            let piece = pieces.at(at);
            assert!(piece.len > 0, "a piece without bytes");
            (count, charged) = (count + 1, charged + piece.slot_bytes());
            readable += piece.len;
            (tail, at) = (at, piece.next);
        }
        assert_eq!((queue.tail, queue.readable), (tail, readable), "readable");
        let (mut runs, mut run, mut end, mut bytes) = (0, queue.first_run, queue.next, 0);
        let mut last_run = NIL;
        while run != NIL {
            assert!(seq::lt(end, pieces.at(run).seq), "no hole before a run");
            let (mut at, last) = (run, pieces.at(run).last);
            end = pieces.at(run).seq;
            loop {
                let piece = pieces.at(at);
                assert!(piece.len > 0, "a piece without bytes");
                assert_eq!(piece.seq, end, "a hole in a run");
                end = piece.end();
                (count, charged) = (count + 1, charged + piece.slot_bytes());
                bytes += piece.len;
                if at == last {
                    break;
                }
                at = piece.next;
            }
            runs += 1;
            last_run = run;
            run = pieces.at(last).next;
        }
        assert_eq!((queue.last_run, queue.runs), (last_run, runs), "runs");
        assert_eq!(queue.out_of_order, bytes, "out of order");
        assert_eq!((queue.pieces, queue.charged), (count, charged), "charged");
        for &recent in queue.recent.iter().filter(|&&recent| recent != NIL) {
            assert_eq!(queue.find_by_walk(pieces, recent), 1, "a recent run");
        }
        // The only queue of its arena.
        assert_eq!(pieces.charged_slots(), u32::from(count));
        assert_eq!(pieces.charged_bytes(), u64::from(charged));
        let free = |pool: &Pool| pool.stats().free_shared as usize + self.cache.held(pool);
        let away = |pool: &Pool| pool.slots() as usize - free(pool);
        let slots: usize = self.pools.iter().map(away).sum();
        let slot_bytes = self.pools.iter().map(|pool| away(pool) * pool.slot_bytes());
        assert_eq!(slots, usize::from(count), "slots");
        assert_eq!(slot_bytes.sum::<usize>(), charged as usize, "slots' bytes");
    }
}

impl ReceiveQueue {
    /// How many runs begin with this piece.
    fn find_by_walk(&self, pieces: &Pieces, wanted: u32) -> usize {
        let first = Some(self.first_run).filter(|&run| run != NIL);
        let next = |&run: &u32| Some(pieces.run_next(run)).filter(|&run| run != NIL);
        let runs = std::iter::successors(first, next);
        runs.filter(|&run| run == wanted).count()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
            self.queue.clear(&mut self.pieces, &mut self.cache);
            self.check();
            assert!(self.queue.is_empty());
        }
    }
}

/// The byte of the stream with this sequence number.
fn byte(seq: u32) -> u8 {
    (seq.wrapping_mul(0x9e37_79b9) >> 24) as u8
}

/// The stream's bytes from `seq` on.
fn stream(seq: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|index| byte(seq.wrapping_add(index)))
        .collect()
}
