//! Threads in simulated time: a discrete-event run over their timelines, with the latencies of one epoch. Events are met exactly; nothing is
//! rounded to epochs.

use crate::engine::place::Touch;
use crate::engine::ways::Ways;
use crate::error::SimulatorError;
use crate::pages::PageTable;
use crate::program::{Action, Program, Step, Work};

/// What is left of a step below this share counts as done: rounding of sums of times.
const DONE: f64 = 1e-9;
/// An epoch ends early when this share of the working threads began something else.
const CHANGED_SHARE: f64 = 0.25;

/// What a thread is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Status {
    Working,
    Waiting(u32),
    Following,
    Sleeping(f64),
    Done(f64),
}

/// Where a thread is in its timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    /// 0 prologue, 1 body, 2 epilogue.
    part: u8,
    step: u32,
    iteration: u32,
    /// Share of the present work that is left.
    left: f64,
    /// Nanoseconds of processor time that others took from it and that it has yet to lose.
    pub(crate) debt_ns: f64,
    pub(crate) status: Status,
    /// Nanoseconds that the whole of the present work takes with the present latencies on a CPU of its own.
    duration_ns: f64,
    pub(crate) cpu: usize,
    pub(crate) node: usize,
}

/// What a thread spent on one behaviour in one epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) thread: u32,
    pub(crate) behaviour: u32,
    pub(crate) busy_ns: f64,
    pub(crate) own_ns: f64,
    pub(crate) accesses: f64,
    pub(crate) instructions: f64,
}

/// One epoch's outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoch {
    pub(crate) spent: Vec<Spent>,
    /// Nanoseconds that each thread was ready to run (working, or losing time to others).
    pub(crate) ready_ns: Vec<f64>,
    /// Nanoseconds of debt that each thread worked off.
    pub(crate) lost_ns: Vec<f64>,
    pub(crate) end_ns: f64,
    /// Follow steps that were let go because nobody else could go on.
    pub(crate) let_go: u64,
}

/// What a run needs of its surroundings.
pub(crate) struct Surroundings<'a> {
    pub(crate) program: &'a Program,
    pub(crate) pages: &'a mut PageTable,
    pub(crate) ways: &'a mut Ways,
    pub(crate) placer: &'a crate::engine::place::Placer,
}

/// All threads, and how many have arrived at each event.
#[derive(Clone, Debug)]
pub(crate) struct Runners {
    pub(crate) now_ns: f64,
    pub(crate) all: Vec<Runner>,
    arrived: Vec<u64>,
    /// Threads on each CPU that want to run.
    on_cpu: Vec<u32>,
    changes: usize,
}

impl Runners {
    /// Threads at the start of their timelines, on these CPUs and nodes.
    pub(crate) fn new(program: &Program, seats: &[(usize, usize)], cpus: usize) -> Runners {
        let runner = |&(cpu, node): &(usize, usize)| Runner {
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
        Runners { now_ns: 0.0, all, arrived: vec![0; program.events.len()], on_cpu: vec![0; cpus], changes: 0 }
    }

    /// Whether every thread has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.all.iter().all(|runner| matches!(runner.status, Status::Done(_)))
    }

    /// Threads that have not ended, on a CPU.
    pub(crate) fn alive_on(&self, cpu: usize) -> usize {
        self.all.iter().filter(|runner| runner.cpu == cpu && !matches!(runner.status, Status::Done(_))).count()
    }

    /// What the scheduler of any system does: no CPU of a node has two threads more than another of that node.
    pub(crate) fn even_out(&mut self, cpus_of: &[Vec<usize>]) {
        for cpus in cpus_of {
            loop {
                let counts = || cpus.iter().map(|&cpu| (self.alive_on(cpu), cpu));
                let (Some((most, from)), Some((least, to))) = (counts().max(), counts().min()) else {
                    break;
                };
                let moved = self.all.iter().rposition(|r| r.cpu == from && !matches!(r.status, Status::Done(_)));
                let Some(moved) = moved.filter(|_| most > least + 1) else {
                    break;
                };
                self.all[moved].cpu = to;
            }
        }
    }

    /// Threads that want to run.
    pub(crate) fn working(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.all.len()).filter(|&thread| self.all[thread].status == Status::Working)
    }

    /// Enters the first step of every thread. To be called once.
    pub(crate) fn start(&mut self, around: &mut Surroundings<'_>) -> Result<(), SimulatorError> {
        (0..self.all.len()).try_for_each(|thread| self.settle(thread, around))
    }

    /// Runs until `horizon_ns`, or until the load has changed and at least `least_ns` have passed, or until all have ended.
    pub(crate) fn advance(
        &mut self,
        horizon_ns: f64,
        least_ns: f64,
        around: &mut Surroundings<'_>,
    ) -> Result<Epoch, SimulatorError> {
        let threads = self.all.len();
        let begin = self.now_ns;
        let mut epoch = Epoch { ready_ns: vec![0.0; threads], lost_ns: vec![0.0; threads], ..Epoch::default() };
        self.changes = 0;
        for thread in 0..threads {
            self.refresh(thread, around);
        }
        let mut last: Vec<Option<usize>> = vec![None; threads];
        while self.now_ns < horizon_ns && !self.is_finished() {
            self.count_cpus();
            let next = self.next_event(around.program);
            if next.is_infinite() {
                self.let_one_go(around, &mut epoch)?;
                continue;
            }
            let elapsed = next.min(horizon_ns - self.now_ns);
            self.spend(elapsed, around.program, &mut epoch, &mut last);
            self.now_ns = if next >= horizon_ns - self.now_ns { horizon_ns } else { self.now_ns + elapsed };
            self.complete(around)?;
            let working = self.all.iter().filter(|runner| runner.status == Status::Working).count();
            let changed = self.changes as f64 > CHANGED_SHARE * working as f64;
            if changed && self.now_ns - begin >= least_ns {
                break;
            }
        }
        epoch.end_ns = self.now_ns;
        Ok(epoch)
    }

    fn count_cpus(&mut self) {
        self.on_cpu.fill(0);
        for runner in self.all.iter().filter(|runner| runner.status == Status::Working) {
            self.on_cpu[runner.cpu] += 1;
        }
    }

    /// Share of its CPU that a working thread has.
    fn speed(&self, runner: &Runner) -> f64 {
        1.0 / f64::from(self.on_cpu[runner.cpu].max(1))
    }

    /// Nanoseconds until the next thing happens; infinite if nothing will.
    fn next_event(&self, program: &Program) -> f64 {
        let mut next = f64::INFINITY;
        for (thread, runner) in self.all.iter().enumerate() {
            let at = match runner.status {
                Status::Working if runner.debt_ns > 0.0 => runner.debt_ns / self.speed(runner),
                Status::Working => runner.left * runner.duration_ns / self.speed(runner),
                Status::Sleeping(until) => (until - self.now_ns).max(0.0),
                Status::Following => self.until_caught_up(thread, program),
                Status::Waiting(_) | Status::Done(_) => f64::INFINITY,
            };
            next = next.min(at);
        }
        next
    }

    /// Nanoseconds until the working threads of the process (of the program, where none of the process works) have, on average, come to where a
    /// following thread waits.
    fn until_caught_up(&self, thread: usize, program: &Program) -> f64 {
        let target = self.position_of_end(thread, program);
        let process = program.threads[thread].process;
        let fellows = self.mean_pace(program, |other| program.threads[other].process == process);
        let Some((position, rate)) = fellows.or_else(|| self.mean_pace(program, |_| true)) else {
            return f64::INFINITY;
        };
        match position >= target {
            true => 0.0,
            false if rate > 0.0 => (target - position) / rate,
            false => f64::INFINITY,
        }
    }

    /// Mean position of the working threads among `those`, and how fast it grows; `None` if none works.
    fn mean_pace(&self, program: &Program, those: impl Fn(usize) -> bool) -> Option<(f64, f64)> {
        let (mut count, mut position, mut rate) = (0.0, 0.0, 0.0);
        for (other, runner) in self.all.iter().enumerate() {
            if runner.status != Status::Working || !those(other) {
                continue;
            }
            let step = self.step(other, program);
            let span = step.to_ns - step.from_ns;
            count += 1.0;
            position += self.base_ns(runner, program) + step.to_ns - runner.left * span;
            if runner.debt_ns <= 0.0 && runner.duration_ns > 0.0 {
                rate += span / runner.duration_ns * self.speed(runner);
            }
        }
        (count > 0.0).then(|| (position / count, rate / count))
    }

    fn base_ns(&self, runner: &Runner, program: &Program) -> f64 {
        match runner.part {
            0 => 0.0,
            1 => f64::from(runner.iteration) * program.body_ns,
            _ => f64::from(program.repeat.saturating_sub(1)) * program.body_ns,
        }
    }

    fn position_of_end(&self, thread: usize, program: &Program) -> f64 {
        self.base_ns(&self.all[thread], program) + self.step(thread, program).to_ns
    }

    fn step<'p>(&self, thread: usize, program: &'p Program) -> &'p Step {
        let runner = &self.all[thread];
        &steps(program, thread, runner.part)[runner.step as usize]
    }

    /// Books `elapsed` nanoseconds.
    fn spend(&mut self, elapsed: f64, program: &Program, epoch: &mut Epoch, last: &mut [Option<usize>]) {
        for (thread, slot) in last.iter_mut().enumerate() {
            if self.all[thread].status != Status::Working {
                continue;
            }
            let given = elapsed * self.speed(&self.all[thread]);
            epoch.ready_ns[thread] += given;
            let Action::Work(work) = self.step(thread, program).action else {
                continue;
            };
            let runner = &mut self.all[thread];
            if runner.debt_ns > 0.0 {
                epoch.lost_ns[thread] += given.min(runner.debt_ns);
                runner.debt_ns = if runner.debt_ns - given <= DONE * given { 0.0 } else { runner.debt_ns - given };
                continue;
            }
            let share =
                if runner.duration_ns > 0.0 { (given / runner.duration_ns).min(runner.left) } else { runner.left };
            runner.left = if runner.left - share <= DONE { 0.0 } else { runner.left - share };
            if slot.is_none_or(|slot| epoch.spent[slot].behaviour != work.behaviour) {
                *slot = Some(epoch.spent.len());
                epoch.spent.push(Spent { thread: thread as u32, behaviour: work.behaviour, ..Spent::default() });
            }
            let Some(spent) = slot.and_then(|slot| epoch.spent.get_mut(slot)) else {
                continue;
            };
            spent.busy_ns += given;
            spent.own_ns += share * work.own_ns;
            spent.accesses += share * work.accesses;
            spent.instructions += share * work.instructions;
        }
    }

    /// Lets everybody go on whose step is done.
    fn complete(&mut self, around: &mut Surroundings<'_>) -> Result<(), SimulatorError> {
        for thread in 0..self.all.len() {
            let runner = &self.all[thread];
            let done = match runner.status {
                Status::Working => runner.debt_ns <= 0.0 && runner.left <= 0.0,
                Status::Sleeping(until) => until <= self.now_ns,
                Status::Following => self.until_caught_up(thread, around.program) <= DONE * self.now_ns,
                Status::Waiting(_) | Status::Done(_) => false,
            };
            if done {
                self.leave_step(thread, around.program);
                self.settle(thread, around)?;
            }
        }
        Ok(())
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
    fn settle(&mut self, thread: usize, around: &mut Surroundings<'_>) -> Result<(), SimulatorError> {
        let mut ready = vec![thread];
        while let Some(thread) = ready.pop() {
            self.changes += 1;
            loop {
                if self.skip_to_step(thread, around.program) {
                    self.all[thread].status = Status::Done(self.now_ns);
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

    fn begin(&mut self, thread: usize, work: &Work, around: &mut Surroundings<'_>) -> Result<(), SimulatorError> {
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
        Ok(())
    }

    /// Nodes of the threads that are about to use the slices of a mix for the first time: this one, and all whose present or
    /// next work has the same mix.
    fn fellows(&self, thread: usize, mix: usize, program: &Program) -> Vec<(usize, f64)> {
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
    fn refresh(&mut self, thread: usize, around: &mut Surroundings<'_>) {
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

    fn is_complete(&self, thread: usize, event: u32, program: &Program) -> bool {
        let runner = &self.all[thread];
        let rounds = if runner.part == 1 { u64::from(runner.iteration) + 1 } else { 1 };
        self.arrived[event as usize] >= rounds * u64::from(program.events[event as usize].needed)
    }

    /// Takes the threads that waited for an event and need not any longer past it.
    fn released(&mut self, event: u32, program: &Program) -> Vec<usize> {
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

    /// Nobody works or sleeps: the follower who waits for the earliest point goes on. Without one, the program has locked itself up.
    fn let_one_go(&mut self, around: &mut Surroundings<'_>, epoch: &mut Epoch) -> Result<(), SimulatorError> {
        let following = (0..self.all.len()).filter(|&thread| self.all[thread].status == Status::Following);
        let key = |thread: usize| self.position_of_end(thread, around.program);
        let Some(first) = following.min_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b))) else {
            return Err(self.deadlock(around.program));
        };
        epoch.let_go += 1;
        self.leave_step(first, around.program);
        self.settle(first, around)
    }

    fn deadlock(&self, program: &Program) -> SimulatorError {
        let wait = |(thread, runner): (usize, &Runner)| match runner.status {
            Status::Waiting(event) => {
                let (arrived, needed) = (self.arrived[event as usize], program.events[event as usize].needed);
                Some(format!(
                    "`{}` waits for event {event} ({arrived} arrived, {needed} a round)",
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
