//! Frames built slowly, by etherparse and by hand, from the values that a stream's line names.

use etherparse::PacketBuilder;

use super::{DST, SRC};
use crate::stream::StreamSpec;
use crate::stream::keys::Field;
use crate::stream::values::Values;

fn mac(value: u128) -> [u8; 6] {
    let bytes = (value as u64).to_be_bytes();
    std::array::from_fn(|at| bytes[at + 2])
}

/// The values of frame `number`, by the grammar.
struct Model<'a> {
    spec: &'a StreamSpec,
    number: usize,
}

impl Model<'_> {
    fn has(&self, field: Field) -> bool {
        self.spec.fields.contains_key(&field)
    }

    fn of(&self, field: Field, default: u128) -> u128 {
        match self.spec.fields.get(&field).map(|varying| &varying.values) {
            None => default,
            Some(values) => nth(values, self.number),
        }
    }

    fn tagged(&self, outer: bool) -> Vec<u16> {
        let tags: &[Field] = match outer {
            true => &[Field::OuterVlan],
            false => &[Field::Vlan, Field::InnerVlan],
        };
        let present = tags.iter().filter(|&&tag| self.has(tag));
        present.map(|&tag| self.of(tag, 0) as u16).collect()
    }
}

pub(super) fn nth(values: &Values, number: usize) -> u128 {
    let number = number as u128;
    match values {
        Values::Fixed(value) => *value,
        Values::Range { first, last, step } => first + number % ((last - first) / step + 1) * step,
        Values::List(list) => list[number as usize % list.len()],
        other => panic!("{other:?} cannot be predicted"),
    }
}

/// Ethernet header with tags and type.
fn ethernet(dst: [u8; 6], src: [u8; 6], tags: &[u16], ethertype: u16) -> Vec<u8> {
    let mut bytes = [dst, src].concat();
    for (number, tag) in tags.iter().enumerate() {
        let tpid: u16 = if number + 1 < tags.len() {
            0x88a8
        } else {
            0x8100
        };
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend(ethertype.to_be_bytes());
    bytes
}

/// IP header and upper layers, by etherparse, which builds single packets.
fn ip_packet(
    model: &Model<'_>,
    v6: bool,
    over: &str,
    len: usize,
    payload: &dyn Fn(usize) -> Vec<u8>,
) -> Vec<u8> {
    let dscp = (model.of(Field::Dscp, 0) << 2 | model.of(Field::Ecn, 0)) as u8;
    let ttl = model.of(Field::Ttl, 64) as u8;
    let ip = match v6 {
        false => {
            let mut ip = etherparse::Ipv4Header {
                time_to_live: ttl,
                identification: model.of(Field::IpId, 0) as u16,
                source: (model.of(Field::Src, 0xc612_0001) as u32).to_be_bytes(),
                destination: (model.of(Field::Dst, 0xc613_0001) as u32).to_be_bytes(),
                ..etherparse::Ipv4Header::default()
            };
            ip.dscp = etherparse::IpDscp::try_new(dscp >> 2).unwrap();
            ip.ecn = etherparse::IpEcn::try_new(dscp & 3).unwrap();
            ip.dont_fragment = false;
            etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default())
        }
        true => {
            let label = model.of(Field::FlowLabel, 0) as u32;
            let ip = etherparse::Ipv6Header {
                traffic_class: dscp,
                flow_label: etherparse::Ipv6FlowLabel::try_new(label).unwrap(),
                hop_limit: ttl,
                source: model.of(Field::Src, 0x2001_0002 << 96 | 1).to_be_bytes(),
                destination: model
                    .of(Field::Dst, 0x2001_0002 << 96 | 0x8000 << 64 | 1)
                    .to_be_bytes(),
                ..etherparse::Ipv6Header::default()
            };
            etherparse::IpHeaders::Ipv6(ip, etherparse::Ipv6Extensions::default())
        }
    };
    let sport = model.of(Field::SrcPort, 1024) as u16;
    let dport = model.of(Field::DstPort, 9) as u16;
    let header = if v6 { 40 } else { 20 };
    let builder = PacketBuilder::ip(ip);
    let mut bytes = Vec::new();
    match over {
        "udp" => builder
            .udp(sport, dport)
            .write(&mut bytes, &payload(len - header - 8)),
        "tcp" => {
            let mut tcp =
                etherparse::TcpHeader::new(sport, dport, model.of(Field::Seq, 1) as u32, 0xffff);
            tcp.acknowledgment_number = model.of(Field::Ack, 1) as u32;
            let flags = model.of(Field::Flags, 0x10) as u8;
            tcp.fin = flags & 1 != 0;
            tcp.syn = flags & 2 != 0;
            tcp.rst = flags & 4 != 0;
            tcp.psh = flags & 8 != 0;
            tcp.ack = flags & 0x10 != 0;
            tcp.urg = flags & 0x20 != 0;
            tcp.ece = flags & 0x40 != 0;
            tcp.cwr = flags & 0x80 != 0;
            builder
                .tcp_header(tcp)
                .write(&mut bytes, &payload(len - header - 20))
        }
        "icmp" => {
            let [a, b] = (model.of(Field::IcmpId, 1) as u16).to_be_bytes();
            let [c, d] = (model.of(Field::IcmpSeq, 1) as u16).to_be_bytes();
            let kind = model.of(Field::IcmpType, if v6 { 128 } else { 8 }) as u8;
            let code = model.of(Field::IcmpCode, 0) as u8;
            let payload = payload(len - header - 8);
            match v6 {
                true => builder
                    .icmpv6_raw(kind, code, [a, b, c, d])
                    .write(&mut bytes, &payload),
                false => builder
                    .icmpv4_raw(kind, code, [a, b, c, d])
                    .write(&mut bytes, &payload),
            }
        }
        _ => {
            let proto = etherparse::IpNumber(model.of(Field::Proto, 253) as u8);
            builder.write(&mut bytes, proto, &payload(len - header))
        }
    }
    .unwrap();
    bytes
}

/// The frame that the spec describes, of `len` bytes, ending in `tail`.
pub(super) fn reference(spec: &StreamSpec, number: usize, len: usize, tail: &[u8]) -> Vec<u8> {
    let model = Model { spec, number };
    let pattern = |bytes: usize| {
        let mut bytes: Vec<_> = (b'a'..=b'z').cycle().take(bytes).collect();
        let at = bytes.len() - tail.len();
        bytes[at..].copy_from_slice(tail);
        bytes
    };
    let line = spec.to_string();
    let kind = line.split_whitespace().next().unwrap_or("udp");
    let (own, given) = (
        crate::stream::values::mac_number(SRC),
        crate::stream::values::mac_number(DST),
    );
    let src = model.of(Field::SrcMac, own);
    let mut around = Vec::new();
    let tunnels = [Field::Vxlan, Field::Gre, Field::Gtpu];
    if let Some(tunnel) = tunnels.into_iter().find(|&tunnel| model.has(tunnel)) {
        let v6 = spec
            .fields
            .get(&Field::OuterSrc)
            .is_some_and(|it| it.to_string().contains(':'));
        around = ethernet(
            mac(model.of(Field::OuterDstMac, given)),
            mac(model.of(Field::OuterSrcMac, own)),
            &model.tagged(true),
            if v6 { 0x86dd } else { 0x0800 },
        );
        let header = if tunnel == Field::Gre { 8 } else { 16 };
        let start = around.len() + if v6 { 40 } else { 20 } + header;
        // GRE and GTP-U carry IP without an Ethernet header.
        let is_bridged = tunnel == Field::Vxlan || kind == "arp" || kind == "eth";
        let without = if is_bridged { 0 } else { 14 };
        let frame = {
            let mut inside = spec.clone();
            inside.fields.remove(&tunnel);
            reference(&inside, number, len - start + without, tail)
        };
        let named = match is_bridged {
            true => [0x65, 0x58],
            false => [frame[12], frame[13]],
        };
        let frame = &frame[without..];
        let number_of = model.of(tunnel, 0) as u32;
        let bytes = (frame.len() as u16).to_be_bytes();
        let first = match tunnel {
            Field::Vxlan => [8, 0, 0, 0],
            Field::Gre => [0x20, 0, named[0], named[1]],
            _ => [0x30, 0xff, bytes[0], bytes[1]],
        };
        let number_of = match tunnel {
            Field::Vxlan => number_of << 8,
            _ => number_of,
        };
        let mut payload = [first, number_of.to_be_bytes()].concat();
        payload.extend(frame);
        // The same builder, with the outer fields in the inner ones' places.
        let mut outer = StreamSpec::default();
        for (to, from) in [
            (Field::Src, Field::OuterSrc),
            (Field::Dst, Field::OuterDst),
            (Field::Ttl, Field::OuterTtl),
            (Field::Dscp, Field::OuterDscp),
            (Field::SrcPort, Field::OuterSrcPort),
            (Field::DstPort, Field::OuterDstPort),
        ] {
            if let Some(values) = spec.fields.get(&from) {
                outer.fields.insert(to, values.clone());
            }
        }
        let set = |outer: &mut StreamSpec, key: &str, value: &str| {
            if outer.get(key).is_none() {
                outer.set(key, value).unwrap();
            }
        };
        set(&mut outer, "sport", "49152");
        let port = if tunnel == Field::Gtpu {
            "2152"
        } else {
            "4789"
        };
        set(&mut outer, "dport", port);
        set(&mut outer, "proto", "47");
        let over = if tunnel == Field::Gre { "ipv4" } else { "udp" };
        let model = Model {
            spec: &outer,
            number,
        };
        let mut packet = ip_packet(&model, v6, over, len - around.len(), &|_| payload.clone());
        if !v6 && over == "udp" {
            packet[26..28].fill(0); // no checksum
        }
        around.extend(packet);
        return around;
    }
    let labels = [Field::Mpls, Field::InnerMpls];
    let labels: Vec<_> = labels
        .into_iter()
        .filter(|&label| model.has(label))
        .collect();
    if let Some(last) = labels.last() {
        let mut inside = spec.clone();
        inside.fields.retain(|field, _| !labels.contains(field));
        let mut frame = reference(&inside, number, len - 4 * labels.len(), tail);
        let at = 14 + 4 * model.tagged(false).len();
        frame[at - 2..at].copy_from_slice(&[0x88, 0x47]);
        let entry = |label: &Field| {
            let bottom = u32::from(label == last) << 8;
            ((model.of(*label, 0) as u32) << 12 | bottom | 64).to_be_bytes()
        };
        let entries: Vec<u8> = labels.iter().flat_map(entry).collect();
        frame.splice(at..at, entries);
        return frame;
    }
    let is_arp_request = kind == "arp" && model.of(Field::ArpOp, 1) == 1;
    let given = if is_arp_request {
        0xffff_ffff_ffff
    } else {
        given
    };
    let dst = model.of(Field::DstMac, given);
    let v6 = kind.ends_with('6') || line.contains(" src=2001") || line.contains(" dst=2001");
    let over = kind.trim_end_matches('6');
    let ethertype = match over {
        "eth" => model.of(Field::EtherType, 0x88b5) as u16,
        "arp" => 0x0806,
        _ if v6 => 0x86dd,
        _ => 0x0800,
    };
    around.extend(ethernet(
        mac(dst),
        mac(src),
        &model.tagged(false),
        ethertype,
    ));
    let left = len - around.len();
    match over {
        "eth" => around.extend(pattern(left)),
        "arp" => {
            let op = model.of(Field::ArpOp, 1) as u16;
            around.extend([0, 1, 8, 0, 6, 4]);
            around.extend(op.to_be_bytes());
            around.extend(mac(src));
            around.extend((model.of(Field::Src, 0xc612_0001) as u32).to_be_bytes());
            around.extend(if op == 2 { mac(dst) } else { [0; 6] });
            around.extend((model.of(Field::Dst, 0xc613_0001) as u32).to_be_bytes());
            around.extend(pattern(left - 28));
        }
        _ => around.extend(ip_packet(&model, v6, over, left, &pattern)),
    }
    around
}
