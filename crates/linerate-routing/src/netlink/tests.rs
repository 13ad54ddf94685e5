//! In a network name space of its own: host interfaces made and changed, and what the kernel says
//! about them. Without root they are skipped.

use std::time::{Duration, Instant};

use linerate_drivers::Own;

use super::*;
use crate::model::InterfaceId;
use crate::plane::hops::Action;
use crate::rib::testing::{Bench, cidr, gateway, ip};
use linerate_appliance::netlink::host_interface::{Attributes, Kernel};
use linerate_appliance::netns::{Space, ip as command};

/// A name space with a TAP `lr-wan`, and a router that watches it.
struct Stand {
    space: Space,
    bench: Bench,
    mirror: Mirror,
    kernel: Kernel,
    events: Vec<NetlinkEvent>,
}

const WAN: InterfaceId = InterfaceId(0);

impl Stand {
    /// `None` where that is not permitted.
    fn new() -> Option<Self> {
        Self::with_room(EVENT_BYTES)
    }

    /// With a socket that has room for so many bytes of events.
    fn with_room(room: usize) -> Option<Self> {
        let space = match Space::new() {
            Ok(space) => space,
            Err(error) => {
                linerate_testkit::skip(&format!("netlink in a name space: {error}"));
                return None;
            }
        };
        let host_interfaces =
            "tuntap add lr-wan mode tap\ntuntap add other mode tap\nlink set other up\n";
        if let Err(error) = space.within(|| command(host_interfaces)) {
            linerate_testkit::skip(&format!("netlink in a name space: {error}"));
            return None;
        }
        let watch = || {
            Ok((
                Mirror::watch_with(&Own, None, room, || {})?,
                Kernel::open(None)?,
            ))
        };
        let (mut mirror, kernel) = space.within(watch).unwrap();
        let mut bench = Bench::new();
        mirror.feed.set_tables([(254, 0), (10, 1)]);
        let mut events = Vec::new();
        mirror.set_host_interfaces(&mut bench.rib, [("lr-wan".into(), WAN)], [], &mut events);
        let mut stand = Self {
            space,
            bench,
            mirror,
            kernel,
            events,
        };
        stand.until(|stand| stand.events.contains(&NetlinkEvent::Synchronised));
        Some(stand)
    }

    fn ip(&self, lines: &str) {
        self.space.within(|| command(lines)).unwrap();
    }

    fn until(&mut self, done: impl Fn(&mut Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            while self.mirror.poll(&mut self.bench.rib, &mut self.events) {}
            self.bench.commit();
            if done(self) {
                return;
            }
            assert!(Instant::now() < deadline, "{:?}", self.events);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn last_addresses(&self) -> Vec<Cidr> {
        let all = self.events.iter().rev().find_map(|event| match event {
            NetlinkEvent::Addresses(WAN, all) => Some(all.clone()),
            _ => None,
        });
        all.unwrap_or_default()
    }

    fn attributes(&self) -> Attributes {
        Attributes {
            mac: MacAddr([2, 0, 0, 0, 7, 7]),
            mtu: 1400,
            up: true,
            addresses: vec![cidr("192.0.2.1/24")],
        }
    }
}

#[test]
fn without_carrier_a_host_interface_keeps_what_it_has() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let like = stand.attributes();
    let index = stand.kernel.mirror("lr-wan", &like).unwrap();
    let link = stand.kernel.link("lr-wan").unwrap().unwrap();
    stand.kernel.set_carrier(&link, false).unwrap();
    let link = stand.kernel.link("lr-wan").unwrap().unwrap();
    assert_eq!((link.up, link.carrier), (true, false));
    assert_eq!(stand.kernel.addresses(index).unwrap(), like.addresses);
}

#[test]
fn a_host_interface_is_made_alike_and_the_others_are_left_alone() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let other = stand.kernel.link("other").unwrap().unwrap();
    let like = stand.attributes();
    let index = stand.kernel.mirror("lr-wan", &like).unwrap();
    let link = stand.kernel.link("lr-wan").unwrap().unwrap();
    assert_eq!((link.index, link.up, link.mtu), (index, true, 1400));
    assert_eq!(link.mac, Some(like.mac));
    assert_eq!(stand.kernel.addresses(index).unwrap(), like.addresses);
    // A repetition changes nothing.
    assert_eq!(stand.kernel.mirror("lr-wan", &like).unwrap(), index);
    stand.kernel.add_address(&link, like.addresses[0]).unwrap();
    stand.until(|stand| stand.last_addresses() == [cidr("192.0.2.1/24")]);
    let host_interface = |event: &NetlinkEvent| {
        matches!(event, NetlinkEvent::HostInterface(WAN,
        link) if link.up && link.mtu == 1400)
    };
    assert!(
        stand.events.iter().any(host_interface),
        "{:?}",
        stand.events
    );
    stand
        .kernel
        .remove_address("lr-wan", like.addresses[0])
        .unwrap();
    stand
        .kernel
        .remove_address("lr-wan", like.addresses[0])
        .unwrap();
    stand.until(|stand| stand.last_addresses().is_empty());
    assert_eq!(stand.kernel.link("other").unwrap().unwrap(), other);
    let error = stand.kernel.mirror("nobody", &like).unwrap_err();
    assert!(error.to_string().contains("nobody"));
    let error = stand
        .kernel
        .set_mtu(&link, 1 << 20)
        .unwrap_err()
        .to_string();
    assert!(error.contains("lr-wan") && error.contains("MTU"), "{error}");
}

#[test]
fn the_kernels_routes_by_host_interfaces_are_followed() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let like = stand.attributes();
    stand.kernel.mirror("lr-wan", &like).unwrap();
    stand.ip("address add 10.9.9.1/24 dev other\n\
         route add 198.51.100.0/24 via 192.0.2.2\n\
         route add 198.51.101.0/24 via 10.9.9.9\n\
         route add blackhole 198.51.102.0/24\n\
         route add 203.0.113.0/24 via 192.0.2.3 metric 5\n\
         route add 203.0.113.0/24 via 192.0.2.4 metric 6\n\
         neighbour add 192.0.2.9 lladdr 02:00:00:00:00:09 dev lr-wan\n");
    stand.until(|stand| stand.bench.action("203.0.113.1").is_some());
    stand.until(|stand| {
        stand
            .events
            .iter()
            .any(|event| matches!(event, NetlinkEvent::Pinned(..)))
    });
    assert_eq!(gateway(&stand.bench.hop("198.51.100.1")), ip("192.0.2.2"));
    // `other` is a virtual device: the kernel forwards what leads there.
    assert_eq!(stand.bench.action("198.51.101.1"), Some(Action::Host));
    assert_eq!(stand.bench.action("10.9.9.2"), Some(Action::Host));
    assert_eq!(stand.bench.action("198.51.102.1"), Some(Action::Blackhole));
    assert_eq!(gateway(&stand.bench.hop("203.0.113.1")), ip("192.0.2.3"));
    stand.ip("route delete 203.0.113.0/24 metric 5\n");
    stand.until(|stand| gateway(&stand.bench.hop("203.0.113.1")) == ip("192.0.2.4"));
    let pinned = NetlinkEvent::Pinned(WAN, ip("192.0.2.9"), Some(MacAddr::local(9)));
    assert!(stand.events.contains(&pinned));
    stand.ip("neighbour delete 192.0.2.9 dev lr-wan\n");
    let unpinned = NetlinkEvent::Pinned(WAN, ip("192.0.2.9"), None);
    stand.until(|stand| stand.events.contains(&unpinned));
}

#[test]
fn next_hop_objects_of_the_kernel() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let like = stand.attributes();
    stand.kernel.mirror("lr-wan", &like).unwrap();
    let objects = "nexthop add id 7 via 192.0.2.7 dev lr-wan\n\
                   nexthop add id 8 via 192.0.2.8 dev lr-wan\n\
                   nexthop add id 9 group 7/8,3\n\
                   route add 198.51.100.0/24 nhid 9\n";
    if let Err(error) = stand.space.within(|| command(objects)) {
        linerate_testkit::skip(&format!("next-hop objects: {error}"));
        return;
    }
    stand.until(|stand| stand.bench.action("198.51.100.1") == Some(Action::Multipath));
    let shares = stand.bench.shares("198.51.100.1");
    assert_eq!(shares, [(ip("192.0.2.7"), 16), (ip("192.0.2.8"), 48)]);
    stand.ip("nexthop replace id 7 via 192.0.2.17 dev lr-wan\n");
    stand.until(|stand| stand.bench.shares("198.51.100.1")[0].0 != ip("192.0.2.7"));
    assert_eq!(stand.bench.shares("198.51.100.1")[0].0, ip("192.0.2.8"));
}

#[test]
fn a_host_interface_is_deleted_and_made_again() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let like = stand.attributes();
    stand.kernel.mirror("lr-wan", &like).unwrap();
    stand.ip("route add 198.51.100.0/24 via 192.0.2.2\n");
    stand.until(|stand| stand.bench.action("198.51.100.1").is_some());
    stand.ip("link delete lr-wan\n");
    stand.until(|stand| stand.events.contains(&NetlinkEvent::HostInterfaceGone(WAN)));
    stand.events.clear();
    stand.ip("tuntap add lr-wan mode tap\n");
    stand.kernel.mirror("lr-wan", &like).unwrap();
    stand.until(|stand| stand.last_addresses() == [cidr("192.0.2.1/24")]);
}

#[test]
fn what_happened_during_a_loss_is_found_out() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let like = stand.attributes();
    stand.kernel.mirror("lr-wan", &like).unwrap();
    stand.ip("route add 198.51.100.0/24 via 192.0.2.2\nroute add 198.51.101.0/24 via 192.0.2.2\n");
    stand.until(|stand| stand.bench.action("198.51.101.1").is_some());
    // As if these two events had been lost.
    let events = &mut stand.events;
    stand
        .mirror
        .learn(&mut stand.bench.rib, Fact::Overrun, events);
    stand
        .mirror
        .learn(&mut stand.bench.rib, Fact::Begin, events);
    let link = stand.kernel.link("lr-wan").unwrap().unwrap();
    let index = link.index;
    for fact in [
        Fact::Link(link),
        Fact::Address(index, cidr("192.0.2.1/24")),
        Fact::Said(super::super::feed::Said::Route {
            table: 254,
            prefix: cidr("198.51.100.0/24").network(),
            metric: 0,
            to: super::super::feed::Told::NextHop(super::super::feed::ToldNextHop {
                gateway: Some(ip("192.0.2.2")),
                index,
                weight: 1,
                encapsulated: false,
            }),
            protocol: 4,
        }),
    ] {
        stand
            .mirror
            .learn(&mut stand.bench.rib, fact, &mut stand.events);
        stand.bench.commit();
        assert_eq!(stand.bench.action("198.51.101.1"), Some(Action::Resolve));
    }
    stand.mirror.learn(
        &mut stand.bench.rib,
        Fact::End { asked: false },
        &mut stand.events,
    );
    stand.bench.commit();
    assert_eq!(stand.bench.action("198.51.100.1"), Some(Action::Resolve));
    assert_eq!(stand.bench.action("198.51.101.1"), None);
    assert_eq!(stand.mirror.counts.overruns, 1);
}

#[test]
fn after_lost_events_all_state_is_read_again() {
    let Some(mut stand) = Stand::with_room(1) else {
        return;
    };
    let like = stand.attributes();
    stand.kernel.mirror("lr-wan", &like).unwrap();
    // More than the queue to control holds, while control does not read.
    let route = |net: u32| format!("route add 172.16.{net}.0/24 via 192.0.2.2\n");
    let routes: String = (0..250).map(route).collect();
    stand.ip(&routes);
    stand.until(|stand| stand.bench.rib.counts().routes[0] == 250);
    stand.until(|stand| stand.mirror.counts.overruns > 0);
    assert!(stand.events.contains(&NetlinkEvent::Overrun));
    assert_eq!(gateway(&stand.bench.hop("172.16.249.1")), ip("192.0.2.2"));
}

/// Addresses on `lo`, where FRR's users put them, are the machine's own; those of other interfaces
/// are ignored.
#[test]
fn addresses_on_the_loopback_are_the_routers_own() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let last = |stand: &Stand| {
        let told = stand.events.iter().rev().find_map(|event| match event {
            NetlinkEvent::Hosts(hosts) => Some(hosts.clone()),
            _ => None,
        });
        told.unwrap_or_default()
    };
    let of = |address: &str| -> IpAddr { address.parse().unwrap() };
    stand.ip("address add 10.255.0.1/32 dev lo\naddress add 10.9.9.1/24 dev other\n");
    // While `lo` is down the kernel does not take the address as local either.
    stand.until(|stand| {
        stand
            .mirror
            .seen
            .values()
            .any(|seen| !seen.addresses.is_empty())
    });
    assert!(last(&stand).values().all(BTreeSet::is_empty));
    stand.ip("link set lo up\n");
    stand.until(|stand| {
        last(stand)
            .get(&0)
            .is_some_and(|own| own.contains(&of("10.255.0.1")))
    });
    assert!(!last(&stand)[&0].contains(&of("10.9.9.1")));
    // The main table is another VRF's now: a new dump is made for that VRF.
    stand.events.clear();
    stand.mirror.set_tables([(254, 1)]);
    stand.until(|stand| stand.events.contains(&NetlinkEvent::Synchronised));
    assert!(last(&stand)[&1].contains(&of("10.255.0.1")));
    stand.ip("address del 10.255.0.1/32 dev lo\n");
    stand.until(|stand| {
        last(stand)
            .get(&1)
            .is_some_and(|own| !own.contains(&of("10.255.0.1")))
    });
    // A dummy counts like `lo`, where the kernel has such devices.
    if stand
        .space
        .within(|| command("link add d0 type dummy\n"))
        .is_ok()
    {
        stand.ip("link set d0 up\naddress add 10.255.0.2/24 dev d0\n");
        stand.until(|stand| last(stand)[&1].contains(&of("10.255.0.2")));
    }
}

#[test]
fn routes_of_frr_are_not_taken_from_the_kernel_as_well() {
    let Some(mut stand) = Stand::new() else {
        return;
    };
    let like = stand.attributes();
    stand.kernel.mirror("lr-wan", &like).unwrap();
    stand.ip("route add 198.51.100.0/24 via 192.0.2.2 proto bgp\n");
    stand.until(|stand| stand.bench.action("198.51.100.1").is_some());
    stand.mirror.set_told_by_frr(true);
    stand.ip("route add 198.51.101.0/24 via 192.0.2.2 proto bgp\n\
         route add 198.51.102.0/24 via 192.0.2.2 proto ospf\n\
         route delete 198.51.100.0/24\n\
         route add 198.51.103.0/24 via 192.0.2.2 proto static\n");
    stand.until(|stand| stand.bench.action("198.51.103.1").is_some());
    for gone in ["198.51.100.1", "198.51.101.1", "198.51.102.1"] {
        assert_eq!(stand.bench.action(gone), None, "{gone}");
    }
    assert!(stand.mirror.is_synchronised());
    // FRR has ended: the kernel is asked for its routes.
    stand.mirror.set_told_by_frr(false);
    assert!(!stand.mirror.is_synchronised());
    stand.until(|stand| stand.mirror.is_synchronised());
    for there in ["198.51.101.1", "198.51.102.1", "198.51.103.1"] {
        assert_eq!(stand.bench.action(there), Some(Action::Resolve), "{there}");
    }
    assert_eq!(stand.mirror.counts.overruns, 0);
}
