//! Routes and forwarding: the parts that a router is made of.
//!
//! | room | what |
//! |---|---|
//! | [`model`] | types of routes, interfaces and VRFs |
//! | [`plane`] | the path of packets through a worker |
//! | [`worker`] | fast and slow workers |
//! | [`rib`] | routes of all sources, the best of them, and the tables that follow |
//! | [`netlink`], [`fpm`] | the kernel and FRR as sources ([`feed`]: what they have in common) |
#![forbid(unsafe_code)]

pub mod feed;
pub mod fpm;
pub mod model;
pub mod netlink;
pub mod plane;
pub mod rib;
pub mod worker;
