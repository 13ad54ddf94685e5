//! What the stack under test was given to send: what it sends is compared with that.

use crate::call::Handle;
use std::collections::HashMap;

/// The bytes that each socket was given, and the datagrams that were not seen yet.
#[derive(Debug, Default)]
pub(super) struct Written {
    streams: Vec<Vec<u8>>,
    /// Which one a socket writes to: a descriptor's number may be another socket's later.
    of: HashMap<Handle, usize>,
    datagrams: Vec<Vec<u8>>,
}

/// Bytes that a call has offered: the socket may have taken fewer.
#[derive(Debug)]
pub(super) struct Offer {
    stream: usize,
    from: usize,
    bytes: usize,
}

impl Written {
    /// A new socket, to which nothing was written.
    pub(super) fn open(&mut self, handle: Handle) -> usize {
        self.streams.push(Vec::new());
        let stream = self.streams.len() - 1;
        self.of.insert(handle, stream);
        stream
    }

    /// What this socket writes to.
    pub(super) fn stream(&mut self, handle: Handle) -> usize {
        match self.of.get(&handle) {
            Some(stream) => *stream,
            None => self.open(handle),
        }
    }

    /// A call writes this, or a part of it: it may go out before the call returns.
    pub(super) fn offer(&mut self, handle: Handle, data: &[u8]) -> Offer {
        let stream = self.stream(handle);
        let from = self.streams[stream].len();
        self.streams[stream].extend(data);
        Offer {
            stream,
            from,
            bytes: data.len(),
        }
    }

    /// So much of it was taken.
    pub(super) fn took(&mut self, offer: &Offer, bytes: usize) {
        let left = offer.from + bytes.min(offer.bytes)..offer.from + offer.bytes;
        self.streams[offer.stream].drain(left);
    }

    /// Whether a connection may send these bytes there, from the first one that was written.
    pub(super) fn has(&self, stream: usize, at: u32, bytes: &[u8]) -> bool {
        let rest = self.streams[stream].get(at as usize..);
        rest.is_some_and(|rest| rest.starts_with(bytes))
    }

    /// A datagram was written.
    pub(super) fn datagram(&mut self, data: Vec<u8>) {
        self.datagrams.push(data);
    }

    /// Whether a datagram was written and not sent yet; it is sent now.
    pub(super) fn take_datagram(&mut self, data: &[u8]) -> bool {
        let found = self.datagrams.iter().position(|written| written == data);
        found.map(|at| self.datagrams.remove(at)).is_some()
    }
}
