//! Diameter (RFC 6733): header, attribute-value pairs (AVPs), their writer, and the frames of a
//! stream. A message is what TCP carries one behind the other: [`frame`] says where one ends.
//!
//! Codes of the base protocol are in [`command`], [`avp`] and [`result`]; those of an application
//! are where the application is.
//!
//! ```
//! use linerate_wire::diameter::{Diameter, Flags, Writer, avp, command};
//! let mut bytes = [0; 64];
//! let mut writer = Writer::new(&mut bytes, Flags::REQUEST, command::DEVICE_WATCHDOG, 0, 1, 2);
//! writer.avp(avp::ORIGIN_HOST, None, b"mme.linerate");
//! let message = writer.finish().expect("64 bytes are enough");
//! let diameter = Diameter::new_checked(message)?;
//! let host = diameter.avps().flatten().find(|avp| avp.is(avp::ORIGIN_HOST, None));
//! assert_eq!(host.map(|avp| avp.data), Some(&b"mme.linerate"[..]));
//! # Ok::<(), linerate_wire::Malformed>(())
//! ```

use core::fmt;

use crate::{
    Layer, Malformed,
    bytes::{be32, put32},
};

#[cfg(test)]
mod tests;

/// The TCP port (RFC 6733 2.1).
pub const PORT: u16 = 3868;

/// Length in bytes of the header (RFC 6733 3).
pub const HEADER_LEN: usize = 20;

/// Length in bytes of an AVP's header without vendor (RFC 6733 4.1).
pub const AVP_HEADER_LEN: usize = 8;

/// The longest message that [`frame`] takes, in bytes: the field could say 16 MiB, which nobody
/// sends, and which a peer could make us wait for.
pub const MAX_MESSAGE_LEN: usize = 16 << 10;

mod field {
    pub(super) const VERSION_LENGTH: usize = 0;
    pub(super) const FLAGS_COMMAND: usize = 4;
    pub(super) const APPLICATION: usize = 8;
    pub(super) const HOP_BY_HOP: usize = 12;
    pub(super) const END_TO_END: usize = 16;
}

const VERSION: u32 = 1;
const LOW_24: u32 = 0x00ff_ffff;

/// Flags of a header (RFC 6733 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// A request; otherwise an answer.
    pub const REQUEST: Self = Self(0x80);
    /// May be forwarded.
    pub const PROXIABLE: Self = Self(0x40);
    /// An answer to what broke the protocol.
    pub const ERROR: Self = Self(0x20);
    /// A request that may have been sent before.
    pub const RETRANSMITTED: Self = Self(0x10);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Command codes of the base protocol (RFC 6733 3.1); request and answer share one.
#[allow(missing_docs)] // each constant is the command of that name
pub mod command {
    pub const CAPABILITIES_EXCHANGE: u32 = 257;
    pub const DEVICE_WATCHDOG: u32 = 280;
    pub const DISCONNECT_PEER: u32 = 282;
}

/// AVP codes of the base protocol (RFC 6733 4.5).
#[allow(missing_docs)] // each constant is the AVP of that name
pub mod avp {
    pub const USER_NAME: u32 = 1;
    pub const HOST_IP_ADDRESS: u32 = 257;
    pub const AUTH_APPLICATION_ID: u32 = 258;
    pub const VENDOR_SPECIFIC_APPLICATION_ID: u32 = 260;
    pub const SESSION_ID: u32 = 263;
    pub const ORIGIN_HOST: u32 = 264;
    pub const SUPPORTED_VENDOR_ID: u32 = 265;
    pub const VENDOR_ID: u32 = 266;
    pub const RESULT_CODE: u32 = 268;
    pub const PRODUCT_NAME: u32 = 269;
    pub const DISCONNECT_CAUSE: u32 = 273;
    pub const AUTH_SESSION_STATE: u32 = 277;
    pub const ORIGIN_STATE_ID: u32 = 278;
    pub const FAILED_AVP: u32 = 279;
    pub const ERROR_MESSAGE: u32 = 281;
    pub const DESTINATION_REALM: u32 = 283;
    pub const DESTINATION_HOST: u32 = 293;
    pub const ORIGIN_REALM: u32 = 296;
    pub const EXPERIMENTAL_RESULT: u32 = 297;
    pub const EXPERIMENTAL_RESULT_CODE: u32 = 298;
}

/// Result codes (RFC 6733 7.1).
#[allow(missing_docs)] // each constant is the result of that name
pub mod result {
    pub const SUCCESS: u32 = 2001;
    pub const COMMAND_UNSUPPORTED: u32 = 3001;
    pub const APPLICATION_UNSUPPORTED: u32 = 3007;
    pub const INVALID_AVP_VALUE: u32 = 5004;
    pub const MISSING_AVP: u32 = 5005;
    pub const NO_COMMON_APPLICATION: u32 = 5010;
    pub const UNABLE_TO_COMPLY: u32 = 5012;
    pub const INVALID_AVP_LENGTH: u32 = 5014;

    /// Whether a request with this result was fulfilled (7.1.2: 2xxx).
    pub const fn is_success(result: u32) -> bool {
        matches!(result, 2000..=2999)
    }
}

/// Length in bytes of the message that begins `stream`; `None` while fewer bytes are there than
/// its first four.
///
/// # Errors
/// For what is no Diameter, not a multiple of four, or above [`MAX_MESSAGE_LEN`]: the connection
/// cannot go on, since nothing says where the next message begins.
pub fn frame(stream: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = stream.first_chunk::<4>() else {
        return Ok(None);
    };
    let word = u32::from_be_bytes(*head);
    let len = (word & LOW_24) as usize;
    if word >> 24 != VERSION {
        return Err(Malformed::Version(Layer::Diameter));
    }
    // RFC 6733 3: the length counts header and padded AVPs, so it is a multiple of four.
    if !(HEADER_LEN..=MAX_MESSAGE_LEN).contains(&len) || !len.is_multiple_of(4) {
        return Err(Malformed::TotalLength(Layer::Diameter));
    }
    Ok(Some(len))
}

/// A message whose length fits the bytes present. Its AVPs are checked as they are walked.
#[derive(Clone, Copy, Debug)]
pub struct Diameter<T>(T);

impl<T: AsRef<[u8]>> Diameter<T> {
    /// Takes `bytes` (which may be longer than the message) if it is [`frame`]d there.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let present = bytes.as_ref().len();
        if present < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Diameter));
        }
        match frame(bytes.as_ref())? {
            Some(len) if len <= present => Ok(Self(bytes)),
            _ => Err(Malformed::TotalLength(Layer::Diameter)),
        }
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        be32(self.0.as_ref(), at)
    }

    /// Length in bytes of the message, header included.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // never empty: it counts the header
    pub fn len(&self) -> usize {
        (self.word(field::VERSION_LENGTH) & LOW_24) as usize
    }

    /// Its flags.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags((self.word(field::FLAGS_COMMAND) >> 24) as u8)
    }

    /// Whether it is a request.
    #[inline]
    pub fn is_request(&self) -> bool {
        self.flags().has(Flags::REQUEST)
    }

    /// Command code: see [`command`].
    #[inline]
    pub fn command(&self) -> u32 {
        self.word(field::FLAGS_COMMAND) & LOW_24
    }

    /// The application whose command it is; 0 is the base protocol.
    #[inline]
    pub fn application(&self) -> u32 {
        self.word(field::APPLICATION)
    }

    /// Ties an answer to its request on one connection.
    #[inline]
    pub fn hop_by_hop(&self) -> u32 {
        self.word(field::HOP_BY_HOP)
    }

    /// Ties an answer to its request, and finds duplicates, across connections.
    #[inline]
    pub fn end_to_end(&self) -> u32 {
        self.word(field::END_TO_END)
    }

    /// The AVPs, from the first.
    #[inline]
    pub fn avps(&self) -> Avps<'_> {
        avps(&self.0.as_ref()[HEADER_LEN..self.len()])
    }
}

/// One attribute-value pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avp<'a> {
    /// Its code.
    pub code: u32,
    /// Whose code it is; `None`: the base protocol's.
    pub vendor: Option<u32>,
    /// Whether who does not know it must refuse the message (the M bit).
    pub is_mandatory: bool,
    /// Its content, without padding; AVPs again, where it is grouped.
    pub data: &'a [u8],
}

impl<'a> Avp<'a> {
    /// Whether it is this one.
    #[inline]
    pub fn is(&self, code: u32, vendor: Option<u32>) -> bool {
        self.code == code && self.vendor == vendor
    }

    /// Its content as Unsigned32 or Enumerated; `None` for another length.
    #[inline]
    pub fn u32(&self) -> Option<u32> {
        self.data.try_into().ok().map(u32::from_be_bytes)
    }

    /// The AVPs in it, where it is grouped.
    #[inline]
    pub fn avps(&self) -> Avps<'a> {
        avps(self.data)
    }
}

/// The AVPs of a message or of a grouped AVP, each or why it cannot be: the last, then.
#[derive(Clone, Debug)]
pub struct Avps<'a>(&'a [u8]);

/// The AVPs in these bytes: a message behind its header, or the data of a grouped AVP.
#[inline]
pub fn avps(bytes: &[u8]) -> Avps<'_> {
    Avps(bytes)
}

impl<'a> Iterator for Avps<'a> {
    type Item = Result<Avp<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        const VENDOR: u8 = 0x80;
        const MANDATORY: u8 = 0x40;
        let bytes = core::mem::take(&mut self.0);
        if bytes.is_empty() {
            return None;
        }
        if bytes.len() < AVP_HEADER_LEN {
            return Some(Err(Malformed::Truncated(Layer::Diameter)));
        }
        let (flags, len) = (bytes[4], (be32(bytes, 4) & LOW_24) as usize);
        let header_len = AVP_HEADER_LEN + if flags & VENDOR != 0 { 4 } else { 0 };
        // RFC 6733 4.1: the length is without padding, but the padding is there.
        if !(header_len..=bytes.len()).contains(&len) || len.next_multiple_of(4) > bytes.len() {
            return Some(Err(Malformed::HeaderLength(Layer::Diameter)));
        }
        self.0 = &bytes[len.next_multiple_of(4)..];
        Some(Ok(Avp {
            code: be32(bytes, 0),
            vendor: (flags & VENDOR != 0).then(|| be32(bytes, AVP_HEADER_LEN)),
            is_mandatory: flags & MANDATORY != 0,
            data: &bytes[header_len..len],
        }))
    }
}

/// Writes one message into a buffer. What does not fit is left out, and [`finish`](Self::finish)
/// says so. AVPs are marked mandatory unless the caller says otherwise.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
    has_room: bool,
}

impl<'a> Writer<'a> {
    /// Begins a message.
    pub fn new(
        bytes: &'a mut [u8],
        flags: Flags,
        command: u32,
        application: u32,
        hop_by_hop: u32,
        end_to_end: u32,
    ) -> Self {
        let mut writer = Self {
            bytes,
            len: 0,
            has_room: true,
        };
        let flags_command = u32::from(flags.0) << 24 | command & LOW_24;
        for word in [
            VERSION << 24,
            flags_command,
            application,
            hop_by_hop,
            end_to_end,
        ] {
            writer.push(&word.to_be_bytes());
        }
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

    /// Appends an AVP.
    pub fn avp(&mut self, code: u32, vendor: Option<u32>, data: &[u8]) {
        self.group(code, vendor, |inside| inside.push(data));
    }

    /// Appends one that a receiver may ignore: without the M bit.
    pub fn optional(&mut self, code: u32, vendor: Option<u32>, data: &[u8]) {
        self.flagged(code, vendor, 0, |inside| inside.push(data));
    }

    /// Appends an Unsigned32 or Enumerated.
    pub fn u32(&mut self, code: u32, vendor: Option<u32>, value: u32) {
        self.avp(code, vendor, &value.to_be_bytes());
    }

    /// Appends a grouped AVP with what `fill` writes.
    pub fn group(&mut self, code: u32, vendor: Option<u32>, fill: impl FnOnce(&mut Self)) {
        self.flagged(code, vendor, 0x40, fill);
    }

    fn flagged(&mut self, code: u32, vendor: Option<u32>, flags: u8, fill: impl FnOnce(&mut Self)) {
        let start = self.len;
        self.push(&code.to_be_bytes());
        let flags = flags | if vendor.is_some() { 0x80 } else { 0 };
        self.push(&[flags, 0, 0, 0]);
        if let Some(vendor) = vendor {
            self.push(&vendor.to_be_bytes());
        }
        fill(self);
        let len = self.len - start;
        self.push(&[0; 3][..len.next_multiple_of(4) - len]);
        if self.has_room {
            put32(self.bytes, start + 4, u32::from(flags) << 24 | len as u32);
        }
    }

    /// The message; `None` where the buffer, or [`MAX_MESSAGE_LEN`], was too short for it.
    pub fn finish(self) -> Option<&'a [u8]> {
        if !self.has_room || !(HEADER_LEN..=MAX_MESSAGE_LEN).contains(&self.len) {
            return None;
        }
        put32(
            self.bytes,
            field::VERSION_LENGTH,
            VERSION << 24 | self.len as u32,
        );
        Some(&self.bytes[..self.len])
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Diameter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_request() {
            "request"
        } else {
            "answer"
        };
        let (command, application) = (self.command(), self.application());
        let (hop, end) = (self.hop_by_hop(), self.end_to_end());
        write!(f, "Diameter {kind} {command} application {application}")?;
        write!(f, " ids {hop:#x} {end:#x} len {}", self.len())
    }
}
