//! Any option of a kernel's socket as bytes: for programs that test the kernel's TCP, which need
//! more options than there are typed functions for (`TCP_INFO`, `TCP_FASTOPEN`, `TCP_MAXSEG`).
//!
//! ```
//! use std::os::fd::AsFd;
//! let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let mut value = [0; 4];
//! linerate_drivers::sockopt::get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TYPE, &mut value)?;
//! assert_eq!(i32::from_ne_bytes(value), libc::SOCK_STREAM);
//! # Ok::<(), std::io::Error>(())
//! ```

mod sys;

use std::io;
use std::os::fd::BorrowedFd;

/// From this number on, options of `SOL_IP` and `SOL_IPV6` are netfilter's and the multicast
/// router's, whose values have addresses of memory.
const FIRST_FOREIGN: i32 = 64;

/// Whether an option's value is plain data, so that it may be anything.
fn is_plain(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_SOCKET => {
            // A filter's value is the address of a program.
            !matches!(
                name,
                libc::SO_ATTACH_FILTER | libc::SO_ATTACH_REUSEPORT_CBPF
            )
        }
        // Its value is the address at which pages are mapped.
        libc::IPPROTO_TCP => name != libc::TCP_ZEROCOPY_RECEIVE,
        // A number: it stands among the foreign ones, which leave it out.
        libc::IPPROTO_IPV6 if name == libc::IPV6_TCLASS => true,
        libc::IPPROTO_IP | libc::IPPROTO_IPV6 => (0..FIRST_FOREIGN).contains(&name),
        _ => false,
    }
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOPROTOOPT)
}

/// Sets an option of `SOL_SOCKET`, `SOL_TCP`, `SOL_IP` or `SOL_IPV6` to these bytes.
///
/// # Errors
/// The kernel's; `ENOPROTOOPT` also for other levels, and for options whose values have addresses.
pub fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    match is_plain(level, name) {
        true => sys::set(socket, level, name, value),
        false => Err(refused()),
    }
}

/// Reads such an option into `value`, as much of it as has room, and returns the number of bytes.
///
/// # Errors
/// As for [`set`].
pub fn get(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    match is_plain(level, name) {
        true => sys::get(socket, level, name, value),
        false => Err(refused()),
    }
}

/// Bytes that a TCP socket has to send or that are not acknowledged yet (`SIOCOUTQ`).
///
/// # Errors
/// The kernel's.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<i32> {
    sys::unacknowledged(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn a_value_that_was_set_is_read_and_one_with_an_address_is_refused() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = socket.as_fd();
        let v6 = std::net::UdpSocket::bind("[::]:0").ok();
        if let Some(v6) = &v6 {
            let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
            set(v6.as_fd(), level, name, &0x28_i32.to_ne_bytes()).unwrap();
        }
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_KEEPCNT);
        set(socket, level, name, &7_i32.to_ne_bytes()).unwrap();
        let mut value = [0; 8];
        assert_eq!(get(socket, level, name, &mut value).unwrap(), 4);
        assert_eq!(value[..4], 7_i32.to_ne_bytes());
        assert_eq!(
            unacknowledged(socket).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        for (level, name) in [
            (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE),
            (libc::IPPROTO_IP, 64),
            (libc::SOL_PACKET, libc::PACKET_RX_RING),
        ] {
            let error = get(socket, level, name, &mut value).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
        }
    }
}
