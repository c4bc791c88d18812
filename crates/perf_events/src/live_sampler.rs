//! Samples of accesses as they arrive, for tools that watch a machine rather than record it: nothing is written or joined, and there are no call chains.
//!
//! The events are those of engine `pmu`, or (where there is no PMU that samples) of engine `fault`, at a rate that costs next to nothing. Each
//! sample is a [`Seen`]. What the hardware did not report stays unknown; losses are counted.

use std::path::Path;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_perf::MemoryAccess;
use numapilot_perf::Record;
use numapilot_perf::SideBand;
use numapilot_perf::abi::aux_flag;
use numapilot_perf::abi::is_kernel_address;
use numapilot_perf::abi::kind;
use numapilot_perf::spe;
use numapilot_perf::spe::SourceTable;

use crate::aux::owner_of;
use crate::aux::source_tables;
use crate::doubles::Doubles;
use crate::emulated;
use crate::error::EventsError;
use crate::event::EventRequest;
use crate::event_limit::allowed_rate;
use crate::homes::Homes;
use crate::open::EventSet;
use crate::open::RingSize;
use crate::open::Scope;
use crate::places::Answers;
use crate::places::Places;
use crate::places::is_memory;
use crate::pmu;
use crate::pmu::Pace;
use crate::pmu::PmuOptions;
use crate::probe;
use crate::ring::Records;

/// Bytes of a CPU's ring: some seconds at the rates below.
const RING_BYTES: usize = 256 << 10;
/// Samples per second and CPU; of the whole machine there are many CPUs.
const ACCESSES_HZ: u32 = 500;
const FAULTS_HZ: u32 = 5000;
const SYSTEM_HZ: u32 = 100;
/// Events that are asked at each look what they have lost; more of them are asked less often.
const ASKED_FOR_LOSSES: usize = 1000;
/// Pages whose node is asked for at one look.
const ASKED_MAX: usize = 4096;

/// What a live sampler samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory accesses, sampled by the processor.
    Accesses,
    /// Memory accesses, by a PMU that something in the machine plays (`NUMAPILOT_EMULATED_PMU`).
    Emulated,
    /// Page faults, by the kernel: first touches, and hinting faults where it balances NUMA.
    Faults,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Process id and thread id; `None`: unknown.
    pub task: Option<(Pid, Tid)>,
    /// Address accessed.
    pub address: u64,
    /// Node of the CPU.
    pub node: Option<NodeId>,
    /// Node of the page.
    pub home: Option<NodeId>,
    /// Whether memory answered (faults: the page is touched); `None`: unknown.
    pub is_memory: Option<bool>,
    /// Latency in core cycles.
    pub latency_cycles: Option<u32>,
    /// Accesses (faults) that it stands for.
    pub weight: u64,
}

/// A sample whose page's node is to be looked up.
struct Question {
    /// Index of the sample in the output.
    at: usize,
    pid: Pid,
}

/// Opened events; dropping it closes them.
#[derive(Debug)]
pub struct LiveSampler {
    /// What is sampled.
    pub kind: Kind,
    /// Notes to show with the samples.
    pub notes: Vec<String>,
    /// Samples that found no room so far, and records that could not be read. Of many events, what the kernel counted up to some looks ago.
    pub lost: u64,
    looks: usize,
    set: EventSet,
    doubles: Doubles,
    has_aux: bool,
    /// What each event's samples are.
    places: Places,
    asks: Option<Homes>,
    spe: Vec<(u64, SourceTable)>,
    bytes: Vec<u8>,
    aux: Vec<u8>,
    /// CPUs whose AUX areas were full at the last look.
    full: Vec<CpuId>,
}

impl LiveSampler {
    /// Opens the best there is for a scope, and turns it on ([`Scope::Children`]: at their `exec`). `machine`: this one.
    ///
    /// # Errors
    /// The kernel refuses page faults too, with the reason and the remedy; or there is no such process.
    pub fn open(scope: &Scope, machine: &Machine) -> Result<LiveSampler, EventsError> {
        match LiveSampler::of_accesses(scope, machine) {
            Ok(Some(live_sampler)) => Ok(live_sampler),
            // `numapilot doctor` explains why the processor's samples were refused.
            Ok(None) | Err(_) => LiveSampler::faults(scope, machine).map(|live_sampler| live_sampler.on(scope)),
        }
    }

    /// Memory accesses only; `None` where the processor does not sample them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn of_accesses(scope: &Scope, machine: &Machine) -> Result<Option<LiveSampler>, EventsError> {
        if let Some(folder) = emulated::folder() {
            return Ok(Some(LiveSampler::emulated(scope, machine, &folder)?.on(scope)));
        }
        let pmus = numapilot_perf::pmu::read(Path::new("/"))?;
        let is_system = *scope == Scope::System;
        let wanted = PmuOptions {
            pace: Pace::PerSecond(allowed_rate(if is_system { SYSTEM_HZ } else { ACCESSES_HZ })),
            least_latency: 0,
            l3_misses_only: false,
            max_stack: 0,
            is_system,
        };
        let plan = pmu::plan(&pmus, &probe::samplers(&pmus), &wanted)?;
        if plan.requests.is_empty() {
            return Ok(None);
        }
        let set = EventSet::open(&plan.requests, scope, RingSize { bytes: RING_BYTES })?;
        Ok(Some(LiveSampler::new(Kind::Accesses, set, &plan.requests, machine, plan.notes).on(scope)))
    }

    fn on(self, scope: &Scope) -> LiveSampler {
        if *scope != Scope::Children {
            self.set.enable();
        }
        self
    }

    fn emulated(scope: &Scope, machine: &Machine, folder: &Path) -> Result<LiveSampler, EventsError> {
        let mut set = EventSet::open(&[], scope, RingSize { bytes: RING_BYTES })?;
        let request = emulated::add(&mut set, folder)?;
        Ok(LiveSampler::new(Kind::Emulated, set, &[request], machine, vec![emulated::note()]))
    }

    /// Page faults: those of the kernel on behalf of the programs too, where this user may see them.
    fn faults(scope: &Scope, machine: &Machine) -> Result<LiveSampler, EventsError> {
        let rate_hz = allowed_rate(if *scope == Scope::System { SYSTEM_HZ } else { FAULTS_HZ });
        let request = |user_only| EventRequest::some_page_faults(user_only, rate_hz);
        let faults = EventSet::open_faults(request, scope, RingSize { bytes: RING_BYTES })?;
        Ok(LiveSampler::new(Kind::Faults, faults.set, &[faults.request], machine, Vec::new()))
    }

    fn new(kind: Kind, set: EventSet, requests: &[EventRequest], machine: &Machine, notes: Vec<String>) -> LiveSampler {
        let places = Places::of_requests(machine, requests);
        let has_aux = requests.iter().any(|request| request.aux_bytes > 0);
        let cpus = set.rings.iter().map(|ring| ring.cpu);
        let spe = if has_aux { source_tables(Path::new("/"), cpus) } else { Vec::new() };
        let asks = places.only_node().is_none().then(Homes::default);
        LiveSampler {
            kind,
            notes,
            lost: 0,
            looks: 0,
            has_aux,
            set,
            doubles: Doubles::default(),
            places,
            asks,
            spe,
            bytes: Vec::new(),
            aux: Vec::new(),
            full: Vec::new(),
        }
    }

    /// Samples a process too that joined without having inherited the events. False: it has ended.
    ///
    /// # Errors
    /// The kernel refuses for another reason than the user's rights ([`LiveSampler::refused`]).
    pub fn add(&mut self, pid: Pid) -> Result<bool, EventsError> {
        self.set.add(pid)
    }

    /// Ends the sampling of processes that were added and have ended, with all that inherited their events.
    pub fn leave(&mut self, pids: &[Pid]) {
        self.set.leave(pids);
    }

    /// Processes of the scope that this user may not observe, by process id.
    #[must_use]
    pub fn refused(&self) -> &[Pid] {
        &self.set.refused
    }

    /// Has [`LiveSampler::follow_cpus`] see CPUs that were offline, where the events are those of whole CPUs.
    pub fn watch_cpus(&mut self) {
        // An emulated PMU's rings are of no CPU's events.
        if self.kind != Kind::Emulated {
            self.set.watch_cpus();
        }
    }

    /// Opens the events of CPUs anew that were offline and are online again; to be called right after [`LiveSampler::look`]. As [`EventSet::follow_cpus`].
    pub fn follow_cpus(&mut self) -> Vec<(CpuId, bool)> {
        self.set.follow_cpus()
    }

    /// Whether samples have process and thread ids.
    #[must_use]
    pub fn names_processes(&self) -> bool {
        !self.has_aux
    }

    /// Appends what came since the last look.
    pub fn look(&mut self, out: &mut Vec<Seen>) {
        let mut unknown = Vec::new();
        let (mut told_lost, mut full) = (0, Vec::new());
        let mut rings = std::mem::take(&mut self.set.rings);
        for ring in &mut rings {
            self.bytes.clear();
            let bad = ring.ring.take(&mut self.bytes);
            let bytes = std::mem::take(&mut self.bytes);
            let mut records = Records::new(&bytes);
            for (header, body) in records.by_ref() {
                match self.set.session.decode(header, body, 0) {
                    Ok(Record::Sample(event, sample)) => {
                        if self.doubles.is_double(&self.set, event, &sample) {
                            continue;
                        }
                        let fact = self.places.events.get(event).copied().unwrap_or_default();
                        let access =
                            if fact.is_helper { None } else { fact.access(&self.set.session.events()[event], &sample) };
                        if let Some(access) = access {
                            self.put(&access, fact.is_fault, out, &mut unknown);
                        }
                    }
                    Ok(Record::SideBand(SideBand::Exit(change), _)) => self.set.thread_ended(change.tid),
                    Ok(Record::SideBand(SideBand::Lost { count, .. } | SideBand::LostSamples { count }, _)) => {
                        told_lost += count;
                    }
                    Ok(Record::SideBand(SideBand::Aux { offset, size, flags }, id)) if header.kind == kind::AUX => {
                        self.aux.clear();
                        ring.ring.read_aux(offset, size, &mut self.aux);
                        // Turned on again, the event counts in the thread that started the program, too.
                        let owner = owner_of(self.set.of_cpus, id.pid_tid);
                        if owner.is_none_or(|(pid, _)| pid != Pid::own()) {
                            self.put_spe(ring.cpu, out, &mut unknown);
                        }
                        if flags & aux_flag::TRUNCATED != 0 {
                            full.push(ring.cpu);
                        }
                    }
                    Ok(_) => {}
                    Err(_) => told_lost += 1,
                }
            }
            told_lost += u64::from(bad > 0) + u64::from(records.rest() > 0);
            if ring.ring.give_back_untold().is_some() {
                full.push(ring.cpu);
            }
            self.bytes = bytes;
        }
        self.set.rings = rings;
        // Those of the last look once more: another task's event may have found an area full just before it was read.
        let again = std::mem::replace(&mut self.full, full);
        again.iter().chain(&self.full).for_each(|&cpu| self.set.restart_aux(cpu));
        self.lost += told_lost;
        // A system call for each. (Kernels before 6.0 keep no count of their own.)
        if self.looks.is_multiple_of(1 + self.set.count() / ASKED_FOR_LOSSES) {
            self.lost = self.lost.max(self.set.lost());
        }
        self.looks += 1;
        self.ask(out, &unknown);
    }

    fn put(&self, access: &MemoryAccess<'_>, is_fault: bool, out: &mut Vec<Seen>, unknown: &mut Vec<Question>) {
        if is_kernel_address(access.address) {
            return;
        }
        let task = access.pid.zip(access.tid).filter(|(pid, _)| *pid != Pid(0));
        let node = access.cpu.and_then(|cpu| self.places.node_of_cpu(cpu));
        let by_address = access.physical_address.and_then(|address| self.places.node_of_physical(address));
        let home = by_address.or_else(|| self.places.only_node());
        if let (None, Some((pid, _))) = (home, task)
            && unknown.len() < ASKED_MAX
        {
            unknown.push(Question { at: out.len(), pid });
        }
        let is_memory = if is_fault { Some(true) } else { is_memory(access.level) };
        out.push(Seen {
            task,
            address: access.address,
            node,
            home: home.or_else(|| self.places.node_by_distance(access.level, access.distance, node)),
            is_memory,
            latency_cycles: access.latency_cycles,
            weight: access.period.unwrap_or(1).max(1),
        });
    }

    /// The accesses in a piece of an SPE trace. Its packets name no process: that stays unknown.
    fn put_spe(&self, cpu: CpuId, out: &mut Vec<Seen>, unknown: &mut Vec<Question>) {
        let table = SourceTable::of_cpu(&self.spe, cpu);
        for record in spe::Records::new(&self.aux) {
            let Some(access) = record.access(table) else { continue };
            let access = MemoryAccess { cpu: Some(cpu), period: access.period.or(self.places.spe_period), ..access };
            self.put(&access, false, out, unknown);
        }
    }

    /// Looks up the nodes of pages whose node the samples do not give.
    fn ask(&mut self, seen: &mut [Seen], unknown: &[Question]) {
        let Some(homes) = &mut self.asks else { return };
        let mut answers = Answers::default();
        unknown.iter().for_each(|question| homes.want(question.pid, seen[question.at].address));
        homes.ask(&mut answers);
        for question in unknown {
            let one = &mut seen[question.at];
            one.home = answers.get(&(question.pid, PageNumber::of(one.address))).copied().or(one.home);
        }
    }
}
