//! How fast a device that knows connections sets them up and tears them down, and how many it knows
//! at once (RFC 9693 4.5 to 4.9).
//!
//! One trial: one side sends a frame of each connection, at a rate; then the other side answers in
//! each, more slowly. All frames of both have to come through: what is answered is known, since
//! nobody may begin a connection from there. Then the device forgets all connections.

use super::plan::phase;
use super::runner::{Runner, spell_pps};
use super::{Load, Subjects, Tester};
use crate::report::{Connections, Report, Trial};
use linerate_appliance::error::Error;

/// Rate of the answers, relative to that of the first frames (RFC 9693 4.6: below 1).
const ANSWERS: f64 = 0.5;
/// The rates of set-up while capacity is looked for, relative to the highest (RFC 9693 4.9: R0).
const SAFE: [f64; 2] = [0.5, 0.125];
/// Connections from which the search for capacity begins, and beyond which none is tried.
const LEAST: u64 = 1 << 14;
pub(super) const MOST: u64 = 1 << 22;
/// Bounds of a search this close are close enough, relative to the upper one.
const WIDTH: f64 = 0.02;

/// What a trial asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Opened {
    pub(crate) frame_bytes: usize,
    pub(crate) connections: u64,
    /// First frames a second, and answers a second.
    pub(crate) pps: f64,
    pub(crate) answers_pps: f64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connected {
    pub(crate) first: Trial,
    pub(crate) answers: Trial,
    /// Connections that the device then knew, and how long it took to forget them.
    pub(crate) known: u64,
    pub(crate) forgotten_ns: u64,
}

impl Connected {
    fn is_whole(&self) -> bool {
        self.first.lost == 0 && self.answers.lost == 0
    }
}

/// All subjects that know connections, at the first size.
pub(super) fn connections(
    run: &mut Runner,
    subjects: &mut Subjects,
    report: &mut Report,
) -> Result<(), Error> {
    let (Some(&size), Some(many)) = (run.settings.sizes.first(), run.settings.connections) else {
        return Ok(());
    };
    if subjects.connections.is_empty() {
        return Ok(());
    }
    run.end_sizes();
    run.enter(phase::of("connections", size));
    for (name, tester) in &mut subjects.connections {
        let rows = report.throughput.iter();
        let rows = rows.filter(|row| row.frame_bytes == size);
        // What a connection's first frame takes is no less than what any frame takes.
        let most = rows
            .map(|row| row.generator_pps.max(row.pps))
            .fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 10e6 };
        let mut of = Of {
            run: &mut *run,
            tester: &mut **tester,
            size,
            trials: 0,
        };
        let Some(mut found) = of.rate(many, most)? else {
            continue;
        };
        if found.set_up_pps > 0.0 {
            of.capacity(&mut found)?;
        }
        found.subject.clone_from(name);
        found.trials = of.trials;
        report.connections.push(found);
    }
    Ok(())
}

/// One subject.
struct Of<'a, 'b, 'c> {
    run: &'a mut Runner<'b>,
    tester: &'c mut dyn Tester,
    size: usize,
    trials: usize,
}

impl Of<'_, '_, '_> {
    /// One trial, again while it is disturbed and attempts are left.
    fn open(&mut self, connections: u64, pps: f64) -> Result<Option<Connected>, Error> {
        let opened = Opened {
            frame_bytes: self.size,
            connections,
            pps,
            answers_pps: pps * ANSWERS,
        };
        let mut attempts = self.run.settings.attempts.max(1);
        loop {
            let seconds = connections as f64 / pps * (1.0 + 1.0 / ANSWERS);
            self.run.announce(&Load {
                frame_bytes: self.size,
                pps: Some(pps),
                duration: std::time::Duration::from_secs_f64(seconds),
                count: Some(connections),
                ..Load::default()
            });
            self.trials += 1;
            let Some(connected) = self.tester.connect(&opened)? else {
                return Ok(None);
            };
            attempts -= 1;
            let is_disturbed = [&connected.first, &connected.answers]
                .iter()
                .any(|trial| trial.invalid.is_some());
            if connected.is_whole() || !is_disturbed || attempts == 0 {
                return Ok(Some(connected));
            }
        }
    }

    /// The highest rate at which so many connections are set up (RFC 9693 4.5, 4.6), and how fast
    /// they go (4.8); nothing if the subject knows no connections.
    fn rate(&mut self, connections: u64, most: f64) -> Result<Option<Connections>, Error> {
        let mut found = Connections {
            connections,
            ..Connections::default()
        };
        let (mut lower, mut upper) = (0.0, None);
        let mut pps = most;
        loop {
            let Some(connected) = self.open(connections, pps)? else {
                return Ok(None);
            };
            match connected.is_whole() {
                true => {
                    lower = pps;
                    found.torn_down_pps =
                        connected.known as f64 * 1e9 / connected.forgotten_ns.max(1) as f64;
                    if upper.is_none() {
                        break;
                    }
                }
                false => upper = Some(pps),
            }
            let Some(high) = upper else { break };
            if high - lower <= high * WIDTH || high < 1000.0 {
                break;
            }
            pps = (lower + high) / 2.0;
        }
        found.set_up_pps = lower;
        found.set_up_upper_pps = upper;
        Ok(Some(found))
    }

    /// Whether so many connections are known at once. What fails at one rate is tried at a lower
    /// one: a rate that few connections stand may be too high for more.
    fn holds(&mut self, connections: u64, pps: f64) -> Result<bool, Error> {
        for share in SAFE {
            match self.open(connections, pps * share)? {
                Some(connected) if connected.is_whole() => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
        Ok(false)
    }

    /// How many connections are known at once: first their order of magnitude, then the number
    /// (RFC 9693 4.9).
    fn capacity(&mut self, found: &mut Connections) -> Result<(), Error> {
        let pps = found.set_up_pps;
        let (mut lower, mut upper) = (0, None);
        let mut many = LEAST;
        while many <= MOST {
            if !self.holds(many, pps)? {
                upper = Some(many);
                break;
            }
            (lower, many) = (many, many * 2);
        }
        while let Some(high) = upper
            && (high - lower) as f64 > high as f64 * WIDTH
        {
            let middle = (lower + high) / 2;
            match self.holds(middle, pps)? {
                true => lower = middle,
                false => upper = Some(middle),
            }
        }
        (found.capacity, found.capacity_upper) = (lower, upper);
        Ok(())
    }
}

/// What the terminal shows of a row.
pub(crate) fn spelled(row: &Connections) -> [String; 3] {
    let upper = |known: bool, text: String| {
        if known {
            text
        } else {
            format!("{text} or more")
        }
    };
    [
        upper(
            row.set_up_upper_pps.is_some(),
            spell_pps(row.set_up_pps).replace("pps", "/s"),
        ),
        spell_pps(row.torn_down_pps).replace("pps", "/s"),
        match row.capacity {
            0 => "-".into(),
            many => upper(row.capacity_upper.is_some(), many.to_string()),
        },
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::method::model::Model;
    use crate::method::{Measurement, Settings, Silent, Subjects, run};
    use crate::report::{Connections, Report};

    fn found(device: &mut Model, connections: Option<u64>) -> Vec<Connections> {
        let settings = Settings {
            sizes: vec![64],
            connections,
            ..Settings::quick()
        };
        let mut plain = Model::default();
        let mut subjects = Subjects {
            device: &mut plain,
            baselines: Vec::new(),
            connections: vec![("gateway".into(), device)],
        };
        let kind = Measurement::Throughput;
        let report = run(
            kind,
            &mut subjects,
            &settings,
            Report::default(),
            &mut Silent,
        );
        report.connections
    }

    #[test]
    fn rate_and_capacity_are_found_to_their_width() {
        for (set_up_pps, room) in [(800_000.0, 250_000), (3e6, 70_000), (20_000.0, 1 << 20)] {
            let mut device = Model {
                set_up_pps,
                room,
                ..Model::default()
            };
            let found = found(&mut device, Some(50_000)).remove(0);
            assert_eq!(
                (found.subject.as_str(), found.connections),
                ("gateway", 50_000)
            );
            let is_near = |found: f64, real: f64| found <= real && found >= real * 0.97;
            assert!(is_near(found.set_up_pps, set_up_pps), "{found:?}");
            assert!(is_near(found.capacity as f64, room as f64), "{found:?}");
            assert!(found.capacity_upper.unwrap() > room, "{found:?}");
            assert_eq!(found.torn_down_pps, 5e6);
        }
    }

    #[test]
    fn what_is_not_asked_for_or_not_known_has_no_row() {
        let mut device = Model::default();
        assert!(found(&mut device, Some(1000)).is_empty());
        device.set_up_pps = 1e6;
        assert!(found(&mut device, None).is_empty());
        // Room for less than the search begins with.
        device.room = 100;
        let none = found(&mut device, Some(1000)).remove(0);
        assert_eq!((none.set_up_pps, none.capacity), (0.0, 0));
    }
}
