//! What ends in the middle of traffic, and comes back: a driver, a guest, a machine, a port.

use super::{Host, Nic, devices, ends_well, ping, up};
use linerate_testkit::PATIENCE;
use linerate_testkit::cli::L2fwd;
use linerate_testkit::guest::Guest;
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::net::UdpSocket;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NICS: [Nic; 2] = [
    Nic::new("split", "", ""),
    Nic::new("packed", "", ",packed=on"),
];

/// The driver lets go of its devices, and takes them again.
const REBIND: &str = "cd /sys/bus/virtio/drivers/virtio_net
for device in virtio*; do echo $device > unbind; echo $device > bind; done";

/// After each of them traffic flows again; at the end the books are even, and two neighbours have
/// noticed nothing.
pub(super) fn guests_and_ports_come_and_go_under_load() {
    let Some(host) = Host::new() else { return };
    let ends = (Namespace::new("l"), Namespace::new("r"));
    let (Some(left), Some(right)) = ends else {
        return;
    };
    let [from, to] = [&left, &right].map(Namespace::name);
    let neighbours = format!("tap:left,netns={from} tap:right,netns={to}");
    let mut l2fwd = host.l2fwd(0, &NICS, &neighbours);
    let Some(mut guest) = Guest::start(&devices(&host.scratch, &NICS, 2)) else {
        return;
    };
    left.ip("addr add 10.9.0.1/24 dev left");
    right.ip("addr add 10.9.0.2/24 dev right");
    let stream = Stream::start(&left, &right);

    for lines in [
        REBIND,
        "rmmod virtio_net; insmod /proc/1/root/modules/virtio_net.ko",
    ] {
        let _load = load(&host, &mut guest, &mut l2fwd);
        guest.run(&format!("set -e\n{lines}"));
    }
    let servers = load(&host, &mut guest, &mut l2fwd);
    guest.reset();
    drop(servers);
    let servers = load(&host, &mut guest, &mut l2fwd);
    guest.replace();
    drop(servers);
    let servers = load(&host, &mut guest, &mut l2fwd);
    drop(servers);
    stream.ends_complete(&l2fwd);
    ends_well(l2fwd);

    // The port itself, ended and then killed.
    let split = &NICS[..1];
    let mut l2fwd = host.l2fwd(0, split, "");
    let servers = load_on(&host, &mut guest, &mut l2fwd, split);
    drop(l2fwd);
    drop(servers);
    let mut l2fwd = host.l2fwd(0, split, "");
    drop(load_on(&host, &mut guest, &mut l2fwd, split));
    ends_well(l2fwd);
    // Of a packed ring neither QEMU nor the new process knows where the old one was, until the
    // driver begins anew.
    let mut l2fwd = host.l2fwd(0, &NICS, "");
    guest.run(&format!("set -e\n{REBIND}"));
    drop(load(&host, &mut guest, &mut l2fwd));
}

/// Traffic flows, on all devices.
fn load(host: &Host, guest: &mut Guest, l2fwd: &mut L2fwd) -> Vec<Running> {
    load_on(host, guest, l2fwd, &NICS)
}

/// Pings go and bytes arrive unchanged; then TCP runs both ways at full speed, for as long as what
/// this returns lives.
#[track_caller]
fn load_on(host: &Host, guest: &mut Guest, l2fwd: &mut L2fwd, nics: &[Nic]) -> Vec<Running> {
    up(guest, nics.len(), 2);
    let mut servers = Vec::new();
    for net in 0..nics.len() {
        ping(guest, &format!("10.8.{net}.1"), 1472);
        host.there_and_back(guest, net);
        servers.push(host.iperf3(net));
        let client = format!("iperf3 --client 10.8.{net}.1 --time 600 --bidir");
        guest.run(&format!("{client} > /dev/null 2>&1 &"));
    }
    let ports = (0..nics.len()).map(|net| 2 * net);
    let before = l2fwd.report();
    l2fwd.wait("TCP both ways", |now| {
        ports.clone().all(|port| {
            let more = |counter| now.count(port, counter) > before.count(port, counter) + 500;
            more("rx_packets") && more("tx_packets")
        })
    });
    servers
}

/// Numbered datagrams between two others, each of which arrives in its turn.
struct Stream<'a> {
    namespaces: [&'a Namespace; 2],
    ends: Arc<AtomicBool>,
    send: JoinHandle<Duration>,
    receive: JoinHandle<Received>,
}

/// What the receiver has seen.
struct Received {
    /// Of so many datagrams, as the sender counts them.
    sent: u64,
    /// Numbers that never came.
    lost: Vec<Range<u64>>,
    /// The longest time for which none came, and the number that ended it.
    longest_wait: (Duration, u64),
}

impl<'a> Stream<'a> {
    fn start(left: &'a Namespace, right: &'a Namespace) -> Self {
        let bind = |address: &str| UdpSocket::bind(address).unwrap();
        let sender = left.inside(|| bind("10.9.0.1:0"));
        let receiver = right.inside(|| bind("10.9.0.2:0"));
        // A socket that is full drops what the ports have brought: here is room for minutes.
        set_socket_recv_buffer_size_force(&receiver, 32 << 20).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        // Known when the last one is sent.
        let all = Arc::new(AtomicU64::new(u64::MAX));
        let (is_last, count) = (ends.clone(), all.clone());
        let send = move || {
            let (mut number, mut last, mut longest_pause) = (0_u64, Instant::now(), Duration::ZERO);
            while !is_last.load(Ordering::Acquire) {
                sender.send(&number.to_be_bytes()).unwrap();
                number += 1;
                longest_pause = longest_pause.max(last.elapsed());
                last = Instant::now();
                std::thread::sleep(Duration::from_millis(5));
            }
            count.store(number, Ordering::Release);
            longest_pause
        };
        let receive = move || {
            let (mut bytes, mut next, mut last) = ([0; 8], 0, Instant::now());
            let (mut lost, mut longest_wait) = (Vec::new(), (Duration::ZERO, 0));
            while next < all.load(Ordering::Acquire) && last.elapsed() < PATIENCE {
                // Who has waited in vain looks whether there is more to come.
                if receiver.recv(&mut bytes).is_ok() {
                    let number = u64::from_be_bytes(bytes);
                    assert!(number >= next, "{number} came late or twice");
                    if number > next {
                        lost.push(next..number);
                    }
                    longest_wait = longest_wait.max((last.elapsed(), number));
                    last = Instant::now();
                    next = number + 1;
                }
            }
            let sent = all.load(Ordering::Acquire);
            if next < sent {
                lost.push(next..sent);
            }
            Received {
                sent,
                lost,
                longest_wait,
            }
        };
        Self {
            namespaces: [left, right],
            ends,
            send: std::thread::spawn(send),
            receive: std::thread::spawn(receive),
        }
    }

    /// Ends it: all that was sent has arrived, in order. Where that is not so, what each place on
    /// the way has counted tells which: the kernel's ends of the TAPs, the ports, the sockets.
    #[track_caller]
    fn ends_complete(self, l2fwd: &L2fwd) {
        self.ends.store(true, Ordering::Release);
        let longest_pause = self.send.join().unwrap();
        let Received {
            sent,
            lost,
            longest_wait: (wait, number),
        } = self.receive.join().unwrap();
        let report = l2fwd.report();
        let said = format!(
            "{lost:?} of {sent} datagrams are lost; longest wait {wait:?}, for {number}; longest \
             pause of the sender {longest_pause:?}, of the worker {} ns",
            report.0["lcores"][0]["longest_gap_ns"]
        );
        println!("{said}");
        if !lost.is_empty() {
            let counts = |namespace: &Namespace| {
                let links = namespace.ip("-s link") + &namespace.ip("-s neigh");
                let sockets = namespace.run("nstat", "-asz Udp*").stdout;
                links + &String::from_utf8_lossy(&sockets)
            };
            let [left, right] = self.namespaces.map(counts);
            panic!("{said}\n{left}\n{right}\n{report}");
        }
        assert!(sent > 1000);
    }
}
