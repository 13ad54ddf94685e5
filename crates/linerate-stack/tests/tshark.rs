//! Every kind of frame that neighbours, ICMP and resets make, decoded by tshark with all checksums
//! checked.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use linerate_stack::icmp::{Error4, Error6, echo4, echo6, error4, error6, redirect6};
use linerate_stack::neighbour::{Advertise, Config, InterfaceConfig, Out, Table};
use linerate_stack::tcp::{Refusal, refuse};
use linerate_testkit::{Scratch, has};
use linerate_wire::ethernet::{self, EtherType};
use linerate_wire::icmp::Icmp;
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::ndp::Message;
use linerate_wire::{MacAddr, arp, ipv4, protocol};

const US: MacAddr = MacAddr::local(1);
const HOST: MacAddr = MacAddr::local(7);
const SECOND: u64 = 1_000_000_000;

/// tshark's number of a warning (`PI_WARN`); those of errors are larger.
const WARNING: u32 = 0x60_0000;

/// tshark's warning about a correct reset.
const RESET: &str = "Connection reset (RST)";

/// A frame, and what tshark is to find in it: fields and values, all occurrences with commas
/// between.
struct Case {
    name: String,
    frame: Vec<u8>,
    fields: Vec<(&'static str, String)>,
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: &str, frame: &[u8], fields: &[(&'static str, &str)]) {
        self.0.push(Case {
            name: name.to_string(),
            frame: frame.to_vec(),
            fields: fields
                .iter()
                .map(|(field, value)| (*field, value.to_string()))
                .collect(),
        });
    }

    /// Takes the only frame of the output.
    fn add_only(&mut self, name: &str, out: &mut Out, fields: &[(&'static str, &str)]) {
        let frames: Vec<_> = out.frames().map(|(_, frame)| frame.to_vec()).collect();
        assert_eq!(frames.len(), 1, "{name}");
        self.add(name, &frames[0], fields);
        out.clear();
    }
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn elsewhere(_: IpAddr) -> bool {
    true
}

fn arp_frame(operation: arp::Operation, sender: &str, target: &str) -> Vec<u8> {
    let mut frame = ethernet::header(US, HOST, EtherType::ARP).to_vec();
    let target = (MacAddr::default(), v4(target));
    frame.extend(arp::packet(operation, (HOST, v4(sender)), target));
    frame
}

fn nd_frame(src: Ipv6Addr, dst: Ipv6Addr, message: Message<'_>) -> Vec<u8> {
    let mut bytes = [0; 1280];
    let len = message.write(src, dst, &mut bytes).unwrap();
    let mut frame = ethernet::header(US, HOST, EtherType::IPV6).to_vec();
    frame.extend(ipv6::header(protocol::ICMPV6, 255, src, dst, len as u16));
    frame.extend(&bytes[..len]);
    frame
}

fn neighbours(cases: &mut Cases) {
    let mut table = Table::new(Config::default(), 0).unwrap();
    let mut out = Out::new();
    let mut interface = InterfaceConfig {
        mac: US,
        addresses: vec![(v4("192.0.2.1").into(), 24)],
        proxy: true,
        detect4: true,
        detect6: true,
        advertise: None,
        ..InterfaceConfig::default()
    };
    let fields = |opcode, sender, target| {
        [
            ("arp.opcode", opcode),
            ("arp.src.proto_ipv4", sender),
            ("arp.dst.proto_ipv4", target),
            ("arp.src.hw_mac", "02:00:00:00:00:01"),
            ("frame.protocols", "eth:ethertype:arp"),
        ]
    };
    table.set_interface(0, interface.clone(), 0, &mut out);
    table.tick(SECOND, &mut out);
    cases.add_only("ARP probe", &mut out, &fields("1", "0.0.0.0", "192.0.2.1"));
    interface.detect4 = false;
    interface.addresses[0].1 = 25;
    table.set_interface(0, interface.clone(), SECOND, &mut out);
    let announcement = fields("1", "192.0.2.1", "192.0.2.1");
    cases.add_only("ARP announcement", &mut out, &announcement);
    table.tick(4 * SECOND, &mut out);
    out.clear();
    let host = IpAddr::V4(v4("192.0.2.7"));
    table.resolve(0, host, None, 5 * SECOND, &mut out);
    cases.add_only(
        "ARP request",
        &mut out,
        &fields("1", "192.0.2.1", "192.0.2.7"),
    );
    let frame = arp_frame(arp::Operation::Request, "192.0.2.7", "192.0.2.1");
    table
        .arp(0, &frame, &elsewhere, 5 * SECOND, &mut out)
        .unwrap();
    cases.add_only(
        "ARP reply",
        &mut out,
        &fields("2", "192.0.2.1", "192.0.2.7"),
    );
    let frame = arp_frame(arp::Operation::Request, "192.0.2.7", "198.51.100.9");
    table
        .arp(0, &frame, &elsewhere, 5 * SECOND, &mut out)
        .unwrap();
    cases.add_only(
        "proxy ARP",
        &mut out,
        &fields("2", "198.51.100.9", "192.0.2.7"),
    );
    table.tick(10 * SECOND, &mut out);
    cases.add_only("ARP poll", &mut out, &fields("1", "192.0.2.1", "192.0.2.7"));

    let mut table = Table::new(Config::default(), 0).unwrap();
    interface.addresses = vec![(v6("2001:db8::1").into(), 64)];
    interface.addresses.push((v6("fe80::1").into(), 64));
    interface.detect6 = true;
    let first = InterfaceConfig {
        addresses: vec![(v6("fe80::1").into(), 64)],
        ..interface.clone()
    };
    table.set_interface(0, first, 0, &mut out);
    table.tick(SECOND, &mut out);
    let detection = [
        ("icmpv6.type", "135"),
        ("ipv6.src", "::"),
        ("ipv6.dst", "ff02::1:ff00:1"),
        ("icmpv6.nd.ns.target_address", "fe80::1"),
    ];
    cases.add_only("duplicate address detection", &mut out, &detection);
    interface.detect6 = false;
    table.set_interface(0, interface.clone(), 10 * SECOND, &mut out);
    let announced: Vec<_> = out.frames().map(|(_, frame)| frame.to_vec()).collect();
    out.clear();
    let fields = [
        ("icmpv6.type", "136"),
        ("ipv6.dst", "ff02::1"),
        ("icmpv6.nd.na.flag.r", "1"),
        ("icmpv6.nd.na.flag.s", "0"),
        ("icmpv6.nd.na.flag.o", "1"),
        ("icmpv6.opt.linkaddr", "02:00:00:00:00:01"),
    ];
    cases.add(
        "unsolicited neighbour advertisement",
        &announced[0],
        &fields,
    );
    for now in [11, 14, 17] {
        table.tick(now * SECOND, &mut out);
    }
    out.clear();
    table.resolve(0, v6("2001:db8::7").into(), None, 20 * SECOND, &mut out);
    let fields = [
        ("icmpv6.type", "135"),
        ("ipv6.src", "2001:db8::1"),
        ("ipv6.dst", "ff02::1:ff00:7"),
        ("eth.dst", "33:33:ff:00:00:07"),
        ("icmpv6.opt.linkaddr", "02:00:00:00:00:01"),
    ];
    cases.add_only("neighbour solicitation", &mut out, &fields);
    let solicitation = |target| Message::NeighbourSolicitation {
        target,
        source_mac: Some(HOST),
    };
    let frame = nd_frame(
        v6("2001:db8::7"),
        v6("2001:db8::1"),
        solicitation(v6("2001:db8::1")),
    );
    table
        .ndp(0, &frame, &elsewhere, 20 * SECOND, &mut out)
        .unwrap();
    let mut fields = [
        ("icmpv6.type", "136"),
        ("ipv6.dst", "2001:db8::7"),
        ("icmpv6.nd.na.target_address", "2001:db8::1"),
        ("icmpv6.nd.na.flag.s", "1"),
        ("icmpv6.nd.na.flag.o", "1"),
    ];
    cases.add_only("neighbour advertisement", &mut out, &fields);
    let frame = nd_frame(
        v6("2001:db8::7"),
        v6("2001:db8:9::9"),
        solicitation(v6("2001:db8:9::9")),
    );
    table
        .ndp(0, &frame, &elsewhere, 20 * SECOND, &mut out)
        .unwrap();
    fields[2].1 = "2001:db8:9::9";
    fields[4].1 = "0";
    cases.add_only("proxy neighbour advertisement", &mut out, &fields);
    table.tick(25 * SECOND, &mut out);
    let probe = [
        ("icmpv6.type", "135"),
        ("ipv6.dst", "2001:db8::7"),
        ("eth.dst", "02:00:00:00:00:07"),
    ];
    cases.add_only("neighbour unreachability probe", &mut out, &probe);

    interface.advertise = Some(Advertise {
        interval_s: 200,
        mtu: Some(1500),
        other: true,
        ..Advertise::default()
    });
    table.set_interface(0, interface, 25 * SECOND, &mut out);
    out.clear();
    table.remove(0, v6("2001:db8::7").into(), &mut out);
    table.tick(26 * SECOND, &mut out);
    let mut fields = [
        ("icmpv6.type", "134"),
        ("icmpv6.nd.ra.router_lifetime", "1800"),
        ("ipv6.src", "fe80::1"),
        ("icmpv6.opt.prefix", "2001:db8::"),
        ("icmpv6.opt.prefix.length", "64"),
        ("icmpv6.opt.mtu", "1500"),
    ];
    cases.add_only("router advertisement", &mut out, &fields);
    table.shutdown(&mut out);
    fields[1].1 = "0";
    cases.add_only("the last router advertisement", &mut out, &fields);
}

/// An IP packet in a frame.
fn framed(packet: &[u8]) -> Vec<u8> {
    let ethertype = match packet[0] >> 4 {
        4 => EtherType::IPV4,
        _ => EtherType::IPV6,
    };
    let mut frame = ethernet::header(HOST, US, ethertype).to_vec();
    frame.extend(packet);
    frame
}

fn errors(cases: &mut Cases) {
    let (src, dst, router) = (v4("10.0.0.1"), v4("10.9.0.1"), v4("10.0.0.254"));
    // 45 bytes of UDP without a checksum.
    let mut offending4 = ipv4::header(0x28, 1, protocol::UDP, src, dst, 45).to_vec();
    offending4.extend([0x10, 0, 0x30, 57, 0, 45, 0, 0]);
    offending4.extend([0xab; 37]);
    let gateway = v4("10.0.0.2");
    for (error, kind, code) in [
        (Error4::NetUnreachable, "3", "0"),
        (Error4::HostUnreachable, "3", "1"),
        (Error4::FragmentationNeeded { mtu: 1400 }, "3", "4"),
        (Error4::AdminProhibited, "3", "13"),
        (Error4::TtlExceeded, "11", "0"),
        (Error4::ReassemblyExceeded, "11", "1"),
        (Error4::ParameterProblem { pointer: 9 }, "12", "0"),
        (Error4::Redirect { gateway }, "5", "1"),
    ] {
        let mut out = [0; 576];
        let len = error4(&offending4, error, router, &mut out).unwrap();
        let mut fields = vec![("icmp.type", kind), ("icmp.code", code)];
        fields.push(("ip.src", "10.0.0.254,10.0.0.1"));
        fields.push(("ip.dst", "10.0.0.1,10.9.0.1"));
        fields.push(("udp.dstport", "12345"));
        match error {
            Error4::FragmentationNeeded { .. } => fields.push(("icmp.mtu", "1400")),
            Error4::Redirect { .. } => fields.push(("icmp.redir_gw", "10.0.0.2")),
            _ => {}
        }
        cases.add(&format!("{error:?}"), &framed(&out[..len]), &fields);
    }
    let mut offending6 =
        ipv6::header(protocol::TCP, 1, v6("2001:db8::7"), v6("2001:db8:9::1"), 20).to_vec();
    offending6.extend([0x10, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0]);
    let sum = linerate_wire::checksum::pseudo_v6(
        v6("2001:db8::7").octets(),
        v6("2001:db8:9::1").octets(),
        protocol::TCP,
        20,
    );
    let sum = linerate_wire::checksum::add(sum, linerate_wire::checksum::sum(&offending6[40..]));
    offending6.extend((!sum).to_be_bytes());
    offending6.extend([0; 2]);
    for (error, kind, code) in [
        (Error6::NoRoute, "1", "0"),
        (Error6::AddressUnreachable, "1", "3"),
        (Error6::RejectRoute, "1", "6"),
        (Error6::PacketTooBig { mtu: 1400 }, "2", "0"),
        (Error6::HopLimitExceeded, "3", "0"),
        (Error6::UnknownNextHeader { pointer: 6 }, "4", "1"),
    ] {
        let mut out = [0; 1280];
        let len = error6(&offending6, error, v6("2001:db8::1"), &mut out).unwrap();
        let mut fields = vec![("icmpv6.type", kind), ("icmpv6.code", code)];
        fields.push(("ipv6.src", "2001:db8::1,2001:db8::7"));
        fields.push(("tcp.dstport", "80"));
        if let Error6::PacketTooBig { .. } = error {
            fields.push(("icmpv6.mtu", "1400"));
        }
        cases.add(&format!("{error:?}"), &framed(&out[..len]), &fields);
    }
    // A multiple of eight bytes: tshark does not take what pads a quote for padding.
    let mut packet =
        ipv6::header(protocol::UDP, 9, v6("2001:db8::7"), v6("2001:db8:9::1"), 24).to_vec();
    packet.extend([0x10, 0, 0x30, 57, 0, 24, 0x12, 0x34]);
    packet.extend([0xab; 16]);
    let mut out = [0; 1280];
    let target = v6("fe80::2");
    let len = redirect6(&packet, target, Some(HOST), v6("fe80::1"), &mut out).unwrap();
    let fields = [
        ("icmpv6.type", "137"),
        ("icmpv6.nd.rd.target_address", "fe80::2"),
        ("icmpv6.rd.na.destination_address", "2001:db8:9::1"),
        ("icmpv6.opt.linkaddr", "02:00:00:00:00:07"),
        ("udp.dstport", "12345"),
    ];
    cases.add("redirect", &framed(&out[..len]), &fields);
    let echo = [8, 0, 0x8e, 0xfe, 0x12, 0x34, 0xab, 0xcd, 0xaa, 0, 0, 0xff];
    let mut request = ipv4::header(0, 9, protocol::ICMP, src, router, 12).to_vec();
    request.extend(echo);
    assert!(echo4(&mut request));
    let fields = [
        ("icmp.type", "0"),
        ("icmp.seq", "43981"),
        ("ip.dst", "10.0.0.1"),
        ("ip.ttl", "64"),
    ];
    cases.add("echo reply", &framed(&request), &fields);
    let (src, dst) = (v6("2001:db8::7"), v6("2001:db8::1"));
    let mut request = ipv6::header(protocol::ICMPV6, 9, src, dst, 12).to_vec();
    request.extend([128]);
    request.extend(&echo[1..]);
    let ip = Ipv6::new_checked(&request[..]).unwrap();
    let pseudo = ip.pseudo_sum(&ip.upper_layer().unwrap());
    Icmp::new_checked(&mut request[40..])
        .unwrap()
        .fill_checksum(pseudo);
    assert!(echo6(&mut request));
    let fields = [
        ("icmpv6.type", "129"),
        ("ipv6.dst", "2001:db8::7"),
        ("ipv6.hlim", "64"),
    ];
    cases.add("ICMPv6 echo reply", &framed(&request), &fields);
}

fn resets(cases: &mut Cases) {
    // A SYN, and a segment from a host that assumes a connection.
    let syn = [
        0x10, 0, 0, 22, 0, 0, 1, 0, 0, 0, 0, 9, 0x50, 2, 4, 0, 0, 0, 0, 0,
    ];
    let mut data = syn;
    data[13] = 0x18;
    let mut add = |name: &str, packet: &[u8], more: &[(&'static str, &str)]| {
        let Refusal::Reset(reset) = refuse(packet, true) else {
            panic!("{name}");
        };
        let mut out = [0; 60];
        let len = reset.write(&mut out).unwrap();
        let mut fields = vec![("tcp.srcport", "22"), ("tcp.dstport", "4096")];
        fields.extend_from_slice(more);
        cases.add(name, &framed(&out[..len]), &fields);
    };
    let in_v4 = |segment: &[u8]| {
        let (src, dst) = (v4("10.0.0.1"), v4("10.9.0.1"));
        let header = ipv4::header(0, 1, protocol::TCP, src, dst, 20);
        [&header[..], segment].concat()
    };
    let in_v6 = |segment: &[u8]| {
        let (src, dst) = (v6("2001:db8::7"), v6("2001:db8:9::1"));
        let header = ipv6::header(protocol::TCP, 1, src, dst, 20);
        [&header[..], segment].concat()
    };
    let refused = [
        ("tcp.flags", "0x0014"),
        ("tcp.seq_raw", "0"),
        ("tcp.ack_raw", "257"),
    ];
    let cut = [
        ("tcp.flags", "0x0004"),
        ("tcp.seq_raw", "9"),
        ("tcp.ack_raw", "0"),
    ];
    let (from4, from6) = ([("ip.src", "10.9.0.1")], [("ipv6.src", "2001:db8:9::1")]);
    add(
        "reset for a SYN",
        &in_v4(&syn),
        &[refused.as_slice(), &from4].concat(),
    );
    add(
        "reset for data",
        &in_v4(&data),
        &[cut.as_slice(), &from4].concat(),
    );
    add(
        "reset for a SYN over IPv6",
        &in_v6(&syn),
        &[refused.as_slice(), &from6].concat(),
    );
    add(
        "reset for data over IPv6",
        &in_v6(&data),
        &[cut.as_slice(), &from6].concat(),
    );
}

#[test]
fn tshark_decodes_every_frame_without_errors() {
    if !has(&["tshark"]) {
        return;
    }
    let mut cases = Cases::default();
    neighbours(&mut cases);
    errors(&mut cases);
    resets(&mut cases);
    let folder = Scratch::new();
    let capture = folder.path().join("frames.pcap");
    let frames: Vec<_> = cases.0.iter().map(|case| &case.frame).collect();
    std::fs::write(&capture, linerate_testkit::capture::pcap(&frames)).unwrap();

    let statuses = ["ip", "icmp", "icmpv6", "tcp"].map(|layer| format!("{layer}.checksum.status"));
    let mut asked = vec!["_ws.expert.message", "_ws.expert.severity"];
    asked.extend(statuses.iter().map(String::as_str));
    let known = asked.len();
    for (field, _) in cases.0.iter().flat_map(|case| &case.fields) {
        if !asked.contains(field) {
            asked.push(field);
        }
    }
    let mut tshark = Command::new("tshark");
    tshark.arg("-nr").arg(&capture);
    tshark.args([
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "tcp.analyze_sequence_numbers:FALSE",
    ]);
    tshark.args(["-T", "fields", "-E", "occurrence=a"]);
    for field in &asked {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), cases.0.len());

    let mut wrong = Vec::new();
    for (case, line) in cases.0.iter().zip(text.lines()) {
        let found: Vec<&str> = line.split('\t').collect();
        let severities = found[1].split(',').filter_map(|number| number.parse().ok());
        let is_bad = severities.max().is_some_and(|worst: u32| worst >= WARNING);
        if is_bad && found[0] != RESET {
            wrong.push(format!("{}: {}", case.name, found[0]));
        }
        for (layer, status) in statuses.iter().zip(&found[2..known]) {
            // 1: good, also for a quoted packet.
            if !status.is_empty() && !status.split(',').all(|status| status == "1") {
                wrong.push(format!("{}: {layer} is {status}", case.name));
            }
        }
        for (field, wanted) in &case.fields {
            let column = asked.iter().position(|asked| asked == field).unwrap();
            if found[column] != wanted {
                wrong.push(format!(
                    "{}: {field} is {}, not {wanted}",
                    case.name, found[column]
                ));
            }
        }
    }
    println!("{} frames decoded", cases.0.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
