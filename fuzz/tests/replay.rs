//! Every target over its corpus, every prefix of it, and real packets where they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use linerate_fuzz::TARGETS;
use linerate_testkit::capture;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Targets of which one run takes so long that some prefixes must do.
const WHOLE_PROGRAM: [&str; 5] = [
    "router_path",
    "fpm_stream",
    "control_request",
    "http_request",
    "pktgen_text",
];

/// How many prefixes of a file are tried.
fn most_prefixes(name: &str) -> usize {
    match name {
        _ if WHOLE_PROGRAM.contains(&name) => 16,
        // A session each, and of files there are many.
        "vhost_messages" => 64,
        // Four nodes are made for each, or a stack.
        "epc_nodes" | "tcp_stack" | "http_session" => 32,
        _ => usize::MAX,
    }
}

/// Targets that make a stack, nodes or rings for each input: of many inputs, one in [`SAMPLE`] must
/// do. All of them would take minutes, in which the others take seconds.
const MADE_ANEW: [&str; 8] = [
    "af_packet_ring",
    "epc_nodes",
    "http_session",
    "inflight_record",
    "memif_ring",
    "tcp_stack",
    "vhost_messages",
    "virtqueue",
];

/// No multiple of the number of prefixes, each of which has its turn.
const SAMPLE: usize = 61;

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
            (0..bytes.len())
                .step_by(bytes.len() / most_prefixes(name) + 1)
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

#[test]
fn real_and_broken_packets_pass() {
    let Some((_folder, files)) = linerate_testkit::captures() else {
        return;
    };
    let packets = files.iter().flat_map(|file| capture::packets(file));
    let packets: Vec<_> = packets.map(|(_, packet)| packet).collect();
    assert!(packets.len() > 9000, "only {} packets read", packets.len());
    let prefixes: [&[u8]; 3] = [b"", b"\0\x64", b"vlan and port 53 or not net 10.0.0.0/8\0"];
    let inputs = packets
        .iter()
        .flat_map(|packet| prefixes.map(|prefix| [prefix, packet].concat()));
    for (number, input) in inputs.enumerate() {
        let takes_it = |name: &str| {
            let is_turn = number.is_multiple_of(SAMPLE) || !MADE_ANEW.contains(&name);
            is_turn && !WHOLE_PROGRAM.contains(&name)
        };
        let all = TARGETS.iter().filter(|(name, _)| takes_it(name));
        all.for_each(|(_, check)| check(&input));
    }
    println!("{} packets", packets.len());
}
