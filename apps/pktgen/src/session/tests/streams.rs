//! Streams that change while they run, and the rates and counts that they are given.

use super::*;

#[test]
fn streams_change_while_they_run() {
    let mut session = open(&["ring:a,loop=on"], &["rate=max"]);
    session.start(&[], None).unwrap();
    let wait = |session: &mut Session, what: &str, test: &dyn Fn(&Snapshot) -> bool| {
        let deadline = Instant::now() + LONG;
        loop {
            let snapshot = session.snapshot();
            check_sums(&snapshot);
            if test(&snapshot) {
                return snapshot;
            }
            assert!(Instant::now() < deadline, "waited for {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let sizes = |snapshot: &Snapshot| snapshot.ports[0].sizes;
    wait(&mut session, "frames", &|now| sizes(now)[0] > 0);
    session.set_stream(0, "size", "1000").unwrap();
    wait(&mut session, "longer frames", &|now| sizes(now)[4] > 0);
    let added = session
        .add_stream("size=200 rate=10kpps".parse().unwrap())
        .unwrap();
    assert_eq!(added, 1);
    let now = wait(&mut session, "another stream", &|now| sizes(now)[2] > 0);
    assert_eq!(now.streams.len(), 2);
    session.set_stream(0, "enabled", "off").unwrap();
    let before = session.snapshot().streams[0].tally.sent;
    let now = wait(&mut session, "more of the other", &|now| {
        now.streams[1].tally.sent > 50
    });
    // Except the burst that was waiting at the queue.
    assert!(now.streams[0].tally.sent <= before + 64);
    assert!(!now.streams[0].enabled);
    // A removed stream is not shown, but what it sent still counts for the port.
    session.remove_stream(0).unwrap();
    session.set_stream(1, "enabled", "off").unwrap();
    assert!(session.drain(QUIET, LONG));
    let now = session.snapshot();
    assert_eq!(now.streams.len(), 1);
    assert_eq!(now.streams[0].id, 1);
    let port = &now.ports[0];
    assert_eq!(port.tally.received, port.rx.packets);
    assert_eq!((port.rx.packets, port.tally.lost), (port.tx.packets, 0));
    assert_eq!((port.tally.reordered, port.tally.duplicates), (0, 0));
    let error = session.set_stream(0, "size", "64").unwrap_err();
    assert!(error.to_string().contains("no stream 0"), "{error}");
    assert!(session.set_stream(1, "sice", "64").is_err());
    assert!(
        session.set_stream(1, "size", "63").is_err() || session.set_stream(1, "size", "1").is_err()
    );
}

#[test]
fn a_stream_moves_to_another_port_with_its_counts() {
    let mut session = open(
        &["ring:a,loop=on", "ring:b,loop=on"],
        &["count=100", "port=1 count=5"],
    );
    run(&mut session);
    session.set_stream(0, "port", "1").unwrap();
    let snapshot = run(&mut session);
    let stream = &snapshot.streams[0];
    assert_eq!((stream.port, stream.tally.sent), (1, 200));
    assert_eq!((stream.tally.received, stream.tally.lost), (200, 0));
    assert_eq!(snapshot.ports[0].tx.packets, 100);
    assert_eq!(snapshot.ports[1].tx.packets, 110);
}

#[test]
fn more_streams_than_there_was_room_for_count_on() {
    let mut session = open(&["ring:a,loop=on"], &["count=50"]);
    run(&mut session);
    for _ in 0..80 {
        session.add_stream("count=10".parse().unwrap()).unwrap();
    }
    let snapshot = run(&mut session);
    check_sums(&snapshot);
    assert_eq!(snapshot.streams.len(), 81);
    assert_eq!(snapshot.streams[0].tally.received, 100);
    assert_eq!(snapshot.streams[0].latency.samples, 100);
    let whole = |view: &StreamView| view.tally.received == 10 && view.tally.lost == 0;
    assert!(snapshot.streams[1..].iter().all(whole));
}

#[test]
fn impossible_rates_are_refused_with_the_most_that_goes() {
    let mut session = open(&["ring:a,loop=on"], &["size=64"]);
    session.set_port(0, "speed", "10G").unwrap();
    session.set_stream(0, "rate", "100%").unwrap();
    let snapshot = session.snapshot();
    assert_eq!(snapshot.ports[0].asked_pps.round(), 14_880_952.0);
    for rate in ["14.9Mpps", "101%", "11Gbit/s-L1", "9Gbit/s-L2"] {
        match session.set_stream(0, "rate", rate) {
            Err(Error::Usage { problem, fix }) => {
                assert!(
                    problem.contains("asked of a port of 10 Gbit/s"),
                    "{problem}"
                );
                assert!(fix.contains("14880952 frames/s"), "{fix}");
            }
            other => panic!("{rate}: {other:?}"),
        }
        let unchanged = session.snapshot();
        assert_eq!(unchanged.streams[0].rate, "100%");
    }
    assert!(session.set_stream(0, "rate", "0pps").is_err());
    assert!(session.set_port(0, "rate", "fast").is_err());
    let error = session.set_port(0, "colour", "red").unwrap_err();
    assert!(error.fix().unwrap().contains("rate, count, speed"));
    // Two that fit one by one do not fit together.
    session.set_stream(0, "rate", "60%").unwrap();
    assert!(session.add_stream("rate=60%".parse().unwrap()).is_err());
    assert_eq!(session.snapshot().streams.len(), 1);
    session.add_stream("rate=40%".parse().unwrap()).unwrap();
}

#[test]
fn a_ports_rate_and_count_are_shared_by_streams_without_their_own() {
    let mut session = open(
        &["ring:a,loop=on"],
        &["weight=3", "weight=1", "rate=5kpps count=11"],
    );
    session.set_port(0, "rate", "100kpps").unwrap();
    assert_eq!(session.snapshot().ports[0].asked_pps, 105_000.0);
    session.set_port(0, "rate", "max").unwrap();
    session.set_port(0, "count", "1001").unwrap();
    let snapshot = run(&mut session);
    let sent: Vec<u64> = snapshot
        .streams
        .iter()
        .map(|view| view.tally.sent)
        .collect();
    assert_eq!(sent[..2], [501, 500]);
    // Frames that were given up as late are made up for.
    assert!(sent[2] <= 11, "{snapshot:?}");
    assert!(sent[2] + snapshot.streams[2].unsent >= 11, "{snapshot:?}");
}

#[test]
fn what_is_due_is_sent_or_unsent() {
    let mut session = open(&["ring:a,loop=on"], &["rate=20kpps", "rate=333pps"]);
    session
        .start(&[], Some(Duration::from_millis(300)))
        .unwrap();
    assert!(sent_all(&mut session));
    session.drain(QUIET, LONG);
    let snapshot = session.snapshot();
    let due = |stream: &StreamView| stream.tally.sent + stream.unsent;
    assert_eq!(due(&snapshot.streams[0]), 6000);
    assert_eq!(due(&snapshot.streams[1]), 99);
    let port = &snapshot.ports[0];
    assert_eq!((port.asked_pps, port.state.as_str()), (20_333.0, "done"));
    let error = port.rate_error_ppm.unwrap();
    let unsent = port.unsent as f64 / 6100.0 * 1e6;
    assert!(
        (error + unsent).abs() < 2000.0,
        "{error} ppm, {unsent} ppm unsent"
    );
}
