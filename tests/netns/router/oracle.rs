//! Byte for byte as the kernel forwards: the same packets go through a namespace in which
//! Linux routes, with the same addresses, routes and neighbours, and the output is compared.

use super::compare::{self, Output, disagreements, replay, untold};
use super::instance::{Router, port};
use super::mix::{self, FAR, HOST, MTU, ROUTER_A, ROUTER_B};
use linerate_testkit::Random;
use linerate_testkit::Scratch;
use linerate_testkit::capture::{self, Tcpdump};
use linerate_testkit::frame::{Mac, text};
use linerate_testkit::has;
use linerate_testkit::netns::{Namespace, backlog_drops};
use linerate_testkit::traffic::ROUNDS;
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    a_mix_comes_out_as_the_kernel_forwards_it_over_af_packet,
    a_mix_comes_out_as_the_kernel_forwards_it_over_af_xdp,
    #[ignore = "long: 100 000 packets"]
    a_long_mix_comes_out_as_the_kernel_forwards_it,
    the_kernel_agrees_with_itself,
];

/// `left: veth0 ---- a :mid: b ---- veth1 :right`, the hosts have no addresses and only capture.
pub(super) struct Bench {
    pub(super) left: Namespace,
    pub(super) mid: Namespace,
    pub(super) right: Namespace,
}

/// Routes that both know, as prefix and what `ip route` says of it.
pub(super) const ROUTES: [(&str, &str); 12] = [
    ("10.60.0.0/16", "via 10.1.0.2"),
    ("10.20.0.0/16", "via 10.2.0.2"),
    ("10.20.30.0/24", "blackhole"),
    ("10.20.31.0/24", "unreachable"),
    ("10.20.32.0/24", "prohibit"),
    ("240.0.0.0/4", "via 10.1.0.2"),
    ("fd00:60::/32", "via fd00:1::2"),
    ("fd00:20::/32", "via fd00:2::2"),
    ("fd00:20:30::/48", "blackhole"),
    ("fd00:20:31::/48", "unreachable"),
    ("fd00:20:32::/48", "prohibit"),
    ("2001:db8:1::/48", "via fd00:2::2"),
];

const NEIGHBOURS: [(&str, Mac, &str); 4] = [
    ("10.1.0.2", HOST, "a"),
    ("10.2.0.2", FAR, "b"),
    ("fd00:1::2", HOST, "a"),
    ("fd00:2::2", FAR, "b"),
];

impl Bench {
    pub(super) fn new() -> Option<Self> {
        let bench = Self {
            left: Namespace::new("l")?,
            mid: Namespace::with_ipv6("m")?,
            right: Namespace::new("r")?,
        };
        let wires = [
            (&bench.left, "veth0", HOST, "a", ROUTER_A),
            (&bench.right, "veth1", FAR, "b", ROUTER_B),
        ];
        for (host, interface, mac, port, router) in wires {
            host.wire(interface, &bench.mid, port, "");
            host.plain(interface);
            bench.mid.plain(port);
            host.ip(&format!("link set dev {interface} address {}", text(mac)));
            bench
                .mid
                .ip(&format!("link set dev {port} address {}", text(router)));
        }
        Some(bench)
    }

    /// Linux as the router.
    pub(super) fn kernel(&self) {
        self.mid.sysctl("ipv4/ip_forward", "1");
        self.mid.sysctl("ipv6/conf/all/forwarding", "1");
        self.mid.sysctl("ipv4/icmp_ratelimit", "0");
        self.mid.sysctl("ipv6/icmp/ratelimit", "0");
        for (which, value) in [("all", "0"), ("default", "0"), ("a", "0"), ("b", "0")] {
            self.mid
                .sysctl(&format!("ipv4/conf/{which}/rp_filter"), value);
        }
        for (port, net) in [("a", 1), ("b", 2)] {
            self.mid
                .ip(&format!("addr add 10.{net}.0.1/24 broadcast + dev {port}"));
            self.mid
                .ip(&format!("addr add fd00:{net}::1/64 dev {port}"));
        }
        self.mid.ip(&format!("link set dev b mtu {MTU}"));
        for (address, mac, port) in NEIGHBOURS {
            self.mid.ip(&format!(
                "neigh replace {address} lladdr {} nud permanent dev {port}",
                text(mac)
            ));
        }
        for (prefix, next_hop) in ROUTES {
            match next_hop.strip_prefix("via ") {
                Some(gateway) => self.mid.ip(&format!("route add {prefix} via {gateway}")),
                None => self.mid.ip(&format!("route add {next_hop} {prefix}")),
            };
        }
    }

    /// Our router.
    fn linerate(&self, kind: &str, scratch: &Scratch) -> Router {
        let mut config = port(kind, "a", &["10.1.0.1/24", "fd00:1::1/64"], "")
            + &port(
                kind,
                "b",
                &["10.2.0.1/24", "fd00:2::1/64"],
                &format!("mtu = {MTU}"),
            );
        for (address, mac, port) in NEIGHBOURS {
            config += &format!(
                "\n[[neighbour]]\naddress = \"{address}\"\nmac = \"{}\"\ninterface = \"{port}\"\n",
                text(mac)
            );
        }
        for (prefix, next_hop) in ROUTES {
            config += &format!("\n[[route]]\nprefix = \"{prefix}\"\n");
            config += &match next_hop.strip_prefix("via ") {
                Some(gateway) => format!("via = \"{gateway}\"\n"),
                None => format!("{next_hop} = true\n"),
            };
        }
        Router::start(&self.mid, scratch, &config)
    }

    /// Sends frames from the left host, and returns what comes out.
    #[track_caller]
    fn through(&self, file: &str, scratch: &Scratch) -> Output {
        let right = Tcpdump::start(&self.right, "veth1", "in", scratch);
        let left = Tcpdump::start(&self.left, "veth0", "in", scratch);
        replay(&self.left, "veth0", file);
        Output {
            forwarded: right.settled(),
            returned: left.settled(),
        }
    }
}

fn agrees(kind: &str, count: usize, seed: u64) {
    if !has(&["tcpdump", "tshark", "ethtool", "setpriv"]) {
        return;
    }
    eprintln!("seed {seed}");
    let cases = mix::cases(count, &mut Random::new(seed));
    let scratch = Scratch::new();
    let file = scratch.file("mix.pcap");
    let frames: Vec<&[u8]> = cases.iter().map(|case| &case.frame[..]).collect();
    std::fs::write(&file, capture::paced(&frames, 50)).unwrap();
    let (Some(theirs), Some(ours)) = (Bench::new(), Bench::new()) else {
        return;
    };
    theirs.kernel();
    let router = ours.linerate(kind, &scratch);
    let through = |bench: &Bench| bench.through(&file, &scratch);
    let output = compare::agree(&cases, || through(&theirs), || through(&ours), &router);
    let all = ["ip", "udp", "tcp", "icmp", "icmpv6"];
    compare::checksums_are_right(&output.forwarded, &all, &scratch);
    compare::checksums_are_right(&output.returned, &["ip", "icmp", "icmpv6"], &scratch);
    eprintln!("{count} packets, {} forwarded", compare::count(&output));
    router.stop();
}

fn a_mix_comes_out_as_the_kernel_forwards_it_over_af_packet() {
    agrees("af_packet", 3000, 5);
}

fn a_mix_comes_out_as_the_kernel_forwards_it_over_af_xdp() {
    agrees("af_xdp", 3000, 6);
}

fn a_long_mix_comes_out_as_the_kernel_forwards_it() {
    agrees("af_packet", 100_000, 7);
}

/// The kernel against itself: the comparison finds no difference, except the kinds on which we
/// differ from it.
fn the_kernel_agrees_with_itself() {
    if !has(&["tcpdump", "ethtool", "setpriv"]) {
        return;
    }
    let cases = mix::cases(1000, &mut Random::new(8));
    let scratch = Scratch::new();
    let file = scratch.file("mix.pcap");
    let frames: Vec<&[u8]> = cases.iter().map(|case| &case.frame[..]).collect();
    std::fs::write(&file, capture::paced(&frames, 50)).unwrap();
    let Some(bench) = Bench::new() else { return };
    bench.kernel();
    let mut missing = Vec::new();
    for _ in 0..ROUNDS {
        let before = backlog_drops();
        let [one, other] = [(); 2].map(|()| bench.through(&file, &scratch));
        if backlog_drops() > before {
            continue;
        }
        let differ: Vec<String> = disagreements(&cases, &one, &other);
        let unexplained: Vec<&String> =
            differ.iter().filter(|text| text.contains("Same")).collect();
        assert!(unexplained.is_empty(), "{unexplained:#?}");
        assert!(
            !differ.is_empty(),
            "class E alone is a difference between us and the kernel"
        );
        // Its limit for ICMP errors is one for all: it may have told of a kind never in one of two.
        missing = untold(&cases, &one, &other);
        if !missing.is_empty() {
            continue;
        }
        assert!(compare::count(&one) > cases.len() * 3 / 4);
        return;
    }
    panic!("the kernel lost frames, or errors, in each of {ROUNDS} rounds: {missing:#?}");
}
