//! Tests of the rings that need no model checker.
#![allow(unsafe_code)]

use super::{Pop, Push, mpmc, spsc};

/// A burst takes what fits and leaves the rest; bulk takes all or nothing; order is kept.
fn burst_and_bulk(mut tx: impl Push<u32>, mut rx: impl Pop<u32>) {
    for lap in 0..40u32 {
        let mut batch: Vec<u32> = (lap..lap + 21).collect();
        assert_eq!(tx.push_burst(&mut batch), 16);
        assert_eq!(batch, (lap + 16..lap + 21).collect::<Vec<_>>());
        assert!(!tx.push_bulk(&mut batch));
        assert_eq!(tx.push(7), Err(7));
        let mut out = vec![99];
        assert!(!rx.pop_bulk(&mut out, 17));
        assert!(rx.pop_bulk(&mut out, 3));
        assert_eq!(out, [99, lap, lap + 1, lap + 2]);
        assert!(!tx.push_bulk(&mut batch));
        batch.truncate(3);
        assert!(tx.push_bulk(&mut batch));
        assert!(batch.is_empty());
        out.clear();
        assert_eq!(rx.pop_burst(&mut out, 100), 16);
        assert_eq!(out, (lap + 3..lap + 19).collect::<Vec<_>>());
        assert_eq!(rx.pop(), None);
        // Shift the laps against the storage.
        assert_eq!(tx.push(1), Ok(()));
        assert_eq!(rx.pop(), Some(1));
    }
    let stats = rx.meter().read();
    assert_eq!((stats.capacity, stats.occupancy), (16, 0));
    assert_eq!((stats.enqueued, stats.dequeued), (800, 800));
    assert_eq!(stats.refused, 40 * (5 + 5 + 1 + 5));
    assert_eq!(stats.short, 40 * 3);
}

#[test]
fn spsc_bursts_and_bulks() {
    let (tx, rx) = spsc::ring(16);
    burst_and_bulk(tx, rx);
}

#[test]
fn mpmc_bursts_and_bulks() {
    let (tx, rx) = mpmc::ring(16);
    burst_and_bulk(tx, rx);
}

use crate::sync::hooks::{at_windows, copy_portably};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SENDER_WINDOWS: [&str; 5] = [
    "sender: head read",
    "sender: claimed",
    "sender: values half stored",
    "sender: values stored",
    "sender: half published",
];
const RECEIVER_WINDOWS: [&str; 4] = [
    "receiver: head read",
    "receiver: stamps read",
    "receiver: values copied",
    "receiver: claimed",
];

/// Runs `work` on a thread of its own until it reaches `window`; returns once it has stopped there.
/// Sending into the first channel lets it go on; the second then yields its result.
fn stop_at<R: Send + 'static>(
    window: &'static str,
    work: impl FnOnce() -> R + Send + 'static,
) -> (mpsc::Sender<()>, thread::JoinHandle<R>) {
    let (resume, handle) = stop_where(move |name| name == window, work);
    (resume.expect("the window is reached"), handle)
}

/// The same for the first window that `chosen` says true of; no channel if `work` reaches none.
fn stop_where<R: Send + 'static>(
    mut chosen: impl FnMut(&'static str) -> bool + Send + 'static,
    work: impl FnOnce() -> R + Send + 'static,
) -> (Option<mpsc::Sender<()>>, thread::JoinHandle<R>) {
    let (resume, resumed) = mpsc::channel();
    let (stopped, stands) = mpsc::channel();
    let mut stop = Some((stopped, resumed));
    let handle = thread::spawn(move || {
        at_windows(move |name| {
            if chosen(name)
                && let Some((stopped, resumed)) = stop.take()
            {
                stopped.send(()).unwrap();
                resumed.recv().unwrap();
            }
        });
        work()
    });
    (stands.recv().ok().map(|()| resume), handle)
}

fn sorted(parts: &[&[u32]]) -> Vec<u32> {
    let mut all = parts.concat();
    all.sort_unstable();
    all
}

/// A sender stopped in any window: other senders fill the ring and then get less room, receivers
/// take the elements before the gap and then get fewer, and once it continues everything arrives
/// once.
#[test]
fn mpmc_sender_stopped_in_every_window() {
    for window in SENDER_WINDOWS {
        let (mut tx, mut rx) = mpmc::ring::<u32>(8);
        // Positions 6 and 7, then a wrap, so that the half-way windows are half way.
        assert!(tx.push_slice_bulk(&[0; 6]) && rx.pop_slice_bulk(&mut [0; 6]));
        assert!(tx.push(1).is_ok());
        let mut stopped = tx.clone();
        let (resume, handle) = stop_at(window, move || stopped.push_slice(&[10, 11, 12]));

        // Not claimed yet: the whole ring is the others'. Claimed: all but its three slots.
        let claimed = window != SENDER_WINDOWS[0];
        let room = if claimed { 4 } else { 7 };
        let others: Vec<u32> = (20..30).collect();
        assert_eq!(tx.push_slice(&others), room, "{window}");
        assert_eq!(tx.push(99), Err(99), "{window}");

        let mut got = Vec::new();
        rx.pop_burst(&mut got, 8);
        match window {
            "sender: head read" => assert_eq!(got.len(), 8, "{window}"),
            // One of its three lies before the storage's end.
            "sender: half published" => assert_eq!(got, [1, 10], "{window}"),
            _ => assert_eq!(got, [1], "{window}"),
        }
        // Beyond the gap nothing can be taken, and the calls return all the same.
        let mut more = Vec::new();
        assert!(!rx.pop_bulk(&mut more, 2), "{window}");
        assert_eq!(rx.pop(), None, "{window}");
        let freed = got.len();
        assert_eq!(
            tx.push_slice(&[40; 8]),
            freed,
            "{window}: what was taken is free again"
        );

        resume.send(()).unwrap();
        let sent = handle.join().unwrap();
        assert_eq!(sent, if claimed { 3 } else { 0 }, "{window}");
        rx.pop_burst(&mut more, 16);
        let expected = sorted(&[
            &[1],
            &[10, 11, 12][..sent],
            &others[..room],
            &[40; 8][..freed],
        ]);
        assert_eq!(
            sorted(&[&got, &more]),
            expected,
            "{window}: lost or doubled"
        );
        assert_eq!(rx.meter().read().occupancy, 0, "{window}");
    }
}

/// A sender stopped between any two blocks of its stamps: receivers empty the slots published so
/// far and others fill them in the next lap, where the late stamps must not be seen. Every length
/// of burst that ends in a block of each size, on every copy kernel.
#[test]
fn mpmc_sender_stopped_between_its_stamps() {
    const SLOTS: usize = 64;
    let value = |number: usize| number as u32;
    for (portable, len) in [false, true]
        .into_iter()
        .flat_map(|p| (1..=50).map(move |l| (p, l)))
    {
        let mut stops = 0;
        loop {
            let (mut tx, mut rx) = mpmc::ring::<u32>(SLOTS);
            let mut stopped = tx.clone();
            let mut seen = 0;
            let at = move |name: &str| {
                seen += usize::from(name == "sender: stamps stored");
                name == "sender: stamps stored" && seen == stops + 1
            };
            let (resume, handle) = stop_where(at, move || {
                copy_portably(portable);
                stopped.push_slice(&(0..len).map(value).collect::<Vec<_>>())
            });
            let Some(resume) = resume else {
                assert_eq!(handle.join().unwrap(), len);
                break;
            };
            let what = format!("{len} elements, stopped after block {stops}, portable: {portable}");
            let mut got = Vec::new();
            rx.pop_burst(&mut got, SLOTS);
            assert!(
                (1..=len).contains(&got.len()),
                "{what}: {} published",
                got.len()
            );
            let others: Vec<u32> = (len..SLOTS + got.len()).map(value).collect();
            assert_eq!(
                tx.push_slice(&others),
                others.len(),
                "{what}: the ring fills up"
            );
            resume.send(()).unwrap();
            assert_eq!(handle.join().unwrap(), len, "{what}");
            rx.pop_burst(&mut got, 2 * SLOTS);
            let all = (0..len).map(value).chain(others);
            assert!(got.iter().copied().eq(all), "{what}: {got:?}");
            stops += 1;
        }
        assert!(
            stops > len / 32,
            "{len} elements have {stops} blocks of stamps"
        );
    }
}

/// A receiver stopped in any window: others take everything and lap the ring; it then gets either
/// what it had claimed or what is there now, and nothing twice.
#[test]
fn mpmc_receiver_stopped_in_every_window() {
    for window in RECEIVER_WINDOWS {
        let (mut tx, mut rx) = mpmc::ring::<u32>(8);
        assert!(tx.push_slice_bulk(&[0; 6]) && rx.pop_slice_bulk(&mut [0; 6]));
        let mut sent: Vec<u32> = (1..=8).collect();
        assert!(tx.push_slice_bulk(&sent));
        let mut stopped = rx.clone();
        let (resume, handle) = stop_at(window, move || {
            let mut got = Vec::new();
            stopped.pop_burst(&mut got, 3);
            got
        });
        let claimed = window == "receiver: claimed";

        // The others are not held up: they lap the ring three times.
        let mut got = Vec::new();
        rx.pop_burst(&mut got, 16);
        assert_eq!(got.len(), if claimed { 5 } else { 8 }, "{window}");
        for lap in 1..=3 {
            let fresh: Vec<u32> = (lap * 100..lap * 100 + 8).collect();
            assert!(tx.push_slice_bulk(&fresh), "{window}");
            assert_eq!(tx.push(99), Err(99), "{window}");
            sent.extend(fresh);
            if lap < 3 {
                assert!(rx.pop_bulk(&mut got, 8), "{window}");
            }
        }

        resume.send(()).unwrap();
        let late = handle.join().unwrap();
        assert_eq!(
            late,
            if claimed { [1, 2, 3] } else { [300, 301, 302] },
            "{window}"
        );
        rx.pop_burst(&mut got, 16);
        assert_eq!(
            sorted(&[&got, &late]),
            sorted(&[&sent]),
            "{window}: lost or doubled"
        );
    }
}

/// The same for a single element, which has code of its own, on either side.
#[test]
fn mpmc_single_stopped_in_every_window() {
    for window in [
        "sender: head read",
        "sender: claimed",
        "sender: values stored",
        "sender: stamps stored",
    ] {
        let (mut tx, mut rx) = mpmc::ring::<u32>(4);
        assert!(tx.push(1).is_ok());
        let mut stopped = tx.clone();
        let (resume, handle) = stop_at(window, move || stopped.push(10));
        let room = if window == "sender: head read" { 3 } else { 2 };
        assert_eq!(tx.push_slice(&[20; 3]), room, "{window}");
        let mut got = Vec::new();
        rx.pop_burst(&mut got, 8);
        match window {
            "sender: head read" => assert_eq!(got, [1, 20, 20, 20], "{window}"),
            "sender: stamps stored" => assert_eq!(got, [1, 10, 20, 20], "{window}"),
            _ => assert_eq!(got, [1], "{window}"),
        }
        assert_eq!(rx.pop(), None, "{window}");
        resume.send(()).unwrap();
        assert_eq!(handle.join().unwrap(), Ok(()), "{window}");
        rx.pop_burst(&mut got, 8);
        got.sort_unstable();
        assert_eq!(got[..2], [1, 10], "{window}: lost or doubled");
        assert_eq!(got[2..], [20; 3][..room], "{window}: lost or doubled");
    }
    for window in RECEIVER_WINDOWS {
        let (mut tx, mut rx) = mpmc::ring::<u32>(4);
        assert!(tx.push_slice_bulk(&[1, 2, 3, 4]));
        let mut stopped = rx.clone();
        let (resume, handle) = stop_at(window, move || stopped.pop());
        let claimed = window == "receiver: claimed";
        let mut got = Vec::new();
        rx.pop_burst(&mut got, 8);
        assert_eq!(got.len(), if claimed { 3 } else { 4 }, "{window}");
        assert!(tx.push_slice_bulk(&[11, 12, 13, 14]), "{window}");
        resume.send(()).unwrap();
        let late = handle.join().unwrap().unwrap();
        assert_eq!(late, if claimed { 1 } else { 11 }, "{window}");
        rx.pop_burst(&mut got, 8);
        let all = [1, 2, 3, 4, 11, 12, 13, 14];
        assert_eq!(sorted(&[&got, &[late]]), all, "{window}: lost or doubled");
    }
}

/// A short run is read in pieces of 8, 4, 2 and 1 stamps: it ends at the first that is not of this
/// lap, wherever in a piece that is, in the first laps and when the stamp comes round.
#[test]
fn mpmc_short_runs_end_where_the_sender_did() {
    for portable in [false, true] {
        copy_portably(portable);
        let (mut tx, mut rx) = mpmc::ring::<u32>(16);
        for lap in 0..300 {
            let (there, most) = (lap % 16, 1 + lap * 7 % 16);
            let sent: Vec<u32> = (0..there).map(|number| lap * 100 + number).collect();
            assert!(tx.push_slice_bulk(&sent));
            let mut got = Vec::new();
            rx.pop_burst(&mut got, most as usize);
            assert_eq!(
                got.len() as u32,
                there.min(most),
                "{there} there, {most} asked for"
            );
            rx.pop_burst(&mut got, 16);
            assert_eq!(got, sent, "{there} there, {most} asked for");
        }
    }
    copy_portably(false);
}

/// SPSC ends hold nothing that the other needs: each continues while its peer does not move, until
/// the ring is full or empty, and reports that.
#[test]
fn meters_count_from_another_thread() {
    let (mut tx, mut rx) = spsc::ring::<u64>(4);
    let meter = tx.meter();
    assert_eq!(tx.push_slice(&[1, 2, 3, 4, 5, 6]), 4);
    assert_eq!(rx.pop(), Some(1));
    let stats = thread::spawn(move || meter.read()).join().unwrap();
    assert_eq!((stats.enqueued, stats.dequeued, stats.occupancy), (4, 1, 3));
    assert_eq!((stats.refused, stats.short), (2, 0));
    let meter = rx.meter();
    drop((tx, rx));
    assert_eq!(meter.read().refused, 2, "what a handle counted outlives it");
}

#[test]
fn ends_learn_that_the_other_side_is_gone() {
    let (tx, mut rx) = spsc::ring::<Box<u32>>(4);
    assert!(!tx.is_closed() && !rx.is_closed());
    drop(tx);
    assert!(rx.is_closed());
    assert_eq!(rx.pop(), None);

    let (tx, rx) = mpmc::ring::<u32>(4);
    let (tx2, rx2) = (tx.clone(), rx.clone());
    drop((tx, rx));
    assert!(!tx2.is_closed() && !rx2.is_closed());
    drop(rx2);
    assert!(tx2.is_closed());
}

/// A word that counts its drops.
#[repr(transparent)]
struct Counted(u32);

// SAFETY: laid out as `u32`.
unsafe impl mpmc::Word for Counted {}

static DROPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

impl Drop for Counted {
    fn drop(&mut self) {
        DROPS.lock().unwrap().push(self.0);
    }
}

/// What is taken is dropped by its taker, what is left by the ring, each once.
#[test]
fn elements_are_dropped_exactly_once() {
    let (mut tx, mut rx) = mpmc::ring::<Counted>(4);
    let mut batch: Vec<Counted> = (0..6).map(Counted).collect();
    assert_eq!(tx.push_burst(&mut batch), 4);
    drop(rx.pop());
    drop((tx, rx));
    drop(batch);
    assert_eq!(
        std::mem::take(&mut *DROPS.lock().unwrap()),
        [0, 1, 2, 3, 4, 5]
    );

    let tracked: Vec<Arc<()>> = (0..6).map(|_| Arc::new(())).collect();
    let (mut tx, mut rx) = spsc::ring(4);
    let mut batch = tracked.clone();
    assert_eq!(tx.push_burst(&mut batch), 4);
    drop(rx.pop());
    assert!(tx.push_bulk(&mut batch.drain(..1).collect::<Vec<_>>()));
    drop((tx, rx, batch));
    assert!(
        tracked
            .iter()
            .all(|element| Arc::strong_count(element) == 1)
    );
}

/// Odd lengths and offsets against a model queue, so that every block size and wrap is met.
#[test]
fn all_lengths_and_offsets_keep_order() {
    fn check(mut tx: impl Push<u32>, mut rx: impl Pop<u32>) {
        let mut model = std::collections::VecDeque::new();
        let (mut next, mut seed) = (0u32, 1u64);
        for _ in 0..30_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = (seed >> 33) as usize % 90;
            if seed >> 63 == 0 {
                let mut batch: Vec<u32> = (next..next + len as u32).collect();
                let sent = tx.push_burst(&mut batch);
                assert_eq!(sent, len.min(128 - model.len()));
                model.extend(next..next + sent as u32);
                next += sent as u32;
            } else {
                let mut got = Vec::new();
                let count = rx.pop_burst(&mut got, len);
                assert_eq!(count, len.min(model.len()));
                assert!(got.into_iter().eq(model.drain(..count)));
            }
        }
    }
    let (tx, rx) = spsc::ring(128);
    check(tx, rx);
    let (tx, rx) = mpmc::ring(128);
    check(tx, rx);
}

/// A payload whose content can be checked, on the heap so that sanitizers watch it.
fn payload(sender: u64, sequence: u64) -> Box<[u64; 3]> {
    Box::new([
        sender,
        sequence,
        sender.wrapping_mul(31) ^ sequence.wrapping_mul(0x9e37_79b9),
    ])
}

fn check_payload(payload: &[u64; 3]) -> (u64, u64) {
    let [sender, sequence, sum] = *payload;
    assert_eq!(
        sum,
        sender.wrapping_mul(31) ^ sequence.wrapping_mul(0x9e37_79b9),
        "torn payload"
    );
    (sender, sequence)
}

/// Heap payloads go through an SPSC ring in bursts of all lengths, in order and whole.
#[test]
fn spsc_stress() {
    const COUNT: u64 = 60_000;
    let (mut tx, mut rx) = spsc::ring(64);
    let producer = thread::spawn(move || {
        let (mut batch, mut next) = (Vec::new(), 0);
        while next < COUNT || !batch.is_empty() {
            let want = (next % 37 + 1).min(COUNT - next);
            if batch.len() < 40 {
                batch.extend((next..next + want).map(|sequence| payload(0, sequence)));
                next += want;
            }
            if tx.push_burst(&mut batch) == 0 {
                thread::yield_now();
            }
        }
    });
    let (mut batch, mut expected) = (Vec::new(), 0);
    while expected < COUNT {
        if rx.pop_burst(&mut batch, (expected % 41 + 1) as usize) == 0 {
            thread::yield_now();
        }
        for element in batch.drain(..) {
            assert_eq!(check_payload(&element), (0, expected));
            expected += 1;
        }
    }
    producer.join().unwrap();
}

/// Slots of an arena travel between two senders and two receivers: each holds a payload that its
/// owner alone reads and writes, so a doubled handle is a data race and a lost one is missed.
#[test]
fn mpmc_stress() {
    const COUNT: u64 = 30_000;
    const SENDERS: u64 = 2;
    struct Arena(Vec<std::cell::UnsafeCell<[u64; 3]>>);
    // SAFETY: a slot is touched by the holder of its number only, which is what is tested.
    unsafe impl Sync for Arena {}
    let arena = Arc::new(Arena(
        (0..256)
            .map(|_| std::cell::UnsafeCell::new([0; 3]))
            .collect(),
    ));
    // Numbers of vacant slots go one way, of filled ones the other.
    let (mut vacant_tx, vacant_rx) = mpmc::ring::<u32>(256);
    let (filled_tx, filled_rx) = mpmc::ring::<u32>(64);
    assert!(vacant_tx.push_bulk(&mut (0..256).collect::<Vec<u32>>()));
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let (arena, mut vacant, mut filled) =
                (arena.clone(), vacant_rx.clone(), filled_tx.clone());
            thread::spawn(move || {
                let (mut batch, mut next) = (Vec::new(), 0);
                while next < COUNT {
                    let want = (next % 33 + 1).min(COUNT - next) as usize;
                    if vacant.pop_burst(&mut batch, want) == 0 {
                        thread::yield_now();
                    }
                    for &slot in &batch {
                        // SAFETY: this thread holds the slot's number.
                        unsafe { *arena.0[slot as usize].get() = *payload(sender, next) };
                        next += 1;
                    }
                    while !batch.is_empty() {
                        if filled.push_burst(&mut batch) == 0 {
                            thread::yield_now();
                        }
                    }
                }
            })
        })
        .collect();
    drop((filled_tx, vacant_rx));
    let receivers: Vec<_> = (0..2)
        .map(|_| {
            let (arena, mut vacant, mut filled) =
                (arena.clone(), vacant_tx.clone(), filled_rx.clone());
            thread::spawn(move || {
                let (mut batch, mut seen) = (Vec::new(), Vec::new());
                loop {
                    let closed = filled.is_closed();
                    if filled.pop_burst(&mut batch, 1 + seen.len() % 40) == 0 {
                        if closed {
                            return seen;
                        }
                        thread::yield_now();
                    }
                    for &slot in &batch {
                        // SAFETY: this thread holds the slot's number.
                        let element = unsafe { *arena.0[slot as usize].get() };
                        seen.push(check_payload(&element));
                    }
                    while !batch.is_empty() {
                        if vacant.push_burst(&mut batch) == 0 {
                            thread::yield_now();
                        }
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.join().unwrap();
    }
    let mut all = Vec::new();
    for receiver in receivers {
        let seen = receiver.join().unwrap();
        for sender in 0..SENDERS {
            let of_one = seen.iter().filter(|element| element.0 == sender);
            assert!(of_one.is_sorted(), "a sender's order is kept");
        }
        all.extend(seen);
    }
    all.sort_unstable();
    let expected = (0..SENDERS).flat_map(|sender| (0..COUNT).map(move |number| (sender, number)));
    assert!(all.into_iter().eq(expected), "lost or doubled");
}

/// More threads than processors, odd lengths of burst: every element arrives once, in the order of
/// its sender, and the ring never stalls. `turns` elements of each sender.
fn oversubscribed(slots: usize, len: usize, turns: u32, kernels: [bool; 2]) {
    const SENDERS: u32 = 3;
    const RECEIVERS: usize = 2;
    let arrived = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = u64::from(SENDERS) * u64::from(turns);
    let (tx, rx) = mpmc::ring::<u32>(slots);
    let send = |sender: u32, mut tx: mpmc::Sender<u32>| {
        copy_portably(kernels[sender as usize % 2]);
        let mut next = 0;
        while next < turns && !stop.load(Ordering::Relaxed) {
            let upto = turns.min(next + len as u32);
            let batch: Vec<u32> = (next..upto)
                .map(|number| number * SENDERS + sender)
                .collect();
            let sent = tx.push_slice(&batch);
            next += sent as u32;
            if sent == 0 {
                thread::yield_now();
            }
        }
        tx
    };
    let receive = |receiver: usize, mut rx: mpmc::Receiver<u32>| {
        copy_portably(kernels[receiver % 2]);
        let (mut batch, mut sum) = (vec![0; len], 0_u64);
        let mut next = [0; SENDERS as usize];
        while arrived.load(Ordering::Relaxed) < total && !stop.load(Ordering::Relaxed) {
            let got = rx.pop_slice(&mut batch);
            for &element in &batch[..got] {
                let (sender, number) = ((element % SENDERS) as usize, element / SENDERS);
                assert!(
                    next[sender] <= number,
                    "{number} of sender {sender} is too late"
                );
                next[sender] = number + 1;
                sum += u64::from(element);
            }
            if got == 0 {
                thread::yield_now();
            } else {
                arrived.fetch_add(got as u64, Ordering::Relaxed);
            }
        }
        (sum, rx)
    };
    // All ends come back and go here, one after the other: the lock that they take then is std's,
    // which ThreadSanitizer does not see where threads wait for it.
    let sum: u64 = thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| (sender, tx.clone()))
            .map(|(sender, tx)| scope.spawn(move || send(sender, tx)))
            .collect();
        let receivers: Vec<_> = (0..RECEIVERS)
            .map(|receiver| (receiver, rx.clone()))
            .map(|(receiver, rx)| scope.spawn(move || receive(receiver, rx)))
            .collect();
        // The watchdog: that nothing at all arrives for so long has no other reason.
        let (mut before, mut idle) = (0, 0);
        while !receivers.iter().all(|receiver| receiver.is_finished()) {
            thread::sleep(Duration::from_millis(10));
            let now = arrived.load(Ordering::Relaxed);
            idle = if now == before { idle + 1 } else { 0 };
            before = now;
            if idle > 2_000 {
                stop.store(true, Ordering::Relaxed);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let ends: Vec<_> = senders
            .into_iter()
            .map(|sender| sender.join().unwrap())
            .collect();
        let (sums, others): (Vec<u64>, Vec<_>) = receivers
            .into_iter()
            .map(|receiver| receiver.join().unwrap())
            .unzip();
        drop((ends, others));
        sums.into_iter().sum()
    });
    let arrived = arrived.into_inner();
    let what = format!("{slots} slots, bursts of {len}, portable: {kernels:?}");
    assert_eq!(arrived, total, "{what}: the ring stands still");
    assert_eq!(sum, total * (total - 1) / 2, "{what}: lost or doubled");
}

/// On every copy kernel that the processor has, and on two that meet in one ring.
fn oversubscribed_on_every_kernel(turns: u32) {
    for kernels in [[false, false], [true, true], [false, true]] {
        for (slots, len) in [(1024, 17), (256, 31), (64, 63), (32, 5), (128, 33)] {
            oversubscribed(slots, len, turns, kernels);
        }
    }
}

#[test]
fn mpmc_oversubscribed() {
    oversubscribed_on_every_kernel(if cfg!(any(miri, tsan)) {
        2_000
    } else {
        400_000
    });
}

#[test]
#[ignore = "long: billions of elements"]
fn mpmc_oversubscribed_for_minutes() {
    oversubscribed_on_every_kernel(200_000_000);
}

/// Lent slots wrap into two slices, keep order, and drop what is consumed once; loans that are
/// given back unused change nothing.
#[test]
fn spsc_lends_its_slots() {
    let tracked: Vec<Arc<usize>> = (0..100).map(Arc::new).collect();
    let (mut tx, mut rx) = spsc::ring(8);
    let mut expected = 0;
    for chunk in tracked.chunks(5) {
        let _given_back = tx.reserve(8);
        assert_eq!(tx.reserve(9).len(), 8);
        assert_eq!(tx.reserve(7).fill(chunk.iter().cloned()), 5);
        let _given_back = rx.peek(8);
        let lent = rx.peek(8);
        let (near, far) = lent.slices();
        assert_eq!((near.len() + far.len(), lent.len()), (5, 5));
        assert!(
            near.iter()
                .chain(far)
                .map(|number| **number)
                .eq(expected..expected + 5)
        );
        lent.consume(4);
        assert_eq!(rx.pop().map(|number| *number), Some(expected + 4));
        expected += 5;
        assert!(
            tracked
                .iter()
                .all(|element| Arc::strong_count(element) == 1)
        );
    }
    assert_eq!(tx.reserve(3).fill(tracked.iter().cloned()), 3);
    drop((tx, rx));
    assert!(
        tracked
            .iter()
            .all(|element| Arc::strong_count(element) == 1)
    );
}
