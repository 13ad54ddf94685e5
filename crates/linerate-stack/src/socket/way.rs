//! How segments of one connection leave: a slot, the headers, the host.

use linerate_core::packet::{Offload, Packet, PoolCache};
use linerate_core::run::Egress;
use linerate_wire::{FlowKey, protocol};

use crate::host::{Checksum, Ends, Header as IpHeader, Host, Path};
use crate::tcp::connection::{Ecn, Shape, Wire};
use crate::tcp::segment::Header;

/// Offset of the checksum in a TCP header, in bytes.
const CHECKSUM: u8 = 16;
/// The hop limit that TCP sends with (RFC 9293 3.9.2: configurable; Linux: 64).
const TTL: u8 = 64;
/// The longest frame that is handed to a port to be cut, headers aside: IP's length field holds
/// headers and all.
const GSO_BYTES: u32 = 65_535 - 60 - 40;

pub(super) struct Way<'a> {
    pub(super) host: &'a mut Host,
    pub(super) out: &'a mut Egress,
    pub(super) key: FlowKey,
    pub(super) path: &'a mut Path,
    /// Of IPv6: the same for all segments of a connection (RFC 6437 3).
    pub(super) flow_label: u32,
    pub(super) now_ns: u64,
}

impl Way<'_> {
    /// The addresses of what is sent, from those of what arrives.
    #[inline]
    pub(super) fn ends(&self) -> Ends {
        match &self.key {
            FlowKey::V4(key) => Ends::V4 {
                src: key.dst(),
                dst: key.src(),
            },
            FlowKey::V6(key) => Ends::V6 {
                src: key.dst(),
                dst: key.src(),
            },
        }
    }

    #[inline]
    fn ports(&self) -> (u16, u16) {
        match &self.key {
            FlowKey::V4(key) => (key.dst_port(), key.src_port()),
            FlowKey::V6(key) => (key.dst_port(), key.src_port()),
        }
    }
}

impl Wire for Way<'_> {
    #[inline]
    fn send(&mut self, header: &Header, shape: Shape, fill: impl FnOnce(&mut [u8])) -> bool {
        let (ends, (src_port, dst_port)) = (self.ends(), self.ports());
        let header_len = header.len();
        let len = header_len + shape.len as usize;
        // Below it go an Ethernet and an IP header, for which slots keep room in front.
        let Some(mut packet) = self.out.cache.get_for(len + 54) else {
            return false;
        };
        if !packet.set_len(len) {
            self.out.cache.free_one(packet);
            return false;
        }
        let is_gso = shape.gso_size != 0;
        let bytes = packet.data_mut();
        header.write(src_port, dst_port, bytes);
        fill(&mut bytes[header_len..]);
        let meta = packet.meta_mut();
        meta.offload = Offload::NONE;
        if is_gso {
            meta.gso_size = shape.gso_size;
            meta.offload = match ends {
                Ends::V4 { .. } => Offload::GSO_TCP4,
                Ends::V6 { .. } => Offload::GSO_TCP6,
            };
        }
        let ip = IpHeader {
            ends,
            protocol: protocol::TCP,
            tos: if shape.ecn == Ecn::Capable { 0b10 } else { 0 },
            ttl: TTL,
            dont_fragment: true,
            flow_label: self.flow_label,
            // By the port, or by the host with the widest vectors that there are: the payload is in
            // the first-level cache since it was copied.
            checksum: Checksum::At(CHECKSUM),
        };
        self.out.made(1);
        // What the host has dropped counts as sent: it is as if a router had (RFC 1122 4.2.3.9).
        let _ = self
            .host
            .transmit(self.path, packet, &ip, self.now_ns, self.out);
        true
    }

    #[inline]
    fn gso_bytes(&self) -> u32 {
        match self.host.has_tx_offloads(*self.path) {
            true => GSO_BYTES,
            false => 0,
        }
    }

    #[inline]
    fn free(&mut self, packet: Packet) {
        self.out.cache.free_one(packet);
    }

    #[inline]
    fn cache(&mut self) -> &mut PoolCache {
        &mut self.out.cache
    }

    #[inline]
    fn confirm(&mut self) {
        self.host.confirm(*self.path, self.now_ns, self.out);
    }
}
