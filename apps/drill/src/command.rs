//! The command: scripts and folders in, a line for each out.

use crate::fault::{Fault, Kind};
use crate::run::{Config, Outcome};
use crate::{IpVersion, linux, parse_with, stack};
use linerate_appliance::error::Error;
use linerate_appliance::output;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `linerate drill`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Scripts in packetdrill's language; of folders, all *.pkt below them
    #[arg(value_name = "SCRIPT", required = true)]
    scripts: Vec<PathBuf>,
    /// The stack under test: linerate's own in virtual time, or the kernel of this machine in a
    /// network name space (root)
    #[arg(long, value_name = "STACK", default_value = "stack")]
    against: Against,
    /// A script fails if more was sent by its end than it asks for; without it, as with
    /// packetdrill, nobody looks there
    #[arg(long = "strict_end", alias = "strict-end")]
    strict_end: bool,
    /// Only parse
    #[arg(long)]
    parse: bool,
    /// IP version of packets and sockets, unless a script says otherwise
    #[arg(
        long = "ip_version",
        alias = "ip-version",
        value_name = "VERSION",
        default_value = "ipv4"
    )]
    ip_version: IpVersion,
    /// MTU of the interface, in bytes; packetdrill's scripts for IPv6 are for 1520
    #[arg(long, value_name = "N", default_value_t = 1500)]
    mtu: u16,
    /// How far from its time an event may be, in microseconds; a script may ask for more
    #[arg(
        long = "tolerance_usecs",
        alias = "tolerance-usecs",
        value_name = "N",
        default_value_t = 10_000
    )]
    tolerance_us: u32,
    /// A word of scripts and what it stands for; TFO_COOKIE is the target's, unless it is given
    #[arg(short = 'D', long = "define", value_name = "WORD=VALUE", value_parser = definition)]
    defines: Vec<(String, String)>,
    /// Scripts at a time
    #[arg(long, value_name = "N", default_value_t = 8)]
    jobs: usize,
    /// Run a script that failed up to so many times more: on a machine that is busy
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Print what scripts print, and all packets
    #[arg(long, short)]
    verbose: bool,
    /// One JSON object for each script
    #[arg(long)]
    json: bool,
}

/// The stack under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// Linerate's own, in virtual time: no privileges, and the same outcome everywhere.
    Stack,
    /// The kernel, in real time.
    Linux,
}

/// How one script went, as `--json` has it.
#[derive(Debug, Serialize)]
struct Report {
    script: String,
    /// `passed`, `parsed`, `failed`, `skipped` or `wrong`.
    result: &'static str,
    events: usize,
    runs: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    problem: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    printed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trace: Vec<String>,
}

fn definition(text: &str) -> Result<(String, String), String> {
    let (word, value) = text.split_once('=').ok_or("write WORD=VALUE")?;
    Ok((word.into(), value.into()))
}

/// Runs the command.
///
/// # Errors
/// [`Error`] for a script that cannot be read, or if a script fails.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut paths = Vec::new();
    for path in &args.scripts {
        collect(path, &mut paths)?;
    }
    if !args.parse && args.against == Against::Linux {
        linux::available().map_err(|problem| Error::Usage {
            problem: format!("Linux cannot be tested here: {problem}"),
            fix: "run it as root, or against linerate's stack".into(),
        })?;
    }
    let reports = all(args, &paths)?;
    let count = |result| {
        reports
            .iter()
            .filter(|report| report.result == result)
            .count()
    };
    let (bad, skipped) = (count("failed") + count("wrong"), count("skipped"));
    if !args.json {
        let good = reports.len() - bad - skipped;
        let verb = if args.parse { "parsed" } else { "passed" };
        output::print(&format!("{good} {verb}, {bad} failed, {skipped} skipped\n"))?;
    }
    match bad {
        0 => Ok(()),
        _ => Err(Error::Found(1)),
    }
}

/// Scripts at `path`; of a folder all below, in order of their names.
fn collect(path: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    let file = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    if !std::fs::metadata(path).map_err(file)?.is_dir() {
        paths.push(path.to_owned());
        return Ok(());
    }
    let entries: Result<Vec<_>, _> = std::fs::read_dir(path).map_err(file)?.collect();
    let mut entries: Vec<_> = entries
        .map_err(file)?
        .iter()
        .map(std::fs::DirEntry::path)
        .collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir()
            || entry
                .extension()
                .is_some_and(|extension| extension == "pkt")
        {
            collect(&entry, paths)?;
        }
    }
    Ok(())
}

/// Runs all, some at a time; reports are printed as they come, and returned in order.
fn all(args: &Args, paths: &[PathBuf]) -> Result<Vec<Report>, Error> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.clamp(1, paths.len().max(1)) {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = one(args, path);
                    // Who ended the pipe gets no more; the exit code stays.
                    let _ = output::print(&text(args, &report));
                    if let Ok(mut done) = done.lock() {
                        done.push(report);
                    }
                }
            });
        }
    });
    let mut reports = done.into_inner().unwrap_or_default();
    reports.sort_by(|a, b| a.script.cmp(&b.script));
    Ok(reports)
}

fn one(args: &Args, path: &Path) -> Report {
    let mut report = Report {
        script: path.display().to_string(),
        result: "passed",
        events: 0,
        runs: 0,
        line: None,
        problem: String::new(),
        printed: Vec::new(),
        trace: Vec::new(),
    };
    let outcome = attempt(args, path, &mut report.runs);
    (report.events, report.printed) = (outcome.events, outcome.printed);
    report.trace = outcome.trace;
    if let Some(fault) = outcome.fault {
        report.result = match fault.kind {
            Kind::Syntax => "wrong",
            Kind::Unsupported => "skipped",
            Kind::Mismatch | Kind::Setup => "failed",
        };
        report.line = (fault.at.line > 0).then_some(fault.at.line);
        report.problem = fault.to_string();
    } else if args.parse {
        report.result = "parsed";
    }
    report
}

fn attempt(args: &Args, path: &Path, runs: &mut u32) -> Outcome {
    let failed = |fault| Outcome {
        fault: Some(fault),
        ..Outcome::default()
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            return failed(Fault::setup(
                format!("not read: {error}"),
                "name another file",
            ));
        }
    };
    let given = Config {
        ip_version: args.ip_version,
        mtu: args.mtu,
        tolerance_us: i64::from(args.tolerance_us),
        strict_end: args.strict_end,
        trace: args.verbose,
        ..Config::default()
    };
    let usual = match args.against {
        Against::Stack => stack::DEFINES,
        Against::Linux => linux::DEFINES,
    };
    // The later ones count.
    let usual = usual.map(|(word, value)| (word.to_owned(), value.to_owned()));
    let defines = [&usual[..], &args.defines].concat();
    let script = parse_with(&text, &defines)
        .and_then(|script| Ok((given.with_options_of(&script)?, script)));
    let (config, script) = match script {
        Ok(both) => both,
        Err(fault) => return failed(fault),
    };
    if args.parse {
        return Outcome {
            events: script.events.len(),
            ..Outcome::default()
        };
    }
    loop {
        let outcome = match args.against {
            Against::Stack => stack::run(&script, &config),
            Against::Linux => linux::run(&script, &config, path),
        };
        *runs += 1;
        let again = outcome
            .fault
            .as_ref()
            .is_some_and(|fault| fault.kind == Kind::Mismatch);
        if !again || *runs > args.retries {
            return outcome;
        }
    }
}

fn text(args: &Args, report: &Report) -> String {
    if args.json {
        return serde_json::to_string(report).unwrap_or_default() + "\n";
    }
    let script = &report.script;
    let mut text = String::new();
    for line in report.trace.iter().chain(&report.printed) {
        text += &format!("{script}: {line}\n");
    }
    let again = match report.runs {
        0 | 1 => String::new(),
        runs => format!(" ({runs} runs)"),
    };
    let (result, problem) = (report.result, &report.problem);
    let problem = match (problem.is_empty(), report.line) {
        (true, _) => String::new(),
        (false, Some(_)) => format!(":{problem}"),
        (false, None) => format!(": {problem}"),
    };
    text + &format!("{result} {script}{problem}{again}\n")
}
