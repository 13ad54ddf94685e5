//! `cargo xtask unsafe-report`: the files that may hold unsafe code, and whether they stand where they may.
//!
//! The compiler denies `unsafe` wherever a file does not begin with [`MARK`], and clippy wants a `// SAFETY:`
//! comment at each block and `unsafe impl`, with one operation each. What is left to say here is which
//! files may bear the mark: where the layers of ARCHITECTURE.md have unsafe code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::TaskError;
use crate::process;

const MARK: &str = "#![allow(unsafe_code)]";

/// Which files may bear the mark: below this folder, with one of these names (or any).
const ROOMS: &[(&str, &[&str])] = &[
    ("crates/linerate-core/", &[]),
    ("crates/linerate-drivers/", &["sys.rs", "ring.rs"]),
    ("crates/linerate-tables/src/simd/", &[]),
];

/// Prints the files; fails if one may not bear the mark.
pub(crate) fn run() -> Result<ExitCode, TaskError> {
    let root = process::root();
    let mut sources = Vec::new();
    for folder in ["crates", "apps", "xtask", "fuzz", "tests"] {
        collect_rust(&root.join(folder), &mut sources)?;
    }
    sources.sort();
    let mut code = ExitCode::SUCCESS;
    for path in sources {
        let source = std::fs::read_to_string(&path).map_err(TaskError::file(&path))?;
        if !allows_unsafe(&source) {
            continue;
        }
        let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy();
        if has_room(&name) {
            println!("{name}");
        } else {
            println!(
                "{name}: `{MARK}` may not stand here: move the code below crates/linerate-core, or into \
                 a sys.rs or ring.rs of a driver"
            );
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Whether the lint is lifted, for the file or for a part of it.
fn allows_unsafe(source: &str) -> bool {
    let lifts = |line: &str| {
        let line = line.trim_start();
        let attribute = line.starts_with("#[") || line.starts_with("#![");
        attribute && line.contains("unsafe_code") && !line.contains("forbid(")
    };
    source.lines().any(lifts)
}

fn has_room(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    ROOMS.iter().any(|(folder, names)| {
        file.starts_with(folder) && (names.is_empty() || names.contains(&name))
    })
}

fn collect_rust(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), TaskError> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
        let path = entry.map_err(TaskError::file(folder))?.path();
        if path.is_dir() {
            // Crates outside the workspace (fuzz/libfuzzer) have a target folder of their own.
            if path.file_name().is_some_and(|name| name != "target") {
                collect_rust(&path, into)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MARK, allows_unsafe, has_room};

    #[test]
    fn only_attributes_lift_the_lint() {
        assert!(allows_unsafe(&format!("//! Rings.\n{MARK}\n")));
        assert!(allows_unsafe("    #[expect(unsafe_code)]\n    fn f() {}\n"));
        assert!(!allows_unsafe("#![forbid(unsafe_code)]\n"));
        assert!(!allows_unsafe(
            "// #![allow(unsafe_code)]\nconst A: &str = MARK;\n"
        ));
    }

    #[test]
    fn rooms_are_those_of_the_layers() {
        assert!(has_room("crates/linerate-core/src/mem/region.rs"));
        assert!(has_room("crates/linerate-drivers/src/af_xdp/ring.rs"));
        assert!(!has_room("crates/linerate-drivers/src/af_xdp/port.rs"));
        assert!(!has_room("crates/linerate/src/apps/mod.rs"));
    }
}
