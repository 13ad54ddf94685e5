//! The subcommands, one file or folder each.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod plan;
pub(crate) mod ports;
