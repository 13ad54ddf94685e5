//! Any frame, and any order of segments: the tracker drops without a trace, keeps flows in states
//! of their protocol, and changes nothing of a segment but what it must.
//!
//! The input is a frame for the first half of the checks. For the second it is a byte of settings,
//! and then up to 32 steps of 8 bytes: direction and kind, flags, sequence number and
//! acknowledgment as differences from what was last let through, window, payload.

use linerate_gateway::track::{
    Cookies, First, MAX_MADE_LEN, Made, Pickup, Quote, State, Tcp, Tracker, Upper, Verdict, Way,
};
use linerate_tables::flow::Direction;
use linerate_wire::{EtherType, checksum, ipv4, parse, protocol, tcp};

pub(crate) fn check(input: &[u8]) {
    check_frame(input);
    check_segments(input);
}

/// Whatever a frame is, it is read or refused.
fn check_frame(frame: &[u8]) {
    let Ok(headers) = parse(frame) else { return };
    let (Some(number), Some(l4), false) = (headers.protocol, headers.l4, headers.is_fragment)
    else {
        return;
    };
    let is_v6 = headers.ethertype == EtherType::IPV6;
    let Ok(upper) = Upper::read(is_v6, number, &frame[l4..headers.end]) else {
        return;
    };
    let mut tracker = Tracker::new(Pickup::Loose, None);
    let first = tracker.first(b"key", &upper, false, 0);
    if let First::Begin(mut tcp, state) = first {
        for direction in [Direction::Forward, Direction::Reverse] {
            for state in State::ALL.into_iter().chain([state]) {
                let state = state as u8;
                let _ = tracker.next(&mut tcp.clone(), direction, state, &upper, 0);
            }
            let _ = tracker.next(&mut tcp, direction, state as u8, &upper, 0);
        }
    }
    if let (Upper::Error, Ok(quote)) = (upper, Quote::read(frame, &headers)) {
        assert!(quote.headers.l3 >= l4 && quote.headers.end <= headers.end);
        // Nothing was sent: no number of TCP is on its way.
        let checked = quote.check(&Tcp::default(), Direction::Reverse);
        assert_eq!(
            checked.is_err(),
            quote.headers.protocol == Some(protocol::TCP)
        );
        let mut copy = frame.to_vec();
        Tcp::default().shift_quote(Direction::Forward, &mut copy, &headers, &quote.headers);
        assert_eq!(copy, frame, "nothing to shift by");
    }
}

struct World {
    tracker: Tracker,
    /// SYNs are answered by cookies.
    is_full: bool,
    flow: Option<(Tcp, State)>,
    /// Of each side: its next sequence number, as far as it was let through.
    next: [u32; 2],
    now_ms: u64,
}

fn check_segments(input: &[u8]) {
    let Some((&settings, steps)) = input.split_first() else {
        return;
    };
    let pickup = match settings & 1 {
        0 => Pickup::Strict,
        _ => Pickup::Loose,
    };
    let mut world = World {
        tracker: Tracker::new(pickup, Some(Cookies::new(7, 1400))),
        is_full: settings & 2 != 0,
        flow: None,
        next: [u32::from(settings) << 24, 0xffff_ff00],
        now_ms: 0,
    };
    for step in steps.chunks_exact(8).take(32) {
        world.step(step);
    }
}

impl World {
    fn step(&mut self, step: &[u8]) {
        let from = usize::from(step[0] & 1);
        let direction = [Direction::Forward, Direction::Reverse][from];
        self.now_ms += u64::from(step[0] >> 4) * 100;
        let difference = |at: usize| i32::from(i16::from_be_bytes([step[at], step[at + 1]])) as u32;
        let seq = self.next[from].wrapping_add(difference(2));
        let ack = self.next[1 - from].wrapping_add(difference(4));
        let packet = packet(step[1], seq, ack, step[6], step[7], step[0] & 14);
        let segment = &packet[ipv4::HEADER_LEN..];
        let Ok(upper) = Upper::read(false, protocol::TCP, segment) else {
            return;
        };
        let Upper::Tcp(read) = upper else {
            panic!("it is TCP")
        };
        let Some((mut tcp, state)) = self.flow else {
            match self
                .tracker
                .first(b"key", &upper, self.is_full, self.now_ms)
            {
                First::Begin(tcp, state) => {
                    assert!(!tcp.is_shifted());
                    self.begin(tcp, state, read.end());
                }
                First::Answer(made) => {
                    self.next[1] = made.seq.wrapping_add(1);
                    self.next[0] = read.end();
                    written(&made, Way::Back, &packet);
                }
                First::Proxy(tcp, made) => {
                    assert!(tcp.is_shifted());
                    self.begin(tcp, State::Proxied, read.end());
                    written(&made, Way::Onward, &packet);
                }
                First::Drop(_) => {}
            }
            return;
        };
        let before = tcp;
        let verdict = self
            .tracker
            .next(&mut tcp, direction, state as u8, &upper, self.now_ms);
        self.flow = match verdict {
            Verdict::Pass(state) => {
                assert!((state as u8) <= State::Reset as u8, "{state:?} is TCP's");
                if read.seq == self.next[from] {
                    self.next[from] = read.end();
                }
                Some((tcp, state))
            }
            Verdict::Unchanged => Some((tcp, state)),
            Verdict::Drop(_) => {
                assert_eq!(tcp, before, "a dropped segment leaves nothing");
                Some((tcp, state))
            }
            Verdict::Anew => None,
            Verdict::Answer {
                state,
                back,
                onward,
            } => {
                assert!(back.is_some() || onward.is_some());
                for (made, way) in [(back, Way::Back), (onward, Way::Onward)] {
                    if let Some(made) = made {
                        written(&made, way, &packet);
                    }
                }
                Some((tcp, state))
            }
        };
        let passes = matches!(verdict, Verdict::Pass(_) | Verdict::Unchanged);
        if passes && tcp.is_shifted() {
            let mut shifted = segment.to_vec();
            tcp.shift(direction, &mut shifted, false);
            assert!(checksum::verify(&shifted), "the checksum stays right");
            let same = |from: usize, to: usize| segment[from..to] == shifted[from..to];
            assert!(same(0, 4) && same(12, 14) && same(18, 20));
        }
    }

    fn begin(&mut self, tcp: Tcp, state: State, next: u32) {
        self.flow = Some((tcp, state));
        self.next[0] = next;
    }
}

/// A packet whose segment has a checksum that is right without addresses.
fn packet(flags: u8, seq: u32, ack: u32, window: u8, payload: u8, options: u8) -> Vec<u8> {
    let options: &[u8] = match options >> 1 {
        0 | 1 => &[],
        2 => &[2, 4, 5, 180, 4, 2, 3, 3, 7, 0, 0, 0],
        3 => &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        4 => &[1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9, 0],
        5 => &[5, 255, 1, 1],
        6 => &[3, 3, 14, 1],
        _ => &[2, 4, 0, 0],
    };
    let mut segment = tcp::header(1000, 80, seq, ack, flags).to_vec();
    segment[12] = ((tcp::HEADER_LEN + options.len()) as u8 / 4) << 4;
    segment[14] = window;
    segment.extend(options);
    segment.resize(segment.len() + usize::from(payload), 0);
    let sum = checksum::checksum(&segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let (src, dst) = ([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
    let header = ipv4::header(0, 64, protocol::TCP, src, dst, segment.len() as u16);
    [&header[..], &segment].concat()
}

/// What is made is a packet that may be sent.
fn written(made: &Made, way: Way, packet: &[u8]) {
    let mut out = [0; MAX_MADE_LEN];
    let len = made.write(way, packet, &mut out).expect("there is room");
    let ip = ipv4::Ipv4::new_checked(&out[..len]).expect("a packet");
    let tcp = tcp::Tcp::new_checked(ip.payload()).expect("a segment");
    assert!(ip.verify() && tcp.verify(ip.pseudo_sum()) && tcp.payload().is_empty());
}
