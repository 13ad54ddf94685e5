//! The state of a session at one moment: the only source for the screen, scripts and reports. All
//! counts of a snapshot are since the same `clear`, so sums on a page agree.
//!
//! Rates are counts between two snapshots, divided by the measured time between them.

use linerate_core::env::Clock;
pub use linerate_traffic::figures::{Latency, SIZE_CLASSES, Spread, Tally, TemplateView};
use serde::{Deserialize, Serialize};

/// Version of the JSON form; grows when a member changes its meaning or is removed.
pub const VERSION: u32 = 1;

/// The session's clock in words: its source, its error, and a warning that latencies are not
/// reliable if it is not an invariant counter.
pub fn clock_text(clock: &Clock) -> String {
    let source = clock.source();
    match clock.is_invariant() {
        true => source.to_string(),
        false => format!("{source}; latencies by this clock are not to be trusted"),
    }
}

/// A session at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the profile (the configuration file), if one was loaded.
    pub profile: String,
    /// Counts begin with the `clear` of this number.
    pub epoch: u64,
    /// Nanoseconds since that `clear`.
    pub since_clear_ns: u64,
    /// Nanoseconds that the rates are averaged over.
    pub interval_ns: u64,
    /// The clock and its error, for people.
    pub clock: String,
    pub clock_error_ppm: f64,
    /// Ticks per microsecond.
    pub clock_mhz: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Number of this session in signatures.
    pub session: u16,
    pub ports: Vec<PortView>,
    pub streams: Vec<StreamView>,
    pub lcores: Vec<LcoreView>,
    /// Whether any port has something left to send.
    pub sending: bool,
    /// Whether all test frames have come or count as lost: none is under way any more.
    pub settled: bool,
    /// Why the counts are invalid (a port vanished, an lcore died); empty if they are valid.
    pub invalid: Vec<String>,
    /// The newest lines of the log, oldest first.
    pub log: Vec<LogLine>,
}

/// One direction's counts and rates. Bytes include FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
    /// Now, and the most since `clear`. What is sent is divided by the time of sending alone; what
    /// is received, once nothing is sent any more, by the time up to the last test frame.
    pub pps: f64,
    pub max_pps: f64,
    /// All since `clear`, divided by the time that it took, likewise: the achieved rate.
    pub mean_pps: f64,
    pub l1_bps: f64,
    pub l2_bps: f64,
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortView {
    pub number: u16,
    pub name: String,
    /// Kind of driver, `ring`, and the device: `ring:a`.
    pub kind: String,
    pub device: String,
    pub numa_node: Option<u32>,
    /// Facts that the driver reports.
    pub facts: Vec<(String, String)>,
    /// Whether the link is up; where not, why.
    pub link_up: bool,
    pub link_reason: String,
    /// The line rate that percentages are of; `None` if unknown.
    pub speed_bps: Option<f64>,
    /// `idle`, `sending`, `done`, `failed`; if nothing is sent though it was asked for, with a
    /// reason.
    pub state: String,
    pub state_reason: String,
    /// A letter for each that is on, else `-`: `E` answers ARP and echoes, `C` looks at checksums,
    /// `L` measures latency, `p` replays a capture, `R` random fields, `S` several streams, `V`
    /// VLAN tags.
    pub flags: String,
    /// Its own addresses, such as `192.0.2.1/24`, and what it answered for them, by kind.
    pub addrs: Vec<String>,
    pub answers: Vec<(String, u64)>,
    pub rx: Traffic,
    pub tx: Traffic,
    pub broadcast: u64,
    pub multicast: u64,
    /// Received frames by [`SIZE_CLASSES`]; they sum to `rx.packets`.
    pub sizes: [u64; 7],
    /// Frames below 64 bytes; they are in the first class too.
    pub runts: u64,
    pub arp: u64,
    pub icmp: u64,
    /// Received frames without a signature of this session.
    pub foreign: u64,
    /// Test frames that were sent before the `clear`; with `foreign` and `tally.received` they sum
    /// to `rx.packets`.
    pub earlier: u64,
    /// Received frames with a wrong layer-3 or layer-4 checksum; `None` if checksums are not
    /// checked.
    pub corrupt: Option<u64>,
    /// Different flows among the received frames, within 0.1 %; `None` if flows are not counted.
    pub flows: Option<u64>,
    /// Drops and errors on receive and transmit by reason, those that happened.
    pub rx_drops: Vec<(String, u64)>,
    pub tx_drops: Vec<(String, u64)>,
    /// What a `faulty` port did to frames, by kind, on receive and transmit together.
    pub faults: Vec<(String, u64)>,
    /// The rate as it was asked for, and in frames a second (0 for as many as go).
    pub rate: String,
    pub asked_pps: f64,
    /// Frames that were due by now and were not sent.
    pub unsent: u64,
    /// How far the achieved rate is off the asked one, in parts per million; NaN is null.
    pub rate_error_ppm: Option<f64>,
    /// Frames to send in all; 0 for ever.
    pub count: u64,
    pub tx_burst: u16,
    pub rx_burst: u16,
    pub rx_queues: u16,
    pub tx_queues: u16,
    /// Of the port's streams: the value of the first, and ` +2` where two others differ from it.
    pub template: TemplateView,
    /// Test frames of this session that came in here, summed over streams.
    pub tally: Tally,
    /// Test frames that came in here: from the intended send time to receipt.
    pub latency: Latency,
    /// Difference between intended and actual gaps of sent frames: the quality of the pacing.
    pub departure_error: Spread,
    /// Cycles (ticks) of the transmit lcore for each frame sent, and of the receive lcore for each
    /// received.
    pub tx_ticks_per_packet: f64,
    pub rx_ticks_per_packet: f64,
    /// Free slots of the pool, and all.
    pub pool_free: u64,
    pub pool_slots: u64,
    /// Counts of each receive and transmit queue.
    pub queues: Vec<QueueView>,
}

/// One queue of a port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueueView {
    /// `rx` or `tx`.
    pub direction: String,
    pub queue: u16,
    pub lcore: String,
    pub packets: u64,
    pub bytes: u64,
    pub pps: f64,
    /// Times that a transmit queue took less than it was given.
    pub refused: u64,
    /// Times that the pool had no slot.
    pub no_slot: u64,
}

/// One stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamView {
    pub id: u16,
    pub name: String,
    /// The port that sends it.
    pub port: u16,
    pub enabled: bool,
    /// The stream in its one-line form.
    pub line: String,
    pub template: TemplateView,
    /// Whether its frames carry signatures; without them loss is unknown.
    pub tested: bool,
    pub rate: String,
    pub tx_pps: f64,
    /// All since `clear`, divided by the time of sending: the achieved rate.
    pub mean_pps: f64,
    pub rx_pps: f64,
    pub unsent: u64,
    pub tally: Tally,
    pub latency: Latency,
}

/// One lcore.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LcoreView {
    pub name: String,
    pub cpu: Option<u32>,
    /// What it polls, such as `rx 0.0, tx 1.0`.
    pub work: String,
    /// Share of the time spent on packets: 0 to 1.
    pub busy_share: f64,
    /// Share of the time asleep, with nothing to send and nothing coming in: 0 to 1.
    pub asleep_share: f64,
    /// Times that the CPU was taken away from it for longer than 20 us, the longest, and their sum.
    pub gaps: u64,
    pub longest_gap_ns: u64,
    pub gaps_ns: u64,
}

/// One line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Since the session began.
    pub at_ms: u64,
    pub text: String,
}
