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

use std::fmt;
use std::path::{Path, PathBuf};

use linerate_core::run::Egress;
use linerate_tables::TableError;
use linerate_tables::rewrite::Macs;
use linerate_wire::MacAddr;

use config::File;
use linerate_appliance::config::{At, ConfigError, PortStanza};
use linerate_appliance::control::reload::{self, Changes, Read, TakeOver};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::{self, Run, RunArgs, RunFile, Running};
use lookup::{ExactMatch, FirstMatch, Longest, Lookup};
use rules::{Destination, NextHops, Ports, Problems, Rules, WrongKey};
use stage::{NextHop, path};

/// Ports have numbers of one byte in DPDK's rule files and addresses.
const MOST_PORTS: usize = 256;

#[derive(Clone, clap::Args)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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

impl Mode {
    const ALL: [Self; 4] = [Self::Lpm, Self::Em, Self::Fib, Self::Acl];

    const fn name(self) -> &'static str {
        match self {
            Self::Lpm => "lpm",
            Self::Em => "em",
            Self::Fib => "fib",
            Self::Acl => "acl",
        }
    }

    /// What its entries are called: the key of how many are new, what those are, and the same of
    /// those that are gone.
    const fn entries(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Lpm | Self::Fib => [
                ("routes_added", "route added"),
                ("routes_removed", "route removed"),
            ],
            Self::Em => [
                ("flows_added", "flow added"),
                ("flows_removed", "flow removed"),
            ],
            Self::Acl => [
                ("rules_added", "rule added"),
                ("rules_removed", "rule removed"),
            ],
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
    /// What the file says that cannot change.
    fixed: RunFile,
    ports: Vec<PortStanza>,
    mode: Mode,
    tables: Tables,
    macs: PortMacs,
    run: Run,
}

/// Addresses by port, where the user says them.
#[derive(Clone, Debug, PartialEq)]
struct PortMacs {
    /// Of the station behind it.
    dst: Vec<Option<MacAddr>>,
    /// Of what it sends.
    src: Vec<Option<MacAddr>>,
}

/// Forwards by the tables that were asked for.
pub fn run(args: &Args) -> Result<(), Error> {
    let settings = Settings::read(args)?;
    let (mode, Tables { v4, v6, .. }) = (settings.mode, &settings.tables);
    let entries = format!("{} IPv4 and {} IPv6 entries", v4.len(), v6.len());
    let describe = |_| format!(" -> {mode}, {entries}");
    let lookup = settings.lookup()?;
    let (run, ports) = (settings.run.clone(), settings.ports.clone());
    // A table may lead anywhere.
    runtime::forward(&run, &ports, None, describe, |own| {
        let hops = settings.hops(&own);
        let stage = move |egress: &mut Egress| path(lookup.share(), &hops, egress);
        let read = || read_again(args.clone(), settings, own);
        (stage, args.has_files().then(read))
    })
}

/// How a reload comes by new tables: it reads all files again, and makes them.
fn read_again(args: Args, mut now: Settings, own: Vec<MacAddr>) -> Read<stage::Path> {
    Box::new(move || {
        let new = Settings::read(&args)?;
        let file = args.config.as_deref().unwrap_or(Path::new(""));
        now.fixed.refuse_changes(&new.fixed, file, "l3fwd")?;
        if new.mode != now.mode {
            reload::refuse(file, "l3fwd", &["l3fwd.lookup".into()])?;
        }
        let changes = now.changes(&new);
        let (lookup, hops) = (new.lookup()?, new.hops(&own));
        now = new;
        let take_over: TakeOver<stage::Path> = Box::new(move |running: &Running<_>| {
            for worker in running.handles() {
                let (lookup, hops) = (lookup.share(), hops.clone().into());
                // What it had is freed here, not by the worker. One that has ended needs none.
                drop(worker.call(move |worker| stage::exchange(&mut worker.stage, lookup, hops)));
            }
        });
        Ok((changes, take_over))
    })
}

impl Args {
    /// The ports that the command line names.
    fn stated(&self) -> impl Iterator<Item = PortStanza> {
        self.ports.iter().map(|spec| PortStanza::stated(spec))
    }

    /// Whether anything was read from files, and can be read again.
    fn has_files(&self) -> bool {
        [&self.config, &self.rule_ipv4, &self.rule_ipv6]
            .into_iter()
            .any(Option::is_some)
    }
}

impl Settings {
    fn read(args: &Args) -> Result<Self, Error> {
        // Without a file there is an empty one.
        let toml = args.config.as_deref();
        let text = toml.map(linerate_appliance::config::text).transpose()?;
        let parsed = linerate_appliance::config::parse(&text.unwrap_or_default(), File::read);
        let file = parsed.value;
        let all = file.all.ports.iter().cloned();
        let ports: Vec<PortStanza> = all.chain(args.stated()).collect();
        let names = Ports(ports.iter().map(PortStanza::called).collect());
        let mode = args.lookup.or(file.own.lookup).unwrap_or(Mode::Lpm);
        let (mut tables, mut problems) = (Tables::new(ports.len()), Problems::default());
        let Tables { hops, v4, v6 } = &mut tables;
        if let Some(path) = args.rule_ipv4.as_ref().or(file.own.rule_ipv4.as_ref()) {
            let (text, source) = (text_of(path)?, problems.source(path.display()));
            file::read(&text, source, mode, &names, hops, v4, &mut problems);
        }
        if let Some(path) = args.rule_ipv6.as_ref().or(file.own.rule_ipv6.as_ref()) {
            let (text, source) = (text_of(path)?, problems.source(path.display()));
            file::read(&text, source, mode, &names, hops, v6, &mut problems);
        }
        let source = problems.source(toml.unwrap_or(Path::new("")).display());
        problems.found(source, parsed.errors);
        file.entries(source, mode, &names, &mut tables, &mut problems);
        let mut macs = |key, all: &[At<String>]| of_file(key, all, &names, source, &mut problems);
        let mut dst = macs("l3fwd.eth_dest", &file.own.eth_dest);
        let mut src = macs("l3fwd.eth_src", &file.own.eth_src);
        let check = toml.map(|path| format!("linerate l3fwd --config {} --check", path.display()));
        problems.result(check)?;
        if ports.is_empty() || ports.len() > MOST_PORTS {
            return Err(Error::Usage {
                problem: format!("{} ports to forward between", ports.len()),
                fix: "name one to 256 ports, such as `linerate l3fwd af_packet:eth0 \
                      af_packet:eth1`"
                    .into(),
            });
        }
        // The last word on a port counts, and the command line's come last.
        for (key, texts, macs) in [
            ("eth-dest", &args.eth_dest, &mut dst),
            ("eth-src", &args.eth_src, &mut src),
        ] {
            for text in texts {
                let said = port_and_mac(text, &names);
                let (port, mac) = said.map_err(|wrong| Error::Usage {
                    problem: format!("{key} `{text}`: {}", wrong.what),
                    fix: wrong.legal,
                })?;
                macs[usize::from(port)] = Some(mac);
            }
        }
        Ok(Self {
            tables: or_dpdks_own(tables, mode, &names)?,
            run: args.run.over(&file.all)?,
            fixed: file.all,
            macs: PortMacs { dst, src },
            mode,
            ports,
        })
    }

    /// The tables that workers look packets up in.
    fn lookup(&self) -> Result<Box<dyn Lookup>, TableError> {
        let Tables { v4, v6, .. } = &self.tables;
        Ok(match self.mode {
            Mode::Lpm | Mode::Fib => Box::new(Longest::new(&v4.routes, &v6.routes)?),
            Mode::Em => Box::new(ExactMatch::new(&v4.flows, &v6.flows)?),
            Mode::Acl => Box::new(FirstMatch::new(&v4.acl, &v6.acl)?),
        })
    }

    /// The next hops with the addresses that the frames get, `own` being those of the ports.
    fn hops(&self, own: &[MacAddr]) -> Vec<NextHop> {
        let src = |port: u16| self.macs.src[usize::from(port)].unwrap_or(own[usize::from(port)]);
        let dst =
            |port: u16| self.macs.dst[usize::from(port)].unwrap_or(MacAddr::local(port as u8));
        let hop = |hop: &Destination| match *hop {
            Destination::Port(port) => NextHop::out(port, Macs::new(dst(port), src(port))),
            Destination::Station(port, mac) => NextHop::out(port, Macs::new(mac, src(port))),
            Destination::Denied => NextHop::denied(),
        };
        self.tables.hops.hops.iter().map(hop).collect()
    }

    /// What is other in `new`.
    fn changes(&self, new: &Self) -> Changes {
        let (old, now) = (&self.tables, &new.tables);
        let v4 = old.v4.differences(&old.hops, &now.v4, &now.hops);
        let v6 = old.v6.differences(&old.hops, &now.v6, &now.hops);
        let [(added_key, added), (removed_key, removed)] = self.mode.entries();
        let is_moved = v4.is_moved || v6.is_moved;
        let macs = |port: usize, of: &PortMacs| (of.dst[port], of.src[port]);
        let others =
            (0..self.ports.len()).filter(|&port| macs(port, &self.macs) != macs(port, &new.macs));
        Changes::default()
            .and(added_key, added, v4.added + v6.added)
            .and(removed_key, removed, v4.removed + v6.removed)
            .and("reordered", "order of rules", usize::from(is_moved))
            .and("eth_addresses", "MAC setting", others.count())
    }
}

/// Addresses by port as the file has them; what is wrong goes to `problems`.
fn of_file(
    key: &str,
    all: &[At<String>],
    ports: &Ports,
    source: usize,
    problems: &mut Problems,
) -> Vec<Option<MacAddr>> {
    let mut macs = vec![None; ports.0.len()];
    for At { value, line } in all {
        match port_and_mac(value, ports) {
            Ok((port, mac)) => macs[usize::from(port)] = Some(mac),
            Err(wrong) => {
                let error = ConfigError {
                    line: *line,
                    key: key.into(),
                    problem: format!("`{value}`: {}", wrong.what),
                    legal: wrong.legal,
                };
                problems.found(source, vec![error]);
            }
        }
    }
    macs
}

/// The entries that there are, or DPDK's own where there are none.
fn or_dpdks_own(mut tables: Tables, mode: Mode, ports: &Ports) -> Result<Tables, Error> {
    if tables.v4.len() + tables.v6.len() > 0 {
        return Ok(tables);
    }
    let Some((text4, text6)) = dpdks_own(mode, ports.0.len()) else {
        return Err(Error::Usage {
            problem: "an access list without entries forwards nothing".into(),
            fix: "give entries with --rule-ipv4, --rule-ipv6 or [[rule]] in the file of --config"
                .into(),
        });
    };
    let mut problems = Problems::default();
    let source = problems.source("built in");
    let Tables { hops, v4, v6 } = &mut tables;
    file::read(&text4, source, mode, ports, hops, v4, &mut problems);
    file::read(&text6, source, mode, ports, hops, v6, &mut problems);
    problems.result(None)?;
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

fn text_of(path: &Path) -> Result<String, Error> {
    // A byte that is no text is the line's problem, not the file's.
    let bytes = std::fs::read(path).map_err(|source| Error::File {
        path: path.into(),
        source,
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `PORT,MAC`, as DPDK's `--eth-dest` has it; names hold commas themselves.
fn port_and_mac(text: &str, ports: &Ports) -> Result<(u16, MacAddr), WrongKey> {
    let (port, mac) = text.rsplit_once(',').ok_or_else(|| {
        let legal = "write a port, a comma and an address, as in 0,02:00:00:00:00:fe";
        WrongKey::new("", "it is no port and address", legal)
    })?;
    let port = ports.find(port)?;
    let mac = mac
        .parse()
        .map_err(|error: linerate_wire::ethernet::BadMacAddr| {
            WrongKey::new("", "no address follows the comma", error.to_string())
        })?;
    Ok((port, mac))
}
