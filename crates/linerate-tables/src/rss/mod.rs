//! Receive side scaling: the hash, the NICs that use it, and its inverse.

mod affine;
mod seeded;
mod toeplitz;

pub use affine::AffineHash;
pub use toeplitz::{
    Fields, LONGEST_KEY_BYTES, MICROSOFT_KEY, SHORTEST_KEY_BYTES, SYMMETRIC_KEY, Toeplitz,
};
