//! What a run takes under some placement: the traffic model (AMVA) solved for each window of time, on aggregated counts.
//!
//! In each window the threads of a node are a class of the closed network; its solution gives the loaded latency of every pair of nodes; with it, each
//! thread's time is its own work plus its accesses' latencies over those that it keeps outstanding. The slowest thread of a window decides how long it
//! lasts, as where threads meet at barriers; time in which nobody worked stays. `docs/patterns.md`, "Prices", has the equations and how far they are
//! from the simulator's results.

use numapilot_machine::Machine;
use numapilot_traffic::{Class, Load, MemorySystem, Solver, TrafficError};

use crate::usage::{Cell, NONE, PARTS, Row, Usage, WRITE};

/// Times that the share of time in which threads work is computed anew from the times found.
const ROUNDS: usize = 3;

/// Where an access goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// To a node's memory.
    Node(u16),
    /// To all nodes, in these shares.
    Spread(&'a [f64]),
    /// Nowhere: a cache answers it.
    Gone,
}

/// What is done to a program.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    /// Where accesses go.
    pub to: &'a dyn Fn(&Cell) -> To<'a>,
    /// Where threads run.
    pub seat: &'a dyn Fn(&Row) -> u16,
    /// What it costs to carry out, in nanoseconds of run time.
    pub extra_ns: f64,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priced {
    /// Run time, ns.
    pub run_ns: f64,
    /// The same with each part of the samples left out.
    pub parts_ns: [f64; PARTS],
    /// Threads' time, summed, ns.
    pub busy_ns: f64,
    /// Of this, waiting for memory.
    pub memory_ns: f64,
    /// Of each window: how long it lasted, loaded latencies by node and node (empty where nobody accesses memory), and how busy each station was.
    pub windows: Vec<Window>,
}

/// A window under load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub lasted_ns: f64,
    pub path_ns: Vec<Vec<f64>>,
    /// Of each controller (in node order, nodes with memory only), then of each link.
    pub stations: Vec<f64>,
}

/// Computes prices of one program on one machine.
pub(crate) struct Pricer<'a> {
    pub machine: &'a Machine,
    pub usage: &'a Usage,
    system: MemorySystem,
    rows_of: Vec<Vec<u32>>,
    /// Sampled accesses of each row.
    weight: Vec<f64>,
}

/// Sums of a change, laid out for the windows.
struct Sums {
    /// `[(part * rows + row) * nodes + to]`.
    to: Vec<f64>,
    /// `[row * nodes + to]`, of all parts.
    writes: Vec<f64>,
    /// Of each row.
    gone: Vec<f64>,
    rows: usize,
    nodes: usize,
}

/// A row within its window.
struct Line {
    row: u32,
    thread: usize,
    from: usize,
    /// Accesses, those that are gone left out.
    accesses: f64,
    own_ns: f64,
    outstanding: f64,
    shares: Vec<f64>,
    writes: Vec<f64>,
}

impl<'a> Pricer<'a> {
    /// # Errors
    /// If the machine's description lacks what the traffic model needs.
    pub fn new(machine: &'a Machine, usage: &'a Usage) -> Result<Pricer<'a>, TrafficError> {
        let mut rows_of = vec![Vec::new(); usage.windows];
        for (index, row) in usage.rows.iter().enumerate() {
            rows_of[usize::from(row.window)].push(index as u32);
        }
        let mut weight = vec![0.0; usage.rows.len()];
        for (cell, count) in &usage.cells {
            weight[cell.row as usize] += count;
        }
        Ok(Pricer { machine, usage, system: MemorySystem::new(machine)?, rows_of, weight })
    }

    /// The program as it was.
    pub fn now(&self) -> Result<Priced, TrafficError> {
        self.price(&Change { to: &|cell| To::Node(cell.home), seat: &|row| row.from, extra_ns: 0.0 })
    }

    /// The program with a change.
    pub fn price(&self, change: &Change<'_>) -> Result<Priced, TrafficError> {
        let sums = self.sums(change);
        let mut solver = Solver::default();
        let mut priced = Priced { run_ns: change.extra_ns, ..Priced::default() };
        priced.parts_ns = [change.extra_ns; PARTS];
        for window in 0..self.usage.windows {
            self.window(window, change, &sums, &mut solver, &mut priced)?;
        }
        Ok(priced)
    }

    fn sums(&self, change: &Change<'_>) -> Sums {
        let (rows, nodes) = (self.usage.rows.len(), self.usage.nodes);
        let mut sums = Sums {
            to: vec![0.0; PARTS * rows * nodes],
            writes: vec![0.0; rows * nodes],
            gone: vec![0.0; rows],
            rows,
            nodes,
        };
        for (cell, count) in &self.usage.cells {
            let row = cell.row as usize;
            let part = usize::from(cell.part) * rows;
            let mut add = |node: usize, count: f64| {
                sums.to[(part + row) * nodes + node] += count;
                sums.writes[row * nodes + node] += if cell.flags & WRITE != 0 { count } else { 0.0 };
            };
            match (change.to)(cell) {
                To::Node(NONE) => {}
                To::Node(node) => add(usize::from(node), *count),
                To::Spread(shares) => {
                    shares.iter().enumerate().filter(|(_, s)| **s > 0.0).for_each(|(node, s)| add(node, count * s));
                }
                To::Gone => sums.gone[row] += count,
            }
        }
        sums
    }

    fn window(
        &self,
        window: usize,
        change: &Change<'_>,
        sums: &Sums,
        solver: &mut Solver,
        priced: &mut Priced,
    ) -> Result<(), TrafficError> {
        let usage = self.usage;
        let paces = &usage.paces[window * usage.threads..(window + 1) * usage.threads];
        let longest = paces.iter().map(|pace| pace.busy_ns).fold(0.0, f64::max);
        let slack_ns = (usage.window_ns - longest).max(0.0);
        let lines = self.lines(window, change, sums);
        let mut times: Vec<f64> = paces.iter().map(|pace| pace.busy_ns).collect();
        let mut lasted_ns = usage.window_ns.max(longest);
        let mut found = Window::default();
        for _ in 0..ROUNDS {
            let load = self.load(&lines, &times, lasted_ns);
            if load.classes.is_empty() {
                break;
            }
            let solution = solver.solve(&self.system, &load)?;
            found.path_ns.clone_from(&solution.path_ns);
            found.stations = solution.stations.iter().map(|station| station.utilisation).collect();
            times = self.times(paces, &lines, |line| line.shares.clone(), &found.path_ns);
            lasted_ns = slack_ns + self.slowest(&lines, &times);
        }
        found.lasted_ns = lasted_ns;
        priced.run_ns += lasted_ns;
        for part in 0..PARTS {
            let times = self.times(paces, &lines, |line| sums.without(part, line), &found.path_ns);
            let lasted_ns = if found.path_ns.is_empty() { lasted_ns } else { slack_ns + self.slowest(&lines, &times) };
            priced.parts_ns[part] += lasted_ns;
        }
        let own_ns: f64 = paces.iter().map(|pace| pace.own_ns).sum();
        let busy_ns: f64 = times.iter().sum();
        priced.busy_ns += busy_ns;
        priced.memory_ns += (busy_ns - own_ns).max(0.0);
        priced.windows.push(found);
        Ok(())
    }

    /// The rows of a window that access memory, with what they do.
    fn lines(&self, window: usize, change: &Change<'_>, sums: &Sums) -> Vec<Line> {
        let usage = self.usage;
        let mut of_thread = vec![0.0; usage.threads];
        for &row in &self.rows_of[window] {
            of_thread[usage.rows[row as usize].thread as usize] += self.weight[row as usize];
        }
        let line = |&row: &u32| {
            let place = &usage.rows[row as usize];
            let thread = place.thread as usize;
            let pace = &usage.paces[window * usage.threads + thread];
            let weight = self.weight[row as usize];
            let part = weight / of_thread[thread];
            let all = sums.all(row);
            let known: f64 = all.iter().sum();
            let left = 1.0 - sums.gone[row as usize] / weight;
            let accesses = pace.accesses * part * left;
            let ready = known > 0.0 && accesses > 0.0 && pace.busy_ns > 0.0;
            ready.then(|| Line {
                row,
                thread,
                from: usize::from((change.seat)(place)),
                accesses,
                own_ns: pace.own_ns * part,
                outstanding: pace.outstanding,
                shares: all.iter().map(|count| count / known).collect(),
                writes: sums.writes_of(row).iter().map(|count| count / known).collect(),
            })
        };
        self.rows_of[window].iter().filter_map(line).collect()
    }

    /// A class for each node whose threads access memory.
    fn load(&self, lines: &[Line], times: &[f64], lasted_ns: f64) -> Load {
        let mut load = Load::default();
        for from in 0..self.usage.nodes {
            let here = || lines.iter().filter(|line| line.from == from);
            let accesses: f64 = here().map(|line| line.accesses).sum();
            if accesses <= 0.0 {
                continue;
            }
            let mean = |of: &dyn Fn(&Line) -> f64| here().map(|line| line.accesses * of(line)).sum::<f64>() / accesses;
            let of_thread = |line: &Line| {
                let all: f64 = lines.iter().filter(|l| l.thread == line.thread).map(|l| l.accesses).sum();
                line.accesses / all
            };
            let threads = here().map(|line| times[line.thread] / lasted_ns * of_thread(line)).sum();
            let writes: Vec<f64> = (0..self.usage.nodes).map(|to| mean(&|line| line.writes[to])).collect();
            let reads = (0..self.usage.nodes).map(|to| (mean(&|line| line.shares[to]) - writes[to]).max(0.0));
            let (mut reads, mut writes) = (reads.collect::<Vec<_>>(), writes);
            let sum: f64 = reads.iter().chain(&writes).sum();
            reads.iter_mut().chain(&mut writes).for_each(|share| *share /= sum);
            let think_ns = here().map(|line| line.own_ns).sum::<f64>() / accesses;
            load.classes.push(Class {
                from,
                threads,
                outstanding: mean(&|line| line.outstanding),
                think_ns,
                reads,
                writes,
            });
        }
        load
    }

    /// Each thread's time at these latencies.
    fn times(
        &self,
        paces: &[crate::usage::pace::Pace],
        lines: &[Line],
        shares: impl Fn(&Line) -> Vec<f64>,
        path_ns: &[Vec<f64>],
    ) -> Vec<f64> {
        let mut seen = vec![false; paces.len()];
        let mut times: Vec<f64> = paces.iter().map(|pace| pace.own_ns).collect();
        for line in lines.iter().filter(|_| !path_ns.is_empty()) {
            let path = &path_ns[line.from];
            let latency: f64 =
                shares(line).iter().zip(path).filter(|(share, _)| **share > 0.0).map(|(s, ns)| s * ns).sum();
            times[line.thread] += line.accesses * latency / line.outstanding;
            seen[line.thread] = true;
        }
        // Whose accesses were not sampled in this window keeps the time that was recorded.
        times
            .iter_mut()
            .zip(&seen)
            .zip(paces)
            .filter(|((_, seen), _)| !**seen)
            .for_each(|((t, _), pace)| *t = pace.busy_ns);
        times
    }

    /// How long it takes until all are done: the slowest thread, or a node with more work than CPUs.
    fn slowest(&self, lines: &[Line], times: &[f64]) -> f64 {
        let mut of_node = vec![0.0; self.usage.nodes];
        let mut counted = vec![false; times.len()];
        for line in lines {
            if !std::mem::replace(&mut counted[line.thread], true) {
                of_node[line.from] += times[line.thread];
            }
        }
        let cpus = |node: usize| self.machine.nodes()[node].cpus.len().max(1) as f64;
        let nodes = of_node.iter().enumerate().map(|(node, ns)| ns / cpus(node));
        times.iter().copied().chain(nodes).fold(0.0, f64::max)
    }

    /// By row: accesses that one sampled access stands for, by what its thread made in its window.
    pub fn scales(&self) -> Vec<f64> {
        let usage = self.usage;
        let mut sampled = vec![0.0; usage.windows * usage.threads];
        let at = |row: &Row| usize::from(row.window) * usage.threads + row.thread as usize;
        usage.rows.iter().zip(&self.weight).for_each(|(row, weight)| sampled[at(row)] += weight);
        let scale =
            |row: &Row| if sampled[at(row)] > 0.0 { usage.paces[at(row)].accesses / sampled[at(row)] } else { 0.0 };
        usage.rows.iter().map(scale).collect()
    }
}

impl Sums {
    fn part(&self, part: usize, row: u32) -> &[f64] {
        let at = (part * self.rows + row as usize) * self.nodes;
        &self.to[at..at + self.nodes]
    }

    fn all(&self, row: u32) -> Vec<f64> {
        let mut all = vec![0.0; self.nodes];
        for part in 0..PARTS {
            all.iter_mut().zip(self.part(part, row)).for_each(|(sum, count)| *sum += count);
        }
        all
    }

    fn writes_of(&self, row: u32) -> &[f64] {
        &self.writes[row as usize * self.nodes..(row as usize + 1) * self.nodes]
    }

    /// A line's shares without one part of the samples; all of them where nothing else is left.
    fn without(&self, part: usize, line: &Line) -> Vec<f64> {
        let mut rest = self.all(line.row);
        rest.iter_mut().zip(self.part(part, line.row)).for_each(|(sum, count)| *sum -= count);
        let sum: f64 = rest.iter().sum();
        if sum <= 1e-9 { line.shares.clone() } else { rest.iter().map(|count| (count / sum).max(0.0)).collect() }
    }
}
