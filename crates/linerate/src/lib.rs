//! What the `linerate` binary does: a table of subcommands. Each lives in `apps/`.
#![forbid(unsafe_code)]

mod manual;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use linerate_appliance::error::Error;
use linerate_appliance::{capture, ctl, privilege};
use linerate_inspect::{doctor, plan, ports};
use linerate_tester::demo;
use {
    linerate_bench as bench, linerate_drill as drill, linerate_gateway as gateway,
    linerate_l2fwd as l2fwd, linerate_l3fwd as l3fwd, linerate_pktgen as pktgen,
    linerate_router as router, linerate_steer as steer,
};

/// Packet-processing appliances, traffic generator and benchmarks in one binary.
#[derive(Parser)]
#[command(name = "linerate", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Benchmark a device by RFC 2544 and others, or time this program's own parts
    Bench(bench::Args),
    /// Write packets of a running appliance to a pcapng file, or to a pipe into tcpdump
    Capture(capture::Args),
    /// Print the script by which a shell completes this program's options
    Completions(manual::CompletionsArgs),
    /// Ask a running appliance, and have it reload, trace, drain or end
    Ctl(ctl::Args),
    /// Open what takes privileges, for the router that starts this
    #[command(hide = true)]
    PrivilegeHelper(privilege::Args),
    /// Forward packets between ports of this process and show how fast; needs no root
    Demo(demo::Args),
    /// Show what this machine can do, what is missing, and how to get it
    Doctor(doctor::Args),
    /// Run packetdrill scripts against linerate's TCP, or this machine's
    Drill(drill::Args),
    /// Route, and let pass what flows and policies permit: a stateful firewall
    Gateway(gateway::Args),
    /// Forward between ports, each to its neighbour
    L2fwd(l2fwd::Args),
    /// Forward IP packets between ports by static tables: routes, flows or an access list
    L3fwd(l3fwd::Args),
    /// Write man pages of this program and its commands into a folder
    Man(manual::ManArgs),
    /// Generate traffic, and check what comes back
    Pktgen(pktgen::Args),
    /// Show roles and lcores as they would be placed, with warnings
    Plan(plan::Args),
    /// Show kinds of port, their options, and the interfaces found
    Ports(ports::Args),
    /// Route IPv4 and IPv6, with the kernel and FRR as control plane
    Router(router::Args),
    /// Serve TCP in user space on every lcore: echo, source, sink, HTTP, proxy
    Steer(steer::Args),
}

fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Bench(args) => bench::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
        Command::Ctl(args) => ctl::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Drill(args) => drill::run(&args),
        Command::PrivilegeHelper(args) => privilege::run(&args, |path| {
            steer::named(path).unwrap_or_else(|| linerate_control::named(path))
        }),
        Command::Gateway(args) => gateway::run(&args),
        Command::L2fwd(args) => l2fwd::run(&args),
        Command::L3fwd(args) => l3fwd::run(&args),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::Pktgen(args) => pktgen::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Ports(args) => ports::run(&args),
        Command::Router(args) => router::run(&args),
        Command::Steer(args) => steer::run(&args),
    }
}

/// Runs the program: 0 when all went well, 1 on an error, 2 (from clap) on wrong usage; more from
/// `bench`.
pub fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_code())
        }
    }
}
