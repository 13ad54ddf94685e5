//! The gateway between two wires without hosts: scripts send frames at one end, and take what comes
//! at the other (`wire.py`).

use crate::router::instance::port;
use crate::router::mix::{FAR, HOST, MTU};
use linerate_testkit::Scratch;
use linerate_testkit::frame::text;

/// Debian's own Python, which Debian's scapy is for.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// Ports, neighbours and routes to what is behind them: 10.60.0.0/16 inside, and `outside`.
pub(super) fn config(outside: &str) -> String {
    let mut config = port("af_packet", "a", &["10.1.0.1/24"], "")
        + &port("af_packet", "b", &["10.2.0.1/24"], &format!("mtu = {MTU}"));
    for (address, mac, interface, prefix) in [
        ("10.1.0.2", HOST, "a", "10.60.0.0/16"),
        ("10.2.0.2", FAR, "b", outside),
    ] {
        config += &format!(
            "[[neighbour]]\naddress = \"{address}\"\nmac = \"{}\"\ninterface = \"{interface}\"\n\
             [[route]]\nprefix = \"{prefix}\"\nvia = \"{address}\"\n",
            text(mac)
        );
    }
    config
}

/// Writes a script of that name, and beside it what it imports: its path.
pub(super) fn script(scratch: &Scratch, name: &str, text: &str) -> String {
    std::fs::write(scratch.file("wire.py"), include_str!("wire.py")).unwrap();
    let path = scratch.file(name);
    std::fs::write(&path, text).unwrap();
    path
}
