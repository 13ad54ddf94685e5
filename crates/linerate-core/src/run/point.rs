//! Named points of a pipeline: where packets are counted, taps see them, time is measured, and
//! accounts are kept.
//!
//! [`named`] puts a [`Point`] around a stage. A stage that has packets at more than one place, or
//! one by one, owns further points and shows them what passes ([`Point::see_one`],
//! [`Point::see_burst`]). Without a tap or a measurement, a point costs a few additions and two
//! predicted branches for each burst.

use super::egress::Egress;
use super::stage::{BurstContext, Stage};
use crate::env::ticks;
use crate::packet::{Burst, Packet};

/// A packet that comes to a named point of a pipeline.
#[derive(Debug)]
pub struct Passing<'a> {
    /// The point's name.
    pub stage: &'static str,
    /// The port that the packet came from or goes to.
    pub port: u16,
    /// Why it is dropped, where it is; else empty.
    pub reason: &'a str,
    /// The packet.
    pub packet: &'a Packet,
}

/// Sees the packets that come to a named point of a pipeline, one by one. It must neither block nor
/// wait.
pub type Tap = Box<dyn FnMut(&Passing<'_>) + Send>;

/// Ticks from which on a burst or round is no part of a measurement: a third of a millisecond or
/// more, which no stage takes for a burst. Another thread had the CPU.
pub(super) const TAKEN: u64 = 1 << 20;

/// A named point of a pipeline.
pub struct Point {
    /// The stage's name.
    pub name: &'static str,
    /// Packets that came to the stage.
    pub packets: u64,
    /// Packets that came and neither went on, nor were sent, dropped or kept; below 0: more went
    /// than came, so a stage did not count what it [made](Egress::made).
    pub unaccounted: i64,
    /// Packets that came while time was measured.
    pub measured_packets: u64,
    /// Ticks of the time stamp counter that the stage took for them.
    pub measured_ticks: u64,
    /// Whether anybody listens or measures: the one thing that is looked at for each burst.
    is_watched: bool,
    is_measured: bool,
    /// When the measurement ends, in ticks.
    until: u64,
    /// By the numbers that they go by.
    taps: Vec<(u64, Tap)>,
}

impl Point {
    /// A point without taps.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            packets: 0,
            unaccounted: 0,
            measured_packets: 0,
            measured_ticks: 0,
            is_watched: false,
            is_measured: false,
            until: 0,
            taps: Vec::new(),
        }
    }

    /// Sets a tap that goes by `id`; one of the same number is replaced.
    pub fn set_tap(&mut self, id: u64, tap: Tap) {
        self.remove_tap(id);
        self.taps.push((id, tap));
        self.is_watched = true;
    }

    /// Takes a tap away.
    pub fn remove_tap(&mut self, id: u64) -> Option<Tap> {
        let at = self.taps.iter().position(|tap| tap.0 == id)?;
        let (_, tap) = self.taps.swap_remove(at);
        self.is_watched = self.is_measured || !self.taps.is_empty();
        Some(tap)
    }

    /// Measures time from now on, for so many ticks; a running measurement is extended. It ends by
    /// itself, so it need not be switched off.
    pub fn measure_for(&mut self, length: u64) {
        let now = ticks();
        if !self.is_measured || now >= self.until {
            (self.measured_packets, self.measured_ticks) = (0, 0);
        }
        self.until = now.saturating_add(length);
        (self.is_measured, self.is_watched) = (true, true);
    }

    /// Counts one packet, and shows it to the taps.
    #[inline]
    pub fn see_one(&mut self, port: u16, packet: &Packet) {
        self.packets += 1;
        if self.is_watched {
            self.show_one(port, packet);
        }
    }

    /// Counts all packets of a burst, and shows them to the taps.
    #[inline]
    pub fn see_burst(&mut self, port: u16, burst: &Burst) {
        self.packets += burst.len() as u64;
        if self.is_watched {
            burst.iter().for_each(|packet| self.show_one(port, packet));
        }
    }

    /// Whether anybody listens or measures.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    #[cold]
    fn show_one(&mut self, port: u16, packet: &Packet) {
        self.show_dropped("", port, packet);
    }

    /// Shows the taps a packet that is dropped for a reason, or that ends in another way, which the
    /// reason names.
    #[cold]
    pub fn show_dropped(&mut self, reason: &str, port: u16, packet: &Packet) {
        let passing = Passing {
            stage: self.name,
            port,
            reason,
            packet,
        };
        self.taps.iter_mut().for_each(|(_, tap)| tap(&passing));
    }

    /// A part of a stage begins its work: what the clock shows, if time is measured.
    #[inline(always)]
    pub fn starts(&self) -> u64 {
        if self.is_measured { ticks() } else { 0 }
    }

    /// It has done with so many packets.
    #[inline(always)]
    pub fn ends(&mut self, began: u64, packets: u64) {
        if self.is_measured {
            self.end(began, packets);
        }
    }

    /// The stage begins to work on the packets of `mask`: what the clock shows, if time is
    /// measured.
    #[cold]
    pub(super) fn begin(&mut self, mask: u64, burst: &Burst) -> u64 {
        if !self.taps.is_empty() {
            for (index, packet) in burst.iter().enumerate() {
                if mask >> index & 1 != 0 {
                    self.show_one(burst.port, packet);
                }
            }
        }
        // Last: what taps take is not the stage's time.
        if self.is_measured { ticks() } else { 0 }
    }

    #[cold]
    pub(super) fn end(&mut self, began: u64, packets: u64) {
        if self.is_measured {
            let now = ticks();
            let took = now.saturating_sub(began);
            if took < TAKEN {
                self.measured_ticks += took;
                self.measured_packets += packets;
            }
            self.is_measured = now < self.until;
            self.is_watched = self.is_measured || !self.taps.is_empty();
        }
    }
}

/// A stage with its point.
pub struct Named<S> {
    point: Point,
    stage: S,
}

/// Gives a stage its name.
pub const fn named<S>(name: &'static str, stage: S) -> Named<S> {
    Named {
        point: Point::new(name),
        stage,
    }
}

impl<S> Named<S> {
    /// The stage itself, to exchange its tables.
    pub fn stage_mut(&mut self) -> &mut S {
        &mut self.stage
    }

    /// The stage itself.
    pub fn stage(&self) -> &S {
        &self.stage
    }

    /// Its point.
    pub fn point(&self) -> &Point {
        &self.point
    }
}

/// Where packets are that this lcore has and the stage may have moved: the sum does not change
/// while a stage runs, but for packets that it loses, or makes without saying so.
#[inline(always)]
fn accounted<C: BurstContext, S: Stage<C>>(
    in_burst: usize,
    stage: &S,
    context: &C,
    out: &Egress,
) -> u64 {
    let kept = context.kept() + stage.held_packets();
    out.taken().wrapping_add(in_burst as u64 + kept)
}

impl<C: BurstContext, S: Stage<C>> Stage<C> for Named<S> {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut C, out: &mut Egress) {
        let mask = context.mask(burst);
        let packets = match mask == burst.mask() {
            true => burst.len() as u64,
            false => mask.count_ones().into(),
        };
        let before = accounted(burst.len(), &self.stage, context, out);
        let mut began = 0;
        if self.point.is_watched {
            began = self.point.begin(mask, burst);
        }
        self.stage.run(burst, context, out);
        if self.point.is_watched {
            self.point.end(began, packets);
        }
        self.point.packets += packets;
        let after = accounted(burst.len(), &self.stage, context, out);
        self.point.unaccounted += before.wrapping_sub(after) as i64;
    }

    #[inline(always)]
    fn turn(&mut self, now: u64, context: &mut C, out: &mut Egress) -> u64 {
        let before = accounted(0, &self.stage, context, out);
        let due = self.stage.turn(now, context, out);
        let after = accounted(0, &self.stage, context, out);
        self.point.unaccounted += before.wrapping_sub(after) as i64;
        due
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        visit(&mut self.point);
        self.stage.points(visit);
    }

    fn held(&self) -> u64 {
        self.stage.held()
    }

    fn held_packets(&self) -> u64 {
        self.stage.held_packets()
    }
}
