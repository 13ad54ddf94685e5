//! Whole benchmarks with tiny trials, in this process. The results depend on the machine; sums,
//! labels and reported faults do not.

use clap::Parser;

use super::*;
use crate::method::{Load, Opened};
use crate::report::VerdictWord;
use linerate_appliance::netns;

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

fn job(kind: Measurement, line: &str) -> Job {
    let mut job = Job::read(kind, &options(line)).unwrap();
    job.settings.attempts = 1;
    job.settings.goals.iter_mut().for_each(|goal| {
        goal.sum = goal.trial;
    });
    job
}

/// Runs a job on a thread of its own, as the command does.
fn run(job: Job) -> Result<Report, Error> {
    let stop = Arc::<AtomicBool>::default();
    let lcore = Lcore::spawn("bench-test", None, move || job.measure(&stop)).unwrap();
    lcore.join().unwrap()
}

#[test]
fn a_throughput_run_adds_up_and_is_labelled_for_what_it_is() {
    let report = run(job(
        Measurement::Throughput,
        "--quick --sizes 64 --trial 0.02 --width 30 --repeats 1 --seed 7 --bidirectional --max-pps \
         200000",
    ))
    .unwrap();
    assert_eq!((report.seed, report.device.directions), (7, 2));
    assert_eq!(report.device.name, "linerate l2fwd over ring ports");
    assert!(!report.interrupted && report.failure.is_none());
    // In 20 ms on a busy machine no frame may come.
    let [generator] = report.self_test.as_slice() else {
        panic!("{:?}", report.self_test);
    };
    assert!(generator.max_pps >= 0.0 && generator.max_pps.is_finite());
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
    let read: Report = serde_json::from_str(&report::json(&report)).unwrap();
    assert_eq!(read.throughput[0].quoted, row.quoted);
    assert!(report::text(&report, false).contains("l2fwd"));
}

#[test]
fn a_lossy_port_has_a_pdr_and_hardly_an_ndr() {
    // One frame in 500 is lost on the way out, by the seed.
    let report = run(job(
        Measurement::Ndr,
        "--quick --sizes 64 --trial 0.05 --width 30 --ports ring,faulty=loss:0.002+on:tx+seed:7 \
         --max-pps 100000",
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
    let job = job(Measurement::Rfc2544, "--quick --sizes 64 --trial 30");
    let stop = Arc::<AtomicBool>::default();
    let stopped = stop.clone();
    let lcore = Lcore::spawn("bench-test", None, move || job.measure(&stopped)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    let report = lcore.join().unwrap().unwrap();
    assert!(report.interrupted);
    let code = report.verdict.word.exit_code();
    assert!([7, 8].contains(&code), "{:?}", report.verdict);
    serde_json::from_str::<Report>(&report::json(&report)).unwrap();
}

#[test]
fn a_line_that_is_slower_than_the_generator_is_its_limit_from_the_beginning() {
    // Ports of 10 Mbit/s: less than the warm-up and the self-test offer.
    let line = "--quick --sizes 64 --trial 0.05 --width 30 --repeats 1 --speed 10M";
    let report = run(job(Measurement::Throughput, line)).unwrap();
    let row = &report.throughput[0];
    assert_eq!(row.line_pps.map(f64::round), Some(14_881.0));
    assert!(row.trials.iter().all(|trial| trial.asked_pps < 14_882.0));
    assert!(
        report.self_test[0].latency.samples > 0,
        "half of the maximum was offered"
    );
}

/// Two links to the kernel, which forwards between them without static neighbours; the calling
/// thread is in the name space of their other ends, `g0` and `g1`.
fn in_front_of_a_router(addresses: &str) -> Space {
    let (outer, router) = (Space::new().unwrap(), Space::new().unwrap());
    let link = |number: u8| {
        format!(
            "link add g{number} type veth peer name d{number} netns {}\nlink set g{number} up\n",
            router.path()
        )
    };
    outer.within(|| netns::ip(&(link(0) + &link(1)))).unwrap();
    router
        .within(|| {
            netns::sysctl("net/ipv6/conf/all/disable_ipv6", "0")?;
            netns::ip("link set lo up\nlink set d0 up\nlink set d1 up\n")?;
            netns::ip(addresses)?;
            netns::sysctl("net/ipv6/conf/all/forwarding", "1")?;
            netns::sysctl("net/ipv4/ip_forward", "1")
        })
        .unwrap();
    outer.enter().unwrap();
    router
}

#[test]
fn a_router_is_measured_that_asks_and_is_asked_for_its_neighbours() {
    if Space::new().is_err() {
        return linerate_testkit::skip("this user may make no network name spaces");
    }
    let four = (
        "address add 10.1.0.1/24 dev d0\naddress add 10.2.0.1/24 dev d1\n",
        "--port af_packet:g0,addr=10.1.0.2/24,gateway=10.1.0.1 \
         --port af_packet:g1,addr=10.2.0.2/24,gateway=10.2.0.1",
    );
    let six = (
        "address add 2001:db8:1::1/64 dev d0 nodad\naddress add 2001:db8:2::1/64 dev d1 nodad\n",
        "--port af_packet:g0,addr=2001:db8:1::2/64,gateway=2001:db8:1::1 \
         --port af_packet:g1,addr=2001:db8:2::2/64,gateway=2001:db8:2::1",
    );
    for (addresses, ports) in [four, six] {
        let test = move || {
            let _router = in_front_of_a_router(addresses);
            let line = format!(
                "{ports} --quick --sizes 128 --trial 0.05 --width 30 --repeats 1 --max-pps 2000 \
                 --bidirectional --device-name box"
            );
            let report = run(job(Measurement::Throughput, &line)).unwrap();
            assert_eq!(report.failure, None);
            assert_eq!(report.device.name, "box");
            let mut trials = report.throughput[0].trials.iter();
            assert!(
                trials.any(|trial| trial.received > 0 && trial.received * 2 > trial.sent),
                "{:?}",
                report.throughput
            );
            // Both directions.
            assert!(
                report.throughput[0]
                    .per_port_pps
                    .iter()
                    .all(|pps| *pps > 0.0)
            );
            let gateways = report
                .path
                .iter()
                .filter(|fact| fact.0.starts_with("gateway of"));
            assert_eq!(gateways.count(), 2, "{:?}", report.path);
            // The generator was tested on something like its ports, and the report says so.
            let stand_in = report.self_test[0].stand_in.as_deref();
            assert_eq!(stand_in, Some("af_packet:g0 on a pair of veth"));
        };
        std::thread::spawn(test).join().unwrap();
    }
}

#[test]
fn a_gateway_that_nobody_has_is_named() {
    if Space::new().is_err() {
        return linerate_testkit::skip("this user may make no network name spaces");
    }
    let test = || {
        let _router = in_front_of_a_router("address add 10.1.0.1/24 dev d0\n");
        let line = "--quick --sizes 64 --port af_packet:g0,addr=10.1.0.2/24,gateway=10.1.0.9 \
                    --port af_packet:g1,addr=10.2.0.2/24,gateway=10.2.0.1";
        let error = run(job(Measurement::Throughput, line)).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("g0") && said.contains("answers for 10.1.0.9"),
            "{said}"
        );
        assert!(error.fix().unwrap().contains("--dst-mac"));
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let began = Instant::now();
    for form in ["json", "html", "csv"] {
        let line = format!("--{form} /no/such/folder/report");
        let error = super::run(Measurement::Rfc2544, &options(&line)).unwrap_err();
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
        return linerate_testkit::skip("this user may make no network name spaces");
    }
    let test = || {
        let job = job(
            Measurement::Throughput,
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
        // It was built and works. On a busy machine not all is sent in time, which the report says.
        let whole = tester.trial(&load).unwrap().trial;
        assert_eq!((whole.intended, whole.sent + whole.unsent), (100, 100));
        assert!(whole.received > 0, "{whole:?}");
        assert!(whole.invalid.is_none() || whole.lost > 0, "{whole:?}");
        let (outcome, next) = tester
            .with(|running| {
                // Its name space is this thread's, and so that of threads started here.
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

/// Runs with a gateway of its own, where one side alone may begin connections.
fn with_gateway(line: &str, work: impl FnOnce(&mut SessionTester) + Send + 'static) {
    let job = job(Measurement::Throughput, line);
    let run = move || {
        let blueprint = Blueprint {
            asked: Asked {
                one_side: true,
                ..job.devices[0].clone()
            },
            cpus: job.cpus.clone(),
            clock: Clock::calibrate(),
            directions: 1,
            seed: 1,
            home: Arc::new(Space::current().unwrap()),
        };
        let (floor, stop) = (Floor::default(), Arc::default());
        work(&mut SessionTester::new(0, blueprint, &floor, &stop));
    };
    Lcore::spawn("bench-test", None, run)
        .unwrap()
        .join()
        .unwrap();
}

/// In each form: all answers come through in connections that were opened, and none without.
#[test]
fn a_gateway_knows_the_connections_that_were_opened() {
    for device in [
        "gateway",
        "gateway.rss",
        "gateway.dispatcher",
        "gateway.balanced",
    ] {
        let line = format!("--quick --sizes 64 --rules 3 --device {device}");
        with_gateway(&line, |tester| {
            let opened = Opened {
                frame_bytes: 64,
                connections: 300,
                pps: 10_000.0,
                answers_pps: 5000.0,
            };
            let patience = Instant::now() + Duration::from_secs(60);
            // On a busy machine frames may be late.
            let connected = loop {
                let connected = tester.connect(&opened).unwrap().unwrap();
                if connected.first.lost + connected.answers.lost == 0 {
                    break connected;
                }
                assert!(Instant::now() < patience, "{connected:?}");
            };
            assert_eq!((connected.first.received, connected.known), (300, 300));
            assert_eq!(connected.answers.received, 300);
            let load = Load {
                frame_bytes: 64,
                pps: Some(5000.0),
                duration: Duration::from_secs(1),
                count: Some(50),
                ..Load::default()
            };
            let outcome = tester.with(|running| running.offer_from(1, &load)).unwrap();
            assert_eq!(outcome.trial.received, 0, "nobody has begun these");
        });
    }
}

#[test]
fn a_profile_says_what_the_stages_of_a_gateway_take() {
    with_gateway("--quick --sizes 64 --rules 3 --device gateway", |tester| {
        let load = Load {
            frame_bytes: 64,
            pps: Some(20_000.0),
            duration: Duration::from_millis(300),
            ..Load::default()
        };
        let (lcores, trial) = tester.profile(&load).unwrap().unwrap();
        assert_eq!((lcores.len(), lcores[0].lcore.as_str()), (1, "io0"));
        let profile = report::Profile {
            pps: trial.received as f64,
            lcores,
            ..report::Profile::default()
        };
        let role = profile.roles().remove(0);
        for name in [
            "parse",
            "flow_lookup",
            "flows",
            "lookup",
            "rewrite",
            "transmit",
        ] {
            let found = role.functions.iter().find(|function| function.name == name);
            assert!(
                found.is_some_and(|function| function.ticks > 0.0),
                "{name}: {role:?}"
            );
        }
        let known = |one: &report::profile::Function| one.name == "between" || !one.what.is_empty();
        let named = role.functions.iter().filter(|one| !known(one));
        let named: Vec<&str> = named.map(|one| one.name.as_str()).collect();
        assert_eq!(
            named,
            Vec::<&str>::new(),
            "what takes time has a description"
        );
    });
}
