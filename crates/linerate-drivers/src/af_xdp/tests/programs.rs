//! Programs of the system on the other side: the kernel's share of the flows, TCP end to end.

use super::faults::Killed;
use super::*;
use linerate_wire::{checksum, parse};

/// Addresses of a pair for this process's test: its own subnet, and the ends `1` and `2`.
fn subnet(number: u32) -> String {
    format!("10.{}.{}", 64 + std::process::id() % 128, number % 256)
}

fn shell(veth: &Veth, script: &str) -> bool {
    let mut command = veth.inside("bash -c");
    command
        .arg(script)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn named_flows_come_here_and_the_kernel_keeps_the_rest() {
    if !privileged() {
        return;
    }
    for mode in ["native", "generic"] {
        let net = subnet(NEXT.load(Ordering::Relaxed));
        let veth = Veth::into_space(&format!("{net}.2/24"));
        must(&format!("ip addr add {net}.1/24 dev {}", veth.here));
        let pools = pools(1024);
        let mut cache = PoolCache::new(pools.as_slice());
        let mut port = open_port(&format!(
            "af_xdp:{},mode={mode},filter=\"udp port 5353 and ip\"",
            veth.here
        ));
        let mut queues = port.start(&PortConfig::default(), &pools).unwrap();
        assert!(
            shell(&veth, &format!("ping -c 3 -i 0.2 -W 2 {net}.1")),
            "the kernel does not answer pings ({mode})"
        );
        for _ in 0..5 {
            assert!(shell(
                &veth,
                &format!("echo hello > /dev/udp/{net}.1/5353; echo hello > /dev/udp/{net}.1/5354")
            ));
        }
        let packets = receive(&mut *queues.rx[0], &mut cache, 5);
        assert_eq!(packets.len(), 5, "{:?}", port.stats());
        for packet in &packets {
            let headers = parse(packet.data()).unwrap();
            let l4 = headers.l4.unwrap();
            assert_eq!(packet.data()[l4 + 2..l4 + 4], 5353_u16.to_be_bytes());
            let ip =
                linerate_wire::ipv4::Ipv4::new_checked(&packet.data()[headers.l3..headers.end])
                    .unwrap();
            // RFC 768: the sum over pseudo-header and datagram, its checksum included, is all ones.
            let mut summed = ip.pseudo_sum().to_be_bytes().to_vec();
            summed.extend(&packet.data()[l4..headers.end]);
            assert_eq!(
                checksum::checksum(&summed),
                0,
                "the checksum is unfinished ({mode})"
            );
        }
        let stats = port.stats();
        assert_eq!(
            (stats.rx_packets, stats.checksums_completed),
            (5, 5),
            "{stats:?}"
        );
        drop((packets, queues));
        port.stop().unwrap();
        assert!(!has_program(&veth.here));
        assert!(shell(&veth, &format!("ping -c 1 -W 2 {net}.1")));
        assert_no_slot_lost(&pools, &cache);
    }
}

/// Between two name spaces that only two ports join: the end-to-end test.
#[test]
fn programs_of_the_system_talk_through_two_ports() {
    if !privileged() {
        return;
    }
    for mode in ["native", "generic"] {
        let net = subnet(100 + NEXT.load(Ordering::Relaxed));
        let veths = [
            Veth::into_space(&format!("{net}.1/24")),
            Veth::into_space(&format!("{net}.2/24")),
        ];
        if mode == "generic" {
            for veth in &veths {
                let off = format!("ethtool -K {} tso off gso off", veth.there);
                assert!(
                    veth.inside(&off)
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .status()
                        .unwrap()
                        .success()
                );
            }
        }
        let pools = pools(8192);
        let mut ports: Vec<AfXdpPort> = veths
            .iter()
            .map(|veth| open_port(&format!("af_xdp:{},mode={mode}", veth.here)))
            .collect();
        let mut queues: Vec<Queues> = ports
            .iter_mut()
            .map(|port| port.start(&PortConfig::default(), &pools).unwrap())
            .collect();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let dropped = std::thread::scope(|scope| {
            let stop = &stop;
            let pools = &pools;
            let forwarder = scope.spawn(move || {
                let mut cache = PoolCache::new(pools.as_slice());
                let mut dropped = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut moved = 0;
                    for (from, to) in [(0, 1), (1, 0)] {
                        let mut burst = Burst::new();
                        moved += queues[from].rx[0].rx_burst(&mut burst, &mut cache);
                        queues[to].tx[0].tx_burst(&mut burst, &mut cache);
                        queues[to].tx[0].flush(&mut cache);
                        dropped += burst.len();
                        cache.free(&mut burst);
                    }
                    if moved == 0 {
                        std::thread::yield_now();
                    }
                }
                drop(queues);
                assert_no_slot_lost_but_those_of(pools, &cache);
                dropped
            });
            let ping = shell(
                &veths[0],
                &format!("ping -q -c 20 -i 0.05 -W 2 {net}.2 | grep -q ' 0% packet loss'"),
            );
            let server = veths[1].inside("iperf3 -s").stdout(Stdio::null()).spawn();
            let server = Killed(server.unwrap());
            // The server is not there at once, and busy for a moment after each client.
            let iperf3 = |options: &str| {
                (0..20).any(|_| {
                    let ran = shell(&veths[0], &format!("iperf3 -c {net}.2 -t 1 {options}"));
                    if !ran {
                        std::thread::sleep(Duration::from_millis(250));
                    }
                    ran
                })
            };
            let (forth, back) = (iperf3(""), iperf3("-R"));
            drop(server);
            stop.store(true, Ordering::Relaxed);
            let dropped = forwarder.join().unwrap();
            assert!(
                ping && forth && back,
                "ping {ping}, iperf3 {forth}, the other way {back} ({mode})"
            );
            dropped
        });
        for port in &mut ports {
            port.stop().unwrap();
        }
        let [left, right] = [ports[0].stats(), ports[1].stats()];
        println!("{mode}: {dropped} dropped between, {left:?} {right:?}");
        // Received here, sent there, without a copy.
        assert_eq!((left.tx_copied, right.tx_copied), (0, 0));
        assert!(
            left.rx_packets > 1000 && left.checksums_completed > 1000,
            "{left:?}"
        );
        assert!(
            left.rx_drops
                .iter()
                .all(|&(reason, _)| reason != "oversize"),
            "{left:?}"
        );
    }
}

/// Before the ports are stopped, the kernel still has slots.
fn assert_no_slot_lost_but_those_of(pools: &Pools, cache: &PoolCache) {
    let pool = pools.primary();
    assert!(pool.stats().free_shared as usize + cache.held(pool) <= pool.slots() as usize);
}
