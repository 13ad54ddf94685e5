//! What packets carry through rings: 16 bytes of user data that say what the next lcore does.

use linerate_core::packet::UserData;
use linerate_wire::{FlowKey, FlowKey4, FlowKey6};

use super::plan::Member;

/// What an lcore does with a packet from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// It is of this lcore's connections; its port is where the machine received it.
    Deliver,
    /// The same; it came by the former owner of its connection, which is this lcore.
    Follow {
        /// That owner.
        from: Member,
    },
    /// Its home is this lcore: dispatch it as if it had come from its port.
    Again,
    /// It leaves by a port; this lcore, a home or the owner by hash, looks at it before: it begins
    /// or ends a connection that an entry is for, or is to be for, or begins one here.
    Leave {
        /// The port.
        port: u16,
        /// Who sends it.
        from: Member,
        /// Which of the lcores on its way this is, from 0.
        visit: u8,
    },
    /// It is the SYN of this lcore's, which did not leave: there is no room for its entry, or
    /// another lcore has its 4-tuple.
    Refused,
    /// Something from one lcore's host to another's, a connection or a part of one, say.
    Parcel {
        /// Who sends it.
        from: Member,
        /// What the host makes of it.
        kind: u16,
    },
    /// A message: the connection is its sender's from now on.
    Pin {
        /// The sender.
        owner: Member,
        /// The port by which its packets come.
        port: u16,
        /// How often the connection has moved, by which an older message is known; it wraps.
        moves: u16,
        /// Whether it is said once more, because it may have been lost.
        again: bool,
    },
    /// A message: the sender's connection has ended.
    Delete {
        /// The sender.
        owner: Member,
    },
    /// A message: the same, which goes on by the way of the connection's SYN.
    Ended {
        /// Whose it was.
        owner: Member,
        /// The port by which its packets came.
        port: u16,
        /// Which of the lcores on its way this is, from 0.
        visit: u8,
    },
    /// A message: does this connection of the receiver's still exist? The answer is one of the two
    /// before. One that has left it passes the question on.
    Ask {
        /// Who asks: a home, or a former owner.
        from: Member,
    },
    /// A message: there was no room for an entry of the receiver's connection.
    NoRoom,
    /// A message: does the receiver, a home, still send packets of this connection to the sender?
    /// If not, it says [`Moved`](Self::Moved), once more perhaps.
    Where {
        /// The sender, which was its owner.
        from: Member,
        /// The port by which its packets come.
        port: u16,
    },
    /// A message: no more packets of this connection come from the sender, which is a home.
    Moved,
    /// A message: no more packets of this connection come from the sender, which was its owner.
    Drained,
    /// Anything else, which nobody sends.
    Unknown,
}

impl UserData for Note {
    #[inline(always)]
    fn from_words([first, _]: [u64; 2]) -> Self {
        let (member, short, last) = (
            (first >> 8) as u8,
            (first >> 16) as u16,
            (first >> 32) as u16,
        );
        match first as u8 {
            1 => Self::Deliver,
            2 => Self::Follow { from: member },
            3 => Self::Again,
            4 => Self::Leave {
                port: short,
                from: member,
                visit: last as u8,
            },
            5 => Self::Refused,
            6 => Self::Parcel {
                from: member,
                kind: short,
            },
            7 => Self::Pin {
                owner: member,
                port: short,
                moves: last,
                again: first >> 48 & 1 != 0,
            },
            8 => Self::Delete { owner: member },
            9 => Self::Ask { from: member },
            10 => Self::NoRoom,
            11 => Self::Moved,
            12 => Self::Drained,
            13 => Self::Where {
                from: member,
                port: short,
            },
            14 => Self::Ended {
                owner: member,
                port: short,
                visit: last as u8,
            },
            _ => Self::Unknown,
        }
    }

    #[inline(always)]
    fn into_words(self) -> [u64; 2] {
        let again = matches!(self, Self::Pin { again: true, .. });
        let (kind, member, short, last) = match self {
            Self::Unknown => (0, 0, 0, 0),
            Self::Deliver => (1, 0, 0, 0),
            Self::Follow { from } => (2, from, 0, 0),
            Self::Again => (3, 0, 0, 0),
            Self::Leave { port, from, visit } => (4, from, port, visit.into()),
            Self::Refused => (5, 0, 0, 0),
            Self::Parcel { from, kind } => (6, from, kind, 0),
            Self::Pin {
                owner, port, moves, ..
            } => (7, owner, port, moves),
            Self::Delete { owner } => (8, owner, 0, 0),
            Self::Ask { from } => (9, from, 0, 0),
            Self::NoRoom => (10, 0, 0, 0),
            Self::Moved => (11, 0, 0, 0),
            Self::Drained => (12, 0, 0, 0),
            Self::Where { from, port } => (13, from, port, 0),
            Self::Ended { owner, port, visit } => (14, owner, port, visit.into()),
        };
        let short = u64::from(short) << 16 | u64::from(last) << 32 | u64::from(again) << 48;
        [kind | u64::from(member) << 8 | short, 0]
    }
}

/// The longest message: a byte for the family, then the key.
pub const MESSAGE_BYTES: usize = 41;

/// Writes the key of a connection, as packets to its owner have it; returns how long it is.
pub fn write_key(key: &FlowKey, bytes: &mut [u8; MESSAGE_BYTES]) -> usize {
    let (family, key) = match key {
        FlowKey::V4(key) => (4, &key.0[..]),
        FlowKey::V6(key) => (6, &key.0[..]),
    };
    bytes[0] = family;
    bytes[1..=key.len()].copy_from_slice(key);
    key.len() + 1
}

/// Reads a key; `None` where there is none.
pub fn read_key(bytes: &[u8]) -> Option<FlowKey> {
    match bytes {
        [4, key @ ..] => Some(FlowKey::V4(FlowKey4(key.try_into().ok()?))),
        [6, key @ ..] => Some(FlowKey::V6(FlowKey6(key.try_into().ok()?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_keys_are_read_as_they_were_written() {
        let notes = [
            Note::Deliver,
            Note::Follow { from: 63 },
            Note::Again,
            Note::Leave {
                port: 0xffff,
                from: 1,
                visit: 255,
            },
            Note::Refused,
            Note::Parcel { from: 3, kind: 7 },
            Note::Pin {
                owner: 9,
                port: 258,
                moves: 0xfffe,
                again: true,
            },
            Note::Delete { owner: 5 },
            Note::Ask { from: 200 },
            Note::NoRoom,
            Note::Moved,
            Note::Drained,
            Note::Where { from: 6, port: 513 },
            Note::Ended {
                owner: 7,
                port: 2,
                visit: 9,
            },
            Note::Unknown,
        ];
        for note in notes {
            assert_eq!(Note::from_words(note.into_words()), note);
        }
        let keys = [
            FlowKey::V4(FlowKey4::new([1; 4], [2; 4], 3, 4, 6)),
            FlowKey::V6(FlowKey6::new([1; 16], [2; 16], 3, 4, 6)),
        ];
        let mut bytes = [0; MESSAGE_BYTES];
        for key in keys {
            let len = write_key(&key, &mut bytes);
            assert_eq!(read_key(&bytes[..len]), Some(key));
            assert_eq!(read_key(&bytes[..len - 1]), None, "cut short");
        }
        assert_eq!((read_key(&[]), read_key(&[5; 17])), (None, None));
    }
}
