//! What web servers and clients are told: heads of requests and responses, and bodies. Requests are
//! read by a parser of our own, which must find what httparse finds.

use linerate_steer::http::body::Body;
use linerate_steer::http::request::{self, MOST_FIELDS, Wrong};
use linerate_steer::http::response;

/// Bytes of a request's body at most.
const MOST_BODY: u64 = 1 << 20;

pub(crate) fn messages(input: &[u8]) {
    request(input);
    response(input);
    for body in [Body::CHUNKED, Body::Length(9), Body::UntilEnd] {
        in_pieces(body, input);
    }
}

/// What httparse finds of a request: its length and target.
fn by_httparse(input: &[u8]) -> Option<(usize, &[u8])> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(input) {
        Ok(httparse::Status::Complete(len)) => Some((len, head.path?.as_bytes())),
        _ => None,
    }
}

fn request(input: &[u8]) {
    match request::read(input, MOST_BODY) {
        Ok(Some((len, head, target))) => {
            assert!(len <= input.len() && !target.is_empty());
            // httparse gives a target as text, and refuses one that is none.
            if std::str::from_utf8(target).is_ok() {
                assert_eq!(by_httparse(input), Some((len, target)));
            }
            // What is behind it does not matter, and nothing less is enough.
            let again = request::read(&input[..len], MOST_BODY);
            assert_eq!(again, Ok(Some((len, head, target))));
            for less in [len - 1, len / 2, 0] {
                assert_eq!(request::read(&input[..less], MOST_BODY), Ok(None), "{less}");
            }
            if let Body::Length(bytes) = head.body {
                assert!(bytes <= MOST_BODY);
            }
            assert!(!head.expects || !head.body.is_done());
        }
        Ok(None) => assert_eq!(by_httparse(input), None),
        // What it means is wrong, or what it is; then nothing more makes it right.
        Err(wrong) => {
            let more = [input, b"\r\n\r\n"].concat();
            let longer = request::read(&more, MOST_BODY);
            // Which of two things is wrong may show later only.
            assert!(longer.is_err(), "{wrong:?} became {longer:?}");
            assert!(wrong != Wrong::TooLarge || input.len() > 2 * MOST_FIELDS);
        }
    }
}

fn response(input: &[u8]) {
    if let Ok(Some((len, head))) = response::read(input) {
        assert!((100..=999).contains(&head.code) && len <= input.len());
        assert!(!head.keeps || head.body != Body::UntilEnd);
        assert_eq!(response::read(&input[..len]), Ok(Some((len, head))));
        assert_eq!(response::read(&input[..len - 1]), Ok(None));
    }
}

/// A body is the same in whatever pieces it comes.
fn in_pieces(body: Body, input: &[u8]) {
    let mut whole = body;
    let at_once = whole.take(input);
    let mut split = body;
    let (mut at, mut content, mut is_good) = (0, 0, true);
    let mut piece = 1;
    while at < input.len() && !split.is_done() {
        let end = input.len().min(at + piece);
        match split.take(&input[at..end]) {
            Ok((taken, bytes)) => {
                assert!(taken == end - at || split.is_done());
                (at, content) = (at + taken, content + bytes);
            }
            Err(_) => {
                is_good = false;
                break;
            }
        }
        piece = piece % 7 + 2;
    }
    match at_once {
        Ok(at_once) => assert!(is_good && at_once == (at, content) && whole == split),
        Err(_) => assert!(!is_good),
    }
}
