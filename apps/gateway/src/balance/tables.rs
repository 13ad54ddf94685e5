//! What workers choose backends by: services by address, a Maglev table for each, backends by
//! number. Made by control whenever a backend goes up or down, and exchanged as a whole.

use std::net::IpAddr;
use std::sync::Arc;

use linerate_tables::maglev::{Backend as Entry, DEFAULT_ENTRIES, Maglev};

use super::{Config, Form, Numbered, Service};
use crate::nat::{Endpoint, Tuple};

/// Where the packets of a flow go, by the number that the flow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The backend.
    pub address: IpAddr,
    /// How packets get there.
    pub form: Form,
}

/// What became of a first packet for a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its tuple as the backend is to see it, as to the destination.
    pub tuple: Tuple,
    /// The backend's address.
    pub address: IpAddr,
    /// Its number.
    pub number: u16,
    /// How packets get there.
    pub form: Form,
    /// Places of service and backend in the file.
    pub place: (usize, usize),
}

impl Chosen {
    /// The pool that the source becomes an address of.
    pub fn pool(&self) -> Option<u16> {
        match self.form {
            Form::FullNat(pool) => Some(pool),
            _ => None,
        }
    }
}

/// No backend of the service is up and has a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBackend;

/// The tables.
#[derive(Debug, Default)]
pub struct Tables {
    known: Arc<Numbered>,
    /// By service; `None` where no backend is up.
    choices: Vec<Option<Arc<Maglev>>>,
    /// Address, protocol, first port, and the service's place: sorted.
    index: Vec<(IpAddr, u8, u16, usize)>,
    /// By number.
    targets: Vec<Option<Target>>,
    /// By number: whether the backend gets new flows, its weight aside.
    ups: Vec<bool>,
}

impl Tables {
    /// Those of numbered backends. `is_up` says by number which get new flows; `before`, of the
    /// same backends, may have some of the tables already.
    pub(super) fn new(
        known: &Arc<Numbered>,
        is_up: impl Fn(u16) -> bool,
        before: Option<&Self>,
    ) -> Self {
        let each = known.services().enumerate();
        let choices = each.map(|(at, (service, numbers))| {
            let entries = entries(service, numbers, &is_up);
            match before.and_then(|before| before.choices.get(at)?.as_ref()) {
                Some(maglev) if maglev.backends() == entries => Some(maglev.clone()),
                // None has a weight: there is nothing to choose from.
                _ => Maglev::new(entries, DEFAULT_ENTRIES, 0).ok().map(Arc::new),
            }
        });
        let choices = choices.collect();
        let mut index: Vec<_> = (known.config.services.iter().enumerate())
            .map(|(at, one)| (one.address, one.protocol, *one.ports.start(), at))
            .collect();
        index.sort_unstable();
        let mut targets = vec![None; known.end()];
        let mut ups = vec![false; known.end()];
        for (service, backend, number) in known.backends() {
            ups[usize::from(number)] = is_up(number);
            targets[usize::from(number)] = Some(Target {
                address: backend.address,
                form: service.form,
            });
        }
        Self {
            known: known.clone(),
            choices,
            index,
            targets,
            ups,
        }
    }

    /// Whether there is no service.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// One more than the highest number.
    pub fn numbers(&self) -> usize {
        self.targets.len()
    }

    /// The backend of that number, if it is one still.
    pub fn target(&self, number: u16) -> Option<&Target> {
        self.targets.get(usize::from(number))?.as_ref()
    }

    /// Whether the backend of that number is one still, and its checks say that it is up.
    pub fn is_up(&self, number: u16) -> bool {
        self.ups.get(usize::from(number)) == Some(&true)
    }

    /// The service that a tuple's destination is, by its place.
    pub fn service(&self, tuple: &Tuple) -> Option<usize> {
        let (address, port) = (tuple.dst.address, tuple.dst.port);
        let key = (address, tuple.protocol, port, usize::MAX);
        let at = self.index.partition_point(|entry| *entry <= key);
        let at = self.index[at.checked_sub(1)?].3;
        let service = &self.known.config.services[at];
        let is_it = (service.address, service.protocol) == (address, tuple.protocol)
            && service.ports.contains(&port);
        is_it.then_some(at)
    }

    /// The backend for a first packet; `None` if it is for no service.
    pub fn choose(&self, tuple: &Tuple) -> Option<Result<Chosen, NoBackend>> {
        let at = self.service(tuple)?;
        let service = &self.known.config.services[at];
        let Some(maglev) = &self.choices[at] else {
            return Some(Err(NoBackend));
        };
        let place = usize::from(maglev.lookup(hash(tuple, service.by_source)));
        let backend = &service.backends[place];
        let becomes = match service.form.is_direct() {
            true => *tuple,
            false => {
                let port = backend.port.unwrap_or(tuple.dst.port);
                tuple.with_dst(Endpoint::new(backend.address, port))
            }
        };
        Some(Ok(Chosen {
            tuple: becomes,
            address: backend.address,
            number: self.known.numbers[at][place],
            form: service.form,
            place: (at, place),
        }))
    }

    /// What the file says of a service.
    pub fn config(&self) -> &Config {
        &self.known.config
    }

    /// The share of new flows that a backend gets, by places.
    pub fn share(&self, service: usize, backend: usize) -> f64 {
        let Some(Some(maglev)) = self.choices.get(service) else {
            return 0.0;
        };
        let shares = maglev.shares();
        let entries = shares.get(backend).map_or(0, |share| share.entries);
        f64::from(entries) / maglev.len() as f64
    }
}

/// What Maglev is to know of a service's backends.
fn entries(service: &Service, numbers: &[u16], is_up: impl Fn(u16) -> bool) -> Vec<Entry> {
    let backends = service.backends.iter().zip(numbers);
    let entry = |(backend, number): (&super::Backend, &u16)| Entry {
        name: backend.to_string(),
        weight: if is_up(*number) { backend.weight } else { 0 },
    };
    backends.map(entry).collect()
}

/// The hash of a flow, the same in every gateway: two with one file choose alike, which is what
/// Maglev is for. FNV-1a (draft-eastlake-fnv), mixed so that the high bits are even (MurmurHash3's
/// finalizer).
fn hash(tuple: &Tuple, by_source: bool) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    let mut address = |address: IpAddr| match address {
        IpAddr::V4(v4) => add(&v4.octets()),
        IpAddr::V6(v6) => add(&v6.octets()),
    };
    address(tuple.src.address);
    if !by_source {
        address(tuple.dst.address);
        add(&tuple.src.port.to_be_bytes());
        add(&tuple.dst.port.to_be_bytes());
        add(&[tuple.protocol]);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((hash ^ hash >> 33) >> 32) as u32
}
