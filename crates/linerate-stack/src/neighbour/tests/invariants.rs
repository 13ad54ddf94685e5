//! For random events: bounds hold, static entries stay, every packet is accounted for, and routing
//! gets exactly the changes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Random events; hosts and MAC addresses are small numbers, so that they collide.
#[derive(Clone, Debug)]
enum Step {
    Send(u8),
    Hold(u8, bool),
    Static(u8, u8),
    Remove(u8),
    Request { from: u8, mac: u8, is_for_us: bool },
    Reply { from: u8, mac: u8 },
    Advertise { from: u8, mac: u8, flags: u8 },
    Solicit { from: u8, mac: u8 },
    Pass(u16),
    Readdress(bool),
    Link(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let (host, mac) = (0u8..24, 0u8..4);
    prop_oneof![
        6 => host.clone().prop_map(Step::Send),
        1 => (host.clone(), any::<bool>()).prop_map(|(host, on)| Step::Hold(host, on)),
        1 => (0u8..3, mac.clone()).prop_map(|(host, mac)| Step::Static(host, mac)),
        1 => (3u8..24).prop_map(Step::Remove),
        3 => (host.clone(), mac.clone(), any::<bool>())
            .prop_map(|(from, mac, is_for_us)| Step::Request { from, mac, is_for_us }),
        3 => (host.clone(), mac.clone()).prop_map(|(from, mac)| Step::Reply { from, mac }),
        3 => (host.clone(), mac.clone(), 0u8..8)
            .prop_map(|(from, mac, flags)| Step::Advertise { from, mac, flags }),
        2 => (host, mac).prop_map(|(from, mac)| Step::Solicit { from, mac }),
        4 => (1u16..20_000).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Readdress),
        2 => any::<bool>().prop_map(Step::Link),
    ]
}

/// Even hosts speak IPv4, odd ones IPv6.
fn host(n: u8) -> String {
    match n % 2 {
        0 => format!("192.0.2.{}", 10 + n),
        _ => format!("2001:db8::{:x}", 0x10 + n),
    }
}

fn host6(n: u8) -> Ipv6Addr {
    v6(&format!("2001:db8::{:x}", 0x10 + (n | 1)))
}

fn host4(n: u8) -> String {
    host(n & !1)
}

fn station(n: u8) -> MacAddr {
    MacAddr::local(0x20 + n)
}

const CONFIG: Config = Config {
    max_entries: 10,
    queue_pkts: 3,
    queue_bytes: 250,
    total_pkts: 6,
    total_bytes: 500,
    solicits_per_s: 100,
    source_asks_per_s: 100,
    replies_per_s: 100,
    timers: Timers {
        retransmit_ns: SECOND,
        reachable_ns: 30 * SECOND,
        delay_ns: 5 * SECOND,
        multicast_solicits: 3,
        unicast_solicits: 3,
        failed_ns: SECOND,
        stale_ns: 60 * SECOND,
        lock_ns: SECOND,
        proxy_delay_ns: SECOND,
    },
    seed: 7,
};

fn apply(world: &mut World, step: &Step) {
    match *step {
        Step::Send(n) => _ = world.send(&host(n), n),
        Step::Hold(n, on) => {
            world
                .table
                .hold(0, ip(&host(n)), on, world.now_ns, &mut world.out);
        }
        Step::Static(n, mac) => {
            _ = world
                .table
                .add_static(0, ip(&host(n)), station(mac), &mut world.out);
        }
        Step::Remove(n) => _ = world.table.remove(0, ip(&host(n)), &mut world.out),
        Step::Request {
            from,
            mac,
            is_for_us,
        } => {
            let target = if is_for_us { "192.0.2.1" } else { "192.0.2.99" };
            let _ = world.hear(&who_has(target, station(mac), &host4(from)));
        }
        Step::Reply { from, mac } => _ = world.hear(&is_at(&host4(from), station(mac))),
        Step::Advertise { from, mac, flags } => {
            let flags: String = (0..3)
                .filter(|bit| flags >> bit & 1 != 0)
                .map(|bit| ['R', 'S', 'O'][bit])
                .collect();
            let (mac, address) = (station(mac), host6(from));
            let _ = world.hear(&na(
                mac,
                address,
                v6("2001:db8::1"),
                address,
                Some(mac),
                &flags,
            ));
        }
        Step::Solicit { from, mac } => {
            let _ = world.hear(&ns(station(mac), &host6(from).to_string(), "2001:db8::1"));
        }
        Step::Pass(ms) => world.pass(ms.into()),
        Step::Link(false) => world.table.link_down(0, world.now_ns),
        Step::Link(true) => world.table.link_up(0, world.now_ns, &mut world.out),
        Step::Readdress(is_narrow) => {
            let mut interface = lan();
            if is_narrow {
                interface.addresses[0].1 = 28;
            }
            world.set(interface);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bounds_hold_and_nothing_is_lost(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::with(CONFIG, lan());
        let (mut handed_in, mut came_out) = (0, 0);
        let mut routes = BTreeMap::new();
        let mut statics = BTreeMap::new();
        for step in &steps {
            apply(&mut world, step);
            handed_in += usize::from(matches!(step, Step::Send(_)));
            came_out += world.out.released.drain(..).count() + world.out.dropped.drain(..).count();
            let (waiting, bytes) = world.table.queued();
            prop_assert_eq!(handed_in, came_out + waiting);
            prop_assert!(waiting <= CONFIG.total_pkts && bytes <= CONFIG.total_bytes);
            prop_assert!(world.table.len() <= CONFIG.max_entries);

            for event in world.events() {
                if let Event::Neighbour { address, mac, .. } = event {
                    let before = match mac {
                        Some(mac) => routes.insert(address, mac),
                        None => routes.remove(&address),
                    };
                    prop_assert_ne!(before, mac, "an event that changes nothing");
                }
            }
            if let Step::Static(n, mac) = *step
                && world.state(&host(n)) == Some(State::Static)
            {
                statics.insert(ip(&host(n)), station(mac)); // or there was no room
            }
            let neighbours: Vec<_> = world.table.neighbours().collect();
            prop_assert_eq!(neighbours.len(), world.table.len());
            let in_queues: usize = neighbours.iter().map(|entry| entry.queued_pkts).sum();
            prop_assert_eq!(in_queues, waiting);
            let known = neighbours.iter().filter(|entry| entry.is_needed);
            let known: BTreeMap<_, _> = known.filter_map(|entry| Some((entry.address,
                entry.mac?))).collect();
            prop_assert_eq!(&known, &routes, "routing has the table's state");
            for (address, mac) in &statics {
                let entry = neighbours.iter().find(|entry| entry.address == *address);
                let entry = entry.expect("a static entry stays");
                prop_assert_eq!((entry.state, entry.mac), (State::Static, Some(*mac)));
            }
            for entry in &neighbours {
                prop_assert!(entry.queued_pkts <= CONFIG.queue_pkts);
                prop_assert!(entry.queued_pkts == 0 || entry.state == State::Incomplete);
            }
            world.out.clear();
        }
        // Without traffic all entries expire except those that the configuration or a route needs.
        world.pass(200_000);
        for entry in world.table.neighbours() {
            let is_pinned = entry.state == State::Static || entry.is_needed;
            prop_assert!(is_pinned && entry.queued_pkts == 0, "{:?}", entry);
        }
        // All packets are freed.
        world.table.shutdown(&mut world.out);
        world.out.clear();
        prop_assert_eq!(world.table.queued(), (0, 0));
    }

    #[test]
    fn the_same_seed_and_input_give_the_same(steps in prop::collection::vec(step(), 1..60)) {
        let run = || {
            let mut world = World::with(CONFIG, lan());
            let mut frames = Vec::new();
            for step in &steps {
                apply(&mut world, step);
                frames.extend(world.out.frames().map(|(_, frame)| frame.to_vec()));
                world.out.clear();
            }
            (frames, world.table.neighbours().collect::<Vec<_>>())
        };
        prop_assert_eq!(run(), run());
    }
}
