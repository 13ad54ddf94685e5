//! Watches the interfaces below ports: one that changes, is removed, or comes back under its name.
//!
//! Control checks its ports ten times a second in any case. These events make it check at once, and
//! show what a check would miss: a link that was down for a moment and may have other neighbours
//! now.

use std::collections::{BTreeSet, HashMap};

use super::monitor::{Fact, Monitor, Subject};
use linerate_appliance::error::Error;
use linerate_appliance::netlink::host_interface::Link;
use linerate_appliance::netlink::socket;

/// Room for some thousand events.
const EVENT_BYTES: usize = 1 << 20;

/// Events of interfaces since the last call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Whether there was any event.
    pub any: bool,
    /// Interfaces whose link was down, for however short a time.
    pub gone: BTreeSet<String>,
}

/// The state of a link, to detect a change.
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
    /// Subscribes to events. `wake` is called, on another thread, whenever there is something to
    /// [hear](Self::hear).
    ///
    /// # Errors
    /// The kernel refuses the socket.
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

    /// The events since the last call.
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
            // A renamed interface is gone under its old name.
            known.retain(|name, state| {
                let stays = state.index != now.index || *name == link.name;
                if !stays {
                    gone.insert(name.clone());
                }
                stays
            });
            let was = known.insert(link.name.clone(), now);
            // A link that was already down was reported before.
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
        // Without a known earlier state the link may have been down.
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

    /// The interfaces reported as down after these messages, one after the other.
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
        // Down and up came as one event.
        assert_eq!(gone([link(3, true, 2), link(3, true, 4)]), [false, true]);
        // Another interface of that name.
        assert_eq!(gone([link(3, true, 2), link(4, true, 2)]), [false, true]);
        let made_anew = [link(3, true, 2), Fact::NoLink(3), link(4, true, 2)];
        assert_eq!(gone(made_anew), [false, true, false]);
        assert_eq!(gone([link(3, true, 2), Fact::Overrun]), [false, true]);
    }
}
