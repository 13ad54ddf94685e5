//! What a script says, parsed: events in order, each with its time.

use crate::code::Code;
use crate::fault::At;
use crate::packet::TcpOption;

/// A script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Options at its head.
    pub options: Vec<(String, Option<String>, At)>,
    /// The command before the first event.
    pub init: Option<(String, At)>,
    /// Events, in order.
    pub events: Vec<Event>,
    /// The command after the last event.
    pub cleanup: Option<(String, At)>,
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub struct Event {
    /// Where it stands.
    pub at: At,
    /// When.
    pub when: When,
    /// What.
    pub action: Action,
}

/// When an event happens; times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// `1.5`: after the start of the script.
    Absolute(i64),
    /// `+1.5`: after the event before.
    Relative(i64),
    /// `1~2`: between two times after the start. Only outbound packets.
    AbsoluteRange(i64, i64),
    /// `+1~+2`: between two times after the event before. Only outbound packets.
    RelativeRange(i64, i64),
    /// `*`: at any time. Only outbound packets.
    Any,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Action {
    /// A packet is injected, or expected.
    Packet(PacketSpec),
    /// A system call.
    Call(CallSpec),
    /// A shell command.
    Command(String),
    /// Code over the connection's `TCP_INFO`.
    Code(Code),
}

/// A packet as written: `<` inbound to the stack under test, `>` outbound of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketSpec {
    /// Towards the stack under test.
    pub inbound: bool,
    /// What is said of the IP header.
    pub ip: IpSpec,
    /// `SRC > DST` layer-4 ports, where written.
    pub ports: Option<(u16, u16)>,
    /// What follows the IP header.
    pub body: Body,
}

/// What a script says of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpSpec {
    /// The ECN field, or all of type of service.
    pub tos: TosSpec,
    /// Time to live, or hop limit.
    pub ttl: Option<u8>,
    /// IPv6 flow label.
    pub flow_label: Option<u32>,
}

/// What a script says of type of service, or traffic class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TosSpec {
    /// Nothing: any; inbound it is 0.
    #[default]
    Any,
    /// The two bits of ECN (RFC 3168 5).
    Ecn(u8),
    /// `[ect01]`: either of ECT(0) and ECT(1). Only outbound packets.
    EitherEct,
    /// All eight bits.
    All(u8),
}

/// What follows the IP header.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// TCP.
    Tcp(TcpSpec),
    /// UDP with so many bytes.
    Udp(u16),
    /// ICMP or ICMPv6.
    Icmp(IcmpSpec),
}

/// A segment as written.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSpec {
    /// Flags in the order of the header, AE (RFC 3168, draft AccECN) at bit 8.
    pub flags: u16,
    /// First sequence number, from the script's initial one.
    pub seq: u32,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// Acknowledgment number; 0 where not written.
    pub ack: Option<u32>,
    /// Window as in the header, where written.
    pub window: Option<u16>,
    /// Urgent pointer; 0 where not written.
    pub urgent: Option<u16>,
    /// Options; `None` for `<...>`: any.
    pub options: Option<Vec<TcpOption>>,
}

/// An ICMP message as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpSpec {
    /// Type by name.
    pub kind: String,
    /// Code by name.
    pub code: Option<String>,
    /// `mtu N`.
    pub mtu: Option<u32>,
    /// `id N`.
    pub ident: Option<u16>,
    /// What the message quotes.
    pub quoted: Quoted,
    /// Where the type stands.
    pub at: At,
}

/// What an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoted {
    /// Not written: inbound errors quote an empty segment.
    Nothing,
    /// A segment: first sequence number and bytes of payload.
    Tcp(u32, u32),
    /// A UDP datagram with so many bytes.
    Udp(u16),
    /// So many bytes after the ICMP header, for echo requests and replies.
    Raw(u16),
}

/// A system call as written.
#[derive(Clone, Debug)]
pub struct CallSpec {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub args: Vec<Expr>,
    /// For a call that blocks, when it returns, in microseconds as of [`Event::when`].
    pub end_us: Option<i64>,
    /// What it returns.
    pub result: Expr,
    /// The error, by name.
    pub error: Option<String>,
}

/// An argument or a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// `...`
    Ellipsis,
    /// A number.
    Int(i64),
    /// A constant by name.
    Word(String),
    /// A text.
    Text(String),
    /// `a | b | c`.
    Or(Vec<Expr>),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `{a=1, b(2)=3, 4}`: fields, those without names with empty ones.
    Struct(Vec<(String, Expr)>),
    /// `htons(8080)`, `inet_addr("192.0.2.1")`.
    Function(String, Vec<Expr>),
}
