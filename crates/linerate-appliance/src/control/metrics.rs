//! What the page of metrics says of any appliance: read from counters when somebody asks, nothing
//! on the way of a packet.

use std::collections::BTreeMap;
use std::time::Instant;

use linerate_core::port::{Link, PortStats, RingFill};
use linerate_core::run::Stage;

use super::exposition::{Exposition, FamilyKind};
use super::reload::Outcomes;
use crate::runtime::{OpenPort, Running};

/// What is said of every run of workers: of the program, reloads where there are any, ports and
/// lcores.
pub fn run<S: Stage + 'static>(
    running: &Running<S>,
    began: Instant,
    reloads: Option<&Outcomes>,
    page: &mut Exposition,
) {
    instance(began, page);
    if let Some(outcomes) = reloads {
        self::reloads(outcomes, page);
    }
    ports(running.ports(), page);
    captures(running, page);
    lcores(running, page);
}

/// The program, and since when it forwards.
pub fn instance(began: Instant, page: &mut Exposition) {
    page.family("build", FamilyKind::Info, "", "Version of the program.");
    page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family(
        "uptime_seconds",
        FamilyKind::Gauge,
        "seconds",
        "Time since forwarding began.",
    );
    page.sample(&[], began.elapsed().as_secs_f64());
}

/// How reloads went, and the last of them.
fn reloads(outcomes: &Outcomes, page: &mut Exposition) {
    page.family(
        "reloads",
        FamilyKind::Counter,
        "",
        "Reloads of the configuration, by what came of them.",
    );
    page.sample(&[("outcome", "done")], outcomes.done);
    page.sample(&[("outcome", "refused")], outcomes.refused);
    page.family(
        "last_reload_refused",
        FamilyKind::Gauge,
        "",
        "Whether the last reload was refused: what runs is not what the files say.",
    );
    page.sample(&[], u8::from(outcomes.is_last_refused));
    page.family(
        "last_reload_seconds",
        FamilyKind::Gauge,
        "seconds",
        "How long the last reload took, from the reading of the files on; 0 before the first.",
    );
    page.sample(&[], outcomes.last.as_secs_f64());
}

/// Ports: links, packets, bytes and drops.
pub fn ports(ports: &[OpenPort], page: &mut Exposition) {
    let ports: Vec<_> = ports
        .iter()
        .map(|open| (open.name.as_str(), open.port.link(), open.port.stats()))
        .collect();
    page.family(
        "port_up",
        FamilyKind::Gauge,
        "",
        "Whether packets can come and go.",
    );
    for (name, link, _) in &ports {
        page.sample(&[("port", name)], u8::from(*link == Link::Up));
    }
    let families = [
        ("port_receive_packets", "packets", "Packets received."),
        (
            "port_receive_bytes",
            "bytes",
            "Bytes of frames received, without FCS.",
        ),
        ("port_transmit_packets", "packets", "Packets sent."),
        (
            "port_transmit_bytes",
            "bytes",
            "Bytes of frames sent, without FCS.",
        ),
    ];
    for (index, (family, unit, help)) in families.into_iter().enumerate() {
        page.family(family, FamilyKind::Counter, unit, help);
        for (name, _, stats) in &ports {
            let all = [
                stats.rx_packets,
                stats.rx_bytes,
                stats.tx_packets,
                stats.tx_bytes,
            ];
            page.sample(&[("port", name)], all[index]);
        }
    }
    page.family(
        "port_drops_packets",
        FamilyKind::Counter,
        "packets",
        "Packets that a port had no room for, or could not take.",
    );
    for (name, _, stats) in &ports {
        let drops = [("receive", &stats.rx_drops), ("transmit", &stats.tx_drops)];
        for (direction, drops) in drops {
            // A driver may name a reason once for each queue.
            let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
            for (reason, count) in drops {
                *sums.entry(reason).or_default() += count;
            }
            for (reason, count) in sums {
                let labels = [
                    ("port", *name),
                    ("direction", direction),
                    ("reason", reason),
                ];
                page.sample(&labels, count);
            }
        }
    }
    peers(&ports, page);
}

/// Peers in shared memory: notifications that they were sent, why some were cut off, and how full
/// the rings are. Ports without such a peer have no samples.
fn peers(ports: &[(&str, Link, PortStats)], page: &mut Exposition) {
    page.family(
        "port_notifications",
        FamilyKind::Counter,
        "",
        "Notifications sent to the peer of a port in shared memory.",
    );
    for (name, _, stats) in ports.iter().filter(|port| port.2.notifications > 0) {
        page.sample(&[("port", name)], stats.notifications);
    }
    page.family(
        "port_violations",
        FamilyKind::Counter,
        "",
        "Peers in shared memory that were cut off for what they wrote there.",
    );
    for (name, _, stats) in ports {
        for &(reason, count) in &stats.violations {
            page.sample(&[("port", name), ("reason", reason)], count);
        }
    }
    type Of = fn(&RingFill) -> u32;
    let families: [(&str, &str, Of); 2] = [
        (
            "port_ring_waiting",
            "Entries of a ring in shared memory that whoever reads it has not taken.",
            |ring| ring.waiting,
        ),
        (
            "port_ring_size",
            "Entries of a ring in shared memory.",
            |ring| ring.size,
        ),
    ];
    for (family, help, of) in families {
        page.family(family, FamilyKind::Gauge, "", help);
        for (name, _, stats) in ports {
            for ring in &stats.rings {
                let queue = ring.queue.to_string();
                let labels = [
                    ("port", *name),
                    ("direction", ring.direction),
                    ("queue", &queue),
                ];
                page.sample(&labels, of(ring));
            }
        }
    }
}

/// What captures of ports (`capture=`) lack.
fn captures<S: Stage + 'static>(running: &Running<S>, page: &mut Exposition) {
    page.family(
        "port_capture_missed_packets",
        FamilyKind::Counter,
        "packets",
        "Packets that a capture of the port was to have and has not: full disk, or bound reached.",
    );
    for open in running.ports() {
        page.sample(&[("port", &open.name)], open.port.stats().capture_missed);
    }
}

/// Lcores: what they took, dropped, and how long they were busy.
fn lcores<S: Stage + 'static>(running: &Running<S>, page: &mut Exposition) {
    let clock = running.clock();
    let lcores: Vec<_> = running
        .lcores()
        .map(|(name, cpu, stats)| {
            let cpu = cpu.map_or_else(String::new, |cpu| cpu.to_string());
            (name, cpu, stats.clone())
        })
        .collect();
    let seconds = |ticks: u64| clock.ns(ticks) as f64 * 1e-9;
    let families = [
        ("lcore_busy_seconds", "Time in rounds that had packets."),
        ("lcore_idle_seconds", "Time in rounds that had none, awake."),
        ("lcore_asleep_seconds", "Time asleep."),
    ];
    for (index, (family, help)) in families.into_iter().enumerate() {
        page.family(family, FamilyKind::Counter, "seconds", help);
        for (name, cpu, stats) in &lcores {
            let ticks = [
                stats.busy_ticks.read(),
                stats.idle_ticks.read(),
                stats.asleep_ticks.read(),
            ];
            page.sample(&[("lcore", name), ("cpu", cpu)], seconds(ticks[index]));
        }
    }
    page.family(
        "lcore_packets",
        FamilyKind::Counter,
        "packets",
        "Packets that a worker took, from ports and from other workers.",
    );
    for (name, cpu, stats) in &lcores {
        page.sample(&[("lcore", name), ("cpu", cpu)], stats.packets.read());
    }
    page.family(
        "drops_packets",
        FamilyKind::Counter,
        "packets",
        "Packets dropped by a worker, and why.",
    );
    for (name, _, stats) in &lcores {
        for (reason, count) in stats.drops() {
            page.sample(&[("lcore", name), ("reason", &reason)], count);
        }
    }
}
