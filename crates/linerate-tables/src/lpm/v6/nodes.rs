//! Which tables, leaves and far hops of a [`Tree`] are in use, and room for more of them.

use crate::simd::lpm6::{Entry, EntryKind, Leaf, SPAN_BITS, Tree, Write, span_from};
use linerate_core::MemError;
use linerate_core::mem::{HugeArray, PageKind};
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

    /// Makes room for whatever one change needs, if it is not there: an array that is short grows
    /// by half, within `spare` more bytes. Unless all can grow, none does.
    pub(super) fn make_room(&mut self, tree: &mut Tree, spare: usize) -> Result<(), Short> {
        let (most_tables, most_leaves) = match self.fixed {
            true => (0, 0),
            false => Tree::most(),
        };
        let tables = (self.tables.room(tree.tables.len()) < TABLES_A_CHANGE)
            .then(|| TABLES.grown(&tree.tables, TABLES_A_CHANGE, most_tables, spare));
        let taken = match &tables {
            Some(Ok(longer)) => longer.region().len() - tree.tables.region().len(),
            Some(Err(Short::Bytes(bytes))) => *bytes,
            _ => 0,
        };
        let leaves = (self.leaves.room(tree.leaves.len()) < LEAVES_A_CHANGE).then(|| {
            let spare = spare.saturating_sub(taken);
            LEAVES.grown(&tree.leaves, LEAVES_A_CHANGE, most_leaves, spare)
        });
        let (tables, leaves) = match (tables.transpose(), leaves.transpose()) {
            // The memory that both lack, so that one increase of the budget suffices.
            (Ok(Some(_)) | Err(Short::Bytes(_)), Err(Short::Bytes(bytes))) => {
                return Err(Short::Bytes(taken + bytes));
            }
            (tables, leaves) => (tables?, leaves?),
        };
        if let Some(tables) = tables {
            tree.tables = tables;
        }
        if let Some(leaves) = leaves {
            tree.leaves = leaves;
        }
        Ok(())
    }

    /// As [`make_room`](Self::make_room), for one next hop.
    pub(super) fn admit(&mut self, tree: &mut Tree, hop: u32, spare: usize) -> Result<(), Short> {
        if Entry::hop(hop).is_some() || self.far.contains_key(&hop) {
            return Ok(());
        }
        let most = if self.fixed { 0 } else { 1 << 28 };
        let number = self.far.len() + 1;
        if number == tree.far.len() {
            tree.far = FAR.grown(&tree.far, 16, most, spare)?;
        }
        tree.write(Write::Far(number as u32, hop));
        self.far.insert(hop, number as u32);
        Ok(())
    }

    /// An admitted next hop as an entry.
    pub(super) fn hop(&self, hop: u32) -> Entry {
        Entry::hop(hop).unwrap_or_else(|| Entry::far(self.far[&hop]))
    }

    pub(super) fn add_leaf(&mut self, tree: &mut Tree, leaf: &Leaf) -> Entry {
        let number = self.leaves.take();
        tree.write_leaf(number, leaf);
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
            EntryKind::Table(number) => {
                for child in tree.tables[number as usize] {
                    self.free_until(tree, child, at + 8, end);
                }
                self.tables.back.push(number);
            }
            EntryKind::Leaf(number) => {
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
            EntryKind::Hop(_) | EntryKind::Far(_) => {}
        }
    }
}

/// Why an array did not grow.
pub(super) enum Short {
    /// It takes at least so many bytes more, which is more than are to spare.
    Bytes(usize),
    /// It is as long as it may be.
    Room { what: &'static str, len: usize },
    /// There is no memory.
    Memory(MemError),
}

/// An array of the tree, for messages.
struct Array {
    name: &'static str,
    what: &'static str,
}

const TABLES: Array = Array {
    name: "fib6 tables",
    what: "tables",
};
const LEAVES: Array = Array {
    name: "fib6 leaves",
    what: "leaves",
};
const FAR: Array = Array {
    name: "fib6 far",
    what: "next hops from 0x80000000 to 0xbfffffff",
};

impl Array {
    /// A copy of `array`, longer by half, or at least by `least`; of up to `most` elements, and
    /// within `spare` bytes more.
    fn grown<T: Copy>(
        &self,
        array: &HugeArray<T>,
        least: usize,
        most: usize,
        spare: usize,
    ) -> Result<HugeArray<T>, Short> {
        if array.len() + least > most {
            return Err(Short::Room {
                what: self.what,
                len: array.len(),
            });
        }
        let fill = array[0];
        let bytes = array.region().len();
        let mut short = 0;
        for more in [(array.len() / 2).max(least * 2), least] {
            let len = array.len() + more;
            // Cheap to tell before memory is mapped.
            short = mapped_bytes(len * size_of::<T>()).saturating_sub(bytes);
            if len > most || short > spare {
                continue;
            }
            let get = |index| array.get(index).copied().unwrap_or(fill);
            let longer = HugeArray::from_fn(self.name, len, get).map_err(Short::Memory)?;
            short = longer.region().len().saturating_sub(bytes);
            if short <= spare {
                return Ok(longer);
            }
        }
        Err(Short::Bytes(short))
    }
}

/// What a region of so many bytes takes, unless pages of 1 GiB are set aside.
fn mapped_bytes(bytes: usize) -> usize {
    let huge = PageKind::Transparent.bytes();
    let page = match bytes < huge / 2 {
        true => PageKind::Base4K.bytes(),
        false => huge,
    };
    bytes.next_multiple_of(page)
}
