//! ICMP errors: the outer header, and the header of the packet that they quote.

use linerate_wire::{Headers, checksum};

use super::{Shape, To, Upper, change, grown, write_addresses, write_upper};

/// As much of a quote's upper layer as is ever changed: up to the checksum of TCP.
const UPPER_BYTES: usize = 18;

/// Translates an ICMP or ICMPv6 error about a flow (RFC 5508 REQ-4, REQ-5).
///
/// `headers` is what was parsed of `frame`, `quoted` what [`Headers::quoted`] says of it. `to` is
/// what packets of the flow become that go the way that the error goes; so the packet it quotes,
/// which came the other way, gets source and destination exchanged. The outer destination is the
/// quoted packet's source. The outer source is translated if it is the flow's own end; else it is
/// some router, which is named by `router` where its address must not show (RFC 5508 REQ-5 c).
///
/// All checksums follow: of both network headers, of the ICMP message, and of the quoted upper
/// layer, if the quote reaches it. Nothing else of the message changes, its length and extensions
/// (RFC 4884) included.
#[must_use = "false means that the packet is as it was"]
pub fn write_error(
    frame: &mut [u8],
    headers: &Headers,
    quoted: &Headers,
    to: &To<'_>,
    router: Option<&[u8]>,
    is_partial: bool,
) -> bool {
    let Some(shape) = Shape::of(headers, to) else {
        return false;
    };
    let (Some(l4), Some(number)) = (headers.l4, quoted.protocol) else {
        return false;
    };
    let half = to.addresses.len() / 2;
    if quoted.ethertype != headers.ethertype
        || headers.l3 + shape.header_len > l4
        || l4 + 8 > quoted.l3
        || quoted.l3 + shape.header_len > quoted.end
        || quoted.end > headers.end
        || router.is_some_and(|router| router.len() != half)
    {
        return false;
    }
    let Some(frame) = frame.get_mut(..headers.end) else {
        return false;
    };
    // What is changed of the message lies from its quote on up to here.
    let upper_at = quoted
        .l4
        .filter(|&at| (quoted.l3..=quoted.end).contains(&at));
    let end = upper_at.map_or(quoted.l3 + shape.header_len, |at| at + UPPER_BYTES);
    let changed = quoted.l3..end.min(quoted.end);
    let (outer, message) = frame.split_at_mut(l4);
    let changed = changed.start - l4..changed.end - l4;
    let before = checksum::sum(&message[changed.clone()]);
    let was_end = outer_is_end(
        &outer[headers.l3..],
        &message[quoted.l3 - l4..],
        &shape,
        half,
    );

    let (src, dst) = to.addresses.split_at(half);
    let mut reversed = [0; 32];
    reversed[..half].copy_from_slice(dst);
    reversed[half..2 * half].copy_from_slice(src);
    let quote_end = quoted.end - l4;
    let quote = &mut message[..quote_end];
    let grew = write_addresses(quote, quoted.l3 - l4, &shape, &reversed[..2 * half]);
    if let Some(at) = upper_at {
        let bytes = &mut quote[at - l4..];
        let upper = Upper::of(quoted.ethertype, number, bytes);
        let [a, b, c, d] = to.ports;
        write_upper(bytes, &upper, grew, &[c, d, a, b], false);
    }

    let mut outer_to = [0; 32];
    outer_to[half..2 * half].copy_from_slice(dst);
    let start = headers.l3 + shape.addresses;
    match (was_end, router) {
        (true, _) => outer_to[..half].copy_from_slice(src),
        (false, Some(router)) => outer_to[..half].copy_from_slice(router),
        (false, None) => outer_to[..half].copy_from_slice(&outer[start..start + half]),
    }
    let outer_grew = write_addresses(outer, headers.l3, &shape, &outer_to[..2 * half]);

    // ICMP has no pseudo-header, ICMPv6 has (RFC 4443 2.3).
    let pseudo = if half == 16 { outer_grew } else { 0 };
    let after = checksum::sum(&message[changed]);
    let by_quote = checksum::add(after, !before).to_be();
    change(message, 2, |old| match is_partial {
        true => checksum::add(old, pseudo),
        false => grown(old, checksum::add(pseudo, by_quote)),
    });
    true
}

/// Whether who sent the error is whom the quoted packet was for.
fn outer_is_end(outer: &[u8], quote: &[u8], shape: &Shape, half: usize) -> bool {
    let src = &outer[shape.addresses..shape.addresses + half];
    let dst = &quote[shape.addresses + half..shape.addresses + 2 * half];
    src == dst
}
