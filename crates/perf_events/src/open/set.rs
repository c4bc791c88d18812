//! The opened events of a recording: turning them on and off, what they lost, and the events of processes that came later and have ended.

use std::collections::HashMap;
use std::collections::HashSet;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_perf::EventAttr;
use numapilot_perf::Sample;
use numapilot_perf::Session;

use super::joined::Joined;
use super::memory::Memory;
use super::multiplexed::Multiplexed;
use super::multiplexed::Running;
use super::multiplexed::multiplexed;
use super::pulses::Pulses;
use crate::cpus::came_online;
use crate::cpus::online_cpus;
use crate::event::EventRequest;
use crate::ring::Ring;
use crate::syscall::IOC_DISABLE;
use crate::syscall::IOC_ENABLE;
use crate::syscall::event_id;
use crate::syscall::figures;
use crate::syscall::lost_by;
use crate::syscall::order;

/// Time after which no record of a closed event waits any more: rings are read many times a second, and what was read waits for some seconds at most.
const RECORDS_WAIT: Duration = Duration::from_secs(60);

/// What the id in a record says about its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of the request.
    pub request: usize,
    /// The CPU.
    pub cpu: CpuId,
    /// Task for which it was opened; `None`: not for a single task.
    pub task: Option<Tid>,
}

/// The ring of one CPU.
#[derive(Debug)]
pub struct CpuRing {
    /// The CPU.
    pub cpu: CpuId,
    /// The ring's mapping.
    pub ring: Ring,
    /// Descriptor that becomes readable when the ring has new records.
    pub fd: OwnedFd,
}

/// The opened events of a recording.
#[derive(Debug, Default)]
pub struct EventSet {
    /// One ring per CPU.
    pub rings: Vec<CpuRing>,
    /// Decoder of the rings' records.
    pub session: Session,
    /// Request and CPU of each event, by its id.
    pub origins: HashMap<u64, Origin>,
    /// Tasks that have events of their own ([`super::Scope::Processes`]).
    pub tasks: HashSet<Tid>,
    /// What is worth telling, in sentences.
    pub notes: Vec<String>,
    /// Processes of the scope that this user may not observe, by process id.
    pub refused: Vec<Pid>,
    /// The events are those of whole CPUs, not of tasks.
    pub of_cpus: bool,
    /// Descriptors (of `rings`, `others` and `joined`) of the side band's events.
    pub(super) side_band: Vec<RawFd>,
    /// CPUs and descriptors (of `rings`, `others` and `joined`) of the events that have AUX areas or write to another one's.
    pub(super) with_aux: Vec<(CpuId, RawFd)>,
    pub(super) others: Vec<OwnedFd>,
    pub(super) joined: Joined,
    /// Ids of events that were closed, and when: records of them may wait.
    pub(super) closed: VecDeque<(Instant, Vec<u64>)>,
    pub(super) recipe: Option<Recipe>,
    /// Of events of whole CPUs, where somebody asked for them ([`EventSet::watch_cpus`]).
    pub(super) pulses: Pulses,
    /// For how long each event had counted when all of them were on ([`EventSet::all_on`]).
    pub(super) before: Running,
}

/// How events are opened, for processes that join later.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub requests: Vec<EventRequest>,
    pub attrs: Vec<EventAttr>,
    pub memory: Memory,
    pub cpus: Vec<CpuId>,
}

impl EventSet {
    /// Turns the side band on, and nothing else.
    pub fn enable_side_band(&self) {
        self.side_band.iter().for_each(|fd| order(*fd, IOC_ENABLE));
    }

    /// Turns every event on.
    pub fn enable(&self) {
        self.all(IOC_ENABLE);
    }

    /// Notes that all events are on from now on, where the side band was on before: what [`EventSet::multiplexed`] compares begins here.
    pub fn all_on(&mut self) {
        self.before = self.running();
    }

    /// Events that counted for a part of the time only, because others had the counters for the rest.
    #[must_use]
    pub fn multiplexed(&self) -> Vec<Multiplexed> {
        let requests = self.recipe.as_ref().map(|recipe| &recipe.requests[..]).unwrap_or_default();
        multiplexed(requests, &self.before, &self.running())
    }

    fn running(&self) -> Running {
        let mut running = Running::new();
        for figures in self.fds().filter_map(figures) {
            if let Some(origin) = self.origins.get(&figures.id) {
                *running.entry((origin.request, origin.cpu)).or_default() += figures.running_ns;
            }
        }
        running
    }

    /// Turns every event off, also those that tasks inherited.
    pub fn disable(&self) {
        self.all(IOC_DISABLE);
    }

    /// Turns the events on again that the kernel has turned off on a CPU because their AUX area was full (`perf_aux_output_begin`): it never does that by
    /// itself. The area must have been read before.
    pub fn restart_aux(&self, cpu: CpuId) {
        let of_cpu = self.with_aux.iter().filter(|(of, _)| *of == cpu);
        of_cpu.for_each(|(_, fd)| order(*fd, IOC_ENABLE));
    }

    /// Records that found no room in a ring, as the events' own counts say (since Linux 6.0; 0 before). Records of losses say the same, but only once there
    /// is room for them: what is lost last has none.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.fds().filter_map(lost_by).fold(self.joined.lost, u64::saturating_add)
    }

    /// Closes the events of processes that were [added](EventSet::add) and have ended, with all that inherited their events. What their rings hold stays.
    pub fn leave(&mut self, pids: &[Pid]) {
        let closed = self.joined.take(pids);
        self.forget(closed);
    }

    /// Closes the events of a CPU, and keeps what they lost.
    pub(super) fn close_cpu(&mut self, cpu: CpuId) {
        let origins = &self.origins;
        let is_of_it = |fd: &OwnedFd| {
            let origin = event_id(fd).ok().and_then(|id| origins.get(&id));
            origin.is_some_and(|origin| origin.cpu == cpu)
        };
        let (mut closed, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.others).into_iter().partition(is_of_it);
        let rings = std::mem::take(&mut self.rings).into_iter();
        let (gone, rings): (Vec<_>, Vec<_>) = rings.partition(|ring| ring.cpu == cpu && is_of_it(&ring.fd));
        closed.extend(gone.into_iter().map(|ring| ring.fd));
        (self.others, self.rings) = (others, rings);
        self.joined.lost = closed.iter().filter_map(lost_by).fold(self.joined.lost, u64::saturating_add);
        // What is opened in their place begins at 0.
        self.before.retain(|(_, of), _| *of != cpu);
        self.forget(closed);
    }

    /// Closes these events, whose last records may wait.
    fn forget(&mut self, closed: Vec<OwnedFd>) {
        let is_open = |fd: RawFd| closed.iter().all(|closed| closed.as_raw_fd() != fd);
        self.side_band.retain(|fd| is_open(*fd));
        self.with_aux.retain(|(_, fd)| is_open(*fd));
        let ids: Vec<u64> = closed.iter().filter_map(|fd| event_id(fd).ok()).collect();
        if !ids.is_empty() {
            self.closed.push_back((Instant::now(), ids));
        }
        self.forget_closed(RECORDS_WAIT);
    }

    /// Forgets the ids of events that were closed so long ago: of processes that come and go there is no end.
    pub(super) fn forget_closed(&mut self, age: Duration) {
        while self.closed.front().is_some_and(|(then, _)| then.elapsed() >= age) {
            for id in self.closed.pop_front().into_iter().flat_map(|(_, ids)| ids) {
                self.origins.remove(&id);
                self.session.remove_id(id);
            }
        }
    }

    /// Descriptors of all events.
    fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.rings.iter().map(|ring| &ring.fd).chain(&self.others).chain(self.joined.fds())
    }

    /// A thread has ended: what has its number from now on has no events of its own, but those that it inherited.
    pub fn thread_ended(&mut self, tid: Tid) {
        self.tasks.remove(&tid);
    }

    /// CPUs that have come online since the events were opened, and have none.
    #[must_use]
    pub fn unobserved_cpus(&self) -> Vec<CpuId> {
        let known = self.recipe.as_ref().map(|recipe| &recipe.cpus[..]);
        known.zip(online_cpus().ok()).map_or_else(Vec::new, |(known, online)| came_online(known, &online))
    }

    /// Opens what [`EventSet::returned_cpus`] and [`EventSet::follow_cpus`] need, where the events are those of whole CPUs: one more for each CPU, which
    /// counts nothing.
    pub fn watch_cpus(&mut self) {
        if let Some(recipe) = self.recipe.as_ref().filter(|_| self.of_cpus) {
            self.pulses = Pulses::open(&recipe.cpus);
        }
    }

    /// CPUs that have been offline since [`EventSet::watch_cpus`], and are online again: their events have ended. Takes a few milliseconds, or a
    /// tenth of a second where there are some.
    #[must_use]
    pub fn returned_cpus(&self) -> Vec<CpuId> {
        online_cpus().map_or_else(|_| Vec::new(), |online| self.pulses.ended(&online))
    }

    /// Opens the events of CPUs anew that were offline and are online again, about once a second; to be called right after the rings were read, because what
    /// they hold is lost. Returns these CPUs, and whether that was possible; where it was not, it is tried again. None without [`EventSet::watch_cpus`].
    pub fn follow_cpus(&mut self) -> Vec<(CpuId, bool)> {
        let stopped = self.pulses.stopped(Instant::now());
        if stopped.is_empty() {
            return Vec::new();
        }
        let online = online_cpus().unwrap_or_default();
        let back = stopped.into_iter().filter(|cpu| online.contains(cpu));
        back.map(|cpu| (cpu, self.reopen(cpu).is_ok())).collect()
    }

    /// Number of events, each of which is asked by [`EventSet::lost`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.rings.len() + self.others.len() + self.joined.fds().count()
    }

    /// Whether a sample's id is that of an event that its thread inherits, although it has events of its own: both sample it (`Doubles`).
    pub(crate) fn is_inherited_beside_own(&self, sample: &Sample<'_>) -> bool {
        let owner = sample.identifier.and_then(|id| self.origins.get(&id)).and_then(|origin| origin.task);
        let tid = sample.pid_tid.map(|(_, tid)| tid);
        owner.zip(tid).is_some_and(|(owner, tid)| owner != tid && self.tasks.contains(&tid))
    }

    fn all(&self, request: libc::c_ulong) {
        self.fds().for_each(|fd| order(fd.as_raw_fd(), request));
    }

    /// Number of the caller's request (as given to [`EventSet::open`]) of an event of [`EventSet::session`]; `None` for the side band.
    #[must_use]
    pub fn request_of(event: usize) -> Option<usize> {
        event.checked_sub(1)
    }
}
