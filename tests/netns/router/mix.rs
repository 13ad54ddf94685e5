//! The packet mix for the comparison with the kernel: every kind of packet that a router may get,
//! the expected outcome, and differences from Linux with their reasons.
//!
//! All come in by one port. Every packet carries its number, repeated, which identifies it in the
//! output, also in fragments and ICMP errors.

use linerate_testkit::Random;
use linerate_testkit::frame::{
    self, BROADCAST, DF, ICMP, ICMP6, IPV4, IPV6, MF, Mac, TCP, UDP, V4, V6, checksum, ethernet,
};

/// The hosts' MAC addresses, and those of the router's ports.
pub(super) const HOST: Mac = [2, 0, 0, 0, 0, 1];
pub(super) const FAR: Mac = [2, 0, 0, 0, 0, 2];
pub(super) const ROUTER_A: Mac = [2, 0, 0, 0, 0, 0xa];
pub(super) const ROUTER_B: Mac = [2, 0, 0, 0, 0, 0xb];
/// MTU of the network that packets leave to.
pub(super) const MTU: usize = 1400;

/// How the kernel's output and ours relate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expect {
    /// The same frames, or none from either.
    Same,
    /// Only the kernel forwards these, because ...
    KernelOnly(&'static str),
    /// Only we forward these, because ...
    UsOnly(&'static str),
    /// Both forward them; other bytes differ, because ...
    Otherwise(&'static str),
}

/// One kind of packet.
pub(super) struct PacketKind {
    pub(super) name: &'static str,
    /// How often, against the others.
    weight: usize,
    pub(super) expect: Expect,
    make: fn(&mut Random, u32) -> Vec<u8>,
}

/// A packet of the mix.
pub(super) struct Case {
    pub(super) kind: &'static PacketKind,
    pub(super) frame: Vec<u8>,
}

/// So many packets, numbered by their index.
pub(super) fn cases(count: usize, dice: &mut Random) -> Vec<Case> {
    let all: usize = KINDS.iter().map(|kind| kind.weight).sum();
    let case = |number: usize| {
        // Each kind at least once.
        let kind = KINDS.get(number).unwrap_or_else(|| {
            let mut draw = dice.within(0..=all - 1);
            let mut kinds = KINDS.iter();
            loop {
                let kind = kinds.next().expect("the weights add up");
                match draw.checked_sub(kind.weight) {
                    Some(rest) => draw = rest,
                    None => break kind,
                }
            }
        });
        let frame = (kind.make)(dice, number as u32);
        Case { kind, frame }
    };
    (0..count).map(case).collect()
}

const MARK: [u8; 4] = [b'L', b'R', 0x5a, 0xa5];

/// Bytes that repeat a number: any 15 of them contain it.
fn marked(number: u32, len: usize) -> Vec<u8> {
    let word = [MARK, number.to_be_bytes()].concat();
    word.into_iter().cycle().take(len).collect()
}

/// The number of the packet that a frame is of.
pub(super) fn number_of(frame: &[u8]) -> Option<u32> {
    let at = frame.windows(4).position(|window| window == MARK)?;
    let digits = frame.get(at + 4..at + 8)?;
    Some(u32::from_be_bytes(digits.try_into().ok()?))
}

fn some_v4(dice: &mut Random) -> V4 {
    let mut packet = V4::new("10.60.0.0", "10.20.0.0", UDP);
    let [a, b] = [dice.within(0..=255) as u8, dice.within(1..=254) as u8];
    packet.src = [10, 60, a, b].into();
    let [a, b] = [dice.within(64..=255) as u8, dice.within(1..=254) as u8];
    packet.dst = [10, 20, a, b].into();
    packet.ttl = dice.within(2..=255) as u8;
    packet.id = dice.within(0..=65_535) as u16;
    packet.tos = dice.within(0..=255) as u8;
    packet.fragment = [0, DF][dice.within(0..=1)];
    packet.protocol = [UDP, UDP, TCP, TCP, ICMP, 253][dice.within(0..=5)];
    packet
}

fn some_v6(dice: &mut Random) -> V6 {
    let mut packet = V6::new("fd00:60::", "fd00:20::", UDP);
    let low = u128::from(dice.bits());
    packet.src = (u128::from(packet.src) | low).into();
    let low = u128::from(dice.bits());
    packet.dst = (u128::from(packet.dst) | 1 << 80 | low).into();
    packet.hop_limit = dice.within(2..=255) as u8;
    packet.class = dice.within(0..=255) as u8;
    packet.flow = dice.within(0..=0xf_ffff) as u32;
    packet.next = [UDP, UDP, TCP, TCP, ICMP6, 253][dice.within(0..=5)];
    packet
}

/// A transport segment of a protocol, marked; `len` counts what is behind its header.
fn segment(protocol: u8, pseudo: &[u8], dice: &mut Random, number: u32, len: usize) -> Vec<u8> {
    let [from, to] = [
        dice.within(1024..=65_535) as u16,
        dice.within(1..=1023) as u16,
    ];
    let data = marked(number, len);
    match protocol {
        UDP => frame::udp(pseudo, from, to, &data),
        TCP => frame::tcp(pseudo, from, to, &data),
        ICMP => frame::echo(from, to, &data),
        ICMP6 => frame::echo6(pseudo, from, to, &data),
        _ => data,
    }
}

/// Short ones mostly, as on the Internet; all fit.
fn usual_len(dice: &mut Random) -> usize {
    match dice.within(0..=3) {
        0 => dice.within(16..=40),
        1 => dice.within(16..=200),
        2 => dice.within(200..=1200),
        _ => dice.within(1200..=MTU - 60),
    }
}

/// A frame to the router with an IPv4 packet, changed from the usual before it is made.
fn four(dice: &mut Random, number: u32, change: impl FnOnce(&mut V4, &mut Random)) -> Vec<u8> {
    let len = usual_len(dice);
    four_of(dice, number, len, change)
}

fn four_of(
    dice: &mut Random,
    number: u32,
    len: usize,
    change: impl FnOnce(&mut V4, &mut Random),
) -> Vec<u8> {
    let mut packet = some_v4(dice);
    change(&mut packet, dice);
    let len = len.min(MTU.max(len) - packet.options.len());
    let payload = segment(packet.protocol, &packet.pseudo(), dice, number, len);
    ethernet(ROUTER_A, HOST, IPV4, &packet.packet(&payload))
}

fn six(dice: &mut Random, number: u32, change: impl FnOnce(&mut V6, &mut Random)) -> Vec<u8> {
    let len = usual_len(dice);
    six_of(dice, number, len, change)
}

fn six_of(
    dice: &mut Random,
    number: u32,
    len: usize,
    change: impl FnOnce(&mut V6, &mut Random),
) -> Vec<u8> {
    let mut packet = some_v6(dice);
    change(&mut packet, dice);
    let payload = segment(packet.next, &packet.pseudo(), dice, number, len);
    ethernet(ROUTER_A, HOST, IPV6, &packet.packet(&payload))
}

/// The same with an extension header in front of UDP.
fn extended(dice: &mut Random, number: u32, next: u8, header: &[u8]) -> Vec<u8> {
    let mut packet = some_v6(dice);
    packet.next = next;
    let len = dice.within(16..=1000);
    let segment = segment(UDP, &packet.pseudo(), dice, number, len);
    let payload = [&[UDP][..], header, &segment].concat();
    ethernet(ROUTER_A, HOST, IPV6, &packet.packet(&payload))
}

/// IPv4 with a header that is changed afterwards, with its checksum updated.
fn bent(dice: &mut Random, number: u32, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = four(dice, number, |_, _| {});
    change(&mut frame[14..34]);
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn to4(dst: [u8; 4]) -> impl FnOnce(&mut V4, &mut Random) {
    move |packet, _| packet.dst = dst.into()
}

fn from4(src: [u8; 4]) -> impl FnOnce(&mut V4, &mut Random) {
    move |packet, _| packet.src = src.into()
}

fn to6(dst: &str) -> impl FnOnce(&mut V6, &mut Random) {
    let dst = dst.parse().unwrap();
    move |packet, _| packet.dst = dst
}

fn from6(src: &str) -> impl FnOnce(&mut V6, &mut Random) {
    let src = src.parse().unwrap();
    move |packet, _| packet.src = src
}

fn option(bytes: &'static [u8]) -> impl FnOnce(&mut V4, &mut Random) {
    move |packet, _| {
        packet.options = bytes.to_vec();
        packet.fragment = DF;
    }
}

const fn same(
    name: &'static str,
    weight: usize,
    make: fn(&mut Random, u32) -> Vec<u8>,
) -> PacketKind {
    PacketKind {
        name,
        weight,
        expect: Expect::Same,
        make,
    }
}

const fn differs(
    name: &'static str,
    expect: Expect,
    make: fn(&mut Random, u32) -> Vec<u8>,
) -> PacketKind {
    PacketKind {
        name,
        weight: 1,
        expect,
        make,
    }
}

const CLASS_E: &str = "Linux takes 240.0.0.0/4 for unicast; RFC 1812 5.3.7 and 4.2.2.11 do not";
const OWN6: &str = "Linux looks for its own addresses among the sources of IPv4 alone; RFC 1812 \
    5.3.8's reasons are as good";
const CLOCK: &str = "RFC 1812 5.2.4.3: each writes when it was asked";
const HOP_BY_HOP: &str =
    "RFC 8200 4: a router that is not told to does not look at hop-by-hop options";

/// All kinds.
#[rustfmt::skip]
pub(super) const KINDS: &[PacketKind] = &[
    same("IPv4", 400, |dice, number| four(dice, number, |_, _| {})),
    same("IPv6", 300, |dice, number| six(dice, number, |_, _| {})),
    same("IPv4 with bytes behind its end", 20, |dice, number| {
        let mut frame = four(dice, number, |_, _| {});
        frame.extend(vec![0xee; dice.within(1..=40)]);
        frame
    }),
    same("IPv6 with bytes behind its end", 20, |dice, number| {
        let mut frame = six(dice, number, |_, _| {});
        frame.extend(vec![0xee; dice.within(1..=40)]);
        frame
    }),
    same("UDP without a checksum", 10, |dice, number| {
        let mut frame = four(dice, number, |packet, _| packet.protocol = UDP);
        frame[40..42].fill(0);
        frame
    }),
    same("neighbour's own address", 10, |dice, number| four(dice, number, to4([10, 2, 0, 2]))),
    same("neighbour's own IPv6 address", 10, |dice, number| six(dice, number, to6("fd00:2::2"))),
    // Fragments made by other nodes.
    same("first fragment", 5, |dice, number| four(dice, number, |packet, _| packet.fragment = MF)),
    same("middle fragment", 5, |dice, number| four(dice, number, |packet, dice| {
        packet.fragment = MF | dice.within(1..=2000) as u16;
        packet.protocol = 253;
    })),
    same("last fragment", 5, |dice, number| four(dice, number, |packet, dice| {
        packet.fragment = dice.within(1..=2000) as u16;
        packet.protocol = 253;
    })),
    same("IPv6 fragment", 5, |dice, number| extended(dice, number, 44, &[0, 0, 1, 0, 0, 0, 7])),
    // To be fragmented by us.
    same("longer than the next MTU", 10, |dice, number| {
        let len = dice.within(MTU..=1440);
        four_of(dice, number, len, |packet, _| packet.fragment = 0)
    }),
    same("fragment longer than the next MTU", 5, |dice, number| {
        let len = dice.within(MTU / 8..=180) * 8;
        four_of(dice, number, len, |packet, _| {
            packet.fragment = MF | 16;
            packet.protocol = 253;
        })
    }),
    // Errors.
    same("longer than the next MTU, not to be cut", 1, |dice, number| {
        let len = dice.within(MTU..=1440);
        four_of(dice, number, len, |packet, _| packet.fragment = DF)
    }),
    same("IPv6 longer than the next MTU", 1, |dice, number| {
        let len = dice.within(MTU..=1440);
        six_of(dice, number, len, |_, _| {})
    }),
    same("TTL 1", 1, |dice, number| four(dice, number, |packet, _| packet.ttl = 1)),
    same("TTL 0", 1, |dice, number| four(dice, number, |packet, _| packet.ttl = 0)),
    same("hop limit 1", 1, |dice, number| six(dice, number, |packet, _| packet.hop_limit = 1)),
    same("hop limit 0", 1, |dice, number| six(dice, number, |packet, _| packet.hop_limit = 0)),
    same("unreachable", 1, |dice, number| four(dice, number, to4([10, 20, 31, 1]))),
    same("prohibited", 1, |dice, number| four(dice, number, to4([10, 20, 32, 1]))),
    same("no route", 1, |dice, number| four(dice, number, to4([198, 51, 100, 1]))),
    same("IPv6 unreachable", 1, |dice, number| six(dice, number, to6("fd00:20:31::1"))),
    same("IPv6 prohibited", 1, |dice, number| six(dice, number, to6("fd00:20:32::1"))),
    same("IPv6 no route", 1, |dice, number| six(dice, number, to6("2001:db8::1"))),
    // Dropped silently.
    same("blackhole", 3, |dice, number| four(dice, number, to4([10, 20, 30, 1]))),
    same("IPv6 blackhole", 3, |dice, number| six(dice, number, to6("fd00:20:30::1"))),
    same("wrong checksum", 5, |dice, number| {
        let mut frame = four(dice, number, |_, _| {});
        frame[24] ^= dice.within(1..=255) as u8;
        frame
    }),
    same("version 5", 2, |dice, number| bent(dice, number, |header| header[0] = 0x55)),
    same("version 6 as IPv4", 2, |dice, number| bent(dice, number, |header| header[0] = 0x65)),
    same("header length below 5", 2, |dice, number| bent(dice, number, |header| header[0] = 0x44)),
    same("total length below the header", 2, |dice, number| bent(dice, number, |header| header[2..4].copy_from_slice(&[0, 19]))),
    same("total length beyond the frame", 2, |dice, number| bent(dice, number, |header| header[2..4].copy_from_slice(&[9, 0]))),
    same("IPv6 version 5", 2, |dice, number| {
        let mut frame = six(dice, number, |_, _| {});
        frame[14] = 0x50 | frame[14] & 15;
        frame
    }),
    same("IPv6 length beyond the frame", 2, |dice, number| {
        let mut frame = six(dice, number, |_, _| {});
        frame[18..20].copy_from_slice(&[9, 0]);
        frame
    }),
    same("cut off in the header", 2, |dice, number| four(dice, number, |_, _| {})[..30].to_vec()),
    same("IPv6 cut off in the header", 2, |dice, number| six(dice, number, |_, _| {})[..50].to_vec()),
    same("an ethertype for experiments", 2, |_, number| ethernet(ROUTER_A, HOST, 0x88b5, &marked(number, 64))),
    // Not to our MAC address, or not by unicast (RFC 1812 5.3.4).
    same("another's MAC address", 2, |dice, number| {
        let mut frame = four(dice, number, |_, _| {});
        frame[5] = 0x77;
        frame
    }),
    same("by link broadcast", 2, |dice, number| {
        let mut frame = four(dice, number, |_, _| {});
        frame[..6].copy_from_slice(&BROADCAST);
        frame
    }),
    same("by link multicast", 2, |dice, number| {
        let mut frame = four(dice, number, |_, _| {});
        frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 2, 3]);
        frame
    }),
    same("IPv6 by link multicast", 2, |dice, number| {
        let mut frame = six(dice, number, |_, _| {});
        frame[..6].copy_from_slice(&[0x33, 0x33, 0, 1, 2, 3]);
        frame
    }),
    // Martians (RFC 1812 5.3.7), and packets that are not forwarded.
    same("from loopback", 2, |dice, number| four(dice, number, from4([127, 0, 0, 1]))),
    same("from nobody", 2, |dice, number| four(dice, number, from4([0, 0, 0, 0]))),
    same("from multicast", 2, |dice, number| four(dice, number, from4([224, 1, 1, 1]))),
    same("from broadcast", 2, |dice, number| four(dice, number, from4([255; 4]))),
    same("from the router itself", 2, |dice, number| four(dice, number, from4([10, 1, 0, 1]))),
    same("from the router's other address", 2, |dice, number| four(dice, number, from4([10, 2, 0, 1]))),
    same("to loopback", 2, |dice, number| four(dice, number, to4([127, 0, 0, 1]))),
    same("to multicast", 2, |dice, number| four(dice, number, to4([239, 1, 1, 1]))),
    same("to broadcast", 2, |dice, number| four(dice, number, to4([255; 4]))),
    same("to the next network's broadcast", 2, |dice, number| four(dice, number, to4([10, 2, 0, 255]))),
    differs("from class E", Expect::KernelOnly(CLASS_E), |dice, number| four(dice, number, from4([240, 1, 1, 1]))),
    same("IPv6 from loopback", 2, |dice, number| six(dice, number, from6("::1"))),
    same("IPv6 from nobody", 2, |dice, number| six(dice, number, from6("::"))),
    same("IPv6 from multicast", 2, |dice, number| six(dice, number, from6("ff0e::1"))),
    same("IPv6 from the link", 2, |dice, number| six(dice, number, from6("fe80::99"))),
    differs("IPv6 from the router itself", Expect::KernelOnly(OWN6), |dice, number| six(dice, number, from6("fd00:1::1"))),
    differs("IPv6 from the router's other address", Expect::KernelOnly(OWN6), |dice, number| six(dice, number, from6("fd00:2::1"))),
    same("IPv6 to loopback", 2, |dice, number| six(dice, number, to6("::1"))),
    same("IPv6 to multicast", 2, |dice, number| six(dice, number, to6("ff0e::1:2"))),
    // Options.
    same("option: nothing", 5, |dice, number| four(dice, number, option(&[1, 1, 1, 0]))),
    same("option: record route", 5, |dice, number| four(dice, number, option(&[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]))),
    same("option: record route, one recorded", 3, |dice, number| four(dice, number, option(&[7, 11, 8, 10, 9, 9, 9, 0, 0, 0, 0, 0]))),
    same("option: record route, full", 3, |dice, number| four(dice, number, option(&[7, 7, 8, 10, 9, 9, 9, 0]))),
    differs("option: timestamps", Expect::Otherwise(CLOCK), |dice, number| {
        four(dice, number, option(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]))
    }),
    same("option: timestamps, full", 2, |dice, number| {
        four(dice, number, option(&[68, 8, 9, 0x10, 1, 2, 3, 4]))
    }),
    same("option: router alert", 2, |dice, number| four(dice, number, option(&[148, 4, 0, 0]))),
    same("option: unknown", 3, |dice, number| four(dice, number, option(&[0x5e, 4, 7, 7]))),
    same("option: longer than the header", 2, |dice, number| four(dice, number, option(&[0x5e, 9, 7, 7]))),
    same("option: loose source route", 3, |dice, number| four(dice, number, option(&[131, 7, 4, 10, 2, 0, 2, 0]))),
    // Extension headers.
    same("hop-by-hop: padding", 5, |dice, number| extended(dice, number, 0, &[0, 1, 4, 0, 0, 0, 0])),
    same("hop-by-hop: unknown, to be skipped", 3, |dice, number| extended(dice, number, 0, &[0, 0x1e, 4, 0, 0, 0, 0])),
    differs("hop-by-hop: unknown, to be dropped", Expect::UsOnly(HOP_BY_HOP), |dice, number| {
        extended(dice, number, 0, &[0, 0x5e, 4, 0, 0, 0, 0])
    }),
    same("destination options", 5, |dice, number| extended(dice, number, 60, &[0, 0x5e, 4, 0, 0, 0, 0])),
    same("routing header", 5, |dice, number| extended(dice, number, 43, &[0, 4, 0, 0, 0, 0, 0])),
    same("nothing behind the header", 3, |dice, number| {
        let mut packet = some_v6(dice);
        packet.next = 59;
        ethernet(ROUTER_A, HOST, IPV6, &packet.packet(&marked(number, 40)))
    }),
];
