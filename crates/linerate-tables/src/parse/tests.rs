//! Every level equal to the wire parser, on common frames, each of their bytes changed, cut and
//! random ones; and what the checks say held against the wire crate's own checksums.

use super::*;
use linerate_core::packet::{Offload, Packet, Pool, PoolCache, PoolConfig};
use linerate_testkit::Random;
use linerate_wire::flow::FlowKey;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::tcp::Tcp;
use linerate_wire::udp::Udp;
use linerate_wire::{EtherType, Headers, protocol};
use proptest::prelude::*;

/// A frame, its flags, whatever comes: mostly sound, with right checksums.
pub(crate) fn frame(random: &mut Random) -> (Vec<u8>, Offload) {
    let mut frame = random.bytes(12);
    let tags = random.of(&[0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5]);
    for _ in 0..tags {
        let kind = random.of(&[
            EtherType::VLAN,
            EtherType::SERVICE_VLAN,
            EtherType::OLD_VLAN,
        ]);
        frame.extend(kind.0.to_be_bytes());
        frame.extend(random.bytes(2));
    }
    match random.below(20) {
        0 => {
            let length = random.below(120);
            frame.extend(random.bytes(length));
        }
        1 => frame.extend([0x08, 0x06].into_iter().chain(random.bytes(46))),
        2..=11 => ipv4(random, &mut frame),
        _ => ipv6(random, &mut frame),
    }
    fill_by_wire(&mut frame);
    if random.one_in(4) {
        let length = random.below(30);
        frame.extend(random.bytes(length)); // padding, not of zeros
    }
    if random.one_in(6) {
        let (at, bit) = (random.below(frame.len()), random.below(8));
        frame[at] ^= 1 << bit;
    }
    if random.one_in(8) {
        frame.truncate(random.below(frame.len() + 1));
    }
    let mut offload = Offload::NONE;
    if random.one_in(8) {
        offload.insert(Offload::CSUM_VALID | Offload::VLAN);
    }
    if random.one_in(8) {
        offload.insert(Offload::CSUM_PARTIAL);
    }
    (frame, offload)
}

fn payload_len(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(8),
        1 => random.below(64),
        2 => 6 + random.below(4),
        _ => random.below(1500),
    }
}

fn protocol(random: &mut Random) -> u8 {
    match random.below(8) {
        0..3 => protocol::TCP,
        3..6 => protocol::UDP,
        6 => random.of(&[
            protocol::ICMP,
            protocol::ICMPV6,
            protocol::SCTP,
            0,
            44,
            50,
            51,
        ]),
        _ => random.bits() as u8,
    }
}

fn upper_layer(random: &mut Random, protocol: u8) -> Vec<u8> {
    let length = payload_len(random);
    let payload = random.bytes(length);
    let mut header = random.bytes(20);
    match protocol {
        protocol::TCP => {
            header[12] = if random.one_in(8) { header[12] } else { 5 << 4 };
        }
        protocol::UDP => {
            header.truncate(8);
            let length = match random.below(10) {
                0 => random.below(8 + payload.len() + 4),
                _ => 8 + payload.len(),
            };
            header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {}
    }
    header.extend(payload);
    header
}

fn ipv4(random: &mut Random, frame: &mut Vec<u8>) {
    let protocol = protocol(random);
    let upper = upper_layer(random, protocol);
    let words = match random.below(8) {
        0 => random.below(16),
        _ => 5,
    };
    let mut header = random.bytes(words.max(5) * 4);
    header[0] = 0x40 | words as u8;
    let total = header.len() + upper.len();
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    if !random.one_in(8) {
        header[6..8].copy_from_slice(&[random.of(&[0, 0x40, 0x80]), 0]);
    }
    header[9] = protocol;
    if random.one_in(4) {
        header[8] = random.of(&[0, 1, 2]);
    }
    frame.extend([0x08, 0x00]);
    frame.extend(header);
    frame.extend(upper);
}

fn ipv6(random: &mut Random, frame: &mut Vec<u8>) {
    let protocol = protocol(random);
    let upper = upper_layer(random, protocol);
    let mut extensions = Vec::new();
    let mut next = protocol;
    for _ in 0..random.of(&[0, 0, 0, 0, 0, 1, 2, 9]) {
        let kind = random.of(&[0, 43, 44, 51, 60]);
        let mut header = random.bytes(8);
        header[..2].copy_from_slice(&[next, 0]);
        if kind == protocol::FRAGMENT && random.one_in(2) {
            header[2..4].fill(0);
        }
        extensions.splice(0..0, header);
        next = kind;
    }
    let length = extensions.len() + upper.len();
    let mut header = random.bytes(40);
    header[0] = 0x60 | header[0] & 0x0f;
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6] = next;
    if random.one_in(4) {
        header[7] = random.of(&[0, 1, 2]);
    }
    frame.extend([0x86, 0xdd]);
    frame.extend(header);
    frame.extend(extensions);
    frame.extend(upper);
}

/// Right checksums by the wire crate, where the frame is sound.
fn fill_by_wire(frame: &mut [u8]) {
    let Ok(headers) = linerate_wire::parse(frame) else {
        return;
    };
    if headers.ethertype == EtherType::IPV4 {
        Ipv4::new_checked(&mut frame[headers.l3..])
            .unwrap()
            .fill_checksum();
    }
    if let (Some(l4), Some(covered)) = (headers.l4, headers.covered(frame)) {
        let pseudo = covered.pseudo;
        let segment = &mut frame[l4..headers.end];
        match headers.protocol {
            Some(protocol::TCP) => Tcp::new_checked(segment).unwrap().fill_checksum(pseudo),
            Some(protocol::UDP) => Udp::new_checked(segment).unwrap().fill_checksum(pseudo),
            _ => {}
        }
    }
}

/// What the wire crate says of a packet's TCP or UDP checksum, where it is checked.
fn l4_by_wire(frame: &[u8], offload: Offload) -> Option<bool> {
    let headers = linerate_wire::parse(frame).ok()?;
    if ![Some(protocol::TCP), Some(protocol::UDP)].contains(&headers.protocol) {
        return None;
    }
    let covered = headers.covered(frame)?;
    match () {
        () if offload.intersects(Offload::CSUM_PARTIAL) => None,
        () if offload.intersects(Offload::CSUM_VALID) => Some(true),
        () => covered.is_right(linerate_wire::checksum::sum),
    }
}

/// A pool, and bursts of given frames from it.
struct Frames {
    pool: Pool,
    cache: PoolCache,
}

impl Frames {
    fn new() -> Self {
        let pool = Pool::new(&PoolConfig::new("parse", 256)).unwrap();
        let cache = PoolCache::new(std::slice::from_ref(&pool));
        Self { pool, cache }
    }

    fn burst(&mut self, frames: &[(Vec<u8>, Offload)]) -> Burst {
        let mut burst = Burst::new();
        let count = self.cache.fill(&self.pool, &mut burst, frames.len());
        assert_eq!(count, frames.len());
        for (packet, (frame, offload)) in burst.iter_mut().zip(frames) {
            assert!(packet.set_data(frame));
            packet.meta_mut().offload = *offload;
            (packet.meta_mut().l3_offset, packet.meta_mut().l4_offset) = (99, 99);
        }
        burst
    }

    /// Parses on every level and compares each packet with what the wire crate says of it.
    fn check(&mut self, frames: &[(Vec<u8>, Offload)]) {
        // That of the last frame that has one.
        let mut stations = frames.iter().filter_map(|(frame, _)| frame.first_chunk());
        let station = stations
            .next_back()
            .map_or(MacAddr([0; 6]), |&six| MacAddr(six));
        let asks = [
            Asked::Nothing,
            Asked::Network,
            Asked::Station(station),
            Asked::All,
        ];
        for level in Isa::detect().levels() {
            let parser = Parser::new(level);
            for asked in asks {
                let mut burst = self.burst(frames);
                let mut parsed = Parsed::new();
                parsed.class.other = Mask::MAX; // of the burst before
                match asked {
                    Asked::Nothing => parser.parse(&mut burst, &mut parsed),
                    Asked::Network => parser.parse_network(&mut burst, &mut parsed),
                    Asked::Station(station) => parser.parse_for(&mut burst, &mut parsed, station),
                    Asked::All => parser.parse_checked(&mut burst, &mut parsed),
                }
                for (index, packet) in burst.iter().enumerate() {
                    compare(packet, index, &parsed, asked).unwrap_or_else(|what| {
                        panic!("{level}, {asked:?}: {what} of {:02x?}", packet.data())
                    });
                }
                let bytes = frames.iter().map(|(frame, _)| frame.len() as u64).sum();
                let flags = frames.iter().map(|(_, offload)| *offload);
                let flags = flags.reduce(|all, one| all | one).unwrap_or_default();
                assert_eq!((parsed.bytes, parsed.offloads), (bytes, flags), "{level}");
                let beyond = Mask::MAX.checked_shl(frames.len() as u32).unwrap_or(0);
                let Checks {
                    ip_bad,
                    expired,
                    l4_good,
                    l4_bad,
                    l4_unchecked,
                } = parsed.checks;
                let checked = ip_bad | expired | l4_good | l4_bad | l4_unchecked;
                let Classes {
                    v4,
                    v6,
                    other,
                    group,
                    ours,
                    malformed,
                    ..
                } = parsed.class;
                assert_eq!(
                    (v4 | v6 | other | group | ours | malformed | checked) & beyond,
                    0,
                    "{level}"
                );
                self.cache.free(&mut burst);
            }
        }
    }
}

/// What the parser is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Nothing,
    Network,
    Station(MacAddr),
    All,
}

/// What a router takes a frame for: as the wire crate does, but for those that it takes for
/// malformed although their network header is sound.
fn headers_for(frame: &[u8], asked: Asked) -> Result<Headers, Malformed> {
    let reason = match linerate_wire::parse(frame) {
        Err(reason) if matches!(asked, Asked::Network | Asked::Station(_)) => reason,
        found => return found,
    };
    let at = linerate_wire::vlan::untagged(frame).map_err(|_| reason)?;
    let packet = &frame[at.offset..];
    let (length, protocol, is_fragment) = match at.ethertype {
        EtherType::IPV4 => {
            let ip = Ipv4::new_checked(packet).map_err(|_| reason)?;
            (ip.total_len(), ip.protocol(), ip.is_fragment())
        }
        EtherType::IPV6 => {
            let ip = Ipv6::new_checked(packet).map_err(|_| reason)?;
            (
                40 + ip.payload_len(),
                ip.next_header(),
                ip.next_header() == 44,
            )
        }
        _ => return Err(reason),
    };
    Ok(Headers {
        ethertype: at.ethertype,
        outer_tci: at.outer_tci,
        l3: at.offset,
        end: at.offset + length,
        protocol: Some(protocol),
        is_fragment,
        l4: None,
        ports: None,
    })
}

fn compare(packet: &Packet, i: usize, parsed: &Parsed, asked: Asked) -> Result<(), String> {
    let frame = packet.data();
    let is = |mask: Mask| mask >> i & 1 != 0;
    let class = &parsed.class;
    let (l3, l4) = (
        packet.meta().l3_offset.into(),
        packet.meta().l4_offset.into(),
    );
    let same = |what: &str, same: bool| if same { Ok(()) } else { Err(what.to_owned()) };
    let headers = headers_for(frame, asked);
    same("reason", parsed.reason(i) == headers.err())?;
    let mut life = None;
    if let Ok(headers) = headers {
        same("l3", headers.l3 == l3)?;
        same("l4", headers.l4.unwrap_or(0) == l4)?;
        same("end", headers.end == parsed.end[i] as usize)?;
        let tci = is(class.vlan).then_some(parsed.vlan_tci[i]);
        same("tag", headers.outer_tci == tci)?;
        let key = match (is(class.v4), is(class.v6)) {
            (true, false) => Some(FlowKey::V4(parsed.keys4[i])),
            (false, true) => Some(FlowKey::V6(parsed.keys6[i])),
            _ => None,
        };
        same("key", headers.flow_key(frame) == key)?;
        same("other", key.is_none() == is(class.other))?;
        let is_v4 = key.is_some_and(|key| matches!(key, FlowKey::V4(_)));
        let icmp = if is_v4 {
            protocol::ICMP
        } else {
            protocol::ICMPV6
        };
        for (what, class, number) in [
            ("tcp", class.tcp, protocol::TCP),
            ("udp", class.udp, protocol::UDP),
            ("icmp", class.icmp, icmp),
        ] {
            same(what, is(class) == (headers.protocol == Some(number)))?;
        }
        same("fragment", is(class.fragment) == headers.is_fragment)?;
        same("group", is(class.group) == (frame[0] & 1 == 1))?;
        if is(class.v4) {
            let ip = Ipv4::new_checked(&frame[headers.l3..]).unwrap();
            same("source", parsed.src4[i] == u32::from(ip.src()))?;
            same("destination", parsed.dst4[i] == u32::from(ip.dst()))?;
            same(
                "key's bytes",
                parsed.keys4_bytes(i + 1)[i] == parsed.keys4[i].0,
            )?;
            life = Some(frame[headers.l3 + 8]);
        }
        if is(class.v6) {
            life = Some(frame[headers.l3 + 7]);
        }
        let options = match headers.ethertype {
            EtherType::IPV4 => frame[headers.l3] != 0x45,
            EtherType::IPV6 => [0, 43, 44, 51, 60].contains(&frame[headers.l3 + 6]),
            _ => false,
        };
        same("options", is(class.options) == options)?;
        let station = match asked {
            Asked::Station(station) if key.is_some() => Some(station.0),
            _ => None,
        };
        let is_ours = station.is_some_and(|station| frame[..6] == station);
        same("ours", is(class.ours) == is_ours)?;
    } else {
        let Classes {
            v4,
            v6,
            tcp,
            udp,
            icmp,
            fragment,
            options,
            vlan,
            other,
            group,
            ours,
            ..
        } = *class;
        let any = v4 | v6 | tcp | udp | icmp | fragment | options | vlan | other | group | ours;
        same("classes", !is(any) && (l3, l4) == (0, 0))?;
    }
    let Checks {
        ip_bad,
        expired,
        l4_good,
        l4_bad,
        l4_unchecked,
    } = parsed.checks;
    let is_expired = asked != Asked::Nothing && life.is_some_and(|life| life <= 1);
    same("life", is(expired) == is_expired)?;
    let is_v4 = headers.is_ok_and(|headers| headers.ethertype == EtherType::IPV4);
    let ip = || Ipv4::new_checked(&frame[l3..]).unwrap().verify();
    let is_bad = asked != Asked::Nothing && is_v4 && !ip();
    same("IPv4 checksum", is(ip_bad) == is_bad)?;
    let l4 = l4_by_wire(frame, packet.meta().offload);
    let told = [l4_good, l4_bad, l4_unchecked].map(is);
    let expected = [l4 == Some(true), l4 == Some(false), l4.is_none()];
    same(
        "checks",
        told == expected.map(|is| is && asked == Asked::All),
    )
}

/// One frame of each common kind.
fn common() -> Vec<Vec<u8>> {
    let mut random = Random::new(1);
    let mut frames = Vec::new();
    for (v6, tagged, protocol) in [
        (false, false, 17),
        (false, false, 6),
        (false, true, 1),
        (true, false, 6),
        (true, true, 17),
        (true, false, 58),
    ] {
        let mut frame = random.bytes(12);
        if tagged {
            frame.extend([0x81, 0x00, 0x20, 0x07]);
        }
        let mut upper = random.bytes(27);
        if protocol == 17 {
            upper[4..6].copy_from_slice(&27_u16.to_be_bytes());
        }
        upper[12] = 5 << 4;
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, 27, protocol, 64]);
            frame.extend(random.bytes(32));
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 47, 1, 2, 0x40, 0, 64, protocol]);
            frame.extend(random.bytes(10));
        }
        frame.extend(upper);
        fill_by_wire(&mut frame);
        frames.push(frame);
    }
    frames
}

#[test]
fn the_kernels_do_all_common_frames_and_no_others() {
    let mut frames = Frames::new();
    let mut given: Vec<_> = common().into_iter().map(|f| (f, Offload::NONE)).collect();
    let expected = (1 << given.len()) - 1;
    let mut uncommon = common().remove(0);
    uncommon[14] = 0x46; // options
    given.push((uncommon, Offload::NONE));
    frames.check(&given);
    for level in Isa::detect().levels() {
        let mut burst = frames.burst(&given);
        let check = Check::All(simd::checksum::pick(level));
        let kernel = simd::parse::pick(level);
        let done = kernel(burst.as_packets_mut(), &mut Parsed::new(), check);
        assert_eq!(done, expected, "{level}");
        frames.cache.free(&mut burst);
    }
}

#[test]
fn every_value_of_every_byte_of_a_common_frame() {
    let mut frames = Frames::new();
    for frame in common() {
        for at in 12..frame.len() {
            for start in (0..=255_u8).step_by(64) {
                let changed = |value| {
                    let mut frame = frame.clone();
                    frame[at] = value;
                    (frame, Offload::NONE)
                };
                let burst: Vec<_> = (start..=start + 63).map(changed).collect();
                frames.check(&burst);
            }
        }
    }
}

#[test]
fn every_length_of_a_common_frame() {
    let mut frames = Frames::new();
    for frame in common() {
        for lengths in (0..=frame.len() + 20).collect::<Vec<_>>().chunks(64) {
            let cut = |length: &usize| {
                let mut frame = frame.clone();
                frame.resize(*length, 0xa5);
                (frame, Offload::NONE)
            };
            let burst: Vec<_> = lengths.iter().map(cut).collect();
            frames.check(&burst);
        }
    }
}

#[test]
fn a_router_forwards_what_is_broken_behind_the_network_header() {
    let mut frames = Frames::new();
    let mut given = common();
    given[0][14 + 24] ^= 1; // UDP's length
    given[1][14 + 32] = 0xf0; // TCP's header length
    given[3][14 + 6] = 0; // hop-by-hop options, longer than the packet
    given[3][14 + 41] = 200;
    let given: Vec<_> = [0, 1, 3]
        .map(|at: usize| (given[at].clone(), Offload::NONE))
        .into();
    for level in Isa::detect().levels() {
        let (parser, mut parsed) = (Parser::new(level), Parsed::new());
        let mut burst = frames.burst(&given);
        parser.parse(&mut burst, &mut parsed);
        assert_eq!(parsed.class.malformed, 0b111, "{level}");
        parser.parse_network(&mut burst, &mut parsed);
        let class = &parsed.class;
        assert_eq!(
            (class.malformed, class.v4, class.v6),
            (0, 0b011, 0b100),
            "{level}"
        );
        assert_eq!((class.udp, class.tcp, class.options), (1, 2, 4), "{level}");
        frames.cache.free(&mut burst);
    }
    frames.check(&given);
}

#[test]
fn an_empty_burst_has_nothing() {
    Frames::new().check(&[]);
}

fn random_bursts(seed: u64, bursts: usize) {
    let (mut random, mut frames) = (Random::new(seed), Frames::new());
    for _ in 0..bursts {
        let count = random.below(Burst::CAPACITY + 1);
        let burst: Vec<_> = (0..count).map(|_| frame(&mut random)).collect();
        frames.check(&burst);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_level_says_what_the_wire_parser_says(seed: u64) {
        random_bursts(seed, 16);
    }

    #[test]
    fn filled_checksums_are_right(seed: u64) {
        let (mut random, mut frames) = (Random::new(seed), Frames::new());
        let mut sound = |mut frame: Vec<u8>, offload| {
            if let Ok(headers) = linerate_wire::parse(&frame) {
                let at = headers.l3 + 10;
                if headers.ethertype == EtherType::IPV4 {
                    frame[at] ^= random.bits() as u8;
                }
            }
            (frame, offload)
        };
        let mut random = Random::new(!seed);
        let given: Vec<_> = (0..32).map(|_| frame(&mut random)).map(|(f, o)| sound(f, o)).collect();
        for level in Isa::detect().levels() {
            let mut burst = frames.burst(&given);
            let left = Checksums::new(level).fill(&mut burst);
            let mut parsed = Parsed::new();
            Parser::new(level).parse_checked(&mut burst, &mut parsed);
            let Checks { ip_bad, l4_bad, .. } = parsed.checks;
            prop_assert_eq!(ip_bad | l4_bad, 0, "{}", level);
            prop_assert_eq!(left, parsed.class.malformed | parsed.class.other);
            for (packet, (frame, offload)) in burst.iter().zip(&given) {
                let mut expected = frame.clone();
                if offload.intersects(Offload::CSUM_PARTIAL) {
                    continue;
                }
                fill_by_wire(&mut expected);
                prop_assert_eq!(packet.data(), &expected[..]);
            }
            frames.cache.free(&mut burst);
        }
    }

    #[test]
    fn partial_checksums_are_completed_as_the_wire_crate_does(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        start in 0_u16..220,
        offset in 0_u8..32,
        gso: bool,
    ) {
        let mut frames = Frames::new();
        for level in Isa::detect().levels() {
            let offload = match gso {
                true => Offload::CSUM_PARTIAL | Offload::GSO_TCP4,
                false => Offload::CSUM_PARTIAL,
            };
            let mut burst = frames.burst(&[(frame.clone(), offload)]);
            let meta = burst.as_packets_mut()[0].meta_mut();
            (meta.csum_start, meta.csum_offset) = (start, offset);
            let outside = Checksums::new(level).complete_partial(&mut burst);
            let mut expected = frame.clone();
            let fits = gso || linerate_wire::offload::complete_partial(&mut expected, start,
                offset.into());
            prop_assert_eq!(outside, Mask::from(!fits));
            let packet = &burst.as_packets()[0];
            prop_assert_eq!(packet.data(), &expected[..]);
            let is_left = packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
            prop_assert_eq!(is_left, gso || !fits);
            frames.cache.free(&mut burst);
        }
    }
}

#[test]
#[ignore = "long: three million packets"]
fn every_level_says_what_the_wire_parser_says_at_length() {
    for seed in 0..100 {
        println!("seed {seed}");
        random_bursts(seed, 1_000);
    }
}
