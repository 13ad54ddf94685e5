//! The `linerate` binary: a table of subcommands.
#![forbid(unsafe_code)]

fn main() {}
