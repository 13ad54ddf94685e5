//! The distribution of flows and packets over queues.

use std::collections::HashMap;
use std::fmt::Write;

use linerate_tables::rss::{Flow, Model};
use serde::Serialize;

use super::ModelReport;
use super::flows::{self, FlowArgs, Seen};
use linerate_appliance::error::Error;
use linerate_appliance::output::{self, Cell, Column, Table, Tone};

/// From this imbalance on the busiest queue is marked.
const UNEVEN: f64 = 1.25;

/// Flows and packets, by queue.
#[derive(Serialize)]
pub(super) struct Spread {
    /// Where the flows are from.
    pub of: String,
    flows: usize,
    packets: u64,
    /// Packets by the hashed fields.
    addresses_and_ports: u64,
    addresses_only: u64,
    /// Hashed by more than the 4-tuple, so that the queue is unknown.
    unpredictable: u64,
    /// Not IP: queue 0.
    not_hashed: u64,
    /// The busiest queue's packets over the average of the queues in the table.
    pub imbalance: f64,
    pub queues: Vec<QueueRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Vec<FlowRow>>,
}

#[derive(Clone, Serialize)]
pub(super) struct QueueRow {
    pub queue: u16,
    /// RETA entries that lead to it.
    pub entries: usize,
    pub entries_share: f64,
    pub flows: usize,
    pub packets: u64,
    pub packets_share: f64,
}

#[derive(Serialize)]
struct FlowRow {
    flow: String,
    fragment: bool,
    packets: u64,
    hash: Option<u32>,
    entry: Option<u32>,
    queue: Option<u16>,
}

#[derive(Serialize)]
struct Report {
    nic: ModelReport,
    #[serde(flatten)]
    spread: Spread,
}

pub(super) fn run(model: &Model, args: &FlowArgs, list: bool, json: bool) -> Result<(), Error> {
    let report = Report {
        nic: model.into(),
        spread: Spread::of(model, args, list)?,
    };
    match json {
        true => output::print_json(&report),
        false => output::print(&report.text(output::colour())),
    }
}

impl Spread {
    /// Sends every packet of `args` through the model.
    pub(super) fn of(model: &Model, args: &FlowArgs, list: bool) -> Result<Self, Error> {
        let mut seen: HashMap<(Vec<u8>, bool), (Flow, u64)> = HashMap::new();
        let mut not_hashed = 0;
        let of = args.for_each(|packet| match packet {
            Seen::Other => not_hashed += 1,
            Seen::Ip { flow, fragment } => {
                let key = [flow.tuple(), &[flow.protocol()]].concat();
                seen.entry((key, fragment)).or_insert((flow, 0)).1 += 1;
            }
        })?;
        let slots = model.reta().slots();
        let mut spread = Self {
            of,
            flows: seen.len(),
            packets: not_hashed,
            addresses_and_ports: 0,
            addresses_only: 0,
            unpredictable: 0,
            not_hashed,
            imbalance: 1.0,
            queues: (0..model.reta().queue_count() as u16)
                .map(|queue| QueueRow::new(queue, slots))
                .collect(),
            list: None,
        };
        let mut rows = Vec::new();
        for ((_, fragment), (flow, packets)) in seen {
            spread.add(model, &flow, fragment, packets);
            if list {
                rows.push(FlowRow::new(model, &flow, fragment, packets));
            }
        }
        rows.sort_by(|a, b| (a.queue, &a.flow).cmp(&(b.queue, &b.flow)));
        spread.list = list.then_some(rows);
        spread.finish();
        Ok(spread)
    }

    fn add(&mut self, model: &Model, flow: &Flow, fragment: bool, packets: u64) {
        self.packets += packets;
        let Some(queue) = model.queue(flow, fragment) else {
            return self.unpredictable += packets;
        };
        match model.counts_ports(flow, fragment) {
            true => self.addresses_and_ports += packets,
            false => self.addresses_only += packets,
        }
        let row = &mut self.queues[usize::from(queue)];
        row.flows += 1;
        row.packets += packets;
    }

    fn finish(&mut self) {
        if let Some(first) = self.queues.first_mut() {
            first.packets += self.not_hashed;
        }
        let placed: u64 = self.queues.iter().map(|row| row.packets).sum();
        if placed == 0 {
            return;
        }
        for row in &mut self.queues {
            row.packets_share = row.packets as f64 / placed as f64;
        }
        let used = self.queues.iter().filter(|row| row.entries > 0).count();
        let busiest = self
            .queues
            .iter()
            .map(|row| row.packets_share)
            .fold(0.0, f64::max);
        self.imbalance = busiest * used as f64;
    }
}

impl QueueRow {
    fn new(queue: u16, slots: &[u16]) -> Self {
        let entries = slots.iter().filter(|&&slot| slot == queue).count();
        Self {
            queue,
            entries,
            entries_share: entries as f64 / slots.len() as f64,
            flows: 0,
            packets: 0,
            packets_share: 0.0,
        }
    }
}

impl FlowRow {
    fn new(model: &Model, flow: &Flow, fragment: bool, packets: u64) -> Self {
        let hash = model.hash(flow, fragment);
        let low_bits = model.reta().slots().len() as u32 - 1;
        Self {
            flow: flows::name(flow),
            fragment,
            packets,
            hash,
            entry: hash.map(|hash| hash & low_bits),
            queue: hash.map(|hash| model.reta().queue(hash)),
        }
    }
}

impl Report {
    fn text(&self, colour: bool) -> String {
        let spread = &self.spread;
        let mut text = format!("{}\n{}\n\n", self.nic.line(), spread.of);
        let mut table = Table::new([
            Column::number("queue"),
            Column::number("entries"),
            Column::number("of table"),
            Column::number("flows"),
            Column::number("packets"),
            Column::number("of packets"),
        ]);
        let busiest = spread.queues.iter().map(|row| row.packets).max();
        for row in &spread.queues {
            let is_uneven = spread.imbalance >= UNEVEN && Some(row.packets) == busiest;
            let tone = if is_uneven { Tone::Warn } else { Tone::Plain };
            table.row([
                Cell::new(row.queue),
                Cell::new(row.entries),
                Cell::new(percent(row.entries_share)),
                Cell::new(row.flows),
                Cell::new(row.packets),
                Cell::new(percent(row.packets_share)).tone(tone),
            ]);
        }
        text += &table.render(colour);
        let _ = writeln!(
            text,
            "\n{} flows, {} packets: {} hashed by addresses and ports, {} by addresses, {} not \
             hashed (queue 0)",
            spread.flows,
            spread.packets,
            spread.addresses_and_ports,
            spread.addresses_only,
            spread.not_hashed
        );
        if spread.unpredictable > 0 {
            let _ = writeln!(
                text,
                "{} packets are hashed by more than the 4-tuple: their queue is unknown",
                spread.unpredictable
            );
        }
        let _ = writeln!(
            text,
            "the busiest queue has {:.2} times the average",
            spread.imbalance
        );
        if let Some(rows) = &spread.list {
            text += &format!("\n{}", list(rows, colour));
        }
        text
    }
}

fn list(rows: &[FlowRow], colour: bool) -> String {
    let mut table = Table::new([
        Column::text("flow"),
        Column::number("packets"),
        Column::text("hash"),
        Column::number("entry"),
        Column::number("queue"),
    ]);
    let or_dash = |value: Option<String>| Cell::new(value.unwrap_or_else(|| "-".into()));
    for row in rows {
        let fragment = if row.fragment { " (addresses)" } else { "" };
        table.row([
            Cell::new(format!("{}{fragment}", row.flow)),
            Cell::new(row.packets),
            or_dash(row.hash.map(|hash| format!("{hash:08x}"))),
            or_dash(row.entry.map(|entry| entry.to_string())),
            or_dash(row.queue.map(|queue| queue.to_string())),
        ]);
    }
    table.render(colour)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}
