//! ARP for IPv4 over Ethernet (RFC 826).

use core::{fmt, net::Ipv4Addr};

use crate::{
    EtherType, Layer, MacAddr, Malformed,
    bytes::{array, be16, put16},
};

/// Length in bytes of an ARP packet for IPv4 over Ethernet.
pub const LEN: usize = 28;

mod field {
    pub(super) const HARDWARE: usize = 0;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const LENGTHS: usize = 4;
    pub(super) const OPERATION: usize = 6;
    pub(super) const SENDER_MAC: usize = 8;
    pub(super) const SENDER_IP: usize = 14;
    pub(super) const TARGET_MAC: usize = 18;
    pub(super) const TARGET_IP: usize = 24;
}

/// Operation of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A request for the target's MAC address.
    Request,
    /// The sender has the sender address.
    Reply,
    /// Anything else (RARP, InARP, ...).
    Other(u16),
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<T>(T);

impl<T: AsRef<[u8]>> Arp<T> {
    /// Takes `bytes` (which may be longer: Ethernet pads) unless they are short or for another
    /// kind of address.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        if b.len() < LEN {
            return Err(Malformed::Truncated(Layer::Arp));
        }
        let ethernet_ipv4 = be16(b, field::HARDWARE) == 1
            && be16(b, field::PROTOCOL) == EtherType::IPV4.0
            && be16(b, field::LENGTHS) == 0x0604;
        if ethernet_ipv4 {
            Ok(Arp(bytes))
        } else {
            Err(Malformed::Version(Layer::Arp))
        }
    }

    /// Request, reply or other.
    pub fn operation(&self) -> Operation {
        match be16(self.0.as_ref(), field::OPERATION) {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => Operation::Other(other),
        }
    }

    /// The sender's MAC address.
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(array(self.0.as_ref(), field::SENDER_MAC))
    }

    /// The sender's IPv4 address; 0.0.0.0 in a probe (RFC 5227).
    pub fn sender_ip(&self) -> Ipv4Addr {
        array::<4>(self.0.as_ref(), field::SENDER_IP).into()
    }

    /// The target's MAC address; meaningless in a request.
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(array(self.0.as_ref(), field::TARGET_MAC))
    }

    /// The target's IPv4 address.
    pub fn target_ip(&self) -> Ipv4Addr {
        array::<4>(self.0.as_ref(), field::TARGET_IP).into()
    }
}

/// The bytes of an ARP packet for IPv4 over Ethernet.
pub fn packet(
    operation: Operation,
    sender: (MacAddr, Ipv4Addr),
    target: (MacAddr, Ipv4Addr),
) -> [u8; LEN] {
    let mut out = [0; LEN];
    put16(&mut out, field::HARDWARE, 1);
    put16(&mut out, field::PROTOCOL, EtherType::IPV4.0);
    put16(&mut out, field::LENGTHS, 0x0604);
    let operation = match operation {
        Operation::Request => 1,
        Operation::Reply => 2,
        Operation::Other(other) => other,
    };
    put16(&mut out, field::OPERATION, operation);
    out[field::SENDER_MAC..field::SENDER_IP].copy_from_slice(&sender.0.0);
    out[field::SENDER_IP..field::TARGET_MAC].copy_from_slice(&sender.1.octets());
    out[field::TARGET_MAC..field::TARGET_IP].copy_from_slice(&target.0.0);
    out[field::TARGET_IP..].copy_from_slice(&target.1.octets());
    out
}

impl<T: AsRef<[u8]>> fmt::Display for Arp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sender, target) = (self.sender_ip(), self.target_ip());
        match self.operation() {
            Operation::Request => write!(f, "ARP who has {target}, tell {sender}"),
            Operation::Reply => write!(f, "ARP {sender} is at {}", self.sender_mac()),
            Operation::Other(op) => write!(f, "ARP operation {op} from {sender}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    const REQUEST: [u8; 28] = [
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ];

    #[test]
    fn reads_request_and_reply() {
        let arp = Arp::new_checked(&REQUEST[..]).unwrap();
        assert_eq!(arp.to_string(), "ARP who has 10.0.0.2, tell 10.0.0.1");
        assert_eq!(arp.target_mac(), MacAddr::default());
        let mut reply = REQUEST;
        reply[7] = 2;
        let arp = Arp::new_checked(&reply[..]).unwrap();
        assert_eq!(arp.to_string(), "ARP 10.0.0.1 is at 02:00:00:00:00:09");
    }

    #[test]
    fn writes_what_it_reads() {
        let (sender, target) = (MacAddr::local(9), MacAddr::default());
        let written = packet(
            Operation::Request,
            (sender, Ipv4Addr::new(10, 0, 0, 1)),
            (target, Ipv4Addr::new(10, 0, 0, 2)),
        );
        assert_eq!(written, REQUEST);
    }

    #[test]
    fn other_address_kinds_are_refused() {
        assert_eq!(
            Arp::new_checked(&REQUEST[..27]).unwrap_err(),
            Malformed::Truncated(Layer::Arp)
        );
        for at in [1, 3, 4, 5] {
            let mut bytes = REQUEST;
            bytes[at] ^= 0x10;
            assert_eq!(
                Arp::new_checked(&bytes[..]).unwrap_err(),
                Malformed::Version(Layer::Arp)
            );
        }
    }

    proptest! {
        #[test]
        fn never_panics(tail: Vec<u8>) {
            let bytes = [&REQUEST[..6], &tail].concat();
            let _ = Arp::new_checked(&bytes).map(|arp| arp.to_string());
        }
    }
}
