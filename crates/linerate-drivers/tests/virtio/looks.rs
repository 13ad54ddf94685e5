//! Whoever looks at a port's counters holds no worker of it up.

use crate::{End, frame};
use linerate_core::packet::Burst;
use linerate_testkit::Scratch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// So long that the ports' control threads look several times, too.
const LASTING: Duration = Duration::from_millis(500);
const FRAMES: usize = 32;

/// Frames go there and back between rings that are empty before each burst, while others look all
/// the time.
fn bursts_go(options: &str) {
    let folder = Scratch::new();
    let device = End::new(&format!("vhost:{}", folder.file("s")), 1);
    let spec = format!("virtio_user:{},{options}", folder.file("s"));
    let driver = End::new(&spec, 1);
    let mut ends = [device, driver];
    ends.iter().for_each(End::wait_up);
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let [device, driver] = &mut ends;
        for port in [&mut device.port, &mut driver.port] {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let rings = port.stats().rings;
                    assert!(rings.iter().all(|ring| ring.waiting <= ring.size));
                }
            });
        }
        let mut sides = [
            (&mut device.queues, &mut device.cache),
            (&mut driver.queues, &mut driver.cache),
        ];
        let (start, mut sent, mut empty) = (Instant::now(), 0, 0);
        let mut burst = Burst::new();
        while start.elapsed() < LASTING {
            let (queues, cache) = &mut sides[0];
            for _ in 0..FRAMES {
                burst
                    .push(cache.copy_of(&frame(sent, 60)).unwrap())
                    .unwrap();
                sent += 1;
            }
            while !burst.is_empty() {
                let taken = queues.tx[0].tx_burst(&mut burst, cache);
                empty += u64::from(taken == 0);
            }
            queues.tx[0].flush(cache);
            sides.reverse();
            let (queues, cache) = &mut sides[0];
            let mut came = 0;
            while came < FRAMES {
                let count = queues.rx[0].rx_burst(&mut burst, cache);
                empty += u64::from(count == 0);
                came += count;
                cache.free(&mut burst);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(empty, 0, "{options}: bursts, of {sent} frames");
        sent
    });
    assert!(sent > 0);
    ends.into_iter().for_each(End::finish);
}

#[test]
fn bursts_go_while_others_look() {
    for options in [
        "packed=on",
        "packed=off",
        "packed=on,in_order=off",
        "packed=off,in_order=off",
        "packed=on,inflight=on",
        "packed=off,inflight=on",
        "packed=on,trust=full",
        "packed=off,trust=full",
    ] {
        bursts_go(options);
    }
}
