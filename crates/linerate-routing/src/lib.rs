//! Routes and what forwards by them: what a router is made of.
//!
//! | room | what |
//! |---|---|
//! | [`model`] | what routes, interfaces and VRFs are called |
//! | [`plane`] | what workers do with packets |
//! | [`worker`] | which worker does it |
//! | [`rib`] | routes of all sources, the best of them, and the tables that follow |
//! | [`netlink`], [`fpm`] | the kernel and FRR as sources ([`feed`]: what they have in common) |
#![forbid(unsafe_code)]
#![allow(missing_docs)]

pub mod feed;
pub mod fpm;
pub mod model;
pub mod netlink;
pub mod plane;
pub mod rib;
pub mod worker;
