//! The forwarding step: parse, validate, look up, rewrite, send; a burst at a time, run to completion.
//!
//! A lookup gives each packet the number of a [`Way`]: addresses of the next frame, and an exit. An
//! exit is a port, or beyond all ports a reason to drop, so that one division of the burst by exits
//! does both.

use linerate_core::env::Isa;
use linerate_core::packet::Burst;
use linerate_core::run::{DropId, Egress, Stage};
use linerate_tables::parse::{Mask, Parsed, Parser};
use linerate_tables::rewrite::{self, Divider, Macs};

use super::lookup::Lookup;

/// Exits from here on are drops.
const DROPS: u32 = 1 << 16;

/// Why packets go nowhere: the exits beyond the ports, in this order.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Reason {
    /// Not what it claims to be, up to the network header (RFC 1812 5.2.2 (1), (3), (4), (5)).
    Malformed,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// To a group of the link layer (RFC 1812 5.3.4).
    Group,
    /// RFC 1812 5.2.2 (2).
    Checksum,
    /// RFC 1812 5.3.1, RFC 8200 3.
    Expired,
    /// No entry of the table leads anywhere.
    NoRoute,
    /// A rule of the access list says so.
    Denied,
}

/// Their names in the statistics.
const NAMES: [&str; 7] = [
    "malformed",
    "not_ip",
    "link_group",
    "bad_checksum",
    "ttl_expired",
    "no_route",
    "acl_deny",
];

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Way {
    macs: Macs,
    exit: u32,
}

impl Way {
    /// Out of a port, with these addresses.
    pub const fn out(port: u16, macs: Macs) -> Self {
        Self {
            macs,
            exit: port as u32,
        }
    }

    /// What an access list denies.
    pub const fn denied() -> Self {
        Self::nowhere(Reason::Denied)
    }

    const fn nowhere(reason: Reason) -> Self {
        Self {
            macs: Macs::new(
                linerate_wire::MacAddr([0; 6]),
                linerate_wire::MacAddr([0; 6]),
            ),
            exit: DROPS + reason as u32,
        }
    }
}

/// What packets get that no entry leads anywhere.
const NO_ROUTE: Way = Way::nowhere(Reason::NoRoute);

/// The stage of one worker.
pub struct L3fwd<L> {
    parser: Parser,
    parsed: Parsed,
    lookup: L,
    /// By the numbers that lookups give.
    ways: Box<[Way]>,
    divider: Divider,
    /// Of this burst, by position: ways, and exits.
    numbers: [u32; Burst::CAPACITY],
    exits: [u32; Burst::CAPACITY],
    drops: [DropId; NAMES.len()],
}

impl<L: Lookup> L3fwd<L> {
    /// A stage that sends by `ways`, whose numbers `lookup` gives.
    pub fn new(lookup: L, ways: &[Way], egress: &mut Egress) -> Self {
        let isa = Isa::detect();
        Self {
            parser: Parser::new(isa),
            parsed: Parsed::new(),
            lookup,
            ways: ways.into(),
            divider: Divider::new(isa),
            numbers: [0; _],
            exits: [0; _],
            drops: NAMES.map(|name| egress.reason(name)),
        }
    }

    /// Gives packets that are not to be forwarded their exits: the first reason in the order of
    /// RFC 1812 5.2.2.
    #[cold]
    fn refuse(&mut self, mut unfit: Mask) {
        let (class, checks) = (&self.parsed.class, &self.parsed.checks);
        while unfit != 0 {
            let position = unfit.trailing_zeros() as usize;
            let is = |mask: Mask| mask >> position & 1 != 0;
            let reason = match () {
                () if is(class.malformed) => Reason::Malformed,
                () if is(class.other) => Reason::NotIp,
                () if is(class.group) => Reason::Group,
                () if is(checks.ip_bad) => Reason::Checksum,
                () => Reason::Expired,
            };
            self.exits[position] = DROPS + reason as u32;
            unfit &= unfit - 1;
        }
    }
}

impl<L: Lookup> Stage for L3fwd<L> {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, out: &mut Egress) {
        self.parser.parse_network(burst, &mut self.parsed);
        let (class, checks) = (&self.parsed.class, &self.parsed.checks);
        let unfit = checks.ip_bad | checks.expired | class.group;
        let (v4, v6) = (class.v4 & !unfit, class.v6 & !unfit);
        self.lookup
            .find(burst, &self.parsed, v4, v6, &mut self.numbers);

        let (ways, numbers, exits) = (&*self.ways, &self.numbers, &mut self.exits);
        rewrite::forward(burst, v4, v6, |position| {
            let way = ways.get(numbers[position] as usize).unwrap_or(&NO_ROUTE);
            exits[position] = way.exit;
            &way.macs
        });
        let unfit = burst.mask() & !(v4 | v6);
        if unfit != 0 {
            self.refuse(unfit);
        }
        let (divider, drops) = (self.divider, &self.drops);
        divider.divide(burst, Mask::MAX, &self.exits, |exit, packets| {
            match exit.checked_sub(DROPS) {
                None => out.send(exit as u16, packets),
                Some(reason) => out.drop_burst(drops[reason as usize], packets),
            }
        });
    }
}
