//! Who may touch a core's part of a node: that core alone, or any of them under a lock.
//!
//! The nodes are the same code in both arrangements. By application ([`Shard`]) each core has its
//! part, messages are brought to the core that owns their user, and nothing is locked. By hash
//! ([`Locked`]) a message stays on the core that a hash of addresses and ports brought it to; the
//! parts, as many as one likes, are behind a lock each, and move between the cores' caches.

use crate::link::{Link, Node, Owner, Sink};
use crate::{Cores, EpcError};
use std::sync::{Arc, Mutex, PoisonError};

/// The parts of a node, as one core sees them.
pub trait Store<N> {
    /// Works on a part; `None`: it is another core's, which has to do it.
    fn with<R>(&mut self, part: u8, work: impl FnOnce(&mut N) -> R) -> Option<R>;

    /// The part on which this core does what belongs to no user.
    fn own(&self) -> u8;
}

/// One part, which belongs to this core alone.
pub struct Shard<N> {
    core: u8,
    node: N,
}

impl<N> Shard<N> {
    /// The part of `core`.
    pub fn new(core: u8, node: N) -> Self {
        Self { core, node }
    }

    /// The part itself.
    pub fn node(&mut self) -> &mut N {
        &mut self.node
    }
}

impl<N> Store<N> for Shard<N> {
    #[inline]
    fn with<R>(&mut self, part: u8, work: impl FnOnce(&mut N) -> R) -> Option<R> {
        (part == self.core).then(|| work(&mut self.node))
    }

    fn own(&self) -> u8 {
        self.core
    }
}

/// All parts, each behind a lock, shared by all cores.
pub struct Locked<N> {
    parts: Arc<[Mutex<N>]>,
    core: u8,
}

impl<N> Locked<N> {
    /// These parts, for one core; the others [`share`](Self::share) them.
    pub fn new(parts: impl IntoIterator<Item = N>) -> Self {
        Self {
            parts: parts.into_iter().map(Mutex::new).collect(),
            core: 0,
        }
    }

    /// The same parts, for another core.
    #[must_use]
    pub fn share(&self, core: u8) -> Self {
        let parts = Arc::clone(&self.parts);
        Self { parts, core }
    }
}

impl<N> Store<N> for Locked<N> {
    #[inline]
    fn with<R>(&mut self, part: u8, work: impl FnOnce(&mut N) -> R) -> Option<R> {
        let part = self.parts.get(usize::from(part))?;
        // A handler that panicked broke its own part at most; the others go on.
        let mut node = part.lock().unwrap_or_else(PoisonError::into_inner);
        Some(work(&mut node))
    }

    fn own(&self) -> u8 {
        self.core % self.parts.len().max(1) as u8
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was handled.
    Here,
    /// It is to be handed to that core, which calls [`receive`](Node::receive).
    Elsewhere(u8),
}

/// Takes a message on the core it arrives at, if its owner's part may be worked on here.
pub fn take<N: Node, S: Store<N>>(
    store: &mut S,
    cores: Cores,
    now_ns: u64,
    from: Link,
    message: &mut [u8],
    out: &mut impl Sink,
) -> Taken {
    let part = match N::owner(cores, from, message) {
        Owner::Home => store.own(),
        Owner::Core(core) => core,
        Owner::User(imsi) => cores.owner(imsi),
    };
    match store.with(part, |node| node.receive(now_ns, from, message, out)) {
        Some(()) => Taken::Here,
        None => Taken::Elsewhere(part),
    }
}

/// Makes the parts of a node, one for each core (or, where they are locked, as many as there are
/// locks to be).
///
/// # Errors
/// As `make`, and [`EpcError::Cores`].
pub fn parts<N>(
    count: usize,
    mut make: impl FnMut(Cores, u8) -> Result<N, EpcError>,
) -> Result<Vec<N>, EpcError> {
    let cores = Cores::new(count)?;
    (0..cores.count()).map(|core| make(cores, core)).collect()
}
