//! tayga as NAT64's other side: a translator without state (RFC 7915) before the gateway, for a
//! host whose programs know IPv4 alone (464XLAT, RFC 6877), and behind it, before a server that
//! knows IPv6 alone.
//!
//! ```text
//! left: 192.0.0.1, tayga, fd00:c::1 ---- a              b ---- 10.2.0.2 :right
//!                                         our NAT64
//! left: fd00:1::2 ---------------------- a              b ---- 10.98.0.1, tayga, fd00:98::1 :right
//! ```

use super::{at, exchange_by};
use crate::router::basic::path_mtu;
use crate::router::instance::{Router, two_ports};
use crate::router::site::{LEFT4, LEFT6, RIGHT4, Site, ping_says, reaches};
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use linerate_testkit::{Scratch, has, wait};
use linerate_testkit::{harness::Test, tests};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: tayga translates in a process of its own"]
    a_host_of_ipv4_behind_tayga_reaches_ipv4_by_our_nat64,
    #[ignore = "long: tayga translates in a process of its own"]
    a_host_of_ipv6_reaches_a_server_of_ipv6_by_our_nat64_and_tayga,
];

/// The prefix of NAT64 that both of them know, and the gateway's pool.
const PREFIX: &str = "fd00:64::";
const POOL: &str = "198.51.100.1";
const DEVICE: &str = "tayga0";

/// An address of IPv4, as hosts of IPv6 call it.
fn called(v4: &str) -> String {
    format!("{PREFIX}{v4}")
}

/// tayga at work in a namespace whose kernel forwards.
struct Tayga {
    _running: Running,
}

impl Tayga {
    /// With these lines in its file, and a device of this MTU, to which these networks lead.
    #[track_caller]
    fn start(
        host: &Namespace,
        lines: &str,
        mtu: u32,
        networks: &[&str],
        scratch: &Scratch,
    ) -> Self {
        let file = scratch.file("tayga.conf");
        std::fs::write(&file, format!("tun-device {DEVICE}\n{lines}")).unwrap();
        let made = host.run("tayga", &format!("--config {file} --mktun"));
        assert!(made.status.success(), "{made:?}");
        host.ip(&format!("link set {DEVICE} up mtu {mtu}"));
        for network in networks {
            let family = if network.contains(':') { "-6" } else { "-4" };
            host.ip(&format!("{family} route add {network} dev {DEVICE}"));
        }
        host.sysctl("ipv4/ip_forward", "1");
        host.sysctl("ipv6/conf/all/forwarding", "1");
        let mut running = host.start("tayga", &format!("--config {file} --nodetach -d"));
        // Its device has a carrier when it is there; what it says waits in its buffer.
        running.wait("tayga to have its device", |_, _| {
            host.ip(&format!("link show dev {DEVICE}"))
                .contains("LOWER_UP")
        });
        Self { _running: running }
    }
}

/// A site, and the gateway with NAT64 in its middle; more of its file.
fn begin(more_a: &str, more_b: &str, routes: &str, scratch: &Scratch) -> Option<(Site, Router)> {
    if !has(&["tayga", "ping"]) {
        return None;
    }
    let site = Site::new()?;
    let config = two_ports("af_packet", more_a, more_b)
        + &super::outward([1024; 2])
        + &format!(
            "[nat]\n[[nat.pool]]\nname = \"pool\"\naddresses = [\"{POOL}\"]\n\
             [[nat.nat64]]\nprefix = \"{PREFIX}/96\"\nfrom = \"inside\"\npool = \"pool\"\n{routes}"
        );
    let gateway = Router::start_as("gateway", &site.mid, scratch, &config);
    Some((site, gateway))
}

/// A datagram is asked and answered; the server has the address `bound`, the client says `to`.
/// Returns who has asked, as the server sees it.
#[track_caller]
fn asks(
    (client, source): (&Namespace, &str),
    (server, bound): (&Namespace, &str),
    to: &str,
    bytes: usize,
) -> SocketAddr {
    let patience = Some(Duration::from_secs(10));
    let answers = server.inside(|| UdpSocket::bind(at(bound, 53)).unwrap());
    answers.set_read_timeout(patience).unwrap();
    let asks = client.inside(|| UdpSocket::bind(at(source, 4000)).unwrap());
    asks.set_read_timeout(patience).unwrap();
    let question = linerate_testkit::traffic::noise(bytes);
    client.inside(|| asks.send_to(&question, at(to, 53)).unwrap());
    let mut said = vec![0; bytes + 1];
    let (length, from) = answers.recv_from(&mut said).unwrap();
    assert!(said[..length] == question, "{length} bytes of {bytes}");
    answers.send_to(b"answer", from).unwrap();
    let (length, by) = asks.recv_from(&mut said).unwrap();
    assert_eq!((&said[..length], by), (&b"answer"[..], at(to, 53)));
    from
}

/// A host finds the path MTU to an address, by pings that do not fit. Returns how much of UDP does,
/// in bytes.
#[track_caller]
fn finds_mtu(host: &Namespace, address: &str, mtu: u32) -> usize {
    let headers = if address.contains(':') { 48 } else { 28 };
    wait(&format!("a path MTU of {mtu} to {address}"), || {
        let bytes = path_mtu(host, address).unwrap_or(1500) - headers;
        ping_says(host, &format!("-c 1 -W 1 -M do -s {bytes} {address}"));
        path_mtu(host, address) == Some(mtu)
    });
    (mtu - headers) as usize
}

/// tayga is the customer's side (CLAT), and the gateway the provider's (PLAT). Both their links
/// are too narrow for what the hosts would send, each way by another figure.
fn a_host_of_ipv4_behind_tayga_reaches_ipv4_by_our_nat64() {
    let scratch = Scratch::new();
    let routes = "[[route]]\nprefix = \"fd00:c::/64\"\nvia = \"fd00:1::2\"\n";
    let Some((site, gateway)) = begin("mtu = 1460", "mtu = 1400", routes, &scratch) else {
        return;
    };
    let (left, right) = (&site.left, &site.right);
    // Its link is one of IPv6 alone.
    left.ip("route del default");
    left.ip(&format!("addr del {LEFT4}/24 dev veth0"));
    let lines = format!(
        "ipv4-addr 192.0.0.2\nipv6-addr fd00:c::2\nprefix {PREFIX}/96\nmap 192.0.0.1 fd00:c::1\n"
    );
    let tayga = Tayga::start(left, &lines, 1500, &["fd00:c::/64"], &scratch);
    left.ip(&format!("addr add 192.0.0.1/32 dev {DEVICE}"));
    left.ip(&format!("route add default dev {DEVICE} src 192.0.0.1"));
    reaches(left, RIGHT4);
    let from = asks((left, "192.0.0.1"), (right, RIGHT4), RIGHT4, 1000);
    assert_eq!(from.ip().to_string(), POOL);
    exchange_by(left, (right, RIGHT4), RIGHT4, 4 << 20);
    // The gateway's error of IPv6 came to the host by tayga, and its error of IPv4 to the server.
    assert_eq!(path_mtu(left, RIGHT4), Some(1400));
    assert_eq!(path_mtu(right, POOL), Some(1440));
    left.ip("route flush cache");
    let fits = finds_mtu(left, RIGHT4, 1400);
    // Not a ping: Linux lets its answer be fragmented, the gateway does so (RFC 7915 4), and
    // fragments of ICMP are not translated (RFC 7915 1.2).
    asks((left, "192.0.0.1"), (right, RIGHT4), RIGHT4, fits);
    // A port where nobody listens.
    let asks = left.inside(|| UdpSocket::bind(at("192.0.0.1", 0)).unwrap());
    asks.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    left.inside(|| asks.connect(at(RIGHT4, 9)).unwrap());
    asks.send(b"?").unwrap();
    let refused = asks.recv(&mut [0]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let flows = gateway.show("flows");
    let is_ours = |flow: &serde_json::Value| {
        let source = flow["source"].as_str();
        source.is_some_and(|source| source.contains("fd00:c::1"))
    };
    let rows = flows["rows"].as_array().unwrap();
    assert!(rows.iter().any(is_ours), "{flows}");
    drop(tayga);
    gateway.stop();
}

/// tayga gives a server of IPv6 an address of IPv4, which a host of IPv6 reaches by NAT64: an error
/// of tayga's, which is of IPv4, comes to the host as one of IPv6.
fn a_host_of_ipv6_reaches_a_server_of_ipv6_by_our_nat64_and_tayga() {
    const SERVER4: &str = "10.98.0.1";
    const SERVER6: &str = "fd00:98::1";
    let scratch = Scratch::new();
    let routes = format!("[[route]]\nprefix = \"10.98.0.0/24\"\nvia = \"{RIGHT4}\"\n");
    let Some((site, gateway)) = begin("", "", &routes, &scratch) else {
        return;
    };
    let (left, right) = (&site.left, &site.right);
    right.ip(&format!("addr add {SERVER6}/128 dev lo"));
    let lines = format!(
        "ipv4-addr 10.98.0.254\nipv6-addr fd00:98::fe\nprefix fd00:96::/96\n\
         map {SERVER4} {SERVER6}\n"
    );
    let networks = ["10.98.0.0/24", "fd00:96::/96", "fd00:98::fe/128"];
    let tayga = Tayga::start(right, &lines, 1340, &networks, &scratch);
    let server = called(SERVER4);
    reaches(left, &server);
    let from = asks((left, LEFT6), (right, SERVER6), &server, 1000);
    assert_eq!(from.ip(), at(&format!("fd00:96::{POOL}"), 0).ip());
    exchange_by(left, (right, SERVER6), &server, 4 << 20);
    // Its device takes 1340 bytes of IPv6: 1320 of IPv4, which are 1340 on the host's side.
    let fits = finds_mtu(left, &server, 1340);
    asks((left, LEFT6), (right, SERVER6), &server, fits);
    let said = ping_says(left, &format!("-c 1 -W 5 -M do -s {fits} {server}"));
    assert!(said.contains("1 received"), "{said}");
    // The kernel that forwards to tayga says of its own that the hops are used up.
    let said = ping_says(left, &format!("-c 1 -W 5 -t 2 {server}"));
    let who = "From fd00:64::a02:2 ";
    assert!(
        said.contains(who) && said.contains("Time exceeded"),
        "{said}"
    );
    drop(tayga);
    gateway.stop();
}
