//! Forwarding on one core: two ports and a worker.

use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::env::{Clock, PrivateFolder};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::pcapng::{Direction, PcapngWriter, Record};
use linerate_core::port::{Port, PortConfig, PortError};
use linerate_core::run::{Egress, Inlet, Stage, TxPath, Worker, WorkerHandle};
use linerate_drivers::Drivers;
use linerate_l2fwd::stage::{L2fwd, Route};
use linerate_wire::ethernet::MacAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

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
    Row {
        name: "fwd.pcap.l2fwd.64",
        about: "l2fwd between two looping captures of 1024 frames of 64 bytes, each copied",
        run: |row, run| pcap_l2fwd(row, run, 60),
    },
    Row {
        name: "fwd.pcap.l2fwd.1518",
        about: "l2fwd between two looping captures of 1024 frames of 1518 bytes, each copied",
        run: |row, run| pcap_l2fwd(row, run, 1514),
    },
];

/// 60 bytes of a UDP frame, the shortest on a wire.
pub(super) const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    frame[0] = 2;
    frame[6] = 2;
    frame[11] = 1;
    frame[12] = 0x88;
    // Local experimental EtherType (IEEE 802): no stack handles it.
    frame[13] = 0xb5;
    frame
};

fn null_io(row: &'static str, run: Run) -> Result<Sample, Error> {
    // 64 bytes in memory, as DPDK's net_null gives by default.
    forward::<false>(row, run, ["null:,size=64"; 2].map(String::from), 0)
}

fn ring_mac(row: &'static str, run: Run) -> Result<Sample, Error> {
    let loops = ["ring:a,loop=on,size=512", "ring:b,loop=on,size=512"];
    forward::<true>(row, run, loops.map(String::from), 256)
}

fn pcap_l2fwd(row: &'static str, run: Run, frame_bytes: usize) -> Result<Sample, Error> {
    let capture = Capture::of(1024, frame_bytes)?;
    let spec = format!("pcap:rx={},loop=on", capture.path().display());
    forward::<true>(row, run, [spec.clone(), spec], 0)
}

/// A capture file that is deleted with this value.
struct Capture(PrivateFolder);

impl Capture {
    fn of(frames: u64, frame_bytes: usize) -> Result<Self, Error> {
        let capture = Self(PrivateFolder::new("bench")?);
        let path = capture.path();
        let failed = |source| Error::File {
            path: path.clone(),
            source,
        };
        let mut writer = PcapngWriter::new(
            std::fs::File::create(&path).map_err(failed)?,
            "linerate bench",
        );
        let interface = writer.add_interface("bench", 0).map_err(failed)?;
        let mut frame = vec![0; frame_bytes];
        frame[..FRAME.len()].copy_from_slice(&FRAME);
        for number in 0..frames {
            frame[20..28].copy_from_slice(&number.to_le_bytes());
            let record = Record {
                interface,
                timestamp_ns: number,
                direction: Direction::Inbound,
                frame: &frame,
                comment: "",
            };
            writer.write(&record).map_err(failed)?;
        }
        writer.finish().map_err(failed)?;
        Ok(capture)
    }

    fn path(&self) -> PathBuf {
        self.0.join("frames.pcapng")
    }
}

/// Mpps over both ports, each forwarding to the other. `fill` frames are put into each first.
fn forward<const MAC: bool>(
    row: &'static str,
    run: Run,
    specs: [String; 2],
    fill: usize,
) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
    let pages = pool.page_kind();
    let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let routes = [1, 0].map(|out: u16| Route {
        out,
        src: MacAddr::local(0x10 + out as u8),
        dst: MacAddr::local(out as u8),
    });
    let stage = L2fwd::<MAC>::new(&routes, &mut egress);
    let mut drivers = Drivers::new();
    let mut ports = open(&mut drivers, &specs)?;
    let pools = Pools::new(vec![pool]);
    let mpps = run.pinned(move |run| -> Result<f64, PortError> {
        let mut worker = connect(&mut ports, &pools, stage, egress, fill)?.0;
        let mut poll = || worker.round() as u64;
        rate(run.duration / 10, &mut poll);
        Ok(rate(run.duration, &mut poll))
    })??;
    Ok(Sample::new(row, mpps, "Mpps", pages))
}

/// Millions of packets per second that `turn` says it moved.
pub(super) fn rate(duration: Duration, turn: &mut impl FnMut() -> u64) -> f64 {
    let (began, mut packets) = (Instant::now(), 0);
    loop {
        for _ in 0..64 {
            packets += turn();
        }
        let elapsed = began.elapsed();
        if elapsed >= duration {
            return packets as f64 / 1e6 / elapsed.as_secs_f64();
        }
    }
}

/// Mpps of a stage between `specs`, all on one worker: what it received, after a warm-up.
pub(super) fn between<S: Stage + 'static>(
    run: &Run,
    specs: &[String],
    pool: Pool,
    stage: S,
    egress: Egress,
) -> Result<f64, Error> {
    let mut ports = open(&mut Drivers::new(), specs)?;
    let pools = Pools::new(vec![pool]);
    let mut worker = connect(&mut ports, &pools, stage, egress, 0)?.0;
    let mut poll = || worker.round() as u64;
    rate(run.duration / 10, &mut poll);
    Ok(rate(run.duration, &mut poll))
}

pub(super) fn open(drivers: &mut Drivers, specs: &[String]) -> Result<Vec<Box<dyn Port>>, Error> {
    specs.iter().map(|spec| Ok(drivers.open(spec)?)).collect()
}

/// Starts the ports and hands their queues to one worker, which the handle controls.
pub(super) fn connect<S: Stage + 'static>(
    ports: &mut [Box<dyn Port>],
    pools: &Pools,
    stage: S,
    egress: Egress,
    fill: usize,
) -> Result<(Worker<S>, WorkerHandle<S>), PortError> {
    let made = Worker::new("bench", stage, egress, Clock::calibrate());
    let (mut worker, handle) = made.map_err(|source| PortError::System {
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
        let mut queues = port.start(&config, pools)?;
        let mut left = fill;
        while let (Some(tx), true) = (queues.tx.first_mut(), left > 0) {
            let mut burst = Burst::new();
            worker.egress.cache.fill(pools.primary(), &mut burst, left);
            burst.iter_mut().for_each(|packet| {
                assert!(packet.set_data(&FRAME), "a slot takes the shortest frame")
            });
            left -= tx.tx_burst(&mut burst, &mut worker.egress.cache).min(left);
        }
        for rx in queues.rx {
            worker.add_inlet(Inlet::queue(index, 0, rx));
        }
        for tx in queues.tx {
            worker.set_outlet(index, Some(TxPath::Queue(tx)));
        }
    }
    Ok((worker, handle))
}
