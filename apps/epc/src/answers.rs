//! Answers given lately, so that a request that comes again gets the same one (TS 29.274 7.6), and
//! does nothing twice.
//!
//! A cache of fixed size, one place for each hash of peer and sequence number. Where two requests
//! meet in a place, the older one is forgotten: then it is handled again, which no handler minds
//! (a session made again replaces itself, one deleted again is not found).

use crate::ids::mix;
use std::net::SocketAddrV4;

/// The longest answer that is kept, in bytes.
const ROOM: usize = 216;

#[derive(Clone)]
struct Entry {
    peer: u64,
    until_ms: u64,
    sequence: u32,
    message: u8,
    /// 0: the request is being worked on.
    len: u8,
    bytes: [u8; ROOM],
}

/// What is known of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// Nothing: it is to be handled, and counts as being worked on from now.
    New,
    /// It is being worked on: nothing is to be done.
    InHand,
    /// This is to be sent once more.
    Answered(&'a [u8]),
}

/// The cache.
pub struct Answers {
    entries: Box<[Entry]>,
    keep_ms: u64,
    /// Answers given again, and requests that came again while they were worked on.
    pub repeated: u64,
}

impl Answers {
    /// `places` answers, a power of two at least, each kept for `keep_ms`: as long as a peer may
    /// send its request again.
    pub fn new(places: usize, keep_ms: u64) -> Self {
        let empty = Entry {
            peer: 0,
            until_ms: 0,
            sequence: 0,
            message: 0,
            len: 0,
            bytes: [0; ROOM],
        };
        Self {
            entries: vec![empty; places.max(1).next_power_of_two()].into(),
            keep_ms,
            repeated: 0,
        }
    }

    fn place(&mut self, peer: u64, sequence: u32) -> &mut Entry {
        let hash = mix(peer << 24 ^ u64::from(sequence));
        let at = hash as usize & (self.entries.len() - 1);
        &mut self.entries[at]
    }

    /// Looks a request up.
    pub fn see(&mut self, now_ms: u64, from: SocketAddrV4, message: u8, sequence: u32) -> Seen<'_> {
        let (keep_ms, peer) = (self.keep_ms, number(from));
        let entry = self.place(peer, sequence);
        let is_known = (entry.peer, entry.sequence, entry.message) == (peer, sequence, message);
        if is_known && now_ms < entry.until_ms {
            self.repeated += 1;
            let entry = self.place(peer, sequence);
            return match usize::from(entry.len) {
                0 => Seen::InHand,
                len => Seen::Answered(&entry.bytes[..len]),
            };
        }
        (entry.peer, entry.sequence, entry.message) = (peer, sequence, message);
        (entry.until_ms, entry.len) = (now_ms + keep_ms, 0);
        Seen::New
    }

    /// Keeps the answer to a request, if that still has its place.
    pub fn put(&mut self, now_ms: u64, to: SocketAddrV4, sequence: u32, answer: &[u8]) {
        let (keep_ms, peer) = (self.keep_ms, number(to));
        let entry = self.place(peer, sequence);
        if (entry.peer, entry.sequence) != (peer, sequence) {
            return;
        }
        match entry.bytes.get_mut(..answer.len()) {
            Some(room) => {
                room.copy_from_slice(answer);
                (entry.len, entry.until_ms) = (answer.len() as u8, now_ms + keep_ms);
            }
            // Too long to keep: the request would be handled again.
            None => entry.until_ms = 0,
        }
    }
}

fn number(peer: SocketAddrV4) -> u64 {
    u64::from(u32::from(*peer.ip())) << 16 | u64::from(peer.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn ts_29_274_7_6_a_repeated_request_gets_the_same_answer() {
        let peer = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 2123);
        let other = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 2123);
        let mut answers = Answers::new(1 << 12, 1000);
        assert_eq!(answers.see(0, peer, 32, 5), Seen::New);
        assert_eq!(answers.see(1, peer, 32, 5), Seen::InHand);
        answers.put(2, peer, 5, b"yes");
        assert_eq!(answers.see(3, peer, 32, 5), Seen::Answered(b"yes"));
        assert_eq!(answers.see(3, other, 32, 5), Seen::New);
        assert_eq!(answers.see(1001, peer, 32, 5), Seen::Answered(b"yes"));
        assert_eq!(answers.see(1002, peer, 32, 5), Seen::New); // a number used again
        answers.put(1003, peer, 5, &[0; ROOM + 1]);
        assert_eq!(answers.see(1004, peer, 32, 5), Seen::New);
        assert_eq!(answers.repeated, 3);
    }

    #[test]
    fn of_two_in_one_place_the_newer_is_kept() {
        let peer = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 2123);
        let mut answers = Answers::new(1, 1000);
        assert_eq!(answers.see(0, peer, 32, 5), Seen::New);
        assert_eq!(answers.see(0, peer, 32, 6), Seen::New);
        answers.put(0, peer, 5, b"late");
        assert_eq!(answers.see(0, peer, 32, 6), Seen::InHand);
    }
}
