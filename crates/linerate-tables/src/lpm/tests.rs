//! What tests of both families share.

use super::file::{self, Prefixes};
use std::process::Command;

/// The real Internet table; `None`, and a line that says so, where `LINERATE_DATA` does not name its
/// folder.
pub(crate) fn real_prefixes() -> Option<Prefixes> {
    let Some(folder) = std::env::var_os("LINERATE_DATA") else {
        println!(
            "SKIP the real Internet table: set LINERATE_DATA to the folder of internet-prefixes.txt.gz"
        );
        return None;
    };
    let path = std::path::Path::new(&folder).join("internet-prefixes.txt.gz");
    let text = Command::new("zcat").arg(&path).output().unwrap();
    assert!(
        text.status.success(),
        "zcat {}: {}",
        path.display(),
        String::from_utf8_lossy(&text.stderr)
    );
    Some(file::read(&text.stdout[..]).unwrap())
}
