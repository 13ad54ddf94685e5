//! RFC 9293 where TCP meets its user and IP: tests have the numbers of its requirements.

use linerate_wire::protocol;
use linerate_wire::tcp::flag;

use super::forge::{self, seen, tap};
use super::*;
use crate::tcp::segment::{Header, SynOptions};

/// The address of an end.
fn ip(end: usize) -> [u8; 4] {
    [192, 0, 2, end as u8 + 1]
}

fn listening() -> (Pair, ListenerId) {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    (pair, listener)
}

fn syn(seq: u32) -> Header {
    Header {
        seq,
        flags: flag::SYN,
        window: 1000,
        syn: Some(SynOptions {
            mss: Some(1460),
            ..SynOptions::default()
        }),
        ..Header::default()
    }
}

/// What an end has sent and nobody has got.
fn sent(pair: &mut Pair, end: usize) -> Vec<Vec<u8>> {
    pair.ends[end].out.flush();
    pair.ends[end].line.lock().unwrap().drain(..).collect()
}

#[test]
fn must_2_and_3_wrong_checksums_are_dropped() {
    let (mut pair, listener) = listening();
    let all = tap(&mut pair);
    let (_, server) = pair.open(listener, false, 80);
    // `tap` has looked at the sums of all that were sent.
    assert!(all.lock().unwrap().len() >= 3);
    let now_ns = pair.now_ns;
    let before = pair.ends[1].stack.connections();
    let mut segment = forge::segment((ip(0), ip(1)), (7, 80), &syn(1), &[]);
    segment[17] ^= 1;
    let frame = forge::packet(ip(0), ip(1), protocol::TCP, &[], &segment);
    pair.ends[1].receive(&[frame], now_ns);
    assert!(sent(&mut pair, 1).is_empty());
    assert_eq!(pair.ends[1].stack.connections(), before);
    assert!(pair.ends[1].io(now_ns).info(server).is_ok());
    pair.ends[1].check_slots();
}

#[test]
fn must_12_a_user_learns_whether_it_was_closed_or_aborted() {
    for aborts in [false, true] {
        let (mut pair, listener) = listening();
        let (client, server) = pair.open(listener, false, 80);
        let now_ns = pair.now_ns;
        match aborts {
            true => pair.ends[0].io(now_ns).abort(client),
            false => pair.ends[0].io(now_ns).close(client),
        }
        pair.calm();
        let now_ns = pair.now_ns;
        let read = pair.ends[1].io(now_ns).read(server, &mut [0; 10]);
        assert_eq!(read, if aborts { Err(Error::Reset) } else { Ok(0) });
    }
}

#[test]
fn must_41_and_43_a_listener_changes_no_other() {
    let (mut pair, listener) = listening();
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert!(io.listen(Listen::on(80)).is_none());
    // MUST-43: the local address can be said, and then counts for more than any.
    let one = Listen {
        address: Some(ip(1).into()),
        ..Listen::on(80)
    };
    let one = io.listen(one).unwrap();
    pair.open(one, false, 80);
    pair.open(listener, true, 80);
    // The connection that was there has noticed nothing.
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).write(client, b"still").unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[1].io(now_ns).readable(server), 5);
}

#[test]
fn must_42_a_port_can_be_listened_to_while_it_connects() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    let calling = io.connect(Some(Pair::at(1, false, 80)), Pair::at(0, false, 9));
    let calling = calling.unwrap();
    assert_eq!(io.info(calling).unwrap().state, State::SynSent);
    let listener = io.listen(Listen::on(80)).unwrap();
    pair.open(listener, false, 80);
}

#[test]
fn must_44_and_45_ip_chooses_the_source_once() {
    let (mut pair, _) = listening();
    let all = tap(&mut pair);
    let mut lose = std::mem::replace(&mut pair.loses, Box::new(|_| false));
    pair.loses = Box::new(move |frame| {
        lose(frame);
        seen(frame).is_some()
    });
    let now_ns = pair.now_ns;
    let remote = Pair::at(1, false, 80);
    let id = pair.ends[0].io(now_ns).connect(None, remote).unwrap();
    pair.pass(8 * S);
    // Each SYN again is of the address of the first one.
    let all = all.lock().unwrap();
    assert!(all.len() >= 3);
    assert!(all.iter().all(|syn| syn.src == ip(0) && syn.has(flag::SYN)));
    let now_ns = pair.now_ns;
    let local = pair.ends[0].io(now_ns).addresses(id).unwrap().0;
    assert_eq!(local, (ip(0), all[0].ports.0).into());
    drop(all);
    // MUST-43: one that is not ours is refused.
    let other = Some(Pair::at(1, false, 0));
    assert!(pair.ends[0].io(now_ns).connect(other, remote).is_err());
}

/// MUST-45: another choice of IP's is for connections to come.
#[test]
fn must_45_what_ip_would_choose_later_changes_no_source() {
    let mut pair = Pair::new();
    let all = tap(&mut pair);
    let mut lose = std::mem::replace(&mut pair.loses, Box::new(|_| false));
    pair.loses = Box::new(move |frame| {
        lose(frame);
        seen(frame).is_some()
    });
    let (remote, other) = (Pair::at(1, false, 80), [192, 0, 2, 9]);
    let now_ns = pair.now_ns;
    let id = pair.ends[0].io(now_ns).connect(None, remote).unwrap();
    pair.pass(2 * S);
    // A second address, before the one that is there.
    let Station { stack, out, .. } = &mut pair.ends[0];
    let host = stack.host();
    let lan = host.interface_of(0).unwrap();
    let mut interface = host.interface(lan).unwrap().clone();
    interface.addresses.insert(0, (other.into(), 24));
    host.change_interface(lan, interface, now_ns, out).unwrap();
    // It is looked for on the network first.
    pair.pass(10 * S);
    let now_ns = pair.now_ns;
    let new = pair.ends[0].io(now_ns).connect(None, remote).unwrap();
    pair.pass(20 * S);
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    let sources = [id, new].map(|id| io.addresses(id).unwrap().0);
    assert_eq!(
        sources.map(|local| local.ip()),
        [ip(0), other].map(IpAddr::from)
    );
    // On the wire as well, after the change too.
    let all = all.lock().unwrap();
    for (local, least) in sources.iter().zip([4, 3]) {
        let of_it = all.iter().filter(|syn| syn.ports.0 == local.port());
        let of_it: Vec<_> = of_it.map(|syn| IpAddr::from(syn.src)).collect();
        assert!(of_it.len() >= least && of_it.iter().all(|src| *src == local.ip()));
    }
}

/// RFC 6864 4.1: what is never cut needs none.
#[test]
fn may_4_segments_have_no_identification_of_ip() {
    let (mut pair, listener) = listening();
    let (client, server) = pair.open(listener, false, 80);
    let all = Arc::new(Mutex::new(Vec::new()));
    let (into, mut lost) = (all.clone(), false);
    pair.loses = Box::new(move |frame| {
        let Some(segment) = seen(frame) else {
            return false;
        };
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        into.lock()
            .unwrap()
            .push((segment.segment.seq, word(18), word(20)));
        // The first with data.
        segment.segment.len > 0 && !std::mem::replace(&mut lost, true)
    });
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).write(client, &[1; 20_000]).unwrap();
    pair.pass(S);
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[1].io(now_ns).readable(server), 20_000);
    assert_eq!(pair.ends[0].stack.tcp_stats().retransmitted, 1);
    let dont_fragment = 0x4000;
    let all = all.lock().unwrap();
    assert_eq!(all.iter().filter(|one| one.0 == all[0].0).count(), 2);
    assert!(all.iter().all(|one| (one.1, one.2) == (0, dont_fragment)));
}

#[test]
fn must_46_nobody_connects_to_a_group() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    for remote in [
        "255.255.255.255:80",
        "192.0.2.255:80",
        "224.0.0.1:80",
        "[ff02::1]:80",
        "0.0.0.0:80",
        "[::]:80",
    ] {
        let mut io = pair.ends[0].io(now_ns);
        assert!(
            io.connect(None, remote.parse().unwrap()).is_err(),
            "{remote}"
        );
    }
    let frames = sent(&mut pair, 0);
    assert!(frames.iter().all(|frame| seen(frame).is_none()));
    assert_eq!(pair.ends[0].stack.connections(), 0);
}

#[test]
fn must_50_ip_options_are_skipped() {
    let (mut pair, listener) = listening();
    pair.open(listener, false, 80);
    // No operation, a time stamp (RFC 791 3.1) that is full, the end.
    let options = [1, 68, 4, 5, 0, 0, 0, 0];
    let segment = forge::segment((ip(0), ip(1)), (7, 80), &syn(1), &[]);
    let frame = forge::packet(ip(0), ip(1), protocol::TCP, &options, &segment);
    let now_ns = pair.now_ns;
    pair.ends[1].receive(&[frame], now_ns);
    let answer = seen(&sent(&mut pair, 1)[0]).unwrap();
    assert!(answer.has(flag::SYN | flag::ACK));
}

#[test]
fn must_54_to_56_errors_of_icmp_end_no_connection() {
    // Destination unreachable of each kind, source quench, time exceeded, a parameter problem.
    let messages = [
        (3, 0),
        (3, 1),
        (3, 5),
        (3, 2),
        (3, 3),
        (4, 0),
        (11, 0),
        (12, 0),
    ];
    for (kind, code) in messages {
        let (mut pair, listener) = listening();
        let (client, server) = pair.open(listener, false, 80);
        let now_ns = pair.now_ns;
        pair.ends[1].io(now_ns).write(server, &[1; 100]).unwrap();
        pair.ends[1].out.flush();
        let about = pair.ends[1].line.lock().unwrap().back().unwrap().clone();
        let errors = pair.ends[1].stack.stats().errors_ignored;
        pair.ends[1].receive(&[forge::error(kind, code, 0, &about)], now_ns);
        let info = pair.ends[1].io(now_ns).info(server).unwrap();
        assert_eq!(info.state, State::Established, "{kind} {code}");
        // Believed, and not a reason to slow down (RFC 6633 has done away with source quench).
        assert_eq!(info.cwnd_bytes, 10 * u32::from(info.mss), "{kind} {code}");
        assert_eq!(pair.ends[1].stack.stats().errors_ignored, errors);
        pair.calm();
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[0].io(now_ns).readable(client), 100);
    }
}

#[test]
fn must_57_and_63_segments_of_groups_are_dropped_in_silence() {
    let (mut pair, listener) = listening();
    pair.open(listener, false, 80);
    let before = pair.ends[1].stack.connections();
    let now_ns = pair.now_ns;
    let addresses = [
        // MUST-57: to a broadcast and a multicast address.
        (ip(0), [255; 4]),
        (ip(0), [192, 0, 2, 255]),
        (ip(0), [224, 0, 0, 1]),
        // MUST-63: from one, or from nobody.
        ([255; 4], ip(1)),
        ([192, 0, 2, 255], ip(1)),
        ([224, 0, 0, 1], ip(1)),
        ([0; 4], ip(1)),
        (ip(1), ip(1)),
    ];
    for (src, dst) in addresses {
        let segment = forge::segment((src, dst), (7, 80), &syn(1), &[]);
        let mut frame = forge::packet(src, dst, protocol::TCP, &[], &segment);
        pair.ends[1].receive(std::slice::from_ref(&frame), now_ns);
        // As it comes to a group.
        frame[..6].copy_from_slice(&[0xff; 6]);
        pair.ends[1].receive(&[frame], now_ns);
        assert!(sent(&mut pair, 1).is_empty(), "{src:?} to {dst:?}");
        assert_eq!(pair.ends[1].stack.connections(), before);
    }
    pair.ends[1].check_slots();
}

#[test]
fn must_58_and_59_a_burst_gets_one_acknowledgment() {
    let mut config = small();
    config.tcp.timestamps = false;
    let mut pair = Pair::with(&config, &config);
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let all = tap(&mut pair);
    let (_, server) = pair.open(listener, false, 80);
    let last = all.lock().unwrap().last().unwrap().clone();
    let now_ns = pair.now_ns;
    let frames: Vec<_> = (0..16)
        .map(|number| {
            let header = Header {
                seq: last.segment.seq.wrapping_add(number * 1000),
                ack: last.segment.ack,
                flags: flag::ACK,
                window: 1000,
                ..Header::default()
            };
            let segment = forge::segment((ip(0), ip(1)), last.ports, &header, &[3; 1000]);
            forge::packet(ip(0), ip(1), protocol::TCP, &[], &segment)
        })
        .collect();
    pair.ends[1].receive(&frames, now_ns);
    let answers = sent(&mut pair, 1);
    assert_eq!(answers.len(), 1);
    let end = last.segment.seq.wrapping_add(16_000);
    assert_eq!(seen(&answers[0]).unwrap().segment.ack, end);
    assert_eq!(pair.ends[1].io(now_ns).readable(server), 16_000);
}

#[test]
fn must_60_and_61_shld_27_and_28_data_goes_in_full_segments_and_the_last_has_psh() {
    let (mut pair, listener) = listening();
    let (client, _) = pair.open(listener, false, 80);
    let all = tap(&mut pair);
    let now_ns = pair.now_ns;
    let bytes = [1; 5000];
    let written = pair.ends[0]
        .io(now_ns)
        .write_vectored(client, &[&bytes[..10], &bytes[10..]]);
    assert_eq!(written, Ok(5000));
    pair.calm();
    let all = all.lock().unwrap();
    let data: Vec<_> = all.iter().filter(|seen| seen.segment.len > 0).collect();
    let lens: Vec<_> = data.iter().map(|seen| seen.segment.len).collect();
    assert_eq!(lens, [1448, 1448, 1448, 656]);
    let pushes: Vec<_> = data.iter().map(|seen| seen.has(flag::PSH)).collect();
    assert_eq!(pushes, [false, false, false, true]);
}

#[test]
fn must_64_options_need_no_alignment() {
    let (mut pair, listener) = listening();
    pair.open(listener, false, 80);
    // One of each kind, at odd places: NOP, SACK-permitted, MSS, NOP, scale, time stamps, end.
    let mut segment = forge::segment((ip(0), ip(1)), (7, 80), &syn(1), &[]);
    segment.truncate(20);
    segment.extend([
        1, 4, 2, 2, 4, 5, 0xb4, 1, 1, 3, 3, 7, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 0,
    ]);
    segment[12] = (segment.len() as u8 / 4) << 4;
    forge::fill(ip(0), ip(1), &mut segment);
    let frame = forge::packet(ip(0), ip(1), protocol::TCP, &[], &segment);
    let now_ns = pair.now_ns;
    pair.ends[1].receive(&[frame], now_ns);
    let answer = seen(&sent(&mut pair, 1)[0]).unwrap();
    assert!(answer.has(flag::SYN | flag::ACK) && answer.syn.sack_permitted);
    assert_eq!(answer.segment.timestamps.unwrap().1, 9);
    assert!(answer.syn.window_scale.is_some());
}

#[test]
fn must_65_68_and_69_what_options_are_sent() {
    let (mut pair, listener) = listening();
    let all = tap(&mut pair);
    // A loss, so that there are SACKs.
    let mut seen_by = std::mem::replace(&mut pair.loses, Box::new(|_| false));
    let mut count = 0;
    pair.loses = Box::new(move |frame| {
        seen_by(frame);
        count += usize::from(frame.len() > 1000);
        frame.len() > 1000 && count == 4
    });
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).write(client, &[1; 50_000]).unwrap();
    pair.pass(S);
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).close(client);
    assert_eq!(pair.ends[1].io(now_ns).readable(server), 50_000);
    pair.calm();
    let mut kinds = [0; 256];
    for seen in all.lock().unwrap().iter() {
        let mut options = seen.options();
        while let [kind, rest @ ..] = options {
            kinds[usize::from(*kind)] += 1;
            options = match kind {
                0 => {
                    assert!(rest.iter().all(|&byte| byte == 0), "MUST-69");
                    &[]
                }
                1 => rest,
                _ => {
                    let len = usize::from(rest[0]);
                    assert!((2..=options.len()).contains(&len), "MUST-68");
                    &options[len..]
                }
            };
            assert!(*kind != 2 || seen.has(flag::SYN), "MUST-65");
        }
    }
    // MSS in both SYNs, time stamps and SACKs were among them.
    assert!(kinds[2] == 2 && kinds[8] > 30 && kinds[5] > 0);
}

#[test]
fn shld_20_who_does_not_ask_for_errors_is_not_told() {
    let (mut pair, listener) = listening();
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    io.register(server, interest::READ, 1).unwrap();
    pair.ends[0].io(now_ns).abort(client);
    pair.calm();
    let mut events = [Event {
        source: Source::Connection(server),
        token: 0,
        ready: 0,
    }; 4];
    // MUST-47: the end of a connection is always told, with what has ended it.
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.poll(&mut events), 1);
    assert_eq!(io.error(server), Some(Error::Reset));
    // Soft errors never are: there is nothing to disable.
    io.register(server, 0, 1).unwrap();
    io.close(server);
    assert_eq!(io.poll(&mut events), 0);
}
