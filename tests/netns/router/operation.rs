//! Operation: reload under traffic, host interfaces that mirror and come back, routes from the
//! kernel's tables, capture, errors in the file, and the end.

use super::instance::{Router, port, two_ports};
use super::site::{FAR_GATE4, GATE4, GATE6, LEFT4, LEFT6, RIGHT4, RIGHT6, Site, reaches};
use super::stream::Stream;
use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::process::Running;
use linerate_testkit::traffic::ROUNDS;
use linerate_testkit::{capture, has, wait};
use linerate_testkit::{harness::Test, tests};
use rustix::process::Signal;
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![
    reload_keeps_traffic_over_af_packet,
    reload_keeps_traffic_over_af_xdp,
    sighup_reloads_the_configuration,
    host_interfaces_mirror_their_interfaces,
    addresses_are_announced_when_a_link_comes_back,
    a_host_interface_deleted_under_us,
    a_port_deleted_under_us,
    killed_and_started_again,
    capture_of_a_running_router,
    mistakes_are_listed_all_at_once,
    a_check_touches_nothing,
    the_kernel_does_not_answer_on_the_routers_ports,
];

/// Datagrams flow in both directions and families during an action, and none is lost. Repeated if
/// the kernel counted a loss, since its rings overflow while the router waits for a busy CPU.
#[track_caller]
pub(super) fn none_lost(site: &Site, router: &Router, mut meanwhile: impl FnMut()) {
    let kernel_drops = || site.kernel_drops() + router.dropped("rx_missed");
    for _ in 0..ROUNDS {
        let drops = kernel_drops();
        let streams = [
            Stream::start((&site.left, LEFT4), (&site.right, RIGHT4)),
            Stream::start((&site.right, RIGHT6), (&site.left, LEFT6)),
        ];
        streams.iter().for_each(|stream| stream.flows(50));
        meanwhile();
        streams.iter().for_each(|stream| stream.flows(50));
        let ends = streams.map(Stream::end);
        if kernel_drops() == drops {
            for (family, (sent, lost)) in ["IPv4", "IPv6"].iter().zip(ends) {
                let dropped = router.ctl("show drops") + &router.said();
                assert!(
                    lost.is_empty(),
                    "{family}: of {sent} were lost {lost:?}\n{dropped}"
                );
            }
            return;
        }
    }
    panic!("the kernel lost frames in each of {ROUNDS} rounds");
}

fn reload_keeps_traffic(kind: &str) {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let plain = two_ports(kind, "", "");
    let router = Router::start(&site.mid, &scratch, &plain);
    site.works();
    let rules: Vec<String> = (0..200)
        .map(|number| {
            format!(
                "  {{ action = \"deny\", destination = \"10.99.{number}.0/24\", protocol = \
                \"tcp\", destination_port = \"{}\" }},\n",
                1000 + number
            )
        })
        .collect();
    let routes: Vec<String> = (0..200)
        .map(|number| {
            format!("\n[[route]]\nprefix = \"10.88.{number}.0/24\"\nvia = \"{RIGHT4}\"\n")
        })
        .collect();
    let other = two_ports(kind, "acl_in = \"new\"\nurpf = \"strict\"", "mtu = 1400")
        + &routes.concat()
        + &format!(
            "\n[[acl]]\nname = \"new\"\ndefault = \"permit\"\nrules = [\n{}]\n",
            rules.concat()
        );
    none_lost(&site, &router, || {
        for config in [&other, &plain, &other, &plain] {
            router.reload(config);
        }
    });
    router.reload(&other);
    assert!(router.ctl("show routes").contains("10.88.199.0/24"));

    // With one error nothing is changed.
    let wrong = plain.clone() + "\n[[route]]\nprefix = \"10.88.0.0/33\"\nvia = \"10.2.0.2\"\n";
    none_lost(&site, &router, || {
        let output = router.try_reload(&wrong);
        let said =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(
            !output.status.success() && said.contains("10.88.0.0/33"),
            "{said}"
        );
    });
    assert!(router.ctl("show routes").contains("10.88.199.0/24"));
    router.stop();
}

fn reload_keeps_traffic_over_af_packet() {
    reload_keeps_traffic("af_packet");
}

fn reload_keeps_traffic_over_af_xdp() {
    reload_keeps_traffic("af_xdp");
}

/// SIGHUP reads the file again, too.
fn sighup_reloads_the_configuration() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    let more = "\n[[route]]\nprefix = \"10.88.0.0/24\"\nblackhole = true\n";
    router.rewrite(&(two_ports("af_packet", "", "") + more));
    router.signal(Signal::HUP);
    router.shows("routes", |text| text.contains("10.88.0.0/24"));
    router.stop();
}

/// A host interface has the addresses, the MTU, the MAC address and the state of its interface.
fn host_interfaces_mirror_their_interfaces() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(
        &site.mid,
        &scratch,
        &two_ports("af_packet", "", "mtu = 1400"),
    );
    let says = |words: &str, text: &str| {
        wait(&format!("`ip {words}` to say {text}"), || {
            site.mid.ip(words).contains(text)
        });
    };
    says("addr show lr-a", "10.1.0.1/24");
    says("addr show lr-a", "fd00:1::1/64");
    says("link show lr-b", "mtu 1400");
    assert_eq!(site.mid.mac("lr-a"), site.mid.mac("a"));
    // The port loses its carrier, and gets it back.
    site.left.ip("link set veth0 down");
    says("link show lr-a", "NO-CARRIER");
    site.left.ip("link set veth0 up");
    // When its interface went down the host lost its routes.
    site.left.ip("route replace default via 10.1.0.1");
    wait("the host interface's carrier", || {
        !site.mid.ip("link show lr-a").contains("NO-CARRIER")
    });
    // The router learns an address and a route from the kernel's tables.
    site.mid.ip("addr add 10.3.0.1/24 dev lr-a");
    site.mid.ip("route add 10.44.0.0/16 via 10.2.0.2 dev lr-b");
    site.left.ip("addr add 10.3.0.2/24 dev veth0");
    reaches(&site.left, "10.3.0.1");
    site.right.ip("addr add 10.44.0.1/32 dev lo");
    reaches(&site.left, "10.44.0.1");
    site.mid.ip("route del 10.44.0.0/16");
    wait("the route to be gone", || {
        !router.ctl("show routes").contains("10.44.0.0/16")
    });
    router.stop();
    wait("the host interfaces to go", || {
        !site.mid.has("lr-a") && !site.mid.has("lr-b")
    });
}

/// Hosts behind a link that comes up get the router's MAC address at once, without asking.
fn addresses_are_announced_when_a_link_comes_back() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    site.left.ip("link set veth0 down");
    router.shows("ports", |text| text.contains("down"));
    // Linux accepts unsolicited messages with this sysctl, and has removed all neighbours with the
    // link.
    site.left.sysctl("ipv4/conf/veth0/arp_accept", "1");
    let knows = || site.left.ip("neigh show dev veth0").contains(GATE4);
    assert!(!knows());
    site.left.ip("link set veth0 up");
    wait("the host to hear of the router", knows);
    router.stop();
}

/// A host interface is deleted: traffic through the router goes on, the host interface is made
/// again, and the router itself is reached again.
fn a_host_interface_deleted_under_us() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    none_lost(&site, &router, || {
        site.mid.ip("link del lr-a");
        wait("the host interface to be made again", || {
            site.mid.has("lr-a")
        });
    });
    site.works();
    // Set down by an administrator it stays down, and forwarding continues.
    router.stop();
}

/// The interface of a port is deleted, and comes back.
fn a_port_deleted_under_us() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    site.mid.ip("link del dev a");
    router.shows("ports", |text| {
        text.contains("down") || text.contains("no interface")
    });
    assert!(linerate_testkit::traffic::reaches(
        &site.right,
        FAR_GATE4,
        10
    ));
    site.left.wire("veth0", &site.mid, "a", "");
    site.left.plain("veth0");
    site.mid.plain("a");
    super::site::host(&site.left, "veth0", LEFT4, LEFT6, GATE4, GATE6);
    site.works();
    router.stop();
}

fn killed_and_started_again() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    for _ in 0..2 {
        let router = Router::start(&site.mid, &scratch, &two_ports("af_xdp", "", ""));
        site.works();
        router.kill();
    }
    let router = Router::start(&site.mid, &scratch, &two_ports("af_xdp", "", ""));
    site.works();
    let totals = router.stop();
    assert!(totals.is_object(), "{totals}");
}

/// A capture of the live instance, by a filter; libpcap reads it.
fn capture_of_a_running_router() {
    if !has(&["tcpdump"]) {
        return;
    }
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    let file = scratch.file("live.pcapng");
    let mut command = Command::new(binary());
    command.args([
        "capture",
        "--socket",
        router.socket(),
        "--port",
        "a",
        "--filter",
        "icmp",
    ]);
    let mut capture = Running::start(command.args(["-w", &file, "--count", "6"]));
    wait("six frames", || {
        reaches(&site.left, RIGHT4);
        reaches(&site.left, RIGHT6);
        !capture.is_alive()
    });
    assert!(capture.end().success(), "{}", capture.stderr.text());
    let frames = capture::frames(&file, &scratch);
    assert_eq!(frames.len(), 6);
    assert!(
        frames
            .iter()
            .all(|frame| frame[12..14] == [8, 0] && frame[23] == 1)
    );
    router.stop();
}

/// All errors of a file at once, each with its line; and nothing is started.
fn mistakes_are_listed_all_at_once() {
    let scratch = Scratch::new();
    let file = scratch.file("wrong.toml");
    let text = port("null", "a", &["10.1.0.1/24"], "urpf = \"sometimes\"")
        + &port("null", "b", &["10.2.0.1/33"], "acl_in = \"edg\"")
        + "\n[[route]]\nprefix = \"fd00:8::/32\"\nvia = \"10.9.9.9\"\n\
           \n[[acl]]\nname = \"edge\"\ndefault = \"permit\"\nrules = []\n\
           \n[[neighbour]]\naddress = \"10.1.0.2\"\nmac = \"02:00\"\ninterface = \"c\"\n";
    std::fs::write(&file, text).unwrap();
    let output = Command::new(binary())
        .args(["router", &file, "--check"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(78), "{said}");
    for part in [
        "wrong.toml",
        // The legal values.
        "sometimes",
        "loose",
        "strict",
        "10.2.0.1/33",
        // The nearest name.
        "edg",
        "edge",
        "10.9.9.9",
        "02:00",
        "line",
    ] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

/// `--check` of a valid file succeeds, and changes nothing.
fn a_check_touches_nothing() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let file = scratch.file("right.toml");
    std::fs::write(&file, two_ports("af_packet", "", "")).unwrap();
    let output = site.mid.run(binary(), &format!("router {file} --check"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!site.mid.has("lr-a"));
}

/// With af_packet the kernel receives all frames, too: it is silenced while the router runs, and
/// restored when it ends, even if a run in between was killed.
fn the_kernel_does_not_answer_on_the_routers_ports() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let settings = || {
        [
            "ipv4/conf/a/rp_filter",
            "ipv4/conf/a/arp_ignore",
            "ipv6/conf/a/disable_ipv6",
        ]
        .map(|key| {
            let read = || std::fs::read_to_string(format!("/proc/sys/net/{key}"));
            site.mid.inside(read).unwrap().trim().to_string()
        })
    };
    let before = settings();
    let config = two_ports("af_packet", "", "");
    for ends in [Router::kill as fn(Router), |router| drop(router.stop())] {
        let router = Router::start(&site.mid, &scratch, &config);
        assert_eq!(settings(), ["1", "8", "1"]);
        ends(router);
    }
    assert_eq!(settings(), before);
}
