//! Ports, from control's side: whether they are up, what they are like, and what a reload brings
//! and takes away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use linerate_core::port::{Link, PortInfo};
use linerate_drivers::Drivers;
use linerate_tables::rss::FrameHash;
use linerate_wire::ethernet::HEADER_LEN;

use super::{Control, generation};
use crate::config::{Config, RouterStanza};
use crate::machine;
use linerate_appliance::error::Error;
use linerate_appliance::runtime::{OpenPort, Options};
use linerate_routing::model::InterfaceId;
use linerate_routing::worker::on_slow;

/// How workers of a router run.
pub(super) fn options(router: &RouterStanza) -> Options {
    Options {
        queues: router.queues,
        burst: router.burst.into(),
        pool_slots: router.pool_slots,
        sleep: router.sleep,
        spin: false,
    }
}

impl Control {
    /// What is known of each port, by its number.
    pub(super) fn port_infos(&self) -> Vec<Option<PortInfo>> {
        let mut infos = Vec::new();
        for open in self.workers.running.ports() {
            let number = usize::from(open.number);
            infos.resize(infos.len().max(number + 1), None);
            infos[number] = Some(open.info.clone());
        }
        infos
    }

    /// Starts the ports of a configuration that are not there yet, and returns their numbers.
    /// Nothing comes in by them before
    /// [`Running::listen`](linerate_appliance::runtime::Running::listen).
    ///
    /// # Errors
    /// What the first says that fails; none is there then.
    pub(super) fn add_ports(&mut self, config: &Config) -> Result<Vec<u16>, Error> {
        let mut added = Vec::new();
        for (number, port) in (0..).zip(&config.ports) {
            if port.is_gone() || self.workers.running.port(number).is_some() {
                continue;
            }
            let mut drivers = Drivers::opened_by(self.privileged.clone())
                .joining_segments()
                .playing_nics(FrameHash::make);
            let (what, options) = (
                (number, port.name.as_str(), port.spec.as_str()),
                options(&config.router),
            );
            if let Err(error) = self.workers.running.add_port(&mut drivers, what, &options) {
                self.remove_ports(&added);
                return Err(error);
            }
            added.push(number);
        }
        self.say_numbers();
        Ok(added)
    }

    /// Stops ports that no interface is on any more.
    pub(super) fn remove_ports(&mut self, numbers: &[u16]) {
        for &number in numbers {
            if let Some(error) = self.workers.running.remove_port(number) {
                error.print();
            }
            self.links.remove(&number);
        }
        self.say_numbers();
    }

    /// Stops the ports that the configuration does not have.
    pub(super) fn retain_ports(&mut self) {
        let is_gone = |open: &&OpenPort| {
            let port = self.config.ports.get(usize::from(open.number));
            port.is_none_or(|port| port.is_gone())
        };
        let gone = self.workers.running.ports().iter().filter(is_gone);
        let gone: Vec<u16> = gone.map(|open| open.number).collect();
        self.remove_ports(&gone);
        self.guard_sysctls();
    }

    /// Host interfaces are numbered like ports.
    fn say_numbers(&mut self) {
        let ports = self.workers.running.ports().iter();
        self.host_interfaces
            .leave(ports.map(|open| open.number).collect());
    }

    /// Keeps the kernel silent on the interfaces of the ports that there are.
    pub(super) fn guard_sysctls(&mut self) {
        let infos = self
            .workers
            .running
            .ports()
            .iter()
            .map(|open| open.info.clone());
        let infos: Vec<PortInfo> = infos.filter(|_| self.config.router.kernel).collect();
        self.sysctl_guard.follow(&infos);
    }

    /// Looks at all ports: whether they are up, and what they are like. `gone`: interfaces of the
    /// kernel whose links were gone since the last look, for however short a time.
    pub(super) fn look_at_ports(&mut self, gone: &BTreeSet<String>) {
        self.refresh_wires();
        self.refresh_links(gone);
    }

    /// Takes over the MTU and the MAC address that the device of a port has now. What is configured
    /// below that stays.
    fn refresh_wires(&mut self) {
        let changed = self.workers.running.look_again();
        if changed.is_empty() {
            return;
        }
        let infos = self.port_infos();
        for host_interface in generation::host_interfaces(&self.config, &infos) {
            // The kernel is told below; should the device be made again, it is made so.
            self.host_interfaces.allot(host_interface);
        }
        let mut settings = (*self.settings).clone();
        for (id, interface) in (0..).map(InterfaceId).zip(&mut settings.interfaces) {
            let config = self.config.interfaces.get(usize::from(id.0));
            let Some(config) = config.filter(|config| !config.is_gone()) else {
                continue;
            };
            let wire = generation::wire(id, config, &infos);
            if wire != (interface.mac, interface.mtu) {
                (interface.mac, interface.mtu) = wire;
                self.rib.set_interface(id, Some(interface));
            }
        }
        self.settings = Arc::new(settings);
        self.install(&self.settings.clone());
        self.schedule.changed();
        self.make_alike_all();
        for (number, was) in changed {
            if let Some(open) = self.workers.running.port(number) {
                say_wire(&open.name, &was, &open.info);
            }
        }
    }

    /// Tells routing and the neighbour table which interfaces are up: those whose ports are.
    pub(super) fn refresh_links(&mut self, gone: &BTreeSet<String>) {
        let state = |open: &OpenPort| match open.info.kind {
            // The end of a capture file is none of the link that it stands for.
            "pcap" => Link::Up,
            _ => open.port.link(),
        };
        let ports = self.workers.running.ports().iter();
        let states: Vec<(u16, &str, Link, bool)> = ports
            .map(|open| {
                let below = machine::interface_of(&open.info.name);
                let was_gone = below.is_some_and(|(_, name)| gone.contains(&name));
                (open.number, open.name.as_str(), state(open), was_gone)
            })
            .collect();
        let up = |(number, _, state, _): &(u16, &str, Link, bool)| (*number, *state == Link::Up);
        let links: BTreeMap<u16, bool> = states.iter().map(up).collect();
        let blinked: BTreeSet<u16> = states
            .iter()
            .filter(|(number, _, state, was_gone)| {
                *was_gone && *state == Link::Up && self.links.get(number) == Some(&true)
            })
            .map(|(number, ..)| *number)
            .collect();
        if links == self.links && blinked.is_empty() {
            return;
        }
        for (number, name, state, _) in &states {
            match (state, self.links.get(number)) {
                (Link::Up, Some(false)) => eprintln!("port {name} is up"),
                (Link::Up, Some(true)) if blinked.contains(number) => {
                    eprintln!("port {name} was down for a moment");
                }
                (Link::Down(why), Some(true) | None) => eprintln!("port {name} is down: {why}"),
                _ => {}
            }
        }
        let before = std::mem::replace(&mut self.links, links);
        for (id, interface) in (0..).map(InterfaceId).zip(&self.config.interfaces) {
            // A loopback is no way out: routing takes it for down.
            let Some(port) = interface.port else { continue };
            let up = self.links.get(&port) == Some(&true);
            self.rib.interface_state(id, up);
            match before.get(&port) {
                Some(false) if up => {
                    on_slow(self.workers.slow(), move |slow, egress| {
                        slow.link_up(id, egress)
                    });
                }
                Some(true) if !up => {
                    on_slow(self.workers.slow(), move |slow, _| slow.link_down(id));
                }
                _ if blinked.contains(&port) => {
                    on_slow(self.workers.slow(), move |slow, egress| {
                        slow.link_up(id, egress)
                    });
                }
                _ => {}
            }
        }
        // An interface that has come back has forgotten.
        self.sysctl_guard.keep();
        self.schedule.changed();
        self.make_alike_all();
    }
}

/// Says what is another about the device of a port.
fn say_wire(name: &str, was: &PortInfo, now: &PortInfo) {
    let mtu = |info: &PortInfo| info.max_frame_bytes.saturating_sub(HEADER_LEN);
    if mtu(was) != mtu(now) {
        eprintln!(
            "port {name}: its MTU is {} now, it was {}",
            mtu(now),
            mtu(was)
        );
    }
    if was.mac != now.mac
        && let Some(mac) = now.mac
    {
        eprintln!("port {name}: its MAC address is {mac} now");
    }
}
