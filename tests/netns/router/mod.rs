//! `linerate router` between hosts in different networks, beside ping, traceroute, FRR, scapy, tshark
//! and the kernel's own forwarding.
//!
//! Read [`site`] for the hosts and wires, [`instance`] for how the router is run and asked, [`frame`]
//! for packets made by hand. The other modules are the scenarios.

mod frame;
mod instance;
mod mix;
mod site;
mod stream;

mod basic;
mod fragments;
mod frr;
mod multipath;
mod operation;
mod oracle;
mod policy;
mod privileges;
mod segments;
