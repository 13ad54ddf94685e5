//! Guests on `vhost` ports: QEMU's virtio-net and Linux' own driver, with `linerate l2fwd` between
//! them and the TAPs of a name space, or between two guests.
//!
//! ```text
//! guest: eth0 10.8.0.2 ---- vhost :l2fwd: tap ---- 10.8.0.1 :name space
//!        eth1 10.8.1.2 ---- vhost :l2fwd: tap ---- 10.8.1.1
//! ```
//!
//! One guest has as many devices as there is something to tell apart, since its boot takes longest.

mod between;
mod departures;
mod rings;

use linerate_testkit::cli::L2fwd;
use linerate_testkit::guest::Guest;
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use linerate_testkit::{Scratch, harness::Test, has, tests, traffic};
use std::io::{Read, Write};
use std::net::TcpListener;

use between::two_guests_reach_each_other_with_and_without_offloads;
use departures::guests_and_ports_come_and_go_under_load;
use rings::every_kind_of_ring_carries_a_guests_traffic;

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: boots a guest under emulation"]
    every_kind_of_ring_carries_a_guests_traffic,
    #[ignore = "long: boots a guest three times under emulation"]
    guests_and_ports_come_and_go_under_load,
    #[ignore = "long: boots two guests under emulation"]
    two_guests_reach_each_other_with_and_without_offloads,
];

/// A network device of a guest.
#[derive(Clone, Copy)]
struct Nic {
    name: &'static str,
    /// More options of the `vhost` port.
    port: &'static str,
    /// More options of QEMU's device.
    device: &'static str,
}

impl Nic {
    const fn new(name: &'static str, port: &'static str, device: &'static str) -> Self {
        Self { name, port, device }
    }

    /// The port's words.
    fn port(&self, scratch: &Scratch) -> String {
        format!("vhost:{}{}", scratch.file(self.name), self.port)
    }
}

/// QEMU's options for these devices, `eth0`, `eth1` and so on of the guest whose addresses end so.
/// QEMU connects, and tries again each second. Without vectors: see docs/ports.md.
fn devices(scratch: &Scratch, nics: &[Nic], last: u8) -> Vec<String> {
    let device = |(at, nic): (usize, &Nic)| {
        let (socket, options) = (scratch.file(nic.name), nic.device);
        let queues = if options.contains("mq=on") {
            ",queues=2"
        } else {
            ""
        };
        [
            "-chardev".to_owned(),
            format!("socket,id=socket{at},path={socket},reconnect=1"),
            "-netdev".to_owned(),
            format!("vhost-user,id=net{at},chardev=socket{at}{queues}"),
            "-device".to_owned(),
            format!(
                "virtio-net-pci,netdev=net{at},vectors=0,\
                 mac=52:54:00:00:{last:02x}:{at:02x}{options}"
            ),
        ]
    };
    nics.iter().enumerate().flat_map(device).collect()
}

/// The host's side of a guest: the kernel's ends of TAPs, in a name space of their own.
struct Host {
    namespace: Namespace,
    /// Where sockets are.
    scratch: Scratch,
}

impl Host {
    /// One, or none, with the reason said.
    fn new() -> Option<Self> {
        if !has(&["bash", "ethtool", "iperf3", "nstat", "ping", "setpriv"]) {
            return None;
        }
        Some(Self {
            namespace: Namespace::new("h")?,
            scratch: Scratch::new(),
        })
    }

    /// Starts `l2fwd` between these devices, from the `first` on, and as many TAPs; and then
    /// `more`.
    fn l2fwd(&self, first: usize, nics: &[Nic], more: &str) -> L2fwd {
        let pair = |nic: &Nic| {
            let queues = if nic.port.contains("queues=2") {
                ",queues=2"
            } else {
                ""
            };
            format!(
                "{} tap:{},mtu=9000{queues} ",
                nic.port(&self.scratch),
                nic.name
            )
        };
        let pairs: String = nics.iter().map(pair).collect();
        let l2fwd = L2fwd::start(&self.namespace, &format!("{pairs}{more} --no-mac-update"));
        for (net, nic) in (first..).zip(nics) {
            let address = format!("addr add 10.8.{net}.1/24 dev {}", nic.name);
            self.namespace.ip(&address);
        }
        l2fwd
    }

    /// Where iperf3 is served, until it is dropped.
    fn iperf3(&self, net: usize) -> Running {
        let words = format!("--server --bind 10.8.{net}.1 --forceflush");
        let mut server = self.namespace.start("iperf3", &words);
        server.wait("iperf3 to listen", |stdout, _| {
            stdout.text().contains("Server listening")
        });
        server
    }

    /// Sends bytes to the guest over TCP, which it sends back: none is lost or changed.
    #[track_caller]
    fn there_and_back(&self, guest: &mut Guest, net: usize) {
        let bytes = traffic::noise(4_000_000);
        let bind = || TcpListener::bind(format!("10.8.{net}.1:0")).unwrap();
        let listener = self.namespace.inside(bind);
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let peer = format!("/dev/tcp/{}/{}", at.ip(), at.port());
        std::thread::scope(|scope| {
            let here = scope.spawn(|| {
                traffic::accept(&listener).write_all(&bytes).unwrap();
                let mut back = Vec::new();
                traffic::accept(&listener).read_to_end(&mut back).unwrap();
                back
            });
            guest.run(&format!(
                "bash -c 'cat < {peer} > /dev/shm/there && cat /dev/shm/there > {peer}'"
            ));
            assert!(
                here.join().unwrap() == bytes,
                "net {net}: other bytes came back"
            );
        });
    }
}

/// Gives devices of a guest their addresses, which end so.
#[track_caller]
fn up(guest: &mut Guest, nics: usize, last: u8) {
    let up = |net: usize| {
        format!("ip addr replace 10.8.{net}.{last}/24 dev eth{net}\nip link set dev eth{net} up\n")
    };
    guest.run(&("set -e\n".to_owned() + &(0..nics).map(up).collect::<String>()));
}

/// Pings from a guest, with so many bytes of payload and never in fragments: none is lost. The
/// kernel counts the replies: ping itself gives up on the last ones soon, which on a busy machine
/// are only late.
#[track_caller]
fn ping(guest: &mut Guest, address: &str, bytes: u32) {
    guest.run(&format!(
        "replies() {{ nstat -asz IcmpInEchoReps | awk '/InEchoReps/ {{ print $2 }}'; }}
        before=$(replies)
        ping -n -M do -c 50 -i 0.02 -s {bytes} {address}
        for second in $(seq 60); do
            [ $(($(replies) - before)) = 50 ] && exit 0
            sleep 1
        done
        ip -s link; ip -s neigh
        exit 1"
    ));
}

/// `even` is how books of all packets end, and nobody was called a liar.
#[track_caller]
fn ends_well(l2fwd: L2fwd) -> linerate_testkit::cli::Report {
    let totals = l2fwd.stop(rustix::process::Signal::INT);
    assert_eq!(totals.0["ledger"]["even"], true, "{totals}");
    for port in totals.0["ports"].as_array().unwrap() {
        let violations = &port["violations"];
        assert!(
            violations.as_object().is_none_or(|all| all.is_empty()),
            "{port}"
        );
    }
    totals
}
