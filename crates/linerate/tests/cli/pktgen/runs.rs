//! Runs from their first line to their exit code.

use super::*;
use linerate_testkit::Scratch;

#[test]
fn a_run_counts_exactly_what_it_was_asked_for() {
    let run = report(
        &["-p", LOOP, "--count", "1000", "--size", "128", "--json"],
        0,
    );
    assert_eq!(run["streams"][0]["tally"]["sent"], 1000);
    assert_eq!(run["streams"][0]["tally"]["received"], 1000);
    assert_eq!(run["streams"][0]["tally"]["lost"], 0);
    assert_eq!(run["ports"][0]["rx"]["bytes"], 128_000);
    assert_eq!(run["verdict"]["word"], "good");
    assert!(run["machine"]["cpus"].is_number());
    assert_eq!(run["ledger"]["even"], true, "{}", run["ledger"]);
    let text = output(&["-p", LOOP, "--count", "10", "--headless", "--seed", "5"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("seed 5;") && text.ends_with("good\n"),
        "{text}"
    );
}

#[test]
fn without_streams_every_port_sends() {
    let ring = |name: &str| format!("ring:{name},loop=on,count=50");
    let run = report(&["-p", &ring("a"), "-p", &ring("b"), "--json"], 0);
    let sent = |port: usize| run["ports"][port]["tx"]["packets"].clone();
    assert_eq!((sent(0), sent(1)), (json!(50), json!(50)));
    // Of shortcuts only port 0 is spoken of.
    let run = report(
        &[
            "-p",
            &ring("a"),
            "-p",
            "ring:b,loop=on",
            "--count",
            "7",
            "--json",
        ],
        0,
    );
    assert_eq!(run["streams"].as_array().unwrap().len(), 1);
    assert_eq!(run["ports"][1]["tx"]["packets"], 0);
}

#[test]
fn exit_codes_tell_loss_and_invalid_runs_apart() {
    let lossy = format!("{LOOP},faulty=loss:0.5+seed:1");
    let args = ["-p", &lossy, "--count", "500", "--json"];
    let run = report(&[&args[..], &["--max-loss-ppm", "1000"]].concat(), 3);
    let tally = &run["streams"][0]["tally"];
    let (sent, received) = (
        tally["sent"].as_u64().unwrap(),
        tally["received"].as_u64().unwrap(),
    );
    assert_eq!(sent, 500);
    assert_eq!(tally["lost"], sent - received);
    assert!(received > 100 && received < 400, "{received}");
    assert_eq!(report(&args, 0)["verdict"]["word"], "good");
    report(&[&args[..], &["--max-loss-ppm", "900000"]].concat(), 0);
    // More frames than any machine sends.
    let fast = [
        "-p",
        LOOP,
        "--rate",
        "900Mpps",
        "--duration",
        "0.2",
        "--json",
    ];
    let run = report(&[&fast[..], &["--max-unsent-ppm", "10"]].concat(), 4);
    assert_eq!(run["verdict"]["word"], "invalid");
    assert_eq!(output(&["--no-such-option"]).status.code(), Some(2));
}

#[test]
fn total_loss_fails_the_loss_limit() {
    let lossy = format!("{LOOP},faulty=loss:1");
    let all = ["-p", &lossy, "-s", "count=1000", "--json", "--max-loss-ppm"];
    for limit in ["0", "999999"] {
        let run = report(&[&all[..], &[limit]].concat(), 3);
        assert_eq!(run["streams"][0]["tally"]["lost"], 1000);
        assert_eq!(
            (&run["verdict"]["word"], &run["settled"]),
            (&json!("lossy"), &json!(true))
        );
    }
    // Nor do values that depend on the machine.
    let unknown = [
        "-p",
        &lossy,
        "-s",
        "count=1000 signature=off",
        "--json",
        "--max-loss-ppm",
        "0",
    ];
    let run = report(&unknown, 4);
    assert_eq!(run["verdict"]["word"], "invalid");
}

#[test]
fn an_error_into_a_closed_pipe_is_no_panic() {
    for command in [
        &["pktgen", "-p", "nonsense:a"][..],
        &["l2fwd", "nonsense:a"],
        &["ports", "-x"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"));
        let (reader, writer) = std::io::pipe().unwrap();
        // Its reader has closed it.
        drop(reader);
        let mut child = child
            .args(command)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer)
            .spawn()
            .unwrap();
        let code = child.wait().unwrap().code();
        assert!(
            matches!(code, Some(1 | 2)),
            "{command:?} ended with {code:?}"
        );
    }
}

#[test]
fn the_last_tables_fit_a_terminal() {
    let ran = output(&[
        "-p",
        LOOP,
        "-s",
        "name=telephony count=1000000 rate=max",
        "--headless",
    ]);
    let text = String::from_utf8(ran.stdout).unwrap();
    let tables = text
        .lines()
        .skip(1)
        .take_while(|line| !line.contains("seed"));
    let long: Vec<_> = tables.filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
    for column in ["sent/s", "unsent", "lost", "reordered", "p99 us", "max us"] {
        assert!(text.contains(column), "{column}: {text}");
    }
}

#[test]
fn contradicting_options_are_refused_before_the_run() {
    let (error, _) = refused(&["--json"]);
    assert!(error.contains("no port"), "{error}");
    let fast = format!("{LOOP},speed=10G");
    let (error, fix) = refused(&["-p", &fast, "--rate", "20Gbit/s-L1", "--json"]);
    assert!(
        error.contains("10 Gbit/s") && fix.contains("14880952"),
        "{error} {fix}"
    );
    for map in [
        "",
        "[",
        "[0:0",
        "[0:1].7",
        "[99999].0",
        "nonsense",
        "[0].0,[0].0.0",
        "[-1].0",
    ] {
        refused(&["-p", LOOP, "-m", map, "--json"]);
    }
    let (error, fix) = refused(&["-p", LOOP, "-s", "sise=64", "--json"]);
    assert!(
        error.contains("sise") && fix.contains("size"),
        "{error} {fix}"
    );
    let nowhere = "/nonexistent/report.json";
    let (error, _) = refused(&["-p", LOOP, "--count", "1", "--json", "--output", nowhere]);
    assert!(error.contains(nowhere), "{error}");
    let (error, _) = refused(&["-p", LOOP, "--json", "--listen", "tcp:127.0.0.1:0"]);
    assert!(error.contains("anyone who reaches"), "{error}");
    let (error, _) = refused(&["--connect", "/nonexistent/socket"]);
    assert!(error.contains("no session"), "{error}");
    let scratch = Scratch::new();
    let text = "[run]\ndurration = 3\n[[stream]]\nsize = 1\n";
    let file = scratch.write("bad.toml", text);
    let (error, _) = refused(&["--headless", &file, "-p", LOOP]);
    for wanted in [
        "bad.toml:2: run.durration: there is no such key; perhaps duration",
        "bad.toml:4: stream.size: size=1",
    ] {
        assert!(error.contains(wanted), "{wanted} not in {error}");
    }
    let file = scratch.write(
        "bad.cmd",
        "# two are wrong\nset 0 size 128\nstrat 0\nset 0\n",
    );
    let (error, fix) = refused(&["-p", LOOP, "-f", &file, "--json"]);
    for wanted in ["bad.cmd:3: ", "; perhaps start", "bad.cmd:4: "] {
        assert!(error.contains(wanted), "{wanted} not in {error}");
    }
    assert_eq!(fix.trim_end(), "correct these lines");
}

#[test]
fn a_truncated_capture_is_refused_or_reported() {
    let scratch = Scratch::new();
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1, 0, 0, 60, 60] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0; 30]);
    let path = scratch.file("early.pcap");
    std::fs::write(&path, file).unwrap();
    let output = output(&["-p", LOOP, "-s", &format!("pcap={path}"), "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("early.pcap"), "{said}");
    assert_ne!(output.status.code(), None);
}

#[test]
fn a_run_file_and_a_file_of_commands_say_all_that_options_say() {
    let scratch = Scratch::new();
    let saved = scratch.file("saved.toml");
    let commands = scratch.file("saved.cmd");
    let run = scratch.write(
        "run.toml",
        format!(
            "[run]\nseed = 9\nmax_loss_ppm = 0\nmax_unsent_ppm = 1000000\n\
             commands = [\"save {saved}\", \"save {commands}\"]\n\
             [[port]]\nname = \"wan\"\nspec = \"{LOOP}\"\n\
             [[stream]]\nport = \"wan\"\nname = \"voice\"\nsize = 200\ncount = 30\n\
             [[stream]]\ncount = 12\nsrc = \"198.18.0.1-198.18.0.9\"\nkind = \"tcp\"\n"
        ),
    );
    for file in [&run, &saved] {
        let run = report(&["--headless", file, "--json"], 0);
        assert_eq!(run["seed"], 9);
        assert_eq!(run["ports"][0]["name"], "wan");
        assert_eq!(run["streams"][0]["name"], "voice");
        assert_eq!(run["streams"][0]["tally"]["received"], 30, "{file}");
        assert_eq!(run["streams"][1]["tally"]["received"], 12, "{file}");
    }
    // Commands need the port from elsewhere, and say themselves when to start.
    let mut text = std::fs::read_to_string(&commands).unwrap();
    text += "start all\nwait 30\n";
    let script = scratch.write("run.cmd", text.replace("port=wan ", ""));
    let run = report(&["-p", LOOP, "-f", &script, "--json"], 0);
    let all = run["streams"].as_array().unwrap();
    let received = all
        .iter()
        .map(|stream| stream["tally"]["received"].as_u64().unwrap());
    assert_eq!(received.collect::<Vec<_>>(), [30, 12]);
}

#[test]
fn frames_are_shown_without_being_sent() {
    let stream = "tcp vlan=5 src=198.18.0.1-198.18.0.9 flags=S";
    let shown = output(&["-p", LOOP, "-s", stream, "--dump", "2"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success());
    for wanted in [
        "frame 1, 80 bytes",
        "198.18.0.2 > 198.19.0.1",
        "vlan 5 priority",
        "sequence 1",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("wrong"), "{text}");
}
