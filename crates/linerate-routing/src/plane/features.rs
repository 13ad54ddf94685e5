//! What only some interfaces ask for: policing, reassembly, access lists, reverse path filtering.
//!
//! Each works on a mask of the burst and seals the fate of what it does not let through. In this
//! order: reassembly (so that nothing is judged in parts), policer, access list (`lists.rs`), reverse
//! path (`urpf.rs`).

use std::hash::{BuildHasher, RandomState};

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_stack::reassembly::{Outcome, Reassembler, Refusal};
use linerate_tables::meter::{Buckets, Color, Profile, SrTcm, SrTcmConfig};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;

use super::View;
use super::change::Change;
use super::engine::{Engine, Fate, ones};
use super::errors::Complaint;
use super::lists::{Gate, Lists};
use super::punt::{Punt, Rates, Reason};
use super::settings::{Interface, Policer, Urpf};
use super::trace::Stage;
use crate::model::InterfaceId;

/// Nanoseconds a second: the clock of all meters here.
const HZ: u64 = 1_000_000_000;
/// The longest burst of a policer in bytes, as its meter counts.
const MOST_BURST_BYTES: u64 = 4_000_000_000;
/// The highest rate of one, in bytes a second.
const MOST_RATE: u64 = 1 << 50;
/// Datagrams in the making that one tick may end.
const EXPIRY_BUDGET: usize = 256;

/// A token bucket and what is in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    profile: SrTcm,
    buckets: Buckets,
}

impl Meter {
    /// `rate` a second, `burst` at once.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        let (rate, burst) = (rate.clamp(1, MOST_RATE), burst.clamp(1, MOST_BURST_BYTES));
        let profile = SrTcm::new(&SrTcmConfig {
            cir: rate,
            cbs: burst,
            ebs: 0,
            hz: HZ,
        });
        let profile = profile.expect("both are within the meter's bounds");
        Self {
            profile,
            buckets: profile.full(0),
        }
    }

    fn passes(&mut self, now_ns: u64, count: u32) -> bool {
        self.profile
            .mark(&mut self.buckets, now_ns, count, Color::Green)
            == Color::Green
    }
}

/// The state behind what interfaces ask.
pub(super) struct Features {
    /// By interface.
    policers: Vec<Option<(Policer, Meter)>>,
    pub(super) lists: Lists,
    /// Made when the first interface asks for it.
    reassembler: Option<Box<Reassembler>>,
    /// What it has dropped, as far as that is counted among the drops.
    refused: [u64; Refusal::ALL.len()],
    /// The datagrams that it has put together, and their fragments, as far as those are counted.
    whole: (u64, u64),
    /// What the slow worker is to see of each reason, at most.
    punts: [Meter; Reason::ALL.len()],
    /// Makes identifications of fragments.
    idents: RandomState,
    ident: u64,
}

impl Features {
    /// Such as no interface asks for, which hand this much to the slow worker.
    pub(super) fn new(punts: &Rates) -> Self {
        let punts = Reason::ALL.map(|reason| {
            let pps = u64::from(punts.of(reason));
            Meter::new(pps, pps / 5)
        });
        Self {
            policers: Vec::new(),
            lists: Lists::default(),
            reassembler: None,
            refused: [0; Refusal::ALL.len()],
            whole: (0, 0),
            punts,
            idents: RandomState::new(),
            ident: 0,
        }
    }

    /// Whether an interface asks for anything about what comes in.
    pub(super) fn are_asked(interface: &Interface) -> bool {
        interface.policer.is_some()
            || interface.acl_in.is_some()
            || interface.urpf != Urpf::Off
            || interface.reassemble
    }

    /// Takes over another configuration. Policers of interfaces that keep name and rate go on.
    pub(super) fn install(&mut self, change: &mut Change, egress: &mut Egress) {
        for (place, now) in change.interfaces.iter().zip(&mut change.policers) {
            let known = place.and_then(|at| *self.policers.get(at)?);
            if let (Some((policer, meter)), Some((known, used))) = (now, known)
                && *policer == known
            {
                *meter = used;
            }
        }
        std::mem::swap(&mut self.policers, &mut change.policers);
        self.lists.install(change, egress);
        if self.reassembler.is_none() {
            self.reassembler = change.reassembler.take();
        }
    }

    /// An identification for the fragments of a datagram.
    pub(super) fn ident(&mut self) -> u32 {
        self.ident += 1;
        self.idents.hash_one(self.ident) as u32
    }

    /// Slots of datagrams in the making.
    pub(super) fn held(&self) -> u64 {
        let reassembler = self.reassembler.as_ref();
        reassembler.map_or(0, |reassembler| reassembler.held().datagrams as u64)
    }

    /// The fragments in them.
    pub(super) fn held_fragments(&self) -> u64 {
        let reassembler = self.reassembler.as_ref();
        reassembler.map_or(0, |reassembler| reassembler.held().fragments)
    }

    /// Whether the slow worker may be given another packet for this reason.
    pub(super) fn may_punt(&mut self, reason: Reason, now_ns: u64) -> bool {
        self.punts[reason as usize].passes(now_ns, 1)
    }
}

impl Engine {
    /// Lets in what the interface wants of `live`; returns that. Leaves no burst where it was run anew
    /// because fragments became datagrams.
    #[cold]
    pub(super) fn admit(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        mut live: Mask,
        is_new: bool,
        burst: &mut Burst,
        out: &mut Egress,
    ) -> Mask {
        let Some(interface) = view.settings.interfaces.get(usize::from(id.0)) else {
            return live;
        };
        let fragments = live & self.parsed.class.fragment;
        if interface.reassemble
            && is_new
            && fragments != 0
            && self.reassemble(view, id, fragments, burst, out)
        {
            return 0;
        }
        live = self.police(view, id, live);
        if let Some(list) = interface.acl_in {
            live = self.permit(view, list, Gate::In(id), live, burst);
        }
        if interface.urpf != Urpf::Off {
            live = self.reverse_path(view, id, interface.urpf, live);
        }
        live
    }

    /// Takes fragments out of the burst, and puts the datagrams that became whole into it. Then runs
    /// the burst once more. False where there is no reassembler.
    fn reassemble(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        fragments: Mask,
        burst: &mut Burst,
        out: &mut Egress,
    ) -> bool {
        let vrf = self.faces[usize::from(id.0)].vrf;
        let Some(mut reassembler) = self.features.reassembler.take() else {
            return false;
        };
        let mut parts = Burst::new();
        let mut index = 0;
        burst.sift(&mut parts, |_| {
            index += 1;
            fragments >> (index - 1) & 1 == 0
        });
        let whole = burst.len();
        for mut part in parts.drain() {
            // So that who is told of a datagram that never is whole can be found: `expire`.
            part.set_user(Punt {
                interface: id,
                ..Punt::default()
            });
            match reassembler.push(part, HEADER_LEN, vrf, view.now_ns, &mut out.cache) {
                Outcome::Held => {}
                Outcome::Whole(packet) => {
                    // There is room: each took one out.
                    if let Err(packet) = burst.push(packet) {
                        out.drop_one(self.reasons.no_buffer, packet);
                    }
                }
                Outcome::Dropped(refusal, packet) => {
                    // RFC 8200 4.5.
                    let ip = packet.data().get(HEADER_LEN..).unwrap_or_default();
                    let complaint = refusal.error6(ip).map(Complaint::Fragment);
                    self.end_fragment(view, id, complaint, packet, out);
                }
            }
        }
        self.count_reassembly(&reassembler, out);
        self.features.reassembler = Some(reassembler);
        if !burst.is_empty() {
            self.again(view, id, whole, burst, out);
        }
        true
    }

    /// Ends datagrams whose fragments did not come in time.
    pub(super) fn expire(&mut self, view: View<'_>, out: &mut Egress) {
        let Some(mut reassembler) = self.features.reassembler.take() else {
            return;
        };
        let mut first = Burst::new();
        reassembler.expire(view.now_ns, EXPIRY_BUDGET, &mut out.cache, &mut first);
        self.count_reassembly(&reassembler, out);
        self.features.reassembler = Some(reassembler);
        for packet in first.drain() {
            // RFC 792, RFC 8200 4.5: the sender is told, if the first fragment came.
            let Punt { interface, .. } = packet.user();
            let complaint = Some(Complaint::ReassemblyExceeded);
            self.end_fragment(view, interface, complaint, packet, out);
        }
    }

    /// Frees a fragment that the reassembler has counted as dropped, and tells its sender.
    fn end_fragment(
        &mut self,
        view: View<'_>,
        id: InterfaceId,
        complaint: Option<Complaint>,
        packet: Packet,
        out: &mut Egress,
    ) {
        if let Some(complaint) = complaint {
            self.complain(view, id, &packet, complaint, out);
        }
        if self.watch.is_tapped() {
            self.watch.show_one(Stage::Drop, packet.port(), &packet);
        }
        out.cache.free_one(packet);
    }

    /// Counts what the reassembler has put together since the last time, and among the drops what it has
    /// dropped: fragments given back, and those whose slots it has freed itself.
    fn count_reassembly(&mut self, reassembler: &Reassembler, out: &mut Egress) {
        let stats = reassembler.stats();
        let (datagrams, fragments) = (stats.datagrams, stats.reassembled);
        let (known, used) = std::mem::replace(&mut self.features.whole, (datagrams, fragments));
        self.counters.reassembled.add(datagrams - known);
        self.counters.fragments_used.add(fragments - used);
        let dropped = stats.dropped;
        let counted = self.features.refused.iter_mut();
        for ((now, counted), reason) in dropped.into_iter().zip(counted).zip(self.reasons.fragment)
        {
            out.count_drops(reason, now - *counted);
            *counted = now;
        }
    }

    /// Which of `live` are within the interface's rate.
    fn police(&mut self, view: View<'_>, id: InterfaceId, mut live: Mask) -> Mask {
        let policer = self.features.policers.get_mut(usize::from(id.0));
        let Some((_, meter)) = policer.and_then(Option::as_mut) else {
            return live;
        };
        let traffic = self.counters.at(id.0.into());
        for index in ones(live) {
            let bytes = self.parsed.end[index] - HEADER_LEN as u32;
            if !meter.passes(view.now_ns, bytes) {
                self.fates[index] = Fate::Drop(self.reasons.policed);
                if let Some(traffic) = traffic {
                    traffic.policed.add(1);
                }
                live &= !(1 << index);
            }
        }
        live
    }
}
