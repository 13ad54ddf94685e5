//! Rows with a limit of their own and no peer: memory overhead, build time, C dependencies.

use std::time::Instant;

use super::checks;
use super::full_table::frr;
use super::lossy;
use super::machine::Cpus;
use super::ours::Linerate;
use super::pair;
use super::sample::Sample;
use crate::error::TaskError;
use crate::process;

/// A figure that must not be above its limit.
pub(super) struct Absolute {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// None: it is only shown.
    pub(super) limit: Option<f64>,
    /// Long ones run only when `--only` names them.
    pub(super) on_request: bool,
    pub(super) measure: fn(Option<&Linerate>, &Cpus) -> Result<f64, TaskError>,
}

#[rustfmt::skip]
pub(super) const ABSOLUTES: &[Absolute] = &[
    Absolute { name: "mem.pool.overhead_percent",  unit: "%",      limit: Some(3.0),   on_request: false, measure: pool_overhead },
    Absolute { name: "pktgen.pace.1mpps",          unit: "ns",     limit: Some(2000.0), on_request: false, measure: pace },
    Absolute { name: "pktgen.clock",               unit: "ppm",    limit: Some(10.0),  on_request: false, measure: clock },
    Absolute { name: "router.fpm.1m",              unit: "s",      limit: Some(3.0),   on_request: false, measure: full_table },
    Absolute { name: "router.updates",             unit: "%",      limit: Some(5.0),   on_request: false, measure: updates },
    Absolute { name: "router.reload",              unit: "packets", limit: Some(0.0),  on_request: false, measure: reload },
    Absolute { name: "gateway.policy.100k",        unit: "packets", limit: Some(0.0),  on_request: false, measure: policy },
    Absolute { name: "gateway.dispatch",           unit: "cycles", limit: Some(40.0),  on_request: false, measure: dispatch },
    Absolute { name: "steer.hop",                  unit: "TSC cycles", limit: Some(80.0), on_request: false, measure: hop },
    Absolute { name: "epc.gtpu",                   unit: "TSC cycles", limit: Some(150.0), on_request: false, measure: gtpu },
    Absolute { name: "steer.move.pause",           unit: "us",     limit: Some(100.0), on_request: false, measure: pause },
    Absolute { name: "steer.move.lost",            unit: "bytes",  limit: Some(0.0),   on_request: false, measure: lost_by_moves },
    Absolute { name: "gateway.balanced.simple",    unit: "%",      limit: Some(5.0),   on_request: false, measure: simple },
    Absolute { name: "gateway.balanced.complex",   unit: "%",      limit: Some(5.0),   on_request: false, measure: complex },
    Absolute { name: "gateway.rebalance",          unit: "packets", limit: Some(0.0),  on_request: false, measure: moves },
    Absolute { name: "gateway.nat44.cycles",       unit: "TSC cycles", limit: Some(97.0), on_request: false, measure: translated },
    Absolute { name: "gateway.cps",                unit: "us",     limit: Some(2.0),   on_request: false, measure: connections },
    Absolute { name: "gateway.flow.bytes",         unit: "%",      limit: Some(100.0), on_request: false, measure: flow_bytes },
    Absolute { name: "tcp.rr.cycles",              unit: "TSC cycles", limit: Some(1500.0), on_request: false, measure: question },
    Absolute { name: "tcp.rr.1m",                  unit: "x",      limit: Some(3.0),   on_request: true,  measure: million },
    Absolute { name: "tcp.conn",                   unit: "TSC cycles", limit: Some(4000.0), on_request: false, measure: tcp_connection },
    Absolute { name: "tcp.rtt.p999",               unit: "us",     limit: Some(20.0),  on_request: false, measure: round_trip },
    Absolute { name: "tcp.idle.bytes",             unit: "bytes",  limit: Some(512.0), on_request: false, measure: idle_connection },
    Absolute { name: "tcp.flood.syn",              unit: "TSC cycles", limit: Some(250.0), on_request: false, measure: forged_syn },
    Absolute { name: "tcp.fair",                   unit: "of 1",   limit: Some(0.1),   on_request: false, measure: fair },
    Absolute { name: "http.rr.ring",               unit: "TSC cycles", limit: Some(1500.0), on_request: false, measure: http_request },
    Absolute { name: "http.conn.ring",             unit: "TSC cycles", limit: Some(4000.0), on_request: false, measure: http_connection },
    Absolute { name: "memif.idle",                 unit: "%",      limit: Some(1.0),   on_request: false, measure: idle },
    Absolute { name: "vhost.checks",               unit: "%",      limit: Some(10.0),  on_request: true,  measure: checked },
    Absolute { name: "router.frr.1m",              unit: "s",      limit: None,  on_request: true,  measure: frr },
    Absolute { name: "build.release.cold_seconds", unit: "s",      limit: Some(120.0), on_request: true,  measure: cold_build },
    Absolute { name: "build.c_dependencies",       unit: "crates", limit: Some(0.0),   on_request: true,  measure: c_dependencies },
];

/// What a pool costs over slots x slot size.
fn pool_overhead(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    Ok(micro(linerate, "mem.pool.overhead", 0.1, cpus)?.value)
}

/// 99 % of the times between frames at 1 Mpps are at most so far off the schedule, in ns.
fn pace(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = micro(linerate, "pktgen.pace.1mpps", 5.0, cpus)?;
    let detail = numbers(&sample);
    eprintln!(
        "pktgen.pace.1mpps: median {} ns, most {} ns; {} frames judged, {} left out while the CPU \
         was stolen",
        detail("p50_ns"),
        detail("max_ns"),
        detail("frames"),
        detail("left_out"),
    );
    Ok(sample.value)
}

/// How far the clock's rate may be off CLOCK_MONOTONIC_RAW, in ppm, calibrated for a second.
fn clock(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    Ok(micro(linerate, "pktgen.clock", 1.0, cpus)?.value)
}

/// How long a full table from FRR takes until packets follow all of it, in s.
fn full_table(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = micro(linerate, "router.fpm.1m", 1.0, cpus)?;
    let detail = numbers(&sample);
    let change_us = detail("change_us");
    eprintln!(
        "router.fpm.1m: {} of {} routes followed, {:.0} MB; a change takes {change_us:.1} us, so \
         10 K a second {:.1} % of a core",
        detail("followed"),
        detail("routes"),
        detail("memory_bytes") / 1e6,
        change_us,
    );
    Ok(sample.value)
}

/// What 10,000 route changes a second cost forwarding, in %.
fn updates(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = on_two(linerate, "router.updates", 3.0, cpus)?;
    let detail = numbers(&sample);
    eprintln!(
        "router.updates: {:.2} Mpps with {:.0} changes a second, {:.2} without ({:.1} % in all, \
         below 0: faster)",
        detail("with_mpps"),
        detail("updates_per_s"),
        detail("without_mpps"),
        detail("cost_percent"),
    );
    Ok(sample.value)
}

/// Packets lost in reloads of routes at half the load.
fn reload(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    lost("router.reload", linerate, cpus)
}

/// Packets lost in reloads of a policy at half the load.
fn policy(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    lost("gateway.policy.100k", linerate, cpus)
}

/// A packet of an established flow whose source is translated, in TSC cycles.
fn translated(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = micro(linerate, "gateway.nat44.1k", 1.0, cpus)?;
    Ok(numbers(&sample)("cycles"))
}

/// A TCP connection from its SYN to the last acknowledgment, in us: 2 are 500,000 a second.
fn connections(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = micro(linerate, "gateway.cps", 3.0, cpus)?;
    let detail = numbers(&sample);
    eprintln!(
        "gateway.cps: {:.0} K connections a second, {:.0} cycles each, {} flows known",
        sample.value,
        detail("cycles"),
        detail("flows"),
    );
    Ok(1000.0 / sample.value)
}

/// A server's work on a question on one of 10 K TCP connections, in TSC cycles.
fn question(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = micro(linerate, "tcp.rr.10k", 1.0, cpus)?;
    Ok(numbers(&sample)("server_cycles"))
}

/// The cost of a question on 1 M TCP connections over that on 1 K.
fn million(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = micro(linerate, "tcp.rr.1m", 3.0, cpus)?;
    let detail = numbers(&sample);
    eprintln!(
        "tcp.rr.1m: {:.0} ns on 1 M connections, {:.0} on 1 K; {:.2} packets a question",
        detail("many_ns"),
        detail("few_ns"),
        detail("many_packets_per_question"),
    );
    Ok(sample.value)
}

/// A server's work on a TCP connection with a question and an answer, in TSC cycles.
fn tcp_connection(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    typical("tcp.conn", linerate, cpus)
}

/// How far the share of our CUBIC is from half, beside one of Linux on the same link.
fn fair(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let linerate = linerate.ok_or_else(no_peer_side)?;
    lossy::fair(linerate, cpus, linerate.shortened(60.0))
}

/// An HTTP server's work on a request on one of 1 K kept connections, in TSC cycles.
fn http_request(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    typical("http.rr.ring", linerate, cpus)
}

/// Its work on a connection with one request, in TSC cycles.
fn http_connection(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    typical("http.conn.ring", linerate, cpus)
}

/// How long 99.9 % of questions over TCP wait for their answers at half load, in microseconds. What
/// bare frames wait by the same schedule, and what either CPU was away for, is told beside it: that
/// much is the machine's.
fn round_trip(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = on_two(linerate, "tcp.rtt.p999", 3.0, cpus)?;
    let detail = numbers(&sample);
    for (what, prefix) in [("over TCP", ""), ("bare frames", "bare_")] {
        let of = |key: &str| detail(&format!("{prefix}{key}"));
        eprintln!(
            "tcp.rtt.p999: {what}: {:.1} us at the middle, {:.1} us at 99.9 %; {:.0} of {:.0} left \
             out, {:.0} us with them; of either CPU gaps took {:.1} and {:.1} %, {:.0} and {:.0} \
             us at most, {:.0} and {:.0} of 10 us a second",
            of("p50_us"),
            of("p999_us"),
            of("left_out"),
            of("questions"),
            of("with_stolen_p999_us"),
            of("client_gaps_share") * 100.0,
            of("server_gaps_share") * 100.0,
            of("client_longest_gap_us"),
            of("server_longest_gap_us"),
            of("client_long_gaps_per_s"),
            of("server_long_gaps_per_s"),
        );
    }
    Ok(sample.value)
}

/// Bytes of an idle TCP connection.
fn idle_connection(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    Ok(micro(linerate, "tcp.idle.bytes", 0.1, cpus)?.value)
}

/// A forged SYN that is answered by a cookie, in TSC cycles.
fn forged_syn(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    typical("tcp.flood.syn", linerate, cpus)
}

/// Memory of a flow over what it may take, in %: the worst of IPv4 and IPv6, with NAT and without.
fn flow_bytes(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = micro(linerate, "gateway.flow.bytes", 0.1, cpus)?;
    let detail = numbers(&sample);
    let all = [
        (sample.value, 240.0),
        (detail("ipv4_nat"), 272.0),
        (detail("ipv6"), 304.0),
        (detail("ipv6_nat"), 368.0),
    ];
    let [v4, v4_nat, v6, v6_nat] = all.map(|(bytes, _)| bytes);
    eprintln!(
        "gateway.flow.bytes: IPv4 {v4:.0} bytes, with NAT {v4_nat:.0}, IPv6 {v6:.0}, with NAT \
         {v6_nat:.0}"
    );
    let percent = all.map(|(bytes, most)| 100.0 * bytes / most);
    Ok(percent.into_iter().fold(0.0, f64::max))
}

fn lost(row: &str, linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = on_two(linerate, row, 2.0, cpus)?;
    let detail = numbers(&sample);
    eprintln!(
        "{row}: {} reloads of {:.0} ms, {} routes and {} rules, {:.0} frames at {:.2} Mpps \
         (offered {:.0} % of the time); lost without a reload {}; the worker stopped for messages \
         for {:.0} us at most, without a reload {:.0}; its longest round {:.0} us, without {:.0}; \
         {} pairs disturbed and done again, in which {} were lost",
        detail("reloads"),
        detail("reload_ms"),
        detail("routes"),
        detail("rules"),
        detail("frames"),
        detail("offered_mpps"),
        detail("offered_percent"),
        detail("lost_without_reload"),
        detail("stop_us"),
        detail("stop_without_us"),
        detail("gap_us"),
        detail("gap_without_us"),
        detail("disturbed"),
        detail("lost_disturbed"),
    );
    Ok(sample.value)
}

/// A packet from core to core and back: classify, hand over, take.
fn dispatch(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    Ok(on_two(linerate, "gateway.dispatch", 1.0, cpus)?.value)
}

/// What a distributor does for a packet, with a million connections in its map.
fn hop(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    Ok(on_two(linerate, "steer.hop", 1.0, cpus)?.value)
}

/// A user's packet from base station to the network beyond, with a million tunnels.
fn gtpu(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    typical("epc.gtpu", linerate, cpus)
}

/// How long a connection stands still that moves to another lcore, p99 of 10 000 moves.
fn pause(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    Ok(on_two(linerate, "steer.move.pause", 1.0, cpus)?.value)
}

/// Bytes that those lose.
fn lost_by_moves(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    Ok(on_two(linerate, "steer.move.lost", 1.0, cpus)?.value)
}

/// How much slower two lcores are that share a gateway's work than two that divide it.
fn simple(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    balanced("gateway.balanced.simple", linerate, cpus)
}

fn complex(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    balanced("gateway.balanced.complex", linerate, cpus)
}

fn balanced(row: &str, linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let sample = on_two(linerate, row, 2.0, cpus)?;
    let detail = numbers(&sample);
    eprintln!(
        "{row}: dispatcher {:.2} Mpps, balanced {:.2}",
        detail("dispatcher_mpps"),
        detail("balanced_mpps"),
    );
    Ok(sample.value)
}

/// Packets lost or overtaken while buckets of flows move.
fn moves(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let row = "gateway.rebalance";
    let sample = on_two(linerate, row, 2.0, cpus)?;
    let detail = numbers(&sample);
    eprintln!(
        "{row}: {} moves of {:.0} us at most, {} packets at {:.2} Mpps of {:.2}; lost {}, not in \
         order {}",
        detail("moves"),
        detail("longest_move_us"),
        detail("packets"),
        detail("offered_mpps"),
        detail("most_mpps"),
        detail("lost"),
        detail("overtaken"),
    );
    Ok(sample.value)
}

/// The CPU that a sleeping forwarder with one memif port takes.
fn idle(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let linerate = linerate.ok_or_else(no_peer_side)?;
    let idle = pair::idle(linerate, cpus, linerate.shortened(3.0))?;
    let detail = numbers(&idle.woken);
    eprintln!(
        "memif.idle: a frame that wakes the port is back after {:.1} us (median of {}; longest \
         percent {:.1} us; {} lost)",
        idle.woken.value / 1e3,
        detail("trips"),
        detail("p99_ns") / 1e3,
        detail("lost"),
    );
    Ok(idle.cpu_percent)
}

/// What it costs to check what a peer writes, of the case where it costs the most.
fn checked(_: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let cases = checks::cost(cpus)?;
    for case in &cases {
        let [with, without] = case.ns;
        eprintln!(
            "vhost.checks: {}: {with:.2} ns a frame, {without:.2} without checks: {:.1} %",
            case.name, case.percent,
        );
    }
    let most = cases.iter().map(|case| case.percent).max_by(f64::total_cmp);
    Ok(most.unwrap_or(f64::NAN).max(0.0))
}

/// What a side has printed besides its value, by name.
fn numbers(sample: &Sample) -> impl Fn(&str) -> f64 {
    |key| {
        sample
            .detail
            .get(key)
            .and_then(serde_json::Value::as_f64)
            .unwrap_or(f64::NAN)
    }
}

/// A row of ours that needs both CPUs.
fn on_two(
    linerate: Option<&Linerate>,
    row: &str,
    seconds: f64,
    cpus: &Cpus,
) -> Result<Sample, TaskError> {
    if cpus.other.is_none() {
        return Err(TaskError::Missing {
            what: "the worker would share its only CPU with what it is measured against".into(),
            fix: "run it on a machine with two CPUs".into(),
        });
    }
    measured(linerate, row, seconds, &cpus.list(true))
}

fn micro(
    linerate: Option<&Linerate>,
    row: &str,
    seconds: f64,
    cpus: &Cpus,
) -> Result<Sample, TaskError> {
    measured(linerate, row, seconds, &cpus.list(false))
}

/// The median of five runs: single ones differ by a third where the machine is shared.
fn typical(row: &str, linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let runs = (0..5).map(|_| Ok(micro(linerate, row, 0.5, cpus)?.value));
    let values = runs.collect::<Result<Vec<f64>, TaskError>>()?;
    eprintln!("{row}: {values:.0?}");
    Ok(super::stats::median(&values).unwrap_or(f64::NAN))
}

fn measured(
    linerate: Option<&Linerate>,
    row: &str,
    seconds: f64,
    cpus: &str,
) -> Result<Sample, TaskError> {
    let linerate = linerate.ok_or_else(no_peer_side)?;
    linerate.micro(row, linerate.shortened(seconds), cpus)
}

fn no_peer_side() -> TaskError {
    TaskError::Missing {
        what: "this row has no peer side".into(),
        fix: "leave out --peer-only".into(),
    }
}

/// A release build into an empty folder, everything downloaded before.
fn cold_build(_: Option<&Linerate>, _: &Cpus) -> Result<f64, TaskError> {
    process::read(&mut process::cargo(&["fetch", "--locked"]))?;
    let folder = process::target_dir().join("compare/cold");
    let remove = || match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TaskError::file(&folder)(error))
        }
        _ => Ok(()),
    };
    remove()?;
    let mut cargo = process::cargo(&[
        "build",
        "--release",
        "--locked",
        "--offline",
        "--package",
        "linerate",
    ]);
    let began = Instant::now();
    process::read(cargo.arg("--target-dir").arg(&folder))?;
    let seconds = began.elapsed().as_secs_f64();
    remove()?;
    Ok(seconds)
}

/// Crates that compile or look for C code; none may be below the default build of `linerate`.
const C_BUILDERS: &[&str] = &["cc", "cmake", "bindgen", "pkg-config", "autotools", "vcpkg"];

fn c_dependencies(_: Option<&Linerate>, _: &Cpus) -> Result<f64, TaskError> {
    let tree = [
        "tree",
        "--package",
        "linerate",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
    ];
    let tree = process::read(&mut process::cargo(&tree))?;
    let mut found: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| C_BUILDERS.contains(name))
        .collect();
    found.sort_unstable();
    found.dedup();
    for name in &found {
        eprintln!("C dependency: {name} (see `cargo tree --package linerate --invert {name}`)");
    }
    Ok(found.len() as f64)
}
