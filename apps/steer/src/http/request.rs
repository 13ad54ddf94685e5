//! Heads of requests.

use super::body::Body;

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
}

/// A head: its length in bytes, itself, and its target.
pub type Head<'a> = (usize, Request, &'a [u8]);

/// Reads a head at the front of `bytes`: its length, itself and its target, or `None` where it is
/// not all there.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8], most_body: u64) -> Result<Option<Head<'_>>, Wrong> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let len = match head.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Wrong::TooLarge),
        Err(httparse::Error::Version) => return Err(version(bytes)),
        Err(_) => return Err(Wrong::Malformed),
    };
    let is_1_1 = head.version == Some(1);
    let method = match head.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    let target = head.path.unwrap_or("").as_bytes();
    let (mut hosts, mut length, mut chunked) = (0, None, false);
    let (mut keeps, mut expects) = (is_1_1, false);
    for field in head.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            4 if is("host") => hosts += 1,
            6 if is("expect") => expects |= is_word(field.value, "100-continue"),
            10 if is("connection") => {
                for word in words(field.value) {
                    if word.eq_ignore_ascii_case(b"close") {
                        keeps = false;
                    } else if word.eq_ignore_ascii_case(b"keep-alive") && !is_1_1 {
                        keeps = true;
                    }
                }
            }
            14 if is("content-length") => {
                // RFC 9112 6.3 (5): several that agree are one.
                let value = number(field.value).ok_or(Wrong::Malformed)?;
                if length.replace(value).is_some_and(|other| other != value) {
                    return Err(Wrong::Malformed);
                }
            }
            17 if is("transfer-encoding") => {
                // RFC 9112 6.1: chunked is the last coding, and the only one that is known here.
                if chunked || !is_1_1 {
                    return Err(Wrong::Malformed);
                }
                if !is_word(field.value, "chunked") {
                    return Err(Wrong::Coding);
                }
                chunked = true;
            }
            _ => {}
        }
    }
    // RFC 9112 3.2: 400 for a request of 1.1 without Host, and for one with two.
    if hosts > 1 || is_1_1 && hosts == 0 {
        return Err(Wrong::Malformed);
    }
    // RFC 9112 6.1: with both it may be an attempt to smuggle a request.
    if chunked && length.is_some() {
        return Err(Wrong::Malformed);
    }
    let length = length.unwrap_or(0);
    if length > most_body {
        return Err(Wrong::Body);
    }
    let body = match chunked {
        true => Body::CHUNKED,
        false => Body::Length(length),
    };
    let request = Request {
        method,
        keeps,
        is_1_1,
        expects: expects && is_1_1 && !body.is_done(),
        body,
    };
    Ok(Some((len, request, target)))
}

/// Whether the version is another one of HTTP, or none at all.
fn version(bytes: &[u8]) -> Wrong {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or(&[]);
    let line = line.trim_ascii_end();
    let word = line.rsplit(|&byte| byte == b' ').next().unwrap_or(&[]);
    match word.strip_prefix(b"HTTP/") {
        // RFC 9112 2.3: DIGIT "." DIGIT.
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Wrong::Version
        }
        _ => Wrong::Malformed,
    }
}

/// The words of a list (RFC 9110 5.6.1).
fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

fn is_word(value: &[u8], word: &str) -> bool {
    value.trim_ascii().eq_ignore_ascii_case(word.as_bytes())
}

/// 1*DIGIT, which fits (RFC 9110 8.6).
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
