//! Facts by which samples are interpreted: what their events sample, the node of a CPU, and the node that a physical address or a distance names.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_machine::{CpuId, Machine, NodeId};
use numapilot_perf::data_src::{DataSource, Distance, Level, Operation};
use numapilot_perf::ibs::{COUNTS_OPERATIONS, OpRecord};
use numapilot_perf::{EventAttr, MemoryAccess, Sample};

use crate::event::{EventKind, EventRequest};

/// No machine has more memory blocks: 52 bits of physical address over blocks of 128 MiB.
const BLOCKS_MAX: usize = 1 << 25;

/// Which samples of an event are memory accesses. An address alone makes none: sampled cycles have those of whatever instruction was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessRule {
    /// All that have an address: the event samples nothing else.
    #[default]
    All,
    /// Those whose data source names a load, a store or a prefetch.
    AsTold,
}

/// What an event's samples are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFact {
    /// Which of them are accesses.
    pub rule: AccessRule,
    /// The event counts something else than accesses or operations (cycles), so that a period is no number of accesses.
    pub counts_other: bool,
    /// Whether the samples are page faults.
    pub is_fault: bool,
    /// The event is AMD's `ibs_op`: raw samples hold its registers.
    pub is_ibs: bool,
    /// The event samples stores, and nothing else.
    pub is_of_stores: bool,
    /// The data source calls everything that missed the first cache a hit of the second one: IBS of AMD's processors before Kaveri has no bit for that
    /// (Opterons), and the kernel does not ask which processor it is (`perf_ibs_get_mem_lvl` in `arch/x86/events/amd/ibs.c`).
    pub has_no_l2_miss: bool,
    /// Whether the event's samples are ignored.
    pub is_helper: bool,
}

impl EventFact {
    /// The access in a sample of the event; `None` where the instruction touches no memory, or the event records no address.
    pub fn access<'a>(self, attr: &EventAttr, sample: &Sample<'a>) -> Option<MemoryAccess<'a>> {
        let registers = sample.raw.filter(|_| self.is_ibs).and_then(|raw| OpRecord::decode(raw, 0).ok());
        let access = match registers {
            Some(op) => MemoryAccess::of_ibs(attr, sample, &op),
            None => MemoryAccess::of_sample(attr, sample),
        };
        // Changed in place: an access is large, and this is done for every sample.
        let mut access = access?;
        let is_guess = self.has_no_l2_miss && registers.is_none();
        if is_guess && access.level == Level::L2 {
            (access.level, access.distance) = (Level::Unknown, Distance::Unknown);
        }
        access.operation = self.operation(access.operation);
        access.period = access.period.filter(|_| !self.counts_other);
        Some(access)
    }

    /// The operation of an access. Of the stores of Intel's small cores (Gracemont, Crestmont: some servers have no others) the kernel says that they are
    /// loads: it took the table for loads for them, too, until 2026 (`grt_latency_data`, `cmt_latency_data` in `arch/x86/events/intel/ds.c`).
    fn operation(self, told: Operation) -> Operation {
        match told {
            Operation::Load | Operation::Unknown if self.is_of_stores => Operation::Store,
            told => told,
        }
    }

    /// Whether a sample is of a memory access at all, with a known address or without.
    pub fn is_access(self, sample: &Sample<'_>) -> bool {
        let operation = || DataSource::decode(sample.data_src.unwrap_or(0)).operation;
        self.rule == AccessRule::All
            || matches!(operation(), Operation::Load | Operation::Store | Operation::LoadStore | Operation::Prefetch)
    }
}

/// Memory of a node: bit n of the words is its n-th block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBlocks {
    /// The node.
    pub node: NodeId,
    /// Numbers of its memory blocks.
    pub blocks: Vec<u64>,
}

/// What the samples of opened events are, those of the side band (which comes first) too.
fn facts_of(requests: &[EventRequest]) -> Vec<EventFact> {
    let fact = |request: &EventRequest| EventFact {
        counts_other: request.kind == EventKind::Ibs && request.attr.config & COUNTS_OPERATIONS == 0,
        is_fault: request.kind == EventKind::Fault,
        is_ibs: request.kind == EventKind::Ibs,
        is_of_stores: request.samples_stores,
        is_helper: matches!(request.kind, EventKind::Helper | EventKind::SideBand),
        ..EventFact::default()
    };
    std::iter::once(EventFact { is_helper: true, ..EventFact::default() }).chain(requests.iter().map(fact)).collect()
}

/// Nodes of pages that the kernel was asked for, by process id and page.
pub type Answers = foldhash::HashMap<(Pid, PageNumber), NodeId>;

/// Whether memory answered an access of this level; `None`: the hardware did not say, or no memory was accessed. A fourth level of cache sits at the memory and
/// caches it for every core.
#[must_use]
pub fn is_memory(level: Level) -> Option<bool> {
    match level {
        Level::L4 | Level::Ram | Level::PersistentRam | Level::Cxl | Level::Uncached => Some(true),
        Level::L1 | Level::LineFill | Level::L2 | Level::L3 | Level::PeerCache => Some(false),
        Level::Unknown | Level::Io => None,
    }
}

/// Facts about the machine and the events.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// What the samples of each event are.
    pub events: Vec<EventFact>,
    /// Node of each CPU.
    pub node_of_cpu: HashMap<CpuId, NodeId>,
    /// CPUs of event ids, where samples do not say.
    pub cpu_of_id: HashMap<u64, CpuId>,
    /// Nodes that have memory.
    pub memory_nodes: Vec<NodeId>,
    /// Each package is one node, so that "local" and "remote" memory are the node's own and another's.
    pub packages_are_nodes: bool,
    /// Bytes of a memory block; 0: not known.
    pub block_bytes: u64,
    /// Memory blocks of each node.
    pub blocks: Vec<MemoryBlocks>,
    /// Operations that an SPE record stands for.
    pub spe_period: Option<u64>,
    /// The join knows which fault on a page is its first, as it sees mappings and blocks end: nothing is inferred before it.
    pub leaves_first_touches: bool,
}

impl Places {
    /// Those of the machine that this runs on, for the samples of opened events.
    #[must_use]
    pub fn of_requests(machine: &Machine, requests: &[EventRequest]) -> Places {
        let mut places = Places::of_machine(machine, facts_of(requests)).with_blocks(Path::new("/"));
        let with_aux = requests.iter().find(|request| request.aux_bytes > 0);
        places.spe_period = with_aux.and_then(|request| request.attr.period());
        places
    }

    /// Facts about the machine that this runs on, and about `events`.
    pub fn of_machine(machine: &Machine, events: Vec<EventFact>) -> Places {
        let mut places = Places { events, ..Places::default() };
        for node in machine.nodes() {
            places.node_of_cpu.extend(node.cpus.iter().map(|cpu| (*cpu, node.id)));
            if node.memory_bytes != 0 {
                places.memory_nodes.push(node.id);
            }
        }
        places
    }

    /// With the kernel's map of memory blocks under `root` (`/sys/devices/system/memory`), by which physical addresses name nodes. Machines without
    /// memory hot-plug have none; homes are then asked for.
    pub fn with_blocks(mut self, root: &Path) -> Places {
        let text = fs::read_to_string(root.join("sys/devices/system/memory/block_size_bytes")).unwrap_or_default();
        self.block_bytes = u64::from_str_radix(text.trim(), 16).unwrap_or(0);
        for &node in &self.memory_nodes {
            let folder = root.join(format!("sys/devices/system/node/node{}", node.0));
            let names = fs::read_dir(folder)
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let numbers = names.filter_map(|name| name.strip_prefix("memory")?.parse::<usize>().ok());
            let mut blocks = Vec::new();
            for number in numbers.filter(|&number| number < BLOCKS_MAX) {
                if blocks.len() <= number / 64 {
                    blocks.resize(number / 64 + 1, 0);
                }
                blocks[number / 64] |= 1 << (number % 64);
            }
            self.blocks.push(MemoryBlocks { node, blocks });
        }
        self
    }

    /// Whether accesses are sampled beside page faults, which then only show where pages are and do not count as accesses.
    pub fn faults_only_place(&self) -> bool {
        let samples_accesses = |event: &EventFact| !event.is_fault && !event.is_helper && event.rule == AccessRule::All;
        self.spe_period.is_some() || self.events.iter().any(samples_accesses)
    }

    /// CPU of an event's id.
    pub fn cpu_of_id(&self, id: u64) -> Option<CpuId> {
        self.cpu_of_id.get(&id).copied()
    }

    /// Node of a CPU.
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        self.node_of_cpu.get(&cpu).copied()
    }

    /// Node whose memory has a physical address, by the map of memory blocks.
    pub fn node_of_physical(&self, address: u64) -> Option<NodeId> {
        let block = address.checked_div(self.block_bytes)?;
        let word = usize::try_from(block / 64).ok()?;
        let has = |blocks: &[u64]| blocks.get(word).is_some_and(|bits| bits >> (block % 64) & 1 != 0);
        let mut found = self.blocks.iter().filter(|node| has(&node.blocks));
        let node = found.next()?;
        // A block that two nodes share says nothing.
        if found.next().is_some() { None } else { Some(node.node) }
    }

    /// The only node with memory, if there is but one.
    pub fn only_node(&self) -> Option<NodeId> {
        match self.memory_nodes[..] {
            [node] => Some(node),
            _ => None,
        }
    }

    /// Node of memory that the hardware calls local or remote: of two nodes, remote is the other one. Only where nodes are packages: with several
    /// nodes in a package the words mean different things on different processors.
    pub fn node_by_distance(&self, level: Level, distance: Distance, own: Option<NodeId>) -> Option<NodeId> {
        let own = own.filter(|_| self.packages_are_nodes && level == Level::Ram)?;
        match (distance.is_other_node()?, &self.memory_nodes[..]) {
            (false, _) => Some(own),
            (true, &[first, second]) if own == first => Some(second),
            (true, &[first, second]) if own == second => Some(first),
            (true, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two packages with a node each, CPUs 0 and 1, and two memory blocks of 1 GiB each; block 2 is on both.
    fn two_nodes() -> Places {
        let blocks = |node, bits| MemoryBlocks { node: NodeId(node), blocks: vec![bits] };
        Places {
            node_of_cpu: HashMap::from([(CpuId(0), NodeId(0)), (CpuId(1), NodeId(1))]),
            memory_nodes: vec![NodeId(0), NodeId(1)],
            packages_are_nodes: true,
            block_bytes: 1 << 30,
            blocks: vec![blocks(0, 0b101), blocks(1, 0b110)],
            ..Places::default()
        }
    }

    #[test]
    fn physical_addresses_name_nodes_where_one_node_has_the_block() {
        let places = two_nodes();
        let node = |gib: u64| places.node_of_physical(gib << 30);
        assert_eq!(
            [node(0), node(1), node(2), node(3), node(1 << 20)],
            [Some(NodeId(0)), Some(NodeId(1)), None, None, None]
        );
        assert_eq!(Places::default().node_of_physical(0), None);
        assert_eq!(places.only_node(), None);
    }

    /// Memory that such cores write looked as if nobody wrote it, which is a reason to copy it to every node.
    #[test]
    fn a_store_that_the_kernel_calls_a_load_is_a_store() {
        // `OP_LH | P(LVL, L2) | LEVEL(L2)`, and the same of a store.
        let answered = (2 | 0x20) << 5 | 2 << 33;
        let operation = |is_of_stores: bool, data_src: Option<u64>| {
            let sample = Sample { addr: Some(0x1000), data_src, ..Sample::default() };
            let fact = EventFact { is_of_stores, ..EventFact::default() };
            fact.access(&EventAttr::default(), &sample).map(|access| (access.operation, access.level))
        };
        for told in [2, 4] {
            assert_eq!(operation(true, Some(told | answered)), Some((Operation::Store, Level::L2)));
        }
        assert_eq!(operation(true, None), Some((Operation::Store, Level::Unknown)));
        assert_eq!(operation(false, Some(2 | answered)), Some((Operation::Load, Level::L2)));
    }

    /// An Opteron's `ibs_op` without `cnt_ctl` has periods in cycles, which are no number of accesses.
    #[test]
    fn a_period_in_cycles_is_no_number_of_accesses() {
        let period = |config: u64| {
            let attr = EventAttr { config, ..EventAttr::default() };
            let request = EventRequest { kind: EventKind::Ibs, attr, ..EventRequest::default() };
            let fact = facts_of(std::slice::from_ref(&request))[1];
            let sample = Sample { addr: Some(0x1000), period: Some(5000), ..Sample::default() };
            fact.access(&request.attr, &sample).and_then(|access| access.period)
        };
        assert_eq!([period(COUNTS_OPERATIONS), period(0)], [Some(5000), None]);
    }

    /// An Opteron's load that memory answered is `L(L2) | LN(L2)`, as L2Miss is 0 in all its registers.
    #[test]
    fn a_second_cache_that_hits_always_is_unknown() {
        let seen = |has_no_l2_miss: bool, data_src: u64| {
            let sample = Sample { addr: Some(0x1000), data_src: Some(data_src), ..Sample::default() };
            let fact = EventFact { is_ibs: true, has_no_l2_miss, ..EventFact::default() };
            fact.access(&EventAttr::default(), &sample).map(|access| (access.level, access.distance))
        };
        let (first, second) = (2 | (2 | 8) << 5 | 1 << 33, 2 | (2 | 0x20) << 5 | 2 << 33);
        assert_eq!(seen(true, second), Some((Level::Unknown, Distance::Unknown)));
        assert_eq!(seen(false, second), Some((Level::L2, Distance::Local)));
        assert_eq!(seen(true, first), Some((Level::L1, Distance::Local)));
    }

    #[test]
    fn memory_blocks_are_read_from_the_kernels_folders() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str, text: &str| {
            let path = root.path().join("sys/devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        make("memory/block_size_bytes", "8000000\n");
        for (node, block) in [(0, 0), (0, 1), (1, 2), (1, 130)] {
            make(&format!("node/node{node}/memory{block}"), "");
        }
        make("node/node1/meminfo", "");
        let places = Places { memory_nodes: vec![NodeId(0), NodeId(1)], ..Places::default() }.with_blocks(root.path());
        let node = |block: u64| places.node_of_physical(block * 0x800_0000 + 5).map(|node| node.0);
        assert_eq!([node(0), node(1), node(2), node(3), node(130)], [Some(0), Some(0), Some(1), None, Some(1)]);
    }

    #[test]
    fn remote_names_the_other_of_two_nodes_only_where_packages_are_nodes() {
        let places = two_nodes();
        let node = |level, distance, own| places.node_by_distance(level, distance, own);
        assert_eq!(node(Level::Ram, Distance::Remote, Some(NodeId(0))), Some(NodeId(1)));
        assert_eq!(node(Level::Ram, Distance::Local, Some(NodeId(1))), Some(NodeId(1)));
        assert_eq!(node(Level::Ram, Distance::Unknown, Some(NodeId(1))), None);
        assert_eq!(node(Level::Ram, Distance::Local, None), None);
        assert_eq!(node(Level::L3, Distance::Local, Some(NodeId(1))), None);
        let many = Places { memory_nodes: vec![NodeId(0), NodeId(1), NodeId(2)], ..places.clone() };
        assert_eq!(many.node_by_distance(Level::Ram, Distance::Remote, Some(NodeId(0))), None);
        let clustered = Places { packages_are_nodes: false, ..places };
        assert_eq!(clustered.node_by_distance(Level::Ram, Distance::Local, Some(NodeId(0))), None);
    }
}
