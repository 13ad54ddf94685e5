//! The peers of a GTP-C endpoint: whether they answer, and whether they restarted.
//!
//! TS 23.007 18: each node has a counter that grows with each restart, and says it in echoes and in
//! the first messages of sessions. A greater one means that all that the peer knew is lost. A
//! smaller one, by wrapping comparison, was sent before the last: it is ignored.
//!
//! A peer says its counter once, to whichever core that message comes, and restarts for all: each
//! core tells the others what it hears first, and all know the same peers.
//!
//! A new peer takes a free place, or that of one without sessions here: so many that come and go do
//! not keep others out. It is the one whose last answer to an echo is the oldest at the core that
//! sends those, the first; at the others, which hear no answers, the one that was learnt first.

use std::net::Ipv4Addr;

/// What is known of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub address: Ipv4Addr,
    /// The counter that it said last.
    pub restarts: Option<u8>,
    /// How often it restarted under our eyes: sessions remember it, and those of an older one are
    /// gone.
    pub epoch: u16,
    /// Whether it answered the last echo, or spoke since.
    pub is_up: bool,
    /// Sessions of this core with it.
    pub sessions: u32,
    /// When it answered an echo of this core last, or was learnt, in milliseconds.
    heard_ms: u64,
    /// When to ask again, in milliseconds.
    pub(crate) echo_ms: u64,
    /// An echo request is under way.
    pub(crate) is_asked: bool,
}

impl Peer {
    fn restart(&mut self, restarts: u8) {
        self.restarts = Some(restarts);
        self.epoch = self.epoch.wrapping_add(1);
    }
}

/// What a counter said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing new, or from a stranger.
    Same,
    /// The first counter of a peer.
    First,
    /// The peer restarted: sessions of older epochs are gone.
    Restarted,
}

/// The peers, at most so many.
#[derive(Debug)]
pub struct Paths {
    peers: Vec<Peer>,
    most: usize,
    /// Milliseconds between two echoes to a peer; `None`: none are sent.
    every_ms: Option<u64>,
}

impl Paths {
    /// Room for `most` peers. TS 29.274 7.1.1: a peer is asked once in 60 s at most.
    pub fn new(most: usize, every_ms: Option<u64>) -> Self {
        Self {
            peers: Vec::with_capacity(most),
            most,
            every_ms,
        }
    }

    /// The peers.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    pub(crate) fn peers_mut(&mut self) -> &mut [Peer] {
        &mut self.peers
    }

    pub(crate) fn every_ms(&self) -> Option<u64> {
        self.every_ms
    }

    /// The epoch of a peer, which is learnt if there is room: called for peers that sessions are
    /// made with, so that what strangers send takes none. `None`: there is no room.
    pub fn epoch(&mut self, now_ms: u64, address: Ipv4Addr) -> Option<u16> {
        if let Some(peer) = self.find(address) {
            return Some(peer.epoch);
        }
        let peer = Peer {
            address,
            restarts: None,
            epoch: 0,
            is_up: true,
            sessions: 0,
            heard_ms: now_ms,
            echo_ms: now_ms + self.every_ms.unwrap_or_default(),
            is_asked: false,
        };
        if self.peers.len() < self.most {
            self.peers.push(peer);
            return Some(0);
        }
        let unused = self.peers.iter_mut().filter(|peer| peer.sessions == 0);
        let place = unused.min_by_key(|peer| peer.heard_ms)?;
        *place = peer;
        Some(0)
    }

    fn find(&mut self, address: Ipv4Addr) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.address == address)
    }

    /// A session is made with a peer, whose place is its own as long as there is one.
    pub fn hold(&mut self, address: Ipv4Addr) {
        if let Some(peer) = self.find(address) {
            peer.sessions += 1;
        }
    }

    /// A session with a peer is over.
    pub fn release(&mut self, address: Ipv4Addr) {
        if let Some(peer) = self.find(address) {
            peer.sessions = peer.sessions.saturating_sub(1);
        }
    }

    /// An echo was answered, or was not.
    pub(crate) fn answered(&mut self, now_ms: u64, address: Ipv4Addr, is_up: bool) {
        let every_ms = self.every_ms.unwrap_or_default();
        if let Some(peer) = self.find(address) {
            (peer.is_asked, peer.is_up) = (false, is_up);
            peer.echo_ms = now_ms + every_ms;
            if is_up {
                peer.heard_ms = now_ms;
            }
        }
    }

    /// Whether a session made in that epoch of the peer still stands.
    #[inline]
    pub fn is_current(&self, address: Ipv4Addr, epoch: u16) -> bool {
        let mut peers = self.peers.iter();
        peers.any(|peer| peer.address == address && peer.epoch == epoch)
    }

    /// Takes a counter that a peer said. Strangers' are ignored.
    pub fn heard(&mut self, address: Ipv4Addr, restarts: u8) -> Heard {
        let Some(peer) = self.find(address) else {
            return Heard::Same;
        };
        peer.is_up = true;
        let Some(known) = peer.restarts else {
            peer.restarts = Some(restarts);
            return Heard::First;
        };
        if !matches!(restarts.wrapping_sub(known), 1..=127) {
            return Heard::Same;
        }
        peer.restart(restarts);
        Heard::Restarted
    }

    /// Another core knows that a peer restarted, and says this counter; whether that is new.
    pub fn restarted(&mut self, address: Ipv4Addr, restarts: u8) -> bool {
        let heard = self.heard(address, restarts);
        if heard == Heard::First {
            // What it said before has not come here.
            self.find(address)
                .into_iter()
                .for_each(|peer| peer.restart(restarts));
        }
        heard != Heard::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ts_23_007_18_a_greater_counter_is_a_restart_and_a_smaller_one_is_late() {
        let peer = Ipv4Addr::new(10, 0, 0, 1);
        let mut paths = Paths::new(1, None);
        assert_eq!(paths.heard(peer, 7), Heard::Same); // a stranger
        assert_eq!(paths.epoch(0, peer), Some(0));
        let said = [254, 254, 255, 254, 1, 255, 1];
        let heard = said.map(|restarts| paths.heard(peer, restarts));
        let (first, same, restarted) = (Heard::First, Heard::Same, Heard::Restarted);
        assert_eq!(heard, [first, same, restarted, same, restarted, same, same]);
        assert_eq!(paths.epoch(0, peer), Some(2));
        assert!(paths.is_current(peer, 2) && !paths.is_current(peer, 1));
    }

    #[test]
    fn ts_23_007_18_what_another_core_knows_of_a_restart_needs_no_counter_of_before() {
        let peer = Ipv4Addr::new(10, 0, 0, 1);
        let mut paths = Paths::new(1, None);
        assert!(!paths.restarted(peer, 7)); // a stranger
        assert_eq!(paths.epoch(0, peer), Some(0));
        assert!(paths.restarted(peer, 7) && !paths.restarted(peer, 7));
        assert_eq!(paths.epoch(0, peer), Some(1));
        assert!(paths.restarted(peer, 8) && !paths.restarted(peer, 7));
        assert_eq!(paths.epoch(0, peer), Some(2));
    }

    #[test]
    fn who_has_no_sessions_and_is_silent_gives_its_place_to_another() {
        let [one, two, three, four] = [1, 2, 3, 4].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let mut paths = Paths::new(2, None);
        for peer in [one, two] {
            assert_eq!(paths.epoch(0, peer), Some(0));
            paths.hold(peer);
            paths.heard(peer, 1);
            assert_eq!(paths.heard(peer, 2), Heard::Restarted);
        }
        assert_eq!(paths.epoch(1, three), None);
        paths.release(one);
        paths.release(two);
        paths.answered(2, one, true);
        paths.answered(3, two, false);
        assert_eq!(paths.epoch(4, three), Some(0));
        assert!(paths.is_current(one, 1) && !paths.is_current(two, 1));
        paths.hold(one);
        assert_eq!(paths.epoch(5, four), Some(0));
        paths.hold(four);
        assert_eq!(paths.epoch(6, two), None);
        assert!(paths.is_current(one, 1) && paths.is_current(four, 0));
    }
}
