//! The traffic generator's receive side on one core: the whole turn of a receiver, from the queue to
//! the free list, with every frame classified and checked.
//!
//! The queue is one that costs little and leaves nothing out: it takes slots from the pool and writes a
//! new label (stream, sequence number, send time, check) into the 60 bytes that lie there. Its own
//! time, with the frames freed unseen, is the detail `source_ns`; nothing is subtracted.

use std::time::Instant;

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::port::RxQueue;

use super::{Row, Run, Sample};
use crate::apps::pktgen::engine::{Books, Boundaries, Label, Receiver, SIGNATURE_BYTES};
use crate::error::Error;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "pktgen.rx.checked",
        about: "receive 64 streams of 64 bytes in turns: order, loss, latency of every frame",
        run: |row, run| receive(row, run, 64),
    },
    Row {
        name: "pktgen.rx.checked.1",
        about: "the same with one stream",
        run: |row, run| receive(row, run, 1),
    },
    Row {
        name: "pktgen.rx.checked.4k",
        about: "the same with 4096 streams",
        run: |row, run| receive(row, run, 4096),
    },
];

/// An IPv4/UDP frame of 64 bytes with its check sequence, without a label yet.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    (frame[0], frame[6], frame[11]) = (2, 2, 1);
    (frame[12], frame[14], frame[17], frame[22], frame[23]) = (0x08, 0x45, 46, 64, 17);
    (frame[26], frame[27], frame[30], frame[31]) = (198, 18, 198, 19);
    (frame[35], frame[37], frame[39]) = (9, 9, 26);
    frame
};

/// Test frames of `1 << bits` streams in turns, in order, from 1000 to 2023 ticks old.
struct Source {
    pool: Pool,
    clock: Clock,
    bits: u32,
    came: u64,
}

impl RxQueue for Source {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = cache.take(&self.pool, burst, Burst::CAPACITY);
        let (before, bits, first) = (self.clock.now() - 1000, self.bits, self.came);
        self.came += count as u64;
        let mask = (1 << bits) - 1;
        for (packet, number) in burst.iter_mut().zip(first..) {
            if packet.len() != FRAME.len() {
                first_time(packet);
            }
            let label = Label {
                stream: (number & mask) as u16,
                sequence: number >> bits,
                stamp: before - ((number * 37) & 1023),
            };
            let tail: Option<&mut [u8; SIGNATURE_BYTES]> = packet.data_mut().last_chunk_mut();
            label.write(tail.expect("a frame of 60 bytes"));
        }
        count
    }

    fn held(&self) -> i64 {
        0
    }
}

#[cold]
fn first_time(packet: &mut Packet) {
    assert!(packet.set_data(&FRAME), "a slot takes the shortest frame");
}

/// Mpps through a receiver of `streams` streams.
fn receive(row: &'static str, run: Run, streams: usize) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 16_384))?;
    let pages = pool.page_kind();
    let source = move |pool: &Pool, clock| Source {
        pool: pool.clone(),
        clock,
        bits: streams.ilog2(),
        came: 0,
    };
    let (mpps, source_ns) = run.pinned(move |run| {
        let clock = Clock::calibrate();
        let mut cache = PoolCache::new(std::slice::from_ref(&pool));
        let mut bare = source(&pool, clock);
        let mut burst = Burst::new();
        let source_mpps = rate(run.duration / 4, &mut || {
            let came = bare.rx_burst(&mut burst, &mut cache);
            cache.free(&mut burst);
            came as u64
        });
        let books = Books::new(Boundaries::new(streams).into());
        let mut receiver = Receiver::new(Box::new(source(&pool, clock)), books, clock);
        let mut turn = || receiver.turn(&mut cache) as u64;
        rate(run.duration / 10, &mut turn);
        let mpps = rate(run.duration, &mut turn);
        let stats = &receiver.books.stats;
        let told = (0..streams as u16).map(|id| stats.stream(id));
        let (unique, lost) = told.fold((0, 0), |sum, stream| {
            (sum.0 + stream.unique, sum.1 + stream.overtaken())
        });
        assert_eq!(
            (unique, lost, stats.latency().total),
            (stats.packets.read(), 0, stats.packets.read()),
            "the receiver's own books must be right"
        );
        (mpps, 1e3 / source_mpps)
    })?;
    Ok(Sample::new(row, mpps, "Mpps", pages)
        .with("streams", streams)
        .with("source_ns", source_ns))
}

/// Millions of frames a second that `turn` says came.
fn rate(duration: std::time::Duration, turn: &mut impl FnMut() -> u64) -> f64 {
    let (began, mut frames) = (Instant::now(), 0);
    loop {
        for _ in 0..64 {
            frames += turn();
        }
        let elapsed = began.elapsed();
        if elapsed >= duration {
            return frames as f64 / 1e6 / elapsed.as_secs_f64();
        }
    }
}
