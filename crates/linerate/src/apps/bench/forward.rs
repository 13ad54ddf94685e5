//! Forwarding on one core: two ports, a worker, and nobody else.

use super::{Row, Run, Sample};
use crate::error::Error;
use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, PortError};
use linerate_core::run::{Egress, Inlet, Stage, Way, Worker, named};
use linerate_drivers::Drivers;
use linerate_wire::ethernet::{MacAddr, set_macs};
use std::time::Instant;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "fwd.null.io.64",
        about: "forward between two null ports, no byte touched",
        run: null_io,
    },
    Row {
        name: "fwd.ring.mac.64",
        about: "l2fwd with MAC update between two ring loops, 256 frames in each",
        run: ring_mac,
    },
];

fn null_io(row: &'static str, run: Run) -> Result<Sample, Error> {
    // 64 bytes in memory, as DPDK's net_null gives by default.
    forward(
        row,
        run,
        ["null:,size=64", "null:,size=64"],
        0,
        |from, burst, out| out.send(1 - from, burst),
    )
}

fn ring_mac(row: &'static str, run: Run) -> Result<Sample, Error> {
    forward(
        row,
        run,
        ["ring:a,loop=on,size=512", "ring:b,loop=on,size=512"],
        256,
        mac_update,
    )
}

/// Forwards as l2fwd does: new addresses, out of the other port.
fn mac_update(from: u16, burst: &mut Burst, out: &mut Egress) {
    let to = 1 - from;
    for packet in burst.iter_mut() {
        set_macs(
            packet.data_mut(),
            MacAddr::local(to as u8),
            MacAddr::local(0),
        );
    }
    out.send(to, burst);
}

/// Mpps over both ports. `fill` frames of 60 bytes are put into each port first.
fn forward(
    row: &'static str,
    run: Run,
    specs: [&'static str; 2],
    fill: usize,
    stage: fn(u16, &mut Burst, &mut Egress),
) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
    let pages = pool.page_kind();
    let stage = named("forward", move |burst: &mut Burst, out: &mut Egress| {
        let from = burst.as_packets()[0].meta().port;
        stage(from, burst, out);
    });
    let mut drivers = Drivers::new();
    let mut ports = open(&mut drivers, &specs)?;
    let mpps = run.pinned(move |run| -> Result<f64, PortError> {
        let mut worker = connect(&mut ports, &pool, stage, fill)?;
        let mut rate = |duration| {
            let (began, mut packets) = (Instant::now(), 0_u64);
            loop {
                for _ in 0..256 {
                    packets += worker.round() as u64;
                }
                let elapsed = began.elapsed();
                if elapsed >= duration {
                    break packets as f64 / elapsed.as_micros() as f64;
                }
            }
        };
        rate(run.duration / 10);
        Ok(rate(run.duration))
    })??;
    Ok(Sample::new(row, mpps, "Mpps", pages))
}

fn open(drivers: &mut Drivers, specs: &[&str]) -> Result<Vec<Box<dyn Port>>, Error> {
    specs.iter().map(|spec| Ok(drivers.open(spec)?)).collect()
}

/// Starts the ports and hands their queues to one worker.
fn connect<S: Stage + 'static>(
    ports: &mut [Box<dyn Port>],
    pool: &Pool,
    stage: S,
    fill: usize,
) -> Result<Worker<S>, PortError> {
    let pools = Pools::new(vec![pool.clone()]);
    let egress = Egress::new(PoolCache::new(pools.as_slice()));
    let clock = Clock::calibrate();
    let (mut worker, _) =
        Worker::new("bench", stage, egress, clock).map_err(|source| PortError::System {
            port: "bench".into(),
            action: "make a doorbell".into(),
            source,
            fix: "raise the limit of open files with `ulimit -n`".into(),
        })?;
    for (index, port) in (0..).zip(ports) {
        let config = PortConfig {
            index,
            ..PortConfig::default()
        };
        let mut queues = port.start(&config, &pools)?;
        let mut left = fill;
        while let (Some(tx), true) = (queues.tx.first_mut(), left > 0) {
            let mut burst = Burst::new();
            worker.egress.cache.fill(pool, &mut burst, left);
            burst
                .iter_mut()
                .for_each(|packet| drop(packet.set_data(&[0; 60])));
            left -= tx.tx_burst(&mut burst, &mut worker.egress.cache).min(left);
        }
        queues
            .rx
            .drain(..)
            .for_each(|rx| worker.add_inlet(Inlet::queue(index, 0, rx)));
        queues
            .tx
            .drain(..)
            .for_each(|tx| drop(worker.set_outlet(index, Some(Way::Queue(tx)))));
    }
    Ok(worker)
}
