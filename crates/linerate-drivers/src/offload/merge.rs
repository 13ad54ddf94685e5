//! Joins TCP segments of one burst into unsegmented frames, on their way out (GRO, as Linux calls
//! it).
//!
//! For transmit queues whose device takes unsegmented frames and gathers a frame from parts: the
//! headers of a joined frame are written here, the payloads stay where they are. Nothing is copied,
//! and nothing waits for a later burst. [`Joint`] decides which segments may be joined.
//!
//! Segments of up to [`OPEN`] connections are joined at a time; they need not be neighbours in the
//! burst. The packets of one connection stay in order; a fragment, which may be of any, ends them
//! all.

use crate::vnet;
use linerate_core::packet::{Burst, Offload, Packet};
use linerate_wire::ethernet;
use linerate_wire::offload::{FrameClass, Joint, TcpFrame};
use linerate_wire::vlan;

/// Connections whose segments are joined at the same time.
const OPEN: usize = 8;
/// Where the checksum stands in a TCP header.
const CSUM_OFFSET: u8 = 16;

/// Packets next to each other that go as one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) packets: usize,
    /// For several.
    pub(crate) joined: Option<Joined>,
}

impl Run {
    /// A packet by itself.
    const ALONE: Self = Self {
        packets: 1,
        joined: None,
    };
}

/// A joined frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Which of the plan's heads it has.
    head: usize,
    /// Where the payload begins in each of its packets.
    pub(crate) payload: usize,
}

/// A run that may grow.
struct Growing {
    run: usize,
    /// Index of its first packet, whose checksums are looked at when a second one comes.
    first: usize,
    joint: Joint,
}

/// Plans bursts for one transmit queue.
#[derive(Default)]
pub(crate) struct Merger {
    runs: Vec<Run>,
    /// Each a `virtio_net_hdr` and a joined frame's headers.
    heads: Vec<Vec<u8>>,
    /// How many of them this plan has; the others keep their memory for the next one.
    used: usize,
    growing: Vec<Growing>,
    /// The run of each packet, and then its place.
    places: Vec<usize>,
}

impl Merger {
    /// Plans a burst, and moves packets that go as one frame next to each other. Frames of more
    /// than `max_frame_bytes` (VLAN tags aside) stay alone, for the device to refuse.
    pub(crate) fn plan(&mut self, burst: &mut Burst, max_frame_bytes: usize) {
        self.plan_alone(0);
        self.places.clear();
        for (index, packet) in burst.iter().enumerate() {
            let frame = packet.data();
            let alone = match FrameClass::of(frame) {
                FrameClass::Segment(at) if may_be_joined(packet, at, max_frame_bytes) => {
                    self.add(burst.as_packets(), index, at);
                    false
                }
                FrameClass::Segment(at) | FrameClass::Alone(at) => {
                    let of = |open: &Growing| open.joint.is_of(frame, at);
                    if let Some(found) = self.growing.iter().position(of) {
                        self.retire(found);
                    }
                    true
                }
                FrameClass::Other => true,
                FrameClass::Unknown => {
                    self.retire_all();
                    true
                }
            };
            if alone {
                self.begin();
            }
        }
        self.retire_all();
        if self.used > 0 {
            self.sort(burst.as_packets_mut());
        }
    }

    /// Plans so many packets that go each by itself.
    pub(crate) fn plan_alone(&mut self, packets: usize) {
        self.used = 0;
        self.runs.clear();
        self.runs.resize(packets, Run::ALONE);
    }

    /// What was planned, in order.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Frames that are joined of others.
    pub(crate) fn joins(&self) -> bool {
        self.used > 0
    }

    /// The `virtio_net_hdr` and the headers of a joined frame.
    pub(crate) fn head(&self, joined: Joined) -> &[u8] {
        &self.heads[joined.head]
    }

    /// Sends the packets of a run separately after all.
    #[cold]
    pub(crate) fn undo(&mut self, run: usize) {
        let packets = self.runs[run].packets;
        self.runs
            .splice(run..=run, std::iter::repeat_n(Run::ALONE, packets));
    }

    /// The next packet begins a run: its number.
    fn begin(&mut self) -> usize {
        let run = self.runs.len();
        self.runs.push(Run::ALONE);
        self.places.push(run);
        run
    }

    /// Joins a segment with those before it, or lets it be the first of others.
    fn add(&mut self, packets: &[Packet], index: usize, at: TcpFrame) {
        let packet = &packets[index];
        let frame = packet.data();
        let of = |open: &Growing| open.joint.is_of(frame, at);
        if let Some(found) = self.growing.iter().position(of) {
            let Growing { run, first, joint } = &mut self.growing[found];
            let first = &packets[*first];
            let goes_on = joint.continues(frame, at)
                && (joint.segments() > 1 || is_right(first, joint.layout()))
                && is_right(packet, at);
            if goes_on && joint.push(frame, at) {
                self.runs[*run].packets += 1;
                self.places.push(*run);
                return;
            }
            self.retire(found);
        } else if self.growing.len() == OPEN {
            self.retire(0);
        }
        let run = self.begin();
        self.growing.push(Growing {
            run,
            first: index,
            joint: Joint::begin(frame, at),
        });
    }

    fn retire_all(&mut self) {
        while !self.growing.is_empty() {
            self.retire(0);
        }
    }

    /// Lets a run grow no more, and writes its headers if it has become one of several packets.
    fn retire(&mut self, growing: usize) {
        let Growing { run, mut joint, .. } = self.growing.remove(growing);
        if joint.segments() < 2 {
            return;
        }
        let at = joint.layout();
        let header = vnet::tcp(&joint);
        if self.heads.len() == self.used {
            self.heads.push(Vec::new());
        }
        let head = &mut self.heads[self.used];
        head.clear();
        head.extend_from_slice(&header);
        head.extend_from_slice(joint.finish());
        self.runs[run].joined = Some(Joined {
            head: self.used,
            payload: at.payload(),
        });
        self.used += 1;
    }

    /// Puts the packets in the order of their runs; those of one run keep theirs.
    fn sort(&mut self, packets: &mut [Packet]) {
        let mut next = [0; Burst::CAPACITY];
        let mut at = 0;
        for (next, run) in next.iter_mut().zip(&self.runs) {
            *next = at;
            at += run.packets;
        }
        for place in &mut self.places {
            let run = *place;
            *place = next[run];
            next[run] += 1;
        }
        for index in 0..packets.len() {
            while self.places[index] != index {
                let to = self.places[index];
                packets.swap(index, to);
                self.places.swap(index, to);
            }
        }
    }
}

/// Whether what is known of a segment lets it be joined.
#[inline]
fn may_be_joined(packet: &Packet, at: TcpFrame, max_frame_bytes: usize) -> bool {
    let meta = packet.meta();
    let partial = meta.offload.contains(Offload::CSUM_PARTIAL);
    let tags = at.l3() - ethernet::HEADER_LEN;
    debug_assert!(tags <= vlan::TAG_LEN);
    packet.len() - tags <= max_frame_bytes
        && !meta.offload.intersects(Offload::GSO)
        && (!partial || (usize::from(meta.csum_start), meta.csum_offset) == (at.l4(), CSUM_OFFSET))
}

/// Whether a segment's checksums are right, or its sender left the one of TCP unfinished: who cuts
/// the joined frame computes them anew, and wrong ones must not become right.
fn is_right(packet: &Packet, at: TcpFrame) -> bool {
    let vouched = Offload::CSUM_PARTIAL | Offload::CSUM_VALID;
    at.verify_header(packet.data())
        && (packet.meta().offload.intersects(vouched) || at.verify_tcp(packet.data()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
