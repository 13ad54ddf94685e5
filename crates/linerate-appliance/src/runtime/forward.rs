//! A forwarder from what was asked for to its totals: what `l2fwd` and `l3fwd` do around their
//! stages.

use linerate_core::env::{Clock, Placement, Plan, PortPlace, Role, Topology};
use linerate_core::run::{Egress, Stage};
use linerate_wire::ethernet::MacAddr;

use super::{Interrupts, OpenPort, OpenPorts, Run, planned, watch, wiring};
use crate::config::PortStanza;
use crate::control::reload;
use crate::error::Error;
use crate::output::MachineFacts;

/// Places the lcores, opens the ports, forwards on each io lcore until the end, and says what came
/// of it; or says what would be done, where that is all that is asked for.
///
/// `outs` says where the packets of each port go; without it all may go anywhere. `path` says the
/// same for people. `make` is given the addresses of what the ports send, and makes what makes the
/// pipeline of each lcore, and how the files are read again, where there are any.
///
/// # Errors
/// What could not be set up, or what went wrong at the end.
pub fn forward<S: Stage + 'static, M: FnMut(&mut Egress) -> S>(
    run: &Run,
    ports: &[PortStanza],
    outs: Option<&[u16]>,
    path: impl Fn(usize) -> String,
    make: impl FnOnce(Vec<MacAddr>) -> (M, Option<reload::Read<S>>),
) -> Result<(), Error> {
    let topology = Topology::machine()?;
    let places = places(ports, &topology);
    let plan = Plan::build(&run.plan, &topology, &places)?;
    let plan = plan.of_roles(&[Role::Bg, Role::Io], &topology, &places);
    if run.check {
        return planned(ports, &plan, path);
    }
    let interrupts = Interrupts::catch()?;
    let specs: Vec<_> = ports
        .iter()
        .map(|port| (port.name.clone(), port.spec.clone()))
        .collect();
    let opened = OpenPorts::open(&specs, Clock::calibrate())?;
    // Before anything runs that would look like stolen time.
    let machine = MachineFacts::gather(&opened.clock)?;
    let lcores: Vec<&Placement> = plan.role(Role::Io).collect();
    let shapes = |outs| opened.shapes(outs, &run.options);
    let shares = match outs {
        Some(outs) => {
            let outs = outs.iter().map(|&out| vec![out]).collect();
            wiring::spread(&shapes(outs), lcores.len())
        }
        None => wiring::spread_all(&shapes(vec![Vec::new(); ports.len()]), lcores.len()),
    };
    let (mut stage, read) = make(opened.ports.iter().map(source).collect());
    let running = opened.start_shares(shares, &lcores, &run.options, |_, egress| stage(egress))?;
    // The workers have their tables: this would keep the first ones alive for ever.
    drop(stage);
    watch(running, &run.watch, path, read, None, &machine, &interrupts)
}

/// The source address of what a port sends: its own, or one made up for it.
pub fn source(port: &OpenPort) -> MacAddr {
    let own = port.info.mac;
    own.unwrap_or(MacAddr([2, 0, 0, 0, 1, port.number as u8]))
}

/// Where the ports are; the drivers say best what is wrong with one.
pub fn places(ports: &[PortStanza], topology: &Topology) -> Vec<PortPlace> {
    let unknown = |port: &PortStanza| PortPlace {
        name: port.name.clone().unwrap_or_else(|| port.spec.clone()),
        node: None,
    };
    ports
        .iter()
        .map(|port| port.place(topology).unwrap_or_else(|_| unknown(port)))
        .collect()
}
