//! What tunnels carry: VXLAN, Geneve, GTP-U, GRE, MPLS and IP in IP, one step or all of them.
//!
//! Read [`parse`] first. [`Headers::tunnel`] takes one step inside, and the inner
//! [`Headers`] it gives are like the outer ones: their offsets too count from the start of the
//! outermost frame. [`parse_tunnelled`] takes up to [`MAX_TUNNELS`] steps.
//!
//! UDP tunnels are known by the destination port that IANA gave them. Nothing is looked for inside
//! fragments: what they carry is whole only after reassembly.

use core::fmt;

use crate::{
    EtherType, Headers, Layer, Malformed,
    geneve::{self, Geneve},
    gre::Gre,
    gtpu::{self, Gtpu},
    mpls::LabelStack,
    parse::{self, packet_at},
    protocol,
    udp::{self, Udp},
    vlan,
    vxlan::{self, Vxlan},
};

/// Tunnels in one another that [`parse_tunnelled`] walks: two, and a stack of labels between.
pub const MAX_TUNNELS: usize = 3;

/// The kinds of tunnel that are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelKind {
    /// Ethernet in UDP (RFC 7348).
    Vxlan,
    /// Ethernet or anything else in UDP (RFC 8926).
    Geneve,
    /// A mobile user's packet in UDP (3GPP TS 29.281).
    Gtpu,
    /// Ethernet or anything else in IP (RFC 2784).
    Gre,
    /// Anything behind labels (RFC 3032).
    Mpls,
    /// IPv4 or IPv6 in either of them (RFC 2003, RFC 2473, RFC 4213).
    Ip,
}

/// One tunnel, and what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What tunnel it is.
    pub kind: TunnelKind,
    /// VXLAN's and Geneve's network identifier, GTP-U's TEID, the key of a GRE header that has
    /// one, the bottom label of MPLS.
    pub id: Option<u32>,
    /// Offset of the tunnel's own header (of the inner IP header for IP in IP).
    pub header: usize,
    /// Offset of the inner Ethernet header, where the tunnel carries frames.
    pub l2: Option<usize>,
    /// The headers inside. `None` where the tunnel does not tell what it carries (MPLS and GTP-U
    /// that do not look like IP) and where it carries nothing (control messages).
    pub inner: Option<Headers>,
}

/// The headers of a frame and of what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnelled {
    /// The outermost headers: those that [`parse`](crate::parse()) finds.
    pub outer: Headers,
    tunnels: [Option<Tunnel>; MAX_TUNNELS],
    /// Why the walk inside ended, where it did not end at a packet that is no tunnel.
    pub stopped: Option<Malformed>,
}

impl Tunnelled {
    /// The tunnels, from the outermost.
    #[inline]
    pub fn tunnels(&self) -> impl Iterator<Item = &Tunnel> {
        self.tunnels.iter().flatten()
    }

    /// The headers of the innermost packet that was found; the outer ones where there is none.
    #[inline]
    pub fn innermost(&self) -> &Headers {
        let inner = self.tunnels().filter_map(|tunnel| tunnel.inner.as_ref());
        inner.last().unwrap_or(&self.outer)
    }
}

/// Finds the headers of an Ethernet frame and of the packets in it, at most [`MAX_TUNNELS`] deep.
///
/// It fails where [`parse`](crate::parse()) does. What is wrong further inside is no reason to
/// refuse a packet in transit, and is [`Tunnelled::stopped`].
///
/// ```
/// # use linerate_wire::{parse_tunnelled, tunnel::TunnelKind};
/// let mut frame = [0; 54]; // IPv4 in IPv4
/// frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 4]);
/// frame[34..44].copy_from_slice(&[0x45, 0, 0, 20, 0, 0, 0, 0, 64, 99]);
/// let found = parse_tunnelled(&frame)?;
/// assert_eq!(found.tunnels().map(|tunnel| tunnel.kind).collect::<Vec<_>>(), [TunnelKind::Ip]);
/// assert_eq!((found.outer.l3, found.innermost().l3), (14, 34));
/// assert_eq!(found.innermost().protocol, Some(99));
/// # Ok::<(), linerate_wire::Malformed>(())
/// ```
pub fn parse_tunnelled(frame: &[u8]) -> Result<Tunnelled, Malformed> {
    let outer = parse::parse(frame)?;
    let mut found = Tunnelled {
        outer,
        tunnels: [None; MAX_TUNNELS],
        stopped: None,
    };
    let mut at = outer;
    for slot in &mut found.tunnels {
        match at.tunnel(frame) {
            Ok(tunnel) => *slot = tunnel,
            Err(reason) => found.stopped = Some(reason),
        }
        match slot.and_then(|tunnel| tunnel.inner) {
            Some(inner) => at = inner,
            None => return Ok(found),
        }
    }
    if at.tunnel(frame) != Ok(None) {
        found.stopped = Some(Malformed::TooDeep(Layer::Tunnel));
    }
    Ok(found)
}

impl Headers {
    /// Takes one step inside: `Ok(None)` where this is no tunnel, or a fragment of one. `frame`
    /// is the one that was parsed.
    #[inline]
    pub fn tunnel(&self, frame: &[u8]) -> Result<Option<Tunnel>, Malformed> {
        match self.tunnel_kind() {
            Some(kind) => self.enter(kind, frame),
            None => Ok(None),
        }
    }

    /// The tunnel that the headers name: cheap for the many packets without one.
    #[inline]
    fn tunnel_kind(&self) -> Option<TunnelKind> {
        if matches!(self.ethertype, EtherType::MPLS | EtherType::MPLS_UPSTREAM) {
            return Some(TunnelKind::Mpls);
        }
        if self.is_fragment {
            return None;
        }
        match (self.protocol?, self.ports) {
            (protocol::UDP, Some((_, vxlan::PORT))) => Some(TunnelKind::Vxlan),
            (protocol::UDP, Some((_, geneve::PORT))) => Some(TunnelKind::Geneve),
            (protocol::UDP, Some((_, gtpu::PORT))) => Some(TunnelKind::Gtpu),
            (protocol::GRE, _) => Some(TunnelKind::Gre),
            (protocol::IPV4 | protocol::IPV6, _) => Some(TunnelKind::Ip),
            _ => None,
        }
    }

    fn enter(&self, kind: TunnelKind, frame: &[u8]) -> Result<Option<Tunnel>, Malformed> {
        let start = if kind == TunnelKind::Mpls {
            Some(self.l3)
        } else {
            self.l4
        };
        let there = start.and_then(|start| Some((start, frame.get(start..self.end)?)));
        let Some((mut header, mut bytes)) = there else {
            return Ok(None);
        };
        if matches!(
            kind,
            TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu
        ) {
            let len = Udp::new_checked(bytes)?.len();
            header += udp::HEADER_LEN;
            bytes = &bytes[udp::HEADER_LEN..len];
        }
        let (id, header_len, carries) = match kind {
            TunnelKind::Vxlan => {
                let vni = Vxlan::new_checked(bytes)?.vni();
                let carries = EtherType::TRANSPARENT_ETHERNET;
                (Some(vni), vxlan::HEADER_LEN, Some(carries))
            }
            TunnelKind::Geneve => {
                let geneve = Geneve::new_checked(bytes)?;
                let carries = (!geneve.is_control()).then(|| geneve.protocol());
                (Some(geneve.vni()), geneve.header_len(), carries)
            }
            TunnelKind::Gtpu => {
                let gtpu = Gtpu::new_checked(bytes)?;
                bytes = &bytes[..gtpu.len()];
                (Some(gtpu.teid()), gtpu.header_len(), gtpu.payload_type())
            }
            TunnelKind::Gre => {
                let gre = Gre::new_checked(bytes)?;
                (gre.key(), gre.header_len(), Some(gre.protocol()))
            }
            TunnelKind::Mpls => {
                let stack = LabelStack::new_checked(bytes)?;
                let label = stack.bottom().label();
                (Some(label), stack.header_len(), stack.payload_type())
            }
            TunnelKind::Ip if self.protocol == Some(protocol::IPV4) => {
                (None, 0, Some(EtherType::IPV4))
            }
            TunnelKind::Ip => (None, 0, Some(EtherType::IPV6)),
        };
        let (l2, inner) = inside(&frame[..header + bytes.len()], header + header_len, carries)?;
        Ok(Some(Tunnel {
            kind,
            id,
            header,
            l2,
            inner,
        }))
    }
}

/// Offset of the Ethernet header, and the headers, of what begins at `payload` and ends, padding
/// included, where `frame` does.
fn inside(
    frame: &[u8],
    payload: usize,
    carries: Option<EtherType>,
) -> Result<(Option<usize>, Option<Headers>), Malformed> {
    Ok(match carries {
        Some(EtherType::TRANSPARENT_ETHERNET) => {
            let packet = vlan::untagged(&frame[payload..])?;
            let l3 = payload + packet.offset;
            let inner = packet_at(frame, packet.ethertype, l3, packet.outer_tci)?;
            (Some(payload), Some(inner))
        }
        Some(ethertype) => (None, Some(packet_at(frame, ethertype, payload, None)?)),
        None => (None, None),
    })
}

impl fmt::Display for TunnelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TunnelKind::Vxlan => "VXLAN",
            TunnelKind::Geneve => "Geneve",
            TunnelKind::Gtpu => "GTP-U",
            TunnelKind::Gre => "GRE",
            TunnelKind::Mpls => "MPLS",
            TunnelKind::Ip => "IP in IP",
        })
    }
}

#[cfg(test)]
mod tests;
