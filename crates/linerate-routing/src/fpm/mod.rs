//! Routes from FRR: zebra connects (`-M dplane_fpm_nl`) and sends its table, then every change.
//!
//! A thread of its own listens, cuts the stream into messages ([`linerate_wire::fpm`]) and decodes
//! them; [`Fpm`], on the control thread, applies the messages. The queue between them is bounded:
//! while control is busy the thread does not read, and zebra waits.
//!
//! zebra's stream has no mark where the table ends. A zebra that has just started sends the few
//! routes it knows at once, and the rest as its protocols come up, so a pause does not mean the
//! end. Therefore routes that a new connection has not repeated are stale, and still used, for a
//! time that the user sets (`graceful`, [`restart`]).

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod listener;
mod owner;
mod restart;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use listener::{Event, Listener};
use restart::Restart;

use super::feed::Feed;
use super::model::{InterfaceId, Vrf};
use super::rib::{Rib, Source};
use linerate_appliance::error::Error;

/// Events for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FpmEvent {
    /// A peer connected.
    Connected(SocketAddr),
    /// A connection was refused, and why.
    Refused(SocketAddr, String),
    /// The connection ended, and why. Its routes stay until the grace time is over.
    Disconnected(SocketAddr, String),
    /// No connection came in the grace time. Routes are used until the next [`Fpm::poll`]: before
    /// it the kernel may be asked for its routes.
    Ended,
    /// So many routes were not repeated in time, and were removed.
    Swept(usize),
}

/// Counters over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FpmCounts {
    /// Accepted connections.
    pub connections: u64,
    /// FPM frames received.
    pub frames: u64,
    /// Messages that a router does not use: labels, MAC addresses of VXLANs.
    pub ignored: u64,
    /// Connections ended because the peer did not keep to the protocol.
    pub liars: u64,
}

/// The control thread's side.
pub struct Fpm {
    /// Routes and objects of the connected zebra.
    pub feed: Feed,
    /// Counters over all connections.
    pub counts: FpmCounts,
    restart: Restart,
    is_connected: bool,
    tells: bool,
    /// Whether its routes are removed with the next poll.
    has_ended: bool,
    listener: Listener,
}

impl Fpm {
    /// Listens for zebras of these users of this machine, and of other machines. `wake` is called,
    /// on another thread, whenever there is something to [poll](Self::poll).
    ///
    /// # Errors
    /// If the address is taken, or not ours.
    pub fn listen(
        address: SocketAddr,
        users: Vec<u32>,
        graceful: Duration,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        Ok(Self {
            feed: Feed::new(Source::Fpm),
            counts: FpmCounts::default(),
            restart: Restart::new(graceful),
            is_connected: false,
            tells: false,
            has_ended: false,
            listener: Listener::start(address, users, wake)?,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Connections that were refused.
    pub fn refused(&self) -> u64 {
        self.listener.refused()
    }

    /// Sets which table of FRR is which VRF. Routes of a VRF whose table changed are removed at
    /// once. For a new table the connection is closed, so that FRR sends everything again; routes
    /// that it repeats stay.
    pub fn set_tables(&mut self, rib: &mut Rib, tables: &[(u32, Vrf)]) {
        let before: BTreeSet<Vrf> = self.feed.vrfs().collect();
        let had: Vec<(Vrf, Vec<u32>)> = before
            .into_iter()
            .map(|vrf| (vrf, self.feed.tables_of(vrf)))
            .collect();
        let known: Vec<Option<Vrf>> = tables
            .iter()
            .map(|&(table, _)| self.feed.vrf(table))
            .collect();
        if !self.feed.set_tables(tables.iter().copied()) {
            return;
        }
        for (vrf, tables) in had {
            if self.feed.tables_of(vrf) != tables {
                rib.forget(Source::Fpm, vrf);
            }
        }
        let is_new = tables
            .iter()
            .zip(known)
            .any(|(&(_, vrf), known)| known != Some(vrf));
        if is_new {
            self.listener.hang_up();
        }
    }

    /// Whether FRR is the source of its routes: from the first connection to [`FpmEvent::Ended`].
    pub fn tells(&self) -> bool {
        self.tells
    }

    /// Sets which of our interfaces the kernel's interface of that number is the host interface of.
    /// Where routes by it were left out, because FRR knew it before us, FRR is asked for all routes
    /// again.
    pub fn set_interface(&mut self, rib: &mut Rib, index: u32, id: InterfaceId) {
        if self.feed.set_interface(rib, index, Some(id)) {
            self.listener.hang_up();
        }
    }

    /// Sets whether the kernel's interface of that number is a virtual device, by which the kernel
    /// forwards, likewise. FRR withdraws the routes by one that was removed.
    pub fn set_host(&mut self, rib: &mut Rib, index: u32, is_host: bool) {
        if self.feed.set_host(rib, index, is_host) == Some(true) && is_host {
            self.listener.hang_up();
        }
    }

    /// Puts received routes into the routing table, a bounded number at once: `true` if there may
    /// be more. Does not commit.
    pub fn poll(&mut self, rib: &mut Rib, now: Instant, events: &mut Vec<FpmEvent>) -> bool {
        const AT_ONCE: usize = 16;
        if std::mem::take(&mut self.has_ended) {
            events.push(FpmEvent::Swept(self.feed.end(rib)));
        }
        for _ in 0..AT_ONCE {
            let Some(event) = self.listener.next() else {
                if self.restart.is_over(now) {
                    match self.is_connected {
                        true => events.push(FpmEvent::Swept(self.feed.end(rib))),
                        false => {
                            (self.tells, self.has_ended) = (false, true);
                            events.push(FpmEvent::Ended);
                        }
                    }
                }
                return false;
            };
            self.apply(rib, event, now, events);
        }
        true
    }

    fn apply(&mut self, rib: &mut Rib, event: Event, now: Instant, events: &mut Vec<FpmEvent>) {
        match event {
            Event::Connected(peer) => {
                self.counts.connections += 1;
                (self.is_connected, self.tells) = (true, true);
                self.restart.connected(now);
                events.push(FpmEvent::Connected(peer));
            }
            Event::Refused { peer, why } => events.push(FpmEvent::Refused(peer, why)),
            Event::Said {
                said,
                frames,
                ignored,
            } => {
                self.restart.heard(now);
                self.counts.frames += u64::from(frames);
                self.counts.ignored += u64::from(ignored);
                for said in &said {
                    self.feed.apply(rib, said);
                }
            }
            Event::Disconnected { peer, why, lied } => {
                self.counts.liars += u64::from(lied);
                self.is_connected = false;
                self.restart.disconnected(now);
                self.feed.begin(rib);
                events.push(FpmEvent::Disconnected(peer, why));
            }
        }
    }
}
