//! Every target over its corpus, every prefix of it, and real packets where they are.
//!
//! `LINERATE_DATA` names the folder of captures, which is else looked for beside the repository.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use linerate_fuzz::TARGETS;
use pcap_parser::{PcapBlockOwned, PcapError, create_reader};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Targets of which one run takes so long that some prefixes must do.
const WHOLE_PROGRAM: [&str; 5] = [
    "router_path",
    "fpm_stream",
    "control_request",
    "http_request",
    "pktgen_text",
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    files
}

#[test]
fn each_corpus_and_all_prefixes_pass() {
    for (name, check) in TARGETS {
        let files = files(&Path::new(HERE).join("corpus").join(name));
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in &files {
            let bytes = fs::read(file).unwrap();
            let step = if WHOLE_PROGRAM.contains(name) {
                bytes.len() / 16 + 1
            } else {
                1
            };
            (0..bytes.len())
                .step_by(step)
                .for_each(|len| check(&bytes[..len]));
            check(&bytes);
        }
        println!("{name}: {} files and their prefixes", files.len());
    }
}

#[test]
fn every_target_has_its_shim() {
    for (name, _) in TARGETS {
        let shim = Path::new(HERE)
            .join("fuzz_targets")
            .join(format!("{name}.rs"));
        assert!(shim.exists(), "{} is missing", shim.display());
    }
}

/// The packets of a capture file, whatever their link type; what cannot be read is left out.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let Ok(reader) = fs::File::open(file) else {
        return packets;
    };
    let Ok(mut reader) = create_reader(1 << 20, reader) else {
        return packets;
    };
    loop {
        match reader.next() {
            Ok((len, block)) => {
                match block {
                    PcapBlockOwned::Legacy(packet) => packets.push(packet.data.to_vec()),
                    PcapBlockOwned::NG(pcap_parser::Block::EnhancedPacket(packet)) => {
                        packets.push(packet.data.to_vec())
                    }
                    _ => {}
                }
                reader.consume(len);
            }
            Err(PcapError::Incomplete(_)) => {
                if reader.refill().is_err() {
                    return packets;
                }
            }
            Err(_) => return packets,
        }
    }
}

#[test]
fn real_and_broken_packets_pass() {
    let data = match env::var_os("LINERATE_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(HERE).join("../../shared/data"),
    };
    let archive = data.join("protocol-captures.tar.gz");
    if !archive.exists() {
        eprintln!("SKIP replay of real packets: no captures; set LINERATE_DATA to their folder");
        return;
    }
    let folder = linerate_core::env::PrivateFolder::new("replay").unwrap();
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(unpacked.unwrap().success());
    let packets: Vec<_> = files(&folder.join("tests"))
        .iter()
        .flat_map(|file| packets(file))
        .collect();
    assert!(packets.len() > 9000, "only {} packets read", packets.len());
    let prefixes: [&[u8]; 3] = [b"", b"\0\x64", b"vlan and port 53 or not net 10.0.0.0/8\0"];
    for packet in &packets {
        for prefix in prefixes {
            let input = [prefix, packet].concat();
            let all = TARGETS
                .iter()
                .filter(|(name, _)| !WHOLE_PROGRAM.contains(name));
            all.for_each(|(_, check)| check(&input));
        }
    }
    println!("{} packets", packets.len());
}
