//! af_packet: over a veth pair in a network name space of its own.

use crate::suite::{Pair, Wire};
use linerate_core::port::Port;
use linerate_drivers::Drivers;
use linerate_testkit::netns::Unnamed;

fn over_veth(options: &'static str) -> impl Fn() -> Result<Pair, String> {
    move || {
        let namespace = Unnamed::new()?;
        namespace.veth("g0", "d0");
        let inside = namespace.enter();
        let open = |name: &str| -> Box<dyn Port> {
            Drivers::new()
                .open(&format!("af_packet:{name}{options}"))
                .unwrap()
        };
        Ok(Pair {
            a: open("g0"),
            b: open("d0"),
            guard: Box::new((inside, namespace)),
        })
    }
}

#[test]
fn af_packet_conforms() {
    let wire = |name, options| Wire {
        notices_peer: false,
        ..Wire::new(name, over_veth(options))
    };
    wire("af_packet", "").conforms();
    // Two long frames to a block.
    Wire {
        window: 64,
        ..wire("af_packet, small blocks", ",block_kib=4,blocks=64")
    }
    .conforms();
    wire("af_packet, V2", ",handover=frame").conforms();
    Wire {
        queues: 3,
        ..wire("af_packet, 3 queues", ",queues=3")
    }
    .conforms();
}
