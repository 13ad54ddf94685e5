//! Shares that an app makes itself: rings between pipelines lose nothing, not even at the end.
#![allow(clippy::unwrap_used)]

mod rings;

use super::*;
use linerate_core::packet::Burst;
use linerate_core::run::{StageExt as _, named};

const OPTIONS: Options = Options {
    queues: 1,
    burst: 64,
    pool_slots: None,
    sleep: true,
    spin: false,
};

/// Two lcores on one CPU.
fn plan() -> linerate_core::env::Plan {
    let topology = linerate_core::env::Topology::machine().unwrap();
    let spec = linerate_core::env::PlanSpec {
        io: Some("0-1".into()),
        cpus: Some("0,0".into()),
        ..Default::default()
    };
    linerate_core::env::Plan::build(&spec, &topology, &[]).unwrap()
}

/// Two workers and two null ports: what the first receives goes through the pipeline of the second,
/// which sends it.
#[test]
fn what_is_under_way_in_rings_between_pipelines_is_sent_before_all_ends() {
    const SECOND: u16 = 2;
    let ports = [
        (None, "null:".to_owned()),
        (None, "null:,rx=off".to_owned()),
    ];
    let opened = OpenPorts::open(&ports, Clock::calibrate()).unwrap();
    let shares = vec![
        Share {
            polls: vec![(0, 0)],
            rings: vec![(SECOND, 1)],
            ..Share::default()
        },
        Share {
            polls: vec![(1, 0)],
            sends: vec![(1, 0)],
            role: Role::Bg,
            ..Share::default()
        },
    ];
    let plan = plan();
    let lcores: Vec<&Placement> = plan.role(linerate_core::env::Role::Io).collect();
    let running = opened
        .start_shares(shares, &lcores, &OPTIONS, |worker, _| {
            let to = [SECOND, 1][worker];
            move |burst: &mut Burst, out: &mut Egress| out.send(to, burst)
        })
        .unwrap();
    let first = Sample::take(&running);
    assert_eq!(running.handles().count(), 2);
    // Until the second has seen packets; their number depends on the machine.
    while running.handles().nth(1).unwrap().stats().packets.read() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Full outlets have the user's name of their destination.
    for (worker, name) in [(0, lcores[1].name.as_str()), (1, "null")] {
        let handle = running.handles().nth(worker).unwrap();
        let counts = handle.call(|worker| worker.egress.drop_counts()).unwrap();
        let full = format!("tx_full.{name}");
        let counts = counts.lock().unwrap();
        assert!(counts.iter().any(|(known, _)| *known == full), "{counts:?}");
    }
    let late = Sample::take(&running);
    let (last, balance, errors) = running.stop();
    assert!(balance.is_even() && balance.exact, "{balance}");
    assert!(errors.is_empty(), "{errors:?}");
    let reading = last.since(&first);
    // As with ports, packets are those since the start, however late the first sample was.
    let counted = |reading: &Reading| reading.lcores[0].packets;
    assert_eq!(counted(&reading), reading.ports[0].rx_packets);
    assert_eq!(counted(&last.since(&late)), reading.ports[0].rx_packets);
    let dropped: u64 = reading
        .lcores
        .iter()
        .flat_map(|lcore| lcore.drops.values())
        .sum();
    let (received, sent) = (reading.ports[0].rx_packets, reading.ports[1].tx_packets);
    assert!(sent > 0);
    assert_eq!(received, sent + dropped);
}

/// A source and a sink are added to two idle workers, which carry from one to the other, also by
/// hand-off; they are removed, and others like them added.
#[test]
fn ports_come_and_go_while_workers_run() {
    const SOURCE: u16 = 4;
    const SINK: u16 = 7;
    let idle = || (None, "null:,rx=off".to_owned());
    let opened = OpenPorts::open(&[idle(), idle()], Clock::calibrate()).unwrap();
    let plan = plan();
    let lcores: Vec<&Placement> = plan.role(linerate_core::env::Role::Io).collect();
    let stage = |_: &mut Egress| |burst: &mut Burst, out: &mut Egress| out.send(SINK, burst);
    let mut running = opened.start(&[1, 0], &lcores, &OPTIONS, stage).unwrap();
    let mut drivers = Drivers::new();
    let wrong = running.add_port(&mut drivers, (2, "x", "pcap:rx=/no/such"), &OPTIONS);
    assert!(wrong.is_err() && running.ports().len() == 2);
    for round in 1..3 {
        let mut add = |number, name: &str, spec: &str| {
            let what = (number, name, spec);
            running.add_port(&mut drivers, what, &OPTIONS).unwrap();
        };
        add(SINK, "sink", "null:,rx=off");
        add(SOURCE, "source", "null:");
        let sent = |running: &Running<_>| running.port(SINK).unwrap().port.stats().tx_packets;
        assert_eq!(sent(&running), 0, "no worker polls it yet");
        running.listen();
        let before = Sample::take(&running);
        while sent(&running) < 1000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let reading = Sample::take(&running).since(&before);
        let names: Vec<&str> = reading.ports.iter().map(|port| &*port.name).collect();
        assert_eq!(names[2..], ["sink", "source"], "round {round}");
        assert_eq!(reading.ports[3].port, usize::from(SOURCE));
        assert!(running.remove_port(SOURCE).is_none());
        let at_last = sent(&running);
        assert!(running.remove_port(SINK).is_none() && at_last >= 1000);
        assert!(running.port(SOURCE).is_none() && running.port(SINK).is_none());
        let shares = running.workers.iter().map(|worker| &worker.share);
        let mut paths = shares.flat_map(|share| share.polls.iter().chain(&share.sends));
        assert!(paths.all(|hand_off| hand_off.0 < 2));
        let balance = running.balance();
        assert!(balance.is_even(), "round {round}: {balance}");
    }
    let (_, balance, errors) = running.stop();
    assert!(balance.is_even(), "{balance}");
    assert!(errors.is_empty(), "{errors:?}");
}

/// A stage that leaks a packet is named at the end, and before.
#[test]
fn a_lost_packet_is_named_while_it_runs_and_at_the_end() {
    let ports = ["null:", "ring:lost", "ring:lost"].map(|spec| (None, spec.to_owned()));
    let opened = OpenPorts::open(&ports, Clock::calibrate()).unwrap();
    let plan = plan();
    let lcores: Vec<&Placement> = plan.role(linerate_core::env::Role::Io).collect();
    // Packets from the null port go through the ring, and are dropped behind it.
    let stage = |_: &mut Egress| {
        let mut left = 3;
        let careless = move |burst: &mut Burst, _: &mut Egress| {
            let mut lost = Burst::new();
            if burst.port == 2 && left > 0 {
                left -= 1;
                burst.move_front(1, &mut lost);
            }
            std::mem::forget(lost);
        };
        let out = |burst: &mut Burst, out: &mut Egress| match burst.port {
            0 => out.send(1, burst),
            _ => {
                let reason = out.reason("seen");
                out.drop_burst(reason, burst);
            }
        };
        named("look", |_: &mut Burst, _: &mut Egress| {})
            .then("careless", careless)
            .then("out", out)
    };
    let running = opened.start(&[1, 0, 0], &lcores, &OPTIONS, stage).unwrap();
    let lost = |balance: &Balance| -> i64 {
        let all = balance.accounts.iter();
        all.map(|account| account.lost).sum()
    };
    while lost(&running.balance()) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let live = running.balance();
    let (_, last, errors) = running.stop();
    assert!(errors.is_empty(), "{errors:?}");
    for balance in [live, last] {
        assert!(!balance.is_even());
        let lost = lost(&balance);
        assert_eq!(balance.missing, lost, "{balance}");
        let verdict = balance.verdict();
        assert!(verdict.contains("stage `careless`"), "{verdict}");
        assert!(
            !verdict.contains("pipeline") && !verdict.contains("`out`"),
            "{verdict}"
        );
        assert!(
            verdict.ends_with(&format!("; {lost} slots missing")),
            "{verdict}"
        );
    }
}
