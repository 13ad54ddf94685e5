//! Behaves like libtest, except that a test that finds out at run time that it cannot run counts as
//! ignored, with the reason.
//!
//! A suite says `harness = false`, its modules list their tests with [`tests!`](crate::tests), and
//! its `main` runs the lists. A test without a list is dead code, of which the compiler warns.

use crate::skip::listen;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::cell::RefCell;
use std::process::ExitCode;

/// One test of a suite.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The path of its function in the suite's crate.
    pub path: &'static str,
    /// The test itself.
    pub run: fn(),
    /// Why it runs only if that is asked for (`--include-ignored`).
    pub ignored: Option<&'static str>,
}

/// The tests of a module, by the names of their functions: `tests![one, two]`. What runs only if
/// that is asked for has the reason before it: `tests![#[ignore = "long: 10 s of TCP"] three]`.
#[macro_export]
macro_rules! tests {
    ($($(#[ignore = $reason:literal])? $test:ident),* $(,)?) => {
        &[$($crate::harness::Test {
            path: concat!(module_path!(), "::", stringify!($test)),
            run: $test,
            ignored: $crate::tests!(@ignored $($reason)?),
        }),*]
    };
    (@ignored) => { None };
    (@ignored $reason:literal) => { Some($reason) };
}

thread_local! {
    /// Where and why this thread panicked last.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// How many tests run at once on each CPU: most of their time they wait for other programs.
const AT_ONCE: usize = 2;

/// Runs the tests that the command line asks for: as under libtest (`--help`), but what they print
/// is not kept back.
pub fn run(tests: &[&[Test]]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(cpus * AT_ONCE);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANIC.set(Some(panic.to_string()));
        print(panic);
    }));
    let trials = tests.iter().copied().flatten();
    let trials = trials.map(|test| trial(*test, &arguments)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(test: Test, arguments: &Arguments) -> Trial {
    let wanted = arguments.ignored || arguments.include_ignored;
    let (_, name) = test.path.split_once("::").unwrap_or(("", test.path));
    Trial::ignorable_test(name, move || {
        let ignored = match test.ignored {
            Some(reason) if !wanted => Some(reason.to_owned()),
            _ => outcome(test)?,
        };
        Ok(ignored.map_or(Completion::Completed, Completion::ignored_with))
    })
    .with_ignored_flag(arguments.ignored && test.ignored.is_some())
}

/// Runs it on a thread of its own, as libtest does: what a test does to its thread is gone with it.
/// Returns why it could not run, if it could not.
fn outcome(test: Test) -> Result<Option<String>, Failed> {
    let thread = std::thread::Builder::new().name(test.path.to_owned());
    let thread = thread.spawn(move || {
        std::panic::catch_unwind(|| listen(test.run)).map_err(|payload| {
            // A thread of the test's own may have panicked in its place.
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or(payload.downcast_ref::<&str>().copied());
            let panic = PANIC.take().or(text.map(str::to_owned));
            panic.unwrap_or_else(|| "panicked".into())
        })
    });
    Ok(thread?.join().map_err(|_| "ended without a word")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes() {}
    fn fails() {
        panic!("why it fails");
    }
    fn cannot() {
        crate::skip("no root");
    }

    const TESTS: &[Test] = crate::tests![
        passes,
        fails,
        cannot,
        #[ignore = "long: an hour"]
        passes
    ];

    #[test]
    fn tests_have_names_reasons_and_ends() {
        let [passing, failing, lacking, long] = TESTS else {
            panic!("{TESTS:?}");
        };
        assert!(passing.path.ends_with("::harness::tests::passes"));
        assert_eq!(
            (long.ignored, passing.ignored),
            (Some("long: an hour"), None)
        );
        assert_eq!(outcome(*passing).unwrap(), None);
        assert_eq!(outcome(*lacking).unwrap(), Some("no root".into()));
        let said = outcome(*failing).unwrap_err();
        assert!(said.message().unwrap().contains("why it fails"), "{said:?}");
    }

    #[test]
    fn long_tests_run_where_that_is_asked_for() {
        let run = |words: &[&str]| {
            // What it prints would be taken for the results of this suite.
            let words = ["suite", "--logfile=/dev/null"].iter().chain(words);
            let arguments = Arguments::from_iter(words);
            let tests = [TESTS[0], TESTS[2], TESTS[3]];
            let trials = tests.map(|test| trial(test, &arguments)).into();
            let end = libtest_mimic::run(&arguments, trials);
            (end.num_passed, end.num_ignored, end.num_filtered_out)
        };
        assert_eq!(run(&[]), (1, 2, 0));
        assert_eq!(run(&["--include-ignored"]), (2, 1, 0));
        assert_eq!(run(&["--ignored"]), (1, 0, 2));
        assert_eq!(run(&["cannot"]), (0, 1, 2));
    }
}
