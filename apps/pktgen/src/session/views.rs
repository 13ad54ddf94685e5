//! Snapshots: the state of a session, from counters read on each lcore between two turns.

use std::collections::HashMap;
use std::time::Duration;

use linerate_core::env::{Clock, ClockSource};
use linerate_core::run::HistogramSnapshot;

use super::rates::{Count, Series};
use super::sample::{ReceiverCount, Sample, SenderCount, SentCount};
use super::streams::OpenStream;
use super::{Activity, LAST_DRAIN, PortState, QUIET, Session};
use crate::engine::{Found, StreamReceived};
use crate::snapshot::{
    Latency, LcoreView, PortView, QueueView, Snapshot, Spread, StreamView, Tally, TemplateView,
    VERSION, clock_text,
};
use crate::units::Rate;

/// All counts since `clear`, lcore by lcore.
struct Counts {
    lcores: Vec<Sample>,
    /// By the number on the wire.
    sent: HashMap<u16, SentCount>,
    cleared_at: u64,
    /// Whether any port has something left to send.
    is_sending: bool,
}

impl Session {
    /// All counts, at one moment.
    pub fn snapshot(&mut self) -> Snapshot {
        self.watch_links();
        self.hear();
        self.read_lcores();
        self.read_done();
        self.measure_paces();
        let counts = self.counts();
        let now = self.clock.now();
        self.meter.take(now, self.series(&counts));
        let (clock_mhz, clock_error_ppm) = match self.clock.source() {
            ClockSource::Tsc { mhz, error_ppm } => (mhz, error_ppm),
            ClockSource::Monotonic { .. } => (self.clock.hz() / 1e6, 0.0),
        };
        let streams: Vec<StreamView> = self
            .streams
            .iter()
            .filter(|stream| !stream.is_removed)
            .map(|stream| self.stream_view(stream, &counts))
            .collect();
        let homes = self.homes(&counts);
        let ports: Vec<PortView> = (0..self.port_count())
            .map(|port| self.port_view(port, &counts, &streams, &homes))
            .collect();
        Snapshot {
            version: VERSION,
            profile: self.profile.clone(),
            epoch: self.epoch,
            since_clear_ns: self.clock.ns(now.saturating_sub(self.cleared_at)),
            interval_ns: self.clock.ns(self.meter.interval()),
            clock: clock_text(&self.clock),
            clock_error_ppm,
            clock_mhz,
            seed: self.seed,
            session: self.number,
            ports,
            streams,
            lcores: self.lcore_views(),
            sending: self
                .ports
                .iter()
                .any(|port| matches!(port.activity, Activity::Sending { .. })),
            settled: self.is_settled(),
            invalid: self.invalid.clone(),
            log: self.log.lines(),
        }
    }

    /// Test frames since `clear`: sent, received, and received for the first time.
    pub(super) fn test_frames(&self) -> (u64, u64, u64) {
        let counts = self.counts();
        let (mut sent, mut received, mut unique) = (0, 0, 0);
        for stream in self.streams.iter().filter(|stream| stream.is_tested()) {
            sent += counts.sent(stream).packets;
            let came = counts.arrivals(stream, |_| true);
            received += came.received();
            unique += came.unique;
        }
        (sent, received, unique)
    }

    fn counts(&self) -> Counts {
        let is_sending = |port: &PortState| matches!(port.activity, Activity::Sending { .. });
        let lcores: Vec<Sample> = self
            .lcores
            .iter()
            .map(|member| member.last.since(&member.base))
            .collect();
        let sent = lcores.iter().flat_map(|lcore| lcore.sent.iter().copied());
        Counts {
            sent: sent.collect(),
            lcores,
            cleared_at: self.cleared_at,
            is_sending: self.ports.iter().any(is_sending),
        }
    }

    /// Counts to compute rates of.
    fn series(&self, counts: &Counts) -> HashMap<Series, Count> {
        let mut all = HashMap::new();
        for (number, port) in (0u16..).zip(&self.ports) {
            for (queue, count) in (0u16..).zip(counts.rx(port)) {
                all.insert(Series::Rx(number, queue), count);
            }
            for (queue, count) in (0u16..).zip(counts.tx(port)) {
                all.insert(Series::Tx(number, queue), count);
            }
        }
        for shard in self.streams.iter().flat_map(|stream| &stream.shards) {
            let sent = counts.sent.get(&shard.wire).copied().unwrap_or_default();
            let count = Count {
                ticks: counts.sending_ticks(&self.ports[usize::from(shard.port)], shard.queue),
                packets: sent.packets,
                bytes: sent.bytes,
            };
            all.insert(Series::Sent(shard.wire), count);
        }
        for (lcore_number, lcore) in (0u16..).zip(&counts.lcores) {
            for (index, receiver) in (0u16..).zip(&lcore.receivers) {
                for (wire, stream) in (0u16..).zip(&receiver.streams) {
                    let count = Count {
                        ticks: counts.receiving_ticks(lcore, receiver),
                        packets: stream.received(),
                        bytes: 0,
                    };
                    all.insert(Series::Received(wire, lcore_number, index), count);
                }
            }
        }
        all
    }

    /// Measures how far the rates of sending ports are off what was asked.
    pub(super) fn measure_paces(&mut self) {
        let hz = self.clock.hz();
        for number in 0..self.ports.len() {
            let port = &self.ports[number];
            let (Some(mut pace), true) = (port.pace, port.asked_pps > 0.0) else {
                continue;
            };
            let until = match port.activity {
                Activity::Sending { until, .. } => until,
                // The measurement ends with the sending, if that has ended.
                Activity::Done if pace.until != u64::MAX => pace.until,
                Activity::Done | Activity::Idle => continue,
            };
            let (mut sent, mut now) = (0, u64::MAX);
            for &(lcore, sender) in &port.senders {
                let last = &self.lcores[lcore].last;
                sent += last.senders[sender].packets;
                now = now.min(last.at);
            }
            let seconds = now.min(until).saturating_sub(pace.from) as f64 / hz;
            let expected = port.asked_pps * seconds;
            if expected < 1.0 {
                continue;
            }
            let scheduled: usize = self
                .streams
                .iter()
                .filter(|stream| usize::from(stream.port) == number && stream.is_enabled())
                .map(|stream| stream.shards.len())
                .sum();
            let off = sent.saturating_sub(pace.packets) as f64 - expected;
            // Frames are whole.
            let off = if off.abs() <= scheduled as f64 {
                0.0
            } else {
                off
            };
            pace.error_ppm = Some(off / expected * 1e6);
            self.ports[number].pace = Some(pace);
        }
    }

    /// The port at which each stream comes in: where most of it came; if none came, where other
    /// streams of the same port come in, or the port that it is paired with.
    fn homes(&self, counts: &Counts) -> HashMap<u16, u16> {
        let arrivals = |stream: &OpenStream| {
            let came = |port: u16| {
                let receivers = &self.ports[usize::from(port)].receivers;
                counts
                    .arrivals(stream, |place| receivers.contains(&place))
                    .received()
            };
            let best = (0..self.port_count()).max_by_key(|&port| (came(port), u16::MAX - port));
            best.filter(|&port| came(port) > 0)
        };
        let mut homes: HashMap<u16, u16> = HashMap::new();
        let mut by_port: HashMap<u16, u16> = HashMap::new();
        for stream in &self.streams {
            if let Some(home) = arrivals(stream) {
                homes.insert(stream.id, home);
                by_port.entry(stream.port).or_insert(home);
            }
        }
        for stream in &self.streams {
            let pair = stream.port ^ 1;
            let paired = if pair < self.port_count() {
                pair
            } else {
                stream.port
            };
            let home = by_port.get(&stream.port).copied().unwrap_or(paired);
            homes.entry(stream.id).or_insert(home);
        }
        homes
    }

    fn stream_view(&self, stream: &OpenStream, counts: &Counts) -> StreamView {
        let sent = counts.sent(stream);
        let came = counts.arrivals(stream, |_| true);
        let (mut tx_pps, mut rx_pps, mut mean_pps) = (0.0, 0.0, 0.0);
        let mut latency = HistogramSnapshot::default();
        for shard in &stream.shards {
            tx_pps += self.meter.speed(Series::Sent(shard.wire)).pps;
            let ticks = counts.sending_ticks(&self.ports[usize::from(shard.port)], shard.queue);
            let packets = counts.sent.get(&shard.wire).map_or(0, |sent| sent.packets);
            if ticks > 0 {
                mean_pps += packets as f64 * self.clock.hz() / ticks as f64;
            }
            for (lcore_number, member) in (0u16..).zip(&self.lcores) {
                for (index, receiver) in (0u16..).zip(&member.books.receivers) {
                    let series = Series::Received(shard.wire, lcore_number, index);
                    rx_pps += self.meter.speed(series).pps;
                    let known = receiver
                        .iter()
                        .filter(|stats| usize::from(shard.wire) < stats.streams());
                    known.for_each(|stats| latency.merge(&stats.stream_latency(shard.wire)));
                }
            }
        }
        StreamView {
            id: stream.id,
            name: stream.spec.name.clone().unwrap_or_default(),
            port: stream.port,
            enabled: stream.is_enabled(),
            line: stream.spec.to_string(),
            template: stream.template.clone(),
            rate: stream
                .spec
                .rate
                .map_or_else(|| "max".into(), |rate| rate.to_string()),
            tested: stream.is_tested(),
            tx_pps,
            mean_pps,
            rx_pps,
            unsent: sent.unsent,
            tally: counts.tally(stream, self.has_settled(stream.port)),
            latency: Latency::of_ticks(&latency, &came, &self.clock),
        }
    }

    /// Whether no test frame is under way, by the counts that were last read.
    pub(super) fn is_settled(&self) -> bool {
        let (sent, _, unique) = self.test_frames();
        let all_came = unique >= sent;
        (0..self.port_count()).all(|port| {
            let activity = self.ports[usize::from(port)].activity;
            let is_sending = matches!(activity, Activity::Sending { .. });
            !is_sending && (all_came || self.has_settled(port))
        })
    }

    /// Whether test frames of a port that have not come yet will not come.
    fn has_settled(&self, port: u16) -> bool {
        if self.is_over {
            return true;
        }
        let port = &self.ports[usize::from(port)];
        if matches!(port.activity, Activity::Sending { .. }) {
            return false;
        }
        let sender = |&(lcore, index): &(usize, usize)| &self.lcores[lcore].books.senders[index];
        let ended = port.senders.iter().map(|place| sender(place).ended.read());
        let ended = ended.max().unwrap_or(0);
        let receivers = self.lcores.iter().flat_map(|lcore| &lcore.last.receivers);
        let came = receivers
            .map(|receiver| receiver.last_at)
            .max()
            .unwrap_or(0);
        let now = self.clock.now();
        let longer = |since: u64, time: Duration| {
            now.saturating_sub(since) > self.clock.ticks(time.as_nanos() as u64)
        };
        longer(ended.max(came), QUIET) || longer(ended, LAST_DRAIN)
    }

    fn port_view(
        &self,
        number: u16,
        counts: &Counts,
        streams: &[StreamView],
        homes: &HashMap<u16, u16>,
    ) -> PortView {
        let (state, open) = (
            &self.ports[usize::from(number)],
            &self.opened.ports[usize::from(number)],
        );
        let mine: Vec<&OpenStream> = self.of_port(number).collect();
        let receivers: Vec<_> = state
            .receivers
            .iter()
            .map(|&(lcore, index)| &counts.lcores[lcore].receivers[index])
            .collect();
        let sum = |read: fn(&ReceiverCount) -> u64| -> u64 {
            receivers.iter().map(|receiver| read(receiver)).sum()
        };
        let mut here = Tally::default();
        let mut came = StreamReceived::default();
        for stream in &self.streams {
            came.merge(&counts.arrivals(stream, |place| state.receivers.contains(&place)));
        }
        here.received = came.received();
        here.duplicates = came.duplicates;
        here.reordered = came.reordered;
        for stream in streams
            .iter()
            .filter(|stream| homes.get(&stream.id) == Some(&number))
        {
            here.sent += stream.tally.sent;
            here.lost += stream.tally.lost;
        }
        let mut latency = HistogramSnapshot::default();
        for &(lcore, index) in &state.receivers {
            let all = &self.lcores[lcore].books.receivers[index];
            all.iter().for_each(|stats| latency.merge(&stats.latency()));
        }
        let books = state.receivers.iter();
        let books = books.flat_map(|&(lcore, index)| &self.lcores[lcore].books.receivers[index]);
        let found: Vec<&Found> = books.map(|stats| &stats.found).collect();
        let mut departures = HistogramSnapshot::default();
        for &(lcore, index) in &state.senders {
            let member = &self.lcores[lcore];
            let now = member.books.senders[index].departure_error.snapshot();
            departures.merge(&match member.departures.get(index) {
                Some(base) => now.since(base),
                None => now,
            });
        }
        let sent = counts.senders(state);
        let stats = open.port.stats();
        let pool = self.pools.primary();
        let cached: u64 = counts.lcores.iter().map(|lcore| lcore.free).sum();
        let asked = &state.asked;
        let (word, reason) = self.state(number, &mine);
        PortView {
            number,
            name: open.name.clone(),
            kind: open.info.kind.into(),
            device: open.info.name.clone(),
            numa_node: open.info.numa_node,
            facts: open
                .info
                .facts
                .iter()
                .map(|(key, value)| ((*key).into(), value.clone()))
                .collect(),
            link_up: state.down.is_none(),
            link_reason: state.down.clone().unwrap_or_default(),
            speed_bps: asked.speed_bps,
            state: word,
            state_reason: reason,
            flags: flags(state, &mine),
            addrs: asked.addrs.iter().map(ToString::to_string).collect(),
            answers: state.help.answers(),
            rx: self
                .meter
                .traffic(number, true, counts.rx(state).into_iter()),
            tx: self
                .meter
                .traffic(number, false, counts.tx(state).into_iter()),
            broadcast: sum(|receiver| receiver.broadcast),
            multicast: sum(|receiver| receiver.multicast),
            sizes: std::array::from_fn(|class| {
                receivers.iter().map(|receiver| receiver.sizes[class]).sum()
            }),
            runts: sum(|receiver| receiver.runts),
            arp: sum(|receiver| receiver.arp),
            icmp: sum(|receiver| receiver.icmp),
            foreign: sum(|receiver| receiver.foreign),
            rx_drops: drops(&stats.rx_drops, &state.base.rx_drops),
            tx_drops: drops(&stats.tx_drops, &state.base.tx_drops),
            faults: drops(&stats.faults, &state.base.faults),
            rate: self.rate(asked.rate, state.asked_pps, &mine),
            asked_pps: state.asked_pps,
            unsent: mine.iter().map(|stream| counts.sent(stream).unsent).sum(),
            rate_error_ppm: state.pace.and_then(|pace| pace.error_ppm),
            count: state.count,
            tx_burst: asked.tx_burst.unwrap_or(64),
            rx_burst: asked.rx_burst.unwrap_or(64),
            rx_queues: state.receivers.len() as u16,
            tx_queues: state.senders.len() as u16,
            template: together(mine.iter().map(|stream| &stream.template)),
            tally: here,
            latency: Latency::of_ticks(&latency, &came, &self.clock),
            earlier: came.earlier,
            corrupt: (asked.verify).then(|| found.iter().map(|found| found.corrupt.read()).sum()),
            flows: Found::flows(found.iter().copied()).filter(|_| asked.verify),
            departure_error: spread_of(&departures, &self.clock),
            tx_ticks_per_packet: per_packet(sent.busy_ticks, sent.packets),
            rx_ticks_per_packet: per_packet(
                sum(|receiver| receiver.busy_ticks),
                sum(|receiver| receiver.packets),
            ),
            pool_free: u64::from(pool.stats().free_shared) + cached,
            pool_slots: pool.slots().into(),
            queues: self.queue_views(number, counts),
        }
    }

    /// The name of the state, and the reason where nothing is sent.
    fn state(&self, number: u16, streams: &[&OpenStream]) -> (String, String) {
        let port = &self.ports[usize::from(number)];
        let dead = |&(lcore, _): &(usize, usize)| {
            let thread = self.lcores[lcore].thread.as_ref();
            thread.is_some_and(|thread| thread.is_finished())
        };
        if port.senders.iter().chain(&port.receivers).any(dead) {
            return ("failed".into(), "its lcore has died".into());
        }
        match port.activity {
            Activity::Sending { .. } => match &port.down {
                Some(reason) => ("failed".into(), reason.clone()),
                None => ("sending".into(), String::new()),
            },
            Activity::Done => ("done".into(), String::new()),
            Activity::Idle => {
                let reason = match streams {
                    [] => "no stream",
                    all if !all.iter().any(|stream| stream.is_enabled()) => "no enabled stream",
                    _ => "",
                };
                ("idle".into(), reason.into())
            }
        }
    }

    /// The asked rate, as a user writes it.
    fn rate(&self, of_port: Option<Rate>, asked_pps: f64, streams: &[&OpenStream]) -> String {
        let own = match streams {
            [only] => only.spec.rate,
            _ => None,
        };
        let rate = own.or(of_port).unwrap_or(match asked_pps > 0.0 {
            true => Rate::Pps(asked_pps),
            false => Rate::Max,
        });
        rate.to_string()
    }

    fn queue_views(&self, number: u16, counts: &Counts) -> Vec<QueueView> {
        let port = &self.ports[usize::from(number)];
        let lcore = |place: (usize, usize)| self.map.lcores[place.0].name.clone();
        let rx = (0..).zip(counts.rx(port)).zip(&port.receivers);
        let rx = rx.map(|((queue, count), &place)| QueueView {
            direction: "rx".into(),
            queue,
            lcore: lcore(place),
            packets: count.packets,
            bytes: count.bytes,
            pps: self.meter.speed(Series::Rx(number, queue)).pps,
            ..QueueView::default()
        });
        let tx = (0..).zip(counts.tx(port)).zip(&port.senders);
        let tx = tx.map(|((queue, count), &place)| {
            let sender = &counts.lcores[place.0].senders[place.1];
            QueueView {
                direction: "tx".into(),
                queue,
                lcore: lcore(place),
                packets: count.packets,
                bytes: count.bytes,
                pps: self.meter.speed(Series::Tx(number, queue)).pps,
                refused: sender.refused,
                no_slot: sender.no_slot,
            }
        });
        rx.chain(tx).collect()
    }

    fn lcore_views(&self) -> Vec<LcoreView> {
        let view = |(share, member): (&super::map::Share, &super::Member)| {
            let load = member.last.load;
            let all = (load.busy + load.idle + load.asleep).max(1) as f64;
            LcoreView {
                name: share.name.clone(),
                cpu: share.cpu,
                work: share.work(),
                busy_share: load.busy as f64 / all,
                asleep_share: load.asleep as f64 / all,
                gaps: load.gaps,
                longest_gap_ns: self.clock.ns(load.longest_gap),
                gaps_ns: self.clock.ns(load.gaps_sum),
            }
        };
        self.map.lcores.iter().zip(&self.lcores).map(view).collect()
    }
}

impl Counts {
    fn rx(&self, port: &PortState) -> Vec<Count> {
        let count = |&(lcore, index): &(usize, usize)| {
            let lcore = &self.lcores[lcore];
            Count {
                ticks: self.receiving_ticks(lcore, &lcore.receivers[index]),
                packets: lcore.receivers[index].packets,
                bytes: lcore.receivers[index].bytes,
            }
        };
        port.receivers.iter().map(count).collect()
    }

    fn tx(&self, port: &PortState) -> Vec<Count> {
        let count = |&(lcore, index): &(usize, usize)| {
            let sender = &self.lcores[lcore].senders[index];
            Count {
                ticks: sender.sending_ticks,
                packets: sender.packets,
                bytes: sender.bytes,
            }
        };
        port.senders.iter().map(count).collect()
    }

    /// Since `clear`, the time in which a transmit queue was sending.
    fn sending_ticks(&self, port: &PortState, queue: u16) -> u64 {
        let place = port.senders.get(usize::from(queue));
        let sender = place.and_then(|&(lcore, index)| self.lcores[lcore].senders.get(index));
        sender.map_or(0, |sender| sender.sending_ticks)
    }

    /// Since `clear`, the time in which a receive queue could have received. It ends with the last
    /// test frame where nothing is sent any more, and begins with the first one, if any has come.
    fn receiving_ticks(&self, lcore: &Sample, receiver: &ReceiverCount) -> u64 {
        let ReceiverCount {
            first_at, last_at, ..
        } = *receiver;
        let end = match self.is_sending || last_at == 0 {
            true => lcore.at,
            false => last_at.min(lcore.at),
        };
        end.saturating_sub(first_at.max(self.cleared_at))
    }

    fn senders(&self, port: &PortState) -> SenderCount {
        let mut sum = SenderCount::default();
        for &(lcore, index) in &port.senders {
            let sender = &self.lcores[lcore].senders[index];
            sum.packets += sender.packets;
            sum.busy_ticks += sender.busy_ticks;
        }
        sum
    }

    fn sent(&self, stream: &OpenStream) -> SentCount {
        let mut sum = SentCount::default();
        for shard in &stream.shards {
            let sent = self.sent.get(&shard.wire).copied().unwrap_or_default();
            sum.packets += sent.packets;
            sum.bytes += sent.bytes;
            sum.unsent += sent.unsent;
            sum.intended += sent.intended;
        }
        sum
    }

    /// Counts of a number on the wire at the receivers (lcore and index) that `at` selects.
    fn received(&self, wire: u16, at: impl Fn((usize, usize)) -> bool) -> StreamReceived {
        let mut sum = StreamReceived::default();
        for (number, lcore) in self.lcores.iter().enumerate() {
            for (index, receiver) in lcore.receivers.iter().enumerate() {
                let came = receiver.streams.get(usize::from(wire));
                if let Some(came) = came.filter(|_| at((number, index))) {
                    sum.merge(came);
                }
            }
        }
        sum
    }

    /// The same over all shards of a stream; sequence numbers have no meaning then.
    fn arrivals(&self, stream: &OpenStream, at: impl Fn((usize, usize)) -> bool) -> StreamReceived {
        let mut sum = StreamReceived::default();
        for shard in &stream.shards {
            sum.merge(&self.received(shard.wire, &at));
        }
        sum
    }

    fn tally(&self, stream: &OpenStream, is_settled: bool) -> Tally {
        let mut sum = Tally::default();
        for shard in &stream.shards {
            let sent = self.sent.get(&shard.wire).copied().unwrap_or_default();
            let part = self
                .received(shard.wire, |_| true)
                .tally(Some(sent.packets), is_settled);
            sum.sent += part.sent;
            sum.received += part.received;
            // Unknown for frames without a signature.
            sum.lost += if stream.is_tested() { part.lost } else { 0 };
            sum.reordered += part.reordered;
            sum.duplicates += part.duplicates;
        }
        sum
    }
}

fn per_packet(ticks: u64, packets: u64) -> f64 {
    match packets {
        0 => 0.0,
        packets => ticks as f64 / packets as f64,
    }
}

/// Drops since an earlier reading, without zeros.
fn drops(now: &[(&'static str, u64)], before: &[(&'static str, u64)]) -> Vec<(String, u64)> {
    let earlier = |name: &str| {
        let found = before.iter().find(|(other, _)| *other == name);
        found.map_or(0, |(_, count)| *count)
    };
    now.iter()
        .map(|&(name, count)| (name.to_string(), count.saturating_sub(earlier(name))))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Letters for what is on: echoes and ARP answered, checksums looked at, latency measured, a
/// capture, random fields, several streams, VLAN tags.
fn flags(port: &PortState, streams: &[&OpenStream]) -> String {
    let letter = |letter: char, is_set: bool| if is_set { letter } else { '-' };
    let any = |test: fn(&OpenStream) -> bool| streams.iter().any(|stream| test(stream));
    [
        letter('E', port.help.is_on()),
        letter('C', port.asked.verify),
        letter('L', any(|stream| stream.is_enabled() && stream.is_tested())),
        letter('p', any(|stream| stream.spec.pcap.is_some())),
        letter(
            'R',
            any(|stream| stream.spec.to_string().contains("=random")),
        ),
        letter('S', streams.len() > 1),
        letter('V', any(|stream| !stream.template.vlan.is_empty())),
    ]
    .iter()
    .collect()
}

/// What the templates of several streams have in common: of each field the first one's value, and
/// how many others there are.
fn together<'a>(templates: impl Iterator<Item = &'a TemplateView>) -> TemplateView {
    let all: Vec<&TemplateView> = templates.collect();
    let field = |of: fn(&TemplateView) -> &String| {
        let Some(first) = all.first().map(|template| of(template)) else {
            return String::new();
        };
        let mut others: Vec<&String> = all.iter().map(|template| of(template)).collect();
        others.sort_unstable();
        others.dedup();
        match others.len() - 1 {
            0 => first.clone(),
            more => format!("{first} +{more}"),
        }
    };
    TemplateView {
        dst_mac: field(|template| &template.dst_mac),
        src_mac: field(|template| &template.src_mac),
        dst_ip: field(|template| &template.dst_ip),
        src_ip: field(|template| &template.src_ip),
        src_port: field(|template| &template.src_port),
        dst_port: field(|template| &template.dst_port),
        kind: field(|template| &template.kind),
        vlan: field(|template| &template.vlan),
        size: field(|template| &template.size),
        pattern: field(|template| &template.pattern),
    }
}

fn spread_of(ticks: &HistogramSnapshot, clock: &Clock) -> Spread {
    let ns = |ticks: u64| ticks as f64 * 1e9 / clock.hz();
    Spread {
        samples: ticks.total,
        p50_ns: ns(ticks.percentile(50.0)),
        p99_ns: ns(ticks.percentile(99.0)),
        max_ns: ns(ticks.max),
    }
}
