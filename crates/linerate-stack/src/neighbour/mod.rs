//! Neighbours: ARP (RFC 826) and Neighbor Discovery (RFC 4861).
//!
//! A [`Table`] knows which MAC address belongs to the addresses that packets go to, on every
//! interface; packets wait in it until that is known. It answers for our own addresses, sees that
//! nobody else has them, and advertises the router. Frames and time go in; what is to be done comes
//! out in an [`Out`]: frames to send, packets that waited, and what routing should know.
//!
//! Both families run the same machine, RFC 4861 7.3's, with ARP requests for solicitations:
//!
//! ```text
//!           resolve                an answer
//!  (none) ──────────► Incomplete ─────────────► Reachable ──► Delay, if a packet ever asked
//!     │                   │ 3 unanswered           ▲    │       │ 5 s
//!     │ a neighbour       ▼                        │    ▼       ▼
//!     │ asks for us     Failed ◄──────────────── Probe  Stale   Probe: asked alone, 3 times
//!     └─────► Stale ─────────────────────────────────────▲
//! ```
//!
//! What is forwarded does not pass by here: once a neighbour is told to routing
//! ([`Event::Neighbour`]), its packets go straight out. So an entry that a packet has asked for
//! once counts as in use. When its time as reachable is over it is probed at once, rather than left
//! stale until the next packet. One that merely spoke to us stays unknown to routing, and is
//! forgotten.
//!
//! Read [`Table`], then `machine` for the state machine, `arp` and `nd` for what comes in, `own`
//! for our addresses (detection of duplicates, defence) and `advertise` for router advertisements.
//!
//! # Who may fill the table
//!
//! | what | makes an entry | changes one |
//! |---|---|---|
//! | a packet to be sent | yes, unresolved | |
//! | a request or solicitation for an address of ours, from an address on that network | yes, stale | yes |
//! | a reply or advertisement that was asked for | no | yes |
//! | any other | no | not within [`Timers::lock_ns`] of the last change |
//! | the configuration | yes, static | the only one to change or remove a static entry |
//!
//! Entries are bounded ([`Config::max_entries`]), half of them may be unresolved (RFC 6583 6). The
//! first to go are the oldest unresolved ones, then stale ones that no packet asked for, and at
//! last those in use of which there are most: with one MAC address, then on one interface. So one
//! host that answers for a whole network displaces itself. Static entries and next hops of routes
//! stay; if all are such, a packet for one more is dropped ([`DropReason::TableFull`]).
//! Solicitations and answers are limited in number a second.

use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_wire::MacAddr;

mod advertise;
mod arp;
mod entries;
mod interface;
mod machine;
mod nd;
mod out;
mod own;
mod table;
#[cfg(test)]
mod tests;

pub use out::{Dropped, Out, Released};
pub use table::Table;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;

/// Neighbours that packets of one source may ask for at once before any answers: a small network.
pub const SOURCE_BURST: u32 = 256;

/// Bounds of a table.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most neighbours, of all interfaces.
    pub max_entries: usize,
    /// Most packets that wait for one neighbour (RFC 4861 7.2.2: at least one); a new one takes the
    /// place of the oldest.
    pub queue_pkts: usize,
    /// Most bytes that wait for one neighbour.
    pub queue_bytes: usize,
    /// Most packets that wait in all.
    pub total_pkts: usize,
    /// Most bytes that wait in all.
    pub total_bytes: usize,
    /// Most requests and solicitations a second that nobody answers.
    pub solicits_per_s: u32,
    /// Most neighbours a second which packets of one source (an IPv4 address or an IPv6 /64) may
    /// have asked for without an answer, and [`SOURCE_BURST`] at once: who scans a network does not
    /// use up what all may ask for (RFC 6583 7.1), and who speaks to many that exist is not held
    /// up.
    pub source_asks_per_s: u32,
    /// Most answers a second.
    pub replies_per_s: u32,
    /// How long things take.
    pub timers: Timers,
    /// Where jitter begins.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_entries: 65_536,
            queue_pkts: 8,
            queue_bytes: 16 << 10,
            total_pkts: 1024,
            total_bytes: 1 << 20,
            solicits_per_s: 1000,
            source_asks_per_s: 100,
            replies_per_s: 10_000,
            timers: Timers::default(),
            seed: 0,
        }
    }
}

/// How long things take, in nanoseconds, and how often they are tried: RFC 4861 10's constants by
/// default.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// Between two solicitations of one neighbour (RETRANS_TIMER; RFC 1122 2.3.2.1 wants a second).
    pub retransmit_ns: u64,
    /// What a confirmed neighbour counts as reachable for, before the spread of 0.5 to 1.5
    /// (REACHABLE_TIME).
    pub reachable_ns: u64,
    /// What upper layers get to confirm a neighbour before it is probed (DELAY_FIRST_PROBE_TIME).
    pub delay_ns: u64,
    /// Multicast or broadcast solicitations before a neighbour is given up (MAX_MULTICAST_SOLICIT).
    pub multicast_solicits: u8,
    /// Unicast ones (MAX_UNICAST_SOLICIT).
    pub unicast_solicits: u8,
    /// For how long packets to one that was given up are dropped at once, before it is asked for
    /// again.
    pub failed_ns: u64,
    /// How long a neighbour is remembered that no packet asks for (RFC 1122 2.3.2.1).
    pub stale_ns: u64,
    /// For how long an address just learned cannot be changed by what we did not ask for: of two
    /// that answer, the first counts.
    pub lock_ns: u64,
    /// A proxy answers what was multicast after a random part of this (RFC 4861 7.2.8,
    /// MAX_ANYCAST_DELAY_TIME), so that the host itself comes first.
    pub proxy_delay_ns: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            retransmit_ns: SECOND,
            reachable_ns: 30 * SECOND,
            delay_ns: 5 * SECOND,
            multicast_solicits: 3,
            unicast_solicits: 3,
            failed_ns: SECOND,
            stale_ns: 1200 * SECOND,
            lock_ns: SECOND,
            proxy_delay_ns: SECOND,
        }
    }
}

/// What an interface is like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Our MAC address there.
    pub mac: MacAddr,
    /// Our addresses, with the prefix length of the network that each is in. Where there are IPv6
    /// addresses but no link-local one, the one that the MAC address makes is added (RFC 4862 5.3),
    /// unless this is a [`host`](Self::host).
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whether we are a host there, and no router: advertisements do not say that we route (RFC
    /// 4861 4.4), and no link-local address is added.
    pub host: bool,
    /// Whether to answer for addresses that are reached by other interfaces (RFC 1027, RFC 4861
    /// 7.2.8).
    pub proxy: bool,
    /// Whether an IPv6 address is used only after duplicate address detection, a second or two (RFC
    /// 4862 5.4).
    pub detect6: bool,
    /// Whether an IPv4 address is used only after it was probed for, four to seven seconds (RFC
    /// 5227 2.1).
    pub detect4: bool,
    /// Addresses, of the above, that somebody else has found to be nobody's, such as the kernel
    /// that has them too: they are used at once.
    pub verified: Vec<IpAddr>,
    /// Router advertisements, if any are sent (RFC 4861 6.2).
    pub advertise: Option<Advertise>,
}

/// What router advertisements say (RFC 4861 6.2.1). Prefixes are those of the interface's IPv6
/// addresses, on link, and autonomous where they are 64 bits long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// MaxRtrAdvInterval in seconds, 4 to 1800: most between two unsolicited ones.
    pub interval_s: u16,
    /// AdvDefaultLifetime in seconds, up to 9000; 0: hosts may not use this router by default.
    pub lifetime_s: u16,
    /// AdvManagedFlag: hosts ask DHCPv6 for addresses.
    pub managed: bool,
    /// AdvOtherConfigFlag: hosts ask DHCPv6 for the rest.
    pub other: bool,
    /// AdvCurHopLimit; 0: not said.
    pub hop_limit: u8,
    /// AdvLinkMTU in bytes; `None`: not said.
    pub mtu: Option<u32>,
    /// AdvValidLifetime of the prefixes in seconds.
    pub valid_s: u32,
    /// AdvPreferredLifetime in seconds.
    pub preferred_s: u32,
}

impl Default for Advertise {
    fn default() -> Self {
        Self {
            interval_s: 600,
            lifetime_s: 1800,
            managed: false,
            other: false,
            hop_limit: 64,
            mtu: None,
            valid_s: 2_592_000,
            preferred_s: 604_800,
        }
    }
}

/// Where an entry stands: RFC 4861 7.3.2, and two more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Asked for; nobody has answered yet.
    Incomplete,
    /// Confirmed a short while ago.
    Reachable,
    /// Known, but not confirmed lately.
    Stale,
    /// In use and not confirmed lately; will be probed soon.
    Delay,
    /// Being probed.
    Probe,
    /// Did not answer: packets are dropped at once for a while.
    Failed,
    /// Configured; never asked for, never changed by what others say.
    Static,
}

impl State {
    /// Whether the MAC address is known.
    pub const fn is_known(self) -> bool {
        !matches!(self, State::Incomplete | State::Failed)
    }
}

/// One entry, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Where it is.
    pub interface: u16,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address, where it is known.
    pub mac: Option<MacAddr>,
    /// Where its entry stands.
    pub state: State,
    /// Whether it says that it is a router (IPv6).
    pub is_router: bool,
    /// Whether a packet or a route asked for it.
    pub is_needed: bool,
    /// Packets that wait for it.
    pub queued_pkts: usize,
}

/// What routing, or the operator, should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets for `address` go to that MAC address; `None`: no longer.
    Neighbour {
        /// Where it is.
        interface: u16,
        /// Its address.
        address: IpAddr,
        /// Where its packets go.
        mac: Option<MacAddr>,
    },
    /// Nobody else has this address of ours: from now on it is used.
    Unique {
        /// Where it is.
        interface: u16,
        /// Ours.
        address: IpAddr,
    },
    /// Somebody else has it: it is not used until it is configured anew (RFC 4862 5.4.5, RFC 5227
    /// 2.1).
    Duplicate {
        /// Where it is.
        interface: u16,
        /// The one that is not ours.
        address: IpAddr,
        /// Who has it.
        mac: MacAddr,
    },
    /// Somebody else speaks from an address that we use; told every ten seconds at most (RFC 5227
    /// 2.4).
    Conflict {
        /// Where it is.
        interface: u16,
        /// Ours.
        address: IpAddr,
        /// Who speaks.
        mac: MacAddr,
    },
}

/// Why a packet that waited, or was to wait, is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Nobody answered: its sender should hear of it, host or address unreachable (RFC 1812 3.3.2,
    /// RFC 4861 7.2.2).
    Unresolved,
    /// Too many waited for that neighbour, or in all.
    QueueFull,
    /// The table is full of neighbours that are static, or routes' next hops.
    TableFull,
    /// Its entry made way for another one, or was removed.
    Evicted,
    /// There is no such interface, or none of our addresses on it to ask from.
    NoInterface,
    /// No neighbour can have that address: our own, multicast, broadcast, unspecified or loopback.
    NotNeighbour,
    /// Its source has asked for too many that do not answer.
    Limited,
}

impl DropReason {
    /// All of them, for counters.
    pub const ALL: [DropReason; 7] = [
        DropReason::Unresolved,
        DropReason::QueueFull,
        DropReason::TableFull,
        DropReason::Evicted,
        DropReason::NoInterface,
        DropReason::NotNeighbour,
        DropReason::Limited,
    ];

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Unresolved => "neighbour unresolved",
            DropReason::QueueFull => "neighbour queue full",
            DropReason::TableFull => "neighbour table full",
            DropReason::Evicted => "neighbour evicted",
            DropReason::NoInterface => "no address on the interface",
            DropReason::NotNeighbour => "not a neighbour's address",
            DropReason::Limited => "neighbour scan",
        }
    }
}

/// Why a frame was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// It breaks a rule that shows in the frame alone.
    Invalid(linerate_wire::ndp::Refused),
    /// There is no such interface.
    NoInterface,
    /// It is our own, come back.
    Own,
    /// A sender that nobody can be: a group, or nobody at all (RFC 1812 3.3.2).
    Sender,
    /// The sender claims an address of ours; [`Event::Conflict`] says so too.
    Conflict,
    /// The entry is static and has another MAC address.
    Static,
    /// The entry was changed just now.
    Locked,
    /// Nobody asked for it, and there is no entry.
    Unasked,
    /// It asks for, or is about, somebody else.
    NotForUs,
    /// More was asked than is answered in a second.
    Limited,
}

/// Whether a packet of such a destination is sent to a neighbour of that address at all.
fn can_be_neighbour(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || address.is_loopback() || is_broadcast)
}

/// Whether a MAC address is one that a single station can have.
fn is_station(mac: MacAddr) -> bool {
    !mac.is_multicast() && mac != MacAddr([0; 6])
}

/// What waits for one neighbour, oldest first.
type Queue = std::collections::VecDeque<Packet>;
