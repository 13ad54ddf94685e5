//! `bench rss --port SPEC`: does a port's RSS do what the model says?
//!
//! Receives from all queues for a while, sends nothing, and compares the queue that each packet
//! came to, and the hash where the driver reports it, with the model's.

use std::fmt::Write;
use std::time::{Duration, Instant};

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Offload, Packet, PoolCache};
use linerate_core::port::{PortConfig, Queues};
use linerate_tables::rss::Model;
use serde::Serialize;

use super::flows::{self, Seen};
use super::{DEFAULT_QUEUES, ModelArgs, ModelReport};
use linerate_appliance::error::Error;
use linerate_appliance::output::{self, Cell, Column, Table, Tone};
use linerate_appliance::runtime::{Interrupts, OpenPorts};

/// Disagreements that are shown.
const SHOWN: usize = 10;
/// How long to sleep between rounds of polling.
const NAP: Duration = Duration::from_micros(50);

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct CheckArgs {
    /// Open this port with --queues queues, receive, and compare its RSS with the model; without
    /// one with what the port says of itself
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["flows", "pcap"])]
    port: Option<String>,
    /// Seconds to receive for
    #[arg(long, value_name = "S", default_value_t = 5.0, requires = "port")]
    seconds: f64,
}

impl CheckArgs {
    pub(super) fn is_asked(&self) -> bool {
        self.port.is_some()
    }
}

#[derive(Serialize)]
struct Report {
    nic: ModelReport,
    port: String,
    #[serde(flatten)]
    tally: Tally,
    /// Packets on the queue that the model says, in percent of those that it can predict; absent if
    /// none came.
    agreement_percent: Option<f64>,
    /// The same for the hash, where the driver reports it.
    hash_agreement_percent: Option<f64>,
}

#[derive(Default, Serialize)]
struct Tally {
    packets: u64,
    not_hashed: u64,
    unpredictable: u64,
    compared: u64,
    agreed: u64,
    hashes_compared: u64,
    hashes_agreed: u64,
    /// Received and predicted packets, by queue.
    queues: Vec<QueueRow>,
    disagreements: Vec<Disagreement>,
}

#[derive(Clone, Default, Serialize)]
struct QueueRow {
    packets: u64,
    expected: u64,
}

#[derive(Serialize)]
struct Disagreement {
    flow: String,
    queue: u16,
    expected_queue: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<u32>,
    expected_hash: u32,
}

/// `given`: the NIC that the user says the port is; else it is what the port says, if anything.
pub(super) fn run(given: Option<Model>, args: &CheckArgs, json: bool) -> Result<(), Error> {
    let spec = args.port.clone().unwrap_or_default();
    let interrupts = Interrupts::catch()?;
    let mut opened = OpenPorts::open(&[(None, spec)], Clock::calibrate())?;
    let model = match (given, opened.ports[0].port.rss()) {
        (Some(model), _) => model,
        (None, Some(setup)) => Model::of_port(&setup)?,
        (None, None) => ModelArgs::default().model(DEFAULT_QUEUES)?,
    };
    let model = &model;
    let rx_queues = model.reta().queue_count() as u16;
    let pools = opened.pools(rx_queues.into(), None)?;
    let mut cache = PoolCache::new(pools.as_slice());
    let open = &mut opened.ports[0];
    if open.info.max_rx_queues < rx_queues {
        return Err(Error::Usage {
            problem: format!(
                "{}: {rx_queues} queues, but it has {}",
                open.name, open.info.max_rx_queues
            ),
            fix: "lower --queues, or open the port with more (`queues=N` in its specification)"
                .into(),
        });
    }
    let config = PortConfig {
        rx_queues,
        ..PortConfig::default()
    };
    let mut queues = open.port.start(&config, &pools)?;
    let deadline = Instant::now() + Duration::from_secs_f64(args.seconds.clamp(0.001, 3600.0));
    let tally = receive(model, &mut queues, &mut cache, || {
        interrupts.wait(NAP) || Instant::now() >= deadline
    });
    drop(queues);
    drop(cache);
    open.port.stop()?;
    let percent = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64 * 100.0);
    let report = Report {
        nic: model.into(),
        port: open.name.clone(),
        agreement_percent: percent(tally.agreed, tally.compared),
        hash_agreement_percent: percent(tally.hashes_agreed, tally.hashes_compared),
        tally,
    };
    match json {
        true => output::print_json(&report),
        false => output::print(&report.text(output::colour())),
    }
}

/// Polls all queues until `over`, which may sleep, returns true; it is called when nothing came,
/// and every 64 rounds, so that a flood cannot prevent the end.
fn receive(
    model: &Model,
    queues: &mut Queues,
    cache: &mut PoolCache,
    over: impl Fn() -> bool,
) -> Tally {
    let mut tally = Tally {
        queues: vec![QueueRow::default(); queues.rx.len().max(model.reta().queue_count())],
        ..Tally::default()
    };
    let mut burst = Burst::new();
    loop {
        for _ in 0..64 {
            let mut came = 0;
            for (queue, rx) in (0..).zip(&mut queues.rx) {
                came += rx.rx_burst(&mut burst, cache);
                burst
                    .iter()
                    .for_each(|packet| tally.add(model, queue, packet));
                cache.free(&mut burst);
            }
            if came == 0 {
                break;
            }
        }
        if over() {
            return tally;
        }
    }
}

impl Tally {
    fn add(&mut self, model: &Model, queue: u16, packet: &Packet) {
        self.packets += 1;
        self.queues[usize::from(queue)].packets += 1;
        let Seen::Ip { flow, fragment } = flows::seen(packet.data()) else {
            return self.not_hashed += 1;
        };
        let Some(expected_hash) = model.hash(&flow, fragment) else {
            return self.unpredictable += 1;
        };
        let expected_queue = model.reta().queue(expected_hash);
        self.queues[usize::from(expected_queue)].expected += 1;
        self.compared += 1;
        self.agreed += u64::from(expected_queue == queue);
        let meta = packet.meta();
        let hash = meta.offload.contains(Offload::RSS).then_some(meta.rss_hash);
        self.hashes_compared += u64::from(hash.is_some());
        self.hashes_agreed += u64::from(hash == Some(expected_hash));
        let agrees = expected_queue == queue && hash.is_none_or(|hash| hash == expected_hash);
        if !agrees && self.disagreements.len() < SHOWN {
            self.disagreements.push(Disagreement {
                flow: flows::name(&flow),
                queue,
                expected_queue,
                hash,
                expected_hash,
            });
        }
    }
}

impl Report {
    fn text(&self, colour: bool) -> String {
        let tally = &self.tally;
        let mut text = format!(
            "{}\n{}: {} packets\n\n",
            self.nic.line(),
            self.port,
            tally.packets
        );
        let mut table = Table::new(["queue", "packets", "by the model"].map(Column::number));
        for (queue, row) in tally.queues.iter().enumerate() {
            table.row([
                Cell::new(queue),
                Cell::new(row.packets),
                Cell::new(row.expected),
            ]);
        }
        text += &table.render(colour);
        let Some(percent) = self.agreement_percent else {
            text += "\nnothing to compare: no IP packet came; send some while this runs\n";
            return text;
        };
        let tone = if tally.agreed == tally.compared {
            Tone::Good
        } else {
            Tone::Bad
        };
        let verdict = tone.paint(
            &format!(
                "{percent:.2}% of {} packets came to the queue of the model",
                tally.compared
            ),
            colour,
        );
        let _ = writeln!(text, "\n{verdict}");
        match self.hash_agreement_percent {
            Some(percent) => {
                _ = writeln!(
                    text,
                    "{percent:.2}% of {} reported hashes are the model's",
                    tally.hashes_compared
                )
            }
            None => text += "the driver reports no hash\n",
        }
        if !tally.disagreements.is_empty() {
            let _ = write!(text, "\n{}", self.disagreements(colour));
            text += "fix: compare key, table and fields with `ethtool -x IFACE` and `ethtool -n \
                IFACE rx-flow-hash tcp4`\n";
        }
        text
    }

    fn disagreements(&self, colour: bool) -> String {
        let mut table = Table::new([
            Column::text("flow"),
            Column::number("queue"),
            Column::number("by the model"),
            Column::text("hash"),
            Column::text("by the model"),
        ]);
        for row in &self.tally.disagreements {
            table.row([
                Cell::new(&row.flow),
                Cell::new(row.queue),
                Cell::new(row.expected_queue),
                Cell::new(row.hash.map_or("-".into(), |hash| format!("{hash:08x}"))),
                Cell::new(format!("{:08x}", row.expected_hash)),
            ]);
        }
        table.render(colour)
    }
}
