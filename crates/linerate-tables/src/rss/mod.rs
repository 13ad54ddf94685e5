//! Receive side scaling: the hash, the NICs that use it, and its inverse.
//!
//! A NIC hashes a packet's addresses and ports by Toeplitz; the low bits of the hash index a
//! redirection table (RETA) whose entry is the queue. The same in software: [`Toeplitz`] for bursts
//! and single tuples, [`Reta`], and [`Model`], which is both set up as one of the [`PROFILES`] of
//! real NICs is. Read [`Inverse`] for the other direction: which ports land on a queue.
//!
//! # The mathematics, on one page
//!
//! Let `x` be the tuple's bits `x_0 ... x_(n-1)`, first bit first, and `k` the key's bits. Over
//! GF(2), where adding is XOR, the Toeplitz hash has the bits
//!
//! ```text
//! h_j = sum over i of x_i k_(i+j),   j = 0 ... 31      that is   h = M x,  M_(j,i) = k_(i+j)
//! ```
//!
//! so `M` is constant along its diagonals, which is what makes a matrix Toeplitz. Linearity is used
//! three times:
//!
//! - *Tables.* `M x` is the sum of what each byte adds, one of 256 values.
//! - *Bit matrices.* `M` falls into 8 x 8 blocks, and the block from byte `i` to byte `j` depends
//!   on `i + j` only: a tuple of `n` bytes needs `n + 3` blocks, each used up to four times. See
//!   `simd/rss.rs`.
//! - *The inverse.* Fix all of the tuple but a port `p` of 16 bits. Then `h = M x' + A p`, with
//!   `x'` the tuple without the port and `A` the port's 16 columns of `M`. Only the `r` low bits of
//!   `h` choose a RETA entry `s`, so `A` has `r` rows that matter, and the ports that reach `s` are
//!   the solutions of `A p = s + M x'`. Gaussian elimination of `A` does not depend on the tuple.
//!   With `A` of rank `k` there are `2^k` reachable entries, each by exactly `2^(16-k)` ports: one
//!   solution, plus each vector of the kernel. For a RETA of 128 and the keys that drivers ship,
//!   `k = r = 7`: every entry is reached by 512 ports, and a queue with an eighth of the entries by
//!   an eighth of all ports.
//!
//! None of this asks what the key is, nor whether the hash is Toeplitz: `h = M x + c` suffices, so
//! CRCs and NICs that start from another value than zero are covered ([`AffineHash`]). Only a hash
//! that is not affine is not: it is refused, with an input that shows it.

mod affine;
mod frames;
mod inverse;
mod model;
mod port_set;
mod ports;
mod profile;
mod reta;
mod symmetry;
mod toeplitz;

pub use affine::AffineHash;
pub use frames::FrameHash;
pub use inverse::{Inverse, PortField};
pub use model::{Flow, Model};
pub use port_set::PortSet;
pub use ports::Ports;
pub use profile::{PROFILES, PortHash, Profile};
pub use reta::Reta;
pub use symmetry::Symmetry;
pub use toeplitz::{
    Fields, LONGEST_KEY_BYTES, MICROSOFT_KEY, SHORTEST_KEY_BYTES, SYMMETRIC_KEY, Toeplitz,
};
