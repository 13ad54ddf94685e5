//! A connection to be watched, for the tests beside this.

mod clauses;
mod errors;
mod honest;
mod proxied;
mod states;

use linerate_tables::flow::Direction;
use linerate_wire::tcp::flag;

use super::{First, NO_SCALE, Pickup, Reason, Segment, State, Tcp, Tracker, Upper, Verdict};

const F: Direction = Direction::Forward;
const R: Direction = Direction::Reverse;

/// A segment with a window of 1000.
fn segment(flags: u8, seq: u32, ack: u32, payload: u32) -> Segment {
    let controls = (flags & (flag::SYN | flag::FIN)).count_ones();
    Segment {
        seq,
        len: payload + controls,
        ack,
        sack: ack,
        window: 1000,
        flags,
        scale: NO_SCALE,
        mss: 0,
        sack_permitted: false,
    }
}

fn syn(seq: u32) -> Segment {
    segment(flag::SYN, seq, 0, 0)
}

fn syn_ack(seq: u32, ack: u32) -> Segment {
    segment(flag::SYN | flag::ACK, seq, ack, 0)
}

fn ack(seq: u32, ack: u32) -> Segment {
    segment(flag::ACK, seq, ack, 0)
}

fn data(seq: u32, ack: u32, payload: u32) -> Segment {
    segment(flag::ACK | flag::PSH, seq, ack, payload)
}

fn fin(seq: u32, ack: u32) -> Segment {
    segment(flag::FIN | flag::ACK, seq, ack, 0)
}

fn rst(seq: u32) -> Segment {
    segment(flag::RST, seq, 0, 0)
}

fn with_window(mut segment: Segment, window: u16) -> Segment {
    segment.window = window;
    segment
}

fn with_scale(mut segment: Segment, scale: u8) -> Segment {
    segment.scale = scale;
    segment
}

/// A flow as its table has it.
#[derive(Clone, Debug)]
struct Flow {
    tcp: Tcp,
    state: State,
    now_ms: u64,
}

impl Flow {
    /// A flow that this packet begins.
    fn begun(pickup: Pickup, upper: Upper) -> Result<Self, Reason> {
        match Tracker::new(pickup, None).first(b"key", &upper, false, 0) {
            First::Begin(tcp, state) => Ok(Self {
                tcp,
                state,
                now_ms: 0,
            }),
            First::Drop(reason) => Err(reason),
            other => panic!("{other:?} without cookies"),
        }
    }

    fn opened(syn: Segment) -> Self {
        Self::begun(Pickup::Strict, Upper::Tcp(syn)).unwrap()
    }

    /// Both sides open: the forward one is at 101, the reverse one at 501; windows of 1000.
    fn established() -> Self {
        let mut flow = Self::opened(syn(100));
        flow.passes(R, syn_ack(500, 101), State::SynReceived);
        flow.passes(F, ack(101, 501), State::Established);
        flow
    }

    fn takes(&mut self, direction: Direction, upper: Upper) -> Verdict {
        let tracker = Tracker::default();
        let state = self.state as u8;
        let verdict = tracker.next(&mut self.tcp, direction, state, &upper, self.now_ms);
        if let Verdict::Pass(state) | Verdict::Answer { state, .. } = verdict {
            self.state = state;
        }
        verdict
    }

    fn segment(&mut self, direction: Direction, segment: Segment) -> Verdict {
        self.takes(direction, Upper::Tcp(segment))
    }

    #[track_caller]
    fn passes(&mut self, direction: Direction, segment: Segment, state: State) {
        assert_eq!(self.segment(direction, segment), Verdict::Pass(state));
    }

    /// It passes, and neither the state nor what is known of the windows changes.
    #[track_caller]
    fn passes_unchanged(&mut self, direction: Direction, segment: Segment) {
        let sides = self.tcp.sides;
        assert_eq!(self.segment(direction, segment), Verdict::Unchanged);
        assert_eq!(self.tcp.sides, sides);
    }

    /// It is dropped, and nothing changes.
    #[track_caller]
    fn drops(&mut self, direction: Direction, segment: Segment, reason: Reason) {
        let before = self.tcp;
        assert_eq!(self.segment(direction, segment), Verdict::Drop(reason));
        assert_eq!(self.tcp, before);
    }
}
