//! The system calls of packet(7), each behind one function.
#![allow(unsafe_code)]

use std::io::{self, IoSlice};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Most packets that one call sends.
pub(super) const SEND_MOST: usize = 64;

/// Opens a packet socket that receives nothing until it is bound to a protocol.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of `SOL_PACKET` to an integer.
pub(super) fn set_number(
    socket: &OwnedFd,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option(socket, option, &value)
}

/// Asks for a receive ring of a version.
pub(super) fn set_rx_ring(
    socket: &OwnedFd,
    version: libc::tpacket_versions,
    ring: &libc::tpacket_req3,
) -> io::Result<()> {
    let number = match version {
        libc::tpacket_versions::TPACKET_V1 => 0,
        libc::tpacket_versions::TPACKET_V2 => 1,
        libc::tpacket_versions::TPACKET_V3 => 2,
    };
    set_number(socket, libc::PACKET_VERSION, number)?;
    if matches!(version, libc::tpacket_versions::TPACKET_V3) {
        return set_option(socket, libc::PACKET_RX_RING, ring);
    }
    let ring = libc::tpacket_req {
        tp_block_size: ring.tp_block_size,
        tp_block_nr: ring.tp_block_nr,
        tp_frame_size: ring.tp_frame_size,
        tp_frame_nr: ring.tp_frame_nr,
    };
    set_option(socket, libc::PACKET_RX_RING, &ring)
}

/// Asks for all frames of an interface for as long as the socket lives.
pub(super) fn set_promiscuous(socket: &OwnedFd, interface: i32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

fn set_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, which `value` has for the time of the call.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            len,
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Frames that the ring had no room for since the last call.
pub(super) fn take_drops(socket: &OwnedFd) -> u32 {
    let mut stats = libc::tpacket_stats_v3 {
        tp_packets: 0,
        tp_drops: 0,
        tp_freeze_q_cnt: 0,
    };
    let mut len = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of plain integers to `stats`.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            std::ptr::from_mut(&mut stats).cast(),
            &mut len,
        )
    };
    if rc < 0 { 0 } else { stats.tp_drops }
}

/// The id of the fan-out group that a socket is in.
pub(super) fn fanout_id(socket: &OwnedFd) -> io::Result<u16> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            std::ptr::from_mut(&mut value).cast(),
            &mut len,
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value as u16)
    }
}

/// Binds to an interface; `protocol` 0 receives nothing, `ETH_P_ALL` everything.
pub(super) fn bind(socket: &OwnedFd, interface: i32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, which `address` has.
    let rc = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The interface that a socket is bound to; negative once it was deleted.
pub(super) fn bound_to(socket: &OwnedFd) -> io::Result<i32> {
    // SAFETY: `sockaddr_ll` is integers; all zeros are a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of plain integers to `address`.
    let rc = unsafe {
        libc::getsockname(
            socket.as_raw_fd(),
            std::ptr::from_mut(&mut address).cast(),
            &mut len,
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(address.sll_ifindex)
    }
}

/// Sends up to [`SEND_MOST`] frames, each from its parts, and returns how many went. An error is
/// about the first one.
pub(super) fn send(socket: &OwnedFd, frames: &[&[IoSlice<'_>]]) -> io::Result<usize> {
    let mut messages = [NO_MESSAGE; SEND_MOST];
    let count = frames.len().min(SEND_MOST);
    for (parts, message) in frames.iter().zip(&mut messages) {
        // The kernel only reads; `IoSlice` is laid out as `iovec`.
        message.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_iovlen = parts.len();
    }
    // SAFETY: `count` messages point to parts, and those to bytes, borrowed for the time of the
    // call; the kernel writes only lengths, into the messages.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(sent as usize)
    }
}

// SAFETY: `mmsghdr` is integers and pointers; all zeros are a value of it.
const NO_MESSAGE: libc::mmsghdr = unsafe { std::mem::zeroed() };
