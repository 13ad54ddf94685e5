//! Rings and wires of tests in virtual time: what is sent lies there until the test takes it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use linerate_core::packet::{Burst, Packet, PoolCache};
use linerate_core::port::TxQueue;
use linerate_core::run::TxPath;

/// Packets on their way.
pub(crate) type Line = Arc<Mutex<VecDeque<Packet>>>;

/// The end that is sent into.
struct Into {
    line: Line,
    room: usize,
}

/// The way into a line that holds so many packets.
pub(crate) fn into(line: &Line, room: usize) -> Option<TxPath> {
    let line = line.clone();
    Some(TxPath::Queue(Box::new(Into { line, room })))
}

impl TxQueue for Into {
    fn tx_burst(&mut self, burst: &mut Burst, _: &mut PoolCache) -> usize {
        let mut line = self.line.lock().unwrap();
        let count = burst.len().min(self.room - line.len().min(self.room));
        let mut front = Burst::new();
        burst.move_front(count, &mut front);
        line.extend(front.drain());
        count
    }
}
