//! RFC 9293 3.9.1.8: what is reported to the user of a connection that goes on.

use super::*;
use crate::tcp::soft::SoftError;

/// An ICMP error about the last frame that the second end has sent comes back to it.
fn answer_by_icmp(pair: &mut Pair, kind: u8, code: u8) {
    pair.ends[1].out.flush();
    let about = pair.ends[1].line.lock().unwrap().back().unwrap().clone();
    let now_ns = pair.now_ns;
    pair.ends[1].receive(&[forge::error(kind, code, 0, &about)], now_ns);
}

/// A connection of two ends, the ids of both.
fn opened() -> (Pair, SocketId, SocketId) {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let (client, server) = pair.open(listener, false, 80);
    (pair, client, server)
}

fn poll(pair: &mut Pair) -> Vec<(u8, u64)> {
    let mut events = [Event::EMPTY; 4];
    let now_ns = pair.now_ns;
    let count = pair.ends[1].io(now_ns).poll(&mut events);
    let ready = events[..count].iter();
    ready.map(|event| (event.ready, event.token)).collect()
}

#[test]
fn must_47_soft_errors_are_reported_to_who_asks() {
    for (kind, code, expected) in [
        (3, 0, SoftError::NetUnreachable),
        (3, 1, SoftError::HostUnreachable),
        (3, 2, SoftError::ProtocolUnreachable),
        (3, 3, SoftError::PortUnreachable),
        (3, 5, SoftError::SourceRouteFailed),
        (3, 13, SoftError::Prohibited),
        (11, 0, SoftError::TtlExceeded),
        (11, 1, SoftError::ReassemblyExceeded),
        (12, 0, SoftError::ParameterProblem),
    ] {
        let (mut pair, client, server) = opened();
        let now_ns = pair.now_ns;
        let mut io = pair.ends[1].io(now_ns);
        io.register(server, interest::REPORT, 7).unwrap();
        io.write(server, &[1; 100]).unwrap();
        answer_by_icmp(&mut pair, kind, code);
        let now_ns = pair.now_ns;
        assert_eq!(poll(&mut pair), [(interest::REPORT, 7)], "{kind} {code}");
        let mut io = pair.ends[1].io(now_ns);
        assert_eq!(io.info(server).unwrap().soft_error, Some(expected));
        assert_eq!(io.take_soft_error(server), Ok(Some(expected)));
        assert_eq!(io.take_soft_error(server), Ok(None));
        // It was told, and the connection goes on.
        assert_eq!(poll(&mut pair), []);
        pair.calm();
        let now_ns = pair.now_ns;
        assert_eq!(pair.ends[0].io(now_ns).readable(client), 100);
        assert_eq!(pair.ends[1].stack.tcp_stats().soft_errors, 1);
    }
}

#[test]
fn must_47_an_edge_is_told_of_each_error_once() {
    let (mut pair, _, server) = opened();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    let edge = interest::REPORT | interest::EDGE;
    io.register(server, edge, 7).unwrap();
    assert_eq!(poll(&mut pair), []);
    for _ in 0..3 {
        let now_ns = pair.now_ns;
        pair.ends[1].io(now_ns).write(server, &[1; 10]).unwrap();
        answer_by_icmp(&mut pair, 3, 1);
        assert_eq!(poll(&mut pair), [(interest::REPORT, 7)]);
        assert_eq!(poll(&mut pair), []);
        pair.calm();
    }
}

#[test]
fn shld_20_reports_that_nobody_wants_are_not_told() {
    let (mut pair, _, server) = opened();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    io.register(server, interest::READ, 7).unwrap();
    io.write(server, &[1; 100]).unwrap();
    answer_by_icmp(&mut pair, 3, 1);
    assert_eq!(poll(&mut pair), []);
    // It is not lost on one who asks later, though the connection is idle, and parked.
    pair.pass(2 * S);
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    let kept = Ok(Some(SoftError::HostUnreachable));
    assert_eq!(io.take_soft_error(server), kept);
}

/// What quotes nothing under way is not believed (RFC 5927 4.1), and so not reported.
#[test]
fn must_47_forged_errors_are_not_reported() {
    let (mut pair, _, server) = opened();
    let now_ns = pair.now_ns;
    let mut io = pair.ends[1].io(now_ns);
    io.register(server, interest::REPORT, 7).unwrap();
    io.write(server, &[1; 100]).unwrap();
    pair.ends[1].out.flush();
    let about = pair.ends[1].line.lock().unwrap().back().unwrap().clone();
    pair.calm();
    let now_ns = pair.now_ns;
    pair.ends[1].receive(&[forge::error(3, 1, 0, &about)], now_ns);
    assert_eq!(poll(&mut pair), []);
    let mut io = pair.ends[1].io(now_ns);
    assert_eq!(io.take_soft_error(server), Ok(None));
    assert_eq!(pair.ends[1].stack.stats().errors_ignored, 1);
}
