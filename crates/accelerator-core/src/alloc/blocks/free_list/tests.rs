use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Bound;

use super::*;
use crate::alloc::blocks::{Blocks, Order};
use crate::alloc::settings::in_blocks;
use crate::types::MIB;
use fastrand::Rng;

/// A free list, together with the blocks that it must contain, by size and position.
struct Walk {
    random: Rng,
    blocks: Blocks,
    list: FreeList,
    free: BTreeMap<Order, BlockId>,
    /// Blocks that are not in the list.
    taken: Vec<BlockId>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            blocks: Blocks::default(),
            list: FreeList::default(),
            free: BTreeMap::new(),
            taken: Vec::new(),
        }
    }

    fn add(&mut self, size: u64) {
        let position = self.random.u64(..);
        let id = self.blocks.add_free(size, position);
        self.insert(id);
    }

    fn insert(&mut self, id: BlockId) {
        self.list.insert(&mut self.blocks, id);
        assert_eq!(self.free.insert(order(&self.blocks, id), id), None, "blocks differ in size or position");
    }

    fn remove(&mut self, id: BlockId) {
        self.list.remove(&mut self.blocks, id);
        self.free.remove(&order(&self.blocks, id));
    }

    /// Picks a block in the list; in one case of four, the one outside the bins.
    fn pick(&mut self) -> Option<BlockId> {
        if self.random.u8(..4) == 0 && self.list.outside.is_some() {
            return self.list.outside;
        }
        let place = self.random.usize(..self.free.len().max(1));
        self.free.values().nth(place).copied()
    }

    /// Splits off the start of a block.
    fn cut(&mut self, id: BlockId) {
        let (size, position, _) = order(&self.blocks, id);
        if size < 2 * MIN_BLOCK {
            return;
        }
        let cut = MIN_BLOCK * (1 + self.random.u64(..size / MIN_BLOCK - 1));
        self.free.remove(&(size, position, id));
        self.list.put_outside(&mut self.blocks, id);
        assert!(self.list.is_outside(id));
        self.resize(id, size - cut, position.wrapping_add(cut));
        let start = self.blocks.add_free(cut, position);
        self.taken.push(start);
    }

    /// Extends the block outside the bins at its start.
    fn grow(&mut self, id: BlockId) {
        let (size, position, _) = order(&self.blocks, id);
        let more = self.size_of_kind(0);
        if let (true, Some(grown)) = (self.list.is_outside(id), size.checked_add(more)) {
            self.free.remove(&(size, position, id));
            self.resize(id, grown, position.wrapping_sub(more));
        }
    }

    fn resize(&mut self, id: BlockId, size: u64, position: u64) {
        (self.blocks[id].size, self.blocks[id].position) = (size, position);
        assert_eq!(self.free.insert((size, position, id), id), None, "blocks differ in size or position");
    }

    fn size_of_kind(&mut self, kind: u64) -> u64 {
        match kind {
            0 => MIN_BLOCK * (1 + self.random.u64(..EXACT - 1)),
            1 => [MIN_BLOCK, 4 * MIN_BLOCK, 2 * MIB - MIN_BLOCK, 2 * MIB, 20 * MIB][self.random.usize(..5)],
            2 => 20 * MIB + MIN_BLOCK * self.random.u64(..MIB / 4 / MIN_BLOCK), // all in one bin
            3 => in_blocks(1 + self.random.u64(..8 * MIB)),
            _ => in_blocks((u64::MAX / 2) >> self.random.u64(..40)),
        }
    }

    /// Replaces a block by another, which gets its size only then.
    fn replace(&mut self, id: BlockId) {
        let (position, size) = (self.random.u64(..), self.size_of_kind(3));
        let new = self.blocks.add_free(0, position);
        self.free.remove(&order(&self.blocks, id));
        self.list.replace(&mut self.blocks, id, new);
        assert!(self.list.is_outside(new));
        self.resize(new, size, position);
        self.taken.push(id);
    }

    fn step(&mut self, adds: bool) {
        match self.random.u64(..9) {
            0 => _ = self.pick().map(|id| self.cut(id)),
            1 => _ = self.pick().map(|id| self.grow(id)),
            2 => _ = self.pick().map(|id| self.replace(id)),
            3..8 if adds && self.taken.len() > 20 => {
                let id = self.taken.swap_remove(self.random.usize(..self.taken.len()));
                self.insert(id);
            }
            3..8 if adds => {
                let kind = self.random.u64(..5);
                let size = self.size_of_kind(kind);
                self.add(size);
            }
            3..8 => {
                if let Some(id) = self.pick() {
                    self.remove(id);
                    self.taken.push(id);
                }
            }
            _ => {
                if let Some(id) = self.pick() {
                    self.list.put_outside(&mut self.blocks, id);
                    assert!(self.list.is_outside(id));
                }
            }
        }
    }

    fn check_best_fit(&mut self) {
        let near = self.pick().map_or(MIN_BLOCK, |id| self.blocks[id].size);
        let kind = self.random.u64(..5);
        let any = self.size_of_kind(kind);
        let (less, more) = ((near - MIN_BLOCK).max(MIN_BLOCK), near + MIN_BLOCK);
        for size in [MIN_BLOCK, less, near, more, in_blocks(near / 2), any, in_blocks(u64::MAX / 2)] {
            let expected =
                self.free.range((size, 0, BlockId::of_lower_half(NonZeroU64::MIN))..).next().map(|(_, id)| *id);
            assert_eq!(self.list.best_fit(&self.blocks, size), expected, "{size}");
            let candidate = match size < EXACT * MIN_BLOCK {
                true => self.list.candidate::<false>(&self.blocks, size),
                false => self.list.candidate::<true>(&self.blocks, size),
            };
            assert_eq!(candidate.filter(|id| self.blocks[*id].size >= size), expected, "{size}");
            if let Some(best) = expected {
                let order = order(&self.blocks, best);
                let second = self.free.range((Bound::Excluded(order), Bound::Unbounded)).next().map(|(_, id)| *id);
                assert_eq!(self.list.second(&mut self.blocks, best), second, "{size}");
            }
        }
    }

    fn check(&mut self) {
        self.check_best_fit();
        if let Some(first) = self.pick() {
            let after = self.free.range(order(&self.blocks, first)..).map(|(_, id)| *id);
            assert!(self.list.from(&self.blocks, first).eq(after));
        }
        assert_eq!(self.list.largest(&self.blocks), self.free.values().last().copied());
        assert!(self.list.sorted(&self.blocks).iter().eq(self.free.values()));
    }
}

#[test]
fn blocks_are_found_as_in_a_sorted_set() {
    for seed in 0..8 {
        let mut walk = Walk::new(seed);
        // The list repeatedly grows to one or two hundred blocks and shrinks to none.
        for step in 0..4000 {
            walk.step(step % 400 < 200);
            walk.check();
        }
        while let Some(id) = walk.pick() {
            walk.remove(id);
            walk.check();
        }
        assert!(walk.list.bins.is_empty() && walk.list.outside.is_none());
    }
}

#[test]
fn equal_blocks_are_found_by_position() {
    const MANY: usize = 5000;
    let mut walk = Walk::new(1);
    (0..MANY).for_each(|_| walk.add(4 * MIN_BLOCK));
    walk.check();
    for _ in 0..MANY {
        let id = walk.free.values().nth(walk.random.usize(..100)).copied().unwrap();
        walk.remove(id);
        walk.add(4 * MIN_BLOCK);
        walk.check_best_fit();
    }
    let mut ids: Vec<BlockId> = walk.free.values().copied().collect();
    walk.random.shuffle(&mut ids);
    for (count, id) in ids.into_iter().enumerate() {
        walk.remove(id);
        walk.check_best_fit();
        if count % 500 == 0 {
            walk.check();
        }
    }
    walk.check();
    assert_eq!(walk.list.best_fit(&walk.blocks, MIN_BLOCK), None);
}

#[test]
fn larger_sizes_have_no_smaller_bin_and_every_bin_has_a_bit() {
    let sizes = (0..64).flat_map(|power| [0, 1, 511, 512, 513].map(|more| (1u64 << power).saturating_add(more)));
    let mut sizes: Vec<u64> = sizes.chain((0..10_000).map(|block| block * MIN_BLOCK)).chain([u64::MAX]).collect();
    sizes.sort_unstable();
    let bins: Vec<usize> = sizes.iter().map(|size| bin_of(*size)).collect();
    assert!(bins.is_sorted());
    assert!(bins.iter().all(|bin| *bin < BINS));
    // Each bin for small sizes covers one size, and no bin is skipped after them.
    assert_eq!((bin_of(EXACT * MIN_BLOCK - 1), bin_of(EXACT * MIN_BLOCK)), (2047, 2048));
}
