//! Zones: which interfaces are alike to the policy, and which list decides between two zones.

use linerate_appliance::nearest::offer;
use linerate_routing::model::InterfaceId;

/// A zone by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zone(u8);

impl Zone {
    /// That of interfaces which are in none.
    pub const NONE: Self = Self(0);
    /// That of the gateway itself: what is sent to its own addresses, and what it sends.
    pub const SELF: Self = Self(1);
    /// The first zone with a name.
    const FIRST: u8 = 2;
    /// How many zones may have names.
    pub const MOST: usize = 254;

    /// Its number: 0 for [`NONE`](Self::NONE), 1 for [`SELF`](Self::SELF).
    pub fn number(self) -> u8 {
        self.0
    }
}

/// The name of [`Zone::SELF`] in the configuration.
pub const SELF: &str = "self";
/// What stands for all zones with a name, in the configuration.
pub const ANY: &str = "any";

/// A zone, as the configuration states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneConfig {
    /// Its name.
    pub name: String,
    /// Names of its interfaces.
    pub interfaces: Vec<String>,
    /// The most flows of each family that have come from it, in one worker.
    pub flows: Option<u32>,
    /// The most half-open connections that have come from it, in one worker.
    pub half_open: Option<u32>,
}

/// All zones, and the interfaces in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// By number, from [`Zone::FIRST`] on; `None`: no zone has that number now.
    names: Vec<Option<String>>,
    /// By interface.
    by_interface: Vec<Zone>,
}

impl Zones {
    /// Zones of `interfaces`, by their place. A zone that `old` has keeps its number there, and no
    /// other zone gets that of one which goes.
    ///
    /// # Panics
    /// If there are more than [`Zone::MOST`].
    pub fn new(zones: &[ZoneConfig], interfaces: &[&str], old: &Self) -> Self {
        assert!(zones.len() <= Zone::MOST, "the file was checked");
        let stays = |name: &String| zones.iter().any(|zone| zone.name == *name);
        let mut names: Vec<Option<String>> = old.names.clone();
        for name in &mut names {
            name.take_if(|name| !stays(name));
        }
        for zone in zones {
            if !names.iter().flatten().any(|name| *name == zone.name) {
                // One that was another zone's until now only where there is no other.
                let was_free = |at: &usize| old.names.get(*at).is_none_or(Option::is_none);
                let is_free = |at: &usize| names.get(*at).is_none_or(Option::is_none);
                let mut others = (0..Zone::MOST).filter(was_free);
                let free = others.find(is_free);
                let free = free.or_else(|| names.iter().position(Option::is_none));
                let free = free.unwrap_or(names.len());
                names.resize(names.len().max(free + 1), None);
                names[free] = Some(zone.name.clone());
            }
        }
        let mut new = Self {
            names,
            by_interface: Vec::new(),
        };
        let of = |interface: &&str| {
            let has = |zone: &&ZoneConfig| zone.interfaces.iter().any(|one| one == interface);
            let zone = zones.iter().find(has);
            zone.and_then(|zone| new.named(&zone.name))
                .unwrap_or(Zone::NONE)
        };
        new.by_interface = interfaces.iter().map(of).collect();
        new
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.names.iter().flatten().next().is_none()
    }

    /// The zone of an interface.
    #[inline]
    pub fn of(&self, interface: InterfaceId) -> Zone {
        let zone = self.by_interface.get(usize::from(interface.0));
        zone.copied().unwrap_or(Zone::NONE)
    }

    /// All with a name, and their names.
    pub fn iter(&self) -> impl Iterator<Item = (Zone, &str)> {
        let numbered = (Zone::FIRST..=u8::MAX).zip(&self.names);
        numbered.filter_map(|(number, name)| Some((Zone(number), name.as_deref()?)))
    }

    /// The zone of that name.
    pub fn named(&self, name: &str) -> Option<Zone> {
        match name {
            SELF => Some(Zone::SELF),
            _ => self
                .iter()
                .find(|(_, known)| *known == name)
                .map(|(zone, _)| zone),
        }
    }

    /// The same, for a user.
    ///
    /// # Errors
    /// If there is none: the text says which there are.
    pub fn find(&self, name: &str) -> Result<Zone, String> {
        let names = || self.iter().map(|(_, name)| name).chain([SELF]);
        let known = self.named(name);
        known.ok_or_else(|| format!("there is no zone `{name}`; {}", offer(name, names())))
    }

    /// A zone's name; that of no zone is `none`.
    pub fn name(&self, zone: Zone) -> &str {
        match zone {
            Zone::NONE => "none",
            Zone::SELF => SELF,
            Zone(number) => {
                let name = self.names.get(usize::from(number - Zone::FIRST));
                name.and_then(Option::as_deref).unwrap_or("?")
            }
        }
    }

    /// How many numbers zones may have.
    fn width(&self) -> usize {
        usize::from(Zone::FIRST) + self.names.len()
    }
}

/// An end of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Each zone with a name.
    Any,
    /// The zone of that name.
    Named(String),
}

impl End {
    /// As it is written.
    pub fn name(&self) -> &str {
        match self {
            Self::Any => ANY,
            Self::Named(name) => name,
        }
    }
}

/// For each pair of zones a number: that of the list that decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    width: usize,
    lists: Vec<u16>,
}

impl Pairs {
    /// What `usual` says for each pair, and over it the lists of `policies`: one that names both
    /// zones comes before one that names the first, that before one that names the second. `any`
    /// to `any` is between two zones, not within one.
    pub fn new<'a>(
        zones: &Zones,
        usual: impl Fn(Zone, Zone) -> u16,
        policies: impl Iterator<Item = (&'a End, &'a End, u16)> + Clone,
    ) -> Self {
        let width = zones.width();
        let all = || (0..width as u16).map(|number| Zone(number as u8));
        let mut pairs = Self {
            width,
            lists: (all().flat_map(|from| all().map(move |to| (from, to))))
                .map(|(from, to)| usual(from, to))
                .collect(),
        };
        let is_meant = |end: &End, zone: Zone| match end {
            End::Any => zone >= Zone(Zone::FIRST),
            End::Named(name) => zones.named(name) == Some(zone),
        };
        let specific =
            |from: &End, to: &End| 2 * u8::from(*from != End::Any) + u8::from(*to != End::Any);
        for wanted in 0..=3 {
            for (from, to, list) in policies.clone() {
                if specific(from, to) != wanted {
                    continue;
                }
                for source in all().filter(|zone| is_meant(from, *zone)) {
                    for destination in all().filter(|zone| is_meant(to, *zone)) {
                        // Within a zone only a policy that names it twice decides.
                        if source != destination || wanted == 3 {
                            let at = pairs.at(source, destination).expect("both are in width");
                            pairs.lists[at] = list;
                        }
                    }
                }
            }
        }
        pairs
    }

    fn at(&self, from: Zone, to: Zone) -> Option<usize> {
        let (from, to) = (usize::from(from.0), usize::from(to.0));
        (from < self.width && to < self.width).then_some(from * self.width + to)
    }

    /// All pairs, and the list of each.
    pub fn iter(&self) -> impl Iterator<Item = (Zone, Zone, u16)> {
        let zone = |number: usize| Zone(number as u8);
        let numbered = self.lists.iter().enumerate();
        numbered.map(move |(at, &list)| (zone(at / self.width), zone(at % self.width), list))
    }

    /// The list of a pair; `None` where a zone is not one of these.
    #[inline]
    pub fn list(&self, from: Zone, to: Zone) -> Option<u16> {
        self.lists.get(self.at(from, to)?).copied()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn zone(name: &str, interfaces: &[&str]) -> ZoneConfig {
        ZoneConfig {
            flows: None,
            half_open: None,
            name: name.into(),
            interfaces: interfaces.iter().map(|name| (*name).into()).collect(),
        }
    }

    #[test]
    fn zones_keep_their_numbers_while_others_come_and_go() {
        let ports = ["p0", "p1", "p2", "p3"];
        let first = Zones::new(
            &[
                zone("lan", &["p0"]),
                zone("dmz", &["p1"]),
                zone("wan", &["p2"]),
            ],
            &ports,
            &Zones::default(),
        );
        assert_eq!(first.of(InterfaceId(1)), first.named("dmz").unwrap());
        assert_eq!(first.of(InterfaceId(3)), Zone::NONE);
        assert_eq!(first.of(InterfaceId(9)), Zone::NONE);
        let zones = [
            zone("guest", &["p3"]),
            zone("wan", &["p2"]),
            zone("lan", &["p0", "p1"]),
        ];
        let second = Zones::new(&zones, &ports, &first);
        for name in ["lan", "wan"] {
            assert_eq!(first.named(name), second.named(name));
        }
        // Flows and mappings know their zone by its number: that of `dmz` is free one reload later.
        assert!(first.iter().all(|one| Some(one.0) != second.named("guest")));
        let third = [zone("lan", &["p0"]), zone("more", &["p1"])];
        let third = Zones::new(&third, &ports, &second);
        assert_eq!(third.named("more"), first.named("dmz"), "a free number");
        assert_eq!(second.named("dmz"), None);
        let problem = second.find("gest").unwrap_err();
        assert_eq!(problem, "there is no zone `gest`; perhaps guest");
        assert_eq!(second.name(second.of(InterfaceId(1))), "lan");
    }

    #[test]
    fn as_many_zones_as_may_be_can_all_be_others() {
        let zones = |name: &str| -> Vec<ZoneConfig> {
            let all = 0..Zone::MOST;
            all.map(|number| zone(&format!("{name}{number}"), &[]))
                .collect()
        };
        let first = Zones::new(&zones("a"), &[], &Zones::default());
        let second = Zones::new(&zones("b"), &[], &first);
        for zones in [first, second] {
            let numbers: std::collections::HashSet<u8> =
                zones.iter().map(|(zone, _)| zone.number()).collect();
            assert_eq!(numbers.len(), Zone::MOST);
        }
    }

    #[test]
    fn the_policy_that_names_most_decides() {
        let zones = [zone("lan", &[]), zone("dmz", &[]), zone("wan", &[])];
        let zones = Zones::new(&zones, &[], &Zones::default());
        let named = |name: &str| End::Named(name.into());
        let policies = [
            (named("lan"), named("wan"), 10),
            (named("lan"), End::Any, 11),
            (End::Any, named("wan"), 12),
            (End::Any, End::Any, 13),
            (End::Any, named("self"), 14),
            (named("dmz"), named("dmz"), 15),
        ];
        let policies = policies.iter().map(|(from, to, list)| (from, to, *list));
        let pairs = Pairs::new(&zones, |_, _| 0, policies);
        let list = |from, to| pairs.list(zones.named(from).unwrap(), zones.named(to).unwrap());
        for (from, to, expected) in [
            ("lan", "wan", 10),
            ("lan", "dmz", 11),
            ("dmz", "wan", 12),
            ("wan", "dmz", 13),
            ("wan", "self", 14),
            ("lan", "self", 14),
            ("dmz", "dmz", 15),
            ("lan", "lan", 0),
            ("self", "lan", 0),
            // The gateway itself is no zone that `any` means.
            ("self", "wan", 0),
        ] {
            assert_eq!(list(from, to), Some(expected), "{from} > {to}");
        }
        assert_eq!(pairs.list(Zone::NONE, zones.named("lan").unwrap()), Some(0));
        assert_eq!(pairs.list(Zone(200), Zone::SELF), None);
        let all = pairs
            .iter()
            .filter(|&(from, to, list)| pairs.list(from, to) == Some(list));
        assert_eq!(
            all.count(),
            25,
            "each of three zones and the two without names"
        );
    }
}
