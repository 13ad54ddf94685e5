//! Interfaces: their addresses, and what the neighbour table says of them.

use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_core::run::Egress;
use linerate_wire::{MacAddr, ipv6, ndp};

use super::address::{self, OwnAddresses};
use super::path::Path;
use super::{Host, HostError, Interface, InterfaceConfig, InterfaceId, MAX_INTERFACES};
use crate::neighbour::{self, Event};

impl Host {
    /// Adds an interface. Its addresses are announced, or probed for and used later; routes lead to
    /// their networks from then on.
    ///
    /// # Errors
    /// Why it was not added: see [`HostError`].
    pub fn add_interface(
        &mut self,
        config: InterfaceConfig,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<InterfaceId, HostError> {
        let port = config.port;
        // The highest number says that a packet came from this host itself.
        if port == InterfaceId::LOOPBACK.0 || self.interface_of(port).is_some() {
            return Err(HostError::PortTaken { port });
        }
        let config = complete(config)?;
        let free = self.interfaces.iter().position(Option::is_none);
        let number = free.unwrap_or(self.interfaces.len());
        if number >= MAX_INTERFACES {
            let most = MAX_INTERFACES;
            return Err(HostError::TooManyInterfaces { most });
        }
        let id = InterfaceId(number as u16);
        if free.is_none() {
            self.interfaces.push(None);
        }
        let ports = self.by_port.len().max(usize::from(port) + 1);
        self.by_port.resize(ports, None);
        self.by_port[usize::from(port)] = Some(id);
        self.install(id, config, now_ns, out);
        Ok(id)
    }

    /// Changes an interface but for its port: addresses that it keeps stay as they are, new ones
    /// are announced or probed for, and all paths are looked up anew.
    ///
    /// # Errors
    /// There is no such interface, or what is wrong with the change; then nothing has changed.
    pub fn change_interface(
        &mut self,
        id: InterfaceId,
        config: InterfaceConfig,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), HostError> {
        let number = id.number();
        let port = self.interface(id).map(|known| known.port);
        if port.ok_or(HostError::NoInterface { number })? != config.port {
            return Err(HostError::PortTaken { port: config.port });
        }
        let config = complete(config)?;
        self.routes.detach_networks(id);
        self.install(id, config, now_ns, out);
        Ok(())
    }

    fn install(&mut self, id: InterfaceId, config: InterfaceConfig, now_ns: u64, out: &mut Egress) {
        let table = neighbour::InterfaceConfig {
            mac: config.mac,
            addresses: config.addresses.clone(),
            host: true,
            detect4: config.detect4,
            detect6: config.detect6,
            ..neighbour::InterfaceConfig::default()
        };
        let port = config.port;
        for &network in &config.addresses {
            self.routes.attach(network, id);
        }
        self.interfaces[usize::from(id.0)] = Some(Interface {
            config,
            usable: Vec::new(),
        });
        let todo = &mut self.todo;
        self.neighbours.set_interface(id.0, table, now_ns, todo);
        self.due_ns = 0;
        self.readdress();
        // Before a worker runs there is no way out: what is announced leaves with the first turn.
        self.due_ns = 0;
        if out.has_outlet(port) {
            self.settle(out);
        }
    }

    /// Removes an interface with its routes; packets that wait for its neighbours are dropped.
    /// False if there is none.
    pub fn remove_interface(&mut self, id: InterfaceId, out: &mut Egress) -> bool {
        let Some(slot) = self.interfaces.get_mut(usize::from(id.0)) else {
            return false;
        };
        let Some(interface) = slot.take() else {
            return false;
        };
        self.by_port[usize::from(interface.config.port)] = None;
        self.routes.detach(id);
        self.neighbours.remove_interface(id.0, &mut self.todo);
        self.due_ns = 0;
        self.readdress();
        self.settle(out);
        true
    }

    /// An interface as configured, its link-local address included.
    pub fn interface(&self, id: InterfaceId) -> Option<&InterfaceConfig> {
        self.at(id).map(|interface| &interface.config)
    }

    /// The interface of a port.
    pub fn interface_of(&self, port: u16) -> Option<InterfaceId> {
        self.by_port.get(usize::from(port)).copied().flatten()
    }

    /// Whether a received frame is to the MAC address of its port's interface.
    #[inline]
    pub fn is_to_us(&self, packet: &Packet) -> bool {
        let interface = self.by_port.get(usize::from(packet.port()));
        let interface = interface.copied().flatten().and_then(|id| self.at(id));
        let to = packet.data().first_chunk::<6>();
        interface.is_some_and(|interface| to == Some(&interface.config.mac.0))
    }

    /// The port that a path leaves by; `None` to our own addresses, or where the interface is gone.
    pub fn port_of(&self, path: Path) -> Option<u16> {
        let interface = self.at(path.interface());
        interface.map(|interface| interface.config.port)
    }

    /// Whether an address of ours on the interface is used: configured, and no duplicate.
    pub fn is_usable(&self, id: InterfaceId, address: IpAddr) -> bool {
        let interface = self.at(id);
        interface.is_some_and(|interface| interface.usable.iter().any(|own| own.0 == address))
    }

    /// The link of an interface came up: neighbours are doubted, our addresses announced anew.
    pub fn link_up(&mut self, id: InterfaceId, now_ns: u64, out: &mut Egress) {
        self.neighbours.link_up(id.0, now_ns, &mut self.todo);
        self.due_ns = 0;
        self.settle(out);
    }

    /// The link of an interface went down.
    pub fn link_down(&mut self, id: InterfaceId, now_ns: u64) {
        self.neighbours.link_down(id.0, now_ns);
        self.due_ns = 0;
    }

    /// Sets a neighbour that is never asked; false if there is no room.
    pub fn add_neighbour(
        &mut self,
        id: InterfaceId,
        address: IpAddr,
        mac: MacAddr,
        out: &mut Egress,
    ) -> bool {
        let is_added = self
            .neighbours
            .add_static(id.0, address, mac, &mut self.todo);
        self.due_ns = 0;
        self.settle(out);
        is_added
    }

    /// The neighbours, to be shown.
    pub fn neighbours(&self) -> impl Iterator<Item = neighbour::Neighbour> {
        self.neighbours.neighbours()
    }

    pub(super) fn at(&self, id: InterfaceId) -> Option<&Interface> {
        self.interfaces.get(usize::from(id.0))?.as_ref()
    }

    /// Addresses, or which of them are used, have changed.
    fn readdress(&mut self) {
        for (number, slot) in (0..).zip(&mut self.interfaces) {
            if let Some(interface) = slot {
                let own = interface.config.addresses.iter().copied();
                let own = own.filter(|own| self.neighbours.is_usable(number, own.0));
                interface.usable = own.collect();
            }
        }
        let all = (0..).zip(&self.interfaces);
        let all = all.filter_map(|(number, slot)| Some((InterfaceId(number), slot.as_ref()?)));
        self.own_version = self.own_version.wrapping_add(1);
        self.own = OwnAddresses::of(all.flat_map(|(id, interface)| {
            let own = interface.usable.iter();
            own.map(move |&(address, len)| (address, len, id))
        }));
        self.hops.renew();
    }

    /// Does what the neighbour table says: sends its frames and packets, notes addresses.
    pub(super) fn settle(&mut self, out: &mut Egress) {
        if self.todo.is_empty() {
            return;
        }
        let mut todo = std::mem::take(&mut self.todo);
        let mut is_readdressed = false;
        for event in todo.events.drain(..) {
            match event {
                Event::Neighbour {
                    interface,
                    address,
                    mac,
                } => self.hops.learn(interface, address, mac),
                Event::Unique { .. } => is_readdressed = true,
                Event::Duplicate { .. } => {
                    is_readdressed = true;
                    self.stats.conflicts += 1;
                }
                Event::Conflict { .. } => self.stats.conflicts += 1,
            }
        }
        if is_readdressed {
            self.readdress();
        }
        for (number, frame) in todo.frames() {
            let Some(interface) = self.at(InterfaceId(number)) else {
                continue;
            };
            // Without a slot the question is lost, and asked again.
            if let Some(packet) = out.cache.copy_of(frame) {
                out.made(1);
                out.send_one(interface.config.port, packet);
            }
        }
        self.release(&mut todo, out);
        todo.clear();
        self.todo = todo;
    }
}

/// Checks a configuration, and adds the link-local address that IPv6 wants (RFC 4291 2.8).
fn complete(mut config: InterfaceConfig) -> Result<InterfaceConfig, HostError> {
    let mut addresses: Vec<(IpAddr, u8)> = Vec::with_capacity(config.addresses.len() + 1);
    let (mut has6, mut has_link_local) = (false, false);
    for (address, len) in config.addresses {
        let width = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(v6) => {
                has6 = true;
                has_link_local |= v6.is_unicast_link_local();
                128
            }
        };
        if !address::is_host(address) || len > width {
            return Err(HostError::Address { address, len });
        }
        if addresses.iter().all(|(known, _)| *known != address) {
            addresses.push((address, len));
        }
    }
    if has6 && !has_link_local {
        addresses.push((ndp::link_local(config.mac).into(), 64));
    }
    // RFC 791 3.2, RFC 8200 5.
    let least = if has6 { ipv6::MIN_MTU as u16 } else { 68 };
    if config.mtu < least {
        let mtu = config.mtu;
        return Err(HostError::Mtu { mtu, least });
    }
    config.addresses = addresses;
    Ok(config)
}
