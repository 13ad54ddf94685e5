//! ICMP for ICMPv6 and back: queries and errors with what they quote. RFC 7915 4.2, 4.3, 5.2, 5.3.
//!
//! Only echoes are queries of both. An error is made anew, its checksum too; so one whose checksum
//! is wrong is refused (RFC 5508 REQ-3). Extensions behind the quote (RFC 4884) are cut off.

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_wire::{Headers, checksum, ipv6, protocol};

use super::Prefix64;
use super::header::{Front, Untranslatable, header4, header6, pair4, pair6, ports};
use crate::nat::Tuple;
use crate::nat::rewrite::{Upper, change, difference, grown, write_upper};

/// RFC 1191 7.1: sizes that a router which says none may have meant.
const PLATEAUS: [u16; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// The number of the field of an IPv6 header that says what a byte of an IPv4 header says.
fn pointer6(at: u8) -> Option<u32> {
    match at {
        0 | 1 => Some(at.into()),
        2 | 3 => Some(4),
        8 => Some(7),
        9 => Some(6),
        12..=15 => Some(8),
        16..=19 => Some(24),
        _ => None,
    }
}

/// The number of the field of an IPv4 header that says what a byte of an IPv6 header says.
fn pointer4(at: u32) -> Option<u8> {
    match at {
        0 | 1 => Some(at as u8),
        4 | 5 => Some(2),
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    }
}

/// Type, code and the word behind the checksum of the ICMPv6 error for an ICMP one.
fn error_kind6(header: [u8; 8], quote: &[u8], mtu: u16) -> Option<[u8; 8]> {
    let make = |kind: u8, code: u8, word: u32| {
        let [a, b, c, d] = word.to_be_bytes();
        Some([kind, code, 0, 0, a, b, c, d])
    };
    match (header[0], header[1]) {
        (3, 0 | 1 | 5..=8 | 11 | 12) => make(1, 0, 0),
        // A protocol that is not known is a header field that is not.
        (3, 2) => make(4, 1, 6),
        (3, 3) => make(1, 4, 0),
        (3, 4) => {
            let said = match u16::from_be_bytes([header[6], header[7]]) {
                0 => {
                    let sent = quote
                        .get(2..4)
                        .map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
                    PLATEAUS.into_iter().find(|&size| size < sent).unwrap_or(68)
                }
                said => said,
            };
            let most = u32::from(said).saturating_add(20).min(mtu.into());
            make(2, 0, most.max(ipv6::MIN_MTU as u32))
        }
        (3, 9 | 10 | 13 | 15) => make(1, 1, 0),
        (11, code @ (0 | 1)) => make(3, code, 0),
        (12, 0 | 2) => make(4, 0, pointer6(header[4])?),
        _ => None,
    }
}

/// Type, code and the word behind the checksum of the ICMP error for an ICMPv6 one.
fn error_kind4(header: [u8; 8], mtu: u16) -> Option<[u8; 8]> {
    let [_, _, _, _, a, b, c, d] = header;
    let word = u32::from_be_bytes([a, b, c, d]);
    match (header[0], header[1]) {
        (1, 0 | 2 | 3) => Some([3, 1, 0, 0, 0, 0, 0, 0]),
        (1, 1) => Some([3, 10, 0, 0, 0, 0, 0, 0]),
        (1, 4) => Some([3, 3, 0, 0, 0, 0, 0, 0]),
        (2, _) => {
            let [a, b] = (word.saturating_sub(20).min(mtu.into()) as u16).to_be_bytes();
            Some([3, 4, 0, 0, 0, 0, a, b])
        }
        (3, code @ (0 | 1)) => Some([11, code, 0, 0, 0, 0, 0, 0]),
        (4, 0) => Some([12, 0, 0, 0, pointer4(word)?, 0, 0, 0]),
        (4, 1) => Some([3, 2, 0, 0, 0, 0, 0, 0]),
        _ => None,
    }
}

/// The type of an echo in the other version, and its identifier.
fn echo(message: &[u8], to: &Tuple) -> Option<(u8, u16)> {
    match message.first()? {
        8 => Some((128, to.src.port)),
        0 => Some((129, to.dst.port)),
        128 => Some((8, to.src.port)),
        129 => Some((0, to.dst.port)),
        _ => None,
    }
}

/// Gives an echo its new type and identifier; `pseudo` is what its checksum's sum grows by
/// besides, in the order of memory.
fn rewrite_echo(message: &mut [u8], to: &Tuple, pseudo: u16) -> Result<(), Untranslatable> {
    let (kind, ident) = echo(message, to).ok_or(Untranslatable::Icmp)?;
    let Some(header) = message.first_chunk::<8>().copied() else {
        return Err(Untranslatable::Malformed);
    };
    let [_, code, c, d, _, _, g, h] = header;
    let [e, f] = ident.to_be_bytes();
    let new = [kind, code, c, d, e, f, g, h];
    message[..8].copy_from_slice(&new);
    let grew = checksum::add(difference(&header, &new), pseudo);
    change(message, 2, |old| grown(old, grew));
    Ok(())
}

/// The sum of ICMPv6's pseudo-header, in the order of memory.
fn pseudo(src: Ipv6Addr, dst: Ipv6Addr, len: usize) -> u16 {
    checksum::pseudo_v6(src.octets(), dst.octets(), protocol::ICMPV6, len as u32).to_be()
}

/// An echo of ICMPv6 becomes one of ICMP; `was` is its addresses so far.
pub(super) fn query4(message: &mut [u8], was: &[u8; 32], to: &Tuple) -> Result<(), Untranslatable> {
    let (src, dst) = was.split_at(16);
    let [src, dst] = [src, dst].map(|half| {
        let octets: [u8; 16] = half.first_chunk().copied().unwrap_or_default();
        Ipv6Addr::from(octets)
    });
    let gone = !pseudo(src, dst, message.len());
    rewrite_echo(message, to, gone)
}

/// An echo of ICMP becomes one of ICMPv6.
pub(super) fn query6(
    message: &mut [u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    to: &Tuple,
) -> Result<(), Untranslatable> {
    let new = pseudo(src, dst, message.len());
    rewrite_echo(message, to, new)
}

/// Changes the upper layer of a quote, whose old and new addresses are given.
fn rewrite_quoted(
    frame: &mut [u8],
    quoted: &Headers,
    was: &[u8],
    new: &[u8],
    to: &Tuple,
) -> Result<(), Untranslatable> {
    let (Some(at), Some(number)) = (quoted.l4, quoted.protocol) else {
        return Ok(());
    };
    // How long the message was before it was cut: its checksum covers that in IPv6.
    let (field, extra) = if was.len() == 32 { (4, 40) } else { (2, 0) };
    let len = frame.get(quoted.l3 + field..).and_then(<[u8]>::first_chunk);
    let len = len.map(|len| usize::from(u16::from_be_bytes(*len)) + extra);
    let len = len.and_then(|len| len.checked_sub(at - quoted.l3));
    let len = len.ok_or(Untranslatable::Malformed)?;
    let bytes = frame
        .get_mut(at..quoted.end)
        .ok_or(Untranslatable::Malformed)?;
    match number {
        protocol::ICMP | protocol::ICMPV6 => {
            let (v6, is_new) = if new.len() == 32 {
                (new, true)
            } else {
                (was, false)
            };
            let (src, dst) = v6.split_at(16);
            let half = |half: &[u8]| {
                let octets: [u8; 16] = half.first_chunk().copied().unwrap_or_default();
                Ipv6Addr::from(octets)
            };
            let sum = pseudo(half(src), half(dst), len);
            rewrite_echo(bytes, to, if is_new { sum } else { !sum })
        }
        _ => {
            let upper = Upper::of(quoted.ethertype, number, bytes);
            write_upper(bytes, &upper, difference(was, new), &ports(to), false);
            Ok(())
        }
    }
}

/// An ICMPv6 error becomes an ICMP error, in `front` up to the quoted upper layer.
pub(super) fn error4(
    frame: &mut [u8],
    headers: &Headers,
    quoted: &Headers,
    to: &Tuple,
    ident: u16,
    mtu: u16,
    front: &mut Front,
) -> Result<(), Untranslatable> {
    use Untranslatable::{Icmp, Malformed};
    let (src, dst) = pair4(to).ok_or(Malformed)?;
    let (l3, l4) = (headers.l3, headers.l4.ok_or(Malformed)?);
    if headers.is_l4_right(frame) != Some(true) {
        return Err(Malformed);
    }
    let header: [u8; 8] = *frame
        .get(l4..)
        .and_then(<[u8]>::first_chunk)
        .ok_or(Malformed)?;
    let kind = error_kind4(header, mtu).ok_or(Icmp)?;
    let end = quote_end(frame.len(), l4, header[4], 8, &[1, 3], header[0]);
    let number = quoted.protocol.ok_or(Malformed)?;
    // A quoted fragment's payload begins behind its fragment header.
    let quoted_l4 = quoted.l4.ok_or(Untranslatable::Fragment)?;
    let mut was = [0; 32];
    was.copy_from_slice(frame.get(quoted.l3 + 8..quoted.l3 + 40).ok_or(Malformed)?);
    let mut new = [0; 8];
    // The quoted packet went the other way.
    new[..4].copy_from_slice(&dst.octets());
    new[4..].copy_from_slice(&src.octets());
    let reversed = to.reversed();
    rewrite_quoted_within(frame, quoted, end, &was, &new, &reversed)?;

    let packet = &frame[l3..];
    let mut outer = Front::new_like(front);
    header4(
        packet,
        l4 - l3,
        protocol::ICMPV6,
        src,
        dst,
        ident,
        &mut outer,
    )?;
    let mut inner = Front::new_like(front);
    let quote = &frame[quoted.l3..end];
    header4(
        quote,
        quoted_l4 - quoted.l3,
        number,
        dst,
        src,
        0,
        &mut inner,
    )?;
    let upper = &frame[quoted_l4.min(end)..end];
    let message = message_of(kind, inner.bytes(), upper, 0);
    let total = 20 + message.len() + inner.bytes().len() + upper.len();
    finish4(outer.bytes_mut(), total);
    front.push(outer.bytes());
    front.push(&message);
    front.push(inner.bytes());
    front.replaced = quoted_l4.min(end) - l3;
    front.end = end;
    Ok(())
}

/// An ICMP error becomes an ICMPv6 error, in `front` up to the quoted upper layer.
pub(super) fn error6(
    frame: &mut [u8],
    headers: &Headers,
    quoted: &Headers,
    to: &Tuple,
    prefix: &Prefix64,
    mtu: u16,
    front: &mut Front,
) -> Result<(), Untranslatable> {
    use Untranslatable::{Icmp, Malformed};
    let (src, dst) = pair6(to).ok_or(Malformed)?;
    let (l3, l4) = (headers.l3, headers.l4.ok_or(Malformed)?);
    if headers.is_l4_right(frame) != Some(true) {
        return Err(Malformed);
    }
    let header: [u8; 8] = *frame
        .get(l4..)
        .and_then(<[u8]>::first_chunk)
        .ok_or(Malformed)?;
    let kind = error_kind6(header, &frame[quoted.l3..], mtu).ok_or(Icmp)?;
    let end = quote_end(frame.len(), l4, header[5], 4, &[3, 11, 12], header[0]);
    let quoted_l4 = quoted.l4.ok_or(Untranslatable::Fragment)?;
    let mut was = [0; 8];
    was.copy_from_slice(frame.get(quoted.l3 + 12..quoted.l3 + 20).ok_or(Malformed)?);
    let router: [u8; 4] = *frame[l3 + 12..].first_chunk().ok_or(Malformed)?;
    let mut new = [0; 32];
    new[..16].copy_from_slice(&dst.octets());
    new[16..].copy_from_slice(&src.octets());
    let reversed = to.reversed();
    rewrite_quoted_within(frame, quoted, end, &was, &new, &reversed)?;

    // Who sent the error: the flow's own end, or a router behind the prefix.
    let from = match router == was[4..] {
        true => src,
        false => prefix.embed(Ipv4Addr::from(router)),
    };
    let mut outer = Front::new_like(front);
    header6(&frame[l3..], from, dst, &mut outer)?;
    let mut inner = Front::new_like(front);
    header6(&frame[quoted.l3..end], dst, src, &mut inner)?;
    // RFC 4443 2.4 (c): no error is longer than any link carries.
    let room = ipv6::MIN_MTU - 40 - 8 - inner.bytes().len();
    let end = end.min(quoted_l4 + room);
    let upper = &frame[quoted_l4.min(end)..end];
    let len = 8 + inner.bytes().len() + upper.len();
    let sum = checksum::pseudo_v6(from.octets(), dst.octets(), protocol::ICMPV6, len as u32);
    let message = message_of(kind, inner.bytes(), upper, sum);
    if let Some(place) = outer.bytes_mut().get_mut(4..6) {
        place.copy_from_slice(&(len as u16).to_be_bytes());
    }
    front.push(outer.bytes());
    front.push(&message);
    front.push(inner.bytes());
    front.replaced = quoted_l4.min(end) - l3;
    front.end = end;
    Ok(())
}

/// Where the quote ends: at the message's end, or where RFC 4884 says that extensions begin, in
/// units of `unit` bytes, in messages of these types.
fn quote_end(end: usize, l4: usize, len: u8, unit: usize, types: &[u8], kind: u8) -> usize {
    match types.contains(&kind) && len != 0 {
        true => end.min(l4 + 8 + usize::from(len) * unit),
        false => end,
    }
}

/// The same, if the quote's upper layer is there at all.
fn rewrite_quoted_within(
    frame: &mut [u8],
    quoted: &Headers,
    end: usize,
    was: &[u8],
    new: &[u8],
    to: &Tuple,
) -> Result<(), Untranslatable> {
    let cut = Headers {
        end: quoted.end.min(end),
        ..*quoted
    };
    match cut.l4.is_some_and(|at| at < cut.end) {
        true => rewrite_quoted(frame, &cut, was, new, to),
        false => Err(Untranslatable::Malformed),
    }
}

/// The header of a message with its checksum.
fn message_of(kind: [u8; 8], inner: &[u8], upper: &[u8], pseudo: u16) -> [u8; 8] {
    let mut header = kind;
    // All parts but the last are of even length.
    let sum = [&kind[..], inner, upper].into_iter().map(checksum::sum);
    let sum = !sum.fold(pseudo, checksum::add);
    header[2..4].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Gives an IPv4 header another length, and its checksum.
fn finish4(header: &mut [u8], total: usize) {
    let Some(header) = header.get_mut(..20) else {
        return;
    };
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[10..12].fill(0);
    let sum = checksum::checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}
