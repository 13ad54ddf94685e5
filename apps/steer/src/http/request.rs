//! Heads of requests.

use super::body::Body;
use super::head::{Malformed, line_end, target_end, token_end, value_end};

/// Header fields of a request at most.
pub const MOST_FIELDS: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD: the same without the body.
    Head,
    /// One that there is, and that nothing here has (RFC 9110 9).
    Other,
}

/// A status that a request gets because of its head (RFC 9110 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is no request: 400.
    Malformed,
    /// Its head is too long, or has too many fields: 431 (RFC 6585 5).
    TooLarge,
    /// Its coding is unknown: 501 (RFC 9112 6.1).
    Coding,
    /// Its body is longer than it may be: 413.
    Body,
    /// It is not of HTTP/1: 505.
    Version,
}

/// What a request says, but its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Whether the connection goes on (RFC 9112 9.3).
    pub keeps: bool,
    /// Whether it is of HTTP/1.1: one of 1.0 is told that the connection goes on.
    pub is_1_1: bool,
    /// Its body.
    pub body: Body,
    /// Whether it waits for 100 before it sends its body (RFC 9110 10.1.1).
    pub expects: bool,
    /// The part that a GET asks for, if it is one part (RFC 9110 14.2).
    pub range: Option<Range>,
}

/// A part of a body, in bytes (RFC 9110 14.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// From a place to the end.
    From(u64),
    /// From a place to another, which belongs to it and is not before it.
    Between(u64, u64),
    /// So many at the end.
    Last(u64),
}

impl Range {
    /// Reads the field's value. `None` where it has several parts or another unit, or is not as it
    /// should be: then it is left out of account (RFC 9110 14.2).
    fn read(value: &[u8]) -> Option<Self> {
        let value = value.trim_ascii();
        let (unit, part) = (value.get(..6)?, value.get(6..)?.trim_ascii());
        if !unit.eq_ignore_ascii_case(b"bytes=") || part.contains(&b',') {
            return None;
        }
        let dash = part.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (&part[..dash], &part[dash + 1..]);
        match (first.is_empty(), last.is_empty()) {
            (true, _) => number(last).map(Self::Last),
            (false, true) => number(first).map(Self::From),
            (false, false) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    /// Where it begins and ends in a body of so many bytes; `None` where nothing of it is there.
    pub fn of(self, len: u64) -> Option<(u64, u64)> {
        let (begin, end) = match self {
            Self::From(first) => (first, len),
            Self::Between(first, last) => (first, len.min(last.saturating_add(1))),
            Self::Last(count) => (len.saturating_sub(count), len),
        };
        (begin < end).then_some((begin, end))
    }
}

/// A head: its length in bytes, itself, and its target.
pub type Head<'a> = (usize, Request, &'a [u8]);

/// Reads a head at the front of `bytes`: its length, itself and its target, or `None` where it is
/// not all there.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8], most_body: u64) -> Result<Option<Head<'_>>, Wrong> {
    let mut at = 0;
    // RFC 9112 2.2: empty lines before a request are left out of account.
    while let Some(b'\r' | b'\n') = bytes.get(at) {
        match line_end(bytes, at)? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    let Some(line) = Line::read(bytes, at)? else {
        return Ok(None);
    };
    let is_1_1 = line.is_1_1;
    at = line.end;
    let mut seen = Seen {
        keeps: is_1_1,
        ..Seen::default()
    };
    let mut fields = 0;
    loop {
        if let Some(b'\r' | b'\n') = bytes.get(at) {
            match line_end(bytes, at)? {
                Some(next) => at = next,
                None => return Ok(None),
            }
            break;
        }
        let colon = token_end(bytes, at);
        match bytes.get(colon) {
            Some(b':') if colon > at => {}
            None => return Ok(None),
            // RFC 9112 5.1: a blank before the colon; 5.2: a line that goes on with the last one.
            Some(_) => return Err(Wrong::Malformed),
        }
        let end = value_end(bytes, colon + 1);
        let Some(next) = line_end(bytes, end)? else {
            return Ok(None);
        };
        fields += 1;
        if fields > MOST_FIELDS {
            return Err(Wrong::TooLarge);
        }
        seen.field(&bytes[at..colon], &bytes[colon + 1..end], is_1_1)?;
        at = next;
    }
    let request = seen.request(line.method, is_1_1, most_body)?;
    Ok(Some((at, request, line.target)))
}

/// A request line (RFC 9112 3).
struct Line<'a> {
    method: Method,
    target: &'a [u8],
    is_1_1: bool,
    /// Where the next line begins.
    end: usize,
}

impl<'a> Line<'a> {
    fn read(bytes: &'a [u8], at: usize) -> Result<Option<Self>, Wrong> {
        let space = token_end(bytes, at);
        match bytes.get(space) {
            Some(b' ') if space > at => {}
            None => return Ok(None),
            Some(_) => return Err(Wrong::Malformed),
        }
        let method = match &bytes[at..space] {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            _ => Method::Other,
        };
        let from = space + 1;
        let end = target_end(bytes, from);
        match bytes.get(end) {
            Some(b' ') if end > from => {}
            None => return Ok(None),
            Some(_) => return Err(Wrong::Malformed),
        }
        let behind = &bytes[end + 1..];
        let Some(version) = behind.first_chunk::<8>() else {
            return match behind.contains(&b'\n') {
                true => Err(Wrong::Malformed),
                false => Ok(None),
            };
        };
        let is_1_1 = match version {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            // RFC 9112 2.3: DIGIT "." DIGIT.
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(Wrong::Version);
            }
            _ => return Err(Wrong::Malformed),
        };
        let end_of_line = line_end(bytes, end + 9)?;
        Ok(end_of_line.map(|next| Self {
            method,
            target: &bytes[from..end],
            is_1_1,
            end: next,
        }))
    }
}

/// What the fields so far have said.
#[derive(Default)]
struct Seen {
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
    keeps: bool,
    expects: bool,
    range: Option<Range>,
    /// Whether all is wanted, whatever `range` says.
    is_whole: bool,
}

impl Seen {
    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8], is_1_1: bool) -> Result<(), Wrong> {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match name.len() {
            4 if is("host") => self.hosts += 1,
            5 if is("range") => {
                // One that comes twice is no field of this kind (RFC 9110 5.3).
                self.is_whole |= self.range.is_some();
                self.range = Range::read(value);
            }
            // RFC 9110 13.1.5: nothing here has a validator that could match.
            8 if is("if-range") => self.is_whole = true,
            6 if is("expect") => self.expects |= is_word(value, "100-continue"),
            10 if is("connection") => {
                for word in words(value) {
                    if word.eq_ignore_ascii_case(b"close") {
                        self.keeps = false;
                    } else if word.eq_ignore_ascii_case(b"keep-alive") && !is_1_1 {
                        self.keeps = true;
                    }
                }
            }
            14 if is("content-length") => {
                // RFC 9112 6.3 (5): several that agree are one.
                let value = number(value).ok_or(Wrong::Malformed)?;
                let before = self.length.replace(value);
                if before.is_some_and(|other| other != value) {
                    return Err(Wrong::Malformed);
                }
            }
            17 if is("transfer-encoding") => {
                // RFC 9112 6.1: chunked is the last coding, and the only one that is known here.
                if self.chunked || !is_1_1 {
                    return Err(Wrong::Malformed);
                }
                if !is_word(value, "chunked") {
                    return Err(Wrong::Coding);
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn request(self, method: Method, is_1_1: bool, most_body: u64) -> Result<Request, Wrong> {
        // RFC 9112 3.2: 400 for a request of 1.1 without Host, and for one with two.
        if self.hosts > 1 || is_1_1 && self.hosts == 0 {
            return Err(Wrong::Malformed);
        }
        // RFC 9112 6.1: with both it may be an attempt to smuggle a request.
        if self.chunked && self.length.is_some() {
            return Err(Wrong::Malformed);
        }
        let length = self.length.unwrap_or(0);
        if length > most_body {
            return Err(Wrong::Body);
        }
        let body = match self.chunked {
            true => Body::CHUNKED,
            false => Body::Length(length),
        };
        Ok(Request {
            method,
            keeps: self.keeps,
            is_1_1,
            expects: self.expects && is_1_1 && !body.is_done(),
            range: (self.range).filter(|_| method == Method::Get && !self.is_whole),
            body,
        })
    }
}

impl From<Malformed> for Wrong {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The words of a list (RFC 9110 5.6.1).
pub(super) fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

pub(super) fn is_word(value: &[u8], word: &str) -> bool {
    value.trim_ascii().eq_ignore_ascii_case(word.as_bytes())
}

/// 1*DIGIT, which fits (RFC 9110 8.6).
pub(super) fn number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
