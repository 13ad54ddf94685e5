//! shm: two processes, of which one is killed at random moments, is a program in C, or lies.
//!
//! The other process is this program again, asked for one of the tests that are marked so.
#![allow(missing_docs, clippy::unwrap_used)]

use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Link, Port, PortConfig, Queues};
use linerate_drivers::Drivers;
use linerate_testkit::Random;
use linerate_testkit::Scratch;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// Names the file to the other process, and that it is one.
const FILE: &str = "LINERATE_TEST_SHM";

/// A process that ends with the value: killed in the middle of whatever it does.
struct Process(Child);

impl Process {
    /// This program again, at the test of that name.
    fn of(test: &str, path: &Path) -> Self {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args([test, "--exact", "--include-ignored", "--nocapture"]);
        Self::start(program.env(FILE, path))
    }

    fn start(program: &mut Command) -> Self {
        // It reads from us, and so notices when we are gone.
        let program = program.stdin(Stdio::piped()).stdout(Stdio::null());
        Self(program.spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// For the other process: the file's path; `None` if it is not one. It ends with its parent.
fn file_of_other() -> Option<String> {
    let path = std::env::var(FILE).ok()?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    Some(path)
}

/// A started port in this thread's hands, and its books.
struct End {
    port: Box<dyn Port>,
    queues: Queues,
    cache: PoolCache,
    pool: Pool,
    taken: u64,
    received: u64,
    /// Frames that may be under way, there and back.
    window: u64,
}

const FRAME_BYTES: usize = 60;

fn frame(number: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [number as u8; FRAME_BYTES];
    frame[14..22].copy_from_slice(&number.to_be_bytes());
    frame
}

impl End {
    fn open(spec: &str, queues: u16) -> Self {
        let pools = Pools::new(vec![Pool::new(&PoolConfig::new("test", 8192)).unwrap()]);
        let mut port = Drivers::new().open(spec).unwrap();
        let config = PortConfig {
            rx_queues: queues,
            tx_queues: queues,
            ..PortConfig::default()
        };
        Self {
            queues: port.start(&config, &pools).unwrap(),
            port,
            cache: PoolCache::new(pools.as_slice()),
            pool: pools.primary().clone(),
            taken: 0,
            received: 0,
            window: 512,
        }
    }

    /// Offers the frames of these numbers; how many were taken.
    fn send(&mut self, queue: usize, numbers: std::ops::Range<u64>) -> u64 {
        let mut burst = Burst::new();
        self.cache.fill(
            &self.pool,
            &mut burst,
            (numbers.end - numbers.start) as usize,
        );
        for (number, packet) in numbers.zip(burst.iter_mut()) {
            assert!(packet.set_data(&frame(number)));
        }
        let taken = self.queues.tx[queue].tx_burst(&mut burst, &mut self.cache) as u64;
        self.cache.free(&mut burst);
        self.taken += taken;
        taken
    }

    /// The numbers of what waits.
    fn receive(&mut self, queue: usize) -> Vec<u64> {
        let mut burst = Burst::new();
        self.queues.rx[queue].rx_burst(&mut burst, &mut self.cache);
        self.received += burst.len() as u64;
        let number = |packet: &Packet| {
            let number = u64::from_be_bytes(packet.data()[14..22].try_into().unwrap());
            assert_eq!(packet.data(), frame(number), "damaged on its way");
            number
        };
        let numbers = burst.iter().map(number).collect();
        self.cache.free(&mut burst);
        numbers
    }

    /// Sends back what comes, for ever.
    fn echo(mut self) -> ! {
        let mut burst = Burst::new();
        loop {
            for (rx, tx) in self.queues.rx.iter_mut().zip(&mut self.queues.tx) {
                if rx.rx_burst(&mut burst, &mut self.cache) == 0 {
                    std::thread::yield_now();
                }
                while !burst.is_empty() && self.port.link() == Link::Up {
                    tx.tx_burst(&mut burst, &mut self.cache);
                }
                self.cache.free(&mut burst);
                tx.flush(&mut self.cache);
            }
        }
    }

    fn wait_up(&self) {
        let start = Instant::now();
        while self.port.link() != Link::Up {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.port.link());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Every frame of these numbers comes back once and in order, on one queue.
    fn exchange(&mut self, queue: usize, numbers: std::ops::Range<u64>) {
        let (mut sent, mut next) = (numbers.start, numbers.start);
        let mut moved = Instant::now();
        while next < numbers.end {
            let end = (sent + 32).min(numbers.end).min(next + self.window);
            sent += self.send(queue, sent..end);
            for number in self.receive(queue) {
                assert_eq!(number, next, "once, and in order");
                (next, moved) = (next + 1, Instant::now());
            }
            if sent == numbers.end || sent - next >= self.window {
                std::thread::yield_now();
            }
            let (port, late) = (&self.port, moved.elapsed() > PATIENCE);
            assert!(
                !late,
                "{next} of {numbers:?}: {:?} {:?}",
                port.link(),
                port.stats()
            );
        }
    }

    /// Receives whatever it is, until nothing has come for a while.
    fn drain_any(&mut self) {
        let (mut burst, mut quiet) = (Burst::new(), Instant::now());
        while quiet.elapsed() < Duration::from_millis(500) {
            if self.queues.rx[0].rx_burst(&mut burst, &mut self.cache) > 0 {
                quiet = Instant::now();
            }
            self.received += burst.len() as u64;
            self.cache.free(&mut burst);
            self.queues.tx[0].flush(&mut self.cache);
            std::thread::yield_now();
        }
    }

    /// Nothing is under way any more.
    fn drain(&mut self, queue: usize) {
        let mut quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(300) {
            if !self.receive(queue).is_empty() {
                quiet = Instant::now();
            }
            std::thread::yield_now();
        }
    }

    /// Every slot is somewhere, and every frame was counted.
    fn check_books(&self) {
        let stats = self.port.stats();
        let dropped: u64 = stats.tx_drops.iter().map(|(_, count)| count).sum();
        assert_eq!(stats.tx_packets + dropped, self.taken, "{stats:?}");
        assert_eq!(stats.rx_packets, self.received, "{stats:?}");
        let rx: i64 = self.queues.rx.iter().map(|queue| queue.held()).sum();
        let tx: i64 = self.queues.tx.iter().map(|queue| queue.held()).sum();
        let slots = self.pool.stats();
        let free = slots.free_shared as i64 + self.cache.held_total() as i64;
        assert_eq!(free + rx + tx, slots.slots as i64);
    }
}

fn server(folder: &Scratch, options: &str, queues: u16) -> End {
    let path = folder.path().join("ring");
    End::open(
        &format!("shm:{},queues={queues}{options}", path.display()),
        queues,
    )
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn other_echoes_as_client() {
    if let Some(path) = file_of_other() {
        let end = End::open(&format!("shm:{path},role=client"), 1);
        end.wait_up();
        end.echo();
    }
}

#[test]
fn two_processes_exchange_frames() {
    let folder = Scratch::new();
    let mut end = server(&folder, "", 1);
    let _other = Process::of("other_echoes_as_client", &folder.path().join("ring"));
    end.wait_up();
    end.exchange(0, 0..50_000);
    end.check_books();
}

/// Rings of which much goes in a turn, where both processes have no CPU at a time.
const LONG: &str = ",size=8192";

#[test]
#[ignore = "long: ten million frames between two processes"]
fn two_processes_exchange_ten_million_frames() {
    let folder = Scratch::new();
    let mut end = server(&folder, LONG, 1);
    end.window = 8000;
    let _other = Process::of("other_echoes_as_client", &folder.path().join("ring"));
    end.wait_up();
    end.exchange(0, 0..10_000_000);
    end.check_books();
    assert!(end.port.stats().violations.is_empty());
}

/// Two processes that have nothing to do with what a test does to others.
struct Neighbours {
    end: End,
    passed: u64,
    _folder: Scratch,
    _other: Process,
}

impl Neighbours {
    fn new() -> Self {
        let folder = Scratch::new();
        let end = server(&folder, "", 1);
        let other = Process::of("other_echoes_as_client", &folder.path().join("ring"));
        end.wait_up();
        Self {
            end,
            passed: 0,
            _folder: folder,
            _other: other,
        }
    }

    /// A hundred frames go there and back.
    fn exchange(&mut self) {
        self.end.exchange(0, self.passed..self.passed + 100);
        self.passed += 100;
    }

    fn check(&self) {
        assert!(self.end.port.stats().violations.is_empty());
        self.end.check_books();
    }
}

/// Kills the peer again and again while frames pass, and lets another one come.
fn kills(count: u32, peer: impl Fn(&Path) -> Process) {
    let folder = Scratch::new();
    let path = folder.path().join("ring");
    let mut end = server(&folder, ",size=64", 1);
    let mut neighbours = Neighbours::new();
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = Random::new(seed);
    let mut sent = 0;
    for round in 0..count {
        let other = peer(&path);
        let start = Instant::now();
        while !is_peer(&end, &other) {
            assert!(start.elapsed() < PATIENCE, "{:?}", end.port.link());
            end.receive(0);
        }
        let life = Duration::from_micros(random.below(30_000_u64));
        let (start, mut other) = (Instant::now(), Some(other));
        while start.elapsed() < life + Duration::from_millis(5) {
            sent += end.send(0, sent..sent + 1 + random.below(32_u64));
            assert!(end.receive(0).iter().all(|&number| number < sent));
            if start.elapsed() > life {
                drop(other.take());
            }
        }
        drop(other);
        neighbours.exchange();
        end.check_books();
        assert!(end.port.stats().violations.is_empty(), "round {round}");
    }
    neighbours.check();
    let _other = peer(&path);
    let start = Instant::now();
    // The port has noticed that the last one is gone when the new one is seen.
    while !is_peer(&end, &_other) {
        assert!(start.elapsed() < PATIENCE);
        end.receive(0);
    }
    end.drain(0);
    end.exchange(0, sent..sent + 5000);
    end.check_books();
}

fn ours(path: &Path) -> Process {
    Process::of("other_echoes_as_client", path)
}

fn is_peer(end: &End, other: &Process) -> bool {
    let process = format!("process {},", other.0.id());
    let facts = end.port.info().facts;
    facts
        .iter()
        .any(|(name, fact)| *name == "peer" && fact.contains(&process))
}

#[test]
fn five_kills_lose_no_slot_and_no_order() {
    kills(5, ours);
}

#[test]
#[ignore = "long: a hundred processes come and go"]
fn a_hundred_kills_lose_no_slot_and_no_order() {
    kills(100, ours);
}

/// The program of `examples/`, compiled, or a skipped test.
fn program_in_c(folder: &Scratch) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shm_peer.c");
    let program = folder.path().join("shm_peer");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source]);
    let Ok(done) = cc.output() else {
        linerate_testkit::skip("needs cc");
        return None;
    };
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    Some(program)
}

/// Starts the program in C three times, one after the other, with so many frames for each.
fn with_a_program_in_c(frames: u64, size: &str, window: u64) {
    let folder = Scratch::new();
    let Some(program) = program_in_c(&folder) else {
        return;
    };
    let mut end = server(&folder, size, 2);
    end.window = window;
    for round in 0..3 {
        let other = Process::start(Command::new(&program).arg(folder.path().join("ring")));
        let start = Instant::now();
        while !is_peer(&end, &other) {
            assert!(start.elapsed() < PATIENCE, "{:?}", end.port.link());
            std::thread::sleep(Duration::from_millis(1));
        }
        let facts = end.port.info().facts;
        assert!(
            facts.contains(&("peer known by", "its heartbeat".into())),
            "{facts:?}"
        );
        for queue in [0, 1] {
            end.exchange(queue, round * 2 * frames..round * 2 * frames + frames);
        }
    }
    end.check_books();
    assert!(end.port.stats().violations.is_empty());
}

#[test]
fn a_program_in_c_is_the_peer() {
    with_a_program_in_c(5000, ",size=256", 512);
}

#[test]
#[ignore = "long: ten million frames to a program in C"]
fn a_program_in_c_is_the_peer_for_ten_million_frames() {
    with_a_program_in_c(10_000_000 / 6, LONG, 8000);
}

#[test]
#[ignore = "long: a program in C is killed a hundred times"]
fn a_hundred_kills_of_a_program_in_c_lose_no_slot_and_no_order() {
    let folder = Scratch::new();
    if let Some(program) = program_in_c(&folder) {
        kills(100, |path| Process::start(Command::new(&program).arg(path)));
    }
}

/// Writes anything anywhere in the file, now and then something that looks right.
#[test]
#[ignore = "run by other tests, in a process of its own"]
fn other_scribbles() {
    let Some(path) = file_of_other() else { return };
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let bytes = file.metadata().unwrap().len() as usize;
    let all = Untrusted::map("all", file.as_fd(), 0, bytes, FileFrom::User).unwrap();
    let words = all.u32s(0, bytes / 4).unwrap();
    let mut random = Random::new(7);
    loop {
        for _ in 0..1000 {
            // The first page, where all indexes are, as often as all the rest.
            let most = if random.below(2) == 0 {
                1024
            } else {
                words.len() as u32
            };
            let word = &words[random.below(most) as usize];
            match random.below(4) {
                0 => word.store(random.below(u32::MAX), Ordering::Relaxed),
                1 => word.store(1, Ordering::Relaxed),
                2 => word.store(
                    word.load(Ordering::Relaxed).wrapping_add(1),
                    Ordering::Relaxed,
                ),
                _ => {
                    let (lap, length): (u32, u32) = (random.below(3), random.below(3000));
                    word.store(lap << 16 | length, Ordering::Relaxed);
                }
            }
        }
        // Each slot's word in turn, with any length.
        let (first, between) = (4096 / 4, 2112 / 4);
        for word in words[first..].iter().step_by(between) {
            let old = word.load(Ordering::Relaxed);
            let length: u32 = random.below(0x1_0000);
            word.store((old & 0xffff_0000) | length, Ordering::Relaxed);
        }
    }
}

fn scribbles(lasting: Duration) {
    let folder = Scratch::new();
    let path = folder.path().join("ring");
    let mut end = server(&folder, ",size=64", 1);
    // Canaries: slots of the same pool, among those that are used.
    let mut canaries = Vec::new();
    for _ in 0..50 {
        let mut burst = Burst::new();
        end.cache.fill(&end.pool, &mut burst, 64);
        for (number, mut packet) in burst.drain().enumerate() {
            if number % 2 == 0 {
                packet.widen();
                packet.data_mut().fill(0xc5);
                canaries.push(packet);
            }
        }
    }
    let mut neighbours = Neighbours::new();
    let liar = Process::of("other_scribbles", &path);
    let (start, mut sent) = (Instant::now(), 0);
    let mut burst = Burst::new();
    // At least as long as it takes until a lie about a length was met, however slow all is: each
    // lie about an index costs a start anew.
    let met = |end: &End| {
        let violations = end.port.stats().violations;
        violations
            .iter()
            .any(|(name, _)| *name == "descriptor_length")
    };
    while start.elapsed() < lasting || !met(&end) {
        assert!(
            start.elapsed() < lasting + PATIENCE,
            "{:?}",
            end.port.stats()
        );
        for _ in 0..100 {
            sent += end.send(0, sent..sent + 32);
            end.queues.rx[0].rx_burst(&mut burst, &mut end.cache);
            end.received += burst.len() as u64;
            assert!(
                burst
                    .iter()
                    .all(|packet| (14..=2108).contains(&packet.len()))
            );
            end.cache.free(&mut burst);
        }
        neighbours.exchange();
    }
    drop(liar);
    // With the next look the server writes its header anew, by which the next client goes.
    std::thread::sleep(Duration::from_millis(300));
    let violations = end.port.stats().violations;
    assert!(end.port.warning().is_some());
    neighbours.check();
    // An honest peer comes, and all is well. First it takes what the liar left there.
    let other = Process::of("other_echoes_as_client", &path);
    let start = Instant::now();
    while !is_peer(&end, &other) {
        assert!(start.elapsed() < PATIENCE, "{:?}", end.port.link());
        end.queues.rx[0].rx_burst(&mut burst, &mut end.cache);
        end.received += burst.len() as u64;
        end.cache.free(&mut burst);
    }
    end.drain_any();
    end.exchange(0, sent..sent + 10_000);
    for packet in canaries {
        assert!(
            packet.data().iter().all(|&byte| byte == 0xc5),
            "written over"
        );
        end.cache.free_one(packet);
    }
    end.check_books();
    println!(
        "{sent} frames sent, {} received, {violations:?}",
        end.received
    );
}

#[test]
fn a_peer_that_overwrites_shared_memory_harms_only_itself() {
    scribbles(Duration::from_secs(2));
}

#[test]
#[ignore = "long: a peer scribbles for ten minutes"]
fn a_peer_that_overwrites_shared_memory_for_long_harms_only_itself() {
    scribbles(Duration::from_secs(600));
}

/// Somebody who is neither of the two writes anything anywhere, and then leaves.
fn a_third_party_scribbles(lasting: Duration) {
    let folder = Scratch::new();
    let path = folder.path().join("ring");
    let mut end = server(&folder, ",size=64", 1);
    let mut neighbours = Neighbours::new();
    let _other = Process::of("other_echoes_as_client", &path);
    end.wait_up();
    let third = Process::of("other_scribbles", &path);
    let (start, mut burst, mut number) = (Instant::now(), Burst::new(), 0);
    let mut turn = |end: &mut End| {
        number += end.send(0, number..number + 32);
        end.received += end.queues.rx[0].rx_burst(&mut burst, &mut end.cache) as u64;
        end.cache.free(&mut burst);
        number
    };
    while start.elapsed() < lasting {
        for _ in 0..100 {
            turn(&mut end);
        }
        neighbours.exchange();
    }
    drop(third);
    neighbours.check();
    // No side starts anew: they find each other by themselves, and what stands in slots that are
    // not used passes with the next frames.
    let (start, mut rounds, mut sent) = (Instant::now(), 0, 0);
    while end.port.link() != Link::Up || rounds < 1000 {
        assert!(start.elapsed() < PATIENCE, "{:?}", end.port.link());
        sent = turn(&mut end);
        rounds += 1;
        std::thread::sleep(Duration::from_micros(500));
    }
    end.drain_any();
    end.exchange(0, sent..sent + 10_000);
    end.check_books();
    println!("{sent} frames sent, {:?}", end.port.stats());
}

#[test]
fn a_third_party_that_overwrites_the_file_stops_a_ring_only_as_long() {
    a_third_party_scribbles(Duration::from_secs(2));
}

#[test]
#[ignore = "long: a third party scribbles for ten minutes"]
fn a_third_party_that_overwrites_the_file_for_long_stops_a_ring_only_as_long() {
    a_third_party_scribbles(Duration::from_secs(600));
}
