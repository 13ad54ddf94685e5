//! What is joined is cut into the same frames again, and what must not be joined is not.

use super::*;
use crate::bytes::put16;
use crate::{EtherType, checksum, ipv4::Ipv4, ipv6::Ipv6, parse, tcp, tcp::flag, vlan};
use etherparse::PacketBuilder;
use proptest::prelude::*;
use std::vec::Vec;

/// What a test changes of a segment.
#[derive(Clone, Debug)]
struct Segment {
    v6: bool,
    tag: bool,
    seq: u32,
    ident: u16,
    len: usize,
    flags: u8,
    timestamp: u8,
    ttl: u8,
}

const USUAL: Segment = Segment {
    v6: false,
    tag: false,
    seq: u32::MAX - 2000,
    ident: 0xffff,
    len: 1000,
    flags: flag::ACK,
    timestamp: 7,
    ttl: 64,
};

impl Segment {
    /// So many after this one, as one sender sends them.
    fn after(&self, number: usize) -> Self {
        let seq = self.seq.wrapping_add((number * self.len) as u32);
        let ident = self.ident.wrapping_add(number as u16);
        Self {
            seq,
            ident,
            ..*self
        }
    }

    /// The frame, its checksums right.
    fn frame(&self) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = match self.v6 {
            false => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], self.ttl),
            true => builder.ipv6([0xfd; 16], [0xfe; 16], self.ttl),
        };
        let time = [1, 1, 8, 10, 0, 0, 0, self.timestamp, 0, 0, 0, 9];
        let payload: Vec<u8> = (0..self.len)
            .map(|at| (at as u8) ^ self.seq as u8)
            .collect();
        let mut frame = Vec::new();
        let tcp = ip.tcp(1000, 2000, self.seq, 8192).ack(9);
        let tcp = tcp.options_raw(&time).unwrap();
        tcp.write(&mut frame, &payload).unwrap();
        let l4 = if self.v6 { 54 } else { 34 };
        frame[l4 + 13] = self.flags;
        if !self.v6 {
            frame[18..20].copy_from_slice(&self.ident.to_be_bytes());
        }
        finish(&mut frame);
        if self.tag {
            frame.splice(0..0, [0; vlan::TAG_LEN]);
            assert!(vlan::insert(&mut frame, EtherType::VLAN, 5));
        }
        frame
    }
}

/// Makes both checksums right.
fn finish(frame: &mut [u8]) {
    let headers = parse(frame).unwrap();
    let (l3, l4) = (headers.l3, headers.l4.unwrap());
    let pseudo = if headers.ethertype == EtherType::IPV4 {
        let mut ip = Ipv4::new_checked(&mut frame[l3..]).unwrap();
        ip.fill_checksum();
        ip.pseudo_sum()
    } else {
        let ip = Ipv6::new_checked(&frame[l3..]).unwrap();
        ip.pseudo_sum(&ip.upper_layer().unwrap())
    };
    put16(&mut frame[l4..], 16, 0);
    let value = !checksum::add(pseudo, checksum::sum(&frame[l4..headers.end]));
    put16(&mut frame[l4..], 16, value);
}

/// Joins each frame with the one before it where that goes: the joined frames, and how they are
/// cut.
fn join(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, u16, usize)> {
    let mut joints: Vec<(Joint, Vec<u8>)> = Vec::new();
    for frame in frames {
        let FrameClass::Segment(layout) = FrameClass::of(frame) else {
            panic!("{:?}", FrameClass::of(frame));
        };
        assert!(layout.verify_header(frame) && layout.verify_tcp(frame));
        let payload = &frame[layout.payload()..];
        if let Some((joint, body)) = joints.last_mut()
            && joint.push(frame, layout)
        {
            body.extend(payload);
        } else {
            joints.push((Joint::begin(frame, layout), payload.to_vec()));
        }
    }
    let finished = joints.into_iter().map(|(mut joint, body)| {
        let (gso_size, segments) = (joint.gso_size(), joint.segments());
        ([joint.finish(), &body[..]].concat(), gso_size, segments)
    });
    finished.collect()
}

/// Cuts them again.
fn cut(joined: &[(Vec<u8>, u16, usize)]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (frame, gso_size, count) in joined {
        let mut segments = Segments::new(frame, *gso_size).unwrap();
        assert_eq!(segments.remaining(), *count);
        let mut buffer = [0; 70_000];
        while let Some(len) = segments.write_next(&mut buffer) {
            frames.push(buffer[..len].to_vec());
        }
    }
    frames
}

/// How many segments each joined frame has.
fn shape(segments: &[Segment]) -> Vec<usize> {
    let frames: Vec<_> = segments.iter().map(Segment::frame).collect();
    let joined = join(&frames);
    assert_eq!(cut(&joined), frames, "{segments:?}");
    joined.into_iter().map(|(.., count)| count).collect()
}

#[test]
fn a_stream_is_joined_over_wrapping_numbers() {
    for (v6, tag) in [(false, false), (true, false), (false, true), (true, true)] {
        let first = Segment { v6, tag, ..USUAL };
        let stream: Vec<_> = (0..40).map(|number| first.after(number)).collect();
        assert_eq!(shape(&stream), [40]);
    }
}

#[test]
fn a_joined_frames_checksum_is_left_unfinished() {
    let frames: Vec<_> = (0..3).map(|number| USUAL.after(number).frame()).collect();
    let (mut joined, ..) = join(&frames).remove(0);
    assert_eq!(looks_partial(&joined), Some((34, 16)));
    assert!(complete_partial(&mut joined, 34, 16));
    let ip = Ipv4::new_checked(&joined[14..]).unwrap();
    let tcp = tcp::Tcp::new_checked(ip.payload()).unwrap();
    assert!(ip.verify() && tcp.verify(ip.pseudo_sum()));
}

/// One after another: which of five segments is different, in what, and how they are joined then.
#[test]
fn what_differs_is_not_joined() {
    let five = |change: &dyn Fn(&mut [Segment])| {
        let mut stream: Vec<_> = (0..5).map(|number| USUAL.after(number)).collect();
        change(&mut stream);
        shape(&stream)
    };
    let (psh, fin) = (flag::ACK | flag::PSH, flag::ACK | flag::FIN | flag::PSH);
    assert_eq!(five(&|_| {}), [5]);
    assert_eq!(five(&|s| s[2].flags = psh), [3, 2], "PSH ends a frame");
    assert_eq!(five(&|s| s[0].flags = psh), [1, 4]);
    assert_eq!(five(&|s| s[4].flags = fin), [5], "FIN may be the last");
    assert_eq!(five(&|s| s[2].flags |= flag::CWR), [2, 3], "CWR begins one");
    assert_eq!(five(&|s| s[0].flags |= flag::CWR), [5]);
    assert_eq!(five(&|s| s[2].flags |= flag::ECE), [2, 1, 2]);
    assert_eq!(
        five(&|s| s[2..].iter_mut().for_each(|s| s.flags |= flag::ECE)),
        [2, 3]
    );
    assert_eq!(
        five(&|s| s[2].timestamp = 8),
        [2, 1, 2],
        "timestamps are kept"
    );
    assert_eq!(five(&|s| s[2].ttl = 63), [2, 1, 2]);
    assert_eq!(
        five(&|s| s[2].ident = s[2].ident.wrapping_add(100)),
        [2, 1, 2]
    );
    assert_eq!(
        five(&|s| s.iter_mut().for_each(|s| s.ident = 0)),
        [1; 5],
        "RFC 6864"
    );
    assert_eq!(five(&|s| s[4].len = 3), [5], "the last may be shorter");
    assert_eq!(five(&|s| s[4].len = 1001), [4, 1], "but not longer");
    assert_eq!(five(&|s| s[2].len = 999), [3, 2]);
    assert_eq!(
        five(&|s| s[2].seq = s[2].seq.wrapping_add(1)),
        [2, 1, 2],
        "a byte is missing"
    );
    assert_eq!(five(&|s| s.swap(1, 2)), [1, 1, 1, 2], "out of order");
    assert_eq!(five(&|s| s[2].tag = true), [2, 1, 2]);
    assert_eq!(five(&|s| s[2].v6 = true), [2, 1, 2]);
}

#[test]
fn no_more_than_a_packets_length_can_say() {
    for (v6, most) in [(false, 65), (true, 65)] {
        let first = Segment { v6, ..USUAL };
        let stream: Vec<_> = (0..100).map(|number| first.after(number)).collect();
        assert_eq!(shape(&stream), [most, 100 - most]);
    }
    // 32 bytes of TCP header; IPv4 counts its own 20 too.
    let fits = |v6, last| {
        let first = Segment {
            v6,
            len: 21_000,
            ..USUAL
        };
        let mut stream: Vec<_> = (0..4).map(|number| first.after(number)).collect();
        stream[3].len = last;
        shape(&stream)
    };
    assert_eq!(fits(false, 65_535 - 52 - 63_000), [4]);
    assert_eq!(fits(false, 65_535 - 51 - 63_000), [3, 1]);
    assert_eq!(fits(true, 65_535 - 32 - 63_000), [4]);
    assert_eq!(fits(true, 65_535 - 31 - 63_000), [3, 1]);
}

#[test]
fn what_is_no_plain_segment_is_seen() {
    let frame = USUAL.frame();
    let alone = |frame: &[u8]| matches!(FrameClass::of(frame), FrameClass::Alone(_));
    let changed = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        frame
    };
    for flags in [flag::SYN, flag::RST, flag::URG] {
        assert!(alone(&changed(47, flag::ACK | flags)));
    }
    assert!(
        alone(&Segment { len: 0, ..USUAL }.frame()),
        "an acknowledgment"
    );
    assert!(alone(&[&frame[..], &[0]].concat()), "padding");
    let mut twice = Segment { tag: true, ..USUAL }.frame();
    twice.splice(0..0, [0; vlan::TAG_LEN]);
    assert!(vlan::insert(&mut twice, EtherType::VLAN, 6));
    assert!(alone(&twice));
    assert_eq!(
        FrameClass::of(&changed(20, 0x20)),
        FrameClass::Unknown,
        "a first fragment"
    );
    assert_eq!(
        FrameClass::of(&changed(21, 1)),
        FrameClass::Unknown,
        "a later one"
    );
    assert_eq!(
        FrameClass::of(&changed(14, 0x44)),
        FrameClass::Unknown,
        "malformed"
    );
    for protocol in [1, 17, 50] {
        let mut other = changed(23, protocol);
        put16(&mut other[34..], 4, 1032); // UDP's length
        assert_eq!(FrameClass::of(&other), FrameClass::Other);
    }
    assert_eq!(FrameClass::of(&changed(13, 6)), FrameClass::Other, "ARP");
    // The connection is known by addresses and ports, whatever the options are.
    let FrameClass::Segment(layout) = FrameClass::of(&frame) else {
        panic!()
    };
    let joint = Joint::begin(&frame, layout);
    for (at, is_of) in [
        (47, true),
        (42, true),
        (26, false),
        (33, false),
        (34, false),
        (37, false),
    ] {
        let frame = changed(at, frame[at] ^ 2);
        let (FrameClass::Segment(layout) | FrameClass::Alone(layout)) = FrameClass::of(&frame)
        else {
            panic!()
        };
        assert_eq!(joint.is_of(&frame, layout), is_of, "{at}");
    }
}

#[test]
fn wrong_checksums_are_seen() {
    for v6 in [false, true] {
        let mut frame = Segment { v6, ..USUAL }.frame();
        let FrameClass::Segment(layout) = FrameClass::of(&frame) else {
            panic!()
        };
        *frame.last_mut().unwrap() ^= 1;
        assert!(layout.verify_header(&frame) && !layout.verify_tcp(&frame));
    }
    let mut frame = USUAL.frame();
    let FrameClass::Segment(layout) = FrameClass::of(&frame) else {
        panic!()
    };
    frame[24] ^= 1;
    assert!(!layout.verify_header(&frame) && layout.verify_tcp(&frame));
}

proptest! {
    /// Random streams of a sender, with random changes on the path.
    #[test]
    fn what_is_joined_is_cut_into_the_same_frames(
        v6: bool,
        tag: bool,
        len in 1usize..1500,
        count in 1usize..50,
        changes in proptest::collection::vec((0usize..50, 0usize..7, any::<u8>()), 0..8),
    ) {
        let first = Segment { v6, tag, len, ..USUAL };
        let mut stream: Vec<_> = (0..count).map(|number| first.after(number)).collect();
        for (at, what, value) in changes {
            let segment = &mut stream[at % count];
            match what {
                0 => segment.flags ^= value & !(flag::SYN | flag::RST | flag::URG),
                1 => segment.timestamp = value,
                2 => segment.ttl = value,
                3 => segment.ident = segment.ident.wrapping_add(value.into()),
                4 => segment.seq = segment.seq.wrapping_add(value.into()),
                5 => segment.len = (usize::from(value) * 6).max(1),
                _ => stream.swap(at % count, usize::from(value) % count),
            }
        }
        shape(&stream);
    }

    /// Any bytes at all, once as the first and once as the next.
    #[test]
    fn looking_never_panics(
        v6: bool,
        changes in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
    ) {
        let frame = Segment { v6, ..USUAL }.frame();
        let mut other = Segment { v6, ..USUAL }.after(1).frame();
        changes.into_iter().for_each(|(at, value)| other[at] = value);
        let FrameClass::Segment(layout) = FrameClass::of(&frame) else { panic!() };
        let mut joint = Joint::begin(&frame, layout);
        if let FrameClass::Segment(at) | FrameClass::Alone(at) = FrameClass::of(&other) {
            let _ = joint.is_of(&other, at);
        }
        if let FrameClass::Segment(at) = FrameClass::of(&other) {
            joint.push(&other, at);
            let _ = (at.verify_header(&other), at.verify_tcp(&other));
            Joint::begin(&other, at).finish();
        }
        joint.finish();
    }
}
