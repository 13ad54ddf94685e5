//! Owners on other NUMA nodes: packets by pointer or as copies, both ways, in order, none lost, and
//! every slot comes home.

use serde_json::{Value, json};

use super::running::{Peer, text};
use super::*;
use crate::GATEWAY;
use crate::dispatch::across::Counts;
use crate::services;
use linerate_control::Embedded;
use linerate_core::env::Topology;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use std::time::{Duration, Instant};

/// A frame that `auto` never copies, and one that it does where somebody reads.
const LENS: [usize; 2] = [18, 400];

/// Hosts inside may begin flows, with these services.
fn applying(apply: &str) -> Stanzas {
    let text = format!(
        "[[zone]]\nname = \"outside\"\ninterfaces = [\"wan\"]\n\
         [[zone]]\nname = \"inside\"\ninterfaces = [\"lan\"]\n\
         [[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"permit\"\napply = {apply}\n\
         [[services.match]]\nname = \"worm\"\npatterns = [\"not to be found\"]\n"
    );
    let read = |file: &Section<'_>| {
        let policy = policy::stanza::read(file, &["wan", "lan"], Path::new(""));
        (services::stanza::read(file), policy)
    };
    let parsed = config::parse(&text, read);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let (services, policy) = parsed.value;
    Stanzas {
        services,
        policy,
        ..stanzas(Config::default())
    }
}

/// A datagram with a number, and so many bytes.
fn numbered(tuple: &Tuple, port: u16, (number, len): (u32, usize)) -> Vec<u8> {
    let mut payload = udp(len);
    payload[..2].copy_from_slice(&tuple.src.port.to_be_bytes());
    payload[2..4].copy_from_slice(&tuple.dst.port.to_be_bytes());
    payload[8..12].copy_from_slice(&number.to_be_bytes());
    frame(tuple, port, payload).bytes()
}

/// What all workers have handed to other nodes.
fn counts(plant: &mut Plant) -> Counts {
    let mut all = Counts::default();
    for worker in &mut plant.workers {
        let path = worker.stage.path::<GatewayPath>().unwrap();
        if let Some(across) = path.dispatch().unwrap().across() {
            let counts = across.counts();
            all.by_pointer += counts.by_pointer;
            all.by_copy += counts.by_copy;
            all.refused += counts.refused;
        }
    }
    all
}

/// Short and long frames of many flows both ways: those of each come out in order and whole.
/// Returns how many of them came out in a slot of another node than their worker's: short and long
/// ones, that came by `OUTSIDE` and by `INSIDE`.
fn remote(plant: &mut Plant, nodes: &[usize]) -> [[usize; 2]; 2] {
    let mut remote = [[0; 2]; 2];
    for (port, other) in [(INSIDE, OUTSIDE), (OUTSIDE, INSIDE)] {
        let flows = hosts(protocol::UDP).map(|asks| match port {
            INSIDE => asks,
            _ => asks.reversed(),
        });
        let flows: Vec<Tuple> = flows.collect();
        let of = |number: u32| (number, LENS[number as usize % 2]);
        let frames = (0..6).flat_map(|number| flows.iter().map(move |flow| (flow, number)));
        let frames = frames.map(|(flow, number)| numbered(flow, port, of(number)));
        let frames: Vec<_> = frames.collect();
        let mut next: BTreeMap<[Endpoint; 2], u32> = BTreeMap::new();
        for out in plant.exchange(port, &frames) {
            assert_eq!(out.port, other);
            let Tuple { src, dst, .. } = ends(&out.frame);
            let next = next.entry([src, dst]).or_default();
            let (number, len) = of(*next);
            let payload = &out.frame[42..];
            assert_eq!(payload[..4], number.to_be_bytes(), "in order");
            assert_eq!(payload[4..], udp(len)[12..], "whole");
            *next += 1;
            let is_remote = out.node != nodes[out.worker];
            remote[usize::from(port)][usize::from(len == LENS[1])] += usize::from(is_remote);
        }
        assert_eq!(next.len(), flows.len());
        assert!(next.values().all(|&count| count == 6));
    }
    remote
}

#[test]
fn packets_go_across_sockets_by_what_is_said_or_what_services_read() {
    const NOBODY: &str = "[\"statistics\"]";
    const OF_BOTH: &str = "[\"match:worm\", \"statistics\"]";
    // The classifier reads what comes from who has begun: from inside.
    const FROM_INSIDE: &str = "[\"classify\"]";
    for (handing, owners, nodes) in [
        (Handing::Among, 4, vec![0, 1, 0, 1]),
        (Handing::Among, 2, vec![1, 0]),
        (Handing::ToEu, 2, vec![0, 1, 1, 0]),
        (Handing::ToEu, 2, vec![0, 0, 1, 1]),
    ] {
        for (by, apply, copied) in [
            (By::Pointer, OF_BOTH, [[false; 2]; 2]),
            (By::Copy, NOBODY, [[true; 2]; 2]),
            (By::Auto, NOBODY, [[false; 2]; 2]),
            (By::Auto, OF_BOTH, [[false, true]; 2]),
            (By::Auto, FROM_INSIDE, [[false; 2], [false, true]]),
        ] {
            let sockets = Sockets {
                nodes: nodes.clone(),
                by,
                ..Sockets::default()
            };
            let mut plant = Plant::on(sockets, handing, owners, &applying(apply));
            let remote = remote(&mut plant, &nodes);
            let what = format!("{by:?} {apply} {nodes:?}: {remote:?}");
            for (remote, copied) in remote.as_flattened().iter().zip(copied.as_flattened()) {
                assert_eq!(*remote == 0, *copied, "{what}");
            }
            let counts = counts(&mut plant);
            let left: usize = remote.as_flattened().iter().sum();
            assert_eq!(counts.by_pointer as usize, left, "{what}");
            let any_copied = copied.as_flattened().contains(&true);
            assert_eq!(
                (counts.by_copy > 0, counts.refused),
                (any_copied, 0),
                "{what}"
            );
            plant.is_exact();
        }
    }
}

/// Workers of one node have nothing to look at, whatever is said.
#[test]
fn on_one_socket_nothing_is_copied_or_asked() {
    let sockets = Sockets {
        nodes: vec![0; 3],
        by: By::Copy,
        ..Sockets::default()
    };
    let mut plant = Plant::on(sockets, Handing::Among, 3, &applying("[\"match:worm\"]"));
    assert_eq!(remote(&mut plant, &[0; 3]), [[0; 2]; 2]);
    for worker in &mut plant.workers {
        let path = worker.stage.path::<GatewayPath>().unwrap();
        assert!(path.dispatch().unwrap().across().is_none());
    }
    plant.is_exact();
}

/// The other node has few slots: what finds none goes by pointer, in its place, and is counted.
#[test]
fn without_a_free_slot_a_packet_goes_by_pointer() {
    let sockets = Sockets {
        nodes: vec![1, 0],
        by: By::Copy,
        slots: [16_384, 8],
    };
    let mut plant = Plant::on(sockets, Handing::Among, 2, &applying("[]"));
    // Of an owner on the other node than the port's, which is worker 1's.
    let theirs = |plant: &mut Plant, tuple: &Tuple| {
        let out = plant.exchange(INSIDE, &[numbered(tuple, INSIDE, (0, 18))]);
        the_one(out, OUTSIDE).worker == 0
    };
    let flow = hosts(protocol::UDP).find(|tuple| theirs(&mut plant, tuple));
    let flow = flow.unwrap();
    let frames: Vec<_> = (0..64)
        .map(|number| numbered(&flow, INSIDE, (number, 400)))
        .collect();
    let before = counts(&mut plant);
    let out = plant.exchange(INSIDE, &frames);
    let numbers = out.iter().map(|out| &out.frame[42..46]);
    assert!(numbers.eq((0..64_u32).map(u32::to_be_bytes)), "in order");
    let after = counts(&mut plant);
    let copied = after.by_copy - before.by_copy;
    assert!((1..=8).contains(&copied), "{copied} of 8 slots");
    assert_eq!(after.refused - before.refused, 64 - copied);
    assert_eq!(after.by_pointer - before.by_pointer, 64 - copied);
    plant.is_exact();
}

/// A machine that has these two CPUs, each on a node of its own.
fn two_sockets(cpus: [u32; 2]) -> String {
    let [first, second] = cpus;
    format!(
        "/sys/devices/system/cpu/online:{first},{second}\n\
         /sys/devices/system/cpu/cpu{first}/topology/physical_package_id:0\n\
         /sys/devices/system/cpu/cpu{second}/topology/physical_package_id:1\n\
         /sys/devices/system/node/node0/cpulist:{first}\n\
         /sys/devices/system/node/node1/cpulist:{second}\n"
    )
}

/// Long datagrams from inside and answers to them, one at a time.
fn talk([wan, lan]: &mut [Peer; 2]) {
    for tuple in hosts(protocol::UDP) {
        let patience = Instant::now() + Duration::from_secs(60);
        let receive = |peer: &mut Peer| loop {
            if let Some(frame) = peer.receive().pop() {
                break frame;
            }
            assert!(Instant::now() < patience, "{tuple} is not through");
            std::thread::yield_now();
        };
        let long = |tuple: &Tuple, port| Frame {
            payload: {
                let mut payload = udp(LENS[1]);
                payload[..2].copy_from_slice(&tuple.src.port.to_be_bytes());
                payload[2..4].copy_from_slice(&tuple.dst.port.to_be_bytes());
                payload
            },
            ..datagram(tuple, port)
        };
        lan.send(&long(&tuple, INSIDE));
        let sent = receive(wan);
        assert_eq!(sent[50..], udp(LENS[1])[16..]);
        wan.send(&long(&ends(&sent).reversed(), OUTSIDE));
        let back = receive(lan);
        assert_eq!(ends(&back), tuple.reversed());
        assert_eq!(back[50..], udp(LENS[1])[16..]);
    }
}

/// The whole gateway, with ports that are rings, on a machine that plays two sockets.
#[test]
fn a_running_gateway_of_two_sockets_copies_or_points() {
    let machine = Topology::machine().unwrap();
    let mut cpus = machine.allowed().iter();
    let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else {
        eprintln!("SKIP needs two CPUs");
        return;
    };
    let scratch = Scratch::new();
    let listing = scratch.write("sysfs.txt", two_sockets([first, second]));
    let topology = Topology::open(Path::new(&listing)).unwrap();
    let reads = "[[services.match]]\nname = \"worm\"\npatterns = [\"not to be found\"]\n";
    for (plan, mode, by) in [
        ("io = \"1-2\"\n", "balanced", "pointer"),
        ("io = \"1-2\"\n", "balanced", "copy"),
        ("io = \"1-2\"\n", "balanced", "auto"),
        ("io = \"1\"\neu = \"2-3\"\n", "dispatcher", "copy"),
    ] {
        let file = scratch.file("gateway.toml");
        let keys = format!("across_sockets = \"{by}\"\n");
        let text = text(plan, mode, &keys).replace(
            "cpus = \"0,0,0,0,0,0\"",
            &format!("cpus = \"{first},{first},{second},{first}\""),
        );
        std::fs::write(&file, &text).unwrap();
        let mut drivers = Drivers::new();
        let mut peers = [("ring:wan,size=2048", 0), ("ring:lan,size=2048", 1)]
            .map(|(spec, number)| Peer::new(&mut drivers, spec, number));
        let (path, drivers) = (Path::new(&file), &mut drivers);
        let gateway = Embedded::start_on(GATEWAY, path, drivers, first, &topology).unwrap();
        let across = || {
            let table = gateway.show("workers").unwrap();
            let rows = table["rows"].as_array().unwrap().clone();
            let sum = |key: &str| rows.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
            assert_eq!(sum("copies_refused"), 0, "{by}: {rows:?}");
            [sum("by_pointer"), sum("by_copy")]
        };
        talk(&mut peers);
        let [pointed, copied] = across();
        assert_eq!(
            (pointed > 0, copied > 0),
            (by != "copy", by == "copy"),
            "{mode}"
        );
        // Rules that apply what reads: from now on they are copied.
        let permits = "default = \"permit\"\n";
        let applies = format!("{permits}apply = [\"match:worm\"]\n");
        let changed = format!("{}{reads}", text.replace(permits, &applies));
        std::fs::write(&file, changed).unwrap();
        gateway.reload().unwrap().join().unwrap().unwrap();
        talk(&mut peers);
        let [more, copies] = across();
        assert_eq!(
            (more > pointed, copies > copied),
            (by == "pointer", by != "pointer"),
            "{by}"
        );
        let drops = gateway.show("drops").unwrap();
        assert_eq!(drops["rows"], Value::Array(Vec::new()), "{mode} {by}");
        let page = gateway.ask("metrics", json!({})).unwrap()["text"].to_string();
        assert!(
            page.contains("linerate_worker_across_packets_total"),
            "{page}"
        );
        let books = gateway.stop().unwrap();
        assert_eq!(books.missing, 0, "{mode} {by}: {books}");
    }
}
