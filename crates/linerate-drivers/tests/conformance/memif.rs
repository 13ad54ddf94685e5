//! memif: a server and a client in one process, over a socket in a folder of their own.

use crate::suite::{self, Pair, Wire};
use linerate_core::port::Link;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use std::time::Instant;

fn joined(server: &'static str, client: &'static str) -> impl Fn() -> Result<Pair, String> {
    move || {
        let (folder, mut drivers) = (Scratch::new(), Drivers::new());
        let socket = folder.file("memif.sock");
        let mut open = |options: &str| drivers.open(&format!("memif:{socket},{options}")).unwrap();
        Ok(Pair {
            a: open(server),
            b: open(client),
            guard: Box::new((folder, drivers)),
        })
    }
}

#[test]
fn memif_conforms() {
    Wire::new("memif", joined("role=server", "role=client")).conforms();
    Wire::new(
        "memif from client to server, with a secret",
        joined("role=client,secret=told", "role=server,secret=told"),
    )
    .conforms();
}

#[test]
fn memif_conforms_with_several_queues() {
    Wire {
        queues: 3,
        ..Wire::new(
            "memif, 3 queues",
            joined("role=server,queues=3", "role=client,queues=3"),
        )
    }
    .conforms();
    Wire {
        queues: 3,
        ..Wire::new(
            "memif, 3 queues back",
            joined("role=client,queues=3", "role=server,queues=3"),
        )
    }
    .conforms();
}

/// 64 buffers of 2048 bytes take the longest frame; one of 256 takes a sixth of a frame.
#[test]
fn memif_conforms_with_small_rings_and_buffers() {
    for (name, server, client) in [
        ("small rings", "role=server", "role=client,ring_size=64"),
        (
            "small rings back",
            "role=client,ring_size=64",
            "role=server",
        ),
        ("small buffers", "role=server", "role=client,buffer=256"),
        (
            "small buffers back",
            "role=client,buffer=256",
            "role=server",
        ),
        (
            "large buffers",
            "role=server",
            "role=client,buffer=65536,ring_size=64",
        ),
    ] {
        Wire {
            window: 60,
            ..Wire::new(name, joined(server, client))
        }
        .conforms();
    }
}

/// Frames lie where they are sent from, and come to where they stay.
#[test]
fn memif_conforms_without_a_copy() {
    for (name, a, b) in [
        ("to the client", "role=server", "role=client,trust=full"),
        ("to the server", "role=client,trust=full", "role=server"),
        (
            "small buffers",
            "role=server",
            "role=client,trust=full,buffer=256",
        ),
        (
            "small buffers back",
            "role=client,trust=full,buffer=256",
            "role=server",
        ),
        (
            "large descriptors",
            "role=client,trust=full,buffer=65536,ring_size=64",
            "role=server",
        ),
    ] {
        Wire {
            window: 60,
            ..Wire::new(name, joined(a, b))
        }
        .conforms();
    }
    Wire {
        queues: 3,
        ..Wire::new(
            "memif without a copy, 3 queues",
            joined("role=server,queues=3", "role=client,queues=3,trust=full"),
        )
    }
    .conforms();
    Wire {
        queues: 3,
        ..Wire::new(
            "memif without a copy, 3 queues back",
            joined("role=client,queues=3,trust=full", "role=server,queues=3"),
        )
    }
    .conforms();
}

/// A server that starts with more queues than its client has rings.
#[test]
fn queues_share_the_rings_of_a_client_with_fewer() {
    let pools = suite::pools(false);
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let socket = folder.file("s");
    let mut open = |options: &str| drivers.open(&format!("memif:{socket},{options}")).unwrap();
    let mut server = suite::End::new(open("queues=3"), &pools);
    let mut client = suite::End::new(open("role=client"), &pools);
    server.start(0, 3, &pools);
    client.start(1, 1, &pools);
    wait_up(&server);
    wait_up(&client);
    for number in 0..30 {
        assert!(server.send(number, 60, &pools), "queue {}", number % 3);
    }
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < 30 && start.elapsed() < suite::PATIENCE {
        got.extend(client.receive());
    }
    assert_eq!(got.len(), 30);
    for end in [server, client] {
        let mut end = end;
        end.check_stats();
        end.stop();
    }
}

fn wait_up(end: &suite::End) {
    let start = Instant::now();
    while end.port.link() != Link::Up {
        let link = end.port.link();
        assert!(start.elapsed() < suite::PATIENCE, "{link:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
