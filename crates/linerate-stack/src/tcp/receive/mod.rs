//! What a TCP connection has received: bytes stay in the slots of the packets that brought them.
//!
//! A stack has one arena of [`Pieces`]. A connection has a [`ReceiveQueue`], 64 bytes, which links
//! pieces of the arena to two chains: the bytes that the application may read, up to
//! [`next`](ReceiveQueue::next) (RCV.NXT), and behind it the *runs*, the parts that came out of
//! order, each without a hole (RFC 9293 3.10.7.4, RFC 2018).
//!
//! | file | answers |
//! |---|---|
//! | `pieces` | where pieces live; what all connections of a stack keep together |
//! | `queue`, `arrival` | where a segment goes; overlaps |
//! | `room` | what happens when there is too much: copy together, prune, refuse |
//! | `read` | how the application gets the bytes, with or without a copy |
//! | `sack` | which blocks an acknowledgement reports (RFC 2018, 2883) |
//! | `window` | which window it advertises (RFC 9293 3.8.6) |
//! | `autotune` | how large the buffer should be (dynamic right-sizing) |
//!
//! # Overlaps
//!
//! RFC 9293 leaves open which bytes win where segments overlap with different content. Here the
//! bytes that came first do, always: what was acknowledged or reported is what the application
//! reads. A segment is cut where its front or its end is known; pieces that lie wholly inside it
//! are copied over its bytes, and their slots are freed.
//!
//! # Memory
//!
//! A piece is charged with its whole slot. Up to [`TINY`] bytes that follow a piece are copied into
//! its slot at once, if there is room. When a connection reaches a limit, its pieces are copied
//! together, neighbours into one slot; then those out of order with the highest sequence numbers
//! are dropped (RFC 2018 8 permits it, since the sender keeps them until they are acknowledged
//! cumulatively); only then is the segment refused. One that would make a hole too many is refused
//! at once, since the run that would have to go is longer. Copied together, pieces are charged with
//! at most twice their bytes and one slot for each run: [`Limits::for_window`] says so in bytes.
//!
//! Large slots, which frames come in that a kernel has put together, are few, and all connections
//! of a machine share them. A stack keeps [so many](Pieces::with_large_slots); what comes in more
//! is copied into small ones, so that connections that nobody reads do not stop the others.
//!
//! # Work
//!
//! A segment costs at most: a search over [`Limits::runs`] runs, which starts at the highest or at
//! one of the last four that were touched, so that loss and reordering find their place at once; a
//! visit of each piece inside it; one copy of its own length, and of at most [`TINY`] bytes where
//! it is small; and its share of the rest. Copying together walks all pieces of a connection, but
//! only when an eighth of what they are charged is new since the last time: at most eight visits
//! for each 2 KiB of slots that came. It copies at most two slots for each that it frees or
//! exchanges. Pruning walks the pieces above the segment twice, and drops at least an eighth of
//! them. [`Pieces::stats`] counts these visits and bytes, and the tests hold them against the
//! bounds.

mod arrival;
mod autotune;
mod moving;
mod pieces;
mod queue;
mod read;
mod room;
mod sack;
#[cfg(test)]
mod tests;
mod window;

use crate::tcp::seq;

pub use autotune::Autotune;
pub use moving::Moving;
pub use pieces::{Pieces, Span, Stats, is_large};
pub use queue::{Inserted, ReceiveQueue};
pub use room::{Limits, Reason};
pub use window::Window;

/// Most bytes that are copied behind a piece at once, instead of keeping their slot.
///
/// A copy of four cache lines costs less than the visit of a further piece at each later step.
pub const TINY: u32 = 256;
