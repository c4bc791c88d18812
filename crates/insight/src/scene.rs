//! The input of all detectors, computed once: loads, moved threads, spread processes, and the facts of the sites with most waiting.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::{HashMap, HashSet};
use numapilot_flows::Object;
use numapilot_machine::{Machine, NodeIndex};
use numapilot_trace::ids::ObjectId;
use numapilot_traffic::TrafficError;

use crate::context::Analysis;
use crate::estimate::Estimate;
use crate::facts::{ByTouch, PageUse, SiteFacts, Survey};
use crate::price::{Priced, Pricer};
use crate::usage::{PARTS, Usage};

/// Share of the threads' time below which an effect does not matter: repeated runs of one program differ by more. The only threshold that is a matter
/// of taste.
pub(crate) const MATERIAL: f64 = 0.01;

/// Share of a thread's accesses from other nodes than its main one, from which the thread counts as moved.
const MOVED: f64 = 0.05;
/// Largest number of sites whose facts are collected, those with most waiting first.
const SITES_MAX: usize = 24;
/// Share of all accesses up to which a process counts as a helper of others.
const HELPER: f64 = 0.02;

/// The node that each moved thread belongs to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats {
    /// By thread: the node that holds most of the memory that it accesses; `None` if it was not moved.
    pub of_moved: Vec<Option<NodeIndex>>,
}

/// Processes that are spread over nodes, and the node on which each would be pinned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    /// Processes with threads on several nodes that share memory.
    pub spread: Vec<u32>,
    /// By process: the node on which it would be pinned.
    pub seat: BTreeMap<u32, NodeIndex>,
    /// Of all remote accesses, the share to memory that only the thread's own process uses.
    pub own_remote: Estimate,
}

/// What a walk over a recording has found ([`Scene`]), left by one question to the next one about the same analysis on the same machine: of a large recording,
/// the walk takes most of the time.
#[derive(Clone, Debug, Default)]
pub struct Surveyed {
    parts: Option<Box<Parts>>,
    served: u32,
}

impl Surveyed {
    /// How many questions were answered without a walk of their own.
    #[must_use]
    pub fn served(&self) -> u32 {
        self.served
    }

    pub(crate) fn keep(&mut self, scene: Scene<'_>) {
        let Scene { usage, now, sites, seats, processes, stakes, .. } = scene;
        self.parts = Some(Box::new(Parts { usage, now, sites, seats, processes, stakes }));
    }

    /// The scene of a question, if what was kept holds all that it is about. It is given away, and what does not serve is dropped: it may be large.
    pub(crate) fn scene<'a>(
        &mut self,
        analysis: &'a Analysis<'a>,
        machine: &'a Machine,
        interest: &Interest,
    ) -> Option<Scene<'a>> {
        let parts = *self.parts.take()?;
        let is_known = |group: &u32| parts.sites.iter().any(|facts| facts.site.0 == *group);
        let is_plain = interest.apart.is_empty() && interest.by_touch.groups.is_empty();
        if !is_plain || !interest.groups.iter().all(is_known) {
            return None;
        }
        self.served += 1;
        let Parts { usage, now, sites, seats, processes, stakes } = parts;
        Some(Scene { analysis, machine, usage, now, sites, seats, processes, stakes })
    }
}

/// A scene without what it is about.
#[derive(Clone, Debug)]
struct Parts {
    usage: Usage,
    now: Priced,
    sites: Vec<SiteFacts>,
    seats: Seats,
    processes: Processes,
    stakes: BTreeMap<u32, (Estimate, f64)>,
}

/// The input of all detectors: a recording on a machine, with its loads and the facts of its sites.
pub(crate) struct Scene<'a> {
    pub analysis: &'a Analysis<'a>,
    pub machine: &'a Machine,
    pub usage: Usage,
    pub now: Priced,
    pub sites: Vec<SiteFacts>,
    pub seats: Seats,
    pub processes: Processes,
    /// By group: the share of the threads' time beyond idle local accesses, and the share spent waiting for its accesses.
    stakes: BTreeMap<u32, (Estimate, f64)>,
}

/// Groups and instances whose facts are collected in addition to those of the sites with most waiting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interest {
    /// Instances that belong to another group than their site's, and that group.
    pub apart: BTreeMap<ObjectId, u32>,
    /// Groups whose facts are collected in any case.
    pub groups: BTreeSet<u32>,
    pub by_touch: ByTouch,
}

impl<'a> Scene<'a> {
    /// # Errors
    /// If the machine's description lacks what the traffic model needs.
    pub fn new(
        analysis: &'a Analysis<'a>,
        machine: &'a Machine,
        interest: &Interest,
    ) -> Result<Scene<'a>, TrafficError> {
        let mut usage = Usage::of(analysis, machine, &interest.apart);
        let pricer = Pricer::new(machine, &usage)?;
        let now = pricer.now()?;
        let stakes = stakes(&pricer, &now);
        drop(pricer);
        let seats = seats(&usage);
        let processes = processes(analysis, machine, &usage);
        let mut wanted: Vec<(u32, f64)> = stakes.iter().map(|(group, (_, waits))| (*group, *waits)).collect();
        wanted.retain(|(group, waits)| *waits >= MATERIAL / 2.0 && (*group as usize) < analysis.trace().sites().len());
        wanted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        wanted.truncate(SITES_MAX);
        let further = interest.groups.iter().filter(|group| wanted.iter().all(|(known, _)| known != *group));
        let wanted: Vec<u32> = wanted.iter().map(|(group, _)| *group).chain(further.copied()).collect();
        let set: HashSet<u32> = wanted.iter().copied().collect();
        let pages = PageUse::of(analysis, machine, &seats.of_moved, &set, &usage);
        let all = analysis.sum().all;
        let by_touch = &interest.by_touch;
        let (hot, objects) = (pages.hot(machine, &all), objects(analysis, &usage, &set));
        usage.coarsen(&set);
        let (pages, hot, objects, seats_of) = (&pages, &hot, &objects, &seats.of_moved);
        let survey = Survey { analysis, machine, seats: seats_of, pages, hot, objects, all: &all, by_touch };
        let sites = wanted.iter().map(|group| survey.site(numapilot_flows::SiteId(*group), &mut usage)).collect();
        usage.sort();
        Ok(Scene { analysis, machine, usage, now, sites, seats, processes, stakes })
    }

    /// Share of the threads' time that accesses to a group (a site) take beyond idle local accesses.
    pub fn at_stake(&self, group: u32) -> Estimate {
        self.stakes.get(&group).map_or_else(Estimate::default, |stake| stake.0)
    }

    /// Share of the threads' time spent waiting for a group's accesses, idle local latency included.
    pub fn waits(&self, group: u32) -> f64 {
        self.stakes.get(&group).map_or(0.0, |stake| stake.1)
    }

    /// Sum of [`Scene::at_stake`] over all groups.
    pub fn all_at_stake(&self) -> f64 {
        self.stakes.values().map(|stake| stake.0.value).sum()
    }

    /// Number of nodes with memory.
    pub fn memory_nodes(&self) -> usize {
        self.machine.nodes().iter().filter(|node| node.has_memory()).count()
    }

    /// Whether a node has CPUs on which threads can run.
    pub fn has_cpus(&self, node: NodeIndex) -> bool {
        self.machine.has_online_cpus(&self.machine.nodes()[node])
    }

    /// The node whose memory a node's threads get: its own, or that of the nearest node with memory where it has none.
    pub fn memory_of(&self, node: NodeIndex) -> NodeIndex {
        let nearest = |id| self.machine.nodes_nearest_first(id).first().and_then(|id| self.machine.node_index(*id));
        self.machine.nodes().get(node.0).and_then(|node| nearest(node.id)).unwrap_or(node)
    }

    /// Mean difference between idle remote and idle local latency over all pairs of nodes with CPUs and memory, ns.
    pub fn idle_saving_ns(&self) -> f64 {
        let whole: Vec<_> = self.machine.cpu_and_memory_nodes().collect();
        let latency = |from, to| self.machine.idle_latency_or_guess_ns(from, to);
        let mut savings: Vec<f64> = Vec::new();
        for from in &whole {
            let others = whole.iter().filter(|to| to.id != from.id);
            savings.extend(others.map(|to| latency(from.id, to.id) - latency(from.id, from.id)));
        }
        savings.iter().sum::<f64>() / savings.len().max(1) as f64
    }
}

/// The objects of these groups, by group.
fn objects<'a>(analysis: &'a Analysis<'a>, usage: &Usage, wanted: &HashSet<u32>) -> HashMap<u32, Vec<&'a Object>> {
    let mut of_group: HashMap<u32, Vec<&Object>> = HashMap::default();
    for object in analysis.trace().objects() {
        let group = usage.group(object);
        if wanted.contains(&group) {
            of_group.entry(group).or_default().push(object);
        }
    }
    of_group
}

/// By group: time of its accesses beyond idle local ones, and all waiting for them, as shares of the threads' time.
fn stakes(pricer: &Pricer<'_>, now: &Priced) -> BTreeMap<u32, (Estimate, f64)> {
    let usage = pricer.usage;
    let nodes = pricer.machine.nodes();
    let all = || NodeIndex::all(nodes.len());
    let idle = |from: NodeIndex, to: NodeIndex| pricer.machine.idle_latency_or_guess_ns(nodes[from].id, nodes[to].id);
    let memory: Vec<NodeIndex> = all().filter(|&to| nodes[to].has_memory()).collect();
    let best: Vec<f64> =
        all().map(|from| memory.iter().map(|&to| idle(from, to)).fold(f64::INFINITY, f64::min)).collect();
    let scales = pricer.scales();
    let mut sums: BTreeMap<u32, ([f64; PARTS], f64)> = BTreeMap::new();
    for (cell, count) in &usage.cells {
        let Some(home) = cell.home.index() else { continue };
        let row = &usage.rows[cell.row as usize];
        let path_ns = &now.windows[usize::from(row.window)].path_ns;
        let pace = pricer.pace(row);
        let Some(path) = path_ns.get(row.from.0) else { continue };
        let latency_ns = path[home];
        let excess_ns = (latency_ns - best[row.from]).max(0.0);
        let overlapped = scales[cell.row as usize] * count / pace.outstanding;
        let (parts, waits) = sums.entry(cell.group).or_default();
        parts[usize::from(cell.part)] += overlapped * excess_ns;
        *waits += overlapped * latency_ns;
    }
    let stake = |parts: &[f64; PARTS]| {
        let all: f64 = parts.iter().sum();
        let without = parts.map(|part| (all - part) * PARTS as f64 / (PARTS - 1) as f64 / now.busy_ns.max(1.0));
        Estimate::jackknife(all / now.busy_ns.max(1.0), &without)
    };
    sums.iter().map(|(group, (parts, waits))| (*group, (stake(parts), waits / now.busy_ns.max(1.0)))).collect()
}

/// The node of each moved thread's memory.
fn seats(usage: &Usage) -> Seats {
    let mut from = vec![0.0; usage.threads * usage.nodes];
    let mut home = from.clone();
    for (cell, count) in &usage.cells {
        let row = &usage.rows[cell.row as usize];
        let thread = row.thread as usize * usage.nodes;
        from[thread + row.from.0] += count;
        if let Some(at) = cell.home.index() {
            home[thread + at.0] += count;
        }
    }
    let most = |counts: &[f64]| (0..counts.len()).max_by(|&a, &b| counts[a].total_cmp(&counts[b]).then(b.cmp(&a)));
    let of_thread = |thread: usize| {
        let counts = &from[thread * usage.nodes..(thread + 1) * usage.nodes];
        let all: f64 = counts.iter().sum();
        let main = most(counts)?;
        let is_moved = all > 0.0 && counts[main] < (1.0 - MOVED) * all;
        let homes = &home[thread * usage.nodes..(thread + 1) * usage.nodes];
        // Among the nodes on which it ran, the one where its memory is.
        let ran: Vec<f64> =
            homes.iter().zip(counts).map(|(home, ran)| if *ran > MOVED * all { *home } else { -1.0 }).collect();
        is_moved.then(|| most(&ran).map(NodeIndex)).flatten()
    };
    Seats { of_moved: (0..usage.threads).map(of_thread).collect() }
}

/// Finds processes that are spread over nodes, and assigns each a node as a plan's rule does that spreads them: those of one command by turns, in the order in
/// which they started.
fn processes(analysis: &Analysis<'_>, machine: &Machine, usage: &Usage) -> Processes {
    let trace = analysis.trace();
    let process_of = |thread: u32| trace.threads().get(thread as usize).map_or(0, |thread| thread.process.0);
    let mut from: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (cell, count) in &usage.cells {
        let row = &usage.rows[cell.row as usize];
        from.entry(process_of(row.thread)).or_insert_with(|| vec![0.0; usage.nodes])[row.from] += count;
    }
    // Those that a plan's rule for all nodes means. What is pinned to one without memory gets that of the nearest with some.
    let nodes: Vec<NodeIndex> = machine.cpu_nodes().filter_map(|node| machine.node_index(node.id)).collect();
    let mut of_command: BTreeMap<&str, usize> = BTreeMap::new();
    let mut seat = BTreeMap::new();
    for (process, facts) in (0..).zip(trace.processes()) {
        let number = of_command.entry(facts.command()).or_default();
        let node = nodes.get(*number % nodes.len().max(1)).filter(|_| from.contains_key(&process));
        seat.extend(node.map(|&node| (process, node)));
        *number += 1;
    }
    Processes { spread: spread(&from), seat, own_remote: usage.own_remote.share_of(&usage.remote) }
}

/// The processes that work on several nodes, by their accesses from each. Helpers with few of all accesses are none: less than 2 %, or half of an even share
/// where there are many processes.
fn spread(from: &BTreeMap<u32, Vec<f64>>) -> Vec<u32> {
    let weight = |nodes: &[f64]| nodes.iter().sum::<f64>();
    let all: f64 = from.values().map(|nodes| weight(nodes)).sum();
    let least = all * HELPER.min(0.5 / from.len().max(1) as f64);
    let is_spread = |nodes: &[f64]| {
        let most = nodes.iter().copied().fold(0.0, f64::max);
        weight(nodes) > least && most < 0.9 * weight(nodes)
    };
    from.iter().filter(|(_, nodes)| is_spread(nodes)).map(|(process, _)| *process).collect()
}

/// Whether pinning the processes would use all nodes.
impl Processes {
    /// Whether there are at least as many spread processes as nodes with CPUs.
    pub fn fill(&self, machine: &Machine) -> bool {
        self.spread.len() >= machine.cpu_nodes().count()
    }
}

/// A station of the queueing model (memory controller or link) at which accesses queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Congestion {
    /// Its node, if it is a controller.
    pub controller: Option<NodeIndex>,
    /// Link index, if it is a link.
    pub link: Option<usize>,
    /// Share of the threads' time that accesses lose because of it.
    pub lost: Estimate,
    /// Its utilisation, and the mean utilisation of the other controllers, both weighted by the time lost.
    pub busy: f64,
    pub others_busy: f64,
    /// Mean loaded and idle latency of the accesses that queue there, ns.
    pub loaded_ns: f64,
    pub idle_ns: f64,
}

/// Utilisation from which a queue holds, on average, as many accesses as are being served (M/M/1). Below it, no station counts as saturated.
const KNEE: f64 = 0.5;

impl Scene<'_> {
    /// Controllers and links with a utilisation above [`KNEE`], with the time lost there: an access's excess latency is attributed to the station with the
    /// highest utilisation on its route. Where that is a port of the accessing node, a limit of its own CPUs, it is attributed to none of these.
    pub fn congestion(&self) -> Vec<Congestion> {
        let nodes = self.machine.nodes();
        let controllers: Vec<NodeIndex> =
            NodeIndex::all(nodes.len()).filter(|&node| nodes[node].has_memory()).collect();
        let Ok(pricer) = Pricer::new(self.machine, &self.usage) else { return Vec::new() };
        let scales = pricer.scales();
        // Ports are the stations after the links, of each node that has any.
        let mut next = controllers.len() + self.machine.links().len();
        let ports_of = |node: &numapilot_machine::Node| {
            let first = next;
            next += [node.cpus_read_bytes_per_s, node.cpus_write_bytes_per_s].iter().flatten().count();
            first..next
        };
        let ports: Vec<std::ops::Range<usize>> = nodes.iter().map(ports_of).collect();
        let mut sums: BTreeMap<usize, (Congestion, [f64; PARTS], f64)> = BTreeMap::new();
        for (cell, count) in &self.usage.cells {
            let Some(at) = cell.home.index() else { continue };
            let row = &self.usage.rows[cell.row as usize];
            let window = &self.now.windows[usize::from(row.window)];
            let Some(path) = window.path_ns.get(row.from.0) else { continue };
            let (from, home) = (nodes[row.from].id, nodes[at].id);
            let own = controllers.iter().position(|&node| node == at);
            let links = self.machine.routes(home, from).iter().flatten();
            let on_way = own.into_iter().chain(links.map(|link| controllers.len() + usize::from(link.0)));
            let busy = |station: &usize| window.stations.get(*station).copied().unwrap_or(0.0);
            let Some(station) = on_way.max_by(|a, b| busy(a).total_cmp(&busy(b))) else { continue };
            let busy_share = busy(&station);
            let port_busy = ports[row.from.0].clone().map(|port| busy(&port)).fold(0.0, f64::max);
            if busy_share < KNEE || port_busy > busy_share {
                continue;
            }
            let loaded_ns = path[at];
            let idle_ns = self.machine.idle_latency_or_guess_ns(from, home);
            let pace = pricer.pace(row);
            let accesses = scales[cell.row as usize] * count;
            let lost_ns = accesses * (loaded_ns - idle_ns).max(0.0) / pace.outstanding;
            let others = controllers.len().saturating_sub(1).max(1) as f64;
            let all: f64 = (0..controllers.len()).map(|controller| busy(&controller)).sum();
            let (congestion, parts, weight) = sums.entry(station).or_default();
            parts[usize::from(cell.part)] += lost_ns;
            congestion.busy += busy_share * lost_ns;
            congestion.others_busy +=
                (all - if station < controllers.len() { busy_share } else { 0.0 }) / others * lost_ns;
            congestion.loaded_ns += loaded_ns * accesses;
            congestion.idle_ns += idle_ns * accesses;
            *weight += accesses;
        }
        let finish = |(station, (mut congestion, parts, weight)): (usize, (Congestion, [f64; PARTS], f64))| {
            let lost_ns: f64 = parts.iter().sum();
            let share = |ns: f64| ns / self.now.busy_ns.max(1.0);
            let without = parts.map(|part| share((lost_ns - part) * PARTS as f64 / (PARTS - 1) as f64));
            congestion.lost = Estimate::jackknife(share(lost_ns), &without);
            congestion.busy /= lost_ns.max(1e-9);
            congestion.others_busy /= lost_ns.max(1e-9);
            congestion.loaded_ns /= weight.max(1e-9);
            congestion.idle_ns /= weight.max(1e-9);
            congestion.controller = controllers.get(station).copied();
            congestion.link = station.checked_sub(controllers.len());
            congestion
        };
        sums.into_iter().map(finish).collect()
    }
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{AccessRef, Filter, Process, Tables, Thread, Trace};
    use numapilot_machine::NodeId;
    use numapilot_trace::ids::{ProcessIndex, ThreadIndex, TimeNs};

    use super::*;

    /// A database has a process for each of its clients: of a hundred, each makes a hundredth of the accesses.
    #[test]
    fn of_many_processes_none_is_a_helper_for_their_number() {
        let even = |count: u32| (0..count).map(|process| (process, vec![25.0; 4])).collect::<BTreeMap<_, _>>();
        assert_eq!(spread(&even(100)).len(), 100);
        let mut some = even(4);
        some.insert(7, vec![1.0, 1.0, 0.0, 0.0]);
        some.insert(8, vec![100.0, 0.0, 0.0, 0.0]);
        assert_eq!(spread(&some), [0, 1, 2, 3], "neither one with few accesses nor one on one node");
        assert!(spread(&BTreeMap::new()).is_empty());
    }

    /// A plan spreads processes over all nodes with CPUs. Nodes without memory were left out of the price of it.
    #[test]
    fn processes_are_seated_on_the_nodes_over_which_a_plan_spreads_them() {
        let folder = numapilot_host::testing::tree("memory-less");
        let machine = Machine::from_sysfs(folder.path()).expect("a machine");
        let mut tables = Tables { end: TimeNs(1_000), ..Tables::default() };
        for number in 0..4 {
            let (index, process, node) = (ThreadIndex(number), ProcessIndex(number), Some(NodeId(0)));
            tables.processes.push(Process { index: process, exe: "/usr/bin/server".into(), ..Process::default() });
            tables.threads.push(Thread { index, process, ..Thread::default() });
            tables.accesses.push(&AccessRef { thread: index, node, home: node, ..AccessRef::at(0x1000) });
        }
        let trace = Trace::from_tables(tables);
        let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
        let usage = Usage::of(&analysis, &machine, &BTreeMap::new());
        let seats: Vec<NodeIndex> = processes(&analysis, &machine, &usage).seat.into_values().collect();
        assert_eq!(seats, [0, 1, 2, 0].map(NodeIndex));
    }

    /// By how much the waits of all groups together miss those of the whole program, on a machine.
    fn waits_of_groups_over_all(trace: &Trace, model: &str) -> f64 {
        let machine = Machine::from_model_text(model, "a model").expect("a sound model");
        let analysis = Analysis::on(trace, Some(&machine), Filter::default());
        let mut usage = Usage::of(&analysis, &machine, &BTreeMap::new());
        // As a clock charges that takes most accesses for streams of eight.
        usage.paces.iter_mut().for_each(|pace| pace.outstanding = 4.0);
        let pricer = Pricer::new(&machine, &usage).expect("a pricer");
        let now = pricer.now().expect("a price");
        let waits: f64 = stakes(&pricer, &now).values().map(|(_, waits)| waits).sum();
        waits / (now.memory_ns / now.busy_ns)
    }

    #[test]
    fn what_groups_wait_for_is_of_the_cores_that_the_price_is_of() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
        let trace = Trace::open(&folder).expect("a committed trace");
        let model = include_str!("../../../models/opteron-8385.toml");
        let of = |streams: &str| {
            let (before, figures) = model.split_once("[traffic]\n").expect("the model's figures of streams");
            let (_, after) = figures.split_once('\n').expect("one line");
            waits_of_groups_over_all(&trace, &format!("{before}[traffic]\nstream_outstanding = {streams}\n{after}"))
        };
        let usual = of(r#"{ value = 8, source = "made up", estimate = true, range = [4, 17] }"#);
        let fewer = of(r#"{ value = 4, source = "made up" }"#);
        assert!((fewer / usual - 1.0).abs() < 0.05, "{fewer} of all waits, {usual} on cores as charged");
    }
}
