//! Files written here by hand, and sent in virtual time.

use std::path::Path;

use super::*;
use crate::engine::schedule::{Pacer, Window};
use linerate_testkit::Scratch;
use std::time::Duration;

/// A classic pcap with nanoseconds: frames of these lengths at these times, each filled with its
/// number.
fn pcap(frames: &[(u64, usize)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, &(at_ns, len)) in frames.iter().enumerate() {
        let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        for word in [seconds as u32, rest as u32, len as u32, len as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(std::iter::repeat_n(number as u8, len));
    }
    file
}

fn load(name: &str, file: &[u8]) -> Result<Recording, Error> {
    let scratch = Scratch::new();
    Recording::load(Path::new(&scratch.write(name, file)), MOST_BYTES, 1514)
}

const FRAMES: [(u64, usize); 4] = [
    (5_000_000_000, 60),
    (5_000_100_000, 1514),
    (5_000_100_000, 60),
    (5_000_900_000, 100),
];

#[test]
fn frames_are_due_at_their_times_scaled_and_pass_after_pass() {
    let recording = load("times.pcap", &pcap(&FRAMES)).unwrap();
    for (speed, scale) in [(1.0, 1.0), (2.5, 0.4), (0.01, 100.0)] {
        let window = Window {
            from: 7000,
            lasts: Some(Duration::from_secs(10)),
            ticks_per_second: 1e9,
        };
        let replay_clock = recording.replay_clock(speed, 1e9);
        let mut pacer = Pacer::cued(replay_clock, Duration::from_micros(3), &window);
        // The mean of the three gaps follows the last frame.
        for pass in 0..3 {
            for (at_ns, _) in FRAMES {
                let wanted = ((at_ns - 5_000_000_000 + pass * 1_200_000) as f64 * scale) as u64;
                let leaves = pacer.next().unwrap();
                assert!(
                    leaves.abs_diff(10_000 + wanted) <= 3,
                    "{speed}: {leaves}, {wanted}"
                );
                pacer.advance();
            }
        }
    }
}

#[test]
fn what_is_damaged_cut_short_or_no_capture_is_refused_with_a_reason_and_a_fix() {
    let whole = pcap(&FRAMES);
    let told = |error: Error| format!("{error:?}");
    let said = |name: &str, file: &[u8]| told(load(name, file).unwrap_err());
    let cut = said("cut.pcap", &whole[..whole.len() - 1]);
    assert!(
        cut.contains("cut.pcap: record 4") && cut.contains("1-3"),
        "{cut}"
    );
    let text = said(
        "text.pcap",
        b"hello, this is no capture at all, but some text",
    );
    assert!(text.contains("not a pcap or pcapng file"), "{text}");
    let empty = said("empty.pcap", &pcap(&[]));
    assert!(empty.contains("it has no frame"), "{empty}");
    let long = said("long.pcap", &pcap(&[(0, 60), (1, 1515)]));
    assert!(long.contains("frame 2 has 1515 bytes"), "{long}");
    let scratch = Scratch::new();
    let file = scratch.write("limit.pcap", &whole);
    let limited = told(Recording::load(Path::new(&file), 200, 1514).unwrap_err());
    assert!(limited.contains("more than 200 bytes"), "{limited}");
    let absent = Recording::load(Path::new("/nowhere/x.pcap"), 1, 1).unwrap_err();
    assert!(absent.to_string().contains("/nowhere/x.pcap"));
    for at in 0..whole.len() {
        // Every damage is reported or harmless.
        let mut bad = whole.clone();
        bad[at] ^= 0xff;
        drop(load("flipped.pcap", &bad));
    }
}

#[test]
fn a_recording_without_times_needs_a_rate_and_a_signature_needs_room() {
    let flat = Arc::new(load("flat.pcap", &pcap(&[(9, 60), (9, 20)])).unwrap());
    let no_time = Replay::new(flat.clone(), 0, false, Some(1.0), None);
    assert!(format!("{no_time:?}").contains("give the stream a rate"));
    let no_room = Replay::new(flat.clone(), 0, true, None, None);
    assert!(format!("{no_room:?}").contains("no room"));
    let replay = Replay::new(flat, 0, false, None, Some(3)).unwrap();
    assert_eq!((replay.count(), replay.max_len()), (Some(6), 60));
    assert_eq!(replay.mean_frame_bytes(), 44.0);
    assert_eq!(replay.view().size, "24-64");
}

#[test]
fn the_keys_of_a_stream_say_how_a_capture_is_sent() {
    let scratch = Scratch::new();
    let file = scratch.write("keys.pcap", pcap(&FRAMES));
    let of = |keys: &str| {
        let spec: StreamSpec = format!("pcap={file} {keys}").parse().unwrap();
        let recording = Recording::load(Path::new(&file), MOST_BYTES, 1514).unwrap();
        Replay::of(&spec, recording.into(), 3)
    };
    let asked = |keys: &str| {
        let replay = of(keys).unwrap();
        (replay.speed, replay.passes, replay.is_signed)
    };
    assert_eq!(asked(""), (Some(1.0), Some(1), false));
    assert_eq!(
        asked("speed=2.5 loop=7 signature=on"),
        (Some(2.5), Some(7), true)
    );
    assert_eq!(asked("rate=1kpps loop=0"), (None, None, false));
    assert_eq!(asked("rate=max"), (None, Some(1), false));
    let error = format!("{:?}", of("size=64").unwrap_err());
    assert!(
        error.contains("size=64: a capture has its own frames"),
        "{error}"
    );
}
