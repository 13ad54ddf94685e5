//! af_xdp: over a veth pair, in each mode.

use crate::suite::{Pair, Wire};
use linerate_core::port::Port;
use linerate_drivers::Drivers;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

fn run(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A veth pair, gone with the value.
struct Veth([String; 2]);

impl Veth {
    fn new(queues: u16) -> Result<Self, String> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let ends = ["a", "b"].map(|end| format!("lc{}{end}{number}", std::process::id()));
        let [a, b] = &ends;
        let many = format!("numrxqueues {queues} numtxqueues {queues}");
        if !run(&format!(
            "ip link add {a} {many} type veth peer name {b} {many}"
        )) {
            return Err("needs CAP_NET_ADMIN to make a veth pair".into());
        }
        for end in &ends {
            run(&format!("sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1"));
            run(&format!("ip link set {end} up"));
        }
        Ok(Self(ends))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        run(&format!("ip link del {}", self.0[0]));
    }
}

fn over_veth(options: &'static str, queues: u16) -> impl Fn() -> Result<Pair, String> {
    move || {
        let veth = Veth::new(queues)?;
        let open = |end: &str| -> Box<dyn Port> {
            Drivers::new()
                .open(&format!("af_xdp:{end}{options}"))
                .unwrap()
        };
        let [a, b] = [&veth.0[0], &veth.0[1]].map(|end| open(end));
        Ok(Pair {
            a,
            b,
            guard: Box::new(veth),
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
