//! Mappings: which outside address and port an inside endpoint has, for all whom it talks to.
//!
//! An endpoint-independent mapping (RFC 4787 REQ-1) is here from its first flow to the end of its
//! last one, and counts them. An endpoint-dependent one is no more than a port that a flow uses:
//! the flow's two keys say it all, and nothing of it is here.
//!
//! A mapping is found by its inside and by its outside, and is in the list of its inside's bucket:
//! a bucket's mappings leave for another worker at the cost of those alone.

use std::net::IpAddr;

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};

use super::bits::Bits;
use super::chain::{Chains, NONE};
use super::ports::{AddressId, bucket_of};
use super::{Endpoint, Protocol};

/// An endpoint inside, in its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inside {
    pub endpoint: Endpoint,
    pub protocol: Protocol,
    pub zone: u16,
    /// The pool of its outside: rules may give it different ones for different destinations.
    pub pool: u16,
}

/// An endpoint outside: an address of a pool, and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutsidePort {
    pub address: AddressId,
    pub protocol: Protocol,
    pub port: u16,
}

/// Who may send to a mapping's outside: RFC 4787 REQ-8, RFC 5382 REQ-3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filtering {
    /// Anybody.
    EndpointIndependent,
    /// Whoever has an address that the inside has a flow to.
    #[default]
    AddressDependent,
    /// Whoever the inside has a flow to: no first packet from outside.
    AddressAndPortDependent,
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub inside: Inside,
    pub outside: OutsidePort,
    /// The bucket of the inside.
    pub bucket: u8,
    /// Flows that use it.
    pub flows: u32,
    /// The address that the inside has flows to, where filtering asks: most have one.
    contact: Contact,
    /// More of them.
    contacts: u32,
}

/// An address that a mapping's inside has flows to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contact {
    remote: IpAddr,
    /// 0: there is none.
    flows: u32,
}

impl Contact {
    const NONE: Self = Self {
        remote: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        flows: 0,
    };

    fn is(&self, remote: IpAddr) -> bool {
        self.flows != 0 && self.remote == remote
    }
}

/// The mappings of one bucket, on the way to another worker.
#[derive(Debug, Default)]
pub struct BucketMappings(Vec<(Mapping, Vec<Contact>)>);

/// The endpoint-independent mappings that one worker owns.
pub struct Mappings {
    all: Chains<Mapping>,
    contacts: Chains<Contact>,
    /// The first mapping of each bucket.
    buckets: Box<[u32; 256]>,
    inside4: Exact<12, u32>,
    inside6: Exact<24, u32>,
    outside: Exact<8, u32>,
    by_contact: Exact<24, u32>,
}

impl Mapping {
    fn new(inside: Inside, outside: OutsidePort, bucket: u8) -> Self {
        Self {
            inside,
            outside,
            bucket,
            flows: 0,
            contact: Contact::NONE,
            contacts: NONE,
        }
    }
}

impl Inside {
    fn key4(&self) -> Option<[u8; 12]> {
        let IpAddr::V4(address) = self.endpoint.address else {
            return None;
        };
        let mut key = [0; 12];
        key[..4].copy_from_slice(&address.octets());
        self.fill(&mut key[4..]);
        Some(key)
    }

    fn key6(&self) -> [u8; 24] {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&octets(self.endpoint.address));
        self.fill(&mut key[16..]);
        key
    }

    fn fill(&self, rest: &mut [u8]) {
        rest[..2].copy_from_slice(&self.endpoint.port.to_be_bytes());
        rest[2..4].copy_from_slice(&self.zone.to_be_bytes());
        rest[4..6].copy_from_slice(&self.pool.to_be_bytes());
        rest[6] = self.protocol.index() as u8;
    }
}

impl OutsidePort {
    fn key(&self) -> [u8; 8] {
        let [a, b] = self.address.0.to_be_bytes();
        let [c, d] = self.port.to_be_bytes();
        [a, b, c, d, self.protocol.index() as u8, 0, 0, 0]
    }

    fn contact(&self, remote: IpAddr) -> [u8; 24] {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&octets(remote));
        key[16..].copy_from_slice(&self.key());
        key
    }
}

/// 16 bytes of any address; those of the two families differ (RFC 4291 2.5.5.2).
pub(super) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Mappings {
    /// Room for so many mappings, which it grows to.
    ///
    /// # Errors
    /// Those of [`Exact::new`].
    pub fn new(limit: usize, seed: Seed) -> Result<Self, TableError> {
        let config = |name: &str| ExactConfig::new(name, limit, seed);
        Ok(Self {
            all: Chains::new(),
            contacts: Chains::new(),
            buckets: Box::new([NONE; 256]),
            inside4: Exact::new(&config("NAT mappings"))?,
            inside6: Exact::new(&config("NAT mappings of IPv6"))?,
            outside: Exact::new(&config("NAT ports"))?,
            by_contact: Exact::new(&config("NAT contacts"))?,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those at `count` places from `from` on, and where to go on; `None` at the end.
    pub fn part(&self, from: u32, count: u32) -> (impl Iterator<Item = &Mapping>, Option<u32>) {
        self.all.part(from, count)
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.all.iter()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let tables = self.inside4.memory_bytes() + self.inside6.memory_bytes();
        let tables = tables + self.outside.memory_bytes() + self.by_contact.memory_bytes();
        tables + self.all.memory_bytes() + self.contacts.memory_bytes()
    }

    /// The mapping of an inside endpoint.
    #[inline]
    pub fn of(&self, inside: &Inside) -> Option<&Mapping> {
        self.all.get(self.place_of(inside)?)
    }

    /// The mapping that has this outside.
    #[inline]
    pub fn at(&self, outside: &OutsidePort) -> Option<&Mapping> {
        self.all.get(self.outside.lookup(&outside.key())?)
    }

    /// Asks for the memory that tells which mapping an inside endpoint has.
    #[inline]
    pub fn prefetch_of(&self, inside: &Inside) {
        match inside.key4() {
            Some(key) => self.inside4.prefetch(&key),
            None => self.inside6.prefetch(&inside.key6()),
        }
    }

    /// Asks for the memory that tells which mapping has this outside.
    #[inline]
    pub fn prefetch_at(&self, outside: &OutsidePort) {
        self.outside.prefetch(&outside.key());
    }

    /// Where the mapping is that has this outside, and asks for its memory.
    #[inline]
    pub fn fetch(&self, outside: &OutsidePort) -> Option<u32> {
        let place = self.outside.lookup(&outside.key())?;
        self.all.prefetch(place);
        Some(place)
    }

    /// Asks for what else the end of the mapping at a place needs.
    #[inline]
    pub fn prefetch_end(&self, place: u32) {
        if let Some(mapping) = self.all.get(place) {
            self.prefetch_of(&mapping.inside);
            self.all.prefetch_neighbours(place);
        }
    }

    /// Whether a remote address may begin a flow to a mapping.
    pub fn admits(&self, mapping: &Mapping, filtering: Filtering, remote: IpAddr) -> bool {
        match filtering {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => {
                mapping.contact.is(remote) || self.contact_of(mapping, remote).is_some()
            }
            Filtering::AddressAndPortDependent => false,
        }
    }

    fn place_of(&self, inside: &Inside) -> Option<u32> {
        match inside.key4() {
            Some(key) => self.inside4.lookup(&key),
            None => self.inside6.lookup(&inside.key6()),
        }
    }

    /// Where a mapping has a contact that is not its first.
    fn contact_of(&self, mapping: &Mapping, remote: IpAddr) -> Option<u32> {
        match mapping.contacts {
            NONE => None,
            _ => self.by_contact.lookup(&mapping.outside.contact(remote)),
        }
    }

    /// Adds a mapping, without a flow.
    ///
    /// # Errors
    /// There is no room: [`TableError::ExactFull`], or what else [`Exact::insert`] says.
    pub fn insert(
        &mut self,
        inside: Inside,
        outside: OutsidePort,
        bucket: u8,
    ) -> Result<(), TableError> {
        self.put(Mapping::new(inside, outside, bucket))
    }

    /// The same with its first flow, as [`begin`](Self::begin) counts it.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_begun(
        &mut self,
        inside: Inside,
        outside: OutsidePort,
        bucket: u8,
        contact: Option<IpAddr>,
    ) -> Result<(), TableError> {
        self.put(Mapping {
            flows: 1,
            contact: contact.map_or(Contact::NONE, |remote| Contact { remote, flows: 1 }),
            ..Mapping::new(inside, outside, bucket)
        })
    }

    fn put(&mut self, mapping: Mapping) -> Result<(), TableError> {
        let first = &mut self.buckets[usize::from(mapping.bucket)];
        let place = self.all.push(first, mapping);
        let inside = match mapping.inside.key4() {
            Some(key) => self.inside4.insert(&key, place),
            None => self.inside6.insert(&mapping.inside.key6(), place),
        };
        let done = inside.and_then(|_| self.outside.insert(&mapping.outside.key(), place));
        match done {
            Ok(_) => Ok(()),
            Err(error) => {
                self.forget(&mapping.inside, place);
                Err(error)
            }
        }
    }

    /// Takes a mapping out of everything that leads to it.
    fn forget(&mut self, inside: &Inside, place: u32) -> Option<Mapping> {
        let bucket = self.all.get(place)?.bucket;
        let mapping = self
            .all
            .remove(&mut self.buckets[usize::from(bucket)], place)?;
        match inside.key4() {
            Some(key) => self.inside4.remove(&key),
            None => self.inside6.remove(&inside.key6()),
        };
        self.outside.remove(&mapping.outside.key());
        Some(mapping)
    }

    /// Counts a flow that uses a mapping; `contact` is whom it goes to, where filtering asks.
    /// Whether there is such a mapping.
    pub fn begin(&mut self, outside: &OutsidePort, contact: Option<IpAddr>) -> bool {
        let Some(place) = self.outside.lookup(&outside.key()) else {
            return false;
        };
        let Some(mapping) = self.all.get_mut(place) else {
            return false;
        };
        mapping.flows += 1;
        let Some(remote) = contact else {
            return true;
        };
        if mapping.contact.is(remote) {
            mapping.contact.flows += 1;
            return true;
        }
        let key = outside.contact(remote);
        let known = match mapping.contacts {
            NONE => None,
            _ => self.by_contact.lookup(&key),
        };
        let flows = 1;
        if let Some(known) = known {
            if let Some(known) = self.contacts.get_mut(known) {
                known.flows += 1;
            }
        } else if mapping.contact.flows == 0 {
            mapping.contact = Contact { remote, flows };
        } else {
            let contact = Contact { remote, flows };
            let at = self.contacts.push(&mut mapping.contacts, contact);
            // Without room the contact may not answer from another port: nothing else.
            if self.by_contact.insert(&key, at).is_err() {
                self.contacts.remove(&mut mapping.contacts, at);
            }
        }
        true
    }

    /// Counts a flow off; `contact` is as at its beginning. The mapping, if it was its last: its
    /// port is to be given back.
    pub fn end(&mut self, outside: &OutsidePort, contact: Option<IpAddr>) -> Option<Mapping> {
        let place = self.outside.lookup(&outside.key())?;
        self.end_at(place, outside, contact)
    }

    /// The same of the mapping that was at a place; nothing has been added since.
    pub fn end_at(
        &mut self,
        place: u32,
        outside: &OutsidePort,
        contact: Option<IpAddr>,
    ) -> Option<Mapping> {
        let mapping = self.all.get_mut(place)?;
        mapping.flows = mapping.flows.saturating_sub(1);
        let first = contact.is_some_and(|remote| mapping.contact.is(remote));
        if first {
            mapping.contact.flows -= 1;
        } else if let Some(remote) = contact.filter(|_| mapping.contacts != NONE) {
            let key = outside.contact(remote);
            let at = self.by_contact.lookup(&key);
            let known = at.and_then(|at| Some((at, self.contacts.get_mut(at)?)));
            if let Some((at, known)) = known {
                known.flows -= 1;
                if known.flows == 0 {
                    self.by_contact.remove(&key);
                    self.contacts.remove(&mut mapping.contacts, at);
                }
            }
        }
        if mapping.flows != 0 {
            return None;
        }
        let (inside, contacts) = (mapping.inside, mapping.contacts);
        if contacts != NONE {
            self.drop_contacts(place);
        }
        self.forget(&inside, place)
    }

    /// Takes the contacts of a mapping out, but its first, which it keeps.
    fn drop_contacts(&mut self, place: u32) -> Vec<Contact> {
        let Some(mapping) = self.all.get_mut(place) else {
            return Vec::new();
        };
        let places: Vec<u32> = self.contacts.places(mapping.contacts).collect();
        let mut taken = Vec::with_capacity(places.len());
        for at in places {
            if let Some(contact) = self.contacts.remove(&mut mapping.contacts, at) {
                self.by_contact
                    .remove(&mapping.outside.contact(contact.remote));
                taken.push(contact);
            }
        }
        taken
    }

    /// Takes out all mappings to addresses that `stays` does not name; returns them.
    pub fn retain(&mut self, stays: impl Fn(AddressId) -> bool) -> Vec<Mapping> {
        let gone = |mapping: &&Mapping| !stays(mapping.outside.address);
        let gone: Vec<Mapping> = self.all.iter().filter(gone).copied().collect();
        for mapping in &gone {
            if let Some(place) = self.place_of(&mapping.inside) {
                self.drop_contacts(place);
                self.forget(&mapping.inside, place);
            }
        }
        gone
    }

    /// Gives the pools of all mappings their numbers anew, by their outside addresses.
    pub fn renumber(&mut self, pool: impl Fn(AddressId) -> u16) {
        let is_other = |mapping: &&Mapping| mapping.inside.pool != pool(mapping.outside.address);
        let others: Vec<Mapping> = self.all.iter().filter(is_other).copied().collect();
        for mapping in &others {
            if let Some(place) = self.place_of(&mapping.inside) {
                self.forget(&mapping.inside, place);
            }
        }
        for mut mapping in others {
            mapping.inside.pool = pool(mapping.outside.address);
            // As many as before, in the same tables.
            let _ = self.put(mapping);
        }
    }

    /// Other buckets whose ports the mappings of this one use: they must have the same owner.
    pub fn companions(&self, bucket: u8) -> Bits {
        let mut buckets = Bits::NONE;
        let list = self.all.list(self.buckets[usize::from(bucket)]);
        list.for_each(|mapping| buckets.set(bucket_of(mapping.outside.port)));
        buckets.clear(bucket);
        buckets
    }

    /// Takes the mappings of a bucket out, for another worker, with all their counts.
    pub fn take_bucket(&mut self, bucket: u8) -> BucketMappings {
        let places: Vec<u32> = self.all.places(self.buckets[usize::from(bucket)]).collect();
        let mut taken = Vec::with_capacity(places.len());
        for place in places {
            let contacts = self.drop_contacts(place);
            let inside = self.all.get(place).map(|mapping| mapping.inside);
            let mapping = inside.and_then(|inside| self.forget(&inside, place));
            taken.extend(mapping.map(|mapping| (mapping, contacts)));
        }
        BucketMappings(taken)
    }

    /// Puts in what [`take_bucket`](Self::take_bucket) of another worker took out; returns those
    /// for which there is no room, whose flows have to end.
    pub fn put_bucket(&mut self, mappings: BucketMappings) -> Vec<Mapping> {
        let mut refused = Vec::new();
        for (mut mapping, contacts) in mappings.0 {
            mapping.contacts = NONE;
            if self.put(mapping).is_err() {
                refused.push(mapping);
                continue;
            }
            let Some(place) = self.place_of(&mapping.inside) else {
                continue;
            };
            for contact in contacts {
                let Some(mapping) = self.all.get_mut(place) else {
                    continue;
                };
                let at = self.contacts.push(&mut mapping.contacts, contact);
                let key = mapping.outside.contact(contact.remote);
                if self.by_contact.insert(&key, at).is_err() {
                    self.contacts.remove(&mut mapping.contacts, at);
                }
            }
        }
        refused
    }
}

impl BucketMappings {
    /// How many mappings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_core::random::Random;
    use std::collections::HashMap;

    fn inside(host: u8, port: u16) -> Inside {
        let endpoint = match host {
            0..100 => Endpoint::new([10, 0, 0, host], port),
            _ => Endpoint::new([host; 16], port),
        };
        Inside {
            endpoint,
            protocol: Protocol::Udp,
            zone: 3,
            pool: 0,
        }
    }

    fn outside(port: u16) -> OutsidePort {
        OutsidePort {
            address: AddressId(2),
            protocol: Protocol::Udp,
            port,
        }
    }

    fn new() -> Mappings {
        Mappings::new(10_000, Seed(7)).unwrap()
    }

    const REMOTE: [u8; 4] = [192, 0, 2, 1];
    const SECOND: [u8; 4] = [192, 0, 2, 2];

    fn contacts(mappings: &Mappings) -> usize {
        let first = mappings.iter().filter(|one| one.contact.flows != 0);
        first.count() + mappings.contacts.len()
    }

    #[test]
    fn rfc_4787_req_1_one_outside_for_whomever_the_inside_talks_to() {
        let mut mappings = new();
        mappings.insert(inside(1, 5000), outside(7000), 9).unwrap();
        assert!(mappings.begin(&outside(7000), None) && mappings.begin(&outside(7000), None));
        assert_eq!(
            mappings.of(&inside(1, 5000)).unwrap().outside,
            outside(7000)
        );
        assert_eq!(mappings.at(&outside(7000)).unwrap().inside, inside(1, 5000));
        // Nothing else leads there.
        assert!(mappings.of(&inside(1, 5001)).is_none() && mappings.at(&outside(7001)).is_none());
        let other = Inside {
            zone: 4,
            ..inside(1, 5000)
        };
        assert!(mappings.of(&other).is_none() && !mappings.begin(&outside(7001), None));
        // It lasts as long as its last flow.
        assert_eq!(mappings.end(&outside(7000), None), None);
        let ended = mappings.end(&outside(7000), None).unwrap();
        assert_eq!(
            (ended.inside, ended.bucket, mappings.len()),
            (inside(1, 5000), 9, 0)
        );
        assert_eq!(mappings.end(&outside(7000), None), None);
    }

    #[test]
    fn rfc_4787_req_8_the_three_ways_to_filter() {
        use Filtering::*;
        let mut mappings = new();
        mappings.insert(inside(1, 5000), outside(7000), 9).unwrap();
        let (known, unknown) = (REMOTE.into(), [192, 0, 2, 2].into());
        assert!(mappings.begin(&outside(7000), Some(known)));
        assert!(mappings.begin(&outside(7000), Some(known)));
        let admits = |mappings: &Mappings| {
            let mapping = mappings.at(&outside(7000)).unwrap();
            [
                EndpointIndependent,
                AddressDependent,
                AddressAndPortDependent,
            ]
            .map(|way| [known, unknown].map(|who| mappings.admits(mapping, way, who)))
        };
        assert_eq!(
            admits(&mappings),
            [[true, true], [true, false], [false, false]]
        );
        // The last flow to an address takes it back.
        assert!(mappings.begin(&outside(7000), None));
        assert!(mappings.end(&outside(7000), Some(known)).is_none());
        assert_eq!(admits(&mappings)[1], [true, false]);
        assert!(mappings.end(&outside(7000), Some(known)).is_none());
        assert_eq!(admits(&mappings)[1], [false, false]);
    }

    #[test]
    fn a_full_table_refuses_and_forgets() {
        let mut mappings = Mappings::new(16, Seed(7)).unwrap();
        for port in 0..16 {
            mappings.insert(inside(1, port), outside(port), 9).unwrap();
        }
        let refused = mappings.insert(inside(1, 16), outside(16), 9).unwrap_err();
        assert!(matches!(refused, TableError::ExactFull { .. }));
        assert!(mappings.of(&inside(1, 16)).is_none() && mappings.len() == 16);
        mappings.begin(&outside(3), None);
        mappings.end(&outside(3), None).unwrap();
        mappings.insert(inside(1, 16), outside(16), 9).unwrap();
        assert_eq!(mappings.iter().count(), 16);
        assert!(mappings.memory_bytes() > 0);
    }

    #[test]
    fn mappings_of_an_address_that_is_gone_are_taken_out() {
        let mut mappings = new();
        for port in 0..100 {
            let address = AddressId(port & 1);
            let outside = OutsidePort {
                address,
                ..outside(port)
            };
            mappings
                .insert(inside(200, port), outside, port as u8)
                .unwrap();
            mappings.begin(&outside, Some(REMOTE.into()));
            mappings.begin(&outside, Some(SECOND.into()));
        }
        assert_eq!((contacts(&mappings), mappings.by_contact.len()), (200, 100));
        let gone = mappings.retain(|address| address == AddressId(1));
        assert_eq!(
            (gone.len(), mappings.len(), mappings.contacts.len()),
            (50, 50, 50)
        );
        assert!(
            gone.iter()
                .all(|mapping| mapping.outside.address == AddressId(0))
        );
        assert!(mappings.at(&gone[0].outside).is_none() && mappings.by_contact.len() == 50);
    }

    #[test]
    fn a_bucket_moves_with_its_counts_and_contacts() {
        let (mut here, mut there) = (new(), new());
        let remote = IpAddr::from(REMOTE);
        for port in 0..2000_u16 {
            let host = [1, 200][usize::from(port) & 1];
            here.insert(inside(host, port), outside(port), port as u8)
                .unwrap();
            for _ in 0..=port % 3 {
                here.begin(&outside(port), (port & 2 != 0).then_some(remote));
            }
            if port == 515 {
                here.begin(&outside(port), Some(SECOND.into()));
            }
        }
        // Port 3 is of bucket 1, as are 2, 514, 515, ...; bucket 3 has ports 3, 259, 515, ...
        assert!(here.companions(3).has(1) && !here.companions(3).has(3));
        let moved = here.take_bucket(3);
        assert_eq!(
            (moved.len(), here.len(), moved.is_empty()),
            (8, 1992, false)
        );
        assert!(here.at(&outside(259)).is_none() && here.take_bucket(3).is_empty());
        assert!(there.put_bucket(moved).is_empty());
        let mapping = *there.at(&outside(259)).unwrap();
        assert_eq!((mapping.flows, mapping.bucket), (2, 3));
        assert!(there.admits(&mapping, Filtering::AddressDependent, remote));
        let two = there.at(&outside(515)).unwrap();
        let admits = |who| there.admits(two, Filtering::AddressDependent, who);
        assert!(admits(SECOND.into()) && admits(remote));
        assert!(!admits([192, 0, 2, 3].into()) && contacts(&there) == 9);
        there.end(&outside(515), Some(SECOND.into()));
        for _ in 0..2 {
            there.end(&outside(259), Some(remote));
        }
        assert!(there.at(&outside(259)).is_none());
        assert_eq!(contacts(&there), 7);
        // No room: they come back.
        let mut small = Mappings::new(16, Seed(1)).unwrap();
        let mut fill = |port| small.insert(inside(2, port), outside(port), 0).unwrap();
        (5000..5016).for_each(&mut fill);
        assert_eq!(small.put_bucket(there.take_bucket(3)).len(), 7);
    }

    #[test]
    fn any_order_of_calls_does_what_maps_do() {
        let mut random = Random::new(3);
        let mut mappings = new();
        let mut model: HashMap<u16, (Inside, Vec<Option<IpAddr>>)> = HashMap::new();
        for _ in 0..40_000 {
            let port = random.below(300) as u16;
            let remote: IpAddr = [192, 0, 2, random.below(3) as u8].into();
            let contact = (random.below(2) == 0).then_some(remote);
            match model.get_mut(&port) {
                None if random.below(4) == 0 => {
                    let inside = inside(random.below(200) as u8, 1000 + port);
                    mappings.insert(inside, outside(port), port as u8).unwrap();
                    assert!(mappings.begin(&outside(port), contact));
                    model.insert(port, (inside, vec![contact]));
                }
                None => assert!(!mappings.begin(&outside(port), contact)),
                Some((inside, flows)) => {
                    let mapping = *mappings.of(inside).unwrap();
                    assert_eq!(
                        (mapping.outside.port, mapping.flows as usize),
                        (port, flows.len())
                    );
                    let admits = mappings.admits(&mapping, Filtering::AddressDependent, remote);
                    assert_eq!(admits, flows.contains(&Some(remote)));
                    if random.below(2) == 0 && flows.len() < 6 {
                        assert!(mappings.begin(&outside(port), contact));
                        flows.push(contact);
                    } else {
                        let ends = flows.swap_remove(random.below(flows.len() as u64) as usize);
                        let last = mappings.end(&outside(port), ends);
                        assert_eq!(last.is_some(), flows.is_empty());
                        if flows.is_empty() {
                            model.remove(&port);
                        }
                    }
                }
            }
            assert_eq!(mappings.len(), model.len());
        }
    }
}
