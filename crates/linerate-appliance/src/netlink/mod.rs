//! The kernel's network configuration, as far as ports and host interfaces need it: a
//! [`socket`] for routing netlink, and what makes a [host interface](twin) look like its port.

pub mod socket;
pub mod twin;
