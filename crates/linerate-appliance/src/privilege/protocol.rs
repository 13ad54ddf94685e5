//! The protocol of router and privilege helper: one request, one reply, each a [`message`] with
//! descriptors beside it, over a socket that keeps messages apart (unix(7), `SOCK_SEQPACKET`).
//!
//! A message has [`MESSAGE_BYTES`] at most, and at most [`DESCRIPTORS`]; longer ones are refused.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use linerate_wire::MacAddr;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message;
use crate::address::Cidr;
use crate::error::Error;
use crate::netlink::host_interface::Attributes;

pub(super) use super::message::{Like, Refusal, Reply, Request};

/// Longest message, in bytes: some thousand addresses of a host interface.
const MESSAGE_BYTES: usize = 64 << 10;
/// Most descriptors beside a message.
const DESCRIPTORS: usize = 2;

impl From<&Attributes> for Like {
    fn from(like: &Attributes) -> Self {
        let addresses = like.addresses.iter().map(|cidr| (cidr.address, cidr.len));
        Self {
            mac: like.mac.0,
            mtu: like.mtu,
            up: like.up,
            addresses: addresses.collect(),
        }
    }
}

impl From<Like> for Attributes {
    fn from(like: Like) -> Self {
        let addresses = like.addresses.into_iter();
        Self {
            mac: MacAddr(like.mac),
            mtu: like.mtu,
            up: like.up,
            addresses: addresses
                .map(|(address, len)| Cidr { address, len })
                .collect(),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self {
            errno: error.raw_os_error(),
            problem: error.to_string(),
            fix: String::new(),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::new(error.to_string(), &error.fix().unwrap_or_default())
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal.errno {
            Some(errno) => Self::from_raw_os_error(errno),
            None => Self::other(refusal.problem),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Usage {
            problem: refusal.problem,
            fix: refusal.fix,
        }
    }
}

/// Sends a message.
///
/// # Errors
/// It is too long, or the other side has ended.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = message::write(message)?;
    if text.len() > MESSAGE_BYTES || descriptors.len() > DESCRIPTORS {
        return Err(Errno::MSGSIZE.into());
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let fits = beside.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(fits, "there is room for as many");
    }
    loop {
        match sendmsg(
            socket,
            &[IoSlice::new(&text)],
            &mut beside,
            SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome.map(drop)?),
        }
    }
}

/// The result of [`receive`].
#[derive(Debug)]
pub(super) enum Received<T> {
    Message(T, Vec<OwnedFd>),
    /// Not a message.
    Nonsense(String),
    Closed,
}

/// Receives a message.
///
/// # Errors
/// The socket's: none came in the time that it waits.
pub(super) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Received<T>> {
    let mut text = vec![0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let room = &mut [IoSliceMut::new(&mut text)];
        match recvmsg(socket, room, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(Received::Closed),
            outcome => break outcome?,
        }
    };
    // All of them, so that those of a message that is refused are closed.
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(Received::Closed);
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Ok(Received::Nonsense("a message that is too long".into()));
    }
    Ok(match message::read(&text[..received.bytes]) {
        Ok(message) => Received::Message(message, descriptors),
        Err(error) => Received::Nonsense(error),
    })
}
