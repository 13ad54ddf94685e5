//! Lines of code and of pages end at 100 columns.
//!
//! rustfmt checks code, but leaves comments, string literals and what stands in macros. What may be
//! longer: rows of tables, addresses on the web, what stands between code fences or under
//! `#[rustfmt::skip]`, reports, and the CHANGELOG.

use std::path::Path;
use std::process::Command;

use crate::error::TaskError;
use crate::process;

/// Most characters in a line.
const COLUMNS: usize = 100;

/// Pages whose lines are as a program, their source or their writer has made them.
const AS_THEY_ARE: [&str; 3] = ["docs/reports/", "docs/results.md", "CHANGELOG.md"];

/// Names every line that is too long, as `file:line: length`; true if there is none.
pub(crate) fn check() -> Result<bool, TaskError> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "*.rs", "*.md"])
        .current_dir(process::root());
    let mut passed = true;
    for name in process::read(&mut git)?.split_terminator('\0') {
        let file = process::root().join(name);
        if AS_THEY_ARE.iter().any(|start| name.starts_with(start)) || !file.is_file() {
            continue;
        }
        let text = std::fs::read_to_string(&file)
            .map_err(|source| TaskError::File { path: file, source })?;
        for (line, columns) in too_long(Path::new(name), &text) {
            println!("{name}:{line}: {columns} columns, {COLUMNS} at most");
            passed = false;
        }
    }
    Ok(passed)
}

/// Numbers and lengths of the lines of a file that are too long.
fn too_long(file: &Path, text: &str) -> Vec<(usize, usize)> {
    let is_page = file.extension().is_some_and(|extension| extension == "md");
    let mut found = Vec::new();
    let mut is_fenced = false;
    // What ends the item that rustfmt leaves as it is: a bracket as far in as its attribute.
    let mut skipped: Option<usize> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let indent = line.len() - line.trim_start().len();
        let content = line.trim_start();
        if let Some(begun) = skipped {
            let is_end = indent == begun && content.starts_with([']', '}', ')']);
            skipped = skipped.filter(|_| !is_end);
            continue;
        }
        let said = match is_page {
            true => content,
            false => comment(content).unwrap_or_default(),
        };
        if said.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_page && comment(content).is_none() {
            is_fenced = false;
            if content == "#[rustfmt::skip]" {
                skipped = Some(indent);
            }
        }
        let may_be_long = is_fenced || said.starts_with('|') || line.contains("://");
        let columns = line.chars().count();
        if columns > COLUMNS && !may_be_long {
            found.push((number, columns));
        }
    }
    found
}

/// The text of a line that is only a comment.
fn comment(content: &str) -> Option<&str> {
    let said = ["///", "//!", "//"]
        .into_iter()
        .find_map(|marks| content.strip_prefix(marks))?;
    Some(said.trim_start())
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, too_long};
    use std::path::Path;

    fn lines(file: &str, text: &str) -> Vec<usize> {
        let found = too_long(Path::new(file), text);
        found.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn columns_are_characters_and_the_last_one_may_be_used() {
        let full = "é".repeat(COLUMNS);
        assert!(lines("a.md", &full).is_empty());
        assert_eq!(
            too_long(Path::new("a.md"), &format!("\n{full}x")),
            [(2, COLUMNS + 1)]
        );
    }

    #[test]
    fn comments_strings_and_macros_count() {
        let long = "x ".repeat(60);
        let text = format!("// {long}\n/// {long}\nlet a = \"{long}\";\nm! {{ {long} }}\n");
        assert_eq!(lines("a.rs", &text), [1, 2, 3, 4]);
    }

    #[test]
    fn tables_addresses_and_fences_do_not() {
        let long = "x ".repeat(60);
        let page = format!("| {long} |\nhttps://a.example/ {long}\n```\n{long}\n```\n{long}\n");
        assert_eq!(lines("a.md", &page), [6]);
        let code = format!("/// | {long} |\n//! ```text\n//! {long}\n//! ```\n//! {long}\n");
        assert_eq!(lines("a.rs", &code), [5]);
    }

    #[test]
    fn an_item_that_is_not_formatted_ends_with_its_bracket() {
        let long = "x ".repeat(60);
        let text = format!("#[rustfmt::skip]\nconst A: &[B] = &[\n    {long}\n];\n{long}\n");
        assert_eq!(lines("a.rs", &text), [5]);
    }

    #[test]
    fn a_fence_that_is_not_closed_ends_with_its_comment() {
        let long = "x ".repeat(60);
        let text = format!("/// ```\n/// {long}\nfn a() {{}}\n/// {long}\n");
        assert_eq!(lines("a.rs", &text), [4]);
    }
}
