//! Sending: IP header, layer-4 checksum, fragments where they are allowed, and the way out.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::Egress;
use linerate_wire::checksum::{add, fold, nonzero, pseudo_v4, pseudo_v6};
use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::{EtherType, ipv4, ipv6, protocol, set_macs};

use super::address;
use super::config::{InterfaceId, Unreachable};
use super::inbound::ErrorKind;
use super::path::{Link, Path};
use super::{Host, IDENTS, neighbour};
use crate::fragment::Cut;
use crate::neighbour::DropReason;

/// Where a packet comes from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// Over IPv4.
    V4 {
        /// An address of ours.
        src: Ipv4Addr,
        /// The peer's.
        dst: Ipv4Addr,
    },
    /// Over IPv6.
    V6 {
        /// An address of ours.
        src: Ipv6Addr,
        /// The peer's.
        dst: Ipv6Addr,
    },
}

impl Ends {
    /// `None` where the two are of different families.
    pub fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::V6 { src, dst }),
            _ => None,
        }
    }

    /// Our address.
    pub fn src(&self) -> IpAddr {
        match *self {
            Self::V4 { src, .. } => src.into(),
            Self::V6 { src, .. } => src.into(),
        }
    }

    /// The peer's.
    pub fn dst(&self) -> IpAddr {
        match *self {
            Self::V4 { dst, .. } => dst.into(),
            Self::V6 { dst, .. } => dst.into(),
        }
    }

    /// Bytes of the IP header.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self {
            Self::V4 { .. } => ipv4::HEADER_LEN,
            Self::V6 { .. } => ipv6::HEADER_LEN,
        }
    }

    /// Sum of the pseudo-header for a layer-4 packet of `len` bytes (RFC 9293 3.1, RFC 8200 8.1).
    #[inline]
    pub fn pseudo_sum(&self, protocol: u8, len: usize) -> u16 {
        match self {
            Self::V4 { src, dst } => pseudo_v4(src.octets(), dst.octets(), protocol, len as u16),
            Self::V6 { src, dst } => pseudo_v6(src.octets(), dst.octets(), protocol, len as u32),
        }
    }
}

/// What is left to do about the layer-4 checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: it stands there, or there is none.
    Done,
    /// It goes to this offset in bytes from the start of the layer-4 header, over it and the
    /// pseudo-header: by the port where that can ([`Offload::CSUM_PARTIAL`]), else here.
    At(u8),
}

/// What an IP header says beyond lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Addresses.
    pub ends: Ends,
    /// Protocol of the payload.
    pub protocol: u8,
    /// DSCP and, in the lowest two bits, ECN.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Whether neither this host nor a router may fragment the packet: one that is too long for
    /// the link is not sent. Its IPv4 identification is 0 (RFC 6864 4.1).
    pub dont_fragment: bool,
    /// IPv6 flow label, 20 bits; 0: none. See [`Host::flow_label`].
    pub flow_label: u32,
    /// The layer-4 checksum.
    pub checksum: Checksum,
}

/// Why a packet was not sent. It was dropped, and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// Its path had to be looked up anew, and there is none.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// Longer than the link takes, and not to be fragmented.
    #[error("the packet is longer than the {mtu} bytes of the link's MTU")]
    TooBig {
        /// Longest IP packet in bytes.
        mtu: u16,
    },
    /// Longer than an IP packet can be, or shorter than the place of its checksum.
    #[error("the length of the packet does not suit its header")]
    Length,
    /// No free slot for its headers or fragments.
    #[error("no free slot")]
    NoBuffer,
    /// Too many packets to our own addresses at once.
    #[error("too many packets to this host itself wait")]
    LoopbackFull,
}

impl Host {
    /// Sends a packet whose data is a layer-4 packet, header and payload. The headers below go into
    /// its headroom (into another slot where that is short). It leaves by the path's port; while
    /// its neighbour is being asked for it waits in the neighbour table, and what comes of it then
    /// is reported as an [`IcmpError`](super::IcmpError). A path that has ended is looked up anew,
    /// and changed.
    ///
    /// A frame to be cut by the port or its driver has its [`Offload::GSO`] flag and
    /// [`gso_size`](linerate_core::packet::Meta::gso_size) set by the caller. Other flags are
    /// replaced. The caller has told the egress of packets that it made
    /// ([`Egress::made`]).
    ///
    /// # Errors
    /// Why it was not sent.
    #[inline]
    pub fn transmit(
        &mut self,
        path: &mut Path,
        mut packet: Packet,
        header: &Header,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), Unsent> {
        let tx_offloads = match self.hops.get(*path) {
            Some(hop) => hop.tx_offloads,
            None => match self.look_up(*path, &header.ends) {
                Ok(anew) => {
                    *path = anew;
                    self.has_tx_offloads(anew)
                }
                Err(unreachable) => {
                    out.drop_one(self.reasons.no_route, packet);
                    return Err(unreachable.into());
                }
            },
        };
        self.stats.sent += 1;
        let (len, header_len) = (packet.len(), header.ends.header_len());
        let meta = packet.meta_mut();
        let is_gso = meta.offload.intersects(Offload::GSO);
        let mut offload = meta.offload;
        offload.remove(Offload::CSUM_PARTIAL | Offload::CSUM_VALID | Offload::RSS | VLAN);
        meta.offload = offload;
        let total = header_len + len;
        // RFC 791 3.1: with the header; RFC 8200 3: without.
        let counted = match header.ends {
            Ends::V4 { .. } => total,
            Ends::V6 { .. } => len,
        };
        if counted > usize::from(u16::MAX) {
            out.drop_one(self.reasons.too_big, packet);
            return Err(Unsent::Length);
        }
        let mtu = match header.dont_fragment {
            true => path.link_mtu(),
            false => self.mtu(*path, header.ends.dst(), now_ns).bytes,
        };
        let most = usize::from(mtu);
        let is_cut = total > most && !is_gso;
        if is_cut && header.dont_fragment {
            out.drop_one(self.reasons.too_big, packet);
            return Err(Unsent::TooBig { mtu });
        }
        if let Checksum::At(field) = header.checksum {
            // Of ICMPv6 even a packet to ourselves is finished, since its receiver checks it.
            let is_offloaded = matches!(header.protocol, protocol::TCP | protocol::UDP);
            let by_port = (tx_offloads || is_gso) && is_offloaded && !is_cut;
            if self
                .fill(&mut packet, header, field.into(), by_port)
                .is_none()
            {
                out.drop_one(self.reasons.bad_length, packet);
                return Err(Unsent::Length);
            }
        }
        let ident = match header.dont_fragment {
            true => 0,
            false => self.ident(&header.ends) as u16,
        };
        let mut packet = match packet.headroom() >= L2 + header_len {
            true => packet,
            false => match with_headroom(packet, L2 + header_len, out) {
                Ok(packet) => packet,
                Err(packet) => {
                    out.drop_one(self.reasons.no_buffer, packet);
                    return Err(Unsent::NoBuffer);
                }
            },
        };
        let front = packet.prepend(L2 + header_len);
        let front = front.expect("the headroom was looked at");
        match header.ends {
            Ends::V4 { src, dst } => {
                let bytes = header4(header, src, dst, total as u16, ident);
                front[L2..].copy_from_slice(&bytes);
            }
            Ends::V6 { src, dst } => {
                let mut bytes = ipv6::header(header.protocol, header.ttl, src, dst, len as u16);
                let class = u32::from(header.tos) << 20 | header.flow_label & 0x000f_ffff;
                bytes[..4].copy_from_slice(&(6 << 28 | class).to_be_bytes());
                front[L2..].copy_from_slice(&bytes);
            }
        }
        match is_cut {
            false => self.emit(*path, packet, now_ns, out),
            true => self.emit_cut(*path, packet, most, now_ns, out),
        }
    }

    /// The IPv6 flow label of a flow: unpredictable, the same for the same flow, and never 0 (RFC
    /// 6437 3). Routers that spread flows over links need not look behind the IP header then.
    pub fn flow_label(&self, local: SocketAddr, remote: SocketAddr, protocol: u8) -> u32 {
        let hash = self.secret.hash_one((local, remote, protocol)) as u32;
        (hash & 0x000f_ffff).max(1)
    }

    /// The path of which another one has ended.
    #[cold]
    fn look_up(&mut self, old: Path, ends: &Ends) -> Result<Path, Unreachable> {
        let is_scoped = address::is_link_scoped(ends.dst()) && old != Path::UNKNOWN;
        let on = is_scoped.then_some(old.interface());
        let on = on.filter(|on| *on != InterfaceId::LOOPBACK);
        let (path, _) = self.path_on(on, Some(ends.src()), ends.dst())?;
        Ok(path)
    }

    /// Fills the layer-4 checksum, or leaves it to the port. `None` where its field is not in the
    /// packet.
    #[inline]
    fn fill(
        &self,
        packet: &mut Packet,
        header: &Header,
        field: usize,
        by_port: bool,
    ) -> Option<()> {
        let len = packet.len();
        let pseudo = header.ends.pseudo_sum(header.protocol, len);
        let place = packet.data_mut().get_mut(field..field + 2)?;
        if by_port {
            // Virtio 1.2 5.1.6.2: the pseudo-header's sum, not complemented.
            place.copy_from_slice(&pseudo.to_be_bytes());
            let meta = packet.meta_mut();
            meta.offload.insert(Offload::CSUM_PARTIAL);
            meta.csum_start = (L2 + header.ends.header_len()) as u16;
            meta.csum_offset = field as u8;
            return Some(());
        }
        place.fill(0);
        let sum = !add(pseudo, self.checksums.sum(packet.data()));
        let sum = match header.protocol {
            protocol::UDP => nonzero(sum),
            _ => sum,
        };
        packet.data_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        Some(())
    }

    /// The identification of a packet that may be fragmented: a counter for each pair of
    /// addresses, or a few that share it, from a secret start (RFC 7739 5.3; RFC 6864 4.2 wants no
    /// repetition within the lifetime of packets).
    fn ident(&mut self, ends: &Ends) -> u32 {
        let hash = self.secret.hash_one(ends);
        let counter = &mut self.idents[hash as usize % IDENTS];
        *counter = counter.wrapping_add(1);
        counter.wrapping_add((hash >> 32) as u32)
    }

    /// Sends a frame whose IP header, at byte 14, is complete, in fragments where it is too long
    /// for the path and allows it: an answer, or a packet that passes through, of which the caller
    /// has told the egress. The Ethernet header is written here.
    ///
    /// # Errors
    /// Why it was not sent: as [`transmit`](Self::transmit).
    #[inline]
    pub fn send_frame(
        &mut self,
        path: Path,
        packet: Packet,
        dst: IpAddr,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), Unsent> {
        let most = usize::from(self.mtu(path, dst, now_ns).bytes);
        match packet.len() - L2 > most {
            false => self.emit(path, packet, now_ns, out),
            true => self.emit_cut(path, packet, most, now_ns, out),
        }
    }

    /// Writes the Ethernet header of a frame that passes through, and that fits the path. Returns
    /// the port that it is to leave by; `None`, with nothing written, where its next hop's address
    /// is not known or is our own: it is to be [sent](Self::send_frame) then.
    #[inline]
    pub fn address(&self, path: Path, packet: &mut Packet) -> Option<u16> {
        let hop = self.hops.get(path)?;
        let header = packet.data_mut().first_chunk_mut::<L2>()?;
        (hop.link == Link::Known).then(|| {
            *header = hop.header;
            hop.port
        })
    }

    /// Sends a frame that fits the path; its Ethernet header is yet to be written.
    #[inline]
    fn emit(
        &mut self,
        path: Path,
        mut packet: Packet,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), Unsent> {
        let Some(hop) = self.hops.get(path) else {
            // A path that was looked up just now has its hop.
            out.drop_one(self.reasons.no_route, packet);
            return Err(Unreachable::NoRoute.into());
        };
        packet.data_mut()[..L2].copy_from_slice(&hop.header);
        match hop.link {
            Link::Known => {
                let port = hop.port;
                self.leave(port, packet, out);
                Ok(())
            }
            Link::Unknown => {
                let (interface, address) = (hop.interface.0, hop.address);
                let todo = &mut self.todo;
                let table = &mut self.neighbours;
                let mac = table.resolve(interface, address, Some(packet), now_ns, todo);
                self.due_ns = 0;
                // It was known for another path before, so no event tells of it.
                if mac.is_some() {
                    self.hops.learn(interface, address, mac);
                }
                self.settle(out);
                Ok(())
            }
            Link::Loopback => self.loop_back(packet, out),
        }
    }

    /// A packet to an address of ours: it waits for the next call of `receive`.
    #[cold]
    fn loop_back(&mut self, mut packet: Packet, out: &mut Egress) -> Result<(), Unsent> {
        if self.looped.len() == self.looped.capacity() {
            out.drop_one(self.reasons.loopback_full, packet);
            return Err(Unsent::LoopbackFull);
        }
        let frame = packet.data_mut();
        let ethertype = match frame.get(L2).map(|version| version >> 4) {
            Some(4) => EtherType::IPV4,
            _ => EtherType::IPV6,
        };
        frame[12..14].copy_from_slice(&ethertype.0.to_be_bytes());
        packet.set_port(InterfaceId::LOOPBACK.0);
        self.looped.push_back(packet);
        Ok(())
    }

    /// Sends a frame in fragments of at most `most` bytes.
    #[cold]
    fn emit_cut(
        &mut self,
        path: Path,
        packet: Packet,
        most: usize,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), Unsent> {
        let is_v4 = packet
            .data()
            .get(L2)
            .is_some_and(|version| version >> 4 == 4);
        let ident = self.unpredictable(1) as u32;
        let cut = match is_v4 {
            true => Cut::ipv4(&packet, L2, most),
            // RFC 7739 5: unpredictable.
            false => Cut::ipv6(&packet, L2, most, ident),
        };
        let Ok(mut cut) = cut else {
            out.drop_one(self.reasons.too_big, packet);
            return Err(Unsent::TooBig { mtu: most as u16 });
        };
        let mut result = Ok(());
        let mut fragments = Burst::new();
        while !cut.is_done() && result.is_ok() {
            if !cut.fill(&mut out.cache, &mut fragments) {
                result = Err(Unsent::NoBuffer);
            }
            out.made(fragments.len() as u64);
            for fragment in fragments.drain() {
                self.stats.fragments_sent += 1;
                let sent = self.emit(path, fragment, now_ns, out);
                result = result.and(sent);
            }
        }
        match result {
            Err(Unsent::NoBuffer) => out.drop_one(self.reasons.no_buffer, packet),
            _ => out.consume_one(packet),
        }
        result
    }

    /// Sends packets whose neighbour is known now, and drops those that have none.
    pub(super) fn release(&mut self, todo: &mut neighbour::Out, out: &mut Egress) {
        for released in todo.released.drain(..) {
            let mut packet = released.packet;
            match self.at(InterfaceId(released.interface)) {
                Some(interface) => {
                    let _ = set_macs(packet.data_mut(), released.mac, interface.config.mac);
                    let port = interface.config.port;
                    self.leave(port, packet, out);
                }
                None => out.drop_one(self.reasons.no_interface, packet),
            }
        }
        for dropped in todo.dropped.drain(..) {
            if dropped.reason == DropReason::Unresolved {
                self.report_locally(&dropped.packet, ErrorKind::HostUnreachable);
            }
            out.drop_one(self.reasons.neighbour(dropped.reason), dropped.packet);
        }
    }
}

/// Flags of a received packet that say nothing of one to be sent.
const VLAN: Offload = Offload::VLAN;

/// An IPv4 header without options.
#[inline]
fn header4(
    header: &Header,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    total: u16,
    ident: u16,
) -> [u8; ipv4::HEADER_LEN] {
    const DONT_FRAGMENT: u16 = 0x4000;
    let flags = if header.dont_fragment {
        DONT_FRAGMENT
    } else {
        0
    };
    let first = u16::from_be_bytes([0x45, header.tos]);
    let life = u16::from_be_bytes([header.ttl, header.protocol]);
    let (from, to) = (src.to_bits(), dst.to_bits());
    // RFC 1071 2 (C): words of any width add up to the same.
    let sum = [first, total, ident, flags, life].map(u64::from);
    let sum = sum.iter().sum::<u64>() + u64::from(from) + u64::from(to);
    let words = [first, total, ident, flags, life, !fold(sum)];
    let mut bytes = [0; ipv4::HEADER_LEN];
    for (place, word) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    bytes[12..16].copy_from_slice(&from.to_be_bytes());
    bytes[16..].copy_from_slice(&to.to_be_bytes());
    bytes
}

/// The same packet in a slot with room for headers; the packet itself where there is no slot.
#[cold]
fn with_headroom(packet: Packet, header: usize, out: &mut Egress) -> Result<Packet, Packet> {
    let len = packet.len();
    let Some(mut copy) = out.cache.get_for(len + header) else {
        return Err(packet);
    };
    copy.copy_meta(&packet);
    if !(copy.set_data(packet.data()) && copy.headroom() >= header) {
        out.cache.free_one(copy);
        return Err(packet);
    }
    out.cache.free_one(packet);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::checksum;

    #[test]
    fn an_ipv4_header_is_that_of_the_wire_crate() {
        let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(203, 0, 113, 255));
        let mut header = Header {
            ends: Ends::V4 { src, dst },
            protocol: 6,
            tos: 0x2a,
            ttl: 63,
            dont_fragment: true,
            flow_label: 0,
            checksum: Checksum::Done,
        };
        for len in [0_u16, 1, 1460, 65_515] {
            let expected = ipv4::header(0x2a, 63, 6, src, dst, len);
            assert_eq!(header4(&header, src, dst, len + 20, 0), expected);
        }
        header.dont_fragment = false;
        let bytes = header4(&header, src, dst, 40, 0xbeef);
        assert_eq!(bytes[4..8], [0xbe, 0xef, 0, 0]);
        assert!(checksum::verify(&bytes));
    }
}
