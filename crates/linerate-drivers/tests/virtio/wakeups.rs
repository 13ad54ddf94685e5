//! Two ends that sleep whenever nothing waits, as workers do, wake each other with every frame.

use crate::{End, frame};
use linerate_core::packet::Burst;
use linerate_core::port::Queues;
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::nap_on;
use linerate_testkit::{PATIENCE, Scratch};
use std::time::{Duration, Instant};

/// The next frame, which is this one.
fn receive(end: &mut End, bell: &Doorbell, number: u64) {
    let End { queues, cache, .. } = end;
    let Queues { rx, tx } = queues;
    let mut burst = Burst::new();
    loop {
        if rx[0].rx_burst(&mut burst, cache) > 0 {
            break;
        }
        tx[0].flush(cache);
        let on = [rx[0].sleep_on()];
        if rx[0].rx_burst(&mut burst, cache) > 0 {
            break;
        }
        let start = Instant::now();
        nap_on(bell, &on, PATIENCE, Duration::from_millis(1));
        assert!(start.elapsed() < PATIENCE / 2, "nobody woke it: {number}");
    }
    assert_eq!(burst.len(), 1);
    assert_eq!(burst.as_packets()[0].data(), frame(number, 60));
    cache.free(&mut burst);
}

fn send(end: &mut End, number: u64) {
    let End { queues, cache, .. } = end;
    let mut burst = Burst::new();
    burst
        .push(cache.copy_of(&frame(number, 60)).unwrap())
        .unwrap();
    // Control may have the queue for a moment.
    while queues.tx[0].tx_burst(&mut burst, cache) == 0 {
        std::thread::yield_now();
    }
    queues.tx[0].flush(cache);
}

/// Whoever gets a frame answers at once, while the other one is just going to sleep.
fn exchange(options: &str, count: u64) {
    let folder = Scratch::new();
    let device = End::new(&format!("vhost:{}", folder.file("s")), 1);
    let driver = End::new(&format!("virtio_user:{},{options}", folder.file("s")), 1);
    device.wait_up();
    driver.wait_up();
    let plays = |mut end: End, first: u64| {
        let bell = Doorbell::new().unwrap();
        for number in (first..count).step_by(2) {
            if number > 0 {
                receive(&mut end, &bell, number - 1);
            }
            send(&mut end, number);
        }
        if first == count % 2 {
            receive(&mut end, &bell, count - 1);
        }
        end
    };
    let ends = std::thread::scope(|scope| {
        let device = scope.spawn(|| plays(device, 0));
        let driver = scope.spawn(|| plays(driver, 1));
        [device, driver].map(|end| end.join().unwrap())
    });
    ends.into_iter().for_each(End::finish);
}

const KINDS: [&str; 4] = [
    "packed=off,in_order=off",
    "packed=off",
    "packed=on",
    "trust=full",
];

#[test]
fn no_wake_up_is_missed() {
    KINDS
        .into_iter()
        .for_each(|options| exchange(options, 2000));
}

#[test]
#[ignore = "long: a million frames that find a sleeper"]
fn no_wake_up_of_a_million_is_missed() {
    KINDS
        .into_iter()
        .for_each(|options| exchange(options, 250_000));
}
