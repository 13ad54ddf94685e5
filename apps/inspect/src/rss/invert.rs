//! `bench rss --invert QUEUE`: the ports that land on a queue.

use std::fmt::Write;
use std::ops::RangeInclusive;

use linerate_tables::rss::{Flow, Model, PortSet, Ports};
use serde::Serialize;

use super::ModelReport;
use super::flows::{self, FlowArgs, FlowSpec};
use linerate_appliance::error::Error;
use linerate_appliance::output;

/// Ports that the text shows; JSON has all.
const SHOWN: usize = 96;

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct InvertArgs {
    /// List the ports of one flow that land on this queue: the flow of --flows, whose one port is
    /// left out or a range
    #[arg(
        long,
        value_name = "QUEUE",
        requires = "flows",
        conflicts_with = "port"
    )]
    invert: Option<u16>,
    /// Ports not to use, such as 5060,8000-8009
    #[arg(long, value_name = "LIST", requires = "invert")]
    exclude: Option<String>,
    /// Only even or only odd ports
    #[arg(long, value_name = "even|odd", requires = "invert")]
    parity: Option<String>,
    /// Only even ports whose next port lands on the same queue: for RTP and RTCP
    #[arg(long, requires = "invert", conflicts_with = "parity")]
    pairs: bool,
}

impl InvertArgs {
    pub(super) fn is_asked(&self) -> bool {
        self.invert.is_some()
    }
}

#[derive(Serialize)]
struct Report {
    nic: ModelReport,
    flow: String,
    free: &'static str,
    range: [u16; 2],
    queue: u16,
    /// Bits of the RETA's index that the port decides, and all of them.
    rank: u32,
    reta_bits: u32,
    count: usize,
    ports: Vec<u16>,
}

/// The flow with one port free.
struct Asked {
    flow: Flow,
    dst_port: bool,
    range: RangeInclusive<u16>,
}

pub(super) fn run(
    model: &Model,
    flows: &FlowArgs,
    args: &InvertArgs,
    json: bool,
) -> Result<(), Error> {
    let queue = args.invert.unwrap_or_default();
    let asked = asked(flows.flows.as_deref().unwrap_or_default())?;
    let excluded = excluded(args.exclude.as_deref())?;
    let parity = parity(args.parity.as_deref())?;
    let keeps = u16::from(args.pairs || parity.is_some());
    let inverse = model.inverse(&asked.flow, asked.dst_port, keeps)?;
    let mut tuple = asked.flow.tuple().to_vec();
    let low_byte = inverse.field().byte + 1;
    if let Some(odd) = parity {
        tuple[low_byte] = tuple[low_byte] & !1 | odd;
    }
    let ports: Ports<'_> = match args.pairs {
        true => inverse.pairs(&tuple, queue)?,
        false => inverse.ports(&tuple, queue)?,
    };
    let ports = ports.range(asked.range.clone()).excluding(&excluded);
    let report = Report {
        nic: model.into(),
        flow: asked.name(),
        free: if asked.dst_port {
            "dst_port"
        } else {
            "src_port"
        },
        range: [*asked.range.start(), *asked.range.end()],
        queue,
        rank: inverse.rank(),
        reta_bits: model.reta().bits(),
        count: ports.count(),
        ports: ports.to_set().iter().collect(),
    };
    match json {
        true => output::print_json(&report),
        false => output::print(&report.text()),
    }
}

impl Asked {
    fn name(&self) -> String {
        let (src_port, dst_port) = self.flow.ports();
        match self.dst_port {
            true => flows::name_with(&self.flow, &src_port.to_string(), "*"),
            false => flows::name_with(&self.flow, "*", &dst_port.to_string()),
        }
    }
}

fn asked(text: &str) -> Result<Asked, Error> {
    let usage = |problem: &str, fix: &str| Error::Usage {
        problem: format!("--flows {text}: {problem}"),
        fix: fix.into(),
    };
    let spec = FlowSpec::parse(text)?;
    let flow = spec.single().ok_or_else(|| {
        usage(
            "--invert takes one flow, and a prefix is many",
            "give src and dst as single addresses",
        )
    })?;
    let is_fixed = |ports: &Option<RangeInclusive<u16>>| {
        ports
            .as_ref()
            .is_some_and(|ports| ports.start() == ports.end())
    };
    let dst_port = match (is_fixed(&spec.src_port), is_fixed(&spec.dst_port)) {
        (true, false) => true,
        (false, true) => false,
        (true, true) => {
            return Err(usage(
                "no port is free",
                "leave out src_port or dst_port, or give it as a range",
            ));
        }
        (false, false) => {
            return Err(usage(
                "both ports are free",
                "give src_port or dst_port as one port",
            ));
        }
    };
    let free = if dst_port {
        spec.dst_port
    } else {
        spec.src_port
    };
    Ok(Asked {
        flow,
        dst_port,
        range: free.unwrap_or(0..=u16::MAX),
    })
}

fn excluded(list: Option<&str>) -> Result<PortSet, Error> {
    let mut set = PortSet::new();
    for part in list.into_iter().flat_map(|list| list.split(',')) {
        let range = flows::ports(part).map_err(|problem| Error::Usage {
            problem: format!("--exclude: {problem}"),
            fix: "write ports and ranges, the lower first, such as 5060,8000-8009".into(),
        })?;
        set.insert_range(range);
    }
    Ok(set)
}

fn parity(text: Option<&str>) -> Result<Option<u8>, Error> {
    match text {
        None => Ok(None),
        Some("even") => Ok(Some(0)),
        Some("odd") => Ok(Some(1)),
        Some(other) => Err(Error::Usage {
            problem: format!("--parity {other}: neither even nor odd"),
            fix: "use even or odd".into(),
        }),
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{}\n{}, {} free in {}-{}\n",
            self.nic.line(),
            self.flow,
            self.free,
            self.range[0],
            self.range[1]
        );
        let _ = writeln!(
            text,
            "the port decides {} of the {} bits that index the RETA",
            self.rank, self.reta_bits
        );
        let _ = writeln!(text, "\n{} ports land on queue {}:", self.count, self.queue);
        for row in self.ports[..self.count.min(SHOWN)].chunks(12) {
            let row: String = row.iter().map(|port| format!("{port:>6}")).collect();
            let _ = writeln!(text, "{row}");
        }
        if self.count > SHOWN {
            let _ = writeln!(text, "and {} more; --json lists all", self.count - SHOWN);
        }
        text
    }
}
