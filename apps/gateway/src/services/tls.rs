//! The server name of a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3), versions 1.0 to 1.3.
//!
//! The handshake message may be in several records, and end in a later segment. An encrypted
//! ClientHello (RFC 9849) has an outer name, that of the server that can decrypt it: it is what is
//! found here.

use super::host::{Host, Look, MOST_BYTES};

/// Content type of a record: handshake (RFC 8446 5.1).
const HANDSHAKE: u8 = 22;
/// The longest fragment of a record (RFC 8446 5.1).
const MOST_FRAGMENT: usize = 1 << 14;
/// Type of a handshake message.
const CLIENT_HELLO: u8 = 1;
/// Type of an extension.
const SERVER_NAME: u16 = 0;
/// Kind of a server name.
const HOST_NAME: u8 = 0;

/// Reads the name of the server that a connection which begins with `bytes` asks for.
pub fn host(bytes: &[u8]) -> Look {
    let mut reader = Reader {
        bytes,
        record: 0,
        message: 4,
    };
    match reader.client_hello() {
        Ok(look) => look,
        Err(Stop::More) => Look::More,
        Err(Stop::Other) => Look::Other,
    }
}

/// Why reading ends.
enum Stop {
    More,
    Other,
}

/// Reads a handshake message in the records that it is in.
struct Reader<'a> {
    bytes: &'a [u8],
    /// What is left of the record.
    record: usize,
    /// What is left of the message.
    message: usize,
}

impl Reader<'_> {
    fn client_hello(&mut self) -> Result<Look, Stop> {
        if self.u8()? != CLIENT_HELLO {
            return Err(Stop::Other);
        }
        self.message = usize::from(self.u8()?) << 16 | self.u16()?;
        // legacy_version, random
        self.skip(2 + 32)?;
        let session = self.u8()?;
        if session > 32 {
            return Err(Stop::Other);
        }
        self.skip(session.into())?;
        let suites = self.u16()?;
        self.skip(suites)?;
        let compressions = self.u8()?;
        self.skip(compressions.into())?;
        if self.message == 0 {
            return Ok(Look::Nameless); // RFC 5246 7.4.1.2: there need be no extensions
        }
        let mut extensions = self.u16()?;
        while extensions >= 4 {
            let (kind, len) = (self.u16()?, self.u16()?);
            extensions = (extensions - 4).checked_sub(len).ok_or(Stop::Other)?;
            match kind == usize::from(SERVER_NAME) {
                true => return self.server_name(len),
                false => self.skip(len)?,
            }
        }
        Ok(Look::Nameless)
    }

    fn server_name(&mut self, len: usize) -> Result<Look, Stop> {
        let mut left = len.checked_sub(2).ok_or(Stop::Other)?;
        let listed = self.u16()?;
        if listed > left {
            return Err(Stop::Other);
        }
        left = listed;
        while left >= 3 {
            let (kind, len) = (self.u8()?, self.u16()?);
            left = (left - 3).checked_sub(len).ok_or(Stop::Other)?;
            if kind != HOST_NAME || len > MOST_BYTES {
                self.skip(len)?;
                continue;
            }
            let mut name = [0; MOST_BYTES];
            for byte in &mut name[..len] {
                *byte = self.u8()?;
            }
            return Ok(Host::of(&name[..len]).map_or(Look::Nameless, Look::Found));
        }
        Ok(Look::Nameless)
    }

    fn u8(&mut self) -> Result<u8, Stop> {
        self.message = self.message.checked_sub(1).ok_or(Stop::Other)?;
        self.open()?;
        let (first, rest) = self.bytes.split_first().ok_or(Stop::More)?;
        self.bytes = rest;
        self.record -= 1;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<usize, Stop> {
        let high = self.u8()?;
        Ok(usize::from(high) << 8 | usize::from(self.u8()?))
    }

    fn skip(&mut self, mut len: usize) -> Result<(), Stop> {
        self.message = self.message.checked_sub(len).ok_or(Stop::Other)?;
        while len > 0 {
            self.open()?;
            let part = len.min(self.record);
            self.bytes = self.bytes.get(part..).ok_or(Stop::More)?;
            self.record -= part;
            len -= part;
        }
        Ok(())
    }

    /// Goes on to the next record where one is at its end.
    fn open(&mut self) -> Result<(), Stop> {
        if self.record > 0 {
            return Ok(());
        }
        // What is there must be right, even where it is not all of it.
        let is = |at: usize, legal: fn(u8) -> bool| self.bytes.get(at).is_none_or(|&b| legal(b));
        if !is(0, |kind| kind == HANDSHAKE) || !is(1, |major| major == 3) {
            return Err(Stop::Other);
        }
        let [_, _, _, high, low, rest @ ..] = self.bytes else {
            return Err(Stop::More);
        };
        self.record = usize::from(*high) << 8 | usize::from(*low);
        // RFC 8446 5.1: no empty fragments of handshake messages.
        if self.record == 0 || self.record > MOST_FRAGMENT {
            return Err(Stop::Other);
        }
        self.bytes = rest;
        Ok(())
    }
}
