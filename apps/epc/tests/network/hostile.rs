//! Strangers, and peers that lie: lengths, tunnels, sequence numbers, states. Nothing panics,
//! tables stay bounded, and users who are there go on.

use crate::world::{
    ByApplication, Kind, MME, NET, PGW, SECOND, SGW, STATION_COUNT, STATIONS, Said, World, packet,
};
use linerate_epc::Link;
use linerate_epc::ran::State;
use linerate_wire::gtpc::{Gtpc, Writer, ie, message};
use linerate_wire::{gtpc, gtpu};
use std::net::SocketAddrV4;

/// A run of users' lives, and all that was said in it.
fn recorded(seed: u64) -> (World<ByApplication>, Vec<Said>) {
    let mut world = World::<ByApplication>::new(seed, 3, 12);
    world.record = Some(Vec::new());
    world.connect_hss();
    world.run(SECOND);
    for _ in 0..2 {
        world.drive(State::Connected, |ran, now, id, out| {
            ran.attach(now, id, out) || ran.service(now, id, out)
        });
        for id in world.ids() {
            let address = world
                .user(id, |ran, _, _| ran.address(id))
                .unwrap()
                .octets();
            let up = packet(address, NET, 1);
            world.user(id, |ran, now, out| ran.send(now, id, &up, out));
            world.deliver(Kind::Pgw, Link::Sgi, packet(NET, address, 2));
        }
        world.drive(State::Idle, |ran, now, id, out| ran.go_idle(now, id, out));
        world.run(10 * SECOND);
    }
    let record = world.record.take().unwrap();
    (world, record)
}

pub(crate) fn receiver(said: &Said) -> Option<(Kind, Link)> {
    let to = match (said.from, said.link) {
        (Kind::Ran, Link::S1(_)) | (Kind::Hss, Link::S6a(_)) => Kind::Mme,
        (_, Link::S1(_)) => Kind::Ran,
        (_, Link::S6a(_)) => Kind::Hss,
        (_, Link::Gtpc(to) | Link::Gtpu(to)) => match *to.ip() {
            MME => Kind::Mme,
            SGW => Kind::Sgw,
            PGW => Kind::Pgw,
            _ => Kind::Ran,
        },
        _ => return None,
    };
    let link = match said.link {
        Link::Gtpc(_) => Link::Gtpc(said.source),
        Link::Gtpu(_) => Link::Gtpu(said.source),
        link => link,
    };
    Some((to, link))
}

#[test]
fn damaged_messages_do_no_harm() {
    for seed in 40..44 {
        let (mut world, record) = recorded(seed);
        for _ in 0..30_000 {
            let said = &record[world.random.below(record.len())];
            let Some((to, link)) = receiver(said) else {
                continue;
            };
            let mut bytes = said.bytes.clone();
            for _ in 0..world.random.below(4) {
                let at = world.random.below(bytes.len());
                bytes[at] = match world.random.below(3) {
                    0 => world.random.below(256) as u8,
                    1 => bytes[at] ^ 1 << world.random.below(8),
                    _ => [0, 1, 0x7f, 0xff][world.random.below(4_usize)],
                };
            }
            if world.random.one_in(4) {
                bytes.truncate(world.random.within(1..=bytes.len()));
            }
            world.deliver(to, link, bytes);
            if world.random.one_in(100) {
                world.run(SECOND / 10);
            }
        }
        world.run(200 * SECOND);
        // Whatever that did to the users there were, all can attach and go.
        for station in 0..STATION_COUNT {
            let link = Link::S1(station);
            world.notice_all(Kind::Ran, linerate_epc::Notice::Closed(link));
            world.notice_all(Kind::Ran, linerate_epc::Notice::Opened(link));
        }
        for core in 0..3 {
            let link = Link::S6a(core as u16);
            world.notice_one(Kind::Hss, core, linerate_epc::Notice::Closed(link));
        }
        world.connect_hss();
        world.run(SECOND);
        world.drive(State::Connected, |ran, now, id, out| {
            ran.attach(now, id, out)
        });
        world.run(10 * SECOND);
        world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
        world.run(60 * SECOND);
        let users = World::<ByApplication>::sum(&mut world.mme, |mme| mme.users() as u64);
        assert_eq!(users, 0);
    }
}

/// A request to make a session, for the n-th user of nobody.
fn create(number: u64, address: [u8; 4], spare: &[(u8, u8)]) -> Vec<u8> {
    let mut room = [0; 400];
    let kind = message::CREATE_SESSION_REQUEST;
    let mut to = Writer::new(&mut room, kind, Some(0), number as u32 & 0x007f_ffff);
    let imsi = ie::Imsi::new(number, 15).unwrap().bytes();
    let own = ie::FTeid::v4(ie::interface::S11_MME, 1 + number as u32, address);
    let pgw = ie::FTeid::v4(ie::interface::S5C_PGW, 0, PGW.octets());
    let mut put = |kind, instance, value: &[u8]| {
        if !spare.contains(&(kind, instance)) {
            to.ie(kind, instance, value);
        }
    };
    let mut bytes = [0; ie::MAX_LEN];
    put(ie::IMSI, 0, &imsi);
    put(ie::RAT_TYPE, 0, &[ie::EUTRAN]);
    let len = own.write(&mut bytes);
    put(ie::F_TEID, 0, &bytes[..len]);
    let len = pgw.write(&mut bytes);
    put(ie::F_TEID, 1, &bytes[..len]);
    put(ie::APN, 0, b"\x08internet");
    let qos = [[ie::BEARER_QOS, 0, 22, 0].as_slice(), &[0; 22]].concat();
    let bearer = [[ie::EBI, 0, 1, 0, 5].as_slice(), &qos].concat();
    put(ie::BEARER_CONTEXT, 0, &bearer);
    to.finish().unwrap().to_vec()
}

/// The answers with that type: their causes, and the IEs that they name.
fn causes(record: &[Said], kind: u8) -> Vec<(u8, Option<(u8, u8)>)> {
    let answers = record
        .iter()
        .filter(|said| matches!(said.link, Link::Gtpc(_)));
    let cause = |said: &Said| {
        let gtpc = Gtpc::new_checked(&said.bytes).ok()?;
        let mut ies = gtpc.ies().flatten();
        let cause = ies.find(|ie| ie.kind == ie::CAUSE)?;
        let cause = ie::Cause::read(cause.value)?;
        (gtpc.message() == kind).then_some((cause.value, cause.offending))
    };
    answers.filter_map(cause).collect()
}

#[test]
fn ts_29_274_7_7_6_each_mandatory_ie_is_missed() {
    let mut world = World::<ByApplication>::new(50, 2, 4);
    let mandatory = [
        (ie::IMSI, 0),
        (ie::RAT_TYPE, 0),
        (ie::APN, 0),
        (ie::F_TEID, 0),
        (ie::F_TEID, 1),
        (ie::BEARER_CONTEXT, 0),
    ];
    for (number, spare) in (1..).zip(mandatory) {
        world.record = Some(Vec::new());
        let bytes = create(number, MME.octets(), &[spare]);
        world.send(
            Kind::Mme,
            Link::Gtpc(SocketAddrV4::new(SGW, gtpc::PORT)),
            bytes,
        );
        world.run(SECOND);
        let record = world.record.take().unwrap();
        let missing = (ie::cause::MANDATORY_IE_MISSING, Some(spare));
        assert_eq!(causes(&record, message::CREATE_SESSION_RESPONSE), [missing]);
    }
    let sessions = World::<ByApplication>::sum(&mut world.sgw, |sgw| sgw.sessions() as u64);
    assert_eq!(sessions, 0);
}

#[test]
fn a_flood_of_sessions_is_refused_with_a_cause_and_given_back() {
    let mut world = World::<ByApplication>::new(51, 2, 8);
    world.record = Some(Vec::new());
    for number in 1..200 {
        let bytes = create(number, MME.octets(), &[]);
        world.send(
            Kind::Mme,
            Link::Gtpc(SocketAddrV4::new(SGW, gtpc::PORT)),
            bytes,
        );
        world.run(SECOND / 100);
    }
    world.run(5 * SECOND);
    let record = world.record.take().unwrap();
    let said = causes(&record, message::CREATE_SESSION_RESPONSE);
    let full = said
        .iter()
        .filter(|said| said.0 == ie::cause::NO_RESOURCES)
        .count();
    let sessions = World::<ByApplication>::sum(&mut world.sgw, |sgw| sgw.sessions() as u64);
    assert!(sessions <= 16 && full >= 199 - 16, "{sessions} {full}");
    assert!(said.iter().any(|said| said.0 == ie::cause::ACCEPTED));
    // The MME, which knows of none of them, restarts; then there is room again.
    world.mme = World::<ByApplication>::make_mme(2, 8, 2, world.now);
    world.connect_hss();
    world.connect_stations();
    world.run(SECOND);
    let id = world.ids()[0];
    for _ in 0..20 {
        world.user(id, |ran, now, out| ran.attach(now, id, out));
        world.run(SECOND);
    }
    // Sessions that were made without a counter fall with the first that has one.
    world.run(200 * SECOND);
    let bound = World::<ByApplication>::sum(&mut world.sgw, |sgw| sgw.sessions() as u64);
    assert!(bound <= 16);
}

#[test]
fn tunnels_that_lie_get_error_indications_and_nothing_else() {
    let mut world = World::<ByApplication>::new(52, 3, 12);
    world.drive(State::Connected, |ran, now, id, out| {
        ran.attach(now, id, out)
    });
    world.run(10 * SECOND);
    let before = world.beyond.len();
    for _ in 0..20_000 {
        let teid = world.random.bits() as u32;
        let inner = packet([100, 64, 0, 1], NET, 1);
        let bytes = [&gtpu::header(teid, inner.len() as u16)[..], &inner].concat();
        let (to, from) = match world.random.below(3) {
            0 => (Kind::Sgw, STATIONS),
            1 => (Kind::Pgw, SGW),
            _ => (Kind::Ran, SGW),
        };
        world.deliver(to, Link::Gtpu(SocketAddrV4::new(from, gtpu::PORT)), bytes);
    }
    world.run(SECOND);
    assert_eq!(world.beyond.len(), before);
    // A user's packet under another's address does not pass either.
    let ids = world.ids();
    let other = world
        .user(ids[1], |ran, _, _| ran.address(ids[1]))
        .unwrap()
        .octets();
    let stolen = packet(other, NET, 2);
    let id = ids[0];
    assert!(world.user(id, |ran, now, out| ran.send(now, id, &stolen, out)));
    world.run(SECOND);
    assert_eq!(world.beyond.len(), before);
    let spoofed = |pgw: &linerate_epc::pgw::Pgw| pgw.tunnels.refusals.spoofed;
    assert_eq!(World::<ByApplication>::sum(&mut world.pgw, spoofed), 1);
    world.drive(State::Off, |ran, now, id, out| ran.detach(now, id, out));
    world.assert_empty();
}

#[test]
fn a_user_without_the_key_is_refused_and_so_is_an_unknown_one() {
    // The HSS knows 8 of the 12 users; the others it has never heard of.
    let mut world = World::<ByApplication>::new(53, 2, 12);
    world.change_hss(|config| config.subscribers[0].count = 8);
    for id in world.ids() {
        world.user(id, |ran, now, out| ran.attach(now, id, out));
    }
    world.run(20 * SECOND);
    let rejected = World::<ByApplication>::sum(&mut world.ran, |ran| ran.counts.rejected);
    let attached = World::<ByApplication>::sum(&mut world.ran, |ran| ran.counts.attached);
    assert_eq!((attached, rejected), (8, 4));
    // Another operator's keys: users find that the challenge is not their home's.
    let mut world = World::<ByApplication>::new(54, 2, 12);
    world.change_hss(|config| config.operator = 1);
    for id in world.ids() {
        world.user(id, |ran, now, out| ran.attach(now, id, out));
    }
    world.run(20 * SECOND);
    let forged = World::<ByApplication>::sum(&mut world.ran, |ran| ran.counts.forged);
    assert_eq!(forged, 12);
    world.assert_empty();
}
