//! Idle connections are parked, and nobody notices. (In these tests all but the last one are.)

use super::*;
use crate::tcp::connection::{Info, Keepalive};

/// A pair with `count` connections: the client's ids and the server's.
fn opened(count: usize, v6: bool) -> (Pair, Vec<(SocketId, SocketId)>) {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let all = (0..count).map(|_| pair.open(listener, v6, 80)).collect();
    (pair, all)
}

fn is_parked(pair: &Pair, end: usize, id: SocketId) -> bool {
    pair.ends[end].stack.slots.is_parked(id.slot)
}

fn say(pair: &mut Pair, from: usize, (client, server): (SocketId, SocketId), text: &[u8]) {
    let ids = [client, server];
    let now_ns = pair.now_ns;
    let written = pair.ends[from].io(now_ns).write(ids[from], text);
    assert_eq!(written, Ok(text.len()));
    pair.calm();
    let (mut room, now_ns) = ([0; 64], pair.now_ns);
    let read = pair.ends[1 - from]
        .io(now_ns)
        .read(ids[1 - from], &mut room);
    assert_eq!((read, &room[..text.len()]), (Ok(text.len()), text));
    // The last ACK may be a delayed one.
    pair.pass(S);
}

fn info(pair: &mut Pair, id: SocketId) -> Info {
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).info(id).unwrap()
}

#[test]
fn a_parked_connection_goes_on_as_it_was() {
    for v6 in [false, true] {
        let (mut pair, all) = opened(6, v6);
        for round in 0..4_u8 {
            for &ids in &all {
                say(&mut pair, 0, ids, &[round; 40]);
                say(&mut pair, 1, ids, &[round + 100; 50]);
            }
            let parked = all.iter().filter(|ids| is_parked(&pair, 0, ids.0)).count();
            assert_eq!(parked, all.len() - 1);
        }
        // What is known of one is the same before, while it is parked, and when it is awake.
        let (one, other) = (all[0], all[1]);
        say(&mut pair, 0, one, b"one");
        assert!(!is_parked(&pair, 0, one.0));
        let before = info(&mut pair, one.0);
        say(&mut pair, 0, other, b"other");
        assert!(is_parked(&pair, 0, one.0));
        let parked = info(&mut pair, one.0);
        let now_ns = pair.now_ns;
        pair.ends[0].io(now_ns).set_no_delay(one.0, false).unwrap();
        let awake = info(&mut pair, one.0);
        assert_eq!(before, parked);
        assert_eq!(parked, awake);
    }
}

#[test]
fn timers_and_ends_find_a_parked_connection() {
    let (mut pair, all) = opened(3, false);
    let (client, server) = all[0];
    let now_ns = pair.now_ns;
    let keepalive = Keepalive {
        idle_s: 10,
        interval_s: 1,
        count: 2,
    };
    let mut io = pair.ends[0].io(now_ns);
    io.set_keepalive(client, Some(keepalive)).unwrap();
    say(&mut pair, 0, all[1], b"another");
    assert!(is_parked(&pair, 0, client) && is_parked(&pair, 1, server));
    // The peer answers the probes.
    let probes = pair.ends[0].stack.tcp_stats().keepalives;
    pair.pass(35 * S);
    assert!(pair.ends[0].stack.tcp_stats().keepalives >= probes + 3);
    assert!(pair.ends[0].io(now_ns).info(client).is_ok());
    // A reset finds it.
    say(&mut pair, 0, all[1], b"again");
    assert!(is_parked(&pair, 1, server));
    let now_ns = pair.now_ns;
    pair.ends[1].io(now_ns).abort(server);
    pair.calm();
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[0].io(now_ns).error(client), Some(Error::Reset));
    // One can be taken out and put back.
    let parked = all[2].0;
    assert!(is_parked(&pair, 0, parked));
    let detached = pair.ends[0].io(now_ns).detach(parked).unwrap();
    let back = pair.ends[0].io(now_ns).attach(detached).unwrap();
    say(&mut pair, 0, (back, all[2].1), b"back");
    let now_ns = pair.now_ns;
    let mut io = pair.ends[0].io(now_ns);
    for id in [client, all[1].0, back] {
        io.abort(id);
    }
    pair.calm();
    assert_eq!(pair.ends[0].stack.connections(), 0);
    pair.ends.iter_mut().for_each(Station::check_slots);
}

#[test]
fn an_idle_connection_takes_less_than_512_bytes() {
    let (pair, all) = opened(500, false);
    for end in &pair.ends {
        assert_eq!(end.stack.connections() as usize, all.len());
        assert!(end.stack.bytes_per_connection() < 512);
    }
}

#[test]
fn a_connection_with_something_under_way_is_not_parked() {
    let (mut pair, all) = opened(3, false);
    let now_ns = pair.now_ns;
    // Nobody reads it there, and here it is not acknowledged.
    pair.loses = Box::new(|_| true);
    pair.ends[0].io(now_ns).write(all[0].0, b"lost").unwrap();
    pair.round();
    for &(client, _) in &all[1..] {
        let mut io = pair.ends[0].io(now_ns);
        io.set_no_delay(client, true).unwrap();
    }
    assert!(!is_parked(&pair, 0, all[0].0));
    pair.loses = Box::new(|_| false);
    pair.pass(3 * S);
    assert!(!is_parked(&pair, 1, all[0].1), "there is something to read");
    let (mut room, now_ns) = ([0; 8], pair.now_ns);
    let read = pair.ends[1].io(now_ns).read(all[0].1, &mut room);
    assert_eq!((read, &room[..4]), (Ok(4), &b"lost"[..]));
}
