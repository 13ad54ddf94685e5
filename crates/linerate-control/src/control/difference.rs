//! Which static routes two configurations do not have in common: all that a reload tells the
//! routing table.

use std::collections::HashMap;

use crate::config::{RouteConfig, RouteTo};
use linerate_routing::model::{Prefix, Vrf};
use linerate_routing::rib::{Key, NextHop, Rib, Source, To};

/// What has become of the routes of one configuration in another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference<'a> {
    /// Those that are new, or lead elsewhere, as they are now.
    pub(super) new: Vec<&'a RouteConfig>,
    /// Those that are gone, and none is in their place.
    pub(super) gone: Vec<&'a RouteConfig>,
}

/// What makes a static route the only one of its kind.
type Place = (Vrf, Prefix, u8);

fn place(route: &RouteConfig) -> Place {
    (route.vrf, route.prefix, route.distance)
}

impl<'a> Difference<'a> {
    /// Between routes as they were and as they are, in any order.
    pub(super) fn between(old: &'a [RouteConfig], now: &'a [RouteConfig]) -> Self {
        let (old, now) = without_common_ends(old, now);
        let places = old.iter().map(|route| (place(route), route));
        let mut left: HashMap<Place, &RouteConfig> = places.collect();
        let differs = |route: &&RouteConfig| left.remove(&place(route)) != Some(*route);
        let new = now.iter().filter(differs).collect();
        let gone = old.iter().filter(|route| left.contains_key(&place(route)));
        Self {
            new,
            gone: gone.collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.new.len() + self.gone.len()
    }
}

/// The parts that differ: whoever edits a long file mostly changes a few lines in its middle.
fn without_common_ends<'a, T: PartialEq>(a: &'a [T], b: &'a [T]) -> (&'a [T], &'a [T]) {
    let same = |(a, b): &(&T, &T)| a == b;
    let head = a.iter().zip(b).take_while(same).count();
    let (a, b) = (&a[head..], &b[head..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    (&a[..a.len() - tail], &b[..b.len() - tail])
}

/// Puts static routes into the routing table. Returns those that it has turned away, which it
/// counts.
pub(super) fn insert<'a>(
    rib: &mut Rib,
    routes: impl IntoIterator<Item = &'a RouteConfig>,
) -> Vec<&'a RouteConfig> {
    let turned_away = routes.into_iter().filter(|route| {
        let put = rib.insert(route.vrf, route.prefix, key(route), &to(route));
        put.is_err()
    });
    turned_away.collect()
}

/// A static route's key in the routing table.
pub(super) fn key(route: &RouteConfig) -> Key {
    Key {
        distance: route.distance,
        ..Key::of(Source::Static, 0)
    }
}

/// Where a static route leads, in the routing table's words.
fn to(route: &RouteConfig) -> To {
    match &route.to {
        RouteTo::Blackhole => To::Blackhole,
        RouteTo::Unreachable => To::Unreachable,
        RouteTo::Prohibit => To::Prohibit,
        RouteTo::Via(next_hops) => To::NextHops(
            next_hops
                .iter()
                .map(|via| NextHop {
                    gateway: via.address,
                    interface: via.interface,
                    weight: via.weight,
                })
                .collect(),
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::config::Via;

    /// 10.0.NUMBER.0/24 by a gateway.
    fn route(number: u8, gateway: u8) -> RouteConfig {
        RouteConfig {
            vrf: 0,
            prefix: Prefix::of(Ipv4Addr::new(10, 0, number, 0).into(), 24).unwrap(),
            to: RouteTo::Via(vec![Via {
                address: Some(Ipv4Addr::new(192, 0, 2, gateway).into()),
                interface: None,
                weight: 1,
            }]),
            distance: 1,
        }
    }

    fn routes(gateway: u8) -> Vec<RouteConfig> {
        (0..20).map(|number| route(number, gateway)).collect()
    }

    fn between<'a>(
        old: &'a [RouteConfig],
        now: &'a [RouteConfig],
    ) -> (Vec<&'a RouteConfig>, Vec<&'a RouteConfig>) {
        let difference = Difference::between(old, now);
        (difference.new, difference.gone)
    }

    #[test]
    fn the_same_routes_in_any_order_are_no_difference() {
        let (old, mut now) = (routes(1), routes(1));
        assert_eq!(Difference::between(&old, &now).len(), 0);
        now.reverse();
        assert_eq!(Difference::between(&old, &now).len(), 0);
        assert_eq!(Difference::between(&[], &[]).len(), 0);
    }

    #[test]
    fn one_change_is_one_route() {
        let (old, mut now) = (routes(1), routes(1));
        now[7] = route(7, 2);
        assert_eq!(between(&old, &now), (vec![&route(7, 2)], vec![]));
        now.remove(7);
        assert_eq!(between(&old, &now), (vec![], vec![&route(7, 1)]));
        assert_eq!(between(&now, &old), (vec![&route(7, 1)], vec![]));
    }

    #[test]
    fn another_distance_or_vrf_is_another_route() {
        let (old, mut now) = (routes(1), routes(1));
        now[3].distance = 2;
        now[5].vrf = 1;
        let expected = (vec![&now[3], &now[5]], vec![&old[3], &old[5]]);
        assert_eq!(between(&old, &now), expected);
    }

    #[test]
    fn from_nothing_all_are_new_and_to_nothing_all_are_gone() {
        let all = routes(1);
        let every: Vec<&RouteConfig> = all.iter().collect();
        assert_eq!(between(&[], &all), (every.clone(), vec![]));
        assert_eq!(between(&all, &[]), (vec![], every));
    }
}
