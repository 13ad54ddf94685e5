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

use std::net::SocketAddr;
use std::path::PathBuf;

use linerate_core::env::{Clock, Placement, Plan, Role, Topology};
use linerate_core::run::Egress;
use linerate_wire::ethernet::MacAddr;
use serde::Deserialize;

use linerate_appliance::config::{self, PlanStanza, PortStanza};
use linerate_appliance::error::Error;
use linerate_appliance::output::MachineFacts;
use linerate_appliance::runtime::{self, Interrupts, OpenPort, OpenPorts, Run, RunArgs, RunKeys};
use stage::{L2fwd, Route};

#[derive(clap::Args)]
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

/// A configuration file of this command.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    plan: Option<PlanStanza>,
    #[serde(default)]
    port: Vec<PortStanza>,
    #[serde(default)]
    l2fwd: Stanza,
}

/// `[l2fwd]`: the options under their own names; the command line goes before.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Stanza {
    pairs: Option<String>,
    mac_update: Option<bool>,
    period: Option<f64>,
    duration: Option<f64>,
    queues: Option<u16>,
    burst: Option<u16>,
    pool_slots: Option<u32>,
    sleep: Option<bool>,
    control: Option<PathBuf>,
    metrics: Option<SocketAddr>,
}

impl Stanza {
    fn run(&self) -> RunKeys {
        RunKeys {
            period: self.period,
            duration: self.duration,
            queues: self.queues,
            burst: self.burst,
            pool_slots: self.pool_slots,
            sleep: self.sleep,
            control: self.control.clone(),
            metrics: self.metrics,
        }
    }
}

/// What was asked for, from both places, checked.
struct Settings {
    ports: Vec<PortStanza>,
    outs: Vec<u16>,
    mac_update: bool,
    run: Run,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let settings = Settings::read(args)?;
    let topology = Topology::machine()?;
    let plan = Plan::build(
        &settings.run.plan,
        &topology,
        &runtime::places(&settings.ports, &topology),
    )?;
    let interrupts = Interrupts::catch()?;
    let specs: Vec<_> = settings
        .ports
        .iter()
        .map(|port| (port.name.clone(), port.spec.clone()))
        .collect();
    let opened = OpenPorts::open(&specs, Clock::calibrate())?;
    // Before anything runs that would look like stolen time.
    let machine = MachineFacts::gather(&opened.clock)?;
    let routes = routes(&opened.ports, &settings.outs);
    let lcores: Vec<&Placement> = plan.role(Role::Io).collect();
    let Settings { outs, run, .. } = &settings;
    let Run { watch, options, .. } = run;
    let describe = |port: usize| format!(" -> port {}", outs[port]);
    if settings.mac_update {
        let stage = |egress: &mut Egress| L2fwd::<true>::new(&routes, egress);
        let running = opened.start(outs, &lcores, options, stage)?;
        runtime::watch(running, watch, describe, &machine, &interrupts)
    } else {
        let stage = |egress: &mut Egress| L2fwd::<false>::new(&routes, egress);
        let running = opened.start(outs, &lcores, options, stage)?;
        runtime::watch(running, watch, describe, &machine, &interrupts)
    }
}

/// Source and destination addresses as DPDK's l2fwd: the sending port's own, or one made up for
/// it, and 02:00:00:00:00:NN with its number.
fn routes(ports: &[OpenPort], outs: &[u16]) -> Vec<Route> {
    let route = |&out: &u16| {
        let number = out as u8;
        Route {
            out,
            src: ports[usize::from(out)]
                .info
                .mac
                .unwrap_or(MacAddr([2, 0, 0, 0, 1, number])),
            dst: MacAddr::local(number),
        }
    };
    outs.iter().map(route).collect()
}

impl Settings {
    fn read(args: &Args) -> Result<Self, Error> {
        let file: File = args
            .config
            .as_deref()
            .map(config::read)
            .transpose()?
            .unwrap_or_default();
        let stated = args.ports.iter().map(|spec| PortStanza {
            name: None,
            spec: spec.clone(),
        });
        let ports: Vec<PortStanza> = file.port.into_iter().chain(stated).collect();
        let stanza = file.l2fwd;
        let names = pairs::names(&ports)?;
        let stated = args.pairs.as_deref().or(stanza.pairs.as_deref());
        let outs = pairs::outs(&names, stated)?;
        if let (None, Some(alone)) = (stated, pairs::odd_one(&names)) {
            // As DPDK's l2fwd has it, and says it.
            eprintln!(
                "note: port {} ({alone}) is without another: what comes in there goes out there \
                 again; name one more, or say by `--pairs` that it is meant so",
                names.len() - 1
            );
        }
        Ok(Self {
            ports,
            outs,
            mac_update: !args.no_mac_update && stanza.mac_update.unwrap_or(true),
            run: args.run.over(file.plan, stanza.run())?,
        })
    }
}
