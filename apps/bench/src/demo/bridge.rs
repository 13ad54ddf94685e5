//! The comparison: the kernel's bridge and linerate l2fwd between the same veth pairs, fed by the
//! same sender, counted at the far ends.
//!
//! Pair *n* is `g<n>` (the sender's end, and the far end of its neighbour) and `d<n>` (the end
//! that is forwarded). On veth the kernel is the limit for everybody: each frame passes its
//! transmit and receive path twice, most of it in the time of whoever sends. So the split of CPU
//! time is recorded beside each rate, and the bottleneck named from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_core::env::{Clock, Lcore, Placement, Role};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, TxQueue};
use linerate_core::run::Egress;
use linerate_drivers::Drivers;
use linerate_wire::ethernet::MacAddr;
use serde::Serialize;

use super::cpus::{CpuSplit, CpuTimes};
use super::frame::{Label, Template};
use linerate_appliance::error::Error;
use linerate_appliance::netns::{self, Space};
use linerate_appliance::runtime::{OpenPorts, Options};
use linerate_l2fwd::stage::{L2fwd, Route};

/// Before counting, for rings and tables to fill.
const WARM: Duration = Duration::from_millis(150);
const COUNTED: Duration = Duration::from_millis(450);

/// Who forwards between `d0`, `d1` (and `d2`, `d3`).
#[derive(Clone, Copy, PartialEq)]
enum By {
    Bridge,
    /// With receive packet steering to the last CPU, as one binds interrupts to a core.
    BridgeRps,
    /// l2fwd over this kind of port.
    Linerate(&'static str),
}

const SCENARIOS: [(&str, By, usize); 7] = [
    ("Linux bridge, 2 ports", By::Bridge, 2),
    ("Linux bridge, 2 ports, RPS to one core", By::BridgeRps, 2),
    ("linerate af_packet, 2 ports", By::Linerate("af_packet"), 2),
    ("linerate af_xdp, 2 ports", By::Linerate("af_xdp"), 2),
    ("Linux bridge, 4 ports both ways", By::Bridge, 4),
    (
        "linerate af_packet, 4 ports both ways",
        By::Linerate("af_packet"),
        4,
    ),
    (
        "linerate af_xdp, 4 ports both ways",
        By::Linerate("af_xdp"),
        4,
    ),
];

/// One way of forwarding, at all sizes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) ports: usize,
    pub(crate) rows: Vec<Rate>,
    /// Why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
}

/// One rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) frame_bytes: usize,
    /// Frames that the sender got rid of.
    pub(crate) sent_mpps: f64,
    /// Frames that came out at the far ends.
    pub(crate) mpps: f64,
    /// To the bridge with as many ports and no steering.
    pub(crate) ratio: f64,
    pub(crate) cpus: Vec<CpuSplit>,
    pub(crate) bottleneck: String,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) scenarios: Vec<Scenario>,
    /// The share of each CPU that others had just before: 0 to 1.
    pub(crate) others: Vec<f64>,
}

/// Measures all of it, in a name space of its own. Ends early, with what it has, on `stop`.
pub(super) fn compare(
    frames: &[usize],
    clock: Clock,
    cpus: &[u32],
    stop: &Arc<AtomicBool>,
    say: &dyn Fn(String),
) -> Result<Comparison, Error> {
    Space::new()?.enter()?;
    let before = CpuTimes::read()?;
    std::thread::sleep(COUNTED);
    let others = CpuTimes::read()?.since(&before);
    let others = others.iter().map(|split| 1.0 - split.idle).collect();
    let (sender, forwarder) = (cpus[0], cpus[cpus.len() - 1]);
    make_pairs()?;
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (name, by, ports) in SCENARIOS {
        say(format!("{name}: setting up"));
        let mut scenario = Scenario {
            name,
            ports,
            rows: Vec::new(),
            failed: None,
        };
        let bench = Bench {
            by,
            ports,
            clock,
            sender,
            forwarder,
        };
        match bench.measure(frames, stop, say, name) {
            Ok(rows) => scenario.rows = rows,
            // One kind of port that this kernel does not do is no reason to end.
            Err(error) if !scenarios.is_empty() => scenario.failed = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        let base = scenarios
            .iter()
            .find(|other| other.ports == ports)
            .unwrap_or(&scenario)
            .rows
            .clone();
        for (row, base) in scenario.rows.iter_mut().zip(base) {
            row.ratio = row.mpps / base.mpps.max(1e-9);
        }
        scenarios.push(scenario);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(Comparison { scenarios, others })
}

/// Four veth pairs, and a bridge for each two of them.
fn make_pairs() -> Result<(), Error> {
    let mut lines = String::new();
    for pair in 0..4 {
        lines += &format!(
            "link add g{pair} address {} type veth peer name d{pair}\n",
            host(pair)
        );
        lines += &format!("link set g{pair} up\nlink set d{pair} up\n");
    }
    lines +=
        "link add br0 type bridge\nlink add br1 type bridge\nlink set br0 up\nlink set br1 up\n";
    netns::ip(&lines)
}

/// The address of a sender's end.
fn host(pair: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 2, pair as u8])
}

struct Bench {
    by: By,
    ports: usize,
    clock: Clock,
    sender: u32,
    forwarder: u32,
}

impl Bench {
    fn measure(
        &self,
        frames: &[usize],
        stop: &Arc<AtomicBool>,
        say: &dyn Fn(String),
        name: &str,
    ) -> Result<Vec<Rate>, Error> {
        let rps = if self.by == By::BridgeRps {
            1_u64 << (self.forwarder % 64)
        } else {
            0
        };
        netns::with_sysfs(&format!(
            "for d in d0 d1; do echo {rps:x} > /sys/class/net/$d/queues/rx-0/rps_cpus; done"
        ))?;
        let bridged = matches!(self.by, By::Bridge | By::BridgeRps);
        let master = |pair: usize| {
            if bridged {
                format!("master br{}", pair / 2)
            } else {
                "nomaster".into()
            }
        };
        let lines: String = (0..4)
            .map(|pair| format!("link set d{pair} {}\n", master(pair)))
            .collect();
        netns::ip(&lines)?;
        let forwarding = match self.by {
            By::Linerate(kind) => Some(self.forward(kind)?),
            _ => None,
        };
        let mut rows = Vec::new();
        for &bytes in frames {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            say(format!("{name}: {bytes} byte frames"));
            rows.push(self.rate(bytes)?);
        }
        drop(forwarding);
        Ok(rows)
    }

    /// Starts l2fwd between the forwarded ends.
    fn forward(
        &self,
        kind: &str,
    ) -> Result<linerate_appliance::runtime::Running<L2fwd<true>>, Error> {
        let specs: Vec<_> = (0..self.ports)
            .map(|pair| (None, format!("{kind}:d{pair}")))
            .collect();
        let opened = OpenPorts::open(&specs, self.clock)?;
        let outs: Vec<u16> = (0..self.ports as u16).map(|port| port ^ 1).collect();
        let route = |&out: &u16| Route {
            out,
            src: MacAddr([2, 0, 0, 0, 1, out as u8]),
            dst: host(out.into()),
        };
        let routes: Vec<_> = outs.iter().map(route).collect();
        let lcore = Placement {
            name: "io0".into(),
            role: Role::Io,
            slot: 0,
            cpu: self.forwarder,
            node: 0,
        };
        let options = Options {
            queues: 1,
            burst: Burst::CAPACITY,
            pool_slots: None,
            sleep: true,
            spin: false,
        };
        opened.start(&outs, &[&lcore], &options, |egress: &mut Egress| {
            L2fwd::<true>::new(&routes, egress)
        })
    }

    /// Sends as fast as it goes and counts what comes out at the far ends.
    fn rate(&self, frame_bytes: usize) -> Result<Rate, Error> {
        // Two ports: one way, as the brief's chart has it. Four: each sends to its neighbour.
        let senders: Vec<usize> = if self.ports == 2 {
            vec![0]
        } else {
            (0..self.ports).collect()
        };
        let far: Vec<String> = senders
            .iter()
            .map(|pair| format!("g{}", pair ^ 1))
            .collect();
        let count = || {
            far.iter()
                .map(|end| netns::received(end))
                .sum::<Result<u64, Error>>()
        };
        let mut sender = Sender::new(&senders, frame_bytes, self.clock)?;
        let running = Arc::new(AtomicBool::new(true));
        let sent = Arc::new(linerate_core::port::Counter::default());
        let (goes_on, counter) = (running.clone(), sent.clone());
        let lcore = Lcore::spawn("sender", Some(self.sender), move || {
            while goes_on.load(Ordering::Relaxed) {
                counter.add(sender.round());
            }
        })?;
        let outcome = (|| {
            std::thread::sleep(WARM);
            let (cpus, before, sent_before, began) =
                (CpuTimes::read()?, count()?, sent.read(), Instant::now());
            std::thread::sleep(COUNTED);
            let (seconds, received, sent) = (
                began.elapsed().as_secs_f64(),
                count()? - before,
                sent.read() - sent_before,
            );
            let cpus = CpuTimes::read()?.since(&cpus);
            Ok(Rate {
                frame_bytes,
                sent_mpps: sent as f64 / seconds * 1e-6,
                mpps: received as f64 / seconds * 1e-6,
                ratio: 1.0,
                bottleneck: self.bottleneck(&cpus, sent, received),
                cpus,
            })
        })();
        running.store(false, Ordering::Relaxed);
        lcore.join()?;
        outcome
    }

    /// Who was full, from the CPU split.
    fn bottleneck(&self, cpus: &[CpuSplit], sent: u64, received: u64) -> String {
        let of = |cpu: u32| cpus.get(cpu as usize).copied().unwrap_or_default();
        let (near, far) = (of(self.sender), of(self.forwarder));
        let full = |split: &CpuSplit| split.idle < 0.1;
        // A bridge forwards in the kernel: user time there is somebody else's.
        let at_work = matches!(self.by, By::Linerate(_)) || far.softirq + far.system > 0.3;
        let percent = |share: f64| (share * 100.0).round();
        let say = |who: &str, cpu: u32, split: &CpuSplit| {
            format!(
                "{who} CPU {cpu} is full: {} % softirq, {} % system, {} % user",
                percent(split.softirq),
                percent(split.system),
                percent(split.user)
            )
        };
        let lost = if sent > 0 && received < sent * 98 / 100 {
            format!(
                "; {} % of the frames sent were dropped on the way",
                percent(1.0 - received as f64 / sent as f64)
            )
        } else {
            String::new()
        };
        let who = match (
            full(&near),
            full(&far) && at_work && self.sender != self.forwarder,
        ) {
            (true, true) => format!(
                "{}, {}",
                say("the sender's", self.sender, &near),
                say("the forwarder's", self.forwarder, &far)
            ),
            (true, false) => say("the sender's", self.sender, &near),
            (false, true) => say("the forwarder's", self.forwarder, &far),
            (false, false) => "no CPU is full: they wait for each other".into(),
        };
        who + &lost
    }
}

/// Sends through some of the senders' ends in turn.
struct Sender {
    outputs: Vec<(Box<dyn TxQueue>, Template)>,
    cache: PoolCache,
    pool: Pool,
    sequence: u64,
    clock: Clock,
    // After their queues.
    _ports: Vec<Box<dyn Port>>,
}

impl Sender {
    fn new(pairs: &[usize], frame_bytes: usize, clock: Clock) -> Result<Self, Error> {
        let pool = Pool::new(&PoolConfig::new("sender", 4096))?;
        let pools = Pools::new(vec![pool.clone()]);
        let mut drivers = Drivers::new();
        let (mut outputs, mut ports) = (Vec::new(), Vec::new());
        for &pair in pairs {
            let mut port = drivers.open(&format!("af_packet:g{pair}"))?;
            let config = PortConfig {
                rx_queues: 0,
                ..PortConfig::default()
            };
            let mut queues = port.start(&config, &pools)?;
            outputs.push((
                queues.tx.remove(0),
                Template::new(frame_bytes, host(pair ^ 1), host(pair), true),
            ));
            ports.push(port);
        }
        Ok(Self {
            outputs,
            cache: PoolCache::new(pools.as_slice()),
            pool,
            sequence: 0,
            clock,
            _ports: ports,
        })
    }

    /// One burst through each end; returns how many frames went.
    fn round(&mut self) -> u64 {
        let mut went = 0;
        let stamp = self.clock.now();
        for (queue, template) in &mut self.outputs {
            let mut burst = Burst::new();
            self.cache.fill(&self.pool, &mut burst, Burst::CAPACITY);
            for packet in burst.iter_mut() {
                packet.set_len(template.len);
                let sequence = self.sequence;
                template.write(packet.data_mut(), Label { sequence, stamp });
                self.sequence += 1;
            }
            went += queue.tx_burst(&mut burst, &mut self.cache) as u64;
            queue.flush(&mut self.cache);
            self.cache.free(&mut burst);
        }
        went
    }
}
