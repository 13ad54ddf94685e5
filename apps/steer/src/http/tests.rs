//! Heads, bodies and dates by the clauses of their RFCs. Connections are tested with a stack, in
//! `tests/`.

use linerate_testkit::Random;

use super::answer::{self, MOST_HEAD, Status, date};
use super::body::Body;
use super::request::{Head, Method, Wrong, read};

fn request(text: &str) -> Result<Option<Head<'_>>, Wrong> {
    read(text.as_bytes(), 1000)
}

#[test]
fn rfc9112_3_a_request_is_read_when_it_is_all_there() {
    let text = "GET /a?b HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\nmore";
    let (len, head, target) = request(text).unwrap().unwrap();
    assert_eq!((len, target), (text.len() - 4, &b"/a?b"[..]));
    assert_eq!((head.method, head.keeps), (Method::Get, false));
    for end in 0..len {
        assert_eq!(request(&text[..end]), Ok(None), "{end}");
    }
}

#[test]
fn rfc9112_9_3_a_connection_goes_on_as_version_and_options_say() {
    for (version, options, keeps) in [
        ("1.1", "", true),
        ("1.1", "Connection: foo, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: x\r\n{options}\r\n");
        assert_eq!(request(&text).unwrap().unwrap().1.keeps, keeps, "{text}");
    }
}

#[test]
fn rfc9112_6_bodies_have_one_length() {
    let of = |fields: &str| {
        let text = format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        request(&text).map(|read| read.unwrap().1.body)
    };
    assert_eq!(of("Content-Length: 7"), Ok(Body::Length(7)));
    assert_eq!(
        of("Content-Length: 7\r\nContent-Length: 7"),
        Ok(Body::Length(7))
    );
    assert_eq!(of("Transfer-Encoding: Chunked"), Ok(Body::CHUNKED));
    for (fields, wrong) in [
        ("Content-Length: 7\r\nContent-Length: 8", Wrong::Malformed),
        ("Content-Length: +7", Wrong::Malformed),
        ("Content-Length: 7,8", Wrong::Malformed),
        ("Content-Length: 99999999999999999999", Wrong::Malformed),
        ("Content-Length: 1001", Wrong::Body),
        ("Transfer-Encoding: gzip", Wrong::Coding),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 7",
            Wrong::Malformed,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            Wrong::Malformed,
        ),
    ] {
        assert_eq!(of(fields), Err(wrong), "{fields}");
    }
}

#[test]
fn rfc9112_what_is_no_request_of_http_1_is_said_to_be_none() {
    let many: String = (0..70).map(|n| format!("a{n}: b\r\n")).collect();
    for (text, wrong) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), Wrong::Malformed),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(),
            Wrong::Malformed,
        ),
        ("GET / HTTP/2.0\r\n\r\n".into(), Wrong::Version),
        ("GET / HTTP/x\r\n\r\n".into(), Wrong::Malformed),
        ("\x16\x03\x01\x02".into(), Wrong::Malformed),
        (
            format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"),
            Wrong::TooLarge,
        ),
    ] {
        assert_eq!(request(&text).unwrap_err(), wrong, "{text}");
    }
}

/// Takes a body in pieces; how much of the text is its own, and its content.
fn take(mut body: Body, text: &[u8], mut piece: impl FnMut() -> usize) -> Option<(usize, u64)> {
    let (mut at, mut sum) = (0, 0);
    while !body.is_done() && at < text.len() {
        let end = text.len().min(at + piece());
        let (count, content) = body.take(&text[at..end]).ok()?;
        (at, sum) = (at + count, sum + content);
    }
    body.is_done().then_some((at, sum))
}

#[test]
fn rfc9112_7_1_chunks_end_where_they_say_in_whatever_pieces_they_come() {
    let text = b"5;a=b\r\nhello\r\n1F \r\n0123456789012345678901234567890\r\n0\r\nA: b\r\n\r\nGET";
    let mut random = Random::new(20_261_128);
    for _ in 0..200 {
        let piece = || 1 + random.below(9_usize);
        assert_eq!(take(Body::CHUNKED, text, piece), Some((text.len() - 3, 36)));
    }
    for text in [
        "\r\n",
        "x\r\n",
        "5\r\nhelloX",
        "1000000000000000\r\n",
        "5 5\r\n-1\r\n",
        "5\r\nhello\r\n-1\r\n",
    ] {
        assert_eq!(take(Body::CHUNKED, text.as_bytes(), || 3), None, "{text}");
    }
}

#[test]
fn rfc9110_5_6_7_dates() {
    assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(date(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
    assert_eq!(date(4_102_444_799), "Thu, 31 Dec 2099 23:59:59 GMT");
}

#[test]
fn the_longest_head_of_a_response_fits() {
    let mut to = [0; MOST_HEAD];
    let date = date(784_111_777);
    for status in Status::ALL {
        let head = answer::Head {
            status,
            len: u64::MAX,
            media_type: "application/octet-stream; charset=utf-8",
            connection: Some("keep-alive"),
            date: &date,
        };
        let len = head.write(&mut to);
        assert!(
            len < MOST_HEAD && to[..len].ends_with(b"\r\n\r\n"),
            "{status:?}: {len}"
        );
    }
}
