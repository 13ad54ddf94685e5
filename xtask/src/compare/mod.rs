//! `cargo xtask compare`: linerate and DPDK on this machine, in turns, on the same cores.
//!
//! Read [`rows`] first: the table. Both sides of a row are processes that print one figure; they
//! run ours, peer, ours, peer, for at least five rounds, one at a time, and the medians are
//! compared. [`ours`] runs `linerate bench micro`, [`peer`] our C programs that drive DPDK,
//! [`forward`] DPDK's own applications, [`pair`] two processes of either, [`crossing`] and [`tcp`]
//! the kernel as a router, [`bulk`] and [`lossy`] its TCP, [`http`] web servers, [`guests`] two
//! guests. What is changed on the
//! machine for it (huge pages, namespaces, the session's weight) is undone at the end.

mod absolute;
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

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::OFlags;
use serde_json::json;

use absolute::{ABSOLUTES, Absolute};
use bulk::{Bulk, Way};
use crossing::{Crossing, Job};
use forward::Setting;
use http::{Asking, Http};
use hugepages::Hugepages;
use lossy::Lossy;
use machine::Cpus;
use near::Patience;
use ours::Linerate;
use pair::{Ends, Pair};
use peer::Dpdk;
use report::{Limited, Line, Rounds, Status};
use rows::{Peer, ROWS, Row};
use sample::Sample;
use tcp::Tcp;
use veth::Veth;

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

/// What each side of a row of losses measures in each round, in s: a loss in a hundred is a matter
/// of chance for long.
const LOSSY_SECONDS: f64 = 10.0;

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

/// Whether both sides work on what `linerate bench input` writes.
fn has_input(peer: Peer) -> bool {
    matches!(
        peer,
        Peer::OneCoreInput { .. } | Peer::L3fwd { .. } | Peer::Conntrack { .. }
    )
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

/// Everything that stays the same from row to row.
struct Bench<'a> {
    options: &'a Options,
    cpus: Cpus,
    pages: Hugepages,
    dpdk: Option<Dpdk>,
    /// Our C program, when a row needs it.
    micro: Option<PathBuf>,
    /// The C program of rows of two processes, likewise.
    port: Option<PathBuf>,
    xgen: Option<PathBuf>,
    /// The program of rows whose peer is smoltcp, likewise.
    smoltcp: Option<PathBuf>,
    /// The selected rows of losses, and what they have measured.
    lossy: Vec<Lossy>,
    lossy_rounds: RefCell<BTreeMap<Lossy, Rounds>>,
    linerate: Option<Linerate>,
}

impl<'a> Bench<'a> {
    /// Builds both sides and makes the machine ready.
    fn prepare(
        options: &'a Options,
        rows: &[Row],
        undo: &mut Undo,
    ) -> Result<Bench<'a>, TaskError> {
        let cpus = Cpus::choose()?;
        let is_own = |row: &Row| match row.peer {
            Peer::Nginx(asking) => asking.own,
            peer => matches!(peer, Peer::Own { .. }),
        };
        let needs_no_dpdk = |row: &Row| {
            let Row { peer, .. } = row;
            matches!(
                peer,
                Peer::Own { .. }
                    | Peer::Smoltcp
                    | Peer::Linux(_)
                    | Peer::LinuxTcp { .. }
                    | Peer::LinuxBulk(_)
                    | Peer::Lossy(_)
                    | Peer::Nginx(_)
                    | Peer::Guests
                    | Peer::Conntrack { .. }
            )
        };
        let has_own_dpdk = |row: &Row| matches!(row.peer, Peer::Conntrack { .. });
        let dpdk = (!rows.iter().all(needs_no_dpdk))
            .then(|| Dpdk::find(options.dpdk.as_deref()))
            .transpose()?;
        let is_pair = |row: &Row| matches!(row.peer, Peer::Pair(_));
        let is_micro = |row: &Row| {
            // Without ours, DPDK's side says how far the cores are apart.
            (is_pair(row) && options.peer_only)
                || matches!(
                    row.peer,
                    Peer::OneCore | Peer::OneCoreInput { .. } | Peer::TwoCores | Peer::L3fwd { .. }
                )
        };
        let micro = match &dpdk {
            Some(dpdk) if rows.iter().any(is_micro) => Some(dpdk.build_micro()?),
            _ => None,
        };
        let port = match &dpdk {
            Some(dpdk) if rows.iter().any(is_pair) => Some(dpdk.build_port()?),
            _ => None,
        };
        let on_veth = rows
            .iter()
            .any(|row| matches!(row.peer, Peer::Veth { .. } | Peer::Linux(_)));
        let xgen = on_veth.then(peer::build_xgen).transpose()?;
        let needs_smoltcp = rows.iter().any(|row| row.peer == Peer::Smoltcp);
        let smoltcp = needs_smoltcp.then(smoltcp::build).transpose()?;
        let lossy = rows.iter().filter_map(|row| match row.peer {
            Peer::Lossy(lossy) => Some(lossy),
            _ => None,
        });
        let lossy = lossy.collect();
        let has_input = rows.iter().any(|row| has_input(row.peer));
        let linerate = (!options.peer_only || has_input || rows.iter().any(is_own))
            .then(|| Linerate::build(options.quick))
            .transpose()?;
        let pages = if rows
            .iter()
            .all(|row| needs_no_dpdk(row) && !has_own_dpdk(row))
        {
            Hugepages::Absent("no huge pages needed".into())
        } else {
            let files = testpmd::runtime_folder(&peer::file_prefix());
            undo.add(&format!("rm -rf '{files}'"))?;
            Hugepages::provide(undo)
        };
        Ok(Bench {
            options,
            cpus,
            pages,
            dpdk,
            micro,
            port,
            xgen,
            smoltcp,
            lossy,
            lossy_rounds: RefCell::default(),
            linerate,
        })
    }

    /// All rounds of one row. What goes wrong is part of the line.
    fn measure(&self, row: &Row, patience: &mut Patience) -> Line {
        let wanted = self.options.rounds();
        let mut data = Rounds::default();
        let two = matches!(
            row.peer,
            Peer::TwoCores
                | Peer::Veth { .. }
                | Peer::Linux(_)
                | Peer::LinuxTcp { .. }
                | Peer::LinuxBulk(_)
                | Peer::Lossy(_)
                | Peer::Nginx(_)
                | Peer::Guests
                | Peer::Pair(_)
        );
        if self.cpus.other.is_none() && two {
            data.note = Some("needs two CPUs".into());
        } else if let Err(error) = self.rounds(row, wanted, patience, &mut data) {
            data.note = Some(error.to_string());
            data.failed = true;
        }
        Line::new(row, data, wanted, self.options.peer_only)
    }

    fn rounds(
        &self,
        row: &Row,
        wanted: usize,
        patience: &mut Patience,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let mut undo = Undo::new()?;
        if let Peer::Linux(job) = row.peer {
            return self.crossing(row, job, wanted, &mut undo, data);
        }
        if let Peer::LinuxTcp { plain } = row.peer {
            return self.tcp(row, plain, wanted, &mut undo, data);
        }
        if let Peer::LinuxBulk(way) = row.peer {
            return self.bulk(row, way, wanted, &mut undo, data);
        }
        if let Peer::Lossy(lossy) = row.peer {
            return self.lossy(lossy, wanted, data);
        }
        if let Peer::Nginx(asking) = row.peer {
            return self.http(row, asking, wanted, &mut undo, data);
        }
        if row.peer == Peer::Guests {
            progress(&format!("{}: booting two guests", row.name));
            [data.ours, data.peer] = guests::measure(wanted, self.seconds(row))?;
            return Ok(());
        }
        if let Peer::Pair(pair) = row.peer {
            return self.pair(row, pair, (wanted, patience), &mut undo, data);
        }
        let veth = match row.peer {
            Peer::Veth { tx, .. } => {
                let xgen = self.xgen.clone().expect("built in prepare for these rows");
                let feed_on = if tx { None } else { self.cpus.other };
                Some(Veth::create(&mut undo, xgen, feed_on)?)
            }
            _ => None,
        };
        let input = match &self.linerate {
            Some(linerate) if has_input(row.peer) => {
                progress(&format!("{}: writing what both sides work on", row.name));
                Some(linerate.input(row.name)?)
            }
            _ => None,
        };
        if let (Peer::Conntrack { nat }, Some(input)) = (row.peer, &input) {
            for round in 1..=wanted {
                progress(&format!("{} round {round} of {wanted}", row.name));
                data.ours.extend(self.ours(row, None)?);
                let seconds = self.seconds(row);
                let peer = conntrack::measure(&self.pages, &self.cpus, (input, nat), seconds)?;
                data.peer.push(peer);
            }
            return Ok(());
        }
        let turn = || self.turn(row, veth.as_ref(), input.as_deref());
        let once = row.peer == Peer::OneCoreInput { once: true };
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            let (ours, peer) = if row.peer == Peer::TwoCores {
                let Some(turn) = self.near(patience, data, turn)? else {
                    return Ok(());
                };
                turn
            } else if let (true, Some(peer)) = (once, data.peer.last()) {
                (self.ours(row, veth.as_ref())?, peer.clone())
            } else {
                turn()?
            };
            data.ours.extend(ours);
            data.peer.push(peer);
        }
        Ok(())
    }

    /// What `turn` gave while the cores were near, or none, which the row's note says. A quick run
    /// takes them as they are.
    fn near<T>(
        &self,
        patience: &mut Patience,
        data: &mut Rounds,
        mut turn: impl FnMut() -> Result<T, TaskError>,
    ) -> Result<Option<T>, TaskError> {
        let probe = || self.core_to_core();
        let near = match self.options.quick {
            true => Some((turn()?, probe()?)),
            false => patience.near(probe, turn)?,
        };
        let Some((turn, trip_ns)) = near else {
            data.note = Some(format!(
                "the cores were far apart (round trip over {} ns) and did not come near in time",
                near::NEAR_NS
            ));
            return Ok(None);
        };
        data.trips_ns.push(trip_ns);
        Ok(Some(turn))
    }

    /// The rounds of a row of two processes.
    fn pair(
        &self,
        row: &Row,
        pair: Pair,
        (wanted, patience): (usize, &mut Patience),
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let linerate = self.linerate.as_ref().filter(|_| !self.options.peer_only);
        let seconds = self.seconds(row);
        let version = &self.dpdk.as_ref().expect("found in prepare").version;
        let port = self.port.as_ref().expect("built in prepare for these rows");
        let mut ends = Ends::create(undo, pair, &self.cpus, (port, version), &self.pages)?;
        if self
            .near(patience, data, || ends.choose(row.name, linerate, seconds))?
            .is_none()
        {
            return Ok(());
        }
        data.trips_ns.clear();
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            let turn = || {
                let ours = linerate.map(|linerate| ends.ours(linerate, seconds));
                Ok((ours.transpose()?, ends.peer(seconds)?))
            };
            let Some((ours, peer)) = self.near(patience, data, turn)? else {
                return Ok(());
            };
            data.ours.extend(ours);
            data.peer.push(peer);
        }
        Ok(())
    }

    /// The rounds of a row whose peer is the kernel.
    fn crossing(
        &self,
        row: &Row,
        job: Job,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let xgen = self.xgen.clone().expect("built in prepare for these rows");
        let linerate = self.linerate.as_ref().filter(|_| !self.options.peer_only);
        let seconds = match job {
            // The tables have room for so long.
            Job::New => self.seconds(row).min(1.0),
            _ => self.seconds(row),
        };
        let mut crossing = Crossing::create(undo, job, xgen, &self.cpus)?;
        crossing.choose(row.name, linerate, seconds)?;
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            if let Some(linerate) = linerate {
                data.ours.push(crossing.ours(linerate, seconds)?);
            }
            data.peer.push(crossing.peer(seconds)?);
        }
        Ok(())
    }

    /// The rounds of a row of TCP through the kernel's ports.
    fn tcp(
        &self,
        row: &Row,
        plain: bool,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let linerate = self.linerate.as_ref().filter(|_| !self.options.peer_only);
        let seconds = self.seconds(row);
        let mut tcp = Tcp::create(undo, &self.cpus, plain)?;
        if let Some(linerate) = linerate {
            tcp.choose(row.name, linerate, seconds)?;
        }
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            if let Some(linerate) = linerate {
                data.ours.push(tcp.ours(linerate, seconds)?);
            }
            data.peer.push(tcp.peer(seconds)?);
        }
        Ok(())
    }

    /// The rounds of a row of one TCP connection with an end of ours.
    fn bulk(
        &self,
        row: &Row,
        way: Way,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let linerate = self.linerate.as_ref().filter(|_| !self.options.peer_only);
        let seconds = self.seconds(row);
        let mut bulk = Bulk::create(undo, &self.cpus, way)?;
        bulk.choose(row.name, linerate, seconds)?;
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            if let Some(linerate) = linerate {
                data.ours.push(bulk.ours(linerate, seconds)?);
            }
            data.peer.push(bulk.peer(seconds)?);
        }
        Ok(())
    }

    /// The rounds of a row of losses: those of all selected ones are measured with the first.
    fn lossy(&self, row: Lossy, wanted: usize, data: &mut Rounds) -> Result<(), TaskError> {
        let Some(linerate) = self.linerate.as_ref().filter(|_| !self.options.peer_only) else {
            return Err(TaskError::Missing {
                what: "the links of this row are linerate's".into(),
                fix: "leave out --peer-only".into(),
            });
        };
        let mut measured = self.lossy_rounds.borrow_mut();
        if measured.is_empty() {
            let seconds = self.options.seconds(LOSSY_SECONDS);
            *measured = lossy::measure(&self.lossy, linerate, &self.cpus, (wanted, seconds))?;
        }
        *data = measured.remove(&row).unwrap_or_default();
        Ok(())
    }

    /// The rounds of a row of web servers.
    fn http(
        &self,
        row: &Row,
        asking: Asking,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let linerate = self.linerate.as_ref();
        let ours = linerate.filter(|_| !self.options.peer_only);
        let seconds = self.seconds(row);
        let mut http = Http::create(undo, &self.cpus, asking)?;
        http.choose(row.name, ours, linerate, seconds)?;
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            if let Some(linerate) = ours {
                data.ours.push(http.ours(linerate, seconds)?);
            }
            data.peer.push(http.peer(linerate, seconds)?);
        }
        Ok(())
    }

    /// Ours, if it is asked for, then the peer.
    fn turn(
        &self,
        row: &Row,
        veth: Option<&Veth>,
        input: Option<&Path>,
    ) -> Result<(Option<Sample>, Sample), TaskError> {
        let ours = self.ours(row, veth)?;
        Ok((ours, self.peer(row, self.seconds(row), veth, input)?))
    }

    fn ours(&self, row: &Row, veth: Option<&Veth>) -> Result<Option<Sample>, TaskError> {
        let run = |linerate: &Linerate| linerate.run(row, self.seconds(row), &self.cpus, veth);
        let ours = self.linerate.as_ref().filter(|_| !self.options.peer_only);
        ours.map(run).transpose()
    }

    fn peer(
        &self,
        row: &Row,
        seconds: f64,
        veth: Option<&Veth>,
        input: Option<&Path>,
    ) -> Result<Sample, TaskError> {
        if let Peer::OneCore | Peer::OneCoreInput { .. } | Peer::TwoCores = row.peer {
            return self.micro_peer(row.name, seconds, row.peer == Peer::TwoCores, input);
        }
        if let (Peer::L3fwd { .. }, Some(dpdk)) = (row.peer, &self.dpdk)
            && dpdk.l3fwd()?.is_none()
        {
            let mut sample = self.micro_peer(row.name, seconds, false, input)?;
            sample.peer_name += " (no l3fwd that runs)";
            return Ok(sample);
        }
        if let (Peer::Smoltcp, Some(program)) = (row.peer, &self.smoltcp) {
            return smoltcp::measure(program, row.name, seconds, &self.cpus);
        }
        if let (Peer::Own { row }, Some(linerate)) = (row.peer, &self.linerate) {
            let mut sample = linerate.micro(row, seconds, &self.cpus.list(true))?;
            sample.peer_name = format!("our own {row}");
            return Ok(sample);
        }
        let setting = Setting {
            dpdk: self.dpdk.as_ref().expect("found in prepare"),
            cpus: &self.cpus,
            pages: &self.pages,
            veth,
            input,
            seconds,
        };
        let sample = setting.run(row);
        let (Err(error), Some(value)) = (&sample, rows::published(row)) else {
            return sample;
        };
        Ok(Sample {
            value,
            pages: "unknown".into(),
            peer_name: rows::PUBLISHED_BY.into(),
            detail: Default::default(),
            note: Some(format!("DPDK's driver did not run here: {error}")),
        })
    }

    fn micro_peer(
        &self,
        name: &str,
        seconds: f64,
        two: bool,
        input: Option<&Path>,
    ) -> Result<Sample, TaskError> {
        let program = self
            .micro
            .as_ref()
            .expect("built in prepare for these rows");
        let row = peer::Micro {
            row: name,
            seconds,
            two_cores: two,
            input,
        };
        peer::micro(program, &row, &self.cpus, &self.pages)
    }

    /// The round trip between the cores, by whichever side is there.
    fn core_to_core(&self) -> Result<f64, TaskError> {
        match &self.linerate {
            Some(linerate) => linerate.core_to_core(&self.cpus),
            None => Ok(self.micro_peer("probe.core2core", 0.1, true, None)?.value),
        }
    }

    fn seconds(&self, row: &Row) -> f64 {
        let by_default = match row.peer {
            Peer::OneCore | Peer::OneCoreInput { .. } | Peer::TwoCores | Peer::Smoltcp => 0.5,
            _ => 1.0,
        };
        self.options.seconds(by_default)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

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
