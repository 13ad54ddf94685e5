//! What connections to the same host share over time (RFC 9040): a connection that ends leaves
//! what it learned of the path, and the next one starts with it.
//!
//! | shared | what a new connection does with it | how it is merged |
//! |---|---|---|
//! | round trip | a longer RTO than by the handshake ([`Rtt::expect`]) | up at once, down by 1/8 |
//! | its variation | with the former | up at once, down by 1/4 |
//! | threshold | its first slow start ends there; only if configured | see [`Ended`] |
//! | window | nothing: it is what the path could carry, to be shown | half of old and new |
//! | reordering | waits as long for what is overtaken, as Linux | the most |
//! | path MTU | starts with it, and looks for more | the newest, 10 minutes (RFC 1191 6.3, 8201 4) |
//! | MSS of the peer | sizes the data of a SYN (RFC 7413 4.1.3) | the newest |
//! | Fast Open cookie | its SYN carries data | the newest |
//! | lost SYNs with data | no data for a while (RFC 7413 4.1.3.1) | counted |
//!
//! The threshold is not shared unless asked for, as in Linux since 5.x
//! (`tcp_no_ssthresh_metrics_save`): one connection that met congestion for a moment would keep
//! those of the next hour out of slow start.
//!
//! A host is a destination address. RFC 9040 speaks of pairs of hosts, but a stack with several
//! addresses reaches a host by the same route from any of them.
//!
//! The room is fixed from the start. A new host takes the place of the one that was unused the
//! longest. Only what the peer has confirmed enters: a handshake that is complete, an ICMP error
//! that quotes a segment in flight. So strangers can push out what is known only by completing
//! handshakes from many addresses, and it costs a few slow starts.
//!
//! ```
//! use linerate_stack::tcp::metrics::{Closed, Metrics, MetricsConfig};
//! let mut metrics = Metrics::new(&MetricsConfig::default()).expect("memory");
//! let host = "192.0.2.1".parse().expect("an address");
//! assert_eq!(metrics.lookup(host, 0), None);
//! let closed = Closed { srtt_ns: Some(20_000_000), ..Closed::default() };
//! metrics.note_closed(host, &closed, 1_000_000_000);
//! let known = metrics.lookup(host, 2_000_000_000).expect("it has been told");
//! assert_eq!(known.srtt_ns, Some(20_000_000));
//! ```
//!
//! [`Rtt::expect`]: super::rtt::Rtt::expect

mod entry;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};

use entry::{Entry, seconds};

use super::fast_open::Cookie;

const SECOND_NS: u64 = 1_000_000_000;
/// No entry.
const NIL: u32 = u32::MAX;

/// How much is remembered, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct MetricsConfig {
    /// Hosts, at least 1: about 105 bytes each.
    pub hosts: usize,
    /// How long what was measured counts, in nanoseconds.
    pub lifetime_ns: u64,
    /// How long a path MTU counts, in nanoseconds.
    pub pmtu_lifetime_ns: u64,
    /// Whether slow start thresholds are shared.
    pub is_ssthresh_shared: bool,
    /// What the table's hash is keyed with; keep it secret.
    pub seed: Seed,
}

impl Default for MetricsConfig {
    /// 1024 hosts, an hour (Linux' `TCP_METRICS_TIMEOUT`), 10 minutes for a path MTU.
    fn default() -> Self {
        Self {
            hosts: 1024,
            lifetime_ns: 3600 * SECOND_NS,
            pmtu_lifetime_ns: 600 * SECOND_NS,
            is_ssthresh_shared: false,
            seed: Seed::random(),
        }
    }
}

/// What is known of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Smoothed round trip, in nanoseconds.
    pub srtt_ns: Option<u64>,
    /// Its mean deviation, in nanoseconds.
    pub rttvar_ns: Option<u64>,
    /// Slow start threshold in bytes, where it is shared.
    pub ssthresh_bytes: Option<u32>,
    /// Congestion window in bytes that the path could carry.
    pub cwnd_bytes: Option<u32>,
    /// Path MTU in bytes.
    pub pmtu: Option<u16>,
    /// The path reorders: by so many quarters of a round trip (RFC 8985 6.2).
    pub reordering: Option<u8>,
    /// MSS that the host announced.
    pub mss: Option<u16>,
    /// Cookie for a Fast Open now; none while SYNs with data are not tried.
    pub cookie: Option<Cookie>,
    /// Whether SYNs with data are not tried, since some got lost of late.
    pub is_fast_open_paused: bool,
}

/// How a connection's window was when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// In its first slow start: the window is less than the path carries.
    FirstSlowStart {
        /// The window in bytes.
        cwnd_bytes: u32,
    },
    /// In congestion avoidance, and not in a recovery: the window is what the path carries.
    Avoidance {
        /// The window in bytes.
        cwnd_bytes: u32,
        /// The threshold in bytes.
        ssthresh_bytes: u32,
    },
    /// In a recovery, or a later slow start: the window says nothing.
    Recovering {
        /// The threshold in bytes.
        ssthresh_bytes: u32,
    },
}

/// What a connection has learned by its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Smoothed round trip; `None` also where it ended while its RTO was backed off: nothing came
    /// back in time, so nothing is known.
    pub srtt_ns: Option<u64>,
    /// Its mean deviation.
    pub rttvar_ns: u64,
    /// Whether it saw reordering: the quarters of a round trip that it waited (RFC 8985 6.2).
    pub reordering: Option<u8>,
    /// The window; `None` if no data was sent.
    pub window: Option<Ended>,
}

/// What connections share, by host.
pub struct Metrics {
    index: Exact<16, u32>,
    entries: Vec<Entry>,
    capacity: usize,
    /// The entry used last; `next` leads to the one used before.
    newest: u32,
    oldest: u32,
    lifetime_s: u32,
    pmtu_lifetime_s: u32,
    is_ssthresh_shared: bool,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics")
            .field("hosts", &self.entries.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

fn key(host: IpAddr) -> [u8; 16] {
    match host {
        IpAddr::V4(host) => host.to_ipv6_mapped().octets(),
        IpAddr::V6(host) => host.octets(),
    }
}

impl Metrics {
    /// Without a host. All its memory is taken now.
    ///
    /// # Errors
    /// [`TableError`] for no hosts or too many, and for want of memory.
    pub fn new(config: &MetricsConfig) -> Result<Self, TableError> {
        let index = ExactConfig::new("TCP metrics", config.hosts, config.seed).full_size();
        Ok(Self {
            index: Exact::new(&index)?,
            entries: Vec::with_capacity(config.hosts),
            capacity: config.hosts,
            newest: NIL,
            oldest: NIL,
            lifetime_s: seconds(config.lifetime_ns),
            pmtu_lifetime_s: seconds(config.pmtu_lifetime_ns),
            is_ssthresh_shared: config.is_ssthresh_shared,
        })
    }

    /// How many hosts are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many hosts there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What is known of `host` at `now_ns` and is not too old, for a new connection to it. The
    /// host counts as used.
    pub fn lookup(&mut self, host: IpAddr, now_ns: u64) -> Option<Shared> {
        let at = self.index.lookup(&key(host))?;
        self.touch(at);
        self.shared(at, now_ns)
    }

    /// All hosts of which something is known at `now_ns` that is not too old, those used last
    /// first.
    pub fn iter(&self, now_ns: u64) -> impl Iterator<Item = (IpAddr, Shared)> + '_ {
        let next = |&at: &u32| Some(self.entries[at as usize].next).filter(|&next| next != NIL);
        let first = Some(self.newest).filter(|&newest| newest != NIL);
        let known = move |at: u32| {
            let host = Ipv6Addr::from(self.entries[at as usize].key).to_canonical();
            self.shared(at, now_ns).map(|shared| (host, shared))
        };
        std::iter::successors(first, next).filter_map(known)
    }

    fn shared(&self, at: u32, now_ns: u64) -> Option<Shared> {
        let entry = &self.entries[at as usize];
        let mut shared = entry.shared(seconds(now_ns), self.lifetime_s, self.pmtu_lifetime_s);
        if !self.is_ssthresh_shared {
            shared.ssthresh_bytes = None;
        }
        (shared != Shared::default()).then_some(shared)
    }

    /// A connection to `host` has ended, whose handshake was complete.
    pub fn note_closed(&mut self, host: IpAddr, closed: &Closed, now_ns: u64) {
        let (now_s, lifetime_s) = (seconds(now_ns), self.lifetime_s);
        let Some(entry) = self.entry(host) else {
            return;
        };
        entry.expire(now_s, lifetime_s);
        entry.measured_s = now_s;
        entry.merge_rtt(closed);
        entry.reordering = entry.reordering.max(closed.reordering.unwrap_or(0));
        if let Some(ended) = closed.window {
            entry.merge_window(ended);
        }
    }

    /// Packets to `host` may be of `pmtu` bytes, IP header included: an ICMP error says so that
    /// quotes a segment in flight (RFC 5927 7), or a probe (RFC 4821).
    pub fn note_pmtu(&mut self, host: IpAddr, pmtu: u16, now_ns: u64) {
        let now_s = seconds(now_ns);
        if let Some(entry) = self.entry(host) {
            (entry.pmtu, entry.pmtu_s) = (pmtu, now_s);
        }
    }

    /// `host` has given a Fast Open cookie, or answered a SYN with data, and announced `mss`.
    /// Without a cookie the known one stays. Lost SYNs are forgotten: the path lets them through.
    pub fn note_fast_open(&mut self, host: IpAddr, cookie: Option<Cookie>, mss: u16) {
        if let Some(entry) = self.entry(host) {
            entry.cookie = cookie.or(entry.cookie);
            entry.mss = mss;
            entry.syns_lost = 0;
        }
    }

    /// A SYN with data to `host` got lost: none are tried for a minute, then two, and so on up to
    /// 64 (RFC 7413 4.1.3.1).
    pub fn note_fast_open_lost(&mut self, host: IpAddr, now_ns: u64) {
        let now_s = seconds(now_ns);
        if let Some(entry) = self.entry(host) {
            entry.syns_lost = entry.syns_lost.saturating_add(1);
            entry.syn_lost_s = now_s;
        }
    }

    /// Forgets all hosts: the routes are others.
    pub fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        (self.newest, self.oldest) = (NIL, NIL);
    }

    /// The entry of `host`, a new one if it has none. `None` only where the index cannot take the
    /// key, since its seed is known to whoever chose all the addresses: then nothing is learned.
    fn entry(&mut self, host: IpAddr) -> Option<&mut Entry> {
        let key = key(host);
        let at = match self.index.lookup(&key) {
            Some(at) => {
                self.touch(at);
                at
            }
            None => self.insert(key)?,
        };
        Some(&mut self.entries[at as usize])
    }

    fn insert(&mut self, key: [u8; 16]) -> Option<u32> {
        let is_full = self.entries.len() == self.capacity;
        let at = match is_full {
            true => {
                let oldest = &self.entries[self.oldest as usize];
                if oldest.is_indexed {
                    self.index.remove(&oldest.key);
                }
                self.unlink(self.oldest)
            }
            false => {
                self.entries.push(Entry::default());
                self.entries.len() as u32 - 1
            }
        };
        let is_indexed = self.index.insert(&key, at).is_ok();
        self.entries[at as usize] = Entry {
            key,
            is_indexed,
            ..Entry::default()
        };
        self.link(at);
        is_indexed.then_some(at)
    }

    fn touch(&mut self, at: u32) {
        if self.newest != at {
            self.unlink(at);
            self.link(at);
        }
    }

    fn unlink(&mut self, at: u32) -> u32 {
        let Entry { prev, next, .. } = self.entries[at as usize];
        match prev {
            NIL => self.newest = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NIL => self.oldest = prev,
            next => self.entries[next as usize].prev = prev,
        }
        at
    }

    fn link(&mut self, at: u32) {
        let next = std::mem::replace(&mut self.newest, at);
        (
            self.entries[at as usize].prev,
            self.entries[at as usize].next,
        ) = (NIL, next);
        match next {
            NIL => self.oldest = at,
            next => self.entries[next as usize].prev = at,
        }
    }
}
