//! Debian's `nextepc-sgw` between our MME and PGW, over a wire between network namespaces: attach,
//! data, idle, paging, service request, detach. S1 control and S6a stay in memory.

use crate::tshark::{self, udp};
use crate::world::{
    Kind, MME, NET, Outbox, PGW, SECOND, SGW, hss_config, mme_config, packet, pgw_config,
    ran_config,
};
use linerate_epc::hss::Hss;
use linerate_epc::mme::{Mme, State as MmeState};
use linerate_epc::pgw::Pgw;
use linerate_epc::ran::{Ran, State};
use linerate_epc::{Cores, Link, Node, Notice};
use linerate_testkit::netns::Namespace;
use linerate_testkit::{Scratch, capture, has, wait};
use linerate_wire::{gtpc, gtpu};
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Instant;

const STATIONS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 16);
const USERS: u64 = 4;

struct Socket {
    kind: Kind,
    is_user: bool,
    own: SocketAddrV4,
    socket: UdpSocket,
}

struct Bench {
    start: Instant,
    ran: Ran,
    mme: Mme,
    hss: Hss,
    pgw: Pgw,
    sockets: Vec<Socket>,
    beyond: Vec<Vec<u8>>,
    at_users: Vec<(u32, Vec<u8>)>,
    frames: Vec<Vec<u8>>,
}

impl Bench {
    fn new() -> Self {
        let cores = Cores::new(1).unwrap();
        let mut ran = ran_config(USERS);
        ran.address = STATIONS;
        let mut mme = mme_config(USERS, 1);
        let mut pgw = pgw_config(USERS, 1);
        // It sends requests from sockets that it does not read.
        pgw.control.answers_to_port = true;
        mme.control.answers_to_port = true;
        let station = |number: u8| (Kind::Ran, Ipv4Addr::new(10, 0, 0, 16 + number), true);
        let ends = [
            (Kind::Mme, MME, false),
            (Kind::Pgw, PGW, false),
            (Kind::Pgw, PGW, true),
        ];
        let sockets = ends.into_iter().chain((0..4).map(station));
        let sockets = sockets.map(|(kind, address, is_user)| {
            let port = if is_user { gtpu::PORT } else { gtpc::PORT };
            let own = SocketAddrV4::new(address, port);
            let socket = UdpSocket::bind(own).unwrap();
            socket.set_nonblocking(true).unwrap();
            Socket {
                kind,
                is_user,
                own,
                socket,
            }
        });
        let mut bench = Self {
            start: Instant::now(),
            sockets: sockets.collect(),
            ran: Ran::new(&ran, cores, 0, 0).unwrap(),
            mme: Mme::new(&mme, cores, 0, Link::S6a(0), 0).unwrap(),
            hss: Hss::new(&hss_config(USERS), cores, 0).unwrap(),
            pgw: Pgw::new(&pgw, cores, 0, 0).unwrap(),
            beyond: Vec::new(),
            at_users: Vec::new(),
            frames: Vec::new(),
        };
        let s6a = Notice::Opened(Link::S6a(0));
        bench.with(Kind::Hss, |bench, now, out| bench.hss.notice(now, s6a, out));
        bench.with(Kind::Mme, |bench, now, out| bench.mme.notice(now, s6a, out));
        for station in 0..4 {
            let s1 = Notice::Opened(Link::S1(station));
            bench.with(Kind::Mme, |bench, now, out| bench.mme.notice(now, s1, out));
            bench.with(Kind::Ran, |bench, now, out| bench.ran.notice(now, s1, out));
        }
        bench
    }

    fn now(&self) -> u64 {
        SECOND + self.start.elapsed().as_nanos() as u64
    }

    fn with<R>(&mut self, kind: Kind, work: impl FnOnce(&mut Self, u64, &mut Outbox) -> R) -> R {
        let (now, mut out) = (self.now(), Outbox::default());
        let done = work(self, now, &mut out);
        for (link, bytes) in out.sent {
            self.send(kind, link, bytes);
        }
        done
    }

    fn send(&mut self, from: Kind, link: Link, mut bytes: Vec<u8>) {
        match link {
            Link::Sgi => self.beyond.push(bytes),
            Link::User(id) => self.at_users.push((id, bytes)),
            Link::S1(_) if from == Kind::Ran => self.with(Kind::Mme, |bench, now, out| {
                bench.mme.receive(now, link, &mut bytes, out);
            }),
            Link::S1(_) => self.with(Kind::Ran, |bench, now, out| {
                bench.ran.receive(now, link, &mut bytes, out);
            }),
            Link::S6a(_) if from == Kind::Mme => self.with(Kind::Hss, |bench, now, out| {
                bench.hss.receive(now, link, &mut bytes, out);
            }),
            Link::S6a(_) => self.with(Kind::Mme, |bench, now, out| {
                bench.mme.receive(now, link, &mut bytes, out);
            }),
            Link::Gtpc(to) | Link::Gtpu(to) => {
                let is_user = matches!(link, Link::Gtpu(_));
                let mut sockets = self.sockets.iter();
                let socket = sockets
                    .find(|s| s.kind == from && s.is_user == is_user)
                    .unwrap();
                socket.socket.send_to(&bytes, to).unwrap();
                let own = (*socket.own.ip(), socket.own.port());
                self.frames.push(udp(own, (*to.ip(), to.port()), &bytes));
            }
        }
    }

    fn turn(&mut self) {
        let mut buffer = [0; 4096];
        for at in 0..self.sockets.len() {
            while let Ok((len, SocketAddr::V4(from))) =
                self.sockets[at].socket.recv_from(&mut buffer)
            {
                let Socket {
                    kind, is_user, own, ..
                } = self.sockets[at];
                let bytes = &mut buffer[..len];
                let to = (*own.ip(), own.port());
                self.frames.push(udp((*from.ip(), from.port()), to, bytes));
                let link = match is_user {
                    true => Link::Gtpu(from),
                    false => Link::Gtpc(from),
                };
                self.with(kind, |bench, now, out| match kind {
                    Kind::Mme => bench.mme.receive(now, link, bytes, out),
                    Kind::Pgw => bench.pgw.receive(now, link, bytes, out),
                    _ => bench.ran.receive(now, link, bytes, out),
                });
            }
        }
        self.with(Kind::Ran, |bench, now, out| bench.ran.poll(now, 64, out));
        self.with(Kind::Mme, |bench, now, out| bench.mme.poll(now, 64, out));
        self.with(Kind::Hss, |bench, now, out| bench.hss.poll(now, 64, out));
        self.with(Kind::Pgw, |bench, now, out| bench.pgw.poll(now, 64, out));
    }

    fn beyond(&mut self, mut packet: Vec<u8>) {
        self.with(Kind::Pgw, |bench, now, out| {
            bench.pgw.receive(now, Link::Sgi, &mut packet, out);
        });
    }
}

/// Lets time pass until something holds.
fn until(bench: &RefCell<Bench>, what: &str, holds: impl Fn(&Bench) -> bool) {
    wait(what, || {
        bench.borrow_mut().turn();
        holds(&bench.borrow())
    });
}

fn all_are(state: State) -> impl Fn(&Bench) -> bool {
    move |bench| bench.ran.users_in(state) == USERS as usize
}

fn mme_has(state: MmeState) -> impl Fn(&Bench) -> bool {
    move |bench| bench.mme.users_in(state) == USERS as usize
}

fn address(bench: &RefCell<Bench>, id: u32) -> [u8; 4] {
    bench.borrow().ran.address(id).unwrap().octets()
}

fn life() -> Vec<Vec<u8>> {
    let cell = RefCell::new(Bench::new());
    let ids: Vec<u32> = cell.borrow().ran.ids().collect();
    let each = |work: &dyn Fn(&mut Bench, u32)| {
        ids.iter().for_each(|&id| work(&mut cell.borrow_mut(), id));
    };
    each(&|bench, id| {
        bench.with(Kind::Ran, |bench, now, out| bench.ran.attach(now, id, out));
    });
    until(&cell, "all to attach", mme_has(MmeState::Connected));
    assert_eq!(cell.borrow().pgw.sessions(), USERS as usize);

    for &id in &ids {
        let user = address(&cell, id);
        let mut bench = cell.borrow_mut();
        let up = packet(user, NET, 7);
        assert!(bench.with(Kind::Ran, |bench, now, out| {
            bench.ran.send(now, id, &up, out)
        }));
        bench.beyond(packet(NET, user, 8));
    }
    until(&cell, "packets to pass both ways", |bench| {
        bench.beyond.len() == USERS as usize && bench.at_users.len() == USERS as usize
    });
    let came = std::mem::take(&mut cell.borrow_mut().at_users);
    for (id, bytes) in came {
        let user = address(&cell, id);
        assert_eq!(bytes, packet(NET, user, 8));
    }

    each(&|bench, id| {
        bench.with(Kind::Ran, |bench, now, out| bench.ran.go_idle(now, id, out));
    });
    until(&cell, "all to be idle", mme_has(MmeState::Idle));
    for &id in &ids[..2] {
        let user = address(&cell, id);
        cell.borrow_mut().beyond(packet(NET, user, 9));
    }
    until(&cell, "the paged to be connected", |bench| {
        bench.mme.users_in(MmeState::Connected) == 2
    });
    // It sends what waited when the next packet comes, not when the bearer is there.
    for &id in &ids[..2] {
        let user = address(&cell, id);
        cell.borrow_mut().beyond(packet(NET, user, 10));
    }
    until(&cell, "what waited to arrive", |bench| {
        bench.at_users.len() == 4
    });
    assert_eq!(cell.borrow().ran.counts.paged, 2);
    each(&|bench, id| {
        bench.with(Kind::Ran, |bench, now, out| bench.ran.service(now, id, out));
    });
    until(&cell, "all to be connected", all_are(State::Connected));
    until(&cell, "the MME to know", mme_has(MmeState::Connected));
    each(&|bench, id| {
        bench.with(Kind::Ran, |bench, now, out| bench.ran.detach(now, id, out));
    });
    until(&cell, "all to be off", all_are(State::Off));
    until(&cell, "nothing to be left", |bench| {
        bench.mme.users() == 0 && bench.pgw.is_empty() && bench.hss.users() == 0
    });
    let bench = cell.into_inner();
    assert_eq!(bench.mme.counts.detached, USERS);
    assert_eq!((bench.mme.counts.rejected, bench.mme.counts.lost), (0, 0));
    bench.frames
}

#[test]
#[ignore = "long: another program's SGW, in real time"]
fn nextepc_carries_attach_data_and_paging() {
    if !has(&["nextepc-sgwd", "ip", "tshark"]) {
        return;
    }
    let (Some(ours), Some(namespace)) = (Namespace::new("epc"), Namespace::new("sgw")) else {
        return;
    };
    ours.wire("epc0", &namespace, "sgw0", "");
    namespace.ip(&format!("address add {SGW}/24 dev sgw0"));
    let stations = (0..4).map(|number| Ipv4Addr::new(10, 0, 0, 16 + number));
    for address in [MME, PGW].into_iter().chain(stations) {
        ours.ip(&format!("address add {address}/24 dev epc0"));
    }
    let scratch = Scratch::new();
    let log = scratch.file("sgw.log");
    let configuration = format!(
        "logger:\n    file: {log}\nparameter:\n    no_ipv6: true\n\
         sgw:\n    gtpc:\n      addr: {SGW}\n    gtpu:\n      addr: {SGW}\n"
    );
    let file = scratch.write("sgw.conf", configuration);
    // It wants a folder below /run, which is its own here: `ip netns exec` has a mount namespace.
    let script = format!(
        "mount -t tmpfs tmpfs /run && mkdir /run/nextepc-sgwd && exec nextepc-sgwd -f {file}"
    );
    let mut command = namespace.command("sh");
    let mut sgw = linerate_testkit::process::Running::start(command.args(["-c", &script]));
    // Its sockets of GTP-U and GTP-C, as the kernel lists them.
    wait("the SGW to listen", || {
        let read = || std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let sockets = namespace.inside(read);
        sockets.contains("0200000A:0868") && sockets.contains("0200000A:084B")
    });
    let frames = ours.inside(life);
    assert!(sgw.is_alive());
    let file = scratch.write("nextepc.pcap", capture::pcap(&frames));
    let arguments = ["-Y", "_ws.malformed", "-T", "fields", "-e", "_ws.col.Info"];
    let found = tshark::tshark(&file, &arguments);
    assert!(found.is_empty(), "{found:?}");
}
