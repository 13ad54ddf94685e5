//! Asks a backend whether it is up: a TCP connection, and over it an HTTP request (RFC 9110, in the
//! words of RFC 1945: one request, one answer).
//!
//! A [`Probe`] is one such question under way. It never waits: whoever has it polls its socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

/// `[balancer.check]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is asked.
    pub kind: Kind,
    /// Where, if not where packets of flows go.
    pub port: Option<u16>,
    /// Milliseconds from one question to the next.
    pub interval_ms: u32,
    /// Milliseconds that an answer may take.
    pub timeout_ms: u32,
    /// Answers in a row that make a backend up.
    pub rise: u16,
    /// Failures in a row that make it down.
    pub fall: u16,
}

/// What a backend is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whether it takes a connection.
    Tcp,
    /// Whether it answers a GET as it should.
    Http {
        /// What is asked for: `/`, or more.
        path: String,
        /// The host that is named; `None`: the backend's address.
        host: Option<String>,
        /// The answers that are right.
        status: RangeInclusive<u16>,
    },
}

impl Kind {
    /// Its name in the file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http { .. } => "http",
        }
    }
}

/// The most bytes of an answer that are looked at for its first line.
const FIRST_LINE: usize = 256;

/// How far a question is.
enum Stage {
    Connects,
    Asks(Vec<u8>),
    Hears(Vec<u8>),
}

/// A question under way.
pub struct Probe {
    stream: TcpStream,
    stage: Stage,
}

/// The answer: right, or why not; `None` while it is awaited.
pub type Answer = Option<Result<(), String>>;

impl Probe {
    /// Begins to ask whoever is there.
    ///
    /// # Errors
    /// Why nobody can be asked.
    pub fn begin(to: SocketAddr) -> Result<Self, String> {
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(said)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self {
                stream: socket.into(),
                stage: Stage::Connects,
            }),
            Err(error) => Err(said(error)),
        }
    }

    /// The socket to poll.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What to poll it for.
    pub fn awaits(&self) -> PollFlags {
        match self.stage {
            Stage::Connects | Stage::Asks(_) => PollFlags::OUT,
            Stage::Hears(_) => PollFlags::IN,
        }
    }

    /// Goes on, once the socket is ready.
    pub fn go_on(&mut self, kind: &Kind, to: SocketAddr) -> Answer {
        match self.step(kind, to) {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) => Some(Err(plain(&error))),
        }
    }

    fn step(&mut self, kind: &Kind, to: SocketAddr) -> io::Result<Answer> {
        loop {
            match &mut self.stage {
                Stage::Connects => {
                    sockopt::socket_error(&self.stream)?.map_err(io::Error::from)?;
                    match kind {
                        Kind::Tcp => return Ok(Some(Ok(()))),
                        Kind::Http { path, host, .. } => {
                            let host = host.clone().unwrap_or_else(|| to.to_string());
                            let request = format!(
                                "GET {path} HTTP/1.0\r\nHost: {host}\r\nUser-Agent: linerate\r\n\
                                 Connection: close\r\n\r\n"
                            );
                            self.stage = Stage::Asks(request.into_bytes());
                        }
                    }
                }
                Stage::Asks(left) => {
                    let sent = self.stream.write(left)?;
                    left.drain(..sent);
                    if left.is_empty() {
                        self.stage = Stage::Hears(Vec::new());
                    }
                }
                Stage::Hears(heard) => {
                    let mut bytes = [0; FIRST_LINE];
                    let len = self.stream.read(&mut bytes)?;
                    heard.extend_from_slice(&bytes[..len]);
                    let is_all = len == 0 || heard.len() >= FIRST_LINE || heard.contains(&b'\n');
                    if is_all {
                        return Ok(Some(judge(heard, kind)));
                    }
                }
            }
        }
    }
}

/// Whether an answer is right: by its status line (RFC 9112 4).
fn judge(heard: &[u8], kind: &Kind) -> Result<(), String> {
    let line = heard
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/"));
    let status = words.next().filter(|_| is_http);
    let Some(status) = status.and_then(|word| word.parse::<u16>().ok()) else {
        return Err("the answer is no HTTP".into());
    };
    match kind {
        Kind::Http { status: right, .. } if !right.contains(&status) => {
            Err(format!("HTTP status {status}"))
        }
        _ => Ok(()),
    }
}

fn said(error: Errno) -> String {
    plain(&error.into())
}

/// An error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, Timespec, poll};
    use std::net::TcpListener;

    fn http(status: RangeInclusive<u16>) -> Kind {
        Kind::Http {
            path: "/healthz".into(),
            host: Some("web".into()),
            status,
        }
    }

    /// Asks to the end.
    fn ask(to: SocketAddr, kind: &Kind) -> Result<(), String> {
        let mut probe = Probe::begin(to)?;
        loop {
            let mut polled = [PollFd::from_borrowed_fd(probe.socket(), probe.awaits())];
            let wait = Timespec {
                tv_sec: 10,
                tv_nsec: 0,
            };
            let ready = poll(&mut polled, Some(&wait)).unwrap();
            assert_eq!(ready, 1, "an answer is awaited forever");
            if let Some(answer) = probe.go_on(kind, to) {
                return answer;
            }
        }
    }

    /// A server that says this to one client, and what it heard.
    fn server(says: &'static [u8]) -> (SocketAddr, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = Vec::new();
            let mut bytes = [0; 512];
            while !heard.ends_with(b"\r\n\r\n") {
                match stream.read(&mut bytes).unwrap() {
                    0 => break,
                    len => heard.extend_from_slice(&bytes[..len]),
                }
            }
            // In pieces.
            for piece in says.chunks(5) {
                let _ = stream.write_all(piece);
            }
            String::from_utf8(heard).unwrap()
        });
        (to, served)
    }

    #[test]
    fn a_listener_takes_a_connection_and_nobody_refuses_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        assert_eq!(ask(to, &Kind::Tcp), Ok(()));
        drop(listener);
        assert_eq!(ask(to, &Kind::Tcp), Err("connection refused".into()));
    }

    #[test]
    fn http_is_judged_by_its_status() {
        for (says, right, expected) in [
            (&b"HTTP/1.1 204 No Content\r\n\r\n"[..], 200..=399, Ok(())),
            (b"HTTP/1.0 503 Busy\r\n", 200..=399, Err("HTTP status 503")),
            (
                b"HTTP/1.0 200 OK\r\n\r\nhello",
                204..=204,
                Err("HTTP status 200"),
            ),
            (
                b"SSH-2.0-OpenSSH\r\n",
                200..=399,
                Err("the answer is no HTTP"),
            ),
            (b"", 200..=399, Err("the answer is no HTTP")),
        ] {
            let (to, served) = server(says);
            assert_eq!(ask(to, &http(right)), expected.map_err(String::from));
            let heard = served.join().unwrap();
            assert!(
                heard.starts_with("GET /healthz HTTP/1.0\r\nHost: web\r\n"),
                "{heard}"
            );
        }
    }
}
