//! The table of drivers, and how names find ports.

use super::*;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Link, PortConfig};

fn pools() -> Pools {
    Pools::new(vec![Pool::new(&PoolConfig::new("test", 1024)).unwrap()])
}

fn message(result: Result<Box<dyn Port>, PortError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn every_example_names_its_own_kind_and_has_legal_options() {
    for kind in KINDS {
        let spec: Spec = kind.example.parse().unwrap();
        assert_eq!(spec.kind(), kind.name);
        spec.check_keys(kind.options).unwrap();
    }
}

/// Whatever else is wrong with it here: no driver refuses the options around it.
#[test]
fn every_kind_takes_the_common_options() {
    for kind in KINDS {
        let opened = Drivers::new().open(&format!("{}:lr-none,faulty=loss:0", kind.name));
        let refused = matches!(opened, Err(PortError::UnknownKey { .. }));
        assert!(!refused, "{} does not know `faulty`", kind.name);
    }
}

#[test]
fn errors_name_what_would_be_legal() {
    let mut drivers = Drivers::new();
    let unknown = message(drivers.open("nul:"));
    let named = |name| unknown.contains(name);
    assert!(
        named("`nul`") && KINDS.iter().all(|kind| named(kind.name)),
        "{unknown}"
    );
    assert!(message(drivers.open("null:,sise=60")).contains("takes: size, copy, rx"));
    assert!(message(drivers.open("null:,size=13")).contains("from 14"));
    assert!(message(drivers.open("ring:")).contains("ring:NAME"));
}

#[test]
fn a_ring_has_two_ends_and_a_dropped_end_can_be_opened_again() {
    let mut drivers = Drivers::new();
    let left = drivers.open("ring:a,size=100,queues=2").unwrap();
    assert!(
        message(drivers.open("ring:a,queues=3")).contains("queues=2"),
        "both ends agree"
    );
    let right = drivers.open("ring:a").unwrap();
    assert_eq!(right.info().max_rx_queues, 2);
    assert_eq!(right.info().facts, [("queue packets", "128".into())]);
    assert!(message(drivers.open("ring:a")).contains("both ends are open"));
    drop(left);
    drivers.open("ring:a").unwrap();
    let _loop = drivers.open("ring:b,loop=on").unwrap();
    assert!(message(drivers.open("ring:b,loop=on")).contains("a loop is open"));
    drop(right);
    assert!(
        drivers.open("ring:a,queues=5").is_ok(),
        "both ends went, so the name is free"
    );
}

#[test]
fn frames_circle_between_two_loops() {
    let (mut drivers, pools) = (Drivers::new(), pools());
    let mut ports = ["ring:x,loop=on,size=512", "ring:y,loop=on,size=512"]
        .map(|spec| drivers.open(spec).unwrap());
    let mut queues = ports
        .each_mut()
        .map(|port| port.start(&PortConfig::default(), &pools).unwrap());
    let mut cache = PoolCache::new(pools.as_slice());
    let mut burst = Burst::with_room(32);
    for _ in 0..8 {
        cache.fill(pools.primary(), &mut burst, 32);
        assert_eq!(queues[0].tx[0].tx_burst(&mut burst, &mut cache), 32);
    }
    for turn in 0..100 {
        let (from, to) = (turn % 2, 1 - turn % 2);
        while queues[from].rx[0].rx_burst(&mut burst, &mut cache) > 0 {
            queues[to].tx[0].tx_burst(&mut burst, &mut cache);
        }
        assert_eq!(queues[to].rx[0].held() + queues[to].tx[0].held(), 256);
    }
    assert_eq!(ports[0].stats().tx_packets, 256 + 50 * 256);
    assert_eq!(ports[0].link(), Link::Up);
}

#[test]
fn a_port_refuses_to_start_while_its_queues_live() {
    let (mut drivers, pools) = (Drivers::new(), pools());
    let mut port = drivers.open("null:").unwrap();
    let queues = port.start(&PortConfig::default(), &pools).unwrap();
    let busy = port
        .start(&PortConfig::default(), &pools)
        .err()
        .unwrap()
        .to_string();
    assert!(busy.contains("2 of its queues"), "{busy}");
    assert!(port.stop().is_err());
    drop(queues);
    port.stop().unwrap();
    let many = PortConfig {
        rx_queues: 2,
        ..PortConfig::default()
    };
    let few = drivers
        .open("ring:a")
        .unwrap()
        .start(&many, &pools)
        .err()
        .unwrap()
        .to_string();
    assert!(
        few.contains("2 receive queues asked for, it has 1"),
        "{few}"
    );
}
