//! The local ports of connections that begin here: steering's rule, asked by the stack.

use std::sync::Arc;

use linerate_stack::socket::{self, PortChoice};
use linerate_stack::tcp::ports::Share;
use linerate_wire::FlowKey;

use crate::steering::PortRule;
use crate::steering::plan::{Member, Plan};
use crate::steering::port_rule::Choice;

/// The rules of one lcore, for all ports of the machine.
pub struct Rules {
    plan: Arc<Plan>,
    me: Member,
    by_port: Vec<PortRule>,
    has_maps: bool,
}

impl Rules {
    /// Of lcore `me`; `has_maps`: homes have maps.
    pub fn new(plan: Arc<Plan>, me: Member, has_maps: bool) -> Self {
        let rule = |port: usize| PortRule::new(&plan, port as u16, me, has_maps);
        Self {
            by_port: (0..plan.ports().len()).map(rule).collect(),
            plan,
            me,
            has_maps,
        }
    }
}

impl socket::PortRule for Rules {
    fn ports(&self, port: u16, answers: &FlowKey) -> PortChoice<'_> {
        let Some(rule) = self.by_port.get(usize::from(port)) else {
            return PortChoice::Nothing;
        };
        match rule.ports(answers) {
            Choice::Any => PortChoice::Any,
            Choice::Mapped => self
                .mapped()
                .map_or(PortChoice::Nothing, PortChoice::Mapped),
            Choice::Among(ports) => PortChoice::Among(ports),
            Choice::Nothing => PortChoice::Nothing,
        }
    }

    fn comes_home(&self, port: u16, answers: &FlowKey) -> bool {
        let port = self.plan.port(port);
        let owner = port.and_then(|port| port.owner(answers));
        // Where nobody knows, there is no home to enter it at.
        owner.is_none_or(|owner| owner == self.me)
    }

    fn mapped(&self) -> Option<Share> {
        let (nth, of) = (self.me.into(), self.plan.owners().into());
        self.has_maps.then_some(Share { nth, of })
    }
}
