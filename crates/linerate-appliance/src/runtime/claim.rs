//! Ownership of an interface of the kernel: one forwarder at a time, or each frame would be
//! forwarded twice.
//!
//! A claim is a listening socket in the abstract name space of unix(7), which is the network name
//! space's own, with the interface's name, by which a port finds its interface, too. It ends with
//! its process.  `af_packet` needs it, since the kernel gives any number of packet sockets their
//! copies; the kernel allows only one AF_XDP socket per queue, but does not prevent one beside a
//! packet socket.

use std::os::fd::OwnedFd;

use linerate_core::port::{PortError, Spec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::socket::unix::process;

/// Number of connecting processes that learn the owner; later ones learn only that there is one.
const QUEUE: i32 = 4096;

/// The interface is this process's as long as this lives.
#[derive(Debug)]
pub struct Claim {
    /// The interface that is claimed.
    pub interface: String,
    _socket: OwnedFd,
}

/// The interface that a port needs exclusively; `None` if it gets only a part of the frames, or has
/// no interface.
pub fn wanted(spec: &str) -> Option<String> {
    let spec: Spec = spec.parse().ok()?;
    let shared = match spec.kind() {
        "af_packet" => false,
        "af_xdp" => ["filter", "start_queue"]
            .iter()
            .any(|key| spec.text(key).is_some()),
        _ => return None,
    };
    (!shared).then(|| spec.target().to_string())
}

impl Claim {
    /// Claims an interface, for a port of that name.
    ///
    /// # Errors
    /// Another process has it; the error names it. Or the system gives no socket.
    pub fn take(interface: &str, port: &str) -> Result<Self, PortError> {
        let failed = |error: Errno| PortError::System {
            port: port.into(),
            action: format!("claim interface `{interface}`"),
            source: error.into(),
            fix: "raise the limit of open files with `ulimit -n`".into(),
        };
        let socket = socket().map_err(failed)?;
        let bound = bind(&socket, &address(interface).map_err(failed)?);
        // Connections stay in the queue, since they are never accepted.
        match bound.and_then(|()| listen(&socket, QUEUE)) {
            Ok(()) => Ok(Self {
                interface: interface.into(),
                _socket: socket,
            }),
            Err(Errno::ADDRINUSE) => Err(PortError::Unsupported {
                port: port.into(),
                reason: taken(interface, holder(interface).flatten()),
            }),
            Err(error) => Err(failed(error)),
        }
    }
}

/// The process that has an interface: `None` if there is none; `Some(None)` if it is unknown.
pub fn holder(interface: &str) -> Option<Option<i32>> {
    let asked = || {
        let socket = socket()?;
        connect(&socket, &address(interface)?)?;
        socket_peercred(&socket)
    };
    match asked() {
        Ok(peer) => Some(Some(peer.pid.as_raw_nonzero().get())),
        // Other processes are connecting, too.
        Err(Errno::AGAIN) => Some(None),
        Err(_) => None,
    }
}

/// The error if another process has it.
pub fn taken(interface: &str, by: Option<i32>) -> String {
    let by = by.map_or_else(|| "another process".into(), process);
    format!(
        "{by} forwards by interface `{interface}` already, and every frame would be forwarded \
         twice; end that process, or take another interface"
    )
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn address(interface: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("linerate/port/{interface}").as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_take_a_part_of_the_frames_share_their_interface() {
        assert_eq!(wanted("af_packet:eth0,queues=2").as_deref(), Some("eth0"));
        assert_eq!(wanted("af_xdp:eth0").as_deref(), Some("eth0"));
        for shares in [
            "af_xdp:eth0,filter=udp",
            "af_xdp:eth0,start_queue=1",
            "tap:eth0",
            "ring:eth0",
        ] {
            assert_eq!(wanted(shares), None, "{shares}");
        }
    }

    #[test]
    fn a_claim_is_one_processs_and_ends_with_its_value() {
        // The name space is the machine's: no interface is called so.
        let name = format!("test/{}", std::process::id());
        assert_eq!(holder(&name), None);
        let first = Claim::take(&name, "af_packet:a").unwrap();
        let own = std::process::id().cast_signed();
        assert_eq!(holder(&name), Some(Some(own)));
        let refused = Claim::take(&name, "af_packet:a").unwrap_err().to_string();
        assert!(refused.contains(&format!("process {own}")), "{refused}");
        // However often it is asked for.
        (0..100).for_each(|_| _ = holder(&name));
        assert_eq!(holder(&name), Some(Some(own)));
        drop(first);
        assert_eq!(holder(&name), None);
        Claim::take(&name, "af_packet:a").unwrap();
    }
}
