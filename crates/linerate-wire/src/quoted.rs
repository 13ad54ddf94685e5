//! The packet that an ICMP error quotes, which tells NAT and dispatch what flow it is about.

use crate::{
    EtherType, FlowKey, Headers, Layer, Malformed, icmp, ipv4::Ipv4, ipv6::Ipv6, parse, protocol,
};

impl Headers {
    /// Where the headers lie of the packet that an ICMP or ICMPv6 error quotes; `Ok(None)` where
    /// this is no such error. `frame` is the one that was parsed.
    ///
    /// Quotes are cut short: [`Headers::end`] is where the quote ends, or its packet if sooner,
    /// and nothing of the upper layer is checked but that TCP, UDP and SCTP have ports (RFC 792
    /// and RFC 4443 2.4 promise as much). A quote without is an error.
    #[inline]
    pub fn quoted(&self, frame: &[u8]) -> Result<Option<Headers>, Malformed> {
        match (self.ethertype, self.icmp_type_code(frame)) {
            // RFC 792: unreachable, source quench, redirect, time exceeded, parameter problem.
            (EtherType::IPV4, Some((3 | 4 | 5 | 11 | 12, _))) => {}
            // RFC 4443 2.1: the first half of the types are errors.
            (EtherType::IPV6, Some((1..=127, _))) => {}
            _ => return Ok(None),
        }
        let (Some(frame), Some(l4)) = (frame.get(..self.end), self.l4) else {
            return Ok(None);
        };
        quote_at(frame, self.ethertype, l4 + icmp::HEADER_LEN).map(Some)
    }

    /// The flow that an ICMP error belongs to: that of the quoted packet, reversed, for errors
    /// come back to where that came from. `Ok(None)` where this is no such error.
    ///
    /// ```
    /// # use linerate_wire::{FlowKey, FlowKey4, parse};
    /// // A router tells 10.0.0.1:4000 that its UDP packet to 10.0.0.2:53 cannot be delivered.
    /// let mut frame = [0; 70];
    /// frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1]);
    /// frame[34..36].copy_from_slice(&[3, 1]);
    /// frame[42..52].copy_from_slice(&[0x45, 0, 5, 220, 0, 0, 0, 0, 64, 17]);
    /// frame[54..66].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 15, 160, 0, 53]);
    /// let key = FlowKey4::new([10, 0, 0, 2], [10, 0, 0, 1], 53, 4000, 17);
    /// assert_eq!(parse(&frame)?.icmp_error_flow(&frame)?, Some(FlowKey::V4(key)));
    /// # Ok::<(), linerate_wire::Malformed>(())
    /// ```
    #[inline]
    pub fn icmp_error_flow(&self, frame: &[u8]) -> Result<Option<FlowKey>, Malformed> {
        let quoted = self.quoted(frame)?;
        let key = quoted.and_then(|quoted| quoted.flow_key(frame));
        Ok(key.map(FlowKey::reversed))
    }
}

/// `frame` ends where the ICMP message does.
fn quote_at(frame: &[u8], ethertype: EtherType, l3: usize) -> Result<Headers, Malformed> {
    const CUT: Malformed = Malformed::Truncated(Layer::Icmp);
    let quote = frame.get(l3..).ok_or(CUT)?;
    let (header_len, total_len, protocol, is_fragment, fragment_offset);
    if ethertype == EtherType::IPV4 {
        let ip = Ipv4::new_header(quote)?;
        (header_len, total_len) = (ip.header_len(), ip.total_len());
        (is_fragment, fragment_offset) = (ip.is_fragment(), ip.fragment_offset());
        protocol = ip.protocol();
    } else {
        let ip = Ipv6::new_header(quote)?;
        let upper = ip.upper_layer_within(ip.total_len().min(quote.len()))?;
        (header_len, total_len) = (upper.offset, ip.total_len());
        (is_fragment, fragment_offset) = (upper.is_fragment, upper.fragment_offset);
        protocol = upper.protocol;
    }
    let end = l3 + total_len.clamp(header_len, quote.len());
    let l4 = (fragment_offset == 0).then_some(l3 + header_len);
    let ports = l4.and_then(|l4| parse::ports(protocol, &frame[l4..end]));
    let wants_ports = matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
    if l4.is_some() && wants_ports && ports.is_none() {
        return Err(CUT);
    }
    Ok(Headers {
        ethertype,
        outer_tci: None,
        l3,
        end,
        protocol: Some(protocol),
        is_fragment,
        l4,
        ports,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey4, FlowKey6, parse};
    use etherparse::{
        IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6Header, Ipv6RawExtHeader,
        LaxSlicedPacket, PacketBuilder,
    };
    use proptest::prelude::*;
    use std::vec::Vec;

    /// An ICMP error of that type over `quote`.
    fn error(v6: bool, kind: u8, quote: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let mut frame = Vec::new();
        let written = if v6 {
            let ip = builder.ipv6([9; 16], [1; 16], 9);
            ip.icmpv6_raw(kind, 0, [0; 4]).write(&mut frame, quote)
        } else {
            let ip = builder.ipv4([9; 4], [1; 4], 9);
            ip.icmpv4_raw(kind, 0, [0; 4]).write(&mut frame, quote)
        };
        written.unwrap();
        frame
    }

    /// A TCP packet from 1s:1000 to 2s:80, with 100 bytes of payload, without Ethernet header.
    fn tcp(v6: bool) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 {
            builder.ipv6([1; 16], [2; 16], 9)
        } else {
            builder.ipv4([1; 4], [2; 4], 9)
        };
        let mut frame = Vec::new();
        ip.tcp(1000, 80, 7, 1024)
            .write(&mut frame, &[0; 100])
            .unwrap();
        frame.split_off(14)
    }

    #[test]
    fn errors_belong_to_the_flow_of_the_replies() {
        let v4 = FlowKey::V4(FlowKey4::new([2; 4], [1; 4], 80, 1000, protocol::TCP));
        let v6 = FlowKey::V6(FlowKey6::new([2; 16], [1; 16], 80, 1000, protocol::TCP));
        for (is_v6, kind, key) in [
            (false, 3, v4),
            (false, 11, v4),
            (true, 2, v6),
            (true, 100, v6),
        ] {
            let header_len = if is_v6 { 40 } else { 20 };
            for len in [header_len + 4, header_len + 8, header_len + 100] {
                let frame = error(is_v6, kind, &tcp(is_v6)[..len]);
                let headers = parse(&frame).unwrap();
                let quoted = headers.quoted(&frame).unwrap().unwrap();
                assert_eq!(quoted.l3, headers.l4.unwrap() + 8);
                assert_eq!(quoted.end, frame.len());
                assert_eq!(quoted.l4, Some(quoted.l3 + header_len));
                assert_eq!(headers.icmp_error_flow(&frame), Ok(Some(key)));
            }
        }
    }

    #[test]
    fn a_quote_too_short_is_an_error() {
        let reason = |v6: bool, len: usize| {
            let frame = error(v6, 3, &tcp(v6)[..len]);
            parse(&frame).unwrap().icmp_error_flow(&frame).unwrap_err()
        };
        assert_eq!(reason(false, 0), Malformed::Truncated(Layer::Ipv4));
        assert_eq!(reason(false, 23), Malformed::Truncated(Layer::Icmp));
        assert_eq!(reason(true, 39), Malformed::Truncated(Layer::Ipv6));
        assert_eq!(reason(true, 43), Malformed::Truncated(Layer::Icmp));
        let mut frame = error(false, 3, &[]);
        frame[17] = 22; // two bytes of ICMP
        let headers = parse(&frame).unwrap();
        assert_eq!(
            headers.quoted(&frame),
            Err(Malformed::Truncated(Layer::Icmp))
        );
    }

    #[test]
    fn fragments_and_other_protocols_are_quoted_without_ports() {
        let mut quote = tcp(false);
        quote[7] = 1;
        let frame = error(false, 3, &quote[..28]);
        let key = FlowKey::V4(FlowKey4::new([2; 4], [1; 4], 0, 0, protocol::TCP));
        let headers = parse(&frame).unwrap();
        assert_eq!(headers.icmp_error_flow(&frame), Ok(Some(key)));
        let mut quote = tcp(false);
        quote[9] = IpNumber::ICMP.0;
        let frame = error(false, 3, &quote[..20]);
        let quoted = parse(&frame).unwrap().quoted(&frame).unwrap().unwrap();
        assert_eq!((quoted.protocol, quoted.ports), (Some(1), None));
    }

    #[test]
    fn what_is_no_error_quotes_nothing() {
        for (v6, kind) in [(false, 8), (false, 0), (true, 128), (true, 137), (true, 0)] {
            let frame = error(v6, kind, &tcp(v6));
            assert_eq!(parse(&frame).unwrap().quoted(&frame), Ok(None), "{kind}");
        }
        let mut frame = error(true, 1, &tcp(true));
        frame[20] = protocol::ICMP; // not that of IPv6
        assert_eq!(parse(&frame).unwrap().quoted(&frame), Ok(None));
    }

    proptest! {
        #[test]
        fn quotes_agree_with_etherparse(v6: bool, udp: bool, src: [u8; 16], dst: [u8; 16],
            ports: (u16, u16), payload: Vec<u8>, options in 0usize..4, len: usize) {
            let (src4, dst4) = ([src[0], src[1], src[2], src[3]], [dst[0], dst[1], dst[2], dst[3]]);
            let mut extensions = Ipv6Extensions::default();
            if options > 0 {
                let hops = Ipv6RawExtHeader::new_raw(0.into(),
                    &[1; 30][..8 * options - 2]).unwrap();
                extensions.hop_by_hop_options = Some(hops);
            }
            let headers = if v6 {
                let header = Ipv6Header { source: src, destination: dst, hop_limit: 9,
                    ..Default::default() };
                IpHeaders::Ipv6(header, extensions)
            } else {
                let mut header = Ipv4Header::new(0, 9, IpNumber(0), src4, dst4).unwrap();
                header.options = [1; 12][..4 * options].try_into().unwrap();
                IpHeaders::Ipv4(header, Default::default())
            };
            let mut quote = Vec::new();
            let builder = PacketBuilder::ip(headers);
            if udp {
                builder.udp(ports.0, ports.1).write(&mut quote, &payload).unwrap();
            } else {
                builder.tcp(ports.0, ports.1, 7, 1024).write(&mut quote, &payload).unwrap();
            }
            quote.truncate(20 + len % (quote.len() - 19));
            let frame = error(v6, 3, &quote);
            let lax = LaxSlicedPacket::from_ip(&quote);
            match parse(&frame).unwrap().quoted(&frame) {
                Ok(Some(quoted)) => {
                    prop_assert_eq!(quoted.ports, Some(ports));
                    let net = lax.unwrap().net.unwrap();
                    let ip = net.ip_payload_ref().unwrap();
                    prop_assert_eq!(&frame[quoted.l4.unwrap()..quoted.end], ip.payload);
                    prop_assert_eq!(quoted.protocol, Some(ip.ip_number.0));
                    let key = if v6 {
                        FlowKey::V6(FlowKey6::new(src, dst, ports.0, ports.1, ip.ip_number.0))
                    } else {
                        FlowKey::V4(FlowKey4::new(src4, dst4, ports.0, ports.1, ip.ip_number.0))
                    };
                    prop_assert_eq!(quoted.flow_key(&frame), Some(key));
                }
                Ok(None) => prop_assert!(false, "it is an error"),
                // Cut inside its IP headers, or less than four bytes behind them.
                Err(_) => {
                    let net = lax.ok().and_then(|lax| lax.net);
                    let ip = net.as_ref().and_then(|net| net.ip_payload_ref());
                    let upper = |number| matches!(number, IpNumber::TCP | IpNumber::UDP);
                    prop_assert!(ip.is_none_or(|ip| ip.payload.len() < 4 || !upper(ip.ip_number)));
                }
            }
        }

        #[test]
        fn never_panics(v6: bool, at: usize, value: u8, len in 0usize..=160, cut: usize) {
            let mut quote = tcp(v6);
            let at = at % quote.len();
            quote[at] = value;
            let frame = error(v6, 3, &quote[..len.min(quote.len())]);
            let headers = parse(&frame).unwrap();
            if let Ok(Some(quoted)) = headers.quoted(&frame) {
                prop_assert!(headers.l4.unwrap() < quoted.l3 && quoted.l3 < quoted.end);
                prop_assert!(quoted.end <= headers.end);
                prop_assert!(quoted.l4.is_none_or(|l4| quoted.l3 < l4 && l4 <= quoted.end));
                prop_assert!(quoted.flow_key(&frame).is_some());
            }
            let _ = headers.quoted(&frame[..cut % frame.len()]);
        }
    }
}
