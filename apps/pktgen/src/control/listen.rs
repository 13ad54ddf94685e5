//! Where a session listens: Unix sockets that only their user reaches, and TCP with a token.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::wire::Wire;
use linerate_appliance::error::Error;
use linerate_appliance::socket::tcp::TcpDoor;
use linerate_appliance::socket::unix::{self, UnixDoor};

/// Shortest token in bytes.
const TOKEN_BYTES: usize = 16;

/// An address as users write it: `PATH`, `unix:PATH` or `tcp:ADDRESS:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(String),
}

impl Address {
    /// The usual Unix socket.
    pub(crate) fn usual() -> Self {
        Self::Unix(unix::usual("pktgen.sock"))
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

/// A socket that takes connections.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixDoor),
    Tcp(TcpDoor),
}

impl Listener {
    /// Listens on a Unix socket at `path`, mode 0600. Removes the socket that a dead process left
    /// there.
    ///
    /// # Errors
    /// A running session listens there, or the path cannot be written.
    pub(super) fn unix(path: &Path) -> Result<Self, Error> {
        let usual = Address::Unix(path.into()) == Address::usual();
        UnixDoor::open(path, usual, "--listen PATH (clients: --connect PATH)").map(Self::Unix)
    }

    /// Listens on TCP; also whether other machines can reach it.
    pub(super) fn tcp(address: &str) -> Result<(Self, SocketAddr), Error> {
        let wrong = |error: io::Error| Error::Usage {
            problem: format!("tcp:{address}: {error}"),
            fix: "name an address of this machine and a port that is free".into(),
        };
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(wrong)?.collect();
        let door = TcpDoor::open(addresses.as_slice()).map_err(wrong)?;
        let at = door.at;
        Ok((Self::Tcp(door), at))
    }

    /// The next client, where one came within `time_ms`. Over a Unix socket only processes of this
    /// user and root are admitted.
    pub(super) fn accept(&self, time_ms: u32) -> io::Result<Option<Wire>> {
        match self {
            Self::Unix(door) => Ok(door.accept(time_ms)?.map(Wire::Unix)),
            Self::Tcp(door) => match door.accept(time_ms)? {
                Some(stream) => {
                    stream.set_nodelay(true)?;
                    Ok(Some(Wire::Tcp(stream)))
                }
                None => Ok(None),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
    fn tokens_are_private_and_long() {
        let folder = linerate_core::env::PrivateFolder::new("listen").unwrap();
        let path = folder.join("token");
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
