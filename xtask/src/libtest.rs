//! Reads what `cargo test -- --show-output` prints, and counts.
//!
//! A test that cannot run here says so with `linerate_testkit::skip` and returns. Suites under
//! libtest-mimic show it as ignored, with the reason. libtest cannot be told: there `skip` prints a line
//! `SKIP reason`, which `--show-output` shows after the run under the test's name, and from there such a
//! test is counted as skipped, not passed. Ignored tests are skipped too.

use std::collections::BTreeMap;

/// What the tests came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// How many tests each reason kept from running.
    pub(crate) reasons: BTreeMap<String, usize>,
}

impl Tally {
    fn skip(&mut self, reason: &str) {
        self.skipped += 1;
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// Something worth showing while the tests run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// One more test of the suite ended.
    TestEnded,
    /// A suite (one test binary, or one crate's documentation) ended with these counts.
    SuiteEnded {
        suite: String,
        passed: usize,
        failed: usize,
        skipped: usize,
    },
    /// A line that a user must see as it is: failures, crashes, slow tests.
    Show(String),
}

/// Feed it lines; ask for the tally at the end.
#[derive(Default)]
pub(crate) struct Reader {
    tally: Tally,
    suite: String,
    /// `running N tests` was seen and `test result:` not yet.
    running: bool,
    ignored_with_reason: usize,
    skipped_at_start: usize,
    section: Section,
    /// The test whose captured output we are in, and whether it has said SKIP already.
    skip_counted: bool,
    skips_in_suite: usize,
}

#[derive(Default, PartialEq, Eq)]
enum Section {
    #[default]
    Tests,
    Successes,
    Failures,
}

impl Reader {
    /// The suite whose tests are running now, for messages.
    pub(crate) fn suite(&self) -> &str {
        &self.suite
    }

    /// Takes the next line, without its newline.
    pub(crate) fn line(&mut self, line: &str) -> Option<Event> {
        if let Some(suite) = suite_name(line) {
            let died = self.close_dead_suite();
            self.suite = suite;
            return died;
        }
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.running = true;
            self.section = Section::Tests;
            self.ignored_with_reason = 0;
            self.skips_in_suite = 0;
            self.skipped_at_start = self.tally.skipped;
            return None;
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            return self.result(counts);
        }
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ => {}
        }
        if line.starts_with("---- ") && line.ends_with(" ----") {
            self.skip_counted = false;
        }
        if self.section == Section::Failures {
            return Some(Event::Show(line.to_owned()));
        }
        if let Some(reason) = line.strip_prefix("SKIP ") {
            if !self.skip_counted {
                self.tally.skip(reason.trim());
                self.skips_in_suite += 1;
            }
            // In a test's captured output one SKIP counts; strays (from child processes) count each.
            self.skip_counted = self.section == Section::Successes;
            return None;
        }
        if line.starts_with("test ") && self.section == Section::Tests {
            return self.test_line(line);
        }
        if line.starts_with("error: ") || line.contains("process didn't exit successfully") {
            return Some(Event::Show(line.to_owned()));
        }
        None
    }

    /// The counts, once the output has ended.
    pub(crate) fn finish(mut self) -> (Tally, Option<Event>) {
        let died = self.close_dead_suite();
        (self.tally, died)
    }

    fn test_line(&mut self, line: &str) -> Option<Event> {
        if line.contains(" has been running for over ") {
            return Some(Event::Show(line.to_owned()));
        }
        if let Some(reason) = ignored_because(line) {
            self.ignored_with_reason += 1;
            self.tally.skip(reason);
        }
        Some(Event::TestEnded)
    }

    /// `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`
    fn result(&mut self, counts: &str) -> Option<Event> {
        self.running = false;
        self.section = Section::Tests;
        let count = |what: &str| {
            counts
                .split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
                .unwrap_or(0usize)
        };
        let (failed, ignored) = (count("failed"), count("ignored"));
        let passed = count("passed").saturating_sub(self.skips_in_suite);
        for _ in self.ignored_with_reason..ignored {
            self.tally.skip("marked #[ignore]");
        }
        self.tally.passed += passed;
        self.tally.failed += failed;
        let skipped = self.tally.skipped - self.skipped_at_start;
        self.skips_in_suite = 0;
        if passed + failed + skipped == 0 {
            return None;
        }
        Some(Event::SuiteEnded {
            suite: self.suite.clone(),
            passed,
            failed,
            skipped,
        })
    }

    /// A suite that ended without its result line crashed: that is a failure.
    fn close_dead_suite(&mut self) -> Option<Event> {
        if !self.running {
            return None;
        }
        self.running = false;
        self.section = Section::Tests;
        self.tally.failed += 1;
        Some(Event::Show(format!(
            "{}: died before its tests ended",
            self.suite
        )))
    }
}

/// `test a ... ignored, long` of libtest, `test a ... ignored (no root)` of libtest-mimic.
fn ignored_because(line: &str) -> Option<&str> {
    let (_, behind) = line.split_once(" ... ignored")?;
    let in_brackets = || behind.strip_prefix(" (")?.strip_suffix(')');
    behind.strip_prefix(", ").or_else(in_brackets)
}

/// `Running unittests src/lib.rs (target/debug/deps/linerate_core-0123)` or `Doc-tests linerate_core`.
fn suite_name(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{name} documentation"));
    }
    let (source, binary) = line.strip_prefix("Running ")?.split_once(" (")?;
    let stem = binary.strip_suffix(')')?.rsplit('/').next()?;
    let (name, _hash) = stem.rsplit_once('-')?;
    Some(match source.strip_prefix("unittests ") {
        Some(source) => format!("{name} {source}"),
        None => source.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, Reader, Tally};

    fn read(text: &str) -> (Tally, Vec<Event>) {
        let mut reader = Reader::default();
        let mut events: Vec<Event> = text.lines().filter_map(|line| reader.line(line)).collect();
        let (tally, last) = reader.finish();
        events.extend(last);
        (tally, events)
    }

    #[test]
    fn sums_suites_and_moves_skips_out_of_the_passes() {
        let (tally, events) = read(
            "\
     Running unittests src/lib.rs (target/debug/deps/linerate_core-0a1b)

running 4 tests
test a ... ok
test b ... ok
test c ... ignored, long: 10 s of iperf3
test d ... ok

successes:

---- b stdout ----
SKIP needs CAP_NET_ADMIN
SKIP needs CAP_NET_ADMIN again

---- d stdout ----
hello

successes:
    a
    b
    d

test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests linerate_core

running 1 test
test crates/linerate-core/src/lib.rs - Packet (line 7) - compile fail ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s
",
        );
        assert_eq!(tally.to_string(), "3 passed, 0 failed, 2 skipped");
        let reasons: Vec<_> = tally.reasons.keys().map(String::as_str).collect();
        assert_eq!(reasons, ["long: 10 s of iperf3", "needs CAP_NET_ADMIN"]);
        assert!(events.contains(&Event::SuiteEnded {
            suite: "linerate_core src/lib.rs".into(),
            passed: 2,
            failed: 0,
            skipped: 2
        }));
    }

    /// As libtest-mimic shows what could not run: it counts such tests among the ignored itself.
    #[test]
    fn what_a_suite_found_that_it_could_not_run_is_skipped() {
        let (tally, _) = read(
            "\
     Running netns/main.rs (target/debug/deps/netns-0a1b)

running 3 tests
test router::a      ... ok
test router::trunk  ... ignored (needs a kernel with VRF and VLAN devices)
test demo::nobody   ... ignored (long: about 15 s)

test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s
",
        );
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 2 skipped");
        let reasons: Vec<_> = tally.reasons.keys().map(String::as_str).collect();
        let known = [
            "long: about 15 s",
            "needs a kernel with VRF and VLAN devices",
        ];
        assert_eq!(reasons, known);
    }

    #[test]
    fn shows_failures_as_they_are() {
        let (tally, events) = read(
            "\
     Running tests/l2fwd.rs (target/debug/deps/l2fwd-77)

running 1 test
test forwards ... FAILED

failures:

---- forwards stdout ----
assertion failed

failures:
    forwards

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p linerate --test l2fwd`
",
        );
        assert_eq!(tally.to_string(), "0 passed, 1 failed, 0 skipped");
        assert!(events.contains(&Event::Show("assertion failed".into())));
        assert!(
            events
                .iter()
                .any(|event| matches!(event, Event::Show(line) if line.starts_with("error: ")))
        );
    }

    #[test]
    fn a_crash_is_a_failure() {
        let (tally, events) = read(
            "\
     Running tests/one.rs (target/debug/deps/one-77)

running 2 tests
test x ... ok
error: test failed, to rerun pass `-p linerate --test one`

Caused by:
  process didn't exit successfully: `target/debug/deps/one-77` (signal: 11, SIGSEGV)
     Running tests/two.rs (target/debug/deps/two-77)

running 1 test
test y ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
",
        );
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 0 skipped");
        assert!(events.contains(&Event::Show(
            "tests/one.rs: died before its tests ended".into()
        )));
    }
}
