//! The tables of a router: those of every run of workers, and its own.

use std::net::IpAddr;

use linerate_core::port::Link;
use linerate_wire::rtnetlink;
use serde::Serialize;
use serde_json::{Value, json};

use super::Control;
use crate::extension::AtWork;
use linerate_appliance::control::show::{self as tables, Found, Rows, Table, value};
use linerate_appliance::control::tables::RunTables;
use linerate_appliance::socket::Problem;
use linerate_routing::model::{Cidr, Prefix};
use linerate_routing::rib::{Shown, ShownNextHop, Use};
use linerate_routing::worker::{RouterStage, on_slow};

/// Where packets came from and what became of them.
const SUMMARY: Table = Table {
    what: "summary",
    names: &["what"],
    counters: &["packets"],
};
const INTERFACES: Table = Table {
    what: "interfaces",
    names: &["name"],
    counters: &[
        "in_packets",
        "in_bytes",
        "out_packets",
        "out_bytes",
        "to_host_packets",
        "to_host_drops",
        "from_host_packets",
    ],
};
const ACLS: Table = Table {
    what: "acls",
    names: &["acl", "rule"],
    counters: &["packets"],
};
/// It may be long, as the next: only rows that are wanted are made.
const ROUTES: Table = Table {
    what: "routes",
    names: &[],
    counters: &[],
};
const NEIGHBOURS: Table = Table {
    what: "neighbours",
    names: &["interface", "address"],
    counters: &[],
};

/// What there is to show.
pub(super) const TABLES: [&Table; 10] = [
    &SUMMARY,
    &Table::PORTS,
    &INTERFACES,
    &ROUTES,
    &NEIGHBOURS,
    &Table::DROPS,
    &Table::LCORES,
    &Table::PATH,
    &Table::LEDGER,
    &ACLS,
];

/// Which routes: those of prefixes with all in them, or those that hold an address.
fn wanted(text: &str) -> Result<Vec<Prefix>, Problem> {
    let all = |address: IpAddr| Prefix::of(address, 0);
    if text.is_empty() {
        let both = [IpAddr::from([0_u8; 4]), IpAddr::from([0_u8; 16])];
        return Ok(both.into_iter().filter_map(all).collect());
    }
    if let Ok(address) = text.parse() {
        return Ok(vec![Prefix::host(address)]);
    }
    match text.parse::<Cidr>() {
        Ok(cidr) => Ok(vec![cidr.network()]),
        Err(problem) => {
            let fix = "name a prefix (10.0.0.0/8) or an address (10.1.2.3)";
            Err(Problem::new(problem, fix))
        }
    }
}

#[derive(Serialize)]
struct RouteRow<'a> {
    vrf: &'a str,
    prefix: String,
    /// What is done, and where it leads as its source said it.
    to: Vec<String>,
    /// Where packets really go.
    resolved: Vec<String>,
    source: &'static str,
    /// Which protocol found it, where another program has put it in.
    protocol: Option<String>,
    distance: u8,
    metric: u32,
    /// `active`, `backup`, or why it is not used.
    state: &'static str,
    /// Whether its source has begun anew and has not repeated it yet.
    stale: bool,
}

#[derive(Serialize)]
struct InterfaceRow<'a> {
    name: &'a str,
    /// A loopback has none.
    port: Option<&'a str>,
    vlan: Option<u16>,
    vrf: &'a str,
    /// `up`, or why not.
    state: String,
    mac: String,
    mtu: u16,
    addresses: Vec<String>,
    host_interface: Option<&'a str>,
    /// Whether the kernel has it.
    host_interface_is_there: Option<bool>,
    in_packets: u64,
    in_bytes: u64,
    out_packets: u64,
    out_bytes: u64,
    /// What the host interface took, did not take, and gave.
    to_host_packets: u64,
    to_host_drops: u64,
    from_host_packets: u64,
}

impl Control {
    /// The rows of a table that `params` ask for.
    ///
    /// # Errors
    /// It is unknown, or a filter fits nothing of the kind.
    pub(super) fn show(&mut self, what: &str, params: &Value) -> Result<Rows, Problem> {
        let own = self.config.appliance.tables();
        let table = Table::find(&[&TABLES, own].concat(), what)?;
        let mut filter = tables::filter(params);
        if own.contains(&table) {
            let (mut rows, at_work) = (Rows::asked(params), self.at_work());
            (self.config.appliance).rows(table, &filter, &at_work, &mut rows)?;
            return Ok(rows);
        }
        match table.what {
            "routes" => return self.routes(Rows::asked(params), &filter),
            "neighbours" => return Ok(self.neighbours(Rows::asked(params), &filter)),
            _ => {}
        }
        let mut found = self.found(table, &mut filter);
        if *table == SUMMARY {
            // What is inside now was never cleared.
            found.rows.extend(self.now());
        }
        Ok(found.asked(table, self.cleared.as_ref(), &filter, params))
    }

    /// All rows of a table, counted since the start.
    pub(super) fn rows(&self, table: &Table) -> Vec<Value> {
        self.found(table, &mut String::new()).rows
    }

    fn found(&self, table: &Table, filter: &mut String) -> Found {
        let rows = match table.what {
            "summary" => {
                return Found {
                    rows: self.balance_rows(),
                    notes: vec![self.state()],
                };
            }
            "interfaces" => self.interfaces(),
            "acls" => self.acl_rows(),
            _ => return self.tables().found(table, filter),
        };
        Found {
            rows,
            ..Found::default()
        }
    }

    /// What the appliance's own tables and metrics see.
    pub(super) fn at_work(&self) -> AtWork<'_> {
        AtWork {
            config: &self.config,
            settings: &self.settings,
            running: &self.workers.running,
            built: self.built.as_ref(),
        }
    }

    /// The tables that every run of workers has.
    fn tables(&self) -> RunTables<'_, RouterStage> {
        let host_interfaces = self.host_interfaces.iter();
        let others = host_interfaces
            .map(|host_interface| (host_interface.wanted.name.as_str(), host_interface.stats()));
        RunTables {
            running: &self.workers.running,
            readings: &self.readings,
            does: |index, count| match index + 1 == count {
                true => "neighbours, host interfaces, what is for the box",
                false => "forwards",
            },
            others: others.collect(),
        }
    }

    /// Forgets what was cleared of counters that a reload has replaced.
    pub(super) fn retain_cleared(&mut self) {
        if let Some(mut cleared) = self.cleared.take() {
            cleared.retain(|table| self.rows(table));
            self.cleared = Some(cleared);
        }
    }

    /// How it is, in a line.
    fn state(&self) -> String {
        let ports = self.workers.running.ports();
        let up = ports.iter().filter(|open| open.port.link() == Link::Up);
        let counts = self.rib.counts();
        let [v4, v6] = counts.routes;
        format!(
            "up {:.1} s; {} of {} ports up; {v4} IPv4 and {v6} IPv6 routes, {} neighbours",
            self.readings.began.elapsed().as_secs_f64(),
            up.count(),
            ports.len(),
            counts.neighbours
        )
    }

    fn interfaces(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for (interface, config) in self.settings.interfaces.iter().zip(&self.config.interfaces) {
            if config.is_gone() {
                continue;
            }
            let host = self
                .host_interfaces
                .stats_of(&interface.name)
                .unwrap_or_default();
            let open = self.workers.running.port(interface.port);
            let state = match open.map(|open| open.port.link()) {
                None | Some(Link::Up) => "up".into(),
                Some(Link::Down(why)) => format!("down: {why}"),
            };
            rows.push(value(InterfaceRow {
                name: &interface.name,
                port: open.map(|open| open.name.as_str()),
                vlan: interface.vlan,
                vrf: &self.config.vrfs[interface.vrf as usize].name,
                state,
                mac: interface.mac.to_string(),
                mtu: interface.mtu,
                addresses: interface
                    .addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                host_interface: config.host_interface.as_deref(),
                host_interface_is_there: self.host_interfaces.is_there(&interface.name),
                in_packets: self
                    .workers
                    .traffic(&interface.name, |traffic| traffic.in_packets.read()),
                in_bytes: self
                    .workers
                    .traffic(&interface.name, |traffic| traffic.in_bytes.read()),
                out_packets: self
                    .workers
                    .traffic(&interface.name, |traffic| traffic.out_packets.read()),
                out_bytes: self
                    .workers
                    .traffic(&interface.name, |traffic| traffic.out_bytes.read()),
                to_host_packets: host.tx_packets,
                to_host_drops: host.tx_drops.iter().map(|(_, count)| count).sum(),
                from_host_packets: host.rx_packets,
            }));
        }
        rows
    }

    fn routes(&self, mut rows: Rows, filter: &str) -> Result<Rows, Problem> {
        let whole = filter.contains('/') || filter.is_empty();
        let vrfs = (0..).zip(&self.config.vrfs);
        for (number, vrf) in vrfs.filter(|(_, vrf)| !vrf.is_gone()) {
            for prefix in wanted(filter)? {
                for route in self.rib.show(number, prefix) {
                    // Those that hold a prefix are not in it.
                    if !whole || route.prefix.len() >= prefix.len() {
                        rows.add_with(|| self.route_row(&vrf.name, &route));
                    }
                }
            }
        }
        let counts = self.rib.counts();
        let [v4, v6] = counts.routes;
        let hops = counts.hops;
        let mut summary = format!("{v4} IPv4 and {v6} IPv6 routes of all feeds, {hops} hops");
        if counts.turned_away > 0 {
            summary += &format!(
                ", {} turned away: raise [router] routes",
                counts.turned_away
            );
        }
        rows.notes.push(summary);
        Ok(rows)
    }

    fn route_row<'a>(&self, vrf: &'a str, route: &Shown) -> RouteRow<'a> {
        let next_hop = |next_hop: &ShownNextHop| {
            let name = next_hop.interface.map(|id| self.interface_name(id.0));
            let mut text = match (next_hop.gateway, name) {
                (Some(gateway), Some(name)) => format!("{gateway} on {name}"),
                (Some(gateway), None) => gateway.to_string(),
                (None, Some(name)) => name.to_string(),
                (None, None) => String::new(),
            };
            if next_hop.weight != 1 {
                text += &format!(" x{}", next_hop.weight);
            }
            text
        };
        let kind = Some(route.kind.to_string()).filter(|kind| kind != "via");
        RouteRow {
            vrf,
            prefix: route.prefix.to_string(),
            to: kind
                .into_iter()
                .chain(route.next_hops.iter().map(next_hop))
                .collect(),
            resolved: route.resolved.iter().map(next_hop).collect(),
            source: route.key.source.name(),
            protocol: match route.key.protocol {
                0 => None,
                number => Some(
                    rtnetlink::protocol_name(number)
                        .map_or_else(|| number.to_string(), str::to_string),
                ),
            },
            distance: route.key.distance,
            metric: route.key.metric,
            state: match route.used {
                Use::Best => "active",
                Use::Backup => "backup",
                Use::No(why) => why.reason(),
            },
            stale: route.stale,
        }
    }

    fn neighbours(&self, mut rows: Rows, filter: &str) -> Rows {
        let all = on_slow(self.workers.slow(), |slow, _| slow.neighbours()).unwrap_or_default();
        for neighbour in all {
            let interface = self.interface_name(neighbour.interface);
            let address = neighbour.address.to_string();
            if filter.is_empty() || interface == filter || address == filter {
                rows.add_with(|| {
                    json!({
                        "address": address,
                        "mac": neighbour.mac.map(|mac| mac.to_string()),
                        "interface": interface,
                        "state": format!("{:?}", neighbour.state).to_lowercase(),
                        "router": neighbour.is_router,
                        "queued": neighbour.queued_pkts,
                    })
                });
            }
        }
        rows
    }
}
