//! The part of Python that scripts use.

use super::*;
use crate::fault::Kind;

const INFO: &[(&str, u64)] = &[
    ("tcpi_snd_cwnd", 10),
    ("tcpi_options", 6),
    ("tcpi_rtt", 5000),
];

fn run(text: &str) -> Result<Vec<String>, Fault> {
    let mut variables = Variables::default();
    Code::parse(text, At::default())?.run(INFO, &mut variables)?;
    Ok(variables.printed)
}

#[track_caller]
fn holds(condition: &str) {
    run(&format!("assert {condition}")).unwrap_or_else(|fault| panic!("{condition}: {fault}"));
}

#[test]
fn expressions_bind_and_count_as_in_python() {
    for condition in [
        "tcpi_snd_cwnd == 10",
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "7 // 2 == 3 and 7 % 2 == 1 and 7 / 2 == 3.5",
        "-7 // 2 == -4 and -7 % 2 == 1",
        "not 1 == 2",
        "not (1 and 0) or 0",
        "4000 <= tcpi_rtt <= 6000",
        "tcpi_options & TCPI_OPT_SACK != 0 or 1",
        "(tcpi_options & TCPI_OPT_SACK) != 0",
        "1 << 4 | 1 == 17",
        "~0 == -1",
        "min(3, 1, 2) == 1 and max(3, 5) == 5 and abs(-2) == 2 and int(2.7) == 2",
        "0x10 == 16",
        "TCP_INFINITE_SSTHRESH == 0x7fffffff",
        "'a' != 'b'",
        "True and not False",
    ] {
        holds(condition);
    }
    assert!(run("assert 10 < tcpi_snd_cwnd < 5").is_err());
}

#[test]
fn statements_are_divided_by_lines_and_semicolons() {
    let printed = run("x = 1; x += 2 # a comment\nassert (x ==\n  3), x\n\
         print('cwnd=%d of %s' % (tcpi_snd_cwnd, 'it'), x)");
    assert_eq!(printed.unwrap(), ["cwnd=10 of it 3"]);
}

#[test]
fn a_failed_assertion_shows_names_and_message() {
    let fault =
        run("assert tcpi_snd_cwnd == 3 and tcpi_rtt > 0, 'cwnd=%d' % tcpi_snd_cwnd").unwrap_err();
    assert_eq!(fault.kind, Kind::Mismatch);
    assert_eq!(
        fault.problem,
        "false: tcpi_snd_cwnd = 10, tcpi_rtt = 5000: cwnd=10"
    );
}

#[test]
fn what_is_not_understood_is_said() {
    for text in [
        "for x in y: pass",
        "assert",
        "assert 1 +",
        "assert (1",
        "assert unknown_name",
        "assert 1 / 0",
        "assert 1 << 70",
        "x = 9223372036854775807 + 1",
        "assert 'a' + 1",
        "x = f(1)",
        "x ? 1",
        &format!("assert {}1", "(".repeat(200)),
    ] {
        assert_eq!(run(text).unwrap_err().kind, Kind::Unsupported, "{text}");
    }
}
