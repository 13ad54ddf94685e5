//! Peers of GTP-C that restart, move, go, and use numbers again: what gateways make of it
//! (TS 23.007 18, TS 29.274 7.6).

use crate::world::{
    Arrangement, ByApplication, FIRST, Kind, MME, PGW, SECOND, SGW, World, sgw_config,
};
use linerate_epc::Link;
use linerate_epc::gtp::{Contents, put, put_f_teid};
use linerate_epc::sgw::Sgw;
use linerate_epc::store::parts;
use linerate_wire::gtpc::ie::{self, FTeid, Imsi, interface};
use linerate_wire::gtpc::{self, Gtpc, Writer, message};
use std::net::{Ipv4Addr, SocketAddrV4};

type Net = World<ByApplication>;

/// A request to make a session, for a gateway of either kind.
struct Create {
    user: u64,
    sequence: u32,
    /// The sender's end.
    teid: u32,
    address: Ipv4Addr,
    recovery: Option<u8>,
}

impl Create {
    fn bytes(&self) -> Vec<u8> {
        self.behind(PGW)
    }

    /// The same, of a session at that PGW.
    fn behind(&self, pgw: Ipv4Addr) -> Vec<u8> {
        let mut room = [0; 400];
        let kind = message::CREATE_SESSION_REQUEST;
        let mut to = Writer::new(&mut room, kind, Some(0), self.sequence);
        let address = self.address.octets();
        to.ie(ie::IMSI, 0, &Imsi::new(self.user, 15).unwrap().bytes());
        to.ie(ie::RAT_TYPE, 0, &[ie::EUTRAN]);
        let own = FTeid::v4(interface::S11_MME, self.teid, address);
        put_f_teid(&mut to, 0, &own);
        let pgw = FTeid::v4(interface::S5C_PGW, 0, pgw.octets());
        put_f_teid(&mut to, 1, &pgw);
        to.ie(ie::APN, 0, b"\x08internet");
        to.group(ie::BEARER_CONTEXT, 0, |bearer| {
            bearer.ie(ie::EBI, 0, &[5]);
            let qos = ie::BearerQos::default();
            put(bearer, ie::BEARER_QOS, 0, |bytes| qos.write(bytes));
            let user = FTeid::v4(interface::S5U_SGW, self.teid, address);
            put_f_teid(bearer, 2, &user);
        });
        if let Some(restarts) = self.recovery {
            to.ie(ie::RECOVERY, 0, &[restarts]);
        }
        to.finish().unwrap().to_vec()
    }
}

fn request(kind: u8, teid: u32, sequence: u32, fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut room = [0; 400];
    let mut to = Writer::new(&mut room, kind, Some(teid), sequence);
    fill(&mut to);
    to.finish().unwrap().to_vec()
}

fn at(address: Ipv4Addr) -> Link {
    Link::Gtpc(SocketAddrV4::new(address, gtpc::PORT))
}

/// Users of a core, without end.
fn users_of(world: &Net, core: u8) -> impl Iterator<Item = u64> + use<> {
    let cores = world.cores;
    (FIRST..).filter(move |user| cores.owner(Imsi::new(*user, 15).unwrap()) == core)
}

/// The header's identifier and the contents of the last message of GTP-C that a node has said.
fn last(world: &mut Net, kind: Kind) -> (u32, Option<ie::Cause>, Option<FTeid>) {
    let record = world.record.as_ref().unwrap();
    let is_it = |link| matches!(link, Link::Gtpc(_));
    let mut said = record.iter().rev();
    let said = said.find(|said| said.from == kind && is_it(said.link));
    let gtpc = Gtpc::new_checked(&said.unwrap().bytes[..]).unwrap();
    let found = Contents::read(&gtpc).unwrap();
    (gtpc.teid().unwrap(), found.cause, found.gateway)
}

fn sgw_sessions(world: &mut Net) -> u64 {
    Net::sum(&mut world.sgw, |sgw| sgw.sessions() as u64)
}

fn pgw_sessions(world: &mut Net) -> u64 {
    Net::sum(&mut world.pgw, |pgw| pgw.sessions() as u64)
}

#[test]
fn ts_23_007_18_a_counter_that_one_core_has_heard_all_know() {
    let mut world = Net::unconnected(70, 2, 16);
    let create = |world: &mut Net, user: u64, recovery| {
        let create = Create {
            user,
            sequence: user as u32 & 0xffff,
            teid: user as u32,
            address: MME,
            recovery,
        };
        world.deliver(Kind::Sgw, at(MME), create.bytes());
        world.run(SECOND);
    };
    // The peer says its counter once: it does not know of cores.
    let (mut first, mut second) = (users_of(&world, 0), users_of(&world, 1));
    create(&mut world, first.next().unwrap(), Some(1));
    create(&mut world, second.next().unwrap(), None);
    assert_eq!(sgw_sessions(&mut world), 2);
    create(&mut world, second.next().unwrap(), Some(2));
    assert_eq!(sgw_sessions(&mut world), 1);
    assert_eq!(Net::sum(&mut world.sgw, |sgw| sgw.counts.lost), 2);
    create(&mut world, first.next().unwrap(), Some(3));
    assert_eq!(sgw_sessions(&mut world), 1);
}

#[test]
fn ts_23_007_18_a_peer_of_another_core_is_asked_by_the_first() {
    let mut world = Net::unconnected(71, 2, 16);
    let user = users_of(&world, 1).next().unwrap();
    let create = Create {
        user,
        sequence: 1,
        teid: 1,
        address: MME,
        recovery: Some(1),
    };
    world.deliver(Kind::Sgw, at(MME), create.bytes());
    world.run(SECOND);
    assert_eq!(sgw_sessions(&mut world), 1);
    world.mme = Net::make_mme(2, 16, 2, world.now);
    world.run(70 * SECOND);
    assert_eq!(sgw_sessions(&mut world), 0);
}

#[test]
fn ts_23_401_5_5_1_1_3_a_session_that_moves_depends_on_its_new_sgw() {
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 9);
    let mut world = Net::unconnected(72, 1, 4);
    world.record = Some(Vec::new());
    let create = Create {
        user: FIRST,
        sequence: 1,
        teid: 11,
        address: SGW,
        recovery: Some(1),
    };
    world.deliver(Kind::Pgw, at(SGW), create.bytes());
    let id = last(&mut world, Kind::Pgw).2.unwrap().teid;
    let moved = request(message::MODIFY_BEARER_REQUEST, id, 1, |to| {
        let own = FTeid::v4(interface::S5C_SGW, 22, OTHER.octets());
        put_f_teid(to, 0, &own);
        to.ie(ie::RECOVERY, 0, &[5]);
    });
    world.deliver(Kind::Pgw, at(OTHER), moved);
    // The answer is for the new end.
    let (teid, cause, _) = last(&mut world, Kind::Pgw);
    assert_eq!((teid, cause.unwrap().value), (22, ie::cause::ACCEPTED));
    let echo = |world: &mut Net, from, restarts: u8| {
        let mut room = [0; 400];
        let mut to = Writer::new(&mut room, message::ECHO_REQUEST, None, restarts.into());
        to.ie(ie::RECOVERY, 0, &[restarts]);
        world.deliver(Kind::Pgw, at(from), to.finish().unwrap().to_vec());
        world.run(SECOND);
        pgw_sessions(world)
    };
    assert_eq!(echo(&mut world, OTHER, 5), 1);
    assert_eq!(echo(&mut world, SGW, 2), 1, "of the SGW that it left");
    assert_eq!(echo(&mut world, OTHER, 6), 0, "of the one that has it");
}

#[test]
fn a_modification_that_is_refused_moves_nothing() {
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 9);
    let mut world = Net::unconnected(73, 1, 4);
    world.record = Some(Vec::new());
    let create = Create {
        user: FIRST,
        sequence: 1,
        teid: 11,
        address: SGW,
        recovery: Some(1),
    };
    world.deliver(Kind::Pgw, at(SGW), create.bytes());
    let id = last(&mut world, Kind::Pgw).2.unwrap().teid;
    // Of another bearer than there is.
    let moved = request(message::MODIFY_BEARER_REQUEST, id, 2, |to| {
        let own = FTeid::v4(interface::S5C_SGW, 22, OTHER.octets());
        put_f_teid(to, 0, &own);
        to.group(ie::BEARER_CONTEXT, 0, |bearer| bearer.ie(ie::EBI, 0, &[6]));
    });
    world.deliver(Kind::Pgw, at(OTHER), moved);
    let (_, cause, _) = last(&mut world, Kind::Pgw);
    assert_eq!(cause.unwrap().value, ie::cause::CONTEXT_NOT_FOUND);
    let delete = request(message::DELETE_SESSION_REQUEST, id, 3, |_| {});
    world.deliver(Kind::Pgw, at(SGW), delete);
    let (teid, cause, _) = last(&mut world, Kind::Pgw);
    assert_eq!((teid, cause.unwrap().value), (11, ie::cause::ACCEPTED));
}

#[test]
fn ts_29_274_7_6_a_number_for_another_session_is_another_request() {
    let mut world = Net::unconnected(74, 1, 4);
    world.record = Some(Vec::new());
    let mut ids = Vec::new();
    for n in 0..2 {
        let create = Create {
            user: FIRST + n,
            sequence: n as u32,
            teid: 11 + n as u32,
            address: SGW,
            recovery: Some(1),
        };
        world.deliver(Kind::Pgw, at(SGW), create.bytes());
        ids.push(last(&mut world, Kind::Pgw).2.unwrap().teid);
    }
    assert_eq!(pgw_sessions(&mut world), 2);
    for (n, id) in (0..).zip(ids) {
        // Sent twice: the second time it gets the answer that there was.
        for _ in 0..2 {
            let delete = request(message::DELETE_SESSION_REQUEST, id, 9, |_| {});
            world.deliver(Kind::Pgw, at(SGW), delete);
            let (teid, cause, _) = last(&mut world, Kind::Pgw);
            assert_eq!((teid, cause.unwrap().value), (11 + n, ie::cause::ACCEPTED));
        }
    }
    assert_eq!(pgw_sessions(&mut world), 0);
    assert_eq!(Net::sum(&mut world.pgw, |pgw| pgw.counts.deleted), 2);
}

#[test]
fn a_peer_without_sessions_gives_its_place_to_another() {
    let mut world = Net::unconnected(75, 1, 4);
    for n in 0..100 {
        // The session of before is replaced: none has more than one.
        let create = Create {
            user: FIRST,
            sequence: n,
            teid: n + 1,
            address: Ipv4Addr::new(10, 9, 0, n as u8),
            recovery: Some(1),
        };
        world.deliver(Kind::Sgw, at(MME), create.bytes());
        world.run(SECOND);
        let refused = Net::sum(&mut world.sgw, |sgw| sgw.control().0.refusals);
        assert_eq!((refused, sgw_sessions(&mut world)), (0, 1), "peer {n}");
    }
    let peers = |sgw: &linerate_epc::sgw::Sgw| sgw.control().1.peers().len() as u64;
    assert!(Net::sum(&mut world.sgw, peers) <= 64);
    // The gateway behind, which all of them have used, is still known.
    world.pgw = Net::make_pgw(1, 4, 2, world.now);
    world.run(70 * SECOND);
    assert_eq!(sgw_sessions(&mut world), 0);
}

#[test]
fn who_deletes_a_session_that_is_replaced_meanwhile_is_answered() {
    let mut world = Net::unconnected(76, 1, 4);
    world.record = Some(Vec::new());
    let create = |sequence, teid| Create {
        user: FIRST,
        sequence,
        teid,
        address: MME,
        recovery: Some(1),
    };
    let answers = |world: &mut Net| {
        let record = world.record.replace(Vec::new()).unwrap();
        let said = record.iter().filter(|said| said.from == Kind::Sgw);
        let read = |bytes: &[u8]| {
            let gtpc = Gtpc::new_checked(bytes).unwrap();
            let cause = Contents::read(&gtpc).unwrap().cause;
            let cause = cause.map(|cause| cause.value);
            (gtpc.message(), gtpc.teid().unwrap(), cause.unwrap_or(0))
        };
        let said = said.filter(|said| said.link == at(MME));
        said.map(|said| read(&said.bytes)).collect::<Vec<_>>()
    };
    const CREATED: u8 = message::CREATE_SESSION_RESPONSE;
    const DELETED: u8 = message::DELETE_SESSION_RESPONSE;
    world.deliver(Kind::Sgw, at(MME), create(1, 11).bytes());
    world.run(SECOND);
    let record = world.record.as_ref().unwrap();
    let said = record.iter().rev().find(|said| said.link == at(MME));
    let gtpc = Gtpc::new_checked(&said.unwrap().bytes[..]).unwrap();
    let id = Contents::read(&gtpc).unwrap().sender.unwrap().teid;
    assert_eq!(answers(&mut world), [(CREATED, 11, ie::cause::ACCEPTED)]);
    let delete = request(message::DELETE_SESSION_REQUEST, id, 2, |to| {
        to.ie(ie::EBI, 0, &[5]);
    });
    world.deliver(Kind::Sgw, at(MME), delete);
    world.deliver(Kind::Sgw, at(MME), create(3, 22).bytes());
    assert_eq!(answers(&mut world), [(DELETED, 11, ie::cause::ACCEPTED)]);
    // So is who makes one.
    world.deliver(Kind::Sgw, at(MME), create(4, 33).bytes());
    let rejected = ie::cause::REQUEST_REJECTED;
    assert_eq!(answers(&mut world), [(CREATED, 22, rejected)]);
    world.run(SECOND);
    assert_eq!(answers(&mut world), [(CREATED, 33, ie::cause::ACCEPTED)]);
    assert_eq!((sgw_sessions(&mut world), pgw_sessions(&mut world)), (1, 1));
}

#[test]
fn ts_29_274_7_2_1_a_session_that_is_replaced_is_deleted_at_the_pgw_that_it_leaves() {
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);
    let mut world = Net::unconnected(78, 1, 4);
    let create = |sequence| Create {
        user: FIRST,
        sequence,
        teid: sequence,
        address: MME,
        recovery: Some(1),
    };
    world.deliver(Kind::Sgw, at(MME), create(1).bytes());
    world.run(SECOND);
    // The same PGW knows by itself.
    world.deliver(Kind::Sgw, at(MME), create(2).bytes());
    world.run(SECOND);
    let deleted = |world: &mut Net| Net::sum(&mut world.pgw, |pgw| pgw.counts.deleted);
    assert_eq!((deleted(&mut world), pgw_sessions(&mut world)), (0, 1));
    // Another one does not; the first that is said to it is lost.
    world.deaf_pgw = true;
    world.send(Kind::Mme, at(SGW), create(3).behind(OTHER));
    world.run(SECOND / 2);
    world.deaf_pgw = false;
    world.run(2 * SECOND);
    assert_eq!((deleted(&mut world), pgw_sessions(&mut world)), (1, 0));
    // The other one never answers.
    world.run(20 * SECOND);
    let is_empty = |sgw: &Sgw| u64::from(sgw.is_empty());
    assert_eq!(Net::sum(&mut world.sgw, is_empty), 1);
    let stray = |sgw: &Sgw| sgw.control().0.stray;
    assert_eq!(Net::sum(&mut world.sgw, stray), 0);
}

#[test]
fn ts_29_274_7_6_a_session_that_is_being_made_is_not_made_again() {
    let mut world = Net::unconnected(77, 1, 4);
    // Two answers are kept.
    let mut config = sgw_config(4, 1);
    config.control.requests = 2;
    let make = |cores, core| Sgw::new(&config, cores, core, SECOND);
    world.sgw = ByApplication::arrange(parts(1, make).unwrap());
    let create = Create {
        user: FIRST,
        sequence: 1,
        teid: 11,
        address: MME,
        recovery: Some(1),
    };
    world.deliver(Kind::Sgw, at(MME), create.bytes());
    for sequence in 2..20 {
        let other = request(message::MODIFY_BEARER_REQUEST, 9, sequence, |_| {});
        world.deliver(Kind::Sgw, at(MME), other);
    }
    world.deliver(Kind::Sgw, at(MME), create.bytes());
    world.run(SECOND);
    let counts = |sgw: &Sgw| sgw.counts.created + 100 * sgw.counts.replaced;
    assert_eq!(Net::sum(&mut world.sgw, counts), 1);
    assert_eq!(Net::sum(&mut world.pgw, |pgw| pgw.counts.created), 1);
}
