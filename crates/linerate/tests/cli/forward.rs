//! `linerate l2fwd` and `linerate demo` from outside: what they forward, print, refuse and exit
//! with.

use std::collections::BTreeSet;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::commands::{linerate, refused};
use crate::instance::Instance;
use linerate_testkit::Scratch;
use linerate_testkit::capture::{frames_of, pcap};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(args);
    command
}

/// The JSON lines of a run that must succeed without a word on stderr.
fn lines(args: &[&str]) -> Vec<Value> {
    let output = linerate(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "{args:?}: {stderr}"
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Frames of many lengths, each byte its own.
fn frames() -> Vec<Vec<u8>> {
    let lengths = (60..1515).step_by(7).chain([14, 9000, 40_000]);
    lengths
        .map(|len: usize| (0..len).map(|at| (at * 31 + len) as u8).collect())
        .collect()
}

/// Replays a capture through l2fwd; the frames that were written, and the totals.
fn replay(extra: &[&str]) -> (Vec<Vec<u8>>, Value) {
    let scratch = Scratch::new();
    let input = scratch.write("in.pcap", pcap(&frames()));
    let output = scratch.file("out.pcapng");
    let [rx, tx] = [format!("pcap:rx={input}"), format!("pcap:tx={output}")];
    let args = [&["l2fwd", &rx, &tx, "--json"], extra].concat();
    let totals = lines(&args).pop().unwrap();
    (frames_of(&output), totals)
}

#[test]
fn a_replayed_capture_comes_out_the_same_but_for_its_addresses_and_ends_the_run() {
    let (out, totals) = replay(&[]);
    let expected: Vec<_> = frames()
        .into_iter()
        .map(|mut frame| {
            // To 02:00:00:00:00:<port>, from the port's own or, for want of one,
            // 02:00:00:00:01:<port>.
            frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1]);
            frame
        })
        .collect();
    assert_eq!(out, expected);
    let ports = &totals["ports"];
    assert_eq!(totals["totals"], true);
    assert_eq!(ports[0]["rx_packets"], expected.len());
    assert_eq!(ports[1]["tx_packets"], expected.len());
    let bytes: usize = expected.iter().map(Vec::len).sum();
    assert_eq!(ports[1]["tx_bytes"], bytes);
    let ledger = &totals["ledger"];
    assert_eq!(ledger["packets"], expected.len());
    assert_eq!(
        (&ledger["even"], &ledger["missing_slots"], &ledger["lost"]),
        (&true.into(), &0.into(), &Value::Array(Vec::new()))
    );
}

#[test]
fn without_mac_update_not_a_byte_changes() {
    let (out, _) = replay(&["--no-mac-update", "--burst", "7", "--no-sleep"]);
    assert_eq!(out, frames());
}

#[test]
fn frames_reach_a_port_with_one_transmit_queue_from_two_lcores() {
    // Both queues play the whole file; the writing port has one transmit queue for both lcores.
    let scratch = Scratch::new();
    let input = scratch.write("in.pcap", pcap(&frames()));
    let output = scratch.file("out.pcapng");
    let [rx, tx] = [
        format!("pcap:rx={input},queues=2"),
        format!("pcap:tx={output},queues=2"),
    ];
    let args = [
        "l2fwd",
        &rx,
        &tx,
        "--queues",
        "2",
        "--io",
        "0-1",
        "--cpus",
        "0,0,0,0",
        "--json",
        "--no-mac-update",
    ];
    let totals = lines(&args).pop().unwrap();
    assert_eq!(totals["lcores"].as_array().unwrap().len(), 2);
    let seen: BTreeSet<_> = frames_of(&output).into_iter().collect();
    assert_eq!(seen, frames().into_iter().collect());
    assert_eq!(totals["ports"][1]["tx_packets"], 2 * frames().len());
    // What one hands to the other is in the books of one pipeline alone.
    assert_eq!(totals["ledger"]["packets"], 2 * frames().len());
    assert_eq!(totals["ledger"]["even"], true);
}

#[test]
fn duration_ends_with_totals_that_plan_suggest_takes() {
    let scratch = Scratch::new();
    let all = lines(&[
        "l2fwd",
        "null",
        "null",
        "--duration",
        "0.5",
        "--period",
        "0.1",
        "--json",
    ]);
    let (totals, periods) = all.split_last().unwrap();
    assert!(!periods.is_empty() && periods.iter().all(|line| line["totals"] == false));
    assert_eq!(totals["totals"], true);
    assert!(totals["ports"][1]["tx_packets"].as_u64() > Some(0));
    assert!(totals["residence"]["p50_ticks"].as_u64() > Some(0));
    assert!(totals["machine"]["cpus"].as_u64() > Some(0));
    let text: String = all.iter().map(|line| format!("{line}\n")).collect();
    let report = scratch.file("report.json");
    std::fs::write(&report, text).unwrap();
    let suggestion = linerate(&["plan", "--suggest", &report]);
    assert!(
        suggestion.status.success(),
        "{}",
        String::from_utf8_lossy(&suggestion.stderr)
    );
}

#[test]
fn without_json_a_table_and_totals_are_printed() {
    let run = linerate(&[
        "l2fwd",
        "null",
        "ring:a",
        "ring:a",
        "--duration",
        "0.3",
        "--period",
        "0.1",
    ]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success());
    // An odd last port forwards to itself.
    for line in [
        "port 0 null -> port 1",
        "port 2 ring:a -> port 2",
        "lcore io0",
        "totals after",
        " packets accounted for",
    ] {
        assert!(text.contains(line), "no `{line}` in:\n{text}");
    }
}

#[test]
fn both_signals_end_a_run_with_totals_and_success() {
    for signal in ["INT", "TERM"] {
        let mut command = command(&["l2fwd", "null,rx=off", "null,rx=off"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        // It catches signals before it prints what it forwards.
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut first).unwrap();
        assert!(first.starts_with("port 0"), "{first}");
        let kill = format!("kill -{signal} {}", child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "SIG{signal}");
        assert!(rest.contains("totals after"), "SIG{signal}: {rest}");
    }
}

/// While it runs it answers on its socket and with metrics; and `ctl stop` ends it.
#[test]
fn ctl_shows_and_ends_a_run() {
    let scratch = Scratch::new();
    let socket = scratch.file("l2fwd.sock");
    let words = "l2fwd null: null: --period 0 --metrics 127.0.0.1:0 --control";
    let words: Vec<&str> = words.split(' ').chain([socket.as_str()]).collect();
    let mut child = command(&words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("metrics at http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let ask = |what: &[&str]| linerate(&[&["ctl", "--socket", &socket], what].concat());
    let rows = |what| -> Vec<Value> {
        let answer = ask(&["show", what, "--json"]).stdout;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["rows"].as_array().unwrap().clone()
    };
    let ports = rows("ports");
    assert_eq!(ports.len(), 2, "{ports:?}");
    assert!(ports.iter().all(|port| port["link"] == "up"), "{ports:?}");
    assert!(
        rows("lcores")
            .iter()
            .all(|lcore| lcore["does"] == "forwards")
    );
    assert!(rows("drops").iter().all(|drop| drop["packets"] != 0));
    let none = ask(&["show", "routes"]);
    let stderr = String::from_utf8(none.stderr).unwrap();
    assert!(
        !none.status.success() && stderr.contains("no table `routes` here"),
        "{stderr}"
    );
    let mut http = TcpStream::connect(address).unwrap();
    http.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    http.read_to_string(&mut page).unwrap();
    assert!(
        page.starts_with("HTTP/1.1 200 OK") && page.ends_with("# EOF\n"),
        "{page}"
    );
    for family in [
        "port_transmit_packets_total",
        "lcore_busy_seconds_total",
        "build_info",
    ] {
        assert!(
            page.contains(&format!("\nlinerate_{family}")),
            "no {family} in {page}"
        );
    }
    let mut client = UnixStream::connect(&socket).unwrap();
    client
        .write_all(b"{\"id\": 7, \"method\": \"stop\"}\n")
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(
        answer.contains("\"ending\"") && answer.contains("\"id\":7"),
        "{answer}"
    );
    assert!(
        !std::path::Path::new(&socket).exists(),
        "the socket stays behind"
    );
}

/// Two runs, joined by memif without a copy.
#[test]
fn ports_say_what_a_peer_shares_and_how_full_it_is() {
    let scratch = Scratch::new();
    let run = |name: &str, options: &str| {
        let port = format!("memif:{},{options}", scratch.file("joined"));
        Instance::start(&["l2fwd", &port, "null,rx=off"], &scratch.file(name))
    };
    let server = run("server", "role=server");
    let client = run("client", "role=client,trust=full");
    let port = |run: &Instance| run.show(&["ports"])["rows"][0].clone();
    linerate_testkit::wait("both are up", || {
        [&server, &client]
            .map(port)
            .iter()
            .all(|port| port["link"] == "up")
    });
    let ring = |direction| {
        serde_json::json!({"direction": direction, "queue": 0, "waiting": 0,
        "size": 1024})
    };
    for run in [&server, &client] {
        let rings = port(run)["rings"].clone();
        assert_eq!(
            rings,
            serde_json::json!([ring("receive"), ring("transmit")])
        );
        let page = run.metrics();
        for family in ["waiting", "size"] {
            let family = format!("linerate_port_ring_{family}{{");
            assert_eq!(page.matches(&family).count(), 2, "{page}");
        }
    }
    let trust = |run| port(run)["facts"]["trust"].as_str().unwrap().to_owned();
    assert_eq!(trust(&server), "none: frames are copied");
    let shared = trust(&client);
    assert!(
        shared.contains("every packet of pool `packets`"),
        "{shared}"
    );
}

/// The simplest appliance answers the same requests about its packets as the router.
#[test]
fn packets_of_a_run_are_captured_traced_and_accounted_for() {
    let udp = |port: u8| {
        let mut frame = vec![0xee; 60];
        frame[12..34].copy_from_slice(&[
            8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 9, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ]);
        frame[34..40].copy_from_slice(&[0, 7, 0, port, 0, 26]);
        frame
    };
    let scratch = Scratch::new();
    let input = scratch.write("in.pcap", pcap(&[udp(53), udp(80)]));
    let socket = scratch.file("ctl");
    let text = format!(
        "[[port]]\nname = \"wan\"\nspec = \"pcap:rx={input},loop=on\"\n\
         [[port]]\nname = \"lan\"\nspec = \"null,rx=off\"\n\
         [l2fwd]\ncontrol = \"{socket}\"\n"
    );
    let config = scratch.write("l2fwd.toml", text);
    let args = ["l2fwd", "--config", &config, "--period", "0", "--json"];
    let run = Instance::listening(&args, &socket);
    let capture = |count: usize, words: &[&str]| {
        let (file, count) = (scratch.file("capture.pcapng"), count.to_string());
        let what = [&["-w", &file, "--count", &count], words].concat();
        run.ask("capture", &what).unwrap();
        frames_of(&file)
    };
    // Received and sent packets; both by default.
    let came = capture(5, &["--port", "wan", "--filter", "udp port 53"]);
    assert_eq!(came, vec![udp(53); 5]);
    let left = capture(
        5,
        &["--stage", "sent", "--filter", "port 80", "--snap", "20"],
    );
    assert_eq!(left.len(), 5);
    for frame in &left {
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1]);
        assert_eq!(frame.len(), 20);
    }
    let both = capture(40, &["--filter", "port 80"]);
    let changed = both.iter().filter(|frame| frame[0] == 2).count();
    assert!((1..40).contains(&changed), "{changed}");
    let stderr = run
        .ask("capture", &["-w", "-", "--stage", "sen"])
        .unwrap_err();
    assert!(stderr.contains("perhaps sent"), "{stderr}");

    let text = run
        .ctl(&["trace", "--count", "2", "--filter", "udp port 80"])
        .unwrap();
    let wanted = "192.0.2.1:7 > 192.0.2.2:80 udp by wan, 60 bytes\n  \
        sent by lan as 02:00:00:00:01:01 > 02:00:00:00:00:01, ";
    assert!(text.starts_with(wanted), "{text}");
    assert!(text.ends_with("\n2 packets"), "{text}");

    let path = run.show(&["path"]);
    let stages: Vec<&str> = path["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            assert_eq!(row["unaccounted"], 0, "{row}");
            row["stage"].as_str().unwrap()
        })
        .collect();
    assert_eq!(stages, ["pipeline", "sent", "drop"]);
    assert!(path["rows"][1]["packets"].as_u64() > Some(0), "{path}");
    let cycles = run.show(&["path", "cycles"]);
    assert!(cycles["rows"][0]["cycles"].as_f64() > Some(0.0), "{cycles}");

    // Tables are shown from 0, and the metrics go on.
    let before = run.show(&["ports"]);
    assert_eq!(before["summary"], Value::Null);
    let said = run.ctl(&["clear", "counters"]).unwrap();
    assert!(said.contains("from 0"), "{said}");
    for table in ["ports", "lcores", "drops", "path"] {
        let summary = run.show(&[table])["summary"].to_string();
        assert!(
            summary.contains("counted since they were cleared"),
            "{table}: {summary}"
        );
    }
    let after = run.show(&["ports"]);
    let page = run.metrics();
    let all = page
        .split("\nlinerate_port_receive_packets_total{port=\"wan\"} ")
        .nth(1);
    let all: u64 = all.unwrap().lines().next().unwrap().parse().unwrap();
    let [before, after] =
        [before, after].map(|rows| rows["rows"][0]["rx_packets"].as_u64().unwrap());
    assert!(
        before > 0 && before + after <= all,
        "{before} + {after} of {all}"
    );
    assert!(
        page.contains("\nlinerate_last_reload_refused 0\n"),
        "{page}"
    );

    let ledger = run.show(&["ledger"]);
    let row = |holder: &str| {
        let mut rows = ledger["rows"].as_array().unwrap().iter();
        let found = rows.find(|row| row["holder"] == holder);
        found
            .unwrap_or_else(|| panic!("no {holder} in {ledger}"))
            .clone()
    };
    let pipeline = row("io0: pipeline");
    let count = |key: &str| pipeline[key].as_u64().unwrap();
    assert_eq!(count("received"), count("sent") + count("dropped"));
    assert_eq!((count("lost"), count("held")), (0, 0));
    assert_eq!(row("io0: queue to lan")["sent"], pipeline["sent"]);
    assert_eq!(row("io0: queue 0 of wan")["received"], pipeline["received"]);
    assert!(row("pools: free slots")["held"].as_u64() > Some(0));
    let verdict = ledger["summary"].as_str().unwrap();
    let all = format!("all {} packets accounted for", count("received"));
    assert_eq!(verdict, all);
    let totals = run.totals();
    assert_eq!(totals["ledger"]["even"], true, "{totals}");
}

#[test]
fn wrong_ports_pairs_and_plans_are_named_with_a_fix() {
    for (args, problem, way_out) in [
        (
            &["nul:", "null"][..],
            "unknown port kind `nul`",
            "known kinds: ",
        ),
        (&["null,sise=64", "null"], "unknown option `sise`", "size"),
        (&["null,size=9", "null"], "size is `9`", "linerate ports"),
        (
            &["null", "null", "--pairs", "0:2"],
            "`0:2` is no pair",
            "0 null, 1 null",
        ),
        (
            &["null", "null", "null", "--pairs", "0:1"],
            "port 2 stands in no pair",
            "a:b,c:d",
        ),
        (
            &["null", "null", "--io", "0", "--eu", "0"],
            "slot 0",
            "each slot to one role",
        ),
        (
            &["null", "null", "--cpus", "8000"],
            "CPU 8000",
            "choose from",
        ),
        (
            &["ring:a", "ring:a", "--queues", "2"],
            "2 receive queues asked for",
            "at most 1",
        ),
        (
            &["null", "null", "--duration=-1"],
            "duration is -1",
            "seconds",
        ),
        (&["pcap:rx=/no/such.pcap", "null"], "/no/such.pcap", ""),
        (&["--config", "/no/such.toml"], "/no/such.toml", "path"),
    ] {
        let (error, fix) = refused(&[&["l2fwd"], args].concat());
        assert!(
            error.contains(problem) && fix.contains(way_out),
            "{args:?}: {error}\n{fix}"
        );
    }
}

#[test]
fn a_file_says_the_same_as_options() {
    let scratch = Scratch::new();
    let path = scratch.file("l2fwd.toml");
    let text = "[[port]]\nname = \"wan\"\nspec = \"null\"\n[[port]]\nname = \"lan\"\nspec = \
                \"null,rx=off\"\n\
                [plan]\nio = \"0\"\n[l2fwd]\npairs = \"wan:lan\"\nduration = 0.2\nperiod = 0\n";
    std::fs::write(&path, text).unwrap();
    let all = lines(&["l2fwd", "--config", &path, "--json"]);
    assert_eq!(all.len(), 1);
    assert_eq!(
        (&all[0]["ports"][0]["name"], &all[0]["ports"][1]["name"]),
        (&"wan".into(), &"lan".into())
    );
    let text = text.replace("period = 0", "perod = 0\nburst = 65");
    std::fs::write(&path, text.replace("wan:lan", "wan:lam")).unwrap();
    let (error, fix) = refused(&["l2fwd", "--config", &path]);
    let lines: Vec<&str> = error.lines().collect();
    let begins = [
        format!("{path}: 3 things are wrong"),
        format!("{path}:10: l2fwd.pairs: pairs `wan:lam`: `wan:lam` is no pair of ports; write"),
        format!("{path}:12: l2fwd.perod: there is no such key; perhaps period"),
        format!("{path}:13: l2fwd.burst: 65 is out of range; a number from 1 to 64"),
    ];
    assert_eq!(lines.len(), begins.len(), "{error}");
    for (line, begin) in lines.iter().zip(&begins) {
        assert!(line.starts_with(begin), "{line}\nnot\n{begin}");
    }
    assert!(fix.contains("`linerate l2fwd --config"), "{fix}");
}

#[test]
fn a_reload_pairs_the_ports_otherwise_without_loss() {
    let scratch = Scratch::new();
    let port = |name: &str, spec: &str| format!("[[port]]\nname = \"{name}\"\nspec = \"{spec}\"\n");
    let ports = port("a", "null") + &port("b", "null,rx=off") + &port("c", "null,rx=off");
    let text = |own: &str| format!("{ports}[l2fwd]\n{own}\n");
    let config = scratch.write("l2fwd.toml", text("pairs = \"a:b,c:c\""));
    let socket = scratch.file("l2fwd.sock");
    // Two lcores: what the other one sends goes over a ring until it is paired otherwise.
    let args = [
        "l2fwd",
        "--config",
        &config,
        "--io=0-1",
        "--cpus=0,0",
        "--queues=2",
    ];
    let mut run = Instance::start(&args, &socket);
    let reload = |run: &Instance, own: &str| {
        std::fs::write(&config, text(own)).unwrap();
        run.ctl(&["reload"])
    };
    let said = reload(&run, "pairs = \"a:c,b:b\"\nmac_update = false").unwrap();
    assert_eq!(said, "changed: 3 ports, 1 setting of mac_update");
    std::thread::sleep(Duration::from_millis(100));
    let error = reload(&run, "pairs = \"a:c,b:d\"\nmac_updat = true").unwrap_err();
    for wanted in [
        ":11: l2fwd.pairs: pairs `a:c,b:d`: `b:d` is no pair of ports; write each port once",
        ":12: l2fwd.mac_updat: there is no such key; perhaps mac_update",
    ] {
        assert!(error.contains(wanted), "{wanted} not in {error}");
    }
    let error = reload(&run, "pairs = \"a:c,b:b\"\nburst = 4").unwrap_err();
    assert!(
        error.contains("not while l2fwd runs: l2fwd.burst is another"),
        "{error}"
    );
    std::fs::write(&config, text("pairs = \"a:b,c:c\"")).unwrap();
    let said = run.hang_up();
    assert_eq!(said, "reload: changed: 3 ports, 1 setting of mac_update");
    let totals = run.totals();
    let packets = |port: usize, key: &str| totals["ports"][port][key].as_u64().unwrap();
    let sent = [1, 2].map(|port| packets(port, "tx_packets"));
    assert!(sent[0] > 0 && sent[1] > 0, "{totals}");
    assert_eq!(packets(0, "rx_packets"), sent[0] + sent[1], "{totals}");
}

#[test]
fn without_a_file_there_is_nothing_to_reload() {
    let scratch = Scratch::new();
    let run = Instance::start(&["l2fwd", "null", "null"], &scratch.file("l2fwd.sock"));
    let error = run.ctl(&["reload"]).unwrap_err();
    assert!(
        error.contains("no file to read again") && error.contains("--config"),
        "{error}"
    );
    let page = run.metrics();
    assert!(!page.contains("reload"), "{page}");
}

#[test]
fn a_file_is_checked_without_touching_anything() {
    let check = linerate(&["l2fwd", "pcap:rx=/no/such/file", "null", "--check"]);
    let said = String::from_utf8(check.stdout).unwrap();
    assert!(check.status.success(), "{said}");
    let port = "port 0 pcap (pcap:rx=/no/such/file) -> port 1\n";
    assert!(
        said.starts_with(port) && said.contains("lcore io"),
        "{said}"
    );
}

#[test]
fn demo_loses_nothing_at_any_size() {
    let report = &document(&["demo", "--json", "--seconds-per-size", "0.05"]);
    assert_eq!(report["kind"], "demo");
    let (full, half) = (&report["throughput"], &report["latency"]);
    let rows = full.as_array().unwrap().iter();
    let rows: Vec<_> = rows.zip(half.as_array().unwrap()).collect();
    let sizes = rows.iter().map(|(full, half)| {
        assert_eq!(full["frame_bytes"], half["frame_bytes"]);
        full["frame_bytes"].as_u64().unwrap()
    });
    assert!(sizes.eq([64, 128, 256, 512, 1024, 1280, 1518]));
    for (full, half) in rows {
        for trial in [&full["quoted"], &half["trial"]] {
            let is_whole = trial["sent"].as_u64() > Some(0) && trial["sent"] == trial["received"];
            assert!(is_whole && trial["duplicates"] == 0, "{trial}");
        }
        for key in [
            "pps",
            "l2_bps",
            "l1_bps",
            "ticks_per_packet",
            "ns_per_packet",
        ] {
            assert!(full[key].as_f64() > Some(0.0), "{key}: {full}");
        }
        let ns = |key: &str| half["latency"][key].as_f64();
        assert!(ns("p50_ns") <= ns("p99_ns") && ns("p99_ns") <= ns("p999_ns"));
    }
    assert!(report["machine"]["cpu_model"].is_string());
}

/// The one JSON document that a command prints.
fn document(args: &[&str]) -> Value {
    let output = linerate(args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn demo_prints_a_table() {
    let run = linerate(&["demo", "--frames", "64,1518", "--seconds-per-size", "0.05"]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success());
    for part in ["p99.9 ns", "lost", "l2fwd over ring ports", " 1518 "] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let refused = linerate(&["demo", "--frames", "63"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn demo_ends_on_ctrl_c_with_what_it_measured() {
    let mut command = command(&[
        "demo",
        "--frames",
        "64,128",
        "--seconds-per-size",
        "600",
        "--json",
    ]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    // Long enough to have begun; if it has not, it still ends, but as an interrupted process.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let kill = format!("kill -INT {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    assert!(report["throughput"].as_array().unwrap().len() < 2);
}

#[test]
fn the_page_of_demo_is_self_contained() {
    let scratch = Scratch::new();
    let path = scratch.file("demo.html");
    let run = linerate(&[
        "demo",
        "--frames",
        "64,1518",
        "--seconds-per-size",
        "0.05",
        "--html",
        &path,
    ]);
    assert!(run.status.success());
    let page = std::fs::read_to_string(&path).unwrap();
    for part in [
        "<!doctype html>",
        "<svg",
        "Throughput",
        "50% of throughput",
        "1518",
        "</html>",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    for outside in ["http:", "https:", "<script", "src="] {
        assert!(!page.contains(outside), "{outside} in the page");
    }
    let (error, fix) = refused(&["demo", "--html", "/no/such/folder/demo.html"]);
    assert!(
        error.contains("/no/such/folder") && fix.contains("path"),
        "{error}\n{fix}"
    );
}

/// Whether this process may make network name spaces.
fn may_make_namespaces() -> bool {
    let tried = Command::new("unshare")
        .args(["--net", "ip", "link"])
        .output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn demo_beside_a_linux_bridge_leaves_nothing_behind() {
    if !may_make_namespaces() {
        linerate_testkit::skip("demo_beside_a_linux_bridge: needs CAP_SYS_ADMIN and the `ip` tool");
        return;
    }
    let links = || {
        String::from_utf8(
            Command::new("ip")
                .args(["-br", "link"])
                .output()
                .unwrap()
                .stdout,
        )
        .unwrap()
    };
    let ours = |text: String| {
        text.lines()
            .filter(|line| line.starts_with('g') || line.starts_with("br"))
            .count()
    };
    let before = ours(links());
    let report = document(&[
        "demo",
        "--linux-bridge",
        "--frames",
        "64",
        "--seconds-per-size",
        "0.1",
        "--json",
    ]);
    let (ours_pps, bridge) = (&report["throughput"][0]["pps"], &report["baselines"][0]);
    assert_eq!(bridge["name"], "Linux bridge over veth");
    assert!(ours_pps.as_f64() > Some(0.0), "{report}");
    assert!(
        bridge["throughput"][0]["pps"].as_f64() > Some(0.0),
        "{bridge}"
    );
    assert_eq!(ours(links()), before);
}
