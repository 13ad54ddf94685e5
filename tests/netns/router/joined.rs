//! TCP whose segments the router joins on transmit: every byte arrives once and in order, with any
//! offloads of the hosts, and other packets pass unchanged.

use super::instance::{Router, two_ports};
use super::site::{LEFT4, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::PATIENCE;
use linerate_testkit::Scratch;
use linerate_testkit::traffic::accept;
use linerate_testkit::{harness::Test, tests};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

pub(crate) const TESTS: &[Test] = tests![
    segments_are_joined_over_af_packet,
    segments_are_joined_over_af_xdp,
    segments_of_hosts_with_offloads_are_joined_over_af_xdp,
    unsegmented_frames_leave_by_af_xdp,
    segments_are_not_joined_where_that_is_off,
];

/// Bytes of a stream.
const BYTES: usize = 6_000_000;

/// The byte at a position of a stream, chosen so that lost, doubled and moved bytes are detected.
fn byte(at: usize) -> u8 {
    (at as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_be_bytes()[0]
}

/// A stream from the left host to the right one, in writes of all sizes, some of them pushed at
/// once; the right host returns the length.
#[track_caller]
fn stream(site: &Site, address: &str) {
    let listener = site
        .right
        .inside(|| TcpListener::bind((address, 0)).unwrap());
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let sent: Vec<u8> = (0..BYTES).map(byte).collect();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut stream = accept(&listener);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let connected = site
            .left
            .inside(|| TcpStream::connect_timeout(&at, PATIENCE));
        let mut stream = connected.unwrap_or_else(|error| panic!("{at}: {error}"));
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let (mut rest, mut turn) = (&sent[..], 0_usize);
        while !rest.is_empty() {
            turn += 1;
            let small = turn.is_multiple_of(7);
            stream.set_nodelay(small).unwrap();
            let len = if small {
                1 + turn % 2000
            } else {
                1000 * (turn % 190) + 1
            };
            let (now, later) = rest.split_at(len.min(rest.len()));
            stream.write_all(now).unwrap();
            rest = later;
        }
        drop(stream);
        let received = receiver.join().unwrap();
        assert_eq!(received.len(), BYTES);
        let wrong = received
            .iter()
            .zip(&sent)
            .position(|(got, sent)| got != sent);
        assert_eq!(wrong, None, "{address}: the first byte that differs");
    });
}

/// Datagrams in sequence: each arrives separately, with its length.
#[track_caller]
fn datagrams(site: &Site) {
    let sink = site.right.inside(|| UdpSocket::bind((RIGHT4, 0)).unwrap());
    let source = site.left.inside(|| UdpSocket::bind((LEFT4, 0)).unwrap());
    sink.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = sink.local_addr().unwrap();
    for number in 0..40_usize {
        let sent = vec![number as u8; 100 * (number % 14 + 1)];
        source.send_to(&sent, to).unwrap();
        let mut received = [0; 2000];
        let len = sink.recv(&mut received).unwrap();
        assert_eq!(received[..len], sent);
    }
}

/// Streams through ports of these kinds, and the router's counters afterwards.
fn streams(site: Option<Site>, [a, b]: [&str; 2], holds: impl FnOnce(&Counted) -> bool) {
    let Some(site) = site else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "", "")
        .replace("\"af_packet:a\"", &format!("\"{a}\""))
        .replace("\"af_packet:b\"", &format!("\"{b}\""));
    let router = Router::start(&site.mid, &scratch, &config);
    site.works();
    for address in [RIGHT4, RIGHT6] {
        stream(&site, address);
    }
    datagrams(&site);
    reaches(&site.left, RIGHT4);
    let counted = |name| router.counted("ports", name);
    let counted = Counted {
        received: counted("rx_packets"),
        joined: counted("joined"),
        segmented: counted("segmented"),
    };
    let said = router.ctl("show ports");
    assert!(holds(&counted), "{counted:?}: {said}");
    assert_eq!(router.dropped("malformed") + router.dropped("refused"), 0);
    router.stop();
}

#[derive(Debug)]
struct Counted {
    received: u64,
    joined: u64,
    segmented: u64,
}

/// More than a few: the number of segments that can be joined depends on the load of the machine.
fn are_joined(counted: &Counted) -> bool {
    counted.joined > 1000
}

fn segments_are_joined_over_af_packet() {
    streams(Site::new(), ["af_packet:a", "af_packet:b"], are_joined);
}

fn segments_are_joined_over_af_xdp() {
    streams(Site::new(), ["af_xdp:a", "af_xdp:b"], are_joined);
}

/// The left host's kernel leaves checksums unfinished, and segments since XDP is on the other end
/// of the wire.
fn segments_of_hosts_with_offloads_are_joined_over_af_xdp() {
    streams(Site::with_offloads(), ["af_xdp:a", "af_xdp:b"], are_joined);
}

/// Unsegmented frames come in by one kind of port, and leave unchanged by the other.
fn unsegmented_frames_leave_by_af_xdp() {
    let kinds = ["af_packet:a", "af_xdp:b"];
    let uncut = |counted: &Counted| counted.segmented == 0 && counted.received < 5000;
    streams(Site::with_offloads(), kinds, uncut);
}

fn segments_are_not_joined_where_that_is_off() {
    let kinds = ["af_packet:a,gro=off", "af_packet:b,gro=off"];
    streams(Site::new(), kinds, |counted| counted.joined == 0);
}
