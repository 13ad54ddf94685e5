//! FRR as the control plane: two FRR routers exchange BGP and OSPF, of both families, with FRR in
//! our router's namespace, which uses the host interfaces (TAP) and sends its routes to us.
//!
//! ```text
//! one (AS 65001) veth0 ---- a :mid, linerate + FRR (AS 65000): b ---- veth1 (AS 65002) two
//! ```
//!
//! Each peer announces a network by BGP and one by OSPF; nothing has a default route.

use super::instance::{Router, two_ports};
use super::site::iperf3;
use super::stream::Stream;
use linerate_testkit::Scratch;
use linerate_testkit::has;
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use linerate_testkit::traffic::{ROUNDS, reaches};
use linerate_testkit::{harness::Test, tests};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: OSPF takes ten seconds to converge"]
    the_peers_with_the_kernel_between_them,
    #[ignore = "long: OSPF takes ten seconds to converge, and TCP"]
    bgp_and_ospf_through_us_by_fpm,
    #[ignore = "long: OSPF takes ten seconds to converge, and TCP"]
    bgp_and_ospf_through_us_by_fpm_without_groups,
    #[ignore = "long: OSPF takes ten seconds to converge, and TCP"]
    bgp_and_ospf_through_us_by_the_kernel,
    #[ignore = "long: FRR restarts"]
    frr_killed_and_started_again,
    #[ignore = "long: linerate restarts, and FRR finds it again"]
    linerate_killed_and_started_again,
];

/// Where Debian's package has them.
const DAEMONS: &str = "/usr/lib/frr";

/// FRR in one namespace, in the foreground, its sockets in a directory of the test's.
pub(super) struct Frr {
    daemons: Vec<Running>,
    directory: String,
}

/// The configuration of one FRR.
struct Plan {
    id: u8,
    /// Its interfaces, and the addresses of the peers there.
    links: Vec<(&'static str, [&'static str; 2])>,
    /// Words for zebra, and lines of its configuration.
    zebra: (&'static str, &'static str),
}

impl Plan {
    fn asn(&self, id: u8) -> u32 {
        65_000 + u32::from(id)
    }

    /// BGP speaks IPv4 over IPv4 and IPv6 over IPv6; sessions survive a restart of either end.
    fn bgpd(&self) -> String {
        let id = self.id;
        let mut text = format!(
            "router bgp {}\n bgp router-id 192.0.2.{}\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n bgp graceful-restart\n \
             bgp graceful-restart preserve-fw-state\n timers bgp 3 9\n",
            self.asn(id),
            id + 1
        );
        let peers = || self.links.iter().flat_map(|(_, peers)| peers);
        for (at, peer) in peers().enumerate() {
            let other = if id == 0 { at as u8 / 2 + 1 } else { 0 };
            text += &format!(
                " neighbor {peer} remote-as {}\n neighbor {peer} timers connect 1\n \
                 neighbor {peer} advertisement-interval 0\n",
                self.asn(other)
            );
        }
        for (family, six) in [("ipv4", false), ("ipv6", true)] {
            text += &format!(" address-family {family} unicast\n");
            if id > 0 {
                let network = if six {
                    format!("fd00:10{id}::/48")
                } else {
                    format!("10.10{id}.0.0/24")
                };
                text += &format!("  network {network}\n");
            }
            for peer in peers() {
                let is_active = peer.contains(':') == six;
                text += &format!(
                    "  {}neighbor {peer} activate\n",
                    if is_active { "" } else { "no " }
                );
            }
            text += " exit-address-family\n";
        }
        text
    }

    fn ospfd(&self) -> String {
        let mut text = String::new();
        for (interface, _) in &self.links {
            text += &format!(
                "interface {interface}\n ip ospf network point-to-point\n ip ospf hello-interval \
                 1\n ip ospf dead-interval 4\n"
            );
        }
        text += &format!("router ospf\n ospf router-id 192.0.2.{}\n", self.id + 1);
        for net in ["10.1", "10.2", "10.201", "10.202"] {
            text += &format!(" network {net}.0.0/24 area 0\n");
        }
        text
    }

    fn ospf6d(&self) -> String {
        let mut text = String::new();
        for (interface, _) in &self.links {
            text += &format!(
                "interface {interface}\n ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n \
                 ipv6 ospf6 hello-interval 1\n ipv6 ospf6 dead-interval 4\n"
            );
        }
        if self.id > 0 {
            text += "interface stub\n ipv6 ospf6 area 0\n ipv6 ospf6 passive\n";
        }
        text + &format!("router ospf6\n ospf6 router-id 192.0.2.{}\n", self.id + 1)
    }
}

impl Frr {
    fn start(namespace: &Namespace, plan: &Plan, scratch: &Scratch) -> Self {
        let daemons = [
            ("zebra", plan.zebra.0, plan.zebra.1.to_owned()),
            ("bgpd", "--bgp_port 179", plan.bgpd()),
            ("ospfd", "", plan.ospfd()),
            ("ospf6d", "", plan.ospf6d()),
        ];
        Self::of(namespace, &format!("frr{}", plan.id), &daemons, scratch)
    }

    /// These daemons, zebra first, each with words for its command line and its configuration.
    pub(super) fn of(
        namespace: &Namespace,
        name: &str,
        daemons: &[(&str, &str, String)],
        scratch: &Scratch,
    ) -> Self {
        let directory = scratch.file(name);
        std::fs::create_dir(&directory).unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&directory, open).unwrap();
        let mut frr = Self {
            daemons: Vec::new(),
            directory,
        };
        for (name, words, config) in daemons {
            frr.daemon(namespace, name, words, config);
        }
        frr
    }

    fn daemon(&mut self, namespace: &Namespace, name: &str, words: &str, config: &str) {
        let directory = &self.directory;
        let (file, socket) = (
            format!("{directory}/{name}.conf"),
            format!("{directory}/zserv.api"),
        );
        std::fs::write(&file, format!("log stdout\n{config}")).unwrap();
        // Besides those of all daemons, this one has a socket for the others.
        let own = match name {
            "bfdd" => format!("--bfdctl {directory}/bfdd.sock"),
            _ => String::new(),
        };
        let words = format!(
            "--config_file {file} --pid_file {directory}/{name}.pid --socket {socket} --vty_socket \
             {directory} --vty_addr 127.0.0.1 --vty_port 0 {own} {words}"
        );
        let mut running = namespace.start(&format!("{DAEMONS}/{name}"), &words);
        running.wait(&format!("{name} to listen"), |_, _| {
            std::path::Path::new(&format!("{directory}/{name}.vty")).exists()
                && (name != "zebra" || std::path::Path::new(&socket).exists())
        });
        self.daemons.push(running);
    }

    /// What `vtysh` says to some lines.
    pub(super) fn says(&self, lines: &str) -> String {
        let commands = lines.lines().flat_map(|line| ["-c", line]);
        let output = Command::new("vtysh")
            .args(["--vty_socket", &self.directory])
            .args(commands)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// kill -9 of all daemons, and their sockets go.
    pub(super) fn kill(self) {
        let directory = self.directory.clone();
        drop(self);
        let _ = std::fs::remove_dir_all(directory);
    }
}

/// The namespaces, the peers at work, and FRR and linerate in the middle.
pub(super) struct Net {
    pub(super) one: Namespace,
    pub(super) mid: Namespace,
    pub(super) two: Namespace,
    pub(super) scratch: Scratch,
}

pub(super) const BY_FPM: (&str, &str) = (
    "-M dplane_fpm_nl -K 60",
    "fpm address 127.0.0.1 port 2620\n",
);
/// Nexthop groups spelled out in each route.
pub(super) const BY_FPM_WITHOUT_GROUPS: (&str, &str) = (
    "-M dplane_fpm_nl -K 60",
    "fpm address 127.0.0.1 port 2620\nno fpm use-next-hop-groups\n",
);
const BY_KERNEL: (&str, &str) = ("-K 60", "");

/// Networks that each peer announces: BGP and OSPF, IPv4 and IPv6.
pub(super) const PAIRS: [(&str, &str); 4] = [
    ("10.101.0.1", "10.102.0.1"),
    ("fd00:101::1", "fd00:102::1"),
    ("10.201.0.1", "10.202.0.1"),
    ("fd00:201::1", "fd00:202::1"),
];

impl Net {
    pub(super) fn new() -> Option<Self> {
        if !has(&["ping", "ethtool", "setpriv", "vtysh", "iperf3"]) {
            return None;
        }
        let net = Self {
            one: Namespace::with_ipv6("o")?,
            mid: Namespace::with_ipv6("m")?,
            two: Namespace::with_ipv6("t")?,
            scratch: Scratch::new(),
        };
        for (peer, interface, port, at) in
            [(&net.one, "veth0", "a", 1), (&net.two, "veth1", "b", 2)]
        {
            peer.wire(interface, &net.mid, port, "");
            peer.plain(interface);
            net.mid.plain(port);
            peer.ip(&format!("addr add 10.{at}.0.2/24 dev {interface}"));
            peer.ip(&format!("addr add fd00:{at}::2/64 dev {interface}"));
            // BGP's networks are behind lo, OSPF's on a stub interface.
            peer.wire("stub", peer, "end", "");
            for (address, interface) in [
                (format!("10.10{at}.0.1/32"), "lo"),
                (format!("fd00:10{at}::1/128"), "lo"),
                (format!("10.20{at}.0.1/24"), "stub"),
                (format!("fd00:20{at}::1/64"), "stub"),
            ] {
                peer.ip(&format!("addr add {address} dev {interface}"));
            }
        }
        Some(net)
    }

    pub(super) fn peers(&self) -> [Frr; 2] {
        let plan = |id, interface, peers| Plan {
            id,
            links: vec![(interface, peers)],
            zebra: ("", ""),
        };
        [
            Frr::start(
                &self.one,
                &plan(1, "veth0", ["10.1.0.1", "fd00:1::1"]),
                &self.scratch,
            ),
            Frr::start(
                &self.two,
                &plan(2, "veth1", ["10.2.0.1", "fd00:2::1"]),
                &self.scratch,
            ),
        ]
    }

    /// FRR in the middle, on these interfaces.
    pub(super) fn middle(
        &self,
        interfaces: [&'static str; 2],
        zebra: (&'static str, &'static str),
    ) -> Frr {
        let plan = Plan {
            id: 0,
            links: vec![
                (interfaces[0], ["10.1.0.2", "fd00:1::2"]),
                (interfaces[1], ["10.2.0.2", "fd00:2::2"]),
            ],
            zebra,
        };
        Frr::start(&self.mid, &plan, &self.scratch)
    }

    fn linerate(&self, kind: &str, fpm: bool) -> Router {
        let fpm = if fpm {
            "fpm = \"127.0.0.1:2620\"\n"
        } else {
            ""
        };
        self.linerate_with(kind, fpm)
    }

    /// With these lines of `[router]`.
    pub(super) fn linerate_with(&self, kind: &str, lines: &str) -> Router {
        let config = lines.to_owned() + &two_ports(kind, "", "");
        Router::start(&self.mid, &self.scratch, &config)
    }

    /// Whether all announced networks are reachable.
    pub(super) fn is_whole(&self) -> bool {
        PAIRS
            .iter()
            .all(|(from, to)| reaches(&self.one, &format!("-I {from} {to}"), 1))
    }

    /// Waits for that; prints the state of `middle` on a timeout.
    #[track_caller]
    pub(super) fn whole(&self, middle: &Frr, router: Option<&Router>) {
        let start = std::time::Instant::now();
        while !self.is_whole() {
            assert!(
                start.elapsed() < linerate_testkit::PATIENCE,
                "not all are reached:\n{}\n{}\n{}\n{}",
                middle.says("show bgp summary"),
                middle.says("show ip route"),
                middle.says("show ipv6 route"),
                router.map_or(String::new(), |router| router.ctl("show routes"))
            );
        }
    }
}

/// The stand itself: with the kernel in linerate's place all routes are learned and reachable.
fn the_peers_with_the_kernel_between_them() {
    let Some(net) = Net::new() else { return };
    for (port, at) in [("a", 1), ("b", 2)] {
        net.mid.ip(&format!("addr add 10.{at}.0.1/24 dev {port}"));
        net.mid.ip(&format!("addr add fd00:{at}::1/64 dev {port}"));
    }
    net.mid.sysctl("ipv4/ip_forward", "1");
    net.mid.sysctl("ipv6/conf/all/forwarding", "1");
    let _peers = net.peers();
    let middle = net.middle(["a", "b"], BY_KERNEL);
    net.whole(&middle, None);
    for (from, to) in PAIRS {
        iperf3(&net.one, &net.two, to, 1, &format!("--bind {from}"));
    }
    // After a restart of FRR the old routes are used meanwhile.
    let stream = Stream::start((&net.one, PAIRS[0].0), (&net.two, PAIRS[0].1));
    stream.flows(100);
    middle.kill();
    stream.flows(500);
    let middle = net.middle(["a", "b"], BY_KERNEL);
    stream.flows(2000);
    net.whole(&middle, None);
    let (sent, lost) = stream.end();
    assert!(lost.is_empty(), "of {sent} were lost {lost:?}");
}

fn frr_through_us(kind: &str, zebra: (&'static str, &'static str)) {
    let Some(net) = Net::new() else { return };
    let by_fpm = zebra.1.contains("fpm");
    let router = net.linerate(kind, by_fpm);
    let peers = net.peers();
    let middle = net.middle(["lr-a", "lr-b"], zebra);
    net.whole(&middle, Some(&router));
    for (from, to) in PAIRS {
        iperf3(&net.one, &net.two, to, 2, &format!("--bind {from}"));
        iperf3(
            &net.one,
            &net.two,
            to,
            2,
            &format!("--bind {from} --reverse"),
        );
    }
    let routes = router.ctl("show routes");
    for (prefix, protocol) in [
        ("10.102.0.0/24", "bgp"),
        ("10.202.0.0/24", "ospf"),
        ("fd00:102::/48", "bgp"),
        ("fd00:202::/64", "ospf"),
    ] {
        let row = routes.lines().find(|line| line.contains(prefix));
        let row = row.unwrap_or_else(|| panic!("no {prefix} in\n{routes}"));
        assert_eq!(row.contains("fpm"), by_fpm, "{row}");
        assert!(row.contains(protocol), "{row}");
    }
    // A withdrawn route is removed.
    peers[1]
        .says("configure\nrouter bgp 65002\naddress-family ipv4 unicast\nno network 10.102.0.0/24");
    linerate_testkit::wait("the route to go", || {
        !router.ctl("show routes").contains("10.102.0.0/24")
    });
    router.stop();
}

fn bgp_and_ospf_through_us_by_fpm() {
    frr_through_us("af_packet", BY_FPM);
}

fn bgp_and_ospf_through_us_by_fpm_without_groups() {
    frr_through_us("af_xdp", BY_FPM_WITHOUT_GROUPS);
}

fn bgp_and_ospf_through_us_by_the_kernel() {
    frr_through_us("af_packet", BY_KERNEL);
}

/// FRR is killed and started again: its routes are used all the time. Repeated if the kernel
/// counted a loss.
fn frr_killed_and_started_again() {
    let Some(net) = Net::new() else { return };
    let mut router = net.linerate("af_packet", true);
    let peers = net.peers();
    let mut middle = net.middle(["lr-a", "lr-b"], BY_FPM);
    net.whole(&middle, Some(&router));
    for _ in 0..ROUNDS {
        let drops = linerate_testkit::netns::backlog_drops();
        let streams = PAIRS[..2]
            .iter()
            .map(|(from, to)| Stream::start((&net.one, from), (&net.two, to)));
        let streams: Vec<Stream> = streams.collect();
        streams.iter().for_each(|stream| stream.flows(100));
        middle.kill();
        streams.iter().for_each(|stream| stream.flows(2000));
        middle = net.middle(["lr-a", "lr-b"], BY_FPM);
        net.whole(&middle, Some(&router));
        // Long enough for stale routes to be swept.
        streams.iter().for_each(|stream| stream.flows(8000));
        let ends: Vec<(u32, Vec<u32>)> = streams.into_iter().map(Stream::end).collect();
        if linerate_testkit::netns::backlog_drops() > drops {
            continue;
        }
        for (sent, lost) in ends {
            assert!(
                lost.is_empty(),
                "of {sent} were lost {lost:?}\n{}",
                peers[0].says("show bgp summary")
            );
        }
        assert!(router.is_alive());
        router.stop();
        return;
    }
    panic!("the kernel lost frames in each of {ROUNDS} rounds");
}

/// linerate is killed and started again, by a kill and by a user: FRR finds the host interfaces
/// again, and all routes are learned anew.
fn linerate_killed_and_started_again() {
    let Some(net) = Net::new() else { return };
    let mut router = net.linerate("af_packet", true);
    let _peers = net.peers();
    let middle = net.middle(["lr-a", "lr-b"], BY_FPM);
    net.whole(&middle, Some(&router));
    router.kill();
    linerate_testkit::wait("the host interfaces to go", || !net.mid.has("lr-a"));
    assert!(!net.is_whole());
    router = net.linerate("af_packet", true);
    net.whole(&middle, Some(&router));
    router.signal(Signal::TERM);
    linerate_testkit::wait("its end", || !router.is_alive());
    router = net.linerate("af_packet", true);
    net.whole(&middle, Some(&router));
    router.stop();
}
