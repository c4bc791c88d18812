//! The join against a naive oracle that keeps every interval ever and searches them all, on random lifecycles.

use std::collections::HashSet;
use std::sync::Arc;

use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};
use numapilot_symbols::ModuleLayout;
use numapilot_trace::ids::{ModuleId, Order, Pid, ProcessIndex, StackId, ThreadIndex, Tid, TimeNs};
use numapilot_trace::record::{Access, AllocKind, Event, FaultedPage, PoolEvent, Record, Stamp};
use numapilot_trace::wire::layout;
use proptest::prelude::*;

use super::{Conventions, Generated, JoinedAccess, Joiner, Layouts};
use crate::model::ObjectKind;

mod generated;
mod lost;
mod shared;

struct NoLayouts;

impl Layouts for NoLayouts {
    fn layout(&mut self, _: &str, _: &[u8]) -> Arc<ModuleLayout> {
        Arc::default()
    }
}

const CONVENTIONS: Conventions =
    Conventions { ip_is_return_address: true, infers_first_touch: true, ..Conventions::SAMPLED };
const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000;

/// A step of a random program; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Alloc { process: usize, slot: u64, bytes: u64, realloc: bool },
    Free { process: usize, slot: u64 },
    Map { process: usize, page: u64, pages: u64 },
    Unmap { process: usize, page: u64, pages: u64 },
    Fork { process: usize },
    Exec { process: usize },
    Place { process: usize, page: u64, pages: u32, node: u16 },
    Access { process: usize, offset: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let process = 0..8usize;
    // Blocks begin at multiples of 96 and may be longer than that, so that some overlap (their frees were lost).
    prop_oneof![
        6 => (process.clone(), 0..200u64, prop_oneof![4 => 0..97u64, 1 => 97..9000u64, 1 => 60_000..90_000u64], any::<bool>())
            .prop_map(|(process, slot, bytes, realloc)| Step::Alloc { process, slot, bytes, realloc }),
        4 => (process.clone(), 0..200u64).prop_map(|(process, slot)| Step::Free { process, slot }),
        2 => (process.clone(), 0..32u64, 0..6u64).prop_map(|(process, page, pages)| Step::Map { process, page, pages }),
        1 => (process.clone(), 0..32u64, 0..6u64).prop_map(|(process, page, pages)| Step::Unmap { process, page, pages }),
        1 => process.clone().prop_map(|process| Step::Fork { process }),
        1 => process.clone().prop_map(|process| Step::Exec { process }),
        2 => (process.clone(), 0..32u64, 0..6u32, 0..4u16)
            .prop_map(|(process, page, pages, node)| Step::Place { process, page, pages, node }),
        12 => (process, 0..(34 * PAGE)).prop_map(|(process, offset)| Step::Access { process, offset }),
    ]
}

/// One interval of the oracle: in one process, half open in addresses and order.
#[derive(Clone, Debug)]
struct Interval {
    process: usize,
    start: u64,
    end: u64,
    birth: u64,
    death: u64,
    instance: u64,
    is_block: bool,
}

#[derive(Default)]
struct Oracle {
    intervals: Vec<Interval>,
    placed: Vec<(usize, u64, u64, Option<u16>)>,
}

impl Oracle {
    fn alive(&self, process: usize, order: u64) -> impl Iterator<Item = usize> + '_ {
        (0..self.intervals.len()).filter(move |&i| {
            let interval = &self.intervals[i];
            interval.process == process && interval.birth <= order && order < interval.death
        })
    }

    fn end_overlapping(&mut self, process: usize, order: u64, (start, end): (u64, u64), is_block: bool) {
        for index in self.alive(process, order).collect::<Vec<_>>() {
            let interval = &mut self.intervals[index];
            if interval.is_block == is_block && interval.start < end && start < interval.end {
                interval.death = order;
            }
        }
    }

    fn begin(&mut self, process: usize, order: u64, (start, end): (u64, u64), instance: u64, is_block: bool) {
        self.intervals.push(Interval { process, start, end, birth: order, death: u64::MAX, instance, is_block });
    }

    fn copy(&mut self, from: usize, to: usize, order: u64) {
        for index in self.alive(from, order).collect::<Vec<_>>() {
            let copy = Interval { process: to, birth: order, ..self.intervals[index].clone() };
            self.intervals.push(copy);
        }
        let pages: Vec<_> = self.placed.iter().filter(|(process, ..)| *process == from).cloned().collect();
        self.placed.extend(pages.into_iter().map(|(_, order, page, node)| (to, order, page, node)));
    }

    /// The instance that an access must get: a block rather than a mapping.
    fn find(&self, process: usize, order: u64, address: u64) -> Option<u64> {
        self.alive(process, order)
            .map(|index| &self.intervals[index])
            .filter(|interval| interval.start <= address && address < interval.end)
            .max_by_key(|interval| interval.is_block)
            .map(|interval| interval.instance)
    }

    fn home(&self, process: usize, address: u64) -> Option<u16> {
        let page = address / PAGE;
        self.placed
            .iter()
            .rfind(|(owner, _, placed, _)| *owner == process && *placed == page)
            .and_then(|(.., node)| *node)
    }
}

/// The start of a thread on node 0, by the number of its process.
fn thread_start(process: u32, (pid, tid): (Pid, Tid), parent: Option<u32>) -> Event {
    Event::ThreadStart {
        index: ThreadIndex(process),
        pid,
        tid,
        parent: parent.map(ThreadIndex),
        process: ProcessIndex(process),
        cpu: None,
        node: Some(NodeId(0)),
        stack_low: VirtAddr(0),
        stack_high: VirtAddr(0),
        start_routine: VirtAddr(0),
        created_at: StackId(0),
    }
}

struct World {
    joiner: Joiner<NoLayouts>,
    oracle: Oracle,
    order: u64,
    processes: usize,
    /// What each access got and must have got: birth order of the instance, home.
    results: Vec<(Option<u32>, Option<u16>)>,
    wanted: Vec<(Option<u64>, Option<u16>)>,
}

impl World {
    fn new() -> World {
        World::with(CONVENTIONS)
    }

    fn with(conventions: Conventions) -> World {
        let mut world = World {
            joiner: Joiner::new(NoLayouts, conventions, 0, Generated::default()),
            oracle: Oracle::default(),
            order: 0,
            processes: 0,
            results: Vec::new(),
            wanted: Vec::new(),
        };
        world.process(None, false, false);
        world
    }

    fn emit(&mut self, process: usize, event: Event) {
        let stamp = Stamp { order: Order(self.order), time: TimeNs(self.order) };
        let results = &mut self.results;
        let record = Record { stamp, thread: ThreadIndex(process as u32), event };
        self.joiner.push(&record, &mut |joined: &JoinedAccess| {
            results.push((joined.access.object.map(|object| object.0), joined.access.home.map(|home| home.0)));
        });
    }

    fn process(&mut self, parent: Option<usize>, is_fork: bool, by_exec: bool) {
        let process = self.processes;
        self.processes += 1;
        self.order += 1;
        self.emit(
            process,
            thread_start(process as u32, (Pid(1), Tid(1)), parent.filter(|_| is_fork).map(|parent| parent as u32)),
        );
        self.emit(
            process,
            Event::ProcessStart {
                index: ProcessIndex(process as u32),
                pid: Pid(1),
                parent_pid: Pid(1),
                parent: parent.map(|parent| ProcessIndex(parent as u32)),
                by_exec,
                exe: String::new(),
                arguments: Vec::new(),
            },
        );
        if let Some(parent) = parent.filter(|_| is_fork) {
            self.oracle.copy(parent, process, self.order);
        }
    }

    fn apply(&mut self, step: &Step) {
        self.order += 1;
        let order = self.order;
        let range = |page: u64, pages: u64| (BASE + page * PAGE, BASE + (page + pages) * PAGE);
        match *step {
            Step::Alloc { process, slot, bytes, realloc } => {
                let process = process % self.processes;
                let address = BASE + slot * 96;
                let span = (address, address + bytes.max(1));
                self.oracle.end_overlapping(process, order, span, true);
                self.oracle.begin(process, order, span, order, true);
                let kind = if realloc { AllocKind::Realloc } else { AllocKind::Malloc };
                self.emit(process, Event::Alloc { address: VirtAddr(address), bytes, kind, stack: StackId(0) });
            }
            Step::Free { process, slot } => {
                let process = process % self.processes;
                let address = BASE + slot * 96;
                for index in self.oracle.alive(process, order).collect::<Vec<_>>() {
                    let interval = &mut self.oracle.intervals[index];
                    if interval.is_block && interval.start == address {
                        interval.death = order;
                    }
                }
                self.emit(process, Event::Free { address: VirtAddr(address) });
            }
            Step::Map { process, page, pages } => {
                let process = process % self.processes;
                for one in page..page + pages {
                    self.oracle.end_overlapping(process, order, range(one, 1), false);
                    self.oracle.begin(process, order, range(one, 1), order, false);
                }
                let (address, bytes) = (VirtAddr(range(page, 0).0), pages * PAGE);
                let (path, stack) = (String::new(), StackId(0));
                self.emit(process, Event::Map { address, bytes, flags: 1, file_offset: 0, path, stack });
            }
            Step::Unmap { process, page, pages } => {
                let process = process % self.processes;
                self.oracle.end_overlapping(process, order, range(page, pages), false);
                for one in page..page + pages {
                    self.oracle.placed.push((process, order, BASE / PAGE + one, None));
                }
                let (address, bytes) = (VirtAddr(range(page, 0).0), pages * PAGE);
                self.emit(process, Event::Unmap { address, bytes });
            }
            Step::Fork { process } => self.process(Some(process % self.processes), true, false),
            Step::Exec { process } => self.process(Some(process % self.processes), false, order.is_multiple_of(2)),
            Step::Place { process, page, pages, node } => {
                let process = process % self.processes;
                for one in page..page + u64::from(pages) {
                    self.oracle.placed.push((process, order, BASE / PAGE + one, Some(node)));
                }
                let address = VirtAddr(range(page, 0).0);
                self.emit(process, Event::Place { address, pages, node: NodeId(node), cause: 2, toucher: None });
            }
            Step::Access { process, offset } => {
                let process = process % self.processes;
                let address = BASE + offset;
                self.wanted.push((self.oracle.find(process, order, address), self.oracle.home(process, address)));
                let access = Access { address: VirtAddr(address), weight: 7, ..Access::default() };
                self.emit(process, Event::Access(access));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_access_gets_what_the_oracle_says(steps in proptest::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.apply(step));
        let joined = world.joiner.finish();
        let births: Vec<_> = world
            .results
            .iter()
            .map(|(object, home)| (object.map(|object| joined.lifetimes[object as usize].birth), *home))
            .collect();
        prop_assert_eq!(births, world.wanted);
        for (object, lifetime) in joined.objects.iter().zip(&joined.lifetimes) {
            prop_assert_eq!(object.birth.0, lifetime.birth);
            prop_assert!(lifetime.death.is_none_or(|death| death > lifetime.birth));
        }
    }
}

#[test]
fn a_block_covers_its_mapping_and_a_mapping_its_module() {
    let mut world = World::new();
    let map = |flags, path: &str| Event::Map {
        address: VirtAddr(BASE),
        bytes: 16 * PAGE,
        flags,
        file_offset: 0,
        path: path.into(),
        stack: StackId(0),
    };
    let access = || Event::Access(Access { address: VirtAddr(BASE + 10), weight: 7, ..Access::default() });
    let module = |id| Event::Module {
        id: ModuleId(id),
        address: VirtAddr(BASE),
        bytes: 16 * PAGE,
        bias: BASE,
        path: "/lib/x.so".into(),
        build_id: Vec::new(),
    };
    let mut events = vec![map(64, "/lib/x.so"), module(1), access(), map(1, ""), access()];
    let alloc = Event::Alloc { address: VirtAddr(BASE), bytes: 64, kind: AllocKind::New, stack: StackId(0) };
    events.extend([alloc, access(), Event::Free { address: VirtAddr(BASE) }, access()]);
    for event in events {
        world.order += 1;
        world.emit(0, event);
    }
    let joined = world.joiner.finish();
    let kind = |object: Option<u32>| {
        object.map(|object| match &joined.sites[joined.objects[object as usize].site.0 as usize] {
            super::SiteKey::Allocation(kind, _) => *kind,
            super::SiteKey::File(_) => ObjectKind::File,
            _ => ObjectKind::Unknown,
        })
    };
    let kinds: Vec<_> = world.results.iter().map(|(object, _)| kind(*object)).collect();
    let anonymous = Some(ObjectKind::Anonymous);
    assert_eq!(kinds, [Some(ObjectKind::File), anonymous, Some(ObjectKind::Heap), anonymous]);
}

/// Of memory that has become one mapping a part was mapped again: nobody knows which, so that the objects stay and no home is known.
#[test]
fn memory_of_which_a_part_is_renewed_keeps_its_objects_and_no_homes() {
    let mut world = World::new();
    let map = |page: u64, pages: u64, flags| Event::Map {
        address: VirtAddr(BASE + page * PAGE),
        bytes: pages * PAGE,
        flags,
        file_offset: 0,
        path: String::new(),
        stack: StackId(0),
    };
    let access =
        |page: u64| Event::Access(Access { address: VirtAddr(BASE + page * PAGE), weight: 7, ..Access::default() });
    let (address, node) = (VirtAddr(BASE), NodeId(1));
    let place = Event::Place { address, pages: 4, node, cause: 0, toucher: None };
    for event in [map(0, 1, 1), map(1, 3, 1), place, access(0), access(3), map(0, 3, 1024), access(0), access(3)] {
        world.order += 1;
        world.emit(0, event);
    }
    assert_eq!(world.results, [(Some(0), Some(1)), (Some(1), Some(1)), (Some(0), None), (Some(1), Some(1))]);
    assert_eq!(world.joiner.finish().objects.len(), 2);
}

#[test]
fn frames_of_numapilots_own_libraries_are_in_no_stack_and_no_place_of_an_access() {
    let mut world = World::new();
    let module = |id: u32, address: u64, path: &str| Event::Module {
        id: ModuleId(id),
        address: VirtAddr(address),
        bytes: PAGE,
        bias: address,
        path: path.into(),
        build_id: Vec::new(),
    };
    let (program, tracker, libc) = (0x40_0000, 0x50_0000, 0x60_0000);
    let frames = |addresses: &[u64]| addresses.iter().map(|&address| VirtAddr(address)).collect::<Vec<_>>();
    let stack = |id, addresses: &[u64]| Event::Stack {
        id: StackId(id),
        frames: frames(addresses),
        truncated: false,
        failed: false,
    };
    let access = |ip, stack| {
        Event::Access(Access {
            address: VirtAddr(BASE),
            ip: VirtAddr(ip),
            stack: StackId(stack),
            weight: 7,
            ..Access::default()
        })
    };
    // What the kernel sees of a thread that began in the tracker's `begin_pthread`: a hook, the program, the trampoline, libc's start.
    let events = [
        module(1, program, "/home/u/app"),
        module(2, tracker, "/run/user/0/numapilot/libnumapilot-track.so"),
        module(3, libc, "/lib/libc.so.6"),
        stack(1, &[tracker + 64, program + 16, tracker + 32, libc + 8]),
        stack(2, &[tracker + 32, tracker + 40]),
        access(program + 20, 1),
        access(tracker + 70, 1),
        access(tracker + 70, 2),
    ];
    let mut locations = Vec::new();
    for (order, event) in (10..).zip(events) {
        let stamp = Stamp { order: Order(order), time: TimeNs(order) };
        let record = Record { stamp, thread: ThreadIndex(0), event };
        world.joiner.push(&record, &mut |joined: &JoinedAccess| locations.push(joined.access.location));
    }
    let joined = world.joiner.finish();
    let place = |location: crate::model::LocationId| {
        let address = joined.locations[location.0 as usize];
        (joined.binaries[address.binary as usize].path.to_string(), address.offset)
    };
    let of_stack = |id: usize| joined.stacks[id].frames.iter().map(|(_, at)| place(*at)).collect::<Vec<_>>();
    assert_eq!(of_stack(1), [("/home/u/app".to_owned(), 15), ("/lib/libc.so.6".to_owned(), 7)]);
    assert_eq!(of_stack(2), []);
    let places: Vec<_> = locations.into_iter().map(place).collect();
    let app = |offset| ("/home/u/app".to_owned(), offset);
    assert_eq!(places, [app(19), app(15), (String::new(), 0)]);
}

#[test]
fn damaged_records_are_counted_and_change_nothing() {
    let mut world = World::new();
    let address = VirtAddr(u64::MAX - 5);
    let events = [
        Event::Alloc { address, bytes: u64::MAX, kind: AllocKind::Malloc, stack: StackId(9) },
        Event::Alloc { address: VirtAddr(0x1000), bytes: u64::MAX, kind: AllocKind::Malloc, stack: StackId(9) },
        Event::Map { address, bytes: 4096, flags: 0, file_offset: 0, path: String::new(), stack: StackId(0) },
        Event::Unmap { address: VirtAddr(0), bytes: u64::MAX },
        Event::Stack { id: StackId(u32::MAX), frames: Vec::new(), truncated: false, failed: false },
        Event::Stack { id: StackId(1 << 26), frames: Vec::new(), truncated: false, failed: false },
        Event::ThreadEnd { index: ThreadIndex(u32::MAX) },
        Event::ProcessEnd { index: ProcessIndex(u32::MAX), by_exec: true, code: 0 },
        Event::ModuleEnd { id: ModuleId(77) },
        Event::Place { address: VirtAddr(0), pages: u32::MAX, node: NodeId(9), cause: 0, toucher: None },
        Event::Access(Access { address, ..Access::default() }),
    ];
    let damaged = events.len() as u64 - 1;
    for event in events {
        world.order += 1;
        world.emit(0, event);
    }
    let stamp = Stamp { order: Order(99), time: TimeNs(99) };
    // The second would be a possible number after as many others.
    for thread in [u32::MAX, 1 << 22] {
        let stray = Record { stamp, thread: ThreadIndex(thread), event: Event::Free { address: VirtAddr(1) } };
        world.joiner.push(&stray, &mut |_: &JoinedAccess| {});
    }
    let joined = world.joiner.finish();
    assert_eq!(joined.losses.inconsistent_records, damaged + 2);
    assert_eq!((joined.objects.len(), world.results.len()), (0, 1));
    assert_eq!((joined.stacks.len(), joined.threads.len()), (1, 1));
}

#[test]
fn every_cause_of_lost_records_has_its_count() {
    let mut world = World::new();
    let causes = [1, 2, 3, 4, 5, 6];
    for cause in causes {
        world.order += 1;
        world.emit(0, Event::Lost { count: 10 + u64::from(cause), cause });
    }
    let losses = world.joiner.finish().losses;
    let found = [
        losses.ring_full,
        losses.no_slot,
        losses.stopped,
        losses.stack_table,
        losses.reentrant,
        losses.after_end,
        losses.inconsistent_records,
    ];
    assert_eq!(found, [11, 12, 13, 14, 15, 16, 0]);
    assert!(losses.records_lost());
}

/// Two processes fault on shared memory, at different addresses: each page has one first touch, by whoever came first.
#[test]
fn a_page_of_shared_memory_is_touched_first_in_one_process_only() {
    let placed = |flags: u32, path: &str, is_forked: bool| {
        let faults = Conventions { accesses_are_faults: true, ..Conventions::SAMPLED };
        let mut world = World::with(faults);
        let map = |at: u64| Event::Map {
            address: VirtAddr(at),
            bytes: 16 * PAGE,
            flags,
            file_offset: 0,
            path: path.into(),
            stack: StackId(0),
        };
        let fault = |at: u64, node: u16| {
            let (address, node) = (VirtAddr(at), Some(NodeId(node)));
            Event::Access(Access { address, node, home: node, weight: 1, ..Access::default() })
        };
        world.order += 1;
        world.emit(0, map(BASE));
        world.process(is_forked.then_some(0), is_forked, false);
        let other = if is_forked { BASE } else { 5 * BASE };
        if !is_forked {
            world.order += 1;
            world.emit(1, map(other));
        }
        for (process, at, node) in [(0, BASE, 0), (1, other + PAGE, 1), (1, other, 0), (0, BASE + PAGE, 1)] {
            world.order += 1;
            world.emit(process, fault(at, node));
        }
        let homes: Vec<_> = world.results.iter().map(|(_, home)| *home).collect();
        assert_eq!(homes, [Some(0), Some(1), Some(0), Some(1)]);
        let joined = world.joiner.finish();
        let told = |row: usize| (joined.placements.thread[row], joined.placements.cause[row].to_string());
        (0..joined.placements.thread.len()).map(told).collect::<Vec<_>>()
    };
    let (shared, before) = (2 | 512, 2 | 512 | 64);
    let first = |cause: &str| vec![(0, cause.to_owned()), (1, cause.to_owned())];
    assert_eq!(placed(shared, "/dev/shm/a", false), first("first_touch"));
    assert_eq!(placed(shared, "/dev/zero (deleted)", true), first("first_touch"));
    assert_eq!(placed(2, "", true), first("first_touch"), "anonymous, of a program with the tracker");
    assert_eq!(placed(before, "/SYSV00000001 (deleted)", false), first("found"), "whether it was in memory is unknown");
    // Private memory at the same addresses is each process's own.
    assert_eq!(placed(1, "", false).len(), 4);
    assert_eq!(placed(2, "/var/lib/data", false), [], "the page cache's");
}

/// The recorder says that the page's first toucher is unknown: no later access makes one.
#[test]
fn a_home_that_is_told_to_be_unknown_is_not_inferred() {
    let mut world = World::new();
    let place = |cause: u32| Event::Place {
        address: VirtAddr(BASE),
        pages: 1,
        node: NodeId(1),
        cause: cause as u8,
        toucher: None,
    };
    let access = || {
        let (address, node) = (VirtAddr(BASE), Some(NodeId(1)));
        Event::Access(Access { address, node, weight: 1, ..Access::default() })
    };
    let unmap = Event::Unmap { address: VirtAddr(BASE), bytes: PAGE };
    for event in [
        place(layout::PLACED_UNKNOWN),
        access(),
        place(layout::PLACED_MOVED),
        access(),
        place(layout::PLACED_UNKNOWN),
        access(),
        unmap,
        access(),
    ] {
        world.order += 1;
        world.emit(0, event);
    }
    let homes: Vec<_> = world.results.iter().map(|(_, home)| *home).collect();
    assert_eq!(
        homes,
        [None, Some(1), None, Some(1)],
        "moved, its home is known; in another life of the address, it is inferred"
    );
}

/// A thread's node is that of its CPU: where that is another one of no known node, the thread is on no known node.
#[test]
fn an_access_on_a_cpu_of_unknown_node_is_on_no_node() {
    let mut joiner = Joiner::new(NoLayouts, Conventions::SAMPLED, 0, Generated::default());
    let mut found = Vec::new();
    let mut push = |event: Event| {
        let record = Record { stamp: Stamp::default(), thread: ThreadIndex(0), event };
        joiner.push(&record, &mut |joined: &JoinedAccess| found.push(joined.access.node.map(|node| node.0)));
    };
    push(Event::Cpu { cpu: CpuId(3), node: NodeId(0) });
    for cpu in [None, Some(CpuId(3)), Some(CpuId(40))] {
        push(Event::Access(Access { address: VirtAddr(BASE), cpu, weight: 1, ..Access::default() }));
    }
    assert_eq!(found, [Some(0), Some(0), None]);
}

/// Each child takes a copy of what its parent had, as soon as the parent goes on; copies of children that have ended go.
#[test]
fn the_live_sets_of_children_that_have_ended_are_not_kept() {
    let mut world = World::new();
    for child in 1..=50 {
        world.apply(&Step::Alloc { process: 0, slot: child, bytes: 96, realloc: false });
        world.process(Some(0), true, false);
        world.order += 1;
        let index = ProcessIndex(child as u32);
        world.emit(child as usize, Event::ProcessEnd { index, by_exec: false, code: 0 });
    }
    let blocks = world.joiner.spaces.iter().map(|space| Arc::as_ptr(&space.blocks)).collect::<HashSet<_>>();
    let kept = world.joiner.spaces.iter().filter(|space| space.blocks.get(BASE + 96).is_some()).count();
    assert!(kept <= 5, "{kept} of {} live sets", blocks.len());
    world.apply(&Step::Access { process: 0, offset: 96 });
    assert_eq!(world.results.last().map(|(object, _)| object.is_some()), Some(true), "the parent's own is there");
}

/// Placements that faults at these offsets in 4 MiB of private memory make, with (node, home, whether a page was there, its size): offset, pages, node, cause.
fn placed(page_bytes: u64, faults: &[(u64, u16, u16, Option<bool>, u64)]) -> Vec<(u64, u32, u16, String)> {
    const AT: u64 = 0x4000_0000;
    let conventions = Conventions { accesses_are_faults: true, page_bytes, ..Conventions::SAMPLED };
    let mut world = World::with(conventions);
    world.order += 1;
    let (address, path, stack) = (VirtAddr(AT), String::new(), StackId(0));
    world.emit(0, Event::Map { address, bytes: 4 << 20, flags: 1, file_offset: 0, path, stack });
    for &(offset, node, home, was_present, bytes) in faults {
        world.order += 1;
        let (node, home) = (Some(NodeId(node)), Some(NodeId(home)));
        let page = FaultedPage::new(was_present, bytes);
        let address = VirtAddr(AT + offset);
        world.emit(0, Event::Access(Access { address, node, home, page, weight: 1, ..Access::default() }));
    }
    let rows = world.joiner.finish().placements;
    let row = |at: usize| (rows.address[at] - AT, rows.pages[at], rows.node[at], rows.cause[at].to_string());
    (0..rows.address.len()).map(row).collect()
}

#[test]
fn a_huge_page_is_placed_once_and_as_a_whole() {
    const HUGE: u64 = 2 << 20;
    let rows = placed(
        PAGE,
        &[
            (0x5000, 1, 1, Some(false), HUGE),
            // A hinting fault elsewhere in it, and one after which the kernel moved it.
            (0x10_0000, 0, 1, Some(true), HUGE),
            (0x1f_f000, 0, 0, Some(true), HUGE),
            (0x0, 0, 0, Some(true), HUGE),
            // One that was there, of which no fault is known: a use from another node is no placement by a policy.
            (HUGE + 0x3000, 0, 1, Some(true), HUGE),
            (HUGE + 0x9000, 0, 1, Some(true), HUGE),
        ],
    );
    let row = |offset, node, cause: &str| (offset, 512, node, cause.to_owned());
    assert_eq!(rows, [row(0, 1, "first_touch"), row(0, 0, "moved"), row(HUGE, 1, "found")]);
}

#[test]
fn a_base_page_is_as_large_as_the_hosts() {
    let faults = [(0x1_3000, 1, 1, None, 0), (0x1_8000, 0, 1, Some(true), 65536), (0x2_0000, 0, 0, Some(false), 65536)];
    let rows = placed(65536, &faults);
    assert_eq!(rows, [(0x1_0000, 16, 1, "first_touch".to_owned()), (0x2_0000, 16, 0, "first_touch".to_owned())]);
}

#[test]
fn what_became_a_huge_page_later_was_placed_page_by_page() {
    let rows = placed(PAGE, &[(0x0, 0, 0, Some(false), PAGE), (0x1000, 1, 1, Some(false), 2 << 20)]);
    assert_eq!(rows, [(0, 1, 0, "first_touch".to_owned()), (0x1000, 1, 1, "first_touch".to_owned())]);
    // Of an older kernel nothing is known: one page each.
    let rows = placed(PAGE, &[(0x0, 0, 0, None, 0), (0x1000, 1, 0, None, 0)]);
    assert_eq!(rows, [(0, 1, 0, "first_touch".to_owned()), (0x1000, 1, 0, "policy".to_owned())]);
}

/// Objects of accesses to memory in which pools lie, as the site's kind and the pool's name.
fn sites_of_accesses(world: World) -> Vec<(ObjectKind, String)> {
    let results = world.results.clone();
    let joined = world.joiner.finish();
    let of = |object: Option<u32>| match object {
        Some(object) => match &joined.sites[joined.objects[object as usize].site.0 as usize] {
            super::SiteKey::Pool { pool, .. } => (ObjectKind::Pool, pool.to_string()),
            super::SiteKey::Allocation(kind, _) => (*kind, String::new()),
            _ => (ObjectKind::Unknown, "another".to_owned()),
        },
        None => (ObjectKind::Unknown, String::new()),
    };
    results.into_iter().map(|(object, _)| of(object)).collect()
}

fn emit_all(world: &mut World, process: usize, events: impl IntoIterator<Item = Event>) {
    for event in events {
        world.order += 1;
        world.emit(process, event);
    }
}

fn pool(pool: u32, name: &str) -> Event {
    Event::Pool { pool, what: PoolEvent::Created(name.to_owned()) }
}

fn pool_alloc(pool: u32, address: u64, bytes: u64) -> Event {
    Event::PoolAlloc { address: VirtAddr(address), bytes, pool, stack: StackId(0), thread: None, sample: None }
}

fn access_to(address: u64) -> Event {
    Event::Access(Access { address: VirtAddr(address), weight: 7, ..Access::default() })
}

#[test]
fn an_access_in_a_pools_block_is_of_that_and_elsewhere_of_what_holds_the_pool() {
    let mut world = World::new();
    let free = |address| Event::Free { address: VirtAddr(address) };
    let block = |bytes| Event::Alloc { address: VirtAddr(BASE), bytes, kind: AllocKind::Malloc, stack: StackId(0) };
    let reset = Event::Pool { pool: 1, what: PoolEvent::Reset };
    let destroyed = Event::Pool { pool: 2, what: PoolEvent::Destroyed };
    let events = [
        block(PAGE),
        pool(1, "requests"),
        pool(2, "names"),
        // The pool's first block begins where the block of malloc does.
        pool_alloc(1, BASE, 256),
        pool_alloc(2, BASE + 512, 64),
        access_to(BASE + 255),
        access_to(BASE + 256),
        access_to(BASE + 512),
        Event::PoolFree { address: VirtAddr(BASE), pool: 1 },
        access_to(BASE),
        pool_alloc(1, BASE + 64, 64),
        reset,
        access_to(BASE + 64),
        destroyed,
        access_to(BASE + 512),
        pool_alloc(2, BASE, 64),
        access_to(BASE),
        // What holds the pool is given back, without a word about the pool.
        free(BASE),
        access_to(BASE),
        block(128),
        access_to(BASE),
    ];
    emit_all(&mut world, 0, events);
    let named = |name: &str| (ObjectKind::Pool, name.to_owned());
    let heap = || (ObjectKind::Heap, String::new());
    let nothing = (ObjectKind::Unknown, String::new());
    let expected = [named("requests"), heap(), named("names"), heap(), heap(), heap(), named(""), nothing, heap()];
    assert_eq!(sites_of_accesses(world), expected);
}

#[test]
fn pools_in_mappings_end_with_them_and_a_forked_child_has_its_own_copy() {
    let mut world = World::new();
    let map = Event::Map {
        address: VirtAddr(BASE),
        bytes: 4 * PAGE,
        flags: 1,
        file_offset: 0,
        path: String::new(),
        stack: StackId(0),
    };
    emit_all(&mut world, 0, [map, pool(1, "arena"), pool_alloc(1, BASE + 64, 3 * PAGE)]);
    world.process(Some(0), true, false);
    emit_all(&mut world, 1, [Event::Pool { pool: 1, what: PoolEvent::Reset }, access_to(BASE + PAGE)]);
    emit_all(&mut world, 1, [pool_alloc(1, BASE + PAGE, 64), access_to(BASE + PAGE)]);
    let unmap = Event::Unmap { address: VirtAddr(BASE + 3 * PAGE), bytes: PAGE };
    emit_all(&mut world, 0, [access_to(BASE + PAGE), unmap, access_to(BASE + PAGE)]);
    let arena = (ObjectKind::Pool, "arena".to_owned());
    let mapping = (ObjectKind::Anonymous, String::new());
    let expected = [mapping.clone(), arena.clone(), arena, mapping];
    assert_eq!(sites_of_accesses(world), expected);
}

#[test]
fn blocks_of_pools_die_once_and_a_free_of_none_is_counted() {
    let mut world = World::new();
    let stray = Event::PoolFree { address: VirtAddr(BASE), pool: 2 };
    let destroyed = Event::Pool { pool: 1, what: PoolEvent::Destroyed };
    let damaged = pool_alloc(1, u64::MAX - 5, 64);
    let events =
        [pool(1, "a"), pool_alloc(1, BASE, 64), pool_alloc(1, BASE, 128), stray, damaged, destroyed.clone(), destroyed];
    emit_all(&mut world, 0, events);
    let joined = world.joiner.finish();
    let lives: Vec<_> = joined.objects.iter().map(|object| (object.bytes, object.death.map(|time| time.0))).collect();
    let born = joined.lifetimes[0].birth;
    assert_eq!(lives, [(64, Some(born + 1)), (128, Some(born + 4))]);
    assert_eq!((joined.losses.unmatched_frees, joined.losses.inconsistent_records), (1, 1));
}
