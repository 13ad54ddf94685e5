//! `vhost.guest.tcp`: one TCP connection between two guests that our l2fwd joins, with checksums
//! and segmentation left to whoever can, and in turns without.
//!
//! The guests are emulated: their processors do the work that is saved, so only the ratio of the
//! two says something. A long test boots them and measures; here it is run and listened to.

use serde_json::Value;

use super::sample::Sample;
use crate::error::TaskError;
use crate::process;

/// The test, which prints [`LINE`] and then both sides' figures as JSON.
const TEST: &str = "vm::vhost::two_guests_reach_each_other_with_and_without_offloads";
const LINE: &str = "vhost.guest.tcp ";

/// So many rounds of both: with, and without.
pub(super) fn measure(rounds: usize, seconds: f64) -> Result<[Vec<Sample>; 2], TaskError> {
    let mut command = process::cargo(&["test", "--release", "--package", "linerate-tests"]);
    command.args([
        "--test",
        "netns",
        "--",
        "--exact",
        TEST,
        "--ignored",
        "--nocapture",
    ]);
    let seconds = seconds.ceil().max(1.0);
    command.env("LINERATE_GUEST_TCP", format!("{rounds} {seconds}"));
    let said = process::read(&mut command)?;
    let line = said.lines().find_map(|line| line.strip_prefix(LINE));
    let figures: Option<Value> = line.and_then(|line| serde_json::from_str(line).ok());
    let side = |key: &str| {
        let values = figures.as_ref()?[key].as_array()?;
        values
            .iter()
            .map(|value| Some(sample(value.as_f64()?)))
            .collect()
    };
    match (side("with"), side("without")) {
        (Some(with), Some(without)) => Ok([with, without]),
        _ => Err(TaskError::Unexpected {
            who: TEST.into(),
            text: process::last_lines(&said, 5),
            expected: "a line vhost.guest.tcp {\"with\",\"without\"}; guests need what \
                       `cargo xtask test --all` provides",
        }),
    }
}

fn sample(value: f64) -> Sample {
    Sample {
        value,
        pages: String::new(),
        peer_name: "the same without checksums and segmentation left to each other".into(),
        detail: Default::default(),
        note: None,
    }
}
