//! Who has an interface of the kernel: of those that forward by it one at a time, or each frame is
//! forwarded twice.
//!
//! A claim is a listening socket in the abstract name space of unix(7), which is the network name
//! space's own, called by the interface's name: a port finds its interface by that, too, whatever
//! number it has. It goes with its process, however that ends. `af_packet` needs it, since the
//! kernel gives any number of packet sockets their copies; one AF_XDP socket for each queue the
//! kernel sees to, but not to that beside a packet socket.

use std::os::fd::OwnedFd;

use linerate_core::port::{PortError, Spec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::socket::unix::process;

/// Askers who are told who it is; those after them, that somebody has it.
const QUEUE: i32 = 4096;

/// The interface is this process's as long as this lives.
#[derive(Debug)]
pub struct Claim {
    /// The interface that is claimed.
    pub interface: String,
    _socket: OwnedFd,
}

/// The interface that a port wants for itself; none where it shares it with the kernel or others,
/// being given a part of its frames, or has none.
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
    /// Takes an interface, for a port of that name.
    ///
    /// # Errors
    /// Somebody has it: who. Or the system gives no socket.
    pub fn take(interface: &str, port: &str) -> Result<Self, PortError> {
        let failed = |error: Errno| PortError::System {
            port: port.into(),
            action: format!("claim interface `{interface}`"),
            source: error.into(),
            fix: "raise the limit of open files with `ulimit -n`".into(),
        };
        let socket = socket().map_err(failed)?;
        let bound = bind(&socket, &address(interface).map_err(failed)?);
        // Who asks stays in the queue: nobody takes it out.
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

/// Who has an interface: none where nobody does; `Some(None)` where that process cannot be told.
pub fn holder(interface: &str) -> Option<Option<i32>> {
    let asked = || {
        let socket = socket()?;
        connect(&socket, &address(interface)?)?;
        socket_peercred(&socket)
    };
    match asked() {
        Ok(peer) => Some(Some(peer.pid.as_raw_nonzero().get())),
        // Others are asking, too.
        Err(Errno::AGAIN) => Some(None),
        Err(_) => None,
    }
}

/// What is wrong where somebody has it.
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
