//! `linerate l2fwd`: forward between ports, each to its neighbour, as DPDK's l2fwd does.
//!
//! Ports 0 and 1 are neighbours, 2 and 3, and so on; an odd last port forwards to itself, or
//! `--pairs` says otherwise. Each io lcore of the plan runs to completion: it polls its share of
//! the queues, rewrites and sends. The rest is [`runtime`]'s.
#![forbid(unsafe_code)]
// Other crates than the binary, which uses two functions, reach in for benchmarks and fuzzing
// alone.
#![allow(missing_docs)]

// Of tests, what they say is kept until they fail.
#[cfg_attr(not(test), macro_use)]
extern crate linerate_appliance;

mod pairs;
pub mod stage;

use std::path::PathBuf;
use std::sync::Arc;

use linerate_core::run::Egress;
use linerate_wire::ethernet::MacAddr;

use linerate_appliance::config::{self, At, PortStanza, Section, Wrong};
use linerate_appliance::control::reload::{Changes, Read, TakeOver};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::{self, Run, RunArgs, RunFile, Running};
use stage::{Forward, Route};

#[derive(Clone, clap::Args)]
pub struct Args {
    /// Ports, each KIND:TARGET[,key=value...]: two or more, forwarded in pairs
    #[arg(value_name = "PORT", required_unless_present = "config")]
    ports: Vec<String>,
    #[arg(
        long,
        help = "Read [plan], [[port]] and [l2fwd] from this TOML file",
        value_name = "FILE"
    )]
    config: Option<PathBuf>,
    /// Who forwards to whom, by name or number: a:b,c:d. Default: 0:1,2:3, an odd last to itself
    #[arg(long, value_name = "A:B,...")]
    pairs: Option<String>,
    /// Leave the MAC addresses as they are
    #[arg(long)]
    no_mac_update: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// A configuration file of this command: what all forwarders have, and in `[l2fwd]` the options
/// under their own names; the command line goes before.
#[derive(Clone, Debug, Default)]
struct File {
    all: RunFile,
    pairs: Option<At<String>>,
    mac_update: Option<bool>,
}

/// What was asked for, from both places, checked.
struct Settings {
    /// What the file says that cannot change.
    fixed: RunFile,
    ports: Vec<PortStanza>,
    path: Path,
    run: Run,
}

/// What becomes of packets: what a reload may change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    /// By port, where its packets go.
    outs: Vec<u16>,
    mac_update: bool,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let settings = Settings::read(args)?;
    let Path { outs, mac_update } = &settings.path;
    // A file may pair the ports otherwise some time.
    let known = args.config.is_none().then_some(&outs[..]);
    let describe = |port: usize| format!(" -> port {}", outs[port]);
    runtime::forward(&settings.run, &settings.ports, known, describe, |sources| {
        let routes = routes(&sources, outs);
        let stage = move |egress: &mut Egress| Forward::new(&routes, *mac_update, egress);
        let read = || read_again(args.clone(), &settings, sources);
        (stage, args.config.is_some().then(read))
    })
}

/// How a reload comes by new pairs: it reads the file, which may say nothing else that is new.
fn read_again(args: Args, settings: &Settings, sources: Vec<MacAddr>) -> Read<Forward> {
    let (fixed, mut now) = (settings.fixed.clone(), settings.path.clone());
    Box::new(move || {
        let new = Settings::read(&args)?;
        let file = args.config.as_deref().unwrap_or(std::path::Path::new(""));
        fixed.refuse_changes(&new.fixed, file, "l2fwd")?;
        let new = new.path;
        let others = new.outs.iter().zip(&now.outs);
        let changes = Changes::default()
            .and(
                "ports",
                "port",
                others.filter(|(new, old)| new != old).count(),
            )
            .and(
                "mac_update",
                "setting of mac_update",
                usize::from(new.mac_update != now.mac_update),
            );
        let (routes, mac_update) = (routes(&sources, &new.outs), new.mac_update);
        now = new;
        let take_over: TakeOver<Forward> = Box::new(move |running: &Running<Forward>| {
            let routes = Arc::new(routes);
            for worker in running.handles() {
                let routes = routes.clone();
                // One that has ended forwards nothing.
                let _ = worker.call(move |worker| {
                    worker.stage = Forward::new(&routes, mac_update, &mut worker.egress);
                });
            }
        });
        Ok((changes, take_over))
    })
}

/// Source and destination addresses as DPDK's l2fwd: the sending port's, and 02:00:00:00:00:NN with
/// its number.
fn routes(sources: &[MacAddr], outs: &[u16]) -> Vec<Route> {
    let route = |&out: &u16| Route {
        out,
        src: sources[usize::from(out)],
        dst: MacAddr::local(out as u8),
    };
    outs.iter().map(route).collect()
}

impl File {
    fn read(file: &Section<'_>) -> Self {
        let own = |section: &Section<'_>| {
            let pairs = section.text("pairs", "a text such as \"wan:lan,2:3\"");
            let mac_update = section.switch("mac_update").map(|at| at.value);
            (pairs, mac_update)
        };
        let (all, (pairs, mac_update)) = RunFile::read(file, "l2fwd", own);
        file.end();
        Self {
            all,
            pairs,
            mac_update,
        }
    }
}

impl Settings {
    fn read(args: &Args) -> Result<Self, Error> {
        let Some(path) = &args.config else {
            let ports = args.stated();
            let outs = pairs::outs(&pairs::names(&ports)?, args.pairs.as_deref());
            return Self::of(args, File::default(), ports, outs.map_err(pairs::usage)?);
        };
        let parsed = config::parse(&config::text(path)?, |section| {
            let file = File::read(section);
            let ports: Vec<PortStanza> = file
                .all
                .ports
                .iter()
                .cloned()
                .chain(args.stated())
                .collect();
            let stated = args.pairs.as_deref();
            let of_file = file.pairs.as_ref().filter(|_| stated.is_none());
            let text = stated.or(of_file.map(|at| at.value.as_str()));
            let outs = pairs::names(&ports).map(|names| pairs::outs(&names, text));
            if let (Ok(Err(wrong)), Some(at)) = (&outs, of_file) {
                let notes = section.notes();
                notes.error(at.line, "l2fwd.pairs", &wrong.problem, &wrong.legal);
            }
            (file, ports, outs)
        });
        let mut wrong = Wrong::default();
        wrong.add(path.display(), parsed.errors);
        let command = format!("linerate l2fwd --config {} --check", path.display());
        wrong.checked_by(command).result()?;
        let (file, ports, outs) = parsed.value;
        Self::of(args, file, ports, outs?.map_err(pairs::usage)?)
    }

    fn of(args: &Args, file: File, ports: Vec<PortStanza>, outs: Vec<u16>) -> Result<Self, Error> {
        let is_paired = args.pairs.is_some() || file.pairs.is_some();
        if let (false, Some(alone)) = (is_paired, pairs::odd_one(&ports)) {
            // As DPDK's l2fwd has it, and says it.
            eprintln!(
                "note: port {} ({}) is without another: what comes in there goes out there \
                 again; name one more, or say by `--pairs` that it is meant so",
                ports.len() - 1,
                alone.called()
            );
        }
        Ok(Self {
            path: Path {
                outs,
                mac_update: !args.no_mac_update && file.mac_update.unwrap_or(true),
            },
            run: args.run.over(&file.all)?,
            fixed: file.all,
            ports,
        })
    }
}

impl Args {
    /// The ports that the command line names.
    fn stated(&self) -> Vec<PortStanza> {
        self.ports
            .iter()
            .map(|spec| PortStanza::stated(spec))
            .collect()
    }
}
