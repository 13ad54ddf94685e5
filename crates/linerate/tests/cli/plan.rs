//! `linerate plan` and `linerate doctor` from outside: what they print, refuse and exit with.

use std::path::Path;
use std::process::Command;

use crate::commands::{json, linerate, refused, stdout};
use linerate_testkit::Scratch;
use serde_json::Value;

fn machine(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/topologies")
        .join(name);
    path.to_str().unwrap().into()
}

fn cpus(plan: &Value) -> Vec<u64> {
    plan["lcores"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lcore| lcore["cpu"].as_u64().unwrap())
        .collect()
}

fn kinds(plan: &Value) -> Vec<&str> {
    plan["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["kind"].as_str().unwrap())
        .collect()
}

#[test]
fn every_shipped_topology_gets_a_plan_without_siblings() {
    for (name, expected) in [
        ("one-socket-4", (0..4).collect::<Vec<u64>>()),
        ("one-socket-14x2", (0..14).collect()),
        ("two-sockets-12x2", (0..12).collect()),
        ("container-v1", vec![2, 3, 4, 5]),
        ("container-v2", vec![3, 5, 7, 8]),
    ] {
        let plan = json(&["plan", "--json", "--topology", &machine(name)]);
        assert_eq!((cpus(&plan), kinds(&plan)), (expected, vec![]), "{name}");
    }
}

#[test]
fn the_text_is_an_aligned_table_and_a_stanza_to_paste() {
    let text = stdout(&[
        "plan",
        "--topology",
        &machine("one-socket-14x2"),
        "--io",
        "1-2",
        "--eu",
        "3",
    ]);
    let expected = "\
28 CPUs, 14 cores, 1 socket, 1 NUMA node; usable CPUs: 0-27

lcore  role  slot  CPU  core  socket  node  siblings
bg0    bg       0    0     0       0     0  14
io0    io       1    1     1       0     0  15
io1    io       2    2     2       0     0  16
eu0    eu       3    3     3       0     0  17

chosen automatically: bg. As a stanza:
[plan]
bg = \"0\"
io = \"1-2\"
eu = \"3\"
cpus = \"0-3\"
";
    assert_eq!(text, expected);
    let (_, stanza) = text.split_once("stanza:\n").unwrap();
    let scratch = Scratch::new();
    let file = scratch.write("paste.toml", stanza);
    let again = json(&[
        "plan",
        "--json",
        "--topology",
        &machine("one-socket-14x2"),
        "--config",
        &file,
    ]);
    assert_eq!(
        (cpus(&again), &again["chosen"]),
        (vec![0, 1, 2, 3], &serde_json::json!([]))
    );
}

#[test]
fn an_appliances_file_is_read_and_overridden() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "appliance.toml",
        "[plan]\nbg = \"0\"\nio = \"1\"\neu = \"2-3\"\n\n[[port]]\nname = \"wan\"\nspec = \
         \"af_xdp:eth1,queues=2\"\n\n[router]\nid = 7\n",
    );
    let machine = machine("two-sockets-12x2");
    let plan = json(&["plan", "--json", "--topology", &machine, "--config", &file]);
    assert_eq!(cpus(&plan), [12, 13, 14, 15], "next to the port");
    assert_eq!(
        plan["ports"][0],
        serde_json::json!({"name": "wan", "node": 1})
    );
    let plan = json(&[
        "plan",
        "--json",
        "--topology",
        &machine,
        "--config",
        &file,
        "--cpus",
        "0-3",
    ]);
    assert_eq!(
        (cpus(&plan), kinds(&plan)),
        (vec![0, 1, 2, 3], vec!["off-node"])
    );
}

#[test]
fn warnings_are_printed() {
    let machine = machine("one-socket-14x2");
    let text = stdout(&[
        "plan",
        "--topology",
        &machine,
        "--bg",
        "0",
        "--io",
        "1",
        "--eu",
        "2-3",
        "--cpus",
        "0,1,15,1",
    ]);
    assert!(
        text.contains("warning: over-committed: busy lcores io0, eu1 share CPU 1"),
        "{text}"
    );
    assert!(
        text.contains("warning: io0 (CPU 1) and eu0 (CPU 15) are both busy"),
        "{text}"
    );
}

#[test]
fn this_machine_gets_a_plan_with_its_facts() {
    let plan = json(&["plan", "--json"]);
    assert!(
        plan["machine"]["cpus"].as_u64().unwrap() >= 1
            && plan["machine"]["clock_mhz"].as_f64().unwrap() > 0.0
    );
    let usable = plan["topology"]["usable_cpus"].as_array().unwrap();
    assert!(
        plan["lcores"]
            .as_array()
            .unwrap()
            .iter()
            .all(|lcore| usable.contains(&lcore["cpu"]))
    );
}

#[test]
fn bad_plans_are_refused_by_name() {
    let four = machine("one-socket-4");
    let inside = machine("container-v2");
    for (args, part) in [
        (
            vec!["--topology", &four, "--io", "0-2", "--eu", "2-3"],
            "slot 2 is given to both io and eu",
        ),
        (
            vec!["--topology", &four, "--bg", "1", "--io", "1"],
            "slot 1 is given to both bg and io",
        ),
        (
            vec!["--topology", &four, "--io", "99"],
            "slot 99 (io) has no CPU",
        ),
        (
            vec!["--topology", &four, "--eu", "1-100"],
            "at most 8 lcores can share a CPU",
        ),
        (
            vec!["--topology", &four, "--cpus", "0,1", "--eu", "2"],
            "`cpus` names 2",
        ),
        (
            vec!["--topology", &four, "--cpus", "0,77"],
            "CPU 77 (slot 1) does not exist",
        ),
        (
            vec!["--topology", &inside, "--cpus", "3,4"],
            "CPU 4 (slot 1) is not in this process's cpuset",
        ),
        (vec!["--topology", &four, "--io", ""], "io is empty"),
        (vec!["--io", "1,,2"], "io: `1,,2`"),
        (vec!["--eu", "5-3"], "runs backwards"),
        (vec!["--bg", "-1"], "bg: `-1`"),
        (vec!["--cpus", "two"], "`two` is not a number"),
        (
            vec!["--topology", "/nonexistent/dir"],
            "topology /nonexistent/dir: No such file",
        ),
        (
            vec!["--topology", "/proc/self/fd"],
            "holds neither sys/devices/system/cpu",
        ),
        (
            vec!["--port", "af_xdp:nosuch0"],
            "interface nosuch0: no such device",
        ),
        (
            vec!["--config", "/nonexistent.toml"],
            "/nonexistent.toml: No such file",
        ),
        (
            vec!["--suggest", "/nonexistent.json"],
            "/nonexistent.json: No such file",
        ),
    ] {
        let args: Vec<&str> = ["plan"].into_iter().chain(args).collect();
        let (error, _) = refused(&args);
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn bad_files_are_refused_with_their_line() {
    for (text, part) in [
        (
            "[plan]\nio = \"1\"\nworkers = \"2\"\n",
            "3: plan.workers: there is no such key",
        ),
        ("[plan]\nio = 1\n", "2: plan.io: this is a number; a list"),
        ("[plan\n", ":1: "),
        ("[plan]\nio = \"1-\"\n", "io: `1-`"),
        (
            "[[port]]\nname = \"wan\"\n",
            ":1: port.spec: it is missing; KIND:TARGET",
        ),
    ] {
        let scratch = Scratch::new();
        let file = scratch.write("bad.toml", text);
        let (error, _) = refused(&["plan", "--config", &file]);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_finished_run_gets_a_better_split() {
    let report = |role: &str, share: &str| {
        format!(
            r#"{{"rows": [], "lcores": [
                {{"name": "bg0", "role": "bg", "cpu": 0, "busy_share": 0.01}},
                {{"name": "io0", "role": "io", "cpu": 1, "busy_share": 0.2, "polls": 7}},
                {{"name": "io1", "role": "io", "cpu": 2, "busy_share": 0.2}},
                {{"name": "eu0", "role": "{role}", "cpu": 3, "busy_share": {share}}}]}}"#
        )
    };
    let scratch = Scratch::new();
    let file = scratch.write("run.json", report("eu", "0.97"));
    let text = stdout(&["plan", "--suggest", &file]);
    assert!(text.contains("moving 1 from io to eu"), "{text}");
    assert!(
        text.ends_with(
            "suggested:\n[plan]\nbg = \"0\"\nio = \"1\"\neu = \"2-3\"\ncpus = \"0-3\"\n"
        ),
        "{text}"
    );
    let suggestion = json(&["plan", "--json", "--suggest", &file]);
    assert_eq!(
        (&suggestion["changed"], &suggestion["plan"]["eu"]),
        (&true.into(), &"2-3".into())
    );
    for (text, part) in [
        (report("chef", "0.5"), "role of eu0 is \"chef\""),
        (report("eu", "97"), "busy_share of eu0 is 97"),
        ("{\"lcores\": []}".into(), "lists no io or eu lcore"),
        ("{}".into(), "missing field `lcores`"),
        ("not json".into(), "not a report"),
    ] {
        let scratch = Scratch::new();
        let file = scratch.write("bad.json", &text);
        let (error, _) = refused(&["plan", "--suggest", &file]);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn wrong_usage_exits_with_two() {
    for args in [
        &["plan", "--nosuch"][..],
        &["nosuch"],
        &["plan", "--suggest", "x", "--io", "1"],
    ] {
        assert_eq!(linerate(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn doctor_shows_state_and_fix_of_every_capability() {
    let report = json(&["doctor", "--json"]);
    let checks = report["checks"].as_array().unwrap();
    for name in [
        "2 MiB huge pages",
        "locked memory",
        "AF_XDP",
        "CAP_NET_ADMIN",
        "CPUs",
        "clock",
        "CPU stolen by others",
    ] {
        let check = checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"));
        let state = check["state"].as_str().unwrap();
        assert!(["ok", "poor", "missing"].contains(&state), "{check}");
        assert_eq!(state == "ok", check["fix"].is_null(), "{check}");
    }
    assert!(
        report["machine"]["kernel"]
            .as_str()
            .is_some_and(|kernel| !kernel.is_empty())
    );
    let text = stdout(&["doctor"]);
    assert!(
        text.contains("AF_PACKET") && !text.contains('\x1b'),
        "{text}"
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let script = format!(
        "{} plan --json | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_linerate")
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
}
