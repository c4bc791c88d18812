//! Measures the cost of collecting and evaluating evidence. Samples at a given rate go through the same table, gate, estimate and policy as in the loop, in
//! observations of 100 ms of simulated time; the processor time that this takes is compared with the simulated time. Ring buffers, `/proc` and system calls are
//! not included (`tools/bench own` measures the whole daemon). Prints one JSON object per case.

use std::io::Write;
use std::time::Duration;

use numapilot_balancer::evidence::estimate::{self, Running};
use numapilot_balancer::evidence::gate::Gate;
use numapilot_balancer::evidence::homes::Homes;
use numapilot_balancer::evidence::observe::{self, Use};
use numapilot_balancer::evidence::table::{PageId, PageTable};
use numapilot_balancer::system::clock;
use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeId, NodeIndex, NodeSet};
use numapilot_placement::{Action, Observation, Outcome, Policy, ThreadState};

const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 300;
/// Number of observations to which the first figures apply.
const FIRST_LOOKS: usize = 50;
const SAMPLES_PER_S: usize = 10_000;
/// First page of the program's memory.
const FIRST: PageNumber = PageNumber(1 << 20);
/// Cost of moving a page in nanoseconds, as reported to policies.
const MOVE_NS: f64 = 4_000.0;

/// The nodes that use a page.
#[derive(Clone, Copy, PartialEq)]
enum Users {
    /// One node per page, in equal parts.
    One,
    /// All nodes.
    All,
}

/// The simulated program and the evidence about it.
struct Driver {
    users: Users,
    pages: u64,
    nodes: usize,
    homes: Homes,
    table: PageTable,
    gate: Gate,
    pending: Vec<Use>,
    outcomes: Vec<Outcome>,
    /// Observations since the last decision.
    waited: u32,
    state: u64,
    decisions: u32,
    moved: usize,
    moved_later: usize,
}

impl Driver {
    fn new(nodes: usize, pages: u64, users: Users) -> Driver {
        let mut homes = Homes::default();
        homes.set(FIRST, FIRST + pages, NodeIndex(0));
        let (table, gate) = (PageTable::new(nodes, 4 << 20), Gate::new(nodes));
        let (pending, outcomes) = (Vec::new(), Vec::new());
        Driver {
            users,
            pages,
            nodes,
            homes,
            table,
            gate,
            pending,
            outcomes,
            waited: 0,
            state: 7,
            decisions: 0,
            moved: 0,
            moved_later: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    /// Faults of one observation: (page, node).
    fn faults(&mut self) -> Vec<(PageNumber, NodeIndex)> {
        let count = SAMPLES_PER_S * LOOK.as_millis() as usize / 1000;
        let fault = |driver: &mut Driver| {
            let page = driver.random(driver.pages);
            let from = match driver.users {
                Users::One => page * driver.nodes as u64 / driver.pages,
                Users::All => driver.random(driver.nodes as u64),
            };
            (FIRST + page, NodeIndex(from as usize))
        };
        (0..count).map(|_| fault(self)).collect()
    }

    fn look(
        &mut self,
        number: usize,
        policy: &mut dyn Policy,
        latency_ns: &[Vec<f64>],
        faults: &[(PageNumber, NodeIndex)],
    ) {
        self.table.tick();
        for (page, from) in faults {
            let Some(home) = self.homes.of(*page) else { continue };
            let used = Use {
                process: 1,
                page: *page,
                is_large: false,
                thread: from.0 as u32 + 1,
                from: *from,
                home,
                is_sampled: false,
                is_read_only: false,
            };
            self.table.saw(PageId::new(1, 0, *page), used.from, home);
            self.gate.saw(*from, home, self.nodes);
            self.pending.push(used);
        }
        self.waited += 1;
        self.gate.passed(LOOK);
        if !self.gate.is_due(self.table.len(), self.table.flow()) {
            return;
        }
        let begun = clock::own_cpu();
        let seen = self.observation(number, policy.remembers(), latency_ns);
        let orders = policy.decide(&seen);
        self.gate.decided(clock::own_cpu().saturating_sub(begun), !orders.is_empty());
        self.decisions += 1;
        for action in orders {
            if let Action::Migrate { page, to } = &action {
                self.homes.set(page.page, page.page + 1, *to);
                self.table.is_at(PageId::new(1, 0, page.page), *to);
                self.moved += 1;
                self.moved_later += usize::from(number >= FIRST_LOOKS);
            }
            self.outcomes.push(Outcome { action, result: Ok(MOVE_NS) });
        }
    }

    fn observation(&mut self, number: usize, remembers: bool, latency_ns: &[Vec<f64>]) -> Observation {
        let elapsed_ns = f64::from(std::mem::take(&mut self.waited)) * LOOK.as_nanos() as f64;
        let running = vec![Running { ran_ns: elapsed_ns }; self.nodes];
        let estimated = estimate::estimate(self.table.flow(), &running, latency_ns, elapsed_ns, &[]);
        let samples = observe::samples(&std::mem::take(&mut self.pending), remembers, |_| None);
        let thread = |node: usize| ThreadState {
            thread: node as u32 + 1,
            process: 1,
            node: NodeIndex(node),
            allowed: NodeSet::all(self.nodes),
            busy_ns: elapsed_ns,
            instructions: 0.0,
            memory_accesses: estimated.accesses / self.nodes as f64,
        };
        Observation {
            now_ns: (number + 1) as u64 * LOOK.as_nanos() as u64,
            elapsed_ns: elapsed_ns as u64,
            threads: (0..self.nodes).map(thread).collect(),
            sample_period: estimated.accesses / samples.len().max(1) as f64,
            nodes: estimated.nodes,
            samples,
            mapped: vec![(1, FIRST, self.pages)],
            outcomes: std::mem::take(&mut self.outcomes),
            load: Some(estimated.load),
            ..Observation::default()
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (name, nodes) in [("opteron-8385", 4), ("memprof-c", 8)] {
        let machine = Machine::load(name)?;
        let ids: Vec<NodeId> = machine.nodes().iter().map(|node| node.id).take(nodes).collect();
        let latency = |from: &NodeId, to: &NodeId| machine.idle_latency_or_guess_ns(*from, *to);
        let latency_ns: Vec<Vec<f64>> =
            ids.iter().map(|from| ids.iter().map(|to| latency(from, to)).collect()).collect();
        for pages in [1 << 10, 1 << 16, 1 << 20] {
            for (users, word) in [(Users::One, "private"), (Users::All, "shared")] {
                let mut policy = numapilot_placement::policy_by_name("pilot", &machine, 1)?;
                let mut driver = Driver::new(ids.len(), pages, users);
                let mut took = [Duration::ZERO; 2];
                for number in 0..LOOKS {
                    let faults = driver.faults();
                    let begun = clock::own_cpu();
                    driver.look(number, policy.as_mut(), &latency_ns, &faults);
                    took[usize::from(number >= FIRST_LOOKS)] += clock::own_cpu().saturating_sub(begun);
                }
                let percent =
                    |at: usize, looks: usize| 100.0 * took[at].as_secs_f64() / (LOOK * looks as u32).as_secs_f64();
                let ns = |at: usize, looks: usize| took[at].as_nanos() as f64 / (looks * SAMPLES_PER_S / 10) as f64;
                let at_home = driver.homes.by_node(driver.nodes);
                writeln!(
                    std::io::stdout().lock(),
                    "{{\"machine\": \"{name}\", \"nodes\": {}, \"pages\": {pages}, \"users\": \"{word}\", \"first_percent\": {:.3}, \"later_percent\": {:.3}, \
                     \"first_ns_per_sample\": {:.0}, \"later_ns_per_sample\": {:.0}, \"decisions\": {}, \
                     \"moved\": {}, \"moved_later\": {}, \"on\": {at_home:?}}}",
                    driver.nodes,
                    percent(0, FIRST_LOOKS),
                    percent(1, LOOKS - FIRST_LOOKS),
                    ns(0, FIRST_LOOKS),
                    ns(1, LOOKS - FIRST_LOOKS),
                    driver.decisions,
                    driver.moved,
                    driver.moved_later
                )?;
            }
        }
    }
    Ok(())
}
