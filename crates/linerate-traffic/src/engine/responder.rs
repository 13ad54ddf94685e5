//! Answers of a port for its own addresses, and its requests to others: ARP (RFC 826), IPv6
//! neighbour discovery (RFC 4861), echo (RFC 792, RFC 4443), all by `linerate-stack`.
//!
//! A [`Responder`] takes and returns bytes, without queues. Receivers hand it candidates and send
//! its answers ([`help`](super::help)). It never answers for an address that is not its own, nor to
//! a multicast sender, nor more often than [`REPLIES_PER_SECOND`]. Replies and claims of others
//! become [`Event`]s for the session. Each receive queue has a responder, since a reply may come to
//! any; so a request is registered with all of them, and sent once.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::sync::Arc;

use linerate_core::env::Clock;
use linerate_core::port::Counter;
use linerate_stack::icmp::{Limiter, Limits, echo4, echo6};
use linerate_stack::neighbour::{self, Config, Ignored, InterfaceConfig, Out, Table};
use linerate_wire::ethernet::{EtherType, Ethernet, HEADER_LEN, MacAddr, header, set_macs};
use linerate_wire::icmp::{Icmp, v4, v6};
use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::{checksum, ndp, protocol, vlan};

use linerate_appliance::error::Error;

/// Limit of answers a second to neighbour requests, and of those to echoes.
pub(super) const REPLIES_PER_SECOND: u32 = 1000;
/// Limit of remembered neighbours.
const NEIGHBOURS: usize = 1024;

const TTL: u8 = 64;
/// An echo's payload begins with these, and its send time in ticks, little endian.
const PING_MARK: [u8; 8] = *b"linerate";
/// The neighbour table of a port has only this interface.
const PORT: u16 = 0;

/// An address of a port, with the length of its network's prefix: `192.0.2.1/24`, `2001:db8::1/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAddr {
    /// The address.
    pub ip: IpAddr,
    /// Length of its network's prefix in bits.
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
            return Err(bad("it is not an address of a host"));
        }
        Ok(Self { ip, prefix_bits })
    }
}

/// Events of a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbour sent its MAC address.
    Resolved {
        /// The neighbour's address.
        ip: IpAddr,
        /// Its MAC address.
        mac: MacAddr,
    },
    /// A reply to our echo request came.
    Pong {
        /// Sender of the reply.
        from: IpAddr,
        /// Identifier of the echo.
        ident: u16,
        /// Sequence number of the echo.
        sequence: u16,
        /// From the making of the request to the receipt of the reply.
        rtt_ticks: u64,
        /// TTL or hop limit of the reply.
        hops_left: u8,
    },
    /// Another host claims one of the port's addresses (RFC 5227 2.4).
    Conflict {
        /// The claimed address.
        ip: IpAddr,
        /// MAC address of the other host.
        mac: MacAddr,
    },
}

/// Counters of a responder.
#[derive(Debug, Default)]
pub struct ResponderStats {
    /// ARP requests answered.
    pub arp_replies: Counter,
    /// Neighbour solicitations answered.
    pub nd_replies: Counter,
    /// Echo requests answered.
    pub echo_replies: Counter,
    /// Replies that were suppressed by the rate limit.
    pub limited: Counter,
    /// Replies and events that did not fit into their queue.
    pub dropped: Counter,
}

impl ResponderStats {
    /// All counters, by name.
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

/// Answers for the addresses of one port.
pub struct Responder {
    mac: MacAddr,
    addrs: Arc<[PortAddr]>,
    clock: Clock,
    /// Its counters.
    pub stats: Arc<ResponderStats>,
    /// Events in order; the caller takes them.
    pub events: Vec<Event>,
    table: Table,
    out: Out,
    echoes: Limiter,
    reply: Vec<u8>,
}

/// A table with the port's addresses; their announcements are in `out`.
fn table(mac: MacAddr, addrs: &[PortAddr], clock: &Clock, out: &mut Out) -> Result<Table, Error> {
    let now_ns = clock.ns(clock.now());
    let config = Config {
        max_entries: NEIGHBOURS,
        // No other limit: each request is a command.
        solicits_per_s: u32::MAX,
        replies_per_s: REPLIES_PER_SECOND,
        ..Config::default()
    };
    let mut table = Table::new(config, now_ns)?;
    let port = InterfaceConfig {
        mac,
        addresses: addrs.iter().map(|own| (own.ip, own.prefix_bits)).collect(),
        host: true,
        ..InterfaceConfig::default()
    };
    table.set_interface(PORT, port, now_ns, out);
    Ok(table)
}

/// Announcements of the port's addresses: ARP announcements (RFC 5227 2.3) and unsolicited
/// advertisements (RFC 4861 7.2.6).
///
/// # Errors
/// No memory.
pub fn announcements(
    mac: MacAddr,
    addrs: &[PortAddr],
    clock: &Clock,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut out = Out::new();
    table(mac, addrs, clock, &mut out)?;
    Ok(out.frames().map(|(_, frame)| frame.to_vec()).collect())
}

impl Responder {
    /// A responder for `addrs` at `mac`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        mac: MacAddr,
        addrs: impl Into<Arc<[PortAddr]>>,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let (addrs, mut out) = (addrs.into(), Out::new());
        let limits = Limits {
            total_per_s: REPLIES_PER_SECOND,
            total_burst: REPLIES_PER_SECOND,
            each_per_s: REPLIES_PER_SECOND,
            each_burst: REPLIES_PER_SECOND,
            destinations: 1,
        };
        Ok(Self {
            table: table(mac, &addrs, clock, &mut out)?,
            mac,
            addrs,
            clock: *clock,
            stats: Arc::default(),
            events: Vec::new(),
            out,
            echoes: Limiter::new(limits, 0),
            reply: Vec::with_capacity(2048),
        })
    }

    /// Handles a frame of any bytes, received at tick `now`; returns the reply, if any. Its events
    /// are in [`events`](Self::events).
    pub fn handle(&mut self, now: u64, frame: &[u8]) -> Option<&[u8]> {
        let untagged = vlan::untagged(frame).ok()?;
        let at = untagged.offset;
        let is_answered = match untagged.ethertype {
            EtherType::ARP => self.neighbour(now, frame, at, Table::arp),
            EtherType::IPV4 => {
                let ip = Ipv4::new_checked(&frame[at..]).ok()?;
                let (src, dst) = (ip.src().into(), ip.dst().into());
                self.echo(now, frame, at, (src, dst))
            }
            EtherType::IPV6 => {
                let ip = Ipv6::new_checked(&frame[at..]).ok()?;
                let kind = ip.payload().first().copied().unwrap_or(0);
                match ndp::MessageKind::of(kind).filter(|_| ip.next_header() == protocol::ICMPV6) {
                    Some(_) => self.neighbour(now, frame, at, Table::ndp),
                    None => {
                        let (src, dst) = (ip.src().into(), ip.dst().into());
                        self.echo(now, frame, at, (src, dst))
                    }
                }
            }
            _ => false,
        };
        is_answered.then_some(&self.reply)
    }

    /// Passes the frame, whose packet is `at`, to the table; returns whether it answers.
    fn neighbour(&mut self, now: u64, frame: &[u8], at: usize, take: Take) -> bool {
        self.out.clear();
        let now_ns = self.clock.ns(now);
        let heard = take(
            &mut self.table,
            PORT,
            frame,
            &|_| false,
            now_ns,
            &mut self.out,
        );
        self.stats
            .limited
            .add((heard == Err(Ignored::Limited)).into());
        self.told();
        // A claim of our address is reported, not defended: hence no frame but an answer.
        let Some((_, answer)) = self.out.frames().next().filter(|_| heard.is_ok()) else {
            return false;
        };
        // With the tags of the request: all bytes from the first type to the packet's.
        let (macs, rest) = answer.split_at(HEADER_LEN - 2);
        self.reply.clear();
        let parts = [macs, &frame[HEADER_LEN - 2..at - 2], rest];
        parts.iter().for_each(|part| self.reply.extend(*part));
        let is_arp = rest.starts_with(&EtherType::ARP.0.to_be_bytes());
        match is_arp {
            true => self.stats.arp_replies.add(1),
            false => self.stats.nd_replies.add(1),
        }
        true
    }

    /// Turns the table's reports into events.
    fn told(&mut self) {
        let told = self.out.events.drain(..).filter_map(|event| match event {
            neighbour::Event::Neighbour {
                address: ip,
                mac: Some(mac),
                ..
            } => Some(Event::Resolved { ip, mac }),
            neighbour::Event::Conflict {
                address: ip, mac, ..
            } => Some(Event::Conflict { ip, mac }),
            _ => None,
        });
        self.events.extend(told);
    }

    /// Answers an echo from `src`, or handles the reply to one of ours.
    fn echo(&mut self, now: u64, frame: &[u8], at: usize, (src, dst): (IpAddr, IpAddr)) -> bool {
        let Ok(ethernet) = Ethernet::new_checked(frame) else {
            return false;
        };
        let is_to_us = ethernet.dst() == self.mac && self.addrs.iter().any(|own| own.ip == dst);
        if !is_to_us || ethernet.src().is_multicast() {
            return false;
        }
        self.reply.clear();
        self.reply.extend(frame);
        let packet = &mut self.reply[at..];
        let is_request = match src {
            IpAddr::V4(_) => echo4(packet),
            IpAddr::V6(_) => echo6(packet),
        };
        if !is_request {
            self.events.extend(pong(now, packet));
            return false;
        }
        if !self.echoes.allow(src, self.clock.ns(now)) {
            self.stats.limited.add(1);
            return false;
        }
        self.stats.echo_replies.add(1);
        set_macs(&mut self.reply, ethernet.src(), self.mac)
    }

    /// An ARP request or neighbour solicitation for `to`, whose known MAC address is forgotten;
    /// `None` where the port has no address of that family, or has this address.
    pub fn who_has(&mut self, to: IpAddr) -> Option<Vec<u8>> {
        let now_ns = self.clock.ns(self.clock.now());
        self.out.clear();
        self.table.remove(PORT, to, &mut self.out);
        self.table.resolve(PORT, to, None, now_ns, &mut self.out);
        let question = self.out.frames().next();
        question.map(|(_, frame)| frame.to_vec())
    }
}

/// [`Table::arp`] or [`Table::ndp`].
type Take =
    fn(&mut Table, u16, &[u8], &dyn Fn(IpAddr) -> bool, u64, &mut Out) -> Result<(), Ignored>;

/// The source address for a request for `to`: one of the same network, or else of the same family.
fn source_for(addrs: &[PortAddr], to: IpAddr) -> Option<IpAddr> {
    let same = |own: &&PortAddr| own.ip.is_ipv4() == to.is_ipv4();
    let near = addrs.iter().find(|own| own.covers(to));
    near.or_else(|| addrs.iter().find(same)).map(|own| own.ip)
}

/// An echo request from a port (its MAC and its addresses) to a host and its MAC, with
/// `payload_bytes`, 16 at least; `None` where the port has no address of that family.
pub fn echo_request(
    (own, addrs): (MacAddr, &[PortAddr]),
    (mac, to): (MacAddr, IpAddr),
    (ident, sequence): (u16, u16),
    now: u64,
    payload_bytes: usize,
) -> Option<Vec<u8>> {
    let mut message = vec![0; 8 + payload_bytes.clamp(16, 60_000)];
    message[4..6].copy_from_slice(&ident.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    message[8..16].copy_from_slice(&PING_MARK);
    message[16..24].copy_from_slice(&now.to_le_bytes());
    let len = message.len() as u16;
    let mut icmp = Icmp::new_checked(&mut message[..]).ok()?;
    let mut frame = Vec::new();
    match (source_for(addrs, to)?, to) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            icmp.set_kind(v4::ECHO_REQUEST);
            icmp.fill_checksum(0);
            frame.extend(header(mac, own, EtherType::IPV4));
            frame.extend(ipv4::header(0, TTL, protocol::ICMP, src, dst, len));
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let (from, to) = (src.octets(), dst.octets());
            icmp.set_kind(v6::ECHO_REQUEST);
            icmp.fill_checksum(checksum::pseudo_v6(from, to, protocol::ICMPV6, len.into()));
            frame.extend(header(mac, own, EtherType::IPV6));
            frame.extend(ipv6::header(protocol::ICMPV6, TTL, src, dst, len));
        }
        _ => return None,
    }
    frame.extend(message);
    // The shortest frame of a wire, without its check sequence.
    frame.resize(frame.len().max(60), 0);
    Some(frame)
}

/// The event of an echo reply, if the request was ours.
fn pong(now: u64, packet: &[u8]) -> Option<Event> {
    let (from, hops_left, echo) = match packet.first()? >> 4 {
        4 => {
            let ip = Ipv4::new_checked(packet).ok()?;
            let echo = Icmp::new_checked(&packet[ip.header_len()..ip.total_len()]).ok()?;
            let is_reply = echo.kind() == v4::ECHO_REPLY && echo.verify(0);
            let is_whole = ip.protocol() == protocol::ICMP && !ip.is_fragment() && ip.verify();
            (is_reply && is_whole).then_some((IpAddr::from(ip.src()), ip.ttl(), echo))?
        }
        _ => {
            let ip = Ipv6::new_checked(packet).ok()?;
            let upper = ip.upper_layer().ok()?;
            let echo = Icmp::new_checked(&packet[upper.offset..ip.total_len()]).ok()?;
            let is_reply = echo.kind() == v6::ECHO_REPLY && echo.verify(ip.pseudo_sum(&upper));
            let is_whole = upper.protocol == protocol::ICMPV6 && !upper.is_fragment;
            (is_reply && is_whole).then_some((ip.src().into(), ip.hop_limit(), echo))?
        }
    };
    let (mark, rest) = echo.payload().split_first_chunk::<8>()?;
    let sent = u64::from_le_bytes(*rest.first_chunk()?);
    (echo.code() == 0 && *mark == PING_MARK).then_some(Event::Pong {
        from,
        ident: echo.echo_ident(),
        sequence: echo.echo_seq(),
        rtt_ticks: now.saturating_sub(sent),
        hops_left,
    })
}

#[cfg(test)]
mod tests;
