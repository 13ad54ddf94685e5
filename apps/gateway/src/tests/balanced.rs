//! Virtual services, packet by packet: clients are outside, backends inside.

use std::net::IpAddr;

use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;

use super::*;
use crate::balance::{Backend, Config, Form, Service};

const INWARD: &str = "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\ndefault = \"permit\"\n";
const VIP4: &str = "203.0.113.80";
const VIP6: &str = "2001:db8:80::80";
const BACKENDS4: [&str; 3] = ["10.1.0.11", "10.1.0.12", "10.1.0.13"];
const BACKENDS6: [&str; 3] = ["2001:db8:a1::11", "2001:db8:a1::12", "2001:db8:a1::13"];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A service for UDP and TCP of port 53, of these backends.
fn balanced(vip: &str, form: Form, backends: &[&str]) -> Stanzas {
    let service = |protocol, name: &str| Service {
        name: name.into(),
        address: address(vip),
        protocol,
        ports: 53..=53,
        form,
        by_source: false,
        check: None,
        backends: (backends.iter())
            .map(|text| Backend {
                address: address(text),
                port: None,
                weight: 1,
            })
            .collect(),
    };
    Stanzas {
        balance: Config {
            services: vec![service(protocol::UDP, "udp"), service(protocol::TCP, "tcp")],
        },
        flows: FlowsConfig {
            ipv4: 256,
            ipv6: 256,
            ..FlowsConfig::default()
        },
        ..stanzas(INWARD)
    }
}

fn ports(src: u16, dst: u16) -> Vec<u8> {
    let mut payload = udp(18);
    payload[..2].copy_from_slice(&src.to_be_bytes());
    payload[2..4].copy_from_slice(&dst.to_be_bytes());
    payload
}

/// A client's datagram to a service.
fn asks(vip: &'static str, port: u16) -> Frame {
    Frame {
        payload: ports(port, 53),
        ..Frame::to(vip)
    }
}

/// What a service says to the client of that port.
fn answers(from: &'static str, port: u16) -> Frame {
    let client = if from.contains(':') {
        "2001:db8::7"
    } else {
        "192.0.2.7"
    };
    Frame {
        payload: ports(53, port),
        ..Frame::between(from, client)
    }
}

/// A client's segment.
fn segment_to(vip: &'static str, flags: u8) -> Frame {
    Frame {
        protocol: protocol::TCP,
        payload: linerate_wire::tcp::header(4000, 53, 100, 7, flags).to_vec(),
        ..Frame::to(vip)
    }
    .summed()
}

fn outer_dst(frame: &[u8]) -> IpAddr {
    match frame[12..14] {
        [8, 0] => Ipv4::new_checked(&frame[14..]).unwrap().dst().into(),
        _ => Ipv6::new_checked(&frame[14..]).unwrap().dst().into(),
    }
}

#[test]
fn a_flow_is_translated_to_one_backend_and_back() {
    for (vip, backends) in [(VIP4, BACKENDS4), (VIP6, BACKENDS6)] {
        let mut gate = Gate::new(&balanced(vip, Form::Nat, &backends));
        let mut met = Vec::new();
        for port in 4000..4016 {
            let sent = gate.passes(OUTSIDE, &asks(vip, port)).unwrap();
            let to = outer_dst(&sent);
            let backend = backends.into_iter().find(|one| address(one) == to);
            let backend = backend.expect("a backend");
            met.push(backend);
            let again = gate.passes(OUTSIDE, &asks(vip, port)).unwrap();
            assert_eq!(outer_dst(&again), to);
            let back = gate.passes(INSIDE, &answers(backend, port)).unwrap();
            let wanted = forwarded(answers(vip, port).bytes(), HOST_MAC, WAN_MAC);
            assert_eq!(back[26..], wanted[26..], "{port}");
        }
        met.sort_unstable();
        met.dedup();
        assert_eq!(met.len(), 3, "each has some of them");
    }
}

/// Source and destination are translated: the backend answers an address of the pool.
#[test]
fn fullnat_hides_the_client_from_the_backend() {
    let mut stanzas = balanced(VIP4, Form::FullNat(0), &BACKENDS4);
    let pool = address("203.0.113.9");
    stanzas.nat.pools = vec![Pool::new("inner", vec![(pool, pool)])];
    let mut gate = Gate::new(&stanzas);
    let sent = gate.passes(OUTSIDE, &asks(VIP4, 4000)).unwrap();
    let ((from, port), (to, _)) = ends(&sent);
    assert_eq!(from, pool);
    let backend = BACKENDS4
        .into_iter()
        .find(|one| address(one) == to)
        .unwrap();
    let answer = Frame {
        dst: "203.0.113.9",
        ..answers(backend, port)
    };
    let back = gate.passes(INSIDE, &answer).unwrap();
    assert_eq!(
        ends(&back),
        ((address(VIP4), 53), (address("192.0.2.7"), 4000))
    );
    // The port comes back with the flow's end.
    gate.later(400_000);
    assert_eq!(gate.flows(), 0);
    gate.passes(OUTSIDE, &asks(VIP4, 4000)).unwrap();
}

/// Both families within both, by IP in IP and GUE: what leaves is what came, one hop less, within a
/// packet to the backend.
#[test]
fn direct_return_encapsulates_and_lets_answers_through() {
    let (own4, own6) = (address("198.51.100.1"), address("2001:db8:1::1"));
    for (form, backends, header) in [
        (Form::Ipip(own4), BACKENDS4, 20),
        (Form::Gue(own4), BACKENDS4, 32),
        (Form::Ipip(own6), BACKENDS6, 40),
        (Form::Gue(own6), BACKENDS6, 52),
    ] {
        for vip in [VIP4, VIP6] {
            let mut gate = Gate::new(&balanced(vip, form, &backends));
            let first = asks(vip, 4000);
            let sent = gate.passes(OUTSIDE, &first).unwrap();
            let to = outer_dst(&sent);
            assert!(
                backends.iter().any(|one| address(one) == to),
                "{form:?}: {to}"
            );
            assert_eq!(sent[..12], [ROUTER_MAC.0, LAN_MAC.0].concat());
            let whole = forwarded(first.bytes(), ROUTER_MAC, LAN_MAC);
            let inner = &sent[14 + header..];
            assert_eq!(inner[..], whole[14..14 + inner.len()], "{form:?} {vip}");
            if let [8, 0] = sent[12..14] {
                let ip = Ipv4::new_checked(&sent[14..]).unwrap();
                assert!(ip.verify());
                assert_eq!((ip.ttl(), IpAddr::from(ip.src())), (63, own4));
                assert_eq!(ip.total_len(), header + inner.len());
            }
            let again = gate.passes(OUTSIDE, &first).unwrap();
            assert_eq!(outer_dst(&again), to);
            // What the backend says by way of the gateway passes as it is.
            gate.forwards(INSIDE, &answers(vip, 4000));
            assert_eq!(gate.flows(), 1);
            // An error about it goes to the backend that has said it.
            let error = unreachable_from(first.src, &answers(vip, 4000));
            let error = Frame { dst: vip, ..error };
            let sent = gate.passes(OUTSIDE, &error).unwrap();
            assert_eq!(outer_dst(&sent), to, "{form:?} {vip}");
        }
    }
}

#[test]
fn half_a_conversation_is_enough_for_direct_return() {
    for vip in [VIP4, VIP6] {
        let own = Form::Ipip(address("198.51.100.1"));
        let mut gate = Gate::new(&balanced(vip, own, &BACKENDS4));
        gate.refuses(OUTSIDE, &segment_to(vip, ACK), "track_tcp_no_syn");
        let first = gate.passes(OUTSIDE, &segment_to(vip, SYN)).unwrap();
        for flags in [ACK, ACK, FIN | ACK, ACK] {
            let sent = gate.passes(OUTSIDE, &segment_to(vip, flags)).unwrap();
            assert_eq!(outer_dst(&sent), outer_dst(&first));
        }
        gate.later(230_000);
        assert_eq!(gate.flows(), 1);
        gate.later(300_000);
        assert_eq!(gate.flows(), 0);
        // One that was never closed lives while its client says something: who forges that of a
        // client keeps no room for hours.
        gate.passes(OUTSIDE, &segment_to(vip, SYN)).unwrap();
        for _ in 0..4 {
            gate.passes(OUTSIDE, &segment_to(vip, ACK)).unwrap();
            gate.later(230_000);
            assert_eq!(gate.flows(), 1);
        }
        gate.later(11_000);
        assert_eq!(gate.flows(), 0);
        // Where the backend is heard it lives for two hours.
        gate.passes(OUTSIDE, &segment_to(vip, SYN)).unwrap();
        let said = |flags, data: &[u8]| {
            let mut back = both(segment_to(vip, flags)).1;
            back.payload[..4].rotate_left(2);
            back.payload.extend(data);
            back.summed()
        };
        gate.forwards(INSIDE, &said(SYN | ACK, b""));
        gate.passes(OUTSIDE, &segment_to(vip, ACK)).unwrap();
        gate.forwards(INSIDE, &said(ACK, b"hello"));
        gate.later(7_000_000);
        assert_eq!(gate.flows(), 1);
    }
}

/// RFC 2003 5.1: the client learns what fits, less what goes before.
#[test]
fn a_client_is_told_what_fits_the_tunnel() {
    let own = address("198.51.100.1");
    for (form, vip, header) in [
        (Form::Ipip(own), VIP4, 20),
        (Form::Gue(own), VIP4, 32),
        (Form::Ipip(own), VIP6, 20),
    ] {
        let mut gate = Gate::new(&balanced(vip, form, &BACKENDS4[..1]));
        let is_v6 = vip.contains(':');
        let most = 1500 - header;
        let sized = |len: usize, fragment| {
            let ip = if is_v6 { 40 } else { 20 };
            let mut payload = vec![0; len - ip];
            payload[..8].copy_from_slice(&ports(4000, 53)[..8]);
            payload[4..6].copy_from_slice(&((len - ip) as u16).to_be_bytes());
            payload[6..8].fill(0);
            if is_v6 {
                // Any checksum but none.
                payload[6..8].fill(0xff);
            }
            Frame {
                payload,
                fragment,
                ..asks(vip, 4000)
            }
        };
        let sent = gate.passes(OUTSIDE, &sized(most, 0x4000)).unwrap();
        assert_eq!(sent.len(), 1514);
        let before = gate.lab.drops();
        let left = gate.sends(OUTSIDE, &sized(most + 1, 0x4000));
        assert_ne!(gate.lab.drops(), before);
        let [error] = &left[..] else {
            panic!("{left:?}")
        };
        let (at, expected) = match is_v6 {
            false => (34, [3, 4]),
            true => (54, [2, 0]),
        };
        assert_eq!(error.frame[at..at + 2], expected, "too big");
        let mtu = u16::from_be_bytes([error.frame[at + 6], error.frame[at + 7]]);
        assert_eq!(usize::from(mtu), most, "{form:?}");
        if !is_v6 {
            // Where the client's packet may be fragmented, the one around it is.
            let left = gate.sends(OUTSIDE, &sized(most + 1, 0));
            assert_eq!(left.len(), 2, "{left:?}");
        }
    }
}

#[test]
fn a_packet_without_hops_left_is_answered_and_not_encapsulated() {
    let own = Form::Ipip(address("198.51.100.1"));
    let mut gate = Gate::new(&balanced(VIP4, own, &BACKENDS4));
    gate.passes(OUTSIDE, &asks(VIP4, 4000)).unwrap();
    let last = Frame {
        ttl: 1,
        ..asks(VIP4, 4000)
    };
    let left = gate.sends(OUTSIDE, &last);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].frame[34..36], [11, 0], "time exceeded");
    assert_eq!(gate.lab.drops()["ttl_exceeded"], 1);
}

/// A backend without weight keeps its flows and gets no others; one that is gone loses them; one
/// that is down keeps them, and where none is up the client is told.
#[test]
fn flows_stay_where_they_are_until_their_backend_is_gone() {
    for form in [Form::Nat, Form::Ipip(address("198.51.100.1"))] {
        let usual = balanced(VIP4, form, &BACKENDS4);
        let mut gate = Gate::new(&usual);
        let home: Vec<IpAddr> = (4000..4032)
            .map(|port| outer_dst(&gate.passes(OUTSIDE, &asks(VIP4, port)).unwrap()))
            .collect();
        let first = home[0];
        let mut drained = usual.clone();
        for service in &mut drained.balance.services {
            for backend in &mut service.backends {
                backend.weight = u32::from(backend.address != first);
            }
        }
        gate.reload(&drained);
        for (port, home) in (4000..).zip(&home) {
            let sent = gate.passes(OUTSIDE, &asks(VIP4, port)).unwrap();
            assert_eq!(outer_dst(&sent), *home, "{port}");
        }
        for port in 5000..5032 {
            let sent = gate.passes(OUTSIDE, &asks(VIP4, port)).unwrap();
            assert_ne!(outer_dst(&sent), first, "no new flows");
            let flows = gate.fast.path::<GatewayPath>().unwrap().flows();
            assert!(flows.begun_by_backend().iter().sum::<u64>() > 32);
        }
        let mut removed = drained.clone();
        for service in &mut removed.balance.services {
            service.backends.retain(|backend| backend.address != first);
        }
        gate.reload(&removed);
        gate.refuses(OUTSIDE, &asks(VIP4, 4000), "backend_gone");
        // It begins anew, elsewhere.
        let sent = gate.passes(OUTSIDE, &asks(VIP4, 4000)).unwrap();
        assert_ne!(outer_dst(&sent), first);
        let mut none = removed.clone();
        for service in &mut none.balance.services {
            service.backends.iter_mut().for_each(|one| one.weight = 0);
        }
        gate.reload(&none);
        gate.passes(OUTSIDE, &asks(VIP4, 4000)).unwrap();
        let left = gate.sends(OUTSIDE, &segment_to(VIP4, SYN));
        assert_eq!(left.len(), 1, "a reset");
        assert_eq!(left[0].frame[47] & RST, RST);
        assert_eq!(gate.lab.drops()["no_backend"], 1);
    }
}

/// A client that comes again by a port that it has had is not led to a backend that has died
/// without a word.
#[test]
fn a_syn_of_a_flow_whose_backend_is_down_goes_to_another() {
    let first = |seq: u32, flags: u8| {
        let payload = linerate_wire::tcp::header(4000, 53, seq, 301, flags).to_vec();
        Frame {
            protocol: protocol::TCP,
            payload,
            ..Frame::to(VIP4)
        }
        .summed()
    };
    for form in [Form::Nat, Form::Ipip(address("198.51.100.1"))] {
        let mut gate = Gate::new(&balanced(VIP4, form, &BACKENDS4[..2]));
        let home = outer_dst(&gate.passes(OUTSIDE, &first(100, SYN)).unwrap());
        let text = *BACKENDS4.iter().find(|one| address(one) == home).unwrap();
        if form == Form::Nat {
            let answer = linerate_wire::tcp::header(53, 4000, 300, 101, SYN | ACK).to_vec();
            let answer = Frame {
                protocol: protocol::TCP,
                payload: answer,
                ..Frame::between(text, "192.0.2.7")
            };
            gate.passes(INSIDE, &answer.summed()).unwrap();
        }
        gate.passes(OUTSIDE, &first(101, ACK)).unwrap();
        // While it is up the SYN is its to answer.
        let sent = gate.passes(OUTSIDE, &first(9000, SYN)).unwrap();
        assert_eq!(outer_dst(&sent), home);
        gate.later(1000);
        let tables = gate.shared.balance.tables_without(home);
        let path = gate.fast.path::<GatewayPath>().unwrap();
        path.flows().exchange_backends(tables);
        // What is no SYN stays where it was, as does one that nobody would hear.
        let sent = gate.passes(OUTSIDE, &first(101, ACK)).unwrap();
        assert_eq!(outer_dst(&sent), home, "{form:?}");
        let mut wrong = first(9000, SYN);
        wrong.payload[17] ^= 1;
        gate.refuses(OUTSIDE, &wrong, "track_tcp_checksum");
        let sent = gate.passes(OUTSIDE, &first(9000, SYN)).unwrap();
        assert_ne!(outer_dst(&sent), home, "{form:?}");
        let again = gate.passes(OUTSIDE, &first(9000, SYN)).unwrap();
        assert_eq!(outer_dst(&again), outer_dst(&sent), "{form:?}");
        assert_eq!(gate.flows(), 1);
    }
}
