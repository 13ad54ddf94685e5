//! Hosts inside that are reached by outside addresses: servers with a port outside, and hosts that
//! meet each other by what a third party has told them of (hairpins, RFC 4787 REQ-9).

use super::at;
use super::three::{THIRD4, Three};
use crate::router::instance::Router;
use crate::router::site::{FAR_GATE4, LEFT4, RIGHT4, reaches};
use linerate_testkit::netns::Namespace;
use linerate_testkit::traffic::accept;
use linerate_testkit::{Scratch, wait};
use linerate_testkit::{harness::Test, tests};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    hosts_inside_meet_by_the_addresses_that_a_server_outside_has_seen,
    servers_inside_are_reached_by_their_ports_outside,
];

const SHORT: Option<Duration> = Some(Duration::from_secs(1));

/// The address outside.
const POOL: &str = "198.51.100.1";

fn udp(host: &Namespace, address: &str, port: u16) -> UdpSocket {
    let socket = host.inside(|| UdpSocket::bind(at(address, port)).unwrap());
    socket.set_read_timeout(SHORT).unwrap();
    socket
}

/// Sends until something comes at the other end, and returns who it came from.
#[track_caller]
fn arrives(from: &UdpSocket, to: SocketAddr, there: &UdpSocket, text: &str) -> SocketAddr {
    let mut sender = None;
    wait(&format!("`{text}` to arrive"), || {
        let text = text.as_bytes();
        from.send_to(text, to).unwrap();
        let mut bytes = [0; 64];
        sender = there
            .recv_from(&mut bytes)
            .ok()
            .filter(|(length, _)| &bytes[..*length] == text)
            .map(|(_, from)| from);
        sender.is_some()
    });
    sender.unwrap()
}

fn hosts_inside_meet_by_the_addresses_that_a_server_outside_has_seen() {
    let Some(three) = Three::new() else { return };
    let scratch = Scratch::new();
    let config = Three::config(1024)
        + &format!(
            "[nat]\n[[nat.pool]]\nname = \"pool\"\naddresses = [\"{POOL}\"]\npreserve = false\n\
             filtering = \"independent\"\n[[nat.source]]\nfrom = \"inside\"\npool = \"pool\"\n"
        );
    let gateway = Router::start_as("gateway", &three.site.mid, &scratch, &config);
    reaches(&three.site.left, RIGHT4);
    reaches(&three.third, RIGHT4);
    let server = udp(&three.site.right, RIGHT4, 3478);
    let [left, third] = [
        udp(&three.site.left, LEFT4, 4000),
        udp(&three.third, THIRD4, 4000),
    ];
    let [left_seen, third_seen] =
        [&left, &third].map(|socket| arrives(socket, at(RIGHT4, 3478), &server, "who am I?"));
    assert_eq!([left_seen.ip(), third_seen.ip()], [at(POOL, 0).ip(); 2]);
    assert_ne!(left_seen, third_seen);
    // Each sends to what the server has seen of the other.
    let heard = arrives(&left, third_seen, &third, "hello");
    assert_eq!(heard, left_seen, "the sender has an outside address");
    let heard = arrives(&third, left_seen, &left, "hello yourself");
    assert_eq!(heard, third_seen, "the sender has an outside address");
    gateway.stop();
}

/// Says who has connected.
fn echo_peer(listener: &TcpListener) {
    let mut served = accept(listener);
    let peer = served.peer_addr().unwrap().to_string();
    served.write_all(peer.as_bytes()).unwrap();
}

/// What a server inside says to a client of its outside address.
#[track_caller]
fn asks(client: &Namespace, to: SocketAddr, listener: &TcpListener) -> Option<String> {
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(2));
    let mut stream = client.inside(connect).ok()?;
    echo_peer(listener);
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    Some(said)
}

fn servers_inside_are_reached_by_their_ports_outside() {
    let Some(three) = Three::new() else { return };
    let scratch = Scratch::new();
    let config = Three::config(1024)
        + &format!(
            "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\n\
             rules = [ {{ action = \"permit\", service = \"tcp/80\" }} ]\n\
             [nat]\n[[nat.source]]\nfrom = \"inside\"\nto = \"outside\"\nmasquerade = \"b\"\n\
             [[nat.forward]]\noutside = \"{FAR_GATE4}\"\nprotocol = \"tcp\"\n\
             ports = \"8080-8081\"\n\
             inside = \"{LEFT4}\"\ninside_port = 80\n"
        );
    let gateway = Router::start_as("gateway", &three.site.mid, &scratch, &config);
    reaches(&three.site.left, RIGHT4);
    reaches(&three.third, RIGHT4);
    let [open, closed] = [80, 81].map(|port| {
        let bind = || TcpListener::bind(at(LEFT4, port)).unwrap();
        let listener = three.site.left.inside(bind);
        listener.set_nonblocking(true).unwrap();
        listener
    });
    // The server sees who asks from outside, and of who is inside the outside address
    // (RFC 4787 REQ-9 a): answers come back the way that questions came.
    for (client, address) in [(&three.site.right, RIGHT4), (&three.third, FAR_GATE4)] {
        let mut said = None;
        wait("the server to be reached", || {
            said = asks(client, at(FAR_GATE4, 8080), &open);
            said.is_some()
        });
        let said = said.unwrap();
        assert!(said.starts_with(&format!("{address}:")), "{said}");
    }
    // The second port leads to one that the policy does not permit to who is outside.
    assert!(asks(&three.site.right, at(FAR_GATE4, 8081), &closed).is_none());
    assert!(closed.accept().is_err());
    let flows = gateway.show("flows tcp 8080");
    let flows = flows["rows"].as_array().unwrap();
    let becomes = format!("{LEFT4}:80");
    assert!(
        flows.len() >= 2
            && flows
                .iter()
                .all(|flow| flow["becomes_destination"] == *becomes),
        "{flows:?}"
    );
    gateway.stop();
}
