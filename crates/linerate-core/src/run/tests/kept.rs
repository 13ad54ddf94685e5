//! Queues that keep packets for a time: they come out when they are due, of a worker that sleeps
//! and of one that is busy with others.

use super::*;
use crate::packet::Pools;
use crate::port::{Faulty, Link, Port, PortConfig, PortError, PortInfo, PortStats, Queues};
use std::sync::atomic::{AtomicU64, Ordering};

/// A port of queues that somebody made.
struct Given(Queues);

impl Port for Given {
    fn info(&self) -> PortInfo {
        unreachable!("nobody asks")
    }

    fn start(&mut self, _: &PortConfig, _: &Pools) -> Result<Queues, PortError> {
        Ok(std::mem::take(&mut self.0))
    }

    fn link(&self) -> Link {
        Link::Up
    }

    fn stats(&self) -> PortStats {
        PortStats::default()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}

/// The queues behind a wire with faults; time as `now_ns` says, else real.
fn behind(faults: &str, queues: Queues, pool: &Pool, now_ns: Option<Arc<AtomicU64>>) -> Queues {
    let (port, faults) = (Box::new(Given(queues)), faults.parse().unwrap());
    let mut port = match now_ns {
        None => Faulty::new(port, faults),
        Some(now_ns) => {
            let now_ns = move || now_ns.load(Ordering::Relaxed);
            Faulty::timed_by(port, faults, Arc::new(now_ns))
        }
    };
    let pools = Pools::new(vec![pool.clone()]);
    port.start(&PortConfig::default(), &pools).unwrap()
}

/// Nothing but the time can wake it: it may sleep for an hour, and each packet is delayed twice.
#[test]
fn an_lcore_that_sleeps_wakes_when_a_kept_packet_is_due() {
    let pool = pool(64);
    let (mut source, bell, rx, tx, mut sink) = rings();
    let queues = Queues {
        rx: vec![Box::new(rx)],
        tx: vec![Box::new(tx)],
    };
    let mut queues = behind("delay:15ms", queues, &pool, None);
    let (mut worker, handle) = worker("kept", forward(0));
    worker.set_idle(Idle {
        polls: 1,
        pauses: 1,
        nap: Duration::from_secs(3600),
        blind_nap: Duration::from_secs(3600),
        ..Idle::default()
    });
    worker.add_inlet(Inlet::queue(0, 0, queues.rx.remove(0)));
    worker.set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
    let thread = std::thread::spawn(move || drop(worker.run(false)));
    for number in 0..3 {
        let start = Instant::now();
        feed(&pool, &mut source, &bell, number..number + 1);
        while sink.pop().is_none() {
            assert!(start.elapsed() < Duration::from_secs(20), "it sleeps on");
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(start.elapsed() >= Duration::from_millis(30), "too early");
    }
    handle.stop();
    thread.join().unwrap();
}

#[test]
fn a_busy_worker_sends_what_is_due_of_a_queue_that_gets_nothing_new() {
    let pool = pool(64);
    let (mut source, bell, rx, tx, mut sink) = rings();
    let (_, _, _, other, mut busy) = rings();
    let now_ns = Arc::new(AtomicU64::new(0));
    let queues = Queues {
        rx: vec![],
        tx: vec![Box::new(tx)],
    };
    let mut queues = behind("delay:20ms", queues, &pool, Some(now_ns.clone()));
    let stage = |burst: &mut Burst, out: &mut Egress| {
        let first = burst.iter().next();
        let port = first.map_or(1, |packet| u16::from(packet.user::<u64>() > 0));
        out.send(port, burst);
    };
    let (mut worker, _handle) = worker("busy", stage);
    worker.add_inlet(Inlet::queue(0, 0, Box::new(rx)));
    worker.set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
    worker.set_outlet(1, Some(TxPath::Queue(Box::new(other))));
    for number in 0..50 {
        feed(&pool, &mut source, &bell, number..number + 1);
        assert_eq!(worker.round(), 1);
        assert!(sink.pop().is_none(), "in round {number}, too early");
    }
    let left = Duration::from_millis(20);
    assert_eq!(worker.egress.due_in(), Some(left));
    now_ns.store(20_000_000, Ordering::Relaxed);
    feed(&pool, &mut source, &bell, 50..51);
    assert_eq!(worker.round(), 1);
    assert!(sink.pop().is_some(), "due");
    assert_eq!(worker.egress.due_in(), None);
    while busy.pop().is_some() {}
}

#[test]
fn a_source_that_has_ended_ends_when_its_last_packet_is_off_the_wire() {
    let pool = pool(64);
    let (mut source, bell, rx, tx, mut sink) = rings();
    let queues = Queues {
        rx: vec![Box::new(rx)],
        tx: vec![],
    };
    let mut queues = behind("delay:15ms", queues, &pool, None);
    let (mut worker, _handle) = worker("ends", forward(0));
    worker.add_inlet(Inlet::queue(0, 0, queues.rx.remove(0)));
    worker.set_outlet(0, Some(TxPath::Queue(Box::new(tx))));
    feed(&pool, &mut source, &bell, 0..10);
    drop(source);
    let worker = worker.run(true);
    assert!(worker.is_ended());
    assert_eq!(std::iter::from_fn(|| sink.pop()).count(), 10);
}
