//! The interface below a port: what it is, and the program attached to it.
//!
//! Shared by the port and its queues, which attach again when an interface of that name comes back.

use super::options::{Mode, Options};
use super::program::{self, Verdict};
use super::sys;
use crate::af_packet::tx;
use crate::link::{Interface, is_gone};
use crate::{Opener, XdpProgram};
use linerate_core::port::{Link, PortError, Spec};
use linerate_wire::MacAddr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The interface as it was at one moment.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) index: u32,
    pub(super) mtu: u32,
    pub(super) is_up: bool,
    pub(super) driver: String,
    /// Not on any bus: a veth or the like, whose peer leaves checksums unfinished.
    pub(super) is_virtual: bool,
    pub(super) rx_queues: u16,
    pub(super) tx_queues: u16,
    pub(super) merges: bool,
    pub(super) strips_vlan: bool,
}

pub(super) struct Device {
    pub(super) options: Options,
    interface: Interface,
    attachment: Mutex<Option<Attachment>>,
}

/// A loaded program, and where it is attached now.
struct Attachment {
    loaded: XdpProgram,
    /// Closing it detaches the program, also when the process is killed.
    link: Option<OwnedFd>,
    ifindex: u32,
    native: bool,
    /// Why native mode was not had.
    refused: Option<String>,
}

impl Device {
    pub(super) fn new(
        spec: &Spec,
        opener: &Arc<dyn Opener>,
        joins: bool,
    ) -> Result<Self, PortError> {
        let interface = Interface::named_by(spec, opener)?;
        let joins = joins && interface.driver().1;
        Ok(Self {
            options: Options::parse(spec, joins)?,
            interface,
            attachment: Mutex::new(None),
        })
    }

    /// Opens what needs privileges.
    pub(super) fn opener(&self) -> &dyn Opener {
        self.interface.opener()
    }

    /// Opens sockets for what the rings do not take: unsegmented frames.
    pub(super) fn packet_sockets(&self) -> Option<tx::Sockets> {
        let how = tx::Sending {
            qdisc_bypass: true,
            joins: true,
        };
        tx::Sockets::open(&self.interface, how).ok()
    }

    /// The interface as it is now.
    pub(super) fn find(&self) -> Result<Found, PortError> {
        let look = || {
            let interface = &self.interface;
            let (driver, is_virtual) = interface.driver();
            let (rx_queues, tx_queues) = interface.channels();
            Ok(Found {
                index: interface.index()?.cast_unsigned(),
                mtu: interface.mtu()?,
                is_up: interface.is_up()?,
                driver,
                is_virtual,
                rx_queues,
                tx_queues,
                merges: interface.merges(),
                strips_vlan: interface.strips_vlan(),
            })
        };
        look().map_err(|error: io::Error| match is_gone(&error) {
            true => self.interface.missing(&self.options.port),
            false => self
                .interface
                .failed(&self.options.port, "read the state", error),
        })
    }

    /// Its address and its MTU as they are now; `None` where there is no such interface.
    pub(super) fn wire(&self) -> Option<(Option<MacAddr>, u32)> {
        let interface = &self.interface;
        Some((interface.mac().ok()?, interface.mtu().ok()?))
    }

    pub(super) fn link(&self) -> Link {
        let Link::Up = self.interface.link() else {
            return self.interface.link();
        };
        let index = self.interface.index().map_or(0, i32::cast_unsigned);
        match &*self.lock() {
            Some(attachment) if attachment.ifindex == index && attachment.link.is_some() => {
                Link::Up
            }
            Some(_) => {
                let name = self.interface.name();
                Link::Down(format!(
                    "interface `{name}` came back and is being attached"
                ))
            }
            None => Link::Down("not started".into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attachment>> {
        self.attachment
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the program if need be, and attaches it if it is not attached to this interface.
    /// Whether the mode is native.
    pub(super) fn attach(&self, interface: &Found) -> Result<bool, PortError> {
        let mut guard = self.lock();
        if guard.is_none() {
            *guard = Some(self.load()?);
        }
        let attachment = guard.as_mut().expect("just loaded");
        if attachment.link.is_none() || attachment.ifindex != interface.index {
            attachment.link = None;
            let attached = self.attach_best(attachment.loaded.program.as_fd(), interface);
            if attached.is_err() && attachment.ifindex == 0 {
                *guard = None;
                return attached.map(|_| false);
            }
            let (link, native, refused) = attached?;
            attachment.ifindex = interface.index;
            (attachment.link, attachment.native, attachment.refused) =
                (Some(link), native, refused);
        }
        Ok(attachment.native)
    }

    fn load(&self) -> Result<Attachment, PortError> {
        let options = &self.options;
        let explain = |source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM) => options.permission(
                "load an XDP program",
                "CAP_BPF and CAP_NET_ADMIN (before Linux 5.8: CAP_SYS_ADMIN)",
            ),
            _ => options.system(
                "load the XDP program",
                source,
                "the kernel needs CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS",
            ),
        };
        // The opener's error would be less exact.
        program::assemble(&options.filter, Verdict::ToSocket { map: 0 }).map_err(|reason| {
            options.unsupported(format!("the filter cannot be run in the kernel: {reason}"))
        })?;
        let filter = options.filter_text.as_deref().unwrap_or("");
        let loaded = self.opener().xdp_program(self.interface.name(), filter);
        Ok(Attachment {
            loaded: loaded.map_err(explain)?,
            link: None,
            ifindex: 0,
            native: false,
            refused: None,
        })
    }

    /// In native mode if possible, else in generic mode, with the reason.
    fn attach_best(
        &self,
        program: BorrowedFd<'_>,
        interface: &Found,
    ) -> Result<(OwnedFd, bool, Option<String>), PortError> {
        let mode = self.options.mode;
        let attach = |native| (self.opener()).xdp_attach(self.interface.name(), program, native);
        if mode != Mode::Generic {
            match attach(true) {
                Ok(link) => return Ok((link, true, None)),
                Err(error) if mode == Mode::Native || is_final(&error) => {
                    return Err(self.explain_attach(error, interface, "native"));
                }
                Err(error) => {
                    let generic = attach(false);
                    let link = generic
                        .map_err(|error| self.explain_attach(error, interface, "generic"))?;
                    return Ok((link, false, Some(refusal(&error, interface))));
                }
            }
        }
        let link = attach(false);
        Ok((
            link.map_err(|error| self.explain_attach(error, interface, "generic"))?,
            false,
            None,
        ))
    }

    fn explain_attach(&self, error: io::Error, interface: &Found, mode: &str) -> PortError {
        let options = &self.options;
        let name = &options.interface;
        let action = format!("attach an XDP program to `{name}` in {mode} mode");
        match error.raw_os_error() {
            Some(libc::EPERM) => options.permission(&action, "CAP_NET_ADMIN and CAP_BPF"),
            Some(libc::ERANGE) => PortError::Mtu {
                port: options.port.clone(),
                mtu: interface.mtu,
                reason: refusal(&error, interface),
            },
            Some(libc::EBUSY | libc::EEXIST) => {
                let fix = format!(
                    "another program is there (`ip link show {name}`): stop its owner, or `ip link \
                     set {name} xdp off`"
                );
                options.system(&action, error, &fix)
            }
            _ => {
                let fix = format!("{}; or use `mode=auto`", refusal(&error, interface));
                options.system(&action, error, &fix)
            }
        }
    }

    fn map(&self, to: &Attachment, queue: u32, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let map = to.loaded.map.as_fd();
        self.opener()
            .xdp_map(self.interface.name(), map, queue, socket)
    }

    /// Sends a queue's frames to a socket.
    pub(super) fn map_queue(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        match &*self.lock() {
            Some(attachment) => self.map(attachment, queue, Some(socket)),
            None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    /// Leaves a queue's frames to the kernel. No harm where they are already.
    pub(super) fn unmap_queue(&self, queue: u32) {
        if let Some(attachment) = &*self.lock() {
            let _ = self.map(attachment, queue, None);
        }
    }

    /// Detaches the program: from then on the kernel writes into no slot any more.
    pub(super) fn detach(&self) {
        if let Some(link) = self.lock().take().and_then(|attachment| attachment.link) {
            sys::detach(link);
        }
    }

    /// Mode and, if native was requested but not possible, the reason.
    pub(super) fn mode(&self) -> (&'static str, Option<String>) {
        match &*self.lock() {
            Some(attachment) if attachment.native => ("native", None),
            Some(attachment) => ("generic", attachment.refused.clone()),
            None => ("not attached", None),
        }
    }
}

/// Whether generic mode would fail in the same way.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EBUSY | libc::EEXIST | libc::ENODEV)
    )
}

/// What a driver means by its error.
fn refusal(error: &io::Error, interface: &Found) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => format!("the driver `{}` has no native XDP", interface.driver),
        Some(libc::ERANGE) => {
            "a native program takes an MTU of at most about 3506, on a veth also of its peer".into()
        }
        Some(libc::ENOSPC) if interface.driver == "veth" => {
            "the veth's peer has more transmit queues than it has receive queues (`ethtool -L`)"
                .into()
        }
        Some(libc::ENOTCONN) => "the veth has no peer".into(),
        _ => format!("the driver `{}` says: {error}", interface.driver),
    }
}
