//! `statistics`: who carries the most, for `linerate ctl show talkers`.
//!
//! A sketch counts the bytes of both directions for the host that has begun the flow, in fixed
//! memory whatever number of hosts there is ([`linerate_tables::sketch`]). It never ends by itself.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use linerate_tables::TableError;
use linerate_tables::exact::Seed;
use linerate_tables::sketch::{Heavy, HeavyHitters, SketchConfig};

use super::{Given, Kind, Make, Outcome, Service};

/// Counters a row: estimates are at most 0.07% of all bytes too high.
const WIDTH: usize = 4096;

pub(super) const KIND: Kind = Kind {
    name: "statistics",
    is_named: false,
    directions: [true; 2],
    reads_payload: false,
    read: |section| {
        let number = |key, range, usual| {
            let at = section.and_then(|section| section.number::<u32>(key, range));
            at.map_or(usual, |at| at.value)
        };
        Arc::new(Config {
            window_s: number("window", 1..=86_400, 60),
            talkers: number("talkers", 1..=1000, 50),
        })
    },
};

#[derive(Debug, PartialEq)]
struct Config {
    window_s: u32,
    talkers: u32,
}

impl Make for Config {
    fn make(&self) -> Result<Box<dyn Service>, TableError> {
        let config = SketchConfig {
            name: "talkers".into(),
            width: WIDTH,
            listed: self.talkers as usize,
            window: u64::from(self.window_s) * 1_000_000_000,
            seed: Seed::random(),
        };
        Ok(Box::new(Statistics {
            bytes: HeavyHitters::new(&config, 0)?,
        }))
    }

    fn text(&self) -> String {
        let Self { window_s, talkers } = self;
        format!("bytes of the {talkers} hosts that talk most, in windows of {window_s} s")
    }
}

/// The service.
pub struct Statistics {
    bytes: HeavyHitters<16>,
}

/// A host and its bytes, at most.
pub type Talker = (IpAddr, u64);

impl Statistics {
    /// Who talks most in this window, and who did in the last whole one.
    pub fn talkers(&mut self, now_ns: u64) -> [Vec<Talker>; 2] {
        self.bytes.advance(now_ns);
        let talker = |heavy: Heavy<16>| {
            let address = Ipv6Addr::from(heavy.key).to_canonical();
            (address, heavy.estimate)
        };
        let all = [self.bytes.top(), self.bytes.last_top()];
        all.map(|top| top.into_iter().map(talker).collect())
    }
}

impl Service for Statistics {
    fn run(&mut self, given: &mut Given<'_, '_>) {
        self.bytes.advance(given.now_ns());
        given.each(|one| {
            let host = match one.beginner() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            self.bytes.add(&host.octets(), one.ip_len().into());
            Outcome::Keep
        });
    }
}
