//! What the gateway adds to the control plane of routers: its stanzas, its path, its tables and
//! metrics.

use std::any::Any;
use std::sync::Arc;

use linerate_appliance::config::Section;
use linerate_appliance::control::answers::Later;
use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::{Rows, Table};
use linerate_appliance::error::Error;
use linerate_appliance::socket::Problem;
use linerate_control::extension::Handing;
use linerate_control::{AtWork, Config, Extension, Own, Question};
use linerate_core::env::{Plan, Role};
use linerate_core::run::Egress;
use linerate_routing::plane::settings::Settings;
use linerate_routing::plane::{PacketPath, Setup};
use linerate_tables::flow::Refusals;
use serde_json::Value;

use crate::config::{self, Mode, Stanzas};
use crate::dispatch::across::{Across, By};
use crate::dispatch::stage::Dispatch;
use crate::dispatch::{control, modes};
use crate::explain::explain;
use crate::path::{GatewayPath, on_path};
use crate::policy;
use crate::policy::lists::ListConfig;
use crate::records;
use crate::services::{self, Spec};
use crate::show::{self, workers};
use crate::show_nat;
use crate::stages::flows::{Counts, Flows, Prepared, Shared};

/// The appliance.
pub(crate) struct Gateway;

/// The stanzas of a configuration; the usual ones where it is not a gateway's.
pub(crate) fn stanzas(config: &Config) -> Arc<Stanzas> {
    let own = config.own.clone();
    let own = own.and_then(|own| own.downcast::<Stanzas>().ok());
    own.unwrap_or_default()
}

/// The services that rules apply.
fn applied(stanzas: &Stanzas) -> impl Iterator<Item = &Spec> {
    let lists = &stanzas.policy.lists;
    let is_applied = move |spec: &&Spec| {
        let mut named = lists.iter().flat_map(|list| &list.applies);
        named.any(|apply| apply.names.contains(&spec.name))
    };
    stanzas.services.iter().filter(is_applied)
}

/// How many of `new` are not as before, or not there before, and how many of `old` are gone.
fn changed<'a, T: PartialEq, N: PartialEq>(
    old: &'a [T],
    new: &'a [T],
    name: impl Fn(&'a T) -> N,
) -> usize {
    let is_new = |one: &&T| !old.contains(one);
    let is_gone = |one: &&'a T| !new.iter().any(|other| name(other) == name(one));
    new.iter().filter(is_new).count() + old.iter().filter(is_gone).count()
}

/// What was built.
fn shared(built: Option<&Own>) -> Option<Arc<Shared>> {
    built?.clone().downcast().ok()
}

/// The same, for a user.
fn in_force(built: Option<&Own>) -> Result<Arc<Shared>, Problem> {
    shared(built).ok_or_else(|| Problem::new("there is no policy yet", "ask again"))
}

impl Extension for Gateway {
    fn name(&self) -> &'static str {
        "gateway"
    }

    fn read(&self, file: &Section<'_>, config: &mut Config) -> Option<Own> {
        let stanzas = config::read(file, config);
        // Flows are known by ports, which fragments other than the first lack.
        let zones = &stanzas.policy.zones;
        for interface in &mut config.interfaces {
            let is_in_zone = zones
                .iter()
                .any(|zone| zone.interfaces.contains(&interface.name));
            interface.reassemble |= is_in_zone || stanzas.dispatch.hands_over();
            interface.answered = stanzas.nat.answered_at(&interface.addresses);
        }
        Some(Arc::new(stanzas))
    }

    fn prepare(&self, config: &mut Config, old: Option<&Own>) -> Result<(), Error> {
        let (stanzas, old) = (stanzas(config), shared(old));
        if let Some(log) = old.as_ref().and_then(|old| old.log.as_ref()) {
            log.reopen();
        }
        let prepared = Prepared::new(&stanzas, old.as_deref())?;
        let unreachable = policy::warnings(&prepared.lists, &stanzas.policy);
        config.warnings.extend(unreachable);
        config.warnings.sort_by_key(|warning| warning.line);
        config.prepared = Some(Arc::new(prepared));
        Ok(())
    }

    fn explain(&self, config: &Config) -> Vec<String> {
        let stanzas = stanzas(config);
        let zones = stanzas.policy.zones.iter().map(|zone| {
            let interfaces = zone.interfaces.join(", ");
            format!("zone {}: {interfaces}", zone.name)
        });
        let policies = stanzas.policy.lists.iter().map(|list| {
            let (rules, default) = (list.rules.len(), list.default.name());
            format!("policy {}: rules {rules}, others {default}", list.name())
        });
        let flows = format!(
            "flows of each worker: {} of IPv4, {} of IPv6",
            stanzas.flows.ipv4, stanzas.flows.ipv6
        );
        let nat = &stanzas.nat;
        let inward = nat.statics.len() + nat.forwards.len();
        let nat = format!(
            "nat: rules of sources {}, static addresses and forwards {inward}",
            nat.sources.len()
        );
        let nat = (!stanzas.nat.is_empty()).then_some(nat);
        let balancers = stanzas.balance.services.iter().map(|service| {
            let (place, form) = (service.place(), service.form.name());
            let backends = service.backends.len();
            format!(
                "balancer {}: {place}, {form}, backends {backends}",
                service.name
            )
        });
        let applied = applied(&stanzas);
        let services =
            applied.map(|spec| format!("service {}: {}", spec.name, spec.settings.text()));
        let lists = zones.chain(policies).chain(services);
        lists.chain(nat).chain(balancers).chain([flows]).collect()
    }

    fn check(&self, config: &Config, plan: &Plan) -> Result<(), Error> {
        modes::check(&stanzas(config), plan.role(Role::Io).count())
    }

    fn handing(&self, config: &Config) -> Handing {
        match stanzas(config).dispatch {
            Mode::None | Mode::Rss => Handing::None,
            Mode::Dispatcher => Handing::ToEu,
            Mode::Balanced => Handing::Among,
        }
    }

    fn copies(&self, config: &Config) -> bool {
        stanzas(config).across != By::Pointer
    }

    fn changes(&self, old: &Config, new: &Config) -> Vec<(&'static str, &'static str, usize)> {
        let (before, after) = (stanzas(old), stanzas(new));
        let (old, new) = (&before.policy, &after.policy);
        let zones = changed(&old.zones, &new.zones, |zone| &zone.name);
        let lists = changed(&old.lists, &new.lists, ListConfig::name);
        let (old, new) = (&before.balance.services, &after.balance.services);
        let balancers = changed(old, new, |service| &service.name);
        let is_new = |one: &&Spec| !before.services.contains(one);
        let is_gone = |one: &&Spec| !after.services.iter().any(|spec| spec.name == one.name);
        let services =
            applied(&after).filter(is_new).count() + applied(&before).filter(is_gone).count();
        vec![
            ("zones", "zone", zones),
            ("policies", "policy", lists),
            ("services", "service", services),
            ("balancers", "balancer", balancers),
        ]
    }

    fn refused(&self, old: &Config, new: &Config) -> Vec<String> {
        let (old, new) = (stanzas(old), stanzas(new));
        let mut keys = Vec::new();
        let evens = |stanzas: &Stanzas| stanzas.rebalance.is_some();
        let differ = (old.dispatch, old.across) != (new.dispatch, new.across);
        if differ || evens(&old) != evens(&new) {
            keys.push("[dispatch]".into());
        }
        keys.extend(new.flows.refused(&old.flows));
        // Memory for translated flows is taken at the start, or not at all.
        let is_new = old.translates() != new.translates();
        if old.nat.limits != new.nat.limits || is_new && new.nat.is_empty() != old.nat.is_empty() {
            keys.push("[nat]".into());
        } else if is_new {
            keys.push("[[balancer]]".into());
        }
        keys
    }

    fn build(
        &self,
        config: &Config,
        settings: &Settings,
        old: Option<&Own>,
    ) -> Result<Option<Own>, Error> {
        let (stanzas, old) = (stanzas(config), shared(old));
        let prepared = config.prepared.clone();
        let prepared = match prepared.and_then(|one| one.downcast::<Prepared>().ok()) {
            Some(prepared) => prepared,
            None => Arc::new(Prepared::new(&stanzas, old.as_deref())?),
        };
        let new = Shared::of(&stanzas, settings, old.as_deref(), &prepared)?;
        if let Some(old) = old.filter(|old| old.is(&new)) {
            return Ok(Some(old));
        }
        Ok(Some(Arc::new(new)))
    }

    fn part(&self, built: &Own, worker: usize) -> Box<dyn Any + Send> {
        match shared(Some(built)) {
            Some(shared) => Box::new(shared.part(worker)),
            None => Box::new(()),
        }
    }

    fn path(
        &self,
        setup: &Setup,
        config: &Config,
        built: Option<&Own>,
        worker: usize,
        egress: &mut Egress,
    ) -> Result<Box<dyn PacketPath>, Error> {
        let stanzas = stanzas(config);
        let shared = match shared(built) {
            Some(shared) => (*shared).clone(),
            None => Shared::new(&stanzas, &setup.settings, None)?,
        };
        let now_ns = setup.clock.ns(setup.clock.now());
        let mut flows = Flows::new(shared, worker, now_ns, egress)?;
        let classes = flows.classes().clone();
        let mut dispatch = Dispatch::new(classes, &setup.mesh, setup.isa, egress);
        if let Some(dispatch) = &mut dispatch {
            let across = Across::new(stanzas.across, &setup.mesh.far, flows.readers());
            dispatch.set_across(across);
            flows.own(dispatch.mine());
            flows.moves(stanzas.rebalance.is_some());
            dispatch.sorter().count_loads(stanzas.rebalance.is_some());
        }
        Ok(Box::new(GatewayPath::with(setup, flows, dispatch)))
    }

    fn tables(&self) -> &'static [&'static Table] {
        &show::TABLES
    }

    fn rows(
        &self,
        table: &Table,
        filter: &str,
        at_work: &AtWork<'_>,
        rows: &mut Rows,
    ) -> Result<(), Problem> {
        let shared = in_force(at_work.built)?;
        match table.what {
            "flows" => show::flows(shared, filter, at_work, rows),
            "workers" => workers::rows(&shared, at_work, rows),
            "backends" => show::backends(shared, filter, at_work, rows),
            "services" => {
                services::show::services(&shared.plan, filter, at_work, rows);
                Ok(())
            }
            "talkers" => services::show::talkers(&shared.plan, filter, at_work, rows),
            "nat" | "mappings" | "subscribers" => {
                show_nat::rows(table, &shared, filter, at_work, rows)
            }
            _ => show::policies(&shared, filter, rows),
        }
    }

    fn clear(&self, what: &str, filter: &str, at_work: &AtWork<'_>) -> Result<Later, Problem> {
        match what {
            "flows" => {
                let shared = in_force(at_work.built)?;
                show::clear(&shared, filter, at_work)
            }
            _ => {
                let problem = format!("there is no `{what}` to clear");
                Err(Problem::new(problem, "clear counters, or flows"))
            }
        }
    }

    fn explain_flow(&self, question: &Question<'_>) -> Result<Value, Problem> {
        explain(question, &*in_force(question.built)?)
    }

    fn move_bucket(&self, params: &Value, at_work: &AtWork<'_>) -> Result<Value, Problem> {
        let shared = in_force(at_work.built)?;
        control::move_bucket(at_work.running, &shared.moves, params)
    }

    fn tick(&self, at_work: &AtWork<'_>) {
        let interval = stanzas(at_work.config).rebalance;
        if let (Some(interval), Some(shared)) = (interval, shared(at_work.built))
            && let Some(gone) = control::rebalance(at_work.running, &shared.moves, interval)
        {
            eprintln!("warning: a bucket that was to move: {gone}");
        }
    }

    fn logged(&self, at_work: &AtWork<'_>) -> (Vec<String>, u64) {
        let (mut lines, mut more) = (Vec::new(), 0);
        let Some(shared) = shared(at_work.built) else {
            return (lines, more);
        };
        tell_backends(&shared, at_work, &mut lines);
        if let Some(log) = &shared.log {
            records::take(log, shared.rules.config.limits.records, at_work);
        }
        more += services::show::logged(&shared.plan, at_work, &mut lines);
        if !shared.policy.logs() {
            return (lines, more);
        }
        for worker in at_work.running.handles() {
            let Some(hits) = on_path(worker, |path, _| path.flows().take_logged()) else {
                continue;
            };
            more += hits.more;
            for hit in hits.iter() {
                let id = hit.gate.interface();
                let interface = at_work.settings.interfaces.get(usize::from(id.0));
                let name = interface.map_or("?", |interface| &interface.name);
                lines.push(shared.policy.line(hit, name));
            }
        }
        (lines, more)
    }

    fn metrics(&self, at_work: &AtWork<'_>, page: &mut Exposition) {
        let shared = shared(at_work.built);
        let zones = shared
            .iter()
            .flat_map(|shared| shared.policy.zones().iter());
        let (numbers, names): (Vec<u8>, Vec<&str>) =
            (zones.map(|(zone, name)| (zone.number(), name))).unzip();
        let mut all = Sums::of_zones(names.len());
        for worker in at_work.running.handles() {
            let numbers = numbers.clone();
            if let Some(sums) = on_path(worker, move |path, _| Sums::of(path.flows(), &numbers)) {
                all.add(&sums);
            }
        }
        all.show(page, &names);
        if let Some(shared) = &shared {
            show::decided(shared, page);
            workers::metrics(shared, at_work, page);
            shared.balance.metrics(&show::begun(at_work), page);
            show_nat::metrics(shared, at_work, page);
            services::show::metrics(&shared.plan, at_work, page);
        }
    }
}

/// Says which backends went up and down, and has workers choose among those that are up.
fn tell_backends(shared: &Shared, at_work: &AtWork<'_>, lines: &mut Vec<String>) {
    lines.extend(shared.balance.board().take_lines());
    show::hand_backends(shared, at_work);
}

/// What the flow tables of workers say, summed.
#[derive(Default)]
struct Sums {
    /// Of IPv4 and IPv6.
    flows: [u64; 2],
    room: [u64; 2],
    half_open: u64,
    /// By zone with a name: flows, and half-open connections.
    zones: Vec<[u64; 2]>,
    refusals: [u64; 7],
    evictions: u64,
    counts: Counts,
}

impl Sums {
    /// Nothing, of so many zones.
    fn of_zones(zones: usize) -> Self {
        Self {
            zones: vec![[0; 2]; zones],
            ..Self::default()
        }
    }

    /// Those of a worker, and of the zones of these numbers.
    fn of(flows: &Flows, zones: &[u8]) -> Self {
        let both = [flows.v4().refusals(), flows.v6().refusals()];
        let sum = |of: fn(&Refusals) -> u64| both.iter().map(of).sum();
        Self {
            flows: [flows.v4().len() as u64, flows.v6().len() as u64],
            room: [flows.v4().capacity() as u64, flows.v6().capacity() as u64],
            half_open: flows.half_open() as u64,
            zones: (zones.iter())
                .map(|&zone| [flows.in_zone(zone), flows.half_open_in(zone)].map(u64::from))
                .collect(),
            refusals: [
                sum(|all| all.table),
                sum(|all| all.state),
                sum(|all| all.owner),
                sum(|all| all.zone),
                sum(|all| all.translated),
                sum(|all| all.taken),
                sum(|all| all.collision),
            ],
            evictions: flows.v4().evictions() + flows.v6().evictions(),
            counts: flows.counts(),
        }
    }

    fn add(&mut self, other: &Self) {
        for at in 0..2 {
            self.flows[at] += other.flows[at];
            self.room[at] += other.room[at];
        }
        for (sum, more) in self.refusals.iter_mut().zip(other.refusals) {
            *sum += more;
        }
        self.half_open += other.half_open;
        for (sum, more) in self.zones.iter_mut().zip(&other.zones) {
            (sum[0], sum[1]) = (sum[0] + more[0], sum[1] + more[1]);
        }
        self.evictions += other.evictions;
        self.counts.begun += other.counts.begun;
        self.counts.ended += other.counts.ended;
        self.counts.forbidden += other.counts.forbidden;
        self.counts.cookies += other.counts.cookies;
        self.counts.cookies_returned += other.counts.cookies_returned;
        self.counts.cleared += other.counts.cleared;
        self.counts.lost_in_moves += other.counts.lost_in_moves;
    }

    fn show(&self, page: &mut Exposition, zones: &[&str]) {
        let families = ["ipv4", "ipv6"];
        for (family, help, values) in [
            ("flows", "Flows that are known now.", self.flows),
            ("flows_room", "Flows that there is room for.", self.room),
        ] {
            page.family(family, FamilyKind::Gauge, "", help);
            for (name, value) in families.iter().zip(values) {
                page.sample(&[("family", name)], value);
            }
        }
        let help = "Connections that one side has not confirmed yet.";
        page.family("flows_half_open", FamilyKind::Gauge, "", help);
        page.sample(&[], self.half_open);
        let helps = [
            ("zone_flows", "Flows that have come from a zone."),
            ("zone_half_open", "The same that are half open."),
        ];
        for (at, (family, help)) in helps.into_iter().enumerate() {
            page.family(family, FamilyKind::Gauge, "", help);
            for (zone, values) in zones.iter().zip(&self.zones) {
                page.sample(&[("zone", zone)], values[at]);
            }
        }
        let counters = [
            ("flows_begun", "Flows that have begun.", self.counts.begun),
            (
                "flows_ended",
                "Flows that have ended because no packet came for their time.",
                self.counts.ended,
            ),
            (
                "flows_forbidden",
                "Flows that ended because policies changed.",
                self.counts.forbidden,
            ),
            (
                "flows_cleared",
                "Flows that ended because `linerate ctl clear flows` said so.",
                self.counts.cleared,
            ),
            (
                "flows_lost_in_moves",
                "Flows that ended because their bucket moved to a worker without room for them.",
                self.counts.lost_in_moves,
            ),
            (
                "flows_evicted",
                "Half-open connections that made room for other flows.",
                self.evictions,
            ),
            (
                "syn_cookies",
                "SYNs that were answered by a cookie.",
                self.counts.cookies,
            ),
            (
                "syn_cookies_returned",
                "Connections whose SYN cookie has come back.",
                self.counts.cookies_returned,
            ),
        ];
        for (family, help, value) in counters {
            page.family(family, FamilyKind::Counter, "", help);
            page.sample(&[], value);
        }
        let help = "Flows that could not begin, by what there was no room in.";
        page.family("flows_refused", FamilyKind::Counter, "", help);
        let whys = [
            "table",
            "state",
            "host",
            "zone",
            "translated",
            "taken",
            "collision",
        ];
        for (why, value) in whys.iter().zip(self.refusals) {
            page.sample(&[("why", why)], value);
        }
    }
}
