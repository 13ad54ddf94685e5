//! Trees: a node picks a few bits of a window and goes to one of its children; a leaf is a run of
//! blocks.
//!
//! A rule lies in every leaf that a packet which it matches may reach: once where it knows all the
//! bits that the nodes pick, twice for each that it does not. That is why there are several trees,
//! see [`build`](super::build), and how many copies a rule may have in one is bounded. What is in
//! no tree is in the last leaf, which every packet looks through.

use super::arena::Arena;
use super::block::{Block, LANES, Lane, RUN_GOES_ON};
use super::rules::Rules;
use super::window::{Ternary, Windows, extract};
use linerate_core::MemError;

/// The most leaves of a tree that one rule may lie in.
pub(super) const MOST_COPIES: usize = 16;
/// The most blocks of a leaf of a tree; the last leaf has no such bound.
pub(super) const LEAF_BLOCKS: usize = 4;
/// The most nodes above a leaf, as trees are built; adding rules makes them deeper.
pub(super) const DEPTH: u32 = 8;
/// The most bits that a node picks where a leaf is split.
const SPLIT_BITS: usize = 3;
/// Nodes that one insertion may take: each copy splits a leaf.
const NODES: usize = MOST_COPIES << SPLIT_BITS;
/// Blocks that one insertion may take: the rules of a split leaf, once or twice each, in runs that
/// are rounded up to a power of two, and one more for each child.
const BLOCKS: usize = MOST_COPIES * (4 * LEAF_BLOCKS + (1 << SPLIT_BITS));
/// The block of all leaves without rules; it is never written.
const NO_RULES: u32 = 0;

/// A node, 16 bytes. It goes to the child `base + extract(window, mask)`; a leaf picks no bits and
/// goes to itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) mask: u64,
    pub(crate) base: u32,
    /// The window in which it picks bits; of a leaf the first of its blocks.
    pub(crate) info: u32,
}

impl Node {
    const EMPTY: Self = Self {
        mask: 0,
        base: 0,
        info: NO_RULES,
    };

    pub(super) fn is_leaf(&self) -> bool {
        self.mask == 0
    }

    /// Where a packet goes next.
    pub(super) fn child(&self, windows: &Windows) -> u32 {
        self.base + extract(windows[self.info as usize], self.mask) as u32
    }
}

/// One tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    pub(super) root: u32,
}

/// All trees of a table, and the last leaf.
pub(crate) struct Trees<const W: usize> {
    nodes: Arena<Node>,
    blocks: Arena<Block<W>>,
    pub(super) trees: Vec<Tree>,
    /// The last leaf's node.
    pub(super) last: u32,
    pub(super) most_copies: usize,
}

impl<const W: usize> Trees<W> {
    /// Only the last leaf, without rules; room for about `rules` of them.
    pub(super) fn new(rules: usize, most_copies: usize) -> Result<Self, MemError> {
        let nodes = (NODES + rules / 2).next_power_of_two();
        let blocks = (BLOCKS + rules / 4).next_power_of_two();
        let mut trees = Self {
            nodes: Arena::new("acl nodes", nodes, Node::EMPTY)?,
            blocks: Arena::new("acl blocks", blocks, Block::EMPTY)?,
            trees: Vec::new(),
            last: 0,
            most_copies,
        };
        trees.blocks.take(1); // NO_RULES
        trees.last = trees.leaf();
        Ok(trees)
    }

    /// Others with the same content.
    pub(super) fn copy(&self) -> Result<Self, MemError> {
        Ok(Self {
            nodes: self.nodes.copy()?,
            blocks: self.blocks.copy()?,
            trees: self.trees.clone(),
            ..*self
        })
    }

    /// All nodes.
    #[inline]
    pub(super) fn nodes(&self) -> &[Node] {
        self.nodes.elements()
    }

    /// The first block of the last leaf; 0 where it has no rules.
    #[inline]
    pub(super) fn last_start(&self) -> u32 {
        self.nodes()[self.last as usize].info
    }

    /// Where packets have to look: trees, and the last leaf where it has rules.
    #[inline]
    pub(super) fn places(&self) -> usize {
        self.trees.len() + usize::from(self.last_start() != 0)
    }

    /// All blocks.
    #[inline]
    pub(super) fn blocks(&self) -> &[Block<W>] {
        self.blocks.elements()
    }

    /// Memory.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.bytes() + self.blocks.bytes()
    }

    /// Memory after [`reserve`](Self::reserve).
    pub(super) fn bytes_with(&self, nodes: usize, blocks: usize) -> usize {
        self.nodes.bytes_with(nodes) + self.blocks.bytes_with(blocks)
    }

    /// Nodes and blocks that so many insertions may need.
    pub(super) fn headroom(&self, insertions: usize) -> (usize, usize) {
        let last = self.run_blocks(self.last_start()) + insertions;
        (
            NODES * insertions,
            BLOCKS * insertions + 2 * last.next_power_of_two(),
        )
    }

    /// Makes sure that so many nodes and blocks can be taken.
    pub(super) fn reserve(&mut self, nodes: usize, blocks: usize) -> Result<(), MemError> {
        self.nodes.reserve(nodes)?;
        self.blocks.reserve(blocks)
    }

    /// A new leaf without rules.
    pub(super) fn leaf(&mut self) -> u32 {
        let node = self.nodes.take(1);
        self.set_empty(node);
        node
    }

    fn set_empty(&mut self, node: u32) {
        self.nodes.run_mut(node, 1)[0] = Node {
            base: node,
            ..Node::EMPTY
        };
    }

    /// Turns a leaf without rules into a node that picks these bits, with leaves below it.
    pub(super) fn branch(&mut self, node: u32, window: usize, mask: u64) -> Node {
        let children = 1 << mask.count_ones();
        let base = self.nodes.take(children);
        (0..children as u32).for_each(|child| self.set_empty(base + child));
        let branch = Node {
            mask,
            base,
            info: window as u32,
        };
        self.nodes.run_mut(node, 1)[0] = branch;
        branch
    }

    fn run_blocks(&self, start: u32) -> usize {
        let blocks = &self.blocks.elements()[start as usize..];
        1 + blocks.iter().take_while(|block| block.goes_on()).count()
    }

    /// The rules of a leaf, in order.
    pub(super) fn lanes(&self, leaf: u32) -> Vec<Lane<W>> {
        let start = self.nodes()[leaf as usize].info;
        let blocks = self.blocks.run(start, self.run_blocks(start));
        let lanes = blocks
            .iter()
            .flat_map(|block| (0..LANES).map(|lane| block.lane(lane)));
        lanes.filter(|lane| lane.rule() != 0).collect()
    }

    /// Replaces the rules of a leaf. O(blocks).
    pub(super) fn set_lanes(&mut self, leaf: u32, lanes: &[Lane<W>]) {
        let old = self.nodes()[leaf as usize].info;
        if old != NO_RULES {
            self.blocks.give(old, self.run_blocks(old));
        }
        let mut start = NO_RULES;
        if !lanes.is_empty() {
            let len = lanes.len().div_ceil(LANES);
            start = self.blocks.take(len);
            let run = self.blocks.run_mut(start, len);
            for (block, lanes) in run.iter_mut().zip(lanes.chunks(LANES)) {
                let each = lanes.iter().enumerate();
                each.for_each(|(at, lane)| block.set_lane(at, lane));
            }
            let before_last = &mut run[..len - 1];
            before_last
                .iter_mut()
                .for_each(|block| block.slots[LANES - 1] |= RUN_GOES_ON);
        }
        self.nodes.run_mut(leaf, 1)[0].info = start;
    }

    /// Adds a rule to a leaf, behind those that win over it. Returns how many it has.
    pub(super) fn insert_lane(&mut self, leaf: u32, lane: &Lane<W>, rules: &Rules<W>) -> usize {
        let mut lanes = self.lanes(leaf);
        let order = rules.order(lane.rule());
        let at = lanes.partition_point(|other| rules.order(other.rule()) < order);
        lanes.insert(at, *lane);
        self.set_lanes(leaf, &lanes);
        lanes.len()
    }

    /// In how many leaves a rule would lie; `None` where it is too many, or one of them is full.
    fn copies(&self, node: u32, rule: &Ternary) -> Option<usize> {
        let at = self.nodes()[node as usize];
        if at.is_leaf() {
            return (self.run_blocks(at.info) < LEAF_BLOCKS).then_some(1);
        }
        let mut copies = 0;
        for child in children(&at, rule) {
            copies += self.copies(child, rule)?;
            if copies > self.most_copies {
                return None;
            }
        }
        Some(copies)
    }

    /// Adds a rule: to the first tree that takes it, else to the last leaf.
    pub(super) fn insert(&mut self, slot: u32, rules: &Rules<W>) -> Result<(), MemError> {
        let (lane, ternary) = (rules.lane(slot), rules.ternary(slot));
        for at in 0..self.trees.len() {
            let root = self.trees[at].root;
            if self.copies(root, &ternary).is_some() {
                return self.insert_below(root, &lane, &ternary, rules);
            }
        }
        self.insert_lane(self.last, &lane, rules);
        Ok(())
    }

    fn insert_below(
        &mut self,
        node: u32,
        lane: &Lane<W>,
        rule: &Ternary,
        rules: &Rules<W>,
    ) -> Result<(), MemError> {
        let at = self.nodes()[node as usize];
        if at.is_leaf() {
            let many = self.insert_lane(node, lane, rules);
            return match many > LANES && many % LANES == 1 {
                true => self.split(node, SPLIT_BITS, rules),
                false => Ok(()),
            };
        }
        for child in children(&at, rule) {
            self.insert_below(child, lane, rule, rules)?;
        }
        Ok(())
    }

    /// Takes a rule out of all leaves that it is in.
    pub(super) fn remove(&mut self, slot: u32, rules: &Rules<W>) {
        let ternary = rules.ternary(slot);
        for at in 0..self.trees.len() {
            self.remove_below(self.trees[at].root, slot, &ternary, rules);
        }
        self.remove_lane(self.last, slot);
    }

    fn remove_lane(&mut self, leaf: u32, slot: u32) {
        let mut lanes = self.lanes(leaf);
        if let Some(at) = lanes.iter().position(|lane| lane.rule() == slot) {
            lanes.remove(at);
            self.set_lanes(leaf, &lanes);
        }
    }

    fn remove_below(&mut self, node: u32, slot: u32, rule: &Ternary, rules: &Rules<W>) {
        let at = self.nodes()[node as usize];
        if at.is_leaf() {
            return self.remove_lane(node, slot);
        }
        children(&at, rule).for_each(|child| self.remove_below(child, slot, rule, rules));
        if at.mask.count_ones() as usize <= SPLIT_BITS {
            self.merge(node, rules);
        }
    }

    /// Makes a node a leaf again where all that its children hold fits into one block.
    fn merge(&mut self, node: u32, rules: &Rules<W>) {
        let at = self.nodes()[node as usize];
        let children = at.base..at.base + (1 << at.mask.count_ones());
        if children
            .clone()
            .any(|child| !self.nodes()[child as usize].is_leaf())
        {
            return;
        }
        let mut all: Vec<Lane<W>> = Vec::new();
        for lane in children.clone().flat_map(|child| self.lanes(child)) {
            if all.iter().all(|other| other.rule() != lane.rule()) {
                if all.len() == LANES {
                    return;
                }
                all.push(lane);
            }
        }
        // In order even where no packet could match two of them: rules that come later are placed
        // by it.
        all.sort_unstable_by_key(|lane| rules.order(lane.rule()));
        self.give_children(&at);
        self.set_empty(node);
        self.set_lanes(node, &all);
    }

    fn give_children(&mut self, at: &Node) {
        let many = 1 << at.mask.count_ones();
        (at.base..at.base + many).for_each(|child| self.set_lanes(child, &[]));
        self.nodes.give(at.base, many as usize);
    }

    /// The slots of all rules that are in the trees or in the last leaf, copies too.
    #[cfg(test)]
    #[cfg(not(linerate_threads))]
    pub(super) fn slots(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.trees.iter().map(|tree| tree.root).collect();
        nodes.push(self.last);
        let mut slots = Vec::new();
        while let Some(node) = nodes.pop() {
            let at = self.nodes()[node as usize];
            match at.is_leaf() {
                true => slots.extend(self.lanes(node).iter().map(|lane| lane.rule())),
                false => nodes.extend(at.base..at.base + (1 << at.mask.count_ones())),
            }
        }
        slots
    }
}

/// The children of a node that packets which a rule matches may reach.
pub(super) fn children(node: &Node, rule: &Ternary) -> impl Iterator<Item = u32> + use<> {
    let window = node.info as usize;
    let value = extract(rule.value[window], node.mask) as u32;
    let known = extract(rule.care[window], node.mask) as u32;
    let (base, free) = (node.base, !known & ((1 << node.mask.count_ones()) - 1));
    // Counts through the bits that are not known.
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let part: u32 = next?;
        next = (part != free).then(|| (part | !free).wrapping_add(1) & free);
        Some(base + (value | part))
    })
}
