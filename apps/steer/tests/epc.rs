//! All nodes of an EPC by `linerate steer`, the program: one has the core, one the base stations
//! and their users, and the kernel is the network beyond.
//!
//! ```text
//! ran: r0 ---- c0 :core: c1 ---- n0 :net
//! ```
//!
//! Skipped, with the reason, where the test may not make namespaces.
#![allow(missing_docs, clippy::unwrap_used)]

use linerate_testkit::appliance::Appliance;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{Scratch, has, wait};
use serde_json::Value;

const USERS: u64 = 20;
const ROUNDS: u64 = 2;
/// Packets of a user while it is connected.
const PACKETS: u64 = 3;

/// A `linerate steer` from a file that ends with `rest`.
fn start(namespace: &Namespace, scratch: &Scratch, name: &str, io: &str, rest: &str) -> Appliance {
    let socket = scratch.file(&format!("{name}.sock"));
    let text = format!(
        "[plan]\nio = \"{io}\"\n[steer]\nmode = \"software\"\nperiod = 0\n\
         control = \"{socket}\"\n{rest}"
    );
    let file = scratch.write(&format!("{name}.toml"), text);
    Appliance::start(namespace, &format!("steer --json {file}"), &socket)
}

const CORE: &str = r#"
[[port]]
name = "access"
spec = "af_packet:c0"

[[port]]
name = "sgi"
spec = "af_packet:c1"

[[interface]]
port = "access"
mac = "02:00:00:00:00:07"
addresses = ["10.0.0.1/16", "10.0.0.2/16", "10.0.0.3/16", "10.0.0.4/16"]

[[interface]]
port = "sgi"
mac = "02:00:00:00:00:08"
addresses = ["192.0.2.1/24"]

[[app]]
kind = "epc-hss"
name = "hss"
address = "10.0.0.4"
first = "001010000000001"
users = 100
operator = 99

[[app]]
kind = "epc-mme"
name = "mme"
address = "10.0.0.1"
hss = "10.0.0.4"
sgw = "10.0.0.2"
pgw = "10.0.0.3"
users = 100

[[app]]
kind = "epc-sgw"
name = "sgw"
address = "10.0.0.2"
sessions = 100

[[app]]
kind = "epc-pgw"
name = "pgw"
address = "10.0.0.3"
sessions = 100
pool = "100.64.0.0/10"
"#;

/// Base stations, and users who come twice and go.
fn ran() -> String {
    format!(
        "[[port]]\nname = \"access\"\nspec = \"af_packet:r0\"\n\
         [[interface]]\nport = \"access\"\nmac = \"02:00:00:00:00:09\"\n\
         addresses = [\"10.0.1.1/16\", \"10.0.1.2/16\"]\n\
         [[app]]\nkind = \"epc-ran\"\nname = \"ran\"\naddress = \"10.0.1.1\"\nstations = 2\n\
         mme = \"10.0.0.1\"\nfirst = \"001010000000001\"\nusers = {USERS}\noperator = 99\n\
         to = \"192.0.2.2\"\nattaches_per_second = 40\nconnected = 2.0\npackets = {PACKETS}\n\
         idle = 0.5\nrounds = {ROUNDS}\naway = 1000.0\n"
    )
}

/// Attach, data both ways, idle, service request, detach, with so many lcores on both sides.
fn users_live(io: &str) {
    if !has(&["ethtool", "setpriv"]) {
        return;
    }
    let (Some(core), Some(stations), Some(net)) = (
        Namespace::new("core"),
        Namespace::new("ran"),
        Namespace::new("net"),
    ) else {
        return;
    };
    stations.wire("r0", &core, "c0", "");
    net.wire("n0", &core, "c1", "");
    net.plain("n0");
    for (namespace, interface) in [(&stations, "r0"), (&core, "c0"), (&core, "c1")] {
        namespace.plain(interface);
    }
    net.ip("addr add 192.0.2.2/24 dev n0");
    net.ip("route add 100.64.0.0/10 via 192.0.2.1");
    let scratch = Scratch::new();
    let core = start(&core, &scratch, "core", io, CORE);
    let load = start(&stations, &scratch, "ran", io, &ran());
    wait("all to attach", || load.count("ran", "attached") == USERS);
    let connections = core.rows("connections");
    let to_port = |port: &str| {
        let local = |row: &&Value| row["local"].as_str().unwrap().ends_with(port);
        connections.iter().filter(local).count()
    };
    // Each base station has a connection, and each of the MME's lcores one to the HSS.
    assert_eq!(to_port(":36412"), 2, "{connections:?}");
    assert!(to_port(":3868") > 0, "{connections:?}");
    wait("all to go", || load.count("ran", "detached") == USERS);
    wait("their sessions to end", || {
        core.count("sgw", "sessions") + core.count("mme", "users") == 0
    });
    let packets = USERS * ROUNDS * PACKETS;
    // What comes for a user that is idle by then waits at the SGW, and goes another way.
    let buffered = core.count("sgw", "buffered");
    for (node, app, name, value) in [
        (&load, "ran", "idled", USERS),
        (&load, "ran", "services", USERS),
        (&load, "ran", "up_packets", packets),
        (&load, "ran", "down_packets", packets),
        (&load, "ran", "rejected", 0),
        (&load, "ran", "timeouts", 0),
        (&core, "mme", "attached", USERS),
        (&core, "mme", "detached", USERS),
        (&core, "hss", "located", USERS),
        (&core, "sgw", "created", USERS),
        (&core, "sgw", "in_bursts", 2 * packets - buffered),
        (&core, "pgw", "in_bursts", 2 * packets),
        (&core, "pgw", "up_packets", packets),
        (&core, "pgw", "down_packets", packets),
        (&core, "pgw", "sessions", 0),
        (&core, "mme", "unsent", 0),
        (&core, "sgw", "unsent", 0),
        (&core, "pgw", "unsent", 0),
    ] {
        let rows = node.show("apps");
        assert_eq!(node.count(app, name), value, "{app} {name}: {rows:?}");
    }
    load.close();
    core.close();
}

#[test]
fn users_live_on_one_lcore() {
    users_live("0");
}

#[test]
fn users_live_on_two_lcores() {
    users_live("0-1");
}
