//! Messages of hosts on a link: router advertisements, claimed and duplicate addresses, and more
//! requests than the limits allow.

use super::instance::{Router, two_ports};
use super::site::{FAR_GATE6, GATE4, GATE6, LEFT4, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::capture::{Tcpdump, inject};
use linerate_testkit::frame::{self, ICMP, ICMP6, IPV4, IPV6, Mac, UDP, V4, V6, ethernet, text};
use linerate_testkit::has;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use std::time::Instant;

pub(crate) const TESTS: &[Test] = tests![
    other_routers_advertisements_are_not_heeded,
    an_address_that_another_host_has_is_reported_and_left_to_it,
    false_neighbor_discovery_takes_no_address_and_displaces_no_neighbour,
    errors_for_many_expired_packets_are_limited_and_others_forwarded,
];

const LIAR: Mac = [2, 0xba, 0xdb, 0xad, 0, 1];

/// A frame to a group with a message of Neighbor Discovery.
fn discovery(from: Mac, src: &str, group: &str, message: &[u8]) -> Vec<u8> {
    let mut packet = V6::new(src, group, ICMP6);
    packet.hop_limit = 255;
    let [.., a, b, c, d] = packet.dst.octets();
    let message = frame::summed(&packet.pseudo(), ICMP6, message.to_vec(), 2);
    ethernet(
        [0x33, 0x33, a, b, c, d],
        from,
        IPV6,
        &packet.packet(&message),
    )
}

fn octets(address: &str) -> [u8; 16] {
    address.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

/// RFC 4861 4.2: a router for half an hour, with a prefix to make addresses from.
fn router_advertisement(from: Mac, prefix: &str) -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([1, 1]);
    message.extend(from);
    message.extend([
        3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0,
    ]);
    message.extend(octets(prefix));
    discovery(from, "fe80::bad", "ff02::1", &message)
}

/// RFC 4861 4.4: with the override flag for this MAC address.
fn neighbour_advertisement(from: Mac, address: &str) -> Vec<u8> {
    let mut message = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    message.extend(octets(address));
    message.extend([2, 1]);
    message.extend(from);
    discovery(from, address, "ff02::1", &message)
}

/// RFC 4861 4.3: a solicitation for an address of the router.
fn solicitation(from: Mac, src: &str, address: &str) -> Vec<u8> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(octets(address));
    message.extend([1, 1]);
    message.extend(from);
    let [.., a, b, c] = octets(address);
    let group = format!("ff02::1:ff{a:02x}:{b:02x}{c:02x}");
    discovery(from, src, &group, &message)
}

/// Routers ignore advertisements of other routers (RFC 4861 6.2.7): they cause neither an address
/// nor a default route, in the kernel or here, unless the host interface's sysctl accepts them.
fn other_routers_advertisements_are_not_heeded() {
    let Some(site) = Site::new() else { return };
    // As Linux has it for hosts.
    site.mid.sysctl("ipv6/conf/default/accept_ra", "1");
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    let lie = [router_advertisement(LIAR, "2001:db8:bad::")];
    inject(&site.left, "veth0", &lie, &scratch);
    // The kernel answers a later packet, which shows that it has received the advertisement.
    reaches(&site.left, GATE6);
    let addresses = site.mid.ip("-6 addr show dev lr-a");
    assert!(!addresses.contains("db8:bad"), "{addresses}");
    assert_eq!(site.mid.ip("-6 route show default"), "");
    assert!(!router.ctl("show routes").contains("::/0"));
    // A valid advertisement.
    site.mid.sysctl("ipv6/conf/lr-a/accept_ra", "2");
    inject(&site.left, "veth0", &lie, &scratch);
    router.shows("routes", |text| text.contains("::/0"));
    assert!(
        site.mid
            .ip("-6 addr show dev lr-a")
            .contains("2001:db8:bad:")
    );
    router.stop();
}

/// A host on the link already has an address of the router (RFC 4862 5.4): this is reported, and
/// the owner keeps its neighbours.
fn an_address_that_another_host_has_is_reported_and_left_to_it() {
    let Some(site) = Site::new() else { return };
    if !has(&["tcpdump"]) {
        return;
    }
    site.mid.sysctl("ipv6/conf/default/accept_dad", "1");
    site.left
        .ip(&format!("-6 addr add {GATE6}/64 dev veth0 nodad"));
    let scratch = Scratch::new();
    let onlooker = Tcpdump::start(&site.left, "veth0", "in", &scratch);
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    router.says(&format!("{GATE6} is {}'s", text(site.left.mac("veth0"))));
    // On the other link there is no duplicate.
    reaches(&site.right, FAR_GATE6);
    let claims = |frame: &&Vec<u8>| {
        frame[12..14] == [0x86, 0xdd] && frame[54] == 136 && frame[62..78] == octets(GATE6)
    };
    let seen = onlooker.end();
    assert_eq!(seen.iter().find(claims), None);
    assert!(
        seen.iter()
            .any(|frame| frame[12..14] == [0x86, 0xdd] && frame[54] == 135),
        "it was looked for"
    );
    router.stop();
}

/// The same false claims as by ARP: a static neighbour does not change, the router keeps its
/// address, and thousands of absent neighbours do not displace present ones.
fn false_neighbor_discovery_takes_no_address_and_displaces_no_neighbour() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let right = text(site.right.mac("veth1"));
    let config = two_ports("af_packet", "", "")
        + &format!(
            "\n[[neighbour]]\naddress = \"{RIGHT6}\"\nmac = \"{right}\"\ninterface = \"b\"\n"
        );
    let config = config.replacen("[[port]]", "neighbours = 1000\n[[port]]", 1);
    let mut router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let mut frames = vec![
        neighbour_advertisement(LIAR, RIGHT6),
        neighbour_advertisement(LIAR, FAR_GATE6),
        solicitation(LIAR, RIGHT6, FAR_GATE6),
        solicitation(LIAR, FAR_GATE6, FAR_GATE6),
    ];
    for number in 0..3000 {
        frames.push(solicitation(
            LIAR,
            &format!("fd00:2::bad:{number:x}"),
            FAR_GATE6,
        ));
    }
    inject(&site.right, "veth1", &frames, &scratch);
    site.works();
    router.says(&format!("{} speaks from {FAR_GATE6}", text(LIAR)));
    let known = router.shows("neighbours", |text| text.contains(RIGHT6));
    let row = known.lines().find(|line| line.contains(RIGHT6)).unwrap();
    assert!(row.contains(&right), "{row}");
    assert!(known.lines().count() < 1100, "{known}");
    router.stop();
}

/// More undeliverable packets than errors may be sent: errors keep to their limit (RFC 1812
/// 4.3.2.8), the rest is counted, and other packets are forwarded.
fn errors_for_many_expired_packets_are_limited_and_others_forwarded() {
    let Some(site) = Site::new() else { return };
    if !has(&["tcpdump"]) {
        return;
    }
    const STORM: usize = 5000;
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    let mut packet = V4::new(LEFT4, RIGHT4, UDP);
    packet.ttl = 1;
    let datagram = frame::udp(&packet.pseudo(), 4000, 4001, &[7; 20]);
    let (to, from) = (site.mid.mac("a"), site.left.mac("veth0"));
    let dying = vec![ethernet(to, from, IPV4, &packet.packet(&datagram)); STORM];
    let onlooker = Tcpdump::start(&site.left, "veth0", "in", &scratch);
    let start = Instant::now();
    inject(&site.left, "veth0", &dying, &scratch);
    site.works();
    let missed = || router.dropped("missed");
    wait("every packet to be accounted for", || {
        router.dropped("ttl_exceeded") + missed() >= STORM as u64
    });
    let seconds = start.elapsed().as_secs() + 1;
    let seen = onlooker.end();
    let told = |frame: &&Vec<u8>| frame[12..14] == [8, 0] && frame[23] == ICMP && frame[34] == 11;
    let told = seen.iter().filter(told).count() as u64;
    // Ten at once and ten a second.
    assert!(
        (1..=10 + 10 * seconds).contains(&told),
        "{told} in {seconds} s"
    );
    reaches(&site.left, GATE4);
    router.stop();
}
