//! Routes that FRR sends by FPM and by the kernel's table: each is kept once, and survives the end
//! of FRR, deleted host interfaces, and gateways of another family.

use super::frr::{BY_FPM, BY_FPM_WITHOUT_GROUPS, Frr, Net, PAIRS};
use super::instance::Router;
use super::stream::Stream;
use linerate_testkit::netns::Namespace;
use linerate_testkit::traffic::{ROUNDS, reaches};
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: FRR converges, and its time of grace passes"]
    routes_are_known_once_and_the_kernels_stay_when_frr_is_gone,
    #[ignore = "long: FRR converges four times"]
    a_host_interface_is_made_again_under_frr,
    #[ignore = "long: FRR converges four times"]
    a_host_interface_is_made_again_under_frr_without_groups,
    #[ignore = "long: FRR converges"]
    ipv4_by_ipv6_gateways_of_objects,
    #[ignore = "long: FRR converges"]
    ipv4_by_ipv6_gateways_without_groups,
];

/// The sources of the routes of exactly this prefix.
fn sources(router: &Router, prefix: &str) -> Vec<String> {
    let shown = router.show(&format!("routes {prefix}"));
    let rows = shown["rows"].as_array().cloned().unwrap_or_default();
    let of = rows.iter().filter(|row| row["prefix"] == prefix);
    of.map(|row| row["source"].as_str().unwrap_or("?").to_owned())
        .collect()
}

/// zebra puts its routes into the kernel's table as well. They are kept once, from FPM; after FRR
/// has ended, from the kernel, without loss.
fn routes_are_known_once_and_the_kernels_stay_when_frr_is_gone() {
    for _ in 0..ROUNDS {
        let Some(net) = Net::new() else { return };
        let mut router = net.linerate_with("af_packet", "fpm = \"127.0.0.1:2620\"\ngraceful = 2\n");
        let _peers = net.peers();
        let middle = net.middle(["lr-a", "lr-b"], BY_FPM);
        net.whole(&middle, Some(&router));
        for prefix in ["10.102.0.0/24", "10.202.0.0/24", "fd00:102::/48"] {
            assert_eq!(sources(&router, prefix), ["fpm"], "{prefix}");
            let family = if prefix.contains(':') { "-6" } else { "-4" };
            let kernels = net.mid.ip(&format!("{family} route show {prefix}"));
            assert!(kernels.contains("proto"), "the kernel has it, too");
        }
        let drops = linerate_testkit::netns::backlog_drops();
        let stream = Stream::start((&net.one, PAIRS[0].0), (&net.two, PAIRS[0].1));
        stream.flows(100);
        middle.kill();
        router.says("routes were not repeated");
        for prefix in ["10.102.0.0/24", "10.202.0.0/24", "fd00:102::/48"] {
            assert_eq!(sources(&router, prefix), ["kernel"], "{prefix}");
        }
        stream.flows(500);
        let (sent, lost) = stream.end();
        // When FRR is back, its routes have the lower distance.
        let middle = net.middle(["lr-a", "lr-b"], BY_FPM);
        net.whole(&middle, Some(&router));
        linerate_testkit::wait("FRR's own routes", || {
            sources(&router, "10.102.0.0/24") == ["fpm"]
        });
        router.stop();
        if linerate_testkit::netns::backlog_drops() == drops {
            assert!(lost.is_empty(), "of {sent} were lost {lost:?}");
            return;
        }
    }
    panic!("the kernel lost frames in each of {ROUNDS} rounds");
}

/// A host interface is deleted: it is made again with another number, which FRR uses from then on.
fn a_host_interface_is_made_again(zebra: (&'static str, &'static str)) {
    let Some(net) = Net::new() else { return };
    let router = net.linerate_with("af_packet", "fpm = \"127.0.0.1:2620\"\n");
    let _peers = net.peers();
    let middle = net.middle(["lr-a", "lr-b"], zebra);
    net.whole(&middle, Some(&router));
    for host_interface in ["lr-b", "lr-a", "lr-b"] {
        let before = index(&net.mid, host_interface);
        net.mid.ip(&format!("link delete {host_interface}"));
        linerate_testkit::wait("the host interface to come back", || {
            net.mid.has(host_interface) && index(&net.mid, host_interface) != before
        });
        let now = format!("index {} ", index(&net.mid, host_interface));
        linerate_testkit::wait("FRR to hear of it", || {
            middle
                .says(&format!("show interface {host_interface}"))
                .contains(&now)
        });
        linerate_testkit::wait("FRR to have its routes again", || {
            let routes = middle.says("show ip route\nshow ipv6 route");
            let networks = [
                "10.101.",
                "10.102.",
                "10.201.",
                "10.202.",
                "fd00:101:",
                "fd00:102:",
            ];
            networks.iter().all(|network| routes.contains(network))
        });
        net.whole(&middle, Some(&router));
    }
    router.stop();
}

fn index(namespace: &Namespace, interface: &str) -> String {
    let text = namespace.ip(&format!("-o link show {interface}"));
    text.split(':').next().unwrap_or_default().to_owned()
}

fn a_host_interface_is_made_again_under_frr() {
    a_host_interface_is_made_again(BY_FPM);
}

fn a_host_interface_is_made_again_under_frr_without_groups() {
    a_host_interface_is_made_again(BY_FPM_WITHOUT_GROUPS);
}

/// RFC 8950: the sessions have IPv6 addresses and carry IPv4 routes, whose gateways are IPv6
/// addresses. With objects zebra sends the IPv6 gateway; without, it sends 169.254.0.1 and adds a
/// neighbour of that address to the kernel, from router advertisements.
fn ipv4_by_ipv6_gateways(zebra: (&'static str, &'static str)) {
    let Some(net) = Net::new() else { return };
    let router = net.linerate_with("af_packet", "fpm = \"127.0.0.1:2620\"\n");
    let frr = |namespace: &Namespace, id: u32, peers: &[(&str, u32)], zebra: (&str, &str)| {
        let mut bgpd = format!(
            "router bgp {}\n bgp router-id 192.0.2.{}\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n",
            65_000 + id,
            id + 1
        );
        let (mut here, mut active) = (String::new(), String::new());
        for (peer, other) in peers {
            here += &format!(
                " neighbor {peer} remote-as {}\n neighbor {peer} timers connect 1\n neighbor \
                 {peer} advertisement-interval 0\n neighbor {peer} capability extended-nexthop\n",
                65_000 + other
            );
            active += &format!("  neighbor {peer} activate\n");
        }
        let network = match id {
            0 => String::new(),
            id => format!("  network 10.10{id}.0.0/24\n"),
        };
        bgpd +=
            &format!("{here} address-family ipv4 unicast\n{network}{active} exit-address-family\n");
        let interfaces: &[&str] = match id {
            0 => &["lr-a", "lr-b"],
            1 => &["veth0"],
            _ => &["veth1"],
        };
        let mut lines = zebra.1.to_owned();
        for interface in interfaces {
            lines += &format!(
                "interface {interface}\n no ipv6 nd suppress-ra\n ipv6 nd ra-interval 1\n"
            );
        }
        let daemons = [("zebra", zebra.0, lines), ("bgpd", "--bgp_port 179", bgpd)];
        Frr::of(namespace, &format!("frr{id}"), &daemons, &net.scratch)
    };
    let _one = frr(&net.one, 1, &[("fd00:1::1", 0)], ("", ""));
    let _two = frr(&net.two, 2, &[("fd00:2::1", 0)], ("", ""));
    let middle = frr(&net.mid, 0, &[("fd00:1::2", 1), ("fd00:2::2", 2)], zebra);
    let (from, to) = PAIRS[0];
    let start = std::time::Instant::now();
    while !reaches(&net.one, &format!("-I {from} {to}"), 1) {
        assert!(
            start.elapsed() < linerate_testkit::PATIENCE,
            "{}\n{}\n{}\n{}",
            middle.says("show bgp ipv4 unicast"),
            middle.says("show ip route"),
            router.ctl("show routes"),
            router.ctl("show neighbours"),
        );
    }
    // The kernel's may come first.
    linerate_testkit::wait("the route by FPM", || {
        sources(&router, "10.102.0.0/24") == ["fpm"]
    });
    router.stop();
}

fn ipv4_by_ipv6_gateways_of_objects() {
    ipv4_by_ipv6_gateways(BY_FPM);
}

fn ipv4_by_ipv6_gateways_without_groups() {
    ipv4_by_ipv6_gateways(BY_FPM_WITHOUT_GROUPS);
}
