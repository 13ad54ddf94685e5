//! What a peer may do on the socket and in the rings, by a peer that does it.

mod bad_input;
mod exposed;
mod hostile;
mod looks;
mod raw;

use super::*;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, SlotClass};
use linerate_core::port::{RingFill, SleepOn};
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::nap_on;
use linerate_testkit::Scratch;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

fn pools() -> Pools {
    let large = PoolConfig {
        class: SlotClass::Large,
        ..PoolConfig::new("large", 64)
    };
    let pools = [PoolConfig::new("small", 2048), large];
    Pools::new(pools.map(|config| Pool::new(&config).unwrap()).into())
}

/// A started port in the hands of a test.
struct End {
    port: Box<dyn Port>,
    queues: Queues,
    cache: PoolCache,
    pools: Pools,
}

impl End {
    fn start(drivers: &mut Drivers, spec: &str) -> Self {
        Self::start_with(drivers, spec, pools())
    }

    fn start_with(drivers: &mut Drivers, spec: &str, pools: Pools) -> Self {
        let mut port = drivers.open(spec).unwrap();
        let queues = port.start(&PortConfig::default(), &pools).unwrap();
        Self {
            port,
            queues,
            cache: PoolCache::new(pools.as_slice()),
            pools,
        }
    }

    #[track_caller]
    fn wait(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            let (link, stats) = (self.port.link(), self.port.stats());
            assert!(start.elapsed() < PATIENCE, "{what}: {link:?}, {stats:?}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    #[track_caller]
    fn wait_up(&mut self) {
        self.wait("the link comes up", |end| end.port.link() == Link::Up);
    }

    /// Polls both queues until a violation of this name was counted, and says what the link says.
    #[track_caller]
    fn wait_violation(&mut self, name: &str) -> String {
        self.wait(name, |end| {
            end.receive();
            end.send(60);
            end.violations(name) > 0 && end.port.link() != Link::Up
        });
        let warning = self.port.warning().unwrap();
        assert!(warning.contains(name), "{warning}");
        warning
    }

    fn violations(&self, name: &str) -> u64 {
        let found = self.port.stats().violations;
        found
            .iter()
            .find(|&&(known, _)| known == name)
            .map_or(0, |&(_, count)| count)
    }

    /// The lengths of the frames that wait.
    fn receive(&mut self) -> Vec<usize> {
        let mut burst = Burst::new();
        self.queues.rx[0].rx_burst(&mut burst, &mut self.cache);
        let lengths = burst.iter().map(|packet| packet.len()).collect();
        self.cache.free(&mut burst);
        lengths
    }

    /// Whether a frame of so many bytes was taken.
    fn send(&mut self, bytes: usize) -> bool {
        let mut burst = Burst::new();
        if let Some(packet) = self.cache.copy_of(&vec![0x5a; bytes]) {
            let _ = burst.push(packet);
        }
        let taken = self.queues.tx[0].tx_burst(&mut burst, &mut self.cache);
        self.cache.free(&mut burst);
        taken == 1
    }

    /// Stops, and checks that every slot is home.
    fn stop(self) {
        let Self {
            mut port,
            queues,
            cache,
            pools,
        } = self;
        drop(queues);
        port.stop().unwrap();
        drop((port, cache));
        for pool in pools.iter() {
            let stats = pool.stats();
            assert_eq!(stats.free_shared, stats.slots, "slots of `{}`", pool.name());
        }
    }
}

/// A server and a client on a socket in a folder of their own.
fn pair(server: &str, client: &str) -> (Scratch, End, End) {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let socket = folder.file("s");
    let server = End::start(&mut drivers, &format!("memif:{socket},{server}"));
    let client = End::start(
        &mut drivers,
        &format!("memif:{socket},role=client,{client}"),
    );
    (folder, server, client)
}

fn refused(spec: &str) -> String {
    let opened = Drivers::new().open(spec);
    opened.err().unwrap().to_string()
}

#[test]
fn options_are_checked_by_name() {
    for (spec, says) in [
        ("memif:", "path of a socket"),
        ("memif:/s,role=master", "`server` or `client`"),
        (
            "memif:/s,role=client,ring_size=1000",
            "power of two, such as 1024",
        ),
        ("memif:/s,ring_size=1024", "the client makes the memory"),
        (
            "memif:/s,role=client,mode=0660",
            "the socket is the server's",
        ),
        ("memif:/s,mode=rw", "0660"),
        ("memif:/s,owner=no such user", "a user's number or name"),
        (
            "memif:/s,secret=1234567890123456789012345",
            "at most 24 bytes",
        ),
        ("memif:/s,mac=03:00:00:00:00:01", "one station"),
        ("memif:/s,queues=65", "from 1 to 64"),
        (
            "memif:/s,role=client,queues=64,ring_size=16384,buffer=65536",
            "below 4 GiB",
        ),
    ] {
        let error = refused(spec);
        assert!(error.contains(says), "{spec}: {error}");
    }
    let long = format!("memif:/{}", "x".repeat(107));
    assert!(refused(&long).contains("107"), "too long for a socket");
    let mac = |spec: &str| Drivers::new().open(spec).unwrap().info().mac.unwrap();
    assert_eq!(mac("memif:/s,mac=02:00:00:00:00:07").0[5], 7);
    assert_eq!(mac("memif:/s,id=1"), mac("memif:/s,id=1"));
    assert_ne!(mac("memif:/s,id=1"), mac("memif:/s,id=1,role=client"));
}

#[test]
fn a_socket_that_cannot_be_had_says_why() {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let start = |drivers: &mut Drivers, spec: &str| {
        let mut port = drivers.open(spec).unwrap();
        let started = port.start(&PortConfig::default(), &pools());
        started.err().map(|error| error.to_string())
    };
    let missing = format!("memif:{}", folder.file("none/s"));
    let error = start(&mut drivers, &missing).unwrap();
    assert!(
        error.contains("No such file") && error.contains("listen on"),
        "{error}"
    );
    let used = format!("memif:{}", folder.file("used"));
    let first = End::start(&mut drivers, &used);
    let error = start(&mut Drivers::new(), &used).unwrap();
    assert!(error.contains("listens on this path"), "{error}");
    let error = start(&mut drivers, &used).unwrap();
    assert!(error.contains("id 0") && error.contains("id="), "{error}");
    let error = start(&mut drivers, &format!("{used},id=1,mode=0600")).unwrap();
    assert!(error.contains("mode="), "{error}");
    first.stop();
    assert!(
        !std::path::Path::new(&folder.file("used")).exists(),
        "removed"
    );
    assert_eq!(start(&mut Drivers::new(), &used), None, "free again");
}

#[test]
fn a_client_waits_for_its_server_and_says_so() {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let socket = folder.file("s");
    let mut client = End::start(&mut drivers, &format!("memif:{socket},role=client"));
    client.wait(
        "the reason",
        |client| matches!(client.port.link(), Link::Down(why) if why.contains("cannot connect")),
    );
    assert!(client.send(60), "dropped, not kept");
    assert_eq!(client.port.stats().tx_drops, [("no_peer", 1)]);
    let mut server = End::start(&mut drivers, &format!("memif:{socket}"));
    client.wait_up();
    server.wait_up();
    server.stop();
    client.wait("the link goes down", |client| {
        client.port.link() != Link::Up
    });
    client.stop();
}

#[test]
fn several_interfaces_share_a_socket() {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let socket = folder.file("s");
    let mut ends = Vec::new();
    for id in 0..3 {
        for role in ["server", "client"] {
            let spec = format!("memif:{socket},id={id},role={role}");
            ends.push(End::start(&mut drivers, &spec));
        }
    }
    ends.iter_mut().for_each(End::wait_up);
    for id in 0..3 {
        assert!(ends[2 * id].send(60 + id));
    }
    for id in 0..3 {
        let mut got = Vec::new();
        ends[2 * id + 1].wait("a frame", |end| {
            got.extend(end.receive());
            !got.is_empty()
        });
        assert_eq!(got, [60 + id], "from its own interface");
    }
    // One goes; the others do not notice.
    ends.remove(2).stop();
    ends.remove(2).stop();
    assert!(ends.iter().all(|end| end.port.link() == Link::Up));
    ends.into_iter().for_each(End::stop);
}

#[test]
fn an_abstract_name_needs_no_path() {
    let mut drivers = Drivers::new();
    let name = format!("@lr-memif-{}", std::process::id());
    let mut server = End::start(&mut drivers, &format!("memif:{name}"));
    let mut client = End::start(&mut drivers, &format!("memif:{name},role=client"));
    server.wait_up();
    client.wait_up();
    server.stop();
    client.stop();
}

#[test]
fn a_secret_must_be_the_same() {
    for (server, client) in [("one", "two"), ("one", ""), ("one", "one more")] {
        let server = format!("secret={server}");
        let client = format!("secret={client}");
        let (_folder, server, mut client) = pair(&server, &client);
        client.wait(
            "the refusal",
            |client| matches!(client.port.link(), Link::Down(why) if why.contains("wrong secret")),
        );
        assert_ne!(server.port.link(), Link::Up);
        server.stop();
        client.stop();
    }
    let (_folder, mut server, client) = pair("", "secret=not asked for");
    server.wait_up();
    server.stop();
    client.stop();
}

#[test]
fn who_the_peer_is_can_be_seen() {
    let (_folder, mut server, mut client) = pair("queues=2", "queues=2,ring_size=64");
    server.wait_up();
    client.wait_up();
    client.send(60);
    let facts = server.port.info().facts;
    let fact = |name: &str| &facts.iter().find(|(known, _)| *known == name).unwrap().1;
    assert!(fact("peer").starts_with("linerate"), "{facts:?}");
    assert!(fact("peer process").contains(&std::process::id().to_string()));
    assert_eq!(
        (fact("ring size"), fact("regions")),
        (&"64".into(), &"1 (sealed)".into())
    );
    assert_eq!(fact("rings"), "1 to the server, 1 to the client");
    let rings = |end: &End| {
        let rings = end.port.stats().rings.into_iter();
        let of = |ring: RingFill| (ring.direction, ring.queue, ring.waiting, ring.size);
        rings.map(of).collect::<Vec<_>>()
    };
    let [full, empty] = [
        [("receive", 0, 1, 64), ("transmit", 0, 0, 64)],
        [("receive", 0, 0, 64), ("transmit", 0, 1, 64)],
    ];
    assert_eq!(
        (rings(&server), rings(&client)),
        (full.into(), empty.into())
    );
    assert_eq!(server.receive(), [60]);
    assert!(
        [rings(&server), rings(&client)]
            .concat()
            .iter()
            .all(|ring| ring.2 == 0)
    );
    server.stop();
    client.stop();
}

/// Sleeps as a worker does; whether it was woken.
fn woken(on: SleepOn) -> bool {
    let SleepOn::Fd(_) = on else {
        panic!("no descriptor to sleep on")
    };
    let (start, bell) = (Instant::now(), Doorbell::new().unwrap());
    nap_on(&bell, &[on], PATIENCE, PATIENCE);
    start.elapsed() < PATIENCE
}

#[test]
fn a_sender_wakes_a_receiver_that_sleeps_and_spares_one_that_polls() {
    for from_server in [true, false] {
        let (_folder, server, client) = pair("", "");
        let (mut from, mut to) = if from_server {
            (server, client)
        } else {
            (client, server)
        };
        from.wait_up();
        to.wait_up();
        let on = to.queues.rx[0].sleep_on();
        assert!(to.receive().is_empty(), "the last look");
        assert!(from.send(60));
        from.queues.tx[0].flush(&mut from.cache);
        assert!(woken(on));
        assert_eq!(to.receive(), [60]);
        // Counted once it is sent.
        from.wait("the count", |from| from.port.stats().notifications > 0);
        // It polls now, so it is left alone.
        let before = from.port.stats().notifications;
        for _ in 0..100 {
            assert!(from.send(60));
            from.queues.tx[0].flush(&mut from.cache);
            while to.receive().is_empty() {}
        }
        assert_eq!(from.port.stats().notifications, before);
        from.stop();
        to.stop();
    }
}

/// VPP and libmemif as servers say only that they want none.
#[test]
fn a_server_that_says_nothing_of_notifications_gets_them() {
    let folder = Scratch::new();
    let path = folder.file("s");
    let listener = raw::listener(&path);
    let spec = format!("memif:{path},role=client");
    let mut client = End::start(&mut Drivers::new(), &spec);
    let _server = raw::Server::serve(&listener);
    client.wait_up();
    assert!(client.send(60));
    client.wait("the count", |client| client.port.stats().notifications > 0);
    client.stop();
}

/// libmemif does, in memory that is the client's.
#[test]
fn a_server_may_clear_the_flags_of_what_it_has_read() {
    let folder = Scratch::new();
    let path = folder.file("s");
    let listener = raw::listener(&path);
    let spec = format!("memif:{path},role=client,ring_size=16");
    let mut client = End::start(&mut Drivers::new(), &spec);
    let server = raw::Server::serve(&listener);
    client.wait_up();
    let view = server.to_server.view().unwrap();
    for frame in 0..24_u16 {
        assert!(client.send(3000));
        let [first, last] = [2 * frame, 2 * frame + 1].map(|index| view.read(index));
        assert!(first.more() && !last.more(), "frame {frame}: {first:?}");
        view.write_content(2 * frame, first.holding(first.len(), false));
        view.set_tail(2 * frame + 2);
    }
    client.stop();
}

#[test]
fn a_receiver_that_sleeps_since_before_the_connection_is_woken() {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let socket = folder.file("s");
    let mut server = End::start(&mut drivers, &format!("memif:{socket}"));
    let on = server.queues.rx[0].sleep_on();
    let mut client = End::start(&mut drivers, &format!("memif:{socket},role=client"));
    client.wait_up();
    assert!(client.send(60));
    assert!(woken(on));
    assert_eq!(server.receive(), [60]);
    server.stop();
    client.stop();
}

/// What a worker has received it may send at once: it is not without a ring to send to.
#[test]
fn a_frame_that_is_there_before_the_connection_is_sent_back() {
    let folder = Scratch::new();
    let path = folder.file("s");
    let mut server = End::start(&mut Drivers::new(), &format!("memif:{path}"));
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            for number in 0..200 {
                let client = raw::Client::join_with_a_frame(&path);
                let (view, start) = (client.to_client.view().unwrap(), Instant::now());
                while view.tail() == 0 {
                    assert!(start.elapsed() < PATIENCE, "client {number}");
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        let mut burst = Burst::new();
        while !clients.is_finished() {
            server.queues.rx[0].rx_burst(&mut burst, &mut server.cache);
            server.queues.tx[0].tx_burst(&mut burst, &mut server.cache);
        }
        server.cache.free(&mut burst);
    });
    server.stop();
}

/// Frames of every length to the limit of a chain, each byte of them.
#[test]
fn frames_of_all_lengths_arrive_whole() {
    for (buffer, from_server) in [(256, true), (256, false), (2048, true), (2048, false)] {
        let (_folder, server, client) = pair("", &format!("buffer={buffer}"));
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
            assert_eq!(
                to.queues.rx[0].rx_burst(&mut burst, &mut to.cache),
                1,
                "{len}"
            );
            assert!(burst.as_packets()[0].data() == frame, "{len} bytes");
            to.cache.free(&mut burst);
        }
        // Too short for Ethernet: passed on by a sender that does not look, dropped by a receiver.
        let mut burst = Burst::new();
        burst.push(from.cache.copy_of(&[0; 13]).unwrap()).unwrap();
        from.queues.tx[0].tx_burst(&mut burst, &mut from.cache);
        assert!(to.receive().is_empty());
        assert_eq!(to.port.stats().rx_drops, [("malformed", 1)]);
        from.stop();
        to.stop();
    }
}
