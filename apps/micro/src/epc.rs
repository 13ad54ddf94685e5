//! The nodes of an EPC on two cores: users attach and detach. State is each core's own, and
//! messages are handed to the core of their user; or all cores share it under locks, and messages
//! stay where they arrive.
//!
//! A datagram arrives at either core, a connection's message at the core of its number: what has to
//! get to the other core takes a ring, in both arrangements. The first pays another hop where the
//! owner is elsewhere (`handed`), the second the locks, of which there are many, and lines of
//! memory that move between caches.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use linerate_appliance::error::Error;
use linerate_core::env::Lcore;
use linerate_core::ring::{Pop, Push, spsc};
use linerate_epc::gtp::endpoint::EndpointConfig;
use linerate_epc::hss::{Hss, HssConfig, Subscribers};
use linerate_epc::mme::{Mme, MmeConfig};
use linerate_epc::pending::Patience;
use linerate_epc::pgw::{Pgw, PgwConfig};
use linerate_epc::ran::{Ran, RanConfig, State};
use linerate_epc::s6a::{Identity, Subscription};
use linerate_epc::sgw::{BufferConfig, Sgw, SgwConfig};
use linerate_epc::store::{Locked, Shard, Store, Taken, parts, take};
use linerate_epc::{Cores, EpcError, Link, Node, Notice, Sink};
use linerate_wire::gtpc;
use linerate_wire::gtpc::ie::{Imsi, plmn};

use super::{Row, Run, Sample};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "epc.attach",
        about: "an attach and a detach on two cores that share nothing: messages are handed over",
        run: |row, run| attach::<ByApplication>(row, run),
    },
    Row {
        name: "epc.attach.hash",
        about: "the same where all cores share the tables under locks",
        run: |row, run| attach::<ByHash>(row, run),
    },
];

const CORES: usize = 2;
const MME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const HSS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 4);
const STATIONS: u16 = 64;
/// Users of each core that are on their way at a time.
const AT_ONCE: usize = 64;
/// Room for a message, in bytes.
const ROOM: usize = 1024;
/// Messages that a ring between the cores holds: those of all users on their way, and more.
const RING: usize = 4096;
/// Messages between two looks at users and timers.
const MESSAGES: usize = 64;

/// Who may touch what: see [`linerate_epc::store`].
trait Arrangement: 'static {
    type Of<N: Send + 'static>: Store<N> + Send + 'static;
    /// Parts of each node.
    const PARTS: usize;
    fn arrange<N: Send + 'static>(parts: Vec<N>) -> Vec<Self::Of<N>>;
}

/// A part for each core.
struct ByApplication;
/// All parts for all cores.
struct ByHash;

impl Arrangement for ByApplication {
    type Of<N: Send + 'static> = Shard<N>;
    const PARTS: usize = CORES;

    fn arrange<N: Send + 'static>(parts: Vec<N>) -> Vec<Shard<N>> {
        let parts = (0..).zip(parts);
        parts.map(|(core, node)| Shard::new(core, node)).collect()
    }
}

impl Arrangement for ByHash {
    type Of<N: Send + 'static> = Locked<N>;
    /// Each with a lock: so many that the cores seldom want the same one.
    const PARTS: usize = 64;

    fn arrange<N: Send + 'static>(parts: Vec<N>) -> Vec<Locked<N>> {
        let all = Locked::new(parts);
        (0..CORES as u8).map(|core| all.share(core)).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ran,
    Mme,
    Hss,
    Sgw,
    Pgw,
}

/// A message on its way.
struct Message {
    to: Kind,
    link: Link,
    /// It has come to its owner's core.
    is_handed: bool,
    len: usize,
    bytes: [u8; ROOM],
}

impl Default for Message {
    fn default() -> Self {
        Self {
            to: Kind::Ran,
            link: Link::Sgi,
            is_handed: false,
            len: 0,
            bytes: [0; ROOM],
        }
    }
}

/// Messages to be used again: boxes, which rings pass on.
#[allow(clippy::vec_box)]
type Free = Vec<Box<Message>>;

/// Collects what a node sends.
struct Out<'a> {
    from: Kind,
    sent: &'a mut VecDeque<Box<Message>>,
    free: &'a mut Free,
}

impl Sink for Out<'_> {
    fn send(&mut self, to: Link, bytes: &[u8]) {
        let own = match self.from {
            Kind::Mme => MME,
            Kind::Sgw => SGW,
            _ => PGW,
        };
        let source = SocketAddrV4::new(own, gtpc::PORT);
        let (kind, link) = match (self.from, to) {
            (Kind::Ran, Link::S1(_)) | (Kind::Hss, Link::S6a(_)) => (Kind::Mme, to),
            (_, Link::S1(_)) => (Kind::Ran, to),
            (_, Link::S6a(_)) => (Kind::Hss, to),
            (_, Link::Gtpc(to)) if *to.ip() == MME => (Kind::Mme, Link::Gtpc(source)),
            (_, Link::Gtpc(to)) if *to.ip() == SGW => (Kind::Sgw, Link::Gtpc(source)),
            (_, Link::Gtpc(_)) => (Kind::Pgw, Link::Gtpc(source)),
            // Nobody sends data here.
            (_, Link::Gtpu(_) | Link::Sgi | Link::User(_)) => return,
        };
        let mut message = self.free.pop().unwrap_or_default();
        let Some(room) = message.bytes.get_mut(..bytes.len()) else {
            return;
        };
        room.copy_from_slice(bytes);
        (message.to, message.link, message.len) = (kind, link, bytes.len());
        message.is_handed = false;
        self.sent.push_back(message);
    }

    // Nobody restarts here.
    fn tell(&mut self, _: Notice) {}
}

/// All nodes, as one core sees them.
struct Nodes<A: Arrangement> {
    ran: A::Of<Ran>,
    mme: A::Of<Mme>,
    hss: A::Of<Hss>,
    sgw: A::Of<Sgw>,
    pgw: A::Of<Pgw>,
}

/// The users of a part, those on their way, and who is next.
struct Driven {
    part: u8,
    ids: Vec<u32>,
    active: Vec<u32>,
    next: usize,
}

/// One core.
struct Core<A: Arrangement> {
    me: u8,
    cores: Cores,
    nodes: Nodes<A>,
    to: spsc::Producer<Box<Message>>,
    from: spsc::Consumer<Box<Message>>,
    /// What has arrived here, and what has just been sent.
    arrived: VecDeque<Box<Message>>,
    sent: VecDeque<Box<Message>>,
    free: Free,
    began: Instant,
    /// By part whose users this core drives.
    driven: Vec<Driven>,
    arrivals: u64,
    handed: u64,
    messages: u64,
}

impl<A: Arrangement> Core<A> {
    fn now_ns(&self) -> u64 {
        1_000_000_000 + self.began.elapsed().as_nanos() as u64
    }

    /// Works on one node's part.
    fn with<N: Node + Send + 'static, S: Store<N>, R>(
        (store, from): (&mut S, Kind),
        part: u8,
        (sent, free): (&mut VecDeque<Box<Message>>, &mut Free),
        work: impl FnOnce(&mut N, &mut Out<'_>) -> R,
    ) -> Option<R> {
        let mut out = Out { from, sent, free };
        store.with(part, |node| work(node, &mut out))
    }

    fn notice(&mut self, kind: Kind, me: u8, notice: Notice) {
        let now = self.now_ns();
        let boxes = (&mut self.sent, &mut self.free);
        let nodes = &mut self.nodes;
        match kind {
            Kind::Ran => Self::with((&mut nodes.ran, kind), me, boxes, |node: &mut Ran, out| {
                node.notice(now, notice, out);
            }),
            Kind::Mme => Self::with((&mut nodes.mme, kind), me, boxes, |node: &mut Mme, out| {
                node.notice(now, notice, out);
            }),
            _ => Self::with((&mut nodes.hss, kind), me, boxes, |node: &mut Hss, out| {
                node.notice(now, notice, out);
            }),
        };
        self.dispatch();
    }

    /// What was sent arrives: connections at one core, datagrams of any 4-tuple at any.
    fn dispatch(&mut self) {
        while let Some(message) = self.sent.pop_front() {
            let home = match message.link {
                Link::S1(number) | Link::S6a(number) => number,
                _ => {
                    self.arrivals += 1;
                    self.arrivals as u16
                }
            };
            match home % CORES as u16 == u16::from(self.me) {
                true => self.arrived.push_back(message),
                false => self.pass(message),
            }
        }
    }

    fn pass(&mut self, message: Box<Message>) {
        // The other core has ended where there is no room: all messages fit.
        if let Err(message) = self.to.push(message) {
            self.free.push(message);
        }
    }

    fn handle(&mut self, mut message: Box<Message>) {
        let (now, me, cores) = (self.now_ns(), self.me, self.cores);
        let (sent, free) = (&mut self.sent, &mut self.free);
        let nodes = &mut self.nodes;
        let kind = message.to;
        let out = Out {
            from: kind,
            sent,
            free,
        };
        self.messages += 1;
        let is = (now, me, cores);
        let taken = match kind {
            Kind::Ran => one(&mut nodes.ran, is, &mut message, out),
            Kind::Mme => one(&mut nodes.mme, is, &mut message, out),
            Kind::Hss => one(&mut nodes.hss, is, &mut message, out),
            Kind::Sgw => one(&mut nodes.sgw, is, &mut message, out),
            Kind::Pgw => one(&mut nodes.pgw, is, &mut message, out),
        };
        match taken {
            Taken::Here => self.free.push(message),
            Taken::Elsewhere(_) => {
                message.is_handed = true;
                self.handed += 1;
                self.pass(message);
            }
        }
        self.dispatch();
    }

    /// Users who are off attach, those who are connected detach; each then makes room for another.
    fn drive(&mut self) {
        let now = self.now_ns();
        let Self {
            driven,
            sent,
            free,
            nodes,
            ..
        } = self;
        for driven in driven {
            let (part, boxes) = (driven.part, (&mut *sent, &mut *free));
            let Driven {
                ids, active, next, ..
            } = driven;
            let ran = (&mut nodes.ran, Kind::Ran);
            Self::with(ran, part, boxes, |ran: &mut Ran, out| {
                for id in active {
                    match ran.state(*id) {
                        State::Off => {
                            *next = (*next + 1) % ids.len();
                            *id = ids[*next];
                            ran.attach(now, *id, out);
                        }
                        State::Connected => {
                            ran.detach(now, *id, out);
                        }
                        _ => {}
                    }
                }
            });
        }
        self.dispatch();
    }

    fn poll(&mut self) {
        let now = self.now_ns();
        let (sent, free) = (&mut self.sent, &mut self.free);
        let nodes = &mut self.nodes;
        macro_rules! poll {
            ($store:expr, $kind:expr, $node:ty, $part:expr) => {
                let boxes = (&mut *sent, &mut *free);
                Self::with(($store, $kind), $part, boxes, |node: &mut $node, out| {
                    node.poll(now, MESSAGES, out)
                });
            };
        }
        for driven in &self.driven {
            poll!(&mut nodes.ran, Kind::Ran, Ran, driven.part);
            poll!(&mut nodes.mme, Kind::Mme, Mme, driven.part);
            poll!(&mut nodes.sgw, Kind::Sgw, Sgw, driven.part);
            poll!(&mut nodes.pgw, Kind::Pgw, Pgw, driven.part);
        }
        self.dispatch();
    }

    /// One round; how many messages were handled.
    fn round(&mut self) -> usize {
        self.drive();
        let mut count = 0;
        while count < MESSAGES {
            let from = self.from.pop();
            let Some(message) = from.or_else(|| self.arrived.pop_front()) else {
                break;
            };
            self.handle(message);
            count += 1;
        }
        count
    }

    fn run(&mut self, duration: Duration) {
        let until = Instant::now() + duration;
        let mut rounds = 0_u32;
        while Instant::now() < until {
            if self.round() == 0 {
                // The other core may need this CPU.
                std::thread::yield_now();
            }
            rounds += 1;
            if rounds.is_multiple_of(1024) {
                self.poll();
            }
        }
    }

    fn attached(&mut self) -> u64 {
        let ran = &mut self.nodes.ran;
        let of = |driven: &Driven| ran.with(driven.part, |ran: &mut Ran| ran.counts.attached);
        self.driven.iter().filter_map(of).sum()
    }
}

/// One message at one node: by its owner, or where it has come to.
fn one<N: Node, S: Store<N>>(
    store: &mut S,
    (now, me, cores): (u64, u8, Cores),
    message: &mut Message,
    mut out: Out<'_>,
) -> Taken {
    let (link, len) = (message.link, message.len);
    let bytes = &mut message.bytes[..len];
    if message.is_handed {
        store.with(me, |node| node.receive(now, link, bytes, &mut out));
        return Taken::Here;
    }
    take(store, cores, now, link, bytes, &mut out)
}

fn identity(host: &str, address: Ipv4Addr) -> Identity {
    Identity {
        host: host.into(),
        realm: "linerate".into(),
        address,
        restarts: 1,
    }
}

/// The cores, each with its view of all nodes, and connections open.
fn cores<A: Arrangement>(users: u64) -> Result<Vec<Core<A>>, EpcError> {
    let missing = || EpcError::Apn("a test network".into());
    let first = Imsi::new(1_010_000_000_001, 15).ok_or_else(missing)?;
    let network = plmn(1, 1, 2).ok_or_else(missing)?;
    let control = |address| EndpointConfig::new(SocketAddrV4::new(address, gtpc::PORT));
    // Parts are not all as large: half as many again.
    let records = users as usize * 3 / 2 / A::PARTS + 64;
    let ran = RanConfig {
        first,
        users,
        operator: 1,
        stations: STATIONS,
        address: Ipv4Addr::new(10, 0, 1, 0),
        plmn: network,
        tac: 1,
        patience_ms: 15_000,
        secret: 1,
    };
    let mme = MmeConfig {
        control: control(MME),
        who: identity("mme.linerate", MME),
        plmn: network,
        sgw: SocketAddrV4::new(SGW, gtpc::PORT),
        pgw: PGW,
        apn: "internet".into(),
        users: records,
        stations: STATIONS,
        answer_ms: 10_000,
        paging: Patience {
            timeout_ms: 2000,
            again: 2,
        },
        silence_ms: 30_000,
        secret: 2,
    };
    let hss = HssConfig {
        who: identity("hss.linerate", HSS),
        subscribers: vec![Subscribers {
            first,
            count: users,
            subscription: Subscription::default(),
        }],
        apn: "internet".into(),
        operator: 1,
        users: records,
        connections: A::PARTS as u16,
        silence_ms: 30_000,
        secret: 3,
    };
    let sgw = SgwConfig {
        control: control(SGW),
        user: SGW,
        sessions: records,
        buffers: BufferConfig::default(),
        secret: 4,
    };
    let pgw = PgwConfig {
        control: control(PGW),
        user: PGW,
        sessions: records,
        addresses: (Ipv4Addr::new(100, 64, 0, 0), 10),
        apn: "internet".into(),
        secret: 5,
    };
    let now = 1_000_000_000;
    let to_hss = |core: u8| Link::S6a(core.into());
    let make = |cores, core| Mme::new(&mme, cores, core, to_hss(core), now);
    let mut mmes = A::arrange(parts(A::PARTS, make)?).into_iter();
    let mut rans =
        A::arrange(parts(A::PARTS, |all, core| Ran::new(&ran, all, core, now))?).into_iter();
    let mut hsss = A::arrange(parts(A::PARTS, |all, core| Hss::new(&hss, all, core))?).into_iter();
    let mut sgws =
        A::arrange(parts(A::PARTS, |all, core| Sgw::new(&sgw, all, core, now))?).into_iter();
    let mut pgws =
        A::arrange(parts(A::PARTS, |all, core| Pgw::new(&pgw, all, core, now))?).into_iter();
    let ((to_one, from_zero), (to_zero, from_one)) = (spsc::ring(RING), spsc::ring(RING));
    let mut ends = [(to_one, from_one), (to_zero, from_zero)].into_iter();
    let mut all = Vec::new();
    for me in 0..CORES as u8 {
        let nodes = (
            rans.next(),
            mmes.next(),
            hsss.next(),
            sgws.next(),
            pgws.next(),
        );
        let (Some(mut ran), Some(mme), Some(hss), Some(sgw), Some(pgw)) = nodes else {
            break;
        };
        let Some((to, from)) = ends.next() else { break };
        let own = (me..A::PARTS as u8).step_by(CORES);
        let drive = |part| {
            let ids = ran.with(part, |ran: &mut Ran| ran.ids().collect::<Vec<u32>>());
            let ids = ids.unwrap_or_default();
            let at_once = (AT_ONCE * CORES / A::PARTS).min(ids.len());
            Driven {
                part,
                active: ids[..at_once].to_vec(),
                next: at_once,
                ids,
            }
        };
        let driven = own.map(drive).collect();
        all.push(Core {
            me,
            cores: Cores::new(A::PARTS)?,
            nodes: Nodes {
                ran,
                mme,
                hss,
                sgw,
                pgw,
            },
            to,
            from,
            arrived: VecDeque::new(),
            sent: VecDeque::new(),
            free: Free::new(),
            began: Instant::now(),
            driven,
            arrivals: 0,
            handed: 0,
            messages: 0,
        });
    }
    for kind in [Kind::Mme, Kind::Ran] {
        for core in &mut all {
            let parts: Vec<u8> = core.driven.iter().map(|driven| driven.part).collect();
            for part in parts {
                if kind == Kind::Mme {
                    let opened = Notice::Opened(to_hss(part));
                    core.notice(Kind::Hss, part, opened);
                    core.notice(Kind::Mme, part, opened);
                }
                for station in 0..STATIONS {
                    core.notice(kind, part, Notice::Opened(Link::S1(station)));
                }
            }
        }
    }
    Ok(all)
}

/// What an attach with its detach takes, with both cores at work.
fn attach<A: Arrangement>(row: &'static str, run: Run) -> Result<Sample, Error> {
    let users = if run.quick { 400 } else { 100_000 };
    let all = cores::<A>(users).map_err(|error| Error::Output(std::io::Error::other(error)))?;
    let duration = run.duration;
    let work = move |mut core: Core<A>| {
        core.run(duration / 10);
        let (before, handed, messages) = (core.attached(), core.handed, core.messages);
        let began = Instant::now();
        core.run(duration);
        let ns = began.elapsed().as_nanos() as f64;
        let attached = core.attached() - before;
        (attached, core.handed - handed, core.messages - messages, ns)
    };
    let mut workers = Vec::new();
    for (core, cpu) in all.into_iter().zip(run.cpus) {
        workers.push(Lcore::spawn("epc", Some(cpu), move || work(core))?);
    }
    let (mut attached, mut handed, mut messages, mut longest) = (0, 0, 0, 0.0_f64);
    for worker in workers {
        let (of, given, handled, ns) = worker.join()?;
        attached += of;
        handed += given;
        messages += handled;
        longest = longest.max(ns);
    }
    if attached == 0 && !run.quick {
        return Err(Error::Output(std::io::Error::other("no user attached")));
    }
    let ns = longest / attached.max(1) as f64;
    Ok(Sample::new(row, ns, "ns", "heap")
        .with("attaches", attached)
        .with("messages", messages)
        .with("handed", handed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Both cores by turns, so that nothing depends on how fast either is.
    fn attaches<A: Arrangement>() -> (u64, u64) {
        let mut all = cores::<A>(400).unwrap();
        for _ in 0..500 {
            for core in &mut all {
                core.round();
            }
        }
        let attached = all.iter_mut().map(Core::attached).sum();
        (attached, all.iter().map(|core| core.handed).sum())
    }

    #[test]
    fn users_attach_and_messages_are_handed_over_only_where_state_is_apart() {
        let (attached, handed) = attaches::<ByApplication>();
        assert!(attached > 400, "{attached}");
        assert!(handed > attached, "{handed}");
        let (attached, handed) = attaches::<ByHash>();
        assert!(attached > 400, "{attached}");
        assert_eq!(handed, 0);
    }
}
