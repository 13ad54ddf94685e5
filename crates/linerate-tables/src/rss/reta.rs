//! The redirection table: from the low bits of a hash to a queue.

use crate::TableError;

/// Most entries, by which a slot fits in 16 bits.
const LARGEST: usize = 1 << 16;

/// A redirection table (RETA, indirection table): 1 to 65536 entries, a power of two.
///
/// The low bits of the hash index it. A lookup is one load; memory is two bytes per entry.
///
/// ```
/// use linerate_tables::rss::Reta;
/// let reta = Reta::round_robin(128, 6)?;
/// assert_eq!(reta.queue(0x51cc_c178), 0x78 % 6);
/// let error = Reta::round_robin(100, 6).unwrap_err();
/// assert_eq!(error.to_string(), "a RETA of 100 entries; it takes a power of two up to 65536, such as 64 or 128");
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reta {
    slots: Box<[u16]>,
}

impl Reta {
    /// Entry `i` leads to queue `i % queues`, as drivers fill it by default.
    ///
    /// # Errors
    /// [`TableError::RetaSize`] unless `size` is a power of two up to 65536;
    /// [`TableError::RetaQueues`] for no queue or more queues than entries.
    pub fn round_robin(size: usize, queues: u16) -> Result<Self, TableError> {
        check_queues(size, usize::from(queues))?;
        Self::from_slots((0..size).map(|slot| (slot % usize::from(queues)) as u16))
    }

    /// Queues in proportion to their weights, each as evenly spread over the table as it can be,
    /// and each within one entry of its due.
    ///
    /// ```
    /// use linerate_tables::rss::Reta;
    /// assert_eq!(Reta::weighted(8, &[5, 2, 1])?.slots(), [0, 1, 0, 0, 2, 0, 1, 0]);
    /// # Ok::<(), linerate_tables::TableError>(())
    /// ```
    ///
    /// # Errors
    /// As [`round_robin`](Self::round_robin); a table of zero weights has no queue.
    pub fn weighted(size: usize, weights: &[u32]) -> Result<Self, TableError> {
        let total: i64 = weights.iter().map(|&weight| i64::from(weight)).sum();
        let used = weights.iter().filter(|&&weight| weight > 0).count();
        check_queues(size, used)?;
        // Each step everybody earns its weight, and the richest pays for the slot: smooth weighted
        // round robin, as nginx balances.
        let mut credit = vec![0; weights.len()];
        Self::from_slots((0..size).map(|_| {
            credit
                .iter_mut()
                .zip(weights)
                .for_each(|(credit, &weight)| *credit += i64::from(weight));
            let due = (0..credit.len()).filter(|&queue| weights[queue] > 0);
            let queue = due.rev().max_by_key(|&queue| credit[queue]).unwrap_or(0);
            credit[queue] -= total;
            queue as u16
        }))
    }

    /// These entries, such as a NIC was read to have.
    ///
    /// # Errors
    /// [`TableError::RetaSize`] unless there are a power of two up to 65536.
    pub fn from_slots(slots: impl IntoIterator<Item = u16>) -> Result<Self, TableError> {
        let slots: Box<[u16]> = slots.into_iter().take(LARGEST + 1).collect();
        check_size(slots.len())?;
        Ok(Self { slots })
    }

    /// The queue of a hash.
    #[inline]
    pub fn queue(&self, hash: u32) -> u16 {
        self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// The queues of a burst.
    ///
    /// # Panics
    /// Where `queues` is not as long as `hashes`.
    #[inline]
    pub fn queues(&self, hashes: &[u32], queues: &mut [u16]) {
        assert_eq!(hashes.len(), queues.len(), "one queue for each hash");
        for (hash, queue) in hashes.iter().zip(queues) {
            *queue = self.queue(*hash);
        }
    }

    /// Leads entry `slot` to `queue`.
    ///
    /// # Panics
    /// Where there is no such entry.
    pub fn set(&mut self, slot: usize, queue: u16) {
        self.slots[slot] = queue;
    }

    /// All entries.
    pub fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// How many low bits of the hash it looks at.
    pub fn bits(&self) -> u32 {
        self.slots.len().trailing_zeros()
    }

    /// One more than the highest queue.
    pub fn queue_count(&self) -> usize {
        self.slots
            .iter()
            .max()
            .map_or(0, |&queue| usize::from(queue) + 1)
    }
}

fn check_size(size: usize) -> Result<(), TableError> {
    if size.is_power_of_two() && size <= LARGEST {
        return Ok(());
    }
    let above = size.clamp(1, LARGEST - 1).next_power_of_two();
    Err(TableError::RetaSize {
        given: size,
        below: if size > LARGEST {
            LARGEST / 2
        } else {
            (above / 2).max(1)
        },
        above: if size > LARGEST {
            LARGEST
        } else {
            above.max(2)
        },
        most: LARGEST,
    })
}

fn check_queues(size: usize, queues: usize) -> Result<(), TableError> {
    check_size(size)?;
    match queues {
        queues if (1..=size).contains(&queues) => Ok(()),
        queues => Err(TableError::RetaQueues { size, queues }),
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_no_power_of_two_are_refused_with_neighbours() {
        for (size, neighbours) in [
            (0, "1 or 2"),
            (3, "2 or 4"),
            (100, "64 or 128"),
            (70_000, "32768 or 65536"),
        ] {
            let error = Reta::from_slots(vec![0; size]).unwrap_err().to_string();
            assert!(
                error.ends_with(neighbours) && error.contains("power of two"),
                "{error}"
            );
        }
        assert!(
            [1, 2, 65_536]
                .iter()
                .all(|&size| Reta::round_robin(size, 1).is_ok())
        );
    }

    #[test]
    fn queues_that_no_entry_could_reach_are_refused() {
        for queues in [0, 129] {
            let error = Reta::round_robin(128, queues).unwrap_err().to_string();
            assert!(
                error.contains(&queues.to_string()) && error.contains("1 to 128"),
                "{error}"
            );
        }
        assert!(Reta::weighted(2, &[0, 0]).is_err() && Reta::weighted(2, &[1, 1, 1]).is_err());
    }

    #[test]
    fn weights_are_kept_to_within_one_entry() {
        for weights in [
            &[1_u32, 1, 1][..],
            &[7, 0, 3],
            &[1, 1000],
            &[5, 4, 3, 2, 1],
            &[u32::MAX, 1],
        ] {
            let reta = Reta::weighted(256, weights).unwrap();
            let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            for (queue, &weight) in weights.iter().enumerate() {
                let slots = reta
                    .slots()
                    .iter()
                    .filter(|&&to| usize::from(to) == queue)
                    .count();
                let due = 256.0 * f64::from(weight) / total;
                assert!(
                    (slots as f64 - due).abs() < 1.0 + 1e-9,
                    "{weights:?}: {queue} has {slots} of {due}"
                );
            }
        }
    }

    #[test]
    fn a_burst_finds_what_single_hashes_find() {
        let mut reta = Reta::round_robin(16, 5).unwrap();
        reta.set(15, 9);
        let hashes: Vec<u32> = (0..40_u32).map(|i| i.wrapping_mul(0x1234_5671)).collect();
        let mut queues = vec![0; 40];
        reta.queues(&hashes, &mut queues);
        assert!(
            hashes
                .iter()
                .zip(&queues)
                .all(|(&hash, &queue)| reta.queue(hash) == queue)
        );
        assert_eq!(
            (reta.queue(0xff), reta.queue_count(), reta.bits()),
            (9, 10, 4)
        );
    }
}
