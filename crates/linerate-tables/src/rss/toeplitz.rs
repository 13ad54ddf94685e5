//! The Toeplitz hash: one tuple, or a burst of them.

use super::AffineHash;
use crate::TableError;
use crate::simd::rss::{Kernel, Parts, rows};
use linerate_core::env::Isa;
use linerate_wire::flow::{FlowKey4, FlowKey6};

/// Fewest key bytes: an IPv6 4-tuple and a window of 32 bits behind its last bit.
pub const SHORTEST_KEY_BYTES: usize = 40;
/// Most key bytes.
pub const LONGEST_KEY_BYTES: usize = 256;

/// The key of Microsoft's RSS specification and verification suite, which many drivers ship.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key of period 16, so that a flow and its reverse hash alike (Woo and Park, "Scalable TCP
/// session monitoring with symmetric receive-side scaling", 2012). The hash then is 16 bits, twice.
pub const SYMMETRIC_KEY: [u8; 40] = {
    let mut key = [0x6d; 40];
    let mut i = 1;
    while i < key.len() {
        key[i] = 0x5a;
        i += 2;
    }
    key
};

/// Which bytes of a [`FlowKey4`] or [`FlowKey6`] are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Source and destination address: 8 or 32 bytes.
    Addresses,
    /// And source and destination port: 12 or 36 bytes.
    AddressesAndPorts,
}

/// The Toeplitz hash by one key, with a kernel for this CPU.
///
/// Tuples are bytes in network order: source address, destination address, source port, destination
/// port; the first bit hashed is the most significant one of the first byte. Memory: about 1 KiB
/// per byte of key. A hash takes one table look-up per byte; a burst takes a fifth of that or less
/// where the CPU has carry-less products or bit matrices.
///
/// ```
/// use linerate_tables::rss::{Fields, MICROSOFT_KEY, Toeplitz};
/// use linerate_wire::flow::FlowKey4;
/// let rss = Toeplitz::new(&MICROSOFT_KEY)?;
/// let flow = FlowKey4::new([66, 9, 149, 187], [161, 142, 100, 80], 2794, 1766, 6);
/// assert_eq!(rss.hash(&flow.0[..12]), 0x51cc_c178);
/// let mut hashes = [0; 2];
/// rss.flows4(Fields::Addresses, &[flow, flow.reversed()], &mut hashes);
/// assert_eq!(hashes[0], 0x323e_8fc2);
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Toeplitz {
    key: Box<[u8]>,
    parts: Parts,
    kernel: Kernel,
}

impl Toeplitz {
    /// The hash by `key`, 40 to 256 bytes: NICs take 40 or 52.
    ///
    /// # Errors
    /// [`TableError::RssKeyBytes`] with the lengths that would do.
    pub fn new(key: &[u8]) -> Result<Self, TableError> {
        Self::with_start(key, 0)
    }

    /// The same with `start` added to every hash, as by NICs whose sum does not begin at zero.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_start(key: &[u8], start: u32) -> Result<Self, TableError> {
        if !(SHORTEST_KEY_BYTES..=LONGEST_KEY_BYTES).contains(&key.len()) {
            return Err(TableError::RssKeyBytes { given: key.len() });
        }
        let window = |bit: usize| {
            let byte = |i: usize| u64::from(key[bit / 8 + i]);
            let five = (0..5).fold(0, |bits, i| bits << 8 | byte(i));
            (five >> (8 - bit % 8)) as u32
        };
        let affine = AffineHash::from_columns(key.len() - 4, start, window)?;
        Ok(Self {
            key: key.into(),
            parts: Parts::new(key, affine),
            kernel: Kernel::pick(Isa::detect()),
        })
    }

    /// The same on a lower instruction set, for tests and benchmarks; one that the CPU lacks is
    /// lowered.
    pub fn on(mut self, isa: Isa) -> Self {
        self.kernel = Kernel::pick(isa);
        self
    }

    /// What bursts are hashed with: `tables`, `pclmulqdq` or `avx512+gfni`.
    pub fn kernel(&self) -> &'static str {
        self.kernel.name()
    }

    /// The key as given.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The hash as a matrix and a constant, for an [`Inverse`](super::Inverse).
    pub fn affine(&self) -> &AffineHash {
        &self.parts.affine
    }

    /// The hash of one tuple of any length up to the key's less four bytes; what is longer does not
    /// count.
    #[inline]
    pub fn hash(&self, tuple: &[u8]) -> u32 {
        self.parts.affine.hash(tuple)
    }

    /// IPv4 tuples of addresses and ports.
    ///
    /// # Panics
    /// Here and below: where `hashes` is not as long as what is hashed.
    #[inline]
    pub fn tuples12(&self, tuples: &[[u8; 12]], hashes: &mut [u32]) {
        self.kernel.bulk::<12, 3>(&self.parts, tuples, hashes);
    }

    /// IPv6 tuples of addresses and ports.
    #[inline]
    pub fn tuples36(&self, tuples: &[[u8; 36]], hashes: &mut [u32]) {
        self.kernel.bulk::<36, 9>(&self.parts, tuples, hashes);
    }

    /// IPv4 tuples of addresses.
    #[inline]
    pub fn tuples8(&self, tuples: &[[u8; 8]], hashes: &mut [u32]) {
        self.kernel.bulk::<8, 2>(&self.parts, tuples, hashes);
    }

    /// IPv6 tuples of addresses.
    #[inline]
    pub fn tuples32(&self, tuples: &[[u8; 32]], hashes: &mut [u32]) {
        self.kernel.bulk::<32, 8>(&self.parts, tuples, hashes);
    }

    /// IPv4 flows.
    #[inline]
    pub fn flows4(&self, fields: Fields, flows: &[FlowKey4], hashes: &mut [u32]) {
        match fields {
            Fields::Addresses => self.kernel.bulk::<16, 2>(&self.parts, rows(flows), hashes),
            Fields::AddressesAndPorts => {
                self.kernel.bulk::<16, 3>(&self.parts, rows(flows), hashes)
            }
        }
    }

    /// IPv6 flows.
    #[inline]
    pub fn flows6(&self, fields: Fields, flows: &[FlowKey6], hashes: &mut [u32]) {
        match fields {
            Fields::Addresses => self.kernel.bulk::<40, 8>(&self.parts, rows(flows), hashes),
            Fields::AddressesAndPorts => {
                self.kernel.bulk::<40, 9>(&self.parts, rows(flows), hashes)
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
