//! `classify`: which host a connection asks for, by its first HTTP/1 request or TLS ClientHello.
//!
//! It looks at what the side says that has begun, until it knows: most often that is one packet.
//! What does not fit into a segment is put together from segments in their order, in bounded room;
//! after `packets` segments with payload it gives up, as it does where another flow has taken the
//! room. The host stands in `linerate ctl show flows`. One in `deny_hosts`, or below one, is
//! denied: the packet that says its name is dropped, and all others of the flow. It is no border: a
//! client that wants to can hide the name (segments out of order, an encrypted ClientHello).

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use linerate_tables::TableError;

use super::given::{Carried, FlowName};
use super::host::{Host, Look};
use super::{Given, Kind, Make, One, Outcome, Service, http, tls};

/// Flows whose host is remembered, 280 bytes each: those that begin later take the places.
const HOSTS: usize = 8192;
/// Connections whose first bytes are put together at once.
const STARTS: usize = 256;
/// First bytes of a connection that are put together: a ClientHello with post-quantum keys has
/// about 2000.
const START_BYTES: usize = 4096;

pub(super) const KIND: Kind = Kind {
    name: "classify",
    is_named: false,
    directions: [true, false],
    reads_payload: true,
    read: |section| {
        let mut config = Config {
            packets: 8,
            deny: HashSet::new(),
            log: false,
        };
        if let Some(section) = section {
            if let Some(at) = section.number::<u8>("packets", 1..=64) {
                config.packets = at.value;
            }
            let legal = "a list of names such as [\"ads.example\"]: those, and all below them";
            let names = section.texts("deny_hosts", legal, |name| {
                let host = Host::of(name.as_bytes()).filter(|_| !name.starts_with('.'));
                host.ok_or_else(|| format!("`{name}` is no name of a host"))
            });
            config.deny = names.iter().map(|at| at.value.bytes().into()).collect();
            config.log = section.switch("log").is_some_and(|at| at.value);
        }
        Arc::new(config)
    },
};

#[derive(Clone, Debug, PartialEq)]
struct Config {
    packets: u8,
    deny: HashSet<Box<[u8]>>,
    log: bool,
}

impl Make for Config {
    fn make(&self) -> Result<Box<dyn Service>, TableError> {
        let mut starts = Vec::with_capacity(STARTS);
        starts.resize_with(STARTS, || Start {
            flow: None,
            next: 0,
            len: 0,
            packets: 0,
            bytes: [0; START_BYTES],
        });
        Ok(Box::new(Classify {
            config: self.clone(),
            hosts: vec![None; HOSTS],
            starts,
        }))
    }

    fn text(&self) -> String {
        let denied = match self.deny.len() {
            0 => String::new(),
            count => format!(", hosts denied: {count}"),
        };
        format!("host of the first {} segments{denied}", self.packets)
    }
}

/// The service.
pub struct Classify {
    config: Config,
    /// By place of the flow: what it asks for.
    hosts: Vec<Option<(FlowName, Host)>>,
    /// By place of the flow.
    starts: Vec<Start>,
}

/// The first bytes of a connection, so far.
struct Start {
    flow: Option<FlowName>,
    /// The number of the byte behind them.
    next: u32,
    len: usize,
    /// Segments with payload that have come.
    packets: u8,
    bytes: [u8; START_BYTES],
}

fn place(flow: FlowName, places: usize) -> usize {
    // The two families have tables of their own: one counts from the end.
    let index = flow.0.index() % places;
    if flow.1 { index } else { places - 1 - index }
}

impl Classify {
    /// The host that a flow asks for, if that is known and remembered.
    pub fn host(&self, flow: FlowName) -> Option<&Host> {
        let known = self.hosts[place(flow, HOSTS)].as_ref();
        known.filter(|known| known.0 == flow).map(|known| &known.1)
    }

    fn is_denied(&self, host: &Host) -> bool {
        !self.config.deny.is_empty() && host.and_above().any(|name| self.config.deny.contains(name))
    }

    /// What there is to say of a flow of this host.
    fn judge(&self, one: &mut One<'_, '_>, host: &Host) -> Outcome {
        if !self.is_denied(host) {
            one.note(|| format!("asks for {host}"));
            return Outcome::Done;
        }
        one.note(|| format!("asks for {host}, which is denied"));
        if self.config.log {
            one.log(0, Some(host));
        }
        Outcome::Deny
    }

    fn serve(&mut self, one: &mut One<'_, '_>) -> Outcome {
        if !one.is_tcp() {
            return Outcome::Done;
        }
        let flow = one.flow();
        // It may have been classified before a reload, or earlier in this burst.
        if let Some(host) = self.host(flow).copied() {
            return self.judge(one, &host);
        }
        let Some(Carried {
            seq: Some(seq),
            bytes,
        }) = one.carried()
        else {
            return Outcome::Done;
        };
        if bytes.is_empty() {
            return Outcome::Keep;
        }
        let at = place(flow, STARTS);
        let start = &mut self.starts[at];
        let look = match start.flow == Some(flow) {
            true => start.go_on(seq, bytes, self.config.packets),
            false => {
                let look = look(bytes);
                if look == Look::More {
                    start.begin(flow, seq, bytes);
                }
                look
            }
        };
        if look == Look::More && self.config.packets > 1 {
            return Outcome::Keep;
        }
        let start = &mut self.starts[at];
        start.flow.take_if(|known| *known == flow);
        match look {
            Look::Found(host) => {
                self.hosts[place(flow, HOSTS)] = Some((flow, host));
                self.judge(one, &host)
            }
            _ => Outcome::Done,
        }
    }
}

/// Looks at the first bytes of a connection, of either protocol.
pub fn look(bytes: &[u8]) -> Look {
    match bytes.first() {
        None => Look::More,
        Some(22) => tls::host(bytes),
        Some(_) => http::host(bytes),
    }
}

impl Start {
    fn begin(&mut self, flow: FlowName, seq: u32, bytes: &[u8]) {
        (self.flow, self.len, self.packets) = (Some(flow), 0, 1);
        self.add(seq, bytes);
    }

    fn add(&mut self, seq: u32, bytes: &[u8]) {
        let room = START_BYTES - self.len;
        let len = bytes.len().min(room);
        self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
        self.next = seq.wrapping_add(bytes.len() as u32);
    }

    /// Another segment with payload.
    fn go_on(&mut self, seq: u32, bytes: &[u8], most: u8) -> Look {
        self.packets = self.packets.saturating_add(1);
        // How much of it was there before: all of what is repeated, nothing behind a gap.
        let known = self.next.wrapping_sub(seq) as usize;
        let new = bytes.get(known..).filter(|new| !new.is_empty());
        let look = match new {
            Some(new) => {
                self.add(self.next, new);
                look(&self.bytes[..self.len])
            }
            None => Look::More,
        };
        match look {
            Look::More if self.packets >= most || self.len == START_BYTES => Look::Nameless,
            look => look,
        }
    }
}

impl Service for Classify {
    fn run(&mut self, given: &mut Given<'_, '_>) {
        given.each(|one| self.serve(one));
    }

    fn inherit(&mut self, old: &mut dyn Any) {
        if let Some(old) = old.downcast_mut::<Self>() {
            std::mem::swap(&mut self.hosts, &mut old.hosts);
            std::mem::swap(&mut self.starts, &mut old.starts);
        }
    }
}
