//! Lcores and ports: who is home and who owner of a 4-tuple, as far as a hash says it.
//!
//! Lcores have numbers, those that own connections the first ones. Each port has a hash, whose
//! table has these numbers, and a way in which its packets arrive:
//!
//! | arrival | who is home | who owns |
//! |---|---|---|
//! | [`Arrival::One`] | the lcore that polls the only queue | the lcore that the hash says |
//! | [`Arrival::ByHash`] | the lcore that the hash says | the same |
//! | [`Arrival::Any`] | any of several, by a hash that nobody knows | the lcore that our hash says |
//!
//! In the first and the last the hash is Toeplitz with a secret key, so nobody outside can choose
//! tuples that meet on one lcore; in the second it is that of the NIC ([`Model`]).

use linerate_core::packet::Burst;
use linerate_dispatch::owners::WORKERS;
use linerate_dispatch::{BUCKETS, Bucket, Owner, Owners, ones};
use linerate_tables::TableError;
use linerate_tables::parse::{Mask, Parsed};
use linerate_tables::rss::{Fields, Flow, Model, Profile, Reta, Symmetry};
use linerate_wire::{FlowKey, protocol};

/// An lcore's number in a plan: of those that own connections, as [`Owner`].
pub type Member = Owner;

/// How packets of a port arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// All at one lcore.
    One(Member),
    /// Where the hash says.
    ByHash,
    /// Anywhere among these.
    Any(Vec<Member>),
}

/// A port.
#[derive(Clone, Debug)]
pub struct PortPlan {
    arrival: Arrival,
    /// Its table's slots are lcores, not queues.
    model: Model,
}

/// Lcores and ports.
#[derive(Clone, Debug)]
pub struct Plan {
    ports: Vec<PortPlan>,
    owners: Member,
}

/// Length of the secret key, in bytes: enough for the tuples of IPv6.
pub const SECRET_BYTES: usize = 40;

/// The key of the software hash, from numbers that nobody outside knows.
pub fn secret() -> [u8; SECRET_BYTES] {
    let mut key = [0; SECRET_BYTES];
    for part in key.chunks_mut(16) {
        let word = linerate_tables::exact::Seed::random().0.to_le_bytes();
        part.copy_from_slice(&word[..part.len()]);
    }
    key
}

impl PortPlan {
    /// A port whose owners are those of the buckets that Toeplitz with a secret key says.
    ///
    /// # Errors
    /// None for what the types allow: 256 slots and 40 bytes of key.
    pub fn software(
        secret: &[u8; SECRET_BYTES],
        owners: &Owners,
        arrival: Arrival,
    ) -> Result<Self, TableError> {
        let of_bucket = |bucket: usize| u16::from(owners.of(bucket as Bucket));
        let reta = Reta::from_slots((0..BUCKETS).map(of_bucket))?;
        let model = Model::new(Profile::find("microsoft")?, Some(secret), reta)?;
        Ok(Self { arrival, model })
    }

    /// A port whose NIC is `model`, queue `q` of which lcore `polls[q]` polls; a queue that none is
    /// named for is lcore 0's.
    ///
    /// # Errors
    /// None for a model that could be made.
    pub fn hardware(model: &Model, polls: &[Member]) -> Result<Self, TableError> {
        let member = |&queue: &u16| polls.get(usize::from(queue)).copied().unwrap_or(0);
        let slots = model.reta().slots().iter().map(member).map(u16::from);
        let model = model.with_reta(Reta::from_slots(slots)?);
        let arrival = Arrival::ByHash;
        Ok(Self { arrival, model })
    }

    /// How its packets arrive.
    pub fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// Its hash, in whose table are lcores.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The owner of packets with this key, unless a map says another; `None` where the NIC hashes
    /// more than the key.
    pub fn owner(&self, key: &FlowKey) -> Option<Member> {
        let owner = self.model.queue(&flow(key), false);
        owner.map(|owner| owner as Member)
    }

    /// The home of packets with this key; `None` where any can be.
    pub fn home(&self, key: &FlowKey) -> Option<Member> {
        match self.arrival {
            Arrival::One(home) => Some(home),
            Arrival::ByHash => self.owner(key),
            Arrival::Any(_) => None,
        }
    }

    /// The home that puts fragments of a datagram with these addresses together. A NIC brings all
    /// of them to one queue, since it hashes fragments by addresses only.
    pub fn home_of_fragments(&self, key: &FlowKey) -> Option<Member> {
        match &self.arrival {
            Arrival::One(home) => Some(*home),
            Arrival::ByHash => self
                .model
                .queue(&flow(key), true)
                .map(|home| home as Member),
            Arrival::Any(homes) => {
                let hash = self.model.hash(&flow(key), true)?;
                homes.get(hash as usize % homes.len().max(1)).copied()
            }
        }
    }

    /// Writes the owners of packets at the positions of a mask, which are whole TCP or UDP. One
    /// whose owner no hash says is `otherwise`'s.
    pub(super) fn owners(
        &self,
        parsed: &Parsed,
        mask: Mask,
        otherwise: Member,
        owners: &mut [u32; Burst::CAPACITY],
    ) {
        let class = &parsed.class;
        // All profiles hash the ports of TCP; what a symmetry does to tuples is not in the kernels.
        let bulk = match self.model.symmetry() {
            Symmetry::None => mask & class.tcp,
            _ => 0,
        };
        let (toeplitz, fields) = (self.model.toeplitz(), Fields::AddressesAndPorts);
        let mut hashes = [0; Burst::CAPACITY];
        let v4 = bulk & class.v4;
        if v4 != 0 {
            let count = (Mask::BITS - v4.leading_zeros()) as usize;
            toeplitz.flows4(fields, &parsed.keys4[..count], &mut hashes[..count]);
            let owner = |hash: u32| self.model.reta().queue(hash).into();
            if v4.count_ones() as usize == count {
                // Most bursts are nothing else.
                for (owner_of, &hash) in owners.iter_mut().zip(&hashes[..count]) {
                    *owner_of = owner(hash);
                }
            } else {
                // What lies between has no key, and an owner that others say.
                for index in ones(v4) {
                    owners[index] = owner(hashes[index]);
                }
            }
        }
        if bulk & class.v6 != 0 {
            let count = (Mask::BITS - (bulk & class.v6).leading_zeros()) as usize;
            toeplitz.flows6(fields, &parsed.keys6[..count], &mut hashes[..count]);
            for index in ones(bulk & class.v6) {
                owners[index] = self.model.reta().queue(hashes[index]).into();
            }
        }
        for index in ones(mask & !bulk) {
            let owner = self.owner(&key_of(parsed, index));
            owners[index] = owner.unwrap_or(otherwise).into();
        }
    }
}

impl Plan {
    /// For ports in the order of their numbers; lcores below `owners` own connections.
    ///
    /// # Panics
    /// If no lcore owns connections, or more than [`WORKERS`] do.
    pub fn new(ports: Vec<PortPlan>, owners: Member) -> Self {
        let range = 1..=WORKERS;
        assert!(
            range.contains(&owners.into()),
            "{owners} lcores own connections"
        );
        Self { ports, owners }
    }

    /// A port, by number.
    pub fn port(&self, port: u16) -> Option<&PortPlan> {
        self.ports.get(usize::from(port))
    }

    /// All ports, by number.
    pub fn ports(&self) -> &[PortPlan] {
        &self.ports
    }

    /// How many lcores own connections.
    pub fn owners(&self) -> Member {
        self.owners
    }

    /// Whether an lcore owns connections.
    pub fn owns(&self, member: Member) -> bool {
        member < self.owners
    }

    /// Whether packets of some port arrive at an lcore.
    pub fn is_home(&self, member: Member) -> bool {
        self.ports.iter().any(|port| match &port.arrival {
            Arrival::One(home) => *home == member,
            Arrival::ByHash => port.model.reta().slots().contains(&member.into()),
            Arrival::Any(homes) => homes.contains(&member),
        })
    }
}

/// What RSS hashes of a key.
pub(super) fn flow(key: &FlowKey) -> Flow {
    match *key {
        FlowKey::V4(key) => Flow::V4(key),
        FlowKey::V6(key) => Flow::V6(key),
    }
}

/// The key at a position, which is IPv4 or IPv6.
pub(super) fn key_of(parsed: &Parsed, index: usize) -> FlowKey {
    match parsed.class.v4 >> index & 1 {
        1 => FlowKey::V4(parsed.keys4[index]),
        _ => FlowKey::V6(parsed.keys6[index]),
    }
}

/// The protocol of a key.
pub(super) fn is_tcp(key: &FlowKey) -> bool {
    let number = match key {
        FlowKey::V4(key) => key.protocol(),
        FlowKey::V6(key) => key.protocol(),
    };
    number == protocol::TCP
}
