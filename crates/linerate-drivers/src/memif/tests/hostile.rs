//! A peer that rewrites the rings, at random, as fast as it can, while we use them.
//!
//! What is checked: nothing panics or faults, no packet is longer than its slot, no slot is lost,
//! canaries round the memory that both share stay as they were, and so does a neighbour's traffic.

use super::super::ring::{Descriptor, Ring};
use super::raw::{self, Client, SHAPE, Server};
use super::*;
use linerate_testkit::Random;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes any numbers to a ring's indices and descriptors: most of them nearly right, so that
/// some come through.
fn scribble(ring: &Ring, random: &mut Random) {
    let Some(view) = ring.view() else { return };
    let any = random.bits();
    let near = (any >> 8) as u16 % 65;
    let wild = any >> 54 == 0;
    match any % 8 {
        0 => view.set_head(view.tail().wrapping_add(near)),
        1 => view.set_tail(view.head().wrapping_sub(near)),
        2 if wild => view.set_head((any >> 24) as u16),
        3 if wild => view.set_tail((any >> 24) as u16),
        4 => view.want_notifications(any & 256 == 0),
        _ => {
            let offset = (any >> 16) as u32;
            let offset = if wild {
                offset
            } else {
                offset % SHAPE.bytes() as u32
            };
            let len = random.bits() as u32;
            let len = if wild { len } else { len % 2100 };
            let region = if wild { any as u16 } else { 0 };
            view.write(near, Descriptor::new(region, offset, len, any & 512 == 0));
        }
    }
}

fn scribbler<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    stop: &'scope AtomicBool,
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
            while start.elapsed() < Duration::from_millis(20) {
                for _ in 0..1000 {
                    let ring = random.bits() as usize % rings.len();
                    scribble(&rings[ring], &mut random);
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

/// Uses the port for this long, whatever its peer does.
fn use_for(end: &mut End, neighbours: &mut (End, End), time: Duration) -> u64 {
    let start = Instant::now();
    let (mut frames, mut number) = (0, 0_u64);
    let mut burst = Burst::new();
    while start.elapsed() < time {
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
        scribbler(scope, &stop, || {
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

fn hostile_server(time: Duration) {
    let (folder, mut drivers) = (Scratch::new(), Drivers::new());
    let path = folder.file("s");
    let listener = raw::listener(&path);
    let spec = format!("memif:{path},role=client,ring_size=64");
    let mut client = End::start(&mut drivers, &spec);
    let mut neighbours = neighbours(&mut drivers, &folder.file("other"));
    let stop = AtomicBool::new(false);
    let frames = std::thread::scope(|scope| {
        scribbler(scope, &stop, || {
            let server = Server::serve(&listener);
            let rings = vec![server.to_server.clone(), server.to_client.clone()];
            (Box::new(server), rings)
        });
        let frames = use_for(&mut client, &mut neighbours, time);
        stop.store(true, Ordering::Relaxed);
        frames
    });
    eprintln!("{frames} frames came, {:?}", client.port.stats());
    assert!(!client.port.stats().violations.is_empty());
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
    hostile_server(Duration::from_secs(2));
}

#[test]
#[ignore = "long: ten minutes of a hostile client"]
fn a_hostile_client_harms_only_itself_for_ten_minutes() {
    hostile_client(Duration::from_secs(600));
}

#[test]
#[ignore = "long: ten minutes of a hostile server"]
fn a_hostile_server_harms_only_itself_for_ten_minutes() {
    hostile_server(Duration::from_secs(600));
}
