//! Policer: limits what comes in by an interface to its rate.

use linerate_core::packet::Burst;
use linerate_core::run::{Egress, Stage};
use linerate_tables::meter::{Buckets, Color, Profile, SrTcm, SrTcmConfig};
use linerate_wire::ethernet::HEADER_LEN;

use super::change::Change;
use super::context::{Context, Verdict, ones};
use super::settings;

/// Nanoseconds a second: the clock of all meters here.
const HZ: u64 = 1_000_000_000;
/// The longest burst of a policer in bytes, as its meter counts.
const MOST_BURST_BYTES: u64 = 4_000_000_000;
/// The highest rate of one, in bytes a second.
const MOST_RATE: u64 = 1 << 50;
/// A token bucket and its level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    profile: SrTcm,
    buckets: Buckets,
}

impl Meter {
    /// `rate` a second, `burst` at once.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        let (rate, burst) = (rate.clamp(1, MOST_RATE), burst.clamp(1, MOST_BURST_BYTES));
        let profile = SrTcm::new(&SrTcmConfig {
            cir: rate,
            cbs: burst,
            ebs: 0,
            hz: HZ,
        });
        let profile = profile.expect("both are within the meter's bounds");
        Self {
            profile,
            buckets: profile.full(0),
        }
    }

    pub(super) fn passes(&mut self, now_ns: u64, count: u32) -> bool {
        self.profile
            .mark(&mut self.buckets, now_ns, count, Color::Green)
            == Color::Green
    }
}

/// The stage: by interface, its policer with its level.
#[derive(Default)]
pub struct Policer {
    policers: Vec<Option<(settings::Policer, Meter)>>,
}

impl Policer {
    /// Takes over another configuration. Policers of interfaces that keep name and rate go on.
    pub fn install(&mut self, change: &mut Change) {
        for (place, now) in change.interfaces.iter().zip(&mut change.policers) {
            let known = place.and_then(|at| *self.policers.get(at)?);
            if let (Some((policer, meter)), Some((known, used))) = (now, known)
                && *policer == known
            {
                *meter = used;
            }
        }
        std::mem::swap(&mut self.policers, &mut change.policers);
    }
}

impl Stage<Context<'_>> for Policer {
    fn run(&mut self, _: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let packets = &mut *context.packets;
        let at = usize::from(packets.interface.0);
        let Some((_, meter)) = self.policers.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let traffic = context.installed.counters.at(at);
        let mut live = packets.live;
        for index in ones(live) {
            let bytes = packets.parsed.end[index] - HEADER_LEN as u32;
            if !meter.passes(context.view.now_ns, bytes) {
                packets.judge(index, Verdict::Drop(context.reasons.policed));
                if let Some(traffic) = traffic {
                    traffic.policed.add(1);
                }
                live &= !(1 << index);
            }
        }
        packets.keep(live);
    }
}
