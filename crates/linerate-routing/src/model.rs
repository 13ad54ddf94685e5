//! Types that all parts of a router share: interfaces, VRFs, addresses and prefixes.

pub use linerate_appliance::address::{Cidr, Prefix};

/// A layer-3 interface by its place in the configuration: a port, or one VLAN of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u16);

/// The kernel's table of the default VRF: `main`.
pub const MAIN_TABLE: u32 = 254;

/// A virtual routing table by its place in the configuration; 0 is the default one.
pub type Vrf = u32;
