//! memif: from a client to a server, on one core in turns or from one core to the other.
//!
//! Both ends are in this process, each with a pool of its own; the memory between them is shared as
//! between processes. The sender takes a slot for each frame, as one that makes frames does. The
//! rows of `vhost` do the same.

use super::probe::pause;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_core::env::{Lcore, LcoreHandle};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, RxTemplate};
use linerate_core::port::{Link, Port, PortConfig, RxQueue, TxQueue};
use linerate_drivers::Drivers;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Packets of a burst.
const BURST: usize = 32;

/// A client and its server, as ports at a socket.
pub(super) type Specs = [fn(&str) -> String; 2];

const SPECS: Specs = [
    |socket| format!("memif:{socket},role=client"),
    |socket| format!("memif:{socket}"),
];

/// The client gives its pool to the server.
const TRUSTED: Specs = [
    |socket| format!("memif:{socket},role=client,trust=full"),
    |socket| format!("memif:{socket}"),
];

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "memif.1core.64",
        about: "memif, 64 bytes from client to server and freed, one core in turns",
        run: |row, run| in_turns(row, run, SPECS, 64),
    },
    Row {
        name: "memif.1core.1518",
        about: "the same with 1518 bytes",
        run: |row, run| in_turns(row, run, SPECS, 1518),
    },
    Row {
        name: "memif.1core.zero_copy.64",
        about: "memif, 64 bytes from a client whose slots the server reads, one core in turns",
        run: |row, run| in_turns(row, run, TRUSTED, 64),
    },
    Row {
        name: "memif.oneway.64",
        about: "memif, 64 bytes from a client on one core to a server on another, Mpps",
        run: |row, run| one_way(row, run, SPECS, 64),
    },
    Row {
        name: "memif.oneway.1518",
        about: "the same with 1518 bytes",
        run: |row, run| one_way(row, run, SPECS, 1518),
    },
    Row {
        name: "memif.zero_copy.64",
        about: "memif, 64 bytes from a client whose slots the server reads to another core, Mpps",
        run: |row, run| one_way(row, run, TRUSTED, 64),
    },
    Row {
        name: "memif.echo.64",
        about: "memif, 64 bytes to another core and back, Mpps",
        run: |row, run| echo(row, run, SPECS),
    },
];

/// One side: its queues, and where its slots are.
struct Side {
    _port: Box<dyn Port>,
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    pool: Pool,
    cache: PoolCache,
    burst: Burst,
}

impl Side {
    fn open(drivers: &mut Drivers, spec: &str) -> Result<Self, Error> {
        let mut port = drivers.open(spec)?;
        let pool = PoolConfig {
            exposed: port.info().exposed_pool,
            ..PoolConfig::new("bench", 4096)
        };
        let pools = Pools::new(vec![Pool::new(&pool)?]);
        let mut queues = port.start(&PortConfig::default(), &pools)?;
        let (rx, tx) = (queues.rx.remove(0), queues.tx.remove(0));
        Ok(Self {
            _port: port,
            rx,
            tx,
            pool: pools.primary().clone(),
            cache: PoolCache::new(pools.as_slice()),
            burst: Burst::with_room(BURST),
        })
    }

    /// Sends a burst of frames, or what is left of the last one; how many went.
    fn send(&mut self, len: u32) -> u64 {
        let template = RxTemplate {
            len,
            ..RxTemplate::default()
        };
        let Self {
            pool, cache, burst, ..
        } = self;
        cache.fill_with(pool, burst, burst.room(), template);
        self.tx.tx_burst(burst, cache) as u64
    }

    /// Receives and frees a burst; how many came.
    fn receive(&mut self) -> u64 {
        let count = self.rx.rx_burst(&mut self.burst, &mut self.cache) as u64;
        self.cache.free(&mut self.burst);
        count
    }

    /// Sends back what comes; how many went.
    fn turn_round(&mut self) -> u64 {
        if self.burst.is_empty() {
            self.rx.rx_burst(&mut self.burst, &mut self.cache);
        }
        match self.burst.is_empty() {
            true => 0,
            false => self.tx.tx_burst(&mut self.burst, &mut self.cache) as u64,
        }
    }
}

/// A client and its server, connected.
fn pair(row: &'static str, specs: Specs) -> Result<[Side; 2], Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let socket = format!("@{row}-{}-{number}", std::process::id());
    let mut drivers = Drivers::new();
    let [client, server] = specs.map(|spec| spec(&socket));
    let server = Side::open(&mut drivers, &server)?;
    let client = Side::open(&mut drivers, &client)?;
    let up = |side: &Side| side._port.link() == Link::Up;
    while !(up(&server) && up(&client)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok([client, server])
}

/// Nanoseconds for a frame to be sent and received, on one core.
pub(super) fn in_turns(
    row: &'static str,
    run: Run,
    specs: Specs,
    len: u32,
) -> Result<Sample, Error> {
    let [mut client, mut server] = pair(row, specs)?;
    let pages = client.pool.page_kind();
    let ns = run.pinned(move |run| {
        run.time(|| {
            client.send(len);
            server.receive()
        })
    })?;
    Ok(Sample::new(row, ns, "ns", pages))
}

/// Millions of frames a second from one core to the other.
pub(super) fn one_way(
    row: &'static str,
    run: Run,
    specs: Specs,
    len: u32,
) -> Result<Sample, Error> {
    let [mut client, mut server] = pair(row, specs)?;
    let pages = client.pool.page_kind();
    let other = Other::start(run.cpus[1], move || client.send(len))?;
    let ns = run.pinned(move |run| {
        let mut idle = 0;
        run.time(|| {
            let count = server.receive();
            if count == 0 {
                pause(&mut idle);
            }
            count
        })
    })?;
    other.stop()?;
    Ok(Sample::new(row, 1e3 / ns, "Mpps", pages))
}

/// Millions of frames a second that are back from the other core.
pub(super) fn echo(row: &'static str, run: Run, specs: Specs) -> Result<Sample, Error> {
    let [mut client, mut server] = pair(row, specs)?;
    let pages = client.pool.page_kind();
    let other = Other::start(run.cpus[1], move || server.turn_round())?;
    let ns = run.pinned(move |run| {
        let (mut idle, mut under_way) = (0, 0);
        run.time(|| {
            // As many as lie in a ring at most: the other side must not come to wait for this one.
            if under_way < 512 {
                under_way += client.send(64);
                client.cache.free(&mut client.burst);
            }
            let count = client.receive();
            under_way -= count;
            if count == 0 {
                pause(&mut idle);
            }
            count
        })
    })?;
    other.stop()?;
    Ok(Sample::new(row, 1e3 / ns, "Mpps", pages))
}

/// A thread on the second CPU that does something again and again.
struct Other {
    stop: Arc<AtomicBool>,
    lcore: LcoreHandle<()>,
}

impl Other {
    fn start(cpu: u32, mut work: impl FnMut() -> u64 + Send + 'static) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let lcore = Lcore::spawn("other", Some(cpu), move || {
            let mut idle = 0;
            while !stopped.load(Ordering::Relaxed) {
                if work() == 0 {
                    pause(&mut idle);
                }
            }
        })?;
        Ok(Self { stop, lcore })
    }

    fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.lcore.join()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_moves_frames() {
        for row in ROWS {
            let sample = (row.run)(row.name, Run::quick());
            let sample = sample.expect("the row runs");
            assert!(sample.value > 0.0, "{}", row.name);
        }
    }
}
