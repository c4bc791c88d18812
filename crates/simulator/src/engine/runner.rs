//! Threads and their positions in their timelines: which step each is at, what it waits for, and how it comes to the next. When that happens is the
//! agenda's to say.

use std::collections::BTreeMap;

use numapilot_machine::NodeIndex;

use crate::engine::place::Touch;
use crate::engine::ways::Ways;
use crate::error::SimulatorError;
use crate::pages::PageTable;
use crate::program::{Action, Program, Step, Work};

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Status {
    Working,
    Waiting(u32),
    Following,
    Sleeping(f64),
    Done(f64),
}

/// A thread with its position in the timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    /// 0 prologue, 1 body, 2 epilogue.
    part: u8,
    step: u32,
    iteration: u32,
    /// Share of the present work that is left, when the agenda last recorded it.
    pub(crate) left: f64,
    /// Nanoseconds of processor time that others took from it and that it has yet to lose.
    pub(crate) debt_ns: f64,
    pub(crate) status: Status,
    /// Nanoseconds that the whole of the present work takes with the present latencies on a CPU of its own.
    pub(crate) duration_ns: f64,
    pub(crate) cpu: usize,
    pub(crate) node: NodeIndex,
}

/// Time and accesses of a thread with one behaviour in one epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) thread: u32,
    pub(crate) behaviour: u32,
    pub(crate) busy_ns: f64,
    pub(crate) own_ns: f64,
    pub(crate) accesses: f64,
    pub(crate) instructions: f64,
}

/// What the threads did in one epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) spent: Vec<Spent>,
    /// Nanoseconds that each thread was ready to run (working, or losing time to others).
    pub(crate) ready_ns: Vec<f64>,
    /// Nanoseconds of debt that each thread worked off.
    pub(crate) lost_ns: Vec<f64>,
    pub(crate) end_ns: f64,
    /// Follow steps that ended early because every thread was waiting.
    pub(crate) let_go: u64,
}

/// Parts of the simulation that running threads need.
pub(crate) struct RunContext<'a> {
    pub(crate) program: &'a Program,
    pub(crate) pages: &'a mut PageTable,
    pub(crate) ways: &'a mut Ways,
    pub(crate) placer: &'a crate::engine::place::Placer,
}

/// All threads, and the number of arrivals at each event.
#[derive(Clone, Debug)]
pub(crate) struct Runners {
    pub(crate) now_ns: f64,
    pub(crate) all: Vec<Runner>,
    arrived: Vec<u64>,
    /// Number of threads that have to end before the run does: all but those that its end cuts off.
    going: usize,
    /// Times that a thread began something else, in the present epoch.
    changes: usize,
    /// Threads that began something else since the agenda last asked.
    changed: Vec<usize>,
    /// Where work is taken by whoever is free: by process, how much work its working threads do in a nanosecond, on average; `None` before any has
    /// worked. Empty where each thread does what it did in the recording.
    taken: Vec<Option<f64>>,
    /// Unloaded latency of local memory, ns, where the program is described and not recorded.
    described_local_ns: Option<f64>,
}

impl Runners {
    /// Threads at the start of their timelines, on these CPUs and nodes. `takes_work`: all of the work goes to whichever thread is free. `described_local_ns`:
    /// the unloaded latency of local memory, where the program is described; `None` where it was recorded, so that its steps have the times that they took.
    pub(crate) fn new(
        program: &Program,
        seats: &[(usize, NodeIndex)],
        takes_work: bool,
        described_local_ns: Option<f64>,
    ) -> Runners {
        let runner = |&(cpu, node): &(usize, NodeIndex)| Runner {
            part: 0,
            step: 0,
            iteration: 0,
            left: 1.0,
            debt_ns: 0.0,
            status: Status::Working,
            duration_ns: 0.0,
            cpu,
            node,
        };
        let all = seats.iter().map(runner).collect();
        let arrived = vec![0; program.events.len()];
        let taken = vec![None; if takes_work { program.processes.len() } else { 0 }];
        let going = program.threads.iter().filter(|thread| !thread.is_cut_off).count();
        Runners { now_ns: 0.0, all, arrived, going, changes: 0, changed: Vec::new(), taken, described_local_ns }
    }

    /// Whether every thread has ended that the run lasts for.
    pub(crate) fn is_finished(&self) -> bool {
        self.going == 0
    }

    /// Threads that have not ended, on a CPU.
    pub(crate) fn alive_on(&self, cpu: usize) -> usize {
        self.all.iter().filter(|runner| runner.cpu == cpu && !matches!(runner.status, Status::Done(_))).count()
    }

    /// What the scheduler of any system does: no CPU of a node has two threads more than another of that node.
    pub(crate) fn even_out(&mut self, cpus_of: &[Vec<usize>]) {
        let is_alive = |runner: &&Runner| !matches!(runner.status, Status::Done(_));
        let mut alive: BTreeMap<usize, usize> = BTreeMap::new();
        self.all.iter().filter(is_alive).for_each(|runner| *alive.entry(runner.cpu).or_default() += 1);
        for cpus in cpus_of {
            loop {
                let counts = || cpus.iter().map(|cpu| (alive.get(cpu).copied().unwrap_or(0), *cpu));
                let (Some((most, from)), Some((least, to))) = (counts().max(), counts().min()) else {
                    break;
                };
                let moved = self.all.iter().rposition(|runner| runner.cpu == from && is_alive(&runner));
                let Some(moved) = moved.filter(|_| most > least + 1) else {
                    break;
                };
                self.all[moved].cpu = to;
                alive.insert(from, most - 1);
                alive.insert(to, least + 1);
            }
        }
    }

    /// Threads that want to run.
    pub(crate) fn working(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.all.len()).filter(|&thread| self.all[thread].status == Status::Working)
    }

    /// Enters the first step of every thread. To be called once.
    pub(crate) fn start(&mut self, around: &mut RunContext<'_>) -> Result<(), SimulatorError> {
        (0..self.all.len()).try_for_each(|thread| self.settle(thread, around))
    }

    /// Begins an epoch: the present work of every thread takes what it takes with the present latencies, and every thread counts as changed.
    pub(crate) fn begin_epoch(&mut self, around: &mut RunContext<'_>) {
        let threads = self.all.len();
        (0..threads).for_each(|thread| self.refresh(thread, around));
        self.share_out(around.program);
        (self.changes, self.changed) = (0, (0..threads).collect());
    }

    /// Times that a thread began something else, in the present epoch.
    pub(crate) fn changes(&self) -> usize {
        self.changes
    }

    /// Takes a thread past its present step, and on until it works, waits or ends.
    pub(crate) fn pass_step(&mut self, thread: usize, around: &mut RunContext<'_>) -> Result<(), SimulatorError> {
        self.leave_step(thread, around.program);
        self.settle(thread, around)
    }

    /// The threads that began something else since the last call, each once.
    pub(crate) fn take_changed(&mut self) -> Vec<usize> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    fn base_ns(&self, runner: &Runner, program: &Program) -> f64 {
        match runner.part {
            0 => 0.0,
            1 => f64::from(runner.iteration) * program.body_ns,
            _ => f64::from(program.repeat.saturating_sub(1)) * program.body_ns,
        }
    }

    /// End of the present step in the recording, in nanoseconds.
    pub(crate) fn position_of_end(&self, thread: usize, program: &Program) -> f64 {
        self.base_ns(&self.all[thread], program) + self.step(thread, program).to_ns
    }

    pub(crate) fn step<'p>(&self, thread: usize, program: &'p Program) -> &'p Step {
        let runner = &self.all[thread];
        &steps(program, thread, runner.part)[runner.step as usize]
    }

    fn leave_step(&mut self, thread: usize, program: &Program) {
        let runner = &mut self.all[thread];
        runner.step += 1;
        runner.left = 1.0;
        loop {
            let steps = steps(program, thread, runner.part);
            if (runner.step as usize) < steps.len() || runner.part > 2 {
                return;
            }
            runner.step = 0;
            if runner.part == 1 {
                runner.iteration += 1;
            }
            let again =
                runner.part == 1 && runner.iteration < program.repeat && !program.threads[thread].body.is_empty();
            if !again {
                runner.part += 1;
                // With nothing to repeat there is no body.
                if runner.part == 1 && program.repeat == 0 {
                    runner.part = 2;
                }
            }
        }
    }

    /// Goes through steps that take no time, until the thread works, waits or ends.
    fn settle(&mut self, thread: usize, around: &mut RunContext<'_>) -> Result<(), SimulatorError> {
        let mut ready = vec![thread];
        while let Some(thread) = ready.pop() {
            self.changes += 1;
            self.changed.push(thread);
            loop {
                if self.skip_to_step(thread, around.program) {
                    self.all[thread].status = Status::Done(self.now_ns);
                    self.going -= usize::from(!around.program.threads[thread].is_cut_off);
                    break;
                }
                let step = *self.step(thread, around.program);
                match step.action {
                    Action::Work(work) => {
                        self.begin(thread, &work, around)?;
                        if self.all[thread].duration_ns > 0.0 {
                            break;
                        }
                    }
                    Action::Touch { slice, bound, anew } => {
                        let touchers = [(self.all[thread].node, 1.0)];
                        let node_of = |thread: u32| self.all[thread as usize].node;
                        let (touchers, node_of) = (&touchers[..], &node_of);
                        let touch = Touch { slice, bound, anew, touchers, node_of, now_ns: self.now_ns };
                        around.placer.touch(around.program, around.pages, &touch)?;
                    }
                    Action::Arrive { event } => {
                        self.arrived[event as usize] += 1;
                        ready.extend(self.released(event, around.program));
                    }
                    Action::Await { event } => {
                        if !self.is_complete(thread, event, around.program) {
                            self.all[thread].status = Status::Waiting(event);
                            break;
                        }
                    }
                    Action::Follow => {
                        self.all[thread].status = Status::Following;
                        break;
                    }
                    Action::Sleep { ns } => {
                        self.all[thread].status = Status::Sleeping(self.now_ns + ns);
                        break;
                    }
                }
                self.leave_step(thread, around.program);
            }
        }
        Ok(())
    }

    /// Goes on to the next part if this one is empty. True: there is none.
    fn skip_to_step(&mut self, thread: usize, program: &Program) -> bool {
        let runner = &mut self.all[thread];
        while runner.part < 3 && runner.step as usize >= steps(program, thread, runner.part).len() {
            runner.part += 1;
            runner.step = 0;
            if runner.part == 1 && program.repeat == 0 {
                runner.part = 2;
            }
        }
        runner.part > 2
    }

    fn begin(&mut self, thread: usize, work: &Work, around: &mut RunContext<'_>) -> Result<(), SimulatorError> {
        self.all[thread].status = Status::Working;
        let mix = around.program.behaviours[work.behaviour as usize].mix as usize;
        if work.accesses > 0.0 && !around.pages.is_present(&around.program.mixes[mix]) {
            let touchers = self.fellows(thread, mix, around.program);
            let node_of = |thread: u32| self.all[thread as usize].node;
            for part in &around.program.mixes[mix].parts {
                let (touchers, node_of, now_ns) = (&touchers[..], &node_of, self.now_ns);
                let touch = Touch { slice: part.slice, bound: None, anew: false, touchers, node_of, now_ns };
                around.placer.touch(around.program, around.pages, &touch)?;
            }
        }
        self.refresh(thread, around);
        self.get_on(thread, around.program);
        Ok(())
    }

    /// Nodes of the threads that are about to use the slices of a mix for the first time: this one, and all whose present or
    /// next work has the same mix.
    fn fellows(&self, thread: usize, mix: usize, program: &Program) -> Vec<(NodeIndex, f64)> {
        let uses = |other: usize| {
            let runner = &self.all[other];
            if runner.part > 2 {
                return false;
            }
            let rest = steps(program, other, runner.part).get(runner.step as usize..).unwrap_or(&[]);
            let work =
                rest.iter().find_map(|step| if let Action::Work(work) = step.action { Some(work) } else { None });
            work.is_some_and(|work| program.behaviours[work.behaviour as usize].mix as usize == mix)
        };
        let used = (0..self.all.len()).filter(|&other| other == thread || uses(other));
        used.map(|other| (self.all[other].node, 1.0)).collect()
    }

    /// Computes how long the present work takes with the present latencies.
    fn refresh(&mut self, thread: usize, around: &mut RunContext<'_>) {
        if self.all[thread].status != Status::Working {
            return;
        }
        let Action::Work(work) = self.step(thread, around.program).action else {
            return;
        };
        let node = self.all[thread].node;
        let access_ns = if work.accesses > 0.0 {
            around.ways.access_ns(around.program, around.pages, work.behaviour, node)
        } else {
            0.0
        };
        let overlap = around.program.behaviours[work.behaviour as usize].outstanding;
        self.all[thread].duration_ns = work.own_ns + work.accesses * access_ns / overlap;
    }

    /// Where work is taken by whoever is free, the working threads of a process get on equally fast: by the mean of what each does by itself, so that a slowed
    /// one does less and the others more. As `share_out` of the prices of `whatif`, with epochs for windows.
    fn share_out(&mut self, program: &Program) {
        let mut sums = vec![(0.0, 0.0); self.taken.len()];
        let working: Vec<usize> = self.working().filter(|_| !sums.is_empty()).collect();
        for &thread in &working {
            if let Some(span_ns) = self.work_ns(thread, program) {
                let (sum, count) = &mut sums[program.threads[thread].process as usize];
                *sum += span_ns / (self.all[thread].duration_ns * self.sharers(thread));
                *count += 1.0;
            }
        }
        for (taken, (sum, count)) in self.taken.iter_mut().zip(sums).filter(|(_, (_, count))| *count > 0.0) {
            *taken = Some(sum / count);
        }
        working.into_iter().for_each(|thread| self.get_on(thread, program));
    }

    /// Where work is taken by whoever is free: the present work takes as long as its process's threads take for as much work.
    fn get_on(&mut self, thread: usize, program: &Program) {
        let taken = self.taken.get(program.threads[thread].process as usize).copied().flatten();
        if let Some((taken, span_ns)) = taken.zip(self.work_ns(thread, program)) {
            self.all[thread].duration_ns = span_ns / (taken * self.sharers(thread));
        }
    }

    /// Amount of the present work, ns: how long it took in the recording, or, where it is described, how long it takes with unloaded local memory (a described
    /// step lasts as long as its own work, without what the thread waits for memory); `None` if nothing is being done.
    fn work_ns(&self, thread: usize, program: &Program) -> Option<f64> {
        let runner = &self.all[thread];
        if runner.status != Status::Working || runner.duration_ns <= 0.0 {
            return None;
        }
        let step = self.step(thread, program);
        let span_ns = match (step.action, self.described_local_ns) {
            (Action::Work(work), Some(local_ns)) => {
                work.own_ns + work.accesses * local_ns / program.behaviours[work.behaviour as usize].outstanding
            }
            _ => step.to_ns - step.from_ns,
        };
        Some(span_ns).filter(|span_ns| *span_ns > 0.0)
    }

    /// Working threads on a thread's CPU, itself included.
    fn sharers(&self, thread: usize) -> f64 {
        let cpu = self.all[thread].cpu;
        self.working().filter(|&other| self.all[other].cpu == cpu).count().max(1) as f64
    }

    fn is_complete(&self, thread: usize, event: u32, program: &Program) -> bool {
        let runner = &self.all[thread];
        let rounds = if runner.part == 1 { u64::from(runner.iteration) + 1 } else { 1 };
        self.arrived[event as usize] >= rounds * u64::from(program.events[event as usize].needed)
    }

    /// Takes the threads that waited for an event and need not any longer past it.
    fn released(&mut self, event: u32, program: &Program) -> Vec<usize> {
        // Rounds are complete at every such number of arrivals, and at no other.
        if !self.arrived[event as usize].is_multiple_of(u64::from(program.events[event as usize].needed).max(1)) {
            return Vec::new();
        }
        let waits = |&thread: &usize| {
            self.all[thread].status == Status::Waiting(event) && self.is_complete(thread, event, program)
        };
        let released: Vec<usize> = (0..self.all.len()).filter(waits).collect();
        for &thread in &released {
            self.all[thread].status = Status::Working;
            self.leave_step(thread, program);
        }
        released
    }

    /// The error that says which threads wait for what.
    pub(crate) fn deadlock(&self, program: &Program) -> SimulatorError {
        let wait = |(thread, runner): (usize, &Runner)| match runner.status {
            Status::Waiting(event) => {
                let (arrived, needed) = (self.arrived[event as usize], program.events[event as usize].needed);
                Some(format!(
                    "thread `{}` waits for event {event} ({arrived} of {needed} threads of this round have arrived)",
                    program.threads[thread].name
                ))
            }
            _ => None,
        };
        let waits: Vec<String> = self.all.iter().enumerate().filter_map(wait).take(8).collect();
        SimulatorError::Deadlock { program: program.name.clone(), at_ns: self.now_ns, waiting: waits.join("; ") }
    }
}

fn steps(program: &Program, thread: usize, part: u8) -> &[Step] {
    let thread = &program.threads[thread];
    match part {
        0 => &thread.prologue,
        1 => &thread.body,
        2 => &thread.epilogue,
        _ => &[],
    }
}
