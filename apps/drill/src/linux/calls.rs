//! The kernel's system calls.

use super::Shared;
use super::info;
use crate::call::{Call, Handle, OptionForm, OptionValue, Out, Reply, SocketKind};
use linerate_drivers::sockopt;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, acceptfrom_with, bind, connect,
    connect_unspec, ipproto, listen, recv, send, sendto, shutdown, socket_with,
};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Descriptors by number.
#[derive(Default)]
pub(super) struct Sockets {
    table: Mutex<HashMap<Handle, Shared>>,
    /// What new TCP sockets get, if it cannot be the name space's default.
    congestion_control: Mutex<Option<String>>,
}

type Answer = Result<Reply, Errno>;

impl Sockets {
    fn get(&self, handle: Handle) -> Result<Shared, Errno> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(&handle).cloned().ok_or(Errno::BADF)
    }

    fn add(&self, fd: OwnedFd) -> Reply {
        let handle = fd.as_raw_fd();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.insert(handle, Arc::new(fd));
        Reply::ok(i64::from(handle))
    }

    /// Sets the congestion control of TCP sockets that are made from now on.
    pub(super) fn set_congestion_control(&self, name: &str) {
        let mut wanted = self
            .congestion_control
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *wanted = Some(name.to_owned());
    }

    /// Forgets all.
    pub(super) fn take_all(&self) -> Vec<Shared> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.drain().map(|(_, fd)| fd).collect()
    }

    /// Makes a call, and blocks if it does.
    pub(super) fn make(&self, call: &Call) -> Reply {
        let answer = self.answer(call);
        answer.unwrap_or_else(|error| Reply::error(error.raw_os_error()))
    }

    fn answer(&self, call: &Call) -> Answer {
        match call {
            Call::Socket { is_v6, kind } => self.socket(*is_v6, *kind),
            Call::Bind(handle, address) => bind(self.get(*handle)?, address).map(done),
            Call::Listen(handle, backlog) => listen(self.get(*handle)?, *backlog).map(done),
            Call::Accept(handle) => {
                let listener = self.get(*handle)?;
                let (fd, peer) = acceptfrom_with(listener, SocketFlags::CLOEXEC)?;
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let out = peer.map_or(Out::Nothing, Out::Peer);
                Ok(Reply {
                    out,
                    ..self.add(fd)
                })
            }
            Call::Connect(handle, Some(address)) => connect(self.get(*handle)?, address).map(done),
            Call::Connect(handle, None) => connect_unspec(self.get(*handle)?).map(done),
            Call::Read(handle, bytes, flags) => {
                let mut buffer = vec![0; *bytes];
                let flags = RecvFlags::from_bits_retain(flags.cast_unsigned());
                let (len, _) = recv(self.get(*handle)?, buffer.as_mut_slice(), flags)?;
                buffer.truncate(len);
                Ok(Reply::with(len as i64, Out::Bytes(buffer)))
            }
            Call::Write(handle, data, flags, to) => {
                let socket = self.get(*handle)?;
                // A signal is no way to end a test.
                let flags = flags.cast_unsigned() | SendFlags::NOSIGNAL.bits();
                let flags = SendFlags::from_bits_retain(flags);
                let written = match to {
                    Some(to) => sendto(socket, data, flags, to)?,
                    None => send(socket, data, flags)?,
                };
                Ok(Reply::ok(written as i64))
            }
            Call::Shutdown(handle, how) => {
                let how = match *how {
                    libc::SHUT_RD => rustix::net::Shutdown::Read,
                    libc::SHUT_WR => rustix::net::Shutdown::Write,
                    libc::SHUT_RDWR => rustix::net::Shutdown::Both,
                    _ => return Err(Errno::INVAL),
                };
                shutdown(self.get(*handle)?, how).map(done)
            }
            Call::Close(handle) => {
                let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
                let closed = table.remove(handle);
                drop(table);
                closed.map(|_| Reply::ok(0)).ok_or(Errno::BADF)
            }
            Call::SetOption(handle, level, name, value) => {
                let socket = self.get(*handle)?;
                let bytes = option_bytes(value);
                sockopt::set(socket.as_fd(), *level, *name, &bytes).map_err(errno)?;
                Ok(Reply::ok(0))
            }
            Call::GetOption(handle, level, name, form) => {
                let mut bytes = [0; 256];
                let socket = self.get(*handle)?;
                let len = sockopt::get(socket.as_fd(), *level, *name, &mut bytes).map_err(errno)?;
                let value = option_value(*form, &bytes[..len]);
                Ok(Reply::with(0, value.map_or(Out::Nothing, Out::Value)))
            }
            Call::SetNonblocking(handle, on) => {
                let socket = self.get(*handle)?;
                let mut flags = fcntl_getfl(&socket)?;
                flags.set(OFlags::NONBLOCK, *on);
                fcntl_setfl(&socket, flags).map(done)
            }
            Call::Unread(handle) => {
                let bytes = rustix::io::ioctl_fionread(self.get(*handle)?)?;
                Ok(int_value(bytes as i32))
            }
            Call::Unacknowledged(handle) => {
                let socket = self.get(*handle)?;
                let bytes = sockopt::unacknowledged(socket.as_fd()).map_err(errno)?;
                Ok(int_value(bytes))
            }
            Call::Poll(handles, timeout) => self.poll(handles, *timeout),
            Call::EpollCreate => {
                let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                Ok(self.add(fd))
            }
            Call::EpollControl(instance, op, handle, events, data) => {
                let (instance, fd) = (self.get(*instance)?, self.get(*handle)?);
                let data = epoll::EventData::new_u64(*data);
                let events = epoll::EventFlags::from_bits_retain(*events);
                match *op {
                    libc::EPOLL_CTL_ADD => epoll::add(&instance, &fd, data, events)?,
                    libc::EPOLL_CTL_MOD => epoll::modify(&instance, &fd, data, events)?,
                    libc::EPOLL_CTL_DEL => epoll::delete(&instance, &fd)?,
                    _ => return Err(Errno::INVAL),
                }
                Ok(Reply::ok(0))
            }
            Call::EpollWait(instance, most, timeout) => {
                let instance = self.get(*instance)?;
                let mut events = Vec::with_capacity((*most).max(1));
                let timeout = timespec(*timeout);
                let buffer = rustix::buffer::spare_capacity(&mut events);
                epoll::wait(&instance, buffer, timeout.as_ref())?;
                let events: Vec<_> = events
                    .into_iter()
                    .map(|epoll::Event { flags, data }| (data.u64(), flags.bits()))
                    .collect();
                Ok(Reply::with(events.len() as i64, Out::Events(events)))
            }
            Call::Info(handle) => {
                let mut bytes = [0; info::BYTES];
                let socket = self.get(*handle)?;
                let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
                let len = sockopt::get(socket.as_fd(), level, name, &mut bytes).map_err(errno)?;
                Ok(Reply::with(0, Out::Info(info::fields(&bytes[..len]))))
            }
        }
    }

    fn socket(&self, is_v6: bool, kind: SocketKind) -> Answer {
        let family = if is_v6 {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let (type_, protocol) = match kind {
            SocketKind::Stream => (SocketType::STREAM, ipproto::TCP),
            SocketKind::Datagram => (SocketType::DGRAM, ipproto::UDP),
            SocketKind::Ping if is_v6 => (SocketType::DGRAM, ipproto::ICMPV6),
            SocketKind::Ping => (SocketType::DGRAM, ipproto::ICMP),
        };
        let fd = socket_with(family, type_, SocketFlags::CLOEXEC, Some(protocol))?;
        let wanted = self
            .congestion_control
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let (SocketKind::Stream, Some(name)) = (kind, wanted.as_deref()) {
            sockopt::set(
                fd.as_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_bytes(),
            )
            .map_err(errno)?;
        }
        Ok(self.add(fd))
    }

    fn poll(&self, handles: &[(Handle, u32)], timeout: i32) -> Answer {
        let sockets: Result<Vec<_>, _> = handles.iter().map(|(fd, _)| self.get(*fd)).collect();
        let sockets = sockets?;
        let fds = sockets.iter().zip(handles);
        let mut fds: Vec<_> = fds
            .map(|(fd, (_, events))| PollFd::new(fd, PollFlags::from_bits_retain(*events as u16)))
            .collect();
        let count = poll(&mut fds, timespec(timeout).as_ref())?;
        let events = fds
            .iter()
            .map(|fd| (0, u32::from(fd.revents().bits())))
            .collect();
        Ok(Reply::with(count as i64, Out::Events(events)))
    }
}

fn done((): ()) -> Reply {
    Reply::ok(0)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn int_value(value: i32) -> Reply {
    Reply::with(0, Out::Value(OptionValue::Int(value)))
}

/// `None`: for ever.
fn timespec(timeout_ms: i32) -> Option<Timespec> {
    (timeout_ms >= 0).then(|| Timespec {
        tv_sec: i64::from(timeout_ms / 1000),
        tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000,
    })
}

fn option_bytes(value: &OptionValue) -> Vec<u8> {
    match value {
        OptionValue::Int(value) => value.to_ne_bytes().to_vec(),
        OptionValue::Linger(on, seconds) => {
            let words = [i32::from(*on), *seconds];
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        }
        OptionValue::Time(us) => {
            let words = [us / 1_000_000, us % 1_000_000];
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        }
        OptionValue::Bytes(bytes) => bytes.clone(),
    }
}

fn option_value(form: OptionForm, bytes: &[u8]) -> Option<OptionValue> {
    let int = |at: usize| Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(i64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    match form {
        OptionForm::Int => int(0).map(OptionValue::Int),
        OptionForm::Linger => Some(OptionValue::Linger(int(0)? != 0, int(4)?)),
        OptionForm::Time => Some(OptionValue::Time(long(0)? * 1_000_000 + long(8)?)),
        OptionForm::Bytes => Some(OptionValue::Bytes(bytes.to_vec())),
    }
}
