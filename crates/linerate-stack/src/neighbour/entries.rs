//! The entries themselves: where they are, who goes first, when each is due.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::{Index, IndexMut};

use linerate_tables::TableError;
use linerate_tables::wheel::Wheel;
use linerate_wire::MacAddr;

use super::{Queue, State};

/// What is known of one neighbour.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) interface: u16,
    pub(super) address: IpAddr,
    pub(super) state: State,
    /// Means something where the state is known.
    pub(super) mac: MacAddr,
    /// When that was last changed.
    pub(super) changed_ns: u64,
    /// What routing was told last.
    pub(super) told: Option<MacAddr>,
    pub(super) is_router: bool,
    /// A packet has asked for it.
    pub(super) is_needed: bool,
    /// A route needs it: it is asked for without packets, and stays.
    pub(super) is_held: bool,
    /// Its link was away: somebody else may have its address now, so everybody is asked.
    pub(super) is_doubted: bool,
    /// Whose packet had it asked for, while nobody has answered.
    pub(super) asked_for: Option<IpAddr>,
    /// Solicitations since it was last confirmed.
    pub(super) asked: u8,
    /// What waits, oldest first.
    pub(super) queue: Queue,
    pub(super) queue_bytes: usize,
    /// Its place among those that may be evicted.
    rank: Option<(Class, Rank)>,
}

/// Entries that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Incomplete and failed ones.
    Unresolved,
    /// Stale ones that no packet has asked for.
    Spare,
    /// Known ones that packets have asked for, by what they may be too many of.
    Used(Crowds),
}

/// What an entry in use shares with others: its MAC address, and its interface.
type Crowds = (u16, MacAddr);

/// The lowest goes first of its class. Of those in use these are, by powers of two, those that came
/// when there were most with the same MAC address, then those that came when there were most on the
/// same interface; whoever came while there were few stays. Among equals the oldest.
type Rank = (Reverse<u32>, Reverse<u32>, u64);

impl Entry {
    pub(super) fn known_mac(&self) -> Option<MacAddr> {
        self.state.is_known().then_some(self.mac)
    }

    /// Whether routing is told of it, and it is kept verified.
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

/// For whom room is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A packet's next hop.
    Packet,
    /// Somebody who asked for us.
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
    /// How many of those in use there are of each MAC address, and on each interface.
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

    /// Whom a new entry would have to replace: `Ok(None)` where there is room, `Err` where nobody
    /// may be.
    pub(super) fn victim(&self, who: For) -> Result<Option<u32>, ()> {
        let most = self.timers.capacity();
        let is_full = self.places.len() >= most;
        let unresolved = self.unresolved.len();
        let first = |ranks: &BTreeMap<Rank, u32>| ranks.values().next().copied();
        let (oldest, spare) = (first(&self.unresolved), first(&self.spare));
        // The last resort: who answers for a whole network does not lock out everybody else.
        let used = first(&self.used);
        let victim = match who {
            // However many addresses are asked for, the other half stays for those that exist.
            For::Packet if unresolved >= (most / 2).max(1) => oldest,
            _ if !is_full => return Ok(None),
            // A few that wait are not thrown out for one more: what is stale goes first then, and
            // what is one of too many.
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

    /// Sets an entry's state, and when it is due; `None`: never.
    pub(super) fn enter(&mut self, at: u32, state: State, due_ns: Option<u64>) {
        self[at].state = state;
        match due_ns {
            Some(due_ns) => self.timers.schedule(at, due_ns),
            None => _ = self.timers.cancel(at),
        }
        self.rank(at);
    }

    /// Whether an entry waits for its time.
    pub(super) fn due_ns(&self, at: u32) -> Option<u64> {
        self.timers.deadline(at)
    }

    /// The next entry that is due.
    pub(super) fn pop_due(&mut self, now_ns: u64, budget: &mut usize) -> Option<u32> {
        self.timers.pop(now_ns, budget).map(|(at, _)| at)
    }

    /// Before that, none is.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.timers.next_expiry()
    }

    /// Puts an entry among those of its class, behind all that are there.
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

/// Counts one out; what there is none of is not kept.
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
