//! What every driver must do, checked over two ports joined by a wire, or over one port alone.
//!
//! A driver's author writes one [`Wire`] (or calls [`alone`]) in a file beside this one. All
//! frames carry the ethertype for local experiments, a number and a pattern; whatever else arrives
//! (kernels like to talk) is counted and freed. One thread plays both ends, so nothing here
//! depends on speed: it waits for what must come, up to [`PATIENCE`].

use linerate_core::packet::{Burst, Layout, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{
    Link, Port, PortConfig, PortError, PortInfo, PortStats, Queues, SleepOn,
};
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::ledger::{Account, Balance};
use linerate_core::run::nap_on;
use std::any::Any;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Two ports, joined.
pub(crate) struct Pair {
    pub(crate) a: Box<dyn Port>,
    pub(crate) b: Box<dyn Port>,
    /// What keeps the wire there: dropped last.
    pub(crate) guard: Box<dyn Any>,
}

/// A driver's wire, and what may be expected of it.
pub(crate) struct Wire {
    /// For messages.
    pub(crate) name: &'static str,
    /// Makes a fresh one, or says why it cannot be had here (then the checks are skipped).
    pub(crate) open: Box<dyn Fn() -> Result<Pair, String>>,
    /// Frames that may be under way without any being lost.
    pub(crate) window: u64,
    /// Whether the link of `a` goes down when `b` stops.
    pub(crate) notices_peer: bool,
    /// Queues each way to start; with more than one only the order within a queue is kept.
    pub(crate) queues: u16,
}

impl Wire {
    /// A wire that loses nothing and notices its peer, with one queue.
    pub(crate) fn new(
        name: &'static str,
        open: impl Fn() -> Result<Pair, String> + 'static,
    ) -> Self {
        Self {
            name,
            open: Box::new(open),
            window: 256,
            notices_peer: true,
            queues: 1,
        }
    }

    /// Runs every check.
    pub(crate) fn conforms(&self) {
        type Check = fn(&mut Fixture);
        let checks: [(&str, Check); 7] = [
            ("order is kept", keeps_order),
            ("a frame wakes a receiver that sleeps", wakes),
            ("partial transmit leaves the rest", leaves_the_rest),
            (
                "the longest frame passes, a longer one is never cut",
                mtu_edge,
            ),
            ("stop and restart", restarts),
            ("the peer vanishes and returns", peer_returns),
            ("queues move to threads", works_across_threads),
        ];
        for (what, check) in checks {
            eprintln!("{}: {what}", self.name);
            let pair = match (self.open)() {
                Ok(pair) => pair,
                Err(reason) => {
                    linerate_testkit::skip(&format!("{}: {reason}", self.name));
                    return;
                }
            };
            let mut fixture = Fixture::new(self, pair);
            check(&mut fixture);
            fixture.finish();
        }
    }
}

/// Checks of a port that needs no other: it starts, sends, receives, stops, leaks nothing.
pub(crate) fn alone(open: &dyn Fn() -> Box<dyn Port>) {
    let port = open();
    let pools = pools_for(&[&*port]);
    let mut end = End::new(port, &pools);
    for round in 1..=3 {
        end.start(0, 1, &pools);
        for number in 0..100 {
            end.send(number, 60, &pools);
        }
        end.receive();
        end.stop();
        assert!(
            end.received > 0 || end.taken == 100 * round,
            "does neither send nor receive"
        );
    }
    end.check_stats();
    drop(end);
    check_home(&pools);
}

/// One port in the hands of the suite.
pub(crate) struct End {
    pub(crate) port: Box<dyn Port>,
    pub(crate) queues: Queues,
    cache: PoolCache,
    /// Packets and bytes that `tx_burst` took.
    pub(crate) taken: u64,
    taken_bytes: u64,
    /// Packets and bytes that `rx_burst` gave.
    pub(crate) received: u64,
    received_bytes: u64,
}

impl End {
    pub(crate) fn new(port: Box<dyn Port>, pools: &Pools) -> Self {
        let cache = PoolCache::new(pools.as_slice());
        let queues = Queues::default();
        Self {
            port,
            queues,
            cache,
            taken: 0,
            taken_bytes: 0,
            received: 0,
            received_bytes: 0,
        }
    }

    pub(crate) fn start(&mut self, index: u16, queues: u16, pools: &Pools) {
        let config = PortConfig {
            index,
            rx_queues: queues,
            tx_queues: queues,
        };
        self.queues = self
            .port
            .start(&config, pools)
            .expect("a port that opens starts");
        assert_eq!(self.queues.rx.len(), usize::from(queues));
        assert_eq!(self.queues.tx.len(), usize::from(queues));
    }

    pub(crate) fn stop(&mut self) {
        self.stop_with_result().expect("stops");
    }

    pub(crate) fn stop_with_result(&mut self) -> Result<(), PortError> {
        self.queues = Queues::default();
        self.port.stop()
    }

    /// The port, without its queues: ready to be stopped.
    pub(crate) fn into_port(self) -> Box<dyn Port> {
        self.port
    }

    /// Offers one frame; whether it was taken.
    pub(crate) fn send(&mut self, number: u64, bytes: usize, pools: &Pools) -> bool {
        self.send_burst(number, 1, bytes, pools) == 1
    }

    /// Offers `count` frames of the numbers from `first` on; returns how many were taken.
    pub(crate) fn send_burst(
        &mut self,
        first: u64,
        count: usize,
        bytes: usize,
        pools: &Pools,
    ) -> u64 {
        let pool = pools.for_frame(bytes).expect("a pool for the frame");
        let mut burst = Burst::new();
        let count = self.cache.fill(pool, &mut burst, count);
        for (number, packet) in (first..).zip(burst.iter_mut()) {
            assert!(packet.set_data(&frame(number, bytes)));
        }
        let queue = first as usize % self.queues.tx.len();
        let taken = self.queues.tx[queue].tx_burst(&mut burst, &mut self.cache);
        assert_eq!(burst.len(), count - taken, "what was not taken stays");
        for (number, packet) in (first + taken as u64..).zip(burst.iter()) {
            assert_eq!(number_of(packet.data()), Some(number), "in its order");
        }
        self.cache.free(&mut burst);
        self.taken += taken as u64;
        self.taken_bytes += (taken * bytes) as u64;
        taken as u64
    }

    pub(crate) fn flush(&mut self) {
        for queue in &mut self.queues.tx {
            queue.flush(&mut self.cache);
        }
    }

    /// The numbers and lengths of the frames that wait, over all queues.
    pub(crate) fn receive(&mut self) -> Vec<(u64, usize)> {
        let mut found = Vec::new();
        let mut burst = Burst::with_room(32);
        for queue in &mut self.queues.rx {
            let count = queue.rx_burst(&mut burst, &mut self.cache);
            assert_eq!(burst.len(), count, "as many as it says");
            self.received += count as u64;
            self.received_bytes += burst.bytes();
            let frames = burst.iter().map(|packet| packet.data());
            found.extend(
                frames.filter_map(|data| number_of(data).map(|number| (number, data.len()))),
            );
            self.cache.free(&mut burst);
        }
        found
    }

    /// What this end has of the pools' slots.
    fn accounts(&self) -> Vec<Account> {
        let Self { queues, cache, .. } = self;
        let rx = queues.rx.iter().map(|queue| queue.held());
        let held = rx.chain(queues.tx.iter().map(|queue| queue.held()));
        let queues = held.map(|held| Account::holds("queue".into(), held));
        let cache = Account::cache("cache".into(), cache);
        queues.chain([cache]).collect()
    }

    /// The port counts what passed here.
    pub(crate) fn check_stats(&mut self) {
        self.flush();
        let stats = self.port.stats();
        let dropped: u64 = stats.tx_drops.iter().map(|(_, count)| count).sum();
        assert_eq!(
            stats.tx_packets + dropped,
            self.taken,
            "sent and dropped make what was taken: {stats:?}"
        );
        if dropped == 0 {
            assert_eq!(stats.tx_bytes, self.taken_bytes);
        }
        assert_eq!(
            (stats.rx_packets, stats.rx_bytes),
            (self.received, self.received_bytes)
        );
    }
}

/// Two started ends.
pub(crate) struct Fixture<'a> {
    wire: &'a Wire,
    pub(crate) pools: Pools,
    pub(crate) a: End,
    pub(crate) b: End,
    guard: Box<dyn Any>,
}

impl<'a> Fixture<'a> {
    fn new(wire: &'a Wire, pair: Pair) -> Self {
        let pools = pools_for(&[&*pair.a, &*pair.b]);
        let (a, b) = (End::new(pair.a, &pools), End::new(pair.b, &pools));
        let mut fixture = Self {
            wire,
            pools,
            a,
            b,
            guard: pair.guard,
        };
        fixture.a.start(0, wire.queues, &fixture.pools);
        fixture.b.start(1, wire.queues, &fixture.pools);
        fixture.wait_up();
        fixture
    }

    fn wait_up(&mut self) {
        let up = |fixture: &mut Self| {
            fixture.a.port.link() == Link::Up && fixture.b.port.link() == Link::Up
        };
        self.wait(up, |fixture| {
            format!(
                "links: {:?}, {:?}",
                fixture.a.port.link(),
                fixture.b.port.link()
            )
        });
    }

    /// Waits until something holds.
    fn wait(&mut self, mut done: impl FnMut(&mut Self) -> bool, state: impl Fn(&Self) -> String) {
        let start = Instant::now();
        while !done(self) {
            assert!(
                start.elapsed() < PATIENCE,
                "{}: waited in vain; {}",
                self.wire.name,
                state(self)
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Sends the numbers `from..to` from `a` to `b` and checks that all come; in order, for one
    /// queue.
    fn exchange(&mut self, from: u64, to: u64, bytes: usize) {
        let (mut sent, mut got) = (from, Vec::new());
        self.wait(
            |fixture| {
                while sent < to && sent - from - (got.len() as u64) < fixture.wire.window {
                    let room = fixture.wire.window - (sent - from - got.len() as u64);
                    let count = (to - sent).min(room).min(1 + sent % 33) as usize;
                    let taken = fixture.a.send_burst(sent, count, bytes, &fixture.pools);
                    sent += taken;
                    if taken == 0 {
                        break;
                    }
                }
                fixture.a.flush();
                // Late ones of an earlier check are not this one's.
                let arrived = fixture.b.receive().into_iter();
                got.extend(arrived.filter(|(number, _)| (from..to).contains(number)));
                got.len() as u64 >= to - from
            },
            |fixture| format!("{:?}, {:?}", fixture.a.port.stats(), fixture.b.port.stats()),
        );
        if self.wire.queues > 1 {
            got.sort_unstable();
        }
        let numbers = got.iter().map(|&(number, _)| number);
        assert!(
            numbers.eq(from..to),
            "{}: each once and in order",
            self.wire.name
        );
        assert!(
            got.iter().all(|&(_, len)| len == bytes),
            "{}: as long as sent",
            self.wire.name
        );
    }

    /// Stops both, checks the counters, and that every slot came home.
    fn finish(mut self) {
        self.a.check_stats();
        self.b.check_stats();
        check_books(&self.pools, &[&self.a, &self.b]);
        self.a.stop();
        self.b.stop();
        let Self {
            pools, a, b, guard, ..
        } = self;
        drop((a, b, guard));
        check_home(&pools);
    }
}

/// As a worker sleeps: it says so, looks once more, and waits.
fn wakes(fixture: &mut Fixture) {
    let bell = Doorbell::new().expect("an eventfd");
    for number in 0..20 {
        let start = Instant::now();
        let mut sent = false;
        loop {
            let queues = fixture.b.queues.rx.iter_mut();
            let on: Vec<SleepOn> = queues.map(|queue| queue.sleep_on()).collect();
            for on in &on {
                match on {
                    SleepOn::Doorbell(bell) => bell.prepare_sleep(),
                    SleepOn::Nothing if !sent => return, // it can only be polled
                    _ => {}
                }
            }
            let came = fixture.b.receive();
            if came.iter().any(|&(found, _)| found == number) {
                break;
            }
            if !sent {
                let taken = fixture.a.send(number, 60, &fixture.pools);
                assert!(taken, "{}: a frame is taken", fixture.wire.name);
                fixture.a.flush();
                // In each round, as a worker does: some hold frames back for a time.
                std::thread::sleep(Duration::from_millis(1));
                fixture.a.flush();
                sent = true;
            }
            let due_in = fixture
                .b
                .queues
                .rx
                .iter()
                .filter_map(|queue| queue.due_in());
            let nap = due_in.min().unwrap_or(PATIENCE);
            nap_on(&bell, &on, nap, Duration::from_millis(1));
            // What else arrived may have been the reason.
            assert!(
                start.elapsed() < PATIENCE,
                "{}: nothing woke it",
                fixture.wire.name
            );
        }
    }
}

fn keeps_order(fixture: &mut Fixture) {
    fixture.exchange(0, 2000, 60);
    fixture.exchange(2000, 2500, 1514.min(fixture.a.port.info().max_frame_bytes));
}

/// `send_burst` checks each call; here the receiver waits until the sender has offered plenty.
fn leaves_the_rest(fixture: &mut Fixture) {
    let mut sent = 0;
    for _ in 0..100 {
        sent += fixture.a.send_burst(sent, 64, 60, &fixture.pools);
        fixture.a.flush();
    }
    // Where nothing may be lost all must come; else it ends when nothing has come for a while.
    let lossless = fixture.wire.window == u64::MAX || sent <= fixture.wire.window;
    let (mut next, mut quiet) = (0, Instant::now());
    let patience = if lossless {
        PATIENCE
    } else {
        Duration::from_millis(50)
    };
    while quiet.elapsed() < patience {
        for (number, _) in fixture.b.receive() {
            let several = fixture.wire.queues > 1;
            assert!(number >= next || several, "in order, gaps allowed");
            next = next.max(number + 1);
            quiet = Instant::now();
        }
        if lossless && next == sent {
            break;
        }
        fixture.a.flush();
    }
    assert!(next > 0 && next <= sent && (!lossless || next == sent));
    fixture.exchange(10_000, 10_100, 60);
}

fn mtu_edge(fixture: &mut Fixture) {
    let longest = fixture.a.port.info().max_frame_bytes;
    assert!(longest >= 1514, "an Ethernet frame at least");
    fixture.exchange(0, 3, longest);
    if fixture.pools.for_frame(longest + 1).is_none() {
        return; // longer ones cannot even be built
    }
    let before = dropped_on_tx(&fixture.a.port.stats());
    assert!(
        fixture.a.send(3, longest + 1, &fixture.pools),
        "taken, or it would block those behind it"
    );
    let passed_or_counted = |fixture: &mut Fixture| {
        fixture.a.flush();
        let whole = fixture.b.receive() == [(3, longest + 1)]; // a port without a limit of its own
        whole || dropped_on_tx(&fixture.a.port.stats()) == before + 1
    };
    fixture.wait(passed_or_counted, |fixture| {
        format!("{:?}", fixture.a.port.stats())
    });
    fixture.exchange(4, 7, longest);
}

fn dropped_on_tx(stats: &PortStats) -> u64 {
    stats.tx_drops.iter().map(|(_, count)| count).sum()
}

fn restarts(fixture: &mut Fixture) {
    for round in 0..3 {
        fixture.exchange(round * 100, round * 100 + 50, 60);
        fixture.a.stop();
        fixture.b.stop();
        fixture.b.start(1, fixture.wire.queues, &fixture.pools);
        fixture.a.start(0, fixture.wire.queues, &fixture.pools);
        fixture.wait_up();
    }
    fixture.exchange(1000, 1050, 60);
}

fn peer_returns(fixture: &mut Fixture) {
    fixture.exchange(0, 50, 60);
    fixture.b.stop();
    if fixture.wire.notices_peer {
        let down = |fixture: &mut Fixture| {
            matches!(fixture.a.port.link(),
            Link::Down(reason) if !reason.is_empty())
        };
        fixture.wait(down, |fixture| format!("link: {:?}", fixture.a.port.link()));
    }
    // Without a receiver nothing blocks and nothing leaks.
    for number in 0..200 {
        fixture.a.send(50 + number, 60, &fixture.pools);
        fixture.a.flush();
        fixture.a.receive();
    }
    fixture.b.start(1, fixture.wire.queues, &fixture.pools);
    fixture.wait_up();
    // Late ones of those may still come.
    std::thread::sleep(Duration::from_millis(20));
    while !fixture.b.receive().is_empty() {}
    fixture.exchange(1000, 1100, 60);
}

fn works_across_threads(fixture: &mut Fixture) {
    let (window, pools) = (fixture.wire.window, fixture.pools.clone());
    // Where one at a time is under way, each waits for the other thread to have its turn.
    let count = if window < 32 { 300 } else { 3000 };
    let got = std::sync::atomic::AtomicU64::new(0);
    let (a, b, got) = (&mut fixture.a, &mut fixture.b, &got);
    // A port stays with its owner; its queues go.
    let mut sender = Away::new(a, &pools);
    let mut receiver = Away::new(b, &pools);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            while sent < count && start.elapsed() < linerate_testkit::PATIENCE {
                let under_way = sent - got.load(std::sync::atomic::Ordering::Relaxed);
                if under_way < window {
                    sent += sender.send(
                        sent,
                        (count - sent).min(window - under_way).min(32) as usize,
                        &pools,
                    );
                } else {
                    // A port may keep packets until they are due, as one with a delay.
                    sender.send(0, 0, &pools);
                    std::thread::yield_now();
                }
            }
            while got.load(std::sync::atomic::Ordering::Relaxed) < count
                && start.elapsed() < linerate_testkit::PATIENCE
            {
                sender.send(0, 0, &pools);
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut next = 0;
            while next < count && start.elapsed() < linerate_testkit::PATIENCE {
                let numbers = receiver.receive();
                if numbers.is_empty() {
                    std::thread::yield_now();
                }
                for number in numbers {
                    assert_eq!(number, next);
                    next += 1;
                }
                got.store(next, std::sync::atomic::Ordering::Relaxed);
            }
        });
    });
    assert_eq!(got.load(std::sync::atomic::Ordering::Relaxed), count);
    sender.home(a);
    receiver.home(b);
}

/// The first queues of an end on their way through a thread, with that thread's own cache.
struct Away {
    queues: Queues,
    cache: PoolCache,
    taken: u64,
    received: u64,
    received_bytes: u64,
}

impl Away {
    fn new(end: &mut End, pools: &Pools) -> Self {
        let queues = std::mem::take(&mut end.queues);
        Self {
            queues,
            cache: PoolCache::new(pools.as_slice()),
            taken: 0,
            received: 0,
            received_bytes: 0,
        }
    }

    fn send(&mut self, first: u64, count: usize, pools: &Pools) -> u64 {
        let mut burst = Burst::new();
        self.cache.fill(pools.primary(), &mut burst, count);
        for (number, packet) in (first..).zip(burst.iter_mut()) {
            assert!(packet.set_data(&frame(number, 60)));
        }
        let taken = self.queues.tx[0].tx_burst(&mut burst, &mut self.cache) as u64;
        self.queues.tx[0].flush(&mut self.cache);
        self.cache.free(&mut burst);
        self.taken += taken;
        taken
    }

    fn receive(&mut self) -> Vec<u64> {
        let mut burst = Burst::new();
        let mut numbers = Vec::new();
        for queue in &mut self.queues.rx {
            queue.rx_burst(&mut burst, &mut self.cache);
            numbers.extend(burst.iter().filter_map(|packet| number_of(packet.data())));
            self.received += burst.len() as u64;
            self.received_bytes += burst.bytes();
            self.cache.free(&mut burst);
        }
        numbers
    }

    fn home(self, end: &mut End) {
        end.queues = self.queues;
        end.taken += self.taken;
        end.taken_bytes += self.taken * 60;
        end.received += self.received;
        end.received_bytes += self.received_bytes;
    }
}

/// A pool of small slots, and one of large ones for jumbo frames.
pub(crate) fn pools(aligned: bool) -> Pools {
    pools_of(aligned, false)
}

/// The same as these ports need them.
pub(crate) fn pools_for(ports: &[&dyn Port]) -> Pools {
    let any = |needs: fn(&PortInfo) -> bool| ports.iter().any(|port| needs(&port.info()));
    pools_of(any(|info| info.aligned_pool), any(|info| info.exposed_pool))
}

fn pools_of(aligned: bool, exposed: bool) -> Pools {
    let layout = if aligned {
        Layout::Aligned
    } else {
        Layout::Staggered
    };
    let small = PoolConfig {
        layout,
        exposed,
        ..PoolConfig::new("small", 16_384)
    };
    let large = PoolConfig {
        class: SlotClass::Large,
        exposed,
        ..PoolConfig::new("large", 256)
    };
    Pools::new(
        [small, large]
            .map(|config| Pool::new(&config).unwrap())
            .into(),
    )
}

/// Every slot has a holder, whatever peers have or had.
pub(crate) fn check_books(pools: &Pools, ends: &[&End]) {
    let books = Balance::take(pools.as_slice(), || {
        ends.iter().flat_map(|end| end.accounts()).collect()
    });
    assert!(books.missing == 0 && books.exact, "{books}");
}

/// Every slot of every pool is back, now that ports and caches are gone.
pub(crate) fn check_home(pools: &Pools) {
    for pool in pools.iter() {
        let stats = pool.stats();
        assert_eq!(
            stats.free_shared,
            stats.slots,
            "slots of `{}` leaked",
            pool.name()
        );
    }
}

const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x88, 0xb5];

/// A frame with a number and a pattern that follows from it.
pub(crate) fn frame(number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = HEADER.to_vec();
    frame.extend(number.to_be_bytes());
    frame.extend(
        (0..)
            .map(|at: u64| (number.wrapping_mul(31) + at) as u8)
            .take(bytes - frame.len()),
    );
    frame
}

/// The number of a frame of the suite; `None` for any other frame.
pub(crate) fn number_of(data: &[u8]) -> Option<u64> {
    if data.len() < 22 || data[12..14] != HEADER[12..] {
        return None;
    }
    let number = u64::from_be_bytes(data[14..22].try_into().unwrap());
    assert!(
        data == frame(number, data.len()),
        "frame {number} of {} bytes arrived damaged",
        data.len()
    );
    Some(number)
}
