//! The arguments that a router's command has, whichever appliance it is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{self, Config};
use crate::extension::{Appliance, Names};
use crate::{control, machine};
use linerate_appliance::error::Error;
use linerate_appliance::output;
use linerate_appliance::privilege::Named;
use linerate_core::env::Topology;

/// Arguments of a run; beside them the command has `print`.
#[derive(clap::Args)]
pub struct RunArgs {
    /// Configuration file
    #[arg(value_name = "CONF.toml", required_unless_present = "print")]
    config: Option<PathBuf>,
    /// Check the file and that this machine has what it needs, and print what it means, without
    /// changing anything; =file: check the file alone, which may be for another machine
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "machine"
    )]
    check: Option<Check>,
    /// Say why a flow that this file knows may begin or may not, and where its packets go, by the
    /// file alone: "10.0.0.1:4000 > 192.0.2.1:443 tcp"
    #[arg(long, value_name = "FLOW", requires = "from", conflicts_with = "check")]
    explain: Option<String>,
    /// The zone or the interface that the flow comes in by
    #[arg(long = "in", id = "from", value_name = "ZONE", requires = "explain")]
    from: Option<String>,
    /// Print JSON: a line when packets are forwarded, one each period, and one with totals
    #[arg(long)]
    json: bool,
    /// Seconds after which to end; default: on Ctrl-C, or when every input has ended
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Take this machine for the one described here, as `linerate plan` does: to try on one NUMA
    /// node what is for several. The CPUs that [plan] names have to be there
    #[arg(long, value_name = "DIR")]
    topology: Option<PathBuf>,
}

/// What `--check` looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Check {
    /// The file, and this machine
    Machine,
    /// The file alone
    File,
}

/// What the configuration file of any appliance needs privileges for, for the privilege helper.
///
/// # Errors
/// The file cannot be read, or is wrong.
pub fn named(path: &Path) -> Result<Named, Error> {
    Ok(Config::read(Appliance(&Names), path)?.named())
}

/// Runs an appliance, or checks its file.
///
/// # Errors
/// What is wrong with the file or the machine, or went wrong at the end.
pub fn run(appliance: Appliance, args: &RunArgs) -> Result<(), Error> {
    // clap requires it without `--print`.
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let wrong = |error| Error::Misconfigured(Box::new(error));
    let mut config = Config::read(appliance, path).map_err(wrong)?;
    appliance.prepare(&mut config, None).map_err(wrong)?;
    let file = path.display().to_string();
    if let (Some(flow), Some(from)) = (&args.explain, &args.from) {
        let said = control::explain(&config, flow, from)?;
        return match args.json {
            true => output::print_json(&said),
            false => output::print(said["text"].as_str().unwrap_or_default()),
        };
    }
    let topology = match &args.topology {
        Some(path) => Topology::open(path)?,
        None => Topology::machine()?,
    };
    let plan = control::place(&config, &topology).map_err(wrong)?;
    if let Some(check) = args.check {
        let explanation = config::explain(&config, &plan, &file);
        match args.json {
            true => output::print_json(&explanation)?,
            false => output::print(&explanation.text(&file, output::colour()))?,
        }
        return match check {
            Check::Machine => machine::check(path, &config),
            Check::File => Ok(()),
        };
    }
    machine::check_start(path, &config)?;
    for warning in &config.warnings {
        eprintln!("warning: {file}:{warning}");
    }
    let duration = args.duration.map(Duration::try_from_secs_f64).transpose();
    let duration = duration.map_err(|_| Error::Usage {
        problem: "duration: this is no time".into(),
        fix: "give --duration in seconds, such as 2.5".into(),
    })?;
    let config_duration = config.router.duration;
    control::start(
        path,
        config,
        &plan,
        &control::Run {
            json: args.json,
            duration: duration.or(config_duration),
        },
    )
}
