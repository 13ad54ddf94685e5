//! The bucket of one whole frame, as the [stage](super::stage) says it of bursts: for what is done
//! with captures.

use linerate_wire::{FlowKey, Headers, protocol};

use super::bucket::Bucket;
use super::class::Classes;
use crate::track::{Quote, Upper};

/// What dispatch does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// Its flow: the key of its direction, of an ICMP error that of what it quotes, reversed.
    pub key: FlowKey,
    /// The bucket of that.
    pub bucket: Bucket,
}

/// The flow and bucket of a frame; `None` for what stays with who received it: what is not IP, or
/// malformed, groups, link-local addresses, ICMP that is for no flow. A fragment does until it is
/// put together, and has no bucket here.
pub fn dispatched(classes: &Classes, frame: &[u8]) -> Option<Dispatched> {
    let headers = linerate_wire::parse(frame).ok()?;
    let key = headers.flow_key(frame)?;
    if headers.is_fragment || is_local(&key) {
        return None;
    }
    let is_v6 = matches!(key, FlowKey::V6(_));
    let key = match (is_v6, headers.protocol?) {
        (false, protocol::ICMP) | (true, protocol::ICMPV6) => of_icmp(&headers, key, frame)?,
        _ => key,
    };
    let bucket = classes.one(&key);
    Some(Dispatched { key, bucket })
}

/// The key of the flow that an ICMP message is about.
fn of_icmp(headers: &Headers, key: FlowKey, frame: &[u8]) -> Option<FlowKey> {
    let upper = frame.get(headers.l4?..headers.end)?;
    let is_v6 = matches!(key, FlowKey::V6(_));
    match (Upper::read(is_v6, headers.protocol?, upper).ok()?, key) {
        (Upper::Query(query), FlowKey::V4(key)) => Some(FlowKey::V4(query.key4(key))),
        (Upper::Query(query), FlowKey::V6(key)) => Some(FlowKey::V6(query.key6(key))),
        (Upper::Error, _) => Some(Quote::read(frame, headers).ok()?.key),
        _ => None,
    }
}

/// Whether it is to a group, or from or to a link-local address.
fn is_local(key: &FlowKey) -> bool {
    match key {
        FlowKey::V4(key) => {
            let (src, dst) = (key.src(), key.dst());
            let is_group = dst.is_multicast() || dst.is_broadcast();
            is_group || src.is_link_local() || dst.is_link_local()
        }
        FlowKey::V6(key) => {
            let (src, dst) = (key.src(), key.dst());
            let is_link_local = src.is_unicast_link_local() || dst.is_unicast_link_local();
            dst.is_multicast() || is_link_local
        }
    }
}
