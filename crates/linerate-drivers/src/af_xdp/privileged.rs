//! The privileged operations of an AF_XDP port: see [`Opener`](crate::Opener).

use super::program::{self, Verdict};
use super::sys;
use crate::XdpProgram;
use linerate_core::packet::Burst;
use linerate_wire::filter::Filter;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Most queues that the map of sockets has room for.
const MAX_QUEUES: u32 = 256;
/// In copy mode each frame under way is charged to the socket until its receiver has it.
const SEND_BYTES: usize = 64 << 20;
/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` (Linux 5.11).
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// A socket that is bound to nothing.
pub(crate) fn socket(busy_poll_us: u32) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::XDP,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BYTES);
    if busy_poll_us > 0 {
        let fd = socket.as_fd();
        let set = |option, value| sys::set_option(fd, libc::SOL_SOCKET, option, value);
        set(SO_PREFER_BUSY_POLL, 1)?;
        set(libc::SO_BUSY_POLL, busy_poll_us)?;
        set(SO_BUSY_POLL_BUDGET, Burst::CAPACITY as u32)?;
    }
    Ok(socket)
}

/// A map of sockets, and the program that sends what passes the filter to them.
pub(crate) fn program(filter: &str) -> io::Result<XdpProgram> {
    let wrong = |error: String| io::Error::new(io::ErrorKind::InvalidInput, error);
    let filter: Filter = filter
        .parse()
        .map_err(|error| wrong(format!("no filter: {error}")))?;
    let map = sys::socket_map(MAX_QUEUES)?;
    let verdict = Verdict::ToSocket {
        map: map.as_raw_fd(),
    };
    let program = sys::load_program(&program::assemble(&filter, verdict).map_err(wrong)?)?;
    Ok(XdpProgram { map, program })
}

/// Attaches a program to an interface, for as long as the descriptor is open.
pub(crate) fn attach(program: BorrowedFd<'_>, ifindex: u32, native: bool) -> io::Result<OwnedFd> {
    sys::attach(program, ifindex, native)
}

/// Sends a queue's frames to a socket, or leaves them to the kernel.
pub(crate) fn map(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    match socket {
        Some(socket) => sys::map_queue(map, queue, socket),
        None => sys::unmap_queue(map, queue),
    }
}
