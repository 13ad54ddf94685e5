//! The books: where every slot is, and who lost the one that is nowhere.
//!
//! Every holder counts on its own, at a moment between two bursts of its lcore. Since a packet
//! that passes from one to the other leaves the first holder's count and enters the second's, the
//! sum is exact although the moments differ: a ring between two lcores is booked by both ends, one
//! upwards, one downwards. What the sum lacks was forgotten, and the stage whose packets went
//! neither on nor out is the last holder.
//!
//! Plain drops (a [`Packet`](crate::packet::Packet) that goes out of scope) pass no holder's
//! books, so a snapshot during which one happened is taken again.

use crate::packet::{Pool, PoolCache};
use std::fmt;

/// What one holder says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Who.
    pub holder: String,
    /// Slots held, or a ring end's share of the count.
    pub held: i64,
    /// Slots that this holder's cache took from the pools' shared parts less those it gave there.
    pub from_shared: i64,
    /// Packets that came to this holder and went neither on nor out.
    pub lost: i64,
}

impl Account {
    /// A holder of slots.
    pub fn holds(holder: String, held: i64) -> Self {
        Self {
            holder,
            held,
            from_shared: 0,
            lost: 0,
        }
    }

    /// A cache of free slots.
    pub fn cache(holder: String, cache: &PoolCache) -> Self {
        Self {
            holder,
            held: cache.held_total() as i64,
            from_shared: cache.from_shared(),
            lost: 0,
        }
    }

    /// A stage and the packets it did not account for.
    pub fn lost(holder: String, lost: i64) -> Self {
        Self {
            holder,
            held: 0,
            from_shared: 0,
            lost,
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
    /// Slots that nobody has: forgotten packets. Below 0: a holder is missing from the books.
    pub missing: i64,
    /// Whether no plain drop disturbed the snapshot.
    pub exact: bool,
}

impl Balance {
    /// Takes the books. `accounts` asks every holder once, each between two of its bursts, and is
    /// asked again, up to ten times, when packets were dropped outside the books meanwhile.
    pub fn take(pools: &[Pool], mut accounts: impl FnMut() -> Vec<Account>) -> Self {
        let mut tries = 10;
        loop {
            let before: Vec<u64> = pools.iter().map(Pool::plain_drops).collect();
            let accounts = accounts();
            let undisturbed = pools.iter().map(Pool::plain_drops).eq(before);
            tries -= 1;
            if undisturbed || tries == 0 {
                return Self::sum(pools, accounts, undisturbed);
            }
        }
    }

    fn sum(pools: &[Pool], accounts: Vec<Account>, exact: bool) -> Self {
        let slots: i64 = pools.iter().map(|pool| i64::from(pool.slots())).sum();
        let from_shared: i64 = accounts.iter().map(|account| account.from_shared).sum();
        let returned: i64 = pools.iter().map(Pool::returned_to_shared).sum();
        let free_shared = slots - from_shared + returned;
        let held: i64 = accounts.iter().map(|account| account.held).sum();
        Self {
            slots,
            free_shared,
            missing: slots - free_shared - held,
            accounts,
            exact,
        }
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
        for account in self
            .accounts
            .iter()
            .filter(|account| account.held != 0 || account.lost != 0)
        {
            write!(f, "{}: {}", account.holder, account.held)?;
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
