//! The rounds of rows that make something on the machine for themselves: namespaces, links, two
//! processes.

use super::Bench;
use crate::compare::bulk::{Bulk, Way};
use crate::compare::crossing::{Crossing, Job};
use crate::compare::http::{Asking, Http};
use crate::compare::lossy::{self, Lossy};
use crate::compare::near::Patience;
use crate::compare::ours::Linerate;
use crate::compare::pair::{Ends, Pair};
use crate::compare::progress;
use crate::compare::report::Rounds;
use crate::compare::rows::Row;
use crate::compare::sample::Sample;
use crate::compare::tcp::Tcp;
use crate::error::TaskError;
use crate::undo::Undo;

/// What each side of a row of losses measures in each round, in s: a loss in a hundred is a matter
/// of chance for long.
const LOSSY_SECONDS: f64 = 10.0;

impl Bench<'_> {
    /// The program, unless only peers are to be measured.
    fn measured(&self) -> Option<&Linerate> {
        self.linerate.as_ref().filter(|_| !self.options.peer_only)
    }

    /// Rounds in which first we are measured and then the peer, for which `turn` gets `None`.
    fn turns(
        &self,
        row: &Row,
        wanted: usize,
        data: &mut Rounds,
        turn: impl Fn(Option<&Linerate>) -> Result<Sample, TaskError>,
    ) -> Result<(), TaskError> {
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            if let Some(linerate) = self.measured() {
                data.ours.push(turn(Some(linerate))?);
            }
            data.peer.push(turn(None)?);
        }
        Ok(())
    }

    /// The rounds of a row of two processes.
    pub(super) fn pair(
        &self,
        row: &Row,
        pair: Pair,
        (wanted, patience): (usize, &mut Patience),
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let linerate = self.measured();
        let seconds = self.seconds(row);
        let version = &self.dpdk.as_ref().expect("found in prepare").version;
        let port = self.port.as_ref().expect("built in prepare for these rows");
        let mut ends = Ends::create(undo, pair, &self.cpus, (port, version), &self.pages)?;
        if self
            .near(patience, data, || ends.choose(row.name, linerate, seconds))?
            .is_none()
        {
            return Ok(());
        }
        data.trips_ns.clear();
        for round in 1..=wanted {
            progress(&format!("{} round {round} of {wanted}", row.name));
            let turn = || {
                let ours = linerate.map(|linerate| ends.ours(linerate, seconds));
                Ok((ours.transpose()?, ends.peer(seconds)?))
            };
            let Some((ours, peer)) = self.near(patience, data, turn)? else {
                return Ok(());
            };
            data.ours.extend(ours);
            data.peer.push(peer);
        }
        Ok(())
    }

    /// The rounds of a row whose peer is the kernel.
    pub(super) fn crossing(
        &self,
        row: &Row,
        job: Job,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let xgen = self.xgen.clone().expect("built in prepare for these rows");
        let linerate = self.measured();
        let seconds = match job {
            // The tables have room for so long.
            Job::New => self.seconds(row).min(1.0),
            _ => self.seconds(row),
        };
        let mut crossing = Crossing::create(undo, job, xgen, &self.cpus)?;
        crossing.choose(row.name, linerate, seconds)?;
        let turn = |ours: Option<&Linerate>| match ours {
            Some(linerate) => crossing.ours(linerate, seconds),
            None => crossing.peer(seconds),
        };
        self.turns(row, wanted, data, turn)
    }

    /// The rounds of a row of TCP through the kernel's ports.
    pub(super) fn tcp(
        &self,
        row: &Row,
        plain: bool,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let linerate = self.measured();
        let seconds = self.seconds(row);
        let mut tcp = Tcp::create(undo, &self.cpus, plain)?;
        if let Some(linerate) = linerate {
            tcp.choose(row.name, linerate, seconds)?;
        }
        let turn = |ours: Option<&Linerate>| match ours {
            Some(linerate) => tcp.ours(linerate, seconds),
            None => tcp.peer(seconds),
        };
        self.turns(row, wanted, data, turn)
    }

    /// The rounds of a row of one TCP connection with an end of ours.
    pub(super) fn bulk(
        &self,
        row: &Row,
        way: Way,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let linerate = self.measured();
        let seconds = self.seconds(row);
        let mut bulk = Bulk::create(undo, &self.cpus, way)?;
        bulk.choose(row.name, linerate, seconds)?;
        let turn = |ours: Option<&Linerate>| match ours {
            Some(linerate) => bulk.ours(linerate, seconds),
            None => bulk.peer(seconds),
        };
        self.turns(row, wanted, data, turn)
    }

    /// The rounds of a row of losses: those of all selected ones are measured with the first.
    pub(super) fn lossy(
        &self,
        row: Lossy,
        wanted: usize,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let Some(linerate) = self.measured() else {
            return Err(TaskError::Missing {
                what: "the links of this row are linerate's".into(),
                fix: "leave out --peer-only".into(),
            });
        };
        let mut measured = self.lossy_rounds.borrow_mut();
        if measured.is_empty() {
            let seconds = self.options.seconds(LOSSY_SECONDS);
            *measured = lossy::measure(&self.lossy, linerate, &self.cpus, (wanted, seconds))?;
        }
        *data = measured.remove(&row).unwrap_or_default();
        Ok(())
    }

    /// The rounds of a row of web servers.
    pub(super) fn http(
        &self,
        row: &Row,
        asking: Asking,
        wanted: usize,
        undo: &mut Undo,
        data: &mut Rounds,
    ) -> Result<(), TaskError> {
        let (linerate, ours) = (self.linerate.as_ref(), self.measured());
        let seconds = self.seconds(row);
        let mut http = Http::create(undo, &self.cpus, asking)?;
        http.choose(row.name, ours, linerate, seconds)?;
        let turn = |ours: Option<&Linerate>| match ours {
            Some(linerate) => http.ours(linerate, seconds),
            None => http.peer(linerate, seconds),
        };
        self.turns(row, wanted, data, turn)
    }
}
