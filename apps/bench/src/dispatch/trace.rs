//! The packets of a capture, as dispatch and a NIC see them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use linerate_appliance::error::Error;
use linerate_dispatch::owners::WORKERS;
use linerate_drivers::pcap::Reader;
use linerate_gateway::dispatch::frame::dispatched;
use linerate_gateway::dispatch::{Bucket, Classes};
use linerate_tables::rss::{Flow, Model, Profile, Reta, SYMMETRIC_KEY};
use linerate_wire::FlowKey;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Since the first, by the capture.
    pub(super) ns: u64,
    /// Its flow's number, and bucket; `None` for what is for no flow.
    pub(super) flow: Option<(u32, Bucket)>,
    /// The entry of the redirection table that its RSS hash says, with the usual key and with a
    /// symmetric one.
    pub(super) entry: u8,
    pub(super) symmetric: u8,
}

/// All packets of a capture, in its order.
pub(super) struct Trace {
    pub(super) packets: Vec<Packet>,
    pub(super) flows: usize,
}

/// The NIC in front: a redirection table of the usual 128 entries, which queues fill in turns.
pub(super) const ENTRIES: usize = 128;

const _: () = assert!(ENTRIES >= WORKERS);

/// A NIC whose queues are the entries of its table.
fn nic(key: Option<&[u8]>) -> Result<Model, Error> {
    let entries = Reta::round_robin(ENTRIES, ENTRIES as u16)?;
    Ok(Model::new(Profile::find("microsoft")?, key, entries)?)
}

impl Trace {
    /// Reads a capture.
    ///
    /// # Errors
    /// It cannot be read, or has no packets.
    pub(super) fn read(path: &Path, classes: &Classes) -> Result<Self, Error> {
        let failed = |source: std::io::Error| Error::File {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let mut reader = Reader::new(file).map_err(|error| failed(error.into()))?;
        let [usual, symmetric] = [nic(None)?, nic(Some(&SYMMETRIC_KEY))?];
        let mut flows: BTreeMap<FlowKey, u32> = BTreeMap::new();
        let mut packets: Vec<Packet> = Vec::new();
        let mut first = None;
        while let Some(frame) = reader.next().map_err(|error| failed(error.into()))? {
            let began = *first.get_or_insert(frame.timestamp_ns);
            let seen = seen(frame.data);
            let entry = |nic: &Model| {
                let (flow, is_fragment) = seen.as_ref()?;
                nic.queue(flow, *is_fragment)
            };
            let flow = dispatched(classes, frame.data).map(|of| {
                let next = flows.len() as u32;
                let either = of.key.min(of.key.reversed());
                (*flows.entry(either).or_insert(next), of.bucket)
            });
            packets.push(Packet {
                ns: frame.timestamp_ns.saturating_sub(began),
                flow,
                // What is not hashed comes by the first queue.
                entry: entry(&usual).unwrap_or(0) as u8,
                symmetric: entry(&symmetric).unwrap_or(0) as u8,
            });
        }
        if packets.is_empty() {
            return Err(Error::Usage {
                problem: format!("{} has no packets", path.display()),
                fix: "give a capture with some".into(),
            });
        }
        let flows = flows.len();
        Ok(Self { packets, flows })
    }

    /// The share of the busiest flow, and that of the busiest bucket, of all packets of flows: 0
    /// to 1.
    pub(super) fn elephants(&self) -> (f64, f64) {
        let (mut flows, mut buckets) = (BTreeMap::new(), BTreeMap::new());
        let mut all = 0_u64;
        for (flow, bucket) in self.packets.iter().filter_map(|packet| packet.flow) {
            all += 1;
            *flows.entry(flow).or_insert(0_u64) += 1;
            *buckets.entry(bucket).or_insert(0_u64) += 1;
        }
        let share = |most: Option<&u64>| *most.unwrap_or(&0) as f64 / all.max(1) as f64;
        (share(flows.values().max()), share(buckets.values().max()))
    }
}

/// What a NIC hashes of a frame, and whether without ports.
fn seen(frame: &[u8]) -> Option<(Flow, bool)> {
    let headers = linerate_wire::parse(frame).ok()?;
    let flow = match headers.flow_key(frame)? {
        FlowKey::V4(key) => Flow::V4(key),
        FlowKey::V6(key) => Flow::V6(key),
    };
    Some((flow, headers.is_fragment || headers.ports.is_none()))
}
