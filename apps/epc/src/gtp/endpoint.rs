//! One end of GTP-C: what all nodes do with it, whatever the messages mean.
//!
//! Requests of ours wait in [`Pending`], answers of ours in [`Answers`]; [`Paths`] are the peers.
//! Echoes and messages of another version are dealt with here (TS 29.274 7.1, 7.7.1).

use super::paths::{Heard, Paths};
use super::{Contents, ROOM, Refusal, put_cause};
use crate::answers::{Answers, Ask, Seen};
use crate::link::{Link, MS, Notice, Owner, Sink};
use crate::pending::{Patience, Pending};
use crate::{Cores, EpcError};
use linerate_wire::gtpc::ie::{Cause, cause};
use linerate_wire::gtpc::{Gtpc, Writer, ie, message};
use linerate_wire::{Layer, Malformed};
use std::net::{Ipv4Addr, SocketAddrV4};

/// How an endpoint is to be.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Its address and port.
    pub address: SocketAddrV4,
    /// The node's restart counter.
    pub restarts: u8,
    /// T3-RESPONSE and N3-REQUESTS.
    pub patience: Patience,
    /// Requests in flight, for each core.
    pub requests: usize,
    /// Peers.
    pub peers: usize,
    /// Milliseconds between echoes to each peer, 60,000 at least (TS 29.274 7.1.1); `None`: none.
    pub echo_every_ms: Option<u64>,
    /// Answers go to the port of GTP-C of who asked, not to the one that was asked from, as
    /// TS 29.274 4.2.1.2 has it: for peers that do not listen there (nextepc 0.3).
    pub answers_to_port: bool,
}

impl EndpointConfig {
    /// At that address: T3 of 3 s, N3 of 3, 4096 requests, 64 peers, an echo a minute.
    pub fn new(address: SocketAddrV4) -> Self {
        Self {
            address,
            restarts: 1,
            patience: Patience {
                timeout_ms: 3000,
                again: 3,
            },
            requests: 4096,
            peers: 64,
            echo_every_ms: Some(60_000),
            answers_to_port: false,
        }
    }
}

/// What was counted of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Datagrams that are no message: too short, a length that lies.
    pub malformed: u64,
    /// Messages of another version, which were answered with Version Not Supported.
    pub other_version: u64,
    /// Messages to nobody: no such core, an unknown type, an answer that nobody waits for.
    pub stray: u64,
    /// Requests sent again.
    pub sent_again: u64,
    /// Requests given up.
    pub given_up: u64,
    /// Requests that were not made, since as many as may be are in flight.
    pub refused: u64,
    /// Requests of peers that were refused, for want of room or by their contents.
    pub refusals: u64,
}

#[derive(Clone, Copy)]
enum Wait<P> {
    Echo(Ipv4Addr),
    Request(P),
}

impl<P: Default> Default for Wait<P> {
    fn default() -> Self {
        Wait::Request(P::default())
    }
}

/// The end of one core; `P` says what a request of ours is about.
pub struct Endpoint<P> {
    config: EndpointConfig,
    core: u8,
    pending: Pending<Wait<P>>,
    /// The messages of requests in flight, by slot.
    sent: Box<[Sent]>,
    answers: Answers,
    /// The peers.
    pub paths: Paths,
    /// What was counted.
    pub counts: EndpointCounts,
}

/// The message of a request in flight, to be sent again.
#[derive(Clone)]
struct Sent {
    to: SocketAddrV4,
    /// 0: what is waited for is no answer to a message of GTP-C.
    len: u16,
    bytes: [u8; ROOM],
}

impl Sent {
    const NONE: Self = Self {
        to: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        len: 0,
        bytes: [0; ROOM],
    };
}

/// A message that its node has to see.
pub enum Arrived<'a> {
    /// A request that has not been seen.
    Request(Gtpc<&'a [u8]>),
    /// The answer to a request of ours that waits for it.
    Response(Gtpc<&'a [u8]>),
    /// The peer's restart counter, from an echo: see [`Endpoint::heard`].
    Counter(u8),
}

impl<P: Copy + Default> Endpoint<P> {
    /// The end of `core`.
    ///
    /// # Errors
    /// As [`Pending::new`].
    pub fn new(
        config: EndpointConfig,
        cores: Cores,
        core: u8,
        now_ns: u64,
    ) -> Result<Self, EpcError> {
        let Patience { timeout_ms, again } = config.patience;
        // As long as the peer, which is as patient as we are, may send a request again.
        let keep_ms = u64::from(timeout_ms) * (u64::from(again) + 1);
        Ok(Self {
            pending: Pending::new("gtp-c", config.requests, cores, core, now_ns / MS)?,
            answers: Answers::new(config.requests, keep_ms),
            paths: Paths::new(config.peers, config.echo_every_ms),
            counts: EndpointCounts::default(),
            sent: vec![Sent::NONE; config.requests].into(),
            config,
            core,
        })
    }

    /// How it was made.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// Where answers to a datagram from there go.
    fn answers_to(&self, from: SocketAddrV4) -> SocketAddrV4 {
        match self.config.answers_to_port {
            true => SocketAddrV4::new(*from.ip(), linerate_wire::gtpc::PORT),
            false => from,
        }
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Requests that came again.
    pub fn repeated(&self) -> u64 {
        self.answers.repeated
    }

    /// Whose a datagram is.
    pub fn owner(cores: Cores, datagram: &[u8]) -> Owner {
        // What is no message, or of another version, is anybody's to count and to answer.
        let Ok(gtpc) = Gtpc::new_checked(datagram) else {
            return Owner::Home;
        };
        let of_sequence = || cores.of_sequence(gtpc.sequence()).map(Owner::Core);
        let owner = match (gtpc.message(), gtpc.teid()) {
            (message::ECHO_RESPONSE, None) => of_sequence(),
            // A peer that does not know our identifier answers with none (5.5.2).
            (kind, Some(0)) if is_response(kind) => of_sequence(),
            (message::CREATE_SESSION_REQUEST, Some(0)) => {
                let mut ies = gtpc.ies().flatten();
                let imsi = ies.find(|ie| (ie.kind, ie.instance) == (ie::IMSI, 0));
                let imsi = imsi.and_then(|ie| ie::Imsi::read(ie.value));
                imsi.map(Owner::User)
            }
            (_, Some(id)) if id != 0 => cores.of_id(id).map(Owner::Core),
            _ => None,
        };
        owner.unwrap_or(Owner::Home)
    }

    /// Takes a datagram: answers echoes and other versions, repeats answers.
    pub fn arrive<'a>(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        datagram: &'a [u8],
        out: &mut impl Sink,
    ) -> Option<Arrived<'a>> {
        let gtpc = match Gtpc::new_checked(datagram) {
            Ok(gtpc) => gtpc,
            Err(Malformed::Version(Layer::Gtpc)) => {
                self.counts.other_version += 1;
                // TS 29.274 7.7.1. Not to what itself may be such an answer (GTPv1's has type 3).
                if datagram[1] != message::VERSION_NOT_SUPPORTED {
                    self.send(from, message::VERSION_NOT_SUPPORTED, None, 0, out, |_| {});
                }
                return None;
            }
            Err(_) => {
                self.counts.malformed += 1;
                return None;
            }
        };
        let (kind, sequence) = (gtpc.message(), gtpc.sequence());
        let to = self.answers_to(from);
        match kind {
            message::ECHO_REQUEST => {
                let restarts = [self.config.restarts];
                self.send(to, message::ECHO_RESPONSE, None, sequence, out, |w| {
                    w.ie(ie::RECOVERY, 0, &restarts);
                });
                let said = Contents::read(&gtpc).ok().and_then(|found| found.recovery);
                if let Some(restarts) = said {
                    return Some(Arrived::Counter(restarts));
                }
                None
            }
            message::ECHO_RESPONSE => self.echoed(now_ns, sequence, &gtpc),
            kind if is_response(kind) => {
                let is_awaited = self.about(sequence).is_some();
                self.counts.stray += u64::from(!is_awaited);
                is_awaited.then_some(Arrived::Response(gtpc))
            }
            // TS 29.274 7.7.2, 7.7.4: unknown, or without the identifier it has to have.
            kind if !is_request(kind) || gtpc.teid().is_none() => {
                self.counts.stray += 1;
                None
            }
            _ => match self.answers.see(now_ns / MS, &Ask::of(from, &gtpc)) {
                Seen::New => Some(Arrived::Request(gtpc)),
                Seen::InHand => None,
                Seen::Answered(answer) => {
                    out.send(Link::Gtpc(to), answer);
                    None
                }
            },
        }
    }

    fn echoed<'a>(
        &mut self,
        now_ns: u64,
        sequence: u32,
        gtpc: &Gtpc<&'a [u8]>,
    ) -> Option<Arrived<'a>> {
        let Some(Wait::Echo(address)) = self.pending.get(sequence) else {
            self.counts.stray += 1;
            return None;
        };
        self.pending.end(sequence);
        self.paths.answered(now_ns / MS, address, true);
        let restarts = Contents::read(gtpc).ok()?.recovery?;
        Some(Arrived::Counter(restarts))
    }

    /// Takes a restart counter of a peer; what is new in it is told to the other cores. Whether the
    /// peer has restarted.
    pub fn heard(&mut self, address: Ipv4Addr, restarts: u8, out: &mut impl Sink) -> bool {
        let heard = self.paths.heard(address, restarts);
        match heard {
            Heard::Same => {}
            Heard::First => out.tell(Notice::Counter(address, restarts)),
            Heard::Restarted => out.tell(Notice::Restarted(address, restarts)),
        }
        heard == Heard::Restarted
    }

    /// Takes what another core tells of a peer, with which sessions may be made here, too. Whether
    /// that is a restart.
    pub fn told(&mut self, now_ns: u64, notice: Notice) -> bool {
        match notice {
            Notice::Counter(address, restarts) => {
                // Without room it stays a stranger.
                self.paths.epoch(now_ns / MS, address);
                self.paths.heard(address, restarts) == Heard::Restarted
            }
            Notice::Restarted(address, restarts) => self.paths.restarted(address, restarts),
            _ => false,
        }
    }

    /// Sends a request, and waits for its answer: its sequence number. `None`, and counted, when
    /// too many are in flight, or the message would be longer than [`ROOM`].
    pub fn request(
        &mut self,
        now_ns: u64,
        (to, kind, teid): (SocketAddrV4, u8, u32),
        about: P,
        out: &mut impl Sink,
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Option<u32> {
        let sequence = self.wait(now_ns, self.config.patience, about)?;
        let sent = &mut self.sent[self.pending.slot(sequence)];
        let mut writer = Writer::new(&mut sent.bytes, kind, Some(teid), sequence);
        fill(&mut writer);
        let Some(message) = writer.finish() else {
            self.pending.end(sequence);
            self.counts.refused += 1;
            return None;
        };
        out.send(Link::Gtpc(to), message);
        (sent.to, sent.len) = (to, message.len() as u16);
        Some(sequence)
    }

    /// Waits for something else than an answer of GTP-C: what is to be sent again is the caller's.
    pub fn wait(&mut self, now_ns: u64, patience: Patience, about: P) -> Option<u32> {
        let about = Wait::Request(about);
        let sequence = self.pending.begin(now_ns / MS, patience, about);
        match sequence {
            Some(sequence) => self.sent[self.pending.slot(sequence)].len = 0,
            None => self.counts.refused += 1,
        }
        sequence
    }

    /// What a request in flight is about.
    pub fn about(&self, sequence: u32) -> Option<P> {
        match self.pending.get(sequence)? {
            Wait::Request(about) => Some(about),
            Wait::Echo(_) => None,
        }
    }

    /// Ends a request: it was answered, or nobody waits any more.
    pub fn end(&mut self, sequence: u32) -> Option<P> {
        let about = self.about(sequence)?;
        self.pending.end(sequence);
        Some(about)
    }

    /// Sends a message.
    pub fn send(
        &mut self,
        to: SocketAddrV4,
        kind: u8,
        teid: Option<u32>,
        sequence: u32,
        out: &mut impl Sink,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        let mut room = [0; ROOM];
        let mut writer = Writer::new(&mut room, kind, teid, sequence);
        fill(&mut writer);
        let message = writer.finish().expect("no message here is longer");
        out.send(Link::Gtpc(to), message);
    }

    /// Answers a request, and keeps the answer.
    pub fn answer(
        &mut self,
        now_ns: u64,
        ask: Ask,
        kind: u8,
        teid: u32,
        out: &mut impl Sink,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        let mut room = [0; ROOM];
        let mut writer = Writer::new(&mut room, kind, Some(teid), ask.sequence);
        fill(&mut writer);
        // What a request makes us repeat may be too long: then it gets no answer, as if it were
        // lost.
        let Some(message) = writer.finish() else {
            self.counts.refused += 1;
            return;
        };
        self.answers.put(now_ns / MS, &ask, message);
        out.send(Link::Gtpc(self.answers_to(ask.from)), message);
    }

    /// Answers that a request was accepted, with what `fill` adds.
    pub fn accept(
        &mut self,
        now_ns: u64,
        ask: Ask,
        kind: u8,
        teid: u32,
        out: &mut impl Sink,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        self.answer(now_ns, ask, kind, teid, out, |to| {
            put_cause(to, Cause::new(cause::ACCEPTED));
            fill(to);
        });
    }

    /// Answers that a request was refused, and why; counts it.
    pub fn refuse(
        &mut self,
        now_ns: u64,
        ask: Ask,
        kind: u8,
        teid: u32,
        refusal: Refusal,
        out: &mut impl Sink,
    ) {
        self.counts.refusals += 1;
        self.answer(now_ns, ask, kind, teid, out, |to| put_cause(to, refusal));
    }

    /// The epoch of a peer that a session is made with, after the restart counter that came with
    /// the request; true: that says that it has restarted.
    ///
    /// # Errors
    /// No Resources Available: as many peers as may be known have sessions.
    pub fn peer(
        &mut self,
        now_ns: u64,
        address: Ipv4Addr,
        restarts: Option<u8>,
        out: &mut impl Sink,
    ) -> Result<(u16, bool), Refusal> {
        let full = Cause::new(cause::NO_RESOURCES);
        // Strangers' counters are ignored: it is learnt first.
        self.paths.epoch(now_ns / MS, address).ok_or(full)?;
        let is_restart = restarts.is_some_and(|restarts| self.heard(address, restarts, out));
        let epoch = self.paths.epoch(now_ns / MS, address).ok_or(full)?;
        Ok((epoch, is_restart))
    }

    /// The next wait that is over, or that the caller has to do something for; `true`: the latter.
    /// Requests and echoes are sent again here, the latter by the first core.
    pub fn poll(
        &mut self,
        now_ns: u64,
        budget: &mut usize,
        out: &mut impl Sink,
    ) -> Option<(u32, P, bool)> {
        self.echo(now_ns, out);
        loop {
            let overdue = self.pending.poll(now_ns / MS, budget)?;
            let sequence = overdue.sequence;
            self.counts.sent_again += u64::from(overdue.again);
            self.counts.given_up += u64::from(!overdue.again);
            match overdue.value {
                Wait::Request(about) => {
                    let sent = &self.sent[self.pending.slot(sequence)];
                    match usize::from(sent.len) {
                        0 => return Some((sequence, about, overdue.again)),
                        _ if !overdue.again => return Some((sequence, about, false)),
                        len => out.send(Link::Gtpc(sent.to), &sent.bytes[..len]),
                    }
                }
                Wait::Echo(address) if overdue.again => self.ask(address, sequence, out),
                Wait::Echo(address) => {
                    self.paths.answered(now_ns / MS, address, false);
                    out.tell(Notice::Unreachable(address));
                }
            }
        }
    }

    /// Sends the echoes that are due.
    fn echo(&mut self, now_ns: u64, out: &mut impl Sink) {
        if self.core != 0 || self.paths.every_ms().is_none() {
            return;
        }
        for at in 0..self.paths.peers().len() {
            let peer = self.paths.peers()[at];
            if peer.is_asked || peer.echo_ms > now_ns / MS {
                continue;
            }
            let wait = Wait::Echo(peer.address);
            let begun = self.pending.begin(now_ns / MS, self.config.patience, wait);
            let Some(sequence) = begun else {
                return; // it is tried again each time, until there is room
            };
            self.paths.peers_mut()[at].is_asked = true;
            self.ask(peer.address, sequence, out);
            // Again to cores that have missed it.
            if let Some(restarts) = peer.restarts {
                out.tell(Notice::Counter(peer.address, restarts));
            }
        }
    }

    fn ask(&mut self, address: Ipv4Addr, sequence: u32, out: &mut impl Sink) {
        let to = SocketAddrV4::new(address, linerate_wire::gtpc::PORT);
        let restarts = [self.config.restarts];
        self.send(to, message::ECHO_REQUEST, None, sequence, out, |w| {
            w.ie(ie::RECOVERY, 0, &restarts);
        });
    }

    /// When [`poll`](Self::poll) has something to do, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        let is_first = self.core == 0 && self.paths.every_ms().is_some();
        let peers = self.paths.peers().iter();
        let echoes = peers.filter(|peer| is_first && !peer.is_asked);
        let echo = echoes.map(|peer| peer.echo_ms).min();
        let next_ms = self.pending.next_ms().into_iter().chain(echo).min()?;
        Some(next_ms * MS)
    }
}

/// Whether a message of this type answers another (TS 29.274 6.1): of those known here.
fn is_response(kind: u8) -> bool {
    matches!(
        kind,
        message::ECHO_RESPONSE
            | message::CREATE_SESSION_RESPONSE
            | message::MODIFY_BEARER_RESPONSE
            | message::DELETE_SESSION_RESPONSE
            | message::RELEASE_ACCESS_BEARERS_RESPONSE
            | message::DOWNLINK_DATA_NOTIFICATION_ACK
    )
}

/// Whether a message of this type is a request that some node here takes.
fn is_request(kind: u8) -> bool {
    matches!(
        kind,
        message::CREATE_SESSION_REQUEST
            | message::MODIFY_BEARER_REQUEST
            | message::DELETE_SESSION_REQUEST
            | message::RELEASE_ACCESS_BEARERS_REQUEST
            | message::DOWNLINK_DATA_NOTIFICATION
            | message::DOWNLINK_DATA_NOTIFICATION_FAILURE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what is sent and told.
    #[derive(Default)]
    struct Counted(u32, u32);

    impl Sink for Counted {
        fn send(&mut self, _: Link, _: &[u8]) {
            self.0 += 1;
        }

        fn tell(&mut self, _: Notice) {
            self.1 += 1;
        }
    }

    #[test]
    fn an_echo_that_finds_no_place_is_told_to_nobody() {
        let own = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), linerate_wire::gtpc::PORT);
        let config = EndpointConfig {
            requests: 1,
            ..EndpointConfig::new(own)
        };
        let cores = Cores::new(2).unwrap();
        let mut end = Endpoint::<u8>::new(config, cores, 0, 0).unwrap();
        let peer = Ipv4Addr::new(10, 0, 0, 2);
        let mut out = Counted::default();
        end.paths.epoch(0, peer);
        end.heard(peer, 7, &mut out);
        assert_eq!((out.0, out.1), (0, 1), "heard first");
        let patience = Patience {
            timeout_ms: 100_000,
            again: 0,
        };
        let wait = end.wait(0, patience, 1).unwrap();
        let turns = |end: &mut Endpoint<u8>, out: &mut Counted| {
            for turn in 0..100 {
                assert_eq!(end.poll(61_000 * MS + turn, &mut 64, out), None);
            }
            (out.0, out.1)
        };
        assert_eq!(turns(&mut end, &mut out), (0, 1));
        end.end(wait);
        assert_eq!(turns(&mut end, &mut out), (1, 2));
    }
}
