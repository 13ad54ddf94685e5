//! Lists of flows: of each bucket, of places that are free, of the state that may be evicted. First
//! in, first out, and out of the middle.

use linerate_core::arch::prefetch_read;
use linerate_core::mem::HugeArray;

use crate::TableError;

/// A number of lists, of which each flow is in one at most, in the order in which they came; 8
/// bytes a flow.
pub(super) struct Lists {
    /// Neighbours of each flow, older and newer; then the lists' own, which are the ends of them.
    links: HugeArray<[u32; 2]>,
    flows: u32,
}

const OLDER: usize = 0;
const NEWER: usize = 1;

impl Lists {
    /// `lists` of them, numbered from 0, all empty.
    pub(super) fn new(name: &str, flows: usize, lists: usize) -> Result<Self, TableError> {
        Ok(Self {
            links: HugeArray::from_fn(name, flows + lists, |at| [at as u32; 2])?,
            flows: flows as u32,
        })
    }

    fn end(&self, list: usize) -> u32 {
        self.flows + list as u32
    }

    fn flow(&self, link: u32) -> Option<u32> {
        (link < self.flows).then_some(link)
    }

    /// The one that came first.
    pub(super) fn oldest(&self, list: usize) -> Option<u32> {
        self.flow(self.links[self.end(list) as usize][NEWER])
    }

    /// The one that came last.
    pub(super) fn newest(&self, list: usize) -> Option<u32> {
        self.flow(self.links[self.end(list) as usize][OLDER])
    }

    /// The one that came after a flow.
    pub(super) fn after(&self, flow: u32) -> Option<u32> {
        self.flow(self.links[flow as usize][NEWER])
    }

    /// Appends a flow that is in no list.
    pub(super) fn push(&mut self, list: usize, flow: u32) {
        let end = self.end(list);
        let newest = self.links[end as usize][OLDER];
        self.links[flow as usize] = [newest, end];
        self.links[newest as usize][NEWER] = flow;
        self.links[end as usize][OLDER] = flow;
    }

    /// Takes a flow out of the list that it is in.
    pub(super) fn remove(&mut self, flow: u32) {
        let [older, newer] = self.links[flow as usize];
        self.links[older as usize][NEWER] = newer;
        self.links[newer as usize][OLDER] = older;
    }

    /// Asks for the memory of a flow.
    #[inline(always)]
    pub(super) fn prefetch(&self, flow: u32) {
        prefetch_read(self.links.as_ptr().wrapping_add(flow as usize));
    }

    /// Asks for the memory of a flow's neighbours.
    #[inline(always)]
    pub(super) fn prefetch_neighbours(&self, flow: u32) {
        let [older, newer] = self.links[flow as usize];
        self.prefetch(older);
        self.prefetch(newer);
    }

    pub(super) fn bytes(&self) -> usize {
        self.links.region().len()
    }
}
