//! What a reload shares with the policy before, and what it costs with 100,000 rules.

use std::net::Ipv4Addr;
use std::time::Instant;

use linerate_appliance::address::Prefix;
use linerate_routing::plane::hits::Hits;
use linerate_tables::lpm;
use serde_json::json;

use super::rule::Item;
use super::sets::PrefixSet;
use super::*;

/// A set of prefixes that is not just expanded.
fn set(name: &str, from: u32, many: u32) -> String {
    let prefixes = (0..many).map(|at| {
        let address = std::net::Ipv4Addr::from(0x0b00_0000 + (from + at) * 512);
        format!("\"{address}/24\"")
    });
    let prefixes: Vec<String> = prefixes.collect();
    format!(
        "[[set]]\nname = \"{name}\"\nprefixes = [{}]\n",
        prefixes.join(", ")
    )
}

const BACK: &str = "[[policy]]\nfrom = \"wan\"\nto = \"lan\"\nrules = [\n\
                    { action = \"permit\", source = \"bad\", service = \"tcp/22\" },\n]\n";

#[test]
fn only_what_differs_is_built_anew() {
    let there = rules("{ action = \"deny\", destination = \"bad\" }, { action = \"permit\" }");
    let other = rules("{ action = \"deny\", destination = \"bad\" }, { action = \"deny\" }");
    let sets = set("bad", 0, 40);
    let first = build(&format!("{sets}{there}{BACK}"), None);
    // The same with comments, other lines, and a set that nothing uses.
    let text = format!("# again\n\n{}{sets}{there}\n\n{BACK}", set("unused", 0, 3));
    let same = build(&text, Some(&first));
    assert!(Arc::ptr_eq(&first, &same), "flows stay decided");
    let second = build(&format!("{sets}{other}{BACK}"), Some(&first));
    assert!(!Arc::ptr_eq(&first, &second), "flows are decided anew");
    let list = |policy: &Policy, at| policy.lists()[5 + at as usize].clone();
    assert!(
        !Arc::ptr_eq(&list(&first, 0), &list(&second, 0)),
        "its second rule differs"
    );
    assert!(
        Arc::ptr_eq(&list(&first, 1), &list(&second, 1)),
        "nothing differs"
    );
    assert!(
        Arc::ptr_eq(&list(&first, 0).sets[0], &list(&second, 0).sets[0]),
        "the same set"
    );
    // A set that differs changes the lists that use it, and no other.
    let text = format!(
        "{}{}{BACK}",
        set("bad", 0, 41),
        rules("{ action = \"permit\" }")
    );
    let third = build(&text, Some(&second));
    let text = format!(
        "{}{}{BACK}",
        set("bad", 7, 41),
        rules("{ action = \"permit\" }")
    );
    let fourth = build(&text, Some(&third));
    assert!(Arc::ptr_eq(&list(&third, 0), &list(&fourth, 0)));
    assert!(!Arc::ptr_eq(&list(&third, 1), &list(&fourth, 1)));
    // An interface that goes to another zone.
    let config = read(&format!(
        "{}{}{BACK}",
        set("bad", 7, 41),
        rules("{ action = \"permit\" }")
    ));
    let moved = Policy::build(&config, &["p1", "p0"], Some(&fourth)).unwrap();
    assert!(!Arc::ptr_eq(&moved, &fourth));
    assert!(Arc::ptr_eq(&list(&moved, 1), &list(&fourth, 1)));
}

#[test]
fn counters_of_lists_that_stay_go_on() {
    let there = rules("{ action = \"permit\", service = \"tcp/22\", log = true, name = \"ssh\" }");
    let first = build(&there, None);
    let (from, to) = lan_and_wan(&first);
    let ssh: FirstPacket = "10.0.0.1:4000 > 192.0.2.1:22 tcp".parse().unwrap();
    let web: FirstPacket = "10.0.0.1:4000 > 192.0.2.1:80 tcp".parse().unwrap();
    let workers = [(); 2].map(|()| Counts::new(&first, &Counts::default()));
    let mut hits_of = Hits::default();
    for counts in &workers {
        for packet in [&ssh, &ssh, &web] {
            let decision = first.decide(from, to, packet);
            counts.hit(&decision);
            if decision.log {
                hits::log(&mut hits_of, &decision, InterfaceId(0), packet);
            }
        }
    }
    let rows = [0, 1].map(|rule| first.row(5, rule, &workers));
    assert_eq!(rows[0]["policy"], "lan > wan");
    assert_eq!(
        [&rows[0]["decided"], &rows[1]["decided"]],
        [&json!(4), &json!(2)]
    );
    assert_eq!(rows[0]["matches"], json!("any > any, tcp port 22"));
    assert_eq!(rows[1]["rule"], "default");
    assert_eq!(hits_of.iter().count(), 4);
    let line = first.line(hits_of.iter().next().unwrap(), "p0");
    let flow = "10.0.0.1:4000 > 192.0.2.1:22 tcp, 60 bytes";
    assert_eq!(
        line,
        format!("policy lan > wan rule 1 (ssh): permit in by p0: {flow}")
    );
    // Another list comes before it: its number changes, its counters do not.
    let before = "[[policy]]\nfrom = \"wan\"\nto = \"lan\"\ndefault = \"permit\"\n";
    let second = build(&format!("{before}{there}"), Some(&first));
    let counts = Counts::new(&second, &workers[0]);
    assert_eq!(
        (counts.hits(6, 0), counts.hits(6, 1), counts.hits(5, 0)),
        (2, 1, 0)
    );
}

/// So many rules about a host each, behind one about a set of as many prefixes; `changed`: one of
/// them says something else.
fn large(many: u32, changed: bool) -> PolicyConfig {
    let both = "{ action = \"deny\", source = \"bad\" },\n\
                { action = \"permit\", service = \"tcp\" }";
    let set = "[[set]]\nname = \"bad\"\nprefixes = [\"::/0\"]\n";
    let mut config = read(&format!("{set}{}", rules(both)));
    let list = &mut config.lists[0];
    let prefix = |at| Prefix::V4(lpm::Prefix::of(0x0b00_0000 + at * 512, 24));
    let prefixes: Vec<Prefix> = (0..many).map(prefix).collect();
    list.sets = vec![Arc::new(PrefixSet::new("bad", &prefixes))];
    let model = list.rules.pop().unwrap();
    for number in 0..many {
        let mut rule = model.clone();
        let host = Prefix::V4(lpm::Prefix::of(0xc000_0000 + number * 7, 32));
        rule.destination.include.push(Item::Prefix(host));
        if changed && number == many / 2 {
            rule.action = Verdict::Reject;
        }
        list.rules.push(rule);
    }
    config
}

/// Builds such a policy, and another of which one rule differs; prints how long that took.
fn change_one_of(many: u32) {
    let config = large(many, false);
    let start = Instant::now();
    let first = Policy::build(&config, &PORTS, None).unwrap();
    let built = start.elapsed();
    let changed = large(many, true);
    let start = Instant::now();
    let second = Policy::build(&changed, &PORTS, Some(&first)).unwrap();
    let again = start.elapsed();
    let list = &second.lists()[5];
    let bytes = list.bytes();
    println!("{built:?} to build {many} rules, {again:?} with one changed, {bytes} bytes");
    assert!(Arc::ptr_eq(&first.lists()[5].sets[0], &list.sets[0]));
    assert!(list.unreachable.is_empty());
    // A binary search over the set and one lookup, whatever number of rules: no more entries than
    // rules, and a class for each side of the set.
    assert!(bytes < 600 * many as usize, "{bytes}");
    let number = many / 2;
    let host = Ipv4Addr::from(0xc000_0000 + number * 7);
    for (policy, verdict) in [(&first, Verdict::Permit), (&second, Verdict::Reject)] {
        let says = says(policy, &format!("10.0.0.1:1 > {host}:443 tcp"));
        assert_eq!(says, (number as usize + 2, verdict));
    }
    let last = Ipv4Addr::from(0x0b00_0000 + (many - 1) * 512 + 5);
    let flow = format!("{last}:1 > {host}:443 tcp");
    assert_eq!(says(&second, &flow), (1, Verdict::Deny));
    let flow = format!("11.0.1.1:1 > {host}:443 tcp");
    let between = (number as usize + 2, Verdict::Reject);
    assert_eq!(says(&second, &flow), between, "between two prefixes");
    let flow = format!("10.0.0.1:1 > {host}:443 udp");
    assert_eq!(says(&second, &flow), (0, Verdict::Deny));
}

#[test]
fn five_thousand_rules_and_prefixes() {
    change_one_of(5000);
}

#[test]
#[ignore = "long: 100,000 rules, built twice"]
fn a_hundred_thousand_rules_and_prefixes() {
    change_one_of(100_000);
}
