//! The interfaces below ports, as the kernel tells of them: one that changes, goes or comes back
//! under its name.
//!
//! Control looks at its ports ten times a second in any case. This has it look at once, and tells
//! what is over by then: a link that was gone for a moment, behind which there may be others now.

use std::collections::{BTreeSet, HashMap};

use super::monitor::{Fact, Monitor, Subject};
use linerate_appliance::error::Error;
use linerate_appliance::netlink::host_interface::Link;
use linerate_appliance::netlink::socket;

/// Room for some thousand events.
const EVENT_BYTES: usize = 1 << 20;

/// What was said of interfaces since it was last asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Whether anything was.
    pub any: bool,
    /// Those whose link was gone, for however short a time.
    pub gone: BTreeSet<String>,
}

/// What tells one state of a link from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    index: u32,
    works: bool,
    /// How often its carrier has come or gone.
    carrier_changes: Option<u32>,
}

/// All interfaces of the router's own name space.
pub struct Interfaces {
    monitor: Monitor,
    known: HashMap<String, State>,
}

impl Interfaces {
    /// Listens. `wake` is called, on another thread, whenever there is something to
    /// [hear](Self::hear).
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn watch(wake: impl Fn() + Send + 'static) -> Result<Self, Error> {
        let sockets = (
            socket::open(None, Some(EVENT_BYTES))?,
            socket::open(None, None)?,
        );
        Ok(Self {
            monitor: Monitor::on(sockets, Subject::Links, wake)?,
            known: HashMap::new(),
        })
    }

    /// What was said.
    pub fn hear(&mut self) -> Said {
        let mut said = Said::default();
        while let Some(facts) = self.monitor.next() {
            for fact in facts {
                said.any = true;
                learn(&mut self.known, fact, &mut said.gone);
            }
        }
        said
    }
}

fn learn(known: &mut HashMap<String, State>, fact: Fact, gone: &mut BTreeSet<String>) {
    match fact {
        Fact::Link(link) => {
            let now = State::of(&link);
            // One that has another name now is not there by the old one.
            known.retain(|name, state| {
                let stays = state.index != now.index || *name == link.name;
                if !stays {
                    gone.insert(name.clone());
                }
                stays
            });
            let was = known.insert(link.name.clone(), now);
            // Of one that did not work it was told before.
            if was.is_some_and(|was| was.works && was != now) {
                gone.insert(link.name);
            }
        }
        Fact::NoLink(index) => {
            known.retain(|name, state| {
                let stays = state.index != index;
                if !stays {
                    gone.insert(name.clone());
                }
                stays
            });
        }
        // What is not known may have been so.
        Fact::Overrun => gone.extend(known.keys().cloned()),
        _ => {}
    }
}

impl State {
    fn of(link: &Link) -> Self {
        Self {
            index: link.index,
            works: link.up && link.carrier,
            carrier_changes: link.carrier_changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, works: bool, carrier_changes: u32) -> Fact {
        Fact::Link(Link {
            index,
            name: "eth0".into(),
            up: true,
            carrier: works,
            carrier_changes: Some(carrier_changes),
            mac: None,
            mtu: 1500,
            is_made: false,
            master: None,
            inward: None,
        })
    }

    /// Whether the link is said to have been gone when these are heard one after the other.
    fn gone(facts: impl IntoIterator<Item = Fact>) -> Vec<bool> {
        let mut known = HashMap::new();
        let tell = |fact| {
            let mut gone = BTreeSet::new();
            learn(&mut known, fact, &mut gone);
            gone.contains("eth0")
        };
        facts.into_iter().map(tell).collect()
    }

    #[test]
    fn a_link_that_was_gone_for_a_moment_is_told_however_little_is_heard_of_it() {
        let same = [link(3, true, 2), link(3, true, 2)];
        assert_eq!(gone(same), [false, false]);
        let lost = [link(3, true, 2), link(3, false, 3), link(3, true, 4)];
        assert_eq!(gone(lost), [false, true, false]);
        // Both changes were one event.
        assert_eq!(gone([link(3, true, 2), link(3, true, 4)]), [false, true]);
        // Another interface of that name.
        assert_eq!(gone([link(3, true, 2), link(4, true, 2)]), [false, true]);
        let made_anew = [link(3, true, 2), Fact::NoLink(3), link(4, true, 2)];
        assert_eq!(gone(made_anew), [false, true, false]);
        assert_eq!(gone([link(3, true, 2), Fact::Overrun]), [false, true]);
    }
}
