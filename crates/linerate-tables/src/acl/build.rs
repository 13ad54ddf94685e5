//! Which bits a node picks, and which rules go to which tree.
//!
//! Rules fall into four classes: those that know both addresses, one of them, or none. One tree
//! for all would hold every rule that leaves an address open in a great many leaves. So the first
//! tree is made for the largest class, the next for the largest class of what is left, and so on;
//! each also takes rules of other classes that need few copies in it. What is left in the end, and
//! rules that no bits tell apart, go to the last leaf.
//!
//! Bits are chosen one after the other: the one that leaves the fewest rules to look through. The
//! measure of a choice is the sum over the children of n * max(n, 8), n being the child's rules:
//! the cost of a leaf of 8, one block, is not lowered by splitting it.

use super::block::{LANES, Lane};
use super::generate::{Random, inside};
use super::key::PacketKey;
use super::rules::Rules;
use super::tree::{DEPTH, LEAF_BLOCKS, MOST_COPIES, Tree, Trees, children};
use super::window::{Ternary, WINDOWS};
use linerate_core::MemError;

/// The most trees; each costs every packet a walk.
pub(super) const TREES: usize = 8;
/// So few rules, for each tree there is, are better looked through than given a tree.
const LAST: usize = 4 * LANES;
/// Bits are chosen by a sample of at most so many rules.
const SAMPLE: usize = 1024;
/// A node picks at most so many bits.
const NODE_BITS: usize = 13;
/// The most leaves of a tree that one rule may lie in: both are tried, and the cheaper trees kept.
/// Many copies save trees, few keep the leaves short.
const COPIES: [usize; 2] = [MOST_COPIES / 2, MOST_COPIES];
/// Packets by which they are judged.
const TRIED: usize = 1024;
/// Children may hold so many times the rules of their node, together.
const GROWTH: f64 = 1.6;
/// A bit must lower the measure at least to this part of it.
const WORTH: f64 = 0.97;

/// What one tree is made of.
struct Build<'a, const W: usize> {
    trees: &'a mut Trees<W>,
    rules: &'a Rules<W>,
    /// Rules that have to go elsewhere, perhaps more than once.
    spilled: Vec<u32>,
    /// Whether some do since they would need too many copies.
    is_limited: bool,
}

impl<const W: usize> Trees<W> {
    /// Trees for these rules. O(n log n).
    pub(super) fn build(rules: &Rules<W>) -> Result<Self, MemError> {
        let slots = rules.slots_in_order();
        let packets: Vec<PacketKey<W>> = match slots.len() as u64 {
            0 => Vec::new(),
            many => {
                let mut random = Random::new(many);
                let mut slot = || slots[random.below(many) as usize];
                let drawn: Vec<u32> = (0..TRIED).map(|_| slot()).collect();
                let matches = drawn.iter().map(|slot| &rules.rule(*slot).matching);
                matches.map(|rule| inside(rule, &mut random)).collect()
            }
        };
        let (mut few, is_limited) = Self::build_with(COPIES[0], &slots, rules)?;
        if !is_limited {
            // With more copies it would be the same: no rule needs as many.
            few.most_copies = COPIES[1];
            return Ok(few);
        }
        let (many, _) = Self::build_with(COPIES[1], &slots, rules)?;
        match few.cost(&packets, rules) < many.cost(&packets, rules) {
            true => Ok(few),
            false => Ok(many),
        }
    }

    /// Also says whether a rule went to a later tree for the number of its copies.
    fn build_with(
        copies: usize,
        slots: &[u32],
        rules: &Rules<W>,
    ) -> Result<(Self, bool), MemError> {
        let mut is_limited = false;
        let mut trees = Self::new(rules.len(), copies)?;
        let mut left = slots.to_vec();
        while trees.trees.len() < TREES && left.len() > LAST * trees.trees.len().max(1) {
            let mut build = Build {
                trees: &mut trees,
                rules,
                spilled: Vec::new(),
                is_limited: false,
            };
            let Some(tree) = build.tree(&left)? else {
                break;
            };
            is_limited |= build.is_limited;
            left = build.spilled;
            left.sort_unstable_by_key(|slot| rules.order(*slot));
            left.dedup();
            trees.trees.push(tree);
        }
        let lanes: Vec<Lane<W>> = left.iter().map(|slot| rules.lane(*slot)).collect();
        trees.reserve(0, 2 * lanes.len().div_ceil(LANES))?;
        trees.set_lanes(trees.last, &lanes);
        Ok((trees, is_limited))
    }

    /// What a lookup of these packets costs, in cycles or so each: 2 for a node, 3 for a block,
    /// 4 more for each block behind the first (a branch that is hard to foretell).
    fn cost(&self, packets: &[PacketKey<W>], rules: &Rules<W>) -> u64 {
        let mut cost = 0;
        for packet in packets {
            let windows = packet.windows();
            let mut best = u64::MAX;
            let roots = self.trees.iter().map(|tree| tree.root);
            for root in roots.chain([self.last]) {
                let mut node = self.nodes()[root as usize];
                while !node.is_leaf() {
                    node = self.nodes()[node.child(&windows) as usize];
                    cost += 2;
                }
                let mut run = node.info as usize;
                loop {
                    let block = &self.blocks()[run];
                    cost += 3;
                    if let lanes @ 1.. = block.matching(packet) {
                        let first = block.lane(lanes.trailing_zeros() as usize);
                        best = best.min(rules.order(first.rule()));
                        break;
                    }
                    run += 1;
                    if !block.goes_on() || rules.order(self.blocks()[run].lane(0).rule()) > best {
                        break;
                    }
                    cost += 4;
                }
            }
        }
        cost
    }

    /// Makes a leaf a node, where that is better, that picks at most so many bits and has leaves
    /// below it.
    pub(super) fn split(
        &mut self,
        node: u32,
        bits: usize,
        rules: &Rules<W>,
    ) -> Result<(), MemError> {
        let slots: Vec<u32> = self.lanes(node).iter().map(Lane::rule).collect();
        let mut build = Build {
            trees: self,
            rules,
            spilled: Vec::new(),
            is_limited: false,
        };
        if let Some(choice) = build.choose(&slots, bits) {
            build.trees.set_lanes(node, &[]);
            build.branch(node, DEPTH - 1, &slots, &choice, false)?;
        }
        Ok(())
    }
}

impl<const W: usize> Build<'_, W> {
    /// Makes a tree of those rules that need few copies in it; `None` where there are none.
    fn tree(&mut self, slots: &[u32]) -> Result<Option<Tree>, MemError> {
        let class = |slot: u32| {
            let matching = &self.rules.rule(slot).matching;
            let specific = |bits: u8| usize::from(usize::from(bits) >= 10 * W);
            2 * specific(matching.src.bits()) + specific(matching.dst.bits())
        };
        let mut classes = [const { Vec::new() }; 4];
        slots
            .iter()
            .for_each(|slot| classes[class(*slot)].push(*slot));
        let focus = classes.into_iter().max_by_key(Vec::len).unwrap_or_default();
        let Some(choice) = self.choose(&focus, NODE_BITS) else {
            return Ok(None);
        };
        let most = self.trees.most_copies;
        let copies = |slot: &u32| {
            let care = self.rules.ternary(*slot).care[choice.window];
            1usize << (choice.mask & !care).count_ones()
        };
        let (taken, spilled): (Vec<u32>, Vec<u32>) =
            slots.iter().partition(|slot| copies(slot) <= most);
        self.is_limited = !spilled.is_empty();
        self.spilled = spilled;
        self.trees.reserve(1, 0)?;
        let root = self.trees.leaf();
        self.branch(root, 0, &taken, &choice, true)?;
        Ok(Some(Tree { root }))
    }

    /// Gives a leaf without rules these, as a node where that is better.
    fn below(
        &mut self,
        node: u32,
        depth: u32,
        slots: &[u32],
        may_spill: bool,
    ) -> Result<(), MemError> {
        let choice = match slots.len() > LANES && depth < DEPTH {
            true => self.choose(slots, NODE_BITS),
            false => None,
        };
        if let Some(choice) = choice {
            return self.branch(node, depth, slots, &choice, may_spill);
        }
        let fit = match may_spill {
            true => slots.len().min(LANES * LEAF_BLOCKS),
            false => slots.len(),
        };
        self.spilled.extend(&slots[fit..]);
        let lanes: Vec<Lane<W>> = slots[..fit]
            .iter()
            .map(|slot| self.rules.lane(*slot))
            .collect();
        self.trees
            .reserve(0, lanes.len().div_ceil(LANES).next_power_of_two())?;
        self.trees.set_lanes(node, &lanes);
        Ok(())
    }

    /// Makes a leaf without rules a node that picks the chosen bits, and gives its children the
    /// rules.
    fn branch(
        &mut self,
        node: u32,
        depth: u32,
        slots: &[u32],
        choice: &Choice,
        may_spill: bool,
    ) -> Result<(), MemError> {
        let many = 1 << choice.mask.count_ones();
        self.trees.reserve(many, 0)?;
        let branch = self.trees.branch(node, choice.window, choice.mask);
        let mut lists = vec![Vec::new(); many];
        for slot in slots {
            for child in children(&branch, &self.rules.ternary(*slot)) {
                lists[(child - branch.base) as usize].push(*slot);
            }
        }
        for (child, slots) in (branch.base..).zip(lists) {
            self.below(child, depth + 1, &slots, may_spill)?;
        }
        Ok(())
    }

    /// The best bits for these rules, if any are good; so many at most that there are not more
    /// children than rules.
    fn choose(&self, slots: &[u32], bits: usize) -> Option<Choice> {
        let step = slots.len().div_ceil(SAMPLE).max(1);
        let sample: Vec<Ternary> = slots
            .iter()
            .step_by(step)
            .map(|slot| self.rules.ternary(*slot))
            .collect();
        let most = slots.len().next_power_of_two().trailing_zeros() as usize;
        let full = LANES as f64 / step as f64;
        let mut best: Option<Choice> = None;
        for window in 0..WINDOWS {
            let choice = choose_in(window, &sample, full, most.min(bits));
            best = match (best, choice) {
                (Some(best), Some(choice)) if choice.measure < best.measure => Some(choice),
                (None, choice) => choice,
                (best, _) => best,
            };
        }
        best
    }
}

/// The bits to pick, and how good the choice is.
struct Choice {
    window: usize,
    mask: u64,
    measure: f64,
}

/// Rules that fall to one child of the bits chosen so far, by what they know of one more bit.
#[derive(Clone, Copy, Default)]
struct Group {
    zero: u32,
    one: u32,
}

/// Chooses bits of one window, `full` rules of the sample being a block.
fn choose_in(window: usize, sample: &[Ternary], full: f64, bits: usize) -> Option<Choice> {
    let cost = |rules: u32| f64::from(rules) * f64::from(rules).max(full);
    let most = (sample.len() as f64 * GROWTH) as u32;
    // Each rule's value and known bits, and the child it falls to; more than once with copies.
    let mut entries: Vec<(u64, u64, u32)> = sample
        .iter()
        .map(|rule| (rule.value[window], rule.care[window], 0))
        .collect();
    let open = entries.iter().fold(0, |open, (_, care, _)| open | care);
    let mut choice = Choice {
        window,
        mask: 0,
        measure: cost(sample.len() as u32),
    };
    for chosen in 0..bits {
        let groups = 1 << chosen;
        let mut sizes = vec![0; groups];
        let mut known = vec![[Group::default(); 64]; groups];
        for &(value, care, group) in &entries {
            sizes[group as usize] += 1;
            let groups = &mut known[group as usize];
            let mut left = care & open & !choice.mask;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                match value >> bit & 1 {
                    0 => groups[bit].zero += 1,
                    _ => groups[bit].one += 1,
                }
                left &= left - 1;
            }
        }
        let mut best = (f64::MAX, 0);
        for bit in (0..64).filter(|bit| (open & !choice.mask) >> bit & 1 != 0) {
            let (mut measure, mut copies) = (0.0, 0);
            for (size, known) in sizes.iter().zip(&known) {
                let Group { zero, one } = known[bit];
                measure += cost(size - zero) + cost(size - one);
                copies += 2 * size - zero - one;
            }
            if copies <= most && measure < best.0 {
                best = (measure, bit);
            }
        }
        let (measure, bit) = best;
        if measure > choice.measure * WORTH {
            break;
        }
        choice.measure = measure;
        choice.mask |= 1 << bit;
        let many = entries.len();
        for at in 0..many {
            let (value, care, group) = entries[at];
            let half = 1 << chosen;
            if care >> bit & 1 == 0 {
                entries.push((value, care, group | half));
            } else if value >> bit & 1 != 0 {
                entries[at].2 = group | half;
            }
        }
    }
    (choice.mask != 0).then_some(choice)
}
