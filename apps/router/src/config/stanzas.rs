//! `[plan]`, `[router]`, `[[port]]` and `[[vrf]]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use linerate_core::port::Spec;
use linerate_drivers::{COMMON_OPTIONS, Drivers};

use super::section::{At, Section};
use super::{PortConfig, RouterStanza, VrfConfig};
use linerate_appliance::config::PlanStanza;
use linerate_appliance::nearest::offer;
use linerate_appliance::runtime::claim;
use linerate_appliance::users::User;
use linerate_routing::model::MAIN_TABLE;
use linerate_routing::plane::punt::{Rates, Reason};

const LIST: &str = "a list such as \"0,2-4\"";
const LISTEN: &str = "an address and a port such as \"127.0.0.1:9108\"";

pub(super) fn plan(file: &Section<'_>) -> PlanStanza {
    let Some(section) = file.table("plan", "plan", "a table: [plan]") else {
        return PlanStanza::default();
    };
    let list = |key| section.text(key, LIST).map(|at| at.value);
    let plan = PlanStanza {
        bg: list("bg"),
        io: list("io"),
        eu: list("eu"),
        cpus: list("cpus"),
    };
    section.end();
    plan
}

pub(super) fn router(file: &Section<'_>) -> RouterStanza {
    let usual = RouterStanza::default();
    let Some(section) = file.table("router", "router", "a table: [router]") else {
        return usual;
    };
    let seconds = |key, default: Duration| {
        let at = section.decimal(key, "a number of seconds such as 2.5");
        at.map_or(default, |at| Duration::from_secs_f64(at.value.min(1e9)))
    };
    let metrics = section.parsed::<SocketAddr>("metrics", LISTEN);
    if let Some(at) = metrics.as_ref().filter(|at| !at.value.ip().is_loopback()) {
        let problem = format!("{} can be reached from other machines", at.value.ip());
        let legal = "a loopback address: 127.0.0.1 or [::1]; let a proxy ask for a password";
        section.wrong(at.line, "metrics", problem, legal);
    }
    let stanza = RouterStanza {
        control: section
            .text("control", "a path such as \"/run/linerate/router.sock\"")
            .map(|at| PathBuf::from(at.value)),
        user: user(&section, "user"),
        metrics: metrics.map(|at| at.value),
        fpm: section
            .parsed("fpm", "an address and a port such as \"127.0.0.1:2620\"")
            .map(|at| at.value),
        fpm_user: user(&section, "fpm_user"),
        kernel: section.switch("kernel").map_or(usual.kernel, |at| at.value),
        period: Some(seconds("period", Duration::from_secs(10))).filter(|time| !time.is_zero()),
        routes: section
            .number("routes", 1..=16_000_000)
            .map_or(usual.routes, |at| at.value),
        neighbours: section
            .number("neighbours", 1..=1_000_000)
            .map_or(usual.neighbours, |at| at.value),
        flat_tables: section
            .number("flat_tables", 0..=4096)
            .map_or(usual.flat_tables, |at| at.value),
        neighbour_scan: section
            .number("neighbour_scan", 1..=1_000_000)
            .map_or(usual.neighbour_scan, |at| at.value),
        graceful: seconds("graceful", usual.graceful),
        punts: punts(&section),
        queues: section
            .number("queues", 1..=64)
            .map_or(usual.queues, |at| at.value),
        burst: section
            .number("burst", 1..=64)
            .map_or(usual.burst, |at| at.value),
        pool_slots: section
            .number("pool_slots", 64..=1 << 24)
            .map(|at| at.value),
        sleep: section.switch("sleep").map_or(usual.sleep, |at| at.value),
    };
    section.end();
    stanza
}

/// A user of this machine.
fn user(router: &Section<'_>, key: &'static str) -> Option<User> {
    let legal = "a name that `getent passwd` shows, or a number";
    let read = |text: &str| User::find(text).ok_or_else(|| format!("there is no user `{text}`"));
    router.read(key, legal, read).map(|at| at.value)
}

/// `punts = { local = 50000, arp = 1000 }`; what is not named stays as usual.
fn punts(router: &Section<'_>) -> Rates {
    let mut rates = Rates::default();
    let legal = "a table such as { local = 50000, arp = 1000 }, in packets a second";
    let Some(section) = router.table("router.punts", "punts", legal) else {
        return rates;
    };
    for reason in Reason::ALL {
        if let Some(at) = section.number(reason.name(), 1..=10_000_000) {
            rates.set(reason, at.value);
        }
    }
    section.end();
    rates
}

pub(super) fn ports(file: &Section<'_>) -> Vec<At<PortConfig>> {
    let mut ports: Vec<At<PortConfig>> = Vec::new();
    for section in file.tables("port", "tables: [[port]] with name and spec") {
        let spec = section.required("spec", "KIND:TARGET[,key=value...]; see `linerate ports`");
        let name = section.text("name", "a text");
        let line = name.as_ref().map_or(section.line, |name| name.line);
        if let Some(spec) = &spec {
            check_spec(&section, spec);
        }
        let spec_line = spec.as_ref().map_or(line, |spec| spec.line);
        let spec = spec.map_or(String::new(), |spec| spec.value);
        let name = name.map_or_else(|| spec_name(&spec), |name| name.value);
        if ports.iter().any(|port| port.value.name == name) {
            let problem = format!("`{name}` names two ports");
            section.wrong(line, "name", problem, "a name of its own");
        }
        let wanted = claim::wanted(&spec);
        let same =
            |port: &&At<PortConfig>| wanted.is_some() && claim::wanted(&port.value.spec) == wanted;
        if let (Some(other), Some(interface)) = (ports.iter().find(same), &wanted) {
            let problem = format!(
                "interface `{interface}` is port `{}` already",
                other.value.name
            );
            let legal = "an interface of its own: every frame would come by both";
            section.wrong(spec_line, "spec", problem, legal);
        }
        section.end();
        // A port that is wrong counts as one all the same: what refers to it is not wrong as well.
        let value = PortConfig { name, spec };
        ports.push(At { value, line });
    }
    if ports.is_empty() {
        let legal = "[[port]] with name = \"wan\" and spec = \"af_xdp:eth0\"";
        file.wrong(1, "port", "there is no port", legal);
    }
    ports
}

/// What a port without a name is called.
fn spec_name(spec: &str) -> String {
    spec.parse::<Spec>()
        .map_or_else(|_| spec.into(), |spec| spec.name())
}

/// Whether the drivers know the kind of port and its options.
fn check_spec(section: &Section<'_>, at: &At<String>) {
    let kinds = || Drivers::kinds().iter().map(|kind| kind.name);
    let spec: Spec = match at.value.parse() {
        Ok(spec) => spec,
        Err(error) => {
            let error: linerate_core::port::PortError = error;
            return section.wrong(at.line, "spec", error.to_string(), "");
        }
    };
    let Some(kind) = Drivers::kinds()
        .iter()
        .find(|kind| kind.name == spec.kind())
    else {
        let problem = format!("there is no kind of port `{}`", spec.kind());
        return section.wrong(at.line, "spec", problem, offer(spec.kind(), kinds()));
    };
    if let Err(error) = spec.check_keys(&[kind.options, COMMON_OPTIONS].concat()) {
        section.wrong(at.line, "spec", error.to_string(), "");
    }
}

pub(super) fn vrfs(file: &Section<'_>) -> Vec<VrfConfig> {
    let mut vrfs = vec![VrfConfig {
        name: "default".into(),
        table: Some(MAIN_TABLE),
        netns: None,
        has_main: false,
    }];
    for section in file.tables("vrf", "tables: [[vrf]] with name, table and netns") {
        let name = section.required("name", "a name such as \"blue\"");
        let table = section.number::<u32>("table", 1..=u32::MAX);
        let netns = section.read("netns", "a name that `ip netns` shows", |text| {
            let sound = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
            sound
                .then(|| text.to_string())
                .ok_or_else(|| format!("`{text}` is no name"))
        });
        let same_table = |vrf: &&VrfConfig| {
            let at = table.as_ref().map(|at| at.value);
            at.is_some() && vrf.table == at
        };
        let netns = netns.map(|at| at.value);
        match name {
            // The default one is there already; its host interfaces may live elsewhere.
            Some(name) if name.value == "default" => {
                if let Some(at) = table.as_ref().filter(|at| at.value != MAIN_TABLE) {
                    let legal = format!("leave it out: the default VRF is table {MAIN_TABLE}");
                    section.wrong(at.line, "table", "the default VRF has a table", legal);
                }
                vrfs[0].netns = netns;
            }
            Some(name) => {
                if vrfs.iter().any(|vrf| vrf.name == name.value) {
                    let problem = format!("`{}` names two VRFs", name.value);
                    section.wrong(name.line, "name", problem, "a name of its own");
                }
                // Two name spaces each have their own table of that number.
                if let Some((at, other)) = table.as_ref().zip(vrfs.iter().find(same_table))
                    && other.netns == netns
                {
                    let problem = format!("VRF `{}` has table {} already", other.name, at.value);
                    section.wrong(at.line, "table", problem, "another table");
                }
                vrfs.push(VrfConfig {
                    name: name.value,
                    table: table.map(|at| at.value),
                    netns,
                    has_main: false,
                });
            }
            None => {}
        }
        section.end();
    }
    give_main(&mut vrfs);
    vrfs
}

/// The main table of each name space is the first VRF's there, unless one has it by its number.
fn give_main(vrfs: &mut [VrfConfig]) {
    for number in 0..vrfs.len() {
        let netns = vrfs[number].netns.clone();
        let here = |vrf: &&VrfConfig| vrf.netns == netns;
        let is_first = !vrfs[..number].iter().any(|vrf| here(&vrf));
        let mut others = vrfs.iter().filter(here);
        let is_taken = others.any(|vrf| vrf.table == Some(MAIN_TABLE));
        vrfs[number].has_main = is_first && !is_taken;
    }
}
