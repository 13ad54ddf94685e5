//! Static routing, IPv4 and IPv6: ping, TCP, traceroute, path MTU discovery, the router's own
//! addresses, and routes that lead nowhere.

use super::instance::{Router, two_ports};
use super::site::{
    FAR_GATE4, FAR_GATE6, GATE4, GATE6, LEFT4, LEFT6, RIGHT4, RIGHT6, Site, iperf3, ping_hears,
};
use linerate_testkit::Scratch;
use linerate_testkit::netns::Namespace;
use linerate_testkit::traffic::{accept, noise};
use linerate_testkit::{PATIENCE, has};
use linerate_testkit::{harness::Test, tests};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

pub(crate) const TESTS: &[Test] = tests![
    hosts_in_different_networks_over_af_packet,
    hosts_in_different_networks_over_af_xdp,
    http_to_the_router_itself_over_af_packet,
    http_to_the_router_itself_over_af_xdp,
    traceroute_shows_the_router,
    path_mtu_discovery_works_end_to_end,
    what_may_be_fragmented_is,
    blackhole_unreachable_and_prohibit_routes,
    #[ignore = "long: 40 s of TCP"]
    tcp_over_af_packet,
    #[ignore = "long: 40 s of TCP"]
    tcp_over_af_xdp,
    hosts_with_offloads,
    ipv4_by_way_of_an_ipv6_gateway,
];

const KINDS: [&str; 2] = ["af_packet", "af_xdp"];

/// A site with a running router.
fn routed(kind: &str, more_a: &str, more_b: &str) -> Option<(Site, Router, Scratch)> {
    let site = Site::new()?;
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &two_ports(kind, more_a, more_b));
    Some((site, router, scratch))
}

/// A web server on an address of one namespace, with one request from another: the page arrives
/// complete.
#[track_caller]
pub(super) fn http(server: &Namespace, address: &str, client: &Namespace) {
    let page = noise(300_000);
    let listener = server.inside(|| TcpListener::bind((address, 0)).unwrap());
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = accept(&listener);
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            assert!(request.starts_with(b"GET / "));
            let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&page).unwrap();
        });
        let connected = client.inside(|| TcpStream::connect_timeout(&at, PATIENCE));
        let mut stream = connected.unwrap_or_else(|error| panic!("{at}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(&page), "{} bytes came", answer.len());
    });
}

fn hosts_in_different_networks(kind: &str) {
    let Some((site, router, _scratch)) = routed(kind, "", "") else {
        return;
    };
    site.works();
    for (address, from) in [(RIGHT4, &site.left), (RIGHT6, &site.left)] {
        http(&site.right, address, from);
    }
    for (address, from) in [(LEFT4, &site.right), (LEFT6, &site.right)] {
        http(&site.left, address, from);
    }
    // Ordinary operation causes no drops.
    let drops = router.show("drops");
    for reason in ["no_outlet", "answered"] {
        assert_eq!(router.dropped(reason), 0, "{drops}");
    }
    router.stop();
}

fn hosts_in_different_networks_over_af_packet() {
    hosts_in_different_networks("af_packet");
}

fn hosts_in_different_networks_over_af_xdp() {
    hosts_in_different_networks("af_xdp");
}

/// The web server is the kernel's TCP in the router's namespace, behind the TAP host interface;
/// also on the address of the interface that the client is not on.
fn http_to_the_router_itself(kind: &str) {
    let Some((site, router, _scratch)) = routed(kind, "", "") else {
        return;
    };
    site.works();
    for address in [GATE4, GATE6, FAR_GATE4, FAR_GATE6] {
        http(&site.mid, address, &site.left);
        http(&site.mid, address, &site.right);
    }
    // The other direction: the router's namespace is a host as well.
    http(&site.left, LEFT4, &site.mid);
    http(&site.right, RIGHT6, &site.mid);
    router.stop();
}

fn http_to_the_router_itself_over_af_packet() {
    http_to_the_router_itself("af_packet");
}

fn http_to_the_router_itself_over_af_xdp() {
    http_to_the_router_itself("af_xdp");
}

/// The router's line of a traceroute, and the destination's.
#[track_caller]
fn traceroute(from: &Namespace, words: &str, hops: [&str; 2]) {
    let mut said = String::new();
    // A probe may be lost while addresses are resolved.
    for _ in 0..5 {
        let output = from.run(
            "traceroute",
            &format!("-n -q 1 -w 5 -m 5 {words} {}", hops[1]),
        );
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        let seen = said.lines().skip(1).map(|line| {
            let mut words = line.split_whitespace();
            words.nth(1).unwrap_or_default().to_owned()
        });
        if seen.eq(hops) {
            return;
        }
    }
    panic!("traceroute {words} does not show {hops:?}: {said}");
}

fn traceroute_shows_the_router() {
    if !has(&["traceroute"]) {
        return;
    }
    for kind in KINDS {
        let Some((site, router, _scratch)) = routed(kind, "", "") else {
            return;
        };
        site.works();
        for words in ["", "-I", "-T"] {
            traceroute(&site.left, words, [GATE4, RIGHT4]);
            traceroute(&site.left, &format!("-6 {words}"), [GATE6, RIGHT6]);
        }
        traceroute(&site.right, "", [FAR_GATE4, LEFT4]);
        traceroute(&site.right, "-6", [FAR_GATE6, LEFT6]);
        router.stop();
    }
}

/// The path MTU to an address in the kernel of a host.
pub(super) fn path_mtu(host: &Namespace, address: &str) -> Option<u32> {
    let route = host.ip(&format!("route get {address}"));
    let mut words = route.split_whitespace().skip_while(|word| *word != "mtu");
    words.nth(1)?.parse().ok()
}

/// The right network's MTU is 1400 at the router only: hosts must learn it.
fn path_mtu_discovery_works_end_to_end() {
    for kind in KINDS {
        let Some((site, router, _scratch)) = routed(kind, "", "mtu = 1400") else {
            return;
        };
        site.works();
        // 1372 bytes of payload are 1400 with IPv4's and ICMP's headers, 1352 with IPv6's.
        ping_hears(
            &site.left,
            &format!("-c 1 -W 2 -M do -s 1372 {RIGHT4}"),
            "1 received",
        );
        ping_hears(
            &site.left,
            &format!("-c 1 -W 2 -M do -s 1373 {RIGHT4}"),
            "Frag needed and DF set (mtu = 1400)",
        );
        ping_hears(
            &site.left,
            &format!("-c 1 -W 2 -M do -s 1352 {RIGHT6}"),
            "1 received",
        );
        ping_hears(
            &site.left,
            &format!("-c 1 -W 2 -M do -s 1353 {RIGHT6}"),
            "Packet too big: mtu=1400",
        );
        assert_eq!(path_mtu(&site.left, RIGHT4), Some(1400));
        assert_eq!(path_mtu(&site.left, RIGHT6), Some(1400));
        // The kernel has learned it, and now fragments IPv4 itself. TCP without that knowledge has
        // to learn it during the connection.
        site.left.ip("route flush cache");
        site.left.ip("-6 route flush cache");
        http(&site.left, LEFT4, &site.right);
        http(&site.right, RIGHT4, &site.left);
        http(&site.left, LEFT6, &site.right);
        http(&site.right, RIGHT6, &site.left);
        router.stop();
    }
}

/// Without DF the router fragments IPv4; in both directions, and to more than two fragments.
fn what_may_be_fragmented_is() {
    for kind in KINDS {
        let Some((site, router, _scratch)) = routed(kind, "", "mtu = 1280") else {
            return;
        };
        site.works();
        for bytes in [1252, 1253, 1400, 1472, 3000, 20_000] {
            ping_hears(
                &site.left,
                &format!("-c 1 -W 2 -M dont -s {bytes} {RIGHT4}"),
                "1 received",
            );
        }
        router.stop();
    }
}

/// Routes of the configuration: which errors hosts get, and which not.
fn blackhole_unreachable_and_prohibit_routes() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "", "")
        + r#"
[[route]]
prefix = "10.9.1.0/24"
blackhole = true
[[route]]
prefix = "10.9.2.0/24"
unreachable = true
[[route]]
prefix = "10.9.3.0/24"
prohibit = true
[[route]]
prefix = "10.9.4.0/24"
via = "10.2.0.77"
[[route]]
prefix = "fd00:9:1::/48"
blackhole = true
[[route]]
prefix = "fd00:9:2::/48"
unreachable = true
[[route]]
prefix = "fd00:9:3::/48"
prohibit = true
[[route]]
prefix = "10.9.5.0/24"
via = "203.0.113.1"
"#;
    let mut router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let silent = |address: &str| {
        let said = super::site::ping_says(&site.left, &format!("-c 2 -W 1 -i 0.2 {address}"));
        assert!(
            said.contains("0 received") && !said.contains("From"),
            "{said}"
        );
    };
    silent("10.9.1.7");
    silent("fd00:9:1::7");
    for (address, expected) in [
        ("10.9.2.7", "Unreachable"),
        ("10.9.3.7", "Packet filtered"),
        // No route at all.
        ("198.51.100.7", "Destination Net Unreachable"),
        ("fd00:9:2::7", "Destination unreachable"),
        ("fd00:9:3::7", "Administratively prohibited"),
        ("2001:db8::7", "Destination unreachable: No route"),
        // The next hop does not answer, or is unreachable: the route is kept, and marked.
        ("10.9.4.7", "Destination Host Unreachable"),
    ] {
        ping_hears(&site.left, &format!("-c 1 -W 2 {address}"), expected);
    }
    assert!(router.dropped("blackhole") >= 4, "{}", router.show("drops"));
    let rows = router.shows("routes", |text| text.contains("10.9.5.0/24"));
    let row = rows.lines().find(|row| row.contains("10.9.5.0/24"));
    assert!(row.unwrap().contains("gateway unreachable"), "{rows}");
    // Other traffic is still forwarded.
    site.works();
    router.stop();
}

/// TCP for ten seconds each way.
fn long(kind: &str) {
    if !has(&["iperf3"]) {
        return;
    }
    let Some((site, router, _scratch)) = routed(kind, "", "") else {
        return;
    };
    site.works();
    for address in [RIGHT4, RIGHT6] {
        iperf3(&site.left, &site.right, address, 10, "");
        iperf3(&site.left, &site.right, address, 10, "--reverse");
    }
    site.works();
    router.stop();
}

fn tcp_over_af_packet() {
    long("af_packet");
}

fn tcp_over_af_xdp() {
    long("af_xdp");
}

/// Hosts that leave segmentation and checksums to their devices, as they do by default.
fn hosts_with_offloads() {
    let Some(site) = Site::with_offloads() else {
        return;
    };
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    http(&site.right, RIGHT4, &site.left);
    http(&site.right, RIGHT6, &site.left);
    http(&site.mid, GATE4, &site.left);
    router.stop();
}

/// IPv4 by an IPv6 gateway (RFC 8950) in the file: both directions, and errors on the path.
fn ipv4_by_way_of_an_ipv6_gateway() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "", "")
        + &format!("\n[[route]]\nprefix = \"10.44.0.0/16\"\nvia = \"{RIGHT6}\"\n");
    let router = Router::start(&site.mid, &scratch, &config);
    site.right.ip("addr add 10.44.0.1/32 dev lo");
    super::site::reaches(&site.left, "10.44.0.1");
    assert!(router.ctl("show routes").contains(RIGHT6));
    router.stop();
}
