//! What was written, read back by pcap-parser and by Wireshark's tools; and outputs that fail.

use super::*;
use crate::env::PrivateFolder;
use pcap_parser::{Block, PcapBlockOwned, create_reader};
use std::{fs, path::PathBuf, process::Command};

const START_NS: u64 = 1_700_000_000_123_456_789;

/// Two interfaces, `packets` packets that alternate between them and directions, and statistics.
fn write_sample<W: Write>(out: W, packets: usize) -> io::Result<()> {
    let mut writer = PcapngWriter::new(out, "linerate test");
    let wan = writer.add_interface("wan", 0)?;
    let lan = writer.add_interface("lan", 40)?;
    for n in 0..packets {
        let (interface, direction) = match n % 2 {
            0 => (wan, Direction::Inbound),
            _ => (lan, Direction::Outbound),
        };
        let frame = &frame(n);
        let comment = if n == 3 { "dropped: ttl expired" } else { "" };
        let timestamp_ns = START_NS + n as u64;
        writer.write(&Record {
            interface,
            timestamp_ns,
            direction,
            frame,
            comment,
        })?;
    }
    writer.write_statistics(wan, START_NS + 1_000_000, 1000, 7)?;
    writer.write_statistics(lan, START_NS + 1_000_000, 900, 0)?;
    writer.finish()
}

/// Frames of 60, 61, ... bytes: every padding occurs.
fn frame(n: usize) -> Vec<u8> {
    let mut frame = vec![n as u8; 60 + n % 9];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]); // IEEE local experimental
    frame
}

/// Calls `see` with each block of a capture that must be read to its end.
fn read(bytes: &[u8], mut see: impl FnMut(&Block<'_>)) {
    let mut reader = create_reader(1 << 20, bytes).unwrap();
    loop {
        match reader.next() {
            Ok((len, PcapBlockOwned::NG(block))) => {
                see(&block);
                reader.consume(len);
            }
            Ok(_) => panic!("not pcapng"),
            Err(pcap_parser::PcapError::Eof) => return,
            Err(pcap_parser::PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn options(options: &[pcap_parser::PcapNGOption<'_>]) -> Vec<(u16, Vec<u8>)> {
    let value = |o: &pcap_parser::PcapNGOption<'_>| o.value()[..o.len.into()].to_vec();
    options
        .iter()
        .filter(|o| o.code.0 != 0)
        .map(|o| (o.code.0, value(o)))
        .collect()
}

#[test]
fn pcap_parser_reads_what_was_written() {
    let mut bytes = Vec::new();
    write_sample(&mut bytes, 2000).unwrap();
    let (mut sections, mut names, mut packets, mut statistics) = (0, Vec::new(), 0, Vec::new());
    read(&bytes, |block| match block {
        Block::SectionHeader(header) => {
            sections += 1;
            assert_eq!(options(&header.options), [(4, b"linerate test".to_vec())]);
        }
        Block::InterfaceDescription(interface) => {
            assert_eq!((interface.linktype.0, interface.if_tsresol), (1, 9));
            names.push((options(&interface.options)[0].1.clone(), interface.snaplen));
        }
        Block::EnhancedPacket(packet) => {
            let n = packets;
            packets += 1;
            let mut expected = frame(n);
            assert_eq!(packet.origlen as usize, expected.len());
            expected.truncate(if n % 2 == 0 { usize::MAX } else { 40 });
            assert_eq!(packet.data[..packet.caplen as usize], expected);
            assert_eq!(packet.if_id as usize, n % 2);
            let at = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            assert_eq!(at, START_NS + n as u64);
            let mut wanted = vec![(2, vec![1 + n as u8 % 2, 0, 0, 0])];
            wanted.extend((n == 3).then(|| (1, b"dropped: ttl expired".to_vec())));
            assert_eq!(options(&packet.options), wanted);
        }
        Block::InterfaceStatistics(block) => {
            let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
            let counts = options(&block.options);
            statistics.push((block.if_id, number(&counts[0].1), number(&counts[1].1)));
        }
        other => panic!("{other:?}"),
    });
    assert_eq!((sections, packets), (1, 2000));
    assert_eq!(names, [(b"wan".to_vec(), 0), (b"lan".to_vec(), 40)]);
    assert_eq!(statistics, [(0, 1000, 7), (1, 900, 0)]);
}

/// A file with the sample in it, removed at the end.
struct Sample(PathBuf, #[allow(dead_code)] PrivateFolder);

impl Sample {
    fn new(name: &str) -> Self {
        let folder = PrivateFolder::new(name).unwrap();
        let sample = Self(folder.join("sample.pcapng"), folder);
        write_sample(fs::File::create(&sample.0).unwrap(), 10).unwrap();
        sample
    }

    /// A Wireshark tool's output about it; `None` if the tool is not installed.
    fn ask(&self, tool: &str, arguments: &[&str]) -> Option<String> {
        let Ok(output) = Command::new(tool).args(arguments).arg(&self.0).output() else {
            linerate_testkit::skip(&format!(
                "pcapng against {tool}: not installed; apt install tshark"
            ));
            return None;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool}: {errors}");
        Some(String::from_utf8(output.stdout).unwrap())
    }
}

#[test]
fn tshark_reads_what_was_written() {
    let sample = Sample::new("tshark");
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.len",
        "frame.cap_len",
        "frame.comment",
    ];
    let mut arguments = vec!["-T", "fields"];
    fields
        .iter()
        .for_each(|field| arguments.extend(["-e", field]));
    arguments.push("-r");
    let Some(text) = sample.ask("tshark", &arguments) else {
        return;
    };
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[0], "1700000000.123456789\twan\t60\t60\t");
    assert_eq!(
        lines[3],
        "1700000000.123456792\tlan\t63\t40\tdropped: ttl expired"
    );
}

#[test]
fn capinfos_reads_what_was_written() {
    let sample = Sample::new("capinfos");
    let Some(text) = sample.ask("capinfos", &[]) else {
        return;
    };
    for expected in [
        "Number of packets:   10",
        "nanoseconds",
        "linerate test",
        "Number of interfaces in file: 2",
        "Name = wan",
        "Capture length = 40",
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

/// Takes `room` bytes, a few at a time, and is then full.
struct Disk {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = data.len().min(self.room - self.bytes.len()).min(1000);
        if len == 0 && !data.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&data[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_surfaces_and_the_file_goes_on_where_it_stopped() {
    let mut writer = PcapngWriter::new(
        Disk {
            bytes: Vec::new(),
            room: 100_001,
        },
        "linerate",
    );
    let interface = writer.add_interface("wan", 0).unwrap();
    let (mut taken, mut refused) = (0u64, 0);
    let mut offer = |writer: &mut PcapngWriter<Disk>, n: usize| {
        let direction = Direction::Inbound;
        match writer.write(&Record {
            interface,
            timestamp_ns: taken,
            direction,
            frame: &frame(n),
            comment: "",
        }) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                refused += 1;
            }
        }
    };
    (0..5000).for_each(|n| offer(&mut writer, n));
    assert_eq!(
        writer.finish().unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    writer.out.room = usize::MAX;
    (0..5000).for_each(|n| offer(&mut writer, n));
    writer.finish().unwrap();
    assert!(
        refused > 1000 && taken > 5000,
        "{refused} refused, {taken} taken"
    );
    let mut seen = 0;
    read(&writer.output().bytes, |block| {
        if let Block::EnhancedPacket(packet) = block {
            assert_eq!(u64::from(packet.ts_low), seen);
            seen += 1;
        }
    });
    assert_eq!(seen, taken);
}

#[test]
fn the_kernels_full_device_surfaces() {
    let Ok(full) = fs::File::create("/dev/full") else {
        linerate_testkit::skip("pcapng to a full device: /dev/full cannot be opened");
        return;
    };
    assert_eq!(
        write_sample(full, 10).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
}

#[test]
fn another_writers_interface_is_refused() {
    let mut writer = PcapngWriter::new(Vec::new(), "linerate");
    let error = writer
        .write_statistics(InterfaceId(0), 0, 0, 0)
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_long_comment_is_cut_between_characters() {
    let mut bytes = Vec::new();
    let mut writer = PcapngWriter::new(&mut bytes, "linerate");
    let interface = writer.add_interface("wan", 0).unwrap();
    let comment = &"é".repeat(40_000);
    let direction = Direction::Outbound;
    writer
        .write(&Record {
            interface,
            timestamp_ns: 0,
            direction,
            frame: &[],
            comment,
        })
        .unwrap();
    drop(writer);
    read(&bytes, |block| {
        if let Block::EnhancedPacket(packet) = block {
            assert_eq!(
                options(&packet.options)[1],
                (1, "é".repeat(32_767).into_bytes())
            );
        }
    });
}

#[test]
fn nothing_is_allocated_per_packet() {
    let mut writer = PcapngWriter::new(io::sink(), "linerate");
    let interface = writer.add_interface("wan", 0).unwrap();
    let before = (writer.queued.as_ptr(), writer.queued.capacity());
    let frame = &[0; 65_549][..];
    for timestamp_ns in 0..10_000 {
        let frame = &frame[..60 + timestamp_ns as usize % 1455];
        let direction = Direction::Inbound;
        writer
            .write(&Record {
                interface,
                timestamp_ns,
                direction,
                frame,
                comment: "",
            })
            .unwrap();
    }
    let direction = Direction::Inbound;
    writer
        .write(&Record {
            interface,
            timestamp_ns: 0,
            direction,
            frame,
            comment: "",
        })
        .unwrap();
    assert_eq!((writer.queued.as_ptr(), writer.queued.capacity()), before);
}
