//! Streams of lines: Unix or TCP sockets, with limits on how long a line is and how long it may
//! take.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connected socket.
#[derive(Debug)]
pub enum Wire {
    /// On this machine.
    Unix(UnixStream),
    /// Over the network.
    Tcp(TcpStream),
}

impl Wire {
    /// The same connection again.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    /// Timeout of reads; `None`: no limit.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(time),
            Self::Tcp(stream) => stream.set_read_timeout(time),
        }
    }

    /// Timeout of writes; `None`: no limit.
    ///
    /// # Errors
    /// The time is zero.
    pub fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(time),
            Self::Tcp(stream) => stream.set_write_timeout(time),
        }
    }

    /// Closes both directions, and wakes threads that wait on them. A socket that is closed already
    /// stays so.
    pub fn shutdown(&self) {
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buffer),
            Self::Tcp(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.flush(),
            Self::Tcp(stream) => stream.flush(),
        }
    }
}

/// Result of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// Nothing whole yet.
    Waiting,
    /// Longer than the limit; the rest of the stream cannot be read.
    TooLong,
    /// The other side has closed.
    Closed,
}

/// Reads lines of at most `limit` bytes.
#[derive(Debug)]
pub struct Lines {
    wire: Wire,
    limit: usize,
    held: Vec<u8>,
    /// Bytes of `held` that hold no line end.
    searched: usize,
    /// When the incomplete line began.
    began: Option<Instant>,
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub fn new(wire: Wire, limit: usize) -> Self {
        Self {
            wire,
            limit,
            held: Vec::new(),
            searched: 0,
            began: None,
        }
    }

    /// Bytes that came behind the last line.
    pub fn into_held(self) -> Vec<u8> {
        self.held
    }

    /// How long a line has been incomplete; `None` between lines.
    pub fn under_way(&self) -> Option<Duration> {
        self.began.map(|began| began.elapsed())
    }

    /// Waits for a line, at most `time` (`None`: without a limit).
    pub fn next(&mut self, time: Option<Duration>) -> Line {
        let deadline = time.map(|time| Instant::now() + time);
        loop {
            if let Some(line) = self.take() {
                return line;
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            // A zero timeout would mean no limit to a socket.
            let left = left.map(|left| left.max(Duration::from_micros(100)));
            if self.wire.set_read_timeout(left).is_err() {
                return Line::Closed;
            }
            let mut chunk = [0; 16 * 1024];
            match self.wire.read(&mut chunk) {
                Ok(0) => return Line::Closed,
                Ok(count) => {
                    self.began.get_or_insert_with(Instant::now);
                    self.held.extend_from_slice(&chunk[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Line::Waiting;
                }
                Err(_) => return Line::Closed,
            }
        }
    }

    /// A line that has come already.
    fn take(&mut self) -> Option<Line> {
        let end = self.held[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n')
            .map(|at| self.searched + at);
        let Some(end) = end else {
            self.searched = self.held.len();
            return (self.held.len() >= self.limit).then_some(Line::TooLong);
        };
        if end >= self.limit {
            return Some(Line::TooLong);
        }
        let mut line: Vec<u8> = self.held.drain(..=end).collect();
        line.pop();
        self.searched = 0;
        self.began = (!self.held.is_empty()).then(Instant::now);
        Some(Line::Whole(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(limit: usize) -> (UnixStream, Lines) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, Lines::new(Wire::Unix(theirs), limit))
    }

    const SHORT: Option<Duration> = Some(Duration::from_millis(10));

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let (mut ours, mut lines) = pair(100);
        ours.write_all(b"one\ntwo\nth").unwrap();
        assert_eq!(lines.next(SHORT), Line::Whole(b"one".to_vec()));
        assert_eq!(lines.next(SHORT), Line::Whole(b"two".to_vec()));
        assert_eq!(lines.next(SHORT), Line::Waiting);
        assert!(lines.under_way().is_some());
        ours.write_all(b"ree\n").unwrap();
        assert_eq!(lines.next(SHORT), Line::Whole(b"three".to_vec()));
        assert!(lines.under_way().is_none());
        drop(ours);
        assert_eq!(lines.next(None), Line::Closed);
    }

    #[test]
    fn a_line_may_be_just_as_long_as_allowed_and_no_longer() {
        for (bytes, allowed) in [(9, true), (10, false), (5000, false)] {
            let (mut ours, mut lines) = pair(10);
            let mut line = vec![b'x'; bytes];
            line.push(b'\n');
            ours.write_all(&line).unwrap();
            let wanted = if allowed {
                Line::Whole(line[..bytes].to_vec())
            } else {
                Line::TooLong
            };
            assert_eq!(lines.next(SHORT), wanted, "{bytes}");
        }
    }
}
