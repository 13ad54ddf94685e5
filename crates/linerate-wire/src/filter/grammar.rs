//! From text to program, in one pass: each word emits what it means.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::cursor::{Cursor, Word};
use super::relation::{Arithmetic, Base, Compare, Of, Relation, relation};
use super::services::service;
use super::{FilterError, Op, Side, Test};
use crate::{EtherType, MacAddr, protocol};

/// Parentheses in parentheses; the parser recurses into each.
const MAX_DEPTH: usize = 64;

/// Bytes of expression: bounds the program.
const MAX_LEN: usize = 64 << 10;

const PRIMITIVE: &str = "expected one of arp, ip, ip6, tcp, udp, sctp, icmp, igmp, icmp6, esp, ah, \
                         proto, host, net, port, portrange, src, dst, vlan, ether, broadcast, \
                         multicast, greater, less, len, bytes such as ip[8], not or (";
const PORT: &str = "expected a port number, 0 to 65535, or the name of a service";
const RANGE: &str = "expected two ports, as in 1024-65535";

/// IP protocols by name.
const PROTOCOLS: &[(&str, u8)] = &[
    ("ah", 51),
    ("esp", 50),
    ("gre", 47),
    ("icmp", protocol::ICMP),
    ("icmp6", protocol::ICMPV6),
    ("igmp", 2),
    ("ipv6-icmp", protocol::ICMPV6),
    ("ospf", 89),
    ("pim", 103),
    ("sctp", protocol::SCTP),
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("vrrp", 112),
];

pub(super) fn compile(expression: &str) -> Result<Vec<Op>, FilterError> {
    let mut compiler = Compiler {
        words: Cursor::new(expression, word_len),
        program: Vec::new(),
        tags: 0,
        depth: 0,
    };
    let first = compiler.words.peek();
    if expression.len() > MAX_LEN {
        return Err(first.wrong("the filter is longer than 64 KiB"));
    }
    if !first.text.is_empty() {
        compiler.expression()?;
    }
    match compiler.words.next() {
        Word { text: "", .. } => Ok(compiler.program),
        word => Err(word.wrong("expected and, or, or the end of the filter")),
    }
}

/// Words stand between spaces; parentheses and `!` need none.
fn word_len(rest: &str) -> usize {
    let single = |c: char| matches!(c, '(' | ')' | '!');
    match rest.find(|c: char| c.is_whitespace() || single(c)) {
        Some(0) => 1,
        Some(len) => len,
        None => rest.len(),
    }
}

struct Compiler<'a> {
    words: Cursor<'a>,
    program: Vec<Op>,
    /// VLAN tags that the words so far have looked behind.
    tags: usize,
    depth: usize,
}

impl Compiler<'_> {
    /// `term { (and | or) term }`, from the left. The term on the right is jumped over where the
    /// one on the left has decided.
    fn expression(&mut self) -> Result<(), FilterError> {
        self.term()?;
        loop {
            let truth = match self.words.peek().text {
                "and" | "&&" => false,
                "or" | "||" => true,
                _ => return Ok(()),
            };
            self.words.next();
            let jump = self.program.len();
            self.program.push(Op::JumpIf { truth, to: 0 });
            self.term()?;
            self.program[jump] = Op::JumpIf {
                truth,
                to: self.program.len(),
            };
        }
    }

    /// `{ not } ( "(" expression ")" | primitive )`
    fn term(&mut self) -> Result<(), FilterError> {
        let mut inverted = false;
        while self.words.take("not") || self.words.take("!") {
            inverted = !inverted;
        }
        let open = self.words.peek();
        if self.words.take("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(open.wrong("more than 64 parentheses in each other"));
            }
            self.expression()?;
            if !self.words.take(")") {
                return Err(match self.words.peek() {
                    Word { text: "", .. } => open.wrong("has no ) to it"),
                    word => word.wrong("expected and, or, or )"),
                });
            }
            self.depth -= 1;
        } else {
            let tags = self.tags;
            let test = self.primitive()?;
            self.program.push(Op::Test { test, tags });
        }
        if inverted {
            self.program.push(Op::Not);
        }
        Ok(())
    }

    fn primitive(&mut self) -> Result<Test, FilterError> {
        if let Some((compare, end)) = relation(self.words)? {
            self.words.go_to(end);
            return Ok(Test::Compare(compare));
        }
        let word = self.words.peek();
        let test = match word.text {
            "host" | "net" | "port" | "portrange" | "src" | "dst" => {
                return self.qualified(None, None);
            }
            "greater" | "less" => {
                self.words.next();
                let bytes = self.words.next().parse("expected a length in bytes")?;
                let relation = match word.text {
                    "greater" => Relation::AtLeast,
                    _ => Relation::AtMost,
                };
                return Ok(Test::Compare(Compare::length(relation, bytes)));
            }
            "broadcast" => BROADCAST,
            "multicast" => MULTICAST,
            "proto" => {
                self.words.next();
                return self.protocol(true, true);
            }
            "ip" | "ip6" | "arp" => {
                self.words.next();
                let ethertype = match word.text {
                    "ip" => EtherType::IPV4,
                    "ip6" => EtherType::IPV6,
                    _ => EtherType::ARP,
                };
                let (v4, v6) = (word.text == "ip", word.text == "ip6");
                let next = self.words.peek();
                match next.text {
                    "proto" if v4 || v6 => {
                        self.words.next();
                        return self.protocol(v4, v6);
                    }
                    "multicast" if v4 || v6 => {
                        self.words.next();
                        // RFC 5771, RFC 4291 2.7.
                        let compare = match v4 {
                            true => (16, Relation::AtLeast, 224),
                            false => (24, Relation::Equal, 255),
                        };
                        let (offset, relation, value) = compare;
                        let base = Base::Network(ethertype);
                        let compare = Compare::byte(base, offset, relation, value);
                        return Ok(Test::Compare(compare));
                    }
                    "broadcast" => {
                        return Err(next.wrong(
                            "which address that is depends on the network: write \
                             `dst host 255.255.255.255`, or `broadcast` for the link",
                        ));
                    }
                    _ => {}
                }
                if matches!(self.words.peek().text, "host" | "net" | "src" | "dst") {
                    return self.qualified(Some(ethertype), None);
                }
                return Ok(Test::EtherType(ethertype));
            }
            "tcp" | "udp" | "sctp" => {
                self.words.next();
                let protocol = named(word.text).ok_or_else(|| word.wrong(PRIMITIVE))?;
                let next = self.words.peek().text;
                if matches!(next, "port" | "portrange" | "src" | "dst") {
                    return self.qualified(None, Some(protocol));
                }
                let (v4, v6) = (true, true);
                return Ok(Test::Protocol { protocol, v4, v6 });
            }
            "icmp" | "igmp" | "icmp6" | "esp" | "ah" => Test::Protocol {
                protocol: named(word.text).ok_or_else(|| word.wrong(PRIMITIVE))?,
                v4: word.text != "icmp6",
                v6: !matches!(word.text, "icmp" | "igmp"),
            },
            "vlan" => {
                self.words.next();
                return self.vlan();
            }
            "ether" => {
                self.words.next();
                return self.ether();
            }
            _ => return Err(word.wrong(PRIMITIVE)),
        };
        self.words.next();
        Ok(test)
    }

    /// `[ src | dst ] ( host A | net A/LEN | port N | A )`, behind an EtherType or a transport.
    fn qualified(
        &mut self,
        only: Option<EtherType>,
        protocol: Option<u8>,
    ) -> Result<Test, FilterError> {
        let side = match self.words.peek().text {
            "src" => Side::Src,
            "dst" => Side::Dst,
            _ => Side::Either,
        };
        if side != Side::Either {
            self.words.next();
        }
        let kind = self.words.peek();
        match (kind.text, only, protocol) {
            ("port", None, _) => {
                self.words.next();
                let word = self.words.next();
                let (port, protocol) = port(word, protocol)?;
                Ok(Test::Port {
                    side,
                    port,
                    protocol,
                })
            }
            ("portrange", None, _) => {
                self.words.next();
                let word = self.words.next();
                let (a, b) = word.text.split_once('-').ok_or_else(|| word.wrong(RANGE))?;
                let [a, b] = [a, b].map(|end| end.parse::<u16>().map_err(|_| word.wrong(RANGE)));
                let (a, b) = (a?, b?);
                Ok(Test::PortRange {
                    side,
                    first: a.min(b),
                    last: a.max(b),
                    protocol,
                })
            }
            ("port" | "portrange", Some(_), _) => {
                Err(kind.wrong("ports go with tcp and udp, as in `tcp port 80`"))
            }
            (_, _, Some(_)) => Err(kind.wrong("expected port, as in `tcp src port 80`")),
            ("net", ..) => {
                self.words.next();
                let word = self.words.next();
                let (address, bits) = net(word)?;
                check_family(word, address, only)?;
                Ok(Test::Net {
                    side,
                    address,
                    bits,
                    only,
                })
            }
            (host, ..) => {
                if host == "host" {
                    self.words.next();
                }
                let word = self.words.next();
                let address: IpAddr = word.parse(if host == "host" || side == Side::Either {
                    "expected an IPv4 or IPv6 address"
                } else {
                    "expected host, net, port or an address"
                })?;
                check_family(word, address, only)?;
                let bits = if address.is_ipv4() { 32 } else { 128 };
                Ok(Test::Net {
                    side,
                    address,
                    bits,
                    only,
                })
            }
        }
    }

    /// The number or name of an IP protocol, behind `proto`. tcpdump wants a backslash before names
    /// that it knows as words.
    fn protocol(&mut self, v4: bool, v6: bool) -> Result<Test, FilterError> {
        let word = self.words.next();
        let name = word.text.strip_prefix('\\').unwrap_or(word.text);
        let protocol = named(name).or_else(|| name.parse().ok());
        let protocol = protocol
            .ok_or_else(|| word.wrong("expected an IP protocol, by number (0 to 255) or name"))?;
        Ok(Test::Protocol { protocol, v4, v6 })
    }

    fn vlan(&mut self) -> Result<Test, FilterError> {
        self.tags += 1;
        let word = self.words.peek();
        if !word.text.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Test::Vlan(None));
        }
        self.words.next();
        match word.text.parse() {
            Ok(id @ 0..=4095) => Ok(Test::Vlan(Some(id))),
            _ => Err(word.wrong("expected a VLAN id, 0 to 4095")),
        }
    }

    fn ether(&mut self) -> Result<Test, FilterError> {
        let word = self.words.next();
        let side = match word.text {
            "host" => Side::Either,
            "src" => Side::Src,
            "dst" => Side::Dst,
            "broadcast" => return Ok(BROADCAST),
            "multicast" => return Ok(MULTICAST),
            _ => {
                return Err(
                    word.wrong("expected host, src, dst, broadcast or multicast behind ether")
                );
            }
        };
        if side != Side::Either {
            self.words.take("host");
        }
        let mac: MacAddr = self
            .words
            .next()
            .parse("expected a MAC address, as in 02:00:00:00:00:01")?;
        Ok(Test::Ether { side, mac })
    }
}

/// To everybody on the link.
const BROADCAST: Test = Test::Ether {
    side: Side::Dst,
    mac: MacAddr([0xff; 6]),
};

/// To a group, or everybody, on the link (IEEE 802 9.2: the lowest bit of the first byte).
const MULTICAST: Test = Test::Compare(Compare {
    of: Of::Bytes {
        base: Base::Link,
        offset: 0,
        size: 1,
    },
    with: Some((Arithmetic::And, 1)),
    relation: Relation::Unequal,
    value: 0,
});

/// An IP protocol by its name.
fn named(name: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == name);
    known.map(|(_, protocol)| *protocol)
}

/// A port by number or name, and its protocol: that of `wanted`, else that of a service which has
/// only one.
fn port(word: Word<'_>, wanted: Option<u8>) -> Result<(u16, Option<u8>), FilterError> {
    if let Ok(port) = word.text.parse() {
        return Ok((port, wanted));
    }
    let (port, only) = service(word.text).ok_or_else(|| word.wrong(PORT))?;
    match (wanted, only) {
        (Some(wanted), Some(only)) if wanted != only => {
            Err(word.wrong("this service is not one of that protocol"))
        }
        (wanted, only) => Ok((port, wanted.or(only))),
    }
}

fn check_family(
    word: Word<'_>,
    address: IpAddr,
    only: Option<EtherType>,
) -> Result<(), FilterError> {
    match (address, only) {
        (IpAddr::V4(_), Some(EtherType::IPV6)) => {
            Err(word.wrong("expected an IPv6 address behind ip6"))
        }
        (IpAddr::V6(_), Some(EtherType::IPV4 | EtherType::ARP)) => {
            Err(word.wrong("expected an IPv4 address behind ip and arp"))
        }
        _ => Ok(()),
    }
}

fn net(word: Word<'_>) -> Result<(IpAddr, u8), FilterError> {
    const SHAPE: &str = "expected an address and a prefix length, as in 10.0.0.0/8 or fd00::/8";
    let (address, bits) = word.text.split_once('/').ok_or_else(|| word.wrong(SHAPE))?;
    let address: IpAddr = address.parse().map_err(|_| word.wrong(SHAPE))?;
    let bits: u8 = bits.parse().map_err(|_| word.wrong(SHAPE))?;
    let (width, host_bits) = match address {
        IpAddr::V4(a) => (32, u128::from(a.to_bits()) << 96),
        IpAddr::V6(a) => (128, a.to_bits()),
    };
    if bits > width {
        return Err(word.wrong("the prefix is longer than the address"));
    }
    if host_bits.checked_shl(bits.into()).unwrap_or(0) != 0 {
        return Err(word.wrong("the address has bits set behind the prefix length"));
    }
    Ok((address, bits))
}
