//! Where an instance listens: a Unix socket that only its user and root reach.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use crate::error::Error;

/// Where the sockets of root's instances are, and of services (`RuntimeDirectory=linerate`).
const OF_THE_MACHINE: &str = "/run/linerate";

/// The usual place of a socket: the folder that systemd has made for a service, in
/// `$XDG_RUNTIME_DIR`, in `/run/linerate` for root, or in a folder of the user's own under `/tmp`.
pub fn usual(name: &str) -> PathBuf {
    let folder = |variable: &str| {
        let value = std::env::var_os(variable)?;
        // The first of several.
        let first = value.as_bytes().split(|&byte| byte == b':').next()?;
        let folder = PathBuf::from(OsStr::from_bytes(first));
        folder.is_absolute().then_some(folder)
    };
    if let Some(folder) = folder("RUNTIME_DIRECTORY") {
        // With DynamicUser=yes it may be a link.
        return fs::canonicalize(&folder).unwrap_or(folder).join(name);
    }
    let folder = match folder("XDG_RUNTIME_DIR") {
        Some(folder) => folder.join("linerate"),
        None if geteuid().is_root() => OF_THE_MACHINE.into(),
        None => PathBuf::from(format!("/tmp/linerate-{}", geteuid().as_raw())),
    };
    folder.join(name)
}

/// Where a client looks for an instance: at the usual place, and if nothing is there, at that of
/// the machine's service, if there is one.
pub fn found(name: &str) -> PathBuf {
    let is_there = |path: &Path| match fs::symlink_metadata(path) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
    };
    let (usual, service) = (usual(name), Path::new(OF_THE_MACHINE).join(name));
    match !is_there(&usual) && is_there(&service) {
        true => service,
        false => usual,
    }
}

/// A listening socket, mode 0600. Its file is removed with it.
#[derive(Debug)]
pub struct UnixDoor {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, to distinguish ours from one that replaced it.
    file: (u64, u64),
}

impl UnixDoor {
    /// Listens at `path`. Removes the socket of a dead process. `own_folder` makes the folder, and
    /// refuses one that others may write; `elsewhere` says how to name another place.
    ///
    /// # Errors
    /// A running process listens there, or the path cannot be written.
    pub fn open(path: &Path, own_folder: bool, elsewhere: &str) -> Result<Self, Error> {
        let wrong = |source: io::Error| Error::File {
            path: path.into(),
            source,
        };
        let folder = folder_of(path);
        // If it does not exist, the machine's folder is made, too.
        if own_folder || folder == Path::new(OF_THE_MACHINE) && !folder.exists() {
            private_folder(folder, elsewhere)?;
        }
        let _turn = turn(folder).map_err(wrong)?;
        take_stale_away(path, elsewhere)?;
        let socket = UnixListener::bind(path).map_err(wrong)?;
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(wrong)?;
        socket.set_nonblocking(true).map_err(wrong)?;
        let found = fs::symlink_metadata(path).map_err(wrong)?;
        Ok(Self {
            socket,
            path: path.into(),
            file: (found.dev(), found.ino()),
        })
    }

    /// The next client, where one came within `time_ms`. Only processes of this user and root are
    /// admitted.
    pub fn accept(&self, time_ms: u32) -> io::Result<Option<UnixStream>> {
        if !readable(self.socket.as_fd(), time_ms)? {
            return Ok(None);
        }
        match self.socket.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                let peer = socket_peercred(&stream)?.uid;
                let ours = peer == geteuid() || peer.is_root();
                Ok(ours.then_some(stream))
            }
            Err(error) => gone(error),
        }
    }
}

impl Drop for UnixDoor {
    fn drop(&mut self) {
        let ours = |found: fs::Metadata| (found.dev(), found.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a client waits at a listening socket, after at most `time_ms`.
pub(super) fn readable(fd: BorrowedFd<'_>, time_ms: u32) -> io::Result<bool> {
    let time = Timespec {
        tv_sec: i64::from(time_ms / 1000),
        tv_nsec: i64::from(time_ms % 1000) * 1_000_000,
    };
    match poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&time),
    ) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ignores the error of a client that closed before it was accepted.
pub(super) fn gone<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted => Ok(None),
        _ => Err(error),
    }
}

/// Makes the folder of the usual socket, and refuses one of another user.
fn private_folder(folder: &Path, elsewhere: &str) -> Result<(), Error> {
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
            fix: format!("name a socket in a folder of your own: {elsewhere}"),
        });
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// Locks a folder, so that two processes do not check, remove and bind a socket at the same time.
fn turn(folder: &Path) -> io::Result<File> {
    let turn = File::open(folder)?;
    flock(turn.as_fd(), FlockOperation::LockExclusive)?;
    Ok(turn)
}

/// Removes the socket of an ended process, unless another one listens there by now.
pub fn take_away(path: &Path) {
    if let Ok(_turn) = turn(folder_of(path)) {
        // Other files there are not ours.
        let _ = take_stale_away(path, "");
    }
}

/// Removes a socket without a listener.
fn take_stale_away(path: &Path, elsewhere: &str) -> Result<(), Error> {
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
            fix: format!("move the file away, or name another place: {elsewhere}"),
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
                fix: format!("connect to that one, or name another place: {elsewhere}"),
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
pub fn process(id: i32) -> String {
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
    use linerate_core::env::PrivateFolder;

    #[test]
    fn a_live_socket_is_refused_a_dead_one_replaced_and_our_own_removed_at_the_end() {
        let folder = PrivateFolder::new("unix").unwrap();
        let path = folder.join("life");
        let first = UnixDoor::open(&path, false, "PATH").unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = UnixDoor::open(&path, false, "PATH")
            .unwrap_err()
            .to_string();
        let own = format!("process {}", std::process::id());
        assert!(refused.contains(&own), "{refused}");
        drop(first);
        assert!(!path.exists());
        // As a killed process leaves it.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = UnixDoor::open(&path, false, "PATH").unwrap();
        // Another process has replaced it: it stays.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        drop(second);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        let refused = UnixDoor::open(&path, false, "PATH")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("no socket"), "{refused}");
        fs::remove_file(&path).unwrap();
    }
}
