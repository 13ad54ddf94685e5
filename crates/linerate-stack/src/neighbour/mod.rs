//! Neighbours: ARP (RFC 826) and Neighbor Discovery (RFC 4861).
//!
//! A [`Table`] knows which MAC address belongs to the addresses that packets go to, on every
//! interface; packets wait in it until that is known. It answers for our own addresses, detects
//! duplicates of them, and advertises the router. Frames and time are inputs; the output is in an
//! [`Out`]: frames to send, released packets, and events for routing.
//!
//! Both families use the state machine of RFC 4861 7.3, with ARP requests as solicitations:
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
//! Forwarded packets do not pass this table: once a neighbour is reported to routing
//! ([`Event::Neighbour`]), its packets are sent directly. So an entry that a packet has needed once
//! counts as in use. When its time as reachable is over it is probed at once, rather than left
//! stale until the next packet. An entry made only by a request of the neighbour is not reported to
//! routing, and expires.
//!
//! Read [`Table`], then `machine` for the state machine, `arp` and `nd` for received packets, `own`
//! for our addresses (detection of duplicates, defence) and `advertise` for router advertisements.
//!
//! # What fills the table
//!
//! | what | makes an entry | changes one |
//! |---|---|---|
//! | a packet to be sent | yes, unresolved | |
//! | a request or solicitation for an address of ours, from an address on that network | yes, stale | yes |
//! | a reply or advertisement that was asked for | no | yes |
//! | any other | no | not within [`Timers::lock_ns`] of the last change |
//! | the configuration | yes, static | the only one to change or remove a static entry |
//!
//! Entries are bounded ([`Config::max_entries`]); half of them may be unresolved (RFC 6583 6). The
//! first to be evicted are the oldest unresolved ones, then stale ones that no packet needed, and
//! last those in use of which there are most: with one MAC address, then on one interface. So a
//! host that answers for a whole network evicts its own entries. Static entries and next hops of
//! routes stay; if there are only such, a packet for another neighbour is dropped
//! ([`DropReason::TableFull`]). Rates of solicitations and answers are limited.

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

/// Burst of [`Config::source_asks_per_s`]: neighbours that packets of one source may need at once
/// before any answers, those of a small network.
pub const SOURCE_BURST: u32 = 256;

/// Bounds of a table.
#[derive(Clone, Debug)]
pub struct Config {
    /// Limit of neighbours over all interfaces.
    pub max_entries: usize,
    /// Limit of packets that wait for one neighbour (RFC 4861 7.2.2: at least one); a new one
    /// replaces the oldest.
    pub queue_pkts: usize,
    /// Limit of bytes that wait for one neighbour.
    pub queue_bytes: usize,
    /// Limit of packets that wait in all.
    pub total_pkts: usize,
    /// Limit of bytes that wait in all.
    pub total_bytes: usize,
    /// Limit of unanswered requests and solicitations a second.
    pub solicits_per_s: u32,
    /// Limit of neighbours a second that packets of one source (an IPv4 address or an IPv6 /64) may
    /// need without an answer, and [`SOURCE_BURST`] at once: a scanner does not use up the limit of
    /// all (RFC 6583 7.1), and a host that sends to many existing neighbours is not limited.
    pub source_asks_per_s: u32,
    /// Limit of answers a second.
    pub replies_per_s: u32,
    /// Timers of the state machine.
    pub timers: Timers,
    /// Seed of jitter.
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

/// Timers in nanoseconds, and numbers of attempts: RFC 4861 10's constants by default.
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
    /// How long packets to a failed neighbour are dropped at once, before it is resolved again.
    pub failed_ns: u64,
    /// How long a neighbour that no packet needs is kept (RFC 1122 2.3.2.1).
    pub stale_ns: u64,
    /// How long unsolicited messages cannot change a newly learned address: of two answers the
    /// first counts.
    pub lock_ns: u64,
    /// A proxy answers multicast solicitations after a random part of this (RFC 4861 7.2.8,
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

/// Configuration of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Our MAC address there.
    pub mac: MacAddr,
    /// Our addresses, with the prefix length of the network that each is in. Where there are IPv6
    /// addresses but no link-local one, the one formed from the MAC address is added (RFC 4862
    /// 5.3), unless this is a [`host`](Self::host).
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
    /// Addresses, of the above, that have passed duplicate detection elsewhere, such as in the
    /// kernel: they are used at once.
    pub verified: Vec<IpAddr>,
    /// Router advertisements, if any are sent (RFC 4861 6.2).
    pub advertise: Option<Advertise>,
}

/// What router advertisements say (RFC 4861 6.2.1). Prefixes are those of the interface's IPv6
/// addresses, on link, and autonomous where they are 64 bits long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// MaxRtrAdvInterval in seconds, 4 to 1800: longest time between two unsolicited ones.
    pub interval_s: u16,
    /// AdvDefaultLifetime in seconds, up to 9000; 0: hosts may not use this router by default.
    pub lifetime_s: u16,
    /// AdvManagedFlag: hosts ask DHCPv6 for addresses.
    pub managed: bool,
    /// AdvOtherConfigFlag: hosts ask DHCPv6 for the rest.
    pub other: bool,
    /// AdvCurHopLimit; 0: not specified.
    pub hop_limit: u8,
    /// AdvLinkMTU in bytes; `None`: not specified.
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

/// State of an entry: those of RFC 4861 7.3.2, and two more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Solicited, without an answer yet.
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
    /// Configured; never solicited, and not changed by messages of others.
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
    /// Its interface.
    pub interface: u16,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address, where it is known.
    pub mac: Option<MacAddr>,
    /// State of its entry.
    pub state: State,
    /// Whether it advertises that it is a router (IPv6).
    pub is_router: bool,
    /// Whether a packet or a route needs it.
    pub is_needed: bool,
    /// Packets that wait for it.
    pub queued_pkts: usize,
}

/// Events for routing or the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets for `address` go to that MAC address; `None`: no longer.
    Neighbour {
        /// Its interface.
        interface: u16,
        /// Its address.
        address: IpAddr,
        /// The MAC address for its packets.
        mac: Option<MacAddr>,
    },
    /// This address of ours has passed duplicate detection: from now on it is used.
    Unique {
        /// Its interface.
        interface: u16,
        /// Ours.
        address: IpAddr,
    },
    /// Another station has this address of ours: it is not used until it is configured anew (RFC
    /// 4862 5.4.5, RFC 5227 2.1).
    Duplicate {
        /// Its interface.
        interface: u16,
        /// The duplicate address.
        address: IpAddr,
        /// MAC address of the station that has it.
        mac: MacAddr,
    },
    /// Another station sends from an address that we use; reported every ten seconds at most (RFC
    /// 5227 2.4).
    Conflict {
        /// Its interface.
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
    /// No neighbour answered: its sender should get an error, host or address unreachable (RFC 1812
    /// 3.3.2, RFC 4861 7.2.2).
    Unresolved,
    /// Too many waited for that neighbour, or in all.
    QueueFull,
    /// The table is full of neighbours that are static, or routes' next hops.
    TableFull,
    /// Its entry was evicted or removed.
    Evicted,
    /// There is no such interface, or it has no address of ours as a source.
    NoInterface,
    /// No neighbour can have that address: our own, multicast, broadcast, unspecified or loopback.
    NotNeighbour,
    /// Its source has needed too many neighbours that do not answer.
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

    /// Its name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Unresolved => "neighbour_unresolved",
            DropReason::QueueFull => "neighbour_queue_full",
            DropReason::TableFull => "neighbour_table_full",
            DropReason::Evicted => "neighbour_evicted",
            DropReason::NoInterface => "neighbour_no_source",
            DropReason::NotNeighbour => "neighbour_bad_address",
            DropReason::Limited => "neighbour_scan",
        }
    }
}

/// Why a frame was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// The frame itself is invalid.
    Invalid(linerate_wire::ndp::Refused),
    /// There is no such interface.
    NoInterface,
    /// It is our own frame, received back.
    Own,
    /// An invalid sender: a group or unspecified address (RFC 1812 3.3.2).
    Sender,
    /// The sender claims an address of ours; [`Event::Conflict`] says so too.
    Conflict,
    /// The entry is static and has another MAC address.
    Static,
    /// The entry was changed within [`Timers::lock_ns`].
    Locked,
    /// It was not solicited, and there is no entry.
    Unasked,
    /// It is about an address that is not ours.
    NotForUs,
    /// The limit of answers a second was reached.
    Limited,
}

/// Whether a neighbour can have this address.
fn can_be_neighbour(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || address.is_loopback() || is_broadcast)
}

/// Whether a MAC address is that of a single station.
fn is_station(mac: MacAddr) -> bool {
    !mac.is_multicast() && mac != MacAddr([0; 6])
}

/// Packets that wait for one neighbour, oldest first.
type Queue = std::collections::VecDeque<Packet>;
