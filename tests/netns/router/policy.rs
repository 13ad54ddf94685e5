//! Filters of interfaces: reverse path, access lists, policers, and false claims about neighbours.

use super::compare::checksums_are_right;
use super::instance::{Router, two_ports};
use super::site::{GATE4, LEFT4, LEFT6, RIGHT4, RIGHT6, Site, ping_hears, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::capture::{Tcpdump, inject};
use linerate_testkit::frame::{self, ARP, BROADCAST, IPV4, IPV6, Mac, TCP, UDP, V4, V6, ethernet};
use linerate_testkit::netns::Namespace;
use linerate_testkit::{PATIENCE, has, wait};
use linerate_testkit::{harness::Test, tests};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = tests![
    strict_reverse_path_refuses_other_interfaces_sources,
    loose_reverse_path_refuses_unrouted_sources,
    access_lists_deny_and_permit,
    rejected_packets_are_answered_and_logged,
    resets_are_right_on_the_wire,
    a_policer_lets_its_rate_through,
    false_arp_claims_take_no_address_and_displace_no_neighbour,
    redirects_are_sent_where_they_are_wanted,
];

/// Sends datagrams from these sources through the router, identified by their content; returns
/// which arrive.
fn arriving(site: &Site, sources: &[&str], scratch: &Scratch) -> Vec<bool> {
    let (left, router) = (site.left.mac("veth0"), site.mid.mac("a"));
    let text = |number: usize| format!("from source number {number:03}");
    let datagram = |(number, source): (usize, &&str)| {
        let text = text(number);
        if source.contains(':') {
            let packet = V6::new(source, RIGHT6, UDP);
            let segment = frame::udp(&packet.pseudo(), 1, 2, text.as_bytes());
            ethernet(router, left, IPV6, &packet.packet(&segment))
        } else {
            let packet = V4::new(source, RIGHT4, UDP);
            let segment = frame::udp(&packet.pseudo(), 1, 2, text.as_bytes());
            ethernet(router, left, IPV4, &packet.packet(&segment))
        }
    };
    let mut frames: Vec<Vec<u8>> = sources.iter().enumerate().map(datagram).collect();
    // The last one always passes.
    frames.push(datagram((sources.len(), &LEFT4)));
    let onlooker = Tcpdump::start(&site.right, "veth1", "in", scratch);
    inject(&site.left, "veth0", &frames, scratch);
    std::thread::sleep(Duration::from_millis(500));
    let seen = onlooker.end();
    let came = |number: usize| {
        let text = text(number);
        seen.iter().any(|frame| {
            frame
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        })
    };
    assert!(came(sources.len()), "no valid one arrived");
    (0..sources.len()).map(came).collect()
}

const SOURCES: [&str; 8] = [
    // From the right interface.
    LEFT4,
    LEFT6,
    "10.1.0.99",
    // From the other interface.
    "10.2.0.99",
    "fd00:2::99",
    // From nowhere.
    "198.51.100.1",
    "2001:db8::1",
    // Routed back to the input interface.
    "10.50.0.1",
];

fn reverse_path(mode: &str, expected: [bool; 8]) {
    if !has(&["tcpdump"]) {
        return;
    }
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", &format!("urpf = \"{mode}\""), "")
        + &format!("\n[[route]]\nprefix = \"10.50.0.0/16\"\nvia = \"{LEFT4}\"\n");
    let router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let before = router.dropped("urpf");
    assert_eq!(arriving(&site, &SOURCES, &scratch), expected);
    let refused = expected.iter().filter(|passes| !**passes).count() as u64;
    assert!(
        router.dropped("urpf") >= before + refused,
        "{}",
        router.show("drops")
    );
    site.works();
    router.stop();
}

fn strict_reverse_path_refuses_other_interfaces_sources() {
    reverse_path(
        "strict",
        [true, true, true, false, false, false, false, true],
    );
}

fn loose_reverse_path_refuses_unrouted_sources() {
    reverse_path("loose", [true, true, true, true, true, false, false, true]);
}

/// Whether TCP connects to a port of a host.
fn connects(from: &Namespace, address: &str, port: u16) -> bool {
    let at = format!(
        "{}:{port}",
        if address.contains(':') {
            format!("[{address}]")
        } else {
            address.into()
        }
    );
    let at = at.parse().unwrap();
    from.inside(|| TcpStream::connect_timeout(&at, Duration::from_secs(1)).is_ok())
}

fn access_lists_deny_and_permit() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let lists = r#"
[[acl]]
name = "in"
default = "permit"
rules = [
  { action = "deny", destination = "10.2.0.0/24", protocol = "tcp", destination_port = "22" },
  { action = "deny", destination = "fd00:2::/64", protocol = "tcp", destination_port = "22-23" },
]
[[acl]]
name = "out"
default = "deny"
rules = [
  { action = "permit", source = "10.0.0.0/8", destination = "10.2.0.2/32" },
  { action = "permit", source = "fd00::/16", destination = "::/0" },
]
"#;
    let config = two_ports("af_packet", "acl_in = \"in\"", "acl_out = \"out\"") + lists;
    let router = Router::start(&site.mid, &scratch, &config);
    for (address, all) in [(RIGHT4, "0.0.0.0"), (RIGHT6, "::")] {
        reaches(&site.left, address);
        let servers: Vec<TcpListener> = site.right.inside(|| {
            [22, 80]
                .map(|port| TcpListener::bind((all, port)).unwrap())
                .into()
        });
        wait("the permitted port", || connects(&site.left, address, 80));
        assert!(!connects(&site.left, address, 22), "{address}");
        drop(servers);
    }
    // An existing address that the output list does not name.
    site.right.ip("addr add 10.2.0.3/24 dev veth1");
    assert!(!linerate_testkit::traffic::reaches(
        &site.left, "10.2.0.3", 1
    ));
    assert!(router.dropped("acl") >= 3, "{}", router.show("drops"));
    // A reload removes the lists.
    router.reload(&two_ports("af_packet", "", ""));
    reaches(&site.left, "10.2.0.3");
    router.stop();
}

/// Rejected packets are answered, counted by rule, and logged where the rule says so: a connecting
/// kernel gives up at once.
fn rejected_packets_are_answered_and_logged() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let lists = r#"
[[acl]]
name = "edge"
default = "permit"
rules = [
  { action = "reject", log = true, protocol = "tcp", destination_port = "22" },
  { action = "deny", protocol = "tcp", destination_port = "23" },
  { action = "reject", protocol = "udp", destination_port = "53" },
]
"#;
    let config = two_ports("af_packet", "acl_in = \"edge\"", "") + lists;
    let mut router = Router::start(&site.mid, &scratch, &config);
    site.works();
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, PermissionDenied, TimedOut};
    let at = |address: &str, port: u16| match address.contains(':') {
        true => format!("[{address}]:{port}").parse().unwrap(),
        false => format!("{address}:{port}").parse().unwrap(),
    };
    let said = |address, port| {
        let connect = || TcpStream::connect_timeout(&at(address, port), Duration::from_secs(1));
        loop {
            let error = site.left.inside(connect).unwrap_err();
            // Without a number it is the standard library's "no error set after POLLHUP": the
            // socket had ended, and its error was not there yet. Another attempt shows it.
            if error.raw_os_error().is_some() || error.kind() == TimedOut {
                return error.kind();
            }
        }
    };
    for address in [RIGHT4, RIGHT6] {
        assert_eq!(said(address, 22), ConnectionRefused, "{address}");
        assert_eq!(said(address, 23), TimedOut, "{address}");
        // Other protocols get ICMP.
        let asked = site.left.inside(|| {
            let any = if address.contains(':') {
                "[::]:0"
            } else {
                "0.0.0.0:0"
            };
            let socket = UdpSocket::bind(any).unwrap();
            socket.connect(at(address, 53)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send(b"who").unwrap();
            socket.recv(&mut [0; 10]).unwrap_err().kind()
        });
        let is_told = matches!(asked, HostUnreachable | PermissionDenied);
        assert!(is_told, "{address}: {asked}");
    }
    let rules = router.shows("acls", |text| text.contains("default"));
    let count = |rule: &str| {
        let row = rules.lines().find(|line| line.contains(rule));
        let words = row.unwrap_or_else(|| panic!("{rules}")).split_whitespace();
        words.into_iter().nth(3).unwrap().parse::<u64>().unwrap()
    };
    assert!(count("port 22") >= 2 && count("port 23") >= 2, "{rules}");
    assert!(count("all others") >= 4, "{rules}");
    let told = format!("acl edge rule 1: reject in by a: {LEFT4}:");
    router.says(&told);
    router.says(&format!("> [{RIGHT6}]:22 tcp"));
    // By ICMP alone, where the list says so: not "connection refused", which a reset would cause.
    let list = "name = \"edge\"";
    router.reload(&config.replacen(list, &format!("{list}\nreject = \"icmp\""), 1));
    for address in [RIGHT4, RIGHT6] {
        let said = said(address, 22);
        assert!(
            matches!(said, HostUnreachable | PermissionDenied),
            "{address}: {said}"
        );
    }
    router.stop();
}

/// Resets on a VLAN: tshark finds them valid, and a kernel with checksum offload accepts them.
fn resets_are_right_on_the_wire() {
    const HOST: &str = "10.7.0.2";
    if !has(&["tcpdump", "tshark"]) {
        return;
    }
    let Some(site) = Site::with_offloads() else {
        return;
    };
    let scratch = Scratch::new();
    let (left, router) = (site.left.mac("veth0"), site.mid.mac("a"));
    let mac = left.map(|byte| format!("{byte:02x}")).join(":");
    let more = format!(
        r#"
[[interface]]
port = "a"
vlan = 7
addresses = ["10.7.0.1/24"]
acl_in = "edge"
[[neighbour]]
address = "{HOST}"
mac = "{mac}"
interface = "a.7"
[[acl]]
name = "edge"
default = "reject"
rules = [
  {{ action = "permit", protocol = "icmp" }},
  {{ action = "permit", protocol = "icmp6" }},
]
"#
    );
    let config = two_ports("af_packet", "acl_in = \"edge\"", "") + &more;
    let running = Router::start(&site.mid, &scratch, &config);
    site.works();
    let onlooker = Tcpdump::start(&site.left, "veth0", "in", &scratch);
    for address in [format!("{RIGHT4}:80"), format!("[{RIGHT6}]:80")] {
        let at = address.parse().unwrap();
        let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(1));
        let error = site.left.inside(connect).unwrap_err();
        let refused = std::io::ErrorKind::ConnectionRefused;
        assert_eq!(error.kind(), refused, "{address}: {error}");
    }
    let packet = V4::new(HOST, RIGHT4, TCP);
    let segment = frame::tcp(&packet.pseudo(), 1000, 22, b"data");
    let mut tagged = ethernet(router, left, IPV4, &packet.packet(&segment));
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    inject(&site.left, "veth0", &[tagged], &scratch);
    let seen = onlooker.settled();
    checksums_are_right(&seen, &["ip", "tcp"], &scratch);
    let is_reset = |frame: &[u8], at: usize, flags: u8| frame.get(at + 13) == Some(&flags);
    let found = [
        (&[8, 0][..], 14 + 20, 0x14),
        (&[0x86, 0xdd], 14 + 40, 0x14),
        (&[0x81, 0, 0, 7, 8, 0], 18 + 20, 0x04),
    ]
    .map(|(begin, at, flags)| {
        let here = |frame: &&Vec<u8>| frame[12..].starts_with(begin) && is_reset(frame, at, flags);
        seen.iter().filter(here).count()
    });
    assert_eq!(found, [1, 1, 1], "{seen:02x?}");
    running.stop();
}

fn a_policer_lets_its_rate_through() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports(
        "af_packet",
        "policer = { rate = \"800kbit\", burst = \"20kB\" }",
        "",
    );
    let router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let sink = site.right.inside(|| UdpSocket::bind((RIGHT4, 0)).unwrap());
    sink.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let source = site.left.inside(|| UdpSocket::bind((LEFT4, 0)).unwrap());
    source.connect(sink.local_addr().unwrap()).unwrap();
    let start = Instant::now();
    let mut arrived = 0_u64;
    let receiver = std::thread::spawn(move || {
        let mut bytes = [0; 2000];
        while sink.recv(&mut bytes).is_ok() || start.elapsed() < Duration::from_secs(2) {
            arrived += 1;
        }
        arrived
    });
    // 400 packets of 1000 bytes: 20 of them may come at once, and 100 a second.
    for _ in 0..400 {
        source.send(&[7; 972]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let elapsed = start.elapsed();
    let arrived = receiver.join().unwrap();
    let most = 22.0 + 100.0 * (elapsed.as_secs_f64() + 0.5);
    assert!(
        (20.0..=most).contains(&(arrived as f64)),
        "{arrived} in {elapsed:?}"
    );
    assert!(router.dropped("polic") > 0, "{}", router.show("drops"));
    router.stop();
}

/// A host that claims other addresses: the router's, a static neighbour's, and those of thousands
/// of absent hosts.
fn false_arp_claims_take_no_address_and_displace_no_neighbour() {
    const LIAR: Mac = [2, 0xba, 0xdb, 0xad, 0, 1];
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mac = |mac: Mac| mac.map(|byte| format!("{byte:02x}")).join(":");
    let right = mac(site.right.mac("veth1"));
    let config = two_ports("af_packet", "", "")
        + &format!(
            "\n[[neighbour]]\naddress = \"{RIGHT4}\"\nmac = \"{right}\"\ninterface = \"b\"\n\
             \n[[neighbour]]\naddress = \"{RIGHT6}\"\nmac = \"{right}\"\ninterface = \"b\"\n"
        );
    let config = config.replacen("[[port]]", "neighbours = 1000\n[[port]]", 1);
    let mut router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let lie = |operation, address: &str, target: &str| {
        let packet = frame::arp(operation, (LIAR, address), ([0; 6], target));
        ethernet(BROADCAST, LIAR, ARP, &packet)
    };
    // Unsolicited replies and requests for the static neighbour and the router itself; then a
    // flood.
    let mut frames = vec![
        lie(2, RIGHT4, RIGHT4),
        lie(1, RIGHT4, RIGHT4),
        lie(1, RIGHT4, "10.2.0.1"),
        lie(1, "10.2.0.1", "10.2.0.1"),
        lie(2, "10.2.0.1", "10.2.0.1"),
    ];
    for number in 0..3000_u16 {
        let address = format!("10.2.{}.{}", 100 + number / 250, 1 + number % 250);
        frames.push(lie(1, &address, "10.2.0.1"));
    }
    inject(&site.right, "veth1", &frames, &scratch);
    // A scan through us makes us send requests for absent hosts.
    site.left.inside(|| {
        let socket = UdpSocket::bind((LEFT4, 0)).unwrap();
        for number in 3..250 {
            let _ = socket.send_to(b"anybody there", (format!("10.2.0.{number}"), 9));
        }
    });
    site.works();
    let known = router.shows("neighbours", |text| text.contains(RIGHT4));
    let row = known
        .lines()
        .find(|line| line.contains(&format!("{RIGHT4} ")))
        .unwrap();
    assert!(row.contains(&right), "{row}");
    assert!(
        known.lines().count() < 1100,
        "{} neighbours",
        known.lines().count()
    );
    router.stop();
}

/// Redirects: the sender of a packet that leaves by its input interface gets the better gateway
/// (RFC 1812 5.2.7.2), unless that is off.
fn redirects_are_sent_where_they_are_wanted() {
    if !has(&["tcpdump"]) {
        return;
    }
    for redirects in [true, false] {
        let Some(site) = Site::new() else { return };
        let scratch = Scratch::new();
        let config = two_ports("af_packet", &format!("redirects = {redirects}"), "")
            + "\n[[route]]\nprefix = \"10.77.0.0/16\"\nvia = \"10.1.0.9\"\n\
               \n[[neighbour]]\naddress = \"10.1.0.9\"\nmac = \"02:00:00:00:00:09\"\ninterface = \
               \"a\"\n";
        let router = Router::start(&site.mid, &scratch, &config);
        site.works();
        let onlooker = Tcpdump::start(&site.left, "veth0", "in", &scratch);
        site.left.inside(|| {
            let socket = UdpSocket::bind((LEFT4, 0)).unwrap();
            socket.send_to(b"the long way", ("10.77.0.1", 9)).unwrap();
        });
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(500));
        reaches(&site.left, GATE4);
        assert!(start.elapsed() < PATIENCE);
        let seen = onlooker.end();
        let told = seen
            .iter()
            .find(|frame| frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 5);
        assert_eq!(told.is_some(), redirects);
        if let Some(frame) = told {
            assert_eq!(frame[38..42], [10, 1, 0, 9], "the gateway to use");
        }
        // The packet itself is forwarded nevertheless.
        let returned = seen
            .iter()
            .any(|frame| frame.windows(12).any(|text| text == b"the long way") && frame[23] == UDP);
        assert!(returned, "redirects {redirects}");
        ping_hears(&site.left, &format!("-c 1 -W 2 {RIGHT4}"), "1 received");
        router.stop();
    }
}
