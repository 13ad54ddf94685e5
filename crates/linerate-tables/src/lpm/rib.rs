//! The routes as the control plane knows them: exact, nested, and walked in order.
//!
//! A path-compressed binary trie in one array. A lookup table is compiled from it, region by
//! region: [`Rib::longest_within`] gives what a region inherits and [`Rib::walk`] what lies inside
//! it. Forwarding does not look here.
//!
//! A node is 20 bytes for IPv4 and 32 for IPv6; n routes need at most 2n nodes, and 1.4n in an
//! Internet table. Every operation walks at most one node per bit of the prefix.

use super::{Address, Prefix};
use crate::TableError;

/// Index of no node. The root is not a child of a node.
const NONE: u32 = 0;
const ROOT: u32 = 0;

/// Where two routes part, or a route, or both.
#[derive(Clone, Copy, Debug)]
struct Node<A> {
    address: A,
    /// Below this node, by the first bit beyond its length; in a free node [0] is the next free
    /// one.
    children: [u32; 2],
    next_hop: u32,
    len: u8,
    is_route: bool,
}

impl<A: Address> Node<A> {
    fn prefix(&self) -> Prefix<A> {
        Prefix::of(self.address, self.len)
    }
}

/// What [`Rib::walk`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<A> {
    /// A route and its next hop.
    Route(Prefix<A>, u32),
    /// Longer routes than were asked for lie in this prefix, which has the greatest length asked
    /// for. May come twice in a row for the same prefix.
    Longer(Prefix<A>),
}

/// A set of routes: prefixes, each with a next hop of 32 bits.
///
/// ```
/// use linerate_tables::lpm::Rib;
/// let mut rib = Rib::<u32>::new();
/// rib.insert("0.0.0.0/0".parse()?, 1)?;
/// rib.insert("10.0.0.0/8".parse()?, 2)?;
/// assert_eq!(rib.longest(0x0a01_0203), Some(("10.0.0.0/8".parse()?, 2)));
/// assert_eq!(rib.remove("10.0.0.0/8".parse()?), Some(2));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rib<A> {
    /// The root, which has length 0 and stays, is the first.
    nodes: Vec<Node<A>>,
    free: u32,
    free_nodes: usize,
    routes: usize,
}

impl<A: Address> Default for Rib<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// A position on the path to a prefix: a search for successive prefixes, each inside of the one
/// before, need not begin at the root each time. Valid until the routes change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent {
    /// The last node that covers the prefix.
    node: u32,
    /// The next hop of the longest route so far.
    next_hop: Option<u32>,
}

impl Descent {
    /// The next hop of the longest route that covers the prefix.
    pub(crate) fn next_hop(self) -> Option<u32> {
        self.next_hop
    }
}

impl<A: Address> Rib<A> {
    /// Bytes that one node takes. An insert adds two nodes at most.
    pub const NODE_BYTES: usize = size_of::<Node<A>>();

    /// No routes.
    pub fn new() -> Self {
        let root = Node {
            address: A::ZERO,
            children: [NONE; 2],
            next_hop: 0,
            len: 0,
            is_route: false,
        };
        Self {
            nodes: vec![root],
            free: NONE,
            free_nodes: 0,
            routes: 0,
        }
    }

    /// How many routes it holds.
    pub fn len(&self) -> usize {
        self.routes
    }

    /// Whether it holds no route.
    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// All memory of it, in bytes, room for more routes included.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * Self::NODE_BYTES
    }

    /// How many bytes [`memory_bytes`](Self::memory_bytes) may rise by with the next insert.
    pub fn growth_bytes(&self) -> usize {
        match self.room() {
            0 | 1 => self.growth() * Self::NODE_BYTES,
            _ => 0,
        }
    }

    /// By how many nodes it grows: an eighth, so that growing costs little, and so does the room.
    fn growth(&self) -> usize {
        (self.nodes.len() / 8).max(16)
    }

    /// Adds a route, or gives one another next hop. Returns the next hop that it had.
    ///
    /// # Errors
    /// If memory for its nodes cannot be had; the routes are as before.
    pub fn insert(&mut self, prefix: Prefix<A>, next_hop: u32) -> Result<Option<u32>, TableError> {
        let (mut above, mut at) = (ROOT, ROOT);
        loop {
            let node = &mut self.nodes[at as usize];
            if at != ROOT || prefix.len() == 0 {
                let common = node.address.common(prefix.first());
                if common.min(prefix.len()) < node.len {
                    break; // it parts from the path here
                }
                if node.len == prefix.len() {
                    let had = node.is_route.then_some(node.next_hop);
                    (node.is_route, node.next_hop) = (true, next_hop);
                    self.routes += usize::from(had.is_none());
                    return Ok(had);
                }
            }
            above = at;
            at = node.children[usize::from(prefix.first().bit(node.len))];
            if at == NONE {
                break;
            }
        }
        let forks = at != NONE && !prefix.covers(self.nodes[at as usize].prefix());
        self.reserve(1 + usize::from(forks))?;
        let added = self.add(prefix, true, next_hop);
        let below = match at {
            NONE => added,
            _ => self.join(added, at),
        };
        self.link(above, below);
        self.routes += 1;
        Ok(None)
    }

    /// Takes a route out. Returns its next hop, or `None` if there was no such route.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        // The two nodes above it: a node that is neither a route nor a fork goes too.
        let (mut above, mut parent, mut at) = (ROOT, ROOT, ROOT);
        loop {
            let node = &self.nodes[at as usize];
            if !node.prefix().covers(prefix) {
                return None;
            }
            if node.len == prefix.len() {
                break;
            }
            (above, parent) = (parent, at);
            at = node.children[usize::from(prefix.first().bit(node.len))];
            if at == NONE {
                return None;
            }
        }
        let node = &mut self.nodes[at as usize];
        if !node.is_route {
            return None;
        }
        let next_hop = node.next_hop;
        node.is_route = false;
        self.routes -= 1;
        if at != ROOT {
            self.drop_idle(at, parent);
            if parent != ROOT {
                self.drop_idle(parent, above);
            }
        }
        Some(next_hop)
    }

    /// The next hop of exactly this route.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        let last = self.path(prefix.first(), prefix.len()).last()?;
        (last.is_route && last.len == prefix.len()).then_some(last.next_hop)
    }

    /// The longest route that holds `address`, and its next hop.
    pub fn longest(&self, address: A) -> Option<(Prefix<A>, u32)> {
        self.longest_within(address, A::BITS)
    }

    /// The longest route of at most `max_len` bits that holds `address`, and its next hop.
    #[inline]
    pub fn longest_within(&self, address: A, max_len: u8) -> Option<(Prefix<A>, u32)> {
        let routes = self.path(address, max_len).filter(|node| node.is_route);
        routes.last().map(|node| (node.prefix(), node.next_hop))
    }

    /// The routes that cover `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.path(prefix.first(), prefix.len())
            .filter(|node| node.is_route)
            .map(|node| (node.prefix(), node.next_hop))
    }

    /// The routes that `prefix` covers, itself included, by address and then by length: each
    /// follows those that cover it.
    pub fn covered(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.walk(prefix, A::BITS).filter_map(|found| match found {
            Found::Route(prefix, next_hop) => Some((prefix, next_hop)),
            Found::Longer(_) => None,
        })
    }

    /// As [`covered`](Self::covered), down to routes of `max_len` bits: of longer ones it only
    /// tells in which prefixes of `max_len` bits they are.
    #[inline]
    pub fn walk(&self, prefix: Prefix<A>, max_len: u8) -> Walk<'_, A> {
        self.walk_at(self.top_of(prefix), max_len)
    }

    #[inline]
    fn walk_at(&self, top: Option<u32>, max_len: u8) -> Walk<'_, A> {
        let mut walk = Walk {
            rib: self,
            max_len,
            stack: [NONE; STACK],
            depth: 0,
        };
        if let Some(top) = top {
            walk.push(top);
        }
        walk
    }

    /// Where every way begins: at the prefix of all addresses.
    pub(crate) fn descent(&self) -> Descent {
        let root = &self.nodes[ROOT as usize];
        Descent {
            node: ROOT,
            next_hop: root.is_route.then_some(root.next_hop),
        }
    }

    /// On to a prefix inside of the one that `from` is at.
    #[inline]
    pub(crate) fn descend(&self, from: Descent, prefix: Prefix<A>) -> Descent {
        let mut at = from;
        while let Some(child) = self.child(at.node, prefix) {
            let node = &self.nodes[child as usize];
            if node.len > prefix.len() || node.address.common(prefix.first()) < node.len {
                break;
            }
            at.node = child;
            if node.is_route {
                at.next_hop = Some(node.next_hop);
            }
        }
        at
    }

    /// As [`walk`](Self::walk), of a prefix that `at` is at.
    #[inline]
    pub(crate) fn walk_from(&self, at: Descent, prefix: Prefix<A>, max_len: u8) -> Walk<'_, A> {
        self.walk_at(self.top_from(at, prefix), max_len)
    }

    /// As [`has_longer`](Self::has_longer), of a prefix that `at` is at.
    #[inline]
    pub(crate) fn has_longer_from(&self, at: Descent, prefix: Prefix<A>) -> bool {
        self.goes_on(self.top_from(at, prefix), prefix)
    }

    /// The node below which, or at which, all is that `prefix` covers; `at` is at it.
    #[inline]
    fn top_from(&self, at: Descent, prefix: Prefix<A>) -> Option<u32> {
        match self.nodes[at.node as usize].len == prefix.len() {
            true => Some(at.node),
            false => self
                .child(at.node, prefix)
                .filter(|&child| prefix.contains(self.nodes[child as usize].address)),
        }
    }

    /// The node below another on the way to `prefix`.
    #[inline]
    fn child(&self, at: u32, prefix: Prefix<A>) -> Option<u32> {
        let node = &self.nodes[at as usize];
        (node.len < prefix.len())
            .then(|| node.children[usize::from(prefix.first().bit(node.len))])
            .filter(|&child| child != NONE)
    }

    /// All routes, as [`covered`](Self::covered) gives them.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.covered(Prefix::ALL)
    }

    /// Whether any route that `prefix` covers is longer than it.
    pub fn has_longer(&self, prefix: Prefix<A>) -> bool {
        self.goes_on(self.top_of(prefix), prefix)
    }

    /// Whether there are routes longer than `prefix` at or below its `top`.
    #[inline]
    fn goes_on(&self, top: Option<u32>, prefix: Prefix<A>) -> bool {
        top.is_some_and(|top| {
            let node = &self.nodes[top as usize];
            node.len > prefix.len() || node.children != [NONE; 2]
        })
    }

    /// The node below which, or at which, all is that `prefix` covers.
    fn top_of(&self, prefix: Prefix<A>) -> Option<u32> {
        self.top_from(self.descend(self.descent(), prefix), prefix)
    }

    /// The nodes of at most `max_len` bits that hold `address`, from the root down.
    #[inline]
    fn path(&self, address: A, max_len: u8) -> impl Iterator<Item = &Node<A>> {
        let mut next = Some(ROOT);
        std::iter::from_fn(move || {
            let node = &self.nodes[next? as usize];
            if node.len > max_len || node.address.common(address) < node.len {
                return None;
            }
            next = (node.len < A::BITS)
                .then(|| node.children[usize::from(address.bit(node.len))])
                .filter(|&child| child != NONE);
            Some(node)
        })
    }

    /// Nodes that can be added without growing.
    fn room(&self) -> usize {
        self.nodes.capacity() - self.nodes.len() + self.free_nodes
    }

    fn reserve(&mut self, nodes: usize) -> Result<(), TableError> {
        let routes = self.routes;
        let full = |reason| TableError::RibFull { routes, reason };
        if self.nodes.len() > u32::MAX as usize - 2 {
            return Err(full("its nodes are numbered in 32 bits".into()));
        }
        if self.room() < nodes {
            let reserved = self.nodes.try_reserve_exact(self.growth());
            reserved.map_err(|error| full(error.to_string()))?;
        }
        Ok(())
    }

    /// A node without children; there is room for it.
    fn add(&mut self, prefix: Prefix<A>, is_route: bool, next_hop: u32) -> u32 {
        let node = Node {
            address: prefix.first(),
            children: [NONE; 2],
            next_hop,
            len: prefix.len(),
            is_route,
        };
        if self.free == NONE {
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let index = self.free;
        let free = &mut self.nodes[index as usize];
        self.free = free.children[0];
        self.free_nodes -= 1;
        *free = node;
        index
    }

    /// A tree of a new node and the one that lay in its way: the new one on top, or a fork.
    fn join(&mut self, added: u32, other: u32) -> u32 {
        let (a, b) = (&self.nodes[added as usize], &self.nodes[other as usize]);
        let common = a.address.common(b.address).min(a.len).min(b.len);
        let top = match common == a.len {
            true => added,
            false => {
                let fork = self.add(Prefix::of(a.address, common), false, 0);
                self.link(fork, added);
                fork
            }
        };
        self.link(top, other);
        top
    }

    /// Hangs `child` below `parent`.
    fn link(&mut self, parent: u32, child: u32) {
        let side = self.nodes[child as usize]
            .address
            .bit(self.nodes[parent as usize].len);
        self.nodes[parent as usize].children[usize::from(side)] = child;
    }

    /// Takes `at`, below `parent`, out of the tree if it is neither a route nor a fork.
    fn drop_idle(&mut self, at: u32, parent: u32) {
        let node = &self.nodes[at as usize];
        let below = match node.children {
            _ if node.is_route => return,
            [NONE, below] | [below, NONE] => below,
            _ => return,
        };
        let side = node.address.bit(self.nodes[parent as usize].len);
        self.nodes[parent as usize].children[usize::from(side)] = below;
        self.nodes[at as usize].children[0] = self.free;
        self.free = at;
        self.free_nodes += 1;
    }
}

/// On the way down, one sibling per bit waits at most.
const STACK: usize = 130;

/// The iterator of [`Rib::walk`].
pub struct Walk<'a, A> {
    rib: &'a Rib<A>,
    max_len: u8,
    stack: [u32; STACK],
    depth: usize,
}

impl<A> Walk<'_, A> {
    #[inline]
    fn push(&mut self, node: u32) {
        self.stack[self.depth] = node;
        self.depth += 1;
    }
}

impl<A: Address> Iterator for Walk<'_, A> {
    type Item = Found<A>;

    #[inline]
    fn next(&mut self) -> Option<Found<A>> {
        while self.depth > 0 {
            self.depth -= 1;
            let node = &self.rib.nodes[self.stack[self.depth] as usize];
            if node.len > self.max_len {
                return Some(Found::Longer(Prefix::of(node.address, self.max_len)));
            }
            let [left, right] = node.children;
            if right != NONE {
                self.push(right);
            }
            if left != NONE {
                self.push(left);
            }
            if node.is_route {
                return Some(Found::Route(node.prefix(), node.next_hop));
            }
        }
        None
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
