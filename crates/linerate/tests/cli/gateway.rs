//! `linerate gateway` from outside: its example, what `--check` says, and what it refuses.

use crate::commands::{fails, misconfigured, said, udp};
use crate::instance::Instance;
use linerate_testkit::capture::paced;
use linerate_testkit::{Scratch, wait};
use serde_json::Value;

/// The gateway's port 1, and the host that sends to it.
const MACS: ([u8; 6], [u8; 6]) = ([2, 0, 0, 1, 0, 1], [2, 0, 0, 0, 0, 0xaa]);

const PORTS: &str = "[router]\nkernel = false\n[[port]]\nname = \"a\"\nspec = \"ring:a\"\n\
    [[port]]\nname = \"b\"\nspec = \"ring:b\"\n";

/// Two networks, one inside; `wan` and `lan` are the specs of their ports.
fn site(scratch: &Scratch, [wan, lan]: [&str; 2], more: &str) -> String {
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
acl_in = "edge"
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
[[acl]]
name = "edge"
default = "permit"
rules = [{{ action = "deny", protocol = "tcp", destination_port = "23" }}]
[flows]
ipv4 = 1000
ipv6 = 1000
[[zone]]
name = "inside"
interfaces = ["lan"]
[[zone]]
name = "outside"
interfaces = ["wan"]
[[set]]
name = "bad"
prefixes = ["203.0.113.0/24"]
[[policy]]
from = "inside"
to = "outside"
rules = [
    {{ action = "reject", destination = "bad", name = "bad hosts" }},
    {{ action = "permit", service = "tcp/443" }},
    {{ action = "permit", protocol = "udp" }},
]
{more}"#
    );
    written(scratch, &text)
}

const NAT: &str = r#"[nat]
[[nat.source]]
to = "outside"
masquerade = "wan"
[[nat.forward]]
outside = "192.0.2.1"
protocol = "tcp"
ports = "8443"
inside = "10.0.0.80"
inside_port = 443
[[policy]]
from = "outside"
to = "inside"
rules = [{ action = "permit", destination = "10.0.0.80/32", service = "tcp/443" }]
"#;

fn written(scratch: &Scratch, text: &str) -> String {
    let file = scratch.file("gateway.toml");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn the_example_is_sound_and_a_router_refuses_it() {
    let scratch = Scratch::new();
    let file = written(&scratch, &said(&["gateway", "--print", "example"]));
    let text = said(&["gateway", &file, "--check=file"]);
    for line in [
        "zone inside: lan",
        "policy inside > outside: rules 0, others permit",
        "policy outside > inside: rules 2, others deny",
        "nat: rules of sources 2, static addresses and forwards 1",
        "flows of each worker: 262144 of IPv4, 65536 of IPv6",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        !text.contains("gateway.toml:"),
        "no line is warned of: {text}"
    );
    let json = said(&["gateway", &file, "--check=file", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    // Flows are known by ports, which later fragments lack.
    let does = json["interfaces"][0]["does"].to_string();
    assert!(does.contains("reassembles"), "{json}");
    let refused = misconfigured(&["router", &file, "--check=file"]);
    assert!(
        refused.contains("zone: a router has no such stanza"),
        "{refused}"
    );
    assert!(refused.contains("`linerate gateway`"), "{refused}");
    let unit = said(&["gateway", "--print", "unit"]);
    assert!(unit.contains("ExecStart=linerate gateway /etc/linerate/gateway.toml"));
    // That of the router, of which more is tested, by another name.
    let keys = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.replace("router", "gateway"))
            .collect()
    };
    assert_eq!(keys(&unit), keys(&said(&["router", "--print", "unit"])));
}

#[test]
fn all_that_is_wrong_with_zones_and_policies_is_said_at_once() {
    let scratch = Scratch::new();
    let text = format!(
        "{PORTS}[flows]\nipv4 = 0\n\
         [[zone]]\nname = \"in\"\ninterfaces = [\"a\", \"c\"]\n\
         [[zone]]\nname = \"in\"\ninterfaces = [\"a\"]\n\
         [[policy]]\nfrom = \"in\"\nto = \"out\"\n\
         [[policy]]\nfrom = \"in\"\nto = \"in\"\ndefault = \"maybe\"\n\
         rules = [{{ action = \"permit\", service = \"tpc/80\", log = true }}]\n"
    );
    let wrong = misconfigured(&["gateway", &written(&scratch, &text), "--check=file"]);
    for problem in [
        ":10: flows.ipv4: 0 is out of range",
        ":13: zone.interfaces: there is no interface `c`",
        ":15: zone.name: `in` names two zones",
        ":16: zone.interfaces: `a` is in zone `in` already",
        ":19: policy.to: there is no zone `out`",
        ":23: policy.default: `maybe`",
        ":24: policy in > in rule 1: service: there is no protocol `tpc`",
    ] {
        assert!(wrong.contains(problem), "{problem}: {wrong}");
    }
    assert!(wrong.contains("`linerate gateway"), "{wrong}");
}

#[test]
fn modes_of_dispatch_say_what_they_lack() {
    let scratch = Scratch::new();
    let text = |io: &str, eu: &str, rest: &str| {
        let plan = format!("[plan]\nbg = \"0\"\nio = \"{io}\"\n{eu}cpus = \"0,0,0,0\"\n");
        format!("{plan}{PORTS}[flows]\nipv4 = 1000\n{rest}")
    };
    let wrong = |io, eu, rest: &str| {
        let file = written(&scratch, &text(io, eu, rest));
        misconfigured(&["gateway", &file, "--check=file"])
    };
    let fits = |io, eu, rest: &str| {
        let file = written(&scratch, &text(io, eu, rest));
        said(&["gateway", &file, "--check=file"])
    };
    let mode = |mode: &str, rest: &str| format!("[dispatch]\nmode = \"{mode}\"\n{rest}");
    let nat = "[nat]\n[[nat.pool]]\nname = \"p\"\naddresses = [\"192.0.2.9\"]\n\
               [[nat.source]]\npool = \"p\"\n";
    let of_some = format!("{nat}source = \"10.0.0.0/8\"\n");
    let eu = "eu = \"2,3\"\n";

    let said = wrong("1,2", "", "");
    assert!(said.contains("[plan] io has 2 lcores"), "{said}");
    assert!(said.contains("[dispatch] mode = \"balanced\""), "{said}");
    fits("1,2", "", &mode("rss", ""));
    let said = wrong("1,2", "", &mode("rss", nat));
    assert!(
        said.contains("pool `p` has mapping = \"independent\""),
        "{said}"
    );
    let dependent = nat.replace("name", "mapping = \"dependent\"\nname");
    let said = wrong("1,2", "", &mode("rss", &dependent));
    assert!(said.contains("the key of its hash"), "{said}");
    fits("1", "", &mode("rss", nat));
    fits("1,2", "", &mode("balanced", &of_some));
    let said = wrong("1,2", "", &mode("balanced", nat));
    assert!(said.contains("has no `source`"), "{said}");
    fits("1", eu, &mode("dispatcher", &of_some));
    // Slots that nobody asks for are of the role eu.
    fits("1", "", &mode("dispatcher", &of_some));
    fits("1", "", &mode("balanced", ""));
    let said = wrong("1", "", &mode("even", ""));
    assert!(said.contains("dispatch.mode: `even` is unknown"), "{said}");
}

#[test]
fn an_explanation_goes_the_way_of_a_first_packet() {
    let scratch = Scratch::new();
    let file = site(&scratch, ["ring:a", "ring:b"], NAT);
    let explain = |flow: &str, from: &str| {
        let args = ["gateway", &file, "--explain", flow, "--in", from];
        let json = said(&[&args[..], &["--json"]].concat());
        let json: Value = serde_json::from_str(&json).unwrap();
        (said(&args), json)
    };
    let (text, json) = explain("10.0.0.7:4000 > 198.51.100.1:443 tcp", "inside");
    assert_eq!(
        text,
        "in by lan, zone inside\n\
         route 0.0.0.0/0 in vrf default: via\n\
         out by wan, zone outside, next hop 192.0.2.254\n\
         10.0.0.7:4000 > 198.51.100.1:443 tcp, from inside to outside\n\
         policy inside > outside\n  \
         not rule 1 (bad hosts): destination is not bad\n  \
         rule 2: any > any, tcp port 443\n\
         permit\n\
         [[nat.source]] 1: the source becomes an address of interface wan ipv4\n"
    );
    assert_eq!(json["text"], text);
    assert_eq!(json["verdict"], "permit");
    assert_eq!(json["ways"][0]["policy"]["rule"]["number"], 2, "{json}");
    let (text, json) = explain("10.0.0.7:4000 > 203.0.113.9:53 udp", "lan");
    assert!(
        text.ends_with("rule 1 (bad hosts): any > bad\nreject\n"),
        "{text}"
    );
    assert_eq!(json["verdict"], "reject");
    // By the forwarded port, though the policy is about the address behind it.
    let (text, json) = explain("198.51.100.1:999 > 192.0.2.1:8443 tcp", "outside");
    for line in [
        "acl edge no rule matches: permit\n",
        "[[nat.forward]]: the destination becomes 10.0.0.80:443\n",
        "route 10.0.0.0/24 in vrf default: connected\n",
        "198.51.100.1:999 > 10.0.0.80:443 tcp, from outside to inside\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(json["verdict"], "permit");
    for (flow, from, verdict) in [
        ("198.51.100.1:999 > 192.0.2.1:23 tcp", "wan", "deny"),
        ("198.51.100.1:999 > 192.0.2.1:80 tcp", "wan", "local"),
        ("10.0.0.7 > 192.0.2.9 icmp", "inside", "deny"),
        (
            "[2001:db8::1]:1 > [2001:db8::2]:2 udp",
            "inside",
            "no_route",
        ),
    ] {
        let (text, json) = explain(flow, from);
        assert_eq!(json["verdict"], verdict, "{text}");
    }
    for (flow, from, fix) in [
        (
            "10.0.0.7:4000 > 198.51.100.1 tcp",
            "inside",
            "write 198.51.100.1:443",
        ),
        (
            "10.0.0.7:4000 > 198.51.100.1:443",
            "inside",
            "there is no protocol",
        ),
        (
            "10.0.0.7:4000 > 198.51.100.1:443 tcp",
            "insde",
            "perhaps inside",
        ),
    ] {
        let wrong = fails(&["gateway", &file, "--explain", flow, "--in", from]);
        assert!(wrong.contains(fix), "{wrong}");
    }
    let text = "[router]\nkernel = false\n[[port]]\nname = \"a\"\nspec = \"ring:a\"\n";
    let file = written(&scratch, text);
    let wrong = fails(&[
        "router",
        &file,
        "--explain",
        "1.1.1.1 > 2.2.2.2 gre",
        "--in",
        "a",
    ]);
    assert!(wrong.contains("a router knows no flows"), "{wrong}");
}

#[test]
fn rules_that_never_decide_are_warned_of_by_line() {
    let scratch = Scratch::new();
    let more = "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\nrules = [\n\
                { action = \"permit\", service = \"tcp/1-100\" },\n\
                { action = \"permit\", service = \"tcp/22\" },\n]\n\
                [[zone]]\nname = \"empty\"\ninterfaces = []\n";
    let file = site(&scratch, ["ring:a", "ring:b"], more);
    let line_of = |what: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().position(|line| line.contains(what)).unwrap() + 1
    };
    let checked = said(&["gateway", &file, "--check=file"]);
    let unreachable = format!(
        "{file}:{}: policy outside > inside rule 2: rule 1 has all its packets: it never decides",
        line_of("tcp/22")
    );
    assert!(checked.contains(&unreachable), "{checked}");
    let empty = line_of("\"empty\"") - 1;
    let empty = format!("{file}:{empty}: zone: this zone has no interface");
    assert!(checked.contains(&empty), "{checked}");
}

#[test]
fn flows_are_shown_cleared_explained_and_traced() {
    let scratch = Scratch::new();
    let hosts = (1..=40_u8).map(|host| ([10, 0, 0, host], 4000 + u16::from(host)));
    let frames: Vec<_> = hosts
        .map(|from| udp(MACS, from, ([198, 51, 100, 1], 53), 64))
        .chain([udp(MACS, ([10, 0, 0, 7], 9), ([203, 0, 113, 9], 53), 64)])
        .collect();
    let input = scratch.write("in.pcap", paced(&frames, 100));
    let lan = format!("pcap:rx={input},loop=on");
    let file = site(&scratch, ["null,rx=off", &lan], "");
    let socket = scratch.file("ctl.sock");
    let gateway = Instance::listening(&["gateway", &file, "--json"], &socket);
    let flows = |words: &[&str]| {
        let shown = gateway.show(&[&["flows"], words].concat());
        shown["rows"].as_array().unwrap().len()
    };
    wait("40 flows", || flows(&[]) == 40);
    for (words, many) in [
        ("10.0.0.7", 1),
        ("10.0.0.0/28 udp", 15),
        ("4007", 1),
        ("zone inside 53", 40),
        ("zone outside", 0),
        ("tcp", 0),
        ("udp_single", 40),
        ("established", 0),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        assert_eq!(flows(&words), many, "{words:?}");
    }
    let shown = gateway.show(&["flows", "10.0.0.7"]);
    assert_eq!(shown["rows"][0]["zone"], "inside", "{shown}");
    // What does not fit is told.
    let cut = gateway.ctl(&["show", "flows", "--limit", "5"]).unwrap();
    assert!(cut.contains("35 more; "), "{cut}");
    for (words, fix) in [
        (vec!["zone"], "zone lan"),
        (vec!["zone", "insde"], "perhaps inside"),
        (vec!["sideways"], "says nothing of a flow"),
    ] {
        let wrong = gateway
            .ctl(&[&["show", "flows"], &words[..]].concat())
            .unwrap_err();
        assert!(wrong.contains(fix), "{wrong}");
        let wrong = gateway
            .ctl(&[&["clear", "flows"], &words[..]].concat())
            .unwrap_err();
        assert!(wrong.contains(fix), "{wrong}");
    }
    let wrong = gateway.ctl(&["clear", "flows"]).unwrap_err();
    assert!(wrong.contains("clear flows all"), "{wrong}");
    let cleared = gateway.ctl(&["clear", "flows", "10.0.0.0/28"]).unwrap();
    assert_eq!(cleared, "15 flows ended");
    let cleared = gateway
        .ctl(&["clear", "flows", "zone", "outside", "--json"])
        .unwrap();
    let cleared: Value = serde_json::from_str(&cleared).unwrap();
    assert_eq!(cleared["cleared"], 0);
    assert!(
        gateway
            .metrics()
            .contains("\nlinerate_flows_cleared_total 15\n")
    );
    let page = gateway.metrics();
    let sample = "linerate_policy_flows_total{policy=\"inside > outside\",action=\"permit\"} ";
    assert!(page.contains(sample), "{page}");
    // Their next packets begin them anew.
    wait("40 flows again", || flows(&[]) == 40);
    let explained = gateway
        .ctl(&[
            "explain",
            "10.0.0.7:9 > 203.0.113.9:53 udp",
            "--in",
            "inside",
        ])
        .unwrap();
    assert!(
        explained.contains("rule 1 (bad hosts): any > bad"),
        "{explained}"
    );
    let wrong = gateway
        .ctl(&["explain", "10.0.0.7:9", "--in", "inside"])
        .unwrap_err();
    assert!(wrong.contains("there is no destination"), "{wrong}");
    let policies = gateway.show(&["policies", "inside"]);
    let rows = policies["rows"].as_array().unwrap();
    assert!(rows[2]["decided"].as_u64().unwrap() >= 55, "{rows:?}");
    let wrong = gateway.ctl(&["show", "policies", "insde"]).unwrap_err();
    assert!(wrong.contains("perhaps inside"), "{wrong}");
    // Traces say what the stage has decided, of a known flow and of one that may not begin.
    let trace = gateway
        .ctl(&["trace", "--filter", "host 203.0.113.9", "--count", "1"])
        .unwrap();
    assert!(
        trace.contains("inside to outside, rule 1: reject"),
        "{trace}"
    );
    let trace = gateway.ctl(&[
        "trace",
        "--filter",
        "host 10.0.0.7 and dst host 198.51.100.1",
        "--count",
        "1",
    ]);
    let trace = trace.unwrap();
    assert!(trace.contains("flows: a known flow"), "{trace}");
}

/// With translation, its records, a balancer and a service: each has families of its own.
#[test]
fn the_page_has_what_the_dashboard_draws() {
    let scratch = Scratch::new();
    let log = scratch.file("nat.jsonl");
    let more = format!(
        r#"[nat]
[nat.log]
file = "{log}"
[[nat.pool]]
name = "one"
addresses = ["192.0.2.8"]
[[nat.source]]
to = "outside"
pool = "one"
[[balancer]]
name = "web"
address = "192.0.2.80"
protocol = "tcp"
ports = "80"
[[balancer.backend]]
address = "10.0.0.11"
[[policy]]
from = "outside"
to = "inside"
default = "permit"
apply = ["statistics"]
"#
    );
    let file = site(&scratch, ["ring:a", "ring:b"], &more);
    let gateway = Instance::listening(&["gateway", &file, "--json"], &scratch.file("ctl.sock"));
    let page = gateway.metrics();
    let dashboard = said(&["gateway", "--print", "dashboard"]);
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = dashboard.split(|c| !is_word(c));
    let asked: Vec<&str> = words.filter(|word| word.starts_with("linerate_")).collect();
    assert!(asked.len() > 40);
    for word in asked {
        let family = format!("# TYPE {} ", word.strip_suffix("_total").unwrap_or(word));
        assert!(page.contains(&family), "{word} is not on the page");
    }
}

/// Where `--topology` says that two CPUs are on two sockets, packets are copied from one to the
/// other.
#[test]
fn a_machine_with_two_cpus_plays_two_sockets() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        eprintln!("SKIP needs CPUs 0 and 1");
        return;
    }
    let scratch = Scratch::new();
    let hosts = (1..=40_u8).map(|host| ([10, 0, 0, host], 4000 + u16::from(host)));
    let frames: Vec<_> = hosts
        .map(|from| udp(MACS, from, ([198, 51, 100, 1], 53), 64))
        .collect();
    let input = scratch.write("in.pcap", paced(&frames, 100));
    let lan = format!("pcap:rx={input},loop=on");
    let dispatch = "[dispatch]\nmode = \"balanced\"\nacross_sockets = \"copy\"\n";
    let file = site(&scratch, ["null,rx=off", &lan], dispatch);
    let text = std::fs::read_to_string(&file).unwrap();
    let (one, two) = (
        "io = \"1\"\ncpus = \"0,0\"",
        "io = \"1-2\"\ncpus = \"0,0,1\"",
    );
    written(&scratch, &text.replace(one, two));
    let socket = scratch.file("ctl.sock");
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/topologies/two-sockets-1x1"
    );
    for topology in [&[][..], &["--topology", folder]] {
        let args = [&["gateway", &file, "--json"], topology].concat();
        let gateway = Instance::listening(&args, &socket);
        let rows = || {
            gateway.show(&["workers"])["rows"]
                .as_array()
                .unwrap()
                .clone()
        };
        let sum = |key: &str| {
            rows()
                .iter()
                .filter_map(|row| row[key].as_u64())
                .sum::<u64>()
        };
        wait("packets are handed over", || sum("handed") > 100);
        let has_sockets = !topology.is_empty();
        assert!(
            rows()
                .iter()
                .all(|row| row["by_copy"].is_null() != has_sockets)
        );
        assert_eq!((sum("by_copy") > 0, sum("by_pointer")), (has_sockets, 0));
        let page = gateway.metrics();
        assert_eq!(page.contains("worker_across_packets_total{"), has_sockets);
        gateway.ctl(&["stop"]).unwrap();
    }
    let wrong = fails(&["gateway", &file, "--topology", "/nonexistent"]);
    assert!(wrong.contains("/nonexistent"), "{wrong}");
}
