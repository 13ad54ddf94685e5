//! A peer that rewrites the rings, at random, as fast as it can, while we use them.
//!
//! What is checked: nothing panics or faults, no packet is longer than its slot, no slot is lost,
//! canaries round the memory that both share stay as they were, and so does a neighbour's traffic.

use super::super::ring::{Descriptor, Regions, Ring};
use super::exposed::exposed;
use super::raw::{self, Client, SHAPE, Server};
use super::*;
use linerate_testkit::Random;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which index of each ring is the hostile peer's to write.
#[derive(Clone, Copy, PartialEq)]
enum Owns {
    /// A client's.
    Head,
    /// A server's.
    Tail,
}

/// Writes numbers to a ring's index and descriptors: most of them such that frames go on, for a
/// peer that is cut off at once shows little, and now and then any number at all.
fn scribble(ring: &Ring, owns: Owns, random: &mut Random) {
    let Some(view) = ring.view() else { return };
    let (any, near) = (random.bits(), random.below(65_u16));
    // Thousands are written before we look once.
    let index_wild = random.one_in(100_000);
    let wild = random.one_in(5000);
    let used = view.head().wrapping_sub(view.tail()).min(64);
    match random.below(8) {
        0 | 1 if index_wild && owns == Owns::Head => view.set_head(any as u16),
        0 | 1 if index_wild => view.set_tail(any as u16),
        0 | 1 if owns == Owns::Head => view.set_head(view.head().wrapping_add(near.min(64 - used))),
        0 | 1 => view.set_tail(view.tail().wrapping_add(near.min(used))),
        2 => view.want_notifications(any & 256 == 0),
        _ => {
            let offset = any as u32;
            let inside = SHAPE.bytes() as u32 - 2048;
            let offset = if wild { offset } else { offset % inside };
            let len = (any >> 32) as u32;
            let len = if wild { len } else { len % 2049 };
            let region = if wild { any as u16 } else { 0 };
            view.write(
                near,
                Descriptor::new(region, offset, len, random.one_in(16)),
            );
        }
    }
}

/// Spoils bytes of a pool that it was given, wherever they are.
fn spoil(regions: &Regions, random: &mut Random) {
    for pool in regions.0.iter().skip(1) {
        let at = random.bits() as usize % (pool.len() - 64);
        if let Some(window) = pool.window(at, 64) {
            window.write(&[random.bits() as u8; 64]);
        }
    }
}

fn scribbler<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    stop: &'scope AtomicBool,
    owns: Owns,
    mut join: impl FnMut() -> (Box<dyn Any>, Vec<Ring>) + Send + 'scope,
) {
    scope.spawn(move || {
        let seed = u64::from(std::process::id());
        eprintln!("seed {seed}");
        let mut random = Random::new(seed);
        while !stop.load(Ordering::Relaxed) {
            let (held, rings) = join();
            // Long enough to be cut off for it.
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {
                for _ in 0..1000 {
                    let ring = random.bits() as usize % rings.len();
                    scribble(&rings[ring], owns, &mut random);
                    spoil(&rings[ring].regions, &mut random);
                }
            }
            drop(held);
        }
    });
}

/// Checks on its way out that nothing was written behind the region.
struct Guarded(Client);

impl Drop for Guarded {
    fn drop(&mut self) {
        assert!(self.0.canary_is_whole() || std::thread::panicking());
    }
}

/// Uses the port for this long, whatever its peer does; how many frames came.
fn use_for(end: &mut End, neighbours: &mut (End, End), time: Duration) -> u64 {
    let start = Instant::now();
    let (mut frames, mut number) = (0, 0_u64);
    let mut burst = Burst::new();
    // Longer where nothing has happened yet: what else has the CPU is not ours to say.
    let shown = |end: &End, frames| frames > 0 && !end.port.stats().violations.is_empty();
    while start.elapsed() < time || (!shown(end, frames) && start.elapsed() < time + PATIENCE) {
        end.queues.rx[0].rx_burst(&mut burst, &mut end.cache);
        for packet in burst.iter() {
            assert!(packet.headroom() + packet.len() <= packet.slot_bytes());
            std::hint::black_box(packet.data().iter().fold(0_u8, |sum, &byte| sum ^ byte));
            frames += 1;
        }
        end.cache.free(&mut burst);
        end.send(60 + number as usize % 3000);
        end.queues.tx[0].flush(&mut end.cache);
        // The neighbours' stream, in order and whole.
        let (from, to) = &mut *neighbours;
        let frame: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(64).collect();
        burst.push(from.cache.copy_of(&frame).unwrap()).unwrap();
        if from.queues.tx[0].tx_burst(&mut burst, &mut from.cache) == 1 {
            to.queues.rx[0].rx_burst(&mut burst, &mut to.cache);
            assert_eq!((burst.len(), burst.as_packets()[0].data()), (1, &frame[..]));
            to.cache.free(&mut burst);
        }
        from.cache.free(&mut burst);
        number += 1;
    }
    frames
}

fn neighbours(drivers: &mut Drivers, socket: &str) -> (End, End) {
    let mut from = End::start(drivers, &format!("memif:{socket},id=7"));
    let mut to = End::start(drivers, &format!("memif:{socket},id=7,role=client"));
    from.wait_up();
    to.wait_up();
    (from, to)
}

fn hostile_client(time: Duration) {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let path = folder.file("s");
    let mut server = End::start(&mut drivers, &format!("memif:{path}"));
    let mut neighbours = neighbours(&mut drivers, &path);
    let stop = AtomicBool::new(false);
    let frames = std::thread::scope(|scope| {
        scribbler(scope, &stop, Owns::Head, || {
            let client = Client::join_unsealed(&path);
            let rings = vec![client.to_server.clone(), client.to_client.clone()];
            (Box::new(Guarded(client)), rings)
        });
        let frames = use_for(&mut server, &mut neighbours, time);
        stop.store(true, Ordering::Relaxed);
        frames
    });
    eprintln!("{frames} frames came, {:?}", server.port.stats());
    assert!(frames > 0 && !server.port.stats().violations.is_empty());
    assert_eq!(neighbours.0.port.link(), Link::Up);
    for end in [server, neighbours.0, neighbours.1] {
        end.stop();
    }
}

fn hostile_server(time: Duration, pools: Pools, options: &str) {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let path = folder.file("s");
    let listener = raw::listener(&path);
    let spec = format!("memif:{path},role=client,ring_size=64,{options}");
    let mut client = End::start_with(&mut drivers, &spec, pools);
    let mut neighbours = neighbours(&mut drivers, &folder.file("other"));
    let stop = AtomicBool::new(false);
    let frames = std::thread::scope(|scope| {
        scribbler(scope, &stop, Owns::Tail, || {
            let server = Server::serve(&listener);
            let rings = vec![server.to_server.clone(), server.to_client.clone()];
            (Box::new(server), rings)
        });
        let frames = use_for(&mut client, &mut neighbours, time);
        stop.store(true, Ordering::Relaxed);
        frames
    });
    eprintln!("{frames} frames came, {:?}", client.port.stats());
    assert!(frames > 0 && !client.port.stats().violations.is_empty());
    for end in [client, neighbours.0, neighbours.1] {
        end.stop();
    }
}

#[test]
fn a_hostile_client_harms_only_itself() {
    hostile_client(Duration::from_secs(2));
}

#[test]
fn a_hostile_server_harms_only_itself() {
    hostile_server(Duration::from_secs(2), pools(), "");
}

/// Trusted with the pool it may spoil every packet in it; but nothing besides, and no slot is lost.
#[test]
fn a_hostile_server_that_is_trusted_harms_the_bytes_of_packets_only() {
    hostile_server(Duration::from_secs(2), exposed(2048), "trust=full");
}

#[test]
#[ignore = "long: ten minutes of a hostile client"]
fn a_hostile_client_harms_only_itself_for_ten_minutes() {
    hostile_client(Duration::from_secs(600));
}

#[test]
#[ignore = "long: ten minutes of a hostile server"]
fn a_hostile_server_harms_only_itself_for_ten_minutes() {
    hostile_server(Duration::from_secs(600), pools(), "");
}

#[test]
#[ignore = "long: ten minutes of a hostile server that is trusted"]
fn a_hostile_server_that_is_trusted_harms_the_bytes_of_packets_only_for_ten_minutes() {
    hostile_server(Duration::from_secs(600), exposed(2048), "trust=full");
}
