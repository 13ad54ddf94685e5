//! The scripts of `tests/drill` against linerate's own stack, in virtual time.

use linerate_drill::{Config, Outcome, parse, stack};
use std::path::{Path, PathBuf};

/// Scripts that our stack does not pass, with why: the first word of each reason is
/// `lacks` for what it does not have, `differs` for a choice that is not Linux'.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "icmp-syn",
        "differs: a soft error ends no first attempt (RFC 9293 3.9.2.2: MUST-56)",
    ),
    (
        "sws-receiver",
        "differs: SO_RCVBUF is the window, Linux doubles it and counts its overhead",
    ),
];

fn scripts() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/drill");
    let entries = std::fs::read_dir(folder).expect("tests/drill is a folder");
    let mut scripts: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    scripts.sort();
    scripts
}

fn run(path: &Path) -> Outcome {
    let text = std::fs::read_to_string(path).expect("readable");
    let script = parse(&text).unwrap_or_else(|fault| panic!("{}:{fault}", path.display()));
    let given = Config {
        tolerance_us: 10_000, // as the command has it, and these scripts need on Linux
        ..Config::default()
    };
    let config = given.with_options_of(&script).expect("options are right");
    stack::run(&script, &config)
}

#[test]
fn our_stack_does_what_the_scripts_say() {
    let (mut wrong, mut passed) = (Vec::new(), 0);
    for path in scripts() {
        let name = path.file_stem().expect("a file").to_string_lossy();
        let exception = EXCEPTIONS.iter().find(|(known, _)| *known == name);
        match (run(&path).fault, exception) {
            (None, None) => passed += 1,
            (Some(fault), None) => wrong.push(format!("{}:{fault}", path.display())),
            (None, Some((name, reason))) => {
                wrong.push(format!("{name} passes, and is an exception: {reason}"));
            }
            (Some(_), Some(_)) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{passed} scripts, {} exceptions", EXCEPTIONS.len());
}

#[test]
fn the_same_script_gives_the_same_outcome() {
    for path in scripts() {
        let run = || run(&path).fault.map(|fault| fault.to_string());
        assert_eq!(run(), run(), "{}", path.display());
    }
}
