//! System calls with everything filled in: what the stack under test is asked, and its answer.
//!
//! Numbers of options, levels, flags and errors are Linux' (`libc`), on every target.

use std::net::SocketAddr;

/// A socket or an epoll instance, as the stack under test numbers it.
pub type Handle = i32;

/// One system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `socket`: answers with a handle.
    Socket {
        /// IPv6, and IPv4-mapped addresses.
        is_v6: bool,
        /// Its type.
        kind: SocketKind,
    },
    /// `bind`.
    Bind(Handle, SocketAddr),
    /// `listen` with this backlog.
    Listen(Handle, i32),
    /// `accept`: answers with a handle and the peer's address.
    Accept(Handle),
    /// `connect`; `None`: to `AF_UNSPEC`, which disconnects.
    Connect(Handle, Option<SocketAddr>),
    /// `read`, `recv`, `recvfrom`, `readv`, `recvmsg`: at most so many bytes, with `MSG_` flags.
    /// Answers with the bytes.
    Read(Handle, usize, i32),
    /// `write`, `send`, `sendto`, `writev`, `sendmsg`: these bytes, with `MSG_` flags, to this
    /// address.
    Write(Handle, Vec<u8>, i32, Option<SocketAddr>),
    /// `shutdown` with `SHUT_`.
    Shutdown(Handle, i32),
    /// `close`.
    Close(Handle),
    /// `setsockopt`: level, name, value.
    SetOption(Handle, i32, i32, OptionValue),
    /// `getsockopt`: level, name, and the value's form. Answers with the value.
    GetOption(Handle, i32, i32, OptionForm),
    /// `fcntl(F_SETFL)` with or without `O_NONBLOCK`.
    SetNonblocking(Handle, bool),
    /// `ioctl(SIOCINQ)`: answers with the bytes that can be read.
    Unread(Handle),
    /// `ioctl(SIOCOUTQ)`: answers with the bytes that are not acknowledged.
    Unacknowledged(Handle),
    /// `poll`: handles with events; and milliseconds, negative for ever. Answers with events.
    Poll(Vec<(Handle, u32)>, i32),
    /// `epoll_create`: answers with a handle.
    EpollCreate,
    /// `epoll_ctl`: on this instance, `EPOLL_CTL_`, a handle, events, and what they answer with.
    EpollControl(Handle, i32, Handle, u32, u64),
    /// `epoll_wait`: on this instance, at most so many events, milliseconds as of `Poll`.
    EpollWait(Handle, usize, i32),
    /// `getsockopt(TCP_INFO)`.
    Info(Handle),
}

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
    /// ICMP echo, `SOCK_DGRAM` with `IPPROTO_ICMP` or `IPPROTO_ICMPV6`.
    Ping,
}

/// The value of a socket option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A number.
    Int(i32),
    /// `struct linger`: on, seconds.
    Linger(bool, i32),
    /// `struct timeval`, in microseconds.
    Time(i64),
    /// A text, or any bytes.
    Bytes(Vec<u8>),
}

/// What form an option's value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionForm {
    /// [`OptionValue::Int`].
    Int,
    /// [`OptionValue::Linger`].
    Linger,
    /// [`OptionValue::Time`].
    Time,
    /// [`OptionValue::Bytes`].
    Bytes,
}

/// The fields of `TCP_INFO` by their names, `tcpi_snd_cwnd` and so on, in Linux' units.
pub type Info = Vec<(&'static str, u64)>;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the call returns, or the error's number.
    pub result: Result<i64, i32>,
    /// What it hands out besides.
    pub out: Out,
}

/// What a call hands out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Out {
    /// Nothing.
    #[default]
    Nothing,
    /// Bytes that were read.
    Bytes(Vec<u8>),
    /// The peer's address.
    Peer(SocketAddr),
    /// An option's value, or that of an `ioctl`.
    Value(OptionValue),
    /// Events: of `poll` in the order of its handles, of `epoll_wait` with their data.
    Events(Vec<(u64, u32)>),
    /// `TCP_INFO`.
    Info(Info),
}

impl Reply {
    /// A call that succeeded and hands nothing out.
    pub fn ok(value: i64) -> Self {
        Self {
            result: Ok(value),
            out: Out::Nothing,
        }
    }

    /// A call that succeeded.
    pub fn with(value: i64, out: Out) -> Self {
        Self {
            result: Ok(value),
            out,
        }
    }

    /// A call that failed with this error.
    pub fn error(number: i32) -> Self {
        Self {
            result: Err(number),
            out: Out::Nothing,
        }
    }
}
