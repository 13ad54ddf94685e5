//! Floods, and strangers who send what no host would: memory is bounded, and nobody else suffers.

use linerate_wire::tcp::{HEADER_LEN, Tcp};

use super::*;

/// The usual zones; beyond so many half-open connections SYNs are answered by cookies.
fn capped(mut stanzas: Stanzas, half_open: u32) -> Stanzas {
    stanzas.flows.half_open = Some(half_open);
    stanzas
}

/// A segment from inside, or back, between these ports.
fn between(v6: bool, is_back: bool, ports: (u16, u16), flags: u8, numbers: (u32, u32)) -> Frame {
    let mut frame = segment(v6, is_back, flags, numbers);
    frame.payload[..2].copy_from_slice(&ports.0.to_be_bytes());
    frame.payload[2..4].copy_from_slice(&ports.1.to_be_bytes());
    frame.payload[14..16].copy_from_slice(&60_000_u16.to_be_bytes());
    frame.summed()
}

/// A segment that has left, all of whose checksums are right.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    port: u16,
    ports: (u16, u16),
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    data: Vec<u8>,
}

#[track_caller]
fn seen(left: &Left) -> Seen {
    let (src, dst) = ends(&left.frame);
    let headers = linerate_wire::parse(&left.frame).unwrap();
    let segment = Tcp::new_checked(&left.frame[headers.l4.unwrap()..headers.end]).unwrap();
    Seen {
        port: left.port,
        ports: (src.1, dst.1),
        flags: segment.flags(),
        seq: segment.seq(),
        ack: segment.ack(),
        window: segment.window(),
        data: left.frame[headers.l4.unwrap() + segment.header_len()..headers.end].to_vec(),
    }
}

/// The only segment that leaves when this frame comes in.
#[track_caller]
fn one(gate: &mut Gate, port: u16, frame: &Frame) -> Seen {
    let left = gate.sends(port, frame);
    assert_eq!(left.len(), 1, "{left:?} {:?}", gate.lab.drops());
    seen(&left[0])
}

/// Opens a connection from inside by a cookie; returns the cookie, and the client's port outside.
fn connect(gate: &mut Gate, v6: bool, outside: Option<&'static str>, client: u16) -> (u32, u16) {
    let inside = |flags, numbers| between(v6, false, (client, 22), flags, numbers);
    let answer = one(gate, INSIDE, &inside(SYN, (7000, 0)));
    assert_eq!((answer.port, answer.ports), (INSIDE, (22, client)));
    assert_eq!(
        (answer.flags, answer.ack, answer.window),
        (SYN | ACK, 7001, 0)
    );
    let cookie = answer.seq;

    let flows = gate.flows();
    let wrong = inside(ACK, (7001, cookie.wrapping_add(2)));
    gate.refuses(INSIDE, &wrong, "track_tcp_cookie");
    assert_eq!(gate.flows(), flows);
    let asked = one(gate, INSIDE, &inside(ACK, (7001, cookie.wrapping_add(1))));
    assert_eq!((asked.port, asked.ports.1), (OUTSIDE, 22));
    assert_eq!((asked.flags, asked.seq, asked.ack), (SYN, 7000, 0));
    assert_eq!(gate.flows(), flows + 1);
    let port = asked.ports.0;

    // It is lost, and the client probes the closed window.
    let probe = inside(ACK, (7000, cookie.wrapping_add(1)));
    assert_eq!(one(gate, INSIDE, &probe), asked);

    let server = server(v6, outside, port, SYN | ACK, (9000, 7001));
    let both = gate.sends(OUTSIDE, &server);
    assert_eq!(both.len(), 2, "{both:?} {:?}", gate.lab.drops());
    let [to_client, to_server] = [INSIDE, OUTSIDE].map(|port| {
        let left = both.iter().find(|left| left.port == port);
        seen(left.unwrap())
    });
    assert_eq!(
        (to_client.ports, to_server.ports),
        ((22, client), (port, 22))
    );
    let numbers = (to_client.flags, to_client.seq, to_client.ack);
    assert_eq!(numbers, (ACK, cookie.wrapping_add(1), 7001));
    assert_eq!(to_client.window, 60_000, "the server's window");
    let numbers = (to_server.flags, to_server.seq, to_server.ack);
    assert_eq!(numbers, (ACK, 7001, 9001));
    (cookie, port)
}

/// A segment of the server, to the client's address outside if it has one.
fn server(
    v6: bool,
    outside: Option<&'static str>,
    port: u16,
    flags: u8,
    numbers: (u32, u32),
) -> Frame {
    let frame = between(v6, true, (22, port), flags, numbers);
    Frame {
        dst: outside.unwrap_or(frame.dst),
        ..frame
    }
    .summed()
}

fn with_data(mut frame: Frame, data: &[u8]) -> Frame {
    frame.payload.truncate(HEADER_LEN);
    frame.payload.extend(data);
    frame.summed()
}

/// Families, and the address outside where sources are translated.
const WAYS: [(bool, Option<&str>); 3] = [(false, None), (true, None), (false, Some("192.0.2.1"))];

fn open(outside: Option<&str>) -> Stanzas {
    match outside {
        Some(address) => masquerade(address, 1024..=65535),
        None => stanzas(USUAL),
    }
}

#[test]
fn rfc4987_3_6_a_flood_of_syns_takes_no_room_and_others_connect_meanwhile() {
    for (v6, outside) in WAYS {
        let mut gate = Gate::new(&capped(open(outside), 4));
        // A connection from before.
        let before = one(
            &mut gate,
            INSIDE,
            &between(v6, false, (5000, 22), SYN, (100, 0)),
        );
        let port = before.ports.0;
        one(
            &mut gate,
            OUTSIDE,
            &server(v6, outside, port, SYN | ACK, (300, 101)),
        );
        one(
            &mut gate,
            INSIDE,
            &between(v6, false, (5000, 22), ACK, (101, 301)),
        );
        for number in 0..2000_u16 {
            let syn = between(v6, false, (10_000 + number, 22), SYN, (number.into(), 0));
            let left = one(&mut gate, INSIDE, &syn);
            match number {
                0..4 => assert_eq!((left.port, left.flags), (OUTSIDE, SYN)),
                _ => assert_eq!((left.port, left.flags), (INSIDE, SYN | ACK)),
            }
        }
        assert_eq!(gate.flows(), 5, "memory is for four of them");
        let (cookie, client) = connect(&mut gate, v6, outside, 6000);
        // Both connections carry data.
        let asks = with_data(
            between(v6, false, (6000, 22), ACK, (7001, cookie.wrapping_add(1))),
            b"ask",
        );
        let asked = one(&mut gate, INSIDE, &asks);
        assert_eq!(
            (asked.seq, asked.ack, &asked.data[..]),
            (7001, 9001, &b"ask"[..])
        );
        let answers = with_data(server(v6, outside, client, ACK, (9001, 7004)), b"told");
        let told = one(&mut gate, OUTSIDE, &answers);
        assert_eq!((told.seq, told.ack), (cookie.wrapping_add(1), 7004));
        assert_eq!(told.data, b"told");
        let asks = with_data(between(v6, false, (5000, 22), ACK, (101, 301)), b"ask");
        assert_eq!(one(&mut gate, INSIDE, &asks).ack, 301);

        let path = gate.fast.path::<GatewayPath>().unwrap();
        let counts = path.flows().counts();
        assert_eq!((counts.cookies, counts.cookies_returned), (1997, 1));
        assert_eq!(path.flows().half_open(), 4);
        // The end: FINs of both sides, numbered as each side counts.
        let ends = between(
            v6,
            false,
            (6000, 22),
            FIN | ACK,
            (7004, cookie.wrapping_add(5)),
        );
        assert_eq!(one(&mut gate, INSIDE, &ends).ack, 9005);
        let ends = server(v6, outside, client, FIN | ACK, (9005, 7005));
        assert_eq!(one(&mut gate, OUTSIDE, &ends).seq, cookie.wrapping_add(5));
        // When the flood is over, nothing is left of it.
        gate.later(250_000);
        assert_eq!(gate.flows(), 1);
    }
}

#[test]
fn a_policy_is_asked_before_a_cookie_is_given() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&capped(stanzas(""), 0));
        gate.refuses(INSIDE, &segment(v6, false, SYN, (100, 0)), "policy");
    }
}

#[test]
fn a_server_that_refuses_is_heard_behind_a_cookie() {
    for (v6, outside) in WAYS {
        let mut gate = Gate::new(&capped(open(outside), 0));
        let inside = |flags, numbers| between(v6, false, (6000, 22), flags, numbers);
        let cookie = one(&mut gate, INSIDE, &inside(SYN, (7000, 0))).seq;
        let next = cookie.wrapping_add(1);
        let asked = one(&mut gate, INSIDE, &inside(ACK, (7001, next)));
        let refuses = server(v6, outside, asked.ports.0, RST | ACK, (0, 7001));
        let told = one(&mut gate, OUTSIDE, &refuses);
        assert_eq!((told.port, told.flags), (INSIDE, RST | ACK));
        assert_eq!((told.seq, told.ack), (next, 7001));
    }
}

#[test]
fn rfc5508_req4_an_error_about_a_shifted_segment_quotes_what_its_sender_sent() {
    for (v6, outside) in WAYS {
        let mut gate = Gate::new(&capped(open(outside), 0));
        let (cookie, client) = connect(&mut gate, v6, outside, 6000);
        let answers = with_data(server(v6, outside, client, ACK, (9001, 7001)), b"told");
        let told = one(&mut gate, OUTSIDE, &answers);
        // As the client's network has it.
        let about = between(v6, true, (22, 6000), ACK, (told.seq, 7001));
        assert_eq!(told.seq, cookie.wrapping_add(1));
        let router = if v6 { "2001:db8:a1::1" } else { "10.1.0.1" };
        let error = unreachable_from(router, &about);
        let sent = gate.passes(INSIDE, &error).unwrap();
        assert_eq!(ends(&sent).1.0.to_string(), about.src);
        let quoted = if v6 { 62 + 40 + 4 } else { 42 + 20 + 4 };
        assert_eq!(sent[quoted..quoted + 4], 9001_u32.to_be_bytes());
    }
}

#[test]
fn what_the_gateway_says_about_a_shifted_segment_quotes_what_its_sender_sent() {
    for (v6, outside) in WAYS {
        let mut gate = Gate::new(&capped(open(outside), 0));
        let (_, client) = connect(&mut gate, v6, outside, 6000);
        let answers = with_data(server(v6, outside, client, ACK, (9001, 7001)), b"told");
        let answers = Frame { ttl: 1, ..answers };
        let left = gate.sends(OUTSIDE, &answers);
        assert_eq!((left.len(), left[0].port), (1, OUTSIDE));
        let (from, header) = if v6 { (62, 40) } else { (42, 20) };
        let quoted = &left[0].frame[from..from + header + HEADER_LEN];
        assert_eq!(quoted, &answers.bytes()[14..14 + header + HEADER_LEN]);
    }
}
