//! Fragments of every shape, made by scapy, through a router with reassembly and one without.

use super::instance::{Router, two_ports};
use super::site::{GATE4, GATE6, LEFT4, LEFT6, RIGHT4, RIGHT6, Site};
use linerate_testkit::Scratch;
use linerate_testkit::capture::{self, Tcpdump, inject};
use linerate_testkit::frame;
use linerate_testkit::has;
use linerate_testkit::{harness::Test, tests};
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    of_every_shape_through_linux,
    of_every_shape_with_reassembly,
    of_every_shape_with_reassembly_over_af_xdp,
    of_every_shape_without_reassembly,
    to_the_router_itself,
];

/// Debian's own Python, which Debian's scapy is for.
const PYTHON: &str = "/usr/bin/python3";

/// The fragment patterns that scapy makes, by name, each with its frames.
fn shapes(site: &Site, scratch: &Scratch) -> Option<Vec<(String, Vec<Vec<u8>>)>> {
    if !has(&["scapy", "tcpdump"]) {
        return None;
    }
    let script = scratch.file("fragments.py");
    std::fs::write(&script, include_str!("fragments.py")).unwrap();
    let directory = scratch.path().display().to_string();
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let (router, host) = (mac(site.mid.mac("a")), mac(site.left.mac("veth0")));
    let output = Command::new(PYTHON)
        .args([
            &script, &directory, LEFT4, RIGHT4, LEFT6, RIGHT6, &router, &host,
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let shape = |name: &str| {
        let frames = capture::frames(&scratch.file(&format!("{name}.pcap")), scratch);
        (name.to_owned(), frames)
    };
    Some(said.lines().map(shape).collect())
}

/// The numbered datagrams that the right host's kernel delivers to UDP port 9000.
fn delivered(sockets: &[UdpSocket]) -> Vec<String> {
    let mut names = Vec::new();
    let mut bytes = vec![0; 65_536];
    for socket in sockets {
        while let Ok(len) = socket.recv(&mut bytes) {
            let name = String::from_utf8_lossy(&bytes[..len.min(40)]);
            names.push(name.trim_end_matches('.').to_owned());
        }
    }
    names
}

/// Which router forwards.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Forwarder {
    /// Linux: the shapes are what they say.
    Kernel,
    Plain,
    Reassembly,
}

fn every_shape(forwarder: Forwarder, kind: &str) {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let Some(shapes) = shapes(&site, &scratch) else {
        return;
    };
    let keys = format!("reassemble = {}", forwarder == Forwarder::Reassembly);
    let config = two_ports(kind, &keys, "");
    let router = if forwarder == Forwarder::Kernel {
        site.kernel();
        None
    } else {
        Some(Router::start(&site.mid, &scratch, &config))
    };
    site.works();
    let sockets: Vec<UdpSocket> = site.right.inside(|| {
        [RIGHT4, RIGHT6]
            .map(|address| UdpSocket::bind((address, 9000)).unwrap())
            .into()
    });
    for socket in &sockets {
        socket
            .set_read_timeout(Some(Duration::from_millis(700)))
            .unwrap();
    }
    let onlooker = Tcpdump::start(&site.right, "veth1", "in", &scratch);
    let all: Vec<Vec<u8>> = shapes
        .iter()
        .flat_map(|(_, frames)| frames.clone())
        .collect();
    inject(&site.left, "veth0", &all, &scratch);
    let mut expected: Vec<String> = (shapes.iter())
        .map(|(name, _)| name.clone())
        .filter(|name| {
            name.starts_with("whole")
                || forwarder != Forwarder::Reassembly && name.starts_with("linux")
        })
        .collect();
    expected.push("whole4-interleaved-b".into());
    expected.sort();
    let mut names = delivered(&sockets);
    names.sort();
    names.dedup();
    let arrived = onlooker.end();
    let drops = router.as_ref().map(|router| router.ctl("show drops"));
    assert_eq!(names, expected, "{forwarder:?}: {drops:?}");
    if forwarder == Forwarder::Reassembly {
        // Incomplete datagrams do not pass: no fragment of them is on the next wire.
        for (name, frames) in shapes.iter().filter(|(name, _)| !name.starts_with("whole")) {
            for frame in frames {
                let Some(tail) = frame.len().checked_sub(60).map(|at| &frame[at..]) else {
                    continue;
                };
                let passed = arrived
                    .iter()
                    .any(|frame| frame.windows(60).any(|window| window == tail));
                assert!(!passed, "a piece of {name} passed");
            }
        }
    } else {
        // Each fragment unchanged, in the same order.
        let (to, from) = (site.right.mac("veth1"), site.mid.mac("b"));
        let expected = all.iter().map(|frame| frame::forwarded(frame, to, from));
        let ours = |frame: &&Vec<u8>| {
            frame[12..14] == [8, 0] || frame[12..14] == [0x86, 0xdd] && frame[20] == 44
        };
        let arrived: Vec<&Vec<u8>> = arrived.iter().filter(ours).collect();
        let expected: Vec<Vec<u8>> = expected.collect();
        assert_eq!(arrived.len(), expected.len());
        for (at, (arrived, expected)) in arrived.into_iter().zip(&expected).enumerate() {
            assert!(
                arrived == expected,
                "frame {at}: {arrived:02x?}, not {expected:02x?}"
            );
        }
    }
    if let Some(router) = router {
        router.stop();
    }
}

fn of_every_shape_through_linux() {
    every_shape(Forwarder::Kernel, "");
}

fn of_every_shape_with_reassembly() {
    every_shape(Forwarder::Reassembly, "af_packet");
}

/// Slots of 2 KiB: longer datagrams are reassembled in other slots.
fn of_every_shape_with_reassembly_over_af_xdp() {
    every_shape(Forwarder::Reassembly, "af_xdp");
}

fn of_every_shape_without_reassembly() {
    every_shape(Forwarder::Plain, "af_packet");
}

/// A reassembled datagram may be longer than the MTU of the host interface, by which it goes to the
/// kernel; so may be the answer, which the kernel fragments.
fn to_the_router_itself() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "reassemble = true", "");
    let router = Router::start(&site.mid, &scratch, &config);
    site.works();
    for address in [GATE4, GATE6] {
        let output = site
            .left
            .run("ping", &format!("-n -c 3 -i 0.2 -W 5 -s 3000 {address}"));
        let drops = router.ctl("show drops");
        assert!(output.status.success(), "{address}: {output:?}, {drops}");
    }
    router.stop();
}
