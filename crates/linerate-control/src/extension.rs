//! What an appliance adds to the control plane of routers: stanzas, what workers make of them,
//! their path, tables and metrics.
//!
//! Control knows an appliance as one object, and its values by `dyn Any`: neither is a type of
//! control's. A value goes this way:
//!
//! ```text
//! file ──read──► Own (in the configuration) ──build──► Own (of all workers) ──part──► each worker
//!                   └─────prepare─────► Own ─────┘
//! ```
//!
//! `prepare` may take long and may fail: it runs on the thread that reads the file, so that control
//! answers meanwhile. `build` may fail, before anything is changed. A worker takes its part over
//! between two bursts ([`PacketPath::install`]), and gives the one that it had back, which control
//! frees.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use linerate_core::env::Plan;
use linerate_core::run::Egress;

use crate::config::Config;
use crate::question::Question;
use linerate_appliance::config::Section;
use linerate_appliance::control::answers::Later;
use linerate_appliance::control::exposition::Exposition;
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::Running;
use linerate_appliance::socket::Problem;
use linerate_routing::plane::settings::Settings;
use linerate_routing::plane::{PacketPath, RouterPath, Setup};
use linerate_routing::worker::RouterStage;
use serde_json::Value;

/// A value of an appliance's own, whose type only it knows.
pub type Own = Arc<dyn Any + Send + Sync>;

/// The stanzas of a gateway, which a router refuses.
pub const OF_GATEWAYS: [&str; 8] = [
    "zone", "policy", "nat", "flows", "dispatch", "set", "balancer", "services",
];

/// An appliance at work, as its tables and metrics see it.
pub struct AtWork<'a> {
    pub config: &'a Config,
    pub settings: &'a Settings,
    pub running: &'a Running<RouterStage>,
    /// What [`Extension::build`] has made of the configuration in force.
    pub built: Option<&'a Own>,
}

/// Which fast workers hand packets to which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handing {
    /// None to any: each handles what it receives.
    #[default]
    None,
    /// Those of the role io to each other; those that have no queue to poll live on it.
    Among,
    /// Those of the role io to those of the role eu, and these on to each other.
    ToEu,
}

/// What an appliance adds. Without any of the optional methods it is a router.
pub trait Extension: Sync {
    /// The name of its command.
    fn name(&self) -> &'static str;

    /// Reads its own stanzas; `config` has all others, or those of them that have no error.
    fn read(&self, file: &Section<'_>, config: &mut Config) -> Option<Own> {
        let _ = config;
        for stanza in OF_GATEWAYS {
            if let Some((_, line)) = file.value(stanza) {
                let problem = format!("a {} has no such stanza", self.name());
                let fix = "run this file by `linerate gateway`, which has, or take it out";
                file.wrong(line, stanza, problem, fix);
            }
        }
        None
    }

    /// Makes what takes long of a file that was read whole, and adds warnings to it. `old` is what
    /// [`build`](Self::build) made of the configuration in force, of which it may share parts.
    ///
    /// # Errors
    /// There is no memory for it, or it is more than workers can look up.
    fn prepare(&self, config: &mut Config, old: Option<&Own>) -> Result<(), Error> {
        let _ = (config, old);
        Ok(())
    }

    /// What `--check` says of them, a line each.
    fn explain(&self, config: &Config) -> Vec<String> {
        let _ = config;
        Vec::new()
    }

    /// Checks what can only be said once lcores are placed.
    ///
    /// # Errors
    /// The configuration cannot run on them.
    fn check(&self, config: &Config, plan: &Plan) -> Result<(), Error> {
        let _ = (config, plan);
        Ok(())
    }

    /// Which of its fast workers hand packets to which, for as long as it runs.
    fn handing(&self, config: &Config) -> Handing {
        let _ = config;
        Handing::None
    }

    /// Whether packets that go to a worker on another NUMA node may be copied there, which takes
    /// slots on its node ([`Mesh::far`](linerate_routing::plane::Mesh)).
    fn copies(&self, config: &Config) -> bool {
        let _ = config;
        false
    }

    /// What of them a reload has changed: a key, its name in the singular, and how many.
    fn changes(&self, old: &Config, new: &Config) -> Vec<(&'static str, &'static str, usize)> {
        let _ = (old, new);
        Vec::new()
    }

    /// Keys of them that differ and cannot change under a running appliance.
    fn refused(&self, old: &Config, new: &Config) -> Vec<String> {
        let _ = (old, new);
        Vec::new()
    }

    /// Makes of a configuration, and of what was [prepared](Config::prepared), what its workers
    /// need; `old` is what they have, to be returned where it stays as it is.
    ///
    /// # Errors
    /// There is no memory for it.
    fn build(
        &self,
        config: &Config,
        settings: &Settings,
        old: Option<&Own>,
    ) -> Result<Option<Own>, Error> {
        let _ = (config, settings, old);
        Ok(None)
    }

    /// The part of one fast worker, by its number, of what was built.
    fn part(&self, built: &Own, worker: usize) -> Box<dyn Any + Send> {
        let _ = worker;
        Box::new(built.clone())
    }

    /// The path of one fast worker, by its number, with its part, and its drop reasons in `egress`.
    ///
    /// # Errors
    /// There is no memory for it.
    fn path(
        &self,
        setup: &Setup,
        config: &Config,
        built: Option<&Own>,
        worker: usize,
        egress: &mut Egress,
    ) -> Result<Box<dyn PacketPath>, Error> {
        let _ = (config, built, worker, egress);
        Ok(Box::new(RouterPath::new(setup.clock, setup.isa)))
    }

    /// The tables that it shows besides those of a router.
    fn tables(&self) -> &'static [&'static Table] {
        &[]
    }

    /// Adds the rows of one of these that a filter wants to `rows`; those that take long to find,
    /// [later](Rows::later): this is called on the control thread.
    ///
    /// # Errors
    /// The filter fits nothing of the kind.
    fn rows(
        &self,
        table: &Table,
        filter: &str,
        at_work: &AtWork<'_>,
        rows: &mut Rows,
    ) -> Result<(), Problem> {
        let _ = (table, filter, at_work, rows);
        Ok(())
    }

    /// Ends what a filter wants of one of these tables, and says how much that was: by what is
    /// returned, on the thread of who asks.
    ///
    /// # Errors
    /// The filter fits nothing of the kind, or rows of that table do not end by being told to.
    fn clear(&self, what: &str, filter: &str, at_work: &AtWork<'_>) -> Result<Later, Problem> {
        let _ = (filter, at_work);
        let problem = format!("there is no `{what}` to clear");
        Err(Problem::new(problem, "clear counters"))
    }

    /// Says why a flow may begin or may not, and where its packets go.
    ///
    /// # Errors
    /// The flow cannot be read, or cannot come in there.
    fn explain_flow(&self, question: &Question<'_>) -> Result<Value, Problem> {
        let _ = question;
        let problem = format!("a {} knows no flows", self.name());
        let fix = "ask a gateway; `linerate ctl show routes ADDRESS` says where packets go";
        Err(Problem::new(problem, fix))
    }

    /// Has buckets of flows move to another worker, as `linerate ctl move` asks.
    ///
    /// # Errors
    /// There is none of that number, or nothing of the kind moves.
    fn move_bucket(&self, params: &Value, at_work: &AtWork<'_>) -> Result<Value, Problem> {
        let _ = (params, at_work);
        let problem = format!("a {} has no flows that could move", self.name());
        let fix = "ask a gateway whose [dispatch] hands packets over";
        Err(Problem::new(problem, fix))
    }

    /// Does what is due: called ten times a second.
    fn tick(&self, at_work: &AtWork<'_>) {
        let _ = at_work;
    }

    /// Lines about packets that its rules log, and how many more there were: asked ten times a
    /// second, and told as those of access lists are.
    fn logged(&self, at_work: &AtWork<'_>) -> (Vec<String>, u64) {
        let _ = at_work;
        (Vec::new(), 0)
    }

    /// Adds its families to the metrics page.
    fn metrics(&self, at_work: &AtWork<'_>, page: &mut Exposition) {
        let _ = (at_work, page);
    }
}

/// Which appliance it is.
#[derive(Clone, Copy)]
pub struct Appliance(pub &'static dyn Extension);

impl Deref for Appliance {
    type Target = dyn Extension;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl Default for Appliance {
    /// A router.
    fn default() -> Self {
        Self(&Router)
    }
}

impl fmt::Debug for Appliance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A router: nothing is added.
struct Router;

impl Extension for Router {
    fn name(&self) -> &'static str {
        "router"
    }
}

/// Whichever appliance a file is for, what the stanzas of all say: its own are not looked at.
pub(crate) struct Names;

impl Extension for Names {
    fn name(&self) -> &'static str {
        "router"
    }

    fn read(&self, file: &Section<'_>, _: &mut Config) -> Option<Own> {
        for stanza in OF_GATEWAYS {
            file.value(stanza);
        }
        None
    }
}
