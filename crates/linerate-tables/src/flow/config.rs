//! How a flow table is to be: its states, their timeouts, and its limits.

use crate::TableError;
use crate::exact::Seed;

/// The most keys of a table: the index holds two more.
const FLOWS_MAX: usize = crate::exact::LIMIT_MAX - 2;

/// One of the states that flows are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// For messages.
    pub name: &'static str,
    /// Ticks without a packet after which a flow in this state ends.
    pub timeout: u64,
    /// How many flows may be in it, if fewer than in the table.
    pub most: Option<usize>,
}

/// How a table is to be.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Whose it is, for messages.
    pub name: String,
    /// The most flows it holds: all memory is taken at set-up.
    pub flows: usize,
    /// The states, by number; up to 256.
    pub states: Vec<State>,
    /// One flow for both directions: a key and its reverse are the same flow.
    pub bidirectional: bool,
    /// The most flows with two keys, each of which takes a second entry of the index: see
    /// [`insert_pair`](super::FlowTable::insert_pair).
    pub translated: usize,
    /// The most flows of one owner.
    pub per_owner: Option<u32>,
    /// The most flows of some zones ([`First::zone`](super::First::zone)); the others have no
    /// limit.
    pub per_zone: Vec<(u8, u32)>,
    /// The state whose oldest flow makes room when the table, or that state, is full. Without it,
    /// new flows are refused.
    pub evict: Option<u8>,
    /// What the hash is keyed with.
    pub seed: Seed,
}

/// States for stateful filters and NAT, as [`FlowConfig::stateful`] numbers them.
pub mod states {
    /// TCP, before both sides have spoken.
    pub const TCP_NEW: u8 = 0;
    /// TCP, established.
    pub const TCP_ESTABLISHED: u8 = 1;
    /// TCP, after a FIN or RST.
    pub const TCP_CLOSING: u8 = 2;
    /// UDP.
    pub const UDP: u8 = 3;
    /// ICMP queries.
    pub const ICMP: u8 = 4;
    /// Whatever else.
    pub const OTHER: u8 = 5;
}

impl FlowConfig {
    /// Both directions in one, with the states of [`states`] and the least timeouts that the RFCs
    /// ask of a NAT: 2 h 4 min for established TCP and 4 min otherwise (RFC 5382 REQ-5), 5 min for
    /// UDP (RFC 4787 REQ-5), 60 s for ICMP (RFC 5508 REQ-2); new TCP flows make room for others.
    /// `ticks` is a second's.
    pub fn stateful(name: &str, flows: usize, ticks: u64, seed: Seed) -> Self {
        let state = |name, seconds: u64| State {
            name,
            timeout: seconds.saturating_mul(ticks),
            most: None,
        };
        Self {
            name: name.into(),
            flows,
            states: vec![
                state("tcp new", 240),
                state("tcp established", 7440),
                state("tcp closing", 240),
                state("udp", 300),
                state("icmp", 60),
                state("other", 300),
            ],
            bidirectional: true,
            translated: 0,
            per_owner: None,
            per_zone: Vec::new(),
            evict: Some(states::TCP_NEW),
            seed,
        }
    }

    /// Whether a table made for `made` can take this one.
    pub(super) fn check_against(&self, made: &Self) -> Result<(), TableError> {
        self.check()?;
        let differs = [
            ("number of flows", self.flows != made.flows),
            (
                "number of translated flows",
                self.translated != made.translated,
            ),
            ("number of states", self.states.len() != made.states.len()),
            (
                "kind of directions",
                self.bidirectional != made.bidirectional,
            ),
            ("state to evict", self.evict != made.evict),
            (
                "limit of owners, where there was none or is none now",
                self.per_owner.is_some() != made.per_owner.is_some(),
            ),
        ];
        match differs.iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((what, _)) => Err(TableError::Flow {
                name: self.name.clone(),
                reason: format!("another {what}: make a new table, and put the flows into it"),
            }),
        }
    }

    pub(super) fn check(&self) -> Result<(), TableError> {
        let refuse = |reason: String| {
            Err(TableError::Flow {
                name: self.name.clone(),
                reason,
            })
        };
        if !(1..=FLOWS_MAX).contains(&self.flows) {
            return refuse(format!("{} flows: give 1 to {FLOWS_MAX}", self.flows));
        }
        let translated = self.flows.min(FLOWS_MAX - self.flows);
        if self.translated > translated {
            let asked = self.translated;
            return refuse(format!("{asked} translated flows: give 0 to {translated}"));
        }
        let states = self.states.len();
        if !(1..=256).contains(&states) {
            return refuse(format!("{states} states: give 1 to 256"));
        }
        if let Some(state) = self.states.iter().find(|state| state.timeout == 0) {
            return refuse(format!(
                "state `{}` has a timeout of 0 ticks: give at least 1",
                state.name
            ));
        }
        if let Some(evict) = self.evict.filter(|&evict| usize::from(evict) >= states) {
            return refuse(format!(
                "state {evict} is to be evicted, but there are only {states}"
            ));
        }
        if self.per_owner == Some(0) {
            return refuse("0 flows per owner: give at least 1, or none for no limit".into());
        }
        if let Some((zone, _)) = self.per_zone.iter().find(|(_, most)| *most == 0) {
            return refuse(format!(
                "0 flows in zone {zone}: give at least 1, or leave the zone out for no limit"
            ));
        }
        Ok(())
    }
}
