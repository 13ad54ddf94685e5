//! Our filters against tcpdump's, over real and deliberately broken frames.
//!
//! The captures are not part of this repository: `LINERATE_DATA` names their folder, which is else
//! looked for beside the repository. Without them, or without tcpdump, the test says so.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use linerate_wire::filter::Filter;
use pcap_parser::{PcapBlockOwned, PcapError, create_reader};

const EXPRESSIONS: &[&str] = &[
    "arp",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "not tcp",
    "not (ip or ip6 or arp)",
    "tcp or udp and port 53",
    "port 53",
    "src port 53",
    "dst port 443",
    "tcp port 80",
    "udp src port 123",
    "not port 22",
    "host 192.168.0.1",
    "not host 192.168.0.1",
    "net 10.0.0.0/8",
    "src net 192.168.0.0/16 and not dst net 224.0.0.0/4",
    "dst net 224.0.0.0/4",
    "ip net 0.0.0.0/0",
    "arp net 0.0.0.0/0",
    "net ::/0",
    "ip6 net fe80::/10",
    "dst net ff02::/16",
    "ip and net 128.0.0.0/1",
    "ether dst ff:ff:ff:ff:ff:ff",
    "ether host 01:80:c2:00:00:00",
    "vlan",
    "not vlan",
    "vlan and ip",
    "vlan and tcp port 443",
    "vlan and not tcp",
    "vlan and (port 53 or src port 443 or icmp)",
    "ip or vlan and tcp",
    "vlan and vlan",
    "vlan 100",
    "tcp and (port 80 or port 443) or udp and (dst port 53)",
    "! arp && ! ip6 || udp",
];

/// Every Ethernet frame of a capture file; what pcap-parser cannot read is left out.
fn ethernet_frames(file: &Path, frames: &mut Vec<Vec<u8>>) {
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

fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
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

#[test]
fn filters_pass_the_frames_that_tcpdump_passes() {
    let data = data();
    let captures = data.join("protocol-captures.tar.gz");
    if !captures.exists() {
        eprintln!("SKIP filters against tcpdump: no captures; set LINERATE_DATA to their folder");
        return;
    }
    if Command::new("tcpdump").arg("--version").output().is_err() {
        eprintln!("SKIP filters against tcpdump: no tcpdump; apt install tcpdump");
        return;
    }
    let folder = env::temp_dir().join(format!("linerate-filters-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(&captures)
        .arg("-C")
        .arg(&folder)
        .status();
    assert!(unpacked.unwrap().success());

    let mut frames = Vec::new();
    ethernet_frames(&data.join("access-mix-4k.pcap"), &mut frames);
    let mut files: Vec<_> = fs::read_dir(folder.join("tests"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        ethernet_frames(&file, &mut frames);
    }
    assert!(frames.len() > 5000, "only {} frames read", frames.len());
    let all = folder.join("all.pcap");
    write_pcap(&all, &frames);

    let passed = folder.join("passed.pcap");
    let mut wrong = 0;
    for expression in EXPRESSIONS {
        // -Z root: do not change the user, which would lose the right to write here.
        let mut tcpdump = Command::new("tcpdump");
        tcpdump
            .args(["-Z", "root", "-r"])
            .arg(&all)
            .arg("-w")
            .arg(&passed)
            .arg(expression);
        let output = tcpdump.output().unwrap();
        assert!(
            output.status.success(),
            "{expression}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut theirs = Vec::new();
        ethernet_frames(&passed, &mut theirs);
        let filter: Filter = expression.parse().unwrap();
        let ours: Vec<_> = frames
            .iter()
            .filter(|frame| filter.matches(frame))
            .cloned()
            .collect();
        println!(
            "{expression}: tcpdump {} linerate {}",
            theirs.len(),
            ours.len()
        );
        if ours != theirs {
            wrong += 1;
            let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            println!("  differ, first at {first:?} of those passed");
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(wrong, 0, "filters that differ from tcpdump; see above");
}
