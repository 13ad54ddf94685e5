//! `police:NAME`: flows that share a rate; what is above it is dropped.
//!
//! The meter is that of RFC 2697 without an excess burst, and counts IP packets of both directions.
//! Each worker has one: with several workers that have such flows, their rates add up.

use std::sync::Arc;

use linerate_control::config::words;
use linerate_tables::TableError;
use linerate_tables::meter::{Buckets, Color, Profile, SrTcm, SrTcmConfig};

use super::{Given, Kind, Make, Outcome, Service};

/// Nanoseconds a second: the meter's clock.
const HZ: u64 = 1_000_000_000;
/// What a meter with this clock holds at most.
const MOST_BURST_BYTES: u64 = 4_000_000_000;

pub(super) const KIND: Kind = Kind {
    name: "police",
    is_named: true,
    directions: [true; 2],
    reads_payload: false,
    read: |section| {
        let Some(section) = section else {
            return Arc::new(Config { rate: 1, burst: 1 });
        };
        section.requires("rate", words::RATE);
        let rate = section.read("rate", words::RATE, words::rate);
        section.requires("burst", words::SIZE);
        let burst = section.read("burst", words::SIZE, words::size);
        Arc::new(Config {
            rate: rate.map_or(1, |at| at.value),
            burst: burst.map_or(1, |at| at.value),
        })
    },
};

#[derive(Debug, PartialEq)]
struct Config {
    /// Bits a second.
    rate: u64,
    /// Bytes at once.
    burst: u64,
}

impl Make for Config {
    fn make(&self) -> Result<Box<dyn Service>, TableError> {
        let profile = SrTcm::new(&SrTcmConfig {
            cir: (self.rate / 8).clamp(1, 1 << 50),
            cbs: self.burst.clamp(1, MOST_BURST_BYTES),
            ebs: 0,
            hz: HZ,
        })?;
        let buckets = profile.full(0);
        Ok(Box::new(Police { profile, buckets }))
    }

    fn text(&self) -> String {
        let mbit = self.rate as f64 / 1e6;
        format!("{mbit} Mbit/s, bursts of {} bytes", self.burst)
    }
}

struct Police {
    profile: SrTcm,
    buckets: Buckets,
}

impl Service for Police {
    fn run(&mut self, given: &mut Given<'_, '_>) {
        let now = given.now_ns();
        given.each(|one| {
            let (buckets, bytes) = (&mut self.buckets, one.ip_len());
            match self.profile.mark(buckets, now, bytes, Color::Green) {
                Color::Green => Outcome::Keep,
                _ => {
                    one.note(|| "above the rate of its policer".into());
                    Outcome::Drop
                }
            }
        });
    }
}
