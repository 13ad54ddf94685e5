//! The whole gateway, threads and control plane, with more workers than CPUs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_control::Embedded;
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig, Queues};
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use linerate_wire::MacAddr;
use serde_json::json;

use super::*;
use crate::GATEWAY;

/// Packets under way at most: fewer than any ring holds, so that none is full.
const UNDER_WAY: usize = 256;

/// The far end of a port.
pub(super) struct Peer {
    queues: Queues,
    cache: PoolCache,
    pool: Pool,
    /// The gateway's address there.
    mac: MacAddr,
    _port: Box<dyn Port>,
}

impl Peer {
    pub(super) fn new(drivers: &mut Drivers, spec: &str, number: u8) -> Self {
        let mut port = drivers.open(spec).unwrap();
        let pool = Pool::new(&PoolConfig::new("peer", 4096)).unwrap();
        let pools = Pools::new(vec![pool.clone()]);
        Self {
            queues: port.start(&PortConfig::default(), &pools).unwrap(),
            cache: PoolCache::new(pools.as_slice()),
            pool,
            mac: MacAddr([2, 0, 0, 1, 0, number]),
            _port: port,
        }
    }

    pub(super) fn send(&mut self, frame: &Frame) {
        let frame = Frame {
            dst_mac: self.mac,
            ..frame.clone()
        };
        let mut burst = Burst::new();
        let mut packet = self.cache.get(&self.pool).unwrap();
        assert!(packet.set_data(&frame.bytes()));
        burst.push(packet).unwrap();
        let tx = &mut self.queues.tx[0];
        assert_eq!(tx.tx_burst(&mut burst, &mut self.cache), 1);
        tx.flush(&mut self.cache);
    }

    /// Packets that have come, of TCP and UDP.
    pub(super) fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        self.queues.rx[0].rx_burst(&mut burst, &mut self.cache);
        let frames = burst.iter().map(|packet| packet.data().to_vec());
        let is_ours = |frame: &Vec<u8>| frame[12..14] == [8, 0] && [6, 17].contains(&frame[23]);
        let frames = frames.filter(is_ours).collect();
        self.cache.free(&mut burst);
        frames
    }
}

/// Between `wan` and `lan`, which is translated; `keys` are more of `[dispatch]`.
pub(super) fn text(plan: &str, mode: &str, keys: &str) -> String {
    format!(
        "[plan]\nbg = \"0\"\n{plan}cpus = \"0,0,0,0,0,0\"\n\
         [router]\nkernel = false\nperiod = 0\n\
         [dispatch]\nmode = \"{mode}\"\n{keys}\
         [flows]\nipv4 = 4096\nipv6 = 64\n\
         [[port]]\nname = \"wan\"\nspec = \"ring:wan,size=2048\"\n\
         [[port]]\nname = \"lan\"\nspec = \"ring:lan,size=2048\"\n\
         [[interface]]\nport = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n\
         [[interface]]\nport = \"lan\"\naddresses = [\"198.51.100.1/24\"]\n\
         [[neighbour]]\ninterface = \"wan\"\naddress = \"192.0.2.7\"\n\
         mac = \"02:00:00:00:00:07\"\n\
         [[neighbour]]\ninterface = \"lan\"\naddress = \"198.51.100.2\"\n\
         mac = \"02:00:00:00:00:02\"\n\
         [[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"198.51.100.2\"\n\
         [[zone]]\nname = \"outside\"\ninterfaces = [\"wan\"]\n\
         [[zone]]\nname = \"inside\"\ninterfaces = [\"lan\"]\n\
         [[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"permit\"\n\
         [nat]\n[[nat.pool]]\nname = \"two\"\naddresses = [\"203.0.113.1\", \"203.0.113.2\"]\n\
         [[nat.source]]\nsource = \"10.0.0.0/8\"\nto = \"outside\"\npool = \"two\"\n"
    )
}

/// Flows of TCP and UDP from inside and their answers, until each has had `times` of both.
fn talk(peers: &mut [Peer; 2], times: u32) {
    let [wan, lan] = peers;
    let all: Vec<Tuple> = hosts(protocol::UDP).chain(hosts(protocol::TCP)).collect();
    // A handshake, and then one segment each way.
    let frame = |tuple: &Tuple, port, number: u32| match (tuple.protocol, port, number) {
        (protocol::UDP, ..) => datagram(tuple, port),
        (_, INSIDE, 0) => segment(tuple, port, SYN, (100, 0)),
        (_, INSIDE, _) => segment(tuple, port, ACK, (101, 301)),
        (_, _, 0) => segment(tuple, port, SYN | ACK, (300, 101)),
        _ => segment(tuple, port, ACK, (301, 101)),
    };
    // By flow, as the host sees it and as the server does: answers of each so far.
    let key = |tuple: &Tuple| (tuple.protocol, tuple.src);
    let mut answered: BTreeMap<_, u32> = all.iter().map(|tuple| (key(tuple), 0)).collect();
    let mut served: BTreeMap<_, u32> = BTreeMap::new();
    let mut asked = answered.clone();
    let mut under_way = 0;
    let patience = Instant::now() + Duration::from_secs(60);
    while answered.values().any(|&count| count < times) {
        for tuple in &all {
            let (asked, answered) = (asked.get_mut(&key(tuple)).unwrap(), answered[&key(tuple)]);
            if *asked == answered && *asked < times && under_way < UNDER_WAY {
                lan.send(&frame(tuple, INSIDE, *asked));
                *asked += 1;
                under_way += 1;
            }
        }
        for sent in wan.receive() {
            let outside = ends(&sent);
            let count = served.entry(key(&outside)).or_default();
            wan.send(&frame(&outside.reversed(), OUTSIDE, *count));
            *count += 1;
        }
        for back in lan.receive() {
            let inside = ends(&back).reversed();
            let answered = answered.get_mut(&key(&inside)).unwrap();
            *answered += 1;
            assert_eq!(
                *answered,
                asked[&key(&inside)],
                "an answer to each question"
            );
            under_way -= 1;
        }
        let left = answered.values().filter(|&&count| count < times).count();
        assert!(Instant::now() < patience, "{left} flows are not through");
        std::thread::yield_now();
    }
    assert_eq!(served.len(), all.len(), "no flow has changed its outside");
    assert!(served.values().all(|&count| count == times));
}

/// What `explain` says of the worker of a flow is where the flow is.
fn tells_the_worker(gateway: &Embedded, mode: &str) {
    let mut lcores = gateway.ask("show", json!({ "what": "lcores" })).unwrap();
    let lcores = lcores["rows"].take();
    for tuple in hosts(protocol::UDP).take(8) {
        let Tuple { src, dst, .. } = tuple;
        let flow = format!("{src} > {dst} udp");
        let said = gateway.ask("explain", json!({ "flow": flow, "in": "inside" }));
        let said = said.unwrap();
        let filter = format!("{} {} udp", src.address, src.port);
        let params = json!({ "what": "flows", "filter": filter });
        let shown = gateway.ask("show", params).unwrap();
        let number = shown["rows"][0]["worker"].as_u64().unwrap() as usize;
        assert_eq!(said["worker"], lcores[number]["name"], "{mode}: {said}");
    }
}

/// Nothing is dropped, no answer comes to a worker that does not know its flow, and all packets are
/// accounted for at the end.
#[test]
fn flows_of_tcp_and_udp_cross_a_gateway_of_several_workers() {
    for (plan, mode) in [
        ("io = \"1\"\n", "none"),
        ("io = \"1-3\"\n", "balanced"),
        ("io = \"1-2\"\neu = \"3-5\"\n", "dispatcher"),
    ] {
        let scratch = Scratch::new();
        let file = scratch.file("gateway.toml");
        std::fs::write(&file, text(plan, mode, "")).unwrap();
        let mut drivers = Drivers::new();
        let mut peers = [("ring:wan,size=2048", 0), ("ring:lan,size=2048", 1)]
            .map(|(spec, number)| Peer::new(&mut drivers, spec, number));
        let gateway = Embedded::start(GATEWAY, Path::new(&file), &mut drivers, 0).unwrap();
        talk(&mut peers, 20);
        tells_the_worker(&gateway, mode);
        let all = hosts(protocol::UDP).count() + hosts(protocol::TCP).count();
        let shown = |filter: &str| {
            let params = json!({ "what": "flows", "filter": filter, "limit": 3 });
            let shown = gateway.ask("show", params).unwrap();
            let rows = shown["rows"].as_array().unwrap().len() as u64;
            (rows, rows + shown["more"].as_u64().unwrap())
        };
        assert_eq!(shown(""), (3, all as u64), "{mode}");
        let udp = hosts(protocol::UDP).count() as u64;
        assert_eq!(shown("udp zone inside"), (3, udp));
        let ended = gateway.ask("clear", json!({ "what": "flows", "filter": "udp" }));
        assert_eq!(ended.unwrap()["cleared"], udp);
        assert_eq!(shown("").1, all as u64 - udp);
        let books = gateway.stop().unwrap();
        assert_eq!(books.missing, 0, "{mode}: {books}");
    }
}
