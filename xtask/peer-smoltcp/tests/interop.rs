//! linerate's stack and smoltcp over a link in memory, in virtual time: each in both roles, with
//! and without losses; what arrives is what was sent, both ways at once, and both ends close.
//!
//! `cargo test --manifest-path xtask/peer-smoltcp/Cargo.toml`

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use linerate_core::port::TxQueue;
use linerate_core::run::{Egress, TxPath};
use linerate_stack::host::InterfaceConfig;
use linerate_stack::socket::{Listen, ListenerId, SocketId, Stack, StackConfig};
use linerate_wire::MacAddr;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// Bytes of each direction.
const TOTAL: usize = 1 << 20;
const PORT: u16 = 80;
const OURS: [u8; 4] = [192, 0, 2, 1];
const THEIRS: [u8; 4] = [192, 0, 2, 2];

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

type Line = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port that keeps what is sent.
struct Recorder(Line);

impl TxQueue for Recorder {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let count = burst.len();
        let mut line = self.0.lock().unwrap();
        line.extend(burst.iter().map(|packet| packet.data().to_vec()));
        cache.free(burst);
        count
    }
}

struct Ours {
    stack: Stack,
    out: Egress,
    line: Line,
    pool: Pool,
}

impl Ours {
    fn new() -> Self {
        let pool = Pool::new(&PoolConfig::new("rx", 8192)).unwrap();
        let mut out = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
        let line = Line::default();
        out.set_outlet(0, Some(TxPath::Queue(Box::new(Recorder(line.clone())))));
        let config = StackConfig {
            connections: 16,
            sent_frames: 4096,
            send_chunks: 2048,
            received_pkts: 4096,
            received_bytes: 16 << 20,
            ..StackConfig::default()
        };
        let mut stack = Stack::new(&config, 0, &mut out).unwrap();
        let interface = InterfaceConfig {
            port: 0,
            mac: MacAddr::local(1),
            addresses: vec![(OURS.into(), 24)],
            ..InterfaceConfig::default()
        };
        stack.host().add_interface(interface, 0, &mut out).unwrap();
        Self {
            stack,
            out,
            line,
            pool,
        }
    }

    fn receive(&mut self, frames: &[Vec<u8>], now_ns: u64) {
        for frames in frames.chunks(Burst::CAPACITY) {
            let mut burst = Burst::new();
            for frame in frames {
                let packet = self.out.cache.copy_of(frame).expect("there are slots");
                assert!(burst.push(packet).is_ok());
            }
            self.stack.receive(&mut burst, now_ns, &mut self.out);
        }
    }

    fn take(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        self.stack.turn(now_ns, &mut self.out);
        self.out.flush();
        self.line.lock().unwrap().drain(..).collect()
    }
}

/// smoltcp's device: what has come, and what is to go.
#[derive(Default)]
struct Wire {
    rx: VecDeque<Vec<u8>>,
    tx: Vec<Vec<u8>>,
}

struct RxToken(Vec<u8>);
struct TxToken<'a>(&'a mut Vec<Vec<u8>>);

impl phy::RxToken for RxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(&self.0)
    }
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, work: F) -> R {
        let mut frame = vec![0; len];
        let result = work(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = RxToken;
    type TxToken<'a> = TxToken<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(RxToken, TxToken<'_>)> {
        let frame = self.rx.pop_front()?;
        Some((RxToken(frame), TxToken(&mut self.tx)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        Some(TxToken(&mut self.tx))
    }
}

struct Theirs {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    wire: Wire,
}

impl Theirs {
    fn new() -> Self {
        let mut wire = Wire::default();
        let mac = EthernetAddress([2, 0, 0, 0, 0, 2]);
        let mut interface = Interface::new(Config::new(mac.into()), &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let address = IpAddress::v4(192, 0, 2, 2);
            addresses.push(IpCidr::new(address, 24)).unwrap();
        });
        let mut sockets = SocketSet::new(Vec::new());
        let room = || SocketBuffer::new(vec![0; 100_000]);
        let socket = sockets.add(Socket::new(room(), room()));
        Self {
            interface,
            sockets,
            socket,
            wire,
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn poll(&mut self, now_ns: u64) {
        let now = Instant::from_micros((now_ns / 1000) as i64);
        self.interface.poll(now, &mut self.wire, &mut self.sockets);
    }
}

/// A link that loses one in so many frames, each way.
struct Link {
    ours: Ours,
    theirs: Theirs,
    now_ns: u64,
    one_in: Option<u64>,
    frames: u64,
    lost: u64,
}

impl Link {
    fn loses(&mut self) -> bool {
        self.frames += 1;
        // A mixed count, so that losses do not keep step with anything.
        let mixed = self.frames.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let loses = self.one_in.is_some_and(|one_in| mixed % one_in == 0);
        self.lost += u64::from(loses);
        loses
    }

    /// A millisecond.
    fn step(&mut self) {
        self.now_ns += MS;
        let mut there = self.ours.take(self.now_ns);
        there.retain(|_| !self.loses());
        self.theirs.wire.rx.extend(there);
        self.theirs.poll(self.now_ns);
        let mut back = std::mem::take(&mut self.theirs.wire.tx);
        back.retain(|_| !self.loses());
        self.ours.receive(&back, self.now_ns);
    }
}

fn run(we_open: bool, one_in: Option<u64>) {
    let mut link = Link {
        ours: Ours::new(),
        theirs: Theirs::new(),
        now_ns: S,
        one_in,
        frames: 0,
        lost: 0,
    };
    let (mut listener, mut id): (Option<ListenerId>, Option<SocketId>) = (None, None);
    let now_ns = link.now_ns;
    let mut io = link.ours.stack.io(now_ns, &mut link.ours.out);
    if we_open {
        link.theirs.socket().listen(PORT).unwrap();
        let to = SocketAddr::from((THEIRS, PORT));
        id = Some(io.connect(None, to).unwrap());
    } else {
        listener = io.listen(Listen::on(PORT));
        let Theirs {
            interface,
            sockets,
            socket,
            ..
        } = &mut link.theirs;
        let to = (IpAddress::v4(192, 0, 2, 1), PORT);
        let socket = sockets.get_mut::<Socket>(*socket);
        socket.connect(interface.context(), to, 5000).unwrap();
    }
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    let mut buffer = vec![0; 1 << 16];
    while got != [TOTAL; 2] {
        assert!(link.now_ns < 600 * S, "{sent:?} {got:?} {one_in:?}");
        link.step();
        let now_ns = link.now_ns;
        let mut io = link.ours.stack.io(now_ns, &mut link.ours.out);
        id = id.or_else(|| io.accept(listener?).map(|(id, _)| id));
        if let Some(id) = id {
            let bytes: Vec<_> = (sent[0]..TOTAL.min(sent[0] + 20_000)).map(byte).collect();
            sent[0] += io.write(id, &bytes).unwrap_or(0);
            while let Ok(count @ 1..) = io.read(id, &mut buffer) {
                for &found in &buffer[..count] {
                    assert_eq!(found, byte(got[1]));
                    got[1] += 1;
                }
            }
        }
        let socket = link.theirs.socket();
        if socket.can_send() {
            let bytes: Vec<_> = (sent[1]..TOTAL.min(sent[1] + 20_000)).map(byte).collect();
            sent[1] += socket.send_slice(&bytes).unwrap();
        }
        while socket.can_recv() {
            let count = socket.recv_slice(&mut buffer).unwrap();
            for &found in &buffer[..count] {
                assert_eq!(found, byte(got[0]));
                got[0] += 1;
            }
        }
    }
    assert_eq!(link.lost > 0, one_in.is_some());
    // Who has opened closes first.
    let id = id.unwrap();
    for ours in [we_open, !we_open] {
        let now_ns = link.now_ns;
        match ours {
            true => link.ours.stack.io(now_ns, &mut link.ours.out).close(id),
            false => link.theirs.socket().close(),
        }
        (0..200).for_each(|_| link.step());
    }
    (0..120_000).for_each(|_| link.step());
    let state = link.theirs.socket().state();
    assert!(
        matches!(state, State::Closed | State::TimeWait),
        "{state:?}"
    );
    assert_eq!(
        (link.ours.stack.connections(), link.ours.stack.lingering()),
        (0, 0)
    );
    // Every slot is home but those that caches keep.
    link.ours.out.flush();
    let held = link.ours.out.cache.held_total() as u64 + link.ours.stack.held();
    let stats = link.ours.pool.stats();
    assert_eq!(u64::from(stats.slots - stats.free_shared), held);
}

#[test]
fn we_connect_to_smoltcp() {
    run(true, None);
}

#[test]
fn smoltcp_connects_to_us() {
    run(false, None);
}

#[test]
fn losses_lose_nothing_in_either_role() {
    for we_open in [true, false] {
        for one_in in [100, 20] {
            run(we_open, Some(one_in));
        }
    }
}
