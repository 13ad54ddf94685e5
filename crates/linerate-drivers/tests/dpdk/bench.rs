//! A port of ours, whose peer is another process that sends back what it gets and is killed at
//! times, and two neighbours whose stream must not notice any of it.

use crate::suite::{self, End};
use linerate_core::packet::Pools;
use linerate_core::port::{Link, RxQueue, SleepOn};
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::nap_on;
use linerate_drivers::Drivers;
use linerate_testkit::process::Running;
use linerate_testkit::{Random, Scratch};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// What a peer takes from its rings before it gives any of it back.
pub(crate) const BURST: u64 = 32;

pub(crate) struct Bench {
    queues: u16,
    /// Frames under way: as many as a ring has room for, so that testpmd, which drops what it
    /// cannot send, never has to.
    window: u64,
    pools: Pools,
    pub(crate) end: End,
    start: Box<dyn Fn() -> Option<Running>>,
    told: Option<&'static str>,
    neighbours: Neighbours,
}

impl Bench {
    /// `start` starts the peer; no peer skips the test.
    pub(crate) fn new(
        spec: &str,
        queues: u16,
        window: u64,
        start: impl Fn() -> Option<Running> + 'static,
    ) -> Self {
        let port = Drivers::new().open(spec).unwrap();
        let pools = suite::pools_for(&[&*port]);
        let mut end = End::new(port, &pools);
        end.start(0, queues, &pools);
        Self {
            queues,
            window,
            pools,
            end,
            start: Box::new(start),
            told: None,
            neighbours: Neighbours::new(),
        }
    }

    /// The peer is told this when the link is up.
    pub(crate) fn tell(mut self, told: &'static str) -> Self {
        self.told = Some(told);
        self
    }

    /// Starts the peer and waits for the link.
    pub(crate) fn peer(&mut self) -> Option<Running> {
        let mut peer = (self.start)()?;
        self.wait_link(true, &peer);
        if let Some(told) = self.told {
            peer.tell(told);
        }
        Some(peer)
    }

    /// `peer` is to be seen in what goes wrong.
    pub(crate) fn wait_link(&mut self, up: bool, peer: &Running) {
        let start = Instant::now();
        while (self.end.port.link() == Link::Up) != up {
            assert!(
                start.elapsed() < linerate_testkit::PATIENCE,
                "{:?}: {}{}",
                self.end.port.link(),
                peer.stdout.text(),
                peer.stderr.text()
            );
            self.neighbours.step();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends so many frames and waits until each is back, once, whole, and (in one queue) in order.
    pub(crate) fn exchange(&mut self, frames: u64, bytes: usize, peer: &Running) {
        // A jumbo frame takes several descriptors.
        let window = self.window / bytes.div_ceil(2048) as u64;
        let (mut sent, mut next, mut back) = (0, 0, HashSet::new());
        let (mut began, mut rest) = (Instant::now(), Rest::new());
        let count_of = |next: u64, back: &HashSet<u64>| next + back.len() as u64;
        while count_of(next, &back) < frames {
            let room = window - (sent - count_of(next, &back));
            let count = room.min(frames - sent).min(BURST) as usize;
            let mut taken = 0;
            if count > 0 {
                taken = self.end.send_burst(sent, count, bytes, &self.pools);
                sent += taken;
            }
            self.end.flush();
            let frames = self.end.receive();
            rest.after(!frames.is_empty() || taken > 0, &mut self.end.queues.rx);
            for (number, len) in frames {
                assert_eq!(len, bytes);
                assert!(
                    number == next || self.queues > 1,
                    "{number} where {next} was next"
                );
                assert!(number >= next && back.insert(number), "{number} came twice");
                began = Instant::now();
                // Only those that came before others are kept.
                while back.remove(&next) {
                    next += 1;
                }
            }
            self.neighbours.step();
            assert!(
                began.elapsed() < linerate_testkit::PATIENCE,
                "{} of {sent} came back, {:?}: {:?} {}{}",
                count_of(next, &back),
                self.end.port.link(),
                self.end.port.stats(),
                peer.stdout.text(),
                peer.stderr.text()
            );
        }
    }

    /// The peer is killed in the middle of traffic, several times. `false`: there is none.
    pub(crate) fn survives_kills(&mut self, kills: usize) -> bool {
        for kill in 0..kills {
            let Some(peer) = self.peer() else {
                return false;
            };
            self.exchange(2000, 60, &peer);
            // Some are under way when it dies.
            for number in 0..(kill as u64 * 37) % 300 {
                self.end.send(number, 60, &self.pools);
            }
            peer.signal(rustix::process::Signal::KILL);
            self.wait_link(false, &peer);
            while !self.end.receive().is_empty() {}
            suite::check_books(&self.pools, &[&self.end]);
        }
        true
    }

    /// The peer is killed again and again while frames go round: nothing comes twice or out of
    /// order, and at most so many frames are lost by each kill. ([`BURST`], where the next peer
    /// goes on with what was in the rings: what a peer had taken out of its ring when it was
    /// killed.)
    pub(crate) fn loses_at_most(&mut self, each: u64, kills: u64) {
        let seed = u64::from(std::process::id());
        eprintln!("seed {seed}");
        let mut random = Random::new(seed);
        let (mut sent, mut next, mut came) = (0, 0, 0);
        let mut turn = |bench: &mut Self, sending: bool| {
            // As many as the ring has entries, or those that were lost would hold it up.
            if sending && bench.end.port.link() == Link::Up {
                sent += bench.end.send_burst(sent, BURST as usize, 60, &bench.pools);
            }
            let frames = bench.end.receive();
            for &(number, _) in &frames {
                assert!(
                    number >= next,
                    "{number} came late or twice, {next} was next"
                );
                next = number + 1;
            }
            came += frames.len() as u64;
            bench.neighbours.step();
            frames.len()
        };
        for _ in 0..kills {
            let Some(peer) = self.peer() else { return };
            let (mut round, most) = (0, 500 + random.bits() % 20_000);
            let start = Instant::now();
            while round < most {
                round += turn(self, true) as u64;
                assert!(
                    start.elapsed() < linerate_testkit::PATIENCE,
                    "it stands still"
                );
            }
            // Nobody stops for it.
            peer.signal(rustix::process::Signal::KILL);
            let start = Instant::now();
            while self.end.port.link() == Link::Up {
                turn(self, true);
                assert!(
                    start.elapsed() < linerate_testkit::PATIENCE,
                    "the link stays up"
                );
            }
        }
        let Some(_peer) = self.peer() else { return };
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(500) {
            if turn(self, false) > 0 {
                last = Instant::now();
            }
        }
        let stats = self.end.port.stats();
        let dropped: u64 = stats.tx_drops.iter().map(|(_, count)| count).sum();
        let lost = self.end.taken - dropped - came;
        eprintln!(
            "{} sent, {dropped} while there was no peer, {lost} lost",
            self.end.taken
        );
        assert!(lost <= kills * each, "{lost} lost: {stats:?}");
    }

    /// Counters and books agree, and every slot is home.
    pub(crate) fn finish(mut self) {
        self.end.check_stats();
        suite::check_books(&self.pools, &[&self.end]);
        let stats = self.end.port.stats();
        // A peer that gets no CPU may not answer in time; then the port tries once more.
        let mut violations = stats.violations.iter();
        assert!(violations.all(|(name, _)| *name == "too_slow"), "{stats:?}");
        self.end.stop();
        drop(self.end);
        suite::check_home(&self.pools);
        self.neighbours.finish();
    }
}

/// Sleeps where nothing moves, until something comes: who only polled would take the peer's CPU,
/// where they share one.
pub(crate) struct Rest {
    bell: Doorbell,
    idle: u32,
}

impl Rest {
    pub(crate) fn new() -> Self {
        Self {
            bell: Doorbell::new().unwrap(),
            idle: 0,
        }
    }

    pub(crate) fn after(&mut self, moved: bool, queues: &mut [Box<dyn RxQueue>]) {
        self.idle = if moved { 0 } else { self.idle + 1 };
        if self.idle > 20 {
            let on: Vec<SleepOn> = queues.iter_mut().map(|queue| queue.sleep_on()).collect();
            // Not for long: it does not look once more, and not every peer notifies.
            let nap = Duration::from_millis(2);
            nap_on(&self.bell, &on, nap, nap);
        }
    }
}

/// Two ports that are joined to each other.
struct Neighbours {
    _folder: Scratch,
    pools: Pools,
    from: End,
    to: End,
    sent: u64,
    came: u64,
}

impl Neighbours {
    fn new() -> Self {
        let (folder, pools) = (Scratch::new(), suite::pools(false));
        let end = |kind: &str| {
            let spec = format!("{kind}:{}", folder.file("n"));
            let mut end = End::new(Drivers::new().open(&spec).unwrap(), &pools);
            end.start(1, 1, &pools);
            end
        };
        let (from, to) = (end("vhost"), end("virtio_user"));
        let up = || from.port.link() == Link::Up && to.port.link() == Link::Up;
        linerate_testkit::wait("two neighbours", up);
        Self {
            _folder: folder,
            pools,
            from,
            to,
            sent: 0,
            came: 0,
        }
    }

    /// One burst on its way, at most 100 frames before they come: each does, in order.
    fn step(&mut self) {
        if self.sent < self.came + 100 {
            self.sent += self.from.send_burst(self.sent, 4, 60, &self.pools);
        }
        for (number, _) in self.to.receive() {
            assert_eq!(number, self.came, "of the neighbours' frames");
            self.came += 1;
        }
    }

    fn finish(mut self) {
        linerate_testkit::wait("the neighbours' last frames", || {
            for (number, _) in self.to.receive() {
                assert_eq!(number, self.came, "of the neighbours' frames");
                self.came += 1;
            }
            self.came == self.sent
        });
        for end in [&mut self.from, &mut self.to] {
            end.check_stats();
            let stats = end.port.stats();
            assert!(
                stats.violations.is_empty() && stats.tx_drops.is_empty(),
                "{stats:?}"
            );
            end.stop();
        }
        drop((self.from, self.to));
        suite::check_home(&self.pools);
    }
}
