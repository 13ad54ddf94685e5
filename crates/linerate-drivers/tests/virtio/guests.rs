//! Numbered frames in the millions through Linux guests of QEMU, emulated.
//!
//! A guest's bridge sends what comes in at its interface out again there. So the guest's driver and
//! its network stack handle each frame, and no program of the guest's, which would be slower, has
//! to.
//!
//! Nothing may be lost. Where a ring is full, its sender waits: this test as well as Linux' pktgen.
//! What lies between two rings of a guest is bounded by how many frames are under way, which is
//! fewer than the queue of the guest's interface holds.

use crate::booked::{Booked, Rest};
use crate::machine::{Machine, Nic, PATIENCE};
use crate::ovs::turn;
use linerate_core::packet::Burst;
use linerate_core::port::Link;
use linerate_testkit::{Random, Scratch, guest, has};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// Frames under way: four times what a guest's ring holds, so that each is full all the time.
const MANY: u64 = 1024;
/// What comes in goes out again. The queue before the interface holds more than is ever under way.
const BRIDGE: &str = "mkdir /sys
mount -t sysfs sys /sys
echo pfifo_fast > /proc/sys/net/core/default_qdisc
ip link add name br0 type bridge
path=/sys/class/net/eth0
echo 8192 > $path/tx_queue_len
ip link set dev eth0 master br0
echo 0 > $path/brport/learning
echo 1 > $path/brport/hairpin_mode
ip link set dev eth0 up
echo 0 > /sys/class/net/br0/bridge/multicast_snooping
ip link set dev br0 up
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

    /// A guest with an interface at the socket of its name, and these options of the device.
    fn boot(&self, name: &str, options: &str) -> Machine {
        let nic = Nic {
            socket: self.socket(name),
            options: format!(",mac=52:54:00:00:0a:00{options}"),
        };
        Machine::boot(&self.scratch, &self.kernel, name, &[nic], &[])
    }
}

/// Numbered frames that a port sends, and that come back to it.
struct Echo {
    port: Booked,
    /// Numbers from here on have not been sent.
    sent: u64,
    /// The number that is to come back next.
    next: u64,
    rest: Rest,
}

impl Echo {
    fn new(spec: &str) -> Self {
        Self {
            port: Booked::new(spec),
            sent: 0,
            next: 0,
            rest: Rest::default(),
        }
    }

    /// Until a frame comes back: what was sent before the guest was ready is forgotten.
    fn wait_up(&mut self, guest: &mut Machine) {
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
            guest.lives();
            assert!(start.elapsed() < PATIENCE, "nothing comes back");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.next = self.sent;
    }

    /// Sends, so that no more than the window is under way and no number reaches `until`.
    fn send(&mut self, until: u64) -> u64 {
        let room = MANY - (self.sent - self.next);
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
    let mut echo = Echo::new(&format!("vhost:{}", lab.socket("a")));
    let mut guest = lab.boot("a", options);
    echo.wait_up(&mut guest);
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
    let mut guest = lab.boot("a", "");
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
