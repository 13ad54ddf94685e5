//! ring: by name, programmatically, with several queues, and looped.

use crate::suite::{self, Pair, Wire};
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::port::{DropReason, Port, PortConfig, SleepOn};
use linerate_drivers::{Drivers, ring};

fn named(spec: &'static str) -> impl Fn() -> Result<Pair, String> {
    move || {
        let mut drivers = Drivers::new();
        let [a, b] = [(); 2].map(|()| drivers.open(spec).unwrap());
        Ok(Pair {
            a,
            b,
            guard: Box::new(drivers),
        })
    }
}

#[test]
fn ring_conforms() {
    Wire::new("ring", named("ring:a")).conforms();
    Wire {
        window: u64::MAX,
        ..Wire::new("small ring", named("ring:a,size=16"))
    }
    .conforms();
    Wire {
        window: 1,
        ..Wire::new("ring of one", named("ring:a,size=1"))
    }
    .conforms();
}

#[test]
fn a_pair_conforms() {
    let open = || {
        let (a, b) = ring::pair("x", 1, 512);
        Ok(Pair {
            a: Box::new(a),
            b: Box::new(b),
            guard: Box::new(()),
        })
    };
    Wire {
        window: u64::MAX,
        ..Wire::new("pair", open)
    }
    .conforms();
}

#[test]
fn a_loop_conforms_alone() {
    suite::alone(&|| Drivers::new().open("ring:l,loop=on").unwrap());
}

#[test]
fn frames_of_one_queue_do_not_appear_on_another() {
    let pools = suite::pools(false);
    let (a, b) = ring::pair("q", 3, 64);
    let (mut a, mut b) = (
        suite::End::new(Box::new(a), &pools),
        suite::End::new(Box::new(b), &pools),
    );
    a.start(0, 3, &pools);
    b.start(1, 3, &pools);
    for number in [2, 0, 1, 4] {
        assert!(a.send(number, 60, &pools)); // queue = number mod 3
    }
    let numbers: Vec<u64> = b.receive().into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 1, 4, 2], "queue by queue");
}

#[test]
fn frames_that_are_not_delivered_are_counted_by_reason() {
    let pools = suite::pools(false);
    let (a, mut b) = ring::pair("p", 1, 64);
    let mut a = suite::End::new(Box::new(a), &pools);
    a.start(0, 1, &pools);
    a.send_burst(0, 10, 60, &pools);
    let name = DropReason::ALL[DropReason::NoPeer as usize].1;
    assert_eq!(a.port.stats().tx_drops, [(name, 10)]);
    assert!(b.stop().is_ok());
}

#[test]
fn a_sender_wakes_a_receiver_that_sleeps() {
    let pools = suite::pools(false);
    let (mut a, mut b) = ring::pair("w", 1, 64);
    let mut queue = b
        .start(&PortConfig::default(), &pools)
        .unwrap()
        .rx
        .remove(0);
    a.start(&PortConfig::default(), &pools).map(drop).unwrap();
    let SleepOn::Doorbell(bell) = queue.sleep_on() else {
        panic!("no doorbell")
    };
    bell.prepare_sleep();
    let mut a = suite::End::new(Box::new(a), &pools);
    a.start(0, 1, &pools);
    assert!(a.send(0, 60, &pools));
    assert!(bell.nap(suite::PATIENCE).unwrap(), "woken, not timed out");
    let mut cache = PoolCache::new(pools.as_slice());
    assert_eq!(queue.rx_burst(&mut Burst::new(), &mut cache), 1);
}
