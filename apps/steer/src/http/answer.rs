//! Heads of responses.

use std::io::Write;

use super::request::Wrong;

/// The longest head of a response, in bytes.
pub const MOST_HEAD: usize = 320;

/// A status line's code and words (RFC 9110 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
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
    /// 431.
    HeadTooLarge,
    /// 501.
    NotImplemented,
    /// 505.
    Version,
}

impl Status {
    /// All, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::BadRequest,
        Self::NotFound,
        Self::NotAllowed,
        Self::Timeout,
        Self::BodyTooLarge,
        Self::HeadTooLarge,
        Self::NotImplemented,
        Self::Version,
    ];

    /// Code and words.
    pub const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::NotAllowed => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::BodyTooLarge => "413 Content Too Large",
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

/// A response's head.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Its status.
    pub status: Status,
    /// Bytes of its body.
    pub len: u64,
    /// Its media type.
    pub media_type: &'a str,
    /// What is said of the connection: that it closes, or to one of HTTP/1.0 that it does not.
    pub connection: Option<&'a str>,
    /// The time (RFC 9110 6.6.1).
    pub date: &'a str,
}

impl Head<'_> {
    /// Writes it; returns its length.
    pub fn write(&self, to: &mut [u8; MOST_HEAD]) -> usize {
        let mut rest = &mut to[..];
        // All of it fits: every part has a bound, whose sum is below that of the array.
        let mut put = |text: &[u8]| {
            let count = text.len().min(rest.len());
            let (now, behind) = std::mem::take(&mut rest).split_at_mut(count);
            now.copy_from_slice(&text[..count]);
            rest = behind;
        };
        put(b"HTTP/1.1 ");
        put(self.status.line().as_bytes());
        put(b"\r\nServer: linerate\r\nDate: ");
        put(self.date.as_bytes());
        put(b"\r\nContent-Type: ");
        put(self.media_type.as_bytes());
        put(b"\r\nContent-Length: ");
        let mut digits = [0; 20];
        let mut room = &mut digits[..];
        let _ = write!(room, "{}", self.len);
        let left = room.len();
        put(&digits[..20 - left]);
        if let Some(connection) = self.connection {
            put(b"\r\nConnection: ");
            put(connection.as_bytes());
        }
        if self.status == Status::NotAllowed {
            // RFC 9110 15.5.6.
            put(b"\r\nAllow: GET, HEAD");
        }
        put(b"\r\n\r\n");
        MOST_HEAD - rest.len()
    }
}

/// A date as RFC 9110 5.6.7 has it (`Sun, 06 Nov 1994 08:49:37 GMT`), from seconds since 1970.
pub fn date(unix_s: u64) -> String {
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
    format!(
        "{}, {:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        left + 1,
        MONTHS[month],
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}
