//! Receive side scaling, shown: `linerate bench rss` and the part of `linerate plan --rss` that
//! knows NICs.
//!
//! [`ModelArgs`] selects the NIC, [`flows`] its input, [`spread`] shows the queues; [`invert`]
//! lists the ports of a queue, [`placed`] puts queues on a plan's lcores, and [`check`] holds a
//! real port against the model.

mod check;
mod flows;
mod invert;
mod placed;
mod spread;

use linerate_tables::rss::{Model, PROFILES, Profile, Reta, Symmetry};
use serde::Serialize;

pub use flows::FlowArgs;
use linerate_appliance::error::Error;
pub use placed::Placed;

/// Show which queue a NIC gives each flow, list the ports that land on a queue, or check a port
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    flows: FlowArgs,
    /// Show the queue of every flow, not only sums
    #[arg(long, conflicts_with_all = ["invert", "port"])]
    list: bool,
    #[command(flatten)]
    invert: invert::InvertArgs,
    #[command(flatten)]
    check: check::CheckArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let model = args.model.model(DEFAULT_QUEUES)?;
    if args.invert.is_asked() {
        return invert::run(&model, &args.flows, &args.invert, args.json);
    }
    if args.check.is_asked() {
        let given = args.model.is_given().then_some(model);
        return check::run(given, &args.check, args.json);
    }
    spread::run(&model, &args.flows, args.list, args.json)
}

/// Default number of queues.
const DEFAULT_QUEUES: u16 = 4;

/// Which NIC, and how it is set up.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ModelArgs {
    /// NIC family: microsoft (default), igb, ixgbe, ixgbe-x550, i40e, ice, mlx5, virtio, ena, bnxt,
    /// cnxk
    #[arg(long, value_name = "NIC")]
    profile: Option<String>,
    /// The hash key as `ethtool -x` shows it: hex digits, with or without colons; default: the
    /// driver's
    #[arg(long, value_name = "HEX")]
    key: Option<String>,
    /// Entries of the redirection table, a power of two, or the table itself as `ethtool -x` shows
    /// it, such as 0,1,2,3,0,1,2,2; default: the NIC's number of entries
    #[arg(long, value_name = "N|LIST", value_delimiter = ',')]
    reta: Vec<usize>,
    /// Queues, which fill the table in turns; default: 4, or those that the plan polls
    #[arg(long, value_name = "N")]
    queues: Option<u16>,
    /// Fill the table by weights instead, one for each queue, such as 3,1,1
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "queues"
    )]
    weights: Vec<u32>,
    /// Symmetry, applied to source and destination before hashing: none, xor, or-xor, sorted
    #[arg(long, value_name = "HOW")]
    symmetry: Option<String>,
}

const SYMMETRIES: [(&str, Symmetry); 4] = [
    ("none", Symmetry::None),
    ("xor", Symmetry::Xor),
    ("or-xor", Symmetry::OrXor),
    ("sorted", Symmetry::Sorted),
];

impl ModelArgs {
    /// Whether any option of the NIC was given.
    pub fn is_given(&self) -> bool {
        let numbers = !self.reta.is_empty() || self.queues.is_some() || !self.weights.is_empty();
        numbers || self.profile.is_some() || self.key.is_some() || self.symmetry.is_some()
    }

    /// The NIC; `queues` is the default number.
    pub fn model(&self, queues: u16) -> Result<Model, Error> {
        let name = self.profile.as_deref().unwrap_or(PROFILES[0].name);
        let profile = Profile::find(name)?;
        let key = self.key.as_deref().map(key).transpose()?;
        let entries = self.reta.first().copied().unwrap_or(profile.reta_entries);
        let reta = match (self.reta.as_slice(), self.weights.as_slice()) {
            ([_, _, ..], _) => self.table()?,
            (_, []) => Reta::round_robin(entries, self.queues.unwrap_or(queues))?,
            (_, weights) => Reta::weighted(entries, weights)?,
        };
        Ok(Model::new(profile, key.as_deref(), reta)?.symmetric(self.symmetry()?))
    }

    /// The table from a list of its entries.
    fn table(&self) -> Result<Reta, Error> {
        let usage = |problem: String, fix: &str| Error::Usage {
            problem: format!("--reta: {problem}"),
            fix: fix.into(),
        };
        if self.queues.is_some() || !self.weights.is_empty() {
            let fix = "leave out --queues and --weights, or give --reta as one number";
            return Err(usage("a whole table already has the queues".into(), fix));
        }
        let queue = |&queue: &usize| {
            u16::try_from(queue)
                .map_err(|_| usage(format!("{queue} is no queue"), "use queues up to 65535"))
        };
        let slots = self
            .reta
            .iter()
            .map(queue)
            .collect::<Result<Vec<u16>, Error>>()?;
        Ok(Reta::from_slots(slots)?)
    }

    fn symmetry(&self) -> Result<Symmetry, Error> {
        let wanted = self.symmetry.as_deref().unwrap_or("none");
        let found = SYMMETRIES.iter().find(|(name, _)| *name == wanted);
        let unknown = || Error::Usage {
            problem: format!("--symmetry {wanted}: no such symmetry"),
            fix: "use none, xor, or-xor or sorted".into(),
        };
        found.map(|&(_, symmetry)| symmetry).ok_or_else(unknown)
    }
}

/// Bytes of hex digits, colons between them ignored.
fn key(text: &str) -> Result<Vec<u8>, Error> {
    let bad = |problem: String| Error::Usage {
        problem: format!("--key: {problem}"),
        fix: "give two hex digits for each byte, as `ethtool -x IFACE` prints them".into(),
    };
    let digits: Vec<char> = text.chars().filter(|&digit| digit != ':').collect();
    if let Some(digit) = digits.iter().find(|digit| !digit.is_ascii_hexdigit()) {
        return Err(bad(format!("`{digit}` is no hex digit")));
    }
    let (pairs, half) = digits.as_chunks::<2>();
    if !half.is_empty() {
        return Err(bad(format!(
            "{} hex digits are no whole bytes",
            digits.len()
        )));
    }
    let value = |digit: char| digit.to_digit(16).unwrap_or(0) as u8;
    Ok(pairs
        .iter()
        .map(|&[high, low]| value(high) << 4 | value(low))
        .collect())
}

/// The NIC in a report.
#[derive(Serialize)]
pub struct ModelReport {
    profile: &'static str,
    key: String,
    start: u32,
    reta_entries: usize,
    queues: usize,
    symmetry: &'static str,
}

impl From<&Model> for ModelReport {
    fn from(model: &Model) -> Self {
        let key = model.toeplitz().key().iter();
        let symmetry = SYMMETRIES.iter().find(|&&(_, it)| it == model.symmetry());
        Self {
            profile: model.profile().name,
            key: key.map(|byte| format!("{byte:02x}")).collect(),
            start: model.profile().start,
            reta_entries: model.reta().slots().len(),
            queues: model.reta().queue_count(),
            symmetry: symmetry.map_or("none", |&(name, _)| name),
        }
    }
}

impl ModelReport {
    /// In one line, without the key.
    pub fn line(&self) -> String {
        let symmetry = match self.symmetry {
            "none" => String::new(),
            name => format!(", symmetry {name}"),
        };
        format!(
            "{}: RETA of {} entries, queues 0-{}, key of {} bytes{symmetry}",
            self.profile,
            self.reta_entries,
            self.queues.saturating_sub(1),
            self.key.len() / 2
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_ethtool_prints_them() {
        assert_eq!(key("6d:5a:00:fF").unwrap(), [0x6d, 0x5a, 0, 0xff]);
        assert_eq!(key("6d5a").unwrap(), [0x6d, 0x5a]);
        for (text, part) in [("6d:5", "3 hex digits"), ("6x", "`x` is no hex digit")] {
            let error = key(text).unwrap_err();
            assert!(
                error.to_string().contains(part) && error.fix().is_some(),
                "{error}"
            );
        }
    }

    #[test]
    fn the_help_names_every_profile() {
        use clap::CommandFactory;
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            _model: ModelArgs,
        }
        let help = Cli::command().render_help().to_string();
        let missing = PROFILES.iter().find(|profile| !help.contains(profile.name));
        assert!(missing.is_none(), "{missing:?}");
    }
}
