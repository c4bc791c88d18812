//! The decision row: everything about one object, or all instances of one site, that helps a person to choose a fix.
//!
//! Definitions: `docs/metrics.md`, "The decision row".

use numapilot_flows::{AccessRef, Object, ObjectKind, SiteId, SiteSize, Trace};
use numapilot_machine::NodeId;
use numapilot_trace::ids::{ObjectId, ThreadIndex};
use serde::Serialize;

use crate::context::{AllSums, Analysis};
use crate::estimate::{Estimate, Tally, Weight, net_share};
use crate::totals::UNKNOWN_MAX;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowKey {
    /// All instances of a site.
    Site(SiteId),
    /// One object instance.
    Object(ObjectId),
    /// Accesses to memory of no known object.
    Unknown,
}

/// How an object is used: the pattern decides which fixes make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Too few samples for a classification.
    TooFewSamples,
    /// The home node of more than half of its accesses is unknown.
    HomesUnknown,
    /// Nearly all accesses are local already.
    Local,
    /// Nearly all accesses come from its allocating thread, which runs on another node than its home node.
    PrivateRemote,
    /// Nearly all accesses come from one node, which is not its home node: allocate it there, or move it there.
    UsedElsewhere,
    /// Several nodes read it, and hardly any access writes: a copy per node gains if no access writes once it is initialised.
    SharedRead,
    /// Several nodes read and write it: spread it over the nodes if its memory controller has a high utilisation.
    SharedWritten,
}

/// One row. Shares are between 0 and 1; per-node lists follow [`Analysis::nodes`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionRow {
    /// The allocation site or object that the row is about.
    pub key: RowKey,
    /// Kind of the object, such as heap block or static symbol.
    pub kind: ObjectKind,
    /// Name, such as `block`.
    pub name: String,
    /// Place, such as `streamcluster.cpp:412`; empty where unknown.
    pub place: String,
    /// Function that allocates, or empty.
    pub function: String,
    /// Instances that were seen accessed.
    pub instances: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// What its objects take, accessed or not, in the whole recording whatever the filter: at their peak, and in all.
    #[serde(flatten)]
    pub size: SiteSize,
    /// Number of samples that the row rests on.
    pub samples: u64,
    /// Number of memory accesses.
    pub accesses: Estimate,
    /// Share of all memory accesses.
    pub share: Estimate,
    /// Share of all *remote* memory accesses.
    pub share_of_remote: Estimate,
    /// Of its accesses, the share that is remote.
    pub remote: Estimate,
    /// Of its accesses, the share with a known home node; `remote`, `local` and `on_node` are of these.
    pub known_homes: f64,
    /// Of its accesses, the share that is local.
    pub local: Estimate,
    /// Of its remote accesses, the share made by the allocating thread itself to memory of nodes with CPUs: pinning that thread where the memory is would have
    /// avoided them. `None` where no allocating thread is known for more than half of its accesses.
    pub avoidable_by_pinning: Option<Estimate>,
    /// Of its remote accesses, the net share that placing the whole object on `best_node` would have avoided.
    pub avoidable_by_allocating_elsewhere: Estimate,
    /// The one node on which most accesses would have been local; `None` where they come from nodes without memory.
    pub best_node: Option<NodeId>,
    /// Of its accesses, the share from each node.
    pub from_node: Vec<Estimate>,
    /// Of its accesses, the share served by each node.
    pub on_node: Vec<Estimate>,
    /// Of its accesses, the share by the allocating thread; `None` likewise.
    pub by_allocator: Option<Estimate>,
    /// Of its accesses, the share by the allocating thread before anyone else's first; `None` likewise.
    pub before_others: Option<Estimate>,
    /// Of its accesses, the share that writes.
    pub writes: Estimate,
    /// Where no sample writes: the write share is below this with 95 % confidence (3 / samples).
    pub read_only_bound: Option<f64>,
    /// Thread with the first sampled access (of the first instance, in a group).
    pub first_thread: Option<ThreadIndex>,
    /// Thread that allocated it (`None` in a group whose instances have several).
    pub allocating_thread: Option<ThreadIndex>,
    /// Instances whose first sampled access was by the allocating thread.
    pub first_by_allocator: u64,
    /// Threads that were seen to access it (one instance, at most, in a group).
    pub threads: u64,
    /// Nodes from which it was seen accessed.
    pub nodes: u64,
    /// Mean latency in cycles over the samples that know it.
    pub mean_latency_cycles: Option<f64>,
    /// How the object is used.
    pub pattern: Pattern,
}

impl DecisionRow {
    /// Whether the home node of at least half of its accesses is known. If not, its remote and local shares, what could be avoided and its home nodes are of
    /// too few of them to be shown.
    #[must_use]
    pub fn knows_homes(&self) -> bool {
        self.known_homes >= 1.0 - UNKNOWN_MAX
    }
}

/// Sums from which a row is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accumulator {
    all: Tally,
    known: Tally,
    remote: Tally,
    writes: Tally,
    with_allocator: Tally,
    by_allocator: Tally,
    remote_with_allocator: Tally,
    remote_by_allocator: Tally,
    before_others: Tally,
    from: Vec<Tally>,
    from_remote: Vec<Tally>,
    from_local: Vec<Tally>,
    home: Vec<Tally>,
    threads: Vec<u64>,
    latency_sum: f64,
    latency_weight: f64,
    instances: u64,
    bytes: u64,
    first_thread: Option<ThreadIndex>,
    first_by_allocator: u64,
    allocating_thread: Option<ThreadIndex>,
    several_allocators: bool,
}

impl Accumulator {
    pub fn new(nodes: usize) -> Accumulator {
        let zeros = vec![Tally::default(); nodes];
        Accumulator {
            from: zeros.clone(),
            from_remote: zeros.clone(),
            from_local: zeros.clone(),
            home: zeros,
            ..Accumulator::default()
        }
    }

    /// Tells of an instance, at its first access.
    pub fn begin_instance(&mut self, object: Option<&Object>, first: &AccessRef) {
        self.first_thread.get_or_insert(first.thread);
        let Some(object) = object else { return };
        self.instances += 1;
        self.bytes = self.bytes.saturating_add(object.bytes);
        if self.instances == 1 {
            self.allocating_thread = object.thread;
        }
        self.several_allocators |= self.allocating_thread != object.thread;
        self.first_by_allocator += u64::from(object.thread == Some(first.thread));
    }

    /// Adds an access to an instance. `alone`: nobody but the allocating thread was seen to access the instance so far.
    pub fn add(&mut self, analysis: &Analysis<'_>, object: Option<&Object>, access: &AccessRef, alone: bool) {
        let weight = Weight::from(access);
        self.all.add(weight);
        if access.is_write {
            self.writes.add(weight);
        }
        let word = access.thread.0 as usize / 64;
        if word >= self.threads.len() {
            self.threads.resize(word + 1, 0);
        }
        self.threads[word] |= 1 << (access.thread.0 % 64);
        if let Some(latency) = access.latency_cycles {
            self.latency_sum += f64::from(latency) * f64::from(access.weight);
            self.latency_weight += f64::from(access.weight);
        }
        let from = access.node.and_then(|node| analysis.node_position(node));
        let home = access.home.and_then(|node| analysis.node_position(node));
        if let Some(from) = from {
            self.from[from].add(weight);
        }
        if let Some(home) = home {
            self.home[home].add(weight);
        }
        let is_remote = access.is_remote();
        if let Some(is_remote) = is_remote {
            self.known.add(weight);
            if is_remote {
                self.remote.add(weight);
            }
            let split = if is_remote { &mut self.from_remote } else { &mut self.from_local };
            from.into_iter().for_each(|from| split[from].add(weight));
        }
        if let Some(allocator) = object.and_then(|object| allocator_of(analysis.trace, object)) {
            self.add_allocator_view(allocator == access.thread, alone, is_remote == Some(true), weight);
            // No thread can be pinned to a node without CPUs.
            let can_run_there = access.home.is_none_or(|home| !analysis.without_cpus.contains(&home));
            if allocator == access.thread && is_remote == Some(true) && can_run_there {
                self.remote_by_allocator.add(weight);
            }
        }
    }

    fn add_allocator_view(&mut self, is_allocator: bool, alone: bool, is_remote: bool, weight: Weight) {
        self.with_allocator.add(weight);
        if is_remote {
            self.remote_with_allocator.add(weight);
        }
        if !is_allocator {
            return;
        }
        self.by_allocator.add(weight);
        if alone {
            self.before_others.add(weight);
        }
    }

    pub fn weight(&self) -> f64 {
        self.all.weight
    }

    /// The row, as a part of `sums`. `total` is the exact number of all accesses where it was counted.
    pub fn row(&self, analysis: &Analysis<'_>, key: RowKey, sums: &AllSums, total: Option<f64>) -> DecisionRow {
        let trace = analysis.trace;
        let site = match key {
            RowKey::Site(site) => trace.site(site),
            RowKey::Object(object) => trace.site_of(object),
            RowKey::Unknown => None,
        };
        let size = match key {
            RowKey::Site(site) => trace.site_size(site),
            RowKey::Object(object) => size_of(trace.object(object)),
            RowKey::Unknown => SiteSize::default(),
        };
        let share = self.all.share_of(&sums.all);
        let known_from = self.known_from();
        let (best_node, avoidable) = self.best_placement(analysis);
        // What the objects with a known allocating thread show says nothing of the others, where these are more.
        let known_allocators = self.with_allocator.weight >= (1.0 - UNKNOWN_MAX) * self.all.weight;
        let with_allocator = self.with_allocator.samples > 0 && known_allocators;
        let remote = self.remote.share_of(&self.known);
        let mut row = DecisionRow {
            key,
            kind: site.map_or(ObjectKind::Unknown, |site| site.kind),
            name: site.map_or_else(|| "(no known object)".to_owned(), |site| site.name.to_string()),
            place: site.map(numapilot_flows::Site::place).unwrap_or_default(),
            function: site.map(|site| site.function.to_string()).unwrap_or_default(),
            instances: self.instances,
            bytes: self.bytes,
            size,
            samples: self.all.samples,
            accesses: total.map_or_else(|| self.all.total(), |total| share.scaled(total)),
            share,
            share_of_remote: self.remote.share_of(&sums.remote),
            remote,
            known_homes: self.known.share_of(&self.all).value,
            local: remote.complement(),
            avoidable_by_pinning: with_allocator
                .then(|| self.remote_by_allocator.share_of(&self.remote_with_allocator)),
            avoidable_by_allocating_elsewhere: avoidable,
            best_node,
            from_node: self.from.iter().map(|tally| tally.share_of(&known_from)).collect(),
            on_node: self.home.iter().map(|tally| tally.share_of(&sum_of(&self.home))).collect(),
            by_allocator: with_allocator.then(|| self.by_allocator.share_of(&self.with_allocator)),
            before_others: with_allocator.then(|| self.before_others.share_of(&self.with_allocator)),
            writes: self.writes.share_of(&self.all),
            read_only_bound: (self.writes.samples == 0 && self.all.samples > 0)
                .then(|| (3.0 / self.all.samples as f64).min(1.0)),
            first_thread: self.first_thread,
            allocating_thread: self.allocating_thread.filter(|_| !self.several_allocators),
            first_by_allocator: self.first_by_allocator,
            threads: self.threads.iter().map(|word| u64::from(word.count_ones())).sum(),
            nodes: self.from.iter().filter(|tally| tally.samples > 0).count() as u64,
            mean_latency_cycles: (self.latency_weight > 0.0).then(|| self.latency_sum / self.latency_weight),
            pattern: Pattern::TooFewSamples,
        };
        row.pattern = classify(&row);
        // A node without memory may be the one that uses it; nothing is local there wherever it is placed.
        if row.pattern == Pattern::UsedElsewhere && best_node != self.main_user().map(|index| analysis.nodes[index]) {
            row.best_node = None;
        }
        row
    }

    /// The position of the node from which most accesses come.
    fn main_user(&self) -> Option<usize> {
        (0..self.from.len()).max_by(|&a, &b| self.from[a].weight.total_cmp(&self.from[b].weight).then(b.cmp(&a)))
    }

    fn known_from(&self) -> Tally {
        sum_of(&self.from)
    }

    fn best_placement(&self, analysis: &Analysis<'_>) -> (Option<NodeId>, Estimate) {
        let best = (0..self.from.len())
            .filter(|&index| analysis.memory_nodes.contains(&analysis.nodes[index]))
            .max_by(|&a, &b| self.from[a].weight.total_cmp(&self.from[b].weight).then(b.cmp(&a)));
        let Some(best) = best.filter(|&index| self.from[index].samples > 0) else {
            return (None, Estimate::exact(0.0));
        };
        let local = self.known.without(&self.remote);
        let avoidable = net_share(&self.from_remote[best], &local.without(&self.from_local[best]), &self.remote);
        (Some(analysis.nodes[best]), avoidable)
    }
}

/// The thread that allocated an object. A process that maps shared memory which another one has mapped, too, need not have made it.
pub(crate) fn allocator_of(trace: &Trace, object: &Object) -> Option<ThreadIndex> {
    let is_mapped_again = trace.processes().len() > 1
        && trace.kind_of(Some(object.id)) == ObjectKind::Shared
        && trace.site_size(object.site).allocated_instances > 1;
    object.thread.filter(|_| !is_mapped_again)
}

/// One instance is its own peak.
fn size_of(object: Option<&Object>) -> SiteSize {
    object.map_or_else(SiteSize::default, |object| SiteSize {
        allocated_instances: 1,
        total_allocated_bytes: object.bytes,
        peak_live_bytes: object.bytes,
        peak_live_instances: 1,
    })
}

fn sum_of(tallies: &[Tally]) -> Tally {
    let mut sum = Tally::default();
    tallies.iter().for_each(|tally| sum.merge(tally));
    sum
}

/// From the row's own numbers; thresholds are in `docs/metrics.md`, "Patterns".
fn classify(row: &DecisionRow) -> Pattern {
    const ENOUGH_SAMPLES: u64 = 30;
    const NEARLY_ALL: f64 = 0.9;
    const HARDLY_ANY: f64 = 0.05;
    let most_from = row.from_node.iter().map(|share| share.value).fold(0.0, f64::max);
    if row.samples < ENOUGH_SAMPLES {
        Pattern::TooFewSamples
    } else if !row.knows_homes() {
        Pattern::HomesUnknown
    } else if row.local.value >= NEARLY_ALL {
        Pattern::Local
    } else if row.by_allocator.is_some_and(|share| share.value >= NEARLY_ALL) {
        Pattern::PrivateRemote
    } else if most_from >= NEARLY_ALL {
        Pattern::UsedElsewhere
    } else if row.writes.value <= HARDLY_ANY {
        Pattern::SharedRead
    } else {
        Pattern::SharedWritten
    }
}
