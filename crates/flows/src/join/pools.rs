//! The live blocks of pools that the program carries itself, in one address space.
//!
//! They lie in memory that is a heap block or a mapping, and have precedence over it. A pool may take its memory from a block of another one, so blocks lie in
//! layers: each within one of the layer below. A block ends, at the latest, with the one that it lies in.

use std::collections::BTreeSet;

use foldhash::HashMap;

use super::blocks::Blocks;

/// Most layers: no pool lies in a block of the uppermost one.
const LAYERS_MAX: usize = 4;

/// A live block.
#[derive(Clone, Copy, Debug)]
struct Live {
    pool: u32,
    layer: usize,
    start: u64,
    bytes: u64,
}

/// Live blocks of pools, by address and by pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// Names of the pools, as name ids.
    names: HashMap<u32, u32>,
    layers: Vec<Blocks>,
    live: HashMap<u32, Live>,
    of_pool: HashMap<u32, BTreeSet<u32>>,
}

impl Pools {
    /// The innermost block that covers `address`.
    #[inline]
    pub fn get(&self, address: u64) -> Option<u32> {
        self.layers.iter().rev().find_map(|layer| layer.get(address))
    }

    /// Whether no block is live.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Adds a pool with the name of this id.
    pub fn create(&mut self, pool: u32, name: u32) {
        self.names.insert(pool, name);
    }

    /// Forgets a pool, whose blocks have ended.
    pub fn destroy(&mut self, pool: u32) {
        self.names.remove(&pool);
        self.of_pool.remove(&pool);
    }

    /// The id of a pool's name; 0: it has none.
    pub fn name(&self, pool: u32) -> u32 {
        self.names.get(&pool).copied().unwrap_or(0)
    }

    /// All blocks of a pool.
    pub fn of_pool(&self, pool: u32) -> Vec<u32> {
        self.of_pool.get(&pool).map(|blocks| blocks.iter().copied().collect()).unwrap_or_default()
    }

    /// The block of this pool that begins at `address`.
    pub fn starting_at(&self, pool: u32, address: u64) -> Option<u32> {
        let mut found = self.layers.iter().filter_map(|layer| layer.get(address));
        found.find(|object| self.live.get(object).is_some_and(|live| live.pool == pool && live.start == address))
    }

    /// The blocks that overlap `[start, start + bytes)`.
    pub fn within(&self, start: u64, bytes: u64) -> Vec<u32> {
        self.overlapping(start, bytes, 0)
    }

    /// The blocks of this pool that overlap `[start, start + bytes)`.
    pub fn of_pool_within(&self, pool: u32, start: u64, bytes: u64) -> Vec<u32> {
        let mut found = self.within(start, bytes);
        found.retain(|object| self.live.get(object).is_some_and(|live| live.pool == pool));
        found
    }

    /// Live blocks of all pools that overlap the range, in layer `lowest` and those above it.
    fn overlapping(&self, start: u64, bytes: u64, lowest: usize) -> Vec<u32> {
        let mut found = Vec::new();
        for layer in self.layers.iter().skip(lowest).filter(|_| bytes > 0) {
            layer.overlaps(start, bytes, &mut found);
        }
        found
    }

    /// The layer for a new block of at least one byte, and the blocks that end for it: what it overlaps, but for the blocks of other pools that hold it whole.
    pub fn place(&self, pool: u32, start: u64, bytes: u64) -> (usize, Vec<u32>) {
        let mut layer = 0;
        let mut ending = self.within(start, bytes);
        ending.retain(|object| {
            let Some(live) = self.live.get(object) else { return true };
            let is_around = live.start <= start && start + bytes <= live.start + live.bytes;
            let stays = is_around && live.pool != pool && live.layer + 1 < LAYERS_MAX;
            if stays {
                layer = layer.max(live.layer + 1);
            }
            !stays
        });
        (layer, ending)
    }

    /// Adds a block at the layer that [`Pools::place`] gave, once the blocks that end for it are removed.
    pub fn insert(&mut self, pool: u32, layer: usize, (start, bytes): (u64, u64), object: u32) {
        if self.layers.len() <= layer {
            self.layers.resize(layer + 1, Blocks::default());
        }
        self.layers[layer].insert(start, bytes, object);
        self.live.insert(object, Live { pool, layer, start, bytes });
        self.of_pool.entry(pool).or_default().insert(object);
    }

    /// Removes a block, and returns those that lie in it; `None` where it was not live.
    pub fn remove(&mut self, object: u32) -> Option<Vec<u32>> {
        let live = self.live.remove(&object)?;
        self.layers[live.layer].remove(live.start, live.bytes, object);
        if let Some(blocks) = self.of_pool.get_mut(&live.pool) {
            blocks.remove(&object);
        }
        Some(self.overlapping(live.start, live.bytes, live.layer + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a block as the join does, and returns what ended for it.
    fn add(pools: &mut Pools, pool: u32, start: u64, bytes: u64, object: u32) -> Vec<u32> {
        let (layer, ending) = pools.place(pool, start, bytes);
        for &old in &ending {
            pools.remove(old);
        }
        pools.insert(pool, layer, (start, bytes), object);
        ending
    }

    #[test]
    fn a_pool_in_a_block_of_another_comes_first_and_ends_with_it() {
        let mut pools = Pools::default();
        assert!(add(&mut pools, 1, 0x1000, 0x1000, 0).is_empty());
        assert!(add(&mut pools, 2, 0x1000, 64, 1).is_empty(), "at its very beginning");
        assert!(add(&mut pools, 2, 0x1100, 64, 2).is_empty());
        assert!(add(&mut pools, 3, 0x1100, 64, 3).is_empty(), "the whole of it");
        let found = [0xfff, 0x1000, 0x103f, 0x1040, 0x1100, 0x1fff, 0x2000].map(|at| pools.get(at));
        assert_eq!(found, [None, Some(1), Some(1), Some(0), Some(3), Some(0), None]);
        assert_eq!(pools.starting_at(1, 0x1000), Some(0));
        assert_eq!(pools.starting_at(2, 0x1000), Some(1));
        assert_eq!((pools.starting_at(3, 0x1000), pools.starting_at(2, 0x1001)), (None, None));
        assert_eq!(pools.remove(0), Some(vec![1, 2, 3]));
        assert_eq!(pools.remove(0), None);
    }

    #[test]
    fn a_block_ends_what_it_overlaps_and_does_not_lie_in() {
        let mut pools = Pools::default();
        add(&mut pools, 1, 0x1000, 64, 0);
        assert_eq!(add(&mut pools, 1, 0x1000, 128, 1), [0], "given anew");
        assert_eq!(add(&mut pools, 2, 0x1040, 128, 2), [1], "reaches out of it");
        assert!(add(&mut pools, 1, 0x1080, 16, 3).is_empty(), "in the other pool's");
        assert_eq!([pools.of_pool(1), pools.of_pool(2)], [vec![3], vec![2]]);
    }

    #[test]
    fn layers_are_bounded() {
        let mut pools = Pools::default();
        for pool in 0..LAYERS_MAX as u32 {
            assert!(add(&mut pools, pool, 0x1000, 64, pool).is_empty());
        }
        let last = LAYERS_MAX as u32;
        assert_eq!(add(&mut pools, last, 0x1000, 64, last), [last - 1], "the uppermost gives way");
        assert_eq!(pools.layers.len(), LAYERS_MAX);
    }
}
