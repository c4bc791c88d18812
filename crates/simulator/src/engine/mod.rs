//! The epoch loop: threads advance with the latencies of the epoch, their load gives the latencies, until both agree. Then the policy's observer
//! reads the counters, the policy's actions are executed, and the next epoch begins.

mod advance;
mod agenda;
mod demand;
mod load;
mod mover;
mod observe;
pub(crate) mod place;
pub(crate) mod run_stats;
mod runner;
mod settle;
mod watch;
mod ways;

use std::collections::VecDeque;

use numapilot_machine::{Machine, NodeIndex};
use numapilot_placement::{NodeCounters, Observation, Policy, PolicyRequirements};
use numapilot_traffic::{Load, Solution};

use crate::error::SimulatorError;
use crate::ledger::Scale;
use crate::memory::Memory;
use crate::options::Options;
use crate::pages::PageTable;
use crate::program::{Origin, Program};
use crate::random::Random;
use crate::report::Report;
use demand::Demand;
use mover::{Foreseen, MoveContext, Mover};
use observe::Watch;
use place::Placer;
use run_stats::RunStats;
use runner::{Epoch, RunContext, Runners};
use settle::Settling;
use watch::{Sampler, Scene};
use ways::Ways;

/// Latencies and load agree when the latencies that the load gives would change no thread's time by more than this share of the epoch.
pub const AGREEMENT: f64 = 0.002;
/// Greatest number of repetitions of an epoch with better latencies.
const PASSES: usize = 16;
/// From this pass on, the epoch's end stays, and latencies go as far as the last two passes say is right.
const SETTLING_FROM: usize = 2;
/// Answers that are kept.
const SOLVED: usize = 64;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Simulated time in nanoseconds.
    pub now_ns: f64,
    /// Share of the program's memory accesses that were made (of the time limit, where that is further on), 0 to 1.
    pub share: f64,
}

/// Unloaded latency of the memory that is nearest to a thread, mean over threads, where the program is described: the measure of work that needs memory. `None`
/// where it was recorded. The threads' first places decide, so that it is the same under every policy.
fn described_local_ns(program: &Program, seats: &[(usize, NodeIndex)], idle_ns: &[Vec<f64>]) -> Option<f64> {
    // A column without a path is NaN, which `min` passes over.
    let nearest = |&(_, node): &(usize, NodeIndex)| idle_ns[node].iter().copied().fold(f64::INFINITY, f64::min);
    let is_described = matches!(program.origin, Origin::Synthetic { .. });
    is_described.then(|| seats.iter().map(nearest).sum::<f64>() / seats.len() as f64)
}

/// A run in progress.
pub(crate) struct Engine<'a> {
    program: &'a Program,
    machine: &'a Machine,
    options: &'a Options,
    memory: &'a mut dyn Memory,
    pages: PageTable,
    ways: Ways,
    placer: Placer,
    runners: Runners,
    mover: Mover,
    sampler: Sampler,
    random: Random,
    watch: Watch,
    run_stats: RunStats,
    demand: Demand,
    demand_ns: f64,
    /// The last loads that were solved, with their answers.
    solved: VecDeque<(Load, Solution)>,
    /// Utilisation of each station in the present epoch.
    utilisation: Vec<f64>,
    cpus_of: Vec<Vec<usize>>,
    cpus: usize,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(
        program: &'a Program,
        machine: &'a Machine,
        options: &'a Options,
        memory: &'a mut dyn Memory,
        policy: &dyn Policy,
    ) -> Result<Engine<'a>, SimulatorError> {
        let seats = crate::seats::seats(program, machine, options.layout)?;
        let idle = memory.solve(&Load::default())?;
        let controllers = idle.stations.iter().filter(|station| station.controller.is_some()).count();
        let of_node = |node: &numapilot_machine::Node| {
            idle.stations.iter().position(|station| station.controller == Some(node.id))
        };
        let scale = Scale {
            controllers: machine.nodes().iter().map(of_node).collect(),
            first_link: controllers,
            links: idle.stations.iter().filter(|station| station.link.is_some()).count(),
            clock_mhz: machine.clock_mhz(),
            counts_instructions: program.counts_instructions,
        };
        let mut cpus_of = vec![Vec::new(); machine.nodes().len()];
        for (index, cpu) in machine.cpus().iter().enumerate().filter(|(_, cpu)| cpu.online) {
            if let Some(node) = cpu.node.and_then(|id| machine.node_index(id)) {
                cpus_of[node].push(index);
            }
        }
        let mut runners =
            Runners::new(program, &seats, options.takes_work, described_local_ns(program, &seats, &idle.path_ns));
        // A recorder may put pinned threads on one CPU of their node; a kernel's scheduler does not leave them there.
        runners.even_out(&cpus_of);
        Ok(Engine {
            program,
            machine,
            options,
            pages: PageTable::new(program, machine),
            ways: Ways::new(program, idle.path_ns),
            placer: Placer::new(program, machine, &policy.initial_allocation(), options.seed),
            runners,
            mover: Mover::new(program.processes.len()),
            sampler: Sampler::new(options.seed ^ 0x5a, program),
            random: Random::new(options.seed ^ 0xf4),
            watch: Watch::at(0.0, program.threads.len()),
            run_stats: RunStats::new(program, scale, options.series_ns),
            demand: Demand::default(),
            demand_ns: 0.0,
            solved: VecDeque::new(),
            utilisation: Vec::new(),
            cpus: cpus_of.iter().map(Vec::len).sum(),
            cpus_of,
            memory,
        })
    }

    /// Runs to the end, or as far as the options say.
    pub(crate) fn run(
        mut self,
        policy: &mut dyn Policy,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Report, SimulatorError> {
        let of_accesses = self.program.accesses();
        let until = self.options.until_ns.unwrap_or(f64::INFINITY);
        let mut requirements = policy.requirements();
        let mut decide_at = requirements.next_ns.max(1) as f64;
        self.enter()?;
        while !self.runners.is_finished() && self.runners.now_ns < until {
            let now = self.runners.now_ns;
            if now >= decide_at && self.mover.is_idle() {
                let seen = self.observe(&requirements);
                self.mover.order(policy.decide(&seen));
                requirements = policy.requirements();
                decide_at = now + requirements.next_ns.max(1) as f64;
                self.set_period(&requirements, &seen.nodes, seen.elapsed_ns as f64);
            }
            let next = if decide_at > now { decide_at } else { f64::INFINITY };
            let horizon = (now + self.options.epoch_max_ns).min(next).min(until).min(self.run_stats.interval_end());
            self.epoch(horizon)?;
            if self.sampler.period <= 0.0 {
                // Nobody knows the rate before something ran: sampling begins with the first epoch that accesses memory.
                let seen = self.watch.observation(&self.run_stats.scale, self.program, &self.pages, &self.runners);
                self.set_period(&requirements, &seen.nodes, seen.elapsed_ns as f64);
            }
            let share = if of_accesses > 0.0 { self.run_stats.accesses / of_accesses } else { 0.0 };
            let now_ns = self.runners.now_ns;
            if !progress(Progress { now_ns, share: share.max(now_ns / until).min(1.0) }) {
                return Err(SimulatorError::Stopped { at_ns: now_ns });
            }
        }
        Ok(self.report(policy, of_accesses))
    }

    fn enter(&mut self) -> Result<(), SimulatorError> {
        let mut around =
            RunContext { program: self.program, pages: &mut self.pages, ways: &mut self.ways, placer: &self.placer };
        self.runners.start(&mut around)
    }

    /// One epoch: actions, threads and latencies until they converge, statistics, observers.
    fn epoch(&mut self, horizon: f64) -> Result<(), SimulatorError> {
        let begin = self.runners.now_ns;
        // What takes no time is done at once, and the first order that does is begun.
        self.work_orders(0.0);
        let ahead = self.mover.foresee(&self.pages, &self.options.costs);
        // When all is done, the next decision may be due, and pages are where they were ordered to: another epoch.
        let horizon = horizon.min(begin + ahead.done_ns().max(self.options.epoch_min_ns));
        // Whether or not anything was ordered: threads may have ended.
        self.runners.even_out(&self.cpus_of);
        let before = self.runners.clone();
        let mut settling = Settling::default();
        let mut end = (horizon, self.options.epoch_min_ns);
        let mut pass = 0;
        loop {
            let epoch = self.pass(end.0, end.1)?;
            let elapsed = epoch.end_ns - begin;
            if elapsed <= 0.0 {
                self.close_epoch(begin, &epoch, 0.0);
                return Ok(());
            }
            let load = self.load(&epoch, elapsed, &ahead);
            let solution = self.solve(load)?;
            let weights = settle::weights(&epoch, &self.runners.all, self.program, &self.pages, &mut self.ways);
            let doubt = weights.doubt(self.ways.path_ns(), &solution.path_ns) / elapsed;
            pass += 1;
            if doubt < AGREEMENT || pass == PASSES {
                // The epoch is recorded with the latencies that it was run with; the next one begins with the newest.
                self.utilisation = solution.stations.iter().map(|station| station.utilisation).collect();
                self.close_epoch(begin, &epoch, doubt);
                self.ways.set_path_ns(solution.path_ns);
                return Ok(());
            }
            let next = if pass < SETTLING_FROM {
                solution.path_ns
            } else {
                // An end that depends on the latencies would make the load jump with them.
                end = (epoch.end_ns, f64::INFINITY);
                settling.next(self.ways.path_ns(), &solution.path_ns, &weights)
            };
            self.ways.set_path_ns(next);
            self.runners.clone_from(&before);
        }
    }

    fn pass(&mut self, horizon: f64, least_ns: f64) -> Result<Epoch, SimulatorError> {
        let mut around =
            RunContext { program: self.program, pages: &mut self.pages, ways: &mut self.ways, placer: &self.placer };
        advance::advance(&mut self.runners, horizon, least_ns, &mut around)
    }

    /// The answer to a load: that of a recent load like it, where there is one. Programs repeat themselves.
    fn solve(&mut self, load: Load) -> Result<Solution, SimulatorError> {
        if let Some((_, solution)) = self.solved.iter().rev().find(|(solved, _)| load::alike(solved, &load)) {
            return Ok(solution.clone());
        }
        let solution = self.memory.solve(&load)?;
        self.run_stats.convergence.solved(solution.residual);
        if self.solved.len() == SOLVED {
            self.solved.pop_front();
        }
        self.solved.push_back((load, solution.clone()));
        Ok(solution)
    }

    fn load(&mut self, epoch: &Epoch, elapsed_ns: f64, ahead: &Foreseen) -> Load {
        let (program, runners) = (self.program, &self.runners.all);
        let mut load = load::load_of(epoch, elapsed_ns, runners, program, &self.pages, &mut self.ways);
        load.background = ahead.traffic(elapsed_ns);
        load
    }

    /// The mover works for a time that has passed. Returns the mover time that it took, ns.
    fn work_orders(&mut self, passed_ns: f64) -> f64 {
        if self.mover.is_idle() {
            return 0.0;
        }
        self.run_stats.flush(self.program, &self.pages);
        self.run_stats.first_move();
        self.mover.work(
            passed_ns,
            &mut MoveContext {
                program: self.program,
                pages: &mut self.pages,
                runners: &mut self.runners,
                placer: &mut self.placer,
                costs: &self.options.costs,
                demand: &self.demand,
                demand_ns: self.demand_ns,
                cpus_of: &self.cpus_of,
                moves: &mut self.run_stats.moves,
                cost: &mut self.run_stats.cost,
            },
        )
    }

    /// Movers run on idle CPUs, and where there are none they take the program's, evenly: known once the epoch has ended, and paid in the next one, as
    /// samples and hint faults are.
    fn steal(&mut self, worked_ns: f64, epoch: &Epoch, elapsed_ns: f64) {
        let idle_ns = (self.cpus as f64 * elapsed_ns - epoch.ready_ns.iter().sum::<f64>()).max(0.0);
        let stolen = (worked_ns - idle_ns).max(0.0);
        let working: Vec<usize> = self.runners.working().collect();
        for &thread in &working {
            self.runners.all[thread].debt_ns += stolen / working.len() as f64;
        }
        if !working.is_empty() {
            self.run_stats.cost.mover_stolen_ns += stolen;
        }
    }

    /// Adds the epoch to the statistics, shows it to the observers, and carries out the orders to which the mover came in it.
    /// `doubt`: share of its time by which latencies and load left threads' times open.
    fn close_epoch(&mut self, begin: f64, epoch: &Epoch, doubt: f64) {
        let elapsed = epoch.end_ns - begin;
        let convergence = &mut self.run_stats.convergence;
        convergence.epochs += 1;
        convergence.let_go += epoch.let_go;
        convergence.doubt_ns += doubt * elapsed;
        if doubt >= AGREEMENT {
            convergence.unsettled_epochs += 1;
            convergence.unsettled_ns += elapsed;
        }
        let (program, pages, runners) = (self.program, &self.pages, &self.runners);
        let entry = RunStats::entry(epoch, &self.utilisation, program, pages, &mut self.ways, runners);
        self.run_stats.record(epoch, &entry, program, runners);
        self.watch.ledger.record(&entry, epoch.end_ns);
        self.watch.record(epoch, program, pages, &mut self.ways, runners);
        self.look(begin, epoch);
        let worked_ns = self.work_orders(elapsed);
        self.steal(worked_ns, epoch, elapsed);
        self.run_stats.turn(epoch.end_ns);
    }

    /// Samples, hint faults, ends of copies.
    fn look(&mut self, begin_ns: f64, epoch: &Epoch) {
        let elapsed = epoch.end_ns - begin_ns;
        (self.demand, self.demand_ns) = (Demand::new(epoch, self.program), elapsed);
        let costs = &self.options.costs;
        // Without a clock, that of a usual server: only the cost of samples hangs on it.
        let sample_ns = costs.sample_cycles * 1000.0 / self.machine.clock_mhz().unwrap_or(2_500.0);
        let mut scene = Scene {
            program: self.program,
            pages: &mut self.pages,
            ways: &mut self.ways,
            runners: &mut self.runners,
            epoch,
            begin_ns,
        };
        let most = costs.samples_max_per_s_and_cpu * elapsed / 1e9;
        let (taken, lost) = self.sampler.sample(&mut scene, most, sample_ns);
        let faults = watch::hint_faults(&mut scene, &self.demand, &mut self.random, costs.hint_fault_ns);
        let accessed = watch::accessed(&mut scene, &self.demand, &mut self.random);
        let ended = if scene.pages.has_copies() {
            self.run_stats.flush(self.program, scene.pages);
            watch::collapses(&mut scene, &self.demand, &mut self.random, costs.collapse_ns)
        } else {
            Vec::new()
        };
        let (moves, cost) = (&mut self.run_stats.moves, &mut self.run_stats.cost);
        moves.samples += taken;
        moves.samples_lost += lost;
        moves.hint_faults += faults.len() as u64;
        moves.collapsed += ended.len() as u64;
        cost.sampling_ns += taken as f64 * sample_ns;
        cost.faults_ns += faults.len() as f64 * costs.hint_fault_ns;
        cost.collapses_ns += ended.len() as f64 * costs.collapse_ns;
        self.watch.faults.extend(faults);
        self.watch.collapses.extend(ended);
        self.watch.accessed.extend(accessed);
    }

    /// Makes the policy's observation; the next one begins at this time.
    fn observe(&mut self, requirements: &PolicyRequirements) -> Observation {
        let mut seen = self.watch.observation(&self.run_stats.scale, self.program, &self.pages, &self.runners);
        seen.samples = self.sampler.take();
        seen.sample_period = self.sampler.period;
        seen.samples_lost = std::mem::take(&mut self.sampler.lost);
        seen.outcomes = self.mover.take_outcomes();
        if requirements.mapped {
            seen.mapped = self.pages.mapped();
        }
        if requirements.homes {
            seen.homes = self.pages.home_runs();
        }
        self.watch = Watch::at(self.runners.now_ns, self.program.threads.len());
        seen
    }

    /// The period that gives the requested sampling rate at the rate of accesses of these counters.
    fn set_period(&mut self, requirements: &PolicyRequirements, counters: &[NodeCounters], elapsed_ns: f64) {
        let accesses: f64 = counters.iter().flat_map(|node| node.reads_to.iter().chain(&node.writes_to)).sum();
        let required_per_s = requirements.samples_per_s_and_cpu * self.cpus as f64;
        if required_per_s <= 0.0 {
            self.sampler.period = 0.0;
        } else if accesses > 0.0 && elapsed_ns > 0.0 {
            self.sampler.period = (accesses / elapsed_ns * 1e9 / required_per_s).max(1.0);
        }
    }

    fn report(mut self, policy: &dyn Policy, of_accesses: f64) -> Report {
        self.run_stats.flush(self.program, &self.pages);
        let (total, before, after, series) = self.run_stats.traffic();
        let end = |end: numapilot_machine::Endpoint| match end {
            numapilot_machine::Endpoint::Node(node) => node.to_string(),
            numapilot_machine::Endpoint::Router(id) => {
                self.machine.routers().get(usize::from(id.0)).map_or_else(String::new, |router| router.name.clone())
            }
        };
        let links = self.machine.links().iter().map(|link| format!("{} > {}", end(link.from), end(link.to))).collect();
        Report {
            simulated: true,
            program: self.program.name.clone(),
            origin: self.program.origin.clone(),
            machine: self.machine.name().to_owned(),
            policy: policy.name().to_owned(),
            options: self.options.clone(),
            finished: self.runners.is_finished(),
            run_time_ns: self.runners.now_ns,
            progress: if of_accesses > 0.0 { (self.run_stats.accesses / of_accesses).min(1.0) } else { 1.0 },
            nodes: self.machine.nodes().iter().map(|node| node.id).collect(),
            links,
            total,
            before,
            after,
            series,
            threads: self.run_stats.thread_reports(self.program, &self.runners),
            labels: self.run_stats.label_reports(self.program),
            notes: crate::notes::notes(&self.run_stats, self.machine, self.runners.all.iter().map(|runner| runner.cpu)),
            homes: self.pages.homes(),
            moves: self.run_stats.moves,
            cost: self.run_stats.cost,
            convergence: self.run_stats.convergence,
        }
    }
}
