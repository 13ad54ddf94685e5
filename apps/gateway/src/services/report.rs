//! What services have to tell the user of single flows, until control asks.

use super::given::FlowName;
use super::host::Host;
use crate::nat::Tuple;

/// Events that are kept until control asks, which it does ten times a second.
const ROOM: usize = 16;

/// A service tells of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the plan.
    pub service: usize,
    /// What [`Make::event`](super::Make::event) is asked about.
    pub what: u32,
    /// The name that it is about, in the place of that.
    pub host: Option<Host>,
    /// The flow.
    pub flow: FlowName,
    /// Its first packet's ends.
    pub tuple: Option<Tuple>,
}

/// Events, of which there may have been more.
#[derive(Clone, Debug, Default)]
pub struct Log {
    events: [Option<Event>; ROOM],
    len: usize,
    /// Those that there was no room for.
    pub more: u64,
}

impl Log {
    /// Adds an event, or counts it.
    pub fn add(&mut self, event: Event) {
        match self.events.get_mut(self.len) {
            Some(place) => {
                *place = Some(event);
                self.len += 1;
            }
            None => self.more += 1,
        }
    }

    /// What is kept.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events[..self.len].iter().flatten()
    }

    /// Of these, those whose flow has no ends yet.
    pub fn fresh(&mut self) -> impl Iterator<Item = &mut Event> {
        let kept = self.events[..self.len].iter_mut().flatten();
        kept.filter(|event| event.tuple.is_none())
    }

    /// What is kept is only counted.
    pub(super) fn forget(&mut self) {
        self.more += self.len as u64;
        self.len = 0;
    }
}
