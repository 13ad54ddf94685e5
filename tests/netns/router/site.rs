//! Two hosts in different networks, and the router's namespace between them.
//!
//! ```text
//! left: veth0 10.1.0.2/24 ---- 10.1.0.1 a :mid: b 10.2.0.1 ---- 10.2.0.2/24 veth1 :right
//!       fd00:1::2/64           fd00:1::1          fd00:2::1      fd00:2::2/64
//! ```
//!
//! `a` and `b` are the router's ports; its host interfaces (TAP) `lr-a` and `lr-b` are in `mid`
//! too.

use linerate_testkit::netns::Namespace;
use linerate_testkit::process::Running;
use linerate_testkit::{has, wait};

pub(super) const LEFT4: &str = "10.1.0.2";
pub(super) const LEFT6: &str = "fd00:1::2";
pub(super) const RIGHT4: &str = "10.2.0.2";
pub(super) const RIGHT6: &str = "fd00:2::2";
/// The router's own addresses, as the left host sees it.
pub(super) const GATE4: &str = "10.1.0.1";
pub(super) const GATE6: &str = "fd00:1::1";
/// And on the right host's side.
pub(super) const FAR_GATE4: &str = "10.2.0.1";
pub(super) const FAR_GATE6: &str = "fd00:2::1";

/// Hosts with a default route each, and the router's namespace between them.
pub(super) struct Site {
    pub(super) left: Namespace,
    pub(super) mid: Namespace,
    pub(super) right: Namespace,
}

impl Site {
    /// Makes it, or says why the test is skipped.
    pub(super) fn new() -> Option<Self> {
        Self::with_offloads().map(Self::plain)
    }

    fn plain(self) -> Self {
        self.left.plain("veth0");
        self.right.plain("veth1");
        self.mid.plain("a");
        self.mid.plain("b");
        self
    }

    /// The same with offloads: unfinished checksums and frames of up to 64 KiB cross the wires.
    pub(super) fn with_offloads() -> Option<Self> {
        if !has(&["ping", "ethtool", "setpriv"]) {
            return None;
        }
        Self::around(Namespace::with_ipv6("m")?)
    }

    /// The same with the router's place in the guest's own namespace.
    pub(super) fn of_the_guest() -> Option<Self> {
        Self::around(Namespace::of_the_guest("m")?).map(Self::plain)
    }

    fn around(mid: Namespace) -> Option<Self> {
        let site = Self {
            left: Namespace::with_ipv6("l")?,
            mid,
            right: Namespace::with_ipv6("r")?,
        };
        for (host, interface, port) in [(&site.left, "veth0", "a"), (&site.right, "veth1", "b")] {
            host.wire(interface, &site.mid, port, "");
        }
        host(&site.left, "veth0", LEFT4, LEFT6, GATE4, GATE6);
        host(&site.right, "veth1", RIGHT4, RIGHT6, FAR_GATE4, FAR_GATE6);
        Some(site)
    }

    /// Makes Linux the router, to check the test itself.
    pub(super) fn kernel(&self) {
        for (port, at) in [("a", 1), ("b", 2)] {
            self.mid.ip(&format!("addr add 10.{at}.0.1/24 dev {port}"));
            self.mid.ip(&format!("addr add fd00:{at}::1/64 dev {port}"));
        }
        self.mid.sysctl("ipv4/ip_forward", "1");
        self.mid.sysctl("ipv6/conf/all/forwarding", "1");
    }

    /// Frames that the kernel dropped on the way into any of the interfaces.
    pub(super) fn kernel_drops(&self) -> u64 {
        self.left.rx_dropped("veth")
            + self.right.rx_dropped("veth")
            + self.mid.rx_dropped("a")
            + self.mid.rx_dropped("b")
            + self.mid.rx_dropped("lr-")
    }

    /// Checks that both hosts reach each other and the router, with both families.
    #[track_caller]
    pub(super) fn works(&self) {
        for address in [RIGHT4, RIGHT6, GATE4, GATE6, FAR_GATE4, FAR_GATE6] {
            reaches(&self.left, address);
        }
        for address in [LEFT4, LEFT6, GATE4, GATE6, FAR_GATE4, FAR_GATE6] {
            reaches(&self.right, address);
        }
    }
}

/// Joins a host's interface to a port of the router: nothing is segmented or left without a
/// checksum on the wire.
pub(super) fn link(host: &Namespace, interface: &str, router: &Namespace, port: &str) {
    host.wire(interface, router, port, "");
    host.plain(interface);
    router.plain(port);
}

/// Addresses of a host's interface, and its default routes.
pub(super) fn host(
    namespace: &Namespace,
    interface: &str,
    v4: &str,
    v6: &str,
    gate4: &str,
    gate6: &str,
) {
    namespace.ip_lines(&format!(
        "addr add {v4}/24 dev {interface}\naddr add {v6}/64 dev {interface}\n\
         route add default via {gate4}\nroute add default via {gate6}"
    ));
}

/// A ping comes back before long.
#[track_caller]
pub(super) fn reaches(from: &Namespace, address: &str) {
    wait(&format!("an answer from {address}"), || {
        linerate_testkit::traffic::reaches(from, address, 2)
    });
}

/// The output of a ping that cannot succeed.
pub(super) fn ping_says(from: &Namespace, words: &str) -> String {
    let output = from.run("ping", &format!("-n {words}"));
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    stdout + &stderr
}

/// Waits until ping prints this text.
#[track_caller]
pub(super) fn ping_hears(from: &Namespace, words: &str, expected: &str) {
    let mut said = String::new();
    let start = std::time::Instant::now();
    while !said.contains(expected) {
        assert!(
            start.elapsed() < linerate_testkit::PATIENCE,
            "ping {words} is never told `{expected}`: {said}"
        );
        said = ping_says(from, words);
    }
}

/// iperf3's server in a namespace, listening; it ends after one client.
#[track_caller]
pub(super) fn iperf3_server(namespace: &Namespace) -> Running {
    let mut server = namespace.start("iperf3", "--server --one-off --forceflush");
    server.wait("iperf3 to listen", |stdout, _| {
        stdout.text().contains("Server listening")
    });
    server
}

/// TCP between two namespaces for so many seconds: it carries data.
#[track_caller]
pub(super) fn iperf3(from: &Namespace, to: &Namespace, address: &str, seconds: u32, options: &str) {
    let mut server = iperf3_server(to);
    let words = format!("--client {address} --time {seconds} --json {options}");
    let output = from.run("iperf3", &words);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "iperf3 {words}: {said}");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
    assert!(
        received > 1 << 16,
        "iperf3 {words}: {received} bytes\n{said}"
    );
    server.end();
}
