//! Faults: killed processes, deleted interfaces, missing privileges, wrong options.

use super::*;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Not a test: what `the_program_goes_when_the_process_is_killed` kills.
#[test]
#[ignore = "run by another test"]
fn child_that_holds_a_port() {
    let Ok(interface) = std::env::var("LINERATE_TEST_INTERFACE") else {
        return;
    };
    let mut port = open_port(&format!("af_xdp:{interface}"));
    let _queues = port.start(&PortConfig::default(), &pools(1024)).unwrap();
    std::thread::sleep(Duration::from_secs(30));
}

/// Killed on drop.
pub(super) struct Killed(pub(super) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_program_goes_when_the_process_is_killed() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "af_xdp::tests::faults::child_that_holds_a_port",
            "--ignored",
        ])
        .env("LINERATE_TEST_INTERFACE", &veth.here)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = Killed(child.unwrap());
    wait_for("a program is attached", || has_program(&veth.here));
    drop(child); // Child::kill is SIGKILL
    wait_for("the program is gone", || !has_program(&veth.here));
}

/// The kernel's flags follow up to a second late.
#[test]
fn a_link_is_up_as_soon_as_its_wire_is() {
    if !privileged() {
        return;
    }
    let pools = pools(256);
    for round in 0..3 {
        let veth = Veth::pair("");
        let mut port = open_port(&format!("af_xdp:{}", veth.here));
        let queues = port.start(&PortConfig::default(), &pools).unwrap();
        assert_eq!(port.link(), Link::Up, "round {round}");
        must(&format!("ip link set {} down", veth.here));
        assert!(matches!(port.link(), Link::Down(_)), "round {round}");
        drop(queues);
        port.stop().unwrap();
    }
}

#[test]
fn a_deleted_interface_takes_nothing_along_and_may_come_back() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let pools = pools(2048);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut left = open_port(&format!("af_xdp:{}", veth.here));
    let mut right = open_port(&format!("af_xdp:{}", veth.there));
    let mut from = left.start(&PortConfig::default(), &pools).unwrap();
    let mut to = right.start(&PortConfig::default(), &pools).unwrap();
    send(
        &mut *from.tx[0],
        &mut cache,
        pools.primary(),
        (0..20).map(|i| frame(i, 60)),
    );
    assert_eq!(receive(&mut *to.rx[0], &mut cache, 20).len(), 20);

    must(&format!("ip link del {}", veth.here));
    assert_eq!(
        left.link(),
        Link::Down(format!("interface `{}` was deleted", veth.here))
    );
    let mut burst = Burst::new();
    for _ in 0..20_000 {
        assert_eq!(to.rx[0].rx_burst(&mut burst, &mut cache), 0);
        assert_eq!(from.rx[0].rx_burst(&mut burst, &mut cache), 0);
    }
    assert!(matches!(
        to.rx[0].sleep_on(),
        linerate_core::port::SleepOn::Nothing
    ));
    cache.fill(pools.primary(), &mut burst, 8);
    for packet in burst.iter_mut() {
        packet.set_data(&frame(1, 60));
    }
    for _ in 0..10 {
        from.tx[0].tx_burst(&mut burst, &mut cache);
        from.tx[0].flush(&mut cache);
    }
    cache.free(&mut burst);
    // Nothing is kept for an interface that is not there.
    assert_eq!(
        (
            from.rx[0].held(),
            from.tx[0].held(),
            to.rx[0].held(),
            to.tx[0].held()
        ),
        (0, 0, 0, 0)
    );
    assert_no_slot_lost(&pools, &cache);

    must(&format!(
        "ip link add {} type veth peer name {}",
        veth.here, veth.there
    ));
    must(&format!("ip link set {} up", veth.here));
    must(&format!("ip link set {} up", veth.there));
    let mut number = 100;
    wait_for("frames cross the new pair", || {
        let mut burst = Burst::new();
        from.rx[0].rx_burst(&mut burst, &mut cache);
        number += 1;
        send(
            &mut *from.tx[0],
            &mut cache,
            pools.primary(),
            [frame(number, 60)],
        );
        let got = to.rx[0].rx_burst(&mut burst, &mut cache) > 0;
        to.tx[0].flush(&mut cache);
        cache.free(&mut burst);
        got && right.link() == Link::Up && left.link() == Link::Up
    });
    drop((from, to));
    left.stop().unwrap();
    right.stop().unwrap();
    assert_no_slot_lost(&pools, &cache);
}

#[test]
fn errors_name_the_port_the_reason_and_the_fix() {
    if !privileged() {
        return;
    }
    let plain = PortConfig::default();
    let pools = pools(1024);
    let expect = |error: String, words: &[&str]| {
        for word in words {
            assert!(error.contains(word), "no `{word}` in: {error}");
        }
    };
    expect(
        error("af_xdp:nosuch0", &plain, &pools),
        &["af_xdp:nosuch0", "no interface `nosuch0`", "ip link"],
    );
    expect(
        error("af_xdp:", &plain, &pools),
        &["the name of an interface"],
    );
    let veth = Veth::pair("");
    let name = &veth.here;
    expect(
        error(&format!("af_xdp:{name},mode=fast"), &plain, &pools),
        &["mode", "native"],
    );
    expect(
        error(&format!("af_xdp:{name},ring=1000"), &plain, &pools),
        &["power of two"],
    );
    expect(
        error(&format!("af_xdp:{name},filter=udp prt 53"), &plain, &pools),
        &["filter", "prt"],
    );
    expect(
        error(
            &format!("af_xdp:{name},mode=generic,copy=off"),
            &plain,
            &pools,
        ),
        &["copy"],
    );
    expect(
        error(&format!("af_xdp:{name},copy=off"), &plain, &pools),
        &["zero-copy", "copy=auto"],
    );
    expect(
        error(&format!("af_xdp:{name},queues=2"), &plain, &pools),
        &["2 receive queues", "it has 1", "ethtool -L"],
    );
    expect(
        error(&format!("af_xdp:{name},start_queue=1"), &plain, &pools),
        &["it has 0"],
    );
    let two = PortConfig {
        rx_queues: 2,
        ..PortConfig::default()
    };
    expect(
        error(&format!("af_xdp:{name}"), &two, &pools),
        &["it has 1"],
    );
    expect(
        error(&format!("af_xdp:{name},ring=2048"), &plain, &pools),
        &["pool `test` has 1024 slots"],
    );
    let many = ["vlan"; 9].join(" and ") + " and ip";
    expect(
        error(&format!("af_xdp:{name},filter={many}"), &plain, &pools),
        &["cannot be run in the kernel", "VLAN tags"],
    );

    let second = open_port(&format!("af_xdp:{name}"))
        .start(&plain, &pools)
        .map(|queues| {
            drop(queues);
            open_port(&format!("af_xdp:{name}"))
        });
    assert!(second.is_ok());
    let mut first = open_port(&format!("af_xdp:{name}"));
    let queues = first.start(&plain, &pools).unwrap();
    expect(
        error(&format!("af_xdp:{name}"), &plain, &pools),
        &["another program is there", "xdp off"],
    );
    drop(queues);
    first.stop().unwrap();

    must(&format!("ip link set {name} mtu 3000"));
    expect(
        error(&format!("af_xdp:{name}"), &plain, &pools),
        &["MTU 3000", "mtu 2094"],
    );
    must(&format!("ip link set {name} mtu 1500"));
    must(&format!("ip link set {} mtu 9000", veth.there));
    expect(
        error(&format!("af_xdp:{name},mode=native"), &plain, &pools),
        &["MTU", "3506", "peer"],
    );
    let mut generic = open_port(&format!("af_xdp:{name}"));
    let queues = generic.start(&plain, &pools).unwrap();
    let facts = generic.info().facts;
    assert!(
        facts
            .iter()
            .any(|(key, fact)| *key == "mode" && fact.starts_with("generic, copy")),
        "{facts:?}"
    );
    assert!(
        facts.iter().any(|(_, fact)| fact.contains("not to be had")),
        "{facts:?}"
    );
    drop(queues);
    generic.stop().unwrap();
    must(&format!("ip link set {name} down"));
    expect(
        error(&format!("af_xdp:{name}"), &plain, &pools),
        &["is down", "ip link set"],
    );

    let large = linerate_core::packet::SlotClass::Large;
    must(&format!("ip link set {name} up"));
    let large = Pools::new(vec![
        Pool::new(&PoolConfig {
            class: large,
            ..PoolConfig::new("large", 16)
        })
        .unwrap(),
    ]);
    expect(
        error(&format!("af_xdp:{name}"), &plain, &large),
        &["pool `large`", "2048 to 4096"],
    );
}

/// What slots wait for where a device takes zero copy: the kernel lets go of a closed socket's
/// queue later.
#[test]
fn a_queue_is_free_when_the_kernel_has_let_go_of_its_socket() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let pools = pools(1024);
    let mut port = open_port(&format!("af_xdp:{}", veth.here));
    let queues = port.start(&PortConfig::default(), &pools).unwrap();
    let queue_pair = port.running.as_ref().unwrap().queue_pairs[0].clone();
    assert!(!queue_pair.queue_is_free().unwrap(), "its socket is there");
    drop(queues);
    queue_pair.close();
    let end = Instant::now() + Duration::from_secs(20);
    while !queue_pair.queue_is_free().unwrap() {
        assert!(Instant::now() < end, "the kernel never lets go");
    }
    assert_eq!(pools.primary().stats().free_shared, pools.primary().slots());
    drop((queue_pair, veth));
}

/// A driver with zero copy would lose the slots that cross pages.
#[test]
fn zero_copy_takes_aligned_slots() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let spec = format!("af_xdp:{},copy=off", veth.here);
    let refused = error(&spec, &PortConfig::default(), &pools(1024));
    assert!(refused.contains("aligned slots"), "{refused}");
    let parsed = spec.parse().unwrap();
    assert!(open(&parsed, &own(), false).unwrap().info().aligned_pool);
    // Without a device there is no reason to give staggered slots up.
    let spec = format!("af_xdp:{}", veth.here);
    assert!(!open_port(&spec).info().aligned_pool);
}

#[test]
fn missing_privileges_are_named() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let spec = format!("af_xdp:{}", veth.here);
    // Capabilities are a thread's own.
    let without = |taken: CapabilitySet| {
        let spec = spec.clone();
        let thread = std::thread::spawn(move || {
            // 38 MB: more than the usual limit on locked memory.
            let pools = pools(16_384);
            let left = CapabilitySet::all() - taken;
            let sets = CapabilitySets {
                effective: left,
                permitted: left,
                inheritable: CapabilitySet::empty(),
            };
            let held = rustix::thread::capabilities(None).unwrap();
            set_capabilities(
                None,
                CapabilitySets {
                    effective: held.effective & left,
                    permitted: held.permitted & left,
                    ..sets
                },
            )
            .unwrap();
            error(&spec, &PortConfig::default(), &pools)
        });
        thread.join().unwrap()
    };
    let bpf = without(CapabilitySet::all());
    assert!(
        bpf.contains("CAP_BPF") && bpf.contains("setcap cap_net_raw"),
        "{bpf}"
    );
    let raw = without(CapabilitySet::NET_RAW);
    assert!(
        raw.contains("CAP_NET_RAW") && raw.contains("setcap"),
        "{raw}"
    );
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    if limit.current.is_some_and(|bytes| bytes < 32 << 20) {
        let memory = without(CapabilitySet::IPC_LOCK);
        assert!(
            memory.contains("RLIMIT_MEMLOCK") && memory.contains("ulimit -l"),
            "{memory}"
        );
    }
    assert!(!has_program(&veth.here));
}
