//! From a configuration to what workers know of it: one generation of [`Settings`].

use std::sync::Arc;

use linerate_core::port::PortInfo;
use linerate_wire::MacAddr;
use linerate_wire::ethernet::HEADER_LEN;

use super::host_interfaces::Wanted;
use crate::config::{Acl, Config, InterfaceConfig};
use linerate_appliance::error::Error;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::{AccessList, AclRule};
use linerate_routing::plane::settings::{Interface, NO_PORT, PortMap, Settings};

/// MTU of ports that have no wire: Ethernet's.
const USUAL_MTU: u16 = 1500;

/// What is known of each port, by its number; of numbers that nobody has, nothing.
pub(super) type Infos = [Option<PortInfo>];

/// The port of an interface.
fn port<'a>(interface: &InterfaceConfig, ports: &'a Infos) -> Option<(u16, &'a PortInfo)> {
    let number = interface.port?;
    Some((number, ports.get(usize::from(number))?.as_ref()?))
}

/// The settings that `config` asks for on these ports. `host_interface` says the number of the port
/// that is an interface's host interface; lists of `old` that stay the same are shared with it, and
/// those that were [compiled](compile) before are not compiled here.
///
/// # Errors
/// An access list that takes more memory than there is.
pub(super) fn settings(
    config: &Config,
    ports: &Infos,
    host_interface: impl Fn(&str) -> Option<u16>,
    old: Option<(&Config, &Settings)>,
) -> Result<Settings, Error> {
    let interfaces = (0..)
        .zip(&config.interfaces)
        .map(|(id, interface)| {
            let port = port(interface, ports);
            Interface {
                name: interface.name.clone(),
                port: interface.port.unwrap_or(NO_PORT),
                vlan: interface.vlan,
                vrf: interface.vrf,
                mac: mac(id, port),
                mtu: mtu(interface, port),
                addresses: interface.addresses.clone(),
                verified: Vec::new(),
                host_interface: interface
                    .host_interface
                    .as_ref()
                    .and_then(|_| host_interface(&interface.name)),
                urpf: interface.urpf,
                proxy: interface.proxy,
                answered: interface.answered.clone(),
                redirects: interface.redirects,
                reassemble: interface.reassemble,
                acl_in: interface.acl_in,
                acl_out: interface.acl_out,
                policer: interface.policer,
                advertise: interface.advertise,
            }
        })
        .collect();
    let mut maps = vec![PortMap::default(); ports.len()];
    for (id, interface) in (0..).zip(&config.interfaces) {
        let number = interface.port.map(usize::from);
        let Some(map) = number.and_then(|number| maps.get_mut(number)) else {
            continue;
        };
        let id = InterfaceId(id);
        match interface.vlan {
            None => map.untagged = Some(id),
            Some(vlan) => map.vlans.push((vlan, id)),
        }
    }
    for map in &mut maps {
        map.vlans.sort_unstable();
    }
    let acls = config.acls.iter().enumerate().map(|(number, acl)| {
        let same = old.and_then(|(config, settings)| same(acl, &config.acls, &settings.acls));
        let compiled = || config.lists.get(number).cloned();
        let same = same.map(|(_, list)| list).or_else(compiled);
        same.map_or_else(|| access_list(acl), Ok)
    });
    Ok(Settings {
        interfaces,
        ports: maps,
        acls: acls.collect::<Result<_, Error>>()?,
    })
}

/// Compiles the access lists of a configuration, which takes long where they are: it is done on the
/// thread that reads the file. Lists that are as in `old` are taken from there.
///
/// # Errors
/// An access list that takes more memory than there is.
pub(super) fn compile(
    config: &mut Config,
    (old, lists): (&[Arc<Acl>], &[Arc<AccessList>]),
) -> Result<(), Error> {
    config.lists.clear();
    for acl in &mut config.acls {
        let list = match same(acl, old, lists) {
            Some((known, list)) => {
                // What is the same need not be compared again.
                *acl = known;
                list
            }
            None => access_list(acl)?,
        };
        config.lists.push(list);
    }
    Ok(())
}

/// A list that was compiled before, with what it is of.
fn same(
    acl: &Arc<Acl>,
    known: &[Arc<Acl>],
    lists: &[Arc<AccessList>],
) -> Option<(Arc<Acl>, Arc<AccessList>)> {
    let at = known.iter().position(|known| known == acl)?;
    Some((known[at].clone(), lists.get(at)?.clone()))
}

/// The MAC address and the MTU that an interface has on these ports.
pub(super) fn wire(id: InterfaceId, interface: &InterfaceConfig, ports: &Infos) -> (MacAddr, u16) {
    let port = port(interface, ports);
    (mac(id.0, port), mtu(interface, port))
}

/// The host interfaces that `config` asks for on these ports, in the order of their interfaces.
pub(super) fn host_interfaces(config: &Config, ports: &Infos) -> Vec<Wanted> {
    let wanted = |(id, interface): (u16, &InterfaceConfig)| {
        let port = port(interface, ports);
        Some(Wanted {
            interface: interface.name.clone(),
            name: interface.host_interface.clone()?,
            netns: config.vrfs[interface.vrf as usize].netns.clone(),
            mac: mac(id, port),
            mtu: mtu(interface, port),
        })
    };
    let interfaces = (0..).zip(&config.interfaces);
    interfaces.filter_map(wanted).collect()
}

/// The address of the port of the interface `id`, or one made up for the port, or for the interface
/// where it has none.
fn mac(id: u16, port: Option<(u16, &PortInfo)>) -> MacAddr {
    let made_up = |kind, number: u16| {
        let [high, low] = number.to_be_bytes();
        MacAddr([2, 0, 0, kind, high, low])
    };
    match port {
        Some((number, info)) => info.mac.unwrap_or(made_up(1, number)),
        None => made_up(2, id),
    }
}

/// What the configuration says, or what the port's wire carries.
fn mtu(interface: &InterfaceConfig, port: Option<(u16, &PortInfo)>) -> u16 {
    let Some((_, info)) = port else {
        return USUAL_MTU;
    };
    let most = (info.max_frame_bytes - HEADER_LEN.min(info.max_frame_bytes)).min(65_535) as u16;
    let has_wire = matches!(info.kind, "af_packet" | "af_xdp" | "tap");
    let usual = if has_wire { most } else { USUAL_MTU.min(most) };
    interface.mtu.unwrap_or(usual).min(most)
}

fn access_list(acl: &Acl) -> Result<Arc<AccessList>, Error> {
    let rules = acl.rules.iter().map(|rule| AclRule {
        v4: rule.match4(),
        v6: rule.match6(),
        verdict: rule.action,
        log: rule.log,
    });
    let rules: Vec<AclRule> = rules.collect();
    let list = AccessList::new(&acl.name, acl.default, &rules)?;
    Ok(Arc::new(list.answering(acl.answer)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn info(kind: &'static str, max_frame_bytes: usize) -> PortInfo {
        PortInfo {
            name: kind.into(),
            kind,
            mac: None,
            max_frame_bytes,
            max_rx_queues: 1,
            max_tx_queues: 1,
            numa_node: None,
            tx_offloads: false,
            aligned_pool: false,
            exposed_pool: false,
            facts: Vec::new(),
        }
    }

    fn config(text: &str) -> Config {
        let ports = "[router]\nkernel = false\n[[port]]\nname = \"a\"\nspec = \"ring:a\"\n\
            [[port]]\nname = \"b\"\nspec = \"ring:b\"\n";
        Config::parse(&format!("{ports}{text}")).unwrap()
    }

    #[test]
    fn frames_find_their_interface_by_port_and_tag() {
        let config = config(
            "[[interface]]\nport = \"a\"\nvlan = 20\n[[interface]]\nport = \"a\"\nvlan = 10\n\
             [[interface]]\nport = \"a\"\nname = \"x\"\n",
        );
        let ports = [info("ring", 9014), info("af_packet", 9014)].map(Some);
        let settings = settings(&config, &ports, |_| None, None).unwrap();
        assert_eq!(settings.ports[0].untagged, Some(InterfaceId(2)));
        let vlans = [(10, InterfaceId(1)), (20, InterfaceId(0))];
        assert_eq!(settings.ports[0].vlans, vlans);
        assert_eq!(settings.ports[1].untagged, Some(InterfaceId(3)));
        // Rings have no wire; the other says what its wire carries.
        assert_eq!(settings.interfaces[0].mtu, 1500);
        assert_eq!(settings.interfaces[3].mtu, 9000);
        assert_ne!(settings.interfaces[0].mac, settings.interfaces[3].mac);
    }

    #[test]
    fn lists_that_stay_the_same_are_not_built_again() {
        let acl = "[[acl]]\nname = \"e\"\ndefault = \"deny\"\nrules = [{ action = \"permit\", \
            protocol = \"tcp\", destination_port = \"22\" }]\n";
        let first = config(acl);
        let ports = [info("ring", 1514), info("ring", 1514)].map(Some);
        let old = settings(&first, &ports, |_| None, None).unwrap();
        let second = config(&format!("{acl}[[acl]]\nname = \"f\"\n"));
        let new = settings(&second, &ports, |_| None, Some((&first, &old))).unwrap();
        assert!(Arc::ptr_eq(&old.acls[0], &new.acls[0]));
        assert_eq!(new.acls.len(), 2);
    }
}
