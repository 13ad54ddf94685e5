//! Routes from FRR: zebra connects (`-M dplane_fpm_nl`) and sends its table, then every change.
//!
//! A thread of its own listens, cuts the stream into messages ([`linerate_wire::fpm`]) and decodes
//! them; [`Fpm`], on the control thread, does what they say. The way between is bounded: while control
//! is busy the thread does not read, and zebra waits.
//!
//! zebra's stream has no mark where the table ends. One that was started a moment ago sends the little
//! it knows at once, and the rest as its protocols come up: silence proves nothing. So what a new
//! connection does not repeat is in doubt for a time that the user sets (`graceful`), and used all the
//! while ([`restart`]).

mod listener;
mod restart;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub(crate) use listener::{Event, Listener};
use restart::Restart;

use super::feed::Feed;
use super::model::Vrf;
use super::rib::{Rib, Source};
use crate::error::Error;

/// What an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Connected(SocketAddr),
    /// And why it ended. Routes stay until the time of grace is over.
    Disconnected(SocketAddr, String),
    /// So many routes had not been repeated in time, and are gone.
    Swept(usize),
}

/// What came over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FpmCounts {
    pub(crate) connections: u64,
    pub(crate) frames: u64,
    /// Messages that are none of a router's business: labels, MAC addresses of VXLANs.
    pub(crate) ignored: u64,
    /// Connections ended because the peer did not keep to the protocol.
    pub(crate) liars: u64,
}

/// The control thread's side.
pub(crate) struct Fpm {
    pub(crate) feed: Feed,
    pub(crate) counts: FpmCounts,
    restart: Restart,
    listener: Listener,
    /// The connection that there is, if any.
    peer: Option<TcpStream>,
}

impl Fpm {
    /// Listens. `wake` is called, on another thread, whenever there is something to
    /// [poll](Self::poll).
    ///
    /// # Errors
    /// If the address is taken, or not ours.
    pub(crate) fn listen(
        address: SocketAddr,
        graceful: Duration,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        Ok(Self {
            feed: Feed::new(Source::Fpm),
            counts: FpmCounts::default(),
            restart: Restart::new(graceful),
            listener: Listener::start(address, wake)?,
            peer: None,
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Which table of FRR is which VRF. Routes of a VRF that is another table now are gone at once; where a
    /// table is new, the connection is ended: FRR says everything again, and what it repeats goes on.
    pub(crate) fn set_tables(&mut self, rib: &mut Rib, tables: &[(u32, Vrf)]) {
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
        if let Some(peer) = self.peer.as_ref().filter(|_| is_new) {
            // Where the other end was faster, it is gone already.
            let _ = peer.shutdown(Shutdown::Both);
        }
    }

    /// Puts what has come into the routing table, a bounded part of it: `true` if there may be more.
    /// Nothing is committed.
    pub(crate) fn poll(&mut self, rib: &mut Rib, now: Instant, news: &mut Vec<News>) -> bool {
        const AT_ONCE: usize = 16;
        for _ in 0..AT_ONCE {
            let Some(event) = self.listener.next() else {
                if self.restart.is_over(now) {
                    news.push(News::Swept(self.feed.end(rib)));
                }
                return false;
            };
            self.apply(rib, event, now, news);
        }
        true
    }

    fn apply(&mut self, rib: &mut Rib, event: Event, now: Instant, news: &mut Vec<News>) {
        match event {
            Event::Connected(peer, socket) => {
                self.peer = socket;
                self.counts.connections += 1;
                self.restart.connected(now);
                news.push(News::Connected(peer));
            }
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
                self.peer = None;
                self.counts.liars += u64::from(lied);
                self.restart.disconnected(now);
                self.feed.begin(rib);
                news.push(News::Disconnected(peer, why));
            }
        }
    }
}
