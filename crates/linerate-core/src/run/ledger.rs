//! The ledger: where every slot is, and which account has lost one.
//!
//! Every holder counts on its own, at a moment between two bursts of its lcore. Since a packet
//! that passes from one to the other leaves the first holder's count and enters the second's, the
//! sum is exact although the moments differ: a ring between two lcores is counted by both ends, one
//! adding, one subtracting. What the sum lacks was forgotten, and the stage whose packets went
//! neither on nor out is the last holder.
//!
//! Plain drops (a [`Packet`](crate::packet::Packet) that goes out of scope) pass no holder's
//! books, so a snapshot during which one happened is taken again.

use crate::packet::{Pool, PoolCache};
use std::fmt;

/// What a holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A cache of free slots.
    FreeSlots,
    /// A port's receive queue.
    RxQueue,
    /// A port's transmit queue.
    TxQueue,
    /// One end of a ring.
    Ring,
    /// All stages of a worker together.
    Pipeline,
    /// A named stage.
    Stage,
    /// Anything else.
    Other,
}

/// The account of one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// What it is.
    pub kind: Holder,
    /// Who.
    pub holder: String,
    /// Of a port's queue: the port's number.
    pub port: Option<u16>,
    /// Slots held.
    pub held: i64,
    /// A ring end's share of what is in the ring: packets that went in, or less those that came
    /// out.
    pub passed: i64,
    /// Slots that this holder's cache took from the pools' shared parts less those it gave there.
    pub from_shared: i64,
    /// Packets that came to this holder and went neither on nor out; below 0: more went than came.
    pub lost: i64,
    /// Packets that came, where the holder counts them.
    pub received: u64,
    /// Packets that went on.
    pub sent: u64,
    /// Packets dropped for a reason.
    pub dropped: u64,
}

impl Account {
    /// Of a holder that has nothing.
    pub fn of(kind: Holder, holder: String) -> Self {
        Self {
            kind,
            holder,
            port: None,
            held: 0,
            passed: 0,
            from_shared: 0,
            lost: 0,
            received: 0,
            sent: 0,
            dropped: 0,
        }
    }

    /// A holder of slots.
    pub fn holds(holder: String, held: i64) -> Self {
        Self {
            held,
            ..Self::of(Holder::Other, holder)
        }
    }

    /// A cache of free slots.
    pub fn cache(holder: String, cache: &PoolCache) -> Self {
        Self {
            held: cache.held_total() as i64,
            from_shared: cache.from_shared(),
            ..Self::of(Holder::FreeSlots, holder)
        }
    }
}

/// The books at one moment.
#[derive(Clone, Debug)]
pub struct Balance {
    /// Slots of all pools.
    pub slots: i64,
    /// Free slots in depots and return lists.
    pub free_shared: i64,
    /// All holders.
    pub accounts: Vec<Account>,
    /// Slots without a holder: leaked packets. Below 0: a holder is missing from the ledger.
    pub missing: i64,
    /// Whether no plain drop disturbed the snapshot.
    pub exact: bool,
}

impl Balance {
    /// Takes the ledger. `accounts` queries every holder once, each between two of its bursts, and
    /// is called again, up to ten times, if packets were dropped outside the ledger meanwhile.
    pub fn take(pools: &[Pool], mut accounts: impl FnMut() -> Vec<Account>) -> Self {
        let mut tries = 10;
        loop {
            let before: Vec<u64> = pools.iter().map(Pool::plain_drops).collect();
            let mut books = Self::sum(pools, accounts());
            // Last: what the sum read is part of the snapshot.
            books.exact = pools.iter().map(Pool::plain_drops).eq(before);
            tries -= 1;
            if books.exact || tries == 0 {
                return books;
            }
        }
    }

    fn sum(pools: &[Pool], accounts: Vec<Account>) -> Self {
        let slots: i64 = pools.iter().map(|pool| i64::from(pool.slots())).sum();
        let from_shared: i64 = accounts.iter().map(|account| account.from_shared).sum();
        let returned: i64 = pools.iter().map(Pool::returned_to_shared).sum();
        let free_shared = slots - from_shared + returned;
        let all = accounts.iter();
        let held: i64 = all.map(|account| account.held + account.passed).sum();
        Self {
            slots,
            free_shared,
            missing: slots - free_shared - held,
            accounts,
            exact: true,
        }
    }

    /// Packets that came to all pipelines.
    pub fn packets(&self) -> u64 {
        let pipelines = self.accounts.iter();
        let pipelines = pipelines.filter(|account| account.kind == Holder::Pipeline);
        pipelines.map(|account| account.received).sum()
    }

    /// Whether every slot is with a holder, and every packet went on or out.
    pub fn is_even(&self) -> bool {
        // What was dropped outside the books while they were taken may be what is missing.
        let slots_even = self.missing == 0 || !self.exact;
        slots_even && self.accounts.iter().all(|account| account.lost == 0)
    }

    /// The ledger in a line: that all slots are accounted for, or how many are not, and which
    /// account lost them.
    pub fn verdict(&self) -> String {
        let packets = match self.packets() {
            0 => format!("{} slots", self.slots),
            packets => format!("{packets} packets"),
        };
        if self.is_even() {
            return format!("all {packets} accounted for");
        }
        let wrong = self.accounts.iter().filter(|account| account.lost != 0);
        let mut said: Vec<String> = wrong
            .map(|account| match account.lost {
                lost @ 1.. => format!("{lost} lost by {}", account.holder),
                made => format!("{} more went from {} than came", -made, account.holder),
            })
            .collect();
        match self.missing {
            0 => {}
            missing @ 1.. if said.is_empty() => {
                said.push(format!("{missing} slots missing, last holder unknown"));
            }
            missing @ 1.. => said.push(format!("{missing} slots missing")),
            surplus => said.push(format!("{} slots held twice", -surplus)),
        }
        format!("unaccounted for, of {packets}: {}", said.join("; "))
    }

    /// The holders that lost packets, the worst first.
    pub fn last_holders(&self) -> Vec<&Account> {
        let mut losers: Vec<_> = self
            .accounts
            .iter()
            .filter(|account| account.lost > 0)
            .collect();
        losers.sort_by_key(|account| -account.lost);
        losers
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} slots, {} free and shared",
            self.slots, self.free_shared
        )?;
        let holds = |account: &&Account| account.held + account.passed != 0 || account.lost != 0;
        for account in self.accounts.iter().filter(holds) {
            let held = account.held + account.passed;
            write!(f, "{}: {held}", account.holder)?;
            if account.lost != 0 {
                write!(f, ", lost {}", account.lost)?;
            }
            writeln!(f)?;
        }
        let names: Vec<_> = self
            .last_holders()
            .iter()
            .map(|account| account.holder.as_str())
            .collect();
        match (self.missing, names.is_empty()) {
            (0, _) => write!(f, "none missing"),
            (missing, true) => write!(f, "{missing} missing, no holder known"),
            (missing, false) => write!(f, "{missing} missing, last held by {}", names.join(", ")),
        }
    }
}
