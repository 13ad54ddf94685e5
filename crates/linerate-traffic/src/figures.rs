//! Figures about many frames: their template, their fate, their latency.

use serde::{Deserialize, Serialize};

/// Bounds of the size classes, FCS included, as RFC 2819 counts them: up to 64 (shorter ones are
/// runts as well), 65-127, 128-255, 256-511, 512-1023, 1024-1518, and longer (jumbo).
pub const SIZE_CLASSES: [&str; 7] = [
    "64",
    "65-127",
    "128-255",
    "256-511",
    "512-1023",
    "1024-1518",
    "jumbo",
];

/// What the display shows of a template.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TemplateView {
    /// Destination MAC address.
    pub dst_mac: String,
    /// Source MAC address.
    pub src_mac: String,
    /// Destination IP address.
    pub dst_ip: String,
    /// Source IP address.
    pub src_ip: String,
    /// Source port of UDP or TCP.
    pub src_port: String,
    /// Destination port of UDP or TCP.
    pub dst_port: String,
    /// `IPv4 / UDP`.
    pub kind: String,
    /// VLAN identifiers, outermost first.
    pub vlan: String,
    /// `64`, `64-1518`, `imix`.
    pub size: String,
    /// `abcd...`, `zero`, `random`.
    pub pattern: String,
}

/// Fate of test frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Frames sent.
    pub sent: u64,
    /// All received frames, with duplicates.
    pub received: u64,
    /// While frames are under way: numbers that later ones overtook. Once the port has settled:
    /// sent frames less those that came at least once.
    pub lost: u64,
    /// Came after one with a later number (RFC 4737, 3.3).
    pub reordered: u64,
    /// Came again.
    pub duplicates: u64,
}

impl Tally {
    /// Lost frames for a million sent.
    pub fn lost_ppm(&self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => self.lost as f64 / sent as f64 * 1e6,
        }
    }
}

/// A latency distribution in nanoseconds. With `samples` 0 the other fields have no meaning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of frames that were timed.
    pub samples: u64,
    /// Minimum.
    pub min_ns: f64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
    /// 99.99th percentile.
    pub p9999_ns: f64,
    /// Maximum.
    pub max_ns: f64,
    /// RFC 3550 6.4.1: the smoothed difference of successive frames' latencies.
    pub jitter_ns: f64,
    /// Largest difference of two successive frames' latencies.
    pub ipdv_max_ns: f64,
    /// Upper bound in ns and count of each bucket that holds something.
    pub buckets: Vec<(f64, u64)>,
}

/// A distribution of times in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of values.
    pub samples: u64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Maximum.
    pub max_ns: f64,
}
