//! Streams of a session: their transmit queues, their rates, and whether the port can send so fast.
//!
//! A port with more transmit queues than streams shares each stream out: its shards have numbers of
//! their own on the wire, and are shown as one.

use std::sync::Arc;

use linerate_wire::ethernet::MacAddr;

use crate::TemplateView;
use crate::engine::{Content, Recording, Replay, ScheduledStream, StreamSent};
use crate::stream::{Pacing, StreamError, StreamSpec};
use crate::units::{FCS_BYTES, L1_BYTES, Rate, line_rate_pps};
use linerate_appliance::error::Error;

use super::PortAsked;

/// A stream of the session.
pub(super) struct OpenStream {
    /// Number for users; never reused.
    pub(super) id: u16,
    pub(super) spec: StreamSpec,
    pub(super) port: u16,
    /// Removed by the user: it sends nothing and is not shown, but what it sent still counts.
    pub(super) is_removed: bool,
    pub(super) template: TemplateView,
    /// FCS included.
    pub(super) mean_frame_bytes: f64,
    pub(super) shards: Vec<Shard>,
}

impl OpenStream {
    /// Whether it is to be sent.
    pub(super) fn is_enabled(&self) -> bool {
        self.spec.is_enabled() && !self.is_removed
    }

    /// Whether the fate of its frames is known.
    pub(super) fn is_tested(&self) -> bool {
        is_tested(&self.spec)
    }

    /// The shards in use; others are from before the stream moved to another port.
    pub(super) fn shards_at_work(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(|shard| shard.port == self.port)
    }
}

/// A stream's part at one transmit queue.
pub(super) struct Shard {
    /// The number in signatures.
    pub(super) wire: u16,
    pub(super) port: u16,
    /// The transmit queue of the port, and the index in its sender.
    pub(super) queue: u16,
    pub(super) scheduled: usize,
    pub(super) sent: Arc<StreamSent>,
    /// The order that its sender has.
    pub(super) order: Order,
}

/// How fast one shard is to be sent, and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Order {
    pub(super) is_enabled: bool,
    /// Frames a second; `None`: shares what the sender has for streams without a rate.
    pub(super) pps: Option<f64>,
    /// Frames in all; `None`: no limit.
    pub(super) count: Option<u64>,
    /// Weight among streams without a rate.
    pub(super) weight: u32,
}

/// How fast a stream is to be sent, and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) pps: Option<f64>,
    pub(super) count: Option<u64>,
}

impl Load {
    /// The part of the `index`-th of `shards`.
    pub(super) fn part(self, index: usize, shards: usize) -> Self {
        let shards = shards.max(1);
        let share =
            |count: u64| count / shards as u64 + u64::from((index as u64) < count % shards as u64);
        Self {
            pps: self.pps.map(|pps| pps / shards as f64),
            count: self.count.map(share),
        }
    }
}

/// Rates and counts of a port's enabled streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Loads {
    /// In the order of the streams.
    pub(super) streams: Vec<Load>,
    /// What those without a rate share, in frames a second; `None`: unlimited.
    pub(super) shared_pps: Option<f64>,
    /// Over all streams: frames a second, and frames; `None`: unlimited.
    pub(super) pps: Option<f64>,
    pub(super) count: Option<u64>,
}

/// Limits of a port for its streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest frame, FCS included.
    pub(super) max_frame_bytes: usize,
    /// The same with a tag of 802.1Q, which an MTU does not count.
    pub(super) max_tagged_bytes: usize,
    /// Line rate in bit/s, where there is one.
    pub(super) speed_bps: Option<f64>,
    /// What to do about longer ones.
    pub(super) longer: &'static str,
    /// Ticks a second: an upper bound of frames a second.
    pub(super) hz: f64,
}

/// The transmit queues for the `index`-th of `streams` streams of a port with `queues`.
pub(super) fn queues_of(index: usize, streams: usize, queues: u16) -> Vec<u16> {
    let (streams, queues) = (streams.max(1), usize::from(queues.max(1)));
    if streams >= queues {
        return vec![(index % queues) as u16];
    }
    (0..queues)
        .filter(|queue| queue % streams == index)
        .map(|queue| queue as u16)
        .collect()
}

/// Makes what a stream sends on a port: a template, or the capture that it names.
///
/// # Errors
/// What is wrong with the stream, or that its frames are too long for the port.
pub(super) fn compile(
    spec: &StreamSpec,
    recording: Option<&Arc<Recording>>,
    wire: u16,
    macs: (MacAddr, MacAddr),
    seed: u64,
    limits: &Limits,
) -> Result<Content, Error> {
    let content: Content = match recording {
        Some(recording) => Replay::of(spec, recording.clone(), wire)?.into(),
        None => spec
            .compile(wire, macs.0, macs.1, seed)
            .map_err(usage)?
            .into(),
    };
    let longest = content.max_len() + FCS_BYTES;
    // The kernel lets one tag of 802.1Q go beyond the MTU (packet_extra_vlan_len_allowed), and no
    // other.
    let is_tagged = spec.get("vlan").is_some() && spec.get("inner_vlan").is_none();
    let most = match is_tagged && spec.pcap.is_none() {
        true => limits.max_tagged_bytes,
        false => limits.max_frame_bytes,
    };
    if longest > most {
        return Err(Error::Usage {
            problem: format!("frames of {longest} bytes, but the port takes at most {most}"),
            fix: limits.longer.into(),
        });
    }
    Ok(content)
}

/// Whether frames carry a signature, so that their fate is known; captures only where it is asked
/// for.
pub(super) fn is_tested(spec: &StreamSpec) -> bool {
    match spec.pcap {
        Some(_) => spec.signature == Some(true),
        None => spec.has_signature(),
    }
}

/// Whether the stream has a timing (bursts, a delay) that several queues could not keep.
pub(super) fn is_of_one_queue(spec: &StreamSpec) -> bool {
    spec.gap.is_some() || spec.pcap.is_some()
}

/// Whether it has no rate and no timing of its own, and shares the port's rate.
pub(super) fn shares(spec: &StreamSpec, pps: Option<f64>) -> bool {
    let cued = spec.pcap.is_some() && spec.rate.is_none();
    pps.is_none() && spec.gap.is_none() && !cued
}

pub(super) fn usage(error: StreamError) -> Error {
    Error::Usage {
        problem: error.problem,
        fix: error.fix,
    }
}

/// How fast and how much each of a port's enabled streams is to send: by its own rate, or by its
/// weight of what the port's rate is. A stream with a timing of its own (bursts, a delay) has a
/// rate of its own.
///
/// # Errors
/// A rate that is invalid, or exceeds the line or the clock; the error has the maximum.
pub(super) fn loads(
    port: &PortAsked,
    limits: &Limits,
    streams: &[&OpenStream],
) -> Result<Loads, Error> {
    let sharing = || {
        streams
            .iter()
            .filter(|stream| own_rate(&stream.spec).is_none())
    };
    let weights: f64 = sharing().map(|stream| weight(&stream.spec)).sum();
    let bytes: f64 = sharing()
        .map(|stream| stream.mean_frame_bytes * weight(&stream.spec))
        .sum();
    let port_pps = match port.rate.filter(|_| weights > 0.0) {
        Some(rate) => pps_of(rate, bytes / weights, limits)
            .map_err(|error| prefix(&format!("rate {rate} of the port"), error))?,
        None => None,
    };
    let count_shares = streams
        .iter()
        .filter(|stream| own_count(&stream.spec).is_none())
        .count() as u64;
    let mut counted = 0;
    let mut loads = Loads {
        shared_pps: port_pps,
        pps: Some(0.0),
        count: Some(0),
        ..Loads::default()
    };
    let mut line_share = 0.0;
    for stream in streams {
        let bytes = stream.mean_frame_bytes;
        let part = weight(&stream.spec) / weights;
        let (pps, is_own) = match own_rate(&stream.spec) {
            Some(rate) => {
                let pps = pps_of(rate, bytes, limits)
                    .map_err(|error| prefix(&format!("stream {}", stream.id), error))?;
                (pps, true)
            }
            None => (port_pps.map(|pps| pps * part), keeps_times(&stream.spec)),
        };
        if let (Some(pps), Some(speed)) = (pps, limits.speed_bps) {
            line_share += pps / line_rate_pps(speed, bytes);
        }
        let mean_pps = with_gap(&stream.spec, pps);
        let count = own_count(&stream.spec).or_else(|| {
            let all = port.count.filter(|&count| count > 0)?;
            counted += 1;
            Some(all / count_shares + u64::from(counted <= all % count_shares))
        });
        loads.pps = loads.pps.zip(mean_pps).map(|(all, pps)| all + pps);
        loads.count = loads.count.zip(count).map(|(all, count)| all + count);
        let pps = pps.filter(|_| is_own);
        if let (None, Some(own), Some(shared)) = (own_rate(&stream.spec), pps, loads.shared_pps) {
            // What is left for the others.
            loads.shared_pps = Some((shared - own).max(0.0));
        }
        loads.streams.push(Load { pps, count });
    }
    // Allows for rounding of one part in a million.
    if line_share > 1.000_001 {
        let speed = limits.speed_bps.unwrap_or_default();
        return Err(too_fast(streams, speed, line_share));
    }
    let all_pps = loads.pps.unwrap_or(0.0);
    if all_pps > limits.hz {
        return Err(Error::Usage {
            problem: format!("{all_pps:.0} frames/s, more than the clock has ticks"),
            fix: format!("ask for at most {:.0} frames/s, or `max`", limits.hz),
        });
    }
    Ok(loads)
}

/// What a transmit queue has for its scheduled streams without a rate: its part of what they all
/// share. `scheduled`: the weights of its own scheduled streams, as parts of streams; `all`: the
/// sum over the port.
pub(super) fn share_of(shared_pps: Option<f64>, scheduled: f64, all: f64) -> Option<f64> {
    shared_pps.map(|pps| {
        if all > 0.0 {
            pps * scheduled / all
        } else {
            0.0
        }
    })
}

pub(super) fn weight(spec: &StreamSpec) -> f64 {
    spec.weight.unwrap_or(1).into()
}

/// A stream's rate of its own; `max` is unlimited, like no rate.
fn own_rate(spec: &StreamSpec) -> Option<Rate> {
    spec.rate.filter(|rate| *rate != Rate::Max)
}

/// Whether it has a timing of its own.
fn keeps_times(spec: &StreamSpec) -> bool {
    let poisson = spec.pacing == Some(Pacing::Poisson);
    let bursts = spec.burst.is_some_and(|burst| burst > 1) || spec.gap.is_some();
    poisson || bursts || spec.delay.is_some()
}

/// Bursts of frames at `pps`, each followed by the gap: frames a second over both.
fn with_gap(spec: &StreamSpec, pps: Option<f64>) -> Option<f64> {
    let Some(gap) = spec.gap else {
        return pps;
    };
    let frames = f64::from(spec.burst.unwrap_or(1));
    let sending = pps.map_or(0.0, |pps| frames / pps);
    Some(frames / (sending + gap.as_secs_f64()))
}

/// Frames a second; `None`: unlimited.
fn pps_of(rate: Rate, bytes: f64, limits: &Limits) -> Result<Option<f64>, Error> {
    let wrong = |problem: String, fix: String| Error::Usage { problem, fix };
    let pps = rate.pps(bytes, limits.speed_bps).map_err(|problem| {
        wrong(
            problem,
            "set the port's speed (speed=10G), or give the rate as 1Mpps".into(),
        )
    })?;
    match pps {
        Some(pps) if !(pps > 0.0 && pps.is_finite()) => Err(wrong(
            format!("a rate of {pps} frames/s"),
            "give a rate above 0; to send nothing, disable the stream".into(),
        )),
        pps => Ok(pps),
    }
}

fn prefix(what: &str, error: Error) -> Error {
    match error {
        Error::Usage { problem, fix } => Error::Usage {
            problem: format!("{what}: {problem}"),
            fix,
        },
        other => other,
    }
}

/// Makes the scheduled stream of a shard. With a gap, its rate is that of the frames within a
/// burst.
pub(super) fn schedule(
    spec: &StreamSpec,
    content: Content,
    seed: u64,
    shard: &Shard,
) -> ScheduledStream {
    let Order {
        is_enabled,
        pps,
        count,
        weight,
    } = shard.order;
    let burst = spec.burst.unwrap_or(1);
    let mut scheduled = ScheduledStream::new(content, pps, count, shard.sent.clone())
        .weight(weight)
        .enabled(is_enabled)
        .burst(burst);
    if spec.pacing == Some(Pacing::Poisson) {
        scheduled = scheduled.poisson(spec.seed.unwrap_or(seed) ^ u64::from(shard.wire));
    }
    if let Some(delay) = spec.delay {
        scheduled = scheduled.delay(delay);
    }
    if let Some(gap) = spec.gap {
        scheduled = scheduled.gap(gap);
    }
    scheduled
}

fn own_count(spec: &StreamSpec) -> Option<u64> {
    spec.count.filter(|&count| count > 0)
}

fn too_fast(streams: &[&OpenStream], speed_bps: f64, line_share: f64) -> Error {
    let gbps = speed_bps / 1e9;
    let fix = match streams {
        [only] => {
            let bytes = only.mean_frame_bytes;
            format!(
                "ask for at most {:.0} frames/s, which is 100% of it at {bytes} bytes and {} of \
                 gap and preamble",
                line_rate_pps(speed_bps, bytes).floor(),
                L1_BYTES
            )
        }
        _ => format!("lower the rates: together at most {gbps} Gbit/s L1"),
    };
    Error::Usage {
        problem: format!(
            "{:.4} Gbit/s L1 asked of a port of {gbps} Gbit/s",
            line_share * gbps
        ),
        fix,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_tag_does_not_count_against_the_mtu() {
        // An interface with an MTU of 1500, as an af_packet port says it.
        let limits = Limits {
            max_frame_bytes: 1518,
            max_tagged_bytes: 1522,
            speed_bps: None,
            longer: "",
            hz: 1e9,
        };
        let fits = |line: &str| {
            let spec: StreamSpec = line.parse().unwrap();
            let macs = (MacAddr::local(0), MacAddr::local(1));
            compile(&spec, None, 0, macs, 1, &limits).is_ok()
        };
        assert!(fits("size=1518") && !fits("size=1519"));
        assert!(fits("vlan=5 size=1522") && !fits("vlan=5 size=1523"));
        // The outer one of two is no tag of 802.1Q.
        assert!(!fits("vlan=5 inner_vlan=6 size=1522"));
    }
}
