//! How full a ring is, for people, by what stands in the ring itself: whoever looks takes it from
//! no worker.

use super::ring::{Ring, View};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Looks at a ring whose worker goes on meanwhile.
const TRIES: usize = 4;

/// Who fills the buffers of a ring, and what its indices say.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// The client, up to the head; the server has emptied them up to the tail.
    ToServer,
    /// The server, up to the tail, of those that the client has emptied and lent up to the head.
    ToClient,
    /// The same, of slots that come and go: the client's worker says how far it has emptied them.
    Lent(Arc<AtomicU16>),
}

/// Where a ring is, and how to look.
#[derive(Debug)]
pub(super) struct Gauge {
    ring: Ring,
    way: Way,
}

impl Gauge {
    pub(super) fn new(ring: Ring, way: Way) -> Self {
        Self { ring, way }
    }

    /// Descriptors of the ring.
    pub(super) fn size(&self) -> u16 {
        self.ring.size()
    }

    /// Descriptors with something in them that whoever reads has not emptied.
    pub(super) fn waiting(&self) -> u16 {
        let Some(view) = self.ring.view() else {
            return 0;
        };
        let mut emptied = self.emptied(&view);
        // An index that moves between two looks does not fit the other one.
        for _ in 1..TRIES {
            let waiting = self.filled(&view).wrapping_sub(emptied);
            let now = self.emptied(&view);
            if now == emptied {
                return waiting.min(self.size());
            }
            emptied = now;
        }
        let waiting = self.filled(&view).wrapping_sub(emptied);
        waiting.min(self.size())
    }

    fn filled(&self, view: &View<'_>) -> u16 {
        match self.way {
            Way::ToServer => view.head(),
            Way::ToClient | Way::Lent(_) => view.tail(),
        }
    }

    fn emptied(&self, view: &View<'_>) -> u16 {
        match &self.way {
            Way::ToServer => view.tail(),
            Way::ToClient => view.head().wrapping_sub(self.size()),
            Way::Lent(taken) => taken.load(Ordering::Acquire),
        }
    }
}
