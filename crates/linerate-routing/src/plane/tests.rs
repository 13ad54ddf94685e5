//! One test for each clause that forwarding keeps, named by it: `docs/rfc/forwarding.md` lists
//! them.

#![allow(clippy::unwrap_used)]

mod clauses4;
mod clauses6;
mod features;
mod fragments;
mod links;
mod lists;
mod reasons;
mod slow;
mod watching;
