//! The router's fast worker on one core, between two looping captures of 64-byte frames, each
//! copied: the table and the destinations of `l3fwd.lpm.1m`, all checks on, redirects among them.

use std::sync::{Arc, PoisonError};

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Pool, PoolCache, PoolConfig};
use linerate_core::publish::Publisher;
use linerate_core::run::Egress;
use linerate_tables::lpm::synth::destinations;
use linerate_tables::lpm::{Lpm4, Lpm4Config, Lpm6Config, Prefix4, SharedLpm4, SharedLpm6};
use linerate_tables::rewrite::Macs;
use linerate_wire::{FlowKey4, MacAddr};

use super::forward::between;
use super::l3fwd::{Captures, FULL, Frame, Routes, frame};
use super::random::mixed;
use super::{Row, Run, Sample};
use linerate_appliance::error::Error;
use linerate_routing::model::{Cidr, InterfaceId};
use linerate_routing::plane::hops::{Action, Hop, HopChange, HopTable};
use linerate_routing::plane::settings::{Interface, PortMap, Settings, Urpf};
use linerate_routing::plane::{Fast, Setup, Tables};

pub const ROWS: &[Row] = &[Row {
    name: "router.ip4.1m",
    about: "route by a million routes to 1000 next hops, all checks on, by Zipf's law",
    run: route,
}];

/// The MAC address of both interfaces, to which the frames are sent.
const OURS: MacAddr = MacAddr::local(9);

/// Routing tables, and who writes them.
pub struct Written {
    fib4: SharedLpm4,
    fib6: SharedLpm6,
    hops: Publisher<HopTable, HopChange>,
}

impl Written {
    /// Tables with these IPv4 routes, and next hops by their numbers.
    pub fn new(
        routes: &[(Prefix4, u32)],
        next_hops: impl Iterator<Item = Hop>,
    ) -> Result<Self, Error> {
        let mut table = Lpm4::new(&Lpm4Config {
            flat_vrfs: 1,
            ..Lpm4Config::default()
        })?;
        for &(prefix, hop) in routes {
            table.insert(0, prefix, hop)?;
        }
        let mut hops = Publisher::new(HopTable::new(0))?;
        for (number, hop) in (0..).zip(next_hops) {
            hops.push(HopChange::Set(number, hop));
        }
        assert!(hops.publish(), "it has no reader yet");
        Ok(Self {
            fib4: table.share()?,
            fib6: SharedLpm6::new(&Lpm6Config {
                routes: 1000,
                ..Lpm6Config::default()
            })?,
            hops,
        })
    }

    /// What a worker's stage with these tables and settings is made of.
    pub fn setup(&self, settings: Settings, clock: Clock) -> Setup {
        Setup {
            settings: Arc::new(settings),
            tables: Tables {
                fib4: self.fib4.reader(),
                fib6: self.fib6.reader(),
                hops: self.hops.reader(),
            },
            clock,
            isa: Isa::detect(),
            slow: 2,
            punts: Default::default(),
            queues: 1,
            mesh: Default::default(),
        }
    }
}

/// Two plain interfaces in networks of their own.
pub fn two_links() -> Settings {
    settings([[192, 0, 2, 1], [192, 0, 3, 1]], 24)
}

fn route(row: &'static str, run: Run) -> Result<Sample, Error> {
    let routes = FULL.table();
    let written = Written::new(&routes, (0..FULL.next_hops).map(next_hop))?;
    let captures = captures(&FULL, &routes)?;
    let pool = Pool::new(&PoolConfig::new("bench", 8192))?;
    let pages = pool.page_kind();
    let mut egress = Egress::new(PoolCache::new(std::slice::from_ref(&pool)));
    let clock = Clock::calibrate();
    let stage = Fast::router(written.setup(two_links(), clock), &mut egress);
    let drops = egress.drop_counts();
    let specs = captures.specs();
    let mpps = run.pinned(move |run| between(run, &specs, pool, stage, egress))??;
    drop(captures);
    let drops = drops.lock().unwrap_or_else(PoisonError::into_inner);
    let dropped: u64 = drops.iter().map(|(_, count)| count.read()).sum();
    Ok(Sample::new(row, mpps, "Mpps", pages)
        .with("cycles", clock.hz() / 1e6 / mpps)
        .with("routes", routes.len())
        .with("next_hops", FULL.next_hops)
        .with("dropped", dropped))
}

/// As the peer's and l3fwd's: the port is the lowest bit.
fn next_hop(number: u32) -> Hop {
    hop(number, number as u16 & 1)
}

/// A neighbour on the link of a port.
pub fn hop(number: u32, port: u16) -> Hop {
    let [.., a, b] = number.to_be_bytes();
    Hop {
        macs: Macs::new(MacAddr([2, 0, 0, 1, a, b]), OURS),
        mtu: 1500,
        port,
        interface: InterfaceId(port).into(),
        action: Action::Forward,
        ..Hop::default()
    }
}

/// The captures that both ports play.
pub fn captures(what: &Routes, routes: &[(Prefix4, u32)]) -> Result<Captures, Error> {
    let addresses = destinations(routes, what.pattern, what.frames, 2);
    Captures::temporary((0..).zip(addresses).map(|(number, dst)| asks(number, dst)))
}

/// The `number`-th frame, from an address of 11.0.0.0 to 74.255.255.255, a range without martians.
pub fn asks(number: u64, dst: u32) -> Frame {
    let (src, ports) = (0x0b00_0000 + (mixed(number) as u32 >> 2), mixed(!number));
    frame(&FlowKey4::new(
        src.to_be_bytes(),
        dst.to_be_bytes(),
        ports as u16,
        (ports >> 16) as u16,
        17,
    ))
}

/// Two plain interfaces, each on the port of its number, with an address each.
pub fn settings(addresses: [[u8; 4]; 2], len: u8) -> Settings {
    let interface = |port: u16| Interface {
        name: ["a", "b"][usize::from(port)].into(),
        port,
        vlan: None,
        vrf: 0,
        mac: OURS,
        mtu: 1500,
        addresses: vec![Cidr {
            address: addresses[usize::from(port)].into(),
            len,
        }],
        verified: Vec::new(),
        host_interface: None,
        urpf: Urpf::Off,
        proxy: false,
        answered: Vec::new(),
        redirects: true,
        reassemble: false,
        acl_in: None,
        acl_out: None,
        policer: None,
        advertise: None,
    };
    let untagged = |port| PortMap {
        untagged: Some(InterfaceId(port)),
        vlans: Vec::new(),
    };
    Settings {
        interfaces: vec![interface(0), interface(1)],
        ports: vec![untagged(0), untagged(1)],
        acls: Vec::new(),
    }
}
