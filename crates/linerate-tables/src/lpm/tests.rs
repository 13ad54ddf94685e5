//! What tests of both families share.

use super::file::{self, Prefixes};
use std::process::Command;

/// The real Internet table; the test is skipped where there is none.
pub(crate) fn real_prefixes() -> Option<Prefixes> {
    let path = linerate_testkit::data("internet-prefixes.txt.gz")?;
    let text = Command::new("zcat").arg(&path).output().unwrap();
    assert!(
        text.status.success(),
        "zcat {}: {}",
        path.display(),
        String::from_utf8_lossy(&text.stderr)
    );
    Some(file::read(&text.stdout[..]).unwrap())
}
