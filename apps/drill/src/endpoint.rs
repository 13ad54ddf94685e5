//! The stack under test in virtual time.

use crate::call::{Call, Reply};

/// A TCP/IP stack that is driven by calls alone: it has no clock, no thread and no device.
///
/// The runner gives it packets, calls and times, and takes what it sends. `now_ns` never goes back.
/// Sockets start as blocking ones; the stack never blocks: where a call would, it answers with
/// `EAGAIN`, or `EINPROGRESS` for `connect` and for a write with `MSG_FASTOPEN`. The runner waits
/// for those that block: it asks again after each packet and each timer. So that it can, for a
/// `connect` in progress it calls [`Call::Poll`] for `POLLOUT` and reads `SO_ERROR`.
pub trait Endpoint {
    /// The stack's own address of a version of IP. Packets come to and leave from it.
    fn address(&self, is_v6: bool) -> std::net::IpAddr;

    /// Sets what a `sysctl` of this name below `net.ipv4` sets on Linux: before the first packet,
    /// and between two events.
    ///
    /// # Errors
    /// Why it cannot; the script is then skipped with this reason.
    fn configure(&mut self, name: &str, value: &str) -> Result<(), String>;

    /// Takes an IP packet from the wire, at `now_ns`.
    fn inject(&mut self, now_ns: u64, packet: &[u8]);

    /// The next IP packet to the wire, with right checksums; none if there is none.
    fn poll_output(&mut self, now_ns: u64) -> Option<Vec<u8>>;

    /// When the stack wants [`advance`](Self::advance) next.
    fn next_deadline_ns(&self) -> Option<u64>;

    /// Runs timers that are due by `now_ns`.
    fn advance(&mut self, now_ns: u64);

    /// Makes a system call, without blocking.
    fn call(&mut self, now_ns: u64, call: &Call) -> Reply;
}
