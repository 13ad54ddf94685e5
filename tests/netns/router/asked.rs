//! Requests to a running router: trace, drain, metrics.

use super::instance::{Router, two_ports};
use super::site::{FAR_GATE4, FAR_GATE6, LEFT4, RIGHT4, RIGHT6, Site, reaches};
use linerate_testkit::Scratch;
use linerate_testkit::cli::binary;
use linerate_testkit::process::Running;
use linerate_testkit::wait;
use linerate_testkit::{harness::Test, tests};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![
    a_trace_names_the_drop_reason,
    metrics_over_http,
    drain_holds_links_down_forwards_and_ends,
];

/// A trace reports the next packets that match, stage by stage, while other traffic passes.
fn a_trace_names_the_drop_reason() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = two_ports("af_packet", "acl_in = \"edge\"", "")
        + "\n[[route]]\nprefix = \"10.77.0.0/16\"\nblackhole = true\n\
           \n[[acl]]\nname = \"edge\"\ndefault = \"permit\"\nrules = [\n\
             { action = \"deny\", destination = \"10.2.0.0/24\", protocol = \"udp\", \
               destination_port = \"9001\" },\n]\n";
    let router = Router::start(&site.mid, &scratch, &config);
    site.works();
    const COUNT: u32 = 80;
    let mut command = Command::new(binary());
    command.args(["ctl", "--socket", router.socket(), "trace"]);
    command.args(["--filter", "udp and not port 9002 and src host 10.1.0.2"]);
    let mut trace = Running::start(command.args(["--count", &COUNT.to_string()]));
    let [socket, tired] = [64, 1].map(|ttl| {
        let socket = site.left.inside(|| UdpSocket::bind((LEFT4, 0)).unwrap());
        socket.set_ttl(ttl).unwrap();
        socket
    });
    // Its start is not announced: packets are sent until it has enough.
    wait("the trace to have all it asked for", || {
        for (socket, to) in [
            (&socket, (RIGHT4, 9000)),
            (&socket, (RIGHT4, 9001)),
            (&socket, (RIGHT4, 9002)),
            (&tired, (RIGHT4, 9003)),
            (&socket, ("10.77.0.1", 9000)),
            (&socket, ("198.51.100.1", 9000)),
            (&socket, ("10.2.0.99", 9000)),
            (&socket, (FAR_GATE4, 9004)),
        ] {
            // An error is an ICMP message about an earlier one.
            let _ = socket.send_to(&[b'x'; 20], to);
        }
        !trace.is_alive()
    });
    assert!(trace.end().success(), "{}", trace.stderr.text());
    let said = trace.stdout.text();
    // A paragraph for each packet: its addresses, then its steps.
    let mut stories: Vec<Vec<&str>> = Vec::new();
    for line in said.lines() {
        match line.strip_prefix("  ") {
            Some(step) => stories.last_mut().unwrap().push(step),
            None => stories.push(vec![line]),
        }
    }
    assert_eq!(stories.pop(), Some(vec!["80 packets"]), "{said}");
    assert_eq!(stories.len(), COUNT as usize, "{said}");
    let goes = |to: &str, expected: &[&str]| {
        let head = format!("> {to} udp by a, 62 bytes");
        let begin = |(step, start): (&&str, &&str)| step.starts_with(start);
        let fits = |story: &Vec<&str>| {
            let steps = &story[1..];
            story[0].ends_with(&head)
                && steps.len() == expected.len()
                && steps.iter().zip(expected).all(begin)
        };
        assert!(
            stories.iter().any(fits),
            "{to}: {expected:#?} not in {said}"
        );
    };
    let (valid, permits) = ("validate: valid", "acl_in: list edge: no rule, permit");
    goes(
        "10.2.0.2:9000",
        &[
            valid,
            permits,
            "lookup: 10.2.0.2: hop ",
            "rewrite: time to live less one, to ",
            "sent by b",
        ],
    );
    let denies = "acl_in: list edge: rule 1, deny";
    goes("10.2.0.2:9001", &[valid, denies, "dropped: acl_in.edge"]);
    let lookup = "lookup: 10.2.0.2: hop ";
    goes(
        "10.2.0.2:9003",
        &[valid, permits, lookup, "dropped: ttl_exceeded"],
    );
    let lookup = "lookup: 10.77.0.1: hop ";
    goes(
        "10.77.0.1:9000",
        &[valid, permits, lookup, "dropped: blackhole"],
    );
    let lookup = "lookup: no route to 198.51.100.1";
    goes(
        "198.51.100.1:9000",
        &[valid, permits, lookup, "dropped: no_route"],
    );
    // The slow worker's steps are reported as well: an unresolved neighbour (of many waiting
    // packets the oldest are dropped); the kernel.
    let lookup = "lookup: 10.2.0.99: hop ";
    let goes_on = [valid, permits, lookup, "rewrite: time to live less one"];
    goes(
        "10.2.0.99:9000",
        &[&goes_on[..], &["punt: glean", "dropped: neighbour_"]].concat(),
    );
    let lookup = "lookup: 10.2.0.1: hop ";
    goes(
        "10.2.0.1:9004",
        &[valid, permits, lookup, "punt: local", "to the kernel"],
    );
    assert!(!said.contains(":9002"), "what does not match is not told");
    // Nothing of it stays behind, and another may follow; one that is asked for badly is refused.
    let refused = router.try_ctl("trace --filter nonsense");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("nonsense"));
    site.works();
    router.stop();
}

/// The page, and that the format's own reader takes it.
fn metrics_over_http() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let config = "metrics = \"127.0.0.1:9108\"\n".to_owned() + &two_ports("af_packet", "", "");
    let router = Router::start(&site.mid, &scratch, &config);
    site.works();
    let ask = |path: &str| {
        let mut stream = site
            .mid
            .inside(|| TcpStream::connect("127.0.0.1:9108").unwrap());
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let page = ask("/metrics");
    assert!(
        page.starts_with("HTTP/1.") && page.contains(" 200 "),
        "{page}"
    );
    assert!(
        page.trim_end().ends_with("# EOF") && page.contains("linerate_"),
        "{page}"
    );
    assert!(ask("/nothing").contains(" 404 "));
    let (_, body) = page.split_once("\r\n\r\n").unwrap();
    prometheus_reads(body, &scratch);
    router.stop();
}

/// Debian's own Python, which Debian's client library of Prometheus is for.
const PYTHON: &str = "/usr/bin/python3";

/// Reads a page as strictly as OpenMetrics wants, and prints how many samples it has.
const READER: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
print(sum(len(family.samples) for family in read(open(sys.argv[1]).read())))
";

#[track_caller]
fn prometheus_reads(page: &str, scratch: &Scratch) {
    let file = scratch.file("metrics");
    std::fs::write(&file, page).unwrap();
    let run = |program: &str| {
        let mut command = Command::new(PYTHON);
        command.args(["-c", program, &file]).output()
    };
    let installed = run("import prometheus_client.openmetrics.parser");
    if !installed.is_ok_and(|output| output.status.success()) {
        linerate_testkit::skip("needs the Python package prometheus_client");
        return;
    }
    let output = run(READER).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{page}");
    let samples = page.lines().filter(|line| !line.starts_with('#')).count();
    let read = String::from_utf8(output.stdout).unwrap();
    assert_eq!(read.trim().parse(), Ok(samples), "{page}");
}

/// Drained, the host interfaces lose their links, so that routing turns elsewhere; what still comes
/// is forwarded until the time is over, and then the router ends by itself, with its totals.
fn drain_holds_links_down_forwards_and_ends() {
    let Some(site) = Site::new() else { return };
    let scratch = Scratch::new();
    let mut router = Router::start(&site.mid, &scratch, &two_ports("af_packet", "", ""));
    site.works();
    let has_carrier = |host_interface: &str| {
        !site
            .mid
            .ip(&format!("link show {host_interface}"))
            .contains("NO-CARRIER")
    };
    // The kernel says so up to a second late.
    wait("the host interfaces' links to be there", || {
        has_carrier("lr-a") && has_carrier("lr-b")
    });
    let refused = router.try_ctl("drain --seconds 7200");
    assert!(!refused.status.success(), "two hours are too many");
    router.ctl("drain --seconds 3000");
    wait("the host interfaces' links to go", || {
        !has_carrier("lr-a") && !has_carrier("lr-b")
    });
    // A port whose link goes down and up does not bring the drained host interface's link up.
    site.right.ip("link set veth1 down");
    router.shows("ports", |text| text.contains("down"));
    site.right.ip("link set veth1 up");
    router.shows("ports", |text| {
        text.contains("up") && !text.contains("down")
    });
    // When its interface went down the host lost its IPv6 address and its routes.
    site.right
        .ip(&format!("-6 addr replace {RIGHT6}/64 dev veth1"));
    site.right
        .ip(&format!("route replace default via {FAR_GATE4}"));
    site.right
        .ip(&format!("-6 route replace default via {FAR_GATE6}"));
    for address in [RIGHT4, RIGHT6] {
        reaches(&site.left, address);
    }
    assert!(!has_carrier("lr-a") && !has_carrier("lr-b"));
    // The earlier end counts.
    router.ctl("drain --seconds 0.1");
    let totals = router.ended();
    assert!(
        totals["ports"][0]["tx_packets"].as_u64() > Some(0),
        "{totals}"
    );
    assert!(!site.mid.has("lr-a") && !site.mid.has("lr-b"));
}
