//! VRFs with the same addresses in each, and VLAN subinterfaces. The kernel here may have no
//! devices for either: host interfaces of a VRF are in a namespace of their own, and tagged frames
//! are made by hand.

use super::instance::Router;
use super::site::{self, Site, host, link, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::capture::{Tcpdump, inject};
use linerate_testkit::frame::{
    self, ARP, BROADCAST, IPV4, IPV6, Mac, UDP, V4, V6, ethernet, tagged,
};
use linerate_testkit::has;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    vrfs_with_the_same_addresses_are_separate_over_af_packet,
    vrfs_with_the_same_addresses_are_separate_over_af_xdp,
    vlan_subinterfaces_over_af_packet,
    vlan_subinterfaces_over_af_xdp,
];

/// Two customers who use the same addresses: `left` and `right` are the red one's, these the blue.
struct Customers {
    red: Site,
    left: Namespace,
    right: Namespace,
    /// The namespace of the blue VRF's host interfaces.
    host_interfaces: Namespace,
}

impl Customers {
    fn new() -> Option<Self> {
        let customers = Self {
            red: Site::new()?,
            left: Namespace::with_ipv6("bl")?,
            right: Namespace::with_ipv6("br")?,
            host_interfaces: Namespace::with_ipv6("bt")?,
        };
        link(&customers.left, "veth0", &customers.red.mid, "c");
        link(&customers.right, "veth1", &customers.red.mid, "d");
        host(
            &customers.left,
            "veth0",
            site::LEFT4,
            site::LEFT6,
            site::GATE4,
            site::GATE6,
        );
        host(
            &customers.right,
            "veth1",
            site::RIGHT4,
            site::RIGHT6,
            site::FAR_GATE4,
            site::FAR_GATE6,
        );
        Some(customers)
    }

    fn config(&self, kind: &str) -> String {
        let near = [site::GATE4, site::GATE6];
        let far = [site::FAR_GATE4, site::FAR_GATE6];
        let mut text = format!(
            "\n[[vrf]]\nname = \"blue\"\ntable = 10\nnetns = \"{}\"\n",
            self.host_interfaces.name()
        );
        for (name, [v4, v6], vrf) in [
            ("a", near, "default"),
            ("b", far, "default"),
            ("c", near, "blue"),
            ("d", far, "blue"),
        ] {
            let addresses = [format!("{v4}/24"), format!("{v6}/64")];
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            text += &super::instance::port(kind, name, &addresses, &format!("vrf = \"{vrf}\""));
        }
        // Only blue has this route, and its gateway is blue's right host.
        text += &format!(
            "\n[[route]]\nprefix = \"10.66.0.0/16\"\nvia = \"{}\"\nvrf = \"blue\"\n",
            site::RIGHT4
        );
        text
    }
}

/// Number of echo requests received by a host.
fn pinged(host: &Namespace) -> u64 {
    let text = host.inside(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut columns = names.split(' ').zip(values.split(' '));
    let column = columns.find(|(name, _)| *name == "InEchos").unwrap();
    column.1.parse().unwrap()
}

fn customers_do_not_meet(kind: &str) {
    let Some(customers) = Customers::new() else {
        return;
    };
    let scratch = Scratch::new();
    let router = Router::start(&customers.red.mid, &scratch, &customers.config(kind));
    customers.red.works();
    for address in [
        site::RIGHT4,
        site::RIGHT6,
        site::GATE4,
        site::GATE6,
        site::FAR_GATE4,
    ] {
        reaches(&customers.left, address);
    }
    // Each ping has come to its own customer's host.
    let hosts = [&customers.red.right, &customers.right];
    for (at, from) in [&customers.red.left, &customers.left]
        .into_iter()
        .enumerate()
    {
        let before = hosts.map(pinged);
        assert!(
            linerate_testkit::traffic::reaches(from, site::RIGHT4, 5),
            "{at}: {:?} {:?}\n{}\n{}",
            before,
            hosts.map(pinged),
            router.ctl("show neighbours"),
            router.ctl("show drops")
        );
        let mut expected = before;
        expected[at] += 1;
        assert_eq!(hosts.map(pinged), expected);
    }
    // The host interfaces are where they should be.
    assert!(customers.red.mid.has("lr-a") && !customers.red.mid.has("lr-c"));
    assert!(customers.host_interfaces.has("lr-c") && customers.host_interfaces.has("lr-d"));
    // A route of one VRF is not in the other.
    customers.right.ip("addr add 10.66.0.1/32 dev lo");
    customers.red.right.ip("addr add 10.66.0.1/32 dev lo");
    reaches(&customers.left, "10.66.0.1");
    site::ping_hears(
        &customers.red.left,
        "-c 1 -W 2 10.66.0.1",
        "Destination Net Unreachable",
    );
    router.stop();
}

fn vrfs_with_the_same_addresses_are_separate_over_af_packet() {
    customers_do_not_meet("af_packet");
}

fn vrfs_with_the_same_addresses_are_separate_over_af_xdp() {
    customers_do_not_meet("af_xdp");
}

/// A host's own address on the wire of these tests.
const NEAR: Mac = [2, 0, 0, 0, 0, 1];
const FAR: Mac = [2, 0, 0, 0, 0, 2];

/// Two VLANs on the left port, one of them on the right, and hosts whose MAC addresses are known.
fn vlans(kind: &str) -> String {
    format!(
        r#"
[[port]]
name = "a"
spec = "{kind}:a"
[[port]]
name = "b"
spec = "{kind}:b"
[[interface]]
name = "a"
port = "a"
addresses = ["10.1.0.1/24"]
[[interface]]
name = "a.100"
port = "a"
vlan = 100
addresses = ["10.100.0.1/24", "fd00:100::1/64"]
[[interface]]
name = "a.200"
port = "a"
vlan = 200
addresses = ["10.200.0.1/24", "fd00:200::1/64"]
[[interface]]
name = "b.300"
port = "b"
vlan = 300
addresses = ["10.30.0.1/24", "fd00:30::1/64"]
[[neighbour]]
address = "10.200.0.2"
mac = "02:00:00:00:00:01"
interface = "a.200"
[[neighbour]]
address = "10.30.0.2"
mac = "02:00:00:00:00:02"
interface = "b.300"
[[neighbour]]
address = "fd00:30::2"
mac = "02:00:00:00:00:02"
interface = "b.300"
"#
    )
}

/// The captured frames that contain a text.
fn with<'a>(frames: &'a [Vec<u8>], text: &[u8]) -> Vec<&'a Vec<u8>> {
    let holds = |frame: &&Vec<u8>| frame.windows(text.len()).any(|window| window == text);
    frames.iter().filter(holds).collect()
}

fn vlan_subinterfaces(kind: &str) {
    if !has(&["tcpdump"]) {
        return;
    }
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &vlans(kind));
    let (a, b) = (site.mid.mac("a"), site.mid.mac("b"));
    let right = Tcpdump::start(&site.right, "veth1", "in", &scratch);
    let left = Tcpdump::start(&site.left, "veth0", "in", &scratch);

    let from = |vlan: u16, dst: &str, text: &[u8]| {
        let packet = V4::new(&format!("10.{vlan}.0.2"), dst, UDP);
        let packet = packet.packet(&frame::udp(&packet.pseudo(), 1000, 2000, text));
        ethernet(a, NEAR, IPV4, &packet)
    };
    let v6 = V6::new("fd00:100::2", "fd00:30::2", UDP);
    let v6 = v6.packet(&frame::udp(&v6.pseudo(), 1000, 2000, b"tagged six"));
    let v6 = ethernet(a, NEAR, IPV6, &v6);
    let to_right = from(100, "10.30.0.2", b"tag to tag");
    let back = from(100, "10.200.0.2", b"same port");
    let untagged = from(1, "10.30.0.2", b"untagged to tag");
    let unknown = from(100, "10.30.0.2", b"no such vlan");
    let asks = frame::arp(1, (NEAR, "10.100.0.2"), ([0; 6], "10.100.0.1"));
    let asks = ethernet(BROADCAST, NEAR, ARP, &asks);
    let ping = V4::new("10.100.0.2", "10.100.0.1", frame::ICMP);
    let ping = ethernet(
        a,
        NEAR,
        IPV4,
        &ping.packet(&frame::echo(7, 1, b"ping the host interface")),
    );
    let frames = [
        tagged(&asks, 100),
        tagged(&to_right, 100),
        tagged(&v6, 100),
        tagged(&back, 100),
        untagged.clone(),
        tagged(&unknown, 4000),
        // A request for an address of another VLAN is not answered.
        tagged(&asks, 200),
        tagged(&ping, 100),
    ];
    inject(&site.left, "veth0", &frames, &scratch);
    // The kernel behind the host interface resolves that address, to answer the ping.
    let answers = frame::arp(2, (NEAR, "10.100.0.2"), (a, "10.100.0.1"));
    let answers = ethernet(a, NEAR, ARP, &answers);
    inject(&site.left, "veth0", &[tagged(&answers, 100)], &scratch);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (left, right) = (left.end(), right.end());

    let one = |frames: &[Vec<u8>], text: &[u8], expected: Vec<u8>| {
        let found = with(frames, text);
        assert_eq!(found, [&expected], "{:?}", String::from_utf8_lossy(text));
    };
    one(
        &right,
        b"tag to tag",
        tagged(&frame::forwarded(&to_right, FAR, b), 300),
    );
    one(
        &right,
        b"tagged six",
        tagged(&frame::forwarded(&v6, FAR, b), 300),
    );
    one(
        &right,
        b"untagged to tag",
        tagged(&frame::forwarded(&untagged, FAR, b), 300),
    );
    one(
        &left,
        b"same port",
        tagged(&frame::forwarded(&back, NEAR, a), 200),
    );
    assert!(with(&right, b"no such vlan").is_empty());
    // One answer to the request in the right VLAN; the kernel behind the host interface answers the
    // ping, and its frames are tagged.
    let answers: Vec<&Vec<u8>> = (left.iter())
        .filter(|frame| frame[12..18] == [0x81, 0, 0, 100, 8, 6] && frame[24..26] == [0, 2])
        .collect();
    assert_eq!(answers.len(), 1, "{answers:02x?}");
    assert_eq!(answers[0][..12], [NEAR, a].concat());
    assert_eq!(answers[0][26..36], [&a[..], &[10, 100, 0, 1]].concat());
    let in_200 = left
        .iter()
        .filter(|frame| frame[12..18] == [0x81, 0, 0, 200, 8, 6] && frame[24..26] == [0, 2]);
    assert_eq!(in_200.count(), 0);
    let pong = with(&left, b"ping the host interface");
    assert_eq!(pong.len(), 1, "{pong:02x?}");
    assert_eq!(
        pong[0][..18],
        [&NEAR[..], &a, &[0x81, 0, 0, 100, 8, 0]].concat()
    );
    assert_eq!(pong[0][38], 0, "an echo reply");
    router.stop();
}

fn vlan_subinterfaces_over_af_packet() {
    vlan_subinterfaces("af_packet");
}

fn vlan_subinterfaces_over_af_xdp() {
    vlan_subinterfaces("af_xdp");
}
