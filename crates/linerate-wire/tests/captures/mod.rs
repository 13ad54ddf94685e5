//! Real and deliberately broken Ethernet frames, for the tests beside.
//!
//! The captures are not part of this repository: `LINERATE_DATA` names their folder, which is else
//! looked for beside the repository. Tests without them, or without the tool, say so.
#![allow(dead_code)] // not every test uses all of it

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use pcap_parser::{PcapBlockOwned, PcapError, create_reader};

#[path = "../../../linerate-core/src/env/private_folder.rs"]
#[allow(unreachable_pub)]
mod private_folder;

pub(crate) use private_folder::PrivateFolder;

/// Every Ethernet frame of a capture file; what pcap-parser cannot read is left out.
pub(crate) fn ethernet_frames(file: &Path, frames: &mut Vec<Vec<u8>>) {
    const ETHERNET: i32 = 1;
    let Ok(reader) = fs::File::open(file) else {
        return;
    };
    let Ok(mut reader) = create_reader(1 << 20, reader) else {
        return;
    };
    let mut interfaces = Vec::new();
    let mut legacy_ethernet = false;
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                use pcap_parser::Block;
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        legacy_ethernet = header.network.0 == ETHERNET
                    }
                    PcapBlockOwned::Legacy(packet) if legacy_ethernet => {
                        frames.push(packet.data.to_vec())
                    }
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        interfaces.push(interface.linktype.0 == ETHERNET)
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet))
                        if interfaces.get(packet.if_id as usize) == Some(&true) =>
                    {
                        frames.push(packet.data[..packet.caplen as usize].to_vec());
                    }
                    _ => {}
                }
                reader.consume(offset);
            }
            Err(PcapError::Incomplete(_)) => {
                if reader.refill().is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

pub(crate) fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in frames.iter().enumerate() {
        for word in [number as u32, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    fs::write(path, file).expect("the temporary folder is writable");
}

fn data() -> PathBuf {
    match env::var_os("LINERATE_DATA") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    }
}

/// Every Ethernet frame of all captures, and a folder to work in; `None`, and a word on why, where
/// there are no captures.
pub(crate) fn all_frames(test: &str) -> Option<(Vec<Vec<u8>>, PrivateFolder)> {
    let data = data();
    let captures = data.join("protocol-captures.tar.gz");
    if !captures.exists() {
        eprintln!("SKIP {test}: no captures; set LINERATE_DATA to their folder");
        return None;
    }
    let folder = PrivateFolder::new(&test.replace(' ', "-"));
    let folder = folder.expect("the temporary folder is writable");
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(&captures)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(unpacked.expect("tar runs").success());

    let mut frames = Vec::new();
    ethernet_frames(&data.join("access-mix-4k.pcap"), &mut frames);
    for file in files(&folder.join("tests")) {
        ethernet_frames(&file, &mut frames);
    }
    assert!(frames.len() > 5000, "only {} frames read", frames.len());
    Some((frames, folder))
}

/// The files of a folder, sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    files
}

/// Whether a program is there; a word where it is not.
pub(crate) fn has_tool(test: &str, tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIP {test}: no {tool}; apt install {tool}");
    }
    there
}
