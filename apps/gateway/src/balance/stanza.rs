//! `[[balancer]]` with `[[balancer.backend]]` and `[balancer.check]`: read, and checked as a whole.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use linerate_appliance::config::{At, Section};
use linerate_control::config::words;
use linerate_routing::model::Cidr;
use linerate_wire::protocol;

use super::{Backend, Check, Config, Form, Kind, Service};

const ADDRESS: &str = "an address such as \"198.51.100.80\"";
const PORTS: &str = "a port or a range such as \"80\" or \"8000-8010\"";
const PATH: &str = "a path such as \"/healthz\"";
const STATUS: &str = "a status or a range such as \"200-399\"";
/// The highest weight.
const MOST: u32 = 10_000;

/// A form as the file names it, before its pool or source is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Nat,
    FullNat,
    Ipip,
    Gue,
}

const FORMS: [(&str, Named); 4] = [
    ("nat", Named::Nat),
    ("fullnat", Named::FullNat),
    ("ipip", Named::Ipip),
    ("gue", Named::Gue),
];

/// What other stanzas say.
pub struct Known<'a> {
    /// Names and families (whether IPv4) of pools of NAT, by number.
    pub pools: &'a [(&'a str, bool)],
    /// Interfaces and their addresses.
    pub interfaces: &'a [(&'a str, &'a [Cidr])],
}

/// The pools that services name: [`Known`] is made of NAT's stanzas, which are read with these.
pub fn pools(file: &Section<'_>) -> Vec<String> {
    let all = file
        .value("balancer")
        .and_then(|(all, _)| all.get_ref().as_array());
    let each = all.into_iter().flatten();
    let pool = each.filter_map(|one| one.get_ref().get("pool")?.get_ref().as_str());
    pool.map(String::from).collect()
}

/// Reads the stanzas.
pub fn read(file: &Section<'_>, known: &Known<'_>) -> Config {
    let mut services: Vec<Service> = Vec::new();
    for section in file.tables("balancer", "tables: [[balancer]]") {
        let Some(service) = service(&section, known) else {
            continue;
        };
        let line = section.line;
        if services.iter().any(|other| other.name == service.name) {
            let problem = format!("`{}` names two services", service.name);
            section.wrong(line, "name", problem, "a name of its own");
        }
        let meets = |other: &&Service| {
            (other.address, other.protocol) == (service.address, service.protocol)
                && other.ports.start() <= service.ports.end()
                && service.ports.start() <= other.ports.end()
        };
        if let Some(other) = services.iter().find(meets) {
            let problem = format!("service `{}` has some of these ports", other.name);
            section.wrong(line, "ports", problem, "ports of no other service");
        }
        services.push(service);
    }
    Config { services }
}

fn service(section: &Section<'_>, known: &Known<'_>) -> Option<Service> {
    let name = section.required("name", "a name such as \"web\"");
    let address = address(section);
    section.requires("protocol", "tcp or udp");
    let protocols = [("tcp", protocol::TCP), ("udp", protocol::UDP)];
    let protocol = section.choice("protocol", &protocols);
    section.requires("ports", PORTS);
    let ports = section.word("ports", PORTS, range);
    let named = section
        .choice("form", &FORMS)
        .map_or(Named::Nat, |at| at.value);
    let form = form(section, named, address.as_ref(), known);
    let keys = [("flow", false), ("source", true)];
    let by_source = section.choice("hash", &keys).is_some_and(|at| at.value);
    let check = section.table("balancer.check", "check", "a table: [balancer.check]");
    let check = check.map(|section| check_of(&section));
    let is_udp = protocol
        .as_ref()
        .is_some_and(|at| at.value == protocol::UDP);
    let has_port = check.as_ref().is_some_and(|check| check.port.is_some());
    if is_udp && check.is_some() && !has_port {
        let line = section
            .value("check")
            .map_or(section.line, |(_, line)| line);
        let problem = "the service is UDP, and checks are TCP";
        section.wrong(
            line,
            "check",
            problem,
            "with a `port` of TCP that says the same",
        );
    }
    let backends = backends(section, (named, form), address.as_ref(), ports.as_ref());
    let is_sound = section.end();
    let service = Service {
        name: name?.value,
        address: address?.value,
        protocol: protocol?.value,
        ports: ports?.value,
        form: form?,
        by_source,
        check,
        backends,
    };
    is_sound.then_some(service)
}

fn address(section: &Section<'_>) -> Option<At<IpAddr>> {
    section.requires("address", ADDRESS);
    section.parsed::<IpAddr>("address", ADDRESS)
}

/// The form, with its pool or source.
fn form(
    section: &Section<'_>,
    named: Named,
    address: Option<&At<IpAddr>>,
    known: &Known<'_>,
) -> Option<Form> {
    for (key, is_its, of) in [
        ("pool", named == Named::FullNat, "form = \"fullnat\""),
        (
            "source",
            matches!(named, Named::Ipip | Named::Gue),
            "form = \"ipip\" or \"gue\"",
        ),
    ] {
        match (section.value(key), is_its) {
            (Some((_, line)), false) => {
                let problem = "the service's form has none";
                section.wrong(line, key, problem, format!("with {of}"));
            }
            (None, true) => {
                let legal = match key {
                    "pool" => "the name of a [[nat.pool]]",
                    _ => "an address of the gateway on the backends' side",
                };
                section.wrong(section.line, key, "it is missing", legal);
            }
            _ => {}
        }
    }
    match named {
        Named::Nat => Some(Form::Nat),
        Named::FullNat => {
            let names = (0_u16..).zip(known.pools.iter().map(|(name, _)| *name));
            // Those of interfaces have names that no stanza gives.
            let names = names.filter(|(_, name)| !name.starts_with("interface "));
            let at = section.named("pool", "the name of a [[nat.pool]]", "pool", names)?;
            let (name, is_v4) = known.pools[usize::from(at.value)];
            if address.is_some_and(|address| address.value.is_ipv4() != is_v4) {
                let problem = format!("pool `{name}` is not of the service's family");
                section.wrong(at.line, "pool", problem, "a pool of its family");
            }
            Some(Form::FullNat(at.value))
        }
        Named::Ipip | Named::Gue => {
            let At { value, line } = section.parsed::<IpAddr>("source", ADDRESS)?;
            let mut own = known.interfaces.iter().flat_map(|(_, all)| all.iter());
            if !own.any(|cidr| cidr.address == value) {
                let problem = format!("{value} is an address of no interface");
                let legal = "an address of the gateway on the backends' side";
                section.wrong(line, "source", problem, legal);
            }
            Some(match named {
                Named::Gue => Form::Gue(value),
                _ => Form::Ipip(value),
            })
        }
    }
}

fn backends(
    section: &Section<'_>,
    (named, form): (Named, Option<Form>),
    address: Option<&At<IpAddr>>,
    ports: Option<&At<RangeInclusive<u16>>>,
) -> Vec<Backend> {
    let legal = "tables: [[balancer.backend]] with address, port and weight";
    let mut backends: Vec<Backend> = Vec::new();
    // Packets get there as they are, or in packets of the source's family.
    let is_v4 = match form {
        Some(Form::Ipip(source) | Form::Gue(source)) => Some(source.is_ipv4()),
        _ => address.map(|at| at.value.is_ipv4()),
    };
    let is_direct = matches!(named, Named::Ipip | Named::Gue);
    let items = section.list("backend", legal).into_iter();
    let mut is_there = false;
    for section in items.filter_map(|(item, _)| section.within("balancer.backend", item, legal)) {
        is_there = true;
        let at = self::address(&section);
        let port = section.number::<u16>("port", 1..=u16::MAX);
        let weight = section.number::<u32>("weight", 0..=MOST);
        if let (Some(At { line, .. }), true) = (&port, is_direct) {
            let problem = "a backend that answers clients itself has the service's ports";
            section.wrong(*line, "port", problem, "without it");
        }
        let is_range = ports.is_some_and(|at| at.value.len() > 1);
        if let (Some(At { line, .. }), true, false) = (&port, is_range, is_direct) {
            let problem = "the service has several ports, which stay as they are";
            section.wrong(
                *line,
                "port",
                problem,
                "without it, or a service of one port",
            );
        }
        if let (Some(At { value, line }), Some(is_v4)) = (&at, is_v4)
            && value.is_ipv4() != is_v4
        {
            let problem = format!(
                "{value} is not of the {} family",
                match is_direct {
                    true => "source's",
                    false => "service's",
                }
            );
            section.wrong(*line, "address", problem, "a backend of its family");
        }
        let backend = at.map(|at| Backend {
            address: at.value,
            port: port.map(|at| at.value),
            weight: weight.map_or(1, |at| at.value),
        });
        if let Some(backend) = &backend
            && backends
                .iter()
                .any(|other| other.to_string() == backend.to_string())
        {
            let problem = format!("{backend} is given twice");
            section.wrong(section.line, "address", problem, "each backend once");
        }
        section.end();
        backends.extend(backend);
    }
    if !is_there {
        let problem = "the service has no backend";
        section.wrong(
            section.line,
            "backend",
            problem,
            "a [[balancer.backend]] at least",
        );
    }
    backends
}

fn check_of(section: &Section<'_>) -> Check {
    let kinds = [("tcp", false), ("http", true)];
    section.requires("kind", "tcp or http");
    let is_http = section.choice("kind", &kinds).is_some_and(|at| at.value);
    let port = section.number::<u16>("port", 1..=u16::MAX);
    let interval = section.number::<u32>("interval_ms", 100..=3_600_000);
    let timeout = section.number::<u32>("timeout_ms", 10..=600_000);
    let [rise, fall] = ["rise", "fall"].map(|key| section.number::<u16>(key, 1..=100));
    let mut kind = Kind::Tcp;
    if is_http {
        let path = section.read("path", PATH, path);
        let host = section.read("host", "a name such as \"www.example.com\"", word);
        let status = section.word("status", STATUS, range);
        kind = Kind::Http {
            path: path.map_or("/".into(), |at| at.value),
            host: host.map(|at| at.value),
            status: status.map_or(200..=399, |at| at.value),
        };
    } else {
        for key in ["path", "host", "status"] {
            if let Some((_, line)) = section.value(key) {
                section.wrong(line, key, "only HTTP has it", "with kind = \"http\"");
            }
        }
    }
    section.end();
    Check {
        kind,
        port: port.map(|at| at.value),
        interval_ms: interval.map_or(2000, |at| at.value),
        timeout_ms: timeout.map_or(1000, |at| at.value),
        rise: rise.map_or(2, |at| at.value),
        fall: fall.map_or(3, |at| at.value),
    }
}

/// `22` or `1024-65535`.
fn range(text: &str) -> Result<RangeInclusive<u16>, String> {
    match words::range(text)? {
        (0, _) => Err(format!("`{text}` begins with 0")),
        (low, high) => Ok(low..=high),
    }
}

/// What fits into the first line of a request (RFC 9112 3).
fn path(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => word(text),
        false => Err(format!("`{text}` does not begin with `/`")),
    }
}

fn word(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_word {
        true => Ok(text.into()),
        false => Err(format!(
            "`{text}` has spaces, or signs that a request cannot have"
        )),
    }
}
