//! The gateway's fast worker on one core, between two looping captures of 64-byte UDP frames: one
//! of what hosts inside send, one of the answers, so that all but the first packets are of
//! established flows. 1000 routes, 1000 rules of which the last permits.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use linerate_core::env::{Clock, Isa, Lcore};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::ring::spsc;
use linerate_core::run::{Egress, Inlet, Stage, TxPath, Worker};
use linerate_dispatch::{Owners, Sorter};
use linerate_drivers::Drivers;
use linerate_gateway::config::{FlowsConfig, Stanzas};
use linerate_gateway::dispatch::handed::{Handed, Sorted};
use linerate_gateway::dispatch::{Bucket, Classes, Hash, Marked};
use linerate_gateway::nat::rules;
use linerate_gateway::path::GatewayPath;
use linerate_gateway::policy::stanza;
use linerate_gateway::stages::flows::{Flows, Shared};
use linerate_tables::lpm::Prefix4;
use linerate_tables::lpm::synth::{Pattern, Spec, destinations, routes4};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::{FlowKey4, protocol};

use super::forward::{connect, open, rate};
use super::l3fwd::{Captures, Frame, frame};
use super::probe::pause;
use super::random::mixed;
use super::router::{Written, hop, two_links};
use super::{Input, Row, Run, Sample};
use linerate_appliance::config;
use linerate_appliance::error::Error;
use linerate_routing::model::Prefix;
use linerate_routing::plane::{Fast, Setup};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "gateway.fw.1k",
        about: "established flows both ways, 1000 rules, 1 K UDP flows",
        run: |row, run| established(row, run, 1_000, Device::Firewall),
    },
    Row {
        name: "gateway.fw.1m",
        about: "the same, 1 M UDP flows",
        run: |row, run| established(row, run, 1_000_000, Device::Firewall),
    },
    Row {
        name: "gateway.nat44.1k",
        about: "gateway.fw.1k with sources translated to one address",
        run: |row, run| established(row, run, 1_000, Device::Nat),
    },
    Row {
        name: "gateway.nat44.1m",
        about: "gateway.fw.1m with sources translated to 16 addresses",
        run: |row, run| established(row, run, 1_000_000, Device::Nat),
    },
    Row {
        name: "gateway.router.1k",
        about: "the router's stage on the captures of gateway.fw.1k",
        run: |row, run| established(row, run, 1_000, Device::Router),
    },
    Row {
        name: "gateway.router.1m",
        about: "the router's stage on the captures of gateway.fw.1m",
        run: |row, run| established(row, run, 1_000_000, Device::Router),
    },
    Row {
        name: "gateway.dispatch",
        about: "a packet from core to core and back: classify, hand over, take; two cores",
        run: dispatch,
    },
];

pub(super) const INPUTS: &[Input] = &[
    Input {
        row: "gateway.fw.1k",
        write: |path| write(path, 1_000, Device::Firewall),
    },
    Input {
        row: "gateway.fw.1m",
        write: |path| write(path, 1_000_000, Device::Firewall),
    },
    Input {
        row: "gateway.nat44.1k",
        write: |path| write(path, 1_000, Device::Nat),
    },
    Input {
        row: "gateway.nat44.1m",
        write: |path| write(path, 1_000_000, Device::Nat),
    },
];

/// Rules of the policy, and routes.
pub(super) const RULES: u32 = 1000;
/// Where hosts are inside: 10.0.0.0/8, by port 0.
pub(super) const INSIDE: u32 = 10 << 24;

/// The first of the addresses that sources are translated to: one for the hosts of each /12 inside.
const OUTSIDE: u32 = 0xc612_0000;

/// Flows that share one of them: each has another port.
const SHARE: u64 = 62_500;

/// What works on the captures.
#[derive(Clone, Copy, PartialEq)]
enum Device {
    Router,
    Firewall,
    Nat,
}

/// The frames of flow `number`: of the host, and of the answer. Translated ones keep their ports,
/// which are all different for one address.
fn both(number: u64, remote: u32, device: Device) -> [Frame; 2] {
    let (nth, within) = ((number / SHARE) as u32, (number % SHARE) as u16);
    let host = match device {
        Device::Nat => INSIDE | nth << 20 | (mixed(number) as u32 & 0xf_ffff),
        _ => INSIDE | (mixed(number) as u32 & 0xff_ffff),
    };
    let port = match device {
        Device::Nat => 1024 + within,
        _ => mixed(!number) as u16 | 1024,
    };
    let remote_port = (mixed(!number) >> 16) as u16;
    let key = |host: u32| {
        let (host, remote) = (host.to_be_bytes(), remote.to_be_bytes());
        FlowKey4::new(host, remote, port, remote_port, protocol::UDP)
    };
    let outside = match device {
        Device::Nat => OUTSIDE + nth,
        _ => host,
    };
    [frame(&key(host)), frame(&key(outside).reversed())]
}

/// Routes to remote networks, by port 1.
pub(super) fn routes() -> Vec<(Prefix4, u32)> {
    let mut all = routes4(&Spec {
        next_hops: RULES,
        ..Spec::new(RULES as usize, 1)
    });
    all.retain(|(prefix, _)| prefix.first() >> 24 != INSIDE >> 24);
    all.iter_mut().for_each(|(_, hop)| *hop += 1);
    all
}

/// The tables of these routes, and of one to the hosts inside by port 0.
pub(super) fn tables(remote: Vec<(Prefix4, u32)>) -> Result<Written, Error> {
    let inside = (Prefix4::new(INSIDE, 8)?, 0);
    let all: Vec<_> = remote.into_iter().chain([inside]).collect();
    let hops = (0..=RULES).map(|number| hop(number, u16::from(number > 0)));
    Written::new(&all, hops)
}

/// What hosts inside send, a frame for each flow, and what is answered.
fn frames(remote: &[(Prefix4, u32)], flows: u64, device: Device) -> [Vec<Frame>; 2] {
    let addresses = destinations(remote, Pattern::Zipf, flows as usize, 2);
    let frames = (0..)
        .zip(addresses)
        .map(|(number, remote)| both(number, remote, device));
    let (asks, answers) = frames.map(|[ask, answer]| (ask, answer)).unzip();
    [asks, answers]
}

/// Writes the captures of so many flows.
fn write(path: &Path, flows: u64, device: Device) -> Result<(), Error> {
    let [asks, answers] = frames(&routes(), flows, device);
    Captures::write_each(path, [&asks, &answers]).map(drop)
}

fn established(row: &'static str, run: Run, flows: u64, device: Device) -> Result<Sample, Error> {
    let flows = if run.quick { flows.min(1000) } else { flows };
    let remote = routes();
    let [asks, answers] = frames(&remote, flows, device);
    let captures = Captures::of_each([&asks, &answers])?;
    drop((asks, answers));

    let written = tables(remote)?;
    let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
    let pages = pool.page_kind();
    let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let clock = Clock::calibrate();
    let setup = written.setup(two_links(), clock);
    let stage = match device {
        Device::Router => Fast::router(setup, &mut egress),
        _ => gateway(setup, &stanzas(flows, device)?, &mut egress)?,
    };
    let drops = egress.drop_counts();
    let dropped = move || {
        let drops = drops.lock().unwrap_or_else(PoisonError::into_inner);
        drops.iter().map(|(_, count)| count.read()).sum::<u64>()
    };
    let mut ports = open(&mut Drivers::new(), &captures.specs())?;
    let pools = Pools::new(vec![pool]);
    let (mpps, early, late, known) = run.pinned(move |run| -> Result<_, Error> {
        let mut worker = connect(&mut ports, &pools, stage, egress, 0)?.0;
        let mut poll = || worker.round() as u64;
        // All flows have begun, in both directions.
        let mut seen = 0;
        while seen < 4 * flows {
            seen += poll();
        }
        let early = dropped();
        rate(run.duration / 10, &mut poll);
        let mpps = rate(run.duration, &mut poll);
        let path = worker.stage.path::<GatewayPath>();
        let known = path.map_or(0, |path| path.flows().v4().len());
        Ok((mpps, early, dropped(), known))
    })??;
    drop(captures);
    Ok(Sample::new(row, mpps, "Mpps", pages)
        .with("cycles", clock.hz() / 1e6 / mpps)
        .with("flows", known)
        .with("rules", RULES)
        .with("dropped", late - early))
}

/// Zones, and a list of which the last rule decides: hosts inside may send this protocol.
fn policy(protocol: &str) -> String {
    let mut text = String::from(
        "[[zone]]\nname = \"inside\"\ninterfaces = [\"a\"]\n\
         [[zone]]\nname = \"outside\"\ninterfaces = [\"b\"]\n\
         [[policy]]\nfrom = \"inside\"\nto = \"outside\"\nrules = [\n",
    );
    for number in 1..RULES {
        let other = Ipv4Addr::from(0xac10_0000 | number);
        text += &format!("{{ action = \"permit\", source = \"{other}/32\" }},\n");
    }
    let last = format!("source = \"10.0.0.0/8\", protocol = \"{protocol}\"");
    text + &format!("{{ action = \"permit\", {last} }}]\n")
}

/// A gateway of so many flows, whose policy permits a protocol: port 0 is inside. It does not
/// translate.
pub(super) fn firewall(flows: u32, protocol: &str) -> Result<Stanzas, Error> {
    let parsed = config::parse(&policy(protocol), |file| {
        stanza::read(file, &["a", "b"], Path::new(""))
    });
    if let Some(error) = parsed.errors.first() {
        return Err(std::io::Error::other(error.to_string()).into());
    }
    Ok(Stanzas {
        flows: FlowsConfig {
            ipv4: flows,
            ipv6: 64,
            ..FlowsConfig::default()
        },
        policy: parsed.value,
        interfaces: vec!["a".into(), "b".into()],
        ..Stanzas::default()
    })
}

/// That hosts of a network get an address of these.
pub(super) fn translates(nat: &mut rules::Config, from: Prefix4, to: (Ipv4Addr, Ipv4Addr)) {
    nat.sources.push(rules::SourceRule {
        from: rules::Place::default(),
        to: rules::Place::default(),
        source: Some(Prefix::V4(from)),
        destination: None,
        protocol: None,
        action: rules::Action::Pool(nat.pools.len() as u16),
    });
    let (name, range) = (nat.pools.len().to_string(), (to.0.into(), to.1.into()));
    nat.pools.push(rules::Pool::new(&name, vec![range]));
}

/// What the gateway between the captures is asked for.
fn stanzas(flows: u64, device: Device) -> Result<Stanzas, Error> {
    let mut stanzas = firewall((flows as u32).max(1000), "udp")?;
    if device == Device::Nat {
        let nat = &mut stanzas.nat;
        for nth in 0..flows.div_ceil(SHARE) as u32 {
            let outside = Ipv4Addr::from(OUTSIDE + nth);
            let from = Prefix4::new(INSIDE | nth << 20, 12)?;
            translates(nat, from, (outside, outside));
        }
        nat.limits.mappings = nat.limits.mappings.max(flows as usize);
        nat.limits.subscribers = nat.limits.subscribers.max(flows as usize);
    }
    Ok(stanzas)
}

/// The gateway's stage.
pub(super) fn gateway(setup: Setup, stanzas: &Stanzas, egress: &mut Egress) -> Result<Fast, Error> {
    let shared = Shared::new(stanzas, &setup.settings, None)?;
    let now_ns = setup.clock.ns(setup.clock.now());
    let flows = Flows::new(shared, 0, now_ns, egress)?;
    let path = Box::new(GatewayPath::new(&setup, flows));
    Ok(Fast::new(setup, path, egress))
}

/// Packets that each of the two workers begins with.
const UNDER_WAY: usize = 512;

/// Takes packets, says their buckets, all of which the other worker owns, and hands them over.
struct Hop {
    sorter: Sorter<Handed>,
    classes: Classes,
    parsed: Box<Parsed>,
}

impl Stage for Hop {
    #[inline]
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        let mut buckets = [0; Burst::CAPACITY];
        self.sorter.admit(burst, out);
        self.parsed.class.v4 = burst.mask();
        self.classes.buckets(&self.parsed, 0, &mut buckets);
        let all = Sorted {
            mask: Mask::MAX,
            ..Sorted::default()
        };
        let mark = |index: usize| all.handed(index, 1, buckets[index]);
        let ready = |_, _: &mut Burst, _: &mut PoolCache| ();
        let sorted = (&buckets, all.mask);
        self.sorter.sort(burst, sorted, mark, ready, out);
    }
}

impl Hop {
    /// Worker `me` of two, with keys whose buckets are all the other's.
    fn new(me: u8, egress: &mut Egress) -> Result<Self, Error> {
        let (hash, owners) = (Hash::new(1), Owners::dealt(2));
        let mut parsed = Box::new(Parsed::new());
        let mut numbers = 0..;
        for key in &mut parsed.keys4 {
            let others = numbers.find_map(|number: u64| {
                let (ends, ports) = (mixed(number).to_be_bytes(), mixed(!number));
                let (src, dst) = ([10, ends[1], ends[2], ends[3]], [ends[4], ends[5], 1, 1]);
                let key = FlowKey4::new(src, dst, ports as u16, (ports >> 16) as u16, 17);
                let bucket: Bucket = hash.flow4(&key);
                (owners.of(bucket) != me).then_some(key)
            });
            *key = others.unwrap_or_default();
        }
        Ok(Self {
            sorter: Sorter::new(me, owners, vec![0, 1], Isa::detect(), egress),
            classes: Classes::new(hash, &Marked::default())?,
            parsed,
        })
    }
}

fn dispatch(row: &'static str, run: Run) -> Result<Sample, Error> {
    let pool = Pool::new(&PoolConfig::new("bench", 4096))?;
    let pages = pool.page_kind();
    let clock = Clock::calibrate();
    let mut workers = Vec::new();
    for me in 0..2 {
        let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
        let stage = Hop::new(me, &mut egress)?;
        workers.push(Worker::new("hop", stage, egress, clock).map_err(Error::from)?);
    }
    for from in 0..2 {
        let to = 1 - from;
        let (putter, taker) = spsc::ring(2048);
        let bell = workers[to].1.doorbell().clone();
        let (worker, _) = &mut workers[from];
        worker.set_outlet(to as u16, Some(TxPath::Ring(putter, bell)));
        let mut burst = Burst::new();
        for _ in 0..UNDER_WAY / Burst::CAPACITY {
            let cache = &mut worker.egress.cache;
            cache.fill(&pool, &mut burst, Burst::CAPACITY);
            worker.egress.send(to as u16, &mut burst);
            worker.egress.flush();
        }
        workers[to].0.add_inlet(Inlet::ring(to as u16, 0, taker));
    }
    let mut workers = workers.into_iter().map(|(worker, _)| worker);
    let (Some(mut near), Some(mut far)) = (workers.next(), workers.next()) else {
        return Err(std::io::Error::other("there are two workers").into());
    };
    let (ends, ended) = std::sync::mpsc::channel::<()>();
    let other = Lcore::spawn("hop", Some(run.cpus[1]), move || {
        let mut idle = 0;
        while ended.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            for _ in 0..64 {
                match far.round() {
                    0 => pause(&mut idle),
                    _ => idle = 0,
                }
            }
        }
    })?;
    let mpps = run.pinned(move |run| {
        let mut idle = 0;
        let mut poll = || match near.round() {
            0 => {
                pause(&mut idle);
                0
            }
            packets => packets as u64,
        };
        rate(
            Duration::min(run.duration / 10, Duration::from_millis(50)),
            &mut poll,
        );
        rate(run.duration, &mut poll)
    })?;
    drop(ends);
    other.join()?;
    Ok(Sample::new(row, clock.hz() / 1e6 / mpps, "cycles", pages).with("mpps", mpps))
}
