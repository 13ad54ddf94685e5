//! `linerate ctl`: ask a running appliance, clear its counters, and have it explain, reload, trace,
//! drain or end, or have its buckets move.

mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::error::Error;
use crate::output;
use crate::socket::{Caller, START_ONE, found_socket};

/// Arguments of `linerate ctl`.
#[derive(clap::Args)]
pub struct Args {
    /// Socket of the appliance; default: the usual one of a router
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show a table
    Show {
        #[arg(value_enum)]
        what: What,
        /// Only what fits: a name, an address, for routes a prefix (with all in it), for flows
        /// several words, all of which have to hold
        filter: Vec<String>,
        /// Rows at most
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u64,
    },
    /// Show counters from 0 on, while the metrics page goes on counting; or end flows
    Clear {
        #[arg(value_enum)]
        what: Clearable,
        /// Which flows: words as for `show flows`, all of which have to hold; or `all`
        filter: Vec<String>,
    },
    /// Say why a flow may begin through a gateway or may not, and where its packets go
    Explain {
        /// Its first packet: "10.0.0.1:4000 > 192.0.2.1:443 tcp"
        flow: String,
        /// The zone or the interface that it comes in by
        #[arg(long = "in", value_name = "ZONE")]
        from: String,
    },
    /// Read the configuration file again and take it over: all of it, or nothing
    Reload,
    /// Show stage by stage what becomes of the next packets
    Trace {
        /// Which packets, in the words of tcpdump
        #[arg(long, value_name = "EXPR", default_value = "")]
        filter: String,
        /// Packets to show
        #[arg(long, value_name = "N", default_value_t = 10,
            value_parser = clap::value_parser!(u64).range(1..=10_000))]
        count: u64,
    },
    /// Have flows of a gateway move to another worker, while packets pass
    Move {
        #[command(subcommand)]
        what: Movable,
    },
    /// Let neighbours move their traffic away, then end
    Drain {
        /// Seconds to go on forwarding, with the host interfaces' links down
        #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
        seconds: f64,
    },
    /// End, with totals
    Stop,
}

/// What can move.
#[derive(Subcommand)]
enum Movable {
    /// A bucket, with its flows and those that belong to them: `move bucket 7 worker 2`
    Bucket {
        /// Its number, 0 to 255
        bucket: u8,
        #[command(subcommand)]
        to: To,
    },
}

/// Where something moves to.
#[derive(Subcommand)]
enum To {
    /// A worker, by its number in `show workers`
    Worker { worker: u16 },
}

/// What can be cleared.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Clearable {
    Counters,
    /// Of a gateway: what belongs to them begins anew, or is dropped
    Flows,
}

/// What can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum What {
    Summary,
    Ports,
    Interfaces,
    Routes,
    Neighbours,
    Drops,
    Lcores,
    /// Stages with their packets; `path cycles`: also how many cycles each takes for one
    Path,
    /// Who holds which slots and packets, and who has lost one
    Ledger,
    Acls,
    /// Of a gateway: flows, with what they become; by addresses, ports, protocols and states
    Flows,
    /// Of a gateway: what decides between each two zones
    Policies,
    /// Of a gateway: who has which flows, and what each hands to others
    Workers,
    /// Of a gateway: backends of balancers, with what their checks say
    Backends,
    /// Of a gateway: pools, with their ports
    Nat,
    /// Of a gateway: who inside has which outside port
    Mappings,
    /// Of a gateway: hosts that have an outside address of their own
    Subscribers,
    /// Of a gateway: what is done with chosen flows besides forwarding them
    Services,
    /// Of a gateway: which hosts talk most, of flows with the service `statistics`
    Talkers,
    /// Of steer: TCP connections, with windows and round trips
    Connections,
    /// Of steer: ports that are listened to, and who waits there
    Listeners,
    /// Of steer: what has happened to segments and connections
    Tcp,
    /// Of steer: what applications count
    Apps,
    /// Of steer: what lcores hand to each other
    Steering,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Ports => "ports",
            Self::Interfaces => "interfaces",
            Self::Routes => "routes",
            Self::Neighbours => "neighbours",
            Self::Drops => "drops",
            Self::Lcores => "lcores",
            Self::Path => "path",
            Self::Ledger => "ledger",
            Self::Acls => "acls",
            Self::Flows => "flows",
            Self::Policies => "policies",
            Self::Workers => "workers",
            Self::Backends => "backends",
            Self::Nat => "nat",
            Self::Mappings => "mappings",
            Self::Subscribers => "subscribers",
            Self::Services => "services",
            Self::Talkers => "talkers",
            Self::Connections => "connections",
            Self::Listeners => "listeners",
            Self::Tcp => "tcp",
            Self::Apps => "apps",
            Self::Steering => "steering",
        }
    }
}

/// Runs `linerate ctl`.
///
/// # Errors
/// No appliance answers, it refuses, or the output cannot be written.
pub fn run(args: &Args) -> Result<(), Error> {
    let path = args.socket.clone().unwrap_or_else(found_socket);
    let mut router = Caller::connect(&path, START_ONE)?;
    let nothing = |_: Value| Ok(());
    match &args.command {
        Command::Show {
            what,
            filter,
            limit,
        } => {
            let filter = filter.join(" ");
            let params = json!({ "what": what.name(), "filter": filter, "limit": limit });
            if let (What::Path, "cycles") = (what, filter.as_str()) {
                // The first call starts the measurement.
                router.call("show", params.clone(), nothing)?;
                std::thread::sleep(Duration::from_secs(1));
            }
            let rows = router.call("show", params, nothing)?;
            match args.json {
                true => output::print_json(&rows),
                false => output::print(&show::text(*what, &rows, output::colour())),
            }
        }
        Command::Clear { what, filter } => {
            let what = match what {
                Clearable::Counters => "counters",
                Clearable::Flows => "flows",
            };
            let params = json!({ "what": what, "filter": filter.join(" ") });
            let result = router.call("clear", params, nothing)?;
            say(args.json, &result)
        }
        Command::Reload => {
            let result = router.call("reload", Value::Null, nothing)?;
            say(args.json, &result)
        }
        Command::Trace { filter, count } => {
            let params = json!({ "filter": filter, "count": count });
            let json = args.json;
            let result = router.call("trace", params, |packet| match json {
                true => output::print(&format!("{packet}\n")),
                false => output::print(&show::trace(&packet)),
            })?;
            say(args.json, &result)
        }
        Command::Explain { flow, from } => {
            let params = json!({ "flow": flow, "in": from });
            let result = router.call("explain", params, nothing)?;
            say(args.json, &result)
        }
        Command::Move { what } => {
            let Movable::Bucket { bucket, to } = what;
            let To::Worker { worker } = to;
            let params = json!({ "bucket": bucket, "worker": worker });
            let result = router.call("move", params, nothing)?;
            say(args.json, &result)
        }
        Command::Drain { seconds } => {
            let result = router.call("drain", json!({ "seconds": seconds }), nothing)?;
            say(args.json, &result)
        }
        Command::Stop => {
            let result = router.call("stop", Value::Null, nothing)?;
            say(args.json, &result)
        }
    }
}

/// Prints the result: its `text`, or all of it as JSON.
fn say(json: bool, result: &Value) -> Result<(), Error> {
    match (json, result.get("text").and_then(Value::as_str)) {
        (false, Some(text)) => output::print(&format!("{}\n", text.trim_end())),
        _ => output::print(&format!("{result}\n")),
    }
}
