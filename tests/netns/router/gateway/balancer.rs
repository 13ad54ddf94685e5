//! Balancers: HTTP servers behind an address of the gateway, their checks, and frames of direct
//! return by byte.

use super::outward;
use super::wires::PYTHON;
use crate::router::instance::{Router, two_ports};
use crate::router::site::{FAR_GATE4, FAR_GATE6, LEFT4, LEFT6, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::capture::Tcpdump;
use linerate_testkit::cli::binary;
use linerate_testkit::has;
use linerate_testkit::process::Running;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    http_servers_share_clients_and_one_that_ends_gets_none,
    http_servers_answer_an_address_of_the_gateway,
    direct_return_is_right_by_byte,
];

const VIP4: &str = "198.51.100.80";
const VIP6: &str = "fd00:80::80";
/// Backends on the right host, besides its own address.
const BACKENDS4: [&str; 2] = ["10.2.0.11", "10.2.0.12"];
const BACKENDS6: [&str; 2] = ["fd00:2::11", "fd00:2::12"];

/// A site whose right host has the backends' addresses.
fn site() -> Option<Site> {
    let site = Site::new()?;
    for (address, bits) in BACKENDS4
        .map(|one| (one, 24))
        .into_iter()
        .chain(BACKENDS6.map(|one| (one, 64)))
    {
        let more = if bits == 64 { "nodad" } else { "" };
        site.right
            .ip(&format!("addr add {address}/{bits} dev veth1 {more}"));
    }
    Some(site)
}

/// A web server of one address, which says its address.
fn serve(site: &Site, address: &str, scratch: &Scratch) -> Running {
    let name = address.replace(':', "-");
    let folder = scratch.path().join(&name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("who"), address).unwrap();
    let words = format!(
        "-u -m http.server --bind {address} --directory {} 8080",
        folder.display()
    );
    let mut server = site.right.start(PYTHON, &words);
    server.wait("the server to listen", |stdout, _| {
        stdout.text().contains("Serving HTTP")
    });
    server
}

/// Who answers a client's request, if anybody.
fn who(site: &Site, vip: &str) -> Option<String> {
    let to = SocketAddr::new(vip.parse().unwrap(), 80);
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(2));
    let mut stream = site.left.inside(connect).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.write_all(b"GET /who HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    Some(body.into())
}

/// Everybody who answers some requests; each is answered.
#[track_caller]
fn all(site: &Site, vip: &str) -> BTreeSet<String> {
    (0..24)
        .map(|_| who(site, vip).expect("an answer"))
        .collect()
}

fn balancer(name: &str, vip: &str, more: &str, backends: &[(&str, u32)]) -> String {
    let mut text = format!(
        "[[balancer]]\nname = \"{name}\"\naddress = \"{vip}\"\nprotocol = \"tcp\"\nports = \"80\"\n\
         {more}\n[balancer.check]\nkind = \"http\"\npath = \"/who\"\ninterval_ms = 100\nrise = 1\n\
         fall = 2\n"
    );
    for (address, weight) in backends {
        text += &format!(
            "[[balancer.backend]]\naddress = \"{address}\"\nport = 8080\nweight = {weight}\n"
        );
    }
    text
}

fn http_servers_share_clients_and_one_that_ends_gets_none() {
    if !has(&["python3"]) {
        return;
    }
    let Some(site) = site() else { return };
    let scratch = Scratch::new();
    let config = |weight| {
        let backends = |all: [&'static str; 2]| [(all[0], 1), (all[1], weight)];
        two_ports("af_packet", "", "")
            + &outward([1024; 2])
            + &balancer("web", VIP4, "", &backends(BACKENDS4))
            + &balancer("web6", VIP6, "", &backends(BACKENDS6))
    };
    let mut gateway = Router::start_as("gateway", &site.mid, &scratch, &config(1));
    reaches(&site.left, RIGHT4);
    reaches(&site.left, RIGHT6);
    let mut servers: Vec<Running> = (BACKENDS4.iter().chain(&BACKENDS6))
        .map(|address| serve(&site, address, &scratch))
        .collect();
    let set = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|one| (*one).into()).collect() };
    let ups = |text: &str| text.lines().filter(|line| line.contains(" up ")).count();
    gateway.shows("backends", |text| ups(text) == 4);
    for (vip, backends) in [(VIP4, BACKENDS4), (VIP6, BACKENDS6)] {
        assert_eq!(all(&site, vip), set(&backends), "{}", gateway.show("drops"));
    }
    let flow = format!("{LEFT4}:4000 > {VIP4}:80 tcp");
    let said = Command::new(binary())
        .args([
            "ctl",
            "--socket",
            gateway.socket(),
            "explain",
            &flow,
            "--in",
            "inside",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.contains("balancer web (198.51.100.80:80 tcp): backend 10.2.0."),
        "{said}"
    );
    let flows = gateway.show("backends web");
    let begun = flows["rows"].as_array().unwrap().iter();
    let begun: u64 = begun.map(|row| row["flows_begun"].as_u64().unwrap()).sum();
    assert_eq!(begun, 24, "{flows}");
    // One ends: its clients go to the other.
    drop(servers.remove(0));
    gateway.shows("backends web", |text| text.contains("connection refused"));
    gateway.says("balancer web: backend 10.2.0.11:8080 is down: connection refused");
    wait("no new flows for who is down", || {
        all(&site, VIP4) == set(&BACKENDS4[1..])
    });
    servers.push(serve(&site, BACKENDS4[0], &scratch));
    gateway.says("balancer web: backend 10.2.0.11:8080 is up");
    wait("new flows for who is back", || {
        all(&site, VIP4) == set(&BACKENDS4)
    });
    // One is drained: what it has goes on, and nothing new comes.
    let to = SocketAddr::new(VIP4.parse().unwrap(), 80);
    let mut open: Vec<TcpStream> = (0..12)
        .map(|_| site.left.inside(|| TcpStream::connect(to).unwrap()))
        .collect();
    gateway.reload(&config(0));
    gateway.shows("backends web", |text| text.contains("draining"));
    assert_eq!(all(&site, VIP4), set(&BACKENDS4[..1]));
    let mut answered = BTreeSet::new();
    for stream in &mut open {
        stream.write_all(b"GET /who HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        answered.insert(text.rsplit("\r\n").next().unwrap().to_string());
    }
    assert_eq!(answered, set(&BACKENDS4), "connections stay where they are");
    gateway.stop();
}

/// FULLNAT: the servers need no route to clients.
fn http_servers_answer_an_address_of_the_gateway() {
    if !has(&["python3"]) {
        return;
    }
    let Some(site) = site() else { return };
    let scratch = Scratch::new();
    let backends = BACKENDS4.map(|address| (address, 1));
    let config = two_ports("af_packet", "", "")
        + &outward([1024; 2])
        + "[nat]\n[[nat.pool]]\nname = \"inner\"\naddresses = [\"203.0.113.9\"]\n"
        + &balancer(
            "web",
            VIP4,
            "form = \"fullnat\"\npool = \"inner\"",
            &backends,
        );
    let mut gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
    reaches(&site.left, RIGHT4);
    site.right.ip("route del default");
    site.right
        .ip(&format!("route add 203.0.113.9 via {FAR_GATE4}"));
    let servers = BACKENDS4.map(|address| serve(&site, address, &scratch));
    gateway.shows("backends", |text| {
        text.lines().filter(|line| line.contains(" up ")).count() == 2
    });
    let expected: BTreeSet<String> = BACKENDS4.iter().map(|one| (*one).into()).collect();
    assert_eq!(all(&site, VIP4), expected, "{}", gateway.show("drops"));
    drop(servers);
    gateway.stop();
}

/// IP in IP and GUE, both families within both: what arrives at the backend is the client's
/// datagram, one hop less, within a packet from the gateway.
fn direct_return_is_right_by_byte() {
    if !has(&["tcpdump"]) {
        return;
    }
    for (form, own, backend, header) in [
        ("ipip", FAR_GATE4, BACKENDS4[0], 20),
        ("gue", FAR_GATE4, BACKENDS4[0], 32),
        ("ipip", FAR_GATE6, BACKENDS6[0], 40),
        ("gue", FAR_GATE6, BACKENDS6[0], 52),
    ] {
        let Some(site) = site() else { return };
        let scratch = Scratch::new();
        let mut config = two_ports("af_packet", "", "") + &outward([1024; 2]);
        for (name, vip) in [("four", VIP4), ("six", VIP6)] {
            config += &format!(
                "[[balancer]]\nname = \"{name}\"\naddress = \"{vip}\"\nprotocol = \"udp\"\n\
                 ports = \"53\"\nform = \"{form}\"\nsource = \"{own}\"\n\
                 [[balancer.backend]]\naddress = \"{backend}\"\n"
            );
        }
        let gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
        reaches(&site.left, RIGHT4);
        reaches(&site.left, RIGHT6);
        for (client, vip) in [(LEFT4, VIP4), (LEFT6, VIP6)] {
            let capture = Tcpdump::start(&site.right, "veth1", "in", &scratch);
            let at = |address: &str, port| SocketAddr::new(address.parse().unwrap(), port);
            let asks = site
                .left
                .inside(|| UdpSocket::bind(at(client, 4000)).unwrap());
            let ours = |frame: &&Vec<u8>| frame.windows(9).any(|part| part == b"who is it");
            let mut frames = Vec::new();
            wait("the client's datagram at the backend", || {
                asks.send_to(b"who is it?", at(vip, 53)).unwrap();
                frames = capture.so_far();
                frames.iter().any(|frame| ours(&frame))
            });
            drop(capture);
            let frame = frames.iter().find(ours).unwrap();
            check_outer(&frame[14..], (form, own, backend), client.contains(':'));
            let inner = &frame[14 + header..];
            let (addresses, hops) = match client.contains(':') {
                false => (12..20, 8),
                true => (8..40, 7),
            };
            let bytes = |text: &str| match text.parse().unwrap() {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            assert_eq!(inner[addresses], [bytes(client), bytes(vip)].concat());
            assert_eq!(inner[hops], 63);
            assert!(inner.ends_with(b"who is it?"), "{form}");
        }
        gateway.stop();
    }
}

/// The headers around a packet, field by field (RFC 791, RFC 8200, RFC 768, GUE variant 0).
#[track_caller]
fn check_outer(packet: &[u8], (form, own, backend): (&str, &str, &str), carries6: bool) {
    let carried = if carries6 { 41 } else { 4 };
    let next = if form == "gue" { 17 } else { carried };
    let after = match (own.parse().unwrap(), backend.parse().unwrap()) {
        (IpAddr::V4(own), IpAddr::V4(backend)) => {
            assert_eq!((packet[0], packet[8], packet[9]), (0x45, 63, next));
            let len = u16::from_be_bytes([packet[2], packet[3]]);
            assert_eq!(usize::from(len), packet.len());
            assert_eq!(linerate_testkit::frame::checksum(&packet[..20]), 0);
            assert_eq!(packet[12..20], [own.octets(), backend.octets()].concat());
            &packet[20..]
        }
        (IpAddr::V6(own), IpAddr::V6(backend)) => {
            assert_eq!((packet[0] >> 4, packet[6], packet[7]), (6, next, 63));
            let len = u16::from_be_bytes([packet[4], packet[5]]);
            assert_eq!(usize::from(len) + 40, packet.len());
            assert_eq!(packet[8..40], [own.octets(), backend.octets()].concat());
            &packet[40..]
        }
        _ => panic!("{own} and {backend} are of two families"),
    };
    if form == "gue" {
        assert_eq!(after[2..4], 6080_u16.to_be_bytes());
        let len = u16::from_be_bytes([after[4], after[5]]);
        assert_eq!(usize::from(len), after.len());
        assert_eq!(after[8..12], [0, carried, 0, 0]);
        // IPv6 has a checksum (RFC 8200 8.1), IPv4 none.
        assert_eq!(after[6..8] != [0, 0], own.contains(':'));
    }
}
