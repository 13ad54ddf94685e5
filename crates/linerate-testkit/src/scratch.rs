//! A directory of a test, removed when the test ends, also by a panic.

#[path = "../../linerate-core/src/env/private_folder.rs"]
#[allow(dead_code, unreachable_pub)]
mod private_folder;

use private_folder::PrivateFolder;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number for each thing that needs a name of its own.
pub fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The directory.
pub struct Scratch(PrivateFolder);

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// An empty one that every user may read and write: tcpdump gives up its privileges, and so do
    /// FRR and the router. What one puts there is nobody else's, as in /tmp.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = PrivateFolder::new("netns").unwrap();
        let open = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        Self(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file in it, as text for command lines.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
    /// Writes a file in it, and returns where it is, as text for command lines.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let file = self.file(name);
        std::fs::write(&file, content).unwrap();
        file
    }
}
