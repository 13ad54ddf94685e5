//! Routes by virtual devices of the kernel (WireGuard, VXLAN, PPP; here a veth): the kernel
//! forwards.

use super::instance::{Router, two_ports};
use super::site::{LEFT4, LEFT6, Site, ping_says, reaches};
use linerate_testkit::netns::Namespace;
use linerate_testkit::{Scratch, traffic, wait};
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] =
    tests![packets_routed_to_other_devices_of_the_kernel_are_handed_to_it,];

/// Behind the kernel's own device, and a network behind that host.
const FAR4: &str = "10.9.0.2";
const FAR6: &str = "fd00:9::2";
const BEYOND4: &str = "203.0.113.1";

/// A host behind a device `k0` of the router's machine, which is not a port of the router.
fn far(site: &Site) -> Option<Namespace> {
    let far = Namespace::with_ipv6("k")?;
    far.wire("veth9", &site.mid, "k0", "");
    site.mid.ip("addr add 10.9.0.1/24 dev k0");
    site.mid.ip("addr add fd00:9::1/64 dev k0");
    far.ip(&format!("addr add {FAR4}/24 dev veth9"));
    far.ip(&format!("addr add {FAR6}/64 dev veth9"));
    far.ip(&format!("addr add {BEYOND4}/32 dev lo"));
    far.ip("route add default via 10.9.0.1");
    far.ip("-6 route add default via fd00:9::1");
    Some(far)
}

/// Number of packets handed to the kernel to be forwarded.
fn handed(router: &Router) -> u64 {
    let page = router.ctl("show interfaces --json");
    let interfaces: serde_json::Value = serde_json::from_str(&page).unwrap();
    interfaces["rows"][0]["to_host_packets"].as_u64().unwrap()
}

/// Packets with a route by the kernel's virtual device go to the kernel by the host interface of
/// their input interface, with an unchanged time to live, since the kernel is the one hop. The
/// routes follow the state of the device.
fn packets_routed_to_other_devices_of_the_kernel_are_handed_to_it() {
    let Some(site) = Site::new() else { return };
    let Some(far) = far(&site) else { return };
    for key in ["ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"] {
        site.mid.sysctl(key, "1");
    }
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    // Connected, and by a gateway, added while it runs.
    reaches(&site.left, FAR4);
    reaches(&site.left, FAR6);
    assert!(!traffic::reaches(&site.left, BEYOND4, 1));
    site.mid
        .ip(&format!("route add {BEYOND4}/32 via {FAR4} dev k0"));
    reaches(&site.left, BEYOND4);
    reaches(&far, LEFT4);
    reaches(&far, LEFT6);
    router.shows("routes", |text| text.contains("by the host"));
    let before = handed(&router);
    assert!(
        site.left
            .run("ping", &format!("-n -q -c 5 -i 0.05 -W 5 {FAR4}"))
            .status
            .success()
    );
    assert!(handed(&router) >= before + 5);
    // One hop, not two: a TTL of 2 suffices, and for 1 the kernel sends an error.
    let words = |ttl: u32| format!("-c 1 -W 5 -t {ttl} {FAR4}");
    assert!(ping_says(&site.left, &words(2)).contains(" 0% packet loss"));
    let said = ping_says(&site.left, &words(1));
    assert!(said.contains("Time to live exceeded"), "{said}");
    let trace = router.show("summary");
    assert!(trace["rows"].is_array());
    // While it is down there is no route, and the host gets an error; when it is up the route is
    // back.
    site.mid.ip("link set k0 down");
    wait("the routes to go", || {
        ping_says(&site.left, &words(5)).contains("Net Unreachable")
    });
    router.shows("routes", |text| {
        !text.is_empty() && !text.contains("by the host")
    });
    site.mid.ip("link set k0 up");
    reaches(&site.left, FAR4);
    router.stop();
}
