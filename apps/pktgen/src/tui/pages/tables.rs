//! Pages with one line for each stream, queue or lcore.

use crate::tui::grid::{Cell, Column, Grid};
use crate::tui::number::{Figure, Form, decimal, grouped, micros};
use crate::tui::theme::Tone;
use crate::{Latency, PortView, QueueView, Snapshot, StreamView, Tally};

/// A count that should be zero.
fn fault(count: u64) -> Cell {
    match count {
        0 => Cell::plain("0"),
        count => Cell::new(format!("!{}", grouped(count)), Tone::Bad),
    }
}

fn count(count: u64) -> Cell {
    Cell::plain(grouped(count))
}

fn rate(pps: f64) -> Cell {
    Cell::plain(decimal(pps, 0))
}

/// Of a distribution in microseconds; a dash where nothing was measured.
fn us(latency: &Latency, ns: f64) -> Cell {
    let figure = match latency.samples {
        0 => Figure::None,
        _ => micros(ns),
    };
    Cell::plain(figure.print(Form::Grouped))
}

/// The same cells as a sum.
fn as_total(cells: Vec<Cell>) -> Vec<Cell> {
    let strong = |cell: Cell| match cell.tone {
        Tone::Plain => Cell::new(cell.text, Tone::Total),
        _ => cell,
    };
    cells.into_iter().map(strong).collect()
}

pub(super) fn streams(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![
        Column::right("#", 5),
        Column::right("port", 4),
        Column::left("stream", 12),
        Column::left("state", 5),
        Column::right("asked", 12),
        Column::right("Tx pps", 11),
        Column::right("Rx pps", 11),
        Column::right("lost", 11),
        Column::right("lost ppm", 11),
        Column::right("sent", 15),
        Column::right("received", 15),
        Column::right("reordered", 11),
        Column::right("duplicate", 11),
        Column::right("unsent", 12),
        Column::right("p50 us", 12),
        Column::right("p99 us", 12),
        Column::right("max us", 12),
        Column::left("size", 10),
        Column::left("type", 14),
        Column::left("definition", 30),
    ];
    let all = sum_of(&snapshot.streams);
    Grid {
        columns,
        pinned: 3,
        total: false,
        across: "columns",
        down: "streams",
        len: snapshot.streams.len() + 1,
        line: Box::new(move |at| match at.checked_sub(1) {
            None => as_total(stream_cells(&all, true)),
            Some(at) => stream_cells(&snapshot.streams[at], false),
        }),
    }
}

/// The sum of all streams, as one stream.
fn sum_of(streams: &[StreamView]) -> StreamView {
    let mut all = StreamView {
        name: "all".into(),
        ..StreamView::default()
    };
    for stream in streams {
        // The printed values are summed, so that the column adds up.
        all.tx_pps += stream.tx_pps.round();
        all.rx_pps += stream.rx_pps.round();
        all.unsent += stream.unsent;
        let (sum, tally) = (&mut all.tally, &stream.tally);
        *sum = Tally {
            sent: sum.sent + tally.sent,
            received: sum.received + tally.received,
            lost: sum.lost + tally.lost,
            reordered: sum.reordered + tally.reordered,
            duplicates: sum.duplicates + tally.duplicates,
        };
    }
    all
}

fn stream_cells(stream: &StreamView, is_sum: bool) -> Vec<Cell> {
    let (tally, latency) = (&stream.tally, &stream.latency);
    let only = |text: String| match is_sum {
        true => Cell::empty(),
        false => Cell::plain(text),
    };
    let ppm = match tally.lost {
        0 => Cell::plain(if tally.sent == 0 { "-" } else { "0.0" }),
        _ => Cell::new(format!("!{}", decimal(tally.lost_ppm(), 1)), Tone::Bad),
    };
    let time = |ns| match is_sum {
        true => Cell::empty(),
        false => us(latency, ns),
    };
    vec![
        only(stream.id.to_string()),
        only(stream.port.to_string()),
        Cell::new(stream.name.clone(), Tone::Label),
        match (is_sum, stream.enabled) {
            (true, _) => Cell::empty(),
            (false, true) => Cell::new("on", Tone::Good),
            (false, false) => Cell::new("off", Tone::Dim),
        },
        only(stream.rate.clone()),
        rate(stream.tx_pps),
        rate(stream.rx_pps),
        fault(tally.lost),
        ppm,
        count(tally.sent),
        count(tally.received),
        fault(tally.reordered),
        fault(tally.duplicates),
        fault(stream.unsent),
        time(latency.p50_ns),
        time(latency.p99_ns),
        time(latency.max_ns),
        only(stream.template.size.clone()),
        only(stream.template.kind.clone()),
        only(stream.line.clone()),
    ]
}

pub(super) fn queues(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![
        Column::right("port", 4),
        Column::left("way", 3),
        Column::right("queue", 5),
        Column::left("lcore", 12),
        Column::right("pps", 11),
        Column::right("packets", 18),
        Column::right("MB", 14),
        Column::right("queue full", 12),
        Column::right("no pool slot", 13),
    ];
    let lines: Vec<(&PortView, &QueueView)> = snapshot
        .ports
        .iter()
        .flat_map(|port| port.queues.iter().map(move |queue| (port, queue)))
        .collect();
    // Sums for each direction, as in the totals of the main page.
    let sum = |direction: &str| {
        let mut all = QueueView {
            direction: direction.into(),
            ..QueueView::default()
        };
        for (_, queue) in lines
            .iter()
            .filter(|(_, queue)| queue.direction == direction)
        {
            all.packets += queue.packets;
            all.bytes += queue.bytes;
            all.pps += queue.pps.round();
            all.refused += queue.refused;
            all.no_slot += queue.no_slot;
        }
        all
    };
    let sums = [sum("rx"), sum("tx")];
    let cells = |port: Option<u16>, queue: &QueueView| {
        let number = |number: Option<u16>| number.map_or("all".to_owned(), |n| n.to_string());
        vec![
            Cell::plain(number(port)),
            Cell::plain(queue.direction.clone()),
            Cell::plain(number(port.map(|_| queue.queue))),
            Cell::new(queue.lcore.clone(), Tone::Label),
            rate(queue.pps),
            count(queue.packets),
            Cell::plain(decimal(queue.bytes as f64 / 1e6, 1)),
            fault(queue.refused),
            fault(queue.no_slot),
        ]
    };
    Grid {
        columns,
        pinned: 3,
        total: false,
        across: "columns",
        down: "queues",
        len: lines.len() + sums.len(),
        line: Box::new(move |at| match at.checked_sub(sums.len()) {
            None => as_total(cells(None, &sums[at])),
            Some(at) => cells(Some(lines[at].0.number), lines[at].1),
        }),
    }
}

/// Columns of the bar of a core's busy share.
const BAR: usize = 6;

pub(super) fn lcores(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![
        Column::left("lcore", 9),
        Column::right("CPU", 4),
        Column::right("busy %", 6),
        Column::left("", BAR as u16 + 2),
        Column::right("asleep %", 8),
        Column::right("taken", 8),
        Column::right("longest us", 10),
        Column::left("work", 20),
        Column::right("in all ms", 9),
    ];
    Grid {
        columns,
        pinned: 1,
        total: false,
        across: "columns",
        down: "lcores",
        len: snapshot.lcores.len(),
        line: Box::new(move |at| {
            let lcore = &snapshot.lcores[at];
            let full = (lcore.busy_share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
            let bar = format!("[{}{}]", "#".repeat(full), ".".repeat(BAR - full));
            let taken = match lcore.gaps {
                0 => Cell::plain("0"),
                gaps => Cell::new(format!("!{}", grouped(gaps)), Tone::Warn),
            };
            vec![
                Cell::new(lcore.name.clone(), Tone::Label),
                Cell::plain(lcore.cpu.map_or("any".into(), |cpu| cpu.to_string())),
                Cell::plain(decimal(lcore.busy_share * 100.0, 1)),
                Cell::new(bar, Tone::Bar),
                Cell::plain(decimal(lcore.asleep_share * 100.0, 1)),
                taken,
                Cell::plain(decimal(lcore.longest_gap_ns as f64 / 1e3, 1)),
                Cell::plain(lcore.work.clone()),
                Cell::plain(decimal(lcore.gaps_ns as f64 / 1e6, 1)),
            ]
        }),
    }
}
