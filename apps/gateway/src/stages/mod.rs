//! The gateway's own stages of the path.

pub mod flows;
