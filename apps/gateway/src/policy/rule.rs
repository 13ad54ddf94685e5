//! A rule, and whether a packet has what it asks.
//!
//! [`Rule::failing`] is the definition of a match. What is faster ([`lists`](super::lists)) is
//! held equal to it by the tests, and [`explain`](super::explain) shows it to the user.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use linerate_appliance::address::Prefix;
use linerate_routing::plane::acl::Verdict;
use linerate_tables::acl::Field;

use super::first::FirstPacket;
use super::sets::{PrefixSet, Service};

/// A prefix, or a set by its place among those of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// A prefix.
    Prefix(Prefix),
    /// A named set.
    Set(usize),
}

/// Addresses: those included, or all where none are, without those excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// What they consist of.
    pub include: Vec<Item>,
    /// What is taken out of that.
    pub exclude: Vec<Item>,
}

impl Addresses {
    /// Whether any address is one of them.
    pub fn is_any(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Whether an address is one of them.
    pub fn contains(&self, sets: &[Arc<PrefixSet>], address: IpAddr) -> bool {
        let holds = |item: &Item| match (item, address) {
            (Item::Set(set), _) => sets[*set].contains(address),
            (Item::Prefix(Prefix::V4(prefix)), IpAddr::V4(v4)) => prefix.contains(v4.into()),
            (Item::Prefix(Prefix::V6(prefix)), IpAddr::V6(v6)) => prefix.contains(v6.into()),
            (Item::Prefix(_), _) => false,
        };
        (self.include.is_empty() || self.include.iter().any(holds))
            && !self.exclude.iter().any(holds)
    }

    /// As it is written: `10.0.0.0/8, !servers`.
    fn show(&self, sets: &[Arc<PrefixSet>]) -> String {
        let name = |item: &Item| match item {
            Item::Prefix(prefix) => prefix.to_string(),
            Item::Set(set) => sets[*set].name.clone(),
        };
        let included = self.include.iter().map(name);
        let excluded = self.exclude.iter().map(|item| format!("!{}", name(item)));
        let all: Vec<String> = included.chain(excluded).collect();
        match all.is_empty() {
            true => "any".into(),
            false => all.join(", "),
        }
    }
}

/// Services that flows are given ([`crate::services`]), by the names that the file has.
#[derive(Clone, Debug, Default)]
pub struct Apply {
    /// Their names.
    pub names: Vec<String>,
    /// Where that is said.
    pub line: usize,
}

impl PartialEq for Apply {
    /// Whether both are the same services: lines may differ.
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

/// One rule: the first packets that it matches, and the verdict on them.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, for those who read logs.
    pub name: Option<String>,
    /// The verdict.
    pub action: Verdict,
    /// Whether flows that it decides on are logged.
    pub log: bool,
    /// Source addresses.
    pub source: Addresses,
    /// Destination addresses.
    pub destination: Addresses,
    /// Protocols, ports and types, one of which the packet must have; any where there are none.
    pub services: Vec<Service>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// The services of flows that it permits, by place among those of its list.
    pub apply: u16,
    /// Its line in its file.
    pub line: usize,
}

impl PartialEq for Rule {
    /// Whether both decide alike, and look alike: lines may differ.
    fn eq(&self, other: &Self) -> bool {
        // No `..`: a field that is missing here would be changed in the file in vain.
        let Self {
            name,
            action,
            log,
            source,
            destination,
            services,
            dscp,
            apply,
            line: _,
        } = self;
        (name, action, log, dscp) == (&other.name, &other.action, &other.log, &other.dscp)
            && apply == &other.apply
            && source == &other.source
            && destination == &other.destination
            && services == &other.services
    }
}

impl Rule {
    /// A rule for every packet.
    pub fn any(action: Verdict) -> Self {
        Self {
            name: None,
            action,
            log: false,
            source: Addresses::default(),
            destination: Addresses::default(),
            services: Vec::new(),
            dscp: None,
            apply: 0,
            line: 0,
        }
    }

    /// The first field in which a packet is not what this asks; `None` if the rule matches.
    ///
    /// A packet whose ports are not known, a later fragment, is never permitted by a rule that asks
    /// for ports, and is denied by one that denies ports of the same addresses and protocol.
    pub fn failing(&self, sets: &[Arc<PrefixSet>], packet: &FirstPacket) -> Option<Field> {
        if !self.source.contains(sets, packet.src()) {
            return Some(Field::Src);
        }
        if !self.destination.contains(sets, packet.dst()) {
            return Some(Field::Dst);
        }
        let mut services = self
            .services
            .iter()
            .map(|service| self.unlike(service, packet));
        // Where no service fits, the one that fits best says why.
        let first = services.next().flatten();
        let best = services.fold(first, |best, next| match (best, next) {
            (None, _) | (_, None) => None,
            (Some(Field::Protocol), other) => other,
            (best, _) => best,
        });
        let dscp = self
            .dscp
            .is_some_and(|dscp| u16::from(dscp) != packet.dscp());
        best.or(dscp.then_some(Field::Dscp))
    }

    /// The first field in which a packet is not of a service.
    fn unlike(&self, service: &Service, packet: &FirstPacket) -> Option<Field> {
        if packet.protocol() != service.protocol || !service.is_for(packet.is_v4()) {
            return Some(Field::Protocol);
        }
        if packet.is_later_fragment() {
            return (service.asks_upper() && self.action == Verdict::Permit)
                .then_some(Field::Fragment);
        }
        if let Some((kind, code)) = service.icmp {
            let Some((is_kind, is_code)) = packet.icmp() else {
                return Some(Field::IcmpType);
            };
            if kind != is_kind {
                return Some(Field::IcmpType);
            }
            if code.is_some_and(|code| code != is_code) {
                return Some(Field::IcmpCode);
            }
        }
        let port = |ports: &super::sets::Ports, port: Option<u16>| {
            ports.is_any() || port.is_some_and(|port| ports.contains(port))
        };
        let (source, destination) = packet.ports().unzip();
        if !port(&service.source_ports, source) {
            return Some(Field::SrcPorts);
        }
        (!port(&service.destination_ports, destination)).then_some(Field::DstPorts)
    }

    /// What it asks of one field, as it is written.
    pub fn asks(&self, sets: &[Arc<PrefixSet>], field: Field) -> String {
        match field {
            Field::Src => self.source.show(sets),
            Field::Dst => self.destination.show(sets),
            Field::Dscp => self.dscp.map_or("any".into(), |dscp| dscp.to_string()),
            Field::Fragment => "no fragment, as it asks for ports".into(),
            _ => {
                let all: Vec<String> = self.services.iter().map(Service::to_string).collect();
                all.join(" or ")
            }
        }
    }

    /// What it matches, in a line: `lan > any, tcp port 443`.
    pub fn show<'a>(&'a self, sets: &'a [Arc<PrefixSet>]) -> impl fmt::Display + 'a {
        std::fmt::from_fn(move |f| {
            write!(
                f,
                "{} > {}",
                self.source.show(sets),
                self.destination.show(sets)
            )?;
            for (at, service) in self.services.iter().enumerate() {
                write!(f, "{}{service}", if at == 0 { ", " } else { " or " })?;
            }
            match self.dscp {
                Some(dscp) => write!(f, ", dscp {dscp}"),
                None => Ok(()),
            }
        })
    }
}
