//! The kernel's network configuration, as far as ports and host interfaces need it: a [`socket`]
//! for routing netlink, and the configuration of a [host interface](host_interface) like its port.

pub mod host_interface;
pub mod socket;
