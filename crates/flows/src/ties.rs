//! Orders records of different threads that have the same stamp.
//!
//! A counter may tick more slowly than threads pass a block on (10 ns on some x86-64 machines, 10 to 42 ns on many Arm ones), so equal stamps do not
//! order records. The events constrain the order: a block is allocated where none is live, freed at its start, and accessed while it is live; the same
//! holds for mappings; and a thread's own records keep their order. [`settle`] searches for an order of the tied records that meets these constraints.
//! If there are several (one address was reused twice within a tick), all have the same births and deaths, and an access between goes to the earlier block.

use std::collections::VecDeque;

use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::record::{AllocKind, Event, Record};
use numapilot_trace::wire::layout;

/// Most records of one stamp that are ordered together. More mean that the counter stands still.
pub(crate) const TIED_MAX: usize = 1024;

/// Steps of the search after which the remaining records keep the order in which they came.
const STEPS_MAX: usize = 20_000;

/// What is live before the first of the tied records.
pub(crate) trait Live {
    /// The address space of a thread.
    fn space_of(&self, thread: ThreadIndex) -> u32;
    /// Live blocks of the heap, or of this pool of the program's, that overlap `[start, end)`, as start and end.
    fn blocks(&self, space: u32, pool: Option<u32>, start: u64, end: u64) -> Vec<(u64, u64)>;
    /// Whether a mapping overlaps `[start, end)`.
    fn is_mapped(&self, space: u32, start: u64, end: u64) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Alloc { replaces: bool },
    Free,
    Map,
    Unmap,
    Access,
    Place,
    Other,
}

/// A record, as the search uses it.
#[derive(Clone, Copy, Debug)]
struct Item {
    what: What,
    space: u32,
    /// The pool, of births and deaths in one: those of other pools and of the heap, and accesses, are not compared with them.
    pool: Option<u32>,
    start: u64,
    end: u64,
    /// Number of its thread among those of the tie.
    lane: usize,
}

impl Item {
    fn overlaps(&self, other: &Item) -> bool {
        self.is_with(other) && self.start < other.end && other.start < self.end
    }

    /// Whether both are of the same address space, and of the heap or of one pool.
    fn is_with(&self, other: &Item) -> bool {
        self.space == other.space && self.pool == other.pool
    }

    fn is_lifecycle(&self) -> bool {
        !matches!(self.what, What::Access | What::Place | What::Other)
    }
}

/// Puts records of one stamp, in which each thread's own are in order, into an order that is possible. Leaves them unchanged if none is found.
pub(crate) fn settle(records: &mut Vec<Record>, live: &impl Live) {
    if records.iter().all(|record| record.thread == records[0].thread) {
        return;
    }
    let items = items(records, live);
    if !is_contested(&items) {
        return;
    }
    let order = Search::new(&items, live).run();
    let mut taken: Vec<Option<Record>> = std::mem::take(records).into_iter().map(Some).collect();
    records.extend(order.into_iter().filter_map(|index| taken[index].take()));
}

fn items(records: &[Record], live: &impl Live) -> Vec<Item> {
    let mut lanes: Vec<ThreadIndex> = Vec::new();
    let mut items: Vec<Item> = Vec::with_capacity(records.len());
    for record in records {
        let lane = lanes.iter().position(|lane| *lane == record.thread).unwrap_or_else(|| {
            lanes.push(record.thread);
            lanes.len() - 1
        });
        let (what, start, bytes) = match &record.event {
            Event::Alloc { address, bytes, kind, .. } => {
                (What::Alloc { replaces: *kind == AllocKind::Realloc }, address.0, (*bytes).max(1))
            }
            Event::Free { address } => (What::Free, address.0, 1),
            Event::PoolAlloc { address, bytes, .. } => (What::Alloc { replaces: false }, address.0, (*bytes).max(1)),
            Event::PoolFree { address, .. } => (What::Free, address.0, 1),
            Event::Map { address, bytes, .. } => (What::Map, address.0, *bytes),
            Event::Unmap { address, bytes } => (What::Unmap, address.0, *bytes),
            Event::Access(access) => (What::Access, access.address.0, 1),
            Event::Place { address, pages, .. } => (What::Place, address.0, u64::from(*pages) << layout::PAGE_SHIFT),
            _ => (What::Other, 0, 0),
        };
        let pool = match &record.event {
            Event::PoolAlloc { pool, .. } | Event::PoolFree { pool, .. } => Some(*pool),
            _ => None,
        };
        let (space, end) = (live.space_of(record.thread), start.saturating_add(bytes));
        items.push(Item { what, space, pool, start, end, lane });
    }
    // A free covers the block that it frees.
    for index in 0..items.len() {
        if items[index].what == What::Free {
            let own = items[index];
            let made = items.iter().filter(|item| matches!(item.what, What::Alloc { .. }) && item.is_with(&own));
            let ends = made.filter(|item| item.start == own.start).map(|item| item.end);
            let living = live.blocks(own.space, own.pool, own.start, own.end).into_iter().map(|(_, end)| end);
            items[index].end = ends.chain(living).max().unwrap_or(own.end).max(own.end);
        }
    }
    items
}

/// Whether two threads touch the same memory, and one of them at its birth or death.
fn is_contested(items: &[Item]) -> bool {
    items.iter().enumerate().any(|(index, item)| {
        item.is_lifecycle()
            && items.iter().enumerate().any(|(other, with)| {
                other != index && with.lane != item.lane && with.what != What::Other && item.overlaps(with)
            })
    })
}

/// What the records taken so far have changed.
#[derive(Clone, Copy, Debug)]
struct Change {
    index: usize,
    is_birth: bool,
}

struct Search<'a, L> {
    items: &'a [Item],
    live: &'a L,
    /// Records that are left, by thread.
    lanes: Vec<VecDeque<usize>>,
    order: Vec<usize>,
    changes: Vec<Change>,
    steps: usize,
}

impl<'a, L: Live> Search<'a, L> {
    fn new(items: &'a [Item], live: &'a L) -> Self {
        let count = items.iter().map(|item| item.lane + 1).max().unwrap_or(0);
        let mut lanes = vec![VecDeque::new(); count];
        for (index, item) in items.iter().enumerate() {
            lanes[item.lane].push_back(index);
        }
        Search { items, live, lanes, order: Vec::new(), changes: Vec::new(), steps: 0 }
    }

    /// The order that was found. If there is none (records were lost), the longest prefix, and then the records as they came.
    fn run(mut self) -> Vec<usize> {
        let mut best: Vec<usize> = Vec::new();
        // The choices tried at each depth.
        let mut tried: Vec<usize> = vec![0];
        while self.order.len() < self.items.len() && self.steps < STEPS_MAX {
            self.steps += 1;
            let depth = self.order.len();
            let next = (tried[depth]..self.lanes.len()).find(|lane| self.may_come(*lane));
            if let Some(lane) = next {
                tried[depth] = lane + 1;
                self.take(lane);
                tried.push(0);
                if self.order.len() > best.len() {
                    best.clone_from(&self.order);
                }
            } else if depth == 0 {
                break;
            } else {
                tried.pop();
                self.give_back();
            }
        }
        let rest: Vec<usize> = (0..self.items.len()).filter(|index| !best.contains(index)).collect();
        best.extend(rest);
        best
    }

    fn take(&mut self, lane: usize) {
        let Some(index) = self.lanes[lane].pop_front() else { return };
        self.order.push(index);
        if self.items[index].is_lifecycle() {
            let is_birth = matches!(self.items[index].what, What::Alloc { .. } | What::Map);
            self.changes.push(Change { index, is_birth });
        }
    }

    fn give_back(&mut self) {
        let Some(index) = self.order.pop() else { return };
        if self.items[index].is_lifecycle() {
            self.changes.pop();
        }
        self.lanes[self.items[index].lane].push_front(index);
    }

    /// Blocks that are live now and overlap the item.
    fn living(&self, item: &Item) -> Vec<(u64, u64)> {
        let mut blocks = self.live.blocks(item.space, item.pool, item.start, item.end);
        for change in &self.changes {
            let with = &self.items[change.index];
            match with.what {
                What::Alloc { .. } if with.overlaps(item) => {
                    blocks.retain(|block| block.0 != with.start);
                    blocks.push((with.start, with.end));
                }
                What::Free if with.is_with(item) => blocks.retain(|block| block.0 != with.start),
                _ => {}
            }
        }
        blocks
    }

    fn is_mapped(&self, item: &Item) -> bool {
        let last = self.changes.iter().rev().find(|change| {
            let with = &self.items[change.index];
            matches!(with.what, What::Map | What::Unmap) && with.overlaps(item)
        });
        last.map_or_else(|| self.live.is_mapped(item.space, item.start, item.end), |change| change.is_birth)
    }

    /// Whether a block covers the item at some time within the tie.
    fn is_heap(&self, item: &Item) -> bool {
        let is_made = |with: &Item| matches!(with.what, What::Alloc { .. }) && with.overlaps(item);
        self.items.iter().any(is_made) || !self.live.blocks(item.space, item.pool, item.start, item.end).is_empty()
    }

    /// Whether a mapping covers the item at some time within the tie.
    fn is_ever_mapped(&self, item: &Item) -> bool {
        self.items.iter().any(|with| with.what == What::Map && with.overlaps(item))
            || self.live.is_mapped(item.space, item.start, item.end)
    }

    /// Whether another thread still has to unmap a mapping that overlaps the item.
    fn awaits_unmap(&self, item: &Item) -> bool {
        let others = self.lanes.iter().enumerate().filter(|(lane, _)| *lane != item.lane);
        let mut left = others.flat_map(|(_, left)| left).map(|index| &self.items[*index]);
        left.any(|with| with.what == What::Unmap && with.overlaps(item))
    }

    /// Whether the next record of this thread can be next in the order.
    fn may_come(&self, lane: usize) -> bool {
        let Some(item) = self.lanes[lane].front().map(|index| &self.items[*index]) else { return false };
        match item.what {
            What::Other => true,
            What::Alloc { replaces } => self.living(item).iter().all(|block| replaces && block.0 == item.start),
            // A block without a record of its birth was allocated before the recording, or the record was lost.
            What::Free => self.living(item).iter().any(|block| block.0 == item.start) || !self.is_heap(item),
            What::Access if self.is_heap(item) => !self.living(item).is_empty(),
            What::Access | What::Place | What::Unmap => self.is_mapped(item) || !self.is_ever_mapped(item),
            What::Map => !self.is_mapped(item) || !self.awaits_unmap(item),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Traces whose real order is known, with a counter that ticks too slowly to show it.

    use std::collections::{BTreeMap, HashMap, HashSet};

    use numapilot_host::VirtAddr;
    use numapilot_trace::ids::{Order, StackId, TimeNs};
    use numapilot_trace::record::{Access, Stamp};
    use proptest::prelude::*;

    use super::*;

    /// One address space: live blocks by start, as end and instance.
    #[derive(Default)]
    struct World {
        blocks: BTreeMap<u64, (u64, u32)>,
        maps: BTreeMap<u64, u64>,
        /// Blocks of pools: pool, start, end.
        pooled: Vec<(u32, u64, u64)>,
    }

    impl Live for World {
        fn space_of(&self, _: ThreadIndex) -> u32 {
            0
        }
        fn blocks(&self, _: u32, pool: Option<u32>, start: u64, end: u64) -> Vec<(u64, u64)> {
            if let Some(pool) = pool {
                let is_hit = |block: &&(u32, u64, u64)| block.0 == pool && block.1 < end && start < block.2;
                return self.pooled.iter().filter(is_hit).map(|&(_, from, to)| (from, to)).collect();
            }
            let all = self.blocks.iter().map(|(from, (to, _))| (*from, *to));
            all.filter(|(from, to)| *from < end && start < *to).collect()
        }
        fn is_mapped(&self, _: u32, start: u64, end: u64) -> bool {
            self.maps.iter().any(|(from, to)| *from < end && start < *to)
        }
    }

    fn record(order: u64, thread: u32, event: Event) -> Record {
        Record { stamp: Stamp { order: Order(order), time: TimeNs(0) }, thread: ThreadIndex(thread), event }
    }

    fn alloc(address: u64, bytes: u64) -> Event {
        Event::Alloc { address: VirtAddr(address), bytes, kind: AllocKind::Malloc, stack: StackId(0) }
    }

    fn free(address: u64) -> Event {
        Event::Free { address: VirtAddr(address) }
    }

    fn access(address: u64) -> Event {
        Event::Access(Access { address: VirtAddr(address), weight: 1, ..Access::default() })
    }

    fn map(address: u64) -> Event {
        Event::Map {
            address: VirtAddr(address),
            bytes: 4096,
            flags: 1,
            file_offset: 0,
            path: String::new(),
            stack: StackId(0),
        }
    }

    fn unmap(address: u64) -> Event {
        Event::Unmap { address: VirtAddr(address), bytes: 4096 }
    }

    /// Threads of the events in the order found.
    fn settled(world: &World, events: &[(u32, Event)]) -> Vec<u32> {
        let mut records: Vec<Record> = events.iter().map(|(thread, event)| record(7, *thread, event.clone())).collect();
        settle(&mut records, world);
        records.iter().map(|record| record.thread.0).collect()
    }

    #[test]
    fn the_earlier_life_ends_before_the_next_begins() {
        let mut world = World::default();
        world.blocks.insert(0x1000, (0x1040, 1));
        assert_eq!(settled(&world, &[(1, alloc(0x1000, 64)), (2, free(0x1000))]), [2, 1]);
        assert_eq!(settled(&world, &[(1, alloc(0x1020, 64)), (2, free(0x1000))]), [2, 1], "its middle");
        let world = World::default();
        assert_eq!(settled(&world, &[(1, free(0x1000)), (2, alloc(0x1000, 64))]), [2, 1], "made and handed over");
        assert_eq!(settled(&world, &[(1, access(0x1010)), (1, free(0x1000)), (2, alloc(0x1000, 64))]), [2, 1, 1]);
    }

    #[test]
    fn blocks_of_a_pool_too_whatever_lies_beneath() {
        let made = |pool, address| Event::PoolAlloc {
            address: VirtAddr(address),
            bytes: 64,
            pool,
            stack: StackId(0),
            thread: None,
            sample: None,
        };
        let freed = |pool, address| Event::PoolFree { address: VirtAddr(address), pool };
        let mut world = World { pooled: vec![(5, 0x1000, 0x1040)], ..World::default() };
        world.blocks.insert(0x1000, (0x9000, 1));
        assert_eq!(settled(&world, &[(1, made(5, 0x1000)), (2, freed(5, 0x1000))]), [2, 1]);
        assert_eq!(settled(&world, &[(1, freed(5, 0x2000)), (2, made(5, 0x2000))]), [2, 1], "made and handed over");
        assert_eq!(settled(&world, &[(1, made(6, 0x1000)), (2, freed(5, 0x1000))]), [1, 2], "another pool lies in it");
    }

    #[test]
    fn mappings_too() {
        let mut world = World::default();
        assert_eq!(settled(&world, &[(1, unmap(0x4000)), (2, map(0x4000))]), [2, 1]);
        assert_eq!(settled(&world, &[(1, access(0x4000)), (2, map(0x4000))]), [2, 1]);
        world.maps.insert(0x4000, 0x5000);
        assert_eq!(settled(&world, &[(1, map(0x4000)), (2, unmap(0x4000))]), [2, 1]);
    }

    /// Make sure that a choice which fits at first, and leaves no place for another record, is taken back.
    #[test]
    fn choices_are_taken_back() {
        let world = World::default();
        let events = [(1, alloc(0x1000, 64)), (2, alloc(0x1000, 64)), (2, free(0x1000))];
        assert_eq!(settled(&world, &events), [2, 2, 1], "thread 1's block lives on");
    }

    #[test]
    fn what_has_no_order_stays_as_it_came() {
        let world = World::default();
        let events = [(1, alloc(0x1000, 64)), (2, alloc(0x1000, 64))];
        assert_eq!(settled(&world, &events), [1, 2], "a free was lost");
        let events = [(3, alloc(0x1000, 64)), (1, alloc(0x2000, 64)), (2, free(0x9000))];
        assert_eq!(settled(&world, &events), [3, 1, 2], "nothing is shared");
    }

    /// What really happened, one event per step, with the instance that each is of.
    fn history(choices: &[(u32, u8, u8)]) -> Vec<(u32, Event, u32)> {
        let mut live: HashMap<u64, u32> = HashMap::new();
        let mut instances = 0;
        let mut events = Vec::new();
        for (thread, place, action) in choices {
            let address = 0x1000 + u64::from(*place) * 64;
            match (live.get(&address).copied(), action % 3) {
                (None, _) => {
                    instances += 1;
                    live.insert(address, instances);
                    events.push((*thread, alloc(address, 64), instances));
                }
                (Some(instance), 0) => {
                    live.remove(&address);
                    events.push((*thread, free(address), instance));
                }
                (Some(instance), _) => events.push((*thread, access(address + 8), instance)),
            }
        }
        events
    }

    /// The instance that each record is of, by the stamps; panics where a block is made over another, or one that does not live is freed.
    fn replay(world: &mut World, tied: &[(Record, u32)]) -> Vec<(Record, u32, u32)> {
        let mut out = Vec::new();
        for (record, truth) in tied {
            let found = match &record.event {
                Event::Alloc { address, bytes, .. } => {
                    assert_eq!(world.blocks(0, None, address.0, address.0 + bytes), [], "{record:?} over another");
                    world.blocks.insert(address.0, (address.0 + bytes, *truth));
                    *truth
                }
                Event::Free { address } => world.blocks.remove(&address.0).expect("a live block").1,
                Event::Access(access) => world.blocks.range(..=access.address.0).next_back().expect("a live block").1.1,
                _ => unreachable!(),
            };
            out.push((record.clone(), *truth, found));
        }
        out
    }

    proptest! {
        /// Make sure that lives are exact whatever the counter's rate, and accesses where no address lived twice within a tick.
        #[test]
        fn slow_counters_tell_lives_apart(
            choices in proptest::collection::vec((0..5_u32, 0..6_u8, any::<u8>()), 1..160),
            tick in 1..10_usize,
        ) {
            let events = history(&choices);
            let mut world = World::default();
            // Two of them had one address within one tick.
            let mut ambiguous = HashSet::new();
            for (number, group) in events.chunks(tick).enumerate() {
                // As the merge gives them: by thread, each in its own order. The instance goes along in the time stamp.
                let mut records: Vec<Record> = group.iter().map(|(thread, event, instance)| {
                    let stamp = Stamp { order: Order(number as u64), time: TimeNs(u64::from(*instance)) };
                    Record { stamp, thread: ThreadIndex(*thread), event: event.clone() }
                }).collect();
                records.sort_by_key(|record| record.thread);
                settle(&mut records, &world);
                let tied: Vec<(Record, u32)> =
                    records.into_iter().map(|record| { let truth = record.stamp.time.0 as u32; (record, truth) }).collect();
                let address = |event: &Event| match event {
                    Event::Alloc { address, .. } | Event::Free { address } => address.0,
                    Event::Access(access) => access.address.0 - 8,
                    _ => unreachable!(),
                };
                for (_, event, instance) in group {
                    let is_other = |with: &&(u32, Event, u32)| address(&with.1) == address(event) && with.2 != *instance;
                    ambiguous.extend(group.iter().find(is_other).map(|_| *instance));
                }
                for (record, truth, found) in replay(&mut world, &tied) {
                    prop_assert!(truth == found || ambiguous.contains(&truth), "{record:?}: {found} for {truth}");
                }
            }
        }
    }
}
