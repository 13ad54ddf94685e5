//! A front end that keeps to vhost-user: each message is answered as the specification says, and
//! does what it says.

use crate::End;
use crate::peer::*;
use linerate_core::packet::Burst;
use linerate_core::port::{Link, SleepOn};
use linerate_testkit::{Scratch, wait};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_PROTOCOL_FEATURES: u32 = 15;
const NET_SET_MTU: u32 = 20;
const GET_CONFIG: u32 = 24;
const SET_CONFIG: u32 = 25;
const RESET_DEVICE: u32 = 34;
const GET_MAX_MEM_SLOTS: u32 = 36;
const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;

const LOG_SHMFD: u64 = 1 << 1;
const REPLY_ACK: u64 = 1 << 3;
const CONFIG: u64 = 1 << 9;
const INFLIGHT_SHMFD: u64 = 1 << 12;
const STATUS: u64 = 1 << 16;

const LOG_ALL: u64 = 1 << 26;
const NEED_REPLY: u32 = 1 << 3;
/// Version 1, and what answers have.
const ANSWER: u32 = 1 | 1 << 2;

/// Where rings 0 and 1 are, as [`Peer::set_up`] has them: table, used ring, available ring.
const RING: [[u64; 3]; 2] = [[0, 0x2000, 0x1000], [0x1_0000, 0x1_2000, 0x1_1000]];
/// What the front end's buffers are filled from.
const BUFFERS: u64 = 0x4_0000;

struct Bench {
    _folder: Scratch,
    path: PathBuf,
    end: End,
}

impl Bench {
    fn new() -> Self {
        let folder = Scratch::new();
        let path = folder.path().join("s");
        let end = End::new(&format!("vhost:{}", path.display()), 1);
        Self {
            _folder: folder,
            path,
            end,
        }
    }

    fn peer(&self, protocol: u64) -> Peer {
        let mut peer = Peer::new(&self.path);
        let offered = peer.ask(GET_PROTOCOL_FEATURES, &[]).unwrap();
        assert_eq!(offered & protocol, protocol, "offered: {offered:#x}");
        peer.send(SET_PROTOCOL_FEATURES, &[protocol], &[]);
        peer
    }

    /// Sends so many frames of 60 bytes.
    fn send(&mut self, count: usize) {
        let mut burst = Burst::new();
        for number in 0..count {
            let packet = self.end.cache.copy_of(&crate::frame(number as u64, 60));
            burst.push(packet.unwrap()).unwrap();
        }
        wait("room for all frames", || {
            self.end.queues.tx[0].tx_burst(&mut burst, &mut self.end.cache);
            burst.is_empty()
        });
    }

    fn receive(&mut self) -> usize {
        let mut burst = Burst::new();
        let count = self.end.queues.rx[0].rx_burst(&mut burst, &mut self.end.cache);
        self.end.cache.free(&mut burst);
        count
    }

    fn finish(self) {
        assert_eq!(self.end.port.stats().violations, []);
        self.end.finish();
    }
}

impl Peer {
    /// Sends a request that is to be acknowledged; how it was.
    fn told(&mut self, request: u32, words: &[u64]) -> u64 {
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.told_bytes(request, &payload)
    }

    fn told_bytes(&mut self, request: u32, payload: &[u8]) -> u64 {
        self.put(
            [request, 1 | NEED_REPLY, payload.len() as u32],
            payload,
            &[],
        );
        let mut answer = [0; 20];
        self.0.read_exact(&mut answer).unwrap();
        let head = [request, ANSWER, 8].map(u32::to_le_bytes).concat();
        assert_eq!(answer[..12], head);
        u64::from_le_bytes(answer[12..].try_into().unwrap())
    }

    fn asked_bytes(&mut self, request: u32, payload: &[u8]) -> Vec<u8> {
        self.put([request, 1, payload.len() as u32], payload, &[]);
        let mut head = [0; 12];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[..8], [request, ANSWER].map(u32::to_le_bytes).concat());
        let bytes = u32::from_le_bytes(head[8..].try_into().unwrap());
        let mut answer = vec![0; bytes as usize];
        self.0.read_exact(&mut answer).unwrap();
        answer
    }

    /// Everything before was done.
    fn settle(&mut self) {
        assert!(self.ask(GET_FEATURES, &[]).is_some());
    }

    /// The next answer's payload as words, and its descriptor.
    fn answer_with_file(&mut self) -> (Vec<u64>, Option<OwnedFd>) {
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let flags = rustix::net::RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags).unwrap();
        let mut files = Vec::new();
        for message in control.drain() {
            if let rustix::net::RecvAncillaryMessage::ScmRights(some) = message {
                files.extend(some);
            }
        }
        assert!(files.len() < 2);
        let words = bytes[12..got.bytes].chunks_exact(8);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        (words.collect(), files.pop())
    }
}

fn descriptor(at: u64, len: u32, flags: u16) -> Vec<u8> {
    let mut bytes = at.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// Makes `count` buffers of one ring available, 5000 bytes apart, from its beginning on.
fn offer(file: &OwnedFd, ring: usize, count: u16) {
    let [table, _, available] = RING[ring];
    for index in 0..count {
        let flags = if ring == 0 { 2 } else { 0 };
        let at = BUFFERS + u64::from(index) * 5000;
        poke(
            file,
            table + u64::from(index) * 16,
            &descriptor(at, 1514, flags),
        );
        poke(
            file,
            available + 4 + 2 * u64::from(index),
            &index.to_le_bytes(),
        );
    }
    poke(file, available + 2, &count.to_le_bytes());
}

/// The pages that a log has, and has no longer.
fn pages(log: &OwnedFd) -> Vec<u64> {
    let mut bytes = [0; 64];
    rustix::io::pread(log, &mut bytes, 4096).unwrap();
    rustix::io::pwrite(log, &[0; 64], 4096).unwrap();
    let bits = (0..512_u64).filter(|bit| bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1);
    bits.collect()
}

#[test]
fn pages_that_we_write_to_are_logged_while_that_is_asked_for() {
    let mut bench = Bench::new();
    let mut peer = bench.peer(LOG_SHMFD | REPLY_ACK);
    let file = peer.set_up();
    bench.end.wait_up();
    offer(&file, 0, 64);
    let log = memory(8192);
    // Its bits begin in the second page of the file, and are enough for the region.
    peer.send(SET_LOG_BASE, &[64, 4096], &[log.as_fd()]);
    let answer = peer.answer_with_file();
    assert_eq!(answer.0, [0], "answered without being asked for an answer");
    peer.send(SET_LOG_FD, &[], &[eventfd().as_fd()]);
    bench.send(2);
    assert!(pages(&log).is_empty(), "not yet");
    // Buffers only: the third is at 0x42710, the fourth at 0x43a98.
    peer.send(SET_FEATURES, &[FEATURES | LOG_ALL], &[]);
    peer.settle();
    bench.send(2);
    assert_eq!(pages(&log), [0x42, 0x43]);
    // The used ring of queue 0, too, where the front end says that it is.
    let [table, used, available] = RING[0];
    let parts = [1 << 32, table, used, available, 0x7_0000];
    peer.send(SET_VRING_ADDR, &parts, &[]);
    peer.settle();
    bench.send(1);
    assert_eq!(pages(&log), [0x44, 0x70]);
    // A frame over the end of a page.
    peer.send(SET_VRING_ADDR, &[0, table, used, available, 0], &[]);
    let at = BUFFERS + 5 * 5000;
    poke(
        &file,
        table + 5 * 16,
        &descriptor(at / 4096 * 4096 + 4090, 1514, 2),
    );
    peer.settle();
    bench.send(1);
    assert_eq!(pages(&log), [at / 4096, at / 4096 + 1]);
    // What we read is no write, nor is what we only look at.
    offer(&file, 1, 8);
    wait("frames of the peer", || bench.receive() > 0);
    assert!(pages(&log).is_empty());
    peer.send(SET_FEATURES, &[FEATURES], &[]);
    peer.settle();
    bench.send(1);
    assert!(pages(&log).is_empty(), "no longer");
    drop(peer);
    bench.finish();
}

#[test]
fn the_configuration_space_is_read_and_written_as_the_specification_says() {
    let bench = Bench::new();
    let mut peer = bench.peer(CONFIG | REPLY_ACK);
    let request = |offset: u32, bytes: &[u8], flags: u32| {
        let size = bytes.len() as u32;
        let mut payload = [offset, size, flags].map(u32::to_le_bytes).concat();
        payload.extend(bytes);
        payload
    };
    let mtu = |peer: &mut Peer| {
        let answer = peer.asked_bytes(GET_CONFIG, &request(10, &[0; 2], 0));
        assert_eq!(answer[..12], request(10, &[0; 2], 0)[..12]);
        u16::from_le_bytes(answer[12..].try_into().unwrap())
    };
    assert_eq!(
        peer.asked_bytes(GET_CONFIG, &request(0, &[0; 24], 0)).len(),
        36
    );
    assert_eq!(mtu(&mut peer), 9000);
    // An empty payload is the answer to what cannot be read.
    assert!(
        peer.asked_bytes(GET_CONFIG, &request(250, &[0; 7], 0))
            .is_empty()
    );
    // The mtu as the front end sets it; nothing that is none.
    assert_eq!(peer.told(NET_SET_MTU, &[1500]), 0);
    assert_ne!(peer.told(NET_SET_MTU, &[67]), 0);
    assert_ne!(peer.told(NET_SET_MTU, &[9001]), 0);
    assert_eq!(mtu(&mut peer), 1500);
    // All of it is read-only, but for a guest that migrates here.
    assert_ne!(peer.told_bytes(SET_CONFIG, &request(10, &[0x40, 6], 0)), 0);
    assert_eq!(mtu(&mut peer), 1500);
    assert_eq!(peer.told_bytes(SET_CONFIG, &request(10, &[0x40, 6], 1)), 0);
    assert_eq!(mtu(&mut peer), 1600);
    // It is what the host set, and stays through a reset.
    peer.send(SET_STATUS, &[0], &[]);
    assert_eq!(mtu(&mut peer), 1600);
    bench.finish();
}

#[test]
fn a_device_whose_status_is_told_waits_for_driver_ok() {
    let mut bench = Bench::new();
    let mut peer = bench.peer(STATUS | REPLY_ACK);
    let file = peer.set_up();
    offer(&file, 1, 4);
    assert_eq!(peer.ask(GET_STATUS, &[]), Some(0));
    peer.send(SET_STATUS, &[11], &[]);
    assert_eq!(peer.ask(GET_STATUS, &[]), Some(11));
    for _ in 0..100 {
        assert_eq!(bench.receive(), 0, "virtio 1.2, 2.1.2");
    }
    assert_ne!(bench.end.port.link(), Link::Up);
    peer.send(SET_STATUS, &[15], &[]);
    bench.end.wait_up();
    wait("frames of the peer", || bench.receive() == 4);
    // 0 resets: rings are gone until they are set up again.
    peer.send(SET_STATUS, &[0], &[]);
    assert_eq!(peer.ask(GET_STATUS, &[]), Some(0));
    assert_ne!(bench.end.port.link(), Link::Up);
    // QEMU 7.2 asks only now where they were, to migrate them.
    assert_eq!(peer.ask(GET_VRING_BASE, &[1]), Some(4 << 32 | 1));
    peer.ring(0, 0);
    peer.ring(1, RING[1][0]);
    peer.state(SET_VRING_BASE, 1, 4);
    peer.send(SET_STATUS, &[15], &[]);
    bench.end.wait_up();
    bench.finish();
}

#[test]
fn a_reset_stops_all_rings_and_asked_for_answers_come_once() {
    let bench = Bench::new();
    let mut peer = bench.peer(REPLY_ACK | 1 << 13 | 1 << 15);
    let _file = peer.set_up();
    bench.end.wait_up();
    assert_eq!(peer.ask(GET_MAX_MEM_SLOTS, &[]), Some(509));
    assert_eq!(peer.told(RESET_DEVICE, &[]), 0);
    assert_ne!(bench.end.port.link(), Link::Up);
    // A request with an answer of its own has that one only.
    let answer = peer.told(GET_FEATURES, &[]);
    assert_ne!(answer & 1 << 32, 0);
    peer.ring(0, 0);
    peer.ring(1, RING[1][0]);
    assert_eq!(peer.told(SET_VRING_NUM, &[64 << 32]), 0);
    bench.end.wait_up();
    bench.finish();
}

/// Of both ends, while the peer is there, and of peers that are gone.
#[test]
fn notifications_are_counted_as_they_are_sent() {
    let folder = Scratch::new();
    let path = folder.path().join("s");
    let mut device = End::new(&format!("vhost:{}", path.display()), 1);
    let mut driver = End::new(&format!("virtio_user:{}", path.display()), 1);
    let notify = |from: &mut End, to: &mut End| {
        let before = from.port.stats().notifications;
        let mut burst = Burst::new();
        wait("a receiver that sleeps", || {
            matches!(to.queues.rx[0].sleep_on(), SleepOn::Fd(_))
        });
        let late = to.queues.rx[0].rx_burst(&mut burst, &mut to.cache);
        assert_eq!(late, 0, "the last look");
        let packet = from.cache.copy_of(&crate::frame(0, 60));
        burst.push(packet.unwrap()).unwrap();
        assert_eq!(from.queues.tx[0].tx_burst(&mut burst, &mut from.cache), 1);
        from.queues.tx[0].flush(&mut from.cache);
        wait("a notification", || {
            from.port.stats().notifications > before
        });
        wait("the frame", || {
            to.queues.rx[0].rx_burst(&mut burst, &mut to.cache) > 0
        });
        to.cache.free(&mut burst);
        assert!([from, to].iter().all(|end| end.port.link() == Link::Up));
    };
    for _ in 0..2 {
        device.wait_up();
        driver.wait_up();
        notify(&mut device, &mut driver);
        notify(&mut driver, &mut device);
        let before = [&device, &driver].map(|end| end.port.stats().notifications);
        driver.stop();
        device.wait_down();
        let after = [&device, &driver].map(|end| end.port.stats().notifications);
        let kept = after
            .iter()
            .zip(before)
            .all(|(after, before)| *after >= before);
        assert!(kept, "of a peer that is gone: {before:?}, {after:?}");
        driver.start(1);
    }
    device.finish();
    driver.finish();
}

/// A device that answers as one, up to a request at which it goes: the requests that came.
fn serve(listener: &UnixListener, last: Option<u32>) -> (UnixStream, Vec<u32>) {
    let (socket, _) = listener.accept().unwrap();
    let answer = Peer(socket.try_clone().unwrap());
    let mut requests = Vec::new();
    while let Some((request, flags, payload, _)) = crate::hostile::receive(&socket) {
        let done = request == GET_FEATURES && !requests.is_empty();
        requests.push(request);
        let value = match request {
            GET_FEATURES => FEATURES | 1 << 34,
            GET_PROTOCOL_FEATURES => REPLY_ACK | INFLIGHT_SHMFD,
            _ => 0,
        };
        if request == GET_INFLIGHT_FD {
            let region = memory(1 << 16);
            let payload = [&(1_u64 << 16).to_le_bytes()[..], &payload[8..]].concat();
            answer.put([request, ANSWER, 24], &payload, &[region.as_fd()]);
        } else if value != 0 || flags & NEED_REPLY != 0 {
            answer.put([request, ANSWER, 8], &u64::to_le_bytes(value), &[]);
        }
        if done || Some(request) == last {
            break;
        }
    }
    (socket, requests)
}

#[test]
fn a_driver_hands_its_rings_on_and_begins_anew_where_that_fails() {
    let folder = Scratch::new();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let spec = format!("virtio_user:{},inflight=on", path.display());
    let end = End::new(&spec, 1);
    let turns = [
        (None, true, "the first one gets a record of its own"),
        (None, false, "the next one gets that of the first"),
        (Some(SET_VRING_KICK), false, "so does one after it"),
        (
            Some(SET_VRING_KICK),
            false,
            "the other may have been killed as it began",
        ),
        (None, true, "but two in a row do not like it"),
        (None, false, "and it goes on as before"),
    ];
    for (last, fresh, what) in turns {
        let (socket, requests) = serve(&listener, last);
        assert_eq!(
            requests.contains(&GET_INFLIGHT_FD),
            fresh,
            "{what}: {requests:?}"
        );
        assert!(requests.contains(&SET_INFLIGHT_FD), "{what}: {requests:?}");
        if last.is_none() {
            end.wait_up();
        }
        drop(socket);
        end.wait_down();
    }
    end.finish();
}

/// Another back end left three chains under way, out of order; they are done first, in its order,
/// and nothing is done twice.
#[test]
fn what_another_back_end_had_in_flight_is_done_first() {
    let mut bench = Bench::new();
    let mut peer = bench.peer(INFLIGHT_SHMFD | REPLY_ACK);
    peer.send(SET_FEATURES, &[FEATURES], &[]);
    // Two queues of 64 entries; some front ends send no padding.
    let numbers = 64 << 16 | 2_u64;
    let payload = [&[0; 16], &numbers.to_le_bytes()[..4]].concat();
    peer.put([GET_INFLIGHT_FD, 1, 20], &payload, &[]);
    let (words, region) = peer.answer_with_file();
    assert_eq!(words[1], 0, "from the file's start");
    let bytes = words[0];
    assert!(bytes >= 2 * 1088, "{bytes}");
    let region = region.unwrap();
    // Ring 1: six frames are available; 0 and 2 were used, 1, 3 and 4 are under way, 5 is new.
    let file = memory(REGION);
    offer(&file, 1, 6);
    for index in 0..6_u64 {
        let frame = [&[0; 12], &crate::frame(index, 60)[..]].concat();
        poke(&file, BUFFERS + index * 5000, &frame);
        poke(&file, RING[1][0] + index * 16 + 8, &72_u32.to_le_bytes());
    }
    poke(&file, RING[1][1] + 2, &2_u16.to_le_bytes());
    let part = 1088; // 16 + 64 * 16, a multiple of 64
    poke(&region, part + 8, &[1, 0, 64, 0]);
    // It had published both, and cleared the mark of one of them: 2 is the last batch.
    poke(&region, part + 12, &[2, 0, 1, 0]);
    for (head, counter) in [(1_u64, 9_u64), (3, 8), (4, 11), (2, 10)] {
        poke(&region, part + 16 + 16 * head, &[1]);
        poke(&region, part + 16 + 16 * head + 8, &counter.to_le_bytes());
    }
    peer.send(SET_INFLIGHT_FD, &[bytes, 0, numbers], &[region.as_fd()]);
    peer.send(SET_MEM_TABLE, &[1, 0, REGION, 0, 0], &[file.as_fd()]);
    for ring in 0..2 {
        peer.ring(ring, RING[ring as usize][0]);
    }
    bench.end.wait_up();
    let mut got = Vec::new();
    wait("four frames", || {
        let mut burst = Burst::new();
        bench.end.queues.rx[0].rx_burst(&mut burst, &mut bench.end.cache);
        got.extend(burst.iter().map(|packet| packet.data()[21]));
        bench.end.cache.free(&mut burst);
        got.len() >= 4
    });
    assert_eq!(got, [3, 1, 4, 5]);
    assert_eq!(bench.receive(), 0);
    let mut marks = [0; 64 * 16];
    rustix::io::pread(&region, &mut marks, part + 16).unwrap();
    assert!(
        marks.chunks(16).all(|entry| entry[0] == 0),
        "nothing is under way"
    );
    let mut used = [0; 2];
    rustix::io::pread(&file, &mut used, RING[1][1] + 2).unwrap();
    assert_eq!(used, [6, 0]);
    bench.finish();
}
