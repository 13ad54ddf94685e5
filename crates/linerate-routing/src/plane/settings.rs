//! The configuration as workers see it: read-only, exchanged as a whole on reload.

use std::net::IpAddr;
use std::sync::Arc;

use linerate_wire::MacAddr;

use super::acl::AccessList;
use crate::model::{Cidr, InterfaceId, Vrf};

/// One generation of the configuration, as the data plane needs it. Two with the same values are
/// equal only if they share their access lists.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// By [`InterfaceId`].
    pub interfaces: Vec<Interface>,
    /// By number of the receiving port: which interface a frame came in on.
    pub ports: Vec<PortMap>,
    /// The access lists that interfaces name by their place here.
    pub acls: Vec<Arc<AccessList>>,
}

/// Port number of a loopback.
pub const NO_PORT: u16 = u16::MAX;

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        let shared = |(a, b): (&Arc<AccessList>, &Arc<AccessList>)| Arc::ptr_eq(a, b);
        self.interfaces == other.interfaces
            && self.ports == other.ports
            && self.acls.len() == other.acls.len()
            && self.acls.iter().zip(&other.acls).all(shared)
    }
}

/// The interfaces of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortMap {
    /// Of frames without a tag.
    pub untagged: Option<InterfaceId>,
    /// By VLAN number, sorted.
    pub vlans: Vec<(u16, InterfaceId)>,
}

impl Interface {
    /// Whether it has addresses and no port.
    pub fn is_loopback(&self) -> bool {
        self.port == NO_PORT
    }
}

/// A layer-3 interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name in the configuration and in output.
    pub name: String,
    /// Number of the port, or [`NO_PORT`].
    pub port: u16,
    /// 802.1Q VLAN number, 1 to 4094; `None`: untagged.
    pub vlan: Option<u16>,
    /// The VRF that it is in.
    pub vrf: Vrf,
    /// Its MAC address, which frames are sent from.
    pub mac: MacAddr,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Addresses with the lengths of their networks.
    pub addresses: Vec<Cidr>,
    /// Those of them that the kernel has, on the host interface: its detection of duplicates has
    /// passed them.
    pub verified: Vec<IpAddr>,
    /// Number of the port of its TAP host interface in the kernel.
    pub host_interface: Option<u16>,
    /// Check of the sources of received packets.
    pub urpf: Urpf,
    /// Whether ARP requests and neighbour solicitations for addresses that are routed elsewhere are
    /// answered (RFC 1027, RFC 4861 7.2.8).
    pub proxy: bool,
    /// First and last addresses, besides its own, for which it answers such requests as if they
    /// were: translation leads them on.
    pub answered: Vec<(IpAddr, IpAddr)>,
    /// Whether ICMP redirects are sent (RFC 1812 5.2.7.2).
    pub redirects: bool,
    /// Whether fragments that come in are put together before anything is decided.
    pub reassemble: bool,
    /// Access list of what comes in: its index among the configuration's.
    pub acl_in: Option<u16>,
    /// Access list of what goes out: its index among the configuration's.
    pub acl_out: Option<u16>,
    /// Rate limit of what comes in.
    pub policer: Option<Policer>,
    /// Router advertisements (RFC 4861 6.2), if any are sent.
    pub advertise: Option<Advertise>,
}

/// Unicast reverse path forwarding (RFC 3704): is the source reachable, and by this interface?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urpf {
    /// No check.
    #[default]
    Off,
    /// Some route leads to the source, the default route aside.
    Loose,
    /// The best route to the source leaves by the interface it came in on.
    Strict,
}

/// A token bucket on bytes (RFC 2697's committed part).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bits a second, of IP packets.
    pub rate_bps: u64,
    /// Bytes that may come at once.
    pub burst_bytes: u64,
}

/// What router advertisements say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// Seconds between two unsolicited ones, at most.
    pub interval_s: u16,
    /// Seconds for which hosts may use this router by default; 0: they may not.
    pub lifetime_s: u16,
    /// Whether hosts ask DHCPv6 for addresses (M).
    pub managed: bool,
    /// Whether hosts ask DHCPv6 for other settings (O).
    pub other: bool,
}
