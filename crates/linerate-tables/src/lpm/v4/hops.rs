//! Next hops by number: the table's leaves name them in 14 bits as long as there are not more.

use std::collections::HashMap;

use crate::simd::lpm4::{HOPS, NO_ROUTE};

#[derive(Clone, Copy, Debug)]
struct Slot {
    hop: u32,
    routes: u32,
}

/// The next hops in use, each with its number and how many routes lead to it.
#[derive(Clone, Debug)]
pub(super) struct Hops {
    slots: Vec<Slot>,
    numbers: HashMap<u32, u32>,
    /// Free numbers below [`HOPS`], the lowest last, and beyond it.
    low: Vec<u32>,
    high: Vec<u32>,
}

impl Hops {
    /// Number 0 is not used, and the next `vrfs` are reserved for the VRFs' default routes.
    pub(super) fn new(vrfs: usize) -> Self {
        let nowhere = Slot {
            hop: NO_ROUTE,
            routes: 1,
        };
        Self {
            slots: vec![nowhere; HOPS],
            numbers: HashMap::new(),
            low: (vrfs as u32 + 1..HOPS as u32).rev().collect(),
            high: Vec::new(),
        }
    }

    /// The next hop of a number.
    #[inline]
    pub(super) fn hop(&self, number: u32) -> u32 {
        self.slots[number as usize].hop
    }

    /// One more route leads to `hop`. Returns its number, and whether that is new.
    pub(super) fn acquire(&mut self, hop: u32) -> (u32, bool) {
        if let Some(&number) = self.numbers.get(&hop) {
            self.slots[number as usize].routes += 1;
            return (number, false);
        }
        let slot = Slot { hop, routes: 1 };
        let number = self.low.pop().or_else(|| self.high.pop());
        let number = number.unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(number as usize) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.numbers.insert(hop, number);
        (number, true)
    }

    /// One route less leads to the next hop of this number.
    pub(super) fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.routes -= 1;
        if slot.routes == 0 {
            self.numbers.remove(&slot.hop);
            match (number as usize) < HOPS {
                true => self.low.push(number),
                false => self.high.push(number),
            }
        }
    }

    /// Bytes that it takes; of the map, what its entries take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + 4 * (self.low.capacity() + self.high.capacity())
            + self.numbers.capacity() * (size_of::<(u32, u32)>() + 1)
    }
}
