//! Peers that rewrite rings, regions and whatever else they share with us, at random, as fast as
//! they can, while we use it: each a process of its own, this test binary again.
//!
//! What is checked: the port neither panics nor faults, no packet is longer than its slot, no slot
//! is lost; in the hostile process, that canaries beside its regions stay as they were; and that a
//! neighbour's stream goes on, in order and whole.

use crate::End;
use crate::peer::*;
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::packet::Burst;
use linerate_core::port::Link;
use linerate_testkit::process::Running;
use linerate_testkit::{PATIENCE, Random, Scratch, wait};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const ROLE: &str = "LINERATE_TEST_HOSTILE";

/// How long one connection is played with, if we do not cut it off before.
const TURN: Duration = Duration::from_millis(150);

fn hostile(role: &str, path: &Path) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "hostile::is_a_process_of_other_tests"]);
    command.args(["--include-ignored", "--nocapture"]);
    Running::start(command.env(ROLE, format!("{role}:{}", path.display())))
}

#[test]
#[ignore = "long: runs until it is killed, by the tests that start it"]
fn is_a_process_of_other_tests() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    match role.split_once(':').unwrap() {
        ("driver", path) => loop {
            play_driver(Path::new(path), &mut random);
        },
        (_, path) => {
            let listener = UnixListener::bind(path).unwrap();
            loop {
                let (socket, _) = listener.accept().unwrap();
                let _ = play_device(&socket, &mut random);
            }
        }
    }
}

/// A file in which a region lies between canaries, not at a page's border.
struct Guarded {
    file: OwnedFd,
    all: Untrusted,
}

const BEFORE: u64 = 4096 + 512;
const BEHIND: u64 = 4096 - 512;
const CANARY: u64 = 0x7ad7_1e00_dead_fade;

impl Guarded {
    fn new() -> Self {
        let bytes = BEFORE + REGION + BEHIND;
        let file = memory(bytes);
        let all = Untrusted::map("all", file.as_fd(), 0, bytes as usize, FileFrom::User).unwrap();
        let guarded = Self { file, all };
        for words in guarded.canaries() {
            words
                .iter()
                .for_each(|word| word.store(CANARY, Ordering::Relaxed));
        }
        guarded
    }

    fn canaries(&self) -> [&[std::sync::atomic::AtomicU64]; 2] {
        let words = |at: u64, bytes: u64| self.all.u64s(at as usize, bytes as usize / 8).unwrap();
        [words(0, BEFORE), words(BEFORE + REGION, BEHIND)]
    }

    fn check(&self) {
        for words in self.canaries() {
            let whole = words
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == CANARY);
            assert!(whole, "a byte beside the region was written");
        }
    }

    fn u64(&self, at: u64) -> &std::sync::atomic::AtomicU64 {
        &self.all.u64s((BEFORE + at) as usize & !7, 1).unwrap()[0]
    }

    fn u16(&self, at: u64) -> &std::sync::atomic::AtomicU16 {
        &self.all.u16s((BEFORE + at) as usize & !1, 1).unwrap()[0]
    }
}

/// Of each ring: descriptors, available ring or driver's wishes, used ring or device's.
const RINGS: [u64; 2] = [0, 0x1_0000];
const BUFFERS: u64 = 0x4_0000;
const ENTRIES: u64 = 64;

/// A driver: mostly one with which frames go on, for one that is cut off at once shows little.
fn play_driver(path: &Path, random: &mut Random) {
    let Ok(socket) = UnixStream::connect(path) else {
        std::thread::sleep(Duration::from_millis(5));
        return;
    };
    let peer = Peer(socket);
    peer.0.set_nonblocking(true).unwrap();
    let (memory, log) = (Guarded::new(), Guarded::new());
    let packed = random.one_in(2);
    let mut features = FEATURES | u64::from(packed) << 34;
    for bit in [15, 26, 28, 29, 35] {
        features |= u64::from(random.one_in(2)) << bit;
    }
    let tracked = random.one_in(2);
    peer.send(SET_FEATURES, &[features], &[]);
    let region = [1, 0, REGION, 0, BEFORE];
    peer.send(SET_MEM_TABLE, &region, &[memory.file.as_fd()]);
    if features >> 26 & 1 == 1 {
        peer.send(SET_LOG_BASE, &[64, BEFORE], &[log.file.as_fd()]);
    }
    if tracked {
        let record = [0x8000, BEFORE + 0x1000, ENTRIES << 16 | 2];
        peer.send(SET_INFLIGHT_FD, &record, &[log.file.as_fd()]);
    }
    if packed {
        for ring in 0..2 {
            peer.state(SET_VRING_BASE, ring, 1 << 15 | 1 << 31);
        }
    }
    let logged = u64::from(random.one_in(2));
    for ring in 0..2_u32 {
        let at = RINGS[ring as usize];
        let parts = [
            u64::from(ring) | logged << 32,
            at,
            at + 0x2000,
            at + 0x1000,
            at + 0x2000,
        ];
        peer.send(SET_VRING_ADDR, &parts, &[]);
        let event = eventfd();
        peer.state(SET_VRING_NUM, ring, ENTRIES as u32);
        peer.send(SET_VRING_CALL, &[ring.into()], &[event.as_fd()]);
        peer.send(SET_VRING_KICK, &[ring.into()], &[event.as_fd()]);
        peer.state(SET_VRING_ENABLE, ring, 1);
    }
    let (start, mut wraps) = (Instant::now(), [true; 2]);
    while start.elapsed() < TURN {
        for _ in 0..500 {
            scribble(&memory, packed, &mut wraps, random);
            if tracked && random.one_in(20_000) {
                let at = 0x1000 + random.bits() % 0x2000;
                log.u16(at)
                    .store(random.bits() as u16 % 80, Ordering::Relaxed);
            }
        }
        if random.one_in(40) {
            message(&peer, &memory, &log, random);
        }
        // So that answers never fill the socket.
        let mut answers = [0; 512];
        let _ = std::io::Read::read(&mut &peer.0, &mut answers);
    }
    memory.check();
    log.check();
}

/// One write to a ring.
fn scribble(memory: &Guarded, packed: bool, wraps: &mut [bool; 2], random: &mut Random) {
    let (any, which) = (random.bits(), random.bits() as usize % 2);
    let (ring, entry) = (RINGS[which], any % ENTRIES);
    let wild = random.one_in(100_000);
    let (at, len) = (random.bits(), random.bits());
    let at = if wild {
        at
    } else {
        BUFFERS + at % (REGION - BUFFERS - 4096)
    };
    let len = if wild {
        len as u32
    } else {
        64 + len as u32 % 2000
    };
    let direction = if which == 0 { 2 } else { 0 };
    let flags = match (wild, random.bits() % 8192) {
        (true, flags) => flags,
        (false, 0) => direction | 1,
        (false, 1) => direction | 4,
        _ => direction,
    };
    let descriptor = memory.u64(ring + 16 * entry);
    let rest = memory.u64(ring + 16 * entry + 8);
    if packed {
        // Sometimes in the order of the ring, as a driver goes.
        if entry == 0 && random.one_in(4) {
            wraps[which] = !wraps[which];
        }
        let state = if wraps[which] { 1 << 7 } else { 1 << 15 };
        descriptor.store(at, Ordering::Relaxed);
        let word = (flags | state) << 48 | entry << 32 | u64::from(len);
        rest.store(word, Ordering::Release);
        return;
    }
    match random.bits() % 8 {
        0 => {
            // The available index: one more, as far as the ring is long.
            let used = memory.u16(ring + 0x2002).load(Ordering::Relaxed);
            let index = memory.u16(ring + 0x1002);
            let mut next = index.load(Ordering::Relaxed);
            if next.wrapping_sub(used) < ENTRIES as u16 {
                next = next.wrapping_add(1);
            }
            let next = if random.one_in(500_000) {
                any as u16
            } else {
                next
            };
            index.store(next, Ordering::Release);
        }
        1 => {
            let head = if wild { any as u16 } else { entry as u16 };
            let slot = random.bits() % ENTRIES;
            memory
                .u16(ring + 0x1004 + 2 * slot)
                .store(head, Ordering::Relaxed);
        }
        2 => memory
            .u16(ring + 0x1000)
            .store(any as u16 & 1, Ordering::Relaxed),
        3 if random.one_in(200_000) => {
            memory
                .u16(ring + 0x2002)
                .store(any as u16, Ordering::Relaxed);
        }
        _ => {
            let next = random.bits() % ENTRIES;
            let word = next << 48 | flags << 32 | u64::from(len);
            descriptor.store(at, Ordering::Relaxed);
            rest.store(word, Ordering::Relaxed);
        }
    }
}

/// One message in the middle of it.
fn message(peer: &Peer, memory: &Guarded, log: &Guarded, random: &mut Random) {
    let any = random.bits();
    let ring = random.bits() % 2;
    match random.bits() % 12 {
        0 => peer.send(
            SET_MEM_TABLE,
            &[1, 0, REGION, 0, BEFORE],
            &[memory.file.as_fd()],
        ),
        1 => {
            let words = [0, REGION, 4096, REGION, BEFORE];
            peer.send(ADD_MEM_REG, &words, &[log.file.as_fd()]);
            peer.send(REM_MEM_REG, &words, &[]);
        }
        2 => peer.send(GET_VRING_BASE, &[ring], &[]),
        3 => peer.send(SET_VRING_KICK, &[ring], &[eventfd().as_fd()]),
        4 => peer.send(
            SET_LOG_BASE,
            &[64, BEFORE + any % 512 * 8],
            &[log.file.as_fd()],
        ),
        5 => {
            let record = [0x8000, BEFORE + 0x1000 + any % 2 * 64, ENTRIES << 16 | 2];
            peer.send(SET_INFLIGHT_FD, &record, &[log.file.as_fd()]);
        }
        6 => peer.state(SET_VRING_ENABLE, ring as u32, (any & 1) as u32),
        7 => peer.send(GET_INFLIGHT_FD, &[0, 0, ENTRIES << 16 | 2], &[]),
        8 if random.one_in(20) => {
            let _ = rustix::fs::ftruncate(&memory.file, BEFORE + any % REGION);
            // Back to its length, with zeros, which are no canaries any more.
            let _ = rustix::fs::ftruncate(&memory.file, BEFORE + REGION + BEHIND);
            let [_, behind] = memory.canaries();
            behind
                .iter()
                .for_each(|word| word.store(CANARY, Ordering::Relaxed));
        }
        9 if random.one_in(20) => {
            let at = random.bits() % (REGION * 2);
            peer.send(
                SET_VRING_ADDR,
                &[ring, at, at + 0x2000, at + 0x1000, any],
                &[],
            );
        }
        10 if random.one_in(20) => {
            let bytes: Vec<u8> = (0..random.bits() % 64)
                .map(|_| random.bits() as u8)
                .collect();
            peer.put([any as u32 % 48, 1, bytes.len() as u32], &bytes, &[]);
        }
        11 if random.one_in(20) => peer.state(SET_VRING_BASE, ring as u32, any as u32),
        _ => {}
    }
}

/// A message's request, flags, payload and first descriptor.
pub(crate) type Got = (u32, u32, Vec<u8>, Option<OwnedFd>);

pub(crate) fn receive(socket: &UnixStream) -> Option<Got> {
    let (request, flags, payload, files) = receive_all(socket)?;
    Some((request, flags, payload, files.into_iter().next()))
}

/// The same with all its descriptors.
fn receive_all(socket: &UnixStream) -> Option<(u32, u32, Vec<u8>, Vec<OwnedFd>)> {
    let mut files = Vec::new();
    let mut read = |bytes: &mut [u8]| {
        let mut done = 0;
        while done < bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
            let flags = rustix::net::RecvFlags::CMSG_CLOEXEC;
            let mut parts = [IoSliceMut::new(&mut bytes[done..])];
            let got = rustix::net::recvmsg(socket, &mut parts, &mut control, flags).ok()?;
            for message in control.drain() {
                if let rustix::net::RecvAncillaryMessage::ScmRights(some) = message {
                    files.extend(some);
                }
            }
            if got.bytes == 0 {
                return None;
            }
            done += got.bytes;
        }
        Some(())
    };
    let mut head = [0; 12];
    read(&mut head)?;
    let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let mut payload = vec![0; field(8) as usize];
    read(&mut payload)?;
    Some((field(0), field(4), payload, files))
}

/// A pool that it was given, and where.
struct Spoiled {
    guest: u64,
    bytes: Untrusted,
}

impl Spoiled {
    fn new(guest: u64, file: &OwnedFd) -> Self {
        let bytes = rustix::fs::fstat(file).unwrap().st_size as usize;
        let bytes = Untrusted::map("pool", file.as_fd(), 0, bytes, FileFrom::User).unwrap();
        Self { guest, bytes }
    }

    /// Some bytes of it, wherever they are.
    fn spoil(&self, random: &mut Random) {
        let at = random.bits() as usize % (self.bytes.len() - 64);
        let window = self.bytes.window(at, 64).unwrap();
        window.write(&[random.bits() as u8; 64]);
    }

    /// The header of a plain frame, or nearly, in a buffer that lies there.
    fn begin_frame(&self, at: u64, random: &mut Random) {
        let at = at.wrapping_sub(self.guest) as usize;
        if let Some(window) = self.bytes.window(at, 12) {
            let flags = if random.one_in(8) {
                random.bits() as u8
            } else {
                0
            };
            let buffers = if random.one_in(8) {
                random.bits() as u8 % 6
            } else {
                1
            };
            window.write(&[flags, 0, 0, 0, 0, 0, 0, 0, 0, 0, buffers, 0]);
        }
    }
}

/// A device: it answers as one, and then writes to the driver's rings.
fn play_device(socket: &UnixStream, random: &mut Random) -> Option<()> {
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let answer = Peer(socket.try_clone().unwrap());
    let reply = |request: u32, payload: &[u8]| {
        answer.put([request, 1 | 1 << 2, payload.len() as u32], payload, &[]);
    };
    let (mut memory, mut record, mut rings, mut features) = (None, None, Vec::new(), 0_u64);
    let mut pools = Vec::new();
    loop {
        let (request, flags, payload, files) = receive_all(socket)?;
        let word = |index: usize| {
            let bytes = payload.get(8 * index..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        match request {
            GET_FEATURES if rings.is_empty() => {
                reply(
                    request,
                    &(FEATURES | 1 << 34 | 1 << 35 | 1 << 15 | 1 << 29).to_le_bytes(),
                );
                continue;
            }
            GET_FEATURES => {
                reply(request, &0_u64.to_le_bytes());
                break;
            }
            // Acknowledgements, a record of what is in flight.
            15 => {
                reply(request, &(1_u64 << 3 | 1 << 12).to_le_bytes());
                continue;
            }
            SET_FEATURES => features = word(0)?,
            GET_INFLIGHT_FD => {
                let region = crate::peer::memory(1 << 16);
                let payload = [1 << 16, 0, word(2)?].map(u64::to_le_bytes).concat();
                answer.put([request, 5, 24], &payload, &[region.as_fd()]);
                record = Some(region);
                continue;
            }
            SET_MEM_TABLE => {
                let mut files = files.into_iter();
                memory = Some((files.next()?, word(2)?));
                for (index, file) in (1..).zip(files) {
                    pools.push(Spoiled::new(word(1 + 4 * index)?, &file));
                }
            }
            SET_VRING_ADDR => rings.push([word(1)?, word(2)?, word(3)?]),
            _ => {}
        }
        if flags & 1 << 3 != 0 {
            reply(request, &0_u64.to_le_bytes());
        }
    }
    let ((file, bytes), _kept) = (memory?, record);
    let mapped = Untrusted::map("driver", file.as_fd(), 0, bytes as usize, FileFrom::User).ok()?;
    let base = rings.first()?[0];
    let packed = features >> 34 & 1 == 1;
    let start = Instant::now();
    let u16_at = |at: u64| &mapped.u16s((at - base) as usize, 1).unwrap()[0];
    let u64_at = |at: u64| &mapped.u64s((at - base) as usize, 1).unwrap()[0];
    let (mut seen, mut wrap) = ([0_u64; 2], [true; 2]);
    let begin_frame = |which: usize, descriptor: u64, random: &mut Random| {
        let inside = descriptor - base < bytes - 8;
        if let Some(pool) = pools.first().filter(|_| which == 0 && inside) {
            pool.begin_frame(u64_at(descriptor).load(Ordering::Relaxed), random);
        }
    };
    while start.elapsed() < TURN {
        for _ in 0..500 {
            let which = random.bits() as usize % 2;
            let [table, used, available] = rings[which];
            let wild = random.one_in(100_000);
            let any = random.bits();
            pools.iter().for_each(|pool| pool.spoil(random));
            if wild {
                let at = table + any % (used.max(available) - table + 0x800);
                u16_at(at & !1).store(random.bits() as u16, Ordering::Relaxed);
                continue;
            }
            let len = if which == 0 { 64 + any % 1400 } else { 0 };
            if packed {
                let entry = seen[which];
                let rest = u64_at(table + 16 * entry + 8);
                let word = rest.load(Ordering::Acquire);
                let state = if wrap[which] { 1_u64 << 7 } else { 1 << 15 };
                if word >> 48 & (1 << 7 | 1 << 15) != state {
                    continue;
                }
                let used = if wrap[which] { 1_u64 << 7 | 1 << 15 } else { 0 };
                begin_frame(which, table + 16 * entry, random);
                rest.store(used << 48 | word & 0xffff << 32 | len, Ordering::Release);
                seen[which] = (entry + 1) % 64;
                wrap[which] ^= seen[which] == 0;
                continue;
            }
            let given = u16_at(available + 2).load(Ordering::Acquire);
            let index = u16_at(used + 2);
            let done = index.load(Ordering::Relaxed);
            if done != given {
                let slot = u64::from(done) % 64;
                let head = u16_at(available + 4 + 2 * slot).load(Ordering::Relaxed);
                begin_frame(which, table + 16 * u64::from(head), random);
                u16_at(used + 4 + 8 * slot).store(head, Ordering::Relaxed);
                u16_at(used + 6 + 8 * slot).store(0, Ordering::Relaxed);
                u16_at(used + 8 + 8 * slot).store(len as u16, Ordering::Relaxed);
                u16_at(used + 10 + 8 * slot).store(0, Ordering::Relaxed);
                index.store(done.wrapping_add(1), Ordering::Release);
            }
        }
    }
    Some(())
}

/// Uses the port for this long, whatever its peer does; how many frames came.
fn use_for(end: &mut End, neighbours: &mut Neighbours, peer: &mut Running, time: Duration) -> u64 {
    let start = Instant::now();
    let (mut frames, mut number, mut looked) = (0, 0_u64, Instant::now());
    let mut burst = Burst::new();
    // Longer where nothing has happened yet: what else has the CPU is not ours to say.
    let shown = |end: &End, frames| frames > 0 && !end.port.stats().violations.is_empty();
    while start.elapsed() < time || (!shown(end, frames) && start.elapsed() < time + PATIENCE) {
        end.queues.rx[0].rx_burst(&mut burst, &mut end.cache);
        for packet in burst.iter() {
            assert!(packet.headroom() + packet.len() <= packet.slot_bytes());
            std::hint::black_box(packet.data().iter().fold(0_u8, |sum, &byte| sum ^ byte));
            frames += 1;
        }
        end.cache.free(&mut burst);
        for more in 0..4 {
            let frame = crate::frame(number, 60 + (number as usize * 7 + more) % 3000);
            burst.push(end.cache.copy_of(&frame).unwrap()).unwrap();
        }
        end.queues.tx[0].tx_burst(&mut burst, &mut end.cache);
        end.queues.tx[0].flush(&mut end.cache);
        end.cache.free(&mut burst);
        neighbours.step(true);
        number += 1;
        if looked.elapsed() > Duration::from_millis(100) {
            looked = Instant::now();
            assert!(
                peer.is_alive(),
                "{}{}",
                peer.stdout.text(),
                peer.stderr.text()
            );
        }
    }
    frames
}

/// Two ports that are joined to each other, and their stream, which comes whole and in order.
struct Neighbours {
    from: End,
    to: End,
    sent: u64,
    came: u64,
}

impl Neighbours {
    fn step(&mut self, send: bool) {
        let (from, to) = (&mut self.from, &mut self.to);
        let mut burst = Burst::new();
        if send && self.sent < self.came + 100 {
            let frame = crate::frame(self.sent, 64);
            burst.push(from.cache.copy_of(&frame).unwrap()).unwrap();
            self.sent += from.queues.tx[0].tx_burst(&mut burst, &mut from.cache) as u64;
            from.cache.free(&mut burst);
        }
        to.queues.rx[0].rx_burst(&mut burst, &mut to.cache);
        for packet in burst.iter() {
            assert!(
                packet.data() == crate::frame(self.came, 64),
                "{}",
                self.came
            );
            self.came += 1;
        }
        to.cache.free(&mut burst);
    }

    fn finish(mut self) {
        wait("the neighbours' last frames", || {
            self.step(false);
            self.came == self.sent
        });
        assert!(self.came > 0);
        assert_eq!(self.from.port.link(), Link::Up);
        self.from.finish();
        self.to.finish();
    }
}

/// One port with a peer of this role, for this long.
fn plays(role: &str, spec: impl Fn(&Path) -> String, time: Duration) {
    let folder = Scratch::new();
    let path = folder.path().join("s");
    let mut peer = hostile(role, &path);
    let mut end = End::new(&spec(&path), 1);
    let near = |kind: &str| End::new(&format!("{kind}:{}", folder.path().join("n").display()), 1);
    let mut neighbours = Neighbours {
        from: near("vhost"),
        to: near("virtio_user"),
        sent: 0,
        came: 0,
    };
    neighbours.from.wait_up();
    neighbours.to.wait_up();
    let frames = use_for(&mut end, &mut neighbours, &mut peer, time);
    let stats = end.port.stats();
    eprintln!("{frames} frames came, {stats:?}");
    assert!(frames > 0 && !stats.violations.is_empty());
    assert!(
        peer.is_alive(),
        "{}{}",
        peer.stdout.text(),
        peer.stderr.text()
    );
    drop(peer);
    end.finish();
    neighbours.finish();
}

fn driver(time: Duration) {
    plays("driver", |path| format!("vhost:{}", path.display()), time);
}

/// `more`: options of the driver.
fn device(more: &str, time: Duration) {
    // Each kind of ring for its part of the time.
    for options in [
        "packed=on",
        "packed=off",
        "packed=on,in_order=off",
        "packed=off,in_order=off",
    ] {
        let spec = |path: &Path| format!("virtio_user:{},size=64,{more},{options}", path.display());
        plays("device", spec, time / 4);
    }
}

#[test]
fn a_hostile_driver_harms_only_itself() {
    driver(Duration::from_secs(2));
}

#[test]
fn a_hostile_device_harms_only_itself() {
    device("inflight=on", Duration::from_secs(2));
}

/// Trusted with the pool it may spoil every packet in it; but nothing besides, and no slot is lost.
#[test]
fn a_hostile_device_that_is_trusted_harms_the_bytes_of_packets_only() {
    device("trust=full", Duration::from_secs(2));
}

#[test]
#[ignore = "long: ten minutes of a hostile driver"]
fn a_hostile_driver_harms_only_itself_for_ten_minutes() {
    driver(Duration::from_secs(600));
}

#[test]
#[ignore = "long: ten minutes of a hostile device"]
fn a_hostile_device_harms_only_itself_for_ten_minutes() {
    device("inflight=on", Duration::from_secs(600));
}

#[test]
#[ignore = "long: ten minutes of a hostile device that is trusted"]
fn a_hostile_device_that_is_trusted_harms_the_bytes_of_packets_only_for_ten_minutes() {
    device("trust=full", Duration::from_secs(600));
}
