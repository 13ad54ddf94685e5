//! tap: two TAPs on a bridge of the kernel, in a network name space of its own.

use crate::suite::{Pair, Wire};
use linerate_core::port::Port;
use linerate_drivers::Drivers;
use linerate_testkit::netns::Unnamed;

fn over_bridge(queues: u16) -> impl Fn() -> Result<Pair, String> {
    move || {
        let namespace = Unnamed::new()?;
        if !std::path::Path::new("/dev/net/tun").exists() {
            return Err("needs /dev/net/tun".into());
        }
        namespace.ip("link add br0 type bridge forward_delay 0");
        namespace.quiet("br0");
        namespace.ip("link set br0 up");
        let several = if queues > 1 { "multi_queue" } else { "" };
        for name in ["t0", "t1"] {
            // Made beforehand, so that it is on the bridge still after a restart.
            namespace.ip(&format!("tuntap add mode tap name {name} {several}"));
            namespace.quiet(name);
            namespace.ip(&format!("link set {name} master br0"));
        }
        let inside = namespace.enter();
        let open = |name: &str| -> Box<dyn Port> {
            Drivers::new()
                .open(&format!("tap:{name},queues={queues}"))
                .unwrap()
        };
        Ok(Pair {
            a: open("t0"),
            b: open("t1"),
            guard: Box::new((inside, namespace)),
        })
    }
}

#[test]
fn tap_conforms() {
    let wire = |name, queues| Wire {
        notices_peer: false,
        queues,
        ..Wire::new(name, over_bridge(queues))
    };
    wire("tap", 1).conforms();
    wire("tap, 3 queues", 3).conforms();
}
