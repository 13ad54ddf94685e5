//! The runner in virtual time, against a [`Little`] stack.

mod little;

use crate::{Config, Kind, Outcome, parse, parse_with, run_virtual};
use little::Little;
use std::time::Instant;

const LISTEN: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 7000:7000(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 7001 <mss 1460>
+.1 < . 1:1(0) ack 1 win 257
+0 accept(3, ..., ...) = 4
";

fn run_on(stack: &mut Little, script: &str) -> Outcome {
    let script = parse(script).unwrap();
    let config = Config::default().with_options_of(&script).unwrap();
    run_virtual(&script, &config, stack)
}

/// Runs what follows the handshake of a listener.
fn run(script: &str) -> Outcome {
    run_on(&mut Little::new(), &format!("{LISTEN}{script}"))
}

#[track_caller]
fn passes(script: &str) -> Outcome {
    let outcome = run(script);
    assert!(outcome.fault.is_none(), "{}", outcome.fault.unwrap());
    outcome
}

/// The message of a script that fails.
#[track_caller]
fn problem(script: &str) -> String {
    let outcome = run(script);
    let fault = outcome.fault.expect("a script that fails");
    assert_eq!(fault.kind, Kind::Mismatch, "{fault}");
    fault.to_string()
}

#[test]
fn numbers_count_from_the_initial_ones_and_wrap() {
    passes(
        "+0 write(4, ..., 1000) = 1000
        +0 > P. 1:1001(1000) ack 1
        +.1 < P. 1:501(500) ack 1001 win 257
        +0 > . 1001:1001(0) ack 501
        +0 read(4, ..., 1000) = 500
        +0 close(4) = 0
        +0 > F. 1001:1001(0) ack 501",
    );
}

#[test]
fn a_timer_fires_at_its_virtual_time_and_nobody_sleeps() {
    let start = Instant::now();
    passes(
        "+0 write(4, ..., 1000) = 1000
        +0 > P. 1:1001(1000) ack 1
        +.2 > P. 1:1001(1000) ack 1
        +.4 > P. 1:1001(1000) ack 1
        +.8 > P. 1:1001(1000) ack 1
        +1.5~+1.7 > P. 1:1001(1000) ack 1
        * > P. 1:1001(1000) ack 1
        +3600 < . 1:1(0) ack 1001 win 257
        +0 %{ assert tcpi_unacked == 0, tcpi_unacked }%",
    );
    // Two hours of virtual time; this only tells sleeping from not sleeping.
    assert!(start.elapsed().as_secs() < 600);
}

#[test]
fn the_same_script_gives_the_same_outcome() {
    let script = "+0 write(4, ..., 1000) = 1000
        +0 > P. 1:1001(1000) ack 1
        +.3 > P. 1:1001(1000) ack 1";
    let first = problem(script);
    assert!((0..20).all(|_| problem(script) == first));
    assert!(
        first.contains("came at 0.300000 s (+0.200000), not at 0.400000 s"),
        "{first}"
    );
}

#[test]
fn a_packet_that_differs_is_shown_with_all_differences() {
    let said = problem(
        "+0 write(4, ..., 1000) = 1000
        +0 > F. 1:1001(1000) ack 2 win 9 <mss 1>",
    );
    assert_eq!(
        said,
        "9:9: flags are P., not F., acknowledgment number is 1, not 2, window is 65535, not 9, \
         options are <>, not <mss 1>; sent was P. 1:1001(1000) ack 1 win 65535"
    );
}

#[test]
fn a_packet_that_does_not_come_is_waited_for_and_said() {
    let said = problem("+.5 > . 1:1(0) ack 1");
    assert!(
        said.starts_with("8:1: no packet was sent in time"),
        "{said}"
    );
}

#[test]
fn a_wrong_checksum_is_found() {
    let mut stack = Little::new();
    stack.corrupts = true;
    let fault = run_on(&mut stack, LISTEN).fault.unwrap();
    assert!(
        fault.problem.contains("a wrong layer-4 checksum"),
        "{fault}"
    );
}

#[test]
fn segments_are_put_together_and_cut_to_what_the_script_expects() {
    passes(
        "+0 write(4, ..., 3000) = 3000
        +0 > P. 1:3001(3000) ack 1
        +.2 > . 1:1501(1500) ack 1
        +0 > P. 1501:3001(1500) ack 1",
    );
    let strict = format!(
        "--strict_segments\n{LISTEN}+0 write(4, ..., 3000) = 3000\n+0 > P. 1:3001(3000) ack 1"
    );
    let fault = run_on(&mut Little::new(), &strict).fault.unwrap();
    assert!(
        fault.problem.contains("payload is 1000, not 3000"),
        "{fault}"
    );
}

#[test]
fn pieces_of_one_write_are_alike() {
    let script = format!("{LISTEN}+0 write(4, ..., 1500) = 1500\n+0 > P. 1:1501(1500) ack 1");
    for (ttls, is_right) in [([0, 7, 7], true), ([0, 7, 8], false)] {
        let mut stack = Little::new();
        stack.ttls = ttls.into();
        let fault = run_on(&mut stack, &script).fault;
        assert_eq!(fault.is_none(), is_right);
        if let Some(fault) = fault {
            assert!(fault.problem.contains("payload is 1000"), "{fault}");
        }
    }
}

#[test]
fn a_first_piece_that_is_early_is_found() {
    let writes = "+0 write(4, ..., 1000) = 1000
        +.1 write(4, ..., 500) = 500\n";
    let said = problem(&format!("{writes}+0 > P. 1:1501(1500) ack 1"));
    assert!(said.contains("the packet came at 0.100000 s"), "{said}");
    passes(&format!("{writes}* > P. 1:1501(1500) ack 1"));
}

#[test]
fn what_is_left_at_the_end_is_a_fault_if_that_is_asked_for() {
    let script = "+0 write(4, ..., 2000) = 2000\n+0 > . 1:1001(1000) ack 1";
    passes(script);
    let strict = format!("--strict_end\n{LISTEN}{script}");
    let fault = run_on(&mut Little::new(), &strict).fault.unwrap();
    assert_eq!(
        fault.to_string(),
        "10:1: at the end: P. 1001:2001(1000) ack 1 win 65535 was sent at 0.100000 s, and nobody \
         expected it"
    );
    // What only time would bring is not waited for.
    let all = format!("{strict}\n+0 > P. 1001:2001(1000) ack 1");
    assert!(run_on(&mut Little::new(), &all).fault.is_none());
}

#[test]
fn payload_is_what_was_written_and_read() {
    let hello = "+0 write(4, \"hello\", 5) = 5\n+0 > P. 1:6(5) ack 1\n";
    let zeros = "+0 write(4, ..., 9) = 9\n+0 > P. 6:15(9) ack 1\n";
    let read = "+0 < P. 1:4(3) ack 1 win 257\n+0 > . 1:1(0) ack 4\n+0 read(4, ..., 9) = 3\n";
    // The second time from the buffer, with what came after it.
    passes(&format!("{hello}{zeros}+.2 > P. 1:15(14) ack 1"));
    passes(read);
    for (script, why) in [
        (hello, "the payload is not what was written"),
        (read, "read other bytes than were sent, from 2 on"),
    ] {
        let mut stack = Little::new();
        stack.garbles = true;
        let fault = run_on(&mut stack, &format!("{LISTEN}{script}"))
            .fault
            .unwrap();
        assert!(fault.problem.contains(why), "{fault}");
    }
    // A text is all of it, unless it says that it goes on.
    let read = |text: &str| read.replace("...", text);
    passes(&read(r#""\x00\x00\x00""#));
    passes(&read(r#""\x00...""#));
    let said = problem(&read(r#""\x00\x00""#));
    assert!(said.contains("read \"\\0\\0\\0\""), "{said}");
}

#[test]
fn calls_that_block_return_when_they_can() {
    let script = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
        0...0.3 connect(3, ..., ...) = 0
        +0 > S 0:0(0) <mss 1460>
        +.2 > S 0:0(0) <mss 1460>
        +.1 < S. 100:100(0) ack 1 win 1000 <mss 1000>
        +0 > . 1:1(0) ack 1
        +0...0.5 read(3, ..., 100) = 10
        +.5 < P. 1:11(10) ack 1 win 1000
        +0 > . 1:1(0) ack 11
        +0...0.05 poll([{fd=3, events=POLLIN, revents=0}], 1, 50) = 0
        +.02 write(3, \"hello\", 5) = 5
        +0 > P. 1:6(5) ack 11";
    let outcome = run_on(&mut Little::new(), script);
    assert!(outcome.fault.is_none(), "{}", outcome.fault.unwrap());
    assert_eq!(outcome.events, 12);
}

#[test]
fn a_write_that_blocks_goes_on_when_there_is_room() {
    let mut stack = Little::new();
    stack.room = 1000;
    let script = format!(
        "{LISTEN}+0...0.1 write(4, ..., 1500) = 1500
        +0 > P. 1:1001(1000) ack 1
        +.1 < . 1:1(0) ack 1001 win 257
        +0 > P. 1001:1501(500) ack 1"
    );
    let outcome = run_on(&mut stack, &script);
    assert!(outcome.fault.is_none(), "{}", outcome.fault.unwrap());
}

#[test]
fn a_call_that_returns_at_another_time_or_another_value_fails() {
    let said = problem(
        "+0...0.5 read(4, ..., 100) = 10
        +.1 < P. 1:11(10) ack 1 win 257",
    );
    assert!(
        said.contains("read returned at 0.200000 s, not at 0.600000 s"),
        "{said}"
    );
    let said = problem("+0 read(4, ..., 100) = 10");
    assert!(said.contains("it blocks"), "{said}");
    let said = problem("+0 fcntl(4, F_SETFL, O_RDWR|O_NONBLOCK) = 0\n+0 read(4, ..., 9) = 10");
    assert!(
        said.ends_with("read failed with EAGAIN; 10 was expected"),
        "{said}"
    );
    let said = problem("+0 write(4, ..., 10) = -1 EPIPE (Broken pipe)");
    assert!(
        said.ends_with("returned 10, and did not fail with EPIPE"),
        "{said}"
    );
    let said = problem("+0 write(7, ..., 10) = 10\n+0 close(7) = 0");
    assert!(said.contains("close failed with EBADF"), "{said}");
}

#[test]
fn code_prints_and_asserts() {
    let outcome = passes("+0 %{ print('unacked', tcpi_unacked); x = 3 }%\n+0 %{ assert x == 3 }%");
    assert_eq!(outcome.printed, ["unacked 0"]);
    let said = problem("+0 %{ assert tcpi_unacked > 1, 'none' }%");
    assert!(said.ends_with("false: tcpi_unacked = 0: none"), "{said}");
}

#[test]
fn settings_reach_the_stack_and_others_skip_the_script() {
    let mut stack = Little::new();
    let script = format!("`sysctl -q net.ipv4.tcp_sack=0 net.ipv4.tcp_rmem=\"1 2 3\"`\n{LISTEN}");
    assert!(run_on(&mut stack, &script).fault.is_none());
    let expected = [("tcp_sack", "0"), ("tcp_rmem", "1 2 3")];
    assert!(
        stack
            .settings
            .iter()
            .map(|(n, v)| (&**n, &**v))
            .eq(expected)
    );
    for (command, why) in [
        (
            "sysctl net.ipv4.tcp_unknown=1",
            "tcp_unknown = 1: it has no such setting",
        ),
        ("rm -rf /", "the shell command \"rm -rf /\""),
        (
            "sysctl -w net.core.rmem_max=1",
            "the setting net/core/rmem_max",
        ),
    ] {
        let fault = run(&format!("+0 `{command}`")).fault.unwrap();
        assert_eq!(
            (fault.kind, fault.problem.as_str()),
            (Kind::Unsupported, why)
        );
    }
}

#[test]
fn an_echo_of_no_time_stamp_is_a_fault_of_the_script() {
    let outcome = run("+0 < . 1:1(0) ack 1 win 257 <nop,nop,TS val 5 ecr 4>");
    assert_eq!(outcome.fault.unwrap().kind, Kind::Syntax);
    let scaled = format!(
        "--tcp_ts_ecr_scaled\n{LISTEN}+0 < . 1:1(0) ack 1 win 257 <nop,nop,TS val 5 ecr 4>"
    );
    // Not even a scale helps where no time stamp was ever sent.
    assert!(run_on(&mut Little::new(), &scaled).fault.is_some());
}

#[test]
fn all_scripts_parse() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/drill");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let defines = crate::stack::DEFINES.map(|(word, value)| (word.into(), value.into()));
        if let Err(fault) = parse_with(&text, &defines) {
            panic!("{}:{fault}", path.display());
        }
        count += 1;
    }
    assert!(count >= 40, "{count} scripts");
}
