//! The search for a free slot when both buckets of a key are full.
//!
//! Every entry may live in one other bucket, so if that has room the entry can move over. The
//! search goes breadth first, so the chain of moves is the shortest there is, and reads at most
//! [`REACH`] buckets.

/// Buckets that are read at most.
const REACH: usize = 128;

/// A table as the search sees it.
pub(super) trait Buckets {
    /// Slots of a bucket.
    const SLOTS: usize;
    /// A free slot of a bucket.
    fn free(&self, bucket: u32) -> Option<usize>;
    /// The other bucket of the entry in a slot.
    fn other(&self, bucket: u32, slot: usize) -> Option<u32>;
    /// Moves an entry from its place to a free slot of its other bucket.
    fn change_over(&mut self, from: (u32, usize), to: (u32, usize));
}

/// A bucket that would gain a free slot if the entry in `slot` of its parent moved into it.
#[derive(Clone, Copy)]
struct Step {
    bucket: u32,
    parent: u8,
    slot: u8,
}

/// Moves entries so that one of the two buckets has a free slot; `None` if none is in reach.
pub(super) fn make_room<B: Buckets>(
    table: &mut B,
    first: u32,
    second: u32,
) -> Option<(u32, usize)> {
    let root = |bucket| Step {
        bucket,
        parent: 0,
        slot: 0,
    };
    let mut steps = [root(first); REACH];
    steps[1] = root(second);
    let mut known = 2;
    for at in 0..REACH {
        if at == known {
            return None;
        }
        let bucket = steps[at].bucket;
        for slot in 0..B::SLOTS {
            let other = table.other(bucket, slot)?;
            if other == bucket {
                continue;
            }
            if let Some(free) = table.free(other) {
                return Some(walk(table, &steps, (at, slot), (other, free)));
            }
            if known < REACH {
                steps[known] = Step {
                    bucket: other,
                    parent: at as u8,
                    slot: slot as u8,
                };
                known += 1;
            }
        }
    }
    None
}

/// Moves the entries of a chain, the last one first; returns the slot that this frees.
fn walk<B: Buckets>(
    table: &mut B,
    steps: &[Step; REACH],
    (mut at, mut slot): (usize, usize),
    mut free: (u32, usize),
) -> (u32, usize) {
    loop {
        let from = (steps[at].bucket, slot);
        table.change_over(from, free);
        free = from;
        if at < 2 {
            return free;
        }
        slot = steps[at].slot.into();
        at = steps[at].parent.into();
    }
}
