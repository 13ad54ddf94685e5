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

    /// The part that does what belongs to no user, such as what a message says of the connection
    /// that it came by.
    fn home(&self, from: Link) -> u8;
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

    fn home(&self, _: Link) -> u8 {
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

    /// A connection is the part's that its number is dealt to, whichever core it arrives at: that
    /// part was told that it is open, and knows what it has asked.
    fn home(&self, from: Link) -> u8 {
        let number = match from {
            Link::S1(number) | Link::S6a(number) => number,
            _ => self.core.into(),
        };
        (usize::from(number) % self.parts.len().max(1)) as u8
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
        Owner::Home => store.home(from),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Notice;

    /// Notes whose messages it has got; none names a user.
    #[derive(Default)]
    struct Heard(Vec<Link>);

    impl Node for Heard {
        fn owner(_: Cores, _: Link, _: &[u8]) -> Owner {
            Owner::Home
        }

        fn receive(&mut self, _: u64, from: Link, _: &mut [u8], _: &mut impl Sink) {
            self.0.push(from);
        }

        fn notice(&mut self, _: u64, _: Notice, _: &mut impl Sink) {}

        fn poll(&mut self, _: u64, _: usize, _: &mut impl Sink) -> Option<u64> {
            None
        }
    }

    struct Nowhere;

    impl Sink for Nowhere {
        fn send(&mut self, _: Link, _: &[u8]) {}

        fn tell(&mut self, _: Notice) {}
    }

    #[test]
    fn what_is_about_a_connection_is_its_parts_with_more_parts_than_cores() {
        let cores = Cores::new(8).unwrap();
        let first = Locked::new((0..8).map(|_| Heard::default()));
        let mut all = [first.share(0), first.share(1)];
        for number in 0..16_u16 {
            for link in [Link::S6a(number), Link::S1(number)] {
                // It arrives at the core of its number.
                let store = &mut all[usize::from(number) % 2];
                let taken = take(store, cores, 0, link, &mut [], &mut Nowhere);
                assert_eq!(taken, Taken::Here);
            }
        }
        for part in 0..8_u16 {
            let heard = all[0].with(part as u8, |node| node.0.clone());
            let of = |number| [Link::S6a(number), Link::S1(number)];
            assert_eq!(heard, Some([of(part), of(part + 8)].concat()));
        }
    }
}
