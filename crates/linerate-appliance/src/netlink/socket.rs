//! A routing netlink socket: requests and their answers, dumps, events.
//!
//! A socket belongs to the network name space in which it was made: a process that may enter that
//! makes it ([`open`]), and any process can use it. Reading needs no privileges.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linerate_wire::rtnetlink::build::Builder;
use linerate_wire::rtnetlink::{Body, Messages};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
    sockopt,
};

use crate::error::Error;
use crate::netns::Space;

/// Multicast groups (`RTMGRP_...`, bit n - 1 for `RTNLGRP_...` n) of links, and of all that
/// [`super`] wants to know: besides neighbours, addresses and routes of both families, next-hop
/// objects.
pub const LINKS: u32 = 1 << 0;
/// Groups of events: links, neighbours, addresses and routes.
pub const ALL: u32 = LINKS | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 31;
/// The kernel fills at most 32 KiB at once for a reader that offers so much.
const BUFFER: usize = 64 << 10;
/// `NLM_F_DUMP_INTR`: something changed during the dump, which may have missed it.
const DUMP_INTERRUPTED: u16 = 0x10;

/// A socket.
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// Opens a socket in a network name space (CAP_SYS_ADMIN); `None`: in this one. With room for so
/// many bytes of events: beyond the system's limit with CAP_NET_ADMIN, else as much as that allows.
///
/// # Errors
/// If there is no such name space, or it may not be entered.
pub fn open(space: Option<&str>, room: Option<usize>) -> Result<OwnedFd, Error> {
    let open = || {
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE
        )?;
        if let Some(room) = room
            && sockopt::set_socket_recv_buffer_size_force(&fd, room).is_err()
        {
            sockopt::set_socket_recv_buffer_size(&fd, room)?;
        }
        Ok::<_, io::Error>(fd)
    };
    match space {
        None => Ok(open()?),
        Some(name) => Space::named(name)?.within(|| Ok(open()?)),
    }
}

/// Result of reading events.
pub enum Events<'a> {
    /// These.
    Some(Messages<'a>),
    /// None for now.
    None,
    /// Some were lost: the socket's buffer ran over.
    Lost,
}

impl Socket {
    /// For requests.
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            sequence: 0,
            buffer: vec![0; BUFFER],
        }
    }

    /// For events of these groups.
    pub fn of_events(fd: OwnedFd, groups: u32) -> io::Result<Self> {
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self::new(fd))
    }

    /// The next events, without waiting for them.
    pub fn events(&mut self) -> io::Result<Events<'_>> {
        match self.receive_with(RecvFlags::DONTWAIT) {
            Ok(len) => Ok(Events::Some(Messages::new(&self.buffer[..len]))),
            Err(Errno::AGAIN) => Ok(Events::None),
            Err(Errno::NOBUFS) => Ok(Events::Lost),
            Err(error) => Err(error.into()),
        }
    }

    /// Discards pending events. Until none is left the kernel drops new ones without reporting it
    /// again.
    pub fn forget_events(&mut self) -> io::Result<()> {
        loop {
            match self.receive_with(RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self) -> Result<usize, Errno> {
        self.receive_with(RecvFlags::empty())
    }

    fn receive_with(&mut self, flags: RecvFlags) -> Result<usize, Errno> {
        loop {
            match recv(&self.fd, &mut self.buffer[..], flags) {
                Ok((len, _)) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request that is acknowledged, and waits for its outcome.
    pub fn request(&mut self, request: Builder) -> io::Result<()> {
        self.ask(request, |_| ()).map(drop)
    }

    /// Sends a request for a dump and passes its messages to `take`. Returns whether the dump is
    /// complete.
    pub fn dump(&mut self, request: Builder, take: impl FnMut(Body<'_>)) -> io::Result<bool> {
        self.ask(request, take)
    }

    fn ask(&mut self, request: Builder, mut take: impl FnMut(Body<'_>)) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let request = request.finish(sequence);
        sendto(
            &self.fd,
            &request,
            SendFlags::empty(),
            &SocketAddrNetlink::new(0, 0),
        )?;
        let mut whole = true;
        loop {
            let len = self.receive()?;
            for message in Messages::new(&self.buffer[..len]) {
                let message = message.map_err(strange)?;
                // The answer to an earlier request that failed half-way.
                if message.sequence != sequence {
                    continue;
                }
                whole &= message.flags & DUMP_INTERRUPTED == 0;
                match message.read().map_err(strange)? {
                    Body::Done | Body::Error(0) => return Ok(whole),
                    Body::Error(code) => {
                        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                    }
                    body => take(body),
                }
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A message that cannot be read is not from the kernel, or newer than this program.
fn strange(flaw: linerate_wire::rtnetlink::Flaw) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, flaw)
}
