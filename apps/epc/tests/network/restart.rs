//! Nodes that restart, and what the others make of it (TS 23.007).

use crate::world::{
    Arrangement, ByApplication, ByHash, Kind, Outbox, SECOND, STATION_COUNT, World, mme_config,
};
use linerate_epc::mme::{self, Mme};
use linerate_epc::ran::State;
use linerate_epc::store::{Store, parts};
use linerate_epc::{Link, Node, Notice};

fn attached<A: Arrangement>(seed: u64) -> World<A> {
    let mut world = World::<A>::new(seed, 3, 30);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(10 * SECOND);
    world
}

fn connect_all_again<A: Arrangement>(world: &mut World<A>) {
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out) || ran.service(now, id, out)
    });
    world.run(10 * SECOND);
    assert_eq!(
        World::<A>::sum(&mut world.sgw, |sgw| sgw.sessions() as u64),
        30
    );
    assert_eq!(
        World::<A>::sum(&mut world.pgw, |pgw| pgw.sessions() as u64),
        30
    );
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

fn sgw<A: Arrangement>() {
    let mut world = attached::<A>(30);
    world.sgw = World::<A>::make_sgw(3, 30, 2, world.now);
    // Nobody says anything but echoes, once a minute: by them all hear of it.
    world.run(150 * SECOND);
    assert_eq!(World::<A>::sum(&mut world.mme, |mme| mme.counts.lost), 30);
    assert_eq!(World::<A>::sum(&mut world.mme, |mme| mme.users() as u64), 0);
    assert_eq!(World::<A>::sum(&mut world.pgw, |pgw| pgw.counts.lost), 30);
    assert_eq!(
        World::<A>::sum(&mut world.pgw, |pgw| pgw.sessions() as u64),
        0
    );
    assert!(
        world
            .ids()
            .into_iter()
            .all(|id| world.state(id) == State::Off)
    );
    connect_all_again(&mut world);
}

#[test]
fn ts_23_007_14_1_an_sgw_that_restarts_takes_its_sessions_with_it() {
    sgw::<ByApplication>();
    sgw::<ByHash>();
}

#[test]
fn ts_23_007_17_a_pgw_that_restarts_takes_its_sessions_with_it() {
    let mut world = attached::<ByApplication>(31);
    world.pgw = World::<ByApplication>::make_pgw(3, 30, 2, world.now);
    world.run(150 * SECOND);
    let lost = World::<ByApplication>::sum(&mut world.sgw, |sgw| sgw.counts.lost);
    assert_eq!(lost, 30);
    // The MME hears of it when it asks for something: the users have to attach again.
    world.drive(State::Idle, |ran, now, id, out| ran.go_idle(now, id, out));
    world.run(SECOND);
    for id in world.ids() {
        world.user(id, |ran, now, out| ran.service(now, id, out));
    }
    world.run(60 * SECOND);
    assert!(
        world
            .ids()
            .into_iter()
            .all(|id| world.state(id) == State::Off)
    );
    connect_all_again(&mut world);
}

#[test]
fn ts_23_007_an_mme_that_restarts_forgets_its_users() {
    let mut world = attached::<ByApplication>(32);
    for station in 0..STATION_COUNT {
        world.notice_all(Kind::Ran, Notice::Closed(Link::S1(station)));
    }
    for core in 0..3 {
        world.notice_one(Kind::Hss, core, Notice::Closed(Link::S6a(core as u16)));
    }
    world.mme = World::<ByApplication>::make_mme(3, 30, 2, world.now);
    assert!(
        world
            .ids()
            .into_iter()
            .all(|id| world.state(id) == State::Off)
    );
    world.connect_hss();
    world.connect_stations();
    world.run(SECOND);
    // The first session tells the SGW, which clears the others as it goes.
    let first = world.ids()[0];
    world.user(first, |ran, now, out| ran.attach(now, first, out));
    world.run(SECOND);
    assert_eq!(world.state(first), State::Connected);
    let sessions = World::<ByApplication>::sum(&mut world.sgw, |sgw| sgw.sessions() as u64);
    assert_eq!(sessions, 1);
    connect_all_again(&mut world);
}

#[test]
fn a_base_station_whose_connection_closes_leaves_its_users_idle() {
    let mut world = attached::<ByApplication>(33);
    let station = Link::S1(1);
    world.notice_all(Kind::Mme, Notice::Closed(station));
    world.run(10 * SECOND);
    let idle = |mme: &linerate_epc::mme::Mme| mme.users_in(linerate_epc::mme::State::Idle) as u64;
    let idle = World::<ByApplication>::sum(&mut world.mme, idle);
    assert!(
        (6..=9).contains(&idle),
        "{idle} of 30 users at one of 4 base stations"
    );
    world.notice_all(Kind::Ran, Notice::Closed(station));
    world.notice_all(Kind::Mme, Notice::Opened(station));
    world.notice_all(Kind::Ran, Notice::Opened(station));
    connect_all_again(&mut world);
}

/// Users at an MME that waits for so many answers at most.
pub(crate) fn attached_with(seed: u64, users: u64, requests: usize) -> World<ByApplication> {
    let mut world = World::<ByApplication>::unconnected(seed, 1, users);
    let (now, mut config) = (world.now, mme_config(users, 1));
    config.control.requests = requests;
    let make = |cores, core: u8| Mme::new(&config, cores, core, Link::S6a(core.into()), now);
    world.mme = ByApplication::arrange(parts(1, make).unwrap());
    world.connect_hss();
    world.connect_stations();
    world.run(SECOND);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(SECOND);
    world
}

fn in_state(world: &mut World<ByApplication>, state: mme::State) -> u64 {
    World::<ByApplication>::sum(&mut world.mme, |mme| mme.users_in(state) as u64)
}

#[test]
fn users_of_lost_base_stations_become_idle_however_many_they_are() {
    let mut world = attached_with(35, 60, 8);
    for station in 0..STATION_COUNT {
        world.notice_all(Kind::Mme, Notice::Closed(Link::S1(station)));
    }
    world.run(10 * SECOND);
    assert_eq!(in_state(&mut world, mme::State::Idle), 60);
    // An SGW that says nothing does not stop it either.
    let mut world = attached_with(36, 60, 8);
    world.faults.loss = 1;
    for station in 0..STATION_COUNT {
        world.notice_all(Kind::Mme, Notice::Closed(Link::S1(station)));
    }
    world.run(100 * SECOND);
    assert_eq!(in_state(&mut world, mme::State::Idle), 60);
}

#[test]
fn users_of_a_lost_base_station_are_found_however_often_others_are_lost() {
    let mut world = World::<ByApplication>::new(38, 1, 200);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(10 * SECOND);
    assert_eq!(in_state(&mut world, mme::State::Connected), 200);
    let (now, mut out) = (world.now, Outbox::default());
    world.mme[0].with(0, |mme| {
        mme.notice(now, Notice::Closed(Link::S1(1)), &mut out);
        // Each of the looks has but a part of the places.
        for _ in 0..20 {
            mme.notice(now, Notice::Closed(Link::S1(2)), &mut out);
            mme.notice(now, Notice::Opened(Link::S1(2)), &mut out);
            mme.poll(now, 64, &mut out);
        }
    });
    assert_eq!(in_state(&mut world, mme::State::Connected), 100);
}

#[test]
fn a_base_station_with_the_number_of_a_lost_one_has_none_of_its_users() {
    let mut world = attached::<ByApplication>(37);
    let station = Link::S1(1);
    world.record = Some(Vec::new());
    // Nobody has looked for its users when the other one is there.
    world.notice_all(Kind::Mme, Notice::Closed(station));
    world.notice_all(Kind::Mme, Notice::Opened(station));
    world.run(10 * SECOND);
    let idle = in_state(&mut world, mme::State::Idle);
    assert!((6..=9).contains(&idle), "{idle} of 30 users");
    let told = world.record.take().unwrap();
    let told = told.iter().filter(|said| said.from == Kind::Mme);
    assert_eq!(told.filter(|said| said.link == station).count(), 0);
}

#[test]
fn a_diameter_peer_that_says_nothing_is_given_up() {
    let mut world = attached::<ByApplication>(34);
    world.deaf_hss = true;
    world.run(100 * SECOND);
    let open = |mme: &linerate_epc::mme::Mme| {
        u64::from(mme.hss() == linerate_epc::s6a::connection::State::Open)
    };
    assert_eq!(World::<ByApplication>::sum(&mut world.mme, open), 0);
    // Who attaches now is refused at once.
    let id = world.ids()[0];
    world.user(id, |ran, now, out| ran.detach(now, id, out));
    world.run(30 * SECOND);
    world.user(id, |ran, now, out| ran.attach(now, id, out));
    world.run(SECOND);
    assert_eq!(world.state(id), State::Off);
    world.deaf_hss = false;
    for core in 0..3 {
        world.notice_one(Kind::Hss, core, Notice::Closed(Link::S6a(core as u16)));
    }
    world.connect_hss();
    world.run(SECOND);
    connect_all_again(&mut world);
}
