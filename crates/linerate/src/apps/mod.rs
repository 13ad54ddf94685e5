//! The subcommands, one file or folder each.

pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod l2fwd;
pub(crate) mod l3fwd;
mod netns;
pub(crate) mod pktgen;
pub(crate) mod plan;
pub(crate) mod ports;
pub(crate) mod router;
pub(crate) mod rss;
pub(crate) mod runtime;
