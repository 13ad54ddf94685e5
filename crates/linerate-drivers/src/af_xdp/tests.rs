//! Against the real kernel: veth pairs, network name spaces, programs of the system.

use super::*;
use linerate_core::packet::{Burst, Offload, Packet, PoolCache, PoolConfig};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Numbers the interfaces of this process's tests.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether the test can run; says so otherwise.
fn privileged() -> bool {
    let id = std::process::id();
    let able = run(&format!("ip link add lrp{id} type veth peer name lrq{id}"));
    if able {
        run(&format!("ip link del lrp{id}"));
    } else {
        eprintln!("SKIP af_xdp: needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF to make veth pairs and programs");
    }
    able
}

/// Runs a command and says whether it went well.
fn run(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
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
        must(&format!("ip link add {here} {extra} type veth peer name {there} {extra}"));
        let veth = Self { here, there, space: None, number };
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
        child.args(["netns", "exec", self.space.as_ref().unwrap()]).args(&mut words);
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
    open(&spec.parse().unwrap()).unwrap()
}

fn error(spec: &str, config: &PortConfig, pools: &Pools) -> String {
    match open(&spec.parse().unwrap()).and_then(|mut port| port.start(config, pools).map(drop)) {
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

fn send(tx: &mut dyn TxQueue, cache: &mut PoolCache, pool: &Pool, frames: impl IntoIterator<Item = Vec<u8>>) -> usize {
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

use linerate_core::port::{RxQueue, TxQueue};

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
    assert_eq!(pool.stats().free_shared as usize + cache.held(pool), pool.slots() as usize, "slots are missing");
}

#[test]
fn frames_cross_a_veth_pair_in_order_and_in_place() {
    if !privileged() {
        return;
    }
    for (layout, options) in [("staggered", ""), ("aligned", ""), ("staggered", ",mode=generic"), ("staggered", ",wakeup=off")] {
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
        let mut to = right.start(&PortConfig { index: 7, ..PortConfig::default() }, &pools).unwrap();
        assert_eq!(left.link(), Link::Up);
        for number in 0..5000_u32 {
            let len = 60 + (number as usize * 7) % 1400;
            assert_eq!(send(&mut *from.tx[0], &mut cache, pools.primary(), [frame(number, len)]), 1);
            if number % 32 == 31 || number == 4999 {
                let first = number / 32 * 32;
                let packets = receive(&mut *to.rx[0], &mut cache, (number - first + 1) as usize);
                assert_eq!(packets.len() as u32, number - first + 1, "{:?} {:?} {:?}", right.info(), left.stats(), right.stats());
                for (packet, number) in packets.iter().zip(first..) {
                    assert_eq!(packet.data(), frame(number, 60 + (number as usize * 7) % 1400));
                    assert_eq!((packet.meta().port, packet.headroom()), (7, 256));
                    assert!(pools.primary().owns(packet));
                }
            }
        }
        let (sent, received) = (left.stats(), right.stats());
        assert_eq!((sent.tx_packets, received.rx_packets, received.dropped()), (5000, 5000, 0));
        assert_eq!((sent.tx_bytes, sent.tx_copied), (received.rx_bytes, 0));
        println!("{:?}", right.info().facts);
        drop((from, to));
        left.stop().unwrap();
        right.stop().unwrap();
        assert_no_slot_lost(&pools, &cache);
    }
}
