//! What an entry goes through: its phases, and what a segment does to it.

use linerate_core::packet::Packet;
use linerate_wire::tcp::{self, flag};

use super::Member;

/// Which state an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Its owner has sent a SYN.
    Opening,
    /// Segments have come.
    Open,
    /// Its owner has been asked whether it exists.
    Asked,
    /// One side has sent a FIN.
    Fin,
    /// Both have, and the second one has acknowledged the first.
    Closed,
}

/// All of them, by number.
pub(super) const PHASES: [(&str, Phase); 5] = [
    ("opening", Phase::Opening),
    ("open", Phase::Open),
    ("asked", Phase::Asked),
    ("fin", Phase::Fin),
    ("closed", Phase::Closed),
];

/// From the network, or to it; also which bit of `fins` and which place of `fin_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the owner.
    In = 0,
    /// From the owner.
    Out = 1,
}

/// What an entry knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Whose the connection is.
    pub owner: Member,
    /// Who has sent a FIN: bit 0 the other side, bit 1 the owner.
    pub(super) fins: u8,
    /// How often the connection has moved.
    pub(super) moves: u16,
    /// The sequence number behind each side's FIN.
    pub(super) fin_end: [u32; 2],
}

/// What a map reads of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Flags.
    pub flags: u8,
    /// The sequence number behind all that it carries, SYN and FIN counted.
    pub end: u32,
    /// The acknowledgement number.
    pub ack: u32,
}

impl Segment {
    /// Of a TCP header and what is behind it; `None` where the header is not whole.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let segment = tcp::Tcp::new_checked(bytes).ok()?;
        let flags = segment.flags();
        let controls = u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
        let len = segment.payload().len() as u32 + controls;
        Some(Self {
            flags,
            end: segment.seq().wrapping_add(len),
            ack: segment.ack(),
        })
    }

    /// Of a packet whose layer-4 header was found, and which ends at `end`.
    pub(in crate::steering) fn of(packet: &Packet, end: u32) -> Option<Self> {
        let l4 = usize::from(packet.meta().l4_offset);
        Self::read(packet.data().get(l4..end as usize)?)
    }

    /// Whether it is a SYN that begins a connection from this side.
    pub(in crate::steering) fn begins(&self) -> bool {
        self.has(flag::SYN) && !self.has(flag::ACK)
    }

    /// Whether an entry has to know of it when it leaves.
    pub(in crate::steering) fn controls(&self) -> bool {
        self.begins() || self.has(flag::FIN)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub(super) fn phase_of(state: u8) -> Phase {
    PHASES[usize::from(state) % PHASES.len()].1
}

/// What a segment does to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Same,
    /// Its time begins anew.
    Again,
    /// It is in this phase now.
    To(Phase, Entry),
    /// It goes.
    Ends,
}

/// The state machine.
pub(super) fn step(phase: Phase, mut entry: Entry, way: Way, segment: &Segment) -> Step {
    let (this, other) = match way {
        Way::In => (0, 1),
        Way::Out => (1, 0),
    };
    let acks = |end: u32| segment.has(flag::ACK) && segment.ack == end;
    if segment.has(flag::RST) || segment.has(flag::SYN) && segment.has(flag::FIN) {
        return Step::Same;
    }
    if phase == Phase::Closed {
        return match way {
            // Its owner judges whether it begins a new connection (RFC 6191), and is asked later.
            Way::In if segment.begins() && !entry.is_anew() => {
                entry.fins = entry.fins & !LAST | ANEW;
                Step::To(Phase::Closed, entry)
            }
            // LAST-ACK: the owner closed second, and this says that all of it has come.
            Way::In if entry.fins & LAST != 0 && acks(entry.fin_end[1]) => Step::Ends,
            _ if segment.has(flag::FIN) && segment.end == entry.fin_end[this] => Step::Again,
            _ => Step::Same,
        };
    }
    if segment.has(flag::FIN) {
        entry.fins |= 1 << this;
        entry.fin_end[this] = segment.end;
        let both = entry.fins & 0b11 == 0b11;
        return match both && acks(entry.fin_end[other]) {
            false if phase == Phase::Asked => Step::To(Phase::Asked, entry),
            false => Step::To(Phase::Fin, entry),
            true => {
                // The owner that acknowledges with its own FIN is in LAST-ACK; else in TIME-WAIT.
                entry.fins |= if way == Way::Out { LAST } else { 0 };
                Step::To(Phase::Closed, entry)
            }
        };
    }
    match (phase, way) {
        (Phase::Opening, Way::In) => Step::To(Phase::Open, entry),
        _ => Step::Same,
    }
}

/// In `fins`: the owner has closed second.
const LAST: u8 = 1 << 2;
/// In `fins`: a SYN has come since both have closed.
const ANEW: u8 = 1 << 3;

impl Entry {
    /// Whether a new connection may have begun since the one that it was made for has closed.
    pub(super) fn is_anew(&self) -> bool {
        self.fins & ANEW != 0
    }
}
