//! First in, first out, and out of the middle: the flows of the state that may be evicted.

use linerate_core::mem::HugeArray;

use crate::TableError;

/// Flows in the order in which they came; 8 bytes a flow.
pub(super) struct Queue {
    /// Neighbours of each flow, older and newer; the last is the queue's own.
    links: HugeArray<[u32; 2]>,
}

const OLDER: usize = 0;
const NEWER: usize = 1;

impl Queue {
    pub(super) fn new(name: &str, flows: usize) -> Result<Self, TableError> {
        let own = [flows as u32; 2];
        Ok(Self {
            links: HugeArray::filled(name, flows + 1, own)?,
        })
    }

    fn own(&self) -> u32 {
        self.links.len() as u32 - 1
    }

    /// The one that came first.
    pub(super) fn oldest(&self) -> Option<u32> {
        let oldest = self.links[self.own() as usize][NEWER];
        (oldest != self.own()).then_some(oldest)
    }

    /// Appends a flow that is not in the queue.
    pub(super) fn push(&mut self, flow: u32) {
        let own = self.own();
        let newest = self.links[own as usize][OLDER];
        self.links[flow as usize] = [newest, own];
        self.links[newest as usize][NEWER] = flow;
        self.links[own as usize][OLDER] = flow;
    }

    /// Takes out a flow that is in the queue.
    pub(super) fn remove(&mut self, flow: u32) {
        let [older, newer] = self.links[flow as usize];
        self.links[older as usize][NEWER] = newer;
        self.links[newer as usize][OLDER] = older;
    }

    pub(super) fn bytes(&self) -> usize {
        self.links.region().len()
    }
}
