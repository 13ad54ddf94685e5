//! Questions about a flow, of which no packet has come: `linerate ctl explain`, and `--explain` of
//! a file. Here is what every router decides; [`Extension::explain_flow`] puts it in order.
//!
//! [`Extension::explain_flow`]: crate::Extension::explain_flow

use std::net::IpAddr;

use linerate_appliance::runtime::Running;
use linerate_routing::model::{InterfaceId, Prefix, Vrf};
use linerate_routing::plane::acl::{Verdict, later_fragments};
use linerate_routing::plane::settings::Settings;
use linerate_routing::rib::{Rib, Use};
use linerate_routing::worker::RouterStage;
use linerate_tables::acl::{PacketKey4, PacketKey6};

use crate::config::Config;
use crate::extension::Own;

/// What somebody asks, and what there is to go by: what is in force, or a file.
pub struct Question<'a> {
    /// The flow, as it is written.
    pub flow: &'a str,
    /// The zone or the interface that it comes in by.
    pub from: &'a str,
    pub config: &'a Config,
    pub settings: &'a Settings,
    /// What [`Extension::build`](crate::Extension::build) has made of the configuration.
    pub built: Option<&'a Own>,
    pub rib: &'a Rib,
    /// The workers, where it is not a file alone that is asked about.
    pub running: Option<&'a Running<RouterStage>>,
}

/// The route of a packet.
pub struct Route {
    pub prefix: Prefix,
    /// `via`, `connected`, `local`, `blackhole` and so on.
    pub kind: &'static str,
    /// The interfaces that packets leave by, each with the next hop where that is not the
    /// destination. A flow takes one of them, by a hash.
    pub ways: Vec<(InterfaceId, Option<IpAddr>)>,
}

/// A packet, as access lists see it.
#[derive(Clone, Copy)]
pub enum Key {
    V4(PacketKey4),
    V6(PacketKey6),
}

impl Question<'_> {
    /// The interface of that name.
    pub fn interface(&self, name: &str) -> Option<InterfaceId> {
        let interfaces = &self.settings.interfaces;
        let is_it = |at: &usize| !name.is_empty() && interfaces[*at].name == name;
        let place = (0..interfaces.len()).find(is_it);
        place.map(|place| InterfaceId(place as u16))
    }

    /// The route to an address; `None` where there is none.
    pub fn route(&self, vrf: Vrf, to: IpAddr) -> Option<Route> {
        let routes = self.rib.show(vrf, Prefix::host(to));
        let best = routes.filter(|route| route.used == Use::Best);
        let route = best.max_by_key(|route| route.prefix.len())?;
        let ways = route.resolved.iter();
        let ways = ways.filter_map(|way| Some((way.interface?, way.gateway)));
        Some(Route {
            prefix: route.prefix,
            kind: route.kind,
            ways: ways.collect(),
        })
    }

    /// What an access list says, and by which rule: `acl edge rule 2: deny`.
    pub fn list(&self, number: u16, packet: &Key) -> (String, Verdict) {
        let list = &self.config.acls[usize::from(number)];
        let mut rules = list.rules.iter();
        let matches = rules.position(|rule| {
            let denies = rule.action != Verdict::Permit;
            match packet {
                Key::V4(key) => rule.match4().is_some_and(|one| {
                    let later = later_fragments(&one).filter(|_| denies);
                    one.matches(key) || later.is_some_and(|later| later.matches(key))
                }),
                Key::V6(key) => rule.match6().is_some_and(|one| {
                    let later = later_fragments(&one).filter(|_| denies);
                    one.matches(key) || later.is_some_and(|later| later.matches(key))
                }),
            }
        });
        let (rule, verdict) = match matches {
            Some(at) => (format!("rule {}", at + 1), list.rules[at].action),
            None => ("no rule matches".into(), list.default),
        };
        (
            format!("acl {} {rule}: {}", list.name, verdict.name()),
            verdict,
        )
    }
}
