//! One transmit queue and the streams that it sends, each frame at its intended time.
//!
//! A turn draws the frames that are due from the schedule ([`super::schedule`]), writes them, and
//! offers them to the queue. Frames that the queue refuses wait, in order and with their intended
//! times, and are offered again in the next turn. A frame that is overdue by more than a limit is
//! given up: it counts as `unsent`, and its sequence number goes to a later frame, so that it does
//! not count as lost in the network. In the end `intended = sent + unsent`, stream by stream.
//!
//! Streams have rates of their own, or share the port's rate by weight. Streams without any limit
//! have no intended times: their frames are stamped when they are first offered, and are never
//! unsent.
//!
//! Time is an argument. A turn does not wait, and handles at most a burst.

mod books;
mod slots;
mod stream;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use linerate_core::packet::{Burst, Pool, PoolCache, RxTemplate};
use linerate_core::port::TxQueue;
use linerate_core::run::Point;

use super::help::Replies;
use super::schedule::{Pace, Pacer, Window, weighted_order};
use books::Departures;
use linerate_appliance::error::Error;
use slots::Slots;

use std::sync::Arc;

pub use books::{SenderStats, StreamSent};
pub use stream::{Content, ScheduledStream};

/// After this long a frame that is still waiting is given up, unless told otherwise.
pub const GIVE_UP_AFTER: Duration = Duration::from_millis(10);
/// Frames of an uneven schedule that one turn gives up at most.
const SKIPPED_A_TURN: u64 = 4096;
/// In the heap: the pacer that streams share.
const SHARED: u32 = u32::MAX;

/// One transmit queue, its streams and their schedule.
pub struct Sender {
    tx: Box<dyn TxQueue>,
    pool: Pool,
    ticks_per_second: f64,
    /// Its streams; indices stay valid.
    pub streams: Vec<ScheduledStream>,
    /// Its counters.
    pub stats: Arc<SenderStats>,
    /// Rate of the streams without one of their own, together.
    shared_pace: Pace,
    shared: Shared,
    /// Next due times: tick and stream, or [`SHARED`], without pacers that have ended.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    slots: Slots,
    burst: Burst,
    departures: Departures,
    /// Replies of the port's responders, one for each receive queue that has one.
    replies: Vec<Replies>,
    window: Window,
    /// Ticks: as [`GIVE_UP_AFTER`].
    limit: u64,
    running: bool,
    /// Number of its port, for taps.
    pub port: u16,
    /// Point for taps: frames offered to the queue.
    point: Point,
    /// How many frames of the burst have been shown there.
    shown: usize,
}

/// The streams that share a rate, in the order in which they take turns.
#[derive(Default)]
struct Shared {
    pacer: Option<Pacer>,
    order: Vec<u32>,
    at: usize,
}

impl Sender {
    /// A sender without streams on the queue `tx`, with frames from `pool`.
    pub fn new(tx: Box<dyn TxQueue>, pool: Pool, ticks_per_second: f64) -> Self {
        let stats = Arc::<SenderStats>::default();
        stats.done.set(1);
        Self {
            tx,
            pool,
            ticks_per_second,
            streams: Vec::new(),
            departures: Departures::new(ticks_per_second),
            stats,
            replies: Vec::new(),
            shared_pace: Pace::even(None),
            shared: Shared::default(),
            due: BinaryHeap::new(),
            slots: Slots::default(),
            burst: Burst::new(),
            window: Window {
                from: 0,
                lasts: None,
                ticks_per_second,
            },
            limit: (GIVE_UP_AFTER.as_secs_f64() * ticks_per_second) as u64,
            running: false,
            port: 0,
            point: Point::new("sent"),
            shown: 0,
        }
    }

    /// Its point for taps.
    pub(super) fn point(&mut self) -> &mut Point {
        &mut self.point
    }

    /// Sets the limit beyond which overdue frames are given up.
    pub fn give_up_after(&mut self, limit: Duration) {
        self.limit = (limit.as_secs_f64() * self.ticks_per_second) as u64;
    }

    /// Slots that it and its queue hold.
    pub(super) fn held(&self) -> i64 {
        let waiting: usize = self.replies.iter().map(Replies::waiting).sum();
        self.tx.held() + (self.burst.len() + waiting) as i64
    }

    /// Sends the replies of these responders from now on, in place of earlier ones.
    pub fn help(&mut self, replies: Vec<Replies>) -> Vec<Replies> {
        std::mem::replace(&mut self.replies, replies)
    }

    /// Sends frames that belong to no stream, unchanged, before all that wait. Returns how many the
    /// queue took; the rest is dropped.
    pub fn send(&mut self, frames: &[Vec<u8>], cache: &mut PoolCache) -> usize {
        let mut burst = Burst::new();
        let room = frames.len().min(Burst::CAPACITY);
        let filled = cache.fill(&self.pool, &mut burst, room);
        let packets = burst.as_packets_mut().iter_mut();
        // A frame that does not fit its slot would be sent empty.
        let all_fit = packets
            .zip(&frames[..filled])
            .all(|(packet, frame)| packet.set_data(frame));
        let sent = match all_fit {
            true => {
                self.point.see_burst(self.port, &burst);
                self.tx.tx_burst(&mut burst, cache)
            }
            false => 0,
        };
        cache.free(&mut burst);
        self.tx.flush(cache);
        sent
    }

    /// Offers the queue at most so many frames at a time, 1 to [`Burst::CAPACITY`].
    pub fn burst_of(&mut self, frames: usize) {
        self.slots.most = frames.clamp(1, Burst::CAPACITY);
    }

    /// Begins all enabled streams at tick `at`; frames are intended for as long as `lasts` (`None`:
    /// no limit). Frames due by the end may still leave until they are overdue by the limit.
    ///
    /// # Errors
    /// Weights that do not fit one order (see [`weighted_order`]).
    pub fn start(&mut self, at: u64, lasts: Option<Duration>) -> Result<(), Error> {
        self.end(at);
        self.window = Window {
            from: at,
            lasts,
            ticks_per_second: self.ticks_per_second,
        };
        for stream in &mut self.streams {
            stream.begin(&self.window);
        }
        self.shared.pacer = Some(Pacer::new(&self.shared_pace, &self.window));
        self.share_out()?;
        self.queue_up();
        self.departures.begin(at);
        self.running = true;
        self.stats.began.set(at);
        self.stats.done.set(0);
        Ok(())
    }

    /// Ends sending at tick `now`: frames that were due and have not left are unsent.
    pub fn stop(&mut self, now: u64) {
        if self.running {
            self.end(now);
        }
    }

    /// Adds a stream; where the sender runs, it begins at tick `now`. Returns its index.
    ///
    /// # Errors
    /// As [`Sender::start`]; then it was not added.
    pub fn add(&mut self, mut stream: ScheduledStream, now: u64) -> Result<usize, Error> {
        if self.running {
            stream.begin(&self.window.rest(now));
        }
        self.streams.push(stream);
        self.reorder().inspect_err(|_| drop(self.streams.pop()))?;
        Ok(self.streams.len() - 1)
    }

    /// Replaces a stream at tick `now`: sequence numbers and counters continue, and sent frames
    /// count. A new rate begins with the frame that is due next.
    ///
    /// # Errors
    /// As [`Sender::start`]; then the old stream has ended, and the new one does not begin.
    pub fn replace(
        &mut self,
        index: usize,
        mut stream: ScheduledStream,
        now: u64,
    ) -> Result<(), Error> {
        let old = &mut self.streams[index];
        let from = old.pacer.as_ref().and_then(Pacer::next);
        stream.succeed(old);
        if self.running {
            stream.go_on(&self.window.rest(from.unwrap_or(now).min(now)));
        }
        *old = stream;
        self.reorder().inspect_err(|_| self.streams[index].left = 0)
    }

    /// Rebuilds the schedule after streams were added or changed.
    fn reorder(&mut self) -> Result<(), Error> {
        if self.running {
            self.share_out()?;
            self.queue_up();
        }
        Ok(())
    }

    /// Sets the common rate of the streams without one of their own, from tick `now` on.
    pub fn share(&mut self, pace: Pace, now: u64) {
        self.shared_pace = pace;
        if self.running {
            let from = self.shared.pacer.as_ref().and_then(Pacer::next);
            let window = self.window.rest(from.unwrap_or(now).min(now));
            self.shared.pacer = Some(Pacer::new(&pace, &window));
            self.queue_up();
        }
    }

    /// The tick at which the next frame is due (0: at once); `None` while nothing is to be sent.
    pub fn next_due(&self) -> Option<u64> {
        if !self.running {
            return None;
        }
        if self.slots.len > 0 || self.sends_what_goes() {
            return Some(0);
        }
        self.due.peek().map(|&Reverse((leaves, _))| leaves)
    }

    /// How long until frames leave that its queue keeps for a time.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.tx.due_in()
    }

    /// Sends frames due at `now`, and replies; returns how many frames were sent.
    #[inline]
    pub fn turn(&mut self, now: u64, cache: &mut PoolCache) -> usize {
        let mut answered = 0;
        for replies in &mut self.replies {
            answered += replies.send(&mut *self.tx, cache, |burst| {
                self.point.see_burst(self.port, burst);
            });
        }
        if !self.running {
            self.tx.flush(cache);
            return answered;
        }
        self.departures.turn(now);
        if self.slots.len > 0 {
            self.give_up(now);
        }
        if self.is_over(now) {
            self.end(now);
            return answered;
        }
        self.draw(now);
        self.write(cache);
        let sent = self.offer(now, cache);
        self.tx.flush(cache);
        if self.slots.len == 0 {
            let next = self.due.peek();
            if next.is_none_or(|&Reverse((leaves, _))| leaves > now) {
                self.departures.caught_up();
            }
            if self.is_over(now) {
                self.end(now);
            }
        }
        sent + answered
    }

    /// Fills the slots with frames that are due: first those with a time, then those without.
    #[inline]
    fn draw(&mut self, now: u64) {
        while let Some(&Reverse((leaves, index))) = self.due.peek() {
            if leaves > now || self.slots.room() == 0 {
                break;
            }
            let overdue = now.saturating_sub(self.limit);
            if leaves < overdue {
                self.skip(index, overdue - 1, SKIPPED_A_TURN);
            }
            // A single stream may send several frames; among others it sends one at a time.
            let most = if self.due.len() == 1 {
                Burst::CAPACITY
            } else {
                1
            };
            let next = self.draw_from(index, now, most);
            if let Some(mut top) = self.due.peek_mut() {
                match next {
                    Some(leaves) => top.0.0 = leaves,
                    None => drop(std::collections::binary_heap::PeekMut::pop(top)),
                }
            }
        }
        if self.slots.room() > 0 && self.sends_what_goes() {
            self.draw_what_goes(now);
        }
    }

    /// Draws up to `most` frames that are due at `now`; returns when the one after them is.
    #[inline]
    fn draw_from(&mut self, index: u32, now: u64, most: usize) -> Option<u64> {
        let slots = &mut self.slots;
        let most = most.min(slots.room());
        let due = |pacer: &Pacer| pacer.next().filter(|&leaves| leaves <= now);
        if index == SHARED {
            let pacer = self.shared.pacer.as_mut()?;
            for _ in 0..most {
                let Some(leaves) = due(pacer) else { break };
                let Some(stream) = next_of(
                    &mut self.shared.order,
                    &mut self.shared.at,
                    &mut self.streams,
                ) else {
                    pacer.end();
                    break;
                };
                self.streams[stream as usize].stats.intended.add(1);
                slots.push(stream, leaves, true);
                pacer.advance();
            }
            return pacer.next();
        }
        let stream = &mut self.streams[index as usize];
        let pacer = stream.pacer.as_mut()?;
        let most = stream.left.min(most as u64) as usize;
        let before = slots.len;
        while slots.len - before < most {
            let Some(leaves) = due(pacer) else { break };
            slots.push(index, leaves, true);
            pacer.advance();
        }
        let drawn = (slots.len - before) as u64;
        stream.stats.intended.add(drawn);
        stream.left -= drawn;
        pacer.next().filter(|_| stream.left > 0)
    }

    /// Whether the shared rate is unlimited, and any stream shares it.
    #[inline]
    fn sends_what_goes(&self) -> bool {
        let pacer = self.shared.pacer.as_ref();
        pacer.is_some_and(Pacer::is_max) && !self.shared.order.is_empty()
    }

    #[inline]
    fn draw_what_goes(&mut self, now: u64) {
        let pacer = self.shared.pacer.as_ref();
        if pacer.and_then(Pacer::next).is_none_or(|from| from > now) || now >= self.window.until() {
            return;
        }
        if let [index] = self.shared.order[..] {
            let stream = &mut self.streams[index as usize];
            let count = stream.left.min(self.slots.room() as u64);
            self.slots.push_alike(index, now, count as usize);
            stream.left -= count;
            if stream.left == 0 {
                self.shared.order.clear();
            }
            return;
        }
        while self.slots.room() > 0 {
            let Shared { order, at, .. } = &mut self.shared;
            let Some(stream) = next_of(order, at, &mut self.streams) else {
                break;
            };
            self.slots.push(stream, now, false);
        }
    }

    /// Writes the frames that were drawn, as far as there are slots in the pool for them.
    #[inline]
    fn write(&mut self, cache: &mut PoolCache) {
        let wanted = self.slots.len - self.slots.written;
        if wanted == 0 {
            return;
        }
        let first = self.slots.written;
        // Most frames of a burst have one length, which is then set with the rest of their
        // metadata.
        let stream = &self.streams[self.slots.stream[first] as usize];
        let template = RxTemplate {
            len: stream.max_len().min(self.pool.room_bytes()) as u32,
            ..RxTemplate::default()
        };
        let filled = cache.fill_with(&self.pool, &mut self.burst, wanted, template);
        if filled < wanted {
            self.stats.no_slot.add(1);
        }
        self.slots.written += filled;
        let mut at = first;
        while at < first + filled {
            let end = self.slots.run(at, first + filled);
            let stream = &mut self.streams[self.slots.stream[at] as usize];
            let packets = &mut self.burst.as_packets_mut()[at..end];
            stream.write(
                packets,
                &self.slots.stamp[at..end],
                &mut self.slots.bytes[at..end],
            );
            at = end;
        }
    }

    /// Offers the written frames to the queue, and counts those that it took.
    #[inline]
    fn offer(&mut self, now: u64, cache: &mut PoolCache) -> usize {
        let offered = self.slots.written;
        if offered == 0 {
            return 0;
        }
        if self.point.is_watched() {
            self.show(offered);
        }
        let went = self.tx.tx_burst(&mut self.burst, cache);
        self.shown = self.shown.saturating_sub(went);
        if went < offered {
            self.stats.refused.add(1);
        }
        let (mut at, mut bytes) = (0, 0);
        while at < went {
            let end = self.slots.run(at, went);
            let stats = &self.streams[self.slots.stream[at] as usize].stats;
            let run_bytes = self.slots.bytes[at..end]
                .iter()
                .map(|&bytes| u64::from(bytes))
                .sum();
            stats.packets.add((end - at) as u64);
            stats.bytes.add(run_bytes);
            // The others were counted as they were drawn.
            stats
                .intended
                .add((end - at) as u64 - self.slots.timed_in(at, end));
            bytes += run_bytes;
            at = end;
        }
        self.departures.record(now, &self.slots, went, &self.stats);
        self.slots.take_front(went);
        self.stats.packets.add(went as u64);
        self.stats.bytes.add(bytes);
        went
    }

    /// Shows those of the first `offered` frames that have not been shown.
    #[cold]
    fn show(&mut self, offered: usize) {
        for packet in &self.burst.as_packets()[self.shown.min(offered)..offered] {
            self.point.see_one(self.port, packet);
        }
        self.shown = offered;
    }

    /// Gives up the waiting frames that are overdue.
    fn give_up(&mut self, now: u64) {
        let late = self.slots.late(now.saturating_sub(self.limit));
        if late != 0 {
            self.abandon(late);
        }
    }

    /// Removes the slots whose bits are set. The others are written anew, since their sequence
    /// numbers change.
    #[cold]
    fn abandon(&mut self, late: u64) {
        let slots = &mut self.slots;
        for &stream in &slots.stream[..slots.written] {
            self.streams[stream as usize].next -= 1;
        }
        slots.written = 0;
        // Rare, so single slots go back to the pool.
        self.burst = Burst::new();
        let mut revived = false;
        for at in (0..slots.len).filter(|at| late >> at & 1 == 1) {
            let stream = &mut self.streams[slots.stream[at] as usize];
            if slots.is_timed(at) {
                stream.stats.unsent.add(1);
                stream.skip(1);
                let made_up = stream.make_up(1);
                revived |= made_up > 0 && stream.left == 0;
                stream.left += made_up;
            }
        }
        slots.retain(!late);
        if revived {
            // Fewer streams than at the start do not make the order longer.
            let _ = self.share_out();
            self.queue_up();
        }
    }

    /// Skips frames that were intended at `horizon` or before: they are unsent.
    fn skip(&mut self, index: u32, horizon: u64, most: u64) {
        if index != SHARED {
            let stream = &mut self.streams[index as usize];
            let left = stream.left.saturating_add(stream.spare);
            let skipped = stream.pacer.as_mut().map_or(0, |pacer| {
                pacer.skip_through(horizon, most_of(pacer, most).min(left))
            });
            let made_up = stream.make_up(skipped);
            stream.left -= skipped - made_up;
            stream.lose(skipped);
            return;
        }
        let Shared {
            pacer: Some(pacer),
            order,
            at,
        } = &mut self.shared
        else {
            return;
        };
        let endless = |stream: &u32| self.streams[*stream as usize].left > u64::MAX >> 1;
        let mut singly = most;
        if pacer.is_even() && !order.is_empty() && order.iter().all(endless) {
            // Whole rounds at once.
            let before = pacer.clone();
            let frames = pacer.skip_through(horizon, u64::MAX);
            let rounds = frames / order.len() as u64;
            *pacer = before;
            pacer.skip_through(horizon, rounds * order.len() as u64);
            for &stream in order.iter() {
                self.streams[stream as usize].lose(rounds);
            }
            singly = frames % order.len() as u64;
        }
        for _ in 0..singly {
            if pacer.next().is_none_or(|leaves| leaves > horizon) {
                break;
            }
            if let Some(&stream) = order.get(*at) {
                // Returned before it is taken, so that the stream stays in the order.
                let stream = &mut self.streams[stream as usize];
                stream.left = stream.left.saturating_add(stream.make_up(1));
            }
            let Some(stream) = next_of(order, at, &mut self.streams) else {
                pacer.end();
                break;
            };
            self.streams[stream as usize].lose(1);
            pacer.advance();
        }
    }

    /// Whether everything asked for has been sent, or cannot be sent any more.
    #[inline]
    fn is_over(&self, now: u64) -> bool {
        if !self.due.is_empty() {
            return now > self.window.until().saturating_add(self.limit);
        }
        match self.slots.len {
            0 => !self.sends_what_goes() || now >= self.window.until(),
            // The remaining frames have no intended time, and the time is over.
            _ => !self.slots.any_timed() && now >= self.window.until(),
        }
    }

    /// Closes the counters at tick `now`.
    #[cold]
    fn end(&mut self, now: u64) {
        if self.running {
            let close = self.closes().max(now);
            let ticks = close.saturating_sub(self.stats.began.read());
            self.stats.sent_ticks.add(ticks);
            self.stats.ended.set(now);
        }
        // Unsent frames are not made up for any more.
        self.streams.iter_mut().for_each(|stream| stream.spare = 0);
        let all = self.slots.all();
        self.abandon(all);
        self.due.clear();
        // A frame due right at the end is due.
        let horizon = now.min(self.window.until());
        if self.running {
            for index in (0..self.streams.len() as u32).chain([SHARED]) {
                let is_max =
                    index == SHARED && self.shared.pacer.as_ref().is_some_and(Pacer::is_max);
                if !is_max {
                    self.skip(index, horizon, u64::MAX);
                }
            }
        }
        self.streams
            .iter_mut()
            .for_each(|stream| stream.pacer = None);
        self.shared = Shared::default();
        self.running = false;
        self.stats.done.set(1);
    }

    /// The end of the last frame's interval over all schedules, if all have ended by themselves.
    fn closes(&self) -> u64 {
        if !self.due.is_empty() || self.sends_what_goes() {
            return 0;
        }
        let pacers = self
            .streams
            .iter()
            .filter_map(|stream| stream.pacer.as_ref());
        let timed = pacers
            .chain(&self.shared.pacer)
            .filter(|pacer| !pacer.is_max());
        let last = timed.map(Pacer::opens).max().unwrap_or(0);
        last.min(self.window.until())
    }

    /// The order of the streams without a rate of their own.
    fn share_out(&mut self) -> Result<(), Error> {
        let weights: Vec<u32> = self.streams.iter().map(ScheduledStream::share).collect();
        let order = weighted_order(&weights).ok_or_else(|| Error::Usage {
            problem: "the streams' weights are too uneven to share a rate".into(),
            fix: format!(
                "give weights that sum to at most {} after division by what they have in common",
                super::schedule::LONGEST_ORDER
            ),
        })?;
        (self.shared.order, self.shared.at) = (order, 0);
        Ok(())
    }

    /// Rebuilds the heap of due times.
    fn queue_up(&mut self) {
        self.due.clear();
        let own = (0..)
            .zip(&self.streams)
            .filter(|(_, stream)| stream.left > 0);
        let own = own.filter_map(|(index, stream)| Some((stream.pacer.as_ref()?.next()?, index)));
        self.due.extend(own.map(Reverse));
        let pacer = self.shared.pacer.as_ref().filter(|pacer| !pacer.is_max());
        if let (Some(leaves), false) = (pacer.and_then(Pacer::next), self.shared.order.is_empty()) {
            self.due.push(Reverse((leaves, SHARED)));
        }
    }
}

/// The stream whose turn it is, of those with frames left; one without frames left leaves the
/// order.
#[inline]
fn next_of(order: &mut Vec<u32>, at: &mut usize, streams: &mut [ScheduledStream]) -> Option<u32> {
    let &stream = order.get(*at)?;
    *at += 1;
    if *at == order.len() {
        *at = 0;
    }
    let left = &mut streams[stream as usize].left;
    *left -= 1;
    if *left == 0 {
        leave(order, at, stream);
    }
    Some(stream)
}

#[cold]
fn leave(order: &mut Vec<u32>, at: &mut usize, gone: u32) {
    *at -= order[..*at]
        .iter()
        .filter(|&&stream| stream == gone)
        .count();
    order.retain(|&stream| stream != gone);
    if *at == order.len() {
        *at = 0;
    }
}

/// Even pacers skip any number at the same cost.
fn most_of(pacer: &Pacer, most: u64) -> u64 {
    if pacer.is_even() { u64::MAX } else { most }
}
