//! The clauses of TCP: every requirement of RFC 9293 has a row in `docs/rfc/tcp.md`, and the tests
//! that rows name exist, once, and run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::process;

/// Numbers that RFC 9293 gives to what MUST be, to what SHOULD, and to what MAY (its appendix B).
const REQUIREMENTS: [(&str, u32); 3] = [("MUST-", 69), ("SHLD-", 31), ("MAY-", 18)];

/// The RFCs beside it that the TCP stack follows: each has a row.
const OTHERS: [u32; 33] = [
    1191, 1337, 2018, 2883, 3042, 3168, 3522, 3708, 4015, 4821, 4987, 5461, 5681, 5682, 5927, 5961,
    6191, 6298, 6528, 6582, 6675, 6928, 7323, 7413, 7661, 8201, 8985, 9040, 9406, 9438, 9937, 2923,
    5482,
];

/// The names of the tests in a Rust file, and whether each is ignored.
fn tests_of(source: &str) -> impl Iterator<Item = (&str, bool)> {
    let (mut is_test, mut is_ignored) = (false, false);
    source.lines().map(str::trim).filter_map(move |line| {
        is_test |= line == "#[test]";
        is_ignored |= line.starts_with("#[ignore");
        let rest = line.strip_prefix("fn ")?;
        let found = (
            std::mem::take(&mut is_test),
            std::mem::take(&mut is_ignored),
        );
        let name = rest.split(['(', '<']).next()?;
        found.0.then_some((name, found.1))
    })
}

/// By its name, how many tests have it, and whether one is ignored.
type Tests = BTreeMap<String, (u32, bool)>;

/// All tests in Rust files below a folder, build output aside.
fn collect(folder: &Path, into: &mut Tests) {
    for entry in folder.read_dir().unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            for (name, is_ignored) in tests_of(&source) {
                let known = into.entry(name.to_string()).or_default();
                (known.0, known.1) = (known.0 + 1, known.1 || is_ignored);
            }
        }
    }
}

/// The scripts that linerate is known to fail, by the names that their test has.
fn exceptions(source: &str) -> BTreeSet<String> {
    let names = source.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("script: \"")?;
        name.strip_suffix("\",")
    });
    names.map(|name| format!("{name}.pkt")).collect()
}

/// What is wrong with a test that a row names.
fn fault(word: &str, root: &Path, tests: &Tests, failing: &BTreeSet<String>) -> Option<String> {
    let script = root.join("tests/drill").join(word);
    let what = match tests.get(word) {
        _ if word.ends_with(".pkt") && !script.exists() => "there is no",
        _ if failing.contains(word) => "linerate is known to fail",
        _ if !is_name(word) => return None,
        None => "there is no test",
        Some((2.., _)) => "there are several of",
        Some((_, true)) => "nobody runs",
        Some(_) => return None,
    };
    Some(format!("{what} {word}"))
}

/// The rows of the tables of a page: the first cell and the last.
fn rows(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.lines().filter_map(|line| {
        let row = line.strip_prefix('|')?.strip_suffix('|')?;
        let (first, rest) = row.split_once('|')?;
        let last = rest.rsplit_once('|').map_or(rest, |(_, last)| last);
        Some((first.trim(), last.trim()))
    })
}

/// What is written as code in a cell.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether it is written as tests are named.
fn is_name(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    word.contains('_') && word.bytes().all(is_part)
}

#[test]
fn tests_of_tcp_clauses_exist_and_no_clause_is_missing() {
    let root = process::root();
    let page = std::fs::read_to_string(root.join("docs/rfc/tcp.md")).unwrap();
    let drill = std::fs::read_to_string(root.join("apps/drill/tests/stack.rs")).unwrap();
    assert!(
        drill.contains("script: &'static str"),
        "the field that names them"
    );
    let failing = exceptions(&drill);
    let mut tests = Tests::new();
    for folder in ["crates", "apps", "tests"] {
        collect(&root.join(folder), &mut tests);
    }
    let mut wrong = Vec::new();
    for (clause, cell) in rows(&page) {
        let faults = code(cell).filter_map(|word| fault(word, &root, &tests, &failing));
        wrong.extend(faults.map(|fault| format!("{clause}: {fault}")));
    }
    let clauses: BTreeSet<&str> = rows(&page)
        .flat_map(|(clause, _)| clause.split(", "))
        .collect();
    for (kind, count) in REQUIREMENTS {
        let missing = (1..=count).map(|number| format!("{kind}{number}"));
        let missing = missing.filter(|name| !clauses.contains(name.as_str()));
        wrong.extend(missing.map(|name| format!("{name} has no row")));
    }
    let cited = |rfc: u32| {
        let name = format!("RFC {rfc}");
        let ends = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_digit());
        rows(&page).any(|(clause, _)| clause.split(&name).skip(1).any(ends))
    };
    let missing = OTHERS.into_iter().filter(|&rfc| !cited(rfc));
    wrong.extend(missing.map(|rfc| format!("RFC {rfc} has no row")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_of_tests_are_found() {
    let source = "#[test]\nfn a_b() {}\nfn c() {}\n  #[test]\n  #[ignore]\n  fn d_e() {}";
    assert!(tests_of(source).eq([("a_b", false), ("d_e", true)]));
    let before = "#[ignore = \"long\"]\n#[test]\nfn f_g() {}\n#[test]\nfn h_i() {}";
    assert!(tests_of(before).eq([("f_g", true), ("h_i", false)]));
    let page = "| RFC | x | `a_b`, `F::g` and `h.pkt` |\ntext\n|---|---|";
    let (clause, cell) = rows(page).next().unwrap();
    assert_eq!(clause, "RFC");
    assert!(code(cell).eq(["a_b", "F::g", "h.pkt"]));
    assert!(is_name("a_b") && !is_name("F::g") && !is_name("abc"));
}

#[test]
fn a_test_that_proves_nothing_is_named() {
    let root = process::root();
    let failing = exceptions("    Exception {\n        script: \"tlp\",\n        line: 9,\n");
    let tests = [
        ("once", 1, false),
        ("two_of", 2, false),
        ("not_run", 1, true),
    ];
    let tests: Tests = tests
        .map(|(name, count, is_ignored)| (name.to_string(), (count, is_ignored)))
        .into();
    let fault = |word| fault(word, &root, &tests, &failing).unwrap_or_default();
    assert_eq!(fault("once"), "");
    assert_eq!(fault("F::g"), "");
    assert_eq!(fault("udp.pkt"), "");
    assert_eq!(fault("tlp.pkt"), "linerate is known to fail tlp.pkt");
    assert_eq!(fault("no.pkt"), "there is no no.pkt");
    assert_eq!(fault("no_test"), "there is no test no_test");
    assert_eq!(fault("two_of"), "there are several of two_of");
    assert_eq!(fault("not_run"), "nobody runs not_run");
}
