//! Users' lives, from attach to detach.

use crate::world::{Arrangement, ByApplication, ByHash, Faults, Kind, NET, SECOND, World, packet};
use linerate_epc::Link;
use linerate_epc::mme::State as MmeState;
use linerate_epc::ran::{Ran, State};

fn attach_all<A: Arrangement>(world: &mut World<A>) {
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(30 * SECOND);
}

/// Sends numbered packets from all users and to all of them; how many came out.
fn exchange<A: Arrangement>(world: &mut World<A>, count: u32) -> (usize, usize) {
    world.beyond.clear();
    world.at_users.clear();
    for number in 0..count {
        for id in world.ids() {
            let address = world
                .user(id, |ran, _, _| ran.address(id))
                .unwrap()
                .octets();
            let up = packet(address, NET, number);
            world.user(id, |ran, now, out| ran.send(now, id, &up, out));
            world.send_beyond(packet(NET, address, number));
        }
        world.run(SECOND / 100);
    }
    world.run(20 * SECOND);
    for (id, bytes) in std::mem::take(&mut world.at_users) {
        // What comes to a user is what was sent to that user.
        let address = world.user(id, |ran, _, _| ran.address(id)).unwrap();
        assert_eq!(bytes[16..20], address.octets());
        world.at_users.push((id, bytes));
    }
    (world.beyond.len(), world.at_users.len())
}

impl<A: Arrangement> World<A> {
    fn send_beyond(&mut self, packet: Vec<u8>) {
        self.deliver(Kind::Pgw, Link::Sgi, packet);
    }

    fn mme_counts(&mut self, what: impl Fn(&linerate_epc::mme::MmeCounts) -> u64) -> u64 {
        Self::sum(&mut self.mme, |mme| what(&mme.counts))
    }
}

fn life<A: Arrangement>(seed: u64, count: usize, users: u64, faults: Faults) {
    let mut world = World::<A>::new(seed, count, users);
    world.faults = faults;
    let n = users as usize;
    let is_perfect = faults.loss == 0;
    attach_all(&mut world);
    assert_eq!(
        World::<A>::sum(&mut world.sgw, |sgw| sgw.sessions() as u64),
        users
    );
    assert_eq!(
        World::<A>::sum(&mut world.hss, |hss| hss.users() as u64),
        users
    );

    // All have addresses of their own.
    let ids = world.ids();
    let addresses: std::collections::BTreeSet<_> = ids
        .iter()
        .map(|&id| world.user(id, |ran, _, _| ran.address(id)).unwrap())
        .collect();
    assert_eq!(addresses.len(), n);
    let (up, down) = exchange(&mut world, 3);
    match is_perfect && faults.twice == 0 {
        true => assert_eq!((up, down), (3 * n, 3 * n)),
        false => assert!(up > 2 * n && down > 2 * n, "{up} {down}"),
    }

    // Idle, and found: the packets that waited arrive.
    world.drive(State::Idle, |ran, now, id, out| ran.go_idle(now, id, out));
    world.run(60 * SECOND);
    let idle = World::<A>::sum(&mut world.mme, |mme| mme.users_in(MmeState::Idle) as u64);
    assert_eq!(idle, users);
    world.at_users.clear();
    for id in world.ids() {
        let address = world
            .user(id, |ran, _, _| ran.address(id))
            .unwrap()
            .octets();
        for number in 0..3 {
            world.send_beyond(packet(NET, address, number));
        }
        world.run(1_000_000);
    }
    world.run(60 * SECOND);
    if is_perfect {
        assert!(
            world
                .ids()
                .into_iter()
                .all(|id| world.state(id) == State::Connected)
        );
        assert!(world.mme_counts(|counts| counts.pagings) >= users);
    }
    match is_perfect && faults.twice == 0 {
        true => assert_eq!(world.at_users.len(), 3 * n),
        false => assert!(world.at_users.len() > 2 * n),
    }

    // Idle again, and a service request of their own.
    world.drive(State::Idle, |ran, now, id, out| ran.go_idle(now, id, out));
    world.run(60 * SECOND);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.service(now, id, out) || ran.attach(now, id, out)
    });
    world.run(60 * SECOND);
    let (up, down) = exchange(&mut world, 1);
    assert!(up > n / 2 && down > n / 2);

    // Half go while idle, half while connected.
    for id in world.ids().into_iter().step_by(2) {
        world.user(id, |ran, now, out| ran.go_idle(now, id, out));
    }
    world.run(60 * SECOND);
    world.drive(State::Off, |ran: &mut Ran, now, id, out| {
        ran.detach(now, id, out)
    });
    world.assert_empty();
    if is_perfect {
        assert_eq!(world.mme_counts(|counts| counts.attached), users);
        assert_eq!(world.mme_counts(|counts| counts.detached), users);
        assert_eq!(world.mme_counts(|counts| counts.rejected + counts.lost), 0);
    }
    assert!(count == 1 || world.handed_over > 0 || is_locked::<A>());
}

fn is_locked<A: Arrangement>() -> bool {
    std::any::type_name::<A>() == std::any::type_name::<ByHash>()
}

/// Whatever moment between connected and idle a packet for the user comes in, it arrives.
#[test]
fn what_comes_while_a_user_becomes_idle_is_not_forgotten() {
    let mut world = World::<ByApplication>::new(6, 1, 1);
    attach_all(&mut world);
    let id = world.ids()[0];
    let address = world.user(id, |ran, _, _| ran.address(id)).unwrap();
    let mut paged = 0;
    for moment in 0..150 {
        world.user(id, |ran, now, out| ran.go_idle(now, id, out));
        world.run(moment * 50_000);
        world.at_users.clear();
        world.send_beyond(packet(NET, address.octets(), 1));
        world.run(30 * SECOND);
        assert_eq!(world.at_users.len(), 1, "moment {moment}");
        paged += u32::from(world.state(id) == State::Connected);
        // One that got it before it went is idle now.
        world.drive(State::Connected, |ran, now, id, out| {
            ran.service(now, id, out)
        });
    }
    assert!((130..150).contains(&paged), "{paged}");
}

const FAULTY: Faults = Faults {
    loss: 10,
    twice: 8,
    jitter_ns: SECOND / 2,
};

#[test]
fn users_live_on_one_core() {
    life::<ByApplication>(1, 1, 20, Faults::default());
}

#[test]
fn users_live_on_three_cores_without_locks() {
    life::<ByApplication>(2, 3, 60, Faults::default());
}

#[test]
fn users_live_on_three_cores_by_hash_with_locks() {
    life::<ByHash>(3, 3, 60, Faults::default());
}

#[test]
fn datagrams_that_overtake_each_other_and_come_twice_change_nothing() {
    let faults = Faults { loss: 0, ..FAULTY };
    life::<ByApplication>(4, 2, 40, faults);
}

#[test]
fn lost_datagrams_are_sent_again() {
    for seed in 10..14 {
        life::<ByApplication>(seed, 3, 40, FAULTY);
        life::<ByHash>(seed, 3, 40, FAULTY);
    }
}

#[test]
fn a_load_of_all_users_keeps_all_cores_busy_and_leaves_nothing() {
    use linerate_epc::load::{Load, Profile};
    let (count, users) = (3, 90);
    let mut world = World::<ByApplication>::new(5, count, users);
    let profile = Profile {
        attaches_per_s: 30,
        ..Profile::default()
    };
    let now = world.now;
    let mut loads: Vec<Load> = (0..count)
        .map(|core| {
            let make = |ran: &mut Ran| Load::new(profile, ran, 3, core as u64, now).unwrap();
            world.with_ran(core, |ran, _, _| make(ran))
        })
        .collect();
    for round in 0..3000 {
        if round == 2000 {
            loads.iter_mut().for_each(Load::end);
        }
        for (core, load) in loads.iter_mut().enumerate() {
            world.with_ran(core, |ran, now, out| load.poll(now, 1000, ran, out));
        }
        world.run(SECOND / 50);
    }
    let sum = |what: fn(&Load) -> u64| loads.iter().map(what).sum::<u64>();
    assert!(loads.iter().all(|load| load.counts.attaches >= 20));
    assert!(sum(|load| load.counts.services) > users && sum(|load| load.counts.releases) > users);
    assert_eq!(
        sum(|load| load.counts.attaches),
        sum(|load| load.counts.detaches)
    );
    assert_eq!(sum(|load| load.counts.late), 0);
    let sent = sum(|load| load.counts.packets);
    assert_eq!(world.beyond.len() as u64, sent);
    assert!(sent > 10 * users);
    world.assert_empty();
}
