//! `virtio_user` with `trust=full`: slots of ours in the hands of a device.

use crate::{End, frame, pools};
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::packet::{Burst, PoolCache, Pools};
use linerate_core::port::{Link, PortConfig, SleepOn};
use linerate_core::run::ledger::{Account, Balance};
use linerate_drivers::Drivers;
use linerate_testkit::{Scratch, wait};

/// A driver with these options and pools of its own, and its device.
fn pair(options: &str) -> (Scratch, End, End) {
    let folder = Scratch::new();
    let device = End::new(&format!("vhost:{}", folder.file("s")), 1);
    let driver = End::new(&spec(&folder, options), 1);
    device.wait_up();
    driver.wait_up();
    (folder, driver, device)
}

fn spec(folder: &Scratch, options: &str) -> String {
    format!("virtio_user:{},trust=full,{options}", folder.file("s"))
}

/// The books of the pools: nothing is missing, whoever has what.
fn check_books(end: &End) {
    let books = Balance::take(end.pools.as_slice(), || {
        vec![
            Account::cache("cache".into(), &end.cache),
            Account::holds("rx".into(), end.queues.rx[0].held()),
            Account::holds("tx".into(), end.queues.tx[0].held()),
        ]
    });
    assert!(books.missing == 0 && books.exact, "{books}");
}

fn send(from: &mut End, frame: &[u8]) -> usize {
    let mut burst = Burst::new();
    burst.push(from.cache.copy_of(frame).unwrap()).unwrap();
    let sent = from.queues.tx[0].tx_burst(&mut burst, &mut from.cache);
    from.cache.free(&mut burst);
    sent
}

fn receive(to: &mut End) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    to.queues.rx[0].rx_burst(&mut burst, &mut to.cache);
    let frames = burst.iter().map(|packet| packet.data().to_vec()).collect();
    to.cache.free(&mut burst);
    frames
}

#[test]
fn what_cannot_be_lent_is_refused_by_name() {
    let folder = Scratch::new();
    let start = |options: &str, pools: &Pools| {
        let mut port = Drivers::new().open(&spec(&folder, options)).unwrap();
        assert!(port.info().exposed_pool);
        let started = port.start(&PortConfig::default(), pools);
        started.err().unwrap().to_string()
    };
    let error = start("", &pools(false));
    assert!(
        error.contains("pool `small` is private") && error.contains("leave `trust=` out"),
        "{error}"
    );
    let error = start("size=8192", &pools(true));
    assert!(error.contains("pool `small` has 8192 slots"), "{error}");
    for (options, says) in [
        ("trust=some", "`none` or `full`"),
        ("trust=full,buffer=2048", "slots are the buffers"),
        ("trust=full,inflight=on", "come home"),
    ] {
        let opened = Drivers::new().open(&format!("virtio_user:/s,{options}"));
        let error = opened.err().unwrap().to_string();
        assert!(error.contains(says), "{options}: {error}");
    }
}

/// What is sent is the slot itself, and what came is one, too: their bytes are where they were.
#[test]
fn frames_stay_in_their_slots() {
    for options in ["", "packed=off", "in_order=off", "mergeable=off,packed=off"] {
        let (_folder, mut driver, mut device) = pair(options);
        let facts = driver.port.info().facts;
        assert!(
            facts
                .iter()
                .any(|(name, says)| *name == "trust"
                    && says.contains("`small` (8192 slots), `large`")),
            "{facts:?}"
        );
        assert_eq!(driver.queues.rx[0].held(), 256);
        check_books(&driver);
        assert_eq!(send(&mut device, &[0x5a; 60]), 1);
        let mut burst = Burst::new();
        driver.queues.rx[0].rx_burst(&mut burst, &mut driver.cache);
        let came = burst.as_packets()[0].data();
        assert_eq!(came, [0x5a; 60]);
        let (start, bytes) = driver.pools.primary().data_span();
        let at = came.as_ptr().addr() - start.addr();
        assert!(at < bytes);
        // Back it goes, and the device finds what was changed after it was sent: it is one memory.
        let (tx, cache) = (&mut driver.queues.tx[0], &mut driver.cache);
        assert_eq!(tx.tx_burst(&mut burst, cache), 1);
        assert_eq!((burst.len(), tx.held()), (0, 1));
        check_books(&driver);
        let file = driver.pools.primary().exposed().unwrap();
        let mapped = Untrusted::map("the pool", file, 0, bytes, FileFrom::Peer).unwrap();
        mapped.window(at, 60).unwrap().write(&[7; 60]);
        assert_eq!(receive(&mut device), [[7; 60]]);
        // In the round that sent something, and in the next one.
        driver.queues.tx[0].flush(&mut driver.cache);
        driver.queues.tx[0].flush(&mut driver.cache);
        assert_eq!(driver.queues.tx[0].held(), 0, "the device is done with it");
        assert_eq!(driver.port.stats().tx_copied, 0);
        check_books(&driver);
        drop(mapped);
        driver.finish();
        device.finish();
    }
}

/// Also those that take several buffers, or of which checksums are left, or that are too short.
#[test]
fn frames_of_all_lengths_arrive_whole_without_a_copy() {
    for options in ["", "packed=off,in_order=off"] {
        let (_folder, driver, device) = pair(options);
        let (mut ends, lens) = ([driver, device], 14..300);
        for from in [0, 1] {
            for len in lens.clone().chain([1514, 2112, 2113, 4096, 9018]) {
                let (sent, [a, b]) = (frame(len as u64, len.max(22)), &mut ends);
                let (from, to) = if from == 0 { (a, b) } else { (b, a) };
                assert_eq!(send(from, &sent), 1, "{len}");
                assert!(receive(to) == [sent], "{len} bytes, {options}");
            }
        }
        let [driver, device] = ends;
        assert_eq!(driver.port.stats().tx_copied, 0);
        check_books(&driver);
        driver.finish();
        device.finish();
    }
}

/// Packets of private pools, and such that have no room for a header, are copied, and counted.
#[test]
fn packets_that_cannot_be_lent_are_copied() {
    let (_folder, mut driver, mut device) = pair("");
    let private = pools(false);
    let mut own = PoolCache::new(private.as_slice());
    for len in [60, 2112, 2113, 9018] {
        let sent = frame(len as u64, len);
        let mut burst = Burst::new();
        burst.push(own.copy_of(&sent).unwrap()).unwrap();
        let taken = driver.queues.tx[0].tx_burst(&mut burst, &mut driver.cache);
        assert_eq!((taken, burst.len()), (1, 0));
        assert!(receive(&mut device) == [sent], "{len} bytes");
    }
    let mut packet = driver.cache.copy_of(&[9; 100]).unwrap();
    assert!(packet.set_span(0, 100));
    packet.data_mut().copy_from_slice(&[9; 100]);
    let mut burst = Burst::new();
    burst.push(packet).unwrap();
    driver.queues.tx[0].tx_burst(&mut burst, &mut driver.cache);
    assert_eq!(receive(&mut device), [[9; 100]]);
    assert_eq!(driver.port.stats().tx_copied, 5);
    driver.finish();
    device.finish();
    drop(own);
    for pool in private.iter() {
        assert_eq!(pool.stats().free_shared, pool.slots());
    }
}

/// A device that goes with full rings has no slot of ours.
#[test]
fn a_device_that_goes_leaves_every_slot() {
    let folder = Scratch::new();
    let mut driver = End::new(&spec(&folder, ""), 1);
    for _ in 0..5 {
        let mut device = End::new(&format!("vhost:{}", folder.file("s")), 1);
        device.wait_up();
        driver.wait_up();
        let mut sent = 0;
        while send(&mut driver, &[1; 60]) == 1 {
            sent += 1;
        }
        assert_eq!(sent, 256);
        receive(&mut device);
        for _ in 0..100 {
            send(&mut device, &[2; 60]);
        }
        check_books(&driver);
        device.finish();
        driver.wait_down();
        let held = driver.queues.tx[0].held() + driver.queues.rx[0].held();
        assert_eq!(held, 0, "all are back");
        check_books(&driver);
    }
    driver.finish();
}

/// Slots are lent for a receiver that sleeps when the device comes, or nothing could come.
#[test]
fn a_receiver_that_sleeps_has_slots_when_its_device_comes() {
    let folder = Scratch::new();
    let mut driver = End::new(&spec(&folder, "packed=off"), 1);
    let on = driver.queues.rx[0].sleep_on();
    let mut device = End::new(&format!("vhost:{}", folder.file("s")), 1);
    device.wait_up();
    driver.wait_up();
    assert!(matches!(on, SleepOn::Fd(_)));
    assert_eq!(driver.queues.rx[0].held(), 256);
    check_books(&driver);
    assert_eq!(send(&mut device, &[3; 64]), 1);
    wait("the frame", || receive(&mut driver) == [[3; 64]]);
    driver.finish();
    device.finish();
}

/// A pool that the application uses up elsewhere: frames wait in the ring, and none is lost.
#[test]
fn where_slots_run_out_frames_wait() {
    let (_folder, mut driver, mut device) = pair("mergeable=off");
    let small = driver.pools.primary().clone();
    let mut all = Vec::new();
    while let Some(packet) = driver.cache.get(&small) {
        all.push(packet);
    }
    for number in 0..256 {
        assert_eq!(send(&mut device, &frame(number, 64)), 1);
    }
    let mut kept = Vec::new();
    let mut burst = Burst::new();
    for _ in 0..8 {
        driver.queues.rx[0].rx_burst(&mut burst, &mut driver.cache);
        kept.extend(burst.drain());
    }
    assert_eq!(kept.len(), 256, "all slots of the ring");
    assert_eq!(send(&mut device, &frame(256, 64)), 0, "no buffer is left");
    assert_eq!(driver.port.link(), Link::Up);
    all.clear();
    driver.queues.rx[0].rx_burst(&mut burst, &mut driver.cache);
    assert_eq!(driver.queues.rx[0].held(), 256);
    assert_eq!(send(&mut device, &frame(256, 64)), 1);
    assert_eq!(receive(&mut driver), [frame(256, 64)]);
    drop(kept);
    driver.finish();
    device.finish();
}
