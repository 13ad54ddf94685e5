//! What a stranger finds out: coturn's `turnutils_natdiscovery` behind the gateway, and its STUN
//! server outside with two addresses, name the mapping and filtering that the file asks for
//! (RFC 5780, by the classes of RFC 4787 4.1 and 5).

use crate::router::instance::{Router, two_ports};
use crate::router::site::{LEFT4, RIGHT4, Site, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::has;
use linerate_testkit::process::Running;
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    mapping_is_as_configured,
    filtering_is_as_configured_where_all_may_send,
    #[ignore = "long: the tool waits 3 s for each packet that is filtered"]
    filtering_is_as_configured_where_some_may_send,
    hosts_of_one_address_reach_each_other_by_it,
    one_port_of_two_hosts_has_two_outside_ports,
];

/// The second address of the server, by which it answers where that is asked for.
const OTHER4: &str = "10.2.0.3";
/// The second host inside.
const LEFT4_B: &str = "10.1.0.3";
/// The outside address.
const POOL: &str = "198.51.100.1";

/// The gateway with a pool, and coturn's server outside.
struct Stun {
    site: Site,
    gateway: Router,
    server: Running,
}

impl Stun {
    /// `None` where that cannot run here; `pool` are keys of the pool.
    fn new(pool: &str, scratch: &Scratch) -> Option<Self> {
        if !has(&["turnserver", "turnutils_natdiscovery"]) {
            return None;
        }
        let site = Site::new()?;
        site.left.ip(&format!("addr add {LEFT4_B}/24 dev veth0"));
        site.right.ip(&format!("addr add {OTHER4}/24 dev veth1"));
        let config = two_ports("af_packet", "", "")
            + &super::outward([1024; 2])
            + &format!(
                "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\ndefault = \"permit\"\n[nat]\n\
                 [[nat.pool]]\nname = \"pool\"\naddresses = [\"{POOL}\"]\n{pool}\n\
                 [[nat.source]]\nfrom = \"inside\"\npool = \"pool\"\n"
            );
        let gateway = Router::start_as("gateway", &site.mid, scratch, &config);
        reaches(&site.left, RIGHT4);
        reaches(&site.left, OTHER4);
        let [pid, database] = ["pid", "database"].map(|name| scratch.file(name));
        let mut server = site.right.start(
            "turnserver",
            &format!(
                "-n --stun-only --listening-ip {RIGHT4} --listening-ip {OTHER4} --no-tcp --no-tls \
                 --no-dtls --no-cli --no-auth --log-file stdout --simple-log --pidfile {pid} \
                 --userdb {database}"
            ),
        );
        server.wait("the server to listen", |stdout, _| {
            stdout.text().contains("SQLite DB connection success")
        });
        Some(Self {
            site,
            gateway,
            server,
        })
    }

    /// What the tool says of the network that it is in.
    #[track_caller]
    fn discovers(&self, what: &str) -> String {
        let words = format!("{what} -L {LEFT4} {RIGHT4}");
        let output = self.site.left.run("turnutils_natdiscovery", &words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words}: {output:?}");
        assert!(
            said.contains(&format!("UDP reflexive addr: {POOL}:")),
            "{words}: {said}\n{}",
            self.gateway.show("drops")
        );
        said
    }

    #[track_caller]
    fn end(self) {
        drop(self.server);
        self.gateway.stop();
    }
}

/// The ports outside that the server has seen.
fn outside_ports(said: &str) -> Vec<u16> {
    let begin = format!("UDP reflexive addr: {POOL}:");
    let ports = said.lines().filter_map(|line| line.split_once(&begin));
    ports
        .map(|(_, port)| port.trim().parse().unwrap())
        .collect()
}

fn mapping_is_as_configured() {
    for (mapping, name) in [
        ("independent", "NAT with Endpoint Independent Mapping!"),
        ("dependent", "NAT with Address and Port Dependent Mapping!"),
    ] {
        let scratch = Scratch::new();
        // The same port by preservation would pass for independent.
        let pool = format!("mapping = \"{mapping}\"\npreserve = false");
        let Some(stun) = Stun::new(&pool, &scratch) else {
            return;
        };
        let said = stun.discovers("-m");
        assert!(said.contains(name), "{mapping}: {said}");
        stun.end();
    }
}

/// The name that the tool has for who may send to a mapping.
#[track_caller]
fn filters(pool: &str, name: &str) {
    let scratch = Scratch::new();
    let Some(stun) = Stun::new(pool, &scratch) else {
        return;
    };
    let said = stun.discovers("-f");
    assert!(said.contains(name), "{pool}: {said}");
    let filtered = stun.gateway.dropped("nat_filtered") + stun.gateway.dropped("nat_no_mapping");
    let is_open = name.contains("Endpoint Independent");
    assert_eq!(filtered == 0, is_open, "{}", stun.gateway.show("drops"));
    stun.end();
}

fn filtering_is_as_configured_where_all_may_send() {
    filters(
        "filtering = \"independent\"",
        "NAT with Endpoint Independent Filtering!",
    );
}

fn filtering_is_as_configured_where_some_may_send() {
    for (pool, name) in [
        (
            "filtering = \"address\"",
            "NAT with Address Dependent Filtering!",
        ),
        (
            "filtering = \"address-port\"",
            "NAT with Address and Port Dependent Filtering!",
        ),
        // A port of one flow alone lets nobody else in.
        (
            "mapping = \"dependent\"",
            "NAT with Address and Port Dependent Filtering!",
        ),
    ] {
        filters(pool, name);
    }
}

/// RFC 4787 REQ-9: the tool's second socket sends to what the server has seen of the first.
fn hosts_of_one_address_reach_each_other_by_it() {
    let scratch = Scratch::new();
    let Some(stun) = Stun::new("filtering = \"independent\"", &scratch) else {
        return;
    };
    let said = stun.discovers("-H");
    assert!(said.contains("successful hairpinning"), "{said}");
    stun.end();
}

/// RFC 4787 REQ-3: two hosts of the same port are told apart outside.
fn one_port_of_two_hosts_has_two_outside_ports() {
    let scratch = Scratch::new();
    let Some(stun) = Stun::new("", &scratch) else {
        return;
    };
    let said = stun.discovers(&format!("-c -A {LEFT4_B}"));
    let ports = outside_ports(&said);
    assert_eq!(ports.len(), 2, "{said}");
    assert_ne!(ports[0], ports[1], "{said}");
    stun.end();
}
