//! One iteration of the loop: from observations to orders and their outcomes.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::Tid;
use numapilot_kernel::affinity;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_placement::Action as Order;
use numapilot_placement::Observation;
use numapilot_placement::Outcome;
use numapilot_placement::PageKey;
use numapilot_placement::PageSize;
use numapilot_placement::Refusal;
use numapilot_placement::ThreadState;

use super::Balancer;
use super::LOOK_SHARE;
use super::UNDO_MAX;
use super::order_events;
use super::pressed;
use super::shared::SharedPlaces;
use crate::comparison;
use crate::control_port::ControlPort;
use crate::decision::harm_windows::Judgement;
use crate::event;
use crate::event::Event;
use crate::evidence::estimate;
use crate::evidence::estimate::Estimate;
use crate::evidence::estimate::Running;
use crate::evidence::observe;
use crate::evidence::observe::Use;
use crate::evidence::table::Known;
use crate::evidence::table::MovePermission;
use crate::execution::copies::Copies;
use crate::execution::migration_executor::Done;
use crate::status::State;
use crate::step_progress::StepProgress;
use crate::system::clock;
use crate::system::new_nodes;
use crate::system::ran;
use crate::system::targets::ManagedProcess;
use crate::system::targets::Thread;

/// Iterations without evidence, running threads or orders, after which the interval is lengthened.
const QUIET: u32 = 20;
/// Longest interval between observations.
const SLOWEST: Duration = Duration::from_secs(2);
/// Share of one CPU below which targets count as idle.
const IDLE_SHARE: f64 = 0.02;
/// Weight of one observation in the running mean of their processor time: 1 over this.
const LOOK_WEIGHT: u32 = 8;
/// Share of the running time that must move to other nodes for a new phase.
const RUNS_ELSEWHERE: f64 = 0.4;
/// Weight of one observation in the running mean of the running time by node: 1 over this.
const RUNS_WEIGHT: u32 = 4;
/// Maximum number of samples that wait for a decision.
const PENDING_MAX: usize = 1 << 18;
/// Observations between two readings of the nodes' free memory.
const FREE_MEMORY_EVERY: u64 = 10;
/// Observations without orders, after which latencies are probed only at every n-th observation.
const PROBED_FOR: u32 = 50;
const PROBE_EVERY: u64 = 10;
/// Time after which a started program has created at least some of its threads.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Orders for 1 known page in this many are a large change, after which fresh evidence is requested.
const EVIDENCE_FOR: usize = 8;
/// Decisions of a batch that are named in its evaluation, at most.
const JUDGED_MAX: usize = 1 << 12;
/// Pages that a step moves back, at most, of those that the rate has left: where they are is queried each time.
const TAKE_BACK_AT_ONCE: usize = 1 << 14;
/// Iterations between two sweeps of the table.
const SWEEP_EVERY: u64 = 500;

impl Balancer {
    /// Runs one iteration.
    pub(super) fn step(&mut self, control_port: &mut dyn ControlPort) {
        let elapsed = self.last.elapsed();
        self.last = Instant::now();
        let begun = clock::own_cpu();
        let seen = self.look_at_rings(control_port);
        let before_targets = clock::own_cpu();
        self.look_at_targets(control_port);
        let at_targets = clock::own_cpu().saturating_sub(before_targets);
        self.table.tick();
        let (mut uses, passed_over) = self.uses(&seen.faults);
        if self.run_stats.looks() % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.sweep();
        }
        if self.run_stats.looks().is_multiple_of(FREE_MEMORY_EVERY) {
            self.read_memory(control_port);
            let root = Root::default();
            for what in new_nodes::told(&root, &self.machine).into_iter().chain(self.online_cpus.told(&root)) {
                self.trouble(what, control_port);
            }
            self.look_at_pressure(control_port);
        }
        let running = self.running(elapsed);
        let ran_ns: f64 = running.iter().map(|node| node.ran_ns).sum();
        if self.runs_elsewhere(&running) {
            self.want_evidence();
        }
        self.fall_back_to_faults(&uses, ran_ns, control_port);
        let is_idle = uses.is_empty() && ran_ns < IDLE_SHARE * elapsed.as_nanos() as f64;
        self.run_stats.managed(elapsed, &seen, &uses, passed_over);
        uses.extend(self.file_uses(control_port));
        self.take_back_more(control_port);
        // While pages go back, it is neither as it was nor as it was made.
        let is_between = !self.taking_back.1.is_empty();
        if is_between {
            self.regression_guard.being_undone(ran_ns);
        }
        // While programs are idle, nothing is decided by what they access. What is decided by their mappings, or by the files that they use, must not wait for
        // a measure that nobody looks for.
        let decides_by_accesses = self.policy.remembers() && self.copies.is_none();
        if self.is_paused || is_between || is_idle && decides_by_accesses {
            self.regression_guard.skip_window();
        }
        let measure = if is_idle || self.is_paused || is_between { None } else { self.probe() };
        if let Some(judgement) = self.regression_guard.window(measure, ran_ns) {
            self.judged(&judgement, control_port);
        }
        let managed = clock::own_cpu().saturating_sub(begun + at_targets);
        self.look_took = (self.look_took * (LOOK_WEIGHT - 1) + managed) / LOOK_WEIGHT;
        self.look_allowance.passed(elapsed);
        self.look_allowance.spent(managed);
        let ordered = self.decide_if_due(uses, elapsed, seen.lost, control_port);
        self.since_orders = if ordered > 0 { 0 } else { self.since_orders.saturating_add(1) };
        self.set_pace(is_idle, ordered, control_port);
        self.pace_scanning(control_port);
        if self.started.elapsed() > FIRST_DELAY {
            self.end_first_delay(control_port);
        }
        self.record_losses(control_port);
        self.publish(control_port);
    }

    fn sweep(&mut self) {
        let alive: BTreeMap<u16, u8> =
            self.targets.all.values().map(|managed| (managed.slot, managed.generation)).collect();
        self.table.sweep(|page| alive.get(&page.slot()) == Some(&page.generation()));
    }

    /// Running time of threads by node.
    fn running(&self, elapsed: Duration) -> Vec<Running> {
        let mut running = vec![Running::default(); self.machine.nodes().len()];
        for thread in self.targets.all.values().flat_map(|managed| managed.threads.values()) {
            running[thread.node].ran_ns += thread.busy * elapsed.as_nanos() as f64;
        }
        running
    }

    /// Whether threads run on other nodes than before: probably a new phase, visible earlier here than in page uses.
    fn runs_elsewhere(&mut self, running: &[Running]) -> bool {
        let total: f64 = running.iter().map(|node| node.ran_ns).sum();
        if total <= 0.0 {
            return false;
        }
        let shares: Vec<f64> = running.iter().map(|node| node.ran_ns / total).collect();
        if self.runs_on.len() != shares.len() {
            (self.ran_on, self.runs_on) = (shares.clone(), shares);
            return false;
        }
        // One observation is not enough, because threads take turns on CPUs.
        self.runs_on.iter_mut().zip(&shares).for_each(|(mean, now)| *mean += (now - *mean) / f64::from(RUNS_WEIGHT));
        let distance: f64 =
            self.runs_on.iter().zip(&self.ran_on).map(|(now, then)| (now - then).abs()).sum::<f64>() / 2.0;
        let is_elsewhere = distance > RUNS_ELSEWHERE;
        if is_elsewhere {
            self.ran_on.clone_from(&self.runs_on);
        }
        is_elsewhere
    }

    fn estimate(&self, running: &[Running], elapsed: Duration) -> Estimate {
        let nodes = self.machine.nodes();
        let latency = |from: NodeId, to: NodeId| self.machine.idle_latency_or_guess_ns(from, to);
        let matrix: Vec<Vec<f64>> =
            nodes.iter().map(|from| nodes.iter().map(|to| latency(from.id, to.id)).collect()).collect();
        estimate::estimate(self.table.flow(), running, &matrix, elapsed.as_nanos() as f64, &self.measured)
    }

    /// Asks the policy once there is enough new evidence for it. Returns how many orders were carried out.
    fn decide_if_due(
        &mut self,
        uses: Vec<Use>,
        elapsed: Duration,
        lost: u64,
        control_port: &mut dyn ControlPort,
    ) -> usize {
        self.gate.passed(elapsed);
        let nodes = self.machine.nodes().len();
        uses.iter().for_each(|used| self.gate.saw(used.from, used.home, nodes));
        let room = PENDING_MAX - self.pending.len();
        self.run_stats.dropped_samples(uses.len().saturating_sub(room) as u64);
        self.pending.extend(uses.into_iter().take(room));
        let since = self.decided.elapsed();
        let is_wanted = since >= Duration::from_nanos(self.policy.requirements().next_ns);
        // A policy without memory must see each interval.
        let is_due = !self.policy.remembers() || self.gate.is_due(self.table.len(), self.table.flow());
        // What would be ordered could not be carried out yet, and would count as nothing ordered. The evidence is kept until then.
        let must_wait = !self.options.dry_run && (self.regression_guard.must_wait() || self.undo_room() == 0);
        if self.is_paused || must_wait || !is_wanted || !is_due {
            return 0;
        }
        self.decided = Instant::now();
        let begun = clock::own_cpu();
        let observation = self.observation(since, lost);
        let orders = self.policy.decide(&observation);
        let took = clock::own_cpu().saturating_sub(begun);
        self.run_stats.deciding(took);
        let ordered = self.act(&observation, orders, control_port);
        let is_much = ordered > 0 && ordered * EVIDENCE_FOR >= self.table.len();
        self.gate.decided(took, is_much);
        if is_much {
            self.want_evidence();
        }
        ordered
    }

    /// Probes latencies. Returns the measure by which changes are evaluated: the inverse of the mean latency of the accesses seen in this interval, with
    /// the probed latencies; `None`: not probed, or no access seen.
    fn probe(&mut self) -> Option<f64> {
        // Changes that wait for windows, or are going to, are not to wait ten times as long.
        let is_awaited = self.regression_guard.must_wait() || self.regression_guard.lacks_windows();
        let is_spared = self.since_orders > PROBED_FOR && !is_awaited;
        if is_spared && !self.run_stats.looks().is_multiple_of(PROBE_EVERY) {
            return None;
        }
        let probes = self.probes.as_mut()?;
        probes.probe();
        estimate::mean_latency_ns(self.table.seen_flow(), &probes.latency_ns).map(|latency| 1000.0 / latency)
    }

    fn observation(&mut self, elapsed: Duration, lost: u64) -> Observation {
        let uses = self.uses_with_present_homes();
        self.sampled = uses.iter().filter(|used| used.is_sampled).count() as u64;
        self.file_uses = uses.iter().filter(|used| used.is_read_only && !used.is_sampled).count() as u64;
        let ran = ran::by_node(&self.targets, self.machine.nodes().len());
        let ran: Vec<Running> = ran.into_iter().map(|ran_ns| Running { ran_ns: ran_ns as f64 }).collect();
        let estimated = self.estimate(&ran, elapsed);
        self.measured.fill(0.0);
        let mut nodes = estimated.nodes.clone();
        for (memory, counters) in self.memory.iter().zip(&mut nodes) {
            counters.free_bytes = memory.available_bytes();
        }
        let (table, targets) = (&self.table, &self.targets);
        let known = |used: &Use| table.known(targets.by_number(used.process)?.page_id(used.key().page));
        let samples = observe::samples(&uses, self.policy.remembers(), known);
        let threads = self.thread_states(elapsed, estimated.accesses);
        ran::begin_interval(&mut self.targets);
        let mapped = if self.policy.requirements().mapped { self.mapped() } else { Vec::new() };
        Observation {
            now_ns: self.started.elapsed().as_nanos() as u64,
            elapsed_ns: elapsed.as_nanos() as u64,
            sample_period: if samples.is_empty() { 0.0 } else { estimated.accesses / samples.len() as f64 },
            nodes,
            threads,
            samples,
            samples_lost: lost,
            mapped,
            read_only: self.copies.as_ref().map(|copies| copies.ranges(&self.targets)).unwrap_or_default(),
            outcomes: std::mem::take(&mut self.outcomes),
            collapses: self.copies.as_mut().map(Copies::lost).unwrap_or_default(),
            load: Some(estimated.load),
            ..Observation::default()
        }
    }

    /// All threads, ascending by number. `elapsed`: the time since the last decision; `accesses`: of all of them in this interval.
    fn thread_states(&self, elapsed: Duration, accesses: f64) -> Vec<ThreadState> {
        let threads = self.targets.all.values().flat_map(|managed| managed.threads.values());
        let ran_ns: u64 = threads.map(|thread| thread.ran_since_ns).sum();
        let (elapsed_ns, online) = (elapsed.as_nanos() as f64, affinity::online());
        let of_process = |managed: &ManagedProcess| {
            let of_thread = |(tid, thread): (&Tid, &Thread)| ThreadState {
                thread: thread.number,
                process: managed.number(),
                node: thread.node,
                allowed: self.migration_executor.nodes_for(managed.target.pid, *tid, thread, online.as_ref()),
                busy_ns: (thread.ran_since_ns as f64).min(elapsed_ns),
                // Instructions are not counted here: policies read 0 as unknown.
                instructions: 0.0,
                memory_accesses: accesses * thread.ran_since_ns as f64 / ran_ns.max(1) as f64,
            };
            managed.threads.iter().map(of_thread).collect::<Vec<_>>()
        };
        let mut threads: Vec<ThreadState> = self.targets.all.values().flat_map(of_process).collect();
        threads.sort_by_key(|thread| thread.thread);
        threads
    }

    /// Returns the uses since the last decision with the pages' present home nodes: the kernel moves many pages at the fault that reports their use. Pages that
    /// are gone are left out.
    fn uses_with_present_homes(&mut self) -> Vec<Use> {
        let mut uses = std::mem::take(&mut self.pending);
        let targets: BTreeMap<u32, &ManagedProcess> =
            self.targets.all.values().map(|managed| (managed.number(), managed)).collect();
        uses.retain_mut(|used| {
            // Read per using process: each may have a copy of its own.
            if used.is_read_only {
                return targets.contains_key(&used.process);
            }
            let home = targets.get(&used.process).and_then(|managed| managed.homes.of(used.key().page));
            used.home = home.unwrap_or(used.home);
            home.is_some()
        });
        uses
    }

    fn mapped(&self) -> Vec<(u32, PageNumber, u64)> {
        let ranges = self.targets.all.values().flat_map(|managed| {
            let number = managed.number();
            let filled = managed.mappings.iter().filter(|range| range.resident_bytes > 0);
            filled.map(move |range| {
                let first = range.start.page();
                (number, first, range.end.page() - first)
            })
        });
        let mut ranges: Vec<(u32, PageNumber, u64)> = ranges.collect();
        ranges.sort_unstable();
        ranges
    }

    /// Carries out the orders that are permitted now. Returns their number.
    fn act(&mut self, observation: &Observation, orders: Vec<Order>, control_port: &mut dyn ControlPort) -> usize {
        self.run_stats.policy_said(self.policy.explain());
        let is_recorded = !orders.is_empty() || self.run_stats.is_record_due();
        if is_recorded {
            let told = self.run_stats.observation(
                observation,
                (self.sampled, self.file_uses),
                &self.machine,
                &self.table,
                self.probes.as_ref(),
            );
            control_port.record(Event::Observation(told));
        }
        if orders.is_empty() {
            return 0;
        }
        let orders = self.without_obsolete(orders);
        let orders = self.without_forbidden(orders, control_port);
        if orders.is_empty() {
            return 0;
        }
        let decision = self.run_stats.next_decision();
        let (orders, mut held) = self.split_permitted(orders, decision, control_port);
        let (orders, mut put_off) = self.split_pressed(orders, control_port);
        let pressure = match (self.pressure.is_high(), put_off.is_empty()) {
            (true, _) => "memory pressure is high",
            (false, false) if orders.is_empty() => "memory pressure is high in the cgroups of these processes",
            _ => "",
        };
        if !self.options.dry_run && (self.pressure.is_high() || !put_off.is_empty()) {
            self.run_stats.put_off();
        }
        held.append(&mut put_off);
        let is_undoing = !self.taking_back.1.is_empty();
        let (orders, beyond) = split_beyond(orders, self.undo_room());
        held.extend(beyond);
        let may_change = self.regression_guard.may_change();
        let held_back = pressed::held_back(self.options.dry_run, is_undoing, pressure, may_change);
        self.record_orders(decision, &orders, held_back, control_port);
        self.outcomes.extend(held.into_iter().map(|action| Outcome { action, result: Err(Refusal::Busy) }));
        if !held_back.is_empty() {
            self.outcomes.extend(orders.into_iter().map(|action| Outcome { action, result: Err(Refusal::Busy) }));
            return 0;
        }
        let (of_files, orders) = self.about_copies(orders);
        let files = self.copy(decision, of_files, control_port);
        let count = orders.len();
        if count == 0 {
            return files;
        }
        // One decision may order more than the budget has: after a long time without any, say.
        let left = Duration::from_nanos(self.regression_guard.account_ns().max(0.0) as u64);
        let mut progress = StepProgress::new(control_port, &mut self.waiting).within(left);
        let places = SharedPlaces::of(&self.table, &self.machine, self.options.moves_bound, false);
        let done = places.carry_out((&mut self.migration_executor, &mut self.targets), orders, &mut progress);
        self.settle(decision, done, false, control_port);
        count + files
    }

    /// How many more pages can be moved back, should the changes do harm; without anything to evaluate them by, none ever will.
    fn undo_room(&self) -> u64 {
        match self.regression_guard.has_measure() {
            true => UNDO_MAX.saturating_sub(self.undo.len()) as u64,
            false => u64::MAX,
        }
    }

    /// Removes obsolete orders: pages that are at their destination (the kernel's own balancing moves some), that were never touched, or that are unmapped by
    /// now.
    fn without_obsolete(&mut self, orders: Vec<Order>) -> Vec<Order> {
        let (mut there, mut gone) = (0, 0);
        let mut stale = Vec::new();
        let meant = orders.into_iter().filter_map(|order| {
            if let Some(why) = self.copies.as_mut().and_then(|copies| copies.need_not(&order, &self.targets)) {
                there += u64::from(why == Refusal::AlreadyThere);
                stale.push(Outcome { action: order, result: Err(why) });
                return None;
            }
            let Order::Migrate { page, to } = &order else { return Some(order) };
            let Some(managed) = self.targets.by_number(page.process) else { return Some(order) };
            let why = match managed.homes.of(page.page) {
                Some(home) if home == *to => Refusal::AlreadyThere,
                None if managed.homes.refused == 0 => Refusal::Gone,
                _ => return Some(order),
            };
            *(if why == Refusal::Gone { &mut gone } else { &mut there }) += 1;
            stale.push(Outcome { action: order, result: Err(why) });
            None
        });
        let meant = meant.collect();
        self.run_stats.out_of_date(there, gone);
        self.outcomes.append(&mut stale);
        meant
    }

    /// Splits orders into those that may be carried out, and those about pages that moved back and forth, or that the kernel could not move a moment ago.
    fn split_permitted(
        &mut self,
        orders: Vec<Order>,
        decision: u64,
        control_port: &mut dyn ControlPort,
    ) -> (Vec<Order>, Vec<Order>) {
        let mut resting: BTreeMap<PageKey, (u8, u32)> = BTreeMap::new();
        let (permitted, held) = orders.into_iter().partition(|order| {
            let Order::Migrate { page, .. } = order else { return true };
            let Some(managed) = self.targets.by_number(page.process) else { return true };
            match self.table.permission(managed.page_id(page.page)) {
                MovePermission::Granted => true,
                MovePermission::Stayed(_) => false,
                MovePermission::LeftAlone(bounces, rest) => {
                    resting.insert(*page, (bounces, rest));
                    false
                }
            }
        });
        for (page, pages, bounces, rest) in order_events::ranges_left_alone(resting) {
            let pid = self.targets.by_number(page.process).map_or(Pid(0), |managed| managed.target.pid);
            let left_alone_ns = Some(u64::from(rest) * self.options.tunables.interval.as_nanos() as u64);
            let moves = u64::from(bounces);
            let first = page.page.address();
            self.run_stats.ping_pong();
            control_port.record(Event::PingPong(event::PingPong { decision, pid, first, pages, moves, left_alone_ns }));
        }
        (permitted, held)
    }

    fn record_orders(&mut self, decision: u64, orders: &[Order], held_back: &str, control_port: &mut dyn ControlPort) {
        let ids: Vec<NodeId> = self.machine.nodes().iter().map(|node| node.id).collect();
        let targets = &self.targets;
        let pid_of = |number| targets.by_number(number).map_or(Pid(0), |managed| managed.target.pid);
        let known = |page: &PageKey| self.known(page);
        let batches = order_events::batches(orders, &ids, pid_of, known);
        let threads = order_events::threads(orders, &ids, |number| {
            let mut all =
                targets.all.iter().flat_map(|(pid, managed)| managed.threads.iter().map(move |one| (pid, one)));
            all.find(|(_, (_, thread))| thread.number == number).map(|(pid, (tid, _))| (*pid, *tid))
        });
        control_port.record(Event::Decision(event::Decision {
            decision,
            observation: self.run_stats.looks(),
            because: self.policy.explain(),
            pages: batches.iter().map(|batch| batch.pages).sum(),
            bytes: batches.iter().map(event::Batch::bytes).sum(),
            threads: threads.len() as u64,
            held_back: held_back.to_owned(),
            ..event::Decision::default()
        }));
        for part in batches.chunks(event::ORDERS_PER_LINE) {
            control_port.record(Event::Orders(event::Orders { decision, batches: part.to_vec(), threads: Vec::new() }));
        }
        if !threads.is_empty() {
            control_port.record(Event::Orders(event::Orders { decision, batches: Vec::new(), threads }));
        }
    }

    /// Returns the evidence about a page, with its home node from the most recent source.
    fn known(&self, page: &PageKey) -> Option<Known> {
        let managed = self.targets.by_number(page.process)?;
        let mut known = self.table.known(managed.page_id(page.page)).unwrap_or_default();
        known.home = managed.homes.of(page.page).or(known.home);
        Some(known)
    }

    /// Updates counters and undo lists with orders that were carried out (or undone).
    fn settle(&mut self, decision: u64, mut done: Done, is_undo: bool, control_port: &mut dyn ControlPort) {
        for (number, page, from, to) in &done.moved {
            let Some(managed) = self.targets.by_number(*number) else { continue };
            if let Some(from) = from {
                let first = if managed.is_huge(*page) { page.large_start() } else { *page };
                if first == *page {
                    self.table.moved(managed.page_id(first), *from, *to);
                }
                if !is_undo && self.undo.len() < UNDO_MAX {
                    self.undo.push((*number, *page, *from));
                }
            }
        }
        for (number, page) in &done.stayed {
            if let Some(managed) = self.targets.by_number(*number) {
                self.table.stayed(managed.page_id(*page));
            }
        }
        for (number, page) in &done.gone {
            if let Some(managed) = self.targets.by_number(*number) {
                self.table.forget(managed.page_id(*page));
            }
        }
        for trouble in std::mem::take(&mut done.troubles) {
            self.trouble(trouble, control_port);
        }
        if is_undo {
            self.regression_guard.spent(done.took_ns as f64);
        } else {
            if done.moved.is_empty() && done.threads.is_empty() {
                // Nothing could be done, so that there is nothing to compare. What was tried took time all the same.
                self.regression_guard.spent(done.took_ns as f64);
            } else {
                let room = UNDO_MAX.saturating_sub(self.undo_threads.len());
                self.undo_threads.extend(done.threads.iter().take(room).cloned());
                self.is_judged_with(decision);
                self.regression_guard.changed(done.took_ns as f64);
            }
            self.outcomes.append(&mut done.outcomes);
        }
        self.run_stats.done(&done, is_undo);
        control_port.record(Event::Action(event::Action {
            decision,
            undo: is_undo,
            pages: done.pages,
            shared: done.shared,
            threads_moved: done.threads.len() as u64 + done.threads_taken_back,
            threads_refused: done.threads_refused,
            moved_bytes: done.moved_bytes,
            took_ns: done.took_ns,
        }));
    }

    /// A decision is part of the batch that will be evaluated, if there is ever a measure: without probes there is none.
    pub(super) fn is_judged_with(&mut self, decision: u64) {
        if self.judged.len() < JUDGED_MAX {
            self.judged.push(decision);
        }
    }

    /// Moves pages of a batch back to where they were. What the rate leaves is moved back by the next steps ([`Balancer::take_back_more`]).
    fn take_back_pages(
        &mut self,
        decision: u64,
        orders: Vec<Order>,
        threads_taken_back: u64,
        control_port: &mut dyn ControlPort,
    ) {
        // The program may have set policies, or its cpuset may have changed, since the batch.
        let (orders, _) = self.split_forbidden(orders, control_port);
        let mut progress = StepProgress::of_undoing(control_port, &mut self.waiting);
        let places = SharedPlaces::of(&self.table, &self.machine, self.options.moves_bound, true);
        let mut done = places.carry_out((&mut self.migration_executor, &mut self.targets), orders, &mut progress);
        done.threads_taken_back = threads_taken_back;
        let left = left_by_rate(&mut done, self.options.tunables.bytes_per_s);
        if !left.is_empty() {
            self.taking_back.0 = decision;
            self.taking_back.1.extend(left);
        }
        self.settle(decision, done, true, control_port);
    }

    /// Moves back more of what the rate has left.
    fn take_back_more(&mut self, control_port: &mut dyn ControlPort) {
        let (decision, left) = &mut self.taking_back;
        if left.is_empty() {
            return;
        }
        let (decision, orders) = (*decision, left.drain(..left.len().min(TAKE_BACK_AT_ONCE)).collect());
        self.take_back_pages(decision, orders, 0, control_port);
    }

    /// Records the evaluation of a batch, and undoes the batch if it slowed the targets down.
    fn judged(&mut self, judgement: &Judgement, control_port: &mut dyn ControlPort) {
        let mut decisions = std::mem::take(&mut self.judged);
        // One decision may both move and copy pages.
        decisions.dedup();
        let undo = std::mem::take(&mut self.undo);
        let undo_threads = std::mem::take(&mut self.undo_threads);
        let measure = "inverse of the mean access latency (1/us, from probes)".to_owned();
        let compared = comparison::of(judgement, decisions.clone(), measure, self.interval);
        control_port.record(Event::Comparison(compared));
        self.run_stats.judged(judgement.undo);
        if !judgement.undo {
            self.undo_copies.clear();
            return;
        }
        self.take_copies_back(decisions.last().copied().unwrap_or(0), control_port);
        let back = |(process, page, home): &(u32, PageNumber, NodeIndex)| Order::Migrate {
            page: PageKey { process: *process, page: *page, size: PageSize::Small },
            to: *home,
        };
        let orders: Vec<Order> = first_homes(undo).iter().map(back).collect();
        let threads_taken_back = self.migration_executor.take_back(&undo_threads, &mut self.targets, control_port);
        self.take_back_pages(decisions.last().copied().unwrap_or(0), orders, threads_taken_back, control_port);
    }

    /// Sets the next interval: the one that the policy requires, or a longer one while the targets are idle.
    fn set_pace(&mut self, is_idle: bool, ordered: usize, control_port: &mut dyn ControlPort) {
        self.quiet = if ordered > 0 || !(is_idle || self.is_paused) { 0 } else { self.quiet.saturating_add(1) };
        let costs = if self.look_allowance.is_left() {
            Duration::ZERO
        } else {
            self.look_took.div_f64(LOOK_SHARE).min(SLOWEST)
        };
        let least = self.options.tunables.interval.max(costs);
        let of_policy = Duration::from_nanos(self.policy.requirements().next_ns);
        // Observing is cheap, and a policy with memory is asked only when there is enough new evidence.
        let usual = if self.policy.remembers() { least } else { of_policy.max(least) }.min(SLOWEST.max(least));
        let next = if self.quiet >= QUIET { (self.interval * 2).min(SLOWEST.max(least)) } else { usual };
        self.state = match (self.is_paused, is_idle, next > usual) {
            (true, ..) => State::Paused,
            (_, true, true) => State::BackedOff,
            (_, true, false) => State::Idle,
            _ => State::Running,
        };
        self.because = match (is_idle, self.pressure.is_high() && !self.options.dry_run) {
            (true, _) => "no target runs and no access is observed".to_owned(),
            (false, true) => "memory pressure is high, so moves are put off".to_owned(),
            (false, false) => String::new(),
        };
        if (next > usual) != (self.interval > usual) {
            self.run_stats.backed_off(next > self.interval);
            let because = if next > usual { "the targets are idle" } else { "the targets are active again" };
            let (was_ns, now_ns) = (self.interval.as_nanos() as u64, next.as_nanos() as u64);
            control_port.record(Event::BackOff(event::BackOff { was_ns, now_ns, because: because.to_owned() }));
        }
        self.interval = next;
    }
}

/// Splits orders into those of the first `pages` pages of 4 KiB, with all that move no pages, and the others.
fn split_beyond(orders: Vec<Order>, pages: u64) -> (Vec<Order>, Vec<Order>) {
    let mut ordered = 0;
    orders.into_iter().partition(|order| {
        let Order::Migrate { page, .. } = order else { return true };
        ordered += page.size.small_pages();
        ordered <= pages
    })
}

/// Takes what the rate has left of an undo out of its account. Without a rate, nothing is left but at the end of the run. Trouble with one process is no reason
/// to leave the pages of the others where they do harm.
fn left_by_rate(done: &mut Done, bytes_per_s: Option<u64>) -> Vec<Order> {
    if bytes_per_s.is_none() {
        return Vec::new();
    }
    let left = done.not_tried();
    done.pages.not_tried = done.pages.not_tried.saturating_sub(left.len() as u64);
    left
}

/// Where the pages of a batch (process, page, home before the move, in the order of the moves) were before it: a page that moved several times goes back once.
fn first_homes(mut moves: Vec<(u32, PageNumber, NodeIndex)>) -> Vec<(u32, PageNumber, NodeIndex)> {
    // Stable, so that the first move of a page stays its first.
    moves.sort_by_key(|(process, page, _)| (*process, *page));
    moves.dedup_by_key(|(process, page, _)| (*process, *page));
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each move was ordered back by itself, all at once, in the order of their nodes: the page ended on the greatest one of them.
    #[test]
    fn a_page_that_moved_twice_goes_back_to_where_it_was_first() {
        let [ten, twenty] = [10, 20].map(PageNumber);
        let moved = |(process, page, home)| (process, page, NodeIndex(home));
        let moves = [(7, twenty, 3), (7, ten, 0), (8, ten, 2), (7, ten, 1), (7, twenty, 1), (7, ten, 2)].map(moved);
        assert_eq!(first_homes(moves.into()), [(7, ten, 0), (7, twenty, 3), (8, ten, 2)].map(moved));
        assert!(first_homes(Vec::new()).is_empty());
    }

    /// One decision could order more than can be undone: what was beyond it stayed moved, whatever harm it did.
    #[test]
    fn no_more_is_ordered_at_once_than_can_be_undone() {
        let order = |page, size| Order::Migrate {
            page: PageKey { process: 7, page: PageNumber(page), size },
            to: NodeIndex(0),
        };
        let [one, two, large] =
            [(1, PageSize::Small), (2, PageSize::Small), (512, PageSize::Large)].map(|(page, size)| order(page, size));
        let thread = Order::MoveThread { thread: 4711, to: NodeIndex(0) };
        let all = vec![one.clone(), large.clone(), two.clone(), thread.clone()];
        assert_eq!(
            split_beyond(all.clone(), 513),
            (vec![one.clone(), large.clone(), thread.clone()], vec![two.clone()])
        );
        assert_eq!(split_beyond(all.clone(), 0), (vec![thread], vec![one, large, two]));
        assert_eq!(split_beyond(all.clone(), u64::MAX), (all, Vec::new()));
    }

    /// Trouble with one process, which may have no cpuset for a node any more, say, ended the undo of all others.
    #[test]
    fn what_the_rate_leaves_is_undone_later_whatever_befalls_other_processes() {
        let order = |process| Order::Migrate {
            page: PageKey { process, page: PageNumber(16), size: PageSize::Small },
            to: NodeIndex(0),
        };
        let results = [Err(Refusal::Unsupported), Err(Refusal::Busy), Err(Refusal::Busy)];
        let outcomes = (7..).zip(results).map(|(process, result)| Outcome { action: order(process), result }).collect();
        let mut done = Done {
            outcomes,
            troubles: vec!["pages of process 7 may not be moved".to_owned(), "process 8 does not answer".to_owned()],
            unanswered: [8].into(),
            ..Done::default()
        };
        done.pages.not_tried = 1;
        assert!(left_by_rate(&mut done, None).is_empty() && done.pages.not_tried == 1);
        assert_eq!(left_by_rate(&mut done, Some(1 << 20)), [order(9)], "nor is one asked again that did not answer");
        assert_eq!(done.pages.not_tried, 0);
    }
}
