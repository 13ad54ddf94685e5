//! Translation of `linerate gateway` from outside: what `ctl show` and the page of metrics say of
//! it, and its records on their way from the worker to files and syslog.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::commands::udp;
use crate::instance::Instance;
use linerate_testkit::capture::paced;
use linerate_testkit::{Scratch, wait};
use serde_json::Value;

/// Hosts inside, of which 1 to 15 have blocks, 16 to 31 addresses of two, and the others a port
/// for each flow.
const HOSTS: u8 = 40;

/// The gateway's file: packets come in by `lan`, a capture in a loop.
fn site(scratch: &Scratch, frames: &[Vec<u8>], log: &str) -> String {
    let socket = scratch.file("ctl.sock");
    let capture = scratch.write("in.pcap", paced(frames, 100));
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
spec = "null,rx=off"
[[port]]
name = "lan"
spec = "pcap:rx={capture},loop=on"
[[interface]]
port = "wan"
addresses = ["192.0.2.1/24"]
[[interface]]
port = "lan"
addresses = ["10.0.0.1/24"]
[[route]]
prefix = "0.0.0.0/0"
via = "192.0.2.254"
[[neighbour]]
address = "192.0.2.254"
mac = "02:00:00:00:00:fe"
interface = "wan"
[flows]
ipv4 = 1000
ipv6 = 1000
[[zone]]
name = "inside"
interfaces = ["lan"]
[[zone]]
name = "outside"
interfaces = ["wan"]
[[policy]]
from = "inside"
to = "outside"
default = "permit"
[nat]
[[nat.pool]]
name = "blocks"
addresses = ["198.51.100.1"]
block = 32
[[nat.pool]]
name = "pair"
addresses = ["198.51.100.8-198.51.100.9"]
[[nat.pool]]
name = "each"
addresses = ["198.51.100.16"]
mapping = "dependent"
[[nat.pool]]
name = "tiny"
addresses = ["198.51.100.32"]
ports = "2000-2001"
[[nat.source]]
source = "10.0.0.0/28"
pool = "blocks"
[[nat.source]]
source = "10.0.0.16/28"
pool = "pair"
[[nat.source]]
source = "10.0.0.64/28"
pool = "tiny"
[[nat.source]]
source = "10.0.0.0/24"
pool = "each"
{log}"#
    );
    let file = scratch.file("gateway.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// The gateway's port 1, and the host that sends to it.
const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 1, 0, 1], [2, 0, 0, 0, 0, 0xaa]);

const SERVER: ([u8; 4], u16) = ([203, 0, 113, 1], 53);

fn host(number: u8) -> ([u8; 4], u16) {
    ([10, 0, 0, number], 4000 + u16::from(number))
}

/// A datagram of each host.
fn hosts() -> Vec<Vec<u8>> {
    (1..=HOSTS)
        .map(|number| udp(MACS, host(number), SERVER, 64))
        .collect()
}

fn start(scratch: &Scratch, frames: &[Vec<u8>], log: &str) -> Instance {
    let file = site(scratch, frames, log);
    Instance::listening(&["gateway", &file, "--json"], &scratch.file("ctl.sock"))
}

/// The rows of `ctl show` of something.
fn rows(gateway: &Instance, words: &str) -> Vec<Value> {
    let words: Vec<&str> = words.split(' ').collect();
    let shown = gateway.show(&words);
    shown["rows"].as_array().unwrap().clone()
}

/// The number of a sample of the page of metrics.
#[track_caller]
fn sample(gateway: &Instance, name: &str) -> u64 {
    let page = gateway.metrics();
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    value.trim().parse().unwrap()
}

#[test]
fn pools_mappings_and_subscribers_are_shown_by_filters_and_counted() {
    let scratch = Scratch::new();
    let mut frames = hosts();
    // More than a pool has ports for, and somebody who calls another inside by either address.
    frames.extend((64..68).map(|number| udp(MACS, host(number), SERVER, 64)));
    frames.extend([8, 9].map(|last| udp(MACS, host(20), ([198, 51, 100, last], host(21).1), 64)));
    let gateway = start(&scratch, &frames, "");
    // Two of the hosts of the tiny pool have its ports.
    wait("all mappings", || rows(&gateway, "mappings").len() == 33);
    wait("a call", || sample(&gateway, "linerate_nat_calls ") == 1);

    let pools = rows(&gateway, "nat");
    let names: Vec<&str> = pools
        .iter()
        .map(|pool| pool["pool"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["blocks", "pair", "each", "tiny"]);
    for (at, key, value) in [
        (0, "addresses", 1),
        (0, "mappings", 15),
        (0, "subscribers", 15),
        (0, "blocks", 15),
        (0, "refused", 0),
        (1, "addresses", 2),
        (1, "mappings", 16),
        (1, "subscribers", 16),
        (1, "blocks", 0),
        (1, "udp_used", 16),
        (1, "udp_free", 2 * 64512 - 16),
        (1, "tcp_used", 0),
        (1, "icmp_free", 2 * 64512),
        (2, "mappings", 0),
        (2, "udp_used", 9),
        (3, "udp_used", 2),
        (3, "udp_free", 0),
        (3, "tcp_free", 2),
    ] {
        assert_eq!(pools[at][key], value, "{key}: {}", pools[at]);
    }
    assert!(pools[3]["refused"].as_u64() > Some(0), "{}", pools[3]);
    for (words, many) in [
        ("nat pair", 1),
        ("nat 198.51.100.9", 1),
        ("nat 198.51.100.0/28", 2),
        ("nat 192.0.2.1", 0),
        ("mappings pair", 16),
        ("mappings 10.0.0.7", 1),
        ("mappings 10.0.0.0/28", 15),
        ("mappings 198.51.100.1", 15),
        ("mappings 4007", 1),
        ("mappings udp 10.0.0.0/28", 15),
        ("mappings tcp", 0),
        ("mappings blocks 10.0.0.16/28", 0),
        ("mappings tiny", 2),
        ("subscribers", 31),
        ("subscribers pair", 16),
        ("subscribers 10.0.0.7", 1),
        ("subscribers 198.51.100.1", 15),
        ("subscribers 10.0.0.40", 0),
    ] {
        let found = rows(&gateway, words);
        assert_eq!(found.len(), many, "{words}: {found:?}");
    }
    let mapping = &rows(&gateway, "mappings 10.0.0.21")[0];
    for (key, value) in [
        ("protocol", "udp"),
        ("inside", "10.0.0.21:4021"),
        ("pool", "pair"),
        ("zone", "inside"),
    ] {
        assert_eq!(mapping[key], value, "{mapping}");
    }
    assert_eq!(
        (&mapping["flows"], &mapping["worker"]),
        (&1.into(), &0.into())
    );
    let outside = mapping["outside"].as_str().unwrap();
    assert!(
        outside.starts_with("198.51.100.") && outside.ends_with(":4021"),
        "{outside}"
    );
    // A block: its first port, its step, and how many; its ports are searched as well.
    let one = &rows(&gateway, "subscribers 10.0.0.7")[0];
    assert_eq!(
        (&one["outside"], &one["ports"]),
        (&"198.51.100.1".into(), &1.into())
    );
    let block = one["blocks"].as_str().unwrap();
    let (first, rest) = block.split_once('+').unwrap();
    assert!(rest.ends_with("(32)"), "{block}");
    assert_eq!(
        rows(&gateway, &format!("subscribers {first} 10.0.0.7")).len(),
        1
    );
    // For people: a table, and what does not fit is told.
    let text = gateway.ctl(&["show", "mappings", "--limit", "5"]).unwrap();
    assert!(
        text.contains("28 more; ") && text.contains("inside"),
        "{text}"
    );
    for what in ["nat", "mappings", "subscribers"] {
        let wrong = gateway.ctl(&["show", what, "carrier"]).unwrap_err();
        assert!(wrong.contains("`carrier` is no pool"), "{wrong}");
        assert!(wrong.contains("show nat"), "{wrong}");
    }

    for (name, value) in [
        ("nat_ports_used{pool=\"pair\",protocol=\"udp\"}", 16),
        ("nat_ports_used{pool=\"each\",protocol=\"udp\"}", 9),
        ("nat_ports_free{pool=\"tiny\",protocol=\"udp\"}", 0),
        ("nat_ports_free{pool=\"tiny\",protocol=\"tcp\"}", 2),
        ("nat_pool_refused_total{pool=\"pair\"}", 0),
        ("nat_refused_total{why=\"nat_limit\"}", 0),
        ("nat_mappings", 33),
        ("nat_subscribers", 31),
    ] {
        assert_eq!(
            sample(&gateway, &format!("linerate_{name}")),
            value,
            "{name}"
        );
    }
    for name in [
        "nat_pool_refused_total{pool=\"tiny\"}",
        "nat_refused_total{why=\"nat_exhausted\"}",
        "nat_refused_total{why=\"nat_no_mapping\"}",
        "nat_refused_total{why=\"nat_filtered\"}",
    ] {
        assert!(sample(&gateway, &format!("linerate_{name}")) > 0, "{name}");
    }
    assert!(
        !gateway.metrics().contains("nat_log_records"),
        "there is no log"
    );
}

/// The next line on standard error that has this word.
#[track_caller]
fn hears(gateway: &mut Instance, word: &str) -> String {
    loop {
        let line = gateway.heard();
        assert!(!line.is_empty(), "it has ended");
        if line.contains(word) {
            return line;
        }
    }
}

/// How often each event is in lines of JSON.
fn events<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut events = BTreeMap::new();
    for line in lines {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let event = record["event"].as_str().unwrap();
        *events.entry(event.to_owned()).or_default() += 1;
    }
    events
}

/// What hosts are recorded by when all of them have begun.
fn begun() -> BTreeMap<String, usize> {
    [
        ("nat_block_begin", 15),
        ("nat_mapping_begin", 16),
        ("nat_session_begin", 9),
    ]
    .map(|(event, count)| (event.to_owned(), count))
    .into()
}

const WRITTEN: &str = "linerate_nat_log_records_total{result=\"written\"}";
const LOST: &str = "linerate_nat_log_records_total{result=\"lost\"}";

#[test]
fn records_go_from_the_worker_to_a_file_that_may_be_moved_and_removed() {
    let scratch = Scratch::new();
    let [path, moved] = ["nat.jsonl", "nat.jsonl.1"].map(|name| scratch.file(name));
    let log = format!("[nat.log]\nfile = \"{path}\"\n");
    let mut gateway = start(&scratch, &hosts(), &log);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    wait("all to be written", || read(&path).lines().count() == 40);
    wait("all to be counted", || sample(&gateway, WRITTEN) == 40);
    assert_eq!(sample(&gateway, LOST), 0);
    let text = read(&path);
    assert_eq!(events(text.lines()), begun());
    // A session says with whom, and when, by this machine's clock.
    let found = text.lines().find(|line| line.contains("10.0.0.40:4040"));
    let session: Value = serde_json::from_str(found.unwrap()).unwrap();
    assert_eq!(session["remote"], "203.0.113.1:53");
    assert!(
        session["outside"]
            .as_str()
            .unwrap()
            .starts_with("198.51.100.16:"),
        "{session}"
    );
    assert_eq!(
        (&session["protocol"], &session["worker"]),
        (&"udp".into(), &0.into())
    );
    let year = session["time"].as_str().unwrap()[..4]
        .parse::<u32>()
        .unwrap();
    assert!(year >= 2024, "{session}");

    // Moved away, it is written on to until somebody says so: then there is another.
    std::fs::rename(&path, &moved).unwrap();
    gateway.ctl(&["clear", "flows", "10.0.0.40"]).unwrap();
    wait("an end and a beginning", || {
        read(&moved).lines().count() == 42
    });
    assert!(!std::path::Path::new(&path).exists());
    if !gateway.hang_up().contains("reload") {
        hears(&mut gateway, "reload");
    }
    gateway.ctl(&["clear", "flows", "10.0.0.39"]).unwrap();
    wait("another file", || read(&path).lines().count() == 2);
    let ends: BTreeMap<String, usize> = [("nat_session_begin", 1), ("nat_session_end", 1)]
        .map(|(event, count)| (event.into(), count))
        .into();
    assert_eq!(events(read(&path).lines()), ends);
    assert_eq!(read(&moved).lines().count(), 42);
    // Removed: another reload makes it anew.
    std::fs::remove_file(&path).unwrap();
    gateway.ctl(&["reload"]).unwrap();
    gateway.ctl(&["clear", "flows", "all"]).unwrap();
    wait("one more", || read(&path).lines().count() == 80);
    assert_eq!(sample(&gateway, LOST), 0);
}

#[test]
fn records_that_workers_have_no_room_for_are_counted() {
    let scratch = Scratch::new();
    let path = scratch.file("nat.jsonl");
    let log = format!("[nat.log]\nfile = \"{path}\"\nsize = 16\n");
    // They come within a few milliseconds.
    let gateway = start(&scratch, &hosts(), &log);
    wait("all to be counted", || {
        sample(&gateway, WRITTEN) + sample(&gateway, LOST) == 40
    });
    assert!(sample(&gateway, LOST) > 0);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count() as u64, sample(&gateway, WRITTEN));
    // Those that were written are whole, and nobody had to wait for the others.
    events(text.lines());
    assert_eq!(rows(&gateway, "mappings").len(), 31);
}

/// The JSON of a message of RFC 5424.
#[track_caller]
fn message(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).unwrap();
    let (head, json) = text.split_once('{').unwrap();
    assert!(head.starts_with("<134>1 20"), "{text}");
    assert_eq!(head.split(' ').count(), 8, "{text}");
    format!("{{{json}")
}

#[test]
fn records_go_from_the_worker_to_syslog_over_udp() {
    let scratch = Scratch::new();
    let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
    daemon
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let log = format!("[nat.log]\nsyslog = \"{}\"\n", daemon.local_addr().unwrap());
    let gateway = start(&scratch, &hosts(), &log);
    let mut bytes = [0; 2000];
    let lines: Vec<String> = (0..40)
        .map(|_| {
            let len = daemon.recv(&mut bytes).unwrap();
            message(&bytes[..len])
        })
        .collect();
    assert_eq!(events(lines.iter().map(String::as_str)), begun());
    wait("all to be counted", || sample(&gateway, WRITTEN) == 40);
    assert_eq!(sample(&gateway, LOST), 0);
}

#[test]
fn syslog_that_goes_is_told_of_once_and_used_again_when_it_is_back() {
    let scratch = Scratch::new();
    let path = scratch.file("log");
    let listen = || {
        let daemon = UnixDatagram::bind(&path).unwrap();
        // As /dev/log: the gateway may be another user.
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let patience = Some(Duration::from_secs(30));
        daemon.set_read_timeout(patience).unwrap();
        daemon
    };
    let daemon = listen();
    let log = format!("[nat.log]\nsyslog = \"{path}\"\n");
    let records = |daemon: &UnixDatagram, many: usize| -> Vec<String> {
        let mut bytes = [0; 2000];
        let one = |_| {
            let len = daemon.recv(&mut bytes).unwrap();
            message(&bytes[..len])
        };
        (0..many).map(one).collect()
    };
    // It reads from the start: such a socket holds few messages.
    let reader = std::thread::spawn(move || records(&daemon, 40));
    let mut gateway = start(&scratch, &hosts(), &log);
    let lines = reader.join().unwrap();
    assert_eq!(events(lines.iter().map(String::as_str)), begun());
    std::fs::remove_file(&path).unwrap();
    for lost in [2, 4] {
        gateway.ctl(&["clear", "flows", "10.0.0.40"]).unwrap();
        wait("lost records", || sample(&gateway, LOST) == lost);
    }
    let told = hears(&mut gateway, "nat.log");
    assert!(
        told.contains(&format!("nat.log: syslog at {path}: ")),
        "{told}"
    );
    assert!(told.contains("records are lost, and counted"), "{told}");
    // Traffic has gone on: the flow is there again.
    assert_eq!(rows(&gateway, "flows 10.0.0.40").len(), 1);
    let daemon = listen();
    gateway.ctl(&["clear", "flows", "10.0.0.40"]).unwrap();
    let lines = records(&daemon, 2);
    assert_eq!(
        events(lines.iter().map(String::as_str)).len(),
        2,
        "{lines:?}"
    );
    assert_eq!(sample(&gateway, LOST), 4);
    // It was told once.
    gateway.ctl(&["stop"]).unwrap();
    loop {
        let line = gateway.heard();
        assert!(!line.contains("records are lost"), "{line}");
        if line.is_empty() {
            break;
        }
    }
}
