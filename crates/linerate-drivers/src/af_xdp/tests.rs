//! Against the real kernel: veth pairs, network name spaces, programs of the system.

mod descriptors;
mod faults;
mod programs;

use super::*;
use linerate_core::packet::{Burst, Offload, Packet, PoolCache, PoolConfig};
use linerate_core::port::{RxQueue, TxQueue};
use linerate_wire::checksum;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Numbers the interfaces of this process's tests.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether the test can run; says so otherwise.
fn privileged() -> bool {
    // Tried once: tests run beside each other.
    static ABLE: OnceLock<bool> = OnceLock::new();
    let able = *ABLE.get_or_init(|| {
        let id = std::process::id();
        let able = run(&format!("ip link add lrp{id} type veth peer name lrq{id}"));
        run(&format!("ip link del lrp{id}"));
        able
    });
    if !able {
        linerate_testkit::skip(
            "af_xdp: needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF for veth pairs and programs",
        );
    }
    able
}

/// This process opens for itself.
fn own() -> Arc<dyn Opener> {
    Arc::new(crate::Own)
}

/// Runs a command and says whether it went well.
fn run(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    Command::new(words[0])
        .args(&words[1..])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn must(command: &str) {
    assert!(run(command), "{command}");
}

/// A veth pair, one end in a name space of its own where wanted; gone with the value.
struct Veth {
    here: String,
    there: String,
    space: Option<String>,
    number: u32,
}

impl Veth {
    /// Both ends here.
    fn pair(extra: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let (here, there) = (format!("lx{id}a{number}"), format!("lx{id}b{number}"));
        must(&format!(
            "ip link add {here} {extra} type veth peer name {there} {extra}"
        ));
        let veth = Self {
            here,
            there,
            space: None,
            number,
        };
        for end in [&veth.here, &veth.there] {
            // No chatter of the kernel's own on the link.
            run(&format!("sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1"));
            must(&format!("ip link set {end} up"));
        }
        veth
    }

    /// The other end in a name space, with an address.
    fn into_space(address: &str) -> Self {
        let mut veth = Self::pair("");
        let space = format!("lr-{}-{}", std::process::id(), veth.number);
        must(&format!("ip netns add {space}"));
        veth.space = Some(space.clone());
        must(&format!("ip link set {} netns {space}", veth.there));
        let inside = |command: &str| must(&format!("ip -n {space} {command}"));
        inside("link set lo up");
        inside(&format!("link set {} up", veth.there));
        inside(&format!("addr add {address} dev {}", veth.there));
        veth
    }

    /// A command in the name space.
    fn inside(&self, command: &str) -> Command {
        let mut words = command.split_whitespace();
        let mut child = Command::new("ip");
        child
            .args(["netns", "exec", self.space.as_ref().unwrap()])
            .args(&mut words);
        child
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        run(&format!("ip link del {}", self.here));
        if let Some(space) = &self.space {
            run(&format!("ip netns del {space}"));
        }
    }
}

fn pools(slots: u32) -> Pools {
    Pools::new(vec![Pool::new(&PoolConfig::new("test", slots)).unwrap()])
}

fn open_port(spec: &str) -> AfXdpPort {
    open(&spec.parse().unwrap(), &own(), false).unwrap()
}

fn error(spec: &str, config: &PortConfig, pools: &Pools) -> String {
    match open(&spec.parse().unwrap(), &own(), false)
        .and_then(|mut port| port.start(config, pools).map(drop))
    {
        Ok(()) => panic!("`{spec}` starts"),
        Err(error) => error.to_string(),
    }
}

/// A frame with a number in it.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; len];
    bytes[..14].copy_from_slice(b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x88\xb5");
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn send(
    tx: &mut dyn TxQueue,
    cache: &mut PoolCache,
    pool: &Pool,
    frames: impl IntoIterator<Item = Vec<u8>>,
) -> usize {
    let mut sent = 0;
    for bytes in frames {
        let mut packet = cache.get(pool).unwrap();
        assert!(packet.set_data(&bytes));
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        sent += tx.tx_burst(&mut burst, cache);
        tx.flush(cache);
        cache.free(&mut burst);
    }
    sent
}

/// Receives until there are `count` packets or two seconds are over.
fn receive(rx: &mut dyn RxQueue, cache: &mut PoolCache, count: usize) -> Vec<Packet> {
    let mut packets = Vec::new();
    let end = Instant::now() + Duration::from_secs(2);
    while packets.len() < count && Instant::now() < end {
        let mut burst = Burst::new();
        if rx.rx_burst(&mut burst, cache) == 0 {
            std::thread::yield_now();
        }
        packets.extend(burst.drain());
    }
    packets
}

/// All slots are home or in the cache.
fn assert_no_slot_lost(pools: &Pools, cache: &PoolCache) {
    let pool = pools.primary();
    assert_eq!(
        pool.stats().free_shared as usize + cache.held(pool),
        pool.slots() as usize,
        "slots are missing"
    );
}

#[test]
fn frames_cross_a_veth_pair_in_order_and_in_place() {
    if !privileged() {
        return;
    }
    for (layout, options) in [
        ("staggered", ""),
        ("aligned", ""),
        ("staggered", ",mode=generic"),
        ("staggered", ",wakeup=off"),
    ] {
        let veth = Veth::pair("");
        let mut config = PoolConfig::new("test", 4096);
        if layout == "aligned" {
            config.layout = linerate_core::packet::Layout::Aligned;
        }
        let pools = Pools::new(vec![Pool::new(&config).unwrap()]);
        let mut cache = PoolCache::new(pools.as_slice());
        let mut left = open_port(&format!("af_xdp:{}{options}", veth.here));
        let mut right = open_port(&format!("af_xdp:{}{options}", veth.there));
        let mut from = left.start(&PortConfig::default(), &pools).unwrap();
        let mut to = right
            .start(
                &PortConfig {
                    index: 7,
                    ..PortConfig::default()
                },
                &pools,
            )
            .unwrap();
        assert_eq!(left.link(), Link::Up);
        for number in 0..5000_u32 {
            let len = 60 + (number as usize * 7) % 1400;
            assert_eq!(
                send(
                    &mut *from.tx[0],
                    &mut cache,
                    pools.primary(),
                    [frame(number, len)]
                ),
                1
            );
            if number % 32 == 31 || number == 4999 {
                let first = number / 32 * 32;
                let packets = receive(&mut *to.rx[0], &mut cache, (number - first + 1) as usize);
                assert_eq!(
                    packets.len() as u32,
                    number - first + 1,
                    "{:?} {:?} {:?}",
                    right.info(),
                    left.stats(),
                    right.stats()
                );
                for (packet, number) in packets.iter().zip(first..) {
                    assert_eq!(
                        packet.data(),
                        frame(number, 60 + (number as usize * 7) % 1400)
                    );
                    assert_eq!((packet.port(), packet.headroom()), (7, 256));
                    assert!(pools.primary().owns(packet));
                }
            }
        }
        let (sent, received) = (left.stats(), right.stats());
        assert_eq!(
            (sent.tx_packets, received.rx_packets, received.dropped()),
            (5000, 5000, 0)
        );
        assert_eq!((sent.tx_bytes, sent.tx_copied), (received.rx_bytes, 0));
        println!("{:?}", right.info().facts);
        drop((from, to));
        left.stop().unwrap();
        right.stop().unwrap();
        assert_no_slot_lost(&pools, &cache);
    }
}

fn has_program(interface: &str) -> bool {
    let shown = Command::new("ip")
        .args(["-d", "link", "show", interface])
        .output()
        .unwrap();
    String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_port_stops_and_starts_again() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let pools = pools(1024);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut left = open_port(&format!("af_xdp:{}", veth.here));
    let mut right = open_port(&format!("af_xdp:{}", veth.there));
    for round in 0..3 {
        let mut from = left.start(&PortConfig::default(), &pools).unwrap();
        let mut to = right.start(&PortConfig::default(), &pools).unwrap();
        assert!(
            left.start(&PortConfig::default(), &pools).is_err(),
            "started twice"
        );
        send(
            &mut *from.tx[0],
            &mut cache,
            pools.primary(),
            (0..100).map(|i| frame(i, 60)),
        );
        assert_eq!(
            receive(&mut *to.rx[0], &mut cache, 100).len(),
            100,
            "round {round}"
        );
        // Some stay in the rings.
        send(
            &mut *from.tx[0],
            &mut cache,
            pools.primary(),
            (0..100).map(|i| frame(i, 60)),
        );
        assert!(left.stop().unwrap_err().to_string().contains("drop them"));
        drop((from, to));
        left.stop().unwrap();
        right.stop().unwrap();
        assert_no_slot_lost(&pools, &cache);
        assert_eq!(
            (left.stats().tx_packets, right.stats().rx_packets),
            (200 * (round + 1), 100 * (round + 1))
        );
    }
}

#[test]
fn every_queue_has_its_own_frames() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("numrxqueues 3 numtxqueues 3");
    let pools = pools(4096);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut left = open_port(&format!("af_xdp:{}", veth.here));
    let mut right = open_port(&format!("af_xdp:{},start_queue=1", veth.there));
    assert_eq!(
        (left.info().max_rx_queues, right.info().max_rx_queues),
        (3, 2)
    );
    let mut from = left
        .start(
            &PortConfig {
                rx_queues: 1,
                tx_queues: 3,
                index: 0,
            },
            &pools,
        )
        .unwrap();
    let mut to = right
        .start(
            &PortConfig {
                rx_queues: 2,
                tx_queues: 1,
                index: 1,
            },
            &pools,
        )
        .unwrap();
    assert_eq!(
        (from.rx.len(), from.tx.len(), to.rx.len(), to.tx.len()),
        (1, 3, 2, 1)
    );
    for queue in 0..3_u32 {
        let frames = (0..10).map(|i| frame(queue * 100 + i, 60));
        assert_eq!(
            send(
                &mut *from.tx[queue as usize],
                &mut cache,
                pools.primary(),
                frames
            ),
            10
        );
    }
    for (index, first) in [(0, 100), (1, 200)] {
        let packets = receive(&mut *to.rx[index], &mut cache, 10);
        let numbers: Vec<u32> = packets
            .iter()
            .map(|p| u32::from_be_bytes(*p.data()[14..].first_chunk().unwrap()))
            .collect();
        assert_eq!(numbers, (first..first + 10).collect::<Vec<_>>());
    }
    // Queue 0 of the right end stays the kernel's.
    assert_eq!(right.stats().rx_packets, 20);
    assert!(
        right
            .info()
            .facts
            .iter()
            .any(|(_, fact)| fact.contains("stay with the kernel"))
    );
    drop((from, to));
    left.stop().unwrap();
    right.stop().unwrap();
    assert_no_slot_lost(&pools, &cache);
}

#[test]
fn what_is_left_undone_is_done_before_the_wire() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let mut all = vec![Pool::new(&PoolConfig::new("test", 1024)).unwrap()];
    let large = PoolConfig {
        class: linerate_core::packet::SlotClass::Large,
        ..PoolConfig::new("large", 64)
    };
    all.push(Pool::new(&large).unwrap());
    let pools = Pools::new(all);
    let large = pools.as_slice()[1].clone();
    let mut cache = PoolCache::new(pools.as_slice());
    let mut left = open_port(&format!("af_xdp:{}", veth.here));
    let mut right = open_port(&format!("af_xdp:{},csum=off", veth.there));
    let mut from = left.start(&PortConfig::default(), &pools).unwrap();
    let mut to = right.start(&PortConfig::default(), &pools).unwrap();
    let mut push =
        |cache: &mut PoolCache, pool: &Pool, bytes: &[u8], duty: &dyn Fn(&mut Packet)| {
            let mut packet = cache.get(pool).unwrap();
            assert!(packet.set_data(bytes));
            duty(&mut packet);
            let mut burst = Burst::new();
            burst.push(packet).unwrap();
            assert_eq!(from.tx[0].tx_burst(&mut burst, cache), 1);
            from.tx[0].flush(cache);
        };
    // Of another pool: copied.
    push(&mut cache, &large, &frame(1, 100), &|_| {});
    // A tag that was taken off: put back.
    push(&mut cache, pools.primary(), &frame(2, 100), &|packet| {
        packet.meta_mut().offload.insert(Offload::VLAN);
        packet.meta_mut().vlan_tci = 5;
    });
    // An unfinished checksum of everything behind byte 20, at byte 24.
    push(&mut cache, pools.primary(), &frame(3, 100), &|packet| {
        packet.meta_mut().offload.insert(Offload::CSUM_PARTIAL);
        (packet.meta_mut().csum_start, packet.meta_mut().csum_offset) = (20, 4);
    });
    // Longest and too long, with and without a tag; too short.
    let tagged = |len| {
        let mut bytes = frame(4, len);
        bytes[12..14].copy_from_slice(&[0x81, 0]);
        bytes
    };
    push(&mut cache, pools.primary(), &frame(4, 1514), &|_| {});
    push(&mut cache, pools.primary(), &tagged(1518), &|_| {});
    push(&mut cache, pools.primary(), &frame(4, 1515), &|_| {});
    push(&mut cache, pools.primary(), &tagged(1519), &|_| {});
    push(&mut cache, pools.primary(), &frame(4, 18)[..13], &|_| {});
    // A TCP frame of 10,000 bytes: cut.
    let mut tcp = frame(0, 14 + 40 + 10_000);
    tcp[12..14].copy_from_slice(&[8, 0]);
    tcp[14..54].fill(0);
    (tcp[14], tcp[16], tcp[17], tcp[22], tcp[23]) =
        (0x45, (10_040_u16 >> 8) as u8, (10_040 & 0xff) as u8, 64, 6);
    (tcp[34 + 12], tcp[34 + 13]) = (0x50, 0x10);
    push(&mut cache, &large, &tcp, &|packet| {
        packet
            .meta_mut()
            .offload
            .insert(Offload::GSO_TCP4 | Offload::CSUM_PARTIAL);
        packet.meta_mut().gso_size = 1460;
    });

    let packets = receive(&mut *to.rx[0], &mut cache, 5 + 7);
    let lens: Vec<usize> = packets.iter().map(Packet::len).collect();
    assert_eq!(
        lens,
        [
            100,
            104,
            100,
            1514,
            1518,
            1514,
            1514,
            1514,
            1514,
            1514,
            1514,
            54 + 10_000 - 6 * 1460
        ]
    );
    assert_eq!(packets[0].data(), frame(1, 100));
    assert_eq!(packets[1].data()[12..20], [0x81, 0, 0, 5, 0x88, 0xb5, 0, 0]);
    assert_eq!(
        checksum::checksum(&packets[2].data()[20..24]),
        checksum::checksum(&frame(3, 100)[20..24])
    );
    assert_ne!(packets[2].data()[24..26], frame(3, 100)[24..26]);
    let stats = left.stats();
    assert_eq!(
        (
            stats.tx_packets,
            stats.tx_copied,
            stats.segmented,
            stats.checksums_completed
        ),
        (12, 1, 1, 1)
    );
    assert_eq!(stats.tx_drops, [("oversize", 2), ("malformed", 1)]);
    drop((packets, from, to));
    left.stop().unwrap();
    right.stop().unwrap();
    assert_no_slot_lost(&pools, &cache);
}

#[test]
fn frames_of_a_queue_that_is_not_polled_are_counted() {
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let pools = pools(1024);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut left = open_port(&format!("af_xdp:{},ring=128", veth.here));
    let mut right = open_port(&format!("af_xdp:{},ring=128", veth.there));
    let mut from = left.start(&PortConfig::default(), &pools).unwrap();
    let mut to = right.start(&PortConfig::default(), &pools).unwrap();
    // A full transmit ring leaves the rest in the burst.
    let mut burst = Burst::new();
    let mut taken = 0;
    for _ in 0..4 {
        cache.fill(pools.primary(), &mut burst, 64);
        for packet in burst.iter_mut() {
            packet.set_data(&frame(0, 60));
        }
        taken += from.tx[0].tx_burst(&mut burst, &mut cache);
    }
    assert_eq!((taken, burst.len()), (128, 64));
    from.tx[0].flush(&mut cache);
    cache.free(&mut burst);
    send(
        &mut *from.tx[0],
        &mut cache,
        pools.primary(),
        (0..172).map(|i| frame(i, 60)),
    );
    wait_for("300 frames are sent", || {
        from.tx[0].flush(&mut cache);
        from.tx[0].held() == 0
    });
    let packets = receive(&mut *to.rx[0], &mut cache, 128);
    assert_eq!((left.stats().tx_packets, packets.len()), (300, 128));
    assert_eq!(right.stats().rx_drops, [("missed", 172)]);

    // The pool is empty: what no slot was left for is counted as such.
    let mut kept = Vec::new();
    while let Some(packet) = cache.get(pools.primary()) {
        kept.push(packet);
    }
    let mut some: Vec<Packet> = kept.drain(..300).collect();
    kept.extend(receive(&mut *to.rx[0], &mut cache, 0));
    for mut packet in some.drain(..) {
        packet.set_data(&frame(9, 60));
        let mut one = Burst::new();
        one.push(packet).unwrap();
        while from.tx[0].tx_burst(&mut one, &mut cache) == 0 {
            from.tx[0].flush(&mut cache);
        }
        from.tx[0].flush(&mut cache);
        let mut got = Burst::new();
        while let Some(packet) = cache.get(pools.primary()) {
            kept.push(packet);
        }
        to.rx[0].rx_burst(&mut got, &mut cache);
        kept.extend(got.drain());
    }
    let drops = right.stats().rx_drops;
    assert!(
        drops
            .iter()
            .any(|&(reason, count)| reason == "no_buffer" && count > 0),
        "{drops:?}"
    );
    drop((kept, packets, from, to));
    left.stop().unwrap();
    right.stop().unwrap();
    assert_no_slot_lost(&pools, &cache);
}

#[test]
fn an_idle_lcore_is_woken_by_a_frame() {
    use linerate_core::port::SleepOn;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if !privileged() {
        return;
    }
    let veth = Veth::pair("");
    let pools = pools(1024);
    let mut cache = PoolCache::new(pools.as_slice());
    let mut left = open_port(&format!("af_xdp:{}", veth.here));
    let mut right = open_port(&format!("af_xdp:{}", veth.there));
    let mut from = left.start(&PortConfig::default(), &pools).unwrap();
    let mut to = right.start(&PortConfig::default(), &pools).unwrap();
    assert!(matches!(to.rx[0].sleep_on(), SleepOn::Fd(_)));
    let readable = |milliseconds: i64| {
        let socket = right.running.as_ref().unwrap().queue_pairs[0]
            .socket()
            .unwrap();
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: milliseconds * 1_000_000,
        };
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&time)).unwrap() == 1
    };
    assert!(!readable(0));
    send(
        &mut *from.tx[0],
        &mut cache,
        pools.primary(),
        [frame(1, 60)],
    );
    assert!(readable(900));
    assert_eq!(receive(&mut *to.rx[0], &mut cache, 1).len(), 1);
    assert!(!readable(0));
}
