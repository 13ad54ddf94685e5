//! `linerate router`: an IPv4 and IPv6 router with the kernel and FRR as its control plane.
//!
//! | room | what |
//! |---|---|
//! | [`config`] | the file: read, checked as a whole, explained |
//! | [`control`] | the control thread: start, reload, questions, metrics, captures |
//! | [`machine`] | what a file takes of this machine, and whether that is there |
//!
//! What workers do with packets, the routing table and its feeds are [`linerate_routing`].
//!
//! `docs/router.md` is the user's side of it.
#![forbid(unsafe_code)]
// The binary uses two functions; the rest is public for benchmarks and fuzzing only.
#![allow(missing_docs)]

// Tests print only when they fail.
#[cfg_attr(not(test), macro_use)]
extern crate linerate_appliance;

pub mod config;
mod control;
mod machine;

pub use control::Embedded;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use config::Config;
use linerate_appliance::error::Error;
use linerate_appliance::output;
use linerate_appliance::privilege::Named;

#[derive(clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(value_name = "CONF.toml", required_unless_present = "print")]
    config: Option<PathBuf>,
    /// Print a file that comes with the program, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    print: Option<Supplement>,
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
    /// Print JSON: a line when packets are forwarded, one each period, and one with totals
    #[arg(long)]
    json: bool,
    /// Seconds after which to end; default: on Ctrl-C, or when every input has ended
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
}

/// What `--check` looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Check {
    /// The file, and this machine
    Machine,
    /// The file alone
    File,
}

/// Files that a router is run with.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Supplement {
    /// A configuration to begin with
    Example,
    /// The unit of a systemd service
    Unit,
    /// The user that the router is once root has started it, for systemd-sysusers
    Sysusers,
    /// A dashboard of Grafana for the metrics page
    Dashboard,
}

impl Supplement {
    fn text(self) -> &'static str {
        match self {
            Self::Example => include_str!("../../../packaging/router.toml"),
            Self::Unit => include_str!("../../../packaging/linerate-router.service"),
            Self::Sysusers => include_str!("../../../packaging/linerate.sysusers"),
            Self::Dashboard => include_str!("../../../docs/grafana/router.json"),
        }
    }
}

/// What a configuration file needs privileges for, for the privilege helper.
///
/// # Errors
/// The file cannot be read, or is wrong.
pub fn named(path: &Path) -> Result<Named, Error> {
    Ok(Config::read(path)?.named())
}

pub fn run(args: &Args) -> Result<(), Error> {
    if let Some(supplement) = args.print {
        return output::print(supplement.text());
    }
    // clap requires it without `--print`.
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let wrong = |error| Error::Misconfigured(Box::new(error));
    let config = Config::read(path).map_err(wrong)?;
    let file = path.display().to_string();
    let plan = control::place(&config).map_err(wrong)?;
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
