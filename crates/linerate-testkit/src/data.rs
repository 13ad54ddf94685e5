//! Real captures and routing tables, which are not part of the repository.

use crate::capture::{self, ETHERNET};
use crate::{Scratch, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders around the repository that are looked at.
const AROUND: usize = 2;

/// A file of real data; the test is skipped where there is none.
///
/// `LINERATE_DATA` names its folder. Else it is looked for in folders called `data` beside the repository,
/// or in folders beside it.
pub fn data(file: &str) -> Option<PathBuf> {
    let found = match std::env::var_os("LINERATE_DATA") {
        Some(folder) => Some(Path::new(&folder).join(file)).filter(|path| path.is_file()),
        None => {
            let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            beside(crates.parent().unwrap(), file)
        }
    };
    if found.is_none() {
        skip(&format!("needs {file}: set LINERATE_DATA to its folder"));
    }
    found
}

/// Captures of hundreds of protocols, many packets deliberately malformed, unpacked and sorted by name;
/// they go with the folder. The test is skipped where there are none.
pub fn captures() -> Option<(Scratch, Vec<PathBuf>)> {
    let archive = data("protocol-captures.tar.gz")?;
    let scratch = Scratch::new();
    let mut command = Command::new("tar");
    command
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(scratch.path());
    assert!(command.status().expect("tar runs").success());
    let files = std::fs::read_dir(scratch.path().join("tests")).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    Some((scratch, files))
}

/// Every Ethernet frame of all the real captures. The test is skipped where there are none.
pub fn ethernet_frames() -> Option<Vec<Vec<u8>>> {
    let mix = data("access-mix-4k.pcap")?;
    let (_folder, files) = captures()?;
    let packets = std::iter::once(mix).chain(files);
    let packets = packets.flat_map(|file| capture::packets(&file));
    let frames: Vec<_> = packets
        .filter(|(link_type, _)| *link_type == ETHERNET)
        .map(|(_, frame)| frame)
        .collect();
    assert!(frames.len() > 5000, "only {} frames read", frames.len());
    Some(frames)
}

fn beside(repository: &Path, file: &str) -> Option<PathBuf> {
    let around = repository.ancestors().skip(1).take(AROUND);
    around.map(Path::to_owned).find_map(|folder| {
        let mut folders = vec![folder.clone()];
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path()));
        folders.sort();
        let paths = folders.iter().map(|folder| folder.join("data").join(file));
        paths.into_iter().find(|path| path.is_file())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_found_beside_the_repository_and_one_folder_up() {
        for place in ["data", "shared/data", "work/data", "work/shared/data"] {
            let scratch = Scratch::new();
            let repository = scratch.path().join("work/repository");
            std::fs::create_dir_all(&repository).unwrap();
            assert_eq!(beside(&repository, "table"), None);
            let folder = scratch.path().join(place);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("table"), "").unwrap();
            assert_eq!(beside(&repository, "table"), Some(folder.join("table")));
        }
    }
}
