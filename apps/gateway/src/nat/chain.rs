//! Values in one array, each in one list: a list is walked at the cost of its own values.

use linerate_core::arch::prefetch_read;

/// No place.
pub(super) const NONE: u32 = u32::MAX;

struct Node<T> {
    /// `None` where the place is free: `next` is then the next free one.
    value: Option<T>,
    next: u32,
    prev: u32,
}

/// The array. Who owns a list keeps its first place, [`NONE`] where it is empty.
pub(super) struct Chains<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    len: usize,
}

impl<T> Chains<T> {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<T>>()
    }

    /// Adds a value to a list; returns its place.
    pub(super) fn push(&mut self, first: &mut u32, value: T) -> u32 {
        let at = match self.free {
            NONE => {
                self.nodes.push(Node {
                    value: None,
                    next: NONE,
                    prev: NONE,
                });
                (self.nodes.len() - 1) as u32
            }
            free => {
                self.free = self.nodes[free as usize].next;
                free
            }
        };
        let node = &mut self.nodes[at as usize];
        (node.value, node.next, node.prev) = (Some(value), *first, NONE);
        if *first != NONE {
            self.nodes[*first as usize].prev = at;
        }
        *first = at;
        self.len += 1;
        at
    }

    /// Takes the value at a place out of its list.
    pub(super) fn remove(&mut self, first: &mut u32, at: u32) -> Option<T> {
        let node = self.nodes.get_mut(at as usize)?;
        let value = node.value.take()?;
        let (next, prev) = (node.next, node.prev);
        node.next = self.free;
        self.free = at;
        match prev {
            NONE => *first = next,
            prev => self.nodes[prev as usize].next = next,
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        self.len -= 1;
        Some(value)
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.nodes.get(at as usize)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.nodes.get_mut(at as usize)?.value.as_mut()
    }

    /// Asks for the memory of a place.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        let node = self.nodes.as_ptr().wrapping_add(at as usize).cast::<u8>();
        for line in (0..size_of::<Node<T>>()).step_by(64) {
            prefetch_read(node.wrapping_add(line));
        }
        prefetch_read(node.wrapping_add(size_of::<Node<T>>() - 1));
    }

    /// Asks for the memory that taking out the value at a place changes besides.
    #[inline]
    pub(super) fn prefetch_neighbours(&self, at: u32) {
        if let Some(node) = self.nodes.get(at as usize) {
            for neighbour in [node.next, node.prev] {
                let node = self.nodes.as_ptr().wrapping_add(neighbour as usize);
                // Its links are at its end or at its beginning.
                prefetch_read(node);
                prefetch_read(node.cast::<u8>().wrapping_add(size_of::<Node<T>>() - 1));
            }
        }
    }

    /// The places of a list.
    pub(super) fn places(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors((first != NONE).then_some(first), |&at| {
            let next = self.nodes[at as usize].next;
            (next != NONE).then_some(next)
        })
    }

    /// The values of a list.
    pub(super) fn list(&self, first: u32) -> impl Iterator<Item = &T> {
        self.places(first).filter_map(|at| self.get(at))
    }

    /// The values at `count` places from `from` on, and the place behind; `None` at the end.
    pub(super) fn part(&self, from: u32, count: u32) -> (impl Iterator<Item = &T>, Option<u32>) {
        let len = self.nodes.len() as u32;
        let (from, end) = (from.min(len), from.saturating_add(count).min(len));
        let nodes = &self.nodes[from as usize..end as usize];
        let values = nodes.iter().filter_map(|node| node.value.as_ref());
        (values, (end < len).then_some(end))
    }

    /// All values.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|node| node.value.as_ref())
    }
}
