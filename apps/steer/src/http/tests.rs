//! Heads, bodies and dates by the clauses of their RFCs. Connections are tested with a stack, in
//! `tests/`.

use linerate_testkit::Random;

use super::answer::{MOST_HEAD, Said, Status, date, front, front_of_part, head_len, write_head};
use super::body::{Body, Malformed};
use super::request::{Head, MOST_FIELDS, Method, Range, Wrong, read};
use super::response;

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

#[test]
fn rfc9112_2_2_5_lines_and_fields_are_what_they_may_be() {
    let good = "\r\n\r\nGET / HTTP/1.1\nhost:\t x\t \nA:\n\n";
    assert_eq!(request(good).unwrap().unwrap().0, good.len());
    for text in [
        // 5.1: no blank before the colon, and a name at all.
        "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n",
        // 5.2: no line that goes on with the last one.
        "GET / HTTP/1.1\r\nHost: x\r\n y\r\n\r\n",
        // 5.5: no controls. 2.2: CR alone ends nothing.
        "GET / HTTP/1.1\r\nHost: x\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\rA: y\r\n\r\n",
        // 3: one blank between the parts of the first line.
        "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "G@T / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /\r\nHost: x\r\n\r\n",
    ] {
        assert_eq!(request(text), Err(Wrong::Malformed), "{text:?}");
    }
}

#[test]
fn rfc9110_14_parts_are_of_bytes_and_one() {
    let of = |fields: &str| {
        let text = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        request(&text).unwrap().unwrap().1.range
    };
    for (value, range, of_10) in [
        ("bytes=0-0", Range::Between(0, 0), Some((0, 1))),
        ("Bytes=3-", Range::From(3), Some((3, 10))),
        ("bytes=3-99", Range::Between(3, 99), Some((3, 10))),
        ("bytes=-4", Range::Last(4), Some((6, 10))),
        ("bytes=-99", Range::Last(99), Some((0, 10))),
        ("bytes=10-", Range::From(10), None),
        ("bytes=-0", Range::Last(0), None),
        (
            "bytes=5-18446744073709551615",
            Range::Between(5, u64::MAX),
            Some((5, 10)),
        ),
    ] {
        assert_eq!(of(&format!("Range: {value}")), Some(range), "{value}");
        assert_eq!(range.of(10), of_10, "{value}");
    }
    // What is not understood, several, or only if something matches: all of it.
    for fields in [
        "Range: bytes=0-1,3-4",
        "Range: lines=0-1",
        "Range: bytes=5-4",
        "Range: bytes=a-",
        "Range: bytes=-",
        "Range: bytes",
        "Range: bytes=0-1\r\nRange: bytes=0-1",
        "Range: bytes=0-1\r\nIf-Range: \"x\"",
    ] {
        assert_eq!(of(fields), None, "{fields}");
    }
    let post = "POST / HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n\r\n";
    assert_eq!(request(post).unwrap().unwrap().1.range, None);
    let front = front_of_part(Some((u64::MAX - 9, u64::MAX)), u64::MAX, &"x".repeat(40));
    assert!(head_len(&front, Said::KeepAlive) <= MOST_HEAD);
    let text = String::from_utf8(front_of_part(Some((3, 10)), 10, "a/b").to_vec()).unwrap();
    assert!(text.starts_with("HTTP/1.1 206 "), "{text}");
    assert!(
        text.contains("\r\nContent-Length: 7\r\nContent-Range: bytes 3-9/10\r\n"),
        "{text}"
    );
}

/// What httparse finds of a request: its length and target.
fn by_httparse(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => Some((len, head.path?.as_bytes().to_vec())),
        _ => None,
    }
}

#[test]
fn requests_are_read_as_httparse_reads_them() {
    let texts = [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /some/longer/path?with=query HTTP/1.1\r\nHost: example.org:8080\r\nUser-Agent: a b \
         c/1.2 (d; e)\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
        "POST / HTTP/1.0\nHost: x\nContent-Length: 3\n\nabc",
    ];
    let mut random = Random::new(20_261_129);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..60_000 {
        let mut bytes = texts[round % texts.len()].as_bytes().to_vec();
        for _ in 0..random.below(3_usize) {
            let at = random.below(bytes.len());
            match random.below(3_u8) {
                0 => bytes[at] = random.below(256_u16) as u8,
                1 => bytes.insert(at, random.of(b" \r\n\t:\0\x7f\x80aH/1.")),
                _ => _ = bytes.remove(at),
            }
        }
        let theirs = by_httparse(&bytes);
        match read(&bytes, 1000) {
            Ok(Some((len, _, target))) => {
                accepted += 1;
                let text = String::from_utf8_lossy(&bytes);
                // httparse gives it as text; here it is bytes, as RFC 3986 2 has it encoded.
                if std::str::from_utf8(target).is_err() {
                    continue;
                }
                assert_eq!(theirs, Some((len, target.to_vec())), "{text:?}");
            }
            Ok(None) => assert_eq!(theirs, None, "{:?}", String::from_utf8_lossy(&bytes)),
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 10_000 && refused > 1000, "{accepted}, {refused}");
}

#[test]
fn rfc9112_6_3_responses_end_where_they_say() {
    let of = |line: &str, fields: &str| {
        let text = format!("HTTP/1.1 {line}\r\n{fields}\r\n");
        let read = response::read(text.as_bytes());
        read.map(|read| {
            let (len, response) = read.unwrap();
            assert_eq!(len, text.len());
            (response.code, response.keeps, response.body)
        })
    };
    let length = "Content-Length: 7\r\n";
    assert_eq!(of("200 OK", length), Ok((200, true, Body::Length(7))));
    assert_eq!(of("200", length), Ok((200, true, Body::Length(7))));
    assert_eq!(
        of("204 No Content", length),
        Ok((204, true, Body::Length(0)))
    );
    assert_eq!(
        of("304 Not Modified", length),
        Ok((304, true, Body::Length(0)))
    );
    assert_eq!(of("100 Continue", ""), Ok((100, true, Body::Length(0))));
    assert_eq!(of("200 OK", ""), Ok((200, false, Body::UntilEnd)));
    let chunked = "Transfer-Encoding: gzip, chunked\r\n";
    assert_eq!(of("200 OK", chunked), Ok((200, true, Body::CHUNKED)));
    let gzip = "Transfer-Encoding: gzip\r\n";
    assert_eq!(of("200 OK", gzip), Ok((200, false, Body::UntilEnd)));
    let close = "Content-Length: 7\r\nConnection: close\r\n";
    assert_eq!(of("200 OK", close), Ok((200, false, Body::Length(7))));
    for (line, fields) in [
        (
            "200 OK",
            "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
        ),
        ("200 OK", "Content-Length: 7\r\nContent-Length: 8\r\n"),
        ("200 OK", "Content-Length: -7\r\n"),
        ("99 Odd", ""),
        ("2000 Odd", ""),
    ] {
        assert_eq!(
            of(line, fields),
            Err(response::Malformed),
            "{line} {fields}"
        );
    }
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
    for end in 0..text.len() {
        assert_eq!(response::read(&text[..end]), Ok(None), "{end}");
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
        "\r\n\r\n",
        ";x\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "x\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\r9\nhello\r\n0\r\n\r\n",
        "5;\ra\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX",
        "1000000000000000\r\n",
        "5 5\r\n-1\r\n",
        "5\r\nhello\r\n-1\r\n",
        "0\r\nA: b\r\rC: d\r\n\r\n",
    ] {
        let mut body = Body::CHUNKED;
        let taken = body.take(text.as_bytes());
        assert_eq!(taken, Err(Malformed), "{text:?}");
    }
}

#[test]
fn rfc9110_5_6_7_dates() {
    assert_eq!(&date(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(&date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(&date(951_827_696), b"Tue, 29 Feb 2000 12:34:56 GMT");
    assert_eq!(&date(4_102_444_799), b"Thu, 31 Dec 2099 23:59:59 GMT");
}

#[test]
fn heads_say_what_they_are_and_the_longest_fits() {
    let mut to = [0; MOST_HEAD];
    let date = date(784_111_777);
    for status in Status::ALL {
        for said in Said::ALL {
            let front = front(status, u64::MAX, "application/octet-stream; charset=utf-8");
            let len = head_len(&front, said);
            write_head(&front, &date, said, &mut to[..len]);
            let mut fields = [httparse::EMPTY_HEADER; 8];
            let mut head = httparse::Response::new(&mut fields);
            assert_eq!(head.parse(&to[..len]), Ok(httparse::Status::Complete(len)));
            let line = format!("{} {}", head.code.unwrap(), head.reason.unwrap());
            assert_eq!(line, status.line());
            let value = |name: &str| {
                let mut all = head.headers.iter().filter(|field| field.name == name);
                let value = all
                    .next()
                    .map(|field| std::str::from_utf8(field.value).unwrap());
                assert!(all.next().is_none(), "{name} twice");
                value
            };
            assert_eq!(value("Content-Length"), Some("18446744073709551615"));
            assert_eq!(value("Date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
            let connection = match said {
                Said::Nothing => None,
                Said::Close => Some("close"),
                Said::KeepAlive => Some("keep-alive"),
            };
            assert_eq!(value("Connection"), connection);
            assert_eq!(value("Allow").is_some(), status == Status::NotAllowed);
        }
    }
}
