//! Lcores that share a trace's packets, by form of dispatch: who receives each, whose it is, and
//! what both have to do for it.

use linerate_dispatch::owners::{FEW, Loads, MOVES, TOLERANCE};
use linerate_dispatch::{BUCKETS, Move, Owners};
use serde::Serialize;

use super::trace::{Packet, Trace};

/// A form of dispatch, with a NIC in front that has a queue for each lcore that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Form {
    /// One lcore does all.
    None,
    /// Whoever receives it: the NIC's key is symmetric.
    Rss,
    /// A quarter of the lcores receive and hand over to the others.
    Dispatcher,
    /// Each receives, and hands over what is others'.
    Balanced,
    /// The same where all packets come in by one queue, as by a tap or most virtual ports.
    OneQueue,
    /// `Balanced`, and buckets move that make the loads even.
    Rebalanced,
}

impl Form {
    pub(super) const ALL: [Self; 6] = [
        Self::None,
        Self::Rss,
        Self::Dispatcher,
        Self::Balanced,
        Self::OneQueue,
        Self::Rebalanced,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rss => "rss",
            Self::Dispatcher => "dispatcher",
            Self::Balanced => "balanced",
            Self::OneQueue => "balanced, one queue",
            Self::Rebalanced => "balanced, rebalance",
        }
    }

    /// Whether so many lcores can have it.
    pub(super) fn takes(self, lcores: usize) -> bool {
        match self {
            Self::None => lcores == 1,
            Self::Dispatcher => lcores > 1,
            _ => true,
        }
    }

    /// Lcores that receive and own nothing.
    fn receivers(self, lcores: usize) -> usize {
        match self {
            Self::Dispatcher => (lcores / 4).max(1),
            _ => 0,
        }
    }

    /// Whether packets have a bucket and an owner.
    fn hands_over(self) -> bool {
        !matches!(self, Self::None | Self::Rss)
    }
}

/// What is done for a packet, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Costs {
    /// Who receives it: rx, parse, validate.
    pub(super) receive: u64,
    /// The same, where packets are handed over: which bucket.
    pub(super) classify: u64,
    /// Who owns it, and another has received it: through the ring, and parsed once more.
    pub(super) hop: u64,
    /// Who owns it: flow, route, rewrite, tx.
    pub(super) flow: u64,
    /// The same, of a flow's first packet.
    pub(super) first: u64,
}

/// How the trace is replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    pub(super) costs: Costs,
    /// Between two packets; `None`: as in the capture.
    pub(super) gap_ns: Option<u64>,
    /// Between two looks at the loads.
    pub(super) interval_ns: u64,
    /// How many intervals: the trace is repeated until then.
    pub(super) intervals: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Outcome {
    pub(super) form: Form,
    pub(super) lcores: usize,
    pub(super) packets: u64,
    /// Packets that another lcore than their owner has received.
    pub(super) hops: u64,
    /// The busiest owner's packets over the mean of all owners, in the second half.
    pub(super) imbalance: f64,
    /// The busiest lcore's cycles over the mean of all, in the second half.
    pub(super) imbalance_cycles: f64,
    /// How many times the packets of one lcore alone they can take: what that would have to do over
    /// what the busiest has to do, in the second half.
    pub(super) speedup: f64,
    pub(super) moves: u64,
    pub(super) moves_per_s: f64,
}

/// The lcores at work.
struct Lcores {
    form: Form,
    count: usize,
    /// Those before the owners.
    receivers: usize,
    owners: Owners,
    packets: Vec<u64>,
    cycles: Vec<u64>,
    /// What one lcore alone would have to do.
    alone: u64,
    hops: u64,
    /// Of each bucket, since the last look.
    loads: Box<Loads>,
}

impl Lcores {
    fn new(form: Form, count: usize) -> Self {
        let receivers = form.receivers(count);
        Self {
            form,
            count,
            receivers,
            owners: Owners::dealt(count - receivers),
            packets: vec![0; count],
            cycles: vec![0; count],
            alone: 0,
            hops: 0,
            loads: Box::new([0; BUCKETS]),
        }
    }

    /// Who receives a packet, and whose it is.
    fn of(&self, packet: &Packet) -> (usize, usize) {
        let polling = match self.receivers {
            0 => self.count,
            some => some,
        };
        let receiver = match self.form {
            Form::None | Form::OneQueue => 0,
            Form::Rss => usize::from(packet.symmetric) % polling,
            _ => usize::from(packet.entry) % polling,
        };
        let owner = match packet.flow.filter(|_| self.form.hands_over()) {
            Some((_, bucket)) => self.receivers + usize::from(self.owners.of(bucket)),
            None => receiver,
        };
        (receiver, owner)
    }

    fn handle(&mut self, packet: &Packet, is_first: bool, costs: &Costs) {
        let (receiver, owner) = self.of(packet);
        let own = if is_first { costs.first } else { costs.flow };
        self.alone += costs.receive + own;
        self.packets[owner] += 1;
        self.cycles[receiver] += costs.receive;
        self.cycles[owner] += own;
        if !self.form.hands_over() {
            return;
        }
        if let Some((_, bucket)) = packet.flow {
            self.loads[usize::from(bucket)] += 1;
            self.cycles[receiver] += costs.classify;
        }
        if owner != receiver {
            self.hops += 1;
            self.cycles[owner] += costs.hop;
        }
    }

    /// What control does once an interval: how many buckets have moved.
    fn rebalance(&mut self) -> u64 {
        let loads = std::mem::replace(&mut self.loads, Box::new([0; BUCKETS]));
        if loads.iter().sum::<u64>() < FEW {
            return 0;
        }
        let workers = self.count - self.receivers;
        let mut moves = 0;
        while moves < MOVES as u64
            && let Some(Move { bucket, to, .. }) = self.owners.next_move(&loads, workers, TOLERANCE)
        {
            self.owners.set(bucket, to);
            moves += 1;
        }
        moves
    }

    /// Counts from now on.
    fn begin(&mut self) {
        self.packets.fill(0);
        self.cycles.fill(0);
        self.alone = 0;
    }
}

/// The busiest over the mean; 1 where there is nothing.
fn imbalance(of: &[u64]) -> f64 {
    let (most, sum) = (
        of.iter().max().copied().unwrap_or(0),
        of.iter().sum::<u64>(),
    );
    match sum {
        0 => 1.0,
        sum => most as f64 * of.len() as f64 / sum as f64,
    }
}

/// Replays a trace.
pub(super) fn replay(trace: &Trace, form: Form, lcores: usize, how: &Replay) -> Outcome {
    let mut all = Lcores::new(form, lcores);
    let mut known = vec![false; trace.flows];
    let (mut packets, mut moves) = (0, 0);
    let end = how.interval_ns * how.intervals;
    let (mut look, mut half) = (how.interval_ns, Some(end / 2));
    // Repeats follow each other as packets do on the average.
    let last = trace.packets.last().map_or(0, |packet| packet.ns);
    let gap = how
        .gap_ns
        .unwrap_or(last / trace.packets.len() as u64)
        .max(1);
    let period = how
        .gap_ns
        .map_or(last + gap, |gap| gap * trace.packets.len() as u64);
    'replay: for repeat in 0.. {
        for (at, packet) in (0..).zip(&trace.packets) {
            let ns = repeat * period + how.gap_ns.map_or(packet.ns, |gap| gap * at);
            if ns >= end {
                break 'replay;
            }
            while ns >= look {
                look += how.interval_ns;
                if form == Form::Rebalanced {
                    moves += all.rebalance();
                }
            }
            if half.is_some_and(|half| ns >= half) {
                half = None;
                all.begin();
            }
            let is_first = packet.flow.is_some_and(|(flow, _)| {
                let known = &mut known[flow as usize];
                !std::mem::replace(known, true)
            });
            all.handle(packet, is_first, &how.costs);
            packets += 1;
        }
    }
    let busiest = all.cycles.iter().max().copied().unwrap_or(0);
    Outcome {
        form,
        lcores,
        packets,
        hops: all.hops,
        imbalance: imbalance(&all.packets[all.receivers..]),
        imbalance_cycles: imbalance(&all.cycles),
        speedup: all.alone as f64 / busiest.max(1) as f64,
        moves,
        moves_per_s: moves as f64 * 1e9 / end.max(1) as f64,
    }
}
