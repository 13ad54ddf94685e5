//! A ClassBench file of either kind: read, written and read again, and looked up.

use linerate_tables::TableError;
use linerate_tables::acl::generate::{Random, inside};
use linerate_tables::acl::{Acl, AclConfig, Match, Rule, classbench};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    check_one(text, classbench::read4(text), classbench::read4);
    check_one(text, classbench::read6(text), classbench::read6);
}

fn check_one<const W: usize>(
    text: &str,
    read: Result<Vec<Rule<W>>, TableError>,
    again: fn(&str) -> Result<Vec<Rule<W>>, TableError>,
) {
    let rules = match read {
        Ok(rules) => rules,
        Err(TableError::AclFile { line, reason }) => {
            assert!((1..=text.lines().count()).contains(&line));
            assert!(!reason.to_string().is_empty());
            return;
        }
        Err(error) => panic!("not an error of a line: {error}"),
    };
    let matches: Vec<Match<W>> = rules.iter().map(|rule| rule.matching).collect();
    let written = again(&classbench::write(&matches)).expect("what was written can be read");
    assert!(written.iter().map(|rule| rule.matching).eq(matches));
    if rules.is_empty() || rules.len() > 100 {
        return; // nothing to look up, or too long to look up
    }
    let mut acl = Acl::new(AclConfig::default()).expect("a small table has room");
    acl.insert_all(&rules)
        .expect("rules that were read are sound");
    let mut random = Random::new(1);
    for rule in &rules {
        let packet = inside(&rule.matching, &mut random);
        let first = rules.iter().find(|rule| rule.matching.matches(&packet));
        let mut value = [0];
        acl.classify(&[packet], &mut value);
        assert_eq!(value, [first.map_or(0, |rule| rule.value)]);
    }
}
