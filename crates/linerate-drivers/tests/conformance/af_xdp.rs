//! af_xdp: over a veth pair in a network name space of its own, in each mode.

use crate::suite::{Pair, Wire};
use linerate_core::port::Port;
use linerate_drivers::Drivers;
use linerate_testkit::netns::Unnamed;

fn over_veth(options: &'static str, queues: u16) -> impl Fn() -> Result<Pair, String> {
    move || {
        let namespace = Unnamed::new()?;
        let many = format!("numrxqueues {queues} numtxqueues {queues}");
        namespace.ip(&format!("link add x0 {many} type veth peer name x1 {many}"));
        for name in ["x0", "x1"] {
            namespace.quiet(name);
            namespace.ip(&format!("link set {name} up"));
        }
        let inside = namespace.enter();
        let open = |name: &str| -> Box<dyn Port> {
            let spec = format!("af_xdp:{name}{options}");
            Drivers::new().open(&spec).unwrap()
        };
        Ok(Pair {
            a: open("x0"),
            b: open("x1"),
            guard: Box::new((inside, namespace)),
        })
    }
}

#[test]
fn af_xdp_conforms() {
    let wire = |name, options, queues| Wire {
        notices_peer: false, // the interface stays up
        queues,
        window: 128, // the kernel's ring between the ends of a veth has 256
        ..Wire::new(name, over_veth(options, queues))
    };
    wire("af_xdp", "", 1).conforms();
    wire("af_xdp, generic", ",mode=generic", 1).conforms();
    wire("af_xdp, without need_wakeup", ",wakeup=off,ring=256", 1).conforms();
    wire("af_xdp, 3 queues", ",queues=3", 3).conforms();
}
