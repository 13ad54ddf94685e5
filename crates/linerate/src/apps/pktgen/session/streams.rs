//! Streams of a session: which transmit queues send them, how fast, and whether the port can.
//!
//! A port with more transmit queues than streams shares each stream out: its shards have numbers of
//! their own on the wire, and are shown as one.

use std::sync::Arc;

use linerate_wire::ethernet::MacAddr;

use crate::apps::pktgen::TemplateView;
use crate::apps::pktgen::engine::StreamSent;
use crate::apps::pktgen::stream::{Stream, StreamError, StreamSpec};
use crate::apps::pktgen::units::{FCS_BYTES, L1_BYTES, line_rate_pps};
use crate::error::Error;

use super::PortAsked;

/// A stream of the session.
pub(super) struct OpenStream {
    /// What users call it by; never used again.
    pub(super) id: u16,
    pub(super) spec: StreamSpec,
    pub(super) port: u16,
    pub(super) enabled: bool,
    pub(super) template: TemplateView,
    /// FCS included.
    pub(super) mean_frame_bytes: f64,
    pub(super) shards: Vec<Shard>,
}

/// A stream's part at one transmit queue.
pub(super) struct Shard {
    /// The number in signatures.
    pub(super) wire: u16,
    /// The transmit queue of the stream's port.
    pub(super) queue: u16,
    pub(super) sent: Arc<StreamSent>,
}

/// How fast a stream is to be sent, and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// Frames a second; none for as many as go.
    pub(super) pps: Option<f64>,
    /// Frames in all; none for ever.
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

/// What a port is to streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest frame, FCS included.
    pub(super) max_frame_bytes: usize,
    /// Line rate in bit/s, where there is one.
    pub(super) speed_bps: Option<f64>,
    /// Ticks a second: nobody sends more frames than that.
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

/// Compiles a stream for a port.
///
/// # Errors
/// What is wrong with the stream, or that its frames are too long for the port.
pub(super) fn compile(
    spec: &StreamSpec,
    wire: u16,
    macs: (MacAddr, MacAddr),
    seed: u64,
    limits: &Limits,
) -> Result<Stream, Error> {
    let stream = spec.compile(wire, macs.0, macs.1, seed).map_err(usage)?;
    let longest = stream.max_len() + FCS_BYTES;
    if longest > limits.max_frame_bytes {
        return Err(Error::Usage {
            problem: format!(
                "frames of {longest} bytes, but the port takes at most {}",
                limits.max_frame_bytes
            ),
            fix: "make them shorter, or raise the interface's MTU".into(),
        });
    }
    Ok(stream)
}

pub(super) fn usage(error: StreamError) -> Error {
    Error::Usage {
        problem: error.problem,
        fix: error.fix,
    }
}

/// How fast and how much each stream of a port is to send: its own rate, or its part of the port's.
/// `streams` are the enabled ones.
///
/// # Errors
/// A rate that is none, or more than the line or the clock takes; the most that goes is named.
pub(super) fn loads(
    port: &PortAsked,
    limits: &Limits,
    streams: &[&OpenStream],
) -> Result<Vec<Load>, Error> {
    let sharing = |own: fn(&StreamSpec) -> bool| {
        streams
            .iter()
            .filter(|stream| !own(&stream.spec))
            .count()
            .max(1)
    };
    let rate_shares = sharing(|spec| spec.rate.is_some()) as f64;
    let count_shares = sharing(|spec| own_count(spec).is_some()) as u64;
    let mut counted = 0;
    let mut loads = Vec::with_capacity(streams.len());
    let (mut line_share, mut all_pps) = (0.0, 0.0);
    for stream in streams {
        let bytes = stream.mean_frame_bytes;
        let (rate, shares) = match (stream.spec.rate, port.rate) {
            (Some(own), _) => (Some(own), 1.0),
            (None, shared) => (shared, rate_shares),
        };
        let pps = match rate {
            None => None,
            Some(rate) => rate
                .pps(bytes, limits.speed_bps)
                .map_err(|problem| Error::Usage {
                    problem: format!("stream {}: {problem}", stream.id),
                    fix: "set the port's speed, or give the rate as 1Mpps".into(),
                })?
                .map(|pps| pps / shares),
        };
        if let Some(pps) = pps {
            if !(pps > 0.0 && pps.is_finite()) {
                return Err(Error::Usage {
                    problem: format!("stream {}: a rate of {pps} frames/s", stream.id),
                    fix: "give a rate above 0, or disable the stream".into(),
                });
            }
            all_pps += pps;
            if let Some(speed) = limits.speed_bps {
                line_share += pps / line_rate_pps(speed, bytes);
            }
        }
        let count =
            own_count(&stream.spec).or(port.count.filter(|&count| count > 0).map(|count| {
                let part = count / count_shares + u64::from(counted < count % count_shares);
                counted += 1;
                part
            }));
        loads.push(Load { pps, count });
    }
    // A part in a million is a matter of rounding.
    if line_share > 1.000_001 {
        let speed = limits.speed_bps.unwrap_or_default();
        return Err(too_fast(streams, speed, line_share));
    }
    if all_pps > limits.hz {
        return Err(Error::Usage {
            problem: format!("{all_pps:.0} frames/s, more than the clock has ticks"),
            fix: format!("ask for at most {:.0} frames/s, or `max`", limits.hz),
        });
    }
    Ok(loads)
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
                "ask for at most {:.0} frames/s, which is 100% of it at {bytes} bytes and {} of gap and \
                 preamble",
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
