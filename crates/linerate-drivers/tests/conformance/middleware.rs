//! faulty, trace and capture around ring ports: transparent without their faults.

use crate::suite::{self, End, Pair, Wire};
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::port::{
    Capture, CaptureConfig, Faults, Faulty, Port, PortConfig, PortError, Traced,
};
use linerate_drivers::pcap::Reader;
use linerate_drivers::{Drivers, ring};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// A ring pair whose ends are wrapped by options.
fn wrapped(options: &'static str) -> impl Fn() -> Result<Pair, String> {
    move || {
        let mut drivers = Drivers::new();
        let [a, b] = [(); 2].map(|()| drivers.open(&format!("ring:m{options}")).unwrap());
        Ok(Pair {
            a,
            b,
            guard: Box::new(drivers),
        })
    }
}

#[test]
fn faulty_without_faults_conforms() {
    Wire::new("faulty", wrapped(",faulty=loss:0")).conforms();
    Wire::new("slow", wrapped(",faulty=delay_ns:1000")).conforms();
    let link = ",faulty=rate:10G+queue:4000+delay:100us+jitter:20us+order:keep+ce:queue@10";
    Wire::new("link", wrapped(link)).conforms();
}

#[test]
fn traced_and_captured_ports_conform() {
    Wire::new("traced", wrapped(",trace=/dev/null")).conforms();
    Wire::new("captured", wrapped(",capture=/dev/null,capture_max_mb=1")).conforms();
    Wire::new(
        "all",
        wrapped(",faulty=loss:0,trace=/dev/null,capture=/dev/null"),
    )
    .conforms();
}

/// Sends `count` frames through a wire with faults at the sender, and returns what came.
fn through(faults: &str, count: u64) -> (Vec<u64>, u64) {
    let pools = suite::pools(false);
    let (a, b) = ring::pair("f", 1, 8192);
    let faults: Faults = faults.parse().unwrap();
    let mut a = End::new(
        Box::new(Faulty::new(
            Box::new(a),
            Faults {
                on_rx: false,
                ..faults
            },
        )),
        &pools,
    );
    let mut b = End::new(Box::new(b), &pools);
    b.start(1, 1, &pools);
    a.start(0, 1, &pools);
    let mut got = Vec::new();
    for number in 0..count {
        assert!(a.send(number, 60, &pools));
    }
    a.flush();
    loop {
        let more = b.receive();
        if more.is_empty() {
            break;
        }
        got.extend(more.into_iter().map(|(number, _)| number));
    }
    a.stop();
    b.stop();
    let lost = a.port.stats().tx_drops.iter().map(|(_, count)| count).sum();
    drop((a, b));
    suite::check_home(&pools);
    (got, lost)
}

#[test]
fn a_seed_gives_the_same_faults_again() {
    let once = through("loss:0.1+dup:0.1+reorder:0.1+seed:5", 1000);
    assert_eq!(once, through("loss:0.1+dup:0.1+reorder:0.1+seed:5", 1000));
    assert_ne!(once, through("loss:0.1+dup:0.1+reorder:0.1+seed:6", 1000));
}

#[test]
fn each_fault_option_has_its_effect_on_frames() {
    let (got, lost) = through("loss:0.25", 1000);
    assert!(
        (200..300).contains(&lost) && got.len() as u64 + lost == 1000,
        "{lost}"
    );
    assert!(got.is_sorted());
    let (got, lost) = through("dup:1", 10);
    assert_eq!(
        (got, lost),
        ((0..10).flat_map(|number| [number; 2]).collect(), 0)
    );
    let (got, _) = through("reorder:1", 6);
    assert_eq!(got, [1, 0, 3, 2, 5, 4]);
    let (got, lost) = through("delay:3", 10);
    assert_eq!(
        (got, lost),
        ((0..7).collect(), 3),
        "the last three stay on the wire"
    );
    assert_eq!(through("loss:1", 10), (vec![], 10));
}

#[test]
fn a_flip_is_one_bit() {
    let pools = suite::pools(false);
    let faults = "flip:1+on:rx".parse().unwrap();
    let mut port = Faulty::new(Box::new(ring::looped("f", 1, 64)), faults);
    let mut queues = port.start(&PortConfig::default(), &pools).unwrap();
    let (mut burst, mut cache) = (Burst::new(), PoolCache::new(pools.as_slice()));
    cache.fill(pools.primary(), &mut burst, 50);
    for packet in burst.iter_mut() {
        assert!(packet.set_data(&[0; 60]));
    }
    assert_eq!(queues.tx[0].tx_burst(&mut burst, &mut cache), 50);
    assert_eq!(queues.rx[0].rx_burst(&mut burst, &mut cache), 50);
    for packet in burst.iter() {
        let ones: u32 = packet.data().iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 1);
    }
}

/// What middleware writes, for the test to read; fails once it holds `most` bytes.
#[derive(Clone)]
struct Shared(Arc<Mutex<Vec<u8>>>, usize);

impl Shared {
    fn new(most: usize) -> Self {
        Self(Arc::default(), most)
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap();
        if all.len() + bytes.len() > self.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        all.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends 20 frames to a loop of 16 that `wrap` wraps, and takes them back.
fn loop_of_16(
    wrap: impl FnOnce(ring::RingPort) -> Box<dyn linerate_core::port::Port>,
) -> Result<End, PortError> {
    let pools = suite::pools(false);
    let mut end = End::new(wrap(ring::looped("c", 1, 16)), &pools);
    end.start(0, 1, &pools);
    assert_eq!(end.send_burst(0, 20, 60, &pools), 16);
    assert_eq!(end.receive().len(), 16);
    end.stop_with_result().map(|()| end)
}

#[test]
fn a_trace_has_a_line_for_what_was_taken_and_no_other() {
    let out = Shared::new(usize::MAX);
    let end = loop_of_16(|port| Box::new(Traced::to(Box::new(port), "t", Box::new(out.clone()))))
        .unwrap();
    let text = String::from_utf8(out.bytes()).unwrap();
    let (sent, received): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.contains(" tx 0 60 "));
    assert_eq!((sent.len(), received.len()), (16, 16), "{text}");
    assert!(
        received[0].contains(" rx 0 60 02:00:00:00:00:0a > 02:00:00:00:00:0b "),
        "{text}"
    );
    assert_eq!(end.port.info().facts.last().unwrap().1, "32 lines to t");
}

#[test]
fn a_capture_is_filtered_bounded_and_counted() {
    let numbers = |config: CaptureConfig| {
        let out = Shared::new(usize::MAX);
        let (file, copy) = (Box::new(out.clone()), config.clone());
        loop_of_16(|port| Box::new(Capture::to(Box::new(port), "c", file, copy).unwrap())).unwrap();
        let mut reader = Reader::new(io::Cursor::new(out.bytes())).unwrap();
        let mut lengths = Vec::new();
        while let Some(frame) = reader.next().unwrap() {
            assert!(frame.timestamp_ns > 1_600_000_000_000_000_000);
            lengths.push(frame.data.len());
        }
        lengths
    };
    let all = CaptureConfig::default();
    assert_eq!(numbers(all.clone()), [60; 32]);
    let out = Some(linerate_core::port::pcapng::Direction::Outbound);
    assert_eq!(
        numbers(CaptureConfig {
            direction: out,
            snap_bytes: 20,
            ..all.clone()
        }),
        [20; 16]
    );
    assert_eq!(
        numbers(CaptureConfig {
            filter: "arp".parse().ok(),
            ..all.clone()
        }),
        [0; 0]
    );
    assert_eq!(
        numbers(CaptureConfig {
            most_pkts: 5,
            ..all.clone()
        }),
        [60; 5]
    );
    assert_eq!(
        numbers(CaptureConfig {
            most_bytes: 200,
            ..all
        }),
        [60; 3]
    );
}

#[test]
fn a_capture_that_cannot_be_written_does_not_stop_the_port() {
    let out = Shared::new(600);
    let config = CaptureConfig::default();
    let file = Box::new(out.clone());
    let result =
        loop_of_16(|port| Box::new(Capture::to(Box::new(port), "full", file, config).unwrap()));
    let message = result
        .err()
        .expect("the end of the file could not be written")
        .to_string();
    assert!(message.contains("write the capture to `full`"), "{message}");
}

#[test]
fn options_are_checked_by_name() {
    let refusal = |spec: &str| {
        Drivers::new()
            .open(spec)
            .err()
            .expect("refused")
            .to_string()
    };
    assert!(refusal("null:,faulty=loss:2").contains("probability from 0 to 1"));
    assert!(refusal("null:,faulty=lots:1").contains("none of loss, burst"));
    assert!(refusal("null:,capture_snaplen=9").contains("together with capture=FILE"));
    assert!(refusal("null:,capture=/dev/null,capture_filter=tpc").contains("`tpc`"));
    assert!(refusal("null:,capture=/nowhere/x").contains("/nowhere/x"));
    assert!(refusal("null:,trace=").contains("a file"));
}
