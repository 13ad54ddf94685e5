//! Files in folders that others may write to as well.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

/// A new, empty file beside `path`, hidden, to be renamed over it when it is complete. Links of
/// other users are not followed.
///
/// # Errors
/// `path` does not name a file, or its folder cannot be written.
pub fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut number = 0;
    loop {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.{number}", std::process::id()));
        let beside = path.with_file_name(hidden);
        match File::create_new(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => {
                number += 1;
            }
            made => return Ok((beside, made?)),
        }
    }
}

/// Replaces the file at `path` by one with this text.
///
/// # Errors
/// Its folder cannot be written, or the disk is full: then the old file stays.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (beside, mut file) = create_beside(path)?;
    file.write_all(text.as_bytes())
        .and_then(|()| fs::rename(&beside, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })
}

/// Opens a file that only root or this user can have written.
///
/// # Errors
/// There is none, it belongs to another user, or it is a link or not a regular file.
pub fn open_own(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::open(path, flags, Mode::empty())?;
    let file = File::from(file);
    let found = file.metadata()?;
    let ours = found.uid() == 0 || found.uid() == geteuid().as_raw();
    match found.is_file() && ours {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is no file of root or of this user",
        )),
    }
}

/// The text of a file that [`open_own`] opens.
///
/// # Errors
/// Those of [`open_own`]; or it is not text.
pub fn read_own(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_own(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_core::env::PrivateFolder;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn links_that_others_put_there_are_not_followed() {
        let folder = PrivateFolder::new("links").unwrap();
        let (victim, path) = (folder.join("victim"), folder.join("notes"));
        fs::write(&victim, "kept").unwrap();
        let guessed = folder.join(format!(".notes.{}.0", std::process::id()));
        symlink(&victim, guessed).unwrap();
        symlink(&victim, &path).unwrap();
        assert!(read_own(&path).is_err());
        replace(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(read_own(&path).unwrap(), "new");
        replace(&path, "newer").unwrap();
        assert_eq!(read_own(&path).unwrap(), "newer");
        // Nothing else is left.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn files_of_others_are_not_read() {
        let folder = PrivateFolder::new("others").unwrap();
        let path = folder.join("notes");
        replace(&path, "text").unwrap();
        if chown(&path, Some(65534), None).is_err() {
            linerate_testkit::skip("files of others: only root can give one away");
            return;
        }
        assert!(read_own(&path).is_err());
        assert!(read_own(folder.path()).is_err());
    }
}
