//! Sessions and their clients.

use super::*;
use crate::instance::Instance;
use linerate_testkit::Scratch;
use linerate_testkit::capture::frames_of;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn a_client_that_waits_reads_the_loss() {
    let scratch = Scratch::new();
    let socket = scratch.file("s.sock");
    let lossy = "b=ring:b,loop=on,faulty=loss:1";
    let running = Running::start(&socket, &["-p", lossy, "-s", "port=b count=400"]);
    let mut client = connect(&socket);
    for _ in 0..2 {
        client.method("clear", Value::Null);
        client.method("start", json!({ "ports": "b" }));
        assert_eq!(client.method("wait", Value::Null)["done"], true);
        let counts = client.method("snapshot", Value::Null);
        assert_eq!(counts["streams"][0]["tally"]["lost"], 400);
    }
    client.method("quit", Value::Null);
    running.end();
}

#[test]
fn the_python_module_and_its_notebook_work_against_a_session() {
    if Command::new("python3").arg("--version").output().is_err() {
        linerate_testkit::skip("the Python module: no python3; apt install python3");
        return;
    }
    let scratch = Scratch::new();
    let module = output(&["--print", "python"]);
    assert!(module.status.success());
    let module = scratch.write("linerate_pktgen.py", module.stdout);
    let folder = Path::new(&module).parent().unwrap();
    let script = r#"
import json, sys
import linerate_pktgen as pktgen

# The cells of the example, one after the other.
shown = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), shown)
assert [row[0] for row in shown["rows"]] == [64, 512, 1518], shown["rows"]
assert all(row[1] > 0 and row[2] == 0 for row in shown["rows"]), shown["rows"]
assert shown["final"]["received"] == shown["final"]["sent"] > 0, shown["final"]

program = sys.argv[2]
with pktgen.launch(["ring:a,loop=on,faulty=loss:1"], ["name=s count=300"], program) as session:
    counts = session.run()
    assert pktgen.totals(counts)["lost"] == 300 and pktgen.totals(counts)["loss"] == 1.0, counts
    assert "name=s" in session.command("stream list")["text"]
    assert session.streams()[0]["name"] == "s"
    assert session.until(lambda counts: False, seconds=0.05, period=0.01) is None
    for number, counts in enumerate(session.snapshots(period=0.05)):
        # Another answer between two events.
        assert session.snapshot()["streams"][0]["tally"]["sent"] == 300
        if number == 2:
            break
    try:
        session.ask("start", ports="nowhere")
        raise SystemExit("it was started")
    except pktgen.Problem as refused:
        assert "nowhere" in refused.problem and refused.fix, refused
try:
    pktgen.launch(["nonsense:a"], [], program)
    raise SystemExit("it was opened")
except pktgen.Problem as refused:
    assert "nonsense" in str(refused), refused
"#;
    let ran = Command::new("python3")
        .args(["-c", script])
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../apps/pktgen/python/example.ipynb"
        ))
        .arg(env!("CARGO_BIN_EXE_linerate"))
        .env("LINERATE", env!("CARGO_BIN_EXE_linerate"))
        .current_dir(folder)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{stderr}");
}

#[test]
fn a_client_sets_starts_waits_and_reads_exact_counts() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    let running = Running::start(&socket, &[]);
    let mut client = connect(&socket);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let hello = client.method("hello", json!({}));
    assert_eq!(
        (&hello["version"], &hello["may_change"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(hello["pid"], running.0.id());
    // As Pktgen's users type it.
    client.does("set 0 size 740");
    client.does("set 0 src ip 10.1.2.3/24");
    client.does("set 0 count 200");
    client.does("start 0");
    assert_eq!(client.does("wait 30")["data"]["done"], true);
    client.does("sleep 0.2");
    let snapshot = client.method("snapshot", Value::Null);
    assert_eq!(snapshot["ports"][0]["tx"]["packets"], 200);
    assert_eq!(snapshot["ports"][0]["tx"]["bytes"], 148_000);
    assert_eq!(snapshot["streams"][0]["tally"]["received"], 200);
    let line = client.method("streams", json!({ "ports": 0 }))[0]["line"].clone();
    assert!(line.as_str().unwrap().contains("src=10.1.2.3"), "{line}");
    client.does("clr");
    assert_eq!(
        client.method("snapshot", Value::Null)["ports"][0]["tx"]["packets"],
        0
    );
    // Unknown names are answered with what is near.
    for (line, near) in [
        ("pgae main", "page"),
        ("page latncy", "latency"),
        ("set 0 sze 64", "size"),
    ] {
        let answer = client.command(line);
        assert_eq!(answer["error"]["nearest"][0], near, "{answer}");
    }
    assert!(
        client.command("start 7")["error"]["fix"]
            .as_str()
            .unwrap()
            .contains("port")
    );
    assert!(client.command("set 0 rate 5000Gpps")["error"]["fix"].is_string());
    let found = client.method("complete", json!({ "line": "page la", "cursor": 7 }));
    assert_eq!(found["candidates"][0]["text"], "latency");
    client.does("stream add name=second size=64 count=5");
    client.does("stream disable 0");
    client.method("start", json!({ "ports": [0] }));
    assert_eq!(
        client.method("wait", json!({ "seconds": 30 }))["done"],
        true
    );
    let snapshot = client.method("snapshot", Value::Null);
    assert_eq!(snapshot["streams"][0]["tally"]["sent"], 0);
    assert_eq!(snapshot["streams"][1]["tally"]["sent"], 5);
    client.does("stream remove second");
    assert!(client.command("stream set second size 70")["error"].is_object());
    client.does("quit");
    let (code, text) = running.end();
    assert_eq!(code, Some(0));
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    assert!(!Path::new(&socket).exists());
}

#[test]
fn garbage_long_lines_and_slow_readers_disturb_no_other_client() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    let running = Running::start(&socket, &[]);
    let mut good = connect(&socket);
    let mut random = linerate_testkit::Random::new(0x5eed);
    for round in 0..20 {
        let mut bad = connect(&socket);
        let bytes = random.bytes(3000);
        let stream = bad.0.get_mut();
        // It may hang up before it has all.
        let _ = stream
            .write_all(&bytes)
            .and_then(|()| stream.write_all(b"\n"));
        if round % 2 == 0 {
            drop(bad);
        }
    }
    for line in [
        "{}",
        "[1, 2]",
        "null",
        r#"{"id": 1}"#,
        r#"{"id": 1, "command": "help", "method": "help"}"#,
        r#"{"id": 1, "command": 5}"#,
        r#"{"id": 1, "method": "snapshot", "params": {"more": 1}}"#,
        r#"{"id": 1, "method": "set", "params": {"ports": {}, "key": "size", "value": 1}}"#,
        r#"{"id": 1, "method": "snapsot"}"#,
    ] {
        let mut bad = connect(&socket);
        bad.send(line);
        let answer = bad.read();
        assert_eq!(answer["ok"], false, "{line}");
        assert!(answer["error"]["problem"].is_string() && answer["error"]["fix"].is_string());
    }
    let mut long = connect(&socket);
    let line = "x".repeat(100_000);
    let _ = long.0.get_mut().write_all(line.as_bytes());
    assert!(
        long.read()["error"]["problem"]
            .as_str()
            .unwrap()
            .contains("more than")
    );
    assert_eq!(long.read(), Value::Null);
    // A client that sends many requests and reads nothing.
    let mut deaf = connect(&socket);
    deaf.send(r#"{"id": 1, "method": "subscribe", "params": {"period_ms": 50}}"#);
    let _ = deaf.0.get_mut().set_nonblocking(true);
    for _ in 0..2000 {
        let _ = deaf
            .0
            .get_mut()
            .write(b"{\"id\": 2, \"method\": \"help\"}\n");
    }
    // All the while the good one is served.
    for _ in 0..20 {
        assert!(good.method("snapshot", Value::Null)["ports"].is_array());
    }
    good.does("quit");
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn two_clients_work_side_by_side_and_one_may_only_look() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    let running = Running::start(&socket, &[]);
    let (mut first, mut second) = (connect(&socket), connect(&socket));
    assert_eq!(
        second.method("hello", json!({ "read_only": true }))["may_change"],
        false
    );
    second.method("subscribe", json!({ "period_ms": 50 }));
    // One waits, the other does not wait for it.
    first.send(r#"{"id": 1, "command": "sleep 0.3"}"#);
    let event = second.read();
    assert_eq!(
        (&event["event"], &event["id"]),
        (&json!("snapshot"), &json!("m"))
    );
    assert!(event["result"]["ports"].is_array());
    assert_eq!(first.read()["ok"], true);
    let mut refused = second.ask(json!({ "id": 5, "command": "start 0" }));
    while refused["id"] != 5 {
        refused = second.read();
    }
    assert!(
        refused["error"]["problem"]
            .as_str()
            .unwrap()
            .contains("look"),
        "{refused}"
    );
    running.signal(rustix::process::Signal::INT);
    let (code, text) = running.end();
    assert_eq!(code, Some(0), "Ctrl-C ends with totals");
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
}

#[test]
fn the_socket_of_a_killed_session_is_reused_and_that_of_a_live_one_refused() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    let first = Running::start(&socket, &[]);
    connect(&socket);
    let (error, fix) = refused(&["-p", LOOP, "--json", "--no-start", "--listen", &socket]);
    assert!(
        error.contains(&format!("process {}", first.0.id())),
        "{error}"
    );
    assert!(fix.contains("--connect"), "{fix}");
    first.signal(rustix::process::Signal::KILL);
    drop(first);
    assert!(Path::new(&socket).exists());
    let second = Running::start(&socket, &[]);
    let late = Instant::now() + Duration::from_secs(30);
    while !output(&["--connect", &socket, "-c", "quit"])
        .status
        .success()
    {
        assert!(Instant::now() < late);
    }
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn over_tcp_a_token_is_required_and_files_cannot_be_named() {
    let scratch = Scratch::new();
    let token = scratch.write("token", "0123456789abcdef\n");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut running = Running::start("tcp:127.0.0.1:0", &["--token-file", &token]);
    let mut said = String::new();
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
    while !said.contains("listening at tcp:") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let at = said.split("tcp:").nth(1).unwrap().trim().to_owned();
    let connect = || {
        let stream = TcpStream::connect(&at).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Client(BufReader::new(stream))
    };
    for first in [
        json!({ "id": 1, "command": "help" }),
        json!({ "id": 1, "method": "hello" }),
        json!({ "id": 1, "method": "hello", "params": { "token": "0123456789abcdeF" } }),
    ] {
        let mut client = connect();
        let answer = client.ask(first);
        assert!(
            answer["error"]["problem"]
                .as_str()
                .unwrap()
                .contains("token"),
            "{answer}"
        );
        assert_eq!(client.read(), Value::Null);
    }
    let mut client = connect();
    client.method("hello", json!({ "token": "0123456789abcdef" }));
    let refused = client.command("save /tmp/never");
    assert!(
        refused["error"]["problem"]
            .as_str()
            .unwrap()
            .contains("file"),
        "{refused}"
    );
    let tcp = format!("tcp:{at}");
    let args = [
        "--connect",
        &tcp,
        "--token-file",
        &token,
        "-c",
        "set 0 size 90",
        "-c",
        "quit",
    ];
    let done = output(&args);
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(running.end().0, Some(0));
}

/// A generator answers the same requests as every appliance.
#[test]
fn ctl_capture_and_trace_work_on_a_session() {
    let scratch = Scratch::new();
    let socket = scratch.file("ctl");
    let stream = "rate=20kpps size=100 dport=53";
    let args = ["pktgen", "--headless", "--json", "-p", LOOP, "-s", stream];
    let run = Instance::listening(&[&args[..], &["--control", &socket]].concat(), &socket);
    for stage in ["pipeline", "sent"] {
        let file = scratch.file("capture.pcapng");
        let what = ["-w", &file, "--count", "20", "--stage", stage];
        run.ask("capture", &what).unwrap();
        let frames = frames_of(&file);
        assert_eq!(frames.len(), 20, "{stage}");
        // Of 100 bytes, 4 are the FCS; each frame is another one.
        let ends: std::collections::HashSet<&[u8]> =
            frames.iter().map(|frame| &frame[76..96]).collect();
        assert_eq!(ends.len(), 20, "{stage}");
    }
    let trace = ["trace", "--count", "2", "--filter", "udp port 53"];
    let text = run.ctl(&trace).unwrap();
    assert!(text.contains(" of stream 0\n"), "{text}");
    assert!(text.ends_with("\n2 packets"), "{text}");
    let unmatched = run.ask("capture", &["-w", "-", "--stage", "lookup"]);
    assert!(unmatched.unwrap_err().contains("pipeline"));

    let ports = run.show(&["ports"]);
    let port = &ports["rows"][0];
    assert!(port["rx_packets"].as_u64() > Some(0), "{ports}");
    assert_eq!(port["link"], "up");
    let lcores = run.show(&["lcores"]);
    assert!(lcores["rows"][0]["packets"].as_u64() > Some(0), "{lcores}");
    let ledger = run.ctl(&["show", "ledger"]).unwrap();
    assert!(ledger.contains("free slots"), "{ledger}");
    assert_eq!(run.show(&["drops"])["summary"], "0 packets dropped");
    let why = run.ctl(&["show", "routes"]).unwrap_err();
    assert!(why.contains("no table `routes` here"), "{why}");
    let said = run.ctl(&["clear", "counters"]).unwrap();
    assert!(said.contains("begin at 0"), "{said}");
    let why = run.ctl(&["reload"]).unwrap_err();
    assert!(why.contains("reads its file once"), "{why}");
    let totals = run.totals();
    assert_eq!(totals["ledger"]["even"], true);
}

#[test]
fn metrics_of_a_session_count_each_streams_frames() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args([
            "pktgen",
            "--headless",
            "-p",
            LOOP,
            "-s",
            "rate=1kpps name=voice",
        ])
        .args(["--metrics", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = loop {
        let line = said.next().unwrap().unwrap();
        if let Some(rest) = line.strip_prefix("metrics at http://") {
            break rest.strip_suffix("/metrics").unwrap().to_owned();
        }
    };
    let page = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    };
    let count = |page: &str, family: &str| -> u64 {
        let begin = format!("linerate_{family}{{stream=\"0\",name=\"voice\",port=\"0\"}} ");
        let mut lines = page.lines();
        let found = lines.find_map(|line| line.strip_prefix(&begin));
        found.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let page = page();
        let received = count(&page, "stream_received_frames");
        assert!(received <= count(&page, "stream_sent_frames"));
        if received > 100 {
            assert!(page.contains("linerate_port_up{port="), "{page}");
            break;
        }
        assert!(Instant::now() < deadline, "{page}");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
