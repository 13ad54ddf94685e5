//! linerate's own apps as devices, in this process.

use std::sync::Arc;

use linerate_core::env::{Clock, Placement, Role};
use linerate_core::packet::Burst;
use linerate_core::run::{Egress, HistogramSnapshot, Stage, WorkerStats};
use linerate_drivers::Drivers;

use super::wire::{self, Wires, inner_mac, outer_mac};
use super::{Asked, Cpus, Setup, UnderTest};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::{OpenPorts, Options, Running, drivers};
use linerate_l2fwd::stage::{L2fwd, Route};

/// l2fwd between two ports, MAC addresses rewritten.
pub(super) fn l2fwd(asked: &Asked, cpus: Cpus, clock: Clock) -> Result<Setup, Error> {
    if asked.cores > 2 {
        return Err(Error::Usage {
            problem: format!(
                "l2fwd has two queues here, too few for {} cores",
                asked.cores
            ),
            fix: "give --cores 1 or 2".into(),
        });
    }
    let Wires {
        sides,
        inner,
        spaces,
    } = Wires::make(&asked.wire)?;
    let shared = cpus.shared();
    let name = format!("linerate l2fwd over {} ports", asked.wire.kind());
    let mut setup = Setup::new(asked, cpus, name, sides);
    let specs: Vec<_> = inner.into_iter().map(|spec| (None, spec)).collect();
    let lcore = |(slot, &cpu): (u32, &u32)| Placement {
        name: format!("io{slot}"),
        role: Role::Io,
        slot,
        cpu,
        node: 0,
    };
    let lcores: Vec<Placement> = (0..).zip(&setup.cpus.device).map(lcore).collect();
    let options = Options {
        queues: 1,
        burst: Burst::CAPACITY,
        pool_slots: None,
        // On a CPU of its own it polls, as in production; on a shared one it sleeps when idle, for
        // the generator.
        sleep: shared,
        spin: !shared,
    };
    let routes = [1, 0].map(|out: u16| Route {
        out,
        src: inner_mac(out.into()),
        dst: outer_mac(out.into()),
    });
    let start = |drivers: &mut Drivers| {
        let opened = OpenPorts::open_among(drivers, &specs, clock)?;
        let lcores: Vec<&Placement> = lcores.iter().collect();
        opened.start(&[1, 0], &lcores, &options, |egress: &mut Egress| {
            L2fwd::<true>::new(&routes, egress)
        })
    };
    let running = match &spaces {
        None => start(&mut setup.drivers)?,
        Some((_, space)) => space.within(|| start(&mut drivers()))?,
    };
    setup.space = spaces.map(|(outer, _)| outer);
    setup.setting("MAC update", "on");
    setup.setting("queues per port", 1);
    setup.setting("burst", Burst::CAPACITY);
    setup.setting("idle", if shared { "sleeps" } else { "polls" });
    for pool in &running.memory {
        setup.setting("pool", pool);
    }
    for (key, value) in running.ports().iter().flat_map(|port| &port.info.facts) {
        setup.setting(key, value);
    }
    wire::describe(&mut setup, asked);
    setup.under_test = Box::new(App::new(running));
    Ok(setup)
}

/// Workers of this process.
struct App<S: Stage + 'static> {
    running: Running<S>,
}

impl<S: Stage + 'static> App<S> {
    fn new(running: Running<S>) -> Self {
        Self { running }
    }

    fn stats(&self) -> impl Iterator<Item = &Arc<WorkerStats>> {
        self.running.lcores().map(|(_, _, stats)| stats)
    }
}

impl<S: Stage + 'static> UnderTest for App<S> {
    fn lcores(&self) -> Vec<String> {
        let names = self.running.lcores().map(|(name, _, _)| name.into());
        names.collect()
    }

    fn busy_ticks(&self) -> Option<u64> {
        Some(self.stats().map(|stats| stats.busy_ticks.read()).sum())
    }

    fn gaps(&self) -> Vec<HistogramSnapshot> {
        self.stats().map(|stats| stats.gaps.snapshot()).collect()
    }
}
