//! `linerate l3fwd`: forward IP packets by static tables, as DPDK's l3fwd does.
//!
//! What to look packets up in is chosen once ([`Mode`]), the table read from rule files in DPDK's
//! syntax ([`mod@file`]) and from TOML ([`config`]), checked as a whole ([`rules`]), and shared by
//! all workers ([`lookup`]). Each io lcore of the plan runs to completion: [`stage`] parses,
//! validates, looks up, rewrites and sends a burst at a time. The rest is [`runtime`]'s.
#![forbid(unsafe_code)]
// Other crates than the binary, which uses two functions, reach in for benchmarks and fuzzing
// alone.
#![allow(missing_docs)]

mod config;
mod file;
pub mod lookup;
mod rules;
pub mod stage;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use linerate_core::env::{Clock, Placement, Plan, Role, Topology};
use linerate_core::port::Spec;
use linerate_tables::rewrite::Macs;
use linerate_wire::MacAddr;
use serde::Deserialize;

use config::File;
use linerate_appliance::config::PortStanza;
use linerate_appliance::error::Error;
use linerate_appliance::output::MachineFacts;
use linerate_appliance::runtime::wiring::{self, PortShape};
use linerate_appliance::runtime::{self, Interrupts, OpenPort, OpenPorts, Run, RunArgs};
use lookup::{ExactMatch, FirstMatch, Longest, Lookup};
use rules::{Destination, NextHops, Ports, Problems, Rules};
use stage::{NextHop, path};

/// Ports have numbers of one byte in DPDK's rule files and addresses.
const MOST_PORTS: usize = 256;

#[derive(clap::Args)]
pub struct Args {
    /// Ports, each KIND:TARGET[,key=value...]; rule files name them by number, from 0
    #[arg(value_name = "PORT", required_unless_present = "config")]
    ports: Vec<String>,
    #[arg(
        long,
        help = "Read [plan], [[port]], [l3fwd] and [[route]], [[flow]] or [[rule]] from this TOML \
            file",
        value_name = "FILE"
    )]
    config: Option<PathBuf>,
    /// What to look packets up by [default: lpm]
    #[arg(long, value_enum)]
    lookup: Option<Mode>,
    /// IPv4 entries in DPDK's syntax: R198.18.0.0/24 0. Without any entries each port N has
    /// 198.18.N.0/24 and 2001:200:0:N::/64 (em: UDP to and from their first two addresses, ports 9)
    #[arg(long, alias = "rule_ipv4", value_name = "FILE")]
    rule_ipv4: Option<PathBuf>,
    /// IPv6 entries in DPDK's syntax: R2001:db8::/32 0
    #[arg(long, alias = "rule_ipv6", value_name = "FILE")]
    rule_ipv6: Option<PathBuf>,
    /// The next hop behind a port, by name or number; default: 02:00:00:00:00:PORT
    #[arg(long, value_name = "PORT,MAC")]
    eth_dest: Vec<String>,
    /// The source address of what a port sends; default: its own, or 02:00:00:00:01:PORT
    #[arg(long, value_name = "PORT,MAC")]
    eth_src: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
}

/// What packets are looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Longest prefix match of the destination
    Lpm,
    /// Exact match of addresses, ports and protocol
    Em,
    /// The same table as lpm: DPDK has two kinds of it, one of which has no default routes
    Fib,
    /// First match in an access list, which forwards and denies
    Acl,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lpm => "lpm",
            Self::Em => "em",
            Self::Fib => "fib",
            Self::Acl => "acl",
        })
    }
}

/// What the table is to hold, and the next hops it leads to.
#[derive(Debug)]
struct Tables {
    hops: NextHops,
    v4: Rules<u32, 1>,
    v6: Rules<u128, 4>,
}

impl Tables {
    fn new(ports: usize) -> Self {
        Self {
            hops: NextHops::new(ports),
            v4: Rules::default(),
            v6: Rules::default(),
        }
    }
}

/// What was asked for, from all places, checked.
struct Settings {
    ports: Vec<PortStanza>,
    mode: Mode,
    tables: Tables,
    /// By port, where the user says so.
    eth_dest: Vec<Option<MacAddr>>,
    eth_src: Vec<Option<MacAddr>>,
    run: Run,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let settings = Settings::read(args)?;
    let Tables { hops, v4, v6 } = &settings.tables;
    let entries = format!("{} IPv4 and {} IPv6 entries", v4.len(), v6.len());
    let describe = |_| format!(" -> {}, {entries}", settings.mode);
    match settings.mode {
        Mode::Lpm | Mode::Fib => {
            let lookup = Longest::new(&v4.routes, &v6.routes)?;
            forward(&settings, hops, describe, lookup)
        }
        Mode::Em => {
            let lookup = ExactMatch::new(&v4.flows, &v6.flows)?;
            forward(&settings, hops, describe, lookup)
        }
        Mode::Acl => {
            let lookup = FirstMatch::new(&v4.acl, &v6.acl)?;
            forward(&settings, hops, describe, lookup)
        }
    }
}

/// Opens the ports and forwards until the end.
fn forward<L: Lookup + Clone>(
    settings: &Settings,
    hops: &NextHops,
    describe: impl Fn(usize) -> String,
    lookup: L,
) -> Result<(), Error> {
    let topology = Topology::machine()?;
    let places = runtime::places(&settings.ports, &topology);
    let plan = Plan::build(&settings.run.plan, &topology, &places)?;
    let interrupts = Interrupts::catch()?;
    let specs: Vec<_> = settings
        .ports
        .iter()
        .map(|port| (port.name.clone(), port.spec.clone()))
        .collect();
    let opened = OpenPorts::open(&specs, Clock::calibrate())?;
    // Before anything runs that would look like stolen time.
    let machine = MachineFacts::gather(&opened.clock)?;
    let hops = settings.hops(hops, &opened.ports);
    let lcores: Vec<&Placement> = plan.role(Role::Io).collect();
    let shape = |port: &OpenPort| PortShape {
        rx_queues: settings.run.options.queues,
        max_tx_queues: port.info.max_tx_queues,
        outs: Vec::new(),
    };
    let shapes: Vec<PortShape> = opened.ports.iter().map(shape).collect();
    // A table may lead anywhere.
    let shares = wiring::spread_all(&shapes, lcores.len());
    let running = opened.start_shares(shares, &lcores, &settings.run.options, |_, egress| {
        path(lookup.clone(), &hops, egress)
    })?;
    runtime::watch(
        running,
        &settings.run.watch,
        describe,
        &machine,
        &interrupts,
    )
}

impl Settings {
    fn read(args: &Args) -> Result<Self, Error> {
        let read = args.config.as_deref().map(config::read).transpose()?;
        let (mut file, text) = read.unwrap_or_default();
        let stated = args.ports.iter().map(|spec| PortStanza {
            name: None,
            spec: spec.clone(),
        });
        let ports: Vec<PortStanza> = file.port.drain(..).chain(stated).collect();
        let names = names(&ports)?;
        let stanza = std::mem::take(&mut file.l3fwd);
        let mode = args.lookup.or(stanza.lookup).unwrap_or(Mode::Lpm);
        let rule_ipv4 = args.rule_ipv4.as_ref().or(stanza.rule_ipv4.as_ref());
        let rule_ipv6 = args.rule_ipv6.as_ref().or(stanza.rule_ipv6.as_ref());
        let toml = args.config.as_deref().map(|path| (path, &file, &*text));
        let tables = tables(mode, &names, rule_ipv4, rule_ipv6, toml)?;
        // The last word on a port counts, and the command line's come last.
        let macs = |key: &str, file: &[String], args: &[String]| {
            let mut macs = vec![None; names.0.len()];
            for text in file.iter().chain(args) {
                let (port, mac) = port_and_mac(key, text, &names)?;
                macs[usize::from(port)] = Some(mac);
            }
            Ok::<_, Error>(macs)
        };
        Ok(Self {
            eth_dest: macs("eth-dest", &stanza.eth_dest, &args.eth_dest)?,
            eth_src: macs("eth-src", &stanza.eth_src, &args.eth_src)?,
            ports,
            mode,
            tables,
            run: args.run.over(file.plan, stanza.run())?,
        })
    }

    /// The next hops with the addresses that the frames get.
    fn hops(&self, hops: &NextHops, ports: &[OpenPort]) -> Vec<NextHop> {
        let src = |port: u16| {
            let at = usize::from(port);
            self.eth_src[at]
                .or(ports[at].info.mac)
                .unwrap_or(MacAddr([2, 0, 0, 0, 1, port as u8]))
        };
        let dst =
            |port: u16| self.eth_dest[usize::from(port)].unwrap_or(MacAddr::local(port as u8));
        let hop = |hop: &Destination| match *hop {
            Destination::Port(port) => NextHop::out(port, Macs::new(dst(port), src(port))),
            Destination::Station(port, mac) => NextHop::out(port, Macs::new(mac, src(port))),
            Destination::Denied => NextHop::denied(),
        };
        hops.hops.iter().map(hop).collect()
    }
}

/// What users call the ports: their names in the file, otherwise `KIND:TARGET`.
fn names(ports: &[PortStanza]) -> Result<Ports, Error> {
    if ports.is_empty() || ports.len() > MOST_PORTS {
        return Err(Error::Usage {
            problem: format!("{} ports to forward between", ports.len()),
            fix: "name one to 256 ports, such as `linerate l3fwd af_packet:eth0 af_packet:eth1`"
                .into(),
        });
    }
    let name = |port: &PortStanza| match &port.name {
        Some(name) => Ok(name.clone()),
        None => Ok(port.spec.parse::<Spec>()?.name()),
    };
    let names: Result<_, Error> = ports.iter().map(name).collect();
    names.map(Ports)
}

/// Reads all entries there are, the rule files' first, or makes DPDK's own where there are none.
fn tables(
    mode: Mode,
    ports: &Ports,
    rule_ipv4: Option<&PathBuf>,
    rule_ipv6: Option<&PathBuf>,
    toml: Option<(&Path, &File, &str)>,
) -> Result<Tables, Error> {
    let mut tables = Tables::new(ports.0.len());
    let mut problems = Problems::default();
    let Tables { hops, v4, v6 } = &mut tables;
    if let Some(path) = rule_ipv4 {
        let (text, source) = (text(path)?, problems.source(path.display().to_string()));
        file::read(&text, source, mode, ports, hops, v4, &mut problems);
    }
    if let Some(path) = rule_ipv6 {
        let (text, source) = (text(path)?, problems.source(path.display().to_string()));
        file::read(&text, source, mode, ports, hops, v6, &mut problems);
    }
    if let Some((path, file, text)) = toml {
        file.entries(path, text, mode, ports, &mut tables, &mut problems);
    }
    problems.result()?;
    if tables.v4.len() + tables.v6.len() > 0 {
        return Ok(tables);
    }
    let Some((v4, v6)) = dpdks_own(mode, ports.0.len()) else {
        return Err(Error::Usage {
            problem: "an access list without entries forwards nothing".into(),
            fix: "give entries with --rule-ipv4, --rule-ipv6 or [[rule]] in the file of --config"
                .into(),
        });
    };
    let mut problems = Problems::default();
    let source = problems.source("built in");
    let all = &mut tables;
    file::read(
        &v4,
        source,
        mode,
        ports,
        &mut all.hops,
        &mut all.v4,
        &mut problems,
    );
    file::read(
        &v6,
        source,
        mode,
        ports,
        &mut all.hops,
        &mut all.v6,
        &mut problems,
    );
    problems.result()?;
    Ok(tables)
}

/// What DPDK's l3fwd forwards without rule files (RFC 2544 C.2.2 and RFC 5180 8 have the
/// addresses), for each of the ports; it has nothing for access lists.
fn dpdks_own(mode: Mode, ports: usize) -> Option<(String, String)> {
    let v4 = |port: usize| match mode {
        Mode::Em => format!("R198.18.{port}.0 198.18.{port}.1 9 9 17 {port}\n"),
        _ => format!("R198.18.{port}.0/24 {port}\n"),
    };
    let v6 = |port: usize| match mode {
        Mode::Em => {
            format!("R2001:200:0:{port:x}:: 2001:200:0:{port:x}::1 9 9 17 {port}\n")
        }
        _ => format!("R2001:200:0:{port:x}::/64 {port}\n"),
    };
    let lines = |line: &dyn Fn(usize) -> String| (0..ports).map(line).collect();
    (mode != Mode::Acl).then(|| (lines(&v4), lines(&v6)))
}

fn text(path: &Path) -> Result<String, Error> {
    // A byte that is no text is the line's problem, not the file's.
    let bytes = std::fs::read(path).map_err(|source| Error::File {
        path: path.into(),
        source,
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `PORT,MAC`, as DPDK's `--eth-dest` has it; names hold commas themselves.
fn port_and_mac(key: &str, text: &str, ports: &Ports) -> Result<(u16, MacAddr), Error> {
    let wrong = |what: &str, fix: String| Error::Usage {
        problem: format!("{key} `{text}`: {what}"),
        fix,
    };
    let (port, mac) = text.rsplit_once(',').ok_or_else(|| {
        let fix = "write a port, a comma and an address, as in 0,02:00:00:00:00:fe".into();
        wrong("it is no port and address", fix)
    })?;
    let port = ports
        .find(port)
        .map_err(|problem| wrong(&problem.what, problem.legal))?;
    let mac = mac
        .parse()
        .map_err(|error: linerate_wire::ethernet::BadMacAddr| {
            wrong("no address follows the comma", error.to_string())
        })?;
    Ok((port, mac))
}
