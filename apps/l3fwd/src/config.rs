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

use std::path::PathBuf;

use linerate_wire::MacAddr;

use super::rules::{AclText, Family, FlowText, NextHops, Place, Ports, Problems, Rules, WrongKey};
use super::{Mode, Tables};
use linerate_appliance::config::{At, Section};
use linerate_appliance::runtime::RunFile;

/// The file as it is written.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) all: RunFile,
    pub(super) own: Stanza,
    routes: Vec<Route>,
    flows: Vec<Flow>,
    rules: Vec<Rule>,
}

/// `[l3fwd]`: the options under their own names; the command line goes before.
#[derive(Debug, Default)]
pub(super) struct Stanza {
    pub(super) lookup: Option<Mode>,
    pub(super) rule_ipv4: Option<PathBuf>,
    pub(super) rule_ipv6: Option<PathBuf>,
    pub(super) eth_dest: Vec<At<String>>,
    pub(super) eth_src: Vec<At<String>>,
}

/// `[[route]]`.
#[derive(Debug)]
struct Route {
    line: usize,
    destination: At<String>,
    out: Out,
}

/// `[[flow]]`.
#[derive(Debug)]
struct Flow {
    line: usize,
    destination: At<String>,
    source: At<String>,
    destination_port: At<String>,
    source_port: At<String>,
    protocol: At<String>,
    out: Out,
}

/// `[[rule]]`.
#[derive(Debug)]
struct Rule {
    line: usize,
    source: Option<At<String>>,
    destination: Option<At<String>>,
    source_ports: Option<At<String>>,
    destination_ports: Option<At<String>>,
    protocol: Option<At<String>>,
    deny: bool,
    out: Option<Out>,
}

/// Where an entry leads: a port and perhaps a station behind it.
#[derive(Debug)]
struct Out {
    port: At<String>,
    mac: Option<MacAddr>,
}

const PREFIX: &str = "a prefix such as \"198.18.0.0/24\"";
const ADDRESS: &str = "an address such as \"198.18.0.1\"";
const PORT: &str = "a port's name or number";
const L4_PORT: &str = "a number from 0 to 65535";
const L4_PORTS: &str = "a number from 0 to 65535, or a range such as \"1024-65535\"";
const PROTOCOL: &str = "0 to 255, or icmp, tcp, udp, icmpv6 or sctp";

impl File {
    /// What can be made of a file; what cannot is noted.
    pub(super) fn read(file: &Section<'_>) -> Self {
        let (all, own) = RunFile::read(file, "l3fwd", Stanza::read);
        let tables = |key| file.tables(key, &format!("tables: [[{key}]]"));
        let all = Self {
            all,
            own,
            routes: tables("route").iter().filter_map(Route::read).collect(),
            flows: tables("flow").iter().filter_map(Flow::read).collect(),
            rules: tables("rule").iter().filter_map(Rule::read).collect(),
        };
        file.end();
        all
    }
}

impl Stanza {
    fn read(section: &Section<'_>) -> Self {
        let file = |key| {
            let path = section.text(key, "a path such as \"v4.cfg\"");
            path.map(|at| PathBuf::from(at.value))
        };
        let lookups = Mode::ALL.map(|mode| (mode.name(), mode));
        let texts = |key| {
            let legal = "a list such as [\"0,02:00:00:00:00:fe\"]";
            section.texts(key, legal, |text| Ok(text.to_owned()))
        };
        Self {
            lookup: section.choice("lookup", &lookups).map(|at| at.value),
            rule_ipv4: file("rule_ipv4"),
            rule_ipv6: file("rule_ipv6"),
            eth_dest: texts("eth_dest"),
            eth_src: texts("eth_src"),
        }
    }
}

impl Out {
    fn read(section: &Section<'_>) -> Option<Self> {
        let (port, mac) = (section.required_scalar("port", PORT), Self::mac(section));
        Some(Self { port: port?, mac })
    }

    fn mac(section: &Section<'_>) -> Option<MacAddr> {
        let legal = "an address such as \"02:00:00:00:00:fd\"";
        section.parsed("mac", legal).map(|at| at.value)
    }
}

impl Route {
    fn read(section: &Section<'_>) -> Option<Self> {
        let destination = section.required("destination", PREFIX);
        let out = Out::read(section);
        section.end();
        Some(Self {
            line: section.line,
            destination: destination?,
            out: out?,
        })
    }
}

impl Flow {
    fn read(section: &Section<'_>) -> Option<Self> {
        let destination = section.required("destination", ADDRESS);
        let source = section.required("source", ADDRESS);
        let destination_port = section.required_scalar("destination_port", L4_PORT);
        let source_port = section.required_scalar("source_port", L4_PORT);
        let protocol = section.required_scalar("protocol", PROTOCOL);
        let out = Out::read(section);
        section.end();
        Some(Self {
            line: section.line,
            destination: destination?,
            source: source?,
            destination_port: destination_port?,
            source_port: source_port?,
            protocol: protocol?,
            out: out?,
        })
    }
}

impl Rule {
    fn read(section: &Section<'_>) -> Option<Self> {
        let deny = section.switch("deny").is_some_and(|at| at.value);
        let (port, mac) = (section.scalar("port", PORT), Out::mac(section));
        if section.has("port") == deny {
            let problem = "the rule says neither where to, nor deny, or both";
            let legal = "give it either a port or deny = true";
            section.wrong(section.line, "port", problem, legal);
        }
        let rule = Self {
            line: section.line,
            source: section.text("source", PREFIX),
            destination: section.text("destination", PREFIX),
            source_ports: section.scalar("source_ports", L4_PORTS),
            destination_ports: section.scalar("destination_ports", L4_PORTS),
            protocol: section.scalar("protocol", PROTOCOL),
            deny,
            out: port.map(|port| Out { port, mac }),
        };
        section.end();
        Some(rule)
    }
}

/// The text of a field.
fn text(at: &At<String>) -> At<&str> {
    At {
        value: &at.value,
        line: at.line,
    }
}

impl File {
    /// Adds the file's entries to `tables`; what is wrong goes to `problems`, as of `source`.
    pub(super) fn entries(
        &self,
        source: usize,
        mode: Mode,
        ports: &Ports,
        tables: &mut Tables,
        problems: &mut Problems,
    ) {
        let Tables { hops, v4, v6 } = tables;
        let mut reader = Reader {
            source,
            mode,
            ports,
            hops,
            problems,
        };
        for route in &self.routes {
            if let Some(place) = reader.wanted(route.line, "route.") {
                let hop = reader.hop(place, &route.out);
                let (destination, problems) = (text(&route.destination), &mut *reader.problems);
                match destination.value.contains(':') {
                    false => v4.route(place, destination, hop, problems),
                    true => v6.route(place, destination, hop, problems),
                }
            }
        }
        for flow in &self.flows {
            if let Some(place) = reader.wanted(flow.line, "flow.") {
                match flow.destination.value.contains(':') {
                    false => reader.flow(place, flow, v4),
                    true => reader.flow(place, flow, v6),
                }
            }
        }
        for rule in &self.rules {
            if let Some(place) = reader.wanted(rule.line, "rule.") {
                reader.rule(place, rule, v4, v6);
            }
        }
    }
}

/// What reading an entry takes besides the entry.
struct Reader<'a> {
    source: usize,
    mode: Mode,
    ports: &'a Ports,
    hops: &'a mut NextHops,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    /// Where an entry stands, if it is of the kind that the lookup takes.
    fn wanted(&mut self, line: usize, entry: &'static str) -> Option<Place> {
        let place = Place {
            source: self.source,
            line,
            entry,
        };
        let wanted = match self.mode {
            Mode::Lpm | Mode::Fib => "route.",
            Mode::Em => "flow.",
            Mode::Acl => "rule.",
        };
        if entry == wanted {
            return Some(place);
        }
        let name = |entry: &str| format!("[[{}]]", entry.trim_end_matches('.'));
        let problem = format!("this is no entry for lookup {}", self.mode);
        let legal = format!("write {} entries, or choose another lookup", name(wanted));
        self.problems.add(place, WrongKey::new("", problem, legal));
        None
    }

    /// The next hop out of a port, if there is such a port.
    fn hop(&mut self, place: Place, out: &Out) -> Option<u32> {
        let port = self
            .problems
            .take(place, text(&out.port), |port| self.ports.find(port))?;
        Some(self.hops.number(port, out.mac))
    }

    fn flow<A: Family<W>, const W: usize>(
        &mut self,
        place: Place,
        flow: &Flow,
        rules: &mut Rules<A, W>,
    ) {
        let hop = self.hop(place, &flow.out);
        let fields = FlowText {
            dst: text(&flow.destination),
            src: text(&flow.source),
            dst_port: text(&flow.destination_port),
            src_port: text(&flow.source_port),
            protocol: text(&flow.protocol),
        };
        rules.flow(place, fields, hop, self.problems);
    }

    /// An entry without addresses is one for each family.
    fn rule(&mut self, place: Place, rule: &Rule, v4: &mut Rules<u32, 1>, v6: &mut Rules<u128, 4>) {
        let hop = match (&rule.out, rule.deny) {
            (Some(out), false) => self.hop(place, out),
            (None, true) => Some(self.hops.denied()),
            // It was told of when the file was read.
            _ => None,
        };
        let addresses = [&rule.source, &rule.destination];
        let has = |colon: bool| {
            let mut addresses = addresses.into_iter().flatten();
            addresses.any(|address| address.value.contains(':') == colon)
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
        let line = place.line;
        fn or<'a>(at: &'a Option<At<String>>, line: usize, value: &'a str) -> At<&'a str> {
            at.as_ref().map_or(At { value, line }, text)
        }
        let ports = |ports| {
            let At { value, line } = or(ports, line, "0-65535");
            let (first, last) = value.split_once('-').unwrap_or((value, value));
            let value = [first.trim(), last.trim()];
            At { value, line }
        };
        let fields = AclText {
            src: or(&rule.source, line, any),
            dst: or(&rule.destination, line, any),
            src_ports: ports(&rule.source_ports),
            dst_ports: ports(&rule.destination_ports),
            protocol: or(&rule.protocol, line, "0/0"),
        };
        rules.acl(place, fields, hop, self.problems);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_appliance::config;
    use linerate_appliance::error::Error;

    fn entries(mode: Mode, text: &str) -> (Tables, Result<(), Error>) {
        let parsed = config::parse(text, File::read);
        let ports = Ports(["wan", "lan"].map(String::from).into());
        let (mut tables, mut problems) = (Tables::new(2), Problems::default());
        let source = problems.source("t.toml");
        problems.found(source, parsed.errors);
        let file = parsed.value;
        file.entries(source, mode, &ports, &mut tables, &mut problems);
        (tables, problems.result(None))
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
    fn all_errors_of_a_file_are_reported_with_line_and_key() {
        let text = "# comment\n[[route]]\ndestination = \"198.18.0.0/24\"\nport = 0\n\n\
                    [[route]]\ndestination = \"198.18.0.0\"\nport = \"dmz\"\n\
                    [[route]]\ndestintion = \"::/0\"\nport = 1\nmac = \"x\"\n\
                    [[flow]]\ndestination=\"1.1.1.1\"\nsource=\"1.1.1.2\"\ndestination_port=1\n\
                    source_port=1\nprotocol=6\nport=1\n[l3fwd]\nlookup = \"lmp\"\nburst = 0\n";
        let (tables, result) = entries(Mode::Lpm, text);
        assert_eq!(tables.v4.len(), 1);
        let error = result.unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "t.toml:7: route.destination: `198.18.0.0` is no IPv4 prefix; write \
                 address/length, such as 198.18.0.0/24",
                "t.toml:8: route.port: no port `dmz`; the ports are 0 wan, 1 lan",
                "t.toml:10: route.destintion: there is no such key; perhaps destination",
                "t.toml:12: route.mac: `x` is none; an address such as \"02:00:00:00:00:fd\"",
                "t.toml:13: flow: this is no entry for lookup lpm; write [[route]] entries, or \
                 choose another lookup",
                "t.toml:21: l3fwd.lookup: `lmp` is unknown; perhaps lpm",
                "t.toml:22: l3fwd.burst: 0 is out of range; a number from 1 to 64",
            ]
        );
        let (_, result) = entries(Mode::Acl, "[[rule]]\nport = 0\ndeny = true\n");
        let error = result.unwrap_err().to_string();
        assert!(
            error.starts_with("t.toml:1: rule.port: the rule says"),
            "{error}"
        );
    }
}
