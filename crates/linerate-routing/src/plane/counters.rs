//! Counters other than drops: traffic of each interface, and messages of the router itself.
//!
//! Each worker has its own [`Counters`] and is their only writer; readers add them up.

use std::sync::Arc;

use linerate_core::port::Counter;

use super::acl::AccessList;
use super::settings::Settings;

/// Traffic of one interface at one worker. Bytes are those of frames, without tag and FCS.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Traffic {
    /// Frames received.
    pub in_packets: Counter,
    /// Bytes received.
    pub in_bytes: Counter,
    /// Frames sent.
    pub out_packets: Counter,
    /// Bytes sent.
    pub out_bytes: Counter,
    /// Packets beyond the policer's rate.
    pub policed: Counter,
}

/// Messages of the router itself, sent and suppressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Sent {
    /// ICMP destination unreachable.
    Unreachable,
    /// IPv4 "fragmentation needed", IPv6 "packet too big".
    TooBig,
    /// ICMP time exceeded, in transit or in reassembly.
    TimeExceeded,
    /// ICMP parameter problem.
    ParameterProblem,
    /// ICMP redirect.
    Redirect,
    /// ICMP echo reply.
    EchoReply,
    /// TCP resets, for what access lists reject and for ports without a listener.
    Reset,
    /// Not sent: the rate was reached (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)).
    Limited,
    /// Not sent: the RFCs forbid an answer to this packet (RFC 1812 4.3.2.7, RFC 4443 2.4 (e), RFC
    /// 9293 3.10.7.1), or there was no route back or no memory.
    Withheld,
}

impl Sent {
    /// All of them, in the order of their counters, as they are shown.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Unreachable, "unreachable"),
        (Self::TooBig, "too_big"),
        (Self::TimeExceeded, "time_exceeded"),
        (Self::ParameterProblem, "parameter_problem"),
        (Self::Redirect, "redirect"),
        (Self::EchoReply, "echo_reply"),
        (Self::Reset, "tcp_reset"),
        (Self::Limited, "limited"),
        (Self::Withheld, "withheld"),
    ];
}

/// One worker's counters for one generation of the configuration.
#[derive(Debug, Default)]
pub struct Counters {
    names: Vec<String>,
    traffic: Vec<Traffic>,
    /// By access list: packets that each rule decided on, and last those that no rule matched.
    lists: Vec<(Arc<AccessList>, Arc<[Counter]>)>,
    icmp: [Counter; Sent::ALL.len()],
    /// Packets that were fragmented because they were too long.
    pub fragmented: Counter,
    /// Fragments made of packets that were too long.
    pub fragments_made: Counter,
    /// Datagrams reassembled.
    pub reassembled: Counter,
    /// Fragments that datagrams were reassembled from.
    pub fragments_used: Counter,
    /// ARP requests, neighbour and router solicitations that were answered or processed, and end
    /// there.
    pub answered: Counter,
    /// ARP and Neighbor Discovery of our own: requests, answers, advertisements.
    pub neighbour_sent: Counter,
    /// Packets whose route leads by a virtual device of the kernel, which get handed to it.
    pub by_host: Counter,
}

impl Counters {
    /// The counters that are neither per interface nor per list.
    const SINGLES: [fn(&Self) -> &Counter; 7] = [
        |counters| &counters.fragmented,
        |counters| &counters.fragments_made,
        |counters| &counters.reassembled,
        |counters| &counters.fragments_used,
        |counters| &counters.answered,
        |counters| &counters.neighbour_sent,
        |counters| &counters.by_host,
    ];

    /// Counters for these interfaces. Lists that `old` has go on counting where they are; the rest
    /// [goes on](Self::go_on_from) when their worker takes them.
    pub(super) fn new(settings: &Settings, old: &Self) -> Self {
        let interfaces = &settings.interfaces;
        let lists = settings.acls.iter().map(|list| {
            // The counters of a changed list begin at 0.
            let same = |(old, _): &&(Arc<AccessList>, _)| Arc::ptr_eq(old, list);
            let known = old.lists.iter().find(same).map(|(_, hits)| hits.clone());
            let hits =
                known.unwrap_or_else(|| (0..=list.rules).map(|_| Counter::default()).collect());
            (list.clone(), hits)
        });
        Self {
            names: interfaces.iter().map(|one| one.name.clone()).collect(),
            traffic: interfaces.iter().map(|_| Traffic::default()).collect(),
            lists: lists.collect(),
            ..Self::default()
        }
    }

    /// Goes on counting where `old` ends: only for the worker that writes both. `places` are the
    /// interfaces' indices in `old`.
    pub(super) fn go_on_from(&self, old: &Self, places: &[Option<usize>]) {
        let go_on = |new: &Counter, old: &Counter| new.set(old.read());
        for (new, place) in self.traffic.iter().zip(places) {
            if let Some(old) = place.and_then(|at| old.traffic.get(at)) {
                go_on(&new.in_packets, &old.in_packets);
                go_on(&new.in_bytes, &old.in_bytes);
                go_on(&new.out_packets, &old.out_packets);
                go_on(&new.out_bytes, &old.out_bytes);
                go_on(&new.policed, &old.policed);
            }
        }
        for (new, old) in self.icmp.iter().zip(&old.icmp) {
            go_on(new, old);
        }
        for single in Self::SINGLES {
            go_on(single(self), single(old));
        }
    }

    /// The names of the interfaces.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The traffic of an interface by its place in the settings.
    #[inline(always)]
    pub(super) fn at(&self, interface: usize) -> Option<&Traffic> {
        self.traffic.get(interface)
    }

    /// The traffic of an interface by its name.
    pub fn of(&self, name: &str) -> Option<&Traffic> {
        let at = self.names.iter().position(|known| known == name)?;
        self.traffic.get(at)
    }

    /// Counts a packet that a rule of the list of that number decided on.
    #[inline]
    pub(super) fn hit(&self, list: usize, rule: usize) {
        if let Some(hits) = self.lists.get(list).and_then(|(_, hits)| hits.get(rule)) {
            hits.add(1);
        }
    }

    /// How many packets a rule of the list of that number has decided on; the index behind the last
    /// rule counts those without a match.
    pub fn hits(&self, list: usize, rule: usize) -> u64 {
        let hits = self.lists.get(list).and_then(|(_, hits)| hits.get(rule));
        hits.map_or(0, Counter::read)
    }

    /// Counts a message of ours, or one that was not sent.
    pub(super) fn sent(&self, what: Sent) {
        self.icmp[what as usize].add(1);
    }

    /// Messages of the router's own that were sent: those in packets of its own, which an answer to
    /// ping, written over the request, is not.
    pub fn messages(&self) -> u64 {
        let is_made = |what| !matches!(what, Sent::EchoReply | Sent::Limited | Sent::Withheld);
        let made = Sent::ALL.iter().filter(|(what, _)| is_made(*what));
        made.map(|(what, _)| self.icmp(*what)).sum()
    }

    /// How many of these there were.
    pub fn icmp(&self, what: Sent) -> u64 {
        self.icmp[what as usize].read()
    }
}
