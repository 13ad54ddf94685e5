//! Services: packets of flows that have some, and of those that have none.

use linerate_core::run::Point;
use linerate_wire::tcp::flag::PSH;
use linerate_wire::tcp::{TcpOption, options};

use super::*;
use crate::services::classify::Classify;
use crate::services::statistics::Statistics;
use crate::services::tests::client_hello;
use crate::services::{self, Counts, ServiceBits};

/// Who is inside may begin all, with these services; and their stanzas.
pub(super) fn serving(apply: &str, stanza: &str) -> Stanzas {
    let zones = "[[zone]]\nname = \"outside\"\ninterfaces = [\"wan\"]\n\
                 [[zone]]\nname = \"inside\"\ninterfaces = [\"lan\"]\n";
    let text = format!("{zones}{USUAL}apply = {apply}\n{stanza}");
    let parsed = config::parse(&text, |file| {
        let policy = policy::stanza::read(file, &["wan", "lan"], Path::new(""));
        let services = services::stanza::read(file);
        services::stanza::check(file, &services, &policy);
        (policy, services)
    });
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let (policy, services) = parsed.value;
    Stanzas {
        policy,
        services,
        ..stanzas("")
    }
}

/// A segment of the connection from inside, or back.
pub(super) fn tcp(
    (v6, is_back): (bool, bool),
    flags: u8,
    numbers: (u32, u32),
    options: &[u8],
    data: &[u8],
) -> Frame {
    let mut frame = segment(v6, is_back, flags, numbers);
    frame.payload.truncate(20);
    frame.payload[12] = ((20 + options.len()) as u8 / 4) << 4;
    frame.payload[14..16].fill(0xff);
    frame.payload.extend(options);
    frame.payload.extend(data);
    frame.summed()
}

/// The segment from inside that begins at `seq`.
pub(super) fn says(v6: bool, seq: u32, data: &[u8]) -> Frame {
    tcp((v6, false), ACK | PSH, (seq, 301), &[], data)
}

impl Gate {
    pub(super) fn open(&mut self, v6: bool) {
        self.forwards(INSIDE, &tcp((v6, false), SYN, (100, 0), &[], &[]));
        self.forwards(OUTSIDE, &tcp((v6, true), SYN | ACK, (300, 101), &[], &[]));
        self.forwards(INSIDE, &tcp((v6, false), ACK, (101, 301), &[], &[]));
    }

    pub(super) fn table(&mut self) -> &mut Flows {
        self.fast.path::<GatewayPath>().unwrap().flows()
    }

    fn service_counts(&mut self) -> Vec<Counts> {
        self.table().services().counts().collect()
    }

    /// The services of the one flow that there is.
    pub(super) fn bits(&mut self, v6: bool) -> ServiceBits {
        let (mut bits, mut cursor) = (Vec::new(), Cursor::default());
        let flows = self.table();
        match v6 {
            false => flows
                .v4()
                .dump(&mut cursor, 64, |flow| bits.push(flow.user.services())),
            true => flows
                .v6()
                .dump(&mut cursor, 64, |flow| bits.push(flow.user.services())),
        };
        assert_eq!(bits.len(), 1);
        bits[0]
    }

    /// The host that the one flow asks for.
    fn host(&mut self, v6: bool) -> Option<String> {
        let (mut ids, mut cursor) = (Vec::new(), Cursor::default());
        let flows = self.table();
        match v6 {
            false => flows.v4().dump(&mut cursor, 64, |flow| ids.push(flow.id)),
            true => flows.v6().dump(&mut cursor, 64, |flow| ids.push(flow.id)),
        };
        let classify = flows.services().find::<Classify>().unwrap();
        classify.host((ids[0], !v6)).map(|host| host.to_string())
    }

    fn captured(&mut self) -> u64 {
        let mut packets = 0;
        let path = self.fast.path::<GatewayPath>().unwrap();
        path.points(&mut |point: &mut Point| {
            if point.name == "captured" {
                packets += point.packets;
            }
        });
        packets
    }
}

#[test]
fn a_flow_without_services_is_seen_by_none() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&serving("[]", ""));
        gate.open(v6);
        gate.forwards(
            INSIDE,
            &says(v6, 101, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        );
        assert_eq!(gate.bits(v6), ServiceBits::NONE);
        assert!(gate.service_counts().is_empty());
        assert_eq!(gate.captured(), 0);
        assert!(!gate.table().services().wanted.is_any());
    }
}

#[test]
fn statistics_and_capture_see_all_packets_of_both_directions() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&serving("[\"statistics\", \"capture\"]", ""));
        gate.open(v6);
        let (asks, answers) = datagrams(v6);
        gate.forwards(INSIDE, &asks);
        gate.forwards(OUTSIDE, &answers);
        let now = gate.lab.now;
        let statistics = gate.table().services().find::<Statistics>().unwrap();
        let [talkers, last] = statistics.talkers(now);
        let (host, ip) = match v6 {
            false => ("10.1.0.9", 20),
            true => ("2001:db8:a1::9", 40),
        };
        assert_eq!(
            talkers,
            [(host.parse().unwrap(), 3 * (ip + 20) + 2 * (ip + 26))]
        );
        assert!(last.is_empty());
        assert_eq!(gate.captured(), 5);
        assert!(
            gate.service_counts()
                .iter()
                .all(|of| of.packets == 5 && of.done == 0)
        );
    }
}

#[test]
fn rfc2697_what_is_above_the_rate_of_its_policer_is_dropped() {
    let police = "[[services.police]]\nname = \"slow\"\nrate = \"8kbit\"\nburst = \"100B\"\n";
    let mut gate = Gate::new(&serving("[\"police:slow\"]", police));
    let (asks, answers) = datagrams(false);
    // 46 bytes each, in either direction.
    gate.forwards(INSIDE, &asks);
    gate.forwards(OUTSIDE, &answers);
    gate.refuses(INSIDE, &asks, "service_policed");
    gate.later(50);
    gate.forwards(INSIDE, &asks);
    gate.refuses(OUTSIDE, &answers, "service_policed");
    let counts = gate.service_counts()[0];
    assert_eq!((counts.packets, counts.dropped), (5, 2));
}

/// The largest segment that a frame's sender takes.
pub(super) fn mss_of(frame: &[u8]) -> Option<u16> {
    let headers = linerate_wire::parse(frame).unwrap();
    let segment = &frame[headers.l4.unwrap()..headers.end];
    let segment = linerate_wire::tcp::Tcp::new_checked(segment).unwrap();
    options(segment.options()).find_map(|option| match option {
        TcpOption::MaxSegment(size) => Some(size),
        _ => None,
    })
}

#[test]
fn both_syns_are_clamped_and_then_the_service_is_done() {
    for v6 in [false, true] {
        for (stanza, limit) in [("[services.mss]\nsize = 1200\n", 1200), ("", 0)] {
            let limit = match limit {
                0 if v6 => 1500 - 60,
                0 => 1500 - 40,
                limit => limit,
            };
            let mut gate = Gate::new(&serving("[\"mss\"]", stanza));
            // Odd and even places, jumbo frames.
            let syn = tcp(
                (v6, false),
                SYN,
                (100, 0),
                &[1, 2, 4, 0x22, 0xc4, 0, 0, 0],
                &[],
            );
            let sent = gate.passes(INSIDE, &syn).unwrap();
            assert_eq!(mss_of(&sent), Some(limit));
            let again = gate.passes(INSIDE, &syn).unwrap();
            assert_eq!(mss_of(&again), Some(limit));
            let back = tcp((v6, true), SYN | ACK, (300, 101), &[2, 4, 0x22, 0xc4], &[]);
            let back = gate.passes(OUTSIDE, &back).unwrap();
            assert_eq!(mss_of(&back), Some(limit));
            for frame in [sent, back] {
                let headers = linerate_wire::parse(&frame).unwrap();
                let end = headers.end;
                let pseudo = match v6 {
                    false => linerate_wire::ipv4::Ipv4::new_checked(&frame[14..end])
                        .unwrap()
                        .pseudo_sum(),
                    true => {
                        let ip = Ipv6::new_checked(&frame[14..end]).unwrap();
                        ip.pseudo_sum(&ip.upper_layer().unwrap())
                    }
                };
                let segment = &frame[headers.l4.unwrap()..end];
                let segment = linerate_wire::tcp::Tcp::new_checked(segment).unwrap();
                assert!(segment.verify(pseudo));
            }
            gate.forwards(INSIDE, &tcp((v6, false), ACK, (101, 301), &[], &[]));
            gate.forwards(OUTSIDE, &tcp((v6, true), ACK, (301, 101), &[], &[]));
            assert_eq!(gate.bits(v6), ServiceBits::NONE);
            let before = gate.service_counts();
            gate.forwards(INSIDE, &says(v6, 101, b"data"));
            assert_eq!(gate.service_counts(), before);
        }
    }
}

#[test]
fn a_client_hello_in_several_segments_names_the_host_and_the_classifier_is_done() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&serving("[\"classify\"]", ""));
        gate.open(v6);
        // The name is behind the first 60 bytes.
        let hello = client_hello("www.example.org", 1 << 14);
        gate.forwards(INSIDE, &says(v6, 101, &hello[..60]));
        assert_eq!(gate.host(v6), None);
        // Repeated, as after a loss; then what overlaps it.
        gate.forwards(INSIDE, &says(v6, 101, &hello[..60]));
        gate.forwards(INSIDE, &says(v6, 131, &hello[30..400]));
        assert_eq!(gate.host(v6).as_deref(), Some("www.example.org"));
        assert_eq!(gate.bits(v6), ServiceBits::NONE);
        let before = gate.service_counts();
        assert_eq!(before[0].done, 1);
        gate.forwards(INSIDE, &says(v6, 501, &hello[400..1000]));
        gate.forwards(OUTSIDE, &tcp((v6, true), ACK, (301, 1101), &[], b"yes"));
        assert_eq!(gate.service_counts(), before);
    }
}

#[test]
fn a_classifier_gives_up_after_some_segments() {
    let stanza = "[services.classify]\npackets = 3\n";
    let mut gate = Gate::new(&serving("[\"classify\"]", stanza));
    gate.open(false);
    let hello = client_hello("www.example.org", 1 << 14);
    for at in 0..3 {
        assert!(!gate.bits(false).is_none());
        let seq = 101 + at as u32 * 10;
        gate.forwards(INSIDE, &says(false, seq, &hello[at * 10..at * 10 + 10]));
    }
    assert_eq!(
        (gate.bits(false), gate.host(false)),
        (ServiceBits::NONE, None)
    );
    // Another protocol is known by its first byte.
    let mut gate = Gate::new(&serving("[\"classify\"]", stanza));
    gate.open(false);
    gate.forwards(INSIDE, &says(false, 101, b"SSH-2.0-x"));
    assert_eq!(gate.bits(false), ServiceBits::NONE);
}

#[test]
fn a_denied_host_ends_the_connection_in_both_directions() {
    let stanza = "[services.classify]\ndeny_hosts = [\"example.org\"]\nlog = true\n";
    for v6 in [false, true] {
        for request in [
            client_hello("www.example.org", 100),
            b"GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n".to_vec(),
        ] {
            let mut gate = Gate::new(&serving("[\"classify\", \"statistics\"]", stanza));
            gate.open(v6);
            gate.refuses(INSIDE, &says(v6, 101, &request), "service_denied");
            gate.refuses(INSIDE, &says(v6, 101, &request), "service_denied");
            let answer = tcp((v6, true), ACK, (301, 101), &[], b"no");
            gate.refuses(OUTSIDE, &answer, "service_denied");
            assert!(gate.bits(v6).is_denied());
            let counts = gate.service_counts();
            assert_eq!((counts[0].denied, counts[1].packets), (1, 3));
            assert_eq!(gate.table().services().denied_packets(), 2);
            let log = gate.table().services().take_log();
            let events: Vec<_> = log.iter().collect();
            assert_eq!((events.len(), log.more), (1, 0));
            assert_eq!(events[0].host.unwrap().to_string(), "www.example.org");
            assert_eq!(events[0].tuple.unwrap().dst.port, 22);
        }
        let mut gate = Gate::new(&serving("[\"classify\"]", stanza));
        gate.open(v6);
        gate.forwards(
            INSIDE,
            &says(v6, 101, &client_hello("myexample.org", 1 << 14)),
        );
    }
}

#[test]
fn a_pattern_is_found_across_segments_and_its_flow_dropped() {
    let stanza = |action: &str| {
        format!(
            "[[services.match]]\nname = \"bad\"\npatterns = [\"hex:00ff00\", \"attack\"]\n\
             ignore_case = true\nbytes = 100\naction = \"{action}\"\n"
        )
    };
    for v6 in [false, true] {
        let mut gate = Gate::new(&serving("[\"match:bad\"]", &stanza("drop")));
        gate.open(v6);
        gate.forwards(INSIDE, &says(v6, 101, b"an atT"));
        // A direction's state is its own.
        gate.forwards(OUTSIDE, &tcp((v6, true), ACK, (301, 107), &[], b"ack"));
        gate.refuses(INSIDE, &says(v6, 107, b"acK!"), "service_denied");
        gate.refuses(
            OUTSIDE,
            &tcp((v6, true), ACK, (304, 107), &[], b"x"),
            "service_denied",
        );
        let log = gate.table().services().take_log();
        assert_eq!(log.iter().next().unwrap().what, 1);
        // Logged once, and then the direction is done with; the other is not.
        let mut gate = Gate::new(&serving("[\"match:bad\"]", &stanza("log")));
        gate.open(v6);
        gate.forwards(INSIDE, &says(v6, 101, b"attack attack"));
        gate.forwards(INSIDE, &says(v6, 114, b"attack"));
        let log = gate.table().services().take_log();
        assert_eq!(log.iter().count(), 1);
        assert!(!gate.bits(v6).is_none());
        // So many bytes, and no more.
        gate.forwards(OUTSIDE, &tcp((v6, true), ACK, (301, 120), &[], &[7; 100]));
        assert_eq!(gate.bits(v6), ServiceBits::NONE);
    }
}

#[test]
fn another_policy_gives_flows_their_services_anew() {
    for v6 in [false, true] {
        let deny = "[services.classify]\ndeny_hosts = [\"example.org\"]\n";
        let mut gate = Gate::new(&serving("[\"classify\", \"statistics\"]", ""));
        gate.open(v6);
        let hello = client_hello("www.example.org", 1 << 14);
        gate.forwards(INSIDE, &says(v6, 101, &hello[..400]));
        let counts = gate.service_counts();
        // The same stanzas change nothing.
        gate.reload(&serving("[\"classify\", \"statistics\"]", ""));
        assert_eq!(gate.service_counts(), counts);
        // Bits have other places now, and other flows' services are not this one's.
        gate.reload(&serving("[\"capture\", \"statistics\"]", ""));
        gate.forwards(INSIDE, &says(v6, 501, &hello[400..500]));
        assert_eq!(gate.captured(), 1);
        let now = gate.service_counts();
        // Statistics go on, with what they had counted.
        assert_eq!(now[1].packets, counts[1].packets + 1);
        // None: no service sees the flow.
        gate.reload(&serving("[]", ""));
        gate.forwards(INSIDE, &says(v6, 601, &hello[500..600]));
        assert_eq!((gate.bits(v6), gate.captured()), (ServiceBits::NONE, 1));
        // The host that a classifier had found is known to the next, which denies it.
        let mut gate = Gate::new(&serving("[\"classify\"]", ""));
        gate.open(v6);
        gate.forwards(INSIDE, &says(v6, 101, &hello[..400]));
        gate.reload(&serving("[\"mss\", \"classify\"]", deny));
        gate.refuses(INSIDE, &says(v6, 501, &hello[400..500]), "service_denied");
        // And where it is denied no longer, the flow goes on.
        gate.reload(&serving("[\"classify\"]", ""));
        gate.forwards(INSIDE, &says(v6, 501, &hello[400..500]));
    }
}

#[test]
fn a_flow_that_is_denied_has_no_more_packets_in_the_same_burst() {
    let deny = "[services.classify]\ndeny_hosts = [\"example.org\"]\n";
    let mut gate = Gate::new(&serving("[\"classify\"]", deny));
    gate.open(false);
    let hello = client_hello("www.example.org", 1 << 14);
    let frames = [&hello[..60], &hello[60..400], &hello[400..]];
    let mut seq = 101;
    let frames = frames.map(|part| {
        let frame = Frame {
            dst_mac: LAN_MAC,
            ..says(false, seq, part)
        };
        seq += part.len() as u32;
        frame.bytes()
    });
    let left = gate.lab.run(&mut gate.fast, INSIDE, &frames);
    assert_eq!(left.len(), 1);
    assert_eq!(gate.lab.drops()["service_denied"], 2);
}

#[test]
fn packets_that_are_not_decided_on_anew_have_no_services_of_another_plan() {
    let mut gate = Gate::new(&serving("[\"statistics\"]", ""));
    // Answers to this host have no way.
    let (asks, answers) = both(Frame::between("10.4.0.9", "10.2.0.5"));
    let mut answers = answers;
    answers.payload[..4].rotate_left(2);
    gate.forwards(INSIDE, &asks);
    assert!(
        gate.sends(OUTSIDE, &answers)
            .iter()
            .all(|left| left.port != INSIDE)
    );
    assert_eq!(gate.service_counts()[0].packets, 2);
    // What was the bit of statistics is now that of captures.
    gate.reload(&serving("[\"capture\"]", ""));
    gate.sends(OUTSIDE, &answers);
    assert_eq!((gate.captured(), gate.flows()), (0, 1));
    gate.forwards(INSIDE, &asks);
    gate.sends(OUTSIDE, &answers);
    assert_eq!((gate.captured(), gate.flows()), (2, 1));
}
