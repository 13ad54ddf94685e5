//! The configuration file: `[plan]`, `[[port]]`, `[l3fwd]`, and the entries of the table as
//! `[[route]]`, `[[flow]]` or `[[rule]]`.
//!
//! ```toml
//! [l3fwd]
//! lookup = "lpm"                       # rule_ipv4 = "v4.cfg" reads a file of DPDK's besides
//! eth_dest = ["lan,02:00:00:00:00:fe"]
//!
//! [[route]]                            # lookup lpm and fib
//! destination = "198.18.0.0/24"
//! port = "lan"                         # or its number
//! mac = "02:00:00:00:00:fd"            # of the next hop, where it is not the port's
//!
//! [[flow]]                             # lookup em
//! destination = "198.18.0.0"
//! source = "198.18.0.1"
//! destination_port = 9                 # 0 where the protocol has none
//! source_port = 9
//! protocol = "udp"                     # or 17
//! port = 0
//!
//! [[rule]]                             # lookup acl; the first that matches wins
//! source = "192.0.2.0/24"              # absent: any
//! destination = "198.18.0.0/24"
//! source_ports = "1024-65535"
//! destination_ports = 80
//! protocol = "tcp"
//! port = 1                             # or deny = true
//! ```
//!
//! Whether an entry is IPv4 or IPv6 its addresses say.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use linerate_wire::MacAddr;

use super::rules::{AclText, Family, FlowText, NextHops, Place, Ports, Problems, Rules, Wrong};
use super::{Mode, Tables};
use linerate_appliance::config::{self, PlanStanza, PortStanza};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::RunKeys;

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) plan: Option<PlanStanza>,
    #[serde(default)]
    pub(super) port: Vec<PortStanza>,
    #[serde(default)]
    pub(super) l3fwd: Stanza,
    #[serde(default)]
    route: Vec<Spanned<Route>>,
    #[serde(default)]
    flow: Vec<Spanned<Flow>>,
    #[serde(default)]
    rule: Vec<Spanned<Rule>>,
}

/// `[l3fwd]`: the options under their own names; the command line goes before.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Stanza {
    pub(super) lookup: Option<Mode>,
    pub(super) rule_ipv4: Option<PathBuf>,
    pub(super) rule_ipv6: Option<PathBuf>,
    pub(super) eth_dest: Vec<String>,
    pub(super) eth_src: Vec<String>,
    period: Option<f64>,
    duration: Option<f64>,
    queues: Option<u16>,
    burst: Option<u16>,
    pool_slots: Option<u32>,
    sleep: Option<bool>,
    control: Option<PathBuf>,
    metrics: Option<SocketAddr>,
}

impl Stanza {
    pub(super) fn run(&self) -> RunKeys {
        RunKeys {
            period: self.period,
            duration: self.duration,
            queues: self.queues,
            burst: self.burst,
            pool_slots: self.pool_slots,
            sleep: self.sleep,
            control: self.control.clone(),
            metrics: self.metrics,
        }
    }
}

/// A number, or what stands for one.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number or a string")]
enum Value {
    Number(u64),
    Text(String),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// `[[route]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    destination: String,
    port: Value,
    mac: Option<String>,
}

/// `[[flow]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flow {
    destination: String,
    source: String,
    destination_port: Value,
    source_port: Value,
    protocol: Value,
    port: Value,
    mac: Option<String>,
}

/// `[[rule]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    source: Option<String>,
    destination: Option<String>,
    source_ports: Option<Value>,
    destination_ports: Option<Value>,
    protocol: Option<Value>,
    port: Option<Value>,
    #[serde(default)]
    deny: bool,
    mac: Option<String>,
}

/// Reads the file, and the text of which its entries' lines are counted.
pub(super) fn read(path: &Path) -> Result<(File, String), Error> {
    config::read_text(path)
}

impl File {
    /// Adds the file's entries to `tables`; what is wrong goes to `problems`.
    pub(super) fn entries(
        &self,
        path: &Path,
        text: &str,
        mode: Mode,
        ports: &Ports,
        tables: &mut Tables,
        problems: &mut Problems,
    ) {
        let source = problems.source(path.display().to_string());
        let mut reader = Reader {
            source,
            text,
            ports,
            hops: &mut tables.hops,
            problems,
        };
        let wanted = match mode {
            Mode::Lpm | Mode::Fib => "[[route]]",
            Mode::Em => "[[flow]]",
            Mode::Acl => "[[rule]]",
        };
        for route in &self.route {
            let place = reader.place(route);
            if wanted == "[[route]]" {
                let route = route.get_ref();
                let hop = reader.hop(place, &route.port, route.mac.as_deref());
                let (text, problems) = (&route.destination, &mut *reader.problems);
                match text.contains(':') {
                    false => tables.v4.route(place, text, hop, problems),
                    true => tables.v6.route(place, text, hop, problems),
                }
            } else {
                reader.unwanted(place, "[[route]]", mode, wanted);
            }
        }
        for flow in &self.flow {
            let place = reader.place(flow);
            if wanted == "[[flow]]" {
                let flow = flow.get_ref();
                match flow.destination.contains(':') {
                    false => reader.flow(place, flow, &mut tables.v4),
                    true => reader.flow(place, flow, &mut tables.v6),
                }
            } else {
                reader.unwanted(place, "[[flow]]", mode, wanted);
            }
        }
        for rule in &self.rule {
            let place = reader.place(rule);
            if wanted == "[[rule]]" {
                reader.rule(place, rule.get_ref(), &mut tables.v4, &mut tables.v6);
            } else {
                reader.unwanted(place, "[[rule]]", mode, wanted);
            }
        }
    }
}

/// What reading an entry takes besides the entry.
struct Reader<'a> {
    source: usize,
    text: &'a str,
    ports: &'a Ports,
    hops: &'a mut NextHops,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    /// The line in which an entry begins.
    fn place<T>(&self, entry: &Spanned<T>) -> Place {
        let before = self.text.get(..entry.span().start).unwrap_or_default();
        Place {
            source: self.source,
            line: 1 + before.bytes().filter(|&byte| byte == b'\n').count(),
        }
    }

    fn unwanted(&mut self, place: Place, kind: &str, mode: Mode, wanted: &str) {
        let wrong = Wrong::new(
            format!("{kind} is no entry for lookup {mode}"),
            format!("write {wanted} entries, or choose another lookup"),
        );
        self.problems.add(place, wrong);
    }

    /// The next hop out of a port, if all is right with it.
    fn hop(&mut self, place: Place, port: &Value, mac: Option<&str>) -> Option<u32> {
        let port = self.ports.find(&port.text());
        let mac = mac.map(|text| {
            text.parse::<MacAddr>()
                .map_err(|error| Wrong::new(format!("mac `{text}` is none"), error.to_string()))
        });
        match (port, mac.transpose()) {
            (Ok(port), Ok(mac)) => Some(self.hops.number(port, mac)),
            (port, mac) => {
                for wrong in [port.err(), mac.err()].into_iter().flatten() {
                    self.problems.add(place, wrong);
                }
                None
            }
        }
    }

    fn flow<A: Family<W>, const W: usize>(
        &mut self,
        place: Place,
        flow: &Flow,
        rules: &mut Rules<A, W>,
    ) {
        let hop = self.hop(place, &flow.port, flow.mac.as_deref());
        let text = FlowText {
            dst: &flow.destination,
            src: &flow.source,
            dst_port: &flow.destination_port.text(),
            src_port: &flow.source_port.text(),
            protocol: &flow.protocol.text(),
        };
        rules.flow(place, text, hop, self.problems);
    }

    /// An entry without addresses is one for each family.
    fn rule(&mut self, place: Place, rule: &Rule, v4: &mut Rules<u32, 1>, v6: &mut Rules<u128, 4>) {
        let hop = match (&rule.port, rule.deny) {
            (Some(port), false) => self.hop(place, port, rule.mac.as_deref()),
            (None, true) => Some(self.hops.denied()),
            _ => {
                let wrong = Wrong::new(
                    "the rule says neither where to, nor deny, or both",
                    "give it either a port or deny = true",
                );
                self.problems.add(place, wrong);
                None
            }
        };
        let addresses = [&rule.source, &rule.destination];
        let has = |colon: bool| {
            let mut addresses = addresses.into_iter().flatten();
            addresses.any(|address| address.contains(':') == colon)
        };
        let (is_v4, is_v6) = (has(false), has(true));
        if is_v4 || !is_v6 {
            self.one_rule(place, rule, hop, "0.0.0.0/0", v4);
        }
        if is_v6 || !is_v4 {
            self.one_rule(place, rule, hop, "::/0", v6);
        }
    }

    fn one_rule<A: Family<W>, const W: usize>(
        &mut self,
        place: Place,
        rule: &Rule,
        hop: Option<u32>,
        any: &str,
        rules: &mut Rules<A, W>,
    ) {
        let [src_ports, dst_ports] = [&rule.source_ports, &rule.destination_ports].map(|ports| {
            let text = ports.as_ref().map_or("0-65535".into(), Value::text);
            match text.split_once('-') {
                Some((first, last)) => [first, last].map(|port| port.trim().to_owned()),
                None => [text.clone(), text],
            }
        });
        let protocol = rule.protocol.as_ref().map_or("0/0".into(), Value::text);
        let text = AclText {
            src: rule.source.as_deref().unwrap_or(any),
            dst: rule.destination.as_deref().unwrap_or(any),
            src_ports: [&src_ports[0], &src_ports[1]],
            dst_ports: [&dst_ports[0], &dst_ports[1]],
            protocol: &protocol,
        };
        rules.acl(place, text, hop, self.problems);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entries(mode: Mode, text: &str) -> (Tables, Result<(), Error>) {
        let file: File = toml::from_str(text).unwrap();
        let ports = Ports(["wan", "lan"].map(String::from).into());
        let (mut tables, mut problems) = (Tables::new(2), Problems::default());
        file.entries(
            Path::new("t.toml"),
            text,
            mode,
            &ports,
            &mut tables,
            &mut problems,
        );
        (tables, problems.result())
    }

    #[test]
    fn routes_and_next_hops_of_both_families() {
        let text = "[[route]]\ndestination = \"198.18.0.0/24\"\nport = \"lan\"\n\
                    [[route]]\ndestination = \"::/0\"\nport = 0\nmac = \"02:00:00:00:00:fd\"\n";
        let (tables, result) = entries(Mode::Lpm, text);
        result.unwrap();
        assert_eq!(tables.v4.routes, [("198.18.0.0/24".parse().unwrap(), 1)]);
        // Behind the two ports, and what is denied.
        assert_eq!(tables.v6.routes, [("::/0".parse().unwrap(), 3)]);
    }

    #[test]
    fn a_rule_without_addresses_is_for_both_families() {
        let text = "[[rule]]\ndestination_ports = 80\nprotocol = \"tcp\"\nport = 1\n\
                    [[rule]]\nsource = \"2001:db8::/32\"\nsource_ports = \"1-9\"\ndeny = true\n\
                    [[rule]]\ndeny = true\n";
        let (tables, result) = entries(Mode::Acl, text);
        result.unwrap();
        assert_eq!((tables.v4.acl.len(), tables.v6.acl.len()), (2, 3));
        assert_eq!(tables.v4.acl[0].0.dst_ports.low(), 80);
        assert_eq!(tables.v6.acl[1].0.src_ports.high(), 9);
        assert_eq!(tables.v6.acl[2].1, tables.hops.denied());
    }

    #[test]
    fn problems_name_the_line_of_the_entry() {
        let text = "# comment\n[[route]]\ndestination = \"198.18.0.0/24\"\nport = 0\n\n\
                    [[route]]\ndestination = \"198.18.0.0\"\nport = \"dmz\"\nmac = \"x\"\n\
                    [[flow]]\ndestination=\"1.1.1.1\"\nsource=\"1.1.1.2\"\ndestination_port=1\n\
                    source_port=1\nprotocol=6\nport=1\n";
        let (tables, result) = entries(Mode::Lpm, text);
        assert_eq!(tables.v4.len(), 1);
        // The last of four; the others were printed.
        let error = result.unwrap_err();
        assert_eq!(
            error.to_string(),
            "t.toml:10: [[flow]] is no entry for lookup lpm"
        );
        let (_, result) = entries(Mode::Acl, "[[rule]]\nport = 0\ndeny = true\n");
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("t.toml:1: the rule says")
        );
    }
}
