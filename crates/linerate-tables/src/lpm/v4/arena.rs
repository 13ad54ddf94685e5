//! Where chunks lie: pages of 512 words, each cut into blocks of one size class.
//!
//! A class is kept dense: when a block is freed, the last one of its class moves into the hole, and
//! a page without blocks goes back to the others. So at most one page of a class is partly empty,
//! whatever the order of inserts and deletes, and there is never anything to compact.

/// Words of a page.
pub(super) const PAGE: usize = 512;

/// How many size classes there are.
pub(super) const CLASSES: usize = SIZES.len();

/// Block sizes in words. Chunks of up to a line never straddle two.
const SIZES: [usize; 13] = [2, 4, 8, 10, 12, 14, 17, 20, 24, 32, 42, 51, 67];

/// The class of blocks that hold `words`.
pub(super) fn class_of(words: usize) -> usize {
    SIZES
        .iter()
        .position(|&size| size >= words)
        .expect("a chunk has 67 words at most")
}

/// Blocks of one size, packed into pages in order.
#[derive(Clone, Debug, Default)]
struct Class {
    pages: Vec<u32>,
    blocks: usize,
}

/// What a freed block leaves to be done: another one moved into its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) words: usize,
    /// The directory entry that names the moved block.
    pub(super) owner: u32,
}

/// Which block is whose. The words themselves are elsewhere, in as many copies as there are.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    classes: [Class; SIZES.len()],
    free_pages: Vec<u32>,
    /// The class of each page.
    class_of_page: Vec<u8>,
    /// The directory entry that names the block which begins at this pair of words.
    owners: Vec<u32>,
}

impl Arena {
    /// An arena of words `first..end`, rounded inwards to whole pages.
    pub(super) fn new(first: usize, end: usize) -> Self {
        let pages = first.div_ceil(PAGE) as u32..(end / PAGE) as u32;
        Self {
            classes: Default::default(),
            class_of_page: vec![0; end / PAGE],
            owners: vec![0; end / 2],
            free_pages: pages.rev().collect(),
        }
    }

    /// Bytes that it takes itself.
    pub(super) fn memory_bytes(&self) -> usize {
        let listed = self.classes.iter().map(|class| class.pages.capacity());
        self.class_of_page.capacity()
            + 4 * (self.owners.capacity() + self.free_pages.capacity() + listed.sum::<usize>())
    }

    /// Words in pages that hold blocks.
    pub(super) fn used_words(&self) -> usize {
        let pages = self.classes.iter().map(|class| class.pages.len());
        pages.sum::<usize>() * PAGE
    }

    /// How many pages are missing if this many blocks come and go, by class; 0 if there is room.
    pub(super) fn missing_pages(&self, comes: &[usize], goes: &[usize]) -> usize {
        let mut wanted = 0;
        let mut given = self.free_pages.len();
        for (index, class) in self.classes.iter().enumerate() {
            let blocks = class.blocks + comes[index] - goes[index];
            let pages = blocks.div_ceil(PAGE / SIZES[index]);
            wanted += pages.saturating_sub(class.pages.len());
            given += class.pages.len().saturating_sub(pages);
        }
        wanted.saturating_sub(given)
    }

    /// The class of the block at `at`.
    pub(super) fn class_at(&self, at: usize) -> usize {
        self.class_of_page[at / PAGE].into()
    }

    /// A block for the directory entry `owner`.
    ///
    /// # Panics
    /// If no page is free: ask [`missing_pages`](Self::missing_pages) before.
    pub(super) fn take(&mut self, class: usize, owner: u32) -> usize {
        let blocks = self.classes[class].blocks;
        let (per_page, size) = (PAGE / SIZES[class], SIZES[class]);
        if blocks.is_multiple_of(per_page) {
            let page = self.free_pages.pop().expect("room was asked for");
            self.class_of_page[page as usize] = class as u8;
            self.classes[class].pages.push(page);
        }
        let class = &mut self.classes[class];
        class.blocks += 1;
        let at = class.pages[blocks / per_page] as usize * PAGE + blocks % per_page * size;
        self.owners[at / 2] = owner;
        at
    }

    /// Frees the block at `at`. If another one has to move into its place, the caller has to update
    /// its owner.
    pub(super) fn free(&mut self, at: usize) -> Option<Moved> {
        let index = self.class_at(at);
        let (class, words) = (&mut self.classes[index], SIZES[index]);
        let per_page = PAGE / words;
        class.blocks -= 1;
        let last = class.blocks;
        let from = class.pages[last / per_page] as usize * PAGE + last % per_page * words;
        if last.is_multiple_of(per_page) {
            let page = class.pages.pop().expect("a block was there");
            self.free_pages.push(page);
        }
        let owner = self.owners[from / 2];
        self.owners[at / 2] = owner;
        (from != at).then_some(Moved {
            from,
            to: at,
            words,
            owner,
        })
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use linerate_testkit::Random;
    use std::collections::BTreeMap;

    #[test]
    fn blocks_never_overlap_and_classes_stay_dense() {
        let mut arena = Arena::new(3, 64 * PAGE);
        let pages = arena.free_pages.len();
        let mut blocks = BTreeMap::<u32, (usize, usize)>::new(); // by owner
        let mut random = Random::new(1);
        for owner in 0..20_000 {
            let class = random.below(SIZES.len());
            let mut comes = [0; SIZES.len()];
            comes[class] = 1;
            if arena.missing_pages(&comes, &[0; SIZES.len()]) == 0 {
                blocks.insert(owner, (arena.take(class, owner), SIZES[class]));
            }
            for _ in 0..random.below(3) {
                let Some((&victim, &(at, _))) =
                    blocks.iter().nth(random.below(blocks.len().max(1)))
                else {
                    break;
                };
                blocks.remove(&victim);
                if let Some(moved) = arena.free(at) {
                    let block = blocks.get_mut(&moved.owner).unwrap();
                    assert_eq!(*block, (moved.from, moved.words));
                    block.0 = moved.to;
                }
            }
            if owner % 64 == 0 {
                let mut ends: Vec<_> = blocks.values().map(|&(at, n)| (at, at + n)).collect();
                ends.sort();
                assert!(ends.windows(2).all(|two| two[0].1 <= two[1].0));
                for (class, &size) in SIZES.iter().enumerate() {
                    let blocks = blocks.values().filter(|block| block.1 == size).count();
                    assert_eq!(
                        arena.classes[class].pages.len(),
                        blocks.div_ceil(PAGE / size)
                    );
                }
            }
        }
        for (_, (at, _)) in std::mem::take(&mut blocks).into_iter().rev() {
            arena.free(at);
        }
        assert_eq!((arena.used_words(), arena.free_pages.len()), (0, pages));
    }

    #[test]
    fn small_chunks_lie_in_one_line() {
        for size in SIZES.into_iter().filter(|&size| size <= 8) {
            assert!(8 % size == 0);
        }
        assert_eq!(SIZES[class_of(67)], 67);
    }
}
