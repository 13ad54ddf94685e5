//! Two customers with the same addresses, each in a VRF of its own, all on VLANs of one trunk: the
//! same packets go through Linux with its VRF and VLAN devices, and the output is compared.
//!
//! ```text
//!                       ,- a.101 10.1.0.1 \ red      10.1.0.2, 10.2.0.2: red's hosts
//! host: veth0 ---- a :mid- a.102 10.2.0.1 /
//!                       |- a.201 10.1.0.1 \ blue     the same: blue's
//!                       `- a.202 10.2.0.1 /
//! ```
//!
//! It needs a kernel with these devices; `../../vm` boots one.

use super::compare::{self, Output, replay};
use super::instance::Router;
use super::mix::{self, FAR, HOST, MTU, ROUTER_A};
use super::oracle::ROUTES;
use linerate_testkit::Random;
use linerate_testkit::Scratch;
use linerate_testkit::capture::{self, Tcpdump};
use linerate_testkit::frame::{Mac, tagged, text};
use linerate_testkit::has;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    customers_on_a_trunk_as_the_kernel_has_them_over_af_packet,
    customers_on_a_trunk_as_the_kernel_has_them_over_af_xdp,
];

/// A customer: the VRF, its table, its VLANs, and the MAC addresses of its hosts there.
struct Customer {
    name: &'static str,
    table: u32,
    vlans: [u16; 2],
    hosts: [Mac; 2],
    /// The kinds of its refusing routes, by the words of [`ROUTES`].
    refuses: [(&'static str, &'static str); 3],
}

const CUSTOMERS: [Customer; 2] = [
    Customer {
        name: "red",
        table: 101,
        vlans: [101, 102],
        hosts: [HOST, FAR],
        refuses: [
            ("blackhole", "blackhole"),
            ("unreachable", "unreachable"),
            ("prohibit", "prohibit"),
        ],
    },
    Customer {
        name: "blue",
        table: 201,
        vlans: [201, 202],
        hosts: [[2, 0, 0, 0, 0, 0x11], [2, 0, 0, 0, 0, 0x12]],
        refuses: [
            ("blackhole", "prohibit"),
            ("unreachable", "blackhole"),
            ("prohibit", "unreachable"),
        ],
    },
];

impl Customer {
    /// Prefixes and what `ip route` says of each. For IPv6 both customers refuse alike, since ICMP
    /// errors are compared by kind of packet.
    fn routes(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        ROUTES.into_iter().map(|(prefix, next_hop)| {
            let other = self.refuses.iter().find(|(word, _)| *word == next_hop);
            match other.filter(|_| !prefix.contains(':')) {
                Some((_, other)) => (prefix, *other),
                None => (prefix, next_hop),
            }
        })
    }

    /// For each VLAN its number, our addresses, the neighbours' addresses and MAC, and the MTU.
    fn links(&self) -> impl Iterator<Item = (u16, [String; 2], [String; 2], Mac, usize)> {
        let of = |((vlan, mac), (net, mtu)): ((u16, Mac), (u8, usize))| {
            let ours = [format!("10.{net}.0.1/24"), format!("fd00:{net}::1/64")];
            let theirs = [format!("10.{net}.0.2"), format!("fd00:{net}::2")];
            (vlan, ours, theirs, mac, mtu)
        };
        let links = self.vlans.into_iter().zip(self.hosts);
        links.zip([(1, 1500), (2, MTU)]).map(of)
    }
}

/// The host's end of the trunk, which only sends and captures, and the router's.
struct Trunk {
    host: Namespace,
    mid: Namespace,
}

impl Trunk {
    fn new() -> Option<Self> {
        let trunk = Self {
            host: Namespace::new("h")?,
            mid: Namespace::with_ipv6("m")?,
        };
        trunk.host.wire("veth0", &trunk.mid, "a", "");
        trunk.host.plain("veth0");
        trunk.mid.plain("a");
        let mac = text(ROUTER_A);
        trunk.mid.ip(&format!("link set dev a address {mac}"));
        Some(trunk)
    }

    /// Makes Linux the router; false, with a skip message, if this kernel has no such devices.
    fn kernel(&self) -> bool {
        let mid = &self.mid;
        let makes = |words: &str| mid.run("ip", words).status.success();
        if !makes("link add probe type vrf table 7")
            || !makes("link add link a name v7 type vlan id 7")
        {
            linerate_testkit::skip("needs a kernel with VRF and VLAN devices");
            return false;
        }
        mid.sysctl("ipv4/ip_forward", "1");
        mid.sysctl("ipv6/conf/all/forwarding", "1");
        mid.sysctl("ipv4/icmp_ratelimit", "0");
        mid.sysctl("ipv6/icmp/ratelimit", "0");
        mid.sysctl("ipv6/conf/a/disable_ipv6", "1");
        for which in ["all", "default", "a"] {
            mid.sysctl(&format!("ipv4/conf/{which}/rp_filter"), "0");
        }
        for customer in &CUSTOMERS {
            let Customer { name, table, .. } = customer;
            mid.ip(&format!("link add {name} type vrf table {table}"));
            mid.ip(&format!("link set dev {name} up"));
            for (vlan, ours, theirs, mac, mtu) in customer.links() {
                let device = format!("v{vlan}");
                mid.ip(&format!(
                    "link add link a name {device} type vlan id {vlan}"
                ));
                mid.ip(&format!("link set dev {device} master {name} mtu {mtu} up"));
                mid.ip(&format!("addr add {} broadcast + dev {device}", ours[0]));
                mid.ip(&format!("addr add {} dev {device}", ours[1]));
                for address in theirs {
                    let mac = text(mac);
                    let words = "nud permanent dev";
                    mid.ip(&format!(
                        "neigh replace {address} lladdr {mac} {words} {device}"
                    ));
                }
            }
            for (prefix, next_hop) in customer.routes() {
                match next_hop.strip_prefix("via ") {
                    Some(gateway) => {
                        mid.ip(&format!("route add {prefix} via {gateway} vrf {name}"))
                    }
                    None => mid.ip(&format!("route add {next_hop} {prefix} vrf {name}")),
                };
            }
        }
        true
    }

    /// Our router.
    fn linerate(&self, kind: &str, scratch: &Scratch) -> Router {
        let mut config = String::from("routes = 1000\nneighbours = 1000\n");
        for Customer { name, table, .. } in &CUSTOMERS {
            config += &format!("\n[[vrf]]\nname = \"{name}\"\ntable = {table}\n");
        }
        config += &format!("\n[[port]]\nname = \"a\"\nspec = \"{kind}:a\"\n");
        for customer in &CUSTOMERS {
            let name = customer.name;
            for (vlan, ours, theirs, mac, mtu) in customer.links() {
                config += &format!(
                    "\n[[interface]]\nname = \"a.{vlan}\"\nport = \"a\"\nvlan = {vlan}\n\
                     vrf = \"{name}\"\naddresses = {ours:?}\nmtu = {mtu}\n"
                );
                for address in theirs {
                    let mac = text(mac);
                    config += &format!(
                        "\n[[neighbour]]\naddress = \"{address}\"\nmac = \"{mac}\"\n\
                         interface = \"a.{vlan}\"\n"
                    );
                }
            }
            for (prefix, next_hop) in customer.routes() {
                let next_hop = match next_hop.strip_prefix("via ") {
                    Some(gateway) => format!("via = \"{gateway}\""),
                    None => format!("{next_hop} = true"),
                };
                config +=
                    &format!("\n[[route]]\nprefix = \"{prefix}\"\nvrf = \"{name}\"\n{next_hop}\n");
            }
        }
        let router = Router::start(&self.mid, scratch, &config);
        // The kernel's own VRF devices keep the host interfaces apart.
        for Customer {
            name, table, vlans, ..
        } in &CUSTOMERS
        {
            self.mid
                .ip(&format!("link add {name} type vrf table {table}"));
            self.mid.ip(&format!("link set dev {name} up"));
            for vlan in vlans {
                self.mid
                    .ip(&format!("link set dev lr-a.{vlan} master {name}"));
            }
        }
        router
    }

    /// Sends frames into the trunk, and returns the output.
    #[track_caller]
    fn through(&self, file: &str, scratch: &Scratch) -> Output {
        let onlooker = Tcpdump::start(&self.host, "veth0", "in", scratch);
        replay(&self.host, "veth0", file);
        let is_far = |frame: &Vec<u8>| {
            let vlan = u16::from_be_bytes([frame[14], frame[15]]);
            frame[12..14] == [0x81, 0] && CUSTOMERS.iter().any(|one| one.vlans[1] == vlan)
        };
        let (forwarded, returned) = onlooker.settled().into_iter().partition(is_far);
        Output {
            forwarded,
            returned,
        }
    }
}

fn customers_on_a_trunk(kind: &str, count: usize, seed: u64) {
    if !has(&["tcpdump", "ethtool", "setpriv"]) {
        return;
    }
    eprintln!("seed {seed}");
    let (Some(theirs), Some(ours)) = (Trunk::new(), Trunk::new()) else {
        return;
    };
    if !theirs.kernel() {
        return;
    }
    let scratch = Scratch::new();
    let mut cases = mix::cases(count, &mut Random::new(seed));
    for (number, case) in cases.iter_mut().enumerate() {
        // A frame that is cut off behind its addresses may have a tag as well.
        let customer = &CUSTOMERS[number % 2];
        case.frame = tagged(&case.frame, customer.vlans[0]);
    }
    let frames: Vec<&[u8]> = cases.iter().map(|case| &case.frame[..]).collect();
    let file = scratch.file("mix.pcap");
    std::fs::write(&file, capture::paced(&frames, 100)).unwrap();
    let mut router = ours.linerate(kind, &scratch);
    let through = |trunk: &Trunk| trunk.through(&file, &scratch);
    let output = compare::agree(&cases, || through(&theirs), || through(&ours), &router);
    // Each customer's packets reached its own host only.
    let mut own = [0; 2];
    for frame in &output.forwarded {
        let Some(number) = mix::number_of(frame) else {
            continue; // the kernel behind a host interface sends messages of its own
        };
        let at = number as usize % 2;
        let Customer { vlans, hosts, .. } = &CUSTOMERS[at];
        assert_eq!(frame[14..16], vlans[1].to_be_bytes(), "{frame:02x?}");
        assert_eq!(frame[..6], hosts[1], "{frame:02x?}");
        own[at] += 1;
    }
    assert!(own.iter().all(|own| *own > count / 4), "{own:?} of {count}");
    // Routes by a VRF's host interfaces in the kernel are learned for that VRF.
    ours.mid
        .ip("route add 10.99.0.0/16 via 10.2.0.2 dev lr-a.202 vrf blue");
    router.shows("routes", |text| {
        let mut rows = text.lines().filter(|row| row.contains("10.99.0.0/16"));
        rows.next().is_some_and(|row| row.contains("blue")) && rows.next().is_none()
    });
    eprintln!("{count} packets, {} forwarded", compare::count(&output));
    router.stop();
}

fn customers_on_a_trunk_as_the_kernel_has_them_over_af_packet() {
    customers_on_a_trunk("af_packet", 2000, 9);
}

fn customers_on_a_trunk_as_the_kernel_has_them_over_af_xdp() {
    customers_on_a_trunk("af_xdp", 2000, 10);
}
