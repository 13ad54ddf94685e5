//! The scripts of `tests/drill` against linerate's own stack, in virtual time.

use linerate_drill::{Config, Kind, Outcome, parse, parse_with, stack};
use std::path::{Path, PathBuf};

/// A script that our stack does not pass.
struct Exception {
    script: &'static str,
    /// Where it fails, and a part of what is said there.
    line: u32,
    fault: &'static str,
    /// Why: its first word is `lacks` for what the stack does not have, `differs` for a choice
    /// that is not Linux'.
    reason: &'static str,
}

/// A check of `cargo xtask` reads the names here: the page of clauses cites none of them.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        script: "icmp-syn",
        line: 9,
        fault: "getsockopt answered Int(0), not Int(113)",
        reason: "differs: a soft error ends no first attempt (RFC 9293 3.9.2.2: MUST-56)",
    },
    Exception {
        script: "sws-receiver",
        line: 16,
        fault: "acknowledgment number is 8001, not 13141; sent was . 1:1(0) ack 8001 win 0",
        reason: "differs: SO_RCVBUF is the window, Linux doubles it and counts its overhead",
    },
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
    let defines = stack::DEFINES.map(|(word, value)| (word.into(), value.into()));
    let script = parse_with(&text, &defines);
    let script = script.unwrap_or_else(|fault| panic!("{}:{fault}", path.display()));
    let given = Config {
        tolerance_us: 10_000, // as the command has it, and these scripts need on Linux
        strict_end: true,
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
        let exception = EXCEPTIONS.iter().find(|known| known.script == name);
        match (run(&path).fault, exception) {
            (None, None) => passed += 1,
            (None, Some(known)) => {
                let reason = known.reason;
                wrong.push(format!("{name} passes, and is an exception: {reason}"));
            }
            (Some(fault), Some(known))
                if fault.kind == Kind::Mismatch
                    && fault.at.line == known.line
                    && fault.problem.contains(known.fault) => {}
            (Some(fault), _) => wrong.push(format!("{}:{fault}", path.display())),
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

const LISTEN: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.1 < . 1:1(0) ack 1 win 257
";

fn problem(script: &str) -> Option<String> {
    let script = parse(&format!("{LISTEN}{script}")).expect("right");
    let fault = stack::run(&script, &Config::default()).fault?;
    Some(fault.problem)
}

#[test]
fn what_is_not_done_is_refused_and_not_passed_over() {
    let refused = "+0 accept(3, ..., ...) = 4
        +0 setsockopt(4, SOL_SOCKET, SO_RCVLOWAT, [10], 4) = -1 ENOPROTOOPT (no such)
        +0 setsockopt(4, SOL_SOCKET, SO_LINGER, {onoff=1, linger=5}, 8) = -1 ENOPROTOOPT (no such)
        +0 setsockopt(4, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0
        +0 setsockopt(4, SOL_SOCKET, SO_LINGER, {onoff=1, linger=0}, 8) = 0
        +0 recv(4, ..., 100, MSG_WAITALL) = -1 EOPNOTSUPP (not done)
        +0 recv(4, ..., 100, MSG_TRUNC) = -1 EOPNOTSUPP (not done)
        +0 send(4, ..., 100, MSG_EOR) = -1 EOPNOTSUPP (not done)
        +0 send(4, ..., 100, MSG_DONTWAIT | MSG_NOSIGNAL) = 100";
    assert_eq!(problem(refused), None);
}

#[test]
fn the_address_of_an_accept_is_compared() {
    let accept = |port: u16| {
        let peer = "sa_family = AF_INET, sin_addr = inet_addr(\"192.0.2.1\")";
        format!("+0 accept(3, {{{peer}, sin_port = htons({port})}}, [16]) = 4")
    };
    assert_eq!(problem(&accept(50_000)), None);
    let said = problem(&accept(50_001)).unwrap();
    assert!(said.starts_with("accept accepted"), "{said}");
}
