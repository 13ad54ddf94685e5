//! What the forwarding tables lead to: one [`Hop`] for each next hop or other action.
//!
//! The longest match of a packet's destination is the number of a hop. Control owns the numbers and
//! publishes changes ([`linerate_core::publish`]); workers read. A hop that routes still lead to is
//! never reused: routes are removed first, and the hop one publication later.

use linerate_core::MemError;
use linerate_core::publish::Apply;
use linerate_tables::rewrite::Macs;
use linerate_wire::MacAddr;

use crate::model::InterfaceId;

/// Buckets of a group: a flow's hash picks one, each leads to a hop (resilient hashing: when a
/// member goes, only its buckets change; RFC 2992 describes the cost of plain hashing).
pub const BUCKETS: usize = 64;

/// What is done with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// Dropped without an answer: `blackhole` routes, and unused hops.
    #[default]
    Blackhole,
    /// Sent to the MAC address of the hop.
    Forward,
    /// To be sent to the gateway of the hop, whose MAC address is not known yet.
    Resolve,
    /// The destination itself is a neighbour on the hop's interface, its MAC address not known yet.
    Glean,
    /// For the router itself.
    Local,
    /// Handed unchanged to the kernel by the host interface of the input interface: the kernel
    /// forwards it by a virtual device, and decrements its time to live.
    Host,
    /// Dropped with ICMP network or host unreachable: `unreachable` routes.
    Unreachable,
    /// Dropped with ICMP administratively prohibited: `prohibit` routes.
    Prohibit,
    /// One of the hops of a group.
    Multipath,
    /// Not to be forwarded (RFC 1812 5.3.7): loopback, class E and the like. Dropped without an
    /// answer.
    Martian,
    /// Multicast: for the router's own listeners if they are on the interface, never forwarded.
    Multicast,
    /// A directed broadcast to an attached network (RFC 1812 5.3.5.2): for the router itself if it
    /// came in there, never forwarded.
    Broadcast,
}

/// Where a packet goes, one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Hop {
    /// The addresses of the frame.
    pub macs: Macs,
    /// Tag control information of the frame's tag; 0: no tag.
    pub vlan: u16,
    /// Largest packet, in bytes from the IP header on.
    pub mtu: u16,
    /// The port that it leaves by.
    pub port: u16,
    /// The interface that it leaves by.
    pub interface: InterfaceIdOrNone,
    /// What is done with packets.
    pub action: Action,
    /// Whether only default routes lead here, which loose reverse path filtering does not accept
    /// (RFC 3704 2.4).
    pub is_default: bool,
    /// Of [`Action::Resolve`] and [`Action::Forward`]: the neighbour's address is `gateway`; an
    /// IPv4 address stands in the last four bytes, mapped (::ffff:a.b.c.d). Of [`Action::Glean`]
    /// unspecified.
    pub gateway: [u8; 16],
    /// Of [`Action::Multipath`]: which group.
    pub group: u32,
}

const _: () = assert!(size_of::<Hop>() == 64);

/// An interface, or none (`u16::MAX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceIdOrNone(u16);

impl InterfaceIdOrNone {
    /// The interface, if there is one.
    pub fn get(self) -> Option<InterfaceId> {
        (self.0 != u16::MAX).then_some(InterfaceId(self.0))
    }

    /// The interface's number; `u16::MAX`, which no interface has, for none.
    #[inline(always)]
    pub(super) fn number(self) -> u32 {
        self.0.into()
    }
}

impl Default for InterfaceIdOrNone {
    fn default() -> Self {
        Self(u16::MAX)
    }
}

impl From<InterfaceId> for InterfaceIdOrNone {
    fn from(id: InterfaceId) -> Self {
        Self(id.0)
    }
}

/// The hops of one group, by bucket.
pub type Group = [u32; BUCKETS];

/// All hops and groups by number.
#[derive(Clone, Debug)]
pub struct HopTable {
    hops: Vec<Hop>,
    groups: Vec<Group>,
    /// Odd factor of the flow hash, from the seed.
    spread: u32,
}

/// A change of the table; numbers beyond its end make it longer.
#[derive(Clone, Debug)]
pub enum HopChange {
    /// Sets the hop of this number.
    Set(u32, Hop),
    /// Sets the group of this number.
    SetGroup(u32, Box<Group>),
}

impl HopTable {
    /// An empty table. `seed` has to differ between routers: if two in a row hash alike, the second
    /// gets from the first only flows that it sends by one and the same member, and leaves the
    /// others unused.
    pub fn new(seed: u64) -> Self {
        Self {
            hops: Vec::new(),
            groups: Vec::new(),
            spread: (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1,
        }
    }

    /// The hop of that number; a blackhole where there is none.
    #[inline(always)]
    pub fn get(&self, hop: u32) -> &Hop {
        self.all().get(hop)
    }

    /// All hops, for a loop that looks many of them up.
    #[inline(always)]
    pub(super) fn all(&self) -> Hops<'_> {
        Hops(&self.hops)
    }

    /// The hops of a group, by bucket; none where there is no such group.
    pub fn members(&self, group: u32) -> &[u32] {
        self.groups.get(group as usize).map_or(&[], |group| group)
    }

    /// The hop of a group that a flow's hash leads to.
    #[inline]
    pub fn member(&self, group: u32, hash: u32) -> u32 {
        // The highest bits depend on all others after the multiplication. Adding or xoring a seed
        // would only rename the same sets of flows.
        const SHIFT: u32 = u32::BITS - BUCKETS.ilog2();
        let bucket = hash.wrapping_mul(self.spread) >> SHIFT;
        self.groups
            .get(group as usize)
            .map_or(u32::MAX, |group| group[bucket as usize])
    }
}

/// The hops of a table: a copy of the slice, so that a loop need not reload its address after each
/// store.
#[derive(Clone, Copy)]
pub(super) struct Hops<'a>(&'a [Hop]);

impl<'a> Hops<'a> {
    /// As [`HopTable::get`].
    #[inline(always)]
    pub(super) fn get(self, hop: u32) -> &'a Hop {
        const NOWHERE: Hop = Hop {
            macs: Macs::new(MacAddr([0; 6]), MacAddr([0; 6])),
            vlan: 0,
            mtu: 0,
            port: 0,
            interface: InterfaceIdOrNone(u16::MAX),
            action: Action::Blackhole,
            is_default: false,
            gateway: [0; 16],
            group: 0,
        };
        self.0.get(hop as usize).unwrap_or(&NOWHERE)
    }
}

impl Apply<HopChange> for HopTable {
    fn apply(&mut self, change: &HopChange) {
        match change {
            HopChange::Set(number, hop) => {
                let number = *number as usize;
                if number >= self.hops.len() {
                    self.hops.resize(number + 1, Hop::default());
                }
                self.hops[number] = *hop;
            }
            HopChange::SetGroup(number, group) => {
                let number = *number as usize;
                if number >= self.groups.len() {
                    self.groups.resize(number + 1, [0; BUCKETS]);
                }
                self.groups[number] = **group;
            }
        }
    }

    fn copy(&self) -> Result<Self, MemError> {
        Ok(self.clone())
    }
}
