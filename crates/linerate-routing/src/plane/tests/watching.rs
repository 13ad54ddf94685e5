//! Taps and traces.

use std::sync::mpsc;

use super::super::testing::*;
use super::super::trace::Trace;
use linerate_appliance::control::trace::Record;
use linerate_core::run::{Passing, Point, Stage as _};
use linerate_wire::filter::Filter;

fn trace(filter: &str, packets: u32) -> (Trace, mpsc::Receiver<Record>) {
    let (to, records) = mpsc::sync_channel(16);
    let filter = (!filter.is_empty()).then(|| filter.parse::<Filter>().unwrap());
    let trace = Trace {
        filter,
        packets,
        to,
        tickets: Default::default(),
    };
    (trace, records)
}

#[test]
fn a_tap_sees_what_comes_and_what_goes() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let (sender, seen) = mpsc::channel();
    let listen = |point: &mut Point| {
        let sender = sender.clone();
        let tap = move |passing: &Passing<'_>| {
            let data = passing.packet.data().to_vec();
            let reason = passing.reason.to_string();
            let seen = (passing.stage, passing.port, reason, data);
            sender.send(seen).unwrap();
        };
        if ["receive", "drop", "sent"].contains(&point.name) {
            point.set_tap(3, Box::new(tap));
        }
    };
    fast.points(&mut |point| listen(point));
    lab.egress.points().into_iter().for_each(listen);
    let good = Frame::new().bytes();
    let bad = Frame::to("10.4.0.1").bytes();
    lab.run(&mut fast, 0, &[good.clone(), bad.clone()]);
    let seen_now: Vec<_> = seen.try_iter().collect();
    let out = forwarded(good.clone(), ROUTER_MAC, LAN_MAC);
    assert_eq!(
        seen_now,
        [
            ("receive", 0, String::new(), good.clone()),
            ("receive", 0, String::new(), bad.clone()),
            ("drop", 0, "blackhole".into(), bad),
            ("sent", 1, String::new(), out),
        ]
    );
    fast.points(&mut |point| drop(point.remove_tap(3)));
    for point in lab.egress.points() {
        point.remove_tap(3);
    }
    lab.run(&mut fast, 0, &[good]);
    assert_eq!(seen.try_iter().count(), 0);
}

#[test]
fn a_trace_has_a_line_for_each_stage_of_a_packet() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let (trace, records) = trace("dst net 10.0.0.0/8", 3);
    fast.tracer().set_trace(Some(trace));
    let to = |dst| Frame::to(dst).bytes();
    let frames = [
        to("192.0.2.1"), // does not match
        to("10.1.0.9"),
        to("10.4.0.1"),
        to("10.3.0.1"),
        to("10.1.0.9"), // one too many
    ];
    let left = lab.run(&mut fast, 0, &frames);
    assert_eq!(left.len(), 4);
    let told: Vec<Record> = records.iter().collect(); // ends with the trace
    let ends: Vec<&str> = told.iter().map(|record| &*record.end).collect();
    assert_eq!(ends, ["sent by lan", "dropped: blackhole", ""]);
    // The third trace continues in the slow worker, by its ticket.
    let punt = left
        .iter()
        .find_map(|left| left.punt.filter(|punt| punt.ticket != 0));
    assert_eq!(punt.unwrap().ticket, told[2].ticket);
    let last = told[2].steps.last().unwrap();
    assert_eq!((last.0, &*last.1), ("punt", "resolve"));
    assert_eq!((told[0].ticket, told[1].ticket), (0, 0));
    let steps: Vec<String> = told[0]
        .steps
        .iter()
        .map(|(stage, text)| format!("{stage}: {text}"))
        .collect();
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert_eq!(steps[0], "validate: valid");
    assert!(steps[1].starts_with("lookup: 10.1.0.9: hop ") && steps[1].contains("198.51.100.2"));
    assert!(steps[2].starts_with("rewrite: time to live less one, to 02:00:00:00:00:a2"));
    assert_eq!(told[0].summary, "192.0.2.7:5000 > 10.1.0.9:53 udp");
    assert_eq!((told[0].from, told[0].bytes), (WAN.0, 60));
}

#[test]
fn a_trace_reads_packets_of_any_length_and_says_which_are_malformed() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let (trace, records) = trace("", 5);
    fast.tracer().set_trace(Some(trace));
    let long = |bytes| {
        let payload = udp(bytes);
        let new = Frame::new();
        Frame { payload, ..new }.bytes()
    };
    let mut cut = long(400);
    cut.truncate(300);
    lab.run(&mut fast, 0, &[long(18), long(300), long(1472), cut]);
    let told: Vec<String> = records.try_iter().map(|record| record.summary).collect();
    assert_eq!(told.len(), 4);
    for sound in &told[..3] {
        assert_eq!(sound, "192.0.2.7:5000 > 10.1.0.9:53 udp");
    }
    assert!(told[3].starts_with("malformed: "), "{told:?}");
}

#[test]
fn traced_packets_are_treated_like_all_others() {
    let mut lab = Lab::new();
    let frames: Vec<Vec<u8>> = (1..7_u8)
        .flat_map(|number| {
            let mut frame = Frame::new().bytes();
            frame[31] = number;
            let mut ip = linerate_wire::ipv4::Ipv4::new_checked(&mut frame[14..]).unwrap();
            ip.fill_checksum();
            let mut long = frame.clone();
            long.extend([0; 9]);
            [frame, long]
        })
        .collect();
    let mut fast = lab.fast();
    let plain = lab.run(&mut fast, 0, &frames);
    let (trace, records) = trace("", 64);
    let mut fast = lab.fast();
    fast.tracer().set_trace(Some(trace));
    let mut traced = lab.run(&mut fast, 0, &frames);
    assert_eq!(records.try_iter().count(), frames.len());
    let ours = |left: &Left| left.frame[23] != 1;
    // Errors differ only in their time, punts in their tickets.
    traced.retain(ours);
    for punt in traced.iter_mut().filter_map(|left| left.punt.as_mut()) {
        punt.ticket = 0;
    }
    assert_eq!(traced, plain.into_iter().filter(ours).collect::<Vec<_>>());
}
