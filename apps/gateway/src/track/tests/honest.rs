//! Two honest ends exchange segments over a network that loses, repeats and reorders, and a
//! stranger sends whatever it likes: the ends are never refused what they need, and the stranger
//! changes nothing.
//!
//! An end is the least that RFC 9293 lets one be: it sends within the window that it was told,
//! repeats what is not acknowledged, takes what touches its window, and never takes a window back.
//! It keeps no data, only numbers.

use std::collections::VecDeque;

use linerate_core::random::Random;
use linerate_wire::tcp::flag;
use proptest::prelude::*;

use super::*;
use crate::track::segment::{MAX_SCALE, is_after, later};
use crate::track::{Cookies, Made};

/// How an end is.
#[derive(Clone, Copy, Debug)]
struct Setup {
    isn: u32,
    /// The most that it takes at once.
    buffer: u32,
    /// The shift that it offers, or [`NO_SCALE`].
    scale: u8,
    sack: bool,
    /// What it has to send, before its FIN.
    to_send: u32,
}

/// One end.
#[derive(Clone, Debug)]
struct End {
    setup: Setup,
    una: u32,
    nxt: u32,
    /// What the peer lets it send, and the acknowledgment by which it did (RFC 9293 3.10.7.4).
    right: u32,
    largest_window: u32,
    peer_scale: u8,
    scale: u8,
    peer_sack: bool,
    /// What it expects; nothing before the peer's SYN.
    expects: Option<u32>,
    /// What arrived beyond that: runs.
    beyond: Vec<(u32, u32)>,
    /// Taken, and not read by the application.
    unread: u32,
    /// The right edge of the window that it has announced.
    announced: u32,
    fin_sent: bool,
    peer_fin: Option<u32>,
}

impl End {
    fn new(setup: Setup) -> Self {
        Self {
            setup,
            una: setup.isn,
            nxt: setup.isn,
            right: setup.isn,
            largest_window: 0,
            peer_scale: 0,
            scale: 0,
            peer_sack: false,
            expects: None,
            beyond: Vec::new(),
            unread: 0,
            announced: 0,
            fin_sent: false,
            peer_fin: None,
        }
    }

    fn is_open(&self) -> bool {
        self.expects.is_some() && self.una != self.setup.isn
    }

    /// Window to announce: unscaled, and the right edge moves on.
    fn window(&mut self, is_syn: bool) -> u16 {
        let shift = if is_syn { 0 } else { self.scale };
        let expects = self.expects.unwrap_or(0);
        let free = self.setup.buffer - self.unread.min(self.setup.buffer);
        let edge = later(expects.wrapping_add(free), self.announced);
        let window = (edge.wrapping_sub(expects) >> shift).min(0xffff);
        if self.expects.is_some() {
            let announced = expects.wrapping_add(window << shift);
            self.announced = later(announced, self.announced);
        }
        window as u16
    }

    fn segment(&mut self, flags: u8, seq: u32, payload: u32) -> Segment {
        let is_syn = flags & flag::SYN != 0;
        let acks = self.expects.is_some();
        let flags = flags | if acks { flag::ACK } else { 0 };
        let ack = self.expects.unwrap_or(0);
        let mut segment = super::segment(flags, seq, ack, payload);
        segment.window = self.window(is_syn);
        if is_syn {
            segment.scale = self.setup.scale;
        } else if self.peer_sack && self.setup.sack {
            for &(_, right) in self.beyond.iter().take(3) {
                segment.sack = later(right, segment.sack);
            }
        }
        segment
    }

    fn syn(&mut self) -> Segment {
        self.nxt = later(self.setup.isn.wrapping_add(1), self.nxt);
        self.segment(flag::SYN, self.setup.isn, 0)
    }

    /// The sequence number of the FIN.
    fn fin_seq(&self) -> u32 {
        let start = self.setup.isn.wrapping_add(1);
        start.wrapping_add(self.setup.to_send)
    }

    /// New data, as much as chance and window allow; at the end a FIN.
    fn send(&mut self, random: &mut Random) -> Option<Segment> {
        if !self.is_open() || self.fin_sent {
            return None;
        }
        let room = self.right.wrapping_sub(self.nxt) as i32;
        let left = self.fin_seq().wrapping_sub(self.nxt);
        let payload = left.min(room.max(0) as u32).min(random.below(3000) as u32);
        let seq = self.nxt;
        let ends = payload == left && random.below(4) == 0;
        if room < 0 || payload == 0 && !ends {
            return None;
        }
        self.nxt = self.nxt.wrapping_add(payload + u32::from(ends));
        self.fin_sent |= ends;
        let fin = if ends { flag::FIN } else { flag::PSH };
        Some(self.segment(fin, seq, payload))
    }

    /// What is not acknowledged, from the first or from anywhere on.
    fn repeat(&mut self, random: &mut Random) -> Option<Segment> {
        if !self.is_open() {
            return (self.nxt != self.setup.isn).then(|| self.syn());
        }
        let unacked = self.nxt.wrapping_sub(self.una);
        if unacked == 0 {
            return None;
        }
        let skip = random.below(2) as u32 * random.below(unacked.into()) as u32;
        let seq = self.una.wrapping_add(skip);
        let len = (unacked - skip).min(1 + random.below(1460) as u32);
        let is_last = self.fin_sent && seq.wrapping_add(len) == self.nxt;
        let flags = if is_last { flag::FIN } else { 0 };
        Some(self.segment(flags, seq, len - u32::from(is_last)))
    }

    /// A keep-alive, a window probe, or a bare acknowledgment.
    fn say_something(&mut self, random: &mut Random) -> Option<Segment> {
        if !self.is_open() {
            return None;
        }
        let seq = match random.below(3) {
            0 if self.una != self.setup.isn => self.una.wrapping_sub(1),
            1 if self.right == self.nxt && self.nxt != self.fin_seq() && !self.fin_sent => {
                let seq = self.nxt;
                self.nxt = self.nxt.wrapping_add(1);
                return Some(self.segment(0, seq, 1));
            }
            _ => self.nxt,
        };
        Some(self.segment(0, seq, 0))
    }

    fn read(&mut self, random: &mut Random) {
        self.unread -= random.below(u64::from(self.unread) + 1) as u32;
    }

    /// Whether a segment lies below the window: RFC 9293 3.10.7.4, then not even its
    /// acknowledgment counts.
    fn is_below(&self, segment: &Segment) -> bool {
        let is_below = |expects| !is_after(segment.end(), expects) && segment.seq != expects;
        self.expects.is_some_and(is_below)
    }

    /// Whether a segment is nothing to it.
    fn needs_nothing_of(&self, segment: &Segment) -> bool {
        // RFC 5961 5.2: what is acknowledged must not be older than the largest window.
        let is_stale = is_after(self.una.wrapping_sub(self.largest_window), segment.ack);
        let is_bare = segment.len == 0 && !is_after(segment.ack, self.una);
        self.is_below(segment) || is_bare || is_stale
    }

    /// Takes a segment. Returns an answer.
    fn receive(&mut self, segment: Segment) -> Option<Segment> {
        let is_syn = segment.flags & flag::SYN != 0;
        if is_syn && self.expects.is_none() {
            self.expects = Some(segment.seq.wrapping_add(1));
            self.announced = segment.seq.wrapping_add(1);
            let both = segment.scale != NO_SCALE && self.setup.scale != NO_SCALE;
            self.peer_scale = if both { segment.scale } else { 0 };
            self.scale = if both { self.setup.scale } else { 0 };
            self.peer_sack = true;
        }
        let expects = self.expects?;
        if !is_syn && self.is_below(&segment) {
            return Some(self.segment(0, self.nxt, 0)).filter(|_| self.is_open());
        }
        if segment.flags & flag::ACK != 0 {
            let is_new = is_after(segment.ack, self.una) && !is_after(segment.ack, self.nxt);
            if is_new {
                self.una = segment.ack;
            }
            if is_new || segment.ack == self.una {
                let shift = if is_syn { 0 } else { self.peer_scale };
                let window = u32::from(segment.window) << shift;
                self.largest_window = self.largest_window.max(window);
                let right = segment.ack.wrapping_add(window);
                self.right = later(right, self.right);
            }
        }
        if is_syn {
            return match self.nxt == self.setup.isn || self.una == self.setup.isn {
                true => Some(self.syn()),
                false => Some(self.segment(0, self.nxt, 0)),
            };
        }
        if segment.len == 0 {
            return None;
        }
        let is_fin = segment.flags & flag::FIN != 0;
        let (seq, end) = (segment.seq, segment.end());
        let is_beyond = is_after(end, self.announced.wrapping_add(u32::from(is_fin)));
        if !is_beyond && is_after(end, expects) {
            self.take(seq, end);
            if is_fin {
                self.peer_fin = Some(end);
            }
        }
        Some(self.segment(0, self.nxt, 0))
    }

    fn take(&mut self, seq: u32, end: u32) {
        self.beyond.push((seq, end));
        let mut expects = self.expects.unwrap_or(0);
        while let Some(at) = (self.beyond.iter())
            .position(|run| !is_after(run.0, expects) && is_after(run.1, expects))
        {
            let (_, end) = self.beyond.swap_remove(at);
            self.unread += end.wrapping_sub(expects);
            expects = end;
        }
        self.beyond.retain(|run| is_after(run.1, expects));
        self.expects = Some(expects);
    }
}

/// Segments on their way; those that leave first need not arrive first.
#[derive(Clone, Debug, Default)]
struct Road(VecDeque<Segment>);

impl Road {
    fn put(&mut self, segment: impl IntoIterator<Item = Segment>) {
        self.0.extend(segment);
    }

    /// One of the first `depth`, or none if that one is lost; one in ten stays for another time.
    fn take(&mut self, random: &mut Random, depth: u64, loss: u64) -> Option<Segment> {
        let depth = depth.min(self.0.len() as u64);
        let at = random.below(depth.max(1)) as usize;
        match random.below(10) {
            0 => self.0.get(at).copied(),
            _ => self.0.remove(at).filter(|_| random.below(100) >= loss),
        }
    }
}

/// How the connection begins.
#[derive(Clone, Copy, Debug)]
enum Opening {
    One,
    Both,
    Cookie,
}

fn opening() -> impl Strategy<Value = Opening> {
    prop_oneof![
        Just(Opening::One),
        Just(Opening::Both),
        Just(Opening::Cookie)
    ]
}

/// What an end reads of a segment that the gateway makes.
fn read(made: &Made) -> Segment {
    Segment {
        window: made.window,
        scale: made.scale,
        ..super::segment(made.flags, made.seq, made.ack, 0)
    }
}

/// What an end reads of a segment whose numbers were shifted.
fn shifted(tcp: &Tcp, direction: Direction, segment: &Segment) -> Segment {
    let mut options = vec![];
    if segment.sack != segment.ack {
        options.extend([1, 1, 5, 10]);
        options.extend([segment.ack.to_be_bytes(), segment.sack.to_be_bytes()].concat());
    }
    let controls = (segment.flags & (flag::SYN | flag::FIN)).count_ones();
    let payload = (segment.len - controls) as usize;
    let mut bytes = super::proxied::bytes(segment, &options, payload);
    tcp.shift(direction, &mut bytes, false);
    let read = Segment::read(&bytes).unwrap();
    with_scale(read, segment.scale)
}

struct World {
    tracker: Tracker,
    ends: [End; 2],
    /// From each end to the tracker, and from the tracker to each end.
    out: [Road; 2],
    into: [Road; 2],
    flow: Option<Flow>,
    refused: usize,
}

impl World {
    /// What comes to the tracker from an end.
    fn passes(&mut self, from: usize, segment: Segment, depth: u64) {
        let direction = [F, R][from];
        let Some(flow) = &mut self.flow else {
            let first = self.tracker.first(b"key", &Upper::Tcp(segment), true, 0);
            let (tcp, state) = match first {
                First::Begin(tcp, state) => {
                    self.into[1].put([segment]);
                    (tcp, state)
                }
                First::Proxy(tcp, made) => {
                    self.into[1].put([read(&made)]);
                    (tcp, State::Proxied)
                }
                First::Answer(made) => return self.into[0].put([read(&made)]),
                First::Drop(reason) => panic!("{reason:?}: {segment:?}"),
            };
            self.flow = Some(Flow {
                tcp,
                state,
                now_ms: 0,
            });
            return;
        };
        let before = flow.clone();
        let verdict = flow.segment(direction, segment);
        // As its receiver would have it.
        let seen = match flow.tcp.is_shifted() {
            true => shifted(&flow.tcp, direction, &segment),
            false => segment,
        };
        match verdict {
            Verdict::Pass(_) | Verdict::Unchanged => self.into[1 - from].put([seen]),
            Verdict::Answer { back, onward, .. } => {
                self.into[from].put(back.as_ref().map(read));
                self.into[1 - from].put(onward.as_ref().map(read));
            }
            // The client has the answer to its SYN.
            Verdict::Drop(Reason::TcpHandshake)
                if before.state == State::Proxied && segment.flags == flag::SYN => {}
            Verdict::Drop(reason) => {
                let peer = &self.ends[1 - from];
                let is_old = matches!(reason, Reason::TcpOld | Reason::TcpAckOld);
                assert!(
                    depth > 1 && is_old && peer.needs_nothing_of(&seen),
                    "{reason:?}: {segment:?} from {from}\n{before:?}\n{:?}",
                    self.ends
                );
                self.refused += 1;
            }
            other => panic!("{other:?}: {segment:?} from {from}\n{before:?}"),
        }
    }

    fn run(setups: [Setup; 2], seed: u64, depth: u64, loss: u64, opening: Opening) -> Self {
        let mut random = Random::new(seed);
        let cookies = matches!(opening, Opening::Cookie);
        let cookies = cookies.then(|| Cookies::new(seed.into(), 1400));
        let mut world = Self {
            tracker: Tracker::new(Pickup::Strict, cookies),
            ends: setups.map(End::new),
            out: Default::default(),
            into: Default::default(),
            flow: None,
            refused: 0,
        };
        let first = world.ends[0].syn();
        world.passes(0, first, depth);
        if matches!(opening, Opening::Both) {
            let second = world.ends[1].syn();
            world.out[1].put([second]);
        }
        for _ in 0..6000 {
            let side = random.below(2) as usize;
            let end = &mut world.ends[side];
            let said = match random.below(16) {
                0 | 1 => end.send(&mut random),
                2 => end.repeat(&mut random),
                3 => end.say_something(&mut random),
                4 | 5 => {
                    end.read(&mut random);
                    None
                }
                6..11 => {
                    let segment = world.out[side].take(&mut random, depth, loss);
                    if let Some(segment) = segment {
                        world.passes(side, segment, depth);
                    }
                    None
                }
                _ => {
                    let segment = world.into[side].take(&mut random, depth, loss);
                    segment.and_then(|segment| end.receive(segment))
                }
            };
            world.out[side].put(said);
        }
        world
    }
}

fn setup() -> impl Strategy<Value = Setup> {
    let isn = prop_oneof![any::<u32>(), (u32::MAX - 5000)..=u32::MAX];
    let buffer = prop_oneof![1u32..3000, 1u32..70_000, 1u32..20_000_000];
    let scale = prop_oneof![Just(NO_SCALE), 0..=MAX_SCALE];
    (isn, buffer, scale, any::<bool>(), 0u32..3_000_000).prop_map(
        |(isn, buffer, scale, sack, to_send)| Setup {
            isn,
            buffer,
            scale,
            sack,
            to_send,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn in_order_nothing_of_an_honest_end_is_refused(
        a in setup(), b in setup(), seed: u64, loss in 0u64..40, opening in opening(),
    ) {
        let world = World::run([a, b], seed, 1, loss, opening);
        prop_assert_eq!(world.refused, 0);
    }

    #[test]
    fn out_of_order_an_honest_end_is_refused_only_what_its_peer_has(
        a in setup(), b in setup(), seed: u64, loss in 0u64..40, opening in opening(),
        depth in 2u64..40,
    ) {
        World::run([a, b], seed, depth, loss, opening);
    }

    #[test]
    fn a_stranger_changes_nothing(
        a in setup(), b in setup(), seed: u64, flags: u8, seqs: [u32; 64], acks: [u32; 64],
        reverse: bool, len in 0u32..1460, opening in opening(),
    ) {
        let mut flow = World::run([a, b], seed, 1, 0, opening).flow.unwrap();
        prop_assume!(!flow.state.is_half_open());
        let from = usize::from(reverse);
        let (sender, receiver) = (flow.tcp.sides[from], flow.tcp.sides[1 - from]);
        for (seq, ack) in seqs.into_iter().zip(acks) {
            let segment = super::segment(flags, seq, ack, len);
            let is_in_window = !is_after(seq, sender.max_end)
                && !is_after(sender.end.wrapping_sub(receiver.max_win), segment.end());
            if is_in_window {
                continue;
            }
            let before = flow.clone();
            match flow.segment([F, R][from], segment) {
                Verdict::Drop(_) => prop_assert_eq!(flow.tcp, before.tcp),
                // RFC 5961 4.2: the end challenges it.
                Verdict::Unchanged => {
                    prop_assert_eq!(flags & (flag::SYN | flag::RST | flag::FIN), flag::SYN);
                    prop_assert_eq!(flow.tcp.sides, before.tcp.sides);
                }
                // Its connection is over, and the number is a higher one.
                Verdict::Anew => prop_assert_eq!(before.state, State::TimeWait),
                other => prop_assert!(false, "{other:?}: {segment:?} {before:?}"),
            }
            prop_assert_eq!(flow.state, before.state);
        }
    }
}

#[test]
fn the_ends_finish_what_they_have_to_say() {
    let mut finished = [0; 3];
    for seed in 0..60 {
        let setup = |isn| Setup {
            isn,
            buffer: 5000,
            scale: 2,
            sack: true,
            to_send: 20_000,
        };
        let opening = [Opening::One, Opening::Both, Opening::Cookie][seed as usize % 3];
        let world = World::run([setup(7), setup(u32::MAX - 9)], seed, 4, 5, opening);
        let is_over = world.flow.is_some_and(|flow| flow.state == State::TimeWait);
        finished[opening as usize] += usize::from(is_over);
    }
    // Of 20 each, in so many steps: or the tests would watch nothing but handshakes.
    assert!(finished.iter().all(|&many| many > 10), "{finished:?}");
}
