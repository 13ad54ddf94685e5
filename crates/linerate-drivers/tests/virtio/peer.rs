//! A front end of the tests' own: it knows the messages, and sends any of them.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(crate) const GET_FEATURES: u32 = 1;
pub(crate) const SET_FEATURES: u32 = 2;
pub(crate) const SET_MEM_TABLE: u32 = 5;
pub(crate) const SET_LOG_BASE: u32 = 6;
pub(crate) const SET_LOG_FD: u32 = 7;
pub(crate) const SET_VRING_NUM: u32 = 8;
pub(crate) const SET_VRING_ADDR: u32 = 9;
pub(crate) const SET_VRING_BASE: u32 = 10;
pub(crate) const GET_VRING_BASE: u32 = 11;
pub(crate) const SET_VRING_KICK: u32 = 12;
pub(crate) const SET_VRING_CALL: u32 = 13;
pub(crate) const SET_VRING_ENABLE: u32 = 18;
pub(crate) const GET_INFLIGHT_FD: u32 = 31;
pub(crate) const SET_INFLIGHT_FD: u32 = 32;
pub(crate) const ADD_MEM_REG: u32 = 37;
pub(crate) const REM_MEM_REG: u32 = 38;

/// VERSION_1, protocol features.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 30;
pub(crate) const REGION: u64 = 1 << 20;

pub(crate) struct Peer(pub(crate) UnixStream);

impl Peer {
    pub(crate) fn new(path: &Path) -> Self {
        let peer = UnixStream::connect(path).unwrap();
        peer.set_read_timeout(Some(linerate_testkit::PATIENCE))
            .unwrap();
        Self(peer)
    }

    pub(crate) fn put(&self, fields: [u32; 3], payload: &[u8], files: &[BorrowedFd<'_>]) {
        let mut bytes: Vec<u8> = fields
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect();
        bytes.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        // It may have cut us off already.
        let _ = rustix::net::sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
    }

    pub(crate) fn send(&self, request: u32, words: &[u64], files: &[BorrowedFd<'_>]) {
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put([request, 1, payload.len() as u32], &payload, files);
    }

    pub(crate) fn state(&self, request: u32, index: u32, value: u32) {
        self.send(request, &[u64::from(value) << 32 | u64::from(index)], &[]);
    }

    pub(crate) fn ask(&mut self, request: u32, words: &[u64]) -> Option<u64> {
        self.send(request, words, &[]);
        let mut answer = [0; 20];
        self.0.read_exact(&mut answer).ok()?;
        Some(u64::from_le_bytes(answer[12..].try_into().unwrap()))
    }

    /// A whole set-up of one pair of split rings of 64, in one region at guest address 0.
    pub(crate) fn set_up(&self) -> OwnedFd {
        let file = memory(REGION);
        self.send(SET_FEATURES, &[FEATURES], &[]);
        self.send(SET_MEM_TABLE, &[1, 0, REGION, 0, 0], &[file.as_fd()]);
        for ring in 0..2 {
            self.ring(ring, 0x1_0000 * u64::from(ring));
        }
        file
    }

    pub(crate) fn ring(&self, ring: u32, at: u64) {
        let event = eventfd();
        self.send(SET_VRING_CALL, &[ring.into()], &[event.as_fd()]);
        self.state(SET_VRING_NUM, ring, 64);
        self.state(SET_VRING_BASE, ring, 0);
        let parts = [ring.into(), at, at + 0x2000, at + 0x1000, 0];
        self.send(SET_VRING_ADDR, &parts, &[]);
        self.send(SET_VRING_KICK, &[ring.into()], &[event.as_fd()]);
        self.state(SET_VRING_ENABLE, ring, 1);
    }
}

pub(crate) fn memory(bytes: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

pub(crate) fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

/// A write to the guest's memory, past every mapping.
pub(crate) fn poke(file: &OwnedFd, at: u64, bytes: &[u8]) {
    assert_eq!(rustix::io::pwrite(file, bytes, at), Ok(bytes.len()));
}
