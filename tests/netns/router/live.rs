//! Changes while the router runs: ports, VRFs, loopbacks; and the router's own addresses without a
//! port.

use super::basic::http;
use super::instance::{Router, port, two_ports};
use super::operation::none_lost;
use super::site::{FAR_GATE4, FAR_GATE6, LEFT4, RIGHT4, Site, host, link, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{harness::Test, tests};
use linerate_testkit::{traffic, wait};

pub(crate) const TESTS: &[Test] = tests![
    a_port_comes_and_goes_over_af_packet,
    a_port_comes_and_goes_over_af_xdp,
    a_port_that_cannot_be_opened_changes_nothing,
    a_vrf_comes_is_renamed_and_goes,
    addresses_on_no_port,
];

/// A reload adds a third port with its network, and another removes it; no packet of the others is
/// lost.
fn a_port_comes_and_goes(kind: &str) {
    let Some(site) = Site::new() else { return };
    let Some(third) = Namespace::with_ipv6("t") else {
        return;
    };
    link(&third, "veth2", &site.mid, "c");
    host(
        &third,
        "veth2",
        "10.3.0.2",
        "fd00:3::2",
        "10.3.0.1",
        "fd00:3::1",
    );
    let scratch = Scratch::new();
    let two = two_ports(kind, "", "");
    let three = port(kind, "c", &["10.3.0.1/24", "fd00:3::1/64"], "") + &two;
    let router = Router::start(&site.mid, &scratch, &two);
    site.works();
    none_lost(&site, &router, || {
        router.reload(&three);
        // Between the new port and the others, in both directions, and to the router itself.
        for address in [LEFT4, RIGHT4, "10.3.0.1", "fd00:3::1", "fd00:2::2"] {
            reaches(&third, address);
        }
        reaches(&site.left, "10.3.0.2");
        http(&site.mid, "10.3.0.1", &third);
        assert!(site.mid.has("lr-c"));
        router.reload(&two);
        assert!(!site.mid.has("lr-c"));
    });
    // The kernel has its interface back, and adding the port again works as well.
    let rp_filter = || std::fs::read_to_string("/proc/sys/net/ipv4/conf/c/arp_ignore");
    assert_eq!(site.mid.inside(rp_filter).unwrap().trim(), "0");
    router.reload(&three);
    reaches(&third, LEFT4);
    site.works();
    assert_eq!(router.dropped("no_outlet"), 0, "{}", router.show("drops"));
    router.stop();
}

fn a_port_comes_and_goes_over_af_packet() {
    a_port_comes_and_goes("af_packet");
}

fn a_port_comes_and_goes_over_af_xdp() {
    a_port_comes_and_goes("af_xdp");
}

/// A reload that fails half way, at a port that is not there, leaves nothing behind.
fn a_port_that_cannot_be_opened_changes_nothing() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let two = two_ports("af_packet", "", "");
    let router = Router::start(&site.mid, &scratch, &two);
    site.works();
    site.left.wire("veth9", &site.mid, "c", "");
    let more = port("af_packet", "c", &["10.3.0.1/24"], "")
        + &port("af_packet", "nosuch", &["10.4.0.1/24"], "");
    none_lost(&site, &router, || {
        let output = router.try_reload(&(two.clone() + &more));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("nosuch"),
            "{said}"
        );
    });
    assert!(!site.mid.has("lr-c") && !router.ctl("show ports").contains(" c "));
    router.stop();
}

/// A customer's VRF, with addresses that overlap others, is added on a port of its own, renamed,
/// and removed.
fn a_vrf_comes_is_renamed_and_goes() {
    let Some(site) = Site::new() else { return };
    let (Some(customer), Some(host_interfaces)) =
        (Namespace::with_ipv6("c"), Namespace::with_ipv6("t"))
    else {
        return;
    };
    link(&customer, "veth2", &site.mid, "c");
    // The left host has the same addresses.
    host(
        &customer,
        "veth2",
        LEFT4,
        "fd00:1::2",
        "10.1.0.1",
        "fd00:1::1",
    );
    let scratch = Scratch::new();
    // The name space is one that the router may enter from the start.
    let base = |vrfs: &str| {
        let old = format!(
            "\n[[vrf]]\nname = \"old\"\nnetns = \"{}\"\n",
            host_interfaces.name()
        );
        let old = old
            + "[[port]]\nname = \"o\"\nspec = \"null\"\n[[interface]]\nport = \"o\"\nvrf = \
                \"old\"\n";
        two_ports("af_packet", "", "") + &old + vrfs
    };
    let more = |name: &str| {
        let vrf = format!(
            "\n[[vrf]]\nname = \"{name}\"\ntable = 77\nnetns = \"{}\"\n",
            host_interfaces.name()
        );
        let interface = format!("vrf = \"{name}\"");
        base(
            &(vrf
                + &port(
                    "af_packet",
                    "c",
                    &["10.1.0.1/24", "fd00:1::1/64"],
                    &interface,
                )),
        )
    };
    let mut router = Router::start(&site.mid, &scratch, &base(""));
    site.works();
    // Added before the VRF exists, and learned with it.
    host_interfaces.ip("route add blackhole 10.77.0.0/16 table 77");
    none_lost(&site, &router, || {
        router.reload(&more("blue"));
        reaches(&customer, "10.1.0.1");
        http(&host_interfaces, "10.1.0.1", &customer);
        assert!(!traffic::reaches(&customer, RIGHT4, 1), "VRFs are apart");
    });
    let has = |text: &str, vrf: &str| {
        let mut rows = text.lines().filter(|row| row.contains("10.77.0.0/16"));
        rows.next().is_some_and(|row| row.contains(vrf)) && rows.next().is_none()
    };
    router.shows("routes", |text| has(text, "blue"));
    router.reload(&more("green"));
    assert!(has(&router.ctl("show routes"), "green"));
    reaches(&customer, "10.1.0.1");
    none_lost(&site, &router, || router.reload(&base("")));
    assert!(!router.ctl("show routes").contains("10.77.0.0/16"));
    assert!(!host_interfaces.has("lr-c"));
    router.stop();
}

/// A loopback of the configuration, and addresses on the kernel's own: both are the router's from
/// any side, served by the kernel, and so is the address of an interface whose link is down.
fn addresses_on_no_port() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let two = two_ports("af_packet", "", "");
    let lo = "\n[[interface]]\nname = \"lo0\"\nloopback = true\naddresses = [\"10.255.0.1/32\", \
        \"fd00:ff::1/128\"]\n";
    let mut router = Router::start(&site.mid, &scratch, &two);
    site.works();
    none_lost(&site, &router, || router.reload(&(two.clone() + lo)));
    wait("the loopback's host interface", || {
        site.mid.has("lr-lo0") && site.mid.ip("addr show lr-lo0").contains("10.255.0.1/32")
    });
    site.mid.ip("addr add 10.255.0.9/32 dev lo");
    site.mid.ip("addr add fd00:ff::9/128 dev lo");
    router.shows("routes", |text| {
        text.contains("10.255.0.9/32") && text.contains("fd00:ff::9/128")
    });
    for address in ["10.255.0.1", "10.255.0.9", "fd00:ff::1", "fd00:ff::9"] {
        reaches(&site.left, address);
        reaches(&site.right, address);
        http(&site.mid, address, &site.left);
    }
    // The kernel speaks from there, as BGP sessions of FRR do.
    let words = format!("-n -c 1 -W 2 -I 10.255.0.1 {RIGHT4}");
    wait("an answer to the loopback", || {
        site.mid.run("ping", &words).status.success()
    });
    // With the right link down its addresses are still ours.
    site.right.ip("link set veth1 down");
    router.shows("interfaces", |text| text.contains("down"));
    for address in [FAR_GATE4, FAR_GATE6, "10.255.0.1"] {
        reaches(&site.left, address);
    }
    site.mid.ip("addr del 10.255.0.9/32 dev lo");
    router.shows("routes", |text| !text.contains("10.255.0.9/32"));
    router.reload(&two);
    assert!(!site.mid.has("lr-lo0"));
    assert!(!traffic::reaches(&site.left, "10.255.0.1", 1));
    router.stop();
}
