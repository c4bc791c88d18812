//! The managed processes, each identified by descriptor and start time, with their threads and the evidence about their memory. They may end, exec, fork and
//! create threads at any moment: each observation updates this.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::VirtAddr;
use numapilot_kernel::KernelError;
use numapilot_kernel::census;
use numapilot_kernel::cgroup;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::pagemap::PageMap;
use numapilot_kernel::task;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;

use super::bound::Bound;
use super::clock;
use super::heritage::Former;
use super::heritage::Heritage;
use super::numa_look::NumaLook;
use super::slots::Slots;
use crate::allowance::Allowance;
use crate::event::Target;
use crate::evidence::homes::AllHomes;
use crate::evidence::homes::Homes;
use crate::evidence::hot::Hot;
use crate::evidence::table::PageId;

/// Share of the time that reading threads may take, once the advance is used up.
const LOOK_SHARE: f64 = 0.0015;
const LOOK_ADVANCE: Duration = Duration::from_millis(250);
/// Share of the time that reading the mappings of one process may take: 1 over this.
const MAPS_SHARE: u32 = 1000;
/// Share of the time that reading the mappings of all small processes may take, and of all large ones: 1 over this.
const MAPS_SHARE_OF_ALL: u32 = 400;
/// Share, 0 to 1, of the time that reading the mappings of new processes may take, once the advance is used up; they have priority.
const NEW_MAPS_SHARE: f64 = 0.05;
const NEW_MAPS_ADVANCE: Duration = Duration::from_secs(5);
/// Time after which the rest of the mappings waits for the next observation: commands wait meanwhile.
const MAPS_AT_ONCE: Duration = Duration::from_millis(500);
/// Longest interval between two readings of the mappings of one process, where those of all leave time for them.
const MAPS_LATEST: Duration = Duration::from_secs(60);
/// Shortest interval between two readings of mappings.
const MAPS_EVERY: Duration = Duration::from_secs(2);
/// Interval between two readings of the nodes on which a process may have memory: its cpuset may be changed while its mappings are read rarely.
const NODES_EVERY: Duration = Duration::from_secs(10);
/// Bindings of a process that its new threads' affinities are compared with, the latest.
const BINDINGS_MAX: usize = 64;
/// Processes that are managed of a user who has added the first of them, other than root and this program's user, with all that they start: there are 4,096
/// places for those of all users.
const GUESTS_MAX: usize = 256;
/// Longest chain of parents that is followed.
const LINEAGE_MAX: usize = 64;
/// Maximum number of pages of a new target whose home nodes are read; of larger targets every n-th page.
const CENSUS_PAGES: u64 = 1 << 20;

/// A thread of a managed process.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Number that policies use for the thread; never reused.
    pub number: u32,
    /// Node on which it last ran.
    pub node: NodeIndex,
    /// Its running time in nanoseconds at the last reading.
    ran_ns: u64,
    /// Share of the time between the last two readings for which it ran, 0 to 1.
    pub busy: f64,
    /// Nanoseconds for which it ran since the last decision ([`super::ran::begin_interval`]).
    pub ran_since_ns: u64,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// Its binding by this program; `None`: not bound.
    pub bound: Option<Bound>,
    /// Whether its affinity has not been compared yet with those that it may have inherited from bound threads ([`ManagedProcess::bindings`]).
    pub is_new: bool,
}

/// A process whose pages and threads the loop places.
#[derive(Debug)]
pub struct ManagedProcess {
    /// Process id, start time, user and name.
    pub target: Target,
    /// Descriptor of the process, which keeps its id from being reused unnoticed.
    pub process: task::Process,
    /// Number of the process among the targets, below 4,096.
    pub slot: u16,
    /// Number of program images that its slot has had before, of other processes too, modulo 256.
    pub generation: u8,
    /// Its threads by thread id.
    pub threads: BTreeMap<Tid, Thread>,
    /// Home nodes of its pages.
    pub homes: Homes,
    /// Its mappings at the last reading.
    pub mappings: Vec<census::Range>,
    /// Address ranges with huge pages.
    pub huge: Vec<(VirtAddr, VirtAddr)>,
    /// Its recently used ranges of memory.
    pub hot: Hot,
    /// Number of samples or faults in the last interval, and how many of them were local.
    pub samples: (u64, u64),
    /// Bytes moved for it.
    pub moved_bytes: u64,
    /// Time at which its pages were first read, in nanoseconds of the kernel's raw monotonic clock: earlier faults are not counted as uses.
    pub known_since_ns: u64,
    /// Whether this program has claimed it: no other numapilot manages it.
    pub is_claimed: bool,
    /// The user who has added it, or the process that started it, and who may not add as many as there is room for.
    pub guest_of: Option<u32>,
    /// The process that started it.
    pub parent: Option<Pid>,
    /// Bindings that its new threads may have inherited: those of its threads so far, the ended ones too, and of the process that started it.
    pub bindings: Vec<Bound>,
    /// Its memory by the program's own memory policies.
    pub numa: NumaLook,
    /// Nodes on which its cpuset allows memory, as last read; `None`: not known.
    pub allowed_nodes: Option<Vec<NodeId>>,
    nodes_at: Option<Instant>,
    /// Its user ids when it was added.
    users: [u32; 4],
    image: (u64, u64),
    mapped_at: Option<Instant>,
    mapping_took: Duration,
}

impl ManagedProcess {
    /// Number that policies use for the process.
    #[must_use]
    pub fn number(&self) -> u32 {
        u32::from(self.slot) | u32::from(self.generation) << 12
    }

    /// Identifies a page of this process.
    #[must_use]
    pub fn page_id(&self, page: PageNumber) -> PageId {
        PageId::new(self.slot, self.generation, page)
    }

    /// Registers that one of its threads was bound: threads that this one creates from now on inherit it.
    pub fn was_bound(&mut self, bound: &Bound) {
        self.bindings.retain(|known| !known.is_same_change(bound));
        self.bindings.push(bound.clone());
        let too_many = self.bindings.len().saturating_sub(BINDINGS_MAX);
        self.bindings.drain(..too_many);
    }

    /// It was found before the record of its start was read, when its parent had ended, and with that what it has inherited.
    fn also_inherits(&mut self, heritage: &Heritage) {
        if self.bindings.is_empty() && self.parent != heritage.parent {
            self.parent = heritage.parent;
            self.bindings = heritage.bindings.to_vec();
            self.threads.values_mut().for_each(|thread| thread.is_new = true);
        }
    }

    /// Reads on which nodes it may have memory.
    pub fn look_at_nodes(&mut self) {
        self.nodes_at = Some(Instant::now());
        self.allowed_nodes = cgroup::allowed_nodes(Path::new("/"), self.target.pid);
    }

    /// Whether its cpuset forbids memory on a node, as last read.
    #[must_use]
    pub fn is_forbidden(&self, node: NodeId) -> bool {
        self.allowed_nodes.as_ref().is_some_and(|allowed| !allowed.contains(&node))
    }

    /// Whether a page is in a range with huge pages.
    #[must_use]
    pub fn is_huge(&self, page: PageNumber) -> bool {
        numapilot_ranges::find(&self.huge, |range| *range, VirtAddr::of_page(page)).is_some()
    }
}

/// Changes since the previous observation.
#[derive(Debug, Default)]
pub struct Changes {
    /// Added processes.
    pub added: Vec<Target>,
    /// Processes that ended.
    pub ended: Vec<Target>,
    /// Processes that executed another program.
    pub execs: Vec<Target>,
    /// Of those that ended: process ids and bindings of the ones that run on, and belong to another user. Their threads are to get back their affinities.
    pub left: Vec<(Pid, Vec<Bound>)>,
}

/// What becomes of a process that was seen to be started.
#[derive(Debug)]
pub enum Started {
    /// It is left alone: no managed process has started it.
    Elsewhere,
    /// It is managed from now on; `None`: it is already.
    Joined(Option<Target>),
    /// It is left alone: it has ended.
    Ended,
    /// It is not managed, and is not to keep what it may have inherited of these bindings.
    LeftOut {
        /// Bindings of the processes that it descends from.
        bindings: Arc<[Bound]>,
        /// Why it is not managed.
        why: LeftOut,
    },
}

/// Why a process that a managed one has started is not managed.
#[derive(Debug)]
pub enum LeftOut {
    /// What its parent starts is not managed.
    Unwanted,
    /// This user may not add more.
    UserIsFull(u32),
    /// There is no place, or it cannot be looked at.
    Refused(KernelError),
}

/// All managed processes, and what is remembered of those that ended.
#[derive(Debug)]
pub struct Targets {
    /// The processes by process id.
    pub all: BTreeMap<Pid, ManagedProcess>,
    former: Former,
    /// What the processes' tables of home nodes hold together.
    pub all_homes: Arc<AllHomes>,
    pub(crate) slots: Slots,
    next_thread: u32,
    looked_at: Option<Instant>,
    asked_at: Option<Instant>,
    allowance: Allowance,
    new_maps_allowance: Allowance,
    /// Whether a process was added since the last reading of threads, which is then due at any cost.
    has_new: bool,
    query: PageQuery,
}

impl Default for Targets {
    fn default() -> Targets {
        Targets {
            all: BTreeMap::new(),
            former: Former::default(),
            all_homes: Arc::default(),
            slots: Slots::default(),
            next_thread: 0,
            looked_at: None,
            asked_at: None,
            allowance: Allowance::new(LOOK_ADVANCE, LOOK_SHARE),
            new_maps_allowance: Allowance::new(NEW_MAPS_ADVANCE, NEW_MAPS_SHARE),
            has_new: false,
            query: PageQuery::new(),
        }
    }
}

impl Targets {
    /// Adds a process; `None`: it is managed already.
    ///
    /// # Errors
    /// The process has ended, or may not be inspected.
    pub fn add(&mut self, pid: Pid) -> Result<Option<Target>, KernelError> {
        let parent = task::parent_of(pid);
        let heritage = parent.and_then(|parent| Some(heritage_from(parent, self.all.get(&parent)?)));
        self.insert(pid, Heritage { parent, ..heritage.unwrap_or_default() })
    }

    /// Takes in a process that `parent` was seen to start, which may have ended since, if that is managed, or was, and there is a place for it. Its threads
    /// inherit the parent's bindings. `takes_children`: what managed processes start is managed.
    pub fn started(&mut self, pid: Pid, parent: Pid, takes_children: bool) -> Started {
        // Whatever had this number before has ended, and what that started was told before.
        self.former.forget(pid);
        let heritage = match self.all.get(&parent) {
            Some(managed) => heritage_from(parent, managed),
            None => match self.former.get(parent) {
                Some(heritage) => heritage.clone(),
                None => return Started::Elsewhere,
            },
        };
        if let Some(managed) = self.all.get_mut(&pid) {
            managed.also_inherits(&heritage);
            return Started::Joined(None);
        }
        let full = heritage.guest_of.filter(|_| !self.has_place_for(heritage.guest_of, GUESTS_MAX));
        let why = match full {
            _ if !takes_children || !heritage.is_joined => LeftOut::Unwanted,
            Some(uid) => LeftOut::UserIsFull(uid),
            None => match self.insert(pid, heritage.clone()) {
                Ok(added) => return Started::Joined(added),
                Err(KernelError::Gone { .. }) => {
                    self.former.remember(pid, heritage);
                    return Started::Ended;
                }
                Err(error) => LeftOut::Refused(error),
            },
        };
        let bindings = heritage.bindings.clone();
        if !bindings.is_empty() {
            // What it has started already inherited them, too.
            self.former.remember(pid, Heritage { is_joined: false, ..heritage });
        }
        Started::LeftOut { bindings, why }
    }

    fn insert(&mut self, pid: Pid, heritage: Heritage) -> Result<Option<Target>, KernelError> {
        if self.all.contains_key(&pid) {
            return Ok(None);
        }
        let process = task::Process::open(pid)?;
        let stat = task::stat(pid)?;
        let users = task::users_of(pid).ok_or(KernelError::Gone { pid })?;
        let target = Target { pid, start_ticks: stat.start_ticks, uid: users[0], name: stat.name };
        let limit = usize::from(self.slots.limit);
        let is_taken = |slot: u16| self.all.values().any(|managed| managed.slot == slot);
        let free = self.slots.free(is_taken);
        let (slot, generation) = free.ok_or(KernelError::TooMany { what: "processes", limit })?;
        let managed = ManagedProcess {
            target: target.clone(),
            process,
            slot,
            generation,
            threads: BTreeMap::new(),
            homes: Homes::among(&self.all_homes),
            mappings: Vec::new(),
            huge: Vec::new(),
            hot: Hot::default(),
            samples: (0, 0),
            moved_bytes: 0,
            known_since_ns: u64::MAX,
            is_claimed: false,
            guest_of: heritage.guest_of,
            parent: heritage.parent,
            bindings: heritage.bindings.to_vec(),
            numa: NumaLook::default(),
            allowed_nodes: None,
            nodes_at: None,
            users,
            image: stat.image,
            mapped_at: None,
            mapping_took: Duration::ZERO,
        };
        self.all.insert(pid, managed);
        self.has_new = true;
        Ok(Some(target))
    }

    /// Stops managing a process that runs on, and whose threads had these bindings: what it has started since the last look is not to keep them.
    pub fn let_go(&mut self, pid: Pid, bindings: Vec<Bound>) {
        self.all.remove(&pid);
        if !bindings.is_empty() {
            self.former.remember(pid, Heritage { bindings: bindings.into(), ..Heritage::default() });
        }
    }

    /// Whether another process of what this user has added may be managed (`None`: what may fill all places); `most`: as many of each user's.
    fn has_place_for(&self, guest_of: Option<u32>, most: usize) -> bool {
        let alike = || self.all.values().filter(|managed| managed.guest_of == guest_of).count();
        guest_of.is_none() || alike() < most
    }

    /// Number of processes that ended while too many others did to be remembered: what they started just before may not be managed.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.former.dropped
    }

    /// Whether any thread may have an affinity from this program.
    #[must_use]
    pub fn has_bindings(&self) -> bool {
        self.all.values().any(|managed| !managed.bindings.is_empty()) || self.former.has_bindings()
    }

    /// Whether a process is another, or was started by it, or by one that it started, as far as these are managed.
    #[must_use]
    pub fn is_of(&self, pid: Pid, ancestor: Pid) -> bool {
        let parent = |pid: &Pid| self.all.get(pid).and_then(|managed| managed.parent);
        // Numbers of processes are reused, so that a chain could lead round.
        std::iter::successors(Some(pid), parent).take(LINEAGE_MAX).any(|pid| pid == ancestor)
    }

    /// Finds a process by the number that policies use.
    #[must_use]
    pub fn by_number(&self, number: u32) -> Option<&ManagedProcess> {
        self.all.values().find(|managed| managed.number() == number)
    }

    /// Total number of threads.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.all.values().map(|managed| managed.threads.len()).sum()
    }

    /// Does what [`Targets::look_at_all`] does, and tells nobody of progress.
    #[cfg(test)]
    pub fn look(&mut self, machine: &Machine) -> (Changes, Option<Duration>) {
        self.look_at_all(machine, &mut || ())
    }

    /// Updates everything. Threads are read only as often as the time budget permits; `None`: they were not read this time. `alive` is called after each
    /// process: reading those of a large machine takes longer than a watchdog waits.
    pub fn look_at_all(&mut self, machine: &Machine, alive: &mut dyn FnMut()) -> (Changes, Option<Duration>) {
        let mut changes = Changes::default();
        self.former.next_look();
        self.keep(&mut changes, |managed| managed.process.is_running());
        let now = Instant::now();
        let since = self.looked_at.map(|then| now.duration_since(then));
        let passed = self.asked_at.replace(now).map_or(Duration::ZERO, |then| now.duration_since(then));
        self.allowance.passed(passed);
        self.new_maps_allowance.passed(passed);
        if since.is_some() && !std::mem::take(&mut self.has_new) && !self.allowance.is_left() {
            return (changes, None);
        }
        let begun = clock::own_cpu();
        // A process that changed to another user (a set-user-id program) is no longer the one that was named.
        self.keep(&mut changes, |managed| {
            let users = task::users_of(managed.target.pid);
            users.is_some_and(|now| now[0] == managed.target.uid && !task::has_gained_rights(managed.users, now))
        });
        for managed in self.all.values_mut() {
            if look_at(managed, &mut self.next_thread, machine, since.unwrap_or_default()) {
                changes.execs.push(managed.target.clone());
                self.slots.has_had(managed.slot, managed.generation);
            }
            if managed.nodes_at.is_none_or(|then| then.elapsed() >= NODES_EVERY) {
                managed.look_at_nodes();
            }
            alive();
        }
        self.allowance.spent(clock::own_cpu().saturating_sub(begun));
        self.looked_at = Some(now);
        self.read_all_mappings(machine, alive);
        (changes, Some(since.unwrap_or_default()))
    }

    /// Reads the mappings that are due. A process that is new is read at once, as far as its share of the time allows.
    fn read_all_mappings(&mut self, machine: &Machine, alive: &mut dyn FnMut()) {
        let (took_all, count) = (self.all.values().map(|managed| managed.mapping_took).sum(), self.all.len() as u32);
        let begun = Instant::now();
        // New ones first: of them nothing is known.
        for of_new in [true, false] {
            for managed in self.all.values_mut() {
                let may_be_read = match managed.mapped_at {
                    None => of_new && self.new_maps_allowance.is_left(),
                    Some(then) => !of_new && then.elapsed() >= until_next_maps(managed.mapping_took, took_all, count),
                };
                if !may_be_read {
                    continue;
                }
                let before = clock::own_cpu();
                read_mappings(managed, &mut self.query, machine);
                if of_new {
                    // One large process does not put off all others for minutes.
                    self.new_maps_allowance.spent(clock::own_cpu().saturating_sub(before).min(NEW_MAPS_ADVANCE));
                }
                alive();
                if begun.elapsed() >= MAPS_AT_ONCE {
                    return;
                }
            }
        }
    }

    fn keep(&mut self, changes: &mut Changes, stays: impl Fn(&ManagedProcess) -> bool) {
        let former = &mut self.former;
        self.all.retain(|pid, managed| {
            let stays = stays(managed);
            if !stays {
                changes.ended.push(managed.target.clone());
                let runs_on = managed.process.is_running();
                let bindings = std::mem::take(&mut managed.bindings);
                if !bindings.is_empty() && runs_on {
                    changes.left.push((*pid, bindings.clone()));
                }
                // What it started since the last look is told at the next one. What another user's process starts is not managed.
                let (parent, guest_of) = (managed.parent, managed.guest_of);
                former.remember(*pid, Heritage { parent, bindings: bindings.into(), guest_of, is_joined: !runs_on });
            }
            stays
        });
    }
}

/// What a process inherits that a managed one starts.
fn heritage_from(parent: Pid, managed: &ManagedProcess) -> Heritage {
    let bindings = managed.bindings.as_slice().into();
    Heritage { parent: Some(parent), bindings, guest_of: managed.guest_of, is_joined: true }
}

/// Reads the threads. Returns whether the process has executed another program.
fn look_at(managed: &mut ManagedProcess, next_thread: &mut u32, machine: &Machine, since: Duration) -> bool {
    let pid = managed.target.pid;
    let mut is_another = false;
    if let Ok(stat) = task::stat(pid)
        && stat.image != managed.image
    {
        managed.image = stat.image;
        is_another = true;
        begin_anew(managed, stat.name);
    }
    let Ok(tids) = task::threads_of(pid) else { return is_another };
    managed.threads.retain(|tid, _| tids.binary_search(tid).is_ok());
    for tid in tids {
        let Ok(stat) = task::stat_of_thread(pid, tid) else { continue };
        let ran_ns = task::ran_ns(pid, tid, stat.cpu_ticks);
        let node = machine.node_of_cpu(stat.cpu).and_then(|node| machine.node_index(node));
        let start_ticks = stat.start_ticks;
        // Thread ids are reused too.
        if managed.threads.get(&tid).is_some_and(|thread| thread.start_ticks != start_ticks) {
            managed.threads.remove(&tid);
        }
        // On a CPU that was added since the start its node is not known: it counts where it was before, and not at all until it was somewhere.
        let Some(node) = node.or_else(|| managed.threads.get(&tid).map(|thread| thread.node)) else { continue };
        let thread = managed.threads.entry(tid).or_insert_with(|| {
            *next_thread += 1;
            Thread {
                number: *next_thread,
                node,
                ran_ns,
                busy: 0.0,
                ran_since_ns: 0,
                start_ticks,
                bound: None,
                is_new: true,
            }
        });
        let ran = ran_ns.saturating_sub(thread.ran_ns);
        thread.busy = if since.is_zero() { 0.0 } else { (ran as f64 / since.as_nanos() as f64).min(1.0) };
        thread.ran_since_ns += ran;
        (thread.ran_ns, thread.node) = (ran_ns, node);
    }
    is_another
}

/// Resets all evidence about the memory of a process, after an exec.
pub fn begin_anew(managed: &mut ManagedProcess, name: String) {
    managed.generation = managed.generation.wrapping_add(1);
    managed.homes.begin_anew();
    managed.hot.clear();
    managed.mappings.clear();
    managed.huge.clear();
    managed.known_since_ns = u64::MAX;
    managed.target.name = name;
    managed.mapped_at = None;
    // The next program's memory is elsewhere, under a policy that it may have inherited (numactl).
    managed.numa.is_outdated();
}

/// Time between two readings of a process's mappings, of which the last took `took`, and the last ones of all `count` processes together `took_all`. Those
/// that take less than most are read as if all took as little: they do not wait for the large ones.
fn until_next_maps(took: Duration, took_all: Duration, count: u32) -> Duration {
    let all_like_it = took.saturating_mul(count).min(took_all).saturating_mul(MAPS_SHARE_OF_ALL);
    MAPS_EVERY.max(took.saturating_mul(MAPS_SHARE).min(MAPS_LATEST)).max(all_like_it)
}

/// Reads the mappings, the ranges with huge pages, and (the first time) the home nodes of the pages.
fn read_mappings(managed: &mut ManagedProcess, query: &mut PageQuery, machine: &Machine) {
    let begun = clock::own_cpu();
    let is_first = managed.mapped_at.is_none();
    managed.mapped_at = Some(Instant::now());
    // Its cpuset may be changed while it runs.
    managed.look_at_nodes();
    // A process that ends meanwhile is noticed at the next observation.
    let Ok(mappings) = census::residents(managed.target.pid) else { return };
    let huge = mappings.iter().filter(|range| range.huge_bytes > 0);
    managed.huge = huge.map(|range| (range.start, range.end)).collect();
    let pages = |range: &census::Range| (range.start.page(), range.end.page());
    managed.homes.keep_within(mappings.iter().map(pages));
    managed.mappings = mappings;
    let resident: u64 = managed.mappings.iter().map(|range| range.resident_bytes / PageNumber::BYTES).sum();
    if is_first {
        // Once only: later readings take as long as what was done until here.
        managed.mapping_took = clock::own_cpu().saturating_sub(begun);
        managed.known_since_ns = clock::raw_ns();
        take_census(managed, query, machine, (resident / CENSUS_PAGES).max(1), |_| true);
        return;
    }
    if !managed.huge.is_empty() {
        // One fault allocates a whole huge page, so faults alone do not show which pages are present.
        take_census(managed, query, machine, PageNumber::PER_LARGE, |range| range.huge_bytes > 0);
    }
    managed.mapping_took = clock::own_cpu().saturating_sub(begun);
}

/// Reads the home nodes of the present pages: of every `stride`-th page, which stands for those up to the next.
fn take_census(
    managed: &mut ManagedProcess,
    query: &mut PageQuery,
    machine: &Machine,
    stride: u64,
    wanted: impl Fn(&census::Range) -> bool,
) {
    let pid = managed.target.pid;
    let Ok(mut map) = PageMap::open(pid) else { return };
    let (mut states, homes) = (Vec::new(), &mut managed.homes);
    for range in managed.mappings.iter().filter(|range| range.resident_bytes > 0 && wanted(range)) {
        let mut visit = |addresses: &[u64]| {
            let asked: Vec<u64> = addresses.iter().copied().step_by(stride as usize).collect();
            states.clear();
            if query.states(pid, &asked, &mut states).is_err() {
                return;
            }
            for (part, state) in addresses.chunks(stride as usize).zip(&states) {
                let Some(home) = state.node().and_then(|node| machine.node_index(node)) else { continue };
                for page in part.iter().map(|address| PageNumber::of(*address)) {
                    homes.set(page, page + 1, home);
                }
            }
        };
        if census::present(&mut map, range.start, range.end, &mut visit).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    //! This process, and children that end and become other programs.

    use std::process::Command;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn threads_and_pages_of_this_process_are_seen() {
        let machine = Machine::live().unwrap();
        let memory = std::hint::black_box(vec![7_u8; 4 << 20]);
        let mut targets = Targets::default();
        let target = targets.add(Pid::own()).unwrap().unwrap();
        assert!(targets.add(Pid::own()).unwrap().is_none());
        let (changes, since) = targets.look(&machine);
        assert!(changes.ended.is_empty() && since.is_some());
        let managed = &targets.all[&target.pid];
        assert!(!managed.threads.is_empty() && !managed.mappings.is_empty());
        assert_eq!(targets.by_number(managed.number()).unwrap().target, target);
        if numapilot_kernel::memory::policy(None).is_ok() {
            assert!(managed.homes.of(PageNumber::of(memory.as_ptr() as u64) + 1).is_some());
        }
    }

    /// A share of 0.1 % was each process's: with 500 of them, reading took half a processor.
    #[test]
    fn the_share_of_time_for_mappings_is_that_of_all_processes() {
        let ms = Duration::from_millis;
        assert_eq!(until_next_maps(ms(1), ms(1), 1), Duration::from_secs(2));
        assert_eq!(until_next_maps(ms(100), ms(100), 1), Duration::from_secs(60));
        // A large one is read rarely, and the small ones beside it are not.
        let (large, small, all) = (ms(10_000), ms(2), ms(10_000 + 9 * 2));
        assert_eq!(until_next_maps(small, all, 10), Duration::from_secs(8));
        assert!(until_next_maps(large, all, 10) > Duration::from_secs(3600));
        let times = [(large, 1.0), (small, 9.0)];
        let shares =
            times.map(|(took, count)| count * took.as_secs_f64() / until_next_maps(took, all, 10).as_secs_f64());
        assert!(shares.iter().sum::<f64>() <= 0.005, "{shares:?}");
        for (processes, took) in [(500, ms(2)), (300, ms(500)), (4096, ms(1))] {
            let took_all = took * processes;
            let share = took_all.as_secs_f64() / until_next_maps(took, took_all, processes).as_secs_f64();
            assert!(share <= 0.005, "{processes} processes take {share} of a processor");
        }
    }

    /// Reading what hundreds of large processes have mapped takes longer than the service manager's watchdog waits, and commands waited as long.
    #[test]
    fn new_processes_are_read_as_the_time_allows_and_somebody_hears_of_each() {
        let machine = Machine::live().unwrap();
        let mut targets = Targets::default();
        let pid = targets.add(Pid::own()).unwrap().unwrap().pid;
        targets.new_maps_allowance = Allowance::new(Duration::ZERO, 0.0);
        let mut heard = 0;
        targets.look_at_all(&machine, &mut || heard += 1);
        assert_eq!((heard, targets.all[&pid].mappings.len()), (1, 0), "threads are read, mappings are not yet");
        assert!(!targets.all[&pid].threads.is_empty());
        targets.new_maps_allowance = Allowance::new(Duration::from_millis(1), 0.0);
        targets.looked_at = None;
        targets.look_at_all(&machine, &mut || heard += 1);
        assert!(heard == 3 && !targets.all[&pid].mappings.is_empty(), "{heard}");
        // What follows is not new, and costs the allowance nothing.
        targets.new_maps_allowance = Allowance::new(Duration::ZERO, 0.0);
        let managed = targets.all.get_mut(&pid).unwrap();
        managed.mapped_at = Instant::now().checked_sub(MAPS_EVERY);
        managed.mapping_took = Duration::ZERO;
        managed.mappings.clear();
        targets.looked_at = None;
        targets.look_at_all(&machine, &mut || ());
        assert!(!targets.all[&pid].mappings.is_empty());
    }

    /// Nodes were read with the mappings, of which those of large processes are read once in minutes: pages were ordered to nodes that were forbidden since.
    #[test]
    fn a_changed_cpuset_is_seen_between_two_readings_of_the_mappings() {
        let machine = Machine::live().unwrap();
        let mut targets = Targets::default();
        let pid = targets.add(Pid::own()).unwrap().unwrap().pid;
        targets.look(&machine);
        let nodes = cgroup::allowed_nodes(Path::new("/"), pid);
        assert_eq!(targets.all[&pid].allowed_nodes, nodes);
        let of_another_time = Some(vec![NodeId(u16::MAX)]);
        let mut look_after = |passed: Duration| {
            let managed = targets.all.get_mut(&pid).unwrap();
            managed.allowed_nodes.clone_from(&of_another_time);
            managed.nodes_at = Instant::now().checked_sub(passed);
            (managed.mapped_at, managed.mapping_took) = (Some(Instant::now()), Duration::from_secs(1));
            targets.looked_at = None;
            targets.look(&machine);
            targets.all[&pid].allowed_nodes.clone()
        };
        assert_eq!(look_after(Duration::ZERO), of_another_time, "not at every look");
        assert_eq!(look_after(NODES_EVERY), nodes);
    }

    /// It was managed further, with another user's rights, or its threads stayed bound until the end of the run.
    #[test]
    fn a_process_of_another_user_by_now_is_let_go_and_named_with_its_bindings() {
        let machine = Machine::live().unwrap();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::of_child(&child);
        let mut targets = Targets::default();
        targets.add(pid).unwrap();
        assert!(targets.look(&machine).0.ended.is_empty());
        let mask = numapilot_kernel::affinity::of_thread(Tid::first_of(pid)).unwrap();
        let bound = Bound { before: mask.clone(), ours: mask, is_inherited: false };
        let managed = targets.all.get_mut(&pid).unwrap();
        managed.was_bound(&bound);
        // As if it had been another user's until it executed a set-user-ID program.
        managed.users = [u32::MAX; 4];
        targets.looked_at = None;
        let changes = targets.look(&machine).0;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((changes.ended.len(), changes.left), (1, vec![(pid, vec![bound])]));
        assert!(targets.all.is_empty());
    }

    /// A user could add a process that forks until no other process had a place.
    #[test]
    fn what_a_users_process_starts_has_a_bound_and_roots_has_none() {
        let mut children: Vec<_> = (0..2).map(|_| Command::new("sleep").arg("100").spawn().unwrap()).collect();
        let (this, first, second) = (Pid::own(), Pid::of_child(&children[0]), Pid::of_child(&children[1]));
        let mut targets = Targets::default();
        targets.add(this).unwrap();
        assert!(matches!(targets.started(second, first, true), Started::Elsewhere), "not managed");
        targets.all.get_mut(&this).unwrap().guest_of = Some(4711);
        assert!(matches!(targets.started(first, this, true), Started::Joined(Some(_))));
        assert!(matches!(targets.started(second, first, true), Started::Joined(Some(_))));
        assert_eq!(targets.all[&second].guest_of, Some(4711), "whatever starts whatever");
        assert!(targets.has_place_for(Some(4711), 4) && !targets.has_place_for(Some(4711), 3));
        targets.all.get_mut(&second).unwrap().guest_of = None;
        assert!(targets.has_place_for(None, 1) && targets.has_place_for(Some(4711), 3));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn an_exec_begins_a_generation_and_an_end_is_noticed() {
        let machine = Machine::live().unwrap();
        let mut child = Command::new("sh").args(["-c", "read x; exec cat"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut targets = Targets::default();
        while targets.add(Pid::of_child(&child)).unwrap().is_some_and(|target| target.name != "sh") {
            targets = Targets::default();
        }
        targets.look(&machine);
        let number = targets.all[&Pid::of_child(&child)].number();
        // The policies of the first program were taken for those of the second, for minutes if they took long to read.
        let text = b"7f0000010000 bind:0 anon=3 N0=3 kernelpagesize_kB=4\n";
        let maps = b"7f0000010000-7f0000020000 rw-p 00000000 00:00 0\n";
        let numa = numapilot_kernel::numa_memory::NumaMemory::of_texts(text, maps);
        targets.all.get_mut(&Pid::of_child(&child)).unwrap().numa = numa.into();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let mut execs = Vec::new();
        for _ in 0..6000 {
            std::thread::sleep(Duration::from_millis(10));
            targets.looked_at = None;
            execs.extend(targets.look(&machine).0.execs);
            if !execs.is_empty() {
                break;
            }
        }
        assert_eq!((execs.len(), execs[0].name.as_str()), (1, "cat"));
        assert_ne!(targets.all[&Pid::of_child(&child)].number(), number);
        let numa = &mut targets.all.get_mut(&Pid::of_child(&child)).unwrap().numa;
        assert!(!numa.of(Pid::of_child(&child), Duration::from_secs(3600)).is_chosen(VirtAddr(0x7f00_0001_2000)));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(targets.look(&machine).0.ended.len(), 1);
        assert!(targets.all.is_empty());
        assert!(matches!(targets.add(Pid::of_child(&child)), Err(KernelError::Gone { .. })));
    }
}
