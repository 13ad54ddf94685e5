//! Keeps a [`Tree`] equal to the routes: after a route came or went, what it touches is made anew.
//!
//! A *block* is what one entry answers for: a prefix of 16, 24, 32 .. bits. Without longer routes
//! it is a next hop; with few ranges ([`Ranges`]) it is a leaf; otherwise a table, whose entries
//! are blocks again. Blocks are made from the routes alone, but for what lies beyond their span,
//! which is taken over from what stood there before.

use super::nodes::Nodes;
use super::ranges::{Ranges, What};
use crate::lpm::rib::{Descent, Found};
use crate::lpm::{Prefix6, Rib};
use crate::simd::lpm6::{
    DIRECT_BITS, Entry, EntryKind, Leaf, NO_ROUTE, RANGES, ROOT_BITS, SPAN_BITS, TABLE_BITS, Tree,
    Write, span_from, span_of,
};

/// A table becomes a leaf again only with so few ranges, so that a route that comes and goes does
/// not make and unmake tables.
const FEW: usize = RANGES / 2;

/// One change.
pub(super) struct Build<'a> {
    pub(super) tree: &'a mut Tree,
    pub(super) nodes: &'a mut Nodes,
    pub(super) rib: &'a Rib<u128>,
    /// Where the root of their VRF begins.
    pub(super) root: usize,
    /// Only routes inside it differ from what the tree says.
    pub(super) change: Prefix6,
    /// Whether routes went.
    pub(super) removed: bool,
}

/// What a table's entries, or the root's, stand for.
#[derive(Clone, Copy)]
enum Slots {
    /// From an index of the roots on.
    Root(usize),
    Table(u32),
}

/// What stood where blocks are now made.
#[derive(Clone, Copy)]
enum Before<'a> {
    /// The same table.
    Table,
    /// A leaf for all of them.
    Leaf(&'a Leaf),
}

impl Build<'_> {
    /// Brings the tree of the VRF in line with the routes.
    pub(super) fn run(&mut self) {
        let block = At {
            block: Prefix6::ALL,
            descent: self.rib.descent(),
        };
        self.children(Slots::Root(self.root), block, ROOT_BITS, Before::Table);
    }

    /// Makes the entries of `slots` that the change touches; each decides by `bits` after `at`'s
    /// block.
    fn children(&mut self, slots: Slots, at: At, bits: u8, before: Before<'_>) {
        let block = at.block;
        let len = block.len() + bits;
        let index = |prefix: Prefix6| (prefix.first() >> (128 - len)) as usize & ((1 << bits) - 1);
        let everything = matches!(before, Before::Leaf(_));
        if self.change.len() >= len && !everything {
            let child = self.inside(at, Prefix6::of(self.change.first(), len));
            let hop = child.hop();
            self.child(slots, index(child.block), child, hop, true, before);
            return;
        }
        let span = match self.change.len() > block.len() && !everything {
            true => self.change,
            false => block,
        };
        let (first, count) = (index(span), 1 << (len - span.len()));
        let around = self.inside(at, span);
        let mut hops = vec![around.hop(); count];
        let mut longer = vec![false; count];
        for found in self.rib.walk_from(around.descent, span, len) {
            match found {
                Found::Route(route, hop) => {
                    let at = index(route) - first;
                    hops[at..at + (1 << (len - route.len()))].fill(hop);
                }
                Found::Longer(prefix) => longer[index(prefix) - first] = true,
            }
        }
        for at in 0..count {
            let from = span.first() | (at as u128) << (128 - len);
            let child = Prefix6::of(from, len);
            // Without longer routes there is no need to continue.
            let child = match longer[at] {
                true => self.inside(around, child),
                false => At {
                    block: child,
                    ..around
                },
            };
            self.child(slots, first + at, child, hops[at], longer[at], before);
        }
    }

    /// A block inside of another.
    fn inside(&self, around: At, block: Prefix6) -> At {
        At {
            block,
            descent: self.rib.descend(around.descent, block),
        }
    }

    /// Makes one entry; `longer` is false where it is known that no routes are longer.
    fn child(
        &mut self,
        slots: Slots,
        index: usize,
        at: At,
        hop: u32,
        longer: bool,
        before: Before<'_>,
    ) {
        let child = at.block;
        let old = match slots {
            Slots::Root(root) => self.tree.roots[root + index],
            Slots::Table(number) => self.tree.tables[number as usize][index],
        };
        let new = match (longer, before) {
            (false, _) => {
                self.nodes.free(self.tree, old, child.len());
                self.nodes.hop(hop)
            }
            (true, Before::Table) => self.block(old, at, hop),
            (true, Before::Leaf(leaf)) if span_from(child.len()) == child.len() => {
                let span = child.len() - SPAN_BITS;
                self.beyond(leaf.find(span_of(child.first(), span)), at, hop)
            }
            (true, Before::Leaf(leaf)) => self.make(leaf, at, hop),
        };
        if new != old {
            self.tree.write(match slots {
                Slots::Root(root) => Write::Root(root + index, new),
                Slots::Table(number) => Write::Slot(number, index as u8, new),
            });
            let is_table = matches!(new.kind(), EntryKind::Table(_));
            match child.len() {
                // The direct array has what a table of the root says, and not the table.
                ROOT_BITS if !is_table => self.write_direct(child, new),
                DIRECT_BITS => self.write_direct(child, new),
                _ => {}
            }
        }
    }

    /// What the direct array is to say of a block of 16 or 24 bits.
    fn write_direct(&mut self, block: Prefix6, entry: Entry) {
        let place = self.tree.direct_of(self.root, block.first(), block.len());
        if let Some((vrf, first, count)) = place {
            self.tree.write(Write::Direct(vrf, first, count, entry));
        }
    }

    /// Makes the block of `at`, where `old` stood, whose nodes are used or freed.
    fn block(&mut self, old: Entry, at: At, hop: u32) -> Entry {
        let block = at.block;
        if !self.rib.has_longer_from(at.descent, block) {
            self.nodes.free(self.tree, old, block.len());
            return self.nodes.hop(hop);
        }
        match old.kind() {
            EntryKind::Table(number) => self.as_leaf(old, at, hop).unwrap_or_else(|| {
                self.children(Slots::Table(number), at, TABLE_BITS, Before::Table);
                old
            }),
            EntryKind::Leaf(number) => {
                let leaf = self.tree.leaves[number as usize];
                self.free_left_beyond(block, |key| leaf.find(key));
                self.nodes.free_leaf(number);
                self.make(&leaf, at, hop)
            }
            EntryKind::Hop(_) | EntryKind::Far(_) => self.make(&Leaf::EMPTY, at, hop),
        }
    }

    /// Makes a leaf, or a table if there is too much for one; what lies beyond the span is in
    /// `from`.
    fn make(&mut self, from: &Leaf, at: At, hop: u32) -> Entry {
        let block = at.block;
        match Ranges::of(self.rib, at.descent, block, hop, RANGES) {
            Some(ranges) => {
                let leaf = self.leaf(&ranges, at, |_, key| from.find(key));
                self.nodes.add_leaf(self.tree, &leaf)
            }
            None => {
                let (number, table) = self.nodes.add_table(self.tree);
                if block.len() == ROOT_BITS {
                    // As the table now: only what differs from it is written.
                    self.write_direct(block, Entry::NONE);
                }
                self.children(Slots::Table(number), at, TABLE_BITS, Before::Leaf(from));
                table
            }
        }
    }

    /// A table as a leaf, if routes went and only few ranges are left.
    fn as_leaf(&mut self, table: Entry, place: At, hop: u32) -> Option<Entry> {
        let block = place.block;
        if !self.removed || !self.nodes.has_leaves(self.tree) {
            return None;
        }
        // Cheaper than to look at the routes: two entries that differ have a range between them or
        // in one of them.
        if let EntryKind::Table(number) = table.kind() {
            let entries = &self.tree.tables[number as usize];
            let differ = entries.windows(2).filter(|two| two[0] != two[1]);
            if differ.take(2 * FEW + 3).count() > 2 * FEW + 2 {
                return None;
            }
        }
        let ranges = Ranges::of(self.rib, place.descent, block, hop, FEW)?;
        let at = block.len();
        let left = |tree: &Tree, key| find(tree, table, at, key);
        let key = span_of(self.change.first(), span_from(at));
        let of_change = left(self.tree, key);
        self.free_left_beyond(block, |_| of_change);
        let leaf = self.leaf(&ranges, place, left);
        let end = span_from(at) + SPAN_BITS;
        self.nodes.free_until(self.tree, table, at, end);
        Some(self.nodes.add_leaf(self.tree, &leaf))
    }

    /// The leaf of these ranges; `old` finds what lay beyond the span.
    fn leaf(&mut self, ranges: &Ranges, around: At, old: impl Fn(&Tree, u32) -> Entry) -> Leaf {
        let block = around.block;
        let span = span_from(block.len());
        let mut leaf = Leaf::EMPTY;
        let mut last = Entry::NONE;
        for at in 0..RANGES {
            if at < ranges.len {
                let mut key = ranges.keys[at];
                last = match ranges.whats[at] {
                    What::Hop(hop) => self.nodes.hop(hop),
                    What::Beyond(hop) => {
                        if at == 0 {
                            key = span_of(block.first(), span);
                        }
                        let from = in_span(block, span, key);
                        let old = old(self.tree, key);
                        let there = self.inside(around, Prefix6::of(from, span + SPAN_BITS));
                        self.beyond(old, there, hop)
                    }
                };
                leaf.keys[at] = ranges.keys[at];
            } else {
                leaf.keys[at] = u32::MAX;
            }
            leaf.entries[at] = last;
        }
        leaf
    }

    /// Makes a block beyond the span, unless `old` still is what it should be.
    fn beyond(&mut self, old: Entry, at: At, hop: u32) -> Entry {
        let block = at.block;
        let touched = self.change.covers(block) || block.covers(self.change);
        match old.is_node() {
            true if !touched => old,
            true => self.block(old, at, hop),
            false => self.block(Entry::NONE, at, hop),
        }
    }

    /// Frees what lies beyond the span of `block` and has lost its last route to the change.
    fn free_left_beyond(&mut self, block: Prefix6, find: impl Fn(u32) -> Entry) {
        let span = span_from(block.len());
        let end = span + SPAN_BITS;
        if self.change.len() <= end {
            return;
        }
        let old = find(span_of(self.change.first(), span));
        if old.is_node() && !self.rib.has_longer(Prefix6::of(self.change.first(), end)) {
            self.nodes.free(self.tree, old, end);
        }
    }
}

/// A block, and where the routes have it.
#[derive(Clone, Copy)]
struct At {
    block: Prefix6,
    descent: Descent,
}

impl At {
    /// The next hop of the longest route that covers it.
    fn hop(self) -> u32 {
        self.descent.next_hop().unwrap_or(NO_ROUTE)
    }
}

/// The address in `block` whose span at `span` is `key`, all zero beyond.
fn in_span(block: Prefix6, span: u8, key: u32) -> u128 {
    Prefix6::of(block.first(), span).first() | u128::from(key) << 96 >> span
}

/// What stands for `key` of a span at its end, or on the way there if nothing is below; from an
/// entry at bit `at` on.
fn find(tree: &Tree, mut entry: Entry, mut at: u8, key: u32) -> Entry {
    let end = span_from(at) + SPAN_BITS;
    while at < end {
        match entry.kind() {
            EntryKind::Table(number) => {
                let index = (key >> (end - at - TABLE_BITS)) as usize & 255;
                entry = tree.tables[number as usize][index];
                at += TABLE_BITS;
            }
            EntryKind::Leaf(number) => return tree.leaves[number as usize].find(key),
            EntryKind::Hop(_) | EntryKind::Far(_) => return entry,
        }
    }
    entry
}
