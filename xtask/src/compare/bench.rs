//! What is built and found before the first row, and a row by it: its rounds, in each a turn of
//! ours and one of the peer.

mod rounds;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::forward::Setting;
use super::hugepages::Hugepages;
use super::lossy::Lossy;
use super::machine::Cpus;
use super::near::{self, Patience};
use super::ours::Linerate;
use super::peer::{self, Dpdk};
use super::report::{Line, Rounds};
use super::rows::{self, Peer, Row};
use super::sample::Sample;
use super::veth::Veth;
use super::{Options, conntrack, guests, progress, smoltcp, testpmd};
use crate::error::TaskError;
use crate::undo::Undo;

/// Whether both sides work on what `linerate bench input` writes.
fn has_input(peer: Peer) -> bool {
    matches!(
        peer,
        Peer::OneCoreInput { .. } | Peer::L3fwd { .. } | Peer::Conntrack { .. }
    )
}
/// Everything that stays the same from row to row.
pub(super) struct Bench<'a> {
    options: &'a Options,
    pub(super) cpus: Cpus,
    pub(super) pages: Hugepages,
    pub(super) dpdk: Option<Dpdk>,
    /// Our C program, when a row needs it.
    micro: Option<PathBuf>,
    /// The C program of rows of two processes, likewise.
    port: Option<PathBuf>,
    xgen: Option<PathBuf>,
    /// The programs of rows whose peer is smoltcp, likewise.
    smoltcp: Option<[PathBuf; 2]>,
    /// The selected rows of losses, and what they have measured.
    lossy: Vec<Lossy>,
    lossy_rounds: RefCell<BTreeMap<Lossy, Rounds>>,
    pub(super) linerate: Option<Linerate>,
}

impl<'a> Bench<'a> {
    /// Builds both sides and makes the machine ready.
    pub(super) fn prepare(
        options: &'a Options,
        rows: &[Row],
        undo: &mut Undo,
    ) -> Result<Bench<'a>, TaskError> {
        let cpus = Cpus::choose()?;
        let is_own = |row: &Row| match row.peer {
            Peer::Nginx(asking) => asking.own,
            peer => matches!(peer, Peer::Own { .. }),
        };
        let needs_no_dpdk = |row: &Row| {
            let Row { peer, .. } = row;
            matches!(
                peer,
                Peer::Own { .. }
                    | Peer::Smoltcp
                    | Peer::Linux(_)
                    | Peer::LinuxTcp { .. }
                    | Peer::LinuxBulk(_)
                    | Peer::Lossy(_)
                    | Peer::Nginx(_)
                    | Peer::Guests
                    | Peer::Conntrack { .. }
            )
        };
        let has_own_dpdk = |row: &Row| matches!(row.peer, Peer::Conntrack { .. });
        let dpdk = (!rows.iter().all(needs_no_dpdk))
            .then(|| Dpdk::find(options.dpdk.as_deref()))
            .transpose()?;
        let is_pair = |row: &Row| matches!(row.peer, Peer::Pair(_));
        let is_micro = |row: &Row| {
            // Without ours, DPDK's side says how far the cores are apart.
            (is_pair(row) && options.peer_only)
                || matches!(
                    row.peer,
                    Peer::OneCore | Peer::OneCoreInput { .. } | Peer::TwoCores | Peer::L3fwd { .. }
                )
        };
        let micro = match &dpdk {
            Some(dpdk) if rows.iter().any(is_micro) => Some(dpdk.build_micro()?),
            _ => None,
        };
        let port = match &dpdk {
            Some(dpdk) if rows.iter().any(is_pair) => Some(dpdk.build_port()?),
            _ => None,
        };
        let on_veth = rows
            .iter()
            .any(|row| matches!(row.peer, Peer::Veth { .. } | Peer::Linux(_)));
        let xgen = on_veth.then(peer::build_xgen).transpose()?;
        let needs_smoltcp = rows.iter().any(|row| row.peer == Peer::Smoltcp);
        let smoltcp = needs_smoltcp.then(smoltcp::build).transpose()?;
        let lossy = rows.iter().filter_map(|row| match row.peer {
            Peer::Lossy(lossy) => Some(lossy),
            _ => None,
        });
        let lossy = lossy.collect();
        let has_input = rows.iter().any(|row| has_input(row.peer));
        let linerate = (!options.peer_only || has_input || rows.iter().any(is_own))
            .then(|| Linerate::build(options.quick))
            .transpose()?;
        let pages = if rows
            .iter()
            .all(|row| needs_no_dpdk(row) && !has_own_dpdk(row))
        {
            Hugepages::Absent("no huge pages needed".into())
        } else {
            let files = testpmd::runtime_folder(&peer::file_prefix());
            undo.add(&format!("rm -rf '{files}'"))?;
            Hugepages::provide(undo)
        };
        Ok(Bench {
            options,
            cpus,
            pages,
            dpdk,
            micro,
            port,
            xgen,
            smoltcp,
            lossy,
            lossy_rounds: RefCell::default(),
            linerate,
        })
    }

    /// All rounds of one row. What goes wrong is part of the line.
    pub(super) fn measure(&self, row: &Row, patience: &mut Patience) -> Line {
        let wanted = self.options.rounds();
        let mut data = Rounds::default();
        let two = matches!(
            row.peer,
            Peer::TwoCores
                | Peer::Veth { .. }
                | Peer::Linux(_)
                | Peer::LinuxTcp { .. }
                | Peer::LinuxBulk(_)
                | Peer::Lossy(_)
                | Peer::Nginx(_)
                | Peer::Guests
                | Peer::Pair(_)
        );
        if self.cpus.other.is_none() && two {
            data.note = Some("needs two CPUs".into());
        } else if let Err(error) = self.rounds(row, wanted, patience, &mut data) {
            data.note = Some(error.to_string());
            data.failed = true;
        }
        Line::new(row, data, wanted, self.options.peer_only)
    }

    fn rounds(
        &self,
        row: &Row,
        wanted: usize,
        patience: &mut Patience,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let mut undo = Undo::new()?;
        if let Peer::Linux(job) = row.peer {
            return self.crossing(row, job, wanted, &mut undo, data);
        }
        if let Peer::LinuxTcp { plain } = row.peer {
            return self.tcp(row, plain, wanted, &mut undo, data);
        }
        if let Peer::LinuxBulk(way) = row.peer {
            return self.bulk(row, way, wanted, &mut undo, data);
        }
        if let Peer::Lossy(lossy) = row.peer {
            return self.lossy(lossy, wanted, data);
        }
        if let Peer::Nginx(asking) = row.peer {
            return self.http(row, asking, wanted, &mut undo, data);
        }
        if row.peer == Peer::Guests {
            progress(&format!("{}: booting two guests", row.name));
            [data.ours, data.peer] = guests::measure(wanted, self.seconds(row))?;
            return Ok(());
        }
        if let Peer::Pair(pair) = row.peer {
            return self.pair(row, pair, (wanted, patience), &mut undo, data);
        }
        let veth = match row.peer {
            Peer::Veth { tx, .. } => {
                let xgen = self.xgen.clone().expect("built in prepare for these rows");
                let feed_on = if tx { None } else { self.cpus.other };
                Some(Veth::create(&mut undo, xgen, feed_on)?)
            }
            _ => None,
        };
        let input = match &self.linerate {
            Some(linerate) if has_input(row.peer) => {
                progress(&format!("{}: writing what both sides work on", row.name));
                Some(linerate.input(row.name)?)
            }
            _ => None,
        };
        if let (Peer::Conntrack { nat }, Some(input)) = (row.peer, &input) {
            for round in 1..=wanted {
                progress(&format!("{} round {round} of {wanted}", row.name));
                data.ours.extend(self.ours(row, None)?);
                let seconds = self.seconds(row);
                let peer = conntrack::measure(&self.pages, &self.cpus, (input, nat), seconds)?;
                data.peer.push(peer);
            }
            return Ok(());
        }
        let turn = || self.turn(row, veth.as_ref(), input.as_deref());
        let once = row.peer == Peer::OneCoreInput { once: true };
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            let (ours, peer) = if row.peer == Peer::TwoCores {
                let Some(turn) = self.near(patience, data, turn)? else {
                    return Ok(());
                };
                turn
            } else if let (true, Some(peer)) = (once, data.peer.last()) {
                (self.ours(row, veth.as_ref())?, peer.clone())
            } else {
                turn()?
            };
            data.ours.extend(ours);
            data.peer.push(peer);
        }
        Ok(())
    }

    /// What `turn` gave while the cores were near, or none, which the row's note says. A quick run
    /// takes them as they are.
    fn near<T>(
        &self,
        patience: &mut Patience,
        data: &mut Rounds,
        mut turn: impl FnMut() -> Result<T, TaskError>,
    ) -> Result<Option<T>, TaskError> {
        let probe = || self.core_to_core();
        let near = match self.options.quick {
            true => Some((turn()?, probe()?)),
            false => patience.near(probe, turn)?,
        };
        let Some((turn, trip_ns)) = near else {
            data.note = Some(format!(
                "the cores were far apart (round trip over {} ns) and did not come near in time",
                near::NEAR_NS
            ));
            return Ok(None);
        };
        data.trips_ns.push(trip_ns);
        Ok(Some(turn))
    }

    /// Ours, if it is asked for, then the peer.
    fn turn(
        &self,
        row: &Row,
        veth: Option<&Veth>,
        input: Option<&Path>,
    ) -> Result<(Option<Sample>, Sample), TaskError> {
        let ours = self.ours(row, veth)?;
        Ok((ours, self.peer(row, self.seconds(row), veth, input)?))
    }

    fn ours(&self, row: &Row, veth: Option<&Veth>) -> Result<Option<Sample>, TaskError> {
        let run = |linerate: &Linerate| linerate.run(row, self.seconds(row), &self.cpus, veth);
        let ours = self.linerate.as_ref().filter(|_| !self.options.peer_only);
        ours.map(run).transpose()
    }

    fn peer(
        &self,
        row: &Row,
        seconds: f64,
        veth: Option<&Veth>,
        input: Option<&Path>,
    ) -> Result<Sample, TaskError> {
        if let Peer::OneCore | Peer::OneCoreInput { .. } | Peer::TwoCores = row.peer {
            return self.micro_peer(row.name, seconds, row.peer == Peer::TwoCores, input);
        }
        if let (Peer::L3fwd { .. }, Some(dpdk)) = (row.peer, &self.dpdk)
            && dpdk.l3fwd()?.is_none()
        {
            let mut sample = self.micro_peer(row.name, seconds, false, input)?;
            sample.peer_name += " (no l3fwd that runs)";
            return Ok(sample);
        }
        if let (Peer::Smoltcp, Some(programs)) = (row.peer, &self.smoltcp) {
            return smoltcp::measure(programs, row.name, seconds, &self.cpus);
        }
        if let (Peer::Own { row }, Some(linerate)) = (row.peer, &self.linerate) {
            let mut sample = linerate.micro(row, seconds, &self.cpus.list(true))?;
            sample.peer_name = format!("our own {row}");
            return Ok(sample);
        }
        let setting = Setting {
            dpdk: self.dpdk.as_ref().expect("found in prepare"),
            cpus: &self.cpus,
            pages: &self.pages,
            veth,
            input,
            seconds,
        };
        let sample = setting.run(row);
        let (Err(error), Some(value)) = (&sample, rows::published(row)) else {
            return sample;
        };
        Ok(Sample {
            value,
            pages: "unknown".into(),
            peer_name: rows::PUBLISHED_BY.into(),
            detail: Default::default(),
            note: Some(format!("DPDK's driver did not run here: {error}")),
        })
    }

    fn micro_peer(
        &self,
        name: &str,
        seconds: f64,
        two: bool,
        input: Option<&Path>,
    ) -> Result<Sample, TaskError> {
        let program = self
            .micro
            .as_ref()
            .expect("built in prepare for these rows");
        let row = peer::Micro {
            row: name,
            seconds,
            two_cores: two,
            input,
        };
        peer::micro(program, &row, &self.cpus, &self.pages)
    }

    /// The round trip between the cores, by whichever side is there.
    fn core_to_core(&self) -> Result<f64, TaskError> {
        match &self.linerate {
            Some(linerate) => linerate.core_to_core(&self.cpus),
            None => Ok(self.micro_peer("probe.core2core", 0.1, true, None)?.value),
        }
    }

    fn seconds(&self, row: &Row) -> f64 {
        let by_default = match row.peer {
            Peer::OneCore | Peer::OneCoreInput { .. } | Peer::TwoCores | Peer::Smoltcp => 0.5,
            _ => 1.0,
        };
        self.options.seconds(by_default)
    }
}
