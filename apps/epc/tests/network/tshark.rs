//! Every message of GTP-C, GTP-U and Diameter that the nodes say, as tshark reads it: none is
//! malformed, and none makes it wonder.

use crate::location::{connect, locate};
use crate::world::{ByApplication, HSS, Kind, MME, NET, PGW, SECOND, SGW, Said, World, packet};
use linerate_epc::Link;
use linerate_epc::ran::State;
use linerate_testkit::{Scratch, capture, has};
use linerate_wire::{checksum, diameter, gtpc, gtpu, protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

/// An Ethernet frame with an IPv4 packet.
fn ethernet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let ip = linerate_wire::ipv4::header(1, 64, protocol, from, to, payload.len() as u16);
    [&[2; 12][..], &[8, 0], &ip, payload].concat()
}

pub(crate) fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() + 8) as u16;
    let words = [from.1, to.1, len, 0].map(u16::to_be_bytes).concat();
    ethernet(from.0, to.0, protocol::UDP, &[&words, payload].concat())
}

/// Diameter on a connection, each message a segment; `next` are the sequence numbers to come.
fn tcp(is_to_hss: bool, port: u16, next: &mut [u32; 2], payload: &[u8]) -> Vec<u8> {
    let (from, to) = match is_to_hss {
        true => ((MME, port), (HSS, diameter::PORT)),
        false => ((HSS, diameter::PORT), (MME, port)),
    };
    let (own, other) = match is_to_hss {
        true => (0, 1),
        false => (1, 0),
    };
    let ports = [from.1, to.1].map(u16::to_be_bytes).concat();
    let numbers = [next[own], next[other]].map(u32::to_be_bytes).concat();
    next[own] += payload.len() as u32;
    let rest = [0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0];
    let mut segment = [&ports, &numbers, &rest[..], payload].concat();
    let (src, dst, len) = (from.0.octets(), to.0.octets(), segment.len() as u16);
    let pseudo = checksum::pseudo_v4(src, dst, protocol::TCP, len);
    let sum = !checksum::add(pseudo, checksum::sum(&segment));
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ethernet(from.0, to.0, protocol::TCP, &segment)
}

/// The frames of what was said.
fn frames(record: &[Said]) -> Vec<Vec<u8>> {
    let mut numbers = BTreeMap::new();
    let frame = |said: &Said| match said.link {
        Link::Gtpc(to) => {
            let source = (*said.source.ip(), gtpc::PORT);
            Some(udp(source, (*to.ip(), gtpc::PORT), &said.bytes))
        }
        Link::Gtpu(to) => {
            let source = (*said.source.ip(), gtpu::PORT);
            Some(udp(source, (*to.ip(), gtpu::PORT), &said.bytes))
        }
        Link::S6a(number) => {
            let next = numbers.entry(number).or_insert([1000, 1000]);
            let is_to_hss = said.from == Kind::Mme;
            Some(tcp(is_to_hss, 40_000 + number, next, &said.bytes))
        }
        _ => None,
    };
    record.iter().filter_map(frame).collect()
}

/// Runs tshark over frames, with a filter and fields; its lines.
pub(crate) fn tshark(file: &str, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file]).args(arguments);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn tshark_reads_every_message() {
    if !has(&["tshark"]) {
        return;
    }
    let mut world = World::<ByApplication>::new(20, 2, 6);
    // Connections and capabilities once more, for the record.
    world.record = Some(Vec::new());
    world.connect_hss();
    world.run(SECOND);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(10 * SECOND);
    let ids = world.ids();
    for &id in &ids {
        let address = world
            .user(id, |ran, _, _| ran.address(id))
            .unwrap()
            .octets();
        let up = packet(address, NET, 1);
        world.user(id, |ran, now, out| ran.send(now, id, &up, out));
        world.deliver(Kind::Pgw, Link::Sgi, packet(NET, address, 2));
    }
    world.drive(State::Idle, |ran, now, id, out| ran.go_idle(now, id, out));
    let address = world
        .user(ids[0], |ran, _, _| ran.address(ids[0]))
        .unwrap()
        .octets();
    world.deliver(Kind::Pgw, Link::Sgi, packet(NET, address, 3));
    world.run(20 * SECOND);
    // One who is not found: its base station's connection is closed.
    let lost = world.ids()[1];
    let address = world
        .user(lost, |ran, _, _| ran.address(lost))
        .unwrap()
        .octets();
    world.mute_paging = true;
    world.deliver(Kind::Pgw, Link::Sgi, packet(NET, address, 4));
    world.run(30 * SECOND);
    world.mute_paging = false;
    // Echoes, watchdogs, an unknown tunnel, unknown sessions, another version.
    world.run(200 * SECOND);
    let inner = packet([9, 9, 9, 9], NET, 5);
    let stranger = [&gtpu::header(0x0abc, inner.len() as u16)[..], &inner].concat();
    for to in [SGW, PGW] {
        let link = Link::Gtpu(SocketAddrV4::new(to, gtpu::PORT));
        world.send(Kind::Sgw, link, stranger.clone());
        world.send(Kind::Sgw, link, vec![0x32, 1, 0, 4, 0, 0, 0, 0, 0, 9, 0, 0]);
        let link = Link::Gtpc(SocketAddrV4::new(to, gtpc::PORT));
        world.send(Kind::Mme, link, vec![0x32, 1, 0, 4, 0, 0, 0, 0, 0, 9, 0, 0]);
        for kind in [34, 36] {
            let bytes = vec![0x48, kind, 0, 8, 0, 0, 0x12, 0x34, 0, 0, kind, 0];
            world.send(Kind::Mme, link, bytes);
        }
    }
    world.run(SECOND);
    world.drive(State::Off, |ran, now, id, out| {
        ran.detach(now, id, out) || ran.service(now, id, out)
    });
    world.assert_empty();
    // One who comes to another MME: the HSS cancels where it was. Then that MME goes down.
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(10 * SECOND);
    let user = world.user(ids[0], |ran, _, _| ran.imsi(ids[0])).unwrap();
    connect(&mut world, 10, "mme2.linerate");
    locate(&mut world, 10, "mme2.linerate", user);
    world.run(10 * SECOND);
    world.disconnect_mme();

    let mut record = world.record.take().unwrap();
    // What we sent in the strangers' stead is not what nodes say.
    record.retain(|said| said.bytes[..2] != [0x32, 1] || !matches!(said.link, Link::Gtpc(_)));
    let scratch = Scratch::new();
    let file = scratch.write("epc.pcap", capture::pcap(&frames(&record)));
    let strange = "_ws.malformed || _ws.expert.severity >= 0x00400000 || _ws.unreassembled";
    let fields = [
        "-T",
        "fields",
        "-e",
        "frame.number",
        "-e",
        "_ws.col.Info",
        "-e",
    ];
    let arguments = [&["-Y", strange][..], &fields, &["_ws.expert.message"]].concat();
    let found = tshark(&file, &arguments);
    assert!(found.is_empty(), "tshark wonders:\n{}", found.join("\n"));

    // It knew all of them, and all kinds there are were among them.
    let kinds = |field: &str| -> BTreeSet<String> {
        let lines = tshark(&file, &["-T", "fields", "-e", field]);
        let values = lines.iter().flat_map(|line| line.split(','));
        values
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let known = |values: &[u32]| values.iter().map(u32::to_string).collect::<BTreeSet<_>>();
    let control = [1, 2, 3, 32, 33, 34, 35, 36, 37, 70, 170, 171, 176, 177];
    assert_eq!(kinds("gtpv2.message_type"), known(&control));
    let commands = [257, 280, 282, 316, 317, 318, 321];
    assert_eq!(kinds("diameter.cmd.code"), known(&commands));
    let user: BTreeSet<_> = ["0x01", "0x02", "0x1a", "0xff"].map(str::to_owned).into();
    assert_eq!(kinds("gtp.message"), user);
    let lines = tshark(&file, &["-T", "fields", "-e", "_ws.col.Protocol"]);
    assert_eq!(lines.len(), frames(&record).len());
    let others: Vec<_> = lines
        .iter()
        .filter(|line| !line.contains("GTP") && !line.contains("DIAMETER"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}
