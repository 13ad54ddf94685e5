//! Router advertisements (RFC 4861 6.2).

use super::*;
use linerate_wire::ndp::{NdpOption, PrefixInfo, Router};

fn advertising(interval_s: u16) -> InterfaceConfig {
    let said = Advertise {
        interval_s,
        mtu: Some(1500),
        managed: true,
        ..Advertise::default()
    };
    InterfaceConfig {
        advertise: Some(said),
        ..lan()
    }
}

/// Times in milliseconds and router lifetimes of the advertisements meanwhile.
fn advertisements(world: &mut World, seconds: u64) -> Vec<(u64, u16)> {
    let (start, mut found) = (world.now_ns, Vec::new());
    for _ in 0..seconds * 10 {
        world.pass(100);
        found.extend(lifetimes(world).map(|s| ((world.now_ns - start) / MILLISECOND, s)));
        world.out.clear();
    }
    found
}

fn lifetimes(world: &World) -> impl Iterator<Item = u16> {
    world.out.frames().filter_map(|(_, frame)| {
        let accepted = ndp::accept(frame.get(14..)?).ok()?;
        accepted.message.router().map(|router| router.lifetime_s)
    })
}

fn solicit(world: &mut World) -> Result<(), Ignored> {
    let message = Message::RouterSolicitation {
        source_mac: Some(HOST),
    };
    world.hear(&nd(HOST, v6("fe80::7"), ndp::ALL_ROUTERS, message))
}

#[test]
fn rfc_4861_6_2_3_what_is_advertised() {
    let mut world = World::empty(Config::default());
    let mut interface = advertising(600);
    interface.addresses.push((ip("2001:db8:1::1"), 80));
    interface.addresses.push((ip("2001:db8::2"), 64)); // the same prefix again
    interface.addresses.push((ip("2001:db8:2::1"), 128));
    world.set(interface);
    world.out.clear();
    world.pass(600);
    let frame = world.out.frames().next().unwrap().1.to_vec();
    assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
    let accepted = ndp::accept(&frame[14..]).unwrap();
    assert_eq!(
        (accepted.src, accepted.dst),
        (v6("fe80::1"), ndp::ALL_NODES)
    );
    let router = Router {
        hop_limit: 64,
        managed: true,
        other: false,
        lifetime_s: 1800,
        reachable_ms: 0,
        retransmit_ms: 0,
    };
    assert_eq!(accepted.message.router(), Some(router));
    let prefix = |prefix, len| {
        NdpOption::Prefix(PrefixInfo {
            prefix: v6(prefix),
            len,
            on_link: true,
            autonomous: len == 64,
            valid_s: 2_592_000,
            preferred_s: 604_800,
        })
    };
    let options: Vec<_> = accepted.message.options().collect();
    let wanted = [
        NdpOption::SourceMac(US),
        NdpOption::Mtu(1500),
        prefix("2001:db8::", 64),
        prefix("2001:db8:1::", 80),
    ];
    assert_eq!(options, wanted);
}

#[test]
fn rfc_4861_6_2_4_three_soon_and_then_at_random_within_the_interval() {
    for seed in 0..5 {
        let mut world = World::empty(Config {
            seed,
            ..Config::default()
        });
        world.set(advertising(600));
        world.out.clear();
        let times: Vec<u64> = advertisements(&mut world, 4000)
            .iter()
            .map(|ra| ra.0)
            .collect();
        let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(times[0] <= 600, "{times:?}");
        assert!(
            gaps[..2].iter().all(|gap| (16_000..=16_100).contains(gap)),
            "{gaps:?}"
        );
        assert!(
            gaps[2..]
                .iter()
                .all(|gap| (198_000..=600_100).contains(gap)),
            "{gaps:?}"
        );
        assert!(gaps.len() >= 7);
    }
}

#[test]
fn rfc_4861_6_2_6_solicitations_are_answered_soon_and_together() {
    let mut world = World::with(Config::default(), advertising(1800));
    advertisements(&mut world, 60);
    for _ in 0..10 {
        solicit(&mut world).unwrap();
    }
    let answers = advertisements(&mut world, 10);
    assert_eq!(answers.len(), 1);
    assert!(answers[0].0 <= 600);
    // MIN_DELAY_BETWEEN_RAS: one in three seconds, for any number of solicitations.
    let mut times = Vec::new();
    for second in 0..60 {
        solicit(&mut world).unwrap();
        let found = advertisements(&mut world, 1);
        times.extend(found.iter().map(|ra| second * 1000 + ra.0));
    }
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] >= 3000),
        "{times:?}"
    );
    assert!((14..=20).contains(&times.len()), "{times:?}");
    assert_eq!(world.mac("fe80::7"), Some(HOST), "learned as a host");
}

#[test]
fn rfc_4861_6_2_6_an_interface_that_does_not_advertise_does_not_answer() {
    let mut world = World::new();
    assert_eq!(solicit(&mut world), Err(Ignored::NotForUs));
    assert!(advertisements(&mut world, 10).is_empty() && world.table.is_empty());
}

#[test]
fn rfc_4861_6_2_5_the_last_one_has_a_lifetime_of_zero() {
    let end = |last: fn(&mut World)| {
        let mut world = World::with(Config::default(), advertising(600));
        advertisements(&mut world, 60);
        last(&mut world);
        lifetimes(&world).collect::<Vec<_>>()
    };
    assert_eq!(end(|world| world.table.shutdown(&mut world.out)), [0]);
    assert_eq!(
        end(|world| world.table.remove_interface(0, &mut world.out)),
        [0]
    );
    assert_eq!(end(|world| world.set(lan())), [0]);
    assert_eq!(
        end(|world| world.set(advertising(600))),
        [0; 0],
        "nothing has changed"
    );
}

#[test]
fn rfc_4861_6_2_4_a_change_is_advertised_soon() {
    let mut world = World::with(Config::default(), advertising(1800));
    advertisements(&mut world, 100);
    world.set(advertising(1700));
    assert!(advertisements(&mut world, 5)[0].0 <= 600);
}

#[test]
fn rfc_4861_4_2_nothing_is_advertised_from_a_tentative_address() {
    let mut world = World::empty(Config::default());
    let interface = InterfaceConfig {
        detect6: true,
        ..advertising(600)
    };
    world.set(interface);
    let first = advertisements(&mut world, 5)[0].0;
    assert!((1000..=4100).contains(&first), "{first}");
}
