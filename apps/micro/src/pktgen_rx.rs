//! The traffic generator's receive side on one core: the whole turn of a receiver, from the queue
//! to the free list, with every frame classified and checked.
//!
//! Frames come from a ring loop. It is filled with [`BATCH`] of them, with new labels, outside of
//! the measured time; then the receiver empties it, which is timed.

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, TxQueue};
use linerate_drivers::ring;

use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_traffic::engine::{Books, Boundaries, Label, Receiver, SIGNATURE_BYTES};

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

/// Frames between two readings of the clock.
const BATCH: usize = 1024;

/// Test frames of `1 << bits` streams in turns, in order, from 1000 to 2023 ticks old.
struct Source {
    pool: Pool,
    clock: Clock,
    tx: Box<dyn TxQueue>,
    bits: u32,
    came: u64,
}

impl Source {
    /// Puts a batch into the ring.
    fn fill(&mut self, cache: &mut PoolCache) {
        let mask = (1 << self.bits) - 1;
        let before = self.clock.now() - 1000;
        for _ in 0..BATCH / Burst::CAPACITY {
            let mut burst = Burst::new();
            cache.take(&self.pool, &mut burst, Burst::CAPACITY);
            for (packet, number) in burst.iter_mut().zip(self.came..) {
                if packet.len() != FRAME.len() {
                    first_time(packet);
                }
                let label = Label {
                    session: 0,
                    stream: (number & mask) as u16,
                    sequence: number >> self.bits,
                    stamp: before - ((number * 37) & 1023),
                };
                let tail: Option<&mut [u8; SIGNATURE_BYTES]> = packet.data_mut().last_chunk_mut();
                label.write(tail.expect("a frame of 60 bytes"));
            }
            self.came += self.tx.tx_burst(&mut burst, cache) as u64;
        }
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
    let mpps = run.pinned(move |run| -> Result<f64, Error> {
        let clock = Clock::calibrate();
        let pools = Pools::new(vec![pool.clone()]);
        let mut cache = PoolCache::new(pools.as_slice());
        let mut port = ring::looped("bench", 1, BATCH);
        let mut queues = port.start(&PortConfig::default(), &pools)?;
        let mut source = Source {
            pool,
            clock,
            tx: queues.tx.remove(0),
            bits: streams.ilog2(),
            came: 0,
        };
        let books = Books::new(Boundaries::new(streams).into());
        let mut receiver = Receiver::new(queues.rx.remove(0), books, clock);
        let mut rate = |ticks: u64| {
            let (mut spent, mut frames) = (0, 0);
            while spent < ticks {
                source.fill(&mut cache);
                let began = clock.now();
                loop {
                    let came = receiver.turn(&mut cache);
                    frames += came as u64;
                    if came == 0 {
                        break;
                    }
                }
                spent += clock.now() - began;
            }
            frames as f64 / 1e6 / (spent as f64 / clock.hz())
        };
        let ticks = clock.ticks(run.duration.as_nanos() as u64);
        rate(ticks / 10);
        let mpps = rate(ticks);
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
        Ok(mpps)
    })??;
    Ok(Sample::new(row, mpps, "Mpps", pages).with("streams", streams))
}
