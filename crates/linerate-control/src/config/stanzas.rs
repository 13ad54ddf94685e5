//! `[router]`, `[[port]]` and `[[vrf]]`.

use super::{PortConfig, RouterStanza, VrfConfig};
use linerate_appliance::config::{self, At, Section, user};
use linerate_appliance::runtime::RunKeys;
use linerate_routing::model::MAIN_TABLE;
use linerate_routing::plane::punt::{Rates, Reason};

pub(super) fn router(file: &Section<'_>) -> RouterStanza {
    let usual = RouterStanza::default();
    let Some(section) = file.table("router", "router", "a table: [router]") else {
        return usual;
    };
    let run = RunKeys::read(&section);
    let stanza = RouterStanza {
        control: run.control,
        user: user(&section, "user"),
        metrics: run.metrics,
        fpm: section
            .parsed("fpm", "an address and a port such as \"127.0.0.1:2620\"")
            .map(|at| at.value),
        fpm_user: user(&section, "fpm_user"),
        kernel: section.switch("kernel").map_or(usual.kernel, |at| at.value),
        period: run.period.or(usual.period).filter(|time| !time.is_zero()),
        duration: run.duration,
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
        graceful: section
            .seconds("graceful")
            .map_or(usual.graceful, |at| at.value),
        punts: punts(&section),
        queues: run.queues.unwrap_or(usual.queues),
        burst: run.burst.unwrap_or(usual.burst),
        pool_slots: run.pool_slots,
        sleep: run.sleep.unwrap_or(usual.sleep),
    };
    section.end();
    stanza
}

/// `punts = { local = 50000, arp = 1000 }`; what is not named keeps its default.
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

/// All `[[port]]`, each with a name, by which interfaces refer to it.
pub(super) fn ports(file: &Section<'_>) -> Vec<At<PortConfig>> {
    let mut ports: Vec<At<PortConfig>> = Vec::new();
    for At { value, line } in config::ports(file) {
        let name = value.called();
        let is_taken = ports.iter().any(|port| port.value.name == name);
        if value.name.is_none() && is_taken {
            let problem = format!("`{name}` names two ports");
            file.notes()
                .error(line, "port.name", problem, "a name of its own");
        }
        let spec = value.spec;
        let value = PortConfig { name, spec };
        ports.push(At { value, line });
    }
    if ports.is_empty() {
        let legal = "[[port]] with name = \"wan\" and spec = \"af_xdp:eth0\"";
        file.wrong(1, "port", "there is no port", legal);
    }
    ports
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
            // The default VRF always exists; the file may move its host interfaces to another name
            // space.
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
                // In another name space the same number is another table.
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

/// Gives the main table of each name space to its first VRF, unless a VRF names that table.
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
