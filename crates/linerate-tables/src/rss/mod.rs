//! Receive side scaling: the hash, the NICs that use it, and its inverse.

mod affine;
mod inverse;
mod port_set;
mod ports;
mod reta;
mod seeded;
mod toeplitz;

pub use affine::AffineHash;
pub use inverse::{Inverse, PortField};
pub use port_set::PortSet;
pub use ports::Ports;
pub use reta::Reta;
pub use toeplitz::{
    Fields, LONGEST_KEY_BYTES, MICROSOFT_KEY, SHORTEST_KEY_BYTES, SYMMETRIC_KEY, Toeplitz,
};
