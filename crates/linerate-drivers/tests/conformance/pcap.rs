//! pcap: every kind of file, replayed, damaged, written, and written to a full disk.

use crate::suite::{self, End, frame};
use linerate_core::packet::{Burst, PoolCache, Pools};
use linerate_core::port::{Link, Port, PortConfig, RxQueue, SleepOn};
use linerate_drivers::Drivers;
use linerate_drivers::pcap::Reader;
use linerate_testkit::Scratch;

/// A pcap in either byte order and precision: frames of 60 bytes, one every 1.5 s from 10 s on.
fn pcap(count: u64, big_endian: bool, nanoseconds: bool) -> Vec<u8> {
    let word = |value: u32| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let magic = if nanoseconds {
        0xa1b2_3c4d
    } else {
        0xa1b2_c3d4
    };
    let version = if big_endian {
        [0, 2, 0, 4]
    } else {
        [2, 0, 4, 0]
    };
    let mut file = [
        word(magic),
        version,
        word(0),
        word(0),
        word(65_535),
        word(1),
    ]
    .concat();
    for number in 0..count {
        let half = if nanoseconds { 500_000_000 } else { 500_000 };
        let time = [10 + number as u32 * 3 / 2, number as u32 % 2 * half];
        file.extend([word(time[0]), word(time[1]), word(60), word(60)].concat());
        file.extend(frame(number, 60));
    }
    file
}

fn open(spec: &str) -> Box<dyn Port> {
    Drivers::new().open(spec).unwrap()
}

fn refusal(spec: &str) -> String {
    Drivers::new()
        .open(spec)
        .err()
        .expect("refused")
        .to_string()
}

/// Starts a port and takes its first receive queue, with a cache.
fn receiver(port: &mut dyn Port, pools: &Pools) -> (Box<dyn RxQueue>, PoolCache) {
    let config = PortConfig {
        index: 7,
        ..PortConfig::default()
    };
    let queue = port.start(&config, pools).unwrap().rx.remove(0);
    (queue, PoolCache::new(pools.as_slice()))
}

#[test]
fn pcap_conforms_alone() {
    let scratch = Scratch::new();
    let (file, out) = (
        scratch.write("in.pcap", pcap(1000, false, false)),
        scratch.file("out.pcapng"),
    );
    for spec in [
        format!("pcap:rx={file}"),
        format!("pcap:rx={file},loop=on"),
        format!("pcap:tx={out}"),
    ] {
        suite::alone(&|| open(&spec));
    }
}

#[test]
fn all_kinds_of_files_give_the_same_frames_and_times() {
    let (scratch, pools) = (Scratch::new(), suite::pools(false));
    for (big_endian, nanoseconds) in [(false, false), (false, true), (true, false), (true, true)] {
        let file = scratch.write("in.pcap", pcap(100, big_endian, nanoseconds));
        for options in ["", ",loop=on"] {
            let mut port = open(&format!("pcap:rx={file}{options}"));
            let (mut queue, mut cache) = receiver(&mut *port, &pools);
            let mut burst = Burst::new();
            assert_eq!(queue.rx_burst(&mut burst, &mut cache), 64);
            for (number, packet) in (0..).zip(burst.iter()) {
                assert_eq!(suite::number_of(packet.data()), Some(number));
                assert_eq!(
                    packet.meta().timestamp,
                    10_000_000_000 + number * 1_500_000_000
                );
                assert_eq!(
                    (packet.port(), packet.headroom()),
                    (7, pools.primary().headroom_bytes())
                );
            }
            cache.free(&mut burst);
        }
    }
}

#[test]
fn what_is_written_can_be_replayed_and_a_restart_adds_to_it() {
    let (scratch, pools) = (Scratch::new(), suite::pools(false));
    let out = scratch.file("out.pcapng");
    let mut end = End::new(open(&format!("pcap:tx={out},queues=2,snaplen=200")), &pools);
    for round in 0..2 {
        end.start(0, 2, &pools);
        for number in 0..50 {
            assert!(end.send(
                round * 50 + number,
                if number == 7 { 1500 } else { 60 },
                &pools
            ));
        }
        end.stop();
    }
    end.check_stats();
    let mut port = open(&format!("pcap:rx={out}"));
    let (mut queue, mut cache) = receiver(&mut *port, &pools);
    let mut burst = Burst::new();
    let mut numbers = Vec::new();
    while queue.rx_burst(&mut burst, &mut cache) > 0 {
        numbers.extend(
            burst
                .iter()
                .map(|packet| suite::number_of(packet.data()).unwrap()),
        );
        assert!(burst.iter().all(|packet| packet.len() <= 200));
        cache.free(&mut burst);
    }
    // Two queues share the file; here they took turns.
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert!(matches!(queue.sleep_on(), SleepOn::Ended));
    assert_eq!(
        port.link(),
        Link::Down(format!("end of {out} after 100 packets"))
    );
}

#[test]
fn a_loop_starts_again_from_memory_and_from_disk() {
    let (scratch, pools) = (Scratch::new(), suite::pools(false));
    let file = scratch.write("in.pcap", pcap(100, false, false));
    for (options, mode) in [("", "100 frames loaded"), (",preload=0", "streamed")] {
        let mut port = open(&format!("pcap:rx={file},loop=on{options}"));
        let (mut queue, mut cache) = receiver(&mut *port, &pools);
        assert!(
            port.info().facts[0].1.starts_with(mode),
            "{:?}",
            port.info().facts
        );
        let (mut burst, mut next) = (Burst::new(), 0_u64);
        while next < 1205 {
            assert!(queue.rx_burst(&mut burst, &mut cache) > 0);
            for packet in burst.iter() {
                assert_eq!(packet.data()[14..22], (next % 100).to_be_bytes());
                next += 1;
            }
            cache.free(&mut burst);
        }
        assert_eq!((port.link(), port.stats().rx_packets), (Link::Up, next));
    }
}

#[test]
fn damage_in_the_middle_ends_the_replay_at_that_record() {
    let (scratch, pools) = (Scratch::new(), suite::pools(false));
    let whole = pcap(20, false, false);
    let mut long = whole.clone();
    long[24 + 5 * 76 + 8..][..4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    for (bytes, good, reason) in [
        (&whole[..24 + 12 * 76 + 30], 12, "ends inside"),
        (&long[..], 5, "ends inside"),
    ] {
        let file = scratch.write("bad.pcap", bytes);
        for options in ["", ",loop=on"] {
            let mut port = open(&format!("pcap:rx={file}{options}"));
            let mut end = End::new(port, &pools);
            end.start(0, 1, &pools);
            assert_eq!(end.receive().len(), good);
            assert_eq!(end.receive().len(), 0);
            port = end.into_port();
            assert_eq!(port.stats().rx_drops, [("malformed", 1)]);
            let Link::Down(why) = port.link() else {
                panic!("up")
            };
            let error = port.stop().unwrap_err().to_string();
            for text in [why, error] {
                assert!(
                    text.contains(&format!("record {}", good + 1)) && text.contains(reason),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn files_that_cannot_be_replayed_are_refused_by_name() {
    let scratch = Scratch::new();
    let missing = refusal(&format!("pcap:rx={}", scratch.file("missing.pcap")));
    assert!(
        missing.contains("missing.pcap") && missing.contains("No such file"),
        "{missing}"
    );
    assert!(refusal(&format!("pcap:rx={}", scratch.write("empty", b""))).contains("it is empty"));
    assert!(
        refusal(&format!("pcap:rx={}", scratch.write("text", [b'x'; 100])))
            .contains("not a pcap or pcapng file")
    );
    assert!(
        refusal(&format!(
            "pcap:rx={}",
            scratch.write("short", &pcap(0, false, false)[..20])
        ))
        .contains("header")
    );
    let mut wifi = pcap(1, false, false);
    wifi[20] = 105;
    let wifi = refusal(&format!("pcap:rx={}", scratch.write("wifi.pcap", &wifi)));
    assert!(wifi.contains("link type is 105"), "{wifi}");
    assert!(refusal("pcap:").contains("pcap:rx=FILE"));
    let good = scratch.write("good.pcap", pcap(1, false, false));
    assert!(refusal(&format!("pcap:rx={good},timing=x0")).contains("`original` or `xN`"));
}

#[test]
fn frame_check_sequences_are_left_out() {
    // Upper bits of the link type: present, and two words long; or a length that is not valid.
    for (bits, bytes) in [(0x2400_0001_u32, 56), (0x3000_0001, 60), (0x0400_0001, 60)] {
        let mut file = pcap(1, false, false);
        file[20..24].copy_from_slice(&bits.to_le_bytes());
        let mut reader = Reader::new(std::io::Cursor::new(file)).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().data, &frame(0, 60)[..bytes]);
    }
}

#[test]
fn a_capture_is_paced_by_its_times() {
    let (scratch, pools) = (Scratch::new(), suite::pools(false));
    let file = scratch.write("in.pcap", pcap(100, false, false));
    for options in ["", ",loop=on"] {
        // 1.5 s between frames: at original speed only the first is due.
        let mut port = open(&format!("pcap:rx={file},timing=original{options}"));
        let (mut queue, mut cache) = receiver(&mut *port, &pools);
        let mut burst = Burst::new();
        queue.rx_burst(&mut burst, &mut cache);
        assert_eq!(burst.len(), 1, "only the first is due at once");
        // And so fast that all are.
        let mut port = open(&format!("pcap:rx={file},timing=x1e12{options}"));
        let (mut queue, mut cache) = receiver(&mut *port, &pools);
        let start = std::time::Instant::now();
        while burst.room() > 0 && start.elapsed() < suite::PATIENCE {
            queue.rx_burst(&mut burst, &mut cache);
            std::thread::yield_now();
        }
        assert_eq!(burst.room(), 0);
        cache.free(&mut burst);
    }
}

#[test]
fn a_full_disk_loses_only_captured_frames() {
    let pools = suite::pools(false);
    let mut end = End::new(open("pcap:tx=/dev/full"), &pools);
    end.start(0, 1, &pools);
    for number in 0..5000 {
        assert!(end.send(number, 60, &pools), "taken all the same");
    }
    end.flush();
    end.check_stats();
    let stats = end.port.stats();
    assert!(
        stats
            .tx_drops
            .iter()
            .any(|&(reason, count)| reason == "write_failed" && count > 4000),
        "{stats:?}"
    );
    let Link::Down(why) = end.port.link() else {
        panic!("up")
    };
    assert!(
        why.contains("/dev/full") && why.contains("No space left"),
        "{why}"
    );
    let error = end.into_port().stop().unwrap_err().to_string();
    assert!(
        error.contains("write all frames to `/dev/full`: No space left"),
        "{error}"
    );
}

#[test]
fn frames_of_odd_lengths_get_a_fitting_pool_or_are_counted() {
    let (scratch, pools) = (Scratch::new(), suite::pools(false));
    let mut file = pcap(0, false, false);
    for bytes in [13_u32, 14, 61, 2112, 2113, 9000, 65_600, 65_601] {
        file.extend([[0; 4], [0; 4], bytes.to_le_bytes(), bytes.to_le_bytes()].concat());
        file.extend(vec![bytes as u8; bytes as usize]);
    }
    let file = scratch.write("in.pcap", &file);
    for options in ["", ",loop=on"] {
        let mut port = open(&format!("pcap:rx={file}{options}"));
        let (mut queue, mut cache) = receiver(&mut *port, &pools);
        let mut lengths = Vec::new();
        while lengths.len() < 6 {
            let mut burst = Burst::new();
            queue.rx_burst(&mut burst, &mut cache);
            for packet in burst.iter() {
                assert!(packet.data().iter().all(|&byte| byte == packet.len() as u8));
                lengths.push(packet.len());
            }
            cache.free(&mut burst);
        }
        assert_eq!(lengths[..6], [14, 61, 2112, 2113, 9000, 65_600]);
        let drops = port.stats().rx_drops;
        assert_eq!(drops, [("oversize", 1), ("malformed", 1)]);
    }
}

#[test]
fn real_pcapng_files_are_read_to_their_end() {
    // Written by this project's own writer; the crate pcap-parser brings others, see the fuzz
    // corpus.
    let mut bytes = Vec::new();
    let mut writer = linerate_core::port::pcapng::PcapngWriter::new(&mut bytes, "test");
    let interface = writer.add_interface("a", 0).unwrap();
    for number in 0..10 {
        let direction = linerate_core::port::pcapng::Direction::Inbound;
        let frame = &frame(number, 60 + number as usize);
        let record = linerate_core::port::pcapng::Record {
            interface,
            timestamp_ns: 1_700_000_000_123_456_789 + number,
            direction,
            frame,
            comment: "remark",
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let mut reader = Reader::new(std::io::Cursor::new(bytes)).unwrap();
    for number in 0..10 {
        let found = reader.next().unwrap().unwrap();
        assert_eq!(found.timestamp_ns, 1_700_000_000_123_456_789 + number);
        assert_eq!(found.data, frame(number, 60 + number as usize));
    }
    assert!(reader.next().unwrap().is_none());
}
