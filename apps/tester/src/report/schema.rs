//! The JSON form of a benchmark's report: everything that the text, the CSV and the page show, and
//! all that `linerate bench diff` needs.

use serde::{Deserialize, Serialize};

use super::Profile;
use linerate_traffic::figures::Latency;

/// Version of the form; grows when a member changes its meaning or is removed.
pub(crate) const VERSION: u32 = 1;

/// A whole report. One that was interrupted holds what was measured until then, and says so.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    /// `rfc2544`, `ndr`, `throughput`, `latency`, `loss`, `back2back`, `soak`, `demo`.
    pub(crate) kind: String,
    /// When it began: UTC, RFC 3339.
    pub(crate) began: String,
    pub(crate) seconds: f64,
    /// Whether it was ended before its time.
    pub(crate) interrupted: bool,
    /// What ended it early, other than the user: a port vanished.
    pub(crate) failure: Option<String>,
    pub(crate) verdict: Verdict,
    pub(crate) compliance: Compliance,
    /// The machine, as in every report.
    pub(crate) machine: serde_json::Value,
    /// Key and value of each fact about the path: backend, queues, ring sizes, burst, offloads,
    /// MTU.
    pub(crate) path: Vec<(String, String)>,
    /// Checks before the run: what was checked, whether it was good, and what was found.
    pub(crate) preflight: Vec<Check>,
    pub(crate) device: Device,
    /// Who measured, and a note by the user.
    #[serde(default)]
    pub(crate) tester: Option<String>,
    #[serde(default)]
    pub(crate) note: Option<String>,
    pub(crate) command: String,
    pub(crate) seed: u64,
    /// Generator to generator, without the device, per frame size.
    pub(crate) self_test: Vec<SelfTest>,
    /// What an NDR/PDR search looked for, in full.
    pub(crate) goals: Vec<SearchGoal>,
    pub(crate) throughput: Vec<Throughput>,
    pub(crate) latency: Vec<LatencyRow>,
    pub(crate) loss: Vec<LossPoint>,
    pub(crate) back_to_back: Vec<BackToBack>,
    pub(crate) recovery: Vec<Recovery>,
    pub(crate) soak: Option<Soak>,
    /// The same measurement of something else in the same run, interleaved: a bridge beside l2fwd.
    pub(crate) baselines: Vec<Baseline>,
    /// Throughput by the number of cores of the device, where it was varied.
    pub(crate) scaling: Vec<Scaling>,
    /// What stages took for a packet, of the device and of baselines, where it was measured.
    #[serde(default)]
    pub(crate) profiles: Vec<Profile>,
    /// The same of connections (RFC 9693).
    #[serde(default)]
    pub(crate) connections: Vec<Connections>,
}

impl Report {
    /// The user's notes: name and text.
    pub(crate) fn notes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let said = [("tester", &self.tester), ("note", &self.note)];
        said.into_iter()
            .filter_map(|(what, said)| Some((what, said.as_deref()?)))
    }
}

impl SearchEnd {
    /// The text for a table.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Bounds => "bounds",
            Self::Most => "all went through",
            Self::Limit => "time limit",
            Self::Disturbed => "disturbance",
        }
    }
}

/// Whether the results are reliable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) word: VerdictWord,
    /// Why, one sentence each.
    pub(crate) reasons: Vec<String>,
}

impl VerdictWord {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::SharedMachine => 4,
            Self::Noisy => 5,
            Self::GeneratorLimited => 6,
            Self::Failed => 7,
            Self::Incomplete => 8,
        }
    }

    /// As it is in the JSON form.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::SharedMachine => "shared-machine",
            Self::Noisy => "noisy",
            Self::GeneratorLimited => "generator-limited",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// The verdict decides the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VerdictWord {
    /// Exit code 0.
    #[default]
    Valid,
    /// Other threads took so much of the CPUs that trials had to be repeated or discarded: 4.
    SharedMachine,
    /// Repeated trials differ too much: 5.
    Noisy,
    /// The generator, not the device, was the limit: 6.
    GeneratorLimited,
    /// A search or a soak ended before its time, so that its figures are not final: 8.
    Incomplete,
    /// A port vanished or nothing came through at all: 7.
    Failed,
}

/// What the results may be called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compliance {
    /// `RFC2544` only for 60 s trials with no frame lost; else `NDR-1s`, `PDR-0.5%-1s`, ...
    pub(crate) label: String,
    pub(crate) trial_seconds: f64,
    pub(crate) loss_ratio: f64,
    /// Departures from the RFC, one sentence each.
    pub(crate) departures: Vec<String>,
}

/// One check before the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) well: bool,
    pub(crate) seen: String,
}

/// The device under test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Device {
    /// `linerate l2fwd over ring ports`, `Linux bridge over veth`.
    pub(crate) name: String,
    /// Key and value of its settings: routes, rules, flows, cores.
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) cores: u32,
    /// The wire's speed; `None` if unknown.
    pub(crate) link_bps: Option<f64>,
    /// Directions that are loaded: 1 or 2.
    pub(crate) directions: u32,
}

/// The generator's results without the device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SelfTest {
    /// What it was measured on, if not on the device's own path: then the results cannot be
    /// compared with the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stand_in: Option<String>,
    pub(crate) frame_bytes: usize,
    pub(crate) max_pps: f64,
    pub(crate) clock_error_ppm: f64,
    /// 99th percentile of the pacing error of frames, at half of `max_pps`.
    pub(crate) pacing_error_p99_ns: f64,
    /// Latency of the path without the device: what is in all latencies. Nothing is subtracted.
    pub(crate) latency: Latency,
}

/// A search goal of MLRsearch (RFC 9971).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SearchGoal {
    pub(crate) name: String,
    pub(crate) trial_seconds: f64,
    pub(crate) sum_seconds: f64,
    pub(crate) loss_ratio: f64,
    pub(crate) exceed_ratio: f64,
    pub(crate) width: f64,
}

/// What ended a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SearchEnd {
    /// Its bounds are close enough.
    #[default]
    Bounds,
    /// The maximum load passed.
    Most,
    /// It reached the time limit of its frame size, or the limit of trials.
    Limit,
    /// Trials stayed disturbed, so that nothing was decided.
    Disturbed,
}

/// The result for one frame size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Throughput {
    pub(crate) frame_bytes: usize,
    /// `throughput` (zero loss), `NDR`, `PDR`.
    pub(crate) goal: String,
    /// The goal's loss ratio: 0 for NDR.
    pub(crate) loss_ratio: f64,
    /// Line rate; `None` without one.
    pub(crate) line_pps: Option<f64>,
    /// The generator's maximum.
    pub(crate) generator_pps: f64,
    /// Frames a second, all directions: the result, and the bounds that the search ended with.
    pub(crate) pps: f64,
    pub(crate) lower_pps: f64,
    /// `None` if even the maximum load passed.
    pub(crate) upper_pps: Option<f64>,
    /// What ended the search that is quoted.
    #[serde(default)]
    pub(crate) end: SearchEnd,
    /// MLRsearch: whether both bounds are close enough for the goal (RFC 9971: regular).
    pub(crate) regular: bool,
    /// MLRsearch: forwarding rate of the trials at the lower bound.
    pub(crate) conditional_pps: f64,
    pub(crate) l2_bps: f64,
    pub(crate) l1_bps: f64,
    /// Of the trial that the result is quoted from.
    pub(crate) quoted: Trial,
    /// All trials of the size, in order.
    pub(crate) trials: Vec<Trial>,
    /// Results of repeated searches, for the spread: frames a second.
    pub(crate) repeats: Vec<f64>,
    pub(crate) ticks_per_packet: f64,
    pub(crate) ns_per_packet: f64,
    /// By port, frames a second received there.
    pub(crate) per_port_pps: Vec<f64>,
}

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) asked_pps: f64,
    /// By the schedule: what was to be sent within the trial.
    pub(crate) intended: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Intended less received once: what was not sent in time counts as lost.
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    /// Frames that the generator's own receivers dropped, because they were not polled in time or
    /// no slot was free. Their kind is unknown, so up to as many of the lost frames may have passed
    /// the device.
    #[serde(default)]
    pub(crate) missed: u64,
    pub(crate) reordered: u64,
    pub(crate) duplicates: u64,
    pub(crate) seconds: f64,
    /// CPU time that other threads took from the lcores involved.
    pub(crate) stolen_ns: u64,
    pub(crate) longest_stolen_ns: u64,
    /// Why it does not count, if it does not.
    pub(crate) invalid: Option<String>,
}

/// Latency of one size at one load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LatencyRow {
    pub(crate) frame_bytes: usize,
    /// `10% of PDR`, `throughput`.
    pub(crate) load: String,
    pub(crate) pps: f64,
    pub(crate) latency: Latency,
    /// p99.9 less min.
    pub(crate) pdv_ns: f64,
    /// Of each repeat: the median, and the 99.9th percentile (RFC 8219 7.2: typical and worst).
    pub(crate) typical_ns: Vec<f64>,
    pub(crate) worst_ns: Vec<f64>,
    /// All repeats together.
    pub(crate) trial: Trial,
}

impl LatencyRow {
    /// The values for tables, in this order: min, mean, p50, p90, p99, p99.9, p99.99, max, PDV,
    /// jitter.
    pub(crate) fn times_ns(&self) -> [f64; 10] {
        let of = &self.latency;
        [
            of.min_ns,
            of.mean_ns,
            of.p50_ns,
            of.p90_ns,
            of.p99_ns,
            of.p999_ns,
            of.p9999_ns,
            of.max_ns,
            self.pdv_ns,
            of.jitter_ns,
        ]
    }
}

/// One point of the loss curve.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LossPoint {
    pub(crate) frame_bytes: usize,
    /// Of the line, or of the generator's most where there is no wire.
    pub(crate) offered_percent: f64,
    pub(crate) offered_pps: f64,
    pub(crate) lost_percent: f64,
    pub(crate) trial: Trial,
}

/// RFC 9004 for one size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BackToBack {
    pub(crate) frame_bytes: usize,
    /// Frames of the longest bursts without loss.
    pub(crate) bursts: Vec<u64>,
    /// The shortest burst of each search that did not come through whole.
    #[serde(default)]
    pub(crate) limits: Vec<Trial>,
    pub(crate) mean: f64,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) sd: f64,
    pub(crate) burst_pps: f64,
    pub(crate) implied_buffer_s: f64,
    pub(crate) corrected_buffer_s: f64,
}

/// RFC 2544 26.5 for one size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Recovery {
    pub(crate) frame_bytes: usize,
    pub(crate) overload_pps: f64,
    pub(crate) then_pps: f64,
    /// Time from the drop of the load to the last lost frame, and its resolution; `None` if the
    /// overload lost nothing, or only refused frames, which leave no gap.
    pub(crate) recovery_ns: Option<f64>,
    pub(crate) resolution_ns: f64,
    /// Of each repeat with a result; `recovery_ns` is their mean.
    #[serde(default)]
    pub(crate) repeats_ns: Vec<f64>,
    /// While overloaded, and after; of all repeats.
    pub(crate) over: Trial,
    pub(crate) then: Trial,
}

/// A long run at one rate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Soak {
    pub(crate) frame_bytes: usize,
    pub(crate) pps: f64,
    /// Planned duration.
    #[serde(default)]
    pub(crate) asked_seconds: f64,
    pub(crate) trial: Trial,
    pub(crate) latency: Latency,
    /// Seconds from the start, frames lost since the point before, frames received since then.
    pub(crate) points: Vec<(f64, u64, u64)>,
}

/// Another device, measured in turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Baseline {
    pub(crate) name: String,
    pub(crate) throughput: Vec<Throughput>,
}

/// Throughput with some number of cores.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Scaling {
    pub(crate) cores: u32,
    pub(crate) frame_bytes: usize,
    pub(crate) pps: f64,
}

/// Connections through one subject, the device or a baseline (RFC 9693).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) subject: String,
    /// How many were opened to find the rates.
    pub(crate) connections: u64,
    /// Connections that can be opened in a second, each of which is answered after; and the bound
    /// above, if the search found one.
    pub(crate) set_up_pps: f64,
    pub(crate) set_up_upper_pps: Option<f64>,
    /// Connections that the device forgot in a second, all at once.
    pub(crate) torn_down_pps: f64,
    /// Connections that it knows at once; and the bound above, if the search found one.
    pub(crate) capacity: u64,
    pub(crate) capacity_upper: Option<u64>,
    pub(crate) trials: usize,
}
