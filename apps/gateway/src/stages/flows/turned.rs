//! Hairpins between workers (RFC 4787 REQ-9): a host inside sends to the outside of another.
//!
//! Such a packet has two flows. That of its sender, at the sender's owner, makes its source an
//! outside endpoint, as of any packet to the outside; then the packet turns: it goes to the owner
//! of the port that it is for, as if it came from outside, whose flow gives it its destination, by
//! the filter and the policy there. Answers come back the same way.
//!
//! Keys of what lies between the two flows, from one outside endpoint to another, are in a zone of
//! their own, which says the direction too: so both flows can have one owner, and buckets move
//! without each other. Two hosts that call each other have a flow each, which meet there.
//!
//! All packets of these flows have [`TURNS`] in the number of the configuration that has permitted
//! them: as with [`DIRECT`](super::balanced::DIRECT), what all packets are checked for leads away
//! from the usual way, and costs the others nothing.

use linerate_routing::plane::Verdict;
use linerate_tables::flow::{Direction, Hit};
use linerate_tables::parse::Mask;
use linerate_wire::FlowKey as Either;

use super::Flows;
use crate::nat::{self, Held, Tuple};
use crate::services::ServiceBits;

/// In [`Tracked::permitted_by`](super::Tracked): packets of the flow turn.
pub(super) const TURNS: u32 = 1 << 30;

/// In the zone of a key: it is one between outside endpoints. VRFs have lower numbers.
const BETWEEN: u16 = 1 << 14;
/// Beside that: from the greater endpoint to the lesser one.
const DOWN: u16 = 1 << 15;

/// The VRF of a key's zone.
pub(crate) fn vrf_of(zone: u16) -> u16 {
    zone & !(BETWEEN | DOWN)
}

/// Whether a key of this zone is between outside endpoints.
pub(super) fn is_between(zone: u16) -> bool {
    zone & BETWEEN != 0
}

/// The zone of a packet from one outside endpoint to another, in a VRF.
pub(super) fn between(tuple: &Tuple, vrf: u16) -> u16 {
    let [src, dst] = [tuple.src, tuple.dst].map(|end| (end.address, end.port));
    vrf | BETWEEN | if src > dst { DOWN } else { 0 }
}

impl Flows {
    /// Packets of the last burst that are to turn.
    #[inline(always)]
    pub fn turning(&self) -> Mask {
        self.turning
    }

    /// Whether packets of the next burst have turned.
    #[inline(always)]
    pub fn have_turned(&mut self, turned: bool) {
        self.have_turned = turned;
    }

    /// The zone of a packet's key, as it has come.
    pub(super) fn zone_of(&self, tuple: &Tuple, vrf: u16) -> u16 {
        match self.have_turned {
            true => between(tuple, vrf),
            false => vrf,
        }
    }

    /// The pool that gives a first packet its source which then turns; `None` where none does.
    pub(super) fn turns(&self, key: &Either, first: &nat::First) -> Option<u16> {
        let rules = self.nat.rules();
        let may = self.hands_over && !self.have_turned;
        // Most go to no pool.
        let is_to_pool = may && rules.id(first.tuple.dst.address).is_some();
        let turns = is_to_pool && self.classes.turns(key, first.from.interface);
        turns.then(|| rules.hairpin(&first.tuple, first.from))?
    }

    /// A packet has got addresses whose key is in this zone: it turns, if they are both outside.
    #[inline(always)]
    pub(super) fn passes_to(&mut self, index: usize, zone: u16) {
        // One that has turned goes on, so that no packet turns twice.
        if zone & BETWEEN != 0 && !self.have_turned {
            self.turning |= 1 << index;
        }
    }

    /// Decides anew on a packet of a flow of which packets turn, as
    /// [`decide_again`](Self::decide_again) does; `None`: that one is to do it.
    pub(super) fn decide_turning(
        &mut self,
        hit: &Hit,
        (original, translated): &(Tuple, Tuple),
        (held, by): (Held, u32),
    ) -> Option<Result<Option<ServiceBits>, Verdict>> {
        let is_senders = self.have_turned == (hit.direction == Direction::Reverse);
        match (is_senders, hit.direction) {
            // Policy is asked where it is known where the packet goes.
            (true, _) if self.nat.is_permitted(held, original, translated, by) => {
                Some(Ok(Some(ServiceBits::default())))
            }
            (true, _) => {
                self.counts.forbidden += 1;
                Some(Err(Verdict::Drop(self.reasons.nat_gone)))
            }
            (false, Direction::Forward) => None,
            // By which interface the other host sends is seen when it does.
            (false, Direction::Reverse) => Some(Ok(None)),
        }
    }
}
