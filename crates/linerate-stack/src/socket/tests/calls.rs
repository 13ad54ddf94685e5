//! What the calls do.

use super::*;

#[test]
fn a_question_is_answered_over_both_families() {
    for v6 in [false, true] {
        let mut pair = Pair::new();
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        assert!(pair.ends[1].io(now_ns).listen(Listen::on(80)).is_none());
        let (client, server) = pair.open(listener, v6, 80);
        let now_ns = pair.now_ns;
        assert_eq!(
            pair.ends[0].io(now_ns).write(client, b"question").unwrap(),
            8
        );
        pair.calm();
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        let mut buffer = [0; 100];
        assert_eq!(io.read(server, &mut buffer).unwrap(), 8);
        assert_eq!(&buffer[..8], b"question");
        assert_eq!(io.read(server, &mut buffer), Err(Error::WouldBlock));
        let written = io.write_with(server, 100, |room| {
            room[..6].copy_from_slice(b"answer");
            6
        });
        assert_eq!(written, Ok(6));
        pair.calm();
        let now_ns = pair.now_ns;
        let mut io = pair.ends[0].io(now_ns);
        let (packet, span) = io.take(client).unwrap().unwrap();
        let bytes = &packet.data()[span.start as usize..][..span.len as usize];
        assert_eq!(bytes, b"answer");
        io.give(packet);
        let (local, remote) = io.addresses(client).unwrap();
        assert_eq!(
            (local.ip(), remote),
            (Pair::at(0, v6, 0).ip(), Pair::at(1, v6, 80))
        );
        io.close(client);
        assert_eq!(io.write(client, b"more"), Err(Error::NotConnected));
        pair.calm();
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        assert_eq!(io.read(server, &mut buffer), Ok(0));
        io.close(server);
        pair.calm();
        assert_eq!(
            pair.ends.each_ref().map(|end| end.stack.connections()),
            [0, 0]
        );
        assert_eq!(
            pair.ends.each_ref().map(|end| end.stack.lingering()),
            [1, 0]
        );
        pair.pass(61 * S);
        assert_eq!(pair.ends[0].stack.lingering(), 0);
        pair.ends.iter_mut().for_each(Station::check_slots);
    }
}

#[test]
fn a_port_that_nobody_listens_to_refuses() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let id = pair.ends[0]
        .io(now_ns)
        .connect(None, Pair::at(1, false, 81))
        .unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    assert_eq!(io.error(id), Some(Error::Refused));
    assert_eq!(io.read(id, &mut [0]), Err(Error::Refused));
    assert_eq!(io.write(id, &[0]), Err(Error::Refused));
    io.close(id);
    assert_eq!(pair.ends[0].stack.connections(), 0);
    assert_eq!(pair.ends[1].stack.stats().no_connection, 1);
}

#[test]
fn a_megabyte_each_way_with_losses() {
    let mut pair = Pair::new();
    let mut count = 0;
    pair.loses = Box::new(move |frame| {
        count += 1;
        frame.len() > 200 && count % 53 == 0
    });
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, true, 80);
    let ids = [client, server];
    let (mut sent, mut got) = ([0_usize; 2], [0_usize; 2]);
    const TOTAL: usize = 1 << 20;
    let byte = |at: usize| (at % 253) as u8;
    while got != [TOTAL; 2] {
        if pair.now_ns > 200 * S {
            let now_ns = pair.now_ns;
            for (end, id) in pair.ends.iter_mut().zip(ids) {
                let info = end.io(now_ns).info(id);
                println!("{info:?} {:?}", end.stack.tcp_stats());
            }
            panic!("{sent:?} {got:?}");
        }
        for end in 0..2 {
            let now_ns = pair.now_ns;
            let mut io = pair.ends[end].io(now_ns);
            let more = (TOTAL - sent[end]).min(10_000);
            let bytes: Vec<u8> = (sent[end]..sent[end] + more).map(byte).collect();
            if let Ok(count) = io.write(ids[end], &bytes) {
                sent[end] += count;
            }
            let seen = &mut got[end];
            while let Ok(count @ 1..) = io.consume(ids[end], |bytes| {
                for &found in bytes {
                    assert_eq!(found, byte(*seen));
                    *seen += 1;
                }
                bytes.len()
            }) {
                assert!(count > 0);
            }
        }
        pair.round();
        if sent == [TOTAL; 2] {
            pair.pass(5 * MS);
        }
    }
    for (end, id) in ids.into_iter().enumerate() {
        let now_ns = pair.now_ns;
        pair.ends[end].io(now_ns).close(id);
        pair.calm();
    }
    pair.pass(200 * S);
    for end in &mut pair.ends {
        assert_eq!((end.stack.connections(), end.stack.lingering()), (0, 0));
        end.check_slots();
    }
}

#[test]
fn epoll_level_edge_and_one_shot() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listen = Listen {
        token: 99,
        ..Listen::on(80)
    };
    let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
    let mut events = [Event {
        source: Source::Listener(listener),
        token: 0,
        ready: 0,
    }; 8];
    assert_eq!(pair.ends[1].io(now_ns).poll(&mut events), 0);
    let opened = pair.ends[0]
        .io(now_ns)
        .connect(None, Pair::at(1, false, 80))
        .unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    // Level: as long as one waits.
    for _ in 0..3 {
        assert_eq!(io.poll(&mut events), 1);
        assert_eq!((events[0].token, events[0].ready), (99, interest::READ));
    }
    let (server, _) = io.accept(listener).unwrap();
    assert_eq!(io.poll(&mut events), 0);
    io.register(server, interest::READ, 5).unwrap();
    assert_eq!(io.poll(&mut events), 0);
    pair.ends[0].io(now_ns).write(opened, b"abc").unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    for _ in 0..3 {
        assert_eq!(io.poll(&mut events), 1);
        assert_eq!((events[0].token, events[0].ready), (5, interest::READ));
        assert_eq!(events[0].source, Source::Connection(server));
    }
    io.register(server, interest::READ | interest::EDGE, 6)
        .unwrap();
    assert_eq!((io.poll(&mut events), events[0].token), (1, 6));
    assert_eq!(io.poll(&mut events), 0);
    pair.ends[0].io(now_ns).write(opened, b"def").unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.poll(&mut events), 1);
    assert_eq!(io.poll(&mut events), 0);
    // As Linux: an edge of one tells of the other as well.
    let both = interest::READ | interest::WRITE;
    io.register(server, both | interest::EDGE, 6).unwrap();
    assert_eq!((io.poll(&mut events), events[0].ready), (1, both));
    assert_eq!(io.poll(&mut events), 0);
    pair.ends[0].io(now_ns).write(opened, b"123").unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!((io.poll(&mut events), events[0].ready), (1, both));
    assert_eq!(io.poll(&mut events), 0);
    io.register(server, interest::READ | interest::ONE_SHOT, 7)
        .unwrap();
    assert_eq!((io.poll(&mut events), events[0].token), (1, 7));
    pair.ends[0].io(now_ns).write(opened, b"ghi").unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.poll(&mut events), 0);
    // The end is always told.
    io.register(server, interest::READ | interest::HANG_UP, 8)
        .unwrap();
    let mut all = [0; 100];
    assert_eq!(io.read(server, &mut all), Ok(12));
    assert_eq!(io.poll(&mut events), 0);
    pair.ends[0].io(now_ns).abort(opened);
    pair.calm();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.poll(&mut events), 1);
    assert_ne!(events[0].ready & interest::ERROR, 0);
    assert_eq!(io.error(server), Some(Error::Reset));
}

#[test]
fn connections_to_one_host_have_different_ports_until_there_are_none() {
    let config = StackConfig {
        ports: 40_000..=40_063,
        ..small()
    };
    let mut pair = Pair::with(&config, &small());
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let mut ports = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..64 {
        let (client, _) = pair.open(listener, false, 80);
        let now_ns = pair.now_ns;
        ports.push(pair.ends[0].io(now_ns).addresses(client).unwrap().0.port());
        ids.push(client);
    }
    ports.sort_unstable();
    assert!(ports.into_iter().eq(40_000..=40_063));
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    let refused = io.connect(None, Pair::at(1, false, 80));
    assert!(matches!(refused, Err(ConnectError::NoPort(_))));
    assert!(io.connect(None, Pair::at(1, true, 80)).is_ok());
    let same = io.addresses(ids[3]).unwrap();
    assert!(matches!(
        io.connect(Some(same.0), same.1),
        Err(ConnectError::NoPort(_))
    ));
    assert_eq!(pair.ends[0].stack.stats().no_port, 2);
}

#[test]
fn a_listener_that_closes_ends_what_waits() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let id = pair.ends[0]
        .io(now_ns)
        .connect(None, Pair::at(1, false, 80))
        .unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).close_listener(listener);
    pair.calm();
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[0].io(now_ns).error(id), Some(Error::Reset));
    assert_eq!(pair.ends[1].stack.connections(), 0);
    assert!(pair.ends[1].io(now_ns).listen(Listen::on(80)).is_some());
}

#[test]
fn a_listener_goes_on_under_another_token() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let on = |port, token| Listen {
        token,
        backlog: 1,
        ..Listen::on(port)
    };
    let listener = pair.ends[1].io(now_ns).listen(on(80, 1)).unwrap();
    let to = Pair::at(1, false, 80);
    pair.ends[0].io(now_ns).connect(None, to).unwrap();
    pair.calm();
    let mut io = pair.ends[1].io(pair.now_ns);
    assert!(!io.relisten(listener, on(81, 2)), "another port is another");
    assert!(io.relisten(listener, on(80, 2)));
    let mut events = [Event::default(); 2];
    assert_eq!(io.poll(&mut events), 1);
    assert_eq!(events[0].token, 2);
    assert!(io.accept(listener).is_some(), "what has waited still does");
    io.close_listener(listener);
    assert!(!io.relisten(listener, on(80, 3)));
}

#[test]
fn an_idle_connection_wakes_nobody() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    pair.pass(100 * S);
    let now_ns = pair.now_ns;
    for (end, id) in [(0, client), (1, server)] {
        assert_eq!(
            pair.ends[end].io(now_ns).info(id).unwrap().state,
            State::Established
        );
        let Station { stack, out, .. } = &mut pair.ends[end];
        // The neighbour's entry is looked at; the connection's timer is not.
        assert!(stack.wheel.is_empty());
        stack.turn(now_ns, out);
    }
}

/// What a router says of a frame that is too long for what is behind it (RFC 1191 4), to the first
/// end.
pub(super) fn too_big(long: &[u8], mtu: u16) -> Vec<u8> {
    let mut error = long[..14].to_vec();
    error[..6].copy_from_slice(&long[6..12]);
    error[6..12].copy_from_slice(&long[..6]);
    let mut icmp = vec![3, 4, 0, 0, 0, 0, 0, 0];
    icmp[6..].copy_from_slice(&mtu.to_be_bytes());
    icmp.extend(&long[14..14 + 28]);
    let sum = linerate_wire::checksum::checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let ip = linerate_wire::ipv4::header(
        0,
        64,
        linerate_wire::protocol::ICMP,
        [192, 0, 2, 254].into(),
        [192, 0, 2, 1].into(),
        icmp.len() as u16,
    );
    error.extend(ip);
    error.extend(icmp);
    error
}

/// RFC 1191 3 and 4: all connections to a host hear of its path, the first and those after it;
/// where a router wants less than is believed, it may cut (Linux: a locked MTU).
#[test]
fn a_path_that_takes_less_is_found_out() {
    for (mtu, mss) in [(1000, 1000 - 40 - 12), (400, 552 - 40 - 12)] {
        let mut pair = Pair::new();
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        let all: Vec<_> = (0..3).map(|_| pair.open(listener, false, 80)).collect();
        // One after the other, so that the later ones hear what is known already.
        for &(client, server) in &all {
            let now_ns = pair.now_ns;
            pair.ends[0].io(now_ns).write(client, &[7; 10_000]).unwrap();
            pair.ends[0].out.flush();
            let frames = std::mem::take(&mut *pair.ends[0].line.lock().unwrap());
            let is_long = move |frame: &[u8]| {
                let may_cut = frame[20] & 0x40 == 0;
                frame.len() > 14 + usize::from(mtu) && !may_cut
            };
            let long = frames.iter().find(|frame| is_long(frame)).unwrap();
            pair.ends[0].receive(&[too_big(long, mtu)], now_ns);
            pair.loses = Box::new(is_long);
            pair.calm();
            pair.pass(3 * S);
            let now_ns = pair.now_ns;
            assert_eq!(pair.ends[0].io(now_ns).info(client).unwrap().mss, mss);
            assert_eq!(pair.ends[1].io(now_ns).readable(server), 10_000);
        }
        assert_eq!(pair.ends[0].stack.tcp_stats().mtu_black_holes, 0);
    }
}

#[test]
fn rooms_are_filled_one_after_the_other_and_leave_together() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let bytes: Vec<u8> = (0..9000_u32).map(|at| (at % 251) as u8).collect();
    let before = pair.ends[0].stack.tcp_stats().segments_out;
    let (mut at, mut rooms) = (0, 0);
    let mut io = pair.ends[0].io(now_ns);
    let _ = io.set_no_delay(client, true);
    let written = io.write_rooms(client, bytes.len(), |room| {
        room.copy_from_slice(&bytes[at..at + room.len()]);
        at += room.len();
        rooms += 1;
        room.len()
    });
    assert_eq!((written, at), (Ok(bytes.len()), bytes.len()));
    assert!(rooms > 1, "chunks are shorter");
    // Without Nagle's algorithm each room for itself would have left with a short segment.
    let sent = pair.ends[0].stack.tcp_stats().segments_out - before;
    assert_eq!(sent, (bytes.len() as u64).div_ceil(1448));
    // Whoever leaves some of a room has no more.
    let mut io = pair.ends[0].io(now_ns);
    let mut calls = 0;
    let written = io.write_rooms(client, 9000, |_| {
        calls += 1;
        0
    });
    assert_eq!((written, calls), (Ok(0), 1));
    pair.calm();
    let now_ns = pair.now_ns;
    let mut got = vec![0; 2 * bytes.len()];
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.read(server, &mut got), Ok(bytes.len()));
    assert_eq!(got[..bytes.len()], bytes);
    io.close(server);
    assert_eq!(
        io.write_rooms(server, 1, |room| room.len()),
        Err(Error::NotConnected)
    );
}

#[test]
fn a_short_frame_waits_for_more_behind_long_ones() {
    let mut pair = Pair::offloaded();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    // Windows that take all of it.
    for _ in 0..60 {
        let now_ns = pair.now_ns;
        let _ = pair.ends[0].io(now_ns).write(client, &[1; 60_000]);
        for _ in 0..3 {
            pair.round();
            let now_ns = pair.now_ns;
            let _ = pair.ends[1].io(now_ns).read(server, &mut [0; 100_000]);
        }
    }
    // Less than the timeout, so that the window stays.
    pair.pass(100 * MS);
    let now_ns = pair.now_ns;
    let _ = pair.ends[1].io(now_ns).read(server, &mut [0; 100_000]);
    pair.calm();
    let now_ns = pair.now_ns;
    // Nagle's algorithm has nothing to do with it.
    let _ = pair.ends[0].io(now_ns).set_no_delay(client, true);
    let info = pair.ends[0].io(now_ns).info(client).unwrap();
    assert_eq!(info.unacked_bytes + info.unsent_bytes, 0);
    assert!(info.cwnd_bytes.min(info.snd_wnd) >= 80_000, "{info:?}");
    let client_end = &mut pair.ends[0];
    let payloads = |end: &mut Station| -> Vec<usize> {
        end.out.flush();
        let mut line = end.line.lock().unwrap();
        line.drain(..)
            .map(|frame| frame.len() - 14 - 40 - 12)
            .collect()
    };
    // One that is alone goes at once, and so do long ones.
    assert_eq!(client_end.io(now_ns).write(client, &[2; 5000]), Ok(5000));
    assert_eq!(payloads(client_end), [5000]);
    let now_ns = now_ns + MS;
    let written = client_end.io(now_ns).write(client, &[2; 66_000]);
    assert_eq!(written, Ok(66_000));
    let long = payloads(client_end);
    let rest = 66_000 - long.iter().sum::<usize>();
    assert!(
        long[0] > 10_000 && long.iter().all(|len| *len == long[0]),
        "{long:?}"
    );
    assert!((1..long[0] - 500).contains(&rest), "{rest} behind {long:?}");
    // It waits in the round in which it was written. What follows makes it longer.
    assert_eq!(client_end.stack.turn(now_ns, &mut client_end.out), now_ns);
    assert!(client_end.stack.has_waiting());
    assert_eq!(client_end.io(now_ns).write(client, &[2; 500]), Ok(500));
    assert_eq!(client_end.stack.turn(now_ns, &mut client_end.out), now_ns);
    assert_eq!(payloads(client_end), [0; 0]);
    // A round in which nothing is written ends that.
    assert!(client_end.stack.turn(now_ns, &mut client_end.out) > now_ns);
    assert!(!client_end.stack.has_waiting());
    assert_eq!(payloads(client_end), [rest + 500]);
}

/// Those that are ready are told in the order in which they became so, whichever of them end
/// before.
#[test]
fn connections_that_end_while_they_are_ready_leave_the_others_in_order() {
    let mut random = linerate_testkit::Random::new(8);
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    for round in 0..20 {
        let all: Vec<_> = (0..30).map(|_| pair.open(listener, false, 80)).collect();
        let now_ns = pair.now_ns;
        for (token, &(_, server)) in (0..).zip(&all) {
            let wanted = interest::READ;
            pair.ends[1]
                .io(now_ns)
                .register(server, wanted, token)
                .unwrap();
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at + 1));
        }
        for &at in &order {
            let now_ns = pair.now_ns;
            pair.ends[0].io(now_ns).write(all[at].0, b"x").unwrap();
            pair.round();
        }
        // Of some rounds the first, of some the last, and all of one.
        let gone = |at: usize, place: usize, random: &mut linerate_testkit::Random| match round {
            0 => true,
            1 => place < 3,
            2 => place > 26,
            _ => at.is_multiple_of(7) || random.below(2) == 0,
        };
        let mut left = Vec::new();
        for (place, &at) in order.iter().enumerate() {
            let now_ns = pair.now_ns;
            match gone(at, place, &mut random) {
                true => pair.ends[1].io(now_ns).abort(all[at].1),
                false => left.push(at as u64),
            }
        }
        // Level-triggered: they stay ready, and are told again.
        for _ in 0..2 {
            let mut events = [Event::EMPTY; 64];
            let now_ns = pair.now_ns;
            let count = pair.ends[1].io(now_ns).poll(&mut events);
            let told: Vec<u64> = events[..count].iter().map(|event| event.token).collect();
            assert_eq!(told, left, "round {round}");
        }
        let now_ns = pair.now_ns;
        for &(client, server) in &all {
            pair.ends[0].io(now_ns).abort(client);
            pair.ends[1].io(now_ns).abort(server);
        }
        pair.calm();
        assert!(!pair.ends[1].stack.has_ready());
    }
}
