//! What will be measured: which pairs, CPUs, sizes and kernels, and for how long. Pure: from a description of the machine, what the process may use and
//! what the user chose; so that tests can cover machines that are not at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use numapilot_machine::{CpuId, Machine, Node, NodeId};
use numapilot_text::units::short_bytes;

use crate::error::MeasureError;
use crate::kernels::{CHUNK, Kernel};
use crate::options::{Options, Order, Pages, Part};
use crate::permit::Permit;
use crate::results::{Relation, Target, Walk};

/// Time limit of `--quick`.
const QUICK: Duration = Duration::from_secs(10);
/// Memory is as much larger than the last-level cache as STREAM asks for.
const CACHES_OVER: u64 = 4;
/// Least sum of last-level caches of a node where no L3 is known: firmware says nothing of the system-level caches of some Arm servers (32 MiB), of which a
/// small virtual machine has all, and hypervisors hide what they like.
const UNKNOWN_CACHE: u64 = 64 << 20;
/// No more of a node's free memory is taken than this share.
const FREE_SHARE: u64 = 2;
const CHASE_BYTES_MIN: usize = 1 << 16;
const ARRAY_BYTES_MIN: usize = 1 << 14;
/// A staircase begins with what every first-level cache holds.
const STAIR_FROM: usize = 4 << 10;
/// Up to this number of CPUs, `--full` measures the hand-off between all pairs.
const ALL_PAIRS_MAX: usize = 32;
/// Time of a measurement of weight 1.
const QUICK_UNIT: (f64, f64) = (0.08, 0.5);
const FULL_UNIT: (f64, f64) = (0.6, 1.0);
/// Seconds to touch, and to lay a chase through, a byte of memory, by one thread: for the estimate only.
const TOUCH_S_PER_BYTE: f64 = 0.7e-9;
const LAY_S_PER_BYTE: f64 = 0.35e-9;

/// A kind of measurement, with the CPUs and nodes that take part.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// A chase through all of the memory.
    Latency {
        /// Node of the CPU.
        from: NodeId,
        /// CPU that runs the chase.
        cpu: CpuId,
        /// Order in which the chase visits memory.
        walk: Walk,
    },
    /// Chases through growing parts of the memory.
    Stairs {
        /// Node of the CPU.
        from: NodeId,
        /// CPU that runs the chases.
        cpu: CpuId,
        /// Order in which each chase visits memory.
        walk: Walk,
        /// Sizes of the working sets in bytes, ascending.
        sizes: Vec<usize>,
    },
    /// A kernel on CPUs of one node.
    Bandwidth {
        /// Node of the CPUs.
        from: NodeId,
        /// CPUs that run the kernel, one thread on each.
        cpus: Vec<CpuId>,
        /// The bandwidth kernel.
        kernel: Kernel,
    },
    /// A chase beside paced kernels.
    Loaded {
        /// Node of the CPUs.
        from: NodeId,
        /// CPU of the chase.
        cpu: CpuId,
        /// CPUs of the kernels.
        neighbours: Vec<CpuId>,
        /// Shares of their full speed, ascending.
        shares: Vec<f64>,
    },
    /// A cache line handed to and fro between two CPUs.
    Handoff {
        /// First CPU.
        a: CpuId,
        /// Second CPU.
        b: CpuId,
        /// The smallest part of the machine that holds both.
        relation: Relation,
    },
}

impl Task {
    /// How much time it needs in comparison with others: one for each figure that it finds, less where figures need little.
    fn weight(&self) -> f64 {
        match self {
            Task::Latency { .. } => 1.0,
            Task::Stairs { sizes, .. } => 0.25 * sizes.len() as f64,
            Task::Bandwidth { .. } => 1.0,
            Task::Loaded { shares, .. } => 0.7 * (shares.len() + 2) as f64,
            Task::Handoff { .. } => 0.25,
        }
    }
}

/// A measurement with its time and its importance.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The measurement.
    pub task: Task,
    /// Time for its repetitions.
    pub time: Duration,
    /// 0: never left out; the highest rank is left out first.
    pub(crate) rank: u8,
    /// Kind of the measurement, in messages about what was left out.
    sort: &'static str,
}

/// Measurements on the same memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Placement of the memory; `None` for measurements without memory.
    pub target: Option<Target>,
    /// Bytes that chases go through.
    pub chase_bytes: usize,
    /// Bytes of each of three arrays; 0 where no kernel runs.
    pub array_bytes: usize,
    /// CPUs that touch it first.
    pub fillers: Vec<CpuId>,
    /// The measurements, in the order of execution.
    pub steps: Vec<Step>,
}

/// All measurements of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Groups of measurements, in the order of execution; each has its own memory.
    pub groups: Vec<Group>,
    /// What does not fit into the time or cannot be measured here, and why.
    pub left_out: Vec<String>,
    /// Limits of the results, in whole sentences.
    pub notes: Vec<String>,
    /// Greatest sum of last-level caches of a node with usable CPUs, bytes.
    pub cache_bytes: u64,
    /// Bytes of a cache line: of a chase's slots.
    pub line_bytes: usize,
    /// Whether there is but one node with usable memory in the whole machine.
    pub single_node: bool,
}

impl Plan {
    /// About how long all of it takes: measuring, and laying out memory before.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        let steps = self.steps().map(|(_, step)| step.time).sum::<Duration>();
        steps + Duration::from_secs_f64(self.groups.iter().map(layout_s).sum())
    }

    /// All measurements with their memory.
    pub fn steps(&self) -> impl Iterator<Item = (&Group, &Step)> {
        self.groups.iter().flat_map(|group| group.steps.iter().map(move |step| (group, step)))
    }

    /// Plans for a machine.
    ///
    /// # Errors
    /// Nothing usable is left, or the options name what there is not.
    pub fn new(machine: &Machine, permit: &Permit, options: &Options) -> Result<Plan, MeasureError> {
        Planner::new(machine, permit, options)?.plan()
    }
}

/// Seconds to map, touch and lay out a group's memory.
fn layout_s(group: &Group) -> f64 {
    let threads = group.fillers.len().clamp(1, 16) as f64;
    let walks: BTreeSet<Option<Walk>> = group
        .steps
        .iter()
        .map(|step| match &step.task {
            Task::Latency { walk, .. } => Some(*walk),
            Task::Loaded { .. } => Some(Walk::Random),
            _ => None,
        })
        .collect();
    let chase = group.chase_bytes as f64 * (TOUCH_S_PER_BYTE + LAY_S_PER_BYTE * walks.iter().flatten().count() as f64);
    // A staircase lays the sum of its sizes, which grow geometrically, by one thread.
    let stairs = group.steps.iter().map(|step| match &step.task {
        Task::Stairs { sizes, .. } => sizes.iter().sum::<usize>() as f64 * LAY_S_PER_BYTE,
        _ => 0.0,
    });
    (chase + group.array_bytes as f64 * 3.0 * TOUCH_S_PER_BYTE) / threads + stairs.sum::<f64>()
}

/// A node with the CPUs of it that may be used: one of each core first.
struct CpuNode {
    id: NodeId,
    /// One hardware thread of each core.
    cores: Vec<CpuId>,
    /// All usable CPUs of the node.
    cpus: Vec<CpuId>,
    /// Those of them that work at the same time: all that the control group has time for, those of further cores first.
    together: Vec<CpuId>,
}

impl CpuNode {
    fn new(id: NodeId, cores: Vec<CpuId>, cpus: Vec<CpuId>, at_once: Option<usize>) -> CpuNode {
        let together = match at_once.filter(|most| *most < cpus.len()) {
            Some(most) => {
                let others = cpus.iter().filter(|cpu| !cores.contains(cpu));
                cores.iter().chain(others).take(most).copied().collect()
            }
            None => cpus.clone(),
        };
        CpuNode { id, cores, cpus, together }
    }
}

struct Planner<'a> {
    machine: &'a Machine,
    options: &'a Options,
    permit: &'a Permit,
    cpu_nodes: Vec<CpuNode>,
    memory_nodes: Vec<&'a Node>,
    left_out: Vec<String>,
    notes: Vec<String>,
    /// Memories that are too small to be far beyond the caches, with the bytes that chases go through.
    small: Vec<(String, u64)>,
    cache_bytes: u64,
    line_bytes: usize,
}

impl<'a> Planner<'a> {
    fn new(machine: &'a Machine, permit: &'a Permit, options: &'a Options) -> Result<Self, MeasureError> {
        let wrong = |what: String, remedy: &str| MeasureError::Options { what, remedy: remedy.to_owned() };
        for node in options.cpu_nodes.iter().chain(&options.memory_nodes) {
            if machine.node(*node).is_none() {
                return Err(wrong(
                    format!("there is no node {node}"),
                    "`numapilot topo` shows the nodes of this machine",
                ));
            }
        }
        let usable = |cpu: CpuId| {
            permit.cpus.contains(&cpu)
                && (options.cpus.is_empty() || options.cpus.contains(&cpu))
                && machine.cpu(cpu).is_some_and(|cpu| cpu.online)
        };
        if let Some(cpu) = options.cpus.iter().find(|cpu| !usable(**cpu)) {
            return Err(wrong(
                format!("CPU {cpu} does not exist, is offline, or is not in this process's affinity mask"),
                "name others with --cpus",
            ));
        }
        let chosen = |set: &BTreeSet<NodeId>, node: NodeId| set.is_empty() || set.contains(&node);
        let mut cpu_nodes = Vec::new();
        for node in machine.nodes().iter().filter(|node| chosen(&options.cpu_nodes, node.id)) {
            let cpus: Vec<CpuId> = node.cpus.iter().copied().filter(|cpu| usable(*cpu)).collect();
            let is_first = |cpu: &CpuId| {
                let siblings = machine.cpu(*cpu).map_or(&[][..], |cpu| &cpu.siblings);
                siblings.iter().find(|sibling| usable(**sibling)).is_none_or(|first| first == cpu)
            };
            let cores: Vec<CpuId> = cpus.iter().copied().filter(is_first).collect();
            if !cpus.is_empty() {
                cpu_nodes.push(CpuNode::new(node.id, cores, cpus, permit.cpus_at_once));
            }
        }
        let memory_nodes: Vec<&Node> = machine
            .nodes()
            .iter()
            .filter(|node| {
                node.has_memory() && permit.memory_nodes.contains(&node.id) && chosen(&options.memory_nodes, node.id)
            })
            .collect();
        let mut planner = Self {
            machine,
            options,
            permit,
            cpu_nodes,
            memory_nodes,
            left_out: Vec::new(),
            notes: Vec::new(),
            small: Vec::new(),
            cache_bytes: UNKNOWN_CACHE,
            line_bytes: 64,
        };
        planner.check()?;
        planner.caches();
        Ok(planner)
    }

    /// What was asked for and cannot be, and what of the machine stays unseen.
    fn check(&mut self) -> Result<(), MeasureError> {
        let wrong =
            |what: &str, remedy: &str| MeasureError::Options { what: what.to_owned(), remedy: remedy.to_owned() };
        if self.cpu_nodes.is_empty() {
            return Err(wrong(
                "no CPU is left to measure with",
                "widen --cpus or --cpu-nodes, or this process's cpuset",
            ));
        }
        if self.memory_nodes.is_empty() {
            return Err(wrong(
                "no node with memory is left to measure",
                "widen --nodes, or this process's cpuset.mems",
            ));
        }
        for (node, weight) in &self.options.weights {
            if *weight == 0 || !self.memory_nodes.iter().any(|known| known.id == *node) {
                return Err(wrong(
                    "a weight is 0 or for a node without usable memory",
                    "write --weights NODE:WEIGHT,... as in 0:3,1:1",
                ));
            }
        }
        let forbidden = |list: Vec<NodeId>, what: &str, left_out: &mut Vec<String>| {
            if !list.is_empty() {
                let names: Vec<String> = list.iter().map(ToString::to_string).collect();
                left_out.push(format!("{what} {}: not in this process's cpuset", names.join(", ")));
            }
        };
        let nodes = || self.machine.nodes().iter();
        let memory = nodes().filter(|node| node.has_memory() && !self.permit.memory_nodes.contains(&node.id));
        let memory: Vec<NodeId> = memory.map(|node| node.id).collect();
        let online = |cpu: &CpuId| self.machine.cpu(*cpu).is_some_and(|cpu| cpu.online);
        let cpus = nodes()
            .filter(|node| node.cpus.iter().any(online) && !node.cpus.iter().any(|cpu| self.permit.cpus.contains(cpu)));
        let cpus: Vec<NodeId> = cpus.map(|node| node.id).collect();
        forbidden(memory, "memory of nodes", &mut self.left_out);
        forbidden(cpus, "CPUs of nodes", &mut self.left_out);
        let is_limited = self.cpu_nodes.iter().any(|node| node.together.len() < node.cpus.len());
        self.notes.extend(self.permit.cpus_at_once.filter(|_| is_limited).map(|cpus| {
            format!(
                "This process's control group has a limit on CPU time (cpu.max), enough for {cpus} of its CPUs: no more of a node work at the same time, and \
                 bandwidths and loads are those of as many."
            )
        }));
        Ok(())
    }

    fn caches(&mut self) {
        let of_node = |node: &CpuNode| {
            let caches =
                self.machine.caches().iter().filter(|cache| cache.cpus.iter().any(|cpu| node.cpus.contains(cpu)));
            let last = caches.clone().map(|cache| cache.level).max()?;
            Some((last, caches.filter(|cache| cache.level == last).map(|cache| cache.size_bytes).sum::<u64>()))
        };
        let found: Vec<(u8, u64)> = self.cpu_nodes.iter().filter_map(of_node).collect();
        let has_l3 = found.iter().any(|(level, _)| *level >= 3);
        let known = found.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        self.cache_bytes = if has_l3 { known } else { known.max(UNKNOWN_CACHE) };
        if !has_l3 {
            self.notes.push(format!(
                "The kernel shows no {}; working sets above {} are assumed to be in memory.",
                if found.is_empty() { "caches" } else { "L3 cache, and there may be one" },
                short_bytes(CACHES_OVER * self.cache_bytes)
            ));
        }
        let lines = self.machine.caches().iter().filter_map(|cache| cache.line_bytes);
        self.line_bytes = lines.max().map_or(64, |line| line as usize);
    }

    /// Bytes that are free on a node: of its memory, or of the huge pages that are reserved there.
    fn free_on(&self, node: &Node) -> Option<u64> {
        if self.options.pages != Pages::Huge || self.permit.huge_free_bytes.is_empty() {
            return node.free_bytes;
        }
        Some(self.permit.huge_free_bytes.get(&node.id).copied().unwrap_or(0))
    }

    /// What may be taken of it. Reserved huge pages are nobody's but a program's that asks for them: all, but for two that are not full.
    fn room(&self, free_bytes: Option<u64>) -> Option<u64> {
        match self.options.pages {
            Pages::Huge => free_bytes.map(|bytes| bytes.saturating_sub(2 * self.permit.large_page_bytes)),
            _ => free_bytes.into_iter().chain(self.permit.memory_bytes).min().map(|bytes| bytes / FREE_SHARE),
        }
    }

    /// An error where a group needs more huge pages than are reserved and free on `node`: without them the first access would kill this process.
    fn has_huge_pages(&self, node: &str, free_bytes: Option<u64>, group: &Group) -> Result<(), MeasureError> {
        let (Pages::Huge, Some(free_bytes), page) = (self.options.pages, free_bytes, self.permit.large_page_bytes)
        else {
            return Ok(());
        };
        let needed = (group.chase_bytes as u64).div_ceil(page) + (3 * group.array_bytes as u64).div_ceil(page);
        if needed * page <= free_bytes {
            return Ok(());
        }
        Err(MeasureError::Options {
            what: format!(
                "{node} has {} free reserved huge pages of {} KiB, and {needed} are needed",
                free_bytes / page,
                page >> 10
            ),
            remedy: "reserve more (/sys/devices/system/node/nodeN/hugepages), or use --pages large".to_owned(),
        })
    }

    /// Bytes of the chased memory and of each array on a node: as asked for, or four times the caches; never more than half of what is free there.
    fn sizes(&mut self, node: &str, free_bytes: Option<u64>) -> (usize, usize) {
        let arrays = if self.options.full { 3 } else { 1 };
        let (chase, array) = match self.options.size_bytes {
            Some(bytes) => (bytes as u64, bytes as u64),
            None => (CACHES_OVER * self.cache_bytes, (CACHES_OVER * self.cache_bytes * arrays).div_ceil(3)),
        };
        let room = self.room(free_bytes);
        let factor = room.map_or(1.0, |room| (room as f64 / (chase + 3 * array) as f64).min(1.0));
        let least = (factor * chase as f64) as u64;
        if least < CACHES_OVER * self.cache_bytes && (factor < 1.0 || self.options.size_bytes.is_some()) {
            self.small.push((node.to_owned(), least));
        }
        let whole = |bytes: u64, unit: usize, least: usize| {
            (((bytes as f64 * factor) as usize).max(least)).next_multiple_of(unit)
        };
        let threads = self.cpu_nodes.iter().map(|node| node.cpus.len()).max().unwrap_or(1);
        (whole(chase, self.line_bytes, CHASE_BYTES_MIN), whole(array, CHUNK * 8, ARRAY_BYTES_MIN * threads))
    }

    /// One remark on all memories that are small beside the caches.
    fn note_small_memories(&mut self) {
        let Some(least) = self.small.iter().map(|(_, bytes)| *bytes).min() else { return };
        let names: Vec<&str> = self.small.iter().map(|(name, _)| name.as_str()).collect();
        self.notes.push(format!(
            "On {}, chases go through {}, less than {CACHES_OVER} times a node's last-level caches of {}: some loads may hit in the caches.",
            names.join(", "),
            short_bytes(least),
            short_bytes(self.cache_bytes)
        ));
    }

    fn wants(&self, part: Part) -> bool {
        self.options.parts.contains(&part)
    }

    fn plan(mut self) -> Result<Plan, MeasureError> {
        let mut groups = Vec::new();
        for node in self.memory_nodes.clone() {
            let (name, free) = (format!("node {}", node.id), self.free_on(node));
            let (chase, array) = self.sizes(&name, free);
            let target = Target::Node(node.id);
            let steps = self.steps_on(&target, chase);
            let group = self.group(target, (chase, array), steps);
            self.has_huge_pages(&name, free, &group)?;
            groups.push(group);
        }
        let nodes: Vec<NodeId> = self.memory_nodes.iter().map(|node| node.id).collect();
        let mut spread = Vec::new();
        if nodes.len() > 1 {
            spread.push((Target::interleaved(nodes.iter().copied()), 2));
        }
        // What was asked for by its figures is measured, however little time there is.
        if !self.options.weights.is_empty() {
            spread.push((Target::Weighted(self.options.weights.clone()), 0));
        }
        for (target, rank) in spread {
            let free = self.memory_nodes.iter().filter_map(|node| self.free_on(node)).min();
            let (chase, array) = self.sizes("every node", free);
            let steps = self.steps_spread(rank);
            groups.push(self.group(target, (chase, array), steps));
        }
        let handoffs = if self.wants(Part::Handoff) { self.handoffs() } else { Vec::new() };
        groups.push(Group { target: None, chase_bytes: 0, array_bytes: 0, fillers: Vec::new(), steps: handoffs });
        groups.retain(|group| !group.steps.is_empty());
        self.note_small_memories();
        self.fit(&mut groups);
        let usable = |node: &&Node| node.has_memory();
        Ok(Plan {
            groups,
            left_out: self.left_out,
            notes: self.notes,
            cache_bytes: self.cache_bytes,
            line_bytes: self.line_bytes,
            single_node: self.machine.nodes().iter().filter(usable).count() == 1,
        })
    }

    fn group(&self, target: Target, (chase, array): (usize, usize), steps: Vec<Step>) -> Group {
        let near = |node: &&CpuNode| target.node() == Some(node.id);
        let fillers =
            self.cpu_nodes.iter().find(near).or(self.cpu_nodes.first()).map_or(Vec::new(), |node| node.cores.clone());
        Group {
            target: Some(target),
            chase_bytes: if uses_chase(&steps) { chase } else { 0 },
            array_bytes: if uses_arrays(&steps) { array } else { 0 },
            fillers,
            steps,
        }
    }

    fn random(&self) -> Walk {
        match self.options.order {
            Order::Random => Walk::Random,
            Order::Page => Walk::RandomInPages,
        }
    }

    /// Everything that is measured on one node's memory.
    fn steps_on(&mut self, target: &Target, chase_bytes: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let strided = Walk::Strided(self.options.stride_bytes);
        let is_home = |node: &CpuNode| target.node() == Some(node.id);
        if self.wants(Part::Latency) {
            // What was written to lay a chase is in the caches of the memory's own node at first, and other nodes would get it from there: its own chase comes
            // first, and drives it out.
            let mut nodes: Vec<&CpuNode> = self.cpu_nodes.iter().collect();
            nodes.sort_by_key(|node| !is_home(node));
            for (walk, sort) in [(self.random(), "random chases"), (strided, "strided chases of remote pairs")] {
                for node in &nodes {
                    let rank = if matches!(walk, Walk::Strided(_)) && !is_home(node) { 2 } else { 0 };
                    steps.push(step(Task::Latency { from: node.id, cpu: node.cores[0], walk }, rank, sort));
                }
            }
        }
        if self.wants(Part::Loaded) {
            for node in &self.cpu_nodes {
                let neighbours: Vec<CpuId> =
                    node.together.iter().copied().filter(|cpu| node.cores[1..].contains(cpu)).collect();
                if neighbours.is_empty() {
                    let why = match node.cores.len() {
                        1 => "it has only one usable core",
                        _ => "this process's control group has time for one CPU only",
                    };
                    let what = format!("latency under load from node {}: {why}", node.id);
                    if !self.left_out.contains(&what) {
                        self.left_out.push(what);
                    }
                    continue;
                }
                let count = if self.options.full { 10 } else { 4 };
                let shares = (0..=count).map(|index| f64::from(index) / f64::from(count)).collect();
                let task = Task::Loaded { from: node.id, cpu: node.cores[0], neighbours, shares };
                let (rank, sort) =
                    if is_home(node) { (1, "latency under load") } else { (4, "latency under load of remote pairs") };
                steps.push(step(task, rank, sort));
            }
        }
        if self.wants(Part::Caches)
            && let Some(node) = self.cpu_nodes.iter().find(|node| is_home(node))
        {
            let is_first = self.cpu_nodes.first().is_some_and(|first| first.id == node.id);
            let per_octave = if self.options.full { 4 } else { 2 };
            let sizes = stairs(chase_bytes, per_octave);
            let (rank, sort) = if is_first { (0, "cache steps") } else { (5, "cache steps of further nodes") };
            let walk = self.random();
            steps.push(step(
                Task::Stairs { from: node.id, cpu: node.cores[0], walk, sizes: sizes.clone() },
                rank,
                sort,
            ));
            if self.options.full && is_first {
                steps.push(step(Task::Stairs { from: node.id, cpu: node.cores[0], walk: strided, sizes }, rank, sort));
            }
        }
        if self.wants(Part::Bandwidth) {
            for node in &self.cpu_nodes {
                steps.extend(self.bandwidths(node, is_home(node)));
            }
        }
        steps
    }

    /// Kernels of one pair: all on all CPUs at home; on one CPU, and on other nodes' memory, those that differ most, unless everything is wanted.
    fn bandwidths(&self, node: &CpuNode, is_home: bool) -> Vec<Step> {
        let essential = [Kernel::Read, Kernel::Triad, Kernel::TriadNt];
        let mut steps = Vec::new();
        let mut add = |cpus: &[CpuId], rank: &dyn Fn(Kernel) -> (u8, &'static str)| {
            for kernel in Kernel::ALL {
                let (rank, sort) = rank(kernel);
                steps.push(step(Task::Bandwidth { from: node.id, cpus: cpus.to_vec(), kernel }, rank, sort));
            }
        };
        let all = |kernel: Kernel| match (is_home, essential.contains(&kernel)) {
            (_, true) => (0, "bandwidths"),
            (true, false) => (3, "bandwidths of further kernels"),
            (false, false) => (6, "bandwidths of further kernels on remote pairs"),
        };
        add(&node.together, &all);
        if node.together.len() > 1 {
            let one = |kernel: Kernel| match (is_home, essential.contains(&kernel)) {
                (true, true) => (1, "bandwidths of one CPU"),
                (true, false) => (6, "bandwidths of further kernels on one CPU"),
                (false, _) => (7, "bandwidths of one CPU on remote pairs"),
            };
            add(&node.cores[..1], &one);
        }
        steps
    }

    /// What is measured on memory of several nodes.
    fn steps_spread(&self, rank: u8) -> Vec<Step> {
        let mut steps = Vec::new();
        for node in &self.cpu_nodes {
            if self.wants(Part::Latency) {
                let walk = self.random();
                steps.push(step(
                    Task::Latency { from: node.id, cpu: node.cores[0], walk },
                    rank,
                    "chases through interleaved memory",
                ));
            }
            if self.wants(Part::Bandwidth) {
                for kernel in [Kernel::Read, Kernel::Triad, Kernel::TriadNt] {
                    let task = Task::Bandwidth { from: node.id, cpus: node.together.clone(), kernel };
                    steps.push(step(task, rank, "bandwidths of interleaved memory"));
                }
            }
        }
        steps
    }

    /// Pairs of CPUs: one of each relation in each node and one for each pair of nodes; with `--full`, all where they are not too many.
    fn handoffs(&self) -> Vec<Step> {
        let all: Vec<CpuId> = self.cpu_nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        let cores: Vec<CpuId> = self.cpu_nodes.iter().flat_map(|node| node.cores.iter().copied()).collect();
        let mut pairs: BTreeSet<(CpuId, CpuId)> = BTreeSet::new();
        let mut add = |a: CpuId, b: CpuId| pairs.insert((a.min(b), a.max(b)));
        let mut seen = BTreeMap::new();
        for node in &self.cpu_nodes {
            for &b in node.cpus.iter().filter(|cpu| **cpu != node.cpus[0]) {
                seen.entry((node.id, self.relation(node.cpus[0], b))).or_insert((node.cpus[0], b));
            }
        }
        seen.values().for_each(|&(a, b)| {
            add(a, b);
        });
        for (index, node) in self.cpu_nodes.iter().enumerate() {
            self.cpu_nodes[..index].iter().for_each(|other| {
                add(other.cores[0], node.cores[0]);
            });
        }
        if self.options.full {
            let each = if all.len() <= ALL_PAIRS_MAX { &all } else { &cores };
            if each.len() <= ALL_PAIRS_MAX {
                for (index, &b) in each.iter().enumerate() {
                    each[..index].iter().for_each(|&a| {
                        add(a, b);
                    });
                }
            }
        }
        let task = |(a, b): (CpuId, CpuId)| {
            let relation = self.relation(a, b);
            let is_within = self.machine.node_of_cpu(a) == self.machine.node_of_cpu(b);
            let (rank, sort) = if is_within { (1, "hand-offs within a node") } else { (3, "hand-offs between nodes") };
            step(Task::Handoff { a, b, relation }, rank, sort)
        };
        pairs.into_iter().map(task).collect()
    }

    fn relation(&self, a: CpuId, b: CpuId) -> Relation {
        let cpu = |id| self.machine.cpu(id);
        if cpu(a).is_some_and(|cpu| cpu.siblings.contains(&b)) {
            return Relation::SameCore;
        }
        let last = self.machine.caches().iter().filter(|cache| cache.cpus.contains(&a)).map(|cache| cache.level).max();
        if last.is_some_and(|level| self.machine.data_cache(a, level).is_some_and(|cache| cache.cpus.contains(&b))) {
            return Relation::SameCache;
        }
        if self.machine.node_of_cpu(a).is_some() && self.machine.node_of_cpu(a) == self.machine.node_of_cpu(b) {
            return Relation::SameNode;
        }
        let socket = |id| cpu(id).and_then(|cpu| cpu.socket);
        if socket(a).is_some() && socket(a) == socket(b) { Relation::SamePackage } else { Relation::Apart }
    }

    /// Gives each step its time; leaves out, least needed first, what does not fit, and says so.
    fn fit(&mut self, groups: &mut Vec<Group>) {
        let (least, most) = if self.options.full { FULL_UNIT } else { QUICK_UNIT };
        let budget = self.options.budget.or((!self.options.full).then_some(QUICK)).map(|budget| budget.as_secs_f64());
        let weight =
            |groups: &[Group]| groups.iter().flat_map(|group| &group.steps).map(|step| step.task.weight()).sum::<f64>();
        let needs = |groups: &[Group]| groups.iter().map(layout_s).sum::<f64>() + least * weight(groups);
        let mut dropped: BTreeMap<&'static str, usize> = BTreeMap::new();
        while let Some(budget) = budget.filter(|budget| needs(groups) > *budget) {
            let rank = groups.iter().flat_map(|group| &group.steps).map(|step| step.rank).max().unwrap_or(0);
            if rank == 0 {
                let needed = needs(groups);
                if needed > 1.2 * budget {
                    self.notes.push(format!(
                        "The smallest set of measurements takes about {needed:.0} s, more than the requested {budget:.0} s."
                    ));
                }
                break;
            }
            for group in groups.iter_mut() {
                for step in group.steps.iter().filter(|step| step.rank == rank) {
                    *dropped.entry(step.sort).or_insert(0) += 1;
                }
                group.steps.retain(|step| step.rank != rank);
                group.chase_bytes *= usize::from(uses_chase(&group.steps));
                group.array_bytes *= usize::from(uses_arrays(&group.steps));
            }
            groups.retain(|group| !group.steps.is_empty());
        }
        if let Some(budget) = budget {
            let words: Vec<String> = dropped.iter().map(|(sort, count)| format!("{sort} ({count})")).collect();
            if !words.is_empty() {
                self.left_out
                    .push(format!("{}: no time within {budget:.0} s (--full or --for allow more)", words.join(", ")));
            }
        }
        let layout: f64 = groups.iter().map(layout_s).sum();
        let unit = budget.map_or(least, |budget| (budget - layout) / weight(groups).max(1e-9)).clamp(least, most);
        for step in groups.iter_mut().flat_map(|group| &mut group.steps) {
            step.time = Duration::from_secs_f64(unit * step.task.weight());
        }
    }
}

fn uses_chase(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step.task, Task::Latency { .. } | Task::Stairs { .. } | Task::Loaded { .. }))
}

fn uses_arrays(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step.task, Task::Bandwidth { .. } | Task::Loaded { .. }))
}

fn step(task: Task, rank: u8, sort: &'static str) -> Step {
    Step { task, time: Duration::ZERO, rank, sort }
}

/// Sizes from a few KiB to `most`, `per_octave` per doubling, in whole multiples of 1 KiB.
fn stairs(most: usize, per_octave: u32) -> Vec<usize> {
    let mut sizes = Vec::new();
    for index in 0.. {
        let size = STAIR_FROM as f64 * 2_f64.powf(f64::from(index) / f64::from(per_octave));
        if size >= most as f64 {
            break;
        }
        sizes.push((size as usize).next_multiple_of(1 << 10));
    }
    sizes.push(most);
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests;
