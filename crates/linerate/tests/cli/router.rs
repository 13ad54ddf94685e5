//! `linerate router`, `ctl` and `capture` from outside: forwarding, output, errors and reloads of a
//! router.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_drivers::pcap::Reader;
use serde_json::Value;

use crate::commands::{fails, linerate, misconfigured, said, udp};
use linerate_testkit::capture::{frames_of, paced};
use linerate_testkit::{Scratch, wait};

/// Where the ports without an address of their own have theirs.
const WAN: [u8; 6] = [2, 0, 0, 1, 0, 0];
const LAN: [u8; 6] = [2, 0, 0, 1, 0, 1];
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 0xaa];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

/// A router without the kernel between two ports, one network each, and a default route by LAN.
fn config(scratch: &Scratch, wan: &str, lan: &str, more: &str) -> String {
    let socket = scratch.file("ctl.sock");
    let text = format!(
        r#"[plan]
bg = "0"
io = "1"
cpus = "0,0"
[router]
kernel = false
period = 0
control = "{socket}"
[[port]]
name = "wan"
spec = "{wan}"
[[port]]
name = "lan"
spec = "{lan}"
[[interface]]
port = "wan"
addresses = ["192.0.2.1/24"]
[[interface]]
port = "lan"
addresses = ["198.51.100.1/24"]
[[route]]
prefix = "0.0.0.0/0"
via = "198.51.100.254"
[[neighbour]]
address = "198.51.100.254"
mac = "02:00:00:00:00:fe"
interface = "lan"
{more}"#
    );
    scratch.write("router.toml", text)
}

/// A running router. It is killed with the test, if it has not ended by then.
struct Router {
    child: Child,
    stdout: BufReader<ChildStdout>,
    socket: String,
    /// Its first line.
    ready: Value,
}

impl Router {
    /// Starts one, and waits until it forwards.
    fn start(scratch: &Scratch, config: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args(["router", config, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let ready: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {line}"));
        assert_eq!(ready["event"], "ready");
        Self {
            child,
            stdout,
            socket: scratch.file("ctl.sock"),
            ready,
        }
    }

    fn ctl(&self, args: &[&str]) -> Vec<String> {
        let front = ["ctl", "--socket", &self.socket];
        front.iter().chain(args).map(ToString::to_string).collect()
    }

    fn say(&self, args: &[&str]) -> String {
        let args = self.ctl(args);
        said(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn refuse(&self, args: &[&str]) -> String {
        let args = self.ctl(args);
        fails(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn rows(&self, args: &[&str]) -> Vec<Value> {
        let text = self.say(&[&["show"], args, &["--json"]].concat());
        let value: Value = serde_json::from_str(&text).unwrap();
        value["rows"].as_array().unwrap().clone()
    }

    /// Waits for the end, which must be a success; the totals.
    fn end(mut self) -> Value {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{text}");
        // In a folder of root's, the process that keeps the privileges takes it away, a moment
        // later.
        let end = Instant::now() + Duration::from_secs(10);
        while Path::new(&self.socket).exists() {
            assert!(Instant::now() < end, "the socket stays behind");
            std::thread::sleep(Duration::from_millis(5));
        }
        let totals: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        // In every test each lost packet must be accounted for.
        assert_eq!(totals["ledger"]["even"], true, "{}", totals["ledger"]);
        totals
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_capture_is_routed_rewritten_and_ends_the_run() {
    let scratch = Scratch::new();
    let in_frames: Vec<_> = (0..100)
        .map(|n| udp((WAN, HOST), ([192, 0, 2, 9], 4000), ([10, 1, 2, n], 53), 64))
        .chain([udp(
            (WAN, HOST),
            ([192, 0, 2, 9], 4000),
            ([10, 1, 2, 3], 53),
            1,
        )])
        .collect();
    let input = scratch.write("in.pcap", paced(&in_frames, 1000));
    let output = scratch.file("out.pcapng");
    let (rx, tx) = (format!("pcap:rx={input}"), format!("pcap:tx={output}"));
    let config = config(&scratch, &rx, &tx, "");
    let totals = Router::start(&scratch, &config).end();
    // Besides them the router announces its addresses.
    let mut out = frames_of(&output);
    out.retain(|frame| frame[12..14] == [8, 0]);
    assert_eq!(out.len(), 100);
    for (n, frame) in (0..).zip(&out) {
        let wanted = udp(
            (GATEWAY, LAN),
            ([192, 0, 2, 9], 4000),
            ([10, 1, 2, n], 53),
            63,
        );
        assert_eq!(*frame, wanted);
    }
    assert_eq!(totals["event"], "totals");
    assert_eq!(totals["ports"][0]["rx_packets"], 101);
    let drops = &totals["lcores"][0]["drops"];
    assert_eq!(drops["ttl_exceeded"], 1, "{totals}");
}

#[test]
fn check_explains_a_sound_file_and_refuses_a_wrong_one_with_every_line() {
    let scratch = Scratch::new();
    let path = config(
        &scratch,
        "ring:w",
        "ring:l",
        "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"203.0.113.1\"\n",
    );
    let text = said(&["router", &path, "--check"]);
    for wanted in [
        "is sound: 2 ports, 2 interfaces, 2 static routes",
        "198.51.100.1/24",
        "198.51.100.254",
        "lcore io0 on CPU 0: forwards",
        "warning: ",
        "203.0.113.1 is on no interface's network",
    ] {
        assert!(text.contains(wanted), "no `{wanted}` in:\n{text}");
    }
    let json: Value = serde_json::from_str(&said(&["router", &path, "--check", "--json"])).unwrap();
    assert_eq!(json["interfaces"][0]["name"], "wan");
    let wrong = std::fs::read_to_string(&path)
        .unwrap()
        .replace("via", "vie")
        .replace("mac =", "mca =");
    let path = scratch.write("wrong.toml", wrong);
    let text = misconfigured(&["router", &path, "--check"]);
    assert!(text.contains("things are wrong"), "{text}");
    assert!(
        text.contains("route.vie: there is no such key; perhaps via"),
        "{text}"
    );
    assert!(
        text.contains("neighbour.mca: there is no such key"),
        "{text}"
    );
    assert_eq!(misconfigured(&["router", &path]), text.clone());
    assert!(misconfigured(&["router", "/no/such.toml"]).contains("/no/such.toml"));
}

#[test]
fn ctl_shows_the_state_of_a_running_router() {
    let scratch = Scratch::new();
    let path = config(&scratch, "ring:w", "ring:l", "");
    let router = Router::start(&scratch, &path);
    let mode = std::fs::metadata(&router.socket)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let ports = router.rows(&["ports"]);
    assert_eq!(ports.len(), 2);
    assert_eq!(ports[1]["name"], "lan");
    assert_eq!(router.rows(&["ports", "wan"]).len(), 1);
    let interfaces = router.rows(&["interfaces"]);
    assert_eq!(interfaces[0]["addresses"][0], "192.0.2.1/24");
    assert_eq!(interfaces[0]["mac"], "02:00:00:01:00:00");
    let routes = router.rows(&["routes", "0.0.0.0/0"]);
    let default = routes
        .iter()
        .find(|row| row["prefix"] == "0.0.0.0/0")
        .unwrap();
    assert_eq!(default["source"], "static");
    assert!(
        routes.iter().any(|row| row["prefix"] == "192.0.2.0/24"),
        "{routes:?}"
    );
    // The routes that an address is routed by, the longest among them.
    let by = router.rows(&["routes", "198.51.100.7"]);
    assert!(
        by.iter().any(|row| row["prefix"] == "198.51.100.0/24"),
        "{by:?}"
    );
    assert!(
        by.iter().all(|row| row["prefix"] != "192.0.2.0/24"),
        "{by:?}"
    );
    let neighbours = router.rows(&["neighbours"]);
    assert_eq!(neighbours[0]["mac"], "02:00:00:00:00:fe");
    let lcores = router.rows(&["lcores"]);
    assert_eq!(lcores[0]["name"], "io0");
    router.rows(&["drops"]);
    for what in [
        "ports",
        "interfaces",
        "routes",
        "neighbours",
        "drops",
        "lcores",
    ] {
        let text = router.say(&["show", what]);
        assert!(text.lines().count() >= 1, "{what}: {text}");
    }
    assert!(
        router
            .say(&["show", "routes", "--limit", "1"])
            .contains(" more; ")
    );
    assert!(
        router
            .refuse(&["show", "routes", "10.x"])
            .contains("no address")
    );
    // Another one does not take its place.
    let second = fails(&["router", &path]);
    assert!(second.contains("listens there already"), "{second}");
    assert_eq!(router.say(&["stop"]), "ending\n");
    router.end();
}

#[test]
fn a_reload_takes_over_all_or_nothing() {
    let scratch = Scratch::new();
    let path = config(&scratch, "ring:w", "ring:l", "");
    let router = Router::start(&scratch, &path);
    let before = std::fs::read_to_string(&path).unwrap();
    let prefixes = |router: &Router| -> Vec<String> {
        let rows = router.rows(&["routes", "10.0.0.0/8"]);
        let name = |row: &Value| row["prefix"].as_str().unwrap().to_string();
        rows.iter().map(name).collect()
    };
    assert!(prefixes(&router).is_empty());
    // A route, an address and an interface more.
    let more = "[[route]]\nprefix = \"10.9.0.0/16\"\nvia = \"198.51.100.254\"\n[[interface]]\nport \
        = \"lan\"\nvlan = 7\naddresses = [\"10.7.0.1/24\"]\n";
    std::fs::write(&path, format!("{before}{more}")).unwrap();
    let text = router.say(&["reload"]);
    assert!(text.contains("1 route"), "{text}");
    assert_eq!(
        prefixes(&router)
            .iter()
            .filter(|p| *p == "10.9.0.0/16")
            .count(),
        1
    );
    assert_eq!(router.rows(&["interfaces"]).len(), 3);
    // Nothing of a file that is wrong.
    let wrong = "[[route]]\nprefix = \"10.8.0.0/16\"\nvia = \"198.51.100.254\"\n[[route]]\nprefix \
        = \"10.8.0.1/8\"\nvia = \"1.2.3.4\"\n";
    std::fs::write(&path, format!("{before}{wrong}")).unwrap();
    let text = router.refuse(&["reload"]);
    assert!(
        text.contains("router.toml:") && text.contains("bits set behind"),
        "{text}"
    );
    assert!(prefixes(&router).iter().any(|p| p == "10.9.0.0/16"));
    // What the program was started with.
    std::fs::write(&path, before.replace("[router]", "[router]\nroutes = 7")).unwrap();
    let text = router.refuse(&["reload"]);
    assert!(
        text.contains("[router]") && text.contains("restart"),
        "{text}"
    );
    // A signal does the same as the command.
    std::fs::write(&path, &before).unwrap();
    router.signal("HUP");
    wait("the first configuration again", || {
        prefixes(&router).is_empty()
    });
    assert_eq!(router.rows(&["interfaces"]).len(), 2);
    router.signal("TERM");
    router.end();
}

/// VRFs, ports and loopbacks are added and removed; an invalid one is refused, with the whole
/// reload.
#[test]
fn a_reload_adds_and_removes_ports_and_vrfs() {
    let scratch = Scratch::new();
    let path = config(&scratch, "ring:w", "ring:l", "");
    let router = Router::start(&scratch, &path);
    let before = std::fs::read_to_string(&path).unwrap();
    let names = |what: &str, key: &str| -> Vec<String> {
        let rows = router.rows(&[what]);
        let name = |row: &Value| row[key].as_str().unwrap_or("-").to_string();
        rows.iter().map(name).collect()
    };
    let vrf = "[[vrf]]\nname = \"blue\"\ntable = 10\n";
    let port = "[[port]]\nname = \"dmz\"\nspec = \"ring:d\"\n";
    let more = "[[interface]]\nport = \"dmz\"\nvrf = \"blue\"\naddresses = [\"192.0.2.1/24\"]\n\
                [[interface]]\nname = \"lo0\"\nloopback = true\naddresses = [\"10.255.0.1/32\"]\n\
                [[route]]\nvrf = \"blue\"\nprefix = \"10.9.0.0/16\"\nblackhole = true\n";
    std::fs::write(&path, format!("{before}{vrf}{port}{more}")).unwrap();
    let text = router.say(&["reload"]);
    assert!(
        text.contains("1 port, 1 VRF, 2 interfaces, 1 route"),
        "{text}"
    );
    assert_eq!(names("ports", "name"), ["wan", "lan", "dmz"]);
    assert_eq!(names("interfaces", "port"), ["wan", "lan", "dmz", "-"]);
    let of = |prefix: &str| router.rows(&["routes", prefix]);
    assert_eq!(of("10.9.0.0/16")[0]["vrf"], "blue");
    assert_eq!(of("10.255.0.1/32")[0]["to"][0], "local");
    // Another name for the VRF, the order of ports is no matter, and a port that cannot be opened.
    let green = format!("{before}{vrf}{port}{more}").replace("blue", "green");
    let broken = green.replace("ring:d", "pcap:rx=/no/such.pcap");
    std::fs::write(&path, broken).unwrap();
    let text = router.refuse(&["reload"]);
    assert!(text.contains("/no/such.pcap"), "{text}");
    assert_eq!(of("10.9.0.0/16")[0]["vrf"], "blue");
    assert_eq!(names("ports", "name"), ["wan", "lan", "dmz"]);
    std::fs::write(&path, &green).unwrap();
    let text = router.say(&["reload"]);
    assert_eq!(text, "changed: 1 VRF\n");
    assert_eq!(of("10.9.0.0/16")[0]["vrf"], "green");
    // Another specification is another port, on which the same interface is.
    std::fs::write(&path, green.replace("ring:d", "ring:e")).unwrap();
    let text = router.say(&["reload"]);
    assert!(text.contains("2 ports"), "{text}");
    assert_eq!(names("ports", "name"), ["wan", "lan", "dmz"]);
    std::fs::write(&path, &before).unwrap();
    router.say(&["reload"]);
    assert_eq!(names("ports", "name"), ["wan", "lan"]);
    assert_eq!(router.rows(&["interfaces"]).len(), 2);
    assert!(of("10.9.0.0/16").is_empty());
    assert_eq!(router.say(&["stop"]), "ending\n");
    router.end();
}

#[test]
fn metrics_are_read_over_http_on_the_loopback() {
    let scratch = Scratch::new();
    let path = config(&scratch, "ring:w", "ring:l", "");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("period", "metrics = \"127.0.0.1:0\"\nperiod");
    std::fs::write(&path, text).unwrap();
    let router = Router::start(&scratch, &path);
    let at = router.ready["metrics"].as_str().unwrap().to_string();
    let mut stream = TcpStream::connect(at).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(body.ends_with("# EOF\n"));
    for wanted in [
        "linerate_port_up{port=\"wan\"}",
        "linerate_interface_receive_packets_total{interface=\"lan\",vrf=\"default\"} 0",
        "linerate_routes{",
        "linerate_lcore_busy_seconds_total{lcore=\"io0\"",
        "linerate_reloads_total{outcome=\"done\"} 0",
    ] {
        assert!(body.contains(wanted), "no `{wanted}` in:\n{body}");
    }
    router.signal("INT");
    router.end();
}

/// A router that gets a frame every millisecond: to port 53 and to port 80 in turns, and every
/// tenth with a TTL of 1.
fn busy(scratch: &Scratch) -> Router {
    let frames: Vec<_> = (0..100)
        .map(|n| {
            let (ttl, port) = (
                if n % 10 == 9 { 1 } else { 64 },
                [53, 80][usize::from(n % 2)],
            );
            udp(
                (WAN, HOST),
                ([192, 0, 2, 9], 4000),
                ([10, 1, 2, n], port),
                ttl,
            )
        })
        .collect();
    let input = scratch.write("in.pcap", paced(&frames, 1000));
    let wan = format!("pcap:rx={input},loop=on,timing=original");
    let path = config(scratch, &wan, "null,rx=off", "");
    Router::start(scratch, &path)
}

#[test]
fn a_live_capture_has_the_packets_that_its_filter_matches() {
    let scratch = Scratch::new();
    let router = busy(&scratch);
    let file = scratch.file("x.pcapng");
    let base = [
        "capture",
        "--socket",
        &router.socket,
        "--filter",
        "udp port 53",
    ];
    let output = linerate(&[&base[..], &["--port", "wan", "-w", &file, "--count", "20"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("20 packets captured"), "{stderr}");
    let frames = frames_of(&file);
    assert_eq!(frames.len(), 20);
    for frame in &frames {
        assert_eq!(frame[36..38], [0, 53]);
    }
    // What passes each stage, and what it takes there.
    let path = router.rows(&["path", "cycles"]);
    let stage = |name: &str| path.iter().find(|row| row["stage"] == name).unwrap();
    for name in [
        "receive", "parse", "validate", "lookup", "rewrite", "transmit",
    ] {
        let row = stage(name);
        assert!(row["packets"].as_u64().unwrap() > 0, "{row}");
        assert!(row["cycles"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(stage("policer")["packets"], 0);
    assert!(path.iter().all(|row| row["unaccounted"] == 0), "{path:?}");
    let text = router.say(&["show", "path"]);
    assert!(text.starts_with("stage "), "{text}");
    let text = router.say(&["show", "ledger"]);
    let verdict = text.lines().last().unwrap();
    let is_even = verdict.starts_with("all ") && verdict.ends_with(" packets accounted for");
    assert!(is_even, "{text}");
    // As it goes out, to a pipe, cut short.
    let output = linerate(
        &[
            &base[..],
            &[
                "--port", "lan", "--stage", "sent", "-w", "-", "--count", "5", "--snap", "40",
            ],
        ]
        .concat(),
    );
    assert!(output.status.success());
    let mut reader = Reader::new(std::io::Cursor::new(output.stdout.clone())).unwrap();
    let mut count = 0;
    while let Some(frame) = reader.next().unwrap() {
        assert_eq!(frame.data.len(), 40);
        assert_eq!(frame.data[..6], GATEWAY);
        count += 1;
    }
    assert_eq!(count, 5);
    for (args, wanted) in [
        (&["--port", "wam"][..], "perhaps wan"),
        (&["--stage", "recieve"], "perhaps receive"),
        (&["--filter", "prot 53"], "prot"),
    ] {
        let file = scratch.file("refused.pcapng");
        let text = fails(&[&["capture", "--socket", &router.socket, "-w", &file], args].concat());
        assert!(text.contains(wanted), "{args:?}: {text}");
        assert!(!Path::new(&file).exists(), "{args:?} leaves a file");
    }
    router.signal("TERM");
    router.end();
}

#[test]
fn a_trace_says_why_a_packet_was_dropped() {
    let scratch = Scratch::new();
    let router = busy(&scratch);
    let text = router.say(&["trace", "--filter", "udp port 80", "--count", "30"]);
    assert!(text.contains("10.1.2."), "{text}");
    assert!(text.contains("ttl_exceeded"), "{text}");
    let lines = router.say(&["trace", "--count", "3", "--json"]);
    let packets: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(packets.len(), 4, "three packets and the summary: {lines}");
    assert!(!packets[0]["steps"].as_array().unwrap().is_empty());
    router.signal("TERM");
    router.end();
}

#[test]
fn reloads_under_load_lose_nothing() {
    let scratch = Scratch::new();
    let frames: Vec<_> = (0..64)
        .map(|n| udp((WAN, HOST), ([192, 0, 2, 9], 4000), ([10, 1, 2, n], 53), 64))
        .collect();
    let input = scratch.write("in.pcap", paced(&frames, 1000));
    let wan = format!("pcap:rx={input},loop=on");
    let path = config(&scratch, &wan, "null,rx=off", "");
    let before = std::fs::read_to_string(&path).unwrap();
    let router = Router::start(&scratch, &path);
    // Routes, an interface, an access list and a policer are added and removed; packets keep their
    // path.
    let rules: String = (0..200)
        .map(|n| format!("{{ action = \"deny\", source = \"10.2.{n}.0/24\" }},\n"))
        .collect();
    let routes: String = (0..200)
        .map(|n| format!("[[route]]\nprefix = \"10.3.{n}.0/24\"\nvia = \"198.51.100.254\"\n"))
        .collect();
    let more = format!(
        "[[acl]]\nname = \"edge\"\ndefault = \"permit\"\nrules = [\n{rules}]\n\
         {routes}[[interface]]\nport = \"lan\"\nvlan = 9\naddresses = [\"10.9.0.1/24\"]\n"
    );
    let changed = before.replace(
        "[[interface]]\nport = \"wan\"\n",
        "[[interface]]\nport = \"wan\"\nacl_in = \"edge\"\n",
    ) + &more;
    for round in 0..6 {
        std::fs::write(&path, if round % 2 == 0 { &changed } else { &before }).unwrap();
        let text = router.say(&["reload"]);
        assert!(text.contains("200 routes"), "{text}");
    }
    router.say(&["stop"]);
    let totals = router.end();
    let received = totals["ports"][0]["rx_packets"].as_u64().unwrap();
    let sent = totals["ports"][1]["tx_packets"].as_u64().unwrap();
    assert!(received > 1000, "{totals}");
    // Besides those of the flow there are the router's own: each reload announces addresses.
    assert!((received..received + 100).contains(&sent), "{totals}");
    for lcore in totals["lcores"].as_array().unwrap() {
        assert_eq!(lcore["drops"], serde_json::json!({}), "{totals}");
    }
    assert_eq!(totals["ports"][1]["tx_drops"], serde_json::json!({}));
}

#[test]
fn drain_ends_after_its_time_with_totals() {
    let scratch = Scratch::new();
    let router = busy(&scratch);
    let text = router.say(&["drain", "--seconds", "0.2"]);
    assert!(text.contains("0.2 s"), "{text}");
    let totals = router.end();
    assert!(totals["ports"][1]["tx_packets"].as_u64() > Some(0));
}

#[test]
fn without_a_router_ctl_says_how_to_start_one() {
    let scratch = Scratch::new();
    let socket = scratch.file("none.sock");
    for args in [
        &["ctl", "--socket", &socket, "show", "ports"][..],
        &["capture", "--socket", &socket, "-w", "/dev/null"],
    ] {
        let text = fails(args);
        assert!(
            text.contains("none.sock") && text.contains("linerate router"),
            "{text}"
        );
    }
}

/// The privilege helper serves only a router.
#[test]
fn the_helper_refuses_to_be_started_by_hand() {
    let scratch = Scratch::new();
    let file = scratch.write("c.toml", "[[port]]\nspec = \"null\"\n");
    let said = fails(&["privilege-helper", &file]);
    assert!(said.contains("linerate router CONF.toml"), "{said}");
    assert!(!String::from_utf8_lossy(&linerate(&["--help"]).stdout).contains("privilege-helper"));
}
