//! Received packets that wait for sockets: lists in one arena, bounded in slots and in bytes.
//!
//! A packet is charged by its slot, not by its length, for that is the memory that it holds: a
//! sender of tiny datagrams cannot hold more than one of long ones.

use linerate_core::packet::Packet;

use super::inbound::Arrived;

const NIL: u32 = u32::MAX;

/// The packets of one socket, oldest first: indices into the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    pkts: u32,
    bytes: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self {
        first: NIL,
        last: NIL,
        pkts: 0,
        bytes: 0,
    };

    pub(super) fn is_empty(&self) -> bool {
        self.pkts == 0
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.pkts as usize
    }
}

struct Node {
    packet: Option<Packet>,
    next: u32,
    arrived: Arrived,
}

const _: () = assert!(size_of::<Node>() == 24);

/// The arena of all sockets' packets.
pub(super) struct Waiting {
    nodes: Vec<Node>,
    free: u32,
    pkts: usize,
    bytes: usize,
    most_bytes: usize,
}

impl Waiting {
    /// Room for so many packets, and for so many bytes of slots.
    pub(super) fn new(most_pkts: usize, most_bytes: usize) -> Self {
        let most = most_pkts.min(NIL as usize);
        let nodes = (0..most).map(|at| Node {
            packet: None,
            next: if at + 1 < most { at as u32 + 1 } else { NIL },
            arrived: Arrived::NONE,
        });
        Self {
            free: if most > 0 { 0 } else { NIL },
            nodes: nodes.collect(),
            pkts: 0,
            bytes: 0,
            most_bytes,
        }
    }

    /// Packets that wait, in all.
    pub(super) fn len(&self) -> usize {
        self.pkts
    }

    /// Puts a packet at the end of a queue whose packets may have `limit` bytes of slots; one may
    /// wait whatever its size is.
    ///
    /// # Errors
    /// The packet, where it is too much.
    pub(super) fn push(
        &mut self,
        queue: &mut Queue,
        packet: Packet,
        arrived: Arrived,
        limit: u32,
    ) -> Result<(), Packet> {
        let bytes = packet.slot_bytes().min(u32::MAX as usize) as u32;
        let within = queue
            .bytes
            .checked_add(bytes)
            .is_some_and(|sum| sum <= limit);
        let fits = self.bytes + bytes as usize <= self.most_bytes;
        let at = self.free;
        if !(fits && (within || queue.is_empty())) || at == NIL {
            return Err(packet);
        }
        let node = &mut self.nodes[at as usize];
        self.free = node.next;
        *node = Node {
            packet: Some(packet),
            next: NIL,
            arrived,
        };
        match queue.last {
            NIL => queue.first = at,
            last => self.nodes[last as usize].next = at,
        }
        queue.last = at;
        queue.pkts += 1;
        queue.bytes += bytes;
        self.pkts += 1;
        self.bytes += bytes as usize;
        Ok(())
    }

    /// Takes the oldest packet out.
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<(Packet, Arrived)> {
        let at = queue.first;
        let node = self.nodes.get_mut(at as usize)?;
        let packet = node.packet.take()?;
        let (next, arrived) = (node.next, node.arrived);
        node.next = self.free;
        self.free = at;
        queue.first = next;
        if next == NIL {
            queue.last = NIL;
        }
        let bytes = packet.slot_bytes();
        queue.pkts -= 1;
        queue.bytes -= bytes as u32;
        self.pkts -= 1;
        self.bytes -= bytes;
        Some((packet, arrived))
    }

    /// The oldest packet.
    pub(super) fn front(&self, queue: &Queue) -> Option<(&Packet, &Arrived)> {
        let node = self.nodes.get(queue.first as usize)?;
        Some((node.packet.as_ref()?, &node.arrived))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::packet::{Pool, PoolCache, PoolConfig};

    #[test]
    fn packets_come_out_in_order_and_the_bounds_hold() {
        let mut cache = PoolCache::new(&[Pool::new(&PoolConfig::new("rx", 64)).unwrap()]);
        let mut packet = |n: u8| cache.copy_of(&[n; 60]).unwrap();
        let slot = packet(0).slot_bytes();
        let mut waiting = Waiting::new(5, 4 * slot);
        let (mut a, mut b) = (Queue::EMPTY, Queue::EMPTY);
        let mut push = |waiting: &mut Waiting, queue: &mut Queue, n| {
            waiting
                .push(queue, packet(n), Arrived::NONE, 2 * slot as u32)
                .is_ok()
        };
        assert!(push(&mut waiting, &mut a, 1) && push(&mut waiting, &mut b, 2));
        assert!(push(&mut waiting, &mut a, 3));
        assert!(!push(&mut waiting, &mut a, 4), "the socket's own limit");
        assert!(push(&mut waiting, &mut b, 5));
        assert_eq!((waiting.len(), a.len(), b.len()), (4, 2, 2));
        let mut c = Queue::EMPTY;
        assert!(!push(&mut waiting, &mut c, 6), "the limit of all");
        let pop = |waiting: &mut Waiting, queue: &mut Queue| {
            waiting.pop(queue).map(|(packet, _)| packet.data()[0])
        };
        assert_eq!(waiting.front(&a).unwrap().0.data()[0], 1);
        assert_eq!(pop(&mut waiting, &mut a), Some(1));
        assert!(push(&mut waiting, &mut c, 6), "one may always wait");
        assert_eq!([(); 2].map(|()| pop(&mut waiting, &mut a)), [Some(3), None]);
        assert_eq!(
            [(); 3].map(|()| pop(&mut waiting, &mut b)),
            [Some(2), Some(5), None]
        );
        assert_eq!(pop(&mut waiting, &mut c), Some(6));
        assert_eq!((waiting.len(), waiting.bytes), (0, 0));
        assert!(a.is_empty() && b.is_empty());
    }
}
