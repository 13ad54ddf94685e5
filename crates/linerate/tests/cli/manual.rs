//! Completions in real shells, and man pages as `man` and `mandoc` see them.

use std::process::{Command, Output};

use linerate_testkit::Scratch;

fn linerate(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// None, said, where there is no such program.
fn run(program: &str, args: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(args).output();
    if output.is_err() {
        eprintln!("SKIP needs the program {program}");
    }
    output.ok()
}

/// What a shell's own machinery offers at the end of a line.
fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// Words before the last, and the last, as bash hands them to the function.
#[test]
fn bash_completes_commands_options_and_values() {
    let scratch = Scratch::new();
    let script = scratch.write("linerate", linerate(&["completions", "bash"]));
    let complete = |words: &str| {
        let line = format!(
            ". '{script}'; COMP_WORDS=(linerate {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             $(complete -p linerate | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p') linerate \
             \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        Some(lines(&run("bash", &["--norc", "-c", &line])?))
    };
    let Some(commands) = complete("rou") else {
        return;
    };
    assert_eq!(commands, ["router"]);
    assert_eq!(complete("router --che").unwrap(), ["--check"]);
    let pieces = ["example", "unit", "sysusers", "dashboard"];
    assert_eq!(complete("router --print ''").unwrap(), pieces);
    // Internal commands are not offered.
    let all = complete("''").unwrap();
    let is_there = |command: &str| all.iter().any(|word| word == command);
    assert!(is_there("pktgen") && !is_there("helper"), "{all:?}");
}

#[test]
fn fish_completes_commands() {
    let scratch = Scratch::new();
    let script = scratch.write("linerate.fish", linerate(&["completions", "fish"]));
    let line = format!("source '{script}'; complete -C 'linerate rou'");
    let Some(output) = run("fish", &["--no-config", "-c", &line]) else {
        return;
    };
    let offered = lines(&output);
    assert!(
        matches!(&offered[..], [one] if one.starts_with("router\t")),
        "{offered:?}"
    );
}

/// zsh completes on a terminal only; what can be asked of it here is whether it reads the script,
/// and that the function is bound to our name.
#[test]
fn zsh_reads_its_script() {
    let scratch = Scratch::new();
    scratch.write("_linerate", linerate(&["completions", "zsh"]));
    let line = format!(
        "fpath=('{}' $fpath); autoload -Uz compinit; compinit -u -D; autoload +X _linerate; \
         print $_comps[linerate] ${{+functions[_linerate]}}",
        scratch.file("")
    );
    let Some(output) = run("zsh", &["-f", "-c", &line]) else {
        return;
    };
    assert_eq!(lines(&output), ["_linerate 1"], "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// Each command that `--help` shows has its page; `man` and `mandoc` find nothing to complain of.
#[test]
fn man_pages_of_all_commands() {
    let scratch = Scratch::new();
    let folder = scratch.file("man1");
    linerate(&["man", &folder, "--date", "2026-11-22"]);
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    pages.sort();
    let help = linerate(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"router"), "{help}");
    for command in commands {
        let page = format!("{folder}/linerate-{command}.1");
        assert!(pages.contains(&page), "{page} is missing");
    }
    assert!(
        !pages.iter().any(|page| page.contains("helper")),
        "{pages:?}"
    );
    let pages = || pages.iter().map(String::as_str);
    let words = ["--warnings", "--local-file", "-Tutf8", "--encoding=UTF-8"];
    if let Some(output) = run("man", &words.into_iter().chain(pages()).collect::<Vec<_>>()) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("linerate-router(1)"), "{shown}");
    }
    let words = ["-T", "lint", "-W", "warning"];
    if let Some(output) = run(
        "mandoc",
        &words.into_iter().chain(pages()).collect::<Vec<_>>(),
    ) {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}
