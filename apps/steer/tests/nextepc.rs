//! Debian's `nextepc-sgw` between our MME and PGW, all on real sockets: our nodes run from a file
//! on a stack behind a TAP, the SGW and the host beyond are on the kernel's side of it.
#![allow(missing_docs, clippy::unwrap_used)]

mod lcore;

use std::time::{Duration, Instant};

use linerate_core::env::Clock;
use linerate_core::port::Port;
use linerate_core::run::Egress;
use linerate_steer::config::File;
use linerate_steer::lcore::{Lcore, Maker};
use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use linerate_testkit::{Scratch, has, wait};

use lcore::interface;

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(90);
const USERS: u64 = 4;
/// Packets of all users: two rounds of four each.
const PACKETS: u64 = USERS * 2 * 4;

const FILE: &str = r#"
[[port]]
name = "lan"
spec = "tap:t0"

[[interface]]
port = "lan"
mac = "02:00:00:00:00:07"
addresses = ["10.0.0.1/24", "10.0.0.3/24", "10.0.0.4/24", "10.0.0.16/24", "10.0.0.17/24",
    "192.0.2.1/24"]

[tcp]
connections = 1024

[[app]]
kind = "epc-hss"
name = "hss"
address = "10.0.0.4"
first = "001010000000001"
users = 100

[[app]]
kind = "epc-mme"
name = "mme"
address = "10.0.0.1"
hss = "10.0.0.4"
sgw = "10.0.0.2"
pgw = "10.0.0.3"
users = 100
answers_to_port = true

[[app]]
kind = "epc-pgw"
name = "pgw"
address = "10.0.0.3"
sessions = 100
pool = "100.64.0.0/10"
answers_to_port = true

[[app]]
kind = "epc-ran"
name = "ran"
address = "10.0.0.16"
stations = 2
mme = "10.0.0.1"
first = "001010000000001"
users = 4
to = "192.0.2.2"
attaches_per_second = 4
connected = 2.0
packets = 4
idle = 2.0
rounds = 2
away = 1000.0
"#;

/// An lcore of the program.
struct Worker(lcore::Lcore<Lcore>);

impl Worker {
    fn new(file: &File) -> Self {
        let make = |port: &dyn Port, clock: Clock, out: &mut Egress| {
            let lan = &file.interfaces[0];
            let mut maker = Maker {
                file,
                interfaces: vec![interface(port, lan.mac.unwrap(), &lan.addresses)],
                clock,
                several: None,
            };
            maker.lcore(0, out).unwrap()
        };
        Self(lcore::Lcore::new("tap:t0", make))
    }

    fn count(&mut self, app: &str, name: &str) -> u64 {
        let counts = self.0.stage.parts().unwrap().apps.counts_by_app();
        let (_, counts) = counts.iter().find(|(known, _)| known == app).unwrap();
        counts.iter().find(|(known, _)| *known == name).unwrap().1
    }

    fn until(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            let counts = self.0.stage.parts().unwrap().apps.counts_by_app();
            let drops = self.0.port.stats().rx_drops;
            assert!(start.elapsed() < PATIENCE, "{what}: {counts:?} {drops:?}");
            self.0.round();
        }
    }
}

#[test]
#[ignore = "long: another program's SGW, in real time"]
fn nextepc_carries_attach_data_and_detach_over_real_sockets() {
    if !has(&["nextepc-sgwd", "ip"]) {
        return;
    }
    let Some(namespace) = Namespace::new("epctap") else {
        return;
    };
    let scratch = Scratch::new();
    let file = File::read(scratch.write("epc.toml", FILE).as_ref()).unwrap();
    let log = scratch.file("sgw.log");
    let configuration = format!(
        "logger:\n    file: {log}\nparameter:\n    no_ipv6: true\n\
         sgw:\n    gtpc:\n      addr: 10.0.0.2\n    gtpu:\n      addr: 10.0.0.2\n"
    );
    let sgw_file = scratch.write("sgw.conf", configuration);
    // It wants a folder below /run, which is its own here: `ip netns exec` has a mount namespace.
    let script = format!(
        "mount -t tmpfs tmpfs /run && mkdir /run/nextepc-sgwd && exec nextepc-sgwd -f {sgw_file}"
    );
    namespace.inside(|| {
        let mut worker = Worker::new(&file);
        for address in ["10.0.0.2/24", "192.0.2.2/24"] {
            namespace.ip(&format!("address add {address} dev t0"));
        }
        namespace.ip("link set t0 up");
        namespace.ip("route add 100.64.0.0/10 via 192.0.2.1");
        let mut command = namespace.command("sh");
        let mut sgw = Running::start(command.args(["-c", &script]));
        // Its sockets of GTP-U and GTP-C, as the kernel lists them.
        wait("the SGW to listen", || {
            let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
            sockets.contains("0200000A:0868") && sockets.contains("0200000A:084B")
        });
        worker.until("all to attach", |worker| {
            worker.count("mme", "attached") == USERS
        });
        worker.until("all to come and go", |worker| {
            worker.count("ran", "detached") == USERS && worker.count("pgw", "sessions") == 0
        });
        let counts = worker.0.stage.parts().unwrap().apps.counts_by_app();
        for (app, name, value) in [
            ("ran", "attached", USERS),
            ("ran", "idled", USERS),
            ("ran", "services", USERS),
            ("ran", "up_packets", PACKETS),
            ("pgw", "up_packets", PACKETS),
            ("pgw", "down_packets", PACKETS),
            ("ran", "down_packets", PACKETS),
            ("ran", "rejected", 0),
            ("mme", "lost", 0),
            ("mme", "unsent", 0),
            ("pgw", "unsent", 0),
        ] {
            assert_eq!(worker.count(app, name), value, "{app} {name}: {counts:?}");
        }
        assert!(sgw.is_alive());
    });
}
