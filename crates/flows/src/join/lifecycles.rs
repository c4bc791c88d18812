//! Births and deaths: blocks, pools' blocks, mappings, binaries, threads, processes, page placements.

use std::sync::Arc;

use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;
use numapilot_ranges::Piece;
use numapilot_trace::ids::{ModuleId, Pid, ProcessIndex, StackId, ThreadIndex};
use numapilot_trace::mapping::is_shared_memory;
use numapilot_trace::record::{AllocKind, BlockSample, Counters, Event, FileIdentity, PoolEvent, Record};
use numapilot_trace::tables::{ModuleRow, PlacementRow};
use numapilot_trace::wire::layout;

use super::space::{Loaded, Mapping, Space, map_flags};
use super::{
    ADDRESS_END, INDEX_MAX, INDICES_PER_START, Joiner, Layouts, Module, ProcessExtra, Running, SiteKey, ThreadExtra,
};
use crate::model::{CountersAt, Object, ObjectKind, Process, Thread};

/// Processes that ended last, whose live sets are kept for records that follow.
const ENDED_KEPT: usize = 4;
/// Most pages of one placement record (1 TiB); more means damage.
const PLACED_PAGES_MAX: u32 = 1 << 28;
/// Size from which an allocator may return a freed block's memory to the kernel, so that its next touch gets new pages (M_MMAP_THRESHOLD and
/// M_TRIM_THRESHOLD of glibc).
const RETURNED_BYTES: u64 = 128 << 10;
/// By how much the break may move at once: a block of the largest size that glibc takes from there (M_MMAP_THRESHOLD_MAX), and room to spare.
const GROWTH_MAX: u64 = 64 << 20;
/// The kernel's name for the main thread's stack, which grows automatically.
const GROWING_STACK: &str = "[stack]";
/// What the C library calls its memory where its tunable `glibc.mem.decorate_maps` is on (from 2.39 on): stacks by the number of their thread, unused ones,
/// and the allocator's (`nptl/nptl-stack.c`, `malloc/`).
const GLIBC_STACKS: [&str; 2] = ["[anon: glibc: pthread", "[anon: glibc: unused stack"];
const GLIBC_ALLOCATOR: &str = "[anon: glibc: malloc";
/// Beginning of the name of the memory that Java's collector ZGC has for its heap (`zPhysicalMemoryBacking_linux.cpp` of OpenJDK). It maps each piece of it by
/// itself as the heap grows and shrinks, up to Java 23 at three addresses at once.
const ZGC_HEAP: &str = "/memfd:java_heap";
const PAGE_BYTES: u64 = 1 << layout::PAGE_SHIFT;

impl<L: Layouts> Joiner<L> {
    /// The state of a thread, which is created if its start was not recorded.
    pub(super) fn running(&mut self, thread: ThreadIndex) -> &mut Running {
        let index = thread.0 as usize;
        if index >= self.running.len() {
            self.running.resize(index + 1, Running::default());
            let from = self.out.threads.len();
            let rows = (from..=index).map(|index| Thread { index: ThreadIndex(index as u32), ..Thread::default() });
            self.out.threads.extend(rows);
            self.out.thread_extras.resize(index + 1, ThreadExtra::default());
        }
        &mut self.running[index]
    }

    /// The state of a record's thread, whose process has an address space. A thread without a start record (its first chunk was lost) is assigned to
    /// the first process, and begins with this record.
    #[inline]
    pub(super) fn known_thread(&mut self, record: &Record) -> &Running {
        let index = record.thread.0 as usize;
        if self.running.get(index).is_none_or(|running| !running.known) {
            self.out.losses.inconsistent_records += 1;
            let order = self.order(record);
            let running = self.running(record.thread);
            running.known = true;
            let process = running.process;
            self.out.threads[index].start = record.stamp.time;
            self.out.thread_extras[index].start_order = order;
            self.space(process);
        }
        &self.running[index]
    }

    fn space(&mut self, process: ProcessIndex) -> &mut Space {
        let index = process.0 as usize;
        if index >= self.spaces.len() {
            self.spaces.resize(index + 1, Space::default());
            let from = self.out.processes.len();
            let rows = (from..=index).map(|index| Process { index: ProcessIndex(index as u32), ..Process::default() });
            self.out.processes.extend(rows);
            self.out.process_extras.resize(index + 1, ProcessExtra::default());
        }
        &mut self.spaces[index]
    }

    fn check(&mut self, address: u64, bytes: u64) -> bool {
        let sound = address < ADDRESS_END && bytes <= ADDRESS_END - address;
        self.out.losses.inconsistent_records += u64::from(!sound);
        sound
    }

    fn born(&mut self, record: &Record, address: u64, bytes: u64) -> Object {
        let thread = self.known_thread(record);
        Object {
            process: thread.process,
            address: VirtAddr(address),
            bytes,
            birth: record.stamp.time,
            thread: Some(record.thread),
            cpu: thread.cpu,
            node: thread.node,
            ..Object::default()
        }
    }

    pub(super) fn alloc(&mut self, record: &Record, address: u64, bytes: u64, kind: AllocKind, stack: StackId) {
        // A block of 0 bytes has an address of its own, too.
        let length = bytes.max(1);
        if !self.check(address, length) {
            return;
        }
        let process = self.known_thread(record).process;
        if kind == AllocKind::Realloc
            && let Some(old) = self.block_starting_at(process, address)
        {
            // Reallocated in place, without a free: a new instance starts where the old one ends.
            self.end_block(record, process, old, Some(record.thread));
        }
        self.end_overlapped(record, process, address, length);
        self.end_pooled_in(record, process, address, length);
        let object_kind = if kind == AllocKind::Shm { ObjectKind::Shared } else { ObjectKind::Heap };
        let site = self.site(SiteKey::Allocation(object_kind, stack));
        let object = self.born(record, address, bytes);
        let order = self.order(record);
        let object = self.new_object(Object { site, stack, alloc_kind: Some(kind), ..object }, order);
        Arc::make_mut(&mut self.spaces[process.0 as usize].blocks).insert(address, length, object);
    }

    /// Ends blocks that are still live where a new one starts: their frees were lost.
    fn end_overlapped(&mut self, record: &Record, process: ProcessIndex, address: u64, length: u64) {
        let mut stale = std::mem::take(&mut self.scratch_stale);
        stale.clear();
        self.spaces[process.0 as usize].blocks.overlaps(address, length, &mut stale);
        for &old in &stale {
            self.out.losses.inconsistent_records += 1;
            self.end_block(record, process, old, None);
        }
        self.scratch_stale = stale;
    }

    fn block_starting_at(&self, process: ProcessIndex, address: u64) -> Option<u32> {
        let object = self.spaces[process.0 as usize].blocks.get(address)?;
        (self.out.objects[object as usize].address.0 == address).then_some(object)
    }

    /// `by`: the thread that ended it, where the record says so.
    fn died(&mut self, record: &Record, object: u32, by: Option<ThreadIndex>) {
        let row = &mut self.out.objects[object as usize];
        row.death = Some(record.stamp.time);
        row.death_thread = by;
        self.out.lifetimes[object as usize].death = Some(self.order(record));
    }

    pub(super) fn free(&mut self, record: &Record, address: u64) {
        let process = self.known_thread(record).process;
        match self.block_starting_at(process, address) {
            Some(object) => self.end_block(record, process, object, Some(record.thread)),
            None => self.out.losses.unmatched_frees += 1,
        }
    }

    fn end_block(&mut self, record: &Record, process: ProcessIndex, object: u32, by: Option<ThreadIndex>) {
        let row = &mut self.out.objects[object as usize];
        let length = row.bytes.max(1);
        let (address, space) = (row.address.0, &mut self.spaces[process.0 as usize]);
        Arc::make_mut(&mut space.blocks).remove(address, length, object);
        if self.conventions.accesses_are_faults && length >= RETURNED_BYTES {
            let first = address.next_multiple_of(PAGE_BYTES);
            let end = (address + length) & !(PAGE_BYTES - 1);
            Arc::make_mut(&mut space.homes).clear(first, end.saturating_sub(first));
        }
        if row.process == process {
            self.died(record, object, by);
        }
        self.end_pooled_in(record, process, address, length);
    }

    /// A pool of the program's own begins or ends, or all its blocks do.
    pub(super) fn pool(&mut self, record: &Record, pool: u32, what: &PoolEvent) {
        let process = self.known_thread(record).process;
        let at = process.0 as usize;
        if let PoolEvent::Created(name) = what {
            let name = self.name(name);
            Arc::make_mut(&mut self.spaces[at].pools).create(pool, name);
            return;
        }
        let ending = self.spaces[at].pools.of_pool(pool);
        self.end_pooled(record, process, ending);
        if *what == PoolEvent::Destroyed {
            Arc::make_mut(&mut self.spaces[at].pools).destroy(pool);
        }
    }

    /// `thread`: that allocated it, if it is another thread than the record's. An unknown one is replaced by the record's thread.
    pub(super) fn pool_alloc(
        &mut self,
        record: &Record,
        (address, bytes): (u64, u64),
        (pool, stack): (u32, StackId),
        thread: Option<ThreadIndex>,
        sample: Option<BlockSample>,
    ) {
        let length = bytes.max(1);
        if !self.check(address, length) {
            return;
        }
        let process = self.known_thread(record).process;
        let at = process.0 as usize;
        let (layer, ending) = self.spaces[at].pools.place(pool, address, length);
        self.end_pooled(record, process, ending);
        let name = self.spaces[at].pools.name(pool).checked_sub(1);
        let name: Arc<str> = name.map_or_else(|| "".into(), |name| self.name_list[name as usize].clone());
        let site = self.site(SiteKey::Pool { pool: name, stack });
        let mut object = self.born(record, address, bytes);
        let running = thread.and_then(|thread| self.running.get(thread.0 as usize)).filter(|running| running.known);
        if let Some(running) = running {
            (object.thread, object.cpu, object.node) = (thread, running.cpu, running.node);
        }
        let order = self.order(record);
        let object = self.new_object(Object { site, stack, sample, ..object }, order);
        Arc::make_mut(&mut self.spaces[at].pools).insert(pool, layer, (address, length), object);
    }

    pub(super) fn pool_free(&mut self, record: &Record, address: u64, pool: u32) {
        let process = self.known_thread(record).process;
        match self.spaces[process.0 as usize].pools.starting_at(pool, address) {
            Some(object) => self.end_pooled(record, process, vec![object]),
            None => self.out.losses.unmatched_frees += 1,
        }
    }

    /// Ends blocks of pools, and those that lie in them.
    fn end_pooled(&mut self, record: &Record, process: ProcessIndex, mut ending: Vec<u32>) {
        while let Some(object) = ending.pop() {
            let pools = Arc::make_mut(&mut self.spaces[process.0 as usize].pools);
            let Some(inside) = pools.remove(object) else { continue };
            ending.extend(inside);
            if self.out.objects[object as usize].process == process {
                self.died(record, object, Some(record.thread));
            }
        }
    }

    /// Ends the blocks of pools in memory that is given back, or that has begun another life.
    fn end_pooled_in(&mut self, record: &Record, process: ProcessIndex, address: u64, bytes: u64) {
        let pools = &self.spaces[process.0 as usize].pools;
        if !pools.is_empty() {
            let ending = pools.within(address, bytes);
            self.end_pooled(record, process, ending);
        }
    }

    pub(super) fn map(
        &mut self,
        record: &Record,
        (address, bytes, file_offset): (u64, u64, u64),
        flags: u32,
        path: &str,
        stack: StackId,
    ) {
        if !self.check(address, bytes) {
            return;
        }
        let process = self.known_thread(record).process;
        if flags & map_flags::RENEWED != 0 {
            // Which part of it was mapped again is not known: what is mapped there stays, and the home of no page is known any more.
            Arc::make_mut(&mut self.spaces[process.0 as usize].homes).clear(address, bytes);
            return;
        }
        let initial = flags & map_flags::INITIAL != 0;
        if !initial {
            if path == GROWING_STACK && flags & map_flags::STACK != 0 && self.stack_grown(process, address, bytes) {
                return;
            }
            // Address range that a stack had not grown into yet, or of a thread whose end was not recorded.
            let stacks = &mut self.spaces[process.0 as usize].stacks;
            if stacks.overlaps(address, address + bytes) {
                Arc::make_mut(stacks).remove(address, address + bytes);
            }
        }
        let key = match binary_data(path) {
            // No declaration is at that offset, so the place of the parts in the source is unknown.
            Some((binary, part)) => {
                SiteKey::Symbol { binary: self.binary(binary, &[]), name: part.into(), offset: u64::MAX }
            }
            None => mapping_site(flags, path, stack, file_offset),
        };
        let site = self.site(key);
        let file = self.running(record.thread).file.take().filter(|(at, _)| *at == address);
        let part = match file.filter(|_| flags & layout::MAP_SHARED != 0) {
            Some((_, file)) => self.segments.file_part(file, (address, file_offset)),
            None => self.segments.part(flags, path, (address, file_offset)),
        };
        let path = self.name(path);
        let object = self.born(record, address, bytes);
        let thread = object.thread.filter(|_| !initial);
        let order = self.order(record);
        let object = self.new_object(Object { site, stack, thread, ..object }, order);
        self.serial += 1;
        let mapping = Mapping { object, serial: self.serial, flags, path, part };
        let mut cut = std::mem::take(&mut self.scratch_cut);
        let space = &mut self.spaces[process.0 as usize];
        Arc::make_mut(&mut space.mappings).replace(address, address + bytes, mapping, |piece| cut.push(piece));
        if flags & map_flags::EXEC != 0 {
            space.code_version += 1;
        }
        self.end_pieces(record, process, &mut cut);
        self.scratch_cut = cut;
    }

    /// The object of a page fault on memory of no other object, if that is above the break: the C library moves the break from inside, and writes there before
    /// the block for which it did so tells of it. The growth, when it is told, replaces the page.
    pub(super) fn above_break(&mut self, record: &Record, process: ProcessIndex, address: u64) -> Option<u32> {
        let space = &self.spaces[process.0 as usize];
        let below = space.mappings.before(address)?;
        let gap = address.checked_sub(below.end)?;
        let start = (address & !(PAGE_BYTES - 1)).max(below.end);
        let end = (address | (PAGE_BYTES - 1)).saturating_add(1);
        let is_free = space.module_at(address).is_none() && !space.mappings.overlaps(start, end);
        if below.value.flags & map_flags::BRK == 0 || gap >= GROWTH_MAX || !is_free {
            return None;
        }
        let site = self.site(mapping_site(map_flags::BRK, "", StackId(0), 0));
        let object = Object { site, ..self.born(record, start, end - start) };
        let order = self.order(record);
        let object = self.new_object(object, order);
        self.serial += 1;
        let mapping = Mapping { object, serial: self.serial, flags: map_flags::BRK, path: 0, part: None };
        Arc::make_mut(&mut self.spaces[process.0 as usize].mappings).set(start, end, mapping);
        Some(object)
    }

    /// The file that the thread's next mapping shows, or to which the thread has given memory.
    pub(super) fn file(
        &mut self,
        record: &Record,
        (address, file): (u64, FileIdentity),
        (offset, bytes): (u64, u64),
        node: Option<NodeId>,
    ) {
        if let Some(node) = node.filter(|_| bytes > 0) {
            self.segments.allocated(file, (offset, bytes), node);
        }
        if address != 0 {
            self.running(record.thread).file = Some((address, file));
        }
    }

    /// Extends the main thread's stack object to an access below its known range.
    fn stack_grown(&mut self, process: ProcessIndex, address: u64, bytes: u64) -> bool {
        let stacks = &mut self.spaces[process.0 as usize].stacks;
        let Some(piece) = stacks.get(address + bytes) else { return false };
        let stack = &mut self.out.objects[piece.value as usize];
        if stack.process != process || stack.address.0 != address + bytes {
            return false;
        }
        stack.address = VirtAddr(address);
        stack.bytes += bytes;
        Arc::make_mut(stacks).set(address, address + bytes, piece.value);
        true
    }

    pub(super) fn unmap(&mut self, record: &Record, address: u64, bytes: u64) {
        if !self.check(address, bytes) {
            return;
        }
        let process = self.known_thread(record).process;
        let mut cut = std::mem::take(&mut self.scratch_cut);
        let space = &mut self.spaces[process.0 as usize];
        Arc::make_mut(&mut space.mappings).cut(address, address + bytes, |piece| cut.push(piece));
        Arc::make_mut(&mut space.homes).clear(address, bytes);
        if cut.iter().any(|piece| piece.value.flags & map_flags::EXEC != 0) {
            space.code_version += 1;
        }
        self.end_pieces(record, process, &mut cut);
        self.scratch_cut = cut;
        self.end_pooled_in(record, process, address, bytes);
    }

    /// Ends mappings whose last piece was cut out.
    fn end_pieces(&mut self, record: &Record, process: ProcessIndex, cut: &mut Vec<Piece<u64, Mapping>>) {
        for piece in cut.drain(..) {
            let object = piece.value.object;
            let row = &self.out.objects[object as usize];
            if row.process != process {
                continue;
            }
            let (start, end) = (row.address.0, row.address.0 + row.bytes);
            let mappings = &self.spaces[process.0 as usize].mappings;
            let alive = mappings.overlapping(start, end).any(|piece| piece.value.object == object);
            if !alive {
                self.died(record, object, Some(record.thread));
            }
        }
    }

    pub(super) fn module(
        &mut self,
        record: &Record,
        id: ModuleId,
        (address, bytes, bias): (u64, u64, u64),
        path: &str,
        build_id: &[u8],
    ) {
        if !self.check(address, bytes) {
            return;
        }
        let process = self.known_thread(record).process;
        let binary = self.binary(path, build_id);
        let path = self.name(path);
        let row = self.modules.len() as u32;
        self.modules.push(Module { binary, path, bias, start: address, bytes, layout: None });
        self.module_rows.insert(id, row);
        self.serial += 1;
        self.out.modules.push(ModuleRow {
            module: id.0,
            process: process.0,
            path: self.out.binaries[binary as usize].path.clone(),
            address,
            bytes,
            bias,
            build_id: build_id.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
            load_ns: record.stamp.time.0,
            unload_ns: None,
        });
        let loaded = Loaded { module: row, serial: self.serial };
        let space = &mut self.spaces[process.0 as usize];
        Arc::make_mut(&mut space.modules).set(address, address + bytes, loaded);
        space.code_version += 1;
    }

    pub(super) fn module_end(&mut self, record: &Record, id: ModuleId) {
        let process = self.known_thread(record).process;
        let Some(&row) = self.module_rows.get(&id) else {
            self.out.losses.inconsistent_records += 1;
            return;
        };
        // A forked child has its parent's binaries, whose rows are the parent's.
        if self.out.modules.process[row as usize] == process.0 {
            self.out.modules.unload_ns[row as usize] = Some(record.stamp.time.0);
        }
        let module = &self.modules[row as usize];
        let space = &mut self.spaces[process.0 as usize];
        if space.module_at(module.start) == Some(row) {
            Arc::make_mut(&mut space.modules).remove(module.start, module.start + module.bytes);
            space.code_version += 1;
        }
    }

    pub(super) fn thread_start(&mut self, record: &Record) {
        let Event::ThreadStart { index, pid, tid, parent, process, cpu, node, .. } = &record.event else { return };
        let Event::ThreadStart { stack_low, stack_high, start_routine, created_at, .. } = &record.event else { return };
        self.index_max = INDEX_MAX.min(self.index_max + INDICES_PER_START);
        if index.0 > self.index_max || process.0 > self.index_max {
            self.out.losses.inconsistent_records += 1;
            return;
        }
        self.space(*process);
        let running = self.running(*index);
        *running = Running { process: *process, cpu: *cpu, node: *node, known: true, ..Running::default() };
        let routine = start_routine.0;
        let start_routine = self.code_location(*process, routine);
        self.out.thread_extras[index.0 as usize] = ThreadExtra {
            pid: *pid,
            start_routine: routine,
            start_location: start_routine,
            start_order: self.order(record),
            end_order: None,
            created_at: *created_at,
        };
        let sound = stack_low < stack_high && stack_high.0 <= ADDRESS_END;
        let stack_object = sound.then(|| {
            let site = self.site(SiteKey::Stacks(start_routine));
            let bytes = stack_high.0 - stack_low.0;
            let object = self.born(record, stack_low.0, bytes);
            let (process, thread, stack) = (*process, Some(*index), *created_at);
            let order = self.order(record);
            self.new_object(Object { site, process, thread, cpu: *cpu, node: *node, stack, ..object }, order)
        });
        self.out.threads[index.0 as usize] = Thread {
            index: *index,
            process: *process,
            tid: *tid,
            parent: *parent,
            cpu: *cpu,
            node: *node,
            start: record.stamp.time,
            stack_object: stack_object.map(numapilot_trace::ids::ObjectId),
            ..Thread::default()
        };
        // Of a recording of days, looking through all threads for those of each process would take as long.
        let is_early = self.out.processes[process.0 as usize].pid == Pid(0);
        if is_early && stack_object.is_some() {
            self.early.entry(*process).or_default().push(*index);
        }
        self.enter_stack(*index);
    }

    /// Puts a thread's stack into its process's live set.
    fn enter_stack(&mut self, thread: ThreadIndex) {
        let row = &self.out.threads[thread.0 as usize];
        let Some(object) = row.stack_object else { return };
        let stack = &self.out.objects[object.0 as usize];
        let (low, high) = (stack.address.0, stack.address.0 + stack.bytes);
        let stacks = &mut self.spaces[row.process.0 as usize].stacks;
        Arc::make_mut(stacks).set(low, high, object.0);
    }

    pub(super) fn thread_end(&mut self, record: &Record, index: ThreadIndex) {
        let Some(thread) = self.out.threads.get_mut(index.0 as usize) else {
            self.out.losses.inconsistent_records += 1;
            return;
        };
        thread.end = Some(record.stamp.time);
        let (process, object) = (thread.process, thread.stack_object);
        self.out.thread_extras[index.0 as usize].end_order = Some(self.order(record));
        let Some(object) = object else { return };
        self.died(record, object.0, None);
        let stack = &self.out.objects[object.0 as usize];
        let (low, high) = (stack.address.0, stack.address.0 + stack.bytes);
        let stacks = &mut self.spaces[process.0 as usize].stacks;
        // It is in several pieces if it grew, or if mappings took parts of its range.
        let pieces: Vec<u64> =
            stacks.overlapping(low, high).filter(|piece| piece.value == object.0).map(|piece| piece.start).collect();
        for start in pieces {
            Arc::make_mut(stacks).take(start);
        }
    }

    pub(super) fn process_start(&mut self, record: &Record) {
        let Event::ProcessStart { index, pid, parent_pid, parent, by_exec, exe, arguments } = &record.event else {
            return;
        };
        self.index_max = INDEX_MAX.min(self.index_max + INDICES_PER_START);
        if index.0 > self.index_max {
            self.out.losses.inconsistent_records += 1;
            return;
        }
        self.space(*index);
        self.out.processes[index.0 as usize] = Process {
            index: *index,
            pid: *pid,
            parent: *parent,
            by_exec: *by_exec,
            exe: exe.as_str().into(),
            arguments: arguments.clone(),
            start: record.stamp.time,
            end: None,
        };
        let (parent_pid, start_order) = (*parent_pid, Some(record.stamp.order.0));
        self.out.process_extras[index.0 as usize] = ProcessExtra { parent_pid, exit_code: None, start_order };
        let early = self.early.remove(index).unwrap_or_default();
        // A forked child's first thread was created by a thread of its parent; that of a fresh image (exec, also of a child that
        // was spawned without running any of the parent's handlers) was not, and it has none of its parent's memory.
        let is_fork = !by_exec && self.out.threads.get(record.thread.0 as usize).is_some_and(|t| t.parent.is_some());
        let parent = parent.filter(|parent| is_fork && parent != index);
        let inherited = parent.and_then(|parent| self.spaces.get(parent.0 as usize));
        if let Some(inherited) = inherited.cloned() {
            let code_version = self.spaces[index.0 as usize].code_version + 1;
            self.spaces[index.0 as usize] = Space { code_version, ..inherited };
            // Threads whose start records came before that of their process.
            for thread in early {
                self.enter_stack(thread);
            }
        }
    }

    pub(super) fn process_end(&mut self, record: &Record, index: ProcessIndex, by_exec: bool, code: i32) {
        let Some(process) = self.out.processes.get_mut(index.0 as usize) else {
            self.out.losses.inconsistent_records += 1;
            return;
        };
        process.end = Some(record.stamp.time);
        self.out.process_extras[index.0 as usize].exit_code = Some(code).filter(|_| !by_exec);
        // The new image starts with an empty address space of its own; this one is no longer needed.
        let version = self.spaces[index.0 as usize].code_version + 1;
        if by_exec {
            self.spaces[index.0 as usize] = Space { code_version: version, ..Space::default() };
            return;
        }
        // Its other threads' last records, and the starts of children that it made last, may follow. What it shared with its parent was copied since, once for
        // each child: kept to the end, that would be as many live sets as there were children.
        self.ended.push_back(index);
        if self.ended.len() > ENDED_KEPT
            && let Some(old) = self.ended.pop_front()
        {
            let code_version = self.spaces[old.0 as usize].code_version + 1;
            self.spaces[old.0 as usize] = Space { code_version, ..Space::default() };
        }
    }

    /// `toucher`: the first toucher, if it is another thread than the record's. An unknown one is replaced by the record's thread.
    pub(super) fn place(
        &mut self,
        record: &Record,
        (address, pages): (u64, u32),
        node: NodeId,
        cause: u8,
        toucher: Option<ThreadIndex>,
    ) {
        let bytes = if pages > PLACED_PAGES_MAX { u64::MAX } else { u64::from(pages) << layout::PAGE_SHIFT };
        if !self.check(address, bytes) {
            return;
        }
        let process = self.known_thread(record).process;
        let homes = Arc::make_mut(&mut self.spaces[process.0 as usize].homes);
        if u32::from(cause) == layout::PLACED_UNKNOWN {
            homes.set_unknowable(address, u64::from(pages));
        } else {
            homes.set(address, u64::from(pages), node);
        }
        let toucher = toucher.filter(|thread| (thread.0 as usize) < self.out.threads.len()).unwrap_or(record.thread);
        let is_known = u32::from(cause) != layout::PLACED_UNKNOWN;
        let part = self.spaces[process.0 as usize].shared_part(address);
        let runs = match part.filter(|part| is_known || self.segments.is_unique(*part)) {
            Some(part) if is_known => self.segments.place(part, (address, pages), node, u32::from(cause)),
            // Whoever finds a page knows no more of it than that it was there: another process may have told.
            Some(part) => self.segments.unknown(part, (address, pages)),
            None => vec![(address, pages)],
        };
        for run in runs {
            self.put_placement(record, toucher, run, node, cause);
        }
    }

    fn put_placement(
        &mut self,
        record: &Record,
        toucher: ThreadIndex,
        (address, pages): (u64, u32),
        node: NodeId,
        cause: u8,
    ) {
        let process = self.known_thread(record).process;
        let object = self.find(process, address);
        self.out.placements.push(PlacementRow {
            time_ns: record.stamp.time.0,
            order: self.order(record),
            thread: toucher.0,
            address,
            pages,
            node: node.0,
            cause: layout::place_cause_name(cause).into(),
            object,
        });
    }

    pub(super) fn counters(&mut self, record: &Record, totals: &Counters) {
        let node = self.running(record.thread).node;
        self.out.threads[record.thread.0 as usize].counters = Some(totals.clone());
        let at = CountersAt { time: record.stamp.time, thread: record.thread, node, totals: totals.clone() };
        self.out.counters.push(at);
    }
}

/// Binary and part, where a mapping is the data of a binary whose symbols are not known: engine `import` calls it `/path/of/binary [data]` or `[bss]`.
fn binary_data(path: &str) -> Option<(&str, &str)> {
    let part = ["[data]", "[bss]"].into_iter().find(|part| path.starts_with('/') && path.ends_with(part))?;
    Some((path.strip_suffix(part)?.strip_suffix(' ')?, part))
}

/// Site of a mapping, from its flags and path. Parts of shared memory that begin at different offsets are apart, so that a page of a site is the same in each
/// mapping of it. Java's heap is one all the same: no other process maps it, and its parts would be as many rows as the heap has pieces.
fn mapping_site(flags: u32, path: &str, stack: StackId, file_offset: u64) -> SiteKey {
    let unnamed = path.is_empty() || path.starts_with('[');
    // Threads' stacks are mapped inside the C library, without a call stack. What the program maps as a stack itself is a coroutine's, or a thread's, whose
    // start says so.
    let is_stack = path == GROWING_STACK || GLIBC_STACKS.iter().any(|name| path.starts_with(name));
    if (flags & map_flags::STACK != 0 && stack.0 == 0) || is_stack {
        SiteKey::Named(ObjectKind::Stack, "thread stacks")
    } else if flags & (map_flags::ALLOCATOR | map_flags::BRK) != 0
        || path == "[heap]"
        || path.starts_with(GLIBC_ALLOCATOR)
    {
        SiteKey::Named(ObjectKind::Allocator, "allocator")
    } else if flags & map_flags::SHM != 0 && (path.is_empty() || stack.0 != 0) {
        SiteKey::Allocation(ObjectKind::Shared, stack)
    } else if is_shared_memory(path.as_bytes()) {
        let is_whole = file_offset == 0 || path.starts_with(ZGC_HEAP);
        let part = if is_whole { path.into() } else { format!("{path} at {file_offset:#x}").into() };
        SiteKey::Mapping(ObjectKind::Shared, part)
    } else if path.starts_with("[anon") {
        SiteKey::Mapping(ObjectKind::Anonymous, path.into())
    } else if !unnamed || path.starts_with("[v") {
        SiteKey::File(path.into())
    } else if stack.0 == 0 && flags & map_flags::INITIAL != 0 {
        SiteKey::Named(ObjectKind::Anonymous, "memory from before the recording")
    } else {
        SiteKey::Allocation(ObjectKind::Anonymous, stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coroutines' stacks were "thread stacks", together with those of the threads that ran them.
    #[test]
    fn stacks_that_the_program_maps_are_its_own_memory() {
        let kind = |stack| match mapping_site(map_flags::STACK, "", StackId(stack), 0) {
            SiteKey::Named(kind, _) | SiteKey::Allocation(kind, _) => kind,
            _ => ObjectKind::Unknown,
        };
        assert_eq!(kind(9), ObjectKind::Anonymous);
        assert_eq!(kind(0), ObjectKind::Stack);
    }

    /// Each piece of it was a row of its own, named by where it lies in the file.
    #[test]
    fn javas_heap_under_zgc_is_one_row_however_many_pieces_it_has() {
        let site = |path, file_offset| mapping_site(layout::MAP_SHARED, path, StackId(3), file_offset);
        let named = |name: &str| SiteKey::Mapping(ObjectKind::Shared, name.into());
        for heap in ["/memfd:java_heap (deleted)", "/memfd:java_heap.hugetlb (deleted)", "/memfd:java_heap (deleted) 2"]
        {
            assert_eq!([site(heap, 0), site(heap, 0x20_0000)], [named(heap), named(heap)]);
        }
        assert_eq!(site("/memfd:ring (deleted)", 0x1000), named("/memfd:ring (deleted) at 0x1000"));
    }

    /// Each stack was an object of its own name, in which its thread's number stood.
    #[test]
    fn memory_that_the_c_library_names_is_what_it_says() {
        let named = |path| mapping_site(map_flags::INITIAL, path, StackId(0), 0);
        let stacks = SiteKey::Named(ObjectKind::Stack, "thread stacks");
        for path in ["[anon: glibc: pthread stack: 4711]", "[anon: glibc: pthread user stack: 9]"] {
            assert_eq!(named(path), stacks);
        }
        assert_eq!(named("[anon: glibc: unused stack]"), stacks);
        let allocator = SiteKey::Named(ObjectKind::Allocator, "allocator");
        assert_eq!(["[anon: glibc: malloc]", "[anon: glibc: malloc arena]"].map(named), [allocator.clone(), allocator]);
        let other = "[anon: glibc: fopen]";
        assert_eq!(named(other), SiteKey::Mapping(ObjectKind::Anonymous, other.into()));
    }
}
