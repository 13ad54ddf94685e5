//! The path of a frame through virtqueues: from a `virtio_user` port to a `vhost` port and freed,
//! both ends on one core in turns.
//!
//! `cargo xtask compare --only vhost.checks` builds this twice, the second time without the checks
//! of what a peer writes. Shown are nanoseconds a frame: of many short slices the lower quarter, so
//! that a busy machine disturbs little.

use linerate_core::env::Lcore;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, RxTemplate};
use linerate_core::port::{Link, Port, PortConfig, RxQueue, TxQueue};
use linerate_drivers::Drivers;
use std::error::Error;
use std::time::{Duration, Instant};

/// Packets of a burst.
const BURST: usize = 32;
/// Bursts of a slice.
const SLICE: usize = 256;
/// What is measured: name, options of the driver, bytes of a frame.
const CASES: [(&str, &str, u32); 4] = [
    ("packed.64", "", 60),
    ("split.64", ",packed=off", 60),
    ("packed.1518", "", 1514),
    ("split.1518", ",packed=off", 1514),
];

/// The same with the pool lent to the device: only where they are named, for the device's checks
/// alone are in them.
const LENT: [(&str, &str, u32); 4] = [
    ("lent.packed.64", ",trust=full", 60),
    ("lent.split.64", ",trust=full,packed=off", 60),
    ("lent.packed.1518", ",trust=full", 1514),
    ("lent.split.1518", ",trust=full,packed=off", 1514),
];

/// One side.
struct Side {
    port: Box<dyn Port>,
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    pool: Pool,
    cache: PoolCache,
    burst: Burst,
}

impl Side {
    fn open(drivers: &mut Drivers, spec: &str) -> Result<Self, Box<dyn Error>> {
        let mut port = drivers.open(spec)?;
        let pool = PoolConfig {
            exposed: port.info().exposed_pool,
            ..PoolConfig::new("bench", 4096)
        };
        let pools = Pools::new(vec![Pool::new(&pool)?]);
        let mut queues = port.start(&PortConfig::default(), &pools)?;
        Ok(Self {
            port,
            rx: queues.rx.remove(0),
            tx: queues.tx.remove(0),
            pool: pools.primary().clone(),
            cache: PoolCache::new(pools.as_slice()),
            burst: Burst::with_room(BURST),
        })
    }

    fn send(&mut self, len: u32) {
        let template = RxTemplate {
            len,
            ..RxTemplate::default()
        };
        let burst = &mut self.burst;
        self.cache.fill_with(&self.pool, burst, BURST, template);
        self.tx.tx_burst(burst, &mut self.cache);
    }

    fn receive(&mut self) -> usize {
        let count = self.rx.rx_burst(&mut self.burst, &mut self.cache);
        self.cache.free(&mut self.burst);
        count
    }
}

/// A queue between two ports, and what it took so far.
struct Case {
    name: &'static str,
    bytes: u32,
    driver: Side,
    device: Side,
    slices: Vec<f64>,
}

impl Case {
    fn open(
        (name, options, bytes): (&'static str, &str, u32),
        drivers: &mut Drivers,
    ) -> Result<Self, Box<dyn Error>> {
        let socket = format!("@linerate-virtqueue-{}-{name}", std::process::id());
        let device = Side::open(drivers, &format!("vhost:{socket}"))?;
        let driver = Side::open(drivers, &format!("virtio_user:{socket}{options}"))?;
        let began = Instant::now();
        while [&device, &driver]
            .iter()
            .any(|side| side.port.link() != Link::Up)
        {
            if began.elapsed() > Duration::from_secs(10) {
                return Err("the ports do not see each other".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Self {
            name,
            bytes,
            driver,
            device,
            slices: Vec::new(),
        })
    }

    /// Nanoseconds a frame.
    fn slice(&mut self) {
        let (began, mut frames) = (Instant::now(), 0);
        for _ in 0..SLICE {
            self.driver.send(self.bytes);
            frames += self.device.receive();
        }
        let ns = began.elapsed().as_nanos() as f64;
        self.slices.push(ns / frames.max(1) as f64);
    }

    fn lower_quarter(&mut self) -> f64 {
        self.slices.sort_by(f64::total_cmp);
        self.slices[self.slices.len() / 4]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` only asks whether it starts.
    let Some(slices) = arguments.iter().find_map(|one| one.parse().ok()) else {
        println!("run it with `cargo bench -p linerate-drivers --bench virtqueue -- 1000`");
        return Ok(());
    };
    let cpu = arguments
        .iter()
        .find_map(|argument| argument.strip_prefix("cpu="));
    let cpu = cpu.map(str::parse).transpose()?;
    let lcore = Lcore::spawn("bench", cpu, move || {
        measure(slices, &arguments).map_err(|error| error.to_string())
    })?;
    Ok(lcore.join()??)
}

/// Runs the cases that are named, or all.
fn measure(slices: usize, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let known = || CASES.into_iter().chain(LENT);
    let all = !known().any(|(name, ..)| named(name));
    let mut drivers = Drivers::new();
    let cases = known().filter(|(name, ..)| named(name));
    let cases = cases.chain(CASES.into_iter().filter(|_| all));
    let cases: Result<Vec<Case>, _> = cases.map(|case| Case::open(case, &mut drivers)).collect();
    let mut cases = cases?;
    for _ in 0..slices {
        cases.iter_mut().for_each(Case::slice);
    }
    for case in &mut cases {
        let ns = case.lower_quarter();
        println!("{} {ns:.3}", case.name);
    }
    Ok(())
}
