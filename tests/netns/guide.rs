//! What docs/guests.md tells a user to type, typed as it stands there, by a user without privileges.

use linerate_testkit::cli::public_binary;
use linerate_testkit::{Scratch, harness::Test, skip, tests};
use std::process::{Command, Output};

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: some seconds of the machine's full speed"]
    two_processes_are_joined_as_the_guide_says,
    #[ignore = "long: some seconds of the machine's full speed"]
    two_name_spaces_are_joined_as_the_guide_says,
];

const PAGE: &str = include_str!("../../docs/guests.md");

fn two_processes_are_joined_as_the_guide_says() {
    let figures = figures(&typed("## Two processes"));
    let rows: Vec<&str> = figures.iter().map(|(row, _)| row.as_str()).collect();
    assert_eq!(
        rows.iter().filter(|row| **row == "port.sink").count(),
        2,
        "{rows:?}"
    );
    assert_eq!(
        rows.iter().filter(|row| **row == "port.source").count(),
        2,
        "{rows:?}"
    );
}

fn two_name_spaces_are_joined_as_the_guide_says() {
    if !as_nobody("unshare --user --map-root-user --net true", &Scratch::new())
        .status
        .success()
    {
        return skip("needs name spaces for users without privileges");
    }
    let figures = figures(&typed("## A container"));
    let mut rows: Vec<&str> = figures.iter().map(|(row, _)| row.as_str()).collect();
    rows.sort_unstable();
    assert_eq!(rows, ["port.echo", "port.ping"]);
}

/// What comes of the first commands under a heading of the page.
#[track_caller]
fn typed(heading: &str) -> String {
    let (_, section) = PAGE.split_once(heading).expect(heading);
    let (_, commands) = section.split_once("```sh\n").expect("commands");
    let (commands, _) = commands.split_once("```").expect("their end");
    let scratch = Scratch::new();
    let output = as_nobody(commands, &scratch);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaint.is_empty(),
        "{said}{complaint}"
    );
    said
}

/// Lines such as `port.sink   11.039 Mpps`: something has moved.
#[track_caller]
fn figures(said: &str) -> Vec<(String, f64)> {
    let figure = |line: &str| {
        let mut words = line.split_whitespace();
        let (row, value) = (words.next()?, words.next()?.parse().ok()?);
        Some((row.to_owned(), value))
    };
    let figures: Vec<_> = said.lines().map(|line| figure(line).expect(line)).collect();
    assert!(figures.iter().all(|(_, value)| *value > 0.0), "{said}");
    figures
}

/// As root, the user nobody runs them; otherwise the current user.
fn as_nobody(commands: &str, scratch: &Scratch) -> Output {
    let public = public_binary(scratch);
    let folder = public.parent().unwrap();
    let mut command = Command::new("sh");
    if rustix::process::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--bounding-set=-all", "sh"]);
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    command.args(["-ec", commands]).env("PATH", path);
    command.current_dir(folder).output().unwrap()
}
