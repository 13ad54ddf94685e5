//! The forwarding path, a burst at a time, run to completion: [`path`] lists its stages in the
//! order in which packets pass.
//!
//! The lookup gives each packet the number of a [`NextHop`]: addresses of the next frame, and an
//! exit. An exit is a port, or beyond all ports a reason to drop, so that one division of the burst
//! by exits does both.

use linerate_core::env::Isa;
use linerate_core::packet::Burst;
use linerate_core::run::{
    BurstContext, DropId, Egress, Named, Stage, StageExt, Then, WithContext, named,
};
use linerate_tables::parse::{Mask, Parsed, Parser};
use linerate_tables::rewrite::{self, Macs, Scatter};

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
pub struct NextHop {
    macs: Macs,
    exit: u32,
}

impl NextHop {
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
const NO_ROUTE: NextHop = NextHop::nowhere(Reason::NoRoute);

/// What the stages tell each other of a burst, by position.
pub struct Context {
    parsed: Parsed,
    /// Those to be forwarded, of either family.
    v4: Mask,
    v6: Mask,
    /// The number of the next hop of each.
    numbers: [u32; Burst::CAPACITY],
    exits: [u32; Burst::CAPACITY],
}

impl BurstContext for Context {}

/// The path of one worker.
pub type Path = WithContext<Context, Chain>;

type Chain = Then<Then<Then<Named<Parse>, Named<Find>>, Named<Rewrite>>, Named<Transmit>>;

/// The path of one worker: it sends by `hops`, whose numbers `lookup` gives.
pub fn path(lookup: Box<dyn Lookup>, hops: &[NextHop], egress: &mut Egress) -> Path {
    let isa = Isa::detect();
    named("parse", Parse(Parser::new(isa)))
        .then("lookup", Find(lookup))
        .then("rewrite", Rewrite { hops: hops.into() })
        .then(
            "transmit",
            Transmit {
                scatter: Scatter::new(isa),
                drops: NAMES.map(|name| egress.reason(name)),
            },
        )
        .with_context(Context {
            parsed: Parsed::new(),
            v4: 0,
            v6: 0,
            numbers: [0; _],
            exits: [0; _],
        })
}

/// Gives a path other tables, between two bursts. Returns those that it had, to be freed by
/// somebody who has the time.
pub fn exchange(
    path: &mut Path,
    lookup: Box<dyn Lookup>,
    hops: Box<[NextHop]>,
) -> (Box<dyn Lookup>, Box<[NextHop]>) {
    let chain = path.stage_mut().first_mut();
    let rewrite = chain.second_mut().stage_mut();
    let hops = std::mem::replace(&mut rewrite.hops, hops);
    let find = chain.first_mut().second_mut().stage_mut();
    (std::mem::replace(&mut find.0, lookup), hops)
}

/// Reads the headers, and tells which packets are fit to be forwarded.
pub struct Parse(Parser);

impl Stage<Context> for Parse {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context, _: &mut Egress) {
        self.0.parse_network(burst, &mut context.parsed);
        let (class, checks) = (&context.parsed.class, &context.parsed.checks);
        let unfit = checks.ip_bad | checks.expired | class.group;
        (context.v4, context.v6) = (class.v4 & !unfit, class.v6 & !unfit);
    }
}

/// Finds the next hops.
pub struct Find(Box<dyn Lookup>);

impl Stage<Context> for Find {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context, _: &mut Egress) {
        let (v4, v6) = (context.v4, context.v6);
        let numbers = &mut context.numbers;
        self.0.find(burst, &context.parsed, v4, v6, numbers);
    }
}

/// Writes the headers of what is forwarded, and gives everything its exit.
pub struct Rewrite {
    /// By the numbers that lookups give.
    hops: Box<[NextHop]>,
}

impl Stage<Context> for Rewrite {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context, _: &mut Egress) {
        let (v4, v6) = (context.v4, context.v6);
        let (hops, numbers, exits) = (&*self.hops, &context.numbers, &mut context.exits);
        rewrite::forward(burst, v4, v6, |position| {
            let hop = hops.get(numbers[position] as usize).unwrap_or(&NO_ROUTE);
            exits[position] = hop.exit;
            &hop.macs
        });
        let unfit = burst.mask() & !(v4 | v6);
        if unfit != 0 {
            context.refuse(unfit);
        }
    }
}

impl Context {
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

/// Sends or drops by the exits.
pub struct Transmit {
    scatter: Scatter,
    drops: [DropId; NAMES.len()],
}

impl Stage<Context> for Transmit {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context, out: &mut Egress) {
        let (scatter, drops) = (self.scatter, &self.drops);
        scatter.by_value(burst, Mask::MAX, &context.exits, |exit, packets| match exit
            .checked_sub(DROPS)
        {
            None => out.send(exit as u16, packets),
            Some(reason) => out.drop_burst(drops[reason as usize], packets),
        });
    }
}
