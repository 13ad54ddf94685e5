//! The subcommands, one file or folder each.

pub(crate) mod doctor;
pub(crate) mod plan;
