//! Packets that wait for idle users: a fixed number of slots, linked into a queue for each user.

const NIL: u32 = u32::MAX;

/// How many packets may wait.
#[derive(Clone, Copy, Debug)]
pub struct BufferConfig {
    /// Slots, for each core.
    pub slots: usize,
    /// The longest packet, in bytes: GTP-U header and all.
    pub slot_bytes: usize,
    /// The most of one user.
    pub per_user: u8,
}

impl Default for BufferConfig {
    fn default() -> Self {
        Self {
            slots: 1024,
            slot_bytes: 1600,
            per_user: 8,
        }
    }
}

/// The packets of one user, first to last.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    len: u8,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            first: NIL,
            last: NIL,
            len: 0,
        }
    }
}

/// The slots.
pub(super) struct Buffers {
    bytes: Box<[u8]>,
    /// Of each slot: its packet's length, and the next slot of its queue, or of the free ones.
    links: Box<[(u16, u32)]>,
    slot_bytes: usize,
    per_user: u8,
    free: u32,
    len: usize,
}

impl Buffers {
    pub(super) fn new(config: &BufferConfig) -> Self {
        let next = |at: usize| match at + 1 {
            next if next < config.slots => next as u32,
            _ => NIL,
        };
        let slot_bytes = config.slot_bytes.min(usize::from(u16::MAX));
        Self {
            bytes: vec![0; config.slots * slot_bytes].into(),
            links: (0..config.slots).map(|at| (0, next(at))).collect(),
            slot_bytes,
            per_user: config.per_user,
            free: if config.slots == 0 { NIL } else { 0 },
            len: 0,
        }
    }

    /// How many packets wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a packet; false where there is no room for it.
    pub(super) fn push(&mut self, queue: &mut Queue, packet: &[u8]) -> bool {
        let slot = self.free;
        if packet.len() > self.slot_bytes || queue.len >= self.per_user || slot == NIL {
            return false;
        }
        let at = slot as usize;
        self.free = self.links[at].1;
        self.bytes[at * self.slot_bytes..][..packet.len()].copy_from_slice(packet);
        self.links[at] = (packet.len() as u16, NIL);
        match queue.last {
            NIL => queue.first = slot,
            last => self.links[last as usize].1 = slot,
        }
        queue.last = slot;
        queue.len += 1;
        self.len += 1;
        true
    }

    /// Takes the first packet out, and passes it on.
    pub(super) fn pop(&mut self, queue: &mut Queue, pass: impl FnOnce(&mut [u8])) -> bool {
        let slot = queue.first;
        if slot == NIL {
            return false;
        }
        let at = slot as usize;
        let (len, next) = self.links[at];
        pass(&mut self.bytes[at * self.slot_bytes..][..usize::from(len)]);
        self.links[at].1 = self.free;
        self.free = slot;
        (queue.first, queue.len) = (next, queue.len - 1);
        if next == NIL {
            queue.last = NIL;
        }
        self.len -= 1;
        true
    }

    /// Drops all; returns how many.
    pub(super) fn clear(&mut self, queue: &mut Queue) -> u64 {
        let mut dropped = 0;
        while self.pop(queue, |_| {}) {
            dropped += 1;
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_in_order_and_within_bounds() {
        let config = BufferConfig {
            slots: 3,
            slot_bytes: 4,
            per_user: 2,
        };
        let mut buffers = Buffers::new(&config);
        let (mut one, mut two) = (Queue::default(), Queue::default());
        assert!(!buffers.push(&mut one, b"12345"));
        assert!(buffers.push(&mut one, b"1") && buffers.push(&mut one, b"2"));
        assert!(!buffers.push(&mut one, b"3")); // too many of one user
        assert!(buffers.push(&mut two, b"4") && !buffers.push(&mut two, b"5")); // of all
        let mut seen = Vec::new();
        while buffers.pop(&mut one, |packet| seen.extend_from_slice(packet)) {}
        assert_eq!((seen, buffers.len()), (b"12".to_vec(), 1));
        assert!(buffers.push(&mut two, b"6"));
        assert_eq!((buffers.clear(&mut two), buffers.len()), (2, 0));
        assert!((0..2).all(|_| buffers.push(&mut one, b"7")));
    }
}
