//! What docs/guests.md tells a user to type, typed as it stands there, by a user without
//! privileges.

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
    let rows = rows(&typed("## Two processes"));
    assert_eq!(
        rows,
        ["port.sink", "port.sink", "port.source", "port.source"]
    );
}

fn two_name_spaces_are_joined_as_the_guide_says() {
    if !as_nobody("unshare --user --map-root-user --net true", &Scratch::new())
        .status
        .success()
    {
        return skip("needs name spaces for users without privileges");
    }
    let rows = rows(&typed("## A container"));
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

/// Lines such as `port.sink   11.039 Mpps`. One comes only of an end that frames have moved at.
#[track_caller]
fn rows(said: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let row = words.next()?;
        let _figure: f64 = words.next()?.parse().ok()?;
        Some(row.to_owned())
    };
    let mut rows: Vec<String> = said.lines().map(|line| row(line).expect(line)).collect();
    rows.sort_unstable();
    rows
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
