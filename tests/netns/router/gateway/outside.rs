//! What hosts beside the gateway see of its outside addresses, and what becomes of the records
//! about them when there is no room: Linux hosts, and a disk of their own.

use super::{at, outward, talk};
use crate::router::instance::{Router, two_ports};
use crate::router::site::{LEFT4, LEFT6, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::frame::text;
use linerate_testkit::netns::Namespace;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![
    neighbours_resolve_the_outside_addresses_of_their_own_network,
    a_full_disk_under_records_is_told_of_once_and_traffic_goes_on,
];

/// What a host knows of a neighbour.
fn neighbour(host: &Namespace, interface: &str, address: &str) -> String {
    host.ip(&format!("neigh show {address} dev {interface}"))
}

fn neighbours_resolve_the_outside_addresses_of_their_own_network() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let pools = "[nat]\n\
         [[nat.pool]]\nname = \"four\"\naddresses = [\"10.2.0.100-10.2.0.101\"]\n\
         [[nat.pool]]\nname = \"six\"\naddresses = [\"fd00:2::100\"]\n\
         [[nat.source]]\nsource = \"10.1.0.0/24\"\npool = \"four\"\n\
         [[nat.source]]\nsource = \"fd00:1::/64\"\npool = \"six\"\n";
    let statics = format!(
        "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\n\
         rules = [{{ action = \"permit\", protocol = \"tcp\" }}]\n[nat]\n\
         [[nat.static]]\noutside = \"10.2.0.110\"\ninside = \"{LEFT4}\"\n\
         [[nat.static]]\noutside = \"fd00:2::110\"\ninside = \"{LEFT6}\"\n"
    );
    site.right.ip("route del default");
    site.right.ip("-6 route del default");
    let config = two_ports("af_packet", "", "") + &outward([1024; 2]);
    let gateway = Router::start_as("gateway", &site.mid, &scratch, &(config.clone() + pools));
    let mac = text(site.mid.mac("b"));
    let knows = |address: &str| neighbour(&site.right, "veth1", address).contains(&mac);
    // Answers only arrive if the host outside finds who has the pool's address.
    for outside in [RIGHT4, RIGHT6] {
        reaches(&site.left, outside);
        assert!(talk(&site.left, &site.right, outside), "{outside}");
    }
    assert!(knows("10.2.0.100") || knows("10.2.0.101"));
    assert!(knows("fd00:2::100"));
    // Those that nobody inside uses are found as well, those beside them are not.
    for address in ["10.2.0.100", "10.2.0.101", "fd00:2::100"] {
        wait(&format!("{address} to be resolved"), || {
            linerate_testkit::traffic::reaches(&site.right, address, 1);
            knows(address)
        });
    }
    for address in ["10.2.0.99", "10.2.0.102", "fd00:2::101"] {
        assert!(!linerate_testkit::traffic::reaches(&site.right, address, 1));
        let known = neighbour(&site.right, "veth1", address);
        assert!(!known.contains("lladdr"), "{known}");
    }
    // Nor are they on another link.
    site.left.ip("route add 10.2.0.100/32 dev veth0");
    assert!(!linerate_testkit::traffic::reaches(
        &site.left,
        "10.2.0.100",
        1
    ));
    let known = neighbour(&site.left, "veth0", "10.2.0.100");
    assert!(!known.contains("lladdr"), "{known}");
    gateway.stop();

    let gateway = Router::start_as("gateway", &site.mid, &scratch, &(config + &statics));
    for (inside, outside) in [(LEFT4, "10.2.0.110"), (LEFT6, "fd00:2::110")] {
        let bind = || TcpListener::bind(at(inside, 0)).unwrap();
        let listener = site.left.inside(bind);
        let to = at(outside, listener.local_addr().unwrap().port());
        wait(&format!("a connection to {outside}"), || {
            let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1));
            site.right.inside(connect).is_ok()
        });
        assert!(knows(outside), "{outside}");
    }
    gateway.stop();
}

/// The number behind a sample of the page of metrics.
fn metric(gateway: &Router, sample: &str) -> u64 {
    let mut stream = UnixStream::connect(gateway.socket()).unwrap();
    stream.write_all(b"{\"method\": \"metrics\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    let page = answer["result"]["text"].as_str().unwrap();
    let line = page.lines().find(|line| line.starts_with(sample));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.map_or(0, |value| value.parse().unwrap())
}

/// Records of sessions fill a disk of 16 KiB that only the gateway sees; then it is emptied.
fn a_full_disk_under_records_is_told_of_once_and_traffic_goes_on() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let disk = scratch.file("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=16k tmpfs \"$0\" && exec \"$@\"";
    let mut command = site.mid.command("unshare");
    command.args(["--mount", "sh", "-c", script, &disk, binary()]);
    let config = two_ports("af_packet", "", "")
        + &outward([16384, 1024])
        + &format!(
            "[nat]\n[nat.log]\nfile = \"{disk}/nat.jsonl\"\n\
             [[nat.pool]]\nname = \"pool\"\naddresses = [\"10.2.0.100\"]\n\
             mapping = \"dependent\"\n\
             [[nat.source]]\nfrom = \"inside\"\nsource = \"10.1.0.0/24\"\npool = \"pool\"\n"
        );
    let mut gateway = Router::begin_as("gateway", &mut command, &scratch, &config);
    gateway.forwards();
    reaches(&site.left, RIGHT4);
    let socket = site.left.inside(|| UdpSocket::bind(at(LEFT4, 0)).unwrap());
    let flows = |ports: std::ops::Range<u16>| {
        for port in ports {
            // An error is an ICMP message about an earlier one.
            let _ = socket.send_to(b"?", at(RIGHT4, port));
        }
    };
    flows(1000..1400);
    gateway.says("No space left on device");
    // More of them are lost, and nothing else is.
    flows(1400..1800);
    let lost = "linerate_nat_log_records_total{result=\"lost\"}";
    wait("lost records to be counted", || {
        metric(&gateway, lost) > 100
    });
    assert!(talk(&site.left, &site.right, RIGHT4));
    let said = gateway.said();
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    assert!(said.contains("nat.jsonl"), "{said}");
    assert_eq!(gateway.dropped("nat_"), 0, "{}", gateway.show("drops"));
    // Somebody makes room: what comes next is written.
    let pid = gateway.running().pid().as_raw_nonzero();
    let file = format!("/proc/{pid}/root{disk}/nat.jsonl");
    let full = std::fs::read_to_string(&file).unwrap();
    assert!(full.lines().count() > 20, "{full}");
    std::fs::remove_file(&file).unwrap();
    flows(1800..1810);
    let mut text = String::new();
    wait("records to be written again", || {
        text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().count() >= 10
    });
    for line in text.lines().take(10) {
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["event"], "nat_session_begin", "{line}");
    }
    gateway.stop();
}
