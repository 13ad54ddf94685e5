//! ICMP and ICMPv6 queries: flows whose port is the query's identifier.
//!
//! In the key of a query the source port is its identifier and the destination port the type of
//! the query; in the key of an answer it is the other way round. So keys of a flow's directions
//! are mirror images, a question never passes for an answer, and a translator changes the source
//! port of a query as it does that of UDP.

use linerate_wire::flow::{FlowKey, FlowKey4, FlowKey6};
use linerate_wire::icmp;

use super::Reason;

/// Types of ICMP that ask, each answered by the type that follows, but for the echo: timestamp,
/// information, address mask.
const QUERIES: [u8; 3] = [13, 15, 17];

/// A query, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// What tells it from others of the same hosts.
    pub ident: u16,
    /// The type of the query, also in its answer.
    pub kind: u8,
    /// Whether this is the query, not the answer.
    pub asks: bool,
}

/// What an ICMP message is to the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Query(Query),
    Error,
}

/// Reads a message from its ICMP header on; `v6`: it is ICMPv6.
pub(super) fn read(v6: bool, bytes: &[u8]) -> Result<Message, Reason> {
    let header = bytes.first_chunk::<{ icmp::HEADER_LEN }>();
    let header = header.ok_or(Reason::IcmpHeader)?;
    let ident = u16::from_be_bytes([header[4], header[5]]);
    let query = |kind, asks| Ok(Message::Query(Query { ident, kind, asks }));
    match (v6, header[0]) {
        (false, icmp::v4::ECHO_REQUEST) => query(icmp::v4::ECHO_REQUEST, true),
        (false, icmp::v4::ECHO_REPLY) => query(icmp::v4::ECHO_REQUEST, false),
        (false, kind) if QUERIES.contains(&kind) => query(kind, true),
        (false, kind) if QUERIES.contains(&kind.wrapping_sub(1)) => query(kind - 1, false),
        (true, icmp::v6::ECHO_REQUEST) => query(icmp::v6::ECHO_REQUEST, true),
        (true, icmp::v6::ECHO_REPLY) => query(icmp::v6::ECHO_REQUEST, false),
        // Not redirects, which are for one link, nor source quench, which RFC 6633 has ended.
        (false, icmp::v4::UNREACHABLE | icmp::v4::TIME_EXCEEDED | icmp::v4::PARAMETER_PROBLEM) => {
            Ok(Message::Error)
        }
        // RFC 4890 4.3.1: the four that RFC 4443 defines.
        (true, icmp::v6::UNREACHABLE..=icmp::v6::PARAMETER_PROBLEM) => Ok(Message::Error),
        _ => Err(Reason::IcmpType),
    }
}

impl Query {
    /// Source and destination port of its key.
    pub fn ports(&self) -> (u16, u16) {
        match self.asks {
            true => (self.ident, self.kind.into()),
            false => (self.kind.into(), self.ident),
        }
    }

    /// The key of its packet, with its ports.
    #[must_use]
    pub fn key4(&self, mut key: FlowKey4) -> FlowKey4 {
        let (src, dst) = self.ports();
        key.0[8..10].copy_from_slice(&src.to_be_bytes());
        key.0[10..12].copy_from_slice(&dst.to_be_bytes());
        key
    }

    /// The key of its packet, with its ports.
    #[must_use]
    pub fn key6(&self, mut key: FlowKey6) -> FlowKey6 {
        let (src, dst) = self.ports();
        key.0[32..34].copy_from_slice(&src.to_be_bytes());
        key.0[34..36].copy_from_slice(&dst.to_be_bytes());
        key
    }

    pub(super) fn key(&self, key: FlowKey) -> FlowKey {
        match key {
            FlowKey::V4(key) => FlowKey::V4(self.key4(key)),
            FlowKey::V6(key) => FlowKey::V6(self.key6(key)),
        }
    }
}
