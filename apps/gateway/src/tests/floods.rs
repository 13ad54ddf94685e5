//! Floods, and strangers who send what no host would: memory is bounded, and nobody else suffers.

use linerate_wire::tcp::{HEADER_LEN, Tcp};

use super::*;

/// The usual zones; beyond so many half-open connections SYNs are answered by cookies.
pub(super) fn capped(mut stanzas: Stanzas, half_open: u32) -> Stanzas {
    stanzas.flows.half_open = Some(half_open);
    stanzas
}

/// A segment from inside, or back, between these ports.
pub(super) fn between(
    v6: bool,
    is_back: bool,
    ports: (u16, u16),
    flags: u8,
    numbers: (u32, u32),
) -> Frame {
    let mut frame = segment(v6, is_back, flags, numbers);
    frame.payload[..2].copy_from_slice(&ports.0.to_be_bytes());
    frame.payload[2..4].copy_from_slice(&ports.1.to_be_bytes());
    frame.payload[14..16].copy_from_slice(&60_000_u16.to_be_bytes());
    frame.summed()
}

/// A segment that has left, all of whose checksums are right.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    port: u16,
    ports: (u16, u16),
    pub(super) flags: u8,
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
pub(super) fn one(gate: &mut Gate, port: u16, frame: &Frame) -> Seen {
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

/// A connection from inside that is established, and what it takes to see that it goes on.
fn established(gate: &mut Gate, v6: bool) {
    gate.forwards(INSIDE, &segment(v6, false, SYN, (100, 0)));
    gate.forwards(OUTSIDE, &segment(v6, true, SYN | ACK, (300, 101)));
    goes_on(gate, v6);
}

#[track_caller]
fn goes_on(gate: &mut Gate, v6: bool) {
    gate.forwards(INSIDE, &segment(v6, false, ACK, (101, 301)));
    gate.forwards(OUTSIDE, &segment(v6, true, ACK, (301, 101)));
}

#[test]
fn floods_of_datagrams_and_queries_take_what_room_there_is_and_established_flows_go_on() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        established(&mut gate, v6);
        for number in 0..1000_u16 {
            let mut datagram = datagrams(v6).0;
            datagram.payload[..2].copy_from_slice(&number.to_be_bytes());
            let mut query = echo(v6, false, number as u8);
            query.payload[4] = (number >> 8) as u8 | 0x80;
            for flood in [datagram, query] {
                match gate.passes(INSIDE, &flood) {
                    Ok(_) => {}
                    Err(reason) => assert_eq!(reason, "flow_table"),
                }
            }
        }
        assert_eq!(gate.flows(), 64);
        goes_on(&mut gate, v6);
        // A connection more would need what a flood holds, until that has ended.
        gate.refuses(
            INSIDE,
            &between(v6, false, (6000, 22), SYN, (7, 0)),
            "flow_table",
        );
        gate.later(121_000);
        assert_eq!(gate.flows(), 1);
        gate.forwards(INSIDE, &between(v6, false, (6000, 22), SYN, (7, 0)));
        goes_on(&mut gate, v6);
    }
}

#[test]
fn a_flood_of_fragments_holds_a_bounded_number_and_established_flows_go_on() {
    for v6 in [false, true] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].reassemble = true;
        lab.settings.interfaces[1].reassemble = true;
        let slots = lab.all_slots();
        let mut gate = Gate::with(lab, &stanzas(USUAL));
        established(&mut gate, v6);
        let mut most = 0;
        for number in 0..6000_u16 {
            let (asks, _) = datagrams(v6);
            let [high, low] = number.to_be_bytes();
            let mut bytes = match v6 {
                // The first of more, which never come.
                false => Frame {
                    fragment: 0x2000,
                    payload: udp(24),
                    ..asks
                },
                true => Frame {
                    protocol: protocol::FRAGMENT,
                    options: vec![17, 0, 0, 1, 0, 0, high, low],
                    payload: udp(24),
                    ..asks
                },
            }
            .bytes();
            bytes[..6].copy_from_slice(&LAN_MAC.0);
            if !v6 {
                bytes[18..20].copy_from_slice(&[high, low]);
                let mut ip = linerate_wire::ipv4::Ipv4::new_checked(&mut bytes[14..]).unwrap();
                ip.fill_checksum();
            }
            let left = gate.lab.run(&mut gate.fast, INSIDE, &[bytes]);
            assert_eq!(left, [], "no datagram is whole");
            most = most.max(gate.fast.held_fragments());
        }
        assert!(
            (1..u64::from(slots)).contains(&most),
            "{most} of {slots} slots"
        );
        assert_eq!(gate.flows(), 1, "a fragment alone begins no flow");
        goes_on(&mut gate, v6);
        gate.later(61_000);
        gate.lab.left();
        assert_eq!(gate.fast.held_fragments(), 0);
        goes_on(&mut gate, v6);
    }
}

/// An error whose checksum, and that of the IPv4 header that it quotes, are made right again after
/// a change.
fn altered(mut error: Frame, change: impl FnOnce(&mut Vec<u8>)) -> Frame {
    change(&mut error.payload);
    if !error.src.contains(':') {
        error.payload[8 + 10..8 + 12].fill(0);
        let sum = !checksum::sum(&error.payload[8..8 + 20]);
        error.payload[8 + 10..8 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    summed(error)
}

#[test]
fn rfc5927_4_errors_that_lie_pass_nowhere_and_end_nothing() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        established(&mut gate, v6);
        let about = with_data(segment(v6, false, ACK, (101, 301)), b"data");
        gate.forwards(INSIDE, &about);
        let header = if v6 { 8 + 40 } else { 8 + 20 };
        let counts = gate.counts(v6);
        let error = || unreachable(&about);
        let lies = [
            // A number that is not on its way.
            (
                altered(error(), |quote| quote[header + 4] = 9),
                "track_quote_sequence",
            ),
            // A port of no flow.
            (
                altered(error(), |quote| quote[header + 1] ^= 1),
                "track_quote_no_flow",
            ),
            // A protocol of no flow: what was TCP's is UDP's.
            (
                altered(error(), |quote| quote[if v6 { 8 + 6 } else { 8 + 9 }] = 17),
                "track_quote_no_flow",
            ),
            // To another host than the one it quotes.
            (
                altered(error(), |quote| {
                    quote[header - if v6 { 17 } else { 5 }] ^= 1
                }),
                "track_quote_address",
            ),
            // Too short for ports.
            (
                altered(error(), |quote| quote.truncate(header + 2)),
                "track_quote_malformed",
            ),
            (
                {
                    let mut error = error();
                    error.payload[3] ^= 1;
                    error
                },
                "track_quote_checksum",
            ),
        ];
        for (lie, reason) in &lies {
            gate.refuses(OUTSIDE, lie, reason);
        }
        assert_eq!(gate.counts(v6), counts);
        gate.forwards(OUTSIDE, &error());
        assert_eq!(gate.counts(v6), counts, "an error counts in no flow");
        goes_on(&mut gate, v6);
    }
}

#[test]
fn segments_outside_the_windows_pass_nowhere_and_change_nothing() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        gate.forwards(INSIDE, &between(v6, false, (5000, 22), SYN, (100, 0)));
        gate.forwards(
            OUTSIDE,
            &between(v6, true, (22, 5000), SYN | ACK, (300, 101)),
        );
        gate.forwards(INSIDE, &between(v6, false, (5000, 22), ACK, (101, 301)));
        let counts = gate.counts(v6);
        for at in (1..32).chain(33..64_u32) {
            let far = at << 26;
            let blind = between(v6, true, (22, 5000), ACK, (300_u32.wrapping_add(far), 101));
            let reason = if far < 1 << 31 {
                "track_tcp_window"
            } else {
                "track_tcp_old"
            };
            gate.refuses(OUTSIDE, &blind, reason);
            let blind = between(v6, true, (22, 5000), RST, (300_u32.wrapping_add(far), 0));
            gate.refuses(OUTSIDE, &blind, "track_tcp_reset");
            let blind = between(v6, true, (22, 5000), ACK, (301, 101_u32.wrapping_add(far)));
            let reason = if far < 1 << 31 {
                "track_tcp_ack_unsent"
            } else {
                "track_tcp_ack_old"
            };
            gate.refuses(OUTSIDE, &blind, reason);
        }
        assert_eq!(gate.counts(v6), counts);
        goes_on(&mut gate, v6);
    }
}

#[test]
fn scans_of_addresses_outside_begin_no_flow() {
    let mut stanzas = masquerade("192.0.2.77", 1024..=65535);
    stanzas.nat.pools[0].is_interface = false;
    // Whoever is outside would be let in.
    stanzas.policy = self::stanzas(&USUAL.replace(
        "\"inside\"\nto = \"outside\"",
        "\"outside\"\nto = \"inside\"",
    ))
    .policy;
    let mut gate = Gate::new(&stanzas);
    for port in 0..1500 {
        gate.refuses(
            OUTSIDE,
            &answer_to("192.0.2.77", port * 41),
            "nat_no_mapping",
        );
    }
    assert_eq!(gate.flows(), 0);
}

#[test]
fn a_clock_that_jumps_ends_nothing_early_and_harms_nobody() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&capped(stanzas(USUAL), 2));
        gate.later(10_000_000);
        established(&mut gate, v6);
        // Back by two hours and a half: nothing is too old, and time goes on from what it was.
        gate.lab.now -= 9_000_000_000_000;
        goes_on(&mut gate, v6);
        gate.forwards(INSIDE, &datagrams(v6).0);
        gate.later(1);
        assert_eq!(gate.flows(), 2);
        gate.forwards(OUTSIDE, &datagrams(v6).1);
        // A cookie of before is one of the future now, and no connection's.
        let syn = |port| between(v6, false, (port, 22), SYN, (7000, 0));
        for port in 0..2 {
            gate.forwards(INSIDE, &syn(10_000 + port));
        }
        let cookie = one(&mut gate, INSIDE, &syn(6000)).seq;
        gate.lab.now -= 900_000_000_000;
        let brings = between(v6, false, (6000, 22), ACK, (7001, cookie.wrapping_add(1)));
        gate.refuses(INSIDE, &brings, "track_tcp_cookie");
        goes_on(&mut gate, v6);
        // A hundred years on: all end, a bounded number in each turn, and others begin.
        gate.later(3_200_000_000_000);
        assert_eq!(gate.flows(), 0);
        established(&mut gate, v6);
    }
}
