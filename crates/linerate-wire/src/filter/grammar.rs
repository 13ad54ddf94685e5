//! From text to program, in one pass: each word emits what it means.

use alloc::vec::Vec;
use core::{net::IpAddr, str::FromStr};

use super::{FilterError, Op, Side, Test};
use crate::{EtherType, MacAddr, protocol};

/// Parentheses in parentheses; the parser recurses into each.
const MAX_DEPTH: usize = 64;

/// Bytes of expression: bounds the program.
const MAX_LEN: usize = 64 << 10;

const PRIMITIVE: &str = "expected one of arp, ip, ip6, tcp, udp, icmp, icmp6, host, net, port, \
                         src, dst, vlan, ether, not or (";

pub(super) fn compile(expression: &str) -> Result<Vec<Op>, FilterError> {
    let mut compiler = Compiler {
        words: Words {
            text: expression,
            at: 0,
        },
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

/// A piece of the expression.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    at: usize,
}

impl Word<'_> {
    fn wrong(self, reason: &'static str) -> FilterError {
        FilterError {
            word: self.text.into(),
            at: self.at,
            reason,
        }
    }

    fn parse<T: FromStr>(self, reason: &'static str) -> Result<T, FilterError> {
        self.text.parse().map_err(|_| self.wrong(reason))
    }
}

/// The words of an expression; empty ones once it has ended.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Word<'a> {
        let rest = self.text[self.at..].trim_start();
        let at = self.text.len() - rest.len();
        let single = |c: char| matches!(c, '(' | ')' | '!');
        let len = match rest.find(|c: char| c.is_whitespace() || single(c)) {
            Some(0) => 1, // ( ) or !
            Some(len) => len,
            None => rest.len(),
        };
        Word {
            text: &rest[..len],
            at,
        }
    }

    fn next(&mut self) -> Word<'a> {
        let word = self.peek();
        self.at = word.at + word.text.len();
        word
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, text: &str) -> bool {
        let found = self.peek().text == text;
        if found {
            self.next();
        }
        found
    }
}

struct Compiler<'a> {
    words: Words<'a>,
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
        let word = self.words.peek();
        let transport = |protocol| Test::Protocol {
            protocol,
            v4: true,
            v6: true,
        };
        let test = match word.text {
            "host" | "net" | "port" | "src" | "dst" => return self.qualified(None, None),
            "ip" | "ip6" | "arp" => {
                self.words.next();
                let ethertype = match word.text {
                    "ip" => EtherType::IPV4,
                    "ip6" => EtherType::IPV6,
                    _ => EtherType::ARP,
                };
                if matches!(self.words.peek().text, "host" | "net" | "src" | "dst") {
                    return self.qualified(Some(ethertype), None);
                }
                return Ok(Test::EtherType(ethertype));
            }
            "tcp" | "udp" => {
                self.words.next();
                let number = if word.text == "tcp" {
                    protocol::TCP
                } else {
                    protocol::UDP
                };
                if matches!(self.words.peek().text, "port" | "src" | "dst") {
                    return self.qualified(None, Some(number));
                }
                return Ok(transport(number));
            }
            "icmp" => Test::Protocol {
                protocol: protocol::ICMP,
                v4: true,
                v6: false,
            },
            "icmp6" => Test::Protocol {
                protocol: protocol::ICMPV6,
                v4: false,
                v6: true,
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
                let port = self
                    .words
                    .next()
                    .parse("expected a port number, 0 to 65535")?;
                Ok(Test::Port {
                    side,
                    port,
                    protocol,
                })
            }
            ("port", Some(_), _) => {
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
            _ => return Err(word.wrong("expected host, src or dst behind ether")),
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
