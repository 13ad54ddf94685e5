//! `cargo xtask pictures`: the pictures of README and the tables of docs/results.md. What a terminal
//! shows is recorded from real runs of the release build ([`terminal`]); ratios and tables are made of
//! `docs/figures.toml` ([`crate::figures`]), README's forwarder is an example of the drivers, and tests
//! hold the pages to both.

mod ratios;
mod svg;
mod terminal;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::error::TaskError;
use crate::figures::{Figures, replaced};
use crate::process;

#[derive(Args)]
pub(crate) struct Options {
    /// Only what is made of docs/figures.toml and of the example; nothing is built or run
    #[arg(long)]
    pages: bool,
    /// A release build that is there, in place of one made for this
    #[arg(long, value_name = "FILE", conflicts_with = "pages")]
    program: Option<PathBuf>,
}

/// One picture of a terminal.
struct Recording {
    file: &'static str,
    /// As a user types it, and as it is run.
    typed: &'static str,
    args: &'static [&'static str],
    columns: u16,
    rows: u16,
    until: Until,
}

/// When the picture is taken.
enum Until {
    /// When the program has ended by itself.
    End,
    /// Before the last of these is typed, each so long after the one before.
    Typed(&'static [(Duration, &'static str)]),
}

const RECORDINGS: &[Recording] = &[
    Recording {
        file: "demo.svg",
        typed: "cargo run --release -- demo",
        args: &["demo"],
        columns: 96,
        rows: 24,
        until: Until::End,
    },
    Recording {
        file: "pktgen.svg",
        typed: "linerate pktgen -p ring:a,loop=on -p ring:b,loop=on",
        args: &["pktgen", "-p", "ring:a,loop=on", "-p", "ring:b,loop=on"],
        columns: 96,
        rows: 30,
        until: Until::Typed(&[
            (Duration::from_secs(2), "set all rate 1Mpps\r"),
            (Duration::from_secs(1), "start all\r"),
            (Duration::from_secs(6), "qq"),
        ]),
    },
];

/// Records and draws.
pub(crate) fn run(options: &Options) -> Result<ExitCode, TaskError> {
    for (path, content) in from_sources()? {
        write(&path, &content)?;
    }
    if options.pages {
        return Ok(ExitCode::SUCCESS);
    }
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            process::run(&mut process::cargo(&["build", "--release"]))?;
            process::target_dir().join("release/linerate")
        }
    };
    for recording in RECORDINGS {
        let screen = terminal::record(&program, recording)?;
        let path = process::root().join("docs/pictures").join(recording.file);
        write(&path, &terminal::draw(&screen, recording.typed))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &PathBuf, content: &str) -> Result<(), TaskError> {
    println!("{}", path.display());
    fs::write(path, content).map_err(TaskError::file(path))
}

/// Files that are, or have parts that are, made of others, as they ought to be.
fn from_sources() -> Result<Vec<(PathBuf, String)>, TaskError> {
    let figures = Figures::read()?;
    let root = process::root();
    let read = |file: &str| {
        let path = root.join(file);
        fs::read_to_string(&path).map_err(TaskError::file(&path))
    };
    let mut files = vec![(
        root.join("docs/pictures/ratios.svg"),
        ratios::draw(&figures),
    )];
    let forwarder = forwarder(&read(FORWARDER)?);
    let pages = [
        (
            "README.md",
            vec![
                (["\n**", "**"], figures.sentence()),
                (["```rust\n", "```"], forwarder),
            ],
        ),
        (
            "docs/results.md",
            vec![(
                ["<!-- figures -->\n", "<!-- end of figures -->"],
                figures.tables(),
            )],
        ),
    ];
    for (file, parts) in pages {
        let mut page = read(file)?;
        for (place, text) in parts {
            page = replaced(&page, place, &text).ok_or_else(|| TaskError::Missing {
                what: format!(
                    "{file} has no place for `{}`",
                    text.lines().next().unwrap_or("")
                ),
                fix: format!("put {:?} and {:?} around it", place[0], place[1]),
            })?;
        }
        files.push((root.join(file), page));
    }
    Ok(files)
}

const FORWARDER: &str = "crates/linerate-drivers/examples/l2fwd.rs";

/// The example as README shows it: without the words before its code.
fn forwarder(example: &str) -> String {
    let is_before = |line: &&str| line.trim().is_empty() || line.starts_with("//!");
    let lines = example.split_inclusive('\n');
    lines.skip_while(is_before).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_ratios_are_those_of_their_sources() {
        for (path, wanted) in from_sources().unwrap() {
            let found = fs::read_to_string(&path).unwrap_or_default();
            let file = path.display();
            assert!(
                found == wanted,
                "{file}: run `cargo xtask pictures --pages`"
            );
        }
    }

    /// README is one sitting; what is longer has a page of its own.
    #[test]
    fn readme_is_short_and_shows_every_picture() {
        let readme = fs::read_to_string(process::root().join("README.md")).unwrap();
        assert!(readme.lines().count() <= 80, "{}", readme.lines().count());
        for file in RECORDINGS.iter().map(|one| one.file).chain(["ratios.svg"]) {
            assert!(readme.contains(&format!("docs/pictures/{file}")), "{file}");
            assert!(
                process::root().join("docs/pictures").join(file).is_file(),
                "{file}"
            );
        }
    }
}
