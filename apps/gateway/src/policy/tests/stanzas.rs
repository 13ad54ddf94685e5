//! What the stanzas say, and what is wrong with them.

use super::*;
use std::fs;

fn errors(text: &str) -> Vec<String> {
    read_in(Path::new("."), &format!("{ZONES}{text}")).1
}

/// Asserts that a text behind the zones, which take six lines, has this one error.
fn wrong(text: &str, error: &str) {
    assert_eq!(errors(text), [error], "{text}");
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = build(
        &format!(
            "{}{}",
            "[[set]]\nname = \"web\"\nservices = [\"tcp/80\", \"tcp/443\", \"udp/443\"]\n\
             [[set]]\nname = \"high\"\nports = [\"1024-65535\"]\n\
             [[set]]\nname = \"servers\"\nprefixes = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n",
            rules(
                "{ action = \"deny\", source = \"10.0.0.66\" },\n\
                 { action = \"permit\", service = \"web\", destination = \"servers\" },\n\
                 { action = \"reject\", protocol = \"tcp\", source_port = \"high\", \
                 destination_port = [25, \"110-143\"] },\n\
                 { action = \"permit\", protocol = \"icmp\", icmp_type = 3, icmp_code = 4 },\n\
                 { action = \"permit\", service = \"dns\", dscp = 46 },"
            )
            .replace("\"dns\"", "\"udp/53\"")
        ),
        None,
    );
    for (flow, expected) in [
        ("10.0.0.66:4000 > 192.0.2.1:443 tcp", (1, Verdict::Deny)),
        ("10.0.0.1:4000 > 192.0.2.1:443 tcp", (2, Verdict::Permit)),
        ("10.0.0.1:4000 > 192.0.2.1:443 udp", (2, Verdict::Permit)),
        ("10.0.0.1:4000 > 192.0.3.1:443 tcp", (0, Verdict::Deny)),
        (
            "[2001:db9::1]:1 > [2001:db8::2]:80 tcp",
            (2, Verdict::Permit),
        ),
        (
            "[2001:db9::1]:1024 > [2001:db9::2]:25 tcp",
            (3, Verdict::Reject),
        ),
        ("10.0.0.1:1023 > 192.0.2.1:25 tcp", (0, Verdict::Deny)),
        ("10.0.0.1 > 192.0.2.1 tcp fragment", (3, Verdict::Reject)),
        (
            "10.0.0.1 > 192.0.2.1 icmp type 3 code 4",
            (4, Verdict::Permit),
        ),
        (
            "10.0.0.1 > 192.0.2.1 icmp type 3 code 1",
            (0, Verdict::Deny),
        ),
        (
            "10.0.0.1:9 > 192.0.2.1:53 udp dscp 46",
            (5, Verdict::Permit),
        ),
        ("10.0.0.1:9 > 192.0.2.1:53 udp", (0, Verdict::Deny)),
    ] {
        assert_eq!(says(&policy, flow), expected, "{flow}");
    }
}

#[test]
fn an_explanation_names_the_field_and_what_it_should_be() {
    let policy = build(
        &rules(
            "{ action = \"deny\", source = \"10.9.0.0/16\", name = \"old net\" },\n\
             { action = \"permit\", service = [\"udp/53\", \"tcp/53\"] },\n\
             { action = \"permit\", service = \"tcp/443\", log = true },",
        ),
        None,
    );
    let (from, to) = lan_and_wan(&policy);
    let web = "10.0.0.1:4000 > 192.0.2.1:443 tcp".parse().unwrap();
    let explanation = policy.explain(from, to, &web);
    let lines = [
        "10.0.0.1:4000 > 192.0.2.1:443 tcp, from lan to wan",
        "policy lan > wan",
        "  not rule 1 (old net): source is not 10.9.0.0/16",
        "  not rule 2: destination port is not udp port 53 or tcp port 53",
        "  rule 3: any > any, tcp port 443",
        "permit, logged",
    ];
    assert_eq!(explanation.to_string(), lines.join("\n"));
    let value = explanation.to_json();
    assert_eq!(value["rule"]["number"], 3);
    assert_eq!(value["passed_over"][0]["field"], "source");
    let back = policy.explain(to, from, &web);
    assert_eq!(
        (back.list.as_str(), back.verdict),
        ("between zones", "deny")
    );
}

#[test]
fn without_a_policy_zones_are_closed_to_each_other_and_open_within() {
    let policy = build("", None);
    let (lan, wan) = lan_and_wan(&policy);
    let web = "10.0.0.1:4000 > 192.0.2.1:443 tcp".parse().unwrap();
    for (from, to, permitted) in [
        (lan, wan, false),
        (lan, lan, true),
        (lan, Zone::SELF, true),
        (Zone::SELF, wan, true),
        (Zone::NONE, wan, false),
        (lan, Zone::NONE, false),
    ] {
        let decision = policy.decide(from, to, &web);
        assert_eq!(decision.is_permit(), permitted, "{from:?} > {to:?}");
        assert_eq!(
            decision.lacks_zone(),
            from == Zone::NONE || to == Zone::NONE
        );
    }
    let (config, _, _) = read_in(Path::new("."), "");
    let open = Policy::build(&config, &PORTS, None).unwrap();
    assert!(
        open.decide(Zone::NONE, Zone::NONE, &web).is_permit(),
        "there are no zones"
    );
}

#[test]
fn zones_that_cannot_be() {
    wrong(
        "[[zone]]\nname = \"dmz\"\ninterfaces = [\"p1\"]\n",
        "9: zone.interfaces: `p1` is in zone `wan` already; one zone for each interface",
    );
    wrong(
        "[[zone]]\nname = \"dmz\"\ninterfaces = [\"p7\"]\n",
        "9: zone.interfaces: there is no interface `p7`; one of p0, p1",
    );
    wrong(
        "[[zone]]\nname = \"lan\"\ninterfaces = []\n",
        "8: zone.name: `lan` names two zones; a name of its own",
    );
    wrong(
        "[[zone]]\nname = \"self\"\n",
        "8: zone.name: `self` has a meaning of its own; another name, such as \"lan\"",
    );
    let many = |count: usize| -> String {
        (0..count)
            .map(|number| format!("[[zone]]\nname = \"z{number}\"\n"))
            .collect()
    };
    assert_eq!(errors(&many(252)), [""; 0]);
    assert_eq!(
        errors(&many(253)),
        ["511: zone: there are 255 zones; at most 254"]
    );
    let (_, _, warnings) = read_in(
        Path::new("."),
        "[[zone]]\nname = \"lan\"\ninterfaces = [\"p0\"]",
    );
    let apart = "1: zone: interface `p1` is in no zone: nothing is forwarded there; put it into a \
                 [[zone]]";
    assert_eq!(warnings, [apart]);
    let (_, _, warnings) = read_in(
        Path::new("."),
        &format!("{ZONES}[[zone]]\nname = \"dmz\"\n"),
    );
    let empty = "7: zone: this zone has no interface; name its interfaces, or take it out";
    assert_eq!(warnings, [empty]);
}

#[test]
fn all_errors_at_once_with_line_and_key() {
    let text = "[[set]]\nname = \"web\"\nservices = [\"tcp/443\", \"tpc/80\"]\n\
                [[set]]\nname = \"tcp\"\nports = []\n\
                [[policy]]\nfrom = \"lna\"\nto = \"wan\"\nrules = [\n\
                { action = \"alow\", log = 1 },\n]\n";
    assert_eq!(
        errors(text),
        [
            "9: set.services: there is no protocol `tpc`, perhaps tcp; a list of services, such as \
             \"tcp/443\", \"udp/1000-2000\", \"icmp/8\" or \"gre\"",
            "11: set.name: `tcp` could be taken for something else; a letter, then letters, \
             digits, `-`, `_` or `.`; no protocol, not any",
            "12: set.ports: this list is empty; a list of ports: a port or a range such as \
             \"1024-65535\"",
            "14: policy.from: there is no zone `lna`; perhaps lan",
            "17: policy lna > wan rule 1: action: `alow` is no action; permit, deny or reject",
            "17: policy lna > wan rule 1: log: this is a number; true or false",
        ]
    );
}

#[test]
fn rules_that_cannot_be() {
    let sets = "[[set]]\nname = \"servers\"\nprefixes = [\"192.0.2.0/24\"]\n";
    for (rule, error) in [
        (
            "action = \"deny\", source = \"server\"",
            "source: there is no set `server`; perhaps servers",
        ),
        (
            "action = \"deny\", source = []",
            "source: this list is empty; a prefix, the name of a [[set]], or a list of those; `!` \
             negates one",
        ),
        (
            "action = \"deny\", service = \"servers\"",
            "service: `servers` is a set of prefixes; use it for source or destination",
        ),
        (
            "action = \"deny\", source = \"10.0.0.1/8\"",
            "source: `10.0.0.1/8` has bits set behind its length; 10.0.0.0/8 has not; a prefix, \
             the name of a [[set]], or a list of those; `!` negates one",
        ),
        (
            "action = \"deny\", source = \"10.0.0.0/8\", destination = \"::/0\"",
            "destination: source and destination are of two families; both IPv4 or both IPv6",
        ),
        (
            "action = \"deny\", source = \"10.0.0.0/8\", service = \"icmp6\"",
            "protocol: it fits no packet of these addresses; icmp with IPv4 addresses, icmp6 with \
             IPv6 addresses",
        ),
        (
            "action = \"deny\", destination_port = 22",
            "destination_port: only some protocols have ports; with protocol = \"tcp\", \"udp\" \
             or \"sctp\"",
        ),
        (
            "action = \"deny\", protocol = \"tcp\", icmp_type = 8",
            "icmp_type: only ICMP has types and codes; with protocol = \"icmp\" or \"icmp6\"",
        ),
        (
            "action = \"deny\", protocol = \"icmp\", icmp_code = 0",
            "icmp_code: a code is one of a type; with icmp_type",
        ),
        (
            "action = \"deny\", service = \"tcp/22\", protocol = \"tcp\"",
            "protocol: a service has all of this; either service, or protocol and ports",
        ),
        (
            "action = \"deny\", dscp = 64",
            "dscp: 64 is out of range; a number from 0 to 63",
        ),
        (
            "action = \"deny\", protocol = \"tcp\", destination_port = \"30-20\"",
            "destination_port: `30-20` is reversed; a port or a range such as \"1024-65535\", the \
             name of a [[set]], or a list of those",
        ),
    ] {
        let text = format!("{sets}{}", rules(&format!("{{ {rule} }}")));
        wrong(&text, &format!("14: policy lan > wan rule 1: {error}"));
    }
}

#[test]
fn a_protocol_is_a_number_or_a_text() {
    for protocol in ["253", "\"253\""] {
        let rule = format!("{{ action = \"permit\", protocol = {protocol} }}");
        let policy = build(&rules(&rule), None);
        assert_eq!(
            says(&policy, "10.0.0.1 > 192.0.2.1 253"),
            (1, Verdict::Permit)
        );
        assert_eq!(
            says(&policy, "10.0.0.1 > 192.0.2.1 254"),
            (0, Verdict::Deny)
        );
    }
    wrong(
        &rules("{ action = \"permit\", protocol = 256 }"),
        "11: policy lan > wan rule 1: protocol: there is no protocol `256`, one of icmp, igmp, \
         tcp, udp, gre, esp, ah, icmp6, ospf, sctp; a name or a number, or any",
    );
}

#[test]
fn policies_that_cannot_be() {
    let twice = format!("{}{}", rules(""), rules("{ action = \"permit\" }"));
    wrong(
        &twice,
        "13: policy.from: there are two policies lan > wan; one for each pair of zones",
    );
    wrong(
        "[[policy]]\nfrom = \"self\"\nto = \"self\"\n",
        "7: policy.to: what the gateway sends to itself does not cross it; the name of a [[zone]], \
         or any",
    );
    wrong(
        "[[set]]\nname = \"x\"\nports = [22]\nprefixes = []\n",
        "7: set.prefixes: it has prefixes and ports; one kind of members for each set",
    );
    wrong(
        "[[set]]\nname = \"x\"\n",
        "7: set.name: this set says nothing of its members; one of prefixes, ports, services, file",
    );
}

#[test]
fn sets_and_rules_come_from_files_too() {
    let folder = std::env::temp_dir().join(format!("linerate-policy-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("bad.txt", "# of today\n192.0.2.0/24\n2001:db8::7\n");
    write(
        "rules.toml",
        "[[rule]]\naction = \"deny\"\ndestination = \"bad\"\n\
                         [[rule]]\naction = \"permit\"\n",
    );
    let text = format!(
        "{ZONES}[[set]]\nname = \"bad\"\nfile = \"bad.txt\"\n\
         [[policy]]\nfrom = \"lan\"\nto = \"wan\"\nfile = \"rules.toml\"\n"
    );
    let (config, errors, _) = read_in(&folder, &text);
    assert_eq!(errors, [""; 0]);
    let policy = Policy::build(&config, &PORTS, None).unwrap();
    assert_eq!(
        says(&policy, "10.0.0.1:1 > 192.0.2.9:1 tcp"),
        (1, Verdict::Deny)
    );
    assert_eq!(
        says(&policy, "[::1]:1 > [2001:db8::8]:1 tcp"),
        (2, Verdict::Permit)
    );
    write("bad.txt", "192.0.2.0/24\n192.0.2.1/24\nx\n");
    write(
        "rules.toml",
        "[[rule]]\naction = \"deny\"\n[[rule]]\naction = \"permit\"\nport = 1\n",
    );
    let (_, errors, _) = read_in(&folder, &text);
    let prefix = "a prefix such as \"10.0.0.0/8\" or \"2001:db8::/32\"";
    let start = "9: set.file: bad.txt line 2: `192.0.2.1/24` has bits set behind its length";
    assert_eq!(
        errors[0],
        format!("{start}; 192.0.2.0/24 has not; {prefix}")
    );
    assert!(errors[1].starts_with("9: set.file: bad.txt line 3: `x` is no address"));
    let start = "13: policy.file: rules.toml line 5: rule.port: there is no such key;";
    assert!(errors[2].starts_with(start), "{errors:?}");
    assert_eq!(errors.len(), 3);
    fs::remove_file(folder.join("bad.txt")).unwrap();
    let (_, errors, _) = read_in(&folder, &text);
    assert!(errors[0].contains("bad.txt"), "{errors:?}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn rules_that_never_decide_are_told_by_line() {
    let sets = "[[set]]\nname = \"none\"\nprefixes = []\n\
                [[set]]\nname = \"ten\"\nprefixes = [\"10.0.0.0/9\", \"10.128.0.0/9\"]\n";
    let text = rules(
        "{ action = \"deny\", source = \"10.1.0.0/16\" },\n\
         { action = \"permit\", source = \"10.1.2.0/24\", service = \"tcp/22\" },\n\
         { action = \"permit\", source = \"none\" },\n\
         { action = \"permit\", source = \"10.0.0.0/8\", protocol = \"tcp\", \
         destination_port = \"20-30\" },\n\
         { action = \"deny\", source = \"ten\", service = [\"tcp/22\", \"tcp/25\"] },\n\
         { action = \"permit\", source = \"ten\", service = [\"tcp/22\", \"tcp/25\"] },\n\
         { action = \"permit\", source = \"ten\", service = [\"tcp/22\", \"tcp/31\"] },\n\
         { action = \"permit\", source = \"!ten\" },\n\
         { action = \"permit\", source = \"192.0.2.0/24\", service = \"icmp\" },",
    );
    let config = read(&format!("{sets}{text}"));
    let lists = Policy::prepare(&config, None).unwrap();
    let warnings: Vec<String> = warnings(&lists, &config)
        .iter()
        .map(ConfigError::to_string)
        .collect();
    let line = |line: u32, rule: u32, problem: &str| {
        let advice = "move it up, or take it out";
        format!("{line}: policy lan > wan rule {rule}: {problem}: it never decides; {advice}")
    };
    assert_eq!(
        warnings,
        [
            line(18, 2, "rule 1 has all its packets"),
            line(19, 3, "its sets have no addresses"),
            // Not rule 5, the same as rule 4's but for fragments, which it denies.
            line(22, 6, "rule 4 has all its packets"),
            line(25, 9, "rule 8 has all its packets"),
        ]
    );
}

#[test]
fn a_fragment_meets_the_rule_that_denies_ports_behind_one_that_permits_the_same() {
    let policy = build(
        &rules(
            "{ action = \"permit\", service = \"tcp/22\" },\n\
             { action = \"deny\", service = \"tcp/22\" },\n\
             { action = \"permit\" },",
        ),
        None,
    );
    let list = &policy.lists()[5];
    assert_eq!(list.unreachable, [], "the second decides on fragments");
    let flow = "10.0.0.1:4000 > 192.0.2.1:22 tcp";
    assert_eq!(says(&policy, flow), (1, Verdict::Permit));
    let fragment = "10.0.0.1 > 192.0.2.1 tcp fragment";
    assert_eq!(says(&policy, fragment), (2, Verdict::Deny));
}

#[test]
fn a_rule_of_too_many_combinations_is_refused_by_name() {
    let ports: Vec<String> = (0..1100).map(|port| (2 * port).to_string()).collect();
    let set = format!("[[set]]\nname = \"even\"\nports = [{}]\n", ports.join(", "));
    let rule = "{ action = \"permit\", protocol = \"udp\", source_port = \"even\", \
                destination_port = \"even\" }";
    let config = read(&format!("{set}{}", rules(rule)));
    let error = Policy::build(&config, &PORTS, None)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "policy lan > wan (line 10): rule 1 stands for 1210000 combinations of addresses, services \
         and ports, a list has room for 1048576: merge its ports into ranges, or split it"
    );
}
