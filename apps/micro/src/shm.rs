//! `shm` ports: there and back between two CPUs, one way, and both ends on one CPU.
//!
//! Each end maps the file by itself, so that what moves between the CPUs is what moves between two
//! processes.

use super::probe::pause;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::env::Lcore;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Link, Port, PortConfig, Queues};
use linerate_drivers::Drivers;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "shm.rtt.64",
        about: "there and back over two shm ports on two CPUs, one frame of 64 bytes, polling",
        run: there_and_back,
    },
    Row {
        name: "shm.oneway.64",
        about: "shm to shm from one CPU to another, bursts of 32 frames of 64 bytes",
        run: |row, run| one_way(row, run, 60),
    },
    Row {
        name: "shm.oneway.1518",
        about: "shm to shm from one CPU to another, bursts of 32 frames of 1518 bytes",
        run: |row, run| one_way(row, run, 1514),
    },
    Row {
        name: "shm.1core.64",
        about: "shm to shm on one CPU, 32 frames of 64 bytes out and in",
        run: |row, run| in_turns(row, run, 60),
    },
    Row {
        name: "shm.1core.1518",
        about: "shm to shm on one CPU, 32 frames of 1518 bytes out and in",
        run: |row, run| in_turns(row, run, 1514),
    },
];

/// Longest wait for the other end.
const PATIENCE: Duration = Duration::from_secs(10);
const BURST: usize = 32;

/// One end, with pool and queues of its own.
struct End {
    queues: Queues,
    cache: PoolCache,
    pool: Pool,
    port: Box<dyn Port>,
}

impl End {
    fn open(spec: &str, pools: &Pools) -> Result<Self, Error> {
        let mut port = Drivers::new().open(spec)?;
        Ok(Self {
            queues: port.start(&PortConfig::default(), pools)?,
            cache: PoolCache::new(pools.as_slice()),
            pool: pools.primary().clone(),
            port,
        })
    }

    /// Adds frames to a burst.
    fn fill(&mut self, burst: &mut Burst, count: usize, bytes: usize) {
        self.cache.fill(&self.pool, burst, count);
        for packet in burst.iter_mut() {
            packet.set_len(bytes);
            packet.data_mut().fill(2);
        }
    }

    fn send(&mut self, burst: &mut Burst) -> usize {
        self.queues.tx[0].tx_burst(burst, &mut self.cache)
    }

    fn receive(&mut self, burst: &mut Burst) -> usize {
        self.queues.rx[0].rx_burst(burst, &mut self.cache)
    }
}

/// A file in memory that goes with the value.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn pools() -> Result<Pools, Error> {
    Ok(Pools::new(vec![Pool::new(&PoolConfig::new("shm", 4096))?]))
}

/// Both ends of a file, connected.
fn ends(pools: [&Pools; 2]) -> Result<(End, End, File), Error> {
    let name = format!("linerate-bench-{}", std::process::id());
    let file = File(PathBuf::from("/dev/shm").join(name));
    let open = |role, pools| End::open(&format!("shm:{},role={role}", file.0.display()), pools);
    let (server, client) = (open("server", pools[0])?, open("client", pools[1])?);
    let start = Instant::now();
    while [&server, &client]
        .iter()
        .any(|end| end.port.link() != Link::Up)
    {
        if start.elapsed() > PATIENCE {
            return Err(Error::Usage {
                problem: format!("the ends of `{}` do not see each other", file.0.display()),
                fix: "run it where /dev/shm is a tmpfs".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok((server, client, file))
}

/// Nanoseconds from one CPU to the other and back.
fn there_and_back(row: &'static str, run: Run) -> Result<Sample, Error> {
    let (mut ours, mut theirs, _file) = ends([&pools()?, &pools()?])?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let echo = Lcore::spawn("echo", Some(run.cpus[1]), move || {
        let (mut burst, mut idle) = (Burst::new(), 0);
        while !stopped.load(Ordering::Relaxed) {
            match theirs.receive(&mut burst) {
                0 => pause(&mut idle),
                _ => _ = theirs.send(&mut burst),
            }
        }
    })?;
    let ns = run.pinned(move |run| {
        let mut burst = Burst::new();
        ours.fill(&mut burst, 1, 60);
        run.time(|| {
            let mut idle = 0;
            ours.send(&mut burst);
            while ours.receive(&mut burst) == 0 {
                pause(&mut idle);
            }
            1
        })
    })?;
    stop.store(true, Ordering::Relaxed);
    echo.join()?;
    Ok(Sample::new(row, ns, "ns", "4 KiB pages"))
}

/// Nanoseconds a frame, from one CPU to the other.
fn one_way(row: &'static str, run: Run, bytes: usize) -> Result<Sample, Error> {
    let (mut ours, mut theirs, _file) = ends([&pools()?, &pools()?])?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let from = Lcore::spawn("sender", Some(run.cpus[1]), move || {
        let (mut burst, mut idle) = (Burst::with_room(BURST), 0);
        while !stopped.load(Ordering::Relaxed) {
            if burst.is_empty() {
                theirs.cache.fill(&theirs.pool, &mut burst, BURST);
                burst
                    .iter_mut()
                    .for_each(|packet| _ = packet.set_len(bytes));
            }
            if theirs.send(&mut burst) == 0 {
                pause(&mut idle);
            }
        }
    })?;
    let ns = run.pinned(move |run| {
        let (mut burst, mut idle) = (Burst::with_room(BURST), 0);
        run.time(|| {
            let count = ours.receive(&mut burst) as u64;
            if count == 0 {
                pause(&mut idle);
            }
            ours.cache.free(&mut burst);
            count
        })
    })?;
    stop.store(true, Ordering::Relaxed);
    from.join()?;
    Ok(Sample::new(row, ns, "ns", "4 KiB pages"))
}

/// Nanoseconds a frame for sending and receiving it, on one CPU.
fn in_turns(row: &'static str, run: Run, bytes: usize) -> Result<Sample, Error> {
    let pools = pools()?;
    let (mut ours, mut theirs, _file) = ends([&pools, &pools])?;
    let ns = run.pinned(move |run| {
        let mut burst = Burst::with_room(BURST);
        ours.fill(&mut burst, BURST, bytes);
        run.time(|| {
            let sent = ours.send(&mut burst);
            // One core, one cache.
            let count = theirs.queues.rx[0].rx_burst(&mut burst, &mut ours.cache);
            debug_assert_eq!(sent, count);
            count as u64
        })
    })?;
    Ok(Sample::new(row, ns, "ns", "4 KiB pages"))
}
