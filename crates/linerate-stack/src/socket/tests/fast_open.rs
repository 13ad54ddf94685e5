//! TCP Fast Open between two stacks (RFC 7413), and what connections to a host share (RFC 9040).

use linerate_wire::tcp::flag;

use super::forge::tap;
use super::*;
use crate::tcp::config::FastOpenMode;

const DATA: &[u8] = b"a question that may be asked twice";

/// Both ends have Fast Open. The second listens.
fn pair(pending: u32) -> (Pair, ListenerId) {
    let mut config = small();
    config.tcp.fast_open = FastOpenMode {
        client: true,
        server: true,
        server_without_cookie: false,
    };
    let mut pair = Pair::with(&config, &config);
    let listen = Listen {
        fast_open: pending,
        ..Listen::on(80)
    };
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
    (pair, listener)
}

fn open(pair: &mut Pair, v6: bool) -> (SocketId, usize) {
    let how = Connect {
        data: DATA,
        ..Connect::to(Pair::at(1, v6, 80))
    };
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).open(&how).unwrap()
}

/// Ends a connection from both sides, the first one first.
fn close(pair: &mut Pair, client: SocketId, server: SocketId) {
    for (end, id) in [(0, client), (1, server)] {
        let now_ns = pair.now_ns;
        pair.ends[end].io(now_ns).close(id);
        pair.calm();
    }
}

/// A first connection, by which the client gets a cookie.
fn get_cookie(pair: &mut Pair, listener: ListenerId, v6: bool) {
    let (client, taken) = open(pair, v6);
    assert_eq!(taken, 0, "there is no cookie yet");
    pair.calm();
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    close(pair, client, server);
}

fn read(pair: &mut Pair, end: usize, id: SocketId) -> Vec<u8> {
    let (mut bytes, now_ns) = (vec![0; 1000], pair.now_ns);
    let len = pair.ends[end].io(now_ns).read(id, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn rfc_7413_3_data_goes_with_the_second_syn_and_is_answered_before_the_handshake() {
    for v6 in [false, true] {
        let (mut pair, listener) = pair(16);
        get_cookie(&mut pair, listener, v6);
        let (client, taken) = open(&mut pair, v6);
        assert_eq!(taken, DATA.len());
        pair.round();
        // One way: the SYN is here, its answer is not there.
        let now_ns = pair.now_ns;
        let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
        assert_eq!(read(&mut pair, 1, server), DATA);
        let mut io = pair.ends[1].io(now_ns);
        assert_eq!(io.info(server).unwrap().state, State::SynReceived);
        io.write(server, b"an answer").unwrap();
        pair.round();
        assert_eq!(read(&mut pair, 0, client), b"an answer");
        pair.calm();
        let now_ns = pair.now_ns;
        for (end, id) in [(0, client), (1, server)] {
            let info = pair.ends[end].io(now_ns).info(id).unwrap();
            assert_eq!((info.state, info.syn_data), (State::Established, true));
        }
        assert!(pair.ends[1].io(now_ns).accept(listener).is_none(), "once");
        assert_eq!(pair.ends[0].stack.tcp_stats().fast_open_active, 1);
        assert_eq!(pair.ends[1].stack.tcp_stats().fast_open_passive, 1);
        close(&mut pair, client, server);
        pair.pass(200 * S);
        for end in &mut pair.ends {
            assert_eq!((end.stack.connections(), end.stack.lingering()), (0, 0));
            end.check_slots();
        }
    }
}

#[test]
fn fast_open_is_off_unless_asked_for() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    for _ in 0..2 {
        let (client, taken) = open(&mut pair, false);
        assert_eq!(taken, 0);
        pair.calm();
        let now_ns = pair.now_ns;
        let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
        close(&mut pair, client, server);
    }
    assert_eq!(pair.ends[1].stack.tcp_stats().fast_open_cookies_given, 0);
}

/// RFC 7413 2: a server that has it no more ignores the option: no cookie is given, and what the
/// SYN has is not taken.
#[test]
fn rfc_7413_2_a_server_without_it_ignores_the_option() {
    let (mut pair, listener) = pair(16);
    get_cookie(&mut pair, listener, false);
    pair.ends[1].stack.settings().fast_open.server = false;
    let before = *pair.ends[1].stack.tcp_stats();
    let (client, taken) = open(&mut pair, false);
    assert_eq!(taken, DATA.len());
    let all = tap(&mut pair);
    pair.round();
    let now_ns = pair.now_ns;
    assert!(pair.ends[1].io(now_ns).accept(listener).is_none());
    pair.round();
    let answer = {
        let all = all.lock().unwrap();
        assert_eq!((all.len(), all[0].segment.len), (2, DATA.len() as u32));
        all[1].clone()
    };
    let syn = all.lock().unwrap()[0].clone();
    assert!(answer.has(flag::SYN | flag::ACK));
    assert_eq!(answer.segment.ack, syn.segment.seq.wrapping_add(1));
    assert!(syn.syn.fast_open.is_some() && answer.syn.fast_open.is_none());
    // The data comes behind the handshake.
    pair.calm();
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    assert_eq!(read(&mut pair, 1, server), DATA);
    let after = pair.ends[1].stack.tcp_stats();
    assert_eq!(
        (after.fast_open_passive, after.fast_open_cookies_given),
        (before.fast_open_passive, before.fast_open_cookies_given)
    );
    assert_eq!(pair.ends[0].stack.tcp_stats().fast_open_active_refused, 1);
    close(&mut pair, client, server);
}

/// RFC 7413 4.2.2: what a server does not acknowledge is sent again at once.
#[test]
fn rfc_7413_4_2_2_a_cookie_of_another_key_is_replaced() {
    let (mut pair, listener) = pair(16);
    get_cookie(&mut pair, listener, false);
    // Twice, so that the key before last made it.
    pair.ends[1].stack.rotate_fast_open(Secret::new(8));
    pair.ends[1].stack.rotate_fast_open(Secret::new(9));
    let (client, taken) = open(&mut pair, false);
    assert_eq!(taken, DATA.len());
    let before_ns = pair.now_ns;
    pair.round();
    let now_ns = pair.now_ns;
    assert!(pair.ends[1].io(now_ns).accept(listener).is_none());
    pair.round();
    pair.round();
    let now_ns = pair.now_ns;
    assert_eq!(now_ns - before_ns, 3 * pair.delay_ns, "no timeout");
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    assert_eq!(read(&mut pair, 1, server), DATA);
    let stats = *pair.ends[0].stack.tcp_stats();
    assert_eq!(
        (stats.fast_open_active_refused, stats.retransmitted),
        (1, 0)
    );
    assert_eq!(pair.ends[1].stack.tcp_stats().fast_open_bad_cookies, 1);
    pair.calm();
    close(&mut pair, client, server);
    // The new cookie is good.
    open(&mut pair, false);
    pair.round();
    let now_ns = pair.now_ns;
    assert!(pair.ends[1].io(now_ns).accept(listener).is_some());
}

/// RFC 7413 4.1.3.1: behind a box that drops SYNs with data the connection comes about without
/// them, and the next one does not try.
#[test]
fn rfc_7413_4_1_3_1_lost_syns_with_data_are_not_tried_again_for_a_while() {
    let (mut pair, listener) = pair(16);
    get_cookie(&mut pair, listener, false);
    let is_syn_with_data = |frame: &[u8]| frame.len() > 14 + 60 && frame[14 + 20 + 13] & 2 != 0;
    pair.loses = Box::new(move |frame| frame.len() > 100 && is_syn_with_data(frame));
    let (client, taken) = open(&mut pair, false);
    assert_eq!(taken, DATA.len());
    pair.pass(3 * S);
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    assert_eq!(read(&mut pair, 1, server), DATA);
    close(&mut pair, client, server);
    let (_, taken) = open(&mut pair, false);
    assert_eq!(taken, 0, "a minute's pause");
    pair.calm();
    pair.pass(120 * S);
    let (_, taken) = open(&mut pair, false);
    assert_eq!(taken, DATA.len(), "the cookie is still there");
}

/// RFC 7413 5.1: at most so many; others shake hands first.
#[test]
fn rfc_7413_5_1_open_requests_are_limited() {
    let (mut pair, listener) = pair(2);
    get_cookie(&mut pair, listener, false);
    for _ in 0..3 {
        open(&mut pair, false);
    }
    pair.round();
    let now_ns = pair.now_ns;
    let early = |pair: &mut Pair, now_ns| {
        std::iter::from_fn(|| pair.ends[1].io(now_ns).accept(listener)).count()
    };
    assert_eq!(early(&mut pair, now_ns), 2);
    assert_eq!(pair.ends[1].stack.tcp_stats().fast_open_overflow, 1);
    pair.calm();
    let now_ns = pair.now_ns;
    assert_eq!(early(&mut pair, now_ns), 1);
    // They are over: there is room for others.
    open(&mut pair, false);
    pair.round();
    let now_ns = pair.now_ns;
    assert_eq!(early(&mut pair, now_ns), 1);
}

/// The SYN-ACK got lost: the SYN comes again, without its data, and is answered.
#[test]
fn a_syn_without_the_data_that_was_taken_is_answered() {
    let (mut pair, listener) = pair(16);
    get_cookie(&mut pair, listener, false);
    let (client, _) = open(&mut pair, false);
    pair.round();
    let mut lost = 0;
    // The first answer, and the server's own repetition.
    pair.loses = Box::new(move |frame| {
        lost += u32::from(frame[14 + 20 + 13] & 0x12 == 0x12);
        frame[14 + 20 + 13] & 0x12 == 0x12 && lost <= 1
    });
    pair.pass(S / 2);
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    assert_eq!(read(&mut pair, 1, server), DATA);
    pair.pass(3 * S);
    let now_ns = pair.now_ns;
    for (end, id) in [(0, client), (1, server)] {
        let info = pair.ends[end].io(now_ns).info(id).unwrap();
        assert_eq!((info.state, info.unacked_bytes), (State::Established, 0));
    }
    // Nothing came twice.
    let mut bytes = [0; 8];
    let again = pair.ends[1].io(now_ns).read(server, &mut bytes);
    assert_eq!(again, Err(Error::WouldBlock));
}

/// RFC 9040: a connection leaves its round trip, and the next one's timeout is of that length.
#[test]
fn rfc_9040_6_1_the_next_connection_knows_the_round_trip() {
    for is_shared in [true, false] {
        let mut config = small();
        config.tcp.path_metrics = is_shared;
        let mut pair = Pair::with(&config, &config);
        pair.delay_ns = 300 * MS;
        let now_ns = pair.now_ns;
        let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
        let (client, server) = pair.open(listener, false, 80);
        close(&mut pair, client, server);
        assert_eq!(pair.ends[0].stack.metrics().len(), usize::from(is_shared));
        // The path is shorter all at once, as for segments of a handshake.
        pair.delay_ns = 10 * MS;
        let (client, _) = pair.open(listener, false, 80);
        let now_ns = pair.now_ns;
        let info = pair.ends[0].io(now_ns).info(client).unwrap();
        assert!(info.srtt_ns.is_some_and(|ns| ns < 100 * MS));
        assert_eq!(info.rto_ns > S, is_shared, "{}", info.rto_ns);
    }
}

/// Linux: TCP_MAXSEG. Both directions keep to what either end allows.
#[test]
fn rfc_9293_3_7_1_must_14_segments_are_limited_by_either_user() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listen = Listen {
        max_segment: Some(700),
        ..Listen::on(80)
    };
    let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
    let how = Connect {
        max_segment: Some(900),
        ..Connect::to(Pair::at(1, false, 80))
    };
    let (client, _) = pair.ends[0].io(now_ns).open(&how).unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    for (end, id) in [(0, client), (1, server)] {
        let info = pair.ends[end].io(now_ns).info(id).unwrap();
        assert_eq!(info.mss, 700 - 12, "time stamps take 12");
    }
}

/// EPOLLRDHUP: that the peer sends no more is told while data is unread.
#[test]
fn a_hang_up_is_told_before_all_is_read() {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let wanted = interest::READ | interest::HANG_UP;
    pair.ends[1].io(now_ns).register(server, wanted, 1).unwrap();
    pair.ends[0]
        .io(now_ns)
        .write(client, b"last words")
        .unwrap();
    pair.ends[0].io(now_ns).shutdown(client).unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    let mut events = [Event::EMPTY; 2];
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!((io.poll(&mut events), events[0].ready), (1, wanted));
    assert_eq!(io.readable(server), 10);
}

/// RFC 7413 4.1.3: a client may ask for a cookie without data, for the connections after.
#[test]
fn rfc_7413_4_1_3_a_cookie_can_be_asked_for_without_data() {
    let (mut pair, _) = pair(16);
    let now_ns = pair.now_ns;
    let ask = Connect {
        asks_cookie: true,
        ..Connect::to(Pair::at(1, false, 80))
    };
    let (_, taken) = pair.ends[0].io(now_ns).open(&ask).unwrap();
    assert_eq!(taken, 0);
    pair.calm();
    let given = |pair: &Pair| pair.ends[1].stack.shared.stats.fast_open_cookies_given;
    assert_eq!(given(&pair), 1);
    // The next has one, and takes its data along; without data it has nothing to ask for.
    let (_, taken) = open(&mut pair, false);
    assert_eq!(taken, DATA.len());
    pair.calm();
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).open(&ask).unwrap();
    pair.calm();
    assert_eq!(given(&pair), 1);
}

/// As Linux: what does not fit the SYN is left to its user.
#[test]
fn a_syn_takes_as_much_data_as_it_has_room_for() {
    let (mut pair, _) = pair(16);
    let _ = open(&mut pair, false);
    pair.calm();
    let bytes = [7; 5000];
    let how = Connect {
        data: &bytes,
        ..Connect::to(Pair::at(1, false, 80))
    };
    let now_ns = pair.now_ns;
    let (_, taken) = pair.ends[0].io(now_ns).open(&how).unwrap();
    assert_eq!(taken, 1460 - 40);
}

/// RFC 2525 2.17, before the handshake is over: data that nobody will read is reset.
#[test]
fn rfc_2525_2_17_a_close_with_unread_data_of_a_syn_resets() {
    let (mut pair, listener) = pair(16);
    let _ = open(&mut pair, false);
    pair.calm();
    let now_ns = pair.now_ns;
    let _ = pair.ends[1].io(now_ns).accept(listener);
    let (client, taken) = open(&mut pair, false);
    assert_eq!(taken, DATA.len());
    // Nothing of the server's arrives, so that it does not get the handshake's end.
    pair.loses = Box::new(|frame| frame[29] == 2);
    pair.round();
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    let before = pair.ends[1].stack.shared.stats.resets_out;
    pair.ends[1].io(now_ns).close(server);
    assert_eq!(pair.ends[1].stack.shared.stats.resets_out, before + 1);
    pair.loses = Box::new(|_| false);
    pair.round();
    let now_ns = pair.now_ns;
    assert!(pair.ends[0].io(now_ns).error(client).is_some());
}
