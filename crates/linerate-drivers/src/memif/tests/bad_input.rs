//! Peers that break the protocol, each in one way: they are cut off by name, and the next one is
//! served.

use super::super::message::{Message, RingPlace, SECRET_LEN, VERSION};
use super::super::ring::Descriptor;
use super::raw::{self, Client, Raw, SHAPE, Server};
use super::*;
use crate::peer::kick::new_eventfd;
use std::os::fd::AsFd;

/// A server of ours, and the path where it listens.
fn server() -> (Scratch, String, End) {
    let folder = Scratch::new();
    let path = folder.file("s");
    let server = End::start(&mut Drivers::new(), &format!("memif:{path}"));
    (folder, path, server)
}

/// What a peer does, and what the server counts it as.
type Case = (&'static str, &'static str, fn(&Raw));

#[test]
fn wrong_requests_are_counted_by_reason() {
    let cases: &[Case] = &[
        ("a message out of order", "message_bad", |raw| {
            raw.say(
                &Message::Connected {
                    name: String::new(),
                },
                &[],
            );
        }),
        ("INIT twice", "message_bad", |raw| {
            raw.say(&raw::init(), &[])
        }),
        ("a short message", "message_bad", |raw| {
            rustix::io::write(&raw.socket, &[1, 0, 0])
                .map(drop)
                .unwrap();
        }),
        ("a long message", "files_bad", |raw| {
            rustix::io::write(&raw.socket, &[1; 200]).map(drop).unwrap();
        }),
        ("no known type", "message_bad", |raw| {
            rustix::io::write(&raw.socket, &[0xff; 128])
                .map(drop)
                .unwrap();
        }),
        ("a region without a descriptor", "files_bad", |raw| {
            raw.say(
                &Message::AddRegion {
                    index: 0,
                    bytes: 4096,
                },
                &[],
            );
        }),
        ("an ACK with a descriptor", "files_bad", |raw| {
            raw.say(&Message::Ack, &[raw::memory(1).as_fd()]);
        }),
        ("a region with two descriptors", "files_bad", |raw| {
            let file = raw::memory(4096);
            let message = Message::AddRegion {
                index: 0,
                bytes: 4096,
            };
            raw.say(&message, &[file.as_fd(), file.as_fd()]);
        }),
        ("a region with eight descriptors", "files_bad", |raw| {
            let file = raw::memory(4096);
            let message = Message::AddRegion {
                index: 0,
                bytes: 4096,
            };
            raw.say(&message, &[file.as_fd(); 8]);
        }),
        ("a region of the wrong number", "region_bad", |raw| {
            raw.tell_region(1, 4096, &raw::memory(4096));
        }),
        ("a region that is too short", "region_bad", |raw| {
            raw.tell_region(0, 8192, &raw::memory(4096));
        }),
        ("a region of no bytes", "region_bad", |raw| {
            raw.tell_region(0, 0, &raw::memory(4096));
        }),
        ("a region that wraps", "region_bad", |raw| {
            raw.tell_region(0, u64::MAX, &raw::memory(4096));
        }),
        ("a region that is no memory", "region_bad", |raw| {
            raw.tell_region(0, 4096, &new_eventfd().unwrap());
        }),
        ("a region that is a file", "region_bad", |raw| {
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            raw.tell_region(0, 4096, &file.into());
        }),
        ("a region that can only be read", "region_bad", |raw| {
            let file = raw::memory(4096);
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            raw.tell_region(0, 4096, &std::fs::File::open(link).unwrap().into());
        }),
        (
            "a ring with another descriptor than an eventfd",
            "not_eventfd",
            |raw| {
                let (pipe, _other) = rustix::pipe::pipe().unwrap();
                let place = SHAPE.places()[0];
                raw.say(&Message::AddRing(place), &[pipe.as_fd()]);
            },
        ),
        (
            "a ring of a number that there is none of",
            "message_bad",
            |raw| {
                raw.tell_ring(RingPlace {
                    index: 1,
                    ..SHAPE.places()[0]
                });
            },
        ),
        ("a ring twice", "message_bad", |raw| {
            raw.tell_ring(SHAPE.places()[0]);
            raw.tell_ring(SHAPE.places()[0]);
        }),
        ("a ring with private headers", "message_bad", |raw| {
            raw.tell_ring(RingPlace {
                private_header: 4,
                ..SHAPE.places()[0]
            });
        }),
        ("a ring in no region", "ring_outside", |raw| {
            raw.tell_ring(SHAPE.places()[0]);
            raw.tell_connect();
        }),
        ("a ring at the end of the region", "ring_outside", |raw| {
            raw.tell_region(0, 4096, &raw::memory(4096));
            raw.tell_ring(RingPlace {
                offset: 4096 - 64,
                ..SHAPE.places()[0]
            });
            raw.tell_connect();
        }),
        ("a ring at the end of all numbers", "ring_outside", |raw| {
            raw.tell_region(0, 4096, &raw::memory(4096));
            raw.tell_ring(RingPlace {
                offset: u32::MAX - 7,
                ..SHAPE.places()[0]
            });
            raw.tell_connect();
        }),
        ("a ring that is not aligned", "ring_outside", |raw| {
            let (file, _regions) = SHAPE.make("raw").unwrap();
            raw.tell_region(0, SHAPE.bytes() as u64, &file);
            raw.tell_ring(RingPlace {
                offset: 3,
                ..SHAPE.places()[0]
            });
            raw.tell_connect();
        }),
        ("a ring of 2^16", "ring_outside", |raw| {
            let bytes = 2 << 20;
            raw.tell_region(0, bytes, &raw::memory(bytes));
            raw.tell_ring(RingPlace {
                log2_size: 16,
                ..SHAPE.places()[0]
            });
            raw.tell_connect();
        }),
        ("a ring of 2^255", "ring_outside", |raw| {
            raw.tell_region(0, 4096, &raw::memory(4096));
            raw.tell_ring(RingPlace {
                log2_size: 255,
                ..SHAPE.places()[0]
            });
            raw.tell_connect();
        }),
        ("a ring that nobody set up", "ring_outside", |raw| {
            raw.tell_region(0, 8192, &raw::memory(8192));
            raw.tell_ring(SHAPE.places()[0]);
            raw.tell_connect();
        }),
    ];
    let (_folder, path, mut server) = server();
    for (what, name, act) in cases {
        eprintln!("{what}");
        let before = server.violations(name);
        let raw = Raw::introduce(&path);
        act(&raw);
        let reason = raw.hear_no();
        assert!(reason.contains(name), "{what}: {reason}");
        server.wait(what, |server| server.violations(name) == before + 1);
    }
    // The next one is served.
    let client = Client::join(&path);
    server.wait_up();
    drop(client);
    server.stop();
}

/// Before a connection has named its interface.
#[test]
fn clients_of_other_protocols_are_disconnected_by_reason() {
    let (_folder, path, mut server) = server();
    let stranger = |act: fn(&Raw)| {
        let raw = Raw::connect(&path);
        assert!(matches!(raw.hear().0, Message::Hello { .. }));
        act(&raw);
        raw.hear_no()
    };
    let init = |change: fn(&mut u16, &mut u32, &mut u8)| {
        let (mut version, mut id, mut mode) = (VERSION, 0, 0);
        change(&mut version, &mut id, &mut mode);
        let secret = [0; SECRET_LEN];
        let name = "raw".to_owned();
        let raw = Raw::connect(&path);
        raw.say(
            &Message::Init {
                version,
                id,
                mode,
                secret,
                name,
            },
            &[],
        );
        raw.hear_no()
    };
    assert!(stranger(|raw| raw.say(&Message::Ack, &[])).contains("message_bad"));
    let with_file = |raw: &Raw| raw.say(&raw::init(), &[raw::memory(1).as_fd()]);
    assert!(stranger(with_file).contains("files_bad"));
    assert!(init(|version, _, _| *version = 0x300).contains("memif 3.0"));
    assert!(init(|_, id, _| *id = 9).contains("no interface has the id 9"));
    assert!(init(|_, _, mode| *mode = 1).contains("mode 1"));
    assert_eq!(
        server.violations("message_bad") + server.violations("files_bad"),
        2
    );
    // Hundreds that say nothing keep nobody out.
    let silent: Vec<Raw> = (0..200).map(|_| Raw::connect(&path)).collect();
    let client = Client::join(&path);
    server.wait_up();
    drop((silent, client));
    server.stop();
}

#[test]
fn a_second_client_of_an_interface_is_refused() {
    let (_folder, path, mut server) = server();
    let first = Client::join(&path);
    server.wait_up();
    let second = Raw::connect(&path);
    second.say(&raw::init(), &[]);
    assert!(second.hear_no().contains("another peer is connected"));
    assert_eq!(server.port.link(), Link::Up);
    drop(first);
    let _third = Client::join(&path);
    server.wait_up();
    server.stop();
}

/// A peer that closes in the middle of each step.
#[test]
fn a_peer_may_go_at_any_step() {
    let (_folder, path, mut server) = server();
    for step in 0..5 {
        let raw = Raw::connect(&path);
        if step > 0 {
            raw.say(&raw::init(), &[]);
        }
        let (file, _regions) = SHAPE.make("raw").unwrap();
        if step > 1 {
            raw.tell_region(0, SHAPE.bytes() as u64, &file);
        }
        if step > 2 {
            raw.tell_ring(SHAPE.places()[0]);
        }
        if step > 3 {
            raw.tell_connect();
        }
    }
    let client = Client::join(&path);
    server.wait_up();
    drop(client);
    assert!(
        server.port.stats().violations.is_empty(),
        "to go is no violation"
    );
    server.stop();
}

/// Before INIT, behind it, and as a server.
#[test]
fn a_peer_that_stops_in_the_handshake_is_disconnected() {
    let (folder, path, mut server) = server();
    let stranger = Raw::connect(&path);
    let client = Raw::introduce(&path);
    let silent = folder.file("silent");
    let listener = raw::listener(&silent);
    let spec = format!("memif:{silent},role=client");
    let mut waiting = End::start(&mut Drivers::new(), &spec);
    let _silent = Raw::accept(&listener);
    assert!(stranger.hear_no().contains("too_slow"));
    assert!(client.hear_no().contains("too_slow"));
    server.wait("both", |server| server.violations("too_slow") == 2);
    waiting.wait("the server", |waiting| waiting.violations("too_slow") == 1);
    server.stop();
    waiting.stop();
}

/// A ring and a client's regions of its own, several of them.
#[test]
fn buffers_may_lie_in_any_region() {
    let (_folder, path, mut server) = server();
    let raw = Raw::introduce(&path);
    let (file, regions) = SHAPE.make("raw").unwrap();
    raw.tell_region(0, SHAPE.bytes() as u64, &file);
    raw.hear_ack();
    let more = raw::memory(8192);
    raw.tell_region(1, 8192, &more);
    raw.hear_ack();
    let mapped = raw::map(&more, 8192);
    mapped.window(8192 - 60, 60).unwrap().write(&[7; 60]);
    for place in SHAPE.places() {
        raw.tell_ring(place);
        raw.hear_ack();
    }
    raw.tell_connect();
    server.wait_up();
    let regions = std::sync::Arc::new(regions);
    let ring = super::super::ring::Ring::new(&regions, 0, 0, SHAPE.log2_size).unwrap();
    let view = ring.view().unwrap();
    view.write(0, Descriptor::new(1, 8192 - 60, 60, false));
    view.set_head(1);
    let mut burst = Burst::new();
    assert_eq!(
        server.queues.rx[0].rx_burst(&mut burst, &mut server.cache),
        1
    );
    assert_eq!(burst.as_packets()[0].data(), [7; 60]);
    server.cache.free(&mut burst);
    assert_eq!(view.tail(), 1, "given back");
    server.stop();
}

/// What a client does in a ring, and what the server counts it as.
type RingCase = (&'static str, &'static str, fn(&Client));

#[test]
fn what_clients_write_wrong_is_counted_by_name() {
    let cases: &[RingCase] = &[
        ("a head beyond the ring", "ring_index", |client| {
            client.to_server.view().unwrap().set_head(65);
        }),
        ("a head that went back", "ring_index", |client| {
            client.to_server.view().unwrap().set_head(u16::MAX);
        }),
        ("more buffers than the ring has", "ring_index", |client| {
            client.to_client.view().unwrap().set_head(65);
        }),
        (
            "a region that there is none of",
            "descriptor_outside",
            |client| {
                frame(client, Descriptor::new(1, 0, 60, false));
            },
        ),
        (
            "a buffer that begins outside",
            "descriptor_outside",
            |client| {
                frame(client, Descriptor::new(0, u32::MAX, 60, false));
            },
        ),
        (
            "a buffer that ends outside",
            "descriptor_outside",
            |client| {
                frame(
                    client,
                    Descriptor::new(0, SHAPE.bytes() as u32 - 59, 60, false),
                );
            },
        ),
        ("a length without end", "descriptor_outside", |client| {
            frame(client, Descriptor::new(0, 0, u32::MAX, false));
        }),
        (
            "a chain that leaves the region",
            "descriptor_outside",
            |client| {
                let view = client.to_server.view().unwrap();
                view.write(0, Descriptor::new(0, 4096, 60, true));
                view.write(1, Descriptor::new(0, u32::MAX - 3, 60, false));
                view.set_head(2);
            },
        ),
        ("a chain as long as the ring", "chain_too_long", |client| {
            let view = client.to_server.view().unwrap();
            for index in 0..64 {
                view.write(index, Descriptor::new(0, 4096, 60, true));
            }
            view.set_head(64);
        }),
        ("a lent buffer outside", "descriptor_outside", |client| {
            lend(client, Descriptor::new(0, u32::MAX, 2048, false));
        }),
        (
            "a lent buffer of another region",
            "descriptor_outside",
            |client| {
                lend(client, Descriptor::new(9, 0, 2048, false));
            },
        ),
        ("a lent buffer of no bytes", "descriptor_length", |client| {
            lend(client, Descriptor::new(0, 4096, 0, false));
        }),
    ];
    let (_folder, path, mut server) = server();
    for (what, name, act) in cases {
        eprintln!("{what}");
        let client = Client::join(&path);
        server.wait_up();
        act(&client);
        server.wait_violation(name);
        assert!(client.raw.hear_no().contains(name));
    }
    let _client = Client::join(&path);
    server.wait_up();
    server.stop();
}

fn frame(client: &Client, descriptor: Descriptor) {
    let view = client.to_server.view().unwrap();
    view.write(0, descriptor);
    view.set_head(1);
}

fn lend(client: &Client, descriptor: Descriptor) {
    let view = client.to_client.view().unwrap();
    view.write(0, descriptor);
    view.set_head(1);
}

/// What a server does in a ring, and what the client counts it as.
type ServerCase = (&'static str, &'static str, fn(&Server));

/// The other way round: a server that lies to a client of ours.
#[test]
fn what_servers_write_wrong_is_counted_by_name() {
    let folder = Scratch::new();
    let path = folder.file("s");
    let listener = raw::listener(&path);
    let spec = format!("memif:{path},role=client,ring_size=64");
    let mut client = End::start(&mut Drivers::new(), &spec);
    let cases: &[ServerCase] = &[
        ("a tail beyond what was lent", "ring_index", |server| {
            server.to_client.view().unwrap().set_tail(65);
        }),
        ("more given back than was sent", "ring_index", |server| {
            // Enough is sent for the client to look.
            server.to_server.view().unwrap().set_tail(1000);
        }),
        (
            "a frame longer than its buffer",
            "descriptor_length",
            |server| {
                let view = server.to_client.view().unwrap();
                view.write(0, view.read(0).holding(2049, false));
                view.set_tail(1);
            },
        ),
        ("a chain without end", "chain_too_long", |server| {
            let view = server.to_client.view().unwrap();
            for index in 0..64 {
                view.write(index, view.read(index).holding(60, true));
            }
            view.set_tail(64);
        }),
    ];
    for (what, name, act) in cases {
        eprintln!("{what}");
        let server = Server::serve(&listener);
        client.wait_up();
        act(&server);
        client.wait_violation(name);
    }
    // What stands in a descriptor about the place of the client's own buffer does not count.
    let server = Server::serve(&listener);
    client.wait_up();
    let view = server.to_client.view().unwrap();
    let honest = view.read(0);
    let window = server.regions.window(honest.region(), honest.offset(), 60);
    window.unwrap().write(&[3; 60]);
    view.write(0, Descriptor::new(7, u32::MAX, 60, false));
    view.set_tail(1);
    let mut burst = Burst::new();
    assert_eq!(
        client.queues.rx[0].rx_burst(&mut burst, &mut client.cache),
        1
    );
    assert_eq!(burst.as_packets()[0].data(), [3; 60]);
    client.cache.free(&mut burst);
    assert_eq!(view.read(0), honest, "lent again as it was");
    client.stop();
}

#[test]
fn a_server_of_another_version_is_left_and_tried_again() {
    let folder = Scratch::new();
    let path = folder.file("s");
    let listener = raw::listener(&path);
    let mut client = End::start(&mut Drivers::new(), &format!("memif:{path},role=client"));
    let old = Raw::accept(&listener);
    let Message::Hello { .. } = raw::hello() else {
        panic!()
    };
    old.say(
        &Message::Hello {
            name: "old".into(),
            versions: (0x100, 0x105),
            max_region: 0,
            max_to_server: 0,
            max_to_client: 0,
            max_log2_size: 10,
        },
        &[],
    );
    assert!(old.hear_no().contains("memif 1.0 to 1.5"));
    let _server = Server::serve(&listener);
    client.wait_up();
    client.stop();
}

/// The file shrinks under the rings and buffers.
#[test]
fn a_file_that_shrinks_costs_the_peer_its_connection() {
    let (_folder, path, mut server) = server();
    for bytes in [0, 4096] {
        let client = Client::join_unsealed(&path);
        server.wait_up();
        let fact = server.port.info().facts;
        assert!(
            fact.contains(&("regions", "1 (not sealed)".into())),
            "{fact:?}"
        );
        let view = client.to_server.view().unwrap();
        view.write(0, Descriptor::new(0, SHAPE.bytes() as u32 - 60, 60, false));
        view.set_head(1);
        rustix::fs::ftruncate(&client.file, bytes).unwrap();
        let start = Instant::now();
        while server.violations("memory_lost") == 0 || server.port.link() == Link::Up {
            server.receive();
            server.send(60);
            assert!(start.elapsed() < PATIENCE, "{:?}", server.port.stats());
        }
    }
    server.stop();
}

#[test]
fn messages_without_end_do_not_keep_a_port_from_stopping() {
    let (_folder, path, mut server) = server();
    let client = Client::join(&path);
    server.wait_up();
    for _ in 0..1000 {
        client.raw.say(&Message::Ack, &[]);
    }
    server.wait("the flood's end", |server| {
        server.violations("message_bad") == 1
    });
    let next = Raw::introduce(&path);
    server.stop();
    assert!(next.hear_no().contains("stopped"));
}
