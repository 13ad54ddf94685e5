//! The lines that were typed, kept for the next time: at most [`KEPT`] of them, in a file that only
//! its user reads. The screen walks through them with [`History::back`] and [`History::forth`].

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Lines kept.
pub(crate) const KEPT: usize = 1000;
/// Longest line kept, in bytes.
const LINE_BYTES: usize = 4096;

/// Lines typed, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    lines: Vec<String>,
    /// Position in `lines` while walking back.
    at: Option<usize>,
    /// What was typed before walking back.
    draft: String,
    file: Option<File>,
}

impl History {
    /// `$XDG_STATE_HOME/linerate/pktgen_history`, or below `~/.local/state`; none without a home.
    pub(crate) fn usual_path() -> Option<PathBuf> {
        let absolute = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let state =
            absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
        Some(state.join("linerate/pktgen_history"))
    }

    /// Reads the file at `path`, and adds to it from now on. If that fails, lines are kept in
    /// memory only, and the error is returned.
    pub(crate) fn open(path: &Path) -> (Self, io::Result<()>) {
        let mut history = Self::default();
        let result = history.begin(path);
        (history, result)
    }

    fn begin(&mut self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let all: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let newest = &all[all.len().saturating_sub(KEPT)..];
        self.lines = newest.iter().map(|line| (*line).to_owned()).collect();
        let private = |options: &mut OpenOptions| options.mode(0o600).open(path);
        if all.len() > 2 * KEPT {
            let mut file = private(OpenOptions::new().write(true).create(true).truncate(true))?;
            for line in &self.lines {
                writeln!(file, "{line}")?;
            }
        }
        let file = private(OpenOptions::new().append(true).create(true))?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        self.file = Some(file);
        Ok(())
    }

    /// Keeps a line, unless it is the last one again or begins with a blank.
    pub(crate) fn add(&mut self, line: &str) {
        (self.at, self.draft) = (None, String::new());
        let odd = |c: char| c.is_control();
        let too_much = line.len() > LINE_BYTES || line.contains(odd);
        if line.is_empty() || line.starts_with(' ') || too_much {
            return;
        }
        if self.lines.last().is_some_and(|last| last == line) {
            return;
        }
        if self.lines.len() == KEPT {
            self.lines.remove(0);
        }
        self.lines.push(line.into());
        let text = format!("{line}\n");
        // A full disk must not end the session.
        if self
            .file
            .as_mut()
            .is_some_and(|file| file.write_all(text.as_bytes()).is_err())
        {
            self.file = None;
        }
    }

    /// The line before; `typed` is the current line, which comes back at the end of
    /// [`forth`](Self::forth). None at the oldest.
    pub(crate) fn back(&mut self, typed: &str) -> Option<&str> {
        let at = match self.at {
            None => {
                self.draft = typed.into();
                self.lines.len().checked_sub(1)?
            }
            Some(at) => at.checked_sub(1)?,
        };
        self.at = Some(at);
        Some(&self.lines[at])
    }

    /// The line after, at last what was typed before; `None` without a step back before.
    pub(crate) fn forth(&mut self) -> Option<&str> {
        let at = self.at? + 1;
        if at < self.lines.len() {
            self.at = Some(at);
            return Some(&self.lines[at]);
        }
        self.at = None;
        Some(&self.draft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_walks_back_and_forth_and_gets_the_draft_again() {
        let mut history = History::default();
        for line in ["one", "two", "two", " secret", "", "three"] {
            history.add(line);
        }
        assert_eq!(history.forth(), None);
        assert_eq!(history.back("draft"), Some("three"));
        assert_eq!(history.back("three"), Some("two"));
        assert_eq!(history.back("two"), Some("one"));
        assert_eq!(history.back("one"), None);
        assert_eq!(history.forth(), Some("two"));
        assert_eq!(history.forth(), Some("three"));
        assert_eq!(history.forth(), Some("draft"));
        assert_eq!(history.forth(), None);
    }

    #[test]
    fn lines_are_there_the_next_time_bounded_and_private() {
        let folder = linerate_core::env::PrivateFolder::new("history").unwrap();
        let path = folder.join("kept/deep/history");
        let (mut history, opened) = History::open(&path);
        opened.unwrap();
        for number in 0..3 * KEPT {
            history.add(&format!("line {number}"));
        }
        assert_eq!(history.lines.len(), KEPT);
        drop(history);
        let (mut history, opened) = History::open(&path);
        opened.unwrap();
        let last = format!("line {}", 3 * KEPT - 1);
        assert_eq!(history.back(""), Some(last.as_str()));
        assert_eq!(history.lines.len(), KEPT);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), KEPT);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn without_a_file_lines_are_kept_until_the_end() {
        let (mut history, opened) = History::open(Path::new("/proc/nowhere/history"));
        assert!(opened.is_err());
        history.add("one");
        assert_eq!(history.back(""), Some("one"));
    }
}
