//! What an lcore runs: a stack and its applications, alone or with steering between several.

use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::Burst;
use linerate_core::run::{Egress, Stage};
use linerate_stack::host::{self, InterfaceConfig};
use linerate_stack::reassembly;
use linerate_stack::socket::{Stack, StackConfig};

use crate::app::{self, App, Apps, StackStage, Tokens};
use crate::by_user::ByUser;
use crate::config::{AppStanza, File, Kind};
use crate::core::{HostCounts, Post, StackHost};
use crate::echo::Echo;
use crate::http::client::Client;
use crate::http::server::Server;
use crate::proxy::Proxy;
use crate::steering::map::MapConfig;
use crate::steering::plan::{Member, Plan};
use crate::steering::stage::Nobody;
use crate::steering::{Cores, Misdirected, OwnerRule, Setup, Steered, Steering};
use crate::stream::Stream;

/// Large slots that received data may keep on all lcores: half of those that a port has, so that
/// the others are there for frames to come.
const RECEIVED_LARGE: u32 = 128;
/// Connections that may be on their way from an lcore.
const AWAY: usize = 1024;

/// The stage of an lcore.
pub enum Lcore {
    /// The only one.
    Alone(Box<StackStage<Apps>>),
    /// One of several.
    Steered(Box<Steered<StackHost<Apps>>>, Clock),
    /// One that receives or sends for others.
    Distributor(Box<Steered<Nobody>>),
    /// One that could not be made: the run ends before a packet comes.
    Nothing,
}

/// A stack, its applications, and the time.
pub struct Parts<'a> {
    /// The stack.
    pub stack: &'a mut Stack,
    /// The applications.
    pub apps: &'a mut Apps,
    /// The time of the worker's clock in nanoseconds.
    pub now_ns: u64,
}

/// Several lcores: who they are to each other.
pub struct Several {
    /// Lcores and ports.
    pub plan: Arc<Plan>,
    /// By lcore: the outlet to it.
    pub outlets: Vec<u16>,
    /// The maps of each home, where connections may be elsewhere than a hash says.
    pub map: Option<MapConfig>,
    /// The lcores of users.
    pub cores: Cores,
    /// By lcore that has connections, until it is made: its ends of the ways of connections.
    pub posts: Vec<Option<Post>>,
}

/// What applications are made of.
#[derive(Clone, Debug)]
pub struct AppMaker {
    /// Connections of each stack.
    pub connections: u32,
    /// How many lcores have connections.
    pub owners: Member,
    /// The lcores of users, where there are several lcores.
    pub cores: Option<Cores>,
}

/// What lcores are made of.
pub struct Maker<'a> {
    /// What the file says.
    pub file: &'a File,
    /// By `[[interface]]`: the same, with what its port says.
    pub interfaces: Vec<InterfaceConfig>,
    /// The workers' clock.
    pub clock: Clock,
    /// Where there are several lcores.
    pub several: Option<Several>,
}

/// Why there is no lcore.
pub type Failed = (String, String);

impl Maker<'_> {
    /// What its applications are made of.
    pub fn apps(&self) -> AppMaker {
        let several = self.several.as_ref();
        AppMaker {
            connections: self.file.stack.connections,
            owners: several.map_or(1, |several| several.plan.owners()),
            cores: several.map(|several| several.cores.clone()),
        }
    }

    /// The lcore of a number, whose drop reasons are those of `out`.
    ///
    /// # Errors
    /// The stanza that cannot be, and why.
    pub fn lcore(&mut self, me: Member, out: &mut Egress) -> Result<Lcore, Failed> {
        let ports = self.file.all.ports.len() as u16;
        let wrong =
            |stanza: &str, error: &dyn std::fmt::Display| (stanza.to_owned(), error.to_string());
        let setup = self.several.as_mut().map(|several| {
            let setup = Setup {
                plan: several.plan.clone(),
                me,
                outlets: several.outlets.clone(),
                map: several.map.clone(),
                reassembly: reassembly::Config::default(),
                away: AWAY,
                isa: Isa::detect(),
                clock: self.clock,
            };
            let post = several.posts.get_mut(usize::from(me));
            (setup, post.and_then(Option::take))
        });
        if let Some((setup, None)) = &setup {
            let steered = Steered::new(setup, ports, Nobody, out);
            let mut steered = steered.map_err(|error| wrong("[steer]", &error))?;
            self.set_rules(steered.steering());
            return Ok(Lcore::Distributor(Box::new(steered)));
        }
        let now_ns = self.clock.ns(self.clock.now());
        let maker = self.apps();
        let config = StackConfig {
            received_large: (RECEIVED_LARGE / u32::from(maker.owners)).max(1),
            ..self.file.stack.clone()
        };
        let mut stack = Stack::new(&config, now_ns, out).map_err(|error| wrong("[tcp]", &error))?;
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
            let mut failed = None;
            apps.add(stanza.name.clone(), |tokens| {
                let made = maker.make(stanza, me, now_ns, tokens);
                made.unwrap_or_else(|error| {
                    failed = Some(wrong(&called(&stanza.name), &error));
                    Box::new(Apps::default())
                })
            });
            failed.map_or(Ok(()), Err)?;
        }
        let started = apps.start_all(&mut stack.io(now_ns, out));
        started.map_err(|(name, error)| wrong(&called(&name), &error))?;
        let Some((setup, Some(post))) = setup else {
            let stage = StackStage::new(stack, apps, self.clock);
            return Ok(Lcore::Alone(Box::new(stage)));
        };
        let host = StackHost::new(&setup, ports, stack, apps, post, out);
        let steered = Steered::new(&setup, ports, host, out);
        let mut steered = steered.map_err(|error| wrong("[steer]", &error))?;
        self.set_rules(steered.steering());
        Ok(Lcore::Steered(Box::new(steered), self.clock))
    }

    /// Tells steering whose the packets are that name users.
    fn set_rules(&self, steering: &mut Steering) {
        let Ok(cores) = self.apps().epc_cores() else {
            return;
        };
        let rules = self
            .file
            .apps
            .iter()
            .filter_map(|stanza| match &stanza.kind {
                Kind::Epc(node) => node.owner_rule(cores),
                _ => None,
            });
        let rules: Vec<OwnerRule> = rules.collect();
        if !rules.is_empty() {
            let first = move |frame: &[u8]| rules.iter().find_map(|rule| rule(frame));
            steering.set_owner_rule(Box::new(first));
        }
    }
}

impl AppMaker {
    /// The lcores that share the work of a node of an EPC: those that have connections.
    fn epc_cores(&self) -> Result<linerate_epc::Cores, app::Error> {
        let cores = linerate_epc::Cores::new(self.owners.into());
        cores.map_err(|error| app::Error::Table(error.to_string()))
    }

    /// The application of a stanza on lcore `me`, behind a look for its user where the file says
    /// so.
    ///
    /// # Errors
    /// There is no memory for its tables.
    pub fn make(
        &self,
        stanza: &AppStanza,
        me: Member,
        now_ns: u64,
        tokens: Tokens,
    ) -> Result<Box<dyn App>, app::Error> {
        let app = self.of_kind(&stanza.kind, me, now_ns, tokens)?;
        Ok(match (&stanza.by_user, &self.cores) {
            // On one lcore all users are at home.
            (Some(extract), Some(cores)) => {
                let (extract, cores) = (extract.clone(), cores.clone());
                Box::new(ByUser::new(app, tokens, extract, cores, me))
            }
            _ => app,
        })
    }

    fn of_kind(
        &self,
        kind: &Kind,
        me: Member,
        now_ns: u64,
        tokens: Tokens,
    ) -> Result<Box<dyn App>, app::Error> {
        Ok(match kind {
            Kind::Echo(on) => Box::new(Echo::new(*on, tokens)),
            Kind::Source(peer, amount) => Box::new(Stream::source(*peer, *amount, tokens)),
            Kind::Sink(peer) => Box::new(Stream::sink(*peer, tokens)),
            Kind::Proxy(on, to) => Box::new(Proxy::new(*on, *to, tokens)),
            Kind::Http(on, site, limits) => {
                Box::new(Server::new(*on, site.clone(), *limits, tokens)?)
            }
            Kind::HttpClient(job, meters) => {
                // The seed tells those of several lcores apart.
                let (most, seed) = (self.connections, u64::from(me) + 1);
                let job = (**job).clone();
                Box::new(Client::new(job, most, seed, meters.add(), tokens)?)
            }
            Kind::Epc(node) => {
                let made = node.app(self.epc_cores()?, me, now_ns, tokens);
                made.map_err(|error| app::Error::Table(error.to_string()))?
            }
        })
    }
}

fn called(name: &str) -> String {
    format!("[[app]] {name}")
}

impl Lcore {
    /// Its stack and applications, where it has them.
    pub fn parts(&mut self) -> Option<Parts<'_>> {
        match self {
            Self::Alone(stage) => {
                let now_ns = stage.now_ns();
                let StackStage { stack, app, .. } = &mut **stage;
                Some(Parts {
                    stack,
                    apps: app,
                    now_ns,
                })
            }
            Self::Steered(steered, clock) => {
                let host = steered.host();
                Some(Parts {
                    stack: &mut host.stack,
                    apps: &mut host.user,
                    now_ns: clock.ns(clock.now()),
                })
            }
            Self::Distributor(_) | Self::Nothing => None,
        }
    }

    /// What follows a call of its stack from elsewhere: what it keeps for steering leaves, homes
    /// hear of ends.
    pub fn settle(&mut self, out: &mut Egress) {
        if let Self::Steered(steered, _) = self {
            let (steering, host) = steered.both();
            host.settle(steering, out);
        }
    }

    /// Its steering, where there is one.
    pub fn steering(&mut self) -> Option<(&mut Steering, HostCounts)> {
        match self {
            Self::Steered(steered, _) => {
                let (steering, host) = steered.both();
                Some((steering, host.counts()))
            }
            Self::Distributor(steered) => Some((steered.steering(), HostCounts::default())),
            Self::Alone(_) | Self::Nothing => None,
        }
    }
}

/// The first packet that came elsewhere than the model of its port says, once for each lcore.
#[inline]
fn say(misdirected: Option<Misdirected>) {
    if let Some(misdirected) = misdirected {
        eprintln!("warning: {misdirected}");
    }
}

impl Stage for Lcore {
    #[inline]
    fn run(&mut self, burst: &mut Burst, context: &mut (), out: &mut Egress) {
        match self {
            Self::Alone(stage) => stage.run(burst, context, out),
            Self::Steered(stage, _) => stage.run(burst, context, out),
            Self::Distributor(stage) => stage.run(burst, context, out),
            Self::Nothing => out.cache.free(burst),
        }
    }

    #[inline]
    fn turn(&mut self, now: u64, context: &mut (), out: &mut Egress) -> u64 {
        match self {
            Self::Alone(stage) => Stage::turn(&mut **stage, now, context, out),
            Self::Steered(stage, _) => {
                say(stage.steering().take_misdirected());
                stage.turn(now, context, out)
            }
            Self::Distributor(stage) => {
                say(stage.steering().take_misdirected());
                stage.turn(now, context, out)
            }
            Self::Nothing => linerate_core::run::NEVER,
        }
    }

    fn held(&self) -> u64 {
        match self {
            Self::Alone(stage) => Stage::held(&**stage),
            Self::Steered(stage, _) => stage.held(),
            Self::Distributor(stage) => stage.held(),
            Self::Nothing => 0,
        }
    }
    fn held_packets(&self) -> u64 {
        match self {
            Self::Alone(stage) => Stage::held_packets(&**stage),
            Self::Steered(stage, _) => stage.held_packets(),
            Self::Distributor(stage) => stage.held_packets(),
            Self::Nothing => 0,
        }
    }
}
