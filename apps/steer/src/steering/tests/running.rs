//! Connections of all kinds, over all kinds of arrival.

use linerate_dispatch::Owners;
use linerate_tables::rss::{Model, PROFILES, Reta};
use linerate_testkit::Random;
use linerate_testkit::frame::{MF, V4, arp, ethernet};
use linerate_wire::tcp::flag;
use linerate_wire::{FlowKey, FlowKey4, parse, protocol};

use super::hosts::{frame, ip};
use super::net::Net;
use super::plans::{any_key, to_port};
use crate::steering::map::Phase;
use crate::steering::plan::{Arrival, Member, Plan, PortPlan, SECRET_BYTES};
use crate::steering::port_rule::{Choice, PortRule};

pub(super) const SYN: u8 = flag::SYN;
pub(super) const ACK: u8 = flag::ACK;
const FIN: u8 = flag::FIN | flag::ACK;

/// How packets get to the lcores of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// A distributor that owns nothing.
    Distributor,
    /// One queue, whose lcore owns connections as well.
    OneQueue,
    Hardware,
    /// Queues whose hash nobody knows.
    Fanout,
}

pub(super) const KINDS: [Kind; 4] = [
    Kind::Distributor,
    Kind::OneQueue,
    Kind::Hardware,
    Kind::Fanout,
];

pub(super) fn plan(kind: Kind, cores: u8, random: &mut Random) -> (Plan, usize) {
    let secret: [u8; SECRET_BYTES] = std::array::from_fn(|_| random.below(256) as u8);
    let owners = Owners::dealt(cores.into());
    let all: Vec<Member> = (0..cores).collect();
    let software = |arrival| PortPlan::software(&secret, &owners, arrival).unwrap();
    let (port, members) = match kind {
        Kind::Distributor => (software(Arrival::One(cores)), cores + 1),
        Kind::OneQueue => (software(Arrival::One(0)), cores),
        Kind::Fanout => (software(Arrival::Any(all)), cores),
        Kind::Hardware => {
            let profile = &PROFILES[random.below(PROFILES.len())];
            let key: Vec<u8> = (0..profile.key_bytes)
                .map(|_| random.below(256) as u8)
                .collect();
            let reta = Reta::round_robin(profile.reta_entries, cores.into()).unwrap();
            let nic = Model::new(profile, Some(&key), reta).unwrap();
            (PortPlan::hardware(&nic, &all).unwrap(), cores)
        }
    };
    (Plan::new(vec![port], cores), members.into())
}

pub(super) fn net(kind: Kind, cores: u8, random: &mut Random) -> Net {
    let (plan, members) = plan(kind, cores, random);
    Net::new(plan, members, 1024, Some(512))
}

/// A connection of the test.
pub(super) struct Flow {
    /// As packets from the network have it.
    pub(super) key: FlowKey,
    pub(super) owner: Member,
    /// Numbers of both sides that come next: of the network, of the owner.
    pub(super) next: [u32; 2],
    pub(super) sent: Vec<u32>,
    /// Whether it was begun here, with an entry.
    pub(super) mapped: bool,
    pub(super) moved: bool,
}

impl Flow {
    /// A packet from the network, with so many bytes.
    pub(super) fn incoming(&mut self, net: &mut Net, flags: u8, len: u32, dice: usize) {
        let (seq, ack) = (self.next[0], self.next[1]);
        let bytes = frame(&self.key, flags, (seq, ack), len as usize);
        let controls = u32::from(flags & (flag::SYN | flag::FIN) != 0);
        self.next[0] = seq.wrapping_add(len + controls);
        self.sent.push(self.next[0]);
        let home = net.home(&bytes, dice);
        net.arrive(home, &bytes);
    }

    /// It goes to another lcore, and all has been said of that.
    pub(super) fn moves_to(&mut self, net: &mut Net, to: Member) {
        let key = self.key;
        net.on(self.owner, |steering, host, out, now_ns| {
            host.give(&key, to, now_ns, steering, out);
        });
        net.settle();
        (self.owner, self.moved) = (to, true);
    }

    /// It ends by a reset, which its owner accepts.
    pub(super) fn ends(&self, net: &mut Net) {
        net.on(self.owner, |steering, host, out, _| {
            host.connections.remove(&self.key);
            steering.ended(0, &self.key, out);
        });
    }

    /// A packet from the owner.
    pub(super) fn outgoing(&mut self, net: &mut Net, flags: u8, len: u32) {
        let (seq, ack) = (self.next[1], self.next[0]);
        let ack = if flags & ACK == 0 { 0 } else { ack };
        let bytes = frame(&self.key.reversed(), flags, (seq, ack), len as usize);
        let controls = u32::from(flags & (flag::SYN | flag::FIN) != 0);
        self.next[1] = seq.wrapping_add(len + controls);
        net.send(self.owner, &bytes);
    }
}

/// Opens a connection: from the network, or from a random lcore with any port or with one whose
/// answers come home.
pub(super) fn open(net: &mut Net, random: &mut Random, how: usize) -> Flow {
    let mut key = any_key(random);
    let cores = net.plan.owners();
    let mut flow = Flow {
        key,
        owner: net.plan.port(0).unwrap().owner(&key).unwrap(),
        next: [random.bits() as u32, random.bits() as u32],
        sent: Vec::new(),
        mapped: false,
        moved: false,
    };
    if how == 0 {
        flow.incoming(net, SYN, 0, random.below(64));
        net.settle();
        flow.outgoing(net, SYN | ACK, 0);
        flow.incoming(net, ACK, 0, random.below(64));
        net.settle();
        return flow;
    }
    flow.owner = random.below(cores) as Member;
    if how == 1 {
        let rule = PortRule::new(&net.plan, 0, flow.owner, true);
        if let Choice::Among(ports) = rule.ports(&key) {
            key = to_port(&key, ports.pick(random.bits()).unwrap());
        }
    }
    flow.key = key;
    flow.mapped = net.plan.port(0).unwrap().owner(&key) != Some(flow.owner);
    net.on(flow.owner, |_, host, _, _| {
        host.connections.entry(key).or_default();
    });
    net.sent();
    flow.outgoing(net, SYN, 0);
    net.settle();
    assert_eq!(net.sent().len(), 1, "the SYN leaves, once");
    flow.incoming(net, SYN | ACK, 0, random.below(64));
    net.settle();
    flow.outgoing(net, ACK, 0);
    flow
}

/// Each connection is on one lcore, which has got all its packets; there are no strays.
pub(super) fn all_are_home(net: &mut Net, flows: &[Flow], of: &str) {
    for flow in flows {
        assert_eq!(net.who_has(&flow.key), [flow.owner], "{of}");
        let came = net.on(flow.owner, |_, host, _, _| {
            host.connections[&flow.key].came.clone()
        });
        let (mut came, mut sent) = (came, flow.sent.clone());
        came.sort_unstable();
        sent.sort_unstable();
        assert_eq!(came, sent, "{of}");
    }
    for worker in &mut net.workers {
        assert_eq!(worker.stage.host().strays, [], "{of}");
    }
}

#[test]
fn both_directions_of_every_connection_are_on_one_lcore_and_maps_end_empty() {
    for (kind, cores) in KINDS
        .iter()
        .flat_map(|kind| [1, 2, 3, 6].map(|cores| (*kind, cores)))
    {
        let seed = u64::from(cores);
        let mut random = Random::new(seed);
        let mut net = net(kind, cores, &mut random);
        let of = format!("{kind:?} {cores}, seed {seed}");
        let mut flows: Vec<_> = (0..60)
            .map(|n| open(&mut net, &mut random, n % 3))
            .collect();
        let mapped = flows.iter().filter(|flow| flow.mapped).count();
        let homes = if kind == Kind::Fanout {
            usize::from(cores)
        } else {
            1
        };
        assert_eq!(net.entries(), mapped * homes, "{of}");
        for _ in 0..400 {
            let flow = &mut flows[random.below(60)];
            let len = random.below(100) as u32;
            match random.below(2) {
                0 => flow.incoming(&mut net, ACK, len, random.below(64)),
                _ => flow.outgoing(&mut net, ACK, len),
            }
        }
        net.settle();
        all_are_home(&mut net, &flows, &of);
        // They close: some from here first, some from there.
        for (number, flow) in flows.iter_mut().enumerate() {
            if number % 2 == 0 {
                flow.incoming(&mut net, FIN, 0, random.below(64));
                net.settle();
                flow.outgoing(&mut net, FIN, 0);
                net.settle();
                flow.incoming(&mut net, ACK, 0, random.below(64));
            } else {
                flow.outgoing(&mut net, FIN, 0);
                net.settle();
                flow.incoming(&mut net, FIN, 0, random.below(64));
                net.settle();
                flow.outgoing(&mut net, ACK, 0);
            }
            net.settle();
        }
        all_are_home(&mut net, &flows, &of);
        if kind != Kind::Fanout {
            let waiting = flows
                .iter()
                .enumerate()
                .filter(|(n, flow)| n % 2 == 1 && flow.mapped);
            assert_eq!(net.entries(), waiting.count(), "{of}: those in TIME-WAIT");
        }
        // Homes by fanout have seen one side's FIN at most each: they ask the owners, who have
        // closed by then.
        for flow in &flows {
            net.on(flow.owner, |_, host, _, _| {
                host.connections.remove(&flow.key)
            });
        }
        net.later(70);
        net.later(3 * 3600);
        assert_eq!(net.entries(), 0, "{of}");
        assert_eq!(net.drops(), [], "{of}");
        net.is_exact();
    }
}

#[test]
fn connections_move_while_data_flows() {
    for (kind, cores) in KINDS
        .iter()
        .flat_map(|kind| [2, 3, 6, 12].map(|cores| (*kind, cores)))
    {
        let seed = 100 + u64::from(cores);
        let mut random = Random::new(seed);
        let mut net = net(kind, cores, &mut random);
        let of = format!("{kind:?} {cores}, seed {seed}");
        let mut flows: Vec<_> = (0..30)
            .map(|n| open(&mut net, &mut random, n % 3))
            .collect();
        let mut moves = 0;
        for _ in 0..3_000 {
            let at = random.below(30);
            match random.below(8) {
                0 => {
                    // The test knows where it is once its parcel has come.
                    let key = flows[at].key;
                    let [owner] = net.who_has(&key)[..] else {
                        continue;
                    };
                    let to = random.below(cores) as Member;
                    if to != owner {
                        net.on(owner, |steering, host, out, now_ns| {
                            host.give(&key, to, now_ns, steering, out);
                        });
                        flows[at].moved = true;
                        moves += 1;
                    }
                }
                1 | 2 => {
                    let member = random.below(net.workers.len());
                    net.round(member as Member);
                }
                _ => flows[at].incoming(&mut net, ACK, 10, random.below(64)),
            }
        }
        net.settle();
        for flow in &mut flows {
            let [owner] = net.who_has(&flow.key)[..] else {
                panic!("{of}: {:?}", net.who_has(&flow.key));
            };
            flow.owner = owner;
        }
        all_are_home(&mut net, &flows, &of);
        assert!(moves > 100 && net.counts().followed > 0, "{of}");
        // All homes know: packets come straight to their owners.
        let before = net.counts().followed;
        for flow in &mut flows {
            flow.incoming(&mut net, ACK, 1, random.below(64));
        }
        net.settle();
        all_are_home(&mut net, &flows, &of);
        assert_eq!(net.counts().followed, before, "{of}");
        let away = net
            .workers
            .iter_mut()
            .map(|worker| worker.stage.steering().away.len());
        assert_eq!(away.sum::<usize>(), 0, "{of}: all have had their last word");
        // They end by resets, which their owners accept.
        for flow in &flows {
            flow.ends(&mut net);
        }
        net.settle();
        assert_eq!(net.entries(), 0, "{of}");
        assert_eq!(net.drops(), [], "{of}");
        net.later(200);
        net.is_exact();
    }
}

/// What comes elsewhere than the model says is counted, said once, and handed to where it says.
#[test]
fn a_nic_unlike_its_model_is_noticed_and_made_good() {
    let mut random = Random::new(4);
    let mut net = net(Kind::Hardware, 4, &mut random);
    let mut flows: Vec<_> = (0..30)
        .map(|n| open(&mut net, &mut random, n % 3))
        .collect();
    assert_eq!(net.counts().misdirected, 0);
    for _ in 0..200 {
        let flow = &mut flows[random.below(30)];
        let bytes = frame(&flow.key, ACK, (flow.next[0], flow.next[1]), 7);
        flow.next[0] = flow.next[0].wrapping_add(7);
        flow.sent.push(flow.next[0]);
        let wrong = (net.home(&bytes, 0) + 1 + random.below(3) as Member) % 4;
        net.arrive(wrong, &bytes);
    }
    net.settle();
    all_are_home(&mut net, &flows, "misdirected");
    assert_eq!(net.counts().misdirected, 200);
    let said: Vec<_> = (0..4)
        .filter_map(|member| net.on(member, |steering, _, _, _| steering.take_misdirected()))
        .collect();
    assert!((1..=4).contains(&said.len()));
    assert!(said[0].expected != said[0].came_to && said[0].to_string().contains("bench rss"));
    let again = net.on(said[0].came_to, |steering, _, _, _| {
        steering.take_misdirected()
    });
    assert_eq!(again, None);
    net.is_exact();
}

/// RFC 1122 4.2.3.9: errors get to the connection that they quote.
#[test]
fn rfc1122_4_2_3_9_icmp_errors_go_by_what_they_quote() {
    for kind in KINDS {
        let mut random = Random::new(21);
        let mut net = net(kind, 3, &mut random);
        let mut flows: Vec<_> = (0..30)
            .map(|n| open(&mut net, &mut random, n % 3))
            .collect();
        // One of them has moved.
        let to = (flows[0].owner + 1) % 3;
        flows[0].moves_to(&mut net, to);
        for flow in &flows {
            let quote = frame(&flow.key.reversed(), ACK, (5, 6), 20);
            let quote = &quote[14..];
            // A router somewhere says so.
            let (router, protocol, kind) = match flow.key {
                FlowKey::V4(key) => {
                    let (us, from) = (key.dst().octets(), [203, 0, 113, 9]);
                    (FlowKey::V4(FlowKey4::new(from, us, 0, 0, 1)), 1, 3)
                }
                FlowKey::V6(mut key) => {
                    key.0[0] ^= 1;
                    (FlowKey::V6(key), 58, 1)
                }
            };
            let mut message = vec![kind, 1, 0, 0, 0, 0, 0, 0];
            message.extend(&quote[..quote.len().min(60)]);
            let error = ip(&router, protocol, |_| message.clone());
            let home = net.home(&error, random.below(64));
            net.arrive(home, &error);
        }
        net.settle();
        for flow in &flows {
            let errors = net.on(flow.owner, |_, host, _, _| {
                host.errors
                    .iter()
                    .filter(|error| **error == flow.key)
                    .count()
            });
            assert_eq!(errors, 1, "{kind:?}");
        }
        net.is_exact();
    }
}

/// Fragments of a segment come by their addresses; the whole goes to its connection.
#[test]
fn fragments_are_dispatched_once_whole() {
    for kind in KINDS {
        let mut random = Random::new(31);
        let mut net = net(kind, 3, &mut random);
        let mut flows: Vec<_> = (0..30)
            .map(|n| open(&mut net, &mut random, n % 3))
            .collect();
        let mut whole = 0;
        for (id, flow) in (1..).zip(&mut flows) {
            let FlowKey::V4(key) = flow.key else {
                continue;
            };
            let bytes = frame(&flow.key, ACK, (flow.next[0], flow.next[1]), 100);
            flow.next[0] = flow.next[0].wrapping_add(100);
            flow.sent.push(flow.next[0]);
            let segment = &bytes[34..];
            let mut header = V4::new(&key.src().to_string(), &key.dst().to_string(), 6);
            header.id = id;
            let mut pieces = [(0, 48), (48, 96), (96, segment.len())].map(|(from, to)| {
                let more = if to < segment.len() { MF } else { 0 };
                header.fragment = more | (from / 8) as u16;
                ethernet([2; 6], [4; 6], 0x0800, &header.packet(&segment[from..to]))
            });
            pieces.rotate_left(random.below(3));
            for piece in pieces {
                let home = net.home(&piece, random.below(64));
                net.arrive(home, &piece);
            }
            whole += 1;
        }
        net.settle();
        all_are_home(&mut net, &flows, &format!("{kind:?}"));
        assert_eq!(net.counts().whole, whole, "{kind:?}");
        assert_eq!(net.drops(), []);
        net.is_exact();
    }
}

/// One fragment of a datagram that never becomes whole is held, and given up.
#[test]
fn fragments_without_the_rest_are_given_up() {
    let mut random = Random::new(32);
    let mut net = net(Kind::Distributor, 2, &mut random);
    let mut header = V4::new("192.0.2.1", "10.0.0.1", 6);
    header.fragment = MF;
    let piece = ethernet([2; 6], [4; 6], 0x0800, &header.packet(&[0; 48]));
    net.arrive(2, &piece);
    net.settle();
    let held = net.on(2, |steering, _, _, _| steering.held());
    assert_eq!(held, 1);
    net.later(31);
    assert_eq!(net.drops(), [("fragment_timeout".to_string(), 1)]);
    net.is_exact();
}

/// SYNs from the network make no entries, whatever their number, and entries go on to be made.
#[test]
fn floods_of_syns_do_not_fill_the_map() {
    for kind in KINDS {
        let mut random = Random::new(41);
        let (plan, members) = plan(kind, 3, &mut random);
        let mut net = Net::new(plan, members, 4096, Some(8));
        for member in 0..members {
            net.on(member as Member, |_, host, _, _| host.deaf = true);
        }
        for _ in 0..2_000 {
            let bytes = frame(&any_key(&mut random), SYN, (1, 0), 0);
            let home = net.home(&bytes, random.below(64));
            net.arrive(home, &bytes);
            if random.below(16) == 0 {
                net.settle();
            }
        }
        net.settle();
        assert_eq!(net.entries(), 0, "{kind:?}");
        let flow = open(&mut net, &mut random, 2);
        assert_eq!(net.who_has(&flow.key), [flow.owner], "{kind:?}");
        let strays: usize = net
            .workers
            .iter_mut()
            .map(|w| w.stage.host().strays.len())
            .sum();
        assert_eq!(strays, 2_000, "{kind:?} {:?}", flow.key);
        net.is_exact();
    }
}

/// A message that finds the ring full is lost, and counted; the owner is asked in time, and the
/// entry goes.
#[test]
fn an_entry_whose_end_was_not_heard_of_goes_when_its_owner_is_asked() {
    let mut random = Random::new(71);
    let mut net = net(Kind::Distributor, 2, &mut random);
    let mut flows: Vec<_> = (0..30).map(|_| open(&mut net, &mut random, 2)).collect();
    flows.retain(|flow| flow.mapped);
    let (gone, stay) = flows.split_at(flows.len() / 2);
    for flow in gone {
        // The host's word does not get through.
        net.on(flow.owner, |_, host, _, _| {
            host.connections.remove(&flow.key)
        });
    }
    net.later(2 * 3600 + 1);
    let asked = net.on(2, |steering, _, _, _| {
        steering.map().unwrap().counts().asked
    });
    assert_eq!((net.entries(), asked as usize), (stay.len(), flows.len()));
    net.on(2, |steering, _, _, _| {
        assert_eq!(steering.map().unwrap().in_phase(Phase::Open), stay.len());
    });
    net.is_exact();
}

/// A ring that is full drops, and says whose; nobody waits.
#[test]
fn a_full_ring_drops_and_counts() {
    let mut random = Random::new(81);
    let (plan, members) = plan(Kind::Distributor, 1, &mut random);
    let mut net = Net::new(plan, members, 64, Some(64));
    let key = any_key(&mut random);
    for number in 0..200 {
        net.arrive(1, &frame(&key, ACK, (number, 0), 0));
    }
    // The distributor alone has its rounds.
    while net.round(1) > 0 {}
    assert_eq!(net.drops(), [("tx_full.port1".to_string(), 200 - 64)]);
    net.settle();
    net.is_exact();
}

/// ARP answers and neighbour advertisements are for all stacks, requests for one.
#[test]
fn answers_of_neighbours_go_to_all_owners() {
    let mut random = Random::new(91);
    for kind in KINDS {
        let mut net = net(kind, 3, &mut random);
        let home = match kind {
            Kind::Distributor => 3,
            _ => 0,
        };
        let seen = |net: &mut Net| -> Vec<u64> {
            let all = (0..3).map(|member| net.on(member, |_, host, _, _| host.others));
            all.collect()
        };
        let (sender, target) = (([4; 6], "10.0.0.2"), ([2; 6], "10.0.0.1"));
        // Segments come before and between them: whose those are says nothing of the others.
        let segment = |net: &mut Net, owner: Member| {
            let key = |port| FlowKey4::new([10, 0, 0, 2], [10, 0, 0, 1], port, 80, protocol::TCP);
            let mut keys = (1024..).map(|port| FlowKey::V4(key(port)));
            let plan = net.plan.clone();
            let port = plan.port(0).unwrap();
            let key = keys.find(|key| port.owner(key) == Some(owner)).unwrap();
            let by = port.home(&key).unwrap_or(home);
            net.arrive(by, &frame(&key, flag::ACK, (1, 1), 0));
        };
        segment(&mut net, 2);
        segment(&mut net, 2);
        net.settle();
        for operation in [2, 1] {
            let frame = ethernet([2; 6], [4; 6], 0x0806, &arp(operation, sender, target));
            assert!(parse(&frame).is_ok());
            net.arrive(home, &frame);
            segment(&mut net, 0);
        }
        net.settle();
        assert_eq!(seen(&mut net), [2, 1, 1], "{kind:?}");
        net.is_exact();
    }
}

/// Frames of any bytes pass or are dropped, and no slot is lost.
#[test]
fn any_bytes_are_handled() {
    for kind in KINDS {
        let mut random = Random::new(101);
        let mut net = net(kind, 3, &mut random);
        let flows: Vec<_> = (0..9).map(|n| open(&mut net, &mut random, n % 3)).collect();
        for member in 0..net.workers.len() {
            net.on(member as Member, |_, host, _, _| host.deaf = true);
        }
        for _ in 0..3_000 {
            let flow = &flows[random.below(9)];
            let mut bytes = frame(&flow.key, random.below(64) as u8, (1, 1), random.below(60));
            for _ in 0..random.below(4) {
                let at = 12 + random.below(bytes.len() - 12);
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(14 + random.below(bytes.len() - 13));
            let home = random.below(net.workers.len()) as Member;
            let is_right = match net.plan.port(0).unwrap().arrival() {
                Arrival::One(one) => *one,
                _ => home % 3,
            };
            net.arrive(is_right, &bytes);
            if random.below(8) == 0 {
                net.settle();
            }
        }
        net.settle();
        net.later(70);
        net.is_exact();
    }
}
