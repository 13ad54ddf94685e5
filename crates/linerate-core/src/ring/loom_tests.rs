//! Loom models of the rings. Every actor has a thread of its own, no thread begins with an atomic
//! load where that can be avoided, each model asserts that every expected outcome occurred, and
//! each has variants with one ordering weakened that must fail.

use super::{Pop, Push, mpmc, spsc};
use crate::sync::hooks::weaken;
use loom::thread;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Explores `model`, which returns what its threads saw, and asserts that exactly these `expected`
/// outcomes occurred.
pub(crate) fn explore<O: Ord + std::fmt::Debug + Send + 'static>(
    preemptions: usize,
    expected: impl IntoIterator<Item = O>,
    model: impl Fn() -> O + Sync + Send + 'static,
) {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check({
        let seen = seen.clone();
        move || {
            let outcome = model();
            seen.lock().unwrap().insert(outcome);
        }
    });
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(
        seen,
        expected.into_iter().collect(),
        "outcomes seen (left) and expected"
    );
}

/// Takes one after the other, at most `tries` times.
fn take<T>(rx: &mut impl Pop<T>, tries: usize) -> Vec<T> {
    (0..tries).filter_map(|_| rx.pop()).collect()
}

/// A producer laps a ring of two while the consumer takes: order is kept, nothing is torn, and
/// slots are not filled again before they are read (loom watches each slot).
fn spsc_model() {
    let expected = (0..=3).flat_map(|sent: u32| (0..=sent).map(move |got| (sent.max(2), got)));
    // With two slots at least two puts succeed; the third needs one taken before.
    let expected = expected.filter(|&(sent, got)| got <= sent && (sent < 3 || got > 0));
    explore(3, expected, || {
        let (mut tx, mut rx) = spsc::ring::<Box<u32>>(2);
        let producer = thread::spawn(move || {
            let sent = (0..3)
                .take_while(|&number| tx.push(Box::new(number)).is_ok())
                .count();
            sent as u32
        });
        let consumer = thread::spawn(move || {
            let mut got = Vec::with_capacity(4);
            rx.pop_burst(&mut got, 2);
            got.extend(take(&mut rx, 1));
            assert!(
                got.iter().map(|number| **number).eq(0..got.len() as u32),
                "order"
            );
            got.len() as u32
        });
        (producer.join().unwrap(), consumer.join().unwrap())
    });
}

#[test]
fn loom_spsc() {
    spsc_model();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_spsc_published_without_release() {
    weaken("spsc.publish", spsc_model);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_spsc_given_back_without_release() {
    weaken("spsc.release", spsc_model);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_spsc_peer_read_without_acquire() {
    weaken("cursor.peer", spsc_model);
}

/// An end that sees the ring closed sees everything that was put; the rest is dropped once (loom
/// reports a leaked `Arc`).
fn spsc_close_model() {
    explore(3, [(false, 0), (false, 1), (true, 1)], || {
        let (mut tx, mut rx) = spsc::ring::<loom::sync::Arc<u32>>(2);
        let producer = thread::spawn(move || {
            assert!(tx.push(loom::sync::Arc::new(1)).is_ok());
            assert!(tx.push(loom::sync::Arc::new(2)).is_ok());
        });
        let consumer = thread::spawn(move || {
            let closed = rx.is_closed();
            let got = rx.pop();
            assert!(
                !closed || got.is_some(),
                "closed, and yet the last put is not there"
            );
            (closed, got.iter().count())
        });
        producer.join().unwrap();
        consumer.join().unwrap()
    });
}

#[test]
fn loom_spsc_close() {
    spsc_close_model();
}

#[test]
#[should_panic(expected = "the last put is not there")]
fn loom_spsc_closed_without_release() {
    weaken("spsc.close", spsc_close_model);
}

/// Two senders and a receiver, then the rest: each element arrives once, whole, and in the order
/// of its sender. The ring of two is lapped.
fn mpmc_senders_model() {
    explore(2, 0..=2, || {
        let (mut tx, mut rx) = mpmc::ring::<u32>(2);
        // Move the ring into its second lap, where slots hold old values.
        assert!(tx.push_slice_bulk(&[90, 91]) && rx.pop_slice_bulk(&mut [0; 2]));
        let mut other = tx.clone();
        let first = thread::spawn(move || tx.push(1).is_ok());
        let second = thread::spawn(move || other.push(2).is_ok());
        let receiver = thread::spawn(move || {
            let got = take(&mut rx, 2);
            (rx, got)
        });
        assert!(first.join().unwrap() && second.join().unwrap());
        let (mut rx, early) = receiver.join().unwrap();
        let mut all = early.clone();
        all.extend(take(&mut rx, 3));
        all.sort_unstable();
        assert_eq!(all, [1, 2], "lost, doubled or torn");
        early.len()
    });
}

#[test]
fn loom_mpmc_senders() {
    mpmc_senders_model();
}

#[test]
#[should_panic(expected = "lost, doubled or torn")]
fn loom_mpmc_published_without_release() {
    weaken("mpmc.publish", mpmc_senders_model);
}

/// Two receivers race for the elements of a sender that laps the ring: each element goes to one.
fn mpmc_receivers_model() {
    // The first element is there from the start, so one of the two finds something.
    explore(
        2,
        [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)],
        || {
            let (mut tx, mut rx) = mpmc::ring::<u32>(2);
            assert!(tx.push(1).is_ok());
            let mut other = rx.clone();
            let sender = thread::spawn(move || {
                let sent = (2..4)
                    .filter(|&number| tx.push(number).is_ok())
                    .collect::<Vec<_>>();
                (tx, sent)
            });
            let take_two = |rx: &mut mpmc::Receiver<u32>| {
                let mut got = [0; 2];
                let count = rx.pop_slice(&mut got);
                got[..count].to_vec()
            };
            let first = thread::spawn(move || take_two(&mut rx));
            let second = thread::spawn(move || {
                let got = take_two(&mut other);
                (other, got)
            });
            let (_tx, sent) = sender.join().unwrap();
            let first = first.join().unwrap();
            let (mut rx, second) = second.join().unwrap();
            let mut all = [first.clone(), second.clone(), take(&mut rx, 4)].concat();
            all.sort_unstable();
            let mut expected = vec![1];
            expected.extend(sent);
            assert_eq!(all, expected, "lost, doubled or torn");
            (first.len(), second.len())
        },
    );
}

#[test]
fn loom_mpmc_receivers() {
    mpmc_receivers_model();
}

#[test]
#[should_panic(expected = "lost, doubled or torn")]
fn loom_mpmc_published_to_receivers_without_release() {
    weaken("mpmc.publish", mpmc_receivers_model);
}

/// A burst whose stamps take two blocks (see `arch::portable`), while another thread empties the
/// slots that the first block gave away and fills them in the next lap: nothing late may touch
/// them.
#[test]
fn loom_mpmc_stamps_in_blocks() {
    explore(2, 0..=3, || {
        let (mut tx, mut rx) = mpmc::ring::<u32>(4);
        let mut other = tx.clone();
        let sender = thread::spawn(move || tx.push_slice(&[1, 2, 3]));
        let lapping = thread::spawn(move || {
            let mut got = [0; 4];
            let early = rx.pop_slice(&mut got);
            let sent = other.push_slice(&[4, 5, 6]);
            (rx, got[..early].to_vec(), sent)
        });
        let first = sender.join().unwrap();
        let (mut rx, early, sent) = lapping.join().unwrap();
        let mut all = [early.clone(), take(&mut rx, 6)].concat();
        all.sort_unstable();
        let mut expected = [&[1, 2, 3][..first], &[4, 5, 6][..sent]].concat();
        expected.sort_unstable();
        assert_eq!(all, expected, "lost, doubled or torn");
        early.iter().filter(|&&number| number < 4).count()
    });
}

/// The last dropped handle publishes all elements: closed means that nothing more comes.
fn mpmc_close_model() {
    explore(3, [(false, 0), (false, 1), (true, 1)], || {
        let (mut tx, mut rx) = mpmc::ring::<u32>(2);
        let sender = thread::spawn(move || assert!(tx.push(7).is_ok()));
        let receiver = thread::spawn(move || {
            let closed = rx.is_closed();
            let got = rx.pop();
            assert!(
                !closed || got == Some(7),
                "closed, and yet the last put is not there"
            );
            (closed, got.iter().count())
        });
        sender.join().unwrap();
        receiver.join().unwrap()
    });
}

#[test]
fn loom_mpmc_close() {
    mpmc_close_model();
}

#[test]
#[should_panic(expected = "the last put is not there")]
fn loom_mpmc_closed_without_release() {
    weaken("mpmc.close", mpmc_close_model);
}
