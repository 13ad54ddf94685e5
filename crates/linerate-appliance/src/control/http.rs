//! An HTTP listener with one page, `/metrics`: as much of RFC 9112 as a scraper needs.
//!
//! A connection is one request. There are few at once, and who is slow to ask or to read is cut
//! off, so that nobody can hold more than eight threads for more than a few seconds.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acceptor::{Acceptor, Clients, Places};
use crate::error::Error;
use crate::socket::tcp::TcpDoor;

/// Connections at once; more are closed without an answer.
const CLIENTS: Clients = Clients {
    listener: "metrics",
    client: "scraper",
    most: 8,
};
/// Longest request, its fields included.
const REQUEST_BYTES: usize = 8 * 1024;
/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// What OpenMetrics calls itself.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The page, made for each request; none when there is nothing to show any more.
pub type Page = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A listener and its thread. Dropping it ends both.
pub struct Http {
    _acceptor: Acceptor,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Http {
    /// Listens at `address`.
    ///
    /// # Errors
    /// The address is taken, or not this machine's.
    pub fn listen(address: SocketAddr, page: Page) -> Result<Self, Error> {
        let wrong = |error: io::Error| Error::Usage {
            problem: format!("metrics at {address}: {error}"),
            fix: "give `metrics` an address of this machine and a port that is free".into(),
        };
        let door = TcpDoor::open(address).map_err(wrong)?;
        let at = door.at;
        let places = Places::default();
        let admit = move |stream| {
            let page = page.clone();
            // It ends with the client, whatever the reason; one too many is closed.
            places.admit(
                CLIENTS,
                stream,
                move |stream| _ = answer(stream, &page),
                drop,
            )
        };
        let accept = move |time_ms| door.accept(time_ms);
        Ok(Self {
            _acceptor: Acceptor::start(CLIENTS.listener, Arc::default(), accept, admit)?,
            at,
        })
    }
}

fn answer(mut stream: TcpStream, page: &Page) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(head) = read_head(&mut stream)? else {
        return Ok(());
    };
    let deadline = Instant::now() + PATIENCE;
    write_until(&mut stream, &response(&head, page), deadline)?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// What a request, from its first line to the empty one, is answered.
fn response(head: &[u8], page: &Page) -> Vec<u8> {
    let first = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let (status, kind, body) = match (method, path) {
        _ if !is_http => ("400 Bad Request", "text/plain", "not HTTP/1\n".into()),
        ("GET" | "HEAD", "/metrics") => match page() {
            Some(text) => ("200 OK", TYPE, text),
            None => ("503 Service Unavailable", "text/plain", "ending\n".into()),
        },
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".into()),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "GET /metrics\n".into(),
        ),
    };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if method != "HEAD" {
        bytes.extend(body.as_bytes());
    }
    bytes
}

/// Any bytes as a request: the answer is a whole one, and the page is for those who ask for it.
#[cfg(any(test, feature = "fuzz"))]
pub fn fuzz(input: &[u8]) {
    const PAGE: &str = "x 1\n# EOF\n";
    let answer = response(input, &(Arc::new(|| Some(PAGE.into())) as Page));
    let answer = String::from_utf8(answer).expect("an answer is text");
    let (fields, body) = answer.split_once("\r\n\r\n").expect("fields end");
    let first = fields.lines().next().unwrap_or("");
    let status: u16 = first[9..12].parse().expect("a status of three digits");
    assert!(matches!(status, 200 | 400 | 404 | 405), "{first}");
    assert_eq!(
        fields.lines().count(),
        4,
        "a request adds no field: {fields}"
    );
    let asks = |method: &[u8]| {
        input.starts_with(method) && input[method.len()..].starts_with(b" /metrics")
    };
    assert_eq!(
        status == 200,
        status == 200 && (asks(b"GET") || asks(b"HEAD"))
    );
    assert_eq!(body == PAGE, status == 200 && !asks(b"HEAD"));
}

/// A request up to the empty line behind its fields; none where it does not come whole.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= REQUEST_BYTES {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Ok(None),
            count => head.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(Some(head))
}

/// All of `bytes`, however slowly they are taken, but not past the deadline.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        let count = stream.write(bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listener() -> Http {
        let page: Page = Arc::new(|| Some("x 1\n# EOF\n".into()));
        Http::listen("127.0.0.1:0".parse().unwrap(), page).unwrap()
    }

    fn ask(at: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn there_is_one_page_and_only_to_read() {
        let http = listener();
        let text = ask(http.at, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains(TYPE) && text.ends_with("\r\n\r\nx 1\n# EOF\n"));
        let head = ask(http.at, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("hello\r\n\r\n", "400"),
        ] {
            let text = ask(http.at, request);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
    }

    #[test]
    fn clients_beyond_the_limits_are_disconnected() {
        let http = listener();
        let mut long = TcpStream::connect(http.at).unwrap();
        let _ = long.write_all(&[b'x'; 2 * REQUEST_BYTES]);
        let mut text = String::new();
        // Nothing is said, and the connection ends (or is reset, for bytes were left unread).
        let _ = long.read_to_string(&mut text);
        assert_eq!(text, "");
        let held: Vec<TcpStream> = (0..CLIENTS.most)
            .map(|_| TcpStream::connect(http.at).unwrap())
            .collect();
        // The seats fill in the order of connecting.
        let mut one_more = TcpStream::connect(http.at).unwrap();
        assert_eq!(one_more.read(&mut [0; 1]).unwrap_or(0), 0);
        drop(held);
    }

    #[test]
    fn nothing_listens_after_the_end() {
        let http = listener();
        let at = http.at;
        drop(http);
        assert!(TcpStream::connect(at).is_err());
    }
}
