//! The maps against an oracle: a plain `HashMap`, whose rules are written out once more.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use linerate_testkit::Random;
use linerate_wire::{FlowKey4, FlowKey6, tcp};

use super::*;

const MSL: u64 = 30_000;
const ASK: u64 = 100_000;

fn config(connections: usize) -> MapConfig {
    MapConfig {
        connections4: connections,
        connections6: connections,
        ask_ms: ASK,
        msl_ms: MSL,
        seed: Seed(7),
    }
}

fn key(number: u16) -> FlowKey {
    match number % 2 {
        0 => FlowKey::V4(FlowKey4::new([192, 0, 2, 1], [10, 0, 0, 1], 443, number, 6)),
        _ => FlowKey::V6(FlowKey6::new([1; 16], [2; 16], 443, number, 6)),
    }
}

fn segment(flags: u8, end: u32, ack: u32) -> Segment {
    Segment { flags, end, ack }
}

/// Polls until there is nothing more to do; who is asked.
fn poll(map: &mut Map, now: u64) -> Vec<(FlowKey, Member)> {
    let mut all = Vec::new();
    for _ in 0..8 {
        map.poll(now, &mut all);
    }
    all
}

/// What the oracle knows of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    owner: Member,
    moves: u16,
    phase: Phase,
    since: u64,
    /// Numbers behind the FINs of both sides.
    fins: [Option<u32>; 2],
    owner_closed_last: bool,
    /// A SYN came when it was closed.
    is_anew: bool,
}

#[derive(Default)]
struct Oracle(HashMap<FlowKey, Known>);

impl Oracle {
    fn new_entry(owner: Member, moves: u16, phase: Phase, since: u64) -> Known {
        Known {
            owner,
            moves,
            phase,
            since,
            fins: [None; 2],
            owner_closed_last: false,
            is_anew: false,
        }
    }

    fn enter(&mut self, now: u64, key: FlowKey, owner: Member) -> bool {
        let Some(known) = self.0.get_mut(&key) else {
            let entry = Self::new_entry(owner, 0, Phase::Opening, now);
            self.0.insert(key, entry);
            return true;
        };
        if known.owner != owner {
            return false;
        }
        known.since = now;
        if !matches!(known.phase, Phase::Opening | Phase::Open) {
            *known = Self::new_entry(owner, known.moves, Phase::Opening, now);
        }
        true
    }

    fn pin(&mut self, now: u64, key: FlowKey, owner: Member, moves: u16) {
        let Some(known) = self.0.get_mut(&key) else {
            let entry = Self::new_entry(owner, moves, Phase::Open, now);
            self.0.insert(key, entry);
            return;
        };
        if known.is_anew {
            *known = Self::new_entry(owner, moves, Phase::Open, now);
            return;
        }
        if (moves.wrapping_sub(known.moves) as i16) < 0 {
            return;
        }
        if known.owner == owner && known.phase == Phase::Asked {
            let is_ending = known.fins != [None; 2];
            known.phase = if is_ending { Phase::Fin } else { Phase::Open };
        } else if known.owner != owner && known.phase == Phase::Asked {
            known.phase = Phase::Open;
        }
        (known.owner, known.moves, known.since) = (owner, moves, now);
    }

    fn delete(&mut self, key: FlowKey, owner: Member) {
        if self.0.get(&key).is_some_and(|known| known.owner == owner) {
            self.0.remove(&key);
        }
    }

    fn observe(&mut self, now: u64, key: FlowKey, way: Way, segment: Segment) {
        let Some(known) = self.0.get_mut(&key) else {
            return;
        };
        let (syn, fin) = (
            segment.flags & flag::SYN != 0,
            segment.flags & flag::FIN != 0,
        );
        let (rst, ack) = (
            segment.flags & flag::RST != 0,
            segment.flags & flag::ACK != 0,
        );
        if rst || syn && fin {
            return;
        }
        let this = way as usize;
        let acks_other = ack && known.fins[1 - this] == Some(segment.ack);
        match known.phase {
            Phase::Closed if way == Way::In && syn && !ack && !known.is_anew => {
                (known.is_anew, known.owner_closed_last) = (true, false);
            }
            Phase::Closed if way == Way::In && known.owner_closed_last && acks_other => {
                self.0.remove(&key);
            }
            Phase::Closed if fin && known.fins[this] == Some(segment.end) => known.since = now,
            Phase::Closed => {}
            _ if fin => {
                known.fins[this] = Some(segment.end);
                let next = match acks_other {
                    true => Phase::Closed,
                    false if known.phase == Phase::Asked => Phase::Asked,
                    false => Phase::Fin,
                };
                known.owner_closed_last = next == Phase::Closed && way == Way::Out;
                if next != known.phase {
                    (known.phase, known.since) = (next, now);
                }
            }
            Phase::Opening if way == Way::In => {
                (known.phase, known.since) = (Phase::Open, now);
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: u64) -> Vec<(FlowKey, Member)> {
        let mut asked = Vec::new();
        self.0.retain(|key, known| {
            let timeout = match known.phase {
                Phase::Opening => 180_000,
                Phase::Open => ASK,
                Phase::Asked => 60_000,
                Phase::Fin | Phase::Closed => 2 * MSL,
            };
            if known.since + timeout > now {
                return true;
            }
            let is_asked = matches!(known.phase, Phase::Open | Phase::Fin)
                || known.phase == Phase::Closed && known.is_anew;
            if !is_asked {
                return false;
            }
            (known.phase, known.since) = (Phase::Asked, now);
            asked.push((*key, known.owner));
            true
        });
        asked
    }
}

#[test]
fn any_sequence_of_segments_and_messages_gives_what_the_oracle_says() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut map = Map::new(&config(64)).unwrap();
        let mut oracle = Oracle::default();
        let mut now = 1_000_000;
        let mut closed = 0;
        for round in 0..3_000 {
            let key = key(random.below(24) as u16);
            let owner = random.below(3) as Member;
            match random.below(16) {
                0 => {
                    let entered = map.enter(now, &key, owner).is_ok();
                    assert_eq!(entered, oracle.enter(now, key, owner), "{seed} {round}");
                }
                1 => {
                    let moves = random.below(4) as u16;
                    map.pin(now, &key, (owner, moves), None).unwrap();
                    oracle.pin(now, key, owner, moves);
                }
                2 if random.below(4) == 0 => {
                    map.delete(&key, owner);
                    oracle.delete(key, owner);
                }
                3 => now += random.below(40_000),
                _ => {
                    let flags = [
                        flag::SYN,
                        flag::SYN | flag::ACK,
                        flag::ACK,
                        flag::FIN | flag::ACK,
                        flag::FIN | flag::ACK,
                        flag::FIN,
                        flag::RST,
                        flag::SYN | flag::FIN,
                    ][random.below(8)];
                    let way = [Way::In, Way::Out][random.below(2)];
                    // Few numbers, so that they fit at times.
                    let end = 0xffff_fffe_u32.wrapping_add(random.below(3) as u32);
                    let ack = 0xffff_fffe_u32.wrapping_add(random.below(3) as u32);
                    let segment = segment(flags, end, ack);
                    map.observe(now, &key, way, &segment);
                    oracle.observe(now, key, way, segment);
                }
            }
            let (mut asked, mut expected) = (poll(&mut map, now), oracle.poll(now));
            let order = |(key, _): &(FlowKey, Member)| match key {
                FlowKey::V4(key) => key.0.to_vec(),
                FlowKey::V6(key) => key.0.to_vec(),
            };
            asked.sort_by_key(order);
            expected.sort_by_key(order);
            assert_eq!(asked, expected, "{seed} {round}");
            assert_eq!(map.len(), oracle.0.len(), "{seed} {round}");
            for (key, known) in &oracle.0 {
                let (phase, entry) = map.get(key).unwrap();
                let found = (phase, entry.owner, entry.moves);
                let expected = (known.phase, known.owner, known.moves);
                assert_eq!(found, expected, "{seed} {round}");
            }
            closed += map.in_phase(Phase::Closed);
        }
        assert!(closed > 0, "{seed}: some closed");
        for owner in 0..3 {
            map.remove_owner(owner);
        }
        poll(&mut map, now);
        assert!(map.is_empty() && map.owned(0) == 0);
    }
}

/// An open connection of owner 3.
fn open(now: u64) -> (Map, FlowKey) {
    let (mut map, key) = (Map::new(&config(8)).unwrap(), key(1000));
    map.enter(now, &key, 3).unwrap();
    assert_eq!(map.get(&key).unwrap().0, Phase::Opening);
    map.observe(
        now,
        &key,
        Way::In,
        &segment(flag::SYN | flag::ACK, 501, 101),
    );
    assert_eq!(map.get(&key).unwrap().0, Phase::Open);
    (map, key)
}

const FIN: u8 = flag::FIN | flag::ACK;

/// RFC 9293 3.6: the other side closes first, the owner later, and waits for one ACK (LAST-ACK).
#[test]
fn rfc9293_3_6_an_owner_that_closes_second_is_done_with_the_last_ack() {
    let (mut map, key) = open(0);
    map.observe(10, &key, Way::In, &segment(FIN, 602, 101));
    assert_eq!(map.get(&key).unwrap().0, Phase::Fin);
    map.observe(20, &key, Way::Out, &segment(FIN, 202, 602));
    assert_eq!(map.get(&key).unwrap().0, Phase::Closed);
    for ack in [201, 203] {
        map.observe(30, &key, Way::In, &segment(flag::ACK, 602, ack));
        assert_eq!(map.len(), 1, "not of the FIN");
    }
    map.observe(40, &key, Way::In, &segment(flag::ACK, 602, 202));
    assert!(map.is_empty() && map.counts().closed == 1);
}

/// The owner closes first, and is in TIME-WAIT: the other side's FIN finds it until 2 MSL are over,
/// which begin anew with a FIN that comes again (RFC 9293 3.10.7.8).
#[test]
fn rfc9293_3_10_7_8_an_owner_that_closes_first_is_found_for_2_msl() {
    let (mut map, key) = open(0);
    map.observe(10, &key, Way::Out, &segment(FIN, 202, 501));
    map.observe(20, &key, Way::In, &segment(flag::ACK, 501, 202));
    assert_eq!(map.get(&key).unwrap().0, Phase::Fin);
    map.observe(1000, &key, Way::In, &segment(FIN, 502, 202));
    map.observe(1000, &key, Way::In, &segment(flag::ACK, 502, 202));
    assert_eq!(map.get(&key).unwrap().0, Phase::Closed);
    poll(&mut map, 2 * MSL);
    map.observe(2 * MSL, &key, Way::In, &segment(FIN, 502, 202));
    // One with other numbers does not prolong it.
    map.observe(3 * MSL, &key, Way::In, &segment(FIN, 777, 202));
    assert_eq!(poll(&mut map, 4 * MSL - 1), []);
    assert_eq!(map.len(), 1);
    assert_eq!(poll(&mut map, 4 * MSL), []);
    assert!(map.is_empty() && map.counts().closed == 1);
}

/// Forged FINs, whatever their number, lose no entry of a connection that lives: at the end of 2
/// MSL its owner is asked, and says so.
#[test]
fn forged_fins_do_not_lose_a_connection() {
    let (mut map, key) = open(0);
    let mut random = Random::new(3);
    for _ in 0..10_000 {
        let (end, ack) = (random.bits() as u32, random.bits() as u32);
        map.observe(5, &key, Way::In, &segment(FIN, end, ack));
    }
    assert_eq!(map.get(&key).unwrap().0, Phase::Fin);
    assert_eq!(poll(&mut map, 5 + 2 * MSL), [(key, 3)]);
    map.pin(6 + 2 * MSL, &key, (3, 0), None).unwrap();
    assert_eq!(map.get(&key).unwrap().0, Phase::Fin);
    // And the real ones end it.
    map.observe(7 + 2 * MSL, &key, Way::In, &segment(FIN, 602, 101));
    map.observe(7 + 2 * MSL, &key, Way::Out, &segment(FIN, 202, 602));
    map.observe(7 + 2 * MSL, &key, Way::In, &segment(flag::ACK, 602, 202));
    assert!(map.is_empty());
}

/// RFC 5961 3.2: a RST may be blind, so it is the owner that says.
#[test]
fn rfc5961_3_2_a_reset_is_the_owners_to_accept() {
    let (mut map, key) = open(0);
    map.observe(1, &key, Way::In, &segment(flag::RST, 5, 0));
    assert_eq!(map.get(&key).unwrap().0, Phase::Open);
    map.delete(&key, 2);
    assert_eq!(map.len(), 1, "not its owner's word");
    map.delete(&key, 3);
    assert!(map.is_empty());
}

/// RFC 6191: a connection may begin in the TIME-WAIT of the last one with its 4-tuple.
#[test]
fn rfc6191_a_syn_begins_anew_in_time_wait() {
    let (mut map, key) = open(0);
    map.observe(10, &key, Way::Out, &segment(FIN, 202, 501));
    map.observe(20, &key, Way::In, &segment(FIN, 502, 202));
    assert_eq!(map.get(&key).unwrap().0, Phase::Closed);
    assert_eq!(map.enter(30, &key, 2), Err(Refused::Taken));
    map.enter(30, &key, 3).unwrap();
    assert_eq!(map.get(&key).unwrap().0, Phase::Opening);
    // No answer, and no other SYN.
    poll(&mut map, 30 + OPENING_MS);
    assert!(map.is_empty() && map.counts().expired == 1);
}

/// The owner has taken the other side's SYN in TIME-WAIT: the connection is there when the time of
/// the last one is over, and its entry stays, also if the last one had moved more often.
#[test]
fn rfc6191_a_connection_that_began_in_time_wait_keeps_its_entry() {
    for (owner, moves) in [(4, 0), (5, 1)] {
        let (mut map, key) = open(0);
        map.pin(0, &key, (4, 2), Some(0)).unwrap();
        map.observe(10, &key, Way::Out, &segment(FIN, 202, 501));
        map.observe(20, &key, Way::In, &segment(FIN, 502, 202));
        map.observe(30, &key, Way::In, &segment(flag::SYN, 9001, 0));
        assert_eq!(map.get(&key).unwrap().0, Phase::Closed);
        if moves > 0 {
            // It moves at once.
            assert_eq!(
                map.pin(40, &key, (owner, moves), Some(0)),
                Ok(Pinned::From(4))
            );
        } else {
            assert_eq!(poll(&mut map, 20 + 2 * MSL), [(key, 4)]);
            assert_eq!(
                map.pin(20 + 2 * MSL, &key, (owner, moves), Some(0)),
                Ok(Pinned::Kept)
            );
        }
        let (phase, entry) = map.get(&key).unwrap();
        assert_eq!(
            (phase, entry.owner, entry.moves),
            (Phase::Open, owner, moves)
        );
        assert_eq!(poll(&mut map, 20 + 2 * MSL), []);
        // It closes as any other.
        map.observe(3 * MSL, &key, Way::Out, &segment(FIN, 302, 601));
        map.observe(3 * MSL, &key, Way::In, &segment(FIN, 602, 302));
        poll(&mut map, 5 * MSL);
        assert!(map.is_empty() && map.counts().closed == 1);
    }
    // The owner has refused it.
    let (mut map, key) = open(0);
    map.observe(10, &key, Way::Out, &segment(FIN, 202, 501));
    map.observe(20, &key, Way::In, &segment(FIN, 502, 202));
    map.observe(30, &key, Way::In, &segment(flag::SYN, 9001, 0));
    assert_eq!(poll(&mut map, 20 + 2 * MSL), [(key, 3)]);
    map.delete(&key, 3);
    assert!(map.is_empty());
}

/// A packet with an entry's 4-tuple the wrong way round claims to be from here, and finds nothing.
#[test]
fn a_packet_from_outside_with_our_source_finds_no_entry() {
    let (map, key) = open(0);
    assert!(map.get(&key).is_some() && map.get(&key.reversed()).is_none());
}

#[test]
fn a_full_map_refuses_and_counts() {
    let mut map = Map::new(&config(4)).unwrap();
    for number in 0..8 {
        map.enter(0, &key(number), 1).unwrap();
    }
    assert_eq!(map.enter(0, &key(8), 1), Err(Refused::Full));
    assert_eq!(map.pin(0, &key(9), (1, 1), Some(0)), Err(Refused::Full));
    // One that is there may still move, and come again.
    assert_eq!(map.pin(0, &key(1), (2, 1), Some(0)), Ok(Pinned::From(1)));
    map.enter(0, &key(2), 1).unwrap();
    // One that has come back to where its hash finds it needs none.
    assert_eq!(map.pin(0, &key(10), (1, 1), Some(1)), Ok(Pinned::From(1)));
    assert_eq!((map.len(), map.owned(2), map.counts().refused), (8, 1, 2));
}

/// Messages of two moves come by two rings: the later move counts, whichever comes last.
#[test]
fn the_later_of_two_moves_counts() {
    for is_in_order in [true, false] {
        let mut map = Map::new(&config(4)).unwrap();
        let by_hash = Some(0);
        let (first, second) = ((1, 0xffff), (2, 0));
        if is_in_order {
            assert_eq!(map.pin(0, &key(1), first, by_hash), Ok(Pinned::From(0)));
            assert_eq!(map.pin(0, &key(1), second, by_hash), Ok(Pinned::From(1)));
        } else {
            assert_eq!(map.pin(0, &key(1), second, by_hash), Ok(Pinned::From(0)));
            assert_eq!(map.pin(0, &key(1), first, by_hash), Ok(Pinned::Stale));
        }
        assert_eq!(map.get(&key(1)).unwrap().1.owner, 2);
    }
}

/// What TCP headers say that lie: none reads beyond its bytes.
#[test]
fn segments_are_read_within_their_bytes() {
    let mut random = Random::new(9);
    for _ in 0..100_000 {
        let len = random.below(80);
        let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        if let Some(read) = Segment::read(&bytes) {
            assert!(len >= 20 && read.flags == bytes[13]);
        }
    }
    let mut bytes = tcp::header(1, 2, u32::MAX, 7, flag::SYN).to_vec();
    bytes.extend([0; 3]);
    assert_eq!(Segment::read(&bytes), Some(segment(flag::SYN, 3, 7)));
}
