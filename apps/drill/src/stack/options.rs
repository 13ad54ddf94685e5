//! Options of sockets of linerate's stack.

use super::OwnStack;
use super::calls::{Answer, Role, Socket};
use super::errors::{number_of, number_of_udp};
use super::ip::{self, Field};
use crate::call::{Handle, OptionForm, OptionValue, Out, Reply};
use libc::{IPPROTO_TCP, SOL_SOCKET};
use linerate_stack::socket::{Io, SocketId};
use linerate_stack::tcp::congestion::Algorithm;
use linerate_stack::tcp::connection::{Error, Keepalive};
use std::collections::BTreeMap;

/// Options by level and name: numbers, as they were set.
pub(super) type Options = BTreeMap<(i32, i32), i32>;

impl OwnStack {
    /// What a socket has that was told nothing else.
    fn usual(&mut self, field: Field) -> i32 {
        let settings = self.stack.settings();
        match field {
            Field::Class => i32::from(settings.dscp << 2),
            Field::Life => i32::from(settings.ttl),
        }
    }

    pub(super) fn set_option(
        &mut self,
        now_ns: u64,
        handle: Handle,
        option: (i32, i32),
        value: &OptionValue,
    ) -> Answer {
        let ip = ip::field_of(option).map(|field| (field, self.usual(field)));
        let socket = self.sockets.get_mut(&handle).ok_or(libc::EBADF)?;
        let Socket::Stream(stream) = socket else {
            if let Some((_, usual)) = ip {
                return self.set_ip_of_datagram(now_ns, handle, option, value, usual);
            }
            return match is_idle(option) {
                true => Ok(Reply::ok(0)),
                false => Err(libc::ENOPROTOOPT),
            };
        };
        let mut number = match value {
            OptionValue::Int(number) => *number,
            // A close that waits would block.
            OptionValue::Linger(true, 1..) => return Err(libc::ENOPROTOOPT),
            OptionValue::Linger(on, _) => i32::from(*on),
            OptionValue::Bytes(name) if option == (IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                let algorithm = Algorithm::from_name(&String::from_utf8_lossy(name));
                let algorithm = algorithm.ok_or(libc::ENOENT)?;
                match stream.role {
                    Role::Connection(id) => {
                        let mut io = self.stack.io(now_ns, &mut self.out);
                        io.set_algorithm(id, algorithm).map_err(number_of)?;
                    }
                    // It is chosen for connections to come, of this socket or of any.
                    _ => self.stack.settings().algorithm = algorithm,
                }
                return Ok(Reply::ok(0));
            }
            _ => return Err(libc::EINVAL),
        };
        match option {
            (SOL_SOCKET, libc::SO_RCVBUF) => {
                if let Role::Connection(_) = stream.role {
                    return Err(libc::ENOPROTOOPT);
                }
                let bytes = u32::try_from(number).map_err(|_| libc::EINVAL)?;
                let settings = self.stack.settings();
                (settings.receive_bytes, settings.receive_bytes_max) = (bytes, bytes);
            }
            (
                SOL_SOCKET,
                libc::SO_SNDBUF
                | libc::SO_KEEPALIVE
                | libc::SO_LINGER
                | libc::SO_OOBINLINE
                | libc::SO_MAX_PACING_RATE,
            ) => {}
            _ if is_idle(option) => {}
            _ if let Some((field, usual)) = ip => {
                number = ip::checked(option, number, usual)?;
                if field == Field::Class {
                    number = ip::without_ecn(number);
                }
            }
            // As Linux: TCP_MIN_MSS and MAX_TCP_WINDOW.
            (IPPROTO_TCP, libc::TCP_MAXSEG) if !(88..=32_767).contains(&number) => {
                return Err(libc::EINVAL);
            }
            // Those of the next connect or listen.
            (IPPROTO_TCP, libc::TCP_MAXSEG | libc::TCP_FASTOPEN) => {}
            (
                IPPROTO_TCP,
                libc::TCP_NODELAY
                | libc::TCP_CORK
                | libc::TCP_QUICKACK
                | libc::TCP_USER_TIMEOUT
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT,
            ) => {}
            _ => return Err(libc::ENOPROTOOPT),
        }
        stream.options.insert(option, number);
        if let Role::Connection(id) = stream.role {
            let one = Options::from([(option, number)]);
            let all = stream.options.clone();
            self.apply(now_ns, id, &one, &all)?;
        }
        match option {
            (IPPROTO_TCP, libc::TCP_MAXSEG | libc::TCP_FASTOPEN) => {
                self.listen_again(now_ns, handle)
            }
            _ if ip.is_some() => self.listen_again(now_ns, handle),
            _ => Ok(Reply::ok(0)),
        }
    }

    fn set_ip_of_datagram(
        &mut self,
        now_ns: u64,
        handle: Handle,
        option: (i32, i32),
        value: &OptionValue,
        usual: i32,
    ) -> Answer {
        let (Some(Socket::Datagram(socket)), OptionValue::Int(number)) =
            (self.sockets.get_mut(&handle), value)
        else {
            return Err(libc::EINVAL);
        };
        socket
            .options
            .insert(option, ip::checked(option, *number, usual)?);
        let bind = ip::of_datagram(&socket.options, Default::default());
        if let Some(id) = socket.id {
            let mut io = self.stack.io(now_ns, &mut self.out);
            let (udp, _, _) = io.udp();
            udp.set_tos(id, bind.tos).map_err(number_of_udp)?;
            udp.set_ttl(id, bind.ttl).map_err(number_of_udp)?;
        }
        Ok(Reply::ok(0))
    }

    /// Makes a connection as the options say that its socket had before.
    pub(super) fn apply_all(&mut self, now_ns: u64, id: SocketId, options: &Options) -> Answer {
        // Linux' default is not ours: RFC 6093 6 wants it in line.
        if !options.contains_key(&(SOL_SOCKET, libc::SO_OOBINLINE)) {
            let mut io = self.stack.io(now_ns, &mut self.out);
            io.set_urgent_apart(id, true).map_err(number_of)?;
        }
        self.apply(now_ns, id, options, options)
    }

    /// Makes those of `changed`; of the others, `all` has the values.
    fn apply(&mut self, now_ns: u64, id: SocketId, changed: &Options, all: &Options) -> Answer {
        let settings = self.stack.settings();
        let usual = Keepalive {
            idle_s: settings.keep_idle_s,
            interval_s: settings.keep_interval_s,
            count: settings.keep_count,
        };
        let mut io = self.stack.io(now_ns, &mut self.out);
        for (&(level, name), &value) in changed {
            let done = one(&mut io, id, (level, name), value, &usual, all);
            done.map_err(number_of)?;
        }
        Ok(Reply::ok(0))
    }

    pub(super) fn option(
        &mut self,
        now_ns: u64,
        handle: Handle,
        option: (i32, i32),
        form: OptionForm,
    ) -> Answer {
        if option == (SOL_SOCKET, libc::SO_ERROR) {
            let error = self.take_error(now_ns, handle)?;
            return Ok(int(error));
        }
        let ip = ip::field_of(option).map(|field| self.usual(field));
        let socket = self.sockets.get(&handle).ok_or(libc::EBADF)?;
        let options = match socket {
            Socket::Stream(stream) => &stream.options,
            Socket::Datagram(socket) => &socket.options,
            Socket::Epoll(_) => return Err(libc::ENOTSOCK),
        };
        if let Some(usual) = ip {
            let value = options.get(&option).copied();
            return Ok(int(value.unwrap_or(usual)));
        }
        let Socket::Stream(stream) = socket else {
            return Err(libc::ENOPROTOOPT);
        };
        // What was asked for is not what a connection has.
        let is_connected = matches!(stream.role, Role::Connection(_));
        let is_told = is_connected && option == (IPPROTO_TCP, libc::TCP_MAXSEG);
        if let Some(value) = stream.options.get(&option).filter(|_| !is_told) {
            return match form {
                OptionForm::Linger => {
                    let value = OptionValue::Linger(*value != 0, 0);
                    Ok(Reply::with(0, Out::Value(value)))
                }
                // As Linux tells it (socket(7)): with the overhead that it adds.
                _ if matches!(option, (SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF)) => {
                    Ok(int(value.saturating_mul(2)))
                }
                _ => Ok(int(*value)),
            };
        }
        let Role::Connection(id) = stream.role else {
            return Err(libc::ENOPROTOOPT);
        };
        let mut io = self.stack.io(now_ns, &mut self.out);
        let info = io.info(id).map_err(number_of)?;
        match option {
            (IPPROTO_TCP, libc::TCP_MAXSEG) => Ok(int(info.mss.into())),
            (IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let name = OptionValue::Bytes(info.algorithm.into());
                Ok(Reply::with(0, Out::Value(name)))
            }
            (IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) => Ok(int(0)),
            _ => Err(libc::ENOPROTOOPT),
        }
    }
}

/// Whether an option changes nothing here by its nature: ports are free when a script begins, and
/// no queue has priorities.
fn is_idle(option: (i32, i32)) -> bool {
    matches!(option, (SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_PRIORITY))
}

fn int(value: i32) -> Reply {
    Reply::with(0, Out::Value(OptionValue::Int(value)))
}

fn one(
    io: &mut Io<'_>,
    id: SocketId,
    option: (i32, i32),
    value: i32,
    usual: &Keepalive,
    all: &Options,
) -> Result<(), Error> {
    let is_on = value != 0;
    match option {
        (IPPROTO_TCP, libc::TCP_NODELAY) => io.set_no_delay(id, is_on),
        (IPPROTO_TCP, libc::TCP_CORK) => io.set_cork(id, is_on),
        (IPPROTO_TCP, libc::TCP_QUICKACK) => io.set_quick_ack(id, is_on),
        (IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => io.set_user_timeout(id, value.unsigned_abs()),
        (SOL_SOCKET, libc::SO_OOBINLINE) => io.set_urgent_apart(id, !is_on),
        (SOL_SOCKET, libc::SO_SNDBUF) => io.set_send_limit(id, value.unsigned_abs()),
        (SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
            io.set_pacing_limit(id, value.unsigned_abs().into())
        }
        (SOL_SOCKET, libc::SO_KEEPALIVE)
        | (IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => {
            let set = |level, name| all.get(&(level, name)).copied();
            let of = |name, usual: u16| {
                let value = set(IPPROTO_TCP, name).and_then(|value| u16::try_from(value).ok());
                value.unwrap_or(usual)
            };
            let is_on = set(SOL_SOCKET, libc::SO_KEEPALIVE).is_some_and(|value| value != 0);
            let count = of(libc::TCP_KEEPCNT, usual.count.into());
            let keepalive = Keepalive {
                idle_s: of(libc::TCP_KEEPIDLE, usual.idle_s),
                interval_s: of(libc::TCP_KEEPINTVL, usual.interval_s),
                count: u8::try_from(count).unwrap_or(u8::MAX),
            };
            io.set_keepalive(id, is_on.then_some(keepalive))
        }
        _ => match ip::field_of(option) {
            Some(Field::Class) => io.set_dscp(id, value as u8 >> 2),
            Some(Field::Life) => io.set_ttl(id, value as u8),
            None => Ok(()),
        },
    }
}
