//! What ends in the middle of traffic, and comes back: a driver, a guest, a machine, a port.

use super::{Host, Nic, devices, ends_well, ping, up};
use linerate_testkit::cli::L2fwd;
use linerate_testkit::guest::Guest;
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use linerate_testkit::wait;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

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
    let said = || {
        let (taps, sockets) = (left.ip("-s link"), right.run("cat", "/proc/net/udp"));
        format!("{}\n{taps}\n{sockets:?}", l2fwd.report())
    };
    stream.ends_complete(&said);
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
struct Stream {
    ends: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    threads: [JoinHandle<()>; 2],
}

impl Stream {
    fn start(left: &Namespace, right: &Namespace) -> Self {
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
        let [sent, received, lost] = std::array::from_fn(|_| Arc::new(AtomicU64::new(0)));
        let send = {
            let (ends, sent) = (ends.clone(), sent.clone());
            move || {
                while !ends.load(Ordering::Acquire) {
                    let number = sent.load(Ordering::Relaxed);
                    sender.send(&number.to_be_bytes()).unwrap();
                    sent.store(number + 1, Ordering::Release);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        };
        let receive = {
            let (ends, sent) = (ends.clone(), sent.clone());
            let (received, lost) = (received.clone(), lost.clone());
            move || {
                let mut bytes = [0; 8];
                let mut next = 0_u64;
                while !(ends.load(Ordering::Acquire) && next == sent.load(Ordering::Acquire)) {
                    // A receiver that has waited in vain looks whether it is to end.
                    if receiver.recv(&mut bytes).is_ok() {
                        let number = u64::from_be_bytes(bytes);
                        assert!(number >= next, "{number} came late or twice");
                        lost.fetch_add(number - next, Ordering::Relaxed);
                        next = number + 1;
                        received.store(next, Ordering::Release);
                    }
                }
            }
        };
        Self {
            ends,
            sent,
            received,
            lost,
            threads: [std::thread::spawn(send), std::thread::spawn(receive)],
        }
    }

    /// Ends it: all that was sent has arrived, in order. `state` is printed where that is not so.
    #[track_caller]
    fn ends_complete(self, state: &dyn Fn() -> String) {
        self.ends.store(true, Ordering::Release);
        let [send, receive] = self.threads;
        send.join().unwrap();
        let all = self.sent.load(Ordering::Acquire);
        let has = || self.received.load(Ordering::Acquire);
        wait("the last datagram", || {
            receive.is_finished() || has() == all
        });
        receive.join().unwrap();
        let lost = self.lost.load(Ordering::Acquire);
        assert_eq!(lost, 0, "of {all} datagrams are lost: {}", state());
        assert!(all > 1000 && has() == all, "{} of {all} datagrams", has());
    }
}
