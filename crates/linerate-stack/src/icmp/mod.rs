//! ICMP and ICMPv6 messages that a router sends, and how often (RFC 792, RFC 1812 4.3, RFC 4443).
//!
//! [`error4()`] and [`error6()`] write the error to a packet's sender, or return `None` where the
//! RFCs forbid it ([`may_answer4`] and [`may_answer6`] check that without writing). The [`Limiter`]
//! decides whether the rate allows it now. [`echo4`] and [`echo6`] turn an echo request into its
//! reply, in place.
//!
//! Packets begin at their IP header. The caller adds the frame, and chooses the route and the
//! source address. The caller also checks the two rules that a packet alone does not show (RFC 1812
//! 4.3.2.7, RFC 4443 2.4(e)): no error for a packet that came as a link-layer broadcast or
//! multicast, nor for one to a directed broadcast address. RFC 1812 5.3.4 drops those silently.
//!
//! ```
//! use linerate_stack::icmp::{Error4, Limiter, Limits, error4, may_answer4};
//! use std::net::Ipv4Addr;
//! # let offending = [0x45, 0, 0, 28, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 1, 10, 1, 0, 1, 4, 0, 0, 53, 0, 8, 0, 0];
//! let mut limiter = Limiter::new(Limits::default(), 1);
//! let source = Ipv4Addr::new(10, 0, 0, 1); // of the offending packet, where the error goes
//! let error = Error4::TtlExceeded;
//! if may_answer4(&offending, error) && limiter.allow(source.into(), 0) {
//!     let mut packet = [0; 576];
//!     let len = error4(&offending, error, Ipv4Addr::new(10, 0, 0, 254), &mut packet);
//!     assert_eq!(len, Some(56));
//! }
//! ```

mod echo;
mod error4;
mod error6;
mod limiter;
#[cfg(test)]
mod tests;

pub use echo::{echo4, echo6};
pub use error4::{Error4, MAX_ERROR4_LEN, error4, may_answer4};
pub use error6::{Error6, MAX_ERROR6_LEN, error6, may_answer6, may_redirect6, redirect6};
pub use limiter::{Limiter, Limits};

pub(crate) use error4::is_between_hosts;
pub(crate) use error6::is_from_node;

/// TTL and hop limit of packets of ours (RFC 1812 4.2.2.9; IANA "IP Time to Live Parameter").
pub const TTL: u8 = 64;
