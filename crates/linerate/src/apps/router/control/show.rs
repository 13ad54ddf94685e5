//! What `linerate ctl show` shows: rows of JSON, with what was left out counted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linerate_wire::rtnetlink;
use serde::Serialize;
use serde_json::{Value, json};

use super::Control;
use super::stage::on_slow;
use crate::apps::router::model::{Cidr, Prefix};
use crate::apps::router::rib::{Shown, ShownWay, Use};
use crate::apps::runtime::Sample;
use crate::nearest::offer;
use crate::socket::Problem;

/// What there is to show.
const WHAT: [&str; 7] = [
    "ports",
    "interfaces",
    "routes",
    "neighbours",
    "drops",
    "lcores",
    "acls",
];
/// Rows at most, whatever a client asks for.
const MOST: u64 = 10_000_000;

/// The answer to `show`.
///
/// # Errors
/// What is unknown, or a filter that fits nothing of the kind.
pub(super) fn show(control: &mut Control, params: &Value) -> Result<Value, Problem> {
    let what = params.get("what").and_then(Value::as_str).unwrap_or("");
    let filter = params.get("filter").and_then(Value::as_str).unwrap_or("");
    let limit = params.get("limit").and_then(Value::as_u64).unwrap_or(1000);
    let rows = Rows::new(limit.min(MOST));
    let rows = match what {
        "ports" => control.ports(rows, filter),
        "interfaces" => control.interfaces(rows, filter),
        "routes" => control.routes(rows, filter)?,
        "neighbours" => control.neighbours(rows, filter),
        "drops" => control.drops(rows, filter),
        "lcores" => control.lcores(rows, filter),
        "acls" => {
            let mut rows = rows;
            control
                .acl_rows(filter)
                .into_iter()
                .for_each(|row| rows.add(row));
            rows
        }
        other => {
            let problem = format!("there is no table `{other}`");
            return Err(Problem::new(problem, offer(other, WHAT)));
        }
    };
    Ok(rows.end())
}

/// Rows under way.
struct Rows {
    rows: Vec<Value>,
    limit: u64,
    more: u64,
    summary: Option<String>,
}

impl Rows {
    fn new(limit: u64) -> Self {
        Self {
            rows: Vec::new(),
            limit,
            more: 0,
            summary: None,
        }
    }

    /// Adds a row while there is room.
    fn add(&mut self, row: impl Serialize) {
        self.add_with(|| row);
    }

    /// Adds the row that `make` makes while there is room.
    fn add_with<R: Serialize>(&mut self, make: impl FnOnce() -> R) {
        if self.rows.len() as u64 >= self.limit {
            self.more += 1;
            return;
        }
        let row = serde_json::to_value(make()).expect("rows have only texts as keys");
        self.rows.push(row);
    }

    fn end(self) -> Value {
        json!({ "rows": self.rows, "more": self.more, "summary": self.summary })
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
    twin: Option<&'a str>,
    /// Whether the kernel has it.
    twin_is_there: Option<bool>,
    in_packets: u64,
    in_bytes: u64,
    out_packets: u64,
    out_bytes: u64,
}

impl Control {
    fn ports(&self, mut rows: Rows, filter: &str) -> Rows {
        let reading = Sample::take(&self.running).since(&self.previous);
        for port in &reading.ports {
            if filter.is_empty() || port.name == filter {
                rows.add(port);
            }
        }
        rows
    }

    fn lcores(&self, mut rows: Rows, filter: &str) -> Rows {
        let now = Sample::take(&self.running);
        // How busy they are now; what they did since the start.
        let (recent, all) = (now.since(&self.previous), now.since(&self.first));
        let last = all.lcores.len() - 1;
        for (index, lcore) in all.lcores.iter().enumerate() {
            if !filter.is_empty() && lcore.load.name != filter {
                continue;
            }
            let mut row = serde_json::to_value(lcore).expect("rows have only texts as keys");
            row["busy_share"] = recent.lcores[index].load.busy_share.into();
            let does = match index == last {
                true => "neighbours, twins, what is for the box",
                false => "forwards",
            };
            row["does"] = does.into();
            rows.add(row);
        }
        rows
    }

    fn interfaces(&self, mut rows: Rows, filter: &str) -> Rows {
        for (interface, config) in self.settings.interfaces.iter().zip(&self.config.interfaces) {
            if config.is_gone() || (!filter.is_empty() && interface.name != filter) {
                continue;
            }
            let open = self.running.port(interface.port);
            let state = match open.map(|open| open.port.link()) {
                None | Some(linerate_core::port::Link::Up) => "up".into(),
                Some(linerate_core::port::Link::Down(why)) => format!("down: {why}"),
            };
            rows.add(InterfaceRow {
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
                twin: config.twin.as_deref(),
                twin_is_there: self.twins.is_there(&interface.name),
                in_packets: self.traffic(&interface.name, |traffic| traffic.in_packets.read()),
                in_bytes: self.traffic(&interface.name, |traffic| traffic.in_bytes.read()),
                out_packets: self.traffic(&interface.name, |traffic| traffic.out_packets.read()),
                out_bytes: self.traffic(&interface.name, |traffic| traffic.out_bytes.read()),
            });
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
        let way = |way: &ShownWay| {
            let name = way.interface.map(|id| self.interface_name(id.0));
            let mut text = match (way.gateway, name) {
                (Some(gateway), Some(name)) => format!("{gateway} on {name}"),
                (Some(gateway), None) => gateway.to_string(),
                (None, Some(name)) => name.to_string(),
                (None, None) => String::new(),
            };
            if way.weight != 1 {
                text += &format!(" x{}", way.weight);
            }
            text
        };
        let kind = Some(route.kind.to_string()).filter(|kind| kind != "via");
        RouteRow {
            vrf,
            prefix: route.prefix.to_string(),
            to: kind.into_iter().chain(route.ways.iter().map(way)).collect(),
            resolved: route.resolved.iter().map(way).collect(),
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
        let all = on_slow(self.slow(), |slow, _| slow.neighbours()).unwrap_or_default();
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

    fn drops(&self, mut rows: Rows, filter: &str) -> Rows {
        // By reason and place, most first.
        let mut all: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (name, _, stats) in self.running.lcores() {
            for (reason, count) in stats.drops() {
                *all.entry((reason, name.into())).or_default() += count;
            }
        }
        for open in self.running.ports() {
            let stats = open.port.stats();
            for (way, drops) in [("rx", &stats.rx_drops), ("tx", &stats.tx_drops)] {
                for (reason, count) in drops.iter().filter(|(_, count)| *count > 0) {
                    let key = (format!("{way}_{reason}"), open.name.clone());
                    *all.entry(key).or_default() += count;
                }
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|((reason, at), count)| {
            (std::cmp::Reverse(*count), reason.clone(), at.clone())
        });
        let total: u64 = all.iter().map(|(_, count)| count).sum();
        for ((reason, at), packets) in all {
            if filter.is_empty() || reason == filter || at == filter {
                rows.add(json!({ "reason": reason, "at": at, "packets": packets }));
            }
        }
        rows.summary = Some(format!("{total} packets dropped since the start"));
        rows
    }
}
