//! `linerate router` between hosts in different networks, beside ping, traceroute, FRR, scapy, tshark
//! and the kernel's own forwarding.
//!
//! Read [`site`] for the hosts and wires, [`instance`] for how the router is run and asked, [`frame`]
//! for packets made by hand, [`compare`] for two routers and the same packets. The other modules are the
//! scenarios.

mod compare;
mod frame;
mod instance;
mod mix;
mod site;
mod stream;

mod asked;
mod balance;
mod basic;
mod bfd;
mod fragments;
mod frr;
mod frr_fpm;
mod host;
mod joined;
mod live;
mod multipath;
mod neighbours;
mod operation;
mod oracle;
mod policy;
mod ports;
mod privileges;
mod segments;
pub(crate) mod service;
mod trunk;
