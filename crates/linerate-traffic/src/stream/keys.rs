//! The keys of a stream: one table for reading, writing, help and completion.

use super::values::Notation;

/// A header field that a stream may set, and vary from frame to frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    SrcMac,
    DstMac,
    Vlan,
    InnerVlan,
    Mpls,
    InnerMpls,
    EtherType,
    ArpOp,
    Src,
    Dst,
    Proto,
    Ttl,
    Dscp,
    Ecn,
    IpId,
    FlowLabel,
    SrcPort,
    DstPort,
    Flags,
    Seq,
    Ack,
    IcmpType,
    IcmpCode,
    IcmpId,
    IcmpSeq,
    Vxlan,
    Gre,
    Gtpu,
    OuterSrcMac,
    OuterDstMac,
    OuterVlan,
    OuterSrc,
    OuterDst,
    OuterSrcPort,
    OuterDstPort,
    OuterTtl,
    OuterDscp,
}

/// How a field is written, and what it may be.
#[derive(Clone, Copy, Debug)]
pub struct FieldRow {
    pub field: Field,
    pub notation: Notation,
    /// Largest value that it holds.
    pub most: u128,
    /// The range of a bare `random`; for addresses it depends on their family.
    pub random: (u128, u128),
}

/// One key, for help and completion.
#[derive(Clone, Copy, Debug)]
pub struct KeyHelp {
    /// Its name.
    pub key: &'static str,
    /// What is written after it; `...` where it may vary from frame to frame.
    pub value: &'static str,
    /// What it sets, with its default.
    pub help: &'static str,
    /// For header fields.
    pub row: Option<FieldRow>,
}

const fn key(key: &'static str, value: &'static str, help: &'static str) -> KeyHelp {
    KeyHelp {
        key,
        value,
        help,
        row: None,
    }
}

const fn mac(field: Field, key: &'static str, help: &'static str) -> KeyHelp {
    // Random ones are unicast and locally administered.
    let random = (0x0200_0000_0000, 0x02ff_ffff_ffff);
    of(field, key, "MAC...", Notation::Mac, 48, random, help)
}

const fn address(field: Field, key: &'static str, help: &'static str) -> KeyHelp {
    of(field, key, "IP...", Notation::Address, 32, (0, 0), help)
}

const fn vlan(field: Field, key: &'static str, help: &'static str) -> KeyHelp {
    of(
        field,
        key,
        "ID[.PRIORITY]...",
        Notation::Tag,
        16,
        (1, 4094),
        help,
    )
}

const fn number(
    field: Field,
    key: &'static str,
    bits: u32,
    random: (u128, u128),
    help: &'static str,
) -> KeyHelp {
    of(field, key, "N...", Notation::Number, bits, random, help)
}

const fn of(
    field: Field,
    key: &'static str,
    value: &'static str,
    notation: Notation,
    bits: u32,
    random: (u128, u128),
    help: &'static str,
) -> KeyHelp {
    let row = FieldRow {
        field,
        notation,
        most: (1 << bits) - 1,
        random,
    };
    KeyHelp {
        key,
        value,
        help,
        row: Some(row),
    }
}

const BYTE: (u128, u128) = (0, 0xff);
const SHORT: (u128, u128) = (0, 0xffff);
const WORD: (u128, u128) = (0, 0xffff_ffff);
/// RFC 3032, 2.1: the first 16 have meanings of their own.
const LABELS: (u128, u128) = (16, 0xf_ffff);
/// RFC 4814, 4.5: the range of random ports.
const SRC_PORTS: (u128, u128) = (1024, 65535);
const DST_PORTS: (u128, u128) = (1, 49151);
/// RFC 7348, 5: those for a tunnel's source port.
const TUNNEL_PORTS: (u128, u128) = (49152, 65535);

/// All keys of a stream, in the order in which they are written.
pub const KEYS: &[KeyHelp] = &[
    key(
        "kind",
        "KIND",
        "eth, arp, ipv4, ipv6, udp, tcp, icmp, udp6, tcp6 or icmp6; may stand first, without \
         kind=; default: by the other keys, else udp",
    ),
    key("name", "TEXT", "what the stream is called"),
    key(
        "port",
        "PORT",
        "the port that sends it, by number or name; default 0",
    ),
    key(
        "size",
        "BYTES",
        "frame size, FCS included: 64, 64,512,1518 or 64-1518/2 in turn, random:64-1518, imix, or \
         imix:64*28,570*16,1518*4; default the least that fits, 64 or more",
    ),
    key(
        "rate",
        "RATE",
        "1.5Mpps, 9.9Gbit/s-L1, 800Mbit/s-L2, 99% or max; default max",
    ),
    key(
        "pacing",
        "constant|poisson",
        "gaps between frames (or bursts): all alike, or exponentially distributed; default \
         constant",
    ),
    key(
        "weight",
        "N",
        "share of the port's time among streams that send at rate=max; default 1",
    ),
    key(
        "count",
        "N",
        "frames to send in all, besides those given up as unsent; default 0: for ever",
    ),
    key(
        "burst",
        "N",
        "frames sent back to back; bursts follow so that the mean is the rate; default 1",
    ),
    key(
        "gap",
        "TIME",
        "from the end of a burst to the next one, such as 10ms; frames within it then go at the \
         rate: rate=100kpps burst=10 gap=500us is ten in 100 us, and 16667 a second",
    ),
    key(
        "delay",
        "TIME",
        "from the start of the port to the first frame, such as 1.5s; default 0s",
    ),
    key("enabled", "on|off", "whether it is sent; default on"),
    key(
        "signature",
        "on|off",
        "whether frames end in the 18 bytes by which loss, order and latency are known; default on",
    ),
    key(
        "nest",
        "KEY[+KEY...],...",
        "fields that run like the digits of a counter: the first from frame to frame, each other \
         one on when the one before it has been through; those joined by + are a tuple and go on \
         together",
    ),
    key(
        "seed",
        "N",
        "of random fields: the same seed gives the same frames; default the session's",
    ),
    key(
        "payload",
        "PATTERN",
        "abc, zero, ones, inc, random (the same bytes in each frame) or hex:00ff...; default zero",
    ),
    key("pcap", "FILE", "send the frames of a capture instead"),
    key(
        "speed",
        "FACTOR",
        "of a capture's own timing: 1 as captured, 2 twice as fast; default 1, and none where a \
         rate is given",
    ),
    key(
        "loop",
        "N",
        "times that a capture is sent; 0: for ever; default 1",
    ),
    mac(
        Field::SrcMac,
        "src_mac",
        "source address; default the port's own",
    ),
    mac(
        Field::DstMac,
        "dst_mac",
        "destination address; default that of the device under test, of an ARP request the \
         broadcast address",
    ),
    vlan(
        Field::Vlan,
        "vlan",
        "a tag (802.1Q); with inner_vlan the service tag (802.1ad)",
    ),
    vlan(
        Field::InnerVlan,
        "inner_vlan",
        "the tag behind the service tag",
    ),
    number(
        Field::Mpls,
        "mpls",
        20,
        LABELS,
        "an MPLS label (RFC 3032) between the Ethernet and IP headers; with inner_mpls the outer \
         one",
    ),
    number(
        Field::InnerMpls,
        "inner_mpls",
        20,
        LABELS,
        "the label behind that of mpls",
    ),
    of(
        Field::EtherType,
        "ethertype",
        "HEX...",
        Notation::Hex,
        16,
        (0x88b5, 0x88b6),
        "of kind=eth; default 0x88b5, for experiments",
    ),
    number(
        Field::ArpOp,
        "arp_op",
        16,
        (1, 2),
        "1 request, 2 reply; default 1",
    ),
    address(
        Field::Src,
        "src",
        "source, IPv4 or IPv6, or ARP's sender; default 198.18.0.1, 2001:2::1",
    ),
    address(
        Field::Dst,
        "dst",
        "destination, or ARP's target; default 198.19.0.1, 2001:2:0:8000::1",
    ),
    number(
        Field::Proto,
        "proto",
        8,
        BYTE,
        "IP protocol of kind=ipv4 and ipv6; default 253, for experiments",
    ),
    number(
        Field::Ttl,
        "ttl",
        8,
        (1, 255),
        "time to live, or hop limit; default 64",
    ),
    number(
        Field::Dscp,
        "dscp",
        6,
        (0, 63),
        "differentiated services; default 0",
    ),
    number(
        Field::Ecn,
        "ecn",
        2,
        (0, 3),
        "explicit congestion notification; default 0",
    ),
    number(
        Field::IpId,
        "ip_id",
        16,
        SHORT,
        "identification of IPv4; default 0",
    ),
    number(
        Field::FlowLabel,
        "flow_label",
        20,
        (0, 0xf_ffff),
        "of IPv6; default 0",
    ),
    number(
        Field::SrcPort,
        "sport",
        16,
        SRC_PORTS,
        "source port of UDP or TCP; default 1024; random: 1024-65535 (RFC 4814)",
    ),
    number(
        Field::DstPort,
        "dport",
        16,
        DST_PORTS,
        "destination port; default 9 (discard); random: 1-49151 (RFC 4814)",
    ),
    of(
        Field::Flags,
        "flags",
        "FLAGS...",
        Notation::TcpFlags,
        8,
        BYTE,
        "of TCP: letters of CEUAPRSF, or a number; default A",
    ),
    number(
        Field::Seq,
        "seq",
        32,
        WORD,
        "sequence number of TCP; default 1",
    ),
    number(
        Field::Ack,
        "ack",
        32,
        WORD,
        "acknowledgement of TCP; default 1",
    ),
    number(
        Field::IcmpType,
        "icmp_type",
        8,
        BYTE,
        "default an echo request: 8, of ICMPv6 128",
    ),
    number(Field::IcmpCode, "icmp_code", 8, BYTE, "default 0"),
    number(
        Field::IcmpId,
        "icmp_id",
        16,
        SHORT,
        "identifier of an echo; default 1",
    ),
    number(
        Field::IcmpSeq,
        "icmp_seq",
        16,
        SHORT,
        "sequence number of an echo; default 1",
    ),
    number(
        Field::Vxlan,
        "vxlan",
        24,
        (1, 0xff_ffff),
        "network identifier: puts the frame into VXLAN (RFC 7348); its size is then that of the \
         outer frame",
    ),
    number(
        Field::Gre,
        "gre",
        32,
        WORD,
        "key (RFC 2890): puts the IP packet, or an eth or arp frame, into GRE (RFC 2784); size as \
         with vxlan",
    ),
    number(
        Field::Gtpu,
        "gtpu",
        32,
        (1, 0xffff_ffff),
        "tunnel endpoint: puts the IP packet into GTP-U (3GPP TS 29.281); size as with vxlan",
    ),
    mac(
        Field::OuterSrcMac,
        "outer_src_mac",
        "of the tunnel; default the port's own",
    ),
    mac(
        Field::OuterDstMac,
        "outer_dst_mac",
        "of the tunnel; default that of the device under test",
    ),
    vlan(Field::OuterVlan, "outer_vlan", "a tag of the outer frame"),
    address(
        Field::OuterSrc,
        "outer_src",
        "of the tunnel, IPv4 or IPv6; default 198.18.0.1, 2001:2::1",
    ),
    address(
        Field::OuterDst,
        "outer_dst",
        "of the tunnel; default 198.19.0.1, 2001:2:0:8000::1",
    ),
    number(
        Field::OuterSrcPort,
        "outer_sport",
        16,
        TUNNEL_PORTS,
        "of the tunnel; default 49152",
    ),
    number(
        Field::OuterDstPort,
        "outer_dport",
        16,
        TUNNEL_PORTS,
        "of the tunnel; default 4789, of GTP-U 2152",
    ),
    number(
        Field::OuterTtl,
        "outer_ttl",
        8,
        (1, 255),
        "of the tunnel; default 64",
    ),
    number(
        Field::OuterDscp,
        "outer_dscp",
        6,
        (0, 63),
        "of the tunnel; default 0",
    ),
];

impl Field {
    /// That of a key.
    pub fn of_key(key: &str) -> Option<Self> {
        let help = KEYS.iter().find(|help| help.key == key)?;
        help.row.map(|row| row.field)
    }

    /// Its row of [`KEYS`].
    pub fn key(self) -> (&'static str, FieldRow) {
        let of = |help: &KeyHelp| {
            help.row
                .filter(|row| row.field == self)
                .map(|row| (help.key, row))
        };
        KEYS.iter()
            .find_map(of)
            .expect("each field is in the table (test)")
    }
}
