//! The options of a benchmark: on the command line, or under the same names in a TOML file.

use std::path::PathBuf;
use std::time::Duration;

use linerate_core::env::{CpuList, allowed_cpus};
use linerate_wire::ethernet::MacAddr;
use serde::{Deserialize, Serialize};

use crate::device::{self, Asked, Cpus, NamedPort, Wire};
use crate::method::Settings;
use linerate_appliance::config::{self, Section};
use linerate_appliance::error::Error;
use linerate_traffic::units::{LEAST_FRAME, RFC2544_SIZES, parse_speed};

/// Longest frame that is offered, FCS included: a jumbo one.
const MOST_FRAME: usize = 9216;

/// What `--forms` has where nothing else is said: several lcores, and flows for all of them.
const FORMS_CORES: usize = 2;
const FORMS_STREAMS: u16 = 16;
const FORMS_RULES: u32 = 1000;
const FORMS_CONNECTIONS: u64 = 100_000;
/// As many as the ports and addresses of one network make.
const MOST_CONNECTIONS: u32 = 4 << 20;
/// RFC 2544 11.4: the fewer filters.
const FORMS_FEWER: [u32; 2] = [25, 1];

/// A baseline, and its rules where they are not those of all.
type Baseline = (device::DeviceKind, Option<u32>);

/// Options of all benchmarks of a device.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// The device under test: l2fwd, router, gateway, gateway.rss, gateway.dispatcher,
    /// gateway.balanced, bridge, forward, nftables, testpmd, l3fwd, external, or none
    #[arg(long, visible_alias = "dut", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Kind of the generator's ports to the device: ring, af_packet or af_xdp, with options after
    /// commas; default: ring to what is in this process, af_xdp to what is outside of this process,
    /// af_packet without root
    #[arg(long, value_name = "KIND[,KEY=VALUE...]")]
    pub(crate) ports: Option<String>,
    /// A port of the generator to an external device, KIND:TARGET[,key=value...]; in pairs. In
    /// front of a router also with addr=192.0.2.2/24, which it answers for, and gateway=192.0.2.1,
    /// where its frames go
    #[arg(long = "port", short = 'p', value_name = "PORT")]
    pub(crate) port: Vec<String>,
    /// Something else to measure in turns with the device, over the same kind of ports
    #[arg(long, value_name = "DEVICE")]
    pub(crate) baseline: Vec<String>,
    /// Frame sizes with FCS, or `rfc`: 64,128,256,512,1024,1280,1518
    #[arg(long, value_name = "LIST")]
    pub(crate) sizes: Option<String>,
    /// Trials of 1 s, few repeats and no waits: minutes; the report says so
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds of the trials that results are quoted from; default 60
    #[arg(long, value_name = "SECONDS")]
    pub(crate) trial: Option<f64>,
    /// Seconds of trials that only search
    #[arg(long, value_name = "SECONDS")]
    pub(crate) search_trial: Option<f64>,
    /// Seconds of a trial of latency; default 120
    #[arg(long, value_name = "SECONDS")]
    pub(crate) latency_trial: Option<f64>,
    /// Trials of latency at the throughput; default 20
    #[arg(long, value_name = "N")]
    pub(crate) latency_repeats: Option<usize>,
    /// Other loads at which latency is measured, once each, in percent of the throughput or PDR, or
    /// `none`; default 10,50,90
    #[arg(long, value_name = "LIST")]
    pub(crate) latency_loads: Option<String>,
    /// Steps of the loss curve, in percent of the maximum: at most 10, the default
    #[arg(long, value_name = "PERCENT")]
    pub(crate) loss_step: Option<f64>,
    /// Searches for the longest burst; default 50
    #[arg(long, value_name = "N")]
    pub(crate) burst_repeats: Option<usize>,
    /// Seconds of the longest burst that is tried; default 30
    #[arg(long, value_name = "SECONDS")]
    pub(crate) burst_limit: Option<f64>,
    /// Overloads after which recovery is measured; default 3
    #[arg(long, value_name = "N")]
    pub(crate) recovery_repeats: Option<usize>,
    /// A search ends when its bounds are this close, in percent of the upper one
    #[arg(long, value_name = "PERCENT")]
    pub(crate) width: Option<f64>,
    /// Searches for each size
    #[arg(long, value_name = "N")]
    pub(crate) repeats: Option<usize>,
    /// The loss ratio of PDR, in percent; default 0.5
    #[arg(long, value_name = "PERCENT")]
    pub(crate) pdr: Option<f64>,
    /// Load both directions; rates are of both together
    #[arg(long)]
    pub(crate) bidirectional: bool,
    /// Destination networks for each direction, chosen at random for each frame: 1 to 256 (RFC
    /// 2544 12)
    #[arg(long, value_name = "N")]
    pub(crate) streams: Option<u16>,
    /// Filter rules that match no frame, of nftables (default 25), router and gateway (0)
    #[arg(long, value_name = "N")]
    pub(crate) rules: Option<u32>,
    /// A gateway in all forms of dispatch, in turns, with 1000 rules, and with 1 and 25 (RFC 2544
    /// 11.4), with profile and connections of each: --device gateway with baselines
    #[arg(long, conflicts_with = "baseline")]
    pub(crate) forms: bool,
    /// Also measure what each function of a router or gateway takes for a packet at the throughput
    #[arg(long)]
    pub(crate) profile: bool,
    /// Also measure how fast a gateway sets connections up and tears them down, opening so many,
    /// and how many it knows at once (RFC 9693)
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100000")]
    pub(crate) connections: Option<u64>,
    /// Where streams of each port are sent to: one address per port
    #[arg(long, value_name = "MAC", value_delimiter = ',')]
    pub(crate) dst_mac: Vec<String>,
    /// The ports' speed, such as 10G: rates are then of its line rate too
    #[arg(long, value_name = "SPEED")]
    pub(crate) speed: Option<String>,
    /// Most frames a second that are ever offered
    #[arg(long, value_name = "PPS")]
    pub(crate) max_pps: Option<f64>,
    /// Frames a second of a soak; default: 90 % of the throughput
    #[arg(long, value_name = "PPS")]
    pub(crate) pps: Option<f64>,
    /// Seconds of a soak
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Cores of the device
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<usize>,
    /// CPUs of the generator
    #[arg(long, value_name = "LIST")]
    pub(crate) generator_cpus: Option<String>,
    /// CPUs of the device
    #[arg(long, value_name = "LIST")]
    pub(crate) device_cpus: Option<String>,
    /// The device's name in the report
    #[arg(long, value_name = "TEXT")]
    pub(crate) device_name: Option<String>,
    /// Who measured, for the report
    #[arg(long, value_name = "TEXT")]
    pub(crate) tester: Option<String>,
    /// A note for the report: a version, a place, an order
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write the report as JSON; without a file, or with `-`, print it instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as one page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the results as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Read these options from a TOML file, by the same names; the command line takes precedence
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
}

fn usage(problem: impl Into<String>, fix: impl Into<String>) -> Error {
    Error::Usage {
        problem: problem.into(),
        fix: fix.into(),
    }
}

/// `value` as a time, of at least a millisecond.
fn seconds(key: &str, value: f64) -> Result<Duration, Error> {
    let time = Duration::try_from_secs_f64(value).ok();
    time.filter(|time| *time >= Duration::from_millis(1))
        .ok_or_else(|| {
            usage(
                format!("--{key} is {value}, which is not a duration"),
                "give seconds, such as 60 or 0.5",
            )
        })
}

impl Options {
    /// Reads what is right in a file; what is wrong is collected as errors.
    fn of(section: &Section<'_>) -> Self {
        let text = |key| {
            section
                .text(key, "a text, as on the command line")
                .map(|at| at.value)
        };
        let path = |key| {
            section
                .text(key, "a path")
                .map(|at| PathBuf::from(at.value))
        };
        let number = |key| {
            section
                .decimal(key, "a number, not negative")
                .map(|at| at.value)
        };
        let count = |key| section.number(key, 0..=u32::MAX).map(|at| at.value);
        let switch = |key| section.switch(key).is_some_and(|at| at.value);
        let texts = |key| -> Vec<String> {
            let read = |text: &str| Ok(text.to_owned());
            let all = section.texts(key, "a list of texts", read);
            all.into_iter().map(|at| at.value).collect()
        };
        let options = Self {
            device: text("device"),
            ports: text("ports"),
            port: texts("port"),
            baseline: texts("baseline"),
            sizes: text("sizes"),
            quick: switch("quick"),
            trial: number("trial"),
            search_trial: number("search-trial"),
            latency_trial: number("latency-trial"),
            latency_repeats: count("latency-repeats").map(|n| n as usize),
            latency_loads: text("latency-loads"),
            loss_step: number("loss-step"),
            burst_repeats: count("burst-repeats").map(|n| n as usize),
            burst_limit: number("burst-limit"),
            recovery_repeats: count("recovery-repeats").map(|n| n as usize),
            width: number("width"),
            repeats: count("repeats").map(|n| n as usize),
            pdr: number("pdr"),
            bidirectional: switch("bidirectional"),
            streams: section.number("streams", 0..=u16::MAX).map(|at| at.value),
            rules: count("rules"),
            forms: switch("forms"),
            profile: switch("profile"),
            connections: section
                .number("connections", 1..=u64::from(MOST_CONNECTIONS))
                .map(|at| at.value),
            dst_mac: texts("dst-mac"),
            speed: text("speed"),
            max_pps: number("max-pps"),
            pps: number("pps"),
            duration: number("duration"),
            cores: count("cores").map(|n| n as usize),
            generator_cpus: text("generator-cpus"),
            device_cpus: text("device-cpus"),
            device_name: text("device-name"),
            tester: text("tester"),
            note: text("note"),
            seed: section
                .number("seed", 0..=i64::MAX as u64)
                .map(|at| at.value),
            json: path("json"),
            html: path("html"),
            csv: path("csv"),
            config: None,
        };
        section.end();
        options
    }

    /// Adds the file's values of options that were not given.
    pub(super) fn read(&self) -> Result<Self, Error> {
        let Some(path) = &self.config else {
            return Ok(self.clone());
        };
        let file = config::read(path, Self::of)?;
        let encode = |options: &Self| serde_json::to_value(options).map_err(std::io::Error::from);
        let (mut merged, given) = (encode(&file)?, encode(self)?);
        for (key, value) in given.as_object().into_iter().flatten() {
            let absent = value.is_null()
                || *value == serde_json::Value::Bool(false)
                || value.as_array().is_some_and(Vec::is_empty);
            if !absent {
                merged[key] = value.clone();
            }
        }
        Ok(serde_json::from_value(merged).map_err(std::io::Error::from)?)
    }

    /// The method's settings.
    pub(super) fn settings(&self) -> Result<Settings, Error> {
        let mut settings = match self.quick {
            true => Settings::quick(),
            false => Settings::full(),
        };
        if let Some(list) = &self.sizes {
            settings.sizes = sizes(list)?;
        }
        if let Some(value) = self.trial {
            settings.trial = seconds("trial", value)?;
            settings.search_trial = settings.search_trial.min(settings.trial);
            settings.loss_trial = settings.trial;
            settings.recovery_trial = settings.trial;
            for goal in &mut settings.goals {
                goal.first_trial = goal.first_trial.min(settings.trial);
                goal.sum = goal.sum.mul_f64(value / goal.trial.as_secs_f64());
                goal.trial = settings.trial;
            }
        }
        if self.trial.is_some() || self.repeats.is_some() {
            // Explicit options are not cut by the time limit.
            settings.size_limit = None;
        }
        if let Some(value) = self.search_trial {
            settings.search_trial = seconds("search-trial", value)?;
        }
        if let Some(value) = self.latency_trial {
            settings.latency_trial = seconds("latency-trial", value)?;
        }
        if let Some(percent) = self.width {
            settings.width = percent / 100.0;
            settings
                .goals
                .iter_mut()
                .for_each(|goal| goal.width = percent / 100.0);
        }
        if let Some(repeats) = self.repeats {
            settings.repeats = repeats;
            settings.latency_repeats = repeats;
            settings.burst_repeats = repeats;
        }
        settings.latency_repeats = self.latency_repeats.unwrap_or(settings.latency_repeats);
        settings.burst_repeats = self.burst_repeats.unwrap_or(settings.burst_repeats);
        settings.recovery_repeats = self.recovery_repeats.unwrap_or(settings.recovery_repeats);
        if let Some(list) = &self.latency_loads {
            settings.latency_shares = loads(list)?;
        }
        if let Some(percent) = self.loss_step {
            if !(0.1..=10.0).contains(&percent) {
                return Err(usage(
                    format!("a loss curve in steps of {percent} %"),
                    "give --loss-step 0.1 to 10 (RFC 2544 26.3)",
                ));
            }
            settings.loss_step = percent / 100.0;
        }
        if let Some(value) = self.burst_limit {
            settings.burst_limit = seconds("burst-limit", value)?;
        }
        if let Some(percent) = self.pdr {
            let goals = settings.goals.iter_mut();
            goals
                .filter(|goal| goal.name == "PDR")
                .for_each(|goal| goal.loss_ratio = percent / 100.0);
        }
        if let Some(value) = self.duration {
            settings.soak = seconds("duration", value)?;
            settings.soak_slice = settings.soak_slice.min(settings.soak);
        }
        settings.profile = self.profile || self.forms;
        let forms = self.forms.then_some(FORMS_CONNECTIONS);
        settings.connections = self.connections.or(forms);
        if let Some(wrong) = settings.connections
            && !(1..=u64::from(MOST_CONNECTIONS)).contains(&wrong)
        {
            return Err(usage(
                format!("--connections {wrong}"),
                format!("give 1 to {MOST_CONNECTIONS}"),
            ));
        }
        settings.max_pps = self.max_pps.or(settings.max_pps);
        settings.soak_pps = self.pps.or(settings.soak_pps);
        settings.check()?;
        Ok(settings)
    }

    /// The device and its baselines.
    pub(super) fn devices(&self) -> Result<Vec<Asked>, Error> {
        let parse = |name: &str| -> Result<device::DeviceKind, Error> {
            name.parse()
                .map_err(|problem: String| usage(problem, "name one of them"))
        };
        let kind = match (&self.device, self.port.is_empty()) {
            (Some(name), true) => parse(name)?,
            (None, true) => device::DeviceKind::L2fwd,
            (Some(name), false) if parse(name)? != device::DeviceKind::External => {
                return Err(usage(
                    format!("--port names ports to something else, but the device is {name}"),
                    "leave --port out, or give --device external",
                ));
            }
            (_, false) => device::DeviceKind::External,
        };
        let ports: Vec<NamedPort> = self
            .port
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, _>>()?;
        device::check_ports(&ports)?;
        let forms = match self.forms {
            true => self.forms(kind)?,
            false => Vec::new(),
        };
        let baselines = self.baseline.iter().map(|name| parse(name));
        let mut baselines: Vec<device::DeviceKind> = baselines.collect::<Result<_, _>>()?;
        baselines.extend(forms.iter().map(|(kind, _)| *kind));
        let wanted: Option<Wire> = match &self.ports {
            Some(text) => Some(
                text.parse()
                    .map_err(|problem| usage(problem, "give --ports ring"))?,
            ),
            None => None,
        };
        let streams = self
            .streams
            .unwrap_or(if self.forms { FORMS_STREAMS } else { 1 });
        if !(1..=256).contains(&streams) {
            return Err(usage(
                format!("{streams} destination networks in a direction"),
                "give --streams 1 to 256",
            ));
        }
        let macs: Result<Vec<MacAddr>, Error> = self
            .dst_mac
            .iter()
            .map(|text| {
                text.parse().map_err(|_| {
                    usage(
                        format!("`{text}` is no MAC address"),
                        "write it as 02:00:00:00:00:01",
                    )
                })
            })
            .collect();
        let macs = macs?;
        let speed = self.speed.as_deref().map(parse_speed).transpose();
        let speed_bps = speed.map_err(|problem| usage(problem, "give --speed 10G"))?;
        let v6 = |port: &NamedPort| {
            port.asked
                .addrs
                .first()
                .is_some_and(|addr| addr.ip.is_ipv6())
        };
        if streams > 1 && ports.iter().any(v6) {
            return Err(usage(
                format!("{streams} destination networks in a direction of IPv6"),
                "leave --streams out: the networks of RFC 2544 C.2.2 are IPv4's",
            ));
        }
        if self.connections.is_some()
            && !baselines
                .iter()
                .chain([&kind])
                .any(|kind| kind.is_gateway())
        {
            return Err(usage(
                "--connections are those of a gateway, and none is measured",
                "give --device gateway",
            ));
        }
        let wire = wire_of_all(wanted, kind, &baselines, &ports)?;
        let asked = |kind: device::DeviceKind, rules: Option<u32>, is_device: bool| {
            let is_named = is_device && kind == device::DeviceKind::External;
            Asked {
                kind,
                wire: wire.clone(),
                ports: if is_named { ports.clone() } else { Vec::new() },
                name: self.device_name.clone().filter(|_| is_device),
                dst_macs: if is_device { macs.clone() } else { Vec::new() },
                cores: self.cores(),
                rules: rules.or(self.rules).unwrap_or(match kind {
                    device::DeviceKind::Nftables => 25,
                    _ if self.forms => FORMS_RULES,
                    _ => 0,
                }),
                one_side: false,
                nets: streams,
                speed_bps,
            }
        };
        let first = std::iter::once(asked(kind, None, true));
        let rules = forms.iter().map(|(_, rules)| *rules);
        let rules = rules.chain(std::iter::repeat(None));
        let baselines = baselines.into_iter().zip(rules);
        Ok(first
            .chain(baselines.map(|(kind, rules)| asked(kind, rules, false)))
            .collect())
    }

    /// The baselines of `--forms`: the other forms of a gateway, then the same form with fewer
    /// rules, unless their number is given.
    fn forms(&self, kind: device::DeviceKind) -> Result<Vec<Baseline>, Error> {
        let all = device::DeviceKind::gateways();
        if !all.contains(&kind) {
            return Err(usage(
                format!(
                    "--forms are those of a gateway, and the device is {}",
                    kind.name()
                ),
                "give --device gateway",
            ));
        }
        let others = all.into_iter().filter(|other| *other != kind);
        let fewer = FORMS_FEWER.iter().filter(|_| self.rules.is_none());
        let fewer = fewer.map(|rules| (kind, Some(*rules)));
        Ok(others.map(|other| (other, None)).chain(fewer).collect())
    }

    /// Cores of the device.
    fn cores(&self) -> usize {
        self.cores
            .unwrap_or(if self.forms { FORMS_CORES } else { 1 })
    }

    /// Who has which CPU.
    pub(super) fn cpus(&self) -> Result<Cpus, Error> {
        let usable: Vec<u32> = allowed_cpus()?.iter().collect();
        let mut cpus = Cpus::split(&usable, self.cores());
        let list = |key, text: &str| -> Result<Vec<u32>, Error> {
            let cpus: Vec<u32> = CpuList::parse(key, text)?.iter().collect();
            match cpus.iter().find(|cpu| !usable.contains(cpu)) {
                Some(cpu) => Err(usage(
                    format!("{key} names CPU {cpu}, which this process may not use"),
                    format!("choose among {usable:?}"),
                )),
                None => Ok(cpus),
            }
        };
        if let Some(text) = &self.generator_cpus {
            cpus.generator = list("generator-cpus", text)?;
        }
        if let Some(text) = &self.device_cpus {
            cpus.device = list("device-cpus", text)?;
        }
        Ok(cpus)
    }

    /// Directions that are loaded.
    pub(super) fn directions(&self) -> u32 {
        match self.bidirectional {
            true => 2,
            false => 1,
        }
    }
}

/// The kind of port that the device and all baselines are measured over: figures of one kind say
/// nothing beside those of another.
fn wire_of_all(
    wanted: Option<Wire>,
    device: device::DeviceKind,
    baselines: &[device::DeviceKind],
    ports: &[NamedPort],
) -> Result<Wire, Error> {
    let kinds = || std::iter::once(device).chain(baselines.iter().copied());
    let outside = kinds().find(|kind| kind.needs_interfaces());
    if device == device::DeviceKind::External && !baselines.is_empty() {
        let mut likes = ports.iter().map(|port| Wire::like(&port.asked.spec));
        let first = likes.next().flatten();
        let wire = first.clone().filter(|_| likes.all(|like| like == first));
        return wire.ok_or_else(|| {
            usage(
                "no baseline can be measured over ports like these",
                "leave --baseline out, or name af_packet or af_xdp ports that are alike",
            )
        });
    }
    match (wanted, outside) {
        (Some(wire), Some(kind)) if wire.is_ring() && !baselines.is_empty() => Err(usage(
            format!(
                "{} is not part of this process, so ring ports do not reach it, and figures over \
                 rings say nothing beside figures over interfaces",
                kind.name()
            ),
            "give --ports af_packet, or leave --ports out: all are measured over the same kind",
        )),
        (Some(wire), _) => Ok(wire),
        (None, Some(kind)) => Ok(kind.usual_wire()),
        (None, None) => Ok(device.usual_wire()),
    }
}

/// `10,50,90` or `none`.
fn loads(list: &str) -> Result<Vec<f64>, Error> {
    if list == "none" {
        return Ok(Vec::new());
    }
    let load = |word: &str| {
        let percent: Option<f64> = word.trim().parse().ok();
        let percent = percent.filter(|percent| (0.1..=100.0).contains(percent));
        percent.map(|percent| percent / 100.0).ok_or_else(|| {
            usage(
                format!("`{word}` is no load in percent"),
                "give --latency-loads 10,50,90 or none",
            )
        })
    };
    list.split(',').map(load).collect()
}

/// `64,512` or `rfc`.
fn sizes(list: &str) -> Result<Vec<usize>, Error> {
    if list == "rfc" {
        return Ok(RFC2544_SIZES.to_vec());
    }
    let size = |word: &str| {
        let size = word.trim().parse().ok();
        size.filter(|size| (LEAST_FRAME..=MOST_FRAME).contains(size))
            .ok_or_else(|| {
                usage(
                    format!("`{word}` is no frame size"),
                    format!("give bytes with FCS, {LEAST_FRAME} to {MOST_FRAME}, or `rfc`"),
                )
            })
    };
    list.split(',').map(size).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::options;
    use super::*;

    #[test]
    fn the_command_line_goes_before_the_file() {
        let folder = linerate_core::env::PrivateFolder::new("suite").unwrap();
        let path = folder.join("suite.toml");
        std::fs::write(
            &path,
            "device = \"bridge\"\nsizes = \"64\"\nquick = true\nmax-pps = 1e6\n",
        )
        .unwrap();
        let line = format!("--sizes 128,256 --config {}", path.display());
        let read = options(&line).read().unwrap();
        assert_eq!(read.device.as_deref(), Some("bridge"));
        let settings = read.settings().unwrap();
        assert_eq!(settings.sizes, [128, 256]);
        assert_eq!(settings.trial, Duration::from_secs(1));
        assert_eq!(settings.max_pps, Some(1e6));
    }

    #[test]
    fn a_shorter_trial_keeps_the_proportions_of_the_goals() {
        let settings = options("--trial 0.1 --quick --width 2").settings().unwrap();
        assert_eq!(settings.trial, Duration::from_millis(100));
        assert_eq!(settings.search_trial, Duration::from_millis(100));
        for goal in &settings.goals {
            assert_eq!(goal.trial, Duration::from_millis(100));
            assert_eq!(goal.sum, Duration::from_millis(300));
            assert_eq!(goal.width, 0.02);
        }
    }

    #[test]
    fn contradicting_options_are_errors_with_a_correction() {
        for (line, problem) in [
            ("--sizes 64,60", "`60` is no frame size"),
            ("--trial 0", "--trial is 0"),
            ("--loss-step 11", "in steps of 11 %"),
            ("--latency-loads 10,x", "`x` is no load"),
        ] {
            let error = options(line).settings().unwrap_err();
            assert!(error.to_string().contains(problem), "{line}: {error}");
        }
        for (line, problem) in [
            ("--device brige", "perhaps bridge"),
            ("--device l2fwd --port null:", "the device is l2fwd"),
            ("--streams 300", "300 destination networks"),
            ("--ports pci", "`pci` is no kind of port"),
            ("--device router --forms", "those of a gateway"),
            ("--device router --connections", "those of a gateway"),
            ("--dst-mac 1:2", "`1:2` is no MAC address"),
            ("--speed fast", "`fast` is no speed"),
            (
                "--port af_packet:a,addr=10.1.0.2/24 --port af_packet:b,addr=10.2.0.2/24",
                "no gateway is named",
            ),
            (
                "--streams 2 --port af_packet:a,addr=2001:db8::2/64 \
                 --port af_packet:b,addr=2001:db8::3/64",
                "destination networks in a direction of IPv6",
            ),
        ] {
            let error = options(line).devices().unwrap_err();
            assert!(error.to_string().contains(problem), "{line}: {error}");
        }
        assert!(options("--generator-cpus 9999").cpus().is_err());
    }

    #[test]
    fn a_baseline_is_measured_over_ports_like_the_device_s() {
        let refused = |line: &str| options(line).devices().unwrap_err().to_string();
        for line in [
            "--device bridge --baseline l2fwd",
            "--device l2fwd --baseline bridge",
            "--device l2fwd --ports af_packet --baseline bridge",
        ] {
            let devices = options(line).devices().unwrap();
            assert_eq!(devices[0].wire, devices[1].wire, "{line}");
            assert!(!devices[0].wire.is_ring(), "{line}");
        }
        let devices = options("--device l2fwd --baseline none").devices().unwrap();
        assert!(devices.iter().all(|device| device.wire.is_ring()));
        let error = refused("--device l2fwd --ports ring --baseline bridge");
        assert!(error.contains("say nothing beside"), "{error}");

        let named = "--port af_xdp:a,ring=512 --port af_xdp:b,ring=512 --baseline bridge";
        let devices = options(named).devices().unwrap();
        assert_eq!(devices[1].wire.outer("g0"), "af_xdp:g0,ring=512");
        assert_eq!((devices[0].ports.len(), devices[1].ports.len()), (2, 0));
        let error = refused("--port tap:a --port tap:b --baseline bridge");
        assert!(error.contains("over ports like these"), "{error}");
    }

    #[test]
    fn forms_are_those_of_a_gateway_with_1_25_and_1000_rules() {
        let all = |line: &str| {
            let devices = options(line).devices().unwrap();
            let one = |one: &Asked| (one.kind.name(), one.rules, one.cores, one.nets);
            devices.iter().map(one).collect::<Vec<_>>()
        };
        let wanted = [
            ("gateway", 1000, 2, 16),
            ("gateway.rss", 1000, 2, 16),
            ("gateway.dispatcher", 1000, 2, 16),
            ("gateway.balanced", 1000, 2, 16),
            ("gateway", 25, 2, 16),
            ("gateway", 1, 2, 16),
        ];
        assert_eq!(all("--device gateway --forms"), wanted);
        let few = all("--device gateway.balanced --forms --rules 7 --cores 4 --streams 3");
        assert_eq!(few[0], ("gateway.balanced", 7, 4, 3));
        assert_eq!((few[1], few.len()), (("gateway", 7, 4, 3), 4));
        assert!(
            options("--forms --device gateway")
                .settings()
                .unwrap()
                .profile
        );
        assert!(!options("--device gateway").settings().unwrap().profile);
    }

    #[test]
    fn repeats_and_loads_are_set_one_by_one() {
        let line = "--latency-repeats 3 --latency-loads 25,75 --burst-repeats 4 --burst-limit 2 \
                    --loss-step 5 --recovery-repeats 6 --repeats 2";
        let settings = options(line).settings().unwrap();
        assert_eq!((settings.repeats, settings.latency_repeats), (2, 3));
        assert_eq!((settings.burst_repeats, settings.recovery_repeats), (4, 6));
        assert_eq!(settings.latency_shares, [0.25, 0.75]);
        assert_eq!(
            (settings.loss_step, settings.burst_limit.as_secs()),
            (0.05, 2)
        );
        let none = options("--latency-loads none").settings().unwrap();
        assert!(none.latency_shares.is_empty());
    }
}
