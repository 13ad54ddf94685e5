//! A routing table with a worker that reads it, for tests of feeds.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linerate_core::publish::Reader;
use linerate_tables::lpm::{Fib4, Fib6};
use linerate_wire::MacAddr;

use super::*;
use crate::model::Cidr;
use crate::plane::hops::{Action, Hop};
use crate::plane::settings::{Interface, Urpf};

pub(crate) const WAN: InterfaceId = InterfaceId(0);
pub(crate) const LAN: InterfaceId = InterfaceId(1);

pub(crate) fn interface(id: InterfaceId, vrf: Vrf) -> Interface {
    Interface {
        name: format!("if{}", id.0),
        port: id.0,
        vlan: None,
        vrf,
        mac: MacAddr::local(id.0 as u8),
        mtu: 1500,
        addresses: Vec::new(),
        verified: Vec::new(),
        host_interface: None,
        urpf: Urpf::Off,
        proxy: false,
        answered: Vec::new(),
        redirects: false,
        reassemble: false,
        acl_in: None,
        acl_out: None,
        policer: None,
        advertise: None,
    }
}

pub(crate) fn small() -> Config {
    Config {
        routes: 1000,
        neighbours: 100,
        vrfs: 2,
        ..Config::default()
    }
}

/// A table and a worker.
pub(crate) struct Bench {
    pub(crate) rib: Rib,
    pub(crate) fib4: Reader<Fib4>,
    fib6: Reader<Fib6>,
    pub(crate) hops: Reader<HopTable>,
}

impl Bench {
    /// Two interfaces that are up: wan 192.0.2.1/24 and 2001:db8:1::1/64, lan 10.0.0.1/24.
    pub(crate) fn new() -> Self {
        let mut bench = Self::empty(&small());
        for id in [WAN, LAN] {
            bench.rib.set_interface(id, Some(&interface(id, 0)));
            bench.rib.interface_state(id, true);
        }
        let wan = ["192.0.2.1/24", "2001:db8:1::1/64"].map(cidr);
        bench.rib.addresses(WAN, &wan);
        bench.rib.addresses(LAN, &[cidr("10.0.0.1/24")]);
        bench.commit();
        bench
    }

    pub(crate) fn empty(config: &Config) -> Self {
        let rib = Rib::new(config).unwrap();
        let (fib4, fib6, hops) = rib.readers();
        Self {
            rib,
            fib4,
            fib6,
            hops,
        }
    }

    /// Commits until everything is published; the worker looks whenever it blocks a publication.
    pub(crate) fn commit(&mut self) {
        loop {
            match self.rib.commit() {
                Progress::Done => break,
                Progress::More => {}
                Progress::Blocked => self.look(),
            }
        }
        self.look();
    }

    /// Gives the worker the current tables.
    pub(crate) fn look_elsewhere(&mut self) {
        (self.fib4, self.fib6, self.hops) = self.rib.readers();
    }

    fn look(&mut self) {
        self.fib4.read();
        self.fib6.read();
        self.hops.read();
    }

    pub(crate) fn add(&mut self, prefix_: &str, source: Source, to: &To) {
        self.rib
            .insert(0, prefix(prefix_), Key::of(source, 0), to)
            .unwrap();
    }

    pub(crate) fn del(&mut self, prefix_: &str, source: Source) {
        assert!(self.rib.remove(0, prefix(prefix_), Key::of(source, 0)));
    }

    pub(crate) fn number(&mut self, vrf: Vrf, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => self.fib4.read().lookup(vrf, v4.into()),
            IpAddr::V6(v6) => self.fib6.read().lookup(vrf, v6.octets()),
        }
    }

    pub(crate) fn hop_in(&mut self, vrf: Vrf, address: &str) -> Option<Hop> {
        let number = self.number(vrf, address.parse().unwrap())?;
        Some(*self.hops.read().get(number))
    }

    pub(crate) fn hop(&mut self, address: &str) -> Hop {
        self.hop_in(0, address).expect("a route")
    }

    pub(crate) fn action(&mut self, address: &str) -> Option<Action> {
        self.hop_in(0, address).map(|hop| hop.action)
    }

    /// The route that packets to an address follow.
    pub(crate) fn route_to(&self, address: IpAddr) -> Option<Shown> {
        let routes = self.rib.show(0, Prefix::host(address));
        routes.filter(|route| route.used == Use::Best).last()
    }

    /// How many buckets lead to each gateway.
    pub(crate) fn shares(&mut self, address: &str) -> Vec<(IpAddr, usize)> {
        let hop = self.hop(address);
        assert_eq!(hop.action, Action::Multipath);
        let hops = self.hops.read();
        let mut shares: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for &member in hops.members(hop.group) {
            let member = hops.get(member);
            *shares.entry(gateway(member)).or_default() += 1;
        }
        shares.into_iter().collect()
    }

    pub(crate) fn why(&self, prefix_: &str) -> Use {
        let mut shown = self.rib.show(0, prefix(prefix_));
        let is = |route: &Shown| route.prefix == prefix(prefix_) && route.key.source.is_fed();
        shown.find(is).expect("the route is kept").used
    }
}

pub(crate) fn gateway(hop: &Hop) -> IpAddr {
    std::net::Ipv6Addr::from(hop.gateway).to_canonical()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

pub(crate) fn prefix(text: &str) -> Prefix {
    cidr(text).network()
}

pub(crate) fn via(gateway: &str) -> NextHop {
    NextHop {
        gateway: Some(ip(gateway)),
        interface: None,
        weight: 1,
    }
}

pub(crate) fn to(gateways: &[&str]) -> To {
    To::NextHops(gateways.iter().map(|gateway| via(gateway)).collect())
}
