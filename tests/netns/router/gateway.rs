//! `linerate gateway` between two hosts: who is inside reaches who is outside, and not the other
//! way round.

pub(crate) mod balancer;
pub(crate) mod classes;
pub(crate) mod conntrack;
pub(crate) mod load;
pub(crate) mod outside;
pub(crate) mod requirements;
pub(crate) mod returns;
pub(crate) mod scans;
pub(crate) mod servers;
pub(crate) mod tayga;
mod three;
mod wires;

use super::instance::{Router, two_ports};
use super::site::{FAR_GATE4, LEFT4, LEFT6, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::netns::Namespace;
use linerate_testkit::traffic::{accept, noise};
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    who_is_inside_is_answered_and_who_is_outside_begins_nothing,
    hosts_behind_one_address_are_answered,
    connections_that_begin_with_a_syn_cookie_carry_megabytes_both_ways,
];

/// Zones around the hosts of a [`Site`], the left one inside, and room for so many flows of IPv4
/// and of IPv6.
fn zones([ipv4, ipv6]: [u32; 2]) -> String {
    format!(
        "[flows]\nipv4 = {ipv4}\nipv6 = {ipv6}\n\
         [[zone]]\nname = \"inside\"\ninterfaces = [\"a\"]\n\
         [[zone]]\nname = \"outside\"\ninterfaces = [\"b\"]\n"
    )
}

/// The same, where who is inside may begin any flow.
fn outward(flows: [u32; 2]) -> String {
    zones(flows) + "[[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"permit\"\n"
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A server of an address, and a client that exchanges a line with it, if they are let.
fn talk(client: &Namespace, server: &Namespace, address: &str) -> bool {
    let listener = server.inside(|| TcpListener::bind(at(address, 0)).unwrap());
    listener.set_nonblocking(true).unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
    let Ok(mut stream) = client.inside(connect) else {
        return false;
    };
    let mut served = accept(&listener);
    stream.write_all(b"question").unwrap();
    let mut said = [0; 8];
    served.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"question");
    served.write_all(b"the reply").unwrap();
    drop(served);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text == "the reply"
}

fn who_is_inside_is_answered_and_who_is_outside_begins_nothing() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let (config, permitted) = (two_ports("af_packet", "", ""), outward([1024; 2]));
    let mut gateway = Router::start_as(
        "gateway",
        &site.mid,
        &scratch,
        &(config.clone() + &permitted),
    );
    for (inside, outside) in [(LEFT4, RIGHT4), (LEFT6, RIGHT6)] {
        reaches(&site.left, outside);
        assert!(talk(&site.left, &site.right, outside), "{outside}");
        assert!(!talk(&site.right, &site.left, inside), "{inside}");
        assert!(!linerate_testkit::traffic::reaches(&site.right, inside, 1));
        // An answer to a datagram passes, and nothing else to its port.
        let asks = site
            .left
            .inside(|| UdpSocket::bind(at(inside, 4000)).unwrap());
        let [answers, other] = [53, 54].map(|port| {
            let bind = || UdpSocket::bind(at(outside, port)).unwrap();
            let socket = site.right.inside(bind);
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            socket
        });
        asks.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        asks.send_to(b"?", at(outside, 53)).unwrap();
        let mut said = [0; 8];
        let (_, from) = answers.recv_from(&mut said).unwrap();
        other.send_to(b"lie", from).unwrap();
        answers.send_to(b"answer", from).unwrap();
        let (length, _) = asks.recv_from(&mut said).unwrap();
        assert_eq!(&said[..length], b"answer");
    }
    let flows = gateway.show("flows udp established");
    assert_eq!(flows["rows"].as_array().unwrap().len(), 0, "{flows}");
    let flows = gateway.show("flows udp");
    let flows = flows["rows"].as_array().unwrap();
    assert_eq!(flows.len(), 2, "{flows:?}");
    assert!(
        flows.iter().all(|flow| flow["packets_back"] == 1),
        "{flows:?}"
    );
    assert!(gateway.dropped("policy") >= 4, "{}", gateway.show("drops"));
    assert!(
        gateway
            .shows("policies", |text| text.contains("permit"))
            .contains("deny")
    );
    // Without policies nothing begins, and what was permitted ends.
    gateway.reload(&(config + &zones([1024; 2])));
    wait("the policy to be gone", || {
        !linerate_testkit::traffic::reaches(&site.left, RIGHT4, 1)
    });
    assert!(!talk(&site.left, &site.right, RIGHT4));
    gateway.stop();
}

fn hosts_behind_one_address_are_answered() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let nat = "[nat]\n[[nat.source]]\nto = \"outside\"\nmasquerade = \"b\"\n";
    let config = two_ports("af_packet", "", "") + &outward([1024; 2]) + nat;
    let gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
    // Nobody outside knows of the network inside.
    site.right.ip("route del default");
    site.right.ip("-6 route del default");
    for outside in [RIGHT4, RIGHT6] {
        reaches(&site.left, outside);
        assert!(talk(&site.left, &site.right, outside), "{outside}");
    }
    let answers = site
        .right
        .inside(|| UdpSocket::bind(at(RIGHT4, 53)).unwrap());
    answers
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let asks = site
        .left
        .inside(|| UdpSocket::bind(at(LEFT4, 4000)).unwrap());
    asks.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    asks.send_to(b"?", at(RIGHT4, 53)).unwrap();
    let mut said = [0; 8];
    let (_, from) = answers.recv_from(&mut said).unwrap();
    assert_eq!(from, at(FAR_GATE4, 4000), "the port is preserved");
    answers.send_to(b"answer", from).unwrap();
    let (length, _) = asks.recv_from(&mut said).unwrap();
    assert_eq!(&said[..length], b"answer");
    // A port where nobody listens: the error comes back to who asked, though it is about a packet
    // of the gateway's address.
    let asks = site
        .left
        .inside(|| UdpSocket::bind(at(LEFT4, 4001)).unwrap());
    asks.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    site.left.inside(|| asks.connect(at(RIGHT4, 9)).unwrap());
    asks.send(b"?").unwrap();
    let refused = asks.recv(&mut said).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let flows = gateway.show("flows udp");
    let flows = flows["rows"].as_array().unwrap();
    let becomes = format!("{FAR_GATE4}:4000");
    assert!(
        flows.iter().any(|flow| flow["becomes_source"] == *becomes),
        "{flows:?}"
    );
    gateway.stop();
}

/// Sends as much both ways at once, and checks that it arrives as it was sent.
fn exchange(client: &Namespace, server: &Namespace, address: &str, bytes: usize) {
    exchange_by(client, (server, address), address, bytes);
}

/// The same where the client knows the server by another address than the server itself.
fn exchange_by(
    client: &Namespace,
    (server, address): (&Namespace, &str),
    called: &str,
    bytes: usize,
) {
    let listener = server.inside(|| TcpListener::bind(at(address, 0)).unwrap());
    listener.set_nonblocking(true).unwrap();
    let to = at(called, listener.local_addr().unwrap().port());
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap();
    let stream = client.inside(connect);
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).unwrap();
    stream.set_write_timeout(patience).unwrap();
    let served = accept(&listener);
    let noise = noise(bytes);
    std::thread::scope(|scope| {
        for (mut from, mut to) in [(&stream, &served), (&served, &stream)] {
            let noise = &noise;
            scope.spawn(move || {
                from.write_all(noise).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut read = Vec::new();
                to.read_to_end(&mut read).unwrap();
                assert!(
                    read == *noise,
                    "{} bytes have arrived, or others",
                    read.len()
                );
            });
        }
    });
}

fn connections_that_begin_with_a_syn_cookie_carry_megabytes_both_ways() {
    // Whole segments on the wires, and such as the kernel leaves to the card to finish.
    for make in [Site::new, Site::with_offloads] {
        let Some(site) = make() else { return };
        let scratch = Scratch::new();
        let zones = outward([1024; 2]).replace("[flows]", "[flows]\nhalf_open = 0");
        let nat = "[nat]\n[[nat.source]]\nto = \"outside\"\nmasquerade = \"b\"\n";
        for more in ["", nat] {
            let config = two_ports("af_packet", "", "") + &zones + more;
            let gateway = Router::start_as("gateway", &site.mid, &scratch, &config);
            for outside in [RIGHT4, RIGHT6] {
                reaches(&site.left, outside);
                exchange(&site.left, &site.right, outside, 4 << 20);
                assert!(talk(&site.left, &site.right, outside), "{outside}");
            }
            let flows = gateway.show("flows tcp");
            let flows = flows["rows"].as_array().unwrap();
            assert_eq!(flows.len(), 4, "{flows:?}");
            assert!(flows.iter().all(|flow| flow["cookie"] == true), "{flows:?}");
            gateway.stop();
        }
    }
}
