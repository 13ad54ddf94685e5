//! A group of packets through all trees, side by side, so that the memory that one waits for comes
//! while the others are looked at.
//!
//! [`crate::simd::acl`] makes a function of each level of instructions from these.

use std::hint::select_unpredictable;

use linerate_core::arch::prefetch_read;

use super::block::{Block, MORE_FIELDS, SLOT};
use super::key::PacketKey;
use super::rules::Rules;
use super::tree::{Node, Trees};
use super::window::{WINDOWS, Windows};

/// Packets that go through the trees side by side, at most: each function here is compiled for a
/// whole group, and for one packet alone.
pub(crate) const GROUP: usize = 64;
/// The most categories: bits of [`Rule::categories`](super::Rule::categories).
pub(crate) const CATEGORIES: usize = 16;

/// What a level of instructions has of its own.
#[derive(Clone, Copy)]
pub(crate) struct Level<Extract, Matching, First> {
    /// As [`window::extract`](super::window::extract).
    pub(crate) extract: Extract,
    /// As [`Block::matching`].
    pub(crate) matching: Matching,
    /// As [`Block::first`].
    pub(crate) first: First,
}

/// Finds the slot of the rule that wins for each of the first `many` packets, 0 where none matches.
#[inline(always)]
pub(crate) fn winners<const W: usize, const N: usize>(
    trees: &Trees<W>,
    rules: &Rules<W>,
    (packets, many): (&[PacketKey<W>; N], usize),
    slots: &mut [u32; N],
    level: Level<
        impl Fn(u64, u64) -> u64 + Copy,
        impl Fn(&Block<W>, &PacketKey<W>) -> u32 + Copy,
        impl Fn(&Block<W>, u32) -> u32 + Copy,
    >,
) {
    let (blocks, records) = (trees.blocks(), rules.records());
    let mut orders = [u64::MAX; N];
    *slots = [0; N];
    let alone = trees.places() == 1;
    each_place(trees, packets, many, level.extract, |starts| {
        let best = slots.iter_mut().zip(&mut orders);
        let each = packets.iter().zip(starts).zip(best).take(many);
        let look = |packet: &_, start: u32, order: u64| {
            let found = first(blocks, rules, packet, start, order, &level);
            match found & MORE_FIELDS {
                0 => found,
                _ => first_in_full(blocks, rules, packet, start, level.matching),
            }
        };
        if alone {
            // Only this loop needs the winner.
            each.for_each(|((packet, start), (best, _))| *best = look(packet, *start, u64::MAX));
        } else {
            each.for_each(|((packet, start), (best, order))| {
                let found = look(packet, *start, *order);
                let own = records[found as usize].order;
                *best = select_unpredictable(own < *order, found, *best);
                *order = own.min(*order);
            });
        }
    });
}

/// For each packet and category the slot of the rule that wins in it, 0 where none matches.
#[inline(always)]
pub(crate) fn winners_by_category<const W: usize>(
    trees: &Trees<W>,
    rules: &Rules<W>,
    (packets, many): (&[PacketKey<W>; GROUP], usize),
    slots: &mut [[u32; CATEGORIES]; GROUP],
    extract: impl Fn(u64, u64) -> u64 + Copy,
    matching: impl Fn(&Block<W>, &PacketKey<W>) -> u32 + Copy,
) {
    let (blocks, records) = (trees.blocks(), rules.records());
    *slots = [[0; CATEGORIES]; GROUP];
    each_place(trees, packets, many, extract, |starts| {
        for ((packet, start), slots) in packets.iter().zip(starts).zip(&mut *slots).take(many) {
            each_match(blocks, rules, packet, *start, matching, |slot| {
                let record = &records[slot as usize];
                let mut categories = record.categories;
                while categories != 0 {
                    let best = &mut slots[categories.trailing_zeros() as usize % CATEGORIES];
                    if record.order < records[*best as usize].order {
                        *best = slot;
                    }
                    categories &= categories - 1;
                }
                false
            });
        }
    });
}

/// Calls `look` for each tree and for the last leaf, with the first blocks of the leaves that the
/// packets reach there.
#[inline(always)]
fn each_place<const W: usize, const N: usize>(
    trees: &Trees<W>,
    packets: &[PacketKey<W>; N],
    many: usize,
    extract: impl Fn(u64, u64) -> u64 + Copy,
    mut look: impl FnMut(&[u32; N]),
) {
    let windows: [Windows; N] = std::array::from_fn(|packet| packets[packet].windows());
    let (nodes, blocks) = (trees.nodes(), trees.blocks());
    for tree in &trees.trees {
        let mut at = [0; N];
        let root = &nodes[tree.root as usize];
        descend(nodes, blocks, root, &windows, many, &mut at, extract);
        look(&at);
    }
    if trees.last_start() != 0 {
        look(&[trees.last_start(); N]);
    }
}

/// From a root to the first blocks of the leaves: all packets a step, then those that are not at a
/// leaf yet another.
#[inline(always)]
fn descend<const W: usize, const N: usize>(
    nodes: &[Node],
    blocks: &[Block<W>],
    root: &Node,
    windows: &[Windows; N],
    many: usize,
    at: &mut [u32; N],
    extract: impl Fn(u64, u64) -> u64 + Copy,
) {
    let child = |node: &Node, windows: &Windows| {
        let window = windows[node.info as usize % WINDOWS];
        node.base.wrapping_add(extract(window, node.mask) as u32)
    };
    for (at, windows) in at.iter_mut().zip(windows).take(many) {
        *at = child(root, windows);
        prefetch_read(nodes.as_ptr().wrapping_add(*at as usize));
    }
    // Packets that are not at a leaf yet; there are at most as many as were looked at.
    let mut walking = [0_u8; N];
    let mut still = 0;
    let mut visit = |packet: usize, still: &mut usize, walking: &mut [u8; N]| {
        let node = &nodes[at[packet] as usize];
        let goes_on = node.mask != 0;
        let next = child(node, &windows[packet]);
        let node_at = nodes.as_ptr().wrapping_add(next as usize).cast::<u8>();
        let block_at = blocks.as_ptr().wrapping_add(node.info as usize).cast();
        let memory = select_unpredictable(goes_on, node_at, block_at);
        // Of a node the first line is enough, but a branch would cost more.
        for line in 0..size_of::<Block<W>>() / 64 {
            prefetch_read(memory.wrapping_add(64 * line));
        }
        at[packet] = select_unpredictable(goes_on, next, node.info);
        walking[*still % N] = packet as u8;
        *still += usize::from(goes_on);
    };
    for packet in 0..many.min(N) {
        visit(packet, &mut still, &mut walking);
    }
    while still > 0 {
        let left = still;
        still = 0;
        for turn in 0..left.min(N) {
            let packet = usize::from(walking[turn]) % N;
            visit(packet, &mut still, &mut walking);
        }
    }
}

/// The marked slot of the first lane of a run that matches, 0 where none does. It leaves the run
/// where its next block begins with a rule that does not win over `order`.
#[inline(always)]
fn first<const W: usize>(
    blocks: &[Block<W>],
    rules: &Rules<W>,
    packet: &PacketKey<W>,
    start: u32,
    order: u64,
    level: &Level<
        impl Fn(u64, u64) -> u64,
        impl Fn(&Block<W>, &PacketKey<W>) -> u32,
        impl Fn(&Block<W>, u32) -> u32,
    >,
) -> u32 {
    let mut run = start as usize;
    loop {
        let block = &blocks[run];
        let lanes = (level.matching)(block, packet);
        // One branch, which is seldom taken.
        if (lanes == 0) & block.goes_on() {
            run += 1;
            let next = blocks[run].slots[0] & SLOT;
            if rules.order(next) < order {
                continue;
            }
        }
        return (level.first)(block, lanes);
    }
}

/// As [`first`], looking at each rule that asks for fields that its lane does not hold.
#[inline(always)]
fn first_in_full<const W: usize>(
    blocks: &[Block<W>],
    rules: &Rules<W>,
    packet: &PacketKey<W>,
    start: u32,
    matching: impl Fn(&Block<W>, &PacketKey<W>) -> u32,
) -> u32 {
    let mut found = 0;
    each_match(blocks, rules, packet, start, matching, |slot| {
        found = slot;
        true
    });
    found
}

/// Calls `each` for every rule of a run that matches, in order, until it says that it is enough.
#[inline(always)]
fn each_match<const W: usize>(
    blocks: &[Block<W>],
    rules: &Rules<W>,
    packet: &PacketKey<W>,
    start: u32,
    matching: impl Fn(&Block<W>, &PacketKey<W>) -> u32,
    mut each: impl FnMut(u32) -> bool,
) {
    for block in &blocks[start as usize..] {
        let mut lanes = matching(block, packet);
        while lanes != 0 {
            let marked = block.slots[lanes.trailing_zeros() as usize];
            lanes &= lanes - 1;
            let slot = marked & SLOT;
            let matches = marked & MORE_FIELDS == 0 || rules.rule(slot).matching.matches(packet);
            if slot != 0 && matches && each(slot) {
                return;
            }
        }
        if !block.goes_on() {
            return;
        }
    }
}
