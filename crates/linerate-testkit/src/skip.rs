//! Tests that cannot run here.

use std::cell::RefCell;

thread_local! {
    /// What the test on this thread has said of itself, where [`crate::harness`] runs it.
    static SAID: RefCell<Listener> = const { RefCell::new(Listener::Nobody) };
}

enum Listener {
    /// libtest runs the test, and does not know of this.
    Nobody,
    /// The harness listens.
    Harness(Option<String>),
}

/// Reports that the test on this thread cannot run here, and why; the test returns then.
///
/// Under [`crate::harness`] the test counts as ignored. libtest cannot be told once a test runs,
/// and calls it passed; `cargo xtask test` reads the line `SKIP reason` and counts it as ignored
/// all the same.
pub fn skip(reason: &str) {
    SAID.with_borrow_mut(|listener| match listener {
        Listener::Nobody => eprintln!("SKIP {reason}"),
        Listener::Harness(said) => *said = Some(reason.to_owned()),
    });
}

/// Runs a test on this thread, and returns why it could not, if it said so.
pub(crate) fn listen(test: fn()) -> Option<String> {
    SAID.set(Listener::Harness(None));
    test();
    match SAID.replace(Listener::Nobody) {
        Listener::Harness(said) => said,
        Listener::Nobody => None,
    }
}

/// Whether these programs are installed; the test is skipped where one is not.
pub fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&&str| {
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    let missing = programs.iter().find(|program| !is_there(program));
    if let Some(program) = missing {
        skip(&format!("needs the program {program}"));
    }
    missing.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_lacks_something_is_heard() {
        assert_eq!(listen(|| {}), None);
        assert_eq!(listen(|| skip("no root")), Some("no root".into()));
        let lacks = || assert!(has(&["sh"]) && !has(&["sh", "no-such-program"]));
        let reason = listen(lacks).unwrap();
        assert_eq!(reason, "needs the program no-such-program");
    }
}
