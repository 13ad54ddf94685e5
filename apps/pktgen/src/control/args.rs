//! The command line of `linerate pktgen`, merged with a run file.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::commands::default_stream;
use super::listen::Address;
use super::protocol::Problem;
use super::runfile::{PortEntry, RunFile, Script};
use super::{headless, remote};
use crate::session::SessionConfig;
use linerate_appliance::control::answers::Places;
use linerate_appliance::error::Error;
use linerate_appliance::runtime::PlanArgs;

/// Generate traffic, and check what comes back.
///
/// Exit codes: 0 all went well; 1 an error; 2 an unknown option; 3 more frames were lost than
/// --max-loss-ppm allows; 4 the run is invalid: a port failed, or more frames were left unsent than
/// --max-unsent-ppm allows.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// A port, [NAME=]KIND:TARGET[,key=value...], also with speed=10G, rate=, count=,
    /// addr=192.0.2.1/24, process=, give_up=, tx_burst=, rx_burst= and verify=; may be given many
    /// times
    #[arg(long = "port", short = 'p', value_name = "PORT")]
    ports: Vec<String>,
    /// A stream in one line, such as "port=0 size=64 rate=1Mpps"; may be given many times. Without
    /// any, each port sends UDP frames of 64 bytes
    #[arg(long = "stream", short = 's', value_name = "STREAM")]
    streams: Vec<String>,
    #[doc = "Which lcore polls what, as Pktgen writes it: `[1:2].0,[3].1`; by itself where absent"]
    #[arg(short = 'm', long = "map", value_name = "MAP")]
    map: Option<String>,
    /// Size of port 0's frames, FCS included
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,
    /// Rate of port 0: 1.5Mpps, 9.9Gbit/s-L1, 800Mbit/s-L2, 99% or max
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Frames that port 0 sends
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Seconds to send; without it, until all counts are reached, or Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Seed of everything random; chosen and shown where absent
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of this session in signatures: frames of other sessions are foreign; random where
    /// absent
    #[arg(long, value_name = "N")]
    session: Option<u16>,
    /// Write a part of this program to standard output, and do nothing else: `dissector`, in Lua,
    /// by which Wireshark and tshark show signatures; or `python`, a module for the JSON interface
    #[arg(long, value_name = "PART", value_enum, exclusive = true)]
    print: Option<Printed>,
    /// Run without a screen; FILE is a run file, as -f takes it
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "tui")]
    headless: Option<Option<PathBuf>>,
    /// A run file (FILE.toml), or a file of commands, one per line
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Open the ports, but do not send until told to
    #[arg(long)]
    no_start: bool,
    /// Show the screen; the default on a terminal without --headless or --json
    #[arg(long, conflicts_with = "json")]
    tui: bool,
    /// Print the last counts as JSON, with facts about the machine
    #[arg(long)]
    json: bool,
    /// Write what is printed at the end to this file as well
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Fail (exit code 3) where more frames are lost, per million sent
    #[arg(long, value_name = "PPM")]
    max_loss_ppm: Option<f64>,
    /// The run is invalid (exit code 4) where more frames are left unsent, per million due; 1000
    /// with --max-loss-ppm
    #[arg(long, value_name = "PPM")]
    max_unsent_ppm: Option<f64>,
    /// Take clients of the JSON interface at PATH, unix:PATH or tcp:ADDRESS:PORT; alone: at the
    /// usual place. May be given many times
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "")]
    listen: Vec<Address>,
    /// A file with the secret that clients over TCP have to know
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Clients may look, but change nothing
    #[arg(long, requires = "listen")]
    read_only: bool,
    /// Listen at this Unix socket for `linerate ctl --socket PATH` and `linerate capture`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Show metrics at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Be a client of a session that listens there; alone: at the usual place
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["ports", "streams", "listen", "headless", "control", "metrics"]
    )]
    connect: Option<Address>,
    /// A command to give over --connect; may be given many times
    #[arg(long, short = 'c', value_name = "COMMAND", requires = "connect")]
    command: Vec<String>,
    /// Show the first N frames of each stream, and send nothing
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    dump: Option<usize>,
    /// Poll without ever sleeping
    #[arg(long)]
    no_sleep: bool,
    #[command(flatten)]
    plan: PlanArgs,
}

/// What `--print` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Printed {
    Dissector,
    Python,
}

impl Printed {
    fn text(self) -> &'static str {
        match self {
            Self::Dissector => include_str!("signature.lua"),
            Self::Python => include_str!("../../python/linerate_pktgen.py"),
        }
    }
}

/// A run: the command line merged with its file.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) config: SessionConfig,
    /// Commands for port 0 that the shortcut options stand for, run once the ports are open.
    pub(super) shortcuts: Vec<String>,
    /// The file that the commands are from, and each with its line number.
    pub(super) commands: (PathBuf, Vec<(usize, String)>),
    pub(super) start: bool,
    pub(super) duration: Option<Duration>,
    pub(super) limits: Limits,
    pub(super) listen: Vec<Address>,
    pub(super) token: Option<String>,
    /// Where `linerate ctl` and metrics are served.
    pub(super) places: Places,
    pub(super) change: bool,
    pub(super) tui: bool,
    pub(super) json: bool,
    pub(super) output: Option<PathBuf>,
    pub(super) dump: Option<usize>,
}

/// What makes a run fail.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Limits {
    /// Lost frames per million sent.
    pub(super) loss_ppm: Option<f64>,
    /// Unsent frames per million due.
    pub(super) unsent_ppm: Option<f64>,
}

/// Limit of unsent frames for a run whose loss is judged: beyond it the generator was too slow for
/// a verdict.
pub(super) const UNSENT_PPM: f64 = 1000.0;

pub fn run(args: &Args) -> Result<(), Error> {
    if let Some(part) = args.print {
        return linerate_appliance::output::print(part.text());
    }
    if let Some(address) = &args.connect {
        let token = args.token_file.as_deref().map(super::listen::read_token);
        let token = token.transpose()?;
        return remote::run(
            address,
            token.as_deref(),
            &args.command,
            args.file.as_deref(),
            args.json,
        );
    }
    headless::run(&Settings::read(args)?)
}

impl Settings {
    pub(super) fn read(args: &Args) -> Result<Self, Error> {
        let path = match (&args.headless, &args.file) {
            (Some(Some(path)), None) | (None | Some(None), Some(path)) => Some(path.as_path()),
            (Some(Some(_)), Some(_)) => {
                return Err(usage(
                    "--headless FILE and -f FILE are the same",
                    "give one file; it may `load` another",
                ));
            }
            (None | Some(None), None) => None,
        };
        let script = path.map(Script::read).transpose()?;
        let has_commands = matches!(script, Some(Script::Commands(_)));
        let (file, lines) = match script {
            None => (RunFile::default(), Vec::new()),
            Some(Script::Run(file)) => {
                let lines = (1..).zip(file.run.commands.clone()).collect();
                (*file, lines)
            }
            Some(Script::Commands(lines)) => (RunFile::default(), lines),
        };
        let is_run_file = path.is_some() && !has_commands;
        let name = path.unwrap_or(Path::new("")).to_owned();
        let stated = args.ports.iter().map(|text| PortEntry::parse(text));
        let entries = file.port.into_iter().map(Ok).chain(stated);
        let ports: Result<Vec<_>, Error> = entries.map(|entry| entry?.asked()).collect();
        let ports = ports?;
        if ports.is_empty() {
            return Err(usage(
                "no port to send on",
                "name one: `--port ring:a,loop=on`, or [[port]] in a run file; `linerate ports` \
                 lists the kinds",
            ));
        }
        let mut streams = file.stream;
        for line in &args.streams {
            streams.push(
                line.parse()
                    .map_err(|error| Error::from(Problem::from(error)))?,
            );
        }
        let has_shortcuts = args.size.is_some() || args.rate.is_some() || args.count.is_some();
        let own_streams = !streams.is_empty() || has_commands;
        if !own_streams && (!is_run_file || lines.is_empty()) {
            // Without any stream: a stream of defaults on each port, or on the port of the
            // shortcuts.
            let senders = if has_shortcuts { 1 } else { ports.len() };
            streams = (0..senders).map(default_stream).collect();
        }
        let keys = [
            ("size", args.size.clone()),
            ("rate", args.rate.clone()),
            ("count", args.count.map(|count| count.to_string())),
        ];
        let shortcuts = keys
            .into_iter()
            .filter_map(|(key, value)| Some(format!("set 0 {key} {}", value?)))
            .collect();
        let tui = args.tui
            || (args.headless.is_none()
                && !args.json
                && args.dump.is_none()
                && std::io::stdin().is_terminal()
                && std::io::stdout().is_terminal());
        let start = match (args.no_start, file.run.start) {
            (true, _) => false,
            (false, Some(start)) => start,
            // A file of commands starts what it needs, a user types `start`.
            (false, None) => !tui && !has_commands,
        };
        let ppm = |name: &str, value: Option<f64>| match value {
            Some(ppm) if !(0.0..=1e6).contains(&ppm) => Err(usage(
                &format!("{name} is {ppm}"),
                "give parts in a million, 0 to 1000000",
            )),
            value => Ok(value),
        };
        let loss_ppm = ppm(
            "--max-loss-ppm",
            args.max_loss_ppm.or(file.run.max_loss_ppm),
        )?;
        let unsent_ppm = ppm(
            "--max-unsent-ppm",
            args.max_unsent_ppm.or(file.run.max_unsent_ppm),
        )?;
        let listens_tcp = args
            .listen
            .iter()
            .any(|address| matches!(address, Address::Tcp(_)));
        if args.token_file.is_some() && !listens_tcp {
            return Err(usage(
                "a token, but nothing listens on TCP",
                "add --listen tcp:ADDRESS:PORT",
            ));
        }
        if !start
            && lines.is_empty()
            && !tui
            && args.listen.is_empty()
            && args.control.is_none()
            && args.dump.is_none()
        {
            return Err(usage(
                "nothing would ever be sent: --no-start without commands and without --listen",
                "add --listen, or -f FILE with commands, or leave out --no-start",
            ));
        }
        Ok(Self {
            config: SessionConfig {
                profile: name.display().to_string(),
                ports,
                streams,
                map: args.map.clone().or(file.run.map),
                seed: args.seed.or(file.run.seed).unwrap_or_else(any_seed),
                plan: args.plan.over(file.plan.unwrap_or_default()),
                session: args.session,
                no_sleep: args.no_sleep,
                ..SessionConfig::default()
            },
            shortcuts,
            commands: (name, lines),
            start,
            duration: args
                .duration
                .or(file.run.duration)
                .map(|value| seconds("duration", value))
                .transpose()?,
            limits: Limits {
                loss_ppm,
                unsent_ppm: unsent_ppm.or(loss_ppm.map(|_| UNSENT_PPM)),
            },
            token: args
                .token_file
                .as_deref()
                .map(super::listen::read_token)
                .transpose()?,
            listen: args.listen.clone(),
            places: Places {
                control: args.control.clone(),
                metrics: args.metrics,
            },
            change: !args.read_only,
            tui,
            json: args.json,
            output: args.output.clone(),
            dump: args.dump,
        })
    }
}

/// A seed that differs from run to run; it is shown, so that a run can be repeated.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() >> 32
}

fn seconds(key: &str, value: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(value).map_err(|_| {
        usage(
            &format!("{key} is {value}, which is no time"),
            &format!("give {key} in seconds, such as 2.5"),
        )
    })
}

fn usage(problem: &str, fix: &str) -> Error {
    Error::Usage {
        problem: problem.into(),
        fix: fix.into(),
    }
}
