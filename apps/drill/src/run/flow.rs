//! Connections as the script numbers them, and as they are on the wire.
//!
//! Sequence numbers of the script count from the initial ones, except in segments with SYN, which
//! have those themselves: `< S. 123:123(0) ack 1`, then `< . 1:1(0) ack 1`. The script plays the
//! remote host, so its initial number is on the wire as written. What the stack under test chooses
//! is translated: its initial sequence number, its time stamps, its port.
//!
//! A script mostly has one connection at a time and names no ports; with ports it can have several.

use super::Config;
use crate::packet::{Segment, TcpOption, flag};
use crate::script::TcpSpec;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// The first port of the remote host, for connections to the stack under test.
const FIRST_REMOTE_PORT: u16 = 50_000;

/// One connection, or a pair of UDP ports.
#[derive(Debug)]
pub(super) struct Flow {
    /// The remote end, which the script plays.
    pub(super) remote: SocketAddr,
    /// The end of the stack under test; port 0 until its first packet is seen.
    pub(super) local: SocketAddr,
    /// The ports that the script writes: remote, local.
    ports: Option<(u16, u16)>,
    /// The initial sequence number of the stack under test: on the wire, in the script.
    local_isn: Option<(u32, u32)>,
    /// That of the remote host, the same in both.
    remote_isn: u32,
    /// The one of a SYN to a connection that exists: it counts if it is answered with a SYN-ACK.
    new_remote_isn: Option<u32>,
    /// The stack under test has acknowledged the remote host's SYN.
    acknowledged: bool,
    /// The next SYN may have another initial sequence number.
    fresh: bool,
    /// By the script's time stamp, the one on the wire.
    stamps: HashMap<u32, u32>,
    /// The first pair of those: script's, wire's.
    first_stamp: Option<(u32, u32)>,
    /// What the stack under test was given to send, by its number in `Written`.
    pub(super) stream: Option<usize>,
}

/// Why an inbound segment cannot be translated.
pub(super) struct UnknownEcho(pub(super) u32);

impl Flow {
    /// A segment of the stack under test in the script's numbers, as far as they are known.
    pub(super) fn shown(&self, segment: &Segment) -> Segment {
        let syn = segment.flags & flag::SYN != 0;
        let remote = if syn { 0 } else { self.remote_isn };
        Segment {
            seq: segment.seq.wrapping_sub(self.offset(syn)),
            ack: segment.ack.wrapping_sub(remote),
            ..segment.clone()
        }
    }

    /// The wire's form of a sequence number of the stack under test.
    pub(super) fn to_wire(&self, seq: u32) -> u32 {
        seq.wrapping_add(self.offset(false))
    }

    /// Wire's minus script's sequence numbers of the stack under test, in a segment with or without
    /// SYN.
    fn offset(&self, syn: bool) -> u32 {
        match self.local_isn {
            Some((wire, script)) if syn => wire.wrapping_sub(script),
            Some((wire, _)) => wire,
            None => 0,
        }
    }

    /// Where in what was written a segment begins, by its number on the wire.
    pub(super) fn position(&self, seq: u32, flags: u16) -> Option<u32> {
        let first = self.local_isn?.0.wrapping_add(1);
        let syn = u32::from(flags & flag::SYN != 0);
        Some(seq.wrapping_add(syn).wrapping_sub(first))
    }

    /// A segment to the stack under test.
    pub(super) fn inbound(&mut self, spec: &TcpSpec, scaled: bool) -> Result<Segment, UnknownEcho> {
        let (acks, syn) = (spec.flags & flag::ACK != 0, spec.flags & flag::SYN != 0);
        if syn && self.acknowledged {
            self.new_remote_isn = Some(spec.seq);
        } else if syn {
            self.remote_isn = spec.seq;
        }
        self.fresh |= syn && !acks;
        let offset = self.offset(syn);
        let mut options = spec.options.clone().unwrap_or_default();
        for option in &mut options {
            match option {
                TcpOption::Sack(blocks) => {
                    for (left, right) in blocks {
                        *left = left.wrapping_add(offset);
                        *right = right.wrapping_add(offset);
                    }
                }
                TcpOption::Timestamps(_, echo) if acks => *echo = self.echo(*echo, scaled)?,
                _ => {}
            }
        }
        let ack = spec.ack.unwrap_or(0);
        Ok(Segment {
            src_port: self.remote.port(),
            dst_port: self.local.port(),
            flags: spec.flags,
            seq: match syn {
                true => spec.seq,
                false => spec.seq.wrapping_add(self.remote_isn),
            },
            ack: match acks {
                true => ack.wrapping_add(offset),
                false => ack,
            },
            window: spec.window.unwrap_or(0),
            urgent: spec.urgent.unwrap_or(0),
            options,
            payload: vec![0; spec.payload_bytes as usize],
        })
    }

    fn echo(&self, script: u32, scaled: bool) -> Result<u32, UnknownEcho> {
        if let Some(wire) = self.stamps.get(&script) {
            return Ok(*wire);
        }
        match self.first_stamp {
            Some((first, wire)) if scaled => Ok(script.wrapping_sub(first).wrapping_add(wire)),
            _ => Err(UnknownEcho(script)),
        }
    }

    /// Translates a segment of the stack under test, which the script expects to be `spec`.
    pub(super) fn outbound(&mut self, spec: &TcpSpec, segment: &mut Segment) {
        let syn = segment.flags & flag::SYN != 0;
        if syn && spec.flags & flag::SYN != 0 && (self.fresh || self.local_isn.is_none()) {
            self.local_isn = Some((segment.seq, spec.seq));
            self.fresh = false;
            if let Some(isn) = self.new_remote_isn.take() {
                self.remote_isn = isn;
            }
        }
        self.acknowledged |= segment.flags & (flag::ACK | flag::RST) == flag::ACK;
        segment.seq = segment.seq.wrapping_sub(self.offset(syn));
        let remote = if syn { 0 } else { self.remote_isn };
        if segment.flags & flag::ACK != 0 {
            segment.ack = segment.ack.wrapping_sub(remote);
        }
        let expected = spec
            .options
            .iter()
            .flatten()
            .find_map(|option| match option {
                TcpOption::Timestamps(value, _) => Some(*value),
                _ => None,
            });
        for option in &mut segment.options {
            if let TcpOption::Sack(blocks) = option {
                for (left, right) in blocks {
                    *left = left.wrapping_sub(remote);
                    *right = right.wrapping_sub(remote);
                }
                continue;
            }
            let (TcpOption::Timestamps(value, _), Some(expected)) = (option, expected) else {
                continue;
            };
            self.stamps.insert(expected, *value);
            let (script, wire) = *self.first_stamp.get_or_insert((expected, *value));
            *value = value.wrapping_sub(wire).wrapping_add(script);
        }
    }
}

/// All connections of a script.
#[derive(Debug)]
pub(super) struct Flows {
    flows: Vec<Flow>,
    /// Which the script means that names no ports.
    current: Option<usize>,
    /// What comes next opens a new one: a socket listens.
    listening: bool,
    /// Where a socket connects, and what it writes to.
    connecting: Option<(SocketAddr, usize)>,
    next_port: u16,
    local: IpAddr,
    remote: IpAddr,
    bind_port: u16,
    connect_port: u16,
}

impl Flows {
    pub(super) fn new(config: &Config, local: IpAddr) -> Self {
        Self {
            flows: Vec::new(),
            current: None,
            listening: false,
            connecting: None,
            next_port: FIRST_REMOTE_PORT,
            local: config
                .local_ip
                .filter(|ip| ip.is_ipv6() == config.is_v6())
                .unwrap_or(local),
            remote: config.remote(),
            bind_port: config.bind_port,
            connect_port: config.connect_port,
        }
    }

    pub(super) fn local(&self) -> IpAddr {
        self.local
    }

    pub(super) fn remote(&self) -> IpAddr {
        self.remote
    }

    pub(super) fn get(&self, index: usize) -> &Flow {
        &self.flows[index]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Flow {
        &mut self.flows[index]
    }

    fn add(&mut self, local_port: u16, remote_port: u16, ports: Option<(u16, u16)>) -> usize {
        self.flows.push(Flow {
            remote: SocketAddr::new(self.remote, remote_port),
            local: SocketAddr::new(self.local, local_port),
            ports,
            local_isn: None,
            remote_isn: 0,
            new_remote_isn: None,
            acknowledged: false,
            fresh: true,
            stamps: HashMap::new(),
            first_stamp: None,
            stream: None,
        });
        self.listening = false;
        let index = self.flows.len() - 1;
        self.current = Some(index);
        index
    }

    /// A socket listens: the next inbound packet is of a new connection.
    pub(super) fn listen(&mut self, port: u16) {
        self.listening = true;
        self.bind_port = port;
    }

    /// A socket connects: its SYN will tell its port.
    pub(super) fn connect(&mut self, remote: SocketAddr, stream: usize) {
        self.connecting = Some((remote, stream));
    }

    /// A connection from this place was accepted, of the current one if that is not known.
    pub(super) fn accept(&mut self, peer: Option<SocketAddr>, stream: usize) {
        let is_of = |flow: &Flow| Some(flow.remote) == peer;
        let new = |flow: &Flow| is_of(flow) && flow.stream.is_none();
        let flows = &self.flows;
        let found = flows.iter().rposition(new);
        let found = found.or_else(|| flows.iter().rposition(is_of));
        if let Some(index) = found.or(self.current) {
            self.flows[index].stream = Some(stream);
        }
    }

    /// Whose a SYN is that was seen: a new connection's, if it goes where a socket connects.
    pub(super) fn of_syn(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<usize> {
        let known = self.of_seen(local, remote);
        let connecting = self.connecting.filter(|(to, _)| *to == remote);
        let (None, Some((_, stream))) = (known, connecting) else {
            return known;
        };
        self.connecting = None;
        let index = self.add(local.port(), remote.port(), None);
        (self.flows[index].remote, self.flows[index].stream) = (remote, Some(stream));
        Some(index)
    }

    /// Whether a SYN can only be this connection's: no socket has begun to connect since.
    pub(super) fn waits_for_syn_of(&self, index: usize) -> bool {
        self.connecting.is_none() && self.current == Some(index)
    }

    /// The script names the ports of a connection that the stack under test opens (local, remote).
    pub(super) fn name(&mut self, index: usize, ports: Option<(u16, u16)>) {
        self.current = Some(index);
        if let Some((local, remote)) = ports {
            self.flows[index].ports = Some((remote, local));
        }
    }

    /// A UDP socket sends to this place, perhaps not for the first time.
    pub(super) fn send_to(&mut self, remote: SocketAddr) {
        let current = self.current.map(|index| self.flows[index].remote);
        if current != Some(remote) {
            self.add(0, remote.port(), None);
        }
    }

    /// Whose an inbound packet with these written ports is (remote, local).
    pub(super) fn of_inbound(&mut self, ports: Option<(u16, u16)>) -> usize {
        if let Some((remote, local)) = ports {
            return match self.by_ports(remote, local) {
                Some(index) => {
                    self.current = Some(index);
                    index
                }
                None => self.add(local, remote, ports),
            };
        }
        match self.current {
            Some(index) if !self.listening => index,
            _ => {
                let port = self.next_port;
                self.next_port += 1;
                self.add(self.bind_port, port, None)
            }
        }
    }

    /// Whose an outbound packet with these written ports is (local, remote), if it is no SYN.
    pub(super) fn of_outbound(&mut self, ports: Option<(u16, u16)>) -> Option<usize> {
        let Some((local, remote)) = ports else {
            return self.current;
        };
        let found = self.by_ports(remote, local);
        if found.is_some() {
            self.current = found;
        }
        found.or(self.current)
    }

    fn by_ports(&self, remote: u16, local: u16) -> Option<usize> {
        let mut flows = self.flows.iter();
        flows.position(|flow| flow.ports == Some((remote, local)))
    }

    /// Whose a packet is that was seen. A UDP socket's port is learnt here.
    pub(super) fn of_seen(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<usize> {
        let known = self
            .flows
            .iter()
            .rposition(|flow| flow.local == local && flow.remote == remote);
        if known.is_some() {
            return known;
        }
        let sends = |flow: &Flow| flow.local.port() == 0 && flow.remote == remote;
        let index = self.flows.iter().rposition(sends)?;
        self.flows[index].local = local;
        Some(index)
    }

    /// The ends that an ICMP message is about, and the connection.
    pub(super) fn of_icmp(&mut self) -> usize {
        match self.current {
            Some(index) => index,
            None => self.add(self.bind_port, self.connect_port, None),
        }
    }
}
