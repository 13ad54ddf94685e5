//! `plan --rss`: which lcore polls which queue, and what share of the table and of the flows it
//! gets.

use std::fmt::Write;

use linerate_core::env::{Plan, Role};
use serde::Serialize;

use super::flows::FlowArgs;
use super::spread::{QueueRow, Spread, percent};
use super::{ModelArgs, ModelReport};
use linerate_appliance::error::Error;
use linerate_appliance::output::{Cell, Column, Table, Tone};
use linerate_appliance::runtime::wiring::{self, PortShape};

/// From this imbalance on an lcore's share is marked.
const UNEVEN: f64 = 1.25;

/// The queues of every port on the lcores of a plan. Each port is assumed to get the same flows.
#[derive(Serialize)]
pub struct Placed {
    nic: ModelReport,
    of: String,
    /// The busiest lcore's share over the average.
    imbalance: f64,
    lcores: Vec<LcoreRow>,
    queues: Vec<QueueRow>,
    /// io lcores without a queue.
    idle: Vec<String>,
}

#[derive(Serialize)]
struct LcoreRow {
    lcore: String,
    cpu: u32,
    queues: Vec<Polled>,
    entries_share: f64,
    packets_share: f64,
}

#[derive(Serialize)]
struct Polled {
    port: String,
    queue: u16,
}

impl Placed {
    /// Spreads the queues as `linerate l2fwd` does. Without named ports, one port stands for all.
    pub fn on(
        plan: &Plan,
        ports: &[String],
        model: &ModelArgs,
        flows: &FlowArgs,
    ) -> Result<Self, Error> {
        let io: Vec<_> = plan.role(Role::Io).collect();
        let model = model.model(io.len().clamp(1, 128) as u16)?;
        let spread = Spread::of(&model, flows, false)?;
        let any = ["any port".to_owned()];
        let ports = if ports.is_empty() { &any } else { ports };
        let queues = spread.queues.len() as u16;
        let shapes: Vec<PortShape> = (0..ports.len() as u16)
            .map(|out| PortShape {
                rx_queues: queues,
                max_tx_queues: queues,
                outs: vec![out],
            })
            .collect();
        let shares = wiring::spread(&shapes, io.len());
        let row = |(share, lcore): (&wiring::Share, &&linerate_core::env::Placement)| {
            let polled = || {
                share
                    .polls
                    .iter()
                    .map(|&(_, queue)| &spread.queues[usize::from(queue)])
            };
            let mean =
                |of: fn(&QueueRow) -> f64| polled().map(of).sum::<f64>() / ports.len() as f64;
            LcoreRow {
                lcore: lcore.name.clone(),
                cpu: lcore.cpu,
                queues: share
                    .polls
                    .iter()
                    .map(|&(port, queue)| Polled {
                        port: ports[usize::from(port)].clone(),
                        queue,
                    })
                    .collect(),
                entries_share: mean(|row| row.entries_share),
                packets_share: mean(|row| row.packets_share),
            }
        };
        let lcores: Vec<LcoreRow> = shares.iter().zip(&io).map(row).collect();
        let busiest = lcores
            .iter()
            .map(|row| row.packets_share)
            .fold(0.0, f64::max);
        Ok(Self {
            nic: (&model).into(),
            imbalance: busiest * lcores.len() as f64,
            idle: io
                .iter()
                .skip(lcores.len())
                .map(|lcore| lcore.name.clone())
                .collect(),
            lcores,
            of: spread.of,
            queues: spread.queues,
        })
    }

    /// A table for users.
    pub fn text(&self, colour: bool) -> String {
        let mut text = format!("\nRSS by {}\nflows: {}\n\n", self.nic.line(), self.of);
        let mut table = Table::new([
            Column::text("lcore"),
            Column::number("CPU"),
            Column::number("of table"),
            Column::number("of packets"),
            Column::text("polls"),
        ]);
        let busiest = self
            .lcores
            .iter()
            .map(|row| row.packets_share)
            .fold(0.0, f64::max);
        for row in &self.lcores {
            let is_uneven = self.imbalance >= UNEVEN && row.packets_share == busiest;
            let tone = if is_uneven { Tone::Warn } else { Tone::Plain };
            table.row([
                Cell::new(&row.lcore),
                Cell::new(row.cpu),
                Cell::new(percent(row.entries_share)),
                Cell::new(percent(row.packets_share)).tone(tone),
                Cell::new(polls(&row.queues)),
            ]);
        }
        text += &table.render(colour);
        let _ = writeln!(
            text,
            "the busiest lcore has {:.2} times the average",
            self.imbalance
        );
        if !self.idle.is_empty() {
            let warning = Tone::Warn.paint("warning:", colour);
            let _ = writeln!(
                text,
                "{warning} no queue for {}; raise --queues",
                self.idle.join(", ")
            );
        }
        text
    }
}

/// `wan 0,2; lan 1`.
fn polls(queues: &[Polled]) -> String {
    let ports = queues.chunk_by(|a, b| a.port == b.port).map(|queues| {
        let numbers: Vec<_> = queues
            .iter()
            .map(|polled| polled.queue.to_string())
            .collect();
        format!("{} {}", queues[0].port, numbers.join(","))
    });
    ports.collect::<Vec<_>>().join("; ")
}
