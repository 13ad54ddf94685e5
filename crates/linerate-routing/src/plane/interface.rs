//! An interface as the loops over bursts see it: the part of [`Interface`] that they need, and what
//! else control installs for them.

use std::sync::Arc;

use linerate_wire::MacAddr;

use super::counters::Counters;
use super::local::LocalAddresses;
use super::settings::{Interface, Urpf};
use crate::model::{Cidr, InterfaceId, Prefix, Vrf};

/// What control installs for all stages, besides the settings themselves.
#[derive(Default)]
pub(super) struct Installed {
    /// By number.
    pub(super) interfaces: Vec<InterfaceState>,
    /// By VRF.
    pub(super) local: Vec<LocalAddresses>,
    /// Whether an access list of any interface looks at what goes out.
    pub(super) any_acl_out: bool,
    pub(super) counters: Arc<Counters>,
}

impl Installed {
    /// Whether there is an interface of that number.
    #[inline(always)]
    pub(super) fn has(&self, id: InterfaceId) -> bool {
        usize::from(id.0) < self.interfaces.len()
    }
}

/// Which of the stages an interface asks for that not all need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Fragments are put together.
    pub reassembly: bool,
    /// What comes in is limited to a rate.
    pub policer: bool,
    /// An access list looks at what comes in.
    pub acl_in: bool,
    /// Sources are looked up.
    pub reverse_path: bool,
}

impl Asked {
    fn by(interface: &Interface) -> Self {
        Self {
            reassembly: interface.reassemble,
            policer: interface.policer.is_some(),
            acl_in: interface.acl_in.is_some(),
            reverse_path: interface.urpf != Urpf::Off,
        }
    }
}

/// What the loops know of an interface.
#[derive(Debug)]
pub struct InterfaceState {
    pub(super) mac: MacAddr,
    pub(super) port: u16,
    /// The tag of its frames; 0: none.
    pub(super) tci: u16,
    /// The VRF that it is in.
    pub vrf: Vrf,
    /// Which stages it asks for.
    pub asked: Asked,
    /// Whether it asks for any of these stages.
    pub asks: bool,
    /// Whether an access list looks at what goes out.
    pub(super) has_acl_out: bool,
    pub(super) redirects: bool,
    /// Its networks, first address and mask: senders in one may get redirects. Empty where
    /// redirects are off.
    pub(super) near4: Vec<(u32, u32)>,
    pub(super) near6: Vec<(u128, u128)>,
}

impl InterfaceState {
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
        let asked = Asked::by(interface);
        Self {
            near4,
            near6,
            mac: interface.mac,
            port: interface.port,
            tci: interface.vlan.unwrap_or(0),
            vrf: interface.vrf,
            asked,
            asks: asked != Asked::default(),
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
