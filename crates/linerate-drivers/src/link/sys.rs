//! The interface ioctls of netdevice(7), each behind one function.
#![allow(unsafe_code)]

use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A socket whose only use is that ioctls go to its network name space.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A request about an interface; the name must be shorter than `IFNAMSIZ`, the rest is zero.
pub(crate) fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is integers and a union of such; all zeros are a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = libc::IFNAMSIZ - 1;
    for (to, &from) in request
        .ifr_name
        .iter_mut()
        .zip(name.as_bytes().iter().take(room))
    {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(socket: &OwnedFd, operation: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the SIOC[GS]IF ioctls used here read and write one `ifreq`, borrowed for the call.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), operation as libc::Ioctl, request) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

pub(crate) fn index(socket: &OwnedFd, name: &str) -> io::Result<i32> {
    let mut request = request(name);
    ioctl(socket, libc::SIOCGIFINDEX as c_ulong, &mut request)?;
    // SAFETY: SIOCGIFINDEX filled in this member.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

pub(super) fn flags(socket: &OwnedFd, name: &str) -> io::Result<i32> {
    let mut request = request(name);
    ioctl(socket, libc::SIOCGIFFLAGS as c_ulong, &mut request)?;
    // SAFETY: SIOCGIFFLAGS filled in this member.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

pub(super) fn set_flags(socket: &OwnedFd, name: &str, flags: i32) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(socket, libc::SIOCSIFFLAGS as c_ulong, &mut request)
}

pub(super) fn mtu(socket: &OwnedFd, name: &str) -> io::Result<i32> {
    let mut request = request(name);
    ioctl(socket, libc::SIOCGIFMTU as c_ulong, &mut request)?;
    // SAFETY: SIOCGIFMTU filled in this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu })
}

pub(super) fn set_mtu(socket: &OwnedFd, name: &str, mtu: i32) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = mtu;
    ioctl(socket, libc::SIOCSIFMTU as c_ulong, &mut request)
}

/// Hardware type (`ARPHRD_*`) and address.
pub(super) fn hardware(socket: &OwnedFd, name: &str) -> io::Result<(u16, [u8; 6])> {
    let mut request = request(name);
    ioctl(socket, libc::SIOCGIFHWADDR as c_ulong, &mut request)?;
    // SAFETY: SIOCGIFHWADDR filled in this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    Ok((
        address.sa_family,
        std::array::from_fn(|i| address.sa_data[i] as u8),
    ))
}

pub(super) fn set_mac(socket: &OwnedFd, name: &str, mac: [u8; 6]) -> io::Result<()> {
    let mut request = request(name);
    let mut address = libc::sockaddr {
        sa_family: libc::ARPHRD_ETHER,
        sa_data: [0; 14],
    };
    for (to, from) in address.sa_data.iter_mut().zip(mac) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_hwaddr = address;
    ioctl(socket, libc::SIOCSIFHWADDR as c_ulong, &mut request)
}

/// Commands of ethtool that answer with one number: `struct ethtool_value`, a command and its
/// value.
#[derive(Clone, Copy)]
pub(super) enum EthtoolValue {
    /// Whether there is a link (`ETHTOOL_GLINK`).
    Link = 0x0a,
    /// `ETH_FLAG_*` (`ETHTOOL_GFLAGS`).
    Flags = 0x25,
    /// Whether received frames are merged (`ETHTOOL_GGRO`).
    Gro = 0x2b,
}

pub(super) fn ethtool_value(
    socket: &OwnedFd,
    name: &str,
    command: EthtoolValue,
) -> io::Result<u32> {
    ethtool::<2>(socket, name, command as u32).map(|words| words[1])
}

/// `struct ethtool_drvinfo`: texts of 32 bytes from the second word on.
pub(super) fn ethtool_driver(socket: &OwnedFd, name: &str) -> io::Result<[u32; 49]> {
    const ETHTOOL_GDRVINFO: u32 = 0x03;
    ethtool(socket, name, ETHTOOL_GDRVINFO)
}

/// `struct ethtool_channels`: maxima, and then counts, of receive, transmit, other and combined.
pub(super) fn ethtool_channels(socket: &OwnedFd, name: &str) -> io::Result<[u32; 9]> {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    ethtool(socket, name, ETHTOOL_GCHANNELS)
}

/// Runs an ethtool command on a structure of `N` words; its callers above know how many it has.
fn ethtool<const N: usize>(socket: &OwnedFd, name: &str, command: u32) -> io::Result<[u32; N]> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let mut words = [0; N];
    words[0] = command;
    let mut request = request(name);
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request outlives the call, and the command writes the words it points to.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(words)
}
