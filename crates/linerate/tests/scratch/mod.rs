//! A directory that is removed with the test.

use linerate_core::env::PrivateFolder;

pub(crate) struct Scratch(PrivateFolder);

impl Scratch {
    /// `name` is for people.
    pub(crate) fn new(name: &str) -> Self {
        Self(PrivateFolder::new(name).unwrap())
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
