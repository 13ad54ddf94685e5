//! linerate's own router and gateway as devices, in this process: the appliances that users run,
//! without their sockets and host interfaces.
//!
//! Between 198.18.0.0/16 behind `d0` and 198.19.0.0/16 behind `d1` (RFC 2544 C.2.2), through a
//! static neighbour each, as the Linux devices. Rules are those of an access list, or of a
//! gateway's policies: one after the other, of which the last permits (RFC 2544 11.4).

use std::fmt::Write;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_appliance::runtime::drivers;
use linerate_control::{Appliance, Embedded};
use linerate_core::env::PrivateFolder;
use linerate_core::run::{HistogramSnapshot, WorkerStats};
use linerate_drivers::Drivers;
use linerate_wire::ethernet::MacAddr;
use serde_json::json;

use super::linux::list;
use super::wire::{self, Wires, outer_mac};
use super::{Asked, Cpus, Setup, UnderTest};
use crate::report::{ProfiledLcore, ProfiledStage};
use linerate_appliance::control::path::Measured;
use linerate_appliance::error::Error;

/// How long it may take until routes lead to both ports.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which worker of a gateway handles a packet: `[dispatch] mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One does all.
    None,
    /// The one that polls its receive queue.
    Rss,
    /// One of several behind one that dispatches.
    Dispatcher,
    /// Any, from whichever has received it.
    Balanced,
}

impl Form {
    fn mode(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rss => "rss",
            Self::Dispatcher => "dispatcher",
            Self::Balanced => "balanced",
        }
    }
}

/// A router; with a form of dispatch, a gateway. Without dispatch that has one lcore, however many
/// the others of the report have.
pub(super) fn set_up(asked: &Asked, mut cpus: Cpus, form: Option<Form>) -> Result<Setup, Error> {
    if form == Some(Form::None) {
        cpus.device.truncate(1);
    }
    let what = if form.is_some() { "gateway" } else { "router" };
    let Wires {
        mut sides,
        inner,
        spaces,
    } = Wires::make(&asked.wire)?;
    if asked.wire.is_ring() {
        // Rings have no address of their own: the router makes one up for the port.
        for (number, side) in sides.iter_mut().enumerate() {
            side.dst_mac = Some(MacAddr([2, 0, 0, 1, 0, number as u8]));
        }
    }
    let name = match form {
        // Several of one kind may be in a report.
        Some(form) => format!("{what}, {}, {}", form.mode(), many(asked.rules, "rule")),
        None => format!("linerate {what} over {} ports", asked.wire.kind()),
    };
    let shared = cpus.shared();
    let mut setup = Setup::new(asked, cpus, name, sides);
    let folder = PrivateFolder::new("bench")?;
    let file = folder.join(format!("{what}.toml"));
    let text = text(asked, &setup.cpus, &inner, form);
    std::fs::write(&file, text).map_err(|source| Error::File {
        path: file.clone(),
        source,
    })?;
    let appliance = match form {
        Some(_) => linerate_gateway::GATEWAY,
        None => Appliance::default(),
    };
    let cpu = setup.cpus.generator.last().copied().unwrap_or(0);
    let start = |drivers: &mut Drivers| Embedded::start(appliance, &file, drivers, cpu);
    let appliance = match &spaces {
        None => start(&mut setup.drivers)?,
        Some((_, space)) => space.within(|| start(&mut drivers()))?,
    };
    setup.space = spaces.map(|(outer, _)| outer);
    setup.setting("routes", u32::from(asked.nets) * 2);
    setup.setting("neighbours", "static");
    if let Some(form) = form {
        setup.setting("dispatch", form.mode());
        setup.setting("fast workers", appliance.workers.len());
        setup.setting("zones", "one for each port");
    }
    setup.setting("rules before the one that permits", asked.rules);
    setup.setting("idle", if shared { "sleeps" } else { "polls" });
    for pool in &appliance.memory {
        setup.setting("pool", pool);
    }
    wire::describe(&mut setup, asked);
    setup.under_test = Box::new(Routed {
        appliance,
        knows_flows: form.is_some(),
        _folder: folder,
    });
    Ok(setup)
}

/// Its configuration. Control and the worker for neighbours are on the generator's last CPU, where
/// they have nothing to do while it is measured.
fn text(asked: &Asked, cpus: &Cpus, ports: &[String], form: Option<Form>) -> String {
    let many = cpus.device.len();
    let plan = match (form, many) {
        // One dispatches, on a CPU of its own where there are several.
        (Some(Form::Dispatcher), 1) => "io = \"1\"\neu = \"2\"\n".to_string(),
        (Some(Form::Dispatcher), _) => format!("io = \"1\"\neu = \"2-{many}\"\n"),
        (_, 1) => "io = \"1\"\n".to_string(),
        _ => format!("io = \"1-{many}\"\n"),
    };
    let others = cpus.generator.last().copied().unwrap_or(0);
    let mut device = cpus.device.clone();
    if form == Some(Form::Dispatcher) && many == 1 {
        device.push(cpus.device[0]);
    }
    let sleeps = cpus.shared() || form == Some(Form::Dispatcher) && many == 1;
    let queues = if form == Some(Form::Rss) { many } else { 1 };
    let mut text = format!(
        "[plan]\nbg = \"0\"\n{plan}cpus = \"{others},{}\"\n\
         [router]\nkernel = false\nperiod = 0\nsleep = {sleeps}\nqueues = {queues}\n",
        list(&device)
    );
    let acl = match form {
        None if asked.rules > 0 => "acl_in = \"filter\"\n",
        _ => "",
    };
    for (pair, port) in ports.iter().enumerate() {
        let (net, mac) = (18 + pair, outer_mac(pair));
        let _ = write!(
            text,
            "[[port]]\nname = \"d{pair}\"\nspec = \"{port}\"\n\
             [[interface]]\nport = \"d{pair}\"\naddresses = [\"10.255.{pair}.1/30\"]\n{acl}\
             [[neighbour]]\ninterface = \"d{pair}\"\naddress = \"10.255.{pair}.2\"\n\
             mac = \"{mac}\"\n"
        );
        for number in 0..asked.nets {
            let _ = write!(
                text,
                "[[route]]\nprefix = \"198.{net}.{number}.0/24\"\nvia = \"10.255.{pair}.2\"\n"
            );
        }
    }
    match form {
        None if asked.rules > 0 => {
            let rules = rules(asked.rules);
            text +=
                &format!("[[acl]]\nname = \"filter\"\ndefault = \"deny\"\nrules = [\n{rules}]\n");
        }
        None => {}
        Some(form) => {
            let _ = write!(text, "[dispatch]\nmode = \"{}\"\n", form.mode());
            for pair in 0..2 {
                let _ = write!(
                    text,
                    "[[zone]]\nname = \"z{pair}\"\ninterfaces = [\"d{pair}\"]\n"
                );
            }
            let rules = rules(asked.rules);
            let both = [(0, 1), (1, 0)];
            let may_begin = if asked.one_side {
                &both[..1]
            } else {
                &both[..]
            };
            for (from, to) in may_begin {
                let _ = write!(
                    text,
                    "[[policy]]\nfrom = \"z{from}\"\nto = \"z{to}\"\ndefault = \"deny\"\n\
                     rules = [\n{rules}]\n"
                );
            }
        }
    }
    text
}

/// Rules none of which matches, as nftables gets them, and the one that permits.
fn rules(count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        // The frames have no addresses in 100.64.0.0/10 (RFC 6598).
        let [_, over, high, low] = number.to_be_bytes();
        let _ = writeln!(
            text,
            "{{ action = \"deny\", source = \"100.{}.{high}.{low}/32\", protocol = \"udp\", \
             destination_port = \"{}\" }},",
            64 + over % 64,
            1024 + number % 60_000
        );
    }
    text + "{ action = \"permit\", source = \"198.18.0.0/15\" },\n"
}

/// `1 rule`, `25 rules`.
fn many(count: u32, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

/// An appliance of this process.
struct Routed {
    appliance: Embedded,
    knows_flows: bool,
    /// Its file.
    _folder: PrivateFolder,
}

impl Routed {
    /// Whether routes lead to both ports, and workers go by them.
    fn is_ready(&self) -> Result<bool, Error> {
        let params = json!({ "what": "routes", "filter": "198.18.0.0/15" });
        let shown = self.appliance.ask("show", params)?;
        let rows = shown["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let active = !rows.is_empty() && rows.iter().all(|row| row["state"] == "active");
        Ok(active && self.appliance.is_published()?)
    }
}

impl UnderTest for Routed {
    fn lcores(&self) -> Vec<String> {
        let workers = self.appliance.workers.iter();
        workers.map(|(name, _)| name.clone()).collect()
    }

    fn busy_ticks(&self) -> Option<u64> {
        let workers = self.appliance.workers.iter();
        Some(workers.map(|(_, stats)| stats.busy_ticks.read()).sum())
    }

    fn gaps(&self) -> Vec<HistogramSnapshot> {
        let workers = self.appliance.workers.iter();
        workers.map(|(_, stats)| stats.gaps.snapshot()).collect()
    }

    fn measure(&self) -> Result<(), Error> {
        Ok(self.appliance.measure()?)
    }

    fn measured(&self) -> Result<Vec<ProfiledLcore>, Error> {
        let measured = self.appliance.measured()?;
        let workers = self.appliance.workers.iter().zip(measured);
        let lcore = |((name, stats), stages): (&(String, Arc<WorkerStats>), Vec<Measured>)| {
            let stage = |of: &Measured| ProfiledStage {
                stage: of.stage.into(),
                packets: of.packets,
                ticks: of.ticks,
            };
            ProfiledLcore {
                lcore: name.clone(),
                packets: stats.packets.read(),
                // What others had the CPU for is in no stage, either.
                busy_ticks: (stats.busy_ticks.read()).saturating_sub(stats.taken_ticks.read()),
                waiting_ticks: stats.idle_ticks.read() + stats.asleep_ticks.read(),
                stages: stages.iter().map(stage).collect(),
            }
        };
        Ok(workers.map(lcore).collect())
    }

    fn forget(&self) -> Result<Option<u64>, Error> {
        if !self.knows_flows {
            return Ok(None);
        }
        let params = json!({ "what": "flows", "filter": "all" });
        let cleared = self.appliance.ask("clear", params)?;
        Ok(cleared["cleared"].as_u64())
    }

    fn settle(&mut self) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        while !self.is_ready()? {
            if Instant::now() > end {
                return Err(Error::Usage {
                    problem: "no route of the device leads to the generator's ports".into(),
                    fix: "see what `linerate router` says to a configuration of two such ports"
                        .into(),
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_control::Config;

    #[test]
    fn the_files_are_sound_whatever_is_asked() {
        let ports = ["ring:a", "ring:b"].map(String::from);
        for rules in [0, 25, 1000] {
            let asked = Asked {
                kind: super::super::DeviceKind::Router,
                wire: "ring".parse().unwrap(),
                ports: Vec::new(),
                name: None,
                dst_macs: Vec::new(),
                cores: 3,
                rules,
                one_side: false,
                nets: 256,
                speed_bps: None,
            };
            let forms = [Form::None, Form::Rss, Form::Dispatcher, Form::Balanced];
            for form in forms.map(Some).into_iter().chain([None]) {
                let many = if form == Some(Form::None) { 1 } else { 3 };
                let cpus = Cpus {
                    generator: vec![0],
                    device: (1..=many).collect(),
                };
                let text = text(&asked, &cpus, &ports, form);
                let appliance = match form {
                    Some(_) => linerate_gateway::GATEWAY,
                    None => Appliance::default(),
                };
                let config = Config::parse_for(appliance, &text);
                let config = config.unwrap_or_else(|wrong| panic!("{form:?}: {wrong:#?}"));
                assert_eq!(config.warnings.len(), 0, "{:?}", config.warnings);
                assert_eq!(config.routes.len(), 512);
                let denies = text.matches("\"deny\", source").count() as u32;
                assert_eq!(denies, rules * if form.is_some() { 2 } else { 1 });
            }
        }
    }
}
