//! Frames of tests: a test states only what differs from a valid frame.

use std::net::IpAddr;

use linerate_wire::MacAddr;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::protocol;
use linerate_wire::tcp::{self, Tcp};

use super::{HOST_MAC, WAN_MAC};

/// A frame as differences from a valid UDP datagram of 26 bytes from the host.
#[derive(Clone, Debug)]
pub struct Frame {
    pub dst_mac: MacAddr,
    pub src: &'static str,
    pub dst: &'static str,
    pub ttl: u8,
    pub protocol: u8,
    /// IPv4 options, a multiple of 4 bytes; IPv6 extension headers, of which the first has
    /// `protocol`.
    pub options: Vec<u8>,
    /// IPv4 flags and offset.
    pub fragment: u16,
    /// What follows; UDP's header and nothing where it is empty and `protocol` UDP.
    pub payload: Vec<u8>,
}

impl Frame {
    /// From the host on `wan` to the network behind the router on `lan`.
    pub fn new() -> Self {
        Self {
            dst_mac: WAN_MAC,
            src: "192.0.2.7",
            dst: "10.1.0.9",
            ttl: 64,
            protocol: 17,
            options: Vec::new(),
            fragment: 0,
            payload: udp(18),
        }
    }

    /// The same over IPv6.
    pub fn new6() -> Self {
        Self {
            src: "2001:db8::7",
            dst: "2001:db8:a1::9",
            ..Self::new()
        }
    }

    /// Between these two, of one family.
    pub fn between(src: &'static str, dst: &'static str) -> Self {
        Self {
            src,
            dst,
            ..Self::new()
        }
    }

    /// From the host to `dst`.
    pub fn to(dst: &'static str) -> Self {
        match dst.contains(':') {
            true => Self::between(Self::new6().src, dst),
            false => Self::between(Self::new().src, dst),
        }
    }

    /// From `src` to the network behind the router.
    pub fn from(src: &'static str) -> Self {
        match src.contains(':') {
            true => Self::between(src, Self::new6().dst),
            false => Self::between(src, Self::new().dst),
        }
    }

    /// Its bytes, padded to the shortest frame.
    pub fn bytes(&self) -> Vec<u8> {
        let (src, dst): (IpAddr, IpAddr) = (
            self.src.parse().expect("an address"),
            self.dst.parse().expect("an address"),
        );
        let mut frame = self.dst_mac.0.to_vec();
        frame.extend(HOST_MAC.0);
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend([8, 0]);
                let header_len = 20 + self.options.len();
                let total = (header_len + self.payload.len()) as u16;
                let mut ip = vec![0x40 | (header_len / 4) as u8, 0];
                ip.extend(total.to_be_bytes());
                ip.extend([0x12, 0x34]);
                ip.extend(self.fragment.to_be_bytes());
                ip.extend([self.ttl, self.protocol, 0, 0]);
                ip.extend(src.octets());
                ip.extend(dst.octets());
                ip.extend(&self.options);
                ip.extend(&self.payload);
                let mut header = Ipv4::new_checked(&mut ip).expect("sound lengths");
                header.fill_checksum();
                frame.extend(ip);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                let len = (self.options.len() + self.payload.len()) as u16;
                frame.extend(len.to_be_bytes());
                frame.extend([self.protocol, self.ttl]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
                frame.extend(&self.options);
                frame.extend(&self.payload);
            }
            _ => panic!("both addresses of one family"),
        }
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

impl Frame {
    /// From the host's port 5000 to port 22 behind the router: a segment with these flags, numbered
    /// 100, which acknowledges 7 and carries `data`.
    pub fn tcp(flags: u8, data: &[u8]) -> Self {
        Self::new().carrying(flags, data)
    }

    /// The same over IPv6.
    pub fn tcp6(flags: u8, data: &[u8]) -> Self {
        Self::new6().carrying(flags, data)
    }

    fn carrying(mut self, flags: u8, data: &[u8]) -> Self {
        self.protocol = protocol::TCP;
        self.payload = tcp::header(5000, 22, 100, 7, flags).to_vec();
        self.payload.extend(data);
        self.summed()
    }

    /// With the checksum of its segment as its addresses want it.
    pub fn summed(mut self) -> Self {
        let bytes = self.bytes();
        let pseudo = match self.src.contains(':') {
            true => {
                let ip = Ipv6::new_checked(&bytes[14..]).expect("a sound packet");
                let upper = ip.upper_layer().expect("a sound packet");
                ip.pseudo_sum(&upper)
            }
            false => {
                let ip = Ipv4::new_checked(&bytes[14..]).expect("a sound packet");
                ip.pseudo_sum()
            }
        };
        let segment = Tcp::new_checked(&mut self.payload[..]);
        segment.expect("a whole header").fill_checksum(pseudo);
        self
    }
}

/// A UDP datagram without checksum that carries `len` bytes.
pub fn udp(len: usize) -> Vec<u8> {
    let mut datagram = vec![0x13, 0x88, 0, 53];
    datagram.extend((8 + len as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend((0..len).map(|at| at as u8));
    datagram
}

/// What a forwarded frame looks like: addresses of the link, time to live.
pub fn forwarded(mut frame: Vec<u8>, dst: MacAddr, src: MacAddr) -> Vec<u8> {
    frame[..6].copy_from_slice(&dst.0);
    frame[6..12].copy_from_slice(&src.0);
    if frame[12..14] == [8, 0] {
        frame[22] -= 1;
        let mut ip = Ipv4::new_checked(&mut frame[14..]).expect("a sound packet");
        ip.fill_checksum();
    } else {
        frame[21] -= 1;
    }
    frame
}
