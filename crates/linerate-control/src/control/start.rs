//! Brings a router up, step by step, and takes it down again when one fails or all ends.
//!
//! The socket comes first, so that a second router is refused before it touches a port. Routes that
//! the configuration states are published before the first packet is received.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_core::env::{Clock, Isa, Placement, Plan, Role, Topology};
use linerate_core::packet::{Pool, PoolCache};
use linerate_core::port::PortInfo;
use linerate_core::run::ledger::Balance;
use linerate_drivers::Drivers;
use linerate_stack::neighbour;
use linerate_tables::rss::FrameHash;

use super::acls::AclLogger;
use super::host_interfaces::HostInterfaces;
use super::kernel::Kernel;
use super::ports::options;
use super::schedule::Schedule;
use super::server::reload_by;
use super::sysctl_guard::SysctlGuard;
use super::workers::Workers;
use super::{Control, difference, generation, report};
use crate::config::Config;
use crate::extension::Handing;
use crate::question::Question;
use linerate_appliance::config::PortStanza;
use linerate_appliance::control::answers::{Answers, Listeners, Methods};
use linerate_appliance::control::mailbox::Mailbox;
use linerate_appliance::error::Error;
use linerate_appliance::notify::Notify;
use linerate_appliance::privilege::{self, Privileged};
use linerate_appliance::runtime;
use linerate_appliance::runtime::wiring::{self, PortShape, Share};
use linerate_appliance::runtime::{OpenPorts, Readings, Sample, Signals};
use linerate_appliance::socket::unix::UnixDoor;
use linerate_appliance::socket::usual_socket;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::counters::Counters;
use linerate_routing::plane::settings::Settings;
use linerate_routing::plane::{Change, Fast, Mesh, RouterPath, Setup, Slow, Tables, Tell};
use linerate_routing::rib::{self, Rib};
use linerate_routing::worker::{self, RouterStage, on_slow};
use serde_json::Value;

/// How a run is to be.
pub(crate) struct Run {
    /// Whether lines are JSON.
    pub(crate) json: bool,
    /// When to end without being told.
    pub(crate) duration: Option<Duration>,
}

/// Places the lcores that a configuration asks for.
pub(crate) fn place(config: &Config, topology: &Topology) -> Result<Plan, Error> {
    let ports: Vec<PortStanza> = config
        .ports
        .iter()
        .map(|port| PortStanza {
            name: Some(port.name.clone()),
            spec: port.spec.clone(),
        })
        .collect();
    let places = runtime::places(&ports, topology);
    let plan = Plan::build(&config.plan.clone().into(), topology, &places)?;
    if plan.role(Role::Bg).next().is_none() {
        return Err(Error::Usage {
            problem: "[plan]: no lcore is left for neighbours and the kernel".into(),
            fix: "give the role bg a slot, such as bg = \"0\"".into(),
        });
    }
    config.appliance.check(config, &plan)?;
    Ok(plan)
}

/// What a file says of a flow that comes in from there, as far as the file alone can say.
pub(crate) fn explain(config: &Config, flow: &str, from: &str) -> Result<Value, Error> {
    let settings = generation::settings(config, &[], |_| None, None)?;
    let built = config.appliance.build(config, &settings, None)?;
    let (rib, _) = table(config, &settings)?;
    let question = Question {
        flow,
        from,
        config,
        settings: &settings,
        built: built.as_ref(),
        rib: &rib,
        running: None,
    };
    Ok(config.appliance.explain_flow(&question)?)
}

/// Runs a router until it is told to end.
///
/// # Errors
/// What could not be set up, or what went wrong at the end.
pub(crate) fn start(path: &Path, config: Config, plan: &Plan, run: &Run) -> Result<(), Error> {
    // As the user who starts it: the usual place is that one's, and others may be writable for it
    // alone.
    let usual = config.router.control.is_none();
    let socket = config.router.control.clone().unwrap_or_else(usual_socket);
    let door = UnixDoor::open(&socket, usual, "[router] control = \"PATH\"")?;
    let notify = Notify::from_environment();
    // Before there are threads: capabilities and users are each thread's own.
    let privileged = privilege::split(path, &config.named())?;
    let (mailbox, jobs) = Mailbox::new(config.appliance.name());
    let reload = reload_by(config.appliance, mailbox.clone(), path, privileged.clone());
    let ends = mailbox.clone();
    let _ends = Signals::to_end(move || ends.tell(Control::stop))?;
    let _hangups = reload.clone().on_hangup()?;
    let methods = Methods::new(mailbox.clone(), Some(reload));
    let listeners = Listeners::behind(Some(Arc::new(door)), config.router.metrics, methods)?;
    let mut drivers = Drivers::opened_by(privileged.clone())
        .joining_segments()
        .playing_nics(FrameHash::make);
    let access = Access { privileged, socket };
    let mut control = bring_up(path, config, plan, &mut drivers, &mailbox, run, &access)?;
    let begun = control.say_ready(&access.socket, listeners.metrics());
    control.notify = notify;
    control.notify.ready(&control.status());
    let ran = begun.and_then(|()| control.run(&jobs));
    control.notify.stopping();
    // Clients whose question is under way hear that the router has ended.
    drop(jobs);
    drop(listeners);
    let ended = control.take_down();
    ran.and(ended)
}

/// Who does what takes privileges, and where clients of this router find it.
pub(super) struct Access {
    pub(super) privileged: Arc<dyn Privileged>,
    pub(super) socket: PathBuf,
}

/// Opens the ports, by `drivers` that may know other ends of rings, and begins to forward.
pub(super) fn bring_up(
    path: &Path,
    config: Config,
    plan: &Plan,
    drivers: &mut Drivers,
    mailbox: &Mailbox<Control>,
    run: &Run,
    access: &Access,
) -> Result<Control, Error> {
    let specs: Vec<_> = config
        .ports
        .iter()
        .map(|port| (Some(port.name.clone()), port.spec.clone()))
        .collect();
    let opened = OpenPorts::open_among(drivers, &specs, Clock::calibrate())?;
    // A reload may have an interface put fragments together.
    let opened = opened.with_large_slots();
    let infos: Vec<PortInfo> = opened.ports.iter().map(|open| open.info.clone()).collect();
    let known: Vec<Option<PortInfo>> = infos.iter().cloned().map(Some).collect();
    let count = infos.len() as u16;
    let io: Vec<&Placement> = plan.role(Role::Io).collect();
    let eu: Vec<&Placement> = plan.role(Role::Eu).collect();
    let handing = config.appliance.handing(&config);
    let takers = match handing {
        Handing::None => 0,
        Handing::Among => io.len() as u16,
        Handing::ToEu => eu.len() as u16,
    };
    // Behind the ports: the ring to the slow worker, those to other fast ones, then the host
    // interfaces.
    let slow_port = count;
    let mut host_interfaces = HostInterfaces::new(slow_port..slow_port + 1 + takers);
    for host_interface in generation::host_interfaces(&config, &known) {
        host_interfaces.allot(host_interface);
    }
    let settings =
        generation::settings(&config, &known, |name| host_interfaces.number(name), None)?;
    let built = config.appliance.build(&config, &settings, None)?;
    let settings = Arc::new(settings);
    let (rib, turned_away) = table(&config, &settings)?;

    let shapes: Vec<PortShape> = infos
        .iter()
        .map(|info| PortShape {
            rx_queues: config.router.queues.min(info.max_rx_queues),
            max_tx_queues: info.max_tx_queues,
            outs: Vec::new(),
        })
        .collect();
    let shares = shares(&shapes, (io.len(), eu.len()), handing, slow_port);
    let slow = shares.len() - 1;
    // How many come before those that take packets.
    let before = match handing {
        Handing::ToEu => slow - eu.len(),
        Handing::None | Handing::Among => 0,
    };
    let fast = match handing {
        Handing::ToEu => io.into_iter().take(before).chain(eu).collect(),
        Handing::None | Handing::Among => io.into_iter().take(slow).collect::<Vec<_>>(),
    };
    // Those that take packets, and the nodes of all that hand them over.
    let taking = &fast[before..before + usize::from(takers)];
    let taking: Vec<u32> = taking.iter().map(|lcore| lcore.node).collect();
    let is_one_node = fast.iter().all(|lcore| lcore.node == fast[0].node);
    let opened = match !is_one_node && config.appliance.copies(&config) {
        true => opened.with_slots_on(taking.clone()),
        false => opened,
    };
    let mut lcores = fast;
    lcores.extend(plan.role(Role::Bg).take(1));
    let options = options(&config.router);
    let clock = opened.clock;
    let mut failed: Option<Error> = None;
    let running = worker::start(opened, shares, &lcores, &options, &mut |worker, egress| {
        let (fib4, fib6, hops) = rib.readers();
        let setup = Setup {
            // The slow one announces what it has, and can only do so when it has its ways out.
            settings: match worker == slow {
                true => Arc::default(),
                false => settings.clone(),
            },
            tables: Tables { fib4, fib6, hops },
            clock,
            isa: Isa::detect(),
            slow: slow_port,
            punts: config.router.punts,
            queues: config.router.queues,
            mesh: Mesh {
                first: slow_port + 1,
                takers,
                me: (worker.checked_sub(before).map(|me| me as u16)).filter(|me| *me < takers),
                far: far(&taking, lcores[worker].node, &egress.cache),
            },
        };
        if worker != slow {
            let path = (config.appliance).path(&setup, &config, built.as_ref(), worker, egress);
            let path = path.unwrap_or_else(|error| {
                failed = Some(error);
                Box::new(RouterPath::new(setup.clock, setup.isa))
            });
            return RouterStage::Fast(Box::new(Fast::new(setup, path, egress)));
        }
        let neighbours = neighbour::Config {
            max_entries: config.router.neighbours as usize,
            source_asks_per_s: config.router.neighbour_scan,
            seed: clock.now(),
            ..neighbour::Config::default()
        };
        let mailbox = mailbox.clone();
        let tell: Tell =
            Box::new(move |event| mailbox.tell(move |control| control.neighbour(event)));
        match Slow::new(setup.clone(), neighbours, tell, egress) {
            Ok(slow) => RouterStage::Slow(Box::new(slow)),
            // It has no queue to poll, and the error ends all below.
            Err(error) => {
                failed = Some(error.into());
                RouterStage::Fast(Box::new(Fast::router(setup, egress)))
            }
        }
    })?;
    if let Some(error) = failed {
        drop(running);
        return Err(error);
    }
    let first = Sample::take(&running);
    let (now, period) = (Instant::now(), config.router.period);
    let Access { privileged, socket } = access;
    let guarded: &[PortInfo] = if config.router.kernel { &infos } else { &[] };
    let sysctl_guard = SysctlGuard::new(guarded, socket, privileged.clone());
    let mut control = Control {
        path: path.into(),
        kernel: None,
        config,
        turned_away,
        // The slow one is about to.
        installed: settings.clone(),
        installed_own: built.clone(),
        built,
        settings,
        workers: Workers::new(running),
        privileged: privileged.clone(),
        rib,
        host_interfaces,
        // Routes believe so: what is not up is told.
        links: (0..count).map(|number| (number, true)).collect(),
        readings: Readings::new(now, first, period),
        schedule: Schedule::new(now, run.duration),
        cleared: None,
        draining: false,
        json: run.json,
        acl_logger: AclLogger::new(now),
        sysctl_guard,
        notify: Notify::default(),
    };
    control.sysctl_guard.keep();
    // The slow worker is told of host interfaces when it has them, or what comes for one would go
    // nowhere.
    control.start_host_interfaces()?;
    let (settings, none) = (control.settings.clone(), Counters::default());
    let change = Change::new(
        settings.clone(),
        &settings,
        &none,
        control.config.router.queues,
    );
    on_slow(control.workers.slow(), move |slow, egress| {
        slow.install(change, egress)
    });
    control.hear_host_interfaces();
    control.workers.learn_counters();
    control.follow_neighbours(&Config::default());
    control.kernel = Some(Kernel::start(
        &control.config,
        mailbox,
        &control.privileged,
    )?);
    control.make_alike_all();
    Ok(control)
}

/// The routing table as the configuration alone has it, published; and whether it turned routes
/// away.
fn table(config: &Config, settings: &Settings) -> Result<(Rib, bool), Error> {
    let mut rib = Rib::new(&rib::Config {
        routes: config.router.routes as usize,
        neighbours: config.router.neighbours as usize,
        vrfs: config.vrfs.len() as u32,
        flat_vrfs: config.router.flat_tables,
        seed: seed(settings),
        ..rib::Config::default()
    })?;
    for (id, interface) in (0..).zip(&settings.interfaces) {
        let id = InterfaceId(id);
        rib.set_interface(id, Some(interface));
        // Its port says otherwise as soon as somebody looks.
        rib.interface_state(id, !interface.is_loopback());
        rib.addresses(id, &interface.addresses);
    }
    for neighbour in &config.neighbours {
        rib.neighbour(neighbour.interface, neighbour.address, Some(neighbour.mac));
    }
    let turned_away = difference::insert(&mut rib, &config.routes);
    while rib.commit() != rib::Progress::Done {}
    Ok((rib, !turned_away.is_empty()))
}

/// Another number in another router, and the same after a restart, so that flows keep their ways:
/// from the addresses of the ports.
fn seed(settings: &Settings) -> u64 {
    let macs = settings.interfaces.iter().map(|interface| interface.mac.0);
    macs.fold(0, |seed, [a, b, c, d, e, f]| {
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        (seed ^ mac)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

/// The fast workers' shares, each with a ring to the slow one, and the slow one's as the last.
/// Rings to fast ones that take packets are numbered from behind that to the slow one.
fn shares(
    shapes: &[PortShape],
    (io, eu): (usize, usize),
    handing: Handing,
    slow_port: u16,
) -> Vec<Share> {
    let mut shares = wiring::poll(shapes, io);
    let polling = shares.len();
    let takers = match handing {
        Handing::None => 0..0,
        Handing::Among => 0..io,
        Handing::ToEu => polling..polling + eu,
    };
    let taker = Share {
        role: match handing {
            Handing::ToEu => Role::Eu,
            Handing::None | Handing::Among => Role::Io,
        },
        ..Share::default()
    };
    shares.resize(takers.end.max(polling), taker);
    let slow = shares.len();
    for share in &mut shares {
        share.rings.push((slow_port, slow));
    }
    // Those that take packets hand some of them on to each other.
    wiring::mesh(&mut shares, slow_port + 1, takers, |_| true);
    shares.push(Share {
        role: Role::Bg,
        ..Share::default()
    });
    wiring::reach(&mut shares, shapes, |_, _| true);
    shares
}

/// By worker that takes packets: the pools of its node, where it is not on this one.
fn far(taking: &[u32], node: u32, cache: &PoolCache) -> Vec<Option<Vec<Pool>>> {
    let pools = |of: &u32| {
        let on_it = cache.pools().filter(|pool| pool.numa_node() == Some(*of));
        (*of != node).then(|| on_it.cloned().collect())
    };
    taking.iter().map(pools).collect()
}

impl Control {
    /// Ends the workers and says what they did.
    pub(super) fn take_down(self) -> Result<(), Error> {
        let (json, first) = (self.json, self.readings.first.clone());
        let routes = self.rib.counts().routes.iter().sum();
        let (last, balance, errors) = self.finish();
        report::totals(&last.since(&first), &balance, routes, json)?;
        Error::all(errors)
    }

    /// Ends the workers: their last counters, the books, and what went wrong.
    pub(super) fn finish(self) -> (Sample, Balance, Vec<Error>) {
        let Self {
            workers: Workers { running, .. },
            mut host_interfaces,
            kernel,
            sysctl_guard,
            ..
        } = self;
        drop(kernel);
        let mut errors = Vec::new();
        if let Some(slow) = running.handles().last().cloned() {
            on_slow(&slow, |slow, egress| slow.shut_down(egress));
            errors = host_interfaces.retain(&[], &slow);
        }
        let (last, balance, more) = running.stop();
        // The kernel may have its interfaces again.
        drop(sysctl_guard);
        errors.extend(more);
        (last, balance, errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_worker_is_the_last_and_each_worker_reaches_it_and_every_port() {
        let shape = PortShape {
            rx_queues: 2,
            max_tx_queues: 1,
            outs: Vec::new(),
        };
        let shares = shares(&[shape.clone(), shape], (3, 0), Handing::None, 2);
        let (slow, fast) = shares.split_last().expect("there are some");
        assert!(slow.role == Role::Bg && slow.polls.is_empty() && slow.rings.is_empty());
        assert_eq!(slow.sends.len() + slow.hand_offs.len(), 2);
        for share in fast {
            assert_eq!(share.rings, [(2, fast.len())]);
            assert!(!share.polls.is_empty());
            assert_eq!(share.sends.len() + share.hand_offs.len(), 2);
        }
    }

    #[test]
    fn those_that_hand_packets_over_have_a_ring_to_each_that_takes_them() {
        let shape = PortShape {
            rx_queues: 1,
            max_tx_queues: 1,
            outs: Vec::new(),
        };
        let shapes = [shape.clone(), shape];
        let among = shares(&shapes, (3, 2), Handing::Among, 2);
        let rings: Vec<_> = among.iter().map(|share| share.rings.clone()).collect();
        let to = |others: [(u16, usize); 2]| [&[(2, 3)][..], &others].concat();
        assert_eq!(
            rings,
            [
                to([(4, 1), (5, 2)]),
                to([(3, 0), (5, 2)]),
                to([(3, 0), (4, 1)]),
                Vec::new()
            ]
        );
        assert!(among[2].polls.is_empty() && among[2].role == Role::Io);
        let to_eu = shares(&shapes, (3, 2), Handing::ToEu, 2);
        let roles: Vec<_> = to_eu.iter().map(|share| share.role).collect();
        assert_eq!(
            roles,
            [Role::Io, Role::Io, Role::Eu, Role::Eu, Role::Bg],
            "one queue a port is for two"
        );
        for share in &to_eu[..2] {
            assert_eq!(share.rings, [(2, 4), (3, 2), (4, 3)]);
        }
        for (share, other) in to_eu[2..4].iter().zip([(4, 3), (3, 2)]) {
            assert_eq!(share.rings, [(2, 4), other]);
            assert_eq!(share.hand_offs.len(), 2);
        }
    }
}
