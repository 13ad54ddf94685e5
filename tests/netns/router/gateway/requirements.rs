//! What RFC 4787, 5382, 5508 and 7857 ask of a NAT: one test for each requirement, whose packets
//! scapy makes and judges (`requirements.py`). `docs/rfc/nat.md` lists them by their clauses.

use super::{outward, wires};
use crate::router::instance::Router;
use crate::router::oracle::Bench;
use linerate_testkit::Scratch;
use linerate_testkit::has;
use linerate_testkit::{harness::Test, tests};
use std::process::Command;

/// Four addresses, and the default for all else but who may send: anyone.
const OPEN: &str = "addresses = [\"198.51.100.1-198.51.100.4\"]\nfiltering = \"independent\"";
/// The default for all.
const DEFAULT: &str = "addresses = [\"198.51.100.1-198.51.100.4\"]";
/// No port is kept, so that what is given can be seen.
const OTHER_PORTS: &str = "addresses = [\"198.51.100.1\"]\npreserve = false";
/// Ports below 1024 too.
const LOW_PORTS: &str = "addresses = [\"198.51.100.1\"]\nports = \"1-65535\"";
/// Only those whom a flow is to.
const STRICT: &str = "addresses = [\"198.51.100.1\"]\nfiltering = \"address-port\"";
/// Ten ports, of which the script's marking flow has one.
const FEW: &str = "addresses = [\"198.51.100.1\"]\nports = \"5000-5009\"";

/// The tests, by the names of their requirements, and the pools that they are of.
macro_rules! requirements {
    ($($(#[ignore = $reason:literal])? $name:ident: $pool:expr),* $(,)?) => {
        pub(crate) const TESTS: &[Test] = tests![$($(#[ignore = $reason])? $name),*];
        $(fn $name() {
            holds(stringify!($name), $pool);
        })*
    };
}

requirements! {
    rfc_4787_req_1: DEFAULT,
    rfc_4787_req_2: DEFAULT,
    rfc_4787_req_3: DEFAULT,
    rfc_4787_req_3_a: LOW_PORTS,
    rfc_4787_req_4: OTHER_PORTS,
    rfc_4787_req_8_independent: OPEN,
    rfc_4787_req_8_address: DEFAULT,
    rfc_4787_req_8_address_port: STRICT,
    rfc_4787_req_9: OPEN,
    rfc_4787_req_9_address: DEFAULT,
    rfc_4787_req_9_address_port: STRICT,
    rfc_4787_req_10: DEFAULT,
    rfc_4787_req_11: FEW,
    rfc_4787_req_12: DEFAULT,
    rfc_4787_req_12_a_b: DEFAULT,
    rfc_4787_req_13: DEFAULT,
    rfc_4787_req_13_a: DEFAULT,
    rfc_4787_req_14: DEFAULT,
    rfc_4787_req_14_a: DEFAULT,
    rfc_5382_req_1: DEFAULT,
    rfc_5382_req_2: DEFAULT,
    rfc_5382_req_2_from_outside: OPEN,
    rfc_5382_req_2_a: DEFAULT,
    rfc_5382_req_3_independent: OPEN,
    rfc_5382_req_3_address: DEFAULT,
    rfc_5382_req_3_address_port: STRICT,
    rfc_5382_req_4: DEFAULT,
    #[ignore = "long: 7 s of silence"]
    rfc_5382_req_4_six_seconds: DEFAULT,
    rfc_5382_req_6: DEFAULT,
    rfc_5382_req_7: DEFAULT,
    rfc_5382_req_8: OPEN,
    rfc_5382_req_8_address: DEFAULT,
    rfc_5382_req_8_address_port: STRICT,
    rfc_5382_req_9: DEFAULT,
    rfc_5382_req_10: DEFAULT,
    rfc_5508_req_1: DEFAULT,
    rfc_5508_req_1_a: DEFAULT,
    rfc_5508_req_3: DEFAULT,
    rfc_5508_req_3_a: DEFAULT,
    rfc_5508_req_3_b: DEFAULT,
    rfc_5508_req_3_c: DEFAULT,
    rfc_5508_req_3_d: DEFAULT,
    rfc_5508_req_4: DEFAULT,
    rfc_5508_req_5: DEFAULT,
    rfc_5508_req_6: DEFAULT,
    rfc_5508_req_7: OPEN,
    rfc_5508_req_10: DEFAULT,
    rfc_7857_2_2: DEFAULT,
    rfc_7857_5: OPEN,
    rfc_7857_6: DEFAULT,
    rfc_7857_9: OTHER_PORTS,
}

/// The gateway between two wires without hosts: who is inside has the addresses of the pool, and
/// translation alone says who outside may begin a flow.
fn config(pool: &str) -> String {
    wires::config("203.0.113.0/24")
        + &outward([1024; 2])
        + &format!(
            "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\ndefault = \"permit\"\n[nat]\n\
             [[nat.pool]]\nname = \"pool\"\n{pool}\n\
             [[nat.source]]\nfrom = \"inside\"\npool = \"pool\"\n"
        )
}

#[track_caller]
fn holds(requirement: &str, pool: &str) {
    if !has(&["scapy", "ethtool", "setpriv"]) {
        return;
    }
    let Some(bench) = Bench::new() else { return };
    let scratch = Scratch::new();
    let gateway = Router::start_as("gateway", &bench.mid, &scratch, &config(pool));
    let text = include_str!("requirements.py");
    let script = wires::script(&scratch, "requirements.py", text);
    let output = Command::new(wires::PYTHON)
        .args([&script, bench.left.name(), bench.right.name(), requirement])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stderr),
        gateway.show("drops")
    );
    gateway.stop();
}
