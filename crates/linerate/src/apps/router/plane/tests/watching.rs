//! Taps and traces.

use std::sync::mpsc;

use super::super::testing::*;
use super::super::told::{Mark, Told, Unfinished};
use super::super::trace::{Record, Stage, Trace};
use super::slow::{handed, slow};
use linerate_wire::filter::Filter;

fn trace(filter: &str, packets: u32) -> (Trace, mpsc::Receiver<Told>) {
    let (to, records) = mpsc::sync_channel(16);
    let filter = (!filter.is_empty()).then(|| filter.parse::<Filter>().unwrap());
    let trace = Trace {
        filter,
        packets,
        mark: Mark::MIN,
        to,
    };
    (trace, records)
}

/// What has been told: of packets that are done with, and of the others.
fn records(parts: &mpsc::Receiver<Told>) -> (Vec<Record>, Vec<Record>) {
    let mut unfinished = Unfinished::default();
    let whole: Vec<Record> = parts
        .try_iter()
        .filter_map(|part| unfinished.take(part))
        .collect();
    (whole, unfinished.into_records().collect())
}

fn steps(record: &Record) -> Vec<String> {
    let step = |(stage, text): &(Stage, String)| format!("{stage}: {text}");
    record.steps.iter().map(step).collect()
}

#[test]
fn a_tap_sees_what_comes_and_what_goes() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let (sender, seen) = mpsc::channel();
    for (id, stage) in (0..).zip(Stage::TAPS) {
        let sender = sender.clone();
        let tap = move |port, packet: &linerate_core::packet::Packet| {
            sender.send((stage, port, packet.data().to_vec())).unwrap();
        };
        fast.watch().set_tap(id, stage, Box::new(tap));
    }
    let good = Frame::new().bytes();
    let bad = Frame {
        dst: "10.4.0.1",
        ..Frame::new()
    }
    .bytes();
    lab.run(&mut fast, 0, &[good.clone(), bad.clone()]);
    let seen_now: Vec<_> = seen.try_iter().collect();
    let out = forwarded(good.clone(), ROUTER_MAC, LAN_MAC);
    assert_eq!(
        seen_now,
        [
            (Stage::Input, 0, good.clone()),
            (Stage::Input, 0, bad.clone()),
            (Stage::Drop, 0, bad),
            (Stage::Output, 1, out),
        ]
    );
    for id in 0..5 {
        assert!(fast.watch().remove_tap(id).is_some());
    }
    lab.run(&mut fast, 0, &[good]);
    assert_eq!(seen.try_iter().count(), 0);
}

#[test]
fn a_trace_tells_stage_by_stage_what_became_of_a_packet() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let (trace, parts) = trace("dst net 10.0.0.0/8", 3);
    fast.watch().set_trace(Some(trace));
    let to = |dst| {
        Frame {
            dst,
            ..Frame::new()
        }
        .bytes()
    };
    let frames = [
        to("192.0.2.1"), // does not match
        to("10.1.0.9"),
        to("10.4.0.1"),
        to("10.3.0.1"),
        to("10.1.0.9"), // one too many
    ];
    let left = lab.run(&mut fast, 0, &frames);
    assert_eq!(left.len(), 4);
    let (told, handed) = records(&parts);
    let ends: Vec<&str> = told.iter().map(|record| &*record.end).collect();
    assert_eq!(ends, ["sent by lan", "dropped: blackhole"]);
    assert_eq!(handed.len(), 1);
    let last = steps(&handed[0]).pop();
    assert_eq!(last.as_deref(), Some("slow: to the slow worker: resolve"));
    assert!(handed[0].end.starts_with("handed to the slow worker"));
    let closed = Err(mpsc::TryRecvError::Disconnected);
    assert_eq!(parts.try_recv(), closed, "it ends when it has all");
    let steps = steps(&told[0]);
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert_eq!(steps[0], "input: valid");
    assert!(steps[1].starts_with("lookup: 10.1.0.9: hop ") && steps[1].contains("198.51.100.2"));
    assert!(steps[2].starts_with("rewrite: time to live less one, to 02:00:00:00:00:a2"));
    assert_eq!(told[0].frame, frames[1]);
    assert_eq!((told[0].interface, told[0].bytes), (WAN, 60));
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
    let (trace, parts) = trace("", 64);
    let mut fast = lab.fast();
    fast.watch().set_trace(Some(trace));
    let mut traced = lab.run(&mut fast, 0, &frames);
    assert_eq!(parts.try_iter().count(), frames.len());
    let ours = |left: &Left| left.frame[23] != 1;
    // Errors differ in nothing but when they were made, and what the slow worker gets in its mark.
    traced.retain(ours);
    for punt in traced.iter_mut().filter_map(|left| left.punt.as_mut()) {
        assert!(punt.mark.take().is_some());
    }
    assert_eq!(traced, plain.into_iter().filter(ours).collect::<Vec<_>>());
}

#[test]
fn a_trace_goes_on_at_the_slow_worker_until_a_packet_is_gone() {
    let mut lab = Lab::new();
    let (mut slow, _events) = slow(&mut lab);
    let mut fast = lab.fast();
    lab.left();
    let (trace, parts) = trace("src host 192.0.2.7 and not tcp", 3);
    let same = Trace {
        filter: None,
        to: trace.to.clone(),
        ..trace
    };
    slow.watch().set_trace(Some(same));
    fast.watch().set_trace(Some(trace));
    let frame = |dst, protocol| Frame {
        dst,
        protocol,
        ..Frame::new()
    };
    let frames = [
        frame("10.3.0.1", 17),  // by a gateway that nobody knows
        frame("192.0.2.1", 17), // for us, where nobody listens
        frame("10.3.0.1", 6),   // not traced
        frame("192.0.2.9", 17), // a neighbour that answers
    ];
    let left = lab.run(&mut fast, 0, &frames.map(|frame| frame.bytes()));
    let marks: Vec<bool> = left
        .iter()
        .filter_map(|left| left.punt.map(|punt| punt.mark.is_some()))
        .collect();
    // Resolve, local, glean; who is not traced carries nothing.
    assert_eq!(marks.iter().filter(|is_marked| **is_marked).count(), 3);
    assert_eq!(marks.len(), 4, "{left:?}");
    let packets = handed(&mut lab, &left);
    lab.run_packets(&mut slow, SLOW, packets);
    let mut reply = vec![0; 60];
    reply[..6].copy_from_slice(&WAN_MAC.0);
    reply[6..12].copy_from_slice(&HOST_MAC.0);
    reply[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    reply[22..28].copy_from_slice(&HOST_MAC.0);
    reply[28..32].copy_from_slice(&[192, 0, 2, 9]);
    reply[32..38].copy_from_slice(&WAN_MAC.0);
    reply[38..42].copy_from_slice(&[192, 0, 2, 1]);
    let left = lab.run(&mut fast, 0, &[reply]);
    let packets = handed(&mut lab, &left);
    lab.run_packets(&mut slow, SLOW, packets);
    for tenths in 1..60 {
        slow.tick(lab.now + tenths * 100_000_000, &mut lab.egress);
    }
    let (mut told, unfinished) = records(&parts);
    assert_eq!((told.len(), unfinished), (3, Vec::new()));
    told.sort_by_key(|record| record.end.clone());
    let slow_steps = |record: &Record| {
        let steps = steps(record).into_iter();
        let slow: Vec<String> = steps.filter(|step| step.starts_with("slow")).collect();
        (slow.join("; "), record.end.clone())
    };
    let expected = [
        (
            "slow: to the slow worker: resolve; slow: next hop 198.51.100.3: its MAC address is not \
             known; slow: its sender is told: NoNeighbour",
            "dropped: neighbour_unresolved",
        ),
        (
            "slow: to the slow worker: local; slow: its sender is told: NoPort",
            "dropped: not_served",
        ),
        (
            "slow: to the slow worker: glean; slow: next hop 192.0.2.9: its MAC address is not known; \
             slow: its MAC address is 02:00:00:00:00:a7",
            "sent by wan",
        ),
    ];
    let expected = expected.map(|(steps, end)| (steps.to_string(), end.to_string()));
    assert_eq!(told.iter().map(slow_steps).collect::<Vec<_>>(), expected);
}
