//! `tcp.lossy.*` and `tcp.fair`: long thin links, 100 Mb/s and 20 ms there and back with a queue of
//! one bandwidth-delay product, that `linerate l2fwd` makes of `faulty=`.
//!
//! ```text
//! linerate steer o0 ---- p0 :l2fwd: q0 ---- r0 Linux      each with a link of its own,
//! Linux          l1 ---- p1 :l2fwd: q1 ---- r1 Linux      the same losses, at the same time
//!
//! linerate steer o0 --+
//!                     +-- bridge -- p0 :l2fwd: q0 ---- r0 Linux
//! Linux          l0 --+
//! ```
//!
//! All rows of losses run at once, ours and the peer's, in one `l2fwd`: they take a tenth of what
//! it forwards, and so all meet the same machine. Links are numbered; a link of ours and its peer's
//! lose the same packets by number, others each round. No interface has offloads: each frame is
//! lost for itself. What counts is what the receiver has read, in Mb/s.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use super::crossing::Forwarder;
use super::machine::Cpus;
use super::ours::Linerate;
use super::progress;
use super::report::Rounds;
use super::sample::Sample;
use super::stream::{self, End, Program, Times};
use super::veth::{self, ip};
use crate::error::TaskError;
use crate::private_folder::PrivateFolder;
use crate::process;
use crate::undo::Undo;

/// What befalls packets on the way to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    Nothing,
    /// One in a thousand, one in a hundred is lost.
    Thousandth,
    Hundredth,
    /// Three in a hundred come 2 ms later, behind 16 others: more than three duplicates tell of.
    Reordered,
}

/// Who sends beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Beside {
    /// Linux' CUBIC.
    Linux,
    /// Ours without RACK.
    WithoutRack,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lossy {
    pub(super) fault: Fault,
    pub(super) beside: Beside,
}

impl Fault {
    fn words(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Thousandth => "+rx.loss:0.001",
            Self::Hundredth => "+rx.loss:0.01",
            Self::Reordered => "+rx.reorder:0.03@2ms",
        }
    }
}

const PORT: u16 = 5001;
/// Half of a round trip each way, and what fits on the link in a round trip.
const LINK: &str = "rx.rate:100M+rx.queue:250kB+rx.delay:10ms";
const BACK: &str = "rx.delay:10ms";
/// Packets that a queue keeps: two bandwidth-delay products of acknowledgements.
const KEEP: usize = 4096;
const SLOTS: usize = 131_072;
/// How long connections have to get going, in s: beyond slow start.
const WARM: f64 = 1.0;
/// Connections that share a link have longer to find their shares.
const WARM_SHARED: f64 = 15.0;
/// Shared links, at the same time.
const SHARED: usize = 5;

/// The namespaces, and what runs in them.
struct Stand {
    program: Program,
    /// Of our senders, of Linux' senders, of what is between, and of the receivers.
    ours: String,
    linux: String,
    middle: String,
    receivers: String,
    /// Of `l2fwd`, and of all else.
    cpus: [usize; 2],
    folder: PrivateFolder,
}

impl Stand {
    fn new(undo: &mut Undo, cpus: &Cpus) -> Result<Self, TaskError> {
        let other = cpus.other.ok_or_else(|| TaskError::Missing {
            what: "senders would share a CPU with the link".into(),
            fix: "run it on a machine with two CPUs".into(),
        })?;
        let folder = PrivateFolder::new("lossy");
        let folder = folder.map_err(TaskError::file(&std::env::temp_dir()))?;
        undo.add(&format!("rm -rf '{}'", folder.path().display()))?;
        let logs = process::target_dir().join("compare");
        fs::create_dir_all(&logs).map_err(TaskError::file(&logs))?;
        let id = std::process::id();
        let [ours, linux, middle, receivers] =
            ["o", "l", "m", "r"].map(|part| format!("lrl{part}{id}"));
        for namespace in [&ours, &linux, &middle, &receivers] {
            veth::quiet_namespace(undo, namespace)?;
            stream::settle(namespace)?;
        }
        Ok(Self {
            program: Program::build()?,
            ours,
            linux,
            middle,
            receivers,
            cpus: [cpus.worker, other],
            folder,
        })
    }

    /// A wire between interfaces of two namespaces, without offloads; the first has an address, if
    /// it is the kernel's.
    fn wire(
        &self,
        (namespace, end): (&str, &str),
        address: Option<String>,
        port: &str,
    ) -> Result<(), TaskError> {
        ip(&[
            "link",
            "add",
            end,
            "netns",
            namespace,
            "type",
            "veth",
            "peer",
            "name",
            port,
            "netns",
            &self.middle,
        ])?;
        for (namespace, interface) in [(namespace, end), (&self.middle, port)] {
            ip(&["-n", namespace, "link", "set", "dev", interface, "up"])?;
            let mut command = veth::inside(namespace, "ethtool");
            let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            process::read(command.args(["-K", interface]).args(off))?;
        }
        if let Some(address) = address {
            ip(&["-n", namespace, "addr", "add", &address, "dev", end])?;
        }
        Ok(())
    }

    /// The link of this number from `p` to a receiver behind `q`.
    fn receiver(&self, number: usize) -> Result<(), TaskError> {
        let (end, port) = (format!("r{number}"), format!("q{number}"));
        let address = format!("198.18.{number}.2/24");
        self.wire((&self.receivers, &end), Some(address), &port)
    }

    /// `l2fwd` over links with these faults, whose losses have these seeds.
    fn links(&self, linerate: &Linerate, links: &[(Fault, usize)]) -> Result<Forwarder, TaskError> {
        let mut command = veth::inside(&self.middle, linerate.program());
        command.args(["l2fwd", "--period", "0", "--no-mac-update", "--io", "0"]);
        command.args(["--cpus", &self.cpus[0].to_string()]);
        command.args(["--pool-slots", &SLOTS.to_string()]);
        for (number, (fault, seed)) in links.iter().enumerate() {
            let (words, keep) = (fault.words(), format!("+keep:{KEEP}+seed:{seed}"));
            command.arg(format!("af_packet:p{number},faulty={LINK}{words}{keep}"));
            command.arg(format!("af_packet:q{number},faulty={BACK}{keep}"));
        }
        Forwarder::start_as("l2fwd", command)
    }

    /// Our senders on these links: one process.
    fn steer(
        &self,
        linerate: &Linerate,
        name: &str,
        links: &[usize],
        rack: bool,
    ) -> Result<Forwarder, TaskError> {
        let socket = self.folder.join(format!("{name}.sock"));
        let mut text = format!(
            "[plan]\nio = \"0\"\ncpus = \"{}\"\n[steer]\nperiod = 0\ncontrol = \"{}\"\n\
             [tcp]\nrack = {rack}\npath_metrics = false\n",
            self.cpus[1],
            socket.display()
        );
        for number in links {
            let _ = write!(
                text,
                "[[port]]\nname = \"o{number}\"\nspec = \"af_packet:o{number}\"\n\
                 [[interface]]\nport = \"o{number}\"\naddresses = [\"198.18.{number}.1/24\"]\n\
                 [[app]]\nkind = \"source\"\nname = \"source{number}\"\n\
                 connect = \"198.18.{number}.2:{}\"\nseconds = 3600\n",
                PORT + *number as u16
            );
        }
        let file = self.folder.join(format!("{name}.toml"));
        stream::steer(linerate, &self.ours, &file, &text)
    }

    /// The receiver of a link.
    fn sink(&self, number: usize, connections: usize, times: Times) -> Result<End, TaskError> {
        let place = (self.receivers.as_str(), self.cpus[1]);
        let port = PORT + number as u16;
        self.program.sink(place, port, connections, times)
    }

    /// Linux as the sender on a link, for as long as `end` lives.
    fn source(&self, number: usize, times: Times) -> Result<End, TaskError> {
        self.source_in(&self.linux, number, times)
    }

    fn source_in(&self, namespace: &str, number: usize, times: Times) -> Result<End, TaskError> {
        let address = format!("198.18.{number}.2");
        let longer = Times {
            seconds: times.seconds + 10.0,
            ..times
        };
        let to = (address.as_str(), PORT + number as u16);
        self.program.source((namespace, self.cpus[1]), to, longer)
    }
}

/// All rounds of these rows, which run at once.
pub(super) fn measure(
    rows: &[Lossy],
    linerate: &Linerate,
    cpus: &Cpus,
    (rounds, seconds): (usize, f64),
) -> Result<BTreeMap<Lossy, Rounds>, TaskError> {
    let mut all = BTreeMap::new();
    // Our senders without RACK are a process of their own, which would take time from those beside
    // Linux.
    for beside in [Beside::Linux, Beside::WithoutRack] {
        let faults: Vec<Fault> = rows
            .iter()
            .filter(|row| row.beside == beside)
            .map(|row| row.fault)
            .collect();
        if faults.is_empty() {
            continue;
        }
        let mut undo = Undo::new()?;
        let stand = Stand::new(&mut undo, cpus)?;
        for number in 0..2 * faults.len() {
            let (sender, end, address) = match (number % 2, beside) {
                (1, Beside::Linux) => {
                    let address = format!("198.18.{number}.1/24");
                    (&stand.linux, format!("l{number}"), Some(address))
                }
                _ => (&stand.ours, format!("o{number}"), None),
            };
            stand.wire((sender, &end), address, &format!("p{number}"))?;
            stand.receiver(number)?;
        }
        for round in 1..=rounds {
            progress(&format!("tcp.lossy ({beside:?}) round {round} of {rounds}"));
            let got = lossy_round(&stand, linerate, (&faults, beside), (round, seconds))?;
            for (fault, [ours, peer]) in faults.iter().zip(got) {
                let row = Lossy {
                    fault: *fault,
                    beside,
                };
                let data: &mut Rounds = all.entry(row).or_default();
                data.ours.push(ours);
                data.peer.push(peer);
            }
        }
    }
    Ok(all)
}

/// For each fault what ours and its peer carried.
fn lossy_round(
    stand: &Stand,
    linerate: &Linerate,
    (faults, beside): (&[Fault], Beside),
    (round, seconds): (usize, f64),
) -> Result<Vec<[Sample; 2]>, TaskError> {
    let times = Times {
        warm: WARM.min(seconds),
        seconds,
    };
    let links: Vec<(Fault, usize)> = faults
        .iter()
        .flat_map(|&fault| [(fault, round); 2])
        .collect();
    let _links = stand.links(linerate, &links)?;
    let sinks = (0..links.len()).map(|number| stand.sink(number, 1, times));
    let sinks: Vec<End> = sinks.collect::<Result<_, _>>()?;
    let of = |side: usize| (0..links.len()).filter(move |number| number % 2 == side);
    let ours: Vec<usize> = of(0).collect();
    let others: Vec<usize> = of(1).collect();
    let _ours = stand.steer(linerate, "ours", &ours, true)?;
    let (_without, _linux);
    let peer_name = match beside {
        Beside::WithoutRack => {
            _without = stand.steer(linerate, "without", &others, false)?;
            "our own, without RACK".into()
        }
        Beside::Linux => {
            let sources = others.iter().map(|&number| stand.source(number, times));
            _linux = sources.collect::<Result<Vec<End>, _>>()?;
            format!("{}, CUBIC", stream::linux()?)
        }
    };
    let mut samples = Vec::with_capacity(sinks.len());
    for sink in sinks {
        let mut sample = sink.sample()?;
        sample.value *= 1e3;
        sample.detail.clear();
        sample.peer_name.clone_from(&peer_name);
        samples.push(sample);
    }
    let mut samples = samples.into_iter();
    let pairs = std::iter::from_fn(|| Some([samples.next()?, samples.next()?]));
    Ok(pairs.collect())
}

/// How far the share of our CUBIC is from half, beside Linux' on the same link: the median of five
/// links at the same time. On every second link Linux begins first. Two of Linux on each of as many
/// links show how even such a link is shared at best.
pub(super) fn fair(linerate: &Linerate, cpus: &Cpus, seconds: f64) -> Result<f64, TaskError> {
    let mut undo = Undo::new()?;
    let stand = Stand::new(&mut undo, cpus)?;
    let is_ours = |number: usize| number < SHARED;
    for number in 0..2 * SHARED {
        let bridge = format!("b{number}");
        let inside = ["-n", &stand.middle];
        let add = ["link", "add", &bridge, "type", "bridge"];
        ip(&[&inside[..], &add].concat())?;
        let (first, linux) = (format!("o{number}"), format!("l{number}"));
        let (in_first, in_linux) = (format!("x{number}"), format!("y{number}"));
        let (end, port) = (format!("z{number}"), format!("p{number}"));
        let address = |host| format!("198.18.{number}.{host}/24");
        let of_first = (!is_ours(number)).then(|| address(1));
        stand.wire((&stand.ours, &first), of_first, &in_first)?;
        stand.wire((&stand.linux, &linux), Some(address(3)), &in_linux)?;
        stand.wire((&stand.middle, &end), None, &port)?;
        stand.receiver(number)?;
        for member in [&in_first, &in_linux, &end] {
            let join = ["link", "set", "dev", member, "master", &bridge];
            ip(&[&inside[..], &join].concat())?;
        }
        ip(&[&inside[..], &["link", "set", "dev", &bridge, "up"]].concat())?;
    }
    let times = Times {
        warm: WARM_SHARED.min(seconds),
        seconds,
    };
    let links: Vec<(Fault, usize)> = (0..2 * SHARED).map(|seed| (Fault::Nothing, seed)).collect();
    let _links = stand.links(linerate, &links)?;
    let sinks = (0..2 * SHARED).map(|number| stand.sink(number, 2, times));
    let sinks: Vec<End> = sinks.collect::<Result<_, _>>()?;
    let begin = |first: bool| {
        let theirs = (0..2 * SHARED).filter(|number| (number % 2 == 0) == first);
        let sources = theirs.map(|number| stand.source(number, times));
        sources.collect::<Result<Vec<End>, _>>()
    };
    let _first = begin(true)?;
    let ours: Vec<usize> = (0..SHARED).collect();
    let _ours = stand.steer(linerate, "ours", &ours, true)?;
    let others = (SHARED..2 * SHARED).map(|number| stand.source_in(&stand.ours, number, times));
    let _others: Vec<End> = others.collect::<Result<_, _>>()?;
    let _second = begin(false)?;
    let mut distances = [Vec::new(), Vec::new()];
    for (number, sink) in sinks.into_iter().enumerate() {
        let sample = sink.sample()?;
        let address = format!("198.18.{number}.1");
        let first = sample.detail.get(&address).and_then(|gbps| gbps.as_f64());
        let share = first.unwrap_or(f64::NAN) / sample.value;
        let (of, whose) = match is_ours(number) {
            true => (0, "ours has"),
            false => (1, "one of two of Linux has"),
        };
        eprintln!(
            "tcp.fair: link {number}: {:.1} Mb/s in all, {whose} {share:.3}",
            sample.value * 1e3
        );
        distances[of].push((share - 0.5).abs());
    }
    let [ours, linux] = distances.map(|all| super::stats::median(&all).unwrap_or(f64::NAN));
    eprintln!("tcp.fair: {ours:.3} from half; two of Linux: {linux:.3}");
    Ok(ours)
}
