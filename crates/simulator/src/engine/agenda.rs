//! What happens next in an epoch, and when: the ends of threads' work by CPU, of sleeps, and the moments at which followers are caught up with.
//!
//! A thread's progress is linear in time as long as its step, the latencies and the number of threads on its CPU do not change. So it is updated
//! only when one of them changes, and a heap gives the next event: an event costs the logarithm of the number of threads, not a scan of all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::engine::runner::{Epoch, Runners, Spent, Status};
use crate::program::{Action, Program};

/// What is left of a step below this share counts as done: rounding of sums of times.
const DONE: f64 = 1e-9;

/// A moment, in order of time. None is negative or NaN, so the order of the bits is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u64);

impl Moment {
    fn at(ns: f64) -> Moment {
        Moment(ns.max(0.0).to_bits())
    }

    fn ns(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// State of a thread in the agenda.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Time up to which its progress is counted, ns.
    since_ns: f64,
    /// Share of its CPU that it has; 0: it does not work.
    speed: f64,
    /// Entries of the heap with another number are outdated.
    version: u32,
    /// Index of the entry to which its time is added.
    slot: Option<usize>,
    /// What it adds to the pace of its group, while it works.
    pace: Option<Line>,
    /// The point of the recording that its group must reach before it continues, if it waits.
    follows: Option<Moment>,
}

/// A position in the recording as a straight line over time: `at_zero + rate * now`. Of several threads: sums.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    at_zero: f64,
    rate: f64,
}

/// Working threads' positions, summed.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    count: f64,
    sum: Line,
}

impl Pace {
    fn add(&mut self, line: Line) {
        self.count += 1.0;
        self.sum.at_zero += line.at_zero;
        self.sum.rate += line.rate;
    }

    fn remove(&mut self, line: Line) {
        self.count -= 1.0;
        self.sum.at_zero -= line.at_zero;
        self.sum.rate -= line.rate;
        if self.count <= 0.0 {
            // Without what rounding left.
            *self = Pace::default();
        }
    }

    /// Nanoseconds until the mean comes to `target`.
    fn until(&self, target: f64, now_ns: f64) -> f64 {
        let (position, rate) = ((self.sum.at_zero + self.sum.rate * now_ns) / self.count, self.sum.rate / self.count);
        match position >= target {
            true => 0.0,
            false if rate > 0.0 => (target - position) / rate,
            false => f64::INFINITY,
        }
    }
}

/// The agenda of one epoch.
#[derive(Debug)]
pub(crate) struct Agenda {
    entries: Vec<Entry>,
    heap: BinaryHeap<Reverse<(Moment, u32, u32)>>,
    /// Threads that want to run, by CPU.
    on_cpu: BTreeMap<usize, BTreeSet<usize>>,
    working: usize,
    /// Pace of each process, and of the whole program.
    paces: Vec<Pace>,
    pace_of_all: Pace,
    /// By process: waiting followers, by the point for which they wait.
    followers: BTreeMap<u32, BTreeSet<(Moment, usize)>>,
}

impl Agenda {
    /// Makes an empty agenda: the caller must report all threads as changed.
    pub(crate) fn new(runners: &Runners, program: &Program) -> Agenda {
        let entry = Entry { since_ns: runners.now_ns, ..Entry::default() };
        Agenda {
            entries: vec![entry; runners.all.len()],
            heap: BinaryHeap::new(),
            on_cpu: BTreeMap::new(),
            working: 0,
            paces: vec![Pace::default(); program.processes.len()],
            pace_of_all: Pace::default(),
            followers: BTreeMap::new(),
        }
    }

    /// Threads that want to run.
    pub(crate) fn working(&self) -> usize {
        self.working
    }

    /// When something happens next, ns; infinite if nothing will.
    pub(crate) fn next_ns(&mut self, now_ns: f64) -> f64 {
        while let Some(Reverse((_, thread, version))) = self.heap.peek() {
            if self.entries[*thread as usize].version == *version {
                break;
            }
            self.heap.pop();
        }
        let next = self.heap.peek().map_or(f64::INFINITY, |Reverse((at, ..))| at.ns());
        let caught_up = self.followers.keys().map(|&process| now_ns + self.until_caught_up(process, now_ns));
        caught_up.fold(next, f64::min)
    }

    /// Nanoseconds until the working threads of a process (of the program, where none of the process works) have, on average, come to where the first
    /// of those waits that follow them.
    fn until_caught_up(&self, process: u32, now_ns: f64) -> f64 {
        let Some((target, _)) = self.followers.get(&process).and_then(BTreeSet::first) else {
            return f64::INFINITY;
        };
        let fellows = Some(self.paces[process as usize]).filter(|pace| pace.count > 0.0);
        match fellows.unwrap_or(self.pace_of_all) {
            pace if pace.count > 0.0 => pace.until(target.ns(), now_ns),
            _ => f64::INFINITY,
        }
    }

    /// The follower who waits for the earliest point.
    pub(crate) fn first_follower(&self) -> Option<usize> {
        self.followers.values().filter_map(BTreeSet::first).min().map(|&(_, thread)| thread)
    }

    /// Takes off the threads whose steps are done by now, with their time recorded: those that work or sleep, in order, and where there are none of these, the
    /// first follower that is caught up with.
    pub(crate) fn due(&mut self, runners: &mut Runners, program: &Program, epoch: &mut Epoch) -> Vec<usize> {
        let now_ns = runners.now_ns;
        let mut due = Vec::new();
        while let Some(&Reverse((at, thread, version))) = self.heap.peek() {
            let thread = thread as usize;
            let entry = self.entries[thread];
            if entry.version != version {
                self.heap.pop();
                continue;
            }
            let runner = &runners.all[thread];
            let is_in_debt = runner.status == Status::Working && runner.debt_ns > 0.0;
            let rounding_ns = match runner.status {
                Status::Working if !is_in_debt => DONE * runner.duration_ns / entry.speed,
                _ => 0.0,
            };
            if at.ns() > now_ns + rounding_ns {
                break;
            }
            self.heap.pop();
            if runner.status == Status::Working {
                self.record(thread, !is_in_debt, runners, program, epoch);
            }
            let runner = &mut runners.all[thread];
            if is_in_debt {
                // The debt is paid: now its own work.
                runner.debt_ns = 0.0;
                self.expect(thread, runners, program);
            } else {
                due.push(thread);
            }
        }
        if due.is_empty() {
            let caught_up = |&&process: &&u32| self.until_caught_up(process, now_ns) <= DONE * now_ns;
            let first = self.followers.keys().find(caught_up).and_then(|process| self.followers[process].first());
            due.extend(first.map(|&(_, thread)| thread));
        }
        due.sort_unstable();
        due
    }

    /// Takes up what threads that began something else are at now.
    pub(crate) fn update(&mut self, runners: &mut Runners, program: &Program, epoch: &mut Epoch) {
        let changed = runners.take_changed();
        let mut cpus: BTreeSet<usize> = BTreeSet::new();
        for &thread in &changed {
            let runner = runners.all[thread];
            let entry = &mut self.entries[thread];
            entry.since_ns = runners.now_ns;
            entry.version += 1;
            let works = runner.status == Status::Working;
            if works != (entry.speed > 0.0) {
                let on_cpu = self.on_cpu.entry(runner.cpu).or_default();
                if works {
                    on_cpu.insert(thread);
                    self.working += 1;
                    // Nobody has had its CPU before: the speed follows below.
                    entry.speed = 1.0;
                } else {
                    on_cpu.remove(&thread);
                    self.working -= 1;
                    entry.speed = 0.0;
                }
                cpus.insert(runner.cpu);
            }
            let process = program.threads[thread].process;
            let follows =
                (runner.status == Status::Following).then(|| Moment::at(runners.position_of_end(thread, program)));
            if follows != entry.follows {
                let old = std::mem::replace(&mut entry.follows, follows);
                let followers = self.followers.entry(process).or_default();
                old.map(|at| followers.remove(&(at, thread)));
                follows.map(|at| followers.insert((at, thread)));
                if followers.is_empty() {
                    self.followers.remove(&process);
                }
            }
        }
        let mut others: BTreeSet<usize> = changed.into_iter().collect();
        for cpu in cpus {
            let threads: Vec<usize> = self.on_cpu[&cpu].iter().copied().collect();
            let speed = 1.0 / threads.len() as f64;
            for &thread in &threads {
                if self.entries[thread].speed != speed {
                    self.record(thread, false, runners, program, epoch);
                    self.entries[thread].speed = speed;
                }
            }
            others.extend(threads);
        }
        for thread in others {
            self.expect(thread, runners, program);
        }
    }

    /// Puts down when a thread's step will be done, and its pace, as things are.
    fn expect(&mut self, thread: usize, runners: &Runners, program: &Program) {
        let now_ns = runners.now_ns;
        let runner = &runners.all[thread];
        let process = program.threads[thread].process as usize;
        let entry = &mut self.entries[thread];
        entry.version += 1;
        if let Some(old) = entry.pace.take() {
            self.paces[process].remove(old);
            self.pace_of_all.remove(old);
        }
        let at = match runner.status {
            Status::Working if runner.debt_ns > 0.0 => now_ns + runner.debt_ns / entry.speed,
            Status::Working => now_ns + runner.left * runner.duration_ns / entry.speed,
            Status::Sleeping(until) => until,
            Status::Following | Status::Waiting(_) | Status::Done(_) => return,
        };
        self.heap.push(Reverse((Moment::at(at), thread as u32, entry.version)));
        if runner.status == Status::Working {
            let step = runners.step(thread, program);
            let span = step.to_ns - step.from_ns;
            let goes_on = runner.debt_ns <= 0.0 && runner.duration_ns > 0.0;
            let rate = if goes_on { span / runner.duration_ns * entry.speed } else { 0.0 };
            let position = runners.position_of_end(thread, program) - runner.left * span;
            let line = Line { at_zero: position - rate * now_ns, rate };
            entry.pace = Some(line);
            self.paces[process].add(line);
            self.pace_of_all.add(line);
        }
    }

    /// Adds what a working thread did since the last call. `is_done`: its step is done, whatever rounding would leave of it.
    fn record(&mut self, thread: usize, is_done: bool, runners: &mut Runners, program: &Program, epoch: &mut Epoch) {
        let entry = &mut self.entries[thread];
        let given = ((runners.now_ns - entry.since_ns) * entry.speed).max(0.0);
        entry.since_ns = runners.now_ns;
        let Action::Work(work) = runners.step(thread, program).action else {
            return;
        };
        let runner = &mut runners.all[thread];
        epoch.ready_ns[thread] += given;
        if runner.debt_ns > 0.0 {
            epoch.lost_ns[thread] += given.min(runner.debt_ns);
            runner.debt_ns = (runner.debt_ns - given).max(0.0);
            return;
        }
        let gone = if runner.duration_ns > 0.0 { given / runner.duration_ns } else { runner.left };
        let share = if is_done || runner.left - gone <= DONE { runner.left } else { gone };
        if share <= 0.0 {
            return;
        }
        runner.left -= share;
        if entry.slot.is_none_or(|slot| epoch.spent[slot].behaviour != work.behaviour) {
            entry.slot = Some(epoch.spent.len());
            epoch.spent.push(Spent { thread: thread as u32, behaviour: work.behaviour, ..Spent::default() });
        }
        let Some(spent) = entry.slot.and_then(|slot| epoch.spent.get_mut(slot)) else {
            return;
        };
        spent.busy_ns += given;
        spent.own_ns += share * work.own_ns;
        spent.accesses += share * work.accesses;
        spent.instructions += share * work.instructions;
    }

    /// Adds everything that is still pending: the epoch ends now.
    pub(crate) fn close(&mut self, runners: &mut Runners, program: &Program, epoch: &mut Epoch) {
        for thread in 0..self.entries.len() {
            if self.entries[thread].speed > 0.0 {
                self.record(thread, false, runners, program, epoch);
            }
        }
    }
}
