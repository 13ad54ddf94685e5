//! tcpdump as the onlooker, and capture files as test data. What linerate reads or writes is judged
//! by libpcap: [`frames`] has tcpdump read any capture and parses only the plain copy it makes.

use crate::Scratch;
use crate::cli::binary;
use crate::netns::Namespace;
use crate::process::Running;
use crate::wait;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// tcpdump at an interface, writing whole frames to a file.
pub struct Tcpdump {
    running: Running,
    file: String,
}

impl Tcpdump {
    /// Starts it, and waits until it listens. `way` is `in`, `out` or `inout`.
    #[track_caller]
    pub fn start(namespace: &Namespace, interface: &str, way: &str, scratch: &Scratch) -> Self {
        // Interfaces of several name spaces have the same name.
        let number = crate::number();
        let file = scratch.file(&format!("{interface}-{way}-{number}.pcap"));
        let words = format!(
            "-Z root -i {interface} -Q {way} -B 65536 -s 262144 -U --immediate-mode -n -w {file}"
        );
        let mut running = namespace.start("tcpdump", &words);
        running.wait("tcpdump to listen", |_, stderr| {
            stderr.text().contains("listening on")
        });
        Self { running, file }
    }

    /// What it has seen so far.
    pub fn so_far(&self) -> Vec<Vec<u8>> {
        parse(&std::fs::read(&self.file).unwrap())
    }

    /// Waits until it has seen as many frames as are still to come, ends it, and returns them.
    #[track_caller]
    pub fn expect(mut self, count: impl Fn() -> u64) -> Vec<Vec<u8>> {
        let file = self.file.clone();
        self.running
            .wait(&format!("{} frames in {file}", count()), |_, _| {
                std::fs::read(&file).is_ok_and(|bytes| parse(&bytes).len() as u64 >= count())
            });
        self.end()
    }

    /// Waits until nothing more has come for a while, ends it, and returns what it saw.
    #[track_caller]
    pub fn settled(self) -> Vec<Vec<u8>> {
        let len = || std::fs::metadata(&self.file).map_or(0, |file| file.len());
        let (mut last, mut since) = (len(), Instant::now());
        while since.elapsed() < Duration::from_millis(500) {
            std::thread::sleep(Duration::from_millis(20));
            if len() != last {
                (last, since) = (len(), Instant::now());
            }
        }
        self.end()
    }

    /// Ends it, and returns what it saw.
    #[track_caller]
    pub fn end(mut self) -> Vec<Vec<u8>> {
        self.running.signal(Signal::INT);
        assert!(self.running.end().success());
        let said = self.running.stderr.text();
        assert!(said.contains("\n0 packets dropped by kernel"), "{said}");
        parse(&std::fs::read(&self.file).unwrap())
    }
}

/// The link type of Ethernet in captures.
pub const ETHERNET: i32 = 1;

/// The packets of a pcap or pcapng file with their link types, as pcap-parser reads them; what it
/// cannot read is left out.
pub fn packets(file: &Path) -> Vec<(i32, Vec<u8>)> {
    read(file).0
}

/// The frames of a pcap or pcapng file, which has to be whole, as pcap-parser reads them.
#[track_caller]
pub fn frames_of(file: &str) -> Vec<Vec<u8>> {
    let (packets, is_whole) = read(Path::new(file));
    assert!(
        is_whole,
        "{file} is damaged behind {} packets",
        packets.len()
    );
    packets.into_iter().map(|(_, frame)| frame).collect()
}

/// Packets with their link types, and whether these are all of the file.
fn read(file: &Path) -> (Vec<(i32, Vec<u8>)>, bool) {
    let mut packets = Vec::new();
    let opened = std::fs::File::open(file).unwrap();
    let Ok(mut reader) = create_reader(1 << 20, opened) else {
        return (packets, false);
    };
    let (mut link_type, mut interfaces) = (0, Vec::new());
    loop {
        match reader.next() {
            Ok((len, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => link_type = header.network.0,
                    PcapBlockOwned::Legacy(packet) => {
                        packets.push((link_type, packet.data.to_vec()));
                    }
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        interfaces.push(interface.linktype.0);
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let link_type = interfaces.get(packet.if_id as usize);
                        // What is behind the captured bytes pads the block.
                        let data = &packet.data[..packet.caplen as usize];
                        packets.push((link_type.copied().unwrap_or(-1), data.to_vec()));
                    }
                    _ => {}
                }
                reader.consume(len);
            }
            Err(PcapError::Incomplete(_)) => {
                if reader.refill().is_err() {
                    return (packets, false);
                }
            }
            Err(error) => return (packets, matches!(error, PcapError::Eof)),
        }
    }
}

/// The frames of an Ethernet capture, up to the first damage, as libpcap reads them.
pub fn frames(file: &str, scratch: &Scratch) -> Vec<Vec<u8>> {
    ethernet(file, scratch).unwrap_or_else(|| panic!("{file} is no Ethernet capture"))
}

/// The same; `None` where frames are of another kind.
pub fn ethernet(file: &str, scratch: &Scratch) -> Option<Vec<Vec<u8>>> {
    let copy = scratch.file(&format!("copy-{}.pcap", crate::number()));
    let mut command = Command::new("tcpdump");
    command.args(["-Z", "root", "-n", "-r", file, "-w", &copy]);
    // Fails where the capture is damaged, after it has copied what comes before.
    let output = command.output().unwrap();
    let ethernet = String::from_utf8_lossy(&output.stderr).contains("link-type EN10MB");
    let frames = ethernet.then(|| parse(&std::fs::read(&copy).unwrap_or_default()));
    let _ = std::fs::remove_file(copy);
    frames
}

/// The frames of a pcap file as libpcap writes it on this machine; an unfinished record at the end
/// is left out.
fn parse(file: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = file.get(24..).unwrap_or_default();
    while let Some((head, data)) = rest.split_at_checked(16) {
        let len = u32::from_ne_bytes(head[8..12].try_into().unwrap()) as usize;
        let Some((frame, after)) = data.split_at_checked(len) else {
            break;
        };
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}

/// Frames as a pcap file, one a second.
pub fn pcap<T: AsRef<[u8]>>(frames: &[T]) -> Vec<u8> {
    paced(frames, 1_000_000)
}

/// Frames as a pcap file, so many microseconds apart.
pub fn paced<T: AsRef<[u8]>>(frames: &[T], gap_us: u64) -> Vec<u8> {
    let head = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 262_144, 1_u32];
    let mut file: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if cfg!(target_endian = "big") {
        file[4..8].copy_from_slice(&[0, 2, 0, 4]);
    }
    for (number, frame) in (0..).zip(frames) {
        let (len, at): (u32, u64) = (frame.as_ref().len() as u32, number * gap_us);
        let (seconds, micros) = ((at / 1_000_000) as u32, (at % 1_000_000) as u32);
        file.extend(
            [seconds, micros, len, len]
                .iter()
                .flat_map(|word: &u32| word.to_ne_bytes()),
        );
        file.extend_from_slice(frame.as_ref());
    }
    file
}

/// Sends frames from an interface of a namespace: linerate replays them as a capture.
#[track_caller]
pub fn inject<T: AsRef<[u8]>>(
    namespace: &Namespace,
    interface: &str,
    frames: &[T],
    scratch: &Scratch,
) {
    let file = scratch.file(&format!("inject-{}.pcap", crate::number()));
    std::fs::write(&file, pcap(frames)).unwrap();
    let words =
        format!("l2fwd pcap:rx={file} af_packet:{interface} --no-mac-update --json --period 0.2");
    let mut running = namespace.start(binary(), &words);
    wait("the frames to leave", || {
        running
            .stdout
            .text()
            .contains(&format!("\"tx_packets\":{}", frames.len()))
    });
    running.signal(Signal::INT);
    assert!(running.end().success(), "{}", running.stderr.text());
}
