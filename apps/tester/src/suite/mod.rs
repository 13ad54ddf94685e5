//! `linerate bench throughput|latency|loss|back2back|rfc2544|ndr|soak`: a device under test,
//! measured.
//!
//! [`options`] reads the command line, [`stand`] builds a device and the generator, [`tester`] runs
//! trials on them for [`method`], which decides everything; [`preflight`] and [`self_test`] come
//! before, for the verdict.

mod connections;
mod options;
mod preflight;
mod progress;
mod self_test;
mod stand;
mod tester;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod when;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_core::env::{Clock, Lcore, Stolen};

use crate::device::{self, Asked, Cpus, NamedPort, Wire};
use crate::method::{self, Estimate, Measurement, Settings, Subjects, Tester};
use crate::report::{self, Output, Report};
use linerate_appliance::error::Error;
use linerate_appliance::netns::Space;
use linerate_appliance::output::{self, MachineFacts};
use linerate_appliance::runtime::Interrupts;
use self_test::ClockCheck;
use stand::{Blueprint, Floor};
use tester::SessionTester;

pub use options::Options;

/// Each of the two trials of the self-test, for a size.
const SELF_TEST: Duration = Duration::from_secs(1);
const QUICK_SELF_TEST: Duration = Duration::from_millis(200);

/// The checked options of a run.
struct Job {
    kind: Measurement,
    settings: Settings,
    /// The device first, then baselines.
    devices: Vec<Asked>,
    cpus: Cpus,
    directions: u32,
    seed: u64,
    quick: bool,
    tester: Option<String>,
    note: Option<String>,
}

/// Where the report goes.
struct Outputs {
    json: Option<Output>,
    html: Option<Output>,
    csv: Option<Output>,
    /// JSON on standard output instead of tables.
    print_json: bool,
}

impl Outputs {
    /// Checked before hours of measurement, not after.
    fn reserve(options: &Options) -> Result<Self, Error> {
        let reserve = |path: &Option<std::path::PathBuf>| {
            let file = path.as_deref().filter(|path| *path != Path::new("-"));
            file.map(Output::reserve).transpose()
        };
        Ok(Self {
            json: reserve(&options.json)?,
            html: reserve(&options.html)?,
            csv: reserve(&options.csv)?,
            print_json: options.json.as_deref() == Some(Path::new("-")),
        })
    }

    /// Writes all outputs, even if one of them fails.
    fn write(self, report: &Report, text: impl Fn(&Report, bool) -> String) -> Result<(), Error> {
        let mut results = vec![output::print(&match self.print_json {
            true => report::json(report),
            false => text(report, output::colour()),
        })];
        let files = [
            (self.json, report::json as fn(&Report) -> String),
            (self.html, report::html),
            (self.csv, report::csv),
        ];
        for (file, form) in files {
            results.extend(file.map(|file| file.write(&form(report))));
        }
        Error::all(results.into_iter().filter_map(Result::err).collect())
    }
}

/// Runs one kind of benchmark; the verdict is the exit code.
pub fn run(kind: Measurement, options: &Options) -> Result<(), Error> {
    let report = reported(kind, options, report::text)?;
    match report.verdict.word.exit_code() {
        0 => Ok(()),
        code => Err(Error::Found(code)),
    }
}

/// Runs one kind of benchmark and writes its report; `text` makes the form for users.
pub(crate) fn reported(
    kind: Measurement,
    options: &Options,
    text: impl Fn(&Report, bool) -> String,
) -> Result<Report, Error> {
    let options = options.read()?;
    let job = Job::read(kind, &options)?;
    for asked in &job.devices {
        device::prepare(asked)?;
    }
    let outputs = Outputs::reserve(&options)?;
    let interrupts = Interrupts::catch()?;
    let stop = Arc::<AtomicBool>::default();
    let stopped = stop.clone();
    let lcore = Lcore::spawn("bench", None, move || job.measure(&stopped))?;
    while !lcore.is_finished() {
        if interrupts.wait(Duration::from_millis(50)) {
            stop.store(true, Ordering::Relaxed);
        }
    }
    let report = lcore.join()??;
    outputs.write(&report, text)?;
    Ok(report)
}

/// Facts from before the first device was built.
struct Before {
    clock: Clock,
    check: ClockCheck,
    stolen: Vec<Stolen>,
}

impl Job {
    fn read(kind: Measurement, options: &Options) -> Result<Self, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut settings = options.settings()?;
        if options.quick && options.repeats.is_none() && kind == Measurement::Rfc2544 {
            // All parts of the RFC, at seven sizes, in less than three minutes.
            settings.repeats = settings.repeats.min(2);
            // Loss, latency and recovery take 8 s more.
            settings.size_limit = settings.size_limit.map(|limit| limit.mul_f64(0.75));
        }
        Ok(Self {
            kind,
            settings,
            devices: options.devices()?,
            cpus: options.cpus()?,
            directions: options.directions(),
            seed: options
                .seed
                .unwrap_or(now.map_or(1, |now| now.subsec_nanos().into())),
            quick: options.quick,
            tester: options.tester.clone(),
            note: options.note.clone(),
        })
    }

    /// The whole run, on a thread of its own, since it changes name spaces.
    fn measure(&self, stop: &Arc<AtomicBool>) -> Result<Report, Error> {
        let began = Instant::now();
        let mut progress = progress::Shown::new();
        let clock = Clock::calibrate();
        let home = Arc::new(Space::current()?);
        let floor = Floor::default();
        let tester = |number: usize, asked: &Asked| {
            let blueprint = Blueprint {
                asked: asked.clone(),
                cpus: self.cpus.clone(),
                clock,
                directions: self.directions,
                seed: self.seed,
                home: home.clone(),
            };
            SessionTester::new(number, blueprint, &floor, stop)
        };
        let mut report = self.report(clock)?;
        // Before any of our threads run: a polling device would look like other load.
        let before = Before {
            clock,
            check: ClockCheck::begin(clock),
            stolen: preflight::stolen(clock)?,
        };
        let mut testers: Vec<SessionTester> = (0..)
            .zip(&self.devices)
            .map(|(number, asked)| tester(number, asked))
            .collect();
        let mut own = tester(testers.len(), &self.loopback());
        // The same again, where one side alone may begin connections.
        let knowing = (0..)
            .zip(&self.devices)
            .filter(|(_, asked)| asked.kind.is_gateway());
        let knowing = knowing.filter(|_| self.settings.connections.is_some());
        let mut knowing: Vec<(usize, SessionTester)> = knowing
            .map(|(number, asked)| {
                let one_side = Asked {
                    one_side: true,
                    ..asked.clone()
                };
                (number, tester(testers.len() + 1 + number, &one_side))
            })
            .collect();
        let ready = self.prepare(&mut testers, &mut own, &before, &mut report, &mut progress);
        match ready {
            Err(Error::Interrupted) => {
                report.interrupted = true;
                report.verdict = method::verdict(&report, &self.settings);
            }
            Err(error) => return Err(error),
            Ok(names) => {
                let (device, baselines) = testers.split_at_mut(1);
                let baselines = names[1..]
                    .iter()
                    .cloned()
                    .zip(baselines.iter_mut().map(|tester| tester as &mut dyn Tester));
                let connections = knowing.iter_mut();
                let connections = connections
                    .map(|(number, tester)| (names[*number].clone(), tester as &mut dyn Tester));
                let mut subjects = Subjects {
                    device: &mut device[0],
                    baselines: baselines.collect(),
                    connections: connections.collect(),
                };
                let estimate = Estimate::of(self.kind, &self.settings, subjects.baselines.len());
                progress.expect(&estimate);
                report = method::run(
                    self.kind,
                    &mut subjects,
                    &self.settings,
                    report,
                    &mut progress,
                );
            }
        }
        progress.end();
        report.seconds = began.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Builds every device once before anything is measured, so that errors come early, and tests
    /// the generator by itself. Returns the devices' names.
    fn prepare(
        &self,
        testers: &mut [SessionTester],
        own: &mut SessionTester,
        before: &Before,
        report: &mut Report,
        progress: &mut progress::Shown,
    ) -> Result<Vec<String>, Error> {
        let largest = self.settings.sizes.iter().copied().max().unwrap_or(64);
        let mut names = Vec::new();
        for (number, tester) in testers.iter_mut().enumerate().rev() {
            progress.say(&format!("setting up {}", self.devices[number].kind.name()));
            names.push(tester.with(|running| {
                let setup = &running.stand.setup;
                report.device = setup.device.clone();
                report.device.directions = self.directions;
                report.path = setup.path.clone();
                let map = running.stand.session.explain_map();
                report
                    .path
                    .push(("generator lcores".into(), map.trim().into()));
                report.preflight =
                    preflight::checks(setup, largest, &before.clock, &before.stolen)?;
                Ok(setup.device.name.clone())
            })?);
        }
        names.reverse();
        if self.kind == Measurement::Demo {
            return Ok(names); // nothing is held against what the generator does by itself
        }
        let duration = match self.quick {
            true => QUICK_SELF_TEST.min(self.settings.trial),
            false => SELF_TEST.min(self.settings.trial),
        };
        let ppm = before.check.error_ppm();
        for &bytes in &self.settings.sizes {
            progress.say(&format!("self-test of the generator: {bytes} B"));
            match self_test::one(own, bytes, duration, ppm) {
                Ok(test) => report.self_test.push(report::SelfTest {
                    stand_in: self.stand_in(),
                    ..test
                }),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                // A stand-in may not support what the port itself does.
                Err(error) if self.stand_in().is_some() => {
                    report.preflight.push(report::Check {
                        what: "self-test of the generator".into(),
                        well: false,
                        seen: format!("not possible on {}: {error}", self.stand_in_name()),
                    });
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(names)
    }

    /// The report before the first trial.
    fn report(&self, clock: Clock) -> Result<Report, Error> {
        let machine = MachineFacts::gather(&clock)?;
        let words: Vec<String> = std::env::args().collect();
        Ok(Report {
            version: report::VERSION,
            kind: self.kind.to_string(),
            began: when::now(),
            machine: serde_json::to_value(machine).map_err(std::io::Error::from)?,
            command: words.join(" "),
            seed: self.seed,
            tester: self.tester.clone(),
            note: self.note.clone(),
            ..Report::default()
        })
    }

    /// What the generator is tested on instead of an external device's ports, which cannot be
    /// joined.
    fn stand_in(&self) -> Option<String> {
        let named = !self.devices[0].ports.is_empty();
        named.then(|| self.stand_in_name())
    }

    fn stand_in_name(&self) -> String {
        match self.loopback().wire {
            wire if wire.is_ring() => "a ring in memory".into(),
            wire => format!("{} on a pair of veth", wire.outer("g0")),
        }
    }

    /// The device's wire without the device. A pair of veth with the same options, or a ring,
    /// stands for the ports of an external one.
    fn loopback(&self) -> Asked {
        let device = &self.devices[0];
        let like = |port: &NamedPort| {
            let wire = Wire::like(&port.asked.spec);
            let wire = wire.filter(|_| rustix::process::geteuid().is_root());
            wire.unwrap_or_else(|| Wire::of("ring"))
        };
        let wire = device.ports.first().map_or(device.wire.clone(), like);
        Asked {
            kind: device::DeviceKind::None,
            wire,
            ports: Vec::new(),
            dst_macs: Vec::new(),
            ..device.clone()
        }
    }
}
