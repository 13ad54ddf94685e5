//! A loom model of a hand-over: the state of some flows leaves one worker for another while their
//! packets are under way, as `linerate gateway` moves buckets.
//!
//! The thread of the model dispatches and is control as well: it hands a packet to the old owner,
//! turns to the new one, waits until what it had handed over is taken, and then asks the old one
//! for the state. The owners take packets from their rings, and look at their mail between two
//! rounds.

use crate::ring::loom_tests::explore;
use crate::ring::{Pop, Push, spsc};
use crate::sync::{Arc, Mutex};
use loom::thread;

/// The number of the next packet that the flows expect.
type State = u32;

/// Packet 0 goes to the old owner and packet 1 to the new one. Returns whether the state has moved
/// before the model was over: either may be.
fn hand_over(waits: bool) {
    explore(2, [false, true], move || {
        let (mut to_old, mut from_old) = spsc::ring::<Box<u32>>(2);
        let (mut to_new, mut from_new) = spsc::ring::<Box<u32>>(2);
        let asked = Arc::new(Mutex::new(false));
        let arrived = Arc::new(Mutex::new(None::<State>));
        let old = {
            let asked = asked.clone();
            thread::spawn(move || {
                let (mut state, mut parcel) = (Some(0), None);
                for _ in 0..2 {
                    if let Some(packet) = from_old.pop() {
                        let next: &mut State = state.as_mut().expect("its state has gone");
                        assert_eq!(*packet, *next, "order");
                        *next += 1;
                    }
                    if *asked.lock().unwrap() {
                        parcel = parcel.or(state.take());
                    }
                }
                parcel
            })
        };
        let new = {
            let arrived = arrived.clone();
            thread::spawn(move || {
                let (mut state, mut waiting) = (None::<State>, None);
                for _ in 0..2 {
                    waiting = waiting.or(from_new.pop());
                    state = state.or(arrived.lock().unwrap().take());
                    // What is early waits.
                    if let Some(next) = &mut state
                        && let Some(packet) = waiting.take()
                    {
                        assert_eq!(*packet, *next, "order");
                        *next += 1;
                    }
                }
                state
            })
        };
        let meter = to_old.meter();
        assert!(to_old.push(Box::new(0)).is_ok());
        // It turns, and goes on.
        let handed = meter.read().enqueued;
        assert!(to_new.push(Box::new(1)).is_ok());
        if !waits || meter.read().dequeued >= handed {
            *asked.lock().unwrap() = true;
        }
        let parcel = old.join().unwrap();
        if let Some(state) = parcel {
            *arrived.lock().unwrap() = Some(state);
        }
        new.join().unwrap();
        parcel.is_some()
    });
}

#[test]
fn loom_hand_over() {
    hand_over(true);
}

#[test]
#[should_panic(expected = "its state has gone")]
fn loom_hand_over_without_a_wait_for_the_ring() {
    hand_over(false);
}
