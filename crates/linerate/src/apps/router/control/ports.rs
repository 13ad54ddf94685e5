//! Ports, from control's side: whether they are up, and what a reload brings and takes away.

use linerate_core::port::{Link, PortInfo};
use linerate_drivers::Drivers;

use super::Control;
use crate::apps::router::config::{Config, RouterStanza};
use crate::apps::router::model::InterfaceId;
use crate::apps::runtime::{OpenPort, Options};
use crate::error::Error;

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
        for open in self.running.ports() {
            let number = usize::from(open.number);
            infos.resize(infos.len().max(number + 1), None);
            infos[number] = Some(open.info.clone());
        }
        infos
    }

    /// Starts the ports of a configuration that are not there yet, and returns their numbers. Nothing comes
    /// in by them before [`Running::listen`](crate::apps::runtime::Running::listen).
    ///
    /// # Errors
    /// What the first says that fails; none is there then.
    pub(super) fn add_ports(&mut self, config: &Config) -> Result<Vec<u16>, Error> {
        let mut added = Vec::new();
        for (number, port) in (0..).zip(&config.ports) {
            if port.is_gone() || self.running.port(number).is_some() {
                continue;
            }
            let mut drivers = Drivers::opened_by(self.privileged.clone());
            let (what, options) = (
                (number, port.name.as_str(), port.spec.as_str()),
                options(&config.router),
            );
            if let Err(error) = self.running.add_port(&mut drivers, what, &options) {
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
            if let Some(error) = self.running.remove_port(number) {
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
        let gone = self.running.ports().iter().filter(is_gone);
        let gone: Vec<u16> = gone.map(|open| open.number).collect();
        self.remove_ports(&gone);
        self.hush_ports();
    }

    /// Twins are numbered like ports.
    fn say_numbers(&mut self) {
        let ports = self.running.ports().iter();
        self.twins.leave(ports.map(|open| open.number).collect());
    }

    /// Keeps the kernel silent on the interfaces of the ports that there are.
    pub(super) fn hush_ports(&mut self) {
        let infos = self.running.ports().iter().map(|open| open.info.clone());
        let infos: Vec<PortInfo> = infos.filter(|_| self.config.router.kernel).collect();
        self.hush.follow(&infos);
    }

    /// Tells routing which interfaces are up: those whose ports are.
    pub(super) fn refresh_links(&mut self) {
        let state = |open: &OpenPort| match open.info.kind {
            // The end of a capture file is none of the link that it stands for.
            "pcap" => Link::Up,
            _ => open.port.link(),
        };
        let ports = self.running.ports().iter();
        let states: Vec<(u16, &str, Link)> = ports
            .map(|open| (open.number, open.name.as_str(), state(open)))
            .collect();
        let up = |(number, _, state): &(u16, &str, Link)| (*number, *state == Link::Up);
        let links = states.iter().map(up).collect();
        if links == self.links {
            return;
        }
        for (number, name, state) in &states {
            match (state, self.links.get(number)) {
                (Link::Up, Some(false)) => eprintln!("port {name} is up"),
                (Link::Down(why), Some(true) | None) => eprintln!("port {name} is down: {why}"),
                _ => {}
            }
        }
        self.links = links;
        for (id, interface) in (0..).zip(&self.config.interfaces) {
            // A loopback is no way out: routing takes it for down.
            if let Some(port) = interface.port {
                let up = self.links.get(&port) == Some(&true);
                self.rib.interface_state(InterfaceId(id), up);
            }
        }
        // An interface that has come back has forgotten.
        self.hush.keep();
        self.changed();
        self.liken_all();
    }
}
