//! FRR's stream of routes to a forwarding plane (FPM): netlink messages behind short headers, over
//! TCP.
//!
//! `zebra -M dplane_fpm_nl` connects and sends. A frame's header is a version (1), a kind (1:
//! netlink), and the length of the frame in network order, the header's four bytes included. A
//! frame holds one [netlink message](crate::rtnetlink) or a few that belong together. Nothing is
//! ever answered.
//!
//! [`Stream`] takes the bytes as they come, in pieces of any size.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::bytes::be16;

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 4;
/// The one version that there is.
pub const VERSION: u8 = 1;
/// The kind of frames that hold netlink messages.
pub const NETLINK: u8 = 1;

/// Largest frame: its length has 16 bits.
const FRAME_MAX: usize = u16::MAX as usize;
/// What is read at once, beside a frame that is not complete.
const READ: usize = 256 << 10;

/// An error of a stream. The rest of the stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Another version, or no FPM at all.
    Version(u8),
    /// Frames of another kind.
    Kind(u8),
    /// A frame that is shorter than its header.
    Length(u16),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "FPM version {version}, where only {VERSION} is known")
            }
            Self::Kind(2) => write!(
                f,
                "FPM frames with protobuf; load zebra with -M dplane_fpm_nl"
            ),
            Self::Kind(kind) => write!(f, "FPM frames of kind {kind}, where only netlink is known"),
            Self::Length(len) => write!(f, "an FPM frame of {len} bytes, shorter than its header"),
        }
    }
}

impl core::error::Error for Flaw {}

/// A header for so many bytes of netlink; `None` if they are too many.
pub fn header(payload_len: usize) -> Option<[u8; HEADER_LEN]> {
    let len = u16::try_from(payload_len + HEADER_LEN).ok()?;
    let [high, low] = len.to_be_bytes();
    Some([VERSION, NETLINK, high, low])
}

/// The receiving end: bytes go in, frames come out.
///
/// ```
/// use linerate_wire::fpm::{Stream, header};
/// let mut stream = Stream::new();
/// let sent = [&header(3).unwrap()[..], b"abc"].concat();
/// for byte in sent {
///     assert_eq!(stream.frame(), Ok(None));
///     stream.space()[0] = byte;
///     stream.filled(1);
/// }
/// assert_eq!(stream.frame(), Ok(Some(&b"abc"[..])));
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    buffer: Vec<u8>,
    /// What has come and was not handed out.
    first: usize,
    end: usize,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// At the beginning of a connection.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; FRAME_MAX + READ],
            first: 0,
            end: 0,
        }
    }

    /// Where the next bytes go; never empty once [`frame`](Self::frame) has returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.first > 0 {
            self.buffer.copy_within(self.first..self.end, 0);
            (self.first, self.end) = (0, self.end - self.first);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were put into [`space`](Self::space).
    ///
    /// # Panics
    /// If there was not so much.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len() - self.end, "more than the space");
        self.end += bytes;
    }

    /// What the next frame holds; `None` if it has not all come.
    ///
    /// # Errors
    /// If the peer does not speak FPM. The same is returned ever after.
    pub fn frame(&mut self) -> Result<Option<&[u8]>, Flaw> {
        let bytes = &self.buffer[self.first..self.end];
        // A peer with another protocol is detected at the first byte.
        match *bytes {
            [version, ..] if version != VERSION => return Err(Flaw::Version(version)),
            [_, kind, ..] if kind != NETLINK => return Err(Flaw::Kind(kind)),
            _ if bytes.len() < HEADER_LEN => return Ok(None),
            _ => {}
        }
        let says = be16(bytes, 2);
        let len = usize::from(says);
        if len < HEADER_LEN {
            return Err(Flaw::Length(says));
        }
        if bytes.len() < len {
            return Ok(None);
        }
        let first = self.first;
        self.first += len;
        Ok(Some(&self.buffer[first + HEADER_LEN..first + len]))
    }

    /// Bytes of a frame that has not all come.
    pub fn rest(&self) -> usize {
        self.end - self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn feed(stream: &mut Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = stream.space();
            let len = bytes.len().min(space.len());
            space[..len].copy_from_slice(&bytes[..len]);
            stream.filled(len);
            bytes = &bytes[len..];
        }
    }

    fn all(stream: &mut Stream) -> Result<Vec<Vec<u8>>, Flaw> {
        let mut frames = Vec::new();
        while let Some(frame) = stream.frame()? {
            frames.push(frame.to_vec());
        }
        Ok(frames)
    }

    #[test]
    fn liars_are_named() {
        for (bytes, flaw, word) in [
            (&b"GET / HTTP/1.1"[..], Flaw::Version(b'G'), "version 71"),
            (&[1, 2, 0, 9], Flaw::Kind(2), "dplane_fpm_nl"),
            (&[1, 7], Flaw::Kind(7), "kind 7"),
            (&[1, 1, 0, 3], Flaw::Length(3), "3 bytes"),
            (&[0], Flaw::Version(0), "version 0"),
        ] {
            let mut stream = Stream::new();
            feed(&mut stream, bytes);
            assert_eq!(stream.frame(), Err(flaw));
            assert_eq!(stream.frame(), Err(flaw));
            assert!(flaw.to_string().contains(word), "{flaw}");
        }
    }

    #[test]
    fn what_came_before_a_stop_or_a_lie_counts() {
        let mut stream = Stream::new();
        feed(&mut stream, &[1, 1, 0, 5, 9, 1, 1, 0, 6, 7]);
        assert_eq!(stream.frame(), Ok(Some(&[9][..])));
        assert_eq!(stream.frame(), Ok(None));
        assert_eq!(stream.rest(), 5);
        feed(&mut stream, &[8, 2]);
        assert_eq!(stream.frame(), Ok(Some(&[7, 8][..])));
        assert_eq!(stream.frame(), Err(Flaw::Version(2)));
    }

    #[test]
    fn the_largest_frame_fits() {
        let mut stream = Stream::new();
        let body = std::vec![5; FRAME_MAX - HEADER_LEN];
        for _ in 0..9 {
            feed(&mut stream, &header(body.len()).unwrap());
            feed(&mut stream, &body);
            assert_eq!(stream.frame(), Ok(Some(&body[..])));
        }
        assert_eq!(header(FRAME_MAX - HEADER_LEN + 1), None);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300),
                0..20),
            cuts in proptest::collection::vec(1usize..97, 1..9),
        ) {
            let sent: Vec<u8> = bodies
                .iter()
                .flat_map(|body| [&header(body.len()).unwrap()[..], body].concat())
                .collect();
            let (mut stream, mut got, mut rest) = (Stream::new(), Vec::new(), &sent[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(rest.len().min(*cut));
                feed(&mut stream, piece);
                got.extend(all(&mut stream).unwrap());
                rest = after;
            }
            prop_assert_eq!(got, bodies);
            prop_assert_eq!(stream.rest(), 0);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let mut stream = Stream::new();
            feed(&mut stream, &bytes);
            let _ = all(&mut stream);
        }
    }
}
