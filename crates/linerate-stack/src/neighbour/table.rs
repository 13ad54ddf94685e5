//! The table: interfaces, configuration and timers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use linerate_tables::TableError;
use linerate_wire::MacAddr;

use super::advertise::{self, Advertiser};
use super::entries::{Entries, For};
use super::interface::Interface;
use super::{
    Config, DropReason, InterfaceConfig, Neighbour, Out, SECOND, SOURCE_BURST, State, own,
};
use crate::bucket::{Bucket, Rate};
use crate::icmp::{Limiter, Limits};
use linerate_core::random::Random;

/// The neighbours of all interfaces. One owner. Interfaces are the caller's numbers, times are
/// nanoseconds of any clock that does not go back.
///
/// ```
/// use linerate_stack::neighbour::{Config, InterfaceConfig, Out, Table};
/// use linerate_wire::MacAddr;
/// let mut table = Table::new(Config::default(), 0)?;
/// let mut out = Out::new();
/// let lan = InterfaceConfig {
///     mac: MacAddr::local(1),
///     addresses: vec![("192.0.2.1".parse()?, 24)],
///     ..InterfaceConfig::default()
/// };
/// table.set_interface(0, lan, 0, &mut out);
/// assert_eq!(out.frames().count(), 1, "192.0.2.1 is here");
/// out.clear();
/// assert_eq!(table.resolve(0, "192.0.2.7".parse()?, None, 0, &mut out), None);
/// assert_eq!(out.frames().count(), 1, "who has 192.0.2.7?");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table {
    pub(super) config: Config,
    pub(super) interfaces: BTreeMap<u16, Interface>,
    pub(super) entries: Entries,
    pub(super) queued_pkts: usize,
    pub(super) queued_bytes: usize,
    pub(super) random: Random,
    pub(super) solicit_rate: Rate,
    pub(super) solicits: Bucket,
    /// Limiter of the sources of packets that need neighbours.
    pub(super) sources: Limiter,
    reply_rate: Rate,
    replies: Bucket,
    /// A proxy's answers by when they are due.
    later: BTreeMap<(u64, u64), Reply>,
    latest: u64,
}

/// An advertisement that answers a solicitation.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) interface: u16,
    pub(super) target: Ipv6Addr,
    /// Addresses of the solicitor; `None`: it has no address yet, so the answer is multicast.
    pub(super) to: Option<(Ipv6Addr, MacAddr)>,
    pub(super) is_proxy: bool,
}

/// Number of sources with limits of their own.
const SOURCES: usize = 4096;
/// Limit of a proxy's delayed answers; further ones are not given.
const MAX_LATER: usize = 256;
/// Steps of the timing wheel that one [`Table::tick`] takes at most; the rest is left to the next
/// call.
const TICK_BUDGET: usize = 32_768;

impl Table {
    /// An empty table.
    ///
    /// # Errors
    /// No memory for the timers, or too many entries.
    pub fn new(config: Config, now_ns: u64) -> Result<Self, TableError> {
        Ok(Self {
            interfaces: BTreeMap::new(),
            entries: Entries::new(config.max_entries.max(1), now_ns)?,
            queued_pkts: 0,
            queued_bytes: 0,
            random: Random::new(config.seed),
            // A burst of a quarter of a second: more than the time between two ticks.
            solicit_rate: Rate::new(config.solicits_per_s, config.solicits_per_s / 4),
            solicits: Bucket::default(),
            sources: Limiter::new(
                Limits {
                    total_per_s: u32::MAX,
                    total_burst: u32::MAX,
                    each_per_s: config.source_asks_per_s,
                    each_burst: SOURCE_BURST,
                    destinations: SOURCES,
                },
                config.seed,
            ),
            reply_rate: Rate::new(config.replies_per_s, config.replies_per_s / 4),
            replies: Bucket::default(),
            later: BTreeMap::new(),
            latest: 0,
            config,
        })
    }

    /// Adds an interface, or changes one. Addresses that it had before stay as they are; new ones
    /// are probed for and announced; neighbours that are no longer on its link are removed.
    pub fn set_interface(&mut self, id: u16, config: InterfaceConfig, now_ns: u64, out: &mut Out) {
        let mut config = config.complete();
        // A change of `verified` alone is not a change of configuration.
        let verified = std::mem::take(&mut config.verified);
        let old = self.interfaces.remove(&id);
        let (mut had, mut advertiser) = (Vec::new(), None);
        let mut is_said_anew = true;
        if let Some(old) = old {
            is_said_anew = old.config != config;
            if config.advertise.is_none() {
                advertise::cease(id, &old, out);
            }
            if old.config.mac == config.mac {
                had = old.own; // with another MAC address all is announced anew
            }
            advertiser = old.advertiser;
        }
        let own = own::adopt(had, &config, &verified, now_ns, &mut self.random);
        let advertiser = config.advertise.map(|_| match advertiser {
            Some(mut advertiser) => {
                if is_said_anew {
                    advertiser.restart(now_ns, &mut self.random);
                }
                advertiser
            }
            None => Advertiser::new(now_ns, &mut self.random),
        });
        let place = Interface {
            config,
            own,
            advertiser,
        };
        let gone = |at: &u32| {
            let entry = &self.entries[*at];
            let is_pinned = entry.is_held || entry.state == State::Static;
            let is_there = is_pinned || place.is_on_link(entry.address);
            !is_there || place.has(entry.address)
        };
        let gone: Vec<u32> = self.of(id).filter(gone).collect();
        self.interfaces.insert(id, place);
        gone.into_iter().for_each(|at| self.evict(at, out));
        self.tick_own(id, now_ns, out);
    }

    /// Removes an interface and all its neighbours, static ones too.
    pub fn remove_interface(&mut self, id: u16, out: &mut Out) {
        if let Some(place) = self.interfaces.remove(&id) {
            advertise::cease(id, &place, out);
        }
        let all: Vec<u32> = self.of(id).collect();
        all.into_iter().for_each(|at| self.evict(at, out));
    }

    /// The link of an interface went down: no neighbour is reachable there, and others may be when
    /// it comes up. No events are made, since routing does not use a link that is down.
    pub fn link_down(&mut self, id: u16, now_ns: u64) {
        for at in self.learned(id) {
            self.entries[at].is_doubted = true;
            let due_ns = now_ns + self.config.timers.stale_ns;
            self.entries.enter(at, State::Stale, Some(due_ns));
        }
    }

    /// The link of an interface came up, perhaps at another place: our addresses are announced
    /// again (RFC 5227 2.1 and 2.3, RFC 4861 7.2.6), so is the router, and neighbours are probed by
    /// multicast (RFC 4861 7.3.3). Those in use are probed at once, within the limit.
    pub fn link_up(&mut self, id: u16, now_ns: u64, out: &mut Out) {
        let Some(place) = self.interfaces.get_mut(&id) else {
            return;
        };
        for own in &mut place.own {
            own.announce_anew(now_ns);
        }
        if let Some(advertiser) = &mut place.advertiser {
            advertiser.restart(now_ns, &mut self.random);
        }
        let known = self.learned(id);
        let rate = u64::from(self.config.solicits_per_s.max(1));
        let within_ns = known.len() as u64 * SECOND / rate;
        for at in known {
            let entry = &mut self.entries[at];
            (entry.is_doubted, entry.asked) = (true, 0);
            if !entry.is_in_use() {
                self.doubt(at, now_ns);
            } else if self.solicits.take(self.solicit_rate, now_ns) {
                self.probe(at, now_ns, out);
            } else {
                let due_ns = now_ns + self.random.within(0, within_ns);
                self.entries.enter(at, State::Delay, Some(due_ns));
            }
        }
        self.tick_own(id, now_ns, out);
    }

    /// The neighbours of an interface with learned MAC addresses.
    fn learned(&self, id: u16) -> Vec<u32> {
        let is_learned = |at: &u32| {
            let state = self.entries[*at].state;
            state.is_known() && state != State::Static
        };
        self.of(id).filter(is_learned).collect()
    }

    /// Sends final advertisements, by which hosts learn that this is not a router any more (RFC
    /// 4861 6.2.5), and drops waiting packets.
    pub fn shutdown(&mut self, out: &mut Out) {
        for (id, place) in &self.interfaces {
            advertise::cease(*id, place, out);
        }
        let all: Vec<u32> = self.entries.iter().map(|(at, _)| at).collect();
        all.into_iter()
            .for_each(|at| self.flush(at, DropReason::Evicted, out));
    }

    /// Adds a static neighbour, or makes one static; false if the table is full of such, or there
    /// is no such interface.
    #[must_use = "false means that there is no room"]
    pub fn add_static(
        &mut self,
        interface: u16,
        address: IpAddr,
        mac: MacAddr,
        out: &mut Out,
    ) -> bool {
        if !self.interfaces.contains_key(&interface) {
            return false;
        }
        let known = self.entries.find(interface, address);
        let Some(at) = known.or_else(|| self.create(interface, address, For::Config, out)) else {
            return false;
        };
        self.entries[at].mac = mac;
        self.entries.enter(at, State::Static, None);
        self.settle(at, out);
        true
    }

    /// Removes a neighbour, static or not; false if there is none.
    pub fn remove(&mut self, interface: u16, address: IpAddr, out: &mut Out) -> bool {
        let at = self.entries.find(interface, address);
        at.map(|at| self.evict(at, out)).is_some()
    }

    /// Handles timers; to be called every 100 ms or so, or at [`Table::next_due_ns`].
    pub fn tick(&mut self, now_ns: u64, out: &mut Out) {
        let mut budget = TICK_BUDGET;
        while let Some(at) = self.entries.pop_due(now_ns, &mut budget) {
            self.expire(at, now_ns, out);
        }
        let is_due = |(_, place): &(&u16, &Interface)| place.due_ns() <= now_ns;
        let due: Vec<u16> = (self.interfaces.iter().filter(is_due))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.tick_own(id, now_ns, out);
            self.tick_advertiser(id, now_ns, out);
        }
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now_ns {
                break;
            }
            let reply = first.remove();
            self.reply(&reply, out);
        }
    }

    /// Time of the next timer; `None`: none until the next input.
    pub fn next_due_ns(&self) -> Option<u64> {
        let interfaces = self.interfaces.values().map(|place| place.due_ns());
        let later = self.later.first_key_value().map(|((due_ns, _), _)| *due_ns);
        let due = interfaces
            .chain(later)
            .chain(self.entries.next_due_ns())
            .min();
        due.filter(|due_ns| *due_ns != u64::MAX)
    }

    /// All neighbours, in order of interface and address.
    pub fn neighbours(&self) -> impl Iterator<Item = Neighbour> {
        self.entries.iter().map(|(_, entry)| Neighbour {
            interface: entry.interface,
            address: entry.address,
            mac: entry.known_mac(),
            state: entry.state,
            is_router: entry.is_router,
            is_needed: entry.is_in_use(),
            queued_pkts: entry.queue.len(),
        })
    }

    /// How many neighbours there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets that wait, and their bytes.
    pub fn queued(&self) -> (usize, usize) {
        (self.queued_pkts, self.queued_bytes)
    }

    /// Whether an address of ours on an interface is used: no duplicate was found.
    pub fn is_usable(&self, interface: u16, address: IpAddr) -> bool {
        let place = self.interfaces.get(&interface);
        place.is_some_and(|place| place.is_usable(address))
    }

    /// The link-local address of an interface: the source of redirects.
    pub fn link_local(&self, interface: u16) -> Option<Ipv6Addr> {
        self.interfaces.get(&interface)?.link_local()
    }

    /// The MAC address of a neighbour, if it is known; sends nothing.
    pub fn mac(&self, interface: u16, address: IpAddr) -> Option<MacAddr> {
        let at = self.entries.find(interface, address)?;
        self.entries[at].known_mac()
    }

    fn of(&self, id: u16) -> impl Iterator<Item = u32> {
        let mine = self
            .entries
            .iter()
            .filter(move |(_, entry)| entry.interface == id);
        mine.map(|(at, _)| at)
    }

    /// Whether one more answer may be given.
    pub(super) fn may_reply(&mut self, now_ns: u64) -> bool {
        self.replies.take(self.reply_rate, now_ns)
    }

    /// A proxy's answer after a random delay (RFC 4861 7.2.8).
    pub(super) fn reply_later(&mut self, reply: Reply, now_ns: u64) {
        if self.later.len() < MAX_LATER {
            let due_ns = now_ns + self.random.within(0, self.config.timers.proxy_delay_ns);
            self.latest += 1;
            self.later.insert((due_ns, self.latest), reply);
        }
    }
}
