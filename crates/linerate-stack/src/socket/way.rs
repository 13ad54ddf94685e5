//! How segments of one connection leave: a slot, the headers, the host.

use std::net::IpAddr;

use linerate_core::packet::{Offload, Packet, PoolCache};
use linerate_core::run::Egress;
use linerate_wire::checksum::fold;
use linerate_wire::{FlowKey, FlowKey4, protocol};

use super::receive::ends_of;
use super::slots::Slot;
use crate::host::{BELOW, Checksum, Ends, Host, IpFields, Path};
use crate::tcp::connection::{Ecn, Shape, Wire};
use crate::tcp::segment::{Header, Usual};

/// Offset of the checksum in a TCP header, in bytes.
const CHECKSUM: u8 = 16;
/// ECT(0) in the traffic class (RFC 3168 5).
const ECT: u8 = 0b10;
/// The longest frame that is handed to a port to be cut, headers aside: IP's length field holds
/// headers and all.
const GSO_BYTES: u32 = 65_535 - 60 - 40;
/// Headers of a frame at most: Ethernet, IPv6, TCP.
const HEADERS: usize = 14 + 40 + 60;

pub(super) struct Way<'a> {
    pub(super) host: &'a mut Host,
    pub(super) out: &'a mut Egress,
    pub(super) key: &'a FlowKey,
    pub(super) path: &'a mut Path,
    /// The same for all segments of a connection; so is the flow label (RFC 6437 3).
    pub(super) fields: IpFields,
    pub(super) now_ns: u64,
}

impl<'a> Way<'a> {
    /// That of a slot's connection.
    #[inline(always)]
    pub(super) fn new(
        host: &'a mut Host,
        out: &'a mut Egress,
        slot: &'a mut Slot,
        now_ns: u64,
    ) -> Self {
        Self {
            host,
            out,
            key: &slot.key,
            path: &mut slot.path,
            fields: slot.fields,
            now_ns,
        }
    }
}

impl Way<'_> {
    /// The addresses of what is sent, from those of what arrives.
    #[inline]
    pub(super) fn ends(&self) -> Ends {
        match self.key {
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
        match self.key {
            FlowKey::V4(key) => (key.dst_port(), key.src_port()),
            FlowKey::V6(key) => (key.dst_port(), key.src_port()),
        }
    }

    /// Any segment, by the host's usual way.
    fn send_any(
        &mut self,
        header: &Header,
        (header_len, len): (usize, usize),
        shape: Shape,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let (ends, (src_port, dst_port)) = (self.ends(), self.ports());
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
        // Its checksum by the port, or by the host with the widest vectors that there are: the
        // payload is in the first-level cache since it was copied.
        let ip = (self.fields).header(ends, bits(shape.ecn), Checksum::At(CHECKSUM));
        self.out.made(1);
        // What the host has dropped counts as sent: it is as if a router had (RFC 1122 4.2.3.9).
        let _ = self
            .host
            .transmit(self.path, packet, &ip, self.now_ns, self.out);
        true
    }

    /// A segment whose header is the usual one, by the usual way.
    #[inline(never)]
    fn send_other(&mut self, header: Usual, shape: Shape, fill: impl FnOnce(&mut [u8])) -> bool {
        let len = Usual::LEN + shape.len as usize;
        self.send_any(&header.into(), (Usual::LEN, len), shape, fill)
    }

    /// A segment over IPv4 as nearly all are: each byte of its headers is written once, and its
    /// checksum is added up from what is written, since bytes that were stored just now in narrow
    /// words cannot be read in wide ones before they are in the cache.
    #[inline]
    fn send_plain(
        &mut self,
        key: &FlowKey4,
        header: &Header,
        (header_len, len): (usize, usize),
        ecn: Ecn,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(mut packet) = self.out.cache.get_for(len + BELOW) else {
            return false;
        };
        // Slots keep more room than that in front.
        if !packet.set_len(len) || packet.prepend(BELOW).is_none() {
            self.out.cache.free_one(packet);
            return false;
        }
        let tcp = &mut packet.data_mut()[BELOW..];
        let mut sum = header.write_summed(key.dst_port(), key.src_port(), tcp);
        let (head, payload) = tcp.split_at_mut(header_len);
        fill(payload);
        if !payload.is_empty() {
            sum += u64::from(self.host.sum(payload));
        }
        finish_checksum(key, sum, len, head);
        self.out.made(1);
        let fields = (self.fields, bits(ecn));
        self.host
            .send_plain(*self.path, packet, key, fields, self.out);
        true
    }
}

impl Wire for Way<'_> {
    #[inline]
    fn send(&mut self, header: &Header, shape: Shape, fill: impl FnOnce(&mut [u8])) -> bool {
        let header_len = header.len();
        let len = header_len + shape.len as usize;
        if let FlowKey::V4(key) = self.key
            && shape.gso_size == 0
            && !self.fields.may_be_cut()
            && self.host.sends_plain(*self.path, len)
        {
            return self.send_plain(key, header, (header_len, len), shape.ecn, fill);
        }
        self.send_any(header, (header_len, len), shape, fill)
    }

    #[inline(always)]
    fn send_usual(
        &mut self,
        header: Usual,
        len: u32,
        ecn: Ecn,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let payload_len = len as usize;
        if let FlowKey::V4(key) = self.key
            && !self.fields.may_be_cut()
            && let Some(hop) = self.host.plain_hop(*self.path, Usual::LEN + payload_len)
        {
            let words = header.words(key.dst_port(), key.src_port());
            let segment = (words, payload_len);
            let fields = (self.fields, bits(ecn));
            return self
                .host
                .send_usual(hop, segment, key, fields, self.out, fill);
        }
        let shape = Shape {
            len,
            gso_size: 0,
            ecn,
        };
        self.send_other(header, shape, fill)
    }

    fn peer(&self) -> IpAddr {
        ends_of(self.key).1
    }

    #[inline]
    fn gso_bytes(&self) -> u32 {
        // Without slots for long frames there are none.
        let has_slots = || {
            self.out
                .cache
                .pool_for(GSO_BYTES as usize + HEADERS)
                .is_some()
        };
        let is_whole = !self.fields.may_be_cut();
        match is_whole && self.host.has_tx_offloads(*self.path) && has_slots() {
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

    fn doubt(&mut self) {
        self.host.doubt(*self.path, self.now_ns, self.out);
    }
}

/// The bits of ECN in the octet that also has the Diffserv field.
#[inline(always)]
fn bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::Capable => ECT,
        Ecn::NotCapable => 0,
    }
}

/// Stores the checksum of a segment of `len` bytes, whose words add up to `sum` and whose header
/// begins with `head`: with the pseudo-header of RFC 9293 3.1.
#[inline(always)]
pub(super) fn finish_checksum(key: &FlowKey4, sum: u64, len: usize, head: &mut [u8]) {
    let ends = u64::from(key.src().to_bits()) + u64::from(key.dst().to_bits());
    let sum = sum + ends + u64::from(protocol::TCP) + len as u64;
    if let Some(place) = head.get_mut(CHECKSUM.into()..usize::from(CHECKSUM) + 2) {
        place.copy_from_slice(&(!fold(sum)).to_be_bytes());
    }
}
