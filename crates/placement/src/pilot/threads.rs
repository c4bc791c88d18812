//! Where threads run: those that share pages belong on one node, if the traffic model says that it pays once their pages have followed.
//!
//! Candidates come from who shares what: an exchange (or a move to a free CPU) that puts more of each thread's accesses beside those of its sharers.
//! The judge is the model, with the pages placed anew for either arrangement, so that links and controllers count and not hops (Lepers et al.,
//! USENIX ATC 2015).

use std::collections::BTreeSet;

use numapilot_machine::{NodeIndex, NodeSet};
use numapilot_traffic::Load;

use super::groups::{Group, Member};
use super::memory::{BLOCK_PAGES, Memory};
use super::model::Model;
use super::search::search;
use crate::action::{Action, Outcome};
use crate::observation::{Observation, ThreadState};

/// Threads at work beyond which the search would take too long for a decision.
const THREADS_MAX: usize = 256;
/// Share of an interval from which on a thread that ran in it is at work.
const WORKING_SHARE: f64 = 0.05;
/// Samples by thread from which on sharing is known well enough.
const SAMPLES_MIN: f32 = 2_000.0;
/// Decisions in a row that must agree.
const AGREE: u32 = 3;
/// Predicted gain in run time, as a share, below which threads stay: what they lose by leaving their caches is not modelled.
const GAIN_MIN: f64 = 0.05;
/// An exchange has to bring this share of all accesses together.
const STEP_MIN: f64 = 1e-4;
/// Nanoseconds until threads are looked at again after they moved, or after a look found nothing; doubled each time.
const PAUSE_NS: u64 = 1_000_000_000;

/// Processors that the program keeps busy, for limits that are shares of its time: a thread at work counts whole, because those that wait for each other
/// do not run all the time, any other by the share of the interval for which it ran. So idle threads of a server's pool allow nothing. Never more than there
/// are CPUs, nor less than 1.
fn busy_processors(seen: &Observation, cpus: &[usize]) -> f64 {
    let elapsed_ns = (seen.elapsed_ns as f64).max(1.0);
    let weight = |thread: &ThreadState| {
        let share = thread.busy_ns / elapsed_ns;
        if share >= WORKING_SHARE { 1.0 } else { share.max(0.0) }
    };
    let most = cpus.iter().sum::<usize>() as f64;
    seen.threads.iter().map(weight).sum::<f64>().min(most).max(1.0)
}

/// Threads whose place matters: they ran, or their accesses to the pages that are used now are remembered. The others, idle threads of a pool, stay where
/// they are, and take no CPU from anybody.
fn working<'o>(memory: &Memory, seen: &'o Observation) -> Vec<&'o ThreadState> {
    let blocks = memory.active.iter().filter_map(|key| memory.blocks.get(key));
    let sharers: BTreeSet<u32> = blocks.flat_map(|block| block.threads.iter().map(|(thread, _)| *thread)).collect();
    let ran = |thread: &ThreadState| thread.busy_ns >= WORKING_SHARE * seen.elapsed_ns as f64;
    seen.threads.iter().filter(|thread| ran(thread) || sharers.contains(&thread.thread)).collect()
}

/// State between decisions.
pub(super) struct ThreadPlanner {
    cpus: Vec<usize>,
    agreed: u32,
    pause_ns: u64,
    next_ns: u64,
    /// Where threads were that were ordered to move: (thread, node).
    before: Vec<(u32, NodeIndex)>,
}

impl ThreadPlanner {
    /// `cpus`: online CPUs of each node.
    pub fn new(cpus: Vec<usize>) -> ThreadPlanner {
        ThreadPlanner { cpus, agreed: 0, pause_ns: PAUSE_NS, next_ns: 0, before: Vec::new() }
    }

    /// See [`busy_processors`].
    pub fn busy_processors(&self, seen: &Observation) -> f64 {
        busy_processors(seen, &self.cpus)
    }

    /// Orders that undo the thread moves that were carried out.
    pub fn undo(&mut self, outcomes: &[Outcome]) -> Vec<Action> {
        let moved = |thread: u32| {
            let is_it = |outcome: &&Outcome| matches!(outcome.action, Action::MoveThread { thread: moved, .. } if moved == thread);
            outcomes.iter().find(is_it).is_some_and(|outcome| outcome.result.is_ok())
        };
        self.before
            .drain(..)
            .filter(|(thread, _)| moved(*thread))
            .map(|(thread, to)| Action::MoveThread { thread, to })
            .collect()
    }

    /// Orders thread moves when the model has promised the same gain several times and it pays for the pages that will follow.
    pub fn place(&mut self, seen: &Observation, state: PlannerInputs<'_>) -> Vec<Action> {
        let PlannerInputs { memory, model, load, rates, busy, price } = state;
        let nodes = rates.len();
        if seen.now_ns < self.next_ns || seen.threads.iter().any(|thread| thread.node.0 >= nodes) {
            return Vec::new();
        }
        let threads = working(memory, seen);
        if threads.len() > THREADS_MAX {
            return Vec::new();
        }
        let sharing = Sharing::of(memory, &threads, rates.iter().sum());
        if sharing.samples < SAMPLES_MIN {
            return Vec::new();
        }
        let now: Vec<NodeIndex> = threads.iter().map(|thread| thread.node).collect();
        let allowed: Vec<NodeSet> = threads.iter().map(|thread| thread.allowed).collect();
        let then = sharing.cluster(now.clone(), &self.cpus, &allowed);
        let gain = if then == now {
            None
        } else {
            let mut time = |at: &[NodeIndex]| search(model, load, busy, &sharing.groups(at, nodes), false);
            let (stay, go) = (time(&now), time(&then));
            // The two searches start from different placements; what counts is where they end, in time of the same work.
            stay.zip(go).map(|(stay, go)| 1.0 - go.end_time / stay.end_time)
        };
        if gain.is_none_or(|gain| gain < GAIN_MIN) {
            self.pause(seen.now_ns);
            return Vec::new();
        }
        self.agreed += 1;
        let pages = sharing.blocks.len() as f64 * BLOCK_PAGES as f64;
        let price_ns = pages * price.page_ns * price.caution;
        let busy_ns: f64 = seen.threads.iter().map(|thread| thread.busy_ns).sum();
        // What the program has run is the best guess at what it will still run.
        let worth_ns = gain.unwrap_or(0.0) * busy_ns / (seen.elapsed_ns as f64).max(1.0) * seen.now_ns as f64;
        if self.agreed < AGREE || worth_ns < price_ns * price.patience {
            return Vec::new();
        }
        self.pause(seen.now_ns);
        let moves = now.iter().zip(&then).zip(&threads).filter(|((now, then), _)| now != then);
        let moves: Vec<(u32, NodeIndex, NodeIndex)> =
            moves.map(|((now, then), thread)| (thread.thread, *now, *then)).collect();
        self.before = moves.iter().map(|(thread, now, _)| (*thread, *now)).collect();
        moves.into_iter().map(|(thread, _, to)| Action::MoveThread { thread, to }).collect()
    }

    fn pause(&mut self, now_ns: u64) {
        self.agreed = 0;
        self.next_ns = now_ns + self.pause_ns;
        self.pause_ns = self.pause_ns.saturating_mul(2);
    }
}

/// What a decision about threads rests on, besides the observation. Rates and shares are by node, for all nodes.
pub(super) struct PlannerInputs<'a> {
    pub memory: &'a Memory,
    pub model: &'a mut Model,
    pub load: &'a Load,
    /// Memory accesses per second.
    pub rates: &'a [f64],
    /// Share of the interval in which the busiest thread ran.
    pub busy: &'a [f64],
    pub price: PagePrice,
}

/// What the pages that follow threads cost.
#[derive(Clone, Copy)]
pub(super) struct PagePrice {
    /// Nanoseconds to move a small page.
    pub page_ns: f64,
    /// Factor on it after moves that had to be undone.
    pub caution: f64,
    /// Gain, as a multiple of the cost, from which on threads move.
    pub patience: f64,
}

/// A block and its users, by the threads' positions among those at work.
struct SharedBlock {
    /// Accesses per second to the block.
    rate: f64,
    home: NodeIndex,
    /// Threads, each with its share of the accesses.
    users: Vec<(usize, f64)>,
}

/// Accesses of each thread to each block.
struct Sharing {
    blocks: Vec<SharedBlock>,
    /// For each pair of threads: accesses per second to the same blocks.
    affinity: Vec<Vec<f64>>,
    samples: f32,
}

impl Sharing {
    /// `working`: the threads whose sharing matters, by their numbers, ascending.
    fn of(memory: &Memory, working: &[&ThreadState], rate: f64) -> Sharing {
        let threads = working.len();
        let position = |thread: u32| working.binary_search_by_key(&thread, |state| state.thread).ok();
        let samples: f32 =
            memory.active.iter().filter_map(|key| memory.blocks.get(key)).map(super::memory::Block::fresh_total).sum();
        let mut sharing = Sharing { blocks: Vec::new(), affinity: vec![vec![0.0; threads]; threads], samples: 0.0 };
        for block in memory.active.iter().filter_map(|key| memory.blocks.get(key)) {
            let known: f32 = block.threads.iter().map(|(_, count)| count).sum();
            sharing.samples += known;
            let shares: Vec<(usize, f64)> = block
                .threads
                .iter()
                .filter_map(|(thread, count)| Some((position(*thread)?, f64::from(count / known))))
                .collect();
            let block_rate = rate * f64::from(block.fresh_total() / samples.max(1.0));
            for (a, share) in &shares {
                for (b, other) in &shares {
                    sharing.affinity[*a][*b] += block_rate * share * other;
                }
            }
            let home = block.pages.first().map_or(NodeIndex(0), |page| page.home.index());
            sharing.blocks.push(SharedBlock { rate: block_rate, home, users: shares });
        }
        sharing
    }

    /// The blocks as groups, with their users where `at` puts the threads.
    fn groups(&self, at: &[NodeIndex], nodes: usize) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for block in &self.blocks {
            let mut reads = vec![0.0; nodes];
            for (thread, share) in &block.users {
                reads[at[*thread]] += block.rate * share;
            }
            groups.push(Group {
                home: block.home,
                reads,
                writes: vec![0.0; nodes],
                members: vec![(Member::Large((0, 0)), block.rate)],
                read_only: false,
            });
        }
        groups
    }

    /// Exchanges threads, or moves them to free CPUs, as long as that puts more accesses of sharers on one node; each step takes the best exchange. No thread
    /// goes where it is not allowed: the order would be refused, and a decision would be lost on it.
    fn cluster(&self, mut at: Vec<NodeIndex>, cpus: &[usize], allowed: &[NodeSet]) -> Vec<NodeIndex> {
        let threads = at.len();
        // For each thread: accesses per second that it shares with the threads on each node.
        let mut near = vec![vec![0.0; cpus.len()]; threads];
        for (thread, near) in near.iter_mut().enumerate() {
            for other in (0..threads).filter(|other| *other != thread) {
                near[at[other]] += self.affinity[thread][other];
            }
        }
        let total: f64 = self.blocks.iter().map(|block| block.rate).sum();
        for _ in 0..2 * threads {
            let best = self.best_exchange(&at, &near, cpus, allowed);
            let Some(exchange) = best.filter(|best| best.gain >= STEP_MIN * total) else {
                break;
            };
            let mut go = |thread: usize, to: NodeIndex| {
                for (other, near) in near.iter_mut().enumerate().filter(|(other, _)| *other != thread) {
                    near[at[thread]] -= self.affinity[other][thread];
                    near[to] += self.affinity[other][thread];
                }
                at[thread] = to;
            };
            if let Some(partner) = exchange.partner {
                go(partner, exchange.from);
            }
            go(exchange.thread, exchange.to);
        }
        at
    }

    fn best_exchange(
        &self,
        at: &[NodeIndex],
        near: &[Vec<f64>],
        cpus: &[usize],
        allowed: &[NodeSet],
    ) -> Option<Exchange> {
        let mut crowd = vec![0; cpus.len()];
        at.iter().for_each(|node| crowd[*node] += 1);
        let mut best: Option<Exchange> = None;
        let mut offer = |gain: f64, thread: usize, to: NodeIndex, partner: Option<usize>| {
            if gain > best.as_ref().map_or(0.0, |best| best.gain) {
                best = Some(Exchange { gain, thread, from: at[thread], to, partner });
            }
        };
        for thread in 0..at.len() {
            let here = near[thread][at[thread]];
            let may = |thread: usize, to: NodeIndex| allowed[thread].contains(to);
            let is_free = |to: &NodeIndex| *to != at[thread] && crowd[*to] < cpus[*to] && may(thread, *to);
            for to in NodeIndex::all(cpus.len()).filter(is_free) {
                offer(near[thread][to] - here, thread, to, None);
            }
            let is_other =
                |partner: &usize| at[*partner] != at[thread] && may(thread, at[*partner]) && may(*partner, at[thread]);
            for partner in (thread + 1..at.len()).filter(is_other) {
                let to = at[partner];
                let theirs = near[partner][at[thread]] - near[partner][to];
                offer(
                    near[thread][to] - here + theirs - 2.0 * self.affinity[thread][partner],
                    thread,
                    to,
                    Some(partner),
                );
            }
        }
        best
    }
}

/// A thread goes to another node; its partner, if any, takes its place.
struct Exchange {
    /// Increase of the accesses per second of sharers on one node.
    gain: f64,
    thread: usize,
    from: NodeIndex,
    to: NodeIndex,
    partner: Option<usize>,
}

#[cfg(test)]
mod tests {
    use numapilot_host::PageNumber;

    use super::*;
    use crate::observation::{PageKey, PageSize, Sample};

    /// Threads 0 and 1 work on node 0 and share a page; 1,000 more of a pool sleep on node 1.
    fn server() -> (Memory, Observation) {
        let state = |thread: u32| ThreadState {
            thread,
            process: 1,
            node: NodeIndex(usize::from(thread >= 2)),
            allowed: NodeSet::all(2),
            busy_ns: if thread < 2 { 40e6 } else { 1e4 },
            instructions: 0.0,
            memory_accesses: 0.0,
        };
        let page = PageKey { process: 1, page: PageNumber(7), size: PageSize::Small };
        let sample = |thread| Sample {
            page,
            small_page: page.page,
            thread,
            from: NodeIndex(0),
            home: NodeIndex(0),
            is_write: false,
            latency_ns: None,
        };
        let mut memory = Memory::default();
        memory.learn(&[sample(0), sample(1)], &[], 2);
        (
            memory,
            Observation { elapsed_ns: 50_000_000, threads: (0..1002).map(state).collect(), ..Observation::default() },
        )
    }

    /// Such orders are refused, and the pages, which could have moved, wait for another decision.
    #[test]
    fn threads_that_a_program_binds_stay() {
        let (memory, seen) = server();
        let mut threads: Vec<&ThreadState> = working(&memory, &seen);
        let mut apart = threads[1].clone();
        apart.node = NodeIndex(1);
        threads[1] = &apart;
        let sharing = Sharing::of(&memory, &threads, 1e6);
        let at = vec![NodeIndex(0), NodeIndex(1)];
        let cluster = |allowed: [NodeSet; 2]| sharing.cluster(at.clone(), &[8, 8], &allowed);
        let only = |node: usize| [NodeIndex(node)].into_iter().collect::<NodeSet>();
        assert_eq!(cluster([NodeSet::all(2); 2]).windows(2).filter(|pair| pair[0] == pair[1]).count(), 1, "together");
        assert_eq!(cluster([NodeSet::all(2), only(1)]), [NodeIndex(1); 2], "to the one that is bound");
        assert_eq!(cluster([only(0), only(1)]), at);
        // No exchange either.
        assert_eq!(sharing.cluster(at.clone(), &[1, 1], &[only(0), NodeSet::all(2)]), at);
    }

    #[test]
    fn idle_threads_of_a_pool_neither_count_nor_allow_anything() {
        let (memory, mut seen) = server();
        let numbers: Vec<u32> = working(&memory, &seen).iter().map(|thread| thread.thread).collect();
        assert_eq!(numbers, [0, 1]);
        let processors = busy_processors(&seen, &[8, 8]);
        assert!((processors - 2.2).abs() < 1e-9, "two threads, and 1,000 that ran for 10 us of 50 ms: {processors}");
        // One that waits for the other, which has used the page, keeps its place in the plan.
        seen.threads[1].busy_ns = 0.0;
        assert_eq!(working(&memory, &seen).len(), 2);
        seen.threads.iter_mut().for_each(|thread| thread.busy_ns = 5e6);
        assert_eq!((busy_processors(&seen, &[8, 8]), working(&memory, &seen).len()), (16.0, 1002));
        assert_eq!(busy_processors(&Observation::default(), &[8, 8]), 1.0);
    }

    #[test]
    fn sharers_come_together_and_no_cpu_gets_two() {
        // Eight threads in four pairs, spread so that no pair is on one node of two CPUs.
        let users = |pair: usize| vec![(pair, 0.5), (pair + 4, 0.5)];
        let blocks: Vec<SharedBlock> =
            (0..4).map(|pair| SharedBlock { rate: 1.0, home: NodeIndex(0), users: users(pair) }).collect();
        let mut affinity = vec![vec![0.0; 8]; 8];
        for pair in 0..4 {
            (affinity[pair][pair + 4], affinity[pair + 4][pair]) = (0.25, 0.25);
        }
        let sharing = Sharing { blocks, affinity, samples: 0.0 };
        let at = sharing.cluster([0, 1, 2, 3, 1, 2, 3, 0].map(NodeIndex).to_vec(), &[2; 4], &[NodeSet::all(4); 8]);
        assert!((0..4).all(|pair| at[pair] == at[pair + 4]), "{at:?}");
        assert!(NodeIndex::all(4).all(|node| at.iter().filter(|place| **place == node).count() == 2), "{at:?}");
    }
}
