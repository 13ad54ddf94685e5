//! Answers to ping (RFC 792, RFC 1812 4.3.3.6, RFC 4443 4.2), made in place of the request.

use linerate_wire::icmp::{Icmp, v4, v6};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::{checksum, protocol};

use super::TTL;
use super::error4::has_source_route;

/// Offset of the addresses in the IP header, and length of each.
const ADDRESSES4: (usize, usize) = (12, 4);
const ADDRESSES6: (usize, usize) = (8, 16);
/// Offset of the TTL, and of the hop limit.
const TTL4: usize = 8;
const HOP_LIMIT: usize = 7;

/// Turns an echo request for an address of ours into its reply: addresses swapped, a TTL of its
/// own, checksums updated, payload, type of service and options kept (RFC 1812 4.3.3.6). `packet`
/// begins at the IP header.
///
/// False, and no change, for packets that are not answered: fragments, wrong checksums, groups and
/// broadcasts, and source routes, which would have to be reversed.
#[must_use = "false means that the packet is as it was"]
pub fn echo4(packet: &mut [u8]) -> bool {
    let Ok(ip) = Ipv4::new_checked(&*packet) else {
        return false;
    };
    let (src, dst) = (ip.src(), ip.dst());
    let is_host = src.octets()[0] != 0 && src.octets()[0] < 224;
    let is_ours = !dst.is_broadcast() && !dst.is_multicast() && !dst.is_unspecified();
    let is_plain = !ip.is_fragment() && !has_source_route(ip.options()) && ip.verify();
    let is_request = ip.protocol() == protocol::ICMP
        && Icmp::new_checked(ip.payload()).is_ok_and(|icmp| {
            icmp.kind() == v4::ECHO_REQUEST && icmp.code() == 0 && icmp.verify(0)
        });
    if !(is_host && is_ours && is_plain && is_request) {
        return false;
    }
    let (start, end) = (ip.header_len(), ip.total_len());
    // Swapped addresses do not change the header's sum, but another TTL does.
    let (ttl, check) = (u16::from(ip.ttl()) << 8, ip.checksum());
    let check = checksum::update16(check, ttl, u16::from(TTL) << 8);
    packet[TTL4] = TTL;
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    swap(packet, ADDRESSES4);
    if let Ok(mut icmp) = Icmp::new_checked(&mut packet[start..end]) {
        icmp.change_kind(v4::ECHO_REPLY);
    }
    true
}

/// The same for ICMPv6. Requests behind extension headers are not answered.
#[must_use = "false means that the packet is as it was"]
pub fn echo6(packet: &mut [u8]) -> bool {
    let Ok(ip) = Ipv6::new_checked(&*packet) else {
        return false;
    };
    let Ok(upper) = ip.upper_layer() else {
        return false;
    };
    let (src, dst) = (ip.src(), ip.dst());
    let is_node = !src.is_unspecified() && !src.is_multicast() && !dst.is_multicast();
    let is_plain = upper.offset == ipv6::HEADER_LEN && upper.protocol == protocol::ICMPV6;
    let pseudo = ip.pseudo_sum(&upper);
    let is_request = Icmp::new_checked(ip.payload()).is_ok_and(|icmp| {
        icmp.kind() == v6::ECHO_REQUEST && icmp.code() == 0 && icmp.verify(pseudo)
    });
    if !(is_node && is_plain && is_request) {
        return false;
    }
    let end = ip.total_len();
    packet[HOP_LIMIT] = TTL;
    swap(packet, ADDRESSES6); // swapped addresses do not change the pseudo-header's sum
    if let Ok(mut icmp) = Icmp::new_checked(&mut packet[ipv6::HEADER_LEN..end]) {
        icmp.change_kind(v6::ECHO_REPLY);
    }
    true
}

fn swap(packet: &mut [u8], (start, len): (usize, usize)) {
    let (src, dst) = packet[start..start + 2 * len].split_at_mut(len);
    src.swap_with_slice(dst);
}
