//! The main page: the rows of Pktgen's, in their order, and below them what Pktgen lacks: loss,
//! order, latency, asked against achieved rates, and drop reasons.

use std::collections::BTreeMap;

use super::{latency_of_all, word_of_state};
use crate::tui::grid::{Cell, Grid};
use crate::tui::number::{Figure, bits, decimal, grouped, micros, speed};
use crate::tui::sheet::{Sheet, Total};
use crate::tui::theme::Tone;
use crate::{Latency, LcoreView, PortView, SIZE_CLASSES, Snapshot, Traffic, units};

/// Bytes of preamble, delimiter and gap for each frame.
const L1_BYTES: u64 = units::L1_BYTES as u64;

pub(super) fn page(snapshot: &Snapshot) -> Grid<'_> {
    let mut sheet = Sheet::new(&snapshot.ports);
    pktgen_rows(&mut sheet);
    sheet.heading("test frames");
    test_rows(&mut sheet, snapshot);
    sheet.heading("machine");
    machine_rows(&mut sheet, snapshot);
    sheet.heading("drops by reason");
    drop_rows(&mut sheet, &snapshot.ports);
    sheet.grid("Flags:Port", |port| {
        format!("{}:{}", port.flags, port.number)
    })
}

fn mega(value: f64) -> Figure {
    Figure::Decimal(value / 1e6, 1)
}

fn rate(pps: f64) -> Figure {
    Figure::Decimal(pps, 0)
}

/// Bits of the frames with preambles and gaps.
fn l1_bits(traffic: &Traffic) -> f64 {
    (traffic.bytes + traffic.packets * L1_BYTES) as f64 * 8.0
}

/// The rows of Pktgen's main page. Rows whose units Pktgen mixes are two rows here: L1 and L2,
/// bytes and bits.
fn pktgen_rows(sheet: &mut Sheet<'_>) {
    sheet.toned("Link State", link);
    sheet.toned("State", |port| match port.state.as_str() {
        "failed" => Cell::new(word_of_state(port), Tone::Bad),
        _ if port.state_reason.is_empty() => Cell::plain(word_of_state(port)),
        _ => Cell::new(word_of_state(port), Tone::Warn),
    });
    sheet.pair("Pkts/s Max/Rx", |port| {
        (rate(port.rx.max_pps), rate(port.rx.pps))
    });
    sheet.pair("       Max/Tx", |port| {
        (rate(port.tx.max_pps), rate(port.tx.pps))
    });
    sheet.pair("Mbit/s L1 Rx/Tx", |port| {
        (mega(port.rx.l1_bps), mega(port.tx.l1_bps))
    });
    sheet.pair("Mbit/s L2 Rx/Tx", |port| {
        (mega(port.rx.l2_bps), mega(port.tx.l2_bps))
    });
    sheet.count("Broadcast Pkts", |port| port.broadcast);
    sheet.count("Multicast Pkts", |port| port.multicast);
    for (class, name) in SIZE_CLASSES.iter().enumerate().take(6) {
        sheet.count(&format!("  {name} Bytes"), |port| port.sizes[class]);
    }
    sheet.pair("Runts/Jumbos", |port| {
        (Figure::Count(port.runts), Figure::Count(port.sizes[6]))
    });
    sheet.figures("Errors Rx/Tx", Tone::Bad, Total::Sum, |port| {
        vec![
            Figure::Count(sum(&port.rx_drops)),
            Figure::Count(sum(&port.tx_drops)),
        ]
    });
    sheet.count("Total Rx Pkts", |port| port.rx.packets);
    sheet.count("      Tx Pkts", |port| port.tx.packets);
    sheet.pair("      Rx/Tx MB", |port| {
        (mega(port.rx.bytes as f64), mega(port.tx.bytes as f64))
    });
    sheet.pair("  Rx/Tx Mbit L1", |port| {
        (mega(l1_bits(&port.rx)), mega(l1_bits(&port.tx)))
    });
    sheet.pair("  Rx/Tx Mbit L2", |port| {
        (
            mega(port.rx.bytes as f64 * 8.0),
            mega(port.tx.bytes as f64 * 8.0),
        )
    });
    sheet.pair("ARP/ICMP Pkts", |port| {
        (Figure::Count(port.arp), Figure::Count(port.icmp))
    });
    sheet.text("Pattern Type", |port| port.template.pattern.clone());
    sheet.text("Tx Count/Rate", |port| {
        let count = match port.count {
            0 => "Forever".to_owned(),
            count => count.to_string(),
        };
        format!("{count} / {}", port.rate)
    });
    sheet.text("Size/Tx:Rx Burst", |port| {
        format!(
            "{} / {}:{}",
            port.template.size, port.tx_burst, port.rx_burst
        )
    });
    sheet.text("Src/Dest Port", |port| {
        format!("{} / {}", port.template.src_port, port.template.dst_port)
    });
    sheet.text("Pkt Type:VLAN ID", |port| {
        match port.template.vlan.as_str() {
            "" => format!("{}:-", port.template.kind),
            vlan => format!("{}:{vlan}", port.template.kind),
        }
    });
    sheet.text("Dst IP Address", |port| port.template.dst_ip.clone());
    sheet.text("Src IP Address", |port| port.template.src_ip.clone());
    sheet.text("Dst MAC Address", |port| port.template.dst_mac.clone());
    sheet.text("Src MAC Address", |port| port.template.src_mac.clone());
    sheet.text("Device", |port| port.device.clone());
    sheet.text("Driver/NUMA node", |port| match port.numa_node {
        Some(node) => format!("{}/{node}", port.kind),
        None => format!("{}/any", port.kind),
    });
}

fn link(port: &PortView) -> Cell {
    if port.link_up {
        let speed = port.speed_bps.map_or_else(|| "unknown speed".into(), speed);
        return Cell::new(format!("UP {speed}"), Tone::Good);
    }
    let text = match port.link_reason.as_str() {
        "" => "DOWN".to_owned(),
        reason => format!("DOWN: {reason}"),
    };
    Cell::new(text, Tone::Bad)
}

/// Rows of test frames, and of asked against achieved rates.
fn test_rows(sheet: &mut Sheet<'_>, snapshot: &Snapshot) {
    let asked = |port: &PortView| match port.asked_pps {
        asked if asked > 0.0 => rate(asked),
        _ => Figure::None,
    };
    sheet.pair("Pkts/s asked/sent", |port| (asked(port), rate(port.tx.pps)));
    sheet.figures("Rate error ppm", Tone::Plain, Total::Nothing, |port| {
        let off = port.rate_error_ppm.map(|ppm| Figure::Decimal(ppm, 1));
        vec![off.unwrap_or(Figure::None)]
    });
    sheet.fault("Unsent Pkts", |port| port.unsent);
    sheet.count("Test Pkts Rx", |port| port.tally.received);
    sheet.count("Earlier Pkts Rx", |port| port.earlier);
    sheet.count("Foreign Pkts Rx", |port| port.foreign);
    checked_rows(sheet);
    sheet.fault("Lost Pkts", |port| port.tally.lost);
    let (lost, sent) = snapshot.ports.iter().fold((0, 0), |(lost, sent), port| {
        (lost + port.tally.lost, sent + port.tally.sent)
    });
    let ppm = |lost: u64, sent: u64| match sent {
        0 => Figure::None,
        sent => Figure::Decimal(lost as f64 / sent as f64 * 1e6, 1),
    };
    let all = Total::Of(vec![ppm(lost, sent)]);
    sheet.figures("Lost ppm", Tone::Bad, all, |port| {
        vec![ppm(port.tally.lost, port.tally.sent)]
    });
    sheet.fault("Reordered Pkts", |port| port.tally.reordered);
    sheet.fault("Duplicate Pkts", |port| port.tally.duplicates);

    let all = latency_of_all(snapshot.ports.iter().map(|port| &port.latency));
    let mut row = |label: &str, of: &dyn Fn(&Latency) -> f64| {
        let figure = |latency: &Latency| match latency.samples {
            0 => Figure::None,
            _ => micros(of(latency)),
        };
        let total = Total::Of(vec![figure(&all)]);
        sheet.figures(label, Tone::Plain, total, |port| {
            vec![figure(&port.latency)]
        });
    };
    row("Latency p50 us", &|latency| latency.p50_ns);
    row("        p99 us", &|latency| latency.p99_ns);
    row("        max us", &|latency| latency.max_ns);
    row("     jitter us", &|latency| latency.jitter_ns);
    sheet.count("       samples", |port| port.latency.samples);
    let spread = |port: &PortView| match port.departure_error.samples {
        0 => vec![Figure::None, Figure::None],
        _ => {
            let error = &port.departure_error;
            vec![micros(error.p50_ns), micros(error.p99_ns)]
        }
    };
    sheet.figures("Pacing us p50/p99", Tone::Plain, Total::Nothing, spread);
}

/// Rows of checks that only some receivers make.
pub(super) fn checked_rows(sheet: &mut Sheet<'_>) {
    let figure = |count: Option<u64>| vec![count.map_or(Figure::None, Figure::Count)];
    sheet.figures("Corrupt Pkts Rx", Tone::Bad, Total::Sum, |port| {
        figure(port.corrupt)
    });
    // The same flow may come in on several ports.
    sheet.figures("Flows Rx", Tone::Plain, Total::Nothing, |port| {
        figure(port.flows)
    });
}

/// Rows of CPU and pool usage.
fn machine_rows(sheet: &mut Sheet<'_>, snapshot: &Snapshot) {
    sheet.pair("Queues Rx/Tx", |port| {
        (
            Figure::Count(port.rx_queues.into()),
            Figure::Count(port.tx_queues.into()),
        )
    });
    let cycles = |ticks: f64| match ticks {
        ticks if ticks > 0.0 => Figure::Decimal(ticks, 1),
        _ => Figure::None,
    };
    sheet.figures("Cycles/pkt Rx/Tx", Tone::Plain, Total::Nothing, |port| {
        vec![
            cycles(port.rx_ticks_per_packet),
            cycles(port.tx_ticks_per_packet),
        ]
    });
    let lcores: BTreeMap<&str, &LcoreView> = snapshot
        .lcores
        .iter()
        .map(|lcore| (lcore.name.as_str(), lcore))
        .collect();
    // Of several queues' lcores, the busiest: it is the one that runs out first.
    let busy = |port: &PortView, direction: &str| {
        port.queues
            .iter()
            .filter(|queue| queue.direction == direction)
            .filter_map(|queue| lcores.get(queue.lcore.as_str()))
            .map(|lcore| lcore.busy_share * 100.0)
            .reduce(f64::max)
            .map_or(Figure::None, |percent| Figure::Decimal(percent, 1))
    };
    sheet.figures("Core busy % Rx/Tx", Tone::Plain, Total::Nothing, |port| {
        vec![busy(port, "rx"), busy(port, "tx")]
    });
    sheet.figures("Pool free/slots", Tone::Plain, Total::Nothing, |port| {
        vec![
            Figure::Count(port.pool_free),
            Figure::Count(port.pool_slots),
        ]
    });
    let queues = |port: &PortView, of: &dyn Fn(&crate::QueueView) -> u64| {
        port.queues.iter().map(of).sum::<u64>()
    };
    sheet.count("Tx queue full", |port| queues(port, &|queue| queue.refused));
    sheet.count("No pool slot", |port| queues(port, &|queue| queue.no_slot));
}

/// A row for each reason that any port has.
pub(super) fn drop_rows(sheet: &mut Sheet<'_>, ports: &[PortView]) {
    type Drops = fn(&PortView) -> &Vec<(String, u64)>;
    let directions: [(&str, Drops); 2] =
        [("Rx", |port| &port.rx_drops), ("Tx", |port| &port.tx_drops)];
    let mut none = true;
    for (direction, drops) in directions {
        let mut reasons: Vec<&str> = Vec::new();
        for (reason, _) in ports.iter().flat_map(drops) {
            if !reasons.contains(&reason.as_str()) {
                reasons.push(reason);
            }
        }
        for reason in reasons {
            none = false;
            sheet.fault(&format!("{direction} {reason}"), |port| {
                let of_reason = drops(port).iter().filter(|(other, _)| other == reason);
                of_reason.map(|(_, count)| count).sum()
            });
        }
    }
    if none {
        sheet.count("Rx and Tx", |_| 0);
    }
}

fn sum(drops: &[(String, u64)]) -> u64 {
    drops.iter().map(|(_, count)| count).sum()
}

/// One line over all ports that is seen on each page, as long as `width` allows.
pub(in crate::tui) fn summary(snapshot: &Snapshot, width: usize) -> Vec<Cell> {
    let total = |of: &dyn Fn(&PortView) -> f64| snapshot.ports.iter().map(of).sum::<f64>();
    let way = |name: &str, pps: f64, l1: f64| {
        let text = format!("{name} {} pps {} L1", decimal(pps, 0), bits(l1));
        Cell::new(text, Tone::Total)
    };
    let lost: u64 = snapshot.ports.iter().map(|port| port.tally.lost).sum();
    let unsent: u64 = snapshot.ports.iter().map(|port| port.unsent).sum();
    let latency = latency_of_all(snapshot.ports.iter().map(|port| &port.latency));
    let fault = |name: &str, count: u64| match count {
        0 => Cell::plain(format!("{name} 0")),
        count => Cell::new(format!("!{name} {}", grouped(count)), Tone::Bad),
    };
    let mut parts = vec![
        way(
            "Tx",
            total(&|port| port.tx.pps),
            total(&|port| port.tx.l1_bps),
        ),
        way(
            "Rx",
            total(&|port| port.rx.pps),
            total(&|port| port.rx.l1_bps),
        ),
        fault("lost", lost),
        fault("unsent", unsent),
        Cell::plain(match latency.samples {
            0 => "latency -".to_owned(),
            _ => format!("p99 {} us", decimal(latency.p99_ns / 1e3, 1)),
        }),
    ];
    if !snapshot.invalid.is_empty() {
        parts.insert(0, Cell::new("!INVALID", Tone::Bad));
    }
    let long = |parts: &[Cell]| parts.iter().map(|part| part.text.len() + 2).sum::<usize>();
    while parts.len() > 1 && long(&parts) > width + 2 {
        parts.pop();
    }
    parts
}
