//! A folder of this process's own for temporary files.
//!
//! A predictable name is unsafe in a folder that others may write to: a symbolic link there would
//! make root write through it. This file does not depend on the rest of the crate, since lower
//! crates include it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names that others may have taken on purpose.
const TRIES: u32 = 10_000;

/// A new folder, mode 0700, in the one for temporary files (`$TMPDIR`). It is removed with this
/// value, with its contents.
///
/// ```
/// let folder = linerate_core::env::PrivateFolder::new("example")?;
/// std::fs::write(folder.join("notes"), "whose name nobody else can take")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Makes one; `name` is for users who look there.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), name)
    }

    fn within(parent: &Path, name: &str) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("linerate-{name}-{}-{number}", std::process::id()));
            // mkdir(2) takes no name that exists, be it of a link that leads nowhere.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => {
                    let why = format!("{}: {error}", parent.display());
                    return Err(io::Error::new(error.kind(), why));
                }
            }
        }
        Err(taken)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where a file of this name is in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // A leftover folder is harmless, and has a telling name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn a_private_folder_is_new_closed_to_others_and_removed_with_its_value() {
        let folder = PrivateFolder::new("test").unwrap();
        let found = fs::symlink_metadata(folder.path()).unwrap();
        assert!(found.is_dir() && found.mode() & 0o077 == 0, "{found:?}");
        fs::write(folder.join("file"), "text").unwrap();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    /// An attacker has guessed the names and made links there.
    #[test]
    fn names_that_others_have_taken_are_left_to_them() {
        let shared = PrivateFolder::new("shared").unwrap();
        let victim = shared.join("victim");
        fs::create_dir(&victim).unwrap();
        for number in 0..500 {
            let name = format!("linerate-guessed-{}-{number}", std::process::id());
            symlink(&victim, shared.join(name)).unwrap();
        }
        let folder = PrivateFolder::within(shared.path(), "guessed").unwrap();
        fs::write(folder.join("file"), "text").unwrap();
        assert!(!fs::symlink_metadata(folder.path()).unwrap().is_symlink());
        drop(folder);
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        assert_eq!(fs::read_dir(shared.path()).unwrap().count(), 501);
    }

    #[test]
    fn one_that_cannot_be_made_is_named() {
        let error = PrivateFolder::within(Path::new("/proc/none"), "test").unwrap_err();
        assert!(error.to_string().contains("/proc/none"), "{error}");
    }
}
