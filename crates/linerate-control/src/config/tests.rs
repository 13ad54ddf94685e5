//! What is read, and the exact words about what is wrong.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::extension::Appliance;
use linerate_routing::plane::acl::{Answer, Verdict};

/// Two ports; lines behind it are counted from 9.
const PORTS: &str = r#"[router]
kernel = false
[[port]]
name = "wan"
spec = "ring:w"
[[port]]
name = "lan"
spec = "ring:l"
"#;

/// All errors about [`PORTS`] and `text`, as they are shown behind the file's name.
fn errors(text: &str) -> Vec<String> {
    let text = format!("{PORTS}{text}");
    let errors = Config::parse(&text).map(|_| ()).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

fn good(text: &str) -> Config {
    let text = format!("{PORTS}{text}");
    Config::parse(&text).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

#[test]
fn run_keys_are_those_of_all_appliances() {
    let port = "[[port]]\nname = \"wan\"\nspec = \"null\"\n";
    let keys = "duration = 2.5\nperiod = 0\nqueues = 2\nburst = 8\nsleep = false\n";
    let router = Config::parse(&format!("[router]\n{keys}{port}"))
        .unwrap()
        .router;
    let seconds = Duration::from_secs_f64;
    assert_eq!((router.duration, router.period), (Some(seconds(2.5)), None));
    let rest = (router.queues, router.burst, router.pool_slots, router.sleep);
    assert_eq!(rest, (2, 8, None, false));
    let errors = Config::parse(&format!("[router]\nburst = 65\n{port}")).unwrap_err();
    let told = "2: router.burst: 65 is out of range; a number from 1 to 64";
    assert_eq!(errors[0].to_string(), told);
}

#[test]
fn a_whole_file_is_understood() {
    let config = good(
        r#"
[[vrf]]
name = "blue"
table = 10
netns = "blue"
[[interface]]
port = "wan"
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
mtu = 1500
urpf = "strict"
acl_in = "edge"
policer = { rate = "100Mbit", burst = "64kB" }
advertise = { interval = 200, lifetime = 1800, managed = true }
[[interface]]
port = "wan"
vlan = 100
vrf = "blue"
addresses = ["192.0.2.1/24", "10.255.0.1/32"]
[[route]]
prefix = "0.0.0.0/0"
via = ["192.0.2.254", { address = "192.0.2.253", weight = 2 }, { interface = "lan" }]
[[route]]
prefix = "2001:db8:1::/48"
blackhole = true
vrf = "blue"
distance = 5
[[neighbour]]
address = "192.0.2.254"
mac = "02:00:00:00:00:fe"
interface = "wan"
[[acl]]
name = "edge"
default = "permit"
reject = "icmp"
rules = [
{ action = "deny", source = "10.0.0.0/8", protocol = "tcp", destination_port = "22", log = false },
]
"#,
    );
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let names: Vec<_> = config.interfaces.iter().map(|i| i.name.as_str()).collect();
    // A port without an [[interface]] gets an interface of the port's name.
    assert_eq!(names, ["wan", "wan.100", "lan"]);
    let wan = &config.interfaces[0];
    assert_eq!(
        (wan.urpf, wan.acl_in, wan.host_interface.as_deref()),
        (Urpf::Strict, Some(0), None)
    );
    assert_eq!(wan.policer.unwrap().rate_bps, 100_000_000);
    assert_eq!(wan.policer.unwrap().burst_bytes, 64_000);
    assert!(wan.advertise.unwrap().managed);
    assert_eq!(
        (config.interfaces[1].vlan, config.interfaces[1].vrf),
        (Some(100), 1)
    );
    let RouteTo::Via(next_hops) = &config.routes[0].to else {
        panic!("{:?}", config.routes[0]);
    };
    assert_eq!(
        next_hops.iter().map(|via| via.weight).collect::<Vec<_>>(),
        [1, 2, 1]
    );
    assert_eq!(next_hops[2].interface, Some(InterfaceId(2)));
    assert_eq!(config.routes[1].to, RouteTo::Blackhole);
    let gateways = ["192.0.2.253", "192.0.2.254"].map(|a| (InterfaceId(0), a.parse().unwrap()));
    assert_eq!(config.gateways(), gateways.into());
    assert_eq!(config.tables().collect::<Vec<_>>(), [Some(254), Some(10)]);
    assert_eq!(config.acls[0].answer, Answer::Icmp);
    let rule = &config.acls[0].rules[0];
    assert_eq!(rule.match4().unwrap().dst_ports.low(), 22);
    assert!(
        rule.match6().is_none(),
        "an IPv4 source is of no IPv6 packet"
    );
}

#[test]
fn host_interfaces_are_named_after_their_interfaces() {
    let text = PORTS.replace("false", "true")
        + "[[interface]]\nport = \"lan\"\nhost_interface = false\n[[interface]]\nport = \"wan\"\n\
            vlan = 7\n";
    let config = Config::parse(&text).unwrap();
    let host_interfaces: Vec<_> = config
        .interfaces
        .iter()
        .map(|i| i.host_interface.as_deref())
        .collect();
    assert_eq!(host_interfaces, [None, Some("lr-wan.7")]);
}

#[test]
fn all_errors_are_reported_with_line_key_and_correction() {
    let said = errors(
        r#"[[interface]]
port = "wam"
[[interface]]
port = "wan"
vlan = 5000
adresses = ["192.0.2.1/24"]
[[interface]]
port = "lan"
addresses = ["192.0.2.1", "192.0.2.255/24", 7]
urpf = "lose"
acl_in = "edge"
[[route]]
prefix = "10.0.0.1/8"
via = "192.0.2.x"
"#,
    );
    assert_eq!(
        said,
        [
            "10: interface.port: there is no port `wam`; perhaps wan",
            "13: interface.vlan: 5000 is out of range; a number from 1 to 4094",
            "14: interface.adresses: there is no such key; perhaps addresses",
            "17: interface.addresses: `192.0.2.1` is no address with a length, such as \
             192.0.2.1/24; an address with a length such as \"192.0.2.1/24\" or \"2001:db8::1/64\"",
            "17: interface.addresses: `192.0.2.255/24` is its broadcast address; an address with a \
             length such as \"192.0.2.1/24\" or \"2001:db8::1/64\"",
            "17: interface.addresses: this is a number; an address with a length such as \
             \"192.0.2.1/24\" or \"2001:db8::1/64\"",
            "18: interface.urpf: `lose` is unknown; perhaps loose",
            "19: interface.acl_in: there is no access list `edge`; there is none",
            "21: route.prefix: `10.0.0.1/8` has bits set behind its length; 10.0.0.0/8 has not; a \
             prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\"",
            "22: route.via: `192.0.2.x` is no address; an address, { address, interface, weight }, \
             or a list of those",
        ]
    );
}

#[test]
fn stanzas_that_contradict_each_other_are_errors() {
    for (text, wanted) in [
        (
            "[[interface]]\nport = \"wan\"\nvlan = 5\n[[interface]]\nname = \"b\"\nport = \"wan\"\n\
             vlan = 5",
            "13: interface.vlan: `wan.5` has VLAN 5 of that port already; another vlan, 1 to 4094",
        ),
        (
            "[[interface]]\nport = \"wan\"\n[[interface]]\nname = \"b\"\nport = \"wan\"",
            "12: interface.vlan: `wan` has the untagged frames of that port already; another vlan, \
             1 to 4094",
        ),
        (
            "[[interface]]\nport = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[[interface]]\nport = \
             \"lan\"\naddresses = [\"192.0.2.1/32\"]",
            "14: interface.addresses: `wan` has 192.0.2.1 already; another network, or another vrf",
        ),
        (
            "[[interface]]\nport = \"wan\"\naddresses = [\"10.0.0.1/8\"]\n[[interface]]\nport = \
             \"lan\"\naddresses = [\"10.1.0.1/24\"]",
            "14: interface.addresses: 10.1.0.0/24 overlaps 10.0.0.1/8 of `wan`; another network, \
             or another vrf",
        ),
        (
            "[[port]]\nname = \"wan\"\nspec = \"ring:x\"",
            "10: port.name: `wan` names two ports; a name of its own",
        ),
        (
            "[[port]]\nname = \"dmz\"\nspec = \"af_xpd:eth0\"",
            "11: port.spec: there is no kind of port `af_xpd`; perhaps af_xdp",
        ),
        (
            "[[interface]]\nport = \"wan\"\nmtu = 600\naddresses = [\"2001:db8::1/64\"]",
            "11: interface.mtu: 600 is too small for IPv6; 1280 or more (RFC 8200 5), or no IPv6 \
             addresses",
        ),
        (
            "[[interface]]\nport = \"wan\"\nvrf = \"blu\"",
            "11: interface.vrf: there is no VRF `blu`; one of default",
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"",
            "9: route.via: the route leads nowhere; via, or one of blackhole, unreachable and \
             prohibit = true",
        ),
        (
            "[[route]]\nprefix = \"2001:db8::/32\"\nvia = \"10.0.0.1\"",
            "11: route.via: 10.0.0.1 is no next hop of 2001:db8::/32, which is IPv6; an IPv6 \
             address",
        ),
        (
            "[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"fe80::1\"",
            "11: route.via: fe80::1 may be on any link; its link as well: { address = \"fe80::1\", \
             interface = \"wan\" }",
        ),
        (
            "[[port]]\nspec = \"af_xdp:eth0\"\n[[port]]\nname = \"dmz\"\nspec = \
             \"af_packet:eth0,queues=2\"",
            "13: port.spec: interface `eth0` is port `af_xdp:eth0` already; an interface of its \
             own: every frame would come by both",
        ),
        (
            "[[neighbour]]\naddress = \"10.0.0.1\"\nmac = \"01:00:00:00:00:01\"\ninterface = \
             \"wan\"",
            "11: neighbour.mac: 01:00:00:00:00:01 is a group address; an address of one station \
             such as \"02:00:00:00:00:fe\"",
        ),
        (
            "[[acl]]\nname = \"a\"\nrules = [{ action = \"drop\" }]",
            "11: acl a rule 1: action: `drop` is no action; permit, deny or reject",
        ),
        (
            "[[acl]]\nname = \"a\"\nrules = [{ action = \"deny\", destination_port = \"22\" }]",
            "11: acl a rule 1: destination_port: only some protocols have ports; with protocol = \
             \"tcp\", \"udp\" or \"sctp\"",
        ),
        (
            "[[interface]]\nport = \"wan\"\npolicer = { rate = \"fast\", burst = \"64kB\" }",
            "11: interface.policer.rate: `fast` is no rate; a rate such as \"100Mbit\": bit, kbit, \
             Mbit or Gbit a second",
        ),
        (
            "[[interface]]\nport = \"wan\"\nadvertise = { interval = 3 }\naddresses = \
             [\"2001:db8::1/64\"]",
            "11: interface.advertise.interval: 3 is out of range; a number from 4 to 1800",
        ),
        (
            "[[interfaces]]\nport = \"wan\"",
            "9: interfaces: there is no such key; perhaps interface",
        ),
    ] {
        assert_eq!(errors(text), [wanted], "{text}");
    }
}

/// RFC 8950 in the file, as from the kernel and FRR; and ports that share an interface.
#[test]
fn ipv4_by_way_of_ipv6_is_sound() {
    let config = good(
        "[[interface]]\nport = \"wan\"\naddresses = [\"2001:db8::1/64\"]\n\
         [[route]]\nprefix = \"10.0.0.0/8\"\nvia = [\"2001:db8::2\", { address = \"fe80::1\", \
         interface = \"wan\" }]\n",
    );
    assert_eq!(config.warnings, []);
    assert_eq!(config.gateways().len(), 2);
    good(
        "[[port]]\nname = \"x\"\nspec = \"af_xdp:eth0,filter=udp\"\n\
         [[port]]\nname = \"y\"\nspec = \"af_xdp:eth0,filter=tcp,start_queue=1\"\n",
    );
}

/// One mistake is one error, which names its rule: an unreadable key causes no second error in
/// another key or rule.
#[test]
fn a_mistake_in_a_rule_is_reported_once_and_names_that_rule() {
    for (rules, wanted) in [
        (
            "{ action = \"deny\" },\n{ action = \"permit\", protocol = \"tpc\", destination_port = \
             \"22\" }",
            "13: acl edge rule 2: protocol: ",
        ),
        (
            "{ action = \"deny\", protocol = \"ipcmp\", icmp_type = 8 }",
            "12: acl edge rule 1: protocol: ",
        ),
        (
            "{ action = \"deny\" },\n{ action = \"permit\", source = \"10.0.0.0/33\" }",
            "13: acl edge rule 2: source: ",
        ),
        (
            "{ action = \"deny\" },\n{ action = \"permit\", sorce = \"10.0.0.0/8\" }",
            "13: acl edge rule 2: sorce: there is no such key; perhaps source",
        ),
        (
            "{ actoin = \"deny\" }",
            "12: acl edge rule 1: actoin: there is no such key; perhaps action",
        ),
        (
            "{ protocol = \"tcp\" }",
            "12: acl edge rule 1: action: it is missing",
        ),
        (
            "{ action = \"deny\", protocol = \"icmp\", source = \"10.0.0.0/8\", \
             destination = \"2001:db8::/32\" }",
            "12: acl edge rule 1: destination: source and destination are of two families",
        ),
        (
            "{ action = \"deny\" },\n{ action = \"deny\" }",
            "13: acl edge rule 2: action: an earlier rule matches the same packets",
        ),
    ] {
        let text = format!("[[acl]]\nname = \"edge\"\nrules = [\n{rules},\n]");
        let said = errors(&text);
        assert!(
            said.len() == 1 && said[0].starts_with(wanted),
            "{rules}: {said:#?}"
        );
    }
}

#[test]
fn protocols_and_ports_of_rules_are_numbers_or_texts() {
    let acls = |protocol: &str, port: &str| {
        let rule = format!("action = \"deny\", protocol = {protocol}, source_port = {port}");
        let text = format!("[[acl]]\nname = \"edge\"\nrules = [\n{{ {rule} }},\n]");
        good(&text).acls
    };
    assert_eq!(acls("17", "53"), acls("\"udp\"", "\"53\""));
    assert_ne!(acls("6", "53"), acls("17", "53"));
}

#[test]
fn a_loopback_has_addresses_that_stand_alone_and_no_wire() {
    let lo = "[[interface]]\nname = \"lo0\"\nloopback = true\naddresses = ";
    let config = good(&format!("{lo}[\"10.255.0.1/32\", \"2001:db8::1/128\"]\n"));
    // The ports have host interfaces as well.
    assert_eq!(config.interfaces.len(), 3);
    let lo0 = &config.interfaces[0];
    assert!(lo0.is_loopback() && lo0.port.is_none(), "{lo0:?}");
    assert_eq!(lo0.addresses.len(), 2);
    for (text, wanted) in [
        (
            format!("{lo}[\"10.255.0.1/24\"]"),
            "12: interface.addresses: `10.255.0.1/24` is a network, and a loopback has no link; \
             addresses that stand alone, such as \"10.255.0.1/32\" or \"2001:db8::1/128\"",
        ),
        (
            format!("{lo}[]\nport = \"wan\""),
            "13: interface.port: there is no such key; one of loopback, name, vrf, addresses, \
             host_interface",
        ),
        (
            "[[interface]]\nloopback = true".into(),
            "9: interface.name: it is missing; a name such as \"lo0\"",
        ),
        (
            format!("{lo}[]\n[[route]]\nprefix = \"10.0.0.0/8\"\nvia = {{ interface = \"lo0\" }}"),
            "15: route.via: `lo0` is a loopback, which has no link; an interface of a port",
        ),
    ] {
        assert_eq!(errors(&text), [wanted], "{text}");
    }
}

#[test]
fn a_metrics_listener_stays_on_the_machine() {
    let text = PORTS.replace("kernel", "metrics = \"0.0.0.0:9108\"\nkernel");
    let errors = Config::parse(&text).map(|_| ()).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0]
            .to_string()
            .starts_with("2: router.metrics: 0.0.0.0")
    );
}

#[test]
fn a_host_interface_name_that_is_too_long_is_said_where_it_comes_from() {
    let text = PORTS
        .replace("false", "true")
        .replace("\"lan\"", "\"the-long-lan-port\"");
    let errors = Config::parse(&text).map(|_| ()).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "7: port.name: its host interface in the kernel would be called `lr-the-long-lan-port`; a \
         shorter name, or an [[interface]] with a host interface of its own"
    );
}

#[test]
fn lines_that_are_no_toml_are_said_together() {
    let said = errors("[[route]]\nprefix = \n[[interface]]\nport = \"wan\nmtu = 1500\n");
    assert!(said.len() >= 2, "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("10: ")), "{said:?}");
}

#[test]
fn a_next_hop_that_nothing_reaches_is_a_warning() {
    let config = good("[[route]]\nprefix = \"10.0.0.0/8\"\nvia = \"192.0.2.9\"\n");
    let said: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "11: route.via: 192.0.2.9 is on no interface's network; the route is kept, marked \
             unreachable, until another route leads there"
        ]
    );
}

#[test]
fn rules_say_what_they_ask() {
    let config = good(
        "[[acl]]\nname = \"a\"\ndefault = \"reject\"\nrules = [\n\
         { action = \"reject\", log = true, protocol = \"tcp\", source = \"10.0.0.0/8\", \
         destination_port = \"22\" },\n\
         { action = \"deny\", protocol = \"udp\", source_port = \"1-9\", destination = \
         \"fd00::/8\" },\n\
         { action = \"permit\", protocol = \"icmp\", icmp_type = 8 },\n\
         { action = \"permit\", protocol = \"132\" },\n\
         { action = \"permit\" },\n]\n",
    );
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let acl = &config.acls[0];
    assert_eq!(acl.default, Verdict::Reject);
    let said: Vec<_> = acl.rules.iter().map(ToString::to_string).collect();
    let expected = [
        "tcp 10.0.0.0/8 > any port 22",
        "udp any ports 1-9 > fd00::/8",
        "icmp any > any type 8",
        "sctp any > any",
        "any any > any",
    ];
    assert_eq!(said, expected);
    let first = &acl.rules[0];
    assert_eq!((first.action, first.log), (Verdict::Reject, true));
    assert!(!acl.rules[1].log);
}

#[test]
fn the_file_in_an_error_is_the_users() {
    let folder = linerate_core::env::PrivateFolder::new("router").unwrap();
    let path = folder.join("router.toml");
    std::fs::write(&path, "[[port]]\nspec = 7\n[router]\nkernle = true\n").unwrap();
    let error = Config::read(Appliance::default(), &path)
        .map(|_| ())
        .unwrap_err();
    let file = path.display();
    assert_eq!(
        error.to_string(),
        format!(
            "{file}: 2 things are wrong\n\
             {file}:2: port.spec: this is a number; KIND:TARGET[,key=value...]; see `linerate \
             ports`\n\
             {file}:4: router.kernle: there is no such key; perhaps kernel"
        )
    );
    assert_eq!(
        error.fix().unwrap(),
        format!("correct these lines; `linerate router {file} --check` looks again")
    );
}

#[test]
fn interfaces_keep_their_numbers_when_others_come_and_go() {
    let text = |names: &[&str]| {
        let interface = |(vlan, name): (usize, &&str)| {
            format!(
                "[[interface]]\nname = \"{name}\"\nport = \"wan\"\nvlan = {}\n",
                vlan + 1
            )
        };
        let interfaces: String = names.iter().enumerate().map(interface).collect();
        let next_hop = names.last().unwrap();
        good(&format!(
            "{interfaces}[[route]]\nprefix = \"10.0.0.0/8\"\nvia = [{{ interface = \"{next_hop}\" \
             }}]\n"
        ))
    };
    let names = |config: &Config| -> Vec<String> {
        config.interfaces.iter().map(|i| i.name.clone()).collect()
    };
    let first = text(&["a", "b", "c"]);
    // The bare interface of the other port comes last.
    assert_eq!(names(&first), ["a", "b", "c", "lan"]);
    let second = text(&["c", "d"]).keeping(&first, |_| false);
    assert_eq!(names(&second), ["", "", "c", "lan", "d"]);
    let RouteTo::Via(next_hops) = &second.routes[0].to else {
        panic!()
    };
    assert_eq!(next_hops[0].interface, Some(InterfaceId(4)));
    let third = text(&["e", "c"]).keeping(&second, |_| false);
    assert_eq!(names(&third), ["e", "", "c", "lan"]);
}

#[test]
fn punts_have_rates_by_kind_and_check_shows_them_all() {
    let file = |punts: &str| {
        let text = PORTS.replace("kernel = false", &format!("kernel = false\n{punts}"));
        Config::parse(&text)
    };
    let config = file("punts = { local = 50000, arp = 7 }").unwrap();
    let shown = |config: &Config| {
        let machine = linerate_core::env::Topology::machine().unwrap();
        let plan = crate::control::place(config, &machine).unwrap();
        explain(config, &plan, "x").text("x", false)
    };
    let line = "punts a second, from each lcore that forwards: arp 7, nd 5000, local 50000, \
                routing 100000, other 1000, resolve 20000, glean 5000, host 200000\n";
    assert!(shown(&config).contains(line), "{}", shown(&config));
    let usual = shown(&file("").unwrap());
    assert!(usual.contains("arp 5000, nd 5000, local 200000"), "{usual}");
    let wrong = file("punts = { lokal = 5, arp = 0 }").unwrap_err();
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(
        wrong,
        [
            "3: router.punts.arp: 0 is out of range; a number from 1 to 10000000",
            "3: router.punts.lokal: there is no such key; perhaps local",
        ]
    );
}

#[test]
fn a_router_refuses_a_gateways_stanzas_and_names_it() {
    let text =
        "[[port]]\nname = \"a\"\nspec = \"ring:a\"\n[[zone]]\nname = \"lan\"\n[flows]\n[nat]\n";
    let errors = Config::parse(text).map(|_| ()).unwrap_err();
    let keys: Vec<(usize, &str)> = errors.iter().map(|one| (one.line, &*one.key)).collect();
    assert_eq!(keys, [(4, "zone"), (6, "flows"), (7, "nat")], "{errors:?}");
    for error in &errors {
        assert_eq!(error.problem, "a router has no such stanza");
        assert!(error.legal.contains("`linerate gateway`"), "{error}");
    }
    // The privilege helper looks at names alone, whichever appliance has the file.
    let names = Config::parse_for(Appliance(&crate::extension::Names), text);
    assert_eq!(names.unwrap().named().ports, ["ring:a"]);
}
