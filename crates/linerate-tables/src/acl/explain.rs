//! Why a packet gets the value it gets.

use std::fmt;

use super::key::PacketKey;
use super::rule::{Field, Match, Rule};
use super::table::Acl;

/// Which rule wins for a packet, and why the rules before it do not. Its `Display` is a line for
/// each.
#[derive(Clone, Debug)]
pub struct Explanation<const W: usize> {
    /// The packet.
    pub packet: PacketKey<W>,
    /// The rule that wins.
    pub matched: Option<Rule<W>>,
    /// What the packet gets.
    pub value: u32,
    /// Every rule that would have won, the first in order first, and the fields that differ.
    pub passed_over: Vec<PassedOver<W>>,
}

/// A rule that does not match.
#[derive(Clone, Debug)]
pub struct PassedOver<const W: usize> {
    /// The rule.
    pub rule: Rule<W>,
    /// The fields in which the packet is not what it asks.
    pub failing: Vec<Field>,
}

impl<const W: usize> Acl<W> {
    /// Looks at the rules in `category` one after the other, without the trees. O(n log n).
    pub fn explain(&self, packet: &PacketKey<W>, category: u8) -> Explanation<W> {
        let mut explanation = Explanation {
            packet: *packet,
            matched: None,
            value: self.config.default,
            passed_over: Vec::new(),
        };
        let in_category = |rule: &&Rule<W>| {
            let bit = 1_u16.checked_shl(category.into()).unwrap_or(0);
            rule.categories & bit != 0
        };
        for rule in self.rules().filter(in_category) {
            let failing: Vec<Field> = rule.matching.failing(packet).collect();
            if failing.is_empty() {
                explanation.matched = Some(*rule);
                explanation.value = rule.value;
                break;
            }
            explanation.passed_over.push(PassedOver {
                rule: *rule,
                failing,
            });
        }
        explanation
    }
}

impl<const W: usize> fmt::Display for Explanation<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "packet {}", self.packet)?;
        for passed in &self.passed_over {
            write!(f, "  not priority {}: ", passed.rule.priority)?;
            for (at, field) in passed.failing.iter().enumerate() {
                let comma = if at == 0 { "" } else { ", " };
                write!(f, "{comma}{field} is not ")?;
                passed.rule.matching.show(*field, f)?;
            }
            writeln!(f)?;
        }
        match &self.matched {
            Some(rule) => writeln!(
                f,
                "  priority {} matches: value {}",
                rule.priority, self.value
            ),
            None => writeln!(f, "  no rule matches: value {}", self.value),
        }
    }
}

impl<const W: usize> Match<W> {
    /// Writes what it asks of one field.
    fn show(&self, field: Field, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match field {
            Field::Src => write!(f, "{}", self.src),
            Field::Dst => write!(f, "{}", self.dst),
            Field::SrcPorts => write!(f, "{}", self.src_ports),
            Field::DstPorts => write!(f, "{}", self.dst_ports),
            Field::IcmpType => write!(f, "{}", self.icmp_type),
            Field::IcmpCode => write!(f, "{}", self.icmp_code),
            Field::Protocol => write!(f, "{}", self.protocol),
            Field::TcpFlags => write!(f, "{}", self.tcp_flags),
            Field::Dscp => write!(f, "{}", self.dscp),
            Field::Vlan => write!(f, "{}", self.vlan),
            Field::Fragment => write!(f, "{:?}", self.fragment),
            Field::Length => write!(f, "{}", self.length),
        }
    }
}
