//! A file that a report goes to: checked before the run, complete or absent after it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use linerate_appliance::error::Error;
use linerate_appliance::files;

/// A reserved file. An older file stays until [`write`](Self::write).
pub(crate) struct Output {
    path: PathBuf,
    /// A file beside it, renamed over it when complete; `None` for a pipe or device, which is
    /// written directly.
    temporary: Option<PathBuf>,
    file: File,
}

impl Output {
    /// Checks that the file can be written.
    ///
    /// # Errors
    /// The file and why it cannot.
    pub(crate) fn reserve(path: &Path) -> Result<Self, Error> {
        let reserve = || {
            let special = match fs::metadata(path) {
                Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
                Ok(found) => !found.is_file(),
                Err(_) => false,
            };
            if special {
                let file = File::options().write(true).open(path)?;
                return Ok((None, file));
            }
            let (temporary, file) = files::create_beside(path)?;
            Ok((Some(temporary), file))
        };
        let (temporary, file) = reserve().map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
        Ok(Self {
            path: path.into(),
            temporary,
            file,
        })
    }

    /// Writes the text, and puts the file in its place.
    ///
    /// # Errors
    /// The file and why it cannot be written.
    pub(crate) fn write(mut self, text: &str) -> Result<(), Error> {
        let mut write = || {
            self.file.write_all(text.as_bytes())?;
            match self.temporary.take() {
                Some(temporary) => {
                    self.file.sync_all()?;
                    fs::rename(&temporary, &self.path).inspect_err(|_| {
                        let _ = fs::remove_file(&temporary);
                    })
                }
                None => Ok(()),
            }
        };
        write().map_err(|source| Error::File {
            path: self.path.clone(),
            source,
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::env::PrivateFolder;

    fn folder() -> PrivateFolder {
        PrivateFolder::new("output").unwrap()
    }

    /// The temporary name is predictable, and the folder may be writable for others.
    #[test]
    fn what_another_has_put_in_its_way_is_not_written_to() {
        let folder = folder();
        let (path, victim) = (folder.join("report.json"), folder.join("victim"));
        fs::write(&victim, "kept").unwrap();
        for name in ["", ".0"] {
            let guessed = format!(".report.json.{}{name}", std::process::id());
            std::os::unix::fs::symlink(&victim, folder.join(guessed)).unwrap();
        }
        Output::reserve(&path).unwrap().write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    }

    #[test]
    fn what_stood_there_stays_until_the_new_one_is_whole() {
        let folder = folder();
        let path = folder.join("report.json");
        fs::write(&path, "old").unwrap();
        drop(Output::reserve(&path).unwrap());
        let output = Output::reserve(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        output.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        // Nothing else is left.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = folder();
        for path in [folder.join("absent/report.json"), folder.path().into()] {
            let error = Output::reserve(&path).err().expect("it cannot be written");
            assert!(
                error.to_string().contains(&path.display().to_string()),
                "{error}"
            );
        }
    }

    #[test]
    fn a_device_is_written_and_not_replaced() {
        let path = Path::new("/dev/null");
        Output::reserve(path).unwrap().write("gone").unwrap();
        assert!(!fs::metadata(path).unwrap().is_file());
    }
}
