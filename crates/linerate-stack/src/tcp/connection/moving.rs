//! A connection on its way to another stack: what it holds of arenas goes along as values.

use super::{Active, Connection, Context, Shared, Wire};
use crate::tcp::config::Config;
use crate::tcp::mtu_search::MtuSearch;
use crate::tcp::receive::{Limits, Moving, ReceiveQueue, is_large};
use crate::tcp::send_buffer::SendBuffer;
use crate::tcp::sent::{NIL, Record, Sent, mark};
use crate::tcp::seq;
use crate::tcp::urgent::Urgent;

/// Bytes for which the smallest slots of a pool that receives have room at least.
const SMALL_ROOM: u64 = 1024;

/// A connection that belongs to no stack. Both stacks have the same clock, and the same secret.
pub struct Detached {
    connection: Connection,
    /// What is under way, by sequence number.
    records: Vec<Record>,
    /// What is written and not acknowledged.
    bytes: Vec<u8>,
    received: Vec<Moving>,
    /// Where what can be read begins.
    first: u32,
    urgent: Urgent,
    search: MtuSearch,
}

impl Detached {
    /// The connection, without what it holds.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Connection {
    /// One that is none: what is left in the place of one that goes.
    pub fn closed() -> Self {
        let own = Active {
            iss: 0,
            ts_offset: 0,
            link_mss: 536,
            path_mss: 536,
        };
        Self::blank(&Config::default(), &own, 0)
    }

    /// Takes the connection out of a stack.
    pub fn detach(mut self, shared: &mut Shared) -> Detached {
        let mut records = Vec::with_capacity(self.sent.count() as usize);
        let mut index = self.sent.first();
        while index != NIL {
            records.push(shared.records[index]);
            index = Sent::next(&shared.records, index);
        }
        self.sent.clear(&mut shared.records);
        let mut bytes = vec![0; self.buffer.len() as usize];
        // All that is in the buffer can be copied out.
        let _ = self.buffer.copy_out_unsummed(&shared.chunks, 0, &mut bytes);
        self.buffer.clear(&mut shared.chunks);
        let first = self.queue.next().wrapping_sub(self.queue.readable());
        let received = self.queue.drain(&mut shared.pieces);
        let urgent = shared.urgents.get(self.urgent);
        self.release_urgent(shared);
        // The new stack has not heard of what waits.
        self.holds = false;
        // A probe under way is one of the old stack.
        let mut search = shared.searches.get(self.search);
        search.forget_probe();
        self.release_mtu_search(shared);
        Detached {
            urgent,
            search,
            connection: self,
            records,
            bytes,
            received,
            first,
        }
    }

    /// Puts a connection into a stack, where it goes on.
    ///
    /// # Errors
    /// The connection, unchanged, where the stack has no room for what it holds.
    pub fn attach<W: Wire>(
        cx: &mut Context<'_, W>,
        detached: Detached,
    ) -> Result<Self, Box<Detached>> {
        let has_records = cx.shared.records.room() >= detached.records.len();
        let chunks = &cx.shared.chunks;
        let free = (chunks.count() - chunks.in_use()) as usize;
        let needed = detached
            .bytes
            .len()
            .div_ceil(crate::tcp::send_buffer::CHUNK_BYTES);
        let pieces = &cx.shared.pieces;
        let slots = u64::from(pieces.count() - pieces.charged_slots());
        let needs = detached.received.iter().map(|(packet, span, _)| {
            let (charge, len) = (packet.slot_bytes() as u64, u64::from(span.len));
            match is_large(packet) {
                // It may be divided into small slots, each of which has room for that much.
                true => (1 + len.div_ceil(SMALL_ROOM), 2 * charge),
                false => (1, charge),
            }
        });
        let sum = |all: (u64, u64), one: (u64, u64)| (all.0 + one.0, all.1 + one.1);
        let (count, charge) = needs.fold((0, 0), sum);
        let has_pieces = slots > count && pieces.charged_bytes() + charge <= pieces.max_bytes();
        if !(has_records && free >= needed && has_pieces) {
            return Err(Box::new(detached));
        }
        let Detached {
            mut connection,
            records,
            bytes,
            received,
            first,
            urgent,
            search,
        } = detached;
        connection.feed();
        connection.sent.restore(&mut cx.shared.records, &records);
        connection.buffer = SendBuffer::new();
        connection
            .buffer
            .write(&mut cx.shared.chunks, &bytes, u32::MAX);
        let mut queue = ReceiveQueue::new(first);
        let limits = Limits {
            window_end: first.wrapping_add(1 << 30),
            bytes: u32::MAX,
            pieces: u16::MAX,
            runs: u16::MAX,
        };
        for (packet, span, seq) in received {
            queue.insert(
                &mut cx.shared.pieces,
                cx.wire.cache(),
                packet,
                span,
                seq,
                &limits,
            );
        }
        debug_assert_eq!(queue.next(), connection.queue.next());
        connection.queue = queue;
        // Without room for it, it is data like any other.
        cx.shared.urgents.set(&mut connection.urgent, urgent);
        cx.shared.searches.set(&mut connection.search, search);
        Ok(connection)
    }
}

impl Sent {
    /// Makes the records anew that another stack had, in both orders.
    fn restore(&mut self, records: &mut crate::tcp::sent::Records, all: &[Record]) {
        *self = Self::new();
        let mut by_time = Vec::with_capacity(all.len());
        for record in all {
            let span = (record.seq, record.end);
            let index = self.push(records, span, record.marks, record.sent_ns, record.stamp);
            match index {
                Some(index) if !record.has(mark::SACKED) => by_time.push(index),
                Some(index) => self.untime(records, index),
                None => return,
            }
        }
        by_time.sort_by(|&a, &b| {
            let (a, b) = (&records[a], &records[b]);
            a.sent_ns
                .cmp(&b.sent_ns)
                .then(seq::diff(a.end, b.end).cmp(&0))
        });
        for index in by_time {
            self.renew(records, index);
        }
    }
}
