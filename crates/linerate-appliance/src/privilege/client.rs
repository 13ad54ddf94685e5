//! The router's end of the socket.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_drivers::{Opener, Own, TapChange, XdpProgram};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use super::protocol::{Received, Refusal, Reply, Request, receive, send};
use super::{Privileged, ended};
use crate::address::Cidr;
use crate::error::Error;
use crate::netlink::host_interface::Attributes;

/// Longest time for a request: after it the privilege helper counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A privilege helper, used by one thread at a time. It ends with this value.
#[derive(Debug)]
pub(super) struct Helper {
    socket: Mutex<OwnedFd>,
    process: Mutex<Child>,
}

impl Helper {
    /// Starts one for the configuration at `path`. It keeps the user that starts it.
    ///
    /// # Errors
    /// No process can be started.
    pub(super) fn start(path: &Path) -> Result<Self, Error> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(io::Error::from)?;
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&ours, which, Some(PATIENCE)).map_err(io::Error::from)?;
        }
        // This program itself, even if its file was replaced.
        let process = Command::new("/proc/self/exe")
            .arg0("linerate")
            .arg("privilege-helper")
            .arg(path)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Error::Usage {
                problem: format!("no process to keep the privileges can be started: {error}"),
                fix: "raise the limit of processes (`ulimit -u`), and mount /proc".into(),
            })?;
        Ok(Self {
            socket: Mutex::new(ours),
            process: Mutex::new(process),
        })
    }

    fn process(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and waits for the reply.
    fn ask<const N: usize>(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<[OwnedFd; N], Refusal> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let fd = socket.as_fd();
        let received = send(fd, request, descriptors).and_then(|()| receive::<Reply>(fd));
        if let Ok(Received::Message(reply, opened)) = received {
            reply?;
            if let Ok(opened) = opened.try_into() {
                return Ok(opened);
            }
        }
        // A late reply would be taken for the answer to the next request.
        let _ = shutdown(fd, Shutdown::Both);
        Err(ended().into())
    }

    /// A file as this user opens it, or else as the privilege helper does: one may wait for the
    /// other end of a pipe.
    fn file(&self, opened: io::Result<File>, ask: impl FnOnce() -> Request) -> io::Result<File> {
        match opened {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let [file] = self.ask(&ask(), &[])?;
                Ok(file.into())
            }
            opened => opened,
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It holds nothing, and only cleans up.
        let socket = self.socket.get_mut();
        let _ = shutdown(
            socket.unwrap_or_else(PoisonError::into_inner),
            Shutdown::Both,
        );
        let mut process = self.process();
        let end = Instant::now() + PATIENCE;
        while matches!(process.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It may be root's, so that we may not kill it.
        if process.kill().is_ok() {
            let _ = process.wait();
        }
    }
}

fn owned(netns: Option<&str>) -> Option<String> {
    netns.map(Into::into)
}

impl Opener for Helper {
    fn control_socket(&self, netns: &str) -> io::Result<OwnedFd> {
        let netns = netns.into();
        let [socket] = self.ask(&Request::ControlSocket { netns }, &[])?;
        Ok(socket)
    }

    fn packet_socket(&self, interface: &str) -> io::Result<OwnedFd> {
        let name = interface.into();
        let [socket] = self.ask(&Request::PacketSocket { name }, &[])?;
        Ok(socket)
    }

    fn xdp_socket(&self, interface: &str, busy_poll_us: u32) -> io::Result<OwnedFd> {
        let request = Request::XdpSocket {
            name: interface.into(),
            busy_poll_us,
        };
        let [socket] = self.ask(&request, &[])?;
        Ok(socket)
    }

    fn xdp_program(&self, interface: &str, filter: &str) -> io::Result<XdpProgram> {
        let request = Request::XdpProgram {
            name: interface.into(),
            filter: filter.into(),
        };
        let [map, program] = self.ask(&request, &[])?;
        Ok(XdpProgram { map, program })
    }

    fn xdp_attach(
        &self,
        interface: &str,
        program: BorrowedFd<'_>,
        native: bool,
    ) -> io::Result<OwnedFd> {
        let request = Request::XdpAttach {
            name: interface.into(),
            native,
        };
        let [link] = self.ask(&request, &[program])?;
        Ok(link)
    }

    fn xdp_map(
        &self,
        interface: &str,
        map: BorrowedFd<'_>,
        queue: u32,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let request = Request::XdpMap {
            name: interface.into(),
            queue,
        };
        let descriptors: Vec<_> = [map].into_iter().chain(socket).collect();
        let [] = self.ask(&request, &descriptors)?;
        Ok(())
    }

    fn tap(&self, netns: Option<&str>, name: &str, several: bool) -> io::Result<OwnedFd> {
        let request = Request::Tap {
            netns: owned(netns),
            name: name.into(),
            several,
        };
        let [tap] = self.ask(&request, &[])?;
        Ok(tap)
    }

    fn change_tap(&self, netns: Option<&str>, name: &str, change: TapChange) -> io::Result<()> {
        let request = Request::ChangeTap {
            netns: owned(netns),
            name: name.into(),
            change: change.into(),
        };
        let [] = self.ask(&request, &[])?;
        Ok(())
    }

    fn read_file(&self, path: &Path) -> io::Result<File> {
        let ask = || Request::ReadFile { path: path.into() };
        self.file(Own.read_file(path), ask)
    }

    fn write_file(&self, path: &Path, add: bool) -> io::Result<File> {
        let ask = || Request::WriteFile {
            path: path.into(),
            add,
        };
        self.file(Own.write_file(path, add), ask)
    }
}

impl Privileged for Helper {
    fn netlink(&self, netns: Option<&str>, room: Option<usize>) -> Result<OwnedFd, Error> {
        let netns = owned(netns);
        let [socket] = self.ask(&Request::Netlink { netns, room }, &[])?;
        Ok(socket)
    }

    fn make_alike(
        &self,
        netns: Option<&str>,
        name: &str,
        like: &Attributes,
        carrier: bool,
    ) -> Result<(), Error> {
        let request = Request::MakeAlike {
            netns: owned(netns),
            name: name.into(),
            like: like.into(),
            carrier,
        };
        let [] = self.ask(&request, &[])?;
        Ok(())
    }

    fn remove_address(&self, netns: Option<&str>, name: &str, cidr: Cidr) -> Result<(), Error> {
        let request = Request::RemoveAddress {
            netns: owned(netns),
            name: name.into(),
            address: (cidr.address, cidr.len),
        };
        let [] = self.ask(&request, &[])?;
        Ok(())
    }

    fn set(&self, setting: &Path, value: &str) -> Result<(), Error> {
        let (setting, value) = (setting.into(), value.into());
        let [] = self.ask(&Request::Set { setting, value }, &[])?;
        Ok(())
    }

    fn configuration(&self, _: &Path) -> io::Result<String> {
        let [file] = self.ask(&Request::Configuration, &[])?;
        io::read_to_string(File::from(file))
    }

    fn notes(&self, _: &Path) -> io::Result<String> {
        let [file] = self.ask(&Request::Notes, &[])?;
        io::read_to_string(File::from(file))
    }

    fn note(&self, _: &Path, text: &str) -> io::Result<()> {
        let text = text.into();
        let [] = self.ask(&Request::Note { text }, &[])?;
        Ok(())
    }

    fn is_alive(&self) -> bool {
        matches!(self.process().try_wait(), Ok(None))
    }
}
