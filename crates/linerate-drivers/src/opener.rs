//! Opening that needs privileges, behind one trait.
//!
//! A process may keep its capabilities and open for itself ([`Own`]), or give them away and have
//! another one open for it: then it passes its own [`Opener`] to
//! [`Drivers::opened_by`](crate::Drivers::opened_by). What comes back are descriptors, on which
//! drivers go on by themselves: for registering memory, mapping rings and binding the kernel asks
//! for no capability. Nothing here is called for a packet; queues call it when an interface is
//! back.

use crate::link::{self, Interface};
use crate::peer::{self, UnixAccess, UnixAddress, UnixKind};
use crate::{af_packet, af_xdp, tap};
use linerate_wire::MacAddr;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Where `ip netns` keeps its names.
const NETNS_DIR: &str = "/run/netns";

/// Opens what takes privileges. All interfaces are named, and `netns` is a network name space as
/// `ip netns` calls it; `None`: the one of the process that opens.
pub trait Opener: Debug + Send + Sync {
    /// A socket whose only use is that interface ioctls go to a name space. CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` where there is no such name space.
    fn control_socket(&self, netns: &str) -> io::Result<OwnedFd>;

    /// A packet socket with large buffers for this interface, bound to nothing yet. CAP_NET_RAW.
    ///
    /// # Errors
    /// The kernel's.
    fn packet_socket(&self, interface: &str) -> io::Result<OwnedFd>;

    /// An AF_XDP socket with a large send buffer for this interface, bound to nothing yet, and
    /// polling the device for so many microseconds. CAP_NET_RAW, and CAP_NET_ADMIN for polling.
    ///
    /// # Errors
    /// The kernel's.
    fn xdp_socket(&self, interface: &str, busy_poll_us: u32) -> io::Result<OwnedFd>;

    /// A map of AF_XDP sockets, and an XDP program for this interface that sends what passes the
    /// filter to them. CAP_BPF and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's, with what the verifier said; or what of the filter a program cannot do.
    fn xdp_program(&self, interface: &str, filter: &str) -> io::Result<XdpProgram>;

    /// Attaches such a program to the interface, for as long as the descriptor is open.
    /// CAP_NET_ADMIN, CAP_BPF.
    ///
    /// # Errors
    /// The kernel's.
    fn xdp_attach(
        &self,
        interface: &str,
        program: BorrowedFd<'_>,
        native: bool,
    ) -> io::Result<OwnedFd>;

    /// Sends a queue's frames to a socket, or leaves them to the kernel. CAP_BPF on Linux before
    /// 5.19, none since.
    ///
    /// # Errors
    /// The kernel's.
    fn xdp_map(
        &self,
        interface: &str,
        map: BorrowedFd<'_>,
        queue: u32,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()>;

    /// A queue of a TAP, which is made where there is none; `several`: it has more than one.
    /// CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's.
    fn tap(&self, netns: Option<&str>, name: &str, several: bool) -> io::Result<OwnedFd>;

    /// Changes the kernel's end of a TAP. CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` where there is none.
    fn change_tap(&self, netns: Option<&str>, name: &str, change: TapChange) -> io::Result<()>;

    /// Opens a file that a port's specification names, to be read.
    ///
    /// # Errors
    /// The kernel's.
    fn read_file(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    /// Opens a file that a port's specification names, to be written: an empty one, or behind what
    /// is in it (`add`).
    ///
    /// # Errors
    /// The kernel's.
    fn write_file(&self, path: &Path, add: bool) -> io::Result<File> {
        match add {
            true => File::options().append(true).open(path),
            false => File::create(path),
        }
    }

    /// Listens on a Unix socket, for peers to connect to. A path that a dead process left is taken
    /// over. What comes back does not block.
    ///
    /// # Errors
    /// The kernel's; `AddrInUse` where somebody listens, with who it is.
    fn listen_unix(
        &self,
        address: &UnixAddress,
        kind: UnixKind,
        access: UnixAccess,
    ) -> io::Result<OwnedFd> {
        peer::socket::listen(address, kind, access)
    }

    /// Connects to a Unix socket where a peer listens. What comes back does not block.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` where there is no such socket, `ECONNREFUSED` where nobody listens.
    fn connect_unix(&self, address: &UnixAddress, kind: UnixKind) -> io::Result<OwnedFd> {
        peer::socket::connect(address, kind)
    }
}

/// What [`Opener::xdp_program`] loads.
#[derive(Debug)]
pub struct XdpProgram {
    /// From queue number to socket.
    pub map: OwnedFd,
    /// The program.
    pub program: OwnedFd,
}

/// What can be changed of the kernel's end of a TAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapChange {
    /// Its Ethernet address.
    Mac(MacAddr),
    /// Its longest packet, in bytes.
    Mtu(u32),
    /// Whether it is up.
    Up(bool),
}

/// Opens with the privileges of this process, in the name space of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own;

impl Opener for Own {
    fn control_socket(&self, netns: &str) -> io::Result<OwnedFd> {
        within(Some(netns), link::sys::control_socket)
    }

    fn packet_socket(&self, _: &str) -> io::Result<OwnedFd> {
        af_packet::open_socket()
    }

    fn xdp_socket(&self, _: &str, busy_poll_us: u32) -> io::Result<OwnedFd> {
        af_xdp::privileged::socket(busy_poll_us)
    }

    fn xdp_program(&self, _: &str, filter: &str) -> io::Result<XdpProgram> {
        af_xdp::privileged::program(filter)
    }

    fn xdp_attach(
        &self,
        interface: &str,
        program: BorrowedFd<'_>,
        native: bool,
    ) -> io::Result<OwnedFd> {
        let index = link::sys::index(&link::sys::control_socket()?, interface)?;
        af_xdp::privileged::attach(program, index.cast_unsigned(), native)
    }

    fn xdp_map(
        &self,
        _: &str,
        map: BorrowedFd<'_>,
        queue: u32,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        af_xdp::privileged::map(map, queue, socket)
    }

    fn tap(&self, netns: Option<&str>, name: &str, several: bool) -> io::Result<OwnedFd> {
        within(netns, || tap::open_queue(name, several))
    }

    fn change_tap(&self, netns: Option<&str>, name: &str, change: TapChange) -> io::Result<()> {
        let socket = within(netns, link::sys::control_socket)?;
        Interface::change(&socket, name, change)
    }
}

/// Does `work` in a name space: on a thread of its own, since a thread cannot always come back.
fn within<T: Send>(
    netns: Option<&str>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(netns) = netns else {
        return work();
    };
    let space = File::open(Path::new(NETNS_DIR).join(netns))?;
    std::thread::scope(|scope| {
        let inside = std::thread::Builder::new().spawn_scoped(scope, || {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        })?;
        inside
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
