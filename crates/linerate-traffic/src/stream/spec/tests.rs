//! The three ways to write a stream agree, and errors name their key.

use linerate_appliance::config;
use proptest::prelude::*;

use super::*;
use crate::stream::values::{Notation, written};

/// A value that `key` takes, made from some numbers.
fn value_of(help: &crate::stream::KeyHelp, shape: u8, a: u128, b: u128) -> String {
    let Some(row) = help.row else {
        let (a, b) = (a as u32, b as u32);
        return match help.key {
            "kind" => HeaderKind::ALL[a as usize % HeaderKind::ALL.len()].0.into(),
            "name" => format!("a \"name\" with \\ and {a}"),
            "port" | "count" | "seed" | "loop" => a.to_string(),
            "weight" | "burst" => (a | 1).to_string(),
            "pcap" => format!("/tmp/some file {a}.pcap"),
            "speed" => format!("{}.5", a % 100),
            "gap" | "delay" => format!("{a}{}", ["ns", "us", "ms", "s"][b as usize % 4]),
            "pacing" => ["constant", "poisson"][a as usize % 2].into(),
            "enabled" | "signature" => ["on", "off"][a as usize % 2].into(),
            "rate" => ["1.5Mpps", "99%", "max", "9.9Gbit/s-L1", "3bit/s-L2"][a as usize % 5].into(),
            "nest" => ["dst", "src+sport,dst", "vlan,gre,mpls"][a as usize % 3].into(),
            "payload" => {
                ["abc", "zero", "ones", "inc", "random", "hex:00ff1d"][a as usize % 6].into()
            }
            "size" => {
                let (low, high) = (64 + a % 1000, 1064 + b % 8000);
                match shape % 6 {
                    0 => low.to_string(),
                    1 => format!("{low},{high},64"),
                    2 => format!("{low}-{high}"),
                    3 => format!("random:{low}-{high}"),
                    4 => "imix".into(),
                    _ => format!("imix:{low}*{},{high}*{}", 1 + a % 50, 1 + b % 50),
                }
            }
            other => panic!("no value for {other}"),
        };
    };
    let notation = match (row.notation, shape & 0x80) {
        (Notation::Address, 0) => Notation::V4,
        (Notation::Address, _) => Notation::V6,
        (notation, _) => notation,
    };
    let cut = |value: u128| match notation {
        Notation::V6 => value,
        // Without the bit between identifier and priority, which is not written.
        Notation::Tag => value & 0xefff,
        _ => value % (row.most + 1),
    };
    let (low, high) = (cut(a).min(cut(b)), cut(a).max(cut(b)));
    let high = if low == high { low ^ 1 } else { high };
    let (low, high) = (low.min(high), low.max(high));
    let (low, high) = (written(notation, low), written(notation, high));
    let high = match notation {
        Notation::Tag if !high.contains('.') => format!("{high}.0"),
        _ => high,
    };
    match shape % 6 {
        0 => low,
        1 => format!("{low}-{high}"),
        2 => format!("{low}-{high}/3"),
        3 => format!("{low},{high},{low}"),
        4 => format!("random:{low}-{high}"),
        _ => "random".into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn line_toml_and_json_read_back_as_the_same(
        picks in prop::collection::vec((0..KEYS.len(), any::<u8>(), any::<u128>(), any::<u128>()),
            0..12)
    ) {
        let mut spec = StreamSpec::default();
        for (key, shape, a, b) in picks {
            let value = value_of(&KEYS[key], shape, a, b);
            spec.set(KEYS[key].key, &value).unwrap();
        }
        let line = spec.to_string();
        prop_assert_eq!(&line.parse::<StreamSpec>().unwrap(), &spec, "{}", line);
        let toml = toml::to_string(&spec).unwrap();
        let read = config::parse(&toml, StreamSpec::read);
        prop_assert_eq!((&read.value, &*read.errors), (&spec, &[][..]), "{}", toml);
        for (key, value) in spec.clone().pairs() {
            spec.set(key, &value).unwrap();
            prop_assert_eq!(&spec.get(key).unwrap(), &value);
        }
    }

    #[test]
    fn no_line_panics(line in "\\PC*", key in 0..KEYS.len(), value in "[-0-9a-zA-Z,:./*]{0,24}") {
        let _ = line.parse::<StreamSpec>();
        let _ = StreamSpec::default().set(KEYS[key].key, &value);
    }
}

#[test]
fn each_field_has_one_row_and_each_key_one_name() {
    for (at, help) in KEYS.iter().enumerate() {
        assert!(
            KEYS[..at].iter().all(|other| other.key != help.key),
            "{}",
            help.key
        );
        if let Some(row) = help.row {
            assert_eq!(row.field.key().0, help.key);
        }
    }
}

#[test]
fn toml_takes_numbers_switches_and_lists() {
    let toml =
        "kind = 'udp'\nsize = [64, 512]\nport = 1\nenabled = false\nvlan = 7\nsport = '1-9/2'";
    let spec = config::parse(toml, StreamSpec::read).value;
    let line = "udp port=1 size=64,512 enabled=off vlan=7 sport=1-9/2";
    assert_eq!(spec, line.parse().unwrap());
    assert_eq!(spec.to_string(), line);
}

#[test]
fn prefixes_are_their_hosts() {
    for (prefix, hosts) in [
        ("198.19.0.0/24", "198.19.0.1-198.19.0.254"),
        ("random:198.19.0.0/16", "random:198.19.0.1-198.19.255.254"),
        ("198.19.0.8/31", "198.19.0.8-198.19.0.9"),
        ("2001:2::/126", "2001:2::1-2001:2::3"),
        ("0.0.0.0/0", "0.0.0.1-255.255.255.254"),
    ] {
        let mut spec = StreamSpec::default();
        spec.set("dst", prefix).unwrap();
        assert_eq!(spec.get("dst").unwrap(), hosts);
    }
}

#[test]
fn what_is_wrong_is_named_with_reason_and_fix() {
    for (line, wanted) in [
        ("udp dprot=9", "a stream has no key `dprot`; perhaps dport"),
        (
            "upd",
            "kind=upd: there is no such kind of frame; perhaps udp",
        ),
        ("sport=70000", "sport=70000: 70000 is over 65535"),
        ("dscp=64", "dscp=64: 64 is over 63"),
        ("vxlan=16777216", "is over 16777215"),
        ("vlan=4096", "is no VLAN of 0 to 4095"),
        ("vlan=1.8", "is no VLAN of 0 to 4095"),
        ("sport=9-1", "it runs backwards; write 1-9"),
        ("sport=1-9/0", "`0` is no step"),
        (
            "dst=198.19.0.1/24",
            "host bits are set; write 198.19.0.0/24",
        ),
        ("dst=198.19.0.1-2001:2::1", "a range is of one family"),
        ("dst=198.19.0.1,2001:2::1", "do not go into one list"),
        ("dst=198.19.0.1/33", "no prefix length"),
        (
            "dst=198.19.0.1/32",
            "a prefix of one address; write 198.19.0.1",
        ),
        ("dst=198.19.0.300", "no IPv4 or IPv6 address"),
        ("src_mac=02:00", "no MAC address"),
        ("flags=SX", "no set of TCP flags"),
        ("flags=SS", "no set of TCP flags"),
        ("size=63", "63 is under 64"),
        ("size=9601", "9601 is over 9600"),
        ("size=imix:64*0", "is no SIZE*WEIGHT"),
        (
            "size=imix:64*4096,65*4097",
            "8193 frames; write smaller weights",
        ),
        ("size=64,", "`` is no number"),
        ("random=1", "no key `random`"),
        ("sport=random:7", "random of one value; write 7"),
        ("sport=random:1-9/2", "random takes no step"),
        ("delay=5", "it is no time"),
        ("delay=1.5.5s", "it is no time"),
        ("enabled=maybe", "write on or off"),
        ("speed=0", "no factor over 0"),
        ("burst=0", "no number of 1 or more"),
        ("payload=hex:0", "it is no pattern"),
        ("payload=text", "hex:00ff"),
        ("size=64 size=65", "`size` is given twice"),
        ("udp tcp", "only a kind stands alone, and first"),
        ("name=\"open", "left open"),
        ("count=-1", "no number of 64 bits"),
        ("rate=10", "is no rate; write"),
    ] {
        let error = line.parse::<StreamSpec>().unwrap_err().to_string();
        assert!(error.contains(wanted), "{line}: {error}");
    }
}

#[test]
fn default_takes_a_key_away() {
    let mut spec: StreamSpec = "tcp vlan=5 size=80".parse().unwrap();
    for key in ["vlan", "size", "kind"] {
        spec.set(key, "default").unwrap();
    }
    assert_eq!(spec, StreamSpec::default());
    assert_eq!(spec.to_string(), "");
}

#[test]
fn times_are_read_to_the_nanosecond() {
    for (text, ns) in [
        ("1.5s", 1_500_000_000),
        ("10ms", 10_000_000),
        ("0.25us", 250),
        ("7ns", 7),
    ] {
        let mut spec = StreamSpec::default();
        spec.set("gap", text).unwrap();
        assert_eq!(spec.gap, Some(Duration::from_nanos(ns)), "{text}");
    }
}
