//! `linerate router`: an IPv4 and IPv6 router with the kernel and FRR as its control plane.
//!
//! Its file and its control plane are [`linerate_control`], what workers do with packets, the
//! routing table and its feeds `linerate-routing`. Here are its arguments, and the files that it
//! comes with.
//!
//! `docs/router.md` is the user's side of it.
#![forbid(unsafe_code)]

use linerate_appliance::error::Error;
use linerate_appliance::supplement::{Supplement, Supplements};
use linerate_control::{Appliance, RunArgs};

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Print a file that comes with the program, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    print: Option<Supplement>,
}

/// The files that it comes with.
const SUPPLEMENTS: Supplements = Supplements {
    example: include_str!("../../../packaging/router.toml"),
    unit: include_str!("../../../packaging/linerate-router.service"),
    sysusers: include_str!("../../../packaging/linerate.sysusers"),
    dashboard: include_str!("../../../docs/grafana/router.json"),
};

/// Runs a router, checks its file, or prints a file.
///
/// # Errors
/// What is wrong with the file or the machine, or went wrong at the end.
pub fn run(args: &Args) -> Result<(), Error> {
    match args.print {
        Some(supplement) => SUPPLEMENTS.print(supplement),
        None => linerate_control::run(Appliance::default(), &args.run),
    }
}
