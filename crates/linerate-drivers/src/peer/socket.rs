//! Unix sockets between us and a peer: where they are, who may connect, and messages with
//! descriptors.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Longest path or abstract name: what `sun_path` has, less one byte.
const LONGEST: usize = 107;
/// Most descriptors that any message of our protocols has.
pub(crate) const MOST_FILES: usize = 8;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Where a Unix socket is: a path, or a name in the abstract name space, written `@name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnixAddress(String);

impl UnixAddress {
    /// Reads an address as a user writes it.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that says what it should be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix('@').unwrap_or(text);
        if name.is_empty() {
            return Err("the path of a Unix socket, or `@name` for an abstract one".into());
        }
        if name.len() > LONGEST {
            return Err(format!(
                "a socket's path or name of at most {LONGEST} bytes; this has {}",
                name.len()
            ));
        }
        if name.bytes().any(|byte| byte == 0) {
            return Err("a path without a byte of 0".into());
        }
        Ok(Self(text.into()))
    }

    /// The path; `None` for an abstract name.
    pub fn path(&self) -> Option<&Path> {
        (!self.0.starts_with('@')).then(|| Path::new(&self.0))
    }

    fn socket_address(&self) -> Result<SocketAddrUnix, Errno> {
        match self.0.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(self.0.as_str()),
        }
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixKind {
    /// Messages, each whole (`SOCK_SEQPACKET`).
    Messages,
    /// A stream (`SOCK_STREAM`).
    Stream,
}

/// Who may connect to a socket with a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixAccess {
    /// User that owns the path; `None`: who makes it.
    pub owner: Option<u32>,
    /// Permission bits; to connect takes the right to write. `None`: as the umask says.
    pub mode: Option<u32>,
}

impl UnixAccess {
    /// Reads a user's number, or a name of `/etc/passwd`.
    pub fn user(text: &str) -> Option<u32> {
        if let Ok(number) = text.parse() {
            return Some(number);
        }
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let mut fields = users.lines().map(|line| line.split(':'));
        let found = fields.find_map(|mut fields| {
            (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())
        });
        found.flatten()
    }

    /// Reads permission bits, in octal.
    pub fn mode(text: &str) -> Option<u32> {
        let mode = u32::from_str_radix(text, 8).ok()?;
        (mode <= 0o777).then_some(mode)
    }
}

fn socket(kind: UnixKind) -> io::Result<OwnedFd> {
    let kind = match kind {
        UnixKind::Messages => SocketType::SEQPACKET,
        UnixKind::Stream => SocketType::STREAM,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        kind,
        flags,
        None,
    )?)
}

/// Listens. A path that a dead process left is taken over; where somebody listens it is not.
///
/// # Errors
/// The kernel's, or [`io::ErrorKind::AddrInUse`] with who uses the path.
pub(crate) fn listen(
    address: &UnixAddress,
    kind: UnixKind,
    access: UnixAccess,
) -> io::Result<OwnedFd> {
    let listener = socket(kind)?;
    let to = address.socket_address()?;
    match rustix::net::bind(&listener, &to) {
        Err(Errno::ADDRINUSE) => {
            make_way(address, kind)?;
            rustix::net::bind(&listener, &to)?;
        }
        bound => bound?,
    }
    if let Some(path) = address.path() {
        // Before anybody can connect, which `listen` allows.
        if let Err(error) = give_access(path, access) {
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
    }
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Removes a socket's path if nobody listens there.
fn make_way(address: &UnixAddress, kind: UnixKind) -> io::Result<()> {
    let in_use = |what: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, what.to_owned()));
    let Some(path) = address.path() else {
        return in_use("another process listens on this name");
    };
    // To connect to a file that is no socket is refused as to a dead one.
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("the path is there and is no socket");
    }
    match connect(address, kind) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Ok(other) => {
            let who = peer_of(other.as_fd());
            let who = who.unwrap_or_else(|| "another process".into());
            in_use(&format!("{who} listens on this path"))
        }
        Err(_) => in_use("another process uses this path"),
    }
}

/// Gives away the socket that was just made at `path`, and nothing that somebody put in its place
/// meanwhile: whoever may write to the folder could lead root to a file of root's by a link.
fn give_access(path: &Path, access: UnixAccess) -> io::Result<()> {
    if access == UnixAccess::default() {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&made)?;
    let is_socket = FileType::from_raw_mode(stat.st_mode).is_socket();
    if !is_socket || stat.st_uid != rustix::process::geteuid().as_raw() {
        let what = format!("{}: replaced while it was made", path.display());
        return Err(io::Error::other(what));
    }
    if let Some(mode) = access.mode {
        // fchmod(2) does not take such a descriptor.
        let descriptor = format!("/proc/self/fd/{}", made.as_raw_fd());
        rustix::fs::chmod(descriptor, Mode::from_raw_mode(mode))?;
    }
    if let Some(owner) = access.owner {
        let owner = Some(Uid::from_raw(owner));
        rustix::fs::chownat(&made, "", owner, None, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Connects, without waiting.
///
/// # Errors
/// The kernel's: `ENOENT` where there is no such socket, `ECONNREFUSED` where nobody listens.
pub(crate) fn connect(address: &UnixAddress, kind: UnixKind) -> io::Result<OwnedFd> {
    let socket = socket(kind)?;
    rustix::net::connect(&socket, &address.socket_address()?)?;
    Ok(socket)
}

/// The next connection, if one waits.
///
/// # Errors
/// The kernel's.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::accept_with(listener, flags) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Who is at the other end of a socket: `process 4711 of user 1000`.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> Option<String> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    let (process, user) = (peer.pid.as_raw_nonzero(), peer.uid.as_raw());
    Some(format!("process {process} of user {user}"))
}

/// The user as which the peer of a connection runs.
pub(crate) fn user_of(socket: BorrowedFd<'_>) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    Some(peer.uid.as_raw())
}

/// What [`receive`] brought.
#[derive(Debug)]
pub(crate) enum Received {
    /// So many bytes at the buffer's start, and the descriptors that came with them.
    Message(usize, Vec<OwnedFd>),
    /// Nothing waits.
    Nothing,
    /// The other end is closed.
    Closed,
    /// More bytes than the buffer has room for, or more descriptors than allowed: all of them are
    /// closed.
    TooMuch,
}

/// Receives one message (of a stream: what is there) without waiting, with at most `most_files`
/// descriptors.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], most_files: usize) -> Received {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut parts = [IoSliceMut::new(buffer)];
    let message = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Closed,
    };
    let files: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    if message
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        || files.len() > most_files
    {
        return Received::TooMuch;
    }
    match message.bytes {
        0 => Received::Closed,
        bytes => Received::Message(bytes, files),
    }
}

/// Sends a message with at most [`MOST_FILES`] descriptors, without waiting; how many bytes went.
///
/// # Errors
/// The kernel's: `EAGAIN` where the peer reads too slowly, `EPIPE` where it is gone.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let many = files.len() > MOST_FILES;
    if many || !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        flags,
    )?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::peer::kick::new_eventfd;
    use linerate_testkit::Scratch;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn at(path: &Path) -> UnixAddress {
        UnixAddress::parse(path.to_str().unwrap()).unwrap()
    }

    #[test]
    fn addresses_are_checked_by_length() {
        assert!(UnixAddress::parse("").is_err() && UnixAddress::parse("@").is_err());
        for (prefix, name) in [("", "a"), ("@", "a")] {
            let longest = format!("{prefix}{}", name.repeat(107));
            assert!(
                UnixAddress::parse(&longest)
                    .unwrap()
                    .socket_address()
                    .is_ok()
            );
            let longer = format!("{longest}a");
            let error = UnixAddress::parse(&longer).unwrap_err();
            assert!(error.contains("107") && error.contains("108"), "{error}");
        }
    }

    #[test]
    fn a_path_of_the_dead_is_taken_over_and_one_of_the_living_is_not() {
        let folder = Scratch::new();
        let address = at(&folder.path().join("s"));
        let none = UnixAccess::default();
        let dead = listen(&address, UnixKind::Messages, none).unwrap();
        let error = listen(&address, UnixKind::Messages, none).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let us = std::process::id().to_string();
        assert!(error.to_string().contains(&us), "{error}");
        let error = listen(&address, UnixKind::Stream, none).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "of another kind");
        drop(dead);
        assert!(address.path().unwrap().exists());
        listen(&address, UnixKind::Messages, none).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(listen(&at(&file), UnixKind::Messages, none).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }

    #[test]
    fn owner_and_mode_are_as_asked() {
        assert_eq!(UnixAccess::user("0"), Some(0));
        assert_eq!(UnixAccess::user("root"), Some(0));
        assert_eq!(UnixAccess::user("no such user"), None);
        assert_eq!(UnixAccess::mode("0660"), Some(0o660));
        assert!(UnixAccess::mode("888").is_none() && UnixAccess::mode("1777").is_none());
        let folder = Scratch::new();
        let address = at(&folder.path().join("s"));
        let owner = rustix::process::geteuid().as_raw();
        let access = UnixAccess {
            owner: Some(owner),
            mode: Some(0o640),
        };
        let _listener = listen(&address, UnixKind::Stream, access).unwrap();
        let found = std::fs::metadata(address.path().unwrap()).unwrap();
        assert_eq!(
            (found.permissions().mode() & 0o777, found.uid()),
            (0o640, owner)
        );
    }

    fn pair(name: &str) -> (OwnedFd, OwnedFd) {
        let address = UnixAddress::parse(&format!("@lr-{name}-{}", std::process::id())).unwrap();
        let listener = listen(&address, UnixKind::Messages, UnixAccess::default()).unwrap();
        let client = connect(&address, UnixKind::Messages).unwrap();
        (accept(listener.as_fd()).unwrap().unwrap(), client)
    }

    #[test]
    fn messages_bring_their_files_and_too_many_are_closed() {
        let (a, b) = pair("files");
        let file = new_eventfd().unwrap();
        let mut buffer = [0; 8];
        assert!(matches!(
            receive(b.as_fd(), &mut buffer, 1),
            Received::Nothing
        ));
        assert_eq!(send(a.as_fd(), b"hello", &[file.as_fd()]).unwrap(), 5);
        let Received::Message(5, files) = receive(b.as_fd(), &mut buffer, 1) else {
            panic!("no message")
        };
        assert_eq!((files.len(), &buffer[..5]), (1, &b"hello"[..]));
        let flags = rustix::io::fcntl_getfd(&files[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        assert!(peer_of(b.as_fd()).unwrap().contains("process"));

        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        send(a.as_fd(), b"two", &[file.as_fd(); 2]).unwrap();
        assert!(matches!(
            receive(b.as_fd(), &mut buffer, 1),
            Received::TooMuch
        ));
        send(a.as_fd(), b"too long for it", &[file.as_fd()]).unwrap();
        assert!(matches!(
            receive(b.as_fd(), &mut buffer, 1),
            Received::TooMuch
        ));
        assert!(send(a.as_fd(), b"many", &[file.as_fd(); 9]).is_err());
        // Other tests open files at the same time, but hardly a hundred.
        let before = open();
        for _ in 0..200 {
            send(a.as_fd(), b"two", &[file.as_fd(); 2]).unwrap();
            assert!(matches!(
                receive(b.as_fd(), &mut buffer, 1),
                Received::TooMuch
            ));
        }
        assert!(open() < before + 100, "descriptors leak");
        drop(a);
        assert!(matches!(
            receive(b.as_fd(), &mut buffer, 1),
            Received::Closed
        ));
    }
}
