//! Heads of responses.

use super::request::Wrong;

/// The longest head of a response, in bytes.
pub const MOST_HEAD: usize = 400;

/// A status line's code and words (RFC 9110 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
    /// 206.
    Partial,
    /// 400.
    BadRequest,
    /// 404.
    NotFound,
    /// 405.
    NotAllowed,
    /// 408.
    Timeout,
    /// 413.
    BodyTooLarge,
    /// 416.
    NoSuchRange,
    /// 431.
    HeadTooLarge,
    /// 501.
    NotImplemented,
    /// 505.
    Version,
}

impl Status {
    /// All, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Ok,
        Self::Partial,
        Self::BadRequest,
        Self::NotFound,
        Self::NotAllowed,
        Self::Timeout,
        Self::BodyTooLarge,
        Self::NoSuchRange,
        Self::HeadTooLarge,
        Self::NotImplemented,
        Self::Version,
    ];

    /// Code and words.
    pub const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Partial => "206 Partial Content",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::NotAllowed => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::BodyTooLarge => "413 Content Too Large",
            Self::NoSuchRange => "416 Range Not Satisfiable",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::NotImplemented => "501 Not Implemented",
            Self::Version => "505 HTTP Version Not Supported",
        }
    }
}

impl From<Wrong> for Status {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Malformed => Self::BadRequest,
            Wrong::TooLarge => Self::HeadTooLarge,
            Wrong::Coding => Self::NotImplemented,
            Wrong::Body => Self::BodyTooLarge,
            Wrong::Version => Self::Version,
        }
    }
}

/// What a head says of the connection (RFC 9112 9.3, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It goes on, as those of HTTP/1.1 do.
    Nothing,
    /// It closes.
    Close,
    /// It goes on, to one of HTTP/1.0.
    KeepAlive,
}

impl Said {
    /// All, for tests.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Close, Self::KeepAlive];

    /// What follows the date in a head.
    const fn end(self) -> &'static [u8] {
        match self {
            Self::Nothing => b"\r\n\r\n",
            Self::Close => b"\r\nConnection: close\r\n\r\n",
            Self::KeepAlive => b"\r\nConnection: keep-alive\r\n\r\n",
        }
    }
}

/// The front of a head, up to its date (RFC 9110 6.6.1): the same for all answers with this status
/// and a body of `len` bytes.
pub fn front(status: Status, len: u64, media_type: &str) -> Box<[u8]> {
    match status {
        // RFC 9110 15.5.6.
        Status::NotAllowed => front_with(status, len, media_type, "Allow: GET, HEAD\r\n"),
        _ => front_with(status, len, media_type, ""),
    }
}

/// The same of a part of a body, from a place up to another, of so many bytes in all; or with no
/// part of one that has so many (RFC 9110 14.4).
pub fn front_of_part(part: Option<(u64, u64)>, all: u64, media_type: &str) -> Box<[u8]> {
    match part {
        Some((begin, end)) => {
            let last = end.saturating_sub(1);
            let field = format!("Content-Range: bytes {begin}-{last}/{all}\r\n");
            front_with(Status::Partial, end - begin, media_type, &field)
        }
        None => {
            let (status, field) = (
                Status::NoSuchRange,
                format!("Content-Range: bytes */{all}\r\n"),
            );
            front_with(status, status.line().len() as u64, media_type, &field)
        }
    }
}

/// A front with a field more, or none.
fn front_with(status: Status, len: u64, media_type: &str, field: &str) -> Box<[u8]> {
    let text = format!(
        "HTTP/1.1 {}\r\nServer: linerate\r\nContent-Type: {media_type}\r\n\
         Content-Length: {len}\r\n{field}Date: ",
        status.line()
    );
    text.into_bytes().into()
}

/// Bytes of a head with this front.
#[inline]
pub fn head_len(front: &[u8], said: Said) -> usize {
    front.len() + DATE_LEN + said.end().len()
}

/// Writes a head.
///
/// # Panics
/// If `to` has not [`head_len`] bytes.
#[inline]
pub fn write_head(front: &[u8], date: &Date, said: Said, to: &mut [u8]) {
    let (now, rest) = to.split_at_mut(front.len());
    now.copy_from_slice(front);
    let (now, rest) = rest.split_at_mut(DATE_LEN);
    now.copy_from_slice(date);
    rest.copy_from_slice(said.end());
}

/// Bytes of a date.
const DATE_LEN: usize = 29;

/// A date as it is sent.
pub type Date = [u8; DATE_LEN];

/// A date as RFC 9110 5.6.7 has it (`Sun, 06 Nov 1994 08:49:37 GMT`), from seconds since 1970.
///
/// Of a year after 9999, which has no such form, the last digits are cut.
pub fn date(unix_s: u64) -> Date {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, of_day) = (unix_s / 86_400, unix_s % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 0;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < len {
            break;
        }
        left -= len;
        month += 1;
    }
    let text = format!(
        "{}, {:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        left + 1,
        MONTHS[month],
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    );
    let mut date = [b' '; DATE_LEN];
    let count = text.len().min(DATE_LEN);
    date[..count].copy_from_slice(&text.as_bytes()[..count]);
    date
}
