//! The scripts of `tests/drill` against this machine's kernel.

use linerate_drill::{Config, Kind, linux, parse_with};
use linerate_testkit::skip;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Scripts at a time: they mostly sleep.
const JOBS: usize = 6;
/// How often a script may fail: on a busy machine events come late.
const ATTEMPTS: usize = 4;

fn scripts() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/drill");
    let entries = std::fs::read_dir(folder).expect("tests/drill is a folder");
    let mut scripts: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    scripts.sort();
    scripts
}

fn run(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).expect("readable");
    let defines = linux::DEFINES.map(|(word, value)| (word.into(), value.into()));
    let script =
        parse_with(&text, &defines).map_err(|fault| format!("{}:{fault}", path.display()))?;
    let mut problem = String::new();
    for attempt in 0..ATTEMPTS {
        // More patience each time: what is wrong in substance fails with any.
        let given = Config {
            tolerance_us: 10_000 << attempt,
            strict_end: true,
            ..Config::default()
        };
        let config = given.with_options_of(&script).expect("options are right");
        let Some(fault) = linux::run(&script, &config, path).fault else {
            return Ok(());
        };
        problem = format!("{}:{fault}", path.display());
        if fault.kind != Kind::Mismatch {
            break;
        }
    }
    Err(problem)
}

#[test]
fn linux_does_what_the_scripts_say() {
    if let Err(why) = linux::available() {
        return skip(&why);
    }
    let (scripts, next) = (scripts(), AtomicUsize::new(0));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(path) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(problem) = run(path) {
                        failed.lock().unwrap().push(problem);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    println!("{} scripts", scripts.len());
}
