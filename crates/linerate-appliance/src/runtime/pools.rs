//! The pools and their NUMA nodes: on each node with ports one that they receive into, and one of
//! 64 KiB slots if the kernel or a peer delivers unsegmented frames, or a stage makes such.
//!
//! Where a port gives its pool to a peer that is trusted with it (`trust=full`), all pools are such
//! that it can: packets of any port may be sent there.
//!
//! On a machine with one node, or whose ports are on one, that is one of each. A port or an lcore
//! uses those that are [`near`] it; a slot goes back to its own pool wherever it is freed.
//!
//! Workers that packets are copied for have slots on their nodes as a port with a queue has.

use std::path::Path;

use linerate_core::packet::{Layout, Pool, PoolConfig, Pools, SlotClass};
use linerate_core::port::PortInfo;

use super::{OpenPort, OpenPorts};
use crate::error::Error;

/// Slots of the main pool for each queue, and for what is in caches and bursts besides.
const SLOTS_PER_QUEUE: u32 = 4096;
/// Slots of 64 KiB for each port from which oversized frames may come.
const LARGE_SLOTS: u32 = 256;
/// What fits any slot ([`SlotClass::Small`]).
const SMALL_BYTES: usize = 2048;
/// Bytes of a cache line.
const LINE: usize = 64;

impl OpenPorts {
    /// The pools that these ports want. `queues`: how many hold packets, `slots` overrules what is
    /// chosen by that; both are shared out to the nodes by their ports.
    pub fn pools(&self, queues: u32, slots: Option<u32>) -> Result<Pools, Error> {
        let placed = |(at, port): (usize, &OpenPort)| PortInfo {
            numa_node: self.node(at),
            ..port.info.clone()
        };
        let infos: Vec<PortInfo> = self.ports.iter().enumerate().map(placed).collect();
        let infos: Vec<&PortInfo> = infos.iter().collect();
        let mut configs = configs(&infos, queues, slots, self.needs_large, &self.copied_to);
        for config in &mut configs {
            config.unbound = config.numa_node.is_some_and(|node| !has_node(node));
        }
        let pools: Result<Vec<Pool>, _> = configs.iter().map(Pool::new).collect();
        Ok(Pools::new(pools?))
    }

    /// Whether unsegmented frames may come from any port.
    pub(super) fn has_oversized(&self) -> bool {
        let mut infos = self.ports.iter().map(|port: &OpenPort| &port.info);
        infos.any(is_oversized)
    }
}

/// Whether frames may come from the port that do not fit a small slot: unsegmented ones of the
/// kernel, or of a capture of it, whatever the MTU; those of peers, where the port takes such.
/// (What goes through a `ring` is in slots already.)
fn is_oversized(info: &PortInfo) -> bool {
    match info.kind {
        "af_packet" | "tap" | "pcap" => true,
        // `shm` rounds what was asked for up to a cache line.
        "shm" => info.max_frame_bytes >= SMALL_BYTES + LINE,
        "memif" | "vhost" | "virtio_user" => info.max_frame_bytes > SMALL_BYTES,
        _ => false,
    }
}

/// Whether this machine has the node, and does not only play one that has.
fn has_node(node: u32) -> bool {
    Path::new(&format!("/sys/devices/system/node/node{node}")).exists()
}

/// The pools to make: those that ports receive into first, each kind in the order of the ports. A
/// port that is on no node is counted with the first that is on one, or else with the first worker
/// that packets are copied for.
fn configs(
    ports: &[&PortInfo],
    queues: u32,
    slots: Option<u32>,
    needs_large: bool,
    copied_to: &[u32],
) -> Vec<PoolConfig> {
    let first = ports.iter().find_map(|port| port.numa_node);
    let first = first.or(copied_to.first().copied());
    let node_of = |port: &PortInfo| port.numa_node.or(first);
    let mut nodes = vec![first];
    let workers = copied_to.iter().map(|&node| Some(node));
    for node in ports.iter().map(|port| node_of(port)).chain(workers) {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    let of = |node| ports.iter().filter(move |port| node_of(port) == node);
    let workers = |node| copied_to.iter().filter(move |&&on| Some(on) == node);
    let queues = queues + copied_to.len() as u32;
    let is_aligned = ports.iter().any(|port| port.aligned_pool);
    let exposed = ports.iter().any(|port| port.exposed_pool);
    let main = nodes.iter().map(|&node| {
        let here = (of(node).count() + workers(node).count()) as u64;
        let all = (ports.len() + copied_to.len()) as u64;
        let share = |of: u32| match nodes.len() {
            1 => of,
            _ => (u64::from(of) * here).div_ceil(all.max(1)) as u32,
        };
        let chosen = (1 + share(queues)).saturating_mul(SLOTS_PER_QUEUE);
        PoolConfig {
            // One that needs it may be sent to from everywhere.
            layout: match is_aligned {
                true => Layout::Aligned,
                false => Layout::Staggered,
            },
            numa_node: node,
            exposed,
            ..PoolConfig::new("packets", slots.map_or(chosen, share))
        }
    });
    let large = nodes.iter().filter_map(|&node| {
        let ports = of(node).filter(|port| is_oversized(port)).count() as u32;
        let wanted = ports.max(needs_large.into());
        (wanted > 0).then(|| PoolConfig {
            class: SlotClass::Large,
            numa_node: node,
            exposed,
            ..PoolConfig::new("oversized", LARGE_SLOTS * wanted)
        })
    });
    main.chain(large).collect()
}

/// The same pools in the order for a port or an lcore of that node: those of the node first, which
/// it then receives into and takes slots from; the others as they were.
pub(super) fn near(pools: &Pools, node: Option<u32>) -> Pools {
    Pools::new(near_first(pools.iter().cloned(), node, Pool::numa_node))
}

fn near_first<T>(
    all: impl Iterator<Item = T>,
    node: Option<u32>,
    node_of: impl Fn(&T) -> Option<u32>,
) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_by_key(|one| node.is_none() || node_of(one) != node);
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::PortStanza;
    use linerate_core::env::{Plan, PlanSpec, PortPlace, Role, Topology};
    use std::path::Path;

    fn machine(name: &str) -> Topology {
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/topologies");
        Topology::open(&machines.join(name)).unwrap()
    }

    fn places(topology: &Topology, specs: &[&str]) -> Vec<PortPlace> {
        let place = |spec: &&str| {
            let stanza = PortStanza {
                name: None,
                spec: spec.to_string(),
            };
            stanza.place(topology).unwrap()
        };
        specs.iter().map(place).collect()
    }

    fn info(place: &PortPlace) -> PortInfo {
        let kind = ["af_packet", "pci", "tap"]
            .into_iter()
            .find(|kind| place.name.starts_with(kind));
        PortInfo {
            name: place.name.clone(),
            kind: kind.unwrap(),
            mac: None,
            max_frame_bytes: 1514,
            max_rx_queues: 1,
            max_tx_queues: 1,
            numa_node: place.node,
            tx_offloads: false,
            aligned_pool: false,
            exposed_pool: false,
            facts: Vec::new(),
        }
    }

    /// Class, node and slots of the pools that such ports get, with two queues each.
    fn pools(
        topology: &Topology,
        specs: &[&str],
        slots: Option<u32>,
    ) -> Vec<(SlotClass, Option<u32>, u32)> {
        let infos: Vec<PortInfo> = places(topology, specs).iter().map(info).collect();
        let infos: Vec<&PortInfo> = infos.iter().collect();
        let configs = configs(&infos, 2 * infos.len() as u32, slots, false, &[]);
        let facts = |pool: &PoolConfig| (pool.class, pool.numa_node, pool.slots);
        configs.iter().map(facts).collect()
    }

    use SlotClass::{Large, Small};

    #[test]
    fn ports_on_two_nodes_have_a_pool_on_each_and_lcores_take_from_their_own() {
        let topology = machine("two-sockets-12x2");
        let specs = ["pci:0000:03:00.0", "af_packet:eth1", "pci:0000:82:00.0"];
        let places = places(&topology, &specs);
        let infos: Vec<PortInfo> = places.iter().map(info).collect();
        let refs: Vec<&PortInfo> = infos.iter().collect();
        let configs = configs(&refs, 3, None, false, &[]);
        let spec = PlanSpec {
            bg: Some("0".into()),
            io: Some("1-4".into()),
            eu: Some("5".into()),
            cpus: Some("0,1,2,12,13,14".into()),
        };
        let plan = Plan::build(&spec, &topology, &places).unwrap();
        let first = |node| {
            let order = near_first(configs.iter(), node, |config| config.numa_node);
            assert_eq!(order.len(), configs.len(), "the others are known as well");
            (order[0].class, order[0].numa_node)
        };
        for info in &infos {
            assert_eq!(
                first(info.numa_node),
                (Small, info.numa_node),
                "{}",
                info.name
            );
        }
        let mut nodes = Vec::new();
        for lcore in plan.role(Role::Io) {
            assert_eq!(
                first(Some(lcore.node)),
                (Small, Some(lcore.node)),
                "{}",
                lcore.name
            );
            nodes.push(lcore.node);
        }
        assert_eq!(nodes, [0, 0, 1, 1]);
        // By the ports of each node; the large slots where the kernel's frames come in.
        assert_eq!(
            pools(&topology, &specs, None),
            [
                (Small, Some(0), 3 * 4096),
                (Small, Some(1), 5 * 4096),
                (Large, Some(1), 256)
            ]
        );
        assert_eq!(
            pools(&topology, &specs, Some(3000)),
            [
                (Small, Some(0), 1000),
                (Small, Some(1), 2000),
                (Large, Some(1), 256)
            ]
        );
    }

    #[test]
    fn one_node_or_none_has_one_pool_as_ever() {
        let two = machine("two-sockets-12x2");
        // One of them on no node: that goes with the others.
        assert_eq!(
            pools(&two, &["tap:t0", "pci:0000:82:00.0"], Some(100)),
            [(Small, Some(1), 100), (Large, Some(1), 256)]
        );
        let one = machine("one-socket-4");
        assert_eq!(
            pools(&one, &["af_packet:eth0", "tap:t0"], None),
            [(Small, None, 5 * 4096), (Large, None, 512)]
        );
    }

    #[test]
    fn one_port_that_gives_its_pool_away_exposes_all() {
        let topology = machine("two-sockets-12x2");
        let places = places(
            &topology,
            &["pci:0000:03:00.0", "tap:t0", "pci:0000:82:00.0"],
        );
        let mut infos: Vec<PortInfo> = places.iter().map(info).collect();
        for trusts in [false, true] {
            infos[2].exposed_pool = trusts;
            let configs = configs(&infos.iter().collect::<Vec<_>>(), 6, None, false, &[]);
            assert_eq!(configs.len(), 3, "on each node, and large slots");
            assert!(configs.iter().all(|pool| pool.exposed == trusts));
        }
    }

    #[test]
    fn frames_of_peers_have_slots_where_their_ports_take_them() {
        let opened = |spec: &str| linerate_drivers::Drivers::new().open(spec).unwrap().info();
        let is_oversized = |spec| is_oversized(&opened(spec));
        for spec in [
            "memif:@m",
            "shm:/x,buffer=9000",
            "vhost:@v",
            "virtio_user:@u",
        ] {
            assert!(is_oversized(spec), "{spec}");
        }
        for spec in ["shm:/x", "ring:r", "null:"] {
            assert!(!is_oversized(spec), "{spec}");
        }
    }

    #[test]
    fn slots_for_what_is_put_together_are_on_every_node() {
        let topology = machine("two-sockets-12x2");
        let places = places(&topology, &["pci:0000:03:00.0", "pci:0000:82:00.0"]);
        let infos: Vec<PortInfo> = places.iter().map(info).collect();
        let configs = configs(&infos.iter().collect::<Vec<_>>(), 2, None, true, &[]);
        let large = configs.iter().filter(|pool| pool.class == Large);
        let nodes: Vec<_> = large.map(|pool| pool.numa_node).collect();
        assert_eq!(nodes, [Some(0), Some(1)]);
    }

    /// Both cards on one socket, workers on both: the other one has slots as well, as many as for
    /// ports with a queue each.
    #[test]
    fn workers_that_packets_are_copied_for_have_slots_on_their_nodes() {
        let topology = machine("two-sockets-12x2");
        let places = places(&topology, &["pci:0000:03:00.0", "tap:t0"]);
        let infos: Vec<PortInfo> = places.iter().map(info).collect();
        let of = |ports: &[&PortInfo], slots, copied_to: &[u32]| -> Vec<_> {
            let configs = configs(ports, ports.len() as u32, slots, true, copied_to);
            let facts = |pool: &PoolConfig| (pool.class, pool.numa_node, pool.slots);
            configs.iter().map(facts).collect()
        };
        let both: Vec<&PortInfo> = infos.iter().collect();
        assert_eq!(
            of(&both, None, &[0, 0, 1]),
            [
                (Small, Some(0), 5 * 4096),
                (Small, Some(1), 2 * 4096),
                (Large, Some(0), 256),
                (Large, Some(1), 256)
            ]
        );
        let said = of(&both, Some(1000), &[0, 0, 1]);
        assert_eq!(said[..2], [(Small, Some(0), 800), (Small, Some(1), 200)]);
        // Ports that are on no node are with the first worker.
        let virtual_alone = of(&both[1..], None, &[1, 0]);
        let nodes: Vec<_> = virtual_alone.iter().map(|pool| pool.1).collect();
        assert_eq!(nodes, [Some(1), Some(0), Some(1), Some(0)]);
    }
}
