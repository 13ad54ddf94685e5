//! Checks the table itself, lines that users type, and the guide.

use proptest::prelude::*;

use super::*;
use crate::control::complete::{Names, all_keys, complete};
use crate::control::methods::METHODS;

fn parsed(line: &str) -> Result<(&'static str, Vec<String>), Problem> {
    let line = expanded(line);
    parse(&line).map(|(row, given)| (row.name, given.0))
}

#[test]
fn each_example_is_an_example_of_its_command() {
    for row in COMMANDS {
        let (name, given) = parsed(row.example).unwrap();
        assert_eq!(name, row.name);
        assert!(given.len() <= row.args.len(), "{}", row.example);
    }
}

#[test]
fn no_name_means_two_things() {
    let first = |name: &'static str| name.split(' ').next().unwrap();
    for (at, row) in COMMANDS.iter().enumerate() {
        let other = &COMMANDS[at + 1..];
        assert!(
            other.iter().all(|other| other.name != row.name),
            "{}",
            row.name
        );
        // A command of one word has no subcommands.
        let alone = !row.name.contains(' ');
        let family = |other: &Row| other.name.contains(' ') && first(other.name) == row.name;
        assert!(!alone || !COMMANDS.iter().any(family), "{}", row.name);
        for (word, _) in ALIASES.iter().chain(ELSEWHERE) {
            assert_ne!(*word, first(row.name));
        }
    }
    for (alias, meaning) in ALIASES {
        assert!(ELSEWHERE.iter().all(|(word, _)| word != alias));
        assert!(
            COMMANDS.iter().any(|row| meaning.starts_with(row.name)),
            "{meaning}"
        );
    }
}

#[test]
fn lines_are_cut_as_people_mean_them() {
    for (line, name, given) in [
        ("set 0 rate 99", "set", vec!["0", "rate", "99"]),
        (
            "  set\t0  size   64,128  # of both",
            "set",
            vec!["0", "size", "64,128"],
        ),
        (
            "set 0 name 'two words'",
            "set",
            vec!["0", "name", "two words"],
        ),
        (
            "set \"my port\" size 64",
            "set",
            vec!["my port", "size", "64"],
        ),
        ("start 0", "start", vec!["0"]),
        ("str", "start", vec!["all"]),
        ("str 5", "start", vec!["all", "5"]),
        ("stp", "stop", vec!["all"]),
        ("clr", "clear", vec![]),
        ("clear.stats all", "clear", vec![]),
        ("stop", "stop", vec![]),
        (
            "stream add udp size=64 name=\"a b\"",
            "stream add",
            vec!["udp size=64 name=\"a b\""],
        ),
        ("stream add", "stream add", vec![]),
        ("load a file.txt", "load", vec!["a file.txt"]),
        ("help stream add", "help", vec!["stream add"]),
        ("exit", "quit", vec![]),
    ] {
        assert_eq!(
            parsed(line).unwrap(),
            (name, given.iter().map(|word| (*word).to_owned()).collect()),
            "{line}"
        );
    }
    for empty in ["", "   ", "# nothing", "\t# 'nothing"] {
        assert_eq!(expanded(empty), "");
    }
    assert_eq!(without_comment("set 0 name a#b # c"), "set 0 name a#b");
}

#[test]
fn what_is_unknown_or_wrong_is_answered_with_what_is_near() {
    let problem = |line: &str| parsed(line).unwrap_err();
    assert_eq!(problem("strat 0").nearest[0], "start");
    assert_eq!(problem("stream ad udp").nearest, ["stream add"]);
    assert!(problem("stream").problem.contains("too little"));
    assert!(problem("set 0").problem.contains("without KEY"));
    assert!(problem("set 0 size").fix.contains("set PORTS KEY VALUE"));
    assert!(problem("start 0 5 6").problem.contains('6'));
    assert!(problem("quit now").problem.contains("now"));
    assert!(problem("enable 0 latency").fix.contains("always measured"));
    assert!(problem("xyzzy").fix.starts_with("one of set, start"));
    assert_eq!(
        named_in("page", PAGES, "latncy").unwrap_err().nearest,
        ["latency"]
    );
    assert_eq!(named_in("page", PAGES, "rnd").unwrap(), "random");
    assert_eq!(rows("strem").unwrap_err().nearest[0][..6], *"stream");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn garbage_is_refused_and_never_more(line in "\\PC{0,60}", cursor in 0usize..80) {
        let _ = parsed(&line);
        let names = Names { ports: vec![(0, "wan".into())], ..Names::default() };
        let found = complete(&line, cursor, &names);
        prop_assert!(line.is_char_boundary(found.begins));
    }

    #[test]
    fn words_of_the_table_in_any_order_are_refused_or_understood(
        words in prop::collection::vec(prop::sample::select(vec![
            "set", "stream", "add", "0", "all", "\"", "'", "#", "rate", "99%", "page", "str", "=",
            ",", "-", "start",
        ]), 0..8),
    ) {
        let line = words.join(" ");
        let _ = parsed(&line);
        complete(&line, line.len(), &Names::default());
    }
}

/// A paragraph in lines of at most 100 columns.
fn in_lines(text: &str) -> String {
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let separator = match column {
            0 => "",
            _ if column + 1 + word.len() > 100 => "\n",
            _ => " ",
        };
        column = if separator == " " { column + 1 } else { 0 } + word.len();
        lines.push_str(separator);
        lines.push_str(word);
    }
    lines
}

/// The guide's tables, as this table has them.
fn generated() -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut text = String::from("| command | what it does | such as |\n|---|---|---|\n");
    for row in COMMANDS {
        let _ = writeln!(
            text,
            "| `{}` | {} | `{}` |",
            cell(&row.usage()),
            cell(row.help),
            cell(row.example)
        );
    }
    let short: Vec<_> = ALIASES
        .iter()
        .map(|(alias, meaning)| format!("`{alias}` is `{meaning}`"))
        .collect();
    let short = format!("Short forms: {}.", short.join(", "));
    let _ = writeln!(text, "\n{}", in_lines(&short));
    text.push_str("\n| key | value | what it is |\n|---|---|---|\n");
    for (key, value, help) in all_keys() {
        let _ = writeln!(text, "| `{key}` | `{}` | {} |", cell(value), cell(help));
    }
    text.push_str("\n| page | what it shows |\n|---|---|\n");
    for page in PAGES {
        let _ = writeln!(text, "| `{}` | {} |", page.name, page.help);
    }
    let themes: Vec<_> = THEMES
        .iter()
        .map(|theme| format!("`{}` ({})", theme.name, theme.help))
        .collect();
    let themes = format!("Themes: {}.", themes.join(", "));
    let _ = writeln!(text, "\n{}", in_lines(&themes));
    text.push_str("\n| method | params | answer |\n|---|---|---|\n");
    for method in METHODS {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            method.name,
            method.params,
            cell(method.help)
        );
    }
    text.push_str("\n| Pktgen | here |\n|---|---|\n");
    for (name, fix) in ELSEWHERE {
        let _ = writeln!(text, "| `{name}` | {} |", cell(fix));
    }
    text
}

/// The guide lists exactly the commands that exist. `LINERATE_WRITE_DOCS=1` rewrites it.
#[test]
fn the_guide_lists_the_commands_that_there_are() {
    const BEGIN: &str = "<!-- from the command table: do not edit -->\n";
    const END: &str = "<!-- end of the command table -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pktgen.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let begin = guide.find(BEGIN).unwrap() + BEGIN.len();
    let end = guide.find(END).unwrap();
    if std::env::var_os("LINERATE_WRITE_DOCS").is_some() {
        let written = format!("{}\n{}\n{}", &guide[..begin], generated(), &guide[end..]);
        std::fs::write(path, written).unwrap();
        return;
    }
    assert_eq!(
        guide[begin..end].trim(),
        generated().trim(),
        "docs/pktgen.md is out of date: LINERATE_WRITE_DOCS=1 cargo test -p linerate-pktgen \
         the_guide"
    );
}
