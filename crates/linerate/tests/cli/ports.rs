//! `linerate ports`, end to end.

use std::process::Command;

fn ports(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .arg("ports")
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn json_names_every_kind_and_the_loopback_interface() {
    let report: serde_json::Value = serde_json::from_str(&ports(&["--json"])).unwrap();
    let names = |list: &str| -> Vec<String> {
        let rows = report[list].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().into())
            .collect()
    };
    for kind in ["null", "ring", "pcap"] {
        assert!(names("kinds").iter().any(|name| name == kind), "{kind}");
    }
    assert!(names("interfaces").iter().any(|name| name == "lo"));
    assert_eq!(report["common_options"][0]["key"], "faulty");
}

#[test]
fn text_shows_the_same() {
    let text = ports(&[]);
    assert!(
        text.contains("ring:a,size=1024") && text.contains("\nlo "),
        "{text}"
    );
}
