//! The join: takes records in the order of their order stamps, and gives accesses with their objects.
//!
//! [`Joiner`] keeps one live set per process and is fed every record of the recording in ascending order stamps. Lifetimes are half
//! open: a block is found from its birth stamp up to, not including, its death stamp. As births are stamped after the real call and
//! deaths before it, two blocks that used the same address are never confused.
//!
//! A forked child starts with its parent's live set: the *same* instances. What the child frees ends in the child only; the
//! instance's death is the one in the process that made it. `exec` ends everything.

mod blocks;
mod code;
mod code_cache;
mod faults;
mod homes;
mod lifecycles;
mod pools;
pub(crate) mod segments;
mod space;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};
use numapilot_ranges::Piece;
use numapilot_symbols::{
    CodeSpan, GeneratedCode, GeneratedFunction, LayoutItem, ModuleLayout, PythonCode, java_method, python_function,
};
use numapilot_trace::ids::{ModuleId, ObjectId, Pid, ProcessIndex, StackId, ThreadIndex, TimeNs};
use numapilot_trace::record::{Access, Code, Event, FileIdentity, Record};
use numapilot_trace::tables::{
    LossColumns, LossRow, MarkColumns, MarkRow, ModuleColumns, PlacementColumns, SyncColumns, SyncRow,
};
use numapilot_trace::wire::layout;
use numapilot_trace::wire::layout::{ADDRESS_END, CODE_FRAME, CODE_JAVA, CODE_SHIFT, JAVA_FRAME};

use crate::access::AccessRef;
use crate::losses::Losses;
use crate::model::{CountersAt, LocationId, Object, ObjectKind, Process, SiteId, Thread};
use crate::thread_names::is_shortened;
use crate::ties::Live;
use segments::Segments;
use space::{Found, Space};

/// Highest thread, process or similar number that is accepted. Numbers are consecutive, so a higher one means damage.
pub(crate) const INDEX_MAX: u32 = 1 << 22;
/// Of these, those that are accepted before any start was seen, and how many more with each start. Starts may be lost, but a number far beyond all that were
/// seen is damage, and the tables of everything up to it would take gigabytes.
const INDICES_FIRST: u32 = 1 << 18;
const INDICES_PER_START: u32 = 16;
/// Stack ids that are accepted before any stack was seen. Stacks may be lost, but an id far beyond all that were seen is damage, and the table of all up to it
/// would take gigabytes.
const STACKS_FIRST: u32 = 1 << 21;
/// Name of what the libraries have that numapilot loads into programs: their code and static data.
const OWN_MEMORY: &str = "numapilot's own libraries";

/// A joined access: the recorded access, with its object, location and home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinedAccess {
    pub order: u64,
    pub ip: u64,
    pub access: AccessRef,
}

/// A receiver of joined accesses.
pub(crate) trait AccessSink {
    /// Receives an access; they come in the order of their order stamps.
    fn access(&mut self, access: &JoinedAccess);
}

impl<F: FnMut(&JoinedAccess)> AccessSink for F {
    fn access(&mut self, access: &JoinedAccess) {
        self(access);
    }
}

/// Order stamps of an object's birth and death.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lifetime {
    pub birth: u64,
    pub death: Option<u64>,
}

/// Columns of the table `threads` that [`Thread`] lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadExtra {
    pub pid: Pid,
    pub start_routine: u64,
    pub start_location: LocationId,
    pub start_order: u64,
    pub end_order: Option<u64>,
    pub created_at: StackId,
}

/// Columns of the table `processes` that [`Process`] lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessExtra {
    pub parent_pid: Pid,
    pub exit_code: Option<i32>,
    /// Order stamp of its start, which is that of the fork; `None`: its start was not seen.
    pub start_order: Option<u64>,
}

/// A call stack: return addresses with their locations, innermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawStack {
    pub frames: Vec<(u64, LocationId)>,
    pub is_cut: bool,
}

/// A source of the layouts of binaries.
pub(crate) trait Layouts {
    /// Symbols and sections of the binary at `path` with this build id; an empty layout where it cannot be read.
    fn layout(&mut self, path: &str, build_id: &[u8]) -> Arc<ModuleLayout>;
}

/// Key of a site, before names are resolved: objects with equal keys share a site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SiteKey {
    /// Memory of this kind that is allocated under this call stack.
    Allocation(ObjectKind, StackId),
    /// A symbol of a binary, at this offset: two files may each have a static variable of one name.
    Symbol { binary: u32, name: Arc<str>, offset: u64 },
    /// A section of a binary.
    Section { binary: u32, name: Arc<str> },
    /// A mapped file, or a named special mapping.
    File(Arc<str>),
    /// Stacks of the threads that began at this location; 0 for main threads.
    Stacks(LocationId),
    /// Blocks of pools of this name, which may be empty, that are allocated under this call stack.
    Pool { pool: Arc<str>, stack: StackId },
    /// Memory of which only the kind is known, under this name.
    Named(ObjectKind, &'static str),
    /// A mapping of this kind, by the name that the kernel or the recorder gave it.
    Mapping(ObjectKind, Arc<str>),
}

/// A binary file, the same in all processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Binary {
    pub path: Arc<str>,
    pub build_id: Vec<u8>,
    /// The process that generated this code, where it is no file's.
    pub generated_by: Option<Pid>,
    /// Of such code: when it was there. Memory of one function may be another's later.
    pub span: CodeSpan,
}

/// A code address, before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CodeAddress {
    /// Binary number.
    pub binary: u32,
    /// Address in the file (address in the process minus bias); the address itself for `[anon]` and generated code.
    pub offset: u64,
}

/// A binary loaded into a process.
#[derive(Clone, Debug)]
struct Module {
    binary: u32,
    path: u32,
    bias: u64,
    start: u64,
    bytes: u64,
    layout: Option<Arc<ModuleLayout>>,
}

/// Code that processes generated, by process id.
pub(crate) type Generated = HashMap<Pid, GeneratedCode>;

/// The result of the join, except the accesses.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub objects: Vec<Object>,
    pub lifetimes: Vec<Lifetime>,
    pub sites: Vec<SiteKey>,
    /// Accesses to objects of each site, by their samples' weights; sites at the end without any are left out.
    pub site_accesses: Vec<u64>,
    pub threads: Vec<Thread>,
    pub thread_extras: Vec<ThreadExtra>,
    pub processes: Vec<Process>,
    pub process_extras: Vec<ProcessExtra>,
    pub modules: ModuleColumns,
    pub placements: PlacementColumns,
    pub syncs: SyncColumns,
    pub lost: LossColumns,
    pub binaries: Vec<Binary>,
    /// Code that processes generated, by process id.
    pub generated: Generated,
    /// Functions of interpreters.
    pub interpreted: GeneratedCode,
    pub locations: Vec<CodeAddress>,
    pub stacks: Vec<RawStack>,
    pub counters: Vec<CountersAt>,
    pub marks: MarkColumns,
    pub losses: Losses,
    /// Accesses to memory that another process had touched first, elsewhere than the thread's own process did.
    pub homes_of_others: u64,
    pub end: TimeNs,
}

impl Joined {
    fn note_access(&mut self, object: u32, weight: u32) {
        let site = self.objects[object as usize].site.0 as usize;
        if self.site_accesses.len() <= site {
            self.site_accesses.resize(site + 1, 0);
        }
        self.site_accesses[site] += u64::from(weight);
    }
}

/// State of one thread during the join.
#[derive(Clone, Debug, Default)]
struct Running {
    process: ProcessIndex,
    cpu: Option<CpuId>,
    node: Option<NodeId>,
    known: bool,
    /// The file that its next mapping shows, and the address of that.
    file: Option<(u64, FileIdentity)>,
    code: code_cache::CodeCache,
}

/// Conventions of an engine's records that the format does not fix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conventions {
    /// Whether instruction pointers of accesses are return addresses, which point after the access.
    pub ip_is_return_address: bool,
    /// Whether every access is recorded, so that the first one to a page is its first touch.
    pub infers_first_touch: bool,
    /// Whether the kernel was asked before a first touch if there was no page: who finds a page of shared memory does not claim to have touched it first.
    pub touches_are_certain: bool,
    /// Whether accesses are page faults, so that the first one of a page places it.
    pub accesses_are_faults: bool,
    /// Bytes of a base page of the machine on which page faults were recorded: a power of two.
    pub page_bytes: u64,
}

impl Conventions {
    /// Conventions of samples from the hardware or the kernel.
    pub const SAMPLED: Conventions = Conventions {
        ip_is_return_address: false,
        infers_first_touch: false,
        touches_are_certain: false,
        accesses_are_faults: false,
        page_bytes: 1 << layout::PAGE_SHIFT,
    };
}

/// The join. Feed it with [`Joiner::push`], then take the tables with [`Joiner::finish`].
pub(crate) struct Joiner<L> {
    layouts: L,
    out: Joined,
    spaces: Vec<Space>,
    running: Vec<Running>,
    site_ids: HashMap<SiteKey, SiteId>,
    module_rows: HashMap<ModuleId, u32>,
    modules: Vec<Module>,
    binary_ids: HashMap<Binary, u32>,
    /// By binary: whether it is a library of numapilot itself.
    is_own_binary: Vec<bool>,
    location_ids: HashMap<CodeAddress, LocationId>,
    static_ids: HashMap<(u32, LayoutItem), u32>,
    names: HashMap<Arc<str>, u32>,
    name_list: Vec<Arc<str>>,
    start_order: u64,
    serial: u32,
    segments: Segments,
    /// Highest thread or process number that is accepted now.
    index_max: u32,
    /// Highest stack id that is accepted now.
    stack_max: u32,
    /// Threads with stacks whose start records came before that of their process.
    early: HashMap<ProcessIndex, Vec<ThreadIndex>>,
    /// Processes that ended last, oldest first.
    ended: VecDeque<ProcessIndex>,
    interpreted: Vec<GeneratedFunction>,
    conventions: Conventions,
    scratch_cut: Vec<Piece<u64, space::Mapping>>,
    scratch_stale: Vec<u32>,
}

impl<L: Layouts> Joiner<L> {
    /// An empty join of processes that generated this code. `start_order` is the order stamp at the start of the recording, which is subtracted in the
    /// tables.
    pub fn new(layouts: L, conventions: Conventions, start_order: u64, generated: Generated) -> Joiner<L> {
        let mut joiner = Joiner {
            layouts,
            out: Joined { generated, ..Joined::default() },
            spaces: Vec::new(),
            running: Vec::new(),
            site_ids: HashMap::new(),
            module_rows: HashMap::new(),
            modules: Vec::new(),
            binary_ids: HashMap::new(),
            is_own_binary: Vec::new(),
            location_ids: HashMap::new(),
            static_ids: HashMap::new(),
            names: HashMap::new(),
            name_list: Vec::new(),
            start_order,
            serial: 0,
            segments: Segments::new(conventions.touches_are_certain),
            index_max: INDICES_FIRST,
            stack_max: STACKS_FIRST,
            early: HashMap::new(),
            ended: VecDeque::new(),
            interpreted: Vec::new(),
            conventions,
            scratch_cut: Vec::new(),
            scratch_stale: Vec::new(),
        };
        joiner.binary("", &[]);
        joiner.location(CodeAddress { binary: 0, offset: 0 });
        joiner.out.stacks.push(RawStack::default());
        joiner
    }

    /// Processes the next record; order stamps must not decrease.
    pub fn push(&mut self, record: &Record, sink: &mut impl AccessSink) {
        if record.thread.0 > self.index_max {
            // The ring's beginning was lost, so the address space of its addresses is unknown.
            self.out.losses.inconsistent_records += 1;
            return;
        }
        self.out.end = self.out.end.max(record.stamp.time);
        match &record.event {
            Event::Access(access) => self.access(record, access, sink),
            Event::Alloc { address, bytes, kind, stack } => self.alloc(record, address.0, *bytes, *kind, *stack),
            Event::Free { address } => self.free(record, address.0),
            Event::Map { address, bytes, flags, path, stack, file_offset } => {
                self.map(record, (address.0, *bytes, *file_offset), *flags, path, *stack);
            }
            Event::File { address, file, offset, bytes, node } => {
                self.file(record, (address.0, *file), (*offset, *bytes), *node);
            }
            Event::Unmap { address, bytes } => self.unmap(record, address.0, *bytes),
            Event::Stack { id, frames, truncated, failed } => self.stack(record, *id, frames, *truncated, *failed),
            Event::ThreadStart { .. } => self.thread_start(record),
            Event::ThreadEnd { index } => self.thread_end(record, *index),
            Event::ThreadName { name } => {
                let thread = self.out.threads.get_mut(record.thread.0 as usize);
                if let Some(thread) = thread.filter(|thread| !is_shortened(name, &thread.name)) {
                    thread.name = name.as_str().into();
                }
            }
            Event::ProcessStart { .. } => self.process_start(record),
            Event::ProcessEnd { index, by_exec, code } => self.process_end(record, *index, *by_exec, *code),
            Event::Module { id, address, bytes, bias, path, build_id } => {
                self.module(record, *id, (address.0, *bytes, *bias), path, build_id);
            }
            Event::ModuleEnd { id } => self.module_end(record, *id),
            Event::Place { address, pages, node, cause, toucher } => {
                self.place(record, (address.0, *pages), *node, *cause, *toucher);
            }
            Event::Cpu { cpu, node } => {
                let running = self.running(record.thread);
                running.cpu = Some(*cpu);
                running.node = Some(*node);
            }
            Event::Counters(totals) => self.counters(record, totals),
            Event::Lost { count, cause } => self.lost(record, *count, *cause),
            Event::Code(code) => self.code_of_interpreter(code),
            Event::Pool { pool, what } => self.pool(record, *pool, what),
            Event::PoolAlloc { address, bytes, pool, stack, thread, sample } => {
                self.pool_alloc(record, (address.0, *bytes), (*pool, *stack), *thread, *sample);
            }
            Event::PoolFree { address, pool } => self.pool_free(record, address.0, *pool),
            Event::Mark { text } => self.out.marks.push(MarkRow {
                time_ns: record.stamp.time.0,
                order: self.order(record),
                thread: record.thread.0,
                text: text.as_str().into(),
            }),
            Event::Sync { kind, object, began } => self.sync(record, *kind, *object, *began),
        }
    }

    fn sync(&mut self, record: &Record, kind: u32, object: u64, began: TimeNs) {
        self.known_thread(record);
        self.out.syncs.push(SyncRow {
            began_ns: began.0,
            ended_ns: record.stamp.time.0,
            order: self.order(record),
            thread: record.thread.0,
            kind: layout::sync_kind_name(kind).into(),
            object,
        });
    }

    fn code_of_interpreter(&mut self, code: &Code) {
        let Code { minor, name, file, first_line, table, .. } = code;
        if *minor == CODE_JAVA {
            self.interpreted.push(java_method(VirtAddr(JAVA_FRAME | code.id << CODE_SHIFT), name, file, table));
            return;
        }
        let python = PythonCode { minor: *minor, name, file, first_line: *first_line, table };
        self.interpreted.push(python_function(VirtAddr(CODE_FRAME | code.id << CODE_SHIFT), &python));
    }

    /// Ends the join, and returns its tables.
    pub fn finish(mut self) -> Joined {
        self.out.interpreted = GeneratedCode::new(self.interpreted);
        self.out
    }

    fn space_at(&self, space: u32) -> Option<&Space> {
        self.spaces.get(space as usize)
    }

    fn access(&mut self, record: &Record, access: &Access, sink: &mut impl AccessSink) {
        let thread = self.known_thread(record);
        let (process, cpu, node) = (thread.process, thread.cpu, thread.node);
        let address = access.address.0;
        // A CPU whose node is unknown is on no node that is known: not on that of the thread's CPU before.
        let is_there = access.cpu.is_none() || access.cpu == cpu;
        let node = access.node.or(node.filter(|_| is_there));
        let mut found = self.find(process, address);
        if found.is_none() && self.conventions.accesses_are_faults {
            found = self.above_break(record, process, address);
        }
        match found {
            Some(object) => self.out.note_access(object, access.weight),
            None => self.out.losses.accesses_without_object += 1,
        }
        let home = if self.conventions.accesses_are_faults {
            self.placed_by_fault(record, access, (process, node), found)
        } else {
            let own = access.home.or_else(|| self.home(process, address, access.weight, node));
            self.home_among_processes(process, address, own)
        };
        if home.is_none() {
            self.out.losses.accesses_without_home += 1;
        }
        let recorded_ip = access.ip.0;
        let ip = if self.conventions.ip_is_return_address { recorded_ip.saturating_sub(1) } else { recorded_ip };
        let location = self.code_at(record.thread, process, ip, record.stamp.order.0);
        let location = self.programs_own(location, access.stack);
        let access = AccessRef {
            row: 0,
            time: record.stamp.time,
            thread: record.thread,
            object: found.map(ObjectId),
            address: access.address,
            location,
            stack: access.stack,
            cpu: access.cpu.or(cpu),
            node,
            home,
            is_write: access.is_write,
            is_atomic: access.is_atomic,
            is_range: access.is_range,
            level: access.level,
            latency_cycles: access.latency_cycles,
            weight: access.weight,
            cluster: f64::from(access.weight),
        };
        sink.access(&JoinedAccess { order: self.order(record), ip: recorded_ip, access });
    }

    /// The order stamp of a record, counted from the start of the recording.
    #[inline]
    fn order(&self, record: &Record) -> u64 {
        record.stamp.order.0.saturating_sub(self.start_order)
    }

    #[inline]
    fn find(&mut self, process: ProcessIndex, address: u64) -> Option<u32> {
        let modules = &self.modules;
        match self.spaces[process.0 as usize].find(address, |module| modules[module as usize].path) {
            Found::Object(object) => Some(object),
            Found::Module(module, beneath) => self.static_object(process, module, address).or(beneath),
            Found::Nothing => None,
        }
    }

    /// The home of a page: from its placement record, or else the first-touch node, if every access is recorded so that the first is known.
    fn home(&mut self, process: ProcessIndex, address: u64, weight: u32, node: Option<NodeId>) -> Option<NodeId> {
        let space = &mut self.spaces[process.0 as usize];
        let known = space.homes.get(address);
        let may_be_first = weight == 1 && self.conventions.infers_first_touch;
        if known.is_some() || !may_be_first || space.homes.is_unknowable(address) {
            return known;
        }
        Arc::make_mut(&mut space.homes).set(address, 1, node?);
        node
    }

    /// The home of a page of which a process knows `own`. Engines that see every access follow first touches for each process by itself: in memory that
    /// processes share, the first one's counts.
    #[inline]
    fn home_among_processes(&mut self, process: ProcessIndex, address: u64, own: Option<NodeId>) -> Option<NodeId> {
        if !self.conventions.infers_first_touch || !self.segments.has_unique() {
            return own;
        }
        let part = self.spaces[process.0 as usize].shared_part(address);
        let first =
            part.filter(|part| self.segments.is_unique(*part)).and_then(|part| self.segments.home(part, address));
        if first.is_none() || first == own {
            return own;
        }
        self.out.homes_of_others += 1;
        first
    }

    fn kind_of_site(&self, site: SiteId) -> ObjectKind {
        match &self.out.sites[site.0 as usize] {
            SiteKey::Allocation(kind, _) | SiteKey::Named(kind, _) | SiteKey::Mapping(kind, _) => *kind,
            SiteKey::Symbol { .. } => ObjectKind::Static,
            SiteKey::Section { .. } => ObjectKind::Section,
            SiteKey::File(_) => ObjectKind::File,
            SiteKey::Stacks(_) => ObjectKind::Stack,
            SiteKey::Pool { .. } => ObjectKind::Pool,
        }
    }

    /// The symbol or section of a loaded binary at `address`; its object is created at the first use.
    fn static_object(&mut self, process: ProcessIndex, row: u32, address: u64) -> Option<u32> {
        let module = &mut self.modules[row as usize];
        if module.layout.is_none() {
            let binary = &self.out.binaries[module.binary as usize];
            module.layout = Some(self.layouts.layout(&binary.path, &binary.build_id));
        }
        let layout = module.layout.clone()?;
        let item = layout.find(address.wrapping_sub(module.bias))?;
        if let Some(&object) = self.static_ids.get(&(row, item)) {
            return Some(object);
        }
        let (binary, start) = (module.binary, module.bias.wrapping_add(layout.offset(item)));
        let name = layout.name(item).clone();
        let offset = layout.offset(item);
        let key = match layout.is_symbol(item) {
            // The program's memory is not taken for ours, nor ours for the program's.
            _ if self.is_own_binary[binary as usize] => SiteKey::Named(ObjectKind::Section, OWN_MEMORY),
            true => SiteKey::Symbol { binary, name, offset },
            false => SiteKey::Section { binary, name },
        };
        let site = self.site(key);
        let object = Object { site, process, address: VirtAddr(start), bytes: layout.bytes(item), ..Object::default() };
        let object = self.new_object(object, 0);
        self.static_ids.insert((row, item), object);
        Some(object)
    }

    fn site(&mut self, key: SiteKey) -> SiteId {
        if let Some(&site) = self.site_ids.get(&key) {
            return site;
        }
        let site = SiteId(self.out.sites.len() as u32);
        self.out.sites.push(key.clone());
        self.site_ids.insert(key, site);
        site
    }

    fn new_object(&mut self, object: Object, birth: u64) -> u32 {
        let lifetime = Lifetime { birth, death: None };
        let id = self.out.objects.len() as u32;
        self.out.objects.push(Object { id: ObjectId(id), ..object });
        self.out.lifetimes.push(lifetime);
        id
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(&id) = self.names.get(name) {
            return id;
        }
        let name: Arc<str> = name.into();
        self.name_list.push(name.clone());
        let id = self.name_list.len() as u32;
        self.names.insert(name, id);
        id
    }

    fn lost(&mut self, record: &Record, count: u64, cause: u32) {
        self.out.lost.push(LossRow {
            time_ns: record.stamp.time.0,
            thread: Some(record.thread.0),
            cause: layout::loss_name(cause).into(),
            count,
        });
        let losses = &mut self.out.losses;
        let counter = match cause {
            layout::LOST_RING_FULL => &mut losses.ring_full,
            layout::LOST_NO_SLOT => &mut losses.no_slot,
            layout::LOST_STOPPED => &mut losses.stopped,
            layout::LOST_STACK_TABLE => &mut losses.stack_table,
            layout::LOST_REENTRANT => &mut losses.reentrant,
            layout::LOST_AFTER_END => &mut losses.after_end,
            _ => &mut losses.inconsistent_records,
        };
        *counter = counter.saturating_add(count);
    }
}

impl<L: Layouts> Live for Joiner<L> {
    fn space_of(&self, thread: ThreadIndex) -> u32 {
        self.running.get(thread.0 as usize).map_or(0, |running| running.process.0)
    }

    fn blocks(&self, space: u32, pool: Option<u32>, start: u64, end: u64) -> Vec<(u64, u64)> {
        let Some(space) = self.space_at(space).filter(|_| start < end && end <= ADDRESS_END) else { return Vec::new() };
        let mut found = Vec::new();
        match pool {
            Some(pool) => found = space.pools.of_pool_within(pool, start, end - start),
            None => space.blocks.overlaps(start, end - start, &mut found),
        }
        let bounds = |object: &u32| {
            let object = &self.out.objects[*object as usize];
            (object.address.0, object.address.0 + object.bytes.max(1))
        };
        found.iter().map(bounds).collect()
    }

    fn is_mapped(&self, space: u32, start: u64, end: u64) -> bool {
        let Some(space) = self.space_at(space) else { return false };
        space.mappings.get(start).is_some() || space.mappings.overlaps(start, end)
    }
}
