//! What maps have no room for, and whose a 4-tuple is that two lcores want.

use linerate_testkit::Random;
use linerate_wire::{FlowKey, FlowKey4, protocol};

use super::hosts::frame;
use super::net::Net;
use super::plans::any_key;
use super::running::{ACK, Flow, KINDS, Kind, SYN, all_are_home, net, open, plan};
use crate::steering::plan::Member;

/// An lcore's SYN for this 4-tuple does not leave, and its host hears of it.
fn is_refused(net: &mut Net, from: Member, key: &FlowKey, of: &str) {
    net.send(from, &frame(&key.reversed(), SYN, (1, 0), 0));
    net.settle();
    net.later(0);
    assert_eq!(net.sent(), [], "{of}");
    let refused = net.on(from, |_, host, _, _| std::mem::take(&mut host.refused));
    assert_eq!(refused, [*key], "{of}");
}

/// A map without room: the SYN does not leave, its owner hears of it, and old connections go on.
#[test]
fn a_full_map_refuses_and_its_owner_hears_of_it() {
    for kind in [
        Kind::Distributor,
        Kind::OneQueue,
        Kind::Hardware,
        Kind::Fanout,
    ] {
        let mut random = Random::new(51);
        let (plan, members) = plan(kind, 2, &mut random);
        let mut net = Net::new(plan, members, 1024, Some(4));
        let mut refused = 0;
        let mut left = 0;
        for _ in 0..40 {
            let key = any_key(&mut random);
            let owner = 1 - net.plan.port(0).unwrap().owner(&key).unwrap();
            let syn = frame(&key.reversed(), SYN, (1, 0), 0);
            net.send(owner, &syn);
            net.settle();
            left += net.sent().len();
            net.later(0);
            refused += net.on(owner, |_, host, _, _| {
                let all = std::mem::take(&mut host.refused);
                assert!(all.iter().all(|known| *known == key));
                all.len()
            });
        }
        assert!(
            left >= 8 && left + refused == 40,
            "{kind:?} {left} {refused}"
        );
        let dropped = ("steer_no_entry".to_string(), refused as u64);
        let sum: u64 = net.drops().iter().map(|(_, count)| count).sum();
        assert!(net.drops().iter().all(|(name, _)| *name == dropped.0) && sum == dropped.1);
        // Nobody answers: they end.
        net.later(200);
        assert_eq!(net.entries(), 0);
        net.is_exact();
    }
}

/// Connections that have moved and find no room in the map: packets of theirs come by their former
/// owners as long as they live, however long they are idle; then nothing of them is left.
#[test]
fn what_a_full_map_does_not_take_goes_by_its_former_owner() {
    for kind in KINDS {
        let mut random = Random::new(52);
        let (plan, members) = plan(kind, 3, &mut random);
        let mut net = Net::new(plan, members, 1024, Some(4));
        let of = format!("{kind:?}");
        let mut flows: Vec<_> = (0..40).map(|_| open(&mut net, &mut random, 0)).collect();
        for round in 0..3 {
            for flow in &mut flows {
                let to = (flow.owner + 1) % 3;
                flow.moves_to(&mut net, to);
            }
            for minutes in 1..=10 {
                net.later((round * 10 + minutes) * 61);
            }
            for flow in &mut flows {
                flow.incoming(&mut net, ACK, 10, random.below(64));
            }
            net.settle();
            all_are_home(&mut net, &flows, &of);
        }
        // Half of them end, and there is room: the others get their entries when asked.
        let ended = flows.split_off(30);
        for flow in &ended {
            flow.ends(&mut net);
        }
        for minutes in 31..=60 {
            net.later(minutes * 61);
        }
        for flow in &mut flows {
            flow.incoming(&mut net, ACK, 10, random.below(64));
        }
        net.settle();
        all_are_home(&mut net, &flows, &of);
        for flow in &flows {
            flow.ends(&mut net);
        }
        for minutes in 61..=80 {
            net.later(minutes * 61);
        }
        let away = net
            .workers
            .iter_mut()
            .map(|worker| worker.stage.steering().away.len());
        assert_eq!(away.sum::<usize>(), 0, "{of}");
        assert_eq!(net.entries(), 0, "{of}");
        net.is_exact();
    }
}

/// One of two homes has room and the other has not: packets come straight by the one, and by the
/// former owner where the other sends them, for as long as the connection lives.
#[test]
fn homes_with_different_maps_all_have_to_say_that_they_send_no_more() {
    let mut random = Random::new(55);
    let (plan, members) = plan(Kind::Fanout, 2, &mut random);
    let mut net = Net::new(plan, members, 1024, Some(1));
    let mut flow = loop {
        let key = any_key(&mut random);
        if matches!(key, FlowKey::V4(_)) && net.plan.port(0).unwrap().owner(&key) == Some(0) {
            break Flow {
                key,
                owner: 0,
                next: [1, 1],
                sent: Vec::new(),
                mapped: false,
                moved: true,
            };
        }
    };
    flow.incoming(&mut net, SYN, 0, 0);
    net.settle();
    let other = FlowKey::V4(FlowKey4::new([9; 4], [8; 4], 7, 6, protocol::TCP));
    net.on(0, |steering, host, _, now_ns| {
        let map = steering.map.as_mut().unwrap();
        map.pin(now_ns / 1_000_000, &other, (0, 1), Some(0))
            .unwrap();
        host.connections.entry(other).or_default();
    });
    flow.moves_to(&mut net, 1);
    for minutes in 1..=10 {
        net.later(minutes * 61);
    }
    for dice in [0, 1] {
        flow.incoming(&mut net, ACK, 10, dice);
        net.settle();
        all_are_home(&mut net, std::slice::from_ref(&flow), "different maps");
    }
    // There is room, and all homes hear of it.
    net.on(0, |steering, host, _, _| {
        host.connections.remove(&other);
        steering.map.as_mut().unwrap().delete(&other, 0);
    });
    for minutes in 11..=20 {
        net.later(minutes * 61);
    }
    let away = net
        .workers
        .iter_mut()
        .map(|worker| worker.stage.steering().away.len());
    assert_eq!((away.sum::<usize>(), net.entries()), (0, 2));
    for dice in [0, 1] {
        flow.incoming(&mut net, ACK, 10, dice);
    }
    net.settle();
    all_are_home(&mut net, std::slice::from_ref(&flow), "room");
    net.is_exact();
}

/// An owner that does not answer is asked a few times.
#[test]
fn what_went_to_an_owner_that_has_ended_is_forgotten() {
    let mut random = Random::new(53);
    let (plan, members) = plan(Kind::Hardware, 3, &mut random);
    let mut net = Net::new(plan, members, 1024, Some(1));
    let flows: Vec<_> = (0..20).map(|_| open(&mut net, &mut random, 0)).collect();
    for flow in &flows {
        let key = flow.key;
        net.on(flow.owner, |steering, _, _, now_ns| {
            assert!(steering.give(0, &key, 2 - flow.owner / 2 * 2, now_ns));
        });
    }
    let away = |net: &mut Net| -> usize {
        let all = net.workers.iter_mut();
        all.map(|worker| worker.stage.steering().away.len()).sum()
    };
    assert_eq!(away(&mut net), 20);
    // Nobody has rounds but they.
    for minutes in 1..=6 {
        let now_ns = net.clock.ns(net.clock.now()) + minutes * 61_000_000_000;
        let now = net.clock.ticks(now_ns);
        for worker in &mut net.workers {
            for _ in 0..16 {
                linerate_core::run::Stage::turn(
                    &mut worker.stage,
                    now,
                    &mut (),
                    &mut worker.egress,
                );
            }
        }
    }
    assert_eq!(away(&mut net), 0);
    net.workers
        .iter_mut()
        .for_each(|worker| worker.egress.flush());
    net.settle();
    net.is_exact();
}

/// A 4-tuple is one lcore's at a time: a SYN takes no connection from the owner by hash, nor does
/// that owner's SYN take one that another lcore has an entry for.
#[test]
fn a_syn_takes_no_connection_from_another_lcore() {
    for kind in KINDS {
        let mut random = Random::new(54);
        let mut net = net(kind, 3, &mut random);
        let of = format!("{kind:?}");
        let mut flows: Vec<_> = (0..30)
            .map(|n| open(&mut net, &mut random, n % 3))
            .collect();
        // One has moved.
        let to = (flows[0].owner + 1) % 3;
        flows[0].moves_to(&mut net, to);
        net.sent();
        let entries = net.entries();
        for flow in &flows {
            for from in (0..3).filter(|&from| from != flow.owner) {
                is_refused(&mut net, from, &flow.key, &of);
            }
        }
        assert_eq!(net.entries(), entries, "{of}");
        for flow in &mut flows {
            flow.incoming(&mut net, ACK, 10, random.below(64));
        }
        net.settle();
        all_are_home(&mut net, &flows, &of);
        net.is_exact();
    }
}

/// The owner by hash has forgotten a connection that has moved from it and is in no map; its own
/// SYN does not take the 4-tuple either.
#[test]
fn a_syn_takes_no_connection_that_came_by_its_lcore() {
    for kind in KINDS {
        let mut random = Random::new(56);
        let (plan, members) = plan(kind, 3, &mut random);
        let mut net = Net::new(plan, members, 1024, Some(1));
        let of = format!("{kind:?}");
        let mut flows: Vec<_> = (0..20).map(|_| open(&mut net, &mut random, 0)).collect();
        for flow in &mut flows {
            let (key, from) = (flow.key, flow.owner);
            flow.moves_to(&mut net, (from + 1) % 3);
            net.sent();
            // Also of those for which there was no room.
            net.on(from, |_, host, _, _| host.refused.clear());
            is_refused(&mut net, from, &key, &of);
        }
        for flow in &mut flows {
            flow.incoming(&mut net, ACK, 10, random.below(64));
        }
        net.settle();
        all_are_home(&mut net, &flows, &of);
        net.is_exact();
    }
}

/// A connection that is begun and given up in one turn leaves no entry behind.
#[test]
fn what_is_begun_and_ended_in_one_turn_has_no_entry() {
    for kind in KINDS {
        let mut random = Random::new(57);
        let mut net = net(kind, 3, &mut random);
        for _ in 0..60 {
            let key = any_key(&mut random);
            let from = random.below(3) as Member;
            net.send(from, &frame(&key.reversed(), SYN, (1, 0), 0));
            net.on(from, |steering, _, out, _| steering.ended(0, &key, out));
            net.settle();
            for member in 0..3 {
                net.on(member, |_, host, _, _| host.deaf = true);
            }
            let answer = frame(&key, SYN | ACK, (1, 2), 0);
            let home = net.home(&answer, random.below(64));
            net.arrive(home, &answer);
            net.settle();
        }
        assert_eq!(net.entries(), 0, "{kind:?}");
        net.is_exact();
    }
}

/// An owner that has ended: its entries go, the others' stay.
#[test]
fn entries_of_an_owner_that_has_ended_go() {
    for kind in [Kind::OneQueue, Kind::Hardware, Kind::Fanout] {
        let mut random = Random::new(61);
        let mut net = net(kind, 3, &mut random);
        let flows: Vec<_> = (0..90).map(|_| open(&mut net, &mut random, 2)).collect();
        net.later(5);
        let homes = if kind == Kind::Fanout { 3 } else { 1 };
        let mapped = flows.iter().filter(|flow| flow.mapped);
        assert_eq!(net.entries(), mapped.count() * homes, "{kind:?}");
        // As where its thread panics: it is dropped, with its map.
        let gone = net.workers.pop().unwrap();
        drop(gone);
        net.later(10);
        let plan = net.plan.clone();
        let others = flows.iter().filter(|flow| flow.mapped && flow.owner != 2);
        let left: usize = others
            .map(|flow| match plan.port(0).unwrap().home(&flow.key) {
                Some(2) => 0,
                Some(_) => 1,
                None => 2,
            })
            .sum();
        assert!(left > 0);
        assert_eq!(net.entries(), left, "{kind:?}");
    }
}
