//! DPDK's programs as devices, where they are installed: on packet sockets over veth, without huge
//! pages, so that they need neither a network card nor a prepared machine.

use linerate_core::env::PrivateFolder;

use super::linux::list;
use super::program::Program;
use super::wire::{self, Wires, outer_mac};
use super::{Asked, Cpus, Setup};
use linerate_appliance::error::Error;

/// testpmd forwarding between its two ports, MAC addresses rewritten as l2fwd does.
pub(super) fn testpmd(asked: &Asked, cpus: Cpus) -> Result<Setup, Error> {
    let mut args: Vec<String> = [
        "--forward-mode=mac",
        "--auto-start",
        "--total-num-mbufs=32768",
        "--mbcache=250",
    ]
    .map(String::from)
    .to_vec();
    args.extend((0..2).map(|port: usize| format!("--eth-peer={port},{}", outer_mac(port))));
    args.push(format!("--nb-cores={}", cpus.device.len().min(2)));
    run(
        asked,
        cpus,
        Dpdk {
            program: "dpdk-testpmd",
            name: "DPDK testpmd (mac) over veth, af_packet",
            args,
            // The line that it prints when it begins to forward.
            ready: "packet forwarding - ports=2",
            fix: "apt-get install dpdk-dev",
        },
    )
}

/// l3fwd by longest prefix between 198.18.0.0/16 and 198.19.0.0/16.
pub(super) fn l3fwd(asked: &Asked, cpus: Cpus) -> Result<Setup, Error> {
    // The rule files are read at the start, and removed with this value.
    let rules = PrivateFolder::new("l3fwd")?;
    let file = |name: &str, text: &str| {
        let path = rules.join(name);
        std::fs::write(&path, text)
            .map(|()| path.clone())
            .map_err(|source| Error::File { path, source })
    };
    let four = file("v4", "R198.18.0.0/16 0\nR198.19.0.0/16 1\n")?;
    let six = file("v6", "R2001:2::/49 0\nR2001:2:0:8000::/49 1\n")?;
    let core = |port: usize| cpus.device[port % cpus.device.len().max(1)];
    let mut args = vec![
        "-p".into(),
        "0x3".into(),
        "-P".into(),
        "--parse-ptype".into(),
        "--lookup=lpm".into(),
        format!("--config=(0,0,{}),(1,0,{})", core(0), core(1)),
        format!("--rule_ipv4={}", four.display()),
        format!("--rule_ipv6={}", six.display()),
    ];
    args.extend((0..2).map(|port: usize| format!("--eth-dest={port},{}", outer_mac(port))));
    run(
        asked,
        cpus,
        Dpdk {
            program: "dpdk-l3fwd",
            name: "DPDK l3fwd (lpm) over veth, af_packet",
            args,
            ready: "entering main loop",
            fix: "build examples/l3fwd of DPDK's source and put it into PATH as dpdk-l3fwd",
        },
    )
}

/// One of its programs.
struct Dpdk {
    program: &'static str,
    name: &'static str,
    /// The application's own arguments.
    args: Vec<String>,
    ready: &'static str,
    fix: &'static str,
}

fn run(asked: &Asked, cpus: Cpus, dpdk: Dpdk) -> Result<Setup, Error> {
    let Wires { sides, spaces, .. } = Wires::make(&asked.wire)?;
    let mut setup = Setup::new(asked, cpus, dpdk.name.into(), sides);
    let (outer, inner) = spaces.expect("interfaces are asked for beforehand");
    // A main lcore, which only waits, beside those that forward.
    let device = &setup.cpus.device;
    let lcores: Vec<String> = (1..)
        .zip(device)
        .map(|(lcore, cpu)| format!("{lcore}@{cpu}"))
        .collect();
    let mut args: Vec<String> = vec![
        format!(
            "--lcores=0@{},{}",
            setup.cpus.generator[0],
            lcores.join(",")
        ),
        "--no-huge".into(),
        "-m".into(),
        "512".into(),
        "--no-pci".into(),
        "--no-telemetry".into(),
        // No files in /var/run/dpdk, which would stay there.
        "--no-shconf".into(),
    ];
    for port in 0..2 {
        args.push(format!(
            "--vdev=net_af_packet{port},iface=d{port},blocksz=65536,framesz=2048,framecnt=2048,\
             qdisc_bypass=1"
        ));
    }
    args.push("--".into());
    args.extend(dpdk.args);
    setup.setting("command", format!("{} {}", dpdk.program, args.join(" ")));
    setup.setting("CPU", list(&setup.cpus.device));
    let program = Program::start(dpdk.program, &args, dpdk.ready, dpdk.fix, Some(inner))?;
    setup.under_test = Box::new(program);
    setup.space = Some(outer);
    wire::describe(&mut setup, asked);
    Ok(setup)
}
