//! What goes wrong, by Linux' numbers.

use linerate_stack::host::ErrorKind;
use linerate_stack::host::udp::UdpError;
use linerate_stack::tcp::connection::Error;

/// Linux' number of an error.
pub(super) fn number_of(error: Error) -> i32 {
    match error {
        Error::Refused => libc::ECONNREFUSED,
        Error::Reset => libc::ECONNRESET,
        Error::TimedOut => libc::ETIMEDOUT,
        Error::Unreachable => libc::EHOSTUNREACH,
        Error::Aborted => libc::ECONNABORTED,
        Error::NotConnected => libc::ENOTCONN,
        Error::Closed => libc::EPIPE,
        Error::WouldBlock => libc::EAGAIN,
    }
}

pub(super) fn number_of_udp(error: UdpError) -> i32 {
    match error {
        UdpError::Closed => libc::EBADF,
        UdpError::NoSocket => libc::ENFILE,
        UdpError::PortTaken => libc::EADDRINUSE,
        UdpError::Address => libc::EADDRNOTAVAIL,
        UdpError::NoDestination => libc::EDESTADDRREQ,
        UdpError::Broadcast => libc::EACCES,
        UdpError::TooLong => libc::EMSGSIZE,
        UdpError::Unreachable(_) => libc::ENETUNREACH,
        UdpError::Unsent(_) => libc::ENOBUFS,
    }
}

pub(super) fn number_of_kind(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::PortUnreachable => libc::ECONNREFUSED,
        ErrorKind::ProtocolUnreachable => libc::ENOPROTOOPT,
        ErrorKind::NetUnreachable => libc::ENETUNREACH,
        ErrorKind::TooBig { .. } => libc::EMSGSIZE,
        ErrorKind::ParameterProblem { .. } => libc::EPROTO,
        _ => libc::EHOSTUNREACH,
    }
}
