//! Drains the kernel's rings: sorts records by time, converts their stamps to the tracker's scale, and writes them to the trace.
//!
//! One thread reads all rings in turn. Records of one pass are processed after the next pass (as perf does it): by then no ring holds older
//! ones. Memory is bounded: when too many records wait, the rings are not drained, and the kernel counts what it could not write, which is shown.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_machine::CpuId;
use numapilot_perf::Header;
use numapilot_perf::MemoryAccess;
use numapilot_perf::Sample;
use numapilot_perf::SideBand;
use numapilot_perf::TaskChange;
use numapilot_perf::abi::aux_flag;
use numapilot_perf::abi::kind;
use numapilot_perf::spe::SourceTable;
use numapilot_sampled::Announcement;
use numapilot_sampled::Counts;
use numapilot_sampled::Entry;
use numapilot_sampled::Queue;
use numapilot_sampled::Samples;
use numapilot_trace::chunk::ChunkError;

use super::news::News;
use super::time::ClockPair;
use super::time::TimeLine;
use super::time::WrittenTimes;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::aux::AuxCounts;
use numapilot_perf_events::aux::owner_of;
use numapilot_perf_events::doubles::Doubles;
use numapilot_perf_events::homes::Asked;
use numapilot_perf_events::homes::Homes;
use numapilot_perf_events::open::EventSet;
use numapilot_perf_events::open::Multiplexed;
use numapilot_perf_events::page_sizes::PageSizes;
use numapilot_perf_events::page_sizes::SizesAsked;
use numapilot_perf_events::ring::Records;
use numapilot_perf_events::wake::Wake;

/// Between two looks, unless a ring fills faster.
const LOOK: Duration = Duration::from_millis(20);
/// Least time between two looks: a writer that was interrupted in the middle of a record finishes it in this time.
const LOOK_LEAST: Duration = Duration::from_millis(2);
/// How often everything goes to the chunk files. A recorder that is killed loses no more than that.
const FLUSH: Duration = Duration::from_millis(200);
/// Records that wait take no more than this.
const QUEUE_BYTES_MAX: usize = 256 << 20;
/// A thread that the tracker has not announced by then is none of its own.
const PATIENCE: Duration = Duration::from_secs(2);
/// Samples older than this part of it are not asked for their pages' homes any more.
const PATIENCE_PER_ANSWER: u64 = 4;

/// Running totals, read by other threads meanwhile.
#[derive(Debug, Default)]
pub struct LiveTotals {
    /// Number of records written.
    pub records: AtomicU64,
    /// Number of these records that are sampled accesses.
    pub samples: AtomicU64,
    /// Records that the kernel could not write.
    pub lost: AtomicU64,
    /// Bytes of the trace's files.
    pub disk_bytes: AtomicU64,
    /// Processes that have joined, and whose events the reader has yet to open.
    joining: Mutex<Vec<Pid>>,
    /// Processes that had joined and whose events nobody has any more: the reader has yet to close them.
    leaving: Mutex<Vec<Pid>>,
}

impl LiveTotals {
    /// Has the reader open the events of processes that joined without having inherited them.
    pub fn join(&self, pids: impl IntoIterator<Item = Pid>) {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner).extend(pids);
    }

    /// Has the reader close the events that were opened for processes that joined, of which none runs any more that has them.
    pub fn leave(&self, pids: impl IntoIterator<Item = Pid>) {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).extend(pids);
    }

    /// Records, samples and lost records so far.
    pub fn read(&self) -> (u64, u64, u64) {
        let [records, samples, lost] =
            [&self.records, &self.samples, &self.lost].map(|total| total.load(Ordering::Relaxed));
        (records, samples, lost)
    }
}

/// What a recording of events came to.
#[derive(Clone, Debug, Default)]
pub struct LiveOutcome {
    /// Counts of samples by outcome.
    pub counts: Counts,
    /// What became of questions where pages are.
    pub asked: Asked,
    /// What became of questions how large pages are.
    pub sizes_asked: SizesAsked,
    /// Bytes of rings that were no records.
    pub corrupt_bytes: u64,
    /// Counts of pieces of AUX areas.
    pub aux: AuxCounts,
    /// Ticks by which order stamps may be late.
    pub stamp_error_ticks: u64,
    /// The counter of order stamps has begun anew meanwhile.
    pub counter_was_reset: bool,
    /// Records of threads beyond those that a trace can hold.
    pub left_out: u64,
    /// Samples whose times are by the clock of another program's event.
    pub filled_for_others: u64,
    /// Processes that joined and that this user may not observe.
    pub refused: Vec<Pid>,
    /// Why events of processes that joined could not be opened: the first error.
    pub not_joined: Option<String>,
    /// CPUs that came online meanwhile, and that no event observes.
    pub unobserved_cpus: Vec<CpuId>,
    /// CPUs that were offline meanwhile and came back, and whose events were opened anew then.
    pub interrupted_cpus: BTreeSet<CpuId>,
    /// CPUs that were offline meanwhile and came back, and that no event observes: theirs ended when they went.
    pub returned_cpus: Vec<CpuId>,
    /// Events that counted for a part of the time only.
    pub multiplexed: Vec<Multiplexed>,
    /// Why the trace could not be written any further.
    pub failure: Option<String>,
}

/// Reads the rings of a recording.
pub struct Reader<'a> {
    events: EventSet,
    doubles: Doubles,
    wake: &'a Wake,
    totals: &'a LiveTotals,
    news: Option<Arc<News>>,
    samples: Samples,
    queue: Queue,
    /// What goes on now; between looks only its memory is of use.
    ready: Vec<Entry>,
    line: TimeLine,
    homes: Option<Homes>,
    sizes: Option<PageSizes>,
    aux_piece: Vec<u8>,
    /// CPUs whose AUX areas were full, and the times of the records that say so.
    full: Vec<(CpuId, Option<u64>)>,
    /// CPUs on which SPE was turned on again at the last look.
    restarted: Vec<CpuId>,
    /// Events are off for good.
    is_off: bool,
    announced: Vec<Announcement>,
    /// Order stamp up to which records were handed on.
    handled: u64,
    patience_ticks: u64,
    outcome: LiveOutcome,
}

/// Inputs of a [`Reader`].
pub struct Reading<'a> {
    /// The events, which are read here from now on.
    pub events: EventSet,
    /// What to sleep on: made of the same events.
    pub wake: &'a Wake,
    /// Counters of the progress.
    pub totals: &'a LiveTotals,
    /// The tracker's news, where it is in the program.
    pub news: Option<Arc<News>>,
    /// Receives the samples.
    pub samples: Samples,
    /// A pair of clocks from before the first event.
    pub first: ClockPair,
    /// Rate of order stamps in kHz.
    pub order_khz: u32,
    /// The machine has more than one node, so that the kernel must be asked where pages are.
    pub asks_homes: bool,
    /// Page faults are recorded, so that the kernel must be asked how large the pages are that they map.
    pub asks_sizes: bool,
    /// AUX areas are SPE's, with this meaning of its data sources by CPU.
    pub spe: Option<Vec<(u64, SourceTable)>>,
}

impl<'a> Reader<'a> {
    /// A reader of these events.
    pub fn new(reading: Reading<'a>) -> Reader<'a> {
        let Reading { mut events, wake, totals, news, mut samples, first, order_khz, asks_homes, asks_sizes, spe } =
            reading;
        if !events.of_cpus {
            // Turned on again, SPE counts in the thread that started the program, too.
            samples.leave_out(Pid::own());
        }
        events.watch_cpus();
        let mut queue = Queue::default();
        if let Some(tables) = spe {
            queue.expect_spe(tables);
        }
        let patience_ms = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
        Reader {
            events,
            doubles: Doubles::default(),
            wake,
            totals,
            news,
            samples,
            queue,
            ready: Vec::new(),
            line: TimeLine::new(first, ClockPair::now()),
            homes: asks_homes.then(Homes::default),
            sizes: asks_sizes.then(PageSizes::default),
            aux_piece: Vec::new(),
            full: Vec::new(),
            restarted: Vec::new(),
            is_off: false,
            announced: Vec::new(),
            handled: 0,
            patience_ticks: patience_ms * u64::from(order_khz),
            outcome: LiveOutcome::default(),
        }
    }

    /// Where records go, for what is known from elsewhere.
    pub fn samples(&mut self) -> &mut Samples {
        &mut self.samples
    }

    /// Turns on the records of mappings, names, forks and ends, and nothing else yet.
    pub fn enable_side_band(&self) {
        self.events.enable_side_band();
    }

    /// Turns the events on, where nothing else does.
    pub fn enable(&mut self) {
        self.events.enable();
        self.events.all_on();
    }

    /// Reads until `done`, then takes what is left; events go off once `stopped` is set. A failure to write is in the outcome.
    pub fn run(mut self, done: &AtomicBool, stopped: &AtomicBool) -> LiveOutcome {
        let mut flushed = Instant::now();
        loop {
            if !self.is_off && stopped.load(Ordering::Acquire) {
                self.is_off = true;
                self.events.disable();
            }
            let is_end = done.load(Ordering::Acquire);
            let began = Instant::now();
            let result = self.take_changes().and_then(|()| self.look(is_end)).and_then(|()| {
                if flushed.elapsed() >= FLUSH || is_end {
                    flushed = Instant::now();
                    return self.samples.out().flush();
                }
                Ok(())
            });
            if let Err(error) = result {
                self.outcome.failure = Some(error.to_string());
                self.events.disable();
                break;
            }
            if is_end {
                break;
            }
            let fullest = self.fullest();
            if fullest < 0.25 {
                self.wake.sleep(LOOK);
            }
            std::thread::sleep(LOOK_LEAST.saturating_sub(began.elapsed()));
        }
        self.outcome.counts = Counts { undecodable: self.outcome.counts.undecodable, ..self.samples.counts() };
        self.outcome.counts.lost = self.outcome.counts.lost.max(self.events.lost());
        self.totals.lost.store(self.outcome.counts.lost, Ordering::Relaxed);
        self.outcome.left_out = self.samples.out().left_out();
        self.outcome.unobserved_cpus = self.events.unobserved_cpus();
        self.outcome.returned_cpus = self.events.returned_cpus();
        self.outcome.multiplexed = self.events.multiplexed();
        self.outcome.asked = self.homes.map(|homes| homes.asked).unwrap_or_default();
        self.outcome.sizes_asked = self.sizes.map(|sizes| sizes.asked).unwrap_or_default();
        self.outcome.counts.aux_bytes_unread = self.queue.aux_bytes_unread();
        self.outcome.stamp_error_ticks = self.line.error_ticks();
        self.outcome.counter_was_reset = self.line.is_reset();
        self.outcome
    }

    /// Closes the events of processes that have ended, opens those of processes that have joined, and tells of their threads and mappings.
    fn take_changes(&mut self) -> Result<(), ChunkError> {
        // First: an id may have gone to a process that joins.
        let leaving = std::mem::take(&mut *self.totals.leaving.lock().unwrap_or_else(PoisonError::into_inner));
        if !leaving.is_empty() {
            self.events.leave(&leaving);
        }
        let joining = std::mem::take(&mut *self.totals.joining.lock().unwrap_or_else(PoisonError::into_inner));
        if joining.is_empty() {
            return Ok(());
        }
        // Before their events are on: what they do next comes later.
        let order = ClockPair::now().order;
        let refused = self.events.refused.len();
        for pid in &joining {
            if let Err(error) = self.events.add(*pid) {
                self.outcome.not_joined.get_or_insert_with(|| error.to_string());
            }
        }
        self.outcome.refused.extend_from_slice(&self.events.refused[refused..]);
        self.synthesize_processes(&joining, order).map(drop)
    }

    /// How full the fullest ring is, 0 to 1.
    fn fullest(&self) -> f64 {
        let share = |ring: &numapilot_perf_events::open::CpuRing| {
            ring.ring.waiting_bytes() as f64 / ring.ring.data_bytes() as f64
        };
        self.events.rings.iter().map(share).fold(0.0, f64::max)
    }

    /// Reads what every ring holds now. `is_end`: it is the last time.
    pub fn look(&mut self, is_end: bool) -> Result<(), ChunkError> {
        if self.queue.waiting_bytes() < QUEUE_BYTES_MAX {
            self.take();
            self.follow_cpus();
        }
        self.hand_on(is_end)?;
        self.listen(is_end)?;
        let (records, samples) = self.samples.out().written();
        self.totals.records.store(records, Ordering::Relaxed);
        self.totals.samples.store(samples, Ordering::Relaxed);
        self.totals.lost.store(self.samples.counts().lost, Ordering::Relaxed);
        self.totals.disk_bytes.store(self.samples.out().disk_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Opens the events of CPUs anew that were offline and are back. Their rings, which were just read, hold nothing any more. Where that is refused, it is
    /// tried again, and the outcome names the CPU.
    fn follow_cpus(&mut self) {
        if self.is_off {
            return;
        }
        for (cpu, _) in self.events.follow_cpus().into_iter().filter(|(_, is_open)| *is_open) {
            self.outcome.interrupted_cpus.insert(cpu);
            if let Some(ring) = self.events.rings.iter().find(|ring| ring.cpu == cpu) {
                // One that is not watched is read at every look all the same.
                let _ = self.wake.watch(ring.fd.as_raw_fd());
            }
        }
    }

    /// Copies the rings' records to the queue.
    fn take(&mut self) {
        let mut bytes = self.queue.lend();
        let mut start = bytes.len();
        let mut ends = Vec::with_capacity(self.events.rings.len());
        for ring in &mut self.events.rings {
            self.outcome.corrupt_bytes += ring.ring.take(&mut bytes);
            ends.push(bytes.len());
        }
        // Read after the records were written, so that they lie between two pairs.
        let (since_ns, now) = (self.line.last_raw_ns(), ClockPair::now());
        self.line.add(now);
        for (ring, end) in self.events.rings.iter().zip(ends) {
            let mut records = Records::new(&bytes[start..end]);
            let mut written_ns = WrittenTimes { since_ns, now_ns: now.raw_ns };
            for (header, body) in records.by_ref() {
                let is_anothers = self.events.session.is_filled_for_another(header, body);
                self.outcome.filled_for_others += u64::from(is_anothers);
                let ns = self.events.session.peek_time(header, body).map(|ns| written_ns.next(ns, is_anothers));
                if header.kind == kind::AUX
                    && let Ok((SideBand::Aux { offset, size, flags }, id)) =
                        self.events.session.decode_side_band(header, body, 0)
                {
                    self.aux_piece.clear();
                    ring.ring.read_aux(offset, size, &mut self.aux_piece);
                    self.outcome.aux.piece(flags, size, self.aux_piece.len());
                    let last_task = owner_of(self.events.of_cpus, id.pid_tid);
                    self.queue.spe(&self.aux_piece, None, last_task, ring.cpu);
                    if flags & aux_flag::TRUNCATED != 0 {
                        self.full.push((ring.cpu, ns));
                    }
                }
                let time = ns.map(|ns| self.line.order_of(ns));
                self.queue.record_at(header, start + Header::BYTES, body.len(), time);
                start += usize::from(header.size);
            }
            self.outcome.corrupt_bytes += records.rest() as u64;
            start = end;
        }
        self.queue.give_back(bytes);
        let mut untold = Vec::new();
        for ring in &mut self.events.rings {
            if let Some(bytes) = ring.ring.give_back_untold() {
                self.outcome.aux.missing_bytes += bytes;
                untold.push(ring.cpu);
            }
        }
        self.restart_full(&untold);
    }

    /// Turns SPE on again on the CPUs whose AUX areas were full, and once more at the next look: another task's event may have found the area full just
    /// before it was read, and is turned off a moment later. `untold`: CPUs whose record of that may have been lost.
    fn restart_full(&mut self, untold: &[CpuId]) {
        if self.is_off {
            return self.full.clear();
        }
        self.restarted.drain(..).for_each(|cpu| self.events.restart_aux(cpu));
        let now_ns = ClockPair::now().raw_ns;
        for (cpu, since_ns) in self.full.drain(..) {
            self.events.restart_aux(cpu);
            self.outcome.aux.restarted(now_ns.saturating_sub(since_ns.unwrap_or(now_ns)));
            self.restarted.push(cpu);
        }
        untold.iter().for_each(|&cpu| self.events.restart_aux(cpu));
        self.restarted.extend_from_slice(untold);
    }

    /// Hands on what no later record can come before.
    fn hand_on(&mut self, is_end: bool) -> Result<(), ChunkError> {
        let mut entries = std::mem::take(&mut self.ready);
        self.queue.ready(is_end, &mut entries);
        self.ask(&entries);
        for entry in &entries {
            self.entry(entry)?;
        }
        self.handled = self.handled.max(entries.last().map_or(0, |entry| entry.time));
        self.queue.forget(&mut entries);
        self.ready = entries;
        Ok(())
    }

    /// Asks the kernel where the pages of samples are, and how large those are that faults have mapped.
    fn ask(&mut self, entries: &[Entry]) {
        if self.homes.is_none() && self.sizes.is_none() {
            return;
        }
        // Where a page is now says little of where it was long ago.
        let limit = ClockPair::now().order.saturating_sub(self.patience_ticks / PATIENCE_PER_ANSWER);
        let (old, fresh) = entries.split_at(entries.partition_point(|entry| entry.time < limit));
        let late = old.iter().filter(|entry| entry.header.is_some_and(|h| h.kind == kind::SAMPLE)).count() as u64;
        // Once for both: it decodes the samples.
        for (pid, access) in fresh.iter().filter_map(|entry| sampled(&self.events, &self.queue, entry)) {
            if let Some(homes) = &mut self.homes
                && !self.samples.is_home_told(&access)
            {
                homes.want(pid, access.address);
            }
            // Of a page that was there before, the record itself has the size.
            if let Some(sizes) = &mut self.sizes
                && access.page_bytes.is_none_or(|bytes| bytes == 0)
            {
                sizes.want(pid, access.address);
            }
        }
        if let Some(homes) = &mut self.homes {
            let late = old.iter().filter_map(|entry| sampled(&self.events, &self.queue, entry));
            homes.asked.late += late.filter(|(_, access)| !self.samples.is_home_told(access)).count() as u64;
            homes.ask(self.samples.answers());
        }
        if let Some(sizes) = &mut self.sizes {
            sizes.asked.late += late;
            sizes.ask(self.samples.sizes());
        }
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), ChunkError> {
        let Some(header) = entry.header else {
            let Some(access) = self.queue.access(entry) else { return Ok(()) };
            self.outcome.aux.late += u64::from(entry.time < self.handled);
            return self.samples.access(&access, entry.time.max(self.handled));
        };
        if header.kind == kind::SAMPLE {
            return self.sample(header, entry);
        }
        let Ok((record, id)) = self.events.session.decode_side_band(header, self.queue.body(entry), 0) else {
            self.outcome.counts.undecodable += 1;
            return Ok(());
        };
        if let SideBand::Exit(change) = &record {
            self.events.thread_ended(change.tid);
        }
        self.samples.side_band(&on_order_scale(record, entry.time), &id, entry.time)
    }

    fn sample(&mut self, header: Header, entry: &Entry) -> Result<(), ChunkError> {
        let session = &self.events.session;
        let mut sample = Sample::default();
        let Ok(event) = session.decode_sample(header, self.queue.body(entry), 0, &mut sample) else {
            self.outcome.counts.undecodable += 1;
            return Ok(());
        };
        if self.doubles.is_double(&self.events, event, &sample) {
            return Ok(());
        }
        self.samples.sample(event, &session.events()[event], &sample, entry.time)
    }

    /// Takes the tracker's news into account, as far as the kernel's records have come.
    fn listen(&mut self, is_end: bool) -> Result<(), ChunkError> {
        let Some(news) = &self.news else { return Ok(()) };
        news.take(is_end, &mut self.announced);
        // Nothing new from the kernel for a while: what was taken last was all.
        let horizon = if self.queue.is_empty() { ClockPair::now().order } else { self.handled };
        let mut later = Vec::new();
        for announced in self.announced.drain(..) {
            if is_end || announced.seen <= horizon {
                self.samples.announce(&announced)?;
            } else {
                later.push(announced);
            }
        }
        self.announced = later;
        let limit = if is_end { u64::MAX } else { horizon.saturating_sub(self.patience_ticks) };
        self.samples.settle(limit)
    }
}

/// The access of a sample, with its process; of an AUX trace, with the process that ran at the end of its piece.
fn sampled<'a>(events: &EventSet, queue: &'a Queue, entry: &Entry) -> Option<(Pid, MemoryAccess<'a>)> {
    let Some(header) = entry.header else {
        let found = queue.access(entry)?;
        return Some((found.last_task?.0, found.access));
    };
    if header.kind != kind::SAMPLE {
        return None;
    }
    let mut sample = Sample::default();
    let event = events.session.decode_sample(header, queue.body(entry), 0, &mut sample).ok()?;
    let access = MemoryAccess::of_sample(&events.session.events()[event], &sample)?;
    Some((access.pid.filter(|&pid| pid != Pid(0))?, access))
}

/// Times within records, in the record's own stamp's terms.
fn on_order_scale(record: SideBand<'_>, order: u64) -> SideBand<'_> {
    match record {
        SideBand::Fork(change) => SideBand::Fork(TaskChange { time: order, ..change }),
        SideBand::Exit(change) => SideBand::Exit(TaskChange { time: order, ..change }),
        other => other,
    }
}

/// What a reader of these events sleeps on.
///
/// # Errors
/// The system is out of descriptors.
pub fn wake_for(events: &EventSet) -> Result<Wake, EventsError> {
    Wake::new(events.rings.iter().map(|ring| ring.fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    //! Events of running processes, where the kernel allows any.

    use std::process::Child;
    use std::process::Command;

    use numapilot_host::Tid;
    use numapilot_perf_events::event::EventRequest;
    use numapilot_perf_events::open::RingSize;
    use numapilot_perf_events::open::Scope;
    use numapilot_perf_events::places::Places;
    use numapilot_sampled::Output;
    use numapilot_sampled::SharedWriter;
    use numapilot_sampled::TaskSource;
    use numapilot_sampled::Tasks;
    use numapilot_trace::chunk::ChunkWriter;
    use numapilot_trace::chunk::SessionStart;
    use numapilot_trace::chunk::WriterOptions;
    use numapilot_trace::wire::Clock;

    use super::*;

    fn start() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A load, and tick 1000. Without the right to physical addresses, nothing else told the home nodes of such accesses.
    #[test]
    fn the_kernel_is_asked_for_the_pages_of_spes_accesses_too() {
        const LOAD: [u8; 20] = [0x49, 0, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x71, 0xe8, 3, 0, 0, 0, 0, 0, 0];
        let (events, mut queue, mut entries) = (EventSet::default(), Queue::default(), Vec::new());
        queue.expect_spe(Vec::new());
        queue.spe(&LOAD, None, Some((Pid(5), Tid(6))), CpuId(0));
        // In a trace of a whole CPU the record names no task.
        queue.spe(&LOAD, None, None, CpuId(0));
        queue.ready(true, &mut entries);
        let page = |entry: &Entry| sampled(&events, &queue, entry).map(|(pid, access)| (pid, access.address));
        let asked: Vec<Option<(Pid, u64)>> = entries.iter().map(page).collect();
        assert_eq!(asked, [Some((Pid(5), 0x1000)), None]);
    }

    #[test]
    fn a_process_that_joined_and_has_ended_leaves_no_events_behind() {
        let started = start();
        let scope = Scope::Processes(vec![Pid::of_child(&started)]);
        let request = EventRequest::page_faults(true, 16);
        let events = match EventSet::open(&[request], &scope, RingSize { bytes: 64 << 10 }) {
            Ok(events) => events,
            Err(error) => {
                end(started);
                return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
            }
        };
        let (folder, first, order_khz) = (tempfile::tempdir().unwrap(), ClockPair::now(), 1_000_000);
        let session = SessionStart { order_khz, clock_khz: order_khz, ..SessionStart::default() };
        let writer = ChunkWriter::create(&folder.path().join("t"), &session, WriterOptions::default()).unwrap();
        let clock = Clock { khz: order_khz, origin_cycles: first.order };
        let output = Output::new(SharedWriter::new(writer), clock, None);
        let (wake, totals) = (Wake::new([]).unwrap(), LiveTotals::default());
        let mut reader = Reader::new(Reading {
            events,
            wake: &wake,
            totals: &totals,
            news: None,
            samples: Samples::new(output, Tasks::new(TaskSource::default()), Places::default()),
            first,
            order_khz,
            asks_homes: false,
            asks_sizes: false,
            spe: None,
        });
        let count = reader.events.count();
        for _ in 0..3 {
            let joined = start();
            let pid = Pid::of_child(&joined);
            totals.join([pid]);
            reader.take_changes().unwrap();
            assert!(reader.events.count() > count, "it is recorded");
            end(joined);
            totals.leave([pid]);
            reader.take_changes().unwrap();
            assert_eq!(reader.events.count(), count, "its events are closed");
        }
        end(started);
    }
}
