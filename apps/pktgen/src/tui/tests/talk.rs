//! The screen of the SafetyOrange talk (Pktgen 3.1.2, eight ports at 10 Gbit/s), as far as it is
//! known, as a snapshot: our screen must print the same, except for known errors of the talk's.

use crate::{
    Latency, LcoreView, LogLine, PortView, QueueView, Snapshot, Spread, StreamView, Tally,
    TemplateView, Traffic, VERSION,
};

/// Frames a second received on each port; they sum to the talk's 13,015,518.
pub(in crate::tui) const RX_PPS: [u64; 8] = [
    1_626_475, 1_626_950, 1_627_104, 1_627_310, 1_626_802, 1_626_990, 1_627_001, 1_626_886,
];
/// And sent, from 1,626,661 to 1,628,000.
pub(in crate::tui) const TX_PPS: [u64; 8] = [
    1_626_661, 1_627_000, 1_627_160, 1_628_000, 1_626_900, 1_627_100, 1_627_050, 1_626_990,
];
/// Frames received on port 0: `Rx MBs 75262` is this many of 740 bytes, in megabits of L1.
pub(in crate::tui) const RX_PACKETS: u64 = 12_378_659;
pub(in crate::tui) const FRAME: u64 = 740;

fn traffic(packets: u64, pps: u64, max_pps: u64) -> Traffic {
    Traffic {
        packets,
        bytes: packets * FRAME,
        pps: pps as f64,
        mean_pps: pps as f64,
        max_pps: max_pps as f64,
        l1_bps: (pps * (FRAME + 20) * 8) as f64,
        l2_bps: (pps * FRAME * 8) as f64,
    }
}

/// From 800 ns to 2.1 ms, most of them near 12 us.
fn latency(samples: u64) -> Latency {
    let shape = [
        (800.0, 3),
        (2000.0, 40),
        (5000.0, 4000),
        (9000.0, 180_000),
        (12_288.0, 700_000),
        (15_000.0, 100_000),
        (40_000.0, 12_000),
        (120_000.0, 700),
        (700_000.0, 9),
        (2_097_152.0, 1),
    ];
    let all: u64 = shape.iter().map(|(_, count)| count).sum();
    let mut buckets: Vec<(f64, u64)> = shape
        .iter()
        .map(|(bound, count)| (*bound, samples * count / all))
        .filter(|(_, count)| *count > 0)
        .collect();
    let counted: u64 = buckets.iter().map(|(_, count)| count).sum();
    buckets[2].1 += samples - counted;
    let percentile = |share: f64| {
        let mut below = 0;
        let bucket = buckets.iter().find(|(_, count)| {
            below += count;
            below as f64 >= samples as f64 * share
        });
        bucket.unwrap().0
    };
    Latency {
        samples,
        min_ns: 790.0,
        mean_ns: 11_870.4,
        p50_ns: percentile(0.5),
        p90_ns: percentile(0.9),
        p99_ns: percentile(0.99),
        p999_ns: percentile(0.999),
        p9999_ns: percentile(0.9999),
        max_ns: 2_090_111.0,
        jitter_ns: 1512.0,
        ipdv_max_ns: 2_077_800.0,
        buckets: buckets.clone(),
    }
}

fn port(number: u16) -> PortView {
    let at = usize::from(number);
    let packets = RX_PACKETS + u64::from(number) * 1000;
    let sent = packets + 100;
    let mut sizes = [0; 7];
    sizes[4] = packets;
    PortView {
        number,
        name: format!("ixgbe{number}"),
        kind: "pci".into(),
        device: format!("pci:0000:0{}:00.{}", 1 + number / 2, number % 2),
        numa_node: Some(u32::from(number / 4)),
        facts: vec![
            ("firmware".into(), "0x800003e1".into()),
            ("PCI identifiers".into(), "8086:10fb".into()),
        ],
        link_up: true,
        speed_bps: Some(10e9),
        state: "sending".into(),
        flags: "P-----RI-----".into(),
        rx: traffic(packets, RX_PPS[at], RX_PPS[at] + 73),
        tx: traffic(sent, TX_PPS[at], TX_PPS[at] + 37),
        sizes,
        rate: "99%".into(),
        asked_pps: 1_628_289.5,
        rate_error_ppm: Some((TX_PPS[at] as f64 / 1_628_289.5 - 1.0) * 1e6),
        tx_burst: 32,
        rx_burst: 64,
        rx_queues: 1,
        tx_queues: 1,
        template: TemplateView {
            dst_mac: "00:1b:21:aa:00:01".into(),
            src_mac: "00:1b:21:aa:00:02".into(),
            dst_ip: "192.168.1.1".into(),
            src_ip: "192.168.0.1/24".into(),
            src_port: "1111".into(),
            dst_port: "5678".into(),
            kind: "IPv4 / TCP".into(),
            vlan: "0001".into(),
            size: "740".into(),
            pattern: "abcd...".into(),
        },
        tally: Tally {
            sent,
            received: packets,
            lost: if number == 0 { 79 } else { 0 },
            ..Tally::default()
        },
        latency: latency(1_000_000 + u64::from(number)),
        departure_error: Spread {
            samples: 1000,
            p50_ns: 120.0,
            p99_ns: 1_870.0,
            max_ns: 55_000.0,
        },
        tx_ticks_per_packet: 61.4,
        rx_ticks_per_packet: 83.9,
        pool_free: 15_360,
        pool_slots: 16_384,
        queues: ["rx", "tx"]
            .map(|direction| QueueView {
                direction: direction.into(),
                queue: 0,
                lcore: format!("pktgen{number}"),
                packets: if direction == "rx" { packets } else { sent },
                bytes: packets * FRAME,
                pps: RX_PPS[at] as f64,
                ..QueueView::default()
            })
            .into(),
        ..PortView::default()
    }
}

/// The talk's screen, twelve minutes into the run.
pub(in crate::tui) fn snapshot() -> Snapshot {
    Snapshot {
        version: VERSION,
        profile: "talk.toml".into(),
        epoch: 1,
        since_clear_ns: 723_000_000_000,
        interval_ns: 200_000_000,
        sending: true,
        clock: "tsc".into(),
        clock_mhz: 2600.0,
        seed: 0x5eed,
        ports: (0..8).map(port).collect(),
        streams: (0..8).map(stream).collect(),
        lcores: (0..8)
            .map(|number| LcoreView {
                name: format!("pktgen{number}"),
                cpu: Some(number + 1),
                work: format!("rx {number}.0, tx {number}.0"),
                busy_share: 0.11 * f64::from(number + 1),
                asleep_share: 0.02,
                gaps: u64::from(number % 3),
                longest_gap_ns: u64::from(number % 3) * 61_000,
                gaps_ns: u64::from(number % 3) * 91_000,
            })
            .collect(),
        log: vec![
            LogLine {
                at_ms: 12,
                text: "started ports 0-7".into(),
            },
            LogLine {
                at_ms: 61_204,
                text: "port 3: the link went down and came up again after 1.204 s; the run is not \
                    valid for it"
                    .into(),
            },
        ],
        ..Snapshot::default()
    }
}

pub(in crate::tui) fn stream(id: u16) -> StreamView {
    let sent = 1_000_000 + u64::from(id);
    StreamView {
        id,
        name: format!("s{id}"),
        port: id % 8,
        enabled: id != 3,
        line: format!(
            "udp name=s{id} port={} size=740 dport=1024-65535/3 src=random:198.18.0.0/16 \
             ttl=64,128",
            id % 8
        ),
        template: port(id % 8).template,
        tested: true,
        rate: "99%".into(),
        tx_pps: 1_626_661.4,
        mean_pps: 1_626_661.4,
        rx_pps: 1_626_475.4,
        unsent: 0,
        tally: Tally {
            sent,
            received: sent - 21,
            lost: if id == 1 { 21 } else { 0 },
            reordered: u64::from(id == 2),
            duplicates: 0,
        },
        latency: latency(1000),
    }
}
