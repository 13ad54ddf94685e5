//! Direct return to a kernel: it takes the tunnel off what the gateway sends, and answers clients
//! by another way than the gateway.
//!
//! ```text
//! left: veth0 10.1.0.2 ---- a gateway b ---- 10.2.0.11 veth1 :right, the services' addresses on lo
//!       veth2 10.9.0.1 --------------------- 10.9.0.2 veth3
//! ```
//!
//! It needs a kernel with these tunnels; `../../../vm` boots one.

use super::{exchange, outward};
use crate::router::instance::{Router, two_ports};
use crate::router::site::{FAR_GATE4, FAR_GATE6, LEFT4, LEFT6, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::netns::Namespace;
use linerate_testkit::{Scratch, skip};
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: in a guest, whose kernel takes tunnels off"]
    clients_are_answered_by_a_kernel_that_takes_tunnels_off,
];

const BACKEND4: &str = "10.2.0.11";
const BACKEND6: &str = "fd00:2::11";

/// A service: its address, how packets get to the backend, from where, and which backend that is.
const SERVICES: [(&str, &str, &str, &str); 8] = [
    ("198.51.100.80", "ipip", FAR_GATE4, BACKEND4),
    ("fd00:80::80", "ipip", FAR_GATE4, BACKEND4),
    ("198.51.100.81", "ipip", FAR_GATE6, BACKEND6),
    ("fd00:80::81", "ipip", FAR_GATE6, BACKEND6),
    ("198.51.100.82", "gue", FAR_GATE4, BACKEND4),
    ("fd00:80::82", "gue", FAR_GATE4, BACKEND4),
    ("198.51.100.83", "gue", FAR_GATE6, BACKEND6),
    ("fd00:80::83", "gue", FAR_GATE6, BACKEND6),
];

/// The way that answers take.
fn join(left: &Namespace, right: &Namespace) {
    left.wire("veth2", right, "veth3", "");
    left.plain("veth2");
    right.plain("veth3");
    left.ip_lines("addr add 10.9.0.1/24 dev veth2\naddr add fd00:9::1/64 dev veth2");
    right.ip_lines(&format!(
        "addr add 10.9.0.2/24 dev veth3\naddr add fd00:9::2/64 dev veth3\n\
         route add {LEFT4}/32 via 10.9.0.1\nroute add {LEFT6}/128 via fd00:9::1"
    ));
    // What comes by another way than it would be answered is wanted here.
    for (host, interface) in [(left, "veth2"), (right, "veth1")] {
        for which in ["all", "default", interface] {
            host.sysctl(&format!("ipv4/conf/{which}/rp_filter"), "0");
        }
    }
}

/// The backend, as the guide has it; false, with a skip message, if this kernel has no such
/// devices.
fn takes_off(right: &Namespace) -> bool {
    let made = [
        format!("link add gw4 type ipip local {BACKEND4} remote any"),
        format!("link add gw46 type sit local {BACKEND4} remote any"),
        format!("link add gw6 type ip6tnl local {BACKEND6} remote any mode any"),
        "fou add port 6080 gue".into(),
        "-6 fou add port 6080 gue".into(),
    ];
    for words in made {
        if !right.run("ip", &words).status.success() {
            skip("needs a kernel with tunnels of IP in IP and GUE");
            return false;
        }
    }
    right.ip(&format!("addr add {BACKEND4}/24 dev veth1"));
    right.ip(&format!("addr add {BACKEND6}/64 dev veth1"));
    for device in ["gw4", "gw46", "gw6"] {
        right.ip(&format!("link set {device} up"));
        right.sysctl(&format!("ipv4/conf/{device}/rp_filter"), "0");
    }
    for (address, ..) in SERVICES {
        let bits = if address.contains(':') { 128 } else { 32 };
        right.ip(&format!("addr add {address}/{bits} dev lo"));
    }
    true
}

fn clients_are_answered_by_a_kernel_that_takes_tunnels_off() {
    let Some(site) = Site::new() else { return };
    let (left, right) = (&site.left, &site.right);
    join(left, right);
    if !takes_off(right) {
        return;
    }
    let scratch = Scratch::new();
    let mut config = two_ports("af_packet", "", "") + &outward([1024; 2]);
    for (address, form, source, backend) in SERVICES {
        config += &format!(
            "[[balancer]]\nname = \"{form}-{address}\"\naddress = \"{address}\"\n\
             protocol = \"tcp\"\nports = \"1024-65535\"\nform = \"{form}\"\n\
             source = \"{source}\"\n[[balancer.backend]]\naddress = \"{backend}\"\n"
        );
    }
    let gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
    reaches(left, RIGHT4);
    reaches(left, RIGHT6);
    for (address, form, _, backend) in SERVICES {
        let count = || [right.rx_packets("gw"), site.mid.rx_packets("b")];
        let before = count();
        // Whole segments do not fit into the tunnel: the client has to be told.
        exchange(left, right, address, 1 << 20);
        let [taken, back] = [0, 1].map(|at| count()[at] - before[at]);
        let told = format!("{form} {address} {backend}: {taken} taken off, {back} back");
        assert!(taken > (1 << 20) / 1500, "{told}");
        // Neighbors are asked for, and no more.
        assert!(back < 50, "{told}");
        eprintln!("{told}");
    }
    let flows = gateway.show("flows tcp");
    let rows = flows["rows"].as_array().unwrap();
    assert_eq!(rows.len(), SERVICES.len(), "{flows}");
    gateway.stop();
}
