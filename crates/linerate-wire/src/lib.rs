//! The headers of one packet: input is a `&[u8]`, output are offsets or an error.
//!
//! One file per protocol. Each has a `mod field` with the offsets, a view over any buffer whose
//! `new_checked` is the only place where lengths are tested, and accessors that cannot fail after
//! it. Nothing is copied, and nothing but a [`filter`], an [`fpm`] stream and what
//! [`rtnetlink::build`] makes is allocated. Read [`udp`] first: it is the shortest.
//!
//! | for | see |
//! |---|---|
//! | one header | [`ethernet`], [`vlan`], [`arp`], [`mpls`], [`ipv4`], [`ipv6`], [`icmp`], [`ndp`], [`tcp`], [`udp`], [`sctp`], [`vxlan`], [`geneve`], [`gtpu`], [`gre`] |
//! | a whole frame | [`parse()`], [`parse_tunnelled`] for what is in tunnels, [`Headers::quoted`] for what ICMP errors quote |
//! | the flow it belongs to | [`Headers::flow_key`], [`Headers::icmp_error_flow`] |
//! | checksums | [`checksum`] (RFC 1071, RFC 1624), [`crc32c`] |
//! | what a forwarder does to one packet (`linerate_tables::rewrite` does bursts) | [`set_macs`], [`vlan::insert`], [`ipv4::Ipv4::decrement_ttl`], [`offload`] |
//! | which frames | [`filter`] |
//! | what nodes of a mobile core say to each other | [`gtpc`], [`diameter`] |
//! | what the kernel and FRR say about routes | [`rtnetlink`], [`fpm`] |
//!
//! Not read: what ESP, MACsec, PPP and ERSPAN carry, IEEE 802.3 behind its length, IPv6
//! jumbograms, options of IPv4 (given as bytes).
//!
//! ```
//! use linerate_wire::{ethernet::MacAddr, set_macs};
//! let mut frame = [0u8; 64];
//! assert!(set_macs(&mut frame, MacAddr::local(1), MacAddr([2, 0, 0, 0, 0, 9])));
//! assert_eq!(MacAddr::local(1).to_string(), "02:00:00:00:00:01");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc; // filters, netlink requests, FPM's buffer
#[cfg(test)]
extern crate std;

pub mod arp;
mod bytes;
pub mod checksum;
pub mod crc32c;
pub mod diameter;
pub mod ethernet;
pub mod filter;
pub mod flow;
pub mod fpm;
pub mod geneve;
pub mod gre;
pub mod gtpc;
pub mod gtpu;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
mod malformed;
pub mod mpls;
pub mod ndp;
pub mod offload;
pub mod parse;
mod quoted;
pub mod rtnetlink;
pub mod sctp;
pub mod tcp;
pub mod tunnel;
pub mod udp;
mod verify;
pub mod vlan;
pub mod vxlan;

pub use ethernet::{EtherType, MacAddr, set_macs};
pub use flow::{FlowKey, FlowKey4, FlowKey6};
pub use malformed::{Layer, Malformed};
pub use parse::{Fragment, Headers, parse};
pub use tunnel::{Tunnel, Tunnelled, parse_tunnelled};
pub use verify::Covered;

/// IP protocol numbers (IANA "Assigned Internet Protocol Numbers") that this crate knows by name.
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP (RFC 4213).
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Generic routing encapsulation.
    pub const GRE: u8 = 47;
    /// Authentication header.
    pub const AH: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6 "no next header".
    pub const NO_NEXT: u8 = 59;
    /// IPv6 destination options.
    pub const DEST_OPTIONS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
}
