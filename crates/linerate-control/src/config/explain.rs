//! What `--check` prints: the configuration as the router understands it.

use std::fmt::Write;

use linerate_core::env::{Plan, Role};
use serde::Serialize;

use super::{Config, InterfaceConfig, RouteConfig, RouteTo, Via};
use linerate_appliance::output::{Cell, Column, Table, Tone};
use linerate_routing::plane::punt::Reason;
use linerate_routing::plane::settings::Urpf;

/// A configuration as tables and JSON.
#[derive(Debug, Serialize)]
pub struct Explanation {
    ports: Vec<PortRow>,
    interfaces: Vec<InterfaceRow>,
    vrfs: Vec<VrfRow>,
    routes: Vec<RouteRow>,
    neighbours: usize,
    acls: Vec<AclRow>,
    lcores: Vec<LcoreRow>,
    /// Packets a second that one fast worker hands to the slow one at most, by kind.
    punts: Vec<PuntRow>,
    /// The sockets that the router listens on.
    listeners: Vec<String>,
    /// What stanzas of the appliance's own say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    own: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PortRow {
    name: String,
    spec: String,
}

#[derive(Debug, Serialize)]
struct InterfaceRow {
    name: String,
    port: Option<String>,
    vlan: Option<u16>,
    vrf: String,
    addresses: Vec<String>,
    mtu: Option<u16>,
    host_interface: Option<String>,
    /// Functions other than forwarding that are on.
    does: Vec<String>,
}

#[derive(Debug, Serialize)]
struct VrfRow {
    name: String,
    table: Option<u32>,
    netns: Option<String>,
}

#[derive(Debug, Serialize)]
struct RouteRow {
    vrf: String,
    prefix: String,
    to: String,
    distance: u8,
}

#[derive(Debug, Serialize)]
struct AclRow {
    name: String,
    rules: usize,
    default: &'static str,
}

#[derive(Debug, Serialize)]
struct LcoreRow {
    name: String,
    cpu: u32,
    does: String,
}

#[derive(Debug, Serialize)]
struct PuntRow {
    kind: &'static str,
    packets_per_second: u32,
}

/// Explains a configuration, placed by `plan`. `file` names it in warnings.
pub fn explain(config: &Config, plan: &Plan, file: &str) -> Explanation {
    let vrf = |number: u32| config.vrfs[number as usize].name.clone();
    Explanation {
        ports: config
            .ports
            .iter()
            .map(|port| PortRow {
                name: port.name.clone(),
                spec: port.spec.clone(),
            })
            .collect(),
        interfaces: config
            .interfaces
            .iter()
            .map(|interface| InterfaceRow {
                name: interface.name.clone(),
                port: (interface.port).map(|port| config.ports[usize::from(port)].name.clone()),
                vlan: interface.vlan,
                vrf: vrf(interface.vrf),
                addresses: interface
                    .addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                mtu: interface.mtu,
                host_interface: interface.host_interface.clone(),
                does: does(interface, config),
            })
            .collect(),
        vrfs: config
            .vrfs
            .iter()
            .map(|vrf| VrfRow {
                name: vrf.name.clone(),
                table: vrf.table,
                netns: vrf.netns.clone(),
            })
            .collect(),
        routes: config
            .routes
            .iter()
            .map(|route| RouteRow {
                vrf: vrf(route.vrf),
                prefix: route.prefix.to_string(),
                to: leads_to(route, config),
                distance: route.distance,
            })
            .collect(),
        neighbours: config.neighbours.len(),
        acls: config
            .acls
            .iter()
            .map(|acl| AclRow {
                name: acl.name.clone(),
                rules: acl.rules.len(),
                default: acl.default.name(),
            })
            .collect(),
        lcores: lcores(plan),
        punts: Reason::ALL
            .map(|reason| PuntRow {
                kind: reason.name(),
                packets_per_second: config.router.punts.of(reason),
            })
            .into(),
        listeners: listeners(config),
        own: config.appliance.explain(config),
        warnings: config
            .warnings
            .iter()
            .map(|warning| format!("{file}:{warning}"))
            .chain(plan.warnings.iter().map(ToString::to_string))
            .collect(),
    }
}

fn does(interface: &InterfaceConfig, config: &Config) -> Vec<String> {
    let mut does: Vec<String> = Vec::new();
    let acl = |number: u16| &config.acls[usize::from(number)].name;
    if let Some(policer) = interface.policer {
        let mbit = policer.rate_bps as f64 / 1e6;
        does.push(format!("takes at most {mbit} Mbit/s"));
    }
    if let Some(number) = interface.acl_in {
        does.push(format!("acl in {}", acl(number)));
    }
    if let Some(number) = interface.acl_out {
        does.push(format!("acl out {}", acl(number)));
    }
    match interface.urpf {
        Urpf::Off => {}
        Urpf::Loose => does.push("loose uRPF".into()),
        Urpf::Strict => does.push("strict uRPF".into()),
    }
    for (on, what) in [
        (interface.is_loopback(), "loopback"),
        (interface.reassemble, "reassembles"),
        (interface.proxy, "proxy ARP and ND"),
        (interface.advertise.is_some(), "router advertisements"),
        (
            !interface.redirects && !interface.is_loopback(),
            "no redirects",
        ),
    ] {
        if on {
            does.push(what.into());
        }
    }
    does
}

fn leads_to(route: &RouteConfig, config: &Config) -> String {
    let next_hop = |via: &Via| {
        let interface = via
            .interface
            .map(|id| &config.interfaces[usize::from(id.0)].name);
        let mut text = match (via.address, interface) {
            (Some(address), Some(name)) => format!("{address} on {name}"),
            (Some(address), None) => address.to_string(),
            (None, Some(name)) => name.clone(),
            (None, None) => String::new(),
        };
        if via.weight != 1 {
            let _ = write!(text, " x{}", via.weight);
        }
        text
    };
    match &route.to {
        RouteTo::Via(next_hops) => next_hops
            .iter()
            .map(next_hop)
            .collect::<Vec<_>>()
            .join(", "),
        RouteTo::Blackhole => "blackhole".into(),
        RouteTo::Unreachable => "unreachable".into(),
        RouteTo::Prohibit => "prohibit".into(),
    }
}

fn lcores(plan: &Plan) -> Vec<LcoreRow> {
    let mut slow = plan.role(Role::Bg).map(|lcore| &lcore.name).take(1);
    let slow = slow.next();
    let row = |lcore: &linerate_core::env::Placement| LcoreRow {
        name: lcore.name.clone(),
        cpu: lcore.cpu,
        does: match lcore.role {
            Role::Io => "forwards".into(),
            Role::Bg if slow == Some(&lcore.name) => {
                "neighbours, host interfaces, what is for the box".into()
            }
            Role::Bg | Role::Eu => "nothing".into(),
        },
    };
    plan.lcores.iter().map(row).collect()
}

fn listeners(config: &Config) -> Vec<String> {
    let stanza = &config.router;
    let control = stanza
        .control
        .clone()
        .unwrap_or_else(linerate_appliance::socket::usual_socket);
    let mut all = vec![format!("linerate ctl at {}", control.display())];
    if let Some(address) = stanza.metrics {
        all.push(format!("metrics at http://{address}/metrics"));
    }
    if let Some(address) = stanza.fpm {
        all.push(format!("FPM at {address}"));
    }
    all
}

impl Explanation {
    /// For people.
    pub fn text(&self, file: &str, colour: bool) -> String {
        let mut text = format!(
            "{file} is sound: {}, {}, {}, {}\n\n",
            count(self.ports.len(), "port"),
            count(self.interfaces.len(), "interface"),
            count(self.routes.len(), "static route"),
            count(self.acls.len(), "access list"),
        );
        text += &self.interface_table().render(colour);
        if !self.routes.is_empty() {
            text += "\n";
            text += &self.route_table().render(colour);
        }
        text += "\n";
        for port in &self.ports {
            let _ = writeln!(text, "port {}: {}", port.name, port.spec);
        }
        for vrf in self.vrfs.iter().skip(1) {
            let table = vrf
                .table
                .map_or("no kernel table".into(), |table| format!("table {table}"));
            let netns = vrf.netns.as_ref().map_or(String::new(), |netns| {
                format!(", host interfaces in netns {netns}")
            });
            let _ = writeln!(text, "vrf {}: {table}{netns}", vrf.name);
        }
        for acl in &self.acls {
            let rules = count(acl.rules, "rule");
            let _ = writeln!(text, "acl {}: {rules}, then {}", acl.name, acl.default);
        }
        for lcore in &self.lcores {
            let _ = writeln!(
                text,
                "lcore {} on CPU {}: {}",
                lcore.name, lcore.cpu, lcore.does
            );
        }
        let punts = self.punts.iter();
        let punts = punts.map(|punt| format!("{} {}", punt.kind, punt.packets_per_second));
        let punts: Vec<String> = punts.collect();
        let _ = writeln!(
            text,
            "punts a second, from each lcore that forwards: {}",
            punts.join(", ")
        );
        for line in self.own.iter().chain(&self.listeners) {
            let _ = writeln!(text, "{line}");
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "{} {warning}", Tone::Warn.paint("warning:", colour));
        }
        text
    }

    fn interface_table(&self) -> Table {
        let columns = [
            "interface",
            "port",
            "vlan",
            "vrf",
            "addresses",
            "mtu",
            "host_interface",
            "does",
        ];
        let mut table = Table::new(columns.map(Column::text));
        for row in &self.interfaces {
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            table.row([
                Cell::new(&row.name),
                Cell::new(or_dash(row.port.clone())),
                Cell::new(or_dash(row.vlan.map(|vlan| vlan.to_string()))),
                Cell::new(&row.vrf),
                Cell::new(row.addresses.join(" ")),
                Cell::new(row.mtu.map_or("port's".into(), |mtu| mtu.to_string())),
                Cell::new(or_dash(row.host_interface.clone())),
                Cell::new(row.does.join(", ")),
            ]);
        }
        table
    }

    fn route_table(&self) -> Table {
        let mut table = Table::new(["route", "vrf", "to", "distance"].map(Column::text));
        for row in &self.routes {
            table.row([
                Cell::new(&row.prefix),
                Cell::new(&row.vrf),
                Cell::new(&row.to),
                Cell::new(row.distance),
            ]);
        }
        table
    }
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
