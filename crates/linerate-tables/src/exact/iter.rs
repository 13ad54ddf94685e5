//! Going through all entries: at once, or a few buckets at a time.

use super::Exact;
use super::layout::{Layout, Value};

/// How far a [`sweep`](Exact::sweep) has come; begins at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(super) bucket: u32,
}

impl<const K: usize, V: Value> Exact<K, V> {
    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = ([u8; K], V)> + '_ {
        let slots = (0..self.spread.count()).flat_map(|bucket| {
            let bucket = self.segments.bucket(bucket);
            (0..Layout::<K, V>::SLOTS)
                .filter(|&slot| Layout::<K, V>::is_taken(bucket, slot))
                .map(|slot| {
                    (
                        *Layout::<K, V>::key(bucket, slot),
                        Layout::<K, V>::value(bucket, slot),
                    )
                })
        });
        slots.chain(self.stash.iter().copied())
    }

    /// Shows the entries of the next `buckets` buckets to `keep`, which may change the value, and
    /// takes out those that it declines: the hook for ageing. Returns whether this ended a pass
    /// over the table; the next call begins another.
    ///
    /// An entry that lives in its second bucket goes home to its first if that has room by now, so
    /// a table whose entries come and go for long gets back what it had when it was new.
    ///
    /// Inserts, removals and growth may come between calls. What stays in its place throughout a
    /// pass is seen once; what goes home or is moved by growth may be seen twice, and what an
    /// insert moved over to make room may have to wait for the next pass.
    pub fn sweep(
        &mut self,
        cursor: &mut Cursor,
        buckets: usize,
        mut keep: impl FnMut(&[u8; K], &mut V) -> bool,
    ) -> bool {
        let end = (cursor.bucket as usize).saturating_add(buckets);
        let end = end.min(self.spread.count() as usize) as u32;
        for bucket in cursor.bucket..end {
            for slot in 0..Layout::<K, V>::SLOTS {
                self.judge(bucket, slot, &mut keep);
            }
        }
        cursor.bucket = end;
        if end < self.spread.count() {
            return false;
        }
        cursor.bucket = 0;
        for at in (0..self.stash.len()).rev() {
            let (key, value) = &mut self.stash[at];
            if !keep(key, value) {
                let key = *key;
                self.stash.swap_remove(at);
                self.len -= 1;
                self.unspill(self.spread.of(self.hash.of(&key).first()));
            }
        }
        true
    }

    /// Keeps the entry in a slot, at home if it can be, or takes it out.
    fn judge(&mut self, bucket: u32, slot: usize, keep: impl FnOnce(&[u8; K], &mut V) -> bool) {
        let bytes = self.segments.bucket_mut(bucket);
        if !Layout::<K, V>::is_taken(bytes, slot) {
            return;
        }
        let key = *Layout::<K, V>::key(bytes, slot);
        let mut value = Layout::<K, V>::value(bytes, slot);
        let kept = keep(&key, &mut value);
        match kept {
            true => Layout::<K, V>::set_value(bytes, slot, value),
            false => Layout::<K, V>::clear(bytes, slot),
        }
        self.len -= usize::from(!kept);
        let first = self.spread.of(self.hash.of(&key).first());
        if first == bucket {
            return;
        }
        if kept {
            let Some(free) = Layout::<K, V>::free(self.segments.bucket(first)) else {
                return;
            };
            self.shift(bucket, slot, first, free);
        }
        self.unspill(first);
    }
}
