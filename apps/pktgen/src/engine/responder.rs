//! What a port answers for its own addresses, and asks of others: ARP (RFC 826), IPv6 neighbour
//! discovery (RFC 4861), echo (RFC 792, RFC 4443).
//!
//! A [`Responder`] is the protocol alone, bytes in and bytes out; it knows no queue. Receivers hand
//! it candidates and send what it answers ([`help`](super::help)); the session has it make
//! questions. It never answers for an address that is not its own, nor to a multicast sender, nor
//! more often than [`REPLIES_PER_SECOND`]. It keeps no table: what it hears is an [`Event`] for the
//! session.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use linerate_core::env::Clock;
use linerate_core::port::Counter;
use linerate_wire::arp::{Arp, Operation};
use linerate_wire::checksum::{checksum, pseudo_v6};
use linerate_wire::ethernet::{EtherType, Ethernet, HEADER_LEN, MacAddr};
use linerate_wire::icmp::Icmp;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{protocol, vlan};

/// Replies in a second at most; as many may go at once.
pub(super) const REPLIES_PER_SECOND: u64 = 1000;

/// RFC 4861 6.1, 7.1: what came through a router has less.
const ND_HOP_LIMIT: u8 = 255;
const TTL: u8 = 64;
/// An echo's payload begins with these, and its send time in ticks, little endian.
const PING_MARK: [u8; 8] = *b"linerate";

mod kind {
    pub(super) const ECHO_REPLY: u8 = 0;
    pub(super) const ECHO: u8 = 8;
    pub(super) const ECHO_V6: u8 = 128;
    pub(super) const ECHO_REPLY_V6: u8 = 129;
    pub(super) const SOLICITATION: u8 = 135;
    pub(super) const ADVERTISEMENT: u8 = 136;
}

/// An address of a port, with the length of its network's prefix: `192.0.2.1/24`, `2001:db8::1/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAddr {
    pub ip: IpAddr,
    pub prefix_bits: u8,
}

impl PortAddr {
    /// Whether `other` is on the same link.
    pub fn covers(&self, other: IpAddr) -> bool {
        let shared = |bits: u32, width: u32| bits >= width.min(u32::from(self.prefix_bits));
        match (self.ip, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                shared((a.to_bits() ^ b.to_bits()).leading_zeros(), 32)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                shared((a.to_bits() ^ b.to_bits()).leading_zeros(), 128)
            }
            _ => false,
        }
    }
}

impl fmt::Display for PortAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_bits)
    }
}

impl FromStr for PortAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: &str| {
            format!("`{text}` is no address: {why}; write 192.0.2.1/24 or 2001:db8::1/64")
        };
        let (ip, prefix) = text
            .split_once('/')
            .map_or((text, None), |(ip, prefix)| (ip, Some(prefix)));
        let ip: IpAddr = ip.parse().map_err(|_| bad("neither IPv4 nor IPv6"))?;
        let width = if ip.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => width,
            Some(prefix) => prefix.parse().map_err(|_| bad("the prefix is no number"))?,
        };
        if prefix_bits > width {
            return Err(bad(&format!("a prefix has at most {width} bits")));
        }
        if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Err(bad("no host can have it"));
        }
        Ok(Self { ip, prefix_bits })
    }
}

/// What a responder heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour said where it is.
    Resolved { ip: IpAddr, mac: MacAddr },
    /// An echo of ours came back.
    Pong {
        from: IpAddr,
        ident: u16,
        sequence: u16,
        /// From the making of the request to the receipt of the reply.
        rtt_ticks: u64,
        /// TTL or hop limit of the reply.
        hops_left: u8,
    },
    /// Another host claims one of the port's addresses (RFC 5227 2.4).
    Conflict { ip: IpAddr, mac: MacAddr },
}

/// What a frame leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// Not for us, malformed, or nothing to say.
    Nothing,
    /// To be sent from the port.
    Reply(&'a [u8]),
    Event(Event),
}

/// What a responder did.
#[derive(Debug, Default)]
pub struct ResponderStats {
    pub arp_replies: Counter,
    pub nd_replies: Counter,
    pub echo_replies: Counter,
    /// Replies that were not made because there were too many.
    pub limited: Counter,
    /// Replies and events for which there was no room on their way.
    pub dropped: Counter,
}

impl ResponderStats {
    /// All of them, by name.
    pub fn read(&self) -> [(&'static str, u64); 5] {
        [
            ("ARP replies", self.arp_replies.read()),
            ("ND replies", self.nd_replies.read()),
            ("echo replies", self.echo_replies.read()),
            ("too many to answer", self.limited.read()),
            ("answers dropped", self.dropped.read()),
        ]
    }
}

/// Answers for one port.
pub struct Responder {
    mac: MacAddr,
    addrs: Arc<[PortAddr]>,
    pub stats: Arc<ResponderStats>,
    /// Ticks that a reply costs, and the tick up to which replies are paid for.
    reply_ticks: u64,
    paid_to: u64,
    reply: Vec<u8>,
}

/// A checked frame: who sent it, its tags, and the packet that it carries.
struct Heard<'a> {
    dst: MacAddr,
    src: MacAddr,
    tags: &'a [u8],
    ethertype: EtherType,
    packet: &'a [u8],
}

impl<'a> Heard<'a> {
    fn new(frame: &'a [u8]) -> Option<Self> {
        let ethernet = Ethernet::new_checked(frame).ok()?;
        let untagged = vlan::untagged(frame).ok()?;
        let heard = Self {
            dst: ethernet.dst(),
            src: ethernet.src(),
            // The tags and their types: all from the first type to the packet's.
            tags: &frame[HEADER_LEN - 2..untagged.offset - 2],
            ethertype: untagged.ethertype,
            packet: &frame[untagged.offset..],
        };
        (!heard.src.is_multicast()).then_some(heard)
    }
}

impl Responder {
    /// Answers for `addrs` at `mac`.
    pub fn new(mac: MacAddr, addrs: impl Into<Arc<[PortAddr]>>, clock: &Clock) -> Self {
        Self {
            mac,
            addrs: addrs.into(),
            stats: Arc::default(),
            reply_ticks: clock.ticks(1_000_000_000 / REPLIES_PER_SECOND),
            paid_to: 0,
            reply: Vec::with_capacity(2048),
        }
    }

    /// Takes a frame that was received at tick `now`. Any bytes will do.
    pub fn handle(&mut self, now: u64, frame: &[u8]) -> Response<'_> {
        self.respond(now, frame).unwrap_or(Response::Nothing)
    }

    /// `None` is nothing, too: as soon as it is clear.
    fn respond(&mut self, now: u64, frame: &[u8]) -> Option<Response<'_>> {
        let heard = Heard::new(frame)?;
        match heard.ethertype {
            EtherType::ARP => self.arp(now, &heard),
            EtherType::IPV4 => self.icmp(now, &heard),
            EtherType::IPV6 => self.icmp6(now, &heard),
            _ => None,
        }
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        self.addrs.iter().any(|own| own.ip == ip)
    }

    /// Whether one more reply may go; counted where not.
    fn may_reply(&mut self, now: u64) -> bool {
        // A full bucket is a second's replies.
        let second = self.reply_ticks * REPLIES_PER_SECOND;
        let paid_to = self.paid_to.max(now.saturating_sub(second));
        let may = paid_to + self.reply_ticks <= now;
        if may {
            self.paid_to = paid_to + self.reply_ticks;
        } else {
            self.stats.limited.add(1);
        }
        may
    }

    fn arp(&mut self, now: u64, heard: &Heard<'_>) -> Option<Response<'_>> {
        let arp = Arp::new_checked(heard.packet).ok()?;
        let (mac, ip) = (arp.sender_mac(), IpAddr::V4(arp.sender_ip()));
        if mac.is_multicast() {
            return None;
        }
        if self.is_own(ip) && mac != self.mac {
            return Some(Response::Event(Event::Conflict { ip, mac }));
        }
        match arp.operation() {
            Operation::Request => {
                let own = arp.target_ip();
                let to_us = heard.dst == self.mac || heard.dst == MacAddr::BROADCAST;
                if !to_us || !self.is_own(own.into()) || ip == IpAddr::V4(own) {
                    return None;
                }
                if !self.may_reply(now) {
                    return None;
                }
                self.begin(heard.src, heard.tags, EtherType::ARP);
                self.put_arp(2, own, mac, arp.sender_ip());
                self.stats.arp_replies.add(1);
                Some(self.finish())
            }
            Operation::Reply if heard.dst == self.mac => {
                Some(Response::Event(Event::Resolved { ip, mac }))
            }
            _ => None,
        }
    }

    fn icmp(&mut self, now: u64, heard: &Heard<'_>) -> Option<Response<'_>> {
        let ip = Ipv4::new_checked(heard.packet).ok()?;
        let (src, own) = (ip.src(), ip.dst());
        // RFC 1122 3.2.1.3: a source that no host can have; 3.2.2.6: no reply to a broadcast.
        let is_host = !src.is_unspecified() && !src.is_multicast() && !src.is_broadcast();
        if ip.protocol() != protocol::ICMP || heard.dst != self.mac || !is_host {
            return None;
        }
        if !self.is_own(own.into()) || ip.is_fragment() || !ip.verify() {
            return None;
        }
        let message = ip.payload();
        let echo = Icmp::new_checked(message).ok()?;
        if echo.code() != 0 || !echo.verify(0) {
            return None;
        }
        match echo.kind() {
            kind::ECHO_REPLY => pong(now, src.into(), &echo, ip.ttl()),
            kind::ECHO => {
                if !self.may_reply(now) {
                    return None;
                }
                self.begin(heard.src, heard.tags, EtherType::IPV4);
                self.put_ipv4(ip.tos(), own, src, message.len());
                self.put_icmp(message, kind::ECHO_REPLY, 0);
                self.stats.echo_replies.add(1);
                Some(self.finish())
            }
            _ => None,
        }
    }

    fn icmp6(&mut self, now: u64, heard: &Heard<'_>) -> Option<Response<'_>> {
        let ip = Ipv6::new_checked(heard.packet).ok()?;
        let upper = ip.upper_layer().ok()?;
        let message = &heard.packet[..ip.total_len()][upper.offset..];
        let icmp = Icmp::new_checked(message).ok()?;
        let is_whole = upper.protocol == protocol::ICMPV6 && !upper.is_fragment && !upper.is_routed;
        if !is_whole || icmp.code() != 0 || ip.src().is_multicast() {
            return None;
        }
        if !icmp.verify(ip.pseudo_sum(&upper)) {
            return None;
        }
        let (src, dst) = (ip.src(), ip.dst());
        match icmp.kind() {
            kind::SOLICITATION | kind::ADVERTISEMENT if ip.hop_limit() != ND_HOP_LIMIT => None,
            kind::SOLICITATION => self.solicited(now, heard, message, src, dst),
            kind::ADVERTISEMENT => self.advertised(heard, message, dst),
            _ if heard.dst != self.mac || !self.is_own(dst.into()) || src.is_unspecified() => None,
            kind::ECHO_REPLY_V6 => pong(now, src.into(), &icmp, ip.hop_limit()),
            kind::ECHO_V6 => {
                if !self.may_reply(now) {
                    return None;
                }
                self.begin(heard.src, heard.tags, EtherType::IPV6);
                self.put_ipv6(TTL, dst, src, message.len());
                let pseudo = pseudo(dst, src, message.len());
                self.put_icmp(message, kind::ECHO_REPLY_V6, pseudo);
                self.stats.echo_replies.add(1);
                Some(self.finish())
            }
            _ => None,
        }
    }

    /// RFC 4861 7.1.1 and 7.2.4.
    fn solicited(
        &mut self,
        now: u64,
        heard: &Heard<'_>,
        message: &[u8],
        src: Ipv6Addr,
        dst: Ipv6Addr,
    ) -> Option<Response<'_>> {
        let own = target(message)?;
        let source = link_layer(message, 1)?;
        if own.is_multicast() || !self.is_own(own.into()) {
            return None;
        }
        if dst != own && dst != solicited_node(own) {
            return None;
        }
        // One that is still looking whether its address is free has none yet.
        let is_probe = src.is_unspecified();
        if is_probe && (source.is_some() || dst == own) {
            return None;
        }
        if !self.may_reply(now) {
            return None;
        }
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let (to, to_mac, flags) = match is_probe {
            true => (all_nodes, multicast_mac(all_nodes), 0x20),
            false => (src, source.unwrap_or(heard.src), 0x60),
        };
        if !is_probe && to_mac.is_multicast() {
            return None;
        }
        self.begin(to_mac, heard.tags, EtherType::IPV6);
        self.put_neighbour(kind::ADVERTISEMENT, flags, own, own, to);
        self.stats.nd_replies.add(1);
        Some(self.finish())
    }

    /// RFC 4861 7.1.2 and 7.2.5.
    fn advertised(&self, heard: &Heard<'_>, message: &[u8], dst: Ipv6Addr) -> Option<Response<'_>> {
        let ip = target(message)?;
        let mac = link_layer(message, 2)?.unwrap_or(heard.src);
        let solicited = message[4] & 0x40 != 0;
        if ip.is_multicast() || mac.is_multicast() || (dst.is_multicast() && solicited) {
            return None;
        }
        let ip = IpAddr::V6(ip);
        Some(Response::Event(match self.is_own(ip) {
            true if mac == self.mac => return None,
            true => Event::Conflict { ip, mac },
            false => Event::Resolved { ip, mac },
        }))
    }

    /// The port's address from which `to` is best asked: one of the same network, or else of the
    /// same kind.
    pub fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        let same = |own: &&PortAddr| own.ip.is_ipv4() == to.is_ipv4();
        let near = self.addrs.iter().find(|own| own.covers(to));
        near.or_else(|| self.addrs.iter().find(same))
            .map(|own| own.ip)
    }

    /// An ARP request or neighbour solicitation for `to`; none where the port has no address of
    /// that kind.
    pub fn who_has(&mut self, to: IpAddr) -> Option<&[u8]> {
        match (self.source_for(to)?, to) {
            (IpAddr::V4(own), IpAddr::V4(to)) => {
                self.begin(MacAddr::BROADCAST, &[], EtherType::ARP);
                self.put_arp(1, own, MacAddr([0; 6]), to);
            }
            (IpAddr::V6(own), IpAddr::V6(to)) => {
                let group = solicited_node(to);
                self.begin(multicast_mac(group), &[], EtherType::IPV6);
                self.put_neighbour(kind::SOLICITATION, 0, to, own, group);
            }
            _ => return None,
        }
        self.pad();
        Some(&self.reply)
    }

    /// Tells all neighbours of the port's address `index`: an ARP announcement (RFC 5227 2.3) or an
    /// unsolicited advertisement (RFC 4861 7.2.6).
    pub fn announce(&mut self, index: usize) -> Option<&[u8]> {
        match self.addrs.get(index)?.ip {
            IpAddr::V4(own) => {
                self.begin(MacAddr::BROADCAST, &[], EtherType::ARP);
                self.put_arp(1, own, MacAddr([0; 6]), own);
            }
            IpAddr::V6(own) => {
                let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                self.begin(multicast_mac(all_nodes), &[], EtherType::IPV6);
                self.put_neighbour(kind::ADVERTISEMENT, 0x20, own, own, all_nodes);
            }
        }
        self.pad();
        Some(&self.reply)
    }

    /// An echo request to `to` by way of `mac`, with `payload_bytes`, 16 at least; none where the
    /// port has no address of that kind, or where that is too long for IPv4.
    pub fn ping(
        &mut self,
        to: IpAddr,
        mac: MacAddr,
        (ident, sequence): (u16, u16),
        now: u64,
        payload_bytes: usize,
    ) -> Option<&[u8]> {
        let mut message = vec![0; 8 + payload_bytes.clamp(16, 60_000)];
        message[4..6].copy_from_slice(&ident.to_be_bytes());
        message[6..8].copy_from_slice(&sequence.to_be_bytes());
        message[8..16].copy_from_slice(&PING_MARK);
        message[16..24].copy_from_slice(&now.to_le_bytes());
        match (self.source_for(to)?, to) {
            (IpAddr::V4(own), IpAddr::V4(to)) => {
                self.begin(mac, &[], EtherType::IPV4);
                self.put_ipv4(0, own, to, message.len());
                self.put_icmp(&message, kind::ECHO, 0);
            }
            (IpAddr::V6(own), IpAddr::V6(to)) => {
                self.begin(mac, &[], EtherType::IPV6);
                self.put_ipv6(TTL, own, to, message.len());
                let pseudo = pseudo(own, to, message.len());
                self.put_icmp(&message, kind::ECHO_V6, pseudo);
            }
            _ => return None,
        }
        self.pad();
        Some(&self.reply)
    }

    fn begin(&mut self, dst: MacAddr, tags: &[u8], ethertype: EtherType) {
        self.reply.clear();
        self.reply.extend(dst.0);
        self.reply.extend(self.mac.0);
        self.reply.extend(tags);
        self.reply.extend(ethertype.0.to_be_bytes());
    }

    fn finish(&mut self) -> Response<'_> {
        self.pad();
        Response::Reply(&self.reply)
    }

    /// To the shortest frame of a wire, without its check sequence.
    fn pad(&mut self) {
        let len = self.reply.len().max(60);
        self.reply.resize(len, 0);
    }

    fn put_arp(&mut self, operation: u8, own: Ipv4Addr, target_mac: MacAddr, target: Ipv4Addr) {
        self.reply.extend([0, 1, 8, 0, 6, 4, 0, operation]);
        self.reply.extend(self.mac.0);
        self.reply.extend(own.octets());
        self.reply.extend(target_mac.0);
        self.reply.extend(target.octets());
    }

    fn put_ipv4(&mut self, tos: u8, src: Ipv4Addr, dst: Ipv4Addr, payload_bytes: usize) {
        let [a, b] = ((20 + payload_bytes) as u16).to_be_bytes();
        // Never fragmented, so it needs no identification (RFC 6864 4.1).
        let mut header = [
            0x45,
            tos,
            a,
            b,
            0,
            0,
            0x40,
            0,
            TTL,
            protocol::ICMP,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        header[12..16].copy_from_slice(&src.octets());
        header[16..].copy_from_slice(&dst.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        self.reply.extend(header);
    }

    fn put_ipv6(&mut self, hop_limit: u8, src: Ipv6Addr, dst: Ipv6Addr, payload_bytes: usize) {
        let [a, b] = (payload_bytes as u16).to_be_bytes();
        self.reply
            .extend([0x60, 0, 0, 0, a, b, protocol::ICMPV6, hop_limit]);
        self.reply.extend(src.octets());
        self.reply.extend(dst.octets());
    }

    /// `message` with another type and the checksum of that.
    fn put_icmp(&mut self, message: &[u8], kind: u8, pseudo: u16) {
        let start = self.reply.len();
        self.reply.extend(message);
        let mut icmp = match Icmp::new_checked(&mut self.reply[start..]) {
            Ok(icmp) => icmp,
            // All that are put are at least a header long.
            Err(_) => return,
        };
        icmp.set_kind(kind);
        icmp.fill_checksum(pseudo);
    }

    /// A solicitation or advertisement for `target` with the port's MAC.
    fn put_neighbour(
        &mut self,
        kind: u8,
        flags: u8,
        target: Ipv6Addr,
        src: Ipv6Addr,
        dst: Ipv6Addr,
    ) {
        let mut message = [0; 32];
        message[4] = flags;
        message[8..24].copy_from_slice(&target.octets());
        // RFC 4861 4.6.1: source (1) or target (2) link-layer address, of one unit of 8 bytes.
        message[24] = if kind == kind::SOLICITATION { 1 } else { 2 };
        message[25] = 1;
        message[26..].copy_from_slice(&self.mac.0);
        self.put_ipv6(ND_HOP_LIMIT, src, dst, message.len());
        self.put_icmp(&message, kind, pseudo(src, dst, message.len()));
    }
}

/// An echo reply, if the request was ours.
fn pong<'a>(now: u64, from: IpAddr, echo: &Icmp<&[u8]>, hops_left: u8) -> Option<Response<'a>> {
    let (mark, rest) = echo.payload().split_first_chunk::<8>()?;
    let sent = u64::from_le_bytes(*rest.first_chunk()?);
    (*mark == PING_MARK).then_some(Response::Event(Event::Pong {
        from,
        ident: echo.echo_ident(),
        sequence: echo.echo_seq(),
        rtt_ticks: now.saturating_sub(sent),
        hops_left,
    }))
}

/// Sum of the pseudo-header of an ICMPv6 message of `len` bytes.
fn pseudo(src: Ipv6Addr, dst: Ipv6Addr, len: usize) -> u16 {
    pseudo_v6(src.octets(), dst.octets(), protocol::ICMPV6, len as u32)
}

/// The target of a solicitation or advertisement.
fn target(message: &[u8]) -> Option<Ipv6Addr> {
    let octets: &[u8; 16] = message.get(8..)?.first_chunk()?;
    Some((*octets).into())
}

/// The link-layer address in a neighbour message's option `wanted`, if it is there; `None` where
/// options are malformed.
fn link_layer(message: &[u8], wanted: u8) -> Option<Option<MacAddr>> {
    let mut options = message.get(24..)?;
    let mut found = None;
    while let [option, units, ..] = *options {
        let len = usize::from(units) * 8;
        // RFC 4861 4.6: a length of 0 is to be discarded.
        let bytes = options.get(..len).filter(|_| len > 0)?;
        if option == wanted && len == 8 {
            found = bytes[2..].first_chunk().map(|mac| MacAddr(*mac));
        }
        options = &options[len..];
    }
    options.is_empty().then_some(found)
}

/// RFC 4291 2.7.1.
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    let [low, high] = [u16::from_be_bytes([0xff, a]), u16::from_be_bytes([b, c])];
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, low, high)
}

/// RFC 2464 7.
fn multicast_mac(ip: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = ip.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests;
