//! Segments of a lying peer, calls of a user and time, in any order, for a stack with a listener:
//! it never panics, what it sends is sound, and in the end every slot is home.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use linerate_core::port::TxQueue;
use linerate_core::run::{Egress, TxPath};
use linerate_stack::host::InterfaceConfig;
use linerate_stack::socket::{Listen, ListenerId, SocketId, Stack, StackConfig};
use linerate_stack::tcp::segment::{Header, Sacks, Segment, SynOptions};
use linerate_wire::tcp::{Tcp, flag};
use linerate_wire::{EtherType, MacAddr, checksum, ethernet, ipv4, protocol};

const OURS: [u8; 4] = [192, 0, 2, 1];
const PEERS: [u8; 4] = [192, 0, 2, 2];
const PORT: u16 = 80;
const SLOTS: u32 = 512;

thread_local! {
    /// Made once: mapping pools for each input would take nearly all the time.
    static FIXTURE: RefCell<Fixture> = RefCell::new(Fixture::new());
}

pub(crate) fn check(input: &[u8]) {
    FIXTURE.with_borrow_mut(|fixture| fixture.check(input));
}

type Line = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port that keeps what is sent.
struct Recorder(Line);

impl TxQueue for Recorder {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        if let Ok(mut line) = self.0.lock() {
            line.extend(burst.iter().map(|packet| packet.data().to_vec()));
        }
        cache.free(burst);
        count
    }
}

struct Fixture {
    pool: Pool,
}

/// A run of one input.
struct Run {
    stack: Stack,
    out: Egress,
    line: Line,
    now_ns: u64,
    listener: ListenerId,
    ids: Vec<SocketId>,
    /// What the peer thinks: the next sequence number that it sends, and that it expects.
    seq: u32,
    ack: u32,
    port: u16,
    clock: u32,
}

impl Fixture {
    fn new() -> Self {
        let config = PoolConfig {
            pages: PagePolicy::Only(PageKind::Base4K),
            ..PoolConfig::new("small", SLOTS)
        };
        Self {
            pool: Pool::new(&config).expect("memory for a few slots"),
        }
    }

    fn check(&mut self, input: &[u8]) {
        let mut run = Run::new(&self.pool);
        let mut input = input;
        while let Some((&[what, a, b, c], rest)) = input.split_first_chunk::<4>() {
            input = rest;
            run.step(what, a, b, c);
            run.check_sent();
        }
        run.end();
        drop(run);
        let stats = self.pool.stats();
        assert_eq!(stats.free_shared, stats.slots, "slots are missing");
    }
}

impl Run {
    fn new(pool: &Pool) -> Self {
        let mut out = Egress::new(PoolCache::new(std::slice::from_ref(pool)));
        let line = Line::default();
        out.set_outlet(0, Some(TxPath::Queue(Box::new(Recorder(line.clone())))));
        let mut config = StackConfig {
            connections: 8,
            sent_frames: 64,
            send_chunks: 64,
            received_pkts: 64,
            received_bytes: 1 << 18,
            ..StackConfig::default()
        };
        config.time_wait.limit = 16;
        config.udp.sockets = 1;
        config.host.neighbours.max_entries = 16;
        let now_ns = 1_000_000_000;
        let mut stack = Stack::new(&config, now_ns, &mut out).expect("memory for a small stack");
        let interface = InterfaceConfig {
            mac: MacAddr::local(1),
            addresses: vec![(OURS.into(), 24)],
            ..InterfaceConfig::default()
        };
        let host = stack.host();
        let id = host.add_interface(interface, now_ns, &mut out);
        let id = id.expect("it is the first");
        host.add_neighbour(id, PEERS.into(), MacAddr::local(2), &mut out);
        let listen = Listen {
            half_open: 2,
            backlog: 4,
            ..Listen::on(PORT)
        };
        let listener = stack.io(now_ns, &mut out).listen(listen);
        Self {
            listener: listener.expect("nobody else listens"),
            stack,
            out,
            line,
            now_ns,
            ids: Vec::new(),
            seq: 1000,
            ack: 0,
            port: 1000,
            clock: 1,
        }
    }

    fn step(&mut self, what: u8, a: u8, b: u8, c: u8) {
        match what {
            0..160 => self.segment(what, a, b, c),
            160..200 => self.call(what, a, b),
            _ => {
                // From a tenth of a millisecond to ten minutes.
                let shift = u32::from(a % 23);
                self.now_ns += 100_000 << shift;
                self.clock = self.clock.wrapping_add(1 << (shift.saturating_sub(4)));
                self.stack.turn(self.now_ns, &mut self.out);
            }
        }
    }

    /// A segment near what the peer would send, or far from it.
    fn segment(&mut self, what: u8, a: u8, b: u8, c: u8) {
        let near = |base: u32, by: u8| match by {
            0..128 => base,
            128..200 => base.wrapping_add(u32::from(by).wrapping_sub(164)),
            200..240 => base.wrapping_add(u32::from(by).wrapping_sub(220) << 10),
            _ => base.wrapping_mul(u32::from(by)),
        };
        let flags = match what % 8 {
            0 => flag::SYN,
            1..4 => flag::ACK,
            4 => flag::ACK | flag::PSH,
            5 => flag::ACK | flag::FIN,
            6 => flag::RST,
            _ => a ^ b,
        };
        let payload = vec![c; usize::from(c) * usize::from(what / 8 % 4)];
        let mut sacks = Sacks::NONE;
        if what / 32 == 1 {
            sacks.push((near(self.ack, b), near(self.ack, c)));
            sacks.push((near(self.ack, c), near(self.ack, a).wrapping_add(1448)));
        }
        let is_syn = flags & flag::SYN != 0;
        if is_syn && what < 64 {
            self.port = self.port.wrapping_add(u16::from(a % 3));
        }
        let header = Header {
            seq: near(self.seq, a),
            ack: near(self.ack, b),
            flags,
            window: u16::from(c) << (a % 9),
            urgent: near(u32::from(b), c) as u16,
            timestamps: (what < 128).then_some((near(self.clock, c), self.clock)),
            sacks,
            syn: is_syn.then_some(SynOptions {
                mss: Some(u16::from(b) * 8),
                window_scale: Some(c % 16),
                sack_permitted: what < 140,
                fast_open: None,
            }),
        };
        let mut segment = vec![0; header.len()];
        header.write(self.port, PORT, &mut segment);
        segment.extend(&payload);
        if a < 128 {
            let controls = (flags & (flag::SYN | flag::FIN)).count_ones();
            self.seq = self.seq.wrapping_add(payload.len() as u32 + controls);
        }
        let len = segment.len() as u16;
        let pseudo = checksum::pseudo_v4(PEERS, OURS, protocol::TCP, len);
        if let Ok(mut tcp) = Tcp::new_checked(&mut segment[..]) {
            tcp.fill_checksum(pseudo);
        }
        let mut frame =
            ethernet::header(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).to_vec();
        let mut ip = ipv4::header(0, 64, protocol::TCP, PEERS.into(), OURS.into(), len);
        if what.is_multiple_of(5) {
            // Congestion was met: the checksum is computed anew.
            ip[1] = 3;
            ip[10..12].fill(0);
            let sum = checksum::checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend(ip);
        frame.extend(segment);
        let mut burst = Burst::new();
        if let Some(packet) = self.out.cache.copy_of(&frame) {
            // A new burst has room.
            let _ = burst.push(packet);
        }
        self.stack.receive(&mut burst, self.now_ns, &mut self.out);
        assert!(burst.is_empty());
    }

    fn call(&mut self, what: u8, a: u8, b: u8) {
        let mut io = self.stack.io(self.now_ns, &mut self.out);
        if let Some((id, _)) = io.accept(self.listener) {
            self.ids.push(id);
        }
        let Some(&id) = self.ids.get(usize::from(a) % self.ids.len().max(1)) else {
            if what < 170 {
                let remote: SocketAddr = (PEERS, PORT).into();
                self.ids.extend(io.connect(None, remote));
            }
            return;
        };
        let mut room = vec![0; usize::from(b) * 16];
        // Whatever comes of it.
        match what % 8 {
            0 => drop(io.read(id, &mut room)),
            1 | 2 => drop(io.write(id, &room)),
            3 => drop(io.shutdown(id)),
            4 if b < 32 => io.close(id),
            4 if b > 240 => io.abort(id),
            5 => drop(io.set_no_delay(id, b < 128)),
            6 => {
                if let Ok(Some((packet, span))) = io.take(id) {
                    let end = (span.start + span.len) as usize;
                    assert!(end <= packet.data().len());
                    io.give(packet);
                }
            }
            _ => {
                if let Ok(detached) = io.detach(id) {
                    let id = io.attach(detached).expect("its room is free");
                    self.ids.push(id);
                }
            }
        }
    }

    /// What was sent is sound, and tells the peer what it may acknowledge.
    fn check_sent(&mut self) {
        self.out.flush();
        let Ok(mut line) = self.line.lock() else {
            return;
        };
        for frame in line.drain(..) {
            if frame[12..14] != [8, 0] {
                continue;
            }
            let packet = &frame[14..];
            assert!(packet.len() <= 1500 && checksum::verify(&packet[..20]));
            let segment = &packet[20..];
            let len = segment.len() as u16;
            let pseudo = checksum::pseudo_v4(OURS, PEERS, protocol::TCP, len);
            let tcp = Tcp::new_checked(segment).expect("our own header");
            assert!(tcp.verify(pseudo));
            let read = Segment::read(segment).expect("our own header");
            if tcp.dst_port() == self.port {
                self.ack = read.end();
                if read.has(flag::ACK) {
                    self.seq = read.ack;
                }
            }
        }
    }

    fn end(&mut self) {
        let mut io = self.stack.io(self.now_ns, &mut self.out);
        io.close_listener(self.listener);
        for id in self.ids.drain(..) {
            io.abort(id);
        }
        // What was closed before ends by itself when nobody answers.
        for _ in 0..200 {
            self.now_ns += 60_000_000_000;
            self.stack.turn(self.now_ns, &mut self.out);
            self.out.flush();
        }
        assert_eq!((self.stack.connections(), self.stack.lingering()), (0, 0));
        assert_eq!(self.stack.held(), 0);
    }
}
