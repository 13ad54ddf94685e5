//! `linerate demo` as a user without any privilege, and without huge pages.

use linerate_testkit::Scratch;
use linerate_testkit::cli::{binary, public_binary};
use linerate_testkit::{harness::Test, tests};
use serde_json::Value;
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: about 15 s of the machine's full speed"]
    nobody_forwards_without_loss,
];

/// As root, the user nobody runs it; otherwise whoever we are.
fn nobody_forwards_without_loss() {
    let scratch = Scratch::new();
    let mut command = Command::new(binary());
    if rustix::process::geteuid().is_root() {
        let public = public_binary(&scratch);
        command = Command::new("setpriv");
        command
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--bounding-set=-all",
            ])
            .arg(public);
    }
    let output = command
        .args(["demo", "--json"])
        .current_dir("/")
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stderr}{stdout}");
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    let rows = report["rows"].as_array().unwrap();
    let sizes: Vec<_> = rows
        .iter()
        .map(|row| row["frame_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [64, 128, 256, 512, 1024, 1280, 1518]);
    for row in rows {
        assert_eq!(row["lost"], 0, "{row}");
        assert!(
            row["sent"].as_u64().unwrap() > 1000 && row["sent"] == row["received"],
            "{row}"
        );
        for key in [
            "mpps",
            "gbps_l2",
            "gbps_l1",
            "cycles_per_packet",
            "ns_per_packet",
            "p50_ns",
            "p99_ns",
            "p999_ns",
        ] {
            assert!(
                row[key].as_f64().is_some_and(|value| value > 0.0),
                "{key} in {row}"
            );
        }
    }
    assert!(report["machine"].is_object(), "{report}");
}
