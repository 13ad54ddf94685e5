//! By which of its ends a packet is dispatched.
//!
//! | packet | bucket | why |
//! |---|---|---|
//! | to a pool's address | of its destination port | the port says who made the mapping |
//! | the same, from a host inside | of that host, then as above | its mapping is there |
//! | to a prefix of NAT64 | of the host that it comes from | its port outside is of that bucket |
//! | to a service | of its source | the remote end is in both directions |
//! | from or to a server of a service | of the other end | the same end |
//! | from or to a host inside, the other end outside | of the host | all its flows meet |
//! | any other | of the flow, both directions alike | nothing is translated |
//!
//! A packet without ports goes by its remote end instead of a pool's port or a host inside: that is
//! all that its two directions have in common.
//!
//! Hosts inside that reach each other by a pool's address have a flow at each one's owner: see
//! `stages/flows/turned.rs`. Where the address is the gateway's own as well, or NAT64's, such a
//! packet goes by its port like all others; and so does one from an interface where sources that
//! leave there are translated, for it may be an answer
//! ([`Rules::turns_from`](crate::nat::rules::Rules)).
//!
//! What an address is stands in two small routing tables: the longest prefix counts, so a server
//! with an address inside is a server. Where some ports of an address are a service's, the port
//! decides. ICMP queries have their identifiers for ports, and errors go by the packet that they
//! quote, reversed: see [`stage`](super::stage).
//!
//! The directions of a flow between two servers of services by a service's address do not meet:
//! both ends are remote to one of them.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use linerate_core::packet::Burst;
use linerate_routing::model::Prefix;
use linerate_tables::TableError;
use linerate_tables::lpm::{Lpm4, Lpm4Config, Lpm6, Lpm6Config, NO_ROUTE};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::{FlowKey, FlowKey4, FlowKey6};

use super::bucket::{Bucket, Hash, of_port};
use crate::nat::Protocol;
use crate::nat::rules::{Action, Config, Nat64};

/// What an address is to dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Marks {
    /// A host whose source address is translated on the way out.
    Inside = 1,
    /// An address of a pool, whose ports say their bucket.
    Pool = 2,
    /// An address of a service: destinations are translated.
    Service = 3,
    /// A server behind a service.
    Server = 4,
    /// Behind a prefix of NAT64: who sends to it is a host inside.
    Prefix64 = 5,
    /// An address of a pool by which hosts inside reach each other.
    Meeting = 6,
}

/// Networks that are something to dispatch, and ports of addresses that are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    networks: Vec<(Prefix, Marks)>,
    ports: Vec<(IpAddr, Ports, Marks)>,
}

/// Some ports of a protocol; of any protocol, all.
pub type Ports = (Option<Protocol>, RangeInclusive<u16>);

impl Marked {
    /// A network is that, as far as no longer prefix is something else.
    pub fn network(&mut self, network: Prefix, mark: Marks) {
        self.networks.push((network, mark));
    }

    /// Ports of an address are that, of any protocol where none is named.
    pub fn ports(&mut self, address: IpAddr, ports: Ports, mark: Marks) {
        self.ports.push((address, ports, mark));
    }

    /// What translation makes of addresses. Hosts inside are those of the `source` of a rule.
    pub fn of_nat(nat: &Config) -> Self {
        let mut marked = Self::default();
        for rule in &nat.sources {
            if let (Action::Pool(_), Some(inside)) = (rule.action, rule.source) {
                marked.network(inside, Marks::Inside);
            }
        }
        for (number, pool) in nat.pools.iter().enumerate() {
            let is_of_nat64 = |rule: &Nat64| usize::from(rule.pool) == number;
            // Of NAT64 one flow has both ends. What nobody is mapped to at an interface's address
            // is for the gateway, from where it comes.
            let mark = match pool.is_interface || nat.nat64.iter().any(is_of_nat64) {
                true => Marks::Pool,
                false => Marks::Meeting,
            };
            for address in pool.each() {
                marked.network(Prefix::host(address), mark);
            }
        }
        for rule in &nat.statics {
            marked.network(rule.inside, Marks::Server);
            marked.network(rule.outside, Marks::Service);
        }
        for rule in &nat.nat64 {
            marked.network(Prefix::V6(rule.prefix.prefix()), Marks::Prefix64);
            // Another host's outside, as IPv6 hosts call it: as an address of a pool.
            let pool = nat.pools.get(usize::from(rule.pool));
            for &(first, last) in pool.iter().flat_map(|pool| &pool.addresses) {
                if let (IpAddr::V4(first), IpAddr::V4(last)) = (first, last) {
                    let blocks = rule.prefix.blocks(first.into(), last.into());
                    blocks.for_each(|block| marked.network(Prefix::V6(block), Marks::Pool));
                }
            }
        }
        for rule in &nat.nptv6 {
            // As of static rules: the end that stays is in both directions.
            marked.network(Prefix::V6(rule.prefixes.inside()), Marks::Server);
            marked.network(Prefix::V6(rule.prefixes.outside()), Marks::Service);
        }
        for rule in &nat.forwards {
            let last = u32::from(rule.inside_port) + rule.ports.len() as u32 - 1;
            let inside = rule.inside_port..=last.min(u16::MAX.into()) as u16;
            let (outside, of) = (rule.ports.clone(), rule.protocol);
            marked.ports.extend([
                (rule.outside, (of, outside), Marks::Service),
                (rule.inside, (of, inside), Marks::Server),
            ]);
        }
        marked
    }

    fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.ports.is_empty()
    }
}

/// An address whose ports are several things.
struct Mixed {
    ports: Vec<(Ports, Marks)>,
    /// What the other ones are.
    others: u32,
}

struct Tables {
    v4: Lpm4,
    v6: Lpm6,
    /// By what the tables say, less [`MIXED`].
    mixed: Vec<Mixed>,
}

/// Says the bucket of each packet of a burst.
pub struct Classes {
    hash: Hash,
    /// Absent where nothing is translated: then all packets go by their flow.
    tables: Option<Box<Tables>>,
    /// By interface: whether packets from there turn.
    turning: Vec<bool>,
}

const INSIDE: u32 = Marks::Inside as u32;
const POOL: u32 = Marks::Pool as u32;
const SERVICE: u32 = Marks::Service as u32;
const SERVER: u32 = Marks::Server as u32;
const PREFIX64: u32 = Marks::Prefix64 as u32;
const MEETING: u32 = Marks::Meeting as u32;
/// From here on an address is one of [`Tables::mixed`].
const MIXED: u32 = 16;

/// By what a packet's bucket is found.
enum By {
    /// The port that it goes to.
    Port,
    /// Its source, or its destination, with the port.
    From,
    To,
    /// The host that it comes from, or goes to, without.
    Sender,
    Receiver,
    Flow,
}

/// By what a packet goes whose ends are these; `ported`: its protocol has ports; `turns`: it comes
/// from where packets turn.
#[inline(always)]
fn by(from: u32, to: u32, ported: bool, turns: bool) -> By {
    match (from, to) {
        (INSIDE, MEETING) if ported && turns => By::Sender,
        (_, POOL | MEETING) if ported => By::Port,
        (_, POOL | MEETING | SERVICE) => By::From,
        (_, PREFIX64) if ported => By::Sender,
        (SERVER, SERVER) => By::Flow,
        (SERVER, _) => By::To,
        (_, SERVER) => By::From,
        // Among themselves nothing is translated.
        (INSIDE, INSIDE) => By::Flow,
        (INSIDE, _) if ported => By::Sender,
        (INSIDE, _) => By::To,
        (_, INSIDE) if ported => By::Receiver,
        (_, INSIDE) => By::From,
        _ => By::Flow,
    }
}

impl Classes {
    /// Dispatch for these networks; no VRFs: addresses mean the same in all.
    ///
    /// # Errors
    /// There is no memory for the tables.
    pub fn new(hash: Hash, marked: &Marked) -> Result<Self, TableError> {
        if marked.is_empty() {
            return Ok(Self {
                hash,
                tables: None,
                turning: Vec::new(),
            });
        }
        let v4 = Lpm4Config {
            table_bytes: 4 << 20,
            ..Lpm4Config::default()
        };
        let v6 = Lpm6Config {
            routes: 1 << 14,
            ..Lpm6Config::default()
        };
        let mut tables = Box::new(Tables {
            v4: Lpm4::new(&v4)?,
            v6: Lpm6::new(&v6)?,
            mixed: Vec::new(),
        });
        for &(network, mark) in &marked.networks {
            tables.insert(network, mark as u32)?;
        }
        for (address, ports, mark) in &marked.ports {
            let known = tables.of(*address);
            let at = match known.checked_sub(MIXED) {
                Some(at) => at as usize,
                None => {
                    let (ports, others) = (Vec::new(), known);
                    tables.mixed.push(Mixed { ports, others });
                    let at = tables.mixed.len() - 1;
                    tables.insert(Prefix::host(*address), MIXED + at as u32)?;
                    at
                }
            };
            tables.mixed[at].ports.push((ports.clone(), *mark));
        }
        let tables = Some(tables);
        let turning = Vec::new();
        Ok(Self {
            hash,
            tables,
            turning,
        })
    }

    /// The same, where packets from these interfaces turn, by number.
    #[must_use]
    pub fn turning_from(self, turning: Vec<bool>) -> Self {
        Self { turning, ..self }
    }

    /// From which interfaces packets turn.
    pub fn turning(&self) -> &[bool] {
        &self.turning
    }

    #[inline(always)]
    fn turns_from(&self, interface: u16) -> bool {
        let turns = self.turning.get(usize::from(interface));
        turns.copied().unwrap_or(false)
    }

    /// The keyed hash.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Writes the bucket of each packet at the positions of `v4` and `v6` of a parsed burst, which
    /// came by an interface.
    #[inline]
    pub fn buckets(
        &self,
        parsed: &Parsed,
        interface: u16,
        buckets: &mut [Bucket; Burst::CAPACITY],
    ) {
        let (class, turns) = (&parsed.class, self.turns_from(interface));
        if class.v4 != 0 {
            self.buckets4(parsed, (class.v4, turns), buckets);
        }
        if class.v6 != 0 {
            self.buckets6(parsed, (class.v6, turns), buckets);
        }
    }

    #[inline(always)]
    fn buckets4(
        &self,
        parsed: &Parsed,
        (v4, turns): (Mask, bool),
        buckets: &mut [Bucket; Burst::CAPACITY],
    ) {
        let count = (Mask::BITS - v4.leading_zeros()) as usize;
        let keys = &parsed.keys4[..count];
        let Some(tables) = self.tables.as_deref() else {
            for (index, key) in keys.iter().enumerate() {
                // Those that are not IPv4 get a number that IPv6 writes over.
                buckets[index] = self.hash.flow4(key);
            }
            return;
        };
        let (mut from, mut to) = ([0; Burst::CAPACITY], [0; Burst::CAPACITY]);
        let fib = tables.v4.fib();
        fib.lookup_bulk(0, &parsed.src4[..count], &mut from[..count]);
        fib.lookup_bulk(0, &parsed.dst4[..count], &mut to[..count]);
        for (index, key) in keys.iter().enumerate() {
            buckets[index] = self.of4(tables, (from[index], to[index]), key, turns);
        }
    }

    #[cold]
    fn buckets6(
        &self,
        parsed: &Parsed,
        (mut v6, turns): (Mask, bool),
        buckets: &mut [Bucket; Burst::CAPACITY],
    ) {
        while v6 != 0 {
            let index = v6.trailing_zeros() as usize;
            v6 &= v6 - 1;
            buckets[index] = self.of6(&parsed.keys6[index], turns);
        }
    }

    /// The bucket of a packet with this key that comes by an interface.
    pub fn one_from(&self, key: &FlowKey, interface: u16) -> Bucket {
        match (key, self.tables.as_deref()) {
            (FlowKey::V4(key), Some(tables)) => {
                let (from, to) = (tables.of(key.src().into()), tables.of(key.dst().into()));
                self.of4(tables, (from, to), key, self.turns_from(interface))
            }
            (FlowKey::V4(key), None) => self.hash.flow4(key),
            (FlowKey::V6(key), _) => self.of6(key, self.turns_from(interface)),
        }
    }

    /// The bucket of a packet with this key, from where none turns.
    pub fn one(&self, key: &FlowKey) -> Bucket {
        match key {
            FlowKey::V4(key) => self.one4(key),
            FlowKey::V6(key) => self.one6(key),
        }
    }

    /// The bucket of one IPv4 packet.
    pub fn one4(&self, key: &FlowKey4) -> Bucket {
        match self.tables.as_deref() {
            None => self.hash.flow4(key),
            Some(tables) => {
                let (from, to) = (tables.of(key.src().into()), tables.of(key.dst().into()));
                self.of4(tables, (from, to), key, false)
            }
        }
    }

    /// The bucket of one IPv6 packet.
    pub fn one6(&self, key: &FlowKey6) -> Bucket {
        self.of6(key, false)
    }

    fn of6(&self, key: &FlowKey6, turns: bool) -> Bucket {
        let hash = &self.hash;
        let Some(tables) = self.tables.as_deref() else {
            return hash.flow6(key);
        };
        let (src, dst) = (key.src().octets(), key.dst().octets());
        let (src_port, dst_port) = (key.src_port(), key.dst_port());
        let of = |address: [u8; 16], port| {
            let known = tables.v6.fib().lookup(0, address).unwrap_or(0);
            tables.exactly(known, key.protocol(), port)
        };
        let ported = Protocol::of(key.protocol()).is_some();
        match by(of(src, src_port), of(dst, dst_port), ported, turns) {
            By::Port => of_port(dst_port),
            By::From => hash.end6(&src, src_port),
            By::To => hash.end6(&dst, dst_port),
            By::Sender => hash.host6(&src),
            By::Receiver => hash.host6(&dst),
            By::Flow => hash.flow6(key),
        }
    }

    /// Whether a packet with this key, from an interface, is of a host inside, to where others
    /// inside have their mappings: it [turns](super::stage::Dispatch) behind its translation.
    pub fn turns(&self, key: &FlowKey, interface: u16) -> bool {
        let tables = self.tables.as_deref();
        let Some(tables) = tables.filter(|_| self.turns_from(interface)) else {
            return false;
        };
        let mark = |address, protocol, port| tables.exactly(tables.of(address), protocol, port);
        let (from, to, protocol) = match key {
            FlowKey::V4(key) => {
                let number = key.protocol();
                let from = mark(key.src().into(), number, key.src_port());
                (from, mark(key.dst().into(), number, key.dst_port()), number)
            }
            FlowKey::V6(key) => {
                let number = key.protocol();
                let from = mark(key.src().into(), number, key.src_port());
                (from, mark(key.dst().into(), number, key.dst_port()), number)
            }
        };
        // The identifier of a query is nobody's mapping.
        let has_ports = matches!(Protocol::of(protocol), Some(Protocol::Tcp | Protocol::Udp));
        has_ports && (from, to) == (INSIDE, MEETING)
    }

    /// The bucket of the host whose mapping has let a flow in, by the flow's two keys: the mapping
    /// is there as long as the flow.
    pub fn mapped_host(&self, key: &FlowKey, reverse: &FlowKey) -> Option<Bucket> {
        let tables = self.tables.as_deref()?;
        let hash = &self.hash;
        match (key, reverse) {
            (FlowKey::V4(key), FlowKey::V4(reverse)) => {
                let known = tables.of(key.dst().into());
                let mark = tables.exactly(known, key.protocol(), key.dst_port());
                // One that turns has not got in yet: who answers has the same address.
                let is_in = matches!(mark, POOL | MEETING) && reverse.src() != key.dst();
                is_in.then(|| hash.host4(reverse.src().to_bits()))
            }
            (FlowKey::V6(key), FlowKey::V6(reverse)) => {
                let known = tables.of(key.dst().into());
                let mark = tables.exactly(known, key.protocol(), key.dst_port());
                let is_in = matches!(mark, POOL | MEETING) && reverse.src() != key.dst();
                is_in.then(|| hash.host6(&reverse.src().octets()))
            }
            // Those of NAT64 are let in by mappings of IPv6 hosts.
            (FlowKey::V4(_), FlowKey::V6(reverse)) => Some(hash.host6(&reverse.src().octets())),
            (FlowKey::V6(_), FlowKey::V4(_)) => None,
        }
    }

    #[inline(always)]
    fn of4(&self, tables: &Tables, (from, to): (u32, u32), key: &FlowKey4, turns: bool) -> Bucket {
        let hash = &self.hash;
        let (src, dst) = (key.src().to_bits(), key.dst().to_bits());
        let (src_port, dst_port) = (key.src_port(), key.dst_port());
        let from = tables.exactly(from, key.protocol(), src_port);
        let to = tables.exactly(to, key.protocol(), dst_port);
        let ported = Protocol::of(key.protocol()).is_some();
        match by(from, to, ported, turns) {
            By::Port => of_port(dst_port),
            By::From => hash.end4(src, src_port),
            By::To => hash.end4(dst, dst_port),
            By::Sender => hash.host4(src),
            By::Receiver => hash.host4(dst),
            By::Flow => hash.flow4(key),
        }
    }
}

impl Tables {
    fn insert(&mut self, network: Prefix, mark: u32) -> Result<(), TableError> {
        match network {
            Prefix::V4(prefix) => self.v4.insert(0, prefix, mark).map(drop),
            Prefix::V6(prefix) => self.v6.insert(0, prefix, mark).map(drop),
        }
    }

    /// What the tables say of an address.
    fn of(&self, address: IpAddr) -> u32 {
        let known = match address {
            IpAddr::V4(v4) => self.v4.fib().lookup(0, v4.to_bits()),
            IpAddr::V6(v6) => self.v6.fib().lookup(0, v6.octets()),
        };
        known.unwrap_or(0)
    }

    /// What a port of such an address is.
    #[inline(always)]
    fn exactly(&self, known: u32, protocol: u8, port: u16) -> u32 {
        match known {
            0..MIXED => known,
            NO_ROUTE => 0,
            known => self.port(known - MIXED, protocol, port),
        }
    }

    #[cold]
    fn port(&self, at: u32, protocol: u8, port: u16) -> u32 {
        let Some(mixed) = self.mixed.get(at as usize) else {
            return 0;
        };
        let is = |((of, ports), _): &&(Ports, Marks)| match of {
            Some(of) => Protocol::of(protocol) == Some(*of) && ports.contains(&port),
            None => true,
        };
        let found = mixed.ports.iter().find(is);
        found.map_or(mixed.others, |(_, mark)| *mark as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::nat64::Prefix64;
    use crate::nat::nptv6::Prefixes;
    use crate::nat::rules::{Nptv6, Place, Pool};
    use linerate_routing::model::Cidr;
    use linerate_testkit::Random;

    fn marked() -> Marked {
        let mut marked = Marked::default();
        for (text, mark) in [
            ("10.0.0.0/8", Marks::Inside),
            ("10.9.0.0/24", Marks::Server),
            ("192.0.2.1/32", Marks::Pool),
            ("192.0.2.80/32", Marks::Service),
            ("2001:db8:1::/48", Marks::Inside),
            ("2001:db8:1:9::/64", Marks::Server),
            ("2001:db8:2::1/128", Marks::Pool),
            ("2001:db8:2::80/128", Marks::Service),
        ] {
            let cidr: Cidr = text.parse().unwrap();
            marked.network(cidr.network(), mark);
        }
        marked
    }

    fn key(src: &str, dst: &str) -> FlowKey4 {
        let end = |text: &str| {
            let end: std::net::SocketAddrV4 = text.parse().unwrap();
            (end.ip().octets(), end.port())
        };
        let (src, dst) = (end(src), end(dst));
        FlowKey4::new(src.0, dst.0, src.1, dst.1, 6)
    }

    fn key6(src: &str, dst: &str) -> FlowKey6 {
        let end = |text: &str| {
            let end: std::net::SocketAddrV6 = text.parse().unwrap();
            (end.ip().octets(), end.port())
        };
        let (src, dst) = (end(src), end(dst));
        FlowKey6::new(src.0, dst.0, src.1, dst.1, 6)
    }

    /// Source translation takes a port of the bucket that the host's address says; the answer goes
    /// by that port.
    #[test]
    fn a_host_and_the_answers_to_its_ports_meet() {
        let classes = Classes::new(Hash::new(9), &marked()).unwrap();
        let of_host = classes.one4(&key("10.1.2.3:4000", "198.51.100.7:443"));
        assert_eq!(of_host, classes.one4(&key("10.1.2.3:99", "203.0.113.1:53")));
        let port = 1024 + 2 * u16::from(of_host);
        let answer = format!("192.0.2.1:{port}");
        assert_eq!(of_host, classes.one4(&key("198.51.100.7:443", &answer)));

        let of_host = classes.one6(&key6("[2001:db8:1:2::3]:4000", "[2001:db8:f::7]:443"));
        let temporary = key6("[2001:db8:1:2::beef]:5", "[2001:db8:e::1]:53");
        assert_eq!(of_host, classes.one6(&temporary));
    }

    /// NAT64 takes a port of the bucket that the host's address says; calls between hosts inside go
    /// by the port that they are for. NPTv6 leaves the other end as it is.
    #[test]
    fn directions_meet_that_translation_leads_elsewhere_in_ipv6() {
        let range = ("192.0.2.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
        let (inside, outside) = ("fd01::/48", "2001:db8:f::/48");
        let marked = Marked::of_nat(&Config {
            pools: vec![Pool::new("v4", vec![range])],
            nat64: vec![Nat64 {
                prefix: Prefix64::well_known(),
                pool: 0,
                from: Place::default(),
            }],
            nptv6: vec![Nptv6 {
                prefixes: Prefixes::new(inside.parse().unwrap(), outside.parse().unwrap()),
                to: Place::default(),
            }],
            ..Config::default()
        });
        let classes = Classes::new(Hash::new(9), &marked).unwrap();
        for host in 1..200 {
            let src = format!("[2001:db8:1::{host:x}]:4000");
            let of_host = classes.one6(&key6(&src, "[64:ff9b::c633:6407]:443"));
            let port = 1024 + 2 * u16::from(of_host);
            let answer = format!("192.0.2.3:{port}");
            assert_eq!(of_host, classes.one4(&key("198.51.100.7:443", &answer)));
            let call = format!("[64:ff9b::c000:203]:{port}");
            let other = key6(&format!("[2001:db8:2::{host:x}]:9"), &call);
            assert_eq!(of_host, classes.one6(&other));

            let (server, host) = ("[2001:db8:9::1]:53", format!("[fd01::{host:x}]:7"));
            let asks = classes.one6(&key6(&host, server));
            assert_eq!(asks, classes.one6(&key6(server, "[2001:db8:f:5::1]:7")));
        }
    }

    #[test]
    fn a_services_client_and_the_servers_answer_meet() {
        let classes = Classes::new(Hash::new(9), &marked()).unwrap();
        for port in 1..1000 {
            let client = format!("198.51.100.7:{port}");
            let asks = classes.one4(&key(&client, "192.0.2.80:443"));
            assert_eq!(asks, classes.one4(&key("10.9.0.5:8443", &client)));
            let client = format!("[2001:db8:f::7]:{port}");
            let asks = classes.one6(&key6(&client, "[2001:db8:2::80]:443"));
            assert_eq!(asks, classes.one6(&key6("[2001:db8:1:9::5]:8443", &client)));
        }
    }

    /// Whoever talks to whom: hosts inside and outside, and servers.
    #[test]
    fn what_is_not_translated_meets_in_both_directions() {
        let classes = Classes::new(Hash::new(9), &marked()).unwrap();
        let plain = Classes::new(Hash::new(9), &Marked::default()).unwrap();
        let mut random = Random::new(2);
        for _ in 0..10_000 {
            let host = |random: &mut Random| match random.below(3) {
                0 => [10, 1, random.below(256) as u8, 1],
                1 => [10, 9, 0, random.below(256) as u8],
                _ => [198, 51, 100, random.below(256) as u8],
            };
            let (src, dst) = (host(&mut random), host(&mut random));
            let (src_port, dst_port) = (random.below(65_536) as u16, random.below(65_536) as u16);
            // GRE has no ports.
            let (src_port, dst_port, protocol) = match random.below(4) {
                0 => (0, 0, 47),
                _ => (src_port, dst_port, 17),
            };
            let key = FlowKey4::new(src, dst, src_port, dst_port, protocol);
            assert_eq!(plain.one4(&key), plain.one4(&key.reversed()));
            assert_eq!(classes.one4(&key), classes.one4(&key.reversed()), "{key:?}");
        }
    }

    #[test]
    fn a_burst_gets_what_its_packets_get_one_by_one() {
        let mut random = Random::new(4);
        for marked in [Marked::default(), marked()] {
            let classes = Classes::new(Hash::new(11), &marked).unwrap();
            let mut parsed = Parsed::new();
            let mut buckets = [0; Burst::CAPACITY];
            for round in 0..1000 {
                parsed.class.v4 = random.bits();
                parsed.class.v6 = !parsed.class.v4 & random.bits();
                for index in 0..Burst::CAPACITY {
                    let any = [
                        [10, 1, 2, 3],
                        [10, 9, 0, 1],
                        [192, 0, 2, 1],
                        [192, 0, 2, 80],
                        [8; 4],
                    ];
                    let (src, dst) = (random.of(&any), random.of(&any));
                    let ports = (random.below(65_536) as u16, round);
                    parsed.keys4[index] = FlowKey4::new(src, dst, ports.0, ports.1, 6);
                    parsed.src4[index] = u32::from_be_bytes(src);
                    parsed.dst4[index] = u32::from_be_bytes(dst);
                    let any = [
                        "2001:db8:1::5",
                        "2001:db8:1:9::5",
                        "2001:db8:2::1",
                        "2001:db8:2::80",
                    ];
                    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
                    let (src, dst) = (address(random.of(&any)), address(random.of(&any)));
                    parsed.keys6[index] = FlowKey6::new(src, dst, ports.0, ports.1, 6);
                }
                classes.buckets(&parsed, 0, &mut buckets);
                for (index, &bucket) in buckets.iter().enumerate() {
                    if parsed.class.v4 >> index & 1 != 0 {
                        assert_eq!(bucket, classes.one4(&parsed.keys4[index]));
                    } else if parsed.class.v6 >> index & 1 != 0 {
                        assert_eq!(bucket, classes.one6(&parsed.keys6[index]));
                    }
                }
            }
        }
    }
}
