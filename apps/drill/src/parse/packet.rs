//! Packets: `< [ect0] 4000 > 80 P. 1:1001(1000) ack 1 win 257 <nop,nop,sack 1:2>`.

use super::Parser;
use crate::fault::Fault;
use crate::lex::Token;
use crate::packet::{MAX_OPTION_BYTES, TcpOption, flag};
use crate::script::{Body, IcmpSpec, IpSpec, PacketSpec, Quoted, TcpSpec, TosSpec};

/// Flags by letter; the point is ACK.
const LETTERS: &[(char, u16)] = &[
    ('F', flag::FIN),
    ('S', flag::SYN),
    ('R', flag::RST),
    ('P', flag::PSH),
    ('.', flag::ACK),
    ('U', flag::URG),
    ('E', flag::ECE),
    ('W', flag::CWR),
    ('A', flag::AE),
];

/// What fits an IP packet together with headers.
const MAX_QUOTED_BYTES: u16 = 65_000;

impl Parser {
    pub(super) fn packet(&mut self) -> Result<PacketSpec, Fault> {
        let inbound = self.accept('<');
        if !inbound {
            self.expect('>')?;
        }
        let at = self.at();
        let tunnel = ["ipv4", "ipv6", "gre", "GREv0", "mpls"];
        if let Some(header) = tunnel.iter().find(|header| self.is_word(header)) {
            return Err(Fault::unsupported(at, format!("the outer header {header}")));
        }
        let ip = self.ip_info(inbound)?;
        if self.is_word("encap") {
            return Err(Fault::unsupported(self.at(), "encapsulation in PSP"));
        }
        if self.accept_word("icmp") {
            let body = Body::Icmp(self.icmp()?);
            return Ok(PacketSpec {
                inbound,
                ip,
                ports: None,
                body,
            });
        }
        let udp = self.accept_word("udp");
        let ports = self.ports()?;
        let body = if udp {
            self.expect('(')?;
            let bytes = self.number("the number of bytes, such as 1000,")?;
            self.expect(')')?;
            Body::Udp(bytes)
        } else {
            Body::Tcp(self.tcp(inbound)?)
        };
        Ok(PacketSpec {
            inbound,
            ip,
            ports,
            body,
        })
    }

    /// `[ect0]`, `(tos 0x10)`, `[ttl 64]`, `[flowlabel 0x1]`.
    fn ip_info(&mut self, inbound: bool) -> Result<IpSpec, Fault> {
        let mut ip = IpSpec::default();
        let close = match self.peek() {
            Some(Token::Mark('[')) => ']',
            Some(Token::Mark('(')) => ')',
            _ => return Ok(ip),
        };
        self.next += 1;
        loop {
            let at = self.at();
            let what = "ect0, ect1, ect01, ce, noecn, tos, ttl or flowlabel";
            match self.word(what)?.as_str() {
                "noecn" => ip.tos = TosSpec::Ecn(0),
                "ect1" => ip.tos = TosSpec::Ecn(1),
                "ect0" => ip.tos = TosSpec::Ecn(2),
                "ce" => ip.tos = TosSpec::Ecn(3),
                "ect01" if inbound => {
                    let fix = "write ect0 or ect1: only an outbound packet can have either";
                    return Err(Fault::syntax(at, "ect01 in an inbound packet", fix));
                }
                "ect01" => ip.tos = TosSpec::EitherEct,
                "tos" => ip.tos = TosSpec::All(self.number("a type of service")?),
                "ttl" => ip.ttl = Some(self.number("a time to live")?),
                "flowlabel" => {
                    let at = self.at();
                    let label: u32 = self.number("a flow label")?;
                    if label > 0xf_ffff {
                        let fix = "write one of 20 bits";
                        return Err(Fault::syntax(at, "a flow label out of range", fix));
                    }
                    ip.flow_label = Some(label);
                }
                word => {
                    let fix = format!("write {what}");
                    return Err(Fault::syntax(at, format!("unknown word {word:?}"), fix));
                }
            }
            if self.accept(close) {
                return Ok(ip);
            }
            self.expect(',')?;
        }
    }

    /// `4000 > 80`, which no sequence numbers are: those have a colon.
    fn ports(&mut self) -> Result<Option<(u16, u16)>, Fault> {
        let number = matches!(self.peek(), Some(Token::Int(..)));
        if !number || self.peek_behind() != Some(&Token::Mark('>')) {
            return Ok(None);
        }
        let src = self.number("a source port")?;
        self.expect('>')?;
        Ok(Some((src, self.number("a destination port")?)))
    }

    fn tcp(&mut self, inbound: bool) -> Result<TcpSpec, Fault> {
        let start = self.at();
        let flags = self.flags()?;
        let (seq, payload_bytes) = self.sequence()?;
        let mut tcp = TcpSpec {
            flags,
            seq,
            payload_bytes,
            ack: None,
            window: None,
            urgent: None,
            options: Some(Vec::new()),
        };
        if self.accept_word("ack") {
            tcp.ack = Some(self.number("an acknowledgment number")?);
        }
        if self.accept_word("win") {
            tcp.window = Some(self.number("a window")?);
        }
        if self.accept_word("urg") {
            tcp.urgent = Some(self.number("an urgent pointer")?);
        }
        if inbound && tcp.window.is_none() {
            let fix = "add win and a number: an inbound segment needs one";
            return Err(Fault::syntax(start, "a segment without a window", fix));
        }
        let at = self.at();
        // `<` behind a packet always opens options: an event starts with a time.
        if self.accept('<') {
            if self.peek() == Some(&Token::Ellipsis) {
                self.next += 1;
                if inbound {
                    let fix = "list the options: only those of outbound packets can be any";
                    return Err(Fault::syntax(at, "any options in an inbound packet", fix));
                }
                tcp.options = None;
            } else {
                tcp.options = Some(self.options()?);
            }
            self.expect('>')?;
        }
        Ok(tcp)
    }

    /// `S`, `P.`, `SEW`, `.`, or `-` for none.
    fn flags(&mut self) -> Result<u16, Fault> {
        let at = self.at();
        if self.accept('-') {
            return Ok(0);
        }
        let mut letters = match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                word
            }
            Some(Token::Mark('.')) => String::new(),
            _ => return Err(self.expected("flags, such as S, P. or FR.")),
        };
        if self.accept('.') {
            letters.push('.');
        } else if let Some(Token::Float(_)) = self.peek() {
            return Err(Fault::unsupported(self.at(), "the counter ACE of AccECN"));
        }
        let mut flags = 0;
        for letter in letters.chars() {
            let Some((_, bit)) = LETTERS.iter().find(|(l, _)| *l == letter) else {
                let fix = "use F S R P . U E W A, or - for none";
                return Err(Fault::syntax(at, format!("unknown flag {letter:?}"), fix));
            };
            flags |= bit;
        }
        Ok(flags)
    }

    /// `1:1001(1000)`: first number and bytes of payload.
    fn sequence(&mut self) -> Result<(u32, u32), Fault> {
        let at = self.at();
        let start: u32 = self.number("sequence numbers, such as 1:1001(1000),")?;
        self.expect(':')?;
        let end: u32 = self.number("the number behind the last")?;
        self.expect('(')?;
        let bytes: u16 = self.number("the number of bytes")?;
        self.expect(')')?;
        if end != start.wrapping_add(u32::from(bytes)) {
            let problem = format!("{start}:{end} is not {bytes} bytes");
            let fix = format!(
                "write {start}:{}({bytes})",
                start.wrapping_add(u32::from(bytes))
            );
            return Err(Fault::syntax(at, problem, fix));
        }
        Ok((start, u32::from(bytes)))
    }

    fn options(&mut self) -> Result<Vec<TcpOption>, Fault> {
        let at = self.at();
        let mut options = Vec::new();
        let mut bytes = 0;
        loop {
            let option = self.option()?;
            bytes += option.len();
            options.push(option);
            if bytes > MAX_OPTION_BYTES {
                let fix = format!("use at most {MAX_OPTION_BYTES} (RFC 9293 3.1)");
                return Err(Fault::syntax(at, "too many bytes of TCP options", fix));
            }
            if !self.accept(',') {
                return Ok(options);
            }
        }
    }

    fn option(&mut self) -> Result<TcpOption, Fault> {
        let at = self.at();
        let what = "an option: nop, eol, mss, wscale, sackOK, sack, TS, FO, FOEXP or md5";
        Ok(match self.word(what)?.as_str() {
            "nop" => TcpOption::Nop,
            "eol" => TcpOption::Eol,
            "mss" => TcpOption::Mss(self.number("a segment size")?),
            "wscale" => TcpOption::WindowScale(self.number("a shift")?),
            "sackOK" => TcpOption::SackPermitted,
            "sack" => {
                let mut blocks = Vec::new();
                while matches!(self.peek(), Some(Token::Int(..))) {
                    let left = self.number("a block's left edge")?;
                    self.expect(':')?;
                    blocks.push((left, self.number("a block's right edge")?));
                }
                TcpOption::Sack(blocks)
            }
            "TS" => {
                if !self.accept_word("val") {
                    return Err(self.expected("val"));
                }
                let value = self.number("a time stamp")?;
                if !self.accept_word("ecr") {
                    return Err(self.expected("ecr"));
                }
                TcpOption::Timestamps(value, self.number("a time stamp")?)
            }
            "FO" => TcpOption::FastOpen(self.blob(36)?),
            "FOEXP" => TcpOption::FastOpenExperimental(self.blob(36)?),
            "md5" => TcpOption::Md5(self.blob(36)?),
            "ECN" => return Err(Fault::unsupported(at, "the option of AccECN")),
            word => {
                let fix = format!("write {what}");
                return Err(Fault::syntax(at, format!("unknown option {word:?}"), fix));
            }
        })
    }

    /// Bytes in hexadecimal digits; none where no word follows.
    fn blob(&mut self, most: usize) -> Result<Vec<u8>, Fault> {
        let at = self.at();
        let digits = match self.peek() {
            Some(Token::Word(digits) | Token::Int(_, digits)) => digits.clone(),
            _ => return Ok(Vec::new()),
        };
        self.next += 1;
        let pairs = digits.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| {
                let pair = std::str::from_utf8(pair).ok().filter(|p| p.len() == 2)?;
                u8::from_str_radix(pair, 16).ok()
            })
            .collect();
        bytes.filter(|bytes| bytes.len() <= most).ok_or_else(|| {
            let fix = format!("write up to {most} bytes, two hexadecimal digits each");
            Fault::syntax(at, format!("{digits:?} is no string of bytes"), fix)
        })
    }

    /// Behind `icmp`.
    fn icmp(&mut self) -> Result<IcmpSpec, Fault> {
        let at = self.at();
        let kind = self.word("a type, such as unreachable")?;
        let mut icmp = IcmpSpec {
            kind,
            code: None,
            mtu: None,
            ident: None,
            quoted: Quoted::Nothing,
            at,
        };
        if !self.is_word("mtu") && !self.is_word("id") {
            icmp.code = self.word("a code").ok();
        }
        if self.accept_word("mtu") {
            icmp.mtu = Some(self.number("an MTU")?);
        }
        if self.accept_word("id") {
            icmp.ident = Some(self.number("an identifier")?);
        }
        if self.accept('[') {
            icmp.quoted = self.quoted()?;
            self.expect(']')?;
        }
        Ok(icmp)
    }

    fn quoted(&mut self) -> Result<Quoted, Fault> {
        let udp = self.accept_word("udp");
        if !udp && !self.accept_word("raw") {
            let (seq, bytes) = self.sequence()?;
            return Ok(Quoted::Tcp(seq, bytes));
        }
        self.expect('(')?;
        let at = self.at();
        let bytes: u16 = self.number("the number of bytes")?;
        if bytes > MAX_QUOTED_BYTES {
            let fix = format!("use at most {MAX_QUOTED_BYTES}");
            return Err(Fault::syntax(at, format!("{bytes} bytes behind ICMP"), fix));
        }
        self.expect(')')?;
        Ok(match udp {
            true => Quoted::Udp(bytes),
            false => Quoted::Raw(bytes),
        })
    }
}
