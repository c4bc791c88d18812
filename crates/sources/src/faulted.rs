//! The first toucher of pages that no instrumented access touched first, from the kernel's page-fault events. They are read here while a simulated
//! recording runs. Threads of the program that access such a page request its first toucher (`crates/runtime/c/toucher.c`, words `ask_*` of the slot).
//!
//! The kernel writes a fault's event before the fault returns, so it has been written when a thread requests it. Faults that the kernel takes on a
//! program's behalf (`read(2)` into fresh memory) need the right to see kernel events; without it only user faults are known.
//!
//! What a fault's event tells is the thread, the address and the time (`perf_sw_event` in the architecture's `fault.c`, before the fault is handled). It does
//! not tell whether the page was there, nor whether the fault was a read. Of several threads' faults on a page the last one made the page that is there now
//! where the page went in between (`munmap`, `MADV_DONTNEED`), where the first was a read (of the zero page), and after a fork (the copy). A NUMA hinting fault
//! makes no page. So the last fault counts where the kernel makes no hinting faults, and with them a page that several threads have faulted has no known first
//! toucher. A write after `mprotect` took the right to write is taken for a first touch: nothing distinguishes it from a copy.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::sysctl;
use numapilot_perf::Header;
use numapilot_perf::Record;
use numapilot_perf::SideBand;
use numapilot_perf::abi::kind;
use numapilot_trace::wire::layout as wire;

use crate::arena::Arena;
use crate::live::time::WrittenTimes;
use crate::live::time::raw_ns;
use numapilot_perf_events::event::EventRequest;
use numapilot_perf_events::open::EventSet;
use numapilot_perf_events::open::RingSize;
use numapilot_perf_events::open::Scope;
use numapilot_perf_events::ring::Records;
use numapilot_ranges::RangeMap;

/// A CPU's ring: 10,000 faults and more, which a program has in no less than the pause below.
const RING_BYTES: usize = 1 << 20;
/// Time between two readings of the rings when no thread has a request.
const LOOK: Duration = Duration::from_millis(10);
/// Set (to anything) in the recorder's environment, no page-fault events are opened: as on a system that refuses them.
const REFUSE: &str = "NUMAPILOT_NO_FAULT_EVENTS";

/// The answer for a page that several threads have faulted, of which any may be its first toucher: no thread has this number.
const SEVERAL: u32 = u32::MAX;

/// The thread that faulted a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faulter {
    /// This thread, last or alone.
    One(Tid),
    /// Several threads, where the last one need not have made the page.
    Several,
}

/// Which thread faulted each page of each process, in runs of neighbouring pages.
#[derive(Debug, Default)]
struct Faults {
    /// The faulting thread, by process id and page.
    runs: RangeMap<(Pid, PageNumber), Faulter>,
    /// Whether the kernel makes NUMA hinting faults: one of another thread is no first touch.
    are_hinted: bool,
    /// Pages of 4 KiB in one of the kernel's, which a fault maps together; 0 for 1.
    each: u64,
}

impl Faults {
    /// Adds a fault of thread `tid` of process `pid` on `page`, later than all faults before.
    fn fault(&mut self, pid: Pid, tid: Tid, page: PageNumber) {
        let each = self.each.max(1);
        let first = PageNumber(page.0 / each * each);
        let before = self.runs.get((pid, first)).map(|run| run.value);
        let is_others = self.are_hinted && before.is_some_and(|before| before != Faulter::One(tid));
        let faulter = if is_others { Faulter::Several } else { Faulter::One(tid) };
        self.runs.join((pid, first), (pid, first + each), faulter);
    }

    /// The process has ended, or has new memory: what has its number from now on has not faulted yet.
    fn forget(&mut self, pid: Pid) {
        self.runs.remove((pid, PageNumber(0)), (pid, PageNumber(u64::MAX)));
    }

    /// Who faulted `page`, and how many pages from there on.
    fn last(&self, pid: Pid, page: PageNumber) -> Option<(Faulter, u64)> {
        self.runs.get((pid, page)).map(|run| (run.value, run.end.1 - page))
    }
}

/// What a record tells of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The process was created by a fork.
    Forked,
    /// The process executed a program.
    Executed,
    /// A thread of it was started.
    ThreadStarted,
    /// A thread faulted a page.
    Fault { tid: Tid, page: PageNumber },
    /// A thread of it has ended.
    ThreadEnded,
}

/// A step with its time and process.
type Timed = (u64, Pid, Step);

/// Faults in order of time. Rings are read one after the other: while the last ones are, threads have faults that go to the first ones, so what is
/// later than the beginning of a reading is not complete, and waits for the next one.
#[derive(Debug, Default)]
struct Course {
    faults: Faults,
    waiting: Vec<Timed>,
    /// Number of threads of each process that have not ended, as far as they are known.
    living: HashMap<Pid, u32>,
}

impl Course {
    /// Adds a step as a ring shows it.
    fn found(&mut self, step: Timed) {
        self.waiting.push(step);
    }

    /// Every ring was read at `now` or after it.
    fn read_at(&mut self, now: u64) {
        self.waiting.sort_unstable();
        let known = self.waiting.partition_point(|step| step.0 <= now);
        let mut steps = std::mem::take(&mut self.waiting);
        for (_, pid, step) in steps.drain(..known) {
            self.take(pid, step);
        }
        self.waiting = steps;
    }

    fn take(&mut self, pid: Pid, step: Step) {
        match step {
            Step::Fault { tid, page } => self.faults.fault(pid, tid, page),
            Step::Forked | Step::Executed => {
                // A number that is used again, or new memory.
                self.faults.forget(pid);
                self.living.insert(pid, 1);
            }
            Step::ThreadStarted => *self.living.entry(pid).or_insert(1) += 1,
            Step::ThreadEnded => {
                let living = self.living.get(&pid).copied().unwrap_or(1).saturating_sub(1);
                if living == 0 {
                    self.living.remove(&pid);
                    self.faults.forget(pid);
                } else {
                    self.living.insert(pid, living);
                }
            }
        }
    }
}

/// A request of the thread in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question {
    slot: u32,
    pid: Pid,
    page: PageNumber,
}

/// What threads ask at this moment.
fn questions(arena: &Arena) -> Vec<Question> {
    (0..arena.slots_used())
        .map(|slot| (slot, arena.slot(slot)))
        .filter(|(_, at)| at.ask_state() == wire::ASK_ASKED)
        .map(|(slot, at)| Question { slot, pid: Pid(at.pid()), page: PageNumber(at.ask_page()) })
        .collect()
}

/// Answers what was asked before the faults were read. Who has asked since may ask for a fault that is not among them: an earlier thread's fault on that page
/// would be the wrong answer, and none would be none for good.
fn answer(arena: &Arena, asked: &[Question], faults: &Faults) {
    for question in asked {
        let slot = arena.slot(question.slot);
        let still = slot.ask_state() == wire::ASK_ASKED
            && Pid(slot.pid()) == question.pid
            && slot.ask_page() == question.page.0;
        if !still {
            continue;
        }
        // The kernel's events have our numbers.
        let last = slot.is_of_our_namespace().then(|| faults.last(question.pid, question.page)).flatten();
        let (tid, pages) = match last {
            Some((Faulter::One(tid), pages)) => (tid.0, pages),
            Some((Faulter::Several, pages)) => (SEVERAL, pages),
            None => (0, 0),
        };
        slot.answer(tid, u32::try_from(pages).unwrap_or(u32::MAX));
    }
}

/// Counts of first touchers that could not be reported to threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Faults that found no room in their ring.
    pub lost: u64,
    /// Requests that were not answered in time, of threads whose slots were not reused.
    pub late: u64,
}

/// Open page-fault events, and the first touchers that they have shown.
#[derive(Debug)]
pub(crate) struct FaultAnswers {
    set: EventSet,
    /// Which page faults are seen (`np_fault_events`).
    pub scope: u32,
    course: Course,
    bytes: Vec<u8>,
    /// When the rings were read last.
    read_ns: u64,
}

impl FaultAnswers {
    /// Opens the page faults of what this thread is about to start.
    ///
    /// # Errors
    /// Why the events are not available, as a note for the user.
    pub fn open() -> Result<FaultAnswers, String> {
        let opened = if std::env::var_os(REFUSE).is_some() {
            Err(format!("{REFUSE} is set"))
        } else {
            Self::with(false).or_else(|_| Self::with(true))
        };
        opened.map_err(|why| {
            format!(
                "the kernel's page-fault events are not available ({why}): pages that libraries or the kernel touch first have an unknown home node where \
                 the program has several threads; record as root, or set kernel.perf_event_paranoid to 1 or less"
            )
        })
    }

    fn with(user_only: bool) -> Result<FaultAnswers, String> {
        let request = EventRequest::every_page_fault(user_only);
        let set = EventSet::open(&[request], &Scope::Children, RingSize { bytes: RING_BYTES })
            .map_err(|error| error.to_string())?;
        let scope = if user_only { wire::FAULTS_USER } else { wire::FAULTS_ALL };
        let are_hinted = sysctl::numa_balancing().is_some_and(|mode| mode != 0);
        let faults = Faults { each: page_bytes() / PageNumber::BYTES, are_hinted, ..Faults::default() };
        let course = Course { faults, ..Course::default() };
        Ok(FaultAnswers { set, scope, course, bytes: Vec::new(), read_ns: raw_ns() })
    }

    /// Reads events and answers requests until `done`. Returns counts of what stayed unanswered: threads treat the first touchers of such pages as unknown.
    pub fn run(mut self, arena: &Arena, done: &AtomicBool) -> Untold {
        while !done.load(Ordering::Acquire) {
            let seen = arena.questions();
            let asked = questions(arena);
            self.take();
            answer(arena, &asked, &self.course.faults);
            arena.sleep_until_asked(seen, LOOK);
        }
        let late = (0..arena.slots_used()).map(|index| u64::from(arena.slot(index).ask_failures())).sum();
        Untold { lost: self.set.lost(), late }
    }

    /// Empties the rings.
    fn take(&mut self) {
        let now = raw_ns();
        for ring in &mut self.set.rings {
            self.bytes.clear();
            ring.ring.take(&mut self.bytes);
            let mut written_ns = WrittenTimes { since_ns: self.read_ns, now_ns: now };
            for (header, body) in Records::new(&self.bytes) {
                let Some((ns, pid, step)) = step_of(&self.set.session, header, body) else { continue };
                let is_anothers = self.set.session.is_filled_for_another(header, body);
                self.course.found((written_ns.next(ns, is_anothers), pid, step));
            }
        }
        self.course.read_at(now);
        self.read_ns = now;
    }
}

/// The fault, start or end that a record tells of.
fn step_of(session: &numapilot_perf::Session, header: Header, body: &[u8]) -> Option<Timed> {
    if !matches!(header.kind, kind::SAMPLE | kind::FORK | kind::EXIT | kind::COMM) {
        return None;
    }
    match session.decode(header, body, 0).ok()? {
        Record::Sample(_, sample) => {
            let (pid, tid) = sample.pid_tid?;
            Some((sample.time?, pid, Step::Fault { tid, page: PageNumber::of(sample.addr?) }))
        }
        Record::SideBand(SideBand::Fork(change), id) if change.pid == change.parent_pid => {
            Some((id.time?, change.pid, Step::ThreadStarted))
        }
        Record::SideBand(SideBand::Fork(change), id) => Some((id.time?, change.pid, Step::Forked)),
        Record::SideBand(SideBand::Exit(change), id) => Some((id.time?, change.pid, Step::ThreadEnded)),
        Record::SideBand(SideBand::Comm { pid, by_exec: true, .. }, id) => Some((id.time?, pid, Step::Executed)),
        Record::SideBand(..) => None,
    }
}

#[cfg(test)]
mod tests {
    //! Runs against a page-by-page table.

    use proptest::prelude::*;

    use super::*;
    use crate::arena::Layout;
    use crate::clock::HostInstant;
    use crate::order::OrderSource;

    fn by(tid: u32) -> Faulter {
        Faulter::One(Tid(tid))
    }

    proptest! {
        #[test]
        fn the_last_fault_of_a_page_is_the_one_that_counts(
            faults in prop::collection::vec((1..3_u32, 1..4_u32, 0..24_u64), 0..300),
        ) {
            let (mut runs, mut table) = (Faults::default(), HashMap::new());
            for (pid, tid, page) in faults {
                runs.fault(Pid(pid), Tid(tid), PageNumber(page));
                table.insert((pid, page), tid);
            }
            for pid in 1..3 {
                for page in 0..24 {
                    let told = runs.last(Pid(pid), PageNumber(page));
                    prop_assert_eq!(told.map(|(faulter, _)| faulter), table.get(&(pid, page)).map(|tid| by(*tid)));
                    let Some((faulter, pages)) = told else { continue };
                    for later in page..page + pages {
                        prop_assert_eq!(table.get(&(pid, later)).map(|tid| by(*tid)), Some(faulter));
                    }
                }
            }
        }

        #[test]
        fn neighbours_of_one_thread_are_one_run(pages in Just((0..64_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut runs = Faults::default();
            pages.iter().for_each(|page| runs.fault(Pid(7), Tid(9), PageNumber(*page)));
            prop_assert_eq!(runs.runs.len(), 1);
            prop_assert_eq!(runs.last(Pid(7), PageNumber(10)), Some((by(9), 54)));
        }
    }

    /// A fault on a kernel with pages of 64 KiB (arm64) maps sixteen pages of 4 KiB: the first toucher of fifteen of them was unknown.
    #[test]
    fn a_fault_is_one_on_all_of_the_kernels_page() {
        let (mut runs, pid) = (Faults { each: 16, ..Faults::default() }, Pid(7));
        runs.fault(pid, Tid(9), PageNumber(37));
        assert_eq!(
            [32, 37, 47].map(|page| runs.last(pid, PageNumber(page))),
            [Some((by(9), 16)), Some((by(9), 11)), Some((by(9), 1))]
        );
        assert_eq!([31, 48].map(|page| runs.last(pid, PageNumber(page))), [None; 2]);
    }

    /// A NUMA hinting fault of another thread made that thread the first toucher, and whatever code without call-outs had touched seemed to move about.
    #[test]
    fn where_there_are_hinting_faults_a_page_of_several_threads_has_no_first_toucher() {
        let (mut faults, pid) = (Faults { are_hinted: true, ..Faults::default() }, Pid(7));
        for (tid, page) in [(8, 1), (8, 2), (8, 3), (8, 2), (9, 3), (8, 3), (9, 4)] {
            faults.fault(pid, Tid(tid), PageNumber(page));
        }
        let told = [1, 2, 3, 4, 5].map(|page| faults.last(pid, PageNumber(page)).map(|(faulter, _)| faulter));
        assert_eq!(told, [Some(by(8)), Some(by(8)), Some(Faulter::Several), Some(by(9)), None]);
        faults.forget(pid);
        faults.fault(pid, Tid(9), PageNumber(3));
        assert_eq!(faults.last(pid, PageNumber(3)), Some((by(9), 1)), "another program's page");
    }

    /// A fault at 5 goes to a ring that was read already, one at 7 to a ring that is read next.
    #[test]
    fn faults_of_several_rings_count_in_order_of_time() {
        let (mut course, pid, page) = (Course::default(), Pid(1), PageNumber(3));
        course.found((7, pid, Step::Fault { tid: Tid(20), page }));
        course.read_at(4);
        assert_eq!(course.faults.last(pid, page), None, "what came before it may not be known yet");
        course.found((5, pid, Step::Fault { tid: Tid(10), page }));
        course.read_at(8);
        assert_eq!(course.faults.last(pid, page), Some((by(20), 1)), "the later one is the page's last");
        assert!(course.waiting.is_empty());
    }

    /// Process numbers are used again, and a process has new memory after exec: faults of before are of other pages.
    #[test]
    fn faults_of_what_has_ended_answer_nothing() {
        let (mut course, page) = (Course::default(), PageNumber(3));
        let (one, other) = (Pid(1), Pid(9));
        let fault = Step::Fault { tid: Tid(20), page };
        let mut told = |steps: &[Timed], pid| {
            steps.iter().for_each(|step| course.found(*step));
            course.read_at(u64::MAX);
            (course.faults.last(pid, page).map(|(faulter, _)| faulter), course.faults.runs.len())
        };
        assert_eq!(told(&[(1, one, Step::Executed), (2, one, fault), (2, other, fault)], one), (Some(by(20)), 2));
        let one_of_two = [(3, one, Step::ThreadStarted), (4, one, Step::ThreadEnded)];
        assert_eq!(told(&one_of_two, one), (Some(by(20)), 2), "a thread is left");
        assert_eq!(told(&[(5, one, Step::ThreadEnded)], one), (None, 1), "the last thread has ended");
        assert_eq!(told(&[(6, one, Step::Forked), (7, one, fault)], one), (Some(by(20)), 2));
        assert_eq!(told(&[(8, one, Step::Executed)], one), (None, 1));
        assert_eq!(
            told(&[(9, other, Step::Forked)], other),
            (None, 0),
            "its end was lost, and its number is used again"
        );
    }

    /// A thread asks while the rings are read: its fault may lie in one that was read before.
    #[test]
    fn only_what_was_asked_before_the_reading_is_answered() {
        // SAFETY: all-zero bytes are a value of np_config.
        let mut config: wire::Config = unsafe { std::mem::zeroed() };
        (config.mode, config.node_count, config.l1_lines, config.dir_entries_log2) = (wire::MODE_INSTRUMENT, 1, 16, 4);
        let layout = Layout::new(&config, 2, 1 << 16);
        let arena = Arena::create(&config, layout, HostInstant::now(), OrderSource::Counter).expect("an arena");
        for (index, page) in [(0, 3), (1, 4)] {
            arena.slot(index).test_claim(100 + index);
            arena.slot(index).test_ask(page);
        }
        arena.test_raise_slots_used(2);
        let mut faults = Faults::default();
        faults.fault(Pid(100), Tid(7), PageNumber(3));
        faults.fault(Pid(101), Tid(8), PageNumber(5));
        let asked = questions(&arena);
        assert_eq!(asked.len(), 2);
        arena.slot(1).test_ask(5); /* given up, and asked for another page */
        answer(&arena, &asked, &faults);
        assert_eq!(arena.slot(0).ask_state(), wire::ASK_ANSWERED);
        assert_eq!(arena.slot(1).ask_state(), wire::ASK_ASKED, "asked since");
        answer(&arena, &questions(&arena), &faults);
        assert_eq!(arena.slot(1).ask_state(), wire::ASK_ANSWERED);
    }
}
