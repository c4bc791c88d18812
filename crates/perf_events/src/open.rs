//! `perf_event_open` for a whole recording: every requested event on every CPU, for the tasks of a scope, with one ring per CPU that all of them
//! write to.
//!
//! A program that is started here inherits the events from the thread that starts it (they are made off, and `exec` turns them on), so
//! nothing of it is missed. Tasks that run already get an event each; what they start inherits it. System-wide events need no tasks.

use std::collections::HashMap;
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_perf::Endian;
use numapilot_perf::EventAttr;
use numapilot_perf::Sample;
use numapilot_perf::Session;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::read_format;

use crate::cpus::came_online;
use crate::cpus::online_cpus;
use crate::error::EventsError;
use crate::event::EventRequest;
use crate::event_limit::TooMany;
use crate::event_limit::cost_note;
pub use crate::event_limit::raise_descriptor_limit;
use crate::locked_memory::Limits;
use crate::locked_memory::NoRoom;
use crate::locked_memory::Sizes;
use crate::rights;
use crate::rights::explain;
use crate::ring::Ring;
use crate::syscall::IOC_DISABLE;
use crate::syscall::IOC_ENABLE;
use crate::syscall::event_id;
use crate::syscall::is_denied;
use crate::syscall::is_there;
use crate::syscall::lost_by;
use crate::syscall::open_event;
use crate::syscall::open_or_less;
use crate::syscall::order;
use crate::syscall::redirect;

mod joined;

use joined::Joined;

/// Index of the side band among the requests.
const SIDE_BAND: usize = 0;
/// Rounds of looking for threads that were born while others were being opened.
const SCAN_ROUNDS: usize = 16;

/// The processes or CPUs whose events are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What the calling thread starts from now on, from its `exec` on.
    Children,
    /// These processes with all their threads, and what they start from now on.
    Processes(Vec<Pid>),
    /// Everything on every CPU.
    System,
}

impl Scope {
    /// The right that the scope needs.
    fn rights(&self) -> rights::Scope {
        match self {
            Scope::Children => rights::Scope::Own,
            Scope::Processes(_) => rights::Scope::Running,
            Scope::System => rights::Scope::System,
        }
    }
}

/// What the id in a record says about its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of the request.
    pub request: usize,
    /// The CPU.
    pub cpu: u32,
    /// Task for which it was opened; `None`: not for a single task.
    pub task: Option<Tid>,
}

/// The ring of one CPU.
#[derive(Debug)]
pub struct CpuRing {
    /// The CPU.
    pub cpu: u32,
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
    /// Tasks that have events of their own ([`Scope::Processes`]).
    pub tasks: HashSet<Tid>,
    /// What is worth telling, in sentences.
    pub notes: Vec<String>,
    /// Processes of the scope that this user may not observe, by process id.
    pub refused: Vec<Pid>,
    /// The events are those of whole CPUs, not of tasks.
    pub of_cpus: bool,
    /// Descriptors (of `rings`, `others` and `joined`) of the side band's events.
    side_band: Vec<RawFd>,
    /// CPUs and descriptors (of `rings`, `others` and `joined`) of the events that have AUX areas or write to another one's.
    with_aux: Vec<(u32, RawFd)>,
    others: Vec<OwnedFd>,
    joined: Joined,
    recipe: Option<Recipe>,
}

/// How events are opened, for processes that join later.
#[derive(Clone, Debug)]
struct Recipe {
    requests: Vec<EventRequest>,
    attrs: Vec<EventAttr>,
    memory: Memory,
    cpus: Vec<u32>,
}

/// Memory of the rings.
#[derive(Clone, Copy, Debug)]
struct Memory {
    limits: Limits,
    rings: usize,
    asked: Sizes,
    /// As much of that as the limits leave room for.
    sizes: Sizes,
}

impl Memory {
    fn new(requests: &[EventRequest], cpus: &[u32], size: RingSize) -> Memory {
        let has_aux = |cpu: &&u32| {
            let is_there = |request: &EventRequest| request.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
            requests.iter().any(|request| request.aux_bytes > 0 && is_there(request))
        };
        let (rings, areas) = (cpus.len(), cpus.iter().filter(has_aux).count());
        let limits = Limits::here(rings);
        let aux = requests.iter().map(|request| request.aux_bytes).max().unwrap_or(0);
        let asked = Sizes { data: size.bytes, aux };
        Memory { limits, rings, asked, sizes: asked.within(&limits, rings, areas) }
    }

    /// Requests with AUX areas of the size that there is room for.
    fn fit(self, mut requests: Vec<EventRequest>) -> Vec<EventRequest> {
        for request in requests.iter_mut().filter(|request| request.aux_bytes > self.sizes.aux) {
            request.aux_bytes = self.sizes.aux;
            request.aux_watermark = (self.sizes.aux / 4) as u32;
        }
        requests
    }

    /// Says if rings are smaller than asked for.
    fn note(self) -> Option<String> {
        let Memory { asked, sizes, .. } = self;
        let what = |what: &str, now: usize, asked: usize| {
            (now < asked).then(|| format!("{what} have {} KiB per CPU instead of {} KiB", now >> 10, asked >> 10))
        };
        let smaller: Vec<String> = [what("rings", sizes.data, asked.data), what("AUX areas", sizes.aux, asked.aux)]
            .into_iter()
            .flatten()
            .collect();
        (!smaller.is_empty()).then(|| {
            format!(
                "{}, because the limit on locked memory does not allow more (kernel.perf_event_mlock_kb, `ulimit -l`)",
                smaller.join(" and ")
            )
        })
    }
}

/// The page faults of a scope, opened.
#[derive(Debug)]
pub struct OpenedFaults {
    /// The event.
    pub set: EventSet,
    /// As it was opened.
    pub request: EventRequest,
    /// Faults that the kernel takes on the programs' behalf are left out, because this user may not see them.
    pub user_only: bool,
}

/// How much memory the rings get.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingSize {
    /// Bytes of a CPU's ring, a power of two of pages; less where the system's limit on locked memory asks for it: all rings then get the same share of it.
    pub bytes: usize,
}

impl EventSet {
    /// Opens `requests`, and the side band beside them. They are off; [`Scope::Children`] turns them on by itself, the others wait for
    /// [`EventSet::enable`].
    ///
    /// # Errors
    /// The system refuses, with the reason and the remedy; or there is no task left to look at.
    pub fn open(requests: &[EventRequest], scope: &Scope, size: RingSize) -> Result<EventSet, EventsError> {
        EventSet::open_beside(0, requests, scope, size)
    }

    /// As [`EventSet::open`], beside `so_far` events of other sets ([`EventSet::count`]), which count against the limit on them.
    ///
    /// # Errors
    /// As [`EventSet::open`].
    pub fn open_beside(
        so_far: usize,
        requests: &[EventRequest],
        scope: &Scope,
        size: RingSize,
    ) -> Result<EventSet, EventsError> {
        let mut all = vec![EventRequest::side_band()];
        all.extend_from_slice(requests);
        let cpus = online_cpus()?;
        raise_descriptor_limit();
        let mut memory = Memory::new(&all, &cpus, size);
        loop {
            match Opening::new(memory.fit(all.clone()), scope, memory, cpus.clone()).all(so_far) {
                // Other processes of this user have rings too: how much they take, nobody says.
                Err(error) if is_no_room(&error) => match memory.sizes.less(memory.limits.page) {
                    Some(less) => memory.sizes = less,
                    None => return Err(error),
                },
                opened => return opened,
            }
        }
    }

    /// Opens the events of a process that joined the scope without having inherited them, and turns them on. False: it has ended. A process that this user may
    /// not observe is added to [`EventSet::refused`].
    ///
    /// # Errors
    /// The system refuses for another reason, such as too few descriptors.
    pub fn add(&mut self, pid: Pid) -> Result<bool, EventsError> {
        let scope = Scope::Processes(vec![pid]);
        let (rings, others) = (self.rings.len(), self.others.len());
        let Some(Recipe { requests, attrs, memory, cpus }) = self.recipe.take() else { return Ok(false) };
        let set = std::mem::take(self);
        let mut opening = Opening {
            requests,
            attrs,
            scope: &scope,
            memory,
            cpus,
            beside: 0,
            is_joining: true,
            may_inherit: true,
            set,
        };
        let opened = opening.process(pid);
        let result = match opened {
            Ok(opened) => Ok(opened),
            Err((_, error)) if is_denied(&error) => {
                opening.set.refused.push(pid);
                Ok(true)
            }
            Err((request, error)) => Err(explain(&opening.requests[request].name, scope.rights(), error)),
        };
        *self = opening.finish();
        let fresh = self.rings[rings..].iter().map(|ring| &ring.fd).chain(&self.others[others..]);
        fresh.for_each(|fd| order(fd.as_raw_fd(), IOC_ENABLE));
        self.joined.keep(pid, self.others.split_off(others));
        result
    }

    /// Opens one event of page faults: those that the kernel takes on the programs' behalf too, where this user may see them. `request`: the event, of user
    /// code only or not.
    ///
    /// # Errors
    /// As [`EventSet::open`].
    pub fn open_faults(
        request: impl Fn(bool) -> EventRequest,
        scope: &Scope,
        size: RingSize,
    ) -> Result<OpenedFaults, EventsError> {
        let open = |user_only| {
            let request = request(user_only);
            let set = EventSet::open(std::slice::from_ref(&request), scope, size)?;
            Ok(OpenedFaults { set, request, user_only })
        };
        match open(false) {
            Err(EventsError::Event { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM)) && *scope != Scope::System =>
            {
                open(true)
            }
            other => other,
        }
    }

    /// Turns the side band on, and nothing else.
    pub fn enable_side_band(&self) {
        self.side_band.iter().for_each(|fd| order(*fd, IOC_ENABLE));
    }

    /// Turns every event on.
    pub fn enable(&self) {
        self.all(IOC_ENABLE);
    }

    /// Turns every event off, also those that tasks inherited.
    pub fn disable(&self) {
        self.all(IOC_DISABLE);
    }

    /// Turns the events on again that the kernel has turned off on a CPU because their AUX area was full (`perf_aux_output_begin`): it never does that by
    /// itself. The area must have been read before.
    pub fn restart_aux(&self, cpu: u32) {
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
        let is_open = |fd: RawFd| closed.iter().all(|closed| closed.as_raw_fd() != fd);
        self.side_band.retain(|fd| is_open(*fd));
        self.with_aux.retain(|(_, fd)| is_open(*fd));
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
    pub fn unobserved_cpus(&self) -> Vec<u32> {
        let known = self.recipe.as_ref().map(|recipe| &recipe.cpus[..]);
        known.zip(online_cpus().ok()).map_or_else(Vec::new, |(known, online)| came_online(known, &online))
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

struct Opening<'a> {
    requests: Vec<EventRequest>,
    /// As opened, which the kernel's age may have made poorer.
    attrs: Vec<EventAttr>,
    scope: &'a Scope,
    memory: Memory,
    cpus: Vec<u32>,
    /// Number of events of other sets.
    beside: usize,
    /// The set is that of a recording under way.
    is_joining: bool,
    /// The threads at hand may have inherited events of the set: others that may have started them have some.
    may_inherit: bool,
    set: EventSet,
}

impl<'a> Opening<'a> {
    fn new(requests: Vec<EventRequest>, scope: &'a Scope, memory: Memory, cpus: Vec<u32>) -> Opening<'a> {
        let attrs: Vec<EventAttr> = requests.iter().map(|request| attr_for(request, scope)).collect();
        let (is_joining, may_inherit, set) = (false, false, EventSet::default());
        let mut opening = Opening { requests, attrs, scope, memory, cpus, beside: 0, is_joining, may_inherit, set };
        opening.set.of_cpus = *scope == Scope::System;
        opening.describe();
        opening
    }

    /// Opens everything, beside as many events of other sets.
    fn all(mut self, beside: usize) -> Result<EventSet, EventsError> {
        self.beside = beside;
        match self.scope {
            Scope::Children => self.explained(|opening| opening.task(0, None))?,
            Scope::System => self.explained(|opening| opening.task(-1, None))?,
            Scope::Processes(pids) => self.processes(pids)?,
        };
        self.set.notes.extend(self.memory.note());
        if *self.scope != Scope::System {
            self.set.notes.extend(cost_note(self.events_of_a_thread()));
        }
        Ok(self.finish())
    }

    /// The opened events, with what is needed to open more.
    fn finish(self) -> EventSet {
        let Opening { requests, attrs, memory, cpus, set, .. } = self;
        EventSet { recipe: Some(Recipe { requests, attrs, memory, cpus }), ..set }
    }

    /// Does something that may be refused, and explains why it was.
    fn explained<T>(
        &mut self,
        what: impl FnOnce(&mut Self) -> Result<T, (usize, io::Error)>,
    ) -> Result<T, EventsError> {
        what(self).map_err(|(request, error)| explain(&self.requests[request].name, self.scope.rights(), error))
    }

    /// Every thread of `pids`. Of several processes, those that have ended are left out, and those that this user may not observe are listed.
    fn processes(&mut self, pids: &[Pid]) -> Result<bool, EventsError> {
        let mut denied = None;
        for &pid in pids {
            match self.process(pid) {
                Ok(_) => {}
                Err((request, error)) if is_denied(&error) => {
                    self.set.refused.push(pid);
                    denied.get_or_insert((request, error));
                }
                Err(why) => return self.explained(|_| Err(why)),
            }
        }
        match (self.set.tasks.is_empty(), denied) {
            (false, _) => Ok(true),
            (true, Some(why)) => self.explained(|_| Err(why)),
            (true, None) => Err(EventsError::NoProcess { pid: pids.first().copied().unwrap_or_default() }),
        }
    }

    /// Every thread of a process; false: it has ended. Threads may be born meanwhile: those of threads that have their events inherit them, others are found by
    /// another look.
    fn process(&mut self, pid: Pid) -> Result<bool, (usize, io::Error)> {
        let mut is_any = false;
        for round in 0..SCAN_ROUNDS {
            self.may_inherit = self.is_joining || round > 0;
            let threads = numapilot_kernel::task::threads_of(pid).unwrap_or_default();
            let fresh: Vec<Tid> = threads.into_iter().filter(|tid| !self.set.tasks.contains(tid)).collect();
            TooMany::check(self.beside + self.set.count(), fresh.len(), self.events_of_a_thread())
                .map_err(|error| (SIDE_BAND, error))?;
            let mut opened = 0;
            for tid in fresh {
                // One that ended between the look and the call is no error.
                opened += usize::from(self.task(i32::try_from(tid.0).unwrap_or(i32::MAX), Some(tid))?);
            }
            is_any |= opened > 0;
            if opened == 0 {
                break;
            }
        }
        Ok(is_any)
    }

    /// One of each kind for each CPU that has it.
    fn events_of_a_thread(&self) -> usize {
        let on = |cpus: &Option<Vec<u32>>| cpus.as_ref().map_or(self.cpus.len(), Vec::len);
        self.requests.iter().map(|request| on(&request.cpus)).sum()
    }

    /// Every event on every CPU for one task (as `perf_event_open` counts them: 0 this thread, -1 all). False where the task is gone. An error names the
    /// request that it was about.
    fn task(&mut self, pid: libc::pid_t, task: Option<Tid>) -> Result<bool, (usize, io::Error)> {
        let mut offline = 0;
        for cpu in self.cpus.clone() {
            match self.cpu(pid, cpu, task) {
                Ok(()) => {}
                Err((_, error)) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
                // Taken offline since the list was read.
                Err((_, error)) if error.raw_os_error() == Some(libc::ENODEV) && self.cpus.len() > offline + 1 => {
                    offline += 1;
                }
                Err(why) => return Err(why),
            }
        }
        self.set.tasks.extend(task);
        Ok(true)
    }

    /// Every event on one CPU for one task. An error names the request that it was about.
    fn cpu(&mut self, pid: libc::pid_t, cpu: u32, task: Option<Tid>) -> Result<(), (usize, io::Error)> {
        let mut opened: Vec<(usize, OwnedFd)> = Vec::new();
        for request in 0..self.requests.len() {
            if self.requests[request].cpus.as_ref().is_some_and(|cpus| !cpus.contains(&cpu)) {
                continue;
            }
            let leader = opened.last().filter(|_| self.requests[request].joins_group).map(|(before, _)| *before);
            let leader = leader.and_then(|before| opened.iter().find(|(at, _)| *at == self.leader_of(before)));
            let leader = leader.map_or(-1, |(_, fd)| fd.as_raw_fd());
            match self.one(request, pid, cpu, leader) {
                Ok(fd) => opened.push((request, fd)),
                Err(error) if is_there(&error, self.requests[request].aux_bytes, self.may_inherit) => {}
                Err(error) => return Err((request, error)),
            }
        }
        // An AUX area belongs to its own event's ring, which the others then write to.
        let owner = opened.iter().position(|(at, _)| self.requests[*at].aux_bytes > 0).unwrap_or(0);
        if owner < opened.len() {
            opened.swap(0, owner);
        }
        for (request, fd) in opened {
            let fail = |error| (request, error);
            let id = event_id(&fd).map_err(fail)?;
            self.set.session.add_id(id, request);
            self.set.origins.insert(id, Origin { request, cpu, task });
            if request == SIDE_BAND {
                self.set.side_band.push(fd.as_raw_fd());
            }
            if self.requests[request].aux_bytes > 0 {
                self.set.with_aux.push((cpu, fd.as_raw_fd()));
            }
            match self.set.rings.iter().find(|ring| ring.cpu == cpu) {
                Some(ring) => {
                    redirect(&fd, &ring.fd).map_err(fail)?;
                    self.set.others.push(fd);
                }
                None => {
                    let Memory { limits, rings, asked, sizes } = self.memory;
                    let no_room = |error| (request, NoRoom::of(error, limits, rings, asked));
                    let mut ring = Ring::map(fd.as_fd(), sizes.data).map_err(no_room)?;
                    if self.requests[request].aux_bytes > 0 {
                        ring.map_aux(fd.as_fd(), self.requests[request].aux_bytes).map_err(no_room)?;
                    }
                    self.set.rings.push(CpuRing { cpu, ring, fd });
                }
            }
        }
        Ok(())
    }

    /// Leader of the group that a request is in.
    fn leader_of(&self, request: usize) -> usize {
        (0..=request).rfind(|&at| !self.requests[at].joins_group).unwrap_or(0)
    }

    fn one(&mut self, request: usize, pid: libc::pid_t, cpu: u32, leader: i32) -> io::Result<OwnedFd> {
        let mut attr = self.attrs[request].clone();
        let asked = &self.requests[request];
        let opened =
            open_or_less(&mut attr, |attr| open_event(&asked.bytes(attr, self.memory.sizes.data), pid, cpu, leader));
        if attr != self.attrs[request] {
            self.attrs[request] = attr;
            self.describe();
        }
        opened
    }

    /// Says how records are to be read, which events that ask for less change.
    fn describe(&mut self) {
        let mut session = Session::new(Endian::default());
        for attr in &self.attrs {
            session.add(attr.clone(), []);
        }
        for (&id, origin) in &self.set.origins {
            session.add_id(id, origin.request);
        }
        self.set.session = session;
    }
}

/// Whether the limit on locked memory stands in the way.
fn is_no_room(error: &EventsError) -> bool {
    matches!(error, EventsError::Event { source, .. } if NoRoom::in_error(source).is_some())
}

/// The event with what the scope asks for.
fn attr_for(request: &EventRequest, scope: &Scope) -> EventAttr {
    let mut attr = request.completed();
    attr.read_format |= read_format::ID | read_format::LOST;
    if *scope != Scope::System {
        attr.flags |= 1 << attr_flag::INHERIT;
    }
    // Members of a group go on and off with their leader.
    if !request.joins_group {
        attr.flags |= 1 << attr_flag::DISABLED;
        attr.flags |= u64::from(*scope == Scope::Children) << attr_flag::ENABLE_ON_EXEC;
    }
    attr
}

#[cfg(test)]
mod tests {
    //! Events on this machine, where the kernel allows any.

    use std::io::BufRead;
    use std::io::BufReader;
    use std::io::Write;
    use std::process::Command;
    use std::process::Stdio;

    use numapilot_perf::Record;
    use numapilot_perf::SideBand;

    use super::*;
    use crate::ring::Records;

    const SIZE: RingSize = RingSize { bytes: 256 << 10 };

    /// Samples with an address, names by exec, and bytes that are no records.
    fn read(set: &mut EventSet) -> (usize, usize, usize) {
        let (mut samples, mut execs, mut bad) = (0, 0, 0);
        for ring in &mut set.rings {
            let mut bytes = Vec::new();
            bad += usize::try_from(ring.ring.take(&mut bytes)).unwrap();
            let mut records = Records::new(&bytes);
            for (header, body) in records.by_ref() {
                match set.session.decode(header, body, 0).unwrap() {
                    Record::Sample(event, sample) => {
                        assert_eq!(EventSet::request_of(event), Some(0));
                        let origin = set.origins[&sample.identifier.unwrap()];
                        assert_eq!((origin.request, Some(origin.cpu)), (1, sample.cpu));
                        samples += usize::from(sample.addr.unwrap() != 0);
                    }
                    Record::SideBand(SideBand::Comm { by_exec, .. }, _) => execs += usize::from(by_exec),
                    Record::SideBand(..) => {}
                }
            }
            bad += records.rest();
        }
        (samples, execs, bad)
    }

    #[test]
    fn a_started_program_is_seen_from_its_exec_on() {
        let request = EventRequest::page_faults(true, 16);
        let mut set = match EventSet::open(&[request], &Scope::Children, SIZE) {
            Ok(set) => set,
            Err(error) => return numapilot_not_run::not_run!(PageFaultEvents, "{error}"),
        };
        assert!(Command::new("true").status().unwrap().success());
        let (samples, execs, bad) = read(&mut set);
        assert_eq!((execs, bad), (1, 0));
        // The loader alone has dozens.
        assert!(samples > 20, "{samples} faults");
    }

    #[test]
    fn a_running_process_is_seen_once_it_is_looked_at() {
        let script = "read x; for i in 1 2 3 4; do /bin/true; done";
        let mut child = Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let request = EventRequest::page_faults(true, 16);
        let mut set = match EventSet::open(&[request], &Scope::Processes(vec![Pid::of_child(&child)]), SIZE) {
            Ok(set) => set,
            Err(error) => {
                drop(child.stdin.take());
                child.wait().unwrap();
                return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
            }
        };
        assert!(set.tasks.contains(&Tid::first_of(Pid::of_child(&child))));
        set.enable();
        drop(child.stdin.take());
        child.wait().unwrap();
        let (samples, execs, bad) = read(&mut set);
        assert!(samples > 20 && execs > 0 && bad == 0, "{samples} faults, {execs} programs, {bad} bad bytes");
    }

    #[test]
    fn the_side_band_can_be_on_alone() {
        let script = "read x; /bin/true; read x";
        let mut child = Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let request = EventRequest::page_faults(true, 16);
        let mut set = match EventSet::open(&[request], &Scope::Processes(vec![Pid::of_child(&child)]), SIZE) {
            Ok(set) => set,
            Err(error) => {
                child.kill().unwrap();
                child.wait().unwrap();
                return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
            }
        };
        set.enable_side_band();
        drop(child.stdin.take());
        child.wait().unwrap();
        let (samples, execs, bad) = read(&mut set);
        assert!(samples == 0 && execs > 0 && bad == 0, "{samples} faults, {execs} programs, {bad} bad bytes");
    }

    #[test]
    fn of_several_processes_one_that_is_gone_is_left_out_and_one_that_joins_is_added() {
        let script = "read x; for i in 1 2 3 4; do /bin/true; done";
        let start = || Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let (mut first, mut second) = (start(), start());
        let request = EventRequest::page_faults(true, 16);
        let scope = Scope::Processes([&gone, &first].map(Pid::of_child).to_vec());
        let mut set = match EventSet::open(&[request], &scope, SIZE) {
            Ok(set) => set,
            Err(error) => {
                for child in [&mut first, &mut second] {
                    child.kill().unwrap();
                    child.wait().unwrap();
                }
                return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
            }
        };
        assert!(set.tasks.contains(&Tid::first_of(Pid::of_child(&first))) && set.refused.is_empty());
        set.enable();
        assert!(set.add(Pid::of_child(&second)).unwrap() && !set.add(Pid::of_child(&gone)).unwrap());
        drop(second.stdin.take());
        second.wait().unwrap();
        let (samples, execs, bad) = read(&mut set);
        assert!(samples > 20 && execs > 0 && bad == 0, "{samples} faults, {execs} programs, {bad} bad bytes");
        drop(first.stdin.take());
        first.wait().unwrap();
        assert!(read(&mut set).0 > 20);
    }

    /// The kernel turns an event off whose AUX area is full; here it was turned off by hand.
    #[test]
    fn an_event_that_had_stopped_goes_on() {
        let request = EventRequest::page_faults(true, 16);
        // A process of its own, which starts a program for each line that it is sent: threads of other tests come and go.
        let mut shell = Command::new("sh")
            .args(["-c", "while read line; do env true; echo; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let mut keyboard = shell.stdin.take().unwrap();
        let scope = Scope::Processes(vec![Pid::of_child(&shell)]);
        let mut set = match EventSet::open(&[request], &scope, SIZE) {
            Ok(set) => set,
            Err(error) => {
                drop(keyboard);
                shell.wait().unwrap();
                return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
            }
        };
        let mut fresh = |set: &mut EventSet| {
            read(set);
            keyboard.write_all(b"\n").unwrap();
            lines.next().unwrap().unwrap();
            read(set).0
        };
        set.enable();
        assert!(fresh(&mut set) > 0);
        set.disable();
        assert_eq!(fresh(&mut set), 0);
        let cpus: Vec<u32> = set.rings.iter().map(|ring| ring.cpu).collect();
        set.restart_aux(cpus[0]);
        assert_eq!(fresh(&mut set), 0, "none has an area");
        let fds = set.rings.iter().map(|ring| &ring.fd).chain(&set.others).map(AsRawFd::as_raw_fd);
        let fds: Vec<RawFd> = fds.collect();
        set.with_aux = cpus.iter().flat_map(|&cpu| fds.iter().map(move |&fd| (cpu, fd))).collect();
        set.restart_aux(cpus[0]);
        assert!(fresh(&mut set) > 0);
        drop(keyboard);
        shell.wait().unwrap();
    }

    #[test]
    fn rings_and_areas_that_do_not_fit_are_smaller_and_that_is_told() {
        let limits =
            Limits { page: 4096, cpus: 64, mlock_kib: Some(516), memlock_bytes: Some(8 << 20), is_exempt: false };
        let asked = Sizes { data: 1 << 20, aux: 1 << 20 };
        let memory = Memory { limits, rings: 64, asked, sizes: asked.within(&limits, 64, 64) };
        let request = EventRequest { aux_bytes: 1 << 20, aux_watermark: 1 << 18, ..EventRequest::default() };
        let fitted = memory.fit(vec![request, EventRequest::side_band()]);
        let sizes: Vec<_> = fitted.iter().map(|request| (request.aux_bytes, request.aux_watermark)).collect();
        assert_eq!(sizes, [(1 << 18, 1 << 16), (0, 0)]);
        let note = memory.note().unwrap();
        assert!(note.contains("rings have 256 KiB per CPU instead of 1024 KiB and AUX areas have 256 KiB"), "{note}");
        assert_eq!(Memory { sizes: asked, ..memory }.note(), None);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_with_its_number() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let error = EventSet::open(&[], &Scope::Processes(vec![Pid::of_child(&child)]), SIZE).unwrap_err();
        assert!(error.to_string().contains(&format!("no process {}", child.id())), "{error}");
    }
}
