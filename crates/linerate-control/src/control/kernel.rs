//! The kernel and FRR, from control's side: what they say goes into the routing table and the
//! settings, what the interfaces are goes to their host interfaces.
//!
//! Threads of their own listen; they only wake the control thread, which takes what has come in
//! bounded parts, so that questions are answered in between. Each network name space that has host
//! interfaces has its own monitor; what changes the kernel is done by whoever has the privileges.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use linerate_wire::MacAddr;
use rustix::process::geteuid;

use super::Control;
use crate::config::{Config, InterfaceConfig, RouterStanza};
use crate::machine;
use linerate_appliance::control::mailbox::Mailbox;
use linerate_appliance::error::Error;
use linerate_appliance::netlink::host_interface::Attributes;
use linerate_appliance::privilege::Privileged;
use linerate_appliance::users::{NOBODY, User};
use linerate_routing::fpm::{self, Fpm};
use linerate_routing::model::{Cidr, InterfaceId, MAIN_TABLE, Vrf};
use linerate_routing::netlink::ports::Interfaces;
use linerate_routing::netlink::{Mirror, NetlinkEvent};
use linerate_routing::rib::{Rib, Source};
use linerate_routing::worker::on_slow;

/// One network name space.
struct Space {
    /// As `ip netns` calls it; none: the router's own.
    name: Option<String>,
    mirror: Mirror,
}

/// All that speaks to the control thread from outside.
pub(super) struct Kernel {
    spaces: Vec<Space>,
    /// Interfaces below ports, where there are such.
    below: Option<Interfaces>,
    pub(super) fpm: Option<Fpm>,
    /// Addresses that the kernel has for an interface's host interface.
    learned: HashMap<InterfaceId, Vec<Cidr>>,
    privileged: Arc<dyn Privileged>,
    /// Whom to wake.
    mailbox: Mailbox<Control>,
    /// Set by the threads that listen, until somebody looks.
    woken: Arc<AtomicBool>,
}

/// Which of a name space's routing tables is which VRF. The main table of another name space than
/// the router's own is the first VRF's there.
fn tables(config: &Config, space: Option<&str>) -> Vec<(u32, Vrf)> {
    let vrfs = (0..).zip(&config.vrfs);
    let here = vrfs.filter(|(_, vrf)| !vrf.is_gone() && vrf.netns.as_deref() == space);
    let tables = here.flat_map(|(number, vrf)| {
        let main = vrf.has_main.then_some(MAIN_TABLE);
        let both = vrf.table.into_iter().chain(main);
        both.map(move |table| (table, number))
    });
    tables.collect()
}

/// Which of FRR's tables is which VRF.
/// Whose zebra is believed: root's, the named user's or FRR's, and that of this process's own user,
/// unless others share it.
fn fpm_users(router: &RouterStanza) -> Vec<u32> {
    let uid_of = |name: &str| User::find(name).map(|user| user.uid);
    let own = geteuid().as_raw();
    let named = router.fpm_user.as_ref().map(|user| user.uid);
    let own = Some(own).filter(|_| uid_of(NOBODY) != Some(own));
    let users = [Some(0), named.or_else(|| uid_of("frr")), own];
    users.into_iter().flatten().collect()
}

fn fpm_tables(config: &Config) -> Vec<(u32, Vrf)> {
    let tables = (0..).zip(config.tables());
    tables
        .filter_map(|(number, table)| Some((table?, number)))
        .collect()
}

/// Whether there are host interfaces in a name space.
fn has_host_interfaces(config: &Config, space: Option<&str>) -> bool {
    config.interfaces.iter().any(|interface| {
        let netns = &config.vrfs[interface.vrf as usize].netns;
        interface.host_interface.is_some() && netns.as_deref() == space
    })
}

/// What wakes the control thread: once until it looks.
fn waker(
    mailbox: &Mailbox<Control>,
    woken: &Arc<AtomicBool>,
) -> impl Fn() + Send + 'static + use<> {
    let (mailbox, woken) = (mailbox.clone(), woken.clone());
    move || {
        if !woken.swap(true, Ordering::SeqCst) {
            mailbox.tell(|control| control.schedule.fed = true);
        }
    }
}

impl Kernel {
    /// Listens to the kernel where a configuration has host interfaces, and for FRR where it says
    /// so.
    ///
    /// # Errors
    /// A name space that there is not, or an address that is taken.
    pub(super) fn start(
        config: &Config,
        mailbox: &Mailbox<Control>,
        privileged: &Arc<dyn Privileged>,
    ) -> Result<Self, Error> {
        let woken = Arc::new(AtomicBool::new(false));
        let fpm = config.router.fpm.map(|address| {
            let (wake, graceful) = (waker(mailbox, &woken), config.router.graceful);
            let mut fpm = Fpm::listen(address, fpm_users(&config.router), graceful, wake)?;
            fpm.feed.set_tables(fpm_tables(config));
            Ok::<_, Error>(fpm)
        });
        let mut kernel = Self {
            spaces: Vec::new(),
            below: None,
            fpm: fpm.transpose()?,
            learned: HashMap::new(),
            privileged: privileged.clone(),
            mailbox: mailbox.clone(),
            woken,
        };
        kernel.open_spaces(config)?;
        Ok(kernel)
    }

    /// Listens in every name space in which a configuration has host interfaces, and to what
    /// becomes of the interfaces below its ports.
    ///
    /// # Errors
    /// A name space that there is not.
    pub(super) fn open_spaces(&mut self, config: &Config) -> Result<(), Error> {
        let mut ports = config.ports.iter();
        if self.below.is_none() && ports.any(|port| machine::interface_of(&port.spec).is_some()) {
            self.below = Some(Interfaces::watch(waker(&self.mailbox, &self.woken))?);
        }
        let host_interfaces = config
            .interfaces
            .iter()
            .filter(|one| one.host_interface.is_some());
        for interface in host_interfaces {
            let name = config.vrfs[interface.vrf as usize].netns.clone();
            if self.spaces.iter().any(|space| space.name == name) {
                continue;
            }
            let wake = waker(&self.mailbox, &self.woken);
            let mut mirror = Mirror::watch(&*self.privileged, name.as_deref(), wake)?;
            mirror.feed.set_tables(tables(config, name.as_deref()));
            mirror.set_told_by_frr(self.fpm.as_ref().is_some_and(Fpm::tells));
            self.spaces.push(Space { name, mirror });
        }
        Ok(())
    }

    /// Listens no more where a configuration has no host interfaces: what a reload has begun that
    /// was refused.
    pub(super) fn close_spaces(&mut self, config: &Config) {
        self.spaces
            .retain(|space| has_host_interfaces(config, space.name.as_deref()));
    }

    /// Follows a configuration's VRFs: which tables are theirs, and what there is no more.
    pub(super) fn follow_vrfs(&mut self, config: &Config, rib: &mut Rib) {
        self.spaces.retain_mut(|space| {
            let stays = has_host_interfaces(config, space.name.as_deref());
            if !stays {
                // All that it has told.
                space.mirror.feed.begin(rib);
                space.mirror.feed.end(rib);
            }
            stays
        });
        let mut fed: BTreeSet<Vrf> = BTreeSet::new();
        for space in &mut self.spaces {
            let tables = tables(config, space.name.as_deref());
            fed.extend(tables.iter().map(|(_, vrf)| vrf));
            space.mirror.set_tables(tables);
        }
        for vrf in (0..rib.vrfs()).filter(|vrf| !fed.contains(vrf)) {
            rib.forget(Source::Kernel, vrf);
            rib.set_hosts(vrf, &BTreeSet::new());
        }
        if let Some(fpm) = &mut self.fpm {
            fpm.set_tables(rib, &fpm_tables(config));
        }
    }

    /// Times that events of the kernel were lost, and all was said again.
    pub(super) fn overruns(&self) -> u64 {
        self.spaces
            .iter()
            .map(|space| space.mirror.counts.overruns)
            .sum()
    }

    /// Routes that the kernel and FRR have put in or changed, and taken out.
    pub(super) fn changes(&self) -> u64 {
        let feeds = self.spaces.iter().map(|space| &space.mirror.feed);
        let feeds = feeds.chain(self.fpm.iter().map(|fpm| &fpm.feed));
        feeds
            .map(|feed| feed.counts.added + feed.counts.removed)
            .sum()
    }

    /// Which interfaces are to be heard of, by the names of their host interfaces.
    fn set_host_interfaces(&mut self, config: &Config, rib: &mut Rib) -> Vec<NetlinkEvent> {
        let mut events = Vec::new();
        for space in &mut self.spaces {
            let interfaces = (0..).map(InterfaceId).zip(&config.interfaces);
            let here = interfaces
                .filter(|(_, interface)| config.vrfs[interface.vrf as usize].netns == space.name);
            let host_interfaces =
                here.filter_map(|(id, interface)| Some((interface.host_interface.clone()?, id)));
            // As the ports' specifications have them: `af_packet:eth0,queues=1`.
            let ports = config.ports.iter().filter_map(|port| {
                let (_, target) = port.spec.split_once(':')?;
                target.split(',').next().map(String::from)
            });
            space
                .mirror
                .set_host_interfaces(rib, host_interfaces, ports, &mut events);
        }
        events
    }
}

impl Control {
    /// Takes what the kernel and FRR have said, a bounded part of it; whether there may be more.
    pub(super) fn feed(&mut self) -> bool {
        let Some(kernel) = &mut self.kernel else {
            return false;
        };
        kernel.woken.store(false, Ordering::SeqCst);
        let below = kernel.below.as_mut().map(Interfaces::hear);
        let mut more = false;
        let mut events = Vec::new();
        for space in &mut kernel.spaces {
            more |= space.mirror.poll(&mut self.rib, &mut events);
        }
        self.hear(events);
        if let Some(said) = below.filter(|said| said.any) {
            self.look_at_ports(&said.gone);
        }
        let mut of_frr = Vec::new();
        // Routes by a host interface that is not known yet would be taken for somebody else's.
        if let Some(kernel) = &mut self.kernel
            && let Some(fpm) = &mut kernel.fpm
            && kernel
                .spaces
                .iter()
                .all(|space| space.mirror.is_synchronised())
        {
            more |= fpm.poll(&mut self.rib, Instant::now(), &mut of_frr);
        }
        for event in of_frr {
            match event {
                fpm::FpmEvent::Connected(peer) => {
                    eprintln!("fpm: {peer} is connected");
                    self.set_told_by_frr(true);
                }
                fpm::FpmEvent::Refused(peer, why) => eprintln!("fpm: {peer} is refused: {why}"),
                // Before its routes go, the kernel says which it has.
                fpm::FpmEvent::Ended => self.set_told_by_frr(false),
                fpm::FpmEvent::Disconnected(peer, why) => eprintln!("fpm: {peer} has gone: {why}"),
                fpm::FpmEvent::Swept(0) => {}
                fpm::FpmEvent::Swept(routes) => {
                    eprintln!("fpm: {routes} routes were not repeated, and are gone");
                }
            }
        }
        self.schedule.changed();
        more
    }

    /// Whether FRR tells of its routes itself.
    fn set_told_by_frr(&mut self, told: bool) {
        if let Some(kernel) = &mut self.kernel {
            for space in &mut kernel.spaces {
                space.mirror.set_told_by_frr(told);
            }
        }
    }

    /// Does what the kernel's events ask for.
    fn hear(&mut self, all: Vec<NetlinkEvent>) {
        let mut addresses_changed = false;
        for event in all {
            match event {
                NetlinkEvent::HostInterface(id, link) => {
                    if let Some(kernel) = &mut self.kernel
                        && let Some(fpm) = &mut kernel.fpm
                    {
                        fpm.set_interface(&mut self.rib, link.index, id);
                    }
                    self.make_alike(id);
                }
                NetlinkEvent::Device(index, is_host) => {
                    if let Some(kernel) = &mut self.kernel
                        && let Some(fpm) = &mut kernel.fpm
                    {
                        fpm.set_host(&mut self.rib, index, is_host);
                    }
                }
                // It is made again by its port, and said to be there then.
                NetlinkEvent::HostInterfaceGone(id) => {
                    if let Some(kernel) = &mut self.kernel {
                        addresses_changed |= kernel.learned.remove(&id).is_some();
                    }
                    eprintln!(
                        "warning: the host interface of `{}` is gone",
                        self.interface_name(id.0)
                    );
                }
                NetlinkEvent::Addresses(id, addresses) => {
                    if let Some(kernel) = &mut self.kernel {
                        addresses_changed |=
                            kernel.learned.insert(id, addresses.clone()) != Some(addresses);
                    }
                }
                NetlinkEvent::Pinned(id, address, mac) => self.pin(id, address, mac),
                NetlinkEvent::Hosts(hosts) => {
                    for (vrf, hosts) in hosts {
                        self.rib.set_hosts(vrf, &hosts);
                    }
                    self.schedule.changed();
                }
                NetlinkEvent::Synchronised => {}
                NetlinkEvent::Overrun => {
                    eprintln!("warning: the kernel told more than there was room for: all again");
                }
                NetlinkEvent::Lost(why) => {
                    eprintln!("warning: the kernel is not heard any more: {why}")
                }
            }
        }
        if addresses_changed {
            self.renew();
        }
    }

    /// Pins a neighbour, or lets go of it, unless the configuration says otherwise.
    fn pin(&mut self, id: InterfaceId, address: IpAddr, mac: Option<MacAddr>) {
        let mut configured = self.config.neighbours.iter();
        if configured.any(|one| (one.interface, one.address) == (id, address)) {
            return;
        }
        self.rib.neighbour(id, address, mac);
        on_slow(self.workers.slow(), move |slow, egress| {
            slow.pin(id, address, mac, egress)
        });
    }

    /// The addresses of an interface: those configured, and those that its host interface has
    /// besides.
    pub(super) fn addresses_of(&self, id: InterfaceId, configured: &[Cidr]) -> Vec<Cidr> {
        let learned = self
            .kernel
            .as_ref()
            .and_then(|kernel| kernel.learned.get(&id));
        let mut all = configured.to_vec();
        let config = self.config.interfaces.get(usize::from(id.0));
        let is_loopback = config.is_some_and(InterfaceConfig::is_loopback);
        for &cidr in learned.into_iter().flatten() {
            // No network is on a link that there is not.
            let cidr = if is_loopback { cidr.alone() } else { cidr };
            if !all.iter().any(|known| known.address == cidr.address) {
                all.push(cidr);
            }
        }
        all
    }

    /// The addresses that the kernel has for the host interface of an interface.
    fn verified(&self, id: InterfaceId) -> Vec<IpAddr> {
        let learned = (self.kernel.as_ref()).and_then(|kernel| kernel.learned.get(&id));
        let addresses = learned.into_iter().flatten();
        addresses.map(|cidr| cidr.address).collect()
    }

    /// Tells workers and routing of addresses that the kernel has.
    fn renew(&mut self) {
        let mut settings = (*self.settings).clone();
        for (id, interface) in (0..).map(InterfaceId).zip(&mut settings.interfaces) {
            let Some(config) = self.config.interfaces.get(usize::from(id.0)) else {
                continue;
            };
            let addresses = self.addresses_of(id, &config.addresses);
            interface.verified = self.verified(id);
            if addresses != interface.addresses {
                self.rib.addresses(id, &addresses);
                interface.addresses = addresses;
            }
        }
        self.settings = Arc::new(settings);
        self.install(&self.settings.clone());
        self.schedule.changed();
    }

    /// Makes the host interface of an interface look like it.
    pub(super) fn make_alike(&mut self, id: InterfaceId) {
        let number = usize::from(id.0);
        let both = self.config.interfaces.get(number);
        let Some((config, interface)) = both.zip(self.settings.interfaces.get(number)) else {
            return;
        };
        let Some(name) = config.host_interface.clone() else {
            return;
        };
        let netns = self.config.vrfs[config.vrf as usize].netns.clone();
        // A loopback is up as long as there is a router.
        let carrier = config
            .port
            .is_none_or(|port| !self.draining && self.links.get(&port) != Some(&false));
        let like = Attributes {
            mac: interface.mac,
            mtu: interface.mtu.into(),
            up: true,
            addresses: config.addresses.clone(),
        };
        if self.kernel.is_some()
            && let Err(error) = self
                .privileged
                .make_alike(netns.as_deref(), &name, &like, carrier)
        {
            eprintln!("warning: {error}");
        }
    }

    /// Makes all host interfaces look like their interfaces, after a change of these.
    pub(super) fn make_alike_all(&mut self) {
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        let events = kernel.set_host_interfaces(&self.config, &mut self.rib);
        self.hear(events);
        for id in 0..self.config.interfaces.len() as u16 {
            self.make_alike(InterfaceId(id));
        }
    }

    /// Forgets what the kernel had for interfaces whose numbers are another's now.
    pub(super) fn forget_others(&mut self, old: &Config) {
        let name = |config: &Config, id: InterfaceId| {
            let interface = config.interfaces.get(usize::from(id.0))?;
            let netns = config.vrfs[interface.vrf as usize].netns.clone();
            Some((interface.name.clone(), netns))
        };
        if let Some(kernel) = &mut self.kernel {
            let config = &self.config;
            kernel
                .learned
                .retain(|&id, _| name(old, id) == name(config, id));
            let ids = (0..old.interfaces.len() as u16).map(InterfaceId);
            for id in ids.filter(|&id| name(old, id) != name(config, id)) {
                if let Some(fpm) = &mut kernel.fpm {
                    fpm.feed.forget_interface(&mut self.rib, id);
                }
            }
        }
    }

    /// Takes addresses from the host interfaces that the configuration does not have any more.
    pub(super) fn remove_addresses(&mut self, old: &Config) {
        if self.kernel.is_none() {
            return;
        }
        for before in &old.interfaces {
            let now = self
                .config
                .interfaces
                .iter()
                .find(|now| now.name == before.name);
            let (Some(now), Some(name)) = (now, &before.host_interface) else {
                continue;
            };
            let netns = &self.config.vrfs[now.vrf as usize].netns;
            let gone = before
                .addresses
                .iter()
                .filter(|cidr| !now.addresses.contains(cidr));
            for &cidr in gone {
                let removed = self.privileged.remove_address(netns.as_deref(), name, cidr);
                if let Err(error) = removed {
                    eprintln!("warning: {error}");
                }
            }
        }
    }

    /// Settings of a configuration with the addresses that the kernel has besides.
    pub(super) fn with_learned(
        &self,
        mut settings: linerate_routing::plane::settings::Settings,
    ) -> linerate_routing::plane::settings::Settings {
        for (id, interface) in (0..).map(InterfaceId).zip(&mut settings.interfaces) {
            // An interface of another name is another one.
            let before = self.settings.interfaces.get(usize::from(id.0));
            if before.is_some_and(|before| before.name == interface.name) {
                interface.addresses = self.addresses_of(id, &interface.addresses);
                interface.verified = self.verified(id);
            }
        }
        settings
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_space_of_its_own_has_its_main_table_too() {
        let text = "[router]\nkernel = false\n[[vrf]]\nname = \"blue\"\ntable = 10\nnetns = \
            \"blue\"\n[[vrf]]\nname = \"red\"\ntable = 20\n[[port]]\nspec = \"null\"\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(tables(&config, None), [(254, 0), (20, 2)]);
        assert_eq!(tables(&config, Some("blue")), [(10, 1), (254, 1)]);
    }
}
