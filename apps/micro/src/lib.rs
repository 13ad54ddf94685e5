//! Micro-benchmarks: rows that time this program's own parts, and what other programs need to work
//! on the same. `linerate bench` runs them.
#![forbid(unsafe_code)]
#![allow(missing_docs)]

mod acl;
mod balance;
mod epc;
mod epc_gtpu;
mod exact;
mod flow;
mod forward;
mod gateway;
mod gateway_balance;
mod gateway_cps;
mod http;
pub mod l3fwd;
mod lpm;
mod lpm4;
mod lpm6;
mod memif;
mod meter;
mod parse;
mod pktgen;
mod pktgen_rx;
mod policy;
mod pool;
pub mod port;
mod probe;
mod random;
mod reassembly;
mod ring;
pub mod router;
mod router_fpm;
mod router_updates;
mod rss;
mod shared;
mod shm;
mod steer;
mod steer_move;
mod steer_talk;
mod tcp;
mod tcp_bulk;
mod tcp_conn;
mod tcp_flood;
mod tcp_rr;
mod tcp_rtt;
mod timers;
mod vhost;
mod zebra;

use std::path::Path;
use std::time::{Duration, Instant};

use linerate_core::env::{CpuList, Lcore};
use serde::Serialize;

use linerate_appliance::error::Error;
use linerate_appliance::output;

/// What a row measured.
#[derive(Serialize)]
pub struct Sample {
    row: &'static str,
    value: f64,
    unit: &'static str,
    /// What backs the memory that the row works on.
    pages: String,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub detail: serde_json::Map<String, serde_json::Value>,
}

impl Sample {
    pub fn new(row: &'static str, value: f64, unit: &'static str, pages: impl ToString) -> Self {
        Self {
            row,
            value,
            unit,
            pages: pages.to_string(),
            detail: serde_json::Map::new(),
        }
    }

    /// As one line, or as one JSON object.
    pub fn print(&self, json: bool) -> Result<(), Error> {
        let line = match json {
            true => serde_json::to_string(self).map_err(std::io::Error::from)?,
            false => format!(
                "{:28} {:10.3} {:5} {}",
                self.row, self.value, self.unit, self.pages
            ),
        };
        output::print(&format!("{line}\n"))
    }

    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.detail.insert(key.into(), value.into());
        self
    }
}

/// How a row is to be run.
pub struct Run {
    pub duration: Duration,
    /// The CPUs of the first and the second lcore.
    pub cpus: [u32; 2],
    /// Whether to use small tables, which makes the figure meaningless.
    pub quick: bool,
}

impl Run {
    /// A short run over small tables, on one CPU.
    pub fn quick() -> Self {
        let cpu = linerate_core::env::allowed_cpus()
            .expect("this thread runs")
            .as_slice()[0];
        Self {
            duration: Duration::from_millis(10),
            cpus: [cpu; 2],
            quick: true,
        }
    }

    /// Calls `turn` until the time is over, a tenth of it beforehand to warm up. Returns
    /// nanoseconds per element; `turn` says how many elements it passed.
    fn time(&self, mut turn: impl FnMut() -> u64) -> f64 {
        self.time_for(self.duration / 10, &mut turn);
        self.time_for(self.duration, &mut turn)
    }

    fn time_for(&self, duration: Duration, turn: &mut impl FnMut() -> u64) -> f64 {
        let began = Instant::now();
        let mut elements = 0;
        loop {
            // The clock is read once per many turns.
            for _ in 0..256 {
                elements += turn();
            }
            let elapsed = began.elapsed();
            if elapsed >= duration {
                return elapsed.as_nanos() as f64 / elements.max(1) as f64;
            }
        }
    }

    /// Runs `work` on the first CPU.
    fn pinned<T: Send + 'static>(
        self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let cpu = self.cpus[0];
        Ok(Lcore::spawn("bench", Some(cpu), move || work(&self))?.join()?)
    }
}

/// One row: its name, what it says, and how it runs.
pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&'static str, Run) -> Result<Sample, Error>,
}

/// The input of a row, for other programs: the row's name and the function that writes its file.
pub struct Input {
    pub row: &'static str,
    pub write: fn(&Path) -> Result<(), Error>,
}

/// One curve of `bench growth`: how a table grows with what it holds, in time and in memory.
pub struct Growth {
    pub name: &'static str,
    /// What is counted: "routes", "rules", "entries".
    pub of: &'static str,
    pub sizes: &'static [u64],
    pub run: fn(u64, Run) -> Result<Point, Error>,
}

/// One point of a curve.
pub struct Point {
    /// Nanoseconds per lookup.
    pub ns: f64,
    /// All memory of the table over what it holds.
    pub bytes_each: f64,
}

pub fn rows() -> impl Iterator<Item = &'static Row> {
    let rooms = [
        probe::ROWS,
        ring::ROWS,
        pool::ROWS,
        forward::ROWS,
        memif::ROWS,
        vhost::ROWS,
        shm::ROWS,
        l3fwd::ROWS,
        router::ROWS,
        gateway::ROWS,
        gateway_balance::ROWS,
        gateway_cps::ROWS,
        steer::ROWS,
        epc::ROWS,
        epc_gtpu::ROWS,
        steer_move::ROWS,
        steer_talk::ROWS,
        parse::ROWS,
        rss::ROWS,
        exact::ROWS,
        lpm4::ROWS,
        lpm6::ROWS,
        acl::ROWS,
        flow::ROWS,
        timers::ROWS,
        meter::ROWS,
        balance::ROWS,
        reassembly::ROWS,
        pktgen::ROWS,
        pktgen_rx::ROWS,
        router_fpm::ROWS,
        router_updates::ROWS,
        tcp_rr::ROWS,
        tcp_rtt::ROWS,
        tcp_bulk::ROWS,
        tcp_conn::ROWS,
        tcp_flood::ROWS,
        http::ROWS,
    ];
    rooms.into_iter().flatten()
}

pub fn inputs() -> impl Iterator<Item = &'static Input> {
    let rooms = [
        l3fwd::INPUTS,
        gateway::INPUTS,
        lpm4::INPUTS,
        lpm6::INPUTS,
        acl::INPUTS,
    ];
    rooms.into_iter().flatten()
}

pub fn growths() -> impl Iterator<Item = &'static Growth> {
    let rooms = [
        exact::GROWTH,
        lpm4::GROWTH,
        lpm6::GROWTH,
        acl::GROWTH,
        parse::GROWTH,
        rss::GROWTH,
        flow::GROWTH,
        policy::GROWTH,
        timers::GROWTH,
        tcp_rr::GROWTH,
    ];
    rooms.into_iter().flatten()
}

/// The CPUs of the first and the second lcore.
pub fn cpus(list: Option<&str>) -> Result<[u32; 2], Error> {
    let allowed: Vec<u32> = match list {
        Some(list) => CpuList::parse("cpus", list)?.iter().collect(),
        None => linerate_core::env::allowed_cpus()
            .map_err(Error::Output)?
            .iter()
            .collect(),
    };
    let first = allowed.first().copied().unwrap_or(0);
    Ok([first, allowed.get(1).copied().unwrap_or(first)])
}
