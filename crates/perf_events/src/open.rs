//! `perf_event_open` for a whole recording: every requested event on every CPU, for the tasks of a scope, with one ring per CPU that all of them
//! write to.
//!
//! A program that is started here inherits the events from the thread that starts it (they are made off, and `exec` turns them on), so
//! nothing of it is missed. Tasks that run already get an event each; what they start inherits it. System-wide events need no tasks.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_perf::Endian;
use numapilot_perf::EventAttr;
use numapilot_perf::Session;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::read_format;

use crate::cpus::online_cpus;
use crate::error::EventsError;
use crate::event::EventRequest;
use crate::event_limit::TooMany;
use crate::event_limit::cost_note;
pub use crate::event_limit::raise_descriptor_limit;
use crate::locked_memory::NoRoom;
use crate::rights;
use crate::rights::explain;
use crate::ring::Ring;
use crate::syscall::IOC_ENABLE;
use crate::syscall::event_id;
use crate::syscall::is_denied;
use crate::syscall::is_there;
use crate::syscall::open_event;
use crate::syscall::open_or_less;
use crate::syscall::order;
use crate::syscall::redirect;

mod joined;
mod memory;
mod multiplexed;
mod pulses;
mod set;

use memory::Memory;
pub use multiplexed::Multiplexed;
use multiplexed::SIDE_BAND;
use pulses::Pulses;
pub use set::CpuRing;
pub use set::EventSet;
pub use set::Origin;
use set::Recipe;

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

/// The page faults of a scope, opened.
#[derive(Debug)]
pub struct OpenedFaults {
    /// The event.
    pub set: EventSet,
    /// The request with which the event was opened.
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
        let mut memory = Memory::new(&all, &cpus, size.bytes);
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

    /// Opens the events of a CPU anew that was offline (events of whole CPUs end then), and turns them on. What its ring holds is lost: it must have been read.
    ///
    /// # Errors
    /// The kernel's answer: nothing is recorded on the CPU.
    fn reopen(&mut self, cpu: CpuId) -> io::Result<()> {
        // Before the others: by the old one, they would seem to have ended again at every look.
        let pulse = Pulses::open_one(cpu)?;
        let Some(Recipe { requests, attrs, memory, cpus }) = self.recipe.take() else { return Ok(()) };
        self.close_cpu(cpu);
        let (rings, others) = (self.rings.len(), self.others.len());
        let (scope, beside, set) = (Scope::System, 0, std::mem::take(self));
        let (is_joining, may_inherit) = (true, false);
        let mut opening =
            Opening { requests, attrs, scope: &scope, memory, cpus, beside, is_joining, may_inherit, set };
        let opened = opening.cpu(-1, cpu, None).map_err(|(_, error)| error);
        *self = opening.finish();
        if opened.is_err() {
            self.close_cpu(cpu);
            return opened;
        }
        let fresh = self.rings[rings..].iter().map(|ring| &ring.fd).chain(&self.others[others..]);
        fresh.for_each(|fd| order(fd.as_raw_fd(), IOC_ENABLE));
        self.pulses.renew(cpu, pulse);
        Ok(())
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
}

struct Opening<'a> {
    requests: Vec<EventRequest>,
    /// As opened, which the kernel's age may have made poorer.
    attrs: Vec<EventAttr>,
    scope: &'a Scope,
    memory: Memory,
    cpus: Vec<CpuId>,
    /// Number of events of other sets.
    beside: usize,
    /// The set is that of a recording under way.
    is_joining: bool,
    /// The threads at hand may have inherited events of the set: others that may have started them have some.
    may_inherit: bool,
    set: EventSet,
}

impl<'a> Opening<'a> {
    fn new(requests: Vec<EventRequest>, scope: &'a Scope, memory: Memory, cpus: Vec<CpuId>) -> Opening<'a> {
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
        let on = |cpus: &Option<Vec<CpuId>>| cpus.as_ref().map_or(self.cpus.len(), Vec::len);
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
    fn cpu(&mut self, pid: libc::pid_t, cpu: CpuId, task: Option<Tid>) -> Result<(), (usize, io::Error)> {
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
            let (id, number) = (event_id(&fd).map_err(fail)?, fd.as_raw_fd());
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
            // Of those alone that are kept: where one is refused its place in a ring, it is closed, and another file may get its number.
            self.set.session.add_id(id, request);
            self.set.origins.insert(id, Origin { request, cpu, task });
            if request == SIDE_BAND {
                self.set.side_band.push(number);
            }
            if self.requests[request].aux_bytes > 0 {
                self.set.with_aux.push((cpu, number));
            }
        }
        Ok(())
    }

    /// Leader of the group that a request is in.
    fn leader_of(&self, request: usize) -> usize {
        (0..=request).rfind(|&at| !self.requests[at].joins_group).unwrap_or(0)
    }

    fn one(&mut self, request: usize, pid: libc::pid_t, cpu: CpuId, leader: i32) -> io::Result<OwnedFd> {
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
    attr.read_format |=
        read_format::TOTAL_TIME_ENABLED | read_format::TOTAL_TIME_RUNNING | read_format::ID | read_format::LOST;
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
mod tests;
