//! What an lcore runs: a stack and its applications, alone or with steering between several.

use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, Stage};
use linerate_stack::host::{self, InterfaceConfig};
use linerate_stack::reassembly;
use linerate_stack::socket::Stack;
use linerate_wire::FlowKey;

use crate::app::{self, App, Apps, StackStage};
use crate::config::{AppStanza, File, Kind};
use crate::core::rule::Rules;
use crate::echo::Echo;
use crate::http::client::Client;
use crate::http::server::Server;
use crate::proxy::Proxy;
use crate::steering::plan::{Member, Plan};
use crate::steering::{Host, Setup, Steered, Steering};
use crate::stream::Stream;

/// Connections that may be on their way from an lcore.
const AWAY: usize = 1024;

/// The stage of an lcore.
pub enum Lcore {
    /// The only one.
    Alone(Box<StackStage<Apps>>),
    /// One of several.
    Steered(Box<Steered<StackStage<Apps>>>),
    /// One that could not be made: the run ends before a packet comes.
    Nothing,
}

/// What lcores are made of.
pub struct Maker<'a> {
    /// What the file says.
    pub file: &'a File,
    /// By `[[interface]]`: the same, with what its port says.
    pub interfaces: Vec<InterfaceConfig>,
    /// The workers' clock.
    pub clock: Clock,
    /// Lcores and ports, where there are several lcores.
    pub plan: Option<Arc<Plan>>,
    /// By lcore: the outlet to it.
    pub outlets: Vec<u16>,
}

/// Why there is no lcore.
pub type Failed = (String, String);

impl Maker<'_> {
    /// The lcore of a place, whose drop reasons are those of `out`.
    ///
    /// # Errors
    /// The stanza that cannot be, and why.
    pub fn lcore(&self, index: usize, out: &mut Egress) -> Result<Lcore, Failed> {
        let now_ns = self.clock.ns(self.clock.now());
        let wrong =
            |stanza: &str, error: &dyn std::fmt::Display| (stanza.to_owned(), error.to_string());
        let mut stack =
            Stack::new(&self.file.stack, now_ns, out).map_err(|error| wrong("[tcp]", &error))?;
        let mut ids = Vec::new();
        for config in &self.interfaces {
            let added = stack.host().add_interface(config.clone(), now_ns, out);
            ids.push(added.map_err(|error| wrong("[[interface]]", &error))?);
        }
        for route in &self.file.routes {
            let route = host::Route::by(route.to, route.via, ids[route.interface]);
            let added = stack.host().add_route(route);
            added.map_err(|error| wrong("[[route]]", &error))?;
        }
        let mut apps = Apps::default();
        for stanza in &self.file.apps {
            let added = self.add(&mut apps, stanza, index);
            added.map_err(|error| wrong(&called(&stanza.name), &error))?;
        }
        let started = apps.start_all(&mut stack.io(now_ns, out));
        started.map_err(|(name, error)| wrong(&called(&name), &error))?;
        let Some(plan) = &self.plan else {
            return Ok(Lcore::Alone(Box::new(StackStage::new(
                stack, apps, self.clock,
            ))));
        };
        let me = index as Member;
        stack.set_port_rule(Box::new(Rules::new(plan.clone(), me, false)));
        let setup = Setup {
            plan: plan.clone(),
            me,
            outlets: self.outlets.clone(),
            map: None,
            reassembly: reassembly::Config::default(),
            away: AWAY,
            isa: Isa::detect(),
            clock: self.clock,
        };
        let ports = self.file.all.ports.len() as u16;
        let stage = StackStage::new(stack, apps, self.clock);
        let steered = Steered::new(&setup, ports, stage, out);
        let steered = steered.map_err(|error| wrong("[steer]", &error))?;
        Ok(Lcore::Steered(Box::new(steered)))
    }

    /// Adds the application of a stanza; `seed` tells those of several lcores apart.
    fn add(&self, apps: &mut Apps, stanza: &AppStanza, seed: usize) -> Result<(), app::Error> {
        let mut failed = None;
        let mut or_nothing = |made: Result<Box<dyn App>, app::Error>| {
            made.unwrap_or_else(|error| {
                failed = Some(error);
                Box::new(Apps::default())
            })
        };
        apps.add(stanza.name.clone(), |tokens| match &stanza.kind {
            Kind::Echo(on) => Box::new(Echo::new(*on, tokens)),
            Kind::Source(peer, amount) => Box::new(Stream::source(*peer, *amount, tokens)),
            Kind::Sink(peer) => Box::new(Stream::sink(*peer, tokens)),
            Kind::Proxy(on, to) => Box::new(Proxy::new(*on, *to, tokens)),
            Kind::Http(on, site, limits) => {
                let server = Server::new(*on, site.clone(), *limits, tokens);
                or_nothing(server.map(|server| Box::new(server) as _))
            }
            Kind::HttpClient(job, meters) => {
                let (most, seed) = (self.file.stack.connections, seed as u64 + 1);
                let client = Client::new((**job).clone(), most, seed, meters.add(), tokens);
                or_nothing(client.map(|client| Box::new(client) as _))
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

fn called(name: &str) -> String {
    format!("[[app]] {name}")
}

impl Lcore {
    /// Its stack and applications, where it has them.
    pub fn stage(&mut self) -> Option<&mut StackStage<Apps>> {
        match self {
            Self::Alone(stage) => Some(stage),
            Self::Steered(steered) => Some(steered.host()),
            Self::Nothing => None,
        }
    }
}

impl Stage for Lcore {
    #[inline]
    fn run(&mut self, burst: &mut Burst, context: &mut (), out: &mut Egress) {
        match self {
            Self::Alone(stage) => stage.run(burst, context, out),
            Self::Steered(stage) => stage.run(burst, context, out),
            Self::Nothing => out.cache.free(burst),
        }
    }

    #[inline]
    fn turn(&mut self, now: u64, context: &mut (), out: &mut Egress) -> u64 {
        match self {
            Self::Alone(stage) => Stage::turn(&mut **stage, now, context, out),
            Self::Steered(stage) => stage.turn(now, context, out),
            Self::Nothing => linerate_core::run::NEVER,
        }
    }

    fn held(&self) -> u64 {
        match self {
            Self::Alone(stage) => Stage::held(&**stage),
            Self::Steered(stage) => stage.held(),
            Self::Nothing => 0,
        }
    }
    fn held_packets(&self) -> u64 {
        match self {
            Self::Alone(stage) => Stage::held_packets(&**stage),
            Self::Steered(stage) => stage.held_packets(),
            Self::Nothing => 0,
        }
    }
}

impl Host for StackStage<Apps> {
    fn receive(&mut self, burst: &mut Burst, steering: &mut Steering, out: &mut Egress) {
        let _ = steering;
        let now_ns = self.now_ns();
        StackStage::receive(self, burst, now_ns, out);
    }

    fn has(&mut self, key: &FlowKey) -> Option<(u16, u16)> {
        // None has moved.
        self.stack.has(key).then_some((0, 0))
    }

    fn refused(&mut self, _: &FlowKey, _: &mut Egress) {}

    fn parcel(&mut self, _: Member, _: u16, packet: Packet, _: &mut Steering, out: &mut Egress) {
        // Nobody sends any.
        out.consume_one(packet);
    }

    fn turn(&mut self, now_ns: u64, _: &mut Steering, out: &mut Egress) -> u64 {
        self.work(now_ns, out)
    }

    fn held(&self) -> u64 {
        self.stack.held()
    }

    fn held_packets(&self) -> u64 {
        self.stack.held_packets()
    }
}
