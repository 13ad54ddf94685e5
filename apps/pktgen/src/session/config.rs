//! The configuration of a session.

use std::time::Duration;

use linerate_core::env::PlanSpec;
use linerate_core::packet::Burst;

use crate::engine::{Checks, GIVE_UP_AFTER, PortAddr, Receiver, Sender};
use crate::stream::{StreamSpec, parse_switch, parse_time, write_time};
use crate::units::{Rate, parse_speed};
use linerate_appliance::error::Error;

/// Frames that a queue may be given, or asked for, at a time.
const BURSTS: std::ops::RangeInclusive<u16> = 1..=Burst::CAPACITY as u16;

/// A port as the user asks for it.
#[derive(Clone, Debug, Default)]
pub struct PortAsked {
    pub name: Option<String>,
    pub spec: String,
    /// Line rate that percentages refer to, in bit/s.
    pub speed_bps: Option<f64>,
    /// Receive and transmit queues; where absent, one each, or more where there are lcores for
    /// them.
    pub rx_queues: Option<u16>,
    pub tx_queues: Option<u16>,
    /// Shared by the port's streams that have no rate, and no count, of their own.
    pub rate: Option<Rate>,
    pub count: Option<u64>,
    /// Largest bursts, 1 to 64; default 64.
    pub tx_burst: Option<u16>,
    pub rx_burst: Option<u16>,
    /// Addresses that the port answers for and asks from.
    pub addrs: Vec<PortAddr>,
    /// Whether it answers; default on.
    pub process: Option<bool>,
    /// How late a frame may be before it is given up, [`Duration::MAX`] for never; default 10 ms.
    pub give_up: Option<Duration>,
    /// Whether checksums of received frames are checked, and flows counted.
    pub verify: bool,
}

/// The keys of a port that can change while it is open: name, value, help.
pub const PORT_KEYS: &[(&str, &str, &str)] = &[
    (
        "rate",
        "RATE",
        "what its streams without a rate share: 1Mpps, 5Gbit/s-L1, 99%, max",
    ),
    (
        "count",
        "N",
        "frames in all, shared by its streams without a count; 0: no limit",
    ),
    (
        "speed",
        "SPEED",
        "line rate that percentages refer to, such as 10G; none: unknown",
    ),
    (
        "addr",
        "ADDRESS/LEN,...",
        "addresses that it answers ARP, neighbour discovery and ping for; none: removes them",
    ),
    (
        "process",
        "on|off",
        "whether it answers for its addresses, and asks from them; default on",
    ),
    (
        "give_up",
        "TIME",
        "how late a frame may be before it is given up as unsent; never; default 10ms",
    ),
    ("tx_burst", "N", "frames sent at a time, at most; 1 to 64"),
    (
        "rx_burst",
        "N",
        "frames received at a time, at most; 1 to 64",
    ),
    (
        "verify",
        "on|off",
        "whether checksums of received frames are checked, and flows counted; default off",
    ),
];

impl PortAsked {
    /// Sets one of [`PORT_KEYS`].
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let switch =
            || parse_switch(value).ok_or_else(|| format!("`{value}` is neither on nor off"));
        let burst = || match value.parse() {
            Ok(frames) if BURSTS.contains(&frames) => Ok(Some(frames)),
            _ => Err(format!("`{value}` is not 1 to {}", BURSTS.end())),
        };
        match key {
            "rate" => self.rate = Some(value.parse()?),
            "speed" if value == "none" => self.speed_bps = None,
            "speed" => self.speed_bps = Some(parse_speed(value)?),
            "count" => {
                let count = value.parse().map_err(|_| format!("`{value}` is no count"));
                self.count = Some(count?);
            }
            "addr" if value == "none" => self.addrs.clear(),
            "addr" => {
                let addrs = value.split(',').map(|addr| addr.trim().parse());
                self.addrs = addrs.collect::<Result<_, _>>()?;
            }
            "process" => self.process = Some(switch()?),
            "give_up" if value == "never" => self.give_up = Some(Duration::MAX),
            "give_up" => {
                let time = parse_time(value);
                let bad = || format!("`{value}` is no time; write 10ms, 1.5s, 300us or never");
                self.give_up = Some(time.ok_or_else(bad)?);
            }
            "tx_burst" => self.tx_burst = burst()?,
            "rx_burst" => self.rx_burst = burst()?,
            "verify" => self.verify = switch()?,
            other => return Err(format!("a port has no key `{other}`")),
        }
        Ok(())
    }

    /// The value of a key, as [`set`](Self::set) takes it; `None` where nothing was set.
    pub fn get(&self, key: &str) -> Option<String> {
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        match key {
            "rate" => self.rate.map(|rate| rate.to_string()),
            "speed" => self.speed_bps.map(|bps| format!("{}M", bps / 1e6)),
            "count" => self.count.map(|count| count.to_string()),
            "addr" if self.addrs.is_empty() => None,
            "addr" => {
                let addrs: Vec<String> = self.addrs.iter().map(ToString::to_string).collect();
                Some(addrs.join(","))
            }
            "process" => self.process.map(switch),
            "give_up" => self.give_up.map(|time| match time {
                Duration::MAX => "never".into(),
                time => write_time(time),
            }),
            "tx_burst" => self.tx_burst.map(|frames| frames.to_string()),
            "rx_burst" => self.rx_burst.map(|frames| frames.to_string()),
            "verify" => self.verify.then(|| switch(true)),
            _ => None,
        }
    }

    /// The default of a key, as [`set`](Self::set) takes it.
    pub fn default_of(key: &str) -> &'static str {
        match key {
            "speed" | "addr" => "none",
            "count" => "0",
            "process" => "on",
            "give_up" => "10ms",
            "tx_burst" | "rx_burst" => "64",
            "verify" => "off",
            _ => "max",
        }
    }

    /// Checks values that did not come through [`set`](Self::set).
    pub(super) fn check(&self) -> Result<(), Error> {
        for (key, frames) in [("tx_burst", self.tx_burst), ("rx_burst", self.rx_burst)] {
            if let Some(frames) = frames.filter(|frames| !BURSTS.contains(frames)) {
                return Err(Error::Usage {
                    problem: format!("port {}: {key} is {frames}", self.spec),
                    fix: format!("give it 1 to {}", BURSTS.end()),
                });
            }
        }
        Ok(())
    }

    /// Applies the settings to a sender of the port.
    pub(super) fn fit_sender(&self, sender: &mut Sender) {
        sender.give_up_after(self.give_up.unwrap_or(GIVE_UP_AFTER));
        sender.burst_of(self.tx_burst.map_or(Burst::CAPACITY, usize::from));
    }

    /// Applies the settings to a receiver of the port.
    pub(super) fn fit_receiver(&self, receiver: &mut Receiver) {
        receiver.most = self.rx_burst.map_or(Burst::CAPACITY, usize::from);
    }

    /// Additional checks of its receivers.
    pub(super) fn checks(&self) -> Checks {
        Checks {
            checksums: self.verify,
            flows: self.verify,
        }
    }
}

/// A port's specification as a generator opens it: without blocks, since a kernel that delivers
/// frames by the block holds a lone frame for a millisecond, which would be in every latency. A
/// specification that sets blocks itself stays as it is.
pub(super) fn timely(spec: &str) -> String {
    let asks = |option: &str| option.starts_with("handover=");
    match spec.starts_with("af_packet:") && !spec.split(',').any(asks) {
        true => format!("{spec},handover=frame"),
        false => spec.into(),
    }
}

/// The configuration of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionConfig {
    pub profile: String,
    pub ports: Vec<PortAsked>,
    pub streams: Vec<StreamSpec>,
    /// Pktgen's `-m`; where absent, lcores are mapped automatically.
    pub map: Option<String>,
    /// CPUs for lcores, the n-th for lcore n of the map; where empty, those of the plan, or lcore n
    /// is CPU n.
    pub cpus: Vec<u32>,
    /// Roles and slots, for the automatic map.
    pub plan: PlanSpec,
    pub seed: u64,
    /// Number of the session in signatures; random where absent.
    pub session: Option<u16>,
    /// Slots of the main pool; chosen by the queues where absent.
    pub pool_slots: Option<u32>,
    /// Whether to allocate slots for frames up to 64 KiB even if no stream needs them yet.
    pub jumbo: bool,
    /// Whether lcores keep polling when nothing is sent and nothing comes.
    pub no_sleep: bool,
}
