//! What if: predicts the gain of other placements of a recorded program's objects, threads or processes. The same function prices the fixes of findings, so the
//! same change has the same gain and interval in both.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{NameError, Named, ObjectKind, SiteId, Trace};
use numapilot_machine::{Machine, MemoryTier, NodeId, NodeIndex, format_cpu_list};
use numapilot_text::units;
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex};
use numapilot_traffic::{Imbalance, Metrics, TrafficError};
use serde::Serialize;

use crate::context::{AllSums, Analysis};
use crate::estimate::Estimate;
use crate::facts::{ProcessPage, SiteFacts};
use crate::fixes::{Effect, FixCandidate, FixKind, FixPricer, too_large_together};
use crate::measured::{self, MeasuredLatency};
use crate::patterns::{limits_of, paced, too_few, why_unpriced};
use crate::price::{Priced, Pricer};
use crate::scene::{Interest, Scene, Surveyed};
use crate::uncertainty::Uncertainty;
use crate::unseen::unseen_sites;
use crate::usage::{Usage, index_of};

const KNOWN: &str = "interleave, weights:NODE*WEIGHT+..., bind:NODE, users, local, arenas, first-touch, replicate, hand-over, near or tier:fast, spread or \
                     align; or write processes=pin or threads=pin";

/// One requested change: some memory, threads or processes, and where they should be.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementOverride {
    /// The request as text, such as `block: interleave`.
    pub words: String,
    about: About,
    kind: FixKind,
    /// Pages go to the node of their first toucher, whatever memory policy the program set.
    by_touch: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum About {
    All,
    /// Each named instance is priced as a group of its own.
    Objects(Vec<Named>),
    /// Whole sites, and instances of other sites that are priced as one group.
    Taken(Vec<SiteId>, Vec<ObjectId>),
    /// Threads that the scheduler moved, or all processes; their nodes follow from the recording.
    Nothing,
    Threads(Vec<(ThreadIndex, NodeId)>),
    Processes(Vec<(ProcessIndex, NodeId)>),
}

/// Why a change cannot be read or priced.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WhatIfError {
    /// The text is not of the form `OBJECT=WHERE`.
    #[error("write OBJECT=WHERE, with WHERE one of {KNOWN}")]
    Form,
    /// `WHERE` is not a known placement.
    #[error("{0:?} is none of {KNOWN}")]
    Where(String),
    /// No object has that name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The machine has no memory on that node.
    #[error("machine {machine} has no node {node} with memory; its nodes with memory are {those}")]
    Node {
        /// The machine's name.
        machine: String,
        /// The requested node.
        node: NodeId,
        /// The nodes with memory, separated by commas.
        those: String,
    },
    /// The fast memory of this machine is not that of nodes with CPUs.
    #[error(
        "memory of node {node} of machine {machine} has more bandwidth than that of nodes with CPUs, so which is fast depends on the program: write near, \
         bind:N or weights:N*W+..."
    )]
    Tier {
        /// The machine's name.
        machine: String,
        /// The node, which has no CPUs.
        node: NodeId,
    },
    /// The machine has memory of one tier.
    #[error("machine {machine} has no tiers of memory: write near, interleave or bind:N")]
    NoTiers {
        /// The machine's name.
        machine: String,
    },
    /// No node with CPUs has memory.
    #[error("all memory of machine {machine} is on nodes without CPUs, so none is near: write interleave or bind:N")]
    NoneNear {
        /// The machine's name.
        machine: String,
    },
    /// A thread would run on a node on which it did not run in the recording.
    #[error(
        "thread {thread} did not run on node {node} in this recording, so the placement of the pages that it would touch first there is not known; record with \
         the plan instead, and compare"
    )]
    Seat {
        /// The thread, by its index in the trace.
        thread: ThreadIndex,
        /// The requested node.
        node: NodeId,
    },
    /// The recording cannot be priced.
    #[error("{0}")]
    Recording(String),
    /// The machine cannot be modelled.
    #[error("the gain cannot be predicted on this machine: {0}")]
    Machine(#[from] TrafficError),
}

impl PlacementOverride {
    /// Reads `OBJECT=WHERE`.
    ///
    /// # Errors
    /// If the text has another form, or names an object that the trace does not have.
    pub fn read(trace: &Trace, text: &str) -> Result<PlacementOverride, WhatIfError> {
        let (name, place) = text.rsplit_once('=').ok_or(WhatIfError::Form)?;
        let pin = |words: &str, kind| PlacementOverride {
            words: words.to_owned(),
            about: About::Nothing,
            kind,
            by_touch: false,
        };
        match (name, place) {
            ("processes", "pin") => return Ok(pin("processes: each pinned to one node", FixKind::PinProcesses)),
            ("threads", "pin") => {
                return Ok(pin("threads that moved: each pinned to the node of its memory", FixKind::PinThreads));
            }
            _ => {}
        }
        let kind = kind_of(place).ok_or_else(|| WhatIfError::Where(place.to_owned()))?;
        let about = if name == "*" { About::All } else { About::Objects(trace.objects_named(name)?) };
        Ok(PlacementOverride { words: format!("{name}: {place}"), about, kind, by_touch: place == "first-touch" })
    }

    /// The memory that a rule of a plan matches: all objects of `sites`, and `objects` of others. `by_touch`: its pages go to the node of their first toucher,
    /// whatever memory policy the program set. `None` if both lists are empty.
    #[must_use]
    pub fn taken(
        words: String,
        sites: Vec<SiteId>,
        objects: Vec<ObjectId>,
        kind: FixKind,
        by_touch: bool,
    ) -> Option<PlacementOverride> {
        let about = (!sites.is_empty() || !objects.is_empty()).then_some(About::Taken(sites, objects))?;
        Some(PlacementOverride { words, about, kind, by_touch })
    }

    /// Threads, each on a node on which it ran in the recording.
    #[must_use]
    pub fn threads(words: String, seats: Vec<(ThreadIndex, NodeId)>) -> PlacementOverride {
        PlacementOverride { words, about: About::Threads(seats), kind: FixKind::PinThreads, by_touch: false }
    }

    /// Processes, each on a node, with the memory that only they use.
    #[must_use]
    pub fn processes(words: String, seats: Vec<(ProcessIndex, NodeId)>) -> PlacementOverride {
        PlacementOverride { words, about: About::Processes(seats), kind: FixKind::PinProcesses, by_touch: false }
    }

    fn is_of_memory(&self) -> bool {
        matches!(self.about, About::All | About::Objects(_) | About::Taken(..))
    }

    fn is_by_tier(&self) -> bool {
        self.kind == FixKind::NearTier && self.words.ends_with(": tier:fast")
    }

    fn node(&self) -> Vec<NodeId> {
        match &self.kind {
            FixKind::AllocateOnNode(node) => vec![*node],
            FixKind::WeightedInterleave(weights) => weights.iter().map(|(node, _)| *node).collect(),
            _ => Vec::new(),
        }
    }
}

fn kind_of(place: &str) -> Option<FixKind> {
    Some(match place {
        "interleave" => FixKind::Interleave,
        "replicate" => FixKind::Replicate,
        "users" | "local" | "first-touch" => FixKind::FirstTouchByUsers,
        "arenas" => FixKind::LocalArenas,
        "hand-over" => FixKind::MigrateAtHandOver,
        "near" => FixKind::NearTier,
        "spread" => FixKind::SpreadHot,
        "align" => FixKind::SplitOrAlign,
        _ => match place.split_once(':')? {
            ("tier", "fast") => FixKind::NearTier,
            ("bind", node) => FixKind::AllocateOnNode(NodeId(node.parse().ok()?)),
            ("weights", list) => {
                let one = |text: &str| {
                    let (node, weight) = text.split_once('*')?;
                    Some((NodeId(node.parse().ok()?), weight.parse().ok().filter(|weight| *weight > 0)?))
                };
                FixKind::WeightedInterleave(list.split('+').map(one).collect::<Option<_>>()?)
            }
            _ => return None,
        },
    })
}

/// The text behind `OBJECT=` that requests a fix; `None` for fixes that are not about memory.
#[must_use]
pub fn place_of(kind: &FixKind) -> Option<String> {
    Some(match kind {
        FixKind::AllocateOnNode(node) => format!("bind:{}", node.0),
        FixKind::FirstTouchByUsers | FixKind::ParallelFirstTouch => "users".to_owned(),
        FixKind::MigrateAtHandOver => "hand-over".to_owned(),
        FixKind::Interleave | FixKind::InterleaveAll => "interleave".to_owned(),
        FixKind::WeightedInterleave(weights) => {
            let one = |(node, weight): &(NodeId, u32)| format!("{}*{weight}", node.0);
            format!("weights:{}", weights.iter().map(one).collect::<Vec<_>>().join("+"))
        }
        FixKind::Replicate => "replicate".to_owned(),
        FixKind::LocalArenas => "arenas".to_owned(),
        FixKind::SpreadHot => "spread".to_owned(),
        FixKind::SplitOrAlign => "align".to_owned(),
        FixKind::NearTier => "near".to_owned(),
        FixKind::PinThreads | FixKind::PinProcesses => return None,
    })
}

/// The arguments of `whatif --set` that request a fix: one for each site.
#[must_use]
pub fn asked(fix: &crate::Fix) -> Vec<String> {
    match (&fix.kind, place_of(&fix.kind)) {
        (FixKind::PinThreads, _) => vec!["threads=pin".to_owned()],
        (FixKind::PinProcesses, _) => vec!["processes=pin".to_owned()],
        (_, Some(place)) if fix.sites.is_empty() => vec![format!("*={place}")],
        (_, place) => {
            let place = place.unwrap_or_default();
            fix.sites.iter().map(|site| format!("S{}={place}", site.0)).collect()
        }
    }
}

/// Predicted run time and memory traffic of one placement, under load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlook {
    /// Predicted run time, ns.
    pub run_time_ns: f64,
    /// Predicted time that the threads work, all together, in ns: without waits and sleeps. `None` where nothing computes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_time_ns: Option<f64>,
    /// Memory traffic of the whole run.
    pub total: Traffic,
}

/// Traffic of a whole run. Nodes are in the machine's order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Memory accesses by accessing node (row) and answering node (column).
    pub accesses: Vec<Vec<f64>>,
    /// Mean utilisation of each node's memory controller; `None` on nodes without memory.
    pub controllers: Vec<Option<f64>>,
    /// Mean utilisation of each link.
    pub links: Vec<f64>,
    /// The metrics that follow from these.
    pub metrics: Metrics,
}

/// Predicted times of a program as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedRun {
    /// Run time, ns.
    pub run_ns: f64,
    /// Sum of the times in which its threads worked, ns.
    pub worked_ns: f64,
}

/// The predicted effect of the changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The program as it was recorded.
    pub now: Outlook,
    /// The program as it would be.
    pub then: Outlook,
    /// How much faster, as a share of the new run time: 1 is twice as fast.
    pub gain: Estimate,
    /// Processor time as it was over that with the change, less one, where sleeps decide how long the run is, as of [`crate::Fix::work_gain`].
    pub work_gain: Option<Estimate>,
    /// Where the interval of the latter comes from, if there is one, else that of the former.
    pub uncertainty: Uncertainty,
    /// Latencies that the processor measured in the recording, beside the model's.
    pub measured: Vec<MeasuredLatency>,
    /// Further bytes of memory that it needs.
    pub more_bytes: u64,
    /// Each change as text, and the bytes of memory that it moves; `None` for changes of threads and processes.
    pub set: Vec<(String, Option<u64>)>,
    /// What the changes place where there is not enough memory for it, in whole sentences.
    pub too_large: Vec<String>,
    /// What the prediction leaves out, in whole sentences, [`Answer::too_large`] among them.
    pub cannot_say: Vec<String>,
}

impl Analysis<'_> {
    /// Predicts what the changes would gain on `machine`, on which the recording was made. If two concern the same memory, the later one counts.
    ///
    /// # Errors
    /// If the recording has no prices or too few samples, or the machine cannot do it.
    pub fn what_if(&self, machine: &Machine, overrides: &[PlacementOverride]) -> Result<Answer, WhatIfError> {
        self.what_if_surveyed(machine, overrides, &mut Surveyed::default())
    }

    /// The same, without another walk over the recording where [`Analysis::findings_surveyed`] has left all that the changes are about.
    ///
    /// # Errors
    /// As [`Analysis::what_if`].
    pub fn what_if_surveyed(
        &self,
        machine: &Machine,
        overrides: &[PlacementOverride],
        surveyed: &mut Surveyed,
    ) -> Result<Answer, WhatIfError> {
        let sums = self.check_priced()?;
        // What findings refuse to judge by is too little for a gain, too.
        if let Some(why) = too_few(self, &sums) {
            return Err(WhatIfError::Recording(why));
        }
        overrides.iter().try_for_each(|change| check(machine, change))?;
        let (interest, groups) = self.interest(machine, overrides);
        let scene = match surveyed.scene(self, machine, &interest) {
            Some(scene) => scene,
            None => Scene::new(self, machine, &interest)?,
        };
        overrides.iter().try_for_each(|change| check_seats(&scene, change))?;
        let pricer_of_fixes = FixPricer::new(&scene)?;
        let facts = |group: u32| scene.sites.iter().find(|facts| facts.site.0 == group);
        let candidates: Vec<FixCandidate> =
            overrides.iter().zip(&groups).map(|(change, groups)| candidate(machine, change, groups, &facts)).collect();
        let fixes: Vec<&FixCandidate> = candidates.iter().collect();
        let then = pricer_of_fixes.then(&fixes, true)?;
        let bytes = |(change, candidate): (&PlacementOverride, &FixCandidate)| {
            change.is_of_memory().then(|| candidate.live_bytes())
        };
        let too_large = too_large(machine, overrides, &candidates);
        let Effect { gain, work_gain, uncertainty } = pricer_of_fixes.effect(&then, &fixes);
        Ok(Answer {
            now: outlook(machine, pricer_of_fixes.now()),
            then: outlook(machine, &then),
            gain,
            work_gain,
            uncertainty,
            measured: measured::latencies(&scene),
            more_bytes: candidates.iter().map(|candidate| candidate.more_bytes(machine)).sum(),
            set: overrides.iter().zip(&candidates).map(|both| (both.0.words.clone(), bytes(both))).collect(),
            cannot_say: limits_of(self, &sums, &unseen_sites(self), "the prediction does")
                .into_iter()
                .chain(scene.usage.paced().map(paced))
                .chain(pricer_of_fixes.shared_cores(&fixes).map(str::to_owned))
                .chain(too_large.iter().cloned())
                .collect(),
            too_large,
        })
    }

    /// Predicted times of the program as it was recorded: what [`Analysis::what_if`] compares a change with.
    ///
    /// # Errors
    /// If the recording has no prices.
    pub fn predicted_run(&self, machine: &Machine) -> Result<PredictedRun, WhatIfError> {
        self.check_priced()?;
        let usage = Usage::of(self, machine, &BTreeMap::new());
        let now = Pricer::new(machine, &usage)?.now()?;
        Ok(PredictedRun { run_ns: now.run_ns, worked_ns: now.worked_ns })
    }

    /// Checks that the recording has prices; the sums over its accesses.
    fn check_priced(&self) -> Result<AllSums, WhatIfError> {
        let sums = self.sum();
        if sums.all.samples == 0 {
            let why = "it holds no memory accesses, so nothing can be predicted; record with `--engine instrument`";
            return Err(WhatIfError::Recording(why.to_owned()));
        }
        match why_unpriced(self, &sums) {
            Some(why) => Err(WhatIfError::Recording(why.join(" "))),
            None => Ok(sums),
        }
    }

    /// The groups and instances that the changes need facts of, and the groups of each change.
    fn interest(&self, machine: &Machine, overrides: &[PlacementOverride]) -> (Interest, Vec<Vec<u32>>) {
        let trace = self.trace();
        let sites = trace.sites().len() as u32;
        let (apart, end) = apart(overrides, sites + 1);
        // Instances that are groups of their own are part of their site, too.
        let mut of_site: BTreeMap<SiteId, Vec<u32>> = BTreeMap::new();
        for (id, group) in &apart {
            if let Some(object) = trace.object(*id) {
                let groups = of_site.entry(object.site).or_default();
                if !groups.contains(group) {
                    groups.push(*group);
                }
            }
        }
        let whole = |site: &SiteId| std::iter::once(site.0).chain(of_site.get(site).into_iter().flatten().copied());
        let of_named = |named: &Named| -> Vec<u32> {
            match named {
                Named::Site(site) => whole(site).collect(),
                Named::Object(object) => apart.get(object).copied().into_iter().collect(),
            }
        };
        let of_ask = |change: &PlacementOverride| -> Vec<u32> {
            match &change.about {
                About::All => (0..sites).chain(sites + 1..end).collect(),
                About::Objects(list) => list.iter().flat_map(of_named).collect(),
                About::Taken(sites, objects) => {
                    let mut groups: Vec<u32> = sites.iter().flat_map(whole).collect();
                    groups.extend(objects.iter().filter_map(|object| apart.get(object)));
                    groups.sort_unstable();
                    groups.dedup();
                    groups
                }
                About::Nothing | About::Threads(_) | About::Processes(_) => Vec::new(),
            }
        };
        let groups: Vec<Vec<u32>> = overrides.iter().map(of_ask).collect();
        let mut interest = Interest { apart, ..Interest::default() };
        for (change, groups) in overrides.iter().zip(&groups) {
            interest.groups.extend(groups);
            if change.by_touch {
                interest.by_touch.groups.extend(groups);
            }
        }
        if !interest.by_touch.groups.is_empty() {
            interest.by_touch.touchers = touchers(trace, machine);
        }
        (interest, groups)
    }
}

/// Instances that are groups of their own, numbered from `first` on, and the number behind the last. An instance belongs to the first change that names it.
fn apart(overrides: &[PlacementOverride], first: u32) -> (BTreeMap<ObjectId, u32>, u32) {
    let (mut apart, mut next) = (BTreeMap::new(), first);
    for change in overrides {
        match &change.about {
            About::Objects(list) => {
                for named in list {
                    if let Named::Object(object) = named
                        && let std::collections::btree_map::Entry::Vacant(free) = apart.entry(*object)
                    {
                        free.insert(next);
                        next += 1;
                    }
                }
            }
            About::Taken(_, objects) if !objects.is_empty() => {
                for object in objects {
                    apart.entry(*object).or_insert(next);
                }
                next += 1;
            }
            _ => {}
        }
    }
    (apart, next)
}

fn candidate<'f>(
    machine: &Machine,
    change: &PlacementOverride,
    groups: &[u32],
    facts: &impl Fn(u32) -> Option<&'f SiteFacts>,
) -> FixCandidate {
    let facts: Vec<&SiteFacts> = groups.iter().filter_map(|&group| facts(group)).collect();
    let index = |node: &NodeId| index_of(machine, Some(*node));
    match (&change.about, &change.kind) {
        (About::Threads(seats), _) => {
            let seats = seats.iter().filter_map(|(thread, node)| Some((thread.0, index(node)?)));
            FixCandidate::of_threads().with_seats(seats.collect())
        }
        (About::Processes(seats), _) => {
            let seats = seats.iter().filter_map(|(process, node)| Some((process.0, index(node)?)));
            FixCandidate::of_processes().with_seats(seats.collect())
        }
        (About::Nothing, FixKind::PinThreads) => FixCandidate::of_threads(),
        (About::Nothing, _) => FixCandidate::of_processes(),
        (About::All, kind) => FixCandidate::of_all_groups(kind.clone(), &facts),
        (About::Objects(_) | About::Taken(..), kind) => FixCandidate::of_groups(kind.clone(), &facts),
    }
}

/// That more memory would be placed on nodes than they have, in whole sentences: by single changes, else by all together.
fn too_large(machine: &Machine, overrides: &[PlacementOverride], candidates: &[FixCandidate]) -> Vec<String> {
    let alone = |(change, candidate): (&PlacementOverride, &FixCandidate)| {
        let (needed, room) = candidate.too_large_for(machine)?;
        Some(format!(
            "{} takes {}, of which {} fit there: the rest would go to other nodes, which the prediction leaves out.",
            change.words,
            units::bytes(needed),
            units::bytes(room)
        ))
    };
    let alone: Vec<String> = overrides.iter().zip(candidates).filter_map(alone).collect();
    let together = too_large_together(candidates, machine).filter(|_| alone.is_empty());
    let together = together.map(|(nodes, needed, room)| {
        format!(
            "The changes together put up to {} on node{} {}, with {} of memory: the rest would go to other nodes, which the prediction leaves out.",
            units::bytes(needed),
            if nodes.len() > 1 { "s" } else { "" },
            format_cpu_list(nodes.iter().map(|node| u32::from(node.0))),
            units::bytes(room)
        )
    });
    alone.into_iter().chain(together).collect()
}

fn check(machine: &Machine, change: &PlacementOverride) -> Result<(), WhatIfError> {
    if change.kind == FixKind::NearTier && machine.cpu_and_memory_nodes().next().is_none() {
        return Err(WhatIfError::NoneNear { machine: machine.name().to_owned() });
    }
    if change.is_by_tier() && machine.nodes_of_tier(MemoryTier::Fast).is_empty() {
        let name = machine.name().to_owned();
        return Err(match machine.wide_memory() {
            Some(node) => WhatIfError::Tier { machine: name, node: node.id },
            None => WhatIfError::NoTiers { machine: name },
        });
    }
    let with_memory: Vec<NodeId> =
        machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    match change.node().into_iter().find(|node| !with_memory.contains(node)) {
        None => Ok(()),
        Some(node) => {
            let those = with_memory.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Err(WhatIfError::Node { machine: machine.name().to_owned(), node, those })
        }
    }
}

/// Checks that each thread goes to a node on which it ran, because first touches are known for those nodes only.
fn check_seats(scene: &Scene<'_>, change: &PlacementOverride) -> Result<(), WhatIfError> {
    let About::Threads(seats) = &change.about else { return Ok(()) };
    let mut ran_on: HashMap<u32, Vec<NodeIndex>> = HashMap::new();
    scene.usage.rows.iter().for_each(|row| ran_on.entry(row.thread).or_default().push(row.from));
    let is_known = |thread: ThreadIndex, node: NodeId| {
        let index = index_of(scene.machine, Some(node));
        ran_on.get(&thread.0).is_none_or(|nodes| index.is_some_and(|index| nodes.contains(&index)))
    };
    match seats.iter().find(|(thread, node)| !is_known(*thread, *node)) {
        None => Ok(()),
        Some(&(thread, node)) => Err(WhatIfError::Seat { thread, node }),
    }
}

/// Node of the thread that touched each page first. A page of a private mapping of a file, or of initialised data, may have two: whoever read it, and whoever
/// wrote it first and got a copy, which is the page from then on.
fn touchers(trace: &Trace, machine: &Machine) -> HashMap<ProcessPage, NodeIndex> {
    let mut touchers: HashMap<ProcessPage, NodeIndex> = HashMap::new();
    let mut node_of: BTreeMap<u32, Option<NodeIndex>> = BTreeMap::new();
    for placement in trace.placements().iter().filter(|placement| placement.cause.is_first()) {
        let thread = trace.thread(placement.thread);
        let node = *node_of
            .entry(placement.thread.0)
            .or_insert_with(|| index_of(machine, thread.and_then(|thread| thread.node)));
        let process = thread.map_or(0, |thread| thread.process.0);
        let kind = trace.kind_of(placement.object);
        let is_of_file = matches!(kind, ObjectKind::File | ObjectKind::Static | ObjectKind::Section);
        let Some(node) = node else { continue };
        for page in placement.address.page().run(u64::from(placement.pages)) {
            let known = touchers.entry((process, page)).or_insert(node);
            if is_of_file {
                *known = node;
            }
        }
    }
    touchers
}

fn outlook(machine: &Machine, priced: &Priced) -> Outlook {
    let nodes = machine.nodes();
    let lasted_ns: f64 = priced.windows.iter().map(|window| window.lasted_ns).sum();
    let mean = |station: usize| {
        let busy =
            |window: &crate::price::Window| window.stations.get(station).copied().unwrap_or(0.0) * window.lasted_ns;
        priced.windows.iter().map(busy).sum::<f64>() / lasted_ns.max(1.0)
    };
    let mut next = 0;
    let mut controllers = Vec::new();
    for node in nodes {
        controllers.push(node.has_memory().then(|| mean(next)));
        next += usize::from(node.has_memory());
    }
    let links: Vec<f64> = (0..machine.links().len()).map(|link| mean(next + link)).collect();
    let served = |to: NodeIndex| priced.accesses.iter().map(|row| row[to]).sum::<f64>();
    let loads: Vec<f64> = NodeIndex::all(nodes.len()).filter(|&to| nodes[to].has_memory()).map(served).collect();
    let all: f64 = priced.accesses.iter().flatten().sum();
    let of_all = |sum: f64| (all > 0.0).then(|| sum / all);
    let latency_ns = of_all(priced.latency_ns);
    let metrics = Metrics {
        local_access_ratio: of_all(NodeIndex::all(nodes.len()).map(|node| priced.accesses[node][node]).sum()),
        memory_latency_ns: latency_ns,
        memory_latency_cycles: latency_ns.zip(machine.clock_mhz()).map(|(ns, mhz)| ns * mhz / 1000.0),
        controller_imbalance: Imbalance::of(&loads),
        interconnect_usage: (!links.is_empty()).then(|| links.iter().sum::<f64>() / links.len() as f64),
        interconnect_imbalance: Imbalance::of(&links),
        l3_mpki: None,
        ipc: None,
    };
    let total = Traffic { accesses: priced.accesses.clone(), controllers, links, metrics };
    Outlook { run_time_ns: priced.run_ns, processor_time_ns: Some(priced.worked_ns), total }
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{Object, Placement, Site, Tables, Thread};
    use numapilot_host::VirtAddr;

    use super::*;

    /// A thread of node 0 touches two pages, and then one of node 2 the second of them.
    fn touched_twice(kind: ObjectKind) -> Vec<NodeIndex> {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let thread = |index, node| Thread { index: ThreadIndex(index), node: Some(NodeId(node)), ..Thread::default() };
        let place = |thread, address, pages| Placement {
            thread: ThreadIndex(thread),
            address: VirtAddr(address),
            pages,
            object: Some(ObjectId(0)),
            ..Placement::default()
        };
        let object = Object { address: VirtAddr(0x10_000), bytes: 0x2000, ..Object::default() };
        let tables = Tables {
            objects: vec![object],
            sites: vec![Site { kind, ..Site::default() }],
            threads: vec![thread(0, 0), thread(1, 2)],
            placements: vec![place(0, 0x10_000, 2), place(1, 0x11_000, 1)],
            ..Tables::default()
        };
        let found = touchers(&Trace::from_tables(tables), &machine);
        [0x10_000, 0x11_000].map(|address| found[&(0, VirtAddr(address).page())]).to_vec()
    }

    /// The reader of initialised data, or of a file, was taken for its toucher although the copy is its writer's.
    #[test]
    fn a_page_of_a_file_that_was_copied_is_its_writers() {
        for kind in [ObjectKind::File, ObjectKind::Static, ObjectKind::Section] {
            assert_eq!(touched_twice(kind), [0, 2].map(NodeIndex), "{kind:?}");
        }
        // Of a heap's page the next life may be another block's.
        assert_eq!(touched_twice(ObjectKind::Heap), [0, 0].map(NodeIndex));
    }

    #[test]
    fn fast_memory_is_that_of_nodes_with_cpus_by_either_name() {
        assert_eq!((kind_of("tier:fast"), kind_of("near")), (Some(FixKind::NearTier), Some(FixKind::NearTier)));
        assert_eq!((kind_of("tier:slow"), kind_of("tier")), (None, None));
        let asked = |words: &str| PlacementOverride {
            words: words.to_owned(),
            about: About::All,
            kind: FixKind::NearTier,
            by_touch: false,
        };
        let text = numapilot_machine::builtin_text("xeon-2s-cxl").expect("its text");
        let slow = Machine::from_model_text(text, "slow.toml").expect("a model");
        assert_eq!((check(&slow, &asked("*: tier:fast")), check(&slow, &asked("*: near"))), (Ok(()), Ok(())));
        let wide =
            text.replace("{ value = 76.8, source", "{ value = 800, source").replace("[38.4, 76.8]", "[400, 900]");
        let wide = Machine::from_model_text(&wide, "wide.toml").expect("a sound model");
        assert!(matches!(check(&wide, &asked("*: tier:fast")), Err(WhatIfError::Tier { node: NodeId(2), .. })));
        assert_eq!(check(&wide, &asked("*: near")), Ok(()));
        // The prediction was that of an interleave over all nodes, of which a plan with that tier says that there is none.
        let even = Machine::load("xeon-2s").expect("a model");
        assert!(matches!(check(&even, &asked("*: tier:fast")), Err(WhatIfError::NoTiers { .. })));
        assert_eq!(check(&even, &asked("*: near")), Ok(()));
        // The accesses went to no memory at all, which cost nothing.
        let folder = numapilot_host::testing::tree("cxl");
        for node in [0, 1] {
            let file = folder.path().join(format!("sys/devices/system/node/node{node}/meminfo"));
            std::fs::write(file, format!("Node {node} MemTotal: 0 kB\n")).expect("written");
        }
        let apart = Machine::from_sysfs(folder.path()).expect("a machine");
        for words in ["*: near", "*: tier:fast"] {
            assert!(matches!(check(&apart, &asked(words)), Err(WhatIfError::NoneNear { .. })), "{words}");
        }
    }
}
