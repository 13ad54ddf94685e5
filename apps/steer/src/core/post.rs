//! Connections on their way from lcore to lcore: a ring of boxes for each pair.
//!
//! Packets' rings carry packets only, so a connection has one beside. The order between both is
//! kept by looking here first: what was put in here before a packet was put in there is seen by
//! whoever has got the packet. Nobody waits: a ring without room refuses before the connection is
//! taken out of its stack.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use linerate_core::ring::{Pop, Push, spsc};
use linerate_stack::socket::Detached;

use crate::steering::plan::Member;

/// A connection that goes to another lcore.
pub struct Moving {
    /// Itself.
    pub connection: Detached,
    /// The port that it leaves by.
    pub port: u16,
    /// How often it was refused on its way.
    pub refused: u8,
}

/// How many have been put in for an lcore; a cache line each.
#[repr(align(64))]
#[derive(Default)]
struct Arrivals(AtomicU32);

/// One lcore's ends of the rings.
pub struct Post {
    me: Member,
    to: Vec<spsc::Producer<Box<Moving>>>,
    from: Vec<spsc::Consumer<Box<Moving>>>,
    arrivals: Arc<[Arrivals]>,
}

/// The ends of `owners` lcores, in order; a ring between two of them has `room` places, rounded up
/// to a power of two.
pub fn mesh(owners: Member, room: usize) -> Vec<Post> {
    let arrivals: Arc<[Arrivals]> = (0..owners).map(|_| Arrivals::default()).collect();
    let room = room.max(2).next_power_of_two();
    let new = |me| Post {
        me,
        to: Vec::new(),
        from: Vec::new(),
        arrivals: arrivals.clone(),
    };
    let mut posts: Vec<Post> = (0..owners).map(new).collect();
    for from in 0..usize::from(owners) {
        for to in 0..usize::from(owners) {
            let (putter, taker) = spsc::ring(room);
            posts[from].to.push(putter);
            posts[to].from.push(taker);
        }
    }
    posts
}

impl Post {
    /// Whether a connection can go to an lcore now. It is so until the next [`put`](Self::put).
    pub fn has_room(&mut self, to: Member) -> bool {
        let ring = self.to.get_mut(usize::from(to));
        ring.is_some_and(|ring| ring.reserve(1).len() == 1)
    }

    /// Sends a connection to an lcore.
    ///
    /// # Errors
    /// The connection, where there is no room or no such lcore.
    pub fn put(&mut self, to: Member, moving: Box<Moving>) -> Result<(), Box<Moving>> {
        let Some(ring) = self.to.get_mut(usize::from(to)) else {
            return Err(moving);
        };
        ring.push(moving)?;
        // Behind the ring's own store: who sees the count sees the connection.
        self.arrivals[usize::from(to)]
            .0
            .fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether connections have come.
    #[inline]
    pub fn has_come(&self) -> bool {
        self.arrivals[usize::from(self.me)]
            .0
            .load(Ordering::Acquire)
            != 0
    }

    /// Takes a connection that has come, and says from where.
    pub fn take(&mut self) -> Option<(Member, Box<Moving>)> {
        let mut from = (0..).zip(&mut self.from);
        let found = from.find_map(|(member, ring)| Some((member, ring.pop()?)))?;
        self.arrivals[usize::from(self.me)]
            .0
            .fetch_sub(1, Ordering::Relaxed);
        Some(found)
    }
}
