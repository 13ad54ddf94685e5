//! Why a fragment, or an incomplete datagram, is dropped.

use std::fmt;

use super::piece;
use crate::icmp::Error6;

/// A reason, and the index of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// The IP header does not fit the bytes present.
    Malformed,
    /// No payload; or more fragments follow, and its length is not a multiple of 8 bytes. IPv6
    /// answers the latter with a Parameter Problem, code 0, that points to the payload length (RFC
    /// 8200 4.5).
    Length,
    /// The datagram would exceed 65,535 bytes. IPv6 answers with a Parameter Problem, code 0, that
    /// points to the fragment offset (RFC 8200 4.5).
    TooLong,
    /// A TCP header is cut where filters look (RFC 1858 3, RFC 3128 3).
    Tiny,
    /// An IPv6 first fragment without the whole header chain: answered with a Parameter Problem,
    /// code 3 (RFC 7112 5, RFC 8200 4.5).
    HeaderChain,
    /// Its bytes are there already. The datagram is kept (RFC 8200 4.5).
    Duplicate,
    /// It overlaps another, or they disagree on the datagram's end: all of them are dropped (RFC
    /// 5722 4).
    Overlap,
    /// Congestion was experienced by one fragment, and another is not ECN-capable: all are dropped
    /// (RFC 3168 5.3).
    Ecn,
    /// More gaps than can be recorded: all are dropped.
    Scattered,
    /// No large enough slot is free or may be held; the datagram is dropped too.
    NoMemory,
    /// Evicted for newer ones.
    Evicted,
    /// The others did not come in time.
    TimedOut,
}

impl Refusal {
    /// All of them, each at its own index.
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::Length,
        Self::TooLong,
        Self::Tiny,
        Self::HeaderChain,
        Self::Duplicate,
        Self::Overlap,
        Self::Ecn,
        Self::Scattered,
        Self::NoMemory,
        Self::Evicted,
        Self::TimedOut,
    ];

    /// The ICMPv6 error for an IPv6 fragment that was refused for this reason (RFC 8200 4.5);
    /// `None`: no error. `packet` is the fragment as received, from its IPv6 header on.
    pub fn error6(self, packet: &[u8]) -> Option<Error6> {
        const PAYLOAD_LENGTH: u32 = 4;
        match self {
            // An empty payload is refused, too, but is a multiple of 8.
            Self::Length => {
                let (at, end) = piece::fragment_header(packet)?;
                let is_odd = !(end - at).is_multiple_of(8);
                let pointer = PAYLOAD_LENGTH;
                is_odd.then_some(Error6::ErroneousHeader { pointer })
            }
            Self::TooLong => {
                // RFC 8200 4.5: the offset is the third byte of the header.
                let pointer = piece::fragment_header(packet)?.0 as u32 + 2;
                Some(Error6::ErroneousHeader { pointer })
            }
            Self::HeaderChain => Some(Error6::IncompleteHeaderChain),
            _ => None,
        }
    }

    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "fragment_malformed",
            Self::Length => "fragment_length",
            Self::TooLong => "fragment_too_long",
            Self::Tiny => "fragment_tiny",
            Self::HeaderChain => "fragment_header_chain",
            Self::Duplicate => "fragment_duplicate",
            Self::Overlap => "fragment_overlap",
            Self::Ecn => "fragment_ecn",
            Self::Scattered => "fragment_scattered",
            Self::NoMemory => "fragment_no_memory",
            Self::Evicted => "fragment_evicted",
            Self::TimedOut => "fragment_timed_out",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn each_reason_stands_at_its_index() {
        for (index, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, index);
        }
    }
}
