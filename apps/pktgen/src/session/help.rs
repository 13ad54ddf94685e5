//! ARP, Neighbor Discovery and ping of ports: answers for their addresses, requests to neighbours,
//! and the replies.
//!
//! Receivers answer by themselves ([`Helper`]); this file sets their addresses. Requests are made
//! on the lcore that sends, so that an echo's time begins there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver as Mailbox;

use linerate_wire::ethernet::MacAddr;

use super::Session;
use crate::engine::{
    Engine, Event, Helper, PortAddr, Responder, ResponderStats, announcements, echo_request,
};
use linerate_appliance::error::Error;

/// Limit of remembered neighbours, and of pending echoes.
const MOST: usize = 1024;
/// Events of a queue that are taken at a time.
const AT_A_TIME: usize = 1024;
/// Bytes behind an echo's header, as other hosts' ping sends them.
const ECHO_BYTES: usize = 56;

/// The state of one port.
#[derive(Default)]
pub(super) struct Help {
    /// Addresses that it answers for now.
    addrs: Arc<[PortAddr]>,
    events: Vec<Mailbox<(u64, Event)>>,
    /// Counters of all responders that the port ever had.
    stats: Vec<Arc<ResponderStats>>,
    /// Counts at the last `clear`.
    base: [u64; 5],
    neighbours: BTreeMap<IpAddr, MacAddr>,
    /// Sent echoes by sequence number: destination, and nanoseconds until the answer came.
    echoes: BTreeMap<u16, (IpAddr, Option<u64>)>,
    next_sequence: u16,
}

impl Help {
    fn counts(&self) -> [(&'static str, u64); 5] {
        let mut sum = ResponderStats::default().read();
        for stats in &self.stats {
            for (sum, (_, count)) in sum.iter_mut().zip(stats.read()) {
                sum.1 += count;
            }
        }
        sum
    }

    /// Counts begin here.
    pub(super) fn clear(&mut self) {
        self.base = self.counts().map(|(_, count)| count);
    }

    /// Answers since `clear`, by kind, without zeros.
    pub(super) fn answers(&self) -> Vec<(String, u64)> {
        let since = self.counts().into_iter().zip(self.base);
        let since = since.map(|((name, count), base)| (name.to_owned(), count - base));
        since.filter(|(_, count)| *count > 0).collect()
    }

    /// Whether the port answers for any address.
    pub(super) fn is_on(&self) -> bool {
        !self.addrs.is_empty()
    }
}

impl Session {
    /// Makes a port answer for its addresses, or for none if `process` is off.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn fit_help(&mut self, port: u16) -> Result<(), Error> {
        let state = &mut self.ports[usize::from(port)];
        let addrs: Arc<[PortAddr]> = match state.asked.process {
            Some(false) => [].into(),
            _ => state.asked.addrs.clone().into(),
        };
        if state.help.addrs == addrs {
            return Ok(());
        }
        let (mac, clock) = (self.macs(port).0, self.clock);
        let receivers = self.ports[usize::from(port)].receivers.iter();
        let responder = |_| Responder::new(mac, addrs.clone(), &clock);
        let mut responders = match addrs.is_empty() {
            true => Vec::new(),
            false => receivers.map(responder).collect::<Result<_, _>>()?,
        };
        let state = &mut self.ports[usize::from(port)];
        state.help.addrs = addrs;
        state.help.events.clear();
        let (tx_lcore, sender) = state.senders[0];
        let mut answers = Vec::new();
        for &(lcore, receiver) in &state.receivers {
            let mut helper = None;
            if let Some(responder) = responders.pop() {
                let waker = self.lcores[tx_lcore].handle.waker();
                let (ours, replies, events) = Helper::new(responder, waker);
                state.help.stats.push(ours.stats());
                state.help.events.push(events);
                answers.push(replies);
                helper = Some(ours);
            }
            // Freed here, not on the lcore, as the sender's below.
            drop(self.lcores[lcore].handle.call(move |engine| {
                std::mem::replace(&mut engine.receivers[receiver].helper, helper)
            }));
        }
        let tell = move |engine: &mut Engine| engine.senders[sender].help(answers);
        drop(self.lcores[tx_lcore].handle.call(tell));
        Ok(())
    }

    /// Sends a request for `to`, and forgets its known MAC address; without one, announces the
    /// port's own addresses. Replies are in the log, and [`neighbour`](Self::neighbour) returns
    /// them.
    ///
    /// # Errors
    /// The port has no address of that kind, or sends nothing now.
    pub fn arp(&mut self, port: u16, to: Option<IpAddr>) -> Result<(), Error> {
        self.check_port(port)?;
        if let Some(to) = to {
            self.ports[usize::from(port)].help.neighbours.remove(&to);
        }
        let addrs = self.ports[usize::from(port)].help.addrs.clone();
        let frames = match to {
            // Each receiver gets the address, since the reply may come to any; one request is sent.
            Some(to) if addrs.iter().all(|own| own.ip != to) => {
                let receivers = self.ports[usize::from(port)].receivers.iter();
                let questions = receivers.filter_map(|&(lcore, receiver)| {
                    let ask = move |engine: &mut Engine| {
                        let helper = engine.receivers[receiver].helper.as_mut();
                        helper.and_then(|helper| helper.who_has(to))
                    };
                    self.lcores[lcore].handle.call(ask).flatten()
                });
                questions.reduce(|first, _| first).into_iter().collect()
            }
            _ => announcements(self.macs(port).0, &addrs, &self.clock)?,
        };
        self.send_own(port, to, move |_| frames)
    }

    /// The MAC address of a neighbour, if it has answered.
    pub fn neighbour(&mut self, port: u16, ip: IpAddr) -> Option<MacAddr> {
        self.hear();
        let help = &self.ports.get(usize::from(port))?.help;
        help.neighbours.get(&ip).copied()
    }

    /// Sends an echo request to a known neighbour. Returns its number for [`echo`](Self::echo).
    ///
    /// # Errors
    /// The neighbour has not answered yet, the port has no address of that kind, or sends nothing
    /// now.
    pub fn ping(&mut self, port: u16, to: IpAddr) -> Result<u16, Error> {
        self.check_port(port)?;
        let Some(mac) = self.neighbour(port, to) else {
            return Err(Error::Usage {
                problem: format!("port {port} does not know the MAC address of {to}"),
                fix: format!("ask for it: `arp {port} {to}`"),
            });
        };
        let help = &mut self.ports[usize::from(port)].help;
        let sequence = help.next_sequence;
        help.next_sequence = sequence.wrapping_add(1);
        while help.echoes.len() >= MOST {
            help.echoes.pop_first();
        }
        help.echoes.insert(sequence, (to, None));
        let addrs = help.addrs.clone();
        let own = self.macs(port).0;
        self.send_own(port, Some(to), move |now| {
            let numbers = (ident(), sequence);
            let echo = echo_request((own, &addrs), (mac, to), numbers, now, ECHO_BYTES);
            echo.into_iter().collect()
        })?;
        Ok(sequence)
    }

    /// Nanoseconds from sending an echo to its answer; `None` before it comes.
    pub fn echo(&mut self, port: u16, sequence: u16) -> Option<u64> {
        self.hear();
        let help = &self.ports.get(usize::from(port))?.help;
        help.echoes.get(&sequence)?.1
    }

    /// Sends the frames that `make` returns, which belong to no stream, by the port's first
    /// transmit queue.
    fn send_own(
        &mut self,
        port: u16,
        to: Option<IpAddr>,
        make: impl FnOnce(u64) -> Vec<Vec<u8>> + Send + 'static,
    ) -> Result<(), Error> {
        let clock = self.clock;
        let (lcore, sender) = self.ports[usize::from(port)].senders[0];
        let send = move |engine: &mut Engine| {
            let frames = make(clock.now());
            let sent = engine.senders[sender].send(&frames, &mut engine.cache);
            (frames.len(), sent)
        };
        let problem = match self.lcores[lcore].handle.call(send) {
            None => format!("port {port} sends nothing: its lcore has died"),
            Some((0, _)) => return Err(self.no_address(port, to)),
            Some((made, sent)) if sent < made => {
                format!(
                    "port {port} took {sent} of {made} frames: its queue is full, or its link down"
                )
            }
            Some(_) => return Ok(()),
        };
        Err(Error::Usage {
            problem,
            fix: format!("`explain {port}` says what holds it back"),
        })
    }

    fn no_address(&self, port: u16, to: Option<IpAddr>) -> Error {
        let (kind, example) = match to {
            Some(IpAddr::V4(_)) => ("IPv4 address", "192.0.2.1/24"),
            Some(IpAddr::V6(_)) => ("IPv6 address", "2001:db8::1/64"),
            None => ("address", "192.0.2.1/24"),
        };
        if self.ports[usize::from(port)].asked.process == Some(false) {
            return Error::Usage {
                problem: format!("port {port} does not use its addresses: `process` is off"),
                fix: format!("`set {port} process on`"),
            };
        }
        Error::Usage {
            problem: format!("port {port} has no {kind} to ask from"),
            fix: format!("give it one: `set {port} addr {example}`, or `-p ...,addr={example}`"),
        }
    }

    /// Reads the events of ports since the last call.
    pub(super) fn hear(&mut self) {
        for (number, state) in self.ports.iter_mut().enumerate() {
            let mut heard = Vec::new();
            for events in &state.help.events {
                heard.extend(events.try_iter().take(AT_A_TIME));
            }
            for (_, event) in heard {
                let help = &mut state.help;
                match event {
                    Event::Resolved { ip, mac } => {
                        if help.neighbours.len() >= MOST {
                            help.neighbours.pop_first();
                        }
                        if help.neighbours.insert(ip, mac) != Some(mac) {
                            self.log.add(format!("port {number}: {ip} is at {mac}"));
                        }
                    }
                    Event::Pong {
                        from,
                        ident: of,
                        sequence,
                        rtt_ticks,
                        hops_left,
                    } => {
                        let waits = help.echoes.get_mut(&sequence);
                        let Some((_, answered @ None)) =
                            waits.filter(|echo| of == ident() && echo.0 == from)
                        else {
                            continue;
                        };
                        let rtt_ns = self.clock.ns(rtt_ticks);
                        *answered = Some(rtt_ns);
                        self.log.add(format!(
                            "port {number}: {from} answered echo {sequence} after {:.3} ms, \
                             {hops_left} hops left",
                            rtt_ns as f64 / 1e6
                        ));
                    }
                    Event::Conflict { ip, mac } => {
                        // Logged once for each host that claims it, not for each frame.
                        if help.neighbours.insert(ip, mac) != Some(mac) {
                            self.log.add(format!(
                                "port {number}: {mac} claims {ip}, which is this port's address"
                            ));
                        }
                    }
                }
            }
        }
    }
}

/// Identifier of this process's echoes.
fn ident() -> u16 {
    std::process::id() as u16
}
