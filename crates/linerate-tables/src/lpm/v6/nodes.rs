//! Which tables, leaves and far hops of a [`Tree`] are in use, and room for more of them.

use crate::simd::lpm6::{Entry, Kind, Leaf, SPAN_BITS, Table, Tree, Write, span_from};
use linerate_core::MemError;
use linerate_core::mem::HugeArray;
use std::collections::HashMap;

/// The most tables that one change adds: four in each span.
const TABLES_A_CHANGE: usize = 16;
/// The most leaves that one change adds: those into which one, full, is split, in each span.
const LEAVES_A_CHANGE: usize = 80;

/// Numbers of one kind: those given back, and the first never used.
#[derive(Debug, Clone)]
struct Numbers {
    back: Vec<u32>,
    fresh: u32,
}

impl Numbers {
    /// 0 is never used.
    fn new() -> Self {
        Self {
            back: Vec::new(),
            fresh: 1,
        }
    }

    fn take(&mut self) -> u32 {
        self.back.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// How many can be taken if there is room for `len`.
    fn room(&self, len: usize) -> usize {
        self.back.len() + len - self.fresh as usize
    }

    fn used(&self) -> usize {
        self.fresh as usize - 1 - self.back.len()
    }

    fn memory_bytes(&self) -> usize {
        self.back.capacity() * size_of::<u32>()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Nodes {
    tables: Numbers,
    leaves: Numbers,
    /// Whether arrays stay as long as they are, because there are copies of them.
    fixed: bool,
    /// Where each next hop stands that is no entry by itself; they are kept.
    far: HashMap<u32, u32>,
}

impl Nodes {
    /// The bytes that one change may need.
    pub(super) const CHANGE_BYTES: usize =
        TABLES_A_CHANGE * size_of::<Table>() + LEAVES_A_CHANGE * size_of::<Leaf>();

    pub(super) fn new() -> Self {
        Self {
            tables: Numbers::new(),
            leaves: Numbers::new(),
            fixed: false,
            far: HashMap::new(),
        }
    }

    /// From now on there is only the room that there is.
    pub(super) fn fix(&mut self) {
        self.fixed = true;
    }

    /// Tables and leaves in use.
    pub(super) fn used(&self) -> (usize, usize) {
        (self.tables.used(), self.leaves.used())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let far = self.far.capacity() * size_of::<(u32, u32)>();
        self.tables.memory_bytes() + self.leaves.memory_bytes() + far
    }

    /// Makes room for whatever one change needs, if it is not there: the array that is short grows by
    /// half, within `spare` more bytes. `false` if that does not do.
    pub(super) fn make_room(&mut self, tree: &mut Tree, spare: usize) -> Result<bool, MemError> {
        let (most_tables, most_leaves) = match self.fixed {
            true => (0, 0),
            false => Tree::most(),
        };
        let tables = match self.tables.room(tree.tables.len()) < TABLES_A_CHANGE {
            true => match grown(
                &tree.tables,
                "fib6 tables",
                TABLES_A_CHANGE,
                most_tables,
                spare,
            )? {
                None => return Ok(false),
                tables => tables,
            },
            false => None,
        };
        let more = tables.as_ref().map_or(0, |longer: &HugeArray<_>| {
            longer.region().len() - tree.tables.region().len()
        });
        let spare = spare - more;
        if self.leaves.room(tree.leaves.len()) < LEAVES_A_CHANGE {
            match grown(
                &tree.leaves,
                "fib6 leaves",
                LEAVES_A_CHANGE,
                most_leaves,
                spare,
            )? {
                None => return Ok(false),
                Some(leaves) => tree.leaves = leaves,
            }
        }
        if let Some(tables) = tables {
            tree.tables = tables;
        }
        Ok(true)
    }

    /// As [`make_room`](Self::make_room), for one next hop.
    pub(super) fn admit(
        &mut self,
        tree: &mut Tree,
        hop: u32,
        spare: usize,
    ) -> Result<bool, MemError> {
        if Entry::hop(hop).is_some() || self.far.contains_key(&hop) {
            return Ok(true);
        }
        let most = if self.fixed { 0 } else { 1 << 28 };
        let number = self.far.len() + 1;
        if number == tree.far.len() {
            match grown(&tree.far, "fib6 far", 16, most, spare)? {
                None => return Ok(false),
                Some(far) => tree.far = far,
            }
        }
        tree.write(Write::Far(number as u32, hop));
        self.far.insert(hop, number as u32);
        Ok(true)
    }

    /// An admitted next hop as an entry.
    pub(super) fn hop(&self, hop: u32) -> Entry {
        Entry::hop(hop).unwrap_or_else(|| Entry::far(self.far[&hop]))
    }

    pub(super) fn add_leaf(&mut self, tree: &mut Tree, leaf: Leaf) -> Entry {
        let number = self.leaves.take();
        tree.write(Write::Leaf(number, Box::new(leaf)));
        Entry::leaf(number)
    }

    pub(super) fn add_table(&mut self, tree: &mut Tree) -> (u32, Entry) {
        let number = self.tables.take();
        tree.write(Write::Table(number));
        (number, Entry::table(number))
    }

    /// Whether a leaf can be had in each span.
    pub(super) fn has_leaves(&self, tree: &Tree) -> bool {
        self.leaves.room(tree.leaves.len()) >= 4
    }

    /// Gives back a leaf alone.
    pub(super) fn free_leaf(&mut self, number: u32) {
        self.leaves.back.push(number);
    }

    /// Gives back what stands at bit `at`, and all below.
    pub(super) fn free(&mut self, tree: &Tree, entry: Entry, at: u8) {
        self.free_until(tree, entry, at, u8::MAX);
    }

    /// As [`free`](Self::free), but what stands at bit `end` stays.
    pub(super) fn free_until(&mut self, tree: &Tree, entry: Entry, at: u8, end: u8) {
        if !entry.is_node() || at == end {
            return;
        }
        match entry.kind() {
            Kind::Table(number) => {
                for child in tree.tables[number as usize] {
                    self.free_until(tree, child, at + 8, end);
                }
                self.tables.back.push(number);
            }
            Kind::Leaf(number) => {
                let beyond = span_from(at) + SPAN_BITS;
                let mut before = Entry::NONE;
                for child in tree.leaves[number as usize].entries {
                    // Unused ranges repeat the last one.
                    if child != before {
                        self.free_until(tree, child, beyond, end);
                    }
                    before = child;
                }
                self.leaves.back.push(number);
            }
            Kind::Hop(_) | Kind::Far(_) => {}
        }
    }
}

/// A copy of `array`, longer by half and at least by `least`; `None` if that is more than `most`, or
/// than `spare` bytes more.
fn grown<T: Copy>(
    array: &HugeArray<T>,
    name: &str,
    least: usize,
    most: usize,
    spare: usize,
) -> Result<Option<HugeArray<T>>, MemError> {
    let fill = array[0];
    let bytes = array.region().len();
    for more in [(array.len() / 2).max(least * 2), least] {
        let len = array.len() + more;
        // Cheap to tell before memory is mapped; pages round it up.
        if len > most || (len * size_of::<T>()).saturating_sub(bytes) > spare {
            continue;
        }
        let get = |index| array.get(index).copied().unwrap_or(fill);
        let longer = HugeArray::from_fn(name, len, get)?;
        if longer.region().len().saturating_sub(bytes) <= spare {
            return Ok(Some(longer));
        }
    }
    Ok(None)
}
