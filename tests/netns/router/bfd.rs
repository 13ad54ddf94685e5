//! BFD (RFC 5880, 5881) between FRR behind a host interface and an FRR neighbour: their packets
//! pass the router unchanged, so sessions come up, detect a cut link, and notify BGP at once.
//!
//! ```text
//! one: FRR, veth0 ---- c0 :cable: c1 ---- a :mid, linerate + FRR on lr-a
//! ```
//!
//! The cable is a bridge, so that it can be cut without a loss of carrier.

use super::frr::Frr;
use super::instance::{Router, port};
use linerate_testkit::Scratch;
use linerate_testkit::has;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: FRR starts, and sessions go down and come back"]
    sessions_through_a_host_interface_over_af_packet,
    #[ignore = "long: FRR starts, and sessions go down and come back"]
    sessions_through_a_host_interface_over_af_xdp,
];

/// The neighbour's addresses, and the router's.
const ONE: [&str; 2] = ["10.1.0.2", "fd00:1::2"];
const GATE: [&str; 2] = ["10.1.0.1", "fd00:1::1"];

/// FRR whose BGP peers are watched by BFD: three missed packets of 300 ms each. BGP itself would
/// need three minutes.
fn frr(namespace: &Namespace, asn: [u32; 2], peers: [&str; 2], scratch: &Scratch) -> Frr {
    let mut bgpd = format!(
        "router bgp {}\n bgp router-id 192.0.2.{}\n no bgp ebgp-requires-policy\n",
        asn[0],
        asn[0] % 256
    );
    for peer in peers {
        bgpd += &format!(
            " neighbor {peer} remote-as {}\n neighbor {peer} timers connect 1\n \
             neighbor {peer} bfd\n neighbor {peer} bfd profile fast\n",
            asn[1]
        );
    }
    let bfdd = "bfd\n profile fast\n  detect-multiplier 3\n  receive-interval 300\n  \
                transmit-interval 300\n";
    let daemons = [
        ("zebra", "", String::new()),
        ("bfdd", "", bfdd.into()),
        ("bgpd", "--bgp_port 179", bgpd),
    ];
    Frr::of(namespace, &format!("frr{}", asn[0]), &daemons, scratch)
}

/// Whether the sessions of an FRR with these peers, BFD's and BGP's, are all up, or all down.
#[track_caller]
fn are(frr: &Frr, peers: [&str; 2], up: bool) {
    let mut said = String::new();
    let start = std::time::Instant::now();
    loop {
        let bfd = frr.says("show bfd peers brief");
        let bgp = peers.map(|peer| frr.says(&format!("show bgp neighbors {peer}")));
        let state = |peer: &str| {
            let mut rows = bfd
                .lines()
                .map(|row| row.split_whitespace().collect::<Vec<_>>());
            rows.find(|row| row.get(2) == Some(&peer))
                .and_then(|row| row.get(3).copied().map(str::to_owned))
        };
        let word = if up { "up" } else { "down" };
        let bfd_is_so = peers
            .iter()
            .all(|peer| state(peer).as_deref() == Some(word));
        let established = |text: &String| text.contains("BGP state = Established");
        if bfd_is_so && bgp.iter().all(|text| established(text) == up) {
            return;
        }
        assert!(
            start.elapsed() < linerate_testkit::PATIENCE,
            "not {word} after {} s, before {said}\n{bfd}\n{}",
            linerate_testkit::PATIENCE.as_secs(),
            bgp.join("\n")
        );
        said = bfd;
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn sessions_through_a_host_interface(kind: &str) {
    if !has(&["ethtool", "setpriv", "vtysh"]) {
        return;
    }
    let (Some(one), Some(cable), Some(mid)) = (
        Namespace::with_ipv6("o"),
        Namespace::new("c"),
        Namespace::with_ipv6("m"),
    ) else {
        return;
    };
    let scratch = Scratch::new();
    cable.wire("c0", &one, "veth0", "");
    cable.wire("c1", &mid, "a", "");
    for (namespace, end) in [(&one, "veth0"), (&cable, "c0"), (&cable, "c1"), (&mid, "a")] {
        namespace.plain(end);
    }
    cable.ip("link add br0 type bridge forward_delay 0 mcast_snooping 0");
    cable.ip("link set dev br0 up");
    cable.ip("link set dev c0 master br0");
    cable.ip("link set dev c1 master br0");
    one.ip(&format!("addr add {}/24 dev veth0", ONE[0]));
    one.ip(&format!("addr add {}/64 dev veth0", ONE[1]));
    let config = port(kind, "a", &["10.1.0.1/24", "fd00:1::1/64"], "");
    let router = Router::start(&mid, &scratch, &config);

    let theirs = frr(&one, [65_001, 65_000], GATE, &scratch);
    let ours = frr(&mid, [65_000, 65_001], ONE, &scratch);
    are(&theirs, GATE, true);
    are(&ours, ONE, true);
    cable.ip("link set dev c0 nomaster");
    are(&theirs, GATE, false);
    are(&ours, ONE, false);
    // The carrier did not reveal it.
    assert!(!mid.ip("link show lr-a").contains("NO-CARRIER"));
    let why = theirs.says("show bfd peers") + &ours.says("show bfd peers");
    assert!(why.contains("detection time expired"), "{why}");
    cable.ip("link set dev c0 master br0");
    are(&theirs, GATE, true);
    are(&ours, ONE, true);
    router.stop();
}

fn sessions_through_a_host_interface_over_af_packet() {
    sessions_through_a_host_interface("af_packet");
}

fn sessions_through_a_host_interface_over_af_xdp() {
    sessions_through_a_host_interface("af_xdp");
}
