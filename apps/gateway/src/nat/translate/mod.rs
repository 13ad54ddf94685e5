//! One worker's NAT: decides what the first packet of a flow becomes, and takes what it uses back
//! when the flow ends. [`allocate`] takes ports, [`bulk`] is for several flows at once.

mod allocate;
mod bulk;

use std::net::IpAddr;
use std::sync::Arc;

use linerate_tables::TableError;
use linerate_tables::exact::Seed;

use super::bits::Bits;
use super::calls::{Call, Calls, WAIT_MS};
use super::log::{Event, Log};
use super::mapping::{BucketMappings, Inside, Mapping, Mappings, OutsidePort};
use super::ports::{AddressId, BucketPorts, Ports};
use super::rules::{Action, Aim, At, Rules};
use super::sessions::{BucketSessions, Session, Sessions};
use super::subscribers::{BucketSubscribers, Subscribers};
use super::{Endpoint, Protocol, Tuple, nat64};

pub use bulk::{Ahead, Released};

/// The first packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    pub tuple: Tuple,
    /// Where it came in.
    pub from: At,
    /// The bucket of its flow, of which a port would be best.
    pub bucket: u8,
}

/// Where the first packet of a flow goes to: found before routing, which is done by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The tuple with its new destination: IPv4 behind NAT64, while the source is IPv6 yet.
    pub tuple: Tuple,
    /// The mapping that led there.
    mapping: Option<OutsidePort>,
    /// The pool that its source becomes an address of, whatever way it leaves.
    pool: Option<u16>,
    /// Whether the mapping's filter is asked when the source is known: the packet turns round here.
    is_asked_later: bool,
    /// Whether the source is an outside one already.
    is_from_outside: bool,
}

impl Destination {
    /// That of a packet whose destination somebody else has decided on, and the pool that its
    /// source then becomes an address of.
    pub fn decided(tuple: Tuple, pool: Option<u16>) -> Self {
        Self {
            pool,
            ..Self::same(&tuple)
        }
    }

    /// That of a packet which is not translated.
    fn same(tuple: &Tuple) -> Self {
        Self {
            tuple: *tuple,
            mapping: None,
            pool: None,
            is_asked_later: false,
            is_from_outside: false,
        }
    }
}

/// Why the first packet of a flow is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// It is for an address of a pool, and nobody has that port.
    NoMapping,
    /// Whoever has the port does not let this one in.
    Filtered,
    /// The pool has no free port: neither the host's address nor, where any will do, another.
    Exhausted,
    /// The host has as many ports or blocks as it may have.
    Limit,
    /// There is no room for another mapping or subscriber.
    Full,
    /// The protocol is not translated between IPv6 and IPv4.
    Protocol,
}

impl Refused {
    /// How many there are.
    pub const COUNT: usize = 6;
    /// By index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::NoMapping,
        Self::Filtered,
        Self::Exhausted,
        Self::Limit,
        Self::Full,
        Self::Protocol,
    ];

    /// The name of the drop reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoMapping => "nat_no_mapping",
            Self::Filtered => "nat_filtered",
            Self::Exhausted => "nat_exhausted",
            Self::Limit => "nat_limit",
            Self::Full => "nat_full",
            Self::Protocol => "nat_protocol",
        }
    }
}

/// What a flow uses of NAT, to be kept with it: one byte. The flow's tuples say of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held(u8);

impl Held {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// A port of its own.
    const PORT: u8 = 1;
    /// The mapping of its source.
    const MAPPING: u8 = 2;
    /// The mapping of its destination.
    const INWARD: u8 = 4;
    /// The mapping has its remote address as a contact.
    const CONTACT: u8 = 8;
    /// A session of NAT64: its tuples are there.
    const SESSION: u8 = 16;

    /// The same with a session of NAT64.
    #[must_use]
    pub const fn with_session(self) -> Self {
        Self(self.0 | Self::SESSION)
    }

    /// Whether there is nothing to give back.
    pub const fn is_nothing(self) -> bool {
        self.0 == 0
    }

    const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// What a flow becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// The tuple of its packets when they leave: the other direction's key is its reverse.
    pub tuple: Tuple,
    pub held: Held,
}

/// What the source of a packet becomes.
enum Source {
    Same,
    Fixed(IpAddr),
    Pool(u16),
}

/// Who has what, of one worker.
pub struct Nat {
    rules: Arc<Rules>,
    pub ports: Ports,
    pub mappings: Mappings,
    pub subscribers: Subscribers,
    /// Between hosts inside.
    pub calls: Calls,
    /// Of NAT64.
    pub sessions: Sessions,
    pub log: Log,
    refused: [u64; Refused::COUNT],
    /// By pool: packets for which there was no port.
    shortages: Vec<u64>,
    /// By outside address: the number of the rules that it came with ([`install`](Self::install)).
    since: Vec<u32>,
    /// The greatest of them.
    latest: u32,
    /// Number of the worker, for logs.
    worker: u16,
}

/// All NAT state of a bucket, on the way to another worker.
#[derive(Debug)]
pub struct Bucket {
    ports: Option<BucketPorts>,
    mappings: BucketMappings,
    subscribers: BucketSubscribers,
    sessions: BucketSessions,
}

/// How large a worker's NAT may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub mappings: usize,
    pub subscribers: usize,
    /// Log records that wait to be written.
    pub records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            mappings: 1 << 18,
            subscribers: 1 << 16,
            records: 1 << 14,
        }
    }
}

impl Nat {
    /// The NAT of a worker that owns the buckets of `mine`.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(
        rules: Arc<Rules>,
        limits: &Limits,
        mine: Bits,
        worker: u16,
        seed: Seed,
    ) -> Result<Self, TableError> {
        Ok(Self {
            ports: Ports::new(rules.outsides(), mine),
            mappings: Mappings::new(limits.mappings, seed)?,
            subscribers: Subscribers::new(limits.subscribers, seed)?,
            calls: Calls::new(seed)?,
            sessions: Sessions::new(limits.mappings, seed)?,
            log: Log::new(limits.records),
            refused: [0; Refused::COUNT],
            shortages: vec![0; rules.config.pools.len()],
            since: vec![0; rules.outsides().len()],
            latest: 0,
            worker,
            rules,
        })
    }

    /// The rules in force.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// How often each reason has refused a packet.
    pub fn refused(&self) -> [(Refused, u64); Refused::COUNT] {
        Refused::ALL.map(|why| (why, self.refused[why as usize]))
    }

    /// How often each pool had no port for a packet: none was free, or the host had its share.
    pub fn shortages(&self) -> &[u64] {
        &self.shortages
    }

    /// Other rules, made with these as the ones before ([`Rules::new`]), and their number, which is
    /// greater than those before. Mappings and ports of addresses that stay are kept, and each host
    /// keeps the address that it has. Returns the mappings that are gone: their flows must end, as
    /// must those whose [`is_permitted`](Self::is_permitted) is false.
    pub fn install(&mut self, rules: Arc<Rules>, number: u32) -> Vec<Mapping> {
        let stays = |id: AddressId| {
            let (old, new) = (self.rules.address(id), rules.address(id));
            matches!((old, new), (Some(old), Some(new))
                if old.address == new.address && old.block_ports == new.block_ports)
        };
        let own = &self.rules;
        let is_lost = |address| own.id(own.plain(address)).is_none_or(|id| !stays(id));
        self.calls.lose(|call| is_lost(call.translated.src.address));
        self.since.resize(rules.outsides().len(), number);
        for (id, since) in (0..).map(AddressId).zip(&mut self.since) {
            if !stays(id) {
                (*since, self.latest) = (number, number);
            }
        }
        let gone = self.mappings.retain(stays);
        self.subscribers.retain(|one| stays(one.outside));
        let pool = |id| rules.address(id).map_or(0, |outside| outside.pool);
        self.mappings.renumber(pool);
        self.subscribers.renumber(pool);
        self.ports.install(rules.outsides());
        // Counters of pools begin anew where there are others.
        let old = self.rules.config.pools.iter().map(|pool| &pool.name);
        if !old.eq(rules.config.pools.iter().map(|pool| &pool.name)) {
            self.shortages = vec![0; rules.config.pools.len()];
        }
        let old = std::mem::replace(&mut self.rules, rules);
        self.adopt(&old);
        gone
    }

    /// Whether a flow still has the outside addresses that it uses. The tuples are those of its
    /// first packet before and behind translation; `by` is the number of the rules that have
    /// permitted it last. An address that went and came back meanwhile is not what it was: its
    /// ports are all free.
    pub fn is_permitted(&self, held: Held, original: &Tuple, translated: &Tuple, by: u32) -> bool {
        let found = self.ends_outside(held, original, translated);
        found.is_some_and(|ends| self.still(held, &ends, by) == held)
    }

    /// What has ended, without what it does not have any longer: `by` is as in
    /// [`is_permitted`](Self::is_permitted).
    pub fn still_held(&self, ended: Released, by: u32) -> Released {
        let (held, original, translated, zone) = ended;
        if by >= self.latest {
            return ended;
        }
        let found = self.ends_outside(held, &original, &translated);
        let held = found.map_or(held, |ends| self.still(held, &ends, by));
        (held, original, translated, zone)
    }

    /// The addresses outside that a flow's source has become, and that its destination was.
    fn ends_outside(
        &self,
        held: Held,
        original: &Tuple,
        translated: &Tuple,
    ) -> Option<[IpAddr; 2]> {
        if !held.has(Held::SESSION) {
            return Some([translated.src.address, original.dst.address]);
        }
        if let Some(session) = self.sessions.of(original) {
            return Some([session.outside.src.address, original.dst.address]);
        }
        // It began outside.
        let session = self.sessions.of(&original.reversed())?;
        Some([translated.src.address, session.outside.src.address])
    }

    /// What a flow still has of what it held of these ends.
    fn still(&self, held: Held, [source, destination]: &[IpAddr; 2], by: u32) -> Held {
        let has = |address: &IpAddr| {
            let id = self.rules.id(self.rules.plain(*address));
            id.is_some_and(|id| self.since[usize::from(id.0)] <= by)
        };
        let mut lost = 0;
        if held.has(Held::PORT | Held::MAPPING) && !has(source) {
            lost |= Held::PORT | Held::MAPPING | Held::CONTACT;
        }
        if held.has(Held::INWARD) && !has(destination) {
            lost |= Held::INWARD;
        }
        Held(held.0 & !lost)
    }

    /// Where a first packet goes to. Nothing is taken yet.
    ///
    /// # Errors
    /// It is for nobody, or from somebody who is not let in.
    pub fn destination(&mut self, first: &First) -> Result<Destination, Refused> {
        let found = self.destination_of(first);
        self.counted(found)
    }

    /// The same of a packet whose source is the outside of a host inside, by another's translation.
    ///
    /// # Errors
    /// As [`destination`](Self::destination).
    pub fn destination_from_outside(&mut self, first: &First) -> Result<Destination, Refused> {
        let id = self
            .rules
            .id(first.tuple.dst.address)
            .ok_or(Refused::NoMapping);
        let found = id.and_then(|id| self.mapped(first.tuple, id, false));
        self.counted(found.map(|found| Destination {
            is_from_outside: true,
            ..found
        }))
    }

    fn destination_of(&self, first: &First) -> Result<Destination, Refused> {
        let tuple = &first.tuple;
        let same = Destination::same(tuple);
        let to = |address: IpAddr| tuple.with_dst(Endpoint::new(address, tuple.dst.port));
        match self.rules.aim(tuple, first.from) {
            Aim::Other => Ok(same),
            Aim::Static(inside) => Ok(Destination {
                tuple: to(inside),
                ..same
            }),
            Aim::Forward(inside, pool) => Ok(Destination {
                tuple: tuple.with_dst(inside),
                pool,
                ..same
            }),
            Aim::Nat64(address, pool) => match (tuple.ported(), self.rules.id(address)) {
                (None, _) => Err(Refused::Protocol),
                (Some(_), None) => Ok(Destination {
                    tuple: to(address),
                    pool: Some(pool),
                    ..same
                }),
                // RFC 6146 3.8: it is for another host's outside address.
                (Some(_), Some(id)) => Ok(Destination {
                    pool: Some(pool),
                    ..self.mapped(to(address), id, true)?
                }),
            },
            Aim::Pool(id) => {
                let turns = self.rules.hairpin(tuple, first.from).is_some();
                self.mapped(*tuple, id, turns)
            }
        }
    }

    /// The inside that has the port which a packet is for.
    fn mapped(&self, tuple: Tuple, id: AddressId, turns: bool) -> Result<Destination, Refused> {
        let pool = self.rules.pool_of(id).ok_or(Refused::NoMapping)?;
        let outside = match tuple.ported() {
            // An identifier is the port of who asks: no first packet is for one.
            Some(protocol @ (Protocol::Tcp | Protocol::Udp)) => Some(OutsidePort {
                address: id,
                protocol,
                port: tuple.dst.port,
            }),
            _ => None,
        };
        let found = outside.and_then(|outside| self.mappings.at(&outside));
        let Some(mapping) = found else {
            return match pool.is_interface {
                true => Ok(Destination::same(&tuple)),
                false => Err(Refused::NoMapping),
            };
        };
        let admits = |who| self.mappings.admits(mapping, pool.filtering, who);
        if !turns && !admits(tuple.src.address) {
            return Err(Refused::Filtered);
        }
        Ok(Destination {
            tuple: tuple.with_dst(mapping.inside.endpoint),
            mapping: outside,
            pool: None,
            is_asked_later: turns,
            is_from_outside: false,
        })
    }

    /// What a first packet becomes that leaves at `to`; takes what it needs. `random` is a new
    /// number each time.
    ///
    /// # Errors
    /// There is no port for it, or it is not let in; nothing was taken.
    pub fn source(
        &mut self,
        first: &First,
        destination: &Destination,
        to: At,
        now_ms: u64,
        random: u64,
    ) -> Result<Translated, Refused> {
        let found = self.source_of(first, destination, to, now_ms, random);
        self.counted(found)
    }

    fn source_of(
        &mut self,
        first: &First,
        destination: &Destination,
        to: At,
        now_ms: u64,
        random: u64,
    ) -> Result<Translated, Refused> {
        let (tuple, from) = (&destination.tuple, first.from);
        let (source, mut held) = match self.source_rule(first, destination, to) {
            Source::Fixed(address) => (Endpoint::new(address, tuple.src.port), Held::NOTHING),
            Source::Pool(pool) => {
                let taken = self.take(first, destination, pool, now_ms, random);
                let shortages = self.shortages.get_mut(usize::from(pool));
                if let (Err(_), Some(count)) = (&taken, shortages) {
                    *count += 1;
                }
                taken?
            }
            Source::Same => (tuple.src, Held::NOTHING),
        };
        let mut translated = tuple.with_src(source);
        match (source.address, tuple.dst.address) {
            (IpAddr::V4(v4), IpAddr::V6(_)) => {
                // IPv6 hosts see IPv4 behind their prefix: somebody outside who sends to a
                // mapping, or somebody inside (RFC 6146 3.8).
                let id = destination.mapping.map(|mapping| mapping.address);
                let prefix = id.and_then(|id| self.rules.prefix64_of(id));
                translated.src.address = prefix.map_or(v4.into(), |prefix| prefix.embed(v4).into());
            }
            (IpAddr::V4(_), IpAddr::V4(_)) if first.tuple.src.address.is_ipv6() => {
                translated = nat64::tuple4(&translated);
            }
            _ => {}
        }
        if let Some(outside) = &destination.mapping {
            let admits = || {
                let mapping = self.mappings.at(outside)?;
                let pool = self.rules.pool_of(outside.address)?;
                let who = match destination.is_asked_later {
                    true => source.address,
                    false => tuple.src.address,
                };
                Some(self.mappings.admits(mapping, pool.filtering, who))
            };
            if admits() != Some(true) && !self.is_called_back(destination, outside, &translated) {
                let call = Call {
                    original: first.tuple,
                    translated,
                    zone: from.zone,
                    held,
                    bucket: first.bucket,
                    until: now_ms + WAIT_MS,
                };
                if !destination.is_asked_later || !self.waits(call) {
                    self.release(held, &first.tuple, &translated, from.zone, now_ms);
                }
                return Err(Refused::Filtered);
            }
            self.mappings.begin(outside, None);
            held.0 |= Held::INWARD;
        }
        Ok(Translated {
            tuple: translated,
            held,
        })
    }

    /// Whether who has the mapping that a packet is for has called its sender.
    fn is_called_back(
        &self,
        destination: &Destination,
        outside: &OutsidePort,
        translated: &Tuple,
    ) -> bool {
        let mapping = self.mappings.at(outside);
        destination.is_asked_later
            && mapping
                .is_some_and(|mapping| self.calls.has(&translated.reversed(), mapping.inside.zone))
    }

    /// A call between hosts inside that is not let in, and may be answered: whether it keeps what
    /// it holds.
    fn waits(&mut self, call: Call) -> bool {
        let (original, zone) = (&call.original, call.zone);
        call.held.has(Held::MAPPING)
            && !self.calls.again(original, zone, call.until)
            && self.calls.add(call)
    }

    /// Gives up calls that have waited for too long, some at a time.
    pub fn expire(&mut self, now_ms: u64) {
        const MOST: usize = 64;
        for _ in 0..MOST {
            let Some(call) = self.calls.expired(now_ms) else {
                return;
            };
            self.give_up(&call, now_ms);
        }
    }

    fn give_up(&mut self, call: &Call, now_ms: u64) {
        let (original, translated) = (&call.original, &call.translated);
        self.release(call.held, original, translated, call.zone, now_ms);
    }

    /// What the source of a packet becomes.
    fn source_rule(&self, first: &First, destination: &Destination, to: At) -> Source {
        let (tuple, rules) = (&destination.tuple, &self.rules);
        if let Some(pool) = destination.pool {
            return Source::Pool(pool);
        }
        if destination.is_from_outside {
            return Source::Same;
        }
        // A packet that would have left to the outside, had it not been for somebody inside.
        let turns = *tuple != first.tuple;
        if let Some(fixed) = rules.static_source(tuple.src.address, first.from, to, turns) {
            return Source::Fixed(fixed);
        }
        let hairpin = turns
            .then(|| rules.hairpin(&first.tuple, first.from))
            .flatten();
        match (hairpin, rules.source(tuple, first.from, to)) {
            (Some(pool), _) | (None, Some(Action::Pool(pool))) => Source::Pool(pool),
            (None, Some(Action::Keep) | None) => Source::Same,
        }
    }

    /// The IPv4 address in an IPv6 one behind a prefix of NAT64; any other address as it is.
    pub fn plain(&self, address: IpAddr) -> IpAddr {
        self.rules.plain(address)
    }

    /// What the first packet of a flow from IPv4 to a host behind NAT64 becomes before it is
    /// routed; `None` where its destination is another.
    pub fn seen_inside(&self, destination: &Destination) -> Option<Tuple> {
        let IpAddr::V4(src) = destination.tuple.src.address else {
            return None;
        };
        let prefix = self.rules.prefix64_of(destination.mapping?.address)?;
        let src = Endpoint::new(prefix.embed(src), destination.tuple.src.port);
        Some(destination.tuple.with_src(src))
    }

    /// The prefix that an IPv6 address is of.
    pub fn prefix64(&self, address: IpAddr) -> Option<nat64::Prefix64> {
        let mut prefixes = self.rules.config.nat64.iter().map(|rule| rule.prefix);
        prefixes.find(|prefix| prefix.extract(address).is_some())
    }

    /// Gives back what a flow used. `original` is the tuple of its first packet, `translated` what
    /// that became, `zone` where it came in.
    pub fn release(
        &mut self,
        held: Held,
        original: &Tuple,
        translated: &Tuple,
        zone: u16,
        now_ms: u64,
    ) {
        if !held.has(Held::SESSION) {
            return self.release_of(held, original, translated, zone, now_ms);
        }
        if let Some(Session { outside, .. }) = self.sessions.remove(original) {
            self.release_of(held, original, &outside, zone, now_ms);
        } else if let Some(session) = self.sessions.remove(&original.reversed()) {
            // It began outside.
            let original = session.outside.reversed();
            self.release_of(held, &original, translated, zone, now_ms);
        }
    }

    fn release_of(
        &mut self,
        held: Held,
        original: &Tuple,
        translated: &Tuple,
        zone: u16,
        now_ms: u64,
    ) {
        let protocol = original.ported();
        if held.has(Held::INWARD)
            && let Some(outside) = self.outside_of(&original.dst, protocol)
        {
            self.end(&outside, None, now_ms);
        }
        let Some(outside) = self.outside_of(&translated.src, protocol) else {
            return;
        };
        if held.has(Held::MAPPING) {
            let remote = self.rules.plain(original.dst.address);
            let contact = held.has(Held::CONTACT).then_some(remote);
            self.end(&outside, contact, now_ms);
        } else if held.has(Held::PORT) {
            if self
                .rules
                .pool_of(outside.address)
                .is_some_and(|pool| pool.logs)
            {
                let inside = Inside {
                    endpoint: original.src,
                    protocol: outside.protocol,
                    zone,
                    pool: 0,
                };
                let event = Event::SessionEnds;
                self.record(now_ms, event, &inside, translated.src, Some(translated.dst));
            }
            self.give(&outside, &original.src.address, zone, now_ms);
        }
    }

    /// The outside endpoint that a flow uses.
    fn outside_of(&self, endpoint: &Endpoint, protocol: Option<Protocol>) -> Option<OutsidePort> {
        Some(OutsidePort {
            address: self.rules.id(self.rules.plain(endpoint.address))?,
            protocol: protocol?,
            port: endpoint.port,
        })
    }

    /// A flow of a mapping has ended; with the last one the mapping does.
    fn end(&mut self, outside: &OutsidePort, contact: Option<IpAddr>, now_ms: u64) {
        if let Some(mapping) = self.mappings.end(outside, contact) {
            self.has_ended(&mapping, None, now_ms);
        }
    }

    /// A mapping has ended; `host`: where its subscriber is, if that was looked up.
    fn has_ended(&mut self, mapping: &Mapping, host: Option<u32>, now_ms: u64) {
        let outside = &mapping.outside;
        let known = self.rules.address(outside.address);
        let address = known.map(|outside| outside.address);
        let pool = self.rules.pool_of(outside.address);
        if let (true, Some(address)) = (pool.is_some_and(|pool| pool.logs), address) {
            let endpoint = Endpoint::new(address, outside.port);
            self.record(now_ms, Event::MappingEnds, &mapping.inside, endpoint, None);
        }
        let inside = &mapping.inside;
        self.give_of(
            outside,
            (&inside.endpoint.address, inside.zone),
            host,
            now_ms,
        );
    }

    /// Gives up the calls of buckets that are about to leave, while all is here that they hold: a
    /// call's mapping may be of one of them, and its port of another.
    pub fn end_calls(&mut self, buckets: &Bits) {
        while let Some(call) = self.calls.take(buckets) {
            self.give_up(&call, call.until.saturating_sub(WAIT_MS));
        }
    }

    /// Takes all state of a bucket out, for another worker, behind [`end_calls`](Self::end_calls)
    /// of all that leave. Flows are not here, and those that use a port of the bucket move with it;
    /// so do [`companions`](Self::companions).
    pub fn take_bucket(&mut self, bucket: u8) -> Bucket {
        Bucket {
            ports: self.ports.take_bucket(bucket),
            mappings: self.mappings.take_bucket(bucket),
            subscribers: self.subscribers.take_bucket(bucket),
            sessions: self.sessions.take_bucket(bucket),
        }
    }

    /// Puts in what another worker took out; returns mappings for which there is no room, whose
    /// flows have to end.
    pub fn put_bucket(&mut self, bucket: Bucket, now_ms: u64) -> Vec<Mapping> {
        if let Some(ports) = bucket.ports {
            // Both workers have the same rules, and a bucket has one owner.
            let _ = self.ports.put_bucket(ports);
        }
        self.subscribers.put_bucket(bucket.subscribers);
        self.sessions.put_bucket(bucket.sessions);
        let refused = self.mappings.put_bucket(bucket.mappings);
        for mapping in &refused {
            let Inside { endpoint, zone, .. } = mapping.inside;
            self.give(&mapping.outside, &endpoint.address, zone, now_ms);
        }
        refused
    }

    /// Buckets that must have the same owner as this one: its mappings use their ports.
    pub fn companions(&self, bucket: u8) -> Bits {
        self.mappings.companions(bucket)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let tables = self.mappings.memory_bytes() + self.subscribers.memory_bytes();
        let tables = tables + self.calls.memory_bytes() + self.sessions.memory_bytes();
        tables + self.ports.memory_bytes() + self.log.memory_bytes()
    }

    fn counted<T>(&mut self, found: Result<T, Refused>) -> Result<T, Refused> {
        if let Err(why) = &found {
            self.refused[*why as usize] += 1;
        }
        found
    }
}

#[cfg(test)]
mod tests;
