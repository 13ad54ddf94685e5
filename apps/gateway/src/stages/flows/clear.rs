//! Flows that end because a user says so.

use linerate_tables::flow::FlowId;

use super::{Flows, gone_of};

impl Flows {
    /// Ends a flow of IPv4, as if its time were over. Returns whether it was there.
    pub fn clear4(&mut self, id: FlowId, now: u64) -> bool {
        let gone = self.v4.remove(id).map(|flow| gone_of(&self.nat, &flow));
        self.cleared(gone, now)
    }

    /// The same of IPv6.
    pub fn clear6(&mut self, id: FlowId, now: u64) -> bool {
        let gone = self.v6.remove(id).map(|flow| gone_of(&self.nat, &flow));
        self.cleared(gone, now)
    }

    fn cleared(&mut self, gone: Option<super::Gone>, now: u64) -> bool {
        let Some((held, original, translated, zone)) = gone else {
            return false;
        };
        self.nat.release(held, &original, &translated, zone, now);
        self.counts.cleared += 1;
        true
    }
}
