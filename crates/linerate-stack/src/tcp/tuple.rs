//! The end points of a connection, for code that is the same for IPv4 and IPv6.
//!
//! A connection's key is the [`FlowKey4`] or [`FlowKey6`] of the packets that *arrive*: source is
//! the remote end, destination the local one. So the key that the burst parser finds is the key
//! that is looked up, and its first bytes are what the NIC hashes for it.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use linerate_tables::flow;
use linerate_wire::flow::{FlowKey, FlowKey4, FlowKey6};
use linerate_wire::protocol;

/// A connection's 4-tuple and zone, as a key of `K` bytes: source remote, destination local.
pub trait Tuple<const K: usize>: flow::FlowKey<K> {
    /// The key without its protocol and the byte that is always zero.
    type Compact: Copy;

    /// Segment sizes that a SYN cookie can tell apart, ascending, in bytes.
    const MSS_CLASSES: [u16; 8];

    /// The key in fewer bytes.
    fn compact(&self) -> Self::Compact;
    /// The key of TCP that [`compact`](Self::compact) was given.
    fn expand(compact: Self::Compact) -> Self;

    /// The local end's address and port.
    fn local(&self) -> SocketAddr;
    /// The remote end's address and port.
    fn remote(&self) -> SocketAddr;
    /// The same remote end and local address, and another local port.
    #[must_use]
    fn with_local_port(self, port: u16) -> Self;
    /// The same without ports: the pair of hosts.
    #[must_use]
    fn without_ports(self) -> Self;
}

/// The key of a connection in zone 0; `None` if one end has IPv4 and the other IPv6.
///
/// ```
/// use linerate_stack::tcp::tuple::{self, Tuple};
/// use linerate_wire::flow::FlowKey;
/// let (ours, theirs) = ("192.0.2.1:80".parse()?, "198.51.100.7:40000".parse()?);
/// let Some(FlowKey::V4(key)) = tuple::of(ours, theirs) else {
///     panic!("both are IPv4");
/// };
/// assert_eq!((key.local(), key.remote()), (ours, theirs));
/// assert_eq!(key.src_port(), 40_000); // packets that arrive come from there
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn of(local: SocketAddr, remote: SocketAddr) -> Option<FlowKey> {
    match (local, remote) {
        (SocketAddr::V4(local), SocketAddr::V4(remote)) => Some(FlowKey::V4(of4(local, remote))),
        (SocketAddr::V6(local), SocketAddr::V6(remote)) => Some(FlowKey::V6(of6(&local, &remote))),
        _ => None,
    }
}

/// The key of an IPv4 connection in zone 0.
pub fn of4(local: SocketAddrV4, remote: SocketAddrV4) -> FlowKey4 {
    FlowKey4::new(
        remote.ip().octets(),
        local.ip().octets(),
        remote.port(),
        local.port(),
        protocol::TCP,
    )
}

/// The key of an IPv6 connection in zone 0. Scopes and flow labels are no part of it.
pub fn of6(local: &SocketAddrV6, remote: &SocketAddrV6) -> FlowKey6 {
    FlowKey6::new(
        remote.ip().octets(),
        local.ip().octets(),
        remote.port(),
        local.port(),
        protocol::TCP,
    )
}

impl Tuple<16> for FlowKey4 {
    type Compact = [u8; 14];

    // 48 is the least that Linux sends whatever a peer says; 536 is the default of RFC 9293 3.7.1;
    // then what tunnels and links of 1500 and of 9000 bytes leave.
    const MSS_CLASSES: [u16; 8] = [48, 536, 1200, 1300, 1360, 1440, 1460, 8960];

    #[inline(always)]
    fn compact(&self) -> [u8; 14] {
        without_protocol(&self.0)
    }

    #[inline(always)]
    fn expand(compact: [u8; 14]) -> Self {
        Self(with_protocol(&compact))
    }

    fn local(&self) -> SocketAddr {
        (IpAddr::V4(self.dst()), self.dst_port()).into()
    }

    fn remote(&self) -> SocketAddr {
        (IpAddr::V4(self.src()), self.src_port()).into()
    }

    #[inline(always)]
    fn with_local_port(mut self, port: u16) -> Self {
        self.0[10..12].copy_from_slice(&port.to_be_bytes());
        self
    }

    #[inline(always)]
    fn without_ports(mut self) -> Self {
        self.0[8..12].fill(0);
        self
    }
}

impl Tuple<40> for FlowKey6 {
    type Compact = [u8; 38];

    // 1220 is the default of RFC 9293 3.7.1; the rest as for IPv4, with 20 bytes more of header.
    const MSS_CLASSES: [u16; 8] = [48, 536, 1220, 1300, 1360, 1420, 1440, 8940];

    #[inline(always)]
    fn compact(&self) -> [u8; 38] {
        without_protocol(&self.0)
    }

    #[inline(always)]
    fn expand(compact: [u8; 38]) -> Self {
        Self(with_protocol(&compact))
    }

    fn local(&self) -> SocketAddr {
        (IpAddr::V6(self.dst()), self.dst_port()).into()
    }

    fn remote(&self) -> SocketAddr {
        (IpAddr::V6(self.src()), self.src_port()).into()
    }

    #[inline(always)]
    fn with_local_port(mut self, port: u16) -> Self {
        self.0[34..36].copy_from_slice(&port.to_be_bytes());
        self
    }

    #[inline(always)]
    fn without_ports(mut self) -> Self {
        self.0[32..36].fill(0);
        self
    }
}

/// A key's addresses, ports and zone, without the protocol and the zero between them.
#[inline(always)]
fn without_protocol<const K: usize, const C: usize>(key: &[u8; K]) -> [u8; C] {
    const { assert!(C + 2 == K) };
    std::array::from_fn(|at| key[if at < C - 2 { at } else { at + 2 }])
}

/// The opposite of [`without_protocol`].
#[inline(always)]
fn with_protocol<const C: usize, const K: usize>(compact: &[u8; C]) -> [u8; K] {
    const { assert!(C + 2 == K) };
    let mut key = [0; K];
    key[..C - 2].copy_from_slice(&compact[..C - 2]);
    key[C - 2] = protocol::TCP;
    key[C..].copy_from_slice(&compact[C - 2..]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_do_not_mix() {
        let (v4, v6) = (
            "192.0.2.1:80".parse().unwrap(),
            "[2001:db8::1]:80".parse().unwrap(),
        );
        assert_eq!((of(v4, v6), of(v6, v4)), (None, None));
        assert!(matches!(of(v6, v6), Some(FlowKey::V6(_))));
    }

    #[test]
    fn classes_ascend() {
        assert!(FlowKey4::MSS_CLASSES.is_sorted() && FlowKey6::MSS_CLASSES.is_sorted());
    }

    proptest! {
        #[test]
        fn keys_keep_their_end_points(
            local: [u8; 16],
            remote: [u8; 16],
            ports: (u16, u16),
            zone: u16,
        ) {
            let v6 = FlowKey6::new(remote, local, ports.1, ports.0, protocol::TCP).in_zone(zone);
            prop_assert_eq!(v6.local(), SocketAddr::from((local, ports.0)));
            prop_assert_eq!(v6.remote(), SocketAddr::from((remote, ports.1)));
            prop_assert_eq!(FlowKey6::expand(v6.compact()), v6);
            let moved = v6.with_local_port(7);
            prop_assert_eq!((moved.local().port(), moved.remote()), (7, v6.remote()));
            let hosts = FlowKey6::new(remote, local, 0, 0, protocol::TCP).in_zone(zone);
            prop_assert_eq!(v6.without_ports(), hosts);

            let four = |wide: [u8; 16]| [wide[0], wide[1], wide[2], wide[3]];
            let (local, remote) = (four(local), four(remote));
            let v4 = FlowKey4::new(remote, local, ports.1, ports.0, protocol::TCP).in_zone(zone);
            prop_assert_eq!(v4.local(), SocketAddr::from((local, ports.0)));
            prop_assert_eq!(v4.remote(), SocketAddr::from((remote, ports.1)));
            prop_assert_eq!(FlowKey4::expand(v4.compact()), v4);
            let moved = v4.with_local_port(7);
            prop_assert_eq!((moved.local().port(), moved.remote()), (7, v4.remote()));
            let hosts = FlowKey4::new(remote, local, 0, 0, protocol::TCP).in_zone(zone);
            prop_assert_eq!(v4.without_ports(), hosts);
        }
    }
}
