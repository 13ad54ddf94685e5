//! Access lists of interfaces, as the configuration states them.
//!
//! Rules are tried in their order, the first that matches decides. A fragment other than the first
//! has no ports, and is never judged on ports: a rule that permits by ports does not match it, and one
//! that denies by ports denies such a fragment of the same addresses and protocol, since it may
//! belong to what the rule means. Whoever wants an exact answer has the interface reassemble.

use std::collections::HashSet;
use std::fmt;

use linerate_tables::TableError;
use linerate_tables::acl::{
    Acl, Acl4, Acl6, AclConfig, Bits, Fragment, Match, Match4, Match6, Range, Rule,
};

/// What a list says of a packet: the values of its rules.
pub(crate) const DENY: u32 = 0;
pub(crate) const PERMIT: u32 = 1;

/// One rule: the packets that it means, of one family, and whether they may pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AclRule {
    V4(Match4, bool),
    V6(Match6, bool),
}

/// A list, ready to classify. It never changes: a reload makes a new one.
pub(crate) struct AccessList {
    pub(crate) name: String,
    pub(super) v4: Acl4,
    pub(super) v6: Acl6,
}

impl AccessList {
    /// A list of these rules; `permit`: what becomes of packets that none of them matches.
    ///
    /// # Errors
    /// If two rules ask for the same (the later could never win), one is not sound, or there is no
    /// memory.
    pub(crate) fn new(name: &str, permit: bool, rules: &[AclRule]) -> Result<Self, TableError> {
        let config = AclConfig {
            default: value(permit),
            ..AclConfig::default()
        };
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (priority, rule) in (0..).zip(rules) {
            match *rule {
                AclRule::V4(matching, permit) => v4.push((priority, matching, permit)),
                AclRule::V6(matching, permit) => v6.push((priority, matching, permit)),
            }
        }
        Ok(Self {
            name: name.into(),
            v4: table(&config, &v4)?,
            v6: table(&config, &v6)?,
        })
    }
}

impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.v4.len() + self.v6.len();
        write!(f, "AccessList({}, {rules} rules)", self.name)
    }
}

fn value(permit: bool) -> u32 {
    if permit { PERMIT } else { DENY }
}

fn table<const W: usize>(
    config: &AclConfig,
    rules: &[(u32, Match<W>, bool)],
) -> Result<Acl<W>, TableError> {
    let mut known: HashSet<Match<W>> = rules.iter().map(|(_, matching, _)| *matching).collect();
    let mut all = Vec::with_capacity(rules.len());
    for &(priority, matching, permit) in rules {
        all.push(Rule::new(priority, matching, value(permit)));
        let later = later_fragments(&matching);
        if !permit && let Some(later) = later.filter(|later| known.insert(*later)) {
            all.push(Rule::new(priority, later, DENY));
        }
    }
    let mut table = Acl::new(*config)?;
    table.insert_all(&all)?;
    Ok(table)
}

/// The later fragments of what a rule means, if it looks at what they do not have.
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
    use linerate_tables::acl::{FRAGMENT, LATER, PacketKey4};

    fn ssh(permit: bool) -> AclRule {
        let matching = Match4 {
            dst_ports: Range::one(22),
            protocol: Bits::byte(6),
            ..Match4::ANY
        };
        AclRule::V4(matching, permit)
    }

    fn says(list: &AccessList, key: PacketKey4) -> u32 {
        let mut values = [9];
        list.v4.classify(&[key], &mut values);
        values[0]
    }

    fn later(protocol: u8) -> PacketKey4 {
        let mut key = PacketKey4::tuple([1], [2], (0, 0), protocol);
        key.meta = u32::from(protocol) | FRAGMENT | LATER;
        key.ports = 0;
        key
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let any = AclRule::V4(Match4::ANY, false);
        let list = AccessList::new("edge", true, &[ssh(true), any]).unwrap();
        assert_eq!(says(&list, PacketKey4::tuple([1], [2], (5, 22), 6)), PERMIT);
        assert_eq!(says(&list, PacketKey4::tuple([1], [2], (5, 23), 6)), DENY);
        let list = AccessList::new("empty", true, &[]).unwrap();
        assert_eq!(says(&list, PacketKey4::tuple([1], [2], (5, 23), 6)), PERMIT);
    }

    #[test]
    fn later_fragments_pass_no_rule_that_denies_by_ports() {
        let list = AccessList::new("edge", true, &[ssh(false)]).unwrap();
        assert_eq!(says(&list, later(6)), DENY);
        assert_eq!(says(&list, later(17)), PERMIT);
        // Nor are they let in by one that permits by ports.
        let list = AccessList::new("edge", false, &[ssh(true)]).unwrap();
        assert_eq!(says(&list, later(6)), DENY);
    }

    #[test]
    fn two_rules_may_ask_for_the_same_fragments_but_not_for_the_same_packets() {
        let telnet = Match4 {
            dst_ports: Range::one(23),
            protocol: Bits::byte(6),
            ..Match4::ANY
        };
        let rules = [ssh(false), AclRule::V4(telnet, false)];
        assert!(AccessList::new("edge", true, &rules).is_ok());
        assert!(AccessList::new("edge", true, &[ssh(true), ssh(false)]).is_err());
    }
}
