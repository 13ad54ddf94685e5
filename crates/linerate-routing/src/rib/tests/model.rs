//! Random changes; after each commit the tables are compared with a plain model of all routes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const HOSTS: [&str; 3] = ["192.0.2.2", "192.0.2.130", "10.0.0.2"];
/// Gateways on the links, behind other routes, behind nothing.
const GATEWAYS: [&str; 6] = [
    "192.0.2.2",
    "10.0.0.2",
    "172.16.0.1",
    "172.16.1.1",
    "203.0.113.1",
    "10.0.0.1",
];
/// Prefixes that hold the gateways, and others that nothing depends on.
const PREFIXES: [&str; 9] = [
    "0.0.0.0/0",
    "172.16.0.0/12",
    "172.16.0.0/24",
    "172.16.1.0/24",
    "192.0.2.128/25",
    "198.51.100.0/24",
    "198.51.0.0/16",
    "192.0.2.2/32",
    "10.0.0.0/24",
];
const SOURCES: [Source; 3] = [Source::Static, Source::Fpm, Source::Kernel];

#[derive(Clone, Debug)]
enum Change {
    Insert(usize, usize, Vec<usize>),
    Remove(usize, usize),
    Up(u16, bool),
    Neighbour(usize, bool),
    Commit,
}

fn change() -> impl Strategy<Value = Change> {
    // No loops: their outcome depends on the order of changes.
    let gateways = |prefix: usize| match prefix {
        8 => Just(Vec::new()).boxed(),
        4 | 7 => Just(vec![1]).boxed(),
        1..4 => proptest::collection::vec(0usize..2, 1..3).boxed(),
        _ => proptest::collection::vec(0usize..GATEWAYS.len(), 0..4).boxed(),
    };
    let insert = (0..PREFIXES.len(), 0..SOURCES.len())
        .prop_flat_map(move |(prefix, source)| (Just(prefix), Just(source), gateways(prefix)))
        .prop_map(|(prefix, source, gateways)| Change::Insert(prefix, source, gateways));
    let remove = (0..PREFIXES.len(), 0..SOURCES.len());
    prop_oneof![
        6 => insert,
        3 => remove.prop_map(|(prefix, source)| Change::Remove(prefix, source)),
        1 => (0u16..2, any::<bool>()).prop_map(|(id, up)| Change::Up(id, up)),
        1 => (0..HOSTS.len(), any::<bool>()).prop_map(|(host, known)| Change::Neighbour(host,
            known)),
        2 => Just(Change::Commit),
    ]
}

/// All that sources have said.
#[derive(Default)]
struct Plain {
    /// Gateways by prefix and distance; none: a blackhole.
    routes: BTreeMap<(usize, u8), Vec<usize>>,
    down: [bool; 2],
    known: [bool; HOSTS.len()],
}

/// What is done with a packet: the interface and the neighbour of each next hop, or something else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Does {
    Local,
    Broadcast,
    Blackhole,
    Glean(u16),
    NextHops(std::collections::BTreeSet<(u16, IpAddr)>),
}

impl Plain {
    fn network(&self, address: IpAddr) -> Option<u16> {
        let networks = [prefix("192.0.2.0/24"), prefix("10.0.0.0/24")];
        let on = networks
            .iter()
            .position(|network| network.contains(address));
        on.filter(|&on| !self.down[on]).map(|on| on as u16)
    }

    fn own(address: IpAddr) -> Option<Does> {
        match address.to_string().as_str() {
            "192.0.2.1" | "10.0.0.1" => Some(Does::Local),
            "192.0.2.255" | "10.0.0.255" => Some(Does::Broadcast),
            _ => None,
        }
    }

    /// Where a gateway of a route is.
    fn gateway(&self, gateway: IpAddr, route: usize) -> Option<Does> {
        if Self::own(gateway).is_some() {
            return None;
        }
        let mut covering: Vec<usize> = (0..PREFIXES.len())
            .filter(|&p| prefix(PREFIXES[p]).contains(gateway) && prefix(PREFIXES[p]).len() > 0)
            .collect();
        covering.sort_by_key(|&p| std::cmp::Reverse(prefix(PREFIXES[p]).len()));
        let on_link = self.network(gateway);
        for other in covering {
            let len = prefix(PREFIXES[other]).len();
            if let Some(on) = on_link.filter(|_| len <= 24) {
                return Some(Does::NextHops([(on, gateway)].into()));
            }
            let Some(does) = self.best(other) else {
                continue;
            };
            let itself =
                prefix(PREFIXES[route]).contains(gateway) && len <= prefix(PREFIXES[route]).len();
            return match does {
                Does::NextHops(_) if !itself => Some(does),
                _ => None,
            };
        }
        on_link.map(|on| Does::NextHops([(on, gateway)].into()))
    }

    fn best(&self, at: usize) -> Option<Does> {
        for (_, gateways) in self.routes.range((at, 0)..=(at, u8::MAX)) {
            if gateways.is_empty() {
                return Some(Does::Blackhole);
            }
            let mut next_hops = std::collections::BTreeSet::new();
            for &gateway in gateways {
                if let Some(Does::NextHops(more)) = self.gateway(ip(GATEWAYS[gateway]), at) {
                    next_hops.extend(more);
                }
            }
            if !next_hops.is_empty() {
                return Some(Does::NextHops(next_hops));
            }
        }
        None
    }

    fn does(&self, address: IpAddr) -> Option<Does> {
        if let Some(own) = Self::own(address) {
            return Some(own);
        }
        let mut covering: Vec<usize> = (0..PREFIXES.len())
            .filter(|&p| prefix(PREFIXES[p]).contains(address))
            .collect();
        covering.sort_by_key(|&p| std::cmp::Reverse(prefix(PREFIXES[p]).len()));
        let on_link = self.network(address);
        for at in covering {
            let len = prefix(PREFIXES[at]).len();
            if on_link.is_some() && len <= 24 {
                break; // the connected network is longer, or nearer
            }
            if let Some(does) = self.best(at) {
                return Some(does);
            }
        }
        if let Some(on) = on_link {
            let host = HOSTS.iter().position(|host| ip(host) == address);
            return Some(match host.filter(|&host| self.known[host]) {
                Some(_) => Does::NextHops([(on, address)].into()),
                None => Does::Glean(on),
            });
        }
        let covering = (0..PREFIXES.len()).filter(|&p| prefix(PREFIXES[p]).contains(address));
        let mut covering: Vec<usize> = covering.collect();
        covering.sort_by_key(|&p| std::cmp::Reverse(prefix(PREFIXES[p]).len()));
        covering.into_iter().find_map(|at| self.best(at))
    }
}

/// What the tables do.
fn really(bench: &mut Bench, address: IpAddr) -> Option<Does> {
    let hop = bench.hop_in(0, &address.to_string())?;
    let next_hop = |hop: &Hop| (hop.interface.get().unwrap().0, gateway(hop));
    Some(match hop.action {
        Action::Local => Does::Local,
        Action::Broadcast => Does::Broadcast,
        Action::Blackhole => Does::Blackhole,
        Action::Glean => Does::Glean(hop.interface.get().unwrap().0),
        Action::Multipath => {
            let hops = bench.hops.read();
            let members = hops.members(hop.group).iter();
            Does::NextHops(members.map(|&member| next_hop(hops.get(member))).collect())
        }
        _ => Does::NextHops([next_hop(&hop)].into()),
    })
}

fn check(bench: &mut Bench, plain: &Plain) -> Result<(), TestCaseError> {
    let addresses = [
        "1.1.1.1",
        "172.16.0.1",
        "172.16.1.1",
        "172.20.0.1",
        "192.0.2.1",
        "192.0.2.2",
        "192.0.2.3",
        "192.0.2.130",
        "192.0.2.200",
        "192.0.2.255",
        "198.51.100.1",
        "198.51.5.1",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.9",
    ];
    for address in addresses {
        let (is, wanted) = (really(bench, ip(address)), plain.does(ip(address)));
        prop_assert_eq!(is, wanted, "packets to {}", address);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn tables_follow_the_routes(changes in proptest::collection::vec(change(), 1..60)) {
        let (mut bench, mut plain) = (Bench::new(), Plain::default());
        for change in changes {
            match change {
                Change::Insert(at, source, gateways) => {
                    let gateways_text: Vec<&str> = gateways.iter().map(|&g| GATEWAYS[g]).collect();
                    let to = if gateways.is_empty() { To::Blackhole } else { to(&gateways_text) };
                    bench.add(PREFIXES[at], SOURCES[source], &to);
                    plain.routes.insert((at, SOURCES[source].distance()), gateways);
                }
                Change::Remove(at, source) => {
                    let key = Key::of(SOURCES[source], 0);
                    let was = plain.routes.remove(&(at, key.distance)).is_some();
                    prop_assert_eq!(bench.rib.remove(0, prefix(PREFIXES[at]), key), was);
                }
                Change::Up(id, up) => {
                    bench.rib.interface_state(InterfaceId(id), up);
                    plain.down[usize::from(id)] = !up;
                }
                Change::Neighbour(host, known) => {
                    let on = if HOSTS[host].starts_with("192") { WAN } else { LAN };
                    let mac = known.then_some(MacAddr::local(5));
                    bench.rib.neighbour(on, ip(HOSTS[host]), mac);
                    plain.known[host] = known;
                }
                Change::Commit => {
                    bench.commit();
                    check(&mut bench, &plain)?;
                }
            }
        }
        bench.commit();
        check(&mut bench, &plain)?;
    }
}
