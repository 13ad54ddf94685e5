//! System calls: from the script's words to a [`Call`]. What is to be answered is in [`answers`].
//!
//! [`answers`]: super::answers

use super::answers::{Effect, Expected, Length};
use super::arguments::{Arguments, address, field, mapped, number};
use super::values::{bytes_of, epoll_event, form_of, message_vector, option_value, vector};
use super::{Config, IpVersion, Pending, Runner, World};
use crate::call::{Call, Handle, Info, OptionForm, OptionValue, Out, Reply, SocketKind};
use crate::fault::{At, Fault};
use crate::names::error_name;
use crate::script::{CallSpec, Expr};
use std::net::{IpAddr, SocketAddr};

/// How long to wait for an answer beyond the tolerance, so as to say when it came.
const GRACE_US: i64 = 1_000_000;

impl<W: World> Runner<'_, W> {
    /// Makes a call; with `end_us`, one that returns then, and does not wait for it.
    pub(super) fn system_call(
        &mut self,
        at: At,
        spec: &CallSpec,
        end_us: Option<i64>,
    ) -> Result<(), Fault> {
        let args = Arguments::new(at, spec);
        if spec.name == "fcntl" && self.flags_only(&args, spec)? {
            return Ok(());
        }
        let (call, effect) = self.prepare(&args)?;
        let effect = self.note(&call, effect);
        let expected = Expected {
            at,
            name: spec.name.clone(),
            result: match &spec.result {
                Expr::Ellipsis => None,
                result => Some(number(result, at)?),
            },
            error: spec.error.clone(),
            effect,
        };
        let broken = |problem| Fault::mismatch(at, format!("{}: {problem}", spec.name));
        let Some(end_us) = end_us else {
            let reply = self.world.call(call).map_err(broken)?;
            return self.check_reply(expected, reply);
        };
        self.world.begin(call).map_err(broken)?;
        self.pending = Some(Pending {
            at,
            expected,
            from_us: self.last_us,
            end_us,
        });
        Ok(())
    }

    /// Waits for the call that blocks, if there is one, and checks when it returned.
    pub(super) fn finish_pending(&mut self) -> Result<(), Fault> {
        let Some(pending) = self.pending.take() else {
            return Ok(());
        };
        let share =
            (pending.end_us - pending.from_us) as f64 * self.config.tolerance_percent / 100.0;
        let slack = self.config.tolerance_us.max(share as i64);
        let name = &pending.expected.name;
        let expected = self.script_seconds(pending.end_us);
        let Some((at_us, reply)) = self.world.finished(pending.end_us + slack + GRACE_US) else {
            let problem = format!("{name} has not returned, not even 1 s after {expected:.6} s");
            return Err(Fault::mismatch(pending.at, problem));
        };
        if (at_us - pending.end_us).abs() > slack {
            let problem = format!(
                "{name} returned at {:.6} s, not at {expected:.6} s (tolerance {:.1} ms)",
                self.script_seconds(at_us),
                slack as f64 / 1e3
            );
            return Err(Fault::mismatch(pending.at, problem));
        }
        self.check_reply(pending.expected, reply)
    }

    /// `TCP_INFO` of the last socket that was accepted or connected.
    pub(super) fn info(&mut self, at: At) -> Result<Info, Fault> {
        let Some(handle) = self.subject else {
            return Ok(Info::new());
        };
        match self.world.call(Call::Info(handle)) {
            Ok(Reply {
                out: Out::Info(info),
                ..
            }) => Ok(info),
            Ok(Reply {
                result: Err(error), ..
            }) => {
                let problem = format!("TCP_INFO: {}", error_name(error));
                Err(Fault::mismatch(at, problem))
            }
            Ok(_) => Ok(Info::new()),
            Err(problem) => Err(Fault::unsupported(at, format!("TCP_INFO: {problem}"))),
        }
    }

    /// `F_GETFL` is answered here, for `O_NONBLOCK` is the script's own.
    fn flags_only(&mut self, args: &Arguments<'_>, spec: &CallSpec) -> Result<bool, Fault> {
        if args.int32(1)? != libc::F_GETFL {
            return Ok(false);
        }
        let handle = self.handle(args.int(0)?);
        let nonblocking = self.nonblocking.get(&handle).copied().unwrap_or(false);
        let flags = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
        let expected = number(&spec.result, args.at)?;
        if expected == i64::from(flags) {
            return Ok(true);
        }
        let problem = format!("fcntl returned {flags:#x}, not {expected:#x}");
        Err(Fault::mismatch(args.at, problem))
    }

    fn handle(&self, script: i64) -> Handle {
        self.handles.get(&script).copied().unwrap_or(-1)
    }

    fn is_stream(&self, handle: Handle) -> bool {
        let kind = self.kinds.get(&handle);
        kind.is_none_or(|kind| *kind == SocketKind::Stream)
    }

    fn bind_address(&self) -> SocketAddr {
        SocketAddr::new(
            as_socket(self.config, self.flows.local()),
            self.config.bind_port,
        )
    }

    fn remote_address(&self) -> SocketAddr {
        let ip = as_socket(self.config, self.flows.remote());
        SocketAddr::new(ip, self.config.connect_port)
    }

    /// What the packets that follow are about, and what they may have. The effect of the call, with
    /// that of a write.
    fn note(&mut self, call: &Call, effect: Effect) -> Effect {
        match call {
            Call::Listen(..) => self.flows.listen(self.config.bind_port),
            Call::Connect(handle, Some(remote)) if !self.is_stream(*handle) => {
                self.flows.send_to(on_wire(*remote));
            }
            Call::Connect(handle, Some(remote)) => {
                let stream = self.written.stream(*handle);
                self.flows.connect(on_wire(*remote), stream);
                self.subject = Some(*handle);
            }
            // It may connect anew, and then begins anew.
            Call::Connect(handle, None) => {
                self.written.open(*handle);
            }
            Call::Write(handle, data, _, to) if !self.is_stream(*handle) => {
                if let Some(remote) = to {
                    self.flows.send_to(on_wire(*remote));
                }
                return match self.kinds.get(handle) {
                    Some(SocketKind::Datagram) => Effect::Sends(data.clone()),
                    _ => effect,
                };
            }
            Call::Write(handle, data, flags, to) => {
                if let Some(remote) = to
                    && flags & libc::MSG_FASTOPEN != 0
                {
                    let stream = self.written.stream(*handle);
                    self.flows.connect(on_wire(*remote), stream);
                    self.subject = Some(*handle);
                }
                return Effect::Writes(self.written.offer(*handle, data));
            }
            _ => {}
        }
        effect
    }

    fn prepare(&mut self, args: &Arguments<'_>) -> Result<(Call, Effect), Fault> {
        let fd = |index| Ok::<_, Fault>(self.handle(args.int(index)?));
        let call = match args.name {
            "socket" => return self.socket(args),
            "bind" => {
                let address = args.address(1, self.bind_address())?;
                let address = address.ok_or_else(|| args.unsupported("AF_UNSPEC"))?;
                Call::Bind(fd(0)?, address)
            }
            "listen" => Call::Listen(fd(0)?, args.int32(1)?),
            "accept" | "accept4" => {
                let flags = if args.len() > 3 { args.int32(3)? } else { 0 };
                // The default means any, and is never compared.
                let peer = match args.expr(1)? {
                    Expr::Struct(_) => args.address(1, self.remote_address())?,
                    _ => None,
                };
                let effect = Effect::Opens {
                    nonblocking: flags & libc::SOCK_NONBLOCK != 0,
                    kind: Some(SocketKind::Stream),
                    accepted: Some(peer),
                };
                return Ok((Call::Accept(fd(0)?), effect));
            }
            "connect" => Call::Connect(fd(0)?, args.address(1, self.remote_address())?),
            "shutdown" => Call::Shutdown(fd(0)?, args.int32(1)?),
            "close" => {
                let script = args.int(0)?;
                return Ok((Call::Close(self.handle(script)), Effect::Closes(script)));
            }
            "read" | "recv" | "recvfrom" | "readv" | "recvmsg" => return self.read(args),
            "write" | "send" | "sendto" | "writev" | "sendmsg" => return self.write(args),
            "setsockopt" => {
                let value = option_value(args.expr(3)?, args.at)?;
                Call::SetOption(fd(0)?, args.int32(1)?, args.int32(2)?, value)
            }
            "getsockopt" => {
                let (handle, level, name) = (fd(0)?, args.int32(1)?, args.int32(2)?);
                let (form, effect) = match args.expr(3)? {
                    Expr::Ellipsis => (OptionForm::Int, Effect::Nothing),
                    expected => {
                        let value = option_value(expected, args.at)?;
                        (form_of(&value), Effect::Value(value))
                    }
                };
                return Ok((Call::GetOption(handle, level, name, form), effect));
            }
            "fcntl" => {
                if args.int32(1)? != libc::F_SETFL {
                    return Err(args.unsupported("other commands than F_GETFL and F_SETFL"));
                }
                let on = args.int32(2)? & libc::O_NONBLOCK != 0;
                let handle = fd(0)?;
                return Ok((Call::SetNonblocking(handle, on), Effect::Blocks(handle, on)));
            }
            "ioctl" => {
                let call = match args.int(1)? {
                    0x541b => Call::Unread(fd(0)?),
                    0x5411 => Call::Unacknowledged(fd(0)?),
                    _ => return Err(args.unsupported("other requests than SIOCINQ and SIOCOUTQ")),
                };
                let value = i32::try_from(args.int(2)?).map_err(|_| args.wrong("[bytes]"))?;
                return Ok((call, Effect::Value(OptionValue::Int(value))));
            }
            "poll" => return self.poll(args),
            "epoll_create" | "epoll_create1" => {
                let effect = Effect::Opens {
                    nonblocking: false,
                    kind: None,
                    accepted: None,
                };
                return Ok((Call::EpollCreate, effect));
            }
            "epoll_ctl" => {
                let (events, data) = match args.expr(3)? {
                    Expr::Struct(fields) => epoll_event(fields, args.at)?,
                    _ => (0, None),
                };
                let data = data.unwrap_or(0);
                Call::EpollControl(fd(0)?, args.int32(1)?, fd(2)?, events, data)
            }
            "epoll_wait" => return self.epoll_wait(args),
            name => {
                let problem = format!("the system call {name}");
                return Err(Fault::unsupported(args.at, problem));
            }
        };
        Ok((call, Effect::Nothing))
    }

    fn socket(&self, args: &Arguments<'_>) -> Result<(Call, Effect), Fault> {
        let is_v6 = match args.is_ellipsis(0) {
            true => self.config.ip_version != IpVersion::Ipv4,
            false => args.int32(0)? == libc::AF_INET6,
        };
        let kind = args.int32(1)?;
        let protocol = args.int32(2)?;
        let nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let kind = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            libc::SOCK_STREAM if matches!(protocol, 0 | libc::IPPROTO_TCP) => SocketKind::Stream,
            libc::SOCK_DGRAM => match protocol {
                libc::IPPROTO_ICMP | libc::IPPROTO_ICMPV6 => SocketKind::Ping,
                _ => SocketKind::Datagram,
            },
            _ => return Err(args.unsupported("another type or protocol")),
        };
        let effect = Effect::Opens {
            nonblocking,
            kind: Some(kind),
            accepted: None,
        };
        Ok((Call::Socket { is_v6, kind }, effect))
    }

    fn read(&self, args: &Arguments<'_>) -> Result<(Call, Effect), Fault> {
        let handle = self.handle(args.int(0)?);
        let (bytes, flags, data) = match args.name {
            "read" => (args.size(2)?, 0, None),
            "readv" => {
                let (bytes, data) = vector(args.expr(1)?, args.at)?;
                (bytes, 0, Some(data))
            }
            "recvmsg" => {
                let Expr::Struct(message) = args.expr(1)? else {
                    return Err(args.wrong("{msg_name(...)=..., msg_iov(1)=[{..., 1000}], ...}"));
                };
                let (bytes, data) = message_vector(args, message)?;
                let flags = field(message, "msg_flags").map_or(Ok(0), |flags| {
                    // Those that are answered, of which nothing is known.
                    number(flags, args.at)
                })?;
                let name = field(message, "msg_name");
                if flags != 0 || name.is_some_and(|name| *name != Expr::Ellipsis) {
                    return Err(args.unsupported("msg_flags, or an address"));
                }
                (bytes, args.int32(2)?, Some(data))
            }
            "recvfrom" if matches!(args.expr(4)?, Expr::Struct(_)) => {
                return Err(args.unsupported("an address"));
            }
            _ => (args.size(2)?, args.int32(3)?, None),
        };
        // Of a ping, a message's header is read too; of errors, what was sent.
        let is_other = flags & (libc::MSG_ERRQUEUE | libc::MSG_TRUNC) != 0;
        let effect = match (args.expr(1)?, data) {
            _ if is_other || self.kinds.get(&handle) == Some(&SocketKind::Ping) => Effect::Nothing,
            (_, Some(data)) => Effect::Fills(data),
            (Expr::Text(text), None) => match text.strip_suffix("...") {
                Some(start) => Effect::Reads(bytes_of(start), Length::Longer),
                None => Effect::Reads(bytes_of(text), Length::Exact),
            },
            _ => Effect::ReadsZeros,
        };
        Ok((Call::Read(handle, bytes, flags), effect))
    }

    fn write(&self, args: &Arguments<'_>) -> Result<(Call, Effect), Fault> {
        let handle = self.handle(args.int(0)?);
        let sized = || -> Result<Vec<u8>, Fault> {
            let mut data = match args.expr(1)? {
                Expr::Text(text) => bytes_of(text),
                Expr::Ellipsis => Vec::new(),
                _ => return Err(args.unsupported("an address of memory")),
            };
            data.resize(args.size(2)?, 0);
            Ok(data)
        };
        let (data, flags, to) = match args.name {
            "write" => (sized()?, 0, None),
            "writev" => (vector(args.expr(1)?, args.at)?.1, 0, None),
            "send" => (sized()?, args.int32(3)?, None),
            "sendto" => {
                let to = match args.expr(4)? {
                    Expr::Int(0) => None,
                    Expr::Word(word) if word == "NULL" => None,
                    _ => Some(
                        args.address(4, self.remote_address())?
                            .ok_or_else(|| args.unsupported("AF_UNSPEC"))?,
                    ),
                };
                (sized()?, args.int32(3)?, to)
            }
            _ => {
                let Expr::Struct(message) = args.expr(1)? else {
                    return Err(args.wrong("{msg_name(...)=..., msg_iov(1)=[{..., 1000}], ...}"));
                };
                let flags = args.int32(2)?;
                let to = match field(message, "msg_name") {
                    None => None,
                    // `...` is the remote host where the call connects, as packetdrill has it.
                    Some(Expr::Ellipsis) if flags & libc::MSG_FASTOPEN == 0 => None,
                    Some(name) => address(name, self.remote_address(), args.at)?,
                };
                (message_vector(args, message)?.1, flags, to)
            }
        };
        Ok((Call::Write(handle, data, flags, to), Effect::Nothing))
    }

    fn poll(&self, args: &Arguments<'_>) -> Result<(Call, Effect), Fault> {
        let Expr::List(items) = args.expr(0)? else {
            return Err(args.wrong("[{fd=4, events=POLLIN, revents=POLLIN}], 1, 0"));
        };
        let (mut handles, mut expected) = (Vec::new(), Vec::new());
        for item in items {
            let Expr::Struct(fields) = item else {
                return Err(args.wrong("[{fd=4, events=POLLIN}], 1, 0"));
            };
            let value = |name| field(fields, name).map_or(Ok(0), |value| number(value, args.at));
            handles.push((self.handle(value("fd")?), value("events")? as u32));
            expected.push((None, value("revents")? as u32));
        }
        Ok((
            Call::Poll(handles, args.int32(2)?),
            Effect::Events(expected),
        ))
    }

    fn epoll_wait(&self, args: &Arguments<'_>) -> Result<(Call, Effect), Fault> {
        let handle = self.handle(args.int(0)?);
        let items = match args.expr(1)? {
            Expr::List(items) => items.as_slice(),
            item => std::slice::from_ref(item),
        };
        let mut expected = Vec::new();
        for item in items {
            if let Expr::Struct(fields) = item {
                let (events, data) = epoll_event(fields, args.at)?;
                expected.push((data, events));
            }
        }
        let most = usize::try_from(args.int(2)?).unwrap_or(0).min(1024);
        let call = Call::EpollWait(handle, most, args.int32(3)?);
        Ok((call, Effect::Events(expected)))
    }
}

/// An IP address as the run's sockets have it.
fn as_socket(config: &Config, ip: IpAddr) -> IpAddr {
    match (config.ip_version, ip) {
        (IpVersion::Ipv4MappedIpv6, IpAddr::V4(ip)) => mapped(ip).into(),
        _ => ip,
    }
}

/// An address as packets have it.
pub(super) fn on_wire(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
