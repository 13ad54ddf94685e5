//! A peer over a real socket: its messages, broken streams, and how it disconnects.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;

use linerate_wire::fpm::header;
use linerate_wire::rtnetlink::build::Builder;
use linerate_wire::rtnetlink::{attribute, kind};
use rustix::process::geteuid;

use super::*;
use crate::plane::hops::Action;
use crate::rib::testing::{Bench, WAN, gateway, ip};

/// A listener with a routing table behind it.
struct Stand {
    bench: Bench,
    fpm: Fpm,
    events: Vec<FpmEvent>,
}

impl Stand {
    fn new(graceful: Duration) -> Self {
        Self::with(graceful, vec![geteuid().as_raw()])
    }

    /// A listener that admits these users only.
    fn with(graceful: Duration, users: Vec<u32>) -> Self {
        let mut bench = Bench::new();
        let any = "127.0.0.1:0".parse().unwrap();
        let mut fpm = Fpm::listen(any, users, graceful, || {}).unwrap();
        fpm.feed.set_tables([(254, 0)]);
        fpm.feed.set_interface(&mut bench.rib, 11, Some(WAN));
        Self {
            bench,
            fpm,
            events: Vec::new(),
        }
    }

    /// Polls until `done`, with a generous timeout.
    fn until(&mut self, done: impl Fn(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let now = Instant::now();
            while self.fpm.poll(&mut self.bench.rib, now, &mut self.events) {}
            self.bench.commit();
            if done(self) {
                return;
            }
            assert!(now < deadline, "{:?}", self.events);
            sleep(Duration::from_millis(1));
        }
    }

    fn peer(&self, bytes: &[u8]) -> TcpStream {
        listener::peer(self.fpm.address(), bytes).unwrap()
    }

    fn refused(&self) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            FpmEvent::Refused(_, why) => Some(why.as_str()),
            _ => None,
        })
    }

    fn ended(&self) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            FpmEvent::Disconnected(_, why) => Some(why.as_str()),
            _ => None,
        })
    }
}

fn route(third: u8, gateway: u8) -> Vec<u8> {
    Builder::new(kind::NEW_ROUTE, 0)
        .fixed(&[2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0])
        .address(attribute::route::DST, [198, 51, third, 0].into())
        .address(attribute::route::GATEWAY, [192, 0, 2, gateway].into())
        .u32(attribute::route::OIF, 11)
        .finish(0)
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&header(message.len()).unwrap()[..], message].concat()
}

const LONG: Duration = Duration::from_secs(600);

#[test]
fn routes_come_in_pieces() {
    let mut stand = Stand::new(LONG);
    let mpls = Builder::new(kind::NEW_ROUTE, 0).fixed(&[28; 12]).finish(0);
    let sent = [frame(&route(1, 2)), frame(&mpls), frame(&route(2, 3))].concat();
    let mut peer = stand.peer(&[]);
    peer.set_nodelay(true).unwrap();
    for piece in sent.chunks(7) {
        peer.write_all(piece).unwrap();
    }
    stand.until(|stand| stand.fpm.counts.frames == 3);
    assert_eq!(gateway(&stand.bench.hop("198.51.1.1")), ip("192.0.2.2"));
    assert_eq!(gateway(&stand.bench.hop("198.51.2.1")), ip("192.0.2.3"));
    assert_eq!(stand.fpm.counts.ignored, 1);
}

#[test]
fn liars_are_cut_off_and_what_was_whole_stays() {
    let lie = [1, 1, 0, 2];
    let mut bad = route(3, 4);
    bad[0] = 200; // longer than its frame
    for (bytes, word) in [
        (lie.to_vec(), "shorter than its header"),
        (frame(&bad), "says it has 200 bytes"),
        (b"GET /".to_vec(), "version 71"),
    ] {
        let mut stand = Stand::new(LONG);
        let _peer = stand.peer(&[frame(&route(1, 2)), bytes].concat());
        stand.until(|stand| stand.ended().is_some());
        assert!(stand.ended().unwrap().contains(word), "{:?}", stand.events);
        assert_eq!(stand.bench.action("198.51.1.1"), Some(Action::Resolve));
        assert_eq!(stand.bench.action("198.51.3.1"), None);
        assert_eq!(stand.fpm.counts.liars, 1);
    }
}

#[test]
fn one_that_stops_in_the_middle_keeps_what_was_whole() {
    let mut stand = Stand::new(LONG);
    let second = frame(&route(2, 2));
    let peer = stand.peer(&[&frame(&route(1, 2))[..], &second[..20]].concat());
    stand.until(|stand| stand.fpm.counts.frames == 1);
    drop(peer);
    stand.until(|stand| stand.ended().is_some());
    assert!(stand.ended().unwrap().contains("20 bytes into a message"));
    assert_eq!(stand.bench.action("198.51.1.1"), Some(Action::Resolve));
    assert!(stand.bench.route_to(ip("198.51.1.1")).unwrap().stale);
    assert_eq!(stand.fpm.counts.liars, 0);
}

#[test]
fn one_that_comes_back_keeps_what_it_repeats() {
    let mut stand = Stand::new(Duration::from_millis(300));
    let peer = stand.peer(&[frame(&route(1, 2)), frame(&route(2, 2))].concat());
    stand.until(|stand| stand.fpm.counts.frames == 2);
    drop(peer);
    stand.until(|stand| stand.ended().is_some());
    let published = stand.bench.rib.counts().published;
    let _peer = stand.peer(&frame(&route(1, 2)));
    stand.until(|stand| stand.fpm.counts.frames == 3);
    assert_eq!(stand.bench.rib.counts().published, published);
    stand.until(|stand| stand.events.contains(&FpmEvent::Swept(1)));
    assert_eq!(stand.bench.action("198.51.1.1"), Some(Action::Resolve));
    assert_eq!(stand.bench.action("198.51.2.1"), None);
}

#[test]
fn one_that_does_not_come_back_is_said_to_have_ended_before_its_routes_go() {
    let mut stand = Stand::new(Duration::from_millis(50));
    let peer = stand.peer(&frame(&route(1, 2)));
    stand.until(|stand| stand.fpm.counts.frames == 1);
    assert!(stand.fpm.tells());
    drop(peer);
    stand.until(|stand| stand.ended().is_some());
    assert!(stand.fpm.tells(), "it may come back");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !stand.events.contains(&FpmEvent::Ended) {
        assert!(Instant::now() < deadline, "{:?}", stand.events);
        let now = Instant::now();
        while stand.fpm.poll(&mut stand.bench.rib, now, &mut stand.events) {}
    }
    assert!(!stand.fpm.tells());
    stand.bench.commit();
    assert_eq!(stand.bench.action("198.51.1.1"), Some(Action::Resolve));
    stand.until(|stand| stand.events.contains(&FpmEvent::Swept(1)));
    assert_eq!(stand.bench.action("198.51.1.1"), None);
}

/// FRR knows an interface before we do.
#[test]
fn one_that_was_too_fast_is_asked_again() {
    let mut stand = Stand::new(LONG);
    let mut early = route(1, 2);
    let len = early.len();
    early[len - 4..].copy_from_slice(&21u32.to_ne_bytes());
    let mut first = stand.peer(&frame(&early));
    stand.until(|stand| stand.fpm.counts.frames == 1);
    assert_eq!(stand.bench.action("198.51.1.1"), None);
    stand.fpm.set_interface(&mut stand.bench.rib, 21, WAN);
    stand.until(|stand| stand.ended().is_some());
    assert!(stand.ended().unwrap().contains("asked"));
    assert_eq!(std::io::Read::read(&mut first, &mut [0]).unwrap(), 0);
    let _second = stand.peer(&frame(&early));
    stand.until(|stand| stand.fpm.counts.frames == 2);
    assert_eq!(stand.bench.action("198.51.1.1"), Some(Action::Resolve));
    assert_eq!(stand.fpm.counts.liars, 0);
}

/// The router closes the connection and sends nothing.
fn hung_up(mut peer: &TcpStream) {
    peer.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // With unread data the close is a reset.
    assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn while_the_first_lives_another_is_refused() {
    let mut stand = Stand::new(LONG);
    let mut first = stand.peer(&frame(&route(1, 2)));
    stand.until(|stand| stand.fpm.counts.frames == 1);
    hung_up(&stand.peer(&frame(&route(2, 2))));
    stand.until(|stand| stand.refused().is_some());
    assert!(stand.refused().unwrap().contains("already connected"));
    hung_up(&stand.peer(&frame(&route(2, 2))));
    assert_eq!(stand.fpm.refused(), 2);
    // The first peer is still read.
    first.write_all(&frame(&route(3, 2))).unwrap();
    stand.until(|stand| stand.fpm.counts.frames == 2);
    assert_eq!(stand.fpm.counts.connections, 1);
    assert_eq!(stand.bench.action("198.51.2.1"), None);
    // When it has closed, another is admitted.
    drop(first);
    stand.until(|stand| stand.ended().is_some());
    let _second = stand.peer(&frame(&route(2, 2)));
    stand.until(|stand| stand.fpm.counts.frames == 3);
    assert_eq!(stand.bench.action("198.51.2.1"), Some(Action::Resolve));
}

/// Another user of this machine sends routes, through a shell, and then runs `then`.
fn as_nobody(address: SocketAddr, bytes: &[u8], then: &str) -> Child {
    let (ip, port) = (address.ip(), address.port());
    let script = format!("exec 3<>/dev/tcp/{ip}/{port}; cat >&3; {then}");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).uid(65534).gid(65534);
    let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(bytes).unwrap();
    shell
}

#[test]
fn another_user_of_the_machine_is_refused() {
    if !geteuid().is_root() {
        linerate_testkit::skip("FPM of another user: needs root, to be one");
        return;
    }
    let lie = frame(&route(2, 2));
    let mut stand = Stand::new(LONG);
    let address = stand.fpm.address();
    // Without a zebra connected. The last read is the end of the stream.
    let mut ended = as_nobody(address, &lie, "cat <&3");
    stand.until(|stand| stand.refused().is_some());
    assert!(
        stand.refused().unwrap().contains("user 65534"),
        "{:?}",
        stand.events
    );
    ended.wait().unwrap();
    // A peer that closes at once, whose socket the kernel reports as root's.
    for turn in 2..30 {
        let mut ended = as_nobody(address, &lie, "");
        ended.wait().unwrap();
        stand.until(|stand| stand.fpm.refused() == turn);
    }
    let _zebra = stand.peer(&frame(&route(1, 2)));
    stand.until(|stand| stand.fpm.counts.frames == 1);
    // With a zebra connected.
    let mut ended = as_nobody(address, &lie, "cat <&3");
    stand.until(|stand| stand.fpm.refused() == 30);
    ended.wait().unwrap();
    assert_eq!(stand.fpm.counts.connections, 1);
    assert_eq!(stand.ended(), None);
    assert_eq!(stand.bench.action("198.51.1.1"), Some(Action::Resolve));
    assert_eq!(stand.bench.action("198.51.2.1"), None);
}

/// Routing daemons other than FRR run as another user.
#[test]
fn a_user_who_was_named_is_believed() {
    if !geteuid().is_root() {
        linerate_testkit::skip("FPM of another user: needs root, to be one");
        return;
    }
    let mut stand = Stand::with(LONG, vec![65534]);
    let mut peer = as_nobody(stand.fpm.address(), &frame(&route(1, 2)), "cat <&3");
    stand.until(|stand| stand.fpm.counts.frames == 1);
    // Root is not among the users.
    hung_up(&stand.peer(&frame(&route(2, 2))));
    peer.kill().unwrap();
    peer.wait().unwrap();
}

#[test]
fn a_taken_address_is_named() {
    let stand = Stand::new(LONG);
    let address = stand.fpm.address();
    let error = Fpm::listen(address, Vec::new(), LONG, || {})
        .err()
        .expect("taken");
    assert!(error.to_string().contains(&address.to_string()));
}

#[test]
fn it_ends_while_a_peer_floods_it() {
    let stand = Stand::new(LONG);
    let mut peer = stand.peer(&[]);
    let flood = std::thread::spawn(move || {
        let many = frame(&route(1, 2)).repeat(1000);
        while peer.write_all(&many).is_ok() {}
    });
    drop(stand);
    flood.join().unwrap();
}

/// The configuration gives a VRF another table: its routes are removed, and FRR is asked for
/// everything again.
#[test]
fn routes_are_read_again_when_a_table_becomes_that_of_a_vrf() {
    let mut stand = Stand::new(LONG);
    let first = stand.peer(&frame(&route(100, 2)));
    stand.until(|stand| stand.bench.action("198.51.100.1").is_some());
    // The same tables again change nothing.
    stand.fpm.set_tables(&mut stand.bench.rib, &[(254, 0)]);
    let tables = [(254, 0), (10, 1)];
    stand.fpm.set_tables(&mut stand.bench.rib, &tables);
    stand.until(|stand| stand.ended().is_some());
    drop(first);
    assert!(
        stand.bench.action("198.51.100.1").is_some(),
        "in doubt, and used"
    );
    let _second = stand.peer(&frame(&route(100, 2)));
    stand.until(|stand| stand.fpm.counts.frames == 2);
    // Removing a VRF does not need anything sent again.
    let before = stand.events.len();
    stand.fpm.set_tables(&mut stand.bench.rib, &[(10, 1)]);
    stand.until(|_| true);
    assert_eq!(stand.bench.action("198.51.100.1"), None);
    assert_eq!(stand.events.len(), before);
}
