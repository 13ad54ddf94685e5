//! Captures through `pcap -> l2fwd -> pcap` come out identical except for MAC addresses; libpcap
//! reads both.

use linerate_testkit::Scratch;
use linerate_testkit::capture::{self, Tcpdump};
use linerate_testkit::cli::binary;
use linerate_testkit::netns::{LEFT, Namespace, RIGHT};
use linerate_testkit::{captures, data, has};
use linerate_testkit::{harness::Test, tests};
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![an_access_network, protocols, live_programs,];

/// An Ethernet header.
const SHORTEST: usize = 14;
/// Largest frame of a large slot: the longest IP packet with its headers, though not BIG TCP.
const LONGEST: usize = 65_600;

/// Replays a capture into another, which must have the frames that libpcap finds in the first.
#[track_caller]
fn comes_out_identical(file: &str, scratch: &Scratch) {
    let all = capture::frames(file, scratch);
    let count =
        |which: &dyn Fn(usize) -> bool| all.iter().filter(|frame| which(frame.len())).count();
    // Frames too short for Ethernet or too long for a slot are counted, and not sent.
    let (malformed, oversize) = (count(&|len| len < SHORTEST), count(&|len| len > LONGEST));
    let sent = |frame: &&Vec<u8>| (SHORTEST..=LONGEST).contains(&frame.len());
    let expected: Vec<_> = all.iter().filter(sent).collect();
    assert!(!expected.is_empty(), "{file}");
    for update in [false, true] {
        let out = scratch.file("out.pcapng");
        let mut command = Command::new(binary());
        command.args([
            "l2fwd",
            "--json",
            &format!("pcap:rx={file}"),
            &format!("pcap:tx={out}"),
        ]);
        if !update {
            command.arg("--no-mac-update");
        }
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{file}: {}{stdout}",
            String::from_utf8_lossy(&output.stderr)
        );
        let totals: serde_json::Value =
            serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        let drops = &totals["ports"][0]["rx_drops"];
        let dropped = |reason: &str| drops[reason].as_u64().unwrap_or(0);
        assert_eq!(
            (dropped("malformed"), dropped("oversize")),
            (malformed as u64, oversize as u64),
            "{file}: {drops}"
        );
        let arrived = capture::frames(&out, scratch);
        assert_eq!(arrived.len(), expected.len(), "{file}: {stdout}");
        for (number, (arrived, expected)) in arrived.iter().zip(&expected).enumerate() {
            let skip = if update { 12 } else { 0 };
            assert!(
                arrived[skip..] == expected[skip..],
                "frame {number} of {file}: {arrived:02x?}, not {expected:02x?}"
            );
            // A file has no MAC address, so l2fwd makes one up.
            let macs = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1];
            assert!(
                !update || arrived[..12] == macs,
                "frame {number} of {file}: {arrived:02x?}"
            );
        }
    }
}

fn an_access_network() {
    let Some(file) = data("access-mix-4k.pcap").filter(|_| has(&["tcpdump"])) else {
        return;
    };
    comes_out_identical(&file.display().to_string(), &Scratch::new());
}

/// Hundreds of protocols, many frames deliberately malformed. All Ethernet ones in one file; the
/// formats that are not plain pcap, also each as it is.
fn protocols() {
    let Some((scratch, files)) = captures().filter(|_| has(&["tcpdump"])) else {
        return;
    };
    let (mut all, mut alone) = (Vec::new(), 0);
    for file in files {
        let file = &file.display().to_string();
        let Some(frames) = capture::ethernet(file, &scratch) else {
            continue;
        };
        let magic = std::fs::read(file).unwrap()[..4].to_vec();
        let is_plain = magic == 0xa1b2_c3d4_u32.to_le_bytes();
        if !is_plain && frames.iter().any(|frame| frame.len() >= SHORTEST) {
            comes_out_identical(file, &scratch);
            alone += 1;
        }
        all.extend(frames);
    }
    assert!(
        all.len() > 5000 && alone > 3,
        "{} frames, {alone} files of other formats",
        all.len()
    );
    let file = scratch.file("all.pcap");
    std::fs::write(&file, capture::pcap(&all)).unwrap();
    comes_out_identical(&file, &scratch);
}

/// Recorded here from live programs, unsegmented frames included.
fn live_programs() {
    if !has(&["tcpdump", "ping", "iperf3"]) {
        return;
    }
    let (Some(left), Some(right)) = (Namespace::new("l"), Namespace::new("r")) else {
        return;
    };
    left.wire("veth0", &right, "veth1", "");
    left.ip(&format!("addr add {LEFT}/24 dev veth0"));
    right.ip(&format!("addr add {RIGHT}/24 dev veth1"));
    let scratch = Scratch::new();
    let onlooker = Tcpdump::start(&left, "veth0", "inout", &scratch);
    assert!(
        left.run("ping", &format!("-c 5 -i 0.01 {RIGHT}"))
            .status
            .success()
    );
    for options in [
        "--bytes 2M",
        "--bytes 2M --reverse",
        "--udp --bytes 200K --bandwidth 10M",
    ] {
        let mut server = right.start("iperf3", "--server --one-off --forceflush");
        server.wait("iperf3 to listen", |stdout, _| {
            stdout.text().contains("Server listening")
        });
        assert!(
            left.run("iperf3", &format!("--client {RIGHT} {options}"))
                .status
                .success()
        );
        server.end();
    }
    let frames = onlooker.end();
    assert!(
        frames.iter().any(|frame| frame.len() > 1514),
        "the hosts cut all their frames"
    );
    let ethertypes = |ethertype: [u8; 2]| {
        frames
            .iter()
            .filter(|frame| frame[12..14] == ethertype)
            .count()
    };
    assert!(ethertypes([8, 6]) > 0 && ethertypes([8, 0]) > 100);
    let file = scratch.file("live.pcap");
    std::fs::write(&file, capture::pcap(&frames)).unwrap();
    comes_out_identical(&file, &scratch);
}
