//! Rules: what is translated, in the order of the file, and the addresses that they translate to.
//!
//! [`Config`] is what the stanzas say; [`Rules`] is made of it for the workers, who share one.
//! Destinations are decided before routing, by what the packet's destination is; sources after it,
//! by the first rule that fits.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use linerate_routing::model::{Cidr, Prefix};

use super::mapping::Filtering;
use super::ports::{AddressId, Legal, Outside};
use super::writer::To;
use super::{Endpoint, Limits, Protocol, Tuple, nat64::Prefix64, nptv6};

/// All stanzas of NAT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub limits: Limits,
    pub pools: Vec<Pool>,
    pub sources: Vec<SourceRule>,
    pub statics: Vec<Static>,
    pub forwards: Vec<Forward>,
    pub nat64: Vec<Nat64>,
    pub nptv6: Vec<Nptv6>,
    pub log: LogConfig,
}

/// `[nat.log]`: what is recorded, besides what [`Pool::logs`] says, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Where records go; `None`: nowhere.
    pub to: Option<To>,
    /// Whether blocks of ports are recorded.
    pub blocks: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            to: None,
            blocks: true,
        }
    }
}

impl Config {
    /// Whether nothing is translated at all.
    pub fn is_empty(&self) -> bool {
        let rules = self.sources.len() + self.statics.len() + self.forwards.len();
        rules + self.nat64.len() + self.nptv6.len() == 0
    }

    /// The addresses besides its own for which the gateway has to answer where it is asked (ARP,
    /// neighbour discovery): pools, static outsides and forwards.
    pub fn answered(&self) -> Vec<(IpAddr, IpAddr)> {
        let pools = self.pools.iter().filter(|pool| !pool.is_interface);
        let mut all: Vec<_> = pools.flat_map(|pool| pool.addresses.clone()).collect();
        all.extend(
            self.statics
                .iter()
                .map(|rule| (rule.outside.first(), last(&rule.outside))),
        );
        all.extend(
            self.forwards
                .iter()
                .map(|rule| (rule.outside, rule.outside)),
        );
        all
    }

    /// Those of them that an interface with these addresses is asked for: its neighbours take them
    /// for their own network's. It has to answer as Linux does for its own addresses.
    pub fn answered_at(&self, own: &[Cidr]) -> Vec<(IpAddr, IpAddr)> {
        let ranges = self.answered().into_iter();
        let near = |&(from, to): &(IpAddr, IpAddr)| {
            own.iter().map(|cidr| cidr.network()).any(|network| {
                from.is_ipv4() == network.first().is_ipv4()
                    && from <= last(&network)
                    && network.first() <= to
            })
        };
        ranges.filter(near).collect()
    }

    /// With the numbers that interfaces and zones have while they run, for those of the file.
    #[must_use]
    pub fn with_numbers(
        mut self,
        interface: impl Fn(u16) -> u16,
        zone: impl Fn(u16) -> u16,
    ) -> Self {
        let change = |place: &mut Place| {
            place.interface = place.interface.map(&interface);
            place.zone = place.zone.map(&zone);
        };
        for rule in &mut self.sources {
            change(&mut rule.from);
            change(&mut rule.to);
        }
        self.statics
            .iter_mut()
            .for_each(|rule| change(&mut rule.to));
        self.forwards
            .iter_mut()
            .for_each(|rule| change(&mut rule.from));
        self.nat64
            .iter_mut()
            .for_each(|rule| change(&mut rule.from));
        self.nptv6.iter_mut().for_each(|rule| change(&mut rule.to));
        self
    }
}

/// `[[nat.pool]]`, or the addresses of an interface that a rule masquerades with.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: String,
    /// First and last address of each range.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// Whether the addresses are an interface's: what belongs to no flow is for the gateway itself.
    pub is_interface: bool,
    pub ports: RangeInclusive<u16>,
    /// Whether an inside endpoint has one outside port for all whom it talks to.
    pub is_independent: bool,
    pub filtering: Filtering,
    /// Whether a host has one outside address for all its flows (RFC 4787 REQ-2).
    pub is_paired: bool,
    /// Whether a flow's own port is taken, if it is free.
    pub preserves: bool,
    /// Ports of a block, a power of two from 4 to 128; 0 for none.
    pub block_ports: u16,
    /// Blocks of one host at most.
    pub blocks: u16,
    /// Ports of one host at most (RFC 6888 REQ-4).
    pub host_ports: Option<u32>,
    /// Whether sessions and mappings are recorded.
    pub logs: bool,
}

/// How a pool gives ports: what workers ask of it for each new flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) is_independent: bool,
    pub(super) filtering: Filtering,
    pub(super) preserves: bool,
    pub(super) block_ports: u16,
    pub(super) blocks: u16,
    pub(super) host_ports: Option<u32>,
    pub(super) logs: bool,
}

impl Pool {
    /// How it gives ports.
    pub(super) fn terms(&self) -> Terms {
        Terms {
            is_independent: self.is_independent,
            filtering: self.filtering,
            preserves: self.preserves,
            block_ports: self.block_ports,
            blocks: self.blocks,
            host_ports: self.host_ports,
            logs: self.logs,
        }
    }

    /// A pool of these addresses, with the defaults of the file.
    pub fn new(name: &str, addresses: Vec<(IpAddr, IpAddr)>) -> Self {
        Self {
            name: name.into(),
            addresses,
            is_interface: false,
            ports: 1024..=65535,
            is_independent: true,
            filtering: Filtering::default(),
            is_paired: true,
            preserves: true,
            block_ports: 0,
            blocks: 4,
            host_ports: None,
            logs: false,
        }
    }

    /// Every address, in order.
    pub fn each(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().flat_map(|&(first, last)| {
            let next = move |&address: &IpAddr| (address != last).then(|| after(address))?;
            std::iter::successors(Some(first), next)
        })
    }
}

/// The next address.
fn after(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => u32::from(v4)
            .checked_add(1)
            .map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(v6) => u128::from(v6)
            .checked_add(1)
            .map(|next| IpAddr::V6(next.into())),
    }
}

/// Where the packets of a rule come from or go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub zone: Option<u16>,
    pub interface: Option<u16>,
}

/// An interface, and the zone that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub zone: u16,
    pub interface: u16,
}

impl Place {
    /// Whether a packet that is there is meant.
    pub fn has(&self, at: At) -> bool {
        self.zone.is_none_or(|zone| zone == at.zone)
            && self
                .interface
                .is_none_or(|interface| interface == at.interface)
    }

    fn is_named(&self) -> bool {
        self.zone.is_some() || self.interface.is_some()
    }
}

/// `[[nat.source]]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceRule {
    pub from: Place,
    pub to: Place,
    pub source: Option<Prefix>,
    pub destination: Option<Prefix>,
    /// IP protocol.
    pub protocol: Option<u8>,
    pub action: Action,
}

/// What a source rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The source becomes an address of this pool.
    Pool(u16),
    /// The source stays.
    Keep,
}

impl SourceRule {
    /// Whether the rule is for packets of this tuple that came in there, apart from where they go.
    fn fits(&self, tuple: &Tuple, from: At) -> bool {
        self.from.has(from)
            && self
                .source
                .is_none_or(|prefix| prefix.contains(tuple.src.address))
            && self
                .destination
                .is_none_or(|prefix| prefix.contains(tuple.dst.address))
            && self.protocol.is_none_or(|number| number == tuple.protocol)
    }
}

/// `[[nat.static]]`: addresses that are exchanged one by one, both ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Static {
    pub inside: Prefix,
    pub outside: Prefix,
    /// Where the outside is.
    pub to: Place,
}

/// `[[nat.forward]]`: ports of an outside address that lead to an inside one.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    pub outside: IpAddr,
    /// `None`: any protocol, whole address.
    pub protocol: Option<Protocol>,
    pub ports: RangeInclusive<u16>,
    pub inside: IpAddr,
    /// The port that the first one becomes, the others following.
    pub inside_port: u16,
    /// Where the packets come from.
    pub from: Place,
    /// The pool that their source becomes an address of (FULLNAT).
    pub source_pool: Option<u16>,
}

/// `[[nat.nat64]]`: IPv6 hosts reach IPv4 by a prefix (RFC 6146).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nat64 {
    pub prefix: Prefix64,
    pub pool: u16,
    pub from: Place,
}

/// `[[nat.nptv6]]`: a prefix is exchanged for another (RFC 6296).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nptv6 {
    pub prefixes: nptv6::Prefixes,
    pub to: Place,
}

/// What a first packet's destination is, before routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// The outside of a static rule: the inside.
    Static(IpAddr),
    /// Of a forward: where to, and the pool for its source.
    Forward(Endpoint, Option<u16>),
    /// An address of a pool.
    Pool(AddressId),
    /// An IPv4 address in an IPv6 one, and the pool for its source.
    Nat64(IpAddr, u16),
    /// Nothing that is translated.
    Other,
}

/// The rules, as workers use them.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub config: Config,
    /// By [`AddressId`]; `None` where an earlier configuration had an address.
    outsides: Vec<Option<Outside>>,
    /// Addresses of all pools, sorted: of IPv4, of IPv6.
    addresses4: Vec<(u32, AddressId)>,
    addresses6: Vec<(u128, AddressId)>,
    /// By pool and position.
    positions: Vec<Vec<AddressId>>,
    /// Places in `config.forwards`, by outside, protocol and first port.
    forwards: Vec<(IpAddr, Option<Protocol>, u16, usize)>,
    /// Places in `config.statics`, by the first outside and the first inside address.
    statics_out: Vec<(IpAddr, usize)>,
    statics_in: Vec<(IpAddr, usize)>,
}

impl Rules {
    /// Rules of a configuration that was checked. Addresses that `before` has keep their number, so
    /// that what workers know of them stays true.
    pub fn new(config: Config, before: Option<&Rules>) -> Self {
        let mut rules = Self {
            outsides: Vec::new(),
            addresses4: Vec::new(),
            addresses6: Vec::new(),
            positions: Vec::new(),
            forwards: Vec::new(),
            statics_out: Vec::new(),
            statics_in: Vec::new(),
            config,
        };
        rules.number_addresses(before);
        let forwards = rules.config.forwards.iter().enumerate();
        rules.forwards = forwards
            .map(|(at, one)| (one.outside, one.protocol, *one.ports.start(), at))
            .collect();
        rules.forwards.sort_unstable();
        let statics = || rules.config.statics.iter().enumerate();
        let mut out: Vec<_> = statics()
            .map(|(at, one)| (one.outside.first(), at))
            .collect();
        let mut inside: Vec<_> = statics()
            .map(|(at, one)| (one.inside.first(), at))
            .collect();
        out.sort_unstable();
        inside.sort_unstable();
        (rules.statics_out, rules.statics_in) = (out, inside);
        rules
    }

    /// The same, with other numbers of interfaces and zones in its configuration.
    #[must_use]
    pub fn numbered(&self, config: Config) -> Self {
        Self {
            config,
            ..self.clone()
        }
    }

    fn number_addresses(&mut self, before: Option<&Rules>) {
        let mut new = Vec::new();
        let old = before.map_or(0, |rules| rules.outsides.len());
        self.outsides.resize(old, None);
        for (pool, config) in self.config.pools.iter().enumerate() {
            let legal = Arc::new(Legal::new(config.ports.clone()));
            for (position, address) in config.each().enumerate() {
                let mut legal = legal.clone();
                let here = |one: &&Forward| one.outside == address;
                for forward in self.config.forwards.iter().filter(here) {
                    let legal = Arc::make_mut(&mut legal);
                    let of = |one: &Protocol| forward.protocol.is_none_or(|only| only == *one);
                    let all = Protocol::ALL.into_iter().filter(of);
                    all.for_each(|protocol| legal.exclude(protocol, forward.ports.clone()));
                }
                let id = before.and_then(|before| before.id(address));
                let old = before.and_then(|before| before.address(id?));
                if let Some(old) = old.filter(|old| old.legal == legal) {
                    // Workers see by it that nothing has changed.
                    legal = old.legal.clone();
                }
                let outside = Outside {
                    address,
                    legal,
                    pool: pool as u16,
                    position: position as u16,
                    block_ports: config.block_ports,
                };
                match id {
                    Some(id) => self.outsides[usize::from(id.0)] = Some(outside),
                    None => new.push(outside),
                }
            }
        }
        let mut free = 0;
        for outside in new {
            while self.outsides.get(free).is_some_and(Option::is_some) {
                free += 1;
            }
            match self.outsides.get_mut(free) {
                Some(place) => *place = Some(outside),
                None => self.outsides.push(Some(outside)),
            }
        }
        self.positions = vec![Vec::new(); self.config.pools.len()];
        for (id, outside) in (0..).map(AddressId).zip(&self.outsides) {
            let Some(outside) = outside else { continue };
            match outside.address {
                IpAddr::V4(v4) => self.addresses4.push((v4.into(), id)),
                IpAddr::V6(v6) => self.addresses6.push((v6.into(), id)),
            }
            let positions = &mut self.positions[usize::from(outside.pool)];
            let position = usize::from(outside.position);
            positions.resize(positions.len().max(position + 1), AddressId(0));
            positions[position] = id;
        }
        self.addresses4.sort_unstable();
        self.addresses6.sort_unstable();
    }

    /// All outside addresses, by number.
    pub fn outsides(&self) -> &[Option<Outside>] {
        &self.outsides
    }

    /// The number of an address of a pool.
    #[inline]
    pub fn id(&self, address: IpAddr) -> Option<AddressId> {
        fn find<A: Copy + Ord>(sorted: &[(A, AddressId)], address: A) -> Option<AddressId> {
            // Most addresses are of nobody here.
            let (first, last) = (sorted.first()?, sorted.last()?);
            if address < first.0 || address > last.0 {
                return None;
            }
            let at = sorted.binary_search_by_key(&address, |entry| entry.0);
            Some(sorted[at.ok()?].1)
        }
        match address {
            IpAddr::V4(v4) => find(&self.addresses4, v4.into()),
            IpAddr::V6(v6) => find(&self.addresses6, v6.into()),
        }
    }

    /// The address of that number.
    #[inline]
    pub fn address(&self, id: AddressId) -> Option<&Outside> {
        self.outsides.get(usize::from(id.0))?.as_ref()
    }

    /// The pool of an address.
    #[inline]
    pub fn pool_of(&self, id: AddressId) -> Option<&Pool> {
        self.config.pools.get(usize::from(self.address(id)?.pool))
    }

    /// Whether the hosts of a pool have an address, blocks or limits of their own.
    pub fn has_subscribers(&self, pool: u16) -> bool {
        self.config.pools.get(usize::from(pool)).is_some_and(|of| {
            let has_several = self.positions(pool).len() > 1;
            of.block_ports != 0 || of.host_ports.is_some() || of.is_paired && has_several
        })
    }

    /// The addresses of a pool, by position.
    #[inline]
    pub fn positions(&self, pool: u16) -> &[AddressId] {
        self.positions
            .get(usize::from(pool))
            .map_or(&[], Vec::as_slice)
    }

    /// What the destination of a packet that came in there is.
    pub(super) fn aim(&self, tuple: &Tuple, from: At) -> Aim {
        if let Some(forward) = self.forward(tuple, from) {
            let base = *forward.ports.start();
            let port = match forward.protocol {
                Some(_) => forward.inside_port + (tuple.dst.port - base),
                None => tuple.dst.port,
            };
            return Aim::Forward(Endpoint::new(forward.inside, port), forward.source_pool);
        }
        let address = tuple.dst.address;
        if let Some(rule) = within(&self.statics_out, address)
            .map(|at| &self.config.statics[at])
            .filter(|rule| rule.outside.contains(address))
        {
            return Aim::Static(moved(address, &rule.outside, &rule.inside));
        }
        let inside = |rule: &&Nptv6| rule.prefixes.has_outside(address);
        if let Some(rule) = self.config.nptv6.iter().find(inside)
            && let Some(inside) = rule.prefixes.inward(address)
        {
            return Aim::Static(inside);
        }
        let embedded = |rule: &Nat64| {
            let v4 = rule
                .prefix
                .extract(address)
                .filter(|_| rule.from.has(from))?;
            Some(Aim::Nat64(v4.into(), rule.pool))
        };
        if let Some(aim) = self.config.nat64.iter().find_map(embedded) {
            return aim;
        }
        self.id(address).map_or(Aim::Other, Aim::Pool)
    }

    fn forward(&self, tuple: &Tuple, from: At) -> Option<&Forward> {
        let of = |protocol: Option<Protocol>| {
            let key = (tuple.dst.address, protocol, tuple.dst.port, usize::MAX);
            let at = self
                .forwards
                .partition_point(|entry| *entry <= key)
                .checked_sub(1)?;
            let forward = &self.config.forwards[self.forwards[at].3];
            let is_it = forward.outside == tuple.dst.address
                && forward.protocol == protocol
                && forward.from.has(from)
                && (protocol.is_none() || forward.ports.contains(&tuple.dst.port));
            is_it.then_some(forward)
        };
        match tuple.ported() {
            // The identifiers of queries are nobody's ports.
            Some(protocol @ (Protocol::Tcp | Protocol::Udp)) => of(Some(protocol)),
            _ => None,
        }
        .or_else(|| of(None))
    }

    /// The address that a static rule gives to a source on its way; `turns` says that the packet
    /// was for an outside address, and turns round here (RFC 4787 REQ-9).
    pub(super) fn static_source(
        &self,
        address: IpAddr,
        from: At,
        to: At,
        turns: bool,
    ) -> Option<IpAddr> {
        let leads = |place: &Place| place.has(to) || turns && place.is_named() && !place.has(from);
        let rule = within(&self.statics_in, address).map(|at| &self.config.statics[at]);
        if let Some(rule) = rule
            && rule.inside.contains(address)
            && leads(&rule.to)
        {
            return Some(moved(address, &rule.inside, &rule.outside));
        }
        let mut prefixes = self.config.nptv6.iter().filter(|rule| leads(&rule.to));
        prefixes.find_map(|rule| rule.prefixes.outward(address))
    }

    /// The prefix behind which the hosts that use an address see IPv4.
    pub(super) fn prefix64_of(&self, id: AddressId) -> Option<Prefix64> {
        let pool = self.address(id)?.pool;
        let mut rules = self.config.nat64.iter();
        rules.find(|rule| rule.pool == pool).map(|rule| rule.prefix)
    }

    /// The IPv4 address in an IPv6 one behind a prefix of NAT64; any other address as it is.
    pub(super) fn plain(&self, address: IpAddr) -> IpAddr {
        let mut rules = self.config.nat64.iter();
        let found = rules.find_map(|rule| rule.prefix.extract(address));
        found.map_or(address, IpAddr::V4)
    }

    /// What the first rule says that fits a packet on its way; `None` if none does.
    pub(super) fn source(&self, tuple: &Tuple, from: At, to: At) -> Option<Action> {
        let at = self.source_at(tuple, from, to)?;
        Some(self.config.sources[at].action)
    }

    /// The pool that a packet's source becomes an address of, if it leaves where the first rule
    /// that is for it otherwise wants it to.
    pub(super) fn likely_pool(&self, tuple: &Tuple, from: At) -> Option<u16> {
        let mut fitting = self
            .config
            .sources
            .iter()
            .filter(|rule| rule.fits(tuple, from));
        match fitting.next()?.action {
            Action::Pool(pool) => Some(pool),
            Action::Keep => None,
        }
    }

    /// The place of that rule.
    pub(super) fn source_at(&self, tuple: &Tuple, from: At, to: At) -> Option<usize> {
        let fits = |rule: &SourceRule| {
            rule.fits(tuple, from)
                && rule.to.has(to)
                && match rule.action {
                    Action::Pool(pool) => self.is_of_family(pool, tuple.src.address),
                    Action::Keep => true,
                }
        };
        self.config.sources.iter().position(fits)
    }

    /// What the first rule says that would fit a packet that left to the outside, and did not come
    /// from there: that of a packet that turns round here (RFC 4787 REQ-9).
    pub(crate) fn hairpin(&self, tuple: &Tuple, from: At) -> Option<u16> {
        let fits = |rule: &SourceRule| match rule.action {
            Action::Pool(pool) => {
                let is_inside = match rule.to.is_named() {
                    true => !rule.to.has(from),
                    // Whatever way they leave: those that it names are inside.
                    false => rule.from.is_named() || rule.source.is_some(),
                };
                let is = is_inside && self.is_of_family(pool, tuple.src.address);
                (is && rule.fits(tuple, from)).then_some(pool)
            }
            Action::Keep => None,
        };
        self.config.sources.iter().find_map(fits)
    }

    /// Whether what hosts inside send to each other's outside addresses is known by where it comes
    /// in: no source that leaves there is translated, so none of it is an answer.
    pub(crate) fn turns_from(&self, at: At) -> bool {
        let rules = || self.config.sources.iter();
        let mut pools = rules().filter(|rule| matches!(rule.action, Action::Pool(_)));
        pools.clone().all(|rule| !rule.to.has(at)) && pools.any(|rule| rule.from.has(at))
    }

    fn is_of_family(&self, pool: u16, address: IpAddr) -> bool {
        let pool = self.config.pools.get(usize::from(pool));
        pool.is_some_and(|pool| {
            let mut families = pool.addresses.iter().map(|(first, _)| first.is_ipv4());
            families.any(|is_v4| is_v4 == address.is_ipv4())
        })
    }

    /// Whether nothing is translated at all.
    pub fn is_empty(&self) -> bool {
        self.config.is_empty()
    }
}

/// The last address of a prefix.
pub(super) fn last(prefix: &Prefix) -> IpAddr {
    match prefix {
        Prefix::V4(v4) => IpAddr::V4(v4.last().into()),
        Prefix::V6(v6) => IpAddr::V6(v6.last().into()),
    }
}

/// The last of sorted entries that begins at or before an address.
fn within(sorted: &[(IpAddr, usize)], address: IpAddr) -> Option<usize> {
    let at = sorted.partition_point(|entry| entry.0 <= address);
    Some(sorted[at.checked_sub(1)?].1)
}

/// An address of one prefix at the same place of another that is as long.
fn moved(address: IpAddr, from: &Prefix, to: &Prefix) -> IpAddr {
    match (address, to.first()) {
        (IpAddr::V4(address), IpAddr::V4(first)) => {
            let host = u32::MAX.checked_shr(from.len().into()).unwrap_or(0);
            IpAddr::V4((u32::from(first) | u32::from(address) & host).into())
        }
        (IpAddr::V6(address), IpAddr::V6(first)) => {
            let host = u128::MAX.checked_shr(from.len().into()).unwrap_or(0);
            IpAddr::V6((u128::from(first) | u128::from(address) & host).into())
        }
        _ => address,
    }
}
