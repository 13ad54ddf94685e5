//! ICMP errors: the flow that one belongs to, and whether its quote can be true.
//!
//! An error quotes the packet that it is about. It belongs to that packet's flow, against its
//! direction. It passes if its checksum and that of the quoted IPv4 header are right (RFC 5508
//! REQ-3), it quotes 8 bytes of TCP, UDP or ICMP at least (RFC 792), it goes to the host that sent
//! what it quotes, there is such a flow (RFC 5508 REQ-4, REQ-5), and the TCP sequence number that
//! it quotes is on its way (RFC 5927 4.1). It changes no state, refreshes nothing and ends nothing:
//! RFC 4787 REQ-12, RFC 5382 REQ-10, RFC 5508 REQ-6.

use linerate_tables::flow::Direction;
use linerate_wire::flow::FlowKey;
use linerate_wire::icmp::Icmp;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, Headers, checksum, protocol};

use super::icmp::{self, Message};
use super::{Reason, Tcp};

/// The packet that an error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The key that packets of the flow have that go where the error goes: look the flow up by it,
    /// with your zone in its spare bytes. The direction of the hit is the error's.
    pub key: FlowKey,
    /// Where the quoted headers lie in the frame.
    pub headers: Headers,
    /// The quoted sequence number of TCP.
    seq: Option<u32>,
}

impl Quote {
    /// What the error in `frame` quotes, `headers` being those of the error.
    ///
    /// # Errors
    /// A [`Reason`] to drop it.
    pub fn read(frame: &[u8], headers: &Headers) -> Result<Self, Reason> {
        let quoted = headers.quoted(frame);
        let quoted = quoted.map_err(|_| Reason::QuoteMalformed)?;
        let mut quoted = quoted.ok_or(Reason::IcmpType)?;
        if !has_right_checksum(frame, headers).ok_or(Reason::IcmpHeader)? {
            return Err(Reason::QuoteChecksum);
        }
        // A first fragment has the ports of its datagram, whose flow it belongs to.
        quoted.is_fragment &= quoted.l4.is_none();
        let upper = quoted.l4.and_then(|l4| frame.get(l4..quoted.end));
        let upper = upper.ok_or(Reason::QuoteMalformed)?;
        // RFC 5508 REQ-3 a: the header, and never what is behind it (REQ-3 c).
        let header = quoted.l4.and_then(|l4| frame.get(quoted.l3..l4));
        if quoted.ethertype == EtherType::IPV4 && !header.is_some_and(checksum::verify) {
            return Err(Reason::QuoteChecksum);
        }
        let key = quoted.flow_key(frame).ok_or(Reason::QuoteMalformed)?;
        let mut quote = Self {
            key: key.reversed(),
            headers: quoted,
            seq: None,
        };
        let is_v6 = quoted.ethertype == EtherType::IPV6;
        match (is_v6, quoted.protocol) {
            (_, Some(protocol::TCP)) => {
                let start = upper.first_chunk::<8>().ok_or(Reason::QuoteMalformed)?;
                quote.seq = Some(u32::from_be_bytes([start[4], start[5], start[6], start[7]]));
            }
            (_, Some(protocol::UDP)) if upper.len() < 8 => return Err(Reason::QuoteMalformed),
            (false, Some(protocol::ICMP)) | (true, Some(protocol::ICMPV6)) => {
                let Ok(Message::Query(query)) = icmp::read(is_v6, upper) else {
                    return Err(Reason::QuoteMalformed);
                };
                quote.key = query.key(key).reversed();
            }
            _ => {}
        }
        match destination(frame, headers) == Some(destination_of(quote.key)) {
            true => Ok(quote),
            false => Err(Reason::QuoteAddress),
        }
    }

    /// Whether the flow that was found can have sent what is quoted; `direction` is the error's.
    ///
    /// # Errors
    /// [`Reason::QuoteSequence`].
    pub fn check(&self, tcp: &Tcp, direction: Direction) -> Result<(), Reason> {
        let sender = match direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        match self.seq {
            Some(seq) if !tcp.is_on_its_way(sender, seq) => Err(Reason::QuoteSequence),
            _ => Ok(()),
        }
    }
}

fn has_right_checksum(frame: &[u8], headers: &Headers) -> Option<bool> {
    let packet = frame.get(headers.l3..headers.end)?;
    let message = Icmp::new_checked(frame.get(headers.l4?..headers.end)?).ok()?;
    let pseudo = match headers.ethertype {
        EtherType::IPV6 => {
            let ip = Ipv6::new_checked(packet).ok()?;
            ip.pseudo_sum(&ip.upper_layer().ok()?)
        }
        _ => 0,
    };
    Some(message.verify(pseudo))
}

/// The address that the error goes to, in the last 4 or all of 16 bytes.
fn destination(frame: &[u8], headers: &Headers) -> Option<[u8; 16]> {
    let packet = frame.get(headers.l3..headers.end)?;
    match headers.ethertype {
        EtherType::IPV6 => Some(Ipv6::new_checked(packet).ok()?.dst().octets()),
        _ => Some(padded(Ipv4::new_checked(packet).ok()?.dst().octets())),
    }
}

fn destination_of(key: FlowKey) -> [u8; 16] {
    match key {
        FlowKey::V4(key) => padded(key.dst().octets()),
        FlowKey::V6(key) => key.dst().octets(),
    }
}

fn padded(address: [u8; 4]) -> [u8; 16] {
    let mut all = [0; 16];
    all[12..].copy_from_slice(&address);
    all
}
