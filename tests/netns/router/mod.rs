//! `linerate router` between hosts in different networks, beside ping, traceroute, FRR, scapy,
//! tshark and the kernel's own forwarding.
//!
//! Read [`site`] for the hosts and wires, [`instance`] for running the router and `ctl`,
//! [`compare`] for two routers with the same packets. The other modules are the scenarios.

mod compare;
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
mod gateway;
mod host;
mod joined;
mod live;
mod multipath;
mod neighbours;
mod operation;
mod oracle;
mod policy;
mod ports;
pub(crate) mod privileges;
mod segments;
pub(crate) mod service;
mod trunk;

use linerate_testkit::harness::Test;

pub(crate) const TESTS: &[&[Test]] = &[
    asked::TESTS,
    balance::TESTS,
    basic::TESTS,
    bfd::TESTS,
    fragments::TESTS,
    frr::TESTS,
    frr_fpm::TESTS,
    gateway::TESTS,
    gateway::balancer::TESTS,
    gateway::classes::TESTS,
    gateway::conntrack::TESTS,
    gateway::load::TESTS,
    gateway::outside::TESTS,
    gateway::requirements::TESTS,
    gateway::returns::TESTS,
    gateway::scans::TESTS,
    gateway::servers::TESTS,
    gateway::tayga::TESTS,
    host::TESTS,
    joined::TESTS,
    live::TESTS,
    multipath::TESTS,
    neighbours::TESTS,
    operation::TESTS,
    oracle::TESTS,
    policy::TESTS,
    ports::TESTS,
    privileges::TESTS,
    segments::TESTS,
    trunk::TESTS,
];
