//! A small trace with an elephant, and the real one.

use linerate_testkit::capture::paced;
use linerate_testkit::{Random, Scratch, data};
use linerate_wire::{EtherType, checksum, protocol};

use super::*;

/// A UDP datagram between two hosts, without a UDP checksum.
fn frame(src: [u8; 4], dst: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, protocol::UDP, 0, 0];
    ip.extend(src);
    ip.extend(dst);
    let sum = !checksum::sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(EtherType::IPV4.0.to_be_bytes());
    frame.extend(ip);
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.extend([0; 18]);
    frame
}

/// 2000 packets, 1 ms apart: 400 flows of hosts inside, each packet followed by its answer, and one
/// flow that has every fifth packet.
fn frames() -> Vec<Vec<u8>> {
    let mut random = Random::new(3);
    let mut all = Vec::new();
    while all.len() < 2000 {
        if all.len() % 5 == 0 {
            all.push(frame([10, 9, 9, 9], [192, 0, 2, 9], (9, 9)));
            continue;
        }
        let number = random.below(400_u16);
        let (host, far) = (
            [10, 0, (number % 50) as u8, 1],
            [192, 0, 2, (number % 7) as u8],
        );
        let ports = (4000 + number, 443);
        match all.len() % 2 {
            0 => all.push(frame(host, far, ports)),
            _ => all.push(frame(far, host, (ports.1, ports.0))),
        }
    }
    all
}

fn args(scratch: &Scratch, frames: &[Vec<u8>], more: &str) -> Args {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let file = scratch.file("trace.pcap");
    std::fs::write(&file, paced(frames, 1000)).unwrap();
    let line = format!("dispatch {file} {more}");
    <Line as clap::Parser>::try_parse_from(line.split_whitespace())
        .unwrap()
        .args
}

fn all(args: &Args) -> (Found, Vec<Outcome>) {
    args.check().unwrap();
    let trace = Trace::read(&args.capture, &args.classes().unwrap()).unwrap();
    let how = args.replay(&trace).unwrap();
    let outcomes = outcomes(&trace, &args.lcores, &how);
    (Found::of(args, &trace), outcomes)
}

fn of(outcomes: &[Outcome], form: Form, lcores: usize) -> &Outcome {
    let mut all = outcomes.iter();
    let is = |one: &&Outcome| one.form == form && one.lcores == lcores;
    all.find(is).unwrap()
}

#[test]
fn one_lcore_hands_nothing_over_and_the_same_trace_gives_the_same() {
    let scratch = Scratch::new();
    let args = args(&scratch, &frames(), "--pps 2000 --intervals 10");
    let (found, outcomes) = all(&args);
    assert_eq!((found.packets, found.others), (2000, 0));
    assert_eq!(found.busiest_flow, 0.2);
    assert!(found.busiest_bucket >= 0.2 && found.limit <= 5.0);
    for one in outcomes.iter().filter(|one| one.lcores == 1) {
        let (form, hops) = (one.form, one.hops);
        assert_eq!((hops, one.moves, one.packets), (0, 0, 20_000), "{form:?}");
        assert_eq!(
            (one.imbalance, one.imbalance_cycles),
            (1.0, 1.0),
            "{form:?}"
        );
    }
    // None and rss, which hand nothing over, do for a packet what one lcore does.
    assert_eq!(of(&outcomes, Form::None, 1).speedup, 1.0);
    let balanced = of(&outcomes, Form::Balanced, 1).speedup;
    assert!(
        (0.89..0.92).contains(&balanced),
        "120 of 132 cycles: {balanced}"
    );
    assert_eq!(all(&args).1, outcomes);
    let text = table(&outcomes).render(false);
    assert_eq!(text.lines().count(), outcomes.len() + 1, "{text}");
    let json = json(&found, &outcomes).unwrap();
    assert_eq!(json.lines().count(), outcomes.len() + 1);
}

#[test]
fn hops_imbalance_and_moves_are_those_of_the_forms() {
    let scratch = Scratch::new();
    let args = args(&scratch, &frames(), "--pps 2000 --intervals 20");
    let (found, outcomes) = all(&args);
    for lcores in [2, 4, 8, 16, 32, 64] {
        let of = |form| of(&outcomes, form, lcores);
        let share = |form| of(form).hops as f64 / of(form).packets as f64;
        assert_eq!(of(Form::Rss).hops, 0);
        // Those that receive own nothing.
        assert_eq!(share(Form::Dispatcher), 1.0);
        let others = (lcores - 1) as f64 / lcores as f64;
        for form in [Form::Balanced, Form::OneQueue] {
            // Few flows, one of them a fifth of all: near to it, and not more.
            assert!(
                (share(form) - others).abs() < 0.25,
                "{form:?} {}",
                share(form)
            );
        }
        let (fixed, moving) = (of(Form::Balanced), of(Form::Rebalanced));
        assert_eq!(fixed.moves, 0);
        assert!(moving.imbalance <= fixed.imbalance, "{lcores}");
        for one in [fixed, moving, of(Form::Rss)] {
            // A flow is one lcore's.
            let limit = 1.0 / found.busiest_flow;
            assert!(lcores as f64 / one.imbalance <= limit + 1e-9, "{one:?}");
        }
        if lcores <= 4 {
            assert!(moving.imbalance < 1.11, "{moving:?}");
        }
        if lcores >= 8 {
            // Who receives all has the most to do.
            assert!(of(Form::OneQueue).speedup < fixed.speedup);
        }
    }
    assert!(of(&outcomes, Form::Rebalanced, 4).moves > 0);
}

/// All flows of a host behind NAT are one worker's: fewer buckets, and the same ones both ways.
#[test]
fn hosts_inside_are_dispatched_as_a_whole() {
    let scratch = Scratch::new();
    let frames: Vec<Vec<u8>> = (0..400_u16)
        .map(|number| match number % 2 {
            0 => frame(
                [10, 0, 0, 1],
                [192, 0, 2, (number % 250) as u8],
                (number, 53),
            ),
            _ => frame(
                [192, 0, 2, (number % 250) as u8],
                [10, 0, 0, 1],
                (53, number),
            ),
        })
        .collect();
    let outside = all(&args(&scratch, &frames, "")).0;
    let inside = all(&args(&scratch, &frames, "--inside 10.0.0.0/8")).0;
    assert!(outside.busiest_bucket < 0.05, "{}", outside.busiest_bucket);
    assert_eq!((inside.busiest_bucket, inside.limit), (1.0, 1.0));
}

#[test]
fn options_that_make_no_sense_are_refused_with_a_correction() {
    let scratch = Scratch::new();
    for (more, problem) in [
        ("--lcores 0", "--lcores 0"),
        ("--lcores 1,65", "--lcores 65"),
        ("--interval 0", "--interval is 0"),
        ("--pps 0", "--pps is 0"),
        ("--intervals 0", "--intervals 0"),
        ("--cost 1,2", "--cost has 2"),
    ] {
        let args = args(&scratch, &frames()[..1], more);
        let error = run(&args).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
        assert!(error.fix().is_some());
    }
    let none = args(&scratch, &[], "");
    assert!(run(&none).unwrap_err().to_string().contains("no packets"));
}

/// 4096 frames of an access network, tagged, without times.
#[test]
fn a_real_trace_goes_through_all_forms() {
    let Some(file) = data("access-mix-4k.pcap") else {
        return;
    };
    let scratch = Scratch::new();
    let mut args = args(&scratch, &frames()[..1], "--intervals 2");
    args.capture = file;
    let (found, outcomes) = all(&args);
    assert_eq!(found.packets, 4096);
    assert!(found.flows > 100 && found.others < 1000, "{}", found.text());
    assert!(outcomes.iter().all(|one| one.packets == 200_000));
    assert_eq!(of(&outcomes, Form::Balanced, 1).hops, 0);
}
