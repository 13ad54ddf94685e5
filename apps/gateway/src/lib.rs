//! `linerate gateway`: a router whose fast workers know flows.
//!
//! | room | what |
//! |---|---|
//! | [`dispatch`] | which worker has a flow, and how packets and state get there |
//! | [`track`] | connection tracking: what may follow what in a flow |
//! | [`nat`] | translation of addresses: pools, ports, mappings, headers |
//! | [`policy`] | zones, and which flows may begin between them |
#![forbid(unsafe_code)]

pub mod dispatch;
pub mod nat;
pub mod policy;
pub mod track;
