//! NAT64 in the path: hosts of IPv6 inside reach those of IPv4 outside (RFC 6146, RFC 7915).

use super::services::{mss_of, says, serving, tcp};
use super::*;
use crate::nat::nat64::Prefix64;
use crate::nat::rules::Nat64;
use crate::services::statistics::Statistics;

/// 192.0.2.7, as hosts inside call it.
pub(super) const SERVER: &str = "64:ff9b::c000:207";
pub(super) const HOST: &str = "2001:db8:a1::9";
pub(super) const POOL: &str = "192.0.2.100";

pub(super) fn translating() -> Stanzas {
    let mut stanzas = stanzas(USUAL);
    let address = POOL.parse().unwrap();
    stanzas.nat.pools = vec![Pool::new("v4", vec![(address, address)])];
    stanzas.nat.nat64 = vec![Nat64 {
        prefix: Prefix64::well_known(),
        pool: 0,
        from: Place::default(),
    }];
    stanzas
}

/// A segment of a connection from the host to port 22 of the server.
fn out(flags: u8, numbers: (u32, u32)) -> Frame {
    let frame = Frame {
        dst: SERVER,
        ..segment(true, false, flags, numbers)
    };
    frame.summed()
}

/// What the server answers to a port.
fn back(port: u16, flags: u8, numbers: (u32, u32)) -> Frame {
    let mut frame = Frame {
        dst: POOL,
        ..segment(false, true, flags, numbers)
    };
    frame.payload[2..4].copy_from_slice(&port.to_be_bytes());
    frame.summed()
}

fn kind(frame: &[u8]) -> [u8; 2] {
    [frame[12], frame[13]]
}

#[test]
fn rfc_6146_a_connection_goes_both_ways_and_ends() {
    let mut gate = Gate::new(&translating());
    let sent = gate.passes(INSIDE, &out(SYN, (100, 0))).unwrap();
    assert_eq!((kind(&sent), sent.len()), ([8, 0], 60));
    let (from, to) = ends(&sent);
    assert_eq!(from.0.to_string(), POOL);
    assert_eq!(to, ("192.0.2.7".parse().unwrap(), 22));
    // The hop limit is less by one.
    assert_eq!(sent[22], 63);
    let answer = back(from.1, SYN | ACK, (300, 101));
    let got = gate.passes(OUTSIDE, &answer).unwrap();
    assert_eq!(kind(&got), [0x86, 0xdd]);
    assert_eq!(
        ends(&got),
        ((SERVER.parse().unwrap(), 22), (HOST.parse().unwrap(), 5000))
    );
    assert_eq!(got[21], 63);
    for _ in 0..3 {
        let sent = gate.passes(INSIDE, &out(ACK, (101, 301))).unwrap();
        assert_eq!(ends(&sent).0, from);
    }
    assert_eq!(gate.flows(), 1);
    // A port that nobody has, and a stranger at the one that is open.
    gate.refuses(OUTSIDE, &back(9, SYN, (1, 0)), "nat_no_mapping");
    let stranger = Frame {
        src: "192.0.2.8",
        ..back(from.1, SYN, (1, 0))
    };
    gate.refuses(OUTSIDE, &stranger.summed(), "nat_filtered");
    // Its state is that of the IPv6 flow: a reset far away is refused.
    let reset = back(from.1, RST, (1 << 30, 0));
    gate.refuses(OUTSIDE, &reset, "track_tcp_reset");
    gate.later(7_500_000);
    assert_eq!(gate.flows(), 0);
    let nat = gate.fast.path::<GatewayPath>().unwrap().flows().nat();
    assert!(nat.sessions.is_empty() && nat.mappings.is_empty());
    gate.refuses(OUTSIDE, &back(from.1, ACK, (301, 101)), "nat_no_mapping");
}

#[test]
fn rfc_7915_4_5_datagrams_without_checksum_get_one_and_small_ones_are_padded() {
    let mut gate = Gate::new(&translating());
    let mut asks = Frame {
        dst: SERVER,
        ..datagrams(true).0
    };
    asks.payload = udp(1);
    // A checksum, as IPv6 wants it (RFC 8200 8.1).
    let sum = |frame: &Frame| {
        let bytes = frame.bytes();
        let ip = Ipv6::new_checked(&bytes[14..]).unwrap();
        let pseudo = ip.pseudo_sum(&ip.upper_layer().unwrap());
        !checksum::add(checksum::sum(&frame.payload), pseudo)
    };
    let checked = sum(&asks);
    asks.payload[6..8].copy_from_slice(&checked.to_be_bytes());
    let sent = gate.passes(INSIDE, &asks).unwrap();
    assert_eq!(sent.len(), 60);
    let (from, _) = ends(&sent);
    assert!(
        sent[14 + 20 + 9..].iter().all(|byte| *byte == 0),
        "{sent:?}"
    );
    let answer = answer_to(POOL, from.1);
    let got = gate.passes(OUTSIDE, &answer).unwrap();
    assert_eq!(ends(&got).1, (HOST.parse().unwrap(), 5000));
    assert_ne!(got[14 + 40 + 6..14 + 40 + 8], [0, 0]);
}

#[test]
fn rfc_7915_4_2_pings_and_errors_pass() {
    let mut gate = Gate::new(&translating());
    let ping = Frame {
        dst: SERVER,
        ..echo(true, false, 9)
    };
    let sent = gate.passes(INSIDE, &summed(ping.clone())).unwrap();
    assert_eq!((sent[23], sent[34]), (protocol::ICMP, 8));
    let ident = [sent[38], sent[39]];
    let mut pong = Frame {
        dst: POOL,
        ..echo(false, true, 9)
    };
    pong.payload[4..6].copy_from_slice(&ident);
    let got = gate.passes(OUTSIDE, &summed(pong)).unwrap();
    assert_eq!((got[20], got[54]), (protocol::ICMPV6, 129));
    assert_eq!(got[58..60], [0, 9]);

    // A router outside cannot deliver: the host is told, about what it has sent.
    let asks = out(SYN, (100, 0));
    let sent = gate.passes(INSIDE, &asks).unwrap();
    let mut outside = Frame {
        src: POOL,
        ..segment(false, false, SYN, (100, 0))
    };
    outside.payload[..2].copy_from_slice(&ends(&sent).0.1.to_be_bytes());
    let error = unreachable(&outside.summed());
    let told = gate.passes(OUTSIDE, &error).unwrap();
    assert_eq!(ends(&told).1.0.to_string(), HOST);
    assert_eq!((told[20], told[54]), (protocol::ICMPV6, 1));
    // The router, behind the prefix, and the quote.
    assert_eq!(ends(&told).0.0.to_string(), "64:ff9b::a02:1");
    assert_eq!(told[62 + 8..62 + 44], asks.bytes()[14 + 8..14 + 44]);

    // One from inside, about an answer.
    let answer = Frame {
        src: SERVER,
        dst: HOST,
        ..segment(true, true, SYN | ACK, (300, 101))
    };
    gate.passes(OUTSIDE, &back(ends(&sent).0.1, SYN | ACK, (300, 101)))
        .unwrap();
    let error = unreachable(&answer.summed());
    let error = Frame { src: HOST, ..error };
    let told = gate.passes(INSIDE, &summed(error)).unwrap();
    assert_eq!((kind(&told), told[34]), ([8, 0], 3));
    assert_eq!(ends(&told).0.0.to_string(), POOL);
    assert_eq!(ends(&told).1.0.to_string(), "192.0.2.7");
}

#[test]
fn rfc_7915_what_the_gateway_says_is_about_what_was_sent_in_either_version() {
    let mut gate = Gate::new(&translating());
    let short = Frame {
        ttl: 1,
        dst_mac: LAN_MAC,
        ..out(SYN, (100, 0))
    };
    let left = gate.lab.run(&mut gate.fast, INSIDE, &[short.bytes()]);
    assert_eq!(left.len(), 1, "{:?}", gate.lab.drops());
    let told = &left[0].frame;
    assert_eq!((left[0].port, told[54]), (INSIDE, 3), "time exceeded");
    assert_eq!(ends(told).1.0.to_string(), HOST);
    assert_eq!(told[62..62 + 60], short.bytes()[14..14 + 60]);

    let asks = Frame {
        dst: SERVER,
        ..datagrams(true).0
    };
    let sent = gate.passes(INSIDE, &asks).unwrap();
    // 1500 bytes of IPv4 are 1520 of IPv6.
    let mut large = Frame {
        dst_mac: WAN_MAC,
        fragment: 0x4000,
        ..answer_to(POOL, 0)
    };
    large.payload = udp(1472);
    large.payload[..2].copy_from_slice(&53_u16.to_be_bytes());
    large.payload[2..4].copy_from_slice(&ends(&sent).0.1.to_be_bytes());
    let left = gate.lab.run(&mut gate.fast, OUTSIDE, &[large.bytes()]);
    assert_eq!(left.len(), 1, "{:?}", gate.lab.drops());
    let told = &left[0].frame;
    assert_eq!((left[0].port, &told[34..36]), (OUTSIDE, &[3, 4][..]));
    // RFC 7915 5.2: less by what the header is longer.
    assert_eq!(told[40..42], 1480_u16.to_be_bytes());
    assert_eq!(told[42..42 + 20], large.bytes()[14..34]);
}

#[test]
fn rfc_6146_3_8_hosts_inside_meet_by_their_outside_addresses() {
    let mut stanzas = translating();
    stanzas.nat.pools[0].filtering = crate::nat::mapping::Filtering::EndpointIndependent;
    let mut gate = Gate::new(&stanzas);
    let sent = gate.passes(INSIDE, &out(SYN, (100, 0))).unwrap();
    let port = ends(&sent).0.1;
    let mut call = Frame {
        src: "2001:db8:a1::77",
        dst: "64:ff9b::c000:264",
        ..segment(true, false, SYN, (500, 0))
    };
    call.payload[2..4].copy_from_slice(&port.to_be_bytes());
    let got = gate.passes(INSIDE, &call.summed()).unwrap();
    let (from, to) = ends(&got);
    assert_eq!(to, (HOST.parse().unwrap(), 5000));
    assert_eq!(from.0.to_string(), "64:ff9b::c000:264");
}

#[test]
fn a_pool_that_goes_ends_its_sessions() {
    let mut gate = Gate::new(&translating());
    let sent = gate.passes(INSIDE, &out(SYN, (100, 0))).unwrap();
    let port = ends(&sent).0.1;
    gate.reload(&translating());
    let answer = back(port, SYN | ACK, (300, 101));
    gate.passes(OUTSIDE, &answer).unwrap();
    let mut other = translating();
    let address = "192.0.2.101".parse().unwrap();
    other.nat.pools[0].addresses = vec![(address, address)];
    gate.reload(&other);
    gate.refuses(OUTSIDE, &answer, "nat_gone");
    assert_eq!(gate.flows(), 0);
    let nat = gate.fast.path::<GatewayPath>().unwrap().flows().nat();
    assert!(nat.sessions.is_empty());
}

#[test]
fn a_connection_that_begins_with_a_cookie_is_translated_too() {
    let mut stanzas = translating();
    stanzas.flows.half_open = Some(0);
    let mut gate = Gate::new(&stanzas);
    let word = |frame: &[u8], at: usize| u32::from_be_bytes(*frame[at..].first_chunk().unwrap());
    let left = gate.sends(INSIDE, &out(SYN, (7000, 0)));
    assert_eq!((left.len(), left[0].port), (1, INSIDE));
    assert_eq!(ends(&left[0].frame).0.0.to_string(), SERVER);
    let next = word(&left[0].frame, 14 + 40 + 4).wrapping_add(1);
    let left = gate.sends(INSIDE, &out(ACK, (7001, next)));
    assert_eq!((left.len(), left[0].port), (1, OUTSIDE));
    let (from, to) = ends(&left[0].frame);
    assert_eq!(
        (from.0.to_string(), to.0.to_string()),
        (POOL.into(), "192.0.2.7".into())
    );
    assert_eq!(left[0].frame[14 + 20 + 13], SYN);
    // The server's answer goes on to the client, and is acknowledged.
    let both = gate.sends(OUTSIDE, &back(from.1, SYN | ACK, (9000, 7001)));
    assert_eq!(both.len(), 2, "{both:?} {:?}", gate.lab.drops());
    let [inside, outside] = [INSIDE, OUTSIDE].map(|port| {
        let left = both.iter().find(|left| left.port == port);
        left.unwrap().frame.clone()
    });
    assert_eq!(ends(&inside).1, (HOST.parse().unwrap(), 5000));
    assert_eq!(ends(&outside), (from, to));
    let numbers = (word(&outside, 14 + 20 + 4), word(&outside, 14 + 20 + 8));
    assert_eq!(numbers, (7001, 9001));
}

#[test]
fn services_change_the_flow_of_ipv6_and_no_other() {
    let deny = "[services.classify]\ndeny_hosts = [\"example.org\"]\n";
    let mut stanzas = serving("[\"classify\", \"statistics\"]", deny);
    stanzas.nat = translating().nat;
    let mut gate = Gate::new(&stanzas);
    // A flow of IPv4 with the number that the other has in its table.
    gate.open(false);
    let sent = gate.passes(INSIDE, &out(SYN, (100, 0))).unwrap();
    let port = ends(&sent).0.1;
    gate.passes(OUTSIDE, &back(port, SYN | ACK, (300, 101)))
        .unwrap();
    gate.passes(INSIDE, &out(ACK, (101, 301))).unwrap();
    let now = gate.lab.now;
    let statistics = gate.table().services().find::<Statistics>().unwrap();
    let [talkers, _] = statistics.talkers(now);
    let hosts: Vec<_> = talkers.iter().map(|(host, _)| host.to_string()).collect();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    assert!(hosts.iter().any(|host| host == HOST), "{hosts:?}");
    let request = b"GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n";
    let denied = Frame {
        dst: SERVER,
        ..says(true, 101, request)
    };
    gate.refuses(INSIDE, &denied.summed(), "service_denied");
    assert!(gate.bits(true).is_denied());
    assert!(!gate.bits(false).is_denied());
    let log = gate.table().services().take_log();
    assert_eq!(log.iter().count(), 0);
    gate.forwards(
        INSIDE,
        &says(false, 101, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    );
}

#[test]
fn segments_fit_the_longer_headers_of_ipv6() {
    let mut stanzas = serving("[\"mss\"]", "");
    stanzas.nat = translating().nat;
    let mut gate = Gate::new(&stanzas);
    let syn = Frame {
        dst: SERVER,
        ..tcp((true, false), SYN, (100, 0), &[2, 4, 0x22, 0xc4], &[])
    };
    let sent = gate.passes(INSIDE, &syn.summed()).unwrap();
    assert_eq!(mss_of(&sent), Some(1500 - 60));
}

#[test]
fn a_connection_that_is_opened_again_from_outside_has_a_session_or_is_none() {
    let back_in = "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\ndefault = \"permit\"\n";
    // The host may have another connection by the same port, which keeps that open.
    for has_another in [false, true] {
        let stanzas = Stanzas {
            nat: translating().nat,
            ..stanzas(&format!("{USUAL}{back_in}"))
        };
        let mut gate = Gate::new(&stanzas);
        let sent = gate.passes(INSIDE, &out(SYN, (100, 0))).unwrap();
        let port = ends(&sent).0.1;
        if has_another {
            let mut other = segment(true, false, SYN, (700, 0));
            (other.dst, other.payload[3]) = (SERVER, 23);
            gate.passes(INSIDE, &other.summed()).unwrap();
        }
        let others = usize::from(has_another);
        for (is_back, flags, numbers) in [
            (true, SYN | ACK, (300, 101)),
            (false, ACK, (101, 301)),
            (false, FIN | ACK, (101, 301)),
            (true, FIN | ACK, (301, 102)),
            (false, ACK, (102, 302)),
        ] {
            match is_back {
                true => gate.passes(OUTSIDE, &back(port, flags, numbers)),
                false => gate.passes(INSIDE, &out(flags, numbers)),
            }
            .unwrap();
        }
        let again = back(port, SYN, (9000, 0));
        gate.refuses(OUTSIDE, &again, "nat_no_mapping");
        assert_eq!(gate.flows(), others);
        let sessions = gate.table().nat().sessions.len();
        assert_eq!(sessions, others);
        if !has_another {
            gate.refuses(OUTSIDE, &again, "nat_no_mapping");
            continue;
        }
        let got = gate.passes(OUTSIDE, &again).unwrap();
        assert_eq!(ends(&got).1, (HOST.parse().unwrap(), 5000));
        let answer = gate.passes(INSIDE, &out(SYN | ACK, (50, 9001))).unwrap();
        assert_eq!(ends(&answer).0, (POOL.parse().unwrap(), port));
    }
}
