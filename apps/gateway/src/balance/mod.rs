//! Load balancing: virtual services, each flow of which goes to one of several backends.
//!
//! A service is an address, a protocol and ports. The first packet of a flow chooses a backend by
//! Maglev's table ([`linerate_tables::maglev`]) of those that are up; from then on the flow says
//! which it is, so connections stay where they are when backends come, go, or change their weight.
//!
//! | file | what |
//! |---|---|
//! | [`stanza`] | `[[balancer]]` of the file |
//! | [`tables`] | what workers choose by: pure, exchanged as a whole |
//! | [`encapsulate`] | IP in IP and GUE, for backends that answer clients themselves |
//! | [`one_way`] | tracking of flows whose answers may go another way |
//! | [`board`] | which backends are up, of all workers: control's |
//! | [`check`] | asks backends, over TCP and HTTP |
//!
//! Packets are written where flows are: `stages/flows/balanced.rs`.

pub mod board;
pub mod check;
pub mod encapsulate;
pub mod one_way;
pub mod show;
pub mod stanza;
pub mod tables;

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use linerate_control::config::words;

use crate::dispatch::{Marked, Marks};
use crate::nat::{Endpoint, Protocol};

pub use board::Board;
pub use check::{Check, Kind};
pub use tables::{Chosen, Tables};

/// All services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// In the order of the file.
    pub services: Vec<Service>,
}

/// `[[balancer]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name in output.
    pub name: String,
    /// The address that clients know.
    pub address: IpAddr,
    /// IP protocol: TCP or UDP.
    pub protocol: u8,
    /// The ports that clients know.
    pub ports: RangeInclusive<u16>,
    /// How packets get to backends.
    pub form: Form,
    /// Whether all flows of a client go to one backend.
    pub by_source: bool,
    /// How backends are asked whether they are up; without, they are.
    pub check: Option<Check>,
    /// In the order of the file.
    pub backends: Vec<Backend>,
}

/// How packets get to a service's backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Their destination becomes the backend.
    Nat,
    /// Their source becomes an address of this pool, too.
    FullNat(u16),
    /// They are put into IP packets from this address (RFC 2003, RFC 2473, RFC 4213), and the
    /// backend answers the client itself.
    Ipip(IpAddr),
    /// The same in UDP (draft-ietf-intarea-gue-09).
    Gue(IpAddr),
}

impl Form {
    /// Its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nat => "nat",
            Self::FullNat(_) => "fullnat",
            Self::Ipip(_) => "ipip",
            Self::Gue(_) => "gue",
        }
    }

    /// Whether backends answer clients themselves.
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::Ipip(_) | Self::Gue(_))
    }
}

/// `[[balancer.backend]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Where it is.
    pub address: IpAddr,
    /// The port that the service's becomes; `None`: it stays.
    pub port: Option<u16>,
    /// How many flows it gets, relative to the others; 0: no new ones.
    pub weight: u32,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => Endpoint::new(self.address, port).fmt(f),
            None => self.address.fmt(f),
        }
    }
}

impl Service {
    /// What makes it the same service in another file.
    fn is_as(&self, other: &Self) -> bool {
        (&self.name, self.address, self.protocol, &self.ports)
            == (&other.name, other.address, other.protocol, &other.ports)
            && self.form.is_direct() == other.form.is_direct()
    }

    /// The port at which a backend is asked.
    fn check_port(&self, backend: &Backend) -> u16 {
        let own = self.check.as_ref().and_then(|check| check.port);
        own.or(backend.port).unwrap_or(*self.ports.start())
    }

    /// `198.51.100.80:80 tcp`
    pub fn place(&self) -> String {
        let name = words::protocol_name(self.protocol);
        let (first, last) = (*self.ports.start(), *self.ports.end());
        let place = Endpoint::new(self.address, first);
        match first == last {
            true => format!("{place} {name}"),
            false => format!("{place}-{last} {name}"),
        }
    }
}

impl Config {
    /// Whether packets of any service are translated.
    pub fn translates(&self) -> bool {
        self.services
            .iter()
            .any(|service| !service.form.is_direct())
    }

    /// What the services are to dispatch. Clients, which are in both directions, say the bucket. A
    /// service whose backends answer by themselves answers by its own address: as a server does.
    pub fn mark(&self, marked: &mut Marked) {
        for service in &self.services {
            let of = Protocol::of(service.protocol);
            let ports = service.ports.clone();
            if service.form.is_direct() {
                marked.ports(service.address, (of, ports), Marks::Server);
                continue;
            }
            marked.ports(service.address, (of, ports.clone()), Marks::Service);
            for backend in &service.backends {
                let inside = backend.port.map_or(ports.clone(), |port| port..=port);
                marked.ports(backend.address, (of, inside), Marks::Server);
            }
        }
    }
}

/// Services, and what workers know their backends by.
#[derive(Debug, Default)]
struct Numbered {
    config: Config,
    /// By service: never 0.
    numbers: Vec<Vec<u16>>,
}

impl Numbered {
    /// Each service with the numbers of its backends.
    fn services(&self) -> impl Iterator<Item = (&Service, &[u16])> + Clone {
        let numbers = self.numbers.iter().map(Vec::as_slice);
        self.config.services.iter().zip(numbers)
    }

    /// Each backend with its service and its number.
    fn backends(&self) -> impl Iterator<Item = (&Service, &Backend, u16)> {
        self.services().flat_map(|(service, numbers)| {
            let backends = service.backends.iter().zip(numbers);
            backends.map(move |(backend, number)| (service, backend, *number))
        })
    }

    /// One more than the highest number; 0 where there is none.
    fn end(&self) -> usize {
        let most = self.numbers.iter().flatten().max();
        most.map_or(0, |most| usize::from(*most) + 1)
    }
}

/// The services of a configuration, for all workers.
#[derive(Debug, Default)]
pub struct Balance {
    known: Arc<Numbered>,
    /// The last number that was given.
    last: u16,
    board: Arc<Board>,
}

impl Balance {
    /// That of a configuration; backends that `old` has keep their number and their standing.
    pub fn new(config: &Config, old: Option<&Arc<Self>>) -> Arc<Self> {
        if let Some(old) = old.filter(|old| old.known.config == *config) {
            return old.clone();
        }
        if config.services.is_empty() {
            return Arc::new(Self {
                known: Arc::default(),
                last: old.map_or(0, |old| old.last),
                board: Arc::default(),
            });
        }
        let kept = |service: &Service, backend: &Backend| {
            let mut services = old?.known.services();
            let (before, numbers) = services.find(|(before, _)| before.is_as(service))?;
            let is_it = |one: &Backend| (one.address, one.port) == (backend.address, backend.port);
            Some(numbers[before.backends.iter().position(is_it)?])
        };
        let each = config.services.iter();
        let kept = each.map(|service| {
            let backends = service.backends.iter();
            backends.map(|backend| kept(service, backend)).collect()
        });
        let kept: Vec<Vec<Option<u16>>> = kept.collect();
        // Round and round, so that a number means nobody for long before it means another: flows
        // know their backend by it.
        let mut last = old.map_or(0, |old| old.last);
        let taken: Vec<u16> = kept.iter().flatten().flatten().copied().collect();
        let mut next = || loop {
            last = last.checked_add(1).unwrap_or(1);
            if !taken.contains(&last) {
                return last;
            }
        };
        let numbers = kept.iter().map(|all| {
            let numbers = all.iter().map(|one| one.unwrap_or_else(&mut next));
            numbers.collect()
        });
        let known = Arc::new(Numbered {
            numbers: numbers.collect(),
            config: config.clone(),
        });
        let board = Board::new(&known, old.map(|old| &*old.board));
        Arc::new(Self { known, last, board })
    }

    /// Which are up, and the tables of that.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The tables when all backends but that of `address` are up.
    #[cfg(test)]
    pub fn tables_without(&self, address: IpAddr) -> Arc<Tables> {
        let backends = self.known.backends();
        let is_it = backends.filter(|(_, backend, _)| backend.address == address);
        let down: Vec<u16> = is_it.map(|(.., number)| number).collect();
        let is_up = |number| !down.contains(&number);
        Arc::new(Tables::new(&self.known, is_up, None))
    }

    /// What the file says.
    pub fn config(&self) -> &Config {
        &self.known.config
    }

    /// Each backend with its service and its number.
    pub fn each(&self) -> impl Iterator<Item = (&Service, &Backend, u16)> {
        self.known.backends()
    }
}

impl Drop for Balance {
    fn drop(&mut self) {
        self.board.end();
    }
}

#[cfg(test)]
mod tests;
