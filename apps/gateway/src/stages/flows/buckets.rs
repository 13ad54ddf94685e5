//! Flows by bucket: which buckets belong together, and how their flows leave and arrive with what
//! they hold of NAT.

use std::net::IpAddr;

use linerate_tables::flow::{Cursor, Flow, FlowKey, Inserted};
use linerate_wire::FlowKey as Either;
use linerate_wire::flow::{FlowKey4, FlowKey6};

use super::turned::is_between;
use super::{Flows, Table, Tracked, gone_of, ticks, tuples_of};
use crate::dispatch::{Bucket, Classes};
use crate::nat::bits::Bits;
use crate::nat::calls::Call;
use crate::nat::ports::{Apart, bucket_of};
use crate::nat::{self, Nat, Protocol};
use linerate_dispatch::moves::Ties;

/// Flows that leave or arrive between two bursts.
const SLICE: usize = 256;
/// Places of a table that are looked through between two bursts.
const PLACES: usize = 1024;

/// Some of the state of buckets, on its way from one worker to another.
pub enum Part {
    /// Flows, of both families.
    Flows(Vec<Flow<FlowKey4, Tracked>>, Vec<Flow<FlowKey6, Tracked>>),
    /// Ports, mappings and subscribers: taken last, and put in first, so that a flow that ends
    /// finds what it has to give back.
    Nat(Vec<nat::Bucket>),
}

/// How far a look through both tables has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    v4: Option<Cursor>,
    v6: Option<Cursor>,
    begun: bool,
}

/// An outside endpoint, and its protocol.
pub(super) type OutsideEnd = (IpAddr, u16, Protocol);

/// What a worker whose buckets move has besides its flows.
#[derive(Default)]
pub(super) struct Moving {
    /// Which buckets belong together.
    ties: Ties,
    /// Mappings that have come and found no room.
    orphans: Vec<OutsideEnd>,
    /// Whether new flows take ports of their own buckets where they can.
    prefers_apart: bool,
}

impl Flows {
    /// From now on buckets may come and go; `prefers_apart`: ports are given of the bucket of the
    /// host, while it has any, so that few buckets have to move together.
    pub fn moves(&mut self, prefers_apart: bool) {
        self.moving = Some(Box::new(Moving {
            prefers_apart,
            ..Moving::default()
        }));
        self.keep_apart(false);
    }

    /// Whether a flow that begins takes ports of its own bucket alone: while buckets are about to
    /// leave none is tied to another.
    pub fn keep_apart(&mut self, only: bool) {
        let prefers = self.moving.as_ref().is_some_and(|one| one.prefers_apart);
        self.nat.ports.keep_apart(match (only, prefers) {
            (true, _) => Apart::Only,
            (false, true) => Apart::Preferred,
            (false, false) => Apart::No,
        });
    }

    /// The buckets that have to move with this one, and itself; some of them may have had flows in
    /// common only formerly: [`scan_ties`](Self::scan_ties) forgets those.
    pub fn with_bucket(&self, bucket: Bucket) -> Bits {
        match &self.moving {
            Some(moving) => moving.ties.with(bucket),
            None => {
                let mut one = Bits::NONE;
                one.set(bucket);
                one
            }
        }
    }

    /// Looks through a part of the flows for buckets that they tie together, having forgotten all
    /// ties at the beginning. Returns whether that was the last part.
    pub fn scan_ties(&mut self, scan: &mut Scan) -> bool {
        let Some(moving) = &mut self.moving else {
            return true;
        };
        if !scan.begun {
            moving.ties = Ties::default();
            let calls = self.nat.calls.iter();
            calls.for_each(|call| tie_call(&mut moving.ties, call));
            *scan = Scan {
                v4: Some(Cursor::default()),
                v6: Some(Cursor::default()),
                begun: true,
            };
        }
        let (classes, ties) = (&self.classes, &mut moving.ties);
        if let Some(cursor) = &mut scan.v4 {
            let is_last = self.v4.dump(cursor, PLACES, |flow| {
                let both = (Either::V4(flow.key), Either::V4(flow.reverse));
                tie(ties, classes, flow.bucket, &both);
            });
            if is_last {
                scan.v4 = None;
            }
            return false;
        }
        let Some(cursor) = &mut scan.v6 else {
            return true;
        };
        self.v6.dump(cursor, PLACES, |flow| {
            let both = (Either::V6(flow.key), Either::V6(flow.reverse));
            tie(ties, classes, flow.bucket, &both);
        })
    }

    /// A flow has begun, or has come, with these keys.
    #[cold]
    pub(super) fn note_ties(&mut self, bucket: Bucket, key: &Either, reverse: &Either) {
        if let Some(moving) = &mut self.moving {
            tie(&mut moving.ties, &self.classes, bucket, &(*key, *reverse));
        }
    }

    /// A first packet was not let in: where it is a call, that holds a port as a flow does.
    #[cold]
    pub(super) fn note_call(&mut self, first: &nat::First) {
        let call = self.nat.calls.of(&first.tuple, first.from.zone);
        if let (Some(moving), Some(call)) = (&mut self.moving, call) {
            tie_call(&mut moving.ties, call);
        }
    }

    /// Takes a part of the state of these buckets out, and says whether it was the last.
    pub fn take_part(&mut self, buckets: &Bits) -> (Part, bool) {
        let (mut v4, mut v6) = (Vec::with_capacity(SLICE), Vec::new());
        for bucket in buckets.iter() {
            let left = SLICE - v4.len() - v6.len();
            self.v4.take_bucket(bucket, left, |flow| v4.push(*flow));
            let left = SLICE - v4.len() - v6.len();
            self.v6.take_bucket(bucket, left, |flow| v6.push(*flow));
            if v4.len() + v6.len() >= SLICE {
                break;
            }
        }
        if !v4.is_empty() || !v6.is_empty() {
            return (Part::Flows(v4, v6), false);
        }
        if let Some(moving) = &mut self.moving {
            moving.ties.forget(buckets);
        }
        self.nat.end_calls(buckets);
        let nat = buckets.iter().map(|bucket| self.nat.take_bucket(bucket));
        (Part::Nat(nat.collect()), true)
    }

    /// Puts a part in that another worker has taken out. Flows that there is no room for end.
    pub fn put_part(&mut self, part: Part, now_ns: u64) {
        let now = ticks(now_ns);
        match part {
            Part::Nat(all) => {
                let mut orphans = Vec::new();
                for bucket in all {
                    let refused = self.nat.put_bucket(bucket, now);
                    orphans.extend(refused.iter().filter_map(|mapping| {
                        let outside = &mapping.outside;
                        let address = self.nat.rules().address(outside.address)?.address;
                        Some((address, outside.port, outside.protocol))
                    }));
                }
                if let Some(moving) = &mut self.moving {
                    moving.orphans = orphans;
                }
            }
            Part::Flows(v4, v6) => {
                for flow in &v4 {
                    let both = (Either::V4(flow.key), Either::V4(flow.reverse));
                    let is_orphan = self.is_orphan(flow);
                    let put = put((&mut self.v4, &self.nat), flow, is_orphan);
                    self.has_come(flow.bucket, both, put, now);
                }
                for flow in &v6 {
                    let both = (Either::V6(flow.key), Either::V6(flow.reverse));
                    let is_orphan = self.is_orphan(flow);
                    let put = put((&mut self.v6, &self.nat), flow, is_orphan);
                    self.has_come(flow.bucket, both, put, now);
                }
            }
        }
    }

    /// Whether the mapping of a flow that comes has found no room.
    fn is_orphan<F>(&self, flow: &Flow<F, Tracked>) -> bool
    where
        for<'a> nat::Tuple: From<&'a F>,
    {
        let orphans = self
            .moving
            .as_ref()
            .map_or(&[][..], |one| one.orphans.as_slice());
        if orphans.is_empty() {
            return false;
        }
        let (original, translated) = tuples_of(flow);
        let protocol = original.ported();
        orphans.iter().any(|(address, port, of)| {
            let is = |end: &nat::Endpoint| (end.address, end.port) == (*address, *port);
            protocol == Some(*of) && (is(&translated.src) || is(&original.dst))
        })
    }

    /// A flow has been put in; what had to go for it, or could not come, gives back what it held.
    fn has_come(&mut self, bucket: Bucket, both: (Either, Either), put: Put, now: u64) {
        if put.has_come {
            self.note_ties(bucket, &both.0, &both.1);
        }
        if let Some((held, original, translated, zone)) = put.gone {
            self.nat.release(held, &original, &translated, zone, now);
            self.counts.lost_in_moves += u64::from(!put.has_come);
        }
    }
}

/// What became of a flow that was put in.
struct Put {
    has_come: bool,
    /// The one that has ended: another that had to make room, or itself.
    gone: Option<super::Gone>,
}

fn put<F: FlowKey<K>, const K: usize>(
    (table, nat): (&mut Table<F, K>, &Nat),
    flow: &Flow<F, Tracked>,
    is_orphan: bool,
) -> Put
where
    for<'a> nat::Tuple: From<&'a F>,
{
    let put = match is_orphan {
        true => None,
        false => table.put(flow).ok(),
    };
    match put {
        Some(Inserted::New { evicted, .. }) => Put {
            has_come: true,
            gone: evicted.map(|evicted| gone_of(nat, &evicted)),
        },
        _ => Put {
            has_come: false,
            gone: Some(gone_of(nat, flow)),
        },
    }
}

/// Ties the bucket of a host to that of the port that its call holds.
fn tie_call(ties: &mut Ties, call: &Call) {
    ties.add(call.bucket, bucket_of(call.translated.src.port));
}

/// Ties the buckets that a flow needs the owner of.
fn tie(ties: &mut Ties, classes: &Classes, bucket: Bucket, (key, reverse): &(Either, Either)) {
    let zone = match key {
        Either::V4(key) => key.zone(),
        Either::V6(key) => key.zone(),
    };
    if !is_between(zone) {
        ties.add(bucket, classes.one(reverse));
    }
    // Answers to what has turned go by the host that has the mapping.
    if let Some(host) = classes.mapped_host(key, reverse) {
        ties.add(bucket, host);
    }
}
