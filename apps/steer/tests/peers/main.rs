//! `linerate steer`, the program, with others' programs as its peers: iperf3, nmap, scapy. Skipped,
//! with the reason, where the test may not make namespaces or a program is missing.
//!
//! ```text
//! host: g0 ---- d0 :dut        (af_xdp, af_packet)
//! host: t0                     (tap)
//! ```
//!
//! The host has 192.0.2.2 and 2001:db8::2, and is the kernel's; linerate has .1 and ::1. At the end
//! of each test its books are closed: every packet and slot is accounted for.
#![allow(missing_docs, clippy::unwrap_used)]

mod attacks;
mod iperf;
mod nmap;

use linerate_testkit::appliance::Appliance;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{Scratch, has, wait};

/// The kinds of ports.
const SPECS: [&str; 3] = ["af_xdp:d0", "af_packet:d0", "tap:t0"];

/// linerate's addresses, and the host's.
const OURS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const HOSTS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

/// `linerate steer` and a host beside it.
struct Stand {
    steer: Appliance,
    scratch: Scratch,
    // Behind its program: it cannot go before that does.
    host: Namespace,
    _dut: Namespace,
}

impl Stand {
    /// With these stanzas; `None` where it cannot be.
    fn new(spec: &str, stanzas: &str, programs: &[&str]) -> Option<Self> {
        if !has(&["ethtool", "setpriv", "ping"]) || !has(programs) {
            return None;
        }
        let (dut, host) = (Namespace::new("dut")?, Namespace::with_ipv6("host")?);
        let scratch = Scratch::new();
        let is_tap = spec.starts_with("tap");
        if !is_tap {
            host.wire("g0", &dut, "d0", "");
            host.plain("g0");
            address(&host, "g0");
        }
        let socket = scratch.file("ctl.sock");
        let text = format!(
            "[plan]\nio = \"0\"\n[steer]\nperiod = 0\ncontrol = \"{socket}\"\n\
             [[port]]\nname = \"lan\"\nspec = \"{spec}\"\n\
             [[interface]]\nport = \"lan\"\nmac = \"02:00:00:00:00:07\"\n\
             addresses = [\"{}/24\", \"{}/64\"]\n{stanzas}",
            OURS[0], OURS[1]
        );
        let file = scratch.write("steer.toml", text);
        let at = if is_tap { &host } else { &dut };
        let steer = Appliance::start(at, &format!("steer --json {file}"), &socket);
        let stand = Self {
            steer,
            scratch,
            host,
            _dut: dut,
        };
        if is_tap {
            stand.host.ip("link set t0 up");
            address(&stand.host, "t0");
        }
        // Neighbours are found, and everybody serves.
        for ours in OURS {
            let words = format!("-c 1 -W 1 {ours}");
            wait("a ping", || stand.host.run("ping", &words).status.success());
        }
        Some(stand)
    }

    /// A counter of TCP.
    #[track_caller]
    fn tcp(&self, name: &str) -> u64 {
        let rows = self.steer.rows("tcp");
        let row = rows.iter().find(|row| row["what"] == name);
        let value = row.and_then(|row| row["value"].as_u64());
        value.unwrap_or_else(|| panic!("no {name} in {rows:?}"))
    }

    /// Packets dropped for a reason.
    #[track_caller]
    fn dropped(&self, reason: &str) -> u64 {
        let rows = self.steer.rows("drops");
        let rows = rows.iter().filter(|row| row["reason"] == reason);
        rows.map(|row| row["packets"].as_u64().unwrap()).sum()
    }

    /// What an application has counted.
    #[track_caller]
    fn app(&self, app: &str, name: &str) -> u64 {
        self.steer.count(app, name)
    }

    /// Memory that it has touched, in bytes.
    fn resident_bytes(&self) -> u64 {
        let pid = self.steer.linerate.pid().as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let rest = status.split_once("VmRSS:").unwrap().1;
        let kib = rest.split_whitespace().next().unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Ends linerate: each packet and slot is accounted for.
    #[track_caller]
    fn close(self) {
        self.steer.close();
    }
}

/// Gives the host its addresses.
fn address(host: &Namespace, interface: &str) {
    host.ip(&format!("addr add {}/24 dev {interface}", HOSTS[0]));
    host.ip(&format!("addr add {}/64 dev {interface} nodad", HOSTS[1]));
}
