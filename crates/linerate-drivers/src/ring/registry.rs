//! Which ring names are open: how the second opening of a name finds the first.

use super::channel::{Channel, channels};
use super::{RingPort, looped};
use linerate_core::port::{PortError, Spec};
use linerate_core::ring::MAX_CAPACITY;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

/// The wires by name. An end whose port was dropped can be opened again.
#[derive(Default)]
pub(crate) struct Registry(HashMap<String, Wire>);

struct Wire {
    size: usize,
    /// Of the second end's queues.
    back: usize,
    queues: u16,
    is_loop: bool,
    channels: [Vec<Arc<Channel>>; 2],
    taken: [Weak<()>; 2],
}

impl Registry {
    /// Opens an end of the ring that the spec names.
    pub(crate) fn open(&mut self, spec: &Spec) -> Result<RingPort, PortError> {
        let name = spec.required_target("a name: `ring:NAME`")?;
        let is_loop = spec.switch("loop", false)?;
        self.0
            .retain(|_, wire| wire.taken.iter().any(|end| end.strong_count() > 0));
        let first = !self.0.contains_key(name);
        let default = self.0.get(name).map_or((1024, None, 1), |wire| {
            (wire.size, Some(wire.back), wire.queues)
        });
        let size = spec.number("size", default.0, 1..=MAX_CAPACITY)?;
        let back = spec.number("back", default.1.unwrap_or(size), 1..=MAX_CAPACITY)?;
        let queues = spec.number("queues", default.2, 1..=u16::MAX)?;
        if first && is_loop {
            let port = looped(name, queues, size);
            let taken = [Arc::downgrade(&port._taken), Arc::downgrade(&port._taken)];
            self.0.insert(
                name.into(),
                Wire {
                    size,
                    back,
                    queues,
                    is_loop,
                    channels: [vec![], vec![]],
                    taken,
                },
            );
            return Ok(port);
        }
        let wire = self.0.entry(name.into()).or_insert_with(|| {
            let channels = [channels(queues, size, true), channels(queues, back, true)];
            Wire {
                size,
                back,
                queues,
                is_loop,
                channels,
                taken: [Weak::new(), Weak::new()],
            }
        });
        let same = (wire.size, wire.back, wire.queues, wire.is_loop);
        if same != (size, back, queues, is_loop) {
            let agree = format!(
                "as at the other end: size={}, back={}, queues={}",
                wire.size, wire.back, wire.queues
            );
            let key = match (wire.size == size, wire.back == back) {
                (false, _) => "size",
                (true, false) => "back",
                (true, true) => "queues",
            };
            return Err(spec.bad(key, agree));
        }
        let Some(end) = wire.taken.iter().position(|end| end.strong_count() == 0) else {
            let both = if is_loop {
                "a loop is open under that name"
            } else {
                "both ends are open"
            };
            return Err(spec.bad("target", format!("another name: {both}")));
        };
        let port = RingPort::new(name, &wire.channels[end], &wire.channels[1 - end]);
        wire.taken[end] = Arc::downgrade(&port._taken);
        Ok(port)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
