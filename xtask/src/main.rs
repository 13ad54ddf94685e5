//! The repository's own tasks.
#![forbid(unsafe_code)]

fn main() {}
