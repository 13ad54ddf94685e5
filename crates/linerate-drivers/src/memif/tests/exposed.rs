//! `trust=full`: slots of ours in the hands of a peer.

use super::raw::{self, Server};
use super::*;
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::packet::Layout;
use linerate_core::run::ledger::{Account, Balance};

/// Exposed pools; as many slots as `small` says in the first.
pub(super) fn exposed(small: u32) -> Pools {
    let pools = [
        PoolConfig::new("small", small),
        PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 64)
        },
    ];
    let pool = |config| {
        Pool::new(&PoolConfig {
            exposed: true,
            ..config
        })
    };
    Pools::new(pools.map(|config| pool(config).unwrap()).into())
}

/// A server, and a client with these pools.
pub(super) fn pair_of(pools: &Pools, options: &str) -> (Scratch, End, End) {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let socket = folder.file("s");
    let server = End::start(&mut drivers, &format!("memif:{socket}"));
    let spec = format!("memif:{socket},role=client,trust=full,{options}");
    let client = End::start_with(&mut drivers, &spec, pools.clone());
    (folder, server, client)
}

/// The books of the client's pools: nothing is missing, whoever has what.
fn check_books(client: &mut End) {
    let End {
        queues,
        cache,
        pools,
        ..
    } = client;
    let books = Balance::take(pools.as_slice(), || {
        vec![
            Account::cache("cache".into(), cache),
            Account::holds("rx".into(), queues.rx[0].held()),
            Account::holds("tx".into(), queues.tx[0].held()),
        ]
    });
    assert!(books.missing == 0 && books.exact, "{books}");
}

#[test]
fn a_pool_that_cannot_be_shared_is_refused_by_name() {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let spec = format!("memif:{},role=client,trust=full", folder.file("s"));
    let start = |drivers: &mut Drivers, pools: &Pools| {
        let mut port = drivers.open(&spec).unwrap();
        assert!(port.info().exposed_pool);
        let started = port.start(&PortConfig::default(), pools);
        started.err().unwrap().to_string()
    };
    let error = start(&mut drivers, &pools());
    assert!(
        error.contains("pool `small` is private") && error.contains("leave `trust=` out"),
        "{error}"
    );
    let error = start(&mut drivers, &exposed(1024));
    assert!(
        error.contains("pool `small` has 1024 slots") && error.contains("at least 2048"),
        "{error}"
    );
    for (spec, says) in [
        ("memif:/s,trust=full", "the client makes the memory"),
        ("memif:/s,role=client,trust=some", "`none` or `full`"),
    ] {
        let error = refused(spec);
        assert!(error.contains(says), "{spec}: {error}");
    }
}

/// What is sent is the slot itself, and what came is one, too: their bytes are where they were.
#[test]
fn frames_stay_in_their_slots() {
    let pools = exposed(2048);
    let (_folder, mut server, mut client) = pair_of(&pools, "");
    server.wait_up();
    client.wait_up();
    let facts = client.port.info().facts;
    let trust = facts.iter().find(|(name, _)| *name == "trust").unwrap();
    assert!(
        trust.1.contains("`small` (2048 slots), `large`"),
        "{facts:?}"
    );
    assert!(
        facts.contains(&("regions", "3 (sealed)".into())),
        "{facts:?}"
    );
    assert_eq!(client.queues.rx[0].held(), 1024);
    check_books(&mut client);
    assert!(server.send(60));
    let mut burst = Burst::new();
    client.queues.rx[0].rx_burst(&mut burst, &mut client.cache);
    let came = burst.as_packets()[0].data().as_ptr();
    assert_eq!(burst.as_packets()[0].data(), [0x5a; 60]);
    let (start, bytes) = pools.primary().data_span();
    assert!((came.addr().wrapping_sub(start.addr())) < bytes);
    // Back it goes, and the server finds what was changed after it was sent: it is one memory.
    assert_eq!(
        client.queues.tx[0].tx_burst(&mut burst, &mut client.cache),
        1
    );
    assert_eq!((burst.len(), client.queues.tx[0].held()), (0, 1));
    check_books(&mut client);
    let at = came.addr() - start.addr();
    let file = pools.primary().exposed().unwrap();
    let mapped = Untrusted::map("the pool", file, 0, bytes, FileFrom::Peer).unwrap();
    mapped.window(at, 60).unwrap().write(&[7; 60]);
    server.queues.rx[0].rx_burst(&mut burst, &mut server.cache);
    assert_eq!(burst.as_packets()[0].data(), [7; 60]);
    server.cache.free(&mut burst);
    // In the round that sent something, and in the next one.
    client.queues.tx[0].flush(&mut client.cache);
    client.queues.tx[0].flush(&mut client.cache);
    assert_eq!(client.queues.tx[0].held(), 0, "the server is done with it");
    assert_eq!(client.port.stats().tx_copied, 0);
    check_books(&mut client);
    server.stop();
    client.stop();
}

#[test]
fn frames_of_all_lengths_arrive_whole_without_a_copy() {
    for options in ["buffer=256", "buffer=2048", "buffer=65536"] {
        for from_server in [true, false] {
            let (_folder, server, client) = pair_of(&exposed(2048), options);
            let (mut from, mut to) = if from_server {
                (server, client)
            } else {
                (client, server)
            };
            from.wait_up();
            to.wait_up();
            let lengths = (14..600).chain([1514, 2047, 2048, 2049, 2112, 4096, 9018, 65_553]);
            for len in lengths {
                let frame: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                let mut burst = Burst::new();
                burst.push(from.cache.copy_of(&frame).unwrap()).unwrap();
                assert_eq!(from.queues.tx[0].tx_burst(&mut burst, &mut from.cache), 1);
                let came = to.queues.rx[0].rx_burst(&mut burst, &mut to.cache);
                assert_eq!(came, 1, "{len} bytes");
                assert!(burst.as_packets()[0].data() == frame, "{len} bytes");
                to.cache.free(&mut burst);
            }
            let mut burst = Burst::new();
            burst.push(from.cache.copy_of(&[0; 13]).unwrap()).unwrap();
            from.queues.tx[0].tx_burst(&mut burst, &mut from.cache);
            assert!(to.receive().is_empty());
            assert_eq!(to.port.stats().rx_drops, [("malformed", 1)]);
            from.stop();
            to.stop();
        }
    }
}

/// Whoever has no slot left to send from still gets those back that the server is done with.
#[test]
fn slots_come_back_in_rounds_with_nothing_to_send() {
    let (_folder, mut server, mut client) = pair_of(&exposed(2048), "");
    server.wait_up();
    client.wait_up();
    for _ in 0..32 {
        assert!(client.send(60));
    }
    assert_eq!(server.receive().len(), 32);
    assert_eq!(client.queues.tx[0].held(), 32);
    for _ in 0..2 {
        client.queues.tx[0].tx_burst(&mut Burst::new(), &mut client.cache);
        client.queues.tx[0].flush(&mut client.cache);
    }
    assert_eq!(client.queues.tx[0].held(), 0);
    server.stop();
    client.stop();
}

/// Packets of private pools are copied to where the peer sees them, and counted.
#[test]
fn packets_from_elsewhere_are_copied() {
    let pools = exposed(2048);
    let (_folder, mut server, mut client) = pair_of(&pools, "");
    server.wait_up();
    client.wait_up();
    let private = super::pools();
    let mut own = PoolCache::new(private.as_slice());
    for len in [60, 2048, 2049, 9018, 65_553] {
        let frame: Vec<u8> = (0..len).map(|at| (at * 3 + len) as u8).collect();
        let mut burst = Burst::new();
        burst.push(own.copy_of(&frame).unwrap()).unwrap();
        let sent = client.queues.tx[0].tx_burst(&mut burst, &mut client.cache);
        assert_eq!((sent, burst.len()), (1, 0));
        server.queues.rx[0].rx_burst(&mut burst, &mut server.cache);
        assert!(burst.as_packets()[0].data() == frame, "{len} bytes");
        server.cache.free(&mut burst);
    }
    assert_eq!(client.port.stats().tx_copied, 5);
    client.queues.tx[0].flush(&mut client.cache);
    // What the client's cache freed of them is theirs again.
    server.stop();
    client.stop();
    drop(own);
    for pool in private.iter() {
        assert_eq!(pool.stats().free_shared, pool.slots());
    }
}

/// A peer that goes in the middle of a burst, by its own will or not, has no slot of ours.
#[test]
fn a_peer_that_goes_leaves_every_slot() {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let path = folder.file("s");
    let listener = raw::listener(&path);
    let spec = format!("memif:{path},role=client,trust=full,ring_size=64");
    let mut client = End::start_with(&mut drivers, &spec, exposed(2048));
    for round in 0..5 {
        let server = Server::serve(&listener);
        client.wait_up();
        assert_eq!(server.regions.0.len(), 3);
        for _ in 0..64 {
            assert!(client.send(60));
        }
        assert!(!client.send(60), "the ring is full");
        // Some of them were taken, and some frames are on their way to us.
        server
            .to_server
            .view()
            .unwrap()
            .set_tail(server.to_server.view().unwrap().tail() + 10 * round);
        server.to_client.view().unwrap().set_tail(7 * round);
        check_books(&mut client);
        drop(server);
        client.wait("the link goes down", |client| {
            client.port.link() != Link::Up
        });
        let held = client.queues.tx[0].held() + client.queues.rx[0].held();
        assert_eq!(held, 0, "all are back");
        check_books(&mut client);
    }
    client.stop();
}

/// Slots are lent for a receiver that sleeps when the connection comes up, or nothing could come.
#[test]
fn a_receiver_that_sleeps_has_slots_when_its_peer_comes() {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let socket = folder.file("s");
    let spec = format!("memif:{socket},role=client,trust=full");
    let mut client = End::start_with(&mut drivers, &spec, exposed(2048));
    let on = client.queues.rx[0].sleep_on();
    let mut server = End::start(&mut drivers, &format!("memif:{socket}"));
    client.wait_up();
    assert_eq!(client.queues.rx[0].held(), 1024);
    check_books(&mut client);
    server.wait_up();
    assert!(server.send(60));
    assert!(woken(on));
    assert_eq!(client.receive(), [60]);
    server.stop();
    client.stop();
}

/// Slots that a power of two holds: the layout that AF_XDP wants, shared with a peer too.
#[test]
fn aligned_slots_can_be_shared_too() {
    let config = PoolConfig {
        layout: Layout::Aligned,
        exposed: true,
        ..PoolConfig::new("aligned", 2048)
    };
    let pools = Pools::new(vec![Pool::new(&config).unwrap()]);
    let (_folder, mut server, mut client) = pair_of(&pools, "");
    server.wait_up();
    client.wait_up();
    for len in [60, 1514, 1792] {
        assert!(server.send(len));
        assert_eq!(client.receive(), [len]);
        assert!(client.send(len));
        assert_eq!(server.receive(), [len]);
    }
    server.stop();
    client.stop();
}
