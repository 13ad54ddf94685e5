//! `linerate steer`: user-space TCP on every lcore, and packets brought to the lcore that has their
//! connection.
//!
//! | room | what |
//! |---|---|
//! | [`config`] | the file |
//! | [`app`] | what an application is, and the stage that runs it on a stack |
//! | [`echo`], [`stream`], [`proxy`], [`http`], [`epc`] | the applications |
//! | [`relay`], [`pattern`] | bytes from one connection to another, and bytes that are made up |
//! | [`by_user`] | connections that go to the lcore of their user first |
//! | [`lcore`], `forms` | what an lcore runs; which lcores receive, own and send |
//! | [`core`] | a stack behind steering, and how connections move |
//! | [`steering`] | who owns a connection, and how its packets get there |
//! | `reload` | how a changed file is taken over while connections live |
//! | `show` | what `linerate ctl` shows |
#![forbid(unsafe_code)]

pub mod app;
pub mod by_user;
pub mod config;
pub mod core;
pub mod echo;
pub mod epc;
mod forms;
pub mod http;
pub mod lcore;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod line;
pub mod pattern;
pub mod proxy;
pub mod relay;
mod reload;
mod show;
pub mod steering;
pub mod stream;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use linerate_appliance::config as config_file;
use linerate_appliance::control::answers::Places;
use linerate_appliance::error::Error;
use linerate_appliance::output::MachineFacts;
use linerate_appliance::privilege::Named;
use linerate_appliance::runtime::wiring::{self, Share};
use linerate_appliance::runtime::{
    self, Interrupts, OpenPorts, Options, RunArgs, Separation, watch,
};
use linerate_appliance::supplement::{Supplement, Supplements};
use linerate_core::env::{Clock, Placement, Plan, Role, Topology};
use linerate_dispatch::Owners;
use linerate_tables::rss::Model;
use linerate_wire::ethernet::HEADER_LEN;

use app::Numbers;
use config::{File, PortFacts};
use lcore::{AppMaker, Lcore, Maker, Several};
use reload::Again;
use steering::Cores;
use steering::map::MapConfig;
use steering::plan::{self, Arrival, Member, PortPlan};

/// Slots of the main pool where nobody says otherwise: packets wait in sockets until they are read.
const POOL_SLOTS: u32 = 32_768;

/// Connections that can be on their way from one lcore to another.
const ON_THE_WAY: usize = 64;
/// Packets and bytes that wait for a neighbour, at most, where connections move.
const MOVED_PKTS: usize = 1024;
const MOVED_BYTES: usize = 4 << 20;

/// Arguments of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The file: [plan], [[port]], [steer], [[interface]], [[route]], [tcp] and [[app]]
    #[arg(value_name = "CONF.toml", required_unless_present = "print")]
    config: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
    /// Print a file that comes with the program, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    print: Option<Supplement>,
}

/// The files that it comes with.
const SUPPLEMENTS: Supplements = Supplements {
    example: include_str!("../../../packaging/steer.toml"),
    unit: include_str!("../../../packaging/linerate-steer.service"),
    sysusers: include_str!("../../../packaging/linerate.sysusers"),
    dashboard: include_str!("../../../docs/grafana/steer.json"),
};

/// Runs the applications of a file, or checks it.
///
/// # Errors
/// What is wrong with the file or the machine, or went wrong at the end.
pub fn run(args: &Args) -> Result<(), Error> {
    if let Some(supplement) = args.print {
        return SUPPLEMENTS.print(supplement);
    }
    // clap requires it without `--print`.
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let said = File::read(path)?;
    let mut file = said.clone();
    let mut run = args.run.over(&file.all)?;
    let slots = *run.options.pool_slots.get_or_insert(POOL_SLOTS);
    // What waits to be read leaves slots for what arrives.
    file.stack.received_pkts = file.stack.received_pkts.min(slots / 2);
    if file.mode.application {
        // A stack to which a connection has moved may not have met its neighbours: a whole window
        // waits for their answer.
        let neighbours = &mut file.stack.host.neighbours;
        neighbours.queue_pkts = neighbours.queue_pkts.max(MOVED_PKTS);
        neighbours.queue_bytes = neighbours.queue_bytes.max(MOVED_BYTES);
    }
    let topology = Topology::machine()?;
    let ports = &file.all.ports;
    let places = runtime::places(ports, &topology);
    let plan = Plan::build(&run.plan, &topology, &places)?;
    let roles: &[Role] = match file.mode.distributor {
        None => &[Role::Bg, Role::Io],
        Some(_) => &Role::ALL,
    };
    let plan = plan.of_roles(roles, &topology, &places);
    let names: Vec<&str> = file.apps.iter().map(|app| app.name.as_str()).collect();
    let describe = |_| format!(" -> {}", names.join(", "));
    if run.check {
        return runtime::planned(ports, &plan, describe);
    }
    // Before there are threads: capabilities and users are each thread's own.
    let places = &run.watch.places;
    let separation = Separation::make(path, ports, places, file.user.clone())?;
    let interrupts = Interrupts::catch()?;
    let specs: Vec<_> = ports
        .iter()
        .map(|port| (port.name.clone(), port.spec.clone()))
        .collect();
    let opened = OpenPorts::open_among(&mut separation.drivers(), &specs, Clock::calibrate())?;
    let opened = opened.with_large_slots();
    run.watch.separation = Some(separation.clone());
    let machine = MachineFacts::gather(&opened.clock)?;
    let io: Vec<&Placement> = plan.role(Role::Io).collect();
    let eu: Vec<&Placement> = plan.role(Role::Eu).collect();
    let started = start(&file, &mut run.options, opened, (&io, &eu))?;
    let again = Again {
        path: path.into(),
        separation,
        // One number after the other, as lcores have given them.
        numbers: (0..).take(file.apps.len()).collect(),
        now: said,
        in_use: started.numbers,
        ports: started.ports,
        members: started.members,
        maker: started.apps,
        replaced: Vec::new(),
    };
    let (read, more) = (Some(again.reading()), Some(show::MORE));
    watch(
        started.running,
        &run.watch,
        describe,
        read,
        more,
        &machine,
        &interrupts,
    )
}

/// What the file at `path` needs privileges for, for the privilege helper; `None` where it is
/// another appliance's.
///
/// # Errors
/// It cannot be read, or is wrong.
pub fn named(path: &Path) -> Option<Result<Named, Error>> {
    let text = config_file::text(path).ok()?;
    // Not all of it: applications have read their files with this process's privileges.
    let parsed = config_file::parse(&text, |file| {
        let is_ours = file.has("app") || file.has("steer");
        is_ours.then(|| File::names(file))
    });
    parsed.value.as_ref()?;
    let named = parsed.checked(path).map(|names| {
        let (all, own) = names?;
        let places = Places {
            control: all.keys.control,
            metrics: None,
        };
        Some(Separation::named(&all.ports, &places, own.user))
    });
    named.transpose()
}

/// What has been started.
struct Started {
    running: runtime::Running<Lcore>,
    members: Vec<Member>,
    apps: AppMaker,
    numbers: Arc<Numbers>,
    ports: Vec<PortFacts>,
}

/// Starts the lcores, of those of the roles io and eu that the file's mode takes.
fn start(
    file: &File,
    options: &mut Options,
    opened: OpenPorts,
    (io, eu): (&[&Placement], &[&Placement]),
) -> Result<Started, Error> {
    let lcores = forms::lcores(&file.mode, io, eu)?;
    let forms::Form { shares, members } = forms::form(&file.mode, options, &opened, &lcores);
    let first = opened.ports.len() as u16;
    let owners = lcores.owners;
    let several = match shares.len() {
        1 => None,
        _ => {
            let plan = steering_plan(&opened, &shares, &members, owners)?;
            // By number of an lcore: the outlet that leads to it.
            let mut outlets = vec![0; members.len()];
            for (outlet, &member) in (first..).zip(&members) {
                outlets[usize::from(member)] = outlet;
            }
            // One home for all has entries of the connections of all lcores; of several each has
            // its share.
            let each = file.stack.connections as usize;
            let usual = match file.mode.arrives {
                config::Arrives::Software => (each * owners).min(config::MOST_ENTRIES),
                config::Arrives::Hardware => each,
            };
            let entries = file.mode.map_entries.unwrap_or(usual);
            let map = file.mode.application.then(|| MapConfig {
                connections4: entries,
                connections6: entries,
                ..MapConfig::default()
            });
            Some(Several {
                plan: Arc::new(plan),
                outlets,
                map,
                cores: Cores::new(by_user::seed(), Owners::dealt(owners)),
                posts: core::mesh(owners as Member, ON_THE_WAY)
                    .into_iter()
                    .map(Some)
                    .collect(),
            })
        }
    };
    let numbers = Arc::new(Numbers::default());
    for _ in &file.apps {
        // There are 256 at most, as the file was checked.
        numbers.take(owners);
    }
    let ports = port_facts(&opened);
    let on = |interface: &config::Interface| interface.on(&ports[usize::from(interface.port)]);
    let mut maker = Maker {
        file,
        interfaces: file.interfaces.iter().map(on).collect(),
        clock: opened.clock,
        several,
    };
    let apps = maker.apps();
    let mut failed = None;
    let running = opened.start_shares(shares, &lcores.placements, options, |index, out| {
        let made = maker.lcore(members[index], out);
        let mut lcore = made.unwrap_or_else(|error| {
            failed.get_or_insert(error);
            Lcore::Nothing
        });
        if let Some(parts) = lcore.parts() {
            parts.apps.set_numbers(numbers.clone());
        }
        lcore
    })?;
    match failed {
        None => Ok(Started {
            running,
            members,
            apps,
            numbers,
            ports,
        }),
        Some((stanza, problem)) => Err(Error::Usage {
            problem: format!("{stanza}: {problem}"),
            fix: format!("change {stanza} in the file"),
        }),
    }
}

/// Who owns what: by the hash of the NIC where its model is known, else by one of our own.
/// `members` are the numbers of the lcores that have the shares; the first `owners` numbers have
/// connections.
fn steering_plan(
    opened: &OpenPorts,
    shares: &[Share],
    members: &[Member],
    owners: usize,
) -> Result<plan::Plan, Error> {
    let (secret, dealt) = (plan::secret(), Owners::dealt(owners));
    let mut ports = Vec::with_capacity(opened.ports.len());
    for open in &opened.ports {
        let polls = |queue: u16| {
            let poll = (open.number, queue);
            let of = shares.iter().position(|share| share.polls.contains(&poll));
            of.map_or(0, |of| members[of])
        };
        let queues = wiring::rx_queues(shares, open.number);
        let homes: Vec<Member> = (0..queues).map(polls).collect();
        let model = open.port.rss().filter(|_| usize::from(queues) == owners);
        let port = match (model, &homes[..]) {
            (Some(setup), [_, _, ..]) => PortPlan::hardware(&Model::of_port(&setup)?, &homes)?,
            (_, &[home]) => PortPlan::software(&secret, &dealt, Arrival::One(home))?,
            _ => PortPlan::software(&secret, &dealt, Arrival::Any(homes))?,
        };
        ports.push(port);
    }
    Ok(plan::Plan::new(ports, owners as Member))
}

/// What ports say of interfaces on them.
fn port_facts(opened: &OpenPorts) -> Vec<PortFacts> {
    let of = |open: &runtime::OpenPort| PortFacts {
        mac: runtime::source(open),
        longest: open.info.max_frame_bytes.saturating_sub(HEADER_LEN),
        tx_offloads: open.info.tx_offloads,
    };
    opened.ports.iter().map(of).collect()
}
