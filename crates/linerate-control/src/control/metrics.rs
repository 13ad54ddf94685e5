//! What `/metrics` says: read from counters when somebody asks, nothing on the way of a packet.
//!
//! The families are those that `docs/grafana/router.json` draws; a test holds the two together.

use linerate_core::port::PortStats;

use super::Control;
use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::metrics;
use linerate_appliance::control::reload::Outcomes;
use linerate_routing::plane::counters::{Sent, Traffic};
use linerate_routing::plane::settings::Interface;

impl Control {
    /// The page.
    pub(super) fn page(&self, reloads: Option<&Outcomes>) -> String {
        let (mut page, began) = (Exposition::default(), self.readings.began);
        metrics::run(&self.workers.running, began, reloads, &mut page);
        self.interface_metrics(&mut page);
        self.host_metrics(&mut page);
        self.balance_metrics(&mut page);
        self.acl_metrics(&mut page);
        self.table_metrics(&mut page);
        self.config.appliance.metrics(&self.at_work(), &mut page);
        page.end()
    }

    fn interface_metrics(&self, page: &mut Exposition) {
        type Of = fn(&Traffic) -> u64;
        let families: [(&str, &str, &str, Of); 4] = [
            (
                "interface_receive_packets",
                "packets",
                "Packets that came in by an interface.",
                |traffic| traffic.in_packets.read(),
            ),
            (
                "interface_receive_bytes",
                "bytes",
                "Bytes of frames that came in, without tag and FCS.",
                |traffic| traffic.in_bytes.read(),
            ),
            (
                "interface_transmit_packets",
                "packets",
                "Packets that left by an interface.",
                |traffic| traffic.out_packets.read(),
            ),
            (
                "interface_transmit_bytes",
                "bytes",
                "Bytes of frames that left, without tag and FCS.",
                |traffic| traffic.out_bytes.read(),
            ),
        ];
        for (family, unit, help, read) in families {
            page.family(family, FamilyKind::Counter, unit, help);
            let there = |one: &&Interface| !one.name.is_empty();
            for interface in self.settings.interfaces.iter().filter(there) {
                let vrf = &self.config.vrfs[interface.vrf as usize].name;
                let labels = [("interface", interface.name.as_str()), ("vrf", vrf)];
                page.sample(&labels, self.workers.traffic(&interface.name, read));
            }
        }
        page.family(
            "interface_policed_packets",
            FamilyKind::Counter,
            "packets",
            "Packets that an interface's policer dropped, of those that came in.",
        );
        let policed = |one: &&Interface| one.policer.is_some() && !one.name.is_empty();
        for interface in self.settings.interfaces.iter().filter(policed) {
            let vrf = &self.config.vrfs[interface.vrf as usize].name;
            let labels = [("interface", interface.name.as_str()), ("vrf", vrf)];
            let sum = self
                .workers
                .traffic(&interface.name, |traffic| traffic.policed.read());
            page.sample(&labels, sum);
        }
        page.family(
            "icmp_messages",
            FamilyKind::Counter,
            "",
            "ICMP messages of the router's own, TCP resets beside them, and those that it did not \
             send.",
        );
        for (what, name) in Sent::ALL {
            let sum: u64 = self
                .workers
                .counters
                .iter()
                .map(|worker| worker.icmp(what))
                .sum();
            page.sample(&[("what", name)], sum);
        }
        let sums: [(&str, &str, u64); 4] = [
            (
                "by_host_packets",
                "Packets handed to the kernel because their route leads by a device of its own.",
                self.workers.counters.iter().map(|c| c.by_host.read()).sum(),
            ),
            (
                "fragments_made_packets",
                "Fragments made of packets that were too long for the next link.",
                self.workers
                    .counters
                    .iter()
                    .map(|c| c.fragments_made.read())
                    .sum(),
            ),
            (
                "reassembled_packets",
                "Datagrams put together from fragments.",
                self.workers
                    .counters
                    .iter()
                    .map(|c| c.reassembled.read())
                    .sum(),
            ),
            (
                "neighbour_questions_packets",
                "ARP requests and solicitations that were dealt with.",
                self.workers
                    .counters
                    .iter()
                    .map(|c| c.answered.read())
                    .sum(),
            ),
        ];
        for (family, help, value) in sums {
            page.family(family, FamilyKind::Counter, "packets", help);
            page.sample(&[], value);
        }
    }

    /// What passes host interfaces, the router's ends in the kernel.
    fn host_metrics(&self, page: &mut Exposition) {
        type Of = fn(&PortStats) -> u64;
        let families: [(&str, &str, &str, Of); 4] = [
            (
                "host_transmit_packets",
                "packets",
                "Packets that went to the kernel by the host interface.",
                |stats| stats.tx_packets,
            ),
            (
                "host_transmit_bytes",
                "bytes",
                "Bytes of frames that went to the kernel.",
                |stats| stats.tx_bytes,
            ),
            (
                "host_receive_packets",
                "packets",
                "Packets that came from the kernel by the host interface.",
                |stats| stats.rx_packets,
            ),
            (
                "host_receive_bytes",
                "bytes",
                "Bytes of frames that came from the kernel.",
                |stats| stats.rx_bytes,
            ),
        ];
        let all: Vec<_> = self
            .host_interfaces
            .iter()
            .map(|host_interface| (host_interface, host_interface.stats()))
            .collect();
        for (family, unit, help, read) in families {
            page.family(family, FamilyKind::Counter, unit, help);
            for (host_interface, stats) in &all {
                let labels = [
                    ("host", host_interface.wanted.name.as_str()),
                    ("interface", &host_interface.wanted.interface),
                ];
                page.sample(&labels, read(stats));
            }
        }
        page.family(
            "host_drops_packets",
            FamilyKind::Counter,
            "packets",
            "Packets that the kernel did not take or could not hand over by the host interface.",
        );
        for (host_interface, stats) in &all {
            let drops = [("receive", &stats.rx_drops), ("transmit", &stats.tx_drops)];
            for (direction, (reason, count)) in drops
                .iter()
                .flat_map(|(direction, drops)| drops.iter().map(move |drop| (*direction, drop)))
            {
                let labels = [
                    ("host", host_interface.wanted.name.as_str()),
                    ("interface", &host_interface.wanted.interface),
                    ("direction", direction),
                    ("reason", reason),
                ];
                page.sample(&labels, count);
            }
        }
    }

    fn table_metrics(&self, page: &mut Exposition) {
        let counts = self.rib.counts();
        page.family(
            "routes",
            FamilyKind::Gauge,
            "",
            "Routes from the configuration, FRR and the kernel.",
        );
        for (family, routes) in ["ipv4", "ipv6"].iter().zip(counts.routes) {
            page.sample(&[("family", family)], routes);
        }
        let gauges = [
            (
                "hops",
                "",
                "Different hops that routes lead to.",
                counts.hops,
            ),
            (
                "neighbours",
                "",
                "Neighbours whose MAC address is known.",
                counts.neighbours,
            ),
            (
                "routes_without_room",
                "",
                "Prefixes that the forwarding tables have no room for.",
                counts.no_room,
            ),
            (
                "routes_memory_bytes",
                "bytes",
                "Memory of the routing table.",
                counts.memory_bytes,
            ),
        ];
        for (family, unit, help, value) in gauges {
            page.family(family, FamilyKind::Gauge, unit, help);
            page.sample(&[], value);
        }
        let kernel = self.kernel.as_ref();
        let counters = [
            (
                "routes_turned_away",
                "Routes that came when the table was full.",
                counts.turned_away,
            ),
            (
                "route_changes",
                "Routes that the kernel and FRR have put in, changed or taken out.",
                kernel.map_or(0, super::kernel::Kernel::changes),
            ),
            (
                "netlink_overruns",
                "Times that events of the kernel were lost, and all was said again.",
                kernel.map_or(0, super::kernel::Kernel::overruns),
            ),
        ];
        for (family, help, value) in counters {
            page.family(family, FamilyKind::Counter, "", help);
            page.sample(&[], value);
        }
        if let Some(fpm) = kernel.and_then(|kernel| kernel.fpm.as_ref()) {
            let counts = &fpm.counts;
            for (family, help, value) in [
                ("fpm_connections", "Connections of FRR.", counts.connections),
                (
                    "fpm_refused_connections",
                    "Connections that were not let in: another user's, or a second one.",
                    fpm.refused(),
                ),
                ("fpm_frames", "Frames of FPM.", counts.frames),
                (
                    "fpm_protocol_errors",
                    "Connections ended because the peer did not keep to the protocol.",
                    counts.liars,
                ),
            ] {
                page.family(family, FamilyKind::Counter, "", help);
                page.sample(&[], value);
            }
        }
    }
}
