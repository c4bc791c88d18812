//! `pilot`: numapilot's own policy. One objective, the marginal loaded latency of every path from the traffic model itself.
//!
//! * **What to do** ([`search`]): groups of alike pages go to where their accesses delay the whole least, links and controllers included.
//! * **When** ([`ledger`], [`memory`]): a page moves once the delay that it has *already caused* by being where it is (its regret) exceeds the measured
//!   price of moving it. This is the rule of ski rental: never more than twice what the best decision in hindsight would have cost. A move that did not
//!   pay doubles the page's price.
//! * **Whether it stays** ([`guard`]): the program's own progress decides; a batch of moves that slowed it down is undone.
//!
//! It forgets pages by samples and not by time, so its statistics survive pauses between bursts and phases; it estimates the users of a page from its own
//! samples and its neighbours', as far as neighbours are alike. `docs/policies.md` has the details.

mod candidate;
mod exchange;
mod groups;
mod guard;
mod kin;
mod large;
mod ledger;
mod memory;
mod model;
mod orders;
mod packed;
mod room;
mod search;
mod shares;
mod threads;

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeIndex};
use numapilot_text::units::percent;
use numapilot_traffic::{Load, MemorySystem};

use crate::action::{Action, Refusal};
use crate::cold::Cold;
use crate::error::PlacementError;
use crate::metrics::Traffic;
use crate::nodes::NodeFacts;
use crate::observation::{Observation, PageSize};
use crate::options::{OptionInfo, Options};
use crate::policy::{Policy, PolicyRequirements};
use groups::groups_of;
use guard::Guard;
use ledger::{Ledger, Ordered};
use memory::Memory;
use model::Model;
use room::Room;
use threads::{PagePrice, PlannerInputs, ThreadPlanner};

/// Bytes for each of `table-pages`: as many as the balancer's own table has.
const BYTES_PER_PAGE: usize = 32;
/// Decisions without gain after which it looks less often.
const CALM_DECISIONS: u32 = 8;
/// Decisions after the last worthwhile one in which what it began is finished.
const FINISHING_DECISIONS: u32 = 40;
/// A local share that changes by this much is a new phase.
const CHANGED_SHARE: f64 = 0.05;
/// Factor by which the interval between decisions grows while there is nothing to gain.
const CALM_PERIOD: f64 = 2.0;
/// Factor by which the sampling rate falls then.
const CALM_SAMPLING: f64 = 4.0;

/// Policy `pilot`: minimises the run time that the traffic model predicts.
pub struct Pilot {
    nodes: usize,
    period_ns: f64,
    samples_per_s_and_cpu: f64,
    min_gain: f64,
    finish_gain: f64,
    max_harm: f64,
    replicate: bool,
    move_share: f64,
    move_threads: bool,
    patience: f64,
    /// Delay beyond what its pages' moves cost, by mapped range (process, first page): it pays for moving the range's pages that have no samples yet.
    surplus_ns: BTreeMap<(u32, PageNumber), f64>,
    memory: Memory,
    ledger: Ledger,
    guard: Guard,
    model: Model,
    threads: ThreadPlanner,
    calm: u32,
    /// Decisions left in which a gain of `finish_gain` will do.
    finishing: u32,
    /// Share of the memory accesses that were local in the last interval.
    local_share: f64,
    /// Whether there is memory with and without CPUs.
    has_tiers: bool,
    /// Which memory is cold; learned where there are tiers.
    cold: Cold,
    /// Whether the next decision needs to know where all pages are: some should go to memory that is full.
    wants_homes: bool,
    /// Moves and copies of pages that the last decision ordered.
    ordered: Vec<Ordered>,
    explanation: String,
}

impl Pilot {
    /// The options of the policy.
    pub const OPTIONS: &'static [OptionInfo] = &[
        OptionInfo::new("period-ms", "50", "milliseconds between decisions while there is something to gain"),
        OptionInfo::new("sampling-hz", "1000", "samples per second and CPU while there is something to gain"),
        OptionInfo::new("min-gain", "0.5", "least predicted gain in % of run time for which moves are started"),
        OptionInfo::new(
            "finish-gain",
            "0.5",
            "the same for completing started moves: samples reveal pages one by one, and each of the last gains little",
        ),
        OptionInfo::new("max-harm", "1", "loss of progress in % beyond which a batch of moves is undone"),
        OptionInfo::new("threads", "on", "whether threads may move between nodes"),
        OptionInfo::new("replicate", "on", "whether read-only pages may be copied to every node that uses them"),
        OptionInfo::new(
            "patience",
            "0.5",
            "delay already caused, as a multiple of the cost of moving, at which a page moves (1: the classical ski-rental rule)",
        ),
        OptionInfo::new("move-share", "20", "processor time of the threads at work, in %, that moving pages may take"),
        OptionInfo::new(
            "table-pages",
            "0",
            "bound on the statistics of pages, in units of 32 bytes; what was used longest ago is forgotten first; 0: no bound",
        ),
    ];

    /// The policy for a machine. Fails if an option is out of range, or the machine lacks what the traffic model needs.
    pub fn new(options: &Options, machine: &Machine, facts: &NodeFacts) -> Result<Pilot, PlacementError> {
        let system = MemorySystem::new(machine)?;
        let has_memory = NodeIndex::all(facts.count()).map(|node| facts.has_memory(node)).collect();
        Ok(Pilot {
            nodes: facts.count(),
            period_ns: options.number("period-ms", 1.0, 60_000.0)? * 1e6,
            samples_per_s_and_cpu: options.number("sampling-hz", 1.0, 100_000.0)?,
            min_gain: options.number("min-gain", 0.0, 100.0)? / 100.0,
            finish_gain: options.number("finish-gain", 0.0, 100.0)? / 100.0,
            max_harm: options.number("max-harm", 0.0, 100.0)? / 100.0,
            replicate: options.flag("replicate")?,
            patience: options.number("patience", 0.01, 100.0)?,
            surplus_ns: BTreeMap::new(),
            move_threads: options.flag("threads")?,
            move_share: options.number("move-share", 0.1, 100.0)? / 100.0,
            memory: Memory::within(options.whole("table-pages", 0, 1 << 40)? as usize * BYTES_PER_PAGE),
            ledger: Ledger::default(),
            guard: Guard::new(),
            model: Model::new(system, has_memory, facts.cpus.clone()),
            threads: ThreadPlanner::new(facts.cpus.clone()),
            calm: 0,
            finishing: 0,
            local_share: f64::NAN,
            has_tiers: room::has_tiers(facts),
            cold: Cold::default(),
            wants_homes: false,
            ordered: Vec::new(),
            explanation: String::new(),
        })
    }

    /// Takes in what happened since the last decision.
    fn learn(&mut self, seen: &Observation) {
        if self.has_tiers {
            self.cold.learn(seen);
        }
        self.ledger.settle(&seen.outcomes);
        let back = self.settle_orders(&seen.outcomes);
        let undo: Vec<Action> = back.into_iter().chain(self.threads.undo(&seen.outcomes)).collect();
        self.guard.moved(undo);
        for (page, to) in Guard::carried_out(&seen.outcomes) {
            self.memory.now_at(page, to);
            self.memory.has_copies(page, &[]);
        }
        for outcome in &seen.outcomes {
            match (&outcome.action, &outcome.result) {
                (Action::Replicate { page, nodes }, Ok(_) | Err(Refusal::AlreadyThere)) => {
                    self.memory.has_copies(*page, nodes);
                }
                // Its parts have none.
                (Action::Split { page }, Ok(_)) => self.memory.has_copies(*page, &[]),
                (Action::Migrate { page, .. } | Action::Replicate { page, .. }, Err(Refusal::Gone)) => {
                    self.memory.was_freed(*page);
                }
                _ => {}
            }
        }
        // Somebody else has moved it there: the kernel's own balancing, say.
        for outcome in seen.outcomes.iter().filter(|outcome| outcome.result == Err(Refusal::AlreadyThere)) {
            if let Action::Migrate { page, to } = outcome.action {
                self.memory.now_at(page, to);
            }
        }
        self.memory.keep_mapped(&seen.mapped);
        // Processes that have ended owe nothing.
        if !seen.mapped.is_empty() {
            self.surplus_ns.retain(|range, _| memory::has_process(&seen.mapped, range.0));
            if self.surplus_ns.len() > memory::RANGES_MAX {
                self.surplus_ns.retain(|range, _| memory::range_of(&seen.mapped, range.0, range.1).is_some());
            }
        }
        self.memory.know_read_only(&seen.read_only);
        // Copies that a write ended: that nodes read from others since does not show that the memory was freed.
        for (page, _) in &seen.collapses {
            self.memory.has_copies(*page, &[]);
        }
        self.memory.learn(&seen.samples, &seen.mapped, self.nodes);
        for (page, home) in &seen.collapses {
            self.memory.was_written(*page, *home, &seen.mapped);
        }
    }

    fn place_threads(&mut self, seen: &Observation, load: &Load, rates: &[f64], busy: &[f64]) -> Vec<Action> {
        if !self.move_threads {
            return Vec::new();
        }
        let price = PagePrice {
            page_ns: self.ledger.price_ns(PageSize::Small),
            caution: self.guard.caution,
            patience: self.patience,
        };
        let (memory, model) = (&self.memory, &mut self.model);
        self.threads.place(seen, PlannerInputs { memory, model, load, rates, busy, price })
    }

    /// A change of the local share is a new phase: no time to look seldom.
    fn wake_on_change(&mut self, seen: &Observation) {
        let traffic = Traffic::of(seen);
        let now = traffic.local / traffic.total();
        if (now - self.local_share).abs() > CHANGED_SHARE {
            self.calm = 0;
        }
        self.local_share = now;
    }

    /// Whether a predicted gain is enough to act on: more to begin than to finish what was begun.
    fn is_worthwhile(&mut self, gain: f64) -> bool {
        self.finishing = if gain >= self.min_gain { FINISHING_DECISIONS } else { self.finishing.saturating_sub(1) };
        self.finishing > 0 && gain >= self.finish_gain.min(self.min_gain)
    }

    fn gain(&mut self, seen: &Observation) -> Vec<Action> {
        let Some(load) = seen.load.as_ref().filter(|load| !load.classes.is_empty()) else {
            "no counters: the load of the memory system is unknown".clone_into(&mut self.explanation);
            return Vec::new();
        };
        let seconds = seen.elapsed_ns as f64 / 1e9;
        let per_second = |counts: &crate::observation::NodeCounters| {
            (counts.reads_to.iter().sum::<f64>() + counts.writes_to.iter().sum::<f64>()) / seconds.max(1e-9)
        };
        let rates: Vec<f64> = seen.nodes.iter().map(per_second).collect();
        if rates.len() != self.nodes {
            return Vec::new();
        }
        let groups = groups_of(&self.memory, &seen.mapped, &rates);
        let replicate = self.replicate && self.ledger.can_replicate;
        let busy: Vec<f64> = NodeIndex::all(self.nodes).map(|node| busiest(seen, node)).collect();
        let Some(found) = search::search(&mut self.model, load, &busy, &groups, replicate) else {
            "the traffic model has no answer for this load".clone_into(&mut self.explanation);
            return Vec::new();
        };
        let gain = 1.0 - found.time;
        self.wake_on_change(seen);
        let kinds = groups.len();
        let moved_threads = self.place_threads(seen, load, &rates, &busy);
        if !moved_threads.is_empty() {
            self.explanation =
                format!("{} threads move to nodes that can hold the pages that they share", moved_threads.len());
            self.calm = 0;
            return moved_threads;
        }
        let mut orders = self.splits(seconds, &rates, &found.cost_ns);
        let is_worthwhile = self.is_worthwhile(gain);
        let mut is_full = false;
        if !is_worthwhile {
            groups.iter().for_each(|group| self.forgive_all(&group.members));
        } else {
            let mut room = self.has_tiers.then(|| Room::new(seen, &rates, &found.cost_ns));
            orders.extend(self.orders(seen, &groups, &found.plans, room.as_mut()));
            is_full = room.is_some_and(|room| room.is_short);
        }
        self.wants_homes = is_full;
        self.explanation = format!(
            "{kinds} kinds of pages; a better placement would save {} of the run time: {} move requests{}",
            percent(gain),
            orders.len(),
            if is_full { "; memory that should serve more is full" } else { "" }
        );
        // What cannot be had for lack of room is no reason to look more often.
        self.calm = if is_worthwhile && !(is_full && orders.is_empty()) { 0 } else { self.calm.saturating_add(1) };
        orders
    }
}

/// Share of the interval in which the busiest thread of a node ran.
fn busiest(seen: &Observation, node: NodeIndex) -> f64 {
    let threads = seen.threads.iter().filter(|thread| thread.node == node);
    threads.map(|thread| thread.busy_ns / (seen.elapsed_ns as f64).max(1.0)).fold(0.0, f64::max)
}

impl Policy for Pilot {
    fn name(&self) -> &'static str {
        "pilot"
    }

    fn requirements(&self) -> PolicyRequirements {
        let (period, sampling) = if self.calm >= CALM_DECISIONS { (CALM_PERIOD, CALM_SAMPLING) } else { (1.0, 1.0) };
        PolicyRequirements {
            next_ns: (self.period_ns * period) as u64,
            samples_per_s_and_cpu: self.samples_per_s_and_cpu / sampling,
            mapped: true,
            homes: self.wants_homes,
        }
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        self.learn(seen);
        let mut undone = self.guard.watch(seen, self.max_harm);
        if self.has_tiers {
            // Of an exchange, what came has to go first, or there is no room for what went.
            undone.reverse();
        }
        if !undone.is_empty() {
            self.explanation =
                format!("the program slowed down after the last moves: {} of them are undone", undone.len());
            return undone;
        }
        self.gain(seen)
    }

    fn remembers(&self) -> bool {
        true
    }

    fn forgotten(&self) -> u64 {
        self.memory.forgotten
    }

    fn explain(&self) -> String {
        self.explanation.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::machine;

    #[test]
    fn its_memory_is_bounded_and_it_tells_what_it_forgot() {
        let machine = machine();
        let facts = NodeFacts::new(&machine).expect("nodes");
        let forgotten = |text: &str| {
            let options = Options::parse("pilot", Pilot::OPTIONS.to_vec(), text).expect("valid");
            let mut pilot = Pilot::new(&options, &machine, &facts).expect("a policy");
            let sample = |n: u64| {
                let (small_page, thread) = (PageNumber::first_of_large(n), 0);
                let page = crate::observation::PageKey { process: 1, page: small_page, size: PageSize::Small };
                crate::observation::Sample {
                    page,
                    small_page,
                    thread,
                    from: NodeIndex(0),
                    home: NodeIndex(0),
                    is_write: false,
                    latency_ns: None,
                }
            };
            let seen = Observation { samples: (0..1_000).map(sample).collect(), ..Observation::default() };
            pilot.decide(&seen);
            pilot.forgotten()
        };
        assert_eq!(forgotten(""), 0);
        assert!((500..1_000).contains(&forgotten("table-pages=16384")), "512 KiB are some 250 blocks");
    }

    /// An order for a page that was gone told nothing, and what was known of its memory was taken for knowledge of what came to its address.
    #[test]
    fn what_is_known_of_a_page_goes_with_it() {
        let machine = machine();
        let options = Options::parse("pilot", Pilot::OPTIONS.to_vec(), "").expect("valid");
        let facts = NodeFacts::new(&machine).expect("nodes");
        let mut pilot = Pilot::new(&options, &machine, &facts).expect("a policy");
        let page = crate::fixtures::page(7);
        let samples = vec![crate::fixtures::sample(page, 1, 0, false); 3];
        pilot.decide(&Observation { samples, ..Observation::default() });
        let mut after = |result| {
            let outcomes = vec![crate::action::Outcome { action: Action::Migrate { page, to: NodeIndex(1) }, result }];
            pilot.decide(&Observation { outcomes, ..Observation::default() });
            pilot.memory.page_memory_mut(page).map(|page| page.samples)
        };
        assert_eq!(after(Err(Refusal::Busy)), Some(3), "it is still there");
        assert_eq!(after(Err(Refusal::Gone)), None);
    }

    #[test]
    fn a_page_whose_copies_a_write_ended_was_not_freed() {
        let machine = machine();
        let options = Options::parse("pilot", Pilot::OPTIONS.to_vec(), "").expect("valid");
        let facts = NodeFacts::new(&machine).expect("nodes");
        let mut pilot = Pilot::new(&options, &machine, &facts).expect("a policy");
        let page = crate::fixtures::page(7);
        let read = || vec![crate::fixtures::sample(page, 1, 0, false)];
        let copies = Action::Replicate { page, nodes: [0, 1].map(NodeIndex).to_vec() };
        let outcomes = vec![crate::action::Outcome { action: copies, result: Ok(1e4) }];
        pilot.decide(&Observation { samples: read(), ..Observation::default() });
        pilot.decide(&Observation { outcomes, ..Observation::default() });
        let collapses = vec![(page, NodeIndex(0))];
        pilot.decide(&Observation { samples: read(), collapses, ..Observation::default() });
        let known = pilot.memory.page_memory_mut(page).map(|page| (page.samples, page.copies.len()));
        assert_eq!(known, Some((2, 0)));
    }

    #[test]
    fn it_takes_more_to_begin_than_to_finish() {
        let machine = machine();
        let options = Options::parse("pilot", Pilot::OPTIONS.to_vec(), "min-gain=4").expect("valid");
        let facts = NodeFacts::new(&machine).expect("nodes");
        let mut pilot = Pilot::new(&options, &machine, &facts).expect("a policy");
        assert!(!pilot.is_worthwhile(0.02), "not enough to begin");
        assert!(pilot.is_worthwhile(0.05) && pilot.is_worthwhile(0.02), "begun, then finished");
        assert!(!pilot.is_worthwhile(0.004), "too little for anything");
        for _ in 0..FINISHING_DECISIONS {
            pilot.is_worthwhile(0.0);
        }
        assert!(!pilot.is_worthwhile(0.02), "that is another beginning");
    }
}
