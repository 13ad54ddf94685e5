//! A rule: what it asks of each field, and whether a packet has that.
//!
//! [`Match::failing`] is the definition of a match, field by field. Everything faster in this room
//! is held equal to it by the tests, and [`explain`](super::explain) shows it to the user.

use std::fmt;
use std::str::FromStr;

use super::key::{self, PacketKey};
use crate::TableError;
use crate::lpm::{Prefix4, Prefix6};

/// An address prefix: `W` words of 32 bits, the most significant first (1 for IPv4, 4 for IPv6).
/// The same as [`lpm::Prefix`](crate::lpm::Prefix), in the form that packets' fields have here:
/// either is made from the other.
///
/// ```
/// use linerate_tables::acl::Prefix;
/// use linerate_tables::lpm::Prefix6;
/// let net: Prefix<1> = "10.1.0.0/16".parse()?;
/// assert_eq!(net, Prefix::of([0x0a01_0203], 16));
/// let route: Prefix6 = "2001:db8::/32".parse()?;
/// assert_eq!(Prefix6::from(Prefix::from(route)), route);
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix<const W: usize> {
    words: [u32; W],
    len: u8,
}

impl<const W: usize> Prefix<W> {
    /// Any address.
    pub const ANY: Self = Self {
        words: [0; W],
        len: 0,
    };

    /// The prefix of `len` bits that begins as `words` does.
    ///
    /// # Errors
    /// If it is longer than an address, or has bits set behind its length.
    pub fn new(words: [u32; W], len: u8) -> Result<Self, RuleError> {
        let bits = 32 * W as u32;
        if u32::from(len) > bits {
            return Err(RuleError::PrefixLength { len, bits });
        }
        let prefix = Self { words, len };
        let outside = (0..W).any(|word| words[word] & !prefix.mask(word) != 0);
        match outside {
            true => Err(RuleError::HostBits { len }),
            false => Ok(prefix),
        }
    }

    /// The prefix of `len` bits that holds the address: its other bits are dropped.
    ///
    /// # Panics
    /// If `len` is longer than an address.
    pub fn of(words: [u32; W], len: u8) -> Self {
        assert!(
            usize::from(len) <= 32 * W,
            "a prefix is no longer than an address"
        );
        let whole = Self { words, len };
        Self {
            words: std::array::from_fn(|word| words[word] & whole.mask(word)),
            len,
        }
    }

    /// The address's words, the most significant first.
    pub fn words(&self) -> &[u32; W] {
        &self.words
    }

    /// How many bits count.
    pub fn bits(&self) -> u8 {
        self.len
    }

    /// The bits that count in one word.
    pub(super) fn mask(&self, word: usize) -> u32 {
        let host = (32 * (word as u32 + 1)).saturating_sub(u32::from(self.len));
        u32::MAX.checked_shl(host).unwrap_or(0)
    }

    /// Whether `address` begins with it.
    pub fn contains(&self, address: &[u32; W]) -> bool {
        (0..W).all(|word| (address[word] ^ self.words[word]) & self.mask(word) == 0)
    }
}

impl<const W: usize> fmt::Display for Prefix<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", key::address(&self.words), self.len)
    }
}

impl From<Prefix4> for Prefix<1> {
    fn from(prefix: Prefix4) -> Self {
        Self::of([prefix.first()], prefix.len())
    }
}

impl From<Prefix6> for Prefix<4> {
    fn from(prefix: Prefix6) -> Self {
        Self::of(key::words6(prefix.first().into()), prefix.len())
    }
}

impl From<Prefix<1>> for Prefix4 {
    fn from(prefix: Prefix<1>) -> Self {
        Self::of(prefix.words[0], prefix.len)
    }
}

impl From<Prefix<4>> for Prefix6 {
    fn from(prefix: Prefix<4>) -> Self {
        let word = |bits: u128, word: &u32| bits << 32 | u128::from(*word);
        Self::of(prefix.words.iter().fold(0, word), prefix.len)
    }
}

impl FromStr for Prefix<1> {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        text.parse::<Prefix4>().map(Self::from)
    }
}

impl FromStr for Prefix<4> {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        text.parse::<Prefix6>().map(Self::from)
    }
}

/// A closed range of 16-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    low: u16,
    high: u16,
}

impl Range {
    /// Any number.
    pub const ANY: Self = Self {
        low: 0,
        high: u16::MAX,
    };

    /// From `low` to `high`, both included.
    ///
    /// # Errors
    /// If they are the wrong way round.
    pub fn new(low: u16, high: u16) -> Result<Self, RuleError> {
        match low <= high {
            true => Ok(Self { low, high }),
            false => Err(RuleError::Reversed { low, high }),
        }
    }

    /// This number alone.
    pub const fn one(number: u16) -> Self {
        Self {
            low: number,
            high: number,
        }
    }

    /// The smallest number in it.
    pub fn low(&self) -> u16 {
        self.low
    }

    /// The largest number in it.
    pub fn high(&self) -> u16 {
        self.high
    }

    /// Whether `number` is in it.
    pub fn contains(&self, number: u16) -> bool {
        (self.low..=self.high).contains(&number)
    }

    /// How far its ends are apart.
    pub(super) fn span(&self) -> u16 {
        self.high - self.low
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.low == self.high {
            true => write!(f, "{}", self.low),
            false => write!(f, "{} to {}", self.low, self.high),
        }
    }
}

/// Bits that must be set, bits that must not, and bits that do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bits {
    value: u16,
    mask: u16,
}

impl Bits {
    /// Any value.
    pub const ANY: Self = Self { value: 0, mask: 0 };

    /// Where `mask` has a bit set, a packet's bit must be `value`'s.
    ///
    /// # Errors
    /// If `value` has bits that `mask` leaves out.
    pub fn new(value: u16, mask: u16) -> Result<Self, RuleError> {
        match value & !mask {
            0 => Ok(Self { value, mask }),
            _ => Err(RuleError::BeyondMask { value, mask }),
        }
    }

    /// A whole byte, such as a protocol.
    pub const fn byte(value: u8) -> Self {
        Self {
            value: value as u16,
            mask: 0xff,
        }
    }

    /// The bits that must be set among those that matter.
    pub fn value(&self) -> u16 {
        self.value
    }

    /// The bits that matter.
    pub fn mask(&self) -> u16 {
        self.mask
    }

    /// Whether `value` has them.
    pub fn contains(&self, value: u16) -> bool {
        (value ^ self.value) & self.mask == 0
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

/// The bits of [`Match::vlan`]: 12 bits of VLAN id, and this one, set where there is a tag.
pub const TAGGED: u16 = 0x1000;

/// What a rule asks of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// Nothing.
    #[default]
    Any,
    /// A whole datagram.
    No,
    /// A fragment, the first included.
    Yes,
    /// The first fragment.
    First,
    /// A fragment other than the first: it has no upper-layer header.
    Later,
}

impl Fragment {
    /// Value and mask over [`key::FRAGMENT`] and [`key::LATER`].
    pub(super) fn ternary(self) -> (u32, u32) {
        let both = key::FRAGMENT | key::LATER;
        match self {
            Self::Any => (0, 0),
            Self::No => (0, key::FRAGMENT),
            Self::Yes => (key::FRAGMENT, key::FRAGMENT),
            Self::First => (key::FRAGMENT, both),
            Self::Later => (both, both),
        }
    }
}

/// What a rule asks of a packet. [`Match::ANY`] asks nothing; change what matters:
///
/// ```
/// use linerate_tables::acl::{Bits, Match4, Prefix, Range};
/// let web = Match4 {
///     dst: Prefix::new([0x0a000000], 8)?,
///     dst_ports: Range::one(443),
///     protocol: Bits::byte(6),
///     ..Match4::ANY
/// };
/// # Ok::<(), linerate_tables::acl::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Match<const W: usize> {
    /// Source address.
    pub src: Prefix<W>,
    /// Destination address.
    pub dst: Prefix<W>,
    /// Source port; a range other than any is only met by packets that have ports.
    pub src_ports: Range,
    /// Destination port, likewise.
    pub dst_ports: Range,
    /// ICMP type; a range other than any is only met by ICMP packets.
    pub icmp_type: Range,
    /// ICMP code, likewise.
    pub icmp_code: Range,
    /// IP protocol, of 8 bits.
    pub protocol: Bits,
    /// TCP flags from CWR (0x80) to FIN (0x01); none are set in packets that are not TCP.
    pub tcp_flags: Bits,
    /// Differentiated services code point, of 6 bits.
    pub dscp: Bits,
    /// Outermost VLAN id, and [`TAGGED`]; 0 without a tag.
    pub vlan: Bits,
    /// Whether it is a fragment.
    pub fragment: Fragment,
    /// Length of the frame in bytes, without FCS.
    pub length: Range,
}

/// An IPv4 rule's match.
pub type Match4 = Match<1>;
/// An IPv6 rule's match.
pub type Match6 = Match<4>;

/// A field of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "as in Match")]
pub enum Field {
    Src,
    Dst,
    SrcPorts,
    DstPorts,
    IcmpType,
    IcmpCode,
    Protocol,
    TcpFlags,
    Dscp,
    Vlan,
    Fragment,
    Length,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Src => "source",
            Self::Dst => "destination",
            Self::SrcPorts => "source port",
            Self::DstPorts => "destination port",
            Self::IcmpType => "ICMP type",
            Self::IcmpCode => "ICMP code",
            Self::Protocol => "protocol",
            Self::TcpFlags => "TCP flags",
            Self::Dscp => "DSCP",
            Self::Vlan => "VLAN",
            Self::Fragment => "fragment",
            Self::Length => "length",
        })
    }
}

impl<const W: usize> Match<W> {
    /// Every packet.
    pub const ANY: Self = Self {
        src: Prefix::ANY,
        dst: Prefix::ANY,
        src_ports: Range::ANY,
        dst_ports: Range::ANY,
        icmp_type: Range::ANY,
        icmp_code: Range::ANY,
        protocol: Bits::ANY,
        tcp_flags: Bits::ANY,
        dscp: Bits::ANY,
        vlan: Bits::ANY,
        fragment: Fragment::Any,
        length: Range::ANY,
    };

    /// The protocol that is ICMP for this kind of address.
    pub(super) const ICMP: u16 = if W == 1 { 1 } else { 58 };

    /// Whether a packet has all that this asks.
    pub fn matches(&self, packet: &PacketKey<W>) -> bool {
        self.failing(packet).next().is_none()
    }

    /// The fields in which a packet is not what this asks.
    pub fn failing(&self, packet: &PacketKey<W>) -> impl Iterator<Item = Field> {
        let (first, second) = (packet.ports as u16, (packet.ports >> 16) as u16);
        let has = |state: u32| packet.meta & state != 0;
        let port =
            |range: Range, port| range == Range::ANY || has(key::HAS_PORTS) && range.contains(port);
        let icmp =
            |range: Range, part| range == Range::ANY || has(key::HAS_ICMP) && range.contains(part);
        let (value, mask) = self.fragment.ternary();
        let holds = [
            (Field::Src, self.src.contains(&packet.src)),
            (Field::Dst, self.dst.contains(&packet.dst)),
            (Field::SrcPorts, port(self.src_ports, first)),
            (Field::DstPorts, port(self.dst_ports, second)),
            (Field::IcmpType, icmp(self.icmp_type, first)),
            (Field::IcmpCode, icmp(self.icmp_code, second)),
            (Field::Protocol, self.protocol.contains(packet.protocol())),
            (Field::TcpFlags, self.tcp_flags.contains(packet.tcp_flags())),
            (Field::Dscp, self.dscp.contains(packet.dscp())),
            (Field::Vlan, self.vlan.contains(packet.vlan)),
            (Field::Fragment, packet.meta & mask == value),
            (Field::Length, self.length.contains(packet.length)),
        ];
        holds
            .into_iter()
            .filter(|(_, holds)| !holds)
            .map(|(field, _)| field)
    }

    /// Whether each field is within its width and the fields agree.
    pub(super) fn check(&self) -> Result<(), RuleError> {
        let widths = [
            (Field::Protocol, self.protocol, 0xff),
            (Field::TcpFlags, self.tcp_flags, 0xff),
            (Field::Dscp, self.dscp, 0x3f),
            (Field::Vlan, self.vlan, 0x1fff),
        ];
        for (field, bits, width) in widths {
            if bits.mask & !width != 0 {
                return Err(RuleError::TooWide { field, bits, width });
            }
        }
        let asks_icmp = self.icmp_type != Range::ANY || self.icmp_code != Range::ANY;
        let asks_ports = self.src_ports != Range::ANY || self.dst_ports != Range::ANY;
        match asks_icmp && (asks_ports || self.protocol != Bits::byte(Self::ICMP as u8)) {
            true => Err(RuleError::IcmpWithout {
                protocol: Self::ICMP,
            }),
            false => Ok(()),
        }
    }
}

/// A rule: its match, and the value of packets that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule<const W: usize> {
    /// What it asks.
    pub matching: Match<W>,
    /// Among rules that match, the smallest priority wins; among equals the one added first.
    pub priority: u32,
    /// Its value.
    pub value: u32,
    /// The categories that it belongs to, one bit each; at least one.
    pub categories: u16,
}

impl<const W: usize> Rule<W> {
    /// A rule of category 0.
    pub fn new(priority: u32, matching: Match<W>, value: u32) -> Self {
        Self {
            matching,
            priority,
            value,
            categories: 1,
        }
    }
}

/// An IPv4 rule.
pub type Rule4 = Rule<1>;
/// An IPv6 rule.
pub type Rule6 = Rule<4>;

/// Why something is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RuleError {
    #[error("prefix length {len} is more than the {bits} bits of the address")]
    PrefixLength { len: u8, bits: u32 },
    #[error("prefix has bits set behind its length /{len}: clear them, or make it longer")]
    HostBits { len: u8 },
    #[error("range {low} to {high} is reversed: write the smaller number first")]
    Reversed { low: u16, high: u16 },
    #[error("value {value:#x} has bits outside its mask {mask:#x}: clear them, or widen the mask")]
    BeyondMask { value: u16, mask: u16 },
    #[error("{field}: mask {:#x} is wider than the field, {width:#x}", bits.mask)]
    TooWide {
        field: Field,
        bits: Bits,
        width: u16,
    },
    #[error("an ICMP type or code needs protocol {protocol}, and no ports")]
    IcmpWithout { protocol: u16 },
    #[error("no category: set at least one bit of `categories`")]
    NoCategory,
}
