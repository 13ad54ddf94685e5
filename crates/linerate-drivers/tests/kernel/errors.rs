//! Errors of opening and starting have the reason and the fix.

use crate::{namespace, open, pools};
use linerate_core::packet::{Pool, PoolConfig, Pools};
use linerate_core::port::{PortConfig, PortError};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

fn refusal(spec: &str, queues: u16, pools: &Pools) -> String {
    let config = PortConfig {
        rx_queues: queues,
        ..PortConfig::default()
    };
    let started = open(spec).and_then(|mut port| port.start(&config, pools).map(|_| ()));
    started.expect_err(spec).to_string()
}

fn check(spec: &str, queues: u16, pools: &Pools, parts: &[&str]) {
    let error = refusal(spec, queues, pools);
    for part in parts {
        assert!(error.contains(part), "`{part}` in: {error}");
    }
}

#[test]
fn names_and_options() {
    let pools = pools(false);
    check(
        "af_packet:nosuch0",
        1,
        &pools,
        &["af_packet:nosuch0", "no interface `nosuch0`", "ip link"],
    );
    check("af_packet:", 1, &pools, &["target", "name of an interface"]);
    check(
        "af_packet:far_too_long_a_name",
        1,
        &pools,
        &["1 to 15 bytes"],
    );
    check("tap:far_too_long_a_name", 1, &pools, &["1 to 15 bytes"]);
    check("tap:t%d", 1, &pools, &["target", "1 to 15 bytes"]);
    check(
        "af_packet:lo,fanout=all",
        1,
        &pools,
        &["fanout", "hash, cpu, lb, rnd or qm"],
    );
    check(
        "af_packet:lo,block_kib=100",
        1,
        &pools,
        &["block_kib", "power of two"],
    );
    check(
        "tap:t0,mac=01:00:00:00:00:00",
        1,
        &pools,
        &["mac", "first byte even"],
    );
    check(
        "tap:t0,mac=x",
        1,
        &pools,
        &["mac is `x`", "02:00:00:00:00:01"],
    );
    check("tap:t0,mtu=67", 1, &pools, &["mtu is `67`", "68 to 65521"]);
    check(
        "af_packet:lo,queue=2",
        1,
        &pools,
        &["unknown option `queue`", "queues"],
    );
}

#[test]
fn interfaces_and_pools() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let _inside = namespace.enter();
    let small = pools(false);
    check(
        "af_packet:g0",
        2,
        &small,
        &["2 receive queues asked for, it has 1"],
    );
    check(
        "tap:t0,queues=2",
        3,
        &small,
        &["3 receive queues asked for, it has 2"],
    );
    let tiny = Pools::new(vec![Pool::new(&PoolConfig::new("tiny", 100)).unwrap()]);
    check(
        "af_packet:g0,queues=2",
        2,
        &tiny,
        &["pool `tiny` has 100 slots", "128"],
    );
    namespace.ip("link set g0 mtu 9000");
    check(
        "af_packet:g0",
        1,
        &small,
        &["MTU 9000", "ip link set g0 mtu", "large slots"],
    );
    check("tap:t0,mtu=9000", 1, &small, &["MTU 9000", "large slots"]);
    assert!(
        open("af_packet:g0")
            .unwrap()
            .start(&PortConfig::default(), &pools(true))
            .is_ok()
    );
    namespace.ip("link set g0 down");
    check(
        "af_packet:g0",
        1,
        &small,
        &["`g0` is down", "ip link set g0 up"],
    );
    // What is no TAP, one with other flags, one that is in use.
    check("tap:g0", 1, &small, &["exists and is no TAP"]);
    namespace.ip("tuntap add mode tap name many multi_queue");
    check(
        "tap:many",
        1,
        &small,
        &["several queues", "ip tuntap add mode tap name many"],
    );
    let mut busy = open("tap:busy").unwrap();
    let queues = busy.start(&PortConfig::default(), &small).unwrap();
    check(
        "tap:busy",
        1,
        &small,
        &["attach TAP `busy`", "another program"],
    );
    drop(queues);
    assert!(
        !namespace.run("ip", "link show t0").status.success(),
        "nothing is left half-made"
    );
}

#[test]
fn privileges() {
    let Some(namespace) = namespace() else { return };
    namespace.veth("g0", "d0");
    let without = |drop: CapabilitySet, spec: &'static str| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _inside = namespace.enter();
                let mut sets = capabilities(None).unwrap();
                let all = sets.effective;
                sets.effective &= !drop; // of this thread alone
                set_capabilities(None, sets).unwrap();
                let started = open(spec).and_then(|mut port| {
                    port.start(&PortConfig::default(), &pools(false))
                        .map(|_| ())
                });
                sets.effective = all;
                set_capabilities(None, sets).unwrap();
                started.expect_err(spec)
            });
            thread.join().unwrap()
        })
    };
    for (drop, spec, name) in [
        (CapabilitySet::NET_RAW, "af_packet:g0", "CAP_NET_RAW"),
        (CapabilitySet::NET_ADMIN, "tap:t0", "CAP_NET_ADMIN"),
    ] {
        let error = without(drop, spec);
        assert!(matches!(error, PortError::Permission { .. }), "{error}");
        let text = error.to_string();
        let command = format!("setcap {}+ep", name.to_lowercase());
        assert!(text.contains(name) && text.contains(&command), "{text}");
    }
}
