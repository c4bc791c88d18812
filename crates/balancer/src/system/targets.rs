//! The processes that are looked after, each held by descriptor and start time, with its threads and what is known of its memory. They may end, exec
//! another program, fork and make threads at any moment: each look brings this up to date.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_kernel::KernelError;
use numapilot_kernel::census;
use numapilot_kernel::memory::PageQuery;
use numapilot_kernel::pagemap::PageMap;
use numapilot_kernel::task;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;

use super::binding::Bound;
use super::clock;
use crate::allowance::Allowance;
use crate::event::Target;
use crate::evidence::homes::Homes;
use crate::evidence::hot::Hot;
use crate::evidence::table::PageId;

/// Share of the time that looking at threads may take, once it has taken the advance.
const LOOK_SHARE: f64 = 0.0015;
const LOOK_ADVANCE: Duration = Duration::from_millis(250);
/// Share of the time that reading mappings may take: 1 over this.
const MAPS_SHARE: u32 = 1000;
/// So late at the latest, whatever they take.
const MAPS_LATEST: Duration = Duration::from_secs(60);
/// Between two readings of mappings at least.
const MAPS_EVERY: Duration = Duration::from_secs(2);
/// Pages of which a new target's homes are asked; larger ones are asked every so-and-so-manieth page.
const CENSUS_PAGES: u64 = 1 << 20;

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Number for policies, never used again.
    pub number: u32,
    /// Index of the node on which it was last seen.
    pub node: usize,
    /// Nanoseconds for which it has run, as last read.
    ran_ns: u64,
    /// Share of the time between the last two looks for which it ran.
    pub busy: f64,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// What we did to it; `None`: nothing.
    pub bound: Option<Bound>,
}

/// A process.
#[derive(Debug)]
pub struct ManagedProcess {
    /// Which.
    pub target: Target,
    /// Held, so that its number means it.
    pub process: task::Process,
    /// Number among the targets, below 4,096.
    pub slot: u16,
    /// Program images that it has had, modulo 256.
    pub generation: u8,
    /// Its threads by kernel number.
    pub threads: BTreeMap<u32, Thread>,
    /// Where its pages lie.
    pub homes: Homes,
    /// Mappings, as last read.
    pub mappings: Vec<census::Range>,
    /// Address ranges in which huge pages are.
    pub huge: Vec<(u64, u64)>,
    /// Where it was seen to use its memory lately.
    pub hot: Hot,
    /// Evidence of it in the last interval, and how much of it was local.
    pub samples: (u64, u64),
    /// Moved for it.
    pub moved_bytes: u64,
    /// When its pages were first asked after, in nanoseconds of the kernel's raw monotonic clock: faults before that say nothing of uses.
    pub known_since_ns: u64,
    /// It is ours to place: no other numapilot looks after it.
    pub is_claimed: bool,
    image: (u64, u64),
    mapped_at: Option<Instant>,
    mapping_took: Duration,
}

impl ManagedProcess {
    /// Number for policies.
    #[must_use]
    pub fn number(&self) -> u32 {
        u32::from(self.slot) | u32::from(self.generation) << 12
    }

    /// The page at address over 4,096.
    #[must_use]
    pub fn page_id(&self, page: u64) -> PageId {
        PageId::new(self.slot, self.generation, page)
    }

    /// Whether a page is in a range with huge pages.
    #[must_use]
    pub fn is_huge(&self, page: u64) -> bool {
        let address = page * 4096;
        let next = self.huge.partition_point(|range| range.0 <= address);
        next.checked_sub(1).is_some_and(|at| address < self.huge[at].1)
    }
}

/// What changed since the look before.
#[derive(Debug, Default)]
pub struct Changes {
    /// Came.
    pub added: Vec<Target>,
    /// Ended.
    pub ended: Vec<Target>,
    /// Became another program.
    pub execs: Vec<Target>,
}

/// All of them.
#[derive(Debug)]
pub struct Targets {
    /// By pid.
    pub all: BTreeMap<u32, ManagedProcess>,
    next_slot: u16,
    next_thread: u32,
    looked_at: Option<Instant>,
    asked_at: Option<Instant>,
    allowance: Allowance,
    /// One has come since the last look at threads, which is due whatever it takes.
    has_new: bool,
    query: PageQuery,
}

impl Default for Targets {
    fn default() -> Targets {
        Targets {
            all: BTreeMap::new(),
            next_slot: 0,
            next_thread: 0,
            looked_at: None,
            asked_at: None,
            allowance: Allowance::new(LOOK_ADVANCE, LOOK_SHARE),
            has_new: false,
            query: PageQuery::new(),
        }
    }
}

impl Targets {
    /// Looks after a process from now on; `None` if it is already.
    ///
    /// # Errors
    /// It has ended, or may not be looked into.
    pub fn add(&mut self, pid: u32) -> Result<Option<Target>, KernelError> {
        if self.all.contains_key(&pid) {
            return Ok(None);
        }
        let process = task::Process::open(pid)?;
        let stat = task::stat(pid)?;
        let uid = task::user_of(pid).ok_or(KernelError::Gone { pid })?;
        let target = Target { pid, start_ticks: stat.start_ticks, uid, name: stat.name };
        let slot = self.free_slot().ok_or(KernelError::TooMany { what: "processes", limit: 4096 })?;
        let managed = ManagedProcess {
            target: target.clone(),
            process,
            slot,
            generation: 0,
            threads: BTreeMap::new(),
            homes: Homes::default(),
            mappings: Vec::new(),
            huge: Vec::new(),
            hot: Hot::default(),
            samples: (0, 0),
            moved_bytes: 0,
            known_since_ns: u64::MAX,
            is_claimed: false,
            image: stat.image,
            mapped_at: None,
            mapping_took: Duration::ZERO,
        };
        self.all.insert(pid, managed);
        self.has_new = true;
        Ok(Some(target))
    }

    /// Slots go round, so that a new process's pages are not those of one that ended a moment ago.
    fn free_slot(&mut self) -> Option<u16> {
        let taken = |slot: u16| self.all.values().any(|managed| managed.slot == slot);
        let slot = (0..4096).map(|step| (self.next_slot + step) % 4096).find(|slot| !taken(*slot))?;
        self.next_slot = (slot + 1) % 4096;
        Some(slot)
    }

    /// The process and its number in the kernel, by its number for policies.
    #[must_use]
    pub fn by_number(&self, number: u32) -> Option<&ManagedProcess> {
        self.all.values().find(|managed| managed.number() == number)
    }

    /// Threads in all.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.all.values().map(|managed| managed.threads.len()).sum()
    }

    /// Brings everything up to date. Threads are looked at as often as that takes little time; `None`: not this time.
    pub fn look(&mut self, machine: &Machine) -> (Changes, Option<Duration>) {
        let mut changes = Changes::default();
        self.keep(&mut changes, |managed| managed.process.is_running());
        let now = Instant::now();
        let since = self.looked_at.map(|then| now.duration_since(then));
        self.allowance.passed(self.asked_at.replace(now).map_or(Duration::ZERO, |then| now.duration_since(then)));
        if since.is_some() && !std::mem::take(&mut self.has_new) && !self.allowance.is_left() {
            return (changes, None);
        }
        let begun = clock::own_cpu();
        // A process that has become another user's (a set-user-id program) is no longer the one that was named.
        self.keep(&mut changes, |managed| task::user_of(managed.target.pid) == Some(managed.target.uid));
        for managed in self.all.values_mut() {
            if look_at(managed, &mut self.next_thread, machine, since.unwrap_or_default()) {
                changes.execs.push(managed.target.clone());
            }
        }
        self.allowance.spent(clock::own_cpu().saturating_sub(begun));
        self.looked_at = Some(now);
        for managed in self.all.values_mut() {
            read_mappings(managed, &mut self.query, machine);
        }
        (changes, Some(since.unwrap_or_default()))
    }

    fn keep(&mut self, changes: &mut Changes, stays: impl Fn(&ManagedProcess) -> bool) {
        self.all.retain(|_, managed| {
            let stays = stays(managed);
            if !stays {
                changes.ended.push(managed.target.clone());
            }
            stays
        });
    }
}

/// Threads, and whether it is another program now.
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
        let (Some(ran_ns), Ok(stat)) = (task::ran_ns(pid, tid), task::stat_of_thread(pid, tid)) else { continue };
        let node = machine.node_of_cpu(CpuId(stat.cpu)).and_then(|node| machine.node_index(node)).unwrap_or(0);
        let start_ticks = stat.start_ticks;
        // A thread's number comes again too.
        if managed.threads.get(&tid).is_some_and(|thread| thread.start_ticks != start_ticks) {
            managed.threads.remove(&tid);
        }
        let thread = managed.threads.entry(tid).or_insert_with(|| {
            *next_thread += 1;
            Thread { number: *next_thread, node, ran_ns, busy: 0.0, start_ticks, bound: None }
        });
        let ran = ran_ns.saturating_sub(thread.ran_ns) as f64;
        thread.busy = if since.is_zero() { 0.0 } else { (ran / since.as_nanos() as f64).min(1.0) };
        (thread.ran_ns, thread.node) = (ran_ns, node);
    }
    is_another
}

/// Another program image: nothing that was known of its memory holds.
pub fn begin_anew(managed: &mut ManagedProcess, name: String) {
    managed.generation = managed.generation.wrapping_add(1);
    managed.homes = Homes::default();
    managed.hot.clear();
    managed.mappings.clear();
    managed.huge.clear();
    managed.known_since_ns = u64::MAX;
    managed.target.name = name;
    managed.mapped_at = None;
}

/// Mappings, where huge pages are, and (the first time) where its pages lie.
fn read_mappings(managed: &mut ManagedProcess, query: &mut PageQuery, machine: &Machine) {
    let wait = MAPS_EVERY.max((managed.mapping_took * MAPS_SHARE).min(MAPS_LATEST));
    if managed.mapped_at.is_some_and(|then| then.elapsed() < wait) {
        return;
    }
    let begun = clock::own_cpu();
    let is_first = managed.mapped_at.is_none();
    managed.mapped_at = Some(Instant::now());
    // A process that ends while we look is noticed at the next look.
    let Ok(mappings) = census::residents(managed.target.pid) else { return };
    let huge = mappings.iter().filter(|range| range.huge_bytes > 0);
    managed.huge = huge.map(|range| (range.start, range.end)).collect();
    managed.homes.keep_within(mappings.iter().map(|range| (range.start / 4096, range.end / 4096)));
    managed.mappings = mappings;
    let resident: u64 = managed.mappings.iter().map(|range| range.resident_bytes / 4096).sum();
    if is_first {
        managed.known_since_ns = clock::raw_ns();
        take_census(managed, query, machine, (resident / CENSUS_PAGES).max(1), |_| true);
    } else if !managed.huge.is_empty() {
        // One fault makes all of a huge page, so faults alone do not tell which pages are there.
        take_census(managed, query, machine, 512, |range| range.huge_bytes > 0);
    }
    managed.mapping_took = clock::own_cpu().saturating_sub(begun);
}

/// Where the pages lie that are there already. Every `stride`th is asked, and stands for those up to the next.
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
                for address in part {
                    homes.set(address / 4096, address / 4096 + 1, home as u8);
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
        let target = targets.add(std::process::id()).unwrap().unwrap();
        assert!(targets.add(std::process::id()).unwrap().is_none());
        let (changes, since) = targets.look(&machine);
        assert!(changes.ended.is_empty() && since.is_some());
        let managed = &targets.all[&target.pid];
        assert!(!managed.threads.is_empty() && !managed.mappings.is_empty());
        assert_eq!(targets.by_number(managed.number()).unwrap().target, target);
        if numapilot_kernel::memory::policy(None).is_ok() {
            assert!(managed.homes.of(memory.as_ptr() as u64 / 4096 + 1).is_some());
        }
    }

    #[test]
    fn an_exec_begins_a_generation_and_an_end_is_noticed() {
        let machine = Machine::live().unwrap();
        let mut child = Command::new("sh").args(["-c", "read x; exec cat"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut targets = Targets::default();
        while targets.add(child.id()).unwrap().is_some_and(|target| target.name != "sh") {
            targets = Targets::default();
        }
        targets.look(&machine);
        let number = targets.all[&child.id()].number();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let mut execs = Vec::new();
        for _ in 0..500 {
            std::thread::sleep(Duration::from_millis(10));
            targets.looked_at = None;
            execs.extend(targets.look(&machine).0.execs);
            if !execs.is_empty() {
                break;
            }
        }
        assert_eq!((execs.len(), execs[0].name.as_str()), (1, "cat"));
        assert_ne!(targets.all[&child.id()].number(), number);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(targets.look(&machine).0.ended.len(), 1);
        assert!(targets.all.is_empty());
        assert!(matches!(targets.add(child.id()), Err(KernelError::Gone { .. })));
    }
}
