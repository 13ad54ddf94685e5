//! System calls with the sockets of linerate's stack. None blocks: where one would, it answers with
//! `EAGAIN` or `EINPROGRESS`.

use super::OwnStack;
use super::errors::{number_of, number_of_kind, number_of_udp};
use super::info;
use super::ip;
use super::options::Options;
use crate::call::{Call, Handle, OptionValue, Out, Reply, SocketKind};
use linerate_stack::host::udp::{Bind, UdpId};
use linerate_stack::socket::{Connect, ConnectError, Listen, ListenerId, SocketId};
use linerate_stack::tcp::connection::{Error, State};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// An answer, or the number of an error.
pub(super) type Answer = Result<Reply, i32>;

/// How many may be open before their handshake is over.
const FAST_OPEN: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN);

/// Flags of calls that read and write, as far as they are done; who makes calls sees to
/// `MSG_DONTWAIT`, and signals there are none.
const READ_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_PEEK | libc::MSG_OOB;
const WRITE_FLAGS: i32 =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_OOB | libc::MSG_FASTOPEN;
/// Those of datagrams.
const DATAGRAM_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// What a handle stands for.
pub(super) enum Socket {
    Stream(Stream),
    Datagram(Datagram),
    Epoll(Epoll),
}

/// A TCP socket.
pub(super) struct Stream {
    is_v6: bool,
    bound: Option<SocketAddr>,
    pub(super) role: Role,
    pub(super) options: Options,
    /// Whether the error that ended it has been told: it is told once.
    pub(super) is_error_told: bool,
    /// Its reader wants no more.
    is_read_shut: bool,
    /// Of a listener, as its script has it.
    backlog: i32,
}

/// What a TCP socket has become.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Fresh,
    Listener(ListenerId),
    Connection(SocketId),
}

/// A UDP socket.
#[derive(Default)]
pub(super) struct Datagram {
    pub(super) id: Option<UdpId>,
    pub(super) options: Options,
}

/// Sockets that an instance watches, with events and data.
#[derive(Default)]
pub(super) struct Epoll {
    pub(super) watched: BTreeMap<Handle, (u32, u64)>,
}

impl Stream {
    fn new(is_v6: bool, role: Role) -> Self {
        Self {
            is_v6,
            bound: None,
            role,
            options: Options::new(),
            is_error_told: false,
            is_read_shut: false,
            backlog: 0,
        }
    }

    /// The longest segment that it may have.
    fn max_segment(&self) -> Option<u16> {
        let most = self.options.get(&(libc::IPPROTO_TCP, libc::TCP_MAXSEG))?;
        u16::try_from(*most).ok()
    }

    fn connection(&self) -> Result<SocketId, i32> {
        match self.role {
            Role::Connection(id) => Ok(id),
            _ => Err(libc::ENOTCONN),
        }
    }
}

impl OwnStack {
    pub(super) fn answer(&mut self, now_ns: u64, call: &Call) -> Answer {
        match call {
            Call::Socket { is_v6, kind } => match kind {
                SocketKind::Stream => self.add(Socket::Stream(Stream::new(*is_v6, Role::Fresh))),
                SocketKind::Datagram => self.add(Socket::Datagram(Datagram::default())),
                SocketKind::Ping => Err(libc::EPROTONOSUPPORT),
            },
            Call::Bind(handle, address) => self.bind(now_ns, *handle, canonical(*address)),
            Call::Listen(handle, backlog) => self.listen(now_ns, *handle, *backlog),
            Call::Accept(handle) => self.accept(now_ns, *handle),
            Call::Connect(handle, remote) => {
                let remote = remote.map(canonical);
                self.connect(now_ns, *handle, remote, None)
                    .map(|_| Reply::ok(0))
            }
            Call::Read(handle, bytes, flags) => self.read(now_ns, *handle, *bytes, *flags),
            Call::Write(handle, data, flags, to) => {
                self.write(now_ns, *handle, data, *flags, to.map(canonical))
            }
            Call::Shutdown(handle, how) => self.shutdown(now_ns, *handle, *how),
            Call::Close(handle) => self.close(now_ns, *handle),
            Call::SetOption(handle, level, name, value) => {
                self.set_option(now_ns, *handle, (*level, *name), value)
            }
            Call::GetOption(handle, level, name, form) => {
                self.option(now_ns, *handle, (*level, *name), *form)
            }
            // Who makes calls waits; the stack never does.
            Call::SetNonblocking(..) => Ok(Reply::ok(0)),
            Call::Unread(handle) => {
                let id = self.stream(*handle)?.connection()?;
                let bytes = self.stack.io(now_ns, &mut self.out).readable(id);
                Ok(value(bytes))
            }
            Call::Unacknowledged(handle) => {
                let id = self.stream(*handle)?.connection()?;
                let info = self.stack.io(now_ns, &mut self.out).info(id);
                let info = info.map_err(number_of)?;
                Ok(value((info.unacked_bytes + info.unsent_bytes) as usize))
            }
            Call::Poll(handles, _) => {
                let events = handles.iter().map(|(handle, wanted)| {
                    let always = (libc::POLLERR | libc::POLLHUP) as u32;
                    (0, self.readiness(now_ns, *handle) & (wanted | always))
                });
                let events: Vec<_> = events.collect();
                let count = events.iter().filter(|(_, events)| *events != 0).count();
                Ok(Reply::with(count as i64, Out::Events(events)))
            }
            Call::EpollCreate => self.add(Socket::Epoll(Epoll::default())),
            Call::EpollControl(instance, op, handle, events, data) => {
                self.watch(now_ns, *instance, *op, *handle, (*events, *data))
            }
            Call::EpollWait(instance, most, _) => self.wait(now_ns, *instance, *most),
            Call::Info(handle) => self.info(now_ns, *handle),
        }
    }

    fn add(&mut self, socket: Socket) -> Answer {
        let handle = self.next_handle;
        self.next_handle += 1;
        self.sockets.insert(handle, socket);
        Ok(Reply::ok(handle.into()))
    }

    pub(super) fn stream(&mut self, handle: Handle) -> Result<&mut Stream, i32> {
        match self.sockets.get_mut(&handle) {
            Some(Socket::Stream(stream)) => Ok(stream),
            Some(_) => Err(libc::EOPNOTSUPP),
            None => Err(libc::EBADF),
        }
    }

    fn bind(&mut self, now_ns: u64, handle: Handle, address: SocketAddr) -> Answer {
        match self.sockets.get_mut(&handle).ok_or(libc::EBADF)? {
            Socket::Stream(stream) => stream.bound = Some(address),
            Socket::Datagram(socket) => {
                let bind = Bind {
                    address: Some(address.ip()).filter(|ip| !ip.is_unspecified()),
                    port: address.port(),
                    ..ip::of_datagram(&socket.options, Bind::default())
                };
                let mut io = self.stack.io(now_ns, &mut self.out);
                let (udp, host, _) = io.udp();
                socket.id = Some(udp.bind(host, bind).map_err(number_of_udp)?);
            }
            Socket::Epoll(_) => return Err(libc::ENOTSOCK),
        }
        Ok(Reply::ok(0))
    }

    fn listen(&mut self, now_ns: u64, handle: Handle, backlog: i32) -> Answer {
        let only_cookies = self.only_cookies;
        let is_fast_open_for_all = self.is_fast_open_for_all;
        let stream = self.stream(handle)?;
        let bound = stream.bound.ok_or(libc::EDESTADDRREQ)?;
        let mut listen = Listen {
            address: Some(bound.ip()).filter(|ip| !ip.is_unspecified()),
            // As Linux: so many may wait, and one more.
            backlog: backlog.unsigned_abs().saturating_add(1),
            fast_open: match stream.options.get(&FAST_OPEN) {
                Some(most) => most.unsigned_abs(),
                None if is_fast_open_for_all => backlog.unsigned_abs(),
                None => 0,
            },
            max_segment: stream.max_segment(),
            ip: ip::of_stream(&stream.options),
            ..Listen::on(bound.port())
        };
        if only_cookies {
            listen.half_open = 0;
        }
        let listener = self.stack.io(now_ns, &mut self.out).listen(listen);
        let listener = listener.ok_or(libc::EADDRINUSE)?;
        let stream = self.stream(handle)?;
        (stream.role, stream.backlog) = (Role::Listener(listener), backlog);
        Ok(Reply::ok(0))
    }

    /// Listens anew, with options that were set meanwhile.
    pub(super) fn listen_again(&mut self, now_ns: u64, handle: Handle) -> Answer {
        let stream = self.stream(handle)?;
        let (Role::Listener(id), backlog) = (stream.role, stream.backlog) else {
            return Ok(Reply::ok(0));
        };
        self.stack.io(now_ns, &mut self.out).close_listener(id);
        self.listen(now_ns, handle, backlog)
    }

    fn accept(&mut self, now_ns: u64, handle: Handle) -> Answer {
        let stream = self.stream(handle)?;
        let Role::Listener(listener) = stream.role else {
            return Err(libc::EINVAL);
        };
        let (is_v6, options) = (stream.is_v6, stream.options.clone());
        let accepted = self.stack.io(now_ns, &mut self.out).accept(listener);
        let (id, peer) = accepted.ok_or(libc::EAGAIN)?;
        // It has them from its listener, as on Linux.
        self.apply_all(now_ns, id, &options)?;
        let mut stream = Stream::new(is_v6, Role::Connection(id));
        stream.options = options;
        let reply = self.add(Socket::Stream(stream))?;
        let peer = match peer.ip() {
            IpAddr::V4(ip) if is_v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), peer.port()),
            _ => peer,
        };
        Ok(Reply {
            out: Out::Peer(peer),
            ..reply
        })
    }

    /// Connects a socket, with `data` where that is of Fast Open: the answer is how much of it
    /// was taken.
    fn connect(
        &mut self,
        now_ns: u64,
        handle: Handle,
        remote: Option<SocketAddr>,
        data: Option<&[u8]>,
    ) -> Answer {
        if let Some(Socket::Datagram(_)) = self.sockets.get(&handle) {
            let remote = remote.ok_or(libc::EAFNOSUPPORT)?;
            let id = self.bound(now_ns, handle)?;
            let mut io = self.stack.io(now_ns, &mut self.out);
            let (udp, host, _) = io.udp();
            udp.connect(host, id, remote).map_err(number_of_udp)?;
            return Ok(Reply::ok(0));
        }
        let stream = self.stream(handle)?;
        let (role, bound, options) = (stream.role, stream.bound, stream.options.clone());
        let max_segment = stream.max_segment();
        let Some(remote) = remote else {
            if let Role::Connection(id) = role {
                self.stack.io(now_ns, &mut self.out).abort(id);
            }
            self.stream(handle)?.role = Role::Fresh;
            return Ok(Reply::ok(0));
        };
        let mut io = self.stack.io(now_ns, &mut self.out);
        match role {
            Role::Listener(_) => return Err(libc::EISCONN),
            Role::Connection(id) => {
                let info = io.info(id).map_err(number_of)?;
                return Err(match info.state {
                    State::SynSent | State::SynReceived => libc::EALREADY,
                    _ => libc::EISCONN,
                });
            }
            Role::Fresh => {}
        }
        let how = Connect {
            local: bound,
            data: data.unwrap_or(&[]),
            asks_cookie: data.is_some(),
            max_segment,
            ip: ip::of_stream(&options),
            ..Connect::to(remote)
        };
        let (id, taken) = io.open(&how).map_err(|error| match error {
            ConnectError::Unreachable(_) => libc::ENETUNREACH,
            ConnectError::NoPort(_) => libc::EADDRNOTAVAIL,
            ConnectError::NoRoom => libc::ENOBUFS,
        })?;
        self.apply_all(now_ns, id, &options)?;
        self.stream(handle)?.role = Role::Connection(id);
        match taken {
            0 => Err(libc::EINPROGRESS),
            taken => Ok(Reply::ok(taken as i64)),
        }
    }

    /// The UDP socket of a handle, bound to a free port if it is not bound.
    fn bound(&mut self, now_ns: u64, handle: Handle) -> Result<UdpId, i32> {
        let Some(Socket::Datagram(socket)) = self.sockets.get_mut(&handle) else {
            return Err(libc::EBADF);
        };
        if let Some(id) = socket.id {
            return Ok(id);
        }
        let bind = ip::of_datagram(&socket.options, Bind::default());
        let mut io = self.stack.io(now_ns, &mut self.out);
        let (udp, host, _) = io.udp();
        let id = udp.bind(host, bind).map_err(number_of_udp)?;
        socket.id = Some(id);
        Ok(id)
    }

    fn read(&mut self, now_ns: u64, handle: Handle, bytes: usize, flags: i32) -> Answer {
        let mut buffer = vec![0; bytes];
        self.check_flags(handle, flags, READ_FLAGS)?;
        if let Some(Socket::Datagram(_)) = self.sockets.get(&handle) {
            match self.take_error(now_ns, handle)? {
                0 => {}
                error => return Err(error),
            }
            let id = self.bound(now_ns, handle)?;
            let mut io = self.stack.io(now_ns, &mut self.out);
            let (udp, _, out) = io.udp();
            let received = udp.recv_into(id, &mut buffer, out).map_err(number_of_udp)?;
            buffer.truncate(received.ok_or(libc::EAGAIN)?.len);
            return Ok(Reply::with(buffer.len() as i64, Out::Bytes(buffer)));
        }
        let stream = self.stream(handle)?;
        let id = stream.connection()?;
        let is_read_shut = stream.is_read_shut;
        let mut io = self.stack.io(now_ns, &mut self.out);
        if flags & libc::MSG_OOB != 0 {
            return match io.read_urgent(id) {
                Ok(Some(byte)) => Ok(Reply::with(1, Out::Bytes(vec![byte]))),
                Ok(None) => Err(libc::EINVAL),
                Err(error) => Err(number_of(error)),
            };
        }
        let read = match flags & libc::MSG_PEEK {
            0 => io.read(id, &mut buffer),
            _ => {
                let mut seen = 0;
                let looked = io.consume(id, |next| {
                    seen = next.len().min(buffer.len());
                    buffer[..seen].copy_from_slice(&next[..seen]);
                    0
                });
                looked.map(|_| seen)
            }
        };
        match read {
            Ok(len) => {
                buffer.truncate(len);
                Ok(Reply::with(len as i64, Out::Bytes(buffer)))
            }
            // As Linux: what has come nevertheless is read, and then there is an end.
            Err(Error::WouldBlock) if is_read_shut => Ok(Reply::with(0, Out::Bytes(Vec::new()))),
            Err(Error::WouldBlock) => Err(libc::EAGAIN),
            // An error is told once; after it is the end.
            Err(error) => match std::mem::replace(&mut self.stream(handle)?.is_error_told, true) {
                false => Err(number_of(error)),
                true => Ok(Reply::with(0, Out::Bytes(Vec::new()))),
            },
        }
    }

    fn write(
        &mut self,
        now_ns: u64,
        handle: Handle,
        data: &[u8],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Answer {
        self.check_flags(handle, flags, WRITE_FLAGS)?;
        if let Some(Socket::Datagram(_)) = self.sockets.get(&handle) {
            let id = self.bound(now_ns, handle)?;
            let mut io = self.stack.io(now_ns, &mut self.out);
            let (udp, host, out) = io.udp();
            let sent = udp.send_to(host, id, data, to, now_ns, out);
            sent.map_err(number_of_udp)?;
            return Ok(Reply::ok(data.len() as i64));
        }
        let id = self.stream(handle)?.connection();
        let is_client = self.stack.settings().fast_open.client;
        if flags & libc::MSG_FASTOPEN != 0 && !is_client {
            return Err(libc::EOPNOTSUPP);
        }
        if flags & libc::MSG_FASTOPEN != 0 && self.stream(handle)?.role == Role::Fresh {
            return self.connect(now_ns, handle, to, Some(data));
        }
        let id = id.map_err(|_| libc::EPIPE)?;
        let cork = (libc::IPPROTO_TCP, libc::TCP_CORK);
        let corked = self.stream(handle)?.options.get(&cork).copied();
        let is_corked = corked.is_some_and(|on| on != 0);
        let mut io = self.stack.io(now_ns, &mut self.out);
        // More follows: what is no full segment waits for it (Linux: MSG_MORE).
        let has_more = flags & libc::MSG_MORE != 0;
        if has_more || is_corked {
            io.set_cork(id, true).map_err(number_of)?;
        }
        let written = match flags & libc::MSG_OOB {
            0 => io.write(id, data),
            _ => io.write_urgent(id, data),
        };
        if !has_more && !is_corked {
            let _ = io.set_cork(id, false);
        }
        match written {
            Ok(written) => Ok(Reply::ok(written as i64)),
            Err(Error::WouldBlock) => Err(libc::EAGAIN),
            Err(Error::Closed | Error::NotConnected) => Err(libc::EPIPE),
            Err(error) => match std::mem::replace(&mut self.stream(handle)?.is_error_told, true) {
                false => Err(number_of(error)),
                true => Err(libc::EPIPE),
            },
        }
    }

    /// Flags that are not done are refused, not passed over.
    fn check_flags(&self, handle: Handle, flags: i32, of_streams: i32) -> Result<(), i32> {
        let done = match self.sockets.get(&handle) {
            Some(Socket::Datagram(_)) => DATAGRAM_FLAGS,
            _ => of_streams,
        };
        match flags & !done {
            0 => Ok(()),
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    fn shutdown(&mut self, now_ns: u64, handle: Handle, how: i32) -> Answer {
        let stream = self.stream(handle)?;
        let id = stream.connection()?;
        stream.is_read_shut |= how != libc::SHUT_WR;
        if how != libc::SHUT_RD {
            let shut = self.stack.io(now_ns, &mut self.out).shutdown(id);
            shut.map_err(number_of)?;
        }
        Ok(Reply::ok(0))
    }

    fn close(&mut self, now_ns: u64, handle: Handle) -> Answer {
        let socket = self.sockets.remove(&handle).ok_or(libc::EBADF)?;
        for other in self.sockets.values_mut() {
            if let Socket::Epoll(epoll) = other {
                epoll.watched.remove(&handle);
            }
        }
        let mut io = self.stack.io(now_ns, &mut self.out);
        match socket {
            Socket::Stream(stream) => match stream.role {
                Role::Fresh => {}
                Role::Listener(id) => io.close_listener(id),
                Role::Connection(id) => {
                    let linger = (libc::SOL_SOCKET, libc::SO_LINGER);
                    match stream.options.get(&linger) {
                        Some(1) => io.abort(id),
                        _ => io.close(id),
                    }
                }
            },
            Socket::Datagram(Datagram { id: Some(id), .. }) => {
                let (udp, host, out) = io.udp();
                udp.close(host, id, out).map_err(number_of_udp)?;
            }
            Socket::Datagram(_) | Socket::Epoll(_) => {}
        }
        Ok(Reply::ok(0))
    }

    /// The error of a socket that nobody was told yet, or 0; it is told now.
    pub(super) fn take_error(&mut self, now_ns: u64, handle: Handle) -> Result<i32, i32> {
        let mut io = self.stack.io(now_ns, &mut self.out);
        match self.sockets.get_mut(&handle).ok_or(libc::EBADF)? {
            Socket::Stream(stream) => {
                let Role::Connection(id) = stream.role else {
                    return Ok(0);
                };
                match io.error(id) {
                    Some(error) if !std::mem::replace(&mut stream.is_error_told, true) => {
                        Ok(number_of(error))
                    }
                    _ => Ok(0),
                }
            }
            Socket::Datagram(Datagram { id: Some(id), .. }) => {
                let fault = io.udp().0.take_fault(*id).map_err(number_of_udp)?;
                Ok(fault.map_or(0, |fault| number_of_kind(fault.kind)))
            }
            Socket::Datagram(_) | Socket::Epoll(_) => Ok(0),
        }
    }

    fn info(&mut self, now_ns: u64, handle: Handle) -> Answer {
        let id = self.stream(handle)?.connection()?;
        let mut io = self.stack.io(now_ns, &mut self.out);
        let facts = io.info(id).map_err(number_of)?;
        let (local, remote) = io.addresses(id).map_err(number_of)?;
        let host = self.stack.host();
        let mtu = host.path(Some(local.ip()), remote.ip());
        let mtu = mtu.map_or(0, |(path, _)| host.mtu(path, remote.ip(), now_ns).bytes);
        let fields = info::fields(&facts, self.stack.tcp_stats(), mtu);
        Ok(Reply::with(0, Out::Info(fields)))
    }
}

/// IPv4 where it is mapped (RFC 4291 2.5.5.2).
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn value(bytes: usize) -> Reply {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    Reply::with(0, Out::Value(OptionValue::Int(bytes)))
}
