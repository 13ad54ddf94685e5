//! What only some interfaces ask for: policing, reassembly, access lists, reverse path filtering.
//!
//! Each works on a mask of the burst and seals the fate of what it does not let through. In this
//! order: reassembly (so that nothing is judged in parts), policer, access list, reverse path.

use std::hash::{BuildHasher, RandomState};

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress};
use linerate_stack::reassembly::{Config, Outcome, Reassembler};
use linerate_tables::acl::{
    Acl, FRAGMENT, HAS_ICMP, HAS_PORTS, LATER, PacketKey, PacketKey4, PacketKey6, TAGGED,
};
use linerate_tables::meter::{Buckets, Color, Profile, SrTcm};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{Fragment, protocol};

use super::acl::{DENY, PERMIT};
use super::engine::{Engine, Fate, ones};
use super::errors::Complaint;
use super::punt::{Punt, Reason};
use super::settings::{Interface, Policer, Settings, Urpf};
use super::trace::Stage;
use super::{View, acl::AccessList};
use crate::apps::router::model::InterfaceId;

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
struct Meter {
    profile: SrTcm,
    buckets: Buckets,
}

impl Meter {
    /// `rate` a second, `burst` at once.
    fn new(rate: u64, burst: u64) -> Self {
        let (rate, burst) = (rate.clamp(1, MOST_RATE), burst.clamp(1, MOST_BURST_BYTES));
        let profile = SrTcm::new(rate, burst, 0, HZ);
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
    /// By access list.
    denied_in: Vec<DropId>,
    denied_out: Vec<DropId>,
    keys4: Box<[PacketKey4; Burst::CAPACITY]>,
    keys6: Box<[PacketKey6; Burst::CAPACITY]>,
    /// Made when the first interface asks for it.
    reassembler: Option<Reassembler>,
    /// What the slow worker is to see of each reason, at most.
    punts: [Meter; Reason::ALL.len()],
    /// Makes identifications of fragments.
    idents: RandomState,
    ident: u64,
}

impl Default for Features {
    fn default() -> Self {
        let empty4 = PacketKey4::tuple([0], [0], (0, 0), 0);
        let empty6 = PacketKey6::tuple([0; 4], [0; 4], (0, 0), 0);
        // Packets a second: so that a flood of one kind leaves the ring to the others.
        let punts = Reason::ALL.map(|reason| match reason {
            Reason::Local => Meter::new(200_000, 20_000),
            Reason::Resolve => Meter::new(20_000, 2_000),
            Reason::Arp | Reason::Nd | Reason::Glean => Meter::new(5_000, 1_000),
            Reason::Alert | Reason::Other => Meter::new(1_000, 200),
        });
        Self {
            policers: Vec::new(),
            denied_in: Vec::new(),
            denied_out: Vec::new(),
            keys4: Box::new([empty4; Burst::CAPACITY]),
            keys6: Box::new([empty6; Burst::CAPACITY]),
            reassembler: None,
            punts,
            idents: RandomState::new(),
            ident: 0,
        }
    }
}

impl Features {
    /// Whether an interface asks for anything about what comes in.
    pub(super) fn are_asked(interface: &Interface) -> bool {
        interface.policer.is_some()
            || interface.acl_in.is_some()
            || interface.urpf != Urpf::Off
            || interface.reassemble
    }

    /// Takes over another configuration. Policers of interfaces that keep name and rate go on.
    pub(super) fn install(
        &mut self,
        old: &Settings,
        new: &Settings,
        queues: u16,
        egress: &mut Egress,
    ) {
        let known = |name: &str, policer: &Policer| {
            let at = old.interfaces.iter().position(|old| old.name == name)?;
            let (known, meter) = (*self.policers.get(at)?)?;
            (known == *policer).then_some(meter)
        };
        let policers = new.interfaces.iter().map(|interface| {
            let policer = interface.policer?;
            let rate = policer.rate_bps / 8 / u64::from(queues);
            let meter = known(&interface.name, &policer);
            Some((
                policer,
                meter.unwrap_or_else(|| Meter::new(rate, policer.burst_bytes)),
            ))
        });
        self.policers = policers.collect();
        let mut denied = |way: &str| -> Vec<DropId> {
            let names = new.acls.iter().map(|acl| format!("{way}.{}", acl.name));
            names.map(|name| egress.reason(&name)).collect()
        };
        self.denied_in = denied("acl_in");
        self.denied_out = denied("acl_out");
        let is_asked = new.interfaces.iter().any(|interface| interface.reassemble);
        if is_asked && self.reassembler.is_none() {
            // Without memory for it, fragments go on one by one, and lists judge them as such.
            self.reassembler = Reassembler::new(&Config::default()).ok();
        }
    }

    /// An identification for the fragments of a datagram.
    pub(super) fn ident(&mut self) -> u32 {
        self.ident += 1;
        self.idents.hash_one(self.ident) as u32
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
        if let Some(at) = interface.acl_in.map(usize::from)
            && let Some(list) = view.settings.acls.get(at)
        {
            let denied = self.features.denied_in[at];
            live = self.permit(list, interface.vlan, denied, live, burst);
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
        let Some(reassembler) = &mut self.features.reassembler else {
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
                reason: Reason::default(),
                interface: id,
                hop: 0,
            });
            let outcome = reassembler.push(
                part,
                HEADER_LEN,
                vrf,
                view.now_ns,
                &mut out.cache,
                &self.pools,
            );
            match outcome {
                Outcome::Held => {}
                Outcome::Whole(packet) => {
                    self.counters.reassembled.add(1);
                    // There is room: each took one out.
                    if let Err(packet) = burst.push(packet) {
                        out.drop_one(self.reasons.no_buffer, packet);
                    }
                }
                Outcome::Dropped(_, packet) => {
                    out.drop_one(self.reasons.reassembly_refused, packet);
                }
            }
        }
        if !burst.is_empty() {
            self.again(view, id, whole, burst, out);
        }
        true
    }

    /// Ends datagrams whose fragments did not come in time.
    pub(super) fn expire(&mut self, view: View<'_>, out: &mut Egress) {
        let Some(reassembler) = &mut self.features.reassembler else {
            return;
        };
        let mut first = Burst::new();
        reassembler.expire(view.now_ns, EXPIRY_BUDGET, &mut out.cache, &mut first);
        for packet in first.drain() {
            // RFC 792, RFC 8200 4.5: the sender is told, if the first fragment came.
            let Punt { interface, .. } = packet.user();
            let complaint = Complaint::ReassemblyExceeded;
            self.complain(view, interface, &packet, complaint, out);
            out.drop_one(self.reasons.reassembly_timeout, packet);
        }
    }

    /// Which of `live` are within the interface's rate.
    fn police(&mut self, view: View<'_>, id: InterfaceId, mut live: Mask) -> Mask {
        let policer = self.features.policers.get_mut(usize::from(id.0));
        let Some((_, meter)) = policer.and_then(Option::as_mut) else {
            return live;
        };
        for index in ones(live) {
            let bytes = self.parsed.end[index] - HEADER_LEN as u32;
            if !meter.passes(view.now_ns, bytes) {
                self.fates[index] = Fate::Drop(self.reasons.policed);
                live &= !(1 << index);
            }
        }
        live
    }

    /// Which of `live` a list permits.
    fn permit(
        &mut self,
        list: &AccessList,
        vlan: Option<u16>,
        denied: DropId,
        mut live: Mask,
        burst: &Burst,
    ) -> Mask {
        let tiny = self.fill_keys(vlan, live, burst);
        for index in ones(tiny) {
            self.fates[index] = Fate::Drop(self.reasons.tiny_fragment);
        }
        live &= !tiny;
        let Features { keys4, keys6, .. } = &self.features;
        let class = &self.parsed.class;
        let refused = refused(&list.v4, &keys4[..], live & class.v4)
            | refused(&list.v6, &keys6[..], live & class.v6);
        for index in ones(refused) {
            self.fates[index] = Fate::Drop(denied);
        }
        for index in ones(live) {
            let says = if refused >> index & 1 != 0 {
                DENY
            } else {
                PERMIT
            };
            self.note(index, Stage::Acl, || {
                let verb = if says == PERMIT { "permits" } else { "denies" };
                format!("list {} {verb}", list.name)
            });
        }
        live & !refused
    }

    /// Fills in the keys that lists look at, each at its place. Returns the packets that no list can
    /// judge: first fragments, and broken packets, without the header that rules ask for.
    fn fill_keys(&mut self, vlan: Option<u16>, live: Mask, burst: &Burst) -> Mask {
        let vlan = vlan.map_or(0, |number| number | TAGGED);
        let mut tiny = 0;
        for index in ones(live) {
            let packet = &burst.as_packets()[index];
            let end = self.parsed.end[index] as usize;
            let is_tiny = if self.parsed.class.v4 >> index & 1 != 0 {
                let key = self.parsed.keys4[index];
                let ends = ([u32::from(key.src())], [u32::from(key.dst())]);
                let filled = fill(packet, end, ends, key.protocol());
                filled.map(|key| self.features.keys4[index] = PacketKey { vlan, ..key })
            } else {
                let key = self.parsed.keys6[index];
                let words = linerate_tables::acl::words6;
                let ends = (words(key.src()), words(key.dst()));
                let filled = fill(packet, end, ends, key.protocol());
                filled.map(|key| self.features.keys6[index] = PacketKey { vlan, ..key })
            }
            .is_none();
            tiny |= Mask::from(is_tiny) << index;
        }
        tiny
    }

    /// Which of `live` the lists of the interfaces permit that they leave by.
    #[cold]
    pub(super) fn permit_out(&mut self, view: View<'_>, mut live: Mask, burst: &Burst) -> Mask {
        let mut asked: Mask = 0;
        let mut interfaces = [0_u16; Burst::CAPACITY];
        for index in ones(live & !self.marks.to_group) {
            let (_, hop) = self.hop(view, index, &burst.as_packets()[index]);
            // Only what is forwarded: the rest has no interface to leave by, or stays here.
            use super::hops::Action::{Forward, Glean, Resolve};
            let leaves = matches!(hop.action, Forward | Resolve | Glean);
            let Some(id) = hop.interface.get().filter(|_| leaves) else {
                continue;
            };
            let face = self.faces.get(usize::from(id.0));
            if face.is_some_and(|face| face.has_acl_out) {
                interfaces[index] = id.0;
                asked |= 1 << index;
            }
        }
        while asked != 0 {
            let id = interfaces[asked.trailing_zeros() as usize];
            let mut mask = 0;
            for index in ones(asked) {
                mask |= Mask::from(interfaces[index] == id) << index;
            }
            asked &= !mask;
            let interface = &view.settings.interfaces[usize::from(id)];
            if let Some(at) = interface.acl_out.map(usize::from)
                && let Some(list) = view.settings.acls.get(at)
            {
                let denied = self.features.denied_out[at];
                let permitted = self.permit(list, interface.vlan, denied, mask, burst);
                live &= !mask | permitted;
            }
        }
        live
    }
}

/// Which of `mask` a list denies.
fn refused<const W: usize>(list: &Acl<W>, keys: &[PacketKey<W>], mask: Mask) -> Mask {
    if mask == 0 {
        return 0;
    }
    let mut packed = [keys[0]; Burst::CAPACITY];
    let mut values = [PERMIT; Burst::CAPACITY];
    let mut count = 0;
    for index in ones(mask) {
        packed[count] = keys[index];
        count += 1;
    }
    list.classify(&packed[..count], &mut values[..count]);
    let mut refused = 0;
    for (index, value) in ones(mask).zip(&values[..count]) {
        refused |= Mask::from(*value == DENY) << index;
    }
    refused
}

/// What lists ask of a packet without its tag: as `PacketKey::of`, but what the parser found is not
/// looked for again; the packet ends at byte `end`. `None` where there should be ports, or an ICMP type, and are none (RFC 1858 3,
/// RFC 3128).
fn fill<const W: usize>(
    packet: &Packet,
    end: usize,
    (src, dst): ([u32; W], [u32; W]),
    protocol: u8,
) -> Option<PacketKey<W>> {
    let frame = packet.data();
    let l4 = usize::from(packet.meta().l4_offset);
    let traffic_class = match W {
        1 => frame[HEADER_LEN + 1],
        _ => frame[HEADER_LEN] << 4 | frame[HEADER_LEN + 1] >> 4,
    };
    let mut key = PacketKey::tuple(src, dst, (0, 0), protocol);
    key.length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
    key.meta |= u32::from(traffic_class >> 2) << 16;
    let fragment = fragment::<W>(frame, l4)?;
    let has_upper = matches!(
        protocol,
        protocol::TCP | protocol::UDP | protocol::SCTP | protocol::ICMP | protocol::ICMPV6
    );
    match fragment {
        Fragment::Later => {
            key.meta = key.meta & !(HAS_PORTS | HAS_ICMP) | FRAGMENT | LATER;
            key.ports = 0;
            // RFC 1858 3.2.2, RFC 3128: a TCP header that begins behind its first 8 bytes hides its
            // flags from whoever judges the first fragment.
            let offset = u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff;
            return (W != 1 || protocol != protocol::TCP || offset != 1).then_some(key);
        }
        Fragment::First => key.meta |= FRAGMENT,
        Fragment::No => {}
    }
    if !has_upper {
        return Some(key);
    }
    // Keys of fragments have no ports: they are read here.
    let upper = frame.get(l4..end).filter(|_| l4 != 0)?;
    let is_tcp = protocol == protocol::TCP;
    let least = match key.meta & HAS_ICMP {
        0 if is_tcp => 14,
        _ => 4,
    };
    let upper = upper.get(..least)?;
    let two = |at: usize| u32::from(u16::from_be_bytes([upper[at], upper[at + 1]]));
    key.ports = match key.meta & (HAS_PORTS | HAS_ICMP) {
        0 => 0,
        HAS_ICMP => u32::from(upper[0]) | u32::from(upper[1]) << 16,
        _ => two(0) | two(2) << 16,
    };
    if is_tcp {
        key.meta |= u32::from(upper[13]) << 8;
    }
    Some(key)
}

/// Which part of a datagram an untagged frame carries. `None` where the extension headers cannot be
/// walked.
fn fragment<const W: usize>(frame: &[u8], l4: usize) -> Option<Fragment> {
    if W != 1 {
        let ip = Ipv6::new_checked(&frame[HEADER_LEN..]).ok()?;
        // The parser gives no upper layer to what is no first fragment.
        return Some(match (ip.upper_layer().ok()?.is_fragment, l4) {
            (false, _) => Fragment::No,
            (true, 0) => Fragment::Later,
            (true, _) => Fragment::First,
        });
    }
    Some(match u16::from_be_bytes([frame[20], frame[21]]) & 0x3fff {
        0 => Fragment::No,
        0x2000 => Fragment::First,
        _ => Fragment::Later,
    })
}
