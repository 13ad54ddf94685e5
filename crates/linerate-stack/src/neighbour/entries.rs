//! The entries: their storage, the order of eviction, and their timers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::{Index, IndexMut};

use linerate_tables::TableError;
use linerate_tables::wheel::Wheel;
use linerate_wire::MacAddr;

use super::{Queue, State};

/// The state of one neighbour.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) interface: u16,
    pub(super) address: IpAddr,
    pub(super) state: State,
    /// Valid where the state is a known one.
    pub(super) mac: MacAddr,
    /// When that was last changed.
    pub(super) changed_ns: u64,
    /// The MAC address last reported to routing.
    pub(super) told: Option<MacAddr>,
    pub(super) is_router: bool,
    /// Whether a packet has needed it.
    pub(super) is_needed: bool,
    /// Whether a route needs it: it is resolved without packets, and kept.
    pub(super) is_held: bool,
    /// Whether its link was down since: another station may have its address, so probes are
    /// multicast.
    pub(super) is_doubted: bool,
    /// Source of the packet that caused the resolution, until there is an answer.
    pub(super) asked_for: Option<IpAddr>,
    /// Solicitations since it was last confirmed.
    pub(super) asked: u8,
    /// What waits, oldest first.
    pub(super) queue: Queue,
    pub(super) queue_bytes: usize,
    /// Its place among those that may be evicted.
    rank: Option<(Class, Rank)>,
}

/// Classes of entries that may be evicted, in the order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Incomplete and failed ones.
    Unresolved,
    /// Stale ones that no packet has needed.
    Spare,
    /// Known ones that packets have needed, with the counters that they belong to.
    Used(Crowds),
}

/// What an entry in use shares with others: its MAC address, and its interface.
type Crowds = (u16, MacAddr);

/// The lowest of a class is evicted first. Among those in use these are the entries added when most
/// others had the same MAC address (in powers of two), then those added when most others were on
/// the same interface; entries added while there were few stay. Among equals the oldest is evicted.
type Rank = (Reverse<u32>, Reverse<u32>, u64);

impl Entry {
    pub(super) fn known_mac(&self) -> Option<MacAddr> {
        self.state.is_known().then_some(self.mac)
    }

    /// Whether it is reported to routing and kept verified.
    pub(super) fn is_in_use(&self) -> bool {
        self.is_needed || self.is_held || self.state == State::Static
    }

    fn class(&self) -> Option<Class> {
        match self.state {
            _ if self.is_held => None,
            State::Incomplete | State::Failed => Some(Class::Unresolved),
            State::Static => None,
            State::Stale if !self.is_needed => Some(Class::Spare),
            _ if self.is_needed => Some(Class::Used((self.interface, self.mac))),
            _ => None,
        }
    }
}

/// What room is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A packet's next hop.
    Packet,
    /// A station that has asked for us.
    Asker,
    /// The configuration.
    Config,
}

/// All entries; a bounded number.
pub(super) struct Entries {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    places: BTreeMap<(u16, IpAddr), u32>,
    unresolved: BTreeMap<Rank, u32>,
    spare: BTreeMap<Rank, u32>,
    used: BTreeMap<Rank, u32>,
    ranked: u64,
    /// Number of entries in use by MAC address, and by interface.
    of_mac: HashMap<Crowds, u32>,
    of_interface: HashMap<u16, u32>,
    timers: Wheel,
}

impl Entries {
    pub(super) fn new(most: usize, now_ns: u64) -> Result<Self, TableError> {
        Ok(Self {
            slots: Vec::new(),
            free: Vec::new(),
            places: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            spare: BTreeMap::new(),
            used: BTreeMap::new(),
            ranked: 0,
            of_mac: HashMap::new(),
            of_interface: HashMap::new(),
            timers: Wheel::new("neighbours", most, now_ns)?,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn find(&self, interface: u16, address: IpAddr) -> Option<u32> {
        self.places.get(&(interface, address)).copied()
    }

    /// In order of interface and address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.places.values().map(|at| (*at, &self[*at]))
    }

    /// The entry that a new one has to replace: `Ok(None)` if there is room, `Err` if none may be
    /// evicted.
    pub(super) fn victim(&self, who: For) -> Result<Option<u32>, ()> {
        let most = self.timers.capacity();
        let is_full = self.places.len() >= most;
        let unresolved = self.unresolved.len();
        let first = |ranks: &BTreeMap<Rank, u32>| ranks.values().next().copied();
        let (oldest, spare) = (first(&self.unresolved), first(&self.spare));
        // The last resort, so that a host that answers for a whole network does not lock out all
        // others.
        let used = first(&self.used);
        let victim = match who {
            // Unresolved entries take half of the table at most; the other half is for neighbours
            // that exist.
            For::Packet if unresolved >= (most / 2).max(1) => oldest,
            _ if !is_full => return Ok(None),
            // With few unresolved entries, none of them is evicted for one more: stale ones go
            // first, then those with the most of a kind.
            For::Packet if unresolved >= (most / 8).max(1) => oldest,
            For::Packet => spare.or(used).or(oldest),
            For::Asker => spare,
            For::Config => oldest.or(spare).or(used),
        };
        victim.map(Some).ok_or(())
    }

    /// A new entry, for which there is room.
    pub(super) fn insert(&mut self, interface: u16, address: IpAddr, state: State) -> u32 {
        let entry = Entry {
            interface,
            address,
            state,
            mac: MacAddr::default(),
            changed_ns: 0,
            told: None,
            is_router: false,
            is_needed: false,
            is_held: false,
            is_doubted: false,
            asked_for: None,
            asked: 0,
            queue: Queue::new(),
            queue_bytes: 0,
            rank: None,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[at as usize] = Some(entry);
        self.places.insert((interface, address), at);
        self.rank(at);
        at
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, at: u32) -> Entry {
        self.unrank(at);
        self.timers.cancel(at);
        self.free.push(at);
        let entry = self.slots[at as usize].take();
        let entry = entry.expect("only what is in is taken out");
        self.places.remove(&(entry.interface, entry.address));
        entry
    }

    /// Sets an entry's state, and its timer; `None`: no timer.
    pub(super) fn enter(&mut self, at: u32, state: State, due_ns: Option<u64>) {
        self[at].state = state;
        match due_ns {
            Some(due_ns) => self.timers.schedule(at, due_ns),
            None => _ = self.timers.cancel(at),
        }
        self.rank(at);
    }

    /// When an entry's timer fires, if it has one.
    pub(super) fn due_ns(&self, at: u32) -> Option<u64> {
        self.timers.deadline(at)
    }

    /// The next entry that is due.
    pub(super) fn pop_due(&mut self, now_ns: u64, budget: &mut usize) -> Option<u32> {
        self.timers.pop(now_ns, budget).map(|(at, _)| at)
    }

    /// No timer fires before this time.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.timers.next_expiry()
    }

    /// Ranks an entry in its class, behind all others.
    pub(super) fn rank(&mut self, at: u32) {
        let class = self[at].class();
        if self[at].rank.map(|rank| rank.0) == class {
            return;
        }
        self.unrank(at);
        let Some(class) = class else { return };
        self.ranked += 1;
        let mut rank = (Reverse(0), Reverse(0), self.ranked);
        if let Class::Used(crowds) = class {
            let one_more = |count: &mut u32| {
                *count += 1;
                Reverse(count.ilog2())
            };
            rank.0 = one_more(self.of_mac.entry(crowds).or_default());
            rank.1 = one_more(self.of_interface.entry(crowds.0).or_default());
        }
        self.ranks(class).insert(rank, at);
        self[at].rank = Some((class, rank));
    }

    fn unrank(&mut self, at: u32) {
        let Some((class, rank)) = self[at].rank.take() else {
            return;
        };
        self.ranks(class).remove(&rank);
        if let Class::Used(crowds) = class {
            one_less(&mut self.of_mac, crowds);
            one_less(&mut self.of_interface, crowds.0);
        }
    }

    fn ranks(&mut self, class: Class) -> &mut BTreeMap<Rank, u32> {
        match class {
            Class::Unresolved => &mut self.unresolved,
            Class::Spare => &mut self.spare,
            Class::Used(_) => &mut self.used,
        }
    }
}

/// Decrements a count; zero counts are removed.
fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, u32>, of: K) {
    if let hash_map::Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl Index<u32> for Entries {
    type Output = Entry;

    fn index(&self, at: u32) -> &Entry {
        let entry = self.slots[at as usize].as_ref();
        entry.expect("places, ranks and timers name entries")
    }
}

impl IndexMut<u32> for Entries {
    fn index_mut(&mut self, at: u32) -> &mut Entry {
        let entry = self.slots[at as usize].as_mut();
        entry.expect("places, ranks and timers name entries")
    }
}
