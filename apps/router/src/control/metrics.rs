//! What `/metrics` says: read from counters when somebody asks, nothing on the way of a packet.
//!
//! The families are those that `docs/grafana/router.json` draws; a test holds the two together.

use std::collections::BTreeMap;

use linerate_core::port::{Link, PortStats};

use super::Control;
use super::exposition::{Exposition, Kind};
use linerate_routing::plane::counters::{Sent, Traffic};
use linerate_routing::plane::settings::Interface;

impl Control {
    /// The page.
    pub(crate) fn metrics(&self) -> String {
        let mut page = Exposition::default();
        self.instance(&mut page);
        self.port_metrics(&mut page);
        self.capture_metrics(&mut page);
        self.interface_metrics(&mut page);
        self.host_metrics(&mut page);
        self.balance_metrics(&mut page);
        self.acl_metrics(&mut page);
        self.lcore_metrics(&mut page);
        self.table_metrics(&mut page);
        page.end()
    }

    fn instance(&self, page: &mut Exposition) {
        page.family("build", Kind::Info, "", "Version of the program.");
        page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        let seconds = self.began.elapsed().as_secs_f64();
        page.family(
            "uptime_seconds",
            Kind::Gauge,
            "seconds",
            "Time since forwarding began.",
        );
        page.sample(&[], seconds);
        page.family(
            "reloads",
            Kind::Counter,
            "",
            "Reloads of the configuration, by what came of them.",
        );
        page.sample(&[("outcome", "done")], self.reloads.done);
        page.sample(&[("outcome", "refused")], self.reloads.refused);
    }

    fn port_metrics(&self, page: &mut Exposition) {
        let ports: Vec<_> = self
            .running
            .ports()
            .iter()
            .map(|open| (open.name.as_str(), open.port.link(), open.port.stats()))
            .collect();
        page.family(
            "port_up",
            Kind::Gauge,
            "",
            "Whether packets can come and go.",
        );
        for (name, link, _) in &ports {
            page.sample(&[("port", name)], u8::from(*link == Link::Up));
        }
        let families = [
            ("port_receive_packets", "packets", "Packets received."),
            (
                "port_receive_bytes",
                "bytes",
                "Bytes of frames received, without FCS.",
            ),
            ("port_transmit_packets", "packets", "Packets sent."),
            (
                "port_transmit_bytes",
                "bytes",
                "Bytes of frames sent, without FCS.",
            ),
        ];
        for (index, (family, unit, help)) in families.into_iter().enumerate() {
            page.family(family, Kind::Counter, unit, help);
            for (name, _, stats) in &ports {
                let all = [
                    stats.rx_packets,
                    stats.rx_bytes,
                    stats.tx_packets,
                    stats.tx_bytes,
                ];
                page.sample(&[("port", name)], all[index]);
            }
        }
        page.family(
            "port_drops_packets",
            Kind::Counter,
            "packets",
            "Packets that a port had no room for, or could not take.",
        );
        for (name, _, stats) in &ports {
            let drops = [("receive", &stats.rx_drops), ("transmit", &stats.tx_drops)];
            for (direction, drops) in drops {
                // A driver may name a reason once for each queue.
                let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
                for (reason, count) in drops {
                    *sums.entry(reason).or_default() += count;
                }
                for (reason, count) in sums {
                    let labels = [
                        ("port", *name),
                        ("direction", direction),
                        ("reason", reason),
                    ];
                    page.sample(&labels, count);
                }
            }
        }
    }

    /// What captures of ports (`capture=`) lack.
    fn capture_metrics(&self, page: &mut Exposition) {
        page.family(
            "port_capture_missed_packets",
            Kind::Counter,
            "packets",
            "Packets that a capture of the port was to have and has not: full disk, or bound reached.",
        );
        for open in self.running.ports() {
            page.sample(&[("port", &open.name)], open.port.stats().capture_missed);
        }
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
            page.family(family, Kind::Counter, unit, help);
            let there = |one: &&Interface| !one.name.is_empty();
            for interface in self.settings.interfaces.iter().filter(there) {
                let vrf = &self.config.vrfs[interface.vrf as usize].name;
                let labels = [("interface", interface.name.as_str()), ("vrf", vrf)];
                page.sample(&labels, self.traffic(&interface.name, read));
            }
        }
        page.family(
            "interface_policed_packets",
            Kind::Counter,
            "packets",
            "Packets that an interface's policer dropped, of those that came in.",
        );
        let policed = |one: &&Interface| one.policer.is_some() && !one.name.is_empty();
        for interface in self.settings.interfaces.iter().filter(policed) {
            let vrf = &self.config.vrfs[interface.vrf as usize].name;
            let labels = [("interface", interface.name.as_str()), ("vrf", vrf)];
            let sum = self.traffic(&interface.name, |traffic| traffic.policed.read());
            page.sample(&labels, sum);
        }
        page.family(
            "icmp_messages",
            Kind::Counter,
            "",
            "ICMP messages of the router's own, TCP resets beside them, and those that it did not send.",
        );
        for (what, name) in Sent::ALL {
            let sum: u64 = self.counters.iter().map(|worker| worker.icmp(what)).sum();
            page.sample(&[("what", name)], sum);
        }
        let sums: [(&str, &str, u64); 4] = [
            (
                "by_host_packets",
                "Packets handed to the kernel because their route leads by a device of its own.",
                self.counters.iter().map(|c| c.by_host.read()).sum(),
            ),
            (
                "fragments_made_packets",
                "Fragments made of packets that were too long for the next link.",
                self.counters.iter().map(|c| c.fragments_made.read()).sum(),
            ),
            (
                "reassembled_packets",
                "Datagrams put together from fragments.",
                self.counters.iter().map(|c| c.reassembled.read()).sum(),
            ),
            (
                "neighbour_questions_packets",
                "ARP requests and solicitations that were dealt with.",
                self.counters.iter().map(|c| c.answered.read()).sum(),
            ),
        ];
        for (family, help, value) in sums {
            page.family(family, Kind::Counter, "packets", help);
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
        let all: Vec<_> = self.twins.iter().map(|twin| (twin, twin.stats())).collect();
        for (family, unit, help, read) in families {
            page.family(family, Kind::Counter, unit, help);
            for (twin, stats) in &all {
                let labels = [
                    ("host", twin.wanted.name.as_str()),
                    ("interface", &twin.wanted.interface),
                ];
                page.sample(&labels, read(stats));
            }
        }
        page.family(
            "host_drops_packets",
            Kind::Counter,
            "packets",
            "Packets that the kernel did not take or could not hand over by the host interface.",
        );
        for (twin, stats) in &all {
            let drops = [("receive", &stats.rx_drops), ("transmit", &stats.tx_drops)];
            for (direction, (reason, count)) in drops
                .iter()
                .flat_map(|(direction, drops)| drops.iter().map(move |drop| (*direction, drop)))
            {
                let labels = [
                    ("host", twin.wanted.name.as_str()),
                    ("interface", &twin.wanted.interface),
                    ("direction", direction),
                    ("reason", reason),
                ];
                page.sample(&labels, count);
            }
        }
    }

    fn lcore_metrics(&self, page: &mut Exposition) {
        let clock = self.running.clock();
        let lcores: Vec<_> = self
            .running
            .lcores()
            .map(|(name, cpu, stats)| {
                let cpu = cpu.map_or_else(String::new, |cpu| cpu.to_string());
                (name, cpu, stats.clone())
            })
            .collect();
        let seconds = |ticks: u64| clock.ns(ticks) as f64 * 1e-9;
        let families = [
            ("lcore_busy_seconds", "Time in rounds that had packets."),
            ("lcore_idle_seconds", "Time in rounds that had none, awake."),
            ("lcore_asleep_seconds", "Time asleep."),
        ];
        for (index, (family, help)) in families.into_iter().enumerate() {
            page.family(family, Kind::Counter, "seconds", help);
            for (name, cpu, stats) in &lcores {
                let ticks = [
                    stats.busy_ticks.read(),
                    stats.idle_ticks.read(),
                    stats.asleep_ticks.read(),
                ];
                page.sample(&[("lcore", name), ("cpu", cpu)], seconds(ticks[index]));
            }
        }
        page.family(
            "lcore_packets",
            Kind::Counter,
            "packets",
            "Packets that a worker took, from ports and from other workers.",
        );
        for (name, cpu, stats) in &lcores {
            page.sample(&[("lcore", name), ("cpu", cpu)], stats.packets.read());
        }
        page.family(
            "drops_packets",
            Kind::Counter,
            "packets",
            "Packets dropped by a worker, and why.",
        );
        for (name, _, stats) in &lcores {
            for (reason, count) in stats.drops() {
                page.sample(&[("lcore", name), ("reason", &reason)], count);
            }
        }
    }

    fn table_metrics(&self, page: &mut Exposition) {
        let counts = self.rib.counts();
        page.family(
            "routes",
            Kind::Gauge,
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
            page.family(family, Kind::Gauge, unit, help);
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
            page.family(family, Kind::Counter, "", help);
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
                page.family(family, Kind::Counter, "", help);
                page.sample(&[], value);
            }
        }
    }
}
