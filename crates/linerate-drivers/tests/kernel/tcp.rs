//! The kernel's own TCP through our ports: unsegmented frames and unfinished checksums included.

use crate::{PATIENCE, namespace, pools};
use linerate_core::packet::{Burst, Offload, PoolCache};
use linerate_core::port::{Port, PortConfig, QueueStats, Queues};
use linerate_drivers::{Drivers, offload::Finisher};
use linerate_testkit::netns::Unnamed;
use linerate_wire::{ipv4::Ipv4, parse, tcp::Tcp};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const BYTES: usize = 8 << 20;

/// What a forwarder saw.
#[derive(Debug, Default)]
struct Seen {
    partial: u64,
    gso: u64,
    tagged: u64,
    dropped: u64,
}

/// Forwards between two ports until `stop`; `finish` in software, as for ports that cannot.
fn forward(specs: [String; 2], finish: bool, stop: &AtomicBool, ready: &AtomicBool) -> Seen {
    let pools = pools(true);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut ports: Vec<Box<dyn Port>> = specs
        .iter()
        .map(|spec| Drivers::new().open(spec).unwrap())
        .collect();
    let mut queues: Vec<Queues> = ports
        .iter_mut()
        .map(|port| port.start(&PortConfig::default(), &pools).unwrap())
        .collect();
    ready.store(true, Ordering::Release);
    let mut finishers = [Finisher::new(&pools), Finisher::new(&pools)];
    let stats = QueueStats::default();
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let mut idle = true;
        for from in [0, 1] {
            let mut burst = Burst::with_room(32);
            idle &= queues[from].rx[0].rx_burst(&mut burst, &mut cache) == 0;
            for packet in burst.iter() {
                let meta = packet.meta();
                seen.partial += u64::from(meta.offload.contains(Offload::CSUM_PARTIAL));
                seen.gso += u64::from(meta.offload.intersects(Offload::GSO) && packet.len() > 1518);
                seen.tagged += u64::from(
                    parse(packet.data()).is_ok_and(|headers| headers.outer_tci.is_some()),
                );
            }
            let to = &mut queues[1 - from].tx[0];
            if finish {
                finishers[from].tx(&mut burst, &mut cache, &stats, |burst, cache| {
                    burst.iter().for_each(|packet| check(packet.data()));
                    to.tx_burst(burst, cache)
                });
            } else {
                to.tx_burst(&mut burst, &mut cache);
            }
            to.flush(&mut cache);
            cache.free(&mut burst);
        }
        if idle {
            std::thread::yield_now();
        }
    }
    seen.dropped = ports.iter().map(|port| port.stats().dropped()).sum();
    seen
}

/// A finished frame: no longer than the wire takes, and its TCP checksum is right.
pub(crate) fn check(frame: &[u8]) {
    let Ok(headers) = parse(frame) else { return };
    let (Some(6), Some(l4)) = (headers.protocol, headers.l4) else {
        return;
    };
    assert!(frame.len() <= 1518, "{} bytes", frame.len());
    let ip = Ipv4::new_checked(&frame[headers.l3..headers.end]).unwrap();
    let tcp = Tcp::new_checked(&frame[l4..headers.end]).unwrap();
    assert!(ip.verify() && tcp.verify(ip.pseudo_sum()), "a bad checksum");
}

/// Sends [`BYTES`] from `left` to `right` and checks each.
fn transfer(left: &Unnamed, right: &Unnamed, address: &str) {
    let pattern = |at: usize| (at * 31 + at / 4096) as u8;
    std::thread::scope(|scope| {
        let listener = {
            let _inside = right.enter();
            TcpListener::bind((address, 0)).unwrap()
        };
        let address = listener.local_addr().unwrap();
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut data = Vec::new();
            stream.read_to_end(&mut data).unwrap();
            assert_eq!(data.len(), BYTES);
            assert!(
                data.iter()
                    .enumerate()
                    .all(|(at, &byte)| byte == pattern(at)),
                "damaged"
            );
        });
        let _inside = left.enter();
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("connects");
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let data: Vec<u8> = (0..BYTES).map(pattern).collect();
        stream.write_all(&data).unwrap();
        drop(stream);
        receiver.join().unwrap();
    });
}

/// TCP through a forwarder between the ports of `middle`.
fn through(
    middle: &Unnamed,
    left: &Unnamed,
    right: &Unnamed,
    specs: [&str; 2],
    finish: bool,
    address: &str,
) -> Seen {
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let specs = specs.map(String::from);
    std::thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            let _inside = middle.enter();
            forward(specs, finish, &stop, &ready)
        });
        let start = Instant::now();
        while !ready.load(Ordering::Acquire)
            && !forwarder.is_finished()
            && start.elapsed() < PATIENCE
        {
            std::thread::yield_now();
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            transfer(left, right, address)
        }));
        stop.store(true, Ordering::Relaxed);
        let seen = forwarder.join().unwrap();
        assert!(result.is_ok(), "{seen:?}");
        seen
    })
}

#[test]
fn over_packet_sockets() {
    let [Some(middle), Some(left), Some(right)] = std::array::from_fn(|_| namespace()) else {
        return;
    };
    middle.veth("g0", "d0");
    middle.veth("g1", "d1");
    middle.give("g0", &left, "10.0.0.1/24");
    middle.give("g1", &right, "10.0.0.2/24");
    let specs = ["af_packet:d0", "af_packet:d1"];
    for finish in [false, true] {
        let seen = through(&middle, &left, &right, specs, finish, "10.0.0.2");
        assert!(seen.partial > 0 && seen.gso > 0, "{seen:?}");
    }
    let at_once = ["af_packet:d0,handover=frame", "af_packet:d1,handover=frame"];
    let seen = through(&middle, &left, &right, at_once, false, "10.0.0.2");
    assert!(seen.partial > 0 && seen.gso > 0, "{seen:?}");
    // The same in a VLAN, whose tag the kernel strips from every frame.
    if !left
        .run("ip", "link add link g0 name g0.5 type vlan id 5")
        .status
        .success()
    {
        linerate_testkit::skip("TCP in a VLAN: the kernel has no 802.1Q interfaces");
        return;
    }
    left.ip("link del g0.5");
    for (end, name, address) in [(&left, "g0", "10.0.5.1/24"), (&right, "g1", "10.0.5.2/24")] {
        end.ip(&format!(
            "link add link {name} name {name}.5 type vlan id 5"
        ));
        end.ip(&format!("addr add {address} dev {name}.5"));
        end.ip(&format!("link set {name}.5 up"));
    }
    for finish in [false, true] {
        let seen = through(&middle, &left, &right, specs, finish, "10.0.5.2");
        assert!(seen.tagged > 0 && seen.partial > 0, "{seen:?}");
    }
}

#[test]
fn over_taps() {
    let [Some(middle), Some(left), Some(right)] = std::array::from_fn(|_| namespace()) else {
        return;
    };
    // The kernel's ends stay here, each on a bridge with a wire to its own name space.
    for (at, end) in [(0, &left), (1, &right)] {
        middle.ip(&format!("tuntap add mode tap name t{at}"));
        middle.veth(&format!("g{at}"), &format!("d{at}"));
        middle.ip(&format!("link add br{at} type bridge forward_delay 0"));
        for part in [format!("d{at}"), format!("t{at}")] {
            middle.ip(&format!("link set {part} master br{at}"));
        }
        middle.ip(&format!("link set br{at} up"));
        middle.give(&format!("g{at}"), end, &format!("10.0.0.{}/24", at + 1));
    }
    for finish in [false, true] {
        let seen = through(
            &middle,
            &left,
            &right,
            ["tap:t0", "tap:t1"],
            finish,
            "10.0.0.2",
        );
        assert!(seen.partial > 0 && seen.gso > 0, "{seen:?}");
    }
}
