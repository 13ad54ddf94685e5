//! The states of flows, and how long each waits for a packet.
//!
//! A flow's state is a number of `linerate_tables::flow`; its table ends the flow when no packet
//! that *refreshes* it has come for the state's timeout. Every timeout is configurable; defaults
//! are the least that the RFCs ask of a translator.
//!
//! | state | entered by | default | source |
//! |---|---|---|---|
//! | `syn_sent` | a SYN, without an answer | 4 min | RFC 5382 REQ-5 (transitory), RFC 7857 2.1 |
//! | `syn_received` | a SYN with its SYN-ACK, or SYNs both ways | 4 min | the same |
//! | `proxied` | a cookie's ACK: the server has yet to answer | 4 min | the same |
//! | `picked_up` | a segment of a connection whose SYN was not seen | 4 min | the same |
//! | `established` | both SYNs acknowledged | 2 h 4 min | RFC 5382 REQ-5 |
//! | `half_closed` | a FIN of one side | 2 h 4 min | RFC 6146 3.5.2.2 (FIN RCV) |
//! | `closing` | FINs of both sides | 4 min | RFC 5382 REQ-5 (transitory), RFC 7857 2.1 |
//! | `time_wait` | both FINs acknowledged | 4 min | the same; RFC 9293 3.6.1 (2 MSL) |
//! | `reset` | a RST at the window's edge | 4 min | RFC 7857 2.2 |
//! | `udp_single` | UDP one way | 2 min | RFC 4787 REQ-5 (least) |
//! | `udp_replied` | the first answer | 3 min | the same |
//! | `udp_assured` | a packet after the first answer | 5 min | RFC 4787 REQ-5 c |
//! | `icmp_single` | a query | 60 s | RFC 5508 REQ-2 |
//! | `icmp_replied` | its answer | 60 s | the same |
//! | `other_single` | any other protocol, one way | 2 min | as UDP |
//! | `other_replied` | the same, both ways | 10 min | |
//!
//! What refreshes a flow, and what moves it (a RST, SYN or error that is not named does neither):
//!
//! | in state | refreshed by | moves to |
//! |---|---|---|
//! | `syn_sent` | the first SYN, no repetition | `syn_received` by SYN-ACK or SYN, `reset` |
//! | `syn_received` | segments in the windows | `established` by the last ACK, `reset` |
//! | `proxied` | what the client sends | `established` by the server's SYN-ACK, `reset` |
//! | `picked_up` | segments in the windows | `established` by the other side, `reset` |
//! | `established` | segments in the windows | `half_closed` by FIN, `reset` by RST at the edge |
//! | `half_closed` | segments in the windows | `closing` or `time_wait` by the other FIN, `reset` |
//! | `closing` | segments in the windows | `time_wait` when both FINs are acknowledged, `reset` |
//! | `time_wait` | a repeated FIN | a new flow by a SYN with a higher number, `reset` |
//! | `reset` | segments in the windows | back, if the side of the RST goes on; a new flow by SYN |
//! | `udp_*`, `other_*` | any packet, either way | the next by an answer, then by any packet |
//! | `icmp_*` | queries and answers | `icmp_replied` by an answer |

use linerate_tables::flow;

/// State of a flow: its number in the flow table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // each variant is the state of that name in the table above
pub enum State {
    SynSent,
    SynReceived,
    Proxied,
    PickedUp,
    Established,
    HalfClosed,
    Closing,
    TimeWait,
    Reset,
    UdpSingle,
    UdpReplied,
    UdpAssured,
    IcmpSingle,
    IcmpReplied,
    OtherSingle,
    OtherReplied,
}

impl State {
    /// How many there are.
    pub const COUNT: usize = 16;

    /// By number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Proxied,
        Self::PickedUp,
        Self::Established,
        Self::HalfClosed,
        Self::Closing,
        Self::TimeWait,
        Self::Reset,
        Self::UdpSingle,
        Self::UdpReplied,
        Self::UdpAssured,
        Self::IcmpSingle,
        Self::IcmpReplied,
        Self::OtherSingle,
        Self::OtherReplied,
    ];

    /// The state of a number; those beyond the last repeat.
    #[inline(always)]
    pub const fn of(number: u8) -> Self {
        Self::ALL[number as usize % Self::COUNT]
    }

    /// Its name, as in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "syn_sent",
            Self::SynReceived => "syn_received",
            Self::Proxied => "proxied",
            Self::PickedUp => "picked_up",
            Self::Established => "established",
            Self::HalfClosed => "half_closed",
            Self::Closing => "closing",
            Self::TimeWait => "time_wait",
            Self::Reset => "reset",
            Self::UdpSingle => "udp_single",
            Self::UdpReplied => "udp_replied",
            Self::UdpAssured => "udp_assured",
            Self::IcmpSingle => "icmp_single",
            Self::IcmpReplied => "icmp_replied",
            Self::OtherSingle => "other_single",
            Self::OtherReplied => "other_replied",
        }
    }

    /// The state of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The least timeout in seconds that an RFC allows a translator. A firewall may have less.
    pub const fn least_s(self) -> u32 {
        match self {
            Self::SynSent
            | Self::SynReceived
            | Self::Proxied
            | Self::PickedUp
            | Self::Closing
            | Self::TimeWait
            | Self::Reset => 240,
            Self::Established | Self::HalfClosed => 7440,
            Self::UdpSingle | Self::UdpReplied | Self::UdpAssured => 120,
            Self::IcmpSingle | Self::IcmpReplied => 60,
            Self::OtherSingle | Self::OtherReplied => 1,
        }
    }

    /// Those of TCP connections that one side has not confirmed yet.
    pub const HALF_OPEN: [Self; 3] = [Self::SynSent, Self::SynReceived, Self::Proxied];

    /// Whether this is one of [`HALF_OPEN`](Self::HALF_OPEN).
    pub const fn is_half_open(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Proxied)
    }
}

/// Seconds that a flow in each state waits for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts([u32; State::COUNT]);

impl Default for Timeouts {
    fn default() -> Self {
        let mut timeouts = Self(State::ALL.map(State::least_s));
        timeouts.set(State::UdpReplied, 180);
        timeouts.set(State::UdpAssured, 300);
        timeouts.set(State::OtherSingle, 120);
        timeouts.set(State::OtherReplied, 600);
        timeouts
    }
}

impl Timeouts {
    /// That of a state.
    pub fn of(&self, state: State) -> u32 {
        self.0[state as usize]
    }

    /// Changes that of a state; 0 is taken as 1.
    pub fn set(&mut self, state: State, seconds: u32) {
        self.0[state as usize] = seconds.max(1);
    }

    /// The states as a flow table takes them, in ticks of which a second has `ticks_per_s`.
    /// `half_open`: the most flows in each of `syn_sent`, `syn_received` and `proxied`.
    pub fn flow_states(&self, ticks_per_s: u64, half_open: Option<usize>) -> Vec<flow::State> {
        let state = |state: State| flow::State {
            name: state.name(),
            timeout: u64::from(self.of(state)).saturating_mul(ticks_per_s),
            most: half_open.filter(|_| state.is_half_open()),
        };
        State::ALL.map(state).into()
    }
}
