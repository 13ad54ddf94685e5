//! The kernel as a source: links, addresses, neighbours and routes of one network name space.
//!
//! [`Mirror`], on the control thread, keeps the kernel's state of our host interfaces, puts its
//! routes into the routing table, and returns events for control. The thread that listens is
//! `monitor`'s; making host interfaces look like our interfaces is
//! [`host_interface`](linerate_appliance::netlink::host_interface)'s, and [`ports`] watches the
//! interfaces below ports. All use `socket`.
//!
//! The kernel's other interfaces are never changed. Of routes by them only those by virtual devices
//! of the kernel are taken, whose packets are handed to it. Routes that the kernel adds itself for
//! an address of a host interface are left out: they follow from the address.

mod monitor;
pub mod ports;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use linerate_wire::MacAddr;

use self::monitor::{Fact, Monitor};
use super::feed::Feed;
use super::model::{Cidr, InterfaceId, Vrf};
use super::rib::{Rib, Source};
use crate::model::MAIN_TABLE;
use linerate_appliance::error::Error;
use linerate_appliance::netlink::host_interface::{Inward, Link};
use linerate_appliance::privilege::Privileged;

/// Room for some ten thousand events that control has not read yet.
const EVENT_BYTES: usize = 8 << 20;

/// Events that control has to act on.
#[derive(Clone, Debug, PartialEq)]
pub enum NetlinkEvent {
    /// A host interface appeared, or its state, MTU or MAC address changed.
    HostInterface(InterfaceId, Link),
    /// A host interface was deleted.
    HostInterfaceGone(InterfaceId),
    /// All current addresses of a host interface.
    Addresses(InterfaceId, Vec<Cidr>),
    /// A permanent neighbour in the kernel; `None`: it was removed.
    Pinned(InterfaceId, IpAddr, Option<MacAddr>),
    /// All current addresses of the kernel's loopback and dummy interfaces, by VRF.
    Hosts(Hosts),
    /// Whether a kernel interface is a virtual device, by which the kernel forwards itself.
    Device(u32, bool),
    /// The first dump, or one after a loss, is complete.
    Synchronised,
    /// Events were lost; a new dump follows.
    Overrun,
    /// The kernel's events do not come any more, and why.
    Lost(String),
}

/// The machine's own addresses on no host interface, by VRF.
pub type Hosts = BTreeMap<Vrf, BTreeSet<IpAddr>>;

/// Counters of the kernel's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// How often events were lost and a new dump was made.
    pub overruns: u64,
    /// Messages of the kernel that were applied.
    pub facts: u64,
}

/// What is known of one kernel interface.
#[derive(Debug, Default)]
struct Seen {
    link: Option<Link>,
    addresses: BTreeSet<Cidr>,
    pinned: BTreeMap<IpAddr, MacAddr>,
}

/// The state of one name space.
pub struct Mirror {
    /// Routes and objects of this name space.
    pub feed: Feed,
    /// Counters of its events.
    pub counts: KernelCounts,
    monitor: Monitor,
    /// Whether it is the router's own, in which FRR runs.
    is_own: bool,
    /// The names of our host interfaces in it.
    host_interfaces: HashMap<String, InterfaceId>,
    /// The names of interfaces that are ports, which the kernel does not forward by.
    ports: HashSet<String>,
    seen: HashMap<u32, Seen>,
    /// During a dump: the interfaces seen so far.
    anew: Option<HashMap<u32, Seen>>,
    synchronised: bool,
    /// The addresses of the last event.
    hosts: Hosts,
    /// Whether the running dump was requested.
    asked: bool,
}

impl Mirror {
    /// Watches a name space by its name (`ip netns`), or this one. `wake` is called, on another
    /// thread, whenever there is something to [poll](Self::poll).
    ///
    /// # Errors
    /// If there is no such name space, or it may not be entered.
    pub fn watch(
        privileged: &dyn Privileged,
        space: Option<&str>,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        Self::watch_with(privileged, space, EVENT_BYTES, wake)
    }

    fn watch_with(
        privileged: &dyn Privileged,
        space: Option<&str>,
        room: usize,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        Ok(Self {
            feed: Feed::new(Source::Kernel),
            counts: KernelCounts::default(),
            monitor: Monitor::start(privileged, space, room, wake)?,
            is_own: space.is_none(),
            host_interfaces: HashMap::new(),
            ports: HashSet::new(),
            seen: HashMap::new(),
            anew: None,
            synchronised: false,
            hosts: Hosts::new(),
            asked: false,
        })
    }

    /// Sets which kernel interfaces are host interfaces, and which are `ports`, by name. The next
    /// [`poll`](Self::poll) returns the events of new ones.
    pub fn set_host_interfaces(
        &mut self,
        rib: &mut Rib,
        host_interfaces: impl IntoIterator<Item = (String, InterfaceId)>,
        ports: impl IntoIterator<Item = String>,
        events: &mut Vec<NetlinkEvent>,
    ) {
        self.ports = ports.into_iter().collect();
        let before = std::mem::replace(
            &mut self.host_interfaces,
            host_interfaces.into_iter().collect(),
        );
        let seen = std::mem::take(&mut self.seen);
        for (&index, seen) in &seen {
            let Some(link) = &seen.link else { continue };
            self.follow_device(rib, link, events);
            let id = self.host_interfaces.get(&link.name).copied();
            if id == before.get(&link.name).copied() {
                continue;
            }
            self.feed.set_interface(rib, index, id);
            if let Some(id) = id {
                events.push(NetlinkEvent::HostInterface(id, link.clone()));
                events.push(addresses(id, &seen.addresses));
                let pinned = seen.pinned.iter();
                events.extend(pinned.map(|(&ip, &mac)| NetlinkEvent::Pinned(id, ip, Some(mac))));
            }
        }
        self.seen = seen;
    }

    /// Updates whether the kernel forwards by an interface itself.
    fn follow_device(&mut self, rib: &mut Rib, link: &Link, events: &mut Vec<NetlinkEvent>) {
        let is_known =
            self.host_interfaces.contains_key(&link.name) || self.ports.contains(&link.name);
        self.set_device(
            rib,
            link.index,
            link.up && link.is_made && !is_known,
            events,
        );
    }

    fn set_device(
        &mut self,
        rib: &mut Rib,
        index: u32,
        is_host: bool,
        events: &mut Vec<NetlinkEvent>,
    ) {
        let Some(is_asked) = self.feed.set_host(rib, index, is_host) else {
            return;
        };
        events.push(NetlinkEvent::Device(index, is_host));
        if is_asked {
            // The kernel does not say which routes go with a link (IPv4).
            self.monitor.again();
        }
    }

    /// Sets which table of the kernel is which VRF. Where that changes, a new dump is requested:
    /// routes of other tables were not kept.
    pub fn set_tables(&mut self, tables: impl IntoIterator<Item = (u32, Vrf)>) {
        // Without a first dump yet, everything comes anyway.
        if self.feed.set_tables(tables) {
            self.monitor.again();
            self.hosts.clear();
        }
    }

    /// The addresses of loopback and dummy interfaces that are up, which the kernel takes as local.
    /// Every VRF has an entry.
    fn hosts(&self) -> Hosts {
        let mut hosts: Hosts = self.feed.vrfs().map(|vrf| (vrf, BTreeSet::new())).collect();
        for seen in self.seen.values() {
            let Some(link) = seen.link.as_ref().filter(|link| link.up) else {
                continue;
            };
            let master = || self.seen.get(&link.master?)?.link.as_ref()?.inward;
            let table = match link.inward {
                None => continue,
                Some(Inward::Vrf(table)) => table,
                Some(Inward::Dummy) => match (link.master, master()) {
                    (None, _) => MAIN_TABLE,
                    (_, Some(Inward::Vrf(table))) => table,
                    _ => continue,
                },
                Some(Inward::Loopback) => MAIN_TABLE,
            };
            if let Some(vrf) = self.feed.vrf(table) {
                let own = seen.addresses.iter().map(|cidr| cidr.address);
                hosts.entry(vrf).or_default().extend(own);
            }
        }
        hosts
    }

    /// Adds an event with the machine's own addresses if they changed.
    fn tell_hosts(&mut self, events: &mut Vec<NetlinkEvent>) {
        let hosts = self.hosts();
        if hosts != self.hosts {
            events.push(NetlinkEvent::Hosts(hosts.clone()));
            self.hosts = hosts;
        }
    }

    /// Whether the first dump is complete, so that all host interfaces are known.
    pub fn is_synchronised(&self) -> bool {
        self.synchronised
    }

    /// Sets whether FRR sends its routes itself. While it does, its routes in the kernel's tables
    /// are left out; afterwards a dump is requested ([`is_synchronised`](Self::is_synchronised)
    /// says when it is complete).
    pub fn set_told_by_frr(&mut self, told: bool) {
        let was = std::mem::replace(&mut self.feed.told_by_frr, told);
        // An FRR in another name space is not the one with the connection.
        self.monitor.leave_out_frr(told && self.is_own);
        if was && !told && self.monitor.again() {
            (self.synchronised, self.asked) = (false, true);
        }
    }

    /// Applies what the kernel sent, a bounded number of messages at once: `true` if there may be
    /// more. Does not commit.
    pub fn poll(&mut self, rib: &mut Rib, events: &mut Vec<NetlinkEvent>) -> bool {
        const AT_ONCE: usize = 16;
        for _ in 0..AT_ONCE {
            let Some(facts) = self.monitor.next() else {
                return false;
            };
            self.counts.facts += facts.len() as u64;
            let of_hosts = |fact: &Fact| !matches!(fact, Fact::Said(_));
            let may_be_hosts = facts.iter().any(of_hosts);
            for fact in facts {
                self.learn(rib, fact, events);
            }
            if may_be_hosts {
                self.tell_hosts(events);
            }
        }
        true
    }

    fn learn(&mut self, rib: &mut Rib, fact: Fact, events: &mut Vec<NetlinkEvent>) {
        match fact {
            Fact::Begin => {
                self.anew = Some(HashMap::new());
                self.feed.begin(rib);
            }
            Fact::End { asked } => {
                let anew = self.anew.take().unwrap_or_default();
                self.forget_all_but(rib, &anew, events);
                self.feed.end(rib);
                self.asked &= !asked;
                self.synchronised = !self.asked;
                events.push(NetlinkEvent::Synchronised);
            }
            Fact::Overrun => {
                self.counts.overruns += 1;
                events.push(NetlinkEvent::Overrun);
            }
            Fact::Lost(why) => {
                // No more events will come.
                self.synchronised = true;
                events.push(NetlinkEvent::Lost(why));
            }
            Fact::Said(said) => self.feed.apply(rib, &said),
            Fact::Link(link) => {
                if let Some(seen) = self.said_anew(link.index) {
                    seen.link = Some(link.clone());
                }
                self.learn_link(rib, link, events);
            }
            Fact::NoLink(index) => {
                if let Some(anew) = &mut self.anew {
                    anew.remove(&index);
                }
                self.forget_link(rib, index, events);
            }
            Fact::Address(index, cidr) => {
                if let Some(seen) = self.said_anew(index) {
                    seen.addresses.insert(cidr);
                }
                let added = self.seen.entry(index).or_default().addresses.insert(cidr);
                self.tell_addresses(index, added, events);
            }
            Fact::NoAddress(index, cidr) => {
                if let Some(seen) = self.said_anew(index) {
                    seen.addresses.remove(&cidr);
                }
                let seen = self.seen.get_mut(&index);
                let removed = seen.is_some_and(|seen| seen.addresses.remove(&cidr));
                self.tell_addresses(index, removed, events);
            }
            Fact::Pinned(index, address, mac) => {
                if let Some(seen) = self.said_anew(index) {
                    seen.pinned.insert(address, mac);
                }
                let had = self
                    .seen
                    .entry(index)
                    .or_default()
                    .pinned
                    .insert(address, mac);
                if let Some(id) = self.feed.interface(index)
                    && had != Some(mac)
                {
                    events.push(NetlinkEvent::Pinned(id, address, Some(mac)));
                }
            }
            Fact::NotPinned(index, address) => {
                if let Some(seen) = self.said_anew(index) {
                    seen.pinned.remove(&address);
                }
                self.unpin(index, address, events);
            }
        }
    }

    /// During a dump, the state of an interface seen so far.
    fn said_anew(&mut self, index: u32) -> Option<&mut Seen> {
        Some(self.anew.as_mut()?.entry(index).or_default())
    }

    fn learn_link(&mut self, rib: &mut Rib, link: Link, events: &mut Vec<NetlinkEvent>) {
        let seen = self.seen.entry(link.index).or_default();
        let had = seen.link.replace(link.clone());
        if had.as_ref() == Some(&link) {
            return;
        }
        let id = self.host_interfaces.get(&link.name).copied();
        let was = self.feed.interface(link.index);
        self.feed.set_interface(rib, link.index, id);
        self.follow_device(rib, &link, events);
        if let Some(was) = was.filter(|_| was != id) {
            events.push(NetlinkEvent::HostInterfaceGone(was)); // it has another name now
        }
        if let Some(id) = id {
            let index = link.index;
            events.push(NetlinkEvent::HostInterface(id, link));
            self.tell_addresses(index, was != Some(id), events);
        }
    }

    fn forget_link(&mut self, rib: &mut Rib, index: u32, events: &mut Vec<NetlinkEvent>) {
        let id = self.feed.interface(index);
        let seen = self.seen.remove(&index);
        self.feed.set_interface(rib, index, None);
        self.set_device(rib, index, false, events);
        if let Some(id) = id {
            let pinned = seen.into_iter().flat_map(|seen| seen.pinned);
            events.extend(pinned.map(|(address, _)| NetlinkEvent::Pinned(id, address, None)));
            events.push(NetlinkEvent::HostInterfaceGone(id));
        }
    }

    fn unpin(&mut self, index: u32, address: IpAddr, events: &mut Vec<NetlinkEvent>) {
        let seen = self.seen.get_mut(&index);
        let had = seen.and_then(|seen| seen.pinned.remove(&address));
        if let Some(id) = self.feed.interface(index)
            && had.is_some()
        {
            events.push(NetlinkEvent::Pinned(id, address, None));
        }
    }

    fn tell_addresses(&self, index: u32, changed: bool, events: &mut Vec<NetlinkEvent>) {
        if let Some(id) = self.feed.interface(index)
            && let Some(seen) = self.seen.get(&index)
            && changed
        {
            events.push(addresses(id, &seen.addresses));
        }
    }

    /// Removes what a dump has not repeated.
    fn forget_all_but(
        &mut self,
        rib: &mut Rib,
        anew: &HashMap<u32, Seen>,
        events: &mut Vec<NetlinkEvent>,
    ) {
        let known: Vec<u32> = self.seen.keys().copied().collect();
        for index in known {
            let Some(now) = anew.get(&index) else {
                self.forget_link(rib, index, events);
                continue;
            };
            let seen = self.seen.entry(index).or_default();
            let before = seen.addresses.len();
            seen.addresses.retain(|cidr| now.addresses.contains(cidr));
            let changed = seen.addresses.len() < before;
            let gone: Vec<IpAddr> = seen.pinned.keys().copied().collect();
            self.tell_addresses(index, changed, events);
            for address in gone {
                if !now.pinned.contains_key(&address) {
                    self.unpin(index, address, events);
                }
            }
        }
    }
}

fn addresses(id: InterfaceId, addresses: &BTreeSet<Cidr>) -> NetlinkEvent {
    NetlinkEvent::Addresses(id, addresses.iter().copied().collect())
}
