//! A directory that goes away with the test.

use std::path::PathBuf;

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// `name` is one of the test's own: tests of one file run in one process.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("linerate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    /// Writes a file, and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
