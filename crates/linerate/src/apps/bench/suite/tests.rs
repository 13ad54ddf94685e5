//! Whole benchmarks with tiny trials, in this process. What is measured depends on the machine; that sums
//! agree, that labels say what was done, and that misfortunes are told does not.

use clap::Parser;

use super::*;
use crate::apps::bench::method::Load;
use crate::apps::netns;
use crate::report::bench::VerdictWord;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// The options of a command line.
pub(super) fn options(line: &str) -> Options {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Line::try_parse_from(words).unwrap().options
}

fn job(kind: Kind, line: &str) -> Job {
    let mut job = Job::read(kind, &options(line)).unwrap();
    job.settings.attempts = 1;
    job.settings.goals.iter_mut().for_each(|goal| {
        goal.sum = goal.trial;
    });
    job
}

/// Runs it on a thread of its own, as the command does.
fn run(job: Job) -> Result<Report, Error> {
    let stop = Arc::<AtomicBool>::default();
    let lcore = Lcore::spawn("bench-test", None, move || job.measure(&stop)).unwrap();
    lcore.join().unwrap()
}

#[test]
fn a_throughput_run_adds_up_and_is_labelled_for_what_it_is() {
    let report = run(job(
        Kind::Throughput,
        "--quick --sizes 64 --trial 0.02 --width 30 --repeats 1 --seed 7 --bidirectional --max-pps 200000",
    ))
    .unwrap();
    assert_eq!((report.seed, report.device.directions), (7, 2));
    assert_eq!(report.device.name, "linerate l2fwd over ring ports");
    assert!(!report.interrupted && report.failure.is_none());
    assert!(report.self_test[0].max_pps > 0.0);
    assert!(report.preflight.iter().any(|check| check.what == "clock"));
    assert!(
        !report.compliance.label.contains("RFC2544"),
        "{}",
        report.compliance.label
    );
    let row = &report.throughput[0];
    assert!(!row.trials.is_empty());
    for trial in row.trials.iter().chain([&row.quoted]) {
        assert_eq!(trial.intended, trial.sent + trial.unsent, "{trial:?}");
        let unique = trial.received - trial.duplicates;
        assert_eq!(trial.lost, trial.intended - unique, "{trial:?}");
        assert_eq!(trial.duplicates, 0, "{trial:?}");
    }
    // It is written in every form, and read back.
    let read: Report = serde_json::from_str(&bench::json(&report)).unwrap();
    assert_eq!(read.throughput[0].quoted, row.quoted);
    assert!(bench::text(&report, false).contains("l2fwd"));
}

#[test]
fn a_lossy_port_has_a_pdr_and_hardly_an_ndr() {
    // One frame in 500 is lost on the way out, by the seed.
    let report = run(job(
        Kind::Ndr,
        "--quick --sizes 64 --trial 0.05 --width 30 --ports ring,faulty=loss:0.002+on:tx+seed:7 --max-pps 100000",
    ))
    .unwrap();
    let rate = |goal: &str| {
        let row = report.throughput.iter().find(|row| row.goal == goal);
        row.map_or(0.0, |row| row.pps)
    };
    let lossy = report
        .throughput
        .iter()
        .flat_map(|row| &row.trials)
        .filter(|trial| trial.sent > 3000 && trial.unsent == 0)
        .all(|trial| trial.lost > 0);
    assert!(lossy, "{:?}", report.throughput);
    assert!(rate("NDR") < 60_000.0, "{}", rate("NDR"));
    assert!(rate("NDR") <= rate("PDR"));
}

#[test]
fn an_interrupted_run_leaves_a_report() {
    let job = job(Kind::Rfc2544, "--quick --sizes 64 --trial 30");
    let stop = Arc::<AtomicBool>::default();
    let stopped = stop.clone();
    let lcore = Lcore::spawn("bench-test", None, move || job.measure(&stopped)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    let report = lcore.join().unwrap().unwrap();
    assert!(report.interrupted);
    serde_json::from_str::<Report>(&bench::json(&report)).unwrap();
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let began = Instant::now();
    for form in ["json", "html", "csv"] {
        let line = format!("--{form} /no/such/folder/report");
        let error = super::run(Kind::Rfc2544, &options(&line)).unwrap_err();
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "nothing was measured"
    );
}

#[test]
fn a_port_that_goes_spoils_its_trial_and_ends_the_run() {
    if Space::new().is_err() {
        return eprintln!("SKIP: this user may make no network name spaces");
    }
    let test = || {
        let job = job(
            Kind::Throughput,
            "--device bridge --ports af_packet --quick",
        );
        let clock = Clock::calibrate();
        let blueprint = Blueprint {
            asked: job.devices[0].clone(),
            cpus: job.cpus.clone(),
            clock,
            directions: 1,
            seed: 1,
            home: Arc::new(Space::current().unwrap()),
        };
        let stop = Arc::<AtomicBool>::default();
        let mut tester = SessionTester::new(0, blueprint, &Floor::default(), &stop);
        let load = Load {
            frame_bytes: 64,
            pps: Some(1000.0),
            duration: Duration::from_millis(100),
            ..Load::default()
        };
        // Built, and found in order. On a busy machine not all is sent in time, and that is said.
        let whole = tester.trial(&load).unwrap().trial;
        assert_eq!((whole.intended, whole.sent + whole.unsent), (100, 100));
        assert!(whole.received > 0, "{whole:?}");
        assert!(whole.invalid.is_none() || whole.lost > 0, "{whole:?}");
        let (outcome, next) = tester
            .with(|running| {
                // Its name space is this thread's, and so that of threads begun here.
                let vandal = std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(150));
                    netns::ip("link del g1\n")
                });
                let long = Load {
                    duration: Duration::from_secs(30),
                    ..load
                };
                let (outcome, _) = running.offer(&long)?;
                vandal.join().unwrap()?;
                Ok((outcome, running.offer(&load).err()))
            })
            .unwrap();
        let why = outcome.trial.invalid.unwrap();
        assert!(why.contains("g1"), "{why}");
        assert!(outcome.trial.intended < 30_000, "it ended at once");
        let error = next.unwrap();
        assert!(error.to_string().contains("is gone"), "{error}");
        assert_eq!(VerdictWord::Failed.exit_code(), 7);
    };
    std::thread::spawn(test).join().unwrap();
}
