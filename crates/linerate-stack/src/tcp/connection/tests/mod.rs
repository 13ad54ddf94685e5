//! Two connections over a link in virtual time: each rule by its clause.
#![allow(clippy::unwrap_used)]

mod link;
mod transfer;
