//! What a session tells of itself at one moment: the one source of the screen, of scripts and of
//! reports. All counts of a snapshot are since the same `clear`, so sums on a page agree.
//!
//! Rates are counts between two snapshots, divided by the measured time between them.

use linerate_core::env::Clock;
use serde::{Deserialize, Serialize};

/// Version of the JSON form; grows when a member changes its meaning or goes.
pub(crate) const VERSION: u32 = 1;

/// Bounds of the size classes, FCS included, as RFC 2819 counts them: up to 64 (shorter ones are
/// runts as well), 65-127, 128-255, 256-511, 512-1023, 1024-1518, and longer (jumbo).
pub(crate) const SIZE_CLASSES: [&str; 7] = [
    "64",
    "65-127",
    "128-255",
    "256-511",
    "512-1023",
    "1024-1518",
    "jumbo",
];

/// What a session says of its clock: where its ticks come from, how well they are known, and that
/// latencies are not to be trusted where they are not those of an invariant counter.
pub(crate) fn clock_text(clock: &Clock) -> String {
    let source = clock.source();
    match clock.is_invariant() {
        true => source.to_string(),
        false => format!("{source}; latencies by this clock are not to be trusted"),
    }
}

/// A session at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Name of the profile (the configuration file), if one was loaded.
    pub(crate) profile: String,
    /// Counts begin with the `clear` of this number.
    pub(crate) epoch: u64,
    /// Nanoseconds since that `clear`.
    pub(crate) since_clear_ns: u64,
    /// Nanoseconds that the rates are averaged over.
    pub(crate) interval_ns: u64,
    /// The clock and its error, for people.
    pub(crate) clock: String,
    pub(crate) clock_error_ppm: f64,
    /// Ticks per microsecond.
    pub(crate) clock_mhz: f64,
    /// Seed of everything random.
    pub(crate) seed: u64,
    /// What signatures call this session.
    pub(crate) session: u16,
    pub(crate) ports: Vec<PortView>,
    pub(crate) streams: Vec<StreamView>,
    pub(crate) lcores: Vec<LcoreView>,
    /// Whether any port has something left to send.
    pub(crate) sending: bool,
    /// Whether all test frames have come or count as lost: none is under way any more.
    pub(crate) settled: bool,
    /// Why the counts say nothing of the device under test (a port vanished, an lcore died); empty where
    /// they do.
    pub(crate) invalid: Vec<String>,
    /// The newest lines of the log, oldest first.
    pub(crate) log: Vec<LogLine>,
}

/// One direction's counts and rates. Bytes include FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Now, and the most since `clear`. What is sent is divided by the time of sending alone; what is
    /// received, once nothing is sent any more, by the time up to the last test frame.
    pub(crate) pps: f64,
    pub(crate) max_pps: f64,
    /// All since `clear`, divided by the time that it took, likewise: the achieved rate.
    pub(crate) mean_pps: f64,
    pub(crate) l1_bps: f64,
    pub(crate) l2_bps: f64,
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PortView {
    pub(crate) number: u16,
    pub(crate) name: String,
    /// Kind of driver, `ring`, and the device: `ring:a`.
    pub(crate) kind: String,
    pub(crate) device: String,
    pub(crate) numa_node: Option<u32>,
    /// What the driver says of itself.
    pub(crate) facts: Vec<(String, String)>,
    /// Whether the link is up; where not, why.
    pub(crate) link_up: bool,
    pub(crate) link_reason: String,
    /// The line rate that percentages are of; none where there is no wire.
    pub(crate) speed_bps: Option<f64>,
    /// `idle`, `sending`, `done`, `failed`; a word and a reason where nothing is sent though it was asked.
    pub(crate) state: String,
    pub(crate) state_reason: String,
    /// A letter for each that is on, else `-`: `E` answers ARP and echoes, `C` looks at checksums, `L` measures
    /// latency, `p` replays a capture, `R` random fields, `S` several streams, `V` VLAN tags.
    pub(crate) flags: String,
    /// Its own addresses, such as `192.0.2.1/24`, and what it answered for them, by kind.
    pub(crate) addrs: Vec<String>,
    pub(crate) answers: Vec<(String, u64)>,
    pub(crate) rx: Traffic,
    pub(crate) tx: Traffic,
    pub(crate) broadcast: u64,
    pub(crate) multicast: u64,
    /// Received frames by [`SIZE_CLASSES`]; they sum to `rx.packets`.
    pub(crate) sizes: [u64; 7],
    /// Frames below 64 bytes; they are in the first class too.
    pub(crate) runts: u64,
    pub(crate) arp: u64,
    pub(crate) icmp: u64,
    /// Received frames without a signature of this session.
    pub(crate) foreign: u64,
    /// Test frames that were sent before the `clear`: with `foreign` and `tally.received` they sum to
    /// `rx.packets`.
    pub(crate) earlier: u64,
    /// Received frames with a wrong layer-3 or layer-4 checksum; none where nobody looks.
    pub(crate) corrupt: Option<u64>,
    /// Different flows among the received frames, within 0.1 %; none where nobody counts.
    pub(crate) flows: Option<u64>,
    /// Drops and errors on receive and transmit by reason, those that happened.
    pub(crate) rx_drops: Vec<(String, u64)>,
    pub(crate) tx_drops: Vec<(String, u64)>,
    /// What a `faulty` port did to frames, by kind, on receive and transmit together.
    pub(crate) faults: Vec<(String, u64)>,
    /// The rate as it was asked for, and in frames a second (0 for as many as go).
    pub(crate) rate: String,
    pub(crate) asked_pps: f64,
    /// Frames that were due by now and were not sent.
    pub(crate) unsent: u64,
    /// How far the achieved rate is off the asked one, in parts per million; NaN is null.
    pub(crate) rate_error_ppm: Option<f64>,
    /// Frames to send in all; 0 for ever.
    pub(crate) count: u64,
    pub(crate) tx_burst: u16,
    pub(crate) rx_burst: u16,
    pub(crate) rx_queues: u16,
    pub(crate) tx_queues: u16,
    /// Of the port's streams: the value of the first, and ` +2` where two others differ from it.
    pub(crate) template: TemplateView,
    /// Test frames of this session that came in here, summed over streams.
    pub(crate) tally: Tally,
    /// Test frames that came in here: from the intended send time to receipt.
    pub(crate) latency: Latency,
    /// Between frames sent, as they were timed and as they went: what the pacing is worth.
    pub(crate) departure_error: Spread,
    /// Cycles (ticks) of the transmit lcore for each frame sent, and of the receive lcore for each received.
    pub(crate) tx_ticks_per_packet: f64,
    pub(crate) rx_ticks_per_packet: f64,
    /// Free slots of the pool, and all.
    pub(crate) pool_free: u64,
    pub(crate) pool_slots: u64,
    /// Counts of each receive and transmit queue.
    pub(crate) queues: Vec<QueueView>,
}

/// One queue of a port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct QueueView {
    /// `rx` or `tx`.
    pub(crate) direction: String,
    pub(crate) queue: u16,
    pub(crate) lcore: String,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) pps: f64,
    /// Times that a transmit queue took less than it was given.
    pub(crate) refused: u64,
    /// Times that the pool had no slot.
    pub(crate) no_slot: u64,
}

/// What the display shows of a template.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TemplateView {
    pub(crate) dst_mac: String,
    pub(crate) src_mac: String,
    pub(crate) dst_ip: String,
    pub(crate) src_ip: String,
    pub(crate) src_port: String,
    pub(crate) dst_port: String,
    /// `IPv4 / UDP`.
    pub(crate) kind: String,
    /// VLAN identifiers, outermost first.
    pub(crate) vlan: String,
    /// `64`, `64-1518`, `imix`.
    pub(crate) size: String,
    /// `abcd...`, `zero`, `random`.
    pub(crate) pattern: String,
}

/// What became of test frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    /// All that came, duplicates too.
    pub(crate) received: u64,
    /// While frames are under way: numbers that later ones overtook. Once the port has settled: sent less
    /// those that came at least once.
    pub(crate) lost: u64,
    /// Came after one with a later number (RFC 4737, 3.3).
    pub(crate) reordered: u64,
    /// Came again.
    pub(crate) duplicates: u64,
}

impl Tally {
    /// Lost frames for a million sent.
    pub(crate) fn lost_ppm(&self) -> f64 {
        match self.sent {
            0 => 0.0,
            sent => self.lost as f64 / sent as f64 * 1e6,
        }
    }
}

/// A latency distribution in nanoseconds. With `samples` 0 nothing else means anything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) samples: u64,
    pub(crate) min_ns: f64,
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p90_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
    pub(crate) p9999_ns: f64,
    pub(crate) max_ns: f64,
    /// RFC 3550 6.4.1: the smoothed difference of successive frames' latencies.
    pub(crate) jitter_ns: f64,
    /// The most by which two successive frames' latencies differed.
    pub(crate) ipdv_max_ns: f64,
    /// Upper bound in ns and count of each bucket that holds something.
    pub(crate) buckets: Vec<(f64, u64)>,
}

/// A distribution of times in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) samples: u64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) max_ns: f64,
}

/// One stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StreamView {
    pub(crate) id: u16,
    pub(crate) name: String,
    /// The port that sends it.
    pub(crate) port: u16,
    pub(crate) enabled: bool,
    /// The stream in its one-line form.
    pub(crate) line: String,
    pub(crate) template: TemplateView,
    /// Whether its frames carry signatures: of others nobody knows what became of them.
    pub(crate) tested: bool,
    pub(crate) rate: String,
    pub(crate) tx_pps: f64,
    /// All since `clear`, divided by the time of sending: the achieved rate.
    pub(crate) mean_pps: f64,
    pub(crate) rx_pps: f64,
    pub(crate) unsent: u64,
    pub(crate) tally: Tally,
    pub(crate) latency: Latency,
}

/// One lcore.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LcoreView {
    pub(crate) name: String,
    pub(crate) cpu: Option<u32>,
    /// What it polls, such as `rx 0.0, tx 1.0`.
    pub(crate) work: String,
    /// Share of the time that went into packets: 0 to 1.
    pub(crate) busy_share: f64,
    /// Share of the time asleep, with nothing to send and nothing coming in: 0 to 1.
    pub(crate) asleep_share: f64,
    /// Times that the CPU was taken away from it for longer than 20 us, the longest, and their sum.
    pub(crate) gaps: u64,
    pub(crate) longest_gap_ns: u64,
    pub(crate) gaps_ns: u64,
}

/// One line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogLine {
    /// Since the session began.
    pub(crate) at_ms: u64,
    pub(crate) text: String,
}
