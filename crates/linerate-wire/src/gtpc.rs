//! GTP-C version 2 (3GPP TS 29.274): the messages by which the nodes of a mobile core make, change
//! and delete sessions. Header, walk over information elements (IEs), and a writer of messages.
//!
//! What the IEs hold is in [`ie`]. A message in another message's datagram (piggybacked, 5.5.1)
//! begins at [`Gtpc::len`].
//!
//! ```
//! use linerate_wire::gtpc::{Gtpc, Writer, ie, ies, message};
//! let mut bytes = [0; 64];
//! let mut writer = Writer::new(&mut bytes, message::CREATE_SESSION_REQUEST, Some(7), 0x00_1234);
//! writer.ie(ie::RECOVERY, 0, &[9]);
//! writer.group(ie::BEARER_CONTEXT, 0, |inside| inside.ie(ie::EBI, 0, &[5]));
//! let message = writer.finish().expect("64 bytes are enough");
//! let gtpc = Gtpc::new_checked(message)?;
//! assert_eq!((gtpc.teid(), gtpc.sequence()), (Some(7), 0x1234));
//! let bearer = gtpc.ies().flatten().find(|ie| ie.kind == ie::BEARER_CONTEXT);
//! let inside = bearer.and_then(|bearer| ies(bearer.value).next());
//! assert_eq!(inside.map(|ie| ie.map(|ie| ie.value)), Some(Ok(&[5][..])));
//! # Ok::<(), linerate_wire::Malformed>(())
//! ```

use core::fmt;

use crate::{
    Layer, Malformed,
    bytes::{be16, be32, put16, put32},
};

pub mod ie;
#[cfg(test)]
mod tests;

/// The UDP port of the protocol (TS 29.274 4.2.1).
pub const PORT: u16 = 2123;

/// Length in bytes of a header without TEID.
pub const HEADER_LEN: usize = 8;

/// Length in bytes of a header with TEID.
pub const TEID_HEADER_LEN: usize = 12;

/// Length in bytes of an IE's header.
pub const IE_HEADER_LEN: usize = 4;

mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const MESSAGE: usize = 1;
    pub(super) const LENGTH: usize = 2;
    pub(super) const TEID: usize = 4;
}

const VERSION: u8 = 2;
const PIGGYBACK: u8 = 0x10;
const HAS_TEID: u8 = 0x08;
/// The length field counts what follows it (TS 29.274 5.5.1).
const UNCOUNTED: usize = 4;

/// Message types (TS 29.274 6.1).
#[allow(missing_docs)] // each constant is the message of that name
pub mod message {
    pub const ECHO_REQUEST: u8 = 1;
    pub const ECHO_RESPONSE: u8 = 2;
    pub const VERSION_NOT_SUPPORTED: u8 = 3;
    pub const CREATE_SESSION_REQUEST: u8 = 32;
    pub const CREATE_SESSION_RESPONSE: u8 = 33;
    pub const MODIFY_BEARER_REQUEST: u8 = 34;
    pub const MODIFY_BEARER_RESPONSE: u8 = 35;
    pub const DELETE_SESSION_REQUEST: u8 = 36;
    pub const DELETE_SESSION_RESPONSE: u8 = 37;
    pub const DOWNLINK_DATA_NOTIFICATION_FAILURE: u8 = 70;
    pub const STOP_PAGING: u8 = 73;
    pub const CREATE_BEARER_REQUEST: u8 = 95;
    pub const CREATE_BEARER_RESPONSE: u8 = 96;
    pub const DELETE_BEARER_REQUEST: u8 = 99;
    pub const DELETE_BEARER_RESPONSE: u8 = 100;
    pub const RELEASE_ACCESS_BEARERS_REQUEST: u8 = 170;
    pub const RELEASE_ACCESS_BEARERS_RESPONSE: u8 = 171;
    pub const DOWNLINK_DATA_NOTIFICATION: u8 = 176;
    pub const DOWNLINK_DATA_NOTIFICATION_ACK: u8 = 177;
}

/// A message whose length fits its header and the bytes present. Its IEs are checked as they are
/// walked.
#[derive(Clone, Copy, Debug)]
pub struct Gtpc<T>(T);

impl<T: AsRef<[u8]>> Gtpc<T> {
    /// Takes `bytes` (which may be longer than the message) if version and length fit them.
    ///
    /// # Errors
    /// [`Malformed::Version`] is what a node answers with Version Not Supported (TS 29.274 7.7.1).
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        if b.len() < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Gtpc));
        }
        if b[field::FLAGS] >> 5 != VERSION {
            return Err(Malformed::Version(Layer::Gtpc));
        }
        let gtpc = Gtpc(bytes);
        if !(gtpc.header_len()..=gtpc.0.as_ref().len()).contains(&gtpc.len()) {
            return Err(Malformed::TotalLength(Layer::Gtpc));
        }
        Ok(gtpc)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Length in bytes of the message, header included.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // never empty: it counts the header
    pub fn len(&self) -> usize {
        UNCOUNTED + usize::from(be16(self.bytes(), field::LENGTH))
    }

    /// Length in bytes of the header: 8, or 12 with TEID.
    #[inline]
    pub fn header_len(&self) -> usize {
        match self.bytes()[field::FLAGS] & HAS_TEID {
            0 => HEADER_LEN,
            _ => TEID_HEADER_LEN,
        }
    }

    /// Message type: see [`message`].
    #[inline]
    pub fn message(&self) -> u8 {
        self.bytes()[field::MESSAGE]
    }

    /// Whether another message follows in the datagram.
    #[inline]
    pub fn is_piggybacked(&self) -> bool {
        self.bytes()[field::FLAGS] & PIGGYBACK != 0
    }

    /// Tunnel endpoint identifier of the receiver, where there is one: echo and Version Not
    /// Supported have none.
    #[inline]
    pub fn teid(&self) -> Option<u32> {
        (self.header_len() == TEID_HEADER_LEN).then(|| be32(self.bytes(), field::TEID))
    }

    /// Sequence number, 24 bits.
    #[inline]
    pub fn sequence(&self) -> u32 {
        be32(self.bytes(), self.header_len() - 4) >> 8
    }

    /// What follows the header, up to the length field.
    #[inline]
    pub fn body(&self) -> &[u8] {
        &self.bytes()[self.header_len()..self.len()]
    }

    /// The IEs, from the first.
    #[inline]
    pub fn ies(&self) -> Ies<'_> {
        ies(self.body())
    }
}

/// One information element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ie<'a> {
    /// Its type: see [`ie`].
    pub kind: u8,
    /// Which of several of that type: the message's definition says what each is for.
    pub instance: u8,
    /// Its content; IEs again, where it is grouped.
    pub value: &'a [u8],
}

/// The IEs of a message or of a grouped IE, each or why it cannot be: the last, then.
#[derive(Clone, Debug)]
pub struct Ies<'a>(&'a [u8]);

/// The IEs in these bytes: the body of a message, or the value of a grouped IE.
#[inline]
pub fn ies(bytes: &[u8]) -> Ies<'_> {
    Ies(bytes)
}

impl<'a> Iterator for Ies<'a> {
    type Item = Result<Ie<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.0);
        if bytes.is_empty() {
            return None;
        }
        let Some((head, rest)) = bytes.split_first_chunk::<IE_HEADER_LEN>() else {
            return Some(Err(Malformed::Truncated(Layer::Gtpc)));
        };
        let Some((value, rest)) = rest.split_at_checked(be16(head, 1).into()) else {
            return Some(Err(Malformed::HeaderLength(Layer::Gtpc)));
        };
        self.0 = rest;
        Some(Ok(Ie {
            kind: head[0],
            instance: head[3] & 0x0f,
            value,
        }))
    }
}

/// Writes one message into a buffer. What does not fit is left out, and [`finish`](Self::finish)
/// says so.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
    has_room: bool,
}

impl<'a> Writer<'a> {
    /// Begins a message; `sequence` has 24 bits.
    pub fn new(bytes: &'a mut [u8], message: u8, teid: Option<u32>, sequence: u32) -> Self {
        let mut writer = Self {
            bytes,
            len: 0,
            has_room: true,
        };
        let flags = VERSION << 5 | if teid.is_some() { HAS_TEID } else { 0 };
        writer.push(&[flags, message, 0, 0]);
        if let Some(teid) = teid {
            writer.push(&teid.to_be_bytes());
        }
        writer.push(&(sequence << 8).to_be_bytes());
        writer
    }

    fn push(&mut self, part: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + part.len()) {
            Some(place) if self.has_room => {
                place.copy_from_slice(part);
                self.len += part.len();
            }
            _ => self.has_room = false,
        }
    }

    /// Appends an IE; `instance` has 4 bits.
    pub fn ie(&mut self, kind: u8, instance: u8, value: &[u8]) {
        self.group(kind, instance, |inside| inside.push(value));
    }

    /// Appends a grouped IE with what `fill` writes.
    pub fn group(&mut self, kind: u8, instance: u8, fill: impl FnOnce(&mut Self)) {
        let start = self.len;
        self.push(&[kind, 0, 0, instance & 0x0f]);
        fill(self);
        if !self.has_room {
            return;
        }
        match u16::try_from(self.len - start - IE_HEADER_LEN) {
            Ok(len) => put16(self.bytes, start + 1, len),
            Err(_) => self.has_room = false,
        }
    }

    /// The message; `None` where the buffer was too short for it.
    pub fn finish(self) -> Option<&'a [u8]> {
        let len = u16::try_from(self.len.checked_sub(UNCOUNTED)?).ok()?;
        if !self.has_room {
            return None;
        }
        put16(self.bytes, field::LENGTH, len);
        Some(&self.bytes[..self.len])
    }
}

/// Writes TEID and sequence number over those of a message with TEID: what is answered again, or
/// passed on. False, and nothing else, for a message without TEID.
pub fn readdress(message: &mut [u8], teid: u32, sequence: u32) -> bool {
    let has_teid = Gtpc::new_checked(&*message).is_ok_and(|gtpc| gtpc.teid().is_some());
    if has_teid {
        put32(message, field::TEID, teid);
        put32(message, field::TEID + 4, sequence << 8);
    }
    has_teid
}

impl<T: AsRef<[u8]>> fmt::Display for Gtpc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GTP-C message {}", self.message())?;
        if let Some(teid) = self.teid() {
            write!(f, " teid {teid:#010x}")?;
        }
        write!(f, " seq {} len {}", self.sequence(), self.body().len())
    }
}
