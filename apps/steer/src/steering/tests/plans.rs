//! Who owns what, for all kinds of NIC and numbers of lcores.

use linerate_dispatch::Owners;
use linerate_tables::rss::{Model, PROFILES, Profile, Reta, SYMMETRIC_KEY, Symmetry};
use linerate_testkit::Random;
use linerate_wire::{FlowKey, FlowKey4, FlowKey6};

use crate::steering::plan::{Arrival, Member, Plan, PortPlan};
use crate::steering::port_rule::{Choice, PortRule};

/// Any 4-tuple of TCP.
pub(super) fn any_key(random: &mut Random) -> FlowKey {
    let mut bytes = [0; 36];
    bytes.fill_with(|| random.below(256) as u8);
    let ports = [32, 34].map(|at| u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    match random.below(2) {
        0 => {
            let (src, dst) = (
                *bytes.first_chunk().unwrap(),
                *bytes[4..].first_chunk().unwrap(),
            );
            FlowKey::V4(FlowKey4::new(src, dst, ports[0], ports[1], 6))
        }
        _ => {
            let (src, dst) = (
                *bytes.first_chunk().unwrap(),
                *bytes[16..].first_chunk().unwrap(),
            );
            FlowKey::V6(FlowKey6::new(src, dst, ports[0], ports[1], 6))
        }
    }
}

/// The same with another destination port.
pub(super) fn to_port(key: &FlowKey, port: u16) -> FlowKey {
    match *key {
        FlowKey::V4(mut key) => {
            key.0[10..12].copy_from_slice(&port.to_be_bytes());
            FlowKey::V4(key)
        }
        FlowKey::V6(mut key) => {
            key.0[34..36].copy_from_slice(&port.to_be_bytes());
            FlowKey::V6(key)
        }
    }
}

/// The key that a profile has in the test: its own, a random one, or a symmetric one.
fn key_of(profile: &Profile, kind: usize, random: &mut Random) -> Vec<u8> {
    match kind {
        0 if profile.default_key.is_some() => profile.default_key.unwrap().to_vec(),
        0 | 1 => (0..profile.key_bytes)
            .map(|_| random.below(256) as u8)
            .collect(),
        _ => SYMMETRIC_KEY
            .iter()
            .cycle()
            .take(profile.key_bytes)
            .copied()
            .collect(),
    }
}

/// The lcore that a packet with this key comes to, or its distributor says.
fn owner(plan: &Plan, key: &FlowKey) -> Member {
    plan.port(0).unwrap().owner(key).unwrap()
}

/// What is asked of a plan: a connection that an lcore begins gets its answers there, by a port
/// that the rule says; where the rule says none, there is none.
fn connections_come_home(plan: &Plan, cores: u8, random: &mut Random, name: &str) {
    // Some lcores of many: each has a rule of its own.
    for _ in 0..4 {
        let me = random.below(cores) as Member;
        let rule = PortRule::new(plan, 0, me, true);
        for _ in 0..8 {
            let answers = any_key(random);
            match rule.ports(&answers) {
                Choice::Any => assert_eq!(owner(plan, &answers), me, "{name}"),
                Choice::Among(ports) => {
                    let ports = ports.range(1024..=u16::MAX);
                    for _ in 0..4 {
                        let Some(port) = ports.pick(random.bits()) else {
                            break;
                        };
                        let key = to_port(&answers, port);
                        assert_eq!(owner(plan, &key), me, "{name}");
                        assert_eq!(plan.port(0).unwrap().owner(&key), Some(me));
                    }
                }
                Choice::Mapped => {
                    let mut ports = (1024..=u16::MAX).step_by(97);
                    let comes = |port| owner(plan, &to_port(&answers, port)) == me;
                    // Sorted tuples cannot be inverted, but have ports.
                    let sorted = plan.port(0).unwrap().model().symmetry() != Symmetry::None;
                    assert!(sorted || !ports.any(comes), "{name}: {me} has a port");
                }
                Choice::Nothing => panic!("{name}: there is a map"),
            }
        }
    }
}

#[test]
fn answers_come_home_for_1_to_64_cores_and_all_profiles_and_keys() {
    let seed = 11;
    let mut random = Random::new(seed);
    for cores in (1..=64_u8).filter(|cores| *cores < 9 || cores % 5 == 4) {
        for profile in PROFILES {
            for kind in 0..3 {
                let key = key_of(profile, kind, &mut random);
                let reta = Reta::round_robin(profile.reta_entries, cores.into()).unwrap();
                let nic = Model::new(profile, Some(&key), reta).unwrap();
                let polls: Vec<Member> = (0..cores).collect();
                for symmetry in [Symmetry::None, Symmetry::Xor, Symmetry::Sorted] {
                    let nic = nic.clone().symmetric(symmetry);
                    let port = PortPlan::hardware(&nic, &polls).unwrap();
                    // Inbound connections: the NIC's queue is the owner's.
                    let plan = Plan::new(vec![port], cores);
                    let name = format!("seed {seed}: {} {cores} {kind}", profile.name);
                    for _ in 0..8 {
                        let key = any_key(&mut random);
                        let flow = crate::steering::plan::flow(&key);
                        let queue = nic.queue(&flow, false).unwrap();
                        assert_eq!(owner(&plan, &key), queue as Member, "{name}");
                        if symmetry != Symmetry::None || kind == 2 && !profile.reversed_key {
                            // Under a symmetry both directions hash alike.
                            assert_eq!(owner(&plan, &key.reversed()), queue as Member, "{name}");
                        }
                    }
                    if symmetry == Symmetry::None || cores < 9 {
                        connections_come_home(&plan, cores, &mut random, &name);
                    }
                }
            }
        }
    }
}

#[test]
fn answers_come_home_by_the_secret_hash_for_1_to_64_cores() {
    let mut random = Random::new(5);
    for cores in 1..=64_u8 {
        let secret = std::array::from_fn(|_| random.below(256) as u8);
        let owners = Owners::dealt(cores.into());
        let port = PortPlan::software(&secret, &owners, Arrival::One(cores)).unwrap();
        let plan = Plan::new(vec![port], cores);
        assert!(plan.is_home(cores) && !plan.owns(cores));
        connections_come_home(&plan, cores, &mut random, &format!("{cores}"));
    }
}

/// Without knowledge of the key, tuples that meet on one lcore are apart under the next key.
#[test]
fn a_secret_key_spreads_what_another_key_brings_together() {
    let mut random = Random::new(1);
    let owners = Owners::dealt(8);
    let [a, b] = [0, 1].map(|_| {
        let secret = std::array::from_fn(|_| random.below(256) as u8);
        PortPlan::software(&secret, &owners, Arrival::One(0)).unwrap()
    });
    let keys: Vec<_> = (0..8000).map(|_| any_key(&mut random)).collect();
    let met: Vec<_> = keys.iter().filter(|key| a.owner(key) == Some(3)).collect();
    let again = met.iter().filter(|key| b.owner(key) == Some(3)).count();
    assert!(
        met.len() > 800 && again < met.len() / 5,
        "{} {again}",
        met.len()
    );
    assert_ne!(super::super::plan::secret(), super::super::plan::secret());
}

/// Lcores whose slots are moved to others: the rule goes by the table as it is.
#[test]
fn rules_follow_the_owners() {
    let mut random = Random::new(8);
    let secret = std::array::from_fn(|_| random.below(256) as u8);
    let mut owners = Owners::dealt(3);
    for bucket in 0..=u8::MAX {
        owners.set(bucket, random.below(2) as Member);
    }
    let port = PortPlan::software(&secret, &owners, Arrival::One(3)).unwrap();
    let plan = Plan::new(vec![port], 3);
    connections_come_home(&plan, 2, &mut random, "two of three");
    let nothing = PortRule::new(&plan, 0, 2, false);
    assert!(matches!(nothing, PortRule::Nothing));
    assert!(matches!(PortRule::new(&plan, 0, 2, true), PortRule::Mapped));
    assert!(
        matches!(PortRule::new(&plan, 7, 0, false), PortRule::Nothing),
        "no such port"
    );
}
