//! `linerate doctor`: what this machine supports, what is missing, and the command that fixes it.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use linerate_core::env::doctor::{Check, Patient, Probes, State};
use linerate_core::env::{Clock, Machine, Stolen, Topology};
use serde::Serialize;

use linerate_appliance::error::Error;
use linerate_appliance::output::{self, MachineFacts, Tone};

/// How long each CPU is sampled for time that other threads take.
const WATCHED: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct Args {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    machine: MachineFacts,
    checks: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    area: &'static str,
    name: String,
    state: &'static str,
    found: String,
    purpose: &'static str,
    fix: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let topology = Topology::machine()?;
    let clock = Clock::calibrate();
    let stolen = Stolen::sample_all(&topology, &clock, WATCHED)?;
    let worst = stolen
        .iter()
        .copied()
        .max_by(|a, b| a.share.total_cmp(&b.share))
        .unwrap_or_default();
    let program = std::env::current_exe()
        .map_or_else(|_| "linerate".into(), |path| path.display().to_string());
    let probes = Probes::run();
    let patient = Patient {
        topology: &topology,
        clock: &clock,
        probes: &probes,
        stolen: &stolen,
        program: &program,
    };
    let checks = patient.examine();
    let machine = MachineFacts::from(Machine::gather(&topology, &clock, worst));
    if args.json {
        let checks = checks.into_iter().map(Finding::from).collect();
        return output::print_json(&Report { machine, checks });
    }
    output::print(&text(&machine, &checks, output::colour()))
}

fn text(machine: &MachineFacts, checks: &[Check], colour: bool) -> String {
    let mut text = format!("{}\n", machine.line());
    let mut fixes = HashSet::new();
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    for group in checks.chunk_by(|a, b| a.area == b.area) {
        let _ = writeln!(text, "\n{}", group[0].area);
        for check in group {
            let state = tone(check.state).paint(&format!("{:7}", check.state.name()), colour);
            let _ = writeln!(text, "  {state}  {:width$}  {}", check.name, check.found);
            if let Some(fix) = &check.fix {
                let for_what = Tone::Dim.paint(&format!("for: {}", check.purpose), colour);
                let fix = if fixes.insert(fix) { fix } else { "as above" };
                let _ = writeln!(text, "{:11}{for_what}\n{:11}fix: {fix}", "", "");
            }
        }
    }
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let _ = writeln!(
        text,
        "\n{} ok, {} poor, {} missing. `linerate demo` needs none of them.",
        count(State::Ok),
        count(State::Poor),
        count(State::Missing)
    );
    text
}

fn tone(state: State) -> Tone {
    match state {
        State::Ok => Tone::Good,
        State::Poor => Tone::Warn,
        State::Missing => Tone::Bad,
    }
}

impl From<Check> for Finding {
    fn from(check: Check) -> Self {
        let Check {
            area,
            name,
            state,
            found,
            purpose,
            fix,
        } = check;
        Self {
            area,
            name,
            state: state.name(),
            found,
            purpose,
            fix,
        }
    }
}
