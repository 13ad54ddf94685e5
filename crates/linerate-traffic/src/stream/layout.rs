//! The headers of a stream's frames: their bytes, where fields vary, which words are lengths and
//! checksums. Contradictions between keys are detected here.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use linerate_wire::ethernet::{EtherType, MacAddr};
use linerate_wire::mpls::Entry;
use linerate_wire::{arp, gre, gtpu, icmp, ipv4, ipv6, mpls, protocol, tcp, udp, vlan, vxlan};

use super::keys::Field;
use super::parts::HeaderKind;
use super::values::{Notation, Values, mac_number, written};
use super::{StreamError, StreamSpec};

/// Where a field stands: some bits of the big-endian word of `bytes` bytes at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// Bits of the word below the field.
    pub(super) shift: usize,
    /// Bits of the field.
    pub(super) bits: u32,
}

/// A field that varies.
#[derive(Debug)]
pub(super) struct Varied {
    pub(super) field: Field,
    pub(super) slot: Slot,
    pub(super) values: Values,
}

/// A 16-bit word that counts the bytes from `from` to the end of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    pub(super) at: usize,
    pub(super) from: usize,
}

/// A checksum at `at` over the bytes from `from`.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub(super) at: usize,
    pub(super) from: usize,
    /// End of the covered bytes; `None`: the end of the frame.
    pub(super) to: Option<usize>,
    /// Addresses and protocol of its pseudo-header.
    pub(super) pseudo: Option<(Range<usize>, u8)>,
    /// Whether zero stands for "none", so that a computed one is sent as all ones (UDP).
    pub(super) nonzero: bool,
}

impl Sum {
    /// Whether it covers the byte at `at`.
    pub(super) fn covers(&self, at: usize) -> bool {
        let to = self.to.unwrap_or(usize::MAX);
        let addresses = self.pseudo.as_ref().map(|(addresses, _)| addresses);
        (self.from..to).contains(&at) || addresses.is_some_and(|range| range.contains(&at))
    }
}

/// The headers of a stream's frames.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    spec: &'a StreamSpec,
    /// Bytes of all headers. Bits of varying fields, lengths and checksums are 0.
    pub(super) head: Vec<u8>,
    /// Position of the EtherType for the next header, if there is one.
    names_next: Option<usize>,
    pub(super) varied: Vec<Varied>,
    pub(super) lengths: Vec<Length>,
    /// Inner ones first, since outer ones cover them.
    pub(super) sums: Vec<Sum>,
    /// Each header's name and length in bytes.
    pub(super) layers: Vec<(&'static str, usize)>,
    /// The fields that frames have, as text.
    pub(super) shown: BTreeMap<Field, String>,
}

/// The fields of one IP header.
struct IpFields {
    src: Field,
    dst: Field,
    ttl: Field,
    dscp: Field,
    /// Whether this is the inner (or only) header, which has these fields.
    others: bool,
}

const INNER: IpFields = IpFields {
    src: Field::Src,
    dst: Field::Dst,
    ttl: Field::Ttl,
    dscp: Field::Dscp,
    others: true,
};

const OUTER: IpFields = IpFields {
    src: Field::OuterSrc,
    dst: Field::OuterDst,
    ttl: Field::OuterTtl,
    dscp: Field::OuterDscp,
    others: false,
};

/// RFC 2544 C.2.2: addresses for tests of devices.
const SRC_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const DST_V4: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
/// RFC 5180, 8: 2001:2::/48. The halves are its /49s.
const SRC_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
const DST_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0x8000, 0, 0, 0, 1);

/// IEEE 802: local experimental EtherType 1.
const EXPERIMENTAL: EtherType = EtherType(0x88b5);
/// RFC 3692, 2.1: the first protocol for experiments.
const EXPERIMENTAL_PROTOCOL: u8 = 253;

/// The content of a frame, from kind, keys and families.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Eth,
    Arp,
    Ip(Over),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Raw,
    Udp,
    Tcp,
    Icmp,
}

impl<'a> Layout<'a> {
    /// The headers of `spec`'s frames, for a port whose address is `src`, towards `dst`.
    pub(super) fn of(
        spec: &'a StreamSpec,
        src: MacAddr,
        dst: MacAddr,
    ) -> Result<Self, StreamError> {
        let mut layout = Self {
            spec,
            head: Vec::new(),
            names_next: None,
            varied: Vec::new(),
            lengths: Vec::new(),
            sums: Vec::new(),
            layers: Vec::new(),
            shown: BTreeMap::new(),
        };
        let (inside, v6) = layout.inside()?;
        let mut outer = Vec::new();
        let mut has_ethernet = true;
        if let Some(tunnel) = layout.tunnel_of()? {
            has_ethernet = layout.tunnel(tunnel, inside, src, dst)?;
            // Inner checksums come first, since those of the tunnel cover them.
            outer = std::mem::take(&mut layout.sums);
        }
        match (has_ethernet, inside) {
            (false, Inside::Ip(over)) => layout.ip_and_over(over, v6)?,
            _ => layout.frame(inside, v6, src, dst)?,
        }
        layout.sums.append(&mut outer);
        layout.check_all_used(inside, v6)?;
        Ok(layout)
    }

    fn has(&self, field: Field) -> bool {
        self.spec.fields.contains_key(&field)
    }

    /// `key=value` as it is written.
    fn given(&self, field: Field) -> String {
        let value = self.spec.fields.get(&field).map(ToString::to_string);
        format!("{}={}", field.key().0, value.unwrap_or_default())
    }

    /// The content of the frame, and whether it is over IPv6.
    fn inside(&self) -> Result<(Inside, bool), StreamError> {
        let any = |fields: &[Field]| fields.iter().any(|&field| self.has(field));
        let by_keys = if any(&[Field::Flags, Field::Seq, Field::Ack]) {
            HeaderKind::Tcp
        } else if any(&[
            Field::IcmpType,
            Field::IcmpCode,
            Field::IcmpId,
            Field::IcmpSeq,
        ]) {
            HeaderKind::Icmp
        } else if any(&[Field::ArpOp]) {
            HeaderKind::Arp
        } else if any(&[Field::EtherType]) {
            HeaderKind::Eth
        } else if any(&[Field::Proto]) {
            HeaderKind::Ipv4
        } else {
            HeaderKind::Udp
        };
        let kind = self.spec.kind.unwrap_or(by_keys);
        let (inside, says_v6) = match kind {
            HeaderKind::Eth => (Inside::Eth, None),
            HeaderKind::Arp => (Inside::Arp, Some(false)),
            HeaderKind::Ipv4 if self.spec.kind.is_none() => (Inside::Ip(Over::Raw), None),
            HeaderKind::Ipv4 => (Inside::Ip(Over::Raw), Some(false)),
            HeaderKind::Ipv6 => (Inside::Ip(Over::Raw), Some(true)),
            HeaderKind::Udp => (Inside::Ip(Over::Udp), None),
            HeaderKind::Tcp => (Inside::Ip(Over::Tcp), None),
            HeaderKind::Icmp => (Inside::Ip(Over::Icmp), None),
            HeaderKind::Udp6 => (Inside::Ip(Over::Udp), Some(true)),
            HeaderKind::Tcp6 => (Inside::Ip(Over::Tcp), Some(true)),
            HeaderKind::Icmp6 => (Inside::Ip(Over::Icmp), Some(true)),
        };
        let by_addresses = self.family(Field::Src, Field::Dst)?;
        let v6 = match (says_v6, by_addresses) {
            (Some(v6), Some((is_v6, field))) if v6 != is_v6 && inside != Inside::Eth => {
                let version = |v6| if v6 { "IPv6" } else { "IPv4" };
                return Err(StreamError::new(
                    format!(
                        "{} is {}, and kind={kind} is over {}",
                        self.given(field),
                        version(is_v6),
                        version(v6)
                    ),
                    format!("change the address, or write kind={}", other_family(kind)),
                ));
            }
            (Some(v6), _) | (None, Some((v6, _))) => v6,
            (None, None) => self.has(Field::FlowLabel),
        };
        Ok((inside, v6))
    }

    /// Whether two addresses are IPv6, and the field that determines it; `None` if neither does.
    fn family(&self, src: Field, dst: Field) -> Result<Option<(bool, Field)>, StreamError> {
        let of = |field: Field| match self.spec.fields.get(&field)?.notation {
            Notation::V4 => Some((false, field)),
            Notation::V6 => Some((true, field)),
            _ => None,
        };
        match (of(src), of(dst)) {
            (Some((a, _)), Some((b, _))) if a != b => Err(StreamError::new(
                format!(
                    "{} and {} are of two families",
                    self.given(src),
                    self.given(dst)
                ),
                "make both IPv4 or both IPv6",
            )),
            (a, b) => Ok(a.or(b)),
        }
    }

    /// The key of a tunnel, if there is one.
    fn tunnel_of(&self) -> Result<Option<Field>, StreamError> {
        let all = [Field::Vxlan, Field::Gre, Field::Gtpu];
        let mut given = all.into_iter().filter(|&field| self.has(field));
        let (first, second) = (given.next(), given.next());
        match (first, second) {
            (Some(one), Some(other)) => Err(StreamError::new(
                format!(
                    "{} and {} are two tunnels",
                    self.given(one),
                    self.given(other)
                ),
                "give one of them",
            )),
            _ => Ok(first),
        }
    }

    /// Outer headers up to and with that of the tunnel. Whether an Ethernet header follows.
    fn tunnel(
        &mut self,
        tunnel: Field,
        inside: Inside,
        src: MacAddr,
        dst: MacAddr,
    ) -> Result<bool, StreamError> {
        let is_ip = matches!(inside, Inside::Ip(_));
        if tunnel == Field::Gtpu && !is_ip {
            return Err(StreamError::new(
                format!("{} carries IP packets alone", self.given(tunnel)),
                "write kind=udp, or gre= or vxlan= for frames",
            ));
        }
        let v6 = self
            .family(Field::OuterSrc, Field::OuterDst)?
            .is_some_and(|(v6, _)| v6);
        self.ethernet(
            Field::OuterDstMac,
            Field::OuterSrcMac,
            dst,
            src,
            &[Field::OuterVlan],
        );
        if tunnel == Field::Gre {
            self.ip(v6, &OUTER, Some(protocol::GRE));
            // The following IP header sets its type here.
            let header = gre::header_with_key(EtherType::TRANSPARENT_ETHERNET, 0);
            let at = self.push("GRE", &header);
            self.put(Field::Gre, at + 4, 4, 0, 0);
            self.names_next = is_ip.then_some(at + 2);
            return Ok(!is_ip);
        }
        let addresses = self.ip(v6, &OUTER, Some(protocol::UDP));
        let port = match tunnel {
            Field::Gtpu => gtpu::PORT,
            _ => vxlan::PORT,
        };
        self.udp(
            addresses,
            // RFC 7348, 5: over IPv4 the checksum should be zero. GTP-U may omit it, too.
            v6,
            (Field::OuterSrcPort, 49152),
            (Field::OuterDstPort, port),
        );
        if tunnel == Field::Gtpu {
            let at = self.push("GTP-U", &gtpu::header(0, 0));
            self.put(Field::Gtpu, at + 4, 4, 0, 1);
            // 3GPP TS 29.281 5.1: the length of what follows the mandatory eight bytes.
            self.lengths.push(Length {
                at: at + 2,
                from: at + gtpu::HEADER_LEN,
            });
            self.names_next = None;
            return Ok(false);
        }
        let at = self.push("VXLAN", &vxlan::header(0));
        self.put(Field::Vxlan, at + 4, 4, 8, 1);
        Ok(true)
    }

    /// The labels between Ethernet and IP.
    fn labels(&mut self) -> Result<(), StreamError> {
        if !self.has(Field::Mpls) {
            return match self.has(Field::InnerMpls) {
                true => Err(StreamError::new(
                    format!("{} has no label before it", self.given(Field::InnerMpls)),
                    "give mpls=, the outer label, too",
                )),
                false => Ok(()),
            };
        }
        self.set_ethertype(EtherType::MPLS);
        let has_inner = self.has(Field::InnerMpls);
        for (field, is_bottom) in [(Field::Mpls, !has_inner), (Field::InnerMpls, true)] {
            if self.has(field) {
                let entry = Entry::new(0, 0, is_bottom, 64);
                let at = self.push("MPLS", &entry.0);
                self.put_bits(field, at, mpls::ENTRY_LEN, 12, 20, 0);
            }
        }
        // RFC 3032 2.2: the label determines the protocol behind it.
        self.names_next = None;
        Ok(())
    }

    /// Headers of the frame itself.
    fn frame(
        &mut self,
        inside: Inside,
        v6: bool,
        src: MacAddr,
        dst: MacAddr,
    ) -> Result<(), StreamError> {
        if self.has(Field::InnerVlan) && !self.has(Field::Vlan) {
            return Err(StreamError::new(
                format!(
                    "{} has no service tag before it",
                    self.given(Field::InnerVlan)
                ),
                "give vlan=, the outer tag, too",
            ));
        }
        let is_reply = self
            .spec
            .fields
            .get(&Field::ArpOp)
            .and_then(|op| op.fixed())
            == Some(2);
        let dst = match inside {
            Inside::Arp if !is_reply => MacAddr::BROADCAST,
            _ => dst,
        };
        let tags = [Field::Vlan, Field::InnerVlan];
        self.ethernet(Field::DstMac, Field::SrcMac, dst, src, &tags);
        match inside {
            Inside::Eth => {
                let at = self.head.len() - 2;
                self.put(Field::EtherType, at, 2, 0, EXPERIMENTAL.0.into());
                let bounds = self
                    .spec
                    .fields
                    .get(&Field::EtherType)
                    .and_then(|it| it.bounds());
                if bounds.is_some_and(|(least, _)| EtherType(least as u16).is_length()) {
                    return Err(StreamError::new(
                        format!("{} would be a length", self.given(Field::EtherType)),
                        "give 0x0600 or more",
                    ));
                }
            }
            Inside::Arp => self.arp(src, dst, is_reply),
            Inside::Ip(over) => {
                self.labels()?;
                self.ip_and_over(over, v6)?;
            }
        }
        Ok(())
    }

    fn ip_and_over(&mut self, over: Over, v6: bool) -> Result<(), StreamError> {
        let number = match (over, v6) {
            (Over::Raw, _) => None,
            (Over::Udp, _) => Some(protocol::UDP),
            (Over::Tcp, _) => Some(protocol::TCP),
            (Over::Icmp, false) => Some(protocol::ICMP),
            (Over::Icmp, true) => Some(protocol::ICMPV6),
        };
        let proto = self
            .spec
            .fields
            .get(&Field::Proto)
            .and_then(|it| it.fixed());
        if let (Over::Raw, Some(proto)) = (over, proto) {
            let known = [(6, "tcp"), (17, "udp"), (1, "icmp"), (58, "icmp6")];
            if let Some((_, kind)) = known.iter().find(|(number, _)| *number == proto) {
                return Err(StreamError::new(
                    format!("proto={proto} would lack its header"),
                    format!("write kind={kind}"),
                ));
            }
        }
        let addresses = self.ip(v6, &INNER, number);
        match over {
            Over::Raw => {}
            Over::Udp => {
                self.udp(addresses, true, (Field::SrcPort, 1024), (Field::DstPort, 9));
            }
            Over::Tcp => self.tcp(addresses),
            Over::Icmp => self.icmp(addresses, v6),
        }
        Ok(())
    }

    fn ethernet(
        &mut self,
        dst_field: Field,
        src_field: Field,
        dst: MacAddr,
        src: MacAddr,
        tags: &[Field],
    ) {
        let tags: Vec<_> = tags.iter().filter(|&&tag| self.has(tag)).collect();
        let at = self.push("Ethernet", &[0; 12]);
        self.put(dst_field, at, 6, 0, mac_number(dst));
        self.put(src_field, at + 6, 6, 0, mac_number(src));
        for (number, &&tag) in tags.iter().enumerate() {
            let is_service = number + 1 < tags.len();
            let tpid = match is_service {
                true => EtherType::SERVICE_VLAN,
                false => EtherType::VLAN,
            };
            let name = if is_service { "service tag" } else { "VLAN" };
            let at = self.push(name, &[0; vlan::TAG_LEN]);
            self.head[at..at + 2].copy_from_slice(&tpid.0.to_be_bytes());
            self.put(tag, at + 2, 2, 0, 0);
        }
        // The next header sets it.
        self.names_next = Some(self.head.len());
        self.head.extend([0; 2]);
        if let Some((_, bytes)) = self
            .layers
            .iter_mut()
            .rfind(|(name, _)| *name == "Ethernet")
        {
            *bytes += 2;
        }
    }

    fn set_ethertype(&mut self, ethertype: EtherType) {
        if let Some(at) = self.names_next {
            self.head[at..at + 2].copy_from_slice(&ethertype.0.to_be_bytes());
        }
    }

    fn arp(&mut self, src: MacAddr, dst: MacAddr, is_reply: bool) {
        self.set_ethertype(EtherType::ARP);
        let at = self.push("ARP", &[0; arp::LEN]);
        self.head[at..at + 6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        self.put(Field::ArpOp, at + 6, 2, 0, 1);
        self.put(Field::SrcMac, at + 8, 6, 0, mac_number(src));
        self.put(Field::Src, at + 14, 4, 0, u32::from(SRC_V4).into());
        if is_reply {
            self.put(Field::DstMac, at + 18, 6, 0, mac_number(dst));
        }
        self.put(Field::Dst, at + 24, 4, 0, u32::from(DST_V4).into());
    }

    /// Appends an IP header; returns the position of its addresses and the protocol, for
    /// pseudo-headers.
    fn ip(&mut self, v6: bool, fields: &IpFields, number: Option<u8>) -> (Range<usize>, u8) {
        let experimental = EXPERIMENTAL_PROTOCOL.into();
        let proto = number.unwrap_or_default();
        if v6 {
            self.set_ethertype(EtherType::IPV6);
            let at = self.push("IPv6", &[0; ipv6::HEADER_LEN]);
            self.head[at] = 0x60;
            self.head[at + 6] = proto;
            // Traffic class and flow label are bits of the first word.
            self.put_bits(fields.dscp, at, 4, 22, 6, 0);
            if fields.others {
                self.put_bits(Field::Ecn, at, 4, 20, 2, 0);
                self.put_bits(Field::FlowLabel, at, 4, 0, 20, 0);
                if number.is_none() {
                    self.put(Field::Proto, at + 6, 1, 0, experimental);
                }
            }
            self.put(fields.ttl, at + 7, 1, 0, 64);
            self.put(fields.src, at + 8, 16, 0, SRC_V6.into());
            self.put(fields.dst, at + 24, 16, 0, DST_V6.into());
            self.lengths.push(Length {
                at: at + 4,
                from: at + ipv6::HEADER_LEN,
            });
            return (at + 8..at + 40, proto);
        }
        self.set_ethertype(EtherType::IPV4);
        let at = self.push("IPv4", &[0; ipv4::HEADER_LEN]);
        self.head[at] = 0x45;
        self.head[at + 9] = proto;
        self.put_bits(fields.dscp, at + 1, 1, 2, 6, 0);
        if fields.others {
            self.put_bits(Field::Ecn, at + 1, 1, 0, 2, 0);
            self.put(Field::IpId, at + 4, 2, 0, 0);
            if number.is_none() {
                self.put(Field::Proto, at + 9, 1, 0, experimental);
            }
        }
        self.put(fields.ttl, at + 8, 1, 0, 64);
        self.put(fields.src, at + 12, 4, 0, u32::from(SRC_V4).into());
        self.put(fields.dst, at + 16, 4, 0, u32::from(DST_V4).into());
        self.lengths.push(Length {
            at: at + 2,
            from: at,
        });
        self.sums.push(Sum {
            at: at + 10,
            from: at,
            to: Some(at + ipv4::HEADER_LEN),
            pseudo: None,
            nonzero: false,
        });
        (at + 12..at + 20, proto)
    }

    fn udp(
        &mut self,
        pseudo: (Range<usize>, u8),
        has_sum: bool,
        src: (Field, u16),
        dst: (Field, u16),
    ) {
        let at = self.push("UDP", &[0; udp::HEADER_LEN]);
        self.put(src.0, at, 2, 0, src.1.into());
        self.put(dst.0, at + 2, 2, 0, dst.1.into());
        self.lengths.push(Length {
            at: at + 4,
            from: at,
        });
        if has_sum {
            self.sums.push(Sum {
                at: at + 6,
                from: at,
                to: None,
                pseudo: Some(pseudo),
                nonzero: true,
            });
        }
    }

    fn tcp(&mut self, pseudo: (Range<usize>, u8)) {
        let at = self.push("TCP", &[0; tcp::HEADER_LEN]);
        self.put(Field::SrcPort, at, 2, 0, 1024);
        self.put(Field::DstPort, at + 2, 2, 0, 9);
        self.put(Field::Seq, at + 4, 4, 0, 1);
        self.put(Field::Ack, at + 8, 4, 0, 1);
        self.head[at + 12] = 5 << 4; // five words of header
        self.put(Field::Flags, at + 13, 1, 0, tcp::flag::ACK.into());
        self.head[at + 14..at + 16].copy_from_slice(&[0xff, 0xff]); // window
        self.sums.push(Sum {
            at: at + 16,
            from: at,
            to: None,
            pseudo: Some(pseudo),
            nonzero: false,
        });
    }

    fn icmp(&mut self, pseudo: (Range<usize>, u8), v6: bool) {
        let at = self.push(if v6 { "ICMPv6" } else { "ICMP" }, &[0; icmp::HEADER_LEN]);
        self.put(Field::IcmpType, at, 1, 0, if v6 { 128 } else { 8 });
        self.put(Field::IcmpCode, at + 1, 1, 0, 0);
        self.put(Field::IcmpId, at + 4, 2, 0, 1);
        self.put(Field::IcmpSeq, at + 6, 2, 0, 1);
        self.sums.push(Sum {
            at: at + 2,
            from: at,
            to: None,
            pseudo: v6.then_some(pseudo), // RFC 792 has none
            nonzero: false,
        });
    }

    /// Appends a header; returns where it begins.
    fn push(&mut self, name: &'static str, bytes: &[u8]) -> usize {
        let at = self.head.len();
        self.head.extend(bytes);
        self.layers.push((name, bytes.len()));
        at
    }

    /// Puts a field into the word at `at`, all of whose bits above `shift` are its own.
    fn put(&mut self, field: Field, at: usize, bytes: usize, shift: usize, default: u128) {
        let bits = (bytes * 8 - shift) as u32;
        self.put_bits(field, at, bytes, shift, bits, default);
    }

    /// Puts a field into `bits` bits of the word at `at`.
    fn put_bits(
        &mut self,
        field: Field,
        at: usize,
        bytes: usize,
        shift: usize,
        bits: u32,
        default: u128,
    ) {
        let row = field.key().1;
        let given = self.spec.fields.get(&field);
        let notation = match (row.notation, bytes) {
            (Notation::Address, 4) => Notation::V4,
            (Notation::Address, _) => Notation::V6,
            (notation, _) => notation,
        };
        let text = given.map_or_else(|| written(notation, default), ToString::to_string);
        self.shown.insert(field, text);
        let values = match given.map(|given| &given.values) {
            None => Values::Fixed(default),
            Some(Values::Random) => random_of(field, notation, row.random),
            Some(values) => values.clone(),
        };
        let slot = Slot {
            at,
            bytes,
            shift,
            bits,
        };
        let Values::Fixed(value) = values else {
            self.varied.push(Varied {
                field,
                slot,
                values,
            });
            return;
        };
        let word = &mut self.head[at..at + bytes];
        let bytes = (value << shift).to_be_bytes();
        for (to, from) in word.iter_mut().rev().zip(bytes.iter().rev()) {
            *to |= from;
        }
    }

    /// Checks that each given key is used.
    fn check_all_used(&self, inside: Inside, v6: bool) -> Result<(), StreamError> {
        let unused = |field: &&Field| !self.shown.contains_key(field);
        let Some(&field) = self.spec.fields.keys().find(unused) else {
            return Ok(());
        };
        let (key, _) = field.key();
        let frame = match inside {
            Inside::Eth => "eth".into(),
            Inside::Arp => "arp".into(),
            Inside::Ip(over) => {
                let over = match over {
                    Over::Raw => "",
                    Over::Udp => "UDP over ",
                    Over::Tcp => "TCP over ",
                    Over::Icmp => "ICMP over ",
                };
                format!("{over}{}", if v6 { "IPv6" } else { "IPv4" })
            }
        };
        let fix = match field {
            Field::Flags | Field::Seq | Field::Ack => "write kind=tcp",
            Field::SrcPort | Field::DstPort => "write kind=udp or kind=tcp",
            Field::IcmpType | Field::IcmpCode | Field::IcmpId | Field::IcmpSeq => "write kind=icmp",
            Field::ArpOp => "write kind=arp",
            Field::EtherType => "write kind=eth",
            Field::Proto => "write kind=ipv4 or kind=ipv6",
            Field::FlowLabel => "write IPv6 addresses, or kind=udp6",
            Field::IpId => "write IPv4 addresses",
            Field::Mpls | Field::InnerMpls => "write an IP kind, outside of gre= and gtpu=",
            Field::OuterSrcPort | Field::OuterDstPort => "give vxlan= or gtpu=, which have ports",
            field if field > Field::Gtpu => "give vxlan=, gre= or gtpu=, the tunnel",
            _ => "write kind=udp",
        };
        Err(StreamError::new(
            format!("{}: {frame} has no such field", self.given(field)),
            format!("{fix}, or leave {key} out"),
        ))
    }
}

/// The same kind over the other family.
fn other_family(kind: HeaderKind) -> HeaderKind {
    match kind {
        HeaderKind::Ipv4 => HeaderKind::Ipv6,
        HeaderKind::Ipv6 => HeaderKind::Ipv4,
        HeaderKind::Udp6 => HeaderKind::Udp,
        HeaderKind::Tcp6 => HeaderKind::Tcp,
        HeaderKind::Icmp6 => HeaderKind::Icmp,
        other => other,
    }
}

/// The range of a bare `random`.
fn random_of(field: Field, notation: Notation, range: (u128, u128)) -> Values {
    let is_src = matches!(field, Field::Src | Field::OuterSrc);
    let (first, last) = match notation {
        // The hosts of 198.18.0.0/16 and 198.19.0.0/16.
        Notation::V4 => {
            let first = u32::from(if is_src { SRC_V4 } else { DST_V4 }).into();
            (first, (first | 0xffff) - 1)
        }
        // Those of the halves of 2001:2::/48.
        Notation::V6 => {
            let first = u128::from(if is_src { SRC_V6 } else { DST_V6 });
            (first, first | ((1 << 79) - 1))
        }
        _ => range,
    };
    Values::RandomOf { first, last }
}
