//! A queue on its way to another stack.

use linerate_core::packet::Packet;

use super::pieces::{NIL, Pieces, Span};
use super::queue::ReceiveQueue;

/// Received bytes on their way: the packet, where in its data they lie, and the sequence number of
/// the first.
pub type Moving = (Packet, Span, u32);

impl ReceiveQueue {
    /// Takes everything out, in the order of sequence numbers: what may be read, then what came out
    /// of order. RCV.NXT stays.
    pub fn drain(&mut self, pieces: &mut Pieces) -> Vec<Moving> {
        let mut all = Vec::with_capacity(self.pieces.into());
        for mut at in [self.head, self.first_run] {
            while at != NIL {
                let piece = pieces.at(at);
                let span = Span {
                    start: piece.start,
                    len: piece.len,
                };
                let (seq, next) = (piece.seq, piece.next);
                all.push((self.give_up(pieces, at), span, seq));
                at = next;
            }
        }
        *self = Self::new(self.next);
        all
    }
}
