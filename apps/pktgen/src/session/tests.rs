//! Sessions over rings of this process: their counts are exact, with every kind of fault. Streams
//! send a number of frames at `max`, so that nothing depends on how fast the machine is.

mod streams;

use std::thread::sleep;
use std::time::Instant;

use linerate_core::packet::{Pool, PoolConfig};

use super::*;
use crate::snapshot::{PortView, StreamView};

const LONG: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_millis(300);

fn config(ports: &[&str], streams: &[&str]) -> SessionConfig {
    let port = |spec: &&str| PortAsked {
        spec: (*spec).into(),
        ..PortAsked::default()
    };
    SessionConfig {
        ports: ports.iter().map(port).collect(),
        streams: streams.iter().map(|line| line.parse().unwrap()).collect(),
        seed: 1,
        ..SessionConfig::default()
    }
}

fn open_with(config: SessionConfig) -> Session {
    Session::open(config, &mut Drivers::new(), Clock::calibrate()).unwrap()
}

fn open(ports: &[&str], streams: &[&str]) -> Session {
    open_with(config(ports, streams))
}

/// Waits until all ports have sent what was asked for; false where that takes too long.
fn sent_all(session: &mut Session) -> bool {
    let deadline = Instant::now() + LONG;
    while session.is_sending() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(Duration::from_millis(2));
    }
    true
}

/// Sends all that streams have and waits for what is under way.
fn run(session: &mut Session) -> Snapshot {
    session.start(&[], None).unwrap();
    assert!(sent_all(session), "still sending");
    assert!(session.drain(QUIET, LONG), "still receiving");
    session.snapshot()
}

/// Checks sums that must agree in any snapshot of any session.
fn check_sums(snapshot: &Snapshot) {
    for port in &snapshot.ports {
        let rx = port.rx.packets;
        assert_eq!(port.sizes.iter().sum::<u64>(), rx, "sizes of {}", port.name);
        assert_eq!(
            port.tally.received + port.foreign + port.earlier,
            rx,
            "kinds of {}",
            port.name
        );
        let of = |direction: &str| -> u64 {
            let queues = port.queues.iter();
            queues
                .filter(|queue| queue.direction == direction)
                .map(|queue| queue.packets)
                .sum()
        };
        assert_eq!((of("rx"), of("tx")), (rx, port.tx.packets), "queues");
    }
    let sent = |view: &StreamView| view.tally.sent;
    assert_eq!(
        snapshot.streams.iter().map(sent).sum::<u64>(),
        snapshot
            .ports
            .iter()
            .map(|port| port.tx.packets)
            .sum::<u64>(),
        "streams and ports"
    );
    for stream in &snapshot.streams {
        let tally = stream.tally;
        assert!(tally.received <= tally.sent + tally.duplicates, "{tally:?}");
    }
}

fn fault(port: &PortView, kind: &str) -> u64 {
    let found = port.faults.iter().find(|(name, _)| name == kind);
    found.map_or(0, |(_, count)| *count)
}

#[test]
fn all_that_was_sent_comes_back_and_is_told_apart_by_stream() {
    let mut session = open(
        &["ring:a,loop=on"],
        &[
            "count=3000 name=x",
            "count=500 size=128",
            "count=7 size=1518",
        ],
    );
    let snapshot = run(&mut session);
    check_sums(&snapshot);
    let port = &snapshot.ports[0];
    assert_eq!((port.tx.packets, port.rx.packets), (3507, 3507));
    assert_eq!(port.tx.bytes, 3000 * 64 + 500 * 128 + 7 * 1518);
    assert_eq!(port.rx.bytes, port.tx.bytes);
    assert_eq!(port.sizes, [3000, 0, 500, 0, 0, 7, 0]);
    for (stream, count) in snapshot.streams.iter().zip([3000, 500, 7]) {
        let tally = stream.tally;
        assert_eq!((tally.sent, tally.received, tally.lost), (count, count, 0));
        assert_eq!(
            (tally.reordered, tally.duplicates, stream.unsent),
            (0, 0, 0)
        );
        assert_eq!(stream.latency.samples, count);
    }
    assert_eq!((port.state.as_str(), port.count), ("done", 3507));
    assert_eq!(snapshot.streams[0].name, "x");
    assert!(snapshot.invalid.is_empty() && !snapshot.sending);
    let (last, balance, errors) = session.close();
    assert!(errors.is_empty());
    assert!(balance.is_even() && balance.exact, "{balance}");
    assert_eq!(last.ports[0].rx.packets, 3507);
}

#[test]
fn loss_reordering_and_duplicates_of_a_faulty_port_are_counted_exactly() {
    for (seed, faults) in [
        (7, "loss:0.01"),
        (8, "dup:0.02"),
        (9, "reorder:0.03"),
        (10, "loss:0.05+dup:0.05+reorder:0.05"),
        (11, "loss:0.2+dup:0.1+reorder:0.3"),
    ] {
        let port = format!("ring:a,loop=on,faulty={faults}+seed:{seed}+on:rx");
        // One stream: with two, frames of the other would not count as reordered.
        let mut session = open(&[&port], &["count=25000 size=64,200"]);
        let snapshot = run(&mut session);
        check_sums(&snapshot);
        let port = &snapshot.ports[0];
        let tally = port.tally;
        let told = (tally.lost, tally.duplicates, tally.reordered);
        let done = ["loss", "dup", "reorder"].map(|kind| fault(port, kind));
        assert_eq!(told, done.into(), "{faults}, seed {seed}");
        assert_eq!(tally.sent, 25_000);
        assert!(done.iter().sum::<u64>() > 100, "{faults} did nothing");
        assert_eq!(port.foreign, 0);
    }
}

#[test]
fn what_never_came_back_is_lost_at_the_end_and_not_before() {
    let faults = "ring:b,loop=on,faulty=loss:1+on:rx";
    let mut session = open(
        &["ring:a,loop=on", faults],
        &["count=300", "port=1 count=200"],
    );
    session.start(&[], None).unwrap();
    assert!(sent_all(&mut session));
    // Loss is not known yet: the last frame may be under way.
    let first = session.snapshot();
    let deadline = Instant::now() + LONG;
    while session.is_under_way() && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
    let waited = session.snapshot();
    let (last, balance, errors) = session.close();
    assert!(balance.is_even(), "{balance}");
    assert!(errors.is_empty());
    for snapshot in [&waited, &last] {
        let lost: Vec<u64> = snapshot
            .streams
            .iter()
            .map(|view| view.tally.lost)
            .collect();
        assert_eq!((&lost[..], snapshot.settled), (&[0, 200][..], true));
    }
    assert!(first.settled == (first.streams[1].tally.lost == 200));
    // Without a wait: closing the session waits.
    let mut session = open(&[faults], &["count=100"]);
    session.start(&[], None).unwrap();
    assert!(sent_all(&mut session));
    let (last, ..) = session.close();
    assert_eq!((last.streams[0].tally.lost, last.settled), (100, true));
}

#[test]
fn frames_of_a_burst_go_at_the_rate_and_the_gap_follows() {
    // Ten in 1 ms, and 5 ms: 50 bursts in 300 ms. The rate is the stream's, or the port's.
    let cases = [
        ("rate=10kpps burst=10 gap=5ms", None),
        ("burst=10 gap=5ms", Some("10kpps")),
    ];
    for (line, rate) in cases {
        let mut session = open(&["ring:a,loop=on"], &[line]);
        if let Some(rate) = rate {
            session.set_port(0, "rate", rate).unwrap();
        }
        session
            .start(&[], Some(Duration::from_millis(300)))
            .unwrap();
        assert!(sent_all(&mut session));
        let last = session.snapshot();
        let stream = &last.streams[0];
        assert_eq!(stream.tally.sent + stream.unsent, 500, "{line}");
        let asked = last.ports[0].asked_pps;
        assert!((asked - 10.0 / 0.006).abs() < 0.01, "{line}: {asked}");
    }
}

#[test]
fn rates_are_of_the_time_of_sending_alone() {
    let mut session = open(&["ring:a,loop=on"], &["rate=1kpps"]);
    session.set_port(0, "give_up", "never").unwrap();
    session
        .start(&[], Some(Duration::from_millis(200)))
        .unwrap();
    assert!(sent_all(&mut session));
    // With this in it the rate would be 165.
    sleep(Duration::from_secs(1));
    let snapshot = session.snapshot();
    let (tx, rx, stream) = (
        &snapshot.ports[0].tx,
        &snapshot.ports[0].rx,
        &snapshot.streams[0],
    );
    assert_eq!((tx.packets, rx.packets), (200, 200));
    for pps in [tx.pps, tx.max_pps, tx.mean_pps, stream.mean_pps] {
        assert!((250.0..=1020.0).contains(&pps), "{snapshot:?}");
    }
    // A late receiver has less time for them.
    for pps in [rx.pps, rx.mean_pps] {
        assert!(pps >= 250.0, "{snapshot:?}");
    }
}

#[test]
fn a_port_of_many_streams_shows_what_they_have_in_common() {
    let streams = [
        "dst=198.19.0.1",
        "dst=198.19.0.2 size=128",
        "dst=198.19.0.3",
    ];
    let mut session = open(&["ring:a,loop=on"], &streams);
    let template = session.snapshot().ports[0].template.clone();
    assert_eq!(template.dst_ip, "198.19.0.1 +2");
    assert_eq!(
        (&*template.size, &*template.src_ip),
        ("64 +1", "198.18.0.1")
    );
}

#[test]
fn frames_of_another_session_are_foreign() {
    // What one generator sends into a file, another sends as it is: with the same streams and
    // numbers.
    let folder = std::env::temp_dir().join(format!("linerate-sessions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let capture = folder.join("other.pcapng");
    let numbered = |number: u16, port: &str, streams: &[&str]| {
        let session = Some(number);
        open_with(SessionConfig {
            session,
            ..config(&[port], streams)
        })
    };
    let mut other = numbered(7, &format!("pcap:tx={}", capture.display()), &["count=50"]);
    other.start(&[], None).unwrap();
    assert!(sent_all(&mut other));
    assert!(other.close().2.is_empty());
    let replay = format!("pcap={} rate=max count=50", capture.display());
    for (number, foreign, duplicates) in [(8, 50, 0), (7, 0, 50)] {
        let mut own = numbered(number, "ring:a,loop=on", &["count=50", &replay]);
        let last = run(&mut own);
        let (port, stream) = (&last.ports[0], &last.streams[0]);
        assert_eq!((last.session, stream.tally.sent), (number, 50));
        assert_eq!(
            (port.foreign, stream.tally.duplicates),
            (foreign, duplicates)
        );
        assert_eq!(stream.tally.lost, 0);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn latency_is_measured_where_frames_are_handed_over_at_once() {
    for (spec, expected) in [
        ("af_packet:eth0", "af_packet:eth0,handover=frame"),
        (
            "af_packet:eth0,blocks=8",
            "af_packet:eth0,blocks=8,handover=frame",
        ),
        (
            "af_packet:eth0,handover=block",
            "af_packet:eth0,handover=block",
        ),
        ("ring:a,loop=on", "ring:a,loop=on"),
        ("af_xdp:eth0", "af_xdp:eth0"),
    ] {
        assert_eq!(config::timely(spec), expected);
    }
}

#[test]
fn two_ports_cannot_have_one_name() {
    let named = |names: [&str; 2]| {
        let mut config = config(&["ring:a,loop=on", "ring:b,loop=on"], &["count=1"]);
        for (port, name) in config.ports.iter_mut().zip(names) {
            port.name = Some(name.into());
        }
        Session::open(config, &mut Drivers::new(), Clock::calibrate()).map(drop)
    };
    assert!(named(["lan", "wan"]).is_ok());
    for (names, wrong) in [
        (["lan", "lan"], "lan"),
        (["lan", "0"], "0"),
        (["all", "lan"], "all"),
    ] {
        let error = named(names).unwrap_err();
        assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        assert!(error.fix().is_some());
    }
}

#[test]
fn the_same_seed_loses_the_same_frames() {
    let lost = || {
        let mut session = open(
            &["ring:a,loop=on,faulty=loss:0.1+seed:3+on:rx"],
            &["count=5000"],
        );
        run(&mut session).ports[0].tally.lost
    };
    assert_eq!(lost(), lost());
}

#[test]
fn a_stream_is_shared_out_over_lcores_and_shown_as_one() {
    let mut config = config(
        &["ring:a,queues=3", "ring:a"],
        &["port=0 count=10000", "port=1 count=400 size=300"],
    );
    // Lcores 0-6 on the existing CPUs.
    config.cpus = (0..7).map(|lcore| lcore % 2).collect();
    config.map = Some("[1:2-4].0, [5/1/6:0].1".into());
    let mut session = open_with(config);
    let text = session.explain_map();
    assert!(
        text.contains("lcore1 on CPU 1: receives from port 0 (ring:a) queue 0, port 1"),
        "{text}"
    );
    let snapshot = run(&mut session);
    check_sums(&snapshot);
    assert_eq!(snapshot.lcores.len(), 7);
    let [there, back] = [0, 1].map(|stream: usize| snapshot.streams[stream].tally);
    assert_eq!(
        (there.sent, there.received, there.lost),
        (10_000, 10_000, 0)
    );
    assert_eq!((back.sent, back.received, back.lost), (400, 400, 0));
    assert_eq!((there.reordered, there.duplicates), (0, 0));
    // Each transmit queue sent its part, which came in at the queue across.
    for (port, direction) in [(0, "tx"), (1, "rx")] {
        let queues = snapshot.ports[port].queues.iter();
        let parts: Vec<u64> = queues
            .filter(|queue| queue.direction == direction)
            .map(|queue| queue.packets)
            .collect();
        assert_eq!(parts, [3334, 3333, 3333], "{direction} {port}");
    }
    // What came in at a port is that port's tally.
    assert_eq!(snapshot.ports[1].tally.received, 10_000);
    assert_eq!(snapshot.ports[1].tally.sent, 10_000);
    assert_eq!(snapshot.ports[0].tally.sent, 400);
}

#[test]
fn sums_agree_at_any_moment_and_a_clear_loses_nothing() {
    let mut session = open(&["ring:a,loop=on"], &["", "size=500", "size=64-1518"]);
    session.start(&[], None).unwrap();
    let until = Instant::now() + Duration::from_millis(700);
    let (mut epoch, mut shots) = (0, 0);
    while Instant::now() < until || shots < 8 {
        if shots % 4 == 3 {
            session.clear();
            epoch += 1;
        }
        let snapshot = session.snapshot();
        check_sums(&snapshot);
        assert_eq!(snapshot.epoch, epoch);
        assert_eq!(snapshot.ports[0].state, "sending");
        shots += 1;
    }
    session.clear();
    std::thread::sleep(Duration::from_millis(20));
    session.stop(&[]);
    assert!(session.drain(QUIET, LONG));
    let snapshot = session.snapshot();
    check_sums(&snapshot);
    for stream in &snapshot.streams {
        let tally = stream.tally;
        assert!(tally.sent > 0);
        assert_eq!((tally.received, tally.lost), (tally.sent, 0), "{tally:?}");
        assert_eq!((tally.reordered, tally.duplicates), (0, 0));
    }
    // Cleared at rest, nothing is left.
    session.clear();
    let snapshot = session.snapshot();
    let port = &snapshot.ports[0];
    assert_eq!((port.tx.packets, port.rx.packets, port.rx.bytes), (0, 0, 0));
    assert_eq!((port.earlier, port.foreign, port.tally.sent), (0, 0, 0));
    assert_eq!(port.latency.samples, 0);
    assert!(port.faults.is_empty() && port.rx_drops.is_empty());
}

#[test]
fn a_port_that_vanishes_spoils_the_run_and_the_others_go_on() {
    let mut drivers = Drivers::new();
    let mut across = drivers.open("ring:gone").unwrap();
    let pools = Pools::new(vec![Pool::new(&PoolConfig::new("across", 1024)).unwrap()]);
    let queues = across.start(&PortConfig::default(), &pools).unwrap();
    let config = config(
        &["ring:gone", "ring:stays,loop=on"],
        &["port=0 rate=10kpps", "port=1 rate=10kpps"],
    );
    let mut session = Session::open(config, &mut drivers, Clock::calibrate()).unwrap();
    session.start(&[], None).unwrap();
    assert!(session.is_sending());
    let snapshot = session.snapshot();
    assert!(snapshot.invalid.is_empty());
    assert_eq!(snapshot.ports[0].state, "sending");
    drop(queues);
    let snapshot = session.snapshot();
    let port = &snapshot.ports[0];
    assert_eq!((port.state.as_str(), port.link_up), ("failed", false));
    assert!(
        port.state_reason.contains("ring:gone"),
        "{}",
        port.state_reason
    );
    assert_eq!(snapshot.invalid.len(), 1);
    assert!(
        snapshot.invalid[0].contains("port 0"),
        "{:?}",
        snapshot.invalid
    );
    assert!(
        snapshot
            .log
            .iter()
            .any(|line| line.text.contains("run invalid"))
    );
    let before = snapshot.ports[1].tx.packets;
    let deadline = Instant::now() + LONG;
    while session.snapshot().ports[1].tx.packets == before {
        assert!(Instant::now() < deadline, "the other port has stopped too");
    }
    assert_eq!(session.snapshot().ports[1].state, "sending");
    session.stop(&[]);
    session.clear();
    assert!(session.invalid().is_empty());
}

#[test]
fn an_lcore_with_nothing_to_do_sleeps_and_wakes() {
    let mut session = open(&["ring:a,loop=on"], &["count=10"]);
    let deadline = Instant::now() + LONG;
    while session
        .snapshot()
        .lcores
        .iter()
        .any(|lcore| lcore.asleep_share == 0.0)
    {
        assert!(Instant::now() < deadline, "no sleep");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(run(&mut session).ports[0].rx.packets, 10);
}

#[test]
fn a_session_that_does_not_open_leaves_nothing_behind() {
    let mut drivers = Drivers::new();
    let clock = Clock::calibrate();
    let mut refused = |config: SessionConfig, wanted: &str| {
        let error = Session::open(config, &mut drivers, clock).err().unwrap();
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.fix().is_some_and(|fix| !fix.is_empty()), "{error}");
    };
    let taken = ["ring:a,loop=on", "ring:b,loop=on"];
    refused(config(&[], &[]), "without ports");
    refused(config(&["ring:a,loop=on", "rang:b"], &[]), "rang");
    refused(config(&taken, &["port=7"]), "no port 7");
    refused(config(&taken, &["port=rong"]), "no port `rong`");
    refused(config(&taken, &["rate=50%"]), "50%");
    let mapped = SessionConfig {
        map: Some("[0:0].0".into()),
        ..config(&taken, &[])
    };
    refused(mapped, "no lcore to receive from port 1");
    let asked = SessionConfig {
        ports: vec![PortAsked {
            spec: "ring:a,loop=on".into(),
            rx_queues: Some(9),
            ..PortAsked::default()
        }],
        ..config(&[], &[])
    };
    refused(asked, "ring:a");
    // After all that both are free.
    let mut session = Session::open(config(&taken, &["count=3"]), &mut drivers, clock).unwrap();
    assert_eq!(run(&mut session).ports[0].rx.packets, 3);
}

#[test]
fn nothing_to_send_and_unknown_ports_are_errors() {
    let mut session = open(&["ring:a,loop=on"], &[]);
    assert_eq!(session.snapshot().ports[0].state_reason, "no stream");
    let error = session.start(&[], None).unwrap_err();
    assert!(error.to_string().contains("no port has an enabled stream"));
    assert!(
        session
            .start(&[4], None)
            .unwrap_err()
            .to_string()
            .contains("no port 4")
    );
    session.add_stream("enabled=off".parse().unwrap()).unwrap();
    assert_eq!(
        session.snapshot().ports[0].state_reason,
        "no enabled stream"
    );
    assert!(session.start(&[0], None).is_err());
    session.stop(&[9]);
}

/// Waits for an event of a session.
fn heard<T>(session: &mut Session, mut look: impl FnMut(&mut Session) -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(found) = look(session) {
            return found;
        }
        assert!(Instant::now() < deadline, "no event came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn ports_answer_for_their_addresses_and_ask_from_them() {
    let mut session = open(&["ring:a", "ring:a"], &[]);
    let wrong = session.arp(0, "192.0.2.2".parse().ok()).unwrap_err();
    assert!(wrong.fix().unwrap().contains("addr"), "{wrong}");
    session
        .set_port(0, "addr", "192.0.2.1/24,2001:db8::1/64")
        .unwrap();
    session
        .set_port(1, "addr", "192.0.2.2/24,2001:db8::2/64")
        .unwrap();
    session.clear();
    for to in ["192.0.2.2", "2001:db8::2"] {
        let to: std::net::IpAddr = to.parse().unwrap();
        assert!(
            session.ping(0, to).is_err(),
            "the MAC address of {to} is unknown"
        );
        session.arp(0, Some(to)).unwrap();
        let mac = heard(&mut session, |session| session.neighbour(0, to));
        assert_eq!(mac, session.macs_of(1).0);
        let echo = session.ping(0, to).unwrap();
        let rtt_ns = heard(&mut session, |session| session.echo(0, echo));
        assert!(rtt_ns > 0);
    }
    session.arp(1, None).unwrap();
    let snapshot = session.snapshot();
    let log = snapshot.log.iter().map(|line| line.text.as_str());
    let answered = log.filter(|text| text.contains("answered echo")).count();
    assert_eq!(answered, 2, "{:?}", snapshot.log);
    let answers = &snapshot.ports[1].answers;
    for kind in ["ARP replies", "ND replies"] {
        assert!(answers.contains(&(kind.into(), 1)), "{answers:?}");
    }
    assert!(answers.contains(&("echo replies".into(), 2)), "{answers:?}");
    assert_eq!(snapshot.ports[1].addrs.len(), 2);
    assert!(snapshot.ports[1].flags.starts_with('E'));
    check_sums(&snapshot);
    // With `process` off it neither asks nor answers, and earlier answers still count.
    session.set_port(1, "process", "off").unwrap();
    session.set_port(1, "process", "off").unwrap();
    let off = session.arp(1, None).unwrap_err();
    assert!(off.fix().unwrap().contains("process on"), "{off}");
    session.arp(0, "192.0.2.2".parse().ok()).unwrap();
    session.set_port(1, "process", "on").unwrap();
    session.arp(0, "192.0.2.2".parse().ok()).unwrap();
    heard(&mut session, |session| {
        session.neighbour(0, "192.0.2.2".parse().unwrap())
    });
    session.set_port(1, "addr", "none").unwrap();
    assert!(!session.snapshot().ports[1].answers.is_empty());
    session.clear();
    assert!(session.snapshot().ports[1].answers.is_empty());
}

#[test]
fn what_a_wire_corrupts_is_counted_where_somebody_looks() {
    let faults = "ring:a,loop=on,faulty=flip:0.05+seed:5+on:rx";
    let mut session = open(&[faults], &["count=2000 dport=1-10"]);
    assert_eq!(session.snapshot().ports[0].corrupt, None);
    session.set_port(0, "verify", "on").unwrap();
    let port = &run(&mut session).ports[0];
    // Some errors are in bytes without a checksum: Ethernet addresses, padding.
    let (seen, done) = (port.corrupt.unwrap(), fault(port, "flip"));
    assert!(seen > 0 && seen <= done, "{seen} of {done}");
    assert!(port.flows.unwrap() >= 10, "{:?}", port.flows);
    session.set_port(0, "verify", "off").unwrap();
    let port = &session.snapshot().ports[0];
    assert_eq!((port.corrupt, port.flows), (None, None));
}

#[test]
fn port_keys_are_read_as_they_are_written() {
    let mut session = open(&["ring:a,loop=on"], &["count=1000"]);
    for (key, values) in [
        ("rate", ["1Mpps", "2Mpps"]),
        ("count", ["0", "1000"]),
        ("speed", ["none", "10G"]),
        ("addr", ["none", "192.0.2.1/24"]),
        ("process", ["off", "on"]),
        ("give_up", ["never", "15ms"]),
        ("tx_burst", ["64", "3"]),
        ("rx_burst", ["64", "5"]),
        ("verify", ["off", "on"]),
    ] {
        for value in values {
            session.set_port(0, key, value).unwrap();
            let written = session.port_key(0, key);
            let written = written.unwrap_or_else(|| PortAsked::default_of(key).into());
            session.set_port(0, key, &written).unwrap();
        }
        let error = session.set_port(0, key, "65 or so").unwrap_err();
        assert!(!error.fix().unwrap().is_empty(), "{error}");
        assert!(PORT_KEYS.iter().any(|known| known.0 == key), "{key}");
    }
    let snapshot = run(&mut session);
    check_sums(&snapshot);
    let port = &snapshot.ports[0];
    assert_eq!((port.tx_burst, port.rx_burst), (3, 5));
    // A frame that is given up is made up for, as often as `count` says: where the CPU is taken for
    // longer than `give_up`, all of them are.
    let made_up = port.unsent.min(1000);
    assert_eq!(port.rx.packets + port.unsent, 1000 + made_up);
    let mut refused = config(&["ring:a,loop=on"], &[]);
    refused.ports[0].tx_burst = Some(0);
    let error = Session::open(refused, &mut Drivers::new(), Clock::calibrate());
    assert!(error.err().unwrap().to_string().contains("tx_burst"));
}
