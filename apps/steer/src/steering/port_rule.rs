//! Which local port a connection gets that begins here, so that its answers come home.
//!
//! The owner chooses the port, and so the hash of the answers: [`Inverse`] says all ports that
//! bring them to this lcore, without a trial. Where no port does, or none of them is free, or the
//! hash cannot be inverted, any port is right with an entry in the map of the home.

use linerate_tables::rss::{Inverse, Ports};
use linerate_wire::{FlowKey, FlowKey4, FlowKey6, protocol};

use super::plan::{Member, Plan, flow};

/// How an lcore chooses local ports for connections by one port of the machine.
#[derive(Clone, Debug)]
pub enum PortRule {
    /// Any port: all packets come to this lcore.
    Any,
    /// Ports whose answers come home; where there is none, any with an entry, if there is a map.
    Inverse {
        /// For IPv4 and IPv6; a family whose hash cannot be inverted has none.
        families: Box<[Option<Inverse>; 2]>,
        /// This lcore.
        me: Member,
        /// Whether homes have maps.
        mapped: bool,
    },
    /// Any port, with an entry in the map of the home.
    Mapped,
    /// None: no port brings answers here, and homes have no maps.
    Nothing,
}

/// The ports that one connection can have.
#[derive(Clone, Debug)]
pub enum Choice<'a> {
    /// Any.
    Any,
    /// These; where all of them are in use, as `PortRule` says of `mapped`.
    Among(Ports<'a>),
    /// Any: the SYN enters the connection in the map of its home.
    Mapped,
    /// None.
    Nothing,
}

impl PortRule {
    /// The rule of lcore `me` for connections by a port; `mapped`: homes have maps.
    pub fn new(plan: &Plan, port: u16, me: Member, mapped: bool) -> Self {
        let otherwise = match mapped {
            true => Self::Mapped,
            false => Self::Nothing,
        };
        let Some(port) = plan.port(port) else {
            return otherwise;
        };
        let model = port.model();
        let mut slots = model.reta().slots().iter();
        if slots.all(|&slot| slot == u16::from(me)) {
            return Self::Any;
        }
        let v4 = FlowKey4::new([0; 4], [0; 4], 0, 0, protocol::TCP);
        let v6 = FlowKey6::new([0; 16], [0; 16], 0, 0, protocol::TCP);
        let keys = [FlowKey::V4(v4), FlowKey::V6(v6)];
        let families = keys.map(|key| model.inverse(&flow(&key), true, 0).ok());
        if !model.reta().slots().contains(&me.into()) || families.iter().all(Option::is_none) {
            return otherwise;
        }
        let families = Box::new(families);
        Self::Inverse {
            families,
            me,
            mapped,
        }
    }

    /// The ports that a connection can have whose answers have this key, but for its destination
    /// port, which is the one that is sought.
    pub fn ports(&self, answers: &FlowKey) -> Choice<'_> {
        match self {
            Self::Any => Choice::Any,
            Self::Mapped => Choice::Mapped,
            Self::Nothing => Choice::Nothing,
            Self::Inverse {
                families,
                me,
                mapped,
            } => {
                let inverse = match answers {
                    FlowKey::V4(_) => &families[0],
                    FlowKey::V6(_) => &families[1],
                };
                let flow = flow(answers);
                let found = inverse
                    .as_ref()
                    .and_then(|inverse| inverse.ports(flow.tuple(), u16::from(*me)).ok());
                match (found, mapped) {
                    (Some(ports), _) => Choice::Among(ports),
                    (None, true) => Choice::Mapped,
                    (None, false) => Choice::Nothing,
                }
            }
        }
    }
}
