//! What control asks a worker's flows.

use linerate_routing::plane::hits::Hits as Logged;
use linerate_wire::flow::{FlowKey4, FlowKey6};

use super::{Counts, Flows, Table};
use crate::nat::Nat;
use crate::nat::log::Record;

impl Flows {
    /// The flows of IPv4.
    pub fn v4(&self) -> &Table<FlowKey4, 16> {
        &self.v4
    }

    /// The flows of IPv6.
    pub fn v6(&self) -> &Table<FlowKey6, 40> {
        &self.v6
    }

    /// Packets that rules have logged since this was asked last.
    pub fn take_logged(&mut self) -> Logged {
        std::mem::take(&mut self.logged)
    }

    /// Its translation.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }

    /// Takes what translation has recorded; `room` is for what it records from now on, or what
    /// comes back if there is nothing.
    pub fn take_records(&mut self, room: Vec<Record>) -> Vec<Record> {
        let log = &mut self.nat.log;
        match log.is_empty() {
            true => room,
            false => log.take(room),
        }
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
