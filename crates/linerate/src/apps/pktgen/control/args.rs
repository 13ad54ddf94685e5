//! The command line of `linerate pktgen`.

use std::time::Duration;

use linerate_core::env::Clock;
use linerate_drivers::Drivers;

use crate::apps::pktgen::session::{PortAsked, Session, SessionConfig};
use crate::apps::pktgen::stream::StreamSpec;
use crate::error::Error;
use crate::report;

/// Generate traffic, and check what comes back.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A port, KIND:TARGET[,key=value...]; may be given many times
    #[arg(long = "port", short = 'p', value_name = "PORT")]
    ports: Vec<String>,
    /// A stream in one line, such as "port=0 size=64 rate=1Mpps"
    #[arg(long = "stream", short = 's', value_name = "STREAM")]
    streams: Vec<String>,
    /// Seconds to send
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    duration: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let streams: Result<Vec<StreamSpec>, _> =
        args.streams.iter().map(|line| line.parse()).collect();
    let wrong = |error: crate::apps::pktgen::stream::StreamError| Error::Usage {
        problem: error.problem,
        fix: error.fix,
    };
    let port = |spec: &String| PortAsked {
        spec: spec.clone(),
        ..PortAsked::default()
    };
    let config = SessionConfig {
        ports: args.ports.iter().map(port).collect(),
        streams: streams.map_err(wrong)?,
        ..SessionConfig::default()
    };
    let mut session = Session::open(config, &mut Drivers::new(), Clock::calibrate())?;
    let duration = Duration::from_secs_f64(args.duration);
    session.start(&[], Some(duration))?;
    std::thread::sleep(duration);
    let (snapshot, errors) = session.close();
    report::print_json(&snapshot)?;
    Error::all(errors)
}
