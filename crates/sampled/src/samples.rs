//! Samples: the access, its thread, its stack and its home.

use foldhash::{HashMap, HashMapExt};
use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};
use numapilot_perf::abi::{CONTEXT_MAX, CONTEXT_USER, CONTEXT_USER_DEFERRED, is_kernel_address};
use numapilot_perf::data_src::{self, Operation};
use numapilot_perf::{EventAttr, Mapping, MemoryAccess, Sample, SampleId, SideBand, Words};
use numapilot_trace::chunk::ChunkError;
use numapilot_trace::ids::{ProcessIndex, StackId, ThreadIndex};
use numapilot_trace::record::{Access, Event, FaultedPage, Level};
use numapilot_trace::wire::layout::{self, ADDRESS_END};

use super::counts::{Counts, EventCounts, Losses};
use super::first_touches::FirstTouches;
use super::order::AuxAccess;
use super::output::Output;
use super::running::RunningTasks;
use super::shared::{MappedPage, Sighting};
use super::tasks::{Announcement, Tasks};
use numapilot_perf_events::page_sizes::Sizes;
use numapilot_perf_events::places::Answers;
use numapilot_perf_events::places::Places;
use numapilot_perf_events::places::is_memory;

/// No machine has more CPUs.
const CPUS_MAX: u32 = 1 << 16;
/// No code is in the first page.
const LOWEST_CODE: u64 = 4096;

/// A sample that waits for its thread to be announced.
struct Held {
    order: u64,
    access: MemoryAccess<'static>,
    /// User part of the call chain, as return addresses.
    frames: Box<[u64]>,
    is_fault: bool,
    home: Option<NodeId>,
    page: FaultedPage,
}

/// Turns samples and side band into records.
pub struct Samples {
    out: Output,
    tasks: Tasks,
    places: Places,
    /// Node of each CPU, by CPU number.
    node_of_cpu: Vec<Option<NodeId>>,
    /// Stacks of processes that have not ended: equal addresses are other code in another process.
    stacks: HashMap<ProcessIndex, HashMap<Box<[u64]>, StackId>>,
    chain: Vec<u64>,
    /// Tasks that ran on each CPU, from context switches.
    running: HashMap<CpuId, RunningTasks>,
    /// Process whose accesses in AUX traces are not part of the recording.
    left_out: Option<Pid>,
    /// Thread ids in packets of AUX traces are of another PID namespace than those of records.
    has_foreign_packets: bool,
    /// When processes were looked at in /proc, by process id.
    described: HashMap<Pid, u64>,
    /// Homes given by first touches.
    first_touches: FirstTouches,
    /// Where pages are, asked for the records at hand.
    answers: Answers,
    /// How large pages are that faults mapped, asked for the records at hand.
    sizes: Sizes,
    /// CPU on which each thread was seen last.
    last_cpu: HashMap<ThreadIndex, CpuId>,
    held: HashMap<usize, Vec<Held>>,
    counts: Counts,
    losses: Losses,
    by_event: Vec<EventCounts>,
    /// Whether page faults only show where pages are and do not count as accesses.
    faults_only_place: bool,
}

impl Samples {
    /// Begins with nothing known of any process.
    pub fn new(out: Output, tasks: Tasks, places: Places) -> Samples {
        let last = places.node_of_cpu.keys().map(|cpu| cpu.0).max().filter(|&cpu| cpu < CPUS_MAX);
        let node_of = |cpu: u32| places.node_of_cpu(CpuId(cpu));
        let node_of_cpu = last.map_or_else(Vec::new, |last| (0..=last).map(node_of).collect());
        Samples {
            out,
            tasks,
            node_of_cpu,
            stacks: HashMap::new(),
            chain: Vec::new(),
            running: HashMap::new(),
            left_out: None,
            has_foreign_packets: false,
            described: HashMap::new(),
            first_touches: FirstTouches::default(),
            answers: HashMap::new(),
            sizes: HashMap::new(),
            last_cpu: HashMap::new(),
            held: HashMap::new(),
            counts: Counts::default(),
            losses: Losses::default(),
            by_event: Vec::new(),
            faults_only_place: places.faults_only_place(),
            places,
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts so far by event, in the order of the session's; those behind the last are of events without samples.
    pub fn by_event(&self) -> &[EventCounts] {
        &self.by_event
    }

    /// How much is kept of tasks.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize, usize) {
        self.tasks.kept()
    }

    /// Number of stacks, and of threads whose CPU is known.
    #[cfg(test)]
    pub fn kept_of_threads(&self) -> (usize, usize) {
        (self.stacks.values().map(HashMap::len).sum(), self.last_cpu.len())
    }

    /// The output of records.
    pub fn out(&mut self) -> &mut Output {
        &mut self.out
    }

    /// Sets the nodes of the pages of the next samples; earlier answers are dropped.
    pub fn answers(&mut self) -> &mut Answers {
        self.answers.clear();
        &mut self.answers
    }

    /// Sets the sizes of the pages that the next faults mapped; earlier answers are dropped.
    pub fn sizes(&mut self) -> &mut Sizes {
        self.sizes.clear();
        &mut self.sizes
    }

    /// The machine's only node with memory, if there is but one.
    pub fn only_node(&self) -> Option<NodeId> {
        self.places.only_node()
    }

    /// Whether an access's physical address names its home node, so that nobody need be asked. It does not where the kernel has no map of memory blocks, or
    /// where the address has more than a place in memory (a bit for encryption).
    pub fn is_home_told(&self, access: &MemoryAccess<'_>) -> bool {
        access.physical_address.is_some_and(|address| self.places.node_of_physical(address).is_some())
    }

    /// Pages of a process that were in memory before the recording: first address, number, node.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn found(&mut self, pid: Pid, (address, pages, node): (u64, u32, NodeId), time: u64) -> Result<(), ChunkError> {
        let task = self.tasks.task(pid, Tid::first_of(pid), time);
        let Some(thread) = self.tasks.thread(&mut self.out, task)? else { return Ok(()) };
        let cause = layout::PLACED_FOUND as u8;
        self.out.put(thread, time, Event::Place { address: VirtAddr(address), pages, node, cause, toucher: None })
    }

    /// A mapping that was there when recording of its process began. `inode`: of the file or shared memory that it shows; 0 for none.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn found_mapping(&mut self, mapping: &Mapping<'_>, inode: u64, time: u64) -> Result<(), ChunkError> {
        self.tasks.map(&mut self.out, mapping, Sighting::Found { inode }, time).map(drop)
    }

    /// Build ids of files, with their paths, that come after records of the files' mappings.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn know_build_ids(&mut self, found: &[(Vec<u8>, String)], time: u64) -> Result<(), ChunkError> {
        self.tasks.know_build_ids(&mut self.out, found, time)
    }

    /// Accesses of this process in AUX traces are not part of the recording.
    pub fn leave_out(&mut self, pid: Pid) {
        self.left_out = Some(pid);
    }

    /// Thread ids in packets of AUX traces are of another PID namespace than those of records: only what ran then tells whose an access is.
    pub fn distrust_packets(&mut self) {
        self.has_foreign_packets = true;
    }

    /// A process was looked at in /proc at `order` or later: the kernel's records of it from before that tell nothing new.
    pub fn described(&mut self, pid: Pid, order: u64) {
        self.described.insert(pid, order);
    }

    /// Whether /proc has shown what a record says: it was there already when the kernel's records were on but /proc not read yet.
    fn is_described(&self, record: &SideBand<'_>, time: u64) -> bool {
        let pid = match record {
            SideBand::Mmap(mapping) => mapping.pid,
            SideBand::Comm { pid, .. } => *pid,
            SideBand::Fork(change) | SideBand::Exit(change) => change.pid,
            _ => return false,
        };
        self.described.get(&pid).is_some_and(|&order| time < order)
    }

    /// A mapping that was made: what was mapped there before is gone, and with it its pages.
    fn map(&mut self, mapping: &Mapping<'_>, time: u64) -> Result<(), ChunkError> {
        let renewed = self.tasks.map(&mut self.out, mapping, Sighting::Made, time)?;
        for (image, start, end) in renewed {
            self.first_touches.renew(image, (PageNumber::of(start), PageNumber::at_or_after(end)));
        }
        Ok(())
    }

    /// A record that is no sample. `time`: its order stamp, as for all that follows.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn side_band(&mut self, record: &SideBand<'_>, id: &SampleId, time: u64) -> Result<(), ChunkError> {
        if self.is_described(record, time) {
            return Ok(());
        }
        match record {
            SideBand::Mmap(mapping) => self.map(mapping, time),
            SideBand::Comm { .. } | SideBand::Fork(_) | SideBand::Exit(_) => self.lifecycle(record, time),
            SideBand::Lost { .. } | SideBand::LostSamples { .. } => {
                self.counts.lost = self.losses.take(record, id);
                Ok(())
            }
            SideBand::Filtered { count } => {
                self.counts.filtered = self.counts.filtered.saturating_add(*count);
                Ok(())
            }
            SideBand::Throttle { begins: true, .. } => {
                self.counts.throttled += 1;
                Ok(())
            }
            SideBand::Aux { flags, .. } if *flags & numapilot_perf::abi::aux_flag::INCOMPLETE != 0 => {
                self.counts.aux_flagged += 1;
                Ok(())
            }
            SideBand::Switch { out, .. } => {
                if let (Some(cpu), Some(task)) = (id.cpu, id.pid_tid) {
                    self.running.entry(cpu).or_default().switch(time, task, *out);
                }
                Ok(())
            }
            SideBand::ItraceStart { pid, tid } => {
                if let Some(cpu) = id.cpu {
                    self.running.entry(cpu).or_default().switch(time, (*pid, *tid), false);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A task's name, start or end.
    fn lifecycle(&mut self, record: &SideBand<'_>, time: u64) -> Result<(), ChunkError> {
        match record {
            SideBand::Comm { pid, tid, name, by_exec } => {
                self.tasks.comm(&mut self.out, *pid, *tid, name, *by_exec, time)?;
            }
            SideBand::Fork(change) => self.tasks.fork(&mut self.out, change)?,
            SideBand::Exit(change) => self.tasks.exit(&mut self.out, change)?,
            _ => {}
        }
        self.forget_ended();
        Ok(())
    }

    /// Drops what is kept of processes that have ended.
    fn forget_ended(&mut self) {
        let mut threads = self.tasks.ended_threads();
        for ended in self.tasks.ended() {
            self.first_touches.forget(ended.image);
            if let Some(process) = ended.process {
                self.stacks.remove(&process);
            }
            threads.extend(ended.threads);
        }
        for thread in threads {
            self.last_cpu.remove(&thread);
            self.out.ended(thread);
        }
    }

    /// Processes a sample of an event.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn sample(&mut self, event: usize, attr: &EventAttr, sample: &Sample<'_>, time: u64) -> Result<(), ChunkError> {
        let fact = self.places.events.get(event).copied().unwrap_or_default();
        if fact.is_helper {
            return Ok(());
        }
        self.counts.samples += 1;
        self.counts.faults += u64::from(fact.is_fault);
        let is_access = fact.is_access(sample);
        self.count_event(event, is_access, sample.period.or(attr.period()).unwrap_or(1));
        if !is_access {
            return self.other_event(sample, time);
        }
        if sample.of_guest {
            self.counts.of_guests += 1;
            return Ok(());
        }
        let Some(mut access) = fact.access(attr, sample) else {
            self.counts.without_address += 1;
            return Ok(());
        };
        let by_id = || sample.identifier.or(sample.id).and_then(|id| self.places.cpu_of_id(id));
        let inferred = if access.cpu.is_none() { by_id() } else { None };
        self.counts.cpu_by_id += u64::from(inferred.is_some());
        self.counts.of_unknown_weight += u64::from(fact.counts_other);
        access.cpu = access.cpu.or(inferred);
        self.put(&access, time, fact.is_fault)
    }

    fn count_event(&mut self, event: usize, is_access: bool, period: u64) {
        if event >= self.by_event.len() {
            self.by_event.resize(event + 1, EventCounts::default());
        }
        let counts = &mut self.by_event[event];
        counts.samples += 1;
        counts.accesses += u64::from(is_access);
        counts.period = counts.period.saturating_add(period);
    }

    /// A sample that is not a memory access: it only shows that its thread ran.
    fn other_event(&mut self, sample: &Sample<'_>, time: u64) -> Result<(), ChunkError> {
        self.counts.other_events += 1;
        if let Some((pid, tid)) = sample.pid_tid {
            let task = self.tasks.task(pid, tid, time);
            self.tasks.thread(&mut self.out, task)?;
        }
        Ok(())
    }

    /// An access of an AUX trace, at `time` in the trace. Its own time may be older: such traces are read long after other records. It is that of the task
    /// that ran then: whose it is stays unknown where nothing says it.
    pub fn access(&mut self, found: &AuxAccess, time: u64) -> Result<(), ChunkError> {
        let AuxAccess { access, last_task } = found;
        let running = || self.running.get(&access.cpu?)?.at(access.time?);
        let task = running().or(*last_task);
        let told = access.tid.filter(|_| !self.has_foreign_packets);
        let tid = told.or(task.map(|(_, tid)| tid));
        let of_task = task.filter(|(_, of)| Some(*of) == tid).map(|(pid, _)| pid);
        let pid = of_task.or_else(|| self.tasks.pid_of(tid?));
        if pid.is_some() && pid == self.left_out {
            return Ok(());
        }
        self.counts.samples += 1;
        let period = access.period.or(self.places.spe_period);
        self.put(&MemoryAccess { pid, tid, period, ..*access }, time, false)
    }

    fn put(&mut self, access: &MemoryAccess<'_>, time: u64, is_fault: bool) -> Result<(), ChunkError> {
        if access.address >= ADDRESS_END {
            let is_kernels = is_kernel_address(access.address);
            self.counts.kernel_addresses += u64::from(is_kernels);
            self.counts.beyond_addresses += u64::from(!is_kernels);
            return Ok(());
        }
        if access.level == data_src::Level::Io {
            self.counts.device += 1;
            return Ok(());
        }
        let Some((pid, tid)) = task_of(access) else {
            self.counts.without_thread += 1;
            return Ok(());
        };
        let task = self.tasks.task(pid, tid, time);
        if access.ip.is_some_and(|ip| self.tasks.is_trackers(self.tasks.image_of(task), ip)) {
            self.counts.trackers += 1;
            return Ok(());
        }
        let home = self.told(access, pid);
        let page = if is_fault { self.page(access, pid) } else { FaultedPage::default() };
        let thread = self.tasks.thread(&mut self.out, task)?;
        self.frames(access.callchain);
        // In the kernel on the program's behalf: the program's instruction is the system call.
        let ip = access.ip.filter(|&ip| ip < ADDRESS_END).or_else(|| self.chain.get(1).map(|frame| frame - 1));
        let mut access = access.without_callchain();
        access.ip = ip;
        let Some(thread) = thread else {
            let held = Held { order: time, access, frames: self.chain[1..].into(), is_fault, home, page };
            self.held.entry(task).or_default().push(held);
            return Ok(());
        };
        self.emit((task, thread), &access, time, is_fault, (home, page))
    }

    /// Writes an access, whose call chain is in `self.chain`.
    fn emit(
        &mut self,
        (task, thread): (usize, ThreadIndex),
        access: &MemoryAccess<'static>,
        time: u64,
        is_fault: bool,
        (told, page): (Option<NodeId>, FaultedPage),
    ) -> Result<(), ChunkError> {
        let process = self.tasks.process(task);
        let node = access.cpu.and_then(|cpu| self.node_of_cpu.get(cpu.0 as usize).copied().flatten());
        if let (Some(cpu), Some(node)) = (access.cpu, node)
            && self.last_cpu.insert(thread, cpu) != Some(cpu)
        {
            self.out.put(thread, time, Event::Cpu { cpu, node })?;
        }
        let level = level(access.level);
        let told = told.or_else(|| self.places.node_by_distance(access.level, access.distance, node));
        let home = match told {
            _ if is_fault && !self.places.leaves_first_touches => {
                self.by_fault(access, (node, told), (task, thread), time)?
            }
            Some(home) => Some(home),
            None if self.places.leaves_first_touches => None,
            None => {
                let (page, _) = self.tasks.page(self.tasks.image_of(task), access.address);
                self.by_first_touch(page)
            }
        };
        if is_fault && self.faults_only_place {
            return Ok(());
        }
        let stack = self.stack(thread, process, time)?;
        self.count_level(access, level, is_fault);
        let counts = &mut self.counts;
        counts.accesses += 1;
        counts.not_retired += u64::from(access.has_retired == Some(false));
        counts.with_latency += u64::from(access.latency_cycles.is_some());
        counts.with_home += u64::from(home.is_some());
        counts.with_cpu += u64::from(access.cpu.is_some());
        let weight = access.period.unwrap_or(1).max(1);
        counts.of_more_weight += u64::from(weight > u64::from(u32::MAX));
        let event = Access {
            address: VirtAddr(access.address),
            cpu: access.cpu,
            node,
            home,
            is_write: matches!(access.operation, Operation::Store | Operation::LoadStore),
            is_atomic: access.is_atomic == Some(true),
            is_range: false,
            level,
            latency_cycles: access.latency_cycles,
            ip: VirtAddr(access.ip.unwrap_or(0)),
            stack,
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            page,
        };
        self.out.put(thread, time, Event::Access(event))
    }

    /// Reported home node of the page: by the hardware's physical address, by the machine if it has one node only, or by the kernel's look-up.
    fn told(&mut self, access: &MemoryAccess<'_>, pid: Pid) -> Option<NodeId> {
        let by_address = access.physical_address.and_then(|address| self.places.node_of_physical(address));
        let told = by_address.or_else(|| self.places.only_node());
        if told.is_some() {
            return told;
        }
        let answer = self.answers.get(&(pid, PageNumber::of(access.address))).copied();
        self.counts.home_by_query += u64::from(answer.is_some());
        answer
    }

    /// The page of a fault: as it was before, where one was there, and else as the kernel reported it afterwards.
    fn page(&self, access: &MemoryAccess<'_>, pid: Pid) -> FaultedPage {
        match access.page_bytes {
            Some(bytes) if bytes > 0 => FaultedPage::new(Some(true), bytes),
            before => {
                let bytes = self.sizes.get(&(pid, PageNumber::of(access.address))).copied().unwrap_or(0);
                FaultedPage::new(before.map(|_| false), bytes)
            }
        }
    }

    fn count_level(&mut self, access: &MemoryAccess<'_>, level: Level, is_fault: bool) {
        let counts = &mut self.counts;
        match level {
            Level::L1 | Level::L2 | Level::LineFill => counts.core_cached += 1,
            Level::L3 => counts.shared_cached += 1,
            Level::PeerCache => {
                counts.transfers += 1;
                let is_other_node = access.distance.is_other_node();
                counts.transfers_other_node += u64::from(is_other_node == Some(true));
                counts.transfers_own_node += u64::from(is_other_node == Some(false));
            }
            Level::Unknown => counts.level_unknown += u64::from(!is_fault),
            Level::Memory => {}
        }
    }

    /// Home node by the page's first touch, if that was seen.
    fn by_first_touch(&mut self, page: MappedPage) -> Option<NodeId> {
        let home = self.first_touches.get(page);
        self.counts.home_by_first_touch += u64::from(home.is_some());
        home
    }

    /// Home node of a page after a fault on it, which may be its first touch: the reported one, else that of the first touch.
    fn by_fault(
        &mut self,
        access: &MemoryAccess<'_>,
        (node, told): (Option<NodeId>, Option<NodeId>),
        (task, thread): (usize, ThreadIndex),
        time: u64,
    ) -> Result<Option<NodeId>, ChunkError> {
        let (page, is_own) = self.tasks.page(self.tasks.image_of(task), access.address);
        // What was there before, no fault of this recording has placed.
        let was_absent = access.page_bytes.is_none_or(|bytes| bytes == 0);
        if let (true, Some(home)) = (was_absent && is_own, told.or(node))
            && self.first_touches.touch(page, home)
        {
            let is_elsewhere = node.is_some_and(|node| node != home);
            let cause = if is_elsewhere { layout::PLACED_POLICY } else { layout::PLACED_FIRST_TOUCH } as u8;
            let address = VirtAddr(PageNumber::of(access.address).address());
            self.out.put(thread, time, Event::Place { address, pages: 1, node: home, cause, toucher: None })?;
        }
        Ok(told.or_else(|| self.by_first_touch(page)))
    }

    /// Puts the user part of a call chain into `self.chain` as return addresses, from its second place on. Its first entry is the instruction itself (or
    /// that of the system call): one byte is added, as readers take one off.
    fn frames(&mut self, callchain: Option<Words<'_>>) {
        self.chain.clear();
        self.chain.push(0);
        let Some(callchain) = callchain else { return };
        let mut is_user = false;
        for entry in callchain.iter() {
            if entry >= CONTEXT_MAX {
                is_user = entry == CONTEXT_USER;
                self.counts.deferred_stacks += u64::from(entry == CONTEXT_USER_DEFERRED);
            } else if is_user && entry < LOWEST_CODE {
                // A frame pointer led astray: what follows is no better.
                break;
            } else if is_user {
                let is_first = self.chain.len() == 1;
                self.chain.push(if is_first { entry.saturating_add(1) } else { entry });
            }
        }
    }

    /// Number of the stack in `self.chain`, written if it is new.
    fn stack(&mut self, thread: ThreadIndex, process: ProcessIndex, time: u64) -> Result<StackId, ChunkError> {
        if self.chain.len() == 1 {
            return Ok(StackId(0));
        }
        let known = self.stacks.entry(process).or_default();
        if let Some(&stack) = known.get(&self.chain[1..]) {
            return Ok(stack);
        }
        let stack = self.out.new_stack(thread, time, &self.chain[1..])?;
        known.insert(self.chain[1..].into(), stack);
        Ok(stack)
    }

    /// The tracker has announced a thread: samples that waited for that are written now. Samples from before its process's memory was
    /// described count as from then.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn announce(&mut self, announced: &Announcement) -> Result<(), ChunkError> {
        let task = self.tasks.announce(announced);
        self.release(task, announced.ready)?;
        self.tasks.settled(task);
        self.forget_ended();
        Ok(())
    }

    /// Waits no longer for the announcement of threads that began before `limit`.
    ///
    /// # Errors
    /// The trace's files cannot be written.
    pub fn settle(&mut self, limit: u64) -> Result<(), ChunkError> {
        let settled = self.tasks.settle(limit);
        for &task in &settled {
            self.release(task, 0)?;
        }
        // Several of them may be of one process, with which all are dropped.
        settled.iter().for_each(|&task| self.tasks.settled(task));
        self.forget_ended();
        Ok(())
    }

    fn release(&mut self, task: usize, from: u64) -> Result<(), ChunkError> {
        let Some(held) = self.held.remove(&task) else { return Ok(()) };
        for sample in held {
            let Some(thread) = self.tasks.thread(&mut self.out, task)? else { continue };
            self.chain.clear();
            self.chain.push(0);
            self.chain.extend_from_slice(&sample.frames);
            let found = (sample.home, sample.page);
            self.emit((task, thread), &sample.access, sample.order.max(from), sample.is_fault, found)?;
        }
        Ok(())
    }
}

/// The thread of an access. 0 and -1 name none: the kernel writes 0 for the tasks of other PID namespaces than the recorder's (and for idle CPUs), whose memory
/// is not one process's, and -1 for those that are gone (`perf_event_pid_type` in `kernel/events/core.c`).
fn task_of(access: &MemoryAccess<'_>) -> Option<(Pid, Tid)> {
    let is_known = |id: u32| !matches!(id, 0 | u32::MAX);
    access.pid.zip(access.tid).filter(|(pid, tid)| is_known(pid.0) && is_known(tid.0))
}

/// The level in the trace's terms.
fn level(level: data_src::Level) -> Level {
    match level {
        data_src::Level::L1 => Level::L1,
        data_src::Level::LineFill => Level::LineFill,
        data_src::Level::L2 => Level::L2,
        data_src::Level::L3 => Level::L3,
        data_src::Level::PeerCache => Level::PeerCache,
        other if is_memory(other) == Some(true) => Level::Memory,
        _ => Level::Unknown,
    }
}

#[cfg(test)]
mod tests;
