//! Where users are: one MME and another, connections that come again, attaches under another
//! user's number (TS 29.272 5.2.1, TS 24.301 5.5.1.2.7).

use crate::restart::attached_with;
use crate::world::{ByApplication, HSS, Kind, SECOND, World, identity};
use linerate_epc::Link;
use linerate_epc::mme::State as MmeState;
use linerate_epc::ran::State;
use linerate_epc::s1::{self, Message, cause};
use linerate_epc::s6a::{self, command};
use linerate_wire::diameter::Diameter;
use linerate_wire::gtpc::ie::Imsi;

type Net = World<ByApplication>;

fn attached(seed: u64, count: usize, users: u64) -> Net {
    let mut world = Net::new(seed, count, users);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(10 * SECOND);
    world.record = Some(Vec::new());
    world
}

fn imsi(world: &mut Net, id: u32) -> Imsi {
    world.user(id, |ran, _, _| ran.imsi(id)).unwrap()
}

fn in_state(world: &mut Net, state: MmeState) -> u64 {
    Net::sum(&mut world.mme, |mme| mme.users_in(state) as u64)
}

/// How many sessions SGW and PGW have.
fn sessions(world: &mut Net) -> [u64; 2] {
    [
        Net::sum(&mut world.sgw, |sgw| sgw.sessions() as u64),
        Net::sum(&mut world.pgw, |pgw| pgw.sessions() as u64),
    ]
}

/// What was said on connections of S1 to an identifier of a base station.
fn told(world: &Net, station_id: u32) -> Vec<Message> {
    let record = world.record.as_ref().unwrap().iter();
    let said = record.filter(|said| said.from == Kind::Mme && matches!(said.link, Link::S1(_)));
    let messages = said.filter_map(|said| Message::read(&said.bytes).ok());
    let own = messages.filter(|message| message.station_id == station_id);
    own.collect()
}

/// What an HSS says to an MME that a user has left.
fn cancellation(user: Imsi) -> Vec<u8> {
    let (mut room, who) = ([0; s6a::ROOM], identity("hss.linerate", HSS));
    let mut to = s6a::request(&mut room, &who, command::CANCEL_LOCATION, 77, user);
    s6a::put_cancellation(&mut to, b"mme.linerate");
    to.finish().unwrap().to_vec()
}

#[test]
fn ts_29_272_5_2_1_2_a_location_that_is_cancelled_leaves_nothing() {
    let mut world = attached(83, 2, 8);
    let ids = world.ids();
    // One is connected, one idle.
    world.user(ids[1], |ran, now, out| ran.go_idle(now, ids[1], out));
    world.run(SECOND);
    assert_eq!(world.state(ids[1]), State::Idle);
    world.record = Some(Vec::new());
    for &id in &ids[..2] {
        let user = imsi(&mut world, id);
        world.send(Kind::Hss, Link::S6a(0), cancellation(user));
    }
    world.run(10 * SECOND);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 6);
    assert_eq!(sessions(&mut world), [6, 6]);
    let release = told(&world, ids[0])[0];
    assert_eq!(release.kind, s1::Kind::Release);
    assert_eq!(release.cause, Some(cause::SUPERSEDED));
    assert_eq!(world.state(ids[0]), State::Off);
    // The HSS knows already: it is answered, and not asked.
    let record = world.record.take().unwrap();
    let mut said = Vec::new();
    for of in record.iter().filter(|said| said.from == Kind::Mme) {
        if let (Link::S6a(_), Ok(message)) = (of.link, Diameter::new_checked(&of.bytes[..])) {
            said.push((message.command(), message.is_request()));
        }
    }
    assert_eq!(said, [(command::CANCEL_LOCATION, false); 2]);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.counts.superseded), 2);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.counts.lost), 0);
    // The one that was idle finds out when it wants something.
    world.user(ids[1], |ran, now, out| ran.service(now, ids[1], out));
    world.run(SECOND);
    assert_eq!(world.state(ids[1]), State::Off);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn ts_29_272_5_2_1_2_a_location_is_cancelled_while_the_session_is_made() {
    let mut world = Net::new(86, 1, 1);
    let id = world.ids()[0];
    world.user(id, |ran, now, out| ran.attach(now, id, out));
    while in_state(&mut world, MmeState::Creating) == 0 {
        world.run(10_000);
    }
    let user = imsi(&mut world, id);
    world.deliver(Kind::Mme, Link::S6a(0), cancellation(user));
    world.run(SECOND);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 0);
    assert_eq!(sessions(&mut world), [0, 0]);
    assert_eq!(world.state(id), State::Off);
}

#[test]
fn as_many_locations_are_cancelled_as_there_are_users() {
    let mut world = attached_with(87, 60, 8);
    for id in world.ids() {
        let user = imsi(&mut world, id);
        world.send(Kind::Hss, Link::S6a(0), cancellation(user));
    }
    world.run(10 * SECOND);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 0);
    assert_eq!(sessions(&mut world), [0, 0]);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.counts.superseded), 60);
}
