//! Packets that a script injects, as bytes with right checksums.

use super::read::pseudo;
use super::{Segment, icmp};
use crate::fault::Fault;
use crate::script::{IcmpSpec, IpSpec, Quoted, TosSpec};
use linerate_wire::{checksum, ipv4, ipv6, tcp};
use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// The time to live of injected packets, where the script has none.
const TTL: u8 = 255;
/// Bytes of a quoted packet's layer 4: ports and sequence number are what receivers go by.
const QUOTED_BYTES: usize = 20;

/// An IP packet with this behind its header.
pub(crate) fn ip(spec: &IpSpec, src: IpAddr, dst: IpAddr, protocol: u8, upper: &[u8]) -> Vec<u8> {
    let tos = match spec.tos {
        TosSpec::Any | TosSpec::EitherEct => 0,
        TosSpec::Ecn(bits) => bits,
        TosSpec::All(tos) => tos,
    };
    let ttl = spec.ttl.unwrap_or(TTL);
    let len = upper.len() as u16; // a script's payload has at most 16 bits, see `too_long`
    let mut packet = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            ipv4::header(tos, ttl, protocol, src, dst, len).to_vec()
        }
        (src, dst) => {
            let (src, dst) = (v6(src), v6(dst));
            let mut header = ipv6::header(protocol, ttl, src, dst, len);
            let label = spec.flow_label.unwrap_or(0);
            // RFC 8200 3: the class lies across the first two bytes.
            header[0] |= tos >> 4;
            header[1] = (tos << 4) | ((label >> 16) as u8 & 0x0f);
            header[2..4].copy_from_slice(&(label as u16).to_be_bytes());
            header.to_vec()
        }
    };
    packet.extend(upper);
    packet
}

fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Whether so many bytes of payload fit an IP packet together with headers and options.
pub(crate) fn too_long(payload_bytes: usize) -> bool {
    payload_bytes + 40 + tcp::HEADER_LEN + super::MAX_OPTION_BYTES > usize::from(u16::MAX)
}

/// A segment in an IP packet. Its ports are those of the addresses.
pub(crate) fn segment(
    spec: &IpSpec,
    src: SocketAddr,
    dst: SocketAddr,
    segment: &Segment,
) -> Vec<u8> {
    let upper = tcp_bytes(src, dst, segment);
    ip(spec, src.ip(), dst.ip(), TCP, &upper)
}

fn tcp_bytes(src: SocketAddr, dst: SocketAddr, segment: &Segment) -> Vec<u8> {
    let flags = segment.flags;
    let mut out = tcp::header(
        src.port(),
        dst.port(),
        segment.seq,
        segment.ack,
        flags as u8,
    )
    .to_vec();
    out[14..16].copy_from_slice(&segment.window.to_be_bytes());
    out[18..20].copy_from_slice(&segment.urgent.to_be_bytes());
    for option in &segment.options {
        option.write(&mut out);
    }
    // RFC 9293 3.1: the header ends at a multiple of four bytes, padded with zeros.
    out.resize(out.len().next_multiple_of(4), 0);
    out[12] = (out.len() / 4) as u8 * 16 + (flags >> 8) as u8;
    out.extend(&segment.payload);
    fill_checksum(&mut out, 16, pseudo(src.ip(), dst.ip(), TCP, 0), TCP);
    out
}

/// A UDP datagram of zeros in an IP packet.
pub(crate) fn datagram(spec: &IpSpec, src: SocketAddr, dst: SocketAddr, bytes: u16) -> Vec<u8> {
    let upper = udp_bytes(src, dst, bytes);
    ip(spec, src.ip(), dst.ip(), UDP, &upper)
}

fn udp_bytes(src: SocketAddr, dst: SocketAddr, bytes: u16) -> Vec<u8> {
    let len = 8 + bytes;
    let mut out = Vec::with_capacity(usize::from(len));
    for word in [src.port(), dst.port(), len, 0] {
        out.extend(word.to_be_bytes());
    }
    out.resize(usize::from(len), 0);
    fill_checksum(&mut out, 6, pseudo(src.ip(), dst.ip(), UDP, 0), UDP);
    out
}

/// Writes the checksum at `at`, for a pseudo-header whose sum is `pseudo` without the length.
fn fill_checksum(upper: &mut [u8], at: usize, pseudo: u16, protocol: u8) {
    upper[at..at + 2].fill(0);
    let len = if protocol == ICMP {
        0
    } else {
        upper.len() as u32
    };
    let mut sum = u32::from(checksum::sum(upper)) + u32::from(pseudo) + len;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let value = match !(sum as u16) {
        // RFC 768: 0 says that there is none.
        0 if protocol == UDP => 0xffff,
        value => value,
    };
    upper[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Who an ICMP message is about: the connection whose packet it quotes, from our side.
pub(crate) struct About {
    /// Who sent the quoted packet: the stack under test.
    pub(crate) local: SocketAddr,
    /// To whom.
    pub(crate) remote: SocketAddr,
    /// Sequence number of the quoted segment.
    pub(crate) seq: u32,
}

/// The data of an echo request, which its reply has as well: each byte is its number.
pub(crate) fn echoed(bytes: u16) -> impl Iterator<Item = u8> {
    (0..bytes).map(|at| at as u8)
}

/// An ICMP message from the remote host to the stack under test.
///
/// # Errors
/// [`Fault`] where the type or code has no such name.
pub(crate) fn icmp(spec: &IpSpec, message: &IcmpSpec, about: &About) -> Result<Vec<u8>, Fault> {
    let (local, remote) = (about.local, about.remote);
    let is_v6 = local.is_ipv6();
    let kinds = icmp::kinds(is_v6);
    let unknown = |what: &str, name: &str, names: Vec<&str>| {
        let fix = format!("use one of {}", names.join(", "));
        Fault::syntax(
            message.at,
            format!("no ICMP {what} is called {name:?}"),
            fix,
        )
    };
    let kind = kinds
        .iter()
        .find(|kind| kind.name == message.kind)
        .ok_or_else(|| {
            unknown(
                "type",
                &message.kind,
                kinds.iter().map(|kind| kind.name).collect(),
            )
        })?;
    let code = match &message.code {
        None => 0,
        Some(name) => {
            let code = kind.codes.iter().find(|(code, _)| code == name);
            let names = || kind.codes.iter().map(|(code, _)| *code).collect();
            code.ok_or_else(|| unknown("code", name, names()))?.1
        }
    };
    let mut upper = vec![kind.number, code, 0, 0, 0, 0, 0, 0];
    if let Some(mtu) = message.mtu {
        // RFC 1191 4: the low 16 bits in ICMP; RFC 4443 3.2: all 32 in ICMPv6.
        upper[4..8].copy_from_slice(&mtu.to_be_bytes());
    }
    if let Some(ident) = message.ident {
        upper[4..6].copy_from_slice(&ident.to_be_bytes());
    }
    match message.quoted {
        Quoted::Raw(bytes) => upper.extend(echoed(bytes)),
        _ if !kind.is_error => {}
        Quoted::Udp(bytes) => {
            let mut quoted = udp_bytes(local, remote, bytes);
            let len = quoted.len();
            quoted.truncate(QUOTED_BYTES);
            upper.extend(quote(local.ip(), remote.ip(), UDP, &quoted, len));
        }
        Quoted::Tcp(..) | Quoted::Nothing => {
            let header = tcp::header(local.port(), remote.port(), about.seq, 0, 0x10);
            let bytes = match message.quoted {
                Quoted::Tcp(_, bytes) => bytes as usize,
                _ => 0,
            };
            let len = header.len() + bytes;
            upper.extend(quote(local.ip(), remote.ip(), TCP, &header, len));
        }
    }
    let protocol = if is_v6 { ICMPV6 } else { ICMP };
    let pseudo = pseudo(remote.ip(), local.ip(), protocol, 0);
    fill_checksum(&mut upper, 2, pseudo, protocol);
    Ok(ip(spec, remote.ip(), local.ip(), protocol, &upper))
}

/// The start of a packet that had `len` bytes behind its IP header.
fn quote(src: IpAddr, dst: IpAddr, protocol: u8, start: &[u8], len: usize) -> Vec<u8> {
    let spec = IpSpec {
        ttl: Some(64),
        ..IpSpec::default()
    };
    let mut packet = ip(&spec, src, dst, protocol, start);
    let len = len.min(usize::from(u16::MAX) - 40) as u16;
    if src.is_ipv4() {
        packet[2..4].copy_from_slice(&(len + 20).to_be_bytes());
        packet[10..12].fill(0);
        let sum = checksum::checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&len.to_be_bytes());
    }
    packet
}
