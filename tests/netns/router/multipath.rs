//! Equal-cost paths: flows are spread, each stays on its path, and when a path fails only its flows
//! move.

use super::instance::{Router, port};
use super::site::{host, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::capture::Tcpdump;
use linerate_testkit::has;
use linerate_testkit::netns::{Namespace, backlog_drops};
use linerate_testkit::{harness::Test, tests};
use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;

pub(crate) const TESTS: &[Test] = tests![
    flows_keep_their_path_over_af_packet,
    #[ignore = "long: the same with another driver"]
    flows_keep_their_path_over_af_xdp,
    weights_are_kept_to,
];

const PATHS: [&str; 3] = ["p", "q", "s"];
/// Number of test flows: each is a source port from [`FIRST`] on.
const FLOWS: u16 = 240;
const FIRST: u16 = 20_000;

/// A host, the router, and three gateways to 10.9.0.0/16 and fd00:9::/32 that capture what they
/// receive.
struct Fan {
    left: Namespace,
    mid: Namespace,
    gateways: [Namespace; 3],
}

impl Fan {
    fn new() -> Option<Self> {
        if !has(&["ping", "ethtool", "setpriv", "tcpdump"]) {
            return None;
        }
        let fan = Self {
            left: Namespace::with_ipv6("l")?,
            mid: Namespace::with_ipv6("m")?,
            gateways: [
                Namespace::with_ipv6("p")?,
                Namespace::with_ipv6("q")?,
                Namespace::with_ipv6("s")?,
            ],
        };
        fan.left.wire("veth0", &fan.mid, "a", "");
        host(
            &fan.left,
            "veth0",
            "10.1.0.2",
            "fd00:1::2",
            "10.1.0.1",
            "fd00:1::1",
        );
        fan.left.plain("veth0");
        fan.mid.plain("a");
        for (at, (gateway, path)) in fan.gateways.iter().zip(PATHS).enumerate() {
            gateway.wire("veth1", &fan.mid, path, "");
            gateway.plain("veth1");
            fan.mid.plain(path);
            let net = at + 11;
            host(
                gateway,
                "veth1",
                &format!("10.{net}.0.2"),
                &format!("fd00:{net}::2"),
                &format!("10.{net}.0.1"),
                &format!("fd00:{net}::1"),
            );
        }
        Some(fan)
    }

    /// Waits until all gateways answer and are in the tables.
    fn learned(&self) {
        for net in 11..14 {
            reaches(&self.left, &format!("10.{net}.0.2"));
            reaches(&self.left, &format!("fd00:{net}::2"));
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }

    /// Sends datagrams of each flow to an address behind the gateways, and returns the index of
    /// each flow's gateway by source port. Each flow arrives; it is sent again only if a loss was
    /// counted.
    #[track_caller]
    fn spread(&self, to: &str, router: &Router, scratch: &Scratch) -> BTreeMap<u16, usize> {
        // A gateway with a cut wire cannot capture.
        let is_up = |gateway: &Namespace| !gateway.ip("link show dev veth1").contains("state DOWN");
        let onlookers: Vec<(usize, Tcpdump)> = (0..)
            .zip(&self.gateways)
            .filter(|(_, gateway)| is_up(gateway))
            .map(|(at, gateway)| (at, Tcpdump::start(gateway, "veth1", "in", scratch)))
            .collect();
        let from = if to.contains(':') {
            "fd00:1::2"
        } else {
            "10.1.0.2"
        };
        let send = |flow: u16| {
            let socket = self.left.inside(|| UdpSocket::bind((from, flow)).unwrap());
            // Twice: a flow keeps its gateway.
            for _ in 0..2 {
                socket.send_to(b"which way", (to, 9)).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        };
        let seen = || onlookers.iter().flat_map(|(_, onlooker)| onlooker.so_far());
        let mut missing: BTreeSet<u16> = (FIRST..FIRST + FLOWS).collect();
        // Losses counted by the kernel (a full receive queue) or a port (a late worker).
        let lost = || backlog_drops() + router.dropped("missed");
        while !missing.is_empty() {
            let before = lost();
            missing.iter().copied().for_each(send);
            linerate_testkit::wait("all flows to arrive, or a loss to be counted", || {
                for flow in seen().filter_map(|frame| flow_of(&frame)) {
                    missing.remove(&flow);
                }
                missing.is_empty() || lost() > before
            });
        }
        let mut ways = BTreeMap::new();
        for (at, onlooker) in onlookers {
            for frame in onlooker.end() {
                if let Some(flow) = flow_of(&frame) {
                    let before = ways.insert(flow, at);
                    assert!(
                        before.is_none_or(|before| before == at),
                        "flow {flow} took two ways, {before:?} and {at}: {frame:02x?}"
                    );
                }
            }
        }
        ways
    }
}

/// The source port of a datagram of ours.
fn flow_of(frame: &[u8]) -> Option<u16> {
    let at = match frame.get(12..14)? {
        [0x08, 0x00] if frame[23] == 17 => 34,
        [0x86, 0xdd] if frame[20] == 17 => 54,
        _ => return None,
    };
    let ports = frame.get(at..at + 4)?;
    (ports[2..] == [0, 9]).then(|| u16::from_be_bytes([ports[0], ports[1]]))
}

fn config(kind: &str, weights: [u32; 3]) -> String {
    let mut text = port(kind, "a", &["10.1.0.1/24", "fd00:1::1/64"], "");
    for (at, path) in PATHS.into_iter().enumerate() {
        let net = at + 11;
        let addresses = [format!("10.{net}.0.1/24"), format!("fd00:{net}::1/64")];
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        text += &port(kind, path, &addresses, "");
    }
    for (prefix, [before, after]) in [
        ("10.9.0.0/16", ["10.", ".0.2"]),
        ("fd00:9::/32", ["fd00:", "::2"]),
    ] {
        let via = |(net, weight): (usize, &u32)| {
            format!("{{ address = \"{before}{net}{after}\", weight = {weight} }}")
        };
        let vias: Vec<String> = (11..).zip(&weights).map(via).collect();
        text += &format!(
            "\n[[route]]\nprefix = \"{prefix}\"\nvia = [{}]\n",
            vias.join(", ")
        );
    }
    text
}

/// How many flows each gateway got.
fn shares(ways: &BTreeMap<u16, usize>) -> [usize; 3] {
    std::array::from_fn(|at| ways.values().filter(|way| **way == at).count())
}

fn flows_keep_their_path(kind: &str) {
    let Some(fan) = Fan::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&fan.mid, &scratch, &config(kind, [1, 1, 1]));
    fan.learned();
    for to in ["10.9.0.7", "fd00:9::7"] {
        let before = fan.spread(to, &router, &scratch);
        for share in shares(&before) {
            assert!(
                (40..=120).contains(&share),
                "{:?} of {FLOWS}",
                shares(&before)
            );
        }
        assert_eq!(
            fan.spread(to, &router, &scratch),
            before,
            "flows moved while nothing changed"
        );

        // The third path loses its carrier.
        fan.gateways[2].ip("link set veth1 down");
        router.shows("ports", |text| text.contains("down"));
        // The tables follow the link state soon.
        std::thread::sleep(std::time::Duration::from_millis(500));
        let without = fan.spread(to, &router, &scratch);
        for (flow, way) in &before {
            match way {
                2 => assert_ne!(without[flow], 2),
                _ => assert_eq!(
                    without[flow], *way,
                    "flow {flow} moved, though its path is there"
                ),
            }
        }
        // Those of the failed path go to both remaining ones.
        let moved = before
            .iter()
            .filter(|(_, way)| **way == 2)
            .map(|(flow, _)| without[flow]);
        let (to_first, to_second): (Vec<_>, Vec<_>) = moved.partition(|way| *way == 0);
        assert!(!to_first.is_empty() && !to_second.is_empty());

        fan.gateways[2].ip("link set veth1 up");
        // With its carrier the kernel took the host's IPv6 addresses and routes away.
        let address = "-6 addr replace fd00:13::2/64 dev veth1";
        fan.gateways[2].ip(address);
        fan.gateways[2].ip("route replace default via 10.13.0.1");
        fan.gateways[2].ip("-6 route replace default via fd00:13::1");
        fan.learned();
        let again = fan.spread(to, &router, &scratch);
        assert!(shares(&again)[2] >= 40, "{:?}", shares(&again));
    }
    router.stop();
}

fn flows_keep_their_path_over_af_packet() {
    flows_keep_their_path("af_packet");
}

fn flows_keep_their_path_over_af_xdp() {
    flows_keep_their_path("af_xdp");
}

fn weights_are_kept_to() {
    let Some(fan) = Fan::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(&fan.mid, &scratch, &config("af_packet", [4, 1, 1]));
    fan.learned();
    let shares = shares(&fan.spread("10.9.0.7", &router, &scratch));
    assert!(
        (120..=200).contains(&shares[0]),
        "{shares:?} of {FLOWS}, 4 to 1 to 1"
    );
    assert!(shares[1] >= 15 && shares[2] >= 15, "{shares:?}");
    router.stop();
}
