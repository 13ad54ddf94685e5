//! `cargo xtask unsafe-report`: where the unsafe code is, and whether it may be there.
//!
//! A file with `unsafe` must stand where DESIGN's layers allow it ([`ROOMS`]), be listed in
//! `xtask/unsafe-allowed.txt` (so that a new one shows up in review), and explain each block and each
//! `unsafe impl` with a `// SAFETY:` comment directly above.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::error::TaskError;
use crate::process;
use crate::rust_scan::{Kind, find_unsafe};

/// Which files may hold unsafe code at all: below this folder, with one of these names (or any).
const ROOMS: &[(&str, &[&str])] = &[
    ("crates/linerate-core/", &[]),
    ("crates/linerate-drivers/", &["sys.rs", "ring.rs"]),
    ("crates/linerate-tables/src/simd/", &[]),
];

const ALLOWED: &str = "xtask/unsafe-allowed.txt";
const HEADER: &str = "\
# Files that may hold unsafe code, one a line; `cargo xtask unsafe-report --update` rewrites this list.
# Where such files may be at all is decided in xtask/src/unsafe_report.rs.
";

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Rewrite the list of allowed files to what there is (review the difference)
    #[arg(long)]
    update: bool,
}

#[derive(Serialize, Default)]
struct Row {
    file: String,
    blocks: usize,
    fns: usize,
    impls: usize,
    other: usize,
}

#[derive(Serialize, Default)]
struct Report {
    files: Vec<Row>,
    faults: Vec<String>,
}

/// Prints the report; fails if there is a fault.
pub(crate) fn run(options: &Options) -> Result<ExitCode, TaskError> {
    let root = process::root();
    let list = root.join(ALLOWED);
    let mut sources = Vec::new();
    for folder in ["crates", "xtask", "fuzz", "tests", "benches"] {
        collect_rust(&root.join(folder), &mut sources)?;
    }
    sources.sort();
    let mut scanned = BTreeMap::new();
    for path in sources {
        let name = path
            .strip_prefix(&root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        let source = std::fs::read_to_string(&path).map_err(TaskError::file(&path))?;
        scanned.insert(name, source);
    }
    if options.update {
        let text: String = std::iter::once(HEADER.to_owned())
            .chain(with_unsafe(&scanned).map(|name| format!("{name}\n")))
            .collect();
        std::fs::write(&list, text).map_err(TaskError::file(&list))?;
    }
    let allowed = std::fs::read_to_string(&list).map_err(TaskError::file(&list))?;
    let report = examine(&scanned, &allowed);
    if options.json {
        println!("{}", serde_json::json!(report));
    } else {
        print(&report);
    }
    Ok(if report.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn with_unsafe(scanned: &BTreeMap<String, String>) -> impl Iterator<Item = &String> {
    scanned
        .iter()
        .filter(|(name, source)| has_room(name) && !find_unsafe(source).is_empty())
        .map(|(name, _)| name)
}

fn has_room(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    ROOMS.iter().any(|(folder, names)| {
        file.starts_with(folder) && (names.is_empty() || names.contains(&name))
    })
}

fn examine(scanned: &BTreeMap<String, String>, allowed: &str) -> Report {
    let mut unused: BTreeSet<&str> = allowed
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut report = Report::default();
    for (file, source) in scanned {
        let found = find_unsafe(source);
        if found.is_empty() {
            continue;
        }
        let mut row = Row {
            file: file.clone(),
            ..Row::default()
        };
        let listed = unused.remove(file.as_str());
        if !has_room(file) {
            report.faults.push(format!(
                "{file}:{}: unsafe is not allowed here: move it below crates/linerate-core, or into a sys.rs or ring.rs of a driver",
                found[0].line
            ));
        } else if !listed {
            report.faults.push(format!(
                "{file}:{}: a new file with unsafe code: if that is meant, `cargo xtask unsafe-report --update`",
                found[0].line
            ));
        }
        for item in found {
            match item.kind {
                Kind::Block => row.blocks += 1,
                Kind::Fn => row.fns += 1,
                Kind::Impl => row.impls += 1,
                Kind::Trait | Kind::Extern | Kind::Attribute => row.other += 1,
            }
            if matches!(item.kind, Kind::Block | Kind::Impl) && !item.explained {
                report.faults.push(format!(
                    "{file}:{}: no `// SAFETY:` comment directly above: say which invariant makes this sound",
                    item.line
                ));
            }
        }
        report.files.push(row);
    }
    for file in unused {
        report.faults.push(format!(
            "{ALLOWED}: {file} has no unsafe code (any more): `cargo xtask unsafe-report --update`"
        ));
    }
    report
}

fn print(report: &Report) {
    println!(
        "{:60} {:>6} {:>5} {:>5} {:>5}",
        "file", "blocks", "fns", "impls", "other"
    );
    let mut total = Row::default();
    for row in &report.files {
        println!(
            "{:60} {:6} {:5} {:5} {:5}",
            row.file, row.blocks, row.fns, row.impls, row.other
        );
        total.blocks += row.blocks;
        total.fns += row.fns;
        total.impls += row.impls;
        total.other += row.other;
    }
    println!(
        "{:60} {:6} {:5} {:5} {:5}",
        format!("{} files", report.files.len()),
        total.blocks,
        total.fns,
        total.impls,
        total.other
    );
    for fault in &report.faults {
        println!("{fault}");
    }
}

fn collect_rust(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), TaskError> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(TaskError::file(folder))? {
        let path = entry.map_err(TaskError::file(folder))?.path();
        if path.is_dir() {
            // Crates outside the workspace (fuzz/engine) have a target folder of their own.
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
    use std::collections::BTreeMap;

    use super::examine;

    const EXPLAINED: &str = "// SAFETY: no state.\nunsafe impl Send for X {}\n";

    fn faults(files: &[(&str, &str)], allowed: &str) -> Vec<String> {
        let scanned: BTreeMap<String, String> = files
            .iter()
            .map(|(name, source)| (name.to_string(), source.to_string()))
            .collect();
        examine(&scanned, allowed).faults
    }

    #[test]
    fn listed_and_explained_is_fine() {
        let core = "crates/linerate-core/src/mem/region.rs";
        let ring = "crates/linerate-drivers/src/af_xdp/ring.rs";
        let list = format!("# comment\n{core}\n{ring}\n");
        assert_eq!(
            faults(&[(core, EXPLAINED), (ring, EXPLAINED)], &list),
            [""; 0]
        );
    }

    #[test]
    fn each_rule_has_its_fault() {
        let core = "crates/linerate-core/src/mem/region.rs";
        let driver = "crates/linerate-drivers/src/af_xdp/port.rs";
        assert!(faults(&[(core, EXPLAINED)], "")[0].contains("a new file"));
        assert!(faults(&[(driver, EXPLAINED)], driver)[0].contains("not allowed here"));
        assert!(faults(&[(core, "unsafe { x }")], core)[0].contains("no `// SAFETY:`"));
        assert!(faults(&[], core)[0].contains("no unsafe code"));
    }
}
