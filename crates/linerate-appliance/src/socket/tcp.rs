//! A TCP port that a process listens at.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;

use super::unix;

/// A listening TCP port; only the addresses of its clients are known.
#[derive(Debug)]
pub struct TcpDoor {
    socket: TcpListener,
    /// Where it listens.
    pub at: SocketAddr,
}

impl TcpDoor {
    /// Listens at an address.
    ///
    /// # Errors
    /// It is taken, or not this machine's.
    pub fn open(address: impl ToSocketAddrs) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let at = socket.local_addr()?;
        Ok(Self { socket, at })
    }

    /// The next client, if one came within `time_ms`.
    ///
    /// # Errors
    /// Usually that no descriptor is free.
    pub fn accept(&self, time_ms: u32) -> io::Result<Option<TcpStream>> {
        if !unix::readable(self.socket.as_fd(), time_ms)? {
            return Ok(None);
        }
        match self.socket.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                Ok(Some(stream))
            }
            Err(error) => unix::gone(error),
        }
    }
}
