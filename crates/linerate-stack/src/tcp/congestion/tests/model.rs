//! A bottleneck in virtual time, and senders that share it: one queue that drops what does not
//! fit, one rate, and for each flow a round trip and an endless supply of data.
//!
//! Packets are numbered and never sent again under the same number: what is lost is replaced by
//! new data, so that the model has no retransmission ambiguity and shows congestion control only.
//! A packet is lost once three later ones are acknowledged, or when the timer expires.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use linerate_testkit::Random;

use crate::tcp::congestion::rate::{Delivery, Sampler, SendStamp};
use crate::tcp::congestion::*;
use crate::tcp::pacing::{Growth, Pacer};
use crate::tcp::prr::{Flight, Prr};
use crate::tcp::rtt::Rtt;

pub(super) const MSS: u32 = 1000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000 * MS;

/// Of all that is random here: every run is the same.
const SEED: u64 = 5681;

/// What happens to a flow or to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The link has sent its packet.
    Leaves,
    /// A packet arrives, and its ACK by the way back; whether it was marked.
    Arrives(usize, u64, bool),
    /// The receiver has waited long enough for a second packet; it began then.
    Delayed(usize, u64),
    /// A flow may send.
    Send(usize),
    /// A flow's retransmission timer.
    Timer(usize),
}

/// One sender.
pub(super) struct Flow {
    pub(super) control: Controller,
    pub(super) rtt: Rtt,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// Reductions by loss or mark, and timeouts.
    pub(super) reductions: u64,
    pub(super) timeouts: u64,
    /// The largest window of the first slow start.
    pub(super) first_peak: u32,
    /// Bytes a second that the application offers; all that there is room for without it.
    offers: Option<u64>,
    base_ns: u64,
    starts_ns: u64,
    next: u64,
    outstanding: BTreeMap<u64, (u64, SendStamp)>,
    /// The episode's end, and whether it is one of a timeout.
    recovery: Option<(u64, bool)>,
    prr: Prr,
    pacer: Pacer,
    is_paced: bool,
    delivery: Delivery,
    last_sent_ns: u64,
    timer_ns: u64,
    is_waiting: bool,
    usage: Usage,
    offered: u64,
    /// Packets for which there is one ACK, and those that wait for it.
    acks_every: usize,
    waiting: Vec<(u64, bool)>,
    waiting_since: u64,
}

/// The bottleneck.
pub(super) struct Link {
    pub(super) flows: Vec<Flow>,
    pub(super) now_ns: u64,
    pub(super) longest_queue: usize,
    pub(super) drops: u64,
    packet_ns: u64,
    room: usize,
    /// Queue at which packets are marked instead.
    marks_from: usize,
    /// One packet in so many is lost besides.
    loses_one_in: usize,
    queue: VecDeque<(usize, u64, bool)>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    random: Random,
}

impl Link {
    /// A link of `rate` bytes a second with a queue for `room` packets.
    pub(super) fn new(rate: u64, room: usize) -> Self {
        Self {
            flows: Vec::new(),
            now_ns: 0,
            longest_queue: 0,
            drops: 0,
            packet_ns: u64::from(MSS) * S / rate,
            room,
            marks_from: usize::MAX,
            loses_one_in: 0,
            queue: VecDeque::new(),
            events: BinaryHeap::new(),
            order: 0,
            random: Random::new(SEED),
        }
    }

    pub(super) fn marking_from(mut self, packets: usize) -> Self {
        self.marks_from = packets;
        self
    }

    pub(super) fn losing_one_in(mut self, packets: usize) -> Self {
        self.loses_one_in = packets;
        self
    }

    /// Adds a flow that starts at `starts_ns` and whose round trip is `base_ns` with an empty
    /// queue. Returns its number.
    pub(super) fn flow(&mut self, name: &str, base_ns: u64, starts_ns: u64) -> usize {
        let algorithm = Algorithm::from_name(name).unwrap();
        let is_paced = algorithm.pacing_rate().is_some();
        self.flows.push(Flow {
            control: Controller::new(algorithm, MSS as u16, is_paced, starts_ns),
            rtt: Rtt::new(),
            delivered: 0,
            lost: 0,
            reductions: 0,
            timeouts: 0,
            first_peak: 0,
            offers: None,
            base_ns,
            starts_ns,
            next: 0,
            outstanding: BTreeMap::new(),
            recovery: None,
            prr: Prr::default(),
            pacer: Pacer::new(),
            is_paced,
            delivery: Delivery::default(),
            last_sent_ns: starts_ns,
            timer_ns: u64::MAX,
            is_waiting: true,
            usage: Usage::new(0),
            offered: 0,
            acks_every: 1,
            waiting: Vec::new(),
            waiting_since: 0,
        });
        self.schedule(starts_ns, Event::Send(self.flows.len() - 1));
        self.flows.len() - 1
    }

    /// From now on the application of a flow offers so many bytes a second; `None`: all that there
    /// is room for.
    pub(super) fn offer(&mut self, flow: usize, bytes_per_s: Option<u64>) {
        let now = self.now_ns;
        let it = &mut self.flows[flow];
        (it.offers, it.offered, it.starts_ns, it.is_waiting) = (bytes_per_s, 0, now, true);
        self.schedule(now, Event::Send(flow));
    }

    /// One ACK for so many packets of a flow.
    pub(super) fn acks_every(&mut self, flow: usize, packets: usize) {
        self.flows[flow].acks_every = packets;
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    /// Runs until `until_ns`.
    pub(super) fn run(&mut self, until_ns: u64) {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > until_ns {
                break;
            }
            self.events.pop();
            self.now_ns = at;
            match event {
                Event::Leaves => self.leaves(),
                Event::Arrives(flow, number, mark) => self.arrives(flow, number, mark),
                Event::Delayed(flow, since) => {
                    let it = &self.flows[flow];
                    if it.waiting_since == since && !it.waiting.is_empty() {
                        self.acknowledge(flow);
                    }
                }
                Event::Send(flow) => {
                    self.flows[flow].is_waiting = false;
                    self.send(flow);
                }
                Event::Timer(flow) => self.timer(flow),
            }
        }
        self.now_ns = until_ns;
    }

    fn leaves(&mut self) {
        if let Some((flow, number, mark)) = self.queue.pop_front() {
            // Less than a packet takes, so that none overtakes another. Without it the losses of
            // flows fall into step (Floyd, Jacobson, "On Traffic Phase Effects", 1991).
            let jitter = self.random.below(self.packet_ns * 8 / 10);
            let arrives = self.now_ns + self.flows[flow].base_ns + jitter;
            self.schedule(arrives, Event::Arrives(flow, number, mark));
        }
        if !self.queue.is_empty() {
            self.schedule(self.now_ns + self.packet_ns, Event::Leaves);
        }
    }

    /// RFC 9293 3.8.6.3: one ACK for some packets, or after 40 ms; at once where one is missing.
    fn arrives(&mut self, index: usize, number: u64, mark: bool) {
        let now = self.now_ns;
        let flow = &mut self.flows[index];
        if flow.waiting.is_empty() {
            flow.waiting_since = now;
            self.events.push(Reverse((
                now + 40 * MS,
                u64::MAX,
                Event::Delayed(index, now),
            )));
        }
        flow.waiting.push((number, mark));
        let is_hole = flow
            .outstanding
            .keys()
            .next()
            .is_some_and(|&first| first < flow.waiting[0].0);
        if flow.waiting.len() >= flow.acks_every || is_hole {
            self.acknowledge(index);
        }
    }

    fn acknowledge(&mut self, index: usize) {
        let packets = std::mem::take(&mut self.flows[index].waiting);
        self.flows[index].ack(self.now_ns, &packets);
        self.send(index);
    }

    fn timer(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if flow.outstanding.is_empty() || self.now_ns < flow.timer_ns {
            return;
        }
        let flight = flow.outstanding.len() as u32 * MSS;
        let is_first = flow.recovery.is_none();
        flow.control.on_timeout(is_first, flight, self.now_ns);
        flow.recovery = Some((flow.next, true));
        flow.lost += flow.outstanding.len() as u64;
        flow.outstanding.clear();
        flow.rtt.backoff();
        flow.timeouts += 1;
        self.send(index);
    }

    fn send(&mut self, index: usize) {
        let now = self.now_ns;
        let mut is_limited = false;
        loop {
            let flow = &mut self.flows[index];
            if flow.in_flight() + MSS > flow.control.window.cwnd_bytes {
                is_limited = true;
                break;
            }
            let mut later = None;
            if let Some(offers) = flow.offers {
                let since = now - flow.starts_ns;
                let due = (u128::from(since) * u128::from(offers) / u128::from(S)) as u64;
                if flow.offered >= due {
                    flow.delivery.on_app_limited(flow.in_flight());
                    later = Some(flow.starts_ns + (flow.offered + 1) * S / offers + 1);
                }
            }
            if flow.is_paced && !flow.pacer.may_send(now) {
                later = later.max(Some(flow.pacer.next_ns()));
            }
            if let Some(at) = later {
                if !std::mem::replace(&mut flow.is_waiting, true) {
                    self.schedule(at, Event::Send(index));
                }
                break;
            }
            let number = flow.emit(now);
            let timer = flow.timer_ns;
            self.schedule(timer, Event::Timer(index));
            self.enqueue(index, number);
        }
        let flow = &mut self.flows[index];
        let (una, nxt) = flow.sequence();
        let in_flight = flow.in_flight();
        flow.usage.note_sent(una, nxt, in_flight, is_limited);
    }

    fn enqueue(&mut self, flow: usize, number: u64) {
        let is_lost = self.loses_one_in > 0 && self.random.one_in(self.loses_one_in);
        if is_lost || self.queue.len() >= self.room {
            self.drops += 1;
            return;
        }
        if self.queue.is_empty() {
            self.schedule(self.now_ns + self.packet_ns, Event::Leaves);
        }
        let mark = self.queue.len() >= self.marks_from;
        self.queue.push_back((flow, number, mark));
        self.longest_queue = self.longest_queue.max(self.queue.len());
    }

    /// Bytes a second that each flow gets until `until_ns`.
    pub(super) fn goodputs(&mut self, until_ns: u64) -> Vec<f64> {
        let from: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        let seconds = (until_ns - self.now_ns) as f64 / S as f64;
        self.run(until_ns);
        let more = self.flows.iter().zip(from);
        more.map(|(flow, from)| (flow.delivered - from) as f64 / seconds)
            .collect()
    }
}

impl Flow {
    pub(super) fn in_flight(&self) -> u32 {
        self.outstanding.len() as u32 * MSS
    }

    /// SND.UNA and SND.NXT.
    fn sequence(&self) -> (u32, u32) {
        let bytes = |packets: u64| (packets * u64::from(MSS)) as u32;
        let una = self.outstanding.keys().next().unwrap_or(&self.next);
        (bytes(*una), bytes(self.next))
    }

    fn emit(&mut self, now: u64) -> u64 {
        if self.outstanding.is_empty() {
            let idle = now - self.last_sent_ns;
            self.control.on_idle(idle, self.rtt.rto_ns(), now);
        }
        self.last_sent_ns = now;
        self.timer_ns = now + self.rtt.rto_ns();
        let stamp = self.delivery.on_send(now, self.outstanding.is_empty());
        let number = self.next;
        self.outstanding.insert(number, (now, stamp));
        self.next += 1;
        self.offered += u64::from(MSS);
        self.pacer.sent(MSS, now);
        self.prr.on_sent(MSS);
        number
    }

    fn ack(&mut self, now: u64, packets: &[(u64, bool)]) {
        let before = self.in_flight();
        let is_limited = self.usage.is_limited(&self.control.window);
        let mut sampler = Sampler::default();
        let (mut acked, mut mark, mut newest) = (0, false, None);
        for &(number, marked) in packets {
            // Of others the timer has assumed the loss: nothing is to be learned from them.
            if let Some((sent_ns, stamp)) = self.outstanding.remove(&number) {
                sampler.deliver(&mut self.delivery, &stamp, sent_ns, MSS);
                acked += MSS;
                mark |= marked;
                newest = Some((number, sent_ns));
            }
        }
        let Some((number, sent_ns)) = newest else {
            return;
        };
        let rtt_ns = now - sent_ns;
        self.delivered += u64::from(acked);
        self.rtt.sample(rtt_ns, now);
        self.timer_ns = now + self.rtt.rto_ns();
        let delivery = sampler.finish(&mut self.delivery, now, self.rtt.min_rtt_ns(now));
        let kept = self.outstanding.split_off(&number.saturating_sub(2));
        let lost = std::mem::replace(&mut self.outstanding, kept).len() as u32;
        self.lost += u64::from(lost);
        let una = self.outstanding.keys().next().copied().unwrap_or(self.next);
        self.follow(now, before, acked, lost, mark, una);
        let in_recovery = matches!(self.recovery, Some((_, false)));
        let (snd_una, snd_nxt) = self.sequence();
        self.control.on_ack(&Ack {
            now_ns: now,
            acked_bytes: acked,
            in_flight_bytes: before,
            lost_bytes: lost * MSS,
            snd_una,
            snd_nxt,
            rtt_ns: Some(rtt_ns),
            srtt_ns: self.rtt.srtt_ns().unwrap(),
            is_cwnd_limited: is_limited,
            in_recovery,
            delivery,
        });
        if self.control.algorithm.is_self_limited() {
            self.delivery.on_app_limited(self.in_flight());
        }
        let in_flight = self.in_flight();
        let window = &mut self.control.window;
        if in_recovery && self.control.algorithm.is_by_prr() {
            let target = window.target_bytes();
            let cwnd = self.prr.on_ack(acked, in_flight, target, MSS, lost == 0);
            window.cwnd_bytes = cwnd.unwrap_or(window.cwnd_bytes);
        }
        if window.is_first_slow_start() {
            self.first_peak = self.first_peak.max(window.cwnd_bytes);
        }
        match self.control.algorithm.pacing_rate() {
            Some(rate) => self.pacer.set_rate(rate),
            None => {
                let window = &self.control.window;
                let is_early = window.cwnd_bytes < window.ssthresh_bytes / 2;
                let growth = if is_early {
                    Growth::Doubling
                } else {
                    Growth::Slow
                };
                let srtt = self.rtt.srtt_ns().unwrap();
                self.pacer.set_window(window.cwnd_bytes, srtt, growth);
            }
        }
    }

    /// Begins and ends episodes.
    fn follow(&mut self, now: u64, before: u32, acked: u32, lost: u32, mark: bool, una: u64) {
        if let Some((end, by_timeout)) = self.recovery
            && una >= end
        {
            self.control.on_recovery_end(by_timeout, now);
            self.recovery = None;
            // Its packet was sent before the reduction (RFC 3168 6.1.2: once a window of data).
            return;
        }
        if self.recovery.is_some() || (lost == 0 && !mark) {
            return;
        }
        let signal = if lost > 0 { Signal::Loss } else { Signal::Ecn };
        self.control.on_congestion(signal, before, now);
        self.reductions += 1;
        self.recovery = Some((self.next, false));
        self.prr = Prr::start(Flight {
            outstanding: before,
            sacked: acked,
            newly_sacked: acked,
            newly_acked: 0,
        });
    }
}
