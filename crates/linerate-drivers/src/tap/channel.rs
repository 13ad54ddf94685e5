//! The descriptor of one TAP queue: what a receive queue and some transmit queues share.
//!
//! It dies with the TAP. Whoever notices asks for a new one; the first to ask opens it.

use super::sys;
use crate::TapChange;
use crate::link::Interface;
use linerate_wire::ethernet::{self, MacAddr};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a TAP may be busy that is about to be free.
const BUSY: Duration = Duration::from_millis(200);

/// What the user asked for on the kernel's end, and what a TAP that comes back gets again.
#[derive(Clone, Copy, Default)]
pub(super) struct Wishes {
    pub(super) mac: Option<MacAddr>,
    pub(super) mtu: Option<u32>,
    pub(super) up: bool,
    /// Whether one that was deleted is made again.
    pub(super) again: bool,
}

impl Wishes {
    /// Grants as much as the kernel lets us.
    fn renew(self, interface: &Interface) {
        let mac = self.mac.map(TapChange::Mac);
        let mtu = self.mtu.map(TapChange::Mtu);
        let up = self.up.then_some(TapChange::Up(true));
        for change in [mac, mtu, up].into_iter().flatten() {
            let _ = interface.change_tap(change);
        }
    }
}

/// One queue of a TAP.
pub(super) struct Channel {
    interface: Arc<Interface>,
    wishes: Wishes,
    several: bool,
    large: bool,
    offloads: &'static str,
    /// `None` while there is no TAP.
    now: Mutex<Option<Arc<OwnedFd>>>,
}

/// Which step the kernel refused.
pub(super) enum Refused {
    /// Opening the device, making or attaching the TAP.
    Attach(io::Error),
    /// Choosing offloads.
    Offload(io::Error),
}

impl Channel {
    /// Opens a queue; makes the TAP where there is none.
    pub(super) fn open(
        interface: &Arc<Interface>,
        wishes: Wishes,
        several: bool,
        large: bool,
    ) -> Result<Self, Refused> {
        let start = Instant::now();
        let (fd, offloads) = loop {
            match attach(interface, several, large) {
                // A process that some thread has just started has a copy of the descriptor that was
                // closed before this, until it runs its program.
                Err(Refused::Attach(error))
                    if error.kind() == io::ErrorKind::ResourceBusy && start.elapsed() < BUSY =>
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                attached => break attached?,
            }
        };
        Ok(Self {
            interface: interface.clone(),
            wishes,
            several,
            large,
            offloads,
            now: Mutex::new(Some(Arc::new(fd))),
        })
    }

    /// What the kernel leaves to the reader.
    pub(super) fn offloads(&self) -> &'static str {
        self.offloads
    }

    /// Longest frame that the kernel's end sends now, without a VLAN tag, in bytes.
    pub(super) fn max_frame_bytes(&self) -> io::Result<usize> {
        Ok(self.interface.mtu()? as usize + ethernet::HEADER_LEN)
    }

    pub(super) fn set_persist(&self, persist: bool) -> io::Result<()> {
        self.current()
            .map_or(Ok(()), |fd| sys::set_persist(&fd, persist))
    }

    /// The descriptor.
    pub(super) fn current(&self) -> Option<Arc<OwnedFd>> {
        self.now
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Forgets a descriptor whose TAP is gone.
    pub(super) fn bury(&self, dead: &Arc<OwnedFd>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.take_if(|fd| Arc::ptr_eq(fd, dead));
    }

    /// The same, if it is: a TAP that is only down comes up again with its descriptors.
    #[cold]
    pub(super) fn bury_if_gone(&self, fd: &Arc<OwnedFd>) {
        if !sys::is_attached(fd) {
            self.bury(fd);
        }
    }

    /// The descriptor, opened anew if the TAP is back. It makes one only where that was asked for:
    /// who deleted it meant it.
    pub(super) fn reopen(&self) -> Option<Arc<OwnedFd>> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_none() && (self.wishes.again || self.interface.index().is_ok()) {
            let opened = attach(&self.interface, self.several, self.large);
            *now = opened.ok().map(|(fd, _)| Arc::new(fd));
            if now.is_some() {
                self.wishes.renew(&self.interface);
            }
        }
        now.clone()
    }
}

fn attach(
    interface: &Interface,
    several: bool,
    large: bool,
) -> Result<(OwnedFd, &'static str), Refused> {
    const TCP: u32 = libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    const UDP: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let fd = interface.open_tap(several).map_err(Refused::Attach)?;
    let wish = |more| sys::set_offload(&fd, libc::TUN_F_CSUM | more);
    let offloads = if !large {
        wish(0).map(|()| "checksums (no pool of large slots)")
    } else if wish(TCP | UDP).is_ok() {
        Ok("checksums, TCP and UDP segmentation")
    } else {
        wish(TCP).map(|()| "checksums, TCP segmentation") // Linux before 6.2
    };
    let offloads = offloads.map_err(Refused::Offload)?;
    Ok((fd, offloads))
}
