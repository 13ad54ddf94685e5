//! Numbered datagrams from one host to another, one a millisecond, to find lost ones.

use linerate_testkit::netns::Namespace;
use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the last datagrams may be under way.
const LATE: Duration = Duration::from_secs(5);

/// Datagrams under way.
pub(super) struct Stream {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU32>,
    received: Arc<AtomicU32>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<HashSet<u32>>,
}

impl Stream {
    /// Begins to send between these addresses.
    pub(super) fn start(from: (&Namespace, &str), to: (&Namespace, &str)) -> Self {
        let bind = |(namespace, address): (&Namespace, &str)| {
            namespace.inside(|| UdpSocket::bind((address, 0)).unwrap())
        };
        let (source, sink) = (bind(from), bind(to));
        source.connect(sink.local_addr().unwrap()).unwrap();
        sink.set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let (stop, sent, received) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicU32::new(0)),
        );
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&sent));
        let sender = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let number = counted.load(Ordering::Relaxed);
                // An error is an ICMP message about an earlier one.
                if source.send(&number.to_be_bytes()).is_ok() {
                    counted.store(number + 1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let (stopped, of, counted) = (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(&received));
        let receiver = std::thread::spawn(move || {
            let (mut seen, mut bytes, mut last) = (HashSet::new(), [0; 4], Instant::now());
            let complete = |seen: &HashSet<u32>| seen.len() as u32 == of.load(Ordering::Relaxed);
            loop {
                if sink.recv(&mut bytes).is_ok_and(|len| len == 4) {
                    seen.insert(u32::from_be_bytes(bytes));
                    last = Instant::now();
                    counted.store(seen.len() as u32, Ordering::Relaxed);
                }
                if stopped.load(Ordering::Relaxed) && (complete(&seen) || last.elapsed() > LATE) {
                    return seen;
                }
            }
        });
        Self {
            stop,
            sent,
            received,
            sender,
            receiver,
        }
    }

    /// Waits until so many more have arrived.
    #[track_caller]
    pub(super) fn flows(&self, count: u32) {
        let goal = self.received.load(Ordering::Relaxed) + count;
        linerate_testkit::wait("the stream to flow", || {
            self.received.load(Ordering::Relaxed) >= goal
        });
    }

    /// Ends it, and returns how many were sent, and which of them did not arrive.
    pub(super) fn end(self) -> (u32, Vec<u32>) {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap();
        let seen = self.receiver.join().unwrap();
        let sent = self.sent.load(Ordering::Relaxed);
        let lost = (0..sent).filter(|number| !seen.contains(number));
        (sent, lost.collect())
    }
}
