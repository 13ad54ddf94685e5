//! `linerate plan`: which lcore would run on which CPU, and what is wrong with that; and, from the
//! report of a finished run, a better split between the roles. With `--rss` also what a NIC would
//! send to each lcore.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use linerate_core::env::{Clock, Plan, PortPlace, Suggestion, Topology};
use serde::Serialize;

use super::rss::{FlowArgs, ModelArgs, Placed};
use linerate_appliance::config::{self, PlanStanza, PortStanza, Section};
use linerate_appliance::error::Error;
use linerate_appliance::output::{
    self, Cell, Column, LcoreReport, MachineFacts, RunReport, Table, Tone,
};
use linerate_appliance::runtime::PlanArgs;

#[derive(clap::Args)]
pub struct Args {
    /// Plan for the machine described here: a copy or fake of /sys, or a file made by
    /// `grep -rs . /sys/devices/system/{cpu,node} /sys/class/net/*/device/numa_node`
    #[arg(long, value_name = "DIR")]
    topology: Option<PathBuf>,
    #[arg(
        long,
        help = "Read [plan] and [[port]] from this TOML file",
        value_name = "FILE"
    )]
    config: Option<PathBuf>,
    #[command(flatten)]
    plan: PlanArgs,
    /// A port that will be polled, such as af_xdp:eth0; may be repeated
    #[arg(long, value_name = "SPEC")]
    port: Vec<String>,
    /// Propose a better split from the JSON report of a finished run
    #[arg(long, value_name = "REPORT", conflicts_with_all = ["topology", "config", "bg", "io",
        "eu", "cpus", "port"])]
    suggest: Option<PathBuf>,
    /// Show which lcore polls which queue of a NIC, and what shares of its table and of the flows
    /// it gets
    #[arg(long, conflicts_with = "suggest")]
    rss: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    flows: FlowArgs,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Error> {
    if let Some(path) = &args.suggest {
        return suggest(path, args.json);
    }
    if !args.rss && (args.model.is_given() || args.flows.is_given()) {
        return Err(Error::Usage {
            problem: "options of a NIC and its flows, but not --rss".into(),
            fix: "add --rss to see what they do to the plan".into(),
        });
    }
    let topology = match &args.topology {
        Some(path) => Topology::open(path)?,
        None => Topology::machine()?,
    };
    // The rest of the file belongs to the appliance.
    let read = |file: &Section<'_>| (config::plan(file), config::ports(file));
    let path = args.config.as_deref();
    let file = path.map(|path| config::read(path, read)).transpose()?;
    let (plan, ports) = file.unwrap_or_default();
    let spec = args.plan.over(plan);
    let stated = args.port.iter().map(|spec| PortStanza::stated(spec));
    let ports = ports.into_iter().map(|port| port.value);
    let ports: Vec<PortStanza> = ports.chain(stated).collect();
    let places = ports
        .iter()
        .map(|port| port.place(&topology))
        .collect::<Result<Vec<_>, _>>()?;
    let plan = Plan::build(&spec, &topology, &places)?;
    let names: Vec<String> = places.iter().map(|port| port.name.clone()).collect();
    let placed = || Placed::on(&plan, &names, &args.model, &args.flows);
    let rss = args.rss.then(placed).transpose()?;
    if !args.json {
        let colour = output::colour();
        let rss = rss.map_or(String::new(), |rss| rss.text(colour));
        return output::print(&(text(&plan, &topology, &places, colour) + &rss));
    }
    let machine = match args.topology {
        Some(_) => None,
        None => Some(MachineFacts::gather(&Clock::calibrate())?),
    };
    output::print_json(&Report {
        rss,
        ..Report::new(machine, &plan, &topology, &places)
    })
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<MachineFacts>,
    topology: TopologyReport,
    plan: PlanStanza,
    /// The roles whose slots were chosen automatically.
    chosen: Vec<&'static str>,
    lcores: Vec<LcoreRow>,
    ports: Vec<PortRow>,
    warnings: Vec<WarningRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss: Option<Placed>,
}

#[derive(Serialize)]
struct TopologyReport {
    cpus: usize,
    cores: usize,
    packages: usize,
    nodes: usize,
    usable_cpus: Vec<u32>,
    isolated_cpus: Vec<u32>,
    offline_cpus: Vec<u32>,
}

#[derive(Serialize)]
struct LcoreRow {
    name: String,
    role: &'static str,
    slot: u32,
    cpu: u32,
    core: u32,
    package: u32,
    node: u32,
    /// The hardware threads of the same core.
    siblings: Vec<u32>,
}

#[derive(Serialize)]
struct PortRow {
    name: String,
    node: Option<u32>,
}

#[derive(Serialize)]
struct WarningRow {
    kind: &'static str,
    message: String,
}

impl Report {
    fn new(
        machine: Option<MachineFacts>,
        plan: &Plan,
        topology: &Topology,
        places: &[PortPlace],
    ) -> Self {
        let isolated = topology
            .cpus()
            .iter()
            .filter(|cpu| cpu.isolated)
            .map(|cpu| cpu.id);
        let warnings = plan.warnings.iter();
        Self {
            machine,
            topology: TopologyReport {
                cpus: topology.cpus().len(),
                cores: topology.cores(),
                packages: topology.packages(),
                nodes: topology.nodes(),
                usable_cpus: topology.allowed().iter().collect(),
                isolated_cpus: isolated.collect(),
                offline_cpus: topology.offline().iter().collect(),
            },
            plan: plan.spec().into(),
            chosen: plan.chosen.iter().map(|role| role.name()).collect(),
            lcores: rows(plan, topology),
            ports: places
                .iter()
                .map(|port| PortRow {
                    name: port.name.clone(),
                    node: port.node,
                })
                .collect(),
            warnings: warnings
                .map(|w| WarningRow {
                    kind: w.kind(),
                    message: w.to_string(),
                })
                .collect(),
            rss: None,
        }
    }
}

fn rows(plan: &Plan, topology: &Topology) -> Vec<LcoreRow> {
    let row = |lcore: &linerate_core::env::Placement| {
        let cpu = topology.cpu(lcore.cpu);
        LcoreRow {
            name: lcore.name.clone(),
            role: lcore.role.name(),
            slot: lcore.slot,
            cpu: lcore.cpu,
            core: cpu.map_or(lcore.cpu, |cpu| cpu.core),
            package: cpu.map_or(0, |cpu| cpu.package),
            node: lcore.node,
            siblings: cpu.map_or_else(Vec::new, |cpu| cpu.siblings.iter().collect()),
        }
    };
    plan.lcores.iter().map(row).collect()
}

fn text(plan: &Plan, topology: &Topology, places: &[PortPlace], colour: bool) -> String {
    let mut text = format!(
        "{}, {}, {}, {}; usable CPUs: {}\n\n",
        plural(topology.cpus().len(), "CPU"),
        plural(topology.cores(), "core"),
        plural(topology.packages(), "socket"),
        plural(topology.nodes(), "NUMA node"),
        topology.allowed()
    );
    let columns = [
        Column::text("lcore"),
        Column::text("role"),
        Column::number("slot"),
        Column::number("CPU"),
        Column::number("core"),
        Column::number("socket"),
        Column::number("node"),
        Column::text("siblings"),
    ];
    let mut table = Table::new(columns);
    for row in rows(plan, topology) {
        let siblings: Vec<_> = row
            .siblings
            .iter()
            .filter(|&&id| id != row.cpu)
            .map(u32::to_string)
            .collect();
        let numbers = [row.slot, row.cpu, row.core, row.package, row.node].map(Cell::new);
        let start = [Cell::new(&row.name), Cell::new(row.role)];
        table.row(
            start
                .into_iter()
                .chain(numbers)
                .chain([Cell::new(siblings.join(","))]),
        );
    }
    text.push_str(&table.render(colour));
    for port in places {
        let node = port
            .node
            .map_or_else(|| "no NUMA node".into(), |node| format!("NUMA node {node}"));
        let _ = writeln!(text, "port {}: {node}", port.name);
    }
    if !plan.chosen.is_empty() {
        let names: Vec<_> = plan.chosen.iter().map(|role| role.name()).collect();
        let _ = writeln!(
            text,
            "\nchosen automatically: {}. As a stanza:\n{}",
            names.join(", "),
            PlanStanza::from(plan.spec())
        );
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if !plan.warnings.is_empty() {
        text.push('\n');
    }
    for warning in &plan.warnings {
        let _ = writeln!(text, "{} {warning}", Tone::Warn.paint("warning:", colour));
    }
    text
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[derive(Serialize)]
struct SuggestReport {
    changed: bool,
    plan: PlanStanza,
    reasons: Vec<String>,
    lcores: Vec<LcoreReport>,
}

fn suggest(path: &Path, json: bool) -> Result<(), Error> {
    let run = RunReport::read(path)?;
    let Suggestion {
        spec,
        changed,
        reasons,
    } = Suggestion::from_run(&run.loads()?)?;
    let report = SuggestReport {
        changed,
        plan: spec.into(),
        reasons,
        lcores: run.lcores,
    };
    if json {
        output::print_json(&report)
    } else {
        output::print(&suggestion_text(&report, output::colour()))
    }
}

fn suggestion_text(report: &SuggestReport, colour: bool) -> String {
    let columns = [
        Column::text("lcore"),
        Column::text("role"),
        Column::number("CPU"),
        Column::number("busy"),
    ];
    let mut table = Table::new(columns);
    for lcore in &report.lcores {
        let tone = if lcore.busy_share >= 0.9 {
            Tone::Warn
        } else {
            Tone::Plain
        };
        let cpu = lcore.cpu.map_or_else(|| "-".into(), |cpu| cpu.to_string());
        let busy = Cell::new(format!("{:.0}%", lcore.busy_share * 100.0)).tone(tone);
        table.row([
            Cell::new(&lcore.name),
            Cell::new(&lcore.role),
            Cell::new(cpu),
            busy,
        ]);
    }
    let mut text = table.render(colour) + "\n";
    for reason in &report.reasons {
        let _ = writeln!(text, "- {reason}");
    }
    let verdict = if report.changed {
        "suggested"
    } else {
        "keep as it is"
    };
    let _ = write!(text, "\n{verdict}:\n{}", report.plan);
    text
}
