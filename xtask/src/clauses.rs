//! The clauses of TCP: every requirement of RFC 9293 has a row in `docs/rfc/tcp.md`, and the tests
//! that rows name exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::process;

/// Numbers that RFC 9293 gives to what MUST be, and to what SHOULD (its appendix B).
const REQUIREMENTS: [(&str, u32); 2] = [("MUST-", 69), ("SHLD-", 31)];

/// The RFCs beside it that the TCP stack follows: each has a row.
const OTHERS: [u32; 33] = [
    1191, 1337, 2018, 2883, 3042, 3168, 3522, 3708, 4015, 4821, 4987, 5461, 5681, 5682, 5927, 5961,
    6191, 6298, 6528, 6582, 6675, 6928, 7323, 7413, 7661, 8201, 8985, 9040, 9406, 9438, 9937, 2923,
    5482,
];

/// The names of the tests in a Rust file.
fn tests_of(source: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    source.lines().map(str::trim).filter_map(move |line| {
        if line == "#[test]" {
            is_test = true;
            return None;
        }
        let rest = line.strip_prefix("fn ")?;
        std::mem::take(&mut is_test).then(|| rest.split(['(', '<']).next())?
    })
}

/// The names of all tests in Rust files below a folder, build output aside.
fn collect(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in folder.read_dir().unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            into.extend(tests_of(&source).map(str::to_string));
        }
    }
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
    let mut tests = BTreeSet::new();
    for folder in ["crates", "apps", "tests"] {
        collect(&root.join(folder), &mut tests);
    }
    let mut wrong = Vec::new();
    for (clause, cell) in rows(&page) {
        for word in code(cell) {
            let exists = match word {
                _ if word.ends_with(".pkt") => root.join("tests/drill").join(word).exists(),
                _ if is_name(word) => tests.contains(word),
                _ => true,
            };
            if !exists {
                wrong.push(format!("{clause}: there is no test {word}"));
            }
        }
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
    assert!(tests_of(source).eq(["a_b", "d_e"]));
    let page = "| RFC | x | `a_b`, `F::g` and `h.pkt` |\ntext\n|---|---|";
    let (clause, cell) = rows(page).next().unwrap();
    assert_eq!(clause, "RFC");
    assert!(code(cell).eq(["a_b", "F::g", "h.pkt"]));
    assert!(is_name("a_b") && !is_name("F::g") && !is_name("abc"));
}
