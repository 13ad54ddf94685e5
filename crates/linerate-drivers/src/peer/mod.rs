//! What ports share whose other end is a process or a guest that may lie: memif, vhost-user, shared
//! memory.
//!
//! - [`socket`]: Unix sockets, by path or abstract name, and messages with descriptors.
//! - [`exposed`]: pools of ours whose slots a peer maps that is trusted with them.
//! - [`gate`]: what a worker and a control thread share of a queue. The worker never waits.
//! - [`kick`]: notifications both ways, by descriptors of the peer's that are neither read nor
//!   written where that could block.
//! - [`violations`]: why a peer was cut off, counted by reason.
//!
//! Memory that a peer writes to is [`linerate_core::mem::Untrusted`]. A number of the peer's is
//! loaded once, checked, and then used. A peer that breaks its protocol is disconnected by the
//! port's control thread; workers only say that it has to be.

pub(crate) mod exposed;
pub(crate) mod gate;
pub(crate) mod kick;
pub(crate) mod socket;
pub(crate) mod violations;

pub use socket::{UnixAccess, UnixAddress, UnixKind};
