//! TCP with Linux: both open connections, bytes are compared.
//!
//! | module | what |
//! |---|---|
//! | this | one port at a time, options, many connections |
//! | [`matrix`] | both roles over every port, beside each congestion control of Linux |
//! | [`wires`] | every fault that a wire can have |
//! | [`seen`] | what tshark finds in captures of it |

mod matrix;
mod seen;
mod wires;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use linerate_stack::socket::{Event, Listen, SocketId, Source, Stack, StackConfig, interest};
use linerate_stack::tcp::config::Config;
use linerate_stack::tcp::connection::{Error, State};

use super::*;

const ECHO: u16 = 7;
const DISCARD: u16 = 9;

/// A stack on a port: port 7 sends everything back, port 9 takes everything.
struct Server {
    stack: Stack,
    out: Egress,
    rx: Box<dyn RxQueue>,
    start: Instant,
    listeners: Vec<linerate_stack::socket::ListenerId>,
    /// What is to be sent back, and whether the peer has closed.
    echoes: HashMap<SocketId, (Vec<u8>, bool)>,
    taken: u64,
    /// Echoes are read though what was read before could not be sent back yet.
    reads_on: bool,
    _port: Box<dyn Port>,
}

impl Server {
    /// `offloads`: whether the port gets long frames and unfinished checksums if it takes them.
    fn new(spec: &str, tcp: Config, offloads: bool) -> Self {
        let small = Pool::new(&PoolConfig::new("rx", 16_384)).unwrap();
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 512)
        };
        let pools = Pools::new(vec![small, Pool::new(&large).unwrap()]);
        let mut port = Drivers::new().open(spec).unwrap();
        let mut queues = port.start(&PortConfig::default(), &pools).unwrap();
        let mut out = Egress::new(PoolCache::new(pools.as_slice()));
        out.set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
        let config = StackConfig {
            connections: 4096,
            tcp,
            ..StackConfig::default()
        };
        let mut stack = Stack::new(&config, 0, &mut out).unwrap();
        let interface = InterfaceConfig {
            mac: MacAddr::local(7),
            addresses: vec![
                (OURS[0].parse().unwrap(), 24),
                (OURS[1].parse().unwrap(), 64),
            ],
            tx_offloads: offloads && port.info().tx_offloads,
            ..InterfaceConfig::default()
        };
        stack.host().add_interface(interface, 0, &mut out).unwrap();
        let mut io = stack.io(0, &mut out);
        let listeners = [ECHO, DISCARD].map(|port| {
            let listen = Listen {
                token: port.into(),
                ..Listen::on(port)
            };
            io.listen(listen).unwrap()
        });
        Self {
            stack,
            out,
            rx: queues.rx.remove(0),
            start: Instant::now(),
            listeners: listeners.into(),
            echoes: HashMap::new(),
            taken: 0,
            reads_on: false,
            _port: port,
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 + 1_000_000_000
    }

    /// One round of a worker, with its servers.
    fn round(&mut self) {
        let now_ns = self.now_ns();
        let mut burst = Burst::new();
        let came = self.rx.rx_burst(&mut burst, &mut self.out.cache);
        self.stack.receive(&mut burst, now_ns, &mut self.out);
        self.serve(now_ns);
        self.stack.turn(now_ns, &mut self.out);
        self.out.flush();
        // A wire with delays sends what is due only when it is asked to, as a worker does. Without
        // this the last frame before a pause would leave with the next, a retransmission.
        self.out.reclaim();
        if came == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Rounds until no connection is left. A peer that has read the end has yet to acknowledge it,
    /// and its acknowledgement may still be on the wire.
    fn settle(&mut self) {
        let start = Instant::now();
        while self.stack.connections() > 0 {
            let left = self.stack.connections();
            assert!(start.elapsed() < PATIENCE, "{left} connections stay");
            self.round();
        }
        assert!(self.echoes.is_empty());
    }

    /// Opens a connection to an echo server, sends so many bytes and compares what comes back.
    fn ask(&mut self, remote: SocketAddr, total: usize) {
        let now_ns = self.now_ns();
        let id = self
            .stack
            .io(now_ns, &mut self.out)
            .connect(None, remote)
            .unwrap();
        let (mut sent, mut seen, mut ended) = (0, 0, false);
        let mut room = vec![0; 1 << 16];
        let mut progress = Instant::now();
        while !ended {
            assert!(progress.elapsed() < PATIENCE, "{sent} {seen} of {total}");
            self.round();
            let now_ns = self.now_ns();
            let mut io = self.stack.io(now_ns, &mut self.out);
            // A shutdown of one that is not open yet would give it up (RFC 9293 3.10.4).
            if sent < total
                && io
                    .info(id)
                    .is_ok_and(|info| info.state == State::Established)
            {
                let end = (sent + 10_000).min(total);
                let bytes: Vec<u8> = (sent..end).map(byte).collect();
                match io.write(id, &bytes) {
                    Ok(count) => sent += count,
                    Err(error) => assert_eq!(error, Error::WouldBlock),
                }
                if sent == total {
                    io.shutdown(id).unwrap();
                }
            }
            match io.read(id, &mut room) {
                Ok(count) => {
                    for &found in &room[..count] {
                        assert_eq!(found, byte(seen), "at {seen}");
                        seen += 1;
                    }
                    ended = count == 0;
                    progress = Instant::now();
                }
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
        }
        assert_eq!(seen, total);
        let now_ns = self.now_ns();
        self.stack.io(now_ns, &mut self.out).close(id);
    }

    fn serve(&mut self, now_ns: u64) {
        let mut io = self.stack.io(now_ns, &mut self.out);
        for &listener in &self.listeners {
            while let Some((id, _)) = io.accept(listener) {
                let wanted = interest::READ | interest::WRITE | interest::EDGE;
                io.register(id, wanted, 0).unwrap();
                self.echoes.insert(id, (Vec::new(), false));
            }
        }
        let source = Source::Listener(self.listeners[0]);
        let mut events = [Event {
            source,
            token: 0,
            ready: 0,
        }; 64];
        let count = io.poll(&mut events);
        for event in &events[..count] {
            let Source::Connection(id) = event.source else {
                continue;
            };
            let Some((pending, is_over)) = self.echoes.get_mut(&id) else {
                continue;
            };
            let discards = io
                .addresses(id)
                .is_ok_and(|(local, _)| local.port() == DISCARD);
            let mut ends = false;
            loop {
                if !pending.is_empty() {
                    match io.write(id, pending) {
                        Ok(count) => drop(pending.drain(..count)),
                        Err(Error::WouldBlock) => {}
                        Err(_) => ends = true,
                    }
                    if ends {
                        break;
                    }
                }
                if *is_over || !(pending.is_empty() || self.reads_on) {
                    break;
                }
                let mut room = vec![0; 1 << 16];
                match io.read(id, &mut room) {
                    Ok(0) => *is_over = true,
                    Ok(count) if discards => self.taken += count as u64,
                    Ok(count) => pending.extend(&room[..count]),
                    Err(Error::WouldBlock) => break,
                    Err(_) => {
                        ends = true;
                        break;
                    }
                }
            }
            if ends || *is_over && pending.is_empty() {
                io.close(id);
                self.echoes.remove(&id);
            }
        }
    }
}

fn server(spec: &str, tcp: Config) -> Option<(Unnamed, Server)> {
    in_namespace(spec, || Server::new(spec, tcp, true))
}

/// The same where every frame on the wire is whole and has its checksums, either way.
fn plain_server(spec: &str, tcp: Config) -> Option<(Unnamed, Server)> {
    if !has(&["ethtool"]) {
        return None;
    }
    let (namespace, server) = in_namespace(spec, || Server::new(spec, tcp, false))?;
    // Some cannot be changed, of which ethtool complains.
    namespace.run("ethtool", "-K t0 tx off tso off gso off gro off");
    let shown = namespace.run("ethtool", "-k t0").stdout;
    let shown = String::from_utf8(shown).unwrap();
    for feature in ["tx-checksumming", "tcp-segmentation-offload"] {
        assert!(shown.contains(&format!("{feature}: off")), "{shown}");
    }
    Some((namespace, server))
}

/// Runs the server beside `work`, which is in the namespace.
fn beside<T: Send>(namespace: &Unnamed, server: &mut Server, work: impl FnOnce() -> T + Send) -> T {
    let inside = namespace.enter();
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            server.round();
        }
        worker.join()
    });
    drop(inside);
    let counts = server.out.drop_counts();
    let counts = counts.lock().unwrap();
    let drops = counts.iter().map(|(name, count)| (name, count.read()));
    let drops: Vec<_> = drops.filter(|(_, count)| *count > 0).collect();
    let tcp: Vec<_> = server
        .stack
        .tcp_stats()
        .iter()
        .filter(|(_, n)| *n > 0)
        .collect();
    println!("{tcp:?} {:?} dropped: {drops:?}", server.stack.stats());
    result.unwrap_or_else(|_| panic!("{tcp:?} {:?} dropped: {drops:?}", server.stack.stats()))
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Reads what there is at `seen`. Where a time limit is set the kernel does not go on by itself
/// behind a signal (signal(7)), such as that by which a machine is stopped for a moment.
fn read(stream: &mut TcpStream, room: &mut [u8], seen: usize) -> usize {
    loop {
        match stream.read(room) {
            Ok(count) => return count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("{error} at {seen}"),
        }
    }
}

/// Sends `total` bytes to an echo server and compares what comes back.
fn echo(stream: &mut TcpStream, total: usize) {
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).unwrap();
    stream.set_write_timeout(patience).unwrap();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for begin in (0..total).step_by(50_000) {
                let end = (begin + 50_000).min(total);
                let bytes: Vec<u8> = (begin..end).map(byte).collect();
                writer.write_all(&bytes).unwrap();
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let (mut seen, mut room) = (0, vec![0; 1 << 16]);
        loop {
            let count = read(stream, &mut room, seen);
            if count == 0 {
                break;
            }
            for &found in &room[..count] {
                assert_eq!(found, byte(seen), "at {seen}");
                seen += 1;
            }
        }
        assert_eq!(seen, total);
    });
}

/// Where the kernel echoes.
const PEER: u16 = 5000;

/// An echo server of the kernel, for so many connections one after the other.
fn echo_server(namespace: &Unnamed, connections: usize) -> std::thread::JoinHandle<()> {
    let listener = {
        let _inside = namespace.enter();
        TcpListener::bind(("::", PEER)).unwrap()
    };
    std::thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            let mut writer = stream.try_clone().unwrap();
            let sent = std::io::copy(&mut stream, &mut writer);
            sent.and_then(|_| writer.shutdown(Shutdown::Write)).unwrap();
        }
    })
}

fn connect(ours: &str, port: u16) -> TcpStream {
    let to = SocketAddr::new(ours.parse().unwrap(), port);
    TcpStream::connect_timeout(&to, Duration::from_secs(20)).unwrap()
}

#[test]
fn linux_opens_connections_and_gets_everything_back() {
    for spec in [TAP, VETH] {
        let Some((namespace, mut server)) = server(spec, Config::default()) else {
            return;
        };
        beside(&namespace, &mut server, || {
            for ours in OURS {
                for total in [0, 1, 1448, 100_000, 5_000_000] {
                    echo(&mut connect(ours, ECHO), total);
                }
                // A port without a listener.
                let to = SocketAddr::new(ours.parse().unwrap(), 81);
                let refused = TcpStream::connect(to).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            }
        });
        assert_eq!(server.stack.tcp_stats().opened_passive, 10, "{spec}");
        server.settle();
    }
}

#[test]
fn a_hundred_connections_at_once() {
    let Some((namespace, mut server)) = server(TAP, Config::default()) else {
        return;
    };
    beside(&namespace, &mut server, || {
        let mut all: Vec<_> = (0..100).map(|n| connect(OURS[n % 2], ECHO)).collect();
        for stream in &mut all {
            echo(stream, 20_000);
        }
    });
    server.settle();
}

#[test]
fn all_ways_to_agree_with_linux() {
    let default = Config::default();
    for (sack, timestamps, window_scaling, rack) in [
        (false, true, true, false),
        (true, false, true, true),
        (true, true, false, true),
        (false, false, false, false),
        (true, true, true, false),
    ] {
        let tcp = Config {
            sack,
            timestamps,
            window_scaling,
            rack,
            ..default.clone()
        };
        let spec = format!("{VETH},faulty=loss:0.01");
        let Some((namespace, mut server)) = server(&spec, tcp) else {
            return;
        };
        beside(&namespace, &mut server, || {
            echo(&mut connect(OURS[0], ECHO), 500_000);
        });
        server.settle();
    }
}

#[test]
fn we_open_connections_to_linux() {
    for spec in [TAP, VETH] {
        let Some((namespace, mut server)) = server(spec, Config::default()) else {
            return;
        };
        let kernel = echo_server(&namespace, KERNELS.len());
        for to in KERNELS {
            server.ask(SocketAddr::new(to.parse().unwrap(), PEER), 300_000);
        }
        kernel.join().unwrap();
        server.settle();
        // Nobody listens there.
        let now_ns = server.now_ns();
        let mut io = server.stack.io(now_ns, &mut server.out);
        let remote = SocketAddr::new(KERNELS[0].parse().unwrap(), 5001);
        let id = io.connect(None, remote).unwrap();
        let start = Instant::now();
        while server.stack.io(0, &mut server.out).error(id) != Some(Error::Refused) {
            assert!(start.elapsed() < PATIENCE);
            server.round();
        }
    }
}

#[test]
fn linux_sends_to_one_that_takes_everything() {
    let Some((namespace, mut server)) = server(TAP, Config::default()) else {
        return;
    };
    const TOTAL: u64 = 30_000_000;
    let ns = beside(&namespace, &mut server, || {
        let start = Instant::now();
        let mut stream = connect(OURS[0], DISCARD);
        for _ in 0..TOTAL / 100_000 {
            stream.write_all(&[1; 100_000]).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        start.elapsed()
    });
    assert_eq!(server.taken, TOTAL);
    println!("{} Mb/s", TOTAL * 8 / ns.as_micros().max(1) as u64);
}
