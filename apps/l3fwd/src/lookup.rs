//! The tables, as the stage asks them: the number of the next hop of each packet.
//!
//! Nobody changes them, so all workers share them. Each looks up a whole burst at once.

use std::sync::Arc;

use linerate_core::env::Clock;
use linerate_core::packet::Burst;
use linerate_tables::TableError;
use linerate_tables::acl::{
    Acl, AclConfig, Match, Match4, Match6, PacketKey, PacketKey4, PacketKey6, Rule, words6,
};
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_tables::lpm::{
    Choice, Lpm4, Lpm4Config, Lpm6, Lpm6Config, NO_ROUTE, Prefix4, Prefix6,
};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::{FlowKey4, FlowKey6};

/// What a stage looks packets up in: behind one call a burst, so that there is one path and not
/// one for each kind of table.
pub trait Lookup: Send + 'static {
    /// Writes the number of the next hop of each packet in `v4` and `v6`, at its position;
    /// [`NO_ROUTE`] where there is none. At other positions it may write what it likes.
    fn find(
        &mut self,
        burst: &Burst,
        parsed: &Parsed,
        v4: Mask,
        v6: Mask,
        numbers: &mut [u32; Burst::CAPACITY],
    );

    /// The same tables, for another worker.
    fn share(&self) -> Box<dyn Lookup>;
}

/// Longest prefix match.
#[derive(Clone)]
pub struct Longest {
    v4: Arc<Lpm4>,
    v6: Arc<Lpm6>,
    /// Each worker's own.
    choice: Choice,
}

/// Bytes of the lookup table, and of the route store, for each IPv4 route, however they lie.
const TABLE_BYTES: usize = 24;
const RIB_BYTES: usize = 64;

impl Longest {
    pub fn new(routes4: &[(Prefix4, u32)], routes6: &[(Prefix6, u32)]) -> Result<Self, TableError> {
        let least = Lpm4Config::default();
        let mut v4 = Lpm4::new(&Lpm4Config {
            flat_vrfs: u32::from(!routes4.is_empty()),
            table_bytes: least.table_bytes.max(routes4.len() * TABLE_BYTES),
            rib_bytes: least.rib_bytes.max(routes4.len() * RIB_BYTES),
            ..least
        })?;
        for &(prefix, hop) in routes4 {
            v4.insert(0, prefix, hop)?;
        }
        let mut v6 = Lpm6::new(&Lpm6Config {
            direct_vrfs: u32::from(!routes6.is_empty()),
            routes: routes6.len(),
            budget_bytes: usize::MAX,
            ..Lpm6Config::default()
        })?;
        for &(prefix, hop) in routes6 {
            v6.insert(0, prefix, hop)?;
        }
        Ok(Self {
            v4: Arc::new(v4),
            v6: Arc::new(v6),
            choice: Choice::new(Clock::calibrate()),
        })
    }
}

impl Lookup for Longest {
    fn find(
        &mut self,
        burst: &Burst,
        parsed: &Parsed,
        v4: Mask,
        v6: Mask,
        numbers: &mut [u32; Burst::CAPACITY],
    ) {
        let count = burst.len();
        if v4 != 0 {
            // All positions: where there is no IPv4 packet, some old address is looked up for
            // nothing.
            let addresses = &parsed.dst4[..count];
            let numbers = &mut numbers[..count];
            self.v4
                .fib()
                .lookup_chosen(&mut self.choice, 0, addresses, numbers);
        }
        if v6 != 0 {
            by_position::<[u8; 16], u32>(
                v6,
                numbers,
                |at| *parsed.keys6[at].0[16..].first_chunk().expect("an address"),
                |addresses, found| self.v6.fib().lookup_bulk(0, addresses, found),
                |hop| hop,
            );
        }
    }

    fn share(&self) -> Box<dyn Lookup> {
        Box::new(self.clone())
    }
}

/// Exact match of addresses, ports and protocol.
#[derive(Clone)]
pub struct ExactMatch {
    v4: Arc<Exact<16, u32>>,
    v6: Arc<Exact<40, u32>>,
}

impl ExactMatch {
    pub fn new(flows4: &[(FlowKey4, u32)], flows6: &[(FlowKey6, u32)]) -> Result<Self, TableError> {
        let config =
            |limit: usize| ExactConfig::new("flows", limit.max(1), Seed::random()).full_size();
        let mut v4 = Exact::new(&config(flows4.len()))?;
        for (key, hop) in flows4 {
            v4.insert(&key.0, *hop)?;
        }
        let mut v6 = Exact::new(&config(flows6.len()))?;
        for (key, hop) in flows6 {
            v6.insert(&key.0, *hop)?;
        }
        Ok(Self {
            v4: Arc::new(v4),
            v6: Arc::new(v6),
        })
    }
}

impl Lookup for ExactMatch {
    fn find(
        &mut self,
        burst: &Burst,
        parsed: &Parsed,
        v4: Mask,
        v6: Mask,
        numbers: &mut [u32; Burst::CAPACITY],
    ) {
        let count = burst.len();
        if v4 != 0 {
            let mut found = [None; Burst::CAPACITY];
            self.v4
                .lookup_bulk(parsed.keys4_bytes(count), &mut found[..count]);
            for (number, found) in numbers.iter_mut().zip(found) {
                *number = found.unwrap_or(NO_ROUTE);
            }
        }
        if v6 != 0 {
            by_position::<[u8; 40], Option<u32>>(
                v6,
                numbers,
                |at| parsed.keys6[at].0,
                |keys, found| self.v6.lookup_bulk(keys, found),
                |hop| hop.unwrap_or(NO_ROUTE),
            );
        }
    }

    fn share(&self) -> Box<dyn Lookup> {
        Box::new(self.clone())
    }
}

/// First match in an access list.
#[derive(Clone)]
pub struct FirstMatch {
    v4: Arc<Acl<1>>,
    v6: Arc<Acl<4>>,
}

impl FirstMatch {
    /// Of rules in the order in which they win.
    pub fn new(rules4: &[(Match4, u32)], rules6: &[(Match6, u32)]) -> Result<Self, TableError> {
        Ok(Self {
            v4: Arc::new(filled(rules4)?),
            v6: Arc::new(filled(rules6)?),
        })
    }
}

fn filled<const W: usize>(rules: &[(Match<W>, u32)]) -> Result<Acl<W>, TableError> {
    let mut table = Acl::new(AclConfig {
        default: NO_ROUTE,
        ..AclConfig::default()
    })?;
    let rules: Vec<Rule<W>> = (0..)
        .zip(rules)
        .map(|(priority, &(matching, hop))| Rule::new(priority, matching, hop))
        .collect();
    table.insert_all(&rules)?;
    Ok(table)
}

impl Lookup for FirstMatch {
    fn find(
        &mut self,
        burst: &Burst,
        parsed: &Parsed,
        v4: Mask,
        v6: Mask,
        numbers: &mut [u32; Burst::CAPACITY],
    ) {
        let packets = burst.as_packets();
        // Of fragments and broken headers nobody knows the ports.
        let has_upper =
            |at: usize| packets[at].meta().l4_offset != 0 && parsed.class.fragment >> at & 1 == 0;
        if v4 != 0 {
            by_position::<PacketKey4, u32>(
                v4,
                numbers,
                |at| {
                    let key = &parsed.keys4[at];
                    let (src, dst) = ([key.src().to_bits()], [key.dst().to_bits()]);
                    let ports = (key.src_port(), key.dst_port());
                    packet_key(src, dst, ports, key.protocol(), has_upper(at))
                },
                |keys, found| self.v4.classify(keys, found),
                |hop| hop,
            );
        }
        if v6 != 0 {
            by_position::<PacketKey6, u32>(
                v6,
                numbers,
                |at| {
                    let key = &parsed.keys6[at];
                    let (src, dst) = (words6(key.src()), words6(key.dst()));
                    let ports = (key.src_port(), key.dst_port());
                    packet_key(src, dst, ports, key.protocol(), has_upper(at))
                },
                |keys, found| self.v6.classify(keys, found),
                |hop| hop,
            );
        }
    }

    fn share(&self) -> Box<dyn Lookup> {
        Box::new(self.clone())
    }
}

#[inline(always)]
fn packet_key<const W: usize>(
    src: [u32; W],
    dst: [u32; W],
    ports: (u16, u16),
    protocol: u8,
    has_upper: bool,
) -> PacketKey<W> {
    let key = PacketKey::tuple(src, dst, ports, protocol);
    match has_upper {
        true => key,
        false => key.fragment().without_upper(),
    }
}

/// Looks up the packets at the positions of `mask` side by side, and writes what is found to their
/// positions.
#[inline(always)]
fn by_position<K: Copy, F: Copy + Default>(
    mask: Mask,
    numbers: &mut [u32; Burst::CAPACITY],
    key: impl Fn(usize) -> K,
    look_up: impl FnOnce(&[K], &mut [F]),
    number: impl Fn(F) -> u32,
) {
    let positions = || {
        let mut left = mask;
        std::iter::from_fn(move || {
            let position = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (position < Burst::CAPACITY).then_some(position)
        })
    };
    let Some(first) = positions().next() else {
        return;
    };
    let (mut keys, mut found) = (
        [key(first); Burst::CAPACITY],
        [F::default(); Burst::CAPACITY],
    );
    let mut count = 0;
    for (slot, position) in keys.iter_mut().zip(positions()) {
        *slot = key(position);
        count += 1;
    }
    look_up(&keys[..count], &mut found[..count]);
    for (&found, position) in found.iter().zip(positions()) {
        numbers[position] = number(found);
    }
}
