//! Answers given lately, so that a request that comes again gets the same one (TS 29.274 7.6), and
//! does nothing twice.
//!
//! A request that comes again is the same in all of its bytes: address, port and sequence number,
//! type and identifier say which it is. The latter two tell it from one with a number that its
//! sender uses again sooner than answers here are forgotten.
//!
//! A cache of fixed size, one place for each hash of that. Where two requests meet in a place, the
//! older one is forgotten: then it is handled again. A session that is being made is not made
//! again, and one that was deleted is not found, as its sender wants it. One that was made is
//! replaced by another: where its sender has heard the first answer, and the network has brought
//! the request twice, the user has to attach again.

use crate::ids::mix;
use linerate_wire::gtpc::Gtpc;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The longest answer that is kept, in bytes.
const ROOM: usize = 216;

/// A request of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// From where.
    pub from: SocketAddrV4,
    /// Its sequence number.
    pub sequence: u32,
    /// Our identifier in it; 0: none.
    pub teid: u32,
    /// Its type.
    pub message: u8,
}

impl Ask {
    const NONE: Self = Self {
        from: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        sequence: 0,
        teid: 0,
        message: 0,
    };

    /// That which came from there.
    pub fn of<T: AsRef<[u8]>>(from: SocketAddrV4, gtpc: &Gtpc<T>) -> Self {
        Self {
            from,
            sequence: gtpc.sequence(),
            teid: gtpc.teid().unwrap_or_default(),
            message: gtpc.message(),
        }
    }
}

impl Default for Ask {
    fn default() -> Self {
        Self::NONE
    }
}

#[derive(Clone)]
struct Entry {
    ask: Ask,
    until_ms: u64,
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
            ask: Ask::NONE,
            until_ms: 0,
            len: 0,
            bytes: [0; ROOM],
        };
        Self {
            entries: vec![empty; places.max(1).next_power_of_two()].into(),
            keep_ms,
            repeated: 0,
        }
    }

    fn place(&mut self, ask: &Ask) -> &mut Entry {
        let peer = u64::from(u32::from(*ask.from.ip())) << 16 | u64::from(ask.from.port());
        let number = u64::from(ask.teid) << 32 | u64::from(ask.sequence);
        let hash = mix(mix(peer) ^ number ^ u64::from(ask.message) << 24);
        let at = hash as usize & (self.entries.len() - 1);
        &mut self.entries[at]
    }

    /// Looks a request up.
    pub fn see(&mut self, now_ms: u64, ask: &Ask) -> Seen<'_> {
        let keep_ms = self.keep_ms;
        let entry = self.place(ask);
        if entry.ask == *ask && now_ms < entry.until_ms {
            self.repeated += 1;
            let entry = self.place(ask);
            return match usize::from(entry.len) {
                0 => Seen::InHand,
                len => Seen::Answered(&entry.bytes[..len]),
            };
        }
        entry.ask = *ask;
        (entry.until_ms, entry.len) = (now_ms + keep_ms, 0);
        Seen::New
    }

    /// Keeps the answer to a request, if that still has its place.
    pub fn put(&mut self, now_ms: u64, ask: &Ask, answer: &[u8]) {
        let keep_ms = self.keep_ms;
        let entry = self.place(ask);
        if entry.ask != *ask {
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

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: Ask = Ask {
        from: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 2123),
        sequence: 5,
        teid: 7,
        message: 34,
    };

    #[test]
    fn ts_29_274_7_6_a_repeated_request_gets_the_same_answer() {
        let mut answers = Answers::new(1 << 12, 1000);
        assert_eq!(answers.see(0, &ASK), Seen::New);
        assert_eq!(answers.see(1, &ASK), Seen::InHand);
        answers.put(2, &ASK, b"yes");
        assert_eq!(answers.see(3, &ASK), Seen::Answered(b"yes"));
        assert_eq!(answers.see(1001, &ASK), Seen::Answered(b"yes"));
        assert_eq!(answers.see(1002, &ASK), Seen::New); // a number used again
        answers.put(1003, &ASK, &[0; ROOM + 1]);
        assert_eq!(answers.see(1004, &ASK), Seen::New);
        assert_eq!(answers.repeated, 3);
    }

    #[test]
    fn ts_29_274_7_6_address_port_number_type_and_session_tell_requests_apart() {
        let mut answers = Answers::new(1 << 12, 1000);
        assert_eq!(answers.see(0, &ASK), Seen::New);
        answers.put(0, &ASK, b"yes");
        let other = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port);
        let others = [
            Ask {
                from: other(2, 2123),
                ..ASK
            },
            Ask {
                from: other(1, 2124),
                ..ASK
            },
            Ask { sequence: 6, ..ASK },
            Ask { teid: 8, ..ASK },
            Ask { message: 36, ..ASK },
        ];
        for other in others {
            assert_eq!(answers.see(1, &other), Seen::New, "{other:?}");
        }
        assert_eq!(answers.see(1, &ASK), Seen::Answered(b"yes"));
        assert_eq!(answers.repeated, 1);
    }

    #[test]
    fn of_two_in_one_place_the_newer_is_kept() {
        let mut answers = Answers::new(1, 1000);
        let newer = Ask { message: 36, ..ASK };
        assert_eq!(answers.see(0, &ASK), Seen::New);
        assert_eq!(answers.see(0, &newer), Seen::New);
        answers.put(0, &ASK, b"late");
        assert_eq!(answers.see(0, &newer), Seen::InHand);
    }
}
