//! `linerate drill`, end to end: what it prints, and how it exits.

use linerate_testkit::{Scratch, skip};
use std::process::{Command, Output};

fn drill(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.arg("drill").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_wrong_script_is_named_with_line_column_and_fix() {
    let scratch = Scratch::new();
    let path = scratch.write("wrong.pkt", "// two\n+0 < S 0:10(0) win 1000\n");
    let output = drill(&["--parse", &path]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("wrong.pkt:2:8: 0:10 is not 0 bytes; write 0:0(0)\n"),
        "{said}"
    );
    assert!(said.ends_with("0 parsed, 1 failed, 0 skipped\n"), "{said}");
}

#[test]
fn the_scripts_of_a_folder_are_parsed_and_reported_as_json() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/drill");
    let output = drill(&["--parse", "--json", folder]);
    assert!(output.status.success());
    let said = text(&output.stdout);
    for line in said.lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(report["result"], "parsed", "{line}");
        assert!(report["events"].as_u64().unwrap() > 0, "{line}");
    }
    assert!(said.lines().count() >= 40);
}

#[test]
fn what_linux_does_otherwise_is_shown_beside_what_was_expected() {
    let scratch = Scratch::new();
    let script = "0 < 5000 > 81 S 10:10(0) win 1000\n+0 > 81 > 5000 S. 0:0(0) ack 11\n";
    let output = drill(&["--against", "linux", &scratch.write("differs.pkt", script)]);
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    if error.contains("cannot be tested here") {
        return skip("needs root for network namespaces");
    }
    assert!(
        said.contains("differs.pkt:2:1: flags are R., not S."),
        "{said}"
    );
}

#[test]
fn a_script_runs_on_our_own_stack_without_privileges() {
    let scratch = Scratch::new();
    let script = "0 < 5000 > 81 S 10:10(0) win 1000\n+0 > 81 > 5000 S. 0:0(0) ack 11\n";
    let output = drill(&[&scratch.write("refused.pkt", script)]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("refused.pkt:2:1: flags are R., not S."),
        "{said}"
    );
}
