//! Packets to bytes and back.

use super::build::{self, About};
use super::*;
use crate::script::{Body, IcmpSpec, IpSpec, PacketSpec, Quoted, TcpSpec, TosSpec};
use linerate_testkit::Random;
use std::net::SocketAddr;

fn ends(is_v6: bool) -> (SocketAddr, SocketAddr) {
    let (src, dst) = match is_v6 {
        true => ("[2001:db8::1]:4000", "[fd00::2]:80"),
        false => ("192.0.2.1:4000", "10.0.0.1:80"),
    };
    (src.parse().unwrap(), dst.parse().unwrap())
}

fn segment(options: Vec<TcpOption>, payload_bytes: usize) -> Segment {
    Segment {
        src_port: 4000,
        dst_port: 80,
        flags: flag::PSH | flag::ACK | flag::AE,
        seq: 0xffff_ff00,
        ack: 7,
        window: 8,
        urgent: 9,
        options,
        payload: vec![0; payload_bytes],
    }
}

#[test]
fn what_was_built_is_read_and_has_right_checksums() {
    for is_v6 in [false, true] {
        let (src, dst) = ends(is_v6);
        let ip = IpSpec {
            tos: TosSpec::All(0xb9),
            ttl: Some(3),
            flow_label: is_v6.then_some(0xabcde),
        };
        let options = vec![
            TcpOption::Nop,
            TcpOption::Nop,
            TcpOption::Timestamps(1, 2),
            TcpOption::Sack(vec![(1, 2), (3, 4)]),
            TcpOption::Nop,
            TcpOption::Nop,
        ];
        let segment = segment(options, 1001);
        let packet = build::segment(&ip, src, dst, &segment);
        let seen = read(&packet, false).unwrap();
        assert_eq!(seen.ends(), (src, dst));
        assert_eq!((seen.tos, seen.ttl), (0xb9, 3));
        assert_eq!(seen.flow_label, ip.flow_label.unwrap_or(0));
        assert_eq!(seen.layer4, Layer4::Tcp(segment));
        let datagram = build::datagram(&ip, src, dst, 11);
        let seen = read(&datagram, false).unwrap();
        assert_eq!(seen.layer4, Layer4::Udp(4000, 80, vec![0; 11]));
    }
}

#[test]
fn every_flipped_bit_of_a_segment_is_found() {
    for is_v6 in [false, true] {
        let (src, dst) = ends(is_v6);
        let packet = build::segment(&IpSpec::default(), src, dst, &segment(vec![], 8));
        let whole = read(&packet, false).unwrap();
        // What an IPv6 header has besides addresses is not covered: RFC 8200 8.1.
        let start = if is_v6 { 8 } else { 0 };
        for bit in start * 8..packet.len() * 8 {
            let mut bad = packet.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(read(&bad, false), Ok(whole.clone()), "bit {bit}");
        }
        assert!(read(&packet, false).is_ok());
        assert!(read(&packet, true).is_err());
    }
}

#[test]
fn options_are_read_as_written_whatever_they_are() {
    let mut random = Random::new(7);
    for _ in 0..2000 {
        let len = random.within(0..=40);
        let bytes: Vec<u8> = (0..len).map(|_| random.below(40_u8)).collect();
        let options = TcpOption::read_all(&bytes);
        let mut written = Vec::new();
        options.iter().for_each(|option| option.write(&mut written));
        assert!(options.iter().all(|option| !option.to_string().is_empty()));
        let cut = matches!(options.last(), Some(TcpOption::Other(..)));
        assert!(cut || written == bytes, "seed 7: {bytes:?}: {options:?}");
    }
}

#[test]
fn an_icmp_error_quotes_the_segment() {
    for (is_v6, kind, code) in [
        (false, "unreachable", Some("frag_needed")),
        (true, "packet_too_big", None),
    ] {
        let (remote, local) = ends(is_v6);
        let message = IcmpSpec {
            kind: kind.into(),
            code: code.map(str::to_owned),
            mtu: Some(1300),
            ident: None,
            quoted: Quoted::Tcp(1, 1000),
            at: crate::fault::At::default(),
        };
        let about = About {
            local,
            remote,
            seq: 0x0102_0304,
        };
        let packet = build::icmp(&IpSpec::default(), &message, &about).unwrap();
        let seen = read(&packet, false).unwrap();
        assert_eq!((seen.src, seen.dst), (remote.ip(), local.ip()));
        let Layer4::Icmp(_, _, rest, quoted) = seen.layer4.clone() else {
            panic!("no ICMP");
        };
        assert_eq!(u32::from_be_bytes(rest), 1300);
        let tcp = if is_v6 { 40 } else { 20 };
        assert_eq!(quoted[tcp..tcp + 8], [0, 80, 0x0f, 0xa0, 1, 2, 3, 4]);
        let spec = PacketSpec {
            inbound: false,
            ip: IpSpec::default(),
            ports: None,
            body: Body::Icmp(message.clone()),
        };
        assert!(check::differences(&spec, &seen, None).is_empty());
        let unknown = IcmpSpec {
            kind: "nonsense".into(),
            ..message
        };
        let fault = build::icmp(&IpSpec::default(), &unknown, &about).unwrap_err();
        assert!(fault.fix.contains("echo_request"), "{fault}");
    }
}

#[test]
fn differences_name_each_field() {
    let (src, dst) = ends(false);
    let spec = TcpSpec {
        flags: flag::ACK,
        seq: 1,
        payload_bytes: 0,
        ack: Some(1),
        window: None,
        urgent: None,
        options: Some(vec![TcpOption::Timestamps(100, 5)]),
    };
    let packet = PacketSpec {
        inbound: false,
        ip: IpSpec {
            tos: TosSpec::EitherEct,
            ..IpSpec::default()
        },
        ports: None,
        body: Body::Tcp(spec),
    };
    let options = vec![
        TcpOption::Timestamps(104, 5),
        TcpOption::Eol,
        TcpOption::Eol,
    ];
    let sent = Segment {
        flags: flag::ACK,
        seq: 1,
        ack: 1,
        urgent: 0,
        ..segment(options, 0)
    };
    let ip = IpSpec {
        tos: TosSpec::Ecn(1),
        ..IpSpec::default()
    };
    let seen = read(&build::segment(&ip, src, dst, &sent), false).unwrap();
    // A script leaves padding out.
    assert_eq!(check::differences(&packet, &seen, Some(4)), [""; 0]);
    let wrong = check::differences(&packet, &seen, Some(3));
    assert_eq!(
        wrong,
        ["options are <TS val 104 ecr 5,eol,eol>, not <TS val 100 ecr 5>"]
    );
}

#[test]
fn of_echo_and_errors_all_that_is_written_is_compared() {
    let (remote, local) = ends(false);
    let message = |kind: &str, quoted| IcmpSpec {
        kind: kind.into(),
        code: None,
        mtu: None,
        ident: Some(7),
        quoted,
        at: Default::default(),
    };
    let about = About {
        local,
        remote,
        seq: 0,
    };
    let ip = IpSpec::default();
    let reply = message("echo_reply", Quoted::Raw(300));
    let seen = read(&build::icmp(&ip, &reply, &about).unwrap(), false).unwrap();
    let wrong = |message: &IcmpSpec, seen: &Seen| {
        let spec = PacketSpec {
            inbound: false,
            ip: IpSpec::default(),
            ports: None,
            body: Body::Icmp(message.clone()),
        };
        check::differences(&spec, seen, None)
    };
    assert_eq!(wrong(&reply, &seen), [""; 0]);
    let other = IcmpSpec {
        ident: Some(8),
        quoted: Quoted::Raw(299),
        ..reply.clone()
    };
    assert_eq!(
        wrong(&other, &seen),
        [
            "identifier is 7, not 8",
            "payload is 300, not 299",
            "the payload is not that of the request"
        ]
    );
    let mut garbled = seen.clone();
    if let Layer4::Icmp(_, _, _, payload) = &mut garbled.layer4 {
        payload[299] ^= 1;
    }
    assert_eq!(
        wrong(&reply, &garbled),
        ["the payload is not that of the request"]
    );
    // Errors quote the datagram that caused them.
    for is_v6 in [false, true] {
        let (remote, local) = ends(is_v6);
        let about = About {
            local,
            remote,
            seq: 0,
        };
        let error = message("unreachable", Quoted::Udp(10));
        let seen = read(&build::icmp(&ip, &error, &about).unwrap(), false).unwrap();
        let Layer4::Icmp(_, _, _, payload) = &seen.layer4 else {
            panic!("no ICMP");
        };
        let quotes = |src, dst, bytes| check::quotes_datagram(payload, src, dst, bytes);
        assert!(quotes(local, remote, 10));
        assert!(!quotes(local, remote, 11) && !quotes(remote, local, 10));
        assert!(!check::quotes_datagram(&payload[..20], local, remote, 10));
    }
}
