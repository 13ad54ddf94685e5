//! `linerate gateway`: a router whose fast workers know flows.
//!
//! | room | what |
//! |---|---|
//! | [`config`] | the gateway's own stanzas |
//! | [`path`], [`stages`] | the path of its fast workers, and its own stages in it |
//! | [`dispatch`] | which worker has a flow, and how packets and state get there |
//! | [`track`] | connection tracking: what may follow what in a flow |
//! | [`nat`] | translation of addresses: pools, ports, mappings, headers |
//! | [`balance`] | services whose flows go to one of several backends |
//! | [`policy`] | zones, and which flows may begin between them |
//! | [`services`] | what is done with chosen flows besides forwarding them |
//! | `explain` | why a flow may begin or may not |
//! | `extension` | what it adds to the control plane of routers: its tables and metrics, too |
//!
//! All else is a router's: its file and control plane are [`linerate_control`], its stages
//! [`linerate_routing`]. `docs/gateway.md` is the user's side of it.
#![forbid(unsafe_code)]

pub mod balance;
pub mod config;
pub mod dispatch;
mod explain;
mod extension;
pub mod nat;
pub mod path;
pub mod policy;
mod records;
pub mod services;
mod show;
mod show_nat;
pub mod stages;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
pub mod track;

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
    example: include_str!("../../../packaging/gateway.toml"),
    unit: include_str!("../../../packaging/linerate-gateway.service"),
    sysusers: include_str!("../../../packaging/linerate.sysusers"),
    dashboard: include_str!("../../../docs/grafana/gateway.json"),
};

/// The appliance, for its configuration and for running it within another program.
pub const GATEWAY: Appliance = Appliance(&extension::Gateway);

/// Runs a gateway, checks its file, or prints a file.
///
/// # Errors
/// What is wrong with the file or the machine, or went wrong at the end.
pub fn run(args: &Args) -> Result<(), Error> {
    match args.print {
        Some(supplement) => SUPPLEMENTS.print(supplement),
        None => linerate_control::run(GATEWAY, &args.run),
    }
}
