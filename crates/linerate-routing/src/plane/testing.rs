//! A router in a test: two links, a table, and rings in the place of ports.
//!
//! | interface | port | addresses | neighbour |
//! |---|---|---|---|
//! | 0 `wan` | 0 | 192.0.2.1/24, 2001:db8::1/64 | 192.0.2.7, 2001:db8::7: a host |
//! | 1 `lan` | 1 | 198.51.100.1/24, 2001:db8:1::1/64 | 198.51.100.2, 2001:db8:1::2: a router |
//!
//! Routes by what they do: see [`Lab::new`]. Punts go to [`SLOW`].

#![allow(missing_docs, clippy::new_without_default)] // tests alone use it

mod frame;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, PoolConfig, Pools, SlotClass};
use linerate_core::publish::Publisher;
use linerate_core::ring::{Pop, spsc};
use linerate_core::run::doorbell::Doorbell;
use linerate_core::run::{Egress, Stage, TxPath};
use linerate_tables::lpm::{Lpm4Config, Lpm6Config, SharedLpm4, SharedLpm6};
use linerate_tables::rewrite::Macs;
use linerate_wire::MacAddr;

use super::acl::AccessList;
use super::hops::{Action, BUCKETS, Hop, HopChange, HopTable};
use super::punt::{Punt, Reason};
use super::settings::{Interface, PortMap, Settings, Urpf};
use super::{Change, Fast, Setup, Tables};
use crate::model::{Cidr, InterfaceId, Prefix, Vrf};

pub use frame::{Frame, forwarded, udp};

pub const WAN: InterfaceId = InterfaceId(0);
pub const LAN: InterfaceId = InterfaceId(1);
/// The outlet of punts.
pub const SLOW: u16 = 4;
/// Outlets, [`SLOW`] and host interfaces among them.
const OUTLETS: u16 = 8;

/// Our addresses of the link, and those of the neighbours.
pub const WAN_MAC: MacAddr = MacAddr::local(0x10);
pub const LAN_MAC: MacAddr = MacAddr::local(0x11);
pub const HOST_MAC: MacAddr = MacAddr::local(0xa7);
pub const ROUTER_MAC: MacAddr = MacAddr::local(0xa2);

/// What left a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub port: u16,
    pub frame: Vec<u8>,
    /// The punt of what went to [`SLOW`].
    pub punt: Option<Punt>,
}

pub struct Lab {
    pub settings: Settings,
    pub fib4: SharedLpm4,
    pub fib6: SharedLpm6,
    pub hops: Publisher<HopTable, HopChange>,
    next_hop: u32,
    next_group: u32,
    pub egress: Egress,
    takers: Vec<spsc::Consumer<Packet>>,
    pub pool: Pool,
    pub isa: Isa,
    /// The time of the next burst, in ticks.
    pub now: u64,
}

/// An interface as the settings have it, plain.
pub fn interface(name: &str, port: u16, mac: MacAddr, addresses: &[&str]) -> Interface {
    let cidr = |text: &&str| text.parse::<Cidr>().expect("an address in a test");
    Interface {
        name: name.into(),
        port,
        vlan: None,
        vrf: 0,
        mac,
        mtu: 1500,
        addresses: addresses.iter().map(cidr).collect(),
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
    }
}

impl Lab {
    /// The table above, and these routes, in both families (`10.N.0.0/16` is `2001:db8:aN::/48`):
    ///
    /// | N | leads to |
    /// |---|---|
    /// | 1 | the router, by `lan` |
    /// | 2 | the host, by `wan` |
    /// | 3 | a gateway on `lan` whose MAC address is not known |
    /// | 4, 5, 6 | blackhole, unreachable, prohibit |
    /// | 7 | either, evenly |
    pub fn new() -> Self {
        Self::with_flat(0)
    }

    /// The same with a flat and a direct array for so many VRFs.
    pub fn with_flat(flat_vrfs: u32) -> Self {
        let wan = interface(
            "wan",
            0,
            WAN_MAC,
            &["192.0.2.1/24", "2001:db8::1/64", "fe80::10/64"],
        );
        let lan = interface(
            "lan",
            1,
            LAN_MAC,
            &["198.51.100.1/24", "2001:db8:1::1/64", "fe80::11/64"],
        );
        let ports = [WAN, LAN].map(|id| PortMap {
            untagged: Some(id),
            vlans: Vec::new(),
        });
        let settings = Settings {
            interfaces: vec![wan, lan],
            ports: ports.into(),
            acls: Vec::new(),
        };
        let pool = Pool::new(&PoolConfig::new("lab", 4096)).expect("memory for a test");
        let large = PoolConfig {
            class: SlotClass::Large,
            ..PoolConfig::new("large", 16)
        };
        let large = Pool::new(&large).expect("memory for a test");
        let pools = Pools::new(vec![pool.clone(), large]);
        let mut egress = Egress::new(PoolCache::new(pools.as_slice()));
        let mut takers = Vec::new();
        for port in 0..OUTLETS {
            let (putter, taker) = spsc::ring(1024);
            let bell = Arc::new(Doorbell::new().expect("a descriptor for a test"));
            egress.set_outlet(port, Some(TxPath::Ring(putter, bell)));
            takers.push(taker);
        }
        let vrfs = 2;
        let lpm4 = Lpm4Config {
            vrfs,
            flat_vrfs,
            ..Lpm4Config::default()
        };
        let lpm6 = Lpm6Config {
            vrfs,
            direct_vrfs: flat_vrfs,
            routes: 1000,
            ..Lpm6Config::default()
        };
        let mut lab = Self {
            settings,
            fib4: SharedLpm4::new(&lpm4).expect("memory for a test"),
            fib6: SharedLpm6::new(&lpm6).expect("memory for a test"),
            hops: Publisher::new(HopTable::new(0)).expect("memory for a test"),
            next_hop: 0,
            next_group: 0,
            egress,
            takers,
            pool,
            isa: Isa::detect(),
            now: 1,
        };
        lab.connect(0);
        lab
    }

    /// The routes of the table, in a VRF.
    fn connect(&mut self, vrf: Vrf) {
        let at = |id: InterfaceId, action| Hop {
            interface: id.into(),
            port: id.0,
            mtu: 1500,
            action,
            ..Hop::default()
        };
        for (id, networks, own, broadcast) in [
            (
                WAN,
                ["192.0.2.0/24", "2001:db8::/64"],
                ["192.0.2.1/32", "2001:db8::1/128"],
                "192.0.2.255/32",
            ),
            (
                LAN,
                ["198.51.100.0/24", "2001:db8:1::/64"],
                ["198.51.100.1/32", "2001:db8:1::1/128"],
                "198.51.100.255/32",
            ),
        ] {
            let glean = self.hop(at(id, Action::Glean));
            let local = self.hop(at(id, Action::Local));
            let everybody = self.hop(at(id, Action::Broadcast));
            for (network, own) in networks.into_iter().zip(own) {
                self.route(vrf, network, glean);
                self.route(vrf, own, local);
            }
            self.route(vrf, broadcast, everybody);
        }
        let to_host = self.hop(Self::forward(WAN, "192.0.2.7"));
        let to_host6 = self.hop(Self::forward(WAN, "2001:db8::7"));
        let to_router = self.hop(Self::forward(LAN, "198.51.100.2"));
        let to_router6 = self.hop(Self::forward(LAN, "2001:db8:1::2"));
        let resolve = |gateway: &str| Hop {
            gateway: mapped(gateway),
            ..at(LAN, Action::Resolve)
        };
        let resolving = self.hop(resolve("198.51.100.3"));
        let resolving6 = self.hop(resolve("2001:db8:1::3"));
        let only = |action| Hop {
            action,
            ..Hop::default()
        };
        let others = [Action::Blackhole, Action::Unreachable, Action::Prohibit]
            .map(|action| self.hop(only(action)));
        let either = self.group(&[to_host, to_router], false);
        let either6 = self.group(&[to_host6, to_router6], false);
        let hops = [
            (1, to_router, to_router6),
            (2, to_host, to_host6),
            (3, resolving, resolving6),
            (4, others[0], others[0]),
            (5, others[1], others[1]),
            (6, others[2], others[2]),
            (7, either, either6),
        ];
        for (number, hop4, hop6) in hops {
            self.route(vrf, &format!("10.{number}.0.0/16"), hop4);
            self.route(vrf, &format!("2001:db8:a{number}::/48"), hop6);
        }
        // Known neighbours have routes of their own.
        self.route(vrf, "192.0.2.7/32", to_host);
        self.route(vrf, "2001:db8::7/128", to_host6);
        self.route(vrf, "198.51.100.2/32", to_router);
        self.route(vrf, "2001:db8:1::2/128", to_router6);
    }

    /// A hop by a neighbour of the table.
    pub fn forward(id: InterfaceId, gateway: &str) -> Hop {
        let (src, dst) = match id {
            WAN => (WAN_MAC, HOST_MAC),
            _ => (LAN_MAC, ROUTER_MAC),
        };
        Hop {
            macs: Macs::new(dst, src),
            mtu: 1500,
            port: id.0,
            interface: id.into(),
            action: Action::Forward,
            gateway: mapped(gateway),
            ..Hop::default()
        }
    }

    /// Adds a hop; returns its number.
    pub fn hop(&mut self, hop: Hop) -> u32 {
        self.hops.push(HopChange::Set(self.next_hop, hop));
        self.next_hop += 1;
        self.next_hop - 1
    }

    /// Adds a group of these members, in turn; returns the number of the hop that leads to it,
    /// which is that of default routes, or not.
    pub fn group(&mut self, members: &[u32], is_default: bool) -> u32 {
        let buckets: [u32; BUCKETS] = std::array::from_fn(|at| members[at % members.len()]);
        let group = self.next_group;
        self.next_group += 1;
        self.hops
            .push(HopChange::SetGroup(group, Box::new(buckets)));
        self.hop(Hop {
            action: Action::Multipath,
            is_default,
            group,
            ..Hop::default()
        })
    }

    /// Adds a route, or gives one another hop.
    pub fn route(&mut self, vrf: Vrf, prefix: &str, hop: u32) {
        let cidr: Cidr = prefix.parse().expect("a prefix in a test");
        match cidr.network() {
            Prefix::V4(prefix) => drop(self.fib4.insert(vrf, prefix, hop).expect("room")),
            Prefix::V6(prefix) => drop(self.fib6.insert(vrf, prefix, hop).expect("room")),
        }
    }

    pub fn tables(&mut self) -> Tables {
        // Hops before the routes that lead to them.
        self.hops.publish_on_copy().expect("memory for a test");
        self.fib4.publish_on_copy().expect("memory for a test");
        self.fib6.publish_on_copy().expect("memory for a test");
        Tables {
            fib4: self.fib4.reader(),
            fib6: self.fib6.reader(),
            hops: self.hops.reader(),
        }
    }

    pub fn setup(&mut self) -> Setup {
        Setup {
            settings: Arc::new(self.settings.clone()),
            tables: self.tables(),
            clock: Clock::monotonic("a test"),
            isa: self.isa,
            slow: SLOW,
            punts: Default::default(),
            queues: 1,
            mesh: Default::default(),
        }
    }

    pub fn fast(&mut self) -> Fast {
        let setup = self.setup();
        Fast::router(setup, &mut self.egress)
    }

    /// Gives a worker other settings, as control does.
    pub fn reload(&mut self, fast: &mut Fast, settings: Settings) {
        let old = fast.settings.clone();
        let change = Change::new(Arc::new(settings), &old, &fast.counters(), 1);
        let had = fast.install(change, &mut self.egress);
        assert!(Arc::ptr_eq(&had.settings, &old), "what it had comes back");
    }

    /// A packet with these bytes.
    pub fn packet(&mut self, frame: &[u8]) -> Packet {
        let cache = &mut self.egress.cache;
        let mut packet = cache.get(&self.pool).expect("the pool is large enough");
        assert!(packet.set_data(frame), "a frame fits its slot");
        packet
    }

    /// The longest frame that [`packet`](Self::packet) takes, in bytes.
    pub fn room_bytes(&self) -> usize {
        self.pool.room_bytes()
    }

    /// Moves what waits for [`SLOW`] into the room of a burst.
    pub fn take_punts(&mut self, punts: &mut Burst) {
        self.egress.flush();
        while punts.len() < Burst::CAPACITY
            && let Some(packet) = self.takers[usize::from(SLOW)].pop()
        {
            punts.push(packet).expect("a burst with room");
        }
    }

    /// Slots of all pools.
    pub fn all_slots(&self) -> u32 {
        self.egress.cache.pools().map(|pool| pool.slots()).sum()
    }

    /// Free slots of all pools.
    pub fn free_slots(&mut self) -> u32 {
        self.left();
        let shared = self
            .egress
            .cache
            .pools()
            .map(|pool| pool.stats().free_shared);
        shared.sum::<u32>() + self.egress.cache.held_total() as u32
    }

    /// Runs frames that come in by a port through a stage as one burst; returns what left, by port.
    pub fn run(&mut self, stage: &mut impl Stage, port: u16, frames: &[Vec<u8>]) -> Vec<Left> {
        let packets = frames.iter().map(|frame| self.packet(frame)).collect();
        self.run_packets(stage, port, packets)
    }

    pub fn run_packets(
        &mut self,
        stage: &mut impl Stage,
        port: u16,
        packets: Vec<Packet>,
    ) -> Vec<Left> {
        let mut burst = Burst::new();
        (burst.port, burst.now) = (port, self.now);
        for packet in packets {
            burst.push(packet).expect("at most a burst");
        }
        stage.run(&mut burst, &mut (), &mut self.egress);
        assert!(burst.is_empty(), "a stage leaves nothing");
        accounted(stage);
        self.left()
    }

    /// What has left since the last look.
    pub fn left(&mut self) -> Vec<Left> {
        self.egress.flush();
        let mut left = Vec::new();
        for (port, taker) in (0..).zip(&mut self.takers) {
            while let Some(packet) = taker.pop() {
                left.push(Left {
                    port,
                    frame: packet.data().to_vec(),
                    punt: (port == SLOW).then(|| packet.user()),
                });
            }
        }
        left
    }

    /// What was dropped so far, by reason.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        let drops = self.egress.drop_counts();
        let drops = drops.lock().expect("nobody panicked");
        let counts = drops
            .iter()
            .map(|(name, count)| (name.clone(), count.read()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Has a list judge what comes in by `wan`; the reason of its drops is `acl_in.` and its name.
    pub fn judge(&mut self, list: Arc<AccessList>) {
        self.settings.acls = vec![list];
        self.settings.interfaces[0].acl_in = Some(0);
    }

    /// Gives a route by the router on `lan` an MTU.
    pub fn narrow(&mut self, prefix: &str, mtu: u16) {
        let gateway = match prefix.contains(':') {
            true => "2001:db8:1::2",
            false => "198.51.100.2",
        };
        let hop = self.hop(Hop {
            mtu,
            ..Self::forward(LAN, gateway)
        });
        self.route(0, prefix, hop);
    }

    /// Runs a frame of `wan` that must not be dropped; returns what left.
    #[track_caller]
    pub fn passes(&mut self, frame: &[u8]) -> Vec<Left> {
        let (left, drops) = self.one(0, frame);
        assert!(drops.is_empty(), "{drops:?}");
        left
    }

    /// The same for a frame that must leave by `lan`, with its time to live decremented and
    /// otherwise unchanged.
    #[track_caller]
    pub fn forwards(&mut self, frame: &[u8]) {
        let left = self.passes(frame);
        let expected = Left {
            port: 1,
            frame: forwarded(frame.to_vec(), ROUTER_MAC, LAN_MAC),
            punt: None,
        };
        assert_eq!(left, [expected]);
    }

    /// The same for a frame that must go to the slow worker unchanged.
    #[track_caller]
    pub fn punts(&mut self, frame: &[u8], reason: Reason) {
        let left = self.passes(frame);
        let punt = Punt {
            reason,
            interface: WAN,
            ..Punt::default()
        };
        let expected = Left {
            port: SLOW,
            frame: frame.to_vec(),
            punt: Some(punt),
        };
        assert_eq!(left, [expected]);
    }

    /// Runs a frame of `wan` that must be dropped for a reason; returns the answers.
    #[track_caller]
    pub fn refuses(&mut self, frame: &[u8], reason: &str) -> Vec<Left> {
        let (left, drops) = self.one(0, frame);
        assert_eq!(drops, [(reason.to_string(), 1)].into(), "{left:?}");
        left
    }

    /// The same without an answer.
    #[track_caller]
    pub fn ignores(&mut self, frame: &[u8], reason: &str) {
        let left = self.refuses(frame, reason);
        assert!(left.is_empty(), "{left:?}");
    }

    /// Runs one frame through a fresh stage; what left, and the drops.
    pub fn one(&mut self, port: u16, frame: &[u8]) -> (Vec<Left>, BTreeMap<String, u64>) {
        let before = self.drops();
        let mut fast = self.fast();
        let left = self.run(&mut fast, port, &[frame.to_vec()]);
        let mut drops = self.drops();
        for (name, count) in before {
            let now = drops.entry(name).or_default();
            *now -= count;
        }
        drops.retain(|_, count| *count > 0);
        (left, drops)
    }
}

/// Checks that every stage has accounted for all its packets.
#[track_caller]
pub fn accounted(stage: &mut dyn Stage) {
    stage.points(&mut |point| assert_eq!(point.unaccounted, 0, "at {}", point.name));
}

/// An address of either family as a hop has it.
pub fn mapped(text: &str) -> [u8; 16] {
    match text.parse().expect("an address in a test") {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// How many were dropped for a reason.
pub fn count(drops: &BTreeMap<String, u64>, reason: &str) -> u64 {
    drops.get(reason).copied().unwrap_or(0)
}
