//! Nodes, what is on its way between them, and the time.

use linerate_epc::gtp::endpoint::EndpointConfig;
use linerate_epc::hss::{Hss, HssConfig, Subscribers};
use linerate_epc::mme::{Mme, MmeConfig};
use linerate_epc::pending::Patience;
use linerate_epc::pgw::{Pgw, PgwConfig};
use linerate_epc::ran::{Ran, RanConfig, State};
use linerate_epc::s6a::{Identity, Subscription};
use linerate_epc::sgw::{BufferConfig, Sgw, SgwConfig};
use linerate_epc::store::{Locked, Shard, Store, Taken, parts, take};
use linerate_epc::tunnels::AddressPool;
use linerate_epc::{Cores, Link, Node, Notice, Sink};
use linerate_testkit::Random;
use linerate_wire::gtpc::ie::{Imsi, plmn};
use linerate_wire::{gtpc, gtpu};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MME: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const PGW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
pub(crate) const HSS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 4);
pub(crate) const STATIONS: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 0);
pub(crate) const NET: [u8; 4] = [192, 0, 2, 1];
pub(crate) const STATION_COUNT: u16 = 4;
/// The first user's number.
pub(crate) const FIRST: u64 = 1_010_000_000_001;

/// Who may touch what: see [`linerate_epc::store`].
pub(crate) trait Arrangement {
    type Of<N>: Store<N>;
    fn arrange<N>(parts: Vec<N>) -> Vec<Self::Of<N>>;
}

/// A part for each core.
pub(crate) struct ByApplication;
/// All parts for all cores.
pub(crate) struct ByHash;

impl Arrangement for ByApplication {
    type Of<N> = Shard<N>;

    fn arrange<N>(parts: Vec<N>) -> Vec<Shard<N>> {
        let parts = (0..).zip(parts);
        parts.map(|(core, node)| Shard::new(core, node)).collect()
    }
}

impl Arrangement for ByHash {
    type Of<N> = Locked<N>;

    fn arrange<N>(parts: Vec<N>) -> Vec<Locked<N>> {
        let count = parts.len() as u8;
        let all = Locked::new(parts);
        (0..count).map(|core| all.share(core)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ran,
    Mme,
    Hss,
    Sgw,
    Pgw,
}

/// What datagrams suffer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// One in so many is lost; 0: none.
    pub loss: usize,
    /// One in so many comes twice.
    pub twice: usize,
    /// Nanoseconds by which they are late at most: others overtake them.
    pub jitter_ns: u64,
}

/// One message that was sent, for the record.
#[derive(Clone)]
pub(crate) struct Said {
    pub from: Kind,
    pub link: Link,
    /// Addresses of datagrams.
    pub source: SocketAddrV4,
    pub bytes: Vec<u8>,
}

struct Packet {
    to: Kind,
    link: Link,
    bytes: Vec<u8>,
}

/// Collects what one call sends.
#[derive(Default)]
pub(crate) struct Outbox {
    pub sent: Vec<(Link, Vec<u8>)>,
    told: Vec<Notice>,
}

impl Sink for Outbox {
    fn send(&mut self, to: Link, message: &[u8]) {
        self.sent.push((to, message.to_vec()));
    }

    fn tell(&mut self, notice: Notice) {
        self.told.push(notice);
    }
}

pub(crate) struct World<A: Arrangement> {
    pub now: u64,
    pub random: Random,
    pub faults: Faults,
    pub count: usize,
    pub cores: Cores,
    pub ran: Vec<A::Of<Ran>>,
    pub mme: Vec<A::Of<Mme>>,
    pub hss: Vec<A::Of<Hss>>,
    pub sgw: Vec<A::Of<Sgw>>,
    pub pgw: Vec<A::Of<Pgw>>,
    pub pool: AddressPool,
    /// What is on its way, by time and order.
    queue: BTreeMap<(u64, u64), Packet>,
    order: u64,
    next_poll: u64,
    /// Packets that came out at SGi, and at users.
    pub beyond: Vec<Vec<u8>>,
    pub at_users: Vec<(u32, Vec<u8>)>,
    /// All that was said, if wanted.
    pub record: Option<Vec<Said>>,
    /// Base stations do not hear pagings.
    pub mute_paging: bool,
    /// Datagrams to nobody.
    pub astray: u64,
    /// The HSS hears nothing.
    pub deaf_hss: bool,
    /// Nor does the PGW.
    pub deaf_pgw: bool,
    /// Messages that another core had to take.
    pub handed_over: u64,
}

pub(crate) fn control(address: Ipv4Addr, restarts: u8) -> EndpointConfig {
    EndpointConfig {
        restarts,
        patience: Patience {
            timeout_ms: 1000,
            again: 8,
        },
        requests: 1 << 10,
        ..EndpointConfig::new(SocketAddrV4::new(address, gtpc::PORT))
    }
}

pub(crate) fn network() -> [u8; 3] {
    plmn(1, 1, 2).unwrap()
}

pub(crate) fn identity(host: &str, address: Ipv4Addr) -> Identity {
    Identity {
        host: host.into(),
        realm: "linerate".into(),
        address,
        restarts: 1,
    }
}

pub(crate) fn mme_config(users: u64, restarts: u8) -> MmeConfig {
    MmeConfig {
        control: control(MME, restarts),
        who: identity("mme.linerate", MME),
        plmn: network(),
        sgw: SocketAddrV4::new(SGW, gtpc::PORT),
        pgw: PGW,
        apn: "internet".into(),
        users: users as usize,
        stations: STATION_COUNT,
        answer_ms: 10_000,
        paging: Patience {
            timeout_ms: 2000,
            again: 2,
        },
        silence_ms: 30_000,
        secret: 11,
    }
}

pub(crate) fn ran_config(users: u64) -> RanConfig {
    RanConfig {
        first: Imsi::new(FIRST, 15).unwrap(),
        users,
        operator: 99,
        stations: STATION_COUNT,
        address: STATIONS,
        plmn: network(),
        tac: 7,
        patience_ms: 15_000,
        secret: 12,
    }
}

pub(crate) fn hss_config(users: u64) -> HssConfig {
    HssConfig {
        who: identity("hss.linerate", HSS),
        subscribers: vec![Subscribers {
            first: Imsi::new(FIRST, 15).unwrap(),
            count: users,
            subscription: Subscription::default(),
        }],
        apn: "internet".into(),
        operator: 99,
        users: users as usize,
        connections: 64,
        silence_ms: 30_000,
        secret: 13,
    }
}

pub(crate) fn sgw_config(users: u64, restarts: u8) -> SgwConfig {
    SgwConfig {
        control: control(SGW, restarts),
        user: SGW,
        sessions: users as usize,
        buffers: BufferConfig::default(),
        secret: 14,
    }
}

pub(crate) fn pgw_config(users: u64, restarts: u8) -> PgwConfig {
    PgwConfig {
        control: control(PGW, restarts),
        user: PGW,
        sessions: users as usize,
        addresses: (Ipv4Addr::new(100, 64, 0, 0), 10),
        apn: "internet".into(),
        secret: 15,
    }
}

impl<A: Arrangement> World<A> {
    /// Users at their base stations, all connections open.
    pub(crate) fn new(seed: u64, count: usize, users: u64) -> Self {
        let mut world = Self::unconnected(seed, count, users);
        world.connect_hss();
        world.connect_stations();
        world.run(SECOND);
        world
    }

    /// The same, before any connection.
    pub(crate) fn unconnected(seed: u64, count: usize, users: u64) -> Self {
        println!("seed {seed:#x}, {count} cores, {users} users");
        let cores = Cores::new(count).unwrap();
        let pool = pgw_config(users, 1).addresses;
        Self {
            now: SECOND,
            random: Random::new(seed),
            faults: Faults::default(),
            count,
            cores,
            ran: Self::make_ran(count, users),
            mme: Self::make_mme(count, users, 1, SECOND),
            hss: A::arrange(
                parts(count, |cores, core| {
                    Hss::new(&hss_config(users), cores, core)
                })
                .unwrap(),
            ),
            sgw: Self::make_sgw(count, users, 1, SECOND),
            pgw: Self::make_pgw(count, users, 1, SECOND),
            pool: AddressPool::new(pool.0, pool.1, cores, users as usize).unwrap(),
            queue: BTreeMap::new(),
            order: 0,
            next_poll: 0,
            beyond: Vec::new(),
            at_users: Vec::new(),
            record: None,
            mute_paging: false,
            deaf_hss: false,
            deaf_pgw: false,
            astray: 0,
            handed_over: 0,
        }
    }

    fn make_ran(count: usize, users: u64) -> Vec<A::Of<Ran>> {
        let config = ran_config(users);
        A::arrange(parts(count, |cores, core| Ran::new(&config, cores, core, SECOND)).unwrap())
    }

    pub(crate) fn make_mme(count: usize, users: u64, restarts: u8, now: u64) -> Vec<A::Of<Mme>> {
        let config = mme_config(users, restarts);
        let make = |cores, core: u8| Mme::new(&config, cores, core, Link::S6a(core.into()), now);
        A::arrange(parts(count, make).unwrap())
    }

    pub(crate) fn make_sgw(count: usize, users: u64, restarts: u8, now: u64) -> Vec<A::Of<Sgw>> {
        let config = sgw_config(users, restarts);
        A::arrange(parts(count, |cores, core| Sgw::new(&config, cores, core, now)).unwrap())
    }

    pub(crate) fn make_pgw(count: usize, users: u64, restarts: u8, now: u64) -> Vec<A::Of<Pgw>> {
        let config = pgw_config(users, restarts);
        A::arrange(parts(count, |cores, core| Pgw::new(&config, cores, core, now)).unwrap())
    }

    /// Another HSS takes its place.
    pub(crate) fn change_hss(&mut self, change: impl FnOnce(&mut HssConfig)) {
        let mut config = hss_config(12);
        change(&mut config);
        let make = |cores, core| Hss::new(&config, cores, core);
        self.hss = A::arrange(parts(self.count, make).unwrap());
        self.connect_hss();
        self.run(SECOND);
    }

    /// Another MME takes its place; base stations connect to it, and their users are off.
    pub(crate) fn change_mme(&mut self, users: u64, host: &str) {
        let (now, mut config) = (self.now, mme_config(users, 2));
        config.who.host = host.into();
        let make = |cores, core: u8| Mme::new(&config, cores, core, Link::S6a(core.into()), now);
        self.mme = A::arrange(parts(self.count, make).unwrap());
        for station in 0..STATION_COUNT {
            self.notice_all(Kind::Ran, Notice::Closed(Link::S1(station)));
        }
        self.connect_hss();
        self.connect_stations();
        self.run(SECOND);
    }

    /// The MME takes leave of the HSS.
    pub(crate) fn disconnect_mme(&mut self) {
        for core in 0..self.count {
            let mut out = Outbox::default();
            self.mme[core].with(core as u8, |mme| mme.disconnect(&mut out));
            self.post(Kind::Mme, out);
        }
        self.run(SECOND);
    }

    /// Opens a Diameter connection for each part of the MME.
    pub(crate) fn connect_hss(&mut self) {
        for core in 0..self.count {
            let notice = Notice::Opened(Link::S6a(core as u16));
            self.notice_one(Kind::Hss, core, notice);
            self.notice_one(Kind::Mme, core, notice);
        }
    }

    /// Opens the connections of all base stations.
    pub(crate) fn connect_stations(&mut self) {
        for station in 0..STATION_COUNT {
            self.notice_all(Kind::Mme, Notice::Opened(Link::S1(station)));
            self.notice_all(Kind::Ran, Notice::Opened(Link::S1(station)));
        }
    }

    pub(crate) fn notice_all(&mut self, kind: Kind, notice: Notice) {
        for core in 0..self.count {
            self.notice_one(kind, core, notice);
        }
    }

    pub(crate) fn notice_one(&mut self, kind: Kind, core: usize, notice: Notice) {
        let (now, part, mut out) = (self.now, core as u8, Outbox::default());
        match kind {
            Kind::Ran => self.ran[core].with(part, |node| node.notice(now, notice, &mut out)),
            Kind::Mme => self.mme[core].with(part, |node| node.notice(now, notice, &mut out)),
            Kind::Hss => self.hss[core].with(part, |node| node.notice(now, notice, &mut out)),
            Kind::Sgw => self.sgw[core].with(part, |node| node.notice(now, notice, &mut out)),
            Kind::Pgw => self.pgw[core].with(part, |node| node.notice(now, notice, &mut out)),
        };
        self.post(kind, out);
    }

    /// Works on a part of the RAN.
    pub(crate) fn with_ran<R>(
        &mut self,
        core: usize,
        work: impl FnOnce(&mut Ran, u64, &mut Outbox) -> R,
    ) -> R {
        let (now, mut out) = (self.now, Outbox::default());
        let done = self.ran[core].with(core as u8, |ran| work(ran, now, &mut out));
        self.post(Kind::Ran, out);
        done.unwrap()
    }

    /// Works on the part of the RAN that has a user.
    pub(crate) fn user<R>(
        &mut self,
        id: u32,
        work: impl FnOnce(&mut Ran, u64, &mut Outbox) -> R,
    ) -> R {
        let core = self.cores.of_id(id).unwrap();
        self.with_ran(usize::from(core), work)
    }

    pub(crate) fn state(&mut self, id: u32) -> State {
        self.user(id, |ran, _, _| ran.state(id))
    }

    /// Identifiers of all users.
    pub(crate) fn ids(&mut self) -> Vec<u32> {
        let each = |(core, store): (usize, &mut A::Of<Ran>)| {
            store
                .with(core as u8, |ran| ran.ids().collect::<Vec<_>>())
                .unwrap()
        };
        self.ran.iter_mut().enumerate().flat_map(each).collect()
    }

    /// Sums something over all parts of a kind of node.
    pub(crate) fn sum<N, S: Store<N>>(stores: &mut [S], what: impl Fn(&N) -> u64) -> u64 {
        let each = stores.iter_mut().enumerate();
        each.map(|(core, store)| store.with(core as u8, |node| what(node)).unwrap())
            .sum()
    }

    fn post(&mut self, from: Kind, out: Outbox) {
        for notice in out.told {
            self.notice_all(from, notice);
        }
        for (link, bytes) in out.sent {
            self.send(from, link, bytes);
        }
    }

    /// Puts a message on its way.
    pub(crate) fn send(&mut self, from: Kind, link: Link, bytes: Vec<u8>) {
        let own = match from {
            Kind::Mme => MME,
            Kind::Sgw => SGW,
            Kind::Pgw => PGW,
            _ => HSS,
        };
        let port = match link {
            Link::Gtpu(_) => gtpu::PORT,
            _ => gtpc::PORT,
        };
        let mut source = SocketAddrV4::new(own, port);
        let to = match (from, link) {
            (_, Link::Sgi) => return self.beyond.push(bytes),
            (_, Link::User(id)) => return self.at_users.push((id, bytes)),
            (Kind::Ran, Link::S1(_)) | (Kind::Hss, Link::S6a(_)) => Kind::Mme,
            (_, Link::S1(_)) => Kind::Ran,
            (_, Link::S6a(_)) => Kind::Hss,
            (_, Link::Gtpc(to) | Link::Gtpu(to)) => match *to.ip() {
                MME => Kind::Mme,
                SGW => Kind::Sgw,
                PGW => Kind::Pgw,
                to if to.octets()[..3] == STATIONS.octets()[..3] => Kind::Ran,
                _ => {
                    self.astray += 1;
                    return;
                }
            },
        };
        if from == Kind::Ran {
            // Any station's: only where an error indication comes from is looked at.
            source = SocketAddrV4::new(station_of(&bytes).unwrap_or(STATIONS), port);
        }
        if let Some(record) = &mut self.record {
            let bytes = bytes.clone();
            record.push(Said {
                from,
                link,
                source,
                bytes,
            });
        }
        let (link, is_datagram) = match link {
            Link::Gtpc(_) => (Link::Gtpc(source), true),
            Link::Gtpu(_) => (Link::Gtpu(source), true),
            link => (link, false),
        };
        let is_paging = to == Kind::Ran && matches!(link, Link::S1(_)) && bytes[3] == 15;
        let is_deaf = self.deaf_hss && to == Kind::Hss || self.deaf_pgw && to == Kind::Pgw;
        let is_mute = self.mute_paging && is_paging || is_deaf;
        let mut copies = usize::from(!is_mute);
        let mut late = 0;
        let faults = self.faults;
        if is_datagram {
            if faults.loss != 0 && self.random.one_in(faults.loss) {
                copies -= 1;
            }
            if faults.twice != 0 && self.random.one_in(faults.twice) {
                copies += 1;
            }
        }
        for _ in 0..copies {
            if is_datagram && faults.jitter_ns != 0 {
                late = self.random.below(faults.jitter_ns);
            }
            self.order += 1;
            let at = (self.now + 100_000 + late, self.order);
            let bytes = bytes.clone();
            self.queue.insert(at, Packet { to, link, bytes });
        }
    }

    /// A message arrives at some core of its node.
    pub(crate) fn deliver(&mut self, to: Kind, link: Link, mut bytes: Vec<u8>) {
        let home = match link {
            // A stream has one home; the HSS's and MME's ends of it are numbered alike.
            Link::S6a(number) => usize::from(number) % self.count,
            Link::S1(number) => usize::from(number) % self.count,
            _ => self.random.below(self.count),
        };
        let (cores, now) = (self.cores, self.now);
        let mut out = Outbox::default();
        let (bytes, sink) = (&mut bytes[..], &mut out);
        let mut home = home;
        if link == Link::Sgi {
            home = Pgw::owner_of_packet(&self.pool, bytes).map_or(home, usize::from);
        }
        let moved = match to {
            Kind::Ran => Self::take(&mut self.ran, home, cores, now, link, bytes, sink),
            Kind::Mme => Self::take(&mut self.mme, home, cores, now, link, bytes, sink),
            Kind::Hss => Self::take(&mut self.hss, home, cores, now, link, bytes, sink),
            Kind::Sgw => Self::take(&mut self.sgw, home, cores, now, link, bytes, sink),
            Kind::Pgw => Self::take(&mut self.pgw, home, cores, now, link, bytes, sink),
        };
        self.handed_over += u64::from(moved);
        self.post(to, out);
    }

    fn take<N: Node, S: Store<N>>(
        stores: &mut [S],
        home: usize,
        cores: Cores,
        now: u64,
        link: Link,
        bytes: &mut [u8],
        out: &mut Outbox,
    ) -> bool {
        match take(&mut stores[home], cores, now, link, bytes, out) {
            Taken::Here => false,
            Taken::Elsewhere(core) => {
                let store = &mut stores[usize::from(core)];
                let done = store.with(core, |node| node.receive(now, link, bytes, out));
                done.expect("the owner has it");
                true
            }
        }
    }

    /// Lets so many nanoseconds pass.
    pub(crate) fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            let message = self.queue.first_key_value().map(|(&(at, _), _)| at);
            let next = message.unwrap_or(u64::MAX).min(self.next_poll);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if message == Some(next)
                && let Some((_, packet)) = self.queue.pop_first()
            {
                self.deliver(packet.to, packet.link, packet.bytes);
                // What was begun may be due before what was.
                self.next_poll = self.next_poll.min(self.now + SECOND / 10);
            } else {
                self.poll();
            }
        }
    }

    fn poll(&mut self) {
        let now = self.now;
        let mut next = now + 10 * SECOND;
        for core in 0..self.count {
            let part = core as u8;
            let mut out = Outbox::default();
            let at = self.ran[core].with(part, |node| node.poll(now, 64, &mut out));
            next = next.min(at.flatten().unwrap_or(u64::MAX));
            self.post(Kind::Ran, out);
            let mut out = Outbox::default();
            let at = self.mme[core].with(part, |node| node.poll(now, 64, &mut out));
            next = next.min(at.flatten().unwrap_or(u64::MAX));
            self.post(Kind::Mme, out);
            let mut out = Outbox::default();
            let at = self.hss[core].with(part, |node| node.poll(now, 64, &mut out));
            next = next.min(at.flatten().unwrap_or(u64::MAX));
            self.post(Kind::Hss, out);
            let mut out = Outbox::default();
            let at = self.sgw[core].with(part, |node| node.poll(now, 64, &mut out));
            next = next.min(at.flatten().unwrap_or(u64::MAX));
            self.post(Kind::Sgw, out);
            let mut out = Outbox::default();
            let at = self.pgw[core].with(part, |node| node.poll(now, 64, &mut out));
            next = next.min(at.flatten().unwrap_or(u64::MAX));
            self.post(Kind::Pgw, out);
        }
        self.next_poll = next.max(now + 1_000_000);
    }

    /// Tells users of one state to go to another, again and again, until all are there.
    pub(crate) fn drive(
        &mut self,
        to: State,
        command: impl Fn(&mut Ran, u64, u32, &mut Outbox) -> bool,
    ) {
        let ids = self.ids();
        for _ in 0..20 {
            let mut missing = 0;
            for &id in &ids {
                if self.state(id) != to {
                    missing += 1;
                    self.user(id, |ran, now, out| command(ran, now, id, out));
                    // Not all in one moment.
                    self.run(1_000_000);
                }
            }
            if missing == 0 {
                return;
            }
            self.run(20 * SECOND);
        }
        let states: Vec<_> = ids.iter().map(|&id| self.state(id)).collect();
        panic!("not all users became {to:?}: {states:?}");
    }

    /// Whether nobody is anywhere, and nothing waits.
    pub(crate) fn assert_empty(&mut self) {
        self.run(120 * SECOND);
        assert_eq!(
            Self::sum(&mut self.mme, |mme| mme.users() as u64),
            0,
            "users at the MME"
        );
        assert_eq!(
            Self::sum(&mut self.hss, |hss| hss.users() as u64),
            0,
            "users at the HSS"
        );
        assert_eq!(
            Self::sum(&mut self.sgw, |sgw| sgw.sessions() as u64),
            0,
            "SGW sessions"
        );
        assert_eq!(
            Self::sum(&mut self.pgw, |pgw| pgw.sessions() as u64),
            0,
            "PGW sessions"
        );
        let open = |is_empty: bool| u64::from(!is_empty);
        assert_eq!(self.astray, 0, "datagrams to nobody");
        assert_eq!(Self::sum(&mut self.pgw, |pgw| open(pgw.is_empty())), 0);
        assert_eq!(Self::sum(&mut self.sgw, |sgw| sgw.buffered() as u64), 0);
        assert_eq!(Self::sum(&mut self.ran, |ran| ran.waiting() as u64), 0);
    }
}

/// The base station that sends an error indication: its address is in it.
fn station_of(bytes: &[u8]) -> Option<Ipv4Addr> {
    let gtpu = gtpu::Gtpu::new_checked(bytes).ok()?;
    let (_, address) = linerate_epc::gtp::user::gone(&gtpu)?;
    Some(address.into())
}

/// An IP packet between a user and the network beyond, with a number.
pub(crate) fn packet(from: [u8; 4], to: [u8; 4], number: u32) -> Vec<u8> {
    let ip = linerate_wire::ipv4::header(1, 64, 253, from.into(), to.into(), 4);
    [&ip[..], &number.to_be_bytes()].concat()
}
