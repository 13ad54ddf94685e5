//! `linerate steer`'s HTTP server, client and proxy beside other people's: curl, wrk, ab, h2load,
//! nginx, haproxy and slowhttptest, over each kind of port, IPv4 and IPv6.
//!
//! ```text
//! host: g0 ---- d0 :dut        (af_xdp, af_packet)
//! host: t0                     (tap)
//! ```
//!
//! The host has 192.0.2.2 and 2001:db8::2, and is the kernel's; linerate has .1 and ::1. At the end
//! of each test its books are closed: no connection is left, every packet and slot is accounted
//! for.

mod others;
mod server;
mod slow;

use linerate_testkit::appliance::Appliance;
use linerate_testkit::harness::Test;
use linerate_testkit::netns::Namespace;
use linerate_testkit::{Scratch, has, wait};

pub(crate) const TESTS: &[&[Test]] = &[server::TESTS, others::TESTS, slow::TESTS];

/// The kinds of ports.
const SPECS: [&str; 3] = ["af_xdp:d0", "af_packet:d0", "tap:t0"];

/// linerate's addresses as they stand in URLs, and the host's likewise.
const OURS: [&str; 2] = ["192.0.2.1", "[2001:db8::1]"];
const HOSTS: [&str; 2] = ["192.0.2.2", "[2001:db8::2]"];

/// `linerate steer` and a host beside it.
struct Stand {
    host: Namespace,
    linerate: Appliance,
    scratch: Scratch,
    // Behind its programs: it cannot go before they do.
    _dut: Namespace,
}

impl Stand {
    /// With these stanzas of applications; `FOLDER` in them is that of [`Stand::file`]. `None`
    /// where it cannot be.
    fn new(spec: &str, apps: &str, programs: &[&str]) -> Option<Self> {
        Self::with(spec, apps, programs, |_, _| {})
    }

    /// `before` is called when the host is there, and linerate is not.
    fn with(
        spec: &str,
        apps: &str,
        programs: &[&str],
        before: impl FnOnce(&Namespace, &Scratch),
    ) -> Option<Self> {
        Self::with_lcores(("0", "hardware"), spec, apps, programs, before)
    }

    /// The same with the lcores of these slots, and packets brought to them in this mode.
    fn with_lcores(
        (io, mode): (&str, &str),
        spec: &str,
        apps: &str,
        programs: &[&str],
        before: impl FnOnce(&Namespace, &Scratch),
    ) -> Option<Self> {
        if !has(&["ethtool", "setpriv"]) || !has(programs) {
            return None;
        }
        let (dut, host) = (Namespace::new("dut")?, Namespace::with_ipv6("host")?);
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.path().join("www")).unwrap();
        let is_tap = spec.starts_with("tap");
        if !is_tap {
            host.wire("g0", &dut, "d0", "");
            if spec.starts_with("af_xdp") {
                // What has no checksum yet is no packet for it.
                host.plain("g0");
            }
            address(&host, "g0");
        }
        before(&host, &scratch);
        let socket = scratch.file("ctl.sock");
        let folder = scratch.file("www");
        let text = format!(
            "[plan]\nio = \"{io}\"\n[steer]\nmode = \"{mode}\"\nperiod = 0\n\
             control = \"{socket}\"\n\
             [[port]]\nname = \"lan\"\nspec = \"{spec}\"\n\
             [[interface]]\nport = \"lan\"\nmac = \"02:00:00:00:00:07\"\n\
             addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n\
             [tcp]\nconnections = 4096\n{}",
            apps.replace("FOLDER", &folder)
        );
        let file = scratch.file("steer.toml");
        std::fs::write(&file, text).unwrap();
        let at = if is_tap { &host } else { &dut };
        let linerate = Appliance::start(at, &format!("steer --json {file}"), &socket);
        let stand = Self {
            host,
            linerate,
            scratch,
            _dut: dut,
        };
        if is_tap {
            stand.host.ip("link set t0 up");
            address(&stand.host, "t0");
        }
        // Neighbours are found, and everybody serves.
        for ours in OURS.map(bare) {
            wait("a ping", || {
                let words = format!("-c 1 -W 1 {ours}");
                stand.host.run("ping", &words).status.success()
            });
        }
        Some(stand)
    }

    /// A path in the folder for files.
    fn file(scratch: &Scratch, name: &str) -> String {
        format!("{}/{name}", scratch.file("www"))
    }

    /// What an application has counted, on all lcores.
    #[track_caller]
    fn count(&self, app: &str, name: &str) -> u64 {
        self.linerate.count(app, name)
    }

    /// Runs a program on the host to its good end; what it prints.
    #[track_caller]
    fn run(&self, program: &str, words: &str) -> String {
        let output = self.host.run(program, words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(
            status.success(),
            "{program} {words}: {status}\n{said}\n{complaint}"
        );
        said
    }

    /// The body of a URL, as curl has it.
    #[track_caller]
    fn body(&self, words: &str) -> Vec<u8> {
        let output = self
            .host
            .run("curl", &format!("-s -S -g --max-time 60 {words}"));
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "curl {words}: {}\n{complaint}",
            output.status
        );
        output.stdout
    }

    /// Waits until no application has a connection, and ends linerate: each packet and slot is
    /// accounted for.
    #[track_caller]
    fn close(self, apps: &[&str]) {
        for app in apps {
            wait("the end of all connections", || {
                self.count(app, "open") == 0
            });
        }
        self.linerate.close();
    }
}

/// Gives the host its addresses.
fn address(host: &Namespace, interface: &str) {
    host.ip(&format!("addr add 192.0.2.2/24 dev {interface}"));
    host.ip(&format!("addr add 2001:db8::2/64 dev {interface} nodad"));
}

/// An address without the brackets of URLs.
fn bare(address: &str) -> &str {
    address.trim_matches(['[', ']'])
}

/// Bytes that are not the same anywhere.
fn bytes(count: usize) -> Vec<u8> {
    linerate_testkit::Random::new(20_261_128).bytes(count)
}
