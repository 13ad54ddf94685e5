//! `cargo xtask compare`: linerate and DPDK on this machine, in turns, on the same cores.
//!
//! Read [`rows`] first: the table. Both sides of a row are processes that print one figure; they
//! run ours, peer, ours, peer, for at least five rounds, one at a time, and the medians are
//! compared. [`mod@bench`] runs a row. [`ours`] runs `linerate bench micro`, [`peer`] our C
//! programs that drive DPDK, [`forward`] DPDK's own applications, [`pair`] two processes of either,
//! [`crossing`] and [`tcp`] the kernel as a router, [`bulk`] and [`lossy`] its TCP, [`http`] web
//! servers, [`guests`] two guests. What is changed on the machine for it (huge pages, namespaces,
//! the session's weight) is undone at the end.

mod absolute;
mod bench;
mod bulk;
mod checks;
mod conntrack;
mod crossing;
mod firewall;
mod forward;
mod full_table;
mod guests;
mod http;
mod hugepages;
mod lossy;
mod machine;
mod near;
mod ours;
mod pair;
mod peer;
mod report;
mod rows;
mod sample;
mod smoltcp;
mod stats;
mod stream;
mod tcp;
mod testpmd;
mod veth;

use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::OFlags;
use serde_json::json;

use absolute::{ABSOLUTES, Absolute};
use bench::Bench;
use near::Patience;
use report::{Limited, Status};
use rows::{ROWS, Row};

use crate::error::TaskError;
use crate::undo::Undo;

/// `--only AREA` ends within 10 minutes; after this near cores are not waited for any more.
const WAITING_ENDS: Duration = Duration::from_secs(7 * 60);

#[derive(Args)]
pub(crate) struct Options {
    /// Only rows whose names begin with one of these, like ring.spsc or fwd,veth
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    only: Vec<String>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// An installed DPDK to use instead of the distribution's
    #[arg(long, value_name = "PREFIX")]
    dpdk: Option<PathBuf>,
    /// Rounds of each row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(5..))]
    rounds: u16,
    /// Seconds that each side measures in each round [default: 0.5 for rings and pools, else 1]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Run DPDK's side alone: what this machine's DPDK does
    #[arg(long)]
    peer_only: bool,
    /// One short round over small tables: whether rows run at all. The figures say nothing, and no
    /// target is judged
    #[arg(long, conflicts_with_all = ["rounds", "strict"])]
    quick: bool,
    /// Exit with 3 when a target is missed or a row is unmeasured
    #[arg(long)]
    strict: bool,
}

/// What each side measures in each round of a quick run, in s.
const QUICK_SECONDS: f64 = 0.1;

impl Options {
    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds.into() }
    }

    fn seconds(&self, by_default: f64) -> f64 {
        let by_default = if self.quick {
            QUICK_SECONDS
        } else {
            by_default
        };
        self.seconds.unwrap_or(by_default)
    }
}

/// Rows with a target, and the least ratio that meets it.
pub(crate) fn targets() -> impl Iterator<Item = (&'static str, f64)> {
    ROWS.iter().filter_map(|row| Some((row.name, row.target?)))
}

/// Rows with a peer.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Rows without a peer, and what they may be at most.
pub(crate) fn limits() -> impl Iterator<Item = (&'static str, f64)> {
    ABSOLUTES
        .iter()
        .filter_map(|row| Some((row.name, row.limit?)))
}

/// Runs the selected rows and prints what came out.
pub(crate) fn run(options: &Options) -> Result<ExitCode, TaskError> {
    Ok(exit_code(&compare(options)?, options.strict))
}

/// What became of the selected rows, which are printed.
fn compare(options: &Options) -> Result<Vec<Status>, TaskError> {
    let started = Instant::now();
    let (rows, absolutes) = select(options)?;
    let _alone = wait_until_alone()?;
    let mut undo = Undo::new()?;
    let bench = Bench::prepare(options, &rows, &mut undo)?;
    let waiting = if options.quick {
        Duration::ZERO
    } else {
        near::PATIENCE
    };
    let mut patience = Patience::new(waiting, started + WAITING_ENDS);

    let weight = machine::weigh_session(&mut undo)?;
    let pages = bench.pages.describe();
    let version = bench.dpdk.as_ref().map(|dpdk| dpdk.version.as_str());
    let mut facts = machine::facts(&bench.cpus, &pages, &weight, version);
    if !options.json {
        println!("{}", describe(&facts));
        println!("{}", report::HEAD);
    }

    let stolen_before = machine::stolen_ticks();
    let (mut documents, mut statuses) = (Vec::new(), Vec::new());
    for row in &rows {
        let mut line = bench.measure(row, &mut patience);
        line.status = line.status.judged(!options.quick);
        if !options.json {
            println!("{}", line.text());
        }
        documents.push(line.json());
        statuses.push(line.status);
    }
    for row in absolutes {
        progress(row.name);
        let value =
            (row.measure)(bench.linerate.as_ref(), &bench.cpus).map_err(|error| error.to_string());
        let line = Limited::new(row, value, !options.quick);
        if !options.json {
            println!("{}", line.text());
        }
        documents.push(line.json());
        statuses.push(line.status());
    }
    let stolen = machine::stolen_ticks();
    let ticks = (stolen.1 - stolen_before.1).max(1) as f64;
    let stolen_percent = 100.0 * (stolen.0 - stolen_before.0) as f64 / ticks;
    if options.json {
        facts["stolen_percent"] = json!(stolen_percent);
        println!("{}", json!({ "machine": facts, "rows": documents }));
    } else {
        println!("stolen by the host meanwhile: {stolen_percent:.1}% of all CPU time");
    }
    Ok(statuses)
}

fn exit_code(statuses: &[Status], strict: bool) -> ExitCode {
    if statuses.contains(&Status::Failed) {
        return ExitCode::FAILURE;
    }
    let fell_short = [Status::Missed, Status::Unmeasured]
        .iter()
        .any(|status| statuses.contains(status));
    ExitCode::from(if strict && fell_short { 3 } else { 0 })
}

fn select(options: &Options) -> Result<(Vec<Row>, Vec<&'static Absolute>), TaskError> {
    let only = &options.only;
    let rows: Vec<Row> = ROWS
        .iter()
        .filter(|row| rows::selected(row.name, only))
        .copied()
        .collect();
    let absolutes: Vec<&Absolute> = ABSOLUTES
        .iter()
        .filter(|row| rows::selected(row.name, only))
        .filter(|row| !only.is_empty() || !row.on_request)
        .filter(|_| !options.peer_only)
        .collect();
    if rows.is_empty() && absolutes.is_empty() {
        let names = ROWS.iter().map(|row| row.name);
        let mut areas: Vec<&str> = names
            .chain(ABSOLUTES.iter().map(|row| row.name))
            .filter_map(|name| name.split('.').next())
            .collect();
        areas.dedup();
        return Err(TaskError::Missing {
            what: format!("no row's name begins with {}", only.join(" or ")),
            fix: format!("the areas are {}", areas.join(", ")),
        });
    }
    Ok((rows, absolutes))
}

/// One measuring process at a time on this machine: the lock of the running comparison.
fn wait_until_alone() -> Result<std::fs::File, TaskError> {
    let path = std::env::temp_dir().join("linerate-compare.lock");
    // The name is known to all, so that they meet: nothing is written, and no link followed.
    let open = std::fs::File::options()
        .create(true)
        .append(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path);
    let file = open.map_err(TaskError::file(&path))?;
    if file.try_lock().is_err() {
        progress("waiting for another comparison on this machine to end");
        file.lock().map_err(TaskError::file(&path))?;
    }
    Ok(file)
}

/// The facts as lines for people.
fn describe(facts: &serde_json::Value) -> String {
    let fact = |key: &str| match &facts[key] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "none".into(),
        other => other.to_string(),
    };
    format!(
        "{}, {} CPUs{}; Linux {}; rustc and cc: {}; {}\nworker on CPU {}, the other on {}; {}; {}; \
         DPDK {}",
        fact("cpu"),
        fact("cpus"),
        if facts["hypervisor"] == true {
            ", a virtual machine"
        } else {
            ""
        },
        fact("kernel"),
        fact("rustc"),
        fact("cc"),
        fact("worker_cpu"),
        fact("other_cpu"),
        fact("scheduling"),
        fact("pages"),
        fact("dpdk"),
    )
}

fn progress(what: &str) {
    eprintln!("  .. {what}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::machine::Cpus;
    use super::peer::Dpdk;
    use super::*;
    use crate::process;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// That every row of these areas runs, on both sides. Whoever is slow is not asked here.
    fn run(areas: &str) {
        let line = ["compare", "--quick", "--only", areas];
        let statuses = compare(&Line::parse_from(line).options).unwrap();
        assert!(
            !statuses.is_empty() && !statuses.contains(&Status::Failed),
            "{statuses:?}"
        );
        assert!(!statuses.contains(&Status::Unmeasured), "{statuses:?}");
    }

    /// Why the rows cannot run here, where they cannot.
    fn cannot_run(programs: &[&str]) -> Option<String> {
        let is_missing = |program: &&&str| process::find_program(program).is_none();
        if let Some(program) = programs.iter().find(is_missing) {
            return Some(format!("needs the program {program}"));
        }
        match Cpus::choose() {
            Ok(Cpus { other: Some(_), .. }) => (!process::is_root()).then(|| "not root".into()),
            _ => Some("needs two CPUs".into()),
        }
    }

    #[test]
    #[ignore = "long: builds linerate, and TCP in five forms"]
    fn rows_of_the_router_over_veth_run() {
        match cannot_run(&["cc", "ip", "ethtool", "iperf3", "taskset"]) {
            Some(reason) => println!("SKIP {reason}"),
            None => run("router.veth"),
        }
    }

    #[test]
    #[ignore = "long: builds linerate, and TCP over a TAP and over bad links"]
    fn rows_of_tcp_beside_linux_run() {
        match cannot_run(&["cc", "ip", "ethtool", "taskset"]) {
            Some(reason) => println!("SKIP {reason}"),
            None => run("tcp.bulk.tap,tcp.lossy,tcp.fair"),
        }
    }

    #[test]
    #[ignore = "long: builds linerate, and asks two web servers in two ways"]
    fn rows_of_web_servers_run() {
        match cannot_run(&["ip", "ethtool", "nginx", "wrk", "taskset", "ss"]) {
            Some(reason) => println!("SKIP {reason}"),
            None => run("http."),
        }
    }

    #[test]
    #[ignore = "long: builds linerate, and runs twice nine pairs of processes"]
    fn rows_of_two_processes_run() {
        let reason = cannot_run(&["cc", "pkg-config"]);
        match reason.or_else(|| Dpdk::find(None).err().map(|error| error.to_string())) {
            Some(reason) => println!("SKIP {reason}"),
            None => run("memif,vhost.oneway,vhost.echo,shm"),
        }
    }
}
