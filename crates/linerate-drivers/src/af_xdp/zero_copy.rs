//! When a device may write to the pool itself, and when it has stopped doing so.
//!
//! In copy mode the kernel touches a slot while it copies a frame. With zero copy the device does,
//! by DMA, and two rules of the kernel (net/xdp) would lose slots or have them overwritten:
//!
//! - A chunk that crosses a page which the next one does not follow in the device's addresses is
//!   refused: `xp_check_unaligned` and `xskq_cons_read_desc` take the entry of the fill or transmit
//!   ring, count `invalid_descs`, and return it neither as a frame nor as a completion. Only
//!   aligned chunks, at most a page and a power of two, cross none whatever the pages are.
//! - `close(2)` returns before the device stops: `xp_put_pool` leaves that to a work queue
//!   (`xp_release_deferred`), which takes the pool from the queue when the driver has let go of it
//!   (`xp_clear_dev`). Until then another socket cannot be bound there (`EBUSY` of
//!   `xp_assign_dev`), and that is what this asks.

use super::options::Choice;
use super::ring::Lent;
use rustix::net::xdp::SocketAddrXdpFlags;
use std::io;
use std::time::{Duration, Instant};

/// Interval of checks.
const LOOK: Duration = Duration::from_millis(2);

/// Whether no slot of this size crosses a page.
pub(super) fn is_aligned(slot_bytes: usize) -> bool {
    slot_bytes.is_power_of_two()
}

/// What a socket is bound with: with zero copy, without, or (no flag) as the driver can. `None`:
/// zero copy is asked for, and the slots are not made for it.
pub(super) fn flags(copy: Choice, native: bool, slot_bytes: usize) -> Option<SocketAddrXdpFlags> {
    match (copy, is_aligned(slot_bytes)) {
        (Choice::Off, true) => Some(SocketAddrXdpFlags::XDP_ZEROCOPY),
        (Choice::Off, false) => None,
        (Choice::Auto, true) if native => Some(SocketAddrXdpFlags::empty()),
        _ => Some(SocketAddrXdpFlags::XDP_COPY),
    }
}

/// Takes slots back of a socket that is closed: with zero copy when its queue is found free, and
/// not at all where that cannot be known, since the device might still write to them. Returns
/// whether they came back.
pub(super) fn take_back(
    mut lent: Vec<Lent>,
    zero_copy: bool,
    patience: Duration,
    mut is_free: impl FnMut() -> io::Result<bool>,
) -> bool {
    if zero_copy {
        let end = Instant::now() + patience;
        while !is_free().unwrap_or(false) {
            if Instant::now() >= end {
                // They stay lent: the pool has fewer, and no other packet uses them.
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }
    lent.iter_mut().for_each(Lent::reclaim);
    true
}

#[cfg(test)]
mod tests;
