//! The data plane: what workers do with packets.

pub(crate) mod hops;
pub(crate) mod settings;
