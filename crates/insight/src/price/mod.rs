//! Predicts the run time of a program under some placement. The traffic model (AMVA) gives the latencies of each window of time, and the recorded dependences
//! between threads turn them into a run time.
//!
//! In each window the threads of a node are a class of a closed queueing network, whose solution is the loaded latency of every pair of nodes. A thread's work
//! in the window takes the recorded time plus the change of its accesses' latencies, divided by the accesses that it keeps outstanding. The recorded waits
//! ([`course`]) then give the end of each thread and of the run: time saved while waiting for others is no gain. `docs/patterns.md`, "Prices", has the
//! equations and a comparison with the simulator.

mod crowding;
#[cfg(test)]
mod edges;
mod ensemble;
pub(crate) mod members;
mod shrink;
mod sums;
mod unknown;
mod watched;
mod window;

pub(crate) use watched::Watched;
pub(crate) use window::Window;

use std::borrow::Cow;

use numapilot_machine::{CpuId, Machine, Node, NodeIndex};
use numapilot_traffic::{Class, Load, MemorySystem, Solver, TrafficError, worse_residual};

use self::crowding::{Crowding, Held, Times};
use self::members::{Members, nominal, paces_on};
use self::shrink::Threads;
use self::sums::{Line, Rest, Sums};
use self::unknown::Unknown;
use crate::course::Walked;
use crate::usage::pace::Pace;
use crate::usage::{Cell, PARTS, Row, Usage, WRITE};

/// When the alternating computation of latencies and times ends.
struct Effort {
    /// Largest number of rounds, each of which computes latencies from times, and times from latencies.
    rounds: usize,
    /// Relative change of the run time at which that ends.
    settled: f64,
}

/// The effort for the machine as described.
const EFFORT: Effort = Effort { rounds: 6, settled: 1e-4 };
/// How many times as many rounds are allowed where threads share CPUs.
const CROWDED_TIMES: usize = 4;
/// Relative change of the run time that a computation may leave without being reported: less than a gain is shown to.
const UNSETTLED_LEAST: f64 = 1e-3;

/// The memory that answers an access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// The memory of one node; `None`: it is not known of which.
    Node(Option<NodeIndex>),
    /// The memory of all nodes, in these shares.
    Spread(&'a [f64]),
    /// No node's memory: a cache answers the access.
    Gone,
}

/// A change of placement.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    /// The memory that answers the accesses of a cell.
    pub to: &'a dyn Fn(&Cell) -> To<'a>,
    /// The node on which the thread of a row runs.
    pub seat: &'a dyn Fn(&Row) -> NodeIndex,
    /// Cost of carrying it out, in nanoseconds of run time.
    pub extra_ns: f64,
    /// Cost of carrying it out in nanoseconds of work: the sum over all threads that do so.
    pub extra_work_ns: f64,
}

/// What the price function predicts of the run with a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priced {
    /// Predicted run time, ns.
    pub run_ns: f64,
    /// Where the computation did not converge, the relative change of `run_ns` that its last step still made: `run_ns` is off by at least about that. 0: it
    /// converged.
    pub unsettled: f64,
    /// Predicted run time with each part of the samples left out, ns.
    pub parts_ns: [f64; PARTS],
    /// Predicted run time for each member of the ensemble ([`Pricer::with_ensemble`]), ns.
    pub members_ns: Vec<f64>,
    /// By member: mean latency of each of the accesses that are watched ([`Pricer::watching`]), ns.
    pub watched_ns: Vec<Vec<f64>>,
    /// Sum of the busy times of all threads, ns: without waits for other threads and for input and output, and without sleeps, by the counters.
    pub busy_ns: f64,
    /// Sum of the times in which threads worked, ns: in no recorded wait, in no sleep, and not waiting for a CPU that they share.
    pub worked_ns: f64,
    /// `worked_ns` with each part of the samples left out, and for each member of the ensemble.
    pub parts_worked_ns: [f64; PARTS],
    pub members_worked_ns: Vec<f64>,
    /// The part of `busy_ns` spent waiting for memory.
    pub memory_ns: f64,
    /// Memory accesses by accessing (row) and answering node (column), and the sum of their latencies, ns.
    pub accesses: Vec<Vec<f64>>,
    pub latency_ns: f64,
    /// The windows of time, in order.
    pub windows: Vec<Window>,
}

/// Computes prices of one program on one machine.
pub(crate) struct Pricer<'a> {
    pub machine: &'a Machine,
    pub usage: &'a Usage,
    system: MemorySystem,
    /// Paces on the core as described: `[window * threads + thread]`.
    paces: Vec<Pace>,
    rows_of: Vec<Vec<u32>>,
    /// Sampled accesses of each row.
    weight: Vec<f64>,
    /// By node: CPUs on which threads can run, at least one.
    cpus: Vec<f64>,
    pub members: Members,
    /// Accesses whose mean latency each member tells.
    watched: Vec<Watched>,
    /// `None` where all homes are known.
    unknown: Option<Unknown>,
    /// `None` where no thread waits for a CPU.
    crowding: Option<Crowding>,
}

/// Does something with the change that leaves everything as it was recorded.
fn as_recorded<T>(of: impl FnOnce(&Change<'_>) -> T) -> T {
    of(&Change { to: &|cell| To::Node(cell.home.index()), seat: &|row| row.from, extra_ns: 0.0, extra_work_ns: 0.0 })
}

/// CPUs of each node that are online, at least one: with hardware threads switched off, half of a node's are not.
fn online_cpus(nodes: &[Node], is_online: impl Fn(CpuId) -> bool) -> Vec<f64> {
    nodes.iter().map(|node| node.cpus.iter().filter(|cpu| is_online(**cpu)).count().max(1) as f64).collect()
}

/// The sums of a change, which are the same for every member of the ensemble.
struct Gathered {
    sums: Sums,
    /// By row: reads by answering node, then writes.
    rows: Vec<Vec<f64>>,
    /// Rows with their shares, by window.
    lines: Vec<Vec<Line>>,
    moves_threads: bool,
    /// By window: who holds CPUs of which node; empty where no thread moves.
    held: Vec<Vec<Held>>,
    extra_ns: f64,
    extra_work_ns: f64,
}

/// What two nested computations left of the run time: the change of the last round, and that of the latencies in it. 0: too little to be reported.
fn unsettled(round: f64, latencies: f64) -> f64 {
    let left = round + latencies;
    // Latencies that are no number would be hidden by a comparison the other way round.
    if left <= UNSETTLED_LEAST { 0.0 } else { left }
}

/// Times and latencies that are consistent with each other.
#[derive(Clone)]
struct Settled {
    windows: Vec<Window>,
    /// `[window * threads + thread]`, ns.
    busy: Vec<f64>,
    walked: Walked,
    /// `[window * threads + thread]`: factor by which work lasts longer because threads share CPUs.
    stretches: Vec<f64>,
    /// Relative change of the run time in the last round ([`Pricer::round`]).
    change: f64,
    /// Share of the work that goes to whichever thread is free ([`Pricer::share_out`]).
    taken: f64,
}

impl<'a> Pricer<'a> {
    /// # Errors
    /// If the machine's description lacks what the traffic model needs.
    pub fn new(machine: &'a Machine, usage: &'a Usage) -> Result<Pricer<'a>, TrafficError> {
        let mut rows_of = vec![Vec::new(); usage.windows.count];
        for (index, row) in usage.rows.iter().enumerate() {
            rows_of[usize::from(row.window)].push(index as u32);
        }
        let mut weight = vec![0.0; usage.rows.len()];
        for (cell, count) in &usage.cells {
            weight[cell.row as usize] += count;
        }
        let system = MemorySystem::new(machine)?;
        let mut paces = usage.paces.clone();
        paces_on(&nominal(machine, usage), usage, &mut paces);
        let cpus = online_cpus(machine.nodes(), |id| machine.cpu(id).is_some_and(|cpu| cpu.online));
        let (members, watched, unknown) = (Members::default(), Vec::new(), None);
        let crowding = Crowding::of(usage);
        let pricer =
            Pricer { machine, usage, system, paces, rows_of, weight, cpus, members, watched, unknown, crowding };
        let unknown = Unknown::of(usage, || as_recorded(|change| pricer.sums(change)));
        Ok(Pricer { unknown, ..pricer })
    }

    /// Also prices each change for the members of an ensemble ([`members`]): `times` as many as usual.
    ///
    /// # Errors
    /// If the machine's description lacks what the traffic model needs.
    pub fn with_ensemble(mut self, times: usize) -> Result<Pricer<'a>, TrafficError> {
        self.members = Members::of(self.machine, self.usage, times)?;
        Ok(self)
    }

    /// Also has each member tell the mean latency of these accesses.
    pub fn watching(self, watched: Vec<Watched>) -> Pricer<'a> {
        Pricer { watched, ..self }
    }

    /// Prices the program as it was recorded.
    pub fn now(&self) -> Result<Priced, TrafficError> {
        as_recorded(|change| self.price(change, true))
    }

    /// Prices the program with a change. `by_members`: also for each member of the ensemble, which takes most of the time.
    pub fn price(&self, change: &Change<'_>, by_members: bool) -> Result<Priced, TrafficError> {
        let usage = self.usage;
        let gathered = self.gather(change);
        let recorded = Settled {
            windows: vec![Window::default(); usage.windows.count],
            busy: self.paces.iter().map(|pace| pace.busy_ns).collect(),
            walked: usage.course.walk(&usage.course.worked_ns),
            stretches: crowding::recorded(&usage.paces),
            change: 0.0,
            taken: 0.0,
        };
        let mut solver = Solver::default();
        // Of each window's last solution: what it would still change.
        let mut residuals = vec![0.0; usage.windows.count];
        let settled = self.settle(&gathered, recorded, &self.paces, &EFFORT, |at, window, load| {
            let solution = solver.without_marginal(&self.system, load)?;
            residuals[at] = if solution.converged() { 0.0 } else { solution.residual };
            window.path_ns.clone_from(&solution.path_ns);
            window.stations = solution.stations.iter().map(|station| station.utilisation).collect();
            Ok(())
        })?;
        let of_members = if by_members { self.of_members(&gathered, &settled)? } else { Vec::new() };
        let (members_ns, members_worked_ns) = of_members.iter().map(|of| (of.run_ns, of.worked_ns)).unzip();
        let watched_ns = of_members.into_iter().map(|of| of.watched_ns).collect();
        let Settled { windows, busy, walked, stretches, change, .. } = settled;
        let lines = &gathered.lines;
        let (mut parts_ns, mut parts_worked_ns) = ([0.0; PARTS], [0.0; PARTS]);
        for (part, (ns, worked_ns)) in parts_ns.iter_mut().zip(&mut parts_worked_ns).enumerate() {
            let rest = Rest::of(part, self.usage, &gathered.sums, &gathered.rows);
            let unknown = self.unknown.as_ref().map(|unknown| unknown.without(part, self.usage));
            let shares = |line: &Line| unknown.as_ref().filter(|_| line.is_unknown).unwrap_or(&rest).shares(line);
            let memory = self.memory_ns(lines, &windows, &self.paces, |line| Cow::Owned(shares(line)));
            *ns = gathered.extra_ns + self.walk(&gathered, &self.paces, &memory, (&busy, &stretches), 0.0).end_ns;
            let of_part: Vec<f64> = self.paces.iter().zip(&memory).map(|(pace, ns)| pace.own_ns + ns).collect();
            *worked_ns = gathered.extra_work_ns + self.worked_ns(&of_part);
        }
        let busy_ns: f64 = busy.iter().sum();
        let own_ns: f64 = self.paces.iter().map(|pace| pace.own_ns).sum();
        let (accesses, latency_ns) = self.traffic(lines, &windows);
        let memory_ns = (busy_ns - own_ns).max(0.0);
        let residual = residuals.into_iter().fold(0.0, worse_residual);
        Ok(Priced {
            run_ns: gathered.extra_ns + walked.end_ns,
            unsettled: unsettled(change, residual * memory_ns / busy_ns.max(1.0)),
            parts_ns,
            members_ns,
            watched_ns,
            busy_ns,
            worked_ns: gathered.extra_work_ns + self.worked_ns(&busy),
            parts_worked_ns,
            members_worked_ns,
            memory_ns,
            accesses,
            latency_ns,
            windows,
        })
    }

    /// Sum of the times in which threads worked, from their busy times (`[window * threads + thread]`, ns): without waits for a CPU that they share.
    fn worked_ns(&self, busy: &[f64]) -> f64 {
        let worked = self.usage.course.worked_ns.iter().zip(&self.usage.paces).zip(busy);
        worked.map(|((worked, was), busy)| (worked / was.stretch + (busy - was.busy_ns)).max(0.0)).sum()
    }

    fn gather(&self, change: &Change<'_>) -> Gathered {
        let usage = self.usage;
        let sums = self.sums(change);
        let rows = sums.all();
        let threads = Threads::of(usage, &rows, &sums.own_of_all());
        let mut lines: Vec<Vec<Line>> =
            (0..usage.windows.count).map(|window| self.lines(window, change, &sums.gone, &rows, &threads)).collect();
        if let Some(unknown) = &self.unknown {
            for (window, lines) in lines.iter_mut().enumerate() {
                let recorded = self.lines(window, change, &unknown.sums.gone, &unknown.rows, &unknown.threads);
                unknown.add(window, lines, recorded);
            }
        }
        let moves_threads = lines.iter().flatten().any(|line| line.from != usage.rows[line.row as usize].from);
        let held = if moves_threads { crowding::holders(usage, &lines, change.seat) } else { Vec::new() };
        let (extra_ns, extra_work_ns) = (change.extra_ns, change.extra_work_ns);
        Gathered { sums, rows, lines, moves_threads, held, extra_ns, extra_work_ns }
    }

    /// Computes latencies and times in turn, from `settled` on, until they agree. `solve` fills the latencies of a window, given with its number.
    fn settle(
        &self,
        gathered: &Gathered,
        mut settled: Settled,
        paces: &[Pace],
        effort: &Effort,
        mut solve: impl FnMut(usize, &mut Window, &Load) -> Result<(), TrafficError>,
    ) -> Result<Settled, TrafficError> {
        // How many threads want each CPU is found in turn with the rest, too.
        let rounds = if self.crowding.is_some() { CROWDED_TIMES * effort.rounds } else { effort.rounds };
        for _ in 0..rounds {
            settled.change = self.round(gathered, &mut settled, paces, &mut solve)?;
            if settled.change <= effort.settled {
                break;
            }
        }
        Ok(settled)
    }

    /// One round; returns the relative change of the run time, and where sleeps decide that, in addition that of the work.
    fn round(
        &self,
        gathered: &Gathered,
        settled: &mut Settled,
        paces: &[Pace],
        solve: &mut impl FnMut(usize, &mut Window, &Load) -> Result<(), TrafficError>,
    ) -> Result<f64, TrafficError> {
        let threads = self.usage.threads;
        let old_work_ns = self.usage.paced().map(|_| self.worked_ns(&settled.busy));
        let mut before_ns = 0.0;
        for (at, lines) in gathered.lines.iter().enumerate() {
            let of = at * threads..(at + 1) * threads;
            let window = &mut settled.windows[at];
            window.lasted_ns = settled.walked.done_ns[at] - before_ns;
            before_ns = settled.walked.done_ns[at];
            let (busy, stretches) = (&settled.busy[of.clone()], &settled.stretches[of.clone()]);
            let load = self.load(lines, &paces[of], busy, stretches, window.lasted_ns);
            if !load.classes.is_empty() {
                solve(at, window, &load)?;
            }
        }
        let memory = self.memory_ns(&gathered.lines, &settled.windows, paces, |line| Cow::Borrowed(&line.shares));
        paces.iter().zip(&memory).zip(&mut settled.busy).for_each(|((pace, ns), busy)| *busy = pace.own_ns + ns);
        self.share_out(&mut settled.busy, |at| self.usage.paces[at].busy_ns, settled.taken);
        let old_ns = settled.walked.end_ns;
        settled.walked = self.walk(gathered, paces, &memory, (&settled.busy, &settled.stretches), settled.taken);
        if let Some(crowding) = &self.crowding {
            let times = Times { busy: &settled.busy, end_ns: settled.walked.end_ns };
            let next = if gathered.moves_threads {
                crowding.of_nodes(self.usage, &gathered.held, &self.cpus, &settled.stretches, &times)
            } else {
                crowding.of_cpus(self.usage, &settled.stretches, &times)
            };
            // Half of the way: a longer run leaves CPUs free, which makes it shorter.
            settled.stretches.iter_mut().zip(next).for_each(|(stretch, next)| *stretch += 0.5 * (next - *stretch));
        }
        let of_work = |old_ns: f64| (self.worked_ns(&settled.busy) - old_ns).abs() / old_ns.max(1.0);
        // A sum, because the larger of a number and no number would hide the latter.
        Ok((settled.walked.end_ns - old_ns).abs() / old_ns.max(1.0) + old_work_ns.map_or(0.0, of_work))
    }

    /// Walks the course with work times that follow from own work and waiting for memory (`[window * threads + thread]`, ns). Where the change moves threads,
    /// those on a node with more work than CPUs also wait for each other. Of each thread in each window: its busy time, ns, and the factor by which its work
    /// lasts longer because it shares its CPU.
    fn walk(
        &self,
        gathered: &Gathered,
        paces: &[Pace],
        memory_ns: &[f64],
        (busy, stretches): (&[f64], &[f64]),
        taken: f64,
    ) -> Walked {
        let usage = self.usage;
        let work = |at: usize| {
            let (was, is_ns) = (&usage.paces[at], paces[at].own_ns + memory_ns[at]);
            let as_crowded = usage.course.worked_ns[at] + was.stretch * (is_ns - was.busy_ns);
            (as_crowded + (stretches[at] - was.stretch) * is_ns).max(0.0)
        };
        let mut work_ns: Vec<f64> = (0..memory_ns.len()).map(work).collect();
        self.share_out(&mut work_ns, |at| usage.course.worked_ns[at], taken);
        let walked = usage.course.walk(&work_ns);
        if !gathered.moves_threads || self.crowding.is_some() {
            return walked;
        }
        let mut before_ns = 0.0;
        for (window, held) in gathered.held.iter().enumerate() {
            let lasted_ns = walked.done_ns[window] - before_ns;
            before_ns = walked.done_ns[window];
            // A window lasts at least as long as its longest thread, even if other threads are ahead.
            let mut of_node = vec![(0.0, lasted_ns); usage.nodes];
            for held in held {
                let busy_ns = busy[window * usage.threads + held.thread];
                let (sum, lasted) = of_node[held.from];
                of_node[held.from] = (sum + busy_ns * held.part, busy_ns.max(lasted));
            }
            // A thread that the recording shows on several nodes holds a part on each: its longer times add up.
            let mut longer = vec![1.0; usage.threads];
            for held in held {
                let (sum, lasted) = of_node[held.from];
                let crowded = if lasted > 0.0 { sum / (lasted * self.cpus[held.from]) } else { 1.0 };
                longer[held.thread] += held.part * (crowded - 1.0).max(0.0);
            }
            let of_window = &mut work_ns[window * usage.threads..(window + 1) * usage.threads];
            of_window.iter_mut().zip(longer).for_each(|(ns, longer)| *ns *= longer);
        }
        usage.course.walk(&work_ns)
    }

    /// Who takes the next piece of work when it is free does more of it the faster it is, so that all threads of a process that work in a window take longer by
    /// the same factor. `taken` is the share of the work of which that holds. `now` is the time of each thread for the work that it did in the recording
    /// (`[window * threads + thread]`, ns), `was` the time that it took there.
    fn share_out(&self, now: &mut [f64], was: impl Fn(usize) -> f64, taken: f64) {
        if taken <= 0.0 {
            return;
        }
        let (threads, process_of) = (self.usage.threads.max(1), &self.usage.course.process_of);
        let processes = process_of.iter().max().map_or(0, |most| *most as usize + 1);
        for (window, now) in now.chunks_exact_mut(threads).enumerate() {
            let was = |thread: usize| was(window * threads + thread);
            // By process: the work of the recording, and how much of it its threads do in the time that it took there.
            let mut sums = vec![(0.0, 0.0); processes];
            for (thread, now) in now.iter().enumerate().filter(|(_, now)| **now > 0.0) {
                let (work, done) = &mut sums[process_of[thread] as usize];
                *work += was(thread);
                *done += was(thread) * was(thread) / now;
            }
            for (thread, now) in now.iter_mut().enumerate() {
                let (work, done) = sums[process_of[thread] as usize];
                if done > 0.0 && was(thread) > 0.0 {
                    *now += taken * (was(thread) * work / done - *now);
                }
            }
        }
    }

    fn sums(&self, change: &Change<'_>) -> Sums {
        let (rows, nodes) = (self.usage.rows.len(), self.usage.nodes);
        let width = 2 * nodes;
        let (to, own) = (vec![0.0; PARTS * rows * width], vec![0.0; PARTS * rows]);
        let mut sums = Sums { to, own, gone: vec![0.0; rows], rows, width };
        for (cell, count) in &self.usage.cells {
            let row = cell.row as usize;
            let at = usize::from(cell.part) * rows + row;
            let first = at * width + if cell.flags & WRITE != 0 { nodes } else { 0 };
            let mut add = |node: NodeIndex, share: f64| {
                sums.to[first + node.0] += count * share;
                sums.own[at] += count * share * share;
            };
            match (change.to)(cell) {
                To::Node(None) => {}
                To::Node(Some(node)) => add(node, 1.0),
                To::Spread(shares) => {
                    let by_node = NodeIndex::all(shares.len()).zip(shares);
                    by_node.filter(|(_, share)| **share > 0.0).for_each(|(node, share)| add(node, *share));
                }
                To::Gone => sums.gone[row] += count,
            }
        }
        sums
    }

    /// Accesses by accessing and answering node, and the sum of their latencies.
    fn traffic(&self, lines: &[Vec<Line>], windows: &[Window]) -> (Vec<Vec<f64>>, f64) {
        let usage = self.usage;
        let mut accesses = vec![vec![0.0; usage.nodes]; usage.nodes];
        let mut latency_ns = 0.0;
        for (at, (lines, window)) in lines.iter().zip(windows).enumerate().filter(|(_, of)| !of.1.path_ns.is_empty()) {
            for line in lines {
                let made = usage.paces[at * usage.threads + line.thread].accesses * line.part * line.left;
                for (to, share) in line.shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                    let to = NodeIndex(to % usage.nodes);
                    accesses[line.from][to] += made * share;
                    latency_ns += made * share * window.path_ns[line.from][to];
                }
            }
        }
        (accesses, latency_ns)
    }

    /// The rows of a window that access memory, with what they do.
    fn lines(
        &self,
        window: usize,
        change: &Change<'_>,
        gone: &[f64],
        rows: &[Vec<f64>],
        threads: &Threads,
    ) -> Vec<Line> {
        let usage = self.usage;
        let mut of_thread = vec![0.0; usage.threads];
        // A row of which no access has a known home does not tell where its accesses go: the thread's others in this window stand for them.
        let is_told = |row: &&u32| gone[**row as usize] > 0.0 || rows[**row as usize].iter().sum::<f64>() > 0.0;
        for &row in self.rows_of[window].iter().filter(is_told) {
            of_thread[usage.rows[row as usize].thread as usize] += self.weight[row as usize];
        }
        let line = |&row: &u32| {
            let place = &usage.rows[row as usize];
            let thread = place.thread as usize;
            let weight = self.weight[row as usize];
            let all = &rows[row as usize];
            let known: f64 = all.iter().sum();
            let gone = gone[row as usize];
            (known > 0.0 || gone > 0.0).then(|| Line {
                row,
                thread,
                from: (change.seat)(place),
                part: weight / of_thread[thread],
                // Of the accesses whose home is known: only their shares are loaded, and what goes is among them.
                left: known / (known + gone),
                shares: threads.shares(thread, all),
                is_unknown: false,
            })
        };
        self.rows_of[window].iter().filter_map(line).collect()
    }

    /// A class for each node whose threads access memory.
    fn load(&self, lines: &[Line], paces: &[Pace], busy: &[f64], stretches: &[f64], lasted_ns: f64) -> Load {
        let nodes = self.usage.nodes;
        let mut classes: Vec<Option<Class>> = vec![None; nodes];
        let mut accesses_of = vec![0.0; nodes];
        for line in lines {
            let (pace, busy, stretch) = (&paces[line.thread], busy[line.thread], stretches[line.thread]);
            let accesses = pace.accesses * line.part * line.left;
            if accesses <= 0.0 || busy <= 0.0 {
                continue;
            }
            accesses_of[line.from] += accesses;
            let class = classes[line.from].get_or_insert_with(|| Class {
                from: line.from.0,
                threads: 0.0,
                outstanding: 0.0,
                think_ns: 0.0,
                reads: vec![0.0; nodes],
                writes: vec![0.0; nodes],
            });
            // A thread does not work longer than the window lasts: where it drifts from the others, it works all the time but for its waits for a CPU.
            class.threads += (busy / lasted_ns.max(stretch * busy)) * line.part;
            class.outstanding += accesses / pace.outstanding;
            class.think_ns += pace.own_ns * line.part;
            for to in 0..nodes {
                class.reads[to] += accesses * line.shares[to];
                class.writes[to] += accesses * line.shares[nodes + to];
            }
        }
        let mut load = Load::default();
        for (mut class, accesses) in classes.into_iter().zip(accesses_of).filter_map(|(c, a)| Some((c?, a))) {
            // Accesses over the time in which they are waited for, in latencies (Little's law). Of a mean by accesses more would wait than threads' times say.
            class.outstanding = accesses / class.outstanding;
            class.think_ns /= accesses;
            // However far threads drift apart, no more of them run at once than the node has CPUs.
            class.threads = class.threads.min(self.cpus[NodeIndex(class.from)]);
            let sum: f64 = class.reads.iter().chain(&class.writes).sum();
            class.reads.iter_mut().chain(&mut class.writes).for_each(|share| *share /= sum);
            load.classes.push(class);
        }
        load
    }

    /// By window and thread: how long its accesses keep it waiting at these latencies, ns. In a window of which no sample tells, accesses take as long as in
    /// the nearest that has some. Shares that are all 0 tell nothing: all of the thread's samples are in the part that is left out.
    fn memory_ns<'l>(
        &self,
        lines: &'l [Vec<Line>],
        windows: &[Window],
        paces: &[Pace],
        shares: impl Fn(&'l Line) -> Cow<'l, [f64]>,
    ) -> Vec<f64> {
        let usage = self.usage;
        let mut latency: Vec<Option<f64>> = vec![None; paces.len()];
        for (window, lines) in lines.iter().enumerate() {
            for line in lines {
                let path: &[f64] = windows[window].path_ns.get(line.from.0).map_or(&[], Vec::as_slice);
                let shares = shares(line);
                let used = shares.iter().zip(path.iter().cycle()).filter(|(share, _)| **share > 0.0);
                // What caches answer waits for no memory, also where nothing else in the window has a latency.
                let of_one = if line.left > 0.0 {
                    used.map(|(share, ns)| share * ns).reduce(|sum, ns| sum + ns)
                } else {
                    Some(0.0)
                };
                if let Some(of_one) = of_one {
                    *latency[window * usage.threads + line.thread].get_or_insert(0.0) += line.part * line.left * of_one;
                }
            }
        }
        let mut memory: Vec<f64> = paces.iter().map(|pace| pace.busy_ns - pace.own_ns).collect();
        for (at, pace) in paces.iter().enumerate().filter(|(_, pace)| pace.accesses > 0.0) {
            let (window, thread) = (at / usage.threads, at % usage.threads);
            let of = |window: usize| latency.get(window * usage.threads + thread).copied().flatten();
            let near = |away: usize| window.checked_sub(away).and_then(of).or_else(|| of(window + away));
            // Whose accesses were never sampled keeps the time that was recorded.
            if let Some(latency) = (0..usage.windows.count).find_map(near) {
                memory[at] = pace.accesses * latency / pace.outstanding;
            }
        }
        memory
    }

    /// The pace of a row's thread in its window, on the core as described.
    pub fn pace(&self, row: &Row) -> &Pace {
        &self.paces[usize::from(row.window) * self.usage.threads + row.thread as usize]
    }

    /// By row: accesses that one sampled access stands for, by what its thread made in its window.
    pub fn scales(&self) -> Vec<f64> {
        let usage = self.usage;
        let mut sampled = vec![0.0; usage.windows.count * usage.threads];
        let at = |row: &Row| usize::from(row.window) * usage.threads + row.thread as usize;
        usage.rows.iter().zip(&self.weight).for_each(|(row, weight)| sampled[at(row)] += weight);
        let scale =
            |row: &Row| if sampled[at(row)] > 0.0 { usage.paces[at(row)].accesses / sampled[at(row)] } else { 0.0 };
        usage.rows.iter().map(scale).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::PackedNode;

    /// The committed trace of a multigrid program, and its machine.
    fn multigrid() -> (numapilot_flows::Trace, Machine) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
        let trace = numapilot_flows::Trace::open(&folder).expect("a committed trace");
        let machine = trace.machine().expect("a machine");
        (trace, machine)
    }

    #[test]
    fn what_a_computation_leaves_open_is_reported_from_a_tenth_of_a_percent() {
        assert_eq!(unsettled(5e-4, 4e-4), 0.0);
        assert_eq!(unsettled(0.02, 0.01), 0.03);
        assert_eq!(unsettled(0.0, f64::INFINITY), f64::INFINITY);
        assert!(unsettled(f64::NAN, 0.0).is_nan(), "no number is no convergence");
    }

    /// Sixteen threads meet at barriers: what they work is less than their lifetimes, and becomes more where their accesses take longer.
    #[test]
    fn the_work_of_threads_leaves_out_their_waits() {
        let (trace, machine) = multigrid();
        let analysis = crate::Analysis::on(&trace, Some(&machine), numapilot_flows::Filter::default());
        let usage = Usage::of(&analysis, &machine, &std::collections::BTreeMap::new());
        let pricer = Pricer::new(&machine, &usage).expect("a pricer");
        let recorded: Vec<f64> = usage.paces.iter().map(|pace| pace.busy_ns).collect();
        let worked_ns = pricer.worked_ns(&recorded);
        // Their lifetimes less their recorded waits, by a query of the tables.
        assert!((worked_ns / 705.7e6 - 1.0).abs() < 0.01, "{worked_ns} ns");
        let longer: Vec<f64> = recorded.iter().map(|ns| ns + 1e3).collect();
        assert!(pricer.worked_ns(&longer) > worked_ns);
        let now = pricer.now().expect("a price");
        assert!(
            now.worked_ns > worked_ns && now.worked_ns < 16.0 * now.run_ns,
            "{} of {} ns",
            now.worked_ns,
            now.run_ns
        );
    }

    /// A round that is cut short leaves what its last step changed.
    #[test]
    fn a_price_that_did_not_converge_says_so() {
        let (trace, machine) = multigrid();
        let analysis = crate::Analysis::on(&trace, Some(&machine), numapilot_flows::Filter::default());
        let usage = Usage::of(&analysis, &machine, &std::collections::BTreeMap::new());
        let pricer = Pricer::new(&machine, &usage).expect("a pricer");
        let change = Change {
            to: &|cell| To::Node(cell.home.index().map(|_| NodeIndex(0))),
            seat: &|row| row.from,
            extra_ns: 0.0,
            extra_work_ns: 0.0,
        };
        let gathered = pricer.gather(&change);
        let settled = |rounds| {
            let begin = Settled {
                windows: vec![Window::default(); usage.windows.count],
                busy: pricer.paces.iter().map(|pace| pace.busy_ns).collect(),
                walked: usage.course.walk(&usage.course.worked_ns),
                stretches: crowding::recorded(&usage.paces),
                change: 0.0,
                taken: 0.0,
            };
            let mut solver = Solver::default();
            let effort = Effort { rounds, ..EFFORT };
            let settled = pricer.settle(&gathered, begin, &pricer.paces, &effort, |_, window, load| {
                window.path_ns.clone_from(&solver.solve(&pricer.system, load)?.path_ns);
                Ok(())
            });
            settled.expect("a solution").change
        };
        assert!(
            settled(1) > settled(EFFORT.rounds),
            "{} after one round, {} after all",
            settled(1),
            settled(EFFORT.rounds)
        );
        assert!(unsettled(settled(1), 0.0) > 0.0, "all memory on one node takes longer: {}", settled(1));
    }

    /// Accesses whose homes are not known are like the thread's others, wherever it made them.
    #[test]
    fn a_thread_waits_for_accesses_of_unknown_homes_on_another_node_too() {
        let (trace, machine) = multigrid();
        let analysis = crate::Analysis::on(&trace, Some(&machine), numapilot_flows::Filter::default());
        let mut usage = Usage::of(&analysis, &machine, &std::collections::BTreeMap::new());
        let run_ns = |usage: &Usage| Pricer::new(&machine, usage).expect("a pricer").now().expect("a price").run_ns;
        let known_ns = run_ns(&usage);
        // For each row, one of the next node with as many accesses, of which no home is known.
        let (rows, nodes) = (usage.rows.len() as u32, usage.nodes);
        let next = |row: &Row| Row { from: NodeIndex((row.from.0 + 1) % nodes), ..*row };
        let twins: Vec<Row> = usage.rows.iter().map(next).collect();
        let cells: Vec<(Cell, f64)> = usage
            .cells
            .iter()
            .map(|(cell, count)| (Cell { row: cell.row + rows, home: PackedNode::NONE, ..*cell }, *count))
            .collect();
        usage.rows.extend(twins);
        usage.cells.extend(cells);
        let all_ns = run_ns(&usage);
        assert!((all_ns / known_ns - 1.0).abs() < 1e-6, "{all_ns} ns, {known_ns} ns where all homes are known");
    }

    /// All memory on one node: threads far from it take longer than others, and where work is taken by whoever is free they do less of it. With half of it, the
    /// run time lies between; with none, it is that of the machine as described.
    #[test]
    fn slowed_threads_do_less_where_work_is_taken() {
        let (trace, machine) = multigrid();
        let analysis = crate::Analysis::on(&trace, Some(&machine), numapilot_flows::Filter::default());
        assert!(!Usage::of(&analysis, &machine, &std::collections::BTreeMap::new()).takes_work);
        let usage = Usage::of(&analysis.of_taken_work(), &machine, &std::collections::BTreeMap::new());
        let mut pricer = Pricer::new(&machine, &usage).expect("a pricer");
        let member = |taken: f64| {
            let system = MemorySystem::new(&machine).expect("a whole machine");
            members::Member { taken, ..members::Member::new(system, nominal(&machine, &usage), 1.0) }
        };
        pricer.members.all = vec![member(0.0), member(0.5), member(1.0)];
        let change = Change {
            to: &|cell| To::Node(cell.home.index().map(|_| NodeIndex(0))),
            seat: &|row| row.from,
            extra_ns: 0.0,
            extra_work_ns: 0.0,
        };
        let priced = pricer.price(&change, true).expect("a price");
        let [recorded, half, taken] = priced.members_ns[..] else { panic!("{:?}", priced.members_ns) };
        assert!((recorded / priced.run_ns - 1.0).abs() < 0.01, "{recorded} ns, {} ns as described", priced.run_ns);
        assert!(taken < half && half < recorded, "{recorded}, {half}, {taken} ns");
        let named = Members::of(&machine, &usage, 1).expect("members");
        let division = named.open.iter().find(|open| open.place == "program.work_taken").expect("it varies");
        assert!(division.values.iter().all(|value| (0.0..=1.0).contains(value)));
        let taken = named.all.iter().map(|member| member.taken);
        assert!(taken.eq(division.values.iter().copied()));
    }

    /// The model's own error in queues reaches the run times of the ensemble.
    #[test]
    fn longer_queues_make_a_longer_run() {
        let (trace, machine) = multigrid();
        let analysis = crate::Analysis::on(&trace, Some(&machine), numapilot_flows::Filter::default());
        let usage = Usage::of(&analysis, &machine, &std::collections::BTreeMap::new());
        let mut pricer = Pricer::new(&machine, &usage).expect("a pricer");
        let member = |queues: f64| {
            let system = MemorySystem::new(&machine).expect("a whole machine");
            members::Member::new(system, nominal(&machine, &usage), queues)
        };
        pricer.members.all = vec![member(0.76), member(1.0), member(1.32)];
        let now = pricer.now().expect("a price");
        let [short, as_modelled, long] = now.members_ns[..] else { panic!("{:?}", now.members_ns) };
        assert!(short < as_modelled && as_modelled < long, "{short}, {as_modelled}, {long} ns");
        assert!((as_modelled / now.run_ns - 1.0).abs() < 0.01, "{as_modelled} ns, {} ns on the machine", now.run_ns);
    }
}
