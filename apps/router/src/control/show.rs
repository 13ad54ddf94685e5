//! What `linerate ctl show` shows: rows of JSON, with what was left out counted.

use std::net::IpAddr;
use std::time::Instant;

use linerate_core::port::Link;
use linerate_wire::rtnetlink;
use serde::Serialize;
use serde_json::{Value, json};

use super::Control;
use super::cleared::{COUNTED, Cleared, Counted};
use linerate_appliance::control::show::{self as tables, Rows, value};
use linerate_appliance::control::{ledger, path};
use linerate_appliance::nearest::offer;
use linerate_appliance::socket::Problem;
use linerate_routing::model::{Cidr, Prefix};
use linerate_routing::rib::{Shown, ShownNextHop, Use};
use linerate_routing::worker::on_slow;

/// What there is to show.
const WHAT: [&str; 10] = [
    "summary",
    "ports",
    "interfaces",
    "routes",
    "neighbours",
    "drops",
    "lcores",
    "path",
    "ledger",
    "acls",
];

/// The answer to `show`.
///
/// # Errors
/// What is unknown, or a filter that fits nothing of the kind.
pub(super) fn show(control: &mut Control, params: &Value) -> Result<Value, Problem> {
    let what = params.get("what").and_then(Value::as_str).unwrap_or("");
    let mut filter = params.get("filter").and_then(Value::as_str).unwrap_or("");
    if (what, filter) == ("path", "cycles") {
        path::measure(&control.workers.running);
        filter = "";
    }
    let rows = Rows::asked(params);
    let rows = match what {
        "routes" => control.routes(rows, filter)?,
        "neighbours" => control.neighbours(rows, filter),
        "ledger" => control.ledger(rows, filter),
        what => match COUNTED.iter().find(|table| table.what == what) {
            Some(table) => control.counted(table, rows, filter),
            None => {
                let problem = format!("there is no table `{what}`");
                return Err(Problem::new(problem, offer(what, WHAT)));
            }
        },
    };
    Ok(rows.end())
}

/// The answer to `clear`: from now on tables show what was counted since.
///
/// # Errors
/// There is nothing of that name to clear.
pub(super) fn clear(control: &mut Control, params: &Value) -> Result<Value, Problem> {
    match params.get("what").and_then(Value::as_str) {
        Some("counters") => {
            let cleared = Cleared::new(Instant::now(), |table| control.rows(table));
            control.cleared = Some(cleared);
            Ok(json!({ "text": "counters are shown from 0; the metrics page goes on" }))
        }
        other => {
            let problem = format!("there is no `{}` to clear", other.unwrap_or(""));
            Err(Problem::new(problem, "clear counters"))
        }
    }
}

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
    /// A table of counters: since they were cleared, if they were.
    fn counted(&self, table: &Counted, mut rows: Rows, filter: &str) -> Rows {
        let mut all = self.rows(table);
        if let Some(cleared) = &self.cleared {
            cleared.subtract(table, &mut all);
        }
        let mut notes = Vec::new();
        match table.what {
            "drops" => {
                notes.push(tables::most_first(&mut all));
            }
            "ports" => {
                notes.extend(tables::warnings(&self.workers.running));
            }
            "path" => {
                notes.extend(path::warnings(&all));
            }
            "summary" => {
                all.extend(self.now());
                notes.push(self.state());
            }
            _ => {}
        }
        if let Some(cleared) = &self.cleared {
            let seconds = cleared.at.elapsed().as_secs_f64();
            notes.push(format!(
                "counted since they were cleared, {seconds:.1} s ago"
            ));
        }
        let wanted =
            |row: &Value| filter.is_empty() || table.names.iter().any(|name| row[*name] == *filter);
        for row in all.into_iter().filter(|row| wanted(row)) {
            rows.add_with(|| row);
        }
        rows.summary = (!notes.is_empty()).then(|| notes.join("\n"));
        rows
    }

    /// All rows of a table of counters, since the start.
    fn rows(&self, table: &Counted) -> Vec<Value> {
        match table.what {
            "summary" => self.balance_rows(),
            "ports" => tables::ports(&self.workers.running, &self.readings.previous),
            "interfaces" => self.interfaces(),
            "drops" => self.drops(),
            "lcores" => self.lcores(),
            "path" => path::stages(&self.workers.running)
                .iter()
                .map(value)
                .collect(),
            _ => self.acl_rows(),
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

    fn lcores(&self) -> Vec<Value> {
        let does = |index, count| match index + 1 == count {
            true => "neighbours, host interfaces, what is for the box",
            false => "forwards",
        };
        tables::lcores(
            &self.workers.running,
            &self.readings.first,
            &self.readings.previous,
            does,
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
        rows.summary = Some(summary);
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

    fn ledger(&self, mut rows: Rows, filter: &str) -> Rows {
        let (all, verdict) = ledger::rows(&self.workers.running.balance());
        for row in all {
            if filter.is_empty() || row["holder"] == *filter {
                rows.add_with(|| row);
            }
        }
        rows.summary = Some(verdict);
        rows
    }

    fn drops(&self) -> Vec<Value> {
        let host_interfaces = self.host_interfaces.iter();
        let host_interfaces = host_interfaces
            .map(|host_interface| (host_interface.wanted.name.as_str(), host_interface.stats()));
        tables::drops(&self.workers.running, host_interfaces)
    }
}
