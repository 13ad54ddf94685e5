//! `linerate l3fwd` from outside: captures in, captures out, byte for byte; rule files, and the
//! errors of bad ones.

use std::process::{Command, Output};

use etherparse::PacketBuilder;
use serde_json::Value;

use crate::instance::Instance;
use linerate_testkit::Scratch;
use linerate_testkit::capture::{frames_of, pcap};

fn output(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.arg("l3fwd").args(args);
    command.output().expect("the binary runs")
}

/// The totals of a run that must succeed without a word on stderr.
fn totals(args: &[&str]) -> Value {
    let output = output(&[args, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "{args:?}: {stderr}"
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

/// Standard error of a command that must fail.
fn refused(args: &[&str]) -> String {
    let output = output(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?} printed something");
    stderr
}

const FROM: ([u8; 6], [u8; 6]) = ([2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2]);

/// The frame of one packet, built by etherparse from these addresses and this life.
fn udp(
    macs: ([u8; 6], [u8; 6]),
    dst: [u8; 4],
    (src_port, dst_port): (u16, u16),
    ttl: u8,
) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv4([10, 0, 0, 1], dst, ttl)
        .udp(src_port, dst_port)
        .write(&mut frame, &[0x5a; 40])
        .unwrap();
    frame
}

fn udp6(macs: ([u8; 6], [u8; 6]), net: u8, hops: u8) -> Vec<u8> {
    let mut dst = [0; 16];
    dst[..8].copy_from_slice(&[0x20, 1, 2, 0, 0, 0, 0, net]);
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(macs.0, macs.1)
        .ipv6([0xfd; 16], dst, hops)
        .udp(9, 9)
        .write(&mut frame, &[0x5a; 40])
        .unwrap();
    frame
}

/// Addresses of what port N sends: to 02:00:00:00:00:N, from 02:00:00:00:01:N.
fn next(port: u8) -> ([u8; 6], [u8; 6]) {
    ([2, 0, 0, 0, 1, port], [2, 0, 0, 0, 0, port])
}

/// Plays frames into port 0 of three; what the two others sent, and the totals.
fn forward(scratch: &Scratch, frames: &[Vec<u8>], more: &[&str]) -> ([Vec<Vec<u8>>; 2], Value) {
    let input = scratch.write("in.pcap", pcap(frames));
    let [one, two] = ["1.pcapng", "2.pcapng"].map(|name| scratch.file(name));
    let ports = [
        format!("pcap:rx={input}"),
        format!("pcap:tx={one}"),
        format!("pcap:tx={two}"),
    ];
    let ports = ports.each_ref().map(String::as_str);
    let totals = totals(&[&ports[..], more].concat());
    ([frames_of(&one), frames_of(&two)], totals)
}

fn dropped(totals: &Value) -> &Value {
    &totals["lcores"][0]["drops"]
}

#[test]
fn routes_of_both_families_from_rule_files_forward_byte_for_byte() {
    let scratch = Scratch::new();
    let v4 = scratch.write(
        "v4.cfg",
        "# routes\nR198.18.1.0/24 1\nR198.18.0.0/16 2\n\nR198.18.1.128/25 2\n",
    );
    let v6 = scratch.write("v6.cfg", "R2001:200:0:1::/64 1\nR2001:200::/32 2\n");
    let (mut frames, mut wanted) = (Vec::new(), [Vec::new(), Vec::new()]);
    for number in 0..200_u8 {
        let ttl = 2 + number;
        let (dst, port) = match number % 4 {
            0 => ([198, 18, 1, number % 128], 1),
            1 => ([198, 18, 1, 128 | number], 2),
            2 => ([198, 18, number, 1], if number == 1 { 1 } else { 2 }),
            _ => ([198, 19, 0, number], 0),
        };
        frames.push(udp(FROM, dst, (9, 9), ttl));
        if port > 0 {
            wanted[port - 1].push(udp(next(port as u8), dst, (9, 9), ttl - 1));
        }
        let net = 1 + number % 2;
        frames.push(udp6(FROM, net, ttl));
        wanted[usize::from(net) - 1].push(udp6(next(net), net, ttl - 1));
    }
    for lookup in ["lpm", "fib"] {
        let rules = ["--lookup", lookup, "--rule_ipv4", &v4, "--rule-ipv6", &v6];
        let (sent, totals) = forward(&scratch, &frames, &rules);
        assert_eq!(sent, wanted, "{lookup}");
        assert_eq!(dropped(&totals)["no_route"], 50);
        assert_eq!(totals["ports"][0]["rx_packets"], 400);
        assert_eq!(totals["ports"][1]["tx_packets"], wanted[0].len());
    }
}

#[test]
fn flows_from_a_rule_file_and_the_next_hop_from_an_option() {
    let scratch = Scratch::new();
    let v4 = scratch.write("v4.cfg", "R198.18.0.7 10.0.0.1 53 1000 0x11 1\n");
    let frames = [
        udp(FROM, [198, 18, 0, 7], (1000, 53), 64),
        udp(FROM, [198, 18, 0, 7], (1000, 54), 64),
        udp(FROM, [198, 18, 0, 7], (1000, 53), 1),
    ];
    let options = [
        "--lookup=em",
        "--rule-ipv4",
        &v4,
        "--eth-dest=1,02:00:00:00:00:fe",
        "--eth-src=1,02:00:00:00:00:fd",
    ];
    let (sent, totals) = forward(&scratch, &frames, &options);
    let macs = ([2, 0, 0, 0, 0, 0xfd], [2, 0, 0, 0, 0, 0xfe]);
    assert_eq!(sent[0], [udp(macs, [198, 18, 0, 7], (1000, 53), 63)]);
    assert!(sent[1].is_empty());
    let drops = dropped(&totals);
    assert_eq!(
        (&drops["no_route"], &drops["ttl_expired"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn an_access_list_forwards_and_denies() {
    let scratch = Scratch::new();
    let v4 = scratch.write(
        "v4.cfg",
        "@10.0.0.1/32 198.18.0.0/24 0 : 65535 53 : 53 0x11/0xff\n\
         R0.0.0.0/0 198.18.0.0/16 0 : 65535 0 : 65535 0x00/0x00 2\n",
    );
    let frames = [
        udp(FROM, [198, 18, 0, 7], (1000, 53), 64),
        udp(FROM, [198, 18, 0, 7], (1000, 54), 64),
        udp(FROM, [198, 19, 0, 7], (1000, 54), 64),
    ];
    let (sent, totals) = forward(&scratch, &frames, &["--lookup=acl", "--rule_ipv4", &v4]);
    assert_eq!(sent[1], [udp(next(2), [198, 18, 0, 7], (1000, 54), 63)]);
    let drops = dropped(&totals);
    assert_eq!(
        (&drops["no_route"], &drops["acl_deny"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn the_same_from_a_configuration_file() {
    let scratch = Scratch::new();
    let frames = [
        udp(FROM, [198, 18, 1, 7], (1, 2), 64),
        udp(FROM, [198, 18, 2, 7], (1, 2), 64),
    ];
    let input = scratch.write("in.pcap", pcap(&frames));
    let output = scratch.file("out.pcapng");
    let config = format!(
        "[[port]]\nname = \"wan\"\nspec = \"pcap:rx={input}\"\n\
         [[port]]\nname = \"lan\"\nspec = \"pcap:tx={output}\"\n\
         [l3fwd]\nlookup = \"lpm\"\neth_dest = [\"lan,02:00:00:00:00:fe\"]\n\
         [[route]]\ndestination = \"198.18.1.0/24\"\nport = \"lan\"\n\
         [[route]]\ndestination = \"198.18.2.0/24\"\nport = 1\nmac = \"02:00:00:00:00:fd\"\n"
    );
    let config = scratch.write("l3fwd.toml", config);
    totals(&["--config", &config]);
    let to = |last: u8| ([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 0, last]);
    let wanted = [
        udp(to(0xfe), [198, 18, 1, 7], (1, 2), 63),
        udp(to(0xfd), [198, 18, 2, 7], (1, 2), 63),
    ];
    assert_eq!(frames_of(&output), wanted);
}

#[test]
fn two_lcores_share_the_table_and_lose_nothing() {
    let scratch = Scratch::new();
    let frames: Vec<_> = (0..1000_u16)
        .map(|number| udp(FROM, [198, 18, (number % 3) as u8, 1], (number, 9), 64))
        .collect();
    let input = scratch.write("in.pcap", pcap(&frames));
    let output = scratch.file("out.pcapng");
    let [rx, tx] = [
        format!("pcap:rx={input},queues=2"),
        format!("pcap:tx={output},queues=2"),
    ];
    // Both queues play the whole file; the first port has no way out of itself but to be counted.
    let args = [&rx, &tx, "--queues=2", "--io=0-1", "--cpus=0,0"].map(|text: &str| text);
    let totals = totals(&args);
    let lcores = totals["lcores"].as_array().unwrap();
    assert_eq!(lcores.len(), 2);
    let no_route: u64 = lcores
        .iter()
        .map(|lcore| lcore["drops"]["no_route"].as_u64().unwrap())
        .sum();
    assert_eq!(no_route, 2 * 333);
    assert_eq!(totals["ports"][1]["tx_packets"], 2 * 333);
    assert_eq!(totals["ports"][0]["tx_packets"], 2 * 334);
}

#[test]
fn all_errors_of_rule_files_come_at_once_with_line_and_legal_values() {
    let scratch = Scratch::new();
    let v4 = scratch.write(
        "v4.cfg",
        "R198.18.0.0/24 0\nR198.18.0.0/33 0\nR198.18.1.0/24 7\nhello\nR198.18.0.0/24 1\n",
    );
    let v6 = scratch.write("v6.cfg", "R198.18.0.0/24 0\n");
    let toml = scratch.write(
        "l3.toml",
        "[l3fwd]\nlokup = \"lpm\"\n[[route]]\ndestination = \"::/0\"\nport = 9\n[[flow]]\n",
    );
    let rules = ["--rule-ipv4", &v4, "--rule-ipv6", &v6];
    let said = refused(&[&["null:", "null:", "--config", &toml], &rules[..]].concat());
    for wanted in [
        format!("{v4}:2: destination: `198.18.0.0/33` has no length between 0 and 32; a length"),
        format!("{v4}:3: port: no port `7`; the ports are 0 null, 1 null"),
        format!("{v4}:4: the line does not begin with R; begin it with R"),
        format!("{v4}:5: the route of {v4}:1 has this 198.18.0.0/24 already; remove one"),
        format!("{v6}:1: destination: `198.18.0.0/24` is no IPv6 prefix; write"),
        format!("{toml}:2: l3fwd.lokup: there is no such key; perhaps lookup"),
        format!("{toml}:5: route.port: no port `9`; the ports are 0 null, 1 null"),
        format!("{toml}:6: flow.destination: it is missing; an address"),
    ] {
        assert!(said.contains(&wanted), "{wanted}\nnot in\n{said}");
    }
    // A flow without keys lacks all six.
    assert!(said.contains(": 13 things are wrong\n"), "{said}");
    assert!(
        said.contains("fix: correct these lines; `linerate l3fwd --config"),
        "{said}"
    );
}

#[test]
fn wrong_options_are_refused_with_a_fix() {
    let scratch = Scratch::new();
    let said = refused(&["null:", "--lookup=acl"]);
    assert!(
        said.contains("forwards nothing") && said.contains("--rule-ipv4"),
        "{said}"
    );
    let said = refused(&["null:", "--eth-dest", "1,02:00:00:00:00:01"]);
    assert!(
        said.contains("no port `1`") && said.contains("0 null"),
        "{said}"
    );
    let said = refused(&["null:", "--rule-ipv4", "/no/such/file"]);
    assert!(said.contains("/no/such/file"), "{said}");
    let toml = scratch.write(
        "x.toml",
        "[[port]]\nspec = \"null:\"\n[[route]]\nprefix = \"::/0\"\n",
    );
    let said = refused(&["--config", &toml]);
    assert!(said.contains("x.toml") && said.contains("prefix"), "{said}");
}

/// What a packet looked like at each stage, and what the stages cost.
#[test]
fn a_run_counts_packets_at_each_stage() {
    let scratch = Scratch::new();
    let frames = [
        udp(FROM, [198, 18, 1, 1], (9, 9), 64),
        udp(FROM, [198, 18, 1, 1], (9, 80), 1),
    ];
    let input = scratch.write("in.pcap", pcap(&frames));
    let port = format!("pcap:rx={input},loop=on");
    let run = Instance::start(&["l3fwd", &port, "null,rx=off"], &scratch.file("ctl"));
    let ask = |words: &[&str]| run.ctl(words).unwrap();
    let text = ask(&["trace", "--count", "1", "--filter", "port 80"]);
    let said: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
    let wanted = [
        "parse: unchanged",
        "lookup: unchanged",
        "rewrite: unchanged",
        "transmit: unchanged",
        "dropped: ttl_expired",
        "1 packets",
    ];
    assert_eq!(said, wanted, "{text}");
    let text = ask(&[
        "trace",
        "--count",
        "1",
        "--filter",
        "port 9 and not port 80",
    ]);
    // Drops have their reasons.
    let file = scratch.file("dropped.pcapng");
    let what = ["--stage", "drop", "--count", "3", "-w", &file];
    run.ask("capture", &what).unwrap();
    assert_eq!(frames_of(&file), vec![frames[1].clone(); 3]);
    let bytes = std::fs::read(&file).unwrap();
    let comment = b"dropped: ttl_expired";
    let comments = bytes.windows(comment.len()).filter(|at| at == comment);
    assert_eq!(comments.count(), 3);
    let rewritten = "  transmit: 02:00:00:00:01:01 > 02:00:00:00:00:01, \
        10.0.0.1:9 > 198.18.1.1:9 udp, hops 63, ";
    assert!(text.contains(rewritten), "{text}");
    assert!(text.contains("\n  sent by null\n"), "{text}");
    let path = run.show(&["path", "cycles"]);
    let rows = path["rows"].as_array().unwrap();
    let stages: Vec<&str> = rows
        .iter()
        .map(|row| row["stage"].as_str().unwrap())
        .collect();
    let wanted = [
        "pipeline", "parse", "lookup", "rewrite", "transmit", "sent", "drop",
    ];
    assert_eq!(stages, wanted);
    for row in &rows[..5] {
        assert!(row["cycles"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["unaccounted"], 0);
    }
    let text = ask(&["show", "ledger"]);
    assert!(text.contains("io0: stage `lookup`"), "{text}");
    assert!(text.ends_with(" packets accounted for"), "{text}");
    assert_eq!(run.totals()["ledger"]["even"], true);
}

/// A configuration of three ports, the first of which plays a capture endlessly.
fn looped(input: &str, more: &str) -> String {
    format!(
        "[[port]]\nname = \"in\"\nspec = \"pcap:rx={input},loop=on\"\n\
         [[port]]\nname = \"lan\"\nspec = \"null,rx=off\"\n\
         [[port]]\nname = \"dmz\"\nspec = \"null,rx=off\"\n{more}"
    )
}

fn route(destination: &str, port: &str) -> String {
    format!("[[route]]\ndestination = \"{destination}\"\nport = \"{port}\"\n")
}

/// What the page of metrics says of reloads, however they were asked for.
#[track_caller]
fn reloads_are_counted(run: &Instance, done: u64, refused: u64, is_last_refused: bool) {
    let page = run.metrics();
    for line in [
        format!("linerate_reloads_total{{outcome=\"done\"}} {done}\n"),
        format!("linerate_reloads_total{{outcome=\"refused\"}} {refused}\n"),
        format!(
            "linerate_last_reload_refused {}\n",
            u8::from(is_last_refused)
        ),
    ] {
        assert!(page.contains(&line), "{line}{page}");
    }
    let took = page.split("\nlinerate_last_reload_seconds ").nth(1);
    let took = took.and_then(|rest| rest.lines().next()?.parse::<f64>().ok());
    assert!(took.is_some_and(|seconds| seconds > 0.0), "{page}");
}

#[test]
fn a_reload_exchanges_the_tables_without_loss_and_says_what_differs() {
    let scratch = Scratch::new();
    let frames = [1, 2].map(|net| udp(FROM, [198, 18, net, 7], (1, 2), 64));
    let input = scratch.write("in.pcap", pcap(&frames));
    let rules = scratch.write("v4.cfg", "R198.18.2.0/24 1\n");
    let own = format!("[l3fwd]\nrule_ipv4 = \"{rules}\"\n");
    let text = |routes: [String; 2]| looped(&input, &(own.clone() + &routes.concat()));
    let [one, other] = [
        text([route("198.18.1.0/24", "lan"), route("10.0.0.0/8", "lan")]),
        text([route("198.18.1.0/24", "dmz"), route("10.1.0.0/16", "lan")]),
    ];
    let config = scratch.write("l3fwd.toml", &one);
    let mut run = Instance::start(&["l3fwd", "--config", &config], &scratch.file("l3fwd.sock"));
    assert_eq!(run.ctl(&["reload"]).unwrap(), "nothing changed");
    for text in [&other, &one].into_iter().cycle().take(8) {
        std::fs::write(&config, text).unwrap();
        let said = run.ctl(&["reload"]).unwrap();
        assert_eq!(said, "changed: 2 routes added, 2 routes removed");
    }
    // The rule file, too, and a signal does as well.
    std::fs::write(&rules, "R198.18.2.0/24 2\n").unwrap();
    let said = run.hang_up();
    assert_eq!(said, "reload: changed: 1 route added, 1 route removed");
    std::fs::write(&rules, "R198.18.2.0/24 1\nR198.18.4.0/24 1\n").unwrap();
    let answer: Value = serde_json::from_str(&run.ctl(&["reload", "--json"]).unwrap()).unwrap();
    assert_eq!(
        (&answer["routes_added"], &answer["routes_removed"]),
        (&2.into(), &1.into())
    );
    let mac = "eth_dest = [\"lan,02:00:00:00:00:fe\"]\n[[route]]";
    std::fs::write(&config, one.replacen("[[route]]", mac, 1)).unwrap();
    assert_eq!(run.ctl(&["reload"]).unwrap(), "changed: 1 MAC setting");
    reloads_are_counted(&run, 12, 0, false);
    let totals = run.totals();
    let packets = |port: usize, key: &str| totals["ports"][port][key].as_u64().unwrap();
    let sent = [1, 2].map(|port| packets(port, "tx_packets"));
    assert!(sent[0] > 0 && sent[1] > 0, "{sent:?}");
    assert_eq!(packets(0, "rx_packets"), sent[0] + sent[1], "{totals}");
}

#[test]
fn a_reload_of_a_wrong_file_names_all_errors_and_changes_nothing() {
    let scratch = Scratch::new();
    let input = scratch.write("in.pcap", pcap(&[udp(FROM, [198, 18, 1, 7], (1, 2), 64)]));
    let good = looped(&input, &route("198.18.1.0/24", "lan"));
    let config = scratch.write("l3fwd.toml", &good);
    let mut run = Instance::start(&["l3fwd", "--config", &config], &scratch.file("l3fwd.sock"));
    let refused = |text: &str| {
        std::fs::write(&config, text).unwrap();
        run.ctl(&["reload"]).unwrap_err()
    };
    let said = refused(&(good.clone() + &route("198.18.1.0/33", "dmy")));
    for wanted in [
        ":14: route.destination: `198.18.1.0/33` has no length",
        ":15: route.port: no port `dmy`; the ports are 0 in, 1 lan, 2 dmz",
    ] {
        assert!(said.contains(wanted), "{wanted} not in {said}");
    }
    // What cannot change is named.
    let plan = "[plan]\nio = \"0\"\n[l3fwd]\nburst = 8\nqueues = 1\n";
    let said = refused(
        &(good
            .replace("lan\"\nspec", "wan\"\nspec")
            .replace("\"lan\"", "1")
            + plan),
    );
    for key in ["[plan]", "[[port]]", "l3fwd.queues", "l3fwd.burst"] {
        assert!(said.contains(&format!("{key} is another")), "{said}");
    }
    let said = refused(&(good.clone() + "[l3fwd]\nlookup = \"fib\"\n"));
    assert!(said.contains("l3fwd.lookup is another"), "{said}");
    std::fs::write(&config, "[[rout]]\n").unwrap();
    let said = run.hang_up();
    assert!(said.starts_with("reload refused: "), "{said}");
    assert!(run.heard().starts_with("fix: "));
    reloads_are_counted(&run, 0, 4, true);
    std::fs::write(&config, &good).unwrap();
    assert_eq!(run.ctl(&["reload"]).unwrap(), "nothing changed");
    reloads_are_counted(&run, 1, 4, false);
    let totals = run.totals();
    assert_eq!(
        totals["ports"][0]["rx_packets"],
        totals["ports"][1]["tx_packets"]
    );
}

#[test]
fn a_file_is_checked_without_touching_anything() {
    let scratch = Scratch::new();
    let text = "[[port]]\nname = \"wan\"\nspec = \"pcap:rx=/no/such/file\"\n[[route]]\n\
                destination = \"::/0\"\nport = \"wan\"\n";
    let config = scratch.write("l3fwd.toml", text);
    let output = output(&["--config", &config, "--check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let port = "port 0 wan (pcap:rx=/no/such/file) -> lpm, 0 IPv4 and 1 IPv6 entries\n";
    assert!(
        said.starts_with(port) && said.contains("lcore io"),
        "{said}"
    );
}
