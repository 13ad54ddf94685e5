//! Headers before a packet, for a backend that answers the client itself: IP in IP (RFC 2003,
//! RFC 2473, RFC 4213), or GUE, the same in UDP (draft-ietf-intarea-gue-09, variant 0).
//!
//! | | over IPv4 | over IPv6 |
//! |---|---|---|
//! | IP in IP | 20 bytes, protocol 4 or 41 | 40 bytes |
//! | GUE | 32 bytes, UDP to port 6080, no checksum | 52 bytes, with a checksum (RFC 8200 8.1) |
//!
//! The traffic class is copied, ECN included (RFC 6040 4.1, normal mode). The outer packet is not
//! to be fragmented where the inner one is not (RFC 2003 3.1).

use std::net::IpAddr;

use linerate_wire::{checksum, ipv4, ipv6, protocol};

use super::Form;

/// The UDP port of GUE.
pub const GUE_PORT: u16 = 6080;
const UDP_LEN: usize = 8;
const GUE_LEN: usize = 4;
/// The longest headers.
pub const MOST: usize = ipv6::HEADER_LEN + UDP_LEN + GUE_LEN;
/// Hops that the outer packet may go.
const HOPS: u8 = 64;

/// Headers to be put before a packet.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    bytes: [u8; MOST],
    len: usize,
    ip_len: usize,
}

/// Bytes that go before a packet to a backend of that family.
pub const fn overhead(form: Form, to: IpAddr) -> usize {
    let ip = match to {
        IpAddr::V4(_) => ipv4::HEADER_LEN,
        IpAddr::V6(_) => ipv6::HEADER_LEN,
    };
    match form {
        Form::Gue(_) => ip + UDP_LEN + GUE_LEN,
        _ => ip,
    }
}

/// Whether an IP packet is not to be fragmented.
pub fn is_whole(inner: &[u8]) -> bool {
    match inner {
        [first, _, _, _, _, _, flags, ..] if first >> 4 == 4 => flags & 0x40 != 0,
        _ => true,
    }
}

/// One hop less for an IP packet; false where it has none left (RFC 2003 3.1: before it is
/// encapsulated, for it is forwarded).
pub fn decrement(inner: &mut [u8]) -> bool {
    match inner.first().map(|first| first >> 4) {
        Some(4) => {
            ipv4::Ipv4::new_checked(inner).is_ok_and(|mut ip| ip.ttl() > 1 && ip.decrement_ttl())
        }
        Some(6) => ipv6::Ipv6::new_checked(inner)
            .is_ok_and(|mut ip| ip.hop_limit() > 1 && ip.decrement_hop_limit()),
        _ => false,
    }
}

impl Outer {
    /// The headers of `inner`, an IP packet, on its way `to` a backend. `flow` is a hash of its
    /// flow, by which paths and queues are chosen; `ident` says which datagram it is, should it be
    /// fragmented. `None` where the form has no such headers, or the packet is too long for them.
    pub fn new(form: Form, to: IpAddr, inner: &[u8], (flow, ident): (u32, u16)) -> Option<Self> {
        let (from, is_udp) = match form {
            Form::Ipip(from) => (from, false),
            Form::Gue(from) => (from, true),
            Form::Nat | Form::FullNat(_) => return None,
        };
        let is_v4 = *inner.first()? >> 4 == 4;
        let class = match is_v4 {
            true => *inner.get(1)?,
            false => inner[0] << 4 | *inner.get(1)? >> 4,
        };
        let carried = if is_v4 {
            protocol::IPV4
        } else {
            protocol::IPV6
        };
        let next = if is_udp { protocol::UDP } else { carried };
        let shim = if is_udp { UDP_LEN + GUE_LEN } else { 0 };
        let payload_len = u16::try_from(inner.len() + shim).ok()?;
        let mut bytes = [0; MOST];
        let ip_len = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                payload_len.checked_add(ipv4::HEADER_LEN as u16)?;
                let mut header = ipv4::header(class, HOPS, next, from, to, payload_len);
                if !is_whole(inner) {
                    // RFC 6864 4.2: what may be fragmented has an identification of its own.
                    header[4..6].copy_from_slice(&ident.to_be_bytes());
                    header[6..8].fill(0);
                    header[10..12].fill(0);
                    let sum = checksum::checksum(&header);
                    header[10..12].copy_from_slice(&sum.to_be_bytes());
                }
                bytes[..ipv4::HEADER_LEN].copy_from_slice(&header);
                ipv4::HEADER_LEN
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let header = ipv6::header(next, HOPS, from, to, payload_len);
                bytes[..ipv6::HEADER_LEN].copy_from_slice(&header);
                // RFC 6438: flows of a tunnel are told apart by the label.
                let word = 6 << 28 | u32::from(class) << 20 | flow & 0xf_ffff;
                bytes[..4].copy_from_slice(&word.to_be_bytes());
                ipv6::HEADER_LEN
            }
            _ => return None,
        };
        if is_udp {
            let [udp, gue] = [ip_len, ip_len + UDP_LEN];
            // RFC 7605, RFC 6335: a port of those that nobody is given.
            let src_port = 0xc000 | (flow >> 16) as u16;
            bytes[udp..udp + 2].copy_from_slice(&src_port.to_be_bytes());
            bytes[udp + 2..udp + 4].copy_from_slice(&GUE_PORT.to_be_bytes());
            bytes[udp + 4..udp + 6].copy_from_slice(&payload_len.to_be_bytes());
            // Variant 0, no control message, no options: what it carries, and no flags.
            bytes[gue + 1] = carried;
            if let (IpAddr::V6(from), IpAddr::V6(to)) = (from, to) {
                let pseudo = checksum::pseudo_v6(
                    from.octets(),
                    to.octets(),
                    protocol::UDP,
                    payload_len.into(),
                );
                let headers = checksum::sum(&bytes[udp..gue + GUE_LEN]);
                let sum = checksum::add(checksum::add(pseudo, headers), checksum::sum(inner));
                let sum = checksum::nonzero(!sum);
                bytes[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Some(Self {
            bytes,
            len: ip_len + shim,
            ip_len,
        })
    }

    /// The headers.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// How many bytes of them are the IP header.
    pub fn ip_len(&self) -> usize {
        self.ip_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::frame;

    const FROM4: &str = "10.2.0.1";
    const TO4: &str = "10.2.0.11";
    const FROM6: &str = "fd00:2::1";
    const TO6: &str = "fd00:2::11";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn inner4() -> Vec<u8> {
        let ip = frame::V4::new("192.0.2.7", "198.51.100.80", 17);
        let payload = frame::udp(&ip.pseudo(), 4000, 80, b"hello");
        ip.packet(&payload)
    }

    fn inner6() -> Vec<u8> {
        let ip = frame::V6::new("2001:db8::7", "2001:db8:1::80", 17);
        let payload = frame::udp(&ip.pseudo(), 4000, 80, b"hello");
        ip.packet(&payload)
    }

    fn around(form: Form, to: &str, inner: &[u8]) -> Vec<u8> {
        let to = address(to);
        let outer = Outer::new(form, to, inner, (0x1234_5678, 77)).unwrap();
        assert_eq!(outer.bytes().len(), overhead(form, to));
        [outer.bytes(), inner].concat()
    }

    /// RFC 2003 3.1, by byte.
    #[test]
    fn rfc_2003_3_1_ip_in_ip() {
        let inner = inner4();
        let packet = around(Form::Ipip(address(FROM4)), TO4, &inner);
        let ip = ipv4::Ipv4::new_checked(&packet[..]).unwrap();
        assert!(ip.verify());
        assert_eq!((ip.protocol(), ip.ttl()), (4, 64));
        assert_eq!(
            (ip.src(), ip.dst()),
            ([10, 2, 0, 1].into(), [10, 2, 0, 11].into())
        );
        assert_eq!(ip.payload(), inner);
        assert_eq!(ip.dont_fragment(), is_whole(&inner));
        let mut cut = inner.clone();
        cut[6] = 0;
        cut[1] = 0xb9;
        let packet = around(Form::Ipip(address(FROM4)), TO4, &cut);
        let ip = ipv4::Ipv4::new_checked(&packet[..]).unwrap();
        assert!(ip.verify() && !ip.dont_fragment());
        assert_eq!((ip.ident(), ip.tos()), (77, 0xb9));
        // IPv6 within: protocol 41, never to be fragmented.
        let packet = around(Form::Ipip(address(FROM4)), TO4, &inner6());
        let ip = ipv4::Ipv4::new_checked(&packet[..]).unwrap();
        assert!(ip.dont_fragment());
        assert_eq!(ip.protocol(), 41);
    }

    #[test]
    fn rfc_2473_ip_in_ipv6() {
        for (inner, next) in [(inner4(), 4), (inner6(), 41)] {
            let packet = around(Form::Ipip(address(FROM6)), TO6, &inner);
            let ip = ipv6::Ipv6::new_checked(&packet[..]).unwrap();
            assert_eq!((ip.next_header(), ip.hop_limit()), (next, 64));
            assert_eq!(ip.flow_label(), 0x4_5678);
            assert_eq!(ip.payload(), inner);
        }
    }

    #[test]
    fn gue_is_udp_to_port_6080() {
        for (inner, carried) in [(inner4(), 4), (inner6(), 41)] {
            let packet = around(Form::Gue(address(FROM4)), TO4, &inner);
            let ip = ipv4::Ipv4::new_checked(&packet[..]).unwrap();
            assert_eq!(ip.protocol(), 17);
            let len = (12 + inner.len()) as u8;
            let udp = [0xd2, 0x34, 0x17, 0xc0, 0, len, 0, 0];
            assert_eq!(ip.payload()[..8], udp);
            assert_eq!(ip.payload()[8..12], [0, carried, 0, 0]);
            assert_eq!(ip.payload()[12..], inner);

            let packet = around(Form::Gue(address(FROM6)), TO6, &inner);
            let ip = ipv6::Ipv6::new_checked(&packet[..]).unwrap();
            assert_eq!(ip.payload()[12..], inner);
            let pseudo = [address(FROM6).to_string(), address(TO6).to_string()];
            let pseudo = frame::V6::new(&pseudo[0], &pseudo[1], 17).pseudo();
            let mut blank = ip.payload().to_vec();
            blank[6..8].fill(0);
            let all = frame::summed(&pseudo, 17, blank, 6);
            assert_eq!(all, ip.payload(), "the checksum");
        }
    }

    #[test]
    fn what_does_not_fit_has_no_headers() {
        let outer = |form, to, inner: &[u8]| Outer::new(form, address(to), inner, (0, 0)).is_some();
        assert!(!outer(Form::Ipip(address(FROM4)), TO6, &inner4()));
        assert!(!outer(Form::Nat, TO4, &inner4()));
        assert!(!outer(Form::Ipip(address(FROM4)), TO4, &[]));
        assert!(!outer(Form::Ipip(address(FROM4)), TO4, &[0x45; 65_530]));
        let mut last = inner4();
        last[8] = 1;
        assert!(!decrement(&mut last));
        last[8] = 2;
        let mut ip = ipv4::Ipv4::new_checked(&mut last[..]).unwrap();
        ip.fill_checksum();
        assert!(decrement(&mut last));
        assert!(ipv4::Ipv4::new_checked(&last[..]).unwrap().verify());
        let mut v6 = inner6();
        v6[7] = 1;
        assert!(!decrement(&mut v6));
    }
}
