//! What the stanzas mean, and what is wrong with others.

use super::*;
use crate::nat::writer::To;
use linerate_appliance::config::{Parsed, parse};

fn addresses(list: &[&str]) -> Vec<Cidr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn read_text(text: &str) -> Parsed<Config> {
    let wan = addresses(&["192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"]);
    let lan = addresses(&["10.0.0.254/8"]);
    parse(text, |file| {
        let config = read(
            file,
            &Known {
                zones: &["lan", "wan"],
                interfaces: &[("eth0", &lan), ("eth1", &wan), ("eth2", &[])],
                pools_used: &[],
            },
        );
        file.end();
        config
    })
}

#[track_caller]
fn right(text: &str) -> Config {
    let parsed = read_text(text);
    assert_eq!(parsed.errors, []);
    parsed.value
}

/// The errors, as they are shown.
fn wrong(text: &str) -> Vec<String> {
    let errors = read_text(text).errors;
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_without_nat_translates_nothing() {
    assert!(right("").is_empty());
    assert!(right("[nat]\nmappings = 1000").is_empty());
}

#[test]
fn every_key_is_read() {
    let config = right(
        r#"
        [nat]
        mappings = 1000
        [nat.log]
        file = "/var/lib/linerate/nat.jsonl"
        sessions = false
        size = 1000
        [[nat.pool]]
        name = "wan"
        addresses = ["198.51.100.1", "198.51.100.8-198.51.100.15", "203.0.113.0/30"]
        ports = "2048-40000"
        mapping = "independent"
        filtering = "independent"
        paired = false
        preserve = false
        block = 64
        blocks = 2
        host_ports = 500
        log = true
        [[nat.pool]]
        name = "lan"
        addresses = ["10.0.0.250"]
        mapping = "dependent"
        [[nat.source]]
        from = "lan"
        to = "wan"
        source = "10.0.0.0/8"
        destination = "192.0.3.0/24"
        protocol = "tcp"
        keep = true
        [[nat.source]]
        interface = "eth1"
        pool = "wan"
        [[nat.source]]
        masquerade = "eth1"
        filtering = "independent"
        [[nat.static]]
        inside = "10.0.1.0/28"
        outside = "198.51.101.0/28"
        to = "wan"
        [[nat.forward]]
        outside = "198.51.100.1"
        protocol = "tcp"
        ports = "8000-8009"
        inside = "10.0.0.5"
        inside_port = 80
        source_pool = "lan"
        [[nat.forward]]
        outside = "192.0.2.1"
        protocol = "any"
        inside = "10.0.0.6"
        [[nat.nat64]]
        pool = "wan"
        from = "lan"
        [[nat.nptv6]]
        inside = "fd01:203:405::/48"
        outside = "2001:db8:1::/48"
        to = "wan"
        "#,
    );
    let [wan, lan, v4, v6] = &config.pools[..] else {
        panic!("two pools, and those of eth1");
    };
    assert_eq!(
        (wan.each().count(), wan.ports.clone(), wan.block_ports),
        (13, 2048..=40000, 64)
    );
    assert_eq!(
        (wan.filtering, wan.is_paired),
        (Filtering::EndpointIndependent, false)
    );
    assert_eq!(
        (wan.preserves, wan.host_ports, wan.blocks, wan.logs),
        (false, Some(500), 2, true)
    );
    assert_eq!(
        (lan.is_independent, lan.filtering),
        (false, Filtering::AddressAndPortDependent)
    );
    let to = Some(To::File("/var/lib/linerate/nat.jsonl".into()));
    assert_eq!((&config.log.to, config.log.blocks), (&to, true));
    assert_eq!((config.limits.records, lan.logs), (1000, false));
    assert!(v4.is_interface && v4.name == "interface eth1 ipv4");
    // No link-local address.
    assert_eq!(
        v6.each().collect::<Vec<_>>(),
        ["2001:db8::1".parse::<IpAddr>().unwrap()]
    );
    assert_eq!(v6.filtering, Filtering::EndpointIndependent);
    let actions: Vec<Action> = config.sources.iter().map(|rule| rule.action).collect();
    let pool = Action::Pool;
    assert_eq!(actions, [Action::Keep, pool(0), pool(2), pool(3)]);
    assert_eq!(config.sources[0].to.zone, Some(1));
    assert_eq!(config.sources[0].protocol, Some(6));
    assert_eq!(config.sources[2].to.interface, Some(1));
    assert_eq!(config.statics[0].outside.len(), 28);
    let first = &config.forwards[0];
    assert_eq!((first.ports.clone(), first.inside_port), (8000..=8009, 80));
    assert_eq!(
        (first.source_pool, config.forwards[1].protocol),
        (Some(1), None)
    );
    assert_eq!(config.nat64[0].prefix, Prefix64::well_known());
    assert_eq!((config.nptv6.len(), config.limits.mappings), (1, 1000));
    // Two ranges and an address, the other pool, the static prefix, and both forwards.
    let answered = config.answered();
    assert_eq!(answered.len(), 7);
    assert!(answered.contains(&([203, 0, 113, 0].into(), [203, 0, 113, 3].into())));
    assert!(answered.contains(&([198, 51, 101, 0].into(), [198, 51, 101, 15].into())));
    let moved = config.with_numbers(|number| number + 10, |zone| zone);
    assert_eq!(moved.sources[2].to.interface, Some(11));
}

#[test]
fn addresses_that_somebody_else_has_are_refused() {
    let all = wrong(
        r#"
        [[nat.pool]]
        name = "a"
        addresses = ["192.0.2.0/30"]
        [[nat.pool]]
        name = "b"
        addresses = ["198.51.100.1-198.51.100.9", "198.51.100.9"]
        [[nat.pool]]
        name = "c"
        addresses = ["198.51.100.5"]
        [[nat.static]]
        inside = "10.0.0.1"
        outside = "198.51.100.3"
        [[nat.static]]
        inside = "10.0.0.2"
        outside = "198.51.101.3"
        [[nat.static]]
        inside = "10.0.0.0/30"
        outside = "198.51.101.0/30"
        [[nat.forward]]
        outside = "198.51.101.3"
        protocol = "any"
        inside = "10.0.0.9"
        "#,
    );
    let expected = [
        "4: nat.pool.addresses: 192.0.2.1 is an address of interface `eth1`; masquerade",
        "4: nat.pool.addresses: the pool has no address",
        "7: nat.pool.addresses: the pool has 198.51.100.1 twice",
        "10: nat.pool.addresses: pool `b` has some of these addresses",
        "10: nat.pool.addresses: the pool has no address",
        "13: nat.static.outside: pool `b` has some of these addresses",
        "18: nat.static.inside: 10.0.0.2/32 of line 14 overlaps it",
        "19: nat.static.outside: 198.51.101.3/32 of line 14 overlaps it",
        "21: nat.forward.outside: 198.51.101.3 is of the static rule of line 14",
    ];
    check(&all, &expected);
}

#[track_caller]
fn check(all: &[String], expected: &[&str]) {
    for (error, start) in all.iter().zip(expected) {
        assert!(error.starts_with(start), "{error}\n{start}");
    }
    assert_eq!(all.len(), expected.len(), "{all:#?}");
}

#[test]
fn what_cannot_be_is_refused_with_its_line_and_what_is_legal() {
    let all = wrong(
        r#"
        [[nat.pool]]
        name = "a"
        addresses = ["198.51.100.1", "2001:db8:1::1"]
        ports = "1-1000"
        filtering = "adress"
        block = 48
        [[nat.pool]]
        name = "a"
        addresses = ["198.51.0.0/16"]
        mapping = "dependent"
        filtering = "independent"
        blocks = 2
        [[nat.source]]
        to = "wann"
        interface = "eth9"
        pool = "b"
        protocol = "tpc"
        [[nat.source]]
        source = "fd00::/8"
        pool = "a"
        [[nat.source]]
        from = "lan"
        [[nat.source]]
        masquerade = "eth2"
        "#,
    );
    let expected = [
        "4: nat.pool.addresses: these addresses are of two families",
        "5: nat.pool.ports: ports that are given to flows are from 1024 on",
        "6: nat.pool.filtering: `adress` is unknown",
        "7: nat.pool.block: 48 is no power of two",
        "9: nat.pool.name: `a` names two pools",
        "10: nat.pool.addresses: pool `a` has some of these addresses",
        "10: nat.pool.addresses: the pool has no address",
        "12: nat.pool.filtering: a mapping that depends on the remote end lets nobody else in",
        "13: nat.pool.blocks: the pool has no blocks",
        "15: nat.source.to: there is no zone `wann`",
        "16: nat.source.interface: there is no interface `eth9`",
        "17: nat.source.pool: there is no pool `b`",
        "18: nat.source.protocol: there is no protocol `tpc`",
        "20: nat.source.source: pool `a` has IPv4 addresses",
        "22: nat.source.pool: the rule does not say what the source becomes",
        "25: nat.source.masquerade: interface `eth2` has no address",
    ];
    check(&all, &expected);
}

#[test]
fn forwards_and_prefixes_are_checked() {
    let all = wrong(
        r#"
        [[nat.pool]]
        name = "six"
        addresses = ["2001:db8:1::1"]
        [[nat.forward]]
        outside = "192.0.2.1"
        protocol = "tcp"
        inside = "fd00::1"
        [[nat.forward]]
        outside = "192.0.2.1"
        protocol = "tcp"
        ports = "80-90"
        inside = "10.0.0.1"
        [[nat.forward]]
        outside = "192.0.2.1"
        protocol = "tcp"
        ports = "90"
        inside = "10.0.0.2"
        [[nat.forward]]
        outside = "192.0.2.1"
        protocol = "udp"
        ports = "1-10"
        inside = "10.0.0.2"
        inside_port = 65530
        [[nat.forward]]
        outside = "192.0.2.9"
        protocol = "any"
        ports = "1-10"
        inside = "10.0.0.2"
        [[nat.forward]]
        outside = "192.0.2.9"
        [[nat.nat64]]
        prefix = "64:ff9b::/97"
        pool = "six"
        [[nat.nptv6]]
        inside = "fd00::/65"
        outside = "10.0.0.0/8"
        "#,
    );
    let expected = [
        "5: nat.forward.ports: it is missing",
        "8: nat.forward.inside: outside and inside are of two families",
        "14: nat.forward.ports: the forward of line 9 has some of these ports",
        "24: nat.forward.inside_port: 10 ports from 65530 on end above 65535",
        "28: nat.forward.ports: any protocol has no ports",
        "30: nat.forward.inside: it is missing",
        "30: nat.forward.protocol: it is missing",
        "32: nat.nat64.pool: pool `six` has IPv6 addresses",
        "33: nat.nat64.prefix: `64:ff9b::/97` is none of RFC 6052",
        "36: nat.nptv6.inside: `fd00::/65` is none",
        "37: nat.nptv6.outside: `10.0.0.0/8` is none",
    ];
    check(&all, &expected);
}

#[test]
fn protocols_and_ports_are_numbers_or_texts() {
    let read = |protocol: &str, port: &str| {
        right(&format!(
            "[[nat.source]]\nprotocol = {protocol}\nmasquerade = \"eth1\"\n\
             [[nat.forward]]\noutside = \"192.0.2.1\"\nprotocol = \"tcp\"\nports = {port}\n\
             inside = \"10.0.0.1\"\n"
        ))
    };
    let config = read("47", "443");
    assert_eq!(config.sources[0].protocol, Some(47));
    assert_eq!(config.forwards[0].ports, 443..=443);
    for (protocol, expected) in [
        ("\"47\"", Some(47)),
        ("\"gre\"", Some(47)),
        ("\"any\"", None),
    ] {
        let config = read(protocol, "\"443\"");
        assert_eq!(config.sources[0].protocol, expected);
        assert_eq!(config.forwards[0].ports, 443..=443);
    }
}

#[test]
fn what_does_nothing_is_warned_of() {
    let parsed = read_text(
        r#"
        [[nat.pool]]
        name = "a"
        addresses = ["198.51.100.1"]
        [[nat.pool]]
        name = "b"
        addresses = ["198.51.100.2"]
        [[nat.source]]
        to = "wan"
        pool = "a"
        [[nat.source]]
        to = "wan"
        keep = true
        "#,
    );
    assert_eq!(parsed.errors, []);
    let all: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        "5: nat.pool: no rule uses pool `b`",
        "11: nat.source: an earlier rule fits the same packets",
    ];
    check(&all, &expected);
}

#[test]
fn rfc_6888_req_12_what_is_recorded_is_said_by_the_log_and_by_pools() {
    let pool = |more: &str| {
        format!(
            "[[nat.pool]]\nname = \"a\"\naddresses = [\"198.51.100.1\"]\n{more}\n\
             [[nat.source]]\npool = \"a\"\n"
        )
    };
    let syslog = |to: &str| format!("[nat.log]\nsyslog = \"{to}\"\n");
    let udp = |text: &str| Some(To::Udp(text.parse().unwrap()));
    for (to, expected) in [
        ("192.0.2.9", udp("192.0.2.9:514")),
        ("[2001:db8::9]:1514", udp("[2001:db8::9]:1514")),
        ("/dev/log", Some(To::Unix("/dev/log".into()))),
    ] {
        let config = right(&format!("{}{}", syslog(to), pool("")));
        assert_eq!(config.log.to, expected);
        assert!(config.pools[0].logs && config.log.blocks);
    }
    // Blocks instead of sessions, unless both are asked for.
    let log = syslog("192.0.2.9");
    assert!(!right(&format!("{log}{}", pool("block = 64"))).pools[0].logs);
    assert!(right(&format!("{log}{}", pool("block = 64\nlog = true"))).pools[0].logs);
    assert!(!right(&format!("{log}{}", pool("log = false"))).pools[0].logs);
    let none = read_text(&pool("log = true"));
    assert!(none.errors.is_empty() && !none.value.pools[0].logs);
    assert!(
        none.warnings[0]
            .to_string()
            .contains("there is no [nat.log]")
    );
    for (text, problem) in [
        ("[nat.log]\n", "it is not said where records go"),
        ("[nat.log]\nfile = \"nat.log\"\n", "depends on where"),
        ("[nat.log]\nsyslog = \"there\"\n", "no address and no path"),
        ("[nat.log]\nfile = \"/a\"\nsyslog = \"/b\"\n", "one place"),
    ] {
        let wrong = wrong(text);
        assert!(wrong.len() == 1 && wrong[0].contains(problem), "{wrong:?}");
    }
}
