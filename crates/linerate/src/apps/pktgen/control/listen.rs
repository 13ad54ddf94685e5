//! Where a session listens: Unix sockets that only their user reaches, and TCP with a token.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::wire::Wire;
use crate::error::Error;

/// Shortest token in bytes.
const TOKEN_BYTES: usize = 16;

/// An address as users write it: `PATH`, `unix:PATH` or `tcp:ADDRESS:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(String),
}

impl Address {
    /// The usual Unix socket: in `$XDG_RUNTIME_DIR`, or in a folder of the user's own under `/tmp`.
    pub(crate) fn usual() -> Self {
        let folder = std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute())
            .map_or_else(
                || PathBuf::from(format!("/tmp/linerate-{}", geteuid().as_raw())),
                |folder| folder.join("linerate"),
            );
        Self::Unix(folder.join("pktgen.sock"))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(address) = text.strip_prefix("tcp:") {
            return match address.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(address.into()))
                }
                _ => Err(format!(
                    "`{text}`: write tcp:ADDRESS:PORT, such as tcp:127.0.0.1:8590"
                )),
            };
        }
        match text.strip_prefix("unix:").unwrap_or(text) {
            "" => Ok(Self::usual()),
            path => Ok(Self::Unix(path.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// The secret that clients over TCP have to know.
///
/// # Errors
/// The file cannot be read, others may read it, or it says too little.
pub(crate) fn read_token(path: &Path) -> Result<String, Error> {
    let wrong = |source: io::Error| Error::File {
        path: path.into(),
        source,
    };
    let mode = fs::metadata(path).map_err(wrong)?.mode();
    if mode & 0o077 != 0 {
        return Err(Error::Usage {
            problem: format!("{}: others may read the token", path.display()),
            fix: format!("chmod 600 {}", path.display()),
        });
    }
    let text = fs::read_to_string(path).map_err(wrong)?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES {
        return Err(Error::Usage {
            problem: format!(
                "{}: a token of {} characters can be guessed",
                path.display(),
                token.len()
            ),
            fix: format!(
                "make one: `head -c 24 /dev/urandom | base64 > {}`",
                path.display()
            ),
        });
    }
    Ok(token.into())
}

/// A socket that takes connections. A Unix socket's file goes with it.
#[derive(Debug)]
pub(super) enum Listener {
    Unix {
        socket: UnixListener,
        path: PathBuf,
        /// Device and number of the file, by which ours is told from one that replaced it.
        file: (u64, u64),
    },
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a Unix socket at `path`, mode 0600. What a dead process left there is taken away.
    ///
    /// # Errors
    /// A session that lives listens there, or the place cannot be written.
    pub(super) fn unix(path: &Path) -> Result<Self, Error> {
        let wrong = |source: io::Error| Error::File {
            path: path.into(),
            source,
        };
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        if Address::Unix(path.into()) == Address::usual() {
            private_folder(folder)?;
        }
        // Two that start at once take turns: looking, taking away and binding is one step.
        let turn = File::open(folder).map_err(wrong)?;
        flock(turn.as_fd(), FlockOperation::LockExclusive).map_err(|error| wrong(error.into()))?;
        take_stale_away(path)?;
        let socket = UnixListener::bind(path).map_err(wrong)?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(wrong)?;
        socket.set_nonblocking(true).map_err(wrong)?;
        let found = fs::symlink_metadata(path).map_err(wrong)?;
        Ok(Self::Unix {
            socket,
            path: path.into(),
            file: (found.dev(), found.ino()),
        })
    }

    /// Listens on TCP; also whether other machines can reach it.
    pub(super) fn tcp(address: &str) -> Result<(Self, SocketAddr), Error> {
        let wrong = |error: io::Error| Error::Usage {
            problem: format!("tcp:{address}: {error}"),
            fix: "name an address of this machine and a port that is free".into(),
        };
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(wrong)?.collect();
        let socket = TcpListener::bind(addresses.as_slice()).map_err(wrong)?;
        socket.set_nonblocking(true).map_err(wrong)?;
        let at = socket.local_addr().map_err(wrong)?;
        Ok((Self::Tcp(socket), at))
    }

    /// The next client, where one came within `time_ms`. Over a Unix socket only processes of this
    /// user and root are let in.
    pub(super) fn accept(&self, time_ms: u32) -> io::Result<Option<Wire>> {
        let time = Timespec {
            tv_sec: i64::from(time_ms / 1000),
            tv_nsec: i64::from(time_ms % 1000) * 1_000_000,
        };
        let fd = match self {
            Self::Unix { socket, .. } => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&time),
        ) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted => Ok(None),
            _ => Err(error),
        };
        match self {
            Self::Unix { socket, .. } => match socket.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    let peer = socket_peercred(&stream)?.uid;
                    let ours = peer == geteuid() || peer.is_root();
                    Ok(ours.then_some(Wire::Unix(stream)))
                }
                Err(error) => gone(error),
            },
            Self::Tcp(socket) => match socket.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_nodelay(true)?;
                    Ok(Some(Wire::Tcp(stream)))
                }
                Err(error) => gone(error),
            },
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, file, .. } = self {
            let ours = |found: fs::Metadata| (found.dev(), found.ino()) == *file;
            if fs::symlink_metadata(&*path).is_ok_and(ours) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Makes the folder of the usual socket, and refuses one that is somebody else's.
fn private_folder(folder: &Path) -> Result<(), Error> {
    let wrong = |source: io::Error| Error::File {
        path: folder.into(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(wrong)?;
    let found = fs::symlink_metadata(folder).map_err(wrong)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(Error::Usage {
            problem: format!("{}: others may write there", folder.display()),
            fix: "name a socket in a folder of your own: --listen PATH".into(),
        });
    }
    Ok(())
}

/// Removes a socket that nobody listens on any more.
fn take_stale_away(path: &Path) -> Result<(), Error> {
    let wrong = |source: io::Error| Error::File {
        path: path.into(),
        source,
    };
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(wrong)?,
    };
    if !found.file_type().is_socket() {
        return Err(Error::Usage {
            problem: format!("{}: there is a file that is no socket", path.display()),
            fix: "name another place, or move the file away".into(),
        });
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let owner = socket_peercred(&stream).map(|peer| peer.pid.as_raw_nonzero().get());
            Err(Error::Usage {
                problem: format!(
                    "{}: a session listens there already: {}",
                    path.display(),
                    owner.map_or_else(|_| "of an unknown process".into(), process)
                ),
                fix: "name another place, --listen PATH, or speak to that session: --connect"
                    .into(),
            })
        }
        // A full queue is a listener, too.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(wrong)
        }
        Err(error) => Err(wrong(error)),
    }
}

/// `process 4711 (linerate pktgen -p ring:a)`
fn process(id: i32) -> String {
    let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let words: Vec<String> = words
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    match words.as_slice() {
        [] => format!("process {id}"),
        words => {
            let line: String = words.join(" ").chars().take(120).collect();
            format!("process {id} ({line})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("linerate-listen-{}-{name}", std::process::id()))
    }

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["unix:/run/x.sock", "tcp:127.0.0.1:8590", "tcp:[::1]:80"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("/a/b".parse(), Ok(Address::Unix("/a/b".into())));
        assert_eq!("".parse(), Ok(Address::usual()));
        for bad in ["tcp:", "tcp:80", "tcp:host:", "tcp:host:70000"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_live_socket_is_refused_a_dead_one_taken_away_and_ours_goes_with_us() {
        let path = scratch("life");
        let first = Listener::unix(&path).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = Listener::unix(&path).unwrap_err().to_string();
        let own = format!("process {}", std::process::id());
        assert!(refused.contains(&own), "{refused}");
        drop(first);
        assert!(!path.exists());
        // As a killed process leaves it.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Listener::unix(&path).unwrap();
        // Somebody else's by now: it stays.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        drop(second);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        let refused = Listener::unix(&path).unwrap_err().to_string();
        assert!(refused.contains("no socket"), "{refused}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn tokens_are_private_and_long() {
        let path = scratch("token");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read_token(&path)
        };
        assert_eq!(
            write("0123456789abcdef\n", 0o600).unwrap(),
            "0123456789abcdef"
        );
        let open = write("0123456789abcdef\n", 0o644).unwrap_err();
        assert!(open.fix().unwrap().starts_with("chmod 600"));
        assert!(
            write("short", 0o600)
                .unwrap_err()
                .to_string()
                .contains("guessed")
        );
        fs::remove_file(&path).unwrap();
        assert!(read_token(&path).is_err());
    }
}
