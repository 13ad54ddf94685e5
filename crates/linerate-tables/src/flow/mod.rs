//! Flow tables: the state of flows, found from both directions, and their ageing.
//!
//! A [`FlowTable`] is an [`Exact`](crate::exact::Exact) table from keys to entries, the entries,
//! and a [`Wheel`](crate::wheel::Wheel) with a timer for each. It has one owner, the lcore that its
//! packets come to; RSS shards the flows. Read [`FlowConfig`] for its limits, [`FlowTable`] for
//! what one does with it, `ageing.rs` for how flows end.
//!
//! # Keys
//!
//! A flow begins with [`FlowTable::insert`], and its answers have the key of the first packet the
//! other way round: one entry of the index, under the lesser of the two. Where addresses are
//! translated, answers have another key: [`FlowTable::insert_pair`] takes both, for two entries of
//! the index and one of the flow. A packet hits a translated flow only as it was said: the reverse
//! of either key is a miss, and no other flow can begin with it ([`Refused::Taken`]).
//!
//! Keys hold the number of a network ([`FlowKey::zone`]; a VRF's, say), so the same addresses in
//! two networks are two flows. What turns one key of a flow
//! into the other lies in the entry: [`FlowTable::flow_mut`] gives the user's data and the other
//! key of a hit without another lookup.
//!
//! # Buckets
//!
//! Each flow is in one of 256 buckets, the user's unit of ownership: [`FlowTable::take_bucket`]
//! takes flows of one out as values, [`FlowTable::put`] puts them into another table as they are,
//! with their age and what they counted.
//!
//! # Ageing
//!
//! A packet only notes the time in its flow's entry, which it writes anyway to count. The timer
//! stays where it is; when it fires and the flow was seen since, it is set again for the time that
//! the flow would end. So a busy flow costs one timer operation a timeout, not one a packet. The
//! timer is never later than the flow's end: a change to a state with a shorter timeout moves it.
//! A flow lives until [`FlowTable::poll`] takes it out; a packet before that revives it.
//!
//! # Limits
//!
//! The table's size, each state's, each owner's (an owner is any number: an IPv4 address, the first
//! half of an IPv6 one), each zone's ([`First::zone`]), and how many flows have two keys. What does
//! not fit is refused and counted, or takes the place of the oldest flow of one state that is named
//! for this: half-open connections, in a SYN flood.
//!
//! # Cost
//!
//! | operation | work |
//! |---|---|
//! | touch | a lookup (two buckets at most), and a line of the entry; the user's are asked for |
//! | insert | a lookup, an insert of the index for each key, five lines, a timer |
//! | change of state | the entry, and a timer if the timeout is shorter |
//! | poll | each unit of budget is one timer: it moves a level, is set again, or ends a flow |
//! | take from a bucket, put | as the end of a flow, as an insert |
//! | dump | each unit of budget is one entry, used or not |
//!
//! Memory per flow, all at set-up, with 64 bytes of the user's: for IPv4 28 bytes of index for each
//! key, 128 of entry, 24 of key and age, 16 of timer, 8 of lists, so 204 and what is rounded up to
//! pages, with two keys 233; for IPv6 64 of index for each key, 192 of entry, 8 of age, 24 as
//! before: 288, with two keys 352. A state to evict adds 8, a quota of owners about 34.
//!
//! # Example
//!
//! ```
//! use linerate_tables::exact::Seed;
//! use linerate_tables::flow::{Direction, First, FlowConfig, FlowTable4, Inserted, states};
//! use linerate_wire::flow::FlowKey4;
//!
//! // A tick is a millisecond.
//! let config = FlowConfig::stateful("conntrack", 1000, 1000, Seed::random());
//! let mut flows = FlowTable4::<u32>::new(&config, 0)?;
//!
//! let syn = FlowKey4::new([10, 0, 0, 1], [192, 0, 2, 1], 40000, 443, 6);
//! let mut found = [None];
//! flows.touch_bulk(0, &[syn], &[60], &mut found);
//! assert_eq!(found, [None]);
//! let first = First { state: states::TCP_NEW, owner: 0, zone: 0, user: 7, bytes: 60 };
//! let Ok(Inserted::New { flow, .. }) = flows.insert(0, syn, first) else { panic!() };
//!
//! // The answer finds the same flow.
//! flows.touch_bulk(5, &[syn.reversed()], &[60], &mut found);
//! assert_eq!(found[0].map(|hit| (hit.flow, hit.direction)), Some((flow, Direction::Reverse)));
//! assert!(flows.set_state(flow, states::TCP_ESTABLISHED).is_ok());
//!
//! // Once per poll of the lcore: 256 timers at most.
//! flows.poll(7_440_005, 256, |ended| assert_eq!((ended.user, ended.packets), (7, [1, 1])));
//! assert!(flows.is_empty());
//! # Ok::<(), linerate_tables::TableError>(())
//! ```

use linerate_wire::flow::{FlowKey4, FlowKey6};

mod ageing;
mod buckets;
mod changes;
mod config;
mod entry;
mod key;
mod lists;
mod quota;
mod table;
#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;

pub use ageing::Polled;
pub use config::{FlowConfig, State, states};
pub use key::{Direction, FlowKey, Keep, Kept, NotKept};
pub use table::{Cursor, FlowTable};

/// A table of IPv4 flows.
pub type FlowTable4<S> = FlowTable<FlowKey4, S, 16>;
/// A table of IPv6 flows.
pub type FlowTable6<S> = FlowTable<FlowKey6, S, 40>;

/// Names a flow until it ends; afterwards it names nothing, even when another flow takes its place
/// (until the same place was taken 2^31 times).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId {
    index: u32,
    generation: u32,
}

impl FlowId {
    /// The flow's place, below the table's size: for arrays beside it.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// What a packet found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its flow.
    pub flow: FlowId,
    /// Which way it goes.
    pub direction: Direction,
    /// The flow's state when it was looked up.
    pub state: u8,
}

/// What belongs to a flow, to be read and changed.
#[derive(Debug)]
pub struct FlowMut<'a, F, S> {
    /// What the user keeps with it.
    pub user: &'a mut S,
    /// The key that packets of the other direction have. Reversed, it is what a packet's own key
    /// is after translation.
    pub other: F,
    /// Whether that is another one than the packet's own, reversed.
    pub translated: bool,
    /// The bucket that it is in.
    pub bucket: u8,
    /// Its state now: a packet before in the same burst may have changed it.
    pub state: u8,
    last_seen: &'a mut u64,
    packets: &'a mut u64,
    bytes: &'a mut u64,
}

impl<F, S> FlowMut<'_, F, S> {
    /// Counts the packet that found the flow, of so many bytes.
    #[inline(always)]
    pub fn count(&mut self, bytes: u32) {
        *self.packets += 1;
        *self.bytes += u64::from(bytes);
    }

    /// The packet came at tick `now`, and keeps the flow alive.
    #[inline(always)]
    pub fn refresh(&mut self, now: u64) {
        *self.last_seen = now.max(*self.last_seen);
    }
}

/// How a flow begins.
#[derive(Clone, Copy, Debug)]
pub struct First<S> {
    /// Its state.
    pub state: u8,
    /// Whose quota it takes from.
    pub owner: u64,
    /// The zone that it comes from, any number: flows of each zone are counted by state, and may be
    /// limited.
    pub zone: u8,
    /// What the user keeps with it.
    pub user: S,
    /// The length of the packet that begins it.
    pub bytes: u32,
}

/// The outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted<F, S> {
    /// A new flow, in the place of another if there was no other room.
    New {
        /// The new flow.
        flow: FlowId,
        /// The one that had to go.
        evicted: Option<Flow<F, S>>,
    },
    /// It was there, say from a packet before in the same burst: the packet was counted.
    Found(Hit),
}

/// Why a flow, or its new state, was not taken. Each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The table is full.
    Table,
    /// The state is full.
    State,
    /// The owner has all it may have.
    Owner,
    /// The zone has all it may have.
    Zone,
    /// As many flows as may have two keys.
    Translated,
    /// One of the keys, or its reverse, is another flow's.
    Taken,
    /// The index has no room for this key: keys were made to collide under a known seed.
    Collision,
    /// The flow has ended.
    Stale,
}

/// How often each refusal was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// [`Refused::Table`].
    pub table: u64,
    /// [`Refused::State`].
    pub state: u64,
    /// [`Refused::Owner`].
    pub owner: u64,
    /// [`Refused::Zone`].
    pub zone: u64,
    /// [`Refused::Translated`].
    pub translated: u64,
    /// [`Refused::Taken`].
    pub taken: u64,
    /// [`Refused::Collision`].
    pub collision: u64,
    /// [`Refused::Stale`].
    pub stale: u64,
}

/// The whole state of a flow, now or when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow<F, S> {
    /// Its name.
    pub id: FlowId,
    /// As the packet had it that began it.
    pub key: F,
    /// As its answers have it.
    pub reverse: F,
    /// Its bucket.
    pub bucket: u8,
    /// Its zone.
    pub zone: u8,
    /// Its state.
    pub state: u8,
    /// Whose quota it takes from; 0 in a table without a limit for owners.
    pub owner: u64,
    /// What the user keeps with it.
    pub user: S,
    /// When its first packet came.
    pub created: u64,
    /// When its last packet came.
    pub last_seen: u64,
    /// Packets forward and in reverse.
    pub packets: [u64; 2],
    /// Bytes forward and in reverse.
    pub bytes: [u64; 2],
}
