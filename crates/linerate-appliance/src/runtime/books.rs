//! The ledger of running and ended workers; and the taps.

use std::sync::atomic::Ordering;

use linerate_core::packet::Pool;
use linerate_core::run::ledger::{Account, Balance};
use linerate_core::run::{Inlet, Stage, Worker};

use super::{OpenPorts, Running};
use crate::control::taps::{Taps, Watched};

impl<S: Stage + 'static> Running<S> {
    /// Where its packets can be watched.
    pub fn taps(&self) -> Taps {
        let ports = self.ports().iter();
        Taps::new(
            self.handles()
                .map(|handle| Box::new(handle.clone()) as Box<dyn Watched>)
                .collect(),
            ports.map(|open| (open.number, open.name.clone())).collect(),
            self.watched.fetch_add(1, Ordering::Relaxed),
        )
    }

    /// The ledger at this moment: where each slot is, and which account has lost a packet.
    pub fn balance(&self) -> Balance {
        let mut is_whole = true;
        let balance = Balance::take(&self.all_pools(), || {
            let mut accounts = Vec::new();
            for handle in self.handles() {
                let names = self.names();
                match handle.call(move |worker| worker.accounts(&names)) {
                    Ok(own) => accounts.extend(own),
                    Err(_) => is_whole = false,
                }
            }
            self.opened.in_rings(accounts)
        });
        Balance {
            exact: balance.exact && is_whole,
            ..balance
        }
    }

    fn all_pools(&self) -> Vec<Pool> {
        self.pools
            .iter()
            .chain(self.added.pools())
            .cloned()
            .collect()
    }

    /// Names of ports, by number.
    fn names(&self) -> impl Fn(u16) -> String + Send + 'static {
        let ports = self.ports().iter();
        let names: Vec<(u16, String)> =
            ports.map(|open| (open.number, open.name.clone())).collect();
        move |number| {
            let mut names = names.iter();
            let known = names.find(|(known, _)| *known == number);
            known.map_or_else(|| number.to_string(), |(_, name)| name.clone())
        }
    }

    /// The ledger of ended workers, and of what was taken from them before. It is `whole` unless
    /// one has panicked, whose slots are in no account.
    pub(super) fn balance_of(
        &self,
        stopped: &mut [Worker<S>],
        inlets: &[(String, Inlet)],
        whole: bool,
    ) -> Balance {
        let names = self.names();
        let balance = Balance::take(&self.all_pools(), || {
            let accounts = stopped
                .iter_mut()
                .flat_map(|worker| worker.accounts(&names))
                .chain(
                    inlets
                        .iter()
                        .map(|(worker, inlet)| inlet.account(worker, &names)),
                );
            self.opened.in_rings(accounts.collect())
        });
        Balance {
            exact: balance.exact && whole,
            ..balance
        }
    }
}

impl OpenPorts {
    /// Adds packets in the ring of a port to the ring's account, by the counters of its two ends.
    pub fn in_rings(&self, mut accounts: Vec<Account>) -> Vec<Account> {
        let rings = self.ports.iter().filter(|open| open.info.kind == "ring");
        let rings: Vec<u16> = rings.map(|open| open.number).collect();
        let is_ring =
            |account: &&mut Account| account.port.is_some_and(|port| rings.contains(&port));
        for account in accounts.iter_mut().filter(is_ring) {
            account.passed += std::mem::take(&mut account.held);
        }
        accounts
    }
}
