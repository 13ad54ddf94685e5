//! An interface as the fast path sees it: the part of [`Interface`] that loops over bursts look at.

use linerate_wire::MacAddr;

use super::features::Features;
use super::settings::Interface;
use crate::model::{Cidr, Prefix, Vrf};

/// What the loops know of an interface.
#[derive(Debug)]
pub(super) struct Face {
    pub(super) mac: MacAddr,
    pub(super) port: u16,
    /// The tag of its frames; 0: none.
    pub(super) tci: u16,
    pub(super) vrf: Vrf,
    /// Whether there is anything in `features.rs` to do for what comes in.
    pub(super) asks: bool,
    /// Whether an access list looks at what goes out.
    pub(super) has_acl_out: bool,
    pub(super) redirects: bool,
    /// Its networks, first address and mask: whose source is in one may have to be redirected. None
    /// where there are no redirects.
    pub(super) near4: Vec<(u32, u32)>,
    pub(super) near6: Vec<(u128, u128)>,
}

impl Face {
    pub(super) fn new(interface: &Interface) -> Self {
        let (mut near4, mut near6) = (Vec::new(), Vec::new());
        let networks = interface.addresses.iter().map(Cidr::network);
        for network in networks.filter(|_| interface.redirects) {
            match network {
                Prefix::V4(prefix) => {
                    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.len()));
                    near4.push((prefix.first(), mask.unwrap_or(0)));
                }
                Prefix::V6(prefix) => {
                    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.len()));
                    near6.push((prefix.first(), mask.unwrap_or(0)));
                }
            }
        }
        Self {
            near4,
            near6,
            mac: interface.mac,
            port: interface.port,
            tci: interface.vlan.unwrap_or(0),
            vrf: interface.vrf,
            asks: Features::are_asked(interface),
            has_acl_out: interface.acl_out.is_some(),
            redirects: interface.redirects,
        }
    }

    /// Whether an address is on a network of this interface.
    #[inline]
    pub(super) fn is_near6(&self, address: u128) -> bool {
        self.near6
            .iter()
            .any(|&(first, mask)| address & mask == first)
    }
}
