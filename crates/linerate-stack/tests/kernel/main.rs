//! The IP host against a Linux kernel, over a TAP or a veth pair in a network namespace. Skipped
//! where the test may not make one (that needs root).
#![allow(missing_docs, clippy::unwrap_used)]

mod tcp;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::port::{Port, PortConfig, RxQueue};
use linerate_core::run::{Egress, TxPath};
use linerate_drivers::Drivers;
use linerate_stack::host::ping::{Ping, PingConfig, PingId, Request};
use linerate_stack::host::udp::{Bind, Udp, UdpConfig, UdpId};
use linerate_stack::host::{ErrorKind, Host, HostConfig, Inbound, InterfaceConfig, InterfaceId};
use linerate_testkit::netns::Unnamed;
use linerate_testkit::{Random, has, skip};
use linerate_wire::MacAddr;

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

const OURS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const KERNELS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
const TAP: &str = "tap:t0";
/// Its other end is t0.
const VETH: &str = "af_packet:v0";
const XDP: &str = "af_xdp:v0";
/// Of our socket that sends everything back.
const ECHO: u16 = 7;

/// A host on a TAP.
struct Station {
    host: Host,
    udp: Udp,
    ping: Ping,
    out: Egress,
    inbound: Box<Inbound>,
    rx: Box<dyn RxQueue>,
    echo: UdpId,
    id: InterfaceId,
    start: Instant,
    _port: Box<dyn Port>,
}

impl Station {
    fn new(spec: &str) -> Self {
        let small = Pool::new(&PoolConfig::new("rx", 4096)).unwrap();
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 128)
        };
        let pools = Pools::new(vec![small, Pool::new(&large).unwrap()]);
        let mut port = Drivers::new().open(spec).unwrap();
        let mut queues = port.start(&PortConfig::default(), &pools).unwrap();
        let mut out = Egress::new(PoolCache::new(pools.as_slice()));
        out.set_outlet(0, Some(TxPath::Queue(queues.tx.remove(0))));
        let mut host = Host::new(&HostConfig::default(), 0, &mut out).unwrap();
        let interface = InterfaceConfig {
            mac: MacAddr::local(7),
            addresses: vec![
                (OURS[0].parse().unwrap(), 24),
                (OURS[1].parse().unwrap(), 64),
            ],
            tx_offloads: port.info().tx_offloads,
            ..InterfaceConfig::default()
        };
        let id = host.add_interface(interface, 0, &mut out).unwrap();
        let mut udp = Udp::new(&UdpConfig::default()).unwrap();
        let bind = Bind {
            port: ECHO,
            ..Bind::default()
        };
        let echo = udp.bind(&mut host, bind).unwrap();
        Self {
            ping: Ping::new(&PingConfig::default()),
            inbound: Box::default(),
            rx: queues.rx.remove(0),
            start: Instant::now(),
            _port: port,
            host,
            udp,
            out,
            echo,
            id,
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// One round of a worker.
    fn round(&mut self) {
        let now_ns = self.now_ns();
        let Self {
            host,
            udp,
            ping,
            out,
            inbound,
            rx,
            ..
        } = self;
        let mut burst = Burst::new();
        let came = rx.rx_burst(&mut burst, &mut out.cache);
        host.receive(&mut burst, now_ns, inbound, out);
        udp.deliver(host, &mut burst, inbound, now_ns, out);
        ping.deliver(host, &mut burst, inbound, now_ns, out);
        host.drop_unclaimed(&mut burst, inbound, now_ns, out);
        while let Some(mut datagram) = udp.recv(self.echo).unwrap() {
            // Without a copy.
            assert!(datagram.packet.trim_front(datagram.start));
            datagram.packet.truncate(datagram.len);
            let to = Some(datagram.about.from);
            let packet = datagram.packet;
            udp.send_packet(host, self.echo, packet, to, now_ns, out)
                .unwrap();
        }
        host.turn(now_ns, out);
        out.flush();
        if came == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Rounds until something holds.
    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "waited for {what} in vain");
            self.round();
            if let Some(done) = done(self) {
                return done;
            }
        }
    }

    /// Asks an address once; the reply's payload.
    fn ask(&mut self, id: PingId, to: IpAddr, seq: u16, payload: &[u8]) -> Vec<u8> {
        let now_ns = self.now_ns();
        let Self {
            host, ping, out, ..
        } = self;
        let request = Request::new(to, seq, payload);
        ping.send(host, id, &request, now_ns, out).unwrap();
        self.until("a reply", |station| {
            let reply = station.ping.recv(id).unwrap()?;
            assert_eq!((reply.from, reply.seq), (to, seq));
            let payload = reply.payload().to_vec();
            station.out.consume_one(reply.packet);
            Some(payload)
        })
    }
}

/// A namespace with a TAP or a veth pair, whose kernel end has addresses and knows no router, and
/// what is made of the other end.
fn in_namespace<T>(spec: &str, make: impl FnOnce() -> T) -> Option<(Unnamed, T)> {
    let namespace = match Unnamed::new() {
        Ok(namespace) => namespace,
        Err(reason) => {
            skip(&reason);
            return None;
        }
    };
    namespace.ip("link set lo up");
    if !spec.starts_with(TAP) {
        namespace.ip("link add v0 type veth peer name t0");
        namespace.quiet("v0");
        namespace.ip("link set v0 up");
    }
    let made = {
        let _inside = namespace.enter();
        make()
    };
    namespace.ip(&format!("addr add {}/24 dev t0", KERNELS[0]));
    namespace.ip(&format!("addr add {}/64 dev t0 nodad", KERNELS[1]));
    namespace.ip("link set t0 up");
    // Until then the kernel drops what it sends.
    let start = Instant::now();
    while !is_up(&namespace) {
        assert!(start.elapsed() < PATIENCE, "t0 does not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some((namespace, made))
}

/// The same with a host.
fn station(spec: &str) -> Option<(Unnamed, Station)> {
    in_namespace(spec, || Station::new(spec))
}

fn is_up(namespace: &Unnamed) -> bool {
    let shown = namespace.run("ip", "link show dev t0").stdout;
    let shown = String::from_utf8(shown).unwrap();
    // A TAP's state is unknown.
    shown.contains("LOWER_UP") && !shown.contains("DOWN") && !shown.contains("qdisc noop ")
}

/// Runs the host beside `work`, which is in the namespace.
fn beside<T: Send>(
    namespace: &Unnamed,
    station: &mut Station,
    work: impl FnOnce() -> T + Send,
) -> T {
    let done = AtomicBool::new(false);
    let inside = namespace.enter();
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            done.store(true, Ordering::Release);
            result
        });
        while !(done.load(Ordering::Acquire) || worker.is_finished()) {
            station.round();
        }
        worker.join()
    });
    drop(inside);
    let counts = station.out.drop_counts();
    let counts = counts.lock().unwrap();
    let drops = counts.iter().map(|(name, count)| (name, count.read()));
    let drops: Vec<_> = drops.filter(|(_, count)| *count > 0).collect();
    let stats = station.host.stats();
    result.unwrap_or_else(|_| panic!("{stats:?}, dropped: {drops:?}"))
}

#[test]
fn linux_pings_us_over_both_families() {
    if !has(&["ping"]) {
        return;
    }
    let Some((namespace, mut station)) = station(TAP) else {
        return;
    };
    beside(&namespace, &mut station, || {
        for ours in OURS {
            for words in ["-c 3 -i 0.2", "-c 2 -i 0.2 -s 3000", "-c 1 -s 20000"] {
                let mut command = std::process::Command::new("ping");
                command
                    .args(words.split_whitespace())
                    .args(["-W", "5", ours]);
                let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
                assert!(said.contains(" 0% packet loss"), "{words} {ours}: {said}");
            }
        }
    });
    let stats = station.host.stats();
    assert_eq!(
        (stats.echo_replies, stats.reassembled),
        (12, 6),
        "{stats:?}"
    );
}

#[test]
fn linux_speaks_udp_with_us_over_both_families() {
    for spec in [TAP, VETH] {
        let Some((namespace, mut station)) = station(spec) else {
            return;
        };
        beside(&namespace, &mut station, || {
            for (ours, kernels) in OURS.into_iter().zip(KERNELS) {
                let any = SocketAddr::new(kernels.parse().unwrap(), 0);
                let socket = UdpSocket::bind(any).unwrap();
                socket
                    .set_read_timeout(Some(Duration::from_secs(5)))
                    .unwrap();
                socket
                    .connect(SocketAddr::new(ours.parse().unwrap(), ECHO))
                    .unwrap();
                let mut room = vec![0; 70_000];
                for len in [0, 1, 999, 1472, 1473, 8000, 40_000] {
                    let payload: Vec<u8> = (0..len).map(|n| (n * 3) as u8).collect();
                    socket.send(&payload).unwrap();
                    let got = socket
                        .recv(&mut room)
                        .unwrap_or_else(|error| panic!("{len} bytes to {ours}, {spec}: {error}"));
                    assert_eq!(room[..got], payload);
                }
                // RFC 1122 4.1.3.1.
                socket
                    .connect(SocketAddr::new(ours.parse().unwrap(), 9))
                    .unwrap();
                socket.send(b"anybody?").unwrap();
                let refused = socket.recv(&mut room).unwrap_err();
                assert_eq!(
                    refused.kind(),
                    std::io::ErrorKind::ConnectionRefused,
                    "{ours}"
                );
            }
        });
        let stats = station.host.stats();
        assert_eq!((stats.reassembled, stats.errors_sent), (7, 2), "{stats:?}");
        assert!(station.host.neighbours().count() >= 2);
    }
}

#[test]
fn we_ping_linux_and_hear_of_its_closed_ports() {
    let Some((_namespace, mut station)) = station(TAP) else {
        return;
    };
    for to in KERNELS {
        let to: IpAddr = to.parse().unwrap();
        let id = station.ping.open(&mut station.host, None).unwrap();
        for (seq, len) in [(1, 56), (2, 3000), (3, 20_000)] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            assert_eq!(station.ask(id, to, seq, &payload), payload);
        }
        let client = station
            .udp
            .bind(&mut station.host, Bind::default())
            .unwrap();
        let remote = SocketAddr::new(to, 9);
        station
            .udp
            .connect(&mut station.host, client, remote)
            .unwrap();
        let now_ns = station.now_ns();
        let Station { host, udp, out, .. } = &mut station;
        udp.send_to(host, client, b"anybody?", None, now_ns, out)
            .unwrap();
        let fault = station.until("a fault", |station| station.udp.take_fault(client).unwrap());
        assert_eq!(
            (fault.kind, fault.remote),
            (ErrorKind::PortUnreachable, remote)
        );
    }
    // A neighbour that is not there.
    let client = station
        .udp
        .bind(&mut station.host, Bind::default())
        .unwrap();
    let now_ns = station.now_ns();
    let Station { host, udp, out, .. } = &mut station;
    let nobody = Some("192.0.2.77:9".parse().unwrap());
    udp.send_to(host, client, b"anybody?", nobody, now_ns, out)
        .unwrap();
    let fault = station.until("a fault", |station| station.udp.take_fault(client).unwrap());
    assert_eq!(fault.kind, ErrorKind::HostUnreachable);
    assert!(station.host.remove_interface(station.id, &mut station.out));
}
