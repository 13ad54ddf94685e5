//! Asks the kernel by sock_diag(7) which user has the other end of a TCP connection.
//!
//! FPM has no authentication. Of a peer on this machine the kernel knows the user; of another
//! machine it knows an address.

use std::io;
use std::net::{IpAddr, SocketAddr};

use linerate_wire::rtnetlink::build::{Builder, REQUEST};
use linerate_wire::rtnetlink::{Body, Messages};
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// `struct inet_diag_msg`: state; and behind addresses and queues the user and the number of the
/// file.
const STATE_AT: usize = 1;
const UID_AT: usize = 64;
const INODE_AT: usize = 68;
const MESSAGE_BYTES: usize = 72;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A process of this machine; the user that made the socket.
    User(u32),
    /// Another machine, or another network name space of this one.
    Remote,
}

/// Finds the user at `peer`, which is connected to `local`, a socket of this process.
///
/// # Errors
/// The peer has closed already, or the kernel does not say.
pub(super) fn of(peer: SocketAddr, local: SocketAddr) -> io::Result<Owner> {
    let closed = || io::Error::other("the peer has closed, so that its user is unknown");
    match ask(peer, local)? {
        // The kernel shows a closed socket, which has no owner, as root's.
        Some(end) if end.state != ESTABLISHED || end.inode == 0 => Err(closed()),
        Some(end) => Ok(Owner::User(end.uid)),
        None if peer.ip().to_canonical().is_loopback() => Err(io::Error::other(
            "the kernel does not say whose it is (CONFIG_INET_TCP_DIAG)",
        )),
        // If our own end is still open, the peer is in another name space: a peer that closed would
        // have closed ours, too.
        None => match ask(local, peer)? {
            Some(end) if end.state == ESTABLISHED => Ok(Owner::Remote),
            _ => Err(closed()),
        },
    }
}

/// One end, as the kernel reports it.
#[derive(Debug)]
struct End {
    state: u8,
    uid: u32,
    inode: u32,
}

/// The socket at `here` that is connected to `there`.
fn ask(here: SocketAddr, there: SocketAddr) -> io::Result<Option<End>> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let request = Builder::new(BY_FAMILY, REQUEST)
        .fixed(&request(here, there))
        .finish(1);
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &request, SendFlags::empty(), &kernel)?;
    // The kernel answers before the request returns.
    let mut answer = [0; 4096];
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "not an answer of sock_diag(7)");
    let message = Messages::new(&answer[..len]).next().ok_or_else(strange)?;
    let message = message.map_err(|_| strange())?;
    if message.kind != BY_FAMILY {
        return match message.read() {
            Ok(Body::Error(code)) if code == -Errno::NOENT.raw_os_error() => Ok(None),
            Ok(Body::Error(code)) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
            _ => Err(strange()),
        };
    }
    let end = message.payload.get(..MESSAGE_BYTES).ok_or_else(strange)?;
    let word = |at: usize| u32::from_ne_bytes([end[at], end[at + 1], end[at + 2], end[at + 3]]);
    Ok(Some(End {
        state: end[STATE_AT],
        uid: word(UID_AT),
        inode: word(INODE_AT),
    }))
}

/// `struct inet_diag_req_v2`, for one socket.
fn request(here: SocketAddr, there: SocketAddr) -> [u8; 56] {
    const TCP: u8 = 6;
    // An IPv6 socket may have an IPv4-mapped address.
    let addresses = [here, there].map(|end| end.ip().to_canonical());
    let family = match addresses[0] {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let mut request = [0; 56];
    request[0] = family.as_raw() as u8;
    request[1] = TCP;
    // In any state.
    request[4..8].fill(0xff);
    for (at, end) in [(8, here), (10, there)] {
        request[at..at + 2].copy_from_slice(&end.port().to_be_bytes());
    }
    for (at, address) in [12, 28].into_iter().zip(addresses) {
        match address {
            IpAddr::V4(v4) => request[at..at + 4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => request[at..at + 16].copy_from_slice(&v6.octets()),
        }
    }
    if let SocketAddr::V6(v6) = here {
        request[44..48].copy_from_slice(&v6.scope_id().to_ne_bytes());
    }
    // Without a cookie.
    request[48..].fill(0xff);
    request
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_knows_whose_an_end_is_until_it_is_closed() {
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            // An IPv4-mapped address at an IPv6 socket, too.
            let to = if at == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let peer = TcpStream::connect((to, port)).unwrap();
            let (ours, address) = listener.accept().unwrap();
            let local = ours.local_addr().unwrap();
            let own = Owner::User(geteuid().as_raw());
            assert_eq!(of(address, local).unwrap(), own, "{at}");
            drop(peer);
            // The kernel reports user 0 for a closed socket, whoever had it.
            assert!(of(address, local).is_err(), "{at}");
            let nobody = SocketAddr::new(address.ip(), 1);
            assert!(of(nobody, local).is_err(), "{at}");
        }
    }
}
