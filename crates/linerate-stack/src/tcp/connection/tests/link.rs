//! Two connections and a link between them, in virtual time.

use std::collections::BTreeMap;

use linerate_core::packet::{Packet, Pool, PoolCache, PoolConfig, SlotClass};
use linerate_testkit::Random;

use crate::tcp::config::Config;
use crate::tcp::connection::{
    Active, Connection, Context, Ecn, Error, Passive, Shape, Shared, State, Wire, event,
};
use crate::tcp::metrics::{Metrics, MetricsConfig};
use crate::tcp::rate::Challenges;
use crate::tcp::receive::Pieces;
use crate::tcp::secret::Secret;
use crate::tcp::segment::{Header, Segment};
use crate::tcp::send_buffer::Chunks;
use crate::tcp::sent::Records;
use crate::tcp::stats::Stats;

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000_000_000;

/// The slots of an end, and what it has sent.
pub(super) struct TestWire {
    pub(super) cache: PoolCache,
    pub(super) out: Vec<(Packet, Ecn)>,
    pub(super) gso: u32,
}

impl Wire for TestWire {
    fn send(&mut self, header: &Header, shape: Shape, fill: impl FnOnce(&mut [u8])) -> bool {
        let len = header.len();
        let Some(mut packet) = self.cache.get_for(len + shape.len as usize) else {
            return false;
        };
        assert!(packet.set_len(len + shape.len as usize));
        assert_eq!(header.write(1, 2, packet.data_mut()), len);
        fill(&mut packet.data_mut()[len..]);
        assert!(self.gso > 0 || shape.gso_size == 0);
        self.out.push((packet, shape.ecn));
        true
    }

    fn peer(&self) -> std::net::IpAddr {
        [192, 0, 2, 1].into()
    }

    fn gso_bytes(&self) -> u32 {
        self.gso
    }

    fn free(&mut self, packet: Packet) {
        self.cache.free_one(packet);
    }

    fn cache(&mut self) -> &mut PoolCache {
        &mut self.cache
    }
}

/// One end: a connection, or one to come.
pub(super) struct End {
    pub(super) shared: Shared,
    pub(super) wire: TestWire,
    pub(super) connection: Option<Connection>,
    pub(super) own: Active,
    pools: Vec<Pool>,
}

pub(super) fn shared(config: Config) -> Shared {
    Shared {
        config,
        records: Records::new(1 << 14),
        pieces: Pieces::new(1 << 14, 64 << 20).unwrap(),
        chunks: Chunks::new(1 << 13).unwrap(),
        stats: Stats::default(),
        challenges: Challenges::new(1000, &Secret::new(1)),
        metrics: Metrics::new(&MetricsConfig::default()).unwrap(),
        urgents: Default::default(),
        searches: Default::default(),
    }
}

impl End {
    pub(super) fn new(name: &str, config: Config, iss: u32) -> Self {
        let small = Pool::new(&PoolConfig::new(name, 16_384)).unwrap();
        let large = Pool::new(&PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new(format!("{name} large"), 256)
        });
        let pools = vec![small, large.unwrap()];
        Self {
            shared: shared(config),
            wire: TestWire {
                cache: PoolCache::new(&pools),
                out: Vec::new(),
                gso: 0,
            },
            connection: None,
            own: Active {
                iss,
                ts_offset: iss.rotate_left(7),
                link_mss: 1460,
                path_mss: 1460,
            },
            pools,
        }
    }

    pub(super) fn with<R>(
        &mut self,
        now_ns: u64,
        work: impl FnOnce(&mut Connection, &mut Context<'_, TestWire>) -> R,
    ) -> R {
        let mut cx = Context {
            now_ns,
            shared: &mut self.shared,
            wire: &mut self.wire,
        };
        work(self.connection.as_mut().expect("it is open"), &mut cx)
    }

    pub(super) fn connect(&mut self, now_ns: u64) {
        let mut cx = Context {
            now_ns,
            shared: &mut self.shared,
            wire: &mut self.wire,
        };
        self.connection = Some(Connection::connect(&mut cx, &self.own));
    }

    pub(super) fn receive(&mut self, now_ns: u64, packet: Packet, is_ce: bool) {
        let mut segment = Segment::read(packet.data()).unwrap();
        segment.is_ce = is_ce;
        let mut cx = Context {
            now_ns,
            shared: &mut self.shared,
            wire: &mut self.wire,
        };
        match &mut self.connection {
            Some(connection) => {
                connection.on_segment(&mut cx, &segment, packet, 0);
                connection.push(&mut cx);
            }
            None => {
                assert!(segment.has(linerate_wire::tcp::flag::SYN));
                let own = Passive {
                    active: self.own,
                    syn: Segment::syn_options(packet.data()),
                };
                self.connection = Some(Connection::accept(&mut cx, &own, &segment));
                cx.wire.free(packet);
            }
        }
    }

    /// Slots in use, of all pools: none may be left over.
    pub(super) fn slots(&mut self) -> usize {
        let held: usize = self.wire.cache.held_total();
        let out = |pool: &Pool| pool.stats().slots - pool.stats().free_shared;
        let out: u32 = self.pools.iter().map(out).sum();
        out as usize - held
    }

    pub(super) fn state(&self) -> State {
        self.connection
            .as_ref()
            .map_or(State::Closed, Connection::state)
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.connection.as_ref().and_then(Connection::error)
    }
}

/// What the link does to a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    Pass,
    Drop,
    /// Comes that much later.
    Delay(u64),
    Twice,
    /// It meets congestion.
    Mark,
}

pub(super) type Judge = Box<dyn FnMut(u64, &Segment, &mut Random) -> Fate>;

/// Both ends and what is between.
pub(super) struct Net {
    pub(super) now_ns: u64,
    pub(super) ends: [End; 2],
    /// One way, in nanoseconds.
    pub(super) delay_ns: u64,
    /// Bytes a second, each way; 0 for no limit.
    pub(super) rate: u64,
    /// Bytes that wait for the link at most.
    pub(super) queue: u64,
    pub(super) judge: [Judge; 2],
    pub(super) random: Random,
    busy_ns: [u64; 2],
    flying: BTreeMap<(u64, u64), (usize, Packet, bool)>,
    number: u64,
    pub(super) dropped: u64,
    /// Every frame: when, from which end, and what it says.
    pub(super) log: Vec<(u64, usize, Segment)>,
}

pub(super) fn pass() -> Judge {
    Box::new(|_, _, _| Fate::Pass)
}

impl Net {
    pub(super) fn new(configs: [Config; 2]) -> Self {
        let [a, b] = configs;
        Self {
            now_ns: 5 * S,
            ends: [End::new("a", a, 0xffff_f000), End::new("b", b, 77)],
            delay_ns: 10 * MS,
            rate: 0,
            queue: u64::MAX,
            judge: [pass(), pass()],
            random: Random::new(1),
            busy_ns: [0; 2],
            flying: BTreeMap::new(),
            number: 0,
            dropped: 0,
            log: Vec::new(),
        }
    }

    /// Takes what the ends have sent onto the link.
    pub(super) fn collect(&mut self) {
        for from in 0..2 {
            for (packet, ecn) in std::mem::take(&mut self.ends[from].wire.out) {
                let segment = Segment::read(packet.data()).unwrap();
                self.log.push((self.now_ns, from, segment));
                let fate = (self.judge[from])(self.now_ns, &segment, &mut self.random);
                let bytes = packet.len() as u64 + 54;
                let mut at = self.now_ns + self.delay_ns;
                if self.rate > 0 {
                    let begin = self.busy_ns[from].max(self.now_ns);
                    let waits = (begin - self.now_ns) as u128 * self.rate as u128 / S as u128;
                    if waits as u64 + bytes > self.queue {
                        self.dropped += 1;
                        continue;
                    }
                    self.busy_ns[from] = begin + bytes * S / self.rate;
                    at = self.busy_ns[from] + self.delay_ns;
                }
                let copies = match fate {
                    Fate::Drop => 0,
                    Fate::Twice => 2,
                    _ => 1,
                };
                if let Fate::Delay(more) = fate {
                    at += more;
                }
                let is_ce = fate == Fate::Mark && ecn == Ecn::Capable;
                for _ in 0..copies {
                    let copy = self.ends[1 - from].wire.cache.copy_of(packet.data());
                    self.number += 1;
                    let arrival = (1 - from, copy.expect("there are slots"), is_ce);
                    self.flying.insert((at, self.number), arrival);
                }
                self.dropped += u64::from(copies == 0);
            }
        }
    }

    /// Goes on to the next thing that happens, by `until` at most. Whether there was one.
    pub(super) fn step(&mut self, until: u64) -> bool {
        self.collect();
        let deadlines = self.ends.iter().filter_map(|end| {
            let connection = end.connection.as_ref()?;
            connection.deadline_ns()
        });
        let arrival = self.flying.keys().next().map(|&(at, _)| at);
        let next = deadlines.chain(arrival).min();
        let Some(next) = next.filter(|&at| at <= until) else {
            self.now_ns = self.now_ns.max(until);
            return false;
        };
        self.now_ns = self.now_ns.max(next);
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let (to, packet, is_ce) = entry.remove();
            self.ends[to].receive(self.now_ns, packet, is_ce);
            self.collect();
        }
        for end in &mut self.ends {
            let is_due = end.connection.as_ref().and_then(Connection::deadline_ns);
            if is_due.is_some_and(|at| at <= self.now_ns) {
                end.with(self.now_ns, |connection, cx| connection.on_timer(cx));
            }
        }
        self.collect();
        true
    }

    pub(super) fn run_for(&mut self, ns: u64) {
        let until = self.now_ns + ns;
        let mut steps = 0_u64;
        while self.step(until) {
            steps += 1;
            assert!(
                steps < 3_000_000,
                "it goes round and round at {}",
                self.now_ns
            );
        }
    }

    /// Opens the connection from the first end.
    pub(super) fn open(&mut self) {
        self.ends[0].connect(self.now_ns);
        self.run_for(4 * self.delay_ns + 10 * MS);
        assert_eq!(self.ends[0].state(), State::Established);
        assert_eq!(self.ends[1].state(), State::Established);
        for end in &mut self.ends {
            let events = end.connection.as_mut().unwrap().take_events();
            assert_ne!(events & event::CONNECTED, 0);
        }
    }

    /// Sends `total` bytes from end `from` to the other, which reads them at once and checks each;
    /// then closes. Returns how long it took.
    pub(super) fn transfer(&mut self, from: usize, total: usize, limit_ns: u64) -> u64 {
        let (begin, to) = (self.now_ns, 1 - from);
        let (mut written, mut read) = (0, 0);
        let mut buffer = vec![0; 1 << 16];
        let byte = |at: usize| (at % 251) as u8;
        while read < total {
            assert!(
                self.now_ns - begin < limit_ns,
                "{read} of {total} bytes in {} ms: {:#?} {:#?} {:?}",
                (self.now_ns - begin) / MS,
                self.ends[from]
                    .connection
                    .as_ref()
                    .map(|c| c.info(self.now_ns)),
                self.ends[to]
                    .connection
                    .as_ref()
                    .map(|c| c.info(self.now_ns)),
                self.ends[from].shared.stats,
            );
            let now_ns = self.now_ns;
            while written < total {
                let more = (total - written).min(1 << 14);
                let bytes: Vec<u8> = (written..written + more).map(byte).collect();
                match self.ends[from].with(now_ns, |c, cx| c.write(cx, &bytes)) {
                    Ok(count) => written += count,
                    Err(Error::WouldBlock) => break,
                    Err(error) => panic!("{error} at {written}"),
                }
            }
            self.ends[from].with(now_ns, |c, cx| c.push(cx));
            self.step(begin + limit_ns + S);
            let now_ns = self.now_ns;
            loop {
                let got = self.ends[to].with(now_ns, |c, cx| c.read(cx, &mut buffer));
                match got {
                    Ok(0) => panic!("an end at {read}"),
                    Ok(count) => {
                        for (index, &got) in buffer[..count].iter().enumerate() {
                            assert_eq!(got, byte(read + index), "at {}", read + index);
                        }
                        read += count;
                    }
                    Err(Error::WouldBlock) => break,
                    Err(error) => panic!("{error} at {read}"),
                }
            }
            self.ends[to].with(now_ns, |c, cx| c.push(cx));
        }
        self.now_ns - begin
    }

    /// Closes both ends in turn, and checks that nothing is left.
    pub(super) fn close(&mut self) {
        for end in 0..2 {
            let now_ns = self.now_ns;
            self.ends[end].with(now_ns, |c, cx| {
                c.close(cx);
                c.push(cx);
            });
            self.run_for(2 * self.delay_ns + S);
        }
        self.run_for(1000 * S);
        self.check_empty();
    }

    /// Checks that nothing is held any more.
    pub(super) fn check_empty(&mut self) {
        assert!(self.flying.is_empty());
        for end in &mut self.ends {
            let state = end.state();
            assert!(
                matches!(state, State::Closed | State::TimeWait),
                "{state:?}"
            );
            assert_eq!(end.shared.records.used(), 0);
            assert!(end.shared.searches.is_empty());
            assert_eq!(end.shared.chunks.in_use(), 0);
            assert_eq!(end.shared.pieces.charged_slots(), 0);
            assert_eq!(end.slots(), 0);
        }
    }
}
