//! The inverse: which ports land on a queue.
//!
//! The hash of a tuple is the hash of its fixed part plus (XOR) one column for each bit of the free
//! port that is set. Of the hash only the `r` low bits matter that index the RETA of `2^r` entries,
//! so a free port `p` of `n` bits reaches entry `u + A p`, where `u` is the fixed part's hash, cut
//! to `r` bits, and `A` an `r x n` matrix over GF(2) that depends on the key alone. Gaussian
//! elimination, once per key, gives
//!
//! - the rank `k` of `A`, and for each of the `2^k` sums that columns can have one port with that
//!   sum;
//! - the kernel: the `2^(n-k)` ports that change nothing.
//!
//! The ports that reach entry `s` are then `solve(s + u) + kernel`: none where `s + u` is no sum of
//! columns, otherwise exactly `2^(n-k)`. Those of a queue are the union over its entries. Nothing
//! is searched.
//!
//! Elimination takes the port's bits from the lowest up: a column that is new becomes a pivot, one
//! that is a sum of earlier ones gives a vector of the kernel, whose highest bit it is. So the
//! kernel is ascending when it is counted through in binary, solutions have zeros at the kernel's
//! highest bits, and each entry's ports are ascending too: a range of ports is a range of indices.

use super::ports::Ports;
use super::{AffineHash, Reta};
use crate::TableError;

/// The free bits of a tuple: a port of 16 bits, all or some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortField {
    /// Where the port begins in the tuple, in bytes.
    pub byte: usize,
    /// Which of its bits are free; the others stay as the tuple has them.
    pub mask: u16,
}

impl PortField {
    /// The source port of an IPv4 tuple.
    pub const V4_SRC: Self = Self::at(8);
    /// The destination port of an IPv4 tuple.
    pub const V4_DST: Self = Self::at(10);
    /// The source port of an IPv6 tuple.
    pub const V6_SRC: Self = Self::at(32);
    /// The destination port of an IPv6 tuple.
    pub const V6_DST: Self = Self::at(34);

    const fn at(byte: usize) -> Self {
        Self {
            byte,
            mask: u16::MAX,
        }
    }

    /// The same without the bits in `mask`: `keeping(1)` keeps the parity, as RTP wants (RFC 4787
    /// 4.2.2).
    pub const fn keeping(self, mask: u16) -> Self {
        Self {
            mask: self.mask & !mask,
            ..self
        }
    }
}

/// Marks sums that columns cannot have.
const NO_SOLUTION: u32 = u32::MAX;

/// Finds the ports that a hash and a RETA send to a queue.
///
/// Made once per key and RETA, in `O(2^16)`; asked once per tuple, for one hash. Memory: 4 bytes
/// for each RETA entry, 2 for each vector of the kernel (`2^16 / RETA` entries when the key has
/// full rank), and the hash's tables.
///
/// A full NAT picks the port towards the server so that replies come to the queue that the client's
/// packets come to: `port_D2 = hash_inverse(HASH, IP_D2, IP_S, port_S)`.
///
/// ```
/// use linerate_tables::rss::{Inverse, MICROSOFT_KEY, PortField, Reta, Toeplitz};
/// use linerate_wire::flow::FlowKey4;
/// let rss = Toeplitz::new(&MICROSOFT_KEY)?;
/// let reta = Reta::round_robin(128, 8)?;
/// let inverse = Inverse::new(rss.affine(), PortField::V4_DST, &reta)?;
/// let (server, ours) = ([198, 51, 100, 7], [192, 0, 2, 1]);
/// // A reply: from the server to us, at the port that we are about to choose.
/// let reply = FlowKey4::new(server, ours, 443, 0, 6);
/// let ports = inverse.ports(&reply.0[..12], 5)?.range(1024..=65_535);
/// assert_eq!(ports.count(), 8064);
/// let port = ports.iter().next().expect("thousands");
/// let hash = rss.hash(&FlowKey4::new(server, ours, 443, port, 6).0[..12]);
/// assert_eq!(reta.queue(hash), 5);
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inverse {
    hash: AffineHash,
    field: PortField,
    reta: Reta,
    /// Ports that change no RETA entry, ascending, 0 first.
    kernel: Box<[u16]>,
    /// For each sum of columns one port that has it.
    solutions: Box<[u32]>,
    /// RETA entries of all queues, by queue; those of queue `q` are `starts[q]..starts[q + 1]`.
    slots: Box<[u16]>,
    starts: Box<[u32]>,
}

impl Inverse {
    /// Solves for the bits of `field` in inputs of `hash`, whose low bits index `reta`.
    ///
    /// # Errors
    /// [`TableError::RssField`] where the hash's input ends before the port does.
    pub fn new(hash: &AffineHash, field: PortField, reta: &Reta) -> Result<Self, TableError> {
        if field.byte.saturating_add(2) > hash.input_bytes() {
            return Err(TableError::RssField {
                byte: field.byte,
                input_bytes: hash.input_bytes(),
            });
        }
        let low_bits = (reta.slots().len() - 1) as u32;
        let free = (0..16).filter(|bit| field.mask >> bit & 1 == 1);
        let mut basis = Basis::default();
        for bit in free {
            // Bit 0 of the port is the last of its 16 in the tuple.
            basis.add(1 << bit, hash.column(8 * field.byte + 15 - bit) & low_bits);
        }
        let mut solutions = vec![NO_SOLUTION; reta.slots().len()];
        for (sum, port) in basis.sums() {
            solutions[sum as usize] = port.into();
        }
        let mut slots: Vec<u16> = (0..=low_bits as u16).collect();
        slots.sort_by_key(|&slot| reta.slots()[usize::from(slot)]);
        let queue_of = |slot: u16| reta.slots()[usize::from(slot)];
        let start =
            |queue| slots.partition_point(|&slot| usize::from(queue_of(slot)) < queue) as u32;
        Ok(Self {
            starts: (0..=reta.queue_count()).map(start).collect(),
            hash: hash.clone(),
            field,
            reta: reta.clone(),
            kernel: spanned(&basis.kernel),
            solutions: solutions.into(),
            slots: slots.into(),
        })
    }

    /// The ports that send `tuple` to `queue`. The tuple's own free bits do not matter; the bits of
    /// the port that are not free do. Costs one hash.
    ///
    /// # Errors
    /// [`TableError::RssNoQueue`] where no RETA entry leads to the queue;
    /// [`TableError::RssUnreachable`] where there are such entries, but the key is so poor that no
    /// port leads to one of them; [`TableError::RssTuple`] for a tuple that ends before the port
    /// does.
    pub fn ports(&self, tuple: &[u8], queue: u16) -> Result<Ports<'_>, TableError> {
        let (fixed, kept) = self.fixed(tuple)?;
        self.reachable(Ports::new(self, fixed, kept, self.slots_of(queue)?), queue)
    }

    /// Even ports `p` such that `p` and `p + 1` both send `tuple` to `queue`: for RTP and RTCP side
    /// by side. The field must keep bit 0.
    ///
    /// # Errors
    /// As [`ports`](Self::ports), [`TableError::RssPairs`] where bit 0 is free, and
    /// [`TableError::RssNoPair`] where a port and the next never share the queue, as when queues
    /// alternate and bit 0 flips the entry's lowest bit.
    pub fn pairs(&self, tuple: &[u8], queue: u16) -> Result<Ports<'_>, TableError> {
        if self.field.mask & 1 == 1 {
            return Err(TableError::RssPairs);
        }
        let odd = self.hash.column(8 * self.field.byte + 15);
        let (fixed, kept) = self.fixed(tuple)?;
        let fixed = if kept & 1 == 1 { fixed ^ odd } else { fixed };
        let ports = Ports::new(self, fixed, kept & !1, self.slots_of(queue)?);
        let pairs = self.reachable(ports, queue)?.paired(odd, queue);
        match pairs.is_unreachable() {
            false => Ok(pairs),
            true => Err(TableError::RssNoPair { queue }),
        }
    }

    fn reachable<'a>(&self, ports: Ports<'a>, queue: u16) -> Result<Ports<'a>, TableError> {
        match ports.is_unreachable() {
            false => Ok(ports),
            true => Err(TableError::RssUnreachable {
                queue,
                rank: self.rank(),
                bits: self.reta.bits(),
            }),
        }
    }

    /// The hash of the tuple without its free bits, and the bits of the port that are not free.
    fn fixed(&self, tuple: &[u8]) -> Result<(u32, u16), TableError> {
        let byte = self.field.byte;
        let Some(&[high, low]) = tuple.get(byte..byte + 2) else {
            return Err(TableError::RssTuple {
                given: tuple.len(),
                needed: byte + 2,
            });
        };
        let port = u16::from_be_bytes([high, low]);
        let hash = self.hash.hash(tuple) ^ self.added(port & self.field.mask);
        Ok((hash, port & !self.field.mask))
    }

    /// What a port adds to the hash.
    fn added(&self, port: u16) -> u32 {
        let [high, low] = port.to_be_bytes();
        self.hash.added(self.field.byte, high) ^ self.hash.added(self.field.byte + 1, low)
    }

    fn slots_of(&self, queue: u16) -> Result<&[u16], TableError> {
        let queue_index = usize::from(queue);
        let slots = match self.starts.get(queue_index..queue_index + 2) {
            Some(&[start, end]) => &self.slots[start as usize..end as usize],
            _ => &[],
        };
        match slots {
            [] => Err(TableError::RssNoQueue {
                queue,
                queues: self.reta.queue_count(),
            }),
            slots => Ok(slots),
        }
    }

    /// The queue of a tuple as it is.
    pub fn queue(&self, tuple: &[u8]) -> u16 {
        self.reta.queue(self.hash.hash(tuple))
    }

    /// How many bits of a RETA entry's number the free bits of the port decide. Full rank is the
    /// RETA's bits.
    pub fn rank(&self) -> u32 {
        (self.field.mask.count_ones()) - self.kernel.len().trailing_zeros()
    }

    /// The bits that are free.
    pub fn field(&self) -> PortField {
        self.field
    }

    /// Memory of it all, in bytes.
    pub fn bytes(&self) -> usize {
        let tables = size_of_val(&*self.kernel) + size_of_val(&*self.solutions);
        let slots = size_of_val(&*self.slots) + size_of_val(&*self.starts);
        size_of::<Self>() + tables + slots + size_of_val(self.reta.slots()) + self.hash.bytes()
    }

    /// The table.
    pub fn reta(&self) -> &Reta {
        &self.reta
    }

    pub(super) fn kernel(&self) -> &[u16] {
        &self.kernel
    }

    /// One port for which the fixed part's hash leads to `slot`.
    pub(super) fn solution(&self, fixed: u32, slot: u16) -> Option<u16> {
        let sum = (fixed as usize ^ usize::from(slot)) & (self.solutions.len() - 1);
        u16::try_from(self.solutions[sum]).ok()
    }
}

/// Columns in echelon form, and the ports behind them.
#[derive(Default)]
struct Basis {
    /// Sums with different highest bits, each with the port that has it.
    pivots: Vec<(u32, u16)>,
    /// Ports whose columns add up to nothing, ascending, each with a highest bit of its own.
    kernel: Vec<u16>,
}

impl Basis {
    fn add(&mut self, port: u16, column: u32) {
        let (mut sum, mut ports) = (column, port);
        for &(pivot, behind) in &self.pivots {
            // Adding makes it smaller only where it clears the pivot's highest bit.
            if sum ^ pivot < sum {
                (sum, ports) = (sum ^ pivot, ports ^ behind);
            }
        }
        if sum == 0 {
            return self.kernel.push(ports);
        }
        let place = self.pivots.partition_point(|&(pivot, _)| pivot > sum);
        self.pivots.insert(place, (sum, ports));
    }

    /// All sums of columns, each with its port.
    fn sums(&self) -> Vec<(u32, u16)> {
        let mut sums = vec![(0, 0)];
        for &(pivot, behind) in &self.pivots {
            let more: Vec<_> = sums
                .iter()
                .map(|&(sum, port)| (sum ^ pivot, port ^ behind))
                .collect();
            sums.extend(more);
        }
        sums
    }
}

/// All sums of vectors that are ascending by their highest bits; ascending.
fn spanned(vectors: &[u16]) -> Box<[u16]> {
    let mut all = vec![0];
    for &vector in vectors {
        let more: Vec<_> = all.iter().map(|&sum| sum ^ vector).collect();
        all.extend(more);
    }
    all.into()
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
