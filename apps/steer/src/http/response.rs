//! Heads of responses, as a client reads them.

use std::mem::MaybeUninit;

use super::body::Body;
use super::request::{MOST_FIELDS, is_word, number, words};

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code, 100 to 999.
    pub code: u16,
    /// Whether the connection goes on (RFC 9112 9.3).
    pub keeps: bool,
    /// Its body.
    pub body: Body,
}

impl Response {
    /// Whether another response to the same request follows (RFC 9110 15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.code)
    }
}

/// What came is no response of HTTP/1, or one whose end nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came is no response of HTTP/1")]
pub struct Malformed;

/// Reads a head at the front of `bytes`, of a response to a GET: its length and itself, or `None`
/// where it is not all there.
///
/// # Errors
/// What came is no response.
pub fn read(bytes: &[u8]) -> Result<Option<(usize, Response)>, Malformed> {
    // Written by the parser where there are such fields, and not before.
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut head, bytes, &mut fields);
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Malformed),
    };
    let code = head.code.filter(|code| *code >= 100).ok_or(Malformed)?;
    let is_1_1 = head.version == Some(1);
    let (mut keeps, mut length, mut chunked) = (is_1_1, None, None);
    for field in head.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
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
                let value = number(field.value).ok_or(Malformed)?;
                if length.replace(value).is_some_and(|other| other != value) {
                    return Err(Malformed);
                }
            }
            // RFC 9112 6.3 (4): where chunked is not the last coding the end is the connection's.
            17 if is("transfer-encoding") => {
                let last = words(field.value).last().unwrap_or(&[]);
                chunked = Some(is_word(last, "chunked"));
            }
            _ => {}
        }
    }
    let body = match (code, chunked, length) {
        // RFC 9112 6.3 (1).
        (100..200 | 204 | 304, ..) => Body::Length(0),
        // RFC 9112 6.1: with both it may be an attempt to split responses.
        (_, Some(_), Some(_)) => return Err(Malformed),
        (_, Some(true), None) => Body::CHUNKED,
        (_, None, Some(length)) => Body::Length(length),
        (_, Some(false) | None, None) => Body::UntilEnd,
    };
    let response = Response {
        code,
        keeps: keeps && body != Body::UntilEnd,
        body,
    };
    Ok(Some((len, response)))
}
