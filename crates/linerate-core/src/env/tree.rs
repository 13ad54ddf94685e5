//! Files of /sys and /proc below a root that can be faked.
//!
//! A tree is a directory (`/` for the machine itself, or a copy of another machine's files), or a
//! listing: one text file of `path:value` lines, as `grep -rs . /sys/devices/system/cpu` prints
//! them. Paths are given relative to `/`, without a leading slash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::EnvError;

/// The file in a directory that has the contents of a whole tree.
const LISTING: &str = "sysfs.txt";

/// Where the files of a machine are read from.
#[derive(Clone, Debug)]
pub struct Tree(Source);

#[derive(Clone, Debug)]
enum Source {
    Directory { root: PathBuf, sys: PathBuf },
    Listing(Arc<BTreeMap<String, String>>),
}

impl Tree {
    /// The machine that the program runs on.
    pub fn machine() -> Self {
        Self(Source::Directory {
            root: "/".into(),
            sys: "/sys".into(),
        })
    }

    /// A tree at `path`: a directory that holds `sys/devices/system/cpu` (or, for a bare copy of
    /// /sys, `devices/system/cpu`), a directory that holds a listing `sysfs.txt`, or a listing.
    pub fn open(path: &Path) -> Result<Self, EnvError> {
        let bad = |reason: String| EnvError::NoTopology {
            path: path.into(),
            reason,
        };
        let metadata = fs::metadata(path).map_err(|e| bad(e.to_string()))?;
        if metadata.is_file() {
            return Self::listing(path);
        }
        if path.join(LISTING).is_file() {
            return Self::listing(&path.join(LISTING));
        }
        let sys = [path.join("sys"), path.to_path_buf()]
            .into_iter()
            .find(|sys| sys.join("devices/system/cpu").is_dir())
            .ok_or_else(|| bad("holds neither sys/devices/system/cpu nor sysfs.txt".into()))?;
        Ok(Self(Source::Directory {
            root: path.into(),
            sys,
        }))
    }

    fn listing(path: &Path) -> Result<Self, EnvError> {
        let bad = |reason: String| EnvError::NoTopology {
            path: path.into(),
            reason,
        };
        let text = fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        let mut files = BTreeMap::<String, String>::new();
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = split(line)
                .ok_or_else(|| bad(format!("line {} is not `path:value`", number + 1)))?;
            // grep repeats the path for each line of a file.
            let file = files
                .entry(name.trim_start_matches('/').into())
                .or_default();
            if !file.is_empty() {
                file.push('\n');
            }
            file.push_str(value.trim());
        }
        Ok(Self(Source::Listing(Arc::new(files))))
    }

    /// Whether this is the machine itself, so that system calls answer for it too.
    pub fn is_machine(&self) -> bool {
        matches!(&self.0, Source::Directory { root, .. } if root == Path::new("/"))
    }

    /// The file's text without blanks at its ends; `None` if it is absent or unreadable.
    pub fn read(&self, path: &str) -> Option<String> {
        match &self.0 {
            Source::Listing(files) => files.get(path).cloned(),
            Source::Directory { .. } => {
                Some(fs::read_to_string(self.locate(path)?).ok()?.trim().into())
            }
        }
    }

    /// The file as a number; `None` if it is absent or something else.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, path: &str) -> bool {
        match &self.0 {
            Source::Listing(_) => self.read(path).is_some() || !self.list(path).is_empty(),
            Source::Directory { .. } => self.locate(path).is_some_and(|p| p.exists()),
        }
    }

    /// The names in a directory, sorted; empty if there is none.
    pub fn list(&self, path: &str) -> Vec<String> {
        let mut names = match &self.0 {
            Source::Listing(files) => {
                let prefix = format!("{path}/");
                files
                    .range(prefix.clone()..)
                    .map_while(|(name, _)| name.strip_prefix(&prefix))
                    .filter_map(|rest| rest.split('/').next())
                    .map(String::from)
                    .collect()
            }
            Source::Directory { .. } => self.entries(path).unwrap_or_default(),
        };
        names.sort_unstable();
        names.dedup();
        names
    }

    fn entries(&self, path: &str) -> io::Result<Vec<String>> {
        let Some(directory) = self.locate(path) else {
            return Ok(Vec::new());
        };
        fs::read_dir(directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn locate(&self, path: &str) -> Option<PathBuf> {
        match &self.0 {
            Source::Listing(_) => None,
            Source::Directory { root, sys } => Some(match path.strip_prefix("sys/") {
                Some(below) => sys.join(below),
                None => root.join(path),
            }),
        }
    }
}

/// Parts a line of a listing. Names below /sys may hold colons (PCI addresses), values below /proc
/// slashes.
fn split(line: &str) -> Option<(&str, &str)> {
    let last = line
        .rfind('/')
        .filter(|_| line.trim_start_matches('/').starts_with("sys/"))
        .unwrap_or(0);
    match line[last..].find(':') {
        Some(colon) => Some((&line[..last + colon], &line[last + colon + 1..])),
        None => line.split_once(':'),
    }
}
