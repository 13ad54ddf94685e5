//! What a server has: files read at the start, and bodies that are made up.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::answer::{Status, front};
use crate::pattern;

/// The media type of text.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Files of a folder at most, so that a folder named by mistake does not fill the memory.
const MOST_FILES: usize = 100_000;
/// Their bytes at most.
const MOST_BYTES: u64 = 4 << 30;

/// A body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The bytes of a file.
    Bytes(Arc<[u8]>),
    /// So many bytes of the [`pattern`].
    Pattern(u64),
}

impl Content {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Pattern(len) => *len,
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes its bytes from `at` on; returns how many. Past its end there are none.
    pub fn copy(&self, at: u64, to: &mut [u8]) -> usize {
        let count = (self.len().saturating_sub(at)).min(to.len() as u64) as usize;
        match self {
            Self::Bytes(bytes) => {
                let rest = bytes.get(at as usize..).unwrap_or(&[]);
                to[..count].copy_from_slice(&rest[..count]);
            }
            Self::Pattern(_) => pattern::fill(at, &mut to[..count]),
        }
        count
    }
}

/// A body and its media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The body.
    pub content: Content,
    /// RFC 9110 8.3.
    pub media_type: &'static str,
    /// The front of the head of an answer with it ([`front`]).
    pub front: Box<[u8]>,
}

/// A hash of paths, fast rather than secret: peers look paths up and cannot add any, so that there
/// is nothing to be had from two that collide.
#[derive(Clone, Copy, Debug, Default)]
struct PathHash(u64);

impl PathHash {
    #[inline]
    fn mix(&mut self, word: u64) {
        // Odd, from the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

impl Hasher for PathHash {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut eights = bytes.chunks_exact(8);
        for eight in &mut eights {
            self.mix(
                eight
                    .iter()
                    .rfold(0, |word, &byte| word << 8 | u64::from(byte)),
            );
        }
        let rest = eights.remainder();
        self.mix(
            rest.iter()
                .rfold(0, |word, &byte| word << 8 | u64::from(byte)),
        );
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // Tables take both ends of it.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// All resources by path, the same for all lcores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    by_path: HashMap<Vec<u8>, u32, BuildHasherDefault<PathHash>>,
    all: Vec<Resource>,
}

impl Site {
    /// Adds a body of `len` made-up bytes at a path.
    pub fn add_pattern(&mut self, path: &str, len: u64) {
        self.add(path, Content::Pattern(len), "application/octet-stream");
    }

    /// Adds a resource; one that was there is replaced.
    pub fn add(&mut self, path: &str, content: Content, media_type: &'static str) {
        let resource = Resource {
            front: front(Status::Ok, content.len(), media_type),
            content,
            media_type,
        };
        let number = self.all.len() as u32;
        self.all.push(resource);
        self.by_path.insert(path.as_bytes().into(), number);
    }

    /// Adds all files below a folder, each by its path from there, `index.html` by its folder's
    /// path as well. Links are followed, but not to folders.
    ///
    /// # Errors
    /// A file or folder that cannot be read, or too much of them.
    pub fn add_folder(&mut self, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
        let mut folders = vec![(folder.to_owned(), String::from("/"))];
        let (mut files, mut bytes) = (0, 0);
        while let Some((folder, before)) = folders.pop() {
            let at = |error| (folder.clone(), error);
            for entry in std::fs::read_dir(&folder).map_err(at)? {
                let entry = entry.map_err(at)?;
                let name = entry.file_name();
                // A path that is no text cannot be asked for.
                let Some(name) = name.to_str() else { continue };
                let path = entry.path();
                if entry.file_type().map_err(at)?.is_dir() {
                    folders.push((path, format!("{before}{name}/")));
                    continue;
                }
                let at = |error| (path.clone(), error);
                let facts = std::fs::metadata(&path).map_err(at)?;
                if !facts.is_file() {
                    continue;
                }
                (files, bytes) = (files + 1, bytes + facts.len());
                if files > MOST_FILES || bytes > MOST_BYTES {
                    let problem = format!(
                        "more than {MOST_FILES} files or {} GiB below the folder",
                        MOST_BYTES >> 30
                    );
                    return Err(at(io::Error::other(problem)));
                }
                let text: Arc<[u8]> = std::fs::read(&path).map_err(at)?.into();
                let media_type = media_type(name);
                if name == "index.html" {
                    self.add(&before, Content::Bytes(text.clone()), media_type);
                }
                let path = format!("{before}{name}");
                self.add(&path, Content::Bytes(text), media_type);
            }
        }
        Ok(())
    }

    /// What a request target asks for: a path, behind which a query is left out of account (RFC
    /// 9112 3.2), and an absolute form's authority before it.
    /// The answer is its number, for [`get`](Self::get).
    pub fn find(&self, target: &[u8]) -> Option<u32> {
        let path = path_of(target)?;
        let number = match path.contains(&b'%') {
            false => self.by_path.get(path),
            true => self.by_path.get(&decoded(path)?),
        };
        number.copied()
    }

    /// The resource of a number.
    pub fn get(&self, number: u32) -> Option<&Resource> {
        self.all.get(number as usize)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_path.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }
}

/// The path of a target in origin-form or absolute-form (RFC 9112 3.2.1, 3.2.2).
fn path_of(target: &[u8]) -> Option<&[u8]> {
    let path = match target.first()? {
        b'/' => target,
        _ => {
            let scheme = target.get(..7)?;
            if !scheme.eq_ignore_ascii_case(b"http://") {
                return None;
            }
            let rest = &target[7..];
            let at = rest.iter().position(|&byte| byte == b'/');
            at.map_or(&b"/"[..], |at| &rest[at..])
        }
    };
    path.split(|&byte| byte == b'?').next()
}

/// RFC 3986 2.1: `None` where a `%` has no two hexadecimal digits behind it.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let mut byte = *first;
        if byte == b'%' {
            let [high, low, behind @ ..] = behind else {
                return None;
            };
            byte = digit(*high)? << 4 | digit(*low)?;
            rest = behind;
        }
        out.push(byte);
    }
    Some(out)
}

/// By the name's ending; what is unknown is bytes (RFC 9110 8.3).
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css",
        "js" => "text/javascript",
        "json" => "application/json",
        "txt" | "md" => TEXT,
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "pdf" => "application/pdf",
        "xml" => "application/xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn targets_lead_to_their_paths() {
        let mut site = Site::default();
        site.add_pattern("/a b", 3);
        site.add_pattern("/", 1);
        let len = |target: &[u8]| site.get(site.find(target).unwrap()).unwrap().content.len();
        for target in [
            "/a%20b",
            "/a%20b?x=/",
            "http://host:80/a%20b",
            "HTTP://host/a b",
        ] {
            assert_eq!(len(target.as_bytes()), 3, "{target}");
        }
        assert_eq!(len(b"http://host"), 1);
        for target in ["", "*", "/b", "/a%2", "/a%zzb", "ftp://host/", "host:80"] {
            assert!(site.find(target.as_bytes()).is_none(), "{target}");
        }
    }

    #[test]
    fn contents_have_their_bytes_anywhere() {
        let bytes: Arc<[u8]> = (0..200).collect();
        for content in [Content::Bytes(bytes), Content::Pattern(200)] {
            let mut whole = [0; 300];
            assert_eq!(content.copy(0, &mut whole), 200);
            let mut part = [0; 50];
            assert_eq!(content.copy(170, &mut part), 30);
            assert_eq!(part[..30], whole[170..200]);
            assert_eq!(content.copy(201, &mut part), 0);
        }
    }
}
