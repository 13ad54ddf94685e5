//! Access lists of interfaces, as the configuration states them.
//!
//! Rules are tried in their order, the first that matches decides. A fragment other than the first
//! has no ports, and is never judged on ports: a rule that permits by ports does not match it, and
//! one that denies by ports denies such a fragment of the same addresses and protocol, since it may
//! belong to what the rule means. For an exact answer the interface has to reassemble.

use std::collections::HashSet;
use std::fmt;

use linerate_tables::TableError;
use linerate_tables::acl::{
    Acl, Acl4, Acl6, AclConfig, Bits, Fragment, Match, Match4, Match6, Range, Rule,
};

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Dropped, without an answer.
    #[default]
    Deny,
    /// The packet passes.
    Permit,
    /// Dropped, and the sender gets an [`Answer`].
    Reject,
}

/// How a list answers the sender of a packet that it rejects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// TCP by a reset, as if nothing listened there (RFC 9293 3.10.7.1), all else by ICMP.
    #[default]
    Reset,
    /// By ICMP: administratively prohibited (RFC 1812 5.2.7.1 code 13, RFC 4443 3.1 code 1).
    Icmp,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 3] = [Self::Permit, Self::Deny, Self::Reject];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Permit => "permit",
            Self::Reject => "reject",
        }
    }
}

/// One rule: the packets that it matches, by address family, and the verdict on them.
#[derive(Clone, Copy, Debug)]
pub struct AclRule {
    /// The match for IPv4 packets; `None`: the rule matches none.
    pub v4: Option<Match4>,
    /// The match for IPv6 packets; `None`: the rule matches none.
    pub v6: Option<Match6>,
    /// The verdict on packets that match.
    pub verdict: Verdict,
    /// Whether packets that match are logged.
    pub log: bool,
}

/// The value of a list's tables: which rule decides on a packet, and the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said(u32);

impl Said {
    fn new(rule: usize, verdict: Verdict, log: bool) -> Self {
        Self((rule as u32) << 3 | u32::from(log) << 2 | verdict as u32)
    }

    pub(super) fn of(value: u32) -> Self {
        Self(value)
    }

    pub(super) fn verdict(self) -> Verdict {
        match self.0 & 3 {
            1 => Verdict::Permit,
            2 => Verdict::Reject,
            _ => Verdict::Deny,
        }
    }

    pub(super) fn is_logged(self) -> bool {
        self.0 & 4 != 0
    }

    /// The rule's index in the list; the number of rules where none matches.
    pub(super) fn rule(self) -> usize {
        (self.0 >> 3) as usize
    }
}

/// A list, ready to classify. It never changes: a reload makes a new one.
pub struct AccessList {
    /// Its name in the configuration.
    pub name: String,
    pub(super) v4: Acl4,
    pub(super) v6: Acl6,
    pub(super) answer: Answer,
    /// How many rules it was made of.
    pub(super) rules: usize,
}

impl AccessList {
    /// A list of these rules; `default`: the verdict on packets that no rule matches.
    ///
    /// # Errors
    /// If two rules match the same packets (the later could never decide), a rule is invalid, or
    /// there is no memory.
    pub fn new(name: &str, default: Verdict, rules: &[AclRule]) -> Result<Self, TableError> {
        let config = AclConfig {
            default: Said::new(rules.len(), default, false).0,
            ..AclConfig::default()
        };
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (number, rule) in rules.iter().enumerate() {
            let said = Said::new(number, rule.verdict, rule.log);
            v4.extend(rule.v4.map(|matching| (said, matching)));
            v6.extend(rule.v6.map(|matching| (said, matching)));
        }
        Ok(Self {
            name: name.into(),
            v4: table(&config, &v4)?,
            v6: table(&config, &v6)?,
            answer: Answer::default(),
            rules: rules.len(),
        })
    }

    /// The same list, with this answer to what it rejects.
    pub fn answering(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }
}

impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessList({}, {} rules)", self.name, self.rules)
    }
}

fn table<const W: usize>(
    config: &AclConfig,
    rules: &[(Said, Match<W>)],
) -> Result<Acl<W>, TableError> {
    let mut known: HashSet<Match<W>> = rules.iter().map(|(_, matching)| *matching).collect();
    let mut all = Vec::with_capacity(rules.len());
    for &(said, matching) in rules {
        let priority = said.rule() as u32;
        all.push(Rule::new(priority, matching, said.0));
        let later = later_fragments(&matching).filter(|_| said.verdict() != Verdict::Permit);
        if let Some(later) = later.filter(|later| known.insert(*later)) {
            all.push(Rule::new(priority, later, said.0));
        }
    }
    let mut table = Acl::new(*config)?;
    table.insert_all(&all)?;
    Ok(table)
}

/// A match for the later fragments of a rule's packets, if the rule looks at ports or types, which
/// they lack.
fn later_fragments<const W: usize>(matching: &Match<W>) -> Option<Match<W>> {
    let upper = [
        matching.src_ports,
        matching.dst_ports,
        matching.icmp_type,
        matching.icmp_code,
    ];
    let looks = upper.iter().any(|range| *range != Range::ANY) || matching.tcp_flags != Bits::ANY;
    let may_be_later = matches!(matching.fragment, Fragment::Any | Fragment::Yes);
    (looks && may_be_later).then_some(Match {
        src_ports: Range::ANY,
        dst_ports: Range::ANY,
        icmp_type: Range::ANY,
        icmp_code: Range::ANY,
        tcp_flags: Bits::ANY,
        fragment: Fragment::Later,
        ..*matching
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use Verdict::{Deny, Permit, Reject};
    use linerate_tables::acl::PacketKey4;

    fn tcp(port: u16, verdict: Verdict) -> AclRule {
        let matching = Match4 {
            dst_ports: Range::one(port),
            protocol: Bits::byte(6),
            ..Match4::ANY
        };
        rule(matching, verdict)
    }

    fn rule(matching: Match4, verdict: Verdict) -> AclRule {
        AclRule {
            v4: Some(matching),
            v6: None,
            verdict,
            log: false,
        }
    }

    /// The rule that decides, and its verdict.
    fn says(list: &AccessList, key: PacketKey4) -> (usize, Verdict) {
        let mut values = [9];
        list.v4.classify(&[key], &mut values);
        let said = Said::of(values[0]);
        (said.rule(), said.verdict())
    }

    fn to(port: u16) -> PacketKey4 {
        PacketKey4::tuple([1], [2], (5, port), 6)
    }

    fn later(protocol: u8) -> PacketKey4 {
        PacketKey4::tuple([1], [2], (0, 0), protocol).later_fragment()
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let any = rule(Match4::ANY, Reject);
        let list = AccessList::new("edge", Permit, &[tcp(22, Permit), any]).unwrap();
        assert_eq!(says(&list, to(22)), (0, Permit));
        assert_eq!(says(&list, to(23)), (1, Reject));
        let list = AccessList::new("empty", Permit, &[]).unwrap();
        assert_eq!(says(&list, to(23)), (0, Permit));
        let list = AccessList::new("one", Deny, &[tcp(22, Permit)]).unwrap();
        assert_eq!(says(&list, to(23)), (1, Deny), "none of them");
    }

    #[test]
    fn an_answer_of_a_list_survives_its_encoding() {
        for verdict in [Deny, Permit, Reject] {
            for log in [false, true] {
                let said = Said::new(70_000, verdict, log);
                assert_eq!((said.rule(), said.verdict()), (70_000, verdict));
                assert_eq!(said.is_logged(), log);
            }
        }
    }

    #[test]
    fn later_fragments_pass_no_rule_that_denies_by_ports() {
        for no in [Deny, Reject] {
            let list = AccessList::new("edge", Permit, &[tcp(22, no)]).unwrap();
            assert_eq!(says(&list, later(6)), (0, no));
            assert_eq!(says(&list, later(17)).1, Permit);
        }
        // A rule that permits by ports does not permit them either.
        let list = AccessList::new("edge", Deny, &[tcp(22, Permit)]).unwrap();
        assert_eq!(says(&list, later(6)).1, Deny);
    }

    #[test]
    fn two_rules_may_ask_for_the_same_fragments_but_not_for_the_same_packets() {
        let rules = [tcp(22, Deny), tcp(23, Deny)];
        assert!(AccessList::new("edge", Permit, &rules).is_ok());
        assert!(AccessList::new("edge", Permit, &[tcp(22, Permit), tcp(22, Deny)]).is_err());
    }
}
