//! What is peculiar to each node of an EPC, for `super::Epc`.

use linerate_core::packet::Burst;
use linerate_epc::hss::Hss;
use linerate_epc::load::Load;
use linerate_epc::mme::{self, Mme};
use linerate_epc::pgw::Pgw;
use linerate_epc::ran::{self, Ran};
use linerate_epc::sgw::Sgw;
use linerate_epc::tunnels::{AddressPool, Onward, Ways};
use linerate_epc::{Cores, Link, Node, Notice, Owner, Sink};

/// Names and values.
pub type Named = Vec<(&'static str, u64)>;

/// A node, or one lcore's part of it, as an application.
pub trait Role: Node + Send {
    /// What it has and what it has counted.
    fn counts(&self) -> Named;

    /// Whether users' packets pass through it.
    fn is_gateway(&self) -> bool {
        false
    }

    /// Takes frames with users' packets out of a burst, as far as they are in the common form;
    /// returns how many there were.
    fn forward<W: Ways>(&mut self, burst: &mut Burst, onward: &mut Onward<'_, W>) -> usize {
        let _ = (burst, onward);
        0
    }

    /// The same of what another gateway has handed on to this one.
    fn forward_handed<W: Ways>(&mut self, onward: &mut Onward<'_, W>) -> usize {
        let _ = onward;
        0
    }

    /// The addresses of its users, if packets from beyond go to them here.
    fn pool(&self) -> Option<AddressPool> {
        None
    }

    /// Whose a message is.
    fn owner_of(&self, cores: Cores, from: Link, message: &[u8]) -> Owner {
        Self::owner(cores, from, message)
    }
}

/// The counters of an end of GTP-C.
fn control(counts: &linerate_epc::gtp::endpoint::EndpointCounts) -> Named {
    vec![
        ("gtpc_malformed", counts.malformed),
        ("gtpc_other_version", counts.other_version),
        ("gtpc_stray", counts.stray),
        ("gtpc_sent_again", counts.sent_again),
        ("gtpc_given_up", counts.given_up),
        ("gtpc_refused", counts.refused),
    ]
}

impl Role for Mme {
    fn counts(&self) -> Named {
        let counts = &self.counts;
        let idle = self.users_in(mme::State::Idle) as u64;
        let connected = self.users_in(mme::State::Connected) as u64;
        let mut all = vec![
            ("users", self.users() as u64),
            ("users_connected", connected),
            ("users_idle", idle),
            ("attached", counts.attached),
            ("detached", counts.detached),
            ("idled", counts.idled),
            ("services", counts.services),
            ("pagings", counts.pagings),
            ("not_found", counts.not_found),
            ("superseded", counts.superseded),
            ("unproved", counts.unproved),
            ("rejected", counts.rejected),
            ("congestion", counts.congestion),
            ("lost", counts.lost),
            ("malformed", counts.malformed),
            ("unexpected", counts.unexpected),
        ];
        all.extend(control(self.control().0));
        all
    }
}

impl Role for Hss {
    fn counts(&self) -> Named {
        let counts = &self.counts;
        vec![
            ("users", self.users() as u64),
            ("vectors", counts.vectors),
            ("located", counts.located),
            ("purged", counts.purged),
            ("cancelled", counts.cancelled),
            ("unreachable", counts.unreachable),
            ("refused", counts.refused),
            ("malformed", counts.malformed),
        ]
    }
}

impl Role for Sgw {
    fn is_gateway(&self) -> bool {
        true
    }

    fn forward<W: Ways>(&mut self, burst: &mut Burst, onward: &mut Onward<'_, W>) -> usize {
        self.forward(burst, onward)
    }

    fn forward_handed<W: Ways>(&mut self, onward: &mut Onward<'_, W>) -> usize {
        self.forward_handed(onward)
    }

    fn counts(&self) -> Named {
        let counts = &self.counts;
        let mut all = vec![
            ("sessions", self.sessions() as u64),
            ("waiting", self.buffered() as u64),
            ("created", counts.created),
            ("deleted", counts.deleted),
            ("replaced", counts.replaced),
            ("lost", counts.lost),
            ("refused", self.control().0.refusals),
            ("up_packets", counts.up_packets),
            ("down_packets", counts.down_packets),
            ("buffered", counts.buffered),
            ("buffer_drops", counts.buffer_drops),
            ("notifications", counts.notifications),
            ("unknown_tunnel", counts.unknown_tunnel),
            ("error_indications", counts.error_indications),
            ("malformed", counts.malformed),
        ];
        all.extend(control(self.control().0));
        all
    }
}

impl Role for Pgw {
    fn is_gateway(&self) -> bool {
        true
    }

    fn forward<W: Ways>(&mut self, burst: &mut Burst, onward: &mut Onward<'_, W>) -> usize {
        self.forward(burst, onward)
    }

    fn forward_handed<W: Ways>(&mut self, onward: &mut Onward<'_, W>) -> usize {
        self.forward_handed(onward)
    }

    fn counts(&self) -> Named {
        let (counts, refused) = (&self.counts, &self.tunnels.refusals);
        let mut all = vec![
            ("sessions", self.sessions() as u64),
            ("created", counts.created),
            ("deleted", counts.deleted),
            ("replaced", counts.replaced),
            ("lost", counts.lost),
            ("refused", self.control().0.refusals),
            ("up_packets", counts.up_packets),
            ("down_packets", counts.down_packets),
            ("packets_malformed", refused.malformed),
            ("packets_unknown", refused.unknown),
            ("packets_spoofed", refused.spoofed),
            ("error_indications", counts.error_indications),
            ("malformed", counts.malformed),
        ];
        all.extend(control(self.control().0));
        all
    }

    fn pool(&self) -> Option<AddressPool> {
        Some(self.tunnels.pool())
    }

    fn owner_of(&self, cores: Cores, from: Link, message: &[u8]) -> Owner {
        match from {
            Link::Sgi => {
                let core = Pgw::owner_of_packet(&self.tunnels.pool(), message);
                core.map_or(Owner::Home, Owner::Core)
            }
            from => Self::owner(cores, from, message),
        }
    }
}

/// Base stations, their users, and what these do.
pub struct Loaded {
    /// Base stations and users.
    pub ran: Ran,
    /// What users do.
    pub load: Load,
}

impl Node for Loaded {
    fn owner(cores: Cores, from: Link, message: &[u8]) -> Owner {
        Ran::owner(cores, from, message)
    }

    fn receive(&mut self, now_ns: u64, from: Link, message: &mut [u8], out: &mut impl Sink) {
        self.ran.receive(now_ns, from, message, out);
    }

    fn notice(&mut self, now_ns: u64, notice: Notice, out: &mut impl Sink) {
        self.ran.notice(now_ns, notice, out);
    }

    fn poll(&mut self, now_ns: u64, budget: usize, out: &mut impl Sink) -> Option<u64> {
        let load = self.load.poll(now_ns, budget, &mut self.ran, out);
        let ran = self.ran.poll(now_ns, budget, out);
        ran.into_iter().chain(load).min()
    }
}

impl Role for Loaded {
    fn counts(&self) -> Named {
        let (counts, load) = (&self.ran.counts, &self.load.counts);
        let idle = self.ran.users_in(ran::State::Idle) as u64;
        let connected = self.ran.users_in(ran::State::Connected) as u64;
        vec![
            ("users", self.ran.ids().count() as u64),
            ("users_connected", connected),
            ("users_idle", idle),
            ("attached", counts.attached),
            ("detached", counts.detached),
            ("idled", counts.idled),
            ("services", counts.services),
            ("paged", counts.paged),
            ("rejected", counts.rejected),
            ("timeouts", counts.timeouts),
            ("dropped", counts.dropped),
            ("forged", counts.forged),
            ("up_packets", counts.up_packets),
            ("down_packets", counts.down_packets),
            ("unsent_packets", counts.unsent),
            ("unknown_tunnel", counts.unknown_tunnel),
            ("malformed", counts.malformed),
            ("unexpected", counts.unexpected),
            ("late", load.late),
        ]
    }
}
