//! `linerate bench http`: the [client](super::client) of `linerate steer` as a measurement of its
//! own, over any port.
//!
//! [`report`] has what it came to. Clients of all lcores share the connections and the rate evenly;
//! what they count is read while they go on: at the end of the warm-up, and at the end.

mod report;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linerate_appliance::config::PortStanza;
use linerate_appliance::error::Error;
use linerate_appliance::output::{self, MachineFacts};
use linerate_appliance::runtime::{self, Interrupts, OpenPorts, Options, PlanArgs, RunFile};
use linerate_core::env::{Clock, Placement, Plan, Role, Topology};
use linerate_stack::socket::StackConfig;
use linerate_wire::MacAddr;

use super::client::Job;
use super::client::load::{Arrivals, Load};
use super::client::meter::Meters;
use super::site::Content;
use crate::config::{AppStanza, File, Interface, Kind, Mode, Route};
use report::{Reading, Report, Setting};

/// Packets polled at once.
const BURST: usize = 64;

/// Options of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What is asked for in turns, by the server's address: http://192.0.2.2:8080/index.html
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// The port, as KIND:TARGET[,key=value...]
    #[arg(long, value_name = "SPEC")]
    port: String,
    /// Our address and the length of its network's prefix, such as 192.0.2.1/24; may be repeated
    #[arg(long, value_name = "ADDRESS/LEN", required = true)]
    address: Vec<String>,
    /// The router to servers outside of our networks
    #[arg(long, value_name = "ADDRESS")]
    via: Option<IpAddr>,
    /// Our hardware address, where it is not the port's
    #[arg(long, value_name = "MAC")]
    mac: Option<MacAddr>,
    /// Requests a second in all; without it each connection asks again as it has its answer
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// What is between two requests of a rate
    #[arg(long, value_enum, default_value = "even")]
    arrivals: ArrivalsArg,
    /// Connections at a time, in all
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    connections: u32,
    /// A connection for each request
    #[arg(long)]
    close: bool,
    /// Seconds that are measured
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds before that, which do not count
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Seconds after which an answer is not waited for any more
    #[arg(long, default_value_t = 10.0)]
    timeout: f64,
    /// The value of the Host field; default: the server's address
    #[arg(long)]
    host: Option<String>,
    /// A file whose bytes every body has to be
    #[arg(long, value_name = "FILE")]
    expect: Option<std::path::PathBuf>,
    /// Receive queues of the port, an lcore for each
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,
    /// Poll without ever sleeping
    #[arg(long)]
    no_sleep: bool,
    #[command(flatten)]
    plan: PlanArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ArrivalsArg {
    /// Always the same time
    Even,
    /// As of many users who know nothing of each other
    Poisson,
}

fn usage(problem: String, fix: &str) -> Error {
    Error::Usage {
        problem,
        fix: fix.into(),
    }
}

/// A time in seconds, of an option.
fn seconds(option: &str, value: f64) -> Result<Duration, Error> {
    let duration = Duration::try_from_secs_f64(value).ok();
    duration
        .filter(|duration| *duration <= Duration::from_secs(1 << 22))
        .ok_or_else(|| {
            let problem = format!("--{option} is {value}, which is no such time");
            usage(problem, "give seconds, such as 2.5")
        })
}

/// The server and the path of a URL.
fn server_and_path(url: &str) -> Result<(SocketAddr, String), Error> {
    let wrong = |what: &str| {
        let fix = "give http://ADDRESS[:PORT]/PATH; names are not looked up";
        usage(format!("{url}: {what}"), fix)
    };
    let rest = url.strip_prefix("http://");
    let rest = rest.ok_or_else(|| wrong("it does not begin with http://"))?;
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let of_ip = |text: &str| text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, 80));
    let bare = authority
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let server = authority
        .parse()
        .ok()
        .or_else(|| of_ip(bare.unwrap_or(authority)));
    let server = server.ok_or_else(|| wrong("its host is no address"))?;
    let path = crate::config::path(path).map_err(|problem| wrong(&problem))?;
    Ok((server, path))
}

impl Args {
    /// What each of so many lcores does.
    fn job(&self, lcores: u32) -> Result<Job, Error> {
        let mut server = None;
        let mut paths = Vec::new();
        for url in &self.urls {
            let (to, path) = server_and_path(url)?;
            if *server.get_or_insert(to) != to {
                let problem = format!("{url} is another server's");
                return Err(usage(problem, "give URLs of one server"));
            }
            paths.push(path);
        }
        let Some(server) = server else {
            return Err(usage("there is no URL".into(), "give one"));
        };
        let usual = Job::to(server);
        let load = match self.rate {
            None => Load::Closed,
            Some(rate) if (0.001..=1e9).contains(&rate) => Load::Open {
                per_s: rate / f64::from(lcores),
                arrivals: match self.arrivals {
                    ArrivalsArg::Even => Arrivals::Even,
                    ArrivalsArg::Poisson => Arrivals::Poisson,
                },
            },
            Some(rate) => {
                let problem = format!("--rate is {rate}, which is none");
                return Err(usage(problem, "give requests a second, 0.001 to 1e9"));
            }
        };
        let expects = self.expect.as_ref().map(|path| {
            let bytes = std::fs::read(path).map_err(|source| Error::File {
                path: path.clone(),
                source,
            })?;
            Ok::<_, Error>(Content::Bytes(bytes.into()))
        });
        Ok(Job {
            host: self.host.clone().unwrap_or_else(|| usual.host.clone()),
            paths,
            connections: self.connections.div_ceil(lcores),
            keeps: !self.close,
            load,
            timeout: seconds("timeout", self.timeout)?,
            expects: expects.transpose()?,
            ..usual
        })
    }

    /// The file of `linerate steer` that does it.
    fn file(&self, job: Job, meters: std::sync::Arc<Meters>) -> Result<File, Error> {
        let address = |text: &String| {
            let fix = "give an address and its network's length, such as 192.0.2.1/24";
            crate::config::address(text).map_err(|problem| usage(problem, fix))
        };
        let interface = Interface {
            port: 0,
            addresses: self.address.iter().map(address).collect::<Result<_, _>>()?,
            mtu: None,
            mac: self.mac,
        };
        let everything = |via: IpAddr| match via {
            IpAddr::V4(_) => (IpAddr::from([0; 4]), 0),
            IpAddr::V6(_) => (IpAddr::from([0_u16; 8]), 0),
        };
        let route = self.via.map(|via| Route {
            to: everything(via),
            via,
            interface: 0,
        });
        // One that ends while its successor begins takes a place as well.
        let connections = job.connections.saturating_mul(2).max(1024);
        let ports = vec![PortStanza {
            name: None,
            spec: self.port.clone(),
        }];
        Ok(File {
            all: RunFile {
                ports,
                ..RunFile::default()
            },
            user: None,
            drain: None,
            mode: Mode::default(),
            interfaces: vec![interface],
            routes: route.into_iter().collect(),
            stack: StackConfig {
                connections,
                ..StackConfig::default()
            },
            apps: vec![AppStanza {
                name: "load".into(),
                kind: Kind::HttpClient(job.into(), meters),
                by_user: None,
            }],
        })
    }
}

/// Measures a server.
///
/// # Errors
/// What is wrong with the options or the machine; or no answer has come at all.
pub fn run(args: &Args) -> Result<(), Error> {
    let (warmup, time) = (
        seconds("warmup", args.warmup)?,
        seconds("seconds", args.seconds)?,
    );
    let lcores = u32::from(args.queues);
    let job = args.job(lcores)?;
    let meters = std::sync::Arc::new(Meters::default());
    let file = args.file(job.clone(), meters.clone())?;
    let topology = Topology::machine()?;
    let spec = args.plan.over(Default::default());
    let plan = Plan::build(
        &spec,
        &topology,
        &runtime::places(&file.all.ports, &topology),
    )?;
    let placed: Vec<&Placement> = plan.role(Role::Io).take(lcores as usize).collect();
    if placed.len() < lcores as usize {
        let problem = format!(
            "{lcores} queues need as many io lcores; there are {}",
            placed.len()
        );
        return Err(usage(
            problem,
            "give fewer queues, or more slots by --io and --cpus",
        ));
    }
    let mut options = Options {
        queues: args.queues,
        burst: BURST,
        pool_slots: Some(crate::POOL_SLOTS),
        sleep: !args.no_sleep,
        spin: false,
    };
    let interrupts = Interrupts::catch()?;
    let specs = [(None, args.port.clone())];
    let opened = OpenPorts::open(&specs, Clock::calibrate())?.with_large_slots();
    let machine = MachineFacts::gather(&opened.clock)?;
    let started = crate::start(&file, &mut options, opened, (&placed, &[]))?;
    let running = started.running;
    let read = || Reading::of(&meters.all());
    let is_interrupted = interrupts.wait_until(Instant::now() + warmup);
    let (began, before) = (Instant::now(), read());
    if !is_interrupted {
        interrupts.wait_until(began + time);
    }
    let (measured, after) = (began.elapsed(), read());
    let (_, _, errors) = running.stop();
    let setting = Setting {
        urls: args.urls.clone(),
        port: args.port.clone(),
        lcores,
        connections: job.connections * lcores,
        kept: job.keeps,
        rate: args.rate,
    };
    let report = Report::new(setting, &before, &after, measured);
    match args.json {
        true => output::print_json(&report)?,
        false => output::print(&report.text(&machine.line(), output::colour()))?,
    }
    Error::all(errors)?;
    match report.answers() {
        0 => Err(usage(
            "no answer has come".into(),
            "see whether the server listens there, and answers by this port",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server_and_a_path() {
        for (url, server, path) in [
            ("http://192.0.2.1", "192.0.2.1:80", "/"),
            (
                "http://192.0.2.1:8080/a/b?c=d",
                "192.0.2.1:8080",
                "/a/b?c=d",
            ),
            ("http://[2001:db8::1]/x", "[2001:db8::1]:80", "/x"),
            ("http://[2001:db8::1]:81/", "[2001:db8::1]:81", "/"),
        ] {
            let expected = (server.parse().unwrap(), path.to_owned());
            assert_eq!(server_and_path(url).unwrap(), expected, "{url}");
        }
        for url in [
            "https://192.0.2.1/",
            "http://example.org/",
            "http://192.0.2.1/a b",
            "/x",
        ] {
            assert!(server_and_path(url).is_err(), "{url}");
        }
    }
}
