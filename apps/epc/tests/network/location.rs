//! Where users are: one MME and another, connections that come again, attaches under another
//! user's number (TS 29.272 5.2.1, TS 24.301 5.5.1.2.7).

use crate::restart::attached_with;
use crate::world::packet;
use crate::world::{ByApplication, FIRST, HSS, Kind, MME, NET, SECOND, World, identity, network};
use linerate_epc::challenge::Key;
use linerate_epc::mme::State as MmeState;
use linerate_epc::ran::State;
use linerate_epc::s1::{self, Message, cause};
use linerate_epc::s6a::{self, command};
use linerate_epc::{Link, Notice};
use linerate_wire::diameter::{self, Diameter, Flags, avp};
use linerate_wire::gtpc::{self, ie::Imsi};
use std::collections::HashSet;
use std::net::SocketAddrV4;

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

fn hears(world: &mut Net, station: u16, message: &Message) {
    let mut room = [0; s1::MAX_LEN];
    let bytes = message.write(&mut room).to_vec();
    world.deliver(Kind::Mme, Link::S1(station), bytes);
}

/// Some base station says that this user attaches at it.
fn comes(world: &mut Net, station: u16, station_id: u32, user: Imsi) {
    let mut message = Message::new(s1::Kind::Attach, station_id, 0);
    message.imsi = Some(user.bytes());
    hears(world, station, &message);
}

/// The base stations have forgotten all.
fn stations_forget(world: &mut Net) {
    for station in 0..crate::world::STATION_COUNT {
        world.notice_all(Kind::Ran, Notice::Closed(Link::S1(station)));
        world.notice_all(Kind::Ran, Notice::Opened(Link::S1(station)));
    }
}

/// Who was challenged there has the user's key.
fn proves(world: &mut Net, station: u16, station_id: u32, user: Imsi) {
    let challenge = told(world, station_id).pop().unwrap();
    let mut answer = Message::new(s1::Kind::ChallengeAnswer, station_id, challenge.mme_id);
    answer.res = Some(Key::derive(99, user).answer(&challenge.rand.unwrap()));
    hears(world, station, &answer);
}

/// Identifiers of base stations that name no user of theirs.
const STRANGER: u32 = 0x0077_0001;

#[test]
fn ts_24_301_5_5_1_2_7_a_user_stays_until_who_attaches_in_its_name_is_proved() {
    let mut world = attached(80, 2, 8);
    let id = world.ids()[3];
    let user = imsi(&mut world, id);
    // Eight may try at a time; each takes the place of the first of them, none that of the user.
    for n in 0..100 {
        comes(&mut world, 3, STRANGER + n, user);
        world.run(SECOND / 100);
    }
    let last = told(&world, STRANGER + 99);
    assert_eq!(last[0].kind, s1::Kind::Challenge);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 8);
    assert_eq!(in_state(&mut world, MmeState::Connected), 8);
    assert_eq!(in_state(&mut world, MmeState::Proof), 8);
    let unproved = |mme: &linerate_epc::mme::Mme| [mme.counts.unproved, mme.counts.superseded];
    let sums = [0, 1].map(|n| Net::sum(&mut world.mme, |mme| unproved(mme)[n]));
    assert_eq!(sums, [92, 0]);
    // Without the key.
    let mut answer = Message::new(s1::Kind::ChallengeAnswer, STRANGER + 99, last[0].mme_id);
    answer.res = Some([7; 8]);
    hears(&mut world, 3, &answer);
    world.run(SECOND);
    let reject = told(&world, STRANGER + 99).pop().unwrap();
    assert_eq!(reject.kind, s1::Kind::Reject);
    assert_eq!(reject.cause, Some(cause::NOT_AUTHENTICATED));
    // Nor one that says nothing.
    comes(&mut world, 3, STRANGER, user);
    world.run(30 * SECOND);
    assert_eq!(in_state(&mut world, MmeState::Connected), 8);
    assert_eq!(Net::sum(&mut world.mme, |mme| unproved(mme)[0]), 100);
    assert_eq!(lost(&mut world), 0);
    assert!(told(&world, id).is_empty());
    let address = world.user(id, |ran, _, _| ran.address(id)).unwrap();
    let up = packet(address.octets(), NET, 1);
    assert!(world.user(id, |ran, now, out| ran.send(now, id, &up, out)));
    world.run(SECOND);
    assert_eq!(world.beyond.len(), 1);
    // The user itself goes while another one tries.
    comes(&mut world, 3, STRANGER + 1, user);
    world.user(id, |ran, now, out| ran.detach(now, id, out));
    world.run(SECOND);
    assert_eq!(world.state(id), State::Off);
    assert_eq!(in_state(&mut world, MmeState::Proof), 1);
    assert_eq!(sessions(&mut world), [7, 7]);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn ts_24_301_5_5_1_2_7_who_is_proved_takes_the_users_place() {
    let mut world = attached(81, 2, 8);
    let id = world.ids()[5];
    let user = imsi(&mut world, id);
    comes(&mut world, 3, STRANGER, user);
    world.run(SECOND / 10);
    assert!(told(&world, id).is_empty());
    proves(&mut world, 3, STRANGER, user);
    world.run(SECOND / 10);
    let release = told(&world, id)[0];
    assert_eq!(release.kind, s1::Kind::Release);
    assert_eq!(release.cause, Some(cause::SUPERSEDED));
    assert_eq!(world.state(id), State::Off);
    let superseded = Net::sum(&mut world.mme, |mme| mme.counts.superseded);
    assert_eq!(superseded, 1);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 8);
    // It goes no further: what the user had at the gateways goes with it.
    world.run(60 * SECOND);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 7);
    assert_eq!(sessions(&mut world), [7, 7]);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn who_is_not_proved_keeps_no_user_out() {
    let mut world = Net::new(101, 2, 8);
    world.record = Some(Vec::new());
    let id = world.ids()[2];
    let user = imsi(&mut world, id);
    // First it is nowhere, then somewhere.
    for round in 0..2 {
        // There is one before, and there are others while it proves itself.
        comes(&mut world, 3, STRANGER + 10 * round, user);
        world.user(id, |ran, now, out| ran.attach(now, id, out));
        let has_challenge = |world: &Net| told(world, id).last().map(|last| last.kind);
        while has_challenge(&world) != Some(s1::Kind::Challenge) {
            world.run(10_000);
        }
        for n in 1..7 {
            comes(&mut world, 3, STRANGER + 10 * round + n, user);
        }
        world.run(SECOND);
        assert_eq!(world.state(id), State::Connected, "{round}");
        assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 1);
        // Whoever was in its place is gone.
        let left = in_state(&mut world, MmeState::Proof);
        assert_eq!(left, 6 + u64::from(round));
        // They go by and by, and it stays.
        world.run(20 * SECOND);
        assert_eq!(in_state(&mut world, MmeState::Proof), 0);
        assert_eq!(in_state(&mut world, MmeState::Connected), 1);
        stations_forget(&mut world);
    }
    assert_eq!(sessions(&mut world), [1, 1]);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.counts.superseded), 1);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.counts.unproved), 14);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn who_is_not_proved_takes_no_user_off_the_hss() {
    let mut world = attached(88, 2, 8);
    let id = world.ids()[3];
    let user = imsi(&mut world, id);
    comes(&mut world, 3, STRANGER, user);
    world.run(SECOND / 10);
    let challenge = told(&world, STRANGER)[0];
    let detach = Message::new(s1::Kind::Detach, STRANGER, challenge.mme_id);
    hears(&mut world, 3, &detach);
    world.run(SECOND);
    assert_eq!(Net::sum(&mut world.hss, |hss| hss.users() as u64), 8);
    assert_eq!(Net::sum(&mut world.hss, |hss| hss.counts.purged), 0);
    assert_eq!(in_state(&mut world, MmeState::Connected), 8);
    // It is gone itself, and knows.
    assert_eq!(in_state(&mut world, MmeState::Proof), 0);
    let last = told(&world, STRANGER).pop().unwrap();
    assert_eq!(last.kind, s1::Kind::DetachAnswer);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

fn lost(world: &mut Net) -> u64 {
    Net::sum(&mut world.mme, |mme| mme.counts.lost)
}

#[test]
fn strangers_leave_places_for_what_users_ask() {
    let mut world = attached_with(89, 60, 8);
    let ids = world.ids();
    world.user(ids[0], |ran, now, out| ran.go_idle(now, ids[0], out));
    world.run(SECOND);
    assert_eq!(world.state(ids[0]), State::Idle);
    for n in 0..20 {
        let user = imsi(&mut world, ids[usize::from(n) + 1]);
        comes(&mut world, n % 4, STRANGER + u32::from(n), user);
        world.run(SECOND / 100);
    }
    let waiting = in_state(&mut world, MmeState::Proof);
    assert_eq!(waiting, 4, "of 8 places");
    world.user(ids[0], |ran, now, out| ran.service(now, ids[0], out));
    world.run(SECOND);
    assert_eq!(world.state(ids[0]), State::Connected);
    world.run(30 * SECOND);
    assert_eq!(in_state(&mut world, MmeState::Connected), 60);
    assert_eq!(sessions(&mut world), [60, 60]);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn who_finds_no_place_for_its_service_request_stays_idle_and_asks_again() {
    let mut world = attached_with(90, 60, 8);
    world.drive(State::Idle, |ran, now, id, out| ran.go_idle(now, id, out));
    world.run(SECOND);
    let ids = world.ids();
    for &id in &ids {
        world.user(id, |ran, now, out| ran.service(now, id, out));
    }
    world.run(SECOND);
    let congestion = Net::sum(&mut world.mme, |mme| mme.counts.congestion);
    assert!(congestion > 0 && lost(&mut world) == 0, "{congestion}");
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 60);
    let idle = ids.iter().filter(|&&id| world.state(id) == State::Idle);
    assert_eq!(idle.count() as u64, congestion);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.service(now, id, out)
    });
    world.run(SECOND);
    assert_eq!(sessions(&mut world), [60, 60]);
    assert_eq!(lost(&mut world), 0);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn who_is_not_carried_after_its_service_request_is_idle_again() {
    let mut world = attached(91, 1, 4);
    let id = world.ids()[0];
    let address = world.user(id, |ran, _, _| ran.address(id)).unwrap();
    world.user(id, |ran, now, out| ran.go_idle(now, id, out));
    world.run(SECOND);
    let tmsi = told(&world, id)[0].mme_id;
    // Packets wait, but not for the user.
    world.mute_paging = true;
    for is_refused in [true, false] {
        let down = packet(NET, address.octets(), 1);
        world.deliver(Kind::Pgw, Link::Sgi, down);
        world.run(SECOND / 10);
        assert_eq!(in_state(&mut world, MmeState::Paging), 1);
        let mut service = Message::new(s1::Kind::Service, STRANGER, 0);
        service.tmsi = Some(tmsi);
        hears(&mut world, 3, &service);
        assert_eq!(in_state(&mut world, MmeState::Context), 1);
        if is_refused {
            let mut answer = Message::new(s1::Kind::ContextAnswer, STRANGER, tmsi);
            answer.cause = Some(cause::NO_RESOURCES);
            hears(&mut world, 3, &answer);
        }
        world.run(11 * SECOND);
        assert_eq!(in_state(&mut world, MmeState::Idle), 1);
        let last = told(&world, STRANGER).pop().unwrap();
        assert_eq!(last.kind, s1::Kind::Release);
    }
    assert_eq!(lost(&mut world), 0);
    assert_eq!(Net::sum(&mut world.sgw, |sgw| sgw.buffered() as u64), 0);
    world.mute_paging = false;
    world.deliver(Kind::Pgw, Link::Sgi, packet(NET, address.octets(), 2));
    world.run(SECOND);
    assert_eq!(world.state(id), State::Connected);
    assert_eq!(world.at_users.len(), 1);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn a_user_whose_service_request_is_let_go_is_idle() {
    let mut world = attached(92, 1, 1);
    let id = world.ids()[0];
    world.user(id, |ran, now, out| ran.go_idle(now, id, out));
    world.run(SECOND);
    world.user(id, |ran, now, out| ran.service(now, id, out));
    let mut release = Message::new(s1::Kind::Release, id, 7);
    release.cause = Some(cause::USER_INACTIVITY);
    let mut room = [0; s1::MAX_LEN];
    let bytes = release.write(&mut room).to_vec();
    world.deliver(Kind::Ran, Link::S1(0), bytes);
    assert_eq!(world.state(id), State::Idle);
}

#[test]
fn a_full_mme_takes_a_user_that_attaches_again() {
    let mut world = attached(82, 1, 8);
    stations_forget(&mut world);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    let counts = |mme: &linerate_epc::mme::Mme| mme.counts.congestion;
    assert_eq!(Net::sum(&mut world.mme, counts), 0);
    let superseded = |mme: &linerate_epc::mme::Mme| mme.counts.superseded;
    assert_eq!(Net::sum(&mut world.mme, superseded), 8);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

/// What an HSS says to an MME that a user has left.
fn cancellation(user: Imsi) -> Vec<u8> {
    cancellation_for(user, b"mme.linerate")
}

/// The same, to that MME.
fn cancellation_for(user: Imsi, host: &[u8]) -> Vec<u8> {
    let (mut room, who) = ([0; s6a::ROOM], identity("hss.linerate", HSS));
    let mut to = s6a::request(&mut room, &who, command::CANCEL_LOCATION, 77, user);
    s6a::put_cancellation(&mut to, host);
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

/// A user whose session the PGW does not make yet.
fn creating(world: &mut Net) -> (u32, Imsi) {
    world.deaf_pgw = true;
    let id = world.ids()[0];
    world.user(id, |ran, now, out| ran.attach(now, id, out));
    world.run(SECOND / 10);
    assert_eq!(in_state(world, MmeState::Creating), 1);
    (id, imsi(world, id))
}

#[test]
fn who_takes_the_place_of_a_user_whose_session_is_made_leaves_none() {
    // The second goes on, the first one falls.
    for goes_on in [false, true] {
        let mut world = Net::new(93, 1, 4);
        world.record = Some(Vec::new());
        let (id, user) = creating(&mut world);
        comes(&mut world, 3, STRANGER, user);
        world.run(SECOND / 10);
        proves(&mut world, 3, STRANGER, user);
        world.run(SECOND / 10);
        assert_eq!(world.state(id), State::Off);
        assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 1);
        if goes_on {
            let mme_id = told(&world, STRANGER).pop().unwrap().mme_id;
            let answer = Message::new(s1::Kind::SecurityAnswer, STRANGER, mme_id);
            hears(&mut world, 3, &answer);
            world.run(SECOND / 10);
            assert_eq!(in_state(&mut world, MmeState::Creating), 1);
        }
        world.deaf_pgw = false;
        world.run(5 * SECOND);
        let states = [MmeState::Context, MmeState::Securing];
        let states = states.map(|state| in_state(&mut world, state));
        let count = u64::from(goes_on);
        assert_eq!(states, [count, 1 - count]);
        assert_eq!(sessions(&mut world), [count; 2], "that of before is gone");
        // It says nothing more.
        world.run(60 * SECOND);
        assert_eq!(sessions(&mut world), [0, 0]);
        let open = |mme: &linerate_epc::mme::Mme| u64::from(!mme.is_empty());
        assert_eq!(Net::sum(&mut world.mme, open), 0);
        assert_eq!(Net::sum(&mut world.mme, |mme| mme.counts.superseded), 1);
    }
}

#[test]
fn ts_29_272_5_2_1_2_who_is_elsewhere_is_not_purged_whatever_its_session_comes_to() {
    let mut world = attached(95, 1, 1);
    stations_forget(&mut world);
    let (_, user) = creating(&mut world);
    world.deliver(Kind::Mme, Link::S6a(0), cancellation(user));
    world.run(30 * SECOND);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 0);
    assert_eq!(sessions(&mut world)[0], 0);
    assert_eq!(Net::sum(&mut world.hss, |hss| hss.counts.purged), 0);
}

#[test]
fn ts_23_007_a_session_that_is_made_at_an_sgw_that_has_restarted_stands() {
    let mut world = attached(94, 1, 1);
    stations_forget(&mut world);
    let (id, _) = creating(&mut world);
    // The request comes to the next one again; then that says its counter.
    world.sgw = Net::make_sgw(1, 1, 2, world.now);
    world.run(2 * SECOND);
    let mut room = [0; 100];
    let mut echo = gtpc::Writer::new(&mut room, gtpc::message::ECHO_REQUEST, None, 1);
    echo.ie(gtpc::ie::RECOVERY, 0, &[2]);
    let to = Link::Gtpc(SocketAddrV4::new(MME, gtpc::PORT));
    world.send(Kind::Sgw, to, echo.finish().unwrap().to_vec());
    world.run(SECOND);
    assert_eq!(in_state(&mut world, MmeState::Creating), 1);
    world.deaf_pgw = false;
    world.run(5 * SECOND);
    assert_eq!(world.state(id), State::Connected);
    assert_eq!(sessions(&mut world), [1, 1]);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
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

/// A connection of Diameter comes to the HSS, of an MME of that name.
pub(crate) fn connect(world: &mut Net, number: u16, host: &str) {
    let core = usize::from(number) % world.count;
    world.notice_one(Kind::Hss, core, Notice::Opened(Link::S6a(number)));
    let mut room = [0; s6a::ROOM];
    let command = diameter::command::CAPABILITIES_EXCHANGE;
    let mut to = diameter::Writer::new(&mut room, Flags::REQUEST, command, 0, 1, 1);
    to.avp(avp::ORIGIN_HOST, None, host.as_bytes());
    to.avp(avp::ORIGIN_REALM, None, b"linerate");
    to.u32(avp::AUTH_APPLICATION_ID, None, s6a::APPLICATION);
    let bytes = to.finish().unwrap().to_vec();
    world.send(Kind::Mme, Link::S6a(number), bytes);
    world.run(SECOND / 1000);
}

/// An MME of that name says that it has a user.
pub(crate) fn locate(world: &mut Net, number: u16, host: &str, user: Imsi) {
    let (mut room, who) = ([0; s6a::ROOM], identity(host, MME));
    let mut to = s6a::request(&mut room, &who, command::UPDATE_LOCATION, 5, user);
    s6a::put_location(&mut to, network());
    let bytes = to.finish().unwrap().to_vec();
    world.send(Kind::Mme, Link::S6a(number), bytes);
    world.run(SECOND / 1000);
}

/// Where the HSS has cancelled locations since the last time.
fn cancellations(world: &mut Net) -> Vec<Link> {
    let record = world.record.replace(Vec::new()).unwrap();
    let is_it = |bytes: &[u8]| {
        let message = Diameter::new_checked(bytes).unwrap();
        (message.command(), message.is_request()) == (command::CANCEL_LOCATION, true)
    };
    let said = record.iter().filter(|said| said.from == Kind::Hss);
    let said = said.filter(|said| is_it(&said.bytes));
    said.map(|said| said.link).collect()
}

#[test]
fn ts_29_272_5_2_1_2_the_mme_that_was_left_is_found_by_its_name() {
    let mut world = Net::unconnected(84, 3, 12);
    world.record = Some(Vec::new());
    let all: Vec<Imsi> = (0..12).map(|n| Imsi::new(FIRST + n, 15).unwrap()).collect();
    connect(&mut world, 10, "a.linerate");
    for user in &all {
        locate(&mut world, 10, "a.linerate", *user);
    }
    assert_eq!(cancellations(&mut world), []);
    // It comes again by another connection; the one that it had is another MME's.
    world.notice_all(Kind::Hss, Notice::Closed(Link::S6a(10)));
    connect(&mut world, 11, "a.linerate");
    connect(&mut world, 10, "b.linerate");
    for user in &all {
        locate(&mut world, 10, "b.linerate", *user);
        assert_eq!(cancellations(&mut world), [Link::S6a(11)], "{user}");
        locate(&mut world, 10, "b.linerate", *user);
        assert_eq!(cancellations(&mut world), [], "{user}");
    }
    // One that is gone is not told, and nobody else in its place.
    world.notice_all(Kind::Hss, Notice::Closed(Link::S6a(10)));
    for user in &all {
        locate(&mut world, 11, "a.linerate", *user);
        assert_eq!(cancellations(&mut world), [], "{user}");
    }
}

#[test]
fn ts_23_003_19_4_2_4_mmes_are_known_by_the_names_that_they_have() {
    const NAMES: [&str; 2] = [
        "mmec01.mmegi8001.mme.epc.mnc001.mcc001.3gppnetwork.org",
        "mmec02.mmegi8001.mme.epc.mnc001.mcc001.3gppnetwork.org",
    ];
    let mut world = Net::unconnected(96, 2, 4);
    world.record = Some(Vec::new());
    let user = Imsi::new(FIRST, 15).unwrap();
    for (number, name) in (10..).zip(NAMES) {
        connect(&mut world, number, name);
        locate(&mut world, number, name, user);
    }
    assert_eq!(cancellations(&mut world), [Link::S6a(10)]);
    assert_eq!(Net::sum(&mut world.hss, |hss| hss.counts.refused), 0);
}

#[test]
fn an_mme_whose_name_was_not_heard_is_known_by_what_it_asks() {
    let mut world = Net::unconnected(98, 3, 12);
    world.record = Some(Vec::new());
    connect(&mut world, 10, "a.linerate");
    connect(&mut world, 11, "b.linerate");
    // The lcore of that connection has told the others, who have not heard it.
    for core in [0, 2] {
        world.notice_one(Kind::Hss, core, Notice::Closed(Link::S6a(10)));
    }
    for n in 0..12 {
        let user = Imsi::new(FIRST + n, 15).unwrap();
        locate(&mut world, 10, "a.linerate", user);
        locate(&mut world, 11, "b.linerate", user);
        assert_eq!(cancellations(&mut world), [Link::S6a(10)], "{user}");
    }
}

#[test]
fn rfc_6733_6_1_4_a_request_for_another_host_is_not_delivered() {
    let mut world = attached(99, 1, 1);
    let id = world.ids()[0];
    let user = imsi(&mut world, id);
    let results = |world: &mut Net, host: &[u8]| {
        world.record = Some(Vec::new());
        let request = cancellation_for(user, host);
        world.deliver(Kind::Mme, Link::S6a(0), request);
        let record = world.record.take().unwrap();
        let said = record.iter().filter(|said| said.link == Link::S6a(0));
        let read = |bytes: &[u8]| {
            let message = Diameter::new_checked(bytes).unwrap();
            let result = s6a::Contents::read(&message).unwrap().result;
            (result.unwrap(), message.flags().has(Flags::ERROR))
        };
        said.map(|said| read(&said.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(results(&mut world, b"mme2.linerate"), [(3002, true)]);
    assert_eq!(in_state(&mut world, MmeState::Connected), 1);
    // Names are those of DNS: in either case.
    assert_eq!(results(&mut world, b"MME.linerate"), [(2001, false)]);
    assert_eq!(in_state(&mut world, MmeState::Connected), 0);
}

#[test]
fn rfc_3539_what_comes_by_another_connection_says_nothing_of_a_cores_own() {
    let mut world = attached(100, 2, 8);
    let ids = world.ids();
    let users: Vec<Imsi> = ids.iter().map(|&id| imsi(&mut world, id)).collect();
    let user = users.into_iter().find(|user| world.cores.owner(*user) == 0);
    let request = cancellation(user.unwrap());
    world.deaf_hss = true;
    for _ in 0..20 {
        world.deliver(Kind::Mme, Link::S6a(1), request.clone());
        world.run(5 * SECOND);
    }
    let open = |mme: &linerate_epc::mme::Mme| {
        u64::from(mme.hss() == linerate_epc::s6a::connection::State::Open)
    };
    assert_eq!(Net::sum(&mut world.mme, open), 0);
    assert_eq!(Net::sum(&mut world.mme, |mme| mme.users() as u64), 7);
}

#[test]
fn rfc_6733_3_requests_of_all_cores_on_a_connection_have_numbers_of_their_own() {
    let mut world = Net::unconnected(97, 3, 12);
    connect(&mut world, 10, "a.linerate");
    connect(&mut world, 11, "b.linerate");
    let (mut of_hops, mut of_ends) = (HashSet::new(), HashSet::new());
    world.record = Some(Vec::new());
    for n in 0..12 {
        let user = Imsi::new(FIRST + n, 15).unwrap();
        locate(&mut world, 10, "a.linerate", user);
        locate(&mut world, 11, "b.linerate", user);
    }
    for said in world.record.take().unwrap() {
        let message = Diameter::new_checked(&said.bytes[..]).unwrap();
        if message.is_request() && said.from == Kind::Hss {
            of_hops.insert(message.hop_by_hop());
            of_ends.insert(message.end_to_end());
        }
    }
    assert_eq!((of_hops.len(), of_ends.len()), (12, 12));
}

#[test]
fn another_mme_on_the_same_connections_keeps_the_users_that_come_to_it() {
    let mut world = attached(85, 2, 8);
    world.change_mme(8, "mme2.linerate");
    for id in world.ids() {
        world.user(id, |ran, now, out| ran.attach(now, id, out));
    }
    world.run(10 * SECOND);
    assert_eq!(in_state(&mut world, MmeState::Connected), 8);
    assert_eq!(Net::sum(&mut world.hss, |hss| hss.users() as u64), 8);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}
