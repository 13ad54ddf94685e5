//! Numbered frames in the millions through Linux guests of QEMU, emulated, and guests whose peer is
//! killed again and again.
//!
//! A guest's bridge joins its interfaces: what comes in at the first goes out at the second, or,
//! where there is but one, there again. So the guest's driver and its network stack handle each
//! frame, and no program of the guest's, which would be slower, has to.
//!
//! ```text
//! test: vhost ---- eth0 | bridge of guest a
//! test: vhost ---- eth0 | bridge of guest a | eth1 -- vhost :l2fwd: vhost -- eth0 | bridge of b
//! ```
//!
//! Nothing may be lost. Where a ring is full, its sender waits: this test as well as Linux' pktgen.
//! What lies between two rings of a guest is bounded by how many frames are under way, which is
//! fewer than the queue of the guest's interface holds.

mod kills;

use crate::booked::{Booked, Rest};
use crate::machine::{Machine, Nic, PATIENCE};
use crate::ovs::turn;
use linerate_core::packet::Burst;
use linerate_core::port::Link;
use linerate_testkit::cli::{L2fwd, Report};
use linerate_testkit::{Random, Scratch, guest, has, wait};
use rustix::process::Signal;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// Rings of guests, where they are longer than QEMU's own 256.
const LONG: &str = ",rx_queue_size=1024,tx_queue_size=1024";
/// Frames under way: four times what a guest's ring holds, so that each is full all the time.
const MANY: u64 = 1024;
/// Fewer than the rings behind `l2fwd` hold, which drops what finds no room.
const FEW: u64 = 512;
/// Seconds between two reports of `l2fwd`: whoever looks that often holds no frame up.
const PERIOD: &str = "0.2";

/// Joins all interfaces of a guest, so that whatever comes in at one goes out at the others; of one
/// there again. The queues before them hold more than is ever under way.
const BRIDGE: &str = "mkdir /sys
mount -t sysfs sys /sys
echo pfifo_fast > /proc/sys/net/core/default_qdisc
ip link add name br0 type bridge
for path in /sys/class/net/eth*; do
    eth=$(basename $path)
    echo 8192 > $path/tx_queue_len
    ip link set dev $eth master br0
    echo 0 > $path/brport/learning
    [ -e /sys/class/net/eth1 ] || echo 1 > $path/brport/hairpin_mode
    ip link set dev $eth up
done
echo 0 > /sys/class/net/br0/bridge/multicast_snooping
ip link set dev br0 up
echo READY > /dev/ttyS0
while :; do sleep 3600; done";

/// The same for each interface alone.
const BRIDGES: &str = "mkdir /sys
mount -t sysfs sys /sys
echo pfifo_fast > /proc/sys/net/core/default_qdisc
for path in /sys/class/net/eth*; do
    eth=$(basename $path)
    ip link add name br-$eth type bridge
    echo 8192 > $path/tx_queue_len
    ip link set dev $eth master br-$eth
    echo 0 > $path/brport/learning
    echo 1 > $path/brport/hairpin_mode
    ip link set dev $eth up
    echo 0 > /sys/class/net/br-$eth/bridge/multicast_snooping
    ip link set dev br-$eth up
done
echo READY > /dev/ttyS0
while :; do sleep 3600; done";

/// Where guests and sockets are.
struct Lab {
    scratch: Scratch,
    kernel: String,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// One whose guests begin with this script, or none, with the reason said.
    fn new(script: &str) -> Option<Self> {
        if !has(&["setpriv"]) {
            return None;
        }
        let scratch = Scratch::new();
        let modules = ["virtio_pci", "virtio_net", "bridge", "pktgen"];
        let root = scratch.path().join("initramfs");
        let kernel = guest::alone(&modules, script, &root)?;
        Some(Self {
            kernel: kernel.display().to_string(),
            scratch,
            _turn: turn(),
        })
    }

    /// The socket of this name.
    fn socket(&self, name: &str) -> String {
        self.scratch.file(name)
    }

    /// A guest with an interface at each of these sockets.
    fn boot(&self, name: &str, sockets: &[&str], options: &str, more: &[&str]) -> Machine {
        let nic = |(at, socket): (usize, &&str)| Nic {
            socket: self.socket(socket),
            options: format!(",mac=52:54:00:00:0a:{at:02x}{options}"),
        };
        let nics: Vec<Nic> = sockets.iter().enumerate().map(nic).collect();
        Machine::boot(&self.scratch, &self.kernel, name, &nics, more)
    }

    /// `l2fwd` between pairs of ports, each a kind and the name of its socket.
    fn l2fwd(&self, ports: &[[&str; 2]]) -> L2fwd {
        let spec = |[kind, name]: &[&str; 2]| format!("{kind}:{} ", self.socket(name));
        let specs: String = ports.iter().map(spec).collect();
        let l2fwd = L2fwd::alone(&format!("--period {PERIOD} {specs} --no-mac-update"));
        wait("its sockets", || {
            let there = |[_, name]: &[&str; 2]| std::fs::exists(self.socket(name)).unwrap();
            ports.iter().all(there)
        });
        l2fwd
    }
}

/// `even` is how the books of all packets end, nobody was called a liar, and nothing was dropped
/// but for lack of a link. Returns how many that were.
fn ends_well(l2fwd: L2fwd) -> (Report, u64) {
    let totals = l2fwd.stop(Signal::INT);
    assert_eq!(totals.0["ledger"]["even"], true, "{totals}");
    for port in totals.0["ports"].as_array().unwrap() {
        let violations = port["violations"].as_object();
        assert!(violations.is_none_or(|all| all.is_empty()), "{port}");
    }
    let drops = totals.drops().into_iter().map(|(_, count)| count).sum();
    (totals, drops)
}

/// One whose totals are said where the test fails.
struct Told(Option<L2fwd>);

impl Told {
    fn ends(mut self) -> L2fwd {
        self.0.take().expect("it ends once")
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(l2fwd) = self.0.take().filter(|_| std::thread::panicking()) {
            eprintln!("{}", l2fwd.stop(Signal::INT));
        }
    }
}

/// Numbered frames that a port sends, and that come back to it.
struct Echo {
    port: Booked,
    /// At most so many are under way.
    window: u64,
    /// Numbers from here on have not been sent.
    sent: u64,
    /// The number that is to come back next.
    next: u64,
    rest: Rest,
}

impl Echo {
    fn new(spec: &str, window: u64) -> Self {
        Self {
            port: Booked::new(spec),
            window,
            sent: 0,
            next: 0,
            rest: Rest::default(),
        }
    }

    /// Until a frame comes back: what was sent before the guest was ready is forgotten.
    fn wait_up(&mut self, guests: &mut [&mut Machine]) {
        let (start, mut probed) = (Instant::now(), None::<Instant>);
        let mut burst = Burst::with_room(32);
        let mut last = None;
        while last.is_none_or(|last: u64| last + 1 < self.sent) {
            let is_due = probed.is_none_or(|at| at.elapsed() > Duration::from_millis(100));
            if last.is_none() && is_due && self.port.end.port.link() == Link::Up {
                self.sent += self.port.send_new(self.sent, 1);
                probed = Some(Instant::now());
            }
            last = self.port.receive(&mut burst).last().copied().or(last);
            self.port.end.cache.free(&mut burst);
            guests.iter_mut().for_each(|guest| guest.lives());
            assert!(start.elapsed() < PATIENCE, "nothing comes back");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.next = self.sent;
    }

    /// Sends, so that no more than the window is under way and no number reaches `until`.
    fn send(&mut self, until: u64) -> u64 {
        let room = self.window - (self.sent - self.next);
        let count = room.min(until - self.sent).min(32) as usize;
        let taken = match count {
            0 => 0,
            count => self.port.send_new(self.sent, count),
        };
        self.sent += taken;
        taken
    }

    /// One turn. Each frame comes back once, in order and whole.
    fn turn(&mut self, until: u64) {
        let taken = self.send(until);
        let mut burst = Burst::with_room(32);
        let numbers = self.port.receive(&mut burst);
        self.port.end.cache.free(&mut burst);
        for number in &numbers {
            assert_eq!(*number, self.next, "once, in order");
            self.next += 1;
        }
        self.rest.after(taken > 0 || !numbers.is_empty());
    }

    /// Sends so many, and waits until all have come back.
    fn exchange(&mut self, frames: u64) {
        let until = self.sent + frames;
        let (mut moved, mut last) = (Instant::now(), self.next);
        while self.next < until {
            (0..100).for_each(|_| self.turn(until));
            if self.next != last {
                (moved, last) = (Instant::now(), self.next);
            }
            let waits = moved.elapsed();
            let stats = || self.port.end.port.stats();
            assert!(waits < PATIENCE, "{} of {until}: {:?}", self.next, stats());
        }
    }
}

/// Says how fast it went: no figure of record, but what the test's length is chosen by.
fn told(what: &str, frames: u64, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    let rate = frames as f64 / seconds;
    eprintln!("{what}: {frames} frames in {seconds:.1} s, {rate:.0} a second");
}

/// How many frames, where nobody says otherwise.
fn frames(all: u64) -> u64 {
    let said = std::env::var("LINERATE_GUEST_FRAMES").ok();
    said.map_or(all, |said| said.parse().expect("a number of frames"))
}

fn there_and_back(options: &str) {
    let Some(lab) = Lab::new(BRIDGE) else { return };
    let mut echo = Echo::new(&format!("vhost:{}", lab.socket("a")), MANY);
    let mut guest = lab.boot("a", &["a"], options, &[]);
    echo.wait_up(&mut [&mut guest]);
    let (frames, began) = (frames(10_000_000), Instant::now());
    echo.exchange(frames);
    told("there and back", frames, began);
    drop(guest);
    echo.port.finish();
}

#[test]
#[ignore = "long: ten million frames through an emulated guest"]
fn a_guest_sends_back_ten_million_frames() {
    there_and_back("");
}

#[test]
#[ignore = "long: ten million frames through an emulated guest"]
fn a_guest_with_packed_rings_sends_back_ten_million_frames() {
    there_and_back(",packed=on");
}

/// The header that Linux' pktgen writes behind those of UDP (net/core/pktgen.c): a magic number,
/// and the frame's own.
const MAGIC: u32 = 0xbe9b_e955;

/// Linux' pktgen makes the frames, as fast as there is room in the ring; this end sometimes pauses.
#[test]
#[ignore = "long: ten million frames of an emulated guest"]
fn a_guest_makes_ten_million_frames() {
    let frames = frames(10_000_000);
    let script = format!(
        "ip link set dev eth0 up
        cd /proc/net/pktgen
        echo 'add_device eth0' > kpktgend_0
        for words in 'count {frames}' 'clone_skb 0' 'pkt_size 60' 'delay 0' 'flag NO_TIMESTAMP' \
            'dst 10.9.0.1' 'dst_mac 02:00:00:00:09:01'; do
            echo \"$words\" > eth0
        done
        echo READY > /dev/ttyS0
        echo start > pgctrl
        cat eth0 > /dev/ttyS0
        echo ALL > /dev/ttyS0
        while :; do sleep 3600; done"
    );
    let Some(lab) = Lab::new(&script) else { return };
    let mut port = Booked::new(&format!("vhost:{}", lab.socket("a")));
    let mut guest = lab.boot("a", &["a"], "", &[]);
    guest.wait("READY");
    let began = Instant::now();
    let (mut random, mut rest) = (Random::new(u64::from(std::process::id())), Rest::default());
    let mut burst = Burst::with_room(32);
    let (mut next, mut came, mut moved) = (None, 0, Instant::now());
    let mut paused = Instant::now();
    // How often the guest had filled its ring while this end paused.
    let (mut pauses, mut full) = (0, 0);
    while came < frames {
        if came > 0 && paused.elapsed() > Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(random.below(100_u64)));
            let rings = port.end.port.stats().rings;
            let waiting = rings.iter().filter(|ring| ring.direction == "receive");
            full += u64::from(waiting.map(|ring| ring.waiting).sum::<u32>() > 200);
            pauses += 1;
            paused = Instant::now();
        }
        port.end.queues.rx[0].rx_burst(&mut burst, &mut port.end.cache);
        for packet in burst.iter() {
            let data = packet.data();
            assert_eq!((data.len(), &data[12..14]), (60, &[8, 0][..]));
            let word = |at: usize| u32::from_be_bytes(data[at..][..4].try_into().unwrap());
            assert_eq!(word(42), MAGIC);
            let number = word(46);
            assert_eq!(number, *next.get_or_insert(number), "once, in order");
            next = Some(number + 1);
        }
        came += burst.len() as u64;
        port.received += burst.len() as u64;
        if !burst.is_empty() {
            moved = Instant::now();
        }
        assert!(moved.elapsed() < PATIENCE, "{came}: {}", guest.said());
        rest.after(!burst.is_empty());
        port.end.cache.free(&mut burst);
    }
    told("of the guest", frames, began);
    guest.wait("ALL");
    let said = guest.said();
    eprintln!("{said}\n{pauses} pauses, {full} with a full ring");
    let own = format!("pkts-sofar: {frames}  errors: 0");
    assert!(came == frames && said.contains(&own), "{came} of {frames}");
    assert!(2 * full > pauses, "the guest is held back");
    drop(guest);
    port.finish();
}

/// Two guests joined by `l2fwd`: five million frames cross it each way.
#[test]
#[ignore = "long: ten million frames between two emulated guests"]
fn two_guests_exchange_ten_million_frames() {
    let Some(lab) = Lab::new(BRIDGE) else { return };
    let l2fwd = lab.l2fwd(&[["vhost", "left"], ["vhost", "right"]]);
    let mut echo = Echo::new(&format!("vhost:{}", lab.socket("a")), FEW);
    let mut left = lab.boot("a", &["a", "left"], LONG, &[]);
    let mut right = lab.boot("b", &["right"], LONG, &[]);
    echo.wait_up(&mut [&mut left, &mut right]);
    let (each, began) = (frames(10_000_000) / 2, Instant::now());
    let l2fwd = Told(Some(l2fwd));
    echo.exchange(each);
    let l2fwd = l2fwd.ends();
    told("between two guests", 2 * each, began);
    let sent = echo.sent;
    let (totals, drops) = ends_well(l2fwd);
    drop((left, right));
    for port in 0..2 {
        let [rx, tx] = ["rx_packets", "tx_packets"].map(|name| totals.count(port, name));
        assert!(rx.min(tx) >= each && rx.max(tx) <= sent, "{totals}");
    }
    eprintln!("{drops} frames found no link, of {}", sent - each);
    assert!(drops <= sent - each, "{totals}");
    echo.port.finish();
}
