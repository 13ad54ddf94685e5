//! What workers know of the configuration: read-only, exchanged as a whole on reload.

use std::net::IpAddr;
use std::sync::Arc;

use linerate_wire::MacAddr;

use super::acl::AccessList;
use crate::apps::router::model::{Cidr, InterfaceId, Vrf};

/// One generation of the configuration, as the data plane needs it. Two are equal that share their access
/// lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// By [`InterfaceId`].
    pub(crate) interfaces: Vec<Interface>,
    /// By number of the receiving port: which interface a frame came in on.
    pub(crate) ports: Vec<PortMap>,
    /// The access lists that interfaces name by their place here.
    pub(crate) acls: Vec<Arc<AccessList>>,
}

/// What a loopback has in place of the number of a port.
pub(crate) const NO_PORT: u16 = u16::MAX;

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
pub(crate) struct PortMap {
    /// Of frames without a tag.
    pub(crate) untagged: Option<InterfaceId>,
    /// By VLAN number, sorted.
    pub(crate) vlans: Vec<(u16, InterfaceId)>,
}

impl Interface {
    /// Whether it has addresses, and no wire.
    pub(crate) fn is_loopback(&self) -> bool {
        self.port == NO_PORT
    }
}

/// A layer-3 interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Number of the port, or [`NO_PORT`].
    pub(crate) port: u16,
    /// 802.1Q VLAN number, 1 to 4094; `None`: untagged.
    pub(crate) vlan: Option<u16>,
    pub(crate) vrf: Vrf,
    pub(crate) mac: MacAddr,
    /// Largest IP packet in bytes.
    pub(crate) mtu: u16,
    pub(crate) addresses: Vec<Cidr>,
    /// Those of them that the kernel has, on the twin: its detection of duplicates has passed them.
    pub(crate) verified: Vec<IpAddr>,
    /// Number of the port of its TAP twin in the kernel.
    pub(crate) twin: Option<u16>,
    pub(crate) urpf: Urpf,
    /// Whether ARP requests and neighbour solicitations for addresses that are routed elsewhere are
    /// answered (RFC 1027, RFC 4861 7.2.8).
    pub(crate) proxy: bool,
    /// Whether ICMP redirects are sent (RFC 1812 5.2.7.2).
    pub(crate) redirects: bool,
    /// Whether fragments that come in are put together before anything is decided.
    pub(crate) reassemble: bool,
    /// Access list of what comes in, and of what goes out: its place among the configuration's.
    pub(crate) acl_in: Option<u16>,
    pub(crate) acl_out: Option<u16>,
    /// Most that may come in.
    pub(crate) policer: Option<Policer>,
    /// Router advertisements (RFC 4861 6.2), if any are sent.
    pub(crate) advertise: Option<Advertise>,
}

/// Unicast reverse path forwarding (RFC 3704): is the source reachable, and by this interface?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Urpf {
    #[default]
    Off,
    /// Some route leads to the source, the default route aside.
    Loose,
    /// The best route to the source leaves by the interface it came in on.
    Strict,
}

/// A token bucket on bytes (RFC 2697's committed part).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policer {
    /// Bits a second, of IP packets.
    pub(crate) rate_bps: u64,
    /// Bytes that may come at once.
    pub(crate) burst_bytes: u64,
}

/// What router advertisements say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertise {
    /// Seconds between two unsolicited ones, at most.
    pub(crate) interval_s: u16,
    /// Seconds for which hosts may use this router by default; 0: they may not.
    pub(crate) lifetime_s: u16,
    /// Whether hosts ask DHCPv6 for addresses (M), or for the rest (O).
    pub(crate) managed: bool,
    pub(crate) other: bool,
}
