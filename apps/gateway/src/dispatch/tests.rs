//! Several workers, and packets that find their flows' owner: the whole path, and the function
//! alone for any number of workers.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use linerate_appliance::config::{self, Section};
use linerate_control::extension::Handing;
use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig};
use linerate_core::ring::{Pop, Push, spsc};
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::{Egress, Inlet, Stage as _, TxPath, Worker, WorkerHandle};
use linerate_routing::model::{Cidr, Prefix};
use linerate_routing::plane::testing::{Frame, LAN_MAC, Lab, SLOW, WAN_MAC, udp};
use linerate_routing::plane::{Fast, Mesh, Setup};
use linerate_tables::exact::Seed;
use linerate_testkit::Random;
use linerate_wire::protocol;
use linerate_wire::tcp::flag::{ACK, SYN};

use super::across::{Across, By};
use super::stage::Dispatch;
use super::{Classes, Hash, Marked};
use crate::config::{FlowsConfig, Stanzas};
use crate::nat::bits::Bits;
use crate::nat::rules::{Action, At, Config, Forward, Place, Pool as Addresses, Rules};
use crate::nat::rules::{SourceRule, Static};
use crate::nat::{Endpoint, First, Limits, Nat, Protocol, Tuple};
use crate::path::GatewayPath;
use crate::policy;
use crate::stages::flows::{Flows, Shared};
use linerate_dispatch::owners::WORKERS;
use linerate_dispatch::{Owner, Owners};

mod across;
mod ending;
mod frames;
mod hairpins;
mod moving;
mod running;

const OUTSIDE: u16 = 0;
const INSIDE: u16 = 1;
/// Where packets of other workers come by.
const FIRST: u16 = SLOW + 1;

fn prefix(text: &str) -> Prefix {
    text.parse::<Cidr>().unwrap().network()
}

/// Hosts in 10.0.0.0/8 behind two addresses, a server inside with a port of the first and an
/// address of its own.
fn nat() -> Config {
    let source = SourceRule {
        from: Place::default(),
        to: Place {
            zone: Some(OUTSIDE),
            interface: None,
        },
        source: Some(prefix("10.0.0.0/8")),
        destination: None,
        protocol: None,
        action: Action::Pool(0),
    };
    let (first, last) = (
        "203.0.113.1".parse().unwrap(),
        "203.0.113.2".parse().unwrap(),
    );
    Config {
        pools: vec![Addresses::new("two", vec![(first, last)])],
        sources: vec![source],
        statics: vec![Static {
            inside: prefix("10.1.9.1/32"),
            outside: prefix("203.0.113.9/32"),
            to: source.to,
        }],
        forwards: vec![Forward {
            outside: first,
            protocol: Some(Protocol::Tcp),
            ports: 443..=443,
            inside: "10.1.9.2".parse().unwrap(),
            inside_port: 8443,
            from: source.to,
            source_pool: None,
        }],
        ..Config::default()
    }
}

/// What each of `workers` has that translates for its buckets alone.
fn shards(workers: usize) -> (Owners, Classes, Vec<Nat>) {
    let rules = Arc::new(Rules::new(nat(), None));
    let owners = Owners::dealt(workers);
    let classes = Classes::new(Hash::new(3), &Marked::of_nat(&rules.config)).unwrap();
    let shard = |me: usize| {
        let mut mine = Bits::NONE;
        owners
            .buckets(me as Owner)
            .for_each(|bucket| mine.set(bucket));
        let limits = Limits {
            mappings: 1024,
            subscribers: 1024,
            records: 16,
        };
        Nat::new(rules.clone(), &limits, mine, me as u16, Seed::random()).unwrap()
    };
    let all = (0..workers).map(shard).collect();
    (owners, classes, all)
}

/// A flow that is translated, of one kind or another, and where it begins.
fn some_flow(random: &mut Random, number: u32) -> (Tuple, u16) {
    let host = [10, 1, random.below(4) as u8, random.below(250) as u8];
    let (far, port) = (
        [198, 51, 100, random.below(250) as u8],
        random.below(60_000),
    );
    let (host, far) = (Endpoint::new(host, port + 1024), Endpoint::new(far, 443));
    let of = random.of(&[protocol::TCP, protocol::UDP, protocol::ICMP, 47]);
    let fixed = |address: [u8; 4], port| Endpoint::new(address, port);
    let (src, dst, of, from) = match number % 5 {
        0 => (fixed([10, 1, 9, 1], port), far, of, INSIDE),
        1 => (far, fixed([203, 0, 113, 9], 22), of, OUTSIDE),
        2 => (
            fixed([198, 51, 100, 9], port),
            fixed([203, 0, 113, 1], 443),
            protocol::TCP,
            OUTSIDE,
        ),
        _ => (host, far, of, INSIDE),
    };
    let (src, dst) = match of {
        47 => (Endpoint { port: 0, ..src }, Endpoint { port: 0, ..dst }),
        protocol::ICMP => (src, Endpoint { port: 8, ..dst }),
        _ => (src, dst),
    };
    let tuple = Tuple {
        src,
        dst,
        protocol: of,
    };
    (tuple, from)
}

/// Whatever is translated, and whoever begins: the answer comes to the worker that has the flow.
#[test]
fn both_directions_meet_on_one_worker_for_any_number_of_workers() {
    let mut random = Random::new(7);
    let at = |zone| At {
        zone,
        interface: zone,
    };
    for workers in 1..=WORKERS {
        let (owners, classes, mut all) = shards(workers);
        for number in 0..200_u32 {
            let (tuple, from) = some_flow(&mut random, number);
            let bucket = classes.one(&tuple.key().unwrap());
            let owner = owners.of(bucket);
            let nat = &mut all[usize::from(owner)];
            let first = First {
                tuple,
                from: at(from),
                bucket,
            };
            let destination = nat.destination(&first).unwrap();
            let to = at(OUTSIDE + INSIDE - from);
            let becomes = nat.source(&first, &destination, to, 0, random.bits());
            let becomes = becomes.unwrap().tuple;
            assert_ne!(becomes, tuple, "it is translated");
            let answer = classes.one(&becomes.reversed().key().unwrap());
            assert_eq!(owners.of(answer), owner, "{workers}: {tuple} {becomes}");
        }
    }
}

/// A worker that does not know whose packets are whose fails the test above: its ports are those of
/// all buckets.
#[test]
fn ports_of_any_bucket_bring_answers_to_others() {
    let (owners, classes, _) = shards(4);
    let rules = Arc::new(Rules::new(nat(), None));
    let mut nat = Nat::new(rules, &Limits::default(), Bits::ALL, 0, Seed::random()).unwrap();
    let astray = (0..100).filter(|&number| {
        let tuple = Tuple {
            src: Endpoint::new([10, 1, 0, 1], 2000 + number),
            dst: Endpoint::new([198, 51, 100, 1], 53),
            protocol: protocol::UDP,
        };
        let bucket = classes.one(&tuple.key().unwrap());
        let [inside, outside] = [INSIDE, OUTSIDE].map(|zone| At {
            zone,
            interface: zone,
        });
        let first = First {
            tuple,
            from: inside,
            bucket,
        };
        let destination = nat.destination(&first).unwrap();
        let becomes = nat.source(&first, &destination, outside, 0, 1).unwrap();
        let answer = classes.one(&becomes.tuple.reversed().key().unwrap());
        owners.of(answer) != owners.of(bucket)
    });
    assert!(astray.count() > 50);
}

/// What came out: by which worker, by which port, and in a slot of which NUMA node.
struct Out {
    worker: usize,
    port: u16,
    frame: Vec<u8>,
    node: usize,
}

/// Where the workers of a [`Plant`] are.
struct Sockets {
    /// The NUMA node of each; 0 of those beyond.
    nodes: Vec<usize>,
    by: By,
    /// Of each node's pool.
    slots: [u32; 2],
}

impl Default for Sockets {
    /// All on one.
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            by: By::Auto,
            slots: [16_384; 2],
        }
    }
}

impl Sockets {
    fn node(&self, worker: usize) -> usize {
        self.nodes.get(worker).copied().unwrap_or(0)
    }

    /// A pool on each.
    fn pools(&self) -> Vec<Pool> {
        let nodes = self.nodes.iter().max().map_or(1, |most| most + 1);
        let pool = |node: usize| {
            Pool::new(&PoolConfig::new(format!("plant{node}"), self.slots[node])).unwrap()
        };
        (0..nodes).map(pool).collect()
    }
}

/// Workers between the links of a [`Lab`], each with a ring in the place of each port.
struct Plant {
    workers: Vec<Worker<Fast>>,
    handles: Vec<WorkerHandle<Fast>>,
    feeds: Vec<spsc::Producer<Packet>>,
    takers: Vec<(usize, u16, spsc::Consumer<Packet>)>,
    /// By NUMA node.
    pools: Vec<Pool>,
    /// By port: the node of the worker that polls it.
    polled_on: Vec<usize>,
    cache: PoolCache,
    /// Whose tables they read.
    _lab: Lab,
}

fn stanzas(nat: Config) -> Stanzas {
    let text = "[[zone]]\nname = \"outside\"\ninterfaces = [\"wan\"]\n\
                [[zone]]\nname = \"inside\"\ninterfaces = [\"lan\"]\n\
                [[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"permit\"\n";
    let read = |file: &Section<'_>| policy::stanza::read(file, &["wan", "lan"], Path::new(""));
    let parsed = config::parse(text, read);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    Stanzas {
        flows: FlowsConfig {
            ipv4: 4096,
            ipv6: 64,
            ..FlowsConfig::default()
        },
        policy: parsed.value,
        nat,
        interfaces: vec!["wan".into(), "lan".into()],
        ..Stanzas::default()
    }
}

impl Plant {
    /// So many workers that own flows; two that receive.
    fn new(handing: Handing, owners: usize, nat: Config) -> Self {
        Self::on(Sockets::default(), handing, owners, &stanzas(nat))
    }

    /// The same on several sockets.
    fn on(sockets: Sockets, handing: Handing, owners: usize, stanzas: &Stanzas) -> Self {
        let mut lab = Lab::new();
        for interface in &mut lab.settings.interfaces {
            interface.reassemble = true;
        }
        let (pools, setup) = (sockets.pools(), lab.setup());
        let shared = Shared::new(stanzas, &setup.settings, None).unwrap();
        let (before, polling) = match handing {
            Handing::ToEu => (2, 2),
            _ => (0, owners.min(2)),
        };
        let takers = owners as u16;
        let mut all = Vec::new();
        for worker in 0..before + owners {
            let me = worker.checked_sub(before).map(|me| me as u16);
            let node = sockets.node(worker);
            let far = |taker: usize| {
                let of = sockets.node(before + taker);
                (of != node).then(|| vec![pools[of].clone()])
            };
            let mesh = Mesh {
                first: FIRST,
                takers,
                me,
                far: (0..owners).map(far).collect(),
            };
            let setup = Setup {
                mesh,
                ..lab.setup()
            };
            let clock = Clock::monotonic("a test");
            let mut near: Vec<Pool> = pools.clone();
            near.rotate_left(node);
            let mut egress = Egress::new(PoolCache::new(&near));
            let flows = Flows::new(shared.clone(), worker, 0, &mut egress);
            let mut flows = flows.unwrap();
            let classes = flows.classes().clone();
            let dispatch = Dispatch::new(classes, &setup.mesh, setup.isa, &mut egress);
            let mut dispatch = dispatch.unwrap();
            let across = Across::new(sockets.by, &setup.mesh.far, flows.readers());
            dispatch.set_across(across);
            flows.own(dispatch.mine());
            let path = Box::new(GatewayPath::with(&setup, flows, Some(dispatch)));
            let fast = Fast::new(setup, path, &mut egress);
            all.push(Worker::new(&format!("w{worker}"), fast, egress, clock).unwrap());
        }
        let (mut workers, handles): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let mut outs = Vec::new();
        let count = workers.len();
        for from in 0..count {
            for port in [OUTSIDE, INSIDE, SLOW] {
                let (putter, taker) = spsc::ring(4096);
                let bell = Arc::new(Doorbell::new().unwrap());
                workers[from].set_outlet(port, Some(TxPath::Ring(putter, bell)));
                outs.push((from, port, taker));
            }
            for taker in 0..owners {
                let to = before + taker;
                if to == from {
                    continue;
                }
                let (putter, consumer) = spsc::ring(4096);
                let (number, bell) = (FIRST + taker as u16, handles[to].doorbell().clone());
                workers[from].set_outlet(number, Some(TxPath::Ring(putter, bell)));
                workers[to].add_inlet(Inlet::ring(number, from as u16, consumer));
            }
        }
        let (mut feeds, mut polled_on) = (Vec::new(), Vec::new());
        for port in [OUTSIDE, INSIDE] {
            let (putter, taker) = spsc::ring(4096);
            let worker = usize::from(port) % polling;
            workers[worker].add_inlet(Inlet::ring(port, 0, taker));
            feeds.push(putter);
            polled_on.push(sockets.node(worker));
        }
        Self {
            workers,
            handles,
            feeds,
            takers: outs,
            polled_on,
            cache: PoolCache::new(&pools),
            pools,
            _lab: lab,
        }
    }

    /// What leaves once these frames have come in by a port.
    fn exchange(&mut self, port: u16, frames: &[Vec<u8>]) -> Vec<Out> {
        for some in frames.chunks(Burst::CAPACITY) {
            let mut burst = Burst::new();
            for frame in some {
                let pool = &self.pools[self.polled_on[usize::from(port)]];
                let mut packet = self.cache.get(pool).unwrap();
                assert!(packet.set_data(frame));
                burst.push(packet).unwrap();
            }
            assert_eq!(
                self.feeds[usize::from(port)].push_burst(&mut burst),
                some.len()
            );
        }
        while self.workers.iter_mut().map(Worker::round).sum::<usize>() > 0 {}
        let mut out = Vec::new();
        for (worker, port, taker) in &mut self.takers {
            while let Some(packet) = taker.pop() {
                out.push(Out {
                    worker: *worker,
                    port: *port,
                    frame: packet.data().to_vec(),
                    node: self
                        .pools
                        .iter()
                        .position(|pool| pool.owns(&packet))
                        .unwrap(),
                });
                self.cache.free_one(packet);
            }
        }
        out
    }

    /// Flows of each worker.
    fn flows(&mut self) -> Vec<usize> {
        let of = |worker: &mut Worker<Fast>| {
            let path = worker.stage.path::<GatewayPath>().unwrap();
            path.flows().v4().len() + path.flows().v6().len()
        };
        self.workers.iter_mut().map(of).collect()
    }

    /// Nothing was dropped, lost or kept, and all slots are free again.
    fn is_exact(&mut self) {
        for handle in &self.handles {
            assert_eq!(handle.stats().drops(), []);
        }
        for worker in &mut self.workers {
            worker
                .stage
                .points(&mut |point| assert_eq!(point.unaccounted, 0, "at {}", point.name));
            assert_eq!(worker.stage.held(), 0);
        }
        for pool in &self.pools {
            let caches = self.workers.iter().map(|worker| &worker.egress.cache);
            let held = caches.chain([&self.cache]).map(|cache| cache.held(pool));
            let free = held.sum::<usize>() as u32 + pool.stats().free_shared;
            assert_eq!(free, pool.slots(), "{}", pool.name());
        }
    }
}

fn ends(frame: &[u8]) -> Tuple {
    let headers = linerate_wire::parse(frame).unwrap();
    assert_ne!(headers.is_ipv4_right(frame), Some(false));
    assert_ne!(headers.is_l4_right(frame), Some(false));
    match headers.flow_key(frame).unwrap() {
        linerate_wire::FlowKey::V4(key) => Tuple::from(&key),
        linerate_wire::FlowKey::V6(key) => Tuple::from(&key),
    }
}

/// A frame of a tuple.
fn frame(tuple: &Tuple, port: u16, payload: Vec<u8>) -> Frame {
    let text = |end: Endpoint| -> &'static str { end.address.to_string().leak() };
    Frame {
        dst_mac: if port == OUTSIDE { WAN_MAC } else { LAN_MAC },
        protocol: tuple.protocol,
        payload,
        ..Frame::between(text(tuple.src), text(tuple.dst))
    }
}

fn datagram(tuple: &Tuple, port: u16) -> Frame {
    let mut payload = udp(18);
    payload[..2].copy_from_slice(&tuple.src.port.to_be_bytes());
    payload[2..4].copy_from_slice(&tuple.dst.port.to_be_bytes());
    frame(tuple, port, payload)
}

fn segment(tuple: &Tuple, port: u16, flags: u8, (seq, ack): (u32, u32)) -> Frame {
    let (src, dst) = (tuple.src.port, tuple.dst.port);
    let payload = linerate_wire::tcp::header(src, dst, seq, ack, flags).to_vec();
    frame(tuple, port, payload).summed()
}

fn echo(tuple: &Tuple, port: u16, kind: u8, ident: u16) -> Frame {
    let mut payload = vec![kind, 0, 0, 0, 0, 0, 0, 1];
    payload[4..6].copy_from_slice(&ident.to_be_bytes());
    let sum = !linerate_wire::checksum::sum(&payload);
    payload[2..4].copy_from_slice(&sum.to_be_bytes());
    frame(tuple, port, payload)
}

/// Both forms, and up to four that own flows: with one all is its own.
fn each(mut test: impl FnMut(&mut Plant, usize)) {
    for handing in [Handing::Among, Handing::ToEu] {
        for owners in 1..=4 {
            let mut plant = Plant::new(handing, owners, nat());
            test(&mut plant, owners);
            plant.is_exact();
        }
    }
}

fn the_one(mut all: Vec<Out>, port: u16) -> Out {
    assert_eq!(all.len(), 1);
    let one = all.remove(0);
    assert_eq!(one.port, port);
    one
}

fn hosts(protocol: u8) -> impl Iterator<Item = Tuple> {
    (0..60_u8).map(move |number| Tuple {
        src: Endpoint::new([10, 1, 0, number], 4000 + u16::from(number)),
        dst: Endpoint::new([192, 0, 2, 7], 53),
        protocol,
    })
}

#[test]
fn answers_come_to_the_worker_that_has_the_flow() {
    each(|plant, owners| {
        let mut used = BTreeSet::new();
        for asks in hosts(protocol::UDP) {
            let sent = plant.exchange(INSIDE, &[datagram(&asks, INSIDE).bytes()]);
            let sent = the_one(sent, OUTSIDE);
            let outside = ends(&sent.frame);
            assert_eq!(outside.dst, asks.dst);
            assert!(outside.src.address.to_string().starts_with("203.0.113."));
            let back = datagram(&outside.reversed(), OUTSIDE);
            let back = the_one(plant.exchange(OUTSIDE, &[back.bytes()]), INSIDE);
            assert_eq!(ends(&back.frame), asks.reversed());
            assert_eq!(back.worker, sent.worker);
            used.insert(sent.worker);
        }
        assert_eq!(used.len(), owners, "all have some");
        assert_eq!(plant.flows().iter().sum::<usize>(), 60);
    });
}

#[test]
fn connections_and_pings_have_one_worker_for_both_directions() {
    each(|plant, _| {
        for asks in hosts(protocol::TCP) {
            let syn = segment(&asks, INSIDE, SYN, (100, 0));
            let sent = the_one(plant.exchange(INSIDE, &[syn.bytes()]), OUTSIDE);
            let outside = ends(&sent.frame);
            let answer = segment(&outside.reversed(), OUTSIDE, SYN | ACK, (300, 101));
            let back = the_one(plant.exchange(OUTSIDE, &[answer.bytes()]), INSIDE);
            assert_eq!(ends(&back.frame), asks.reversed());
            let ack = segment(&asks, INSIDE, ACK, (101, 301));
            let last = the_one(plant.exchange(INSIDE, &[ack.bytes()]), OUTSIDE);
            assert_eq!(ends(&last.frame), outside);
            assert_eq!((back.worker, last.worker), (sent.worker, sent.worker));
        }
        for asks in hosts(protocol::ICMP) {
            let ping = echo(&asks, INSIDE, 8, asks.src.port);
            let sent = the_one(plant.exchange(INSIDE, &[ping.bytes()]), OUTSIDE);
            let ident = u16::from_be_bytes([sent.frame[38], sent.frame[39]]);
            let pong = echo(&ends(&sent.frame).reversed(), OUTSIDE, 0, ident);
            let back = the_one(plant.exchange(OUTSIDE, &[pong.bytes()]), INSIDE);
            assert_eq!(ends(&back.frame).dst.address, asks.src.address);
            assert_eq!(back.frame[38..40], asks.src.port.to_be_bytes());
            assert_eq!(back.worker, sent.worker);
        }
    });
}

/// An error goes by what it quotes, from outside and from inside.
#[test]
fn errors_come_to_the_worker_that_has_the_flow_they_are_about() {
    each(|plant, _| {
        for asks in hosts(protocol::UDP) {
            let sent = plant.exchange(INSIDE, &[datagram(&asks, INSIDE).bytes()]);
            let sent = the_one(sent, OUTSIDE);
            let outside = ends(&sent.frame);
            let error = |from: [u8; 4], to: Endpoint, port, about: &[u8]| {
                let mut payload = vec![3, 1, 0, 0, 0, 0, 0, 0];
                payload.extend(&about[14..14 + 46]);
                let sum = !linerate_wire::checksum::sum(&payload);
                payload[2..4].copy_from_slice(&sum.to_be_bytes());
                let tuple = Tuple {
                    src: Endpoint::new(from, 0),
                    dst: to,
                    protocol: protocol::ICMP,
                };
                frame(&tuple, port, payload).bytes()
            };
            let told = error([10, 2, 0, 1], outside.src, OUTSIDE, &sent.frame);
            let told = the_one(plant.exchange(OUTSIDE, &[told]), INSIDE);
            assert_eq!(ends(&told.frame).dst.address, asks.src.address);
            assert_eq!(told.worker, sent.worker);
            let back = datagram(&outside.reversed(), OUTSIDE);
            let back = the_one(plant.exchange(OUTSIDE, &[back.bytes()]), INSIDE);
            let told = error([10, 1, 0, 1], asks.dst, INSIDE, &back.frame);
            let told = the_one(plant.exchange(INSIDE, &[told]), OUTSIDE);
            assert_eq!(told.worker, sent.worker);
        }
    });
}

/// Who receives the fragments puts them together, and hands the datagram over.
#[test]
fn fragments_come_to_the_owner_as_a_datagram() {
    each(|plant, _| {
        for asks in hosts(protocol::UDP).take(20) {
            let sent = plant.exchange(INSIDE, &[datagram(&asks, INSIDE).bytes()]);
            let sent = the_one(sent, OUTSIDE);
            let whole = datagram(&ends(&sent.frame).reversed(), OUTSIDE);
            let parts = [(0x2000, 0..16), (2, 16..26)].map(|(fragment, bytes)| {
                let payload = whole.payload[bytes].to_vec();
                Frame {
                    fragment,
                    payload,
                    ..whole.clone()
                }
                .bytes()
            });
            let back = the_one(plant.exchange(OUTSIDE, &parts), INSIDE);
            assert_eq!(ends(&back.frame), asks.reversed());
            assert_eq!(back.worker, sent.worker);
        }
    });
}

/// The rest of a burst from which others' packets went keeps what was known of each packet.
#[test]
fn a_burst_of_all_kinds_gives_what_its_packets_give_one_by_one() {
    let frames = || -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for (number, asks) in hosts(protocol::UDP).enumerate() {
            let asks = datagram(&asks, INSIDE);
            frames.push(match number % 6 {
                // For the gateway itself, without a route, not to be forwarded, not IP.
                0 => Frame {
                    dst: "198.51.100.1",
                    ..asks
                }
                .bytes(),
                1 => Frame {
                    dst: "100.64.0.1",
                    ..asks
                }
                .bytes(),
                2 => Frame { ttl: 1, ..asks }.bytes(),
                3 => [&LAN_MAC.0[..], &[2; 6], &[8, 6], &[0; 46]].concat(),
                _ => asks.bytes(),
            });
        }
        frames
    };
    for handing in [Handing::Among, Handing::ToEu] {
        let count = |all: Vec<Out>| {
            let mut counts = BTreeMap::new();
            for out in all {
                // Its time to live and protocol.
                let key = (out.port, out.frame.len(), out.frame[22..24].to_vec());
                *counts.entry(key).or_insert(0) += 1;
            }
            counts
        };
        let drops = |plant: &Plant| {
            let mut all = BTreeMap::new();
            for handle in &plant.handles {
                for (name, count) in handle.stats().drops() {
                    *all.entry(name).or_insert(0) += count;
                }
            }
            all
        };
        let mut plant = Plant::new(handing, 3, nat());
        let at_once = count(plant.exchange(INSIDE, &frames()));
        let mut other = Plant::new(handing, 3, nat());
        let one_by_one = frames()
            .iter()
            .flat_map(|frame| other.exchange(INSIDE, std::slice::from_ref(frame)))
            .collect();
        assert_eq!(at_once, count(one_by_one));
        let dropped = drops(&plant);
        assert_eq!(dropped, drops(&other));
        let reasons: Vec<&str> = dropped.keys().map(String::as_str).collect();
        assert_eq!(reasons, ["no_route", "ttl_exceeded"]);
    }
}

/// A worker that does not take its packets costs those alone: nobody waits for it.
#[test]
fn a_full_ring_drops_and_is_counted() {
    let mut plant = Plant::new(Handing::Among, 2, nat());
    let asleep = plant.workers.remove(1);
    // A port of bucket 1, which is the other's.
    let tuple = Tuple {
        src: Endpoint::new([192, 0, 2, 7], 53),
        dst: Endpoint::new([203, 0, 113, 1], 1026),
        protocol: protocol::UDP,
    };
    let frames = vec![datagram(&tuple, OUTSIDE).bytes(); 64];
    for _ in 0..65 {
        assert!(plant.exchange(OUTSIDE, &frames).is_empty());
    }
    let drops = plant.handles[0].stats().drops();
    assert_eq!(drops, [(format!("tx_full.port{}", FIRST + 1), 64)]);
    drop(asleep);
}
