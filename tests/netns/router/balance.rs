//! Counters, as users read them: they add up, they can be cleared, and losses to a full disk are
//! counted.

use super::instance::{Router, two_ports};
use super::site::{FAR_GATE4, LEFT4, RIGHT4, RIGHT6, Site};
use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::netns::Namespace;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

pub(crate) const TESTS: &[Test] = tests![
    every_packet_is_in_a_counter_that_users_see,
    clear_resets_tables_and_neither_metrics_nor_workers_counters,
    a_full_disk_under_a_capture_is_reported_at_once,
];

/// Numbers by what they count.
type Counts = BTreeMap<String, u64>;

/// The rows of one side of the summary.
fn side(summary: &Value, side: &str) -> Counts {
    let rows = summary["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["side"] == side)
        .map(|row| {
            let what = row["what"].as_str().unwrap();
            (what.to_owned(), row["packets"].as_u64().unwrap())
        })
        .collect()
}

/// The samples of a family, by their labels.
fn samples(page: &str, family: &str) -> Counts {
    let samples = page.lines().filter_map(|line| line.strip_prefix(family));
    let sample = |rest: &str| {
        let (labels, value) = rest.rsplit_once(' ')?;
        labels
            .starts_with('{')
            .then(|| (labels.to_owned(), value.parse().unwrap()))
    };
    samples.filter_map(sample).collect()
}

fn page(namespace: &Namespace) -> String {
    let stream = namespace.inside(|| TcpStream::connect("127.0.0.1:9108"));
    let mut stream = stream.unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The sum of a family's samples whose labels contain a text.
fn total(page: &str, family: &str, label: &str) -> u64 {
    let all = samples(page, family);
    let of = all.iter().filter(|(labels, _)| labels.contains(label));
    of.map(|(_, value)| value).sum()
}

/// A site's router with everything that makes or ends packets: reassembly and fragmentation, a
/// shorter link, routes that lead nowhere.
fn config() -> String {
    "metrics = \"127.0.0.1:9108\"\n".to_owned()
        + &two_ports("af_packet", "reassemble = true", "mtu = 1280")
        + "\n[[route]]\nprefix = \"10.77.0.0/16\"\nblackhole = true\n"
}

/// Traffic of every fate.
fn traffic(site: &Site) {
    site.works();
    let pings = [
        ("-c 3 -i 0.05 -W 2 -s 3000", RIGHT4),
        ("-c 3 -i 0.05 -W 2 -s 1240 -M dont", RIGHT4),
        ("-c 3 -i 0.05 -W 2 -s 1400", RIGHT6),
        ("-c 2 -i 0.05 -W 1 -t 1", RIGHT4),
        ("-c 2 -i 0.05 -W 1", "10.77.0.1"),
        ("-c 2 -i 0.05 -W 1", "198.51.100.1"),
        ("-c 2 -i 0.05 -W 1", "10.2.0.99"),
        ("-c 3 -i 0.05 -W 2 -s 3000", FAR_GATE4),
    ]
    .map(|(words, to)| site.left.start("ping", &format!("-n -q {words} {to}")));
    for mut ping in pings {
        ping.end();
    }
}

/// Packets received from ports and the kernel or made here equal those sent, handed to the kernel,
/// dropped with a reason or consumed here, by the figures of `ctl` and the metrics page alone.
fn every_packet_is_in_a_counter_that_users_see() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &config());
    traffic(&site);
    let mut summary = Value::Null;
    let sum = |counts: &Counts| counts.values().sum::<u64>();
    // Some packets keep coming, such as neighbour solicitations: wait until none is under way.
    wait("the sums to agree", || {
        summary = router.show("summary");
        let [came, went, inside] = ["in", "out", "now"].map(|name| side(&summary, name));
        sum(&came) == sum(&went) + sum(&inside) && inside["under_way"] == 0
    });
    let (came, went) = (side(&summary, "in"), side(&summary, "out"));
    for what in [
        "received",
        "from_host",
        "messages",
        "neighbour_messages",
        "fragments_made",
        "reassembled",
    ] {
        assert!(came[what] > 0, "{what}: {summary}");
    }
    for what in [
        "sent",
        "to_host",
        "dropped",
        "neighbour_questions",
        "fragmented",
        "fragments_used",
    ] {
        assert!(went[what] > 0, "{what}: {summary}");
    }
    // The page has the same figures, as sums and in parts, and the kernel received what was handed
    // to it.
    let mut page = String::new();
    wait("the page's sums to agree", || {
        page = self::page(&site.mid);
        let of = |side: &str| {
            let label = format!("side=\"{side}\"");
            total(&page, "linerate_balance_packets_total", &label)
        };
        of("in") == of("out") + total(&page, "linerate_held_packets", "")
    });
    let balance = |what: &str| {
        let label = format!("what=\"{what}\"");
        total(&page, "linerate_balance_packets_total", &label)
    };
    for (part, whole) in [
        ("linerate_port_receive_packets_total", "received"),
        ("linerate_port_transmit_packets_total", "sent"),
        ("linerate_host_transmit_packets_total", "to_host"),
        ("linerate_host_receive_packets_total", "from_host"),
        ("linerate_drops_packets_total", "dropped"),
    ] {
        assert_eq!(total(&page, part, ""), balance(whole), "{part}\n{page}");
    }
    let drops = [
        "linerate_port_drops_packets_total",
        "linerate_host_drops_packets_total",
    ];
    let lost = drops.map(|family| total(&page, family, "direction=\"transmit\""));
    assert_eq!(
        lost.iter().sum::<u64>(),
        balance("dropped_by_ports"),
        "{page}"
    );
    wait("the kernel's counters and ours to agree", || {
        let before = site.mid.rx_packets("lr-");
        let to_host = side(&router.show("summary"), "out")["to_host"];
        before == to_host && site.mid.rx_packets("lr-") == to_host
    });
    let by_interface = router.show("interfaces");
    let rows = by_interface["rows"].as_array().unwrap();
    assert!(
        rows.iter()
            .all(|row| row["to_host_packets"].as_u64() > Some(0))
    );
    router.stop();
}

/// `clear` resets the tables for users; the page, from which rates are computed, and the workers'
/// counters continue.
fn clear_resets_tables_and_neither_metrics_nor_workers_counters() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let router = Router::start(&site.mid, &scratch, &config());
    site.works();
    let lost = "-n -q -c 2 -i 0.05 -W 1 10.77.0.1";
    assert!(!site.left.run("ping", lost).status.success());
    let many = format!("-n -q -c 20 -i 0.01 -W 5 {RIGHT4}");
    assert!(site.left.run("ping", &many).status.success());
    let count = |what: &str, name: &str, key: &str| {
        let shown = router.show(what);
        let rows = shown["rows"].as_array().unwrap().clone();
        let row = rows.into_iter().find(|row| row["name"] == name);
        row.and_then(|row| row[key].as_u64()).unwrap()
    };
    let before = [
        count("interfaces", "a", "in_packets"),
        count("ports", "b", "tx_packets"),
        count("lcores", "io0", "packets"),
    ];
    assert!(before.iter().all(|count| *count > 20), "{before:?}");
    let page_before = page(&site.mid);
    assert!(router.dropped("blackhole") >= 2);
    assert!(router.ctl("clear counters").contains("from 0"));
    assert_eq!(router.dropped("blackhole"), 0);
    let words = format!("-n -q -c 5 -i 0.05 -W 5 {RIGHT4}");
    assert!(site.left.run("ping", &words).status.success());
    let after = [
        count("interfaces", "a", "in_packets"),
        count("ports", "b", "tx_packets"),
        count("lcores", "io0", "packets"),
    ];
    for (after, before) in after.iter().zip(before) {
        assert!((5..before).contains(after), "{after} of {before}");
    }
    assert!(router.ctl("show summary").contains("cleared"));
    // The kernel's counters and the page continue.
    let page_after = page(&site.mid);
    for family in [
        "linerate_interface_receive_packets_total",
        "linerate_lcore_packets_total",
        "linerate_drops_packets_total",
    ] {
        let (before, after) = (samples(&page_before, family), samples(&page_after, family));
        assert!(!before.is_empty());
        for (labels, count) in before {
            assert!(after[&labels] >= count, "{family}{labels}");
        }
    }
    // A list that a reload replaces counts from 0, without the cleared values of the old one.
    router.reload(&(config() + "\n[[acl]]\nname = \"x\"\nrules = [{ action = \"permit\" }]\n"));
    assert!(router.dropped("blackhole") == 0);
    assert!(!router.try_ctl("clear routes").status.success());
    router.stop();
}

/// A disk that fills up during a capture is reported at once and once only, missing packets are
/// counted, and forwarding continues.
fn a_full_disk_under_a_capture_is_reported_at_once() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let disk = scratch.file("disk");
    std::fs::create_dir(&disk).unwrap();
    // A file system of 256 KiB that only the router sees.
    let script = "mount -t tmpfs -o size=256k tmpfs \"$0\" && exec \"$@\"";
    let mut command = site.mid.command("unshare");
    command.args(["--mount", "sh", "-c", script, &disk, binary()]);
    let captured = format!("a,capture={disk}/a.pcapng");
    let config = "metrics = \"127.0.0.1:9108\"\n".to_owned()
        + &two_ports("af_packet", "", "").replace("af_packet:a", &format!("af_packet:{captured}"));
    let mut router = Router::begin_by(&mut command, &scratch, &config);
    router.forwards();
    site.works();
    let socket = site.left.inside(|| UdpSocket::bind((LEFT4, 0)).unwrap());
    for _ in 0..500 {
        // An error is an ICMP message about an earlier one.
        let _ = socket.send_to(&[7; 1400], (RIGHT4, 9));
    }
    router.says("No space left on device");
    site.works();
    let ports = router.show("ports");
    let port = &ports["rows"][0];
    assert!(port["capture_missed"].as_u64() > Some(0), "{port}");
    assert_eq!(port["link"], "up");
    assert!(router.ctl("show ports").contains("No space left on device"));
    let missed = total(
        &page(&site.mid),
        "linerate_port_capture_missed_packets_total",
        "port=\"a\"",
    );
    assert!(missed > 0);
    let said = router.said();
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    assert!(
        said.contains("warning: port a: ") && said.contains("a.pcapng"),
        "{said}"
    );
    router.signal(rustix::process::Signal::INT);
    // At the end it is an error, too, since the file is incomplete.
    assert_eq!(router.running().end().code(), Some(1));
}
