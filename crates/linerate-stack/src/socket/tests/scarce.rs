//! Peers that use up what there is: it is refused, counted and given back.

use linerate_testkit::Random;
use linerate_wire::protocol;
use linerate_wire::tcp::flag;

use super::forge::{self, Seen, seen};
use super::hostile::{SERVER, is_home, plain};
use super::*;
use crate::tcp::segment::{Header, Sacks, SynOptions};
use crate::tcp::send_buffer::CHUNK_BYTES;

/// A peer by hand, with the address of the first end.
struct Peer {
    port: u16,
    seq: u32,
    ack: u32,
    window: u16,
}

impl Peer {
    const IP: [u8; 4] = [192, 0, 2, 1];

    fn answers(pair: &mut Pair, port: u16) -> Vec<Seen> {
        pair.ends[1].out.flush();
        let frames: Vec<_> = pair.ends[1].line.lock().unwrap().drain(..).collect();
        let all = frames.iter().filter_map(|frame| seen(frame));
        all.filter(|seen| seen.ports.1 == port).collect()
    }

    fn send(&self, pair: &mut Pair, header: &Header, payload: &[u8]) -> Vec<Seen> {
        let bytes = forge::segment((Self::IP, SERVER), (self.port, 80), header, payload);
        let frame = forge::packet(Self::IP, SERVER, protocol::TCP, &[], &bytes);
        let now_ns = pair.now_ns;
        pair.ends[1].receive(&[frame], now_ns);
        Self::answers(pair, self.port)
    }

    fn header(&self, flags: u8) -> Header {
        Header {
            seq: self.seq,
            ack: self.ack,
            flags,
            window: self.window,
            ..Header::default()
        }
    }

    fn open(pair: &mut Pair, listener: ListenerId, port: u16, mss: u16) -> (Self, SocketId) {
        let mut peer = Self {
            port,
            seq: u32::from(port) << 8,
            ack: 0,
            window: 60_000,
        };
        let syn = Header {
            syn: Some(SynOptions {
                mss: Some(mss),
                sack_permitted: true,
                ..SynOptions::default()
            }),
            ..peer.header(flag::SYN)
        };
        let answers = peer.send(pair, &syn, &[]);
        assert!(answers[0].has(flag::SYN | flag::ACK));
        peer.seq += 1;
        peer.ack = answers[0].segment.seq.wrapping_add(1);
        let ack = peer.header(flag::ACK);
        peer.send(pair, &ack, &[]);
        let now_ns = pair.now_ns;
        let (server, _) = pair.ends[1]
            .io(now_ns)
            .accept(listener)
            .expect("it is open");
        (peer, server)
    }
}

/// Lets the ends of a pair find each other, by a connection that ends.
pub(super) fn acquaint(pair: &mut Pair) {
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(79)).unwrap();
    let (client, server) = pair.open(listener, false, 79);
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).abort(client);
    pair.calm();
    pair.ends[1].io(now_ns).close(server);
    pair.calm();
    assert_eq!(pair.ends[1].stack.connections(), 0);
}

/// A pair whose ends know each other, and its listener.
fn acquainted(config: &StackConfig) -> (Pair, ListenerId) {
    let mut pair = Pair::with(&small(), config);
    acquaint(&mut pair);
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    (pair, listener)
}

#[test]
fn a_tiny_segment_size_with_many_holes_costs_bounded_records() {
    let (mut pair, listener) = acquainted(&plain());
    let (peer, server) = Peer::open(&mut pair, listener, 2000, 1);
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.info(server).unwrap().mss, 48);
    io.write(server, &[7; 60_000]).unwrap();
    // The window opens; every second segment is told of.
    let mut most = 0;
    for _ in 0..200 {
        let out = Peer::answers(&mut pair, peer.port);
        let mut header = peer.header(flag::ACK);
        for seen in out.iter().filter(|seen| seen.segment.len > 0) {
            assert!(seen.segment.len >= 48 || out.len() == 1);
            if seen.segment.seq.wrapping_sub(peer.ack) / 48 % 2 == 1 {
                header.sacks = Sacks::NONE;
                let left = seen.segment.seq;
                header
                    .sacks
                    .push((left, left.wrapping_add(seen.segment.len)));
                peer.send(&mut pair, &header, &[]);
            }
        }
        pair.now_ns += 20 * MS;
        let Station { stack, out, .. } = &mut pair.ends[1];
        stack.turn(pair.now_ns, out);
        most = most.max(pair.ends[1].stack.shared.records.used());
    }
    assert!((10..=60_000 / 48 + 1).contains(&most), "{most}");
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).abort(server);
    is_home(&mut pair.ends[1]);
}

#[test]
fn sockstress_windows_that_stay_closed_hold_bounded_memory_and_give_it_back() {
    let config = StackConfig {
        send_chunks: 256,
        ..plain()
    };
    let (mut pair, listener) = acquainted(&config);
    let (mut peers, mut written) = (Vec::new(), 0);
    for port in 0..100 {
        let (mut peer, server) = Peer::open(&mut pair, listener, 2000 + port, 1460);
        peer.window = 0;
        let question = peer.header(flag::ACK | flag::PSH);
        peer.send(&mut pair, &question, b"all you have");
        peer.seq += 12;
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        // As much as is taken; the stack may be out of room.
        written += io.write(server, &[7; 100_000]).unwrap_or(0);
        peers.push((peer, server));
    }
    let chunks = &pair.ends[1].stack.shared.chunks;
    assert!(chunks.in_use() <= chunks.count());
    assert!(written > 0 && written <= 256 * CHUNK_BYTES, "{written}");
    // Their user has had enough, and they go on to say that their windows are closed.
    let now_ns = pair.now_ns;
    for (_, server) in &peers {
        let mut io = pair.ends[1].io(now_ns);
        let mut room = [0; 20];
        let _ = io.read(*server, &mut room);
        io.close(*server);
    }
    for _ in 0..2000 {
        pair.now_ns += S / 2;
        let Station { stack, out, .. } = &mut pair.ends[1];
        stack.turn(pair.now_ns, out);
        if pair.ends[1].stack.connections() == 0 {
            break;
        }
        for (peer, _) in &peers {
            peer.send(&mut pair, &peer.header(flag::ACK), &[]);
        }
    }
    assert_eq!(pair.ends[1].stack.connections(), 0);
    is_home(&mut pair.ends[1]);
    // All of it is there for others.
    pair.ends[1].line.lock().unwrap().clear();
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let written = pair.ends[1].io(now_ns).write(server, &[1; 50_000]).unwrap();
    pair.pass(S);
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[0].io(now_ns).readable(client), written);
    assert_eq!(written, 50_000);
}

#[test]
fn windows_that_shrink_and_grow_at_random() {
    let (mut pair, listener) = acquainted(&plain());
    let (mut peer, server) = Peer::open(&mut pair, listener, 2000, 1000);
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).write(server, &[7; 40_000]).unwrap();
    let (mut random, begin) = (Random::new(5), peer.ack);
    let mut edge = peer.ack.wrapping_add(60_000);
    let mut out = Vec::new();
    for step in 0..100_000 {
        out.extend(Peer::answers(&mut pair, peer.port));
        for seen in &out {
            // Nothing that was never within a window.
            let end = seen.segment.seq.wrapping_add(seen.segment.len);
            assert!(edge.wrapping_sub(end) < 1 << 31, "{step}");
            if seen.segment.seq == peer.ack {
                peer.ack = end;
            }
        }
        peer.window = match random.below(4) {
            0 => 0,
            1 => random.below(500) as u16,
            2 => u16::MAX,
            _ => random.below(5000) as u16,
        };
        let right = peer.ack.wrapping_add(peer.window.into());
        if right.wrapping_sub(edge) < 1 << 31 {
            edge = right;
        }
        out = peer.send(&mut pair, &peer.header(flag::ACK), &[]);
        pair.now_ns += 100 * MS;
        let Station { stack, out, .. } = &mut pair.ends[1];
        stack.turn(pair.now_ns, out);
        if peer.ack.wrapping_sub(begin) == 40_000 {
            break;
        }
    }
    assert_eq!(peer.ack.wrapping_sub(begin), 40_000);
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).abort(server);
    is_home(&mut pair.ends[1]);
}

#[test]
fn a_backlog_that_is_full_refuses_counts_and_recovers() {
    let (mut pair, _) = acquainted(&plain());
    let now_ns = pair.now_ns;
    let listen = Listen {
        backlog: 2,
        ..Listen::on(81)
    };
    let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
    let remote = Pair::at(1, false, 81);
    let ids: Vec<_> = (0..6)
        .map(|_| {
            let now_ns = pair.now_ns;
            let id = pair.ends[0].io(now_ns).connect(None, remote).unwrap();
            pair.calm();
            id
        })
        .collect();
    assert!(pair.ends[1].stack.stats().backlog_full >= 4);
    assert_eq!(pair.ends[1].stack.connections(), 2);
    let now_ns = pair.now_ns;
    for _ in 0..2 {
        let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
        pair.ends[1].io(now_ns).abort(server);
    }
    // The others' SYNs come again, and find room.
    pair.pass(8 * S);
    let now_ns = pair.now_ns;
    assert!(pair.ends[1].io(now_ns).accept(listener).is_some());
    for id in ids {
        pair.ends[0].io(now_ns).abort(id);
    }
    pair.pass(S);
    pair.ends[1].check_slots();
}

/// The handshakes of two end in one burst, where there is room for one, and the other is reset in
/// the same burst: its place is given back once.
#[test]
fn one_that_finds_the_backlog_full_and_is_reset_at_once_is_freed_once() {
    let (mut pair, _) = acquainted(&plain());
    let before = pair.ends[1].stack.connections();
    let now_ns = pair.now_ns;
    let listen = Listen {
        backlog: 1,
        ..Listen::on(81)
    };
    let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
    let remote = Pair::at(1, false, 81);
    let clients = [(); 2].map(|()| pair.ends[0].io(now_ns).connect(None, remote).unwrap());
    // SYNs, SYN-ACKs; the ACKs are in the port, and the reset behind them.
    let hands_over = |pair: &mut Pair, from: usize| {
        pair.ends[from].out.flush();
        let frames = pair.ends[from].line.lock().unwrap().len();
        pair.round();
        frames
    };
    assert_eq!(hands_over(&mut pair, 0), 2);
    assert_eq!(hands_over(&mut pair, 1), 2);
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).abort(clients[1]);
    assert_eq!(hands_over(&mut pair, 0), 3);
    assert_eq!(pair.ends[1].stack.connections(), before + 1);
    assert_eq!(pair.ends[1].stack.stats().backlog_full, 1);
    pair.calm();
    let now_ns = pair.now_ns;
    let (server, _) = pair.ends[1].io(now_ns).accept(listener).unwrap();
    // The next two have places of their own.
    let next = [(); 2].map(|()| pair.open(listener, false, 81));
    assert!(next[0].1 != next[1].1 && next[0].1 != server && next[1].1 != server);
    assert_eq!(pair.ends[1].stack.connections(), before + 3);
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).abort(clients[0]);
    next.iter()
        .for_each(|&(client, _)| pair.ends[0].io(now_ns).abort(client));
    pair.pass(S);
    pair.ends[1].check_slots();
}

#[test]
fn buffers_that_are_used_up_are_refused_counted_and_given_back() {
    let config = StackConfig {
        send_chunks: 16,
        received_pkts: 32,
        received_bytes: 256 << 10,
        ..plain()
    };
    let (mut pair, listener) = acquainted(&config);
    let ids: Vec<_> = (0..8).map(|_| pair.open(listener, false, 80)).collect();
    // What comes: nobody reads it.
    for (client, _) in &ids {
        let now_ns = pair.now_ns;
        pair.ends[0]
            .io(now_ns)
            .write(*client, &[1; 60_000])
            .unwrap();
    }
    pair.pass(5 * S);
    let pieces = &pair.ends[1].stack.shared.pieces;
    assert!(pieces.charged_slots() <= 32 && pieces.charged_bytes() <= 256 << 10);
    assert!(pair.ends[1].stack.tcp_stats().no_room > 0);
    // What is to go: the wire takes none of it.
    pair.loses = Box::new(|_| true);
    let mut taken = 0;
    for (_, server) in &ids {
        let now_ns = pair.now_ns;
        let written = pair.ends[1].io(now_ns).write(*server, &[2; 20_000]);
        taken += written.unwrap_or(0);
    }
    assert!(taken < 8 * 20_000, "{taken}");
    assert!(pair.ends[1].stack.shared.chunks.in_use() <= 16);
    pair.loses = Box::new(|_| false);
    // All of it arrives once somebody reads, and then there is room for everybody.
    let (mut room, mut read) = (vec![0; 1 << 16], [0; 2]);
    for _ in 0..4000 {
        pair.pass(50 * MS);
        let now_ns = pair.now_ns;
        for (client, server) in &ids {
            read[0] += pair.ends[0]
                .io(now_ns)
                .read(*client, &mut room)
                .unwrap_or(0);
            read[1] += pair.ends[1]
                .io(now_ns)
                .read(*server, &mut room)
                .unwrap_or(0);
        }
        if read == [taken, 8 * 60_000] {
            break;
        }
    }
    assert_eq!(read, [taken, 8 * 60_000]);
    is_home(&mut pair.ends[1]);
}

/// Who finds no chunk to write to has nothing under way that an ACK could come for: the end of
/// others tells it that there is room, by edge and by level, and nothing before.
#[test]
fn a_writer_that_found_no_chunk_is_told_when_there_are_some() {
    for wanted in [interest::WRITE, interest::WRITE | interest::EDGE] {
        let config = StackConfig {
            send_chunks: 8,
            ..plain()
        };
        let (mut pair, listener) = acquainted(&config);
        let [(_, greedy), (client, poor)] = [(); 2].map(|()| pair.open(listener, false, 80));
        pair.loses = Box::new(|_| true);
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        while io.write(greedy, &[1; 10_000]).is_ok() {}
        let poll = |pair: &mut Pair| {
            let mut events = [Event::EMPTY; 4];
            let now_ns = pair.now_ns;
            let count = pair.ends[1].io(now_ns).poll(&mut events);
            let told = events[..count].iter();
            told.map(|event| (event.token, event.ready))
                .collect::<Vec<_>>()
        };
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        io.register(poor, wanted, 7).unwrap();
        let tries = [io.write(poor, &[2; 100]), io.write(poor, &[2; 100])];
        assert_eq!(tries, [Err(Error::WouldBlock); 2]);
        assert!(io.write_with(poor, 100, |_| 100).is_err());
        for _ in 0..3 {
            assert_eq!(poll(&mut pair), []);
            let Station { stack, out, .. } = &mut pair.ends[1];
            assert!(!stack.has_waiting() && !stack.has_ready());
            stack.turn(now_ns, out);
        }
        pair.ends[1].io(now_ns).abort(greedy);
        let Station { stack, out, .. } = &mut pair.ends[1];
        assert!(stack.has_waiting());
        stack.turn(now_ns, out);
        assert_eq!(poll(&mut pair), [(7, interest::WRITE)]);
        pair.loses = Box::new(|_| false);
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[1].io(now_ns).write(poor, &[2; 100]), Ok(100));
        pair.pass(S);
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[0].io(now_ns).readable(client), 100);
    }
}
