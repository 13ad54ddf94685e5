//! The kernel's network configuration, as far as ports and host interfaces need it: a [`socket`]
//! for routing netlink, and what makes a [host interface](host_interface) look like its port.

pub mod host_interface;
pub mod socket;
