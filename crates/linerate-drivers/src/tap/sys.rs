//! The TUN/TAP ioctls (Documentation/networking/tuntap.rst), each behind one function.
#![allow(unsafe_code)]

use crate::link::sys::request;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Where TAPs come from.
pub(super) const DEVICE: &str = "/dev/net/tun";

/// Opens the device, which is no TAP yet.
pub(super) fn device() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        DEVICE,
        OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Makes a queue of TAP `name` out of the descriptor; creates the TAP if there is none.
pub(super) fn attach(device: &OwnedFd, name: &str, several: bool) -> io::Result<()> {
    let several = if several { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, borrowed for the call.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &mut request) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Says what the reader of the TAP can finish (`TUN_F_*`); the kernel finishes the rest.
pub(super) fn set_offload(tap: &OwnedFd, offload: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
    let rc = unsafe {
        libc::ioctl(
            tap.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offload),
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Whether the TAP stays when its last descriptor is closed.
pub(super) fn set_persist(tap: &OwnedFd, persist: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes a number, no pointer.
    let rc = unsafe {
        libc::ioctl(
            tap.as_raw_fd(),
            libc::TUNSETPERSIST,
            libc::c_ulong::from(persist),
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Whether the TAP of a descriptor still exists.
pub(super) fn is_attached(tap: &OwnedFd) -> bool {
    let mut request = request("");
    // SAFETY: TUNGETIFF writes one `ifreq`, borrowed for the call.
    let rc = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNGETIFF, &mut request) };
    rc == 0
}
