//! What can change while connections live: settings of those to come, addresses that are no longer
//! ours, users that have gone.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::Stack;
use super::io::Io;
use super::receive::local_of;
use super::slots::is;
use crate::tcp::config::Config;
use crate::tcp::connection::State;

impl Stack {
    /// Goes on with other settings. Connections that are there keep what they have agreed upon
    /// with their peers (SACK, time stamps, scale, ECN) and what each has of its own: algorithm,
    /// first buffers, keepalive, Diffserv field, time to live. Retransmissions, RACK, F-RTO,
    /// time-outs, pacing, the search for the MTU, and how far buffers grow are by the settings of
    /// the stack, and so by the new ones at once.
    pub fn set_tcp(&mut self, config: Config) {
        self.lingering4.set_has_ts(config.timestamps);
        self.lingering6.set_has_ts(config.timestamps);
        self.shared.config = config;
    }

    /// Sends so many challenge ACKs a second from now on (RFC 5961 7).
    pub fn set_challenges(&mut self, per_s: u32) {
        self.shared.challenges.set_per_s(per_s);
    }

    /// Chooses local ports among these from now on.
    pub fn set_ports(&mut self, ports: RangeInclusive<u16>) {
        self.ports = ports;
    }
}

impl Io<'_> {
    /// Ends the connections of an address of ours that is about to go, each with a reset; their
    /// users are told as of an [abort](super::super::tcp::connection::Error::Aborted). Returns how
    /// many there were.
    pub fn abort_local(&mut self, address: IpAddr) -> usize {
        let stack = &mut *self.stack;
        let is_of = |&index: &u32| {
            let is_open = !matches!(stack.slots.state(index), State::Closed | State::TimeWait);
            is_open && local_of(&stack.slots[index].key).0 == address
        };
        let all: Vec<u32> = stack.slots.indices().filter(is_of).collect();
        for &index in &all {
            stack.with(index, self.now_ns, self.out, |connection, cx| {
                connection.abort(cx);
            });
            stack.settle(index, self.now_ns, self.out);
        }
        all.len()
    }

    /// Ends the connections whose [token](Self::register) is one of these, each with a reset, in
    /// the place of a user that has gone: their ids mean nothing any more. Those that wait to be
    /// accepted are no user's. Returns how many there were.
    pub fn abort_users(&mut self, is_one: impl Fn(u64) -> bool) -> usize {
        let slots = &self.stack.slots;
        let is_of = |&index: &u32| {
            let slot = &slots[index];
            slot.is & (is::OWNED | is::QUEUED) == is::OWNED && is_one(slot.token)
        };
        let indices = slots.indices().filter(is_of);
        let all: Vec<_> = indices.map(|index| slots.id(index)).collect();
        all.iter().for_each(|&id| self.abort(id));
        all.len()
    }
}
